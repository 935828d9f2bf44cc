// See simulation.h.
#include <heddle/simulate.h>

#include "simulate/simulation.h"

#include <stdlib.h>

#include "base/array.h"
#include "steps/match.h"

enum { COSTS_PER_OP = 16 }; // half of them stay empty

// What a mask, and sequences, leave an attention; of other ops nothing.
typedef struct sight {
    int32_t causal;
    hd_among among;
} sight;

static sight sight_of(const hd_graph *g, const hd_node *node)
{
    const hd_attended *attended = hd_graph_attends(g, node);

    return hd_op_family(node->op) == HD_FAMILY_ATTEND
               ? (sight){hd_graph_causal(g, node),
                         attended != NULL ? attended->among : (hd_among){0}}
               : (sight){0};
}

static bool same_sight(sight a, sight b)
{
    return a.causal == b.causal && a.among.row == b.among.row &&
           a.among.key == b.among.key && a.among.room == b.among.room;
}

// Steps of an op that keep as much of each view cost the same, if rows see as
// many keys.
static bool same_lengths(const hd_graph *g, const hd_node *a, const hd_node *b)
{
    int64_t n = a[1].part - a->part;

    if (n != b[1].part - b->part || a->stores != b->stores ||
        !same_sight(sight_of(g, a), sight_of(g, b)))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (g->part[a->part + i].ranges != g->part[b->part + i].ranges)
            return false;
    return true;
}

static uint64_t hash_lengths(const hd_graph *g, const hd_node *node)
{
    sight sight = sight_of(g, node);
    uint64_t hash = ((uintptr_t)node->op >> 4) + (uint32_t)sight.causal +
                    (uint64_t)sight.among.row * 31 + (uint64_t)sight.among.key +
                    node->stores;

    for (int64_t i = node->part; i < node[1].part; i++)
        hash = (hash ^ g->part[i].ranges) * 0x9e3779b97f4a7c15u;
    return hash * 0x9e3779b97f4a7c15u >> 20;
}

hd_cost hd_simulation_cost(hd_simulation *s, const hd_node *node)
{
    uint64_t at = hash_lengths(&s->graph, node);
    hd_op_cost *c;

    for (;; at++) {
        c = &s->cost[at & (uint64_t)(s->cost_room - 1)];
        if (c->node == NULL)
            break;
        if (c->node->op == node->op && same_lengths(&s->graph, c->node, node))
            return c->cost;
    }
    if (2 * s->ncosts >= s->cost_room) // there are too many to keep them all
        return hd_cost_of(&s->graph, &s->machine, node, &s->tiles);
    s->ncosts++;
    c->node = node;
    c->cost = hd_cost_of(&s->graph, &s->machine, node, &s->tiles);
    return c->cost;
}

void hd_simulation_settle(hd_simulation *s, int rank)
{
    hd_activity *a = &s->activity[rank];
    double past = s->agenda.now - a->since;

    a->since = s->agenda.now;
    if (a->ntransfers > 0)
        a->transferring += past;
    if (a->ntransfers > 0 && a->ncompute > 0)
        a->both += past;
}

void hd_simulation_begin(hd_simulation *s, int rank, int64_t step)
{
    hd_step_time *p = &s->step[s->graph.first[rank] + step];

    p->start = s->agenda.now;
    p->cause = s->cause;
}

void hd_simulation_end(hd_simulation *s, int rank, int64_t step)
{
    s->step[s->graph.first[rank] + step].end = s->agenda.now;
    hd_schedule_end(&s->schedule, rank, step);
}

static int64_t count_ops(const hd_block *block)
{
    int64_t n = 0;

    for (const hd_stmt *stmt = block->first; stmt != NULL; stmt = stmt->next)
        n += 1 + count_ops(&stmt->body) + count_ops(&stmt->otherwise);
    return n;
}

static hd_status make_arrays(hd_simulation *s, hd_diag *diag)
{
    const hd_graph *g = &s->graph;
    int64_t n = g->first[g->nranks];

    HD_TRY(hd_clear_array(n, sizeof *s->step, diag, (void **)&s->step));
    HD_TRY(hd_clear_array(n, sizeof *s->critical, diag, (void **)&s->critical));
    HD_TRY(hd_clear_array((int64_t)g->nranks * g->nstreams, sizeof *s->lane,
                          diag, (void **)&s->lane));
    HD_TRY(hd_clear_array(g->nranks, sizeof *s->activity, diag,
                          (void **)&s->activity));
    HD_TRY(hd_clear_array(g->nranks, sizeof *s->processor, diag,
                          (void **)&s->processor));
    HD_TRY(hd_clear_array(g->nrendezvous, sizeof *s->pending, diag,
                          (void **)&s->pending));
    n = count_ops(&g->module->body) + g->module->nbuffers; // and their records
    for (s->cost_room = 16; s->cost_room < COSTS_PER_OP * n;)
        s->cost_room *= 2;
    return hd_clear_array(s->cost_room, sizeof *s->cost, diag,
                          (void **)&s->cost);
}

static bool has_launches(const hd_graph *g)
{
    for (int64_t i = 0; i < g->first[g->nranks]; i++)
        if (g->node[i].launch >= 0)
            return true;
    return false;
}

// Those that share processors do launches as their parts.
static hd_status count_launches(hd_simulation *s, hd_diag *diag)
{
    const hd_graph *g = &s->graph;

    if (!has_launches(g) || s->machine.processors > 0)
        return HD_OK;
    HD_TRY(hd_clear_array(g->nranks, sizeof *s->under_way, diag,
                          (void **)&s->under_way));
    HD_TRY(hd_clear_array(g->first[g->nranks], sizeof *s->issued, diag,
                          (void **)&s->issued));
    HD_TRY(hd_clear_array(g->nranks, sizeof *s->course, diag,
                          (void **)&s->course));
    for (int rank = 0; rank < g->nranks; rank++) {
        int32_t n = 0;

        s->under_way[rank] = -1;
        for (int64_t i = 0; i < hd_graph_steps(g, rank); i++) {
            int32_t launch = hd_graph_node(g, rank, i)->launch;

            n += i > 0 && (launch < 0 || launch == i);
            s->issued[g->first[rank] + i] = n;
        }
    }
    return HD_OK;
}

static bool reduces_apart(const hd_graph *g)
{
    int stream = -1;

    for (int64_t i = 0; i < g->first[g->nranks]; i++) {
        const hd_node *node = &g->node[i];

        if (!hd_simulation_reduces(node))
            continue;
        if (stream >= 0 && stream != node->stream)
            return true;
        stream = node->stream;
    }
    return false;
}

hd_status hd_simulation_open(hd_simulation *s, const hd_module *module,
                             unsigned serial, unsigned busy, hd_diag *diag)
{
    s->busy = busy;
    s->agenda.diag = diag;
    s->full = hd_module_full(module);
    HD_TRY(hd_graph_create(&s->full, diag, &s->graph));
    HD_TRY(hd_graph_match(&s->graph, diag));
    s->apart = reduces_apart(&s->graph);
    HD_TRY(hd_schedule_open(&s->graph, 1, diag, &s->schedule));
    s->schedule.held = serial;
    HD_TRY(hd_turns_open(&s->graph, diag, &s->turns));
    HD_TRY(count_launches(s, diag));
    return make_arrays(s, diag);
}

void hd_simulation_destroy(hd_simulation *s)
{
    if (s == NULL)
        return;
    hd_schedule_close(&s->schedule);
    hd_turns_close(&s->turns);
    hd_graph_free(&s->graph);
    hd_agenda_free(&s->agenda);
    free(s->under_way);
    free(s->issued);
    free(s->course);
    free(s->step);
    free(s->critical);
    free(s->lane);
    free(s->activity);
    free(s->processor);
    free(s->pending);
    free(s->cost);
    free(s);
}
