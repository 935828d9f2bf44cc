// See traffic.h. Each flow and collective is a task whose rate changes only
// when a neighbour starts or ends.
#include <heddle/simulate.h>

#include "simulate/traffic.h"

#include "simulate/processor.h"

// Flows collide where they are several peers'; collectives count as peers.
static double link_share(const hd_simulation *s, const hd_peers *peers,
                         int gathers)
{
    int64_t n = peers->flows + gathers;
    bool one = gathers == 0 && (uint64_t)peers->flows * peers->squares ==
                                   peers->sum * peers->sum;

    return s->machine.link * (one || n == 1 ? 1 : s->machine.collision) /
           (double)n;
}

static void count_flow(hd_peers *peers, int peer, int by)
{
    uint64_t p = (uint64_t)peer;

    peers->flows += by;
    peers->sum += (uint64_t)by * p; // 2^64 - 1 takes one away
    peers->squares += (uint64_t)by * p * p;
}

static void count_flows(hd_simulation *s, int from, int to, int by)
{
    int way = hd_simulation_way(s, from, to);

    count_flow(&s->activity[from].sending[way], to, by);
    count_flow(&s->activity[to].receiving[way], from, by);
}

// Bytes a second between two ranks as things are now.
static double flow_speed(const hd_simulation *s, int from, int to)
{
    const hd_activity *a = &s->activity[from], *b = &s->activity[to];
    int way = hd_simulation_way(s, from, to);
    int64_t out = a->sending[way].flows + a->gathering[way];
    int64_t in = b->receiving[way].flows + b->gathering[way];

    if (way == HD_FAR)
        return s->machine.network_bandwidth / (double)(out > in ? out : in);
    return hd_simulation_least(
        hd_simulation_least(
            link_share(s, &a->sending[way], a->gathering[way]),
            link_share(s, &b->receiving[way], b->gathering[way])),
        s->machine.copy_bandwidth);
}

int hd_traffic_way(const hd_simulation *s, int64_t rendezvous)
{
    const hd_graph *g = &s->graph;

    return hd_simulation_way(s, hd_graph_members(g, rendezvous)->rank,
                             hd_graph_members(g, rendezvous + 1)[-1].rank);
}

// How many members of a rendezvous are on the node that has the fewest: they
// follow each other, so that only the first and the last node may lack some.
static int64_t count_beside(const hd_simulation *s, int64_t rendezvous)
{
    const hd_graph *g = &s->graph;
    const hd_member *first = hd_graph_members(g, rendezvous);
    int64_t n = hd_graph_meets(g, rendezvous), head = 1, tail = 1;

    while (head < n &&
           hd_simulation_way(s, first->rank, first[head].rank) == HD_NEAR)
        head++;
    while (tail < n && hd_simulation_way(s, first[n - 1].rank,
                                         first[n - 1 - tail].rank) == HD_NEAR)
        tail++;
    return head < tail ? head : tail;
}

// Bytes a second that each member of a collective receives while nothing else
// goes on. What all ranks of a node need comes in once, over the networks of
// all of them, and goes on over links; of an all_to_all all that comes from
// other nodes is for one rank alone.
static double gather_bandwidth(const hd_simulation *s, const hd_node *node)
{
    const hd_graph *g = &s->graph;
    double n, beside, speed = s->machine.network_bandwidth;

    if (hd_traffic_way(s, node->rendezvous) == HD_NEAR)
        return s->machine.collective_bandwidth;
    n = (double)hd_graph_meets(g, node->rendezvous);
    beside = (double)count_beside(s, node->rendezvous);
    speed *=
        node->op->code == HD_OP_ALL_TO_ALL ? (n - 1) / (n - beside) : beside;
    return hd_simulation_least(speed, s->machine.collective_bandwidth);
}

// The same as things are now. It is kept with its first member, on whose links
// the others' are taken to be alike.
static double gather_speed(const hd_simulation *s, const hd_task *t)
{
    const hd_node *node = hd_simulation_node(s, t->node);
    const hd_activity *a = &s->activity[t->rank];
    int way = hd_traffic_way(s, node->rendezvous);
    bool flows = a->sending[way].flows + a->receiving[way].flows > 0;

    return gather_bandwidth(s, node) / (a->gathering[way] + flows);
}

// What is on the links of a rank goes on at another speed.
static void share_links(hd_simulation *s, int rank)
{
    for (int k = 0; k < 2; k++)
        for (int32_t id = s->activity[rank].flows[k]; id != 0;
             id = s->agenda.task[id].next[k]) {
            const hd_task *t = &s->agenda.task[id];

            hd_agenda_rate(
                &s->agenda, id,
                t->kind == HD_TASK_GATHER
                    ? gather_speed(s, t)
                    : flow_speed(s, t->rank,
                                 hd_simulation_node(s, t->node)->peer));
        }
}

static void put_on_links(hd_simulation *s, int32_t id)
{
    int from = s->agenda.task[id].rank;
    int to = hd_simulation_node(s, s->agenda.task[id].node)->peer;

    count_flows(s, from, to, 1);
    hd_task_link(&s->agenda, &s->activity[from].flows[0], id, 0);
    hd_task_link(&s->agenda, &s->activity[to].flows[1], id, 1);
    share_links(s, from);
    share_links(s, to);
}

// The stream of a deferred put, which does not wait for it, but whose copies
// follow each other all the same; else NULL.
static hd_lane *queue_of(const hd_simulation *s, int from, int64_t send)
{
    const hd_node *node = hd_simulation_node(s, send);

    return hd_schedule_defers(&s->schedule, node) &&
                   hd_op_key(node->op, HD_KEY_GET) == NULL
               ? &s->lane[(int64_t)from * s->graph.nstreams + node->stream]
               : NULL;
}

// As which a put counts that begins behind another one's end.
static double begin_bytes(const hd_simulation *s, int from, int64_t send)
{
    return hd_simulation_way(s, from, hd_simulation_node(s, send)->peer) ==
                   HD_NEAR
               ? s->machine.copy_latency * s->machine.copy_bandwidth
               : 0;
}

void hd_traffic_start_flow(hd_simulation *s, int from, int64_t send,
                           double bytes)
{
    hd_lane *queue = queue_of(s, from, send);
    bool waits = queue != NULL && queue->flow != 0;
    int32_t id =
        hd_agenda_add(&s->agenda, HD_TASK_FLOW, from, send,
                      bytes + (waits ? begin_bytes(s, from, send) : 0));

    if (id == 0)
        return;
    if (waits) {
        s->agenda.task[queue->last].behind = id;
        queue->last = id;
        return;
    }
    if (queue != NULL)
        queue->flow = queue->last = id;
    put_on_links(s, id);
}

void hd_traffic_end_flow(hd_simulation *s, int32_t id)
{
    int from = s->agenda.task[id].rank;
    int to = hd_simulation_node(s, s->agenda.task[id].node)->peer;
    hd_lane *queue = queue_of(s, from, s->agenda.task[id].node);

    count_flows(s, from, to, -1);
    hd_task_unlink(&s->agenda, &s->activity[from].flows[0], id, 0);
    hd_task_unlink(&s->agenda, &s->activity[to].flows[1], id, 1);
    if (queue != NULL)
        queue->flow = s->agenda.task[id].behind;
    hd_agenda_drop(&s->agenda, id);
    share_links(s, from);
    share_links(s, to);
    if (queue != NULL && queue->flow != 0)
        put_on_links(s, queue->flow);
}

void hd_traffic_count(hd_simulation *s, int64_t rendezvous, int by)
{
    const hd_graph *g = &s->graph;
    int way = hd_traffic_way(s, rendezvous);

    for (const hd_member *m = hd_graph_members(g, rendezvous);
         m < hd_graph_members(g, rendezvous + 1); m++) {
        int rank = m->rank;

        s->activity[rank].gathering[way] += by;
        share_links(s, rank);
        hd_processor_share(s, rank);
    }
}

void hd_traffic_start_gather(hd_simulation *s, int64_t node, double bytes)
{
    const hd_graph *g = &s->graph;
    int rank = hd_graph_members(g, g->node[node].rendezvous)->rank;
    int32_t id = hd_agenda_add(&s->agenda, HD_TASK_GATHER, rank, node, bytes);

    if (id == 0)
        return;
    hd_task_link(&s->agenda, &s->activity[rank].flows[0], id, 0);
    share_links(s, rank);
}

void hd_traffic_end_gather(hd_simulation *s, int32_t id)
{
    int rank = s->agenda.task[id].rank;

    hd_task_unlink(&s->agenda, &s->activity[rank].flows[0], id, 0);
    hd_agenda_drop(&s->agenda, id);
}
