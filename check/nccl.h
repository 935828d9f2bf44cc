// Steps that no driver does over NCCL.
#ifndef HD_CHECK_NCCL_H
#define HD_CHECK_NCCL_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// HD0709 for each op of which some step, along an axis that `serial` has a bit
// for, is none that a session over NCCL takes (ir/transport.h).
hd_status hd_nccl_check(const hd_graph *graph, unsigned serial, hd_diag *diag);

HD_END_DECLS

#endif
