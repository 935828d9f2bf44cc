// Each family maps its views in its own way; keys' views lie along the result,
// but for a factor, which has one element, whatever its dimensions.
#include "ir/space.h"

#include <assert.h>
#include <string.h>

// Dimension `own` of a view lies along `d`, unless it has one index there and
// the space has more.
static void lay(hd_space *space, const hd_shape *shape, int view, int d,
                int own)
{
    bool lies = own >= 0 && own < shape->ndims &&
                shape->extent[own] == space->extent[d];

    space->dim[view][d] = (int8_t)(lies ? own : HD_REPEATED);
}

// The view's last dimensions lie along the last ones of the result.
static void lay_last(hd_space *space, const hd_shape *shape, int view)
{
    for (int d = 0; d < space->nparallel; d++)
        lay(space, shape, view, d, d - (space->nparallel - shape->ndims));
}

static void add_reduced(hd_space *space, int64_t extent)
{
    space->extent[space->ndims++] = extent;
}

static void lay_transposed(hd_space *space, const hd_shape *in,
                           const int8_t *dim)
{
    for (int d = 0; d < space->nparallel; d++)
        lay(space, in, 1, d, d == dim[0] ? dim[1] : d == dim[1] ? dim[0] : d);
}

// The result has the reduced dimension with one index, or lacks it.
static void lay_reduced(hd_space *space, const hd_shape *in, int dim)
{
    bool keeps = space->nparallel == in->ndims;

    add_reduced(space, in->extent[dim]);
    for (int d = 0; d < space->nparallel; d++)
        space->dim[1][d] = (int8_t)(keeps     ? (d == dim ? HD_REPEATED : d)
                                    : d < dim ? d
                                              : d + 1);
    space->dim[1][space->nparallel] = (int8_t)dim;
}

// With b of nbatch leading dimensions
//
//                 batch            rows       columns   reduced
//     a   paired, else none     its own          none        K
//     b             its own        none       its own        K
static void lay_product(hd_space *space, const hd_op *op, const hd_shape *view)
{
    const hd_shape *a = &view[1], *b = &view[2];
    bool ta = hd_op_key(op, HD_KEY_TA) != NULL;
    bool tb = hd_op_key(op, HD_KEY_TB) != NULL;
    int n = space->nparallel, lead = n - a->ndims;

    add_reduced(space, a->extent[a->ndims - (ta ? 2 : 1)]);
    for (int d = 0; d + 1 < n; d++) {
        lay(space, a, 1, d, ta && d == n - 2 ? a->ndims - 1 : d - lead);
        lay(space, b, 2, d, d < b->ndims - 2 ? d : -1);
    }
    space->dim[1][n - 1] = HD_REPEATED;
    space->dim[2][n - 1] = (int8_t)(b->ndims - (tb ? 2 : 1));
    space->dim[1][n] = (int8_t)(a->ndims - (ta ? 2 : 1));
    space->dim[2][n] = (int8_t)(b->ndims - (tb ? 1 : 2));
}

bool hd_space_lies_last(const hd_op *op, int i)
{
    for (int k = 0; k < op->nkeys; k++)
        if (op->key[k].view == i)
            return hd_key_info_get(op->key[k].code)->value != HD_VALUE_FACTOR;
    return hd_op_is_elementwise(op);
}

static void lay_operands(hd_space *space, const hd_op *op, const hd_shape *view,
                         const int8_t *dim)
{
    switch (hd_op_family(op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_MAP:
        return;
    case HD_FAMILY_FOLD:
        if (dim[0] >= 0)
            lay_reduced(space, &view[1], dim[0]);
        return;
    case HD_FAMILY_TRANSPOSE:
        lay_transposed(space, &view[1], dim);
        return;
    case HD_FAMILY_PRODUCT:
        lay_product(space, op, view);
        return;
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        assert(false && "an op of unit COMPUTE");
    }
}

void hd_space_of(const hd_op *op, const hd_shape *view, const int8_t *dim,
                 hd_space *out)
{
    *out = (hd_space){.ndims = view[0].ndims, .nparallel = view[0].ndims};
    for (int i = 0; i < HD_MAX_VIEWS; i++)
        for (int d = 0; d < HD_SPACE_DIMS; d++)
            out->dim[i][d] = HD_REPEATED;
    assert(out->ndims <= HD_MAX_DIMS);
    for (int d = 0; d < out->ndims && d < HD_MAX_DIMS; d++) {
        out->extent[d] = view[0].extent[d];
        out->dim[0][d] = (int8_t)d;
    }
    for (int i = 1; i < op->nviews; i++)
        if (hd_space_lies_last(op, i))
            lay_last(out, &view[i], i);
    lay_operands(out, op, view, dim);
}

void hd_space_of_step(const hd_step *step, hd_space *out)
{
    hd_shape view[HD_MAX_VIEWS];

    for (int i = 0; i < step->nspans; i++) {
        view[i].ndims = step->span[i].ndims;
        for (int d = 0; d < view[i].ndims; d++)
            view[i].extent[d] = step->span[i].extent[d];
    }
    hd_space_of(step->op, view, step->dim, out);
}

static int8_t dim_value(const hd_module *module, const hd_op *op,
                        hd_key_code code, int fallback)
{
    const hd_key *key = hd_op_key(op, code);

    return (int8_t)(key == NULL ? fallback : hd_expr_value(module, key->expr));
}

void hd_space_dims(const hd_module *module, const hd_op *op, int ndims,
                   int8_t dim[2])
{
    dim[0] = dim_value(module, op, HD_KEY_DIM, -1);
    dim[1] = -1;
    if (hd_op_family(op) != HD_FAMILY_TRANSPOSE)
        return;
    dim[0] = dim_value(module, op, HD_KEY_DIM0, ndims - 2);
    dim[1] = dim_value(module, op, HD_KEY_DIM1, ndims - 1);
}

void hd_space_of_op(const hd_module *module, const hd_op *op, hd_space *out)
{
    hd_shape view[HD_MAX_VIEWS];
    int8_t dim[2];

    for (int i = 0; i < op->nviews; i++) {
        hd_type type = hd_view_type(&op->view[i]);

        view[i].ndims = type.ndims;
        for (int d = 0; d < type.ndims; d++)
            view[i].extent[d] = type.dim[d].extent;
    }
    hd_space_dims(module, op, op->ninputs > 0 ? view[op->noutputs].ndims : 0,
                  dim);
    hd_space_of(op, view, dim, out);
}

void hd_space_strides(const hd_space *space, int view, const int64_t *stride,
                      int64_t out[HD_SPACE_DIMS])
{
    for (int d = 0; d < space->ndims; d++) {
        int own = space->dim[view][d];

        out[d] = own == HD_REPEATED ? 0 : stride[own];
    }
}

hd_span hd_space_span(const hd_space *space, const hd_step *step, int view)
{
    hd_span span = step->span[view];
    int64_t stride[HD_SPACE_DIMS];

    hd_space_strides(space, view, span.stride, stride);
    span.ndims = space->nparallel;
    memcpy(span.extent, space->extent, sizeof *stride * (size_t)span.ndims);
    memcpy(span.stride, stride, sizeof *stride * (size_t)span.ndims);
    return span;
}
