// The first failure of a home, of which all its sessions learn; and waits for
// events, which end with it.
#include <stdio.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda/device/device.h"
#include "runtime/failure.h"

#define MILLISECOND INT64_C(1000000)
#define HEARING 5.0     // seconds for what peers have said
#define SPINS 2000      // looks at an event before the first nap
#define SHORT_NAP 20000 // ns, the first

bool hd_cuda_has_failed(const hd_device *device)
{
    return device->home != NULL && hd_failure_is_set(&device->home->failure);
}

void hd_cuda_nap(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};

    nanosleep(&t, NULL);
}

static void fail_home(hd_cuda_home *home, hd_status status, const char *text,
                      const char *notes)
{
    bool first = hd_failure_set(&home->failure, status, text, notes);

    hd_doorbell_wake(&home->doorbell);
    if (first)
        hd_group_fail(home->group, text);
}

void hd_cuda_fail(hd_device *device, hd_status status, const char *text,
                  const char *notes)
{
    fail_home(device->home, status, text, notes);
}

void hd_cuda_fail_with_group(hd_cuda_home *home)
{
    char text[HD_GROUP_TEXT];

    if (hd_group_failed(home->group))
        fail_home(home, hd_group_failure(home->group, text), text, "");
}

// What the device itself reports ends the session for all ranks.
void hd_cuda_tell_failed(hd_device *device, hd_cu_result result)
{
    const char *name = NULL;
    char text[HD_GROUP_TEXT];

    if (device->cu.error_name(result, &name) != HD_CU_SUCCESS || name == NULL)
        name = "an unknown error";
    snprintf(text, sizeof text, "rank %d: its device failed: %s", device->rank,
             name);
    hd_cuda_fail(device, HD_ERROR_SYSTEM, text, "");
}

// -------------------------------------------------------------- the host

bool hd_cuda_runs_issue(const hd_device *device)
{
    return atomic_load_explicit(&device->home->issuing, memory_order_seq_cst) ==
           device;
}

bool hd_cuda_home_issues(const hd_cuda_home *home)
{
    return atomic_load_explicit(&home->issuing, memory_order_seq_cst) != NULL;
}

hd_status hd_cuda_report(hd_device *device, hd_diag *diag)
{
    hd_cuda_home *home = device->home;
    int64_t deadline =
        hd_clock_after(HD_GROUP_TELLING) + HD_CUDA_REST + 1000 * MILLISECOND;

    if (!hd_cuda_has_failed(device))
        return HD_OK;
    // No stream may touch the caller's memory any more when the caller learns
    // of it: not as long as a run is issued, which is abandoned then.
    while (!hd_cuda_runs_issue(device) && !hd_cuda_has_rested(home) &&
           hd_clock() < deadline)
        hd_cuda_nap(MILLISECOND);
    return hd_failure_report(&home->failure, &device->binding.module->source,
                             diag);
}

#define UNHEARD                                                               \
    "rank %d has not heard for %.0f s what its peers have to say: whether a " \
    "run that has ended is right cannot be told"

hd_status hd_cuda_catch_up(hd_device *device, hd_diag *diag)
{
    hd_group *group = device->home->group;
    char text[HD_GROUP_TEXT];

    if (!hd_group_catch_up(group, hd_clock_after(HEARING))) {
        snprintf(text, sizeof text, UNHEARD, device->rank, HEARING);
        hd_cuda_fail(device, HD_ERROR_TIMEOUT, text, "");
    }
    hd_cuda_fail_with_group(device->home);
    return hd_cuda_report(device, diag);
}

hd_status hd_cuda_catch_up_until(hd_device *device, int64_t deadline,
                                 hd_diag *diag, bool *over)
{
    int64_t latest = hd_clock_after(HEARING);

    if (deadline >= latest)
        return hd_cuda_catch_up(device, diag);
    *over = hd_group_catch_up(device->home->group, deadline);
    hd_cuda_fail_with_group(device->home);
    return hd_cuda_report(device, diag);
}

// A nap is about a 64th of what was waited, so that long waits cost little and
// end late by little.
static void nap_longer(int64_t *ns)
{
    hd_cuda_nap(*ns);
    *ns += *ns / 64;
    *ns = *ns > MILLISECOND ? MILLISECOND : *ns;
}

hd_status hd_cuda_await_until(hd_device *device, hd_cu_event event,
                              int64_t deadline, hd_diag *diag, bool *over)
{
    int64_t ns = SHORT_NAP;

    *over = true;
    for (int i = 0;; i++) {
        hd_cu_result result = device->cu.event_query(event);

        if (hd_cuda_has_failed(device))
            return hd_cuda_report(device, diag);
        if (result == HD_CU_SUCCESS)
            return HD_OK;
        if (result != HD_CU_NOT_READY) {
            hd_cuda_tell_failed(device, result);
            return hd_cuda_report(device, diag);
        }
        if (hd_clock() >= deadline)
            break;
        if (i > SPINS)
            nap_longer(&ns);
    }
    *over = false;
    return HD_OK;
}

hd_status hd_cuda_await(hd_device *device, hd_cu_event event, hd_diag *diag)
{
    bool over;

    HD_TRY(hd_cuda_await_until(device, event, 0, diag, &over));
    if (over)
        return HD_OK;
    device->host_waits++;
    return hd_cuda_await_until(device, event, INT64_MAX, diag, &over);
}

// A stream's queue is finite, and who issues into a full one blocks where no
// failure can reach it. So the host itself waits, for what it issued long ago.
hd_status hd_cuda_throttle(hd_device *device, int stream, hd_diag *diag)
{
    hd_cuda_queue *queue = &device->home->queue[stream];
    uint64_t turn;

    if (device->capturing)
        return HD_OK;
    turn = ++queue->issued / HD_CUDA_THROTTLE;
    if (queue->issued % HD_CUDA_THROTTLE != 0)
        return HD_OK;
    if (turn > 1)
        HD_TRY(hd_cuda_await(device, queue->pace[(turn + 1) % 2], diag));
    HD_CUDA_TRY(device, diag, event_record, queue->pace[turn % 2],
                device->stream[stream].stream);
    return HD_OK;
}
