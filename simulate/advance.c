// See advance.h. Streams are FIFO, a step starts when all that it waits for is
// over and the host has issued it, a transfer when both sides have come to it.
// Each step remembers what its start was waiting for.
#include "simulate/advance.h"

#include "simulate/processor.h"
#include "simulate/traffic.h"
#include "simulate/transfer.h"

static hd_lane *lane_of(const hd_simulation *s, int rank, int stream)
{
    return &s->lane[(int64_t)rank * s->graph.nstreams + stream];
}

static bool has_passed(const hd_simulation *s, int rank, int stream,
                       int64_t step)
{
    return lane_of(s, rank, stream)->next > step;
}

static bool is_joined(const hd_simulation *s, int rank, int64_t step)
{
    for (int stream = 1; stream < s->graph.nstreams; stream++)
        if (!has_passed(s, rank, stream, step))
            return false;
    return true;
}

static bool is_recorded(const hd_simulation *s, int rank, const hd_node *wait)
{
    const hd_node *record;

    if (wait->link < 0)
        return true;
    record = hd_graph_node(&s->graph, rank, wait->link);
    return record->async ? hd_simulation_has(s, rank, wait->link, HD_STEP_ENDED)
                         : has_passed(s, rank, record->stream, wait->link);
}

// The host issues a rank's steps one after the other, ahead of the device.
static bool is_issued(hd_simulation *s, int rank, hd_lane *lane)
{
    double at = (double)(lane->next + 1) * s->machine.issue;
    int32_t id;

    if (s->agenda.now >= at - 1e-12)
        return true;
    if (lane->woken == at)
        return false;
    lane->woken = at;
    id = hd_agenda_add(&s->agenda, HD_TASK_WAKE, rank,
                       s->graph.first[rank] + lane->next, 0);
    if (id != 0)
        hd_agenda_put(&s->agenda, id, at); // then, to the last bit
    return false;
}

static bool may_start(hd_simulation *s, int rank, int stream)
{
    hd_lane *lane = lane_of(s, rank, stream);
    const hd_node *node = hd_graph_node(&s->graph, rank, lane->next);

    if (!is_issued(s, rank, lane))
        return false;
    if (stream > 0 && node->fork >= 0 && !has_passed(s, rank, 0, node->fork))
        return false;
    if (node->kind == HD_NODE_WAIT)
        return is_recorded(s, rank, node);
    return node->kind != HD_NODE_JOIN || is_joined(s, rank, lane->next);
}

// How many steps the stream has gone past: a group, or none yet.
static int64_t pass_transfers(hd_simulation *s, int rank, int64_t step)
{
    const hd_graph *g = &s->graph;
    int64_t n = 1, all = hd_graph_steps(g, rank);

    while (step + n < all && hd_graph_node(g, rank, step + n)->head == step)
        n++;
    if (!hd_simulation_has(s, rank, step, HD_STEP_REACHED))
        for (int64_t i = step; i < step + n; i++)
            hd_transfer_reach(s, rank, i);
    for (int64_t i = step; i < step + n; i++)
        if (!hd_graph_node(g, rank, i)->async &&
            !hd_simulation_has(s, rank, i, HD_STEP_ENDED))
            return 0;
    return n;
}

static int64_t pass_step(hd_simulation *s, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(&s->graph, rank, step);

    if (node->kind >= HD_NODE_SEND)
        return pass_transfers(s, rank, step);
    if (!hd_op_is(node->op, HD_UNIT_COMPUTE)) {
        hd_simulation_begin(s, rank, step);
        hd_simulation_end(s, rank, step);
        return 1;
    }
    if (!hd_simulation_has(s, rank, step, HD_STEP_STARTED)) {
        hd_simulation_begin(s, rank, step);
        hd_processor_start(s, rank, s->graph.first[rank] + step,
                           hd_simulation_cost(s, node->op).seconds, false);
    }
    return hd_simulation_has(s, rank, step, HD_STEP_ENDED) ? 1 : 0;
}

static void find_next(const hd_simulation *s, int rank, int stream)
{
    hd_lane *lane = lane_of(s, rank, stream);

    lane->next = lane->cursor < hd_graph_length(&s->graph, rank, stream)
                     ? hd_graph_at(&s->graph, rank, stream, lane->cursor)
                     : hd_graph_steps(&s->graph, rank);
}

static bool advance_stream(hd_simulation *s, int rank, int stream)
{
    hd_lane *lane = lane_of(s, rank, stream);
    int64_t before = lane->cursor, all = hd_graph_steps(&s->graph, rank), n;

    while (lane->next < all) {
        // What has started may end though nothing else may start.
        if (!hd_simulation_has(s, rank, lane->next,
                               HD_STEP_REACHED | HD_STEP_STARTED) &&
            !may_start(s, rank, stream))
            break;
        n = pass_step(s, rank, lane->next);
        if (n == 0)
            break;
        lane->cursor += n;
        find_next(s, rank, stream);
    }
    return lane->cursor > before;
}

// Whatever `cause` has let go on.
static void go_on(hd_simulation *s, int rank, int64_t cause)
{
    bool moved = true;

    s->cause = cause;
    while (moved) {
        moved = false;
        for (int stream = 0; stream < s->graph.nstreams; stream++)
            moved |= advance_stream(s, rank, stream);
    }
}

// All that were in it go on.
static void end_transfer(hd_simulation *s, int64_t node)
{
    const hd_graph *g = &s->graph;
    const hd_node *n = &g->node[node];
    int64_t recv;

    hd_transfer_end(s, node);
    if (n->kind == HD_NODE_COLLECTIVE) {
        for (int64_t i = g->meeting[n->link]; i < g->meeting[n->link + 1]; i++)
            go_on(s, g->member[i].rank,
                  g->first[g->member[i].rank] + g->member[i].step);
        return;
    }
    recv = g->first[n->peer] + n->link;
    go_on(s, n->peer, recv);
    go_on(s, g->node[recv].peer, node);
}

static void end_compute(hd_simulation *s, int32_t id)
{
    hd_task t = s->agenda.task[id];
    const hd_node *node = hd_simulation_node(s, t.node);

    hd_processor_end(s, id, node->kind != HD_NODE_PLAIN);
    if (node->kind == HD_NODE_COLLECTIVE && --s->pending[node->link] > 0)
        return;
    if (node->kind != HD_NODE_PLAIN) {
        end_transfer(s, t.node);
        return;
    }
    hd_simulation_end(s, t.rank, t.node - s->graph.first[t.rank]);
    go_on(s, t.rank, t.node);
}

static void deal_with(hd_simulation *s, int32_t id)
{
    hd_task t = s->agenda.task[id];

    switch (t.kind) {
    case HD_TASK_COMPUTE:
        end_compute(s, id);
        break;
    case HD_TASK_DELAY:
        hd_agenda_drop(&s->agenda, id);
        hd_transfer_move(s, t.rank, t.node);
        break;
    case HD_TASK_FLOW:
        hd_traffic_end_flow(s, id);
        end_transfer(s, t.node);
        break;
    case HD_TASK_GATHER:
        hd_traffic_end_gather(s, id);
        end_transfer(s, t.node);
        break;
    case HD_TASK_WAKE:
        hd_agenda_drop(&s->agenda, id);
        go_on(s, t.rank, HD_HOST);
        break;
    }
}

static bool is_over(const hd_simulation *s)
{
    for (int64_t i = 0; i < s->graph.first[s->graph.nranks]; i++)
        if ((s->step[i].state & HD_STEP_ENDED) == 0)
            return false;
    return true;
}

bool hd_advance(hd_simulation *s)
{
    int32_t id;

    for (int rank = 0; rank < s->graph.nranks; rank++) {
        for (int stream = 0; stream < s->graph.nstreams; stream++)
            find_next(s, rank, stream);
        go_on(s, rank, HD_HOST);
    }
    while ((id = hd_agenda_next(&s->agenda)) != 0)
        deal_with(s, id);
    for (int rank = 0; rank < s->graph.nranks; rank++)
        hd_simulation_settle(s, rank);
    return s->agenda.status == HD_OK && is_over(s);
}
