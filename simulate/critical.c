// See critical.h.
#include "simulate/critical.h"

// What the time of a step counts as. One that neither moves nor computes takes
// none but in a measurement: there it waits.
static double *share_of(hd_prediction *p, const hd_node *node)
{
    if (node->kind >= HD_NODE_SEND)
        return &p->transfer;
    return hd_op_is(node->op, HD_UNIT_COMPUTE) ? &p->compute : &p->wait;
}

void hd_critical_follow(hd_simulation *s)
{
    hd_prediction *p = &s->prediction;
    int64_t last = HD_NOBODY, n = s->graph.first[s->graph.nranks];
    double until = 0;

    for (int64_t i = 0; i < n; i++)
        if (last < 0 || s->step[i].end > s->step[last].end)
            last = i;
    if (last >= 0)
        until = p->time = s->step[last].end;
    while (last >= 0 && !s->critical[last]) {
        const hd_step_state *step = &s->step[last];
        double end = hd_simulation_least(step->end, until),
               start = hd_simulation_least(step->start, end);

        // A measured transfer starts when its stream comes to it. Until its
        // partner does, the time is the partner's.
        if (step->cause >= 0 && s->step[step->cause].end > start)
            start = hd_simulation_least(s->step[step->cause].end, end);
        s->critical[last] = true;
        p->wait += until - end;
        *share_of(p, hd_simulation_node(s, last)) += end - start;
        until = start;
        last = step->cause;
    }
    p->wait += until;
}

// The later one of two causes, by its end.
static int64_t later(const hd_simulation *s, int64_t a, int64_t b)
{
    return b >= 0 && (a < 0 || s->step[b].end > s->step[a].end) ? b : a;
}

// What the stream had to end before it came to the step, or to its group.
static int64_t before_on_stream(const hd_simulation *s, int rank, int64_t step)
{
    const hd_graph *g = &s->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int64_t place = hd_graph_node(g, rank, node->head)->place;

    while (place-- > 0) {
        int64_t before = hd_graph_at(g, rank, node->stream, place);

        if (!hd_graph_node(g, rank, before)->async)
            return g->first[rank] + before;
    }
    return HD_NOBODY;
}

static int64_t cause_of_join(const hd_simulation *s, int rank, int64_t step,
                             int64_t cause)
{
    const hd_graph *g = &s->graph;

    for (int64_t i = 0; i < step; i++)
        if (hd_graph_node(g, rank, i)->stream > 0 &&
            !hd_graph_node(g, rank, i)->async)
            cause = later(s, cause, g->first[rank] + i);
    return cause;
}

// What the others of a transfer were doing before it.
static int64_t cause_of_peers(const hd_simulation *s, const hd_node *node,
                              int64_t cause)
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

static int64_t find_cause(const hd_simulation *s, int rank, int64_t step)
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

void hd_critical_find(hd_simulation *s)
{
    const hd_graph *g = &s->graph;

    for (int64_t i = 0; i < g->first[g->nranks]; i++)
        s->critical[i] = false;
    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t i = 0; i < hd_graph_steps(g, rank); i++)
            s->step[g->first[rank] + i].cause = find_cause(s, rank, i);
    s->prediction.compute = s->prediction.transfer = s->prediction.wait = 0;
    hd_critical_follow(s);
}
