// Ranks that what `causal` says leaves more to attend to than others.
#ifndef HD_SIMULATE_UNEVEN_H
#define HD_SIMULATE_UNEVEN_H

#include "simulate/simulation.h"

HD_BEGIN_DECLS

// Warns of the rank whose attention takes the longest, where that is a quarter
// longer than the mean of ranks.
void hd_uneven_lint(hd_simulation *s, hd_diag *diag);

HD_END_DECLS

#endif
