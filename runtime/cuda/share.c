// Windows as a list, their slots as lists of places.
#include "runtime/cuda/share.h"

#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda/cuda.h"

#define BLOCK \
    ((size_t)2 << 20) // what the driver allocates and exports at least
#define SLOTS ((size_t)256 << 10) // bytes of an area at least
#define SMALL ((size_t)64 << 20)  // a region up to this is made twice as large

static size_t align_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

// ------------------------------------------------------------- windows

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

// The newest that has room.
static hd_cuda_window *find_window(const hd_cuda_shared *shared, size_t slots,
                                   size_t bytes)
{
    hd_cuda_window *window = shared->window;
    uint64_t at;

    while (window != NULL && (window->bytes - window->region < bytes ||
                              find_place(window, slots, &at) == NULL))
        window = window->next;
    return window;
}

// What one is made for: it has room for others that are a little larger.
static void plan_window(const hd_cuda_shared *shared, size_t slots,
                        size_t bytes, hd_cuda_window *out)
{
    const hd_cuda_window *last = shared->window;
    size_t area = largest(SLOTS, 2 * slots), region = bytes;

    if (last != NULL) {
        area = largest(area, 2 * (last->region - HD_CUDA_PROBES));
        if (last->bytes - last->region < bytes)
            region = largest(bytes, bytes <= SMALL ? 2 * bytes : 0);
    }
    out->region = align_up(HD_CUDA_PROBES + area, 512);
    out->bytes = align_up(out->region + region, BLOCK);
}

static void free_window(const hd_cuda_home *home, hd_cuda_window *window)
{
    if (window->at != 0)
        hd_cuda_window_close(&home->cu, window->at, true);
    free(window->told);
    free(window);
}

static void free_unused(hd_cuda_home *home, hd_cuda_window **at)
{
    while (*at != NULL) {
        hd_cuda_window *window = *at;

        if (window->hold != NULL) {
            at = &window->next;
        } else {
            *at = window->next;
            free_window(home, window);
        }
    }
}

static hd_status fill_window(hd_device *device, const hd_cuda_window *window,
                             hd_diag *diag)
{
    hd_cu_stream rescue = device->home->rescue;

    HD_CUDA_TRY(device, diag, fill8, window->at, 0xff, window->bytes, rescue);
    HD_CUDA_TRY(device, diag, fill8, window->at, 0, HD_CUDA_PROBES, rescue);
    HD_CUDA_TRY(device, diag, stream_synchronize, rescue);
    return HD_OK;
}

static hd_status alloc_window(hd_device *device, hd_cuda_window *window,
                              hd_diag *diag)
{
    const hd_cuda_home *home = device->home;
    hd_cu_result result;
    const char *call;

    window->told = calloc((size_t)device->size, sizeof *window->told);
    if (window->told == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       device->size);
    result =
        hd_cuda_window_open(&device->cu, home->retained ? home->ordinal : -1,
                            window->bytes, &window->at, &call);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, call);
    device->allocations++;
    return fill_window(device, window, diag);
}

static hd_status make_window(hd_device *device, size_t slots, size_t bytes,
                             hd_diag *diag)
{
    hd_cuda_shared *shared = &device->home->shared;
    hd_cuda_window *window = calloc(1, sizeof *window);
    hd_status status;

    if (window == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a window");
    free_unused(device->home, &shared->window); // they have no room for it
    plan_window(shared, slots, bytes, window);
    status = alloc_window(device, window, diag);
    if (status != HD_OK) {
        free_window(device->home, window);
        return status;
    }
    window->number = ++shared->made;
    window->next = shared->window;
    shared->window = window;
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
    *out = hold;
    return HD_OK;
}

static hd_status take(hd_device *device, size_t slots, size_t bytes,
                      hd_diag *diag, hd_cuda_window **window,
                      hd_cuda_hold **hold)
{
    hd_cuda_shared *shared = &device->home->shared;

    *window = find_window(shared, slots, bytes);
    if (*window == NULL) {
        HD_TRY(make_window(device, slots, bytes, diag));
        *window = shared->window;
    }
    return take_slots(*window, slots, diag, hold);
}

// A place of no bytes would be none.
static size_t slots_of(size_t bytes)
{
    return align_up(bytes > 0 ? bytes : 1, 256);
}

hd_status hd_cuda_share_take(hd_device *device, size_t slots, size_t bytes,
                             hd_diag *diag, hd_cuda_window **window,
                             hd_cuda_hold **hold)
{
    hd_status status;

    pthread_mutex_lock(&device->home->making);
    status = take(device, slots_of(slots), bytes, diag, window, hold);
    pthread_mutex_unlock(&device->home->making);
    return status;
}

size_t hd_cuda_share_lacks(hd_device *device, size_t slots, size_t bytes)
{
    const hd_cuda_shared *shared = &device->home->shared;
    hd_cuda_window planned = {0};

    pthread_mutex_lock(&device->home->making);
    if (find_window(shared, slots_of(slots), bytes) == NULL)
        plan_window(shared, slots_of(slots), bytes, &planned);
    pthread_mutex_unlock(&device->home->making);
    return planned.bytes;
}

// One that nobody has a place in stays if it is the newest: the next session
// may fit.
void hd_cuda_share_give(hd_device *device, hd_cuda_window *window,
                        hd_cuda_hold *hold)
{
    hd_cuda_home *home = device->home;
    hd_cuda_hold **at;

    if (hold == NULL)
        return;
    pthread_mutex_lock(&home->making);
    for (at = &window->hold; *at != hold;)
        at = &(*at)->next;
    *at = hold->next;
    free(hold);
    free_unused(home, &home->shared.window->next);
    pthread_mutex_unlock(&home->making);
}

uint64_t hd_cuda_share_oldest(hd_device *device)
{
    uint64_t oldest;

    pthread_mutex_lock(&device->home->making);
    oldest = device->home->shared.made;
    for (const hd_cuda_window *window = device->home->shared.window;
         window != NULL; window = window->next)
        oldest = window->number;
    pthread_mutex_unlock(&device->home->making);
    return oldest;
}

// ---------------------------------------------------------------- peers'

hd_cuda_mapped *hd_cuda_share_find(hd_device *device, int peer, uint64_t home,
                                   uint64_t number)
{
    hd_cuda_mapped *mapped;

    pthread_mutex_lock(&device->home->making);
    mapped = device->home->shared.mapped;
    while (mapped != NULL && (mapped->peer != peer || mapped->home != home ||
                              mapped->number != number))
        mapped = mapped->next;
    if (mapped != NULL)
        mapped->users++;
    pthread_mutex_unlock(&device->home->making);
    return mapped;
}

static hd_cu_result measure(const hd_device *device, hd_cuda_mapped *mapped)
{
    hd_cu_ptr base = 0;
    size_t bytes = 0;
    hd_cu_result result = device->cu.address_range(&base, &bytes, mapped->at);

    if (result == HD_CU_SUCCESS)
        mapped->bytes = base + bytes - mapped->at;
    return result;
}

hd_status hd_cuda_share_map(hd_device *device, int peer, uint64_t home,
                            uint64_t number, const hd_cuda_reach *reach,
                            bool near, hd_diag *diag, hd_cuda_mapped **out)
{
    hd_cuda_shared *shared = &device->home->shared;
    hd_cuda_mapped *mapped = calloc(1, sizeof *mapped);
    hd_cu_result result;

    if (mapped == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a window");
    result = hd_cuda_window_map(&device->cu, reach, near, &mapped->at);
    if (result != HD_CU_SUCCESS || mapped->at == 0) {
        free(mapped);
        return result != HD_CU_SUCCESS
                   ? hd_cuda_error(device, result, diag,
                                   near ? "peer_enable" : "ipc_import")
                   : hd_fail(diag, HD_ERROR_PEER,
                             "rank %d has given back the memory that rank %d "
                             "was to map",
                             peer, device->rank);
    }
    result = measure(device, mapped);
    if (result != HD_CU_SUCCESS) {
        hd_cuda_window_close(&device->cu, mapped->at, near);
        free(mapped);
        return hd_cuda_error(device, result, diag, "address_range");
    }
    mapped->near = near;
    mapped->peer = peer;
    mapped->home = home;
    mapped->number = number;
    mapped->users = 1;
    pthread_mutex_lock(&device->home->making);
    mapped->next = shared->mapped;
    shared->mapped = mapped;
    pthread_mutex_unlock(&device->home->making);
    *out = mapped;
    return HD_OK;
}

void hd_cuda_share_drop(hd_device *device, hd_cuda_mapped *mapped)
{
    if (mapped == NULL)
        return;
    pthread_mutex_lock(&device->home->making);
    mapped->users--;
    pthread_mutex_unlock(&device->home->making);
}

static void unmap(const hd_cuda_home *home, hd_cuda_mapped **at)
{
    hd_cuda_mapped *mapped = *at;

    *at = mapped->next;
    hd_cuda_window_close(&home->cu, mapped->at, mapped->near);
    free(mapped);
}

void hd_cuda_share_forget(hd_device *device, int peer, uint64_t home,
                          uint64_t number)
{
    pthread_mutex_lock(&device->home->making);
    for (hd_cuda_mapped **at = &device->home->shared.mapped; *at != NULL;) {
        const hd_cuda_mapped *mapped = *at;

        if (mapped->peer == peer && mapped->users == 0 &&
            (mapped->home != home || mapped->number < number))
            unmap(device->home, at);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&device->home->making);
}

void hd_cuda_share_trim(hd_cuda_home *home, bool all)
{
    pthread_mutex_lock(&home->making);
    free_unused(home, &home->shared.window);
    while (all && home->shared.mapped != NULL)
        unmap(home, &home->shared.mapped);
    pthread_mutex_unlock(&home->making);
}
