// The one clock that waits go by. Tests put another in its place, which stands
// still while the machine has no time for them (tests/clock.c): so whoever
// waits in the system for as long as is left looks at this clock again before
// it gives up.
#ifndef HD_RUNTIME_RANKS_CLOCK_H
#define HD_RUNTIME_RANKS_CLOCK_H

#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

// Nanoseconds of a clock that never jumps.
int64_t hd_clock(void);

HD_END_DECLS

// The moment `seconds` from now, INT64_MAX if that is too far to say.
static inline int64_t hd_clock_after(double seconds)
{
    if (!(seconds > 0)) // also no number at all: nothing waits for ever on it
        return hd_clock();
    if (seconds >= 1e9)
        return INT64_MAX;
    return hd_clock() + (int64_t)(seconds * 1e9);
}

#endif
