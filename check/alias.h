// Steps that write what they also read.
#ifndef HD_CHECK_ALIAS_H
#define HD_CHECK_ALIAS_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// HD0809 for each op of which some step on some rank has a result over an
// operand, or over another result, in a way that its meaning does not allow.
hd_status hd_alias_check(const hd_graph *graph, hd_diag *diag);

HD_END_DECLS

#endif
