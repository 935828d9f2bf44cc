// How far a rank's answer is from the reference.
#ifndef HD_TOOLS_VERIFY_H
#define HD_TOOLS_VERIFY_H

#include <heddle/verify.h>

#include "tool.h"

// One element and what it should have been.
typedef struct finding {
    double value, expected;
    double error; // infinite for a NaN that should not be there
    double bound; // what the error may be
    double ratio; // error over bound
    int rank;
    size_t index; // in the rank's shard
    int64_t run;  // from 1
} finding;

typedef struct verdict {
    size_t checked, off; // values, and those beyond their bound
    size_t unbounded;    // values that differ where none would be wrong
    finding largest;     // the largest error
    finding worst;       // the largest ratio
} verdict;

// What a program's answers are held to.
typedef struct standard {
    const hd_module *module;       // the program that runs
    const hd_reference *reference; // of what it should compute
    const void *const *whole;      // its inputs
    // The program's own reference, made where it is wanted, for the caller to
    // destroy. NULL if `reference` is that.
    hd_reference **own;
} standard;

// Adds the shard of argument `i` that `rank` computed in run `run`: by the
// bounds of what it should compute; where these are too narrow, by those of the
// program itself, which may round sums of ranks in between. One that is
// infinite allows nothing.
hd_status verdict_add(verdict *verdict, const standard *standard, size_t i,
                      int rank, int64_t run, const void *local, hd_diag *diag);

// Adds `n` elements of `dtype` in a row, the first of which `place` names.
void verdict_values(verdict *verdict, hd_dtype dtype, const void *got,
                    const double *values, const double *bounds, size_t n,
                    const finding *place);

void verdict_merge(verdict *verdict, const struct verdict *other);

// Prints one line, or two where the answer is wrong; FAILED then. What has no
// bound is not called verified.
outcome verdict_report(const verdict *verdict, const hd_argument *argument,
                       FILE *to);

#endif
