// Edits of a parsed module that keep it a module, of which nothing else is
// known: what the verifier, the walk and the checker must be able to take.
#ifndef HD_TESTS_FUZZ_MUTATE_H
#define HD_TESTS_FUZZ_MUTATE_H

#include "tests/fuzz/fuzz.h"

HD_BEGIN_DECLS

// Makes up to `most` edits, and returns how many.
int mutate_module(hd_module *module, choices *choices, int most);

// Likewise, with indices and streams that stay in range, keys changed, operands
// exchanged and statements moved: of what it makes more is accepted.
int mutate_gently(hd_module *module, choices *choices, int most);

// The first few choices are for edits: a program takes as many as there are.
choices take_edits(choices *choices);

HD_END_DECLS

#endif
