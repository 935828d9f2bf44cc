// A GPU that waits for a dead peer shows no error and never ends by itself. So
// a thread of the device's watches: when the group fails, or nothing has moved
// for the timeout, it sets every word that a stream may wait for, until the
// device is at rest. It needs a stream that never waits, memory that is pinned
// beforehand, and no kernel.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda/fused.h"
#include "runtime/cuda/peers.h"
#include "runtime/cuda/sizes.h"
#include "runtime/cuda/transport.h"
#include "runtime/failure.h"

#define MILLISECOND INT64_C(1000000)
#define REST (2000 * MILLISECOND) // that a released device has to come to rest
#define SPINS 2000                // looks at an event before the first nap
#define SHORT_NAP 20000           // ns, the first
#define RELEASED 0x40000000u      // added to the run: far ahead of any word
#define NAMED 8                   // ranks, of which one is waited for
#define UNNAMED "NCCL does not tell in a graph what it waits for"

struct hd_cuda_watch {
    pthread_t thread;
    hd_doorbell doorbell;
    atomic_bool closing;
    atomic_bool rested; // the failed device does nothing any more
    hd_failure failure;
};

bool hd_cuda_has_failed(const hd_device *device)
{
    return device->watch != NULL && hd_failure_is_set(&device->watch->failure);
}

static void nap(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};

    nanosleep(&t, NULL);
}

void hd_cuda_fail(hd_device *device, hd_status status, const char *text,
                  const char *notes)
{
    bool first = hd_failure_set(&device->watch->failure, status, text, notes);

    hd_doorbell_wake(&device->watch->doorbell);
    if (first)
        hd_group_fail(device->binding.group, text);
}

// ------------------------------------------------------------- the host

hd_status hd_cuda_report(hd_device *device, hd_diag *diag)
{
    int64_t deadline = hd_clock() + REST + 1000 * MILLISECOND;

    if (!hd_cuda_has_failed(device))
        return HD_OK;
    // No stream may touch the caller's memory any more when the caller learns
    // of it: not as long as a run is issued, which is abandoned then.
    while (
        !hd_cuda_runs_issue(device) &&
        !atomic_load_explicit(&device->watch->rested, memory_order_acquire) &&
        hd_clock() < deadline)
        nap(MILLISECOND);
    return hd_failure_report(&device->watch->failure,
                             &device->binding.module->source, diag);
}

// What the device itself reports ends the session for all ranks.
static hd_status fail_device(hd_device *device, hd_cu_result result,
                             hd_diag *diag)
{
    const char *name = NULL;
    char text[HD_GROUP_TEXT];

    if (device->cu.error_name(result, &name) != HD_CU_SUCCESS || name == NULL)
        name = "an unknown error";
    snprintf(text, sizeof text, "rank %d: its device failed in a run: %s",
             device->rank, name);
    hd_cuda_fail(device, HD_ERROR_SYSTEM, text, "");
    return hd_cuda_report(device, diag);
}

// A nap is about a 64th of what was waited, so that long waits cost little and
// end late by little.
static void nap_longer(int64_t *ns)
{
    nap(*ns);
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
        if (result != HD_CU_NOT_READY)
            return fail_device(device, result, diag);
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

// ---------------------------------------------------------- what it shows

// NCCL does not tell which of them.
static void put_peers(hd_line *line, const hd_device *device,
                      const hd_cuda_wait *wait)
{
    int all = 0, n = 0;

    for (int i = 0; i < device->size; i++)
        all += hd_cuda_waits_for(device, wait, i);
    for (int i = 0; i < device->size && n < NAMED; i++) {
        if (!hd_cuda_waits_for(device, wait, i))
            continue;
        n++;
        hd_line_put(line, "%s%d", n == 1 ? "" : n == all ? " or " : ", ", i);
    }
    if (n < all)
        hd_line_put(line, " or %d more", all - n);
}

static void put_step(hd_line *line, const hd_device *device,
                     const hd_cuda_wait *wait)
{
    const hd_step *step = wait->step;

    while (wait->peer < 0 && hd_cuda_transport_of(device, step)->windows)
        step++; // of a group that goes by NCCL in part
    hd_line_put_step(line, device->binding.module, step->op->code,
                     step->op->loc.line, step->op->loc.column, step->index,
                     wait->stream, hd_cuda_helper(device));
    if (wait->peer < 0)
        hd_line_put(line, ", by %s",
                    hd_op_fused(step->op) != HD_MOVE_NONE
                        ? device->provider->name
                        : "NCCL");
    hd_line_put(line, ")");
}

static void put_wait(hd_line *line, const hd_device *device,
                     const hd_cuda_wait *wait)
{
    hd_line_put(line, "rank %d waits for rank ", device->rank);
    put_peers(line, device, wait);
    hd_line_put(line, ": ");
    put_step(line, device, wait);
}

// ------------------------------------------------------------ the words

// Copies and gives up after a second: the stream never waits for a peer.
static bool copy_slots(hd_device *device, hd_cu_ptr to, hd_cu_ptr from)
{
    int64_t deadline = hd_clock() + 1000 * MILLISECOND;

    if (device->peers->slot_bytes == 0)
        return true;
    if (device->cu.copy(to, from, device->peers->slot_bytes, device->rescue) !=
        HD_CU_SUCCESS)
        return false;
    while (device->cu.stream_query(device->rescue) == HD_CU_NOT_READY) {
        if (hd_clock() > deadline)
            return false;
        nap(MILLISECOND / 20);
    }
    return true;
}

static bool take_snapshot(hd_device *device)
{
    return copy_slots(device, (hd_cu_ptr)(uintptr_t)device->peers->snapshot,
                      device->peers->window + device->peers->slots);
}

static void release(hd_device *device)
{
    uint32_t value = device->binding.graph
                         ? UINT32_MAX // all turns
                         : RELEASED + (uint32_t)hd_cuda_runs_begun(device);

    for (size_t i = 0; i < device->peers->slot_bytes / sizeof value; i++)
        device->peers->snapshot[i] = value;
    copy_slots(device, device->peers->window + device->peers->slots,
               (hd_cu_ptr)(uintptr_t)device->peers->snapshot);
}

static bool at_rest(hd_device *device)
{
    if (hd_cuda_runs_issue(device))
        return false;
    for (int i = 1; i < device->nstreams; i++) {
        if (device->cu.stream_query(device->stream[i].stream) ==
            HD_CU_NOT_READY)
            return false;
    }
    return hd_cuda_runs_rest(device);
}

// -------------------------------------------------------------- watching

static uint32_t word_of(const hd_device *device, size_t offset)
{
    return device->peers->snapshot[(offset - device->peers->slots) /
                                   sizeof *device->peers->snapshot];
}

static bool is_told(const hd_cuda_wait *wait)
{
    return wait->offset != 0 || wait->mark >= 0;
}

static bool is_missing(const hd_device *device, const hd_cuda_wait *wait,
                       uint64_t run)
{
    if (wait->offset != 0)
        return !hd_cuda_has_come(device, word_of(device, wait->offset), run);
    return is_told(wait) &&
           !hd_cuda_run_has_passed(device, run, wait->marked, wait->mark);
}

// In a graph what NCCL does is not marked: the first of it.
static const hd_cuda_wait *find_unnamed(const hd_device *device)
{
    for (int i = 0; i < device->waits.n; i++) {
        if (!is_told(&device->waits.wait[i]))
            return &device->waits.wait[i];
    }
    return NULL;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 1099511628211u;
}

// The first wait of each stream that nothing answered, which `hash` is of too.
// Returns the first of all, NULL if none is missing.
static const hd_cuda_wait *list_missing(hd_device *device, uint64_t run,
                                        hd_line *lines, uint64_t *hash)
{
    const hd_cuda_wait *first = NULL;
    bool seen[HD_CUDA_STREAMS_MOST] = {false};

    for (int i = 0; i < device->waits.n; i++) {
        const hd_cuda_wait *wait = &device->waits.wait[i];

        if (seen[wait->stream] || !is_missing(device, wait, run))
            continue;
        seen[wait->stream] = true;
        *hash = mix(*hash, (uint64_t)i);
        if (first == NULL)
            first = wait;
        put_wait(lines, device, wait);
        hd_line_put(lines, "\n");
    }
    return first;
}

typedef struct hd_progress {
    uint64_t run;
    uint64_t hash;
    int64_t since;
} hd_progress;

static uint64_t hash_slots(const hd_device *device)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0;
         i < device->peers->slot_bytes / sizeof *device->peers->snapshot; i++)
        hash = mix(hash, device->peers->snapshot[i]);
    return hash;
}

static void fail_late(hd_device *device, const hd_cuda_wait *wait,
                      const hd_cuda_wait *unnamed, const char *notes,
                      hd_line *lines)
{
    char text[HD_GROUP_TEXT] = "";
    hd_line line = {text, sizeof text};

    if (unnamed != NULL) {
        hd_line_put(lines, UNNAMED "; the first of it is ");
        put_step(lines, device, unnamed);
    }
    put_wait(&line, device, wait);
    hd_line_put(&line, " for %.1f s", device->binding.timeout);
    hd_cuda_fail(device, HD_ERROR_TIMEOUT, text, notes);
}

// One that the wait may be for, and that has left; -1 if there is none.
static int find_departed(const hd_device *device, const hd_cuda_wait *wait)
{
    for (int i = 0; i < device->size; i++) {
        if (hd_cuda_waits_for(device, wait, i) &&
            hd_group_left(device->binding.group, i))
            return i;
    }
    return -1;
}

static void fail_unnamed(hd_device *device, const hd_cuda_wait *first,
                         uint64_t run)
{
    int departed = -1;
    char text[HD_GROUP_TEXT] = "";
    hd_line line = {text, sizeof text};

    for (int i = 0; i < device->waits.n && departed < 0; i++) {
        if (!is_told(&device->waits.wait[i]))
            departed = find_departed(device, &device->waits.wait[i]);
    }
    if (departed >= 0)
        hd_line_put(&line, "rank %d has left the group; ", departed);
    hd_line_put(
        &line,
        "run %llu of rank %d has not ended for %.1f s: it waits at or after ",
        (unsigned long long)run, device->rank, device->binding.timeout);
    put_step(&line, device, first);
    hd_cuda_fail(device, departed >= 0 ? HD_ERROR_PEER : HD_ERROR_TIMEOUT, text,
                 UNNAMED ": without the graph the step is named");
}

static bool is_late(const hd_device *device, const hd_progress *progress)
{
    return (double)(hd_clock() - progress->since) * 1e-9 >
           device->binding.timeout;
}

// A wait for a peer that has left. All that it wrote was there when it left, so
// that what another look finds missing then never comes. What NCCL has sent may
// be under way still: there only time tells.
static const hd_cuda_wait *find_abandoned(hd_device *device,
                                          const hd_progress *progress,
                                          const hd_cuda_wait *missing)
{
    hd_line nowhere = {NULL, 0};
    uint64_t hash = 0;

    if (missing == NULL || find_departed(device, missing) < 0)
        return NULL;
    if (missing->peer < 0)
        return is_late(device, progress) ? missing : NULL;
    return take_snapshot(device) && list_missing(device, progress->run,
                                                 &nowhere, &hash) == missing
               ? missing
               : NULL;
}

static void fail_abandoned(hd_device *device, const hd_cuda_wait *wait)
{
    char text[HD_GROUP_TEXT] = "";
    hd_line line = {text, sizeof text};

    hd_line_put(&line, "rank %d has left the group; ",
                find_departed(device, wait));
    put_wait(&line, device, wait);
    hd_cuda_fail(device, HD_ERROR_PEER, text, "");
}

// Fails a run in which nothing has moved for the timeout though a peer's word
// is missing, or that waits for a peer that has left.
static void look(hd_device *device, hd_progress *progress)
{
    uint64_t run = hd_cuda_run_in_flight(device), hash;
    char notes[HD_FAILURE_NOTES] = "";
    hd_line lines = {notes, sizeof notes};
    const hd_cuda_wait *unnamed = find_unnamed(device);
    const hd_cuda_wait *missing, *abandoned;

    if (run == 0 || !take_snapshot(device)) {
        progress->run = 0;
        return;
    }
    hash = hash_slots(device);
    missing = list_missing(device, run, &lines, &hash);
    if ((missing == NULL && unnamed == NULL) || run != progress->run ||
        hash != progress->hash) {
        *progress = (hd_progress){run, hash, hd_clock()};
        return;
    }
    abandoned = find_abandoned(device, progress, missing);
    if (abandoned != NULL)
        fail_abandoned(device, abandoned);
    else if (is_late(device, progress) && missing == NULL)
        fail_unnamed(device, unnamed, run);
    else if (is_late(device, progress))
        fail_late(device, missing, unnamed, notes, &lines);
}

static void come_to_rest(hd_device *device)
{
    int64_t deadline = hd_clock() + REST;
    bool rests;

    hd_cuda_transports_abort(device);
    do {
        release(device);
        nap(MILLISECOND);
        if (hd_cuda_runs_issue(device)) // graphs may be made
            deadline = hd_clock() + REST;
        rests = at_rest(device);
    } while (!rests && hd_clock() < deadline);
    hd_cuda_set_stuck(device, !rests);
    atomic_store_explicit(&device->watch->rested, true, memory_order_release);
}

static bool is_closing(const hd_device *device)
{
    return atomic_load_explicit(&device->watch->closing, memory_order_seq_cst);
}

static void *watch_device(void *context)
{
    hd_device *device = context;
    double period = device->binding.timeout / 8;
    int64_t ns = period < 0.1 ? (int64_t)(period * 1e9) : 100 * MILLISECOND;
    hd_progress progress = {0};
    char text[HD_GROUP_TEXT];

    // A caller's capture ends where another thread asks how far the device is,
    // unless that one says that it has nothing to do with it.
    device->cu.context_push(device->context);
    device->cu.capture_mode(&(int){HD_CU_CAPTURE_RELAXED});
    while (!is_closing(device)) {
        uint32_t seen = hd_doorbell_arm(&device->watch->doorbell);

        if (!hd_group_failed(device->binding.group) &&
            !hd_cuda_has_failed(device) && !is_closing(device))
            hd_doorbell_sleep(&device->watch->doorbell, seen, ns);
        hd_doorbell_disarm(&device->watch->doorbell);
        if (hd_group_failed(device->binding.group)) {
            hd_status status = hd_group_failure(device->binding.group, text);

            hd_cuda_fail(device, status, text, "");
        }
        if (!hd_cuda_has_failed(device) &&
            hd_cuda_sizes_differ(device, text, sizeof text))
            hd_cuda_fail(device, HD_ERROR_INVALID, text, "");
        if (hd_cuda_has_failed(device)) {
            come_to_rest(device);
            break;
        }
        look(device, &progress);
    }
    device->cu.context_pop(&(hd_cu_context){0});
    return NULL;
}

hd_status hd_cuda_watch_start(hd_device *device, hd_diag *diag)
{
    hd_cuda_watch *watch = calloc(1, sizeof *watch);

    if (watch == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory to watch the device");
    if (hd_group_add_doorbell(device->binding.group, &watch->doorbell) !=
        HD_OK) {
        free(watch);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a doorbell");
    }
    pthread_mutex_init(&watch->failure.lock, NULL);
    device->watch = watch;
    if (pthread_create(&watch->thread, NULL, watch_device, device) != 0) {
        hd_group_remove_doorbell(device->binding.group, &watch->doorbell);
        device->watch = NULL;
        pthread_mutex_destroy(&watch->failure.lock);
        free(watch);
        return hd_system_error(diag, "no thread to watch the device");
    }
    return HD_OK;
}

void hd_cuda_watch_stop(hd_device *device)
{
    hd_cuda_watch *watch = device->watch;

    if (watch == NULL)
        return;
    atomic_store_explicit(&watch->closing, true, memory_order_seq_cst);
    hd_doorbell_wake(&watch->doorbell);
    pthread_join(watch->thread, NULL);
    hd_group_remove_doorbell(device->binding.group, &watch->doorbell);
    pthread_mutex_destroy(&watch->failure.lock);
}
