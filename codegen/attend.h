// Attention and the merge of two, of any strides: correct for every shape. A
// thread has a row, and meets its keys some at a time.
#ifndef HD_CODEGEN_ATTEND_H
#define HD_CODEGEN_ATTEND_H

#include "codegen/emit.h"

HD_BEGIN_DECLS

hd_status hd_attend_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid);

HD_END_DECLS

#endif
