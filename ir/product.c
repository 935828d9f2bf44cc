// The space says what lies along what; here its dimensions become matrices.
#include "ir/product.h"

#include <assert.h>

#include "base/dtype.h"

// What one side of a matrix lies along.
enum { ROWS, COLUMNS, REDUCED, SIDES };

static const int side_of[HD_PRODUCT_PARTS][2] = {
    [HD_PRODUCT_C] = {ROWS, COLUMNS},    [HD_PRODUCT_A] = {ROWS, REDUCED},
    [HD_PRODUCT_B] = {REDUCED, COLUMNS}, [HD_PRODUCT_BIAS] = {ROWS, COLUMNS},
    [HD_PRODUCT_AUX] = {ROWS, COLUMNS},
};

static int64_t count(const hd_space *space, int from, int to)
{
    int64_t n = 1;

    for (int d = from; d < to; d++)
        n *= space->extent[d];
    return n;
}

static hd_matrix matrix_of(const hd_product *p, const hd_step *step, int part,
                           int64_t rows)
{
    const int64_t extent[SIDES] = {rows, p->n, p->k};
    bool turned =
        (part == HD_PRODUCT_A && p->ta) || (part == HD_PRODUCT_B && p->tb);
    int down = side_of[part][turned], across = side_of[part][!turned];
    int64_t along[HD_SPACE_DIMS], stride[SIDES];
    int last = p->space.nparallel - 1, view = p->part[part].view;

    hd_space_strides(&p->space, view, step->span[view].stride, along);
    stride[ROWS] = last > p->outer ? along[last - 1] : extent[across];
    stride[COLUMNS] = along[last];
    stride[REDUCED] = along[last + 1];
    return (hd_matrix){extent[down], extent[across], stride[down],
                       stride[across]};
}

static void add_parts(hd_product *p, const hd_step *step, int even)
{
    const int view[HD_PRODUCT_PARTS] = {0, 1, 2,
                                        hd_op_key_view(step->op, HD_KEY_BIAS),
                                        hd_op_key_view(step->op, HD_KEY_AUX)};
    int last = p->space.nparallel - 1, nbatch;

    if (even > 0 && p->space.counted > p->outer && p->space.counted < last)
        p->outer = p->space.counted;
    nbatch = p->outer;
    for (int i = 0; i < HD_PRODUCT_PARTS; i++) {
        p->part[i].view = view[i];
        if (view[i] < 0)
            continue;
        p->part[i].span = hd_space_span(&p->space, step, view[i]);
        if (i < even && last - 1 > nbatch &&
            !hd_span_is_even(&p->part[i].span, nbatch, last - 1))
            p->outer = last - 1;
    }
    if (even > 0 && last - 1 > nbatch &&
        hd_op_key(step->op, HD_KEY_SCALE_A) != NULL)
        p->outer = last - 1;
    for (int i = 0; i < HD_PRODUCT_PARTS; i++)
        if (view[i] >= 0)
            p->part[i].matrix =
                matrix_of(p, step, i, count(&p->space, p->outer, last));
}

// Of views that repeat, or lie in a grain, a stride says so much that `line` is
// a dimension of the space.
static int64_t stride_along(const hd_product *p, const hd_step *step, int view,
                            int d)
{
    int own = d >= 0 ? p->space.dim[view][d] : HD_REPEATED;

    return own == HD_REPEATED ? 0 : step->span[view].stride[own];
}

static hd_scales scales_of(const hd_product *p, const hd_step *step,
                           hd_key_code code, int line)
{
    int view = hd_op_key_view(step->op, code), deep = p->space.nparallel;
    int64_t grain = hd_op_grain(step->op);

    if (view < 0)
        return (hd_scales){.view = -1};
    return (hd_scales){
        .view = view,
        .span = hd_space_span(&p->space, step, view),
        .lines =
            line >= 0 && hd_space_is_grained(&p->space, view, line) ? grain : 1,
        .deep = hd_space_is_grained(&p->space, view, deep) ? grain : 1,
        .line_stride = stride_along(p, step, view, line),
        .deep_stride = stride_along(p, step, view, deep)};
}

// A piece of one row has no dimension of these.
static void add_scales(hd_product *p, const hd_step *step, int nbatch)
{
    int last = p->space.nparallel - 1;

    p->scales[0] = scales_of(p, step, HD_KEY_SCALE_A,
                             last > nbatch ? last - 1 : HD_REPEATED);
    p->scales[1] = scales_of(p, step, HD_KEY_SCALE_B, last);
}

// Each row is multiplied once, whichever group it is of.
static void add_groups(hd_product *p, const hd_step *step)
{
    int matrices = p->ta ? HD_PRODUCT_C : HD_PRODUCT_B;

    if (p->counts < 0)
        return;
    p->rows = p->ta ? p->k : p->m;
    p->groups = step->span[p->counts].extent[0];
    p->to_group = step->span[matrices].stride[0];
    p->to_bias = hd_space_to_group(step, HD_KEY_BIAS);
    p->scales[1].to_group = hd_space_to_group(step, HD_KEY_SCALE_B);
    p->batch = 1;
}

// How many dimensions of the result are ahead of those of its matrices: up to
// the last one that the second operand has, too.
static int batch_dims(const hd_space *space, bool matrices)
{
    int n = space->nparallel - (matrices ? 2 : 1);

    while (!matrices && n > 0 && space->dim[2][n - 1] == HD_REPEATED)
        n--;
    return n;
}

hd_product hd_product_of(const hd_step *step, int even)
{
    const hd_op *op = step->op;
    const hd_key *act = hd_op_key(op, HD_KEY_ACT);
    int counts = hd_op_key_view(op, HD_KEY_GROUPS);
    hd_dtype in = step->span[1].buffer->type.dtype;
    bool integers = hd_dtype_is_integer(in);
    hd_product p = {.ta = hd_op_key(op, HD_KEY_TA) != NULL,
                    .tb = hd_op_key(op, HD_KEY_TB) != NULL,
                    .accumulate = hd_op_key(op, HD_KEY_ACCUMULATE) != NULL,
                    .keep = hd_op_key(op, HD_KEY_KEEP) != NULL,
                    .counts = counts,
                    .wide = integers || in == HD_DTYPE_F64,
                    .integers = integers,
                    .scale = hd_op_key(op, HD_KEY_SCALE),
                    .act = act != NULL ? act->act : HD_ACT_NONE};
    int last;

    assert(hd_op_family(op) == HD_FAMILY_PRODUCT);
    hd_space_of_step(step, &p.space);
    last = p.space.nparallel - 1;
    p.outer = batch_dims(&p.space, p.ta);
    assert(step->span[2].extent[p.space.dim[2][last + 1]] ==
           p.space.extent[last + 1]);
    p.batch = count(&p.space, 0, p.outer);
    p.m = count(&p.space, p.outer, last);
    p.n = p.space.extent[last];
    p.k = p.space.extent[last + 1];
    add_scales(&p, step, p.outer);
    add_parts(&p, step, even);
    p.pieces = count(&p.space, 0, p.outer);
    add_groups(&p, step);
    return p;
}

int64_t hd_product_offset(const hd_product *product, int part, int64_t i)
{
    const hd_span *span = &product->part[part].span;

    return span->offset + hd_span_offset(span, 0, product->outer, i);
}

int64_t hd_scales_offset(const hd_product *product, const hd_scales *scales,
                         int64_t i)
{
    return scales->span.offset +
           hd_span_offset(&scales->span, 0, product->outer, i);
}
