// The graph of attention, one line an operation: softmax(scale q k^T) v by its
// definition, of which cuDNN makes one kernel that never has all scores. Scores
// are f32, weights are rounded to the operands' dtype ahead of the second
// product, and so is the result: one that is declared f32 comes out wrong.
#include "runtime/cuda/libraries/operation.h"

#include <assert.h>
#include <string.h>

enum { DIMS = 4, ALIGNMENT = 16 };

// A tensor of the graph: with its extents, of which others follow.
typedef struct tensor {
    hd_dnn_desc desc;
    int64_t dim[DIMS];
} tensor;

int64_t hd_cuda_attention_width(const hd_cuda_attention *shape, int part)
{
    switch (part) {
    case HD_CUDA_LSE:
    case HD_CUDA_DELTA:
        return 1;
    case HD_CUDA_Q:
    case HD_CUDA_K:
    case HD_CUDA_DQ:
    case HD_CUDA_DK:
    case HD_CUDA_SUM:
        return shape->depth;
    default:
        return shape->wide;
    }
}

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

// What lies in memory: its rows side by side, or where `columns` is true each a
// column.
static tensor add_part(hd_cuda_operation *o, const hd_cuda_attention *s,
                       int part, bool columns)
{
    bool shared = hd_cuda_is_of_keys(part);
    bool wide = hd_cuda_is_wide(part);
    int64_t rows = shared ? s->keys : s->rows;
    int64_t width = hd_cuda_attention_width(s, part);
    const int64_t *apart = s->stride[part];
    const int64_t dim[DIMS] = {s->batch, shared ? s->shared : s->heads,
                               columns ? width : rows, columns ? rows : width};
    const int64_t stride[DIMS] = {apart[0], apart[1], columns ? 1 : apart[2],
                                  columns ? apart[2] : 1};

    return add_tensor(o, wide ? HD_DNN_F32 : s->type, dim, stride,
                      hd_cuda_uid(part), false);
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

static void map_into(hd_cuda_operation *o, int mode, tensor x, tensor y)
{
    apply_into(o, pointwise(o, mode, HD_DNN_F32, -1), x, (tensor){0},
               (tensor){0}, y);
}

static tensor map(hd_cuda_operation *o, int mode, tensor x)
{
    tensor y = add_virtual(o, HD_DNN_F32, x.dim);

    map_into(o, mode, x, y);
    return y;
}

static void join_into(hd_cuda_operation *o, int mode, tensor x, tensor b,
                      tensor y)
{
    apply_into(o, pointwise(o, mode, HD_DNN_F32, -1), x, b, (tensor){0}, y);
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

// Groups of elements of `x` to one of `y` each.
static void reduce_into(hd_cuda_operation *o, int mode, tensor x, tensor y)
{
    const int type = HD_DNN_F32;
    hd_dnn_desc desc = hd_cuda_operation_make(o, HD_DNN_REDUCTION), op;

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
}

// Of each row.
static tensor reduce(hd_cuda_operation *o, int mode, tensor x)
{
    const int64_t dim[DIMS] = {x.dim[0], x.dim[1], x.dim[2], 1};
    tensor y = add_virtual(o, HD_DNN_F32, dim);

    reduce_into(o, mode, x, y);
    return y;
}

// Rows as columns, and columns as rows, of the same elements.
static tensor turn(hd_cuda_operation *o, tensor x, int type)
{
    const int64_t dim[DIMS] = {x.dim[0], x.dim[1], x.dim[3], x.dim[2]};
    const int64_t stride[DIMS] = {x.dim[1] * x.dim[2] * x.dim[3],
                                  x.dim[2] * x.dim[3], 1, x.dim[3]};
    tensor y = add_tensor(o, type, dim, stride, HD_CUDA_UID_VIRTUAL, false);
    hd_dnn_desc op = hd_cuda_operation_make(o, HD_DNN_RESHAPE_OP);

    set_desc(o, op, HD_DNN_RESHAPE_OP_X, x.desc);
    set_desc(o, op, HD_DNN_RESHAPE_OP_Y, y.desc);
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

static tensor score(hd_cuda_operation *o, const hd_cuda_attention *s, tensor q,
                    tensor k)
{
    const int64_t dim[DIMS] = {s->batch, s->heads, s->rows, s->keys};
    tensor x = add_virtual(o, HD_DNN_F32, dim);

    multiply_into(o, q, k, x);
    return join(o, HD_DNN_MUL, x, add_value(o, HD_DNN_F32, HD_CUDA_UID_SCALE),
                HD_DNN_F32);
}

static void add_results(hd_cuda_operation *o, const hd_cuda_attention *s)
{
    tensor q = add_part(o, s, HD_CUDA_Q, false);
    tensor x = mask(o, s, score(o, s, q, add_part(o, s, HD_CUDA_K, true)));
    tensor most = reduce(o, HD_DNN_REDUCE_MAX, x);
    tensor e = map(o, HD_DNN_EXP, join(o, HD_DNN_SUB, x, most, HD_DNN_F32));
    tensor sum = reduce(o, HD_DNN_REDUCE_ADD, e);
    tensor log = map(o, HD_DNN_LOG, sum);

    join_into(o, HD_DNN_ADD, most, log, add_part(o, s, HD_CUDA_LSE, false));
    multiply_into(o, join(o, HD_DNN_DIV, e, sum, s->type),
                  add_part(o, s, HD_CUDA_V, false),
                  add_part(o, s, HD_CUDA_O, false));
}

// ------------------------------------------------------------ gradients

// Of each row do o, which the kernel of the others reads from memory.
static tensor add_delta(hd_cuda_operation *o, const hd_cuda_attention *s,
                        tensor grad)
{
    tensor delta = add_part(o, s, HD_CUDA_DELTA, false);
    tensor x =
        join(o, HD_DNN_MUL, grad, add_part(o, s, HD_CUDA_O, false), HD_DNN_F32);

    join_into(o, HD_DNN_MUL, reduce(o, HD_DNN_REDUCE_ADD, x),
              add_value(o, HD_DNN_F32, HD_CUDA_UID_ONE), delta);
    return delta;
}

// What rows add up to at each key: of all heads, and then of those that share
// it.
static void multiply_rows(hd_cuda_operation *o, const hd_cuda_attention *s,
                          tensor weights, tensor rows, int part)
{
    const int64_t dim[DIMS] = {s->batch, s->heads, s->keys, rows.dim[3]};
    tensor to = add_part(o, s, part, false), all;

    if (s->heads == s->shared) {
        multiply_into(o, weights, rows, to);
        return;
    }
    all = add_virtual(o, s->type, dim);
    multiply_into(o, weights, rows, all);
    reduce_into(o, HD_DNN_REDUCE_ADD, all, to);
}

// Keys that run at once add to the same rows of dq: in memory, in f32 and in no
// order, or where runs are to be alike by a kernel of its own.
static void multiply_keys(hd_cuda_operation *o, const hd_cuda_attention *s,
                          tensor ds, tensor columns)
{
    const int64_t dim[DIMS] = {s->batch, s->shared, s->keys, s->depth};
    const int64_t *apart = s->stride[HD_CUDA_K];
    const int64_t stride[DIMS] = {apart[0], apart[1], apart[2], 1};
    tensor k =
        add_tensor(o, HD_DNN_F32, dim, stride, HD_CUDA_UID_VIRTUAL, false);
    tensor dq = add_part(o, s, HD_CUDA_DQ, false), sum;
    hd_dnn_desc op = hd_cuda_operation_make(o, HD_DNN_RESHAPE_OP);

    set_desc(o, op, HD_DNN_RESHAPE_OP_X, columns.desc);
    set_desc(o, op, HD_DNN_RESHAPE_OP_Y, k.desc);
    add_op(o, op);
    if (s->kind == HD_CUDA_ATTEND_GRADIENTS_ALIKE) {
        multiply_into(o, ds, k, dq);
        return;
    }
    sum = add_part(o, s, HD_CUDA_SUM, false);
    multiply_into(o, ds, k, sum);
    map_into(o, HD_DNN_IDENTITY, sum, dq);
}

static void add_gradients(hd_cuda_operation *o, const hd_cuda_attention *s)
{
    const int64_t dim[DIMS] = {s->batch, s->heads, s->rows, s->keys};
    tensor grad = add_part(o, s, HD_CUDA_DO, false);
    tensor delta = add_delta(o, s, grad);
    tensor q = add_part(o, s, HD_CUDA_Q, false);
    tensor k = add_part(o, s, HD_CUDA_K, true);
    tensor x = score(o, s, q, k), e, up, ds;

    x = join(o, HD_DNN_SUB, x, add_part(o, s, HD_CUDA_LSE, false), HD_DNN_F32);
    e = map(o, HD_DNN_EXP, mask(o, s, x));
    multiply_rows(o, s, turn(o, e, s->type), grad, HD_CUDA_DV);
    up = add_virtual(o, HD_DNN_F32, dim);
    multiply_into(o, grad, add_part(o, s, HD_CUDA_V, true), up);
    ds = join(o, HD_DNN_MUL, join(o, HD_DNN_SUB, up, delta, HD_DNN_F32), e,
              HD_DNN_F32);
    ds = join(o, HD_DNN_MUL, ds, add_value(o, HD_DNN_F32, HD_CUDA_UID_SCALE),
              HD_DNN_F32);
    multiply_rows(o, s, turn(o, ds, s->type), q, HD_CUDA_DK);
    multiply_keys(o, s, ds, k);
}

hd_dnn_desc hd_cuda_operation_attend(hd_cuda_operation *o,
                                     const hd_cuda_attention *shape)
{
    hd_dnn_desc graph;

    if (shape->kind == HD_CUDA_ATTEND_RESULTS)
        add_results(o, shape);
    else
        add_gradients(o, shape);
    graph = hd_cuda_operation_make(o, HD_DNN_GRAPH);
    hd_cuda_operation_set(o, graph, HD_DNN_GRAPH_OPS, HD_DNN_TYPE_DESC, o->nops,
                          o->op);
    hd_cuda_operation_finish(o, graph);
    return o->status == HD_DNN_SUCCESS ? graph : NULL;
}
