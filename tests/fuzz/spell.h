// Operations of a generated program spelt as calls of functions that do the
// same, written here once more: so the program by operations has the answer of
// the one that calls.
#ifndef HD_TESTS_FUZZ_SPELL_H
#define HD_TESTS_FUZZ_SPELL_H

#include <heddle/call.h>

#include "tests/fuzz/fuzz.h"

HD_BEGIN_DECLS

// The text with about three in four of the operations that have a function
// spelt so, as `seed` has it; NULL if there are none. The caller frees it.
char *spell_calls(const char *text, uint64_t seed);

// The functions, for whole numbers that dtypes hold.
extern const hd_call spell_table[];
extern const size_t spell_count;

HD_END_DECLS

#endif
