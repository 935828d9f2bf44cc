#include "lower/pad.h"

enum { NONE = -1 };

// ------------------------------------------------------------------ lengths

static int64_t ranks_of(const hd_module *module, const hd_op *op)
{
    return module->axis[op->axis].size;
}

// How many indices it keeps of a dimension may depend on which block that is.
static bool varies(const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);

    return range != NULL && range->block != HD_EXPR_NONE &&
           (hd_dim_is_sized(view->buffer->type.dim[dim]) ||
            view->buffer->type.dim[dim].extent % range->blocks != 0);
}

// The same of the pieces of ranks, in a dimension of which a view has all; or
// there is no room for one that they take.
static bool has_uneven_pieces(const hd_module *module, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    int led = hd_op_pieces_dim(op, i);
    int64_t n = ranks_of(module, op);
    hd_dim dim;

    if (led == NONE || hd_op_key(op, hd_op_pieces_key(op, i)) == NULL)
        return false;
    dim = view->buffer->type.dim[led];
    return hd_dim_is_sized(dim) || dim.extent % n != 0 ||
           (dim.extent != n && view->buffer->type.ndims == HD_MAX_DIMS);
}

// Whether a dimension whose length a run says stands behind another one of what
// a piece has, where it is not contiguous.
static bool has_sized_behind(const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    int led = hd_op_pieces_dim(op, i);
    bool several = false;

    for (int d = 0; d < view->buffer->type.ndims; d++) {
        if (hd_view_picks(view, d) || d == led)
            continue;
        if (several && hd_view_has_sized(view, d))
            return true;
        several |= hd_view_room(view, d) != 1;
    }
    return false;
}

bool hd_moves_uneven(const hd_module *module, const hd_op *op)
{
    bool any = false;

    if (!hd_op_is(op, HD_UNIT_TRANSFER))
        return false;
    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        if (op->view[i].buffer->by != NULL)
            return false;
        any |= has_uneven_pieces(module, op, i) || has_sized_behind(op, i);
        for (int d = 0; d < op->view[i].nindex; d++)
            any |= varies(&op->view[i], d);
    }
    return any;
}

// How many indices a piece has room for of a dimension that the view keeps.
static int64_t piece_room(const hd_module *module, const hd_op *op, int i,
                          int dim)
{
    int64_t n = hd_view_room(&op->view[i], dim);

    return dim == hd_op_pieces_dim(op, i)
               ? hd_block_size(n, ranks_of(module, op))
               : n;
}

// Whether it has all that a rank has of a dimension, of whatever block.
static bool keeps_all(const hd_view *view, int dim)
{
    return !varies(view, dim) && !hd_view_has_sized(view, dim) &&
           (hd_view_picks(view, dim) ? 1 : hd_view_room(view, dim)) ==
               hd_dim_local(view->buffer->type.dim[dim]);
}

// Whether a piece of the view is contiguous, of whatever block.
static bool is_dense(const hd_module *module, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    int led = hd_op_pieces_dim(op, i);
    bool several = false;

    for (int d = 0; d < view->buffer->type.ndims; d++) {
        if (several && (d == led || !keeps_all(view, d)))
            return false;
        several |= !hd_view_picks(view, d) && piece_room(module, op, i, d) > 1;
    }
    return true;
}

bool hd_moves_dense(const hd_module *module, const hd_op *op)
{
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        if (!is_dense(module, op, i))
            return false;
    return true;
}

// Whether a run says how long some block is.
static bool has_sized(const hd_op *op)
{
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        for (int d = 0; d < op->view[i].buffer->type.ndims; d++)
            if (hd_view_has_sized(&op->view[i], d) &&
                (varies(&op->view[i], d) || d == hd_op_pieces_dim(op, i)))
                return true;
    return false;
}

static hd_view piece_of(hd_build *b, hd_view view, int dim, hd_expr piece,
                        int64_t ranks)
{
    return dim == NONE ? view
                       : hd_view_block(b->module, view, dim, piece, ranks);
}

// ------------------------------------------------------------------- copies

// Between what a view has, or a piece of a rank of it, and a temporary, in
// which pieces are the first dimension.
typedef struct padding {
    hd_view plain; // of all pieces
    hd_buffer *padded;
    int led; // the dimension that ranks have pieces of, NONE if they have none
    int64_t ranks;
    int sized; // the one that stands in front, NONE if none does
    bool packs;
} padding;

// One of several indices, of which a piece has one such dimension at most;
// pieces of ranks; a block rather than all of a dimension.
static int weigh_sized(const hd_view *piece, int d, int led)
{
    return 4 * (hd_view_room(piece, d) > 1) + 2 * (d == led) + varies(piece, d);
}

static int find_sized(const hd_view *piece, int led)
{
    int found = NONE;

    for (int d = piece->buffer->type.ndims - 1; d >= 0; d--)
        if (hd_view_has_sized(piece, d) && !hd_view_picks(piece, d) &&
            (found == NONE ||
             weigh_sized(piece, d, led) >= weigh_sized(piece, found, led)))
            found = d;
    return found;
}

// Whether pieces are blocks of the temporary's first dimension, else indices.
static bool has_blocks(const padding *p)
{
    return p->led != NONE && p->sized == p->led;
}

// Which dimensions a piece keeps, in the order of the temporary, in which the
// sized one has the first one's place and the first one its own; returns how
// many.
static int order_dims(const padding *p, const hd_view *piece,
                      int dim[HD_MAX_DIMS])
{
    int n = 0;

    dim[0] = NONE;
    for (int d = 0; d < piece->buffer->type.ndims; d++)
        if (!hd_view_picks(piece, d))
            dim[n++] = d;
    if (p->sized != NONE) {
        dim[hd_view_kept_ahead(piece, p->sized)] = dim[0];
        dim[0] = p->sized;
    }
    return n;
}

static hd_dim dim_of(const padding *p, const hd_view *piece, int d)
{
    hd_dim all = piece->buffer->type.dim[d];

    if (d == p->led && hd_view_has_sized(piece, d))
        return hd_dim_unmarked(all);
    return hd_view_has_sized(piece, d) || hd_view_range(piece, d) == NULL
               ? hd_dim_unstreamed(all)
               : hd_dim_whole(hd_view_room(piece, d));
}

static padding add_padded(hd_build *b, const hd_op *op, int i)
{
    padding p = {.plain = op->view[i],
                 .led = hd_op_pieces_dim(op, i),
                 .ranks = ranks_of(b->module, op),
                 .packs = i >= op->noutputs};
    hd_view piece =
        piece_of(b, p.plain, p.led, hd_expr_const(b->module, 0), p.ranks);
    hd_type type = {.dtype = piece.buffer->type.dtype};
    int dim[HD_MAX_DIMS], n;

    p.sized = find_sized(&piece, p.led);
    n = order_dims(&p, &piece, dim);
    if (p.led != NONE && !has_blocks(&p))
        type.dim[type.ndims++] = hd_dim_whole(p.ranks);
    for (int k = 0; k < n; k++)
        type.dim[type.ndims++] = dim_of(&p, &piece, dim[k]);
    p.padded = hd_module_add_buffer(b->module, piece.buffer->name, HD_ROLE_TEMP,
                                    &type);
    return p;
}

static hd_view keep(hd_build *b, hd_view view, int dim, hd_expr low,
                    hd_expr past)
{
    view = hd_view_at(view, dim, HD_EXPR_ALL);
    hd_view_keep(b->module, &view, dim, low, past);
    return view;
}

// What all of the temporary, or one index of it, has of the piece; with
// `clears` what is behind that in any dimension is zero.
static hd_view piece_in(hd_build *b, const padding *p, const hd_view *plain,
                        hd_view all, int at, bool clears)
{
    int dim[HD_MAX_DIMS], n = order_dims(p, plain, dim);

    for (int k = 0; k < n; k++, at++) {
        const hd_range *range = hd_view_range(plain, dim[k]);
        hd_expr count = hd_view_count(b->module, plain, dim[k]);

        if (hd_view_has_sized(plain, dim[k])) {
            if (range != NULL)
                all = hd_view_block(b->module, all, at, range->block,
                                    range->blocks);
        } else if (varies(plain, dim[k])) {
            hd_view rest =
                keep(b, all, at, count,
                     hd_expr_const(b->module, hd_view_room(plain, dim[k])));

            if (clears)
                hd_build_number(hd_build_op(b, HD_OP_FILL, -1, 1, 0, &rest),
                                HD_KEY_VALUE, 0);
            all = keep(b, all, at, hd_expr_const(b->module, 0), count);
        }
    }
    return all;
}

// A copy, or, where a dimension stands in front, one that turns it there or
// back.
static void copy_turned(hd_build *b, const padding *p, hd_view plain,
                        hd_view padded)
{
    int place = p->sized != NONE ? hd_view_kept_ahead(&plain, p->sized) : 0;
    hd_op *op =
        hd_build_unary(b, place > 0 ? HD_OP_TRANSPOSE : HD_OP_COPY, -1,
                       p->packs ? padded : plain, p->packs ? plain : padded);

    if (place > 0) {
        hd_build_number(op, HD_KEY_DIM0, 0);
        hd_build_number(op, HD_KEY_DIM1, place);
    }
}

static void copy_pieces(hd_build *b, const padding *p)
{
    hd_build body = *b;
    hd_view plain, all = hd_view_whole(p->padded, b->loc);
    hd_expr piece = HD_EXPR_NONE;
    int led = has_blocks(p) ? NONE : p->led; // a piece after the other

    if (led != NONE) {
        body = hd_build_for(b, "i", hd_expr_const(b->module, p->ranks), &piece);
        all = hd_view_at(all, 0, piece);
    }
    plain = piece_of(b, p->plain, led, piece, p->ranks);
    copy_turned(&body, p, plain,
                piece_in(&body, p, &plain, all, led != NONE, p->packs));
}

// The temporary as the op has it: of lengths that a run says the own block.
static hd_view moved_view(hd_build *b, const padding *p)
{
    int led = has_blocks(p) ? NONE : p->led;
    hd_view all = hd_view_whole(p->padded, b->loc);
    hd_view piece =
        piece_of(b, p->plain, led, hd_expr_const(b->module, 0), p->ranks);
    int dim[HD_MAX_DIMS], n = order_dims(p, &piece, dim);

    for (int k = 0; k < n; k++) {
        const hd_range *range = hd_view_range(&piece, dim[k]);

        if (hd_view_has_sized(&piece, dim[k]) && range != NULL)
            all = hd_view_block(b->module, all, k + (led != NONE), range->block,
                                range->blocks);
    }
    return all;
}

// ------------------------------------------------------------------- rounds

// The coordinate that is i + 1 more than the own one on the axis, or less.
static hd_expr rank_at(hd_build *b, hd_expr_kind to, hd_expr i, int axis)
{
    hd_module *m = b->module;
    hd_expr rank = hd_expr_binary(m, to, hd_expr_coord(m, axis), i);

    rank = hd_expr_binary(m, to, rank, hd_expr_const(m, 1));
    return hd_expr_binary(m, HD_EXPR_MOD, rank,
                          hd_expr_const(m, m->axis[axis].size));
}

void hd_build_rounds(hd_build *b, int axis, hd_view out, int into, hd_view in,
                     int of)
{
    hd_module *m = b->module;
    int64_t n = m->axis[axis].size;
    hd_expr own = hd_expr_coord(m, axis), i, dest, source;
    hd_view sent, received;
    hd_build body;

    hd_build_unary(b, HD_OP_COPY, -1, piece_of(b, out, into, own, n),
                   piece_of(b, in, of, own, n));
    if (n == 1)
        return;
    body = hd_build_for(b, "i", hd_expr_const(m, n - 1), &i);
    dest = hd_build_let(&body, "dest", rank_at(b, HD_EXPR_ADD, i, axis));
    source = hd_build_let(&body, "source", rank_at(b, HD_EXPR_SUB, i, axis));
    body = hd_build_group(&body);
    sent = piece_of(b, in, of, dest, n);
    received = piece_of(b, out, into, source, n);
    hd_build_key(hd_build_op(&body, HD_OP_SEND, axis, 0, 1, &sent), HD_KEY_TO,
                 dest);
    hd_build_key(hd_build_op(&body, HD_OP_RECV, axis, 1, 0, &received),
                 HD_KEY_FROM, source);
}

// ---------------------------------------------------------------- transfers

static void reduce_to(hd_build *b, const hd_op *op, hd_view out, hd_view in,
                      hd_expr root)
{
    hd_op *fresh = hd_build_unary(b, HD_OP_REDUCE, op->axis, out, in);

    hd_build_key(fresh, HD_KEY_ROOT, root);
    hd_build_fold_key(fresh, hd_op_fold(op));
}

// A collective of blocks that need not be as long as each other, of dimensions
// `into` of the result and `of` of the operand.
static void move_blocks(hd_build *b, const hd_op *op, int into, int of)
{
    hd_expr root = hd_expr_const(b->module, 0), i;
    int64_t n = ranks_of(b->module, op);
    hd_build body;

    if (op->code == HD_OP_ALL_REDUCE) {
        reduce_to(b, op, op->view[0], op->view[1], root);
        hd_build_key(hd_build_unary(b, HD_OP_BROADCAST, op->axis, op->view[0],
                                    op->view[0]),
                     HD_KEY_ROOT, root);
    } else if (op->code == HD_OP_REDUCE_SCATTER) {
        body = hd_build_for(b, "i", hd_expr_const(b->module, n), &i);
        reduce_to(&body, op, op->view[0], piece_of(b, op->view[1], of, i, n),
                  i);
    } else {
        hd_build_rounds(b, op->axis, op->view[0], into, op->view[1], of);
    }
}

static void move(hd_build *b, hd_stmt *stmt, bool in_blocks, int into, int of)
{
    if (in_blocks)
        move_blocks(b, stmt->op, into, of);
    else
        hd_block_append(b->block, stmt);
}

// The dimensions of which a piece has room for more than one index; returns how
// many they are.
static int long_dims(const hd_module *module, const hd_op *op, int i,
                     int dim[HD_MAX_DIMS])
{
    const hd_view *view = &op->view[i];
    int n = 0;

    for (int d = 0; d < view->buffer->type.ndims; d++)
        if (!hd_view_picks(view, d) &&
            (hd_view_has_sized(view, d) || piece_room(module, op, i, d) != 1))
            dim[n++] = d;
    return n;
}

// Dimensions of the result and of the operand.
typedef struct pair {
    int out, in; // NONE: there is none
} pair;

static bool may_split(const hd_op *op, int i, int dim)
{
    return dim != hd_op_pieces_dim(op, i) &&
           hd_view_range(&op->view[i], dim) == NULL;
}

// A dimension of which each rank has one index needs no place in a temporary.
static bool is_one(const hd_op *op, int i, int d)
{
    hd_dim dim = op->view[i].buffer->type.dim[d];

    return may_split(op, i, d) && !hd_dim_is_sized(dim) &&
           !hd_dim_is_cut(dim) && hd_dim_local(dim) == 1;
}

// Whether pieces have no room for the dimension that ranks have one of, or
// would have none `with_ones`.
static bool is_full(const hd_op *op, int i, bool with_ones)
{
    const hd_view *view = &op->view[i];
    int kept = 0;

    for (int d = 0; d < view->buffer->type.ndims; d++)
        kept += !hd_view_picks(view, d) && (with_ones || !is_one(op, i, d));
    return hd_op_pieces_dim(op, i) != NONE && kept == HD_MAX_DIMS;
}

static bool any_full(const hd_op *op, bool with_ones)
{
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        if (is_full(op, i, with_ones))
            return true;
    return false;
}

// Which dimension a collective moves index by index of where pieces have no
// room for the one that ranks have one of: of which both sides have all, at the
// same place among what a piece has several of.
static pair find_split(const hd_module *module, const hd_op *op)
{
    int out[HD_MAX_DIMS], in[HD_MAX_DIMS], n, m;
    pair found = {NONE, NONE};

    if (!hd_op_is_collective(op) || !hd_moves_uneven(module, op) ||
        hd_moves_dense(module, op))
        return found;
    n = long_dims(module, op, 0, out);
    m = long_dims(module, op, 1, in);
    if (n != m || !any_full(op, false))
        return found;
    for (int k = n - 1; k >= 0; k--) {
        if (piece_room(module, op, 0, out[k]) !=
            piece_room(module, op, 1, in[k]))
            return (pair){NONE, NONE};
        if (may_split(op, 0, out[k]) && may_split(op, 1, in[k]))
            found = (pair){out[k], in[k]};
    }
    return found;
}

int64_t hd_uneven_transfers(const hd_module *module, const hd_op *op)
{
    pair split = find_split(module, op);

    return split.out == NONE ? 1 : hd_view_room(&op->view[0], split.out);
}

static void at_index(hd_build *b, hd_op *op, int i, int dim, hd_expr index)
{
    int led = hd_op_pieces_dim(op, i);

    op->view[i] = hd_view_at(op->view[i], dim, index);
    if (led != NONE)
        hd_build_renumber_pieces(b->module, op, i, led);
}

static void leave_ones(hd_build *b, hd_op *op, int i)
{
    const hd_type *type = &op->view[i].buffer->type;

    for (int d = 0; d < type->ndims; d++)
        if (!hd_view_picks(&op->view[i], d) && is_one(op, i, d))
            at_index(b, op, i, d,
                     hd_dim_is_sharded(type->dim[d])
                         ? hd_expr_coord(b->module, type->dim[d].mark)
                         : hd_expr_const(b->module, 0));
}

static void move_padded(hd_build *b, hd_stmt *stmt, bool in_blocks)
{
    hd_op *op = stmt->op;
    int n = op->noutputs + op->ninputs;
    padding p[HD_MAX_VIEWS];

    for (int i = any_full(op, true) ? 0 : n; i < n; i++)
        leave_ones(b, op, i);
    if (any_full(op, true)) { // both sides have other forms: it is refused
        hd_block_append(b->block, stmt);
        return;
    }
    for (int i = 0; i < n; i++)
        p[i] = add_padded(b, op, i);
    for (int i = 0; i < n; i++) {
        hd_build_drop_key(op, hd_op_pieces_key(op, i));
        op->view[i] = moved_view(b, &p[i]);
    }
    for (int i = op->noutputs; i < n; i++) {
        hd_build here = hd_build_on_root(b, op, i);

        copy_pieces(&here, &p[i]);
    }
    move(b, stmt, in_blocks, p[0].led != NONE ? 0 : NONE,
         n > 1 && p[1].led != NONE ? 0 : NONE);
    for (int i = 0; i < op->noutputs; i++) {
        hd_build here = hd_build_on_root(b, op, i);

        copy_pieces(&here, &p[i]);
    }
}

static void move_split(hd_build *b, hd_stmt *stmt, pair split)
{
    hd_op *op = stmt->op;
    hd_expr i, n = hd_view_count(b->module, &op->view[0], split.out);
    hd_build body = hd_build_for(b, "i", n, &i);

    at_index(b, op, 0, split.out, i);
    at_index(b, op, 1, split.in, i);
    hd_build_uneven(&body, stmt);
}

// That of the only rank.
static hd_view only_piece(hd_build *b, const hd_op *op, int i)
{
    return piece_of(b, op->view[i], hd_op_pieces_dim(op, i),
                    hd_expr_const(b->module, 0), 1);
}

void hd_build_uneven(hd_build *b, hd_stmt *stmt)
{
    hd_op *op = stmt->op;
    bool all = hd_op_is_collective(op), dense = hd_moves_dense(b->module, op);
    bool sized = all && has_sized(op);
    bool rounds =
        dense && (op->code == HD_OP_ALL_GATHER || op->code == HD_OP_ALL_TO_ALL);
    pair split = find_split(b->module, op);

    if (all && ranks_of(b->module, op) == 1)
        hd_build_unary(b, HD_OP_COPY, -1, only_piece(b, op, 0),
                       only_piece(b, op, 1));
    else if (dense && (!all || sized || rounds))
        move(b, stmt, all, hd_op_pieces_dim(op, 0), hd_op_pieces_dim(op, 1));
    else if (split.out != NONE)
        move_split(b, stmt, split);
    else
        move_padded(b, stmt, sized);
}
