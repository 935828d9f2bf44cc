// Memory of peers that this rank has mapped: chunks of theirs, by CUDA IPC. A
// peer that is a thread of this process is near, and its memory is used where
// it is, since CUDA opens no handle in the process that made it.
#ifndef HD_RUNTIME_CUDA_MEMORY_REACH_H
#define HD_RUNTIME_CUDA_MEMORY_REACH_H

#include "runtime/cuda/device/chunk.h"

// How a peer gets at a chunk.
typedef union hd_cuda_reach {
    hd_cu_ipc_handle ipc; // in another process
    struct {              // in the one that has it
        hd_cu_context context;
        hd_cu_ptr at;
    } near;
} hd_cuda_reach;

// Between these, while a session is made, nothing is unmapped that its peers
// may count on. The context is entered when it ends.
void hd_cuda_reach_begin(hd_device *device);
void hd_cuda_reach_end(hd_device *device);

// What peers need to hold this rank's memory; borrowed.
hd_status hd_cuda_reach_lease(hd_device *device, hd_diag *diag, int *out);
// From now on work of the device may touch memory of another context of this
// process.
hd_status hd_cuda_reach_enable(hd_device *device, hd_cu_context theirs,
                               hd_diag *diag);
// Memory of a peer's that is mapped; NULL if it is not. It has one user more.
hd_cuda_chunk *hd_cuda_reach_find(hd_device *device, int peer, uint64_t home,
                                  uint64_t number);
// Likewise, of what is not: it is mapped, and held in the peer's `lease`, which
// is borrowed. Who, where and what it is `what` says.
hd_status hd_cuda_reach_map(hd_device *device, const hd_cuda_chunk *what,
                            int lease, const hd_cuda_reach *reach,
                            hd_diag *diag, hd_cuda_chunk **out);
// The peer gives nobody a place any more in windows whose number is less: they
// are unmapped if no session uses them.
void hd_cuda_reach_forget(hd_device *device, int peer, uint64_t home,
                          uint64_t number);

#endif
