// Matrix products of views of any stride and floating dtype, and the epilogue
// that docs/semantics.md describes.
#ifndef HD_RUNTIME_CPU_MATMUL_H
#define HD_RUNTIME_CPU_MATMUL_H

#include "runtime/cpu/kernels.h"

HD_BEGIN_DECLS

// As hd_cpu_scratch_need, of a product.
hd_status hd_cpu_matmul_need(const hd_step *step, size_t *bytes);
void hd_cpu_matmul(hd_cpu_scratch *scratch, const hd_step *step,
                   void *const *base);

// The factor of `scale` or of key `scale`: its number, or the element it names;
// 1 if the step has no such key.
double hd_cpu_factor(const hd_step *step, hd_key_code code, void *const *base);

HD_END_DECLS

#endif
