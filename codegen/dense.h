// What a library makes in scratch memory, its elements side by side, and views
// that it belongs into, or comes from.
#ifndef HD_CODEGEN_DENSE_H
#define HD_CODEGEN_DENSE_H

#include "codegen/kernel.h"

HD_BEGIN_DECLS

typedef enum hd_dense {
    HD_DENSE_TAKE,  // from the view
    HD_DENSE_STORE, // into it
    HD_DENSE_ADD,   // to what it holds, or to what `before` does
    HD_DENSE_CLEAR, // the view becomes 0
} hd_dense;

typedef struct hd_dense_view {
    const hd_span *span; // of f32 or 16 bits; rows of a multiple of 8 elements
    hd_dense what;
    const hd_span *before; // of HD_DENSE_ADD, in place of what the view holds:
                           // another one of its extents; or NULL
} hd_dense_view;

// All of it by one kernel: view i is at at[3 * i], what is beside it, in
// `dtype`, at at[3 * i + 1], and its `before` at at[3 * i + 2].
hd_status hd_emit_dense(const hd_dense_view *view, int n, hd_dtype dtype,
                        hd_text *out, hd_kernel_grid *grid);

HD_END_DECLS

#endif
