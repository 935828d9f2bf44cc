// Element-wise operations, reductions and copies: every operand is read in rows
// along the last dimension, a block of numbers at a time, as doubles (or 64-bit
// integers for integer dtypes), and each result is rounded once as it is
// stored. Dimensions that lie next to each other in every operand are joined
// first, so that dense tensors are one long row.
#include <heddle/verify.h>

#include "runtime/cpu/kernels.h"

#include <assert.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/counts.h"
#include "runtime/cpu/attend.h"
#include "runtime/cpu/map.h"
#include "runtime/cpu/matmul.h"
#include "runtime/cpu/pick.h"

enum { BLOCK = 512, MAP_OPERANDS = 3 };

// One operand of a loop over rows; strides in elements.
typedef struct operand {
    hd_dtype dtype;
    size_t size;
    char *at; // its first element
    int64_t stride[HD_SPACE_DIMS];
    char number[sizeof(double)]; // where it is one, there
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

static void add_operand(loop *l, const hd_step *step, const hd_space *space,
                        int i, void *base)
{
    const hd_span *span = &step->span[i];
    operand *o = &l->operand[l->n++];

    o->dtype = span->buffer->type.dtype;
    o->size = hd_dtype_size(o->dtype);
    o->at = (char *)base + span->offset * (int64_t)o->size;
    hd_space_strides(space, i, span->stride, o->stride);
}

// One that repeats along all dimensions.
static void add_number(loop *l, const hd_op *op, int k)
{
    operand *o = &l->operand[l->n++];
    double number = hd_op_number(op, k);

    o->dtype = op->view[hd_op_number_view(op)].buffer->type.dtype;
    o->size = hd_dtype_size(o->dtype);
    o->at = o->number;
    hd_dtype_store(o->dtype, &number, 1, o->number);
}

// Over the result and all operands; a dimension that is reduced is not walked.
static void lay_loop(const hd_step *step, const hd_space *space,
                     void *const *base, loop *l)
{
    *l = (loop){.ndims = space->nparallel};
    memcpy(l->extent, space->extent, sizeof *l->extent * (size_t)l->ndims);
    add_operand(l, step, space, 0, base[0]);
    for (int k = 0; k < hd_op_operands(step->op); k++) {
        int view = hd_op_operand(step->op, k);

        if (view >= 0)
            add_operand(l, step, space, view, base[view]);
        else
            add_number(l, step->op, k);
    }
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

// ----------------------------------------------------------- element-wise

// What is done to a block: it is folded, mapped, or neither in a cast.
typedef struct job {
    hd_fold fold;
    hd_map map;
    double factor; // of `scale` and `fill`
    bool integers;
} job;

static void map_block(const job *job, lane *x, size_t n)
{
    if (job->integers)
        hd_cpu_map_integers(job->map, job->factor, x[1].i, x[2].i, n, x[0].i);
    else
        hd_cpu_map_doubles(job->map, job->factor, x[1].d, x[2].d, n, x[0].d);
}

static void compute_block(const loop *l, const job *job, char *const *row,
                          int64_t at, size_t n)
{
    lane x[MAP_OPERANDS];

    assert(job->fold != HD_FOLD_NONE || l->n <= MAP_OPERANDS + 1);
    for (int i = 1; i < l->n; i++) {
        int64_t stride = row_stride(l, i);
        const char *from = row[i] + at * stride * (int64_t)l->operand[i].size;
        bool folds = job->fold != HD_FOLD_NONE && i > 1;

        load_block(&l->operand[i], from, stride, n, job->integers,
                   folds ? &x[1] : &x[i - 1]);
        if (folds)
            fold_blocks(job->fold, &x[1], n, job->integers, &x[0]);
    }
    map_block(job, x, n);
    store_block(&l->operand[0], &x[0], n, job->integers,
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

// Some of a row's elements, or all.
static void copy_row(const loop *l, const char *from, size_t n, char *to)
{
    size_t size = l->operand[0].size;

    if (row_stride(l, 0) == 1 && row_stride(l, 1) == 1)
        memmove(to, from, n * size);
    else
        for (size_t i = 0; i < n; i++)
            memcpy(to + (int64_t)(i * size) * row_stride(l, 0),
                   from + (int64_t)(i * size) * row_stride(l, 1), size);
}

// Of every dtype a zero is bytes of zeros.
static void clear_row(char *to, int64_t stride, size_t size, size_t n)
{
    if (stride == 1)
        memset(to, 0, n * size);
    else
        for (size_t i = 0; i < n; i++)
            memset(to + (int64_t)(i * size) * stride, 0, size);
}

// The same dtype on both sides: bytes, no conversion.
static void copy_bytes(loop *l)
{
    join_dims(l);
    for (int64_t r = 0; r < count_rows(l); r++)
        copy_row(l, find_row(l, 1, r), (size_t)l->extent[l->ndims - 1],
                 find_row(l, 0, r));
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

static void compute_elementwise(const hd_step *step, const hd_space *space,
                                void *const *base)
{
    job job = {.fold = hd_op_fold(step->op),
               .map = hd_op_info_get(step->op->code)->map};
    loop l;

    lay_loop(step, space, base, &l);
    // A truth is one of its operands' kind, and is stored as 1 or 0 of u8. What
    // is filled is rounded as it is stored.
    job.integers = l.n > 1 && hd_dtype_is_integer(l.operand[l.n - 1].dtype);
    job.factor = hd_cpu_factor(
        step, job.map == HD_MAP_FILL ? HD_KEY_VALUE : HD_KEY_BY, base);
    run_loop(&l, &job);
}

// A transpose is a copy whose operand lies along other dimensions.
static void compute_copy(const hd_step *step, const hd_space *space,
                         void *const *base)
{
    loop l;

    lay_loop(step, space, base, &l);
    run_copy(&l);
}

// -------------------------------------------------------- what indices say

// What one index of the dimension says of a row: where it begins, NULL where
// the dimension has no such index.
static const char *find_taken(const operand *in, const char *from,
                              int64_t extent, int64_t stride, int64_t start,
                              const char *index)
{
    int32_t said;
    int64_t i;

    memcpy(&said, index, sizeof said);
    i = said - start;
    return i >= 0 && i < extent ? from + i * stride * (int64_t)in->size : NULL;
}

// A row has one index, or one for each of its elements.
static void compute_take(const hd_step *step, const hd_space *space,
                         void *const *base)
{
    int64_t extent = space->extent[space->nparallel];
    int64_t stride, length, apart;
    loop l;

    lay_loop(step, space, base, &l);
    stride = l.operand[1].stride[space->nparallel];
    join_dims(&l);
    length = l.extent[l.ndims - 1];
    apart = row_stride(&l, 2) == 0 ? length : 1;
    for (int64_t r = 0; r < count_rows(&l); r++)
        for (int64_t at = 0; at < length; at += apart) {
            const char *index =
                find_row(&l, 2, r) +
                at * row_stride(&l, 2) * (int64_t)sizeof(int32_t);
            const char *from =
                find_row(&l, 1, r) +
                at * row_stride(&l, 1) * (int64_t)l.operand[1].size;
            char *to = find_row(&l, 0, r) +
                       at * row_stride(&l, 0) * (int64_t)l.operand[0].size;

            from = find_taken(&l.operand[1], from, extent, stride, step->start,
                              index);
            if (from != NULL)
                copy_row(&l, from, (size_t)apart, to);
            else
                clear_row(to, row_stride(&l, 0), l.operand[0].size,
                          (size_t)apart);
        }
}

// Where each element is in the whole.
static void compute_iota(const hd_step *step, void *const *base)
{
    const hd_span *out = &step->span[0];
    int dim = hd_op_dim(step->op);
    size_t size = hd_dtype_size(out->buffer->type.dtype);
    int64_t n = hd_span_elements(out), inner = 1;

    for (int d = dim + 1; d < out->ndims; d++)
        inner *= out->extent[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t index = step->start + i / inner % out->extent[dim];
        int32_t narrow = (int32_t)index;
        int64_t at = out->offset + hd_span_offset(out, 0, out->ndims, i);
        char *to = (char *)base[0] + at * (int64_t)size;

        memcpy(to, size == sizeof narrow ? (void *)&narrow : (void *)&index,
               size);
    }
}

// -------------------------------------------------------------- reductions

static void fill_neutral(const job *job, hd_dtype dtype, size_t n, lane *out)
{
    double value;
    int64_t whole;

    hd_fold_neutral(job->fold, dtype, &value, &whole);
    for (size_t i = 0; i < n; i++) {
        if (job->integers)
            out->i[i] = whole;
        else
            out->d[i] = value;
    }
}

// What a reduction joins. Slices may have a count each, of indices of the
// result: then those alone that count these ones.
typedef struct slices {
    int64_t n, stride;
    const int32_t *count; // of the first one; NULL: they have none
    int64_t apart;        // from one slice's to the next one's
    int64_t past;         // the indices end there
} slices;

static bool is_counted(const slices *all, int64_t s)
{
    return all->count == NULL || all->count[s * all->apart] >= all->past;
}

static void reduce_block(const loop *l, const job *job, const slices *all,
                         char *to, const char *from, size_t n)
{
    const operand *in = &l->operand[1];
    bool none = true; // a run may have none
    lane result, next;

    for (int64_t s = 0; s < all->n; s++) {
        if (!is_counted(all, s))
            continue;
        load_block(in, from + s * all->stride * (int64_t)in->size,
                   row_stride(l, 1), n, job->integers, none ? &result : &next);
        if (!none)
            fold_blocks(job->fold, &next, n, job->integers, &result);
        none = false;
    }
    if (none)
        fill_neutral(job, l->operand[0].dtype, n, &result);
    store_block(&l->operand[0], &result, n, job->integers, to,
                row_stride(l, 0));
}

static void compute_reduction(const hd_step *step, const hd_space *space,
                              slices all, void *const *base)
{
    job job = {.fold = hd_op_fold(step->op)};
    int64_t length;
    loop l;

    lay_loop(step, space, base, &l);
    all.n = space->extent[space->nparallel];
    all.stride = l.operand[1].stride[space->nparallel];
    join_dims(&l);
    job.integers = hd_dtype_is_integer(l.operand[0].dtype);
    length = l.extent[l.ndims - 1];
    for (int64_t r = 0; r < count_rows(&l); r++)
        for (int64_t at = 0; at < length; at += BLOCK) {
            int64_t left = length - at;

            reduce_block(&l, &job, &all,
                         find_row(&l, 0, r) + at * row_stride(&l, 0) *
                                                  (int64_t)l.operand[0].size,
                         find_row(&l, 1, r) + at * row_stride(&l, 1) *
                                                  (int64_t)l.operand[1].size,
                         (size_t)(left < BLOCK ? left : BLOCK));
        }
}

// ------------------------------------------------------------------- entry

hd_status hd_cpu_scratch_need(const hd_step *step, size_t *bytes)
{
    hd_span span[HD_MAX_VIEWS];
    hd_step slab = *step;
    hd_slabs slabs;

    if (hd_op_family(step->op) == HD_FAMILY_ATTEND)
        hd_cpu_attend_need(step, bytes);
    if (hd_op_family(step->op) != HD_FAMILY_PRODUCT)
        return HD_OK;
    if (!hd_op_has_counts(step->op))
        return hd_cpu_matmul_need(step, bytes);
    slabs = hd_slabs_of(step);
    if (slabs.n == 0)
        return HD_OK;
    hd_slab_spans(&slabs, 0, 0, slabs.room, span); // which no slab is more than
    slab.span = span;
    return hd_cpu_matmul_need(&slab, bytes);
}

static void compute_whole(hd_cpu_scratch *scratch, const hd_step *step,
                          void *const *base)
{
    hd_space space;

    // Of these any result may have no elements.
    if (hd_op_family(step->op) == HD_FAMILY_PICK) {
        hd_cpu_pick(step, base);
        return;
    }
    if (hd_op_family(step->op) == HD_FAMILY_ATTEND) {
        hd_cpu_attend(scratch, step, base);
        return;
    }
    if (hd_span_elements(&step->span[0]) == 0) // as a run may have it
        return;
    if (hd_op_family(step->op) == HD_FAMILY_PRODUCT) {
        hd_cpu_matmul(scratch, step, base); // which lays out its own
        return;
    }
    hd_space_of_step(step, &space);
    switch (hd_op_family(step->op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_TRANSPOSE:
        compute_copy(step, &space, base);
        return;
    case HD_FAMILY_TAKE:
        compute_take(step, &space, base);
        return;
    case HD_FAMILY_IOTA:
        compute_iota(step, base);
        return;
    case HD_FAMILY_MAP:
        compute_elementwise(step, &space, base);
        return;
    case HD_FAMILY_FOLD:
        if (space.ndims > space.nparallel)
            compute_reduction(step, &space, (slices){.n = 0}, base);
        else
            compute_elementwise(step, &space, base);
        return;
    case HD_FAMILY_PRODUCT: // above
    case HD_FAMILY_PICK:
    case HD_FAMILY_ATTEND:
    case HD_FAMILY_CALL: // an entry of its own
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    assert(false && "no computation");
}

// A span with the dimension that is counted, so that it has a last one.
static void clear_span(const hd_span *span, char *base)
{
    size_t size = hd_dtype_size(span->buffer->type.dtype);
    int last = span->ndims - 1;
    int64_t n = span->extent[last];
    int64_t rows = n > 0 ? hd_span_elements(span) / n : 0;

    for (int64_t r = 0; r < rows; r++)
        clear_row(base + (span->offset + hd_span_offset(span, 0, last, r)) *
                             (int64_t)size,
                  span->stride[last], size, (size_t)n);
}

// What results hold behind the indices that are counted was never counted: it
// is zero.
static void clear_rest(const hd_slabs *slabs, int64_t i, int64_t n,
                       void *const *base)
{
    hd_span span[HD_MAX_VIEWS];

    hd_slab_spans(slabs, i, n, slabs->room, span);
    for (int v = 0; v < slabs->step->op->nviews; v++)
        if (hd_slabs_clear(slabs, v))
            clear_span(&span[v], base[v]);
}

// The first one of the counts that is more than `from`.
static int64_t next_count(const hd_slabs *slabs, const int32_t *count,
                          int64_t from)
{
    int64_t past = slabs->room;

    for (int64_t k = 0; k < slabs->counts; k++) {
        int64_t n = count[k * slabs->apart];

        if (n > from && n < past)
            past = n;
    }
    return past;
}

// A reduction over what slabs have counts of their own of: from one count to
// the next one as many of them count what there is.
static void reduce_slabs(const hd_slabs *slabs, int64_t i, void *const *base)
{
    const int32_t *count =
        (const int32_t *)base[slabs->view] + hd_slab_count(slabs, i);
    hd_span span[HD_MAX_VIEWS];
    hd_step slab = *slabs->step;
    hd_space space;

    slab.span = span;
    for (int64_t from = 0, past; from < slabs->room; from = past) {
        past = next_count(slabs, count, from);
        hd_slab_spans(slabs, i, from, past, span);
        hd_space_of_step(&slab, &space);
        if (hd_span_elements(&span[0]) > 0)
            compute_reduction(
                &slab, &space,
                (slices){.count = count, .apart = slabs->apart, .past = past},
                base);
    }
}

// Of counts that slabs have several of, whether each fits, in their order.
static void judge_counts(hd_cpu_scratch *scratch, const hd_slabs *slabs,
                         const int32_t *counts)
{
    const hd_span *all = &slabs->step->span[slabs->view];
    int64_t n = hd_span_elements(all);

    for (int64_t i = 0; i < n; i++)
        (void)hd_miscount_clamp(
            &scratch->miscount, i,
            counts[all->offset + hd_span_offset(all, 0, all->ndims, i)],
            slabs->room);
}

static void compute_slabs(hd_cpu_scratch *scratch, const hd_step *step,
                          void *const *base)
{
    hd_slabs slabs = hd_slabs_of(step);
    const int32_t *counts = base[slabs.view];
    hd_span span[HD_MAX_VIEWS];
    hd_step slab = *step;

    slab.span = span;
    if (slabs.folded >= 0)
        judge_counts(scratch, &slabs, counts);
    for (int64_t i = 0; i < slabs.n; i++) {
        int64_t n;

        if (slabs.folded >= 0) {
            reduce_slabs(&slabs, i, base);
            continue;
        }
        n = hd_miscount_clamp(&scratch->miscount, i,
                              counts[hd_slab_count(&slabs, i)], slabs.room);
        clear_rest(&slabs, i, n, base);
        hd_slab_spans(&slabs, i, 0, n, span);
        compute_whole(scratch, &slab, base);
    }
}

void hd_cpu_compute(hd_cpu_scratch *scratch, const hd_step *step,
                    void *const *base)
{
    // What attends does each element of its batch by its own counts.
    if (hd_op_has_counts(step->op) &&
        hd_op_family(step->op) != HD_FAMILY_ATTEND)
        compute_slabs(scratch, step, base);
    else
        compute_whole(scratch, step, base);
}
