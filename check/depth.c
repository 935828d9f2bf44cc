// Two runs are executed, and every stream counts how deep it has come: behind
// what it waited for, and one more with each step that it has gone past.
#include "check/depth.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "steps/schedule.h"

typedef struct count {
    hd_schedule schedule;
    hd_depth *depth;
    int32_t *now; // owned, by rank and stream: the depth it has come to
    int32_t *end; // owned, as `start`: where its stream goes on
    int32_t *met; // owned, by run and rendezvous: how deep its members start
} count;

static int64_t slot_of(const count *c, int rank, int64_t step)
{
    return 2 * c->schedule.graph->first[rank] + step;
}

static int32_t *now_of(const count *c, int rank, int stream)
{
    return &c->now[(int64_t)rank * c->schedule.graph->nstreams + stream];
}

static int32_t *met_of(const count *c, int rank, int64_t step,
                       const hd_node *node)
{
    const hd_graph *g = c->schedule.graph;

    return &c->met[node->rendezvous +
                   (step < hd_graph_steps(g, rank) ? 0 : g->nrendezvous)];
}

static void deepen(int32_t *depth, int32_t to)
{
    *depth = *depth < to ? to : *depth;
}

// What is recorded, and what is sent, ends as soon as it has started.
static int32_t end_of(const count *c, int rank, int64_t step,
                      const hd_need *need)
{
    int64_t last = need->step;

    if (need->async)
        return c->depth->start[slot_of(c, rank, last)] + 1;
    if (last == step) // a join
        last = hd_graph_before(c->schedule.graph, rank, need->stream, step);
    return last < 0 ? 0 : c->end[slot_of(c, rank, last)];
}

// The step of the root that a step of a collective meets.
static int64_t root_of(const count *c, int rank, int64_t step,
                       const hd_node *node)
{
    const hd_graph *g = c->schedule.graph;
    const hd_member *member = hd_graph_members(g, node->rendezvous);
    int64_t at = hd_mesh_coord(g->module, node->peer, node->op->axis);

    return hd_graph_same_run(g, rank, step, node->peer, member[at].step);
}

// What ranks receive of a broadcast waits for its root alone.
static void start_broadcast(count *c, int rank, int64_t step,
                            const hd_node *node)
{
    const hd_graph *g = c->schedule.graph;
    const hd_member *member = hd_graph_members(g, node->rendezvous);
    int64_t n = hd_graph_meets(g, node->rendezvous);
    int64_t root = root_of(c, rank, step, node);

    if (node->peer != rank) {
        if (hd_schedule_has(&c->schedule, node->peer, root, HD_STEP_STARTED))
            hd_schedule_end(&c->schedule, rank, step);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t there =
            hd_graph_same_run(g, rank, step, member[i].rank, member[i].step);

        if (!hd_schedule_has(&c->schedule, member[i].rank, there,
                             HD_STEP_STARTED))
            continue;
        hd_schedule_end(&c->schedule, member[i].rank, there);
        hd_schedule_wake(&c->schedule, member[i].rank);
    }
}

// The root of a reduce waits for all ranks, the others for nobody.
static void start_reduce(count *c, int rank, int64_t step, const hd_node *node,
                         bool met)
{
    if (node->peer != rank)
        hd_schedule_end(&c->schedule, rank, step);
    if (!met)
        return;
    hd_schedule_end(&c->schedule, node->peer, root_of(c, rank, step, node));
    hd_schedule_wake(&c->schedule, node->peer);
}

static void start(count *c, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(c->schedule.graph, rank, step);
    hd_move move = hd_op_move(node->op);
    bool met = hd_schedule_meet(&c->schedule, rank, step);

    if (node->kind == HD_NODE_COLLECTIVE &&
        (move != HD_MOVE_BROADCAST || node->peer == rank))
        deepen(met_of(c, rank, step, node),
               c->depth->start[slot_of(c, rank, step)]);
    if (move == HD_MOVE_BROADCAST)
        start_broadcast(c, rank, step, node);
    else if (move == HD_MOVE_REDUCE)
        start_reduce(c, rank, step, node, met);
    else if (met)
        hd_schedule_end_all(&c->schedule, rank, step);
    else if (node->kind == HD_NODE_SEND)
        hd_schedule_end(&c->schedule, rank, step);
}

static hd_status begin(void *context, int rank, int64_t step, int64_t n)
{
    count *c = context;
    const hd_graph *g = c->schedule.graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int32_t *now = now_of(c, rank, node->stream);
    hd_need need;

    for (int i = 0; hd_graph_need(g, rank, step, &i, &need);)
        deepen(now, end_of(c, rank, step, &need));
    for (int64_t i = step; i < step + n; i++) {
        c->depth->start[slot_of(c, rank, i)] = *now;
        if (node->kind >= HD_NODE_SEND)
            start(c, rank, i);
        else
            hd_schedule_end(&c->schedule, rank, i);
    }
    return HD_OK;
}

// A transfer's stream goes on after what the transfer waited for.
static void follow_peers(const count *c, int rank, int64_t step)
{
    const hd_graph *g = c->schedule.graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int32_t *now = now_of(c, rank, node->stream);

    if (node->kind == HD_NODE_COLLECTIVE &&
        (hd_op_move(node->op) != HD_MOVE_REDUCE || node->peer == rank))
        deepen(now, *met_of(c, rank, step, node));
    if (node->kind == HD_NODE_RECV)
        deepen(
            now,
            c->depth->start[slot_of(
                c, node->peer,
                hd_graph_same_run(g, rank, step, node->peer, node->partner))] +
                1);
}

static void pass(void *context, int rank, int64_t step, int64_t n)
{
    const count *c = context;
    const hd_graph *g = c->schedule.graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int32_t *now = now_of(c, rank, node->stream);

    for (int64_t i = step; i < step + n; i++)
        follow_peers(c, rank, i);
    ++*now;
    for (int64_t i = step; i < step + n; i++)
        c->end[slot_of(c, rank, i)] = *now;
    // The step was the last one that the caller's stream has in the first run.
    if (node->stream == 0 && step + n <= hd_graph_steps(g, rank) &&
        node->place + n == hd_graph_length(g, rank, 0))
        c->depth->turn[rank] = (*now)++;
}

static hd_status run(count *c, const hd_graph *graph, hd_diag *diag)
{
    int64_t steps = 2 * graph->first[graph->nranks];

    HD_TRY(hd_schedule_open(graph, 2, diag, &c->schedule));
    HD_TRY(hd_clear_array(steps, sizeof *c->depth->start, diag,
                          (void **)&c->depth->start));
    HD_TRY(hd_clear_array(graph->nranks, sizeof *c->depth->turn, diag,
                          (void **)&c->depth->turn));
    HD_TRY(hd_clear_array((int64_t)graph->nranks * graph->nstreams,
                          sizeof *c->now, diag, (void **)&c->now));
    HD_TRY(hd_clear_array(steps, sizeof *c->end, diag, (void **)&c->end));
    HD_TRY(hd_clear_array(2 * graph->nrendezvous, sizeof *c->met, diag,
                          (void **)&c->met));
    c->schedule.begin = begin;
    c->schedule.pass = pass;
    c->schedule.context = c;
    return hd_schedule_run(&c->schedule);
}

hd_status hd_depth_create(const hd_graph *graph, hd_diag *diag, hd_depth *out)
{
    hd_depth depth = {0};
    count c = {.depth = &depth};
    hd_status status = run(&c, graph, diag);

    assert(status != HD_OK || hd_schedule_is_over(&c.schedule));
    hd_schedule_close(&c.schedule);
    free(c.now);
    free(c.end);
    free(c.met);
    if (status != HD_OK)
        hd_depth_free(&depth);
    else
        *out = depth;
    return status;
}

void hd_depth_free(hd_depth *depth)
{
    free(depth->start);
    free(depth->turn);
    *depth = (hd_depth){0};
}
