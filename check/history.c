// Changes are sorted by place and time, so that each question is a search.
#include "check/history.h"

#include <stdlib.h>

static int compare_changes(const void *x, const void *y)
{
    const hd_change *a = x, *b = y;

    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

void hd_history_sort(hd_evaluation *e)
{
    if (e->local.nchanges > 0)
        qsort(e->local.change, (size_t)e->local.nchanges,
              sizeof *e->local.change, compare_changes);
}

// How many changes come before that place and time.
static int64_t changes_before(const hd_evaluation *e, int64_t at, int64_t event)
{
    int64_t low = 0, high = e->local.nchanges;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const hd_change *c = &e->local.change[middle];

        if (c->at < at || (c->at == at && c->event < event))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const hd_change *hd_history_last(const hd_evaluation *e, int64_t at,
                                 int64_t event)
{
    int64_t n = changes_before(e, at, event);

    return n > 0 && e->local.change[n - 1].at == at ? &e->local.change[n - 1]
                                                    : NULL;
}

uint64_t hd_history_value(const hd_evaluation *e, int64_t at, int64_t event)
{
    int64_t n = changes_before(e, at, event);
    const hd_change *c = e->local.change;

    if (n > 0 && c[n - 1].at == at)
        return c[n - 1].value;
    if (n < e->local.nchanges && c[n].at == at)
        return c[n].before;
    return e->local.value[at];
}

int hd_history_rank(const hd_evaluation *e, int64_t at)
{
    return (int)(at / e->host.share);
}

hd_reading hd_history_write(const hd_evaluation *e, const hd_change *change)
{
    int rank = hd_history_rank(e, change->at);

    return (hd_reading){.rank = rank,
                        .step = change->node - e->graph->first[rank],
                        .event = change->event};
}

// From the member of the collective whose piece lies there.
static bool find_piece(const hd_evaluation *e, const hd_node *node, int64_t at,
                       hd_reading *out)
{
    const hd_graph *g = e->graph;
    int64_t me = hd_mesh_coord(g->module, out->rank, node->op->axis);
    const hd_member *first = hd_graph_members(g, node->rendezvous);

    if (hd_op_fold(node->op) != HD_FOLD_NONE)
        return false;
    for (int64_t j = 0; j < hd_graph_meets(g, node->rendezvous); j++) {
        const hd_member *from = &first[j];
        hd_span tile = hd_layout_piece(&e->host, out->rank, out->step, true, j);
        int64_t i = hd_span_find(&tile, at);

        if (i < 0 || (hd_op_move(node->op) == HD_MOVE_BROADCAST &&
                      from->rank != node->peer))
            continue;
        out->rank = from->rank;
        out->step = from->step;
        out->view = hd_graph_node(g, out->rank, out->step)->op->noutputs;
        tile = hd_layout_piece(&e->host, out->rank, out->step, false, me);
        out->at = hd_span_place(&tile, i);
        return true;
    }
    return false;
}

static bool find_sent(const hd_evaluation *e, const hd_node *node, int64_t at,
                      hd_reading *out)
{
    hd_span to = hd_layout_piece(&e->host, out->rank, out->step, true, 0);
    hd_span from =
        hd_layout_piece(&e->host, node->peer, node->partner, false, 0);

    out->rank = node->peer;
    out->step = node->partner;
    out->view = 0;
    out->at = hd_span_place(&from, hd_span_find(&to, at));
    return true;
}

// On the rank itself.
static bool find_moved(const hd_evaluation *e, const hd_node *node, int64_t at,
                       hd_reading *out)
{
    hd_work_item item;
    int64_t i;

    hd_layout_step(&e->host, out->rank, out->step, &item);
    i = hd_span_find(&item.span[0], at);
    out->at = hd_op_is_move(node->op) && i >= 0
                  ? hd_compute_place(&item, i, 1, 0)
                  : -1;
    return out->at >= 0;
}

bool hd_history_source(const hd_evaluation *e, const hd_change *change,
                       hd_reading *out)
{
    const hd_node *node = &e->graph->node[change->node];
    uint64_t want = out->want;

    *out = hd_history_write(e, change);
    out->want = want;
    out->view = node->op->noutputs;
    if (node->kind == HD_NODE_RECV)
        return find_sent(e, node, change->at, out);
    return node->kind == HD_NODE_COLLECTIVE
               ? find_piece(e, node, change->at, out)
               : find_moved(e, node, change->at, out);
}
