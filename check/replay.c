// See replay.h. The schedule says who has come to what; transfers start here.
#include "check/replay.h"

#include <stdlib.h>

#include "base/array.h"

static bool has(const hd_replay *r, int rank, int64_t step, int state)
{
    return hd_schedule_has(&r->schedule, rank, step, state);
}

static bool is_transfer(const hd_node *node)
{
    return node->kind >= HD_NODE_SEND;
}

int64_t hd_replay_ahead(const hd_replay *replay, int rank, int64_t step)
{
    return hd_turns_ahead(&replay->turns, &replay->schedule, rank, step);
}

int64_t hd_replay_blocker(const hd_replay *replay, int rank, int64_t step)
{
    const hd_replay *r = replay;
    const hd_node *node = hd_graph_node(r->schedule.graph, rank, step);
    int64_t ahead;

    if (!has(r, rank, step, HD_STEP_BEGUN))
        return step;
    ahead = hd_replay_ahead(r, rank, step);
    if (ahead >= 0)
        return ahead;
    if (hd_turns_serve(&r->schedule, node))
        return r->turns.undone[rank] < node->head ? r->turns.undone[rank] : -1;
    return r->unstarted[rank] < step ? r->unstarted[rank] : -1;
}

int64_t hd_replay_launch(const hd_replay *replay, int rank, int64_t step)
{
    const hd_graph *g = replay->schedule.graph;
    const hd_hold *hold = replay->hold;
    int32_t launch;

    if (hold == NULL || !hold->exclusive || hold->under_way[rank] < 0)
        return -1;
    launch = hd_graph_node(g, rank, step)->launch;
    if (launch == hold->under_way[rank])
        return -1;
    return launch >= 0 || hd_graph_is_busy(g, rank, step, hold->busy)
               ? hold->under_way[rank]
               : -1;
}

// A launch is under way once its stream has come to it, whatever its first step
// waits for.
static void begin_launch(const hd_replay *r, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(r->schedule.graph, rank, step);
    hd_hold *hold = r->hold;

    if (node->launch < 0 || node->launch == hold->under_way[rank] ||
        !hd_schedule_has_come(&r->schedule, rank, step))
        return;
    hold->under_way[rank] = node->launch;
    if (hold->launches == HD_LAUNCHES_LAST || hold->launches == HD_LAUNCHES_ONE)
        hold->launches = HD_LAUNCHES_WHOLE;
}

// Whether the stream has still to begin what takes processors, beside a launch.
static bool needs_processors(const hd_replay *r, int rank, int stream,
                             int32_t launch)
{
    const hd_graph *g = r->schedule.graph;
    int64_t at = (int64_t)rank * g->nstreams + stream;

    for (int64_t i = r->schedule.cursor[at]; i < r->hold->limit[at]; i++) {
        int64_t step = hd_graph_at(g, rank, stream, i);
        int32_t own = hd_graph_node(g, rank, step)->launch;

        if ((own >= 0 ? own != launch
                      : hd_graph_is_busy(g, rank, step, r->hold->busy)) &&
            !has(r, rank, step, HD_STEP_STARTED | HD_STEP_ENDED))
            return true;
    }
    return false;
}

static bool is_last(const hd_replay *r, int rank, int32_t launch)
{
    for (int stream = 0; stream < r->schedule.graph->nstreams; stream++)
        if (needs_processors(r, rank, stream, launch))
            return false;
    return true;
}

static bool may_launch(const hd_replay *r, int rank, int64_t step)
{
    const hd_graph *g = r->schedule.graph;
    const hd_node *node = hd_graph_node(g, rank, step), *last;
    int64_t at = (int64_t)rank * g->nstreams + node->stream;
    const hd_hold *hold = r->hold;

    if (!hold->exclusive || node->launch < 0 ||
        node->launch == hold->under_way[rank] ||
        hold->launches == HD_LAUNCHES_ALL || hold->launches == HD_LAUNCHES_ONE)
        return true;
    if (hold->launches == HD_LAUNCHES_LAST)
        return is_last(r, rank, node->launch);
    last = hd_graph_node(g, rank, hd_graph_launched(g, rank, step));
    return hold->launches == HD_LAUNCHES_WHOLE &&
           (last->place + 1 < hold->limit[at] || last->place < hold->past[at]);
}

static bool may_begin(void *context, int rank, int64_t step)
{
    const hd_replay *r = context;
    const hd_graph *g = r->schedule.graph;
    const hd_node *node = hd_graph_node(g, rank, step);

    if (node->place >=
        r->hold->limit[(int64_t)rank * g->nstreams + node->stream])
        return false;
    if (is_transfer(node) && node->launch < 0) // it starts by itself
        return true;
    if (hd_replay_launch(r, rank, step) >= 0 || !may_launch(r, rank, step))
        return false;
    if (r->hold->exclusive)
        begin_launch(r, rank, step);
    return true;
}

static bool may_start(const hd_replay *r, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(r->schedule.graph, rank, step);

    return r->hold == NULL ||
           (step <
                r->hold->last[2 * rank + hd_turns_serve(&r->schedule, node)] &&
            hd_replay_launch(r, rank, step) < 0);
}

static void start(hd_replay *r, int rank, int64_t step)
{
    if (hd_schedule_meet(&r->schedule, rank, step))
        hd_schedule_end_all(&r->schedule, rank, step);
}

// Starts what its stream has reached, up to the first transfer in issue order
// that may not start.
static bool start_in_order(hd_replay *r, int rank)
{
    const hd_graph *g = r->schedule.graph;
    int64_t last = hd_graph_steps(g, rank);
    int64_t *at = &r->unstarted[rank], before = *at;

    for (; *at < last; ++*at) {
        const hd_node *node = hd_graph_node(g, rank, *at);

        if (!is_transfer(node) || hd_turns_serve(&r->schedule, node))
            continue;
        if (!has(r, rank, *at, HD_STEP_BEGUN) ||
            hd_replay_ahead(r, rank, *at) >= 0 || !may_start(r, rank, *at))
            break;
        start(r, rank, *at);
    }
    return *at > before;
}

// Starts what may start by NCCL.
static bool start_serial(hd_replay *r, int rank)
{
    bool moved = false;
    int64_t step;

    while ((step = hd_turns_next(&r->turns, &r->schedule, rank)) >= 0 &&
           may_start(r, rank, step)) {
        start(r, rank, step);
        moved = true;
    }
    return moved;
}

// Starts whatever may start now.
static hd_status start_all(void *context, int rank)
{
    hd_replay *r = context;
    bool moved;

    do {
        moved = start_in_order(r, rank);
        if (r->schedule.held != 0)
            moved |= start_serial(r, rank);
    } while (moved && r->schedule.held != 0);
    return HD_OK;
}

static hd_status begin(void *context, int rank, int64_t step, int64_t n)
{
    hd_replay *r = context;

    (void)n; // they have all come
    if (is_transfer(hd_graph_node(r->schedule.graph, rank, step)))
        return start_all(r, rank);
    hd_schedule_end(&r->schedule, rank, step);
    return HD_OK;
}

// Behind a launch others have the processors.
static void pass(void *context, int rank, int64_t step, int64_t n)
{
    hd_replay *r = context;
    int32_t launch = hd_graph_node(r->schedule.graph, rank, step)->launch;

    (void)n; // a launch has no groups
    if (launch < 0 || launch != r->hold->under_way[rank] ||
        hd_graph_launched(r->schedule.graph, rank, step) != step)
        return;
    r->hold->under_way[rank] = -1;
    hd_schedule_wake(&r->schedule, rank);
}

static hd_status allocate(hd_replay *r, const hd_graph *graph, hd_diag *diag)
{
    HD_TRY(hd_clear_array(graph->nranks, sizeof *r->unstarted, diag,
                          (void **)&r->unstarted));
    HD_TRY(hd_turns_open(graph, diag, &r->turns));
    return hd_schedule_open(graph, 1, diag, &r->schedule);
}

hd_status hd_replay_open(const hd_graph *graph, unsigned serial, hd_hold *hold,
                         hd_diag *diag, hd_replay *out)
{
    hd_replay r = {.hold = hold};
    hd_status status = allocate(&r, graph, diag);

    if (status != HD_OK) {
        hd_replay_free(&r);
        return status;
    }
    r.schedule.held = serial;
    r.schedule.begin = begin;
    r.schedule.wake = serial != 0 || hold != NULL ? start_all : NULL;
    r.schedule.may_begin = hold != NULL ? may_begin : NULL;
    r.schedule.pass = hold != NULL ? pass : NULL;
    *out = r;
    out->schedule.context = out;
    return HD_OK;
}

hd_status hd_replay_run(const hd_graph *graph, unsigned serial, hd_diag *diag,
                        hd_replay *out)
{
    hd_status status = hd_replay_open(graph, serial, NULL, diag, out);

    HD_TRY(status);
    status = hd_schedule_run(&out->schedule);
    if (status != HD_OK)
        hd_replay_free(out);
    return status;
}

void hd_replay_free(hd_replay *replay)
{
    hd_schedule_close(&replay->schedule);
    hd_turns_close(&replay->turns);
    free(replay->unstarted);
    *replay = (hd_replay){0};
}
