// What makes plans.
#ifndef HD_RUNTIME_CUDA_PLAN_MAKE_H
#define HD_RUNTIME_CUDA_PLAN_MAKE_H

#include "codegen/chain.h"
#include "runtime/cuda/commands/plan.h"

// -------------------------------------------- cuda/plan/plan.c

// That of the binding's steps, and all that a session's plans have in common.
hd_status hd_cuda_plan_make(hd_device *device, hd_diag *diag);
// These steps, at the sizes of `module`, in place of what the variant was.
// `again`: an earlier run had these sizes.
hd_status hd_cuda_plan_vary(hd_device *device, int variant,
                            const hd_module *module, const hd_steps *steps,
                            bool again, hd_diag *diag);
void hd_cuda_plans_free(hd_device *device);

// -------------------------------------------- cuda/plan/sums.c

// Of a plan's steps: what is added up in a temporary that is then copied.
hd_status hd_cuda_find_sums(hd_cuda_plan *plan, const hd_chains *chains,
                            hd_diag *diag);

// ------------------------------------------- cuda/plan/prune.c

// Leaves out what the plan can do without.
hd_status hd_cuda_prune(hd_cuda_plan *plan, hd_diag *diag);

#endif
