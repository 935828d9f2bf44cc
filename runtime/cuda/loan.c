// What the caller has of a device's memory for its arguments: chunks that it is
// the user of. As long as it has some, the group keeps its home there.
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/device/device.h"
#include "runtime/cuda/device/home.h"
#include "runtime/cuda/session.h"

static hd_status take(hd_device *device, size_t bytes, hd_diag *diag,
                      hd_cu_ptr *out)
{
    hd_cu_result result;
    int mode;

    HD_TRY(hd_cuda_enter(device, diag, &mode));
    hd_cuda_chunks_close(device->home, 0); // there may be more room then
    result = device->cu.alloc(out, bytes > 0 ? bytes : 1);
    hd_cuda_leave(device, mode);
    return result == HD_CU_SUCCESS
               ? HD_OK
               : hd_cuda_error(device, result, diag, "alloc");
}

static hd_status lend(hd_device *device, size_t bytes, hd_diag *diag,
                      void **out)
{
    hd_cuda_home *home = device->home;
    hd_cuda_chunk *new = calloc(1, sizeof *new);
    hd_status status = new == NULL ? hd_fail(diag, HD_ERROR_NO_MEMORY,
                                             "no memory for arguments")
                                   : take(device, bytes, diag, &new->at);

    if (status != HD_OK) {
        free(new);
        return status;
    }
    new->kind = HD_CUDA_LENT;
    new->users = 1;
    *out = (void *)(uintptr_t) new->at;
    pthread_mutex_lock(&home->making);
    hd_cuda_chunk_number(home, new);
    pthread_mutex_unlock(&home->making);
    return HD_OK;
}

// A device that no session has stands for what the home is opened by.
static hd_device stand_in(hd_group *group, const char *where)
{
    return (hd_device){.binding = {.group = group, .where = where},
                       .rank = hd_group_rank(group),
                       .size = hd_group_size(group)};
}

hd_status hd_cuda_lend(hd_group *group, const char *where, size_t bytes,
                       hd_diag *diag, void **out)
{
    hd_device device = stand_in(group, where);
    hd_status status;

    HD_TRY(hd_cuda_home_open(&device, diag));
    status = lend(&device, bytes, diag, out);
    if (status != HD_OK)
        hd_cuda_home_leave(&device);
    return status;
}

static bool give(hd_cuda_home *home, const void *memory)
{
    hd_cuda_chunk *chunk;

    pthread_mutex_lock(&home->making);
    chunk = hd_cuda_chunk_lent(home, (hd_cu_ptr)(uintptr_t)memory);
    if (chunk != NULL)
        chunk->users = 0;
    pthread_mutex_unlock(&home->making);
    return chunk != NULL;
}

bool hd_cuda_reclaim(hd_group *group, void *memory)
{
    hd_device device = stand_in(group, "");
    int mode;

    for (hd_kept *kept = *hd_group_kept(group); kept != NULL;
         kept = kept->next) {
        device.home = (hd_cuda_home *)kept;
        if (!give(device.home, memory))
            continue;
        device.cu = device.home->cu;
        // Freeing would block if the device did not come to rest.
        if (!hd_cuda_is_stuck(&device) &&
            hd_cuda_enter(&device, NULL, &mode) == HD_OK) {
            hd_cuda_chunks_close(device.home, 0);
            hd_cuda_leave(&device, mode);
        }
        hd_cuda_home_leave(&device);
        return true;
    }
    return false;
}
