// A product as a graph of its own. cuBLASLt's call takes the host of an H200
// 7 us, 12 where it starts two kernels, and a launch of a graph that holds
// these 1.2 and 1.6. What it passes to kernels is its own secret, so the
// product is captured, alone, on a stream where nothing runs, and the kernels
// that this gives are what nodes are set to: those of its own graph, where runs
// are issued, or its nodes in the graph of a run.
//
//   the session is made     capture ── instantiate ── upload
//   addresses as last time                              launch
//   others, seen before                    set nodes ─── launch    + 0.2 us
//   others, not seen        capture ────── set nodes ─── launch    + 4.0 us
//
// In a run nothing is instantiated, which may have to wait for streams that
// wait for peers. What is not kernels that are told apart, or what CUDA does
// not capture, set or make a graph of, goes by cuBLASLt's call.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/log.h"
#include "runtime/cuda/products.h"

#define GRAPHS_MOST 1024 // of a session's products

static void find_operands(const hd_device *device,
                          const hd_cuda_command *command, hd_cu_ptr *out)
{
    const hd_cuda_at at[HD_CUDA_OPERANDS] = {command->a, command->b, command->c,
                                             command->bias};

    for (int i = 0; i < HD_CUDA_OPERANDS; i++)
        out[i] = hd_cuda_address(device, at[i]);
}

// ------------------------------------------------------------- captures

// Attributes of a node stay as they are, so it must be the same kernel.
static bool is_same(const hd_cu_kernel_node *a, const hd_cu_kernel_node *b)
{
    return a->function == b->function && a->kernel == b->kernel &&
           a->shared_bytes == b->shared_bytes &&
           memcmp(a->grid, b->grid, sizeof a->grid) == 0 &&
           memcmp(a->block, b->block, sizeof a->block) == 0;
}

static const hd_cu_kernel_node *find_kernel(const hd_cu_kernel_node *kernel,
                                            size_t n,
                                            const hd_cu_kernel_node *like)
{
    for (size_t i = 0; i < n; i++) {
        if (is_same(&kernel[i], like))
            return &kernel[i];
    }
    return NULL;
}

bool hd_cuda_single_kernels(const hd_device *device, const hd_cuda_nodes *nodes,
                            hd_cu_kernel_node *out)
{
    for (size_t i = 0; i < nodes->n; i++) {
        if (device->cu.kernel_node(nodes->at[i], &out[i]) != HD_CU_SUCCESS ||
            find_kernel(out, i, &out[i]) != NULL)
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
static bool capture(hd_device *device, const hd_cuda_command *command,
                    hd_cuda_captured *out)
{
    hd_cuda_captured now = {0};
    hd_cuda_nodes nodes = {.n = 0};
    bool fine;

    find_operands(device, command, now.operand);
    if (device->cu.capture_begin(device->home->capture,
                                 HD_CU_CAPTURE_RELAXED) != HD_CU_SUCCESS)
        return false;
    fine =
        hd_cuda_multiply(device, command, device->home->capture, NULL) == HD_OK;
    fine = device->cu.capture_end(device->home->capture, &now.graph) ==
               HD_CU_SUCCESS &&
           fine && find_nodes(device, now.graph, &nodes) &&
           hd_cuda_single_kernels(device, &nodes, now.kernel);
    now.nkernels = nodes.n;
    if (fine)
        *out = now;
    else if (now.graph != NULL)
        device->cu.graph_destroy(now.graph);
    return fine;
}

// The oldest goes when there is no room for one more; not the first one, whose
// nodes the product's own graph has.
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

// The product on the addresses of now; NULL if it cannot be had.
static const hd_cuda_captured *capture_now(hd_device *device,
                                           const hd_cuda_command *command)
{
    hd_cuda_single *single = command->single;
    hd_cuda_captured now, *kept;
    hd_cu_ptr operand[HD_CUDA_OPERANDS];

    find_operands(device, command, operand);
    for (int i = 0; i < single->n; i++) {
        if (memcmp(single->captured[i].operand, operand, sizeof operand) == 0)
            return &single->captured[i];
    }
    if (!capture(device, command, &now))
        return NULL;
    kept = make_room(device, single);
    if (kept == NULL)
        device->cu.graph_destroy(now.graph);
    else
        *kept = now;
    return kept;
}

bool hd_cuda_single_set(hd_device *device, const hd_cuda_command *command,
                        hd_cu_graph_exec exec, const hd_cuda_nodes *nodes,
                        const hd_cuda_nodes *like)
{
    const hd_cuda_captured *now = capture_now(device, command);
    hd_cu_kernel_node before[HD_CUDA_NODES_MOST];

    if (now == NULL || now->nkernels != nodes->n ||
        !hd_cuda_single_kernels(device, like, before))
        return false;
    for (size_t i = 0; i < nodes->n; i++) {
        const hd_cu_kernel_node *kernel =
            find_kernel(now->kernel, nodes->n, &before[i]);

        if (kernel == NULL || device->cu.set_kernel_node(
                                  exec, nodes->at[i], kernel) != HD_CU_SUCCESS)
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

// Uploaded, its first launch needs no memory of the device's.
static void make_graph(hd_device *device, const hd_cuda_command *command)
{
    hd_cuda_single *single = command->single;
    const hd_cuda_captured *now = capture_now(device, command);

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

hd_status hd_cuda_singles_open(hd_device *device, hd_diag *diag)
{
    hd_cuda_plan *plan = device->plan;
    bool graphs = !device->binding.graph && plan == device->whole;

    if (plan->nproducts == 0)
        return HD_OK;
    plan->single = calloc((size_t)plan->ncommands + 1, sizeof *plan->single);
    if (plan->single == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for products");
    if (graphs)
        stand_in(device);
    for (int i = 0; i < plan->ncommands; i++) {
        hd_cuda_command *command = &plan->command[i];

        if (command->kind != HD_CUDA_PRODUCT)
            continue;
        command->single = &plan->single[plan->nsingles++];
        if (graphs && plan->nsingles <= GRAPHS_MOST)
            make_graph(device, command);
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
static bool is_ready(hd_device *device, const hd_cuda_command *command)
{
    hd_cuda_single *single = command->single;
    hd_cu_ptr operand[HD_CUDA_OPERANDS];

    if (single->exec == NULL || single->refused || device->captured)
        return false;
    find_operands(device, command, operand);
    if (memcmp(operand, single->operand, sizeof operand) == 0)
        return true;
    single->refused = !hd_cuda_single_set(device, command, single->exec,
                                          &single->nodes, &single->nodes);
    if (single->refused)
        hd_log(HD_SEVERITY_WARNING,
               "rank %d: CUDA does not set the graph of the product in step "
               "%lld anew: from now on it is started call by call",
               device->rank, (long long)command->step->index);
    memcpy(single->operand, operand, sizeof operand);
    return !single->refused;
}

hd_status hd_cuda_issue_product(hd_device *device,
                                const hd_cuda_command *command,
                                hd_cu_stream stream, hd_diag *diag)
{
    if (!is_ready(device, command))
        return hd_cuda_multiply(device, command, stream, diag);
    HD_CUDA_TRY(device, diag, graph_launch, command->single->exec, stream);
    return HD_OK;
}
