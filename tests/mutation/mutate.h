// Changes one thing of a host program: what a lowering pass with a bug, or a
// person, might do to it.
#ifndef HD_TESTS_MUTATION_MUTATE_H
#define HD_TESTS_MUTATION_MUTATE_H

#include <random>
#include <string>

#include "ir/module.h"

// Edits the module in place and says what was done; "" if that edit finds
// nothing here to change. The result may be no program at all: print it and
// parse that.
std::string Mutate(hd_module *module, std::mt19937 &random);

#endif
