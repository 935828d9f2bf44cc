// How a communicator of NCCL is joined: one that does not block, so that
// whoever asked for something asks whether it has been done, for as long as the
// peers have time; and one for runs, which blocks.
#ifndef HD_RUNTIME_CUDA_TRANSFERS_COMM_H
#define HD_RUNTIME_CUDA_TRANSFERS_COMM_H

#include "runtime/cuda/device/device.h"

// What one is joined with.
typedef struct hd_cuda_joining {
    hd_device *device;
    const hd_nccl_api *nccl;
    const char *axis; // its name
    int size, rank;
    const bool *meets; // by rank of the communicator
    // Owned: what ranks send each other once, and the stream that it goes by.
    hd_cu_stream stream;
    hd_cu_ptr memory;
} hd_cuda_joining;

// Joins `comm`, connects this rank with those that it meets, and splits `used`
// from it. A failure is told to all peers. What is in either then, if it is
// anything, is to be aborted before hd_cuda_comm_leave.
hd_status hd_cuda_comm_join(hd_cuda_joining *joining, const hd_nccl_id *id,
                            hd_diag *diag, hd_nccl_comm *comm,
                            hd_nccl_comm *used);
void hd_cuda_comm_leave(hd_cuda_joining *joining);

#endif
