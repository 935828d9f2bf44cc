// Plain loops over what each element of the batch has, in order.
#include <heddle/verify.h>

#include "runtime/cpu/pick.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/signature.h"

// What a view has of one element of the batch: a matrix, or a row in it.
typedef struct matrix {
    char *at;
    hd_dtype dtype;
    size_t size; // bytes of an element
    int64_t rows, columns;
    int64_t row_stride, column_stride; // in elements
} matrix;

// `inner` dimensions of the view, its last ones, are the matrix's.
static matrix matrix_of(const hd_step *step, int view, void *base,
                        int64_t number)
{
    const hd_span *span = &step->span[view];
    int batch = hd_op_batch(step->op, view, span->ndims);
    int last = span->ndims - 1;
    matrix m = {.dtype = span->buffer->type.dtype,
                .size = hd_dtype_size(span->buffer->type.dtype),
                .rows = 1,
                .columns = span->extent[last],
                .column_stride = span->stride[last]};

    m.at =
        (char *)base + (span->offset + hd_span_offset(span, 0, batch, number)) *
                           (int64_t)m.size;
    if (last > batch) {
        m.rows = span->extent[batch];
        m.row_stride = span->stride[batch];
    }
    return m;
}

static int32_t *number_at(const matrix *m, int64_t row, int64_t column)
{
    return (int32_t *)(void *)(m->at + (row * m->row_stride +
                                        column * m->column_stride) *
                                           (int64_t)m->size);
}

static void fill_numbers(const matrix *m, int32_t number)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++)
            *number_at(m, i, j) = number;
}

// How many an expert has is where its next one goes.
static void route(const matrix *token, const matrix *slot, const matrix *count,
                  const matrix *expert)
{
    fill_numbers(token, -1);
    fill_numbers(count, 0);
    for (int64_t t = 0; t < expert->rows; t++)
        for (int64_t j = 0; j < expert->columns; j++) {
            int32_t e = *number_at(expert, t, j), place = -1;

            if (e >= 0 && e < token->rows) {
                int32_t *n = number_at(count, 0, e);

                if (*n < token->columns) {
                    place = (int32_t)(e * token->columns + *n);
                    *number_at(token, e, (*n)++) = (int32_t)t;
                }
            }
            *number_at(slot, t, j) = place;
        }
}

// -------------------------------------------------------------------- top_k

// A number of the row, in 64 bits of its kind.
typedef struct number {
    double d;
    int64_t i;
} number;

static number load(const matrix *row, int64_t at)
{
    const void *from = row->at + at * row->column_stride * (int64_t)row->size;
    number x = {0, 0};

    if (hd_dtype_is_integer(row->dtype))
        hd_dtype_load_integers(row->dtype, from, 1, &x.i);
    else
        hd_dtype_load(row->dtype, from, 1, &x.d);
    return x;
}

// A NaN is greater than every number. Of integers `d` is 0, of others `i`.
static bool is_greater(number x, number y)
{
    return x.i > y.i || x.d > y.d || (isnan(x.d) && !isnan(y.d));
}

// The greatest of those that come after `last`, at `before`: less, or equal and
// behind it; the first one of all, if `before` is -1.
static int64_t find_next(const matrix *row, number last, int64_t before,
                         number *best)
{
    int64_t found = -1;

    for (int64_t i = 0; i < row->columns; i++) {
        number x = load(row, i);

        if (before >= 0 &&
            (is_greater(x, last) || (i <= before && !is_greater(last, x))))
            continue;
        if (found < 0 || is_greater(x, *best)) {
            *best = x;
            found = i;
        }
    }
    return found;
}

static void pick_greatest(const matrix *best, const matrix *where,
                          const matrix *row)
{
    number last = {0, 0};
    int64_t at = -1;

    for (int64_t j = 0; j < best->columns; j++) {
        at = find_next(row, last, at, &last);
        assert(at >= 0); // k is not more than n
        memcpy(best->at + j * best->column_stride * (int64_t)best->size,
               row->at + at * row->column_stride * (int64_t)row->size,
               row->size);
        *number_at(where, 0, j) = (int32_t)at;
    }
}

static int64_t count_batch(const hd_step *step)
{
    hd_span all = step->span[0];

    all.ndims = hd_op_batch(step->op, 0, all.ndims);
    return hd_span_elements(&all);
}

void hd_cpu_pick(const hd_step *step, void *const *base)
{
    int64_t n = count_batch(step);
    matrix m[HD_PICK_VIEWS];

    for (int64_t b = 0; b < n; b++) {
        for (int i = 0; i < step->op->nviews; i++)
            m[i] = matrix_of(step, i, base[i], b);
        switch (hd_op_pick(step->op)) {
        case HD_PICK_ROUTE:
            route(&m[0], &m[1], &m[2], &m[3]);
            break;
        case HD_PICK_TOP_K:
            pick_greatest(&m[0], &m[1], &m[2]);
            break;
        case HD_PICK_NONE:
            break;
        }
    }
}
