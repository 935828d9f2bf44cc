// What a transfer moves as one piece of memory.
//
// Passes before pipelines are known let a transfer name its dimensions, and
// have views of any stride. Here its pieces get memory of their own, where they
// lie one behind the other: a temporary of which everything takes an index or a
// block in those dimensions lies so itself; of what else there is a copy ahead
// of the transfer, or behind it.
//
//     %xg[:, j] = broadcast %x[:, tp]       %xg_2[j] = broadcast %x[:, tp]
//     %y[:, j] = matmul %xg[:, j], ..   ->  %y[:, j] = matmul %xg_2[j], ..
//
//     %y = all_gather %x[:, tp] dim 1   ->  %y_2 = all_gather %x[:, tp]
//                                           %y = permute %y_2 order (1, 0, 2)
#ifndef HD_LOWER_PACK_H
#define HD_LOWER_PACK_H

#include "lower/build.h"

HD_BEGIN_DECLS

// Whether views of the transfer, as they are, are no one piece of memory each,
// or pieces of ranks are not as long as each other.
bool hd_needs_packing(const hd_module *module, const hd_op *op);
// What a collective that needs none says to have in pieces of ranks begins with
// an index of each, by another name of the bytes.
void hd_pack_lead(hd_build *b, hd_op *op);
// What a text has ranks have pieces of a part of: that gets a temporary of its
// own, which they have pieces of all of.
void hd_lift_parts(hd_module *module);
// `scratch` holds its temporaries.
void hd_pack(hd_module *module, hd_arena *scratch);

HD_END_DECLS

#endif
