// See expand.h. An element's place in row-major order is a sum of its indices,
// each times how many elements lie behind one; that place, divided by what lies
// behind the indices of another shape, gives these.
#include "ir/expand.h"

#include "ir/op.h"

hd_buffer *hd_expand_temp(hd_module *module, const hd_op *of, const char *word,
                          const hd_type *type)
{
    const hd_buffer *made = of->view[0].buffer;
    hd_buffer *temp = hd_module_add_buffer(
        module, hd_arena_printf(module->arena, "%s_%s", made->name, word),
        HD_ROLE_TEMP, type);

    temp->on = made->on;
    temp->loc = of->loc;
    temp->locs = hd_new(module->arena, hd_locs);
    return temp;
}

hd_op *hd_expand_op(const hd_expansion *e, hd_opcode code, const hd_type *type,
                    hd_buffer **result)
{
    hd_stmt *stmt = hd_stmt_op(e->module, code, -1, 1, 3, 2, e->of->loc);
    hd_op *op = stmt->op;

    op->ninputs = 0;
    op->nviews = 1;
    *result =
        hd_expand_temp(e->module, e->of, hd_op_info_get(code)->text, type);
    op->view[0] = hd_view_whole(*result, op->loc);
    hd_block_append(e->block, stmt);
    return op;
}

void hd_expand_read(hd_op *op, hd_buffer *operand)
{
    op->view[op->nviews++] = hd_view_whole(operand, op->loc);
    op->ninputs++;
}

static void add_number(hd_op *op, hd_key_code code, double number)
{
    op->key[op->nkeys++] = (hd_key){.code = code,
                                    .loc = op->loc,
                                    .expr = HD_EXPR_NONE,
                                    .view = -1,
                                    .number = number};
}

hd_buffer *hd_expand_length(const hd_expansion *e, hd_dim dim, hd_dtype dtype,
                            double times)
{
    hd_type ones = {.dtype = dtype, .ndims = 1}, one = {.dtype = dtype};
    hd_buffer *each, *length;
    hd_op *op;

    ones.dim[0] = hd_dim_unmarked(dim);
    ones.dim[0].extent /= dim.times;
    ones.dim[0].times = 1;
    add_number(hd_expand_op(e, HD_OP_FILL, &ones, &each), HD_KEY_VALUE, times);
    op = hd_expand_op(e, HD_OP_SUM, &one, &length);
    add_number(op, HD_KEY_DIM, 0);
    hd_expand_read(op, each);
    return length;
}

// ------------------------------------------------------------------ reshape

static bool has_sized(const hd_dim *dim, int n)
{
    bool any = false;

    for (int i = 0; i < n; i++)
        any |= hd_dim_is_sized(dim[i]);
    return any;
}

// Of dimensions of which one has a size, how many elements for each of that.
static int64_t elements_of(const hd_dim *dim, int n)
{
    int64_t elements = 1;

    for (int i = 0; i < n; i++)
        elements *= hd_dim_is_sized(dim[i]) ? dim[i].times : dim[i].extent;
    return elements;
}

static bool is_led(const hd_dim *a, int na, const hd_dim *b, int nb,
                   uint32_t uncut)
{
    if (na == 1 && nb == 1)
        return hd_dim_as_long(a[0], b[0]);
    return na > 0 && nb > 0 && hd_dim_is_sized(a[0]) &&
           a[0].size == b[0].size && (uncut >> (a[0].size - 1) & 1) != 0 &&
           !has_sized(a + 1, na - 1) && !has_sized(b + 1, nb - 1) &&
           elements_of(a, na) == elements_of(b, nb);
}

bool hd_reshape_stays(const hd_type *to, const hd_type *from, uint32_t uncut)
{
    int of_to[HD_MAX_DIMS], of_from[HD_MAX_DIMS], na, nb;
    hd_type a = hd_type_without_ones(to, of_to),
            b = hd_type_without_ones(from, of_from);

    for (int i = 0, k = 0; i < a.ndims || k < b.ndims; i += na, k += nb) {
        hd_dims_factor(a.dim + i, a.ndims - i, b.dim + k, b.ndims - k, &na,
                       &nb);
        if ((has_sized(a.dim + i, na) || has_sized(b.dim + k, nb)) &&
            !is_led(a.dim + i, na, b.dim + k, nb, uncut))
            return false;
    }
    return true;
}

// The only dimension whose length a run says; -1 if there is none, or several.
static int find_sized(const hd_type *type)
{
    int found = -1, n = 0;

    for (int d = 0; d < type->ndims; d++)
        if (hd_dim_is_sized(type->dim[d])) {
            found = d;
            n++;
        }
    return n == 1 ? found : -1;
}

bool hd_reshape_fits(const hd_type *to, const hd_type *from)
{
    int d = find_sized(to), e = find_sized(from);

    return d >= 0 && e >= 0 && to->dim[d].size == from->dim[e].size &&
           elements_of(to->dim, to->ndims) ==
               elements_of(from->dim, from->ndims);
}

static hd_buffer *combine(const hd_expansion *e, hd_opcode code, hd_buffer *a,
                          hd_buffer *b)
{
    hd_buffer *made;
    hd_op *op = hd_expand_op(e, code, &a->type, &made);

    hd_expand_read(op, a);
    hd_expand_read(op, b);
    return made;
}

static hd_buffer *number(const hd_expansion *e, int64_t n)
{
    const hd_type one = {.dtype = HD_DTYPE_I32};
    hd_buffer *made;

    add_number(hd_expand_op(e, HD_OP_FILL, &one, &made), HD_KEY_VALUE,
               (double)n);
    return made;
}

static hd_buffer *scaled(const hd_expansion *e, hd_buffer *x, int64_t n)
{
    return n == 1 ? x : combine(e, HD_OP_MUL, x, number(e, n));
}

static hd_buffer *places(const hd_expansion *e, const hd_type *type, int dim)
{
    hd_buffer *made;

    add_number(hd_expand_op(e, HD_OP_IOTA, type, &made), HD_KEY_DIM, dim);
    return made;
}

// Of each element of `type` its place among all, in row-major order.
static hd_buffer *flat_places(const hd_expansion *e, const hd_type *type,
                              hd_buffer *length)
{
    int sized = find_sized(type);
    hd_buffer *sum = NULL;

    for (int d = 0; d < type->ndims; d++) {
        int rest = type->ndims - d - 1;
        hd_buffer *term;

        if (type->dim[d].extent == 1)
            continue;
        term =
            scaled(e, places(e, type, d), elements_of(type->dim + d + 1, rest));
        if (sized > d)
            term = combine(e, HD_OP_MUL, term, length);
        sum = sum == NULL ? term : combine(e, HD_OP_ADD, sum, term);
    }
    return sum;
}

// What stands at those places in a shape with dimension `sized`, where that is
// in front of all others.
static hd_buffer *moved_places(const hd_expansion *e, hd_buffer *flat,
                               const hd_type *type, int sized,
                               hd_buffer *length)
{
    int64_t ahead = elements_of(type->dim, sized);
    int64_t behind =
        elements_of(type->dim + sized + 1, type->ndims - sized - 1);
    hd_buffer *each, *outer, *rest, *index;

    if (ahead == 1)
        return flat;
    each = scaled(e, length, type->dim[sized].times * behind);
    outer = combine(e, HD_OP_DIV, flat, each);
    rest = combine(e, HD_OP_SUB, flat, combine(e, HD_OP_MUL, outer, each));
    index = behind == 1 ? rest : combine(e, HD_OP_DIV, rest, number(e, behind));
    index = scaled(e, index, (ahead - 1) * behind);
    index = combine(e, HD_OP_ADD, index, scaled(e, outer, behind));
    return combine(e, HD_OP_ADD, index, rest);
}

// With dimension `sized` in front; the text form 1 has no more than swaps.
static hd_buffer *move_front(const hd_expansion *e, hd_buffer *from, int sized)
{
    hd_type type = from->type;
    hd_op *op;
    hd_buffer *made;

    if (e->module->form > 1) {
        type = hd_type_moved(&type, sized, 0);
        op = hd_expand_op(e, HD_OP_PERMUTE, &type, &made);
        add_number(op, HD_KEY_ORDER, 0);
        op->key->nints = type.ndims;
        for (int d = 0; d < type.ndims; d++)
            op->key->ints[d] = d == 0 ? sized : d - (d <= sized);
        hd_expand_read(op, from);
        return made;
    }
    for (int d = sized; d > 0; d--) {
        type = hd_type_moved(&type, d, d - 1);
        op = hd_expand_op(e, HD_OP_TRANSPOSE, &type, &made);
        add_number(op, HD_KEY_DIM0, d - 1);
        add_number(op, HD_KEY_DIM1, d);
        hd_expand_read(op, from);
        from = made;
    }
    return from;
}

// The operand with dimension `sized` in front, and all behind it up to `past`
// merged with it: what is taken from.
static hd_buffer *make_table(const hd_expansion *e, hd_buffer *from, int sized,
                             int past)
{
    hd_type type = hd_type_unmarked(&from->type);
    hd_type flat = {.dtype = type.dtype, .ndims = 1};
    hd_buffer *made = from;
    hd_op *op;

    if (!hd_type_same_dims(&type, &from->type)) {
        op = hd_expand_op(e, HD_OP_SET, &type, &made);
        hd_expand_read(op, from);
        from = made;
    }
    if (sized > 0)
        from = move_front(e, from, sized);
    type = from->type;
    if (past == 1)
        return from;
    flat.dim[0] = type.dim[0];
    flat.dim[0].times = elements_of(type.dim, past);
    flat.dim[0].extent =
        flat.dim[0].extent / type.dim[0].times * flat.dim[0].times;
    for (int d = past; d < type.ndims; d++)
        flat.dim[flat.ndims++] = type.dim[d];
    op = hd_expand_op(e, HD_OP_RESHAPE, &flat, &made);
    hd_expand_read(op, from);
    return made;
}

// How many dimensions at the end both have alike, behind those of a size.
static int find_tail(const hd_type *to, const hd_type *from)
{
    int d = find_sized(to), k = find_sized(from), n = 0;

    while (to->ndims - n - 1 > d && from->ndims - n - 1 > k &&
           hd_dim_as_long(to->dim[to->ndims - n - 1],
                          from->dim[from->ndims - n - 1]))
        n++;
    return n;
}

// The statement becomes what makes its result of `last`.
static void end(const hd_expansion *e, hd_stmt *stmt, hd_opcode code,
                hd_buffer *last)
{
    hd_op *op = hd_stmt_op(e->module, code, -1, 1, 1, 0, stmt->op->loc)->op;

    op->view[0] = stmt->op->view[0];
    op->view[1] = hd_view_whole(last, op->loc);
    stmt->op = op;
}

bool hd_expand_reshape(const hd_expansion *e, hd_stmt *stmt)
{
    const hd_view *out = &stmt->op->view[0], *in = &stmt->op->view[1];
    hd_type to = out->buffer->type, from = in->buffer->type;
    uint32_t uncut = hd_module_uncut(e->module);
    int tail, sized;
    hd_buffer *length, *table, *index, *taken;
    hd_type made;
    hd_op *take;

    if (out->nindex > 0 || in->nindex > 0 || to.dtype != from.dtype ||
        out->buffer->by != NULL || in->buffer->by != NULL ||
        hd_type_elements(&to) != hd_type_elements(&from) ||
        !hd_reshape_fits(&to, &from) || hd_reshape_stays(&to, &from, uncut))
        return false;
    tail = find_tail(&to, &from);
    sized = find_sized(&from);
    if (from.ndims - tail > 1 && (uncut >> (from.dim[sized].size - 1) & 1) == 0)
        return false;
    length = hd_expand_length(e, from.dim[sized], HD_DTYPE_I32, 1);
    table = make_table(e, in->buffer, sized, from.ndims - tail);
    to = hd_type_unmarked(&to);
    to.dtype = HD_DTYPE_I32;
    to.ndims -= tail;
    from.ndims -= tail;
    index = moved_places(e, flat_places(e, &to, length), &from, sized, length);
    made = hd_type_unmarked(&out->buffer->type);
    take = hd_expand_op(e, HD_OP_TAKE, &made, &taken);
    taken->open = e->module->form > 1 ? HD_OPEN_PLACE | HD_OPEN_SHAPE : 0;
    hd_expand_read(take, table);
    hd_expand_read(take, index);
    add_number(take, HD_KEY_DIM, 0);
    end(e, stmt, HD_OP_SET, taken);
    return true;
}

// ------------------------------------------------------------------- concat

// What has one index of all dimensions but `dim`, and repeats.
static hd_type ones_beside(hd_type type, int dim)
{
    for (int d = 0; d < type.ndims; d++)
        if (d != dim)
            type.dim[d] = hd_dim_whole(1);
    return type;
}

// `part` from `start` on, `before` ahead of that.
static hd_buffer *pick(const hd_expansion *e, hd_buffer *place,
                       hd_buffer *start, hd_buffer *part, hd_buffer *before)
{
    hd_type mask = place->type;
    hd_buffer *there, *made;
    hd_op *op;

    mask.dtype = HD_DTYPE_U8;
    op = hd_expand_op(e, HD_OP_GE, &mask, &there);
    hd_expand_read(op, place);
    hd_expand_read(op, start);
    op = hd_expand_op(e, HD_OP_SELECT, &part->type, &made);
    made->open = part->open;
    hd_expand_read(op, there);
    hd_expand_read(op, part);
    hd_expand_read(op, before);
    return made;
}

void hd_expand_concat(const hd_expansion *e, hd_stmt *stmt, int dim)
{
    const hd_op *all = stmt->op;
    hd_type made = hd_type_unmarked(&all->view[0].buffer->type);
    hd_type index = made, beside;
    hd_buffer *length, *place, *column, *joined = NULL, *part;
    int64_t low = 0;
    hd_op *op;

    index.dtype = HD_DTYPE_I32;
    beside = ones_beside(index, dim);
    index.ndims = dim + 1;
    length = hd_expand_length(e, made.dim[dim], HD_DTYPE_I32, 1);
    place = places(e, &index, dim);
    column = places(e, &beside, dim);
    for (int i = 1; i < all->nviews; i++) {
        hd_buffer *start = low > 0 ? scaled(e, length, low) : NULL;
        hd_buffer *at =
            start == NULL ? place : combine(e, HD_OP_SUB, place, start);

        op = hd_expand_op(e, HD_OP_TAKE, &made, &part);
        part->open = HD_OPEN_PLACE | HD_OPEN_SHAPE;
        op->view[op->nviews++] = all->view[i];
        op->ninputs++;
        hd_expand_read(op, at);
        add_number(op, HD_KEY_DIM, dim);
        low += hd_view_type(&all->view[i]).dim[dim].times;
        if (joined != NULL)
            part = pick(e, column, start, part, joined);
        joined = part;
    }
    end(e, stmt, HD_OP_COPY, joined);
}
