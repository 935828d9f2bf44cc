// Random arrays that are the same for the same seed on every machine, whatever
// part of them is drawn first.
#ifndef HD_TOOLS_RANDOM_H
#define HD_TOOLS_RANDOM_H

#include "tool.h"

// `n` elements: floating point near a normal distribution with variance 1,
// rounded to the dtype; integers from -8 to 7 (u8: 0 to 15).
void random_fill(hd_dtype dtype, uint64_t seed, size_t n, void *to);

// The numbers 0 to n - 1, each once, in any order.
void random_order(uint64_t seed, int n, int *order);

// The finalizer of splitmix64: every bit of `x` changes half of the result's.
uint64_t random_mix(uint64_t x);

#endif
