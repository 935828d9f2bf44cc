// See advance.h. A step starts when the schedule begins it and the host has
// issued it, a transfer when both sides have come to it. Each step remembers
// what its start was waiting for.
#include <heddle/simulate.h>

#include "simulate/advance.h"

#include "simulate/launch.h"
#include "simulate/processor.h"
#include "simulate/traffic.h"
#include "simulate/transfer.h"

static hd_lane *lane_of(hd_simulation *s, int rank, int stream)
{
    return &s->lane[(int64_t)rank * s->graph.nstreams + stream];
}

// The host issues a rank's steps one after the other, ahead of the device.
static bool is_issued(hd_simulation *s, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(&s->graph, rank, step);
    int64_t before =
        s->issued != NULL ? s->issued[s->graph.first[rank] + step] : step;
    double at = (double)(before + 1) * s->machine.issue;
    double *woken = &lane_of(s, rank, node->stream)->woken;
    int32_t id;

    if (s->agenda.now >= at - 1e-12)
        return true;
    if (*woken == at)
        return false;
    *woken = at;
    id = hd_agenda_add(&s->agenda, HD_TASK_WAKE, rank,
                       s->graph.first[rank] + step, 0);
    if (id != 0)
        hd_agenda_put(&s->agenda, id, at); // then, to the last bit
    return false;
}

// A group goes on if any of it may.
static bool is_busy(const hd_simulation *s, int rank, int64_t step)
{
    int64_t n = hd_graph_together(&s->graph, rank, step);

    for (int64_t i = step; i < step + n; i++)
        if (!hd_graph_is_busy(&s->graph, rank, i, s->busy))
            return false;
    return true;
}

// Beside a launch nothing starts that takes processors, from when its stream
// has come to it.
static bool may_begin(void *context, int rank, int64_t step)
{
    hd_simulation *s = context;
    int32_t launch = hd_graph_node(&s->graph, rank, step)->launch;
    int32_t *under_way = s->under_way != NULL ? &s->under_way[rank] : NULL;

    if (!is_issued(s, rank, step))
        return false;
    if (under_way == NULL || launch == *under_way)
        return true;
    if (*under_way >= 0)
        return launch < 0 && !is_busy(s, rank, step);
    if (launch >= 0 && hd_schedule_has_come(&s->schedule, rank, step))
        *under_way = launch;
    return true;
}

static void pass(void *context, int rank, int64_t step, int64_t n)
{
    const hd_simulation *s = context;
    int32_t launch = hd_graph_node(&s->graph, rank, step)->launch;

    (void)n; // a launch has no groups
    if (launch >= 0 && hd_graph_launched(&s->graph, rank, step) == step)
        s->under_way[rank] = -1;
}

// A kernel's own start and end are those of a launch's first product. What goes
// on while its collective moves bytes is what that leaves of a product.
static hd_cost cost_of(hd_simulation *s, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(&s->graph, rank, step);
    hd_cost cost = hd_simulation_cost(s, node);
    int64_t last;
    bool first = true;

    if (s->under_way == NULL || node->launch < 0)
        return cost;
    if (hd_launch_seconds(s, rank, step, &cost.seconds)) {
        cost.latency = 0;
        return cost;
    }
    last = hd_graph_launched(&s->graph, rank, step);
    for (int64_t i = node->launch; i <= last; i++) {
        const hd_node *other = hd_graph_node(&s->graph, rank, i);

        first &= i >= step || !hd_op_is(other->op, HD_UNIT_COMPUTE);
        if (other->kind == HD_NODE_COLLECTIVE)
            cost.seconds -= hd_simulation_cost(s, other).bytes /
                            s->machine.collective_bandwidth;
    }
    cost.latency = first ? cost.latency : 0;
    cost.seconds = cost.seconds > 0 ? cost.seconds : 0;
    return cost;
}

static void start_compute(hd_simulation *s, int rank, int64_t step)
{
    int64_t node = s->graph.first[rank] + step;
    hd_cost cost = cost_of(s, rank, step);
    const hd_node *n = hd_graph_node(&s->graph, rank, step);

    if (n->launch < 0 && s->machine.processors == 0 &&
        lane_of(s, rank, n->stream)->synced)
        cost.latency += s->machine.event;
    if (cost.latency > 0)
        hd_agenda_delay(&s->agenda, rank, node, cost.latency, cost.seconds);
    else
        hd_processor_start(s, rank, node, cost.seconds, false);
}

// A transfer moves its bytes, a kernel takes its share of the processor.
static void end_delay(hd_simulation *s, int32_t id)
{
    hd_task t = s->agenda.task[id];

    hd_agenda_drop(&s->agenda, id);
    if (hd_simulation_node(s, t.node)->kind == HD_NODE_PLAIN)
        hd_processor_start(s, t.rank, t.node, t.then, false);
    else
        hd_transfer_move(s, t.rank, t.node);
}

// What does not go by NCCL of the group that the stream has come to, where what
// does has ended.
static void reach_behind(hd_simulation *s, int rank, int64_t head)
{
    int64_t end = head + hd_graph_together(&s->graph, rank, head);
    hd_lane *lane =
        lane_of(s, rank, hd_graph_node(&s->graph, rank, head)->stream);

    lane->behind = 0;
    for (int64_t i = head; i < end; i++) {
        if (hd_turns_serve(&s->schedule, hd_graph_node(&s->graph, rank, i)))
            continue;
        if (hd_turns_ahead(&s->turns, &s->schedule, rank, i) >= 0) {
            lane->behind = head + 1;
            return;
        }
        hd_transfer_reach(s, rank, i);
    }
}

// Over NCCL: the transfers of a rank that may start now.
static hd_status reach_all(void *context, int rank)
{
    hd_simulation *s = context;
    int64_t step;

    while ((step = hd_turns_next(&s->turns, &s->schedule, rank)) >= 0)
        hd_transfer_reach(s, rank, step);
    for (int i = 0; i < s->graph.nstreams; i++)
        if (lane_of(s, rank, i)->behind > 0)
            reach_behind(s, rank, lane_of(s, rank, i)->behind - 1);
    return s->agenda.status;
}

static hd_status begin(void *context, int rank, int64_t step, int64_t n)
{
    hd_simulation *s = context;
    const hd_node *node = hd_graph_node(&s->graph, rank, step);
    hd_lane *lane = lane_of(s, rank, node->stream);

    (void)n; // they have all come
    if (node->kind >= HD_NODE_SEND) {
        lane->synced = false;
        reach_behind(s, rank, step);
        return s->schedule.held != 0 ? reach_all(s, rank) : s->agenda.status;
    }
    hd_simulation_begin(s, rank, step);
    if (hd_op_is(node->op, HD_UNIT_COMPUTE))
        start_compute(s, rank, step);
    else
        hd_simulation_end(s, rank, step);
    lane->synced = hd_op_sync(node->op) == HD_SYNC_WAIT ||
                   hd_op_sync(node->op) == HD_SYNC_RECORD;
    return s->agenda.status;
}

// Whatever `cause` has let go on.
static void go_on(hd_simulation *s, int rank, int64_t cause)
{
    hd_status status;

    s->cause = cause;
    status = hd_schedule_advance(&s->schedule, rank);
    if (s->agenda.status == HD_OK)
        s->agenda.status = status;
}

// All that were in it go on.
static void end_transfer(hd_simulation *s, int64_t node)
{
    const hd_graph *g = &s->graph;
    const hd_node *n = &g->node[node];
    int64_t recv;

    hd_transfer_end(s, node);
    if (n->kind == HD_NODE_COLLECTIVE) {
        for (const hd_member *m = hd_graph_members(g, n->rendezvous);
             m < hd_graph_members(g, n->rendezvous + 1); m++)
            go_on(s, m->rank, g->first[m->rank] + m->step);
        return;
    }
    recv = g->first[n->peer] + n->partner;
    go_on(s, n->peer, recv);
    go_on(s, g->node[recv].peer, node);
}

static void end_compute(hd_simulation *s, int32_t id)
{
    hd_task t = s->agenda.task[id];
    const hd_node *node = hd_simulation_node(s, t.node);

    hd_processor_end(s, id, node->kind != HD_NODE_PLAIN);
    if (node->kind == HD_NODE_COLLECTIVE && --s->pending[node->rendezvous] > 0)
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
        end_delay(s, id);
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

bool hd_advance(hd_simulation *s)
{
    int32_t id;

    s->schedule.context = s;
    s->schedule.may_begin = may_begin;
    s->schedule.pass = s->under_way != NULL ? pass : NULL;
    s->schedule.begin = begin;
    s->schedule.wake = s->schedule.held != 0 ? reach_all : NULL;
    for (int rank = 0; rank < s->graph.nranks; rank++)
        go_on(s, rank, HD_HOST);
    while ((id = hd_agenda_next(&s->agenda)) != 0)
        deal_with(s, id);
    for (int rank = 0; rank < s->graph.nranks; rank++)
        hd_simulation_settle(s, rank);
    return s->agenda.status == HD_OK && hd_schedule_is_over(&s->schedule);
}
