// Attention, its gradients and the merge of two: of any shape, strides and
// mask.
#ifndef HD_CODEGEN_ATTEND_H
#define HD_CODEGEN_ATTEND_H

#include "codegen/kernel.h"

HD_BEGIN_DECLS

hd_status hd_attend_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid);

// What follows an attention whose results went to scratch memory: o, dense, in
// the dtype of its operands at at[2], and lse, dense but for `padded - part`
// elements behind each `part` of them, at at[3]. They become the step's o and
// lse at at[0] and at[1]. Where it accumulates they are merged with that lse
// and with `before` at at[4], which has as many elements as o, may be of
// another dtype, and is o or has no memory in common with it. Rows have a
// multiple of 8 elements, 2048 at most.
hd_status hd_emit_join(const hd_step *step, const hd_span *before, int64_t part,
                       int64_t padded, hd_text *out, hd_kernel_grid *grid);

HD_END_DECLS

#endif
