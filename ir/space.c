// Views lie as the op's signature says; those of a transfer have no space.
#include "ir/space.h"

#include <assert.h>
#include <string.h>

#include "ir/signature.h"

static hd_space space_over(int nparallel)
{
    hd_space space = {
        .ndims = nparallel, .nparallel = nparallel, .counted = -1};

    assert(nparallel <= HD_MAX_DIMS);
    memset(space.dim, HD_REPEATED, sizeof space.dim);
    for (int d = 0; d < nparallel; d++)
        space.dim[0][d] = (int8_t)d;
    return space;
}

// A reshape has no signature: a step of one has two views of one shape.
static void lay_last(hd_space *space, int view, int ndims)
{
    for (int d = 0; d < HD_MAX_DIMS; d++) {
        int own = d - (space->nparallel - ndims);

        if (own >= 0 && own < ndims)
            space->dim[view][d] = (int8_t)own;
    }
}

// As the op's signature has it. What is done of each element of a batch lies
// along that alone, counts of sequences too; counts of groups along nothing.
static void lay_signature(const hd_op *op, const hd_shape *view,
                          hd_space *space)
{
    bool batched = hd_op_is_batched(op);
    int groups = hd_op_key_view(op, HD_KEY_GROUPS);
    int ndims[HD_MAX_VIEWS];
    const hd_bound *bound;
    hd_bound room;

    for (int i = 0; i < op->nviews; i++)
        ndims[i] = view[i].ndims;
    bound = hd_bound_of(op, ndims, &room);
    if (!batched)
        space->ndims = bound->nspace;
    for (int i = 1; i < bound->nviews; i++)
        for (int d = 0; d < bound->ndims[i]; d++) {
            int line = bound->along[i][d];

            if (line != HD_ALONE && line < space->ndims &&
                !((batched || i == groups) &&
                  hd_letter_text(bound->letter[i][d]) != NULL))
                space->dim[i][line] = (int8_t)d;
        }
}

// Whether view `i` lies along the result's last dimensions, whatever they are.
// Of groups a bias lies along the columns alone.
static bool lies_last(const hd_op *op, int i)
{
    for (int k = 0; k < op->nkeys; k++)
        if (op->key[k].view == i) {
            hd_value_kind value = hd_key_info_get(op->key[k].code)->value;

            return value != HD_VALUE_FACTOR && value != HD_VALUE_LEFT &&
                   value != HD_VALUE_RIGHT && value != HD_VALUE_COUNTS &&
                   value != HD_VALUE_BY &&
                   (value != HD_VALUE_READ ||
                    hd_op_key(op, HD_KEY_GROUPS) == NULL);
        }
    return hd_op_is_elementwise(op);
}

static int kept_dims(const hd_op *op, int i)
{
    return hd_view_type(&op->view[i]).ndims;
}

// Whether batches of a product pair from the last dimension on: where each
// matrix of one operand is for all rows of the other, the result has more.
static bool pairs_last(const hd_op *op)
{
    int a, b;

    if (hd_op_family(op) != HD_FAMILY_PRODUCT || op->front ||
        hd_op_key(op, HD_KEY_GROUPS) != NULL)
        return false;
    a = kept_dims(op, 1);
    b = kept_dims(op, 2);
    return kept_dims(op, 0) == (a > b ? a : b);
}

// Of an operand with a batch of its own: `own` is as if what follows the batch
// were as in the result.
static int beside_batch(const hd_op *op, int i, int own)
{
    int inner = hd_op_inner(op, i);

    own += hd_op_inner(op, 0) - inner;
    return own >= 0 && own < op->view[i].buffer->type.ndims - inner ? own : -1;
}

int hd_space_beside(const hd_op *op, int i, int d)
{
    int ndims = op->view[i].buffer->type.ndims, own = ndims - 1;
    bool matrix =
        pairs_last(op) && (i <= op->ninputs || hd_op_has_scales(op, i));

    for (int k = d + 1; k < op->view[0].buffer->type.ndims; k++)
        own -= !hd_view_picks(&op->view[0], k);
    if (hd_op_family(op) == HD_FAMILY_ATTEND && i < op->noutputs + op->ninputs)
        return beside_batch(op, i, own);
    if (matrix ? own >= ndims - 2
               : !lies_last(op, i) && !hd_op_is_elementwise(op) &&
                     hd_op_family(op) != HD_FAMILY_CALL)
        return -1;
    return own >= 0 ? own : -1;
}

int hd_space_along(const hd_space *space, int view, int own)
{
    for (int d = 0; d < space->ndims; d++)
        if (space->dim[view][d] == own)
            return d;
    return -1;
}

// The first dimensions of view `of`, which has the counts, are theirs. Returns
// the dimension that is counted, where it lies along one.
static int lay_counts(hd_space *space, const hd_op *op, int counts, int of)
{
    const hd_view *view;

    if (counts < 0 || of < 0)
        return -1;
    view = &op->view[of];
    for (int own = 0;
         own < hd_view_kept_ahead(view, view->buffer->by->type.ndims); own++) {
        int d = hd_space_along(space, of, own);

        if (d >= 0)
            space->dim[counts][d] = (int8_t)own;
    }
    return hd_space_along(space, of,
                          hd_view_kept_ahead(view, view->buffer->counted));
}

void hd_space_map(const hd_op *op, const hd_shape *view, hd_space *out)
{
    assert(hd_op_is(op, HD_UNIT_COMPUTE));
    *out = space_over(view[0].ndims);
    if (op->code == HD_OP_RESHAPE)
        lay_last(out, 1, view[1].ndims);
    else
        lay_signature(op, view, out);
    out->counted = lay_counts(out, op, hd_op_key_view(op, HD_KEY_COUNTS),
                              hd_op_counted(op));
    lay_counts(out, op, hd_op_key_view(op, HD_KEY_COUNTS_OF_KEYS),
               hd_op_counted_keys(op));
}

// A view repeats, too, where it has one index and the space has more; where it
// has several, and others than the space, these are in a grain.
static void lay_extents(const hd_op *op, const hd_shape *view, int i,
                        hd_space *out)
{
    for (int d = 0; d < out->ndims; d++) {
        int own = out->dim[i][d];

        if (own < 0 || view[i].extent[own] == out->extent[d])
            continue;
        if (hd_op_has_scales(op, i) && view[i].extent[own] != 1)
            out->grained[i] |= (uint16_t)(1u << d);
        else if (d < out->nparallel || hd_op_has_scales(op, i))
            out->dim[i][d] = HD_REPEATED;
    }
}

void hd_space_of(const hd_op *op, const hd_shape *view, hd_space *out)
{
    hd_space_map(op, view, out);
    for (int d = 0; d < out->ndims; d++)
        out->extent[d] = d < out->nparallel ? view[0].extent[d]
                                            : view[1].extent[out->dim[1][d]];
    for (int i = 1; i < op->nviews; i++)
        lay_extents(op, view, i, out);
}

static void shape_step(const hd_step *step, hd_shape *view)
{
    for (int i = 0; i < step->op->nviews; i++) {
        view[i].ndims = step->span[i].ndims;
        for (int d = 0; d < view[i].ndims; d++)
            view[i].extent[d] = step->span[i].extent[d];
    }
}

void hd_space_of_step(const hd_step *step, hd_space *out)
{
    hd_shape view[HD_MAX_VIEWS];

    shape_step(step, view);
    hd_space_of(step->op, view, out);
}

bool hd_space_leads_groups(const hd_op *op, const hd_shape *view, int i)
{
    int counts = hd_op_key_view(op, HD_KEY_GROUPS), ndims[HD_MAX_VIEWS];
    const hd_bound *bound;
    hd_bound room;

    if (counts < 0 || view[i].ndims == 0)
        return false;
    for (int k = 0; k < op->nviews; k++)
        ndims[k] = view[k].ndims;
    bound = hd_bound_of(op, ndims, &room);
    return bound->along[i][0] == bound->along[counts][0] &&
           view[i].extent[0] == view[counts].extent[0];
}

int64_t hd_space_to_group(const hd_step *step, hd_key_code code)
{
    int i = hd_op_key_view(step->op, code);
    hd_shape view[HD_MAX_VIEWS];

    if (i < 0)
        return 0;
    shape_step(step, view);
    return hd_space_leads_groups(step->op, view, i) ? step->span[i].stride[0]
                                                    : 0;
}

// Of the dimensions that the op's views keep.
static void shape_op(const hd_op *op, hd_shape *view)
{
    for (int i = 0; i < op->nviews; i++) {
        hd_type type = hd_view_type(&op->view[i]);

        view[i].ndims = type.ndims;
        for (int d = 0; d < type.ndims; d++)
            view[i].extent[d] = type.dim[d].extent;
    }
}

void hd_space_of_op(const hd_op *op, hd_space *out)
{
    hd_shape view[HD_MAX_VIEWS];

    shape_op(op, view);
    hd_space_of(op, view, out);
}

void hd_space_map_op(const hd_op *op, hd_space *out)
{
    hd_shape view[HD_MAX_VIEWS];

    shape_op(op, view);
    hd_space_map(op, view, out);
}

void hd_space_strides(const hd_space *space, int view, const int64_t *stride,
                      int64_t out[HD_SPACE_DIMS])
{
    for (int d = 0; d < space->ndims; d++) {
        int own = space->dim[view][d];

        out[d] = own == HD_REPEATED || hd_space_is_grained(space, view, d)
                     ? 0
                     : stride[own];
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
