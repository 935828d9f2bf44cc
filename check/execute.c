// Each stream goes on from its cursor for as long as it can. A transfer happens
// when the last of those who take part has come to it, and wakes the others.
#include "check/execute.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"

enum { REACHED = 1, DONE = 2 };

typedef struct execution {
    const hd_graph *graph;
    hd_execute_fn *fn;
    void *context;
    int64_t *cursor; // owned, by rank and stream: steps passed
    uint8_t *state;  // owned, by node
    int32_t *met;    // owned, by meeting: members that have come
    int32_t *queue;  // owned: ranks that may go on, a ring
    bool *queued;    // owned, by rank
    int64_t head, nqueued;
} execution;

static uint8_t *state_of(const execution *e, int rank, int64_t step)
{
    return &e->state[e->graph->first[rank] + step];
}

static int64_t *cursor_of(const execution *e, int rank, int stream)
{
    return &e->cursor[(int64_t)rank * e->graph->nstreams + stream];
}

// The step that the stream has come to, -1 at its end.
static int64_t front_of(const execution *e, int rank, int stream)
{
    int64_t at = *cursor_of(e, rank, stream);

    return at < hd_graph_length(e->graph, rank, stream)
               ? hd_graph_at(e->graph, rank, stream, at)
               : -1;
}

static void wake(execution *e, int rank)
{
    const hd_graph *g = e->graph;

    if (e->queued[rank])
        return;
    e->queued[rank] = true;
    e->queue[(e->head + e->nqueued++) % g->nranks] = rank;
}

static void finish(execution *e, int rank, int64_t step)
{
    *state_of(e, rank, step) = DONE;
    wake(e, rank);
}

static hd_status meet_peer(execution *e, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(e->graph, rank, step);
    bool sends = node->kind == HD_NODE_SEND;

    if (*state_of(e, node->peer, node->link) != REACHED)
        return HD_OK;
    finish(e, rank, step);
    finish(e, node->peer, node->link);
    return sends ? e->fn(e->context, node->peer, node->link)
                 : e->fn(e->context, rank, step);
}

static hd_status meet_all(execution *e, int rank, int64_t step)
{
    const hd_graph *g = e->graph;
    int64_t meeting = hd_graph_node(g, rank, step)->link;
    const hd_member *member = &g->member[g->meeting[meeting]];
    int64_t n = g->meeting[meeting + 1] - g->meeting[meeting];

    if (++e->met[meeting] < n)
        return HD_OK;
    for (int64_t i = 0; i < n; i++)
        finish(e, member[i].rank, member[i].step);
    return e->fn(e->context, rank, step);
}

static hd_status reach(execution *e, int rank, int64_t step)
{
    if (*state_of(e, rank, step) != 0)
        return HD_OK;
    *state_of(e, rank, step) = REACHED;
    return hd_graph_node(e->graph, rank, step)->kind == HD_NODE_COLLECTIVE
               ? meet_all(e, rank, step)
               : meet_peer(e, rank, step);
}

// Members of a group are reached together, and passed when all are over.
static hd_status try_transfers(execution *e, int rank, int64_t step,
                               int64_t *passed)
{
    const hd_graph *g = e->graph;
    int32_t head = hd_graph_node(g, rank, step)->head;
    int64_t end = step, n = hd_graph_steps(g, rank);

    while (end < n && hd_graph_node(g, rank, end)->head == head)
        HD_TRY(reach(e, rank, end++));
    *passed = end - step;
    for (int64_t i = step; i < end; i++)
        if (!hd_graph_node(g, rank, i)->async && *state_of(e, rank, i) != DONE)
            *passed = 0;
    return HD_OK;
}

static bool are_joined(const execution *e, int rank, int64_t step)
{
    for (int stream = 1; stream < e->graph->nstreams; stream++) {
        int64_t front = front_of(e, rank, stream);

        if (front >= 0 && front < step)
            return false;
    }
    return true;
}

static bool may_start(const execution *e, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(e->graph, rank, step);

    if (node->stream > 0 && node->fork >= 0 &&
        *state_of(e, rank, node->fork) != DONE)
        return false;
    if (node->kind == HD_NODE_JOIN)
        return are_joined(e, rank, step);
    return node->kind != HD_NODE_WAIT || node->link < 0 ||
           *state_of(e, rank, node->link) == DONE;
}

// Moves the stream on; `moved` if it did.
static hd_status advance(execution *e, int rank, int stream, bool *moved)
{
    const hd_graph *g = e->graph;
    int64_t step;

    while ((step = front_of(e, rank, stream)) >= 0 &&
           may_start(e, rank, step)) {
        const hd_op *op = hd_graph_node(g, rank, step)->op;
        int64_t passed = 1;

        if (hd_op_is(op, HD_UNIT_TRANSFER)) {
            HD_TRY(try_transfers(e, rank, step, &passed));
        } else {
            *state_of(e, rank, step) = DONE;
            if (hd_op_is(op, HD_UNIT_COMPUTE))
                HD_TRY(e->fn(e->context, rank, step));
        }
        if (passed == 0)
            break;
        *cursor_of(e, rank, stream) += passed;
        *moved = true;
    }
    return HD_OK;
}

static hd_status advance_rank(execution *e, int rank)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (int stream = 0; stream < e->graph->nstreams; stream++)
            HD_TRY(advance(e, rank, stream, &moved));
    }
    return HD_OK;
}

static hd_status run(execution *e)
{
    const hd_graph *g = e->graph;

    for (int rank = 0; rank < g->nranks; rank++)
        wake(e, rank);
    while (e->nqueued > 0) {
        int rank = e->queue[e->head];

        e->head = (e->head + 1) % g->nranks;
        e->nqueued--;
        e->queued[rank] = false;
        HD_TRY(advance_rank(e, rank));
    }
    for (int rank = 0; rank < g->nranks; rank++)
        for (int stream = 0; stream < g->nstreams; stream++)
            assert(front_of(e, rank, stream) < 0); // it does not deadlock
    return HD_OK;
}

static hd_status allocate(execution *e, hd_diag *diag)
{
    const hd_graph *g = e->graph;

    HD_TRY(hd_clear_array((int64_t)g->nranks * g->nstreams, sizeof *e->cursor,
                          diag, (void **)&e->cursor));
    HD_TRY(hd_clear_array(g->first[g->nranks], sizeof *e->state, diag,
                          (void **)&e->state));
    HD_TRY(
        hd_clear_array(g->nmeetings, sizeof *e->met, diag, (void **)&e->met));
    HD_TRY(
        hd_clear_array(g->nranks, sizeof *e->queue, diag, (void **)&e->queue));
    return hd_clear_array(g->nranks, sizeof *e->queued, diag,
                          (void **)&e->queued);
}

hd_status hd_execute(const hd_graph *graph, hd_execute_fn *fn, void *context,
                     hd_diag *diag)
{
    execution e = {.graph = graph, .fn = fn, .context = context};
    hd_status status = allocate(&e, diag);

    if (status == HD_OK)
        status = run(&e);
    free(e.cursor);
    free(e.state);
    free(e.met);
    free(e.queue);
    free(e.queued);
    return status;
}
