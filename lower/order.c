#include "lower/order.h"

#include "lower/build.h"

enum { NEAR = 64 }; // statements further on stay there

typedef struct order {
    const hd_placing *p;
    bool *done;
    int first; // that is not done
    int *list, n;
    bool *early; // which come as soon as they may
} order;

static const hd_op *op_at(const order *o, int n)
{
    return o->p->lines[n].op;
}

// ------------------------------------------------------------- what may pass

// Whether one writes counts of what the other touches.
static bool counts_for(const hd_op *a, const hd_op *b)
{
    for (int i = 0; i < b->nviews; i++) {
        hd_buffer *by = b->view[i].buffer->by;

        if (by != NULL && hd_op_uses(a, hd_buffer_root(by), true))
            return true;
    }
    return false;
}

static bool may_come(const order *o, int n)
{
    for (int k = o->first; k < n; k++)
        if (!o->done[k] && (hd_op_conflicts(op_at(o, k), op_at(o, n)) ||
                            counts_for(op_at(o, k), op_at(o, n)) ||
                            counts_for(op_at(o, n), op_at(o, k))))
            return false;
    return true;
}

// ------------------------------------------------------------- what should

static bool is_product(const order *o, int n)
{
    return hd_op_family(op_at(o, n)) == HD_FAMILY_PRODUCT;
}

// Where the rows of a product are needed, of all of their tensor.
static hd_placement rows_at(const order *o, int n)
{
    const hd_op *op = op_at(o, n);

    return hd_place_of_buffer(&op->view[op->noutputs],
                              o->p->way[n]->at[op->noutputs]);
}

// Where a tensor is made.
static hd_placement made_at(const order *o, const hd_buffer *x)
{
    if (!hd_place_is_open(o->p, x))
        return o->p->base[x->id];
    for (int k = 0; k < o->p->nstmts; k++) {
        const hd_op *op = op_at(o, k);

        for (int i = 0; i < op->noutputs; i++)
            if (op->view[i].buffer == x)
                return hd_place_of_buffer(
                    &op->view[i], o->p->way[k]->ends ? o->p->way[k]->end
                                                     : o->p->way[k]->at[i]);
    }
    return hd_placement_nowhere();
}

static bool gathers_rows(const order *o, int n)
{
    const hd_op *op = op_at(o, n);
    hd_placement from, to;

    if (!is_product(o, n) || op->ninputs < 2)
        return false;
    from = made_at(o, op->view[op->noutputs].buffer);
    to = rows_at(o, n);
    for (int a = 0; a < o->p->module->naxes; a++)
        if (from.dim[a] >= 0 && to.dim[a] == HD_PLACED_NOWHERE)
            return true;
    return false;
}

static bool has_rows_of(const order *o, int m, int n)
{
    const hd_op *a = op_at(o, n), *b = op_at(o, m);

    return is_product(o, m) && b->ninputs == a->ninputs &&
           a->view[a->noutputs].buffer == b->view[b->noutputs].buffer &&
           hd_placement_same(rows_at(o, n), rows_at(o, m));
}

// Whether m is the addition that a product n joined, or the product that joins
// one of what n makes.
static bool is_added(const order *o, int m, int n)
{
    const hd_placing *p = o->p;
    int sum = p->joins[m] > m ? p->joins[m] : m;

    if (p->joins[m] < 0 || !hd_place_joins(p, sum))
        return false;
    if (sum == m)
        return p->joins[m] == n;
    for (int i = 1; i < 3; i++)
        if (op_at(o, sum)->view[i].buffer == op_at(o, n)->view[0].buffer)
            return true;
    return false;
}

// Whether an axis divides what a product adds up along in view `i`, where that
// is made.
static bool is_joined_over(const order *o, int n, int i, int axis)
{
    const hd_lines *lines = &o->p->lines[n];
    const hd_view *view = &lines->op->view[i];
    int dim = hd_place_of_view(view, made_at(o, view->buffer)).dim[axis];

    return dim >= 0 && lines->at[i][dim] == lines->joined;
}

// Whether nothing reads what a product makes, of which ranks have parts as its
// operands lie: the sooner it does, the more there is that hides their sum.
static bool is_gradient(const order *o, int n)
{
    const hd_op *op = op_at(o, n);
    bool any = false;

    if (!is_product(o, n) || o->p->lines[n].joined < 0 ||
        o->p->last[op->view[0].buffer->id] >= 0)
        return false;
    for (int a = 0; a < o->p->module->naxes; a++)
        any |= is_joined_over(o, n, op->noutputs, a) &&
               is_joined_over(o, n, op->noutputs + 1, a);
    return any;
}

static void append(order *o, int n)
{
    int past = n + NEAR < o->p->nstmts ? n + NEAR : o->p->nstmts;
    bool gathers = gathers_rows(o, n);

    o->list[o->n++] = n;
    o->done[n] = true;
    while (o->first < o->p->nstmts && o->done[o->first])
        o->first++;
    for (int m = n + 1; m < past; m++)
        if (!o->done[m] &&
            (is_added(o, m, n) || (gathers && has_rows_of(o, m, n)) ||
             o->early[m]) &&
            may_come(o, m))
            append(o, m);
}

bool hd_place_order(const hd_placing *p, bool early, hd_stmt **stmt)
{
    order o = {.p = p,
               .early = hd_new_array(p->scratch, bool, p->nstmts + 1),
               .done = hd_new_array(p->scratch, bool, p->nstmts + 1),
               .list = hd_new_array(p->scratch, int, p->nstmts + 1)};
    hd_stmt **old =
        hd_arena_copy(p->scratch, stmt, sizeof(hd_stmt *) * (size_t)p->nstmts);
    bool moved = false;

    for (int n = 0; n < p->nstmts; n++)
        o.early[n] = early && is_gradient(&o, n);
    for (int n = 0; n < p->nstmts; n++)
        if (!o.done[n])
            append(&o, n);
    for (int n = 0; n < p->nstmts; n++) {
        moved |= o.list[n] != n;
        stmt[n] = old[o.list[n]];
    }
    return moved;
}
