// Transfers by NCCL.
#ifndef HD_RUNTIME_CUDA_NCCL_H
#define HD_RUNTIME_CUDA_NCCL_H

#include "runtime/cuda/plan.h"

// --------------------------------------------------- cuda/nccl.c

hd_status hd_cuda_nccl_open(hd_device *device, hd_diag *diag);
hd_status hd_cuda_nccl_plan(hd_device *device, const hd_step *steps, int n,
                            int *events, hd_diag *diag);
// In cuda/comm.c. Connects this rank with those that it `meets`, by rank of
// the communicator. A failure is told to all peers.
hd_status hd_cuda_comm_join(hd_device *device, const hd_nccl_api *api,
                            const hd_nccl_id *id, int size, int rank,
                            const bool *meets, const char *axis, hd_diag *diag,
                            hd_nccl_comm *out);
void hd_cuda_nccl_close(hd_device *device);
// Ends a home's communicators; false if NCCL does not come to an end. The
// context is entered.
bool hd_cuda_nccl_end(hd_cuda_home *home);
// Ends what its kernels wait for.
void hd_cuda_nccl_abort(hd_device *device);
// Whether what has run went well: its kernels end without a word if not.
hd_status hd_cuda_nccl_check(hd_device *device, hd_diag *diag);
hd_status hd_cuda_nccl_transfer(hd_device *device,
                                const hd_cuda_command *command, hd_diag *diag);
// Calls `fn` with the axis's communicator, which nobody ends meanwhile; not at
// all if it has been ended.
typedef hd_status hd_cuda_lent(hd_device *device, hd_nccl_comm comm,
                               void *context, hd_diag *diag);
hd_status hd_cuda_nccl_lend(hd_device *device, int axis, hd_cuda_lent *fn,
                            void *context, hd_diag *diag);

#endif
