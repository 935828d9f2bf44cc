// One operation in double precision, each value beside a bound on the error
// that a correct run may show. docs/numerics.md derives the bounds.
#ifndef HD_ORACLE_NUMERIC_H
#define HD_ORACLE_NUMERIC_H

#include "ir/walk.h"

HD_BEGIN_DECLS

// A buffer's values. Both arrays have as many elements as the buffer.
typedef struct hd_estimates {
    double *value;  // owned; NaN until written
    int64_t *whole; // owned: of an integer dtype exactly what `value` is
                    // nearest to; else NULL
    double *bound;  // owned
} hd_estimates;

#define HD_UNWRITTEN (-1.0) // a bound that no computation gives

// Computes a step of unit COMPUTE: values[i] are those of the root buffer of
// span[i]. HD_ERROR_NO_MEMORY if it runs out.
hd_status hd_numeric_compute(const hd_step *step, hd_estimates *const *values);

// Copies what `from` picks to what `to` picks, element by element in order;
// nothing is rounded.
void hd_numeric_copy(const hd_span *to, hd_estimates *to_values,
                     const hd_span *from, const hd_estimates *from_values);

// Elements [from, end) of what `span` picks have no value from here on.
void hd_numeric_forget(const hd_span *span, hd_estimates *values, int64_t from,
                       int64_t end);

// to = n operands of equal shape, joined in order.
hd_status hd_numeric_reduce(hd_fold fold, const hd_span *to,
                            hd_estimates *to_values, int n, const hd_span *from,
                            hd_estimates *const *from_values);

HD_END_DECLS

#endif
