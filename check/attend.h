// Attention in the field. A key has a weight in each row, a random function of
// their score; `lse` stands for what the weights of a row add up to, and `o` is
// their mean of v. So whatever attends to the same keys, in any parts and in
// any order, makes the same. Gradients are those of the formulas, with weights
// divided by what `lse` says they add up to: so parts of keys and of rows, each
// with the whole o and lse, add up to the same.
#ifndef HD_CHECK_ATTEND_H
#define HD_CHECK_ATTEND_H

#include "check/value.h"
#include "ir/causal.h"

HD_BEGIN_DECLS

// One element of a batch.
typedef struct hd_attention {
    const hd_op *op;
    hd_span tile[HD_ATTEND_VIEWS];
    int64_t nblocks;                // of keys; tiles are of the first
    int64_t apart[HD_ATTEND_VIEWS]; // of a view a block from the next
    hd_sight sight;                 // of keys that are counted
    int64_t rows;                   // how many are counted
    bool has_sequences;             // by counts, which are unknowns
    uint64_t sequences;             // a random function of all of these
    uint64_t scale;
    bool updates; // o and lse hold what other keys made
    int lse;      // whose dtype results have before they are stored: its view
} hd_attention;

void hd_attend_rows(hd_values *values, const hd_attention *a);
void hd_attend_merge(hd_values *values, const hd_attention *a);
void hd_attend_grads(hd_values *values, const hd_attention *a);

HD_END_DECLS

#endif
