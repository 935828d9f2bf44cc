// What products of a launch take that one kernel does, tile by tile.
#ifndef HD_SIMULATE_LAUNCH_H
#define HD_SIMULATE_LAUNCH_H

#include "simulate/simulation.h"

HD_BEGIN_DECLS

// Of the step, a product that starts now, of a launch that is under way. False
// if that is no kernel of tiles: its products are as others are.
bool hd_launch_seconds(hd_simulation *s, int rank, int64_t step, double *out);

HD_END_DECLS

#endif
