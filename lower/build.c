#include "lower/build.h"

#include "ir/signature.h"

#include <assert.h>

hd_op *hd_build_op(hd_build *b, hd_opcode code, int axis, int noutputs,
                   int ninputs, const hd_view *view)
{
    hd_stmt *stmt =
        hd_stmt_op(b->module, code, axis, noutputs, ninputs,
                   __builtin_popcountll(hd_op_info_get(code)->keys), b->loc);

    for (int i = 0; i < noutputs + ninputs; i++)
        stmt->op->view[i] = view[i];
    hd_block_append(b->block, stmt);
    return stmt->op;
}

hd_op *hd_build_unary(hd_build *b, hd_opcode code, int axis, hd_view out,
                      hd_view in)
{
    return hd_build_op(b, code, axis, 1, 1, (hd_view[]){out, in});
}

hd_op *hd_build_ordered(hd_build *b, hd_view out, hd_view in,
                        const int8_t *order)
{
    hd_op *op = hd_build_unary(b, HD_OP_PERMUTE, -1, out, in);
    hd_key *key;

    hd_build_key(op, HD_KEY_ORDER, HD_EXPR_NONE);
    key = &op->key[op->nkeys - 1];
    key->nints = hd_view_type(&out).ndims;
    for (int d = 0; d < key->nints; d++)
        key->ints[d] = order[d];
    return op;
}

hd_op *hd_build_moved(hd_build *b, hd_view out, hd_view in, int from, int to)
{
    int8_t order[HD_MAX_DIMS];

    for (int d = 0, k = 0; d < hd_view_type(&out).ndims; d++) {
        if (d == to) {
            order[d] = (int8_t)from;
            continue;
        }
        k += k == from;
        order[d] = (int8_t)k++;
    }
    return hd_build_ordered(b, out, in, order);
}

hd_op *hd_build_copy(hd_build *b, const hd_op *op)
{
    hd_op *copy =
        hd_build_op(b, op->code, op->axis, op->noutputs, op->ninputs, op->view);

    // There is room for the keys of its row.
    for (int views = hd_op_said_views(op); copy->nviews < views; copy->nviews++)
        copy->view[copy->nviews] = op->view[copy->nviews];
    for (int keys = op->nkeys - (op->nviews - copy->nviews); copy->nkeys < keys;
         copy->nkeys++)
        copy->key[copy->nkeys] = op->key[copy->nkeys];
    copy->loc = op->loc;
    return copy;
}

void hd_build_key(hd_op *op, hd_key_code code, hd_expr expr)
{
    assert((hd_op_info_get(op->code)->keys >> code & 1) != 0 &&
           (op->nkeys == 0 || op->key[op->nkeys - 1].code < code));
    op->key[op->nkeys++] = (hd_key){code, op->loc, expr, .view = -1};
}

void hd_build_fold_key(hd_op *op, hd_fold fold)
{
    hd_key_code key;

    if (hd_fold_key(fold, &key))
        hd_build_key(op, key, HD_EXPR_NONE);
}

void hd_build_key_view(hd_op *op, hd_key_code code, hd_view view)
{
    hd_build_key(op, code, HD_EXPR_NONE);
    op->key[op->nkeys - 1].view = op->nviews;
    op->view[op->nviews++] = view;
}

void hd_build_drop_key(hd_op *op, hd_key_code code)
{
    int n = 0;

    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].code != code)
            op->key[n++] = op->key[i];
    op->nkeys = n;
}

hd_key *hd_build_put_key(hd_op *op, hd_key_code code)
{
    int at = op->nkeys++;

    for (; at > 0 && op->key[at - 1].code > code; at--)
        op->key[at] = op->key[at - 1];
    op->key[at] = (hd_key){code, op->loc, HD_EXPR_NONE, .view = -1};
    return &op->key[at];
}

void hd_build_renumber_pieces(hd_module *module, hd_op *op, int i, int dim)
{
    if (hd_op_key(op, hd_op_pieces_key(op, i)) != NULL)
        hd_build_pieces_dim(module, op, i, dim);
}

void hd_build_pieces_dim(hd_module *module, hd_op *op, int i, int dim)
{
    hd_key_code code = hd_op_pieces_key(op, i);
    int kept = hd_view_kept_ahead(&op->view[i], dim);

    hd_build_drop_key(op, code);
    if (kept == 0 && !hd_dim_is_sized(op->view[i].buffer->type.dim[dim]) &&
        op->view[i].buffer->type.dim[dim].extent == module->axis[op->axis].size)
        return;
    hd_build_put_key(op, code)->number = kept;
}

void hd_build_number(hd_op *op, hd_key_code code, double number)
{
    hd_build_key(op, code, HD_EXPR_NONE);
    op->key[op->nkeys - 1].number = number;
}

static hd_build build_into(const hd_build *b, hd_block *block)
{
    return (hd_build){b->module, block, b->loc};
}

static hd_stmt *append(hd_build *b, hd_stmt_kind kind, hd_expr a)
{
    hd_stmt *stmt = hd_stmt_new(b->module, kind, b->loc);

    stmt->a = a;
    hd_block_append(b->block, stmt);
    return stmt;
}

hd_build hd_build_for(hd_build *b, const char *name, hd_expr n, hd_expr *var)
{
    hd_stmt *stmt = append(b, HD_STMT_FOR, hd_expr_const(b->module, 0));

    stmt->b = n;
    stmt->var = hd_module_add_var(b->module, name, b->loc);
    *var = hd_expr_of_var(b->module, stmt->var);
    return build_into(b, &stmt->body);
}

hd_build hd_build_on(hd_build *b, hd_expr stream)
{
    return build_into(b, &append(b, HD_STMT_ON, stream)->body);
}

hd_build hd_build_if(hd_build *b, hd_expr condition, hd_build *otherwise)
{
    hd_stmt *branch = append(b, HD_STMT_IF, condition);

    *otherwise = build_into(b, &branch->otherwise);
    return build_into(b, &branch->body);
}

hd_build hd_build_group(hd_build *b)
{
    return build_into(b, &append(b, HD_STMT_GROUP, HD_EXPR_NONE)->body);
}

hd_build hd_build_on_root(hd_build *b, const hd_op *op, int i)
{
    const hd_key *root = hd_op_key(op, HD_KEY_ROOT);
    hd_module *m = b->module;
    hd_build none;

    if (root == NULL || hd_op_touches(op, i, false))
        return *b;
    return hd_build_if(
        b,
        hd_expr_binary(m, HD_EXPR_EQ, hd_expr_coord(m, op->axis), root->expr),
        &none);
}

hd_expr hd_build_let(hd_build *b, const char *name, hd_expr value)
{
    hd_stmt *stmt = append(b, HD_STMT_LET, value);

    stmt->var = hd_module_add_var(b->module, name, b->loc);
    return hd_expr_of_var(b->module, stmt->var);
}

hd_buffer *hd_build_name(hd_module *module, hd_buffer *buffer,
                         const hd_type *type)
{
    hd_buffer *name =
        hd_module_add_buffer(module, buffer->name, HD_ROLE_TEMP, type);

    name->of = hd_buffer_root(buffer);
    return name;
}

const char *hd_build_part_of(const hd_buffer *buffer)
{
    return buffer->name == buffer->said ? "" : "what moves of ";
}

hd_buffer *hd_build_events(hd_module *module, const char *name, int64_t n,
                           hd_loc loc)
{
    hd_type type = {
        .dtype = HD_DTYPE_EVENT, .ndims = 1, .dim[0] = hd_dim_whole(n)};
    hd_buffer *events = hd_module_add_buffer(module, name, HD_ROLE_TEMP, &type);

    events->loc = loc;
    return events;
}

void hd_build_event(hd_build *b, hd_opcode code, hd_buffer *events,
                    hd_expr index)
{
    hd_view event = hd_view_at(hd_view_whole(events, b->loc), 0, index);
    bool records = code == HD_OP_RECORD;

    hd_build_op(b, code, -1, records, !records, &event);
}

hd_view hd_view_at(hd_view view, int dim, hd_expr index)
{
    while (view.nindex <= dim)
        view.index[view.nindex++] = HD_EXPR_ALL;
    view.index[dim] = index;
    return view;
}

hd_view hd_view_all_of(hd_module *module, hd_view view, int dim)
{
    hd_view_keep_all(module, &view, dim);
    while (view.nindex > 0 && view.index[view.nindex - 1] == HD_EXPR_ALL &&
           hd_view_range(&view, view.nindex - 1) == NULL)
        view.nindex--;
    return view;
}

hd_view hd_view_block(hd_module *module, hd_view view, int dim, hd_expr block,
                      int64_t blocks)
{
    hd_dim all = view.buffer->type.dim[dim];

    if (all.extent == blocks && !hd_dim_is_sized(all))
        return hd_view_at(view, dim, block);
    view = hd_view_at(view, dim, HD_EXPR_ALL);
    hd_view_keep_block(module, &view, dim, block, blocks);
    return view;
}

hd_view hd_view_own(hd_module *module, hd_view view)
{
    for (int i = 0; i < view.buffer->type.ndims; i++) {
        hd_dim dim = view.buffer->type.dim[i];
        const hd_range *range = hd_view_range(&view, i);

        if (hd_dim_is_sharded(dim) && hd_view_picks(&view, i))
            view.index[i] = hd_expr_coord(module, dim.mark);
        if (range != NULL) // passes know no block but of a rank or an iteration
            hd_view_keep(module, &view, i, range->low, range->past);
        if (hd_dim_is_sharded(dim) && hd_dim_is_cut(dim))
            view = hd_view_block(module, view, i,
                                 hd_expr_coord(module, dim.mark), dim.blocks);
    }
    return view;
}

hd_expr hd_view_index(const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);

    if (range != NULL && range->block != HD_EXPR_NONE)
        return range->block;
    return hd_view_picks(view, dim) ? view->index[dim] : HD_EXPR_ALL;
}

hd_dim hd_dim_unstreamed(hd_dim dim)
{
    if (hd_dim_is_sharded(dim))
        return dim;
    dim.mark = HD_LOCAL;
    dim.blocks = hd_dim_is_sized(dim) ? dim.blocks : 0;
    return dim;
}

hd_type hd_type_unstreamed(hd_type type)
{
    for (int d = 0; d < type.ndims; d++)
        type.dim[d] = hd_dim_unstreamed(type.dim[d]);
    return type;
}

bool hd_view_is_uneven(const hd_view *view, int but)
{
    for (int d = 0; d < view->nindex; d++)
        if (d != but && hd_view_range(view, d) != NULL &&
            hd_view_range(view, d)->extent < 0)
            return true;
    return false;
}

// No index can be picked of the rows and columns of a matrix, which would leave
// a batch in their place, nor of one of two that are swapped, which would leave
// no swap.
int64_t hd_view_room(const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);
    hd_dim all = view->buffer->type.dim[dim];

    if (range != NULL && range->block != HD_EXPR_NONE)
        return hd_block_size(all.extent, range->blocks);
    return range != NULL && range->extent >= 0 ? range->extent
                                               : hd_dim_local(all);
}

bool hd_op_has_parts(const hd_op *op, int along, bool block)
{
    if (hd_op_swaps(op, op->bound->ndims[0], along))
        return false;
    return hd_bound_picks(op->bound, along) ||
           (block && hd_op_key(op, HD_KEY_GROUPS) == NULL &&
            hd_bound_parts(op->bound, along));
}

int64_t hd_view_blocks(const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);
    hd_dim all = view->buffer->type.dim[dim];

    return range != NULL && range->block != HD_EXPR_NONE &&
                   !hd_dim_is_sized(all) && all.extent % range->blocks == 0 &&
                   all.extent > range->blocks
               ? range->blocks
               : 0;
}

int hd_view_next_long(const hd_view *view, int dim)
{
    const hd_type *type = &view->buffer->type;

    while (dim < type->ndims &&
           (hd_view_picks(view, dim) || hd_dim_local(type->dim[dim]) == 1))
        dim++;
    return dim;
}

bool hd_op_uses(const hd_op *op, const hd_buffer *root, bool writing)
{
    for (int i = 0; i < op->nviews; i++)
        if (hd_buffer_root(op->view[i].buffer) == root &&
            (!writing || hd_op_access(op, i) != HD_ACCESS_READ))
            return true;
    return false;
}

bool hd_op_conflicts(const hd_op *a, const hd_op *b)
{
    for (int i = 0; i < a->nviews; i++)
        if (hd_op_uses(b, hd_buffer_root(a->view[i].buffer),
                       hd_op_access(a, i) == HD_ACCESS_READ))
            return true;
    return false;
}

bool hd_op_has_ranges(const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        for (int d = 0; d < op->view[i].nindex; d++) {
            const hd_range *range = hd_view_range(&op->view[i], d);

            if (range != NULL && range->block == HD_EXPR_NONE)
                return true;
        }
    return false;
}

// The view with every dimension before `dim` fixed that holds one index on all
// ranks, except `skip`.
static hd_view past_ones(hd_module *module, hd_view view, int dim, int skip)
{
    for (int i = 0; i < dim; i++) {
        hd_dim d = view.buffer->type.dim[i];

        if (i == skip || hd_dim_local(d) != 1 || hd_dim_is_uneven(d) ||
            hd_view_picks(&view, i))
            continue;
        hd_view_keep_all(module, &view, i);
        view = hd_view_at(view, i,
                          hd_dim_is_sharded(d) ? hd_expr_coord(module, d.mark)
                                               : hd_expr_const(module, 0));
    }
    return view;
}

// The view with an index in the place of each block of one.
static hd_view as_indices(hd_module *module, hd_view view)
{
    for (int i = 0; i < view.nindex; i++) {
        const hd_range *range = hd_view_range(&view, i);
        hd_dim d = view.buffer->type.dim[i];
        hd_expr index;

        if (range == NULL || range->block == HD_EXPR_NONE ||
            range->blocks != d.extent || hd_dim_is_sized(d))
            continue;
        index = range->block;
        hd_view_keep_all(module, &view, i);
        view = hd_view_at(view, i, index);
    }
    return view;
}

// Where view `i` has the pieces of ranks, or its own one; of what each rank has
// all of, the first dimension that it keeps of more than one index, or -1.
static int piece_dim(const hd_op *op, int i)
{
    const hd_type *type = &op->view[i].buffer->type;
    int dim = hd_view_next_long(&op->view[i], 0);

    if (hd_op_is_led(op, i))
        return hd_op_pieces_dim(op, i);
    if (hd_op_is_led(op, 1 - i))
        return hd_type_axis_dim(type, op->axis);
    return dim < type->ndims ? dim : -1;
}

static int count_kept(const hd_view *view)
{
    return hd_view_kept_ahead(view, view->buffer->type.ndims);
}

void hd_build_past_ones(void *module, hd_op *op)
{
    bool led = hd_op_is_led(op, 0) || hd_op_is_led(op, 1);
    hd_view view[2];
    int dim[2], last[2];

    if (!hd_op_is_collective(op))
        return;
    for (int i = 0; i < 2; i++)
        last[i] = dim[i] = piece_dim(op, i);
    if (hd_op_is_led(op, 0) && hd_op_is_led(op, 1))
        last[0] = last[1] = dim[0] > dim[1] ? dim[0] : dim[1];
    for (int i = 0; i < 2; i++)
        view[i] =
            past_ones(module, as_indices(module, op->view[i]), last[i], dim[i]);
    // Without pieces both sides have one shape.
    for (int i = 0;
         i < 2 && (led || count_kept(&view[0]) == count_kept(&view[1])); i++) {
        op->view[i] = view[i];
        hd_build_renumber_pieces(module, op, i, dim[i]);
    }
}

// What a view has of dimension `i`, as dimension `at` of another one.
static hd_view take_dim(hd_module *module, hd_view to, int at,
                        const hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);

    to = hd_view_at(to, at, view->index[i]);
    if (range != NULL && range->block != HD_EXPR_NONE)
        hd_view_keep_block(module, &to, at, range->block, range->blocks);
    else if (range != NULL)
        hd_view_keep(module, &to, at, range->low, range->past);
    return to;
}

hd_view hd_view_with(hd_module *module, hd_view view, hd_buffer *buffer,
                     int dim, hd_expr index)
{
    hd_view with = {.buffer = buffer, .loc = view.loc};

    for (int i = 0; i < view.nindex; i++)
        with = take_dim(module, with, i < dim ? i : i + 1, &view, i);
    return index == HD_EXPR_ALL && with.nindex <= dim
               ? with
               : hd_view_at(with, dim, index);
}

hd_view hd_view_without(hd_module *module, hd_view view, hd_buffer *buffer,
                        int dim)
{
    hd_view without = {.buffer = buffer, .loc = view.loc};

    for (int i = 0; i < view.nindex; i++)
        if (i != dim)
            without = take_dim(module, without, i < dim ? i : i - 1, &view, i);
    return without;
}

hd_view hd_view_moved(hd_module *module, hd_view view, hd_buffer *buffer,
                      int from, int to)
{
    hd_view moved = {.buffer = buffer, .loc = view.loc};

    for (int i = 0; i < view.nindex; i++) {
        const hd_range *range = hd_view_range(&view, i);
        int past = i > from ? i - 1 : i;
        int at = i == from ? to : past + (past >= to);

        if (range != NULL && range->block == HD_EXPR_NONE) {
            moved = hd_view_at(moved, at, HD_EXPR_ALL);
            hd_view_keep(module, &moved, at, range->low, range->past);
        } else if (range != NULL)
            moved =
                hd_view_block(module, moved, at, range->block, range->blocks);
        else if (hd_view_picks(&view, i))
            moved = hd_view_at(moved, at, view.index[i]);
    }
    return moved;
}

hd_type hd_type_in_pieces(const hd_type *type, int dim, int64_t n, int at)
{
    hd_dim all = type->dim[dim], pieces = hd_dim_whole(n);
    hd_type cut = *type;

    if (all.extent == n)
        return hd_type_moved(type, dim, at);
    if (hd_dim_blocks(all) == n)
        pieces.mark = all.mark;
    cut.dim[dim] = hd_dim_whole(all.extent / n);
    return hd_type_with(&cut, at, pieces);
}

hd_view hd_view_in_pieces(hd_module *module, hd_view view, hd_buffer *buffer,
                          int dim, int at)
{
    hd_expr piece;

    if (buffer->type.ndims == view.buffer->type.ndims)
        return hd_view_moved(module, view, buffer, dim, at);
    piece = hd_view_index(&view, dim);
    view = hd_view_all_of(module, view, dim);
    return hd_view_with(module, view, buffer, at, piece);
}

hd_view hd_build_pieces(hd_build *b, hd_view view, int dim, int64_t n)
{
    hd_type type = hd_type_in_pieces(&view.buffer->type, dim, n, dim);

    return type.ndims == view.buffer->type.ndims
               ? view
               : hd_view_in_pieces(b->module, view,
                                   hd_build_name(b->module, view.buffer, &type),
                                   dim, dim);
}

void hd_stmt_each(const hd_stmt *stmt, hd_op_fn *fn, void *context)
{
    if (stmt->kind == HD_STMT_OP)
        fn(context, stmt->op);
    hd_block_each(&stmt->body, fn, context);
    hd_block_each(&stmt->otherwise, fn, context);
}

void hd_block_each(const hd_block *block, hd_op_fn *fn, void *context)
{
    for (const hd_stmt *stmt = block->first; stmt != NULL; stmt = stmt->next)
        hd_stmt_each(stmt, fn, context);
}

static bool has_stream(const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if (hd_stmt_has_stream(s))
            return true;
    return false;
}

bool hd_stmt_has_stream(const hd_stmt *stmt)
{
    return stmt->kind == HD_STMT_ON || has_stream(&stmt->body) ||
           has_stream(&stmt->otherwise);
}

static void count_views(void *context, hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        ((int *)context)[hd_buffer_root(op->view[i].buffer)->id]++;
}

int *hd_module_count_views(const hd_module *module, hd_arena *scratch)
{
    int *uses = hd_new_array(scratch, int, module->nbuffers + 1);

    hd_block_each(&module->body, count_views, uses);
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->by != NULL && uses[hd_buffer_root(b)->id] > 0)
            uses[hd_buffer_root(b->by)->id]++;
    return uses;
}
