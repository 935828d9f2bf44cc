// A transfer from the moment when its first member comes to it: it starts when
// the last has come, takes its fixed part, then its bytes.
#ifndef HD_SIMULATE_TRANSFER_H
#define HD_SIMULATE_TRANSFER_H

#include <heddle/simulate.h>

#include "simulate/simulation.h"

HD_BEGIN_DECLS

// The stream of `rank` has come to this step.
void hd_transfer_reach(hd_simulation *s, int rank, int64_t step);
// The fixed part is over: of a send and recv that of the send `node`, of a
// collective that of its first member.
void hd_transfer_move(hd_simulation *s, int rank, int64_t node);
// All bytes are there: all steps of it have ended. Of a send and recv `node` is
// the send.
void hd_transfer_end(hd_simulation *s, int64_t node);

HD_END_DECLS

#endif
