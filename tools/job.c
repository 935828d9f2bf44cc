// Runs a program in one process a rank.
#include <heddle/launch.h>
#include <heddle/simulate.h>
#include <heddle/verify.h>

#include <heddle/async.h>

#include "job.h"

#include "program.h"
#include "random.h"
#include "ranks.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static bool is_input(const slot *slot)
{
    return slot->about.role != HD_ROLE_OUT &&
           slot->about.dtype != HD_DTYPE_EVENT;
}

bool slot_is_output(const slot *slot)
{
    return slot->about.role != HD_ROLE_IN &&
           slot->about.dtype != HD_DTYPE_EVENT;
}

static size_t whole_bytes(const slot *slot)
{
    return slot->about.elements * hd_dtype_size(slot->about.dtype);
}

void *job_local(const job *job, size_t i, int rank)
{
    return job->slot[i].local + job->slot[i].stride * (size_t)rank;
}

static void *shared_pages(size_t count, size_t bytes)
{
    void *memory = memory_pages(count * bytes, true);

    if (!memory)
        out_of_memory();
    return memory;
}

// Pages that are promised and not there end a process without a word, so what
// is clearly too much is refused before it is asked for. In floating point:
// the product may be beyond 64 bits.
static outcome check_memory(const job *job)
{
    const double gib = 1 << 30;
    double have = memory_there();
    double total = 0;

    for (size_t i = 0; i < job->nslots; i++) {
        const slot *slot = &job->slot[i];

        total += (double)slot->about.local_bytes * job->ranks;
        if (is_input(slot) && !slot->given)
            total += (double)whole_bytes(slot);
    }
    if (total <= have)
        return FINE;
    return complain(FAILED,
                    "the arguments of all ranks take %.1f GiB, and this "
                    "machine has %.1f GiB",
                    total / gib, have / gib);
}

static bool is_on_cpu(const job *job)
{
    return strcmp(job->session.device, "cpu") == 0;
}

static outcome open_slot(job *job, slot *slot)
{
    enum { ALIGN = 4096 };

    if (slot->about.dtype == HD_DTYPE_EVENT && !is_on_cpu(job))
        return complain(FAILED,
                        "%%%s is an event, and this command makes events on "
                        "the cpu alone",
                        slot->about.name);
    slot->stride = (slot->about.local_bytes + ALIGN - 1) / ALIGN * ALIGN;
    slot->local = memory_pages(slot->stride * (size_t)job->ranks, true);
    if (!slot->local)
        return complain(FAILED,
                        "no memory for the %zu bytes of %%%s on each "
                        "of %d ranks",
                        slot->about.local_bytes, slot->about.name, job->ranks);
    return FINE;
}

static outcome open_times(job *job)
{
    int64_t *n = need((size_t)job->ranks, sizeof *n);
    hd_status status = hd_module_step_counts(job->module, job->diag, n);

    job->first_step = need((size_t)job->ranks + 1, sizeof *job->first_step);
    for (int rank = 0; rank < job->ranks && status == HD_OK; rank++)
        job->first_step[rank + 1] = job->first_step[rank] + (size_t)n[rank];
    free(n);
    TRY(tell(job->diag, status, info_of(job->module).name));
    job->times =
        shared_pages(job->first_step[job->ranks] + 1, 2 * sizeof *job->times);
    return FINE;
}

outcome job_open(job *job)
{
    size_t ranks;

    job->ranks = info_of(job->module).ranks;
    ranks = (size_t)job->ranks;
    TRY(check_memory(job));
    for (size_t i = 0; i < job->nslots; i++)
        TRY(open_slot(job, &job->slot[i]));
    job->report = shared_pages(ranks, sizeof *job->report);
    job->verdict = shared_pages(ranks * job->nslots, sizeof *job->verdict);
    job->nanoseconds =
        shared_pages((size_t)job->iters, sizeof *job->nanoseconds);
    job->told = shared_pages(1, sizeof *job->told);
    return job->timeline ? open_times(job) : FINE;
}

void job_close(job *job)
{
    size_t ranks = (size_t)job->ranks;

    for (int set = 0; set < MOST_SETS; set++)
        hd_reference_destroy(job->reference[set]);
    for (int set = 0; set < MOST_SETS; set++)
        hd_reference_destroy(job->rounding[set]);
    for (size_t i = 0; i < job->nslots; i++) {
        slot *slot = &job->slot[i];

        for (int set = 0; set < (slot->given ? 1 : MOST_SETS); set++)
            memory_free(slot->whole[set].memory, slot->whole[set].bytes);
        array_close(&slot->file);
        memory_free(slot->local, slot->stride * ranks);
    }
    memory_free(job->report, ranks * sizeof *job->report);
    memory_free(job->verdict, ranks * job->nslots * sizeof *job->verdict);
    memory_free(job->nanoseconds,
                (size_t)job->iters * sizeof *job->nanoseconds);
    memory_free(job->told, sizeof *job->told);
    if (job->times)
        memory_free(job->times,
                    (job->first_step[job->ranks] + 1) * 2 * sizeof *job->times);
    free(job->first_step);
    free(job->slot);
}

// As many elements as the argument has now, in memory for those of `slot`.
static outcome draw(const slot *slot, const hd_argument *now, uint64_t seed,
                    whole *out)
{
    size_t bytes = whole_bytes(slot);
    void *memory = memory_pages(bytes, false);

    if (!memory)
        return complain(FAILED, "no memory for the %zu bytes of %%%s", bytes,
                        slot->about.name);
    random_input(now, seed, memory);
    *out = (whole){memory, memory, bytes};
    return FINE;
}

static outcome draw_set(job *job, int set)
{
    hd_argument now = HD_EMPTY(hd_argument);

    TRY(tell(job->diag, sizes_set(job->sizes, job->module, set, job->diag),
             job->path));
    for (size_t i = 0; hd_module_argument(job->module, i, &now); i++) {
        slot *slot = &job->slot[i];

        if (slot->given)
            slot->whole[set] = slot->whole[0];
        else if (is_input(slot))
            // Arguments are far apart, so that seeds may follow each other.
            TRY(draw(slot, &now,
                     job->seed + (uint64_t)set + ((uint64_t)i << 40),
                     &slot->whole[set]));
    }
    return FINE;
}

outcome job_draw(job *job)
{
    for (int set = 0; set < job->nsets; set++)
        TRY(draw_set(job, set));
    return FINE;
}

// The inputs of a set, by argument; to be freed.
static const void **list_inputs(const job *job, int set)
{
    const void **whole = need(job->nslots, sizeof *whole);

    for (size_t i = 0; i < job->nslots; i++)
        whole[i] = job->slot[i].whole[set].data;
    return whole;
}

// Both programs as run `run` has them: of the same sizes.
static hd_status take_sizes(const job *job, int64_t run)
{
    hd_status status = sizes_set(job->sizes, job->module, run, job->diag);

    if (status == HD_OK && job->expected)
        status = sizes_set(job->sizes, job->expected, run, job->diag);
    return status;
}

static hd_status make_reference(job *job, int set)
{
    const void **whole = list_inputs(job, set);
    hd_status status = take_sizes(job, set);

    if (status == HD_OK)
        status = hd_reference_create(job->expected, whole, job->diag,
                                     &job->reference[set]);

    free(whole);
    return status;
}

outcome job_expect(job *job)
{
    outcome result = FINE;

    for (int set = 0; job->expected && set < job->nsets && result == FINE;
         set++) {
        progress("%s: computing answer %d of %d", program_name(job->path),
                 set + 1, job->nsets);
        result = tell(job->diag, make_reference(job, set), job->path);
    }
    progress_end();
    return result;
}

// ------------------------------------------------------------- in a rank

typedef struct rank {
    job *job;
    int rank;
    hd_group *group;     // borrowed
    hd_session *session; // owned
    void **argument;     // owned: what hd_session_run takes
    bool apart;          // they lie in a device's memory
    double shown;        // when it was said last which run it is
} rank;

// Between this rank's shard of argument `i` here and on the device.
static hd_status copy_argument(const rank *rank, size_t i, bool to_device)
{
    const job *job = rank->job;
    void *local = job_local(job, i, rank->rank);

    if (!rank->apart || job->slot[i].about.dtype == HD_DTYPE_EVENT)
        return HD_OK;
    return hd_session_copy(rank->session, to_device ? rank->argument[i] : local,
                           to_device ? local : rank->argument[i],
                           job->slot[i].about.local_bytes, job->diag);
}

// Sets every input, and fills every output with NaNs: what a run does not
// write shows.
static hd_status set_arguments(const rank *rank, int64_t run)
{
    const job *job = rank->job;
    hd_status status = HD_OK;

    for (size_t i = 0; i < job->nslots && status == HD_OK; i++) {
        const slot *slot = &job->slot[i];
        void *local = job_local(job, i, rank->rank);

        if (is_input(slot))
            hd_shard(job->module, i, rank->rank,
                     slot->whole[run % job->nsets].data, local);
        else if (slot->about.dtype != HD_DTYPE_EVENT)
            memset(local, 0xff, slot->about.local_bytes);
        else if (slot->about.role != HD_ROLE_OUT)
            hd_event_record(rank->argument[i]);
        status = copy_argument(rank, i, true);
    }
    return status;
}

// The launcher reads after all ranks have ended, so the maximum needs no order.
static void keep_longest(_Atomic uint64_t *longest, uint64_t time)
{
    uint64_t before = atomic_load_explicit(longest, memory_order_relaxed);

    while (before < time && !atomic_compare_exchange_weak_explicit(
                                longest, &before, time, memory_order_relaxed,
                                memory_order_relaxed))
        ;
}

static hd_status check_answer(const rank *rank, int64_t run, size_t i)
{
    job *job = rank->job;
    int set = (int)(run % job->nsets);
    const void **whole = list_inputs(job, set);
    standard standard = {
        .module = job->module,
        .reference = job->reference[set],
        .whole = whole,
        .own = job->module == job->expected ? NULL : &job->rounding[set]};
    hd_status status = verdict_add(
        &job->verdict[(size_t)rank->rank * job->nslots + i], &standard, i,
        rank->rank, run + 1, job_local(job, i, rank->rank), job->diag);

    free(whole);
    return status;
}

static hd_status check_answers(const rank *rank, int64_t run)
{
    const job *job = rank->job;
    bool verifies = job->reference[run % job->nsets] != NULL;
    hd_status status = HD_OK;

    for (size_t i = 0; i < job->nslots && status == HD_OK; i++) {
        // The launcher wants what the last run left.
        if (!slot_is_output(&job->slot[i]) ||
            (!verifies && run + 1 < job->iters))
            continue;
        if (copy_argument(rank, i, false) != HD_OK)
            return HD_ERROR_SYSTEM;
        if (verifies)
            status = check_answer(rank, run, i);
    }
    return status;
}

static hd_status run_once(const rank *rank, int64_t run)
{
    job *job = rank->job;
    hd_status status = take_sizes(job, run);
    size_t nsizes = info_of(job->module).nsizes;
    int64_t *size = need(nsizes, sizeof *size);
    hd_run_options with = HD_EMPTY(hd_run_options);
    double start;

    with.sizes = size;
    with.nsizes = nsizes;
    sizes_of_run(job->sizes, job->module, run, size);
    if (status == HD_OK)
        status = set_arguments(rank, run);

    if (status == HD_OK && job->timed) // so that a time is the program's alone
        status =
            hd_group_allgather(rank->group, NULL, 0, NULL, rank->job->diag);
    start = seconds();
    if (status == HD_OK)
        status = hd_session_run(rank->session, rank->argument, job->nslots,
                                &with, rank->job->diag);
    free(size);
    if (status == HD_OK)
        status = hd_session_finish(rank->session, rank->job->diag);
    if (status != HD_OK)
        return status;
    keep_longest(&job->nanoseconds[run], (uint64_t)((seconds() - start) * 1e9));
    return check_answers(rank, run);
}

static hd_status open_arguments(rank *rank)
{
    const job *job = rank->job;
    hd_status status = HD_OK;

    rank->apart = !is_on_cpu(job);
    for (size_t i = 0; i < job->nslots && status == HD_OK; i++) {
        const hd_argument *about = &job->slot[i].about;

        if (about->dtype == HD_DTYPE_EVENT) {
            if (!(rank->argument[i] = hd_event_create()))
                out_of_memory();
        } else if (rank->apart) {
            status = hd_session_alloc(rank->session, about->local_bytes,
                                      job->diag, &rank->argument[i]);
        } else {
            rank->argument[i] = job_local(job, i, rank->rank);
        }
    }
    return status;
}

// Memory belongs to the session, which in turn may use events until it ends.
static void close_rank(rank *rank)
{
    const job *job = rank->job;

    for (size_t i = 0; i < job->nslots && rank->apart; i++)
        if (job->slot[i].about.dtype != HD_DTYPE_EVENT)
            hd_session_free(rank->session, rank->argument[i]);
    hd_session_destroy(rank->session);
    for (size_t i = 0; i < job->nslots; i++)
        if (job->slot[i].about.dtype == HD_DTYPE_EVENT)
            hd_event_destroy(rank->argument[i]);
    free(rank->argument);
}

// Now and then: runs may be many, and short.
static void show_progress(rank *rank, int64_t run)
{
    const job *job = rank->job;
    double now = seconds();

    if (rank->rank != 0 || job->iters == 1 || now - rank->shown < 0.1)
        return;
    rank->shown = now;
    progress("%s: run %" PRId64 " of %" PRId64, program_name(job->path),
             run + 1, job->iters);
}

// What it warns of is told by the first rank, for all.
static hd_status create_session(rank *rank, const hd_session_options *options)
{
    const job *job = rank->job;
    size_t before = strlen(hd_diag_text(job->diag));
    hd_status status = hd_session_create(rank->group, job->module, options,
                                         job->diag, &rank->session);

    if (status == HD_OK && rank->rank == 0)
        fputs(hd_diag_text(job->diag) + before, stderr);
    return status;
}

static hd_status run_all(rank *rank)
{
    job *job = rank->job;
    report *report = &job->report[rank->rank];
    hd_session_options options = job->session;
    hd_status status;

    if (job->timeline)
        options.times = job->times + 2 * job->first_step[rank->rank];
    status = create_session(rank, &options);
    if (status == HD_OK && job->judged)
        status = program_judge(rank->session, job->module, job->diag);
    if (status == HD_OK)
        status = open_arguments(rank);
    report->first = report->last = HD_EMPTY(hd_stats);
    for (int64_t run = 0; run < job->iters && status == HD_OK; run++) {
        show_progress(rank, run);
        status = run_once(rank, run);
        if (run == 0)
            hd_session_stats(rank->session, &report->first);
    }
    if (rank->rank == 0)
        progress_end();
    if (!rank->session)
        return status;
    hd_session_stats(rank->session, &report->last);
    if (report->last.matmul)
        snprintf(report->matmul, sizeof report->matmul, "%s",
                 report->last.matmul);
    if (report->last.attention)
        snprintf(report->attention, sizeof report->attention, "%s",
                 report->last.attention);
    if (report->last.transport)
        snprintf(report->transport, sizeof report->transport, "%s",
                 report->last.transport);
    return status;
}

// hd_launch says why once all ranks have ended, and to give a busy GPU's memory
// back may take seconds. So the first rank that is told of another's end says
// so before.
static void say_at_once(const rank *rank, hd_status status)
{
    const job *job = rank->job;

    if (status == HD_ERROR_PEER && rank->apart && !job->place &&
        !atomic_exchange_explicit(job->told, true, memory_order_relaxed))
        fputs(hd_diag_text(job->diag), stderr);
}

static hd_status run_rank(void *context, hd_group *group)
{
    rank rank = {.job = context, .group = group, .rank = hd_group_rank(group)};
    hd_status status;

    hd_group_set_timeout(group, rank.job->session.timeout);
    rank.argument = need(rank.job->nslots, sizeof *rank.argument);
    status = run_all(&rank);
    say_at_once(&rank, status);
    close_rank(&rank);
    return status;
}

// ---------------------------------------------------------- the launcher

outcome job_launch(job *job)
{
    hd_status status;

    if (job->place)
        return ranks_join(job, run_rank);
    TRY(job_expect(job));
    fflush(stdout); // ranks must not have it to print again
    status = hd_launch(job->ranks, job->session.timeout, 0, run_rank, job,
                       job->diag);
    progress_end(); // what a rank was at that has been killed
    return tell(job->diag, status, "the run failed");
}
