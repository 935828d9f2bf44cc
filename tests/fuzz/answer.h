// Executing a program in this process: arrays to begin from, the reference's
// answer, and whether two answers agree.
#ifndef HD_TESTS_FUZZ_ANSWER_H
#define HD_TESTS_FUZZ_ANSWER_H

#include <heddle/verify.h>

#include "tests/fuzz/fuzz.h"

HD_BEGIN_DECLS

enum { MAX_ARGUMENTS = 512 };

typedef struct arrays {
    size_t n;
    void *whole[MAX_ARGUMENTS]; // owned
} arrays;

hd_argument argument_of(const hd_module *module, size_t i);

// What this run is given, the same for both: with seed 0 the greatest values.
void give_sizes(hd_module *tensor, hd_module *host, uint64_t seed);

// Whole numbers that the generator's bounds allow; what is behind a count is
// none.
arrays draw_arrays(const hd_module *module, uint64_t seed);
void free_arrays(arrays *arrays);

// What functions of a caller's compute, no reference knows.
bool has_reference(const hd_module *module);
// The program must execute.
hd_reference *compute(const hd_module *module, const arrays *arrays);

// `want` is the answer of the program `tensor`, `have` that of `host`, which it
// was lowered to and which is shown if they differ. Equal values, or if not
// `exact` values whose bounds overlap.
void must_agree(const hd_module *tensor, const hd_module *host,
                const hd_reference *want, const hd_reference *have, bool exact);

// The values that a rank should hold of argument `a` are these, or within these
// bounds of them.
void must_equal(const double *want, const double *have, const double *bound,
                const hd_argument *a, const hd_module *host, const char *where);
void must_be_close(const double *want, const double *have, const double *bound,
                   const hd_argument *a, const hd_module *host,
                   const char *where);

HD_END_DECLS

#endif
