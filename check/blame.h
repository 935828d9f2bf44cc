// Which statement is to blame for an element of an output that is made of
// something else than the tensor program makes it of.
#ifndef HD_CHECK_BLAME_H
#define HD_CHECK_BLAME_H

#include "check/evaluate.h"

HD_BEGIN_DECLS

// A value of the tensor program and where it is there first.
typedef struct hd_known {
    uint64_t value;
    int64_t order; // which of several is first
    int64_t at;
} hd_known;

// The statement that makes a tensor: NULL and 0 for an input.
typedef struct hd_maker {
    const hd_op *op;
    int64_t order; // counted from 1
} hd_maker;

typedef struct hd_blame {
    const hd_evaluation *e; // borrowed: it has kept its changes, which are
                            // sorted by place and time here
    hd_known *named;        // owned: sorted by value
    int64_t nnamed;
    hd_maker *maker;           // owned: by id of a tensor
    int64_t looks;             // places that may yet be looked at for a value
    const hd_op *reported[20]; // statements that were reported
    int nreported;
} hd_blame;

hd_status hd_blame_create(hd_evaluation *e, hd_blame *out);
void hd_blame_free(hd_blame *blame);

// When the element was last written; 0 if it never was.
int64_t hd_blame_written(const hd_blame *blame, int64_t at);

// Tells, as an error, who is to blame for element `i` of a rank's shard.
hd_status hd_blame_report(hd_blame *blame, const hd_buffer *tensor, int rank,
                          int64_t i, hd_diag *diag);

HD_END_DECLS

#endif
