// Windows of a home: device memory that peers map, and theirs that this rank
// has mapped. A window has an area for slots, which are each session's own, and
// a region for what is shared in a run, which sessions work in by turns:
//
//   | probe words | slots of session A | of session B | .. | shared buffers |
//
// A session takes a place in one that is large enough. If all peers that it
// meets have mapped that, and so on all ranks, no handles are exchanged.
//
// To free what another process has open CUDA calls undefined. So each piece of
// memory that peers may map has a number, and a process that has it open holds
// that in the lease (ranks/lease.h) of the rank whose it is: from before it
// maps it until after it has unmapped it. A window that no session has a place
// in, as long as it is not the newest, and memory that the caller has given
// back, wait until nobody holds them.
#ifndef HD_RUNTIME_CUDA_SHARE_H
#define HD_RUNTIME_CUDA_SHARE_H

#include "runtime/cuda/window.h"
#include "runtime/driver.h"
#include "runtime/ranks/lease.h"

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
    uint64_t *told;     // owned, by rank: the stamp of who has mapped it, or 0
    bool retired;       // no session is given a place in it any more
} hd_cuda_window;

// A peer's lease.
typedef struct hd_cuda_leased {
    struct hd_cuda_leased *next;
    int peer;
    uint64_t home; // of the peer's
    int lease;     // owned
} hd_cuda_leased;

// A peer's window, or memory that it was lent for arguments.
typedef struct hd_cuda_mapped {
    struct hd_cuda_mapped *next;
    int peer;
    uint64_t home, number; // of the peer's
    hd_cu_ptr at;          // owned: mapped
    uint64_t bytes;        // from there on to the end of its allocation
    bool near;             // as in window.h
    bool lent;             // no window: it does not outlive its sessions
    int lease;             // borrowed: the peer's; HD_LEASE_NONE if it is near
    int users;             // sessions
} hd_cuda_mapped;

// All guarded by the home's `making`.
typedef struct hd_cuda_shared {
    uint64_t home;          // a number that no other home has
    uint64_t made;          // windows, and what was lent
    int lease;              // owned: HD_LEASE_NONE until a peer is told of it
    hd_cuda_window *window; // owned
    hd_cuda_mapped *mapped; // owned
    hd_cuda_leased *leased; // owned
    // Another one whenever something was unmapped that its owner may count on:
    // such ranks need handles again.
    uint64_t stamp;
    int making; // sessions, whose ranks agree on what is mapped
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
// Between these, while a session is made, nothing is unmapped that its peers
// may count on. The context is entered when it ends.
void hd_cuda_share_begin(hd_device *device);
void hd_cuda_share_end(hd_device *device);

// What peers in other processes need to hold this rank's memory.
hd_status hd_cuda_share_lease(hd_device *device, hd_diag *diag, int *out);
// Takes over what a peer has passed.
hd_status hd_cuda_share_join(hd_device *device, int peer, uint64_t home,
                             int lease, hd_diag *diag);
// Memory of a peer's that is mapped; NULL if it is not. It has one user more.
hd_cuda_mapped *hd_cuda_share_find(hd_device *device, int peer, uint64_t home,
                                   uint64_t number);
// Likewise, of what is not: it is mapped, and held. Who, where and what it is
// `what` says.
hd_status hd_cuda_share_map(hd_device *device, const hd_cuda_mapped *what,
                            const hd_cuda_reach *reach, hd_diag *diag,
                            hd_cuda_mapped **out);
// Takes NULL too. The context is entered.
void hd_cuda_share_drop(hd_device *device, hd_cuda_mapped *mapped);
// The peer gives nobody a place any more in those whose number is less: they
// are unmapped if no session uses them.
void hd_cuda_share_forget(hd_device *device, int peer, uint64_t home,
                          uint64_t number);
// The least number of a window that sessions are given places in.
uint64_t hd_cuda_share_oldest(hd_device *device);

// A number for memory that is no window.
uint64_t hd_cuda_share_number(hd_cuda_home *home);
// Whether nobody has it open, nor opens it from now on. `making` is held.
bool hd_cuda_share_take_back(const hd_cuda_home *home, uint64_t number);

// These with the context entered. Unmaps what no session uses, and frees
// windows that no session has a place in, as far as nobody holds them.
void hd_cuda_share_trim(hd_cuda_home *home);
// After the last session: unmaps all, and has no use for its windows any more.
void hd_cuda_share_leave(hd_cuda_home *home);
// Frees windows that it has no use for. False if some are still held.
bool hd_cuda_share_free(hd_cuda_home *home);

#endif
