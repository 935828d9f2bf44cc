// Slips in programs, and smaller programs with the same one.
#ifndef HD_TESTS_SECOND_CHANGE_H
#define HD_TESTS_SECOND_CHANGE_H

#include <functional>
#include <random>

#include "tests/second/program.h"

namespace second
{

// Changes one thing. The result may be no program at all.
void Slip(Program *program, std::mt19937 &random);

// Leaves out statements, blocks and buffers for as long as `fails` holds.
Program Shrink(Program program,
               const std::function<bool(const Program &)> &fails);

} // namespace second

#endif
