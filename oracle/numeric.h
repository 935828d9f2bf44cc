// One operation in double precision, each value beside a bound on the error
// that a correct run may show. docs/numerics.md derives the bounds.
#ifndef HD_ORACLE_NUMERIC_H
#define HD_ORACLE_NUMERIC_H

#include "eval/layout.h"

HD_BEGIN_DECLS

typedef struct hd_estimate {
    double value;  // NaN until written
    double bound;  // HD_UNWRITTEN until then
    int64_t whole; // of an integer dtype exactly what `value` is nearest to;
                   // else 0
} hd_estimate;

#define HD_UNWRITTEN (-1.0) // a bound that no computation gives

// Computes a step of unit COMPUTE; offsets of its spans are places in `memory`.
// HD_ERROR_NO_MEMORY if it runs out.
hd_status hd_numeric_compute(const hd_step *step, hd_estimate *memory);

// What is at `to` is element `i` of each of n spans, joined in order.
void hd_numeric_join(hd_estimate *memory, hd_fold fold, hd_dtype dtype,
                     int64_t to, const hd_span *from, int64_t n, int64_t i);

// A count as it is taken: of no less than no indices, of no more than there is
// room for.
int64_t hd_numeric_count(const hd_estimate *memory, int64_t at, int64_t room);

HD_END_DECLS

#endif
