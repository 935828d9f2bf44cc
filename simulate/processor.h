// Who computes, and how fast: in order on a rank's processor, or in equal
// shares on the few that the ranks of a node share.
#ifndef HD_SIMULATE_PROCESSOR_H
#define HD_SIMULATE_PROCESSOR_H

#include <heddle/simulate.h>

#include "simulate/simulation.h"

HD_BEGIN_DECLS

// The ranks of a node share processors, which also do the copying.
bool hd_processor_copies(const hd_simulation *s);

// `seconds` of work for the step `node`; `transfer`: it copies for others.
void hd_processor_start(hd_simulation *s, int rank, int64_t node,
                        double seconds, bool transfer);
void hd_processor_end(hd_simulation *s, int32_t id, bool transfer);
// After something has changed: how tasks go on, and which one ends next.
void hd_processor_share(hd_simulation *s, int rank);

HD_END_DECLS

#endif
