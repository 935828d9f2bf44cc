// A call of a library's as a graph of its own. cuBLASLt's takes the host of an
// H200 7 us, 12 where it starts two kernels, cuDNN's 11 and 18, and a launch of
// a graph that holds these 1.2 and 1.6. What a library passes to kernels is its
// own secret, so the call is captured, alone, on a stream where nothing runs,
// and the kernels that this gives are what nodes are set to: those of its own
// graph, where runs are issued, or its nodes in the graph of a run. What cuDNN
// clears ahead of its kernels is workspace, which is where it was.
//
//   the session is made     capture ── instantiate ── upload
//   addresses as last time                              launch
//   others, seen before                    set nodes ─── launch    + 0.2 us
//   others, not seen        capture ────── set nodes ─── launch    + 4.0 us
//
// In a run nothing is instantiated, which may have to wait for streams that
// wait for peers. What cannot be told apart, or what CUDA does not capture, set
// or make a graph of, goes by the library's call.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/log.h"
#include "runtime/cuda/libraries/products.h"
#include "runtime/cuda/libraries/single.h"

#define GRAPHS_MOST 1024 // of a session's calls

static void find_operands(const hd_cuda_plan *plan,
                          const hd_cuda_command *command, hd_cu_ptr *out)
{
    hd_cuda_at at;

    memset(out, 0, HD_CUDA_OPERANDS * sizeof *out);
    for (int i = 0; hd_cuda_address_of(plan, command, i, &at); i++)
        out[i] = hd_cuda_address(plan->device, at);
}

static bool is_single(const hd_cuda_command *command)
{
    return command->kind == HD_CUDA_PRODUCT || command->kind == HD_CUDA_ATTEND;
}

static hd_status call(const hd_cuda_plan *plan, const hd_cuda_command *command,
                      hd_cu_stream stream, hd_diag *diag)
{
    return command->kind == HD_CUDA_PRODUCT
               ? hd_cuda_multiply(plan, command, stream, diag)
               : hd_cuda_dnn_issue(plan, command, stream, diag);
}

// ------------------------------------------------------------- captures

// Attributes of a node stay as they are, so it must be the same kernel.
static bool is_same_kernel(const hd_cu_kernel_node *a,
                           const hd_cu_kernel_node *b)
{
    return a->function == b->function && a->kernel == b->kernel &&
           a->shared_bytes == b->shared_bytes &&
           memcmp(a->grid, b->grid, sizeof a->grid) == 0 &&
           memcmp(a->block, b->block, sizeof a->block) == 0;
}

static bool is_same_fill(const hd_cu_fill_node *a, const hd_cu_fill_node *b)
{
    return a->to == b->to && a->value == b->value &&
           a->element_bytes == b->element_bytes && a->width == b->width;
}

static const hd_cuda_work *find_work(const hd_cuda_work *work, size_t n,
                                     const hd_cuda_work *like)
{
    for (size_t i = 0; i < n; i++) {
        if (work[i].type == like->type &&
            (like->type == HD_CU_NODE_KERNEL
                 ? is_same_kernel(&work[i].kernel, &like->kernel)
                 : is_same_fill(&work[i].fill, &like->fill)))
            return &work[i];
    }
    return NULL;
}

static bool read_node(const hd_device *device, hd_cu_node node,
                      hd_cuda_work *out)
{
    const hd_cu_api *cu = &device->cu;

    if (cu->node_type(node, &out->type) != HD_CU_SUCCESS)
        return false;
    if (out->type == HD_CU_NODE_KERNEL)
        return cu->kernel_node(node, &out->kernel) == HD_CU_SUCCESS;
    return out->type == HD_CU_NODE_FILL &&
           cu->fill_node(node, &out->fill) == HD_CU_SUCCESS &&
           out->fill.height == 1;
}

bool hd_cuda_single_read(const hd_device *device, const hd_cuda_nodes *nodes,
                         hd_cuda_work *out)
{
    for (size_t i = 0; i < nodes->n; i++) {
        if (!read_node(device, nodes->at[i], &out[i]) ||
            find_work(out, i, &out[i]) != NULL)
            return false;
    }
    return true;
}

// All of a graph's; false if they are too many, or none.
static bool find_nodes(const hd_device *device, hd_cu_graph graph,
                       hd_cuda_nodes *out)
{
    return device->cu.graph_nodes(graph, NULL, &out->n) == HD_CU_SUCCESS &&
           out->n > 0 && out->n <= HD_CUDA_NODES_MOST &&
           device->cu.graph_nodes(graph, out->at, &out->n) == HD_CU_SUCCESS;
}

// False, and nothing to give back, if its nodes could not be set anew.
static bool capture(const hd_cuda_plan *plan, const hd_cuda_command *command,
                    hd_cuda_captured *out)
{
    hd_device *device = plan->device;
    hd_cuda_captured now = {0};
    hd_cuda_nodes nodes = {.n = 0};
    bool fine;

    find_operands(plan, command, now.operand);
    if (device->cu.capture_begin(device->home->capture,
                                 HD_CU_CAPTURE_RELAXED) != HD_CU_SUCCESS)
        return false;
    fine = call(plan, command, device->home->capture, NULL) == HD_OK;
    fine = device->cu.capture_end(device->home->capture, &now.graph) ==
               HD_CU_SUCCESS &&
           fine && find_nodes(device, now.graph, &nodes) &&
           hd_cuda_single_read(device, &nodes, now.work);
    now.n = nodes.n;
    if (fine)
        *out = now;
    else if (now.graph != NULL)
        device->cu.graph_destroy(now.graph);
    return fine;
}

// The oldest goes when there is no room for one more; not the first one, whose
// nodes the call's own graph has.
static hd_cuda_captured *make_room(hd_device *device, hd_cuda_single *single)
{
    hd_cuda_captured *oldest;

    if (single->n < HD_CUDA_CAPTURED_MOST)
        return hd_cuda_grow((void **)&single->captured, single->n,
                            &single->room, sizeof *single->captured)
                   ? &single->captured[single->n++]
                   : NULL;
    oldest =
        &single->captured[1 + single->dropped++ % (HD_CUDA_CAPTURED_MOST - 1)];
    device->cu.graph_destroy(oldest->graph);
    return oldest;
}

// The call on the addresses of now; NULL if it cannot be had.
static const hd_cuda_captured *capture_now(const hd_cuda_plan *plan,
                                           const hd_cuda_command *command)
{
    hd_cuda_single *single = command->single;
    hd_cuda_captured now, *kept;
    hd_cu_ptr operand[HD_CUDA_OPERANDS];

    find_operands(plan, command, operand);
    for (int i = 0; i < single->n; i++) {
        if (memcmp(single->captured[i].operand, operand, sizeof operand) == 0)
            return &single->captured[i];
    }
    if (!capture(plan, command, &now))
        return NULL;
    kept = make_room(plan->device, single);
    if (kept == NULL)
        plan->device->cu.graph_destroy(now.graph);
    else
        *kept = now;
    return kept;
}

bool hd_cuda_single_set(const hd_cuda_plan *plan,
                        const hd_cuda_command *command, hd_cu_graph_exec exec,
                        const hd_cuda_nodes *nodes, const hd_cuda_nodes *like)
{
    const hd_cuda_captured *now = capture_now(plan, command);
    hd_cuda_work before[HD_CUDA_NODES_MOST];

    if (now == NULL || now->n != nodes->n ||
        !hd_cuda_single_read(plan->device, like, before))
        return false;
    for (size_t i = 0; i < nodes->n; i++) {
        const hd_cuda_work *work = find_work(now->work, now->n, &before[i]);

        if (work == NULL)
            return false;
        if (work->type == HD_CU_NODE_KERNEL &&
            plan->device->cu.set_kernel_node(exec, nodes->at[i],
                                             &work->kernel) != HD_CU_SUCCESS)
            return false;
    }
    return true;
}

// ------------------------------------------------------------ its graph

// Before the first run arguments are somewhere, from the session's own memory
// on, where they are aligned as they will be and apart: cuBLASLt refuses an
// addend that begins where the result does. Nothing is launched with that.
static void stand_in(hd_device *device)
{
    hd_cu_ptr at = device->rooms->at;

    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];

        if (buffer->argument < 0)
            continue;
        device->base[device->nbuffers + buffer->argument] = at;
        if (!buffer->shared)
            device->base[i] = at;
        at += (buffer->bytes + 255) / 256 * 256;
    }
}

// The stream for captures is the home's: another thread may issue a run.
static const hd_cuda_captured *capture_alone(const hd_cuda_plan *plan,
                                             const hd_cuda_command *command)
{
    const hd_cuda_captured *now;

    pthread_mutex_lock(&plan->device->home->issue);
    now = capture_now(plan, command);
    pthread_mutex_unlock(&plan->device->home->issue);
    return now;
}

// Uploaded, its first launch needs no memory of the device's.
static void make_graph(const hd_cuda_plan *plan, const hd_cuda_command *command)
{
    hd_device *device = plan->device;
    hd_cuda_single *single = command->single;
    const hd_cuda_captured *now = capture_alone(plan, command);

    if (now == NULL || !find_nodes(device, now->graph, &single->nodes) ||
        device->cu.graph_instantiate(&single->exec, now->graph, 0) !=
            HD_CU_SUCCESS) {
        single->exec = NULL;
        return;
    }
    memcpy(single->operand, now->operand, sizeof single->operand);
    single->refused = device->cu.graph_upload(
                          single->exec, device->home->rescue) != HD_CU_SUCCESS;
}

// A product may be described, and done by a kernel all the same.
static bool has_singles(const hd_cuda_plan *plan)
{
    for (int i = 0; i < plan->ncommands; i++)
        if (is_single(&plan->command[i]))
            return true;
    return false;
}

hd_status hd_cuda_singles_open(hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;
    bool graphs = !device->binding.graph && plan == device->whole;

    if (!has_singles(plan))
        return HD_OK;
    plan->single = calloc((size_t)plan->ncommands + 1, sizeof *plan->single);
    if (plan->single == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for graphs");
    if (graphs)
        stand_in(device);
    for (int i = 0; i < plan->ncommands; i++) {
        hd_cuda_command *command = &plan->command[i];

        if (!is_single(command))
            continue;
        command->single = &plan->single[plan->nsingles++];
        if (graphs && plan->nsingles <= GRAPHS_MOST)
            make_graph(plan, command);
    }
    return HD_OK;
}

void hd_cuda_singles_close(hd_device *device, hd_cuda_plan *plan)
{
    for (int i = 0; i < plan->nsingles; i++) {
        hd_cuda_single *single = &plan->single[i];

        if (single->exec != NULL)
            device->cu.graph_exec_destroy(single->exec);
        for (int k = 0; k < single->n; k++)
            device->cu.graph_destroy(single->captured[k].graph);
        free(single->captured);
    }
    free(plan->single);
}

// Set for the addresses of now, where it may be launched: a graph is no part of
// the caller's. One that cannot be set is given up, but kept: it may run still.
static bool is_ready(const hd_cuda_plan *plan, const hd_cuda_command *command)
{
    hd_cuda_single *single = command->single;
    hd_cu_ptr operand[HD_CUDA_OPERANDS];

    if (single->exec == NULL || single->refused || plan->device->captured)
        return false;
    find_operands(plan, command, operand);
    if (memcmp(operand, single->operand, sizeof operand) == 0)
        return true;
    single->refused = !hd_cuda_single_set(plan, command, single->exec,
                                          &single->nodes, &single->nodes);
    if (single->refused)
        hd_log(HD_SEVERITY_WARNING,
               "rank %d: CUDA does not set the graph of step %lld anew: from "
               "now on it is started call by call",
               plan->device->rank, (long long)command->step->index);
    memcpy(single->operand, operand, sizeof operand);
    return !single->refused;
}

hd_status hd_cuda_issue_single(const hd_cuda_plan *plan,
                               const hd_cuda_command *command,
                               hd_cu_stream stream, hd_diag *diag)
{
    if (!is_ready(plan, command))
        return call(plan, command, stream, diag);
    HD_CUDA_TRY(plan->device, diag, graph_launch, command->single->exec,
                stream);
    return HD_OK;
}
