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

enum kind { FIXED, TURNING, CONGRUENT, OTHER };

// Values beyond it are left to overflow on some ranks and not on others.
static const double far = 0x1p62;

typedef struct sort {
    enum kind kind;
    int64_t factor; // of the coordinate, from 0 to n - 1; 1 of TURNING
    double bound;   // no value is larger, nor smaller than its negative
} sort;

// How the views of a buffer use one of its dimensions.
enum { IS_FIXED = 1, IS_TURNING = 2 };

typedef struct usage {
    bool used;
    uint8_t dim[HD_MAX_DIMS];
    int nstrides; // of a root: those of the dimensions that turn, by any name
    int64_t stride[HD_MAX_DIMS];
} usage;

typedef struct finder {
    const hd_module *module;
    int axis;
    int64_t size;
    bool control; // conditions and bounds are fixed
    bool turns;
    bool zeros;   // what is added to may hold them (ir/zeros)
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
                                  : fixed(HD_MAX_RANKS);
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

// ------------------------------------------------------------------ views

static void use_dim(finder *f, const hd_buffer *buffer, int d, int how)
{
    usage *usage = &f->usage[buffer->id];

    usage->dim[d] |= (uint8_t)how;
    if (how == IS_TURNING && hd_dim_local(buffer->type.dim[d]) != f->size)
        f->turns = false;
}

static void use_index(finder *f, const hd_buffer *buffer, int d, hd_expr index)
{
    switch (sort_expr(f, index).kind) {
    case FIXED:
        use_dim(f, buffer, d, IS_FIXED);
        break;
    case TURNING:
        use_dim(f, buffer, d, IS_TURNING);
        break;
    case CONGRUENT:
    case OTHER:
        f->turns = false;
        break;
    }
}

// Ranges turn by nothing. Whether a step is issued may hang on their length.
static void use_range(finder *f, const hd_buffer *buffer, int d,
                      const hd_range *range)
{
    use_dim(f, buffer, d, IS_FIXED);
    f->turns &= is_fixed(f, range->low) && is_fixed(f, range->past) &&
                (range->block == HD_EXPR_NONE || is_fixed(f, range->block));
    if (range->extent < 0)
        f->control &= is_fixed(f, (hd_expr)~range->extent);
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
    if (d < all->buffer->type.ndims)
        use_dim(f, all->buffer, d, IS_TURNING);
    else
        f->turns = false;
}

// ------------------------------------------------------------- statements

static bool is_peer(hd_key_code code)
{
    return code == HD_KEY_TO || code == HD_KEY_FROM;
}

// An attention that adds nothing, as no row sees a key, is not issued.
static bool may_add_nothing(const hd_op *op, const hd_key *key)
{
    return key == hd_causal_key(op) && hd_op_access(op, 0) == HD_ACCESS_UPDATE;
}

static void use_op(finder *f, const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        use_view(f, &op->view[i]);
    for (int i = 0; i < op->nkeys; i++) {
        const hd_key *key = &op->key[i];
        enum kind kind;

        if (hd_key_info_get(key->code)->value != HD_VALUE_EXPR)
            continue;
        kind = is_peer(key->code) && op->axis == f->axis ? TURNING : FIXED;
        if (sort_expr(f, key->expr).kind != kind)
            f->turns = false;
        if (may_add_nothing(op, key))
            f->control &= is_fixed(f, key->expr);
    }
    f->zeros |= hd_zeros_may_be_stored(op);
    if (hd_op_is_rooted(op))
        f->turns = false; // one rank of a line is not like the others
    if (hd_op_is(op, HD_UNIT_TRANSFER))
        use_pieces(f, op);
}

static void use_block(finder *f, const hd_block *block);

static void use_loop(finder *f, const hd_stmt *stmt)
{
    sort from = sort_expr(f, stmt->a), to = sort_expr(f, stmt->b);

    f->control &= from.kind == FIXED && to.kind == FIXED;
    f->var[stmt->var] =
        f->control ? fixed(from.bound > to.bound ? from.bound : to.bound)
                   : other;
    use_block(f, &stmt->body);
}

static void use_if(finder *f, const hd_stmt *stmt)
{
    bool known = hd_expr_is_const(f->module, stmt->a);
    int64_t value = known ? hd_expr_value(f->module, stmt->a) : 0;

    f->control &= is_fixed(f, stmt->a);
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
        // It may have no value on some ranks.
        f->turns &= f->var[stmt->var].kind != OTHER;
        break;
    case HD_STMT_FOR:
        use_loop(f, stmt);
        break;
    case HD_STMT_IF:
        use_if(f, stmt);
        break;
    case HD_STMT_ON:
        f->turns &= is_fixed(f, stmt->a);
        use_block(f, &stmt->body);
        break;
    case HD_STMT_GROUP:
    case HD_STMT_LAUNCH:
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

static int64_t stride_of(const hd_type *type, int d)
{
    int64_t stride = 1;

    for (int i = type->ndims - 1; i > d; i--)
        stride *= hd_dim_local(type->dim[i]);
    return stride;
}

// The bytes turn alike by every name: each has a dimension of this stride, of
// which no view fixes an index.
static bool has_turning_dim(const finder *f, const hd_buffer *buffer,
                            int64_t stride)
{
    const hd_type *type = &buffer->type;

    for (int d = 0; d < type->ndims; d++)
        if (hd_dim_local(type->dim[d]) == f->size &&
            stride_of(type, d) == stride)
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

static bool bytes_turn(const finder *f)
{
    for (hd_buffer *b = f->module->buffers; b != NULL; b = b->next)
        for (int d = 0; d < b->type.ndims; d++)
            if ((f->usage[b->id].dim[d] & IS_TURNING) != 0 &&
                !add_stride(&f->usage[hd_buffer_root(b)->id],
                            stride_of(&b->type, d)))
                return false;
    for (hd_buffer *b = f->module->buffers; b != NULL; b = b->next) {
        const usage *root = &f->usage[hd_buffer_root(b)->id];

        for (int i = 0; i < root->nstrides && f->usage[b->id].used; i++)
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
    if (f->var == NULL || f->usage == NULL) {
        free(f->var);
        free(f->usage);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    }
    f->control = f->turns = true;
    use_block(f, &f->module->body);
    f->turns = f->turns && f->control && bytes_turn(f);
    // Which gradients meet which fills is the same where all views turn. Pieces
    // that meet by the ranges of their bytes alone may be told apart by one
    // rank and not by another: either is right.
    f->control &= !f->zeros || f->turns;
    free(f->var);
    free(f->usage);
    return HD_OK;
}

hd_status hd_symmetry_find(const hd_module *module, hd_diag *diag,
                           hd_symmetry *out)
{
    hd_symmetry found = {.steps = true};

    for (int axis = 0; axis < module->naxes; axis++) {
        finder f = {
            .module = module, .axis = axis, .size = module->axis[axis].size};

        if (f.size == 1)
            continue;
        HD_TRY(look_along(&f, diag));
        found.turns[axis] = f.turns;
        found.steps &= f.control;
    }
    *out = found;
    return HD_OK;
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
