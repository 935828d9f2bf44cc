// Advice on what is not ordered, tried before it is given.
#ifndef HD_CHECK_REPAIR_H
#define HD_CHECK_REPAIR_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// Steps x and y of one run of a rank, x issued first: whether each rank still
// comes to its end if y's op waits for x's as many rounds back as here.
// `serial` has a bit for each axis that NCCL is to serve.
hd_status hd_repair_try_wait(const hd_graph *graph, unsigned serial, int rank,
                             int64_t x, int64_t y, hd_diag *diag, bool *works);

// The step before `end` that records the event of a deferred send again, so
// that no later wait is for that send; -1 if there is none.
hd_status hd_repair_find_again(const hd_graph *graph, int rank, int64_t send,
                               int64_t end, hd_diag *diag, int64_t *again);

HD_END_DECLS

#endif
