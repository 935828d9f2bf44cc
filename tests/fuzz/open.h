// Temporaries of a generated program left open, so that `place` finds where
// they lie, and what moves: the program that declares them has the same answer.
#ifndef HD_TESTS_FUZZ_OPEN_H
#define HD_TESTS_FUZZ_OPEN_H

#include "tests/fuzz/fuzz.h"

HD_BEGIN_DECLS

// The text without most declarations of temporaries that statements say, or
// with a part of one, as `seed` has it; NULL if there are none. The caller
// frees it with hd_free.
char *open_temps(const char *text, uint64_t seed);

HD_END_DECLS

#endif
