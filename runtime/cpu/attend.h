// Attention over views of any stride and floating dtype, and the merge of two.
#ifndef HD_RUNTIME_CPU_ATTEND_H
#define HD_RUNTIME_CPU_ATTEND_H

#include "runtime/cpu/kernels.h"

HD_BEGIN_DECLS

// As hd_cpu_scratch_need, of a step of family ATTEND.
void hd_cpu_attend_need(const hd_step *step, size_t *bytes);
void hd_cpu_attend(hd_cpu_scratch *scratch, const hd_step *step,
                   void *const *base);

HD_END_DECLS

#endif
