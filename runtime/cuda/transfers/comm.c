// Joins an NCCL communicator that does not block: each call that may wait for a
// peer returns at once, and NCCL tells afterwards how far it has come. So one
// loop waits for all of them, and watches the group and the time.
//
// NCCL does each call of such a communicator on a thread that it starts for it,
// which takes four times as long as a small reduction. So runs go by one that
// blocks, which is split from the other and has its connections.
//
// NCCL connects two ranks when they first send to or receive from each other,
// and takes it that the other asks for the mirror image at the same time. Two
// ranks that both send first hand each other the sending end of a connection,
// are both given it for the receiving one, and NCCL's kernels then write where
// they must not. So all ranks that will ever meet send and receive in one
// group, both ways, before anything runs.
#include <stdio.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda/transfers/comm.h"

enum { GREETING = 16 }; // bytes to each peer

// Peers that wait for this rank do not hear of an error otherwise.
static hd_status tell(const hd_cuda_joining *joining, hd_status status,
                      const char *text, hd_diag *diag)
{
    hd_group_fail(joining->device->binding.group, text);
    return hd_fail(diag, status, "%s", text);
}

static hd_status nccl_error(const hd_cuda_joining *joining, const char *call,
                            int error, hd_diag *diag)
{
    char text[HD_GROUP_TEXT];

    snprintf(text, sizeof text, "rank %d: NCCL refused '%s': %s",
             joining->device->rank, call, joining->nccl->error_text(error));
    return tell(joining, HD_ERROR_SYSTEM, text, diag);
}

static hd_status cuda_error(const hd_cuda_joining *joining, const char *call,
                            hd_cu_result error, hd_diag *diag)
{
    char text[HD_GROUP_TEXT];
    const char *why = NULL;

    if (joining->device->cu.error_string(error, &why) != HD_CU_SUCCESS)
        why = "unknown error";
    snprintf(text, sizeof text, "rank %d: CUDA refused '%s': %s",
             joining->device->rank, call, why);
    return tell(joining,
                error == HD_CU_OUT_OF_MEMORY ? HD_ERROR_NO_MEMORY
                                             : HD_ERROR_SYSTEM,
                text, diag);
}

#define CUDA_TRY(joining, diag, name, ...)                             \
    do {                                                               \
        hd_cu_result error_ = (joining)->device->cu.name(__VA_ARGS__); \
        if (error_ != HD_CU_SUCCESS)                                   \
            return cuda_error((joining), #name, error_, (diag));       \
    } while (0)

#define NCCL_TRY(joining, diag, name, ...)                              \
    do {                                                                \
        int error_ = (joining)->nccl->name(__VA_ARGS__);                \
        if (error_ != HD_NCCL_SUCCESS && error_ != HD_NCCL_IN_PROGRESS) \
            return nccl_error((joining), #name, error_, (diag));        \
    } while (0)

static hd_status give_up(const hd_cuda_joining *joining, hd_diag *diag)
{
    const hd_device *device = joining->device;
    hd_group *group = device->binding.group;
    char text[HD_GROUP_TEXT];

    if (hd_group_failed(group)) {
        hd_status status = hd_group_failure(group, text);

        return hd_fail(diag, status, "%s", text);
    }
    snprintf(text, sizeof text,
             "rank %d waits for its peers on axis %s to join NCCL for %.1f s",
             device->rank, joining->axis, device->binding.timeout);
    return tell(joining, HD_ERROR_TIMEOUT, text, diag);
}

// A moment, unless it is in vain.
static hd_status wait_on(const hd_cuda_joining *joining, int64_t deadline,
                         hd_diag *diag)
{
    if (hd_group_failed(joining->device->binding.group) ||
        hd_clock() > deadline)
        return give_up(joining, diag);
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    return HD_OK;
}

// Until the communicator has done what `call` has asked it for.
static hd_status await_comm(const hd_cuda_joining *joining, hd_nccl_comm comm,
                            const char *call, hd_diag *diag)
{
    int64_t deadline = hd_clock_after(joining->device->binding.timeout);
    int error = HD_NCCL_SUCCESS;

    for (;;) {
        NCCL_TRY(joining, diag, async_error, comm, &error);
        if (error == HD_NCCL_SUCCESS)
            return HD_OK;
        if (error != HD_NCCL_IN_PROGRESS)
            return nccl_error(joining, call, error, diag);
        HD_TRY(wait_on(joining, deadline, diag));
    }
}

static hd_status await_stream(const hd_cuda_joining *joining, hd_diag *diag)
{
    int64_t deadline = hd_clock_after(joining->device->binding.timeout);

    for (;;) {
        hd_cu_result result = joining->device->cu.stream_query(joining->stream);

        if (result == HD_CU_SUCCESS)
            return HD_OK;
        if (result != HD_CU_NOT_READY)
            return cuda_error(joining, "stream_query", result, diag);
        HD_TRY(wait_on(joining, deadline, diag));
    }
}

static hd_nccl_config config_of(bool blocking)
{
    return (hd_nccl_config){.size = sizeof(hd_nccl_config),
                            .magic = HD_NCCL_CONFIG_MAGIC,
                            .version = HD_NCCL_CONFIG_VERSION,
                            .blocking = blocking,
                            .cluster = HD_NCCL_UNSAID,
                            .least_blocks = HD_NCCL_UNSAID,
                            .most_blocks = HD_NCCL_UNSAID,
                            .split_share = 1};
}

static hd_status join(const hd_cuda_joining *joining, const hd_nccl_id *id,
                      hd_diag *diag, hd_nccl_comm *comm)
{
    hd_nccl_config config = config_of(false);

    NCCL_TRY(joining, diag, comm_init, comm, joining->size, *id, joining->rank,
             &config);
    return await_comm(joining, *comm, "comm_init", diag);
}

// NCCL makes it on the threads of the one that it is split from, and so does
// not block either.
static hd_status split(const hd_cuda_joining *joining, hd_nccl_comm comm,
                       hd_diag *diag, hd_nccl_comm *used)
{
    hd_nccl_config config = config_of(true);

    NCCL_TRY(joining, diag, comm_split, comm, 0, joining->rank, used, &config);
    return await_comm(joining, comm, "comm_split", diag);
}

static hd_status greet_each(const hd_cuda_joining *joining, hd_nccl_comm comm,
                            hd_diag *diag)
{
    char *from = (char *)(uintptr_t)joining->memory;

    for (int i = 0; i < joining->size; i++) {
        if (!joining->meets[i])
            continue;
        NCCL_TRY(joining, diag, send, from, GREETING, HD_NCCL_U8, i, comm,
                 joining->stream);
        NCCL_TRY(joining, diag, recv, from + (size_t)(1 + i) * GREETING,
                 GREETING, HD_NCCL_U8, i, comm, joining->stream);
    }
    return HD_OK;
}

// A group that has begun is ended whatever becomes of it.
static hd_status greet(const hd_cuda_joining *joining, hd_nccl_comm comm,
                       hd_diag *diag)
{
    hd_status status;
    int error;

    NCCL_TRY(joining, diag, group_start, );
    status = greet_each(joining, comm, diag);
    error = joining->nccl->group_end();
    if (status == HD_OK && error != HD_NCCL_SUCCESS &&
        error != HD_NCCL_IN_PROGRESS)
        return nccl_error(joining, "group_end", error, diag);
    return status;
}

static hd_status connect_peers(hd_cuda_joining *joining, hd_nccl_comm comm,
                               hd_diag *diag)
{
    bool alone = true;

    for (int i = 0; i < joining->size; i++)
        alone &= !joining->meets[i];
    if (alone)
        return HD_OK;
    CUDA_TRY(joining, diag, stream_create, &joining->stream,
             HD_CU_STREAM_NON_BLOCKING, 0);
    CUDA_TRY(joining, diag, alloc, &joining->memory,
             (size_t)(1 + joining->size) * GREETING);
    HD_TRY(greet(joining, comm, diag));
    HD_TRY(await_comm(joining, comm, "group_end", diag));
    return await_stream(joining, diag);
}

hd_status hd_cuda_comm_join(hd_cuda_joining *joining, const hd_nccl_id *id,
                            hd_diag *diag, hd_nccl_comm *comm,
                            hd_nccl_comm *used)
{
    HD_TRY(join(joining, id, diag, comm));
    HD_TRY(connect_peers(joining, *comm, diag));
    return split(joining, *comm, diag, used);
}

void hd_cuda_comm_leave(hd_cuda_joining *joining)
{
    if (joining->memory != 0)
        joining->device->cu.free(joining->memory);
    if (joining->stream != NULL)
        joining->device->cu.stream_destroy(joining->stream);
}
