// The gradients of attention.
#ifndef HD_RUNTIME_CPU_ATTEND_GRAD_H
#define HD_RUNTIME_CPU_ATTEND_GRAD_H

#include "ir/causal.h"
#include "runtime/cpu/rows.h"

HD_BEGIN_DECLS

// How many doubles of memory the step needs.
size_t hd_cpu_attend_grad_need(const hd_step *step);
// Of one element of the batch, whose views are `view`, and whose rows see keys
// as `sight` says.
void hd_cpu_attend_grad(const hd_step *step, void *const *base,
                        const hd_cpu_rows *view, const hd_sight *sight,
                        double *memory);

HD_END_DECLS

#endif
