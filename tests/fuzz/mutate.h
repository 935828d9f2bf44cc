// Edits of a parsed module that keep it a module, of which nothing else is
// known: what the verifier, the walk and the checker must be able to take.
#ifndef HD_TESTS_FUZZ_MUTATE_H
#define HD_TESTS_FUZZ_MUTATE_H

#include "tests/fuzz/fuzz.h"

HD_BEGIN_DECLS

// Makes up to `most` edits, and returns how many.
int mutate_module(hd_module *module, choices *choices, int most);

HD_END_DECLS

#endif
