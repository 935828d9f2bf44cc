// Sums taken apart: what a step adds up, past all that only moved it, and what
// the tensor program adds up in its place.
#ifndef HD_CHECK_SUMS_H
#define HD_CHECK_SUMS_H

#include "check/history.h"
#include "check/places.h"

HD_BEGIN_DECLS

// What a sum adds.
typedef struct hd_term {
    uint64_t value;
    uint64_t weight; // how often, modulo 2^64: sums of sums have more
    hd_reading from; // `from.at` is -1 for a product
    int64_t order;   // among the terms of its sum, as they are found
    bool extra;      // the other sum has less of it
} hd_term;

typedef struct hd_terms {
    hd_term *term; // owned
    int64_t n, room;
} hd_terms;

typedef struct hd_sums {
    const hd_evaluation *e;  // borrowed
    const hd_places *places; // borrowed
    hd_terms have, want;     // what the last comparison has found
    hd_diag *diag;           // borrowed
    hd_status status;
} hd_sums;

bool hd_op_is_sum(const hd_op *op);
// What the change wrote, and what is at `there` in the tensor program. The
// latest terms come first. HD_ERROR_UNSUPPORTED: they are too many.
hd_status hd_sums_compare(hd_sums *sums, const hd_change *change,
                          int64_t there);
// The first that the other sum has less of, NULL if there is none.
const hd_term *hd_terms_extra(const hd_terms *terms);
void hd_sums_free(hd_sums *sums);

HD_END_DECLS

#endif
