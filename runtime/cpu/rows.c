#include "runtime/cpu/rows.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/signature.h"
#include "runtime/cpu/matmul.h"

enum { CHUNK = 256 };

hd_cpu_rows hd_cpu_rows_of(const hd_step *step, int view, void *base,
                           int64_t number)
{
    const hd_span *span = &step->span[view], *out = &step->span[0];
    int lead = hd_op_batch(step->op, 0, out->ndims);
    int own = hd_op_batch(step->op, view, span->ndims);
    int64_t offset = span->offset;
    hd_cpu_rows b = {.dtype = span->buffer->type.dtype,
                     .size = hd_dtype_size(span->buffer->type.dtype),
                     .extent = {1, 1, 1}};

    for (int d = lead - 1; d >= 0; d--) {
        int mine = d - (lead - own);

        if (mine >= 0 && span->extent[mine] > 1)
            offset += number % out->extent[d] * span->stride[mine];
        number /= out->extent[d];
    }
    for (int d = own; d < span->ndims; d++) {
        b.extent[d - own] = span->extent[d];
        b.stride[d - own] = span->stride[d];
    }
    b.at = (char *)base + offset * (int64_t)b.size;
    return b;
}

static char *row_at(const hd_cpu_rows *b, int64_t head, int64_t row)
{
    return b->at +
           (head * b->stride[0] + row * b->stride[1]) * (int64_t)b->size;
}

hd_cpu_rows hd_cpu_rows_part(const hd_cpu_rows *b, int64_t from, int64_t n)
{
    hd_cpu_rows part = *b;

    part.at = row_at(b, 0, from);
    part.extent[1] = n;
    return part;
}

void hd_cpu_rows_load(const hd_cpu_rows *b, int64_t head, int64_t row,
                      double *to)
{
    const char *from = row_at(b, head, row);
    char dense[CHUNK * sizeof(double)];
    int64_t n = b->extent[2], step = b->stride[2] * (int64_t)b->size;

    if (b->stride[2] == 1) {
        hd_dtype_load(b->dtype, from, (size_t)n, to);
        return;
    }
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;

        for (int64_t i = 0; i < m; i++)
            memcpy(dense + (size_t)i * b->size, from + (at + i) * step,
                   b->size);
        hd_dtype_load(b->dtype, dense, (size_t)m, to + at);
    }
}

void hd_cpu_rows_store(const hd_cpu_rows *b, int64_t head, int64_t row,
                       const double *from)
{
    char *to = row_at(b, head, row);
    int64_t n = b->extent[2], step = b->stride[2] * (int64_t)b->size;

    if (b->stride[2] == 1) {
        hd_dtype_store(b->dtype, from, (size_t)n, to);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        hd_dtype_store(b->dtype, &from[i], 1, to + i * step);
}

void hd_cpu_rows_fill(const hd_cpu_rows *b, int64_t head, int64_t row, double x)
{
    char *to = row_at(b, head, row);

    for (int64_t i = 0; i < b->extent[2]; i++)
        hd_dtype_store(b->dtype, &x, 1,
                       to + i * b->stride[2] * (int64_t)b->size);
}

double hd_cpu_rows_number(const hd_cpu_rows *b, int64_t head, int64_t row)
{
    double x;

    hd_dtype_load(b->dtype, row_at(b, head, row), 1, &x);
    return x;
}

void hd_cpu_rows_put_number(const hd_cpu_rows *b, int64_t head, int64_t row,
                            double x)
{
    hd_dtype_store(b->dtype, &x, 1, row_at(b, head, row));
}

double hd_cpu_rows_scale(const hd_step *step, void *const *base)
{
    const hd_span *q = &step->span[step->op->noutputs];

    return hd_op_key(step->op, HD_KEY_SCALE) != NULL
               ? hd_cpu_factor(step, HD_KEY_SCALE, base)
               : 1 / sqrt((double)q->extent[q->ndims - 1]);
}
