// Windows of a home: device memory that peers map, and theirs that this rank
// has mapped. A window has an area for slots, which are each session's own, and
// a region for what is shared in a run, which sessions work in by turns:
//
//   | probe words | slots of session A | of session B | .. | shared buffers |
//
// A session takes a place in one that is large enough. If all peers that it
// meets have mapped that, and so on all ranks, no handles are exchanged.
#ifndef HD_RUNTIME_CUDA_SHARE_H
#define HD_RUNTIME_CUDA_SHARE_H

#include "runtime/cuda/window.h"
#include "runtime/driver.h"

#define HD_CUDA_PROBES 4096 // bytes of a window's head: a word a peer

typedef struct hd_cuda_home hd_cuda_home;

// Slots of a session, within a window.
typedef struct hd_cuda_hold {
    struct hd_cuda_hold *next; // the one behind it
    uint64_t at;               // offset in the window
    size_t bytes;
} hd_cuda_hold;

typedef struct hd_cuda_window {
    struct hd_cuda_window *next;
    uint64_t number; // no other of this rank has it
    hd_cu_ptr at;    // owned
    size_t bytes;
    uint64_t region;    // where that is; slots end there
    hd_cuda_hold *hold; // owned
    uint64_t *told;     // owned, by rank: the home that has mapped it, or 0
} hd_cuda_window;

// A peer's window.
typedef struct hd_cuda_mapped {
    struct hd_cuda_mapped *next;
    int peer;
    uint64_t home, number; // of the peer's
    hd_cu_ptr at;          // owned: mapped
    uint64_t bytes;        // from there on to the end of its allocation
    bool near;             // as in window.h
    int users;             // sessions
} hd_cuda_mapped;

// All guarded by the home's `making`.
typedef struct hd_cuda_shared {
    uint64_t home;          // a number that no other home has
    uint64_t made;          // windows
    hd_cuda_window *window; // owned
    hd_cuda_mapped *mapped; // owned
} hd_cuda_shared;

// A place for slots, which the session fills before it tells of them, and for
// as many bytes in the region. Of a window that is made for it every bit behind
// the probes is set.
hd_status hd_cuda_share_take(hd_device *device, size_t slots, size_t bytes,
                             hd_diag *diag, hd_cuda_window **window,
                             hd_cuda_hold **hold);
// Bytes that a window would be made for; 0 if there is one.
size_t hd_cuda_share_lacks(hd_device *device, size_t slots, size_t bytes);
void hd_cuda_share_give(hd_device *device, hd_cuda_window *window,
                        hd_cuda_hold *hold);
// A window of a peer's that is mapped; NULL if it is not. It has one user more.
hd_cuda_mapped *hd_cuda_share_find(hd_device *device, int peer, uint64_t home,
                                   uint64_t number);
// Likewise, of one that is not: it is mapped.
hd_status hd_cuda_share_map(hd_device *device, int peer, uint64_t home,
                            uint64_t number, const hd_cuda_reach *reach,
                            bool near, hd_diag *diag, hd_cuda_mapped **out);
// Takes NULL too.
void hd_cuda_share_drop(hd_device *device, hd_cuda_mapped *mapped);
// The peer has none any more whose number is less: those are unmapped that no
// session uses.
void hd_cuda_share_forget(hd_device *device, int peer, uint64_t home,
                          uint64_t number);
// The least number of a window that there is.
uint64_t hd_cuda_share_oldest(hd_device *device);
// Frees windows that no session has a place in, and with `all` unmaps those of
// peers, of which no session is left. The context is entered.
void hd_cuda_share_trim(hd_cuda_home *home, bool all);

#endif
