// See replay.h. The schedule says who has come to what; transfers start here.
#include "check/replay.h"

#include <stdlib.h>

#include "base/array.h"

// Transfers start in an order lane by lane: a lane for each axis that NCCL
// serves, and 0 for all else.
static int lane_of(const hd_replay *r, const hd_node *node)
{
    unsigned serial = r->schedule.held;

    return serial != 0 && (serial >> node->op->axis & 1) != 0
               ? 1 + node->op->axis
               : 0;
}

static int64_t *chain_of(const hd_replay *r, int rank, int lane)
{
    return &r->chain[(int64_t)rank * r->nlanes + lane];
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
    int lane = lane_of(r, node);

    return lane == 0 ? 2 * r->nlanes
                     : 2 * lane + (node->kind != HD_NODE_COLLECTIVE);
}

static void come_to_group(const hd_replay *r, int rank, int64_t head, int turn,
                          hd_front *f)
{
    int64_t n;

    if (head < f->end)
        return;
    n = hd_graph_together(r->schedule.graph, rank, head);
    *f = (hd_front){head, head + n, turn, head};
}

// To the first member that is not in `state`, of the turns before `last`.
static void move_front(const hd_replay *r, int rank, int state, int last,
                       hd_front *f)
{
    const hd_graph *g = r->schedule.graph;

    for (; f->turn < last; f->turn++, f->at = f->head)
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
    bool serial = lane_of(r, node) != 0;
    int turn = turn_of(r, node);
    hd_front *f;

    if (r->schedule.held == 0)
        return -1;
    f = &r->ended[(int64_t)rank * g->nstreams + node->stream];
    if (node->head < f->head) // its stream has gone past all that is ahead
        return -1;
    come_to_group(r, rank, node->head, 2, f);
    move_front(r, rank, HD_STEP_ENDED, 2 * r->nlanes, f);
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
    return lane == 0 ? (first < step ? first : -1)
                     : (first < node->head ? first : -1);
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
    int64_t *at = chain_of(r, rank, 0), before = *at;

    for (; *at < last; ++*at) {
        const hd_node *node = hd_graph_node(g, rank, *at);

        if (!is_transfer(node) || lane_of(r, node) != 0)
            continue;
        if (!has(r, rank, *at, HD_STEP_BEGUN) ||
            hd_replay_ahead(r, rank, *at) >= 0)
            break;
        start(r, rank, *at);
    }
    return *at > before;
}

// Starts what may start of the group at the head of a serial axis's lane: the
// one before it is done.
static bool start_serial(hd_replay *r, int rank, int lane)
{
    const hd_graph *g = r->schedule.graph;
    int64_t last = hd_graph_steps(g, rank);
    int64_t *at = chain_of(r, rank, lane);
    hd_front *f = &r->started[(int64_t)rank * r->nlanes + lane];
    int end = 2 * lane + 2;
    bool moved = false;

    while (*at < last && (!is_transfer(hd_graph_node(g, rank, *at)) ||
                          lane_of(r, hd_graph_node(g, rank, *at)) != lane ||
                          has(r, rank, *at, HD_STEP_ENDED)))
        ++*at;
    if (*at == last)
        return false;
    come_to_group(r, rank, hd_graph_node(g, rank, *at)->head, 2 * lane, f);
    for (;;) {
        move_front(r, rank, HD_STEP_STARTED, end, f);
        if (f->turn == end || !has(r, rank, f->at, HD_STEP_BEGUN) ||
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
        for (int lane = 1; lane < r->nlanes; lane++)
            moved |= start_serial(r, rank, lane);
    } while (moved && r->nlanes > 1);
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
    int64_t lanes = (int64_t)graph->nranks * r->nlanes;
    int64_t streams = (int64_t)graph->nranks * graph->nstreams;

    HD_TRY(hd_clear_array(lanes, sizeof *r->chain, diag, (void **)&r->chain));
    HD_TRY(
        hd_clear_array(lanes, sizeof *r->started, diag, (void **)&r->started));
    HD_TRY(hd_clear_array(streams, sizeof *r->ended, diag, (void **)&r->ended));
    return hd_schedule_open(graph, 1, diag, &r->schedule);
}

hd_status hd_replay_run(const hd_graph *graph, unsigned serial, hd_diag *diag,
                        hd_replay *out)
{
    hd_replay r = {.nlanes = serial != 0 ? 1 + graph->module->naxes : 1};
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
