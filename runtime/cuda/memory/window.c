// Slots in windows as lists of places.
#include "runtime/cuda/memory/window.h"

#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/device/device.h"

#define BLOCK \
    ((size_t)2 << 20) // what the driver allocates and exports at least
#define SLOTS ((size_t)256 << 10) // bytes of an area at least
#define SMALL ((size_t)64 << 20)  // a region up to this is made twice as large

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t region_bytes(const hd_cuda_window *window)
{
    return window->chunk.bytes - window->region;
}

// The first place that is large enough; NULL if there is none.
static hd_cuda_hold **find_place(hd_cuda_window *window, size_t bytes,
                                 uint64_t *at)
{
    hd_cuda_hold **hold = &window->hold;

    *at = HD_CUDA_PROBES;
    while (*hold != NULL && (*hold)->at - *at < bytes) {
        *at = (*hold)->at + (*hold)->bytes;
        hold = &(*hold)->next;
    }
    return *hold != NULL || *at + bytes <= window->region ? hold : NULL;
}

// The first of them, from a chunk on, that sessions are given places in.
static hd_cuda_window *next_window(hd_cuda_chunk *chunk)
{
    while (chunk != NULL && (chunk->kind != HD_CUDA_WINDOW || chunk->retired))
        chunk = chunk->next;
    return (hd_cuda_window *)chunk;
}

// The newest that has room.
static hd_cuda_window *find_window(const hd_cuda_chunks *chunks, size_t slots,
                                   size_t bytes)
{
    hd_cuda_window *window = next_window(chunks->first);
    uint64_t at;

    while (window != NULL && (region_bytes(window) < bytes ||
                              find_place(window, slots, &at) == NULL))
        window = next_window(window->chunk.next);
    return window;
}

// What one is made for: it has room for others that are a little larger.
// Returns where its region is.
static uint64_t plan_window(const hd_cuda_chunks *chunks, size_t slots,
                            size_t bytes, uint64_t *all)
{
    const hd_cuda_window *last = next_window(chunks->first);
    size_t area = largest(SLOTS, 2 * slots), region = bytes;
    uint64_t at;

    if (last != NULL) {
        area = largest(area, 2 * (last->region - HD_CUDA_PROBES));
        if (region_bytes(last) < bytes)
            region = largest(bytes, bytes <= SMALL ? 2 * bytes : 0);
    }
    at = hd_cuda_align_up(HD_CUDA_PROBES + area, 512);
    *all = hd_cuda_align_up(at + region, BLOCK);
    return at;
}

static hd_status fill_window(hd_device *device, const hd_cuda_chunk *chunk,
                             hd_diag *diag)
{
    hd_cu_stream rescue = device->home->rescue;

    HD_CUDA_TRY(device, diag, fill8, chunk->at, 0xff, chunk->bytes, rescue);
    HD_CUDA_TRY(device, diag, fill8, chunk->at, 0, HD_CUDA_PROBES, rescue);
    HD_CUDA_TRY(device, diag, stream_synchronize, rescue);
    return HD_OK;
}

static hd_status alloc_window(hd_device *device, hd_cuda_chunk *chunk,
                              hd_diag *diag)
{
    hd_status status;

    HD_CUDA_TRY(device, diag, alloc, &chunk->at, chunk->bytes);
    device->allocations++;
    status = fill_window(device, chunk, diag);
    if (status != HD_OK)
        device->cu.free(chunk->at);
    return status;
}

// Those that are there have no room for it.
static hd_status make_window(hd_device *device, size_t slots, size_t bytes,
                             hd_diag *diag, hd_cuda_window **out)
{
    hd_cuda_home *home = device->home;
    hd_cuda_window *window = calloc(
        1, sizeof *window + (size_t)device->size * sizeof window->told[0]);
    hd_status status;

    if (window == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a window");
    hd_cuda_chunks_sweep(home, HD_CUDA_WINDOW);
    window->chunk.kind = HD_CUDA_WINDOW;
    window->region =
        plan_window(&home->chunks, slots, bytes, &window->chunk.bytes);
    status = alloc_window(device, &window->chunk, diag);
    if (status != HD_OK) {
        free(window);
        return status;
    }
    hd_cuda_chunk_number(home, &window->chunk);
    *out = window;
    return HD_OK;
}

static hd_status take_slots(hd_cuda_window *window, size_t slots, hd_diag *diag,
                            hd_cuda_hold **out)
{
    hd_cuda_hold *hold = calloc(1, sizeof *hold);
    hd_cuda_hold **place;

    if (hold == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for slots");
    place = find_place(window, slots, &hold->at);
    hold->bytes = slots;
    hold->next = *place;
    *place = hold;
    window->chunk.users++;
    *out = hold;
    return HD_OK;
}

static hd_status take(hd_device *device, size_t slots, size_t bytes,
                      hd_diag *diag, hd_cuda_window **window,
                      hd_cuda_hold **hold)
{
    *window = find_window(&device->home->chunks, slots, bytes);
    if (*window == NULL)
        HD_TRY(make_window(device, slots, bytes, diag, window));
    return take_slots(*window, slots, diag, hold);
}

// A place of no bytes would be none.
static size_t slots_of(size_t bytes)
{
    return hd_cuda_align_up(bytes > 0 ? bytes : 1, 256);
}

hd_status hd_cuda_window_take(hd_device *device, size_t slots, size_t bytes,
                              hd_diag *diag, hd_cuda_window **window,
                              hd_cuda_hold **hold)
{
    hd_status status;

    pthread_mutex_lock(&device->home->making);
    status = take(device, slots_of(slots), bytes, diag, window, hold);
    pthread_mutex_unlock(&device->home->making);
    return status;
}

size_t hd_cuda_window_lacks(hd_device *device, size_t slots, size_t bytes)
{
    const hd_cuda_chunks *chunks = &device->home->chunks;
    uint64_t all = 0;

    pthread_mutex_lock(&device->home->making);
    if (find_window(chunks, slots_of(slots), bytes) == NULL)
        plan_window(chunks, slots_of(slots), bytes, &all);
    pthread_mutex_unlock(&device->home->making);
    return all;
}

void hd_cuda_window_give(hd_device *device, hd_cuda_window *window,
                         hd_cuda_hold *hold)
{
    hd_cuda_hold **at;

    if (hold == NULL)
        return;
    pthread_mutex_lock(&device->home->making);
    for (at = &window->hold; *at != hold;)
        at = &(*at)->next;
    *at = hold->next;
    pthread_mutex_unlock(&device->home->making);
    free(hold);
    hd_cuda_chunk_give(device, &window->chunk);
}

uint64_t hd_cuda_window_oldest(hd_device *device)
{
    const hd_cuda_window *window;
    uint64_t oldest;

    pthread_mutex_lock(&device->home->making);
    oldest = device->home->chunks.made;
    for (window = next_window(device->home->chunks.first); window != NULL;
         window = next_window(window->chunk.next))
        oldest = window->chunk.number;
    pthread_mutex_unlock(&device->home->making);
    return oldest;
}
