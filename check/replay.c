// A queue holds the ranks that may go on. A rank's streams are tried in turn
// until none moves; a transfer that starts puts the ranks that it meets back
// into the queue.
#include "check/replay.h"

#include <stdlib.h>

#include "base/array.h"

static int64_t slot_of(const hd_replay *r, int rank, int64_t step)
{
    return 2 * r->graph->first[rank] + step;
}

static int64_t meeting_of(const hd_replay *r, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(r->graph, rank, step);

    return node->link +
           (step < hd_graph_steps(r->graph, rank) ? 0 : r->graph->nmeetings);
}

// Past all steps of the rank where the stream has come to its end.
static int64_t *next_of(const hd_replay *r, int rank, int stream)
{
    return &r->next[(int64_t)rank * r->graph->nstreams + stream];
}

static int64_t *cursor_of(const hd_replay *r, int rank, int stream)
{
    return &r->cursor[(int64_t)rank * r->graph->nstreams + stream];
}

// ------------------------------------------------------------------ depth

// Only EAGER counts it: of RENDEZVOUS nobody asks.

static void follow(const hd_replay *r, int rank, int stream, int32_t depth)
{
    int32_t *now;

    if (r->now == NULL)
        return;
    now = &r->now[(int64_t)rank * r->graph->nstreams + stream];
    if (*now < depth)
        *now = depth;
}

// Behind the end of a step of its own rank.
static void follow_step(const hd_replay *r, int rank, int stream, int64_t step)
{
    if (r->now != NULL)
        follow(r, rank, stream, r->end[slot_of(r, rank, step)]);
}

static void note_start(const hd_replay *r, int rank, int stream, int64_t step)
{
    if (r->now != NULL)
        r->start[slot_of(r, rank, step)] =
            r->now[(int64_t)rank * r->graph->nstreams + stream];
}

// The stream has passed `n` steps that started together.
static void note_end(const hd_replay *r, int rank, int stream, int64_t step,
                     int64_t n)
{
    int32_t now;

    if (r->now == NULL)
        return;
    now = ++r->now[(int64_t)rank * r->graph->nstreams + stream];
    for (int64_t i = 0; i < n; i++)
        r->end[slot_of(r, rank, step + i)] = now;
}

// The caller's stream has come to the end of the first run.
static void note_turn(const hd_replay *r, int rank)
{
    if (r->now != NULL)
        r->turn[rank] = r->now[(int64_t)rank * r->graph->nstreams]++;
}

// Behind a send, which ends as soon as it has started.
static void follow_send(const hd_replay *r, int rank, int stream, int sender,
                        int64_t send)
{
    if (r->now != NULL)
        follow(r, rank, stream, r->start[slot_of(r, sender, send)] + 1);
}

static void enqueue(hd_replay *r, int rank)
{
    if (r->queued[rank])
        return;
    r->queued[rank] = true;
    r->queue[(r->queue_head + r->nqueued++) % r->graph->nranks] = rank;
}

uint8_t hd_replay_state(const hd_replay *replay, int rank, int64_t step)
{
    return replay->state[slot_of(replay, rank, step)];
}

// The next step of a stream is numbered above `step`.
static bool has_passed(const hd_replay *r, int rank, int stream, int64_t step)
{
    return *next_of(r, rank, stream) > step;
}

// -------------------------------------------------------------- transfers

static bool has_started(const hd_replay *r, int rank, int64_t step)
{
    return (hd_replay_state(r, rank, step) & HD_STARTED) != 0;
}

static bool root_has_started(const hd_replay *r, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(r->graph, rank, step);
    const hd_member *member = &r->graph->member[r->graph->meeting[node->link]];
    int64_t root = hd_mesh_coord(r->graph->module, node->peer, node->op->axis);

    return member[root].step >= 0 &&
           has_started(r, node->peer,
                       hd_same_run(r->graph, rank, step, node->peer,
                                   member[root].step));
}

// Transfers start in an order lane by lane: a lane for each axis that NCCL
// serves, and 0 for all else.
static int lane_of(const hd_replay *r, const hd_node *node)
{
    return r->serial != 0 && (r->serial >> node->op->axis & 1) != 0
               ? 1 + node->op->axis
               : 0;
}

// NCCL holds up its stream for deferred sends too.
bool hd_replay_defers(const hd_replay *replay, const hd_node *node)
{
    return node->async && lane_of(replay, node) == 0;
}

bool hd_replay_is_done(const hd_replay *replay, int rank, int64_t step)
{
    const hd_graph *g = replay->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int64_t size;

    if (!has_started(replay, rank, step))
        return false;
    if (node->kind == HD_NODE_COLLECTIVE) {
        if (replay->blocking == HD_EAGER && node->op->code == HD_OP_BROADCAST)
            return root_has_started(replay, rank, step);
        size = g->meeting[node->link + 1] - g->meeting[node->link];
        return replay->met[meeting_of(replay, rank, step)] == size;
    }
    if (node->kind == HD_NODE_SEND && replay->blocking == HD_EAGER)
        return true;
    return node->link >= 0 &&
           has_started(replay, node->peer,
                       hd_same_run(g, rank, step, node->peer, node->link));
}

static void wake_line(hd_replay *r, const hd_node *node)
{
    const hd_graph *g = r->graph;

    for (int64_t i = g->meeting[node->link]; i < g->meeting[node->link + 1];
         i++)
        if (g->member[i].step >= 0)
            enqueue(r, g->member[i].rank);
}

static void start(hd_replay *r, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(r->graph, rank, step);
    int64_t meeting;

    r->state[slot_of(r, rank, step)] |= HD_STARTED;
    note_start(r, rank, node->stream, step);
    if (node->kind != HD_NODE_COLLECTIVE) {
        enqueue(r, node->peer);
        return;
    }
    meeting = meeting_of(r, rank, step);
    r->met[meeting]++;
    // What ranks receive of a broadcast says nothing of the others.
    if (r->now != NULL &&
        (node->op->code != HD_OP_BROADCAST || node->peer == rank) &&
        r->met_depth[meeting] < r->start[slot_of(r, rank, step)])
        r->met_depth[meeting] = r->start[slot_of(r, rank, step)];
    if (r->blocking == HD_EAGER ||
        r->met[meeting] ==
            r->graph->meeting[node->link + 1] - r->graph->meeting[node->link])
        wake_line(r, node);
}

static bool is_transfer(const hd_node *node)
{
    return node->kind >= HD_NODE_SEND;
}

// Steps of the group that begins at `step`: 1 outside groups.
static int64_t group_size(const hd_graph *g, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(g, rank, step);
    const hd_node *end = &g->node[g->first[rank + 1]];
    int64_t n = 1;

    while (node + n < end && node[n].head == node->head)
        n++;
    return n;
}

static int64_t *chain_of(const hd_replay *r, int rank, int lane)
{
    return &r->chain[(int64_t)rank * r->nlanes + lane];
}

// Whether of two members of a group NCCL is done with `a` before `b` starts: a
// stream has its calls one after the other, axis by axis, and of an axis each
// collective, then in one call all that is sent and received. What does not go
// by NCCL comes last.
static bool is_ahead(const hd_replay *r, const hd_node *a, const hd_node *b)
{
    int lane = lane_of(r, a), other = lane_of(r, b);

    if (lane == 0 || other == 0 || lane != other)
        return lane != 0 && (other == 0 || lane < other);
    return a->kind == HD_NODE_COLLECTIVE &&
           (b->kind != HD_NODE_COLLECTIVE || a < b);
}

int64_t hd_replay_ahead(const hd_replay *replay, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(replay->graph, rank, step);
    int64_t n;

    if (replay->serial == 0)
        return -1;
    n = group_size(replay->graph, rank, node->head);
    for (int64_t i = node->head; i < node->head + n; i++)
        if (is_ahead(replay, hd_graph_node(replay->graph, rank, i), node) &&
            !hd_replay_is_done(replay, rank, i))
            return i;
    return -1;
}

int64_t hd_replay_blocker(const hd_replay *replay, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(replay->graph, rank, step);
    int lane = lane_of(replay, node);
    int64_t ahead, first = *chain_of(replay, rank, lane);

    if (hd_replay_state(replay, rank, step) == 0)
        return step;
    ahead = hd_replay_ahead(replay, rank, step);
    if (ahead >= 0)
        return ahead;
    return lane == 0 ? (first < step ? first : -1)
                     : (first < node->head ? first : -1);
}

// Starts what its stream has reached, up to the first transfer in issue order
// that may not start.
static bool start_in_order(hd_replay *r, int rank)
{
    int64_t last = r->runs * hd_graph_steps(r->graph, rank);
    int64_t *at = chain_of(r, rank, 0), before = *at;

    for (; *at < last; ++*at) {
        const hd_node *node = hd_graph_node(r->graph, rank, *at);

        if (!is_transfer(node) || lane_of(r, node) != 0)
            continue;
        if (hd_replay_state(r, rank, *at) == 0 ||
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
    const hd_graph *g = r->graph;
    int64_t last = hd_graph_steps(g, rank), n;
    int64_t *at = chain_of(r, rank, lane), head;
    bool moved = false;

    while (*at < last && (!is_transfer(hd_graph_node(g, rank, *at)) ||
                          lane_of(r, hd_graph_node(g, rank, *at)) != lane ||
                          hd_replay_is_done(r, rank, *at)))
        ++*at;
    if (*at == last)
        return false;
    head = hd_graph_node(g, rank, *at)->head;
    n = group_size(g, rank, head);
    for (int64_t i = head; i < head + n; i++) {
        if (lane_of(r, hd_graph_node(g, rank, i)) != lane ||
            hd_replay_state(r, rank, i) != HD_REACHED ||
            hd_replay_ahead(r, rank, i) >= 0)
            continue;
        start(r, rank, i);
        moved = true;
    }
    return moved;
}

// Whatever may start now.
static bool start_all(hd_replay *r, int rank)
{
    bool moved, ever = false;

    do {
        moved = start_in_order(r, rank);
        for (int lane = 1; lane < r->nlanes; lane++)
            moved |= start_serial(r, rank, lane);
        ever |= moved;
    } while (moved && r->nlanes > 1);
    return ever;
}

// ---------------------------------------------------------------- streams

// A transfer's stream goes on behind what the transfer waited for.
static void follow_peers(const hd_replay *r, int rank, int64_t step)
{
    const hd_graph *g = r->graph;
    const hd_node *node = hd_graph_node(g, rank, step);

    if (r->now == NULL)
        return;
    if (node->kind == HD_NODE_COLLECTIVE)
        follow(r, rank, node->stream, r->met_depth[meeting_of(r, rank, step)]);
    if (node->kind == HD_NODE_RECV)
        follow_send(r, rank, node->stream, node->peer,
                    hd_same_run(g, rank, step, node->peer, node->link));
}

static bool pass_transfers(hd_replay *r, int rank, int64_t step, int64_t n)
{
    const hd_graph *g = r->graph;

    if (hd_replay_state(r, rank, step) == 0) {
        for (int64_t i = 0; i < n; i++)
            r->state[slot_of(r, rank, step + i)] |= HD_REACHED;
        for (int64_t i = 0; i < n && r->blocking == HD_EAGER; i++)
            start(r, rank, step + i);
        if (r->blocking == HD_RENDEZVOUS)
            start_all(r, rank);
    }
    for (int64_t i = 0; i < n; i++)
        if (!hd_replay_defers(r, hd_graph_node(g, rank, step + i)) &&
            !hd_replay_is_done(r, rank, step + i))
            return false;
    for (int64_t i = 0; i < n; i++) {
        const hd_node *node = hd_graph_node(g, rank, step + i);

        if (!node->async)
            follow_peers(r, rank, step + i);
    }
    note_end(r, rank, hd_graph_node(g, rank, step)->stream, step, n);
    return true;
}

// Of each of the following: whether a step need not wait any more, and then its
// stream is behind what it waited for.

static bool is_over(const hd_replay *r, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(r->graph, rank, step);

    return hd_replay_defers(r, node) ? hd_replay_is_done(r, rank, step)
                                     : has_passed(r, rank, node->stream, step);
}

// The wait that is being tried, in one run and not EAGER.
static bool has_waited(const hd_replay *r, int rank, int64_t step)
{
    const hd_graph *g = r->graph;
    int64_t before = g->after != NULL ? g->after[g->first[rank] + step] : -1;

    return before < 0 || is_over(r, rank, before);
}

static bool is_recorded(const hd_replay *r, int rank, int64_t step)
{
    const hd_graph *g = r->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int64_t record = hd_same_run(g, rank, step, rank, node->link);

    if (node->link < 0)
        return true;
    if (!is_over(r, rank, record))
        return false;
    if (hd_graph_node(g, rank, record)->async)
        follow_send(r, rank, node->stream, rank, record);
    else
        follow_step(r, rank, node->stream, record);
    return true;
}

static bool is_joined(const hd_replay *r, int rank, int64_t step)
{
    for (int s = 1; s < r->graph->nstreams; s++)
        if (!has_passed(r, rank, s, step))
            return false;
    for (int s = 1; s < r->graph->nstreams && r->now != NULL; s++) {
        int64_t last = hd_graph_before(r->graph, rank, s, step);

        if (last >= 0)
            follow_step(r, rank, 0, last);
    }
    return true;
}

static bool is_forked(const hd_replay *r, int rank, int stream, int64_t step)
{
    int64_t fork = stream == 0 ? -1 : hd_graph_fork(r->graph, rank, step);

    if (fork < 0)
        return true;
    if (!has_passed(r, rank, 0, fork))
        return false;
    follow_step(r, rank, stream, fork);
    return true;
}

// Does the next step of a stream, or the next group; returns how many, 0 if
// they must wait.
static int64_t pass_step(hd_replay *r, int rank, int stream, int64_t step)
{
    const hd_node *node = hd_graph_node(r->graph, rank, step);
    int64_t n;

    if (!is_forked(r, rank, stream, step) || !has_waited(r, rank, step))
        return 0;
    if (is_transfer(node)) {
        n = group_size(r->graph, rank, step);
        return pass_transfers(r, rank, step, n) ? n : 0;
    }
    if (node->kind == HD_NODE_WAIT && !is_recorded(r, rank, step))
        return 0;
    if (node->kind == HD_NODE_JOIN && !is_joined(r, rank, step))
        return 0;
    note_start(r, rank, stream, step);
    note_end(r, rank, stream, step, 1);
    return 1;
}

static void find_next(hd_replay *r, int rank, int stream)
{
    int64_t at = *cursor_of(r, rank, stream);

    *next_of(r, rank, stream) =
        at < r->runs * hd_graph_length(r->graph, rank, stream)
            ? hd_graph_at(r->graph, rank, stream, at)
            : r->runs * hd_graph_steps(r->graph, rank);
}

static bool advance_stream(hd_replay *r, int rank, int stream)
{
    int64_t *at = cursor_of(r, rank, stream), before = *at;
    int64_t last = r->runs * hd_graph_steps(r->graph, rank);
    const int64_t *next = next_of(r, rank, stream);

    while (*next < last) {
        int64_t n = pass_step(r, rank, stream, *next);

        if (n == 0)
            return *at > before;
        *at += n;
        find_next(r, rank, stream);
        if (stream == 0 && *at == hd_graph_length(r->graph, rank, 0))
            note_turn(r, rank);
    }
    return *at > before;
}

static void advance_rank(hd_replay *r, int rank)
{
    bool moved = true;

    while (moved) {
        moved = r->serial != 0 && start_all(r, rank);
        for (int s = 0; s < r->graph->nstreams; s++)
            moved |= advance_stream(r, rank, s);
    }
}

// ------------------------------------------------------------------ whole

static hd_status allocate_depth(hd_replay *r, hd_diag *diag)
{
    const hd_graph *g = r->graph;
    int64_t steps = 2 * g->first[g->nranks];

    if (r->blocking != HD_EAGER)
        return HD_OK;
    HD_TRY(hd_clear_array((int64_t)g->nranks * g->nstreams, sizeof *r->now,
                          diag, (void **)&r->now));
    HD_TRY(hd_clear_array(g->nranks, sizeof *r->turn, diag, (void **)&r->turn));
    HD_TRY(hd_clear_array(steps, sizeof *r->start, diag, (void **)&r->start));
    HD_TRY(hd_clear_array(steps, sizeof *r->end, diag, (void **)&r->end));
    return hd_clear_array(2 * g->nmeetings, sizeof *r->met_depth, diag,
                          (void **)&r->met_depth);
}

static hd_status allocate(hd_replay *r, hd_diag *diag)
{
    const hd_graph *g = r->graph;

    HD_TRY(allocate_depth(r, diag));
    HD_TRY(hd_clear_array((int64_t)g->nranks * g->nstreams, sizeof *r->cursor,
                          diag, (void **)&r->cursor));
    HD_TRY(hd_clear_array((int64_t)g->nranks * g->nstreams, sizeof *r->next,
                          diag, (void **)&r->next));
    HD_TRY(hd_clear_array(2 * g->first[g->nranks], sizeof *r->state, diag,
                          (void **)&r->state));
    HD_TRY(hd_clear_array((int64_t)g->nranks * r->nlanes, sizeof *r->chain,
                          diag, (void **)&r->chain));
    HD_TRY(hd_clear_array(2 * g->nmeetings, sizeof *r->met, diag,
                          (void **)&r->met));
    HD_TRY(
        hd_clear_array(g->nranks, sizeof *r->queue, diag, (void **)&r->queue));
    return hd_clear_array(g->nranks, sizeof *r->queued, diag,
                          (void **)&r->queued);
}

static void advance_all(hd_replay *r)
{
    for (int rank = 0; rank < r->graph->nranks; rank++) {
        for (int stream = 0; stream < r->graph->nstreams; stream++)
            find_next(r, rank, stream);
        enqueue(r, rank);
    }
    while (r->nqueued > 0) {
        int rank = r->queue[r->queue_head];

        r->queue_head = (r->queue_head + 1) % r->graph->nranks;
        r->nqueued--;
        r->queued[rank] = false;
        advance_rank(r, rank);
    }
}

hd_status hd_replay_run(const hd_graph *graph, hd_blocking blocking,
                        unsigned serial, hd_diag *diag, hd_replay *out)
{
    hd_replay r = {.graph = graph,
                   .blocking = blocking,
                   .serial = serial,
                   .nlanes = serial != 0 ? 1 + graph->module->naxes : 1};
    hd_status status = allocate(&r, diag);

    r.runs = blocking == HD_EAGER ? 2 : 1;
    if (status != HD_OK) {
        hd_replay_free(&r);
        return status;
    }
    advance_all(&r);
    *out = r;
    return HD_OK;
}

void hd_replay_free(hd_replay *replay)
{
    free(replay->cursor);
    free(replay->next);
    free(replay->state);
    free(replay->chain);
    free(replay->met);
    free(replay->now);
    free(replay->start);
    free(replay->end);
    free(replay->turn);
    free(replay->met_depth);
    free(replay->queue);
    free(replay->queued);
    *replay = (hd_replay){0};
}

int64_t hd_replay_stuck(const hd_replay *replay, int rank, int stream)
{
    int64_t next = *next_of(replay, rank, stream);

    return next < replay->runs * hd_graph_steps(replay->graph, rank) ? next
                                                                     : -1;
}

bool hd_replay_is_over(const hd_replay *replay)
{
    for (int rank = 0; rank < replay->graph->nranks; rank++)
        for (int s = 0; s < replay->graph->nstreams; s++)
            if (hd_replay_stuck(replay, rank, s) >= 0)
                return false;
    return true;
}
