// One axis at a time. To turn by d is to add d to every rank's coordinate on
// the axis, modulo its size n. Of every expression one of these is known:
//
//   fixed      the same value on all ranks of the axis' line
//   turning    (c + k) mod n, c being the coordinate and k fixed
//   congruent  some x with x = factor c + k modulo n, and not beyond 2^62
//   other      anything else; then the axis does not turn
//
// docs/checking.md has the argument why ranks of such a program are alike.
#include "ir/symmetry.h"

#include "ir/causal.h"
#include "ir/zeros.h"

#include <stdlib.h>

#include "base/array.h"

enum kind { FIXED, TURNING, CONGRUENT, OTHER };

// Values beyond it are left to overflow on some ranks and not on others.
static const double far = 0x1p62;

typedef struct sort {
    enum kind kind;
    int64_t factor; // of the coordinate, from 0 to n - 1; 1 of TURNING
    double bound;   // no value is larger, nor smaller than its negative
} sort;

// How the views of a buffer use one of its dimensions.
enum {
    IS_FIXED = 1,
    IS_TURNING = 2,
    IS_PIECES = 4, // of ranks: it must turn
};

typedef struct usage {
    bool used;
    uint8_t dim[HD_MAX_DIMS];
    // Of a root: bit d is set where blocks of dimension d turn, by any name;
    // then all names have the same dimensions up to the last such one.
    uint8_t blocks;
    uint8_t own;  // of a root: where a rank's own block may be shorter, alike
    int nstrides; // of a root: those of the dimensions that turn, by any name
    int64_t stride[HD_MAX_DIMS];
} usage;

typedef struct finder {
    const hd_module *module;
    int axis;
    int64_t size;
    bool split;   // the walk tells which ranks issue what
    bool control; // conditions and bounds are fixed
    bool alike;   // and then all ranks issue as many steps
    bool turns;
    bool zeros; // what is added to may hold them (ir/zeros)
    bool masks; // what rows see is not the same on all ranks
    bool empty; // a block that turns may be
    bool launches;
    sort *var;    // owned
    usage *usage; // owned, by id of the buffer
} finder;

// ------------------------------------------------------------ expressions

static const sort other = {OTHER, 0, 0};

static sort fixed(double bound)
{
    return (sort){FIXED, 0, bound};
}

static sort congruent(int64_t factor, double bound)
{
    return bound < far ? (sort){CONGRUENT, factor, bound} : other;
}

static double magnitude(int64_t value)
{
    return value < 0 ? -(double)value : (double)value;
}

static sort add(const finder *f, sort a, sort b, int64_t sign)
{
    int64_t factor = (a.factor + sign * b.factor) % f->size;

    return congruent(factor < 0 ? factor + f->size : factor, a.bound + b.bound);
}

static sort multiply(const finder *f, sort a, hd_expr times)
{
    int64_t by, factor;

    if (!hd_expr_is_const(f->module, times))
        return other;
    by = hd_expr_value(f->module, times);
    factor = a.factor * (by % f->size) % f->size;
    return congruent(factor < 0 ? factor + f->size : factor,
                     a.bound * magnitude(by));
}

static sort reduce(const finder *f, sort a, hd_expr b)
{
    double bound = (double)f->size;

    if (!hd_expr_is_const(f->module, b) ||
        hd_expr_value(f->module, b) != f->size)
        return other;
    if (a.factor == 0)
        return fixed(bound);
    return a.factor == 1 ? (sort){TURNING, 1, bound}
                         : congruent(a.factor, bound);
}

// Two operands, of which one at least is not fixed.
static sort sort_mixed(const finder *f, const hd_expr_node *node, sort a,
                       sort b)
{
    switch (node->kind) {
    case HD_EXPR_ADD:
        return add(f, a, b, 1);
    case HD_EXPR_SUB:
        return add(f, a, b, -1);
    case HD_EXPR_MUL:
        return a.kind == FIXED ? multiply(f, b, node->a)
                               : multiply(f, a, node->b);
    case HD_EXPR_MOD:
        return reduce(f, a, node->b);
    case HD_EXPR_EQ:
    case HD_EXPR_NE:
        return a.kind == TURNING && b.kind == TURNING ? fixed(1) : other;
    case HD_EXPR_CONST:
    case HD_EXPR_COORD:
    case HD_EXPR_VAR:
    case HD_EXPR_SIZE:
    case HD_EXPR_NOT:
    case HD_EXPR_DIV:
    case HD_EXPR_LT:
    case HD_EXPR_LE:
    case HD_EXPR_AND:
    case HD_EXPR_OR:
    case HD_EXPR_MIN:
    case HD_EXPR_MAX:
    case HD_EXPR_CDIV:
        break;
    }
    return other;
}

static double bound_fixed(const hd_expr_node *node, sort a, sort b)
{
    switch (node->kind) {
    case HD_EXPR_ADD:
    case HD_EXPR_SUB:
        return a.bound + b.bound;
    case HD_EXPR_MUL:
        return a.bound * b.bound;
    case HD_EXPR_MIN:
    case HD_EXPR_MAX:
        return a.bound > b.bound ? a.bound : b.bound;
    case HD_EXPR_DIV:
    case HD_EXPR_CDIV:
        return a.bound + 1;
    case HD_EXPR_MOD:
        return b.bound;
    case HD_EXPR_CONST:
    case HD_EXPR_COORD:
    case HD_EXPR_VAR:
    case HD_EXPR_SIZE:
    case HD_EXPR_NOT:
    case HD_EXPR_LT:
    case HD_EXPR_LE:
    case HD_EXPR_EQ:
    case HD_EXPR_NE:
    case HD_EXPR_AND:
    case HD_EXPR_OR:
        break;
    }
    return 1;
}

static sort sort_expr(const finder *f, hd_expr expr)
{
    const hd_expr_node *node = hd_expr_get(f->module, expr);
    sort a, b;

    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_CONST:
        return fixed(magnitude(node->value));
    case HD_FORM_COORD:
        return node->a == f->axis ? (sort){TURNING, 1, (double)f->size}
                                  : fixed(HD_MAX_MESH);
    case HD_FORM_VAR:
        return f->var[node->a];
    case HD_FORM_SIZE:
        return fixed((double)f->module->size[node->a].room);
    case HD_FORM_NOT:
        return sort_expr(f, node->a).kind == FIXED ? fixed(1) : other;
    case HD_FORM_BINARY:
        break;
    }
    a = sort_expr(f, node->a);
    b = sort_expr(f, node->b);
    if (a.kind == OTHER || b.kind == OTHER)
        return other;
    return a.kind == FIXED && b.kind == FIXED ? fixed(bound_fixed(node, a, b))
                                              : sort_mixed(f, node, a, b);
}

static bool is_fixed(const finder *f, hd_expr expr)
{
    return sort_expr(f, expr).kind == FIXED;
}

// Where ranks issue some of the steps each the walk sees to it that what is
// congruent is in range, and all else is one number on all ranks of a step.
static bool is_turning(const finder *f, hd_expr expr)
{
    sort s = sort_expr(f, expr);

    return s.kind == TURNING ||
           (f->split && s.kind == CONGRUENT && s.factor == 1);
}

// ------------------------------------------------------------------ views

static void use_dim(finder *f, const hd_buffer *buffer, int d, int how)
{
    f->usage[buffer->id].dim[d] |= (uint8_t)how;
}

static void use_turning(finder *f, const hd_buffer *buffer, int d)
{
    use_dim(f, buffer, d, IS_TURNING);
    if (hd_dim_local(buffer->type.dim[d]) != f->size)
        f->turns = false;
}

static void use_index(finder *f, const hd_buffer *buffer, int d, hd_expr index)
{
    bool turns = is_turning(f, index) &&
                 (!f->split || hd_dim_local(buffer->type.dim[d]) == f->size);

    if (turns)
        use_turning(f, buffer, d);
    else
        use_dim(f, buffer, d, IS_FIXED);
    f->turns &= f->split || turns || is_fixed(f, index);
}

// A block of each rank: an own one, or one that turns.
static bool is_turning_block(const finder *f, hd_dim dim, const hd_range *range)
{
    if (range->block == HD_EXPR_NONE)
        return false;
    if (hd_dim_is_sharded(dim))
        return dim.mark == f->axis;
    return range->blocks == f->size && is_turning(f, range->block);
}

static bool may_be_empty(hd_dim dim, const hd_range *range)
{
    return !hd_dim_is_sized(dim) &&
           (range->blocks - 1) * hd_block_size(dim.extent, range->blocks) >=
               dim.extent;
}

// Other ranges turn by nothing. Whether a step is issued may hang on their
// length.
static void use_range(finder *f, const hd_buffer *buffer, int d,
                      const hd_range *range)
{
    hd_dim dim = buffer->type.dim[d];

    if (is_turning_block(f, dim, range)) {
        f->empty |= may_be_empty(dim, range);
        f->alike &= !may_be_empty(dim, range);
        if (!hd_dim_is_sharded(dim))
            use_dim(f, buffer, d, IS_TURNING);
        return;
    }
    if (range->extent < 0)
        f->alike &= is_fixed(f, (hd_expr)~range->extent);
    use_dim(f, buffer, d, IS_FIXED);
    f->turns &= f->split ||
                (is_fixed(f, range->low) && is_fixed(f, range->past) &&
                 (range->block == HD_EXPR_NONE || is_fixed(f, range->block)));
}

static void use_view(finder *f, const hd_view *view)
{
    f->usage[view->buffer->id].used = true;
    for (int d = 0; d < view->nindex; d++) {
        const hd_range *range = hd_view_range(view, d);

        if (range != NULL)
            use_range(f, view->buffer, d, range);
        else if (hd_view_picks(view, d) &&
                 !hd_dim_is_sharded(view->buffer->type.dim[d]))
            use_index(f, view->buffer, d, view->index[d]);
    }
}

// A collective whose result and operand share bytes may do so only over the
// own piece, which turns: then so must the dimension of pieces.
static void use_pieces(finder *f, const hd_op *op)
{
    const hd_view *all = &op->view[hd_op_is_led(op, 0) ? 0 : 1];
    int d;

    if (op->axis != f->axis || hd_op_in_place(op) != HD_IN_PLACE_PIECE ||
        hd_buffer_root(op->view[0].buffer) !=
            hd_buffer_root(op->view[1].buffer))
        return;
    d = hd_view_lead(all);
    if (d == all->buffer->type.ndims) {
        f->turns = false;
        return;
    }
    use_turning(f, all->buffer, d);
    use_dim(f, all->buffer, d, IS_PIECES);
}

// ------------------------------------------------------------- statements

static bool is_peer(hd_key_code code)
{
    return code == HD_KEY_TO || code == HD_KEY_FROM;
}

// An attention that adds nothing, as no row sees a key, is not issued. In
// zigzag some row always sees one.
static bool may_add_nothing(const hd_op *op, const hd_key *key)
{
    return key->code == HD_KEY_CAUSAL &&
           hd_op_access(op, 0) == HD_ACCESS_UPDATE;
}

// The number of ranks is that of a mask, and any.
static void use_mask(finder *f, const hd_op *op, const hd_key *key)
{
    enum kind kind = sort_expr(f, key->expr).kind;

    f->turns &= kind != OTHER;
    f->masks |= kind != FIXED;
    if (may_add_nothing(op, key))
        f->alike &= kind == FIXED;
}

// Whether a result is empty wherever the block of an operand is.
static bool has_empty_result(const hd_op *op, hd_dim dim, const hd_range *range)
{
    for (int i = 0; i < op->nviews; i++) {
        const hd_view *view = &op->view[i];

        for (int d = 0;
             d < view->nindex && hd_op_access(op, i) != HD_ACCESS_READ; d++) {
            const hd_range *other = hd_view_range(view, d);

            if (other != NULL && other->block == range->block &&
                other->blocks == range->blocks &&
                view->buffer->type.dim[d].extent == dim.extent &&
                !hd_dim_is_sized(view->buffer->type.dim[d]))
                return true;
        }
    }
    return false;
}

static bool has_turning_result(const finder *f, const hd_op *op)
{
    for (int i = 0; i < op->noutputs; i++)
        for (int d = 0; d < op->view[i].nindex; d++) {
            const hd_range *range = hd_view_range(&op->view[i], d);

            if (range != NULL &&
                is_turning_block(f, op->view[i].buffer->type.dim[d], range))
                return true;
        }
    return false;
}

// What has a block that may be empty is not issued then, on any rank; or the
// walk tells which ranks have results of it.
static bool may_be_left_out(const finder *f, const hd_op *op, int i, hd_dim dim,
                            const hd_range *range)
{
    if (hd_op_is(op, HD_UNIT_TRANSFER))
        return true; // of two; of more it is refused
    return !hd_op_is_batched(op) && (hd_op_access(op, i) != HD_ACCESS_READ ||
                                     has_empty_result(op, dim, range) ||
                                     (f->split && !has_turning_result(f, op)));
}

// Blocks are as long on all ranks of a collective, and no operation lacks one.
static void use_blocks(finder *f, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    bool together = hd_op_is(op, HD_UNIT_TRANSFER) &&
                    hd_op_move(op) != HD_MOVE_SEND &&
                    hd_op_move(op) != HD_MOVE_RECV;

    for (int d = 0; d < view->buffer->type.ndims; d++) {
        hd_dim dim = view->buffer->type.dim[d];
        const hd_range *range = hd_view_range(view, d);
        bool turns = range != NULL
                         ? is_turning_block(f, dim, range)
                         : hd_dim_is_sharded(dim) && dim.mark == f->axis &&
                               !hd_view_picks(view, d);

        if (!turns)
            continue;
        if (together && !(f->split && hd_op_is_rooted(op)))
            f->turns &= !hd_dim_is_sized(dim) &&
                        (range == NULL || dim.extent % f->size == 0);
        if (range != NULL && may_be_empty(dim, range))
            f->turns &= may_be_left_out(f, op, i, dim, range);
    }
}

static void use_op(finder *f, const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++) {
        use_view(f, &op->view[i]);
        use_blocks(f, op, i);
    }
    for (int i = 0; i < op->nkeys; i++) {
        const hd_key *key = &op->key[i];

        if (hd_key_info_get(key->code)->value != HD_VALUE_EXPR)
            continue;
        if (key == hd_causal_key(op)) {
            use_mask(f, op, key);
            continue;
        }
        f->turns &= f->split || (is_peer(key->code) && op->axis == f->axis
                                     ? is_turning(f, key->expr)
                                     : is_fixed(f, key->expr));
    }
    f->zeros |= hd_zeros_may_be_stored(op);
    if (hd_op_is_rooted(op)) // one rank of a line is not like the others
        f->turns &= f->split && op->axis == f->axis;
    if (hd_op_is(op, HD_UNIT_TRANSFER))
        use_pieces(f, op);
}

static void use_block(finder *f, const hd_block *block);

static void use_loop(finder *f, const hd_stmt *stmt)
{
    sort from = sort_expr(f, stmt->a), to = sort_expr(f, stmt->b);

    if (!f->split)
        f->control &= from.kind == FIXED && to.kind == FIXED;
    f->var[stmt->var] =
        f->split     ? fixed(0x1p32) // no more, says the walk
        : f->control ? fixed(from.bound > to.bound ? from.bound : to.bound)
                     : other;
    use_block(f, &stmt->body);
}

static void use_if(finder *f, const hd_stmt *stmt)
{
    bool known = hd_expr_is_const(f->module, stmt->a);
    int64_t value = known ? hd_expr_value(f->module, stmt->a) : 0;

    f->control &= f->split || is_fixed(f, stmt->a);
    if (!known || value != 0)
        use_block(f, &stmt->body);
    if (!known || value == 0)
        use_block(f, &stmt->otherwise);
}

static void use_stmt(finder *f, const hd_stmt *stmt)
{
    switch (stmt->kind) {
    case HD_STMT_OP:
        use_op(f, stmt->op);
        break;
    case HD_STMT_LET:
        f->var[stmt->var] = sort_expr(f, stmt->a);
        // It may have no value on some ranks, which the walk of all sees.
        f->turns &= f->split || f->var[stmt->var].kind != OTHER;
        break;
    case HD_STMT_FOR:
        use_loop(f, stmt);
        break;
    case HD_STMT_IF:
        use_if(f, stmt);
        break;
    case HD_STMT_ON:
        f->turns &= f->split || is_fixed(f, stmt->a);
        use_block(f, &stmt->body);
        break;
    case HD_STMT_LAUNCH:
        f->launches = true;
        use_block(f, &stmt->body);
        break;
    case HD_STMT_GROUP:
        use_block(f, &stmt->body);
        break;
    }
}

static void use_block(finder *f, const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL && f->control; s = s->next)
        use_stmt(f, s);
}

// ------------------------------------------------------------------ bytes

static bool turns_at(const finder *f, const hd_buffer *buffer, int d)
{
    return (f->usage[buffer->id].dim[d] & IS_TURNING) != 0;
}

static usage *root_of(const finder *f, const hd_buffer *buffer)
{
    return &f->usage[buffer->of != NULL ? buffer->of->id : buffer->id];
}

// Whether the dimension has blocks of the longest one's length, as ranks turn.
static bool has_blocks(const finder *f, const hd_buffer *buffer, int d)
{
    return (root_of(f, buffer)->blocks >> d & 1) != 0;
}

// How many indices of a dimension each rank has: one, or a block.
static int64_t unit_of(const finder *f, const hd_buffer *buffer, int d)
{
    return hd_block_size(hd_dim_local(buffer->type.dim[d]), f->size);
}

static int64_t extent_of(const finder *f, const hd_buffer *buffer, int d)
{
    return has_blocks(f, buffer, d) ? unit_of(f, buffer, d) * f->size
                                    : hd_dim_local(buffer->type.dim[d]);
}

// Full blocks may be many more elements than a buffer has.
static bool has_room(const finder *f, const hd_buffer *buffer)
{
    double n = 1;

    for (int d = 0; d < buffer->type.ndims; d++)
        n *= (double)extent_of(f, buffer, d);
    return n <= (double)HD_MAX_ELEMENTS;
}

static int64_t stride_of(const finder *f, const hd_buffer *buffer, int d)
{
    int64_t stride = 1;

    for (int i = buffer->type.ndims - 1; i > d; i--)
        stride *= extent_of(f, buffer, i);
    return stride;
}

// Of how many elements what turns is.
static int64_t step_of(const finder *f, const hd_buffer *buffer, int d)
{
    return stride_of(f, buffer, d) * unit_of(f, buffer, d);
}

// The bytes turn alike by every name: each has a dimension that turns by as
// many elements, of which no view fixes an index.
static bool has_turning_dim(const finder *f, const hd_buffer *buffer,
                            int64_t step)
{
    for (int d = 0; d < buffer->type.ndims; d++)
        if (extent_of(f, buffer, d) % f->size == 0 &&
            step_of(f, buffer, d) == step)
            return (f->usage[buffer->id].dim[d] & IS_FIXED) == 0;
    return false;
}

// Adds to the strides that a root turns by; false if they are too many.
static bool add_stride(usage *root, int64_t stride)
{
    for (int i = 0; i < root->nstrides; i++)
        if (root->stride[i] == stride)
            return true;
    if (root->nstrides == HD_MAX_DIMS)
        return false;
    root->stride[root->nstrides++] = stride;
    return true;
}

// A run's sizes are looked at where all blocks are full.
static bool is_shorter(const finder *f, hd_dim dim)
{
    return hd_dim_is_sharded(dim) && dim.mark == f->axis &&
           !hd_dim_is_sized(dim) && hd_dim_is_uneven(dim);
}

// What turns on ranks that each are the only one of a step is one number there.
static void fix_mixed(const finder *f)
{
    for (hd_buffer *b = f->module->buffers; b != NULL; b = b->next)
        for (int d = 0; d < b->type.ndims; d++)
            if (f->usage[b->id].dim[d] == (IS_FIXED | IS_TURNING))
                f->usage[b->id].dim[d] = IS_FIXED;
}

static void find_blocks(const finder *f)
{
    for (hd_buffer *b = f->module->buffers; b != NULL; b = b->next)
        for (int d = 0; d < b->type.ndims; d++) {
            if (turns_at(f, b, d) &&
                hd_dim_local(b->type.dim[d]) % f->size != 0)
                root_of(f, b)->blocks |= (uint8_t)(1 << d);
            if (is_shorter(f, b->type.dim[d]))
                root_of(f, b)->own |= (uint8_t)(1 << d);
        }
}

static bool is_same_own(hd_dim a, hd_dim b)
{
    return a.mark == b.mark && a.extent == b.extent;
}

// Where blocks count as longer than the last one is, all names have the same
// dimensions, as far as that goes.
static bool same_blocks(const finder *f, const hd_buffer *buffer)
{
    unsigned blocks = root_of(f, buffer)->blocks;
    unsigned own = root_of(f, buffer)->own;
    const hd_type *a = &buffer->type;
    const hd_type *b = buffer->of != NULL ? &buffer->of->type : a;

    for (int d = 0; (blocks | own) >> d != 0; d++)
        if (d >= a->ndims || d >= b->ndims ||
            hd_dim_local(a->dim[d]) != hd_dim_local(b->dim[d]) ||
            ((blocks >> d & 1) != 0 &&
             (hd_dim_is_sharded(a->dim[d]) || hd_dim_is_sharded(b->dim[d]))) ||
            ((own >> d & 1) != 0 && !is_same_own(a->dim[d], b->dim[d])))
            return false;
    return (blocks | own) == 0 ||
           hd_type_local_elements(a) == hd_type_local_elements(b);
}

static bool bytes_turn(const finder *f)
{
    if (f->split)
        fix_mixed(f);
    find_blocks(f);
    for (hd_buffer *b = f->module->buffers; b != NULL; b = b->next)
        if (!has_room(f, b))
            return false;
    for (hd_buffer *b = f->module->buffers; b != NULL; b = b->next)
        for (int d = 0; d < b->type.ndims; d++)
            if (turns_at(f, b, d) &&
                !add_stride(root_of(f, b), step_of(f, b, d)))
                return false;
    for (hd_buffer *b = f->module->buffers; b != NULL; b = b->next) {
        const usage *root = root_of(f, b);

        if (!f->usage[b->id].used)
            continue;
        if (!same_blocks(f, b))
            return false;
        for (int i = 0; i < root->nstrides; i++)
            if (!has_turning_dim(f, b, root->stride[i]))
                return false;
    }
    return true;
}

// ------------------------------------------------------------------ whole

static hd_status look_along(finder *f, hd_diag *diag)
{
    f->var = calloc((size_t)f->module->nvars + 1, sizeof *f->var);
    f->usage = calloc((size_t)f->module->nbuffers + 1, sizeof *f->usage);
    if (f->var == NULL || f->usage == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    f->control = f->alike = f->turns = true;
    use_block(f, &f->module->body);
    // Launches are compared step by step.
    f->turns = f->turns && f->control && bytes_turn(f) &&
               !(f->launches && (f->masks || f->empty || f->split));
    // Which gradients meet which fills is the same where all views turn. Pieces
    // that meet by the ranges of their bytes alone may be told apart by one
    // rank and not by another: either is right.
    f->alike &= f->control && (!f->zeros || (f->turns && !f->masks));
    return HD_OK;
}

static void stop(finder *f)
{
    free(f->var);
    free(f->usage);
}

hd_status hd_symmetry_find(const hd_module *module, hd_diag *diag,
                           hd_symmetry *out)
{
    hd_symmetry found = {.steps = true, .split = -1};

    for (int axis = 0; axis < module->naxes; axis++) {
        finder f = {
            .module = module, .axis = axis, .size = module->axis[axis].size};
        hd_status status;

        if (f.size == 1)
            continue;
        status = look_along(&f, diag);
        stop(&f);
        HD_TRY(status);
        found.turns[axis] = f.turns;
        found.steps &= f.alike;
    }
    *out = found;
    return HD_OK;
}

hd_status hd_symmetry_split(const hd_module *module, int axis, hd_diag *diag,
                            hd_symmetry *symmetry)
{
    finder f = {.module = module,
                .axis = axis,
                .size = module->axis[axis].size,
                .split = true};
    hd_status status;

    if (f.size == 1 || symmetry->turns[axis])
        return HD_OK;
    status = look_along(&f, diag);
    stop(&f);
    HD_TRY(status);
    if (f.turns) {
        symmetry->turns[axis] = true;
        symmetry->split = axis;
    }
    return HD_OK;
}

static void fill_dim(const finder *f, const hd_buffer *buffer, int d,
                     hd_full_dims *out)
{
    hd_dim dim = buffer->type.dim[d];
    bool own = hd_dim_is_sharded(dim) && dim.mark == f->axis;

    if (!own && !turns_at(f, buffer, d) && !has_blocks(f, buffer, d))
        return;
    out->block[d] = own ? hd_dim_local(dim) : unit_of(f, buffer, d);
    out->n[d] = f->size;
    out->axes[d] |= (uint8_t)(1 << f->axis);
}

static hd_status fill_along(finder *f, hd_diag *diag, hd_full *out)
{
    HD_TRY(look_along(f, diag));
    for (const hd_buffer *b = f->module->buffers; b != NULL; b = b->next)
        for (int d = 0; d < b->type.ndims; d++)
            fill_dim(f, b, d, &out->of[b->id]);
    out->turns[f->axis] = true;
    out->masks |= f->masks;
    out->empty |= f->empty;
    return HD_OK;
}

// Along all axes together.
static bool has_room_for_all(const hd_module *module, const hd_full *full)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        double n = 1;

        for (int d = 0; d < b->type.ndims; d++)
            n *= (double)hd_full_extent(full, b, d);
        if (n > (double)HD_MAX_ELEMENTS)
            return false;
    }
    return true;
}

hd_status hd_symmetry_full(const hd_module *module, const hd_symmetry *symmetry,
                           hd_diag *diag, hd_full *out)
{
    hd_full full = {.split = symmetry->split};
    hd_status status = hd_clear_array(module->nbuffers + 1, sizeof *full.of,
                                      diag, (void **)&full.of);

    for (int axis = 0; axis < module->naxes && status == HD_OK; axis++) {
        finder f = {.module = module,
                    .axis = axis,
                    .size = module->axis[axis].size,
                    .split = axis == symmetry->split};

        if (!symmetry->turns[axis])
            continue;
        status = fill_along(&f, diag, &full);
        stop(&f);
    }
    if (status == HD_OK && !has_room_for_all(module, &full))
        status = HD_ERROR_INVALID;
    if (status != HD_OK)
        hd_full_free(&full);
    else
        *out = full;
    return status;
}

void hd_full_free(hd_full *full)
{
    free(full->of);
    *full = (hd_full){0};
}

int64_t hd_symmetry_turn(const hd_module *module, const hd_symmetry *symmetry,
                         int64_t rank, int64_t by)
{
    for (int axis = 0; axis < module->naxes; axis++) {
        int64_t size = module->axis[axis].size;

        if (symmetry->turns[axis])
            rank = hd_mesh_peer(module, rank, axis,
                                (hd_mesh_coord(module, rank, axis) + size -
                                 hd_mesh_coord(module, by, axis)) %
                                    size);
    }
    return rank;
}

int64_t hd_symmetry_first(const hd_module *module, const hd_symmetry *symmetry,
                          int64_t rank)
{
    return hd_symmetry_turn(module, symmetry, rank, rank);
}
