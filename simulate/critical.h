// The critical path, read backwards from the last step that ended: each step
// knows what its start was waiting for.
#ifndef HD_SIMULATE_CRITICAL_H
#define HD_SIMULATE_CRITICAL_H

#include <heddle/simulate.h>

#include "simulate/simulation.h"

HD_BEGIN_DECLS

// Marks its steps, and sets the prediction's time and what it is made of.
void hd_critical_follow(hd_simulation *s);
// The same of times that were measured: what a step waited for is then the last
// to end of what it must wait for.
void hd_critical_find(hd_simulation *s);

HD_END_DECLS

#endif
