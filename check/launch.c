// A program is stuck for the sake of launches if some of them, on one rank
// each, are under way, and each waits for a step that takes the processors of
// the next one's rank and had no need to start before that one began:
//
//     rank 0   launch A waits for the recv of what rank 1's copy makes
//     rank 1   launch B has begun ahead of that copy, and waits for rank 0
//
// How far every rank has to have come before a launch begins, and before it
// ends, is found by executing nothing but what that needs. That says which
// launches may keep which from ending; a cycle of these is tried: executed as
// little as its launches need to begin, then with all of them under way, as far
// as it goes. What is stuck then is a deadlock that may happen, and is
// reported; and of any deadlock that may happen there is such a cycle, since
// all that is executed in trying it has happened there too.
#include "check/launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum {
    MOST_LAUNCHES = 1 << 13, // of all ranks
    MOST_VISITS = 1 << 17,   // of launches, while cycles are looked for
};

typedef struct launch {
    int rank, stream;
    int32_t first, last;             // its steps
    int32_t first_place, last_place; // theirs on its stream
} launch;

typedef struct search {
    const hd_graph *graph;
    unsigned serial;
    bool folded; // its rank stands for all
    bool loose;  // then: a send that its stream does not wait for takes some
    hd_diag *diag;
    launch *launch; // owned
    int64_t n, room;
    int32_t *before; // owned, by launch: how far streams of its rank, then
                     // transfers, have to have come for it to begin
    uint8_t *keeps;  // owned, n by n: the second may keep the first from ending
    // Owned: how many steps ahead of one take processors, as they stand on
    // their streams, and those that are transfers, as they are issued.
    int32_t *computes, *transfers[2];
    hd_hold hold;   // owned
    int32_t *past;  // owned, by rank and stream: places to be gone past
    int32_t *began; // owned: hold.limit and hold.last where a launch begins
    int32_t *asked; // owned: streams that are to go on, a list
    bool *is_asked; // owned, by rank and stream
    int64_t nasked;
    hd_replay replay; // owned: what is executed
    int64_t *path;    // owned: launches that are to be under way at once
    bool *leads;      // owned, by launch: back to the first of these
    int32_t *keepers; // owned, by launch: how many may keep it from ending, of
                      // those that may be kept for ever
    int64_t npath, nvisits;
} search;

// -------------------------------------------------------------- what is there

static int64_t nstreams_of(const search *s)
{
    return (int64_t)s->graph->nranks * s->graph->nstreams;
}

static int64_t stream_of(const search *s, int rank, int stream)
{
    return (int64_t)rank * s->graph->nstreams + stream;
}

static hd_status add_launch(search *s, int rank, int stream, int32_t first)
{
    const hd_graph *g = s->graph;
    int32_t last = (int32_t)hd_graph_launched(g, rank, first);
    launch l = {rank,
                stream,
                first,
                last,
                hd_graph_node(g, rank, first)->place,
                hd_graph_node(g, rank, last)->place};

    HD_TRY(hd_grow((void **)&s->launch, &s->room, s->n + 1, sizeof l, s->diag));
    s->launch[s->n++] = l;
    return HD_OK;
}

// Stream by stream.
static hd_status find_launches(search *s)
{
    const hd_graph *g = s->graph;

    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t i = 0; i < hd_graph_steps(g, rank); i++) {
            int32_t step = g->order[g->first[rank] + i];
            const hd_node *node = hd_graph_node(g, rank, step);

            if (node->launch == step)
                HD_TRY(add_launch(s, rank, node->stream, step));
        }
    if (s->n > MOST_LAUNCHES)
        return hd_error(
            s->diag, HD_E0105,
            hd_graph_node(g, s->launch[0].rank, s->launch[0].first)->op->loc,
            "%lld launches on all ranks; the limit is %d", (long long)s->n,
            MOST_LAUNCHES);
    return HD_OK;
}

static bool is_served(const search *s, const hd_node *node)
{
    return (s->serial >> node->op->axis & 1) != 0;
}

// Whether it takes processors, which a step of a launch does, whatever it is.
static bool is_busy(const search *s, int rank, int64_t step)
{
    return hd_graph_node(s->graph, rank, step)->launch >= 0 ||
           hd_graph_is_busy(s->graph, rank, step, s->hold.busy);
}

// Transfers are counted as they are issued, others as they stand on their
// streams, and so are all where a rank stands for all.
static bool is_issued(const search *s, const hd_node *node)
{
    return node->kind >= HD_NODE_SEND && !s->folded;
}

// One more than there are of each, so that each has one past its last.
static void count_busy(search *s)
{
    const hd_graph *g = s->graph;
    int32_t computes = 0, transfers[2] = {0, 0};

    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t i = 0; i < hd_graph_steps(g, rank); i++) {
            int64_t at = g->first[rank] + i;
            const hd_node *node = hd_graph_node(g, rank, i);

            s->loose |= s->folded && node->async && !is_served(s, node) &&
                        is_busy(s, rank, i);
            s->computes[at] = computes;
            computes += !is_issued(s, hd_graph_node(g, rank, g->order[at])) &&
                        is_busy(s, rank, g->order[at]);
            for (int k = 0; k < 2; k++)
                s->transfers[k][at] = transfers[k];
            if (is_issued(s, node))
                transfers[is_served(s, node)] += is_busy(s, rank, i);
        }
    s->computes[g->first[g->nranks]] = computes;
    for (int k = 0; k < 2; k++)
        s->transfers[k][g->first[g->nranks]] = transfers[k];
}

// ------------------------------------------------------- what something needs

static void ask(search *s, int rank, int stream)
{
    int64_t at = stream_of(s, rank, stream);

    if (!s->is_asked[at]) {
        s->is_asked[at] = true;
        s->asked[s->nasked++] = (int32_t)at;
    }
}

static bool raise_to(int32_t *to, int32_t value)
{
    bool more = *to < value;

    *to = more ? value : *to;
    return more;
}

static bool is_tried(const search *s, int rank, int32_t first)
{
    for (int64_t i = 0; i < s->npath; i++)
        if (s->launch[s->path[i]].rank == rank &&
            s->launch[s->path[i]].first == first)
            return true;
    return false;
}

static bool has_arrived(const search *s, int rank, int stream)
{
    const hd_replay *r = &s->replay;
    int64_t at = stream_of(s, rank, stream);
    int64_t step = hd_schedule_stuck(&r->schedule, rank, stream);

    if (r->schedule.cursor[at] < s->past[at])
        return false;
    return r->schedule.cursor[at] >= s->hold.limit[at] ||
           (hd_graph_node(s->graph, rank, step)->place + 1 ==
                s->hold.limit[at] &&
            hd_schedule_has(&r->schedule, rank, step, HD_STEP_BEGUN));
}

// A stream is to begin a step, or to go past it. Whether that was not asked for
// yet, or not of late: what is asked for anew may be stuck for more.
static bool want(search *s, int rank, int64_t step, bool past)
{
    const hd_graph *g = s->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int64_t at = stream_of(s, rank, node->stream);
    bool more, anew = !s->is_asked[at];

    if (!past)
        node = hd_graph_node(g, rank, node->head);
    more = raise_to(&s->hold.limit[at], node->place + 1);
    if (past)
        more |= raise_to(&s->past[at], node->place + 1);
    ask(s, rank, node->stream);
    more |= anew && !has_arrived(s, rank, node->stream);
    hd_schedule_wake(&s->replay.schedule, rank);
    return more;
}

// The launch that has the rank's processors is to end, unless it is to be under
// way.
static bool want_processors(search *s, int rank)
{
    int32_t launch = s->hold.under_way[rank];

    return launch >= 0 && !is_tried(s, rank, launch) &&
           want(s, rank, hd_graph_launched(s->graph, rank, launch), true);
}

// What the stream is stuck for.
static bool want_edge(search *s, int rank, int stream)
{
    const hd_graph *g = s->graph;
    const hd_replay *r = &s->replay;
    hd_edge e = hd_deadlock_edge(r, rank, stream);
    const hd_node *needed = hd_graph_node(g, e.peer, e.needed);
    bool more;

    if (e.held)
        return want_processors(s, e.peer);
    if (hd_graph_node(g, rank, e.step)->kind == HD_NODE_JOIN)
        return want(s, rank, hd_graph_before(g, rank, e.next, e.step), true);
    if (e.meets < 0)
        return want(s, e.peer, e.needed,
                    !hd_schedule_defers(&r->schedule, needed));
    more = want(s, e.peer, e.needed,
                e.in_order && hd_schedule_has(&r->schedule, e.peer, e.needed,
                                              HD_STEP_STARTED));
    return raise_to(
               &s->hold.last[2 * e.peer +
                             is_served(s, hd_graph_node(g, e.peer, e.meets))],
               (int32_t)e.meets + 1) ||
           more;
}

static void drop_arrived(search *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->nasked; i++) {
        int32_t at = s->asked[i];

        if (has_arrived(s, at / s->graph->nstreams, at % s->graph->nstreams))
            s->is_asked[at] = false;
        else
            s->asked[n++] = at;
    }
    s->nasked = n;
}

// Until all that was asked for has come, or nothing more can.
static hd_status go_on(search *s)
{
    for (bool more = true; more;) {
        int64_t n;

        HD_TRY(hd_schedule_resume(&s->replay.schedule));
        drop_arrived(s);
        n = s->nasked;
        more = false;
        for (int64_t i = 0; i < n; i++)
            more |= want_edge(s, s->asked[i] / s->graph->nstreams,
                              s->asked[i] % s->graph->nstreams);
    }
    return HD_OK;
}

static hd_status begin(search *s, bool exclusive)
{
    int64_t streams = nstreams_of(s), ranks = s->graph->nranks;

    hd_replay_free(&s->replay);
    s->hold.exclusive = exclusive;
    s->hold.launches = HD_LAUNCHES_ALL;
    memset(s->hold.limit, 0,
           sizeof *s->hold.limit * (size_t)(streams + 2 * ranks));
    memset(s->hold.under_way, -1, sizeof *s->hold.under_way * (size_t)ranks);
    memset(s->past, 0, sizeof *s->past * (size_t)streams);
    memset(s->is_asked, 0, sizeof *s->is_asked * (size_t)streams);
    s->nasked = 0;
    return hd_replay_open(s->graph, s->serial, &s->hold, s->diag, &s->replay);
}

// What a launch needs to begin.
static void want_launch(search *s, const launch *l)
{
    const hd_graph *g = s->graph;
    int64_t fork = l->stream > 0 ? hd_graph_fork(g, l->rank, l->first) : -1;

    if (fork >= 0)
        want(s, l->rank, fork, true);
    if (l->first_place > 0)
        want(s, l->rank, hd_graph_at(g, l->rank, l->stream, l->first_place - 1),
             true);
}

// ------------------------------------------------- who keeps whom from ending

// Launches of one stream follow each other, so that what one needs to begin is
// executed from where the one before it began.
static hd_status begin_launch(search *s, int64_t i)
{
    const launch *l = &s->launch[i];

    if (i == 0 || l[-1].rank != l->rank || l[-1].stream != l->stream)
        HD_TRY(begin(s, false));
    want_launch(s, l);
    return go_on(s);
}

static hd_status find_before(search *s, int64_t i)
{
    const launch *l = &s->launch[i];
    int n = s->graph->nstreams;
    int32_t *before = &s->before[i * (n + 2)];

    HD_TRY(begin_launch(s, i));
    memcpy(before, &s->hold.limit[stream_of(s, l->rank, 0)],
           sizeof *before * (size_t)n);
    memcpy(before + n, &s->hold.last[2 * l->rank], 2 * sizeof *before);
    return HD_OK;
}

// What the own rank alone orders ahead of a launch: of its streams, from the
// last place on that is known to be, what each step there needs.
static void find_own_before(search *s, int64_t i)
{
    const hd_graph *g = s->graph;
    const launch *l = &s->launch[i];
    int32_t *before = &s->before[i * (g->nstreams + 2)];
    int64_t fork = l->stream > 0 ? hd_graph_fork(g, l->rank, l->first) : -1;

    before[l->stream] = l->first_place;
    if (fork >= 0)
        raise_to(&before[0], hd_graph_node(g, l->rank, fork)->place + 1);
    for (int64_t step = l->first - 1; step >= 0; step--) {
        const hd_node *node = hd_graph_node(g, l->rank, step);
        hd_need need;

        if (node->place >= before[node->stream])
            continue;
        for (int k = 0; hd_graph_need(g, l->rank, step, &k, &need);) {
            int64_t last = need.step == step
                               ? hd_graph_before(g, l->rank, need.stream, step)
                               : need.step;

            if (last >= 0 && !need.async)
                raise_to(&before[need.stream],
                         hd_graph_node(g, l->rank, last)->place + 1);
        }
    }
}

static int32_t later(int32_t a, int32_t b)
{
    return a < b ? b : a;
}

// Steps of a stream that take processors, from one place to before another.
static int32_t count_computes(const search *s, int rank, int stream,
                              int32_t from, int32_t to)
{
    const hd_graph *g = s->graph;
    const int32_t *n =
        &s->computes[g->first[rank] +
                     g->begin[(int64_t)rank * (g->nstreams + 1) + stream]];

    return from < to ? n[to] - n[from] : 0;
}

// Past how many places a stream is to have begun: of a group all at once.
static int32_t begun_by(const search *s, int rank, int stream)
{
    const hd_graph *g = s->graph;
    int32_t to = s->hold.limit[stream_of(s, rank, stream)];
    int64_t step = to > 0 ? hd_graph_at(g, rank, stream, to - 1) : -1;

    return step < 0 || hd_graph_node(g, rank, step)->head != step
               ? to
               : to - 1 + (int32_t)hd_graph_together(g, rank, step);
}

// Transfers that take processors, as they are issued, but for those of a
// launch.
static int32_t count_transfers(const search *s, const launch *but, int k,
                               int32_t from, int32_t to)
{
    const int32_t *n = &s->transfers[k][s->graph->first[but->rank]];
    int32_t all = from < to ? n[to] - n[from] : 0;

    from = later(from, but->first);
    to = to <= but->last ? to : but->last + 1;
    return from < to ? all - (n[to] - n[from]) : all;
}

// Whether a launch needs, to end and not to begin, what takes the processors of
// `by`'s rank and may not yet have started where that is under way.
static bool may_keep(const search *s, const launch *by, const int32_t *before)
{
    const hd_graph *g = s->graph;
    const int32_t *last = s->hold.last, *began = s->began + nstreams_of(s);

    for (int i = 0; i < g->nstreams; i++) {
        int64_t at = stream_of(s, by->rank, i);
        int32_t from = later(s->began[at], before[i]);
        int32_t to = begun_by(s, by->rank, i);

        if (i == by->stream)
            from = later(from, by->last_place + 1);
        if (count_computes(s, by->rank, i, from, to) > 0)
            return true;
    }
    for (int k = 0; k < 2; k++) {
        int64_t at = 2 * (int64_t)by->rank + k;
        int32_t from = later(began[at], before[g->nstreams + k]);

        if (count_transfers(s, by, k, from, last[at]) > 0)
            return true;
    }
    return false;
}

// What a rank that stands for all needs of others is its own step there, of
// which it does not follow that it has happened here.
static hd_status find_keepers(search *s, int64_t i)
{
    const launch *l = &s->launch[i];

    HD_TRY(begin_launch(s, i));
    if (!s->folded)
        memcpy(s->began, s->hold.limit,
               sizeof *s->began *
                   (size_t)(nstreams_of(s) + 2 * (int64_t)s->graph->nranks));
    want(s, l->rank, l->last, true);
    HD_TRY(go_on(s));
    for (int64_t k = 0; k < s->n; k++) {
        s->keeps[i * s->n + k] =
            (s->folded || k == i || s->launch[k].rank != l->rank) &&
            may_keep(s, &s->launch[k],
                     &s->before[k * (s->graph->nstreams + 2)]);
        s->keepers[i] += s->keeps[i * s->n + k];
    }
    return HD_OK;
}

// ---------------------------------------------------------------------- cycles

// Executes what is needed, of which launches come last: first those that are
// needed to their end, then one after the other those of which a part is, as
// these keep the processors; of them first where nothing else needs these.
static hd_status execute_needed(search *s)
{
    hd_schedule *schedule = &s->replay.schedule;

    s->hold.launches = HD_LAUNCHES_NONE;
    HD_TRY(hd_schedule_run(schedule));
    do {
        s->hold.launches = HD_LAUNCHES_WHOLE;
        HD_TRY(hd_schedule_run(schedule));
        s->hold.launches = HD_LAUNCHES_LAST;
        HD_TRY(hd_schedule_run(schedule));
        if (s->hold.launches == HD_LAUNCHES_WHOLE)
            continue;
        s->hold.launches = HD_LAUNCHES_ONE;
        HD_TRY(hd_schedule_run(schedule));
    } while (s->hold.launches != HD_LAUNCHES_ONE);
    s->hold.launches = HD_LAUNCHES_ALL;
    return HD_OK;
}

// What the launches of the path need to begin is found as if launches were
// their steps alone, and executed then.
static hd_status begin_path(search *s)
{
    size_t bytes = sizeof *s->began *
                   (size_t)(nstreams_of(s) + 2 * (int64_t)s->graph->nranks);

    HD_TRY(begin(s, false));
    for (int64_t i = 0; i < s->npath; i++)
        want_launch(s, &s->launch[s->path[i]]);
    HD_TRY(go_on(s));
    memcpy(s->began, s->hold.limit, bytes);
    memcpy(s->hold.past, s->past, sizeof *s->past * (size_t)nstreams_of(s));
    HD_TRY(begin(s, true));
    memcpy(s->hold.limit, s->began, bytes);
    HD_TRY(execute_needed(s));
    for (int64_t i = 0; i < s->npath; i++)
        want_launch(s, &s->launch[s->path[i]]);
    for (bool more = true; more;) {
        HD_TRY(go_on(s));
        more = false;
        for (int64_t i = 0; i < s->npath; i++)
            more |= want_processors(s, s->launch[s->path[i]].rank);
    }
    return HD_OK;
}

// Has all that is tried under way, if it is not past it already, and nothing
// hold back all else.
static void let_go(search *s)
{
    int64_t n = nstreams_of(s) + 2 * (int64_t)s->graph->nranks;

    for (int64_t i = 0; i < s->npath && s->nasked == 0; i++) {
        const launch *l = &s->launch[s->path[i]];

        if (s->hold.under_way[l->rank] < 0 &&
            s->replay.schedule.cursor[stream_of(s, l->rank, l->stream)] <=
                l->last_place)
            s->hold.under_way[l->rank] = l->first;
    }
    for (int64_t i = 0; i < n; i++)
        s->hold.limit[i] = INT32_MAX;
}

static hd_status try_path(search *s)
{
    HD_TRY(begin_path(s));
    let_go(s);
    HD_TRY(hd_schedule_run(&s->replay.schedule));
    return hd_schedule_is_over(&s->replay.schedule)
               ? HD_OK
               : hd_deadlock_report(&s->replay, s->diag);
}

static bool has_rank(const search *s, int rank)
{
    for (int64_t i = 0; i < s->npath; i++)
        if (s->launch[s->path[i]].rank == rank)
            return true;
    return false;
}

// Goes on from the last launch of the path to those that may keep it from
// ending, and tries the path where that is its first.
static hd_status extend(search *s)
{
    int64_t first = s->path[0];
    const uint8_t *keeps = &s->keeps[s->path[s->npath - 1] * s->n];

    if (++s->nvisits > MOST_VISITS)
        return hd_error(s->diag, HD_E0105,
                        hd_graph_node(s->graph, s->launch[first].rank,
                                      s->launch[first].first)
                            ->op->loc,
                        "launches may keep each other from ending in too many "
                        "ways to try each; wait for what they wait for ahead "
                        "of them");
    if (keeps[first])
        HD_TRY(try_path(s));
    for (int64_t k = first + 1; k < s->n; k++) {
        if (!keeps[k] || !s->leads[k] || has_rank(s, s->launch[k].rank))
            continue;
        s->path[s->npath++] = k;
        HD_TRY(extend(s));
        s->npath--;
    }
    return HD_OK;
}

// Leaves no keepers of launches that end whoever is first, as what may keep
// them does.
static void drop_ending(search *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        if (s->keepers[i] == 0)
            s->path[n++] = i;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < s->n; k++)
            if (s->keeps[k * s->n + s->path[i]] != 0 && --s->keepers[k] == 0)
                s->path[n++] = k;
}

// Marks the launches past the first that lead back to it.
static void find_leads(search *s, int64_t first)
{
    int64_t n = 1;

    memset(s->leads, 0, sizeof *s->leads * (size_t)s->n);
    s->path[0] = first; // the list of those to look at, until there is a path
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = first + 1; k < s->n; k++)
            if (!s->leads[k] && s->keepers[k] > 0 &&
                s->keeps[k * s->n + s->path[i]] != 0) {
                s->leads[k] = true;
                s->path[n++] = k;
            }
    s->npath = 1;
}

static hd_status find_cycles(search *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        if (s->keepers[i] == 0)
            continue;
        find_leads(s, i);
        HD_TRY(extend(s));
    }
    return HD_OK;
}

// --------------------------------------------------------------------- whole

static hd_status allocate(search *s)
{
    const hd_graph *g = s->graph;
    int64_t streams = nstreams_of(s), ranks = g->nranks;
    int64_t steps = g->first[ranks] + 1, all = streams + 2 * ranks;
    struct {
        void **array;
        int64_t n;
        size_t size;
    } arrays[] = {
        {(void **)&s->before, s->n * (g->nstreams + 2), sizeof *s->before},
        {(void **)&s->keeps, s->n * s->n, sizeof *s->keeps},
        {(void **)&s->computes, steps, sizeof *s->computes},
        {(void **)&s->transfers[0], steps, sizeof **s->transfers},
        {(void **)&s->transfers[1], steps, sizeof **s->transfers},
        {(void **)&s->hold.limit, all, sizeof *s->hold.limit},
        {(void **)&s->hold.under_way, ranks, sizeof *s->hold.under_way},
        {(void **)&s->past, streams, sizeof *s->past},
        {(void **)&s->hold.past, streams, sizeof *s->hold.past},
        {(void **)&s->began, all, sizeof *s->began},
        {(void **)&s->asked, streams, sizeof *s->asked},
        {(void **)&s->is_asked, streams, sizeof *s->is_asked},
        {(void **)&s->path, s->n, sizeof *s->path},
        {(void **)&s->leads, s->n, sizeof *s->leads},
        {(void **)&s->keepers, s->n, sizeof *s->keepers},
    };

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        HD_TRY(hd_clear_array(arrays[i].n, arrays[i].size, s->diag,
                              arrays[i].array));
    s->hold.last = s->hold.limit + streams;
    return HD_OK;
}

static hd_status look(search *s)
{
    HD_TRY(find_launches(s));
    if (s->n == 0)
        return HD_OK;
    HD_TRY(allocate(s));
    count_busy(s);
    for (int64_t i = 0; i < s->n; i++) {
        if (s->folded)
            find_own_before(s, i);
        else
            HD_TRY(find_before(s, i));
    }
    for (int64_t i = 0; i < s->n; i++)
        HD_TRY(find_keepers(s, i));
    drop_ending(s);
    return s->folded ? HD_OK : find_cycles(s);
}

static void close_search(search *s)
{
    free(s->launch);
    free(s->before);
    free(s->keeps);
    free(s->computes);
    free(s->transfers[0]);
    free(s->transfers[1]);
    free(s->hold.limit);
    free(s->hold.under_way);
    free(s->past);
    free(s->hold.past);
    free(s->began);
    free(s->asked);
    free(s->is_asked);
    hd_replay_free(&s->replay);
    free(s->path);
    free(s->leads);
    free(s->keepers);
}

hd_status hd_launch_check(const hd_graph *graph, unsigned serial, unsigned busy,
                          hd_diag *diag)
{
    search s = {
        .graph = graph, .serial = serial, .hold.busy = busy, .diag = diag};
    hd_status status = look(&s);

    close_search(&s);
    return status;
}

hd_status hd_launch_look(const hd_graph *graph, unsigned serial, unsigned busy,
                         hd_diag *diag, bool *ends)
{
    search s = {.graph = graph,
                .serial = serial,
                .folded = true,
                .hold.busy = busy,
                .diag = diag};
    hd_status status = look(&s);

    *ends = status == HD_OK && !s.loose;
    for (int64_t i = 0; i < s.n && *ends; i++)
        *ends = s.keepers[i] == 0;
    close_search(&s);
    return status;
}
