// Gathers operations over a stream dimension into one loop, an iteration an
// index:
//
//     %ag = all_gather %a[tp]         for j in 0..4 {
//     %c = matmul %ag, %b       ->        on stream j mod 2 {
//                                             %ag[j] = broadcast %a[tp] root j
//                                             %c[j] = matmul %ag[j], %b
//                                         }
//                                     }
//
// and likewise, where partial results are reduced to the ranks,
//
//     %p = matmul %a, %w                      for j in 0..4 {
//     %c[tp] = reduce_scatter %p[tp]    ->        on stream j mod 2 {
//                                                     %p[tp, j] = matmul ..
//                                                     %c[tp] = reduce %p[tp, j]
//                                                     root j
//                                                 }
//                                             }
//
// An operation joins the loop before it if both have as many indices, and if
// whatever it reads of the loop's results it reads at its own index. The gather
// becomes a broadcast from each rank in turn, and the reduction one to each
// rank in turn, which says what an iteration needs or makes and leaves to the
// next pass how that travels. A collective whose operand and result have the
// stream dimension beside that over ranks is done tile by tile: iteration j
// does it at index j; in a loop over the ranks of one axis those along others
// are. What does not fit stays outside, where a stream dimension is like any
// other: ahead of the loop, or behind it if it needs what comes before. What
// some ranks do, a branch of one operation, or of a send and its
// recv, is in a loop as what all do is; all such sends of one loop go the same
// way along an axis, so that no rank waits in an iteration for what needs its
// own of that iteration:
//
//     if pp == 0 { %y = relu %x }               %y[j] = relu %x[j]
//     if pp == 0 { send %y to 1 }        ->     send %y[j] to 1
//     else if pp == 1 { %z = recv from 0 }      %z[j] = recv from 0
//
// A gather passes what is of other loops, which come behind its own, until
// something computes on it. Where what computes on it shares no loop with what
// comes before, it begins one with that.
#include <string.h>

#include "ir/signature.h"
#include "ir/space.h"
#include "lower/pad.h"
#include "lower/pass.h"

// What an operation does with a view per index of the loop.
enum { WHOLE = -1 };

typedef struct plan {
    int64_t extent;         // of the stream dimension, or how many blocks
    int dim[HD_MAX_VIEWS];  // per view the dimension indexed, or WHOLE
    bool one[HD_MAX_VIEWS]; // which has one index, that of every iteration
    bool tile;              // a collective of each index, or what some do
    bool some;              // what some ranks do
    bool batch;             // attention to an index of a batch
    bool copies; // a transpose of which an index lies as in the result
    int way;     // of a send and its recv: 1 to a greater coordinate, else -1
} plan;

// ------------------------------------------------------------- which views

// The dimension in which an operand that repeats along `s` has one index; WHOLE
// if it has none, as a part of a tensor does from there on.
static int repeated_dim(const hd_op *op, int i, int s)
{
    int dim = hd_space_beside(op, i, s);

    for (int d = dim < 0 ? 0 : dim; d < op->view[i].nindex; d++) {
        const hd_range *range = hd_view_range(&op->view[i], d);

        if (hd_view_picks(&op->view[i], d) ||
            (range != NULL && range->block == HD_EXPR_NONE))
            return WHOLE;
    }
    return dim;
}

// Whether an iteration can name the scales of what it has: it picks one of each
// index, or the only one, or has all of those of a block.
static bool takes_scales(const hd_op *op, int s, int i, const hd_space *space)
{
    const hd_dim *dim = &op->view[0].buffer->type.dim[s];
    int along = hd_view_kept_ahead(&op->view[0], s);
    hd_space map;

    if (!hd_op_has_scales(op, i))
        return true;
    if (hd_space_is_grained(space, i, along))
        return hd_dim_is_cut(*dim) && hd_grain_fits(hd_op_grain(op), *dim);
    hd_space_map_op(op, &map);
    return hd_dim_is_cut(*dim) || hd_space_beside(op, i, s) >= 0 ||
           (map.dim[i][along] == HD_REPEATED) ==
               (space->dim[i][along] == HD_REPEATED);
}

// Whether what is dimension `along` of a transpose's result is beside that in
// its operand: without it both lie alike.
static bool is_beside(int along, int of)
{
    return of - along <= 1 && along - of <= 1;
}

// Each view is indexed where the result's dimension `s` lies, also where it has
// one index, and whole where it lacks that: if the op takes any number of such
// dimensions, so that it takes an index as it takes all.
static bool plan_compute(const hd_op *op, int s, plan *p)
{
    bool cut = hd_dim_is_cut(op->view[0].buffer->type.dim[s]);
    int along = hd_view_kept_ahead(&op->view[0], s);
    bool parts = hd_op_has_parts(op, along, cut);
    hd_space space;

    hd_space_of_op(op, &space);
    if (along == space.counted ||
        (!parts && (cut || hd_op_family(op) != HD_FAMILY_TRANSPOSE)))
        return false;
    p->copies = !parts;
    if (p->copies && !is_beside(along, space.dim[1][along]))
        return false;
    for (int i = 1; i < op->nviews; i++) {
        bool one = space.dim[i][along] == HD_REPEATED;

        if (!takes_scales(op, s, i, &space))
            return false;
        // Blocks keep the dimension, along which one index repeats.
        p->one[i] = one && !cut;
        p->dim[i] = !one  ? hd_view_kept_dim(&op->view[i], space.dim[i][along])
                    : cut ? WHOLE
                          : repeated_dim(op, i, s);
        if (hd_op_writes(op, i) && p->dim[i] != WHOLE &&
            hd_view_range(&op->view[i], p->dim[i]) != NULL)
            return false; // as of the first result
    }
    return true;
}

// Whether it gathers, or scatters what it reduces, in blocks or not.
static bool gathers(const hd_op *op)
{
    return op->code == HD_OP_ALL_GATHER || op->code == HD_OP_BROADCAST;
}

static bool scatters(const hd_op *op)
{
    return op->code == HD_OP_REDUCE_SCATTER || op->code == HD_OP_REDUCE;
}

// A gather whose result has the stream dimension over the ranks, or a reduction
// whose operand has it: each index of it, or block, is of one rank.
static bool plan_pieces(const hd_module *module, const hd_op *op, int piece,
                        plan *p)
{
    int dim = hd_op_pieces_dim(op, piece);
    hd_dim all = op->view[piece].buffer->type.dim[dim];

    if (all.mark != HD_STREAM || hd_view_range(&op->view[piece], dim) != NULL ||
        hd_dim_blocks(all) != module->axis[op->axis].size ||
        (hd_moves_uneven(module, op) && !hd_moves_dense(module, op)))
        return false;
    *p = (plan){.extent = hd_dim_blocks(all),
                .dim = {piece == 0 ? dim : WHOLE, piece == 0 ? WHOLE : dim}};
    return true;
}

// How many iterations two dimensions of one extent have, an index each or,
// where one of them is in blocks as long as each other, a block; 0 if they have
// none.
static int64_t count_tiles(hd_dim out, hd_dim in)
{
    int64_t n = hd_dim_is_cut(out)  ? out.blocks
                : hd_dim_is_cut(in) ? in.blocks
                                    : out.extent;

    return hd_dim_is_sized(out) || hd_dim_is_sized(in) ||
                   out.extent != in.extent || out.extent % n != 0 || n == 1
               ? 0
               : n;
}

// The dimension of the operand's buffer that is dimension `dim` of the
// result's: the operand of a reduction has one more, over the ranks.
static int operand_dim(const hd_op *op, int dim)
{
    const hd_type *out = &op->view[0].buffer->type;
    const hd_type *in = &op->view[1].buffer->type;
    int gone = in->ndims > out->ndims ? hd_type_axis_dim(in, op->axis) : -1;

    return gone >= 0 && dim >= gone ? dim + 1 : dim;
}

// Whether both sides have the same of all dimensions.
static bool is_alike(const hd_op *op)
{
    const hd_type *out = &op->view[0].buffer->type;
    const hd_type *in = &op->view[1].buffer->type;

    if (in->ndims != out->ndims + (hd_op_fold(op) != HD_FOLD_NONE &&
                                   hd_type_axis_dim(in, op->axis) >= 0))
        return false;
    for (int i = 0; i < out->ndims; i++)
        if (out->dim[i].extent != in->dim[operand_dim(op, i)].extent)
            return false;
    return true;
}

// The stream dimension of either, as the result has it; -1 if there is none.
static int tile_dim(const hd_op *op)
{
    int u = hd_type_stream_dim(&op->view[1].buffer->type);
    int t = hd_type_stream_dim(&op->view[0].buffer->type);

    for (int i = 0; t < 0 && i < op->view[0].buffer->type.ndims; i++)
        if (operand_dim(op, i) == u)
            t = i;
    return t;
}

// Whether a dimension is one that ranks have pieces of, or one each.
static bool is_of_ranks(const hd_op *op, int i, int dim)
{
    return dim == hd_op_pieces_dim(op, i) ||
           hd_dim_is_sharded(op->view[i].buffer->type.dim[dim]) ||
           hd_view_picks(&op->view[i], dim) ||
           hd_view_range(&op->view[i], dim) != NULL;
}

// A tile of a collective: the stream dimension is beside those over ranks, and
// each index of it is moved by itself.
static bool plan_tile(const hd_module *module, const hd_op *op, plan *p)
{
    int out, in;

    if (!hd_op_is_collective(op) || tile_dim(op) < 0 || !is_alike(op) ||
        hd_moves_uneven(module, op))
        return false;
    out = tile_dim(op);
    in = operand_dim(op, out);
    // Pieces of a tile and of ranks may take a dimension each.
    if (op->view[1].buffer->type.ndims + 2 > HD_MAX_DIMS &&
        (hd_dim_is_cut(op->view[0].buffer->type.dim[out]) ||
         hd_dim_is_cut(op->view[1].buffer->type.dim[in])))
        return false;
    // Of an operand [n, S] each tile has gaps: NCCL would take a call a piece.
    if (is_of_ranks(op, 0, out) || is_of_ranks(op, 1, in) ||
        (op->code == HD_OP_REDUCE_SCATTER && in > hd_op_pieces_dim(op, 1)))
        return false;
    *p = (plan){.extent = count_tiles(op->view[0].buffer->type.dim[out],
                                      op->view[1].buffer->type.dim[in]),
                .dim = {out, in},
                .tile = true};
    return p->extent > 0;
}

// The one index of a view, or the block, that the variable is; -1 if there is
// no such one.
static int index_of_var(hd_module *module, const hd_view *view, hd_var var)
{
    int found = -1;

    for (int i = 0; i < view->nindex; i++) {
        hd_expr index = hd_view_index(view, i);

        if (index < 0 || !hd_expr_uses_var(module, index, var))
            continue;
        if (found >= 0 || index != hd_expr_of_var(module, var))
            return -1;
        found = i;
    }
    return found;
}

// Whether the view is indexed at its stream dimension.
static bool is_streamed(const hd_view *view, int dim)
{
    return hd_type_stream_dim(&view->buffer->type) == dim;
}

// What a statement does, or every iteration of a loop over blocks, or the first
// branch of what some ranks do. Of a loop over blocks of keys what each does
// that adds to the ones before it.
static hd_stmt *op_of(hd_stmt *stmt)
{
    while (stmt->kind != HD_STMT_OP)
        stmt = stmt->kind == HD_STMT_IF && stmt->otherwise.first != NULL &&
                       stmt->otherwise.first->kind == HD_STMT_OP
                   ? stmt->otherwise.first
                   : stmt->body.first;
    return stmt;
}

static const hd_stmt *only(const hd_block *block)
{
    const hd_stmt *stmt = block->first;

    return stmt != NULL && stmt == block->last ? stmt : NULL;
}

// The attention that adds block VAR of the keys to those before it; NULL if the
// statement is another one.
static hd_op *find_added(hd_module *module, hd_var var, const hd_stmt *stmt)
{
    if (stmt->kind == HD_STMT_IF) {
        const hd_stmt *first = only(&stmt->body);

        if (first == NULL || first->kind != HD_STMT_OP ||
            first->op->code != HD_OP_ATTENTION ||
            stmt->a != hd_expr_binary(module, HD_EXPR_EQ,
                                      hd_expr_of_var(module, var),
                                      hd_expr_const(module, 0)))
            return NULL;
        stmt = only(&stmt->otherwise);
    }
    return stmt != NULL && stmt->kind == HD_STMT_OP &&
                   hd_op_family(stmt->op) == HD_FAMILY_ATTEND &&
                   hd_op_access(stmt->op, 0) == HD_ACCESS_UPDATE
               ? stmt->op
               : NULL;
}

// Whether an iteration has the same index of the same buffers in both.
static bool steps_alike(hd_module *module, hd_var var, const hd_op *a,
                        const hd_op *b)
{
    if (a->nviews != b->nviews)
        return false;
    for (int i = 0; i < a->nviews; i++)
        if (a->view[i].buffer != b->view[i].buffer ||
            index_of_var(module, &a->view[i], var) !=
                index_of_var(module, &b->view[i], var))
            return false;
    return true;
}

// Of a loop over blocks of keys, as reshard writes it, the first such op; NULL
// if the loop is another one:
//
//     for VAR in 0..n {
//         if VAR == 0 { attention } else { attention .. accumulate }
//     }
//
// or, without the branch, every block is added, as gradients are. There may be
// several, of halves of the rows and of the keys.
static hd_op *find_keys(hd_module *module, const hd_stmt *loop)
{
    hd_op *found = NULL;

    if (loop->kind != HD_STMT_FOR)
        return NULL;
    for (const hd_stmt *s = loop->body.first; s != NULL; s = s->next) {
        hd_op *op = find_added(module, loop->var, s);

        if (op == NULL ||
            (found != NULL && !steps_alike(module, loop->var, found, op)))
            return NULL;
        found = found == NULL ? op : found;
    }
    return found;
}

// Keys or values are a stream dimension.
static bool plan_keys(hd_module *module, const hd_stmt *loop, plan *p)
{
    const hd_op *op = find_keys(module, loop);
    int k = op != NULL ? op->noutputs + 1 : 0;

    if (op == NULL || hd_op_has_counts(op) ||
        !hd_expr_is_const(module, loop->b) ||
        loop->a != hd_expr_const(module, 0))
        return false;
    *p = (plan){.extent = hd_expr_value(module, loop->b)};
    for (int i = 0; i < op->nviews; i++) {
        int at = index_of_var(module, &op->view[i], loop->var);

        p->dim[i] = at >= 0 ? at : WHOLE;
    }
    return p->dim[k] != WHOLE && p->dim[k + 1] != WHOLE &&
           (is_streamed(&op->view[k], p->dim[k]) ||
            is_streamed(&op->view[k + 1], p->dim[k + 1]));
}

// The recv of a send that a statement is for some ranks, NULL if it is none:
// if CONDITION { send } else if CONDITION { recv }.
static hd_op *recv_of(const hd_stmt *stmt)
{
    const hd_stmt *send = only(&stmt->body), *other = only(&stmt->otherwise);
    const hd_stmt *recv = other == NULL ? NULL : only(&other->body);

    return stmt->kind == HD_STMT_IF && send != NULL &&
                   send->kind == HD_STMT_OP && send->op->code == HD_OP_SEND &&
                   other->kind == HD_STMT_IF &&
                   other->otherwise.first == NULL && recv != NULL &&
                   recv->kind == HD_STMT_OP && recv->op->code == HD_OP_RECV
               ? recv->op
               : NULL;
}

// A factor that its operation writes over: an iteration would write its own
// index of it, and read it whole.
static bool is_own_factor(const hd_op *op)
{
    for (int i = op->noutputs + op->ninputs; i < op->nviews; i++)
        if (op->view[i].buffer == op->view[0].buffer)
            return true;
    return false;
}

// Of what a rank has, all or a part that is the same one in each iteration: of
// a dimension over ranks its own index.
static bool is_whole(const hd_module *module, const hd_op *op)
{
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        for (int d = 0; d < op->view[i].nindex; d++)
            if (hd_view_picks(&op->view[i], d) &&
                !hd_dim_is_sharded(op->view[i].buffer->type.dim[d]) &&
                !hd_expr_is_const(module, op->view[i].index[d]))
                return false;
    return true;
}

static bool plan_by_index(hd_module *module, const hd_op *op, plan *p)
{
    int s = hd_type_stream_dim(&op->view[0].buffer->type);

    if (s < 0 || hd_view_picks(&op->view[0], s) ||
        hd_view_range(&op->view[0], s) != NULL)
        return false;
    *p = (plan){.extent = hd_dim_blocks(op->view[0].buffer->type.dim[s]),
                .dim = {s}};
    if (!hd_op_is(op, HD_UNIT_COMPUTE) || !is_whole(module, op) ||
        is_own_factor(op))
        return false;
    switch (hd_op_family(op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_MAP:
    case HD_FAMILY_FOLD:
    case HD_FAMILY_PRODUCT:
    case HD_FAMILY_TRANSPOSE:
    case HD_FAMILY_TAKE:
    case HD_FAMILY_CALL:
        return plan_compute(op, s, p);
    case HD_FAMILY_ATTEND:
        p->batch = true;
        return hd_op_attend(op) != HD_ATTEND_MERGE && plan_compute(op, s, p);
    case HD_FAMILY_IOTA:
    case HD_FAMILY_PICK:
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    return false;
}

// What the view has of each index of dimension `s` is one piece, of which both
// sides have the same: all that a rank has of it.
static bool is_pieces(const hd_op *op, int s)
{
    const hd_view *view = &op->view[0];

    return hd_view_lead(view) == s && hd_view_range(view, s) == NULL &&
           !hd_op_has_ranges(op) && hd_op_key(op, HD_KEY_DONE) == NULL;
}

// A send of each index and its recv.
static bool plan_point(const hd_module *module, const hd_op *send,
                       const hd_op *recv, plan *p)
{
    const hd_type *from = &send->view[0].buffer->type;
    const hd_type *to = &recv->view[0].buffer->type;
    hd_expr dest = hd_op_key(send, HD_KEY_TO)->expr;
    hd_expr source = hd_op_key(recv, HD_KEY_FROM)->expr;
    int s = hd_type_stream_dim(to);
    const hd_type *marked = s >= 0 ? to : from;

    s = hd_type_stream_dim(marked);
    if (s < 0 || !hd_type_same_dims(from, to) || send->axis != recv->axis ||
        !is_pieces(send, s) || !is_pieces(recv, s) ||
        !hd_expr_is_const(module, dest) || !hd_expr_is_const(module, source))
        return false;
    *p = (plan){.extent = hd_dim_blocks(marked->dim[s]),
                .dim = {s},
                .tile = true,
                .some = true,
                .way =
                    hd_expr_value(module, dest) > hd_expr_value(module, source)
                        ? 1
                        : -1};
    return true;
}

// What some ranks do is in no loop with a pipeline, whose trips come in another
// order on each rank.
static bool plan_branch(hd_module *module, const hd_stmt *stmt, plan *p)
{
    const hd_stmt *first = only(&stmt->body);
    const hd_op *recv = recv_of(stmt);
    bool tile;

    if (recv != NULL)
        return plan_point(module, first->op, recv, p);
    if (first == NULL || first->kind != HD_STMT_OP ||
        stmt->otherwise.first != NULL || first->op->noutputs != 1)
        return false;
    tile = plan_tile(module, first->op, p);
    if (!tile && (!hd_op_is(first->op, HD_UNIT_COMPUTE) ||
                  !plan_by_index(module, first->op, p)))
        return false;
    p->tile = p->some = true;
    return true;
}

static bool plan_op(hd_module *module, const hd_stmt *stmt, plan *p)
{
    const hd_op *op = stmt->op;

    if (stmt->kind == HD_STMT_FOR)
        return plan_keys(module, stmt, p);
    if (stmt->kind == HD_STMT_IF)
        return plan_branch(module, stmt, p);
    if (stmt->kind != HD_STMT_OP ||
        (op->noutputs != 1 && hd_op_family(op) != HD_FAMILY_ATTEND) ||
        (hd_op_is(op, HD_UNIT_TRANSFER) && hd_op_has_ranges(op)))
        return false;
    if (op->code == HD_OP_ALL_GATHER && plan_pieces(module, op, 0, p))
        return true;
    if (op->code == HD_OP_REDUCE_SCATTER && plan_pieces(module, op, 1, p))
        return true;
    return plan_tile(module, op, p) || plan_by_index(module, op, p);
}

// ------------------------------------------------------------------- runs

// What a run does with a buffer, in its loop and behind it.
typedef struct use {
    int run;               // what is noted of another run is void
    const hd_buffer *name; // by which the loop touches it first
    bool touched; // by the loop, at this dimension; WHOLE for all of it
    int dim;
    bool written;
    bool moved; // peers may still be sent it when the iteration computes
    bool read_behind, written_behind;
} use;

enum { MOST_BETWEEN = 16 }; // statements of a run that stay outside its loop

typedef enum place { INSIDE, AHEAD, BEHIND } place;

// A statement of a run, and where it goes. `plan` is of those inside.
typedef struct member {
    hd_stmt *stmt;
    place place;
    plan plan;
} member;

typedef struct run {
    hd_module *module;
    hd_arena *scratch;
    member *member; // in their order
    int nmembers, members_room;
    int64_t extent;
    int axis;       // of what becomes a pipeline, -1 before the first
    hd_move moves;  // which of both that is first, or HD_MOVE_NONE
    bool keys;      // something attends to keys
    bool batch;     // something attends to an index of a batch
    bool tiles;     // it has a collective of each index, or what some ranks do
    bool some;      // the latter
    unsigned along; // which axes the former move along, a bit each
    int way[HD_MAX_AXES]; // in which its sends go; 0 before the first
    bool bulk;            // a run that has any stays whole
    int number;           // of the run, from 1
    use *use;             // by buffer id
} run;

static use *use_of(const run *r, const hd_view *view)
{
    use *u = &r->use[hd_buffer_root(view->buffer)->id];

    if (u->run != r->number)
        *u = (use){.run = r->number};
    return u;
}

// The dimension of which view `i` has as many indices as there are iterations.
static int iteration_dim(const plan *p, int i)
{
    return p->one[i] ? WHOLE : p->dim[i];
}

// Whether the next pass makes a pipeline of it.
static bool is_piped(const hd_op *op, const plan *p)
{
    return hd_op_is(op, HD_UNIT_TRANSFER) && !p->tile;
}

static hd_move move_of(const hd_op *op)
{
    return gathers(op)    ? HD_MOVE_ALL_GATHER
           : scatters(op) ? HD_MOVE_REDUCE_SCATTER
                          : hd_op_move(op);
}

// Whether the run may move this way, too. One pipeline moves along one axis, in
// one direction; but what is made of keys may go back on their way.
static bool may_move(const run *r, const hd_op *op)
{
    return op->axis == r->axis &&
           (move_of(op) == r->moves ||
            (r->keys && r->moves == HD_MOVE_ALL_GATHER && scatters(op)));
}

// Trips of a pipeline come in another order on each rank of its axis, and in
// the same one along others; collectives come in the same on all of theirs.
static bool may_tile(const run *r, const hd_op *op, const plan *p)
{
    return r->axis < 0 || (!r->bulk && !p->some && op->axis != r->axis);
}

static bool may_pipe(const run *r, const hd_op *op)
{
    return !r->tiles ||
           (!r->bulk && !r->some && (r->along >> op->axis & 1) == 0);
}

static bool fits(const run *r, const hd_op *op, const plan *p)
{
    if (p->way != 0 && r->way[op->axis] == -p->way)
        return false;
    if (p->tile ? !may_tile(r, op, p) : is_piped(op, p) && !may_pipe(r, op))
        return false;
    // The masks of a pipeline's trips are those of blocks of keys.
    if (p->batch ? r->axis >= 0 || r->keys : r->batch && is_piped(op, p))
        return false;
    // Iterations of a pipeline that gathers begin with its transfers, so
    // nothing before a gather may have used what it writes: the old value of an
    // inout is read before it is gathered into. Those of one that scatters end
    // with them.
    if (is_piped(op, p) && ((r->axis >= 0 && !may_move(r, op)) ||
                            use_of(r, &op->view[0])->touched))
        return false;
    for (int i = 0; i < op->nviews; i++) {
        const use *u = use_of(r, &op->view[i]);
        bool writes = hd_op_access(op, i) != HD_ACCESS_READ;

        if (!u->touched || (!writes && !u->written))
            continue;
        if (u->name != op->view[i].buffer || u->dim == WHOLE ||
            u->dim != iteration_dim(p, i) || (writes && u->moved))
            return false;
    }
    return true;
}

static void touch(run *r, const hd_op *op, const plan *p)
{
    bool moves = is_piped(op, p);

    r->tiles |= p->tile;
    r->some |= p->some;
    if (p->tile && !p->some)
        r->along |= 1U << op->axis;
    if (p->way != 0)
        r->way[op->axis] = p->way;
    if (moves && r->axis < 0) {
        r->axis = op->axis;
        r->moves = move_of(op);
    }
    r->keys |= hd_op_family(op) == HD_FAMILY_ATTEND && !p->batch;
    r->batch |= p->batch;
    for (int i = 0; i < op->nviews; i++) {
        use *u = use_of(r, &op->view[i]);
        int dim = iteration_dim(p, i);

        u->dim = !u->touched || u->dim == dim ? dim : WHOLE;
        if (!u->touched)
            u->name = op->view[i].buffer;
        u->touched = true;
        u->written |= hd_op_access(op, i) != HD_ACCESS_READ;
        // Of both what has an index an iteration.
        u->moved |= moves && dim != WHOLE;
    }
}

// Nothing is known of the next one.
static void start_run(run *r)
{
    r->number++;
    r->nmembers = 0;
    r->extent = 0;
    r->axis = -1;
    r->moves = HD_MOVE_NONE;
    r->tiles = r->some = r->keys = r->batch = false;
    r->along = 0;
    memset(r->way, 0, sizeof r->way);
}

// ------------------------------------------------------------------ loops

// Keys that name dimensions of the first operand count those that it keeps.
static void drop_dim(hd_op *op, const plan *p)
{
    if (op->nviews < 2 || p->dim[1] == WHOLE ||
        !hd_view_picks(&op->view[1], p->dim[1]))
        return;
    for (int i = 0; i < op->nkeys; i++)
        if (hd_key_names_dims(op->key[i].code))
            hd_key_drop_dim(&op->key[i],
                            hd_view_kept_ahead(&op->view[1], p->dim[1]));
}

// What view `i` has in iteration j. Scales of a matrix lie along it as it does:
// of a block they keep the dimension, also where there is one of them.
static hd_view index_view(hd_module *module, const hd_op *op, int i,
                          const plan *p, hd_expr j)
{
    hd_view view = op->view[i];
    hd_dim made = op->view[0].buffer->type.dim[p->dim[0]];

    if (p->one[i])
        return hd_view_at(view, p->dim[i], hd_expr_const(module, 0));
    if (!hd_op_has_scales(op, i) || made.extent == p->extent)
        return hd_view_block(module, view, p->dim[i], j, p->extent);
    view = hd_view_at(view, p->dim[i], HD_EXPR_ALL);
    hd_view_keep_block(module, &view, p->dim[i], j, p->extent);
    return view;
}

static void index_views(hd_module *module, hd_op *op, const plan *p, hd_expr j)
{
    int pieces[2] = {hd_op_pieces_dim(op, 0),
                     op->nviews > 1 ? hd_op_pieces_dim(op, 1) : -1};

    for (int i = 0; i < op->nviews; i++)
        if (p->dim[i] != WHOLE)
            op->view[i] = index_view(module, op, i, p, j);
    for (int i = 0; i < 2; i++)
        if (pieces[i] >= 0)
            hd_build_renumber_pieces(module, op, i, pieces[i]);
    if (p->copies) {
        op->code = HD_OP_COPY;
        op->nkeys = 0;
        op->nviews = op->noutputs + op->ninputs;
    } else if (pieces[0] < 0 && pieces[1] < 0) {
        drop_dim(op, p);
    }
}

static void add_gather(hd_build *b, const hd_op *op, const plan *p, hd_expr j)
{
    hd_view out =
        hd_view_block(b->module, op->view[0], p->dim[0], j, p->extent);

    hd_build_key(hd_build_unary(b, HD_OP_BROADCAST, op->axis, out, op->view[1]),
                 HD_KEY_ROOT, j);
}

static void add_reduction(hd_build *b, const hd_op *op, const plan *p,
                          hd_expr j)
{
    hd_op *fresh = hd_build_unary(
        b, HD_OP_REDUCE, op->axis, op->view[0],
        hd_view_block(b->module, op->view[1], p->dim[1], j, p->extent));

    hd_build_key(fresh, HD_KEY_ROOT, j);
    hd_build_fold_key(fresh, hd_op_fold(op));
}

// for j in 0..extent { on stream j mod streams { body } }
static hd_build open_loop(hd_build *b, int64_t extent, int64_t streams,
                          hd_expr *j)
{
    hd_module *m = b->module;
    hd_build body = hd_build_for(b, "j", hd_expr_const(m, extent), j);

    return hd_build_on(&body, hd_expr_mod(m, *j, hd_expr_const(m, streams)));
}

static void unmark_streams(hd_module *module)
{
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next)
        b->type = hd_type_unstreamed(b->type);
}

enum { MOST_AHEAD = 64 }; // statements that are looked through

static bool reads_any(const hd_op *op, const hd_buffer *const *made, int n)
{
    for (int i = op->noutputs; i < op->nviews; i++)
        for (int k = 0; k < n; k++)
            if (hd_buffer_root(op->view[i].buffer) == made[k])
                return true;
    return false;
}

// Whether what is reduced is made from a product on, without another one. That
// is a run of its own behind one that gathers: what comes last there is sent
// first here.
static bool heads_reduction(const run *r, hd_stmt *stmt)
{
    const hd_buffer *made[MOST_AHEAD + 1];
    const hd_op *op = op_of(stmt)->op;
    int n = 0;
    plan p;

    if (hd_op_family(op) != HD_FAMILY_PRODUCT)
        return false;
    made[n++] = hd_buffer_root(op->view[0].buffer);
    stmt = stmt->next;
    for (int i = 0; i < MOST_AHEAD && stmt != NULL; i++, stmt = stmt->next) {
        if (!plan_op(r->module, stmt, &p))
            continue;
        op = op_of(stmt)->op;
        if (is_piped(op, &p) && !scatters(op))
            return false;
        if (!reads_any(op, made, n))
            continue;
        if (is_piped(op, &p))
            return true;
        if (hd_op_family(op) != HD_FAMILY_PRODUCT)
            made[n++] = hd_buffer_root(op->view[0].buffer);
    }
    return false;
}

// ------------------------------------------------ statements of one loop

static void add_member(run *r, hd_stmt *stmt, place place, const plan *p)
{
    r->member = hd_arena_grow(r->scratch, r->member, r->nmembers,
                              &r->members_room, sizeof *r->member);
    r->member[r->nmembers++] = (member){stmt, place, *p};
}

static void note_behind(void *context, hd_op *op)
{
    const run *r = context;

    for (int i = 0; i < op->nviews; i++) {
        use *u = use_of(r, &op->view[i]);

        u->read_behind |= hd_op_access(op, i) != HD_ACCESS_WRITE;
        u->written_behind |= hd_op_access(op, i) != HD_ACCESS_READ;
    }
}

// Whether it has to stay behind what is behind the loop.
static bool is_behind(const run *r, const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++) {
        const use *u = use_of(r, &op->view[i]);

        if (u->written_behind ||
            (u->read_behind && hd_op_access(op, i) != HD_ACCESS_READ))
            return true;
    }
    return false;
}

typedef struct question {
    run *run;
    bool follows, syncs;
} question;

// Whether the op has to stay behind what comes before it in the run.
static void ask_op(void *context, hd_op *op)
{
    question *q = context;

    q->syncs |= hd_op_is(op, HD_UNIT_SYNC);
    q->follows |= is_behind(q->run, op);
    for (int i = 0; i < op->nviews; i++) {
        const use *u = use_of(q->run, &op->view[i]);

        q->follows |=
            u->touched && (u->written || hd_op_access(op, i) != HD_ACCESS_READ);
    }
}

// A statement that the loop does not take, behind it if asked. False if none
// may pass it.
static bool pass_by(run *r, hd_stmt *stmt, bool behind)
{
    question q = {.run = r, .follows = behind};
    plan none = {0};

    if ((stmt->kind != HD_STMT_OP && stmt->kind != HD_STMT_FOR &&
         stmt->kind != HD_STMT_IF) ||
        hd_stmt_has_stream(stmt))
        return false;
    hd_stmt_each(stmt, ask_op, &q);
    if (q.syncs)
        return false;
    if (q.follows)
        hd_stmt_each(stmt, note_behind, r);
    add_member(r, stmt, q.follows ? BEHIND : AHEAD, &none);
    return true;
}

// Of loops the one over blocks of keys alone computes.
static bool is_keys(const hd_stmt *stmt)
{
    if (stmt->kind == HD_STMT_OP)
        return false;
    while (stmt->kind == HD_STMT_FOR || stmt->kind == HD_STMT_IF)
        stmt = stmt->body.first;
    return stmt->kind == HD_STMT_OP &&
           hd_op_family(stmt->op) == HD_FAMILY_ATTEND;
}

static bool computes(const hd_stmt *stmt)
{
    const hd_stmt *first = only(&stmt->body);

    if (stmt->kind == HD_STMT_IF && first != NULL)
        stmt = first;
    return (stmt->kind == HD_STMT_OP && hd_op_is(stmt->op, HD_UNIT_COMPUTE)) ||
           is_keys(stmt);
}

// Whether what first reads a gather's result index by index shares no loop with
// what the run has: that is a loop of both, behind it, so that what moves is
// computed on as it comes.
static bool heads_loop(const run *r, hd_stmt *stmt, const plan *p)
{
    const hd_buffer *made = op_of(stmt)->op->view[0].buffer;
    plan reader;

    stmt = stmt->next;
    for (int k = 0; k < MOST_AHEAD && stmt != NULL; k++, stmt = stmt->next) {
        const hd_op *op;
        int i;

        if (!plan_op(r->module, stmt, &reader))
            continue;
        op = op_of(stmt)->op;
        i = hd_op_read_view(op, made);
        if (i >= 0)
            return computes(stmt) && reader.extent == p->extent &&
                   reader.dim[i] == p->dim[0] && !fits(r, op, &reader);
    }
    return false;
}

static bool joins(run *r, hd_stmt *stmt, const plan *p)
{
    const hd_op *op = op_of(stmt)->op, *recv = recv_of(stmt);

    if (r->extent == 0) // a reduction of what no loop makes stays outside
        return !is_piped(op, p) || gathers(op);
    return p->extent == r->extent && fits(r, op, p) && !is_behind(r, op) &&
           (recv == NULL || (fits(r, recv, p) && !is_behind(r, recv))) &&
           !(r->moves == HD_MOVE_ALL_GATHER && heads_reduction(r, stmt)) &&
           !(is_piped(op, p) && gathers(op) && heads_loop(r, stmt, p));
}

// Whether it reads what the loop makes.
static bool reads_run(const run *r, const hd_op *op)
{
    for (int i = op->noutputs; i < op->nviews; i++)
        if (use_of(r, &op->view[i])->written)
            return true;
    return false;
}

// How many statements from `stmt` on are one loop, or between what that takes:
// none behind the last that follows the one before it, or reads what the loop
// makes. What would be of another loop is passed until something computes on
// what is moved.
static int find_members(run *r, hd_stmt *stmt)
{
    int last = 0;
    bool waits = true;
    plan p;

    for (; stmt != NULL && r->nmembers - last <= MOST_BETWEEN;
         stmt = stmt->next) {
        bool planned = plan_op(r->module, stmt, &p);
        const hd_op *op;

        if (!planned || !joins(r, stmt, &p)) {
            if (last == 0 || (planned && !waits) || !pass_by(r, stmt, planned))
                break;
            continue;
        }
        op = op_of(stmt)->op;
        waits &= !computes(stmt) || (r->nmembers > 0 && !reads_run(r, op));
        if (r->nmembers == last || reads_run(r, op))
            last = r->nmembers + 1;
        r->extent = p.extent;
        touch(r, op, &p);
        if (recv_of(stmt) != NULL)
            touch(r, recv_of(stmt), &p);
        add_member(r, stmt, INSIDE, &p);
    }
    return last;
}

// Finds the statements of a loop that begins with `stmt`. False if there is
// none: a transfer that nothing in a loop computes on is better left as one
// collective, and blocks of keys that all are there one after the other.
static bool find_run(run *r, hd_stmt *stmt)
{
    bool any = false, keys = true;
    int last;

    start_run(r);
    last = find_members(r, stmt);
    r->nmembers = last;
    for (int i = 0; i < last; i++) {
        any |= r->member[i].place == INSIDE && computes(r->member[i].stmt);
        keys &= r->member[i].place != INSIDE || is_keys(r->member[i].stmt);
    }
    return any && !keys;
}

// Block `var` of the keys is that of iteration j.
static void rename_block(hd_module *module, const hd_block *block, hd_var var,
                         hd_expr j)
{
    for (hd_stmt *s = block->first; s != NULL; s = s->next) {
        if (s->kind == HD_STMT_IF)
            s->a = hd_expr_replace(module, s->a, var, j);
        rename_block(module, &s->body, var, j);
        rename_block(module, &s->otherwise, var, j);
        for (int i = 0; s->kind == HD_STMT_OP && i < s->op->nviews; i++)
            for (int d = 0; d < s->op->view[i].nindex; d++)
                if (hd_view_picks(&s->op->view[i], d))
                    s->op->view[i].index[d] = hd_expr_replace(
                        module, s->op->view[i].index[d], var, j);
        for (int i = 0; s->kind == HD_STMT_OP && i < s->op->nkeys; i++)
            if (s->op->key[i].expr >= 0)
                s->op->key[i].expr =
                    hd_expr_replace(module, s->op->key[i].expr, var, j);
    }
}

static void add_to_loop(run *r, hd_build *body, const member *m, hd_expr j)
{
    hd_stmt *mine = op_of(m->stmt);

    body->loc = mine->op->loc;
    if (is_keys(m->stmt)) {
        rename_block(r->module, &m->stmt->body, m->stmt->var, j);
        for (hd_stmt *s = m->stmt->body.first, *next; s != NULL; s = next) {
            next = s->next;
            hd_block_append(body->block, s);
        }
    } else if (m->stmt->kind == HD_STMT_IF) {
        index_views(r->module, mine->op, &m->plan, j);
        if (recv_of(m->stmt) != NULL)
            index_views(r->module, recv_of(m->stmt), &m->plan, j);
        hd_block_append(body->block, m->stmt);
    } else if (!is_piped(mine->op, &m->plan)) {
        index_views(r->module, mine->op, &m->plan, j);
        hd_block_append(body->block, mine);
    } else if (gathers(mine->op)) {
        add_gather(body, mine->op, &m->plan, j);
    } else {
        add_reduction(body, mine->op, &m->plan, j);
    }
}

static void emit_loop(run *r, hd_build *b, int64_t streams)
{
    const member *first = &r->member[0];
    hd_build body;
    hd_expr j;

    b->loc = first->stmt->loc;
    body = open_loop(b, first->plan.extent, streams, &j);
    for (int i = 0; i < r->nmembers; i++)
        if (r->member[i].place == INSIDE)
            add_to_loop(r, &body, &r->member[i], j);
}

static bool reads(const hd_stmt *stmt, const hd_buffer *buffer)
{
    for (int i = 0; stmt->kind == HD_STMT_OP && i < stmt->op->nviews; i++)
        if (stmt->op->view[i].buffer == buffer)
            return true;
    return false;
}

// What keeps the first statement that reads what is gathered from computing on
// it index by index in one loop with the gather.
static const char *why_alone(const run *r, const hd_stmt *gather,
                             const hd_buffer *out)
{
    const hd_stmt *next = gather->next;
    const char *name;
    unsigned line;
    plan p, q;

    while (next != NULL && !reads(next, out))
        next = next->next;
    if (next == NULL)
        return hd_arena_printf(
            r->scratch,
            "no statement after it computes on %s%%%s index by index",
            hd_build_part_of(out), out->said);
    name = hd_op_info_get(next->op->code)->text;
    line = next->op->loc.line;
    if (!plan_op(r->module, next, &q))
        return hd_arena_printf(
            r->scratch,
            "'%s' in line %u, which reads it, is not done index by index of a "
            "@stream dimension, so that they share no loop",
            name, line);
    if (plan_op(r->module, gather, &p) && p.extent != q.extent)
        return hd_arena_printf(r->scratch,
                               "'%s' in line %u, which reads it, has %lld "
                               "indices where %s%%%s has "
                               "%lld",
                               name, line, (long long)q.extent,
                               hd_build_part_of(out), out->said,
                               (long long)p.extent);
    return hd_arena_printf(
        r->scratch,
        "'%s' in line %u, which reads it, shares no loop with it for what "
        "stands between them",
        name, line);
}

// Why the dimension that is gathered, or scattered, is not taken rank by rank.
static const char *why_not_taken(const run *r, const hd_op *op, int i,
                                 const char *verb)
{
    const hd_buffer *buffer = op->view[i].buffer;
    int dim = hd_op_pieces_dim(op, i);
    hd_dim all = buffer->type.dim[dim];

    if (hd_moves_uneven(r->module, op) && !hd_moves_dense(r->module, op))
        return hd_arena_printf(
            r->scratch,
            "ranks have blocks of %s%%%s that are not as long as each other, "
            "and lie behind another dimension",
            hd_build_part_of(buffer), buffer->said);
    if (all.mark == HD_STREAM)
        return hd_arena_printf(r->scratch,
                               "dimension %d of %s%%%s, of which each of %lld "
                               "ranks has a piece, is "
                               "@stream in %lld %s",
                               dim, hd_build_part_of(buffer), buffer->said,
                               (long long)r->module->axis[op->axis].size,
                               (long long)hd_dim_blocks(all),
                               hd_dim_is_cut(all) ? "blocks" : "indices");
    return hd_arena_printf(
        r->scratch, "dimension %d of %s%%%s, which it %s, is not @stream", dim,
        hd_build_part_of(buffer), buffer->said, verb);
}

// Why a gather outside all loops is one collective.
static const char *why_no_pipeline(const run *r, const hd_stmt *stmt)
{
    plan p;

    return plan_op(r->module, stmt, &p)
               ? why_alone(r, stmt, stmt->op->view[0].buffer)
               : why_not_taken(r, stmt->op, 0, "gathers");
}

// Why a reduction to each its shard outside all loops is one collective.
static const char *why_no_reduction(const run *r, const hd_stmt *stmt)
{
    const hd_buffer *in = stmt->op->view[1].buffer;
    plan p;

    if (plan_op(r->module, stmt, &p))
        return hd_arena_printf(
            r->scratch,
            "no loop that ends here computes %s%%%s index by index, and moves "
            "nothing else but keys",
            hd_build_part_of(in), in->said);
    return why_not_taken(r, stmt->op, 1, "scatters");
}

// Why a collective outside all loops is not done tile by tile.
static const char *why_no_tiles(const run *r, const hd_stmt *stmt)
{
    plan p;

    if (r->bulk)
        return "bulk, which is also what is not fused, moves all at once";
    return plan_op(r->module, stmt, &p)
               ? "no statement beside it computes on as many tiles, unless in "
                 "a loop over ranks of its axis, which each takes in an order "
                 "of its own"
               : "no dimension of what it moves is @stream beside the one over "
                 "ranks, so that it is one collective";
}

// A transfer stays outside all loops: what was asked for does nothing here.
static void report_why(const run *r, const hd_stmt *stmt, unsigned asked,
                       hd_diag *diag, hd_effect *effect)
{
    const char *reason;

    if (!hd_op_is_collective(stmt->op))
        return;
    if (stmt->op->code == HD_OP_ALL_GATHER)
        reason = why_no_pipeline(r, stmt);
    else if (stmt->op->code == HD_OP_REDUCE_SCATTER)
        reason = why_no_reduction(r, stmt);
    else if (!r->bulk || (effect->asked & asked) != 0)
        reason = why_no_tiles(r, stmt);
    else
        return;
    hd_effect_none(effect, asked, diag, stmt->op->loc, reason);
}

// What stays outside all loops.
typedef struct outside {
    const run *run;
    hd_block *block;
    unsigned asked;
    hd_diag *diag;
    hd_effect *effect;
} outside;

static void leave_outside(const outside *out, hd_stmt *stmt)
{
    if (stmt->kind == HD_STMT_OP &&
        hd_effect_heard(out->effect, out->asked, stmt->op->loc))
        report_why(out->run, stmt, out->asked, out->diag, out->effect);
    hd_block_append(out->block, stmt);
}

static void leave_ahead(const outside *out)
{
    const run *r = out->run;

    for (int i = 0; i < r->nmembers; i++)
        if (r->member[i].place == AHEAD)
            leave_outside(out, r->member[i].stmt);
}

static void leave_all(const outside *out, hd_stmt *first, const hd_stmt *end)
{
    hd_stmt *next;

    for (hd_stmt *stmt = first; stmt != end; stmt = next) {
        next = stmt->next;
        leave_outside(out, stmt);
    }
}

// What comes behind the loop, of which others may be made.
static hd_stmt *put_behind(const run *r, hd_stmt *next)
{
    for (int i = r->nmembers - 1; i >= 0; i--)
        if (r->member[i].place == BEHIND) {
            r->member[i].stmt->next = next;
            next = r->member[i].stmt;
        }
    return next;
}

hd_status hd_pass_stream(hd_module *module, const hd_lower_options *options,
                         hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    run r = {.module = module,
             .scratch = scratch,
             .bulk = hd_lower_is_bulk(options),
             .use = hd_new_array(scratch, use, module->nbuffers + 1)};
    hd_block done = {0};
    hd_build b = {module, &done, {0}};
    outside out = {&r, &done, HD_OPTIONS_OF_TRANSFERS, diag, effect};
    hd_stmt *stmt;

    if (options->transfer == HD_TRANSFER_FUSED) {
        hd_fuse(module, scratch, diag, effect);
        out.asked &= ~(unsigned)HD_OPTION_TRANSFER; // it has said why
    }
    stmt = module->body.first;
    while (stmt != NULL) {
        bool found = find_run(&r, stmt);
        hd_stmt *next = (found ? r.member[r.nmembers - 1].stmt : stmt)->next;

        if (!found || (r.bulk && r.tiles)) {
            leave_all(&out, stmt, next);
        } else {
            next = put_behind(&r, next);
            leave_ahead(&out);
            emit_loop(&r, &b, options->streams);
            module->streams = options->streams + options->comm_stream;
        }
        stmt = next;
    }
    module->body = done;
    unmark_streams(module);
    return HD_OK;
}
