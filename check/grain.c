// Dimensions that steps pair with each other have one grain: they are joined in
// classes. A unit is what all views begin at multiples of, and end at, but for
// uneven blocks: the last one ends where the dimension does, which may be in
// the midst of a unit and so cuts each. Where two shapes hold the same elements
// in the same order, only the dimensions that begin at the same stride can keep
// a unit, the greatest that divides both, and none is cut; units shrink until
// all of that holds.
#include "check/grain.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "ir/causal.h"
#include "ir/signature.h"
#include "ir/space.h"

// The dimensions of a view that it keeps, as numbers of `class`.
typedef struct shape {
    int ndims;
    int32_t dim[HD_MAX_DIMS];
    int64_t extent[HD_MAX_DIMS];
} shape;

typedef struct pair {
    const hd_op *a, *b;
} pair;

// What is known of a dimension, and of the class that it leads.
typedef struct length {
    int64_t n;     // how many indices it has
    int64_t whole; // how many all its blocks have together
    int64_t unit;  // of the class: 0 where all indices are one
    int64_t cut;   // of the class
    bool uneven;   // some views are blocks, and one of these is shorter
    bool uncut;    // it has the elements of a dimension that begins elsewhere
} length;

enum { SEEN = 1 << 12 };

typedef struct builder {
    const hd_graph *graph;
    const hd_module *tensor;
    hd_diag *diag;
    int32_t *class; // owned, by dimension: another one of its class, or itself
    length *length; // owned, by dimension
    shape *line;    // owned: pairs of shapes of the same elements
    int64_t nlines, lines_room;
    pair *seen; // owned: pairs of ops that were looked at lately
} builder;

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

// Dimensions of the tensor program count first, then those of the host program.
static int32_t number_of(const builder *b, bool dense, const hd_buffer *buffer,
                         int d)
{
    return (int32_t)(((dense ? 0 : b->tensor->nbuffers) + buffer->id) *
                         HD_MAX_DIMS +
                     d);
}

static int32_t ndims(const builder *b)
{
    return (b->tensor->nbuffers + b->graph->module->nbuffers) * HD_MAX_DIMS;
}

// How many indices the whole dimension has in the run.
static hd_dim now_of(const builder *b, bool dense, const hd_buffer *buffer,
                     int d)
{
    hd_dim dim = buffer->type.dim[d];

    dim.extent = hd_module_extent(dense ? b->tensor : b->graph->module, dim);
    return dim;
}

// What there is room for, which shapes are told by.
static int64_t extent_of(bool dense, const hd_buffer *buffer, int d)
{
    return dense ? buffer->type.dim[d].extent
                 : hd_dim_local(buffer->type.dim[d]);
}

// On a rank whose block is full.
static length length_of(const builder *b, bool dense, const hd_buffer *buffer,
                        int d)
{
    hd_dim dim = now_of(b, dense, buffer, d);

    return (length){.n = dense ? dim.extent : hd_dim_local(dim),
                    .whole = dim.extent};
}

// ------------------------------------------------------------------ classes

static int32_t leader_of(const builder *b, int32_t dim)
{
    while (b->class[dim] != dim) {
        b->class[dim] = b->class[b->class[dim]];
        dim = b->class[dim];
    }
    return dim;
}

static length *class_of(const builder *b, int32_t dim)
{
    return &b->length[leader_of(b, dim)];
}

static void narrow(const builder *b, int32_t dim, int64_t unit)
{
    length *class = class_of(b, dim);

    class->unit = gcd(class->unit, unit);
}

// To blocks of `extent` indices.
static void narrow_to_blocks(const builder *b, int32_t dim, int64_t extent,
                             int64_t blocks)
{
    int64_t block = hd_block_size(extent, blocks);

    narrow(b, dim, block);
    b->length[dim].uneven |= block > 0 && extent % block != 0;
}

static void join(const builder *b, int32_t x, int32_t y)
{
    int32_t from = leader_of(b, x), to = leader_of(b, y);

    b->class[from] = to;
    narrow(b, to, b->length[from].unit);
}

// ------------------------------------------------------------------- shapes

static shape shape_of(const builder *b, bool dense, const hd_view *view)
{
    shape s = {.ndims = 0};

    for (int d = 0; d < view->buffer->type.ndims; d++) {
        const hd_range *range = hd_view_range(view, d);

        if (hd_view_picks(view, d))
            continue;
        s.dim[s.ndims] = number_of(b, dense, view->buffer, d);
        s.extent[s.ndims++] =
            range != NULL ? range->extent : extent_of(dense, view->buffer, d);
    }
    return s;
}

static shape without(const shape *s, int dim)
{
    shape rest = {.ndims = 0};

    for (int d = 0; d < s->ndims; d++)
        if (d != dim) {
            rest.dim[rest.ndims] = s->dim[d];
            rest.extent[rest.ndims++] = s->extent[d];
        }
    return rest;
}

static shape without_ones(const shape *s)
{
    shape rest = {.ndims = 0};

    for (int d = 0; d < s->ndims; d++)
        if (s->extent[d] != 1) {
            rest.dim[rest.ndims] = s->dim[d];
            rest.extent[rest.ndims++] = s->extent[d];
        }
    return rest;
}

static bool is_counted(const shape *s)
{
    for (int d = 0; d < s->ndims; d++)
        if (s->extent[d] < 0)
            return true;
    return false;
}

static void tell_all_apart(const builder *b, const shape *s)
{
    for (int d = 0; d < s->ndims; d++)
        narrow(b, s->dim[d], 1);
}

static void leave_uncut(const builder *b, const shape *s)
{
    for (int d = 0; d < s->ndims; d++)
        b->length[s->dim[d]].uncut = true;
}

// Of shapes of as many elements. Where all but one of their extents are equal,
// that is, too, which one of both may not say as a number.
static bool is_same(const shape *x, const shape *y)
{
    int apart = 0, counted = 0;

    for (int d = 0; d < x->ndims && d < y->ndims; d++) {
        bool is_number = x->extent[d] >= 0 && y->extent[d] >= 0;

        if (x->extent[d] != y->extent[d] && is_number)
            return false;
        apart += x->extent[d] != y->extent[d];
        counted += !is_number;
    }
    return x->ndims == y->ndims && (apart == 0 || counted == 1);
}

// Whether a dimension whose length a run says is merged with others in one of
// them: what is a unit of room is none of a run.
static bool is_merged(const hd_type *a, const hd_type *b)
{
    for (int d = 0; d < a->ndims; d++) {
        bool found = !hd_dim_is_sized(a->dim[d]);

        for (int e = 0; e < b->ndims && !found; e++)
            found = hd_dim_as_long(a->dim[d], b->dim[e]);
        if (!found)
            return true;
    }
    return false;
}

// Both hold the same elements in the same order, or the first ones of the
// other.
static hd_status align(builder *b, const shape *x, const shape *y)
{
    shape a = without_ones(x), c = without_ones(y);

    if (is_same(&a, &c)) {
        for (int d = 0; d < a.ndims; d++)
            join(b, a.dim[d], c.dim[d]);
        return HD_OK;
    }
    if (is_counted(&a) || is_counted(&c)) {
        tell_all_apart(b, &a);
        tell_all_apart(b, &c);
        return HD_OK;
    }
    leave_uncut(b, &a);
    leave_uncut(b, &c);
    HD_TRY(hd_grow((void **)&b->line, &b->lines_room, b->nlines + 2,
                   sizeof *b->line, b->diag));
    b->line[b->nlines++] = a;
    b->line[b->nlines++] = c;
    return HD_OK;
}

// -------------------------------------------------------------------- steps

static void shapes_of(const shape *s, int n, hd_shape *out)
{
    for (int i = 0; i < n; i++) {
        out[i].ndims = s[i].ndims;
        memcpy(out[i].extent, s[i].extent, sizeof out[i].extent);
    }
}

// Dimensions that lie along the same one of what the op iterates over have
// their indices in common. Each scale is told apart, and what it is of from
// what the next one is of.
static void pair_dims(const builder *b, const hd_op *op, const shape *s, int n)
{
    hd_shape view[HD_MAX_VIEWS];
    hd_space space;

    shapes_of(s, n, view);
    hd_space_of(op, view, &space);
    for (int d = 0; d < space.ndims; d++) {
        int32_t first = -1;

        for (int i = 0; i < n; i++) {
            int own = space.dim[i][d];

            if (own == HD_REPEATED)
                continue;
            if (hd_space_is_grained(&space, i, d)) {
                narrow(b, s[i].dim[own], 1);
                narrow(b, first, hd_op_grain(op));
                continue;
            }
            if (first >= 0)
                join(b, s[i].dim[own], first);
            first = s[i].dim[own];
        }
    }
}

// To what the view begins and ends at.
static void narrow_to_view(const builder *b, bool dense,
                           const hd_module *module, const hd_view *view, int d)
{
    int32_t dim = number_of(b, dense, view->buffer, d);
    const hd_range *range = hd_view_range(view, d);

    if (range != NULL && range->block != HD_EXPR_NONE)
        narrow_to_blocks(b, dim, b->length[dim].whole, range->blocks);
    else if (range != NULL && hd_expr_is_const(module, range->low) &&
             hd_expr_is_const(module, range->past))
        narrow(b, dim,
               gcd(hd_expr_value(module, range->past),
                   hd_expr_value(module, range->low)));
    else if (range != NULL || hd_view_picks(view, d))
        narrow(b, dim, 1);
}

// Of a grouped product the counts, and what has a part for each group, are
// along each other, where these lie along nothing of the result. Each of a
// sequence is a value of its own.
static void pair_groups(const builder *b, const hd_op *op, const shape *s)
{
    int counts = hd_op_key_view(op, HD_KEY_GROUPS);
    hd_shape view[HD_MAX_VIEWS];

    if (hd_op_has_sequences(op)) {
        narrow(b, s[counts].dim[s[counts].ndims - 1], 1);
        return;
    }
    shapes_of(s, op->nviews, view);
    for (int i = 0; counts >= 0 && i < op->nviews; i++)
        if (i != counts && hd_space_leads_groups(op, view, i))
            join(b, s[counts].dim[0], s[i].dim[0]);
}

// Counts of what is moved are along the first dimensions of that.
static void pair_rows(const builder *b, const hd_op *op, const shape *s)
{
    int moved = hd_op_counted(op);
    int counts = hd_op_key_view(op, HD_KEY_COUNTS);

    for (int d = 0; moved >= 0 && d < s[counts].ndims; d++)
        join(b, s[counts].dim[d], s[moved].dim[d]);
}

// Each element of what is picked, or of what a call takes as a whole, is a
// value of its own, wherever it stands. Counts are of the batch.
static void tell_picked_apart(const builder *b, const hd_op *op, const shape *s)
{
    if (!hd_op_is_batched(op))
        return;
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        for (int d = hd_op_batch(op, i, s[i].ndims); d < s[i].ndims; d++)
            narrow(b, s[i].dim[d], 1);
}

// So is each index that has rows of its own place.
static void tell_placed_apart(const builder *b, const hd_op *op, const shape *s)
{
    hd_placed placed;

    if (hd_op_family(op) != HD_FAMILY_ATTEND ||
        !hd_causal_place(b->tensor, op, 0, &placed))
        return;
    for (int i = 0; i < op->nviews; i++)
        for (int d = 0; d < s[i].ndims; d++)
            if (placed.index[i][d] >= 0)
                narrow(b, s[i].dim[d], 1);
}

// And each part of sums, of a block of what is joined.
static void tell_parts_apart(const builder *b, const hd_op *op, const shape *s)
{
    int joined;

    if (op->bound == NULL || !op->bound->parts)
        return;
    joined = hd_bound_joined(op->bound, 1);
    narrow(b, s[0].dim[0], 1);
    narrow_to_blocks(b, s[1].dim[joined], s[1].extent[joined], s[0].extent[0]);
}

static void pair_op(const builder *b, bool dense, const hd_op *op)
{
    const hd_module *module = dense ? b->tensor : b->graph->module;
    shape s[HD_MAX_VIEWS] = {{0}};

    for (int i = 0; i < op->nviews; i++) {
        const hd_view *view = &op->view[i];

        s[i] = shape_of(b, dense, view);
        for (int d = 0; d < view->nindex; d++)
            narrow_to_view(b, dense, module, view, d);
    }
    if (hd_op_is(op, HD_UNIT_COMPUTE) && op->code != HD_OP_RESHAPE) {
        pair_dims(b, op, s, op->nviews);
        pair_groups(b, op, s);
        tell_picked_apart(b, op, s);
        if (dense) {
            tell_parts_apart(b, op, s);
            tell_placed_apart(b, op, s);
        }
    } else if (hd_op_is(op, HD_UNIT_TRANSFER)) {
        pair_rows(b, op, s);
    }
}

static void pair_block(const builder *b, bool dense, const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        if (s->kind == HD_STMT_OP)
            pair_op(b, dense, s->op);
        pair_block(b, dense, &s->body);
        pair_block(b, dense, &s->otherwise);
    }
}

// ---------------------------------------------------------------- transfers

static shape piece_of(const builder *b, const hd_op *op, int view)
{
    shape s = shape_of(b, false, &op->view[view]);

    if (!hd_op_is_led(op, view))
        return s;
    narrow(b, s.dim[0], 1);
    return without(&s, 0);
}

// What one of them sends the other one receives, in the same order.
static hd_status pair_transfer(builder *b, const hd_op *x, const hd_op *y)
{
    uint64_t slot = ((uintptr_t)x >> 4) * 31 + ((uintptr_t)y >> 4);
    pair *seen = &b->seen[slot % SEEN];
    shape first = piece_of(b, x, 0);

    if (seen->a == x && seen->b == y)
        return HD_OK;
    *seen = (pair){x, y};
    for (int i = 1; i < x->noutputs + x->ninputs; i++) {
        shape s = piece_of(b, x, i);

        HD_TRY(align(b, &first, &s));
    }
    for (int i = 0; i < y->noutputs + y->ninputs; i++) {
        shape s = piece_of(b, y, i);

        HD_TRY(align(b, &first, &s));
    }
    return HD_OK;
}

static const hd_op *first_of(const hd_graph *g, const hd_node *node)
{
    const hd_member *first;

    if (node->kind == HD_NODE_RECV)
        return hd_graph_node(g, node->peer, node->partner)->op;
    first = hd_graph_members(g, node->rendezvous);
    return hd_graph_node(g, first->rank, first->step)->op;
}

static hd_status pair_transfers(builder *b)
{
    const hd_graph *g = b->graph;

    for (int64_t i = 0; i < g->first[g->nranks]; i++) {
        const hd_node *node = &g->node[i];

        if (node->kind == HD_NODE_RECV || node->kind == HD_NODE_COLLECTIVE)
            HD_TRY(pair_transfer(b, first_of(g, node), node->op));
    }
    return HD_OK;
}

// ------------------------------------------------------------------ buffers

static hd_status pair_names(builder *b)
{
    for (const hd_buffer *x = b->graph->module->buffers; x != NULL;
         x = x->next) {
        hd_view name = {.buffer = (hd_buffer *)x}, root = {.buffer = x->of};
        shape s, of;

        if (x->of == NULL)
            continue;
        s = shape_of(b, false, &name);
        of = shape_of(b, false, &root);
        if (is_merged(&x->type, &x->of->type)) {
            tell_all_apart(b, &s);
            tell_all_apart(b, &of);
        }
        HD_TRY(align(b, &s, &of));
    }
    return HD_OK;
}

// A reshape has the same elements by two names.
static hd_status pair_shapes(builder *b)
{
    for (const hd_stmt *s = b->tensor->body.first; s != NULL; s = s->next) {
        shape to, from;

        if (s->op->code != HD_OP_RESHAPE)
            continue;
        to = shape_of(b, true, &s->op->view[0]);
        from = shape_of(b, true, &s->op->view[1]);
        if (is_merged(&s->op->view[0].buffer->type,
                      &s->op->view[1].buffer->type)) {
            tell_all_apart(b, &to);
            tell_all_apart(b, &from);
        }
        HD_TRY(align(b, &to, &from));
    }
    return HD_OK;
}

// Each element of counts is a number of its own, and so is each index that they
// count or do not.
static void tell_counted_apart(const builder *b, bool dense,
                               const hd_module *module)
{
    for (const hd_buffer *x = module->buffers; x != NULL; x = x->next) {
        if (x->by == NULL)
            continue;
        narrow(b, number_of(b, dense, x, x->counted), 1);
        for (int d = 0; d < x->by->type.ndims; d++)
            narrow(b, number_of(b, dense, x->by, d), 1);
    }
}

// A dimension of the tensor program's, and what ranks have of it.
static void pair_ranks(const builder *b, const hd_buffer *x, int d,
                       const hd_buffer *y, int e)
{
    int32_t whole = number_of(b, true, x, d);
    hd_dim dim = y->type.dim[e];

    if (hd_dim_is_sharded(dim))
        narrow_to_blocks(b, whole, b->length[whole].whole, hd_dim_blocks(dim));
    if (!hd_dim_is_sharded(dim) || hd_dim_is_cut(dim))
        join(b, whole, number_of(b, false, y, e));
}

static void pair_arguments(const builder *b, const hd_buffer *const *argument)
{
    for (const hd_buffer *x = b->tensor->buffers; x != NULL; x = x->next) {
        const hd_buffer *y = argument[x->id];

        for (int d = 0; d < x->type.ndims && y != NULL; d++)
            pair_ranks(b, x, d, y, d);
    }
}

// Where elements are is brought by no argument: pairs those of both programs,
// of as many indices if any are.
static void pair_place(const builder *b, const hd_op *op)
{
    int e = hd_view_kept_dim(&op->view[0], hd_op_dim(op));
    const hd_buffer *y = op->view[0].buffer;
    int64_t extent = now_of(b, false, y, e).extent;

    for (int same = 1; same >= 0; same--) {
        bool found = false;

        for (const hd_stmt *s = b->tensor->body.first; s != NULL; s = s->next) {
            const hd_buffer *x = s->op->view[0].buffer;
            int d;

            if (hd_op_family(s->op) != HD_FAMILY_IOTA)
                continue;
            d = hd_view_kept_dim(&s->op->view[0], hd_op_dim(s->op));
            if (same == 1 && now_of(b, true, x, d).extent != extent)
                continue;
            pair_ranks(b, x, d, y, e);
            found = true;
        }
        if (found)
            return;
    }
}

static void pair_places(const builder *b, const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        if (s->kind == HD_STMT_OP && hd_op_family(s->op) == HD_FAMILY_IOTA)
            pair_place(b, s->op);
        pair_places(b, &s->body);
        pair_places(b, &s->otherwise);
    }
}

// --------------------------------------------------------------------- units

// A piece ends behind `n` indices. Nothing has to where these are some units,
// or end at the cut; another cut would be the same one of smaller units.
static void end_piece(length *class, int64_t n)
{
    int64_t rest, apart;

    if (!class->uneven || class->uncut)
        class->unit = gcd(class->unit, n);
    rest = class->unit > 0 ? n % class->unit : 0;
    if (rest == 0)
        return;
    apart = rest > class->cut ? rest - class->cut : class->cut - rest;
    if (class->cut != 0)
        class->unit = gcd(class->unit, apart);
    class->cut = rest % class->unit;
}

// Each dimension ends where it ends; of what a rank has, a shorter block does,
// too.
static void end_dims(const builder *b, int64_t n)
{
    for (int32_t d = 0; d < n; d++) {
        length *class = class_of(b, d);

        class->uneven |= b->length[d].uneven;
        class->uncut |= b->length[d].uncut;
    }
    for (int32_t d = 0; d < n; d++) {
        end_piece(class_of(b, d), b->length[d].n);
        if (b->length[d].uneven)
            end_piece(class_of(b, d), b->length[d].whole);
    }
}

// Whether anything changed.
static bool narrow_line(const builder *b, const shape *x, const shape *y)
{
    int64_t stride = 1;
    bool changed = false;

    for (int d = x->ndims - 1; d >= 0; stride *= x->extent[d--]) {
        int64_t *unit = &class_of(b, x->dim[d])->unit;
        int64_t other = 1, there = 1;

        for (int k = y->ndims - 1; k >= 0; there *= y->extent[k--])
            if (there == stride)
                other = class_of(b, y->dim[k])->unit;
        other = gcd(*unit, other);
        changed |= other != *unit;
        *unit = other;
    }
    return changed;
}

static void narrow_lines(const builder *b)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (int64_t i = 0; i < b->nlines; i += 2) {
            changed |= narrow_line(b, &b->line[i], &b->line[i + 1]);
            changed |= narrow_line(b, &b->line[i + 1], &b->line[i]);
        }
    }
}

static hd_sieve make_sieve(const builder *b, bool dense, const hd_buffer *x)
{
    hd_sieve s = {.ndims = x->type.ndims,
                  .elements = x->type.dtype != HD_DTYPE_EVENT};

    for (int d = s.ndims - 1; d >= 0; d--) {
        int32_t dim = number_of(b, dense, x, d);
        const length *class = class_of(b, dim);

        s.grain[d].unit = class->unit > 0 ? class->unit : 1;
        s.grain[d].cut = class->cut % s.grain[d].unit;
        s.whole[d] = b->length[dim].n;
        s.extent[d] = hd_grain_kept(s.grain[d], s.whole[d]);
        s.stride[d] = s.elements;
        s.elements *= s.extent[d];
    }
    return s;
}

static hd_status make_sieves(const builder *b, bool dense,
                             const hd_module *module, hd_sieve **out)
{
    HD_TRY(
        hd_clear_array(module->nbuffers, sizeof **out, b->diag, (void **)out));
    for (const hd_buffer *x = module->buffers; x != NULL; x = x->next)
        (*out)[x->id] = make_sieve(b, dense, x);
    return HD_OK;
}

static hd_status begin(builder *b)
{
    const hd_module *module[] = {b->tensor, b->graph->module};
    int64_t n = ndims(b);

    HD_TRY(hd_clear_array(n, sizeof *b->class, b->diag, (void **)&b->class));
    HD_TRY(hd_clear_array(n, sizeof *b->length, b->diag, (void **)&b->length));
    HD_TRY(hd_clear_array(SEEN, sizeof *b->seen, b->diag, (void **)&b->seen));
    for (int64_t i = 0; i < n; i++)
        b->class[i] = (int32_t)i;
    for (int i = 0; i < 2; i++)
        for (const hd_buffer *x = module[i]->buffers; x != NULL; x = x->next)
            for (int d = 0; d < x->type.ndims; d++)
                b->length[number_of(b, i == 0, x, d)] =
                    length_of(b, i == 0, x, d);
    return HD_OK;
}

static hd_status build(builder *b, const hd_buffer *const *argument,
                       hd_layout *tensor, hd_layout *host)
{
    HD_TRY(begin(b));
    pair_block(b, true, &b->tensor->body);
    pair_block(b, false, &b->graph->module->body);
    pair_arguments(b, argument);
    pair_places(b, &b->graph->module->body);
    tell_counted_apart(b, true, b->tensor);
    tell_counted_apart(b, false, b->graph->module);
    HD_TRY(pair_names(b));
    HD_TRY(pair_shapes(b));
    HD_TRY(pair_transfers(b));
    end_dims(b, ndims(b));
    narrow_lines(b);
    HD_TRY(make_sieves(b, true, b->tensor, &tensor->sieve));
    return make_sieves(b, false, b->graph->module, &host->sieve);
}

hd_status hd_grain_find(const hd_buffer *const *argument, hd_diag *diag,
                        hd_layout *tensor, hd_layout *host)
{
    builder b = {.graph = host->graph, .tensor = tensor->module, .diag = diag};
    hd_status status = build(&b, argument, tensor, host);

    free(b.class);
    free(b.length);
    free(b.line);
    free(b.seen);
    return status;
}
