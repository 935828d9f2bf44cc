// The explicit program that `place` leaves.
#ifndef HD_LOWER_PLACED_H
#define HD_LOWER_PLACED_H

#include "lower/version.h"

HD_BEGIN_DECLS

// Writes each statement as its way has it, with what moves for it.
void hd_place_write(hd_placing *p);

HD_END_DECLS

#endif
