// The local rules: what can be said of each statement alone, whatever the rank.
// Run on every parsed module and after every pass.
#ifndef HD_IR_VERIFY_H
#define HD_IR_VERIFY_H

#include "ir/module.h"

HD_BEGIN_DECLS

// Reports every violation; HD_ERROR_INVALID if there was one.
hd_status hd_verify(const hd_module *module, hd_diag *diag);

// How a matmul's operands map onto a batch of plain products. By shape, for a
// of [P.., R.., M, K]:
//
//   b of [K, N]        out of [P.., R.., M, N]        (one weight for all)
//   b of [P.., K, N]   out of [P.., R.., M, N]        (paired: one weight each)
//   b of [P.., K, N]   out of [P.., a's.., N]         (crossed: a with each)
//
// Paired if `out` has as many dimensions as `a`, crossed if it has as many more
// as b has before its last two. Of verified steps ir/product.h says the rest.

// False if the shapes do not multiply; `why` then says it in words for the
// reader (at most 160 bytes with the NUL).
bool hd_matmul_fits(const hd_type *out, const hd_type *a, const hd_type *b,
                    bool ta, bool tb, char why[160]);

// Likewise of one with `groups`, whose counts are of one dimension:
//
//   a [rows, K]   b [e, K, N]    out [rows, N]
//   a [rows, M]   b [rows, N]    out [e, M, N]    with `ta`
bool hd_groups_fit(const hd_type *out, const hd_type *a, const hd_type *b,
                   const hd_type *counts, bool ta, bool tb, char why[160]);

// Whether `take` by the indices, from dimension `dim` of `in`, makes that: `in`
// is [B.., R, S..], the indices [B.., I..] and the result [B.., I.., S..].
bool hd_take_fits(const hd_type *out, const hd_type *in, const hd_type *indices,
                  int dim);

HD_END_DECLS

#endif
