// Transfers by NCCL: a communicator an axis of the mesh, a group of transfers
// one NCCL group. Its kernels wait for peers on the device, so that a failure
// aborts the communicators.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda.h"
#include "runtime/cuda_library.h"

static hd_status nccl_error(const hd_device *device, int error, hd_diag *diag,
                            const char *call)
{
    return hd_fail(diag, HD_SYSTEM, "rank %d: NCCL refused '%s': %s",
                   device->rank, call, device->nccl.error_text(error));
}

#define NCCL_TRY(device, diag, name, ...)                       \
    do {                                                        \
        int error_ = (device)->nccl.name(__VA_ARGS__);          \
        if (error_ != HD_NCCL_SUCCESS)                          \
            return nccl_error((device), error_, (diag), #name); \
    } while (0)

// What NCCL does not reduce goes as bytes.
static int type_of(hd_dtype dtype, bool reduces)
{
    switch (dtype) {
    case HD_F64:
        return HD_NCCL_F64;
    case HD_F32:
        return HD_NCCL_F32;
    case HD_F16:
        return HD_NCCL_F16;
    case HD_BF16:
        return HD_NCCL_BF16;
    case HD_I64:
        return HD_NCCL_I64;
    case HD_I32:
        return HD_NCCL_I32;
    case HD_U8:
        return HD_NCCL_U8;
    default:
        return reduces ? -1 : HD_NCCL_U8;
    }
}

static bool reduces(const hd_step *step)
{
    return step->op->code == HD_OP_REDUCE_SCATTER ||
           step->op->code == HD_OP_ALL_REDUCE;
}

// What NCCL has no call for is said before the first run.
static hd_status check_steps(const hd_device *device, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;

    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];
        hd_dtype dtype;

        if (!hd_op_is(step->op, HD_UNIT_TRANSFER) || !reduces(step) ||
            !hd_cuda_by_nccl(device, step))
            continue;
        dtype = step->span[0].buffer->type.dtype;
        if (type_of(dtype, true) < 0)
            return hd_fail(diag, HD_UNSUPPORTED,
                           "NCCL does not reduce %s (line %u); the copy "
                           "transport does",
                           hd_dtype_text(dtype), step->op->loc.line);
        if (step->op->code == HD_OP_REDUCE_SCATTER &&
            !hd_span_is_dense(&step->span[1]))
            return hd_fail(diag, HD_UNSUPPORTED,
                           "NCCL does not scatter a part of %%%s whose pieces "
                           "have gaps between them (line %u); the copy "
                           "transport does",
                           step->span[1].buffer->name, step->op->loc.line);
    }
    return HD_OK;
}

// The first rank of each line of an axis makes the line's id.
static hd_status share_ids(hd_device *device, hd_nccl_id *mine, hd_nccl_id *all,
                           hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    hd_exchange exchange = hd_exchange_begin(
        device->binding.group, HD_CALL_SESSION, device->binding.timeout, diag);
    hd_status status = check_steps(device, diag);

    if (status == HD_OK)
        status = hd_library_open(&hd_nccl_library, &device->nccl, diag,
                                 &device->nccl_library);
    for (int a = 0; a < module->naxes && status == HD_OK; a++) {
        int error = hd_mesh_coord(module, device->rank, a) == 0 &&
                            device->binding.transport[a] == HD_TRANSPORT_NCCL
                        ? device->nccl.unique_id(&mine[a])
                        : HD_NCCL_SUCCESS;

        if (error != HD_NCCL_SUCCESS)
            status = nccl_error(device, error, diag, "unique_id");
    }
    // Every rank takes part, so that a failure here is one everywhere.
    HD_TRY(hd_exchange_agree(&exchange, status));
    return hd_exchange_allgather(&exchange, mine, sizeof(*mine) * HD_MAX_AXES,
                                 all);
}

hd_status hd_cuda_nccl_open(hd_device *device, hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    hd_nccl_id mine[HD_MAX_AXES];
    hd_nccl_id *all = calloc((size_t)device->size * HD_MAX_AXES, sizeof(*all));
    hd_status status;

    memset(mine, 0, sizeof(mine));
    device->comm = calloc(HD_MAX_AXES, sizeof(*device->comm));
    if (all == NULL || device->comm == NULL) {
        free(all);
        hd_group_run_out(device->binding.group);
        return hd_fail(diag, HD_NO_MEMORY, "no memory for communicators");
    }
    status = share_ids(device, mine, all, diag);
    for (int a = 0; a < module->naxes && status == HD_OK; a++) {
        int64_t me = hd_mesh_coord(module, device->rank, a);
        int64_t root = hd_mesh_peer(module, device->rank, a, 0);

        if (module->axis[a].size < 2 ||
            device->binding.transport[a] != HD_TRANSPORT_NCCL)
            continue;
        status = hd_cuda_comm_join(
            device, &all[root * HD_MAX_AXES + a], (int)module->axis[a].size,
            (int)me, module->axis[a].name, diag, &device->comm[a]);
    }
    free(all);
    return status;
}

void hd_cuda_nccl_close(hd_device *device)
{
    for (int a = 0; device->comm != NULL && a < HD_MAX_AXES; a++) {
        if (device->comm[a] == NULL)
            continue;
        if (atomic_load(&device->failed))
            device->nccl.comm_abort(device->comm[a]);
        else
            device->nccl.comm_destroy(device->comm[a]);
    }
    free(device->comm);
}

// A call that uses a communicator may itself wait for a peer, and only this
// ends it then: so the lock is not waited for without end.
void hd_cuda_nccl_abort(hd_device *device)
{
    struct timespec until;
    bool locked;

    if (device->comm == NULL)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    locked = pthread_mutex_timedlock(&device->comm_lock, &until) == 0;
    for (int a = 0; a < HD_MAX_AXES; a++) {
        hd_nccl_comm comm = device->comm[a];

        device->comm[a] = NULL;
        if (comm != NULL)
            device->nccl.comm_abort(comm);
    }
    if (locked)
        pthread_mutex_unlock(&device->comm_lock);
}

static int find_error(hd_device *device)
{
    int found = HD_NCCL_SUCCESS;

    pthread_mutex_lock(&device->comm_lock);
    for (int a = 0; a < HD_MAX_AXES && found == HD_NCCL_SUCCESS; a++) {
        int error = HD_NCCL_SUCCESS;

        if (device->comm[a] != NULL)
            device->nccl.async_error(device->comm[a], &error);
        if (error != HD_NCCL_IN_PROGRESS)
            found = error;
    }
    pthread_mutex_unlock(&device->comm_lock);
    return found;
}

hd_status hd_cuda_nccl_check(hd_device *device, hd_diag *diag)
{
    char text[HD_GROUP_TEXT];
    int error;

    if (device->comm == NULL)
        return HD_OK;
    error = find_error(device);
    if (error == HD_NCCL_SUCCESS) // or the communicator is gone
        return hd_cuda_report(device, diag);
    // The peer at fault knows more: its words are on their way.
    for (int i = 0; i < 1000 && !atomic_load(&device->failed); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    snprintf(text, sizeof(text), "rank %d: NCCL failed in a run: %s",
             device->rank, device->nccl.error_text(error));
    hd_cuda_fail(device, HD_PEER, text, "");
    return hd_cuda_report(device, diag);
}

// ----------------------------------------------------------- transfers

typedef struct hd_call_args {
    hd_device *device;
    const hd_step *step;
    hd_nccl_comm comm;
    hd_cu_stream stream;
    hd_diag *diag;
    int type;
} hd_call_args;

static void *at(const hd_call_args *call, int span)
{
    return hd_cuda_address(call->device,
                           hd_cuda_at_span(&call->step->span[span]));
}

static size_t count(const hd_call_args *call, int span)
{
    return (size_t)hd_span_elements(&call->step->span[span]);
}

// The bytes from one rank's piece of a span to the next one's.
static size_t piece_stride(const hd_span *span)
{
    return (size_t)span->stride[0] * hd_dtype_size(span->buffer->type.dtype);
}

// Piece by piece, each to or from where it lies.
static hd_status exchange_all(const hd_call_args *call)
{
    const hd_module *module = call->device->binding.module;
    const hd_span *span = call->step->span;
    int n = (int)module->axis[call->step->op->axis].size;
    size_t each = count(call, 0) / (size_t)n;
    bool gathers = call->step->op->code == HD_OP_ALL_GATHER;

    for (int i = 0; i < n; i++) {
        char *from = (char *)at(call, 1) +
                     (gathers ? 0 : (size_t)i * piece_stride(&span[1]));
        char *to = (char *)at(call, 0) + (size_t)i * piece_stride(&span[0]);

        NCCL_TRY(call->device, call->diag, send, from, each, call->type, i,
                 call->comm, call->stream);
        NCCL_TRY(call->device, call->diag, recv, to, each, call->type, i,
                 call->comm, call->stream);
    }
    return HD_OK;
}

// On an axis of one rank there is nobody to talk to, and what a collective
// brings about is a copy.
static hd_status copy_own(const hd_call_args *call)
{
    const hd_step *step = call->step;
    size_t bytes =
        count(call, 0) * hd_dtype_size(step->span[0].buffer->type.dtype);

    if (step->op->noutputs == 0 || at(call, 0) == at(call, 1) || bytes == 0)
        return HD_OK;
    HD_CUDA_TRY(call->device, call->diag, copy,
                (hd_cu_ptr)(uintptr_t)at(call, 0),
                (hd_cu_ptr)(uintptr_t)at(call, 1), bytes, call->stream);
    return HD_OK;
}

static hd_status issue_one(const hd_call_args *call)
{
    const hd_step *step = call->step;
    const hd_module *module = call->device->binding.module;
    int peer = step->peer < 0
                   ? -1
                   : (int)hd_mesh_coord(module, step->peer, step->op->axis);
    int op =
        hd_op_key(step->op, HD_KEY_MAX) != NULL ? HD_NCCL_MAX : HD_NCCL_SUM;

    switch (step->op->code) {
    case HD_OP_SEND:
        NCCL_TRY(call->device, call->diag, send, at(call, 0), count(call, 0),
                 call->type, peer, call->comm, call->stream);
        return HD_OK;
    case HD_OP_RECV:
        NCCL_TRY(call->device, call->diag, recv, at(call, 0), count(call, 0),
                 call->type, peer, call->comm, call->stream);
        return HD_OK;
    case HD_OP_ALL_GATHER:
        // NCCL's own leaves no gaps between the ranks' pieces.
        if (!hd_span_is_dense(&step->span[0]))
            return exchange_all(call);
        NCCL_TRY(call->device, call->diag, all_gather, at(call, 1), at(call, 0),
                 count(call, 1), call->type, call->comm, call->stream);
        return HD_OK;
    case HD_OP_REDUCE_SCATTER:
        NCCL_TRY(call->device, call->diag, reduce_scatter, at(call, 1),
                 at(call, 0), count(call, 0), call->type, op, call->comm,
                 call->stream);
        return HD_OK;
    case HD_OP_ALL_REDUCE:
        NCCL_TRY(call->device, call->diag, all_reduce, at(call, 1), at(call, 0),
                 count(call, 0), call->type, op, call->comm, call->stream);
        return HD_OK;
    case HD_OP_BROADCAST:
        NCCL_TRY(
            call->device, call->diag, broadcast,
            at(call, step->peer == call->device->rank ? step->op->noutputs : 0),
            at(call, 0), count(call, 0), call->type, peer, call->comm,
            call->stream);
        return HD_OK;
    default:
        return exchange_all(call);
    }
}

static hd_status issue_all(hd_device *device, const hd_cuda_command *command,
                           hd_diag *diag)
{
    for (int i = 0; i < command->n; i++) {
        const hd_step *step = &command->step[i];
        hd_dtype dtype = step->span[0].buffer->type.dtype;
        hd_call_args call = {.device = device,
                             .step = step,
                             .comm = device->comm[step->op->axis],
                             .stream = device->stream[command->stream].stream,
                             .diag = diag};

        if (!hd_cuda_by_nccl(device, step))
            continue;
        call.type = type_of(dtype, false);
        if (device->binding.module->axis[step->op->axis].size == 1)
            HD_TRY(copy_own(&call));
        else if (call.comm != NULL) // else aborted
            HD_TRY(issue_one(&call));
    }
    return HD_OK;
}

static hd_status issue_group(hd_device *device, const hd_cuda_command *command,
                             hd_diag *diag)
{
    int error = device->nccl.group_start();
    hd_status status;

    if (error != HD_NCCL_SUCCESS)
        return nccl_error(device, error, diag, "group_start");
    status = issue_all(device, command, diag);
    error = device->nccl.group_end();
    if (status == HD_OK && error != HD_NCCL_SUCCESS)
        return nccl_error(device, error, diag, "group_end");
    return status;
}

hd_status hd_cuda_nccl_transfer(hd_device *device,
                                const hd_cuda_command *command, hd_diag *diag)
{
    hd_status status;

    pthread_mutex_lock(&device->comm_lock);
    status = issue_group(device, command, diag);
    pthread_mutex_unlock(&device->comm_lock);
    return status;
}
