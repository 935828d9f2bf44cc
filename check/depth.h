// How deep each step of two runs is, under the weakest ordering, where sends
// wait for nobody: what must end before a step starts is less deep.
#ifndef HD_CHECK_DEPTH_H
#define HD_CHECK_DEPTH_H

#include "steps/graph.h"

HD_BEGIN_DECLS

typedef struct hd_depth {
    int32_t *start; // owned: where a step starts; rank r's from 2 first[r] on
    int32_t *turn;  // owned, by rank: where the caller's stream has come to the
                    // end of the first run; 0 if it has no steps
} hd_depth;

// The graph's program does not deadlock.
hd_status hd_depth_create(const hd_graph *graph, hd_diag *diag, hd_depth *out);
void hd_depth_free(hd_depth *depth);

HD_END_DECLS

#endif
