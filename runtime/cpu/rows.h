// What a step of family ATTEND has of one element of its batch: rows of heads,
// read as double precision and rounded where they are stored.
#ifndef HD_RUNTIME_CPU_ROWS_H
#define HD_RUNTIME_CPU_ROWS_H

#include "ir/walk.h"

HD_BEGIN_DECLS

// [heads, rows, columns], of any stride.
typedef struct hd_cpu_rows {
    char *at;
    hd_dtype dtype;
    size_t size; // bytes of an element
    int64_t extent[3], stride[3];
} hd_cpu_rows;

// Of a view, whose root buffer is at `base`, element `number` of the batch,
// along which it may repeat.
hd_cpu_rows hd_cpu_rows_of(const hd_step *step, int view, void *base,
                           int64_t number);
// Rows [from, from + n) of each head.
hd_cpu_rows hd_cpu_rows_part(const hd_cpu_rows *b, int64_t from, int64_t n);
void hd_cpu_rows_load(const hd_cpu_rows *b, int64_t head, int64_t row,
                      double *to);
void hd_cpu_rows_store(const hd_cpu_rows *b, int64_t head, int64_t row,
                       const double *from);
// All of its columns.
void hd_cpu_rows_fill(const hd_cpu_rows *b, int64_t head, int64_t row,
                      double x);
// The first column alone.
double hd_cpu_rows_number(const hd_cpu_rows *b, int64_t head, int64_t row);
void hd_cpu_rows_put_number(const hd_cpu_rows *b, int64_t head, int64_t row,
                            double x);

// What scores are multiplied by.
double hd_cpu_rows_scale(const hd_step *step, void *const *base);

HD_END_DECLS

#endif
