// Transfers by NCCL.
#ifndef HD_RUNTIME_CUDA_TRANSFERS_NCCL_H
#define HD_RUNTIME_CUDA_TRANSFERS_NCCL_H

#include "runtime/cuda/commands/plan.h"

// --------------------------------------- cuda/transfers/nccl.c

hd_status hd_cuda_nccl_open(hd_device *device, hd_diag *diag);
hd_status hd_cuda_nccl_plan(hd_cuda_plan *plan, const hd_step *steps, int n,
                            int *events, hd_diag *diag);
void hd_cuda_nccl_close(hd_device *device);
// Ends the communicators of a home that has failed; false if NCCL does not come
// to an end. By now the sessions are gone, and their graphs.
bool hd_cuda_nccl_rest(hd_cuda_home *home);
// Ends all others, and then calls `release`, once, which frees the home. Ranks
// that are still at work in the group are not waited for: then it is called by
// another thread, when they too have come here, and the group may be gone.
typedef void hd_cuda_release(hd_cuda_home *home);
void hd_cuda_nccl_end(hd_cuda_home *home, hd_cuda_release *release);
// Ends what its kernels wait for.
void hd_cuda_nccl_abort(hd_device *device);
// Whether what has run went well: its kernels end without a word if not. `told`
// is false if that is not known by the deadline.
hd_status hd_cuda_nccl_check(hd_device *device, int64_t deadline, hd_diag *diag,
                             bool *told);
hd_status hd_cuda_nccl_transfer(hd_device *device,
                                const hd_cuda_command *command, hd_diag *diag);
// Calls `fn` with a communicator of the axis that blocks, which nobody ends
// meanwhile; not at all if it has been ended.
typedef hd_status hd_cuda_lent(hd_device *device, hd_nccl_comm comm,
                               void *context, hd_diag *diag);
hd_status hd_cuda_nccl_lend(hd_device *device, int axis, hd_cuda_lent *fn,
                            void *context, hd_diag *diag);

#endif
