// Whether a program hangs by what its launches keep from starting
// (docs/checking.md, Launches): its steps as tests/model explores them.
#ifndef HD_TESTS_SECOND_LAUNCHES_H
#define HD_TESTS_SECOND_LAUNCHES_H

#include "tests/second/unroll.h"

namespace second
{

enum class Launches {
    END,     // always, or there are none
    HANG,    // in some interleaving, perhaps without them, too
    UNKNOWN, // there are too many interleavings
};

// Of a program whose transfers meet, and whose steps have a meaning on each
// rank.
Launches Explore(const Program &program);

} // namespace second

#endif
