// Makes a group's home on a device when a session first needs it, and ends it
// with the group.
#include "runtime/cuda/device/home.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/allocator.h"
#include "runtime/cuda/device/device.h"
#include "runtime/cuda/issue/run.h"
#include "runtime/cuda/keep.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/transfers/nccl.h"
#include "runtime/cuda/vendor/library.h"

#define LETTING_GO 0.1 // seconds that peers may take, at the end of a group

// ---------------------------------------------------------- libraries

static hd_status open_cuda(hd_device *device, hd_library *library,
                           hd_diag *diag)
{
    hd_cu_result result;

    HD_TRY(hd_library_open(&hd_cuda_library, &device->cu, diag, library));
    result = device->cu.init(0);
    if (result == HD_CU_NO_DEVICE)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "the CUDA driver at %s sees no device", library->path);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "init");
    return HD_OK;
}

// ------------------------------------------------------------ context

// What a session is to work in.
typedef struct place {
    hd_cu_device ordinal;
    hd_cu_context context;
    bool retained;
} place;

// Which of the ranks of its host this one is.
static int local_rank(const hd_device *device)
{
    const hd_group *group = device->binding.group;
    int n = 0;

    for (int i = 0; i < device->rank; i++)
        n += hd_group_leader(group, i) == hd_group_leader(group, device->rank);
    return n;
}

static hd_status choose_device(hd_device *device, const hd_library *library,
                               hd_diag *diag, place *out)
{
    const char *where = device->binding.where;
    int count = 0;
    long number;

    HD_CUDA_TRY(device, diag, device_count, &count);
    if (count < 1)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "the CUDA driver at %s sees no device", library->path);
    number = local_rank(device) % count;
    if (*where != '\0') { // digits: the session would have no driver else
        number = strtol(where, NULL, 10);
        if (number >= count)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "there is no device 'cuda:%s'; there are cuda:0 to "
                           "cuda:%d",
                           where, count - 1);
    }
    HD_CUDA_TRY(device, diag, device_get, &out->ordinal, (int)number);
    HD_CUDA_TRY(device, diag, primary_retain, &out->context, out->ordinal);
    out->retained = true;
    return HD_OK;
}

// A device's own context, which is what nearly all callers work in, is
// retained: the home may outlive theirs.
static hd_status retain(hd_device *device, hd_diag *diag, place *out)
{
    hd_cu_context primary = NULL;

    HD_CUDA_TRY(device, diag, context_device, &out->ordinal);
    HD_CUDA_TRY(device, diag, primary_retain, &primary, out->ordinal);
    out->retained = primary == out->context;
    if (!out->retained)
        device->cu.primary_release(out->ordinal);
    return HD_OK;
}

// The context that the caller works in; without one, that of a device.
static hd_status find_place(hd_device *device, const hd_library *library,
                            hd_diag *diag, place *out)
{
    if (*device->binding.where == '\0')
        HD_CUDA_TRY(device, diag, context_current, &out->context);
    if (out->context == NULL)
        return choose_device(device, library, diag, out);
    return retain(device, diag, out);
}

static hd_status read_arch(hd_device *device, hd_diag *diag)
{
    hd_cuda_home *home = device->home;
    int major = 0, minor = 0;

    HD_CUDA_TRY(device, diag, device_attribute, &major, HD_CU_CAPABILITY_MAJOR,
                home->ordinal);
    HD_CUDA_TRY(device, diag, device_attribute, &minor, HD_CU_CAPABILITY_MINOR,
                home->ordinal);
    snprintf(home->arch, sizeof home->arch, "sm_%d%d%s", major, minor,
             major == 9 ? "a" : "");
    return HD_OK;
}

// ------------------------------------------------------------- streams

static hd_status open_queue(hd_device *device, int i, hd_diag *diag)
{
    hd_cuda_queue *queue = &device->home->queue[i];

    for (int k = 0; k < 2; k++) {
        if (queue->pace[k] == NULL)
            HD_CUDA_TRY(device, diag, event_create, &queue->pace[k],
                        HD_CU_EVENT_DISABLE_TIMING);
    }
    if (i > 0)
        HD_CUDA_TRY(device, diag, stream_create, &queue->stream,
                    HD_CU_STREAM_NON_BLOCKING, 0);
    return HD_OK;
}

hd_status hd_cuda_home_need(hd_device *device, int n, hd_diag *diag)
{
    hd_cuda_home *home = device->home;

    for (int i = home->nqueues; i < n; i++) {
        HD_TRY(open_queue(device, i, diag));
        pthread_mutex_lock(&home->lock);
        home->nqueues = i + 1;
        pthread_mutex_unlock(&home->lock);
    }
    return HD_OK;
}

static hd_status open_streams(hd_device *device, hd_diag *diag)
{
    hd_cuda_home *home = device->home;

    HD_CUDA_TRY(device, diag, stream_create, &home->rescue,
                HD_CU_STREAM_NON_BLOCKING, 0);
    HD_CUDA_TRY(device, diag, stream_create, &home->capture,
                HD_CU_STREAM_NON_BLOCKING, 0);
    return HD_OK;
}

static void close_streams(hd_cuda_home *home)
{
    for (int i = 0; i < HD_CUDA_STREAMS_MOST; i++) {
        for (int k = 0; k < 2; k++) {
            if (home->queue[i].pace[k] != NULL)
                home->cu.event_destroy(home->queue[i].pace[k]);
        }
        if (home->queue[i].stream != NULL)
            home->cu.stream_destroy(home->queue[i].stream);
    }
    if (home->rescue != NULL)
        home->cu.stream_destroy(home->rescue);
    if (home->capture != NULL)
        home->cu.stream_destroy(home->capture);
}

// ------------------------------------------------------------- the end

// Ranks that end together let go of each other's memory at once. One that works
// on may do so for hours.
static void await_peers(hd_cuda_home *home)
{
    int64_t deadline = hd_clock_after(LETTING_GO);

    while (!hd_cuda_chunks_close(home, HD_CUDA_EVERY) && hd_clock() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void close_all(hd_cuda_home *home)
{
    int mode;
    bool entered = hd_cuda_home_enter(home, &mode);

    hd_cuda_chunks_leave(home); // first: peers may wait for that
    hd_cuda_kernels_close(home);
    await_peers(home);
    close_streams(home);
    if (entered)
        hd_cuda_home_exit(home, mode);
}

static bool is_stuck(const hd_cuda_home *home)
{
    return atomic_load_explicit(&home->stuck, memory_order_relaxed);
}

static void release_home(hd_cuda_home *home)
{
    if (home->chunks.first != NULL)
        hd_cuda_keep(home);
    else
        hd_cuda_home_release(home);
}

// Calls that free block while a stream waits, so a device that did not come to
// rest keeps what it has, and what it has open of its peers'.
static void end_home(hd_kept *kept)
{
    hd_cuda_home *home = (hd_cuda_home *)kept;

    hd_cuda_watch_end(home);
    if (is_stuck(home) || !hd_cuda_nccl_rest(home))
        return;
    close_all(home);
    hd_cuda_nccl_end(home, release_home);
    hd_cuda_keep_look();
}

// Without a session nothing of it is needed.
static hd_status trim_home(hd_kept *kept, hd_diag *diag, bool *over)
{
    hd_cuda_home *home = (hd_cuda_home *)kept;
    int mode;

    (void)diag;
    if (!is_stuck(home) && hd_cuda_home_enter(home, &mode)) {
        hd_cuda_chunks_close(home, HD_CUDA_EVERY);
        hd_cuda_home_exit(home, mode);
    }
    hd_cuda_keep_look();
    pthread_mutex_lock(&home->lock);
    *over = home->nsessions == 0;
    pthread_mutex_unlock(&home->lock);
    return HD_OK;
}

// ----------------------------------------------------------- the start

// No other has it, of this process or another.
static uint64_t number_home(const hd_cuda_home *home)
{
    uint64_t number = (uint64_t)hd_clock() ^ (uint64_t)(uintptr_t)home << 20 ^
                      (uint64_t)getpid() << 40;

    return number != 0 ? number : 1;
}

static hd_cuda_home *new_home(const hd_device *device, const place *place)
{
    hd_cuda_home *home = calloc(1, sizeof *home);

    if (home == NULL)
        return NULL;
    home->kept = (hd_kept){.trim = trim_home, .end = end_home};
    home->group = device->binding.group;
    home->rank = device->rank;
    home->cu = device->cu;
    home->ordinal = place->ordinal;
    home->context = place->context;
    home->retained = place->retained;
    home->chunks.home = home->chunks.stamp = number_home(home);
    home->chunks.lease = HD_LEASE_NONE;
    pthread_mutex_init(&home->issue, NULL);
    pthread_mutex_init(&home->making, NULL);
    pthread_mutex_init(&home->lock, NULL);
    pthread_mutex_init(&home->failure.lock, NULL);
    return home;
}

static hd_status furnish(hd_device *device, hd_diag *diag)
{
    hd_status status;
    int mode;

    HD_TRY(hd_cuda_enter(device, diag, &mode));
    status = read_arch(device, diag);
    if (status == HD_OK)
        status = open_streams(device, diag);
    hd_cuda_leave(device, mode);
    return status;
}

// Takes the library over, and what the place has retained.
static hd_status make_home(hd_device *device, const hd_library *library,
                           const place *place, hd_diag *diag)
{
    hd_kept **first = hd_group_kept(device->binding.group);
    hd_cuda_home *home = new_home(device, place);
    hd_status status;

    if (home == NULL) {
        if (place->retained)
            device->cu.primary_release(place->ordinal);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a device");
    }
    home->library = *library;
    device->home = home;
    status = furnish(device, diag);
    if (status != HD_OK) {
        device->home = NULL;
        end_home(&home->kept);
        return status;
    }
    home->kept.next = *first;
    *first = &home->kept;
    return HD_OK;
}

// One that has retained its context keeps it, whoever works in it.
static bool find_home(hd_device *device, const place *place)
{
    hd_kept *kept = *hd_group_kept(device->binding.group);

    while (kept != NULL && ((hd_cuda_home *)kept)->context != place->context)
        kept = kept->next;
    if (kept == NULL)
        return false;
    device->home = (hd_cuda_home *)kept;
    if (!place->retained)
        return true;
    if (device->home->retained)
        device->cu.primary_release(place->ordinal);
    device->home->retained = true;
    return true;
}

static hd_status open_first(hd_device *device, hd_diag *diag)
{
    hd_library library = {0};
    place place = {0};
    hd_status status = open_cuda(device, &library, diag);

    if (status == HD_OK)
        status = find_place(device, &library, diag, &place);
    if (status == HD_OK)
        return make_home(device, &library, &place, diag);
    hd_library_close(&library);
    return status;
}

// The group's others know where the library is.
static hd_status open_next(hd_device *device, const hd_cuda_home *known,
                           hd_diag *diag)
{
    hd_library library = {0};
    place place = {0};
    hd_status status;

    device->cu = known->cu;
    HD_TRY(find_place(device, &known->library, diag, &place));
    if (find_home(device, &place))
        return HD_OK;
    status = open_cuda(device, &library, diag);
    if (status == HD_OK)
        return make_home(device, &library, &place, diag);
    if (place.retained)
        known->cu.primary_release(place.ordinal);
    hd_library_close(&library);
    return status;
}

static void count_session(hd_cuda_home *home, int by)
{
    pthread_mutex_lock(&home->lock);
    home->nsessions += by;
    pthread_mutex_unlock(&home->lock);
}

hd_status hd_cuda_home_open(hd_device *device, hd_diag *diag)
{
    const hd_kept *known = *hd_group_kept(device->binding.group);

    HD_TRY(known == NULL
               ? open_first(device, diag)
               : open_next(device, (const hd_cuda_home *)known, diag));
    count_session(device->home, 1);
    hd_cuda_keep_look(); // it may need the memory
    return HD_OK;
}

void hd_cuda_home_leave(hd_device *device)
{
    hd_cuda_home *home = device->home;

    if (home == NULL)
        return;
    // Its runs have ended.
    pthread_mutex_lock(&home->issue);
    if (home->last == device)
        home->last = NULL;
    pthread_mutex_unlock(&home->issue);
    count_session(home, -1);
}
