// What the accesses of a rank to its own buffers may do to each other: races,
// reads of what nothing has written, outputs that are not written whole, work
// that is not bound to its run.
#ifndef HD_CHECK_RACE_H
#define HD_CHECK_RACE_H

#include "steps/cells.h"

HD_BEGIN_DECLS

// The graph's program does not deadlock. Each pair of places in the source is
// reported once, for the first rank that has it. HD_ERROR_INVALID if anything
// was. `visits`, unless it is NULL, is how many steps were looked at for order
// by way of peers.
hd_status hd_race_check(const hd_graph *graph, unsigned serial, hd_diag *diag,
                        int64_t *visits);

// Says nothing: whether what each rank orders by itself leaves anything to be
// reported. Where it does, order by way of peers may still mend it.
hd_status hd_race_look(const hd_graph *graph, hd_diag *diag, bool *found);

HD_END_DECLS

#endif
