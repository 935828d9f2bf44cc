// Which nodes of a graph are which command's, and how they are given other
// addresses. A product's and an attention's become the kernels that they are on
// these (cuda/libraries/single.c). What NCCL or a function of the caller's
// captures is left as it is, and so is what is not understood: a copy that CUDA
// describes otherwise than it was asked for, a call of kernels of which two are
// the same, or that fills an operand.
#include "runtime/cuda/issue/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda/libraries/single.h"

hd_status hd_cuda_graph_new(const hd_cuda_plan *plan, hd_diag *diag,
                            hd_cuda_graph *out)
{
    size_t n = (size_t)plan->device->narguments + 1;
    hd_cuda_graph graph = {
        .plan = plan,
        .argument = calloc(n * HD_CUDA_TURNS, sizeof *graph.argument),
        .fixed = calloc(n, sizeof *graph.fixed),
        .held = calloc(n, sizeof *graph.held),
        .now.nodes =
            calloc((size_t)plan->ncommands + 1, sizeof *graph.now.nodes)};

    if (graph.argument == NULL || graph.fixed == NULL || graph.held == NULL ||
        graph.now.nodes == NULL) {
        hd_cuda_graph_free(plan->device, &graph);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a graph");
    }
    *out = graph;
    return HD_OK;
}

static void free_capture(const hd_device *device, hd_cuda_capture *capture)
{
    if (capture->graph != NULL)
        device->cu.graph_destroy(capture->graph);
    free(capture->nodes);
    *capture = (hd_cuda_capture){0};
}

void hd_cuda_graph_free(const hd_device *device, hd_cuda_graph *graph)
{
    for (int i = 0; i < HD_CUDA_TURNS; i++) {
        if (graph->exec[i] != NULL)
            device->cu.graph_exec_destroy(graph->exec[i]);
    }
    if (graph->first.nodes != graph->now.nodes)
        free_capture(device, &graph->first);
    free_capture(device, &graph->now);
    free(graph->argument);
    free(graph->fixed);
    free(graph->held);
}

static bool carries_number(const hd_cuda_plan *plan,
                           const hd_cuda_command *command)
{
    hd_cuda_at at;

    for (int i = 0; hd_cuda_address_of(plan, command, i, &at); i++) {
        if (at.buffer == HD_CUDA_WORD_VALUE)
            return true;
    }
    return command->kind == HD_CUDA_WORDS;
}

// ------------------------------------------------------------- capturing

// The nodes that were captured since the last look, if they follow each other;
// the last of them is the last on this stream.
static hd_cuda_nodes find_nodes(hd_device *device, hd_cuda_graph *graph,
                                hd_cu_stream stream)
{
    const hd_cuda_nodes none = {.n = 0};
    const hd_cu_node *last = NULL;
    hd_cu_graph captured = NULL;
    hd_cuda_nodes nodes;
    size_t n = 0, before = graph->nnodes;
    int status;

    graph->nnodes = SIZE_MAX; // unknown
    if (device->cu.capture_info(stream, &status, NULL, &captured, &last, &n) !=
            HD_CU_SUCCESS ||
        captured == NULL)
        return none;
    nodes.at[0] = n == 1 ? last[0] : NULL;
    if (device->cu.graph_nodes(captured, NULL, &n) != HD_CU_SUCCESS)
        return none;
    graph->nnodes = n;
    if (before == SIZE_MAX || n <= before || n - before > HD_CUDA_NODES_MOST ||
        nodes.at[0] == NULL)
        return none;
    nodes.n = n - before;
    for (size_t i = 1; i < nodes.n; i++) {
        hd_cu_node two[2];

        n = 2;
        if (device->cu.node_before(nodes.at[i - 1], two, &n) != HD_CU_SUCCESS ||
            n != 1)
            return none;
        nodes.at[i] = two[0];
    }
    return nodes;
}

static bool is_copy(const hd_device *device, const hd_cuda_command *command,
                    hd_cu_node node)
{
    hd_cu_copy_node copy;

    return device->cu.copy_node(node, &copy) == HD_CU_SUCCESS &&
           copy.from.device + copy.from.x ==
               hd_cuda_address(device, command->from) &&
           copy.to.device + copy.to.x == hd_cuda_address(device, command->to) &&
           copy.bytes == command->bytes && copy.height <= 1 && copy.depth <= 1;
}

static bool is_one(const hd_device *device, const hd_cuda_nodes *nodes,
                   int type)
{
    int found = -1;

    return nodes->n == 1 &&
           device->cu.node_type(nodes->at[0], &found) == HD_CU_SUCCESS &&
           found == type;
}

// What it fills is where it was, whatever its operands are, as workspace is.
static bool fills_rooms(const hd_device *device, const hd_cuda_work *work,
                        size_t n)
{
    const hd_cuda_chunk *rooms = device->rooms;
    bool fine = true;

    for (size_t i = 0; i < n; i++)
        fine &= work[i].type != HD_CU_NODE_FILL ||
                work[i].fill.to - rooms->at < rooms->bytes;
    return fine;
}

static bool is_understood(const hd_device *device,
                          const hd_cuda_command *command,
                          const hd_cuda_nodes *nodes)
{
    hd_cuda_work work[HD_CUDA_NODES_MOST];

    switch (command->kind) {
    case HD_CUDA_WORDS:
        return is_one(device, nodes, HD_CU_NODE_WORDS);
    case HD_CUDA_COPY:
        return is_one(device, nodes, HD_CU_NODE_COPY) &&
               is_copy(device, command, nodes->at[0]);
    case HD_CUDA_KERNEL:
        return is_one(device, nodes, HD_CU_NODE_KERNEL);
    case HD_CUDA_PRODUCT:
    case HD_CUDA_ATTEND:
        return nodes->n > 0 && hd_cuda_single_read(device, nodes, work) &&
               fills_rooms(device, work, nodes->n);
    case HD_CUDA_CALL: // whatever it enqueued
    case HD_CUDA_RECORD:
    case HD_CUDA_WAIT:
    case HD_CUDA_RECORD_ARGUMENT:
    case HD_CUDA_WAIT_ARGUMENT:
    case HD_CUDA_NCCL:
    case HD_CUDA_FUSED:
        break;
    }
    return false;
}

// NCCL's calls may name any.
static void mark_named(const hd_cuda_plan *plan, const hd_cuda_command *command,
                       bool *marks)
{
    const hd_device *device = plan->device;
    hd_cuda_at at;

    for (int i = 0; hd_cuda_address_of(plan, command, i, &at); i++) {
        if (hd_cuda_argument_of(device, at) >= 0)
            marks[hd_cuda_argument_of(device, at)] = true;
    }
    for (int i = 0; i < device->narguments && command->kind == HD_CUDA_NCCL;
         i++)
        marks[i] = true;
}

void hd_cuda_graph_note(hd_device *device, hd_cuda_graph *graph, int command)
{
    const hd_cuda_command *c = &graph->plan->command[command];
    hd_cuda_nodes nodes =
        find_nodes(device, graph, device->stream[c->stream].stream);
    bool understood = is_understood(device, c, &nodes);

    if (understood) {
        graph->now.nodes[command] = nodes;
    } else {
        graph->numberless |= carries_number(graph->plan, c);
        mark_named(graph->plan, c, graph->fixed);
    }
    if (!understood || c->kind == HD_CUDA_COPY)
        mark_named(graph->plan, c, graph->held);
}

// ---------------------------------------------------------- setting anew

static hd_cu_graph_exec exec_of(const hd_cuda_graph *graph, uint64_t run)
{
    return graph->exec[run % (unsigned)graph->nturns];
}

static bool update(hd_device *device, hd_cu_graph_exec exec, hd_cu_graph to)
{
    hd_cu_update_result result;

    if (device->cu.graph_update(exec, to, &result) != HD_CU_SUCCESS)
        return false;
    device->patches++;
    return true;
}

static bool set_words(const hd_cuda_plan *plan, hd_cu_graph_exec exec,
                      const hd_cuda_command *command, hd_cu_node node,
                      uint64_t run)
{
    hd_cu_words_node words = {.context = plan->device->home->context,
                              .n = (unsigned)command->n,
                              .op = &plan->word[command->first]};

    hd_cuda_number_words(plan, command, run);
    return plan->device->cu.set_words_node(exec, node, &words) == HD_CU_SUCCESS;
}

static bool set_copy(hd_device *device, hd_cu_graph_exec exec,
                     const hd_cuda_command *command, hd_cu_node node,
                     hd_cu_node like)
{
    hd_cu_copy_node copy;

    if (device->cu.copy_node(like, &copy) != HD_CU_SUCCESS)
        return false;
    copy.from.x = copy.to.x = 0;
    copy.from.device = hd_cuda_address(device, command->from);
    copy.to.device = hd_cuda_address(device, command->to);
    return device->cu.set_copy_node(exec, node, &copy, device->home->context) ==
           HD_CU_SUCCESS;
}

static bool set_kernel(const hd_cuda_plan *plan, hd_cu_graph_exec exec,
                       const hd_cuda_command *command, hd_cu_node node,
                       uint64_t run)
{
    const hd_cuda_launch *launch = &plan->launch[command->launch];
    void *parameters;
    hd_cu_kernel_node kernel = {.function = launch->function,
                                .shared_bytes = launch->shared_bytes,
                                .parameters = &parameters};

    memcpy(kernel.grid, launch->grid, sizeof kernel.grid);
    memcpy(kernel.block, launch->block, sizeof kernel.block);
    hd_cuda_parameters_now(plan, launch, run, &parameters);
    return plan->device->cu.set_kernel_node(exec, node, &kernel) ==
           HD_CU_SUCCESS;
}

static bool set_nodes(hd_device *device, const hd_cuda_graph *graph, int i,
                      uint64_t run)
{
    const hd_cuda_command *command = &graph->plan->command[i];
    const hd_cuda_nodes *nodes = &graph->first.nodes[i];
    const hd_cuda_nodes *like = &graph->now.nodes[i];
    hd_cu_graph_exec exec = exec_of(graph, run);

    if (command->kind == HD_CUDA_WORDS)
        return set_words(graph->plan, exec, command, nodes->at[0], run);
    if (command->kind == HD_CUDA_COPY)
        return set_copy(device, exec, command, nodes->at[0], like->at[0]);
    if (command->kind == HD_CUDA_KERNEL)
        return set_kernel(graph->plan, exec, command, nodes->at[0], run);
    return hd_cuda_single_set(graph->plan, command, exec, nodes, like);
}

static bool set_numbers(hd_device *device, const hd_cuda_graph *graph,
                        uint64_t run)
{
    for (int i = 0; i < graph->plan->ncommands; i++) {
        if (carries_number(graph->plan, &graph->plan->command[i]) &&
            !set_nodes(device, graph, i, run))
            return false;
    }
    return true;
}

// Those that the nodes of the run's turn are set for.
static hd_cuda_argument *arguments_of(const hd_device *device,
                                      const hd_cuda_graph *graph, uint64_t run)
{
    return graph->argument +
           run % (unsigned)graph->nturns * (unsigned)device->narguments;
}

static int count_turns(const hd_cuda_graph *graph)
{
    for (int i = 0; i < graph->plan->ncommands && !graph->numberless; i++) {
        if (carries_number(graph->plan, &graph->plan->command[i]))
            return HD_CUDA_TURNS;
    }
    return 1;
}

hd_status hd_cuda_graph_make(hd_device *device, hd_cuda_graph *graph,
                             const hd_cuda_argument *argument, uint64_t run,
                             hd_diag *diag)
{
    graph->first = graph->now;
    graph->nturns = count_turns(graph);
    for (uint64_t i = run; i < run + (unsigned)graph->nturns; i++) {
        HD_CUDA_TRY(device, diag, graph_instantiate,
                    &graph->exec[i % (unsigned)graph->nturns],
                    graph->first.graph, 0);
        device->graphs++;
        memcpy(arguments_of(device, graph, i), argument,
               (size_t)device->narguments * sizeof *argument);
        graph->numberless |= i > run && !set_numbers(device, graph, i);
    }
    return HD_OK;
}

bool hd_cuda_graph_is_alike(const hd_cuda_graph *graph,
                            const hd_cuda_graph *other)
{
    int n = graph->plan->ncommands;

    if (graph->nnodes == SIZE_MAX || graph->nnodes != other->nnodes ||
        graph->numberless || other->plan->ncommands != n ||
        count_turns(graph) != other->nturns)
        return false;
    for (int i = 0; i < n; i++) {
        const hd_cuda_command *a = &graph->plan->command[i];
        const hd_cuda_command *b = &other->plan->command[i];

        if (a->kind != b->kind || a->stream != b->stream ||
            a->event != b->event || a->n != b->n || a->kind == HD_CUDA_NCCL ||
            a->kind == HD_CUDA_CALL ||
            graph->now.nodes[i].n != other->now.nodes[i].n)
            return false;
    }
    return true;
}

bool hd_cuda_graph_patch(hd_device *device, hd_cuda_graph *graph,
                         hd_cuda_graph *old, const hd_cuda_argument *argument,
                         uint64_t run)
{
    if (!update(device, exec_of(old, run), graph->now.graph))
        return false;
    graph->nturns = old->nturns;
    memcpy(graph->exec, old->exec, sizeof graph->exec);
    memset(old->exec, 0, sizeof old->exec);
    graph->first = old->first;
    if (old->first.nodes == old->now.nodes)
        old->now = (hd_cuda_capture){0};
    old->first = (hd_cuda_capture){0};
    for (int i = 0; i < graph->nturns; i++) {
        memcpy(arguments_of(device, graph, (unsigned)i), argument,
               (size_t)device->narguments * sizeof *argument);
        graph->stale[i] = true;
    }
    graph->stale[run % (unsigned)graph->nturns] = false;
    return true;
}

static bool is_as_it_was(const hd_cuda_graph *graph,
                         const hd_cuda_argument *was,
                         const hd_cuda_argument *argument, int i)
{
    return was[i].at == argument[i].at &&
           (!graph->held[i] || was[i].allocation == argument[i].allocation);
}

// What is fixed is the same in all turns.
bool hd_cuda_graph_fits(const hd_device *device, const hd_cuda_graph *graph,
                        const hd_cuda_argument *argument)
{
    for (int i = 0; i < device->narguments; i++) {
        if (graph->fixed[i] &&
            !is_as_it_was(graph, graph->argument, argument, i))
            return false;
    }
    return true;
}

static bool names_changed(const hd_device *device, const hd_cuda_graph *graph,
                          const hd_cuda_argument *was,
                          const hd_cuda_argument *argument, int command)
{
    hd_cuda_at at;

    for (int i = 0; hd_cuda_address_of(graph->plan,
                                       &graph->plan->command[command], i, &at);
         i++) {
        int named = hd_cuda_argument_of(device, at);

        if (named >= 0 && !is_as_it_was(graph, was, argument, named))
            return true;
    }
    return false;
}

// What was captured names the arguments of then, and is of another turn.
static bool freshen(hd_device *device, hd_cuda_graph *graph, uint64_t run)
{
    bool *stale = &graph->stale[run % (unsigned)graph->nturns];

    if (!*stale)
        return true;
    *stale = false;
    return update(device, exec_of(graph, run), graph->now.graph) &&
           set_numbers(device, graph, run);
}

bool hd_cuda_graph_set(hd_device *device, hd_cuda_graph *graph,
                       const hd_cuda_argument *argument, uint64_t run)
{
    size_t bytes = (size_t)device->narguments * sizeof *argument;
    hd_cuda_argument *was = arguments_of(device, graph, run);

    if (!freshen(device, graph, run))
        return false;
    if (memcmp(was, argument, bytes) == 0)
        return true;
    for (int i = 0; i < graph->plan->ncommands; i++) {
        if (graph->now.nodes[i].n > 0 &&
            names_changed(device, graph, was, argument, i) &&
            !set_nodes(device, graph, i, run))
            return false;
    }
    memcpy(was, argument, bytes);
    return true;
}

hd_status hd_cuda_graph_launch(hd_device *device, const hd_cuda_graph *graph,
                               uint64_t run, hd_cu_stream stream, hd_diag *diag)
{
    HD_CUDA_TRY(device, diag, graph_launch, exec_of(graph, run), stream);
    return HD_OK;
}
