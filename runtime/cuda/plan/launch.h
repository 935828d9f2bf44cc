// Launches that one kernel does.
#ifndef HD_RUNTIME_CUDA_PLAN_LAUNCH_H
#define HD_RUNTIME_CUDA_PLAN_LAUNCH_H

#include "runtime/cuda/commands/plan.h"

// Finds those of the plan's steps, of which events[step] is -1 if nothing waits
// for it, and says by the log what becomes of each: plan->launched and
// plan->gate.
hd_status hd_cuda_launches_find(hd_cuda_plan *plan, const int *events,
                                hd_diag *diag);
// The kernel of the launch that begins with the step.
hd_status hd_cuda_plan_launch(hd_cuda_plan *plan, const hd_step *first,
                              const int *events, hd_diag *diag);
#endif
