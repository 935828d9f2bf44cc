// See transfer.h. Where processors copy, a put is the sender's work, a get the
// receiver's, and of a collective each rank brings its own part, but the root
// of a reduce fetches all.
#include <heddle/simulate.h>

#include "simulate/transfer.h"

#include "ir/transport.h"
#include "simulate/processor.h"
#include "simulate/traffic.h"

static void count_transfer(hd_simulation *s, int rank, int by)
{
    hd_simulation_settle(s, rank);
    s->activity[rank].ntransfers += by;
}

// Until the rank has met its peers, from its first transfer on.
static double meeting(hd_simulation *s, int rank)
{
    hd_activity *a = &s->activity[rank];

    if (a->ready <= 0)
        a->ready = s->agenda.now + s->machine.run;
    return a->ready > s->agenda.now ? a->ready - s->agenda.now : 0;
}

// Both sides have come to it: the fixed part, and then the bytes.
static void start_pair(hd_simulation *s, int sender, int64_t send)
{
    const hd_node *node = hd_graph_node(&s->graph, sender, send);
    bool near = hd_simulation_way(s, sender, node->peer) == HD_NEAR;
    double bytes = hd_simulation_cost(s, node).bytes;
    double here = meeting(s, sender), there = meeting(s, node->peer);

    hd_simulation_begin(s, sender, send);
    hd_simulation_begin(s, node->peer, node->partner);
    count_transfer(s, sender, 1);
    count_transfer(s, node->peer, 1);
    if (near)
        s->prediction.bytes_copied += bytes;
    else
        s->prediction.bytes_networked += bytes;
    hd_agenda_delay(&s->agenda, sender, s->graph.first[sender] + send,
                    (near ? s->machine.hop + s->machine.copy_latency
                          : s->machine.network_latency) +
                        (here > there ? here : there),
                    0);
}

// Of a large all_reduce that does not meet its peers by itself each rank
// fetches the shares of the others, one copy after the other, and says so.
static double fetch_latency(const hd_simulation *s, const hd_node *node,
                            int64_t ranks, double bytes)
{
    const hd_machine *m = &s->machine;
    double n = (double)ranks;

    if (m->processors > 0 || node->op->code != HD_OP_ALL_REDUCE || ranks < 3)
        return 0;
    // Received, 2 (n - 1) / n of the result; saved, (n - 1) (n - 2) / n.
    if (bytes * (n - 2) / 2 < (double)HD_SHARES_SAVE ||
        (!s->apart && bytes <= (double)HD_MEETING_MOST))
        return 0;
    return (n - 1) * m->copy_latency + m->hop;
}

// What is reduced within a node is a kernel that meets its peers by itself
// where all of these are on one stream; on several, words stand before and
// behind it.
static double latency_of(const hd_simulation *s, int64_t rendezvous,
                         const hd_node *node, double bytes)
{
    const hd_machine *m = &s->machine;

    if (hd_traffic_way(s, rendezvous) == HD_FAR)
        return m->collective_latency + m->network_latency;
    if (!hd_simulation_reduces(node))
        return m->collective_latency;
    return hd_simulation_least(m->collective_latency,
                               m->reduction_latency + (s->apart ? m->hop : 0)) +
           fetch_latency(s, node, hd_graph_meets(&s->graph, rendezvous), bytes);
}

static void start_rendezvous(hd_simulation *s, int64_t rendezvous)
{
    const hd_graph *g = &s->graph;
    const hd_member *first = hd_graph_members(g, rendezvous);
    const hd_node *node = hd_graph_node(g, first->rank, first->step);
    int64_t n = hd_graph_meets(g, rendezvous);
    double each = hd_simulation_cost(s, node).bytes, bytes = each * (double)n;
    double latency = latency_of(s, rendezvous, node, each), run = 0;
    // Its kernels wait for each other in any case.
    bool meets =
        hd_simulation_reduces(node) && hd_traffic_way(s, rendezvous) == HD_NEAR;

    if (hd_op_move(node->op) == HD_MOVE_BROADCAST)
        bytes -= bytes / (double)n;
    if (hd_op_move(node->op) == HD_MOVE_REDUCE)
        bytes /= (double)n;
    for (int64_t i = 0; i < n; i++) {
        double waits = meets ? 0 : meeting(s, first[i].rank);

        run = run > waits ? run : waits;
        hd_simulation_begin(s, first[i].rank, first[i].step);
        count_transfer(s, first[i].rank, 1);
    }
    if (hd_traffic_way(s, rendezvous) == HD_FAR)
        s->prediction.bytes_networked += bytes;
    else
        s->prediction.bytes_gathered += bytes;
    hd_traffic_count(s, rendezvous, 1);
    hd_agenda_delay(&s->agenda, first->rank,
                    g->first[first->rank] + first->step, latency + run, 0);
}

void hd_transfer_reach(hd_simulation *s, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(&s->graph, rank, step);

    if (!hd_schedule_meet(&s->schedule, rank, step))
        return;
    if (node->kind == HD_NODE_COLLECTIVE)
        start_rendezvous(s, node->rendezvous);
    else if (node->kind == HD_NODE_SEND)
        start_pair(s, rank, step);
    else
        start_pair(s, node->peer, node->partner);
}

static void move_pair(hd_simulation *s, int sender, int64_t at, double bytes)
{
    const hd_node *node = hd_simulation_node(s, at);
    bool get = hd_op_key(node->op, HD_KEY_GET) != NULL;

    if (hd_processor_copies(s) &&
        hd_simulation_way(s, sender, node->peer) == HD_NEAR)
        hd_processor_start(s, get ? node->peer : sender, at,
                           bytes / s->machine.copy_bandwidth, true);
    else
        hd_traffic_start_flow(s, sender, at, bytes);
}

static void move_gather(hd_simulation *s, int64_t at, double bytes)
{
    const hd_graph *g = &s->graph;
    const hd_node *node = hd_simulation_node(s, at);
    int64_t rendezvous = node->rendezvous;

    if (!hd_processor_copies(s) || hd_traffic_way(s, rendezvous) == HD_FAR) {
        hd_traffic_start_gather(s, at, bytes);
        return;
    }
    s->pending[rendezvous] = 0;
    for (const hd_member *m = hd_graph_members(g, rendezvous);
         m < hd_graph_members(g, rendezvous + 1); m++) {
        int rank = m->rank;

        if (hd_op_move(node->op) == HD_MOVE_REDUCE && rank != node->peer)
            continue;
        s->pending[rendezvous]++;
        hd_processor_start(s, rank, g->first[rank] + m->step,
                           bytes / s->machine.copy_bandwidth, true);
    }
}

void hd_transfer_move(hd_simulation *s, int rank, int64_t at)
{
    double bytes = hd_simulation_cost(s, hd_simulation_node(s, at)).bytes;

    if (hd_simulation_node(s, at)->kind == HD_NODE_COLLECTIVE)
        move_gather(s, at, bytes);
    else
        move_pair(s, rank, at, bytes);
}

static void end_of(hd_simulation *s, int rank, int64_t step)
{
    hd_simulation_end(s, rank, step);
    count_transfer(s, rank, -1);
}

void hd_transfer_end(hd_simulation *s, int64_t at)
{
    const hd_graph *g = &s->graph;
    const hd_node *node = &g->node[at];

    if (node->kind == HD_NODE_COLLECTIVE) {
        hd_traffic_count(s, node->rendezvous, -1);
        for (const hd_member *m = hd_graph_members(g, node->rendezvous);
             m < hd_graph_members(g, node->rendezvous + 1); m++)
            end_of(s, m->rank, m->step);
        return;
    }
    end_of(s, node->peer, node->partner);
    node = &g->node[g->first[node->peer] +
                    node->partner]; // whose peer is the sender
    end_of(s, node->peer, node->partner);
}
