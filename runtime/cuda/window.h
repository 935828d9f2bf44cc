// Memory of a device that peers touch. A peer in another process maps it by
// CUDA IPC; to free it before that process has unmapped it is undefined, so its
// owner closes it when none has it open (share.h). A peer that is a thread of
// this process uses it where it is: CUDA opens no handle in the process that
// made it. So the process counts who uses such memory, and the last of them
// frees it, in whatever order they go.
#ifndef HD_RUNTIME_CUDA_WINDOW_H
#define HD_RUNTIME_CUDA_WINDOW_H

#include <stdbool.h>

#include "runtime/cuda/api.h"

// How a peer gets at a window.
typedef union hd_cuda_reach {
    hd_cu_ipc_handle ipc; // in another process
    struct {              // in the one that has it
        hd_cu_context context;
        hd_cu_ptr at;    // 0 for none
        uint64_t number; // another window had that address
    } near;
} hd_cuda_reach;

// Takes memory of the current context. If that is the primary one of device
// `primary`, which is -1 else, it is there as long as the memory. `call` is the
// one that failed.
hd_cu_result hd_cuda_window_open(const hd_cu_api *cu, hd_cu_device primary,
                                 size_t bytes, hd_cu_ptr *out,
                                 const char **call);
// For a peer that is `near`, a thread of this process, or for one that is not.
hd_cu_result hd_cuda_window_tell(const hd_cu_api *cu, hd_cu_ptr window,
                                 bool near, hd_cuda_reach *out);
// From now on work of the current context may touch memory of `theirs`, which
// is one of this process.
hd_cu_result hd_cuda_window_enable(const hd_cu_api *cu, hd_cu_context theirs);
// What a peer told, for work of the current context. 0 if a near one has closed
// its window already.
hd_cu_result hd_cuda_window_map(const hd_cu_api *cu, const hd_cuda_reach *reach,
                                bool near, hd_cu_ptr *out);
// Lets go of a peer's, or of this rank's own, which is near and which no other
// process has open: what is near is freed if nobody else of this process uses
// it.
void hd_cuda_window_close(const hd_cu_api *cu, hd_cu_ptr window, bool near);

#endif
