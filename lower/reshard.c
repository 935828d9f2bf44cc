// Turns a tensor program into host ops on the caller's stream. `set`, and
// reductions over a sharded dimension, become named communication, one mesh
// axis at a time, each a change of one mark:
//
//   local -> sharded     a copy of the own part      (moves nothing)
//   sharded -> elsewhere all_to_all
//   sharded -> local     all_gather
//
// in that order, which keeps intermediate tensors small. A collective names the
// dimension over ranks, wherever that stands and however unevenly ranks have
// indices of it: what it moves is packed once its pipeline is known.
//
// Attention to keys in blocks becomes a loop that attends to one after the
// other.
#include <float.h>

#include "base/dtype.h"
#include "ir/causal.h"
#include "ir/signature.h"
#include "ir/space.h"
#include "lower/pad.h"
#include "lower/pass.h"

static hd_expr coord(hd_build *b, int axis)
{
    return hd_expr_coord(b->module, axis);
}

static int mark_of(hd_dim dim)
{
    return hd_dim_is_sharded(dim) ? dim.mark : HD_LOCAL;
}

static bool same_placement(const hd_type *a, const hd_type *b)
{
    for (int i = 0; i < a->ndims; i++)
        if (mark_of(a->dim[i]) != mark_of(b->dim[i]))
            return false;
    return true;
}

// No dimension of it is a stream dimension.
static hd_buffer *add_temp(hd_build *b, const hd_buffer *like, hd_type type)
{
    type = hd_type_unstreamed(type);
    return hd_module_add_buffer(b->module, like->name, HD_ROLE_TEMP, &type);
}

// A temporary for a step towards `goal`, which is taken itself if this is the
// last step.
static hd_buffer *next_buffer(hd_build *b, const hd_type *type, hd_buffer *goal)
{
    return type->ndims == goal->type.ndims && type->dtype == goal->type.dtype &&
                   same_placement(type, &goal->type)
               ? goal
               : add_temp(b, goal, *type);
}

static hd_view whole(const hd_build *b, hd_buffer *buffer)
{
    return hd_view_own(b->module, hd_view_whole(buffer, b->loc));
}

static int64_t ranks_of(const hd_build *b, int axis)
{
    return b->module->axis[axis].size;
}

// The part of dimension `dim` that is the rank's.
static hd_view own(hd_build *b, hd_view view, int dim, int axis)
{
    return hd_view_block(b->module, view, dim, coord(b, axis),
                         ranks_of(b, axis));
}

// A rank has one index of each dimension before `dim`.
static bool leads(const hd_view *view, int dim)
{
    for (int i = 0; i < dim; i++)
        if (!hd_view_picks(view, i) &&
            hd_dim_local(view->buffer->type.dim[i]) != 1)
            return false;
    return true;
}

static hd_dim sharded(const hd_build *b, hd_dim dim, int axis)
{
    dim.mark = axis;
    return hd_dim_cut(dim, ranks_of(b, axis));
}

enum { NONE = -1 };

// ------------------------------------------------------------------- parts

static bool is_part(const hd_view *view)
{
    return view->nindex > 0;
}

// Whether it moves by way of a tensor of its own: a part, or what counts of a
// dimension leave of one, which is zero beyond them.
static bool moves_as_copy(const hd_view *view)
{
    return is_part(view) || view->buffer->by != NULL;
}

// A tensor of its own for what a view has.
static hd_buffer *part_buffer(hd_build *b, const hd_view *view)
{
    hd_buffer *part;

    if (!moves_as_copy(view))
        return view->buffer;
    part = add_temp(b, view->buffer, hd_view_type(view));
    hd_build_unary(b, HD_OP_COPY, -1, whole(b, part),
                   hd_view_own(b->module, *view));
    return part;
}

// Whether a loop over the result's stream dimension has no way to name what an
// iteration needs of an operand: an index of some of those of a dimension, or
// the one that repeats ahead of dimensions that the part lacks.
static bool has_own_stream(const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    const hd_view *out = &op->view[0];
    int s = hd_type_stream_dim(&out->buffer->type), dim = 0;
    hd_space space;

    if (s < 0 || i < op->noutputs || !is_part(view) || hd_view_picks(out, s) ||
        hd_view_range(out, s) != NULL)
        return false;
    hd_space_map_op(op, &space);
    for (int kept = space.dim[i][hd_view_kept_ahead(out, s)];
         dim < view->buffer->type.ndims; dim++)
        if (!hd_view_picks(view, dim) && kept-- == 0)
            return hd_view_range(view, dim) != NULL ||
                   (view->buffer->type.dim[dim].extent == 1 &&
                    view->nindex > dim + 1);
    return false;
}

// View `i` of an op that every rank does alone.
static hd_view own_view(hd_build *b, const hd_op *op, int i)
{
    return has_own_stream(op, i) ? whole(b, part_buffer(b, &op->view[i]))
                                 : hd_view_own(b->module, op->view[i]);
}

// Where a result goes once it has moved: a part of a tensor has one of its own
// until then.
static hd_buffer *goal_of(hd_build *b, const hd_op *op)
{
    const hd_view *out = &op->view[0];

    return moves_as_copy(out) ? add_temp(b, out->buffer, hd_view_type(out))
                              : out->buffer;
}

static void reach_goal(hd_build *b, const hd_op *op, hd_buffer *goal)
{
    if (goal != op->view[0].buffer)
        hd_build_unary(b, HD_OP_COPY, -1, own_view(b, op, 0), whole(b, goal));
}

// ------------------------------------------------------------ single moves

// Dimension `dim` of `from` is local and becomes sharded in `to`.
static void emit_slice(hd_build *b, hd_buffer *from, hd_buffer *to, int dim,
                       int axis)
{
    hd_build_unary(b, HD_OP_COPY, -1, own(b, whole(b, to), dim, axis),
                   own(b, whole(b, from), dim, axis));
}

// Of a dimension in blocks, those of some ranks are shorter.
static bool is_uneven(const hd_type *type)
{
    for (int i = 0; i < type->ndims; i++)
        if (hd_dim_is_uneven(type->dim[i]))
            return true;
    return false;
}

// Index i of those that the view keeps of a dimension.
static hd_view pick(hd_build *b, hd_view view, int dim, hd_expr i)
{
    const hd_range *range = hd_view_range(&view, dim);

    if (range != NULL)
        i = hd_expr_binary(b->module, HD_EXPR_ADD, range->low, i);
    hd_view_keep_all(b->module, &view, dim);
    return hd_view_at(view, dim, i);
}

static void gather(hd_build *b, hd_buffer *from, hd_buffer *to, int dim,
                   int axis)
{
    hd_build_pieces_dim(b->module,
                        hd_build_unary(b, HD_OP_ALL_GATHER, axis, whole(b, to),
                                       own(b, whole(b, from), dim, axis)),
                        0, dim);
}

// `axis` moves from dimension `d` of `from` to dimension `e` of `to`.
static void emit_exchange(hd_build *b, hd_buffer *from, hd_buffer *to, int d,
                          int e, int axis)
{
    hd_op *op =
        hd_build_unary(b, HD_OP_ALL_TO_ALL, axis, own(b, whole(b, to), e, axis),
                       own(b, whole(b, from), d, axis));

    hd_build_pieces_dim(b->module, op, 1, e);
    hd_build_pieces_dim(b->module, op, 0, d);
}

// Whether the pieces that go to ranks, or come from them, by blocks of
// dimension `dim`, are contiguous: in front of the last dimension that they
// have a part of, they have one index of each.
static bool has_contiguous_blocks(const hd_build *b, const hd_type *type,
                                  int dim, int axis)
{
    bool is_part = false;

    for (int i = type->ndims - 1; i >= 0; i--) {
        hd_dim d = i == dim ? sharded(b, type->dim[i], axis) : type->dim[i];

        if (is_part && (hd_dim_local(d) != 1 || hd_dim_is_uneven(d)))
            return false;
        is_part |= i == dim || hd_dim_is_uneven(d);
    }
    return true;
}

// -------------------------------------------------------------------- set

typedef struct move {
    int axis;
    int from, to; // dimensions, -1 for none
} move;

// The type once each mark of a move is set.
static hd_type moved_type(const hd_build *b, hd_type type, const move *m)
{
    if (m->from >= 0)
        type.dim[m->from] = hd_dim_unmarked(type.dim[m->from]);
    if (m->to >= 0)
        type.dim[m->to] = sharded(b, type.dim[m->to], m->axis);
    return type;
}

static bool have_contiguous_blocks(const hd_build *b, const hd_type *from,
                                   const hd_type *to, const move *m)
{
    return has_contiguous_blocks(b, from, m->to, m->axis) &&
           has_contiguous_blocks(b, to, m->from, m->axis);
}

// The next change of one mark on the way from `type` to `goal`: slices, then
// exchanges, then gathers; where only a cycle of axes is left, a gather opens
// it.
static bool find_move(const hd_build *b, const hd_type *type,
                      const hd_type *goal, move *out)
{
    for (int kind = 0; kind < 4; kind++)
        for (int axis = 0; axis < b->module->naxes; axis++) {
            int from = hd_type_axis_dim(type, axis);
            int to = hd_type_axis_dim(goal, axis);
            bool free = to >= 0 && !hd_dim_is_sharded(type->dim[to]);
            if (from == to)
                continue;
            if ((kind == 0 && from < 0 && free) ||
                (kind == 1 && from >= 0 && free) ||
                (kind == 2 && from >= 0 && to < 0) ||
                (kind == 3 && from >= 0)) {
                *out = (move){axis, from, kind < 2 ? to : -1};
                return true;
            }
        }
    return false;
}

static hd_buffer *emit_move(hd_build *b, hd_buffer *from, hd_buffer *goal,
                            const move *m)
{
    hd_type type = moved_type(b, from->type, m);
    hd_buffer *to = next_buffer(b, &type, goal);

    if (m->from < 0)
        emit_slice(b, from, to, m->to, m->axis);
    else if (m->to < 0)
        gather(b, from, to, m->from, m->axis);
    else
        emit_exchange(b, from, to, m->from, m->to, m->axis);
    return to;
}

static void emit_moves(hd_build *b, hd_buffer *from, hd_buffer *to)
{
    move m;

    while (find_move(b, &from->type, &to->type, &m))
        from = emit_move(b, from, to, &m);
}

// What is cast to a wider dtype moves before that, in fewer bytes.
static void emit_set(hd_build *b, hd_buffer *from, hd_buffer *to)
{
    bool wider =
        hd_dtype_size(to->type.dtype) > hd_dtype_size(from->type.dtype) &&
        !same_placement(&from->type, &to->type);
    hd_type type = wider ? to->type : from->type;
    hd_buffer *between;

    if (from->type.dtype == to->type.dtype) {
        emit_moves(b, from, to);
        return;
    }
    type.dtype = (wider ? from : to)->type.dtype;
    between =
        wider ? hd_module_add_buffer(b->module, to->name, HD_ROLE_TEMP, &type)
              : next_buffer(b, &type, to);
    if (wider)
        emit_moves(b, from, between);
    hd_build_unary(b, HD_OP_COPY, -1, whole(b, wider ? to : between),
                   whole(b, wider ? between : from));
    if (!wider)
        emit_moves(b, between, to);
}

// Whether a change of one mark is of blocks, if only of even ones.
static bool is_cut(const hd_buffer *from, const hd_buffer *to, const move *m)
{
    return is_uneven(&from->type) || hd_dim_is_cut(from->type.dim[m->from]) ||
           hd_dim_is_cut(to->type.dim[m->to]);
}

// Whether a change of one mark makes it, from temporary to temporary, of counts
// that made the same change: each rank then sends of a slab the rows that its
// counts say, as they lie. What lies behind them is then of no meaning on the
// other side, which an argument would show.
static bool moves_rows(hd_build *b, const hd_op *op, move *m)
{
    hd_buffer *from = op->view[1].buffer, *to = op->view[0].buffer;
    hd_type type;
    hd_view in, out;

    if (is_part(&op->view[0]) || is_part(&op->view[1]) || from->by == NULL ||
        to->by == NULL || to->role != HD_ROLE_TEMP ||
        from->type.dtype != to->type.dtype ||
        !find_move(b, &from->type, &to->type, m) || m->from < 0 || m->to < 0 ||
        m->from >= from->by->type.ndims || m->to >= from->by->type.ndims)
        return false;
    type = moved_type(b, from->type, m);
    in = whole(b, from);
    out = whole(b, to);
    return same_placement(&type, &to->type) &&
           (is_cut(from, to, m)
                ? have_contiguous_blocks(b, &from->type, &type, m)
                : leads(&in, m->to) && leads(&out, m->from));
}

static void exchange_rows(hd_build *b, hd_buffer *from, hd_buffer *to,
                          const move *m)
{
    if (is_cut(from, to, m))
        hd_build_rounds(b, m->axis, own(b, whole(b, to), m->to, m->axis),
                        m->from, own(b, whole(b, from), m->from, m->axis),
                        m->to);
    else
        emit_exchange(b, from, to, m->from, m->to, m->axis);
}

// What stays where it is, is copied once.
static void set_in_place(hd_build *b, const hd_op *op)
{
    hd_type from = hd_view_type(&op->view[1]), to = hd_view_type(&op->view[0]);
    hd_buffer *goal;
    move m;

    if (same_placement(&from, &to)) {
        hd_build_unary(b, HD_OP_COPY, -1, own_view(b, op, 0),
                       own_view(b, op, 1));
        return;
    }
    if (moves_rows(b, op, &m)) {
        exchange_rows(b, op->view[1].buffer, op->view[0].buffer, &m);
        return;
    }
    goal = goal_of(b, op);
    emit_set(b, part_buffer(b, &op->view[1]), goal);
    reach_goal(b, op, goal);
}

// ------------------------------------------------- from some ranks to others

// That a coordinate is one of these.
static hd_expr is_among(hd_build *b, hd_ranks ranks)
{
    hd_module *m = b->module;
    hd_expr at = coord(b, ranks.axis);
    hd_expr low = hd_expr_const(m, ranks.low);
    hd_expr past = hd_expr_const(m, ranks.past);

    if (ranks.past == ranks.low + 1)
        return hd_expr_binary(m, HD_EXPR_EQ, at, low);
    low = hd_expr_binary(m, HD_EXPR_LE, low, at);
    past = hd_expr_binary(m, HD_EXPR_LT, at, past);
    if (ranks.past == ranks_of(b, ranks.axis))
        return low;
    return ranks.low == 0 ? past : hd_expr_binary(m, HD_EXPR_AND, low, past);
}

// What is built there these ranks do alone.
static hd_build on_ranks(hd_build *b, hd_ranks ranks)
{
    hd_build none;

    return hd_ranks_are_all(ranks) ? *b
                                   : hd_build_if(b, is_among(b, ranks), &none);
}

typedef struct point {
    int axis;
    hd_expr source, dest;
} point;

static void move_point(hd_build *b, hd_buffer *from, hd_buffer *to,
                       const point *p)
{
    hd_view in = whole(b, from), out = whole(b, to);
    hd_expr at = coord(b, p->axis);
    hd_build sends, receives, none;

    sends = hd_build_if(b, hd_expr_binary(b->module, HD_EXPR_EQ, at, p->source),
                        &receives);
    receives = hd_build_if(
        &receives, hd_expr_binary(b->module, HD_EXPR_EQ, at, p->dest), &none);
    hd_build_key(hd_build_op(&sends, HD_OP_SEND, p->axis, 0, 1, &in), HD_KEY_TO,
                 p->dest);
    hd_build_key(hd_build_op(&receives, HD_OP_RECV, p->axis, 1, 0, &out),
                 HD_KEY_FROM, p->source);
}

// To the ranks from `low` to before `past`, none of which is in `have`, from
// those in turn.
static void send_to(hd_build *b, hd_buffer *from, hd_buffer *to, hd_ranks have,
                    int64_t low, int64_t past)
{
    hd_module *m = b->module;
    hd_expr n = hd_expr_const(m, have.past - have.low);
    hd_expr i = hd_expr_const(m, 0);
    hd_build body = *b;
    point p = {.axis = have.axis};

    if (low >= past)
        return;
    if (past - low > 1)
        body = hd_build_for(b, "i", hd_expr_const(m, past - low), &i);
    p.source = hd_expr_const(m, have.low);
    if (have.past > have.low + 1)
        p.source =
            hd_expr_binary(m, HD_EXPR_ADD, p.source, hd_expr_mod(m, i, n));
    p.dest = hd_expr_binary(m, HD_EXPR_ADD, hd_expr_const(m, low), i);
    move_point(&body, from, to, &p);
}

// What the ranks of `have` hold alike, to those of `want`, on the same axis or
// all of it.
static void spread_ranks(hd_build *b, hd_buffer *from, hd_buffer *to,
                         hd_ranks have, hd_ranks want)
{
    int64_t n = ranks_of(b, have.axis);
    int64_t low = hd_ranks_are_all(want) ? 0 : want.low;
    int64_t past = hd_ranks_are_all(want) ? n : want.past;
    hd_ranks both = {true, have.axis, low > have.low ? low : have.low,
                     past < have.past ? past : have.past};

    if (hd_ranks_are_all(want) && have.past == have.low + 1) {
        hd_build_key(hd_build_unary(b, HD_OP_BROADCAST, have.axis, whole(b, to),
                                    whole(b, from)),
                     HD_KEY_ROOT, hd_expr_const(b->module, have.low));
        return;
    }
    if (both.low < both.past) {
        hd_build here = on_ranks(b, both);

        hd_build_unary(&here, HD_OP_COPY, -1, whole(b, to), whole(b, from));
    }
    send_to(b, from, to, have, low, past < have.low ? past : have.low);
    send_to(b, from, to, have, low > have.past ? low : have.past, past);
}

// The type of what arrives: placed as the result, but not over `axis`, all of
// whose ranks send or receive all of it, and of the narrower dtype.
static hd_type arriving(const hd_op *op, int axis)
{
    hd_type type = hd_view_type(&op->view[0]);
    hd_dtype dtype = op->view[1].buffer->type.dtype;
    int dim = hd_type_axis_dim(&type, axis);

    if (hd_dtype_size(dtype) < hd_dtype_size(type.dtype))
        type.dtype = dtype;

    if (dim >= 0)
        type.dim[dim] = hd_dim_unmarked(type.dim[dim]);
    return type;
}

// What ranks have of an operand, as a buffer of this type.
static hd_buffer *place_on(hd_build *b, hd_ranks ranks, const hd_view *view,
                           const hd_type *type)
{
    hd_type from = hd_view_type(view);
    bool same = same_placement(&from, type) && from.dtype == type->dtype;
    hd_buffer *part, *placed;
    hd_build here;

    if (same && !moves_as_copy(view))
        return view->buffer;
    here = on_ranks(b, ranks);
    part = part_buffer(&here, view);
    if (same)
        return part;
    placed = add_temp(b, view->buffer, *type);
    emit_set(&here, part, placed);
    return placed;
}

// From the ranks of `have`, where some of `want` do not have what they need.
// What is over other axes changes its placement where it is.
static void set_apart(hd_build *b, const hd_op *op, hd_ranks have,
                      hd_ranks want)
{
    hd_type type = arriving(op, have.axis);
    hd_buffer *from = place_on(b, have, &op->view[1], &type);
    bool across = !hd_ranks_are_all(want) && want.axis != have.axis;
    hd_build here = across ? on_ranks(b, want) : *b;
    hd_buffer *goal = goal_of(b, op), *to = next_buffer(b, &type, goal);

    spread_ranks(&here, from, to, have, across ? (hd_ranks){0} : want);
    if (to == goal && goal == op->view[0].buffer)
        return;
    here = on_ranks(b, want);
    if (to != goal)
        emit_set(&here, to, goal);
    reach_goal(&here, op, goal);
}

// All ranks have a part of what some of them need.
static void set_gathered(hd_build *b, const hd_op *op, hd_ranks want)
{
    hd_buffer *all =
        add_temp(b, op->view[0].buffer, hd_view_type(&op->view[0]));
    hd_build here;

    emit_set(b, part_buffer(b, &op->view[1]), all);
    here = on_ranks(b, want);
    hd_build_unary(&here, HD_OP_COPY, -1, own_view(&here, op, 0),
                   whole(&here, all));
}

static void emit_set_of(hd_build *b, const hd_op *op)
{
    hd_ranks have = hd_view_ranks(b->module, &op->view[1]);
    hd_ranks want = hd_view_ranks(b->module, &op->view[0]);
    hd_type from = hd_view_type(&op->view[1]);
    hd_build here;

    if (!hd_ranks_cover(have, want)) {
        set_apart(b, op, have, want);
    } else if (!hd_ranks_are_all(want) &&
               hd_type_axis_dim(&from, want.axis) >= 0) {
        set_gathered(b, op, want);
    } else {
        here = on_ranks(b, want);
        set_in_place(&here, op);
    }
}

// ---------------------------------------------------------------- reshape

typedef struct renaming {
    const hd_buffer *from;
    hd_buffer *to;
} renaming;

static void rename_views(void *context, hd_op *op)
{
    const renaming *r = context;

    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer == r->from)
            op->view[i].buffer = r->to;
}

// A temporary becomes another name of the bytes of `root`. Names are declared
// behind what they rename: where it stands ahead, another takes its place.
static void give_bytes(hd_build *b, hd_buffer *temp, hd_buffer *root,
                       const hd_stmt *rest)
{
    renaming r = {temp, temp};

    if (temp->id < root->id) {
        r.to = hd_module_add_buffer(b->module, temp->name, HD_ROLE_TEMP,
                                    &temp->type);
        r.to->by = temp->by;
        r.to->counted = temp->counted;
        r.to->on = temp->on;
        hd_block_each(b->block, rename_views, &r);
        for (; rest != NULL; rest = rest->next)
            hd_stmt_each(rest, rename_views, &r);
    }
    r.to->of = root;
    root->shared |= r.to->shared;
    r.to->shared = false;
}

// So do all names of its bytes.
static void give_names(hd_build *b, const hd_buffer *temp, hd_buffer *root,
                       const hd_stmt *rest)
{
    for (hd_buffer *n = b->module->buffers; n != NULL; n = n->next)
        if (n == temp || n->of == temp)
            give_bytes(b, n, root, rest);
}

// What the caller brings in an inout goes by its own name, on either side.
static void copy_reshaped(hd_build *b, hd_buffer *from, hd_buffer *to)
{
    hd_buffer *temp = from;

    if (hd_buffer_root(from)->role == HD_ROLE_INOUT) {
        temp = to->role == HD_ROLE_INOUT
                   ? add_temp(b, to, from->type)
                   : hd_build_name(b->module, to, &from->type);
        hd_build_unary(b, HD_OP_COPY, -1, whole(b, temp), whole(b, from));
    }
    if (temp == from || to->role == HD_ROLE_INOUT)
        hd_build_unary(b, HD_OP_COPY, -1, whole(b, to),
                       whole(b, hd_build_name(b->module, temp, &to->type)));
}

// What is counted by a name is declared behind it, so that it keeps its place.
static bool is_counts(const hd_module *module, const hd_buffer *buffer)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->by == buffer)
            return true;
    return false;
}

// A tensor is written once, so that both may be the same bytes from the first
// write on; but an inout, which the caller has written before and others may
// write again. `rest` are the statements behind it.
static void emit_reshape(hd_build *b, const hd_op *op, const hd_stmt *rest)
{
    hd_buffer *from = op->view[1].buffer, *to = op->view[0].buffer;
    hd_build here;
    hd_buffer *root = hd_buffer_root(from);
    bool fixed = is_counts(b->module, to) || is_counts(b->module, root);

    if (!fixed && to->role == HD_ROLE_TEMP && root->role != HD_ROLE_INOUT)
        give_bytes(b, to, root, rest);
    else if (!fixed && to->role == HD_ROLE_OUT && root->role == HD_ROLE_TEMP)
        give_names(b, root, to, rest);
    else if (from != to) {
        here = on_ranks(b, to->on);
        copy_reshaped(&here, from, to);
    }
}

// Whether a rank has the same of both in the same order: what else a transpose
// moves are dimensions of which it has one index, and these have no place in
// memory.
static bool lies_alike(const hd_op *op)
{
    const hd_type *out = &op->view[0].buffer->type;
    int8_t order[HD_MAX_DIMS];
    int last = -1;

    hd_op_order(op, out->ndims, order);
    for (int d = 0; d < out->ndims; d++) {
        if (hd_dim_local(out->dim[d]) == 1 && !hd_dim_is_sized(out->dim[d]))
            continue;
        if (order[d] < last)
            return false;
        last = order[d];
    }
    return true;
}

// Whether both sides may be the same bytes. What a loop may take index by index
// is left to that.
static bool shares_bytes(const hd_module *module, const hd_op *op)
{
    hd_buffer *to = op->view[0].buffer, *from = op->view[1].buffer;
    hd_role given = hd_buffer_root(from)->role;
    hd_ranks here = hd_view_ranks(module, &op->view[0]);
    hd_ranks there = hd_view_ranks(module, &op->view[1]);
    bool uneven = is_uneven(&to->type) || is_uneven(&from->type);
    uint32_t uncut = hd_module_uncut(module);

    return to != from && to->by == NULL && from->by == NULL &&
           to->role != HD_ROLE_INOUT && given != HD_ROLE_INOUT &&
           (to->role == HD_ROLE_TEMP || given == HD_ROLE_TEMP) &&
           hd_type_stream_dim(&to->type) < 0 &&
           hd_type_stream_dim(&from->type) < 0 && hd_ranks_cover(here, there) &&
           hd_ranks_cover(there, here) && lies_alike(op) &&
           (!uneven || hd_type_same_room(&to->type, &from->type, uncut)) &&
           hd_type_may_rename(&to->type, &from->type, uncut);
}

static bool is_name(const hd_module *module, const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_TRANSPOSE && !is_part(&op->view[0]) &&
           !is_part(&op->view[1]) && shares_bytes(module, op);
}

// -------------------------------------------------------------- reductions

// What is left of a dimension that every rank holds whole.
static hd_type reduced_here(const hd_op *op, int dim)
{
    hd_type rest = hd_view_type(&op->view[1]);

    if (hd_view_type(&op->view[0]).ndims < rest.ndims)
        return hd_type_without(&rest, dim);
    rest.dim[dim] = hd_dim_whole(1);
    return rest;
}

static void reduce_here(hd_build *b, const hd_op *op, hd_view out)
{
    hd_view in = own_view(b, op, 1);

    hd_build_number(hd_build_unary(b, op->code, -1, out, in), HD_KEY_DIM,
                    hd_op_dim(op));
}

// What changes nothing that it is folded with: zero of a sum, else what is
// beyond every number of the dtype. A cast saturates or makes an infinity, and
// of f64 twice the largest number is one.
static void fill_neutral(hd_build *b, hd_fold fold, hd_view out)
{
    double far = fold == HD_FOLD_MAX ? -DBL_MAX : DBL_MAX;
    hd_op *fill = hd_build_op(b, HD_OP_FILL, -1, 1, 0, &out);

    hd_build_number(fill, HD_KEY_VALUE, fold == HD_FOLD_SUM ? 0 : far);
    if (fold != HD_FOLD_SUM && out.buffer->type.dtype == HD_DTYPE_F64)
        hd_build_number(hd_build_unary(b, HD_OP_SCALE, -1, out, out), HD_KEY_BY,
                        2);
}

// Sums of a narrower dtype are wider until those of all ranks have met, so that
// they are rounded once.
static hd_dtype partial_dtype(const hd_op *op)
{
    hd_dtype dtype = op->view[0].buffer->type.dtype;

    return hd_op_fold(op) == HD_FOLD_SUM && hd_dtype_is_float(dtype) &&
                   hd_dtype_holds(HD_DTYPE_F32, dtype)
               ? HD_DTYPE_F32
               : dtype;
}

// The ranks that have some of a dimension, where the last have none: these go
// on in `none`.
static hd_build on_holders(hd_build *b, hd_dim dim, hd_build *none)
{
    int64_t some = (dim.extent - 1) / hd_dim_local(dim) + 1;

    if (some >= ranks_of(b, dim.mark))
        return *b;
    return hd_build_if(b,
                       hd_expr_binary(b->module, HD_EXPR_LT, coord(b, dim.mark),
                                      hd_expr_const(b->module, some)),
                       none);
}

// What the caller brings in an inout goes by its own name: it is copied.
static hd_buffer *renamable(hd_build *b, hd_buffer *from)
{
    hd_buffer *copy;

    if (hd_buffer_root(from)->role != HD_ROLE_INOUT)
        return from;
    copy = add_temp(b, from, from->type);
    copy->by = from->by;
    copy->counted = from->counted;
    hd_build_unary(b, HD_OP_COPY, -1, whole(b, copy), whole(b, from));
    return copy;
}

// What each rank has of a tensor whose dimension `dim` is over ranks, with its
// counts: of one index each, by a name that has that index without its rank.
static hd_buffer *held_buffer(hd_build *b, hd_buffer *from, int dim)
{
    hd_type type = from->type;
    hd_buffer *counts = from->by, *name;

    if (hd_dim_is_cut(type.dim[dim]))
        return from;
    if (counts != NULL && dim < counts->type.ndims)
        counts = held_buffer(b, counts, dim);
    from = renamable(b, from);
    type.dim[dim] = hd_dim_whole(1);
    name = hd_build_name(b->module, from, &type);
    name->by = counts;
    name->counted = from->counted;
    return name;
}

// What a rank has of a dimension, folded to one index, which it has instead:
// where that is a block, or each index of it has counts of its own. The last
// ranks may have nothing to fold.
static hd_buffer *reduce_part(hd_build *b, const hd_op *op, int dim, int axis)
{
    hd_view in = op->view[1];
    hd_type type = hd_view_type(&in);
    hd_dim all = type.dim[dim];
    int64_t n = ranks_of(b, axis);
    hd_build here, none = {0};
    hd_buffer *to;
    hd_view out;

    in.buffer = held_buffer(b, in.buffer, hd_view_kept_dim(&in, dim));
    type.dim[dim] = sharded(b, hd_dim_whole(n), axis);
    type.dtype =
        hd_dim_is_cut(all) ? partial_dtype(op) : op->view[0].buffer->type.dtype;
    to = add_temp(b, in.buffer, type);
    out = own(b, whole(b, to), dim, axis);
    here = on_holders(b, all, &none);
    if (none.module != NULL)
        fill_neutral(&none, hd_op_fold(op), out);
    hd_build_number(
        hd_build_unary(&here, op->code, -1, out, hd_view_own(b->module, in)),
        HD_KEY_DIM, hd_op_dim(op));
    return to;
}

// What each rank of `axis` holds is a part of every element of `rest`; its view
// may lack dimension `dim` of its buffer. What they make together may be
// scattered over the same axis.
static hd_buffer *join_parts(hd_build *b, hd_fold fold, hd_view in,
                             hd_type rest, hd_buffer *goal, int dim, int axis)
{
    int e = hd_type_axis_dim(&goal->type, axis);
    bool scatters = e >= 0 && !hd_dim_is_sharded(rest.dim[e]);
    hd_buffer *to;
    hd_op *fresh;

    if (scatters)
        rest.dim[e] = sharded(b, rest.dim[e], axis);
    to = next_buffer(b, &rest, goal);
    if (scatters) {
        fresh = hd_build_unary(b, HD_OP_REDUCE_SCATTER, axis,
                               own(b, whole(b, to), e, axis), in);
        hd_build_pieces_dim(b->module, fresh, 1, e < dim ? e : e + 1);
    } else {
        fresh = hd_build_unary(b, HD_OP_ALL_REDUCE, axis, whole(b, to), in);
    }
    hd_build_fold_key(fresh, fold);
    return to;
}

// Over a dimension sharded over `axis`, of which each rank has one index.
static hd_buffer *reduce_across(hd_build *b, const hd_op *op, hd_buffer *from,
                                hd_buffer *goal, int dim, int axis)
{
    return join_parts(b, hd_op_fold(op), own(b, whole(b, from), dim, axis),
                      hd_type_without(&from->type, dim), goal, dim, axis);
}

// What is added up, as numbers of the result's dtype, in which ranks do it. It
// is in loops as it was.
static hd_buffer *widen(hd_build *b, hd_buffer *from, const hd_buffer *goal)
{
    hd_type type = from->type;
    hd_buffer *to;

    if (type.dtype == goal->type.dtype)
        return from;
    type.dtype = goal->type.dtype;
    to = hd_module_add_buffer(b->module, from->name, HD_ROLE_TEMP, &type);
    hd_build_unary(b, HD_OP_COPY, -1, whole(b, to), whole(b, from));
    return to;
}

// A sum that was made wider than the result, rounded to its dtype.
static hd_buffer *round_sum(hd_build *b, hd_buffer *from, hd_buffer *goal)
{
    hd_type type = from->type;
    hd_buffer *to;

    if (type.dtype == goal->type.dtype)
        return from;
    type.dtype = goal->type.dtype;
    to = next_buffer(b, &type, goal);
    hd_build_unary(b, HD_OP_SUM, -1, whole(b, to), whole(b, from));
    return to;
}

static void emit_reduction(hd_build *b, const hd_op *op)
{
    int dim = hd_op_dim(op);
    hd_type out = hd_view_type(&op->view[0]), rest = reduced_here(op, dim);
    hd_dim reduced = hd_view_type(&op->view[1]).dim[dim];
    hd_buffer *goal, *to;

    if (!hd_dim_is_sharded(reduced) && same_placement(&rest, &out)) {
        reduce_here(b, op, own_view(b, op, 0));
        return;
    }
    goal = goal_of(b, op);
    if (hd_dim_is_sharded(reduced)) {
        bool folds = hd_dim_is_cut(reduced) || hd_op_has_counts(op);
        hd_buffer *from = folds ? reduce_part(b, op, dim, reduced.mark)
                                : part_buffer(b, &op->view[1]);

        if (!folds && op->code == HD_OP_SUM)
            from = widen(b, from, goal);
        to = reduce_across(b, op, from, goal, dim, reduced.mark);
        if (op->code == HD_OP_SUM)
            to = round_sum(b, to, goal);
    } else {
        rest.dtype = goal->type.dtype;
        to = add_temp(b, goal, rest);
        reduce_here(b, op, whole(b, to));
    }
    if (to != goal)
        emit_set(b, to, goal);
    reach_goal(b, op, goal);
}

// An op that every rank does alone, on what it has.
static void keep_op(hd_build *b, hd_stmt *stmt)
{
    hd_view view[HD_MAX_VIEWS];

    for (int i = 0; i < stmt->op->nviews; i++)
        view[i] = own_view(b, stmt->op, i);
    for (int i = 0; i < stmt->op->nviews; i++)
        stmt->op->view[i] = view[i];
    hd_block_append(b->block, stmt);
}

// ------------------------------------------------------ indices over ranks

// The keys of a `take` or `iota` of what a rank has of a dimension: where that
// begins in all of it.
static void write_start(hd_build *b, const hd_op *op, hd_dim dim, hd_op *fresh)
{
    const hd_key *key = hd_op_key(op, HD_KEY_START);
    hd_expr start = key != NULL ? key->expr : HD_EXPR_NONE;

    hd_build_number(fresh, HD_KEY_DIM, hd_op_dim(op));
    if (hd_dim_is_sharded(dim)) {
        hd_expr first =
            hd_expr_binary(b->module, HD_EXPR_MUL, coord(b, dim.mark),
                           hd_expr_const(b->module, hd_dim_local(dim)));

        start = key != NULL
                    ? hd_expr_binary(b->module, HD_EXPR_ADD, first, key->expr)
                    : first;
    }
    if (start != HD_EXPR_NONE)
        hd_build_key(fresh, HD_KEY_START, start);
}

// View `i` of a product of what a rank has of dimension `dim` of it.
static hd_view held_view(hd_build *b, const hd_op *op, int i, int dim)
{
    hd_dim all = hd_view_type(&op->view[i]).dim[dim];

    return hd_dim_is_cut(all)
               ? own_view(b, op, i)
               : whole(b, held_buffer(b, part_buffer(b, &op->view[i]), dim));
}

// The own one of the parts that view `i` has; of a bias that is for all parts,
// all of it.
static hd_view own_part(hd_build *b, const hd_op *op, int i, int axis)
{
    hd_view view = own_view(b, op, i);
    int dim = hd_view_kept_dim(&view, 0);

    return hd_view_type(&view).ndims == hd_view_type(&op->view[0]).ndims &&
                   hd_dim_is_sharded(view.buffer->type.dim[dim])
               ? own(b, view, dim, axis)
               : view;
}

// Each rank multiplies what it has of the dimension that is joined, for its
// part of the sums; of nothing that is zero.
static void emit_parts(hd_build *b, const hd_op *op)
{
    int at[3] = {0, hd_bound_joined(op->bound, 1),
                 hd_bound_joined(op->bound, 2)};
    hd_dim joined = hd_view_type(&op->view[1]).dim[at[1]];
    const hd_key *bias = hd_op_key(op, HD_KEY_BIAS);
    hd_build here, none = {0};
    hd_view view[3];
    hd_op *fresh;

    view[0] = own_part(b, op, 0, joined.mark);
    for (int i = 1; i < 3; i++)
        view[i] = held_view(b, op, i, at[i]);
    here = on_holders(b, joined, &none);
    if (none.module != NULL && bias == NULL)
        fill_neutral(&none, HD_FOLD_SUM, view[0]);
    else if (none.module != NULL)
        hd_build_unary(&none, HD_OP_SUM, -1, view[0],
                       own_part(&none, op, bias->view, joined.mark));
    fresh = hd_build_op(&here, HD_OP_MATMUL, -1, 1, 2, view);
    for (int code = 0; code < HD_NKEYS; code++) { // in order
        const hd_key *key = hd_op_key(op, (hd_key_code)code);

        if (key != NULL && key->view >= 0)
            hd_build_key_view(fresh, key->code,
                              own_part(&here, op, key->view, joined.mark));
        else if (key != NULL)
            hd_build_key(fresh, key->code, key->expr);
    }
}

// Where a rank's indices begin is no number where a run says how long a
// dimension is: of that all is there on each rank.
static hd_buffer *add_whole(hd_build *b, const hd_buffer *like, hd_type type,
                            int dim)
{
    type.dim[dim] = hd_dim_unmarked(type.dim[dim]);
    return add_temp(b, like, type);
}

static bool begins_anywhere(hd_dim dim)
{
    return hd_dim_is_sharded(dim) && hd_dim_is_sized(dim);
}

static void take_of_all(hd_build *b, const hd_op *op, hd_type type[3])
{
    int dim = hd_op_dim(op);
    hd_buffer *from = part_buffer(b, &op->view[1]);
    hd_buffer *all = add_whole(b, from, type[1], dim);
    hd_buffer *goal = goal_of(b, op), *to;
    hd_view view[3];
    hd_type made;

    type[1] = all->type;
    made = hd_bound_result(op->bound, type);
    emit_set(b, from, all);
    to = next_buffer(b, &made, goal);
    view[0] = whole(b, to);
    view[1] = whole(b, all);
    view[2] = own_view(b, op, 2);
    write_start(b, op, all->type.dim[dim],
                hd_build_op(b, HD_OP_TAKE, -1, 1, 2, view));
    if (to != goal)
        emit_set(b, to, goal);
    reach_goal(b, op, goal);
}

// From a dimension over ranks each takes what it has, and zeros in place of the
// rest; these are added up.
static void emit_take(hd_build *b, hd_stmt *stmt)
{
    const hd_op *op = stmt->op;
    hd_type type[3], rest;
    hd_dim all;
    hd_buffer *goal, *to;
    hd_build here, none = {0};
    hd_view view[3];
    hd_op *fresh;

    for (int i = 0; i < 3; i++)
        type[i] = hd_view_type(&op->view[i]);
    all = type[1].dim[hd_op_dim(op)];
    if (!hd_dim_is_sharded(all)) {
        keep_op(b, stmt);
        return;
    }
    if (begins_anywhere(all)) {
        take_of_all(b, op, type);
        return;
    }
    goal = goal_of(b, op);
    rest = hd_bound_result(op->bound, type);
    to = add_temp(b, goal, rest);
    view[0] = whole(b, to);
    view[1] =
        whole(b, held_buffer(b, part_buffer(b, &op->view[1]), hd_op_dim(op)));
    view[2] = own_view(b, op, 2);
    here = on_holders(b, all, &none);
    if (none.module != NULL)
        fill_neutral(&none, HD_FOLD_SUM, view[0]);
    fresh = hd_build_op(&here, HD_OP_TAKE, -1, 1, 2, view);
    write_start(b, op, all, fresh);
    to = join_parts(b, HD_FOLD_SUM, view[0], rest, goal, HD_MAX_DIMS, all.mark);
    if (to != goal)
        emit_set(b, to, goal);
    reach_goal(b, op, goal);
}

// Each rank numbers what it has of a dimension from its first index on.
static void emit_iota(hd_build *b, hd_stmt *stmt)
{
    const hd_op *op = stmt->op;
    hd_type type = hd_view_type(&op->view[0]);
    hd_dim dim = type.dim[hd_op_dim(op)];
    hd_buffer *goal = NULL, *all = NULL;
    hd_view out;

    if (begins_anywhere(dim)) {
        goal = goal_of(b, op);
        all = add_whole(b, goal, type, hd_op_dim(op));
        dim = all->type.dim[hd_op_dim(op)];
    }
    out = all != NULL ? whole(b, all) : own_view(b, op, 0);
    write_start(b, op, dim, hd_build_op(b, HD_OP_IOTA, -1, 1, 0, &out));
    if (all == NULL)
        return;
    emit_set(b, all, goal);
    reach_goal(b, op, goal);
}

// ------------------------------------------------------- keys in blocks

// Which dimension is that of the blocks in what the rank has of view `i`.
static int keys_dim(const hd_op *op, int i, const hd_view *view)
{
    return hd_view_kept_dim(view, hd_op_batch(op, i, hd_view_type(view).ndims));
}

// Half `which` of the rows of what the rank has of view `k`, or of its keys. It
// is a block, of which pipelines know, but that of one index would be an index.
static hd_view half_of(hd_build *b, const hd_op *op, int k, hd_view view,
                       int which)
{
    int n = hd_op_batch(op, k, hd_view_type(&op->view[k]).ndims) + 1 +
            hd_op_has_blocks(op, k);
    int64_t half = hd_view_type(&op->view[k]).dim[n].extent / 2;
    int dim = hd_view_kept_dim(&view, n);
    const hd_range *range = hd_view_range(&view, dim);
    hd_expr low = hd_expr_const(b->module, which * half);

    if (range == NULL)
        view = hd_view_at(view, dim, HD_EXPR_ALL);
    else
        low = hd_expr_binary(b->module, HD_EXPR_ADD, range->low, low);
    if (range == NULL && half > 1)
        hd_view_keep_block(b->module, &view, dim,
                           hd_expr_const(b->module, which), 2);
    else
        hd_view_keep(b->module, &view, dim, low,
                     hd_expr_binary(b->module, HD_EXPR_ADD, low,
                                    hd_expr_const(b->module, half)));
    return view;
}

// Where the rows and the keys of a part are among those of all sequences.
static void put_among(hd_build *b, const hd_op *op, const hd_view *view,
                      hd_expr i, int part, hd_op *to)
{
    const hd_key *groups = hd_op_key(op, HD_KEY_GROUPS);

    if (groups == NULL)
        return;
    hd_build_key_view(to, HD_KEY_GROUPS, view[groups->view]);
    to->key[to->nkeys - 1].loc = groups->loc;
    hd_build_key(to, HD_KEY_ROW, hd_causal_row(b->module, op, part));
    hd_build_key(to, HD_KEY_FIRST_KEY,
                 hd_causal_first_key(b->module, op, i, part));
    hd_build_key(to, HD_KEY_ROOM, hd_causal_room(b->module, op));
}

// The attention to a part of block `i` of the keys, by the views that the rank
// has. With `adds` it is merged with what results have of those before it.
static void attend_part(hd_build *b, const hd_op *op, const hd_view *view,
                        hd_expr i, int part, bool adds)
{
    const hd_key *scale = hd_op_key(op, HD_KEY_SCALE);
    const hd_key *window = hd_op_key(op, HD_KEY_WINDOW);
    bool whole = hd_causal_parts(op) == 1;
    hd_expr causal = hd_causal_of_part(b->module, op, i, part);
    hd_op *fresh =
        hd_build_op(b, op->code, -1, op->noutputs, op->ninputs, view);

    for (int k = 0; k < op->noutputs + op->ninputs; k++) {
        if (!whole)
            fresh->view[k] = half_of(
                b, op, k, view[k], hd_causal_half(part, hd_op_has_keys(op, k)));
        if (hd_op_has_blocks(op, k))
            fresh->view[k] =
                pick(b, fresh->view[k], keys_dim(op, k, &view[k]), i);
    }
    if (scale != NULL && scale->view >= 0)
        hd_build_key_view(fresh, HD_KEY_SCALE, view[scale->view]);
    else if (scale != NULL)
        hd_build_number(fresh, HD_KEY_SCALE, scale->number);
    if (adds)
        hd_build_key(fresh, HD_KEY_ACCUMULATE, HD_EXPR_NONE);
    put_among(b, op, view, i, part, fresh);
    if (causal != HD_EXPR_NONE) {
        hd_build_key(fresh, whole ? hd_causal_key(op)->code : HD_KEY_CAUSAL,
                     causal);
        fresh->key[fresh->nkeys - 1].loc = hd_causal_key(op)->loc;
    }
    if (window != NULL && hd_op_key(fresh, HD_KEY_ZIGZAG) == NULL)
        hd_build_number(fresh, HD_KEY_WINDOW, window->number);
}

// What blocks add up in is not rounded until all have: a temporary of the
// logarithm's dtype, where the result's is narrower.
static bool is_narrow(const hd_op *op, int k)
{
    return op->view[k].buffer->type.dtype !=
           op->view[hd_op_lse(op)].buffer->type.dtype;
}

static hd_view wide_result(hd_build *b, const hd_op *op, int k)
{
    hd_type type = hd_view_type(&op->view[k]);

    type.dtype = op->view[hd_op_lse(op)].buffer->type.dtype;
    return whole(b, add_temp(b, op->view[k].buffer, type));
}

// Block by block: the first makes what the others add to. Of its parts those of
// the second half of the keys add to what the first half has made.
static void emit_blocks(hd_build *b, const hd_op *op)
{
    bool updates = hd_op_access(op, 0) == HD_ACCESS_UPDATE;
    bool wide = is_narrow(op, 0);
    hd_view view[HD_MAX_VIEWS], out = own_view(b, op, 0);
    hd_build loop, others, first;
    hd_expr i;

    for (int k = 0; k < op->nviews; k++)
        view[k] = own_view(b, op, k);
    if (wide)
        view[0] = wide_result(b, op, 0);
    if (wide && updates)
        hd_build_unary(b, HD_OP_COPY, -1, view[0], out);
    loop = hd_build_for(b, "b", hd_expr_const(b->module, hd_causal_blocks(op)),
                        &i);
    for (int part = 0; part < hd_causal_parts(op); part++) {
        others = loop;
        if (!updates && hd_causal_half(part, true) == 0) {
            first = hd_build_if(&loop,
                                hd_expr_binary(b->module, HD_EXPR_EQ, i,
                                               hd_expr_const(b->module, 0)),
                                &others);
            attend_part(&first, op, view, i, part, false);
        }
        attend_part(&others, op, view, i, part, true);
    }
    if (wide)
        hd_build_unary(b, HD_OP_COPY, -1, out, view[0]);
}

// The ranks that have its results do it.
static void clear(hd_build *b, hd_view to)
{
    hd_build_number(hd_build_op(b, HD_OP_FILL, -1, 1, 0, &to), HD_KEY_VALUE, 0);
}

// Likewise gradients. All blocks add to dq, and each to its own of dk and dv,
// which are zeros before; of a block in parts, two of these.
static void emit_gradients(hd_build *b, const hd_op *op)
{
    bool updates = hd_op_access(op, 0) == HD_ACCESS_UPDATE;
    int parts = hd_causal_parts(op);
    hd_view view[HD_MAX_VIEWS], own;
    hd_build loop;
    hd_expr i;

    for (int k = 0; k < op->nviews; k++) {
        bool wide =
            k < op->noutputs && (k == 0 || parts > 1) && is_narrow(op, k);

        own = own_view(b, op, k);
        view[k] = wide ? wide_result(b, op, k) : own;
        if (wide && updates)
            hd_build_unary(b, HD_OP_COPY, -1, view[k], own);
    }
    for (int k = 0; k < op->noutputs && !updates; k++)
        clear(b, view[k]);
    loop = hd_build_for(b, "b", hd_expr_const(b->module, hd_causal_blocks(op)),
                        &i);
    for (int part = 0; part < parts; part++)
        attend_part(&loop, op, view, i, part, true);
    for (int k = 0; k < op->noutputs; k++) {
        own = own_view(b, op, k);
        if (view[k].buffer != own.buffer)
            hd_build_unary(b, HD_OP_COPY, -1, own, view[k]);
    }
}

static void emit_on_ranks(hd_build *b, hd_stmt *stmt)
{
    hd_ranks ranks = hd_view_ranks(b->module, &stmt->op->view[0]);
    hd_build here = on_ranks(b, ranks);

    if (hd_op_family(stmt->op) == HD_FAMILY_FOLD &&
        hd_op_key(stmt->op, HD_KEY_DIM) != NULL)
        emit_reduction(&here, stmt->op);
    else if (hd_op_family(stmt->op) == HD_FAMILY_TAKE)
        emit_take(&here, stmt);
    else if (hd_op_family(stmt->op) == HD_FAMILY_IOTA)
        emit_iota(&here, stmt);
    else if (stmt->op->bound != NULL && stmt->op->bound->parts)
        emit_parts(&here, stmt->op);
    else if (hd_op_key(stmt->op, HD_KEY_BLOCKS) != NULL)
        (hd_op_attend(stmt->op) == HD_ATTEND_ATTENTION
             ? emit_blocks
             : emit_gradients)(&here, stmt->op);
    else
        keep_op(&here, stmt);
}

hd_status hd_pass_reshard(hd_module *module, const hd_lower_options *options,
                          hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    hd_block done = {0};
    hd_stmt *next;

    (void)options;
    (void)diag;
    (void)effect;
    hd_join_sets(module, scratch);
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = next) {
        hd_build b = {module, &done, stmt->op->loc};

        next = stmt->next;
        if (stmt->op->code == HD_OP_SET)
            emit_set_of(&b, stmt->op);
        else if (stmt->op->code == HD_OP_RESHAPE || is_name(module, stmt->op))
            emit_reshape(&b, stmt->op, next);
        else
            emit_on_ranks(&b, stmt);
    }
    module->body = done;
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next)
        b->on = (hd_ranks){0}; // the branches say it
    return HD_OK;
}
