// Random arrays that are the same for the same seed on every machine, whatever
// part of them is drawn first.
#ifndef HD_TOOLS_RANDOM_H
#define HD_TOOLS_RANDOM_H

#include "tool.h"

// `n` elements: floating point near a normal distribution with variance 1,
// rounded to the dtype; integers from -8 to 7 (u8: 0 to 15).
void random_fill(hd_dtype dtype, uint64_t seed, size_t n, void *to);

// `n` counts in vectors of `groups`, each of which shares `rows` rows out, all
// of them or some. Many groups have none, and some vectors one that has any.
void random_counts(uint64_t seed, size_t n, size_t groups, int64_t rows,
                   int32_t *to);

// `n` indices of a dimension of that extent: a few are none of it, ahead of it
// or behind.
void random_indices(uint64_t seed, size_t n, int64_t extent, int32_t *to);

// `n` counts of a dimension of extent `most`: none, all or some of its indices.
void random_lengths(uint64_t seed, size_t n, int64_t most, int32_t *to);

// An input as the program needs it: counts of a grouped matmul fit its rows,
// those of a dimension fit that, and indices mostly what `take` takes from.
void random_input(const hd_argument *argument, uint64_t seed, void *to);

// The numbers 0 to n - 1, each once, in any order.
void random_order(uint64_t seed, int n, int *order);

// The finalizer of splitmix64: every bit of `x` changes half of the result's.
uint64_t random_mix(uint64_t x);

#endif
