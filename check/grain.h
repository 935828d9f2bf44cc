// How finely values have to be distinguished. Along a dimension that no step
// picks an index of, all indices are treated alike, so two of them stand for
// all: each for some, of a number that is drawn (check/value). Where names of
// other shapes cut a dimension into pieces, that holds within a piece, the unit
// of the dimension; a dimension whose unit is 1 is distinguished index by
// index.
//
//     %a  : bf16[4@tp, 128, 1024]      128 = 2 pieces of 64: 2 x 2 stand for it
//     %ac : bf16[4@tp, 2, 64, 1024]    1024: 2 stand for it
#ifndef HD_CHECK_GRAIN_H
#define HD_CHECK_GRAIN_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// A buffer of which only the indices that stand for others are kept.
typedef struct hd_sieve {
    int ndims;
    int64_t extent[HD_MAX_DIMS]; // how many are kept
    int64_t stride[HD_MAX_DIMS];
    int64_t unit[HD_MAX_DIMS];
    int64_t whole[HD_MAX_DIMS]; // the extent before
    int64_t elements;
} hd_sieve;

typedef struct hd_grain {
    hd_sieve *dense; // owned: whole tensors of the tensor program, by buffer id
    hd_sieve *local; // owned: a rank's shards of the host program, by buffer id
} hd_grain;

// For each buffer of the tensor program the one of the host program that is the
// same argument, NULL for none.
hd_status hd_grain_create(const hd_graph *graph, const hd_module *tensor,
                          const hd_buffer *const *argument, hd_diag *diag,
                          hd_grain *out);
void hd_grain_free(hd_grain *grain);

// How many indices an index that is kept stands for, where they are counted for
// those who read it: the last one for itself.
static inline int64_t hd_sieve_weight(int64_t unit, int64_t index)
{
    return unit == 1 || index % 2 != 0 ? 1 : unit - 1;
}

// How many of the first `n` indices of a dimension, some units, are kept.
static inline int64_t hd_sieve_index(const hd_sieve *sieve, int d, int64_t n)
{
    return sieve->unit[d] == 1 ? n : n / sieve->unit[d] * 2;
}

HD_END_DECLS

#endif
