// One operation in double precision, each value beside a bound on the error
// that a correct run may show. docs/numerics.md derives the bounds.
#ifndef HD_ORACLE_NUMERIC_H
#define HD_ORACLE_NUMERIC_H

#include "eval/compute.h"

HD_BEGIN_DECLS

typedef struct hd_estimate {
    double value;  // NaN until written
    double bound;  // HD_UNWRITTEN until then
    int64_t whole; // of an integer dtype exactly what `value` is nearest to;
                   // else 0
} hd_estimate;

#define HD_UNWRITTEN (-1.0) // a bound that no computation gives

// Of memories that are arrays of estimates.
extern const hd_algebra hd_numeric;

HD_END_DECLS

#endif
