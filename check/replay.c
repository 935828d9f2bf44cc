// See replay.h. The schedule says who has come to what; transfers start here.
#include "check/replay.h"

#include <stdlib.h>

#include "base/array.h"

// Transfers start in an order lane by lane: one for all that goes by NCCL, by
// whichever communicator, and one for all else.
enum { BY_COPY, BY_NCCL };

static int lane_of(const hd_replay *r, const hd_node *node)
{
    return (r->schedule.held >> node->op->axis & 1) != 0 ? BY_NCCL : BY_COPY;
}

static int64_t *chain_of(const hd_replay *r, int rank, int lane)
{
    return &r->chain[2 * (int64_t)rank + lane];
}

static bool has(const hd_replay *r, int rank, int64_t step, int state)
{
    return hd_schedule_has(&r->schedule, rank, step, state);
}

static bool is_transfer(const hd_node *node)
{
    return node->kind >= HD_NODE_SEND;
}

// NCCL serves a group in turns: a stream has its calls one after the other,
// axis by axis, and of an axis each collective, then in one call all that is
// sent and received. What does not go by NCCL comes last.
static int turn_of(const hd_replay *r, const hd_node *node)
{
    return lane_of(r, node) == BY_COPY
               ? r->nturns
               : 2 * node->op->axis + (node->kind != HD_NODE_COLLECTIVE);
}

static void come_to_group(const hd_replay *r, int rank, int64_t head,
                          hd_front *f)
{
    int64_t n;

    if (head < f->end)
        return;
    n = hd_graph_together(r->schedule.graph, rank, head);
    *f = (hd_front){head, head + n, 0, head};
}

// To the first member that is not in `state`, of what goes by NCCL.
static void move_front(const hd_replay *r, int rank, int state, hd_front *f)
{
    const hd_graph *g = r->schedule.graph;

    for (; f->turn < r->nturns; f->turn++, f->at = f->head)
        for (; f->at < f->end; f->at++)
            if (turn_of(r, hd_graph_node(g, rank, f->at)) == f->turn &&
                !has(r, rank, f->at, state))
                return;
}

int64_t hd_replay_ahead(const hd_replay *replay, int rank, int64_t step)
{
    const hd_replay *r = replay;
    const hd_graph *g = r->schedule.graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    bool serial = lane_of(r, node) == BY_NCCL;
    int turn = turn_of(r, node);
    hd_front *f;

    if (r->schedule.held == 0)
        return -1;
    f = &r->ended[(int64_t)rank * g->nstreams + node->stream];
    if (node->head < f->head) // its stream has gone past all that is ahead
        return -1;
    come_to_group(r, rank, node->head, f);
    move_front(r, rank, HD_STEP_ENDED, f);
    return f->turn < turn || (f->turn == turn && f->at < step && serial &&
                              node->kind == HD_NODE_COLLECTIVE)
               ? f->at
               : -1;
}

int64_t hd_replay_blocker(const hd_replay *replay, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(replay->schedule.graph, rank, step);
    int lane = lane_of(replay, node);
    int64_t ahead, first = *chain_of(replay, rank, lane);

    if (!has(replay, rank, step, HD_STEP_BEGUN))
        return step;
    ahead = hd_replay_ahead(replay, rank, step);
    if (ahead >= 0)
        return ahead;
    return first < (lane == BY_COPY ? step : node->head) ? first : -1;
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
    int64_t *at = chain_of(r, rank, BY_COPY), before = *at;

    for (; *at < last; ++*at) {
        const hd_node *node = hd_graph_node(g, rank, *at);

        if (!is_transfer(node) || lane_of(r, node) != BY_COPY)
            continue;
        if (!has(r, rank, *at, HD_STEP_BEGUN) ||
            hd_replay_ahead(r, rank, *at) >= 0)
            break;
        start(r, rank, *at);
    }
    return *at > before;
}

// Starts what may start of the group whose turn it is by NCCL: the one before
// it is done.
static bool start_serial(hd_replay *r, int rank)
{
    const hd_graph *g = r->schedule.graph;
    int64_t last = hd_graph_steps(g, rank);
    int64_t *at = chain_of(r, rank, BY_NCCL);
    hd_front *f = &r->started[rank];
    bool moved = false;

    while (*at < last && (!is_transfer(hd_graph_node(g, rank, *at)) ||
                          lane_of(r, hd_graph_node(g, rank, *at)) != BY_NCCL ||
                          has(r, rank, *at, HD_STEP_ENDED)))
        ++*at;
    if (*at == last)
        return false;
    come_to_group(r, rank, hd_graph_node(g, rank, *at)->head, f);
    for (;;) {
        move_front(r, rank, HD_STEP_STARTED, f);
        if (f->turn == r->nturns || !has(r, rank, f->at, HD_STEP_BEGUN) ||
            hd_replay_ahead(r, rank, f->at) >= 0)
            return moved;
        start(r, rank, f->at);
        moved = true;
    }
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

static hd_status allocate(hd_replay *r, const hd_graph *graph, hd_diag *diag)
{
    int64_t ranks = graph->nranks, streams = ranks * graph->nstreams;

    HD_TRY(
        hd_clear_array(2 * ranks, sizeof *r->chain, diag, (void **)&r->chain));
    HD_TRY(
        hd_clear_array(ranks, sizeof *r->started, diag, (void **)&r->started));
    HD_TRY(hd_clear_array(streams, sizeof *r->ended, diag, (void **)&r->ended));
    return hd_schedule_open(graph, 1, diag, &r->schedule);
}

hd_status hd_replay_run(const hd_graph *graph, unsigned serial, hd_diag *diag,
                        hd_replay *out)
{
    hd_replay r = {.nturns = 2 * graph->module->naxes};
    hd_status status = allocate(&r, graph, diag);

    if (status == HD_OK) {
        r.schedule.held = serial;
        r.schedule.begin = begin;
        r.schedule.wake = serial != 0 ? start_all : NULL;
        r.schedule.context = &r;
        status = hd_schedule_run(&r.schedule);
    }
    if (status != HD_OK)
        hd_replay_free(&r);
    else
        *out = r;
    return status;
}

void hd_replay_free(hd_replay *replay)
{
    hd_schedule_close(&replay->schedule);
    free(replay->chain);
    free(replay->started);
    free(replay->ended);
    *replay = (hd_replay){0};
}
