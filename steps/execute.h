// Executes one run of all ranks in one order that the program allows. Where it
// is proven that nothing races, every order leaves the same behind, so this one
// decides for all.
#ifndef HD_STEPS_EXECUTE_H
#define HD_STEPS_EXECUTE_H

#include "steps/schedule.h"

HD_BEGIN_DECLS

// Called with each step that computes; of a send and its recv with the recv,
// and of a collective with one of its members, once all of them have started.
typedef hd_status hd_execute_fn(void *context, int rank, int64_t step);

// `out` says where a program that deadlocks is stuck; the caller closes it.
hd_status hd_execute(const hd_graph *graph, hd_execute_fn *fn, void *context,
                     hd_diag *diag, hd_schedule *out);

HD_END_DECLS

#endif
