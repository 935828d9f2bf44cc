// Gathers and reductions of one loop: shards come, and what a rank makes of
// each of them, as the gradients of keys, goes back to the rank that it came
// from. The next shard comes while a trip computes, and partial results go
// while the next one does. The local shard has two trips, the first and the
// last one, each of which does half of it: so there is something to compute
// while the first shard comes, and while the last results go:
//
//     trip       0          1            2        ..   n - 1       n
//     gathers    1          2            3
//     computes   own, half  1            2             n - 1       own, half
//     reduces               1            2             n - 1
//
// Each rank adds up what has come for its own shard behind the loop, in the
// order of the ranks. Halves are of the batch, or of the heads, of every shard,
// so that each adds up in a place of its own; where these are odd, or something
// is computed of gradients, the first trip does all of its shard.
#include "ir/signature.h"
#include "lower/pipe.h"

// The two of which it is: gathers are the first of what is moved.
typedef struct both {
    hd_pipe gather, scatter;
} both;

static both both_of(const hd_pipe *p)
{
    both b = {*p, *p};
    int n = 0;

    while (n < p->nmoved && p->moved[n].op->code == HD_OP_BROADCAST)
        n++;
    b.gather.flow = &hd_flow_gather;
    b.gather.nmoved = n;
    b.scatter.flow = &hd_flow_scatter;
    b.scatter.schedule = hd_flow_scatter.schedules[HD_TRANSFER_DIRECT];
    b.scatter.moved += n;
    b.scatter.nmoved -= n;
    return b;
}

// ------------------------------------------------------------------ halves

// The dimension of the view that is the one from the end of those it keeps.
static int kept_from_end(const hd_view *view, int from_end)
{
    int dim = view->buffer->type.ndims;

    while (from_end > 0 && dim > 0) {
        dim--;
        from_end -= !hd_view_picks(view, dim);
    }
    return dim;
}

// Which dimension of queries halves are of, from the end: the outermost of more
// than one index, of the batch or the heads, so that they lie apart.
static int halved_from_end(const hd_op *op)
{
    hd_type queries = hd_view_type(&op->view[op->noutputs]);
    int dim = 0;

    while (dim < queries.ndims - 3 && hd_dim_local(queries.dim[dim]) == 1)
        dim++;
    return queries.ndims - dim;
}

// Where that is in view `i` of attention_grad: rows of lse have one number
// each.
static int halved_dim(const hd_op *op, int i)
{
    int from_end = halved_from_end(op) - (i == hd_op_lse(op));

    return hd_view_type(&op->view[i]).ndims < from_end
               ? -1
               : kept_from_end(&op->view[i], from_end);
}

static bool has_half(const hd_view *view, int at)
{
    hd_dim dim;

    if (at < 0)
        return false;
    dim = view->buffer->type.dim[at];
    return hd_view_range(view, at) == NULL && dim.mark == HD_LOCAL &&
           dim.blocks == 0 && !hd_dim_is_sized(dim) && dim.extent % 2 == 0;
}

// What a statement does to halves: it is done ahead of the first, for each, or
// behind the last.
typedef enum stage { BEGINS, HALVED, ENDS, WHOLE } stage;

static stage stage_of(const hd_op *op)
{
    if (op->ninputs == 0)
        return BEGINS;
    if (op->code == HD_OP_COPY)
        return ENDS;
    if (op->code != HD_OP_ATTENTION_GRAD)
        return WHOLE;
    for (int i = 0; i < op->nviews; i++)
        if (!has_half(&op->view[i], halved_dim(op, i)))
            return WHOLE;
    return HALVED;
}

// Whether both may be done in the order of their stages. Those that are halved
// may add to the same, half by half.
static bool keep_order(const hd_op *first, const hd_op *other)
{
    stage a = stage_of(first), b = stage_of(other);

    if (a != HALVED || b != HALVED)
        return a <= b || !hd_op_conflicts(first, other);
    for (int i = other->noutputs; i < other->nviews; i++)
        if (hd_op_uses(first, hd_buffer_root(other->view[i].buffer), true))
            return false;
    return true;
}

static bool has_halves(const hd_pipe *p)
{
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next) {
        if (!hd_op_is(s->op, HD_UNIT_COMPUTE))
            continue;
        if (stage_of(s->op) == WHOLE)
            return false;
        for (const hd_stmt *t = s->next; t != NULL; t = t->next)
            if (hd_op_is(t->op, HD_UNIT_COMPUTE) && !keep_order(s->op, t->op))
                return false;
    }
    return true;
}

// Views change one after the other, and queries say where halves are of all.
static void take_half(hd_pipe *p, hd_op *op, int half)
{
    int dim[HD_MAX_VIEWS];

    for (int i = 0; i < op->nviews; i++)
        dim[i] = halved_dim(op, i);
    for (int i = 0; i < op->nviews; i++) {
        int64_t n = op->view[i].buffer->type.dim[dim[i]].extent / 2;
        hd_view view = hd_view_at(op->view[i], dim[i], HD_EXPR_ALL);

        hd_view_keep(p->module, &view, dim[i], hd_pipe_number(p, half * n),
                     hd_pipe_number(p, (half + 1) * n));
        op->view[i] = view;
    }
}

// --------------------------------------------------------------- computing

// What a rank makes of its own shard is its part of what arrives for it.
static void make_among_arrived(const both *both, hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        for (int k = 0; k < both->scatter.nmoved; k++) {
            const hd_moved *m = &both->scatter.moved[k];

            if (!m->in_place || op->view[i].buffer != m->from->buffer)
                continue;
            op->view[i].buffer = m->arrived;
            op->view[i].index[m->dim] = hd_pipe_rank(&both->scatter);
        }
}

enum { ALL = -1 }; // both halves at once

static bool is_done_with(stage stage, int half)
{
    return half == ALL || stage == HALVED ||
           stage == (half > 0 ? ENDS : BEGINS);
}

static void compute(both *both, hd_build *b, hd_trip_piece at, int half)
{
    hd_pipe *p = &both->gather;
    const hd_expr *need = hd_pipe_needs(p, &at);
    hd_guard guard = {0};

    for (const hd_stmt *s = p->ops; s != NULL; s = s->next, need++) {
        hd_build within;
        hd_op *op;

        if (!hd_op_is(s->op, HD_UNIT_COMPUTE) ||
            !is_done_with(stage_of(s->op), half))
            continue;
        within = hd_pipe_within(&guard, b, *need);
        op = hd_pipe_clone(p, &within, s->op, &at);
        if (at.own)
            make_among_arrived(both, op);
        if (half != ALL && stage_of(s->op) == HALVED)
            take_half(p, op, half);
    }
}

static void emit_compute(both *both, hd_build *b, const hd_trip *t)
{
    const hd_pipe *p = t->p;
    hd_trip_piece own = t->at, at = t->at;
    hd_build first, others, last;

    own.own = true;
    if (p->ranks == 1) {
        compute(both, b, own, ALL);
        return;
    }
    first = hd_build_if(b, hd_trip_is_first(t), &others);
    compute(both, &first, own, p->late > 0 ? 0 : ALL);
    if (p->late > 0) {
        hd_build rest = others;

        others = hd_build_if(&rest, hd_trip_is_before_end(t), &last);
        compute(both, &last, own, 1);
    }
    compute(both, &others, at, p->late > 0 ? 0 : ALL);
    if (p->late > 0)
        compute(both, &others, at, 1);
}

// ------------------------------------------------------------------- moves

static void emit_moves(hd_pipe *p, hd_build *group, const hd_trip *t)
{
    for (int i = 0; i < p->nmoved; i++) {
        group->loc = p->moved[i].op->loc;
        p->schedule->move(t, group, &p->moved[i]);
    }
}

// The next shard, ahead of time.
static void emit_gather(both *both, hd_build *b, const hd_trip *t)
{
    hd_pipe *p = &both->gather;
    hd_block copies = {0}; // of the local shard, which stand before the loop
    hd_trip next = hd_trip_start(
        p, NULL, hd_pipe_binary(p, HD_EXPR_ADD, t->j, hd_pipe_number(p, 1)));
    hd_build none, group;

    next.mine = (hd_build){p->module, &copies, b->loc};
    group = hd_build_if(
        b,
        hd_pipe_binary(p, HD_EXPR_LT, next.j,
                       hd_pipe_number(p, hd_pipe_end_of_exchanges(p))),
        &none);
    group = hd_build_group(&group);
    emit_moves(p, &group, &next);
}

static void emit_reduction(both *both, hd_build *b, const hd_trip *t)
{
    hd_pipe *p = &both->scatter;
    hd_trip sums = *t;
    hd_build none, group;
    hd_expr goes = hd_pipe_binary(p, HD_EXPR_LE, hd_pipe_number(p, 1), t->j);

    sums.p = p;
    sums.step = hd_pipe_binary(p, HD_EXPR_SUB, t->j, hd_pipe_number(p, 1));
    if (p->late > 0)
        goes = hd_pipe_binary(p, HD_EXPR_AND, goes, hd_trip_is_before_end(t));
    group = hd_build_if(b, goes, &none);
    group = hd_build_group(&group);
    emit_moves(p, &group, &sums);
}

static void emit_trip(hd_pipe *p, hd_build *b, hd_expr j)
{
    both both = both_of(p);
    hd_trip t = {.p = &both.gather, .j = j};

    if (p->ranks > 1)
        emit_gather(&both, b, &t);
    t = hd_trip_start(&both.gather, b, j);
    emit_compute(&both, b, &t);
    if (p->ranks > 1)
        emit_reduction(&both, b, &t);
}

// ------------------------------------------------------ before and behind

static void emit_before(hd_pipe *p, hd_build *b)
{
    both both = both_of(p);

    for (int i = 0; i < both.gather.nmoved; i++) {
        const hd_moved *m = &both.gather.moved[i];
        hd_view out = *m->to;

        b->loc = m->op->loc;
        if (!m->in_place)
            hd_build_unary(b, HD_OP_COPY, -1,
                           hd_pipe_at_shard(p, out, m->dim, hd_pipe_rank(p)),
                           *m->from);
    }
}

static void emit_after(hd_pipe *p, hd_build *b)
{
    both both = both_of(p);

    for (int i = 0; i < both.scatter.nmoved; i++) {
        const hd_moved *m = &both.scatter.moved[i];
        hd_view in = hd_pipe_at_shard(p, *m->from, m->dim, hd_pipe_rank(p)),
                own = in;

        b->loc = m->op->loc;
        own.buffer = m->arrived;
        if (!m->in_place)
            hd_build_unary(b, HD_OP_COPY, -1, own, in);
    }
    hd_flow_scatter.after(&both.scatter, b);
}

// A slot is filled while the one before it is read.
static void prepare(hd_pipe *p)
{
    both both;

    p->ahead = true;
    p->late = p->ranks > 1 && has_halves(p);
    both = both_of(p);
    hd_flow_gather.prepare(&both.gather);
    p->slots = both.gather.slots;
    hd_flow_scatter.prepare(&both.scatter);
    for (int i = 0; i < both.scatter.nmoved; i++)
        both.scatter.moved[i].in_place =
            !p->options->copy_own &&
            hd_pipe_is_reduced_once(p, &both.scatter.moved[i]);
}

const hd_flow hd_flow_roundtrip = {.first = 1,
                                   .prepare = prepare,
                                   .before = emit_before,
                                   .trip = emit_trip,
                                   .after = emit_after};
