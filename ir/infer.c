// Shapes come from the op's signature: letters of a result are as long as where
// else they stand. What has no row there, moves and `reshape`, makes what it is
// given, or what the text says.
#include "ir/infer.h"

bool hd_op_is_shapeless(const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer->shapeless)
            return true;
    return false;
}

// ------------------------------------------------------------------ dtypes

static hd_dtype dtype_at(const hd_op *op, int i)
{
    return op->view[i].buffer->type.dtype;
}

// The first one that holds the numbers of all; one may have forgotten them.
static hd_dtype widest(const hd_op *op)
{
    hd_dtype dtype =
        op->ninputs > 0 ? dtype_at(op, op->noutputs) : HD_DTYPE_F32;

    for (int i = op->noutputs; i < op->noutputs + op->ninputs; i++)
        if (hd_dtype_holds(dtype_at(op, i), dtype))
            dtype = dtype_at(op, i);
    return dtype;
}

// Of results those that the op's numbers are of, of what is picked its own.
static hd_dtype made_dtype(const hd_op *op, int i)
{
    hd_dtype first =
        op->ninputs > 0 ? dtype_at(op, op->noutputs) : HD_DTYPE_F32;

    switch (hd_op_family(op)) {
    case HD_FAMILY_MAP:
        if (hd_op_info_get(op->code)->numbers == HD_NUMBERS_TEST)
            return HD_DTYPE_U8;
        return hd_op_info_get(op->code)->numbers == HD_NUMBERS_PICK &&
                       op->ninputs > 1
                   ? dtype_at(op, op->noutputs + 1)
                   : first;
    case HD_FAMILY_FOLD:
        return widest(op);
    case HD_FAMILY_PRODUCT: // nobody keeps what products make in 8 bits
        return hd_dtype_is_f8(first)  ? HD_DTYPE_BF16
               : first == HD_DTYPE_I8 ? HD_DTYPE_I32
                                      : first;
    case HD_FAMILY_PICK:
        return hd_op_pick(op) == HD_PICK_ROUTE || i > 0 ? HD_DTYPE_I32 : first;
    case HD_FAMILY_IOTA:
        return HD_DTYPE_I32;
    case HD_FAMILY_ATTEND:
        if (hd_op_inner(op, i) == 2) // the logarithms of rows
            return first == HD_DTYPE_F64 ? HD_DTYPE_F64 : HD_DTYPE_F32;
        return first;
    case HD_FAMILY_COPY:
    case HD_FAMILY_TRANSPOSE:
    case HD_FAMILY_TAKE:
    case HD_FAMILY_CALL:
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    return first;
}

// ------------------------------------------------------------------ shapes

// How many dimensions result `i` has where its signature leaves it open: what
// repeats may lack some, and one that is folded may stay.
static int made_dims(const hd_op *op, const hd_said *said, const hd_type *type,
                     int i)
{
    int most = 0;

    switch (hd_op_family(op)) {
    case HD_FAMILY_FOLD:
        if (hd_op_key(op, HD_KEY_DIM) != NULL)
            return type[1].ndims - (type[1].ndims > 0 && !said->keep);
        break;
    case HD_FAMILY_ATTEND:
        for (int k = op->noutputs; k < op->noutputs + op->ninputs; k++)
            if (hd_op_batch(op, k, type[k].ndims) > most)
                most = hd_op_batch(op, k, type[k].ndims);
        return most + hd_op_inner(op, i);
    case HD_FAMILY_MAP:
        break;
    case HD_FAMILY_PRODUCT:
    case HD_FAMILY_PICK:
    case HD_FAMILY_COPY:
    case HD_FAMILY_TRANSPOSE:
    case HD_FAMILY_TAKE:
    case HD_FAMILY_IOTA:
    case HD_FAMILY_CALL:
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        return HD_INFERRED;
    }
    for (int k = op->noutputs; k < op->noutputs + op->ninputs; k++)
        if (type[k].ndims > most)
            most = type[k].ndims;
    return most;
}

bool hd_infer_bind(const hd_op *op, const hd_said *said, hd_type *type,
                   hd_bound *out, hd_misfit *why)
{
    int ndims[HD_MAX_VIEWS];

    for (int i = 0; i < op->nviews; i++) {
        type[i] = hd_view_type(&op->view[i]);
        type[i] = hd_type_unmarked(&type[i]);
        ndims[i] = type[i].ndims;
    }
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer->shapeless)
            ndims[i] =
                i < op->noutputs ? made_dims(op, said, type, i) : HD_INFERRED;
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer->shapeless)
            type[i].ndims = 0;
    return hd_bind_operands(op, ndims, type, out, why);
}

static bool made_shape(const hd_op *op, int i, const hd_said *said,
                       hd_type *out)
{
    hd_type type[HD_MAX_VIEWS];
    hd_bound bound;

    if (hd_op_says_shape(op)) { // one element, of a `fill` without
        *out = said->shape;
        return said->shaped || hd_op_family(op) == HD_FAMILY_MAP;
    }
    if (op->code == HD_OP_SET && op->ninputs == 1) {
        *out = hd_view_type(&op->view[1]);
        return true;
    }
    // What data picks is as long as another result is said to be.
    return hd_infer_bind(op, said, type, &bound, NULL) &&
           hd_bound_makes(&bound, type, i,
                          hd_op_family(op) == HD_FAMILY_PICK ? 0 : op->noutputs,
                          out);
}

// The marks that the declaration has, on dimensions as long as these.
static bool take_marks(hd_type *made, const hd_type *declared)
{
    if (made->ndims != declared->ndims)
        return false;
    for (int d = 0; d < made->ndims; d++) {
        int64_t blocks = declared->dim[d].blocks;

        made->dim[d].mark = declared->dim[d].mark;
        made->dim[d] = hd_dim_cut(made->dim[d], blocks);
    }
    return true;
}

// ------------------------------------------------------------------ counts

// Whether dimensions that are as long as each other are one: of rows that are
// contracted, or folded, another one may come to stand in their place. Where a
// reshape's result lies nothing says of one index that is over ranks.
static bool lie_alike(const hd_op *op, int i, int d)
{
    int ndims[HD_MAX_VIEWS], n = hd_op_said_views(op);
    hd_dim own = op->view[i].buffer->type.dim[d];
    hd_bound bound;

    for (int k = 0; k < n; k++)
        ndims[k] = hd_view_type(&op->view[k]).ndims;
    if (op->code == HD_OP_RESHAPE)
        return own.extent != 1 || !hd_dim_is_sharded(own);
    return op->noutputs > 1 || (hd_bind(op, ndims, &bound, NULL) &&
                                bound.along[i][d] == bound.along[0][d]);
}

// Whether another operand of what is done element by element has others.
static bool has_several(const hd_op *op, const hd_buffer *by)
{
    bool several = false;

    for (int i = op->noutputs; i < op->noutputs + op->ninputs; i++)
        several |=
            op->view[i].buffer->by != NULL && op->view[i].buffer->by != by;
    return several && hd_op_is_elementwise(op);
}

// Counts of an operand are those of the result, which has all of the dimensions
// that lead to them as the operand has them.
static void infer_counts(const hd_op *op, hd_buffer *made)
{
    int i = op->noutputs, end = i + op->ninputs;
    const hd_buffer *from;

    while (i < end &&
           (op->view[i].buffer->by == NULL || op->view[i].nindex > 0))
        i++;
    if (i == end || made->by != NULL || has_several(op, op->view[i].buffer->by))
        return;
    from = op->view[i].buffer;
    for (int d = 0; d <= from->counted; d++)
        if (d >= made->type.ndims ||
            !hd_dim_as_long(made->type.dim[d], from->type.dim[d]) ||
            !lie_alike(op, i, d))
            return;
    made->by = from->by;
    made->counted = from->counted;
}

static void infer_result(hd_op *op, int i, const hd_said *said)
{
    hd_buffer *x = op->view[i].buffer;
    hd_type made = {0};

    if (op->view[i].nindex > 0 || !made_shape(op, i, said, &made))
        return;
    made = hd_type_unmarked(&made);
    if ((x->open & HD_OPEN_PLACE) == 0 && !take_marks(&made, &x->type))
        return;
    made.dtype =
        (x->open & HD_OPEN_DTYPE) != 0 ? made_dtype(op, i) : x->type.dtype;
    x->type = made;
    x->shapeless = false;
    infer_counts(op, x);
}

void hd_infer(hd_op *op, const hd_said *said)
{
    bool knows = true;

    for (int i = 0; i < op->nviews; i++)
        knows &= hd_op_writes(op, i) || !op->view[i].buffer->shapeless;
    for (int i = 0; i < op->nviews && knows; i++)
        if (hd_op_writes(op, i) && op->view[i].buffer->shapeless)
            infer_result(op, i, said);
}
