// What moves of dimensions that ranks have unevenly many indices of.
//
// Blocks of which the last ones are shorter are one piece of memory, or have as
// many bytes on each rank, only by way of a temporary with room for the
// longest: copies take what there is into that, and what is behind it is zero.
//
//     %y = all_gather %x[:, tp of 4] dim 1     of 6 by 10; n is 3, at last 1
//
//         %x_2[:, n..3] = fill value 0
//         %x_2[:, 0..n] = copy %x[:, tp of 4]
//         %y_2 = all_gather %x_2               [4, 6, 3] of [6, 3]
//         for i in 0..4 { %y[:, i of 4] = copy %y_2[i, :, 0..n of i] }
//
// Of a length that a run says nobody knows the rest: it stands in front there,
// where any block is contiguous, and goes from rank to rank as it is. So do
// blocks that are contiguous anyhow: they are gathered and exchanged in rounds,
// in each of which a rank sends to one and receives from one.
#ifndef HD_LOWER_PAD_H
#define HD_LOWER_PAD_H

#include "lower/build.h"

HD_BEGIN_DECLS

// Whether a transfer moves by way of what is made here: of blocks that need not
// be as long as each other, of a length that a run says behind another
// dimension, or of eight dimensions, among which pieces of ranks have no room.
bool hd_moves_uneven(const hd_module *module, const hd_op *op);
// Whether each of its pieces is contiguous, of whatever block.
bool hd_moves_dense(const hd_module *module, const hd_op *op);

// How many transfers it takes: one but for what has eight dimensions, where
// pieces of ranks have no room for one more.
int64_t hd_uneven_transfers(const hd_module *module, const hd_op *op);

// Appends the statements that do what the transfer of `stmt` does, with memory
// of their own where it is none of these.
void hd_build_uneven(hd_build *b, hd_stmt *stmt);

// A gather (`of` is -1, and `in` goes to each), or an exchange: piece r of
// dimension `of` of `in` to rank r, and what comes from r into piece r of
// dimension `into` of `out`. Blocks may be empty.
void hd_build_rounds(hd_build *b, int axis, hd_view out, int into, hd_view in,
                     int of);

HD_END_DECLS

#endif
