// The functions that kernels' text may call: conversions of numbers and
// activations. A text gets those that it names, in an order that compiles.
#ifndef HD_CODEGEN_PRELUDE_H
#define HD_CODEGEN_PRELUDE_H

#include "codegen/kernel.h"

HD_BEGIN_DECLS

// What a kernel computes in.
typedef enum hd_lane { HD_LANE_FLOAT, HD_LANE_DOUBLE, HD_LANE_INTEGER } hd_lane;

const char *hd_lane_text(hd_lane lane); // "float"

// What an element is in memory: "unsigned short" for bf16.
const char *hd_code_text(hd_dtype dtype);

// Adds the value of the code that the expression `code` has, in the lane.
void hd_prelude_load(hd_text *text, hd_dtype dtype, hd_lane lane,
                     const char *code);
// Adds the code of the lane's expression `value`, rounded to nearest even and
// saturated as hd_dtype_store does; integers in integers wrap.
void hd_prelude_store(hd_text *text, hd_dtype dtype, hd_lane lane,
                      const char *value);
// Of what a product adds up: sums of integers wrap.
void hd_prelude_store_sum(hd_text *text, hd_dtype dtype, hd_lane lane,
                          const char *value);

// Adds the expression of what `x` and `y`, of the lane, are together.
void hd_prelude_fold(hd_text *text, hd_fold fold, hd_lane lane, const char *x,
                     const char *y);

// Adds what they are together where there are none, of a dtype's values.
void hd_prelude_identity(hd_text *text, hd_fold fold, hd_lane lane,
                         hd_dtype dtype);

// The files of codegen/kernels as texts. What a kernel's own says in macros and
// types of one instance, between `#ifndef HD_TYPES` and `#endif`, is for
// whoever emits it to say ahead of it.
extern const unsigned char hd_types_cu[], hd_attend_cu[], hd_attention_cu[],
    hd_attention_grad_cu[], hd_attention_grad_tiles_cu[],
    hd_attention_tiles_cu[], hd_flags_cu[], hd_gate_cu[], hd_join_cu[],
    hd_meet_cu[], hd_merge_cu[], hd_mma_cu[], hd_multiply_cu[], hd_prelude_cu[],
    hd_route_cu[], hd_rows_cu[], hd_scores_cu[], hd_spread_cu[], hd_tiles_cu[],
    hd_top_k_cu[], hd_wgmma_cu[], hd_words_cu[];
void hd_prelude_add(hd_text *text, const unsigned char *cu);

// Adds to `out` the text of a kernel of so many pointers and sizes: the types
// that it needs, the functions that it calls, and itself, which is freed.
// Without memory `out` is freed, too.
hd_status hd_prelude_finish(hd_text *out, hd_text *kernel, int pointers,
                            int sizes);
// Likewise of as many as the grid has, and of its maps.
hd_status hd_prelude_finish_grid(hd_text *out, hd_text *kernel,
                                 const hd_kernel_grid *grid);

// The grid for the work of so many threads, a thread each or, where blocks are
// more than 132 processors run `at_once` of, in turns: one block at least. Its
// pointers and sizes are the caller's.
hd_kernel_grid hd_prelude_grid(int64_t threads, int at_once);

HD_END_DECLS

#endif
