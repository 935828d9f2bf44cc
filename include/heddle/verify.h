// What an answer is compared with: dtypes to doubles and back, the shards of a
// whole array, and the reference.
#ifndef HEDDLE_VERIFY_H
#define HEDDLE_VERIFY_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

// Bytes of one element; 0 for events, which have no bytes, and for no dtype.
HD_API size_t hd_dtype_size(hd_dtype dtype);
HD_API const char *hd_dtype_text(hd_dtype dtype); // "bf16"

// Conversion of `n` elements. Storing rounds to nearest even; integers
// saturate, f8e4m3 saturates to +-448 and f8e5m2 overflows to infinity; a NaN
// becomes 0 in an integer.
HD_API void hd_dtype_load(hd_dtype dtype, const void *from, size_t n,
                          double *to);
HD_API void hd_dtype_store(hd_dtype dtype, const double *from, size_t n,
                           void *to);

// Between the whole array of argument `i` and the shard of `rank`. Sizes are
// hd_argument's; a replicated array is copied whole, and what a rank has room
// for alone is left as it is.
HD_API void hd_shard(const hd_module *module, size_t i, int rank,
                     const void *whole, void *local);
HD_API void hd_unshard(const hd_module *module, size_t i, int rank,
                       const void *local, void *whole);

// The answer to compare with, in double precision, computed in this process by
// plain loops: of a tensor program the dense, unsharded one; of a host program
// that of its ranks' steps, one at a time. `whole` holds the whole array of
// each argument (NULL for `out`, for events and for what has no elements, with
// sizes of 0). Beside each value stands a bound on the error that a correct run
// may show: rounding of each result to its dtype, fp32 accumulation over K
// terms as lambda sqrt(K) u sum|ab| with lambda = 6 (Higham and Mary, 2019),
// and the input errors carried through; integers are computed exactly, modulo
// their width, and told as the nearest double. The module must outlive the
// reference.
typedef struct hd_reference hd_reference;

HD_API HD_MUST_USE hd_status hd_reference_create(const hd_module *module,
                                                 const void *const *whole,
                                                 hd_diag *diag,
                                                 hd_reference **out);
HD_API void hd_reference_destroy(hd_reference *reference);

// The shard of argument `i` (`out` or `inout`) that `rank` should hold; both
// arrays have hd_argument's local_elements. `bounds` may be NULL. Of elements
// that the rank has room for alone, the value is a NaN and the bound -1.
HD_API void hd_reference_local(const hd_reference *reference, size_t i,
                               int rank, double *values, double *bounds);

HD_END_DECLS

#endif
