// See gauge.h.
#include <heddle/launch.h>
#include <heddle/verify.h>

#include "gauge.h"

#include "file.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW, MANY, BOTH, MOST_ARGUMENTS = 5 };

#define DO(call)                     \
    do {                             \
        hd_status do_status_ = call; \
        if (do_status_ != HD_OK)     \
            return do_status_;       \
    } while (0)

// A program in this rank.
typedef struct entry {
    hd_module *module;              // owned
    hd_session *session;            // owned
    void *argument[MOST_ARGUMENTS]; // owned, the session's
    size_t n;
} entry;

typedef struct rank {
    const gauge *gauge;
    hd_group *group; // borrowed
    int rank;
    const probe *probe;
    reading *reading;
    double until; // s: by when it is to be done
    entry entry[BOTH];
    int ahead[BOTH]; // runs without a pause before the one that is timed
} rank;

// ------------------------------------------------------------------ programs

// Memory is drawn once and repeated: a product of it takes as long, and a GPU
// needs as much power for it, as for any numbers, which zeros need less of.
static hd_status fill(const rank *rank, const entry *entry, size_t i)
{
    enum { DRAWN = 1 << 16 };
    hd_argument about = HD_EMPTY(hd_argument);
    size_t room, done = 0;
    unsigned char *drawn = need(DRAWN, sizeof(double));
    hd_status status = HD_OK;

    (void)hd_module_argument(entry->module, i, &about);
    random_fill(about.dtype, i + 1, DRAWN, drawn);
    room = DRAWN * hd_dtype_size(about.dtype);
    for (; done < about.local_bytes && status == HD_OK; done += room) {
        size_t left = about.local_bytes - done;

        status = hd_session_copy(
            entry->session, (unsigned char *)entry->argument[i] + done, drawn,
            left < room ? left : room, rank->gauge->diag);
    }
    free(drawn);
    return status;
}

static hd_status open_entry(const rank *rank, int level, int which,
                            entry *entry)
{
    const gauge *gauge = rank->gauge;
    hd_program_info info = HD_EMPTY(hd_program_info);

    DO(probe_module(rank->probe, gauge->ranks, level, which == MANY,
                    gauge->diag, &entry->module));
    DO(hd_session_create(rank->group, entry->module, &gauge->session,
                         gauge->diag, &entry->session));
    hd_module_info(entry->module, &info);
    for (; entry->n < info.narguments; entry->n++) {
        hd_argument about = HD_EMPTY(hd_argument);

        (void)hd_module_argument(entry->module, entry->n, &about);
        DO(hd_session_alloc(entry->session, about.local_bytes, gauge->diag,
                            &entry->argument[entry->n]));
        if (about.role != HD_ROLE_OUT)
            DO(fill(rank, entry, entry->n));
    }
    return HD_OK;
}

static void close_entries(rank *rank)
{
    for (int k = 0; k < BOTH; k++) {
        entry *entry = &rank->entry[k];

        for (size_t i = 0; i < entry->n; i++)
            hd_session_free(entry->session, entry->argument[i]);
        hd_session_destroy(entry->session);
        hd_module_destroy(entry->module);
        *entry = (struct entry){0};
    }
}

// --------------------------------------------------------------------- times

// What a rank tells the others of a run of each program.
typedef struct told {
    double time[BOTH];
    double wall; // s: that the longer one took by the host's clock
    bool last;   // of rank 0: whether to go on
} told;

static hd_status gather(const rank *rank, const told *mine, told *slowest)
{
    int n = rank->gauge->ranks;
    told *all = need((size_t)n, sizeof *all);
    hd_status status = hd_group_allgather(rank->group, mine, sizeof *mine, all,
                                          rank->gauge->diag);

    *slowest = all[0];
    for (int r = 0; r < n && status == HD_OK; r++) {
        for (int k = 0; k < BOTH; k++)
            slowest->time[k] = fmax(slowest->time[k], all[r].time[k]);
        slowest->wall = fmax(slowest->wall, all[r].wall);
    }
    free(all);
    return status;
}

static hd_status run(const rank *rank, int which, told *out)
{
    const gauge *gauge = rank->gauge;
    const entry *entry = &rank->entry[which];
    hd_stats stats = HD_EMPTY(hd_stats);
    double begin, host, *time = &out->time[which];

    DO(hd_group_allgather(rank->group, NULL, 0, NULL, gauge->diag));
    for (int i = 0; i < rank->ahead[which]; i++)
        DO(hd_session_run(entry->session, entry->argument, entry->n, NULL,
                          gauge->diag));
    begin = seconds();
    DO(hd_session_run(entry->session, entry->argument, entry->n, NULL,
                      gauge->diag));
    host = seconds() - begin;
    DO(hd_session_finish(entry->session, gauge->diag));
    *time = seconds() - begin;
    out->wall = fmax(out->wall, *time);
    hd_session_stats(entry->session, &stats);
    if (gauge->cuda && stats.seconds > 0)
        *time = stats.seconds;
    if (rank->probe->by_host)
        *time = host;
    return HD_OK;
}

static hd_status take_pair(const rank *rank, told *slowest)
{
    told mine = {0};

    DO(run(rank, FEW, &mine));
    DO(run(rank, MANY, &mine));
    mine.last = seconds() > rank->until;
    return gather(rank, &mine, slowest);
}

// As many as take 200 ms: an H200 needs 80 to go down to the clock that it can
// hold at the limit of its power. The same on all ranks.
static void plan_ahead(rank *rank, const told *took)
{
    enum { MOST_AHEAD = 256 };

    for (int k = 0; k < BOTH; k++) {
        double n = took->time[k] > 0 ? 0.2 / took->time[k] : 0;

        rank->ahead[k] = rank->gauge->cuda && rank->probe->hot
                             ? (int)fmin(n, MOST_AHEAD)
                             : 0;
    }
}

static hd_status take_readings(const rank *rank)
{
    reading *reading = rank->reading;
    told told = {0};

    for (int n = 0; n < MOST_READINGS; n++) {
        DO(take_pair(rank, &told));
        if (rank->rank == 0) {
            reading->more[n] = told.time[MANY] - told.time[FEW];
            reading->n = n + 1;
        }
        if (told.last && n + 1 >= FEWEST_READINGS)
            break;
    }
    return HD_OK;
}

// -------------------------------------------------------------------- levels

static hd_status open_level(rank *rank, int level, double *took)
{
    told told = {0};

    plan_ahead(rank, &told);
    for (int k = 0; k < BOTH; k++)
        DO(open_entry(rank, level, k, &rank->entry[k]));
    DO(take_pair(rank, &told)); // on which libraries are loaded
    DO(take_pair(rank, &told));
    *took = told.wall;
    plan_ahead(rank, &told);
    return HD_OK;
}

// As many as surely take no longer than the longest: what there is of a run
// that does not grow makes it look longer than it is, hence more than once.
static int climb(const probe *probe, int level, double took)
{
    if (probe->growth > 1 && !(took <= 0))
        while (level < probe->levels - 1 &&
               took * probe->growth <= probe->longest) {
            took *= probe->growth;
            level++;
        }
    return level;
}

static hd_status measure(rank *rank)
{
    int level = 0, next;
    double took = 0;

    for (;;) {
        DO(open_level(rank, level, &took));
        next = climb(rank->probe, level, took);
        if (next == level)
            break;
        close_entries(rank);
        level = next;
    }
    rank->reading->level = level; // the same on all ranks
    return take_readings(rank);
}

// A program that a device does not do is no failure.
static hd_status measure_probe(rank *rank)
{
    hd_diag *diag = rank->gauge->diag;
    hd_message message = HD_EMPTY(hd_message);
    hd_status status = measure(rank);

    close_entries(rank);
    if (status != HD_ERROR_UNSUPPORTED && status != HD_ERROR_INVALID)
        return status;
    if (hd_diag_message(diag, 0, &message))
        snprintf(rank->reading->why, sizeof rank->reading->why, "%s",
                 message.text);
    hd_diag_clear(diag);
    return HD_OK;
}

// ----------------------------------------------------------------- all ranks

// What is left is shared by the probes that are left; none needs seconds.
static hd_status begin(rank *rank, int i, bool *late)
{
    const gauge *gauge = rank->gauge;
    double now = seconds(), left = gauge->start + gauge->limit - now;
    double share = fmin(left / (gauge->n - i), 1.5);
    told told = {.last = left <= 0};

    DO(gather(rank, &told, &told));
    rank->probe = gauge->probe[i];
    rank->reading = &gauge->reading[i];
    rank->until = now + share;
    *late = told.last;
    return HD_OK;
}

static hd_status run_rank(void *context, hd_group *group)
{
    const gauge *gauge = context;
    rank rank = {.gauge = gauge, .group = group, .rank = hd_group_rank(group)};
    hd_status status = HD_OK;

    for (int i = 0; i < gauge->n && status == HD_OK; i++) {
        bool late = false;

        status = begin(&rank, i, &late);
        if (rank.rank == 0) {
            progress("measuring %s", gauge->probe[i]->term);
            rank.reading->late = late;
        }
        if (status == HD_OK && !late)
            status = measure_probe(&rank);
    }
    if (rank.rank == 0)
        progress_end();
    return status;
}

outcome gauge_all(gauge *gauge)
{
    hd_status status;

    gauge->reading =
        memory_pages((size_t)gauge->n * sizeof *gauge->reading, true);
    if (!gauge->reading)
        return complain(FAILED, "no memory for what is measured");
    fflush(stdout); // ranks must not have it to print again
    // Nothing here takes long, so what does is stuck.
    status = hd_launch(gauge->ranks, gauge->session.timeout,
                       gauge->limit + 2 * gauge->session.timeout, run_rank,
                       gauge, gauge->diag);
    return tell(gauge->diag, status, "calibrating failed");
}

void gauge_close(gauge *gauge)
{
    if (gauge->reading)
        memory_free(gauge->reading, (size_t)gauge->n * sizeof *gauge->reading);
}
