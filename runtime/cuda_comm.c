// Joins an NCCL communicator. That call waits for the peers without end, so a
// thread makes it while this one watches the group and the time. A thread that
// is given up keeps what it works with: it shares nothing with the device.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda.h"

typedef struct hd_joining {
    hd_nccl_api nccl;
    hd_cu_api cu;
    hd_cu_context context;
    hd_nccl_id id;
    int size, rank;
    hd_nccl_comm comm;
    int error;
    _Atomic int hands; // in which it is: the last frees it
} hd_joining;

static void drop(hd_joining *joining)
{
    if (atomic_fetch_sub(&joining->hands, 1) == 1)
        free(joining);
}

static void *join_group(void *context)
{
    hd_joining *joining = context;

    joining->error = -1;
    if (joining->cu.context_push(joining->context) == HD_CU_SUCCESS) {
        joining->error = joining->nccl.comm_init(&joining->comm, joining->size,
                                                 joining->id, joining->rank);
        joining->cu.context_pop(&(hd_cu_context){0});
    }
    drop(joining);
    return NULL;
}

static hd_status give_up(hd_device *device, const char *axis, hd_diag *diag)
{
    hd_group *group = device->binding.group;
    char text[HD_GROUP_TEXT];
    hd_status status = HD_TIMEOUT;

    device->stuck = true; // the thread may still use the device
    if (hd_group_failed(group)) {
        status = hd_group_failure(group, text);
    } else {
        snprintf(text, sizeof(text),
                 "rank %d waits for its peers on axis %s to join NCCL for %.1f "
                 "s",
                 device->rank, axis, device->binding.timeout);
        hd_group_fail(group, text);
    }
    return hd_fail(diag, status, "%s", text);
}

static bool await(hd_device *device, const hd_joining *joining)
{
    int64_t deadline = hd_clock_after(device->binding.timeout);

    while (atomic_load(&joining->hands) > 1) {
        if (hd_group_failed(device->binding.group) || hd_clock() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

// Peers that wait in the same call do not hear of an error otherwise.
static hd_status fail_join(hd_device *device, int error, hd_diag *diag)
{
    char text[HD_GROUP_TEXT];

    snprintf(text, sizeof(text), "rank %d: NCCL refused 'comm_init': %s",
             device->rank,
             error < 0 ? "no CUDA context" : device->nccl.error_text(error));
    hd_group_fail(device->binding.group, text);
    return hd_fail(diag, HD_SYSTEM, "%s", text);
}

hd_status hd_cuda_comm_join(hd_device *device, const hd_nccl_id *id, int size,
                            int rank, const char *axis, hd_diag *diag,
                            hd_nccl_comm *out)
{
    hd_joining *joining = calloc(1, sizeof(*joining));
    pthread_t thread;
    hd_status status = HD_OK;

    if (joining == NULL) {
        hd_group_run_out(device->binding.group);
        return hd_fail(diag, HD_NO_MEMORY, "no memory to join NCCL");
    }
    joining->hands = 2;
    joining->nccl = device->nccl;
    joining->cu = device->cu;
    joining->context = device->context;
    joining->id = *id;
    joining->size = size;
    joining->rank = rank;
    if (pthread_create(&thread, NULL, join_group, joining) != 0) {
        free(joining);
        hd_group_run_out(device->binding.group);
        return hd_fail(diag, HD_NO_MEMORY, "no thread to join NCCL");
    }
    if (!await(device, joining)) {
        pthread_detach(thread);
        drop(joining);
        return give_up(device, axis, diag);
    }
    pthread_join(thread, NULL);
    if (joining->error != HD_NCCL_SUCCESS)
        status = fail_join(device, joining->error, diag);
    else
        *out = joining->comm;
    drop(joining);
    return status;
}
