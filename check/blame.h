// Which statement is to blame for an element of an output that is made of
// something else than the tensor program makes it of.
#ifndef HD_CHECK_BLAME_H
#define HD_CHECK_BLAME_H

#include "check/places.h"

HD_BEGIN_DECLS

typedef struct hd_blame {
    const hd_evaluation *e; // borrowed: it has kept its changes
    hd_places places;
    int64_t looks;             // places that may yet be looked at for a value
    const hd_op *reported[20]; // statements that were reported
    int nreported;
} hd_blame;

hd_status hd_blame_create(hd_evaluation *e, hd_blame *out);
void hd_blame_free(hd_blame *blame);

// Tells, as an error, who is to blame for element `i` of a rank's shard.
hd_status hd_blame_report(hd_blame *blame, const hd_buffer *tensor, int rank,
                          int64_t i, hd_diag *diag);

HD_END_DECLS

#endif
