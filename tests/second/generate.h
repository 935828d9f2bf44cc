// Host programs from nothing: meshes of 1 to 4 ranks, up to 3 streams, events,
// groups, deferred sends, every collective, loops and conditions. They are
// right as written, by a simple rule: before each step the stream is made to
// wait for all that the step could conflict with, in one of several ways.
// Slips are put in afterwards (change.h).
#ifndef HD_TESTS_SECOND_GENERATE_H
#define HD_TESTS_SECOND_GENERATE_H

#include <random>
#include <string>

namespace second
{

std::string Generate(std::mt19937 &random);

} // namespace second

#endif
