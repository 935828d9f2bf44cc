#include "runtime/cuda/memory/reach.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/cuda/device/device.h"

void hd_cuda_reach_begin(hd_device *device)
{
    pthread_mutex_lock(&device->home->making);
    device->home->chunks.making++;
    pthread_mutex_unlock(&device->home->making);
}

void hd_cuda_reach_end(hd_device *device)
{
    pthread_mutex_lock(&device->home->making);
    device->home->chunks.making--;
    hd_cuda_chunks_sweep(device->home, 0);
    pthread_mutex_unlock(&device->home->making);
}

hd_status hd_cuda_reach_lease(hd_device *device, hd_diag *diag, int *out)
{
    hd_cuda_chunks *chunks = &device->home->chunks;
    hd_status status = HD_OK;

    pthread_mutex_lock(&device->home->making);
    if (chunks->lease == HD_LEASE_NONE)
        status = hd_lease_open(diag, &chunks->lease);
    *out = chunks->lease;
    pthread_mutex_unlock(&device->home->making);
    return status;
}

hd_status hd_cuda_reach_enable(hd_device *device, hd_cu_context theirs,
                               hd_diag *diag)
{
    hd_cu_result result = theirs == device->home->context
                              ? HD_CU_SUCCESS
                              : device->cu.peer_enable(theirs, 0);

    return result == HD_CU_SUCCESS || result == HD_CU_PEER_ENABLED
               ? HD_OK
               : hd_cuda_error(device, result, diag, "peer_enable");
}

hd_cuda_chunk *hd_cuda_reach_find(hd_device *device, int peer, uint64_t home,
                                  uint64_t number)
{
    hd_cuda_chunk *chunk;

    pthread_mutex_lock(&device->home->making);
    chunk = device->home->chunks.first;
    while (chunk != NULL && (((unsigned)chunk->kind & HD_CUDA_OF_PEERS) == 0 ||
                             chunk->peer != peer || chunk->home != home ||
                             chunk->number != number))
        chunk = chunk->next;
    if (chunk != NULL)
        chunk->users++;
    pthread_mutex_unlock(&device->home->making);
    return chunk;
}

static hd_status open_there(hd_device *device, hd_cuda_chunk *chunk,
                            const hd_cuda_reach *reach, hd_diag *diag)
{
    hd_cu_ptr base = 0;
    size_t bytes = 0;
    hd_cu_result result;

    if (chunk->near) {
        HD_TRY(hd_cuda_reach_enable(device, reach->near.context, diag));
        chunk->at = reach->near.at;
    } else {
        HD_CUDA_TRY(device, diag, ipc_import, &chunk->at, reach->ipc,
                    HD_CU_IPC_LAZY_PEER_ACCESS);
    }
    result = device->cu.address_range(&base, &bytes, chunk->at);
    if (result != HD_CU_SUCCESS) {
        if (!chunk->near)
            device->cu.ipc_close(chunk->at);
        return hd_cuda_error(device, result, diag, "address_range");
    }
    chunk->bytes = base + bytes - chunk->at;
    return HD_OK;
}

// Its lease is joined.
static hd_status map(hd_device *device, hd_cuda_chunk *chunk,
                     const hd_cuda_reach *reach, hd_diag *diag)
{
    hd_status status;

    if (!hd_lease_hold(chunk->lease, chunk->number))
        return hd_fail(diag, HD_ERROR_PEER,
                       "rank %d has given back the memory that rank %d was to "
                       "map",
                       chunk->peer, device->rank);
    status = open_there(device, chunk, reach, diag);
    if (status != HD_OK)
        hd_lease_let_go(chunk->lease, chunk->number);
    return status;
}

hd_status hd_cuda_reach_map(hd_device *device, const hd_cuda_chunk *what,
                            int lease, const hd_cuda_reach *reach,
                            hd_diag *diag, hd_cuda_chunk **out)
{
    hd_cuda_chunk *chunk = malloc(sizeof *chunk);
    hd_status status;

    if (chunk == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a window");
    *chunk = *what;
    chunk->users = 1;
    status = hd_lease_join(lease, diag, &chunk->lease);
    if (status == HD_OK) {
        status = map(device, chunk, reach, diag);
        if (status != HD_OK)
            close(chunk->lease);
    }
    if (status != HD_OK) {
        free(chunk);
        return status;
    }
    pthread_mutex_lock(&device->home->making);
    hd_cuda_chunk_add(device->home, chunk);
    pthread_mutex_unlock(&device->home->making);
    *out = chunk;
    return HD_OK;
}

void hd_cuda_reach_forget(hd_device *device, int peer, uint64_t home,
                          uint64_t number)
{
    pthread_mutex_lock(&device->home->making);
    for (hd_cuda_chunk *chunk = device->home->chunks.first; chunk != NULL;
         chunk = chunk->next)
        chunk->retired |= chunk->kind == HD_CUDA_THEIRS && chunk->users == 0 &&
                          chunk->peer == peer && chunk->home == home &&
                          chunk->number < number;
    hd_cuda_chunks_sweep(device->home, 0);
    pthread_mutex_unlock(&device->home->making);
}
