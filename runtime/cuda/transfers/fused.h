// Fused ops: a matmul and a collective in one are some provider's. Each is a
// row of a table; the first that takes all of a program's has them.
#ifndef HD_RUNTIME_CUDA_TRANSFERS_FUSED_H
#define HD_RUNTIME_CUDA_TRANSFERS_FUSED_H

#include "runtime/cuda/commands/plan.h"

typedef struct hd_cuda_provider {
    const char *name;
    // Collective: makes ready for all fused steps of the program, in order.
    // HD_ERROR_UNSUPPORTED on all ranks if one lacks it, or it does not take a
    // step.
    hd_status (*open)(hd_device *device, hd_diag *diag);
    // Puts step `command->first` of them into its stream.
    hd_status (*issue)(hd_device *device, const hd_cuda_command *command,
                       hd_diag *diag);
    // Its name and version.
    const char *(*text)(const hd_device *device);
    void (*close)(hd_device *device);
} hd_cuda_provider;

extern const hd_cuda_provider hd_cuda_cublasmp; // cuda/transfers/cublasmp.c

// The axis of the program's fused steps; -1 if it has none.
int hd_cuda_fused_axis(const hd_device *device);
hd_status hd_cuda_fused_open(hd_device *device, hd_diag *diag);
hd_status hd_cuda_fused_plan(hd_cuda_plan *plan, const hd_step *steps, int n,
                             int *events, hd_diag *diag);
hd_status hd_cuda_fused_issue(hd_device *device, const hd_cuda_command *command,
                              hd_diag *diag);
void hd_cuda_fused_close(hd_device *device);
// HD_ERROR_UNSUPPORTED, with what to do instead.
hd_status hd_cuda_fused_refuse(const hd_step *step, hd_diag *diag,
                               const char *why);

#endif
