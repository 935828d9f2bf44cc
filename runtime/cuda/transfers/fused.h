// Launches of a collective and its product are some provider's, if it takes
// them. Ranks agree on that when they make a session, launch by launch: one
// that is nobody's goes as its parts.
#ifndef HD_RUNTIME_CUDA_TRANSFERS_FUSED_H
#define HD_RUNTIME_CUDA_TRANSFERS_FUSED_H

#include "runtime/cuda/commands/plan.h"

// The steps of one.
typedef struct hd_cuda_pair {
    const hd_step *move, *product; // borrowed
} hd_cuda_pair;

typedef struct hd_cuda_provider {
    const char *name;
    // What this rank lacks for any, as a failure.
    hd_status (*find)(hd_device *device, hd_diag *diag);
    // Why it does not take one; NULL: it does. Of no call of anybody's.
    const char *(*why)(const hd_device *device, const hd_cuda_pair *pair);
    // Collective: makes ready for those that it has, in the order of steps.
    // HD_ERROR_UNSUPPORTED, on this rank, if it finds that it cannot.
    hd_status (*open)(hd_device *device, hd_diag *diag);
    // Puts number `command->first` of them into its stream.
    hd_status (*issue)(hd_device *device, const hd_cuda_command *command,
                       hd_diag *diag);
    // Its name and version.
    const char *(*text)(const hd_device *device);
    void (*close)(hd_device *device);
} hd_cuda_provider;

extern const hd_cuda_provider hd_cuda_cublasmp; // cuda/transfers/cublasmp.c

// Collective, before all below: which launches a provider is to have.
hd_status hd_cuda_fused_find(hd_device *device, hd_diag *diag);
// The axis of those that it has; -1 if there are none.
int hd_cuda_fused_axis(const hd_device *device);
// Whether it has the step.
bool hd_cuda_fused_has(const hd_device *device, const hd_step *step);
// From step *at on, the next that it has, and behind that; false at the end.
bool hd_cuda_fused_next(const hd_device *device, int64_t *at,
                        hd_cuda_pair *out);
// Of the first step of a launch: why it goes as its parts, "" if a provider has
// it, NULL if it is none of a collective and its product.
const char *hd_cuda_fused_why(const hd_device *device, const hd_step *first);
hd_status hd_cuda_fused_open(hd_device *device, hd_diag *diag);
// Both steps of the launch, by the provider that has it.
hd_status hd_cuda_fused_plan(hd_cuda_plan *plan, const hd_step *first,
                             hd_diag *diag);
hd_status hd_cuda_fused_issue(hd_device *device, const hd_cuda_command *command,
                              hd_diag *diag);
void hd_cuda_fused_close(hd_device *device);

#endif
