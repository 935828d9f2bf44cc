// Windows as a list, their slots as lists of places.
#include "runtime/cuda/share.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

    while (window != NULL &&
           (window->retired || window->bytes - window->region < bytes ||
            find_place(window, slots, &at) == NULL))
        window = window->next;
    return window;
}

static hd_cuda_window *find_newest(const hd_cuda_shared *shared)
{
    hd_cuda_window *window = shared->window;

    while (window != NULL && window->retired)
        window = window->next;
    return window;
}

// What one is made for: it has room for others that are a little larger.
static void plan_window(const hd_cuda_shared *shared, size_t slots,
                        size_t bytes, hd_cuda_window *out)
{
    const hd_cuda_window *last = find_newest(shared);
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

// What no peer was told of none has open.
bool hd_cuda_share_take_back(const hd_cuda_home *home, uint64_t number)
{
    return home->shared.lease == HD_LEASE_NONE ||
           hd_lease_take_back(home->shared.lease, number);
}

static void retire_unused(hd_cuda_window *window)
{
    for (; window != NULL; window = window->next)
        window->retired |= window->hold == NULL;
}

static void free_retired(hd_cuda_home *home)
{
    for (hd_cuda_window **at = &home->shared.window; *at != NULL;) {
        hd_cuda_window *window = *at;

        if (!window->retired ||
            !hd_cuda_share_take_back(home, window->number)) {
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
    retire_unused(shared->window); // they have no room for it
    free_retired(device->home);
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
    if (find_newest(&home->shared) != NULL)
        retire_unused(find_newest(&home->shared)->next);
    free_retired(home);
    pthread_mutex_unlock(&home->making);
}

uint64_t hd_cuda_share_oldest(hd_device *device)
{
    uint64_t oldest;

    pthread_mutex_lock(&device->home->making);
    oldest = device->home->shared.made;
    for (const hd_cuda_window *window = device->home->shared.window;
         window != NULL; window = window->next)
        oldest = window->retired ? oldest : window->number;
    pthread_mutex_unlock(&device->home->making);
    return oldest;
}

uint64_t hd_cuda_share_number(hd_cuda_home *home)
{
    uint64_t number;

    pthread_mutex_lock(&home->making);
    number = ++home->shared.made;
    pthread_mutex_unlock(&home->making);
    return number;
}

// ---------------------------------------------------------------- leases

hd_status hd_cuda_share_lease(hd_device *device, hd_diag *diag, int *out)
{
    hd_cuda_shared *shared = &device->home->shared;
    hd_status status = HD_OK;

    pthread_mutex_lock(&device->home->making);
    if (shared->lease == HD_LEASE_NONE)
        status = hd_lease_open(diag, &shared->lease);
    *out = shared->lease;
    pthread_mutex_unlock(&device->home->making);
    return status;
}

static bool is_leased_by(const hd_cuda_shared *shared, int lease)
{
    const hd_cuda_mapped *mapped = shared->mapped;

    while (mapped != NULL && mapped->lease != lease)
        mapped = mapped->next;
    return mapped != NULL;
}

static void drop_lease(hd_cuda_leased **at)
{
    hd_cuda_leased *leased = *at;

    *at = leased->next;
    close(leased->lease);
    free(leased);
}

// Of homes that the peer may not have any more.
static void drop_leases(hd_cuda_shared *shared, int peer, uint64_t home)
{
    for (hd_cuda_leased **at = &shared->leased; *at != NULL;) {
        const hd_cuda_leased *leased = *at;

        if (leased->peer == peer && leased->home != home &&
            !is_leased_by(shared, leased->lease))
            drop_lease(at);
        else
            at = &(*at)->next;
    }
}

static int find_lease(const hd_cuda_shared *shared, int peer, uint64_t home)
{
    const hd_cuda_leased *leased = shared->leased;

    while (leased != NULL && (leased->peer != peer || leased->home != home))
        leased = leased->next;
    return leased != NULL ? leased->lease : HD_LEASE_NONE;
}

static hd_status join(hd_cuda_shared *shared, int peer, uint64_t home,
                      int passed, hd_diag *diag)
{
    hd_cuda_leased *leased;
    hd_status status;

    drop_leases(shared, peer, home);
    if (find_lease(shared, peer, home) != HD_LEASE_NONE) {
        close(passed);
        return HD_OK;
    }
    leased = calloc(1, sizeof *leased);
    if (leased == NULL) {
        close(passed);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a lease");
    }
    status = hd_lease_join(passed, diag, &leased->lease);
    if (status != HD_OK) {
        free(leased);
        return status;
    }
    leased->peer = peer;
    leased->home = home;
    leased->next = shared->leased;
    shared->leased = leased;
    return HD_OK;
}

hd_status hd_cuda_share_join(hd_device *device, int peer, uint64_t home,
                             int lease, hd_diag *diag)
{
    hd_status status;

    pthread_mutex_lock(&device->home->making);
    status = join(&device->home->shared, peer, home, lease, diag);
    pthread_mutex_unlock(&device->home->making);
    return status;
}

// ---------------------------------------------------------------- peers'

// The one that was mapped last: the next session may fit.
static bool is_last(const hd_cuda_shared *shared, const hd_cuda_mapped *mapped)
{
    const hd_cuda_mapped *later = shared->mapped;

    while (later != mapped && (later->peer != mapped->peer || later->lent))
        later = later->next;
    return later == mapped;
}

static void unmap(const hd_cuda_home *home, hd_cuda_mapped **at)
{
    hd_cuda_mapped *mapped = *at;

    *at = mapped->next;
    hd_cuda_window_close(&home->cu, mapped->at, mapped->near);
    if (mapped->lease != HD_LEASE_NONE)
        hd_lease_let_go(mapped->lease, mapped->number);
    free(mapped);
}

// No session uses them, and with `all` none is to come that might.
static void unmap_unused(hd_cuda_home *home, bool all)
{
    hd_cuda_shared *shared = &home->shared;

    for (hd_cuda_mapped **at = &shared->mapped; *at != NULL;) {
        const hd_cuda_mapped *mapped = *at;

        if (mapped->users > 0 ||
            (!all && !mapped->lent && is_last(shared, mapped))) {
            at = &(*at)->next;
            continue;
        }
        if (!mapped->lent)
            shared->stamp += 11400714819323198485u;
        unmap(home, at);
    }
}

void hd_cuda_share_begin(hd_device *device)
{
    pthread_mutex_lock(&device->home->making);
    device->home->shared.making++;
    pthread_mutex_unlock(&device->home->making);
}

void hd_cuda_share_end(hd_device *device)
{
    hd_cuda_home *home = device->home;

    pthread_mutex_lock(&home->making);
    if (--home->shared.making == 0)
        unmap_unused(home, false);
    free_retired(home);
    pthread_mutex_unlock(&home->making);
}

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

static hd_status report_gone(const hd_device *device, int peer, hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_PEER,
                   "rank %d has given back the memory that rank %d was to map",
                   peer, device->rank);
}

// False if it is not there any more.
static bool hold(hd_device *device, hd_cuda_mapped *mapped)
{
    mapped->lease = HD_LEASE_NONE;
    if (mapped->near)
        return true;
    pthread_mutex_lock(&device->home->making);
    mapped->lease =
        find_lease(&device->home->shared, mapped->peer, mapped->home);
    pthread_mutex_unlock(&device->home->making);
    return mapped->lease != HD_LEASE_NONE &&
           hd_lease_hold(mapped->lease, mapped->number);
}

static hd_status map(hd_device *device, hd_cuda_mapped *mapped,
                     const hd_cuda_reach *reach, hd_diag *diag)
{
    hd_cu_ptr base = 0;
    size_t bytes = 0;
    hd_cu_result result =
        hd_cuda_window_map(&device->cu, reach, mapped->near, &mapped->at);

    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag,
                             mapped->near ? "peer_enable" : "ipc_import");
    if (mapped->at == 0)
        return report_gone(device, mapped->peer, diag);
    result = device->cu.address_range(&base, &bytes, mapped->at);
    if (result != HD_CU_SUCCESS) {
        hd_cuda_window_close(&device->cu, mapped->at, mapped->near);
        return hd_cuda_error(device, result, diag, "address_range");
    }
    mapped->bytes = base + bytes - mapped->at;
    return HD_OK;
}

hd_status hd_cuda_share_map(hd_device *device, const hd_cuda_mapped *what,
                            const hd_cuda_reach *reach, hd_diag *diag,
                            hd_cuda_mapped **out)
{
    hd_cuda_shared *shared = &device->home->shared;
    hd_cuda_mapped *mapped = malloc(sizeof *mapped);
    hd_status status;

    if (mapped == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a window");
    *mapped = *what;
    mapped->users = 1;
    if (!hold(device, mapped)) {
        free(mapped);
        return report_gone(device, what->peer, diag);
    }
    status = map(device, mapped, reach, diag);
    if (status != HD_OK) {
        if (mapped->lease != HD_LEASE_NONE)
            hd_lease_let_go(mapped->lease, mapped->number);
        free(mapped);
        return status;
    }
    pthread_mutex_lock(&device->home->making);
    mapped->next = shared->mapped;
    shared->mapped = mapped;
    pthread_mutex_unlock(&device->home->making);
    *out = mapped;
    return HD_OK;
}

void hd_cuda_share_drop(hd_device *device, hd_cuda_mapped *mapped)
{
    hd_cuda_home *home = device->home;

    if (mapped == NULL)
        return;
    pthread_mutex_lock(&home->making);
    mapped->users--;
    if (home->shared.making == 0)
        unmap_unused(home, false);
    pthread_mutex_unlock(&home->making);
}

void hd_cuda_share_forget(hd_device *device, int peer, uint64_t home,
                          uint64_t number)
{
    pthread_mutex_lock(&device->home->making);
    for (hd_cuda_mapped **at = &device->home->shared.mapped; *at != NULL;) {
        const hd_cuda_mapped *mapped = *at;

        if (mapped->peer == peer && mapped->users == 0 && !mapped->lent &&
            mapped->home == home && mapped->number < number)
            unmap(device->home, at);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&device->home->making);
}

// --------------------------------------------------------------- the end

void hd_cuda_share_trim(hd_cuda_home *home)
{
    pthread_mutex_lock(&home->making);
    unmap_unused(home, true);
    retire_unused(home->shared.window);
    free_retired(home);
    pthread_mutex_unlock(&home->making);
}

void hd_cuda_share_leave(hd_cuda_home *home)
{
    hd_cuda_shared *shared = &home->shared;

    pthread_mutex_lock(&home->making);
    while (shared->mapped != NULL)
        unmap(home, &shared->mapped);
    while (shared->leased != NULL)
        drop_lease(&shared->leased);
    retire_unused(shared->window);
    pthread_mutex_unlock(&home->making);
}

bool hd_cuda_share_free(hd_cuda_home *home)
{
    bool all;

    pthread_mutex_lock(&home->making);
    free_retired(home);
    all = home->shared.window == NULL;
    pthread_mutex_unlock(&home->making);
    return all;
}
