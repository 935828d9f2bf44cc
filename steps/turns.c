// See turns.h.
#include "steps/turns.h"

#include <stdlib.h>

#include "base/array.h"

static int turn_of(const hd_turns *t, const hd_schedule *s, const hd_node *node)
{
    return hd_turns_serve(s, node)
               ? 2 * node->op->axis + (node->kind != HD_NODE_COLLECTIVE)
               : t->n;
}

static void come_to_group(const hd_graph *g, int rank, int64_t head,
                          hd_front *f)
{
    int64_t n;

    if (head < f->end)
        return;
    n = hd_graph_together(g, rank, head);
    *f = (hd_front){head, head + n, 0, head};
}

// To the first member that is not in `state`, of what goes by NCCL.
static void move_front(const hd_turns *t, const hd_schedule *s, int rank,
                       int state, hd_front *f)
{
    for (; f->turn < t->n; f->turn++, f->at = f->head)
        for (; f->at < f->end; f->at++)
            if (turn_of(t, s, hd_graph_node(s->graph, rank, f->at)) ==
                    f->turn &&
                !hd_schedule_has(s, rank, f->at, state))
                return;
}

int64_t hd_turns_ahead(const hd_turns *turns, const hd_schedule *schedule,
                       int rank, int64_t step)
{
    const hd_graph *g = schedule->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int turn;
    hd_front *f;

    if (schedule->held == 0)
        return -1;
    turn = turn_of(turns, schedule, node);
    f = &turns->ended[(int64_t)rank * g->nstreams + node->stream];
    if (node->head < f->head) // its stream has gone past all that is ahead
        return -1;
    come_to_group(g, rank, node->head, f);
    move_front(turns, schedule, rank, HD_STEP_ENDED, f);
    return f->turn < turn ||
                   (f->turn == turn && f->at < step && turn < turns->n &&
                    node->kind == HD_NODE_COLLECTIVE &&
                    hd_graph_node(g, rank, f->at)->rendezvous !=
                        node->rendezvous)
               ? f->at
               : -1;
}

int64_t hd_turns_next(hd_turns *turns, const hd_schedule *schedule, int rank)
{
    const hd_graph *g = schedule->graph;
    int64_t last = hd_graph_steps(g, rank);
    int64_t *at = &turns->undone[rank];
    hd_front *f = &turns->started[rank];

    while (*at < last &&
           (hd_graph_node(g, rank, *at)->kind < HD_NODE_SEND ||
            !hd_turns_serve(schedule, hd_graph_node(g, rank, *at)) ||
            hd_schedule_has(schedule, rank, *at, HD_STEP_ENDED)))
        ++*at;
    if (*at == last)
        return -1;
    come_to_group(g, rank, hd_graph_node(g, rank, *at)->head, f);
    move_front(turns, schedule, rank, HD_STEP_STARTED, f);
    return f->turn < turns->n &&
                   hd_schedule_has(schedule, rank, f->at, HD_STEP_BEGUN) &&
                   hd_turns_ahead(turns, schedule, rank, f->at) < 0
               ? f->at
               : -1;
}

hd_status hd_turns_open(const hd_graph *graph, hd_diag *diag, hd_turns *out)
{
    hd_turns t = {.n = 2 * graph->module->naxes};
    int64_t ranks = graph->nranks;
    hd_status status =
        hd_clear_array(ranks, sizeof *t.undone, diag, (void **)&t.undone);

    if (status == HD_OK)
        status =
            hd_clear_array(ranks, sizeof *t.started, diag, (void **)&t.started);
    if (status == HD_OK)
        status = hd_clear_array(ranks * graph->nstreams, sizeof *t.ended, diag,
                                (void **)&t.ended);
    if (status == HD_OK)
        *out = t;
    else
        hd_turns_close(&t);
    return status;
}

void hd_turns_close(hd_turns *turns)
{
    free(turns->undone);
    free(turns->started);
    free(turns->ended);
    *turns = (hd_turns){0};
}
