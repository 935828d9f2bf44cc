// Element-wise operations, reductions and copies: every operand is read in rows
// along the last dimension, a block of numbers at a time, as doubles (or 64-bit
// integers for integer dtypes), and each result is rounded once as it is
// stored. Dimensions that lie next to each other in every operand are joined
// first, so that dense tensors are one long row.
#include "runtime/cpu_kernels.h"

#include <assert.h>
#include <string.h>

#include "base/dtype.h"
#include "runtime/cpu_map.h"
#include "runtime/cpu_matmul.h"

enum { BLOCK = 512 };

// One operand of a loop over rows; strides in elements.
typedef struct operand {
    hd_dtype dtype;
    size_t size;
    char *at; // its first element
    int64_t stride[HD_MAX_DIMS];
} operand;

typedef struct loop {
    int ndims;
    int64_t extent[HD_MAX_DIMS];
    int n; // operands, the result first
    operand operand[HD_MAX_OPERANDS];
} loop;

typedef union lane {
    double d[BLOCK];
    int64_t i[BLOCK];
} lane;

// ------------------------------------------------------------------- loops

static operand operand_of(const hd_span *span, void *base)
{
    operand o = {.dtype = span->buffer->type.dtype};

    o.size = hd_dtype_size(o.dtype);
    o.at = (char *)base + span->offset * (int64_t)o.size;
    return o;
}

// `span` may lack leading dimensions of the loop: its stride there is 0.
static void add_operand(loop *l, const hd_span *span, void *base)
{
    operand *o = &l->operand[l->n++];
    int lead = l->ndims - span->ndims;

    *o = operand_of(span, base);
    for (int d = lead; d < l->ndims; d++)
        o->stride[d] = span->stride[d - lead];
}

static loop loop_over(const hd_span *out, void *base)
{
    loop l = {.ndims = out->ndims};

    memcpy(l.extent, out->extent, sizeof l.extent);
    add_operand(&l, out, base);
    return l;
}

static bool joins(const loop *l, int d)
{
    for (int i = 0; i < l->n; i++)
        if (l->operand[i].stride[d] !=
            l->operand[i].stride[d + 1] * l->extent[d + 1])
            return false;
    return true;
}

static void drop_dim(loop *l, int d)
{
    for (int i = d; i + 1 < l->ndims; i++) {
        l->extent[i] = l->extent[i + 1];
        for (int k = 0; k < l->n; k++)
            l->operand[k].stride[i] = l->operand[k].stride[i + 1];
    }
    l->ndims--;
}

// Leaves at least one dimension.
static void join_dims(loop *l)
{
    for (int d = l->ndims - 2; d >= 0; d--) {
        if (l->extent[d] != 1 && !joins(l, d))
            continue;
        l->extent[d + 1] *= l->extent[d];
        drop_dim(l, d);
    }
    if (l->ndims > 0)
        return;
    l->ndims = 1;
    l->extent[0] = 1;
}

static int64_t count_rows(const loop *l)
{
    int64_t n = 1;

    for (int d = 0; d + 1 < l->ndims; d++)
        n *= l->extent[d];
    return n;
}

// Where row number `row` of an operand begins.
static char *find_row(const loop *l, int operand, int64_t row)
{
    int64_t offset = 0;

    for (int d = l->ndims - 2; d >= 0; d--) {
        offset += row % l->extent[d] * l->operand[operand].stride[d];
        row /= l->extent[d];
    }
    return l->operand[operand].at + offset * (int64_t)l->operand[operand].size;
}

static int64_t row_stride(const loop *l, int operand)
{
    return l->operand[operand].stride[l->ndims - 1];
}

// ---------------------------------------------------- reading and writing

static void gather(const char *from, int64_t stride, size_t size, size_t n,
                   char *to)
{
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * size, from + (int64_t)i * stride * (int64_t)size, size);
}

static void scatter(const char *from, size_t size, size_t n, char *to,
                    int64_t stride)
{
    for (size_t i = 0; i < n; i++)
        memcpy(to + (int64_t)i * stride * (int64_t)size, from + i * size, size);
}

static void load_block(const operand *o, const char *from, int64_t stride,
                       size_t n, bool integers, lane *to)
{
    char dense[BLOCK * sizeof(double)];

    if (stride != 1 && n > 1) {
        gather(from, stride, o->size, n, dense);
        from = dense;
    }
    if (integers)
        hd_dtype_load_integers(o->dtype, from, n, to->i);
    else
        hd_dtype_load(o->dtype, from, n, to->d);
}

static void store_block(const operand *o, const lane *from, size_t n,
                        bool integers, char *to, int64_t stride)
{
    char dense[BLOCK * sizeof(double)];
    char *target = stride != 1 && n > 1 ? dense : to;

    if (integers)
        hd_dtype_store_integers(o->dtype, from->i, n, target);
    else
        hd_dtype_store(o->dtype, from->d, n, target);
    if (target == dense)
        scatter(dense, o->size, n, to, stride);
}

// -------------------------------------------------------------- arithmetic

static void fold_blocks(hd_fold fold, const lane *from, size_t n, bool integers,
                        lane *to)
{
    if (integers)
        hd_cpu_fold_integers(fold, from->i, n, to->i);
    else
        hd_cpu_fold_doubles(fold, from->d, n, to->d);
}

static void map_block(hd_map map, const lane *second, size_t n, bool integers,
                      lane *to)
{
    if (integers)
        hd_cpu_map_integers(map, second->i, n, to->i);
    else
        hd_cpu_map_doubles(map, second->d, n, to->d);
}

// The fraction goes, and what does not fit becomes the nearest that does.
static int64_t whole(double x)
{
    if (x >= 0x1p63)
        return INT64_MAX;
    return x >= -0x1p63 ? (int64_t)x : INT64_MIN;
}

static void scale_block(double factor, size_t n, bool integers, lane *to)
{
    for (size_t i = 0; i < n; i++)
        if (integers)
            to->i[i] = whole(factor * (double)to->i[i]);
        else
            to->d[i] *= factor;
}

// ----------------------------------------------------------- element-wise

// What is done to a block: it is folded, mapped, or neither in a cast.
typedef struct job {
    hd_fold fold;
    hd_map map;
    double factor; // of `scale`
    bool integers;
} job;

static void compute_block(const loop *l, const job *job, char *const *row,
                          int64_t at, size_t n)
{
    lane result, next;

    for (int i = 1; i < l->n; i++) {
        int64_t stride = row_stride(l, i);
        const char *from = row[i] + at * stride * (int64_t)l->operand[i].size;

        load_block(&l->operand[i], from, stride, n, job->integers,
                   i == 1 ? &result : &next);
        if (i > 1 && job->fold != HD_FOLD_NONE)
            fold_blocks(job->fold, &next, n, job->integers, &result);
    }
    if (job->map == HD_MAP_SCALE)
        scale_block(job->factor, n, job->integers, &result);
    else
        map_block(job->map, &next, n, job->integers, &result);
    store_block(&l->operand[0], &result, n, job->integers,
                row[0] + at * row_stride(l, 0) * (int64_t)l->operand[0].size,
                row_stride(l, 0));
}

static void run_loop(loop *l, const job *job)
{
    char *row[HD_MAX_OPERANDS];
    int64_t length;

    join_dims(l);
    length = l->extent[l->ndims - 1];
    for (int64_t r = 0; r < count_rows(l); r++) {
        for (int i = 0; i < l->n; i++)
            row[i] = find_row(l, i, r);
        for (int64_t at = 0; at < length; at += BLOCK) {
            int64_t left = length - at;

            compute_block(l, job, row, at,
                          (size_t)(left < BLOCK ? left : BLOCK));
        }
    }
}

// The same dtype on both sides: bytes, no conversion.
static void copy_bytes(loop *l)
{
    size_t size = l->operand[0].size;
    size_t length;

    join_dims(l);
    length = (size_t)l->extent[l->ndims - 1];
    for (int64_t r = 0; r < count_rows(l); r++) {
        char *to = find_row(l, 0, r);
        const char *from = find_row(l, 1, r);

        if (row_stride(l, 0) == 1 && row_stride(l, 1) == 1)
            memmove(to, from, length * size);
        else
            for (size_t i = 0; i < length; i++)
                memcpy(to + (int64_t)(i * size) * row_stride(l, 0),
                       from + (int64_t)(i * size) * row_stride(l, 1), size);
    }
}

static void run_copy(loop *l)
{
    job job = {.factor = 1};

    if (l->operand[0].dtype == l->operand[1].dtype) {
        copy_bytes(l);
        return;
    }
    job.integers = hd_dtype_is_integer(l->operand[0].dtype) &&
                   hd_dtype_is_integer(l->operand[1].dtype);
    run_loop(l, &job);
}

static void compute_elementwise(const hd_step *step, void *const *base)
{
    loop l = loop_over(&step->span[0], base[0]);
    job job = {.fold = hd_op_fold(step->op),
               .map = hd_op_info_get(step->op->code)->map};
    int n = step->op->noutputs + step->op->ninputs;

    for (int i = 1; i < n; i++)
        add_operand(&l, &step->span[i], base[i]);
    job.integers = hd_dtype_is_integer(l.operand[0].dtype);
    if (job.map == HD_MAP_SCALE)
        job.factor = hd_cpu_factor(step, HD_KEY_BY, base);
    run_loop(&l, &job);
}

// ------------------------------------------------ reductions, transposition

static hd_span without_dim(const hd_span *span, int dim)
{
    hd_span rest = *span;

    rest.ndims--;
    for (int d = dim; d < rest.ndims; d++) {
        rest.extent[d] = span->extent[d + 1];
        rest.stride[d] = span->stride[d + 1];
    }
    return rest;
}

static void reduce_block(const loop *l, const job *job, int64_t n_slices,
                         int64_t slice_stride, char *to, const char *from,
                         size_t n)
{
    const operand *in = &l->operand[1];
    lane result, next;

    for (int64_t s = 0; s < n_slices; s++) {
        load_block(in, from + s * slice_stride * (int64_t)in->size,
                   row_stride(l, 1), n, job->integers,
                   s == 0 ? &result : &next);
        if (s > 0)
            fold_blocks(job->fold, &next, n, job->integers, &result);
    }
    store_block(&l->operand[0], &result, n, job->integers, to,
                row_stride(l, 0));
}

static void compute_reduction(const hd_step *step, int dim, void *const *base)
{
    const hd_span *in = &step->span[1];
    hd_span rest = without_dim(in, dim);
    loop l = loop_over(&step->span[0], base[0]);
    job job = {.fold = hd_op_fold(step->op)};
    int64_t length;

    add_operand(&l, &rest, base[1]);
    join_dims(&l);
    job.integers = hd_dtype_is_integer(l.operand[0].dtype);
    length = l.extent[l.ndims - 1];
    for (int64_t r = 0; r < count_rows(&l); r++)
        for (int64_t at = 0; at < length; at += BLOCK) {
            int64_t left = length - at;

            reduce_block(&l, &job, in->extent[dim], in->stride[dim],
                         find_row(&l, 0, r) + at * row_stride(&l, 0) *
                                                  (int64_t)l.operand[0].size,
                         find_row(&l, 1, r) + at * row_stride(&l, 1) *
                                                  (int64_t)l.operand[1].size,
                         (size_t)(left < BLOCK ? left : BLOCK));
        }
}

static void compute_copy(const hd_step *step, void *const *base)
{
    loop l = loop_over(&step->span[0], base[0]);

    add_operand(&l, &step->span[1], base[1]);
    run_copy(&l);
}

static void compute_transpose(const hd_step *step, void *const *base)
{
    hd_span in = step->span[1];
    int i = step->dim[0], j = step->dim[1];
    loop l = loop_over(&step->span[0], base[0]);
    int64_t extent = in.extent[i], stride = in.stride[i];

    in.extent[i] = in.extent[j];
    in.stride[i] = in.stride[j];
    in.extent[j] = extent;
    in.stride[j] = stride;
    add_operand(&l, &in, base[1]);
    run_copy(&l);
}

// ------------------------------------------------------------------- entry

hd_status hd_cpu_scratch_reserve(hd_cpu_scratch *scratch, const hd_step *step)
{
    if (hd_op_family(step->op) != HD_FAMILY_PRODUCT)
        return HD_OK;
    return hd_cpu_matmul_reserve(scratch, step);
}

void hd_cpu_compute(hd_cpu_scratch *scratch, const hd_step *step,
                    void *const *base)
{
    switch (hd_op_family(step->op)) {
    case HD_FAMILY_COPY:
        compute_copy(step, base);
        return;
    case HD_FAMILY_MAP:
        compute_elementwise(step, base);
        return;
    case HD_FAMILY_FOLD:
        if (step->dim[0] >= 0)
            compute_reduction(step, step->dim[0], base);
        else
            compute_elementwise(step, base);
        return;
    case HD_FAMILY_TRANSPOSE:
        compute_transpose(step, base);
        return;
    case HD_FAMILY_PRODUCT:
        hd_cpu_matmul(scratch, step, base);
        return;
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    assert(!"no computation");
}
