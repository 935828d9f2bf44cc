// What a fused op means: the same as its parts, one after the other.
//
//     %c = all_gather_matmul@tp %a, %b        %g[n, ..] = all_gather@tp %a
//                                             %c = matmul %g, %b
//     %c = matmul_reduce_scatter@tp %a, %b    %p[n, ..] = matmul %a, %b
//                                             %c = reduce_scatter@tp %p
//     %c = matmul_all_reduce@tp %a, %b        %p = matmul %a, %b
//                                             %c = all_reduce@tp %p
//
// Who orders or prices steps has a fused op as one collective. Who computes
// values, and a driver that has no kernel for it, takes the parts instead.
#ifndef HD_IR_PARTS_H
#define HD_IR_PARTS_H

#include "ir/walk.h"

HD_BEGIN_DECLS

enum { HD_FUSED_PARTS = 2 }; // statements, and steps, of one

// The types that a fused op's matmul has for its result and its first operand.
// False if these would have too many dimensions.
bool hd_fused_types(const hd_module *module, const hd_op *op, hd_type *out,
                    hd_type *a);

// Whether it is a fused op of an axis of `most` ranks or fewer.
bool hd_op_splits(const hd_module *module, const hd_op *op, int64_t most);
// The same program with such ops as their parts, to be walked; NULL if there
// are none.
hd_status hd_module_split(const hd_module *module, int64_t most, hd_diag *diag,
                          hd_module **out);

HD_END_DECLS

#endif
