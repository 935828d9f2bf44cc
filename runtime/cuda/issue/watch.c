// A GPU that waits for a dead peer shows no error and never ends by itself. So
// a thread of the home's watches: when the group fails, or nothing has moved
// for the timeout, it sets every word that a stream may wait for, until the
// device is at rest. It needs a stream that never waits, and no kernel. What
// fails in one session ends all of the home: the group fails with it, and their
// streams are the same.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda/issue/capture.h"
#include "runtime/cuda/issue/run.h"
#include "runtime/cuda/issue/sizes.h"
#include "runtime/cuda/memory/peers.h"
#include "runtime/cuda/transfers/fused.h"
#include "runtime/cuda/transfers/transport.h"
#include "runtime/failure.h"

#define MILLISECOND INT64_C(1000000)
#define IDLE (1000 * MILLISECOND) // between looks where there is no session
#define CALM 1.0                  // seconds of a run before its words are read
#define RELEASED 0x40000000u      // added to the run: far ahead of any word
#define NAMED 8                   // ranks, of which one is waited for
#define UNNAMED "NCCL does not tell %s what it waits for"

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
                    hd_cuda_fused_has(device, step) ? device->provider->name
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

// Gives up after a second: the stream never waits for a peer.
static bool take_snapshot(hd_device *device)
{
    int64_t deadline = hd_clock() + 1000 * MILLISECOND;

    if (device->peers->slot_bytes == 0)
        return true;
    if (device->cu.copy((hd_cu_ptr)(uintptr_t)device->peers->snapshot,
                        device->peers->window + device->peers->slots,
                        device->peers->slot_bytes,
                        device->home->rescue) != HD_CU_SUCCESS)
        return false;
    while (device->cu.stream_query(device->home->rescue) == HD_CU_NOT_READY) {
        if (hd_clock() > deadline)
            return false;
        hd_cuda_nap(MILLISECOND / 20);
    }
    return true;
}

// Has the stream write them. A copy waits in its call for one of another thread
// that frees memory, and that one for all streams of the device.
static void release_words(hd_device *device)
{
    uint32_t value = device->binding.graph
                         ? UINT32_MAX // all turns
                         : RELEASED + (uint32_t)hd_cuda_runs_begun(device);
    hd_cu_ptr at = device->peers->window + device->peers->slots;
    hd_cu_ptr end = at + device->peers->slot_bytes;
    hd_cu_memop op[HD_CUDA_BATCH];

    while (at < end) {
        unsigned n = 0;

        for (; at < end && n < HD_CUDA_BATCH; at += sizeof value)
            op[n++] = (hd_cu_memop){.word = {.operation = HD_CU_OP_WRITE_32,
                                             .address = at,
                                             .value = value,
                                             .flags = HD_CU_WRITE_DEFAULT}};
        if (device->cu.stream_words(device->home->rescue, n, op, 0) !=
            HD_CU_SUCCESS)
            return;
    }
}

static void release(hd_device *device)
{
    if (device->captures != NULL)
        hd_cuda_captures_release(device);
    else
        release_words(device);
}

// The lock is held.
static bool at_rest(const hd_cuda_home *home)
{
    bool rests = true;

    if (hd_cuda_home_issues(home))
        return false;
    for (int i = 1; i < home->nqueues; i++) {
        if (home->cu.stream_query(home->queue[i].stream) == HD_CU_NOT_READY)
            return false;
    }
    for (hd_device *device = home->first; device != NULL;
         device = device->beside)
        rests = rests && hd_cuda_runs_rest(device);
    return rests;
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

static uint64_t hash_slots(const hd_device *device)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0;
         i < device->peers->slot_bytes / sizeof *device->peers->snapshot; i++)
        hash = mix(hash, device->peers->snapshot[i]);
    return hash;
}

// Where NCCL has no marks.
static const char *where(const hd_device *device)
{
    return device->captures != NULL ? "where runs may be captured"
                                    : "in a graph";
}

static void fail_late(hd_device *device, const hd_cuda_wait *wait,
                      const hd_cuda_wait *unnamed, const char *notes,
                      hd_line *lines)
{
    char text[HD_GROUP_TEXT] = "";
    hd_line line = {text, sizeof text};

    if (unnamed != NULL) {
        hd_line_put(lines, UNNAMED "; the first of it is ", where(device));
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
    char text[HD_GROUP_TEXT] = "", notes[HD_GROUP_TEXT] = "";
    hd_line line = {text, sizeof text}, note = {notes, sizeof notes};

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
    hd_line_put(&note, UNNAMED ": without %s the step is named", where(device),
                device->captures != NULL ? "'capturable'" : "the graph");
    hd_cuda_fail(device, departed >= 0 ? HD_ERROR_PEER : HD_ERROR_TIMEOUT, text,
                 notes);
}

static bool is_late(const hd_device *device, const hd_cuda_progress *progress)
{
    return (double)(hd_clock() - progress->since) * 1e-9 >
           device->binding.timeout;
}

// A wait for a peer that has left. All that it wrote was there when it left, so
// that what another look finds missing then never comes. What NCCL has sent may
// be under way still: there only time tells.
static const hd_cuda_wait *find_abandoned(hd_device *device,
                                          const hd_cuda_progress *progress,
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

// An error of the context stays, whatever is asked of it, unlike one of a call:
// an event of a run that it has cut short says no more than that.
static bool has_device_failed(hd_device *device)
{
    hd_cu_result result = HD_CU_NOT_READY;

    for (int i = 0; i < 2; i++) {
        result = device->cu.stream_query(device->home->rescue);
        if (result == HD_CU_SUCCESS || result == HD_CU_NOT_READY)
            return false;
    }
    hd_cuda_tell_failed(device, result);
    return true;
}

// To read the words is a copy, which waits in its call for another thread's
// that frees memory, and that for all streams of the device: where these wait
// for a peer that dies, we must be free to let them go. Most runs end before.
static bool is_calm(const hd_device *device)
{
    double calm = device->binding.timeout / 8;

    for (int i = 0; i < device->size; i++) {
        if (i != device->rank && hd_group_left(device->binding.group, i))
            return false;
    }
    return (double)(hd_clock() - device->progress.since) * 1e-9 <
           (calm < CALM ? calm : CALM);
}

// Fails a run in which nothing has moved for the timeout though a peer's word
// is missing, or that waits for a peer that has left.
static void look_at_waits(hd_device *device)
{
    hd_cuda_progress *progress = &device->progress;
    uint64_t run = hd_cuda_run_in_flight(device), hash;
    char notes[HD_FAILURE_NOTES] = "";
    hd_line lines = {notes, sizeof notes};
    const hd_cuda_wait *unnamed = find_unnamed(device);
    const hd_cuda_wait *missing, *abandoned;

    if (run != progress->run) {
        *progress = (hd_cuda_progress){run, 0, hd_clock()};
        return;
    }
    if (run == 0 || (progress->hash == 0 && is_calm(device)))
        return;
    if (!take_snapshot(device)) {
        progress->run = 0;
        return;
    }
    hash = hash_slots(device);
    missing = list_missing(device, run, &lines, &hash);
    if ((missing == NULL && unnamed == NULL) || hash != progress->hash) {
        *progress = (hd_cuda_progress){run, hash, hd_clock()};
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

// Again once what was asked for before is done.
static void end_waits(hd_cuda_home *home)
{
    if (home->cu.stream_query(home->rescue) == HD_CU_NOT_READY)
        return;
    for (hd_device *device = home->first; device != NULL;
         device = device->beside)
        release(device);
}

static void abort_transports(hd_cuda_home *home)
{
    pthread_mutex_lock(&home->lock);
    for (hd_device *device = home->first; device != NULL;
         device = device->beside)
        hd_cuda_transports_abort(device);
    pthread_mutex_unlock(&home->lock);
}

// What runs dry on a device that is let go tells peers that it has come, though
// it means nothing. They have been told of the failure by then, and look
// whether they were at the end of a run: hd_cuda_catch_up.
static void come_to_rest(hd_cuda_home *home)
{
    int64_t deadline;
    bool rests;

    hd_group_pass_on(home->group, home->failure.text);
    deadline = hd_clock() + HD_CUDA_REST;
    abort_transports(home);
    do {
        pthread_mutex_lock(&home->lock);
        end_waits(home);
        hd_cuda_nap(MILLISECOND);
        if (hd_cuda_home_issues(home)) // graphs may be made
            deadline = hd_clock() + HD_CUDA_REST;
        rests = at_rest(home);
        pthread_mutex_unlock(&home->lock);
    } while (!rests && hd_clock() < deadline);
    atomic_store_explicit(&home->stuck, !rests, memory_order_relaxed);
    atomic_store_explicit(&home->rested, true, memory_order_release);
}

static bool is_closing(const hd_cuda_home *home)
{
    return atomic_load_explicit(&home->closing, memory_order_seq_cst);
}

// Until the thread looks again: an eighth of the shortest timeout.
static int64_t period_of(hd_cuda_home *home)
{
    int64_t ns = IDLE;

    pthread_mutex_lock(&home->lock);
    for (const hd_device *device = home->first; device != NULL;
         device = device->beside) {
        double period = device->binding.timeout / 8;
        int64_t mine =
            period < 0.1 ? (int64_t)(period * 1e9) : 100 * MILLISECOND;

        ns = mine < ns ? mine : ns;
    }
    pthread_mutex_unlock(&home->lock);
    return ns;
}

static void look_at_sizes(hd_device *device)
{
    char text[HD_GROUP_TEXT];

    if (hd_cuda_sizes_differ(device, text, sizeof text))
        hd_cuda_fail(device, HD_ERROR_INVALID, text, "");
}

// Their steps are read no more once they are not among them.
static void look_at_all(hd_cuda_home *home)
{
    pthread_mutex_lock(&home->lock);
    for (hd_device *device = home->first; device != NULL;
         device = device->beside) {
        if (!hd_failure_is_set(&home->failure))
            look_at_sizes(device);
        if (!hd_failure_is_set(&home->failure) && !has_device_failed(device))
            look_at_waits(device);
    }
    pthread_mutex_unlock(&home->lock);
}

static void sleep_a_while(hd_cuda_home *home)
{
    int64_t ns = period_of(home);
    uint32_t seen = hd_doorbell_arm(&home->doorbell);

    if (!hd_group_failed(home->group) && !hd_failure_is_set(&home->failure) &&
        !is_closing(home))
        hd_doorbell_sleep(&home->doorbell, seen, ns);
    hd_doorbell_disarm(&home->doorbell);
}

static void *watch_home(void *context)
{
    hd_cuda_home *home = context;

    // A caller's capture ends where another thread asks how far the device is,
    // unless that one says that it has nothing to do with it.
    home->cu.context_push(home->context);
    home->cu.capture_mode(&(int){HD_CU_CAPTURE_RELAXED});
    while (!is_closing(home) && !hd_cuda_has_rested(home)) {
        sleep_a_while(home);
        hd_cuda_fail_with_group(home);
        look_at_all(home);
        if (hd_failure_is_set(&home->failure))
            come_to_rest(home);
    }
    home->cu.context_pop(&(hd_cu_context){0});
    return NULL;
}

static hd_status start_thread(hd_cuda_home *home, hd_diag *diag)
{
    if (home->watched)
        return HD_OK;
    if (hd_group_add_doorbell(home->group, &home->doorbell) != HD_OK)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a doorbell");
    if (pthread_create(&home->thread, NULL, watch_home, home) != 0) {
        hd_group_remove_doorbell(home->group, &home->doorbell);
        return hd_system_error(diag, "no thread to watch the device");
    }
    home->watched = true;
    return HD_OK;
}

hd_status hd_cuda_watch_start(hd_device *device, hd_diag *diag)
{
    hd_cuda_home *home = device->home;

    HD_TRY(start_thread(home, diag));
    pthread_mutex_lock(&home->lock);
    device->beside = home->first;
    home->first = device;
    device->watched = true;
    pthread_mutex_unlock(&home->lock);
    hd_doorbell_wake(&home->doorbell); // its timeout may be shorter
    return HD_OK;
}

void hd_cuda_watch_stop(hd_device *device)
{
    hd_cuda_home *home = device->home;
    hd_device **at;

    if (!device->watched)
        return;
    while (hd_cuda_has_failed(device) && !hd_cuda_has_rested(home))
        hd_cuda_nap(MILLISECOND);
    pthread_mutex_lock(&home->lock);
    for (at = &home->first; *at != device;)
        at = &(*at)->beside;
    *at = device->beside;
    pthread_mutex_unlock(&home->lock);
}

void hd_cuda_watch_end(hd_cuda_home *home)
{
    if (!home->watched)
        return;
    atomic_store_explicit(&home->closing, true, memory_order_seq_cst);
    hd_doorbell_wake(&home->doorbell);
    pthread_join(home->thread, NULL);
    hd_group_remove_doorbell(home->group, &home->doorbell);
}
