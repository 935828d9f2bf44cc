// What the text says apart that products do by themselves.
#ifndef HD_LOWER_ENDS_H
#define HD_LOWER_ENDS_H

#include "lower/version.h"

HD_BEGIN_DECLS

// Of the explicit program: additions of what products make become their biases,
// and activations of that their `act`. `late` says by buffer id what has yet to
// arrive when it is read.
void hd_place_join_ends(const hd_placing *p, const bool *late);

HD_END_DECLS

#endif
