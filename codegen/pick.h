// Ops of which data decides what goes where, of any strides.
#ifndef HD_CODEGEN_PICK_H
#define HD_CODEGEN_PICK_H

#include "codegen/kernel.h"

HD_BEGIN_DECLS

hd_status hd_pick_emit(const hd_step *step, hd_text *out, hd_kernel_grid *grid);

HD_END_DECLS

#endif
