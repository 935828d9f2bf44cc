// Streams of the cpu driver: lists of entries, which threads of the group
// follow run after run, those of one session among those of others.
//
// A thread that must wait looks a few times, lets others run, and then sleeps:
// there are many more threads than cores. Every wait for a peer ends at the
// deadline, when the group fails, or when that peer has left.
#include <sched.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/cpu/cpu.h"
#include "runtime/packing.h"

#define LOOKS 16           // before a thread sleeps
#define EVENT_NAP 20000000 // ns: who ends us rings no other doorbell
#define LONG_NAP ((int64_t)3600 * 1000000000)

static bool is_over(const hd_device *device)
{
    return hd_failure_is_set(&device->failure) ||
           atomic_load_explicit(&device->closing, memory_order_seq_cst);
}

static void fail_with_group(hd_device *device)
{
    char text[HD_GROUP_TEXT];
    hd_status status = hd_group_failure(device->binding.group, text);

    hd_cpu_fail(device, status, text, "");
}

// ------------------------------------------------------------- waits

// No step of a group that is aborted begins any more, and its failure may be
// told a moment later.
static bool is_ended(hd_device *device)
{
    if (hd_group_is_aborted(device->binding.group) &&
        hd_group_failed(device->binding.group))
        fail_with_group(device);
    return is_over(device);
}

// Whether the wait must end without what it waits for. Reports why.
static bool must_end(hd_cpu_wait *wait, bool left, int64_t deadline)
{
    hd_device *device = wait->stream->device;

    if (is_over(device))
        return true;
    if (hd_group_failed(device->binding.group)) {
        fail_with_group(device);
        return true;
    }
    if (left) {
        hd_cpu_fail_left(wait);
        return true;
    }
    if (wait->timed && hd_clock() >= deadline) {
        hd_cpu_fail_late(wait);
        return true;
    }
    return false;
}

static void mark_wait(const hd_cpu_wait *wait)
{
    const hd_step *step = wait->entry != NULL ? wait->entry->step : NULL;

    hd_cpu_set_mark(wait->stream,
                    wait->entry == NULL ? HD_CPU_IDLE
                    : wait->peer >= 0   ? HD_CPU_WAITING
                                        : HD_CPU_LOCAL,
                    step, wait->peer);
}

static bool sleep_until_ready(hd_cpu_wait *wait)
{
    const hd_device *device = wait->stream->device;
    bool ours = wait->doorbell == &device->header->doorbell;
    int64_t deadline = hd_clock_after(device->binding.timeout);

    for (;;) {
        uint32_t seen = hd_doorbell_arm(wait->doorbell);
        // Asked before looking: what a peer signals, it signals before it
        // leaves.
        int asked = wait->peer;
        bool left = asked >= 0 && hd_group_left(device->binding.group, asked);
        bool ready = wait->ready(wait);
        // Of a peer that the look itself turned to, nothing was asked: look
        // again before sleeping, since it may have left before we armed.
        bool same = wait->peer == asked;
        bool end = !ready && must_end(wait, left && same, deadline);

        if (!ready && !end && same) {
            int64_t nap = wait->timed ? deadline - hd_clock() : LONG_NAP;

            mark_wait(wait);
            hd_doorbell_sleep(wait->doorbell, seen,
                              !ours && nap > EVENT_NAP ? EVENT_NAP : nap);
        }
        hd_doorbell_disarm(wait->doorbell);
        if (ready || end)
            return ready;
    }
}

// False if the device has failed or closes.
static bool await(hd_cpu_wait *wait)
{
    for (int i = 0; i < LOOKS; i++) {
        if (wait->ready(wait))
            return true;
        if (i >= LOOKS / 2)
            sched_yield();
    }
    return sleep_until_ready(wait);
}

static bool is_recorded(hd_cpu_wait *wait)
{
    const hd_device *device = wait->stream->device;

    return atomic_load_explicit(&device->recorded[wait->entry->target],
                                memory_order_seq_cst) >= wait->run;
}

static bool stream_is_there(hd_cpu_wait *wait)
{
    const hd_cpu_stream *other =
        &wait->stream->device->stream[wait->entry->target];

    return atomic_load_explicit(&other->finished, memory_order_seq_cst) >=
           (wait->run - 1) * other->nentries + wait->entry->position;
}

static bool caller_is_there(hd_cpu_wait *wait)
{
    const hd_cpu_run *run = hd_cpu_run_of(wait->stream->device, wait->run);
    int64_t i = wait->entry->target;

    return hd_event_has_reached(run->argument[i], run->event[i]);
}

static bool parts_are_over(hd_cpu_wait *wait)
{
    return hd_cpu_move_parts(wait->stream->device, wait->entry->transfer,
                             wait->run, &wait->peer);
}

// ----------------------------------------------------------- entries

// Notes that an entry starts (which 0) or ends (1); members of a group do so
// together, but for sends that their stream does not wait for.
static void note_time(const hd_device *device, const hd_cpu_entry *entry,
                      int which)
{
    const hd_binding *binding = &device->binding;
    const hd_step *step = entry->step;
    double now;

    if (binding->times == NULL || step == NULL)
        return;
    now = (double)hd_clock() * 1e-9;
    binding->times[2 * step->index + which] = now;
    if (entry->kind != HD_CPU_TRANSFER || step->group == 0)
        return;
    for (int64_t i = step->index + 1;
         i < binding->steps->nsteps &&
         binding->steps->step[i].group == step->group;
         i++)
        if (hd_op_key(binding->steps->step[i].op, HD_KEY_DONE) == NULL)
            binding->times[2 * i + which] = now;
}

static void reach_record(hd_device *device, const hd_cpu_entry *entry,
                         uint64_t n)
{
    const hd_cpu_run *run = hd_cpu_run_of(device, n);

    atomic_store_explicit(&device->recorded[entry->step->index], n,
                          memory_order_seq_cst);
    hd_doorbell_ring(&device->header->doorbell);
    if (entry->target >= 0)
        hd_event_reach(run->argument[entry->target],
                       run->reaches[entry->target] + (uint64_t)entry->event);
}

void hd_cpu_note_miscount(hd_device *device, const hd_step *step,
                          const hd_miscount *miscount)
{
    char text[HD_GROUP_TEXT] = "";

    hd_miscount_print(device->binding.module, device->rank, step, miscount,
                      text);
    hd_failure_set(&device->miscount, HD_ERROR_ARGUMENT, text, "");
}

static void compute(hd_cpu_stream *stream, const hd_step *planned, uint64_t n)
{
    const hd_cpu_run *run = hd_cpu_run_of(stream->device, n);
    const hd_step *step = hd_cpu_step_of(run, planned);
    void *base[HD_MAX_VIEWS];

    for (int i = 0; i < step->op->nviews; i++)
        base[i] = run->base[step->span[i].buffer->id];
    hd_cpu_compute(&stream->scratch, step, base);
    if (!stream->scratch.miscount.found)
        return;
    hd_cpu_note_miscount(stream->device, step, &stream->scratch.miscount);
    stream->scratch.miscount.found = false;
}

// A function of the caller's that fails fails the device.
static bool call_function(hd_cpu_stream *stream, const hd_cpu_entry *entry,
                          uint64_t n)
{
    hd_device *device = stream->device;
    const hd_cpu_run *run = hd_cpu_run_of(device, n);
    const hd_step *step = hd_cpu_step_of(run, entry->step);
    void *address[HD_MAX_VIEWS];
    char text[HD_GROUP_TEXT];
    hd_status status;

    for (int i = 0; i < step->op->nviews; i++) {
        const hd_span *span = &step->span[i];

        address[i] =
            (char *)run->base[span->buffer->id] +
            (size_t)span->offset * hd_dtype_size(span->buffer->type.dtype);
    }
    status = hd_callee_call(&device->binding.calls->callee[entry->target],
                            device->binding.module, step,
                            (hd_call_place){.device = "cpu"}, address, text);
    if (status != HD_OK)
        hd_cpu_fail(device, status, text, "");
    return status == HD_OK;
}

// To or from where the caller has an argument.
static void copy_argument(hd_device *device, const hd_cpu_run *run,
                          const hd_root *buffer, bool in)
{
    int i = buffer->argument;
    void *theirs = run->argument[i];
    void *ours = run->base[buffer - device->buffer];
    hd_packing rows;

    if (!run->packed[i]) {
        hd_buffer_copy(run->module, buffer->buffer, device->rank,
                       in ? theirs : ours, in ? ours : theirs);
        return;
    }
    rows = hd_packing_of(run->module, buffer->buffer, device->rank,
                         device->pack[i]->stride[run - device->run]);
    if (in)
        hd_packing_in(&rows, theirs, ours);
    else
        hd_packing_out(&rows, ours, theirs);
}

// Arguments that peers touch live in the window, unless they are fixed, and
// those that are not dense in memory of their own; the caller's is read when a
// run begins and written when it ends.
static void stage(hd_device *device, bool in, uint64_t n)
{
    const hd_cpu_run *run = hd_cpu_run_of(device, n);

    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];
        hd_role role = buffer->buffer->role;

        if (buffer->argument < 0 || buffer->fixed != NULL ||
            (!buffer->shared && !run->packed[buffer->argument]))
            continue;
        if (in ? role != HD_ROLE_OUT : role != HD_ROLE_IN)
            copy_argument(device, run, buffer, in);
    }
}

static bool hand_over(hd_device *device, hd_cpu_entry *entry, uint64_t n)
{
    atomic_store_explicit(&entry->transfer->asked, n, memory_order_seq_cst);
    hd_doorbell_ring(&device->header->doorbell);
    return true;
}

// What a run of this session reads, one of another may have been to write: if
// that failed, so did the group.
static bool begin_run(hd_device *device, uint64_t n)
{
    if (hd_group_failed(device->binding.group)) {
        fail_with_group(device);
        return false;
    }
    // Nothing of another run is left to be seen, where order is put to the
    // test.
    if (device->binding.chaos)
        hd_cpu_poison(device, 0, 0);
    stage(device, true, n);
    return true;
}

static void end_run(hd_device *device, uint64_t n)
{
    stage(device, false, n);
    atomic_store_explicit(&device->header->over, n, memory_order_relaxed);
}

// A join, and what records or waits for several events, has several entries.
static bool begins_step(const hd_cpu_stream *stream, const hd_cpu_entry *entry)
{
    return entry == stream->entry || entry->step == NULL ||
           entry[-1].step != entry->step ||
           !hd_op_is(entry->step->op, HD_UNIT_SYNC);
}

static bool follow(hd_cpu_stream *stream, hd_cpu_entry *entry, uint64_t n)
{
    hd_device *device = stream->device;
    hd_cpu_wait wait = {.stream = stream,
                        .entry = entry,
                        .run = n,
                        .doorbell = &device->header->doorbell,
                        .peer = -1};

    hd_cpu_set_mark(stream, HD_CPU_BUSY, entry->step, -1);
    if (begins_step(stream, entry))
        note_time(device, entry, 0);
    switch (entry->kind) {
    case HD_CPU_COMPUTE:
        compute(stream, entry->step, n);
        return true;
    case HD_CPU_CALL:
        return call_function(stream, entry, n);
    case HD_CPU_TRANSFER:
        hd_cpu_begin_parts(device, entry->transfer, n);
        wait.ready = parts_are_over;
        wait.timed = true;
        return await(&wait);
    case HD_CPU_DEFER:
        return hand_over(device, entry, n);
    case HD_CPU_RECORD:
        reach_record(device, entry, n);
        return true;
    case HD_CPU_WAIT:
        wait.ready = is_recorded;
        return await(&wait);
    case HD_CPU_WAIT_CALLER: {
        hd_event *event = hd_cpu_run_of(device, n)->argument[entry->target];

        wait.ready = caller_is_there;
        wait.doorbell = &event->doorbell;
        wait.timed = true;
        return await(&wait);
    }
    case HD_CPU_WAIT_STREAM:
        wait.ready = stream_is_there;
        return await(&wait);
    case HD_CPU_BEGIN:
        return begin_run(device, n);
    case HD_CPU_END:
        end_run(device, n);
        return true;
    }
    return false;
}

// What a profiler sees of the step. Where a run begins and ends there is none.
static bool follow_in_range(hd_cpu_stream *stream, hd_cpu_entry *entry,
                            uint64_t n)
{
    const hd_ranges *ranges =
        entry->step != NULL ? stream->device->binding.ranges : NULL;
    bool done;

    hd_ranges_step(ranges, entry->step);
    done = follow(stream, entry, n);
    hd_ranges_end(ranges);
    return done;
}

// -------------------------------------------------------------- jobs

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// A schedule that a busy machine might show, whatever this one does.
static void pause_at_random(hd_cpu_stream *stream)
{
    uint64_t x;

    if (!stream->device->binding.chaos)
        return;
    x = next_random(&stream->chaos);
    if (x % 64 == 0)
        usleep(2000);
    else if (x % 4 == 1)
        sched_yield();
    else if (x % 4 == 2)
        usleep((useconds_t)(x >> 32) % 200);
}

static bool follow_all(hd_cpu_stream *stream, uint64_t n)
{
    hd_device *device = stream->device;
    uint64_t finished = (n - 1) * stream->nentries;

    for (size_t i = 0; i < stream->nentries; i++) {
        if (is_ended(device))
            return false;
        pause_at_random(stream);
        if (!follow_in_range(stream, &stream->entry[i], n))
            return false;
        if (stream->entry[i].kind != HD_CPU_DEFER)
            note_time(device, &stream->entry[i], 1);
        atomic_store_explicit(&stream->finished, ++finished,
                              memory_order_seq_cst);
        if (stream->entry[i].watched)
            hd_doorbell_ring(&device->header->doorbell);
    }
    return true;
}

// Who fails a device tells the group a moment later. The thread that goes on
// with other sessions' runs must not be faster: they may read what this one was
// to write. A second telling changes nothing.
static void end_job(hd_cpu_stream *stream, bool done)
{
    hd_device *device = stream->device;

    if (done)
        hd_cpu_set_mark(stream, HD_CPU_IDLE, NULL, -1);
    else if (hd_failure_is_set(&device->failure))
        hd_group_fail(device->binding.group, device->failure.text);
}

static void follow_run(void *context, uint64_t n)
{
    hd_cpu_stream *stream = context;
    hd_device *device = stream->device;

    end_job(stream, follow_all(stream, n));
    hd_doorbell_ring(&device->host);
}

// ------------------------------------------------------------ helper

static bool is_asked_for(const hd_cpu_transfer *transfer, uint64_t n)
{
    return atomic_load_explicit(&transfer->sent, memory_order_relaxed) < n &&
           atomic_load_explicit(&transfer->asked, memory_order_seq_cst) >= n;
}

static bool is_asked(hd_cpu_wait *wait)
{
    const hd_device *device = wait->stream->device;

    for (size_t i = 0; i < device->ndeferred; i++)
        if (is_asked_for(device->deferred[i]->transfer, wait->run))
            return true;
    return false;
}

// True if it was made.
static bool try_send(hd_cpu_wait *wait, hd_cpu_entry *entry)
{
    hd_device *device = wait->stream->device;
    hd_cpu_transfer *transfer = entry->transfer;
    uint64_t n = wait->run;
    int peer = -1;

    if (transfer->begun < n)
        hd_cpu_begin_parts(device, transfer, n);
    transfer->begun = n;
    if (!hd_cpu_move_parts(device, transfer, n, &peer)) {
        if (wait->peer < 0) {
            wait->peer = peer;
            wait->entry = entry;
        }
        return false;
    }
    atomic_store_explicit(&transfer->sent, n, memory_order_seq_cst);
    note_time(device, entry, 1);
    reach_record(device, entry, n);
    hd_doorbell_ring(&device->host);
    return true;
}

static bool send_some(hd_cpu_wait *wait)
{
    hd_device *device = wait->stream->device;
    size_t unsent = device->unsent;

    wait->peer = -1;
    for (size_t i = 0; i < device->ndeferred; i++) {
        hd_cpu_entry *entry = device->deferred[i];

        if (is_asked_for(entry->transfer, wait->run))
            device->unsent -= try_send(wait, entry);
    }
    return device->unsent < unsent;
}

static bool send_all(hd_cpu_stream *helper, uint64_t n)
{
    hd_device *device = helper->device;

    device->unsent = device->ndeferred;
    while (device->unsent > 0) {
        hd_cpu_wait idle = {.ready = is_asked,
                            .stream = helper,
                            .run = n,
                            .doorbell = &device->header->doorbell,
                            .peer = -1};
        hd_cpu_wait busy = idle;

        busy.ready = send_some;
        busy.entry = device->deferred[0];
        busy.timed = true;
        hd_cpu_set_mark(helper, HD_CPU_IDLE, NULL, -1);
        if (is_over(device) || !await(&idle))
            return false;
        pause_at_random(helper);
        if (!await(&busy))
            return false;
    }
    return true;
}

// Makes the sends of a run that hold up no stream, whichever is ready, in the
// order in which they were issued.
static void make_sends(void *context, uint64_t n)
{
    hd_cpu_stream *helper = context;

    end_job(helper, send_all(helper, n));
}

// ----------------------------------------------------------- threads

static hd_workers *workers_of(const hd_device *device)
{
    return hd_group_workers(device->binding.group);
}

static hd_status start_stream(hd_device *device, hd_cpu_stream *stream,
                              void (*run)(void *, uint64_t), hd_diag *diag)
{
    stream->chaos = device->binding.seed * 0x2545f4914f6cdd1du +
                    (uint64_t)device->rank * 1000 + (uint64_t)stream->index;
    for (int i = 0; i < HD_CPU_RUNS; i++)
        stream->job[i] = (hd_job){.run = run, .owner = stream};
    return hd_workers_need(workers_of(device), stream->index, diag);
}

hd_status hd_cpu_start(hd_device *device, hd_diag *diag)
{
    for (int i = 0; i < device->nstreams; i++) {
        if (device->stream[i].nentries > 0)
            HD_TRY(start_stream(device, &device->stream[i], follow_run, diag));
    }
    if (device->ndeferred > 0)
        HD_TRY(start_stream(device, &device->helper, make_sends, diag));
    return HD_OK;
}

static void give_run(hd_cpu_stream *stream, uint64_t n)
{
    hd_job *job = &stream->job[n % HD_CPU_RUNS];

    job->n = n;
    hd_workers_give(workers_of(stream->device), stream->index, job);
}

void hd_cpu_issue_run(hd_device *device, uint64_t n)
{
    hd_workers *workers = workers_of(device);

    hd_workers_lock(workers);
    for (int i = 0; i < device->nstreams; i++) {
        if (device->stream[i].nentries > 0)
            give_run(&device->stream[i], n);
    }
    if (device->ndeferred > 0)
        give_run(&device->helper, n);
    hd_workers_unlock(workers);
}

void hd_cpu_stop(hd_device *device)
{
    hd_workers *workers = workers_of(device);

    atomic_store_explicit(&device->closing, true, memory_order_seq_cst);
    hd_cpu_wake(device);
    for (int i = 0; i < device->nstreams; i++)
        hd_workers_drop(workers, i, &device->stream[i]);
    hd_workers_drop(workers, HD_CPU_HELPER, &device->helper);
}

// -------------------------------------------------------------- host

static bool run_is_over(const hd_device *device, uint64_t n)
{
    for (int i = 0; i < device->nstreams; i++) {
        const hd_cpu_stream *stream = &device->stream[i];

        if (atomic_load_explicit(&stream->finished, memory_order_seq_cst) <
            n * stream->nentries)
            return false;
    }
    for (size_t i = 0; i < device->ndeferred; i++)
        if (atomic_load_explicit(&device->deferred[i]->transfer->sent,
                                 memory_order_seq_cst) < n)
            return false;
    return true;
}

bool hd_cpu_await_run(hd_device *device, uint64_t n, int64_t deadline)
{
    hd_doorbell *doorbell = &device->host;

    while (!run_is_over(device, n) && !is_over(device)) {
        int64_t left = deadline - hd_clock();
        uint32_t seen;

        if (left <= 0)
            return false;
        seen = hd_doorbell_arm(doorbell);
        if (!run_is_over(device, n) && !is_over(device))
            hd_doorbell_sleep(doorbell, seen,
                              left < LONG_NAP ? left : LONG_NAP);
        hd_doorbell_disarm(doorbell);
    }
    return true;
}
