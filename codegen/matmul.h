// Matmuls of any strides and floating dtypes, an output element a thread, and
// what follows a product that a library made.
#ifndef HD_CODEGEN_MATMUL_H
#define HD_CODEGEN_MATMUL_H

#include "codegen/kernel.h"

HD_BEGIN_DECLS

hd_status hd_matmul_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid);
hd_status hd_matmul_finish(const hd_step *step, hd_text *out,
                           hd_kernel_grid *grid);

HD_END_DECLS

#endif
