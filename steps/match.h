// Whether all ranks' transfers match: each send has its recv with the same
// number, elements, dtype and protocol, and every rank of a line of the mesh
// issues the same collectives in the same order.
#ifndef HD_STEPS_MATCH_H
#define HD_STEPS_MATCH_H

#include "steps/graph.h"

HD_BEGIN_DECLS

bool hd_graph_is_matched(const hd_graph *graph);
// The same as a status, with words for what does not match. Of all ranks: a
// folded graph has not the ranks that they would name.
hd_status hd_graph_match(const hd_graph *graph, hd_diag *diag);

HD_END_DECLS

#endif
