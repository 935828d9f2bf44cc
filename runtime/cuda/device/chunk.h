// Memory of a device that a home has: one list of chunks. Sessions work by
// turns in those that no peer sees, since their runs follow one another: in as
// much as the one that is alive and needs most of it. Windows are what peers
// touch (window.h), others the caller has for its arguments (loan.c), and what
// peers have of either kind is mapped here (reach.h).
//
// An address that a session knows stays valid as long as it is alive, so no
// chunk grows: a session has the least that is large enough, and one more is
// made where none is. What nobody uses goes, but for what the next session may
// have use for, and there is one place that says which that is.
//
// To free what somebody else has open CUDA calls undefined. So each chunk that
// peers may open has a number, and whoever has it open, a process or a thread
// of this one, holds that in the lease (ranks/lease.h) of the rank whose it is:
// from before it maps it until after it has unmapped it. What nobody has a use
// for here waits until nobody holds it.
#ifndef HD_RUNTIME_CUDA_DEVICE_CHUNK_H
#define HD_RUNTIME_CUDA_DEVICE_CHUNK_H

#include "runtime/cuda/vendor/api.h"
#include "runtime/driver.h"
#include "runtime/ranks/lease.h"

typedef struct hd_cuda_home hd_cuda_home;

// Bits.
typedef enum hd_cuda_chunk_kind {
    HD_CUDA_MEMORY = 1, // buffers that no peer sees
    HD_CUDA_PLACES = 2, // of streams: their rooms
    HD_CUDA_WINDOW = 4,
    HD_CUDA_LENT = 8,    // to the caller, which is its user
    HD_CUDA_THEIRS = 16, // a peer's window
    HD_CUDA_LOANED = 32, // what a peer's caller was lent
} hd_cuda_chunk_kind;
#define HD_CUDA_OF_PEERS ((unsigned)HD_CUDA_THEIRS | HD_CUDA_LOANED)
#define HD_CUDA_EVERY 63u

typedef struct hd_cuda_chunk {
    struct hd_cuda_chunk *next; // older
    hd_cuda_chunk_kind kind;
    hd_cu_ptr at;    // owned, or mapped
    uint64_t bytes;  // of a peer's, from there on to the end of its allocation
    int users;       // sessions
    uint64_t number; // of its rank's: no other has it; 0 for what no peer sees
    bool retired;    // nobody is given it any more
    // Of a peer's:
    int peer;
    uint64_t home; // the peer's
    bool near;     // the peer is a thread of this process
    int lease;     // owned
} hd_cuda_chunk;

static inline size_t hd_cuda_align_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

// All guarded by the home's `making`.
typedef struct hd_cuda_chunks {
    hd_cuda_chunk *first; // owned: the newest
    uint64_t home;        // a number that no other home has
    uint64_t made;        // that peers may open
    int lease;            // owned: HD_LEASE_NONE until a peer is told of it
    // Another one whenever something was unmapped that its owner may count on:
    // such ranks need handles again.
    uint64_t stamp;
    int making; // sessions, whose ranks agree on what is mapped
} hd_cuda_chunks;

// Closes those that nobody uses and that are of no use to the next session
// either, which those of `kinds` are not; as far as nobody has them open. False
// if some chunk is left. `making` is held, and the context is entered.
bool hd_cuda_chunks_sweep(hd_cuda_home *home, unsigned kinds);
// Takes `making` for it.
bool hd_cuda_chunks_close(hd_cuda_home *home, unsigned kinds);
// The last session is gone, and the caller: nobody uses any.
void hd_cuda_chunks_leave(hd_cuda_home *home);
// Puts it ahead of all. `making` is held.
void hd_cuda_chunk_add(hd_cuda_home *home, hd_cuda_chunk *chunk);
// The same for one that peers may open, which is given a number.
void hd_cuda_chunk_number(hd_cuda_home *home, hd_cuda_chunk *chunk);
// It has a user less. Takes NULL too. The context is entered.
void hd_cuda_chunk_give(hd_device *device, hd_cuda_chunk *chunk);

// What the caller has at `at`; NULL if that is nothing. `making` is held.
hd_cuda_chunk *hd_cuda_chunk_lent(hd_cuda_home *home, hd_cu_ptr at);
// The number of what is lent at `at`; 0 if nothing is.
uint64_t hd_cuda_loan_number(hd_cuda_home *home, hd_cu_ptr at);

// One of as many bytes, NULL for none, that no peer sees. Of one that is new
// the first `filled` bytes have every bit set, which is a NaN in each floating
// dtype: who reads what nobody wrote will see it in the answer.
// HD_ERROR_NO_MEMORY, in words that have the program's name, if the device has
// less than `bytes` and `more` left.
hd_status hd_cuda_chunk_take(hd_device *device, hd_cuda_chunk_kind kind,
                             size_t bytes, size_t filled, size_t more,
                             hd_diag *diag, hd_cuda_chunk **out);

#endif
