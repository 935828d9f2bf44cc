// An order of a body's statements in which more is computed while something
// travels.
//
// Transfers by themselves have a stream of their own, beside that of all else.
// By a rough estimate of how long each takes, which is the same for all
// machines, what leads to the longest way comes first of what may come next,
// and a transfer once that before it has ended: none begins early for nothing,
// so that no more is in memory than has to be.
#ifndef HD_LOWER_SEQUENCE_H
#define HD_LOWER_SEQUENCE_H

#include "ir/module.h"

HD_BEGIN_DECLS

typedef struct hd_sequenced {
    const hd_block *block;
    bool travels; // on the stream for transfers
    bool holds;   // nothing may pass it
} hd_sequenced;

// `order` gets which of them comes first, second ..; as they stand, unless it
// is estimated that another order takes less time by some percent.
void hd_sequence(const hd_module *module, const hd_sequenced *item, int n,
                 hd_arena *scratch, int *order);

HD_END_DECLS

#endif
