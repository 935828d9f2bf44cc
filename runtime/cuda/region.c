// Regions of device memory as lists of chunks.
#include "runtime/cuda/region.h"

#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/cuda.h"

static hd_cuda_chunk *find_chunk(const hd_cuda_region *region, size_t bytes)
{
    hd_cuda_chunk *least = NULL;

    for (hd_cuda_chunk *chunk = region->first; chunk != NULL;
         chunk = chunk->next) {
        if (chunk->bytes >= bytes &&
            (least == NULL || chunk->bytes < least->bytes))
            least = chunk;
    }
    return least;
}

static void free_chunk(const hd_cuda_home *home, hd_cuda_chunk **at)
{
    hd_cuda_chunk *chunk = *at;

    *at = chunk->next;
    hd_cuda_home_give(home, chunk->at, chunk->bytes);
    free(chunk);
}

// Those that nobody has, if they have less than so many bytes.
static void free_unused(const hd_cuda_home *home, hd_cuda_region *region,
                        size_t bytes)
{
    for (hd_cuda_chunk **at = &region->first; *at != NULL;) {
        if ((*at)->users == 0 && (*at)->bytes < bytes)
            free_chunk(home, at);
        else
            at = &(*at)->next;
    }
}

static size_t most_bytes(const hd_cuda_region *region)
{
    size_t most = 0;

    for (hd_cuda_chunk *chunk = region->first; chunk != NULL;
         chunk = chunk->next)
        most = chunk->bytes > most ? chunk->bytes : most;
    return most;
}

static hd_status check_left(hd_device *device, size_t bytes, hd_diag *diag)
{
    size_t left = 0, total = 0;

    HD_CUDA_TRY(device, diag, memory_info, &left, &total);
    if (bytes <= left)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_NO_MEMORY,
                   "rank %d: '%s' needs %zu MiB beside its arguments, and its "
                   "device has %zu MiB left",
                   device->rank, device->binding.module->name, bytes >> 20,
                   left >> 20);
}

static hd_status fill(hd_device *device, hd_cu_ptr at, size_t bytes,
                      hd_diag *diag)
{
    if (bytes == 0)
        return HD_OK;
    HD_CUDA_TRY(device, diag, fill8, at, 0xff, bytes, device->home->rescue);
    HD_CUDA_TRY(device, diag, stream_synchronize, device->home->rescue);
    return HD_OK;
}

// It is put in front.
static hd_status make_chunk(hd_device *device, hd_cuda_region *region,
                            size_t bytes, size_t filled, hd_diag *diag)
{
    hd_cuda_chunk *chunk = calloc(1, sizeof *chunk);
    hd_status status;

    if (chunk == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a region");
    chunk->bytes = bytes;
    status = hd_cuda_home_take(device, bytes, diag, &chunk->at);
    if (status != HD_OK) {
        free(chunk);
        return status;
    }
    chunk->next = region->first;
    region->first = chunk;
    status = fill(device, chunk->at, filled, diag);
    if (status != HD_OK)
        free_chunk(device->home, &region->first);
    return status;
}

static hd_status take(hd_device *device, hd_cuda_region *region, size_t bytes,
                      size_t filled, size_t more, hd_diag *diag,
                      hd_cuda_chunk **out)
{
    hd_cuda_chunk *chunk = find_chunk(region, bytes);

    if (chunk == NULL)
        free_unused(device->home, region, bytes); // they make room
    // How much the caller's allocator has left it knows.
    HD_TRY(check_left(
        device,
        (chunk == NULL && !hd_cuda_home_asks(device) ? bytes : 0) + more,
        diag));
    if (chunk == NULL) {
        HD_TRY(make_chunk(device, region, bytes, filled, diag));
        chunk = region->first;
    }
    chunk->users++;
    *out = chunk;
    return HD_OK;
}

hd_status hd_cuda_region_take(hd_device *device, hd_cuda_region *region,
                              size_t bytes, size_t filled, size_t more,
                              hd_diag *diag, hd_cuda_chunk **out)
{
    hd_status status;

    if (bytes == 0)
        return check_left(device, more, diag);
    pthread_mutex_lock(&device->home->making);
    status = take(device, region, bytes, filled, more, diag, out);
    pthread_mutex_unlock(&device->home->making);
    return status;
}

void hd_cuda_region_give(hd_device *device, hd_cuda_region *region,
                         hd_cuda_chunk *chunk)
{
    hd_cuda_home *home = device->home;

    if (chunk == NULL)
        return;
    pthread_mutex_lock(&home->making);
    chunk->users--;
    free_unused(home, region, most_bytes(region));
    pthread_mutex_unlock(&home->making);
}

void hd_cuda_region_trim(hd_cuda_home *home, hd_cuda_region *region)
{
    pthread_mutex_lock(&home->making);
    free_unused(home, region, SIZE_MAX);
    pthread_mutex_unlock(&home->making);
}
