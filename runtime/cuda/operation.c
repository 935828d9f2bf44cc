// The graph of attention, one line an operation: softmax(scale q k^T) v by its
// definition, of which cuDNN makes one kernel that never has all scores. Scores
// are f32, weights are rounded to the operands' dtype ahead of the second
// product, and so is the result: one that is declared f32 comes out wrong.
#include "runtime/cuda/operation.h"

#include <assert.h>
#include <string.h>

enum { DIMS = 4, ALIGNMENT = 16 };

// A tensor of the graph: with its extents, of which others follow.
typedef struct tensor {
    hd_dnn_desc desc;
    int64_t dim[DIMS];
} tensor;

// -------------------------------------------------------- descriptors

static void note(hd_cuda_operation *o, int status, const char *call)
{
    if (status != HD_DNN_SUCCESS && o->status == HD_DNN_SUCCESS) {
        o->status = status;
        o->call = call;
    }
}

hd_dnn_desc hd_cuda_operation_make(hd_cuda_operation *o, int kind)
{
    hd_dnn_desc desc = NULL;

    if (o->status != HD_DNN_SUCCESS)
        return NULL;
    note(o, o->dnn->desc_create(kind, &desc), "desc_create");
    if (o->status != HD_DNN_SUCCESS)
        return NULL;
    assert(o->ndescs < (int)(sizeof o->desc / sizeof *o->desc));
    o->desc[o->ndescs++] = desc;
    return desc;
}

void hd_cuda_operation_set(hd_cuda_operation *o, hd_dnn_desc desc,
                           int attribute, int type, int64_t n,
                           const void *value)
{
    if (o->status == HD_DNN_SUCCESS)
        note(o, o->dnn->attribute_set(desc, attribute, type, n, value),
             "attribute_set");
}

void hd_cuda_operation_finish(hd_cuda_operation *o, hd_dnn_desc desc)
{
    if (o->status == HD_DNN_SUCCESS)
        note(o, o->dnn->finalize(desc), "finalize");
}

// Those that were made last go first: they name others.
void hd_cuda_operation_free(hd_cuda_operation *o)
{
    while (o->ndescs > 0)
        o->dnn->desc_destroy(o->desc[--o->ndescs]);
}

static void set_desc(hd_cuda_operation *o, hd_dnn_desc desc, int attribute,
                     hd_dnn_desc value)
{
    hd_cuda_operation_set(o, desc, attribute, HD_DNN_TYPE_DESC, 1, &value);
}

static void add_op(hd_cuda_operation *o, hd_dnn_desc op)
{
    hd_cuda_operation_finish(o, op);
    assert(o->nops < (int)(sizeof o->op / sizeof *o->op));
    o->op[o->nops++] = op;
}

// -------------------------------------------------------------- tensors

static tensor add_tensor(hd_cuda_operation *o, int type,
                         const int64_t dim[DIMS], const int64_t stride[DIMS],
                         int64_t uid, bool by_value)
{
    const int64_t alignment = ALIGNMENT;
    bool real = uid != HD_CUDA_UID_VIRTUAL;
    tensor t = {.desc = hd_cuda_operation_make(o, HD_DNN_TENSOR)};

    memcpy(t.dim, dim, sizeof t.dim);
    if (!real)
        uid += o->uid++;
    hd_cuda_operation_set(o, t.desc, HD_DNN_TENSOR_TYPE, HD_DNN_TYPE_DATA_TYPE,
                          1, &type);
    hd_cuda_operation_set(o, t.desc, HD_DNN_TENSOR_DIMS, HD_DNN_TYPE_INT64,
                          DIMS, dim);
    hd_cuda_operation_set(o, t.desc, HD_DNN_TENSOR_STRIDES, HD_DNN_TYPE_INT64,
                          DIMS, stride);
    hd_cuda_operation_set(o, t.desc, HD_DNN_TENSOR_UID, HD_DNN_TYPE_INT64, 1,
                          &uid);
    hd_cuda_operation_set(o, t.desc, HD_DNN_TENSOR_ALIGNMENT, HD_DNN_TYPE_INT64,
                          1, &alignment);
    hd_cuda_operation_set(o, t.desc, HD_DNN_TENSOR_VIRTUAL, HD_DNN_TYPE_BOOL, 1,
                          &(bool){!real});
    if (by_value)
        hd_cuda_operation_set(o, t.desc, HD_DNN_TENSOR_BY_VALUE,
                              HD_DNN_TYPE_BOOL, 1, &by_value);
    hd_cuda_operation_finish(o, t.desc);
    return t;
}

static tensor add_virtual(hd_cuda_operation *o, int type,
                          const int64_t dim[DIMS])
{
    const int64_t stride[DIMS] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3],
                                  dim[3], 1};

    return add_tensor(o, type, dim, stride, HD_CUDA_UID_VIRTUAL, false);
}

static tensor add_value(hd_cuda_operation *o, int type, int64_t uid)
{
    const int64_t one[DIMS] = {1, 1, 1, 1};

    return add_tensor(o, type, one, one, uid, true);
}

// What lies in memory: its rows of `width` elements side by side, or where
// `columns` is true each a column.
static tensor add_part(hd_cuda_operation *o, const hd_cuda_attention *s,
                       int part, int type, int64_t uid, bool columns)
{
    bool shared = part == HD_CUDA_K || part == HD_CUDA_V;
    int64_t rows = shared ? s->keys : s->rows;
    int64_t width = part == HD_CUDA_LSE                      ? 1
                    : part == HD_CUDA_Q || part == HD_CUDA_K ? s->depth
                                                             : s->wide;
    const int64_t *apart = s->stride[part];
    const int64_t dim[DIMS] = {s->batch, shared ? s->shared : s->heads,
                               columns ? width : rows, columns ? rows : width};
    const int64_t stride[DIMS] = {apart[0], apart[1], columns ? 1 : apart[2],
                                  columns ? apart[2] : 1};

    return add_tensor(o, type, dim, stride, uid, false);
}

// ----------------------------------------------------------- operations

static void multiply_into(hd_cuda_operation *o, tensor a, tensor b, tensor c)
{
    hd_dnn_desc desc = hd_cuda_operation_make(o, HD_DNN_MATMUL), op;
    const int type = HD_DNN_F32;

    hd_cuda_operation_set(o, desc, HD_DNN_MATMUL_TYPE, HD_DNN_TYPE_DATA_TYPE, 1,
                          &type);
    hd_cuda_operation_finish(o, desc);
    op = hd_cuda_operation_make(o, HD_DNN_MATMUL_OP);
    set_desc(o, op, HD_DNN_MATMUL_OP_A, a.desc);
    set_desc(o, op, HD_DNN_MATMUL_OP_B, b.desc);
    set_desc(o, op, HD_DNN_MATMUL_OP_C, c.desc);
    set_desc(o, op, HD_DNN_MATMUL_OP_DESC, desc);
    add_op(o, op);
}

static hd_dnn_desc pointwise(hd_cuda_operation *o, int mode, int precision,
                             int64_t axis)
{
    hd_dnn_desc desc = hd_cuda_operation_make(o, HD_DNN_POINTWISE);

    hd_cuda_operation_set(o, desc, HD_DNN_POINTWISE_MODE, HD_DNN_TYPE_POINTWISE,
                          1, &mode);
    hd_cuda_operation_set(o, desc, HD_DNN_POINTWISE_PRECISION,
                          HD_DNN_TYPE_DATA_TYPE, 1, &precision);
    if (axis >= 0)
        hd_cuda_operation_set(o, desc, HD_DNN_POINTWISE_AXIS, HD_DNN_TYPE_INT64,
                              1, &axis);
    hd_cuda_operation_finish(o, desc);
    return desc;
}

// y = f(x, b, t); those without a descriptor are none of the operation's.
static void apply_into(hd_cuda_operation *o, hd_dnn_desc desc, tensor x,
                       tensor b, tensor t, tensor y)
{
    hd_dnn_desc op = hd_cuda_operation_make(o, HD_DNN_POINTWISE_OP);

    set_desc(o, op, HD_DNN_POINTWISE_OP_DESC, desc);
    set_desc(o, op, HD_DNN_POINTWISE_OP_X, x.desc);
    if (b.desc != NULL)
        set_desc(o, op, HD_DNN_POINTWISE_OP_B, b.desc);
    if (t.desc != NULL)
        set_desc(o, op, HD_DNN_POINTWISE_OP_T, t.desc);
    set_desc(o, op, HD_DNN_POINTWISE_OP_Y, y.desc);
    add_op(o, op);
}

static tensor map(hd_cuda_operation *o, int mode, tensor x)
{
    tensor y = add_virtual(o, HD_DNN_F32, x.dim);

    apply_into(o, pointwise(o, mode, HD_DNN_F32, -1), x, (tensor){0},
               (tensor){0}, y);
    return y;
}

static tensor join(hd_cuda_operation *o, int mode, tensor x, tensor b, int type)
{
    tensor y = add_virtual(o, type, x.dim);
    int precision =
        type == HD_DNN_I32 || type == HD_DNN_BOOL ? type : HD_DNN_F32;

    apply_into(o, pointwise(o, mode, precision, -1), x, b, (tensor){0}, y);
    return y;
}

// Which index of the axis each element of `x` is at.
static tensor index_of(hd_cuda_operation *o, tensor x, int64_t axis)
{
    tensor y = add_virtual(o, HD_DNN_I32, x.dim);

    apply_into(o, pointwise(o, HD_DNN_INDEX, HD_DNN_I32, axis), x, (tensor){0},
               (tensor){0}, y);
    return y;
}

// Of each row.
static tensor reduce(hd_cuda_operation *o, int mode, tensor x)
{
    const int64_t dim[DIMS] = {x.dim[0], x.dim[1], x.dim[2], 1};
    const int type = HD_DNN_F32;
    hd_dnn_desc desc = hd_cuda_operation_make(o, HD_DNN_REDUCTION), op;
    tensor y = add_virtual(o, HD_DNN_F32, dim);

    hd_cuda_operation_set(o, desc, HD_DNN_REDUCTION_MODE, HD_DNN_TYPE_REDUCTION,
                          1, &mode);
    hd_cuda_operation_set(o, desc, HD_DNN_REDUCTION_TYPE, HD_DNN_TYPE_DATA_TYPE,
                          1, &type);
    hd_cuda_operation_finish(o, desc);
    op = hd_cuda_operation_make(o, HD_DNN_REDUCTION_OP);
    set_desc(o, op, HD_DNN_REDUCTION_OP_X, x.desc);
    set_desc(o, op, HD_DNN_REDUCTION_OP_Y, y.desc);
    set_desc(o, op, HD_DNN_REDUCTION_OP_DESC, desc);
    add_op(o, op);
    return y;
}

// ------------------------------------------------------------ attention

// -infinity where a row does not see a key.
static tensor mask(hd_cuda_operation *o, const hd_cuda_attention *s, tensor x)
{
    tensor row, column, sees, nothing, y;

    if (s->mask == HD_CUDA_MASK_NONE)
        return x;
    row = index_of(o, x, 2);
    if (s->mask == HD_CUDA_MASK_BOTTOM) {
        row = join(o, HD_DNN_ADD, row,
                   add_value(o, HD_DNN_I32, HD_CUDA_UID_KEYS), HD_DNN_I32);
        row = join(o, HD_DNN_SUB, row,
                   add_value(o, HD_DNN_I32, HD_CUDA_UID_ROWS), HD_DNN_I32);
    }
    column = index_of(o, x, 3);
    sees = join(o, HD_DNN_NOT_LESS, row, column, HD_DNN_BOOL);
    nothing = add_value(o, HD_DNN_F32, HD_CUDA_UID_NOTHING);
    y = add_virtual(o, HD_DNN_F32, x.dim);
    apply_into(o, pointwise(o, HD_DNN_SELECT, HD_DNN_F32, -1), x, nothing, sees,
               y);
    return y;
}

static tensor score(hd_cuda_operation *o, const hd_cuda_attention *s)
{
    const int64_t dim[DIMS] = {s->batch, s->heads, s->rows, s->keys};
    tensor q = add_part(o, s, HD_CUDA_Q, s->type, HD_CUDA_UID_Q, false);
    tensor k = add_part(o, s, HD_CUDA_K, s->type, HD_CUDA_UID_K, true);
    tensor x = add_virtual(o, HD_DNN_F32, dim);

    multiply_into(o, q, k, x);
    return join(o, HD_DNN_MUL, x, add_value(o, HD_DNN_F32, HD_CUDA_UID_SCALE),
                HD_DNN_F32);
}

hd_dnn_desc hd_cuda_operation_attend(hd_cuda_operation *o,
                                     const hd_cuda_attention *shape)
{
    tensor x = mask(o, shape, score(o, shape));
    tensor most = reduce(o, HD_DNN_REDUCE_MAX, x);
    tensor e = map(o, HD_DNN_EXP, join(o, HD_DNN_SUB, x, most, HD_DNN_F32));
    tensor sum = reduce(o, HD_DNN_REDUCE_ADD, e);
    tensor log = map(o, HD_DNN_LOG, sum);
    tensor lse =
        add_part(o, shape, HD_CUDA_LSE, HD_DNN_F32, HD_CUDA_UID_LSE, false);
    tensor p, v, out;
    hd_dnn_desc graph;

    apply_into(o, pointwise(o, HD_DNN_ADD, HD_DNN_F32, -1), most, log,
               (tensor){0}, lse);
    p = join(o, HD_DNN_DIV, e, sum, shape->type);
    v = add_part(o, shape, HD_CUDA_V, shape->type, HD_CUDA_UID_V, false);
    out = add_part(o, shape, HD_CUDA_O, shape->type, HD_CUDA_UID_O, false);
    multiply_into(o, p, v, out);
    graph = hd_cuda_operation_make(o, HD_DNN_GRAPH);
    hd_cuda_operation_set(o, graph, HD_DNN_GRAPH_OPS, HD_DNN_TYPE_DESC, o->nops,
                          o->op);
    hd_cuda_operation_finish(o, graph);
    return o->status == HD_DNN_SUCCESS ? graph : NULL;
}
