// Executes one run of all ranks in one order that the program allows. Where it
// is proven that nothing races, every order leaves the same behind, so this one
// decides for all.
#ifndef HD_CHECK_EXECUTE_H
#define HD_CHECK_EXECUTE_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// Called with each step that computes; of a send and its recv with the recv,
// and of a collective with one of its members, once all of them have started.
typedef hd_status hd_execute_fn(void *context, int rank, int64_t step);

// The graph is matched and does not deadlock.
hd_status hd_execute(const hd_graph *graph, hd_execute_fn *fn, void *context,
                     hd_diag *diag);

HD_END_DECLS

#endif
