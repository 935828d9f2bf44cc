// Products in tiles, by tensor cores where these take them: with groups, with
// counts of a dimension, and plain ones of any strides and dtypes.
#ifndef HD_CODEGEN_TILES_H
#define HD_CODEGEN_TILES_H

#include "codegen/kernel.h"

HD_BEGIN_DECLS

// Whether the step, a matmul, has pieces that tiles cover well, and no scales.
bool hd_tiles_fit(const hd_step *step);
hd_status hd_tiles_emit(const hd_step *step, hd_text *out,
                        hd_kernel_grid *grid);

HD_END_DECLS

#endif
