// Statements of the function of one element. They work on its one variable, y,
// which hd_body_begin declares.
#ifndef HD_CODEGEN_BODY_H
#define HD_CODEGEN_BODY_H

#include "codegen/nest.h"

HD_BEGIN_DECLS

// What elements of the dtype are computed in: f32 unless it is f64 or integer.
hd_lane hd_body_lane(hd_dtype dtype);

// y is the value of the code of a dtype.
void hd_body_begin(hd_text *body, hd_lane lane, hd_dtype dtype,
                   const char *code);
// y and the value of another code are joined.
void hd_body_join(hd_text *body, hd_lane lane, hd_dtype dtype, hd_fold fold,
                  const char *code);
// z is the value of a second operand's code.
void hd_body_second(hd_text *body, hd_lane lane, hd_dtype dtype,
                    const char *code);
// m is the value of a mask's code, which is a u8.
void hd_body_mask(hd_text *body, const char *code);
// y becomes what the map makes of it, of z, and of m. Not of `scale` or `fill`.
void hd_body_map(hd_text *body, hd_lane lane, hd_map map);
// y, a double, is the key's number, or the expression `factor` if that is in
// memory.
void hd_body_fill(hd_text *body, const hd_key *key, const char *factor);
// y times the key's factor, which is the expression `factor` if it is in
// memory. The key may be NULL.
void hd_body_scale(hd_text *body, hd_lane lane, const hd_key *key,
                   const char *factor);
// y is stored in `to`.
void hd_body_store(hd_text *body, hd_lane lane, hd_dtype dtype, const char *to);
// The whole function: what operands of a dtype are joined, in their order, is
// stored in `to`. `format` makes the code of each of its number: from `first`
// on.
void hd_body_reduce(hd_text *body, hd_dtype dtype, hd_fold fold, int operands,
                    const char *format, int first, const char *to);

// Emits the nest with this body.
hd_status hd_body_emit(hd_nest *nest, const hd_text *body, hd_text *out,
                       hd_kernel_grid *grid);

HD_END_DECLS

#endif
