// See critical.h.
#include <heddle/simulate.h>

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
        const hd_step_time *step = &s->step[last];
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

// The last of the first `n` steps of the stream that it had to end.
static int64_t last_before(const hd_simulation *s, int rank, int stream,
                           int64_t n)
{
    const hd_graph *g = &s->graph;

    while (n-- > 0) {
        int64_t before = hd_graph_at(g, rank, stream, n);

        if (!hd_schedule_defers(&s->schedule, hd_graph_node(g, rank, before)))
            return g->first[rank] + before;
    }
    return HD_NOBODY;
}

// What the stream had to end before it came to the step, or to its group.
static int64_t before_on_stream(const hd_simulation *s, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(&s->graph, rank, step);

    return last_before(s, rank, node->stream,
                       hd_graph_node(&s->graph, rank, node->head)->place);
}

// What the others of a transfer were doing before it.
static int64_t cause_of_peers(const hd_simulation *s, const hd_node *node,
                              int64_t cause)
{
    const hd_graph *g = &s->graph;

    if (node->kind != HD_NODE_COLLECTIVE)
        return later(s, cause, before_on_stream(s, node->peer, node->partner));
    for (const hd_member *m = hd_graph_members(g, node->rendezvous);
         m < hd_graph_members(g, node->rendezvous + 1); m++)
        cause = later(s, cause, before_on_stream(s, m->rank, m->step));
    return cause;
}

// What a step of the rank waited for: that step itself, or the last one before
// a join on the stream.
static int64_t cause_of_need(const hd_simulation *s, int rank, int64_t step,
                             const hd_need *need)
{
    const hd_graph *g = &s->graph;
    int64_t last;

    if (need->step != step)
        return g->first[rank] + need->step;
    last = hd_graph_before(g, rank, need->stream, step);
    return last < 0 ? HD_NOBODY
                    : last_before(s, rank, need->stream,
                                  hd_graph_node(g, rank, last)->place + 1);
}

static int64_t find_cause(const hd_simulation *s, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(&s->graph, rank, step);
    int64_t cause = before_on_stream(s, rank, step);
    hd_need need;

    for (int i = 0; hd_graph_need(&s->graph, rank, step, &i, &need);)
        cause = later(s, cause, cause_of_need(s, rank, step, &need));
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
