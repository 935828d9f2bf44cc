// What must follow what by data alone: a step follows whoever wrote what it
// touches and whoever read what it writes, a recv its send, and the members of
// a collective are one. A transfer and a compute step of one rank that neither
// follows the other may go on at the same time.
#include "simulate/overlap.h"

#include <stdlib.h>

#include "base/array.h"
#include "steps/cells.h"

enum {
    MOST_STEPS = 1 << 15, // of all ranks
    MOST_EDGES = 1 << 21,
    MOST_TRANSFERS = 64, // that are tried
};

typedef struct edge {
    int32_t to, next; // next: of the same step, 0 at the end
} edge;

// Who touched a cell last: node + 1.
typedef struct cell {
    int32_t write;
    int32_t reads; // a list of edges
} cell;

typedef struct lint {
    const hd_graph *graph;
    hd_diag *diag;
    hd_cells cells;
    cell *cell; // owned: of one rank at a time
    edge *edge; // owned, from 1
    int64_t nedges, edges_room;
    int32_t *follows, *leads; // owned, by node: lists of edges
    int32_t *one;  // owned, by node: the member that stands for its rendezvous
    bool *seen;    // owned, by node
    int32_t *todo; // owned
    int32_t node;  // whose accesses are being added
    bool writes;
    hd_status status;
} lint;

static int32_t add_edge(lint *l, int32_t to, int32_t next)
{
    if (l->status == HD_OK) // running out is said once
        l->status = hd_grow((void **)&l->edge, &l->edges_room, l->nedges + 2,
                            sizeof *l->edge, l->diag);
    if (l->status != HD_OK)
        return next;
    l->edge[++l->nedges] = (edge){to, next};
    return (int32_t)l->nedges;
}

static void follow(lint *l, int32_t later, int32_t earlier)
{
    later = l->one[later];
    earlier = l->one[earlier];
    if (later == earlier || l->nedges >= MOST_EDGES)
        return;
    l->follows[later] = add_edge(l, earlier, l->follows[later]);
    l->leads[earlier] = add_edge(l, later, l->leads[earlier]);
}

static void touch(void *context, int64_t low, int64_t high)
{
    lint *l = context;

    for (int64_t i = low; i < high; i++) {
        cell *c = &l->cell[i];

        if (c->write != 0)
            follow(l, l->node, c->write - 1);
        if (!l->writes) {
            c->reads = add_edge(l, l->node, c->reads);
            continue;
        }
        for (int32_t k = c->reads; k != 0; k = l->edge[k].next)
            follow(l, l->node, l->edge[k].to);
        *c = (cell){.write = l->node + 1};
    }
}

static void add_step(lint *l, int64_t node)
{
    const hd_node *n = &l->graph->node[node];

    l->node = (int32_t)node;
    for (int pass = 0; pass < 2; pass++) {
        l->writes = pass == 1;
        for (int64_t i = n->part; i < n[1].part; i++)
            if (hd_part_writes(&l->graph->part[i]) == l->writes)
                hd_cells_each(&l->cells, &l->graph->part[i], touch, l);
    }
    if (n->kind == HD_NODE_RECV)
        follow(l, l->node, (int32_t)(l->graph->first[n->peer] + n->partner));
}

static void add_steps(lint *l)
{
    const hd_graph *g = l->graph;

    for (int rank = 0; rank < g->nranks; rank++) {
        for (int64_t i = 0; i < l->cells.ncells; i++)
            l->cell[i] = (cell){0};
        for (int64_t i = g->first[rank]; i < g->first[rank + 1]; i++)
            add_step(l, i);
    }
}

static void join_rendezvous(lint *l)
{
    const hd_graph *g = l->graph;

    for (int64_t i = 0; i < g->first[g->nranks]; i++)
        l->one[i] = (int32_t)i;
    for (int64_t i = 0; i < g->nrendezvous; i++) {
        const hd_member *first = hd_graph_members(g, i);

        for (const hd_member *m = first; m < hd_graph_members(g, i + 1); m++)
            l->one[g->first[m->rank] + m->step] =
                (int32_t)(g->first[first->rank] + first->step);
    }
}

static void spread(lint *l, const int32_t *lists, int32_t from)
{
    int64_t n = 0;

    l->todo[n++] = from;
    while (n > 0) {
        int32_t at = l->todo[--n];

        for (int32_t k = lists[at]; k != 0; k = l->edge[k].next)
            if (!l->seen[l->edge[k].to]) {
                l->seen[l->edge[k].to] = true;
                l->todo[n++] = l->edge[k].to;
            }
    }
}

// The first compute step of the rank that could go on beside the transfer, but
// for copies, which may be of the transfer's own; -1.
static int64_t find_beside(lint *l, int rank, int64_t transfer)
{
    const hd_graph *g = l->graph;

    for (int64_t i = 0; i < g->first[g->nranks]; i++)
        l->seen[i] = false;
    spread(l, l->follows, l->one[transfer]);
    spread(l, l->leads, l->one[transfer]);
    for (int64_t i = g->first[rank]; i < g->first[rank + 1]; i++)
        if (!l->seen[i] && hd_op_is(g->node[i].op, HD_UNIT_COMPUTE) &&
            hd_op_family(g->node[i].op) != HD_FAMILY_COPY)
            return i;
    return -1;
}

// The two may be as far apart as data goes only on streams of their own.
static const char *what_to_do(const hd_node *transfer, const hd_node *beside)
{
    if (transfer->stream != beside->stream)
        return "they are on streams of their own, and an event, a fork or a "
               "join orders them";
    return transfer->stream == 0 ? "put one of the two on a work stream"
                                 : "put one of the two on another work stream";
}

static void warn(const lint *l, int rank, int64_t transfer, int64_t beside)
{
    const hd_op *t = l->graph->node[transfer].op;
    const hd_op *c = l->graph->node[beside].op;

    hd_warning(l->diag, HD_E0808, t->loc,
               "no transfer of this program overlaps with compute; this %s of "
               "rank %d could, as far as data goes, with this %s",
               hd_op_info_get(t->code)->text, rank,
               hd_op_info_get(c->code)->text);
    hd_note(l->diag, c->loc, "the %s; %s", hd_op_info_get(c->code)->text,
            what_to_do(&l->graph->node[transfer], &l->graph->node[beside]));
}

static void search(lint *l)
{
    const hd_graph *g = l->graph;
    int tried = 0;

    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t i = g->first[rank]; i < g->first[rank + 1]; i++) {
            int64_t beside;

            // A send is as much its receiver's: there it counts. A launch's is
            // one kernel with its product.
            if ((g->node[i].kind != HD_NODE_RECV &&
                 g->node[i].kind != HD_NODE_COLLECTIVE) ||
                g->node[i].launch >= 0)
                continue;
            if (tried++ == MOST_TRANSFERS)
                return;
            beside = find_beside(l, rank, i);
            if (beside >= 0) {
                warn(l, rank, i, beside);
                return;
            }
        }
}

static hd_status allocate(lint *l)
{
    int64_t n = l->graph->first[l->graph->nranks];

    HD_TRY(hd_cells_create(l->graph, l->diag, &l->cells));
    HD_TRY(hd_clear_array(l->cells.ncells, sizeof *l->cell, l->diag,
                          (void **)&l->cell));
    HD_TRY(
        hd_clear_array(n, sizeof *l->follows, l->diag, (void **)&l->follows));
    HD_TRY(hd_clear_array(n, sizeof *l->leads, l->diag, (void **)&l->leads));
    HD_TRY(hd_clear_array(n, sizeof *l->one, l->diag, (void **)&l->one));
    HD_TRY(hd_clear_array(n, sizeof *l->seen, l->diag, (void **)&l->seen));
    return hd_clear_array(n, sizeof *l->todo, l->diag, (void **)&l->todo);
}

hd_status hd_overlap_lint(const hd_graph *graph, hd_diag *diag)
{
    lint l = {.graph = graph, .diag = diag};
    hd_status status;

    if (graph->first[graph->nranks] > MOST_STEPS)
        return HD_OK;
    status = allocate(&l);
    if (status == HD_OK) {
        join_rendezvous(&l);
        add_steps(&l);
        status = l.status;
    }
    // With edges left out, order that is there would not be seen.
    if (status == HD_OK && l.nedges < MOST_EDGES)
        search(&l);
    hd_cells_free(&l.cells);
    free(l.cell);
    free(l.edge);
    free(l.follows);
    free(l.leads);
    free(l.one);
    free(l.seen);
    free(l.todo);
    return status;
}
