// Windows: chunks that peers map. A window has an area for slots, which are
// each session's own, and a region for what is shared in a run, which sessions
// work in by turns:
//
//   | probe words | slots of session A | of session B | .. | shared buffers |
//
// A session takes a place in one that is large enough. If all peers that it
// meets have mapped that, and so on all ranks, no handles are exchanged.
#ifndef HD_RUNTIME_CUDA_MEMORY_WINDOW_H
#define HD_RUNTIME_CUDA_MEMORY_WINDOW_H

#include "runtime/cuda/device/chunk.h"

#define HD_CUDA_PROBES 4096 // bytes of a window's head: a word a peer

// Slots of a session, within a window.
typedef struct hd_cuda_hold {
    struct hd_cuda_hold *next; // the one behind it
    uint64_t at;               // offset in the window
    size_t bytes;
} hd_cuda_hold;

typedef struct hd_cuda_window {
    hd_cuda_chunk chunk; // first: it is what the list knows
    uint64_t region;     // where that is; slots end there
    hd_cuda_hold *hold;  // owned
    uint64_t told[];     // by rank: the stamp of who has mapped it, or 0
} hd_cuda_window;

// A place for slots, which the session fills before it tells of them, and for
// as many bytes in the region. Of a window that is made for it every bit behind
// the probes is set.
hd_status hd_cuda_window_take(hd_device *device, size_t slots, size_t bytes,
                              hd_diag *diag, hd_cuda_window **window,
                              hd_cuda_hold **hold);
// Bytes that a window would be made for; 0 if there is one.
size_t hd_cuda_window_lacks(hd_device *device, size_t slots, size_t bytes);
void hd_cuda_window_give(hd_device *device, hd_cuda_window *window,
                         hd_cuda_hold *hold);
// The least number of a window that sessions are given places in.
uint64_t hd_cuda_window_oldest(hd_device *device);

#endif
