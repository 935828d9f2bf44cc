#include "check/sums.h"

#include <stdlib.h>

#include "base/array.h"
#include "check/field.h"

enum {
    MOST_TERMS = 1 << 16,
    MOST_DEPTH = 512, // sums of sums
};

static void add_term(hd_sums *s, hd_terms *to, hd_term add)
{
    hd_status status = to->n < MOST_TERMS
                           ? hd_grow((void **)&to->term, &to->room, to->n + 1,
                                     sizeof *to->term, s->diag)
                           : HD_ERROR_UNSUPPORTED; // reported without its terms

    if (status == HD_OK) {
        add.order = to->n;
        to->term[to->n++] = add;
    } else if (s->status == HD_OK)
        s->status = status;
}

static bool reduces(const hd_op *op)
{
    return hd_op_move(op) != HD_MOVE_NONE && hd_op_fold(op) == HD_FOLD_SUM;
}

bool hd_op_is_sum(const hd_op *op)
{
    return hd_op_fold(op) == HD_FOLD_SUM || op->code == HD_OP_ADD ||
           (hd_op_key(op, HD_KEY_ACCUMULATE) != NULL &&
            hd_op_family(op) != HD_FAMILY_ATTEND);
}

static uint64_t weight_of(const hd_work_item *item, int64_t k)
{
    int dim = hd_op_dim(item->step.op);

    return dim < 0 ? 1 : (uint64_t)hd_grain_weight(item->grain[1][dim], k);
}

static void add_tensor_terms(hd_sums *s, int64_t at, uint64_t weight,
                             int depth);

static void add_operands(hd_sums *s, const hd_op *op, int64_t at,
                         uint64_t weight, int depth)
{
    hd_work_item item;
    int64_t i;

    hd_layout_op(&s->e->whole, op, &item);
    i = hd_span_find(&item.span[0], at);
    for (int view = 1; view < 1 + op->ninputs; view++) {
        int64_t n = hd_compute_terms(&item, view);

        for (int64_t k = 0; k < n; k++)
            add_tensor_terms(s, hd_compute_place(&item, i, view, k),
                             weight * weight_of(&item, k), depth);
    }
}

static void add_tensor_terms(hd_sums *s, int64_t at, uint64_t weight, int depth)
{
    const hd_op *op = hd_places_maker(s->places, at);

    if (s->status != HD_OK) // there are too many already
        return;
    if (op != NULL && hd_op_is_sum(op) &&
        hd_op_family(op) != HD_FAMILY_PRODUCT && depth < HD_MAX_EXPR_DEPTH)
        add_operands(s, op, at, weight, depth + 1);
    else if (op != NULL && hd_op_is_move(op) && depth < HD_MAX_EXPR_DEPTH) {
        hd_work_item item;
        int64_t i;

        hd_layout_op(&s->e->whole, op, &item);
        i = hd_span_find(&item.span[0], at);
        add_tensor_terms(s, hd_compute_place(&item, i, 1, 0), weight,
                         depth + 1);
    } else
        add_term(s, &s->want,
                 (hd_term){.value = s->e->dense.value[at], .weight = weight});
}

static void add_host_terms(hd_sums *s, hd_reading l, uint64_t weight,
                           int depth);

static void add_reduced(hd_sums *s, const hd_change *c, uint64_t weight,
                        int depth)
{
    const hd_graph *g = s->e->graph;
    const hd_node *node = &g->node[c->node];
    hd_reading l = hd_history_write(s->e, c);
    hd_span tile = hd_layout_piece(&s->e->host, l.rank, l.step, true, 0);
    int64_t i = hd_span_find(&tile, c->at);
    int64_t me = hd_mesh_coord(g->module, l.rank, node->op->axis);

    for (const hd_member *m = hd_graph_members(g, node->rendezvous);
         m < hd_graph_members(g, node->rendezvous + 1); m++) {
        l.rank = m->rank;
        l.step = m->step;
        l.view = hd_graph_node(g, l.rank, l.step)->op->noutputs;
        tile = hd_layout_piece(&s->e->host, l.rank, l.step, false, me);
        l.at = hd_span_place(&tile, i);
        add_host_terms(s, l, weight, depth);
    }
}

// An accumulating product adds itself to what was there.
static void add_accumulated(hd_sums *s, const hd_change *c, uint64_t weight,
                            int depth)
{
    hd_reading old = hd_history_write(s->e, c);
    uint64_t before = hd_history_value(s->e, c->at, c->event);
    hd_term product = {.value = hd_field_subtract(c->value, before),
                       .weight = weight,
                       .from = old};

    product.from.at = -1;
    old.at = c->at;
    add_term(s, &s->have, product);
    add_host_terms(s, old, weight, depth);
}

static void add_step_terms(hd_sums *s, const hd_change *c, uint64_t weight,
                           int depth)
{
    hd_reading l = hd_history_write(s->e, c);
    hd_work_item item;
    int64_t i;

    hd_layout_step(&s->e->host, l.rank, l.step, &item);
    i = hd_span_find(&item.span[0], c->at);
    if (reduces(item.step.op)) {
        add_reduced(s, c, weight, depth);
        return;
    }
    if (hd_op_family(item.step.op) == HD_FAMILY_PRODUCT) {
        add_accumulated(s, c, weight, depth);
        return;
    }
    for (l.view = 1; l.view < 1 + item.step.op->ninputs; l.view++) {
        int64_t n = hd_compute_terms(&item, l.view);

        for (int64_t k = 0; k < n; k++) {
            l.at = hd_compute_place(&item, i, l.view, k);
            add_host_terms(s, l, weight * weight_of(&item, k), depth);
        }
    }
}

// The terms of what is read; itself if it is no sum.
static void add_host_terms(hd_sums *s, hd_reading l, uint64_t weight, int depth)
{
    hd_term own = {.value = hd_history_value(s->e, l.at, l.event),
                   .weight = weight,
                   .from = l};
    const hd_change *c;

    if (s->status != HD_OK) // there are too many already
        return;
    while ((c = hd_history_last(s->e, l.at, l.event)) != NULL) {
        if (hd_op_is_sum(s->e->graph->node[c->node].op) && depth < MOST_DEPTH) {
            add_step_terms(s, c, weight, depth + 1);
            return;
        }
        if (!hd_history_source(s->e, c, &l))
            break;
    }
    add_term(s, &s->have, own);
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

// By value, and the latest of equal ones first.
static int compare_values(const void *x, const void *y)
{
    const hd_term *a = x, *b = y;

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    if (a->from.event != b->from.event)
        return compare_numbers(b->from.event, a->from.event);
    return compare_numbers(a->order, b->order);
}

// The latest first, which had most to choose from; the highest rank where they
// are taken at once. Which of several is reported does not depend on their
// values.
static int compare_places(const void *x, const void *y)
{
    const hd_term *a = x, *b = y;

    if (a->from.event != b->from.event)
        return compare_numbers(b->from.event, a->from.event);
    if (a->from.rank != b->from.rank)
        return compare_numbers(b->from.rank, a->from.rank);
    return compare_numbers(a->order, b->order);
}

static void sort_terms(hd_terms *terms,
                       int (*compare)(const void *, const void *))
{
    if (terms->n > 0)
        qsort(terms->term, (size_t)terms->n, sizeof *terms->term, compare);
}

// Adds up the weights of equal terms; the latest of them stands for all.
static void gather(hd_terms *terms)
{
    int64_t n = 0;

    sort_terms(terms, compare_values);
    for (int64_t i = 0; i < terms->n; i++) {
        if (n > 0 && terms->term[n - 1].value == terms->term[i].value)
            terms->term[n - 1].weight += terms->term[i].weight;
        else
            terms->term[n++] = terms->term[i];
    }
    terms->n = n;
}

// Both are sorted by value.
static void mark_extra(hd_terms *x, const hd_terms *y)
{
    int64_t k = 0;

    for (int64_t i = 0; i < x->n; i++) {
        hd_term *own = &x->term[i];
        uint64_t other;

        while (k < y->n && y->term[k].value < own->value)
            k++;
        other =
            k < y->n && y->term[k].value == own->value ? y->term[k].weight : 0;
        own->extra = (int64_t)(own->weight - other) > 0;
    }
}

const hd_term *hd_terms_extra(const hd_terms *terms)
{
    for (int64_t i = 0; i < terms->n; i++)
        if (terms->term[i].extra)
            return &terms->term[i];
    return NULL;
}

hd_status hd_sums_compare(hd_sums *sums, const hd_change *change, int64_t there)
{
    sums->have.n = sums->want.n = 0;
    add_step_terms(sums, change, 1, 0);
    add_tensor_terms(sums, there, 1, 0);
    HD_TRY(sums->status);
    gather(&sums->have);
    gather(&sums->want);
    mark_extra(&sums->have, &sums->want);
    mark_extra(&sums->want, &sums->have);
    sort_terms(&sums->have, compare_places);
    sort_terms(&sums->want, compare_places);
    return HD_OK;
}

void hd_sums_free(hd_sums *sums)
{
    free(sums->have.term);
    free(sums->want.term);
}
