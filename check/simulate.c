// The graph of all ranks' steps under a cost model, event by event. Streams are
// FIFO, a step starts when all that it waits for is over and the host has
// issued it, a transfer when both sides have come to it. What works at the same
// time shares: compute its rank's processor (or the node's few), transfers the
// links of both ends. Each such task has work left and a rate, which changes
// only when a neighbour starts or ends.
//
// Each step remembers what its start was waiting for, so the critical path is
// read backwards from the last step that ended.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/cost.h"
#include "check/memory.h"
#include "check/overlap.h"

enum { NOBODY = -1, HOST = -2 }; // what a start was waiting for, beside steps

typedef enum task_kind {
    COMPUTE, // shares its rank's processor
    DELAY,   // the fixed part of a transfer
    FLOW,    // the bytes of a send and recv: shares two links
    GATHER,  // the bytes of a collective: shares the links of all members
    WAKE,    // the host has issued what a stream waits for
} task_kind;

typedef struct task {
    task_kind kind;
    int rank;     // of FLOW the sender
    int64_t node; // the step; of FLOW the send, of GATHER the first member
    double left;  // work, in seconds at rate 1
    double rate, since;
    int32_t version; // of its event in the heap
    // Neighbours in a list of its rank (or node), 0 at its ends. A flow is in
    // two: of what its sender sends, and of what its receiver receives.
    int32_t next[2], before[2];
} task;

typedef struct event {
    double time;
    int64_t order; // of equal times, the one that was put in first
    int32_t task, version;
} event;

// What a rank is doing, and since when.
typedef struct activity {
    int32_t tasks;    // first COMPUTE task
    int32_t flows[2]; // first FLOW that it sends, and that it receives
    int ncompute, ntransfers;
    int sending, receiving, gathering; // flows and collectives on its links
    double since, transferring, both;
} activity;

typedef struct lane {
    int64_t cursor; // steps of the stream that are over
    int64_t next;   // the one at the cursor; past all steps at the end
    double woken;   // when the host will have issued it; < 0 if not asked
} lane;

typedef struct progress {
    double start, end;
    int64_t cause; // node that its start waited for, NOBODY or HOST
    uint8_t state; // REACHED, STARTED, ENDED
} progress;

enum { REACHED = 1, STARTED = 2, ENDED = 4 };

typedef struct op_cost {
    const hd_op *op;
    hd_cost cost;
} op_cost;

struct hd_simulation {
    hd_graph graph; // owned
    hd_machine machine;
    double now;
    int64_t cause;          // what is being dealt with
    progress *step;         // owned, by node
    bool *critical;         // owned, by node
    lane *lane;             // owned, by rank and stream
    activity *activity;     // owned, by rank
    int32_t *node_tasks;    // owned: first COMPUTE task by node of the machine
    int *node_busy;         // owned: how many
    int32_t *met, *pending; // owned, by meeting: members there, tasks left
    task *task;             // owned, from 1
    int64_t ntasks, tasks_room, free_task;
    event *heap; // owned
    int64_t nevents, events_room, norders;
    op_cost *cost; // owned: a hash by op
    int64_t cost_room;
    hd_prediction prediction;
    hd_status status;
    hd_diag *diag;
};

typedef hd_simulation sim;

static const hd_node *node_at(const sim *s, int64_t node)
{
    return &s->graph.node[node];
}

static lane *lane_of(const sim *s, int rank, int stream)
{
    return &s->lane[(int64_t)rank * s->graph.nstreams + stream];
}

// ------------------------------------------------------------------ costs

static hd_cost cost_of(sim *s, const hd_op *op)
{
    uint64_t at = ((uintptr_t)op >> 4) * 0x9e3779b97f4a7c15u >> 20;

    for (;; at++) {
        op_cost *c = &s->cost[at & (uint64_t)(s->cost_room - 1)];

        if (c->op == op)
            return c->cost;
        if (c->op != NULL)
            continue;
        c->op = op;
        c->cost = hd_cost_of(s->graph.module, &s->machine, op);
        return c->cost;
    }
}

static int host_of(const sim *s, int rank)
{
    return rank / s->machine.ranks_per_node;
}

// ------------------------------------------------------------------- heap

static bool is_earlier(const event *a, const event *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void push(sim *s, event e)
{
    int64_t i = s->nevents;

    if (s->status == HD_OK) // running out is said once
        s->status = hd_grow((void **)&s->heap, &s->events_room, i + 1,
                            sizeof *s->heap, s->diag);
    if (s->status != HD_OK)
        return;
    s->nevents++;
    e.order = s->norders++;
    while (i > 0 && is_earlier(&e, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = e;
}

static event pop(sim *s)
{
    event first = s->heap[0], last = s->heap[--s->nevents];
    int64_t i = 0;

    for (;;) {
        int64_t child = 2 * i + 1;

        if (child >= s->nevents)
            break;
        if (child + 1 < s->nevents &&
            is_earlier(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!is_earlier(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    if (s->nevents > 0)
        s->heap[i] = last;
    return first;
}

// ------------------------------------------------------------------ tasks

static int32_t new_task(sim *s, task_kind kind, int rank, int64_t node,
                        double work)
{
    int32_t id = (int32_t)s->free_task;
    int32_t version = 0;

    if (id != 0) {
        s->free_task = s->task[id].next[0];
        version = s->task[id].version;
    } else {
        if (s->status == HD_OK)
            s->status = hd_grow((void **)&s->task, &s->tasks_room,
                                s->ntasks + 2, sizeof *s->task, s->diag);
        if (s->status != HD_OK)
            return 0;
        id = (int32_t)++s->ntasks;
    }
    s->task[id] = (task){kind, rank, node, work, 0, s->now, version, {0}, {0}};
    return id;
}

static void set_rate(sim *s, int32_t id, double rate)
{
    task *t = &s->task[id];

    if (t->rate == rate && rate > 0)
        return;
    t->left -= t->rate * (s->now - t->since);
    t->left = t->left > 0 ? t->left : 0;
    t->since = s->now;
    t->rate = rate;
    push(s, (event){s->now + t->left / rate, 0, id, ++t->version});
}

static void free_task(sim *s, int32_t id)
{
    s->task[id].version++;
    s->task[id].next[0] = (int32_t)s->free_task;
    s->free_task = id;
}

static void schedule(sim *s, task_kind kind, int rank, int64_t node,
                     double seconds)
{
    int32_t id = new_task(s, kind, rank, node, seconds);

    if (id != 0)
        set_rate(s, id, 1);
}

static void link_task(sim *s, int32_t *first, int32_t id, int k)
{
    s->task[id].next[k] = *first;
    if (*first != 0)
        s->task[*first].before[k] = id;
    *first = id;
}

static void unlink_task(sim *s, int32_t *first, int32_t id, int k)
{
    const task *t = &s->task[id];

    if (t->before[k] != 0)
        s->task[t->before[k]].next[k] = t->next[k];
    else
        *first = t->next[k];
    if (t->next[k] != 0)
        s->task[t->next[k]].before[k] = t->before[k];
}

// -------------------------------------------------------------- processors

// Brings the account of what the rank does up to now.
static void settle(sim *s, int rank)
{
    activity *a = &s->activity[rank];
    double past = s->now - a->since;

    a->since = s->now;
    if (a->ntransfers > 0)
        a->transferring += past;
    if (a->ntransfers > 0 && a->ncompute > 0)
        a->both += past;
}

static int32_t *tasks_of(sim *s, int rank)
{
    return s->machine.processors > 0 ? &s->node_tasks[host_of(s, rank)]
                                     : &s->activity[rank].tasks;
}

static double compute_rate(const sim *s, int rank)
{
    int busy;
    double share;

    if (s->machine.processors > 0) {
        busy = s->node_busy[host_of(s, rank)];
        return busy > s->machine.processors
                   ? (double)s->machine.processors / busy
                   : 1;
    }
    share =
        s->activity[rank].gathering > 0 ? 1 - s->machine.collective_units : 1;
    return share / s->activity[rank].ncompute;
}

static void share_processor(sim *s, int rank)
{
    for (int32_t id = *tasks_of(s, rank); id != 0; id = s->task[id].next[0])
        set_rate(s, id, compute_rate(s, s->task[id].rank));
}

static void start_compute(sim *s, int rank, int64_t node, double seconds,
                          bool transfer)
{
    int32_t id = new_task(s, COMPUTE, rank, node, seconds);

    if (id == 0)
        return;
    settle(s, rank);
    s->activity[rank].ncompute += !transfer;
    s->node_busy[host_of(s, rank)]++;
    link_task(s, tasks_of(s, rank), id, 0);
    share_processor(s, rank);
}

static void end_compute(sim *s, int32_t id, bool transfer)
{
    int rank = s->task[id].rank;

    settle(s, rank);
    s->activity[rank].ncompute -= !transfer;
    s->node_busy[host_of(s, rank)]--;
    unlink_task(s, tasks_of(s, rank), id, 0);
    free_task(s, id);
    share_processor(s, rank);
}

// ------------------------------------------------------------------- links

static double link_share(const sim *s, int flows)
{
    return flows <= 1 ? s->machine.link
                      : s->machine.link * s->machine.collision / flows;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

// Bytes a second between two ranks as things are now.
static double flow_speed(const sim *s, int from, int to)
{
    const activity *a = &s->activity[from], *b = &s->activity[to];
    double speed;

    if (host_of(s, from) != host_of(s, to))
        return s->machine.network_bandwidth /
               (a->sending > b->receiving ? a->sending : b->receiving);
    speed = least(link_share(s, a->sending + a->gathering),
                  link_share(s, b->receiving + b->gathering));
    return least(speed, s->machine.copy_bandwidth);
}

static void count_transfer(sim *s, int rank, int by)
{
    settle(s, rank);
    s->activity[rank].ntransfers += by;
}

static bool meets_afar(const sim *s, int64_t meeting)
{
    const hd_graph *g = &s->graph;

    return host_of(s, g->member[g->meeting[meeting]].rank) !=
           host_of(s, g->member[g->meeting[meeting + 1] - 1].rank);
}

// Bytes a second that each member of a collective receives. It is kept with its
// first member, on whose links the others' are taken to be alike.
static double gather_speed(const sim *s, const task *t)
{
    const activity *a = &s->activity[t->rank];

    return (meets_afar(s, node_at(s, t->node)->link)
                ? s->machine.network_bandwidth
                : s->machine.collective_bandwidth) /
           (a->gathering + (a->sending > 0));
}

// What is on the links of a rank goes on at another speed.
static void share_links(sim *s, int rank)
{
    for (int k = 0; k < 2; k++)
        for (int32_t id = s->activity[rank].flows[k]; id != 0;
             id = s->task[id].next[k]) {
            const task *t = &s->task[id];

            set_rate(s, id,
                     t->kind == GATHER
                         ? gather_speed(s, t)
                         : flow_speed(s, t->rank, node_at(s, t->node)->peer));
        }
}

static void start_flow(sim *s, int from, int64_t send, double bytes)
{
    int to = node_at(s, send)->peer;
    int32_t id = new_task(s, FLOW, from, send, bytes);

    if (id == 0)
        return;
    s->activity[from].sending++;
    s->activity[to].receiving++;
    link_task(s, &s->activity[from].flows[0], id, 0);
    link_task(s, &s->activity[to].flows[1], id, 1);
    share_links(s, from);
    share_links(s, to);
}

static void end_flow(sim *s, int32_t id)
{
    int from = s->task[id].rank, to = node_at(s, s->task[id].node)->peer;

    s->activity[from].sending--;
    s->activity[to].receiving--;
    unlink_task(s, &s->activity[from].flows[0], id, 0);
    unlink_task(s, &s->activity[to].flows[1], id, 1);
    free_task(s, id);
    share_links(s, from);
    share_links(s, to);
}

// Calls `by` +1 or -1 on the links of all members of a meeting.
static void count_gather(sim *s, int64_t meeting, int by)
{
    const hd_graph *g = &s->graph;

    for (int64_t i = g->meeting[meeting]; i < g->meeting[meeting + 1]; i++) {
        int rank = g->member[i].rank;

        s->activity[rank].gathering += by;
        share_links(s, rank);
        share_processor(s, rank);
    }
}

// ------------------------------------------------------------------ steps

static void advance(sim *s, int rank);

static void end_step(sim *s, int rank, int64_t step)
{
    progress *p = &s->step[s->graph.first[rank] + step];

    p->state |= ENDED;
    p->end = s->now;
}

static void begin_step(sim *s, int rank, int64_t step)
{
    progress *p = &s->step[s->graph.first[rank] + step];

    p->state |= STARTED;
    p->start = s->now;
    p->cause = s->cause;
}

static bool has_state(const sim *s, int rank, int64_t step, int state)
{
    return (s->step[s->graph.first[rank] + step].state & state) != 0;
}

static bool by_processors(const sim *s)
{
    return s->machine.processors > 0;
}

// Both sides have come to it: the fixed part, and then the bytes.
static void start_pair(sim *s, int sender, int64_t send)
{
    const hd_node *node = hd_graph_node(&s->graph, sender, send);
    bool near = host_of(s, sender) == host_of(s, node->peer);
    double bytes = cost_of(s, node->op).bytes;

    begin_step(s, sender, send);
    begin_step(s, node->peer, node->link);
    count_transfer(s, sender, 1);
    count_transfer(s, node->peer, 1);
    if (near)
        s->prediction.bytes_copied += bytes;
    else
        s->prediction.bytes_networked += bytes;
    schedule(s, DELAY, sender, s->graph.first[sender] + send,
             near ? s->machine.hop + s->machine.copy_latency
                  : s->machine.network_latency);
}

static void start_meeting(sim *s, int64_t meeting)
{
    const hd_graph *g = &s->graph;
    const hd_member *first = &g->member[g->meeting[meeting]];
    const hd_op *op = hd_graph_node(g, first->rank, first->step)->op;
    int64_t n = g->meeting[meeting + 1] - g->meeting[meeting];
    double bytes = cost_of(s, op).bytes * (double)n;

    if (op->code == HD_OP_BROADCAST)
        bytes -= bytes / (double)n;
    for (int64_t i = 0; i < n; i++) {
        begin_step(s, first[i].rank, first[i].step);
        count_transfer(s, first[i].rank, 1);
    }
    if (meets_afar(s, meeting))
        s->prediction.bytes_networked += bytes;
    else
        s->prediction.bytes_gathered += bytes;
    count_gather(s, meeting, 1);
    schedule(s, DELAY, first->rank, g->first[first->rank] + first->step,
             meets_afar(s, meeting) ? s->machine.network_latency
                                    : s->machine.collective_latency);
}

static void move_pair(sim *s, int sender, int64_t at, double bytes)
{
    const hd_node *node = node_at(s, at);
    bool get = hd_op_key(node->op, HD_KEY_GET) != NULL;

    if (by_processors(s) && host_of(s, sender) == host_of(s, node->peer))
        start_compute(s, get ? node->peer : sender, at,
                      bytes / s->machine.copy_bandwidth, true);
    else
        start_flow(s, sender, at, bytes);
}

static void move_gather(sim *s, int64_t at, double bytes)
{
    const hd_graph *g = &s->graph;
    int64_t meeting = node_at(s, at)->link;
    int rank = g->member[g->meeting[meeting]].rank;
    int32_t id;

    if (!by_processors(s) || meets_afar(s, meeting)) {
        id = new_task(s, GATHER, rank, at, bytes);
        if (id != 0) {
            link_task(s, &s->activity[rank].flows[0], id, 0);
            share_links(s, rank);
        }
        return;
    }
    s->pending[meeting] =
        (int32_t)(g->meeting[meeting + 1] - g->meeting[meeting]);
    for (int64_t i = g->meeting[meeting]; i < g->meeting[meeting + 1]; i++)
        start_compute(s, g->member[i].rank,
                      g->first[g->member[i].rank] + g->member[i].step,
                      bytes / s->machine.copy_bandwidth, true);
}

// After the fixed part. Where processors copy, a put is the sender's work, a
// get the receiver's, and of a collective each rank brings its own part.
static void move_bytes(sim *s, int rank, int64_t at)
{
    double bytes = cost_of(s, node_at(s, at)->op).bytes;

    if (node_at(s, at)->kind == HD_NODE_COLLECTIVE)
        move_gather(s, at, bytes);
    else
        move_pair(s, rank, at, bytes);
}

static void end_on(sim *s, int rank, int64_t step)
{
    end_step(s, rank, step);
    count_transfer(s, rank, -1);
    s->cause = s->graph.first[rank] + step;
    advance(s, rank);
}

static void end_pair(sim *s, int64_t at)
{
    const hd_graph *g = &s->graph;
    const hd_node *send = node_at(s, at);
    const hd_node *recv = &g->node[g->first[send->peer] + send->link];

    end_on(s, send->peer, send->link);
    end_on(s, recv->peer, recv->link);
}

static void end_meeting(sim *s, int64_t meeting)
{
    const hd_graph *g = &s->graph;

    count_gather(s, meeting, -1);
    for (int64_t i = g->meeting[meeting]; i < g->meeting[meeting + 1]; i++)
        end_on(s, g->member[i].rank, g->member[i].step);
}

// ---------------------------------------------------------------- streams

static bool has_passed(const sim *s, int rank, int stream, int64_t step)
{
    return lane_of(s, rank, stream)->next > step;
}

static bool is_joined(const sim *s, int rank, int64_t step)
{
    for (int stream = 1; stream < s->graph.nstreams; stream++)
        if (!has_passed(s, rank, stream, step))
            return false;
    return true;
}

static bool is_recorded(const sim *s, int rank, const hd_node *wait)
{
    const hd_node *record;

    if (wait->link < 0)
        return true;
    record = hd_graph_node(&s->graph, rank, wait->link);
    return record->async ? has_state(s, rank, wait->link, ENDED)
                         : has_passed(s, rank, record->stream, wait->link);
}

// The host issues a rank's steps one after the other, ahead of the device.
static bool is_issued(sim *s, int rank, lane *lane)
{
    double at = (double)(lane->next + 1) * s->machine.issue;

    if (s->now >= at - 1e-12)
        return true;
    if (lane->woken != at)
        schedule(s, WAKE, rank, s->graph.first[rank] + lane->next, at - s->now);
    lane->woken = at;
    return false;
}

static bool may_start(sim *s, int rank, int stream)
{
    lane *lane = lane_of(s, rank, stream);
    const hd_node *node = hd_graph_node(&s->graph, rank, lane->next);

    if (!is_issued(s, rank, lane))
        return false;
    if (stream > 0 && node->fork >= 0 && !has_passed(s, rank, 0, node->fork))
        return false;
    if (node->kind == HD_NODE_WAIT)
        return is_recorded(s, rank, node);
    return node->kind != HD_NODE_JOIN || is_joined(s, rank, lane->next);
}

static void reach(sim *s, int rank, int64_t step)
{
    const hd_graph *g = &s->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int64_t size;

    s->step[g->first[rank] + step].state |= REACHED;
    if (node->kind == HD_NODE_COLLECTIVE) {
        size = g->meeting[node->link + 1] - g->meeting[node->link];
        if (++s->met[node->link] == size)
            start_meeting(s, node->link);
    } else if (has_state(s, node->peer, node->link, REACHED)) {
        if (node->kind == HD_NODE_SEND)
            start_pair(s, rank, step);
        else
            start_pair(s, node->peer, node->link);
    }
}

// How many steps the stream has gone past: a group, or none yet.
static int64_t pass_transfers(sim *s, int rank, int64_t step)
{
    const hd_graph *g = &s->graph;
    int64_t n = 1, all = hd_graph_steps(g, rank);

    while (step + n < all && hd_graph_node(g, rank, step + n)->head == step)
        n++;
    if (!has_state(s, rank, step, REACHED))
        for (int64_t i = step; i < step + n; i++)
            reach(s, rank, i);
    for (int64_t i = step; i < step + n; i++)
        if (!hd_graph_node(g, rank, i)->async && !has_state(s, rank, i, ENDED))
            return 0;
    return n;
}

static int64_t pass_step(sim *s, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(&s->graph, rank, step);

    if (node->kind >= HD_NODE_SEND)
        return pass_transfers(s, rank, step);
    if (!hd_op_is(node->op, HD_UNIT_COMPUTE)) {
        begin_step(s, rank, step);
        end_step(s, rank, step);
        return 1;
    }
    if (!has_state(s, rank, step, STARTED)) {
        begin_step(s, rank, step);
        start_compute(s, rank, s->graph.first[rank] + step,
                      cost_of(s, node->op).seconds, false);
    }
    return has_state(s, rank, step, ENDED) ? 1 : 0;
}

static void find_next(const sim *s, int rank, int stream)
{
    lane *lane = lane_of(s, rank, stream);

    lane->next = lane->cursor < hd_graph_length(&s->graph, rank, stream)
                     ? hd_graph_at(&s->graph, rank, stream, lane->cursor)
                     : hd_graph_steps(&s->graph, rank);
}

static bool advance_stream(sim *s, int rank, int stream)
{
    lane *lane = lane_of(s, rank, stream);
    int64_t before = lane->cursor, all = hd_graph_steps(&s->graph, rank), n;

    while (lane->next < all) {
        // What has started may end though nothing else may start.
        if (!has_state(s, rank, lane->next, REACHED | STARTED) &&
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

static void advance(sim *s, int rank)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (int stream = 0; stream < s->graph.nstreams; stream++)
            moved |= advance_stream(s, rank, stream);
    }
}

// ------------------------------------------------------------------ events

static void end_compute_task(sim *s, int32_t id)
{
    task t = s->task[id];
    const hd_node *node = node_at(s, t.node);
    int64_t step = t.node - s->graph.first[t.rank];

    end_compute(s, id, node->kind != HD_NODE_PLAIN);
    if (node->kind == HD_NODE_COLLECTIVE) {
        if (--s->pending[node->link] == 0)
            end_meeting(s, node->link);
    } else if (node->kind == HD_NODE_SEND) {
        end_pair(s, t.node);
    } else {
        end_step(s, t.rank, step);
        s->cause = t.node;
        advance(s, t.rank);
    }
}

static void deal_with(sim *s, int32_t id)
{
    task t = s->task[id];

    switch (t.kind) {
    case COMPUTE:
        end_compute_task(s, id);
        break;
    case DELAY:
        free_task(s, id);
        move_bytes(s, t.rank, t.node);
        break;
    case FLOW:
        end_flow(s, id);
        end_pair(s, t.node);
        break;
    case GATHER:
        unlink_task(s, &s->activity[t.rank].flows[0], id, 0);
        free_task(s, id);
        end_meeting(s, node_at(s, t.node)->link);
        break;
    case WAKE:
        free_task(s, id);
        s->cause = HOST;
        advance(s, t.rank);
        break;
    }
}

static void run(sim *s)
{
    for (int rank = 0; rank < s->graph.nranks; rank++) {
        for (int stream = 0; stream < s->graph.nstreams; stream++)
            find_next(s, rank, stream);
        s->cause = HOST;
        advance(s, rank);
    }
    while (s->nevents > 0 && s->status == HD_OK) {
        event e = pop(s);

        if (s->task[e.task].version != e.version)
            continue;
        s->now = e.time;
        deal_with(s, e.task);
    }
    for (int rank = 0; rank < s->graph.nranks; rank++)
        settle(s, rank);
}

// ----------------------------------------------------------------- results

static void follow_path(sim *s)
{
    hd_prediction *p = &s->prediction;
    int64_t last = NOBODY, n = s->graph.first[s->graph.nranks];
    double until = 0;

    for (int64_t i = 0; i < n; i++)
        if (last < 0 || s->step[i].end > s->step[last].end)
            last = i;
    if (last >= 0)
        until = p->time = s->step[last].end;
    while (last >= 0 && !s->critical[last]) {
        const progress *step = &s->step[last];

        s->critical[last] = true;
        p->wait += until - step->end;
        if (node_at(s, last)->kind >= HD_NODE_SEND)
            p->transfer += step->end - step->start;
        else
            p->compute += step->end - step->start;
        until = step->start;
        last = step->cause;
    }
    p->wait += until;
}

static void sum_up(sim *s)
{
    double transferring = 0, both = 0;

    for (int rank = 0; rank < s->graph.nranks; rank++) {
        transferring += s->activity[rank].transferring;
        both += s->activity[rank].both;
    }
    s->prediction.overlap = transferring > 0 ? both / transferring : 0;
    for (const hd_buffer *b = s->graph.module->buffers; b != NULL; b = b->next)
        if (b->of == NULL && b->type.dtype != HD_EVENT)
            s->prediction.memory += (double)hd_type_local_elements(&b->type) *
                                    (double)hd_dtype_size(b->type.dtype);
    follow_path(s);
}

static bool is_over(const sim *s)
{
    for (int64_t i = 0; i < s->graph.first[s->graph.nranks]; i++)
        if ((s->step[i].state & ENDED) == 0)
            return false;
    return true;
}

// ------------------------------------------------------------------- whole

static int64_t count_ops(const hd_block *block)
{
    int64_t n = 0;

    for (const hd_stmt *stmt = block->first; stmt != NULL; stmt = stmt->next)
        n += 1 + count_ops(&stmt->body) + count_ops(&stmt->otherwise);
    return n;
}

static hd_status make_arrays(sim *s)
{
    const hd_graph *g = &s->graph;
    int64_t n = g->first[g->nranks];

    HD_TRY(hd_clear_array(n, sizeof *s->step, s->diag, (void **)&s->step));
    HD_TRY(
        hd_clear_array(n, sizeof *s->critical, s->diag, (void **)&s->critical));
    HD_TRY(hd_clear_array((int64_t)g->nranks * g->nstreams, sizeof *s->lane,
                          s->diag, (void **)&s->lane));
    HD_TRY(hd_clear_array(g->nranks, sizeof *s->activity, s->diag,
                          (void **)&s->activity));
    HD_TRY(hd_clear_array(g->nranks, sizeof *s->node_tasks, s->diag,
                          (void **)&s->node_tasks));
    HD_TRY(hd_clear_array(g->nranks, sizeof *s->node_busy, s->diag,
                          (void **)&s->node_busy));
    HD_TRY(hd_clear_array(g->nmeetings, sizeof *s->met, s->diag,
                          (void **)&s->met));
    HD_TRY(hd_clear_array(g->nmeetings, sizeof *s->pending, s->diag,
                          (void **)&s->pending));
    for (s->cost_room = 16; s->cost_room < 2 * count_ops(&g->module->body);)
        s->cost_room *= 2;
    return hd_clear_array(s->cost_room, sizeof *s->cost, s->diag,
                          (void **)&s->cost);
}

static hd_status simulate(sim *s, const hd_module *module)
{
    HD_TRY(hd_graph_create(module, s->diag, &s->graph));
    if (!hd_graph_is_matched(&s->graph)) {
        HD_TRY(hd_match(module, s->diag));
        return hd_fail(s->diag, HD_INVALID, "transfers do not match");
    }
    HD_TRY(make_arrays(s));
    run(s);
    HD_TRY(s->status);
    if (!is_over(s))
        return hd_fail(s->diag, HD_INVALID,
                       "%s deadlocks; hd_check shows where", module->name);
    sum_up(s);
    return s->prediction.overlap > 0 ? HD_OK
                                     : hd_overlap_lint(&s->graph, s->diag);
}

static bool is_positive(double x)
{
    return isfinite(x) && x > 0;
}

static hd_status check_machine(const hd_machine *m, hd_diag *diag)
{
    if (m->ranks_per_node < 1 || m->processors < 0 || m->units < 0 ||
        (m->units > 0 && (m->tile_m < 1 || m->tile_n < 1)))
        return hd_fail(diag, HD_ARGUMENT,
                       "machine: ranks_per_node and tiles are at least 1, "
                       "processors and units at least 0");
    if (!is_positive(m->memory) || !is_positive(m->matmul[HD_F32]) ||
        !is_positive(m->copy_bandwidth) || !is_positive(m->link) ||
        !is_positive(m->collective_bandwidth) ||
        !is_positive(m->network_bandwidth) || !is_positive(m->collision))
        return hd_fail(diag, HD_ARGUMENT,
                       "machine: rates and bandwidths are above 0");
    if (!(m->issue >= 0) || !(m->launch >= 0) || !(m->hop >= 0) ||
        !(m->copy_latency >= 0) || !(m->collective_latency >= 0) ||
        !(m->network_latency >= 0) || !(m->collective_units >= 0) ||
        !(m->collective_units < 1) || m->collision > 1)
        return hd_fail(diag, HD_ARGUMENT,
                       "machine: times are at least 0, shares from 0 to 1");
    return HD_OK;
}

hd_status hd_simulate(const hd_module *module, const hd_machine *machine,
                      hd_diag *diag, hd_simulation **out)
{
    const hd_source *outer;
    hd_simulation *s;
    hd_status status;

    if (module->stage != HD_STAGE_HOST)
        return hd_fail(diag, HD_ARGUMENT,
                       "only a complete host program is simulated");
    HD_TRY(check_machine(machine, diag));
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return hd_fail(diag, HD_NO_MEMORY, "out of memory in the simulator");
    s->machine = *machine;
    s->diag = diag;
    outer = hd_diag_source(diag, &module->source);
    status = simulate(s, module);
    hd_diag_source(diag, outer);
    s->diag = NULL;
    if (status != HD_OK)
        hd_simulation_destroy(s);
    else
        *out = s;
    return status;
}

void hd_simulation_destroy(hd_simulation *s)
{
    if (s == NULL)
        return;
    hd_graph_free(&s->graph);
    free(s->step);
    free(s->critical);
    free(s->lane);
    free(s->activity);
    free(s->node_tasks);
    free(s->node_busy);
    free(s->met);
    free(s->pending);
    free(s->task);
    free(s->heap);
    free(s->cost);
    free(s);
}

void hd_simulation_predict(const hd_simulation *s, hd_prediction *out)
{
    *out = s->prediction;
}

// ------------------------------------------------------------- measurement

// The later one of two causes, by its end.
static int64_t later(const sim *s, int64_t a, int64_t b)
{
    return b >= 0 && (a < 0 || s->step[b].end > s->step[a].end) ? b : a;
}

// What the stream was given before the step.
static int64_t before_on_stream(const sim *s, int rank, int64_t step)
{
    const hd_graph *g = &s->graph;
    const hd_node *node = hd_graph_node(g, rank, step);

    return node->place == 0
               ? NOBODY
               : g->first[rank] +
                     hd_graph_at(g, rank, node->stream, node->place - 1);
}

static int64_t cause_of_join(const sim *s, int rank, int64_t step,
                             int64_t cause)
{
    const hd_graph *g = &s->graph;

    for (int64_t i = 0; i < step; i++)
        if (hd_graph_node(g, rank, i)->stream > 0)
            cause = later(s, cause, g->first[rank] + i);
    return cause;
}

// What the others of a transfer were doing before it.
static int64_t cause_of_peers(const sim *s, const hd_node *node, int64_t cause)
{
    const hd_graph *g = &s->graph;

    if (node->kind != HD_NODE_COLLECTIVE)
        return later(s, cause, before_on_stream(s, node->peer, node->link));
    for (int64_t i = g->meeting[node->link]; i < g->meeting[node->link + 1];
         i++)
        cause =
            later(s, cause,
                  before_on_stream(s, g->member[i].rank, g->member[i].step));
    return cause;
}

static int64_t find_cause(const sim *s, int rank, int64_t step)
{
    const hd_graph *g = &s->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int64_t cause = before_on_stream(s, rank, step);

    if (node->stream > 0 && node->fork >= 0)
        cause = later(s, cause, g->first[rank] + node->fork);
    if (node->kind == HD_NODE_WAIT && node->link >= 0)
        cause = later(s, cause, g->first[rank] + node->link);
    if (node->kind == HD_NODE_JOIN)
        cause = cause_of_join(s, rank, step, cause);
    return node->kind >= HD_NODE_SEND ? cause_of_peers(s, node, cause) : cause;
}

void hd_simulation_measure(hd_simulation *s, const double *times)
{
    const hd_graph *g = &s->graph;
    int64_t n = g->first[g->nranks];
    double first = n > 0 ? times[0] : 0;

    for (int64_t i = 0; i < n; i++)
        first = least(first, times[2 * i]);
    for (int64_t i = 0; i < n; i++) {
        s->step[i].start = times[2 * i] - first;
        s->step[i].end = times[2 * i + 1] - first;
        s->critical[i] = false;
    }
    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t i = 0; i < hd_graph_steps(g, rank); i++)
            s->step[g->first[rank] + i].cause = find_cause(s, rank, i);
    s->prediction.compute = s->prediction.transfer = s->prediction.wait = 0;
    follow_path(s);
}

int64_t hd_simulation_intervals(const hd_simulation *s)
{
    return s->graph.first[s->graph.nranks];
}

static int rank_of(const hd_graph *g, int64_t node)
{
    int low = 0, high = g->nranks - 1;

    while (low < high) {
        int middle = low + (high - low + 1) / 2;

        if (g->first[middle] <= node)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void hd_simulation_interval(const hd_simulation *s, int64_t i, hd_interval *out)
{
    const hd_node *node = node_at(s, i);
    bool point = node->kind == HD_NODE_SEND || node->kind == HD_NODE_RECV;
    int rank = rank_of(&s->graph, i);

    *out =
        (hd_interval){.rank = rank,
                      .stream = node->stream - 1,
                      .step = i - s->graph.first[rank],
                      .work = node->kind >= HD_NODE_SEND ? HD_TRANSFER
                              : hd_op_is(node->op, HD_UNIT_COMPUTE) ? HD_COMPUTE
                                                                    : HD_SYNC,
                      .op = hd_op_info_get(node->op->code)->text,
                      .start = s->step[i].start,
                      .end = s->step[i].end,
                      .line = (int)node->op->loc.line,
                      .peer = point ? node->peer : -1,
                      .meets = point ? node->link : -1,
                      .critical = s->critical[i]};
}

void hd_simulation_name(const hd_simulation *s, int64_t i, char *out,
                        size_t size)
{
    const hd_node *node = node_at(s, i);
    const char *word = hd_op_info_get(node->op->code)->text;
    hd_text text = {0};

    if (node->part < node[1].part) {
        const hd_part *part = &s->graph.part[node->part];

        hd_part_print(&s->graph.frame[part->buffer], part, &text);
    }
    snprintf(out, size, "%s%s%s", word, text.length > 0 ? " " : "",
             text.length > 0 && text.bytes != NULL ? text.bytes : "");
    hd_text_free(&text);
}
