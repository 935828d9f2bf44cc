// What the sessions of a group have in common on a CUDA device: libraries, the
// context, streams, loaded kernels, memory, the thread that watches. The group
// owns it; it is made when a session first needs it.
//
// Sessions are plans on it, whose runs follow one another: a run begins after
// the end of the last run of another session, on whatever streams of the
// caller's they are. So the streams of one are the streams of all, as are their
// buffers and rooms, and whoever issues a run holds `issue`.
#ifndef HD_RUNTIME_CUDA_DEVICE_HOME_H
#define HD_RUNTIME_CUDA_DEVICE_HOME_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/library.h"
#include "runtime/cuda/device/chunk.h"
#include "runtime/cuda/vendor/api.h"
#include "runtime/driver.h"
#include "runtime/failure.h"
#include "runtime/ranks/doorbell.h"
#include "runtime/ranks/group.h"

#define HD_CUDA_STREAMS_MOST 66 // the caller's, 64 work streams, the helper

typedef struct hd_cuda_kernels hd_cuda_kernels;
typedef struct hd_cuda_lines hd_cuda_lines;

// A stream by its place in sessions: 0 is the caller's.
typedef struct hd_cuda_queue {
    hd_cu_stream stream; // owned; none at 0
    uint64_t issued;     // commands
    hd_cu_event pace[2]; // owned: for those who issue far ahead
} hd_cuda_queue;

// The last run that went into a capture of the caller's.
typedef struct hd_cuda_last_captured {
    uint64_t capture; // as CUDA numbers them; 0 for none
    hd_cu_stream stream;
    hd_cu_event end; // borrowed from its session
} hd_cuda_last_captured;

struct hd_cuda_home {
    hd_kept kept;    // first: it is what the group knows
    hd_group *group; // borrowed: outlives it
    int rank;

    hd_library library;
    hd_cu_api cu;
    hd_cu_device ordinal;
    hd_cu_context context;
    bool retained;        // the context is ours to release
    char arch[16];        // "sm_90a"
    hd_cu_stream rescue;  // owned: never waits
    hd_cu_stream capture; // owned: stands in for others in graphs, for who has
                          // `issue`
    hd_cuda_queue queue[HD_CUDA_STREAMS_MOST];
    hd_cuda_lines *lines; // owned: communicators of NCCL; NULL if there is none

    pthread_mutex_t issue; // held while a run is issued, guards:
    hd_device *last;       // whose run was issued last; NULL if it has ended
    hd_cu_stream caller;   // of that run
    hd_cu_event end;       // borrowed from `last`: of that run
    hd_cuda_last_captured captured;
    // For the thread that watches: whose run the host is in the middle of.
    _Atomic(hd_device *) issuing;

    // Held while kernels are loaded and memory is taken or freed, guards:
    pthread_mutex_t making;
    hd_cuda_kernels *kernels;
    hd_cuda_chunks chunks; // memory

    pthread_mutex_t lock; // held for a moment, guards:
    int nsessions, nqueues;
    hd_device *first; // of the sessions that are watched

    pthread_t thread; // that watches
    bool watched;     // it is there
    hd_doorbell doorbell;
    atomic_bool closing;
    atomic_bool rested; // the failed device does nothing any more
    atomic_bool stuck;  // it did not come to rest: nothing is freed
    hd_failure failure; // of all sessions: the group ends with it
};

// Makes its context the calling thread's, as hd_cuda_enter does. False if that
// is not to be had.
bool hd_cuda_home_enter(const hd_cuda_home *home, int *mode);
void hd_cuda_home_exit(const hd_cuda_home *home, int mode);

// Memory that no peer touches, the caller's if it has set an allocator; of as
// many bytes it is given back. The context is entered.
bool hd_cuda_home_asks(const hd_device *device); // the caller
hd_status hd_cuda_home_take(hd_device *device, size_t bytes, hd_diag *diag,
                            hd_cu_ptr *out);
void hd_cuda_home_give(const hd_cuda_home *home, hd_cu_ptr at, size_t bytes);

#endif
