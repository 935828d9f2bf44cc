// Gradients that are added to zeros, as those of the first block of keys are,
// and those of each block's own keys. What a step's gradients are the first to
// touch of a fill with zeros they store, and a fill of which they store all is
// no step:
//
//     %dq = fill value 0                                          nothing
//     %dk = fill value 0                                          nothing
//     %dq, %dk[0], .. = attention_grad .., %k[0], .. accumulate   both stored
//     %dq, %dk[1], .. = attention_grad .., %k[1], .. accumulate   %dk[1] stored
//
// Which ones these are the rank and its masks decide, so that the text of a
// program, which is of all ranks, does not say it. In zigzag half of a block's
// keys may be seen by no row: there the fill stays.
#ifndef HD_IR_ZEROS_H
#define HD_IR_ZEROS_H

#include "ir/walk.h"

HD_BEGIN_DECLS

// Of ranks with more steps all are as they are written.
#define HD_ZEROS_MOST 4096

// Of the steps that a rank has as they are written, by index: which results
// are stored, or HD_ZEROS_NO_STEP.
typedef struct hd_zeros {
    uint8_t *of; // owned; NULL: all are as they are written
    int64_t nsteps;
} hd_zeros;

#define HD_ZEROS_NO_STEP UINT8_MAX

// Whether it adds to what may hold zeros.
bool hd_zeros_may_be_stored(const hd_op *op);
hd_status hd_zeros_find(const hd_module *module, int64_t rank, hd_diag *diag,
                        hd_zeros *out);
void hd_zeros_free(hd_zeros *zeros);

static inline uint8_t hd_zeros_at(const hd_zeros *zeros, int64_t i)
{
    return i < zeros->nsteps ? zeros->of[i] : 0;
}

HD_END_DECLS

#endif
