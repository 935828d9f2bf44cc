// Arguments of a run that are no dense memory of the device.
#ifndef HD_RUNTIME_CUDA_ISSUE_PASS_H
#define HD_RUNTIME_CUDA_ISSUE_PASS_H

#include "runtime/cuda/device/device.h"

hd_status hd_cuda_pass_open(hd_device *device, hd_diag *diag);
void hd_cuda_pass_close(hd_device *device);
// Memory in which argument `i` is dense, from now on.
hd_status hd_cuda_pack(hd_device *device, size_t i, hd_diag *diag);
// How the run that begins is given its arguments, for the call: `passing` is
// NULL if all are dense, on the device.
hd_status hd_cuda_pass_take(const hd_cuda_plan *plan, const hd_passing *passing,
                            void *const *argument, hd_diag *diag);
// Where the run has the argument that the caller has at `at`.
void *hd_cuda_passed_at(const hd_device *device, int argument, void *at);
// Brings them in before a run, or out after it, on the caller's stream.
hd_status hd_cuda_pass(const hd_cuda_plan *plan, bool in, hd_diag *diag);

#endif
