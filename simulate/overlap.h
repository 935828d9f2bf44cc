// Transfers that the order of a program keeps from overlapping with compute,
// though its data does not.
#ifndef HD_SIMULATE_OVERLAP_H
#define HD_SIMULATE_OVERLAP_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// For a program in which nothing overlaps: warns of the first transfer beside
// which some compute of the same rank could run, going by what both read and
// write. Programs with too many steps are passed over. HD_OK, or
// HD_ERROR_NO_MEMORY.
hd_status hd_overlap_lint(const hd_graph *graph, hd_diag *diag);

HD_END_DECLS

#endif
