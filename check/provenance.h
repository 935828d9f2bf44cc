// Whether a host program computes what its tensor program says: each element of
// each output is made of the same inputs by the same operations.
#ifndef HD_CHECK_PROVENANCE_H
#define HD_CHECK_PROVENANCE_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// The graph is that of a host program which is free of races and deadlocks.
// HD0901 at the statement that first takes, or makes, something else. Counts
// and sizes of runs are drawn by the seed, which 0 draws, too.
hd_status hd_provenance_check(const hd_graph *graph, const hd_module *tensor,
                              uint64_t seed, hd_diag *diag);

HD_END_DECLS

#endif
