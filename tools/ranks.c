// Joins the ranks of a launcher, and gathers what they bring forth.
#include <heddle/launch.h>

#include "ranks.h"

#include "program.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// Bytes of each rank in one round of a gathering, so that large arrays pass
// through a small buffer.
enum { ROUND = 1 << 20 };

typedef struct joined {
    job *job;
    hd_rank_fn *fn;
    hd_group *group; // borrowed
    double start;    // s
    outcome result;  // of what comes before the run, and was told
} joined;

void ranks_be_patient(hd_group *group, double timeout, double start)
{
    hd_group_set_timeout(group, timeout + 10 * (seconds() - start));
}

static void be_patient(const joined *joined)
{
    ranks_be_patient(joined->group, joined->job->session.timeout,
                     joined->start);
}

outcome ranks_find(hd_place *place, bool takes_input, const hd_place **mine,
                   FILE **to)
{
    bool found;
    hd_diag *diag = need_diag();
    outcome result;

    *place = HD_EMPTY(hd_place);
    result = tell(diag, hd_place_find(diag, &found, place), "run");

    hd_diag_destroy(diag);
    if (result != FINE || !found || place->nranks <= 1)
        return result;
    if (takes_input)
        return complain(USAGE,
                        "standard input does not reach all of the %d processes "
                        "that %s has started; name a file",
                        place->nranks, place->launcher);
    *mine = place;
    if (place->rank > 0 && !(*to = fopen("/dev/null", "we")))
        return complain(FAILED, "cannot open /dev/null");
    return FINE;
}

outcome ranks_check(const hd_place *place, const hd_module *module)
{
    int ranks = info_of(module).ranks;

    if (ranks == place->nranks)
        return FINE;
    return complain(USAGE,
                    "the mesh of %s has %d rank%s, and %s has started %d "
                    "processes; -D sets the size of an axis",
                    info_of(module).name, ranks, ranks == 1 ? "" : "s",
                    place->launcher, place->nranks);
}

// What each rank contributes: where it lies, here as there, and how much it is.
typedef struct share {
    unsigned char *at;
    size_t bytes;
} share;

// Every rank's share goes to its place on rank 0, and on the others too if they
// `keep` it. Shares may differ in size.
static hd_status gather(const joined *joined, const share *share, bool keep)
{
    const hd_place *place = joined->job->place;
    size_t size = (size_t)place->nranks, most = 0;
    unsigned char *mine, *all;
    hd_status status = HD_OK;

    for (size_t i = 0; i < size; i++)
        most = share[i].bytes > most ? share[i].bytes : most;
    mine = need(1, most < ROUND ? most : ROUND);
    all = need(size, most < ROUND ? most : ROUND);
    for (size_t done = 0; done < most && status == HD_OK; done += ROUND) {
        size_t round = most - done < ROUND ? most - done : ROUND;

        for (size_t i = 0; i < size; i++) {
            size_t part = share[i].bytes > done ? share[i].bytes - done : 0;

            if ((int)i == place->rank && part > 0)
                memcpy(mine, share[i].at + done, part < round ? part : round);
        }
        status = hd_group_allgather(joined->group, mine, round, all,
                                    joined->job->diag);
        for (size_t i = 0; i < size && status == HD_OK; i++) {
            size_t part = share[i].bytes > done ? share[i].bytes - done : 0;

            if ((keep || place->rank == 0) && part > 0)
                memcpy(share[i].at + done, all + i * round,
                       part < round ? part : round);
        }
    }
    free(mine);
    free(all);
    return status;
}

// Of an array with `bytes` for each rank, `stride` apart.
static hd_status gather_rows(const joined *joined, void *base, size_t stride,
                             size_t bytes, bool keep)
{
    size_t size = (size_t)joined->job->place->nranks;
    share *share = need(size, sizeof *share);
    hd_status status;

    for (size_t i = 0; i < size; i++) {
        share[i].at = (unsigned char *)base + i * stride;
        share[i].bytes = bytes;
    }
    status = gather(joined, share, keep);
    free(share);
    return status;
}

static hd_status gather_times(const joined *joined)
{
    const job *job = joined->job;
    size_t size = (size_t)job->place->nranks;
    share *share = need(size, sizeof *share);
    hd_status status;

    for (size_t i = 0; i < size; i++) {
        share[i].at = (unsigned char *)(job->times + 2 * job->first_step[i]);
        share[i].bytes = (job->first_step[i + 1] - job->first_step[i]) * 2 *
                         sizeof *job->times;
    }
    status = gather(joined, share, false);
    free(share);
    return status;
}

// A run took as long as its slowest rank.
static hd_status gather_longest(const joined *joined)
{
    const job *job = joined->job;
    size_t size = (size_t)job->place->nranks, n = (size_t)job->iters;
    uint64_t *all = need(size * n, sizeof *all);
    uint64_t *mine = all + (size_t)job->place->rank * n;
    hd_status status;

    for (size_t run = 0; run < n; run++)
        mine[run] =
            atomic_load_explicit(&job->nanoseconds[run], memory_order_relaxed);
    status = gather_rows(joined, all, n * sizeof *all, n * sizeof *all, false);
    for (size_t i = 0; i < size * n; i++) {
        uint64_t before = atomic_load_explicit(&job->nanoseconds[i % n],
                                               memory_order_relaxed);

        if (all[i] > before)
            atomic_store_explicit(&job->nanoseconds[i % n], all[i],
                                  memory_order_relaxed);
    }
    free(all);
    return status;
}

// Of an array that each rank holds whole, rank 0's is it.
static hd_status gather_outputs(const joined *joined)
{
    const job *job = joined->job;
    hd_status status = HD_OK;

    for (size_t i = 0; i < job->nslots && status == HD_OK; i++) {
        const slot *slot = &job->slot[i];

        if (slot->wanted && is_sharded(&slot->about))
            status = gather_rows(joined, slot->local, slot->stride,
                                 slot->about.local_bytes, false);
    }
    return status;
}

static hd_status gather_all(const joined *joined)
{
    const job *job = joined->job;
    size_t verdicts = job->nslots * sizeof *job->verdict;
    hd_status status =
        gather_rows(joined, job->verdict, verdicts, verdicts, true);

    if (status == HD_OK && job->timed)
        status = gather_rows(joined, job->report, sizeof *job->report,
                             sizeof *job->report, false);
    if (status == HD_OK && job->timed)
        status = gather_longest(joined);
    if (status == HD_OK && job->timeline)
        status = gather_times(joined);
    return status == HD_OK ? gather_outputs(joined) : status;
}

static hd_status run_and_gather(void *context, hd_group *group)
{
    joined *joined = context;
    job *job = joined->job;
    hd_status status = HD_OK;

    joined->group = group;
    joined->start = seconds();
    if (job->expected) {
        joined->result = job_expect(job);
        if (joined->result != FINE)
            return HD_ERROR_INVALID;
        be_patient(joined);
        status = hd_group_allgather(group, NULL, 0, NULL, job->diag);
    }
    if (status == HD_OK)
        status = joined->fn(job, group);
    be_patient(joined);
    return status == HD_OK ? gather_all(joined) : status;
}

outcome ranks_join(job *job, hd_rank_fn *fn)
{
    joined joined = {.job = job, .fn = fn};
    hd_status status = hd_join(job->place, job->session.timeout, run_and_gather,
                               &joined, job->diag);

    if (joined.result != FINE)
        return joined.result;
    return tell(job->diag, status, "the run failed");
}
