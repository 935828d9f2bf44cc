// What peers touch of this rank, and this rank of them: the window, and in it
// the slots of each pair.
#ifndef HD_RUNTIME_CUDA_MEMORY_PEERS_H
#define HD_RUNTIME_CUDA_MEMORY_PEERS_H

#include "runtime/cuda/device/device.h"
#include "runtime/cuda/memory/reach.h"
#include "runtime/cuda/memory/window.h"

typedef struct hd_cuda_slot {
    // Written by the peer: ready, done, fetched; in the pair's first slot
    // early, which is "ready" for all that it receives early.
    uint32_t word[4];
    hd_offer offer;
    // Offset of this side's share of a result, or of where peers put theirs; 0
    // for none.
    uint64_t share;
    uint64_t early; // this side receives, and its "early" stands for "ready"
    uint64_t unused;
} hd_cuda_slot;
_Static_assert(sizeof(hd_cuda_slot) == HD_SLOT_BYTES,
               "slots do not share sectors");

typedef struct hd_cuda_note hd_cuda_note; // cuda/memory/fixed.c's

// A fixed argument of a peer's.
typedef struct hd_cuda_fixed {
    hd_cu_ptr at;   // 0 if this rank does not touch it
    uint64_t bytes; // from there on to the end of its allocation
    hd_cu_ptr map;  // owned: of the caller's allocation; 0 if it is near, or
    hd_cuda_chunk *lent; // the home's: memory of the peer's group
} hd_cuda_fixed;

typedef struct hd_cuda_peer {
    hd_pair pair;
    uint64_t mine;                 // in our window: offset of the pair's slots
    uint64_t theirs;               // in theirs
    uint64_t bytes;                // of their window
    bool near;                     // it is a thread of this process
    uint64_t home, number, oldest; // of their window, as told
    uint64_t stamp;                // of theirs, likewise
    hd_pair said;
    hd_cuda_chunk *mapped; // the home's: their window; NULL if not
    hd_cu_ptr window;      // where that is
    hd_cuda_fixed *fixed;  // owned, by argument; NULL if none is fixed
    int nfixed;            // as many
    hd_cuda_slot *slot;    // owned: copies of theirs, while planning
    hd_cuda_slot *own;     // owned: copies of ours, while planning
    // Owned, by slot: where in their window the buffer begins that they offer a
    // part of; NULL where a run has no sizes.
    uint64_t *root;
    // While planning: whether this rank writes "early" there, and which of its
    // streams wait for theirs.
    bool told, heard[HD_CUDA_STREAMS_MOST];
} hd_cuda_peer;

struct hd_cuda_peers {
    bool making;           // the session is being made
    hd_cuda_window *place; // the home's, in which this session has
    hd_cuda_hold *hold;    // its slots
    hd_cu_ptr window;      // where it is
    size_t slots;          // offset in the window
    size_t slot_bytes;     // of all of them
    uint32_t *snapshot;    // owned, pinned: the slots
    uint64_t *share;       // owned, by step: the slots' `share`
    bool *early;           // owned, by step: "ready" as soon as a run begins
    hd_cuda_peer *peer;    // owned, by rank
    hd_cuda_note *note;    // owned, by argument: what is told of fixed ones
    int reducing;          // the stream of all reductions
    int beside;            // a peer that works in this rank's context; or -1
    bool shares_device;    // a peer has this rank's, in whatever process
};

// ----------------------------------------- cuda/memory/fixed.c

// Finds what peers are told of the fixed arguments.
hd_status hd_cuda_fixed_find(hd_device *device, hd_diag *diag);
// Collective: maps those of the peers.
hd_status hd_cuda_fixed_meet(hd_device *device, hd_diag *diag);
void hd_cuda_fixed_close(hd_device *device);
// Where an offset that a peer tells is, and how many bytes there are in all of
// the window, or of the argument's memory.
hd_cu_ptr hd_cuda_there(const hd_cuda_peer *peer, uint64_t offset);
uint64_t hd_cuda_there_room(const hd_cuda_peer *peer, uint64_t offset);

#endif
