// Reductions: a trip computes partial results of a shard, moves a piece of them
// towards the rank whose shard it is, and what has come is joined to the local
// ones. The local shard is the last one.
//
//     direct   partials go to the rank that joins them; those of all ranks, its
//              own among them, are joined in the order of the ranks at the end
//     ring     what came from the left is joined with the local partial, by the
//              product itself where that can add a bias, and goes to the right
//
// Sums of a ring can be wider than the result: they travel so (--wire), and the
// last product or sum rounds them.
//
// Of an all_reduce each rank keeps its joined shard where the others read it,
// straight into their results: those are the caller's, and no peer writes
// there. A temporary that the loop alone computes on is kept as it is.
#include "base/dtype.h"
#include "ir/space.h"
#include "lower/pipe.h"

// ------------------------------------------------------------------- views

static hd_view partial_view(hd_pipe *p, const hd_moved *m,
                            const hd_trip_piece *at)
{
    hd_view partial = hd_pipe_at_shard(p, *m->from, m->dim, at->shard);

    return hd_pipe_at_chunk(p, partial, hd_pipe_chunk_dim(m->from), at->chunk);
}

// Whether every rank gets all shards.
static bool is_for_all(const hd_moved *m)
{
    return m->op->code == HD_OP_ALL_REDUCE;
}

// The rank's own index of the dimension over ranks of a product's view `i`. Of
// one in blocks a result has its own already; an operand that repeats there has
// one index.
static hd_view pick_rank(const hd_pipe *p, const hd_op *op, int i, hd_view view)
{
    const hd_type *type = &view.buffer->type;
    int dim = hd_type_axis_dim(type, p->axis);
    int out = hd_type_axis_dim(&op->view[0].buffer->type, p->axis);

    if (dim >= 0)
        return hd_dim_is_cut(type->dim[dim])
                   ? view
                   : hd_view_at(view, dim, hd_pipe_rank(p));
    dim = i > 0 && out >= 0 && (i <= op->ninputs || hd_op_has_scales(op, i))
              ? hd_space_beside(op, i, out)
              : -1;
    return dim >= 0 && type->dim[dim].extent == 1
               ? hd_view_at(view, dim, hd_pipe_number(p, 0))
               : view;
}

// The result, with the dimension over ranks or without.
static hd_view shard_view(hd_pipe *p, const hd_moved *m, const hd_view *out,
                          hd_expr shard, hd_expr chunk)
{
    hd_view at = hd_pipe_at_shard(p, *out, hd_pipe_index(p, out), shard);

    return hd_pipe_at_chunk(p, at, hd_pipe_chunk_dim(m->to), chunk);
}

// Where a shard belongs: of a reduction to one rank, in one place.
static hd_view result_view(hd_pipe *p, const hd_moved *m, hd_expr shard,
                           hd_expr chunk)
{
    return shard_view(p, m, m->to, shard, chunk);
}

// Of blocks that are the local shard of every rank; HD_EXPR_ALL is all of them.
static hd_view local_slot(hd_pipe *p, const hd_moved *m, hd_view like,
                          hd_expr slot)
{
    hd_view view =
        hd_view_at(hd_view_whole(m->arrived, like.loc), m->dim, slot);

    for (int i = 0; i < like.nindex; i++) {
        const hd_range *range = hd_view_range(&like, i);
        int at = i < m->dim ? i : i + 1;

        if (i == m->dim)
            view =
                hd_view_block(p->module, view, at, hd_pipe_rank(p), p->ranks);
        else if (range != NULL)
            view =
                hd_view_block(p->module, view, at, range->block, range->blocks);
        else if (hd_view_picks(&like, i))
            view = hd_view_at(view, at, like.index[i]);
    }
    return view;
}

// A view of %p in `arrived` or `sums`, which are shaped as it is, but for
// blocks that are all of the local shard.
static hd_view slot_view(hd_pipe *p, const hd_moved *m, hd_buffer *slots,
                         hd_view like, hd_expr slot, hd_expr chunk)
{
    if (m->cut && slots != m->from->buffer && !p->schedule->relays)
        return local_slot(p, m, like, slot);
    like.buffer = slots;
    if (m->cut)
        return hd_pipe_at_shard(p, like, m->dim, slot);
    like.index[m->dim] = slot;
    return hd_pipe_at_chunk(p, like, hd_pipe_chunk_dim(m->from), chunk);
}

// What has arrived for a piece.
static hd_view arrived_view(const hd_trip *t, const hd_moved *m, hd_view like)
{
    return slot_view(t->p, m, m->arrived, like, t->at.shard, t->at.chunk);
}

// The local partial among those that arrive.
static hd_view own_view(const hd_trip *t, const hd_moved *m, hd_view like)
{
    return slot_view(t->p, m, m->arrived, like, hd_pipe_rank(t->p),
                     t->at.chunk);
}

// ---------------------------------------------------------------- reducing

static hd_dtype dtype_of(const hd_moved *m)
{
    return m->from->buffer->type.dtype;
}

// Sums of a ring travel as another dtype than they are of.
static bool is_wide(const hd_moved *m)
{
    return m->arrived->type.dtype != dtype_of(m);
}

static hd_opcode fold_code(const hd_moved *m)
{
    switch (hd_op_fold(m->op)) {
    case HD_FOLD_MAX:
        return HD_OP_MAX;
    case HD_FOLD_MIN:
        return HD_OP_MIN;
    case HD_FOLD_SUM:
    case HD_FOLD_NONE:
        break;
    }
    return HD_OP_SUM;
}

static void reduce_all(const hd_moved *m, hd_build *b, hd_view out, hd_view in)
{
    hd_opcode code = is_for_all(m) ? HD_OP_ALL_REDUCE : HD_OP_REDUCE_SCATTER;
    bool alone = b->module->axis[m->op->axis].size == 1;
    hd_op *op;

    if (alone && !is_for_all(m)) {
        int dim = hd_pipe_dim_of(m->from, m->dim, &in);

        in = hd_view_block(b->module, in, dim, hd_expr_const(b->module, 0), 1);
        hd_build_unary(b, HD_OP_COPY, -1, out, in);
        return;
    }
    op = hd_build_unary(b, code, m->op->axis, out, in);
    if (!is_for_all(m))
        hd_build_pieces_dim(b->module, op, 1, m->dim);
    hd_build_past_ones(b->module, op);
    hd_build_fold_key(op, hd_op_fold(m->op));
}

// Chunk by chunk of every shard; for all, of one after the other.
static void spread(const hd_trip *t, hd_build *b, const hd_moved *m)
{
    reduce_all(m, b, result_view(t->p, m, t->at.shard, t->at.chunk),
               partial_view(t->p, m, &t->at));
}

// From all to the rank whose shard it is.
static void reduce(const hd_trip *t, hd_build *b, const hd_moved *m)
{
    hd_view out = result_view(t->p, m, t->at.shard, t->at.chunk);
    hd_op *op = hd_build_unary(b, HD_OP_REDUCE, t->p->axis, out,
                               partial_view(t->p, m, &t->at));

    hd_build_key(op, HD_KEY_ROOT, t->at.shard);
    hd_build_fold_key(op, hd_op_fold(m->op));
}

// --------------------------------------------------------------- computing

// What is reduced, if the statement makes it and nothing else needs it.
static const hd_moved *made_by(const hd_pipe *p, const hd_op *op)
{
    for (int i = 0; i < p->nmoved; i++)
        if (p->moved[i].in_place &&
            p->moved[i].from->buffer == op->view[0].buffer)
            return &p->moved[i];
    return NULL;
}

static bool is_moved(const hd_pipe *p, const hd_op *op)
{
    for (int i = 0; i < p->nmoved; i++)
        if (p->moved[i].op == op)
            return true;
    return false;
}

static hd_expr is_past_first(const hd_trip *t)
{
    return hd_pipe_binary(t->p, HD_EXPR_LE, hd_pipe_number(t->p, t->p->chunks),
                          t->j);
}

// What goes on for a piece.
static hd_view sum_view(const hd_trip *t, const hd_moved *m, hd_view like)
{
    return slot_view(t->p, m, m->sums, like, t->at.shard, t->at.chunk);
}

// The same trip where its shard is known to be the local one, by whose number
// blocks are as long as each other.
static hd_trip own_trip(const hd_trip *t, const hd_moved *m)
{
    hd_trip own = *t;

    if (m->cut)
        own.at.shard = hd_pipe_rank(t->p);
    return own;
}

// Makes a partial result with what has arrived for its shard added.
static hd_op *clone_onto(const hd_trip *t, hd_build *b, const hd_op *op,
                         const hd_moved *m)
{
    hd_op *copy = hd_pipe_clone(t->p, b, op, &t->at);

    hd_build_key_view(copy, HD_KEY_BIAS, arrived_view(t, m, op->view[0]));
    return copy;
}

// A sum that goes on.
static void make_sum(const hd_trip *t, hd_build *b, const hd_op *op,
                     const hd_moved *m, bool adds)
{
    hd_op *copy =
        adds ? clone_onto(t, b, op, m) : hd_pipe_clone(t->p, b, op, &t->at);

    if (m->sums != NULL)
        copy->view[0] = sum_view(t, m, op->view[0]);
}

// The product that makes the result where it belongs.
static void make_result(const hd_trip *t, hd_op *op, const hd_moved *m)
{
    op->view[0] = shard_view(t->p, m, m->picks ? m->to : &m->whole, t->at.shard,
                             t->at.chunk);
    for (int i = 1; i < op->nviews && m->picks; i++)
        op->view[i] = pick_rank(t->p, m->maker, i, op->view[i]);
}

// The first shard's trips have nothing to add, the last one's make the result.
static void emit_fused(const hd_trip *t, hd_build *b, const hd_op *op,
                       const hd_moved *m)
{
    hd_pipe *p = t->p;
    hd_build first, between, last = *b;
    hd_trip own = m->kept == NULL ? own_trip(t, m) : *t;
    hd_op *copy;

    if (p->ranks > 1) {
        first = hd_build_if(b, hd_trip_is_first(t), &last);
        make_sum(t, &first, op, m, false);
    }
    if (p->ranks > 2 && (m->kept == NULL || m->sums != NULL)) {
        hd_build rest = last;

        between = hd_build_if(&rest, hd_trip_is_before_end(t), &last);
        make_sum(t, &between, op, m, true);
    }
    copy = p->ranks > 1 ? clone_onto(&own, &last, op, m)
                        : hd_pipe_clone(p, &last, op, &own.at);
    if (m->kept == NULL)
        make_result(&own, copy, m);
}

static void emit_compute(const hd_trip *t, hd_build *all)
{
    hd_pipe *p = t->p;
    hd_trip_piece at = t->at;
    hd_build each = hd_pipe_open_shards(p, all, p->ops, p->behind, &at);
    hd_build *b = &each;

    for (hd_stmt *s = p->ops; s != p->behind; s = s->next) {
        const hd_moved *m = made_by(p, s->op);

        if (is_moved(p, s->op))
            continue;
        if (m != NULL && m->fused) {
            emit_fused(t, b, s->op, m);
        } else if (m != NULL && t->own >= 0 && !p->schedule->relays) {
            hd_trip_piece own = at;
            hd_build mine,
                theirs = hd_build_if(b, hd_trip_is_before_end(t), &mine);

            if (m->cut)
                own.shard = hd_pipe_rank(p);
            (void)hd_pipe_clone(p, &theirs, s->op, &at);
            hd_pipe_clone(p, &mine, s->op, &own)->view[0] =
                own_view(t, m, s->op->view[0]);
        } else {
            (void)hd_pipe_clone(p, b, s->op, &at);
        }
    }
}

// Where a ring joins: of an all_reduce every sum is kept alike.
static hd_view goal_view(const hd_trip *t, const hd_moved *m)
{
    return m->kept != NULL
               ? slot_view(t->p, m, m->kept, *m->from, t->at.shard, t->at.chunk)
               : result_view(t->p, m, t->at.shard, t->at.chunk);
}

// Joins what arrived with the local partial, in a ring whose product does not.
// The first of them goes as it is, or is widened.
static void emit_join(const hd_trip *t, hd_build *b, const hd_moved *m)
{
    hd_pipe *p = t->p;
    hd_view view[3] = {goal_view(t, m)};
    hd_build past, last;
    hd_trip own;

    view[2] = partial_view(p, m, &t->at);
    if (p->ranks == 1) {
        hd_build_unary(b, HD_OP_COPY, -1, view[0], view[2]);
        return;
    }
    view[1] = arrived_view(t, m, *m->from);
    past = hd_build_if(b, is_past_first(t), &last);
    if (is_wide(m))
        hd_build_unary(&last, HD_OP_COPY, -1, sum_view(t, m, *m->from),
                       view[2]);
    last = past;
    if (p->ranks > 2 && m->kept != m->sums) {
        hd_build on = hd_build_if(&past, hd_trip_is_before_end(t), &last);

        view[0] = sum_view(t, m, *m->from);
        hd_build_op(&on, fold_code(m), -1, 1, 2, view);
    }
    own = own_trip(t, m);
    view[0] = goal_view(&own, m);
    view[1] = arrived_view(&own, m, *m->from);
    view[2] = partial_view(p, m, &own.at);
    hd_build_op(&last, fold_code(m), -1, 1, 2, view);
}

// ------------------------------------------------------------------ moves

// A send and a recv.
static void exchange(const hd_trip *t, hd_build *b, const hd_moved *m)
{
    hd_pipe *p = t->p;
    hd_view like = *m->from;
    hd_view made = partial_view(p, m, &t->at);
    hd_build first = *b, later;

    if (is_wide(m)) {
        made = sum_view(t, m, like);
    } else if (m->sums != NULL && p->ranks > 2) {
        first = hd_build_if(b, hd_trip_is_first(t), &later);
        hd_trip_transfer(t, &later, m, HD_OP_SEND, sum_view(t, m, like));
    }
    hd_trip_transfer(t, &first, m, HD_OP_SEND, made);
    hd_trip_transfer(t, b, m, HD_OP_RECV,
                     slot_view(p, m, m->arrived, like, p->schedule->arrives(t),
                               t->at.chunk));
}

// Where peers read the joined local shard.
static hd_view kept_view(hd_pipe *p, const hd_moved *m, hd_expr chunk)
{
    hd_expr rank = hd_pipe_rank(p);

    return m->kept != NULL ? slot_view(p, m, m->kept, *m->from, rank, chunk)
                           : result_view(p, m, rank, chunk);
}

// That to all: the others read it.
static void share(hd_pipe *p, hd_build *b, const hd_moved *m, hd_expr chunk)
{
    hd_expr rank = hd_pipe_rank(p);
    hd_view kept = kept_view(p, m, chunk);

    for (int64_t d = 1; d < p->ranks; d++) {
        hd_expr by = hd_pipe_number(p, d);
        hd_expr to = hd_pipe_around(p, HD_EXPR_ADD, rank, by);
        hd_expr from = hd_pipe_around(p, HD_EXPR_SUB, rank, by);

        hd_pipe_transfer(p, b, HD_OP_SEND, kept, to, true);
        hd_pipe_transfer(p, b, HD_OP_RECV, result_view(p, m, from, chunk), from,
                         true);
    }
}

static void copy_kept(hd_pipe *p, hd_build *b, const hd_moved *m, hd_expr chunk)
{
    if (m->kept != NULL)
        hd_build_unary(b, HD_OP_COPY, -1,
                       result_view(p, m, hd_pipe_rank(p), chunk),
                       kept_view(p, m, chunk));
}

// `rest` is what the trips do that exchange nothing any more.
static void emit_moves(hd_build *b, const hd_trip *t, hd_build *rest)
{
    hd_pipe *p = t->p;
    hd_build moves = *b, shares;

    *rest = *b;
    if (p->schedule->move == NULL || (p->schedule->to != NULL && p->ranks == 1))
        return;
    if (p->schedule->to != NULL) {
        moves = hd_build_if(b, hd_trip_is_before_end(t), rest);
        moves = hd_build_group(&moves);
    }
    shares = *rest;
    if (p->schedule->relays && is_for_all(&p->moved[0]))
        shares = hd_build_group(rest);
    for (int i = 0; i < p->nmoved; i++) {
        moves.loc = shares.loc = p->moved[i].op->loc;
        p->schedule->move(t, &moves, &p->moved[i]);
        if (p->schedule->relays && is_for_all(&p->moved[i]))
            share(p, &shares, &p->moved[i], t->at.chunk);
    }
}

// What all ranks do with the result.
static void emit_behind(hd_pipe *p, hd_build *b, hd_trip_piece at)
{
    hd_build each = hd_pipe_open_shards(p, b, p->behind, NULL, &at);

    for (hd_stmt *s = p->behind; s != NULL; s = s->next)
        (void)hd_pipe_clone(p, &each, s->op, &at);
}

// The local partial, where it is not made among those that arrive.
static void copy_own(const hd_trip *t, hd_build *b, const hd_moved *m)
{
    hd_build theirs, mine = hd_build_if(b, t->own, &theirs);
    hd_trip own = own_trip(t, m);
    hd_view in = partial_view(t->p, m, &own.at);

    hd_build_unary(&mine, HD_OP_COPY, -1, own_view(t, m, *m->from), in);
}

static void emit_trip(hd_pipe *p, hd_build *b, hd_expr j)
{
    hd_trip t = hd_trip_start(p, b, j);
    hd_trip_piece ended = t.at;
    hd_build rest;

    emit_compute(&t, b);
    for (int i = 0; i < p->nmoved; i++) {
        const hd_moved *m = &p->moved[i];
        hd_build at = {p->module, b->block, m->op->loc};

        if (p->schedule->relays && !m->fused)
            emit_join(&t, &at, m);
        if (p->schedule->relays && m->kept != NULL) {
            hd_build others, mine = hd_build_if(&at, t.own, &others);

            copy_kept(p, &mine, m, t.at.chunk);
        }
        if (t.own >= 0 && !p->schedule->relays && !m->in_place)
            copy_own(&t, &at, m);
    }
    emit_moves(b, &t, &rest);
    if (p->schedule->relays) // a chunk of all shards
        ended.shard = HD_EXPR_ALL;
    if (hd_pipe_ends_in_trips(p->schedule))
        emit_behind(p, &rest, ended);
}

// The result of all shards.
static hd_view whole_result(hd_pipe *p, const hd_moved *m)
{
    hd_view out = *m->to;

    if (is_for_all(m))
        out = hd_view_all_of(p->module, out, hd_pipe_index(p, &out));
    return out;
}

// Of blocks, which need not be as long, one after the other.
static void scatter_blocks(hd_pipe *p, hd_build *b, const hd_moved *m)
{
    hd_expr i;
    hd_build body = hd_build_for(b, "i", hd_pipe_number(p, p->ranks), &i);
    hd_view in = hd_pipe_at_shard(p, *m->from, m->dim, i);
    hd_op *op = hd_build_unary(&body, HD_OP_REDUCE, p->axis, *m->to, in);

    hd_build_key(op, HD_KEY_ROOT, i);
    hd_build_fold_key(op, hd_op_fold(m->op));
}

// What has arrived from all ranks.
static hd_view all_slots(hd_pipe *p, const hd_moved *m)
{
    hd_view all = *m->from;

    if (m->cut)
        return local_slot(p, m, all, HD_EXPR_ALL);
    all.buffer = m->arrived;
    return hd_view_all_of(p->module, all, m->dim);
}

// What is reduced after the loop.
static void emit_after(hd_pipe *p, hd_build *b)
{
    hd_trip_piece all = {.shard = HD_EXPR_ALL, .chunk = HD_EXPR_NONE};

    if (hd_pipe_ends_in_trips(p->schedule))
        return;
    for (int i = 0; i < p->nmoved; i++) {
        const hd_moved *m = &p->moved[i];
        hd_view out = *m->to, in = *m->from;

        b->loc = m->op->loc;
        if (p->schedule->move == NULL && m->cut) {
            scatter_blocks(p, b, m);
            continue;
        }
        in = hd_view_all_of(p->module, in, m->dim);
        if (p->schedule->move == NULL) {
            reduce_all(m, b, whole_result(p, m), in);
            continue;
        }
        in = all_slots(p, m);
        if (is_for_all(m))
            out = kept_view(p, m, HD_EXPR_NONE);
        hd_build_number(hd_build_unary(b, fold_code(m), -1, out, in),
                        HD_KEY_DIM, hd_view_kept_ahead(&in, m->dim));
        if (!is_for_all(m))
            continue;
        copy_kept(p, b, m, HD_EXPR_NONE);
        if (p->ranks > 1) {
            hd_build group = hd_build_group(b);

            share(p, &group, m, HD_EXPR_NONE);
        }
    }
    emit_behind(p, b, all);
}

// ----------------------------------------------------------------- buffers

// As many pieces as there are shards of what is reduced.
static hd_buffer *add_slots(hd_pipe *p, const hd_moved *m, const char *what,
                            hd_dtype dtype)
{
    const hd_buffer *like = m->from->buffer;
    hd_buffer *slots;
    hd_type type = like->type;
    hd_dim shard = type.dim[m->dim];

    shard.mark = p->axis;
    if (m->cut && !p->schedule->relays) {
        type.dim[m->dim] = hd_dim_cut(shard, p->ranks);
        type = hd_type_with(&type, m->dim, hd_dim_whole(p->ranks));
    }
    type.dtype = dtype;
    slots = hd_module_add_buffer(
        p->module, hd_arena_printf(p->scratch, "%s_%s", like->name, what),
        HD_ROLE_TEMP, &type);
    slots->said = like->said;
    return slots;
}

// The one statement of the loop that makes what is reduced alone, of nothing
// that was there; NULL if that is needed otherwise.
static const hd_op *maker_of(const hd_pipe *p, const hd_moved *m)
{
    const hd_view *in = m->from;

    if (!hd_pipe_is_alone(p, in->buffer) ||
        hd_pipe_count_uses(p, NULL, hd_buffer_root(in->buffer)) != 2)
        return NULL;
    for (const hd_stmt *s = p->ops; s != p->behind; s = s->next)
        if (s->op != m->op && s->op->noutputs == 1 &&
            s->op->view[0].buffer == in->buffer &&
            hd_op_access(s->op, 0) == HD_ACCESS_WRITE)
            return s->op;
    return NULL;
}

static bool is_alike(const hd_view *a, const hd_view *b)
{
    hd_type x = hd_view_type(a), y = hd_view_type(b);

    return hd_type_same_dims(&x, &y);
}

// The result, with the dimension that is sharded over the axis kept: as a
// product has it, which keeps that of its operands.
static hd_view keep_axis(const hd_pipe *p, hd_view view)
{
    int dim = hd_type_axis_dim(&view.buffer->type, p->axis);

    if (dim >= 0 && dim < view.nindex)
        view.index[dim] = HD_EXPR_ALL;
    return view;
}

// A product adds what its bias can be, if it does nothing after it: a cast to a
// narrower dtype, too, would be of another sum.
static bool can_add(const hd_moved *m)
{
    const hd_op *maker = m->maker;

    return maker->code == HD_OP_MATMUL && hd_op_fold(m->op) == HD_FOLD_SUM &&
           hd_op_key(maker, HD_KEY_BIAS) == NULL &&
           hd_op_key(maker, HD_KEY_ACT) == NULL &&
           hd_op_key(maker, HD_KEY_AUX) == NULL &&
           hd_op_key(maker, HD_KEY_GROUPS) == NULL &&
           !hd_op_has_counts(maker) &&
           hd_dtype_holds(maker->view[0].buffer->type.dtype,
                          maker->view[1].buffer->type.dtype);
}

// Of the local shard, where it is a block, as long as the result.
static hd_view own_shard(hd_pipe *p, const hd_moved *m, hd_view view)
{
    return m->cut ? hd_pipe_at_shard(p, view, m->dim, hd_pipe_rank(p)) : view;
}

// Whether the product of the rank's own indices has the result's shape, where
// it lies otherwise with the dimension over ranks, as behind a batch.
static bool can_pick(hd_pipe *p, const hd_moved *m)
{
    int n = hd_pipe_product_views(m->maker);
    hd_view view[HD_MAX_VIEWS];

    for (int i = 0; i < n; i++)
        view[i] = own_shard(p, m, m->maker->view[i]);
    if (is_alike(&m->whole, &view[0]))
        return false;
    for (int i = 0; i < n; i++)
        view[i] = pick_rank(p, m->maker, i, view[i]);
    return is_alike(m->to, &view[0]) && hd_pipe_is_product(m->maker, view);
}

// Whether the joined shard is not made where it belongs: a product's may have
// another shape than the result, and of an all_reduce peers read it, but in a
// temporary, where they may do so.
static bool is_kept(hd_pipe *p, const hd_moved *m)
{
    hd_view made;

    if (p->schedule->to == NULL)
        return false;
    if (is_for_all(m) && !hd_pipe_is_alone(p, m->to->buffer))
        return true;
    if (!m->fused || m->picks)
        return false;
    made = own_shard(p, m, m->maker->view[0]);
    return !is_alike(&m->whole, &made);
}

// Partial results that nothing else needs have a slot for the local shard, and
// so have sums of their dtype.
static hd_buffer *keep_in(hd_pipe *p, const hd_moved *m)
{
    bool sums = m->sums != NULL && !is_wide(m);
    bool unused = m->fused || (m->in_place && !sums);

    return unused ? m->from->buffer
           : sums ? m->sums
                  : add_slots(p, m, "sum", dtype_of(m));
}

const char *hd_pipe_why_no_wire(const hd_pipe *p, const hd_moved *m)
{
    const char *dtype = hd_dtype_text(dtype_of(m));

    if (m->op->code == HD_OP_BROADCAST)
        return "what is gathered is not added up";
    if (p->schedule->to == NULL)
        return "this pipeline adds up in collectives, and sends no partial "
               "sums";
    if (!p->schedule->relays)
        return "what arrives is added up at once, with one rounding";
    if (hd_op_fold(m->op) != HD_FOLD_SUM)
        return "a maximum or minimum is not rounded";
    if (!hd_dtype_is_float(dtype_of(m)))
        return "sums of integers are not rounded";
    return hd_dtype_holds(dtype_of(m), HD_DTYPE_F32)
               ? hd_arena_printf(p->scratch, "partial sums of %s travel as %s",
                                 dtype, dtype)
               : NULL;
}

// What partial sums travel as.
static hd_dtype wire_of(const hd_pipe *p, const hd_moved *m)
{
    bool wider = p->options->wire == HD_WIRE_F32 && p->ranks > 1 &&
                 hd_pipe_why_no_wire(p, m) == NULL;

    return wider ? HD_DTYPE_F32 : dtype_of(m);
}

static void prepare(hd_pipe *p)
{
    for (int i = 0; i < p->nmoved; i++) {
        hd_moved *m = &p->moved[i];
        hd_dtype wire;

        m->maker = maker_of(p, m);
        m->whole = keep_axis(p, *m->to);
        m->in_place =
            m->maker != NULL && (p->schedule->relays || !p->options->copy_own);
        m->fused = p->schedule->relays && m->maker != NULL && can_add(m);
        m->picks = m->fused && can_pick(p, m);
        wire = wire_of(p, m);
        if (p->schedule->to != NULL)
            m->arrived = add_slots(p, m, "in", wire);
        if (p->schedule->relays && (!m->fused || wire != dtype_of(m)))
            m->sums = add_slots(p, m, "sum", wire);
        if (is_kept(p, m))
            m->kept = keep_in(p, m);
    }
}

// --------------------------------------------------------------- pipelines

// rank + 1 + step, and the rank of which this is the shard then.
static hd_expr past_upwards(const hd_trip *t)
{
    hd_expr next = hd_pipe_binary(t->p, HD_EXPR_ADD, hd_pipe_rank(t->p),
                                  hd_pipe_number(t->p, 1));

    return hd_pipe_around(t->p, HD_EXPR_ADD, next, t->step);
}

static hd_expr past_downwards(const hd_trip *t)
{
    hd_expr last = hd_pipe_binary(t->p, HD_EXPR_ADD, hd_pipe_rank(t->p),
                                  hd_pipe_number(t->p, t->p->ranks - 1));

    return hd_pipe_around(t->p, HD_EXPR_SUB, last, t->step);
}

// One collective after one computation of all: what is not fused, too.
static const hd_trips bulk = {0};
// Trip j computes chunk j of every shard, and scatters it.
static const hd_trips pipelined = {.move = spread};
// Shard j is reduced to rank j, or to all.
static const hd_trips rooted = {.shard = hd_trip_step, .move = reduce};
static const hd_trips for_all = {.shard = hd_trip_step, .move = spread};
// To rank + 1 + j, from rank - 1 - j.
static const hd_trips direct = {.shard = past_upwards,
                                .own = hd_trip_is_past_end,
                                .move = exchange,
                                .to = hd_trip_shard,
                                .from = past_downwards,
                                .arrives = past_downwards};
// What came from the left neighbour is added to, and goes on to the right.
static const hd_trips ring = {.shard = past_downwards,
                              .own = hd_trip_is_past_end,
                              .move = exchange,
                              .to = hd_trip_right,
                              .from = hd_trip_left,
                              .arrives = hd_trip_shard_below,
                              .relays = true};

static const hd_trips *const to_one[] = {
    [HD_TRANSFER_BULK] = &bulk,           [HD_TRANSFER_FUSED] = &bulk,
    [HD_TRANSFER_PIPELINED] = &pipelined, [HD_TRANSFER_BROADCAST] = &rooted,
    [HD_TRANSFER_DIRECT] = &direct,       [HD_TRANSFER_RING] = &ring,
};

// The last two as above, and then from each rank to all.
static const hd_trips *const to_all[] = {
    [HD_TRANSFER_BULK] = &bulk,         [HD_TRANSFER_FUSED] = &bulk,
    [HD_TRANSFER_PIPELINED] = &for_all, [HD_TRANSFER_BROADCAST] = &for_all,
    [HD_TRANSFER_DIRECT] = &direct,     [HD_TRANSFER_RING] = &ring,
};

#define REDUCING \
    .prepare = prepare, .trip = emit_trip, .after = emit_after, .piece = 1

const hd_flow hd_flow_scatter = {.schedules = to_one, REDUCING};
const hd_flow hd_flow_all_reduce = {.schedules = to_all, REDUCING};
