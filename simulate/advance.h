// The run itself: every stream of every rank goes from step to step, in the
// order of time.
#ifndef HD_SIMULATE_ADVANCE_H
#define HD_SIMULATE_ADVANCE_H

#include <heddle/simulate.h>

#include "simulate/simulation.h"

HD_BEGIN_DECLS

// False if something waits for ever, or agenda.status is not HD_OK.
bool hd_advance(hd_simulation *s);

HD_END_DECLS

#endif
