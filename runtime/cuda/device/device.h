// The inside of the cuda driver. Ranks are processes, or threads of one, with a
// device each, streams are CUDA streams, and what peers touch lies in one
// window a rank, device memory that all of them map (window.h):
//
//   | probe words | slots with peer 0 | peer 1 | ... | shared buffers |
//
// Every rendezvous of two ranks has one slot in the window of each, at the same
// place in the pair's list (rendezvous.h). A slot holds two words that only the
// peer writes and only the owner waits on, as cpu.h has them: "I am ready" and
// "it is done". They count runs and are waited for with >=; with graphs they
// tell runs apart by turns (plan.h), and where the caller may capture runs the
// device counts them (capture.h).
//
// The words of a slot do not tell the watchdog everything: that NCCL is done
// with a step is an event that the stream records behind it, a mark.
//
// A program is compiled once into a list of commands a step: words to write and
// wait for, copies, kernels, products, events. A run issues them and patches in
// no more than its number and the arguments' addresses.
#ifndef HD_RUNTIME_CUDA_DEVICE_DEVICE_H
#define HD_RUNTIME_CUDA_DEVICE_DEVICE_H

#include <stdatomic.h>

#include "base/disk.h"
#include "base/library.h"
#include "runtime/cuda/device/home.h"
#include "runtime/cuda/vendor/api.h"
#include "runtime/driver.h"
#include "runtime/ranks/group.h"
#include "runtime/rendezvous.h"

#define HD_CUDA_RUNS 16  // that may be in flight
#define HD_CUDA_GRAPHS 8 // that are kept, where one does not do
// Commands after which the host waits for those that it put into the stream so
// many earlier: no more than twice as many are under way there.
#define HD_CUDA_THROTTLE 256

// An address: `offset` into buffer `buffer`, into the caller's own memory for
// argument `buffer - nbuffers` where it is staged, behind these into the rooms
// of the streams, or as it is if `buffer` is negative. HD_CUDA_WORD_VALUE
// stands for what this run writes into words.
#define HD_CUDA_WORD_VALUE (-2)
typedef struct hd_cuda_at {
    int buffer;
    uint64_t offset;
} hd_cuda_at;
#define HD_CUDA_NOWHERE ((hd_cuda_at){-1, 0})

// What a stream's steps need beside the program's buffers. What is of use after
// its step is the session's own.
typedef enum hd_cuda_room {
    HD_CUDA_SCRATCH,
    HD_CUDA_WORKSPACE, // of cuBLASLt
    // The session's own:
    HD_CUDA_COUNTER,     // of blocks that are done: 0 between kernels
    HD_CUDA_MISCOUNT,    // an hd_kernel_miscount: 0 until there is one
    HD_CUDA_TILES_READY, // words of tiles' parts: 0 between kernels, unless one
                         // was late
    HD_CUDA_ROOMS,
    HD_CUDA_ROOMS_OWN = HD_CUDA_COUNTER, // the first of those
} hd_cuda_room;

// Of a stream's marks the last `room` have an event each, by turns; those
// before are over. The counts are for the thread that watches, too.
typedef struct hd_cuda_marks {
    int each;           // a run
    int room;           // of them
    hd_cu_event *event; // owned: an event each
    _Atomic uint64_t begun, recorded;
} hd_cuda_marks;

typedef struct hd_cuda_stream {
    hd_cu_stream stream;        // the home's, or the caller's
    uint64_t planned;           // commands of a run, so far
    uint64_t handed;            // of these, before its last deferred send
    hd_cuda_marks marks;        // of what NCCL is done with
    size_t need[HD_CUDA_ROOMS]; // bytes of memory of its own
    size_t used;                // of its scratch, by what is planned now
} hd_cuda_stream;

// Of the kernels that reduce over ranks and meet them by themselves: which does
// it, where both can. By size and ranks, or as HEDDLE_SHOTS says.
typedef enum hd_cuda_shots {
    HD_CUDA_SHOTS_AUTO,
    HD_CUDA_SHOTS_ONE,
    HD_CUDA_SHOTS_TWO,
} hd_cuda_shots;

// What a plan's streams wait for, the same in all plans of a session: their
// commands differ in what is moved and computed alone. Complete before the
// thread that watches begins.
typedef struct hd_cuda_waits {
    struct hd_cuda_wait *wait; // owned
    int n, room;
} hd_cuda_waits;

// The parts of a device, each known to the files that work with it: commands
// (cuda/commands/plan.h), what peers touch (cuda/memory/peers.h), cuBLASLt's
// products (cuda/libraries/products.h); and those of one file each: what
// attends, cuDNN, NCCL's communicators, the runs.
typedef struct hd_cuda_plan hd_cuda_plan;
typedef struct hd_cuda_peers hd_cuda_peers;
typedef struct hd_cuda_products hd_cuda_products;
typedef struct hd_cuda_attends hd_cuda_attends;
typedef struct hd_cuda_dnn hd_cuda_dnn;
typedef struct hd_cuda_nccl hd_cuda_nccl;
typedef struct hd_cuda_fused hd_cuda_fused;
typedef struct hd_cuda_mp hd_cuda_mp;
typedef struct hd_cuda_runs hd_cuda_runs;
typedef struct hd_cuda_said hd_cuda_said;
typedef struct hd_cuda_passed hd_cuda_passed;
typedef struct hd_cuda_captures hd_cuda_captures;

// Of the run in flight that was seen last: what its words were, since when.
typedef struct hd_cuda_progress {
    uint64_t run;  // 0: there was none
    uint64_t hash; // 0: they have not been read
    int64_t since;
} hd_cuda_progress;

struct hd_device {
    hd_binding binding;
    int rank, size;

    hd_cuda_home *home;   // borrowed from the group; NULL if it is not open
    hd_cu_api cu;         // a copy of its
    char transports[256]; // "node=nccl,tp=copy"
    hd_cuda_shots shots;  // of small reductions
    hd_disk cache;        // of kernels and tuned plans

    hd_root *buffer; // owned, by id; offsets are in the window or the memory
    int nbuffers, narguments;
    // The home's, of which a run of another session makes what it likes:
    // private buffers, and rooms of all streams; NULL if it needs none.
    hd_cuda_chunk *memory, *rooms;
    hd_cu_ptr zeroed; // owned: rooms that are 0 at first, of all streams
    size_t zeroed_bytes;
    hd_cu_ptr gates; // owned: words that launches wait for
    size_t gate_bytes;
    hd_cu_ptr *base; // owned: by buffer, by argument, by room of a stream
    hd_cuda_stream *stream; // owned: caller's, work streams, helper
    int nstreams;           // all of them

    // Owned; NULL until they are needed.
    hd_cuda_peers *peers;
    hd_cuda_plan *whole; // of the binding's steps: others need no more room
    hd_cuda_plan *variant[HD_VARIANTS];
    hd_cuda_waits waits;
    hd_cu_event *event; // owned: between commands of any plan
    int nevents;
    hd_cuda_said *said;     // of runs with sizes
    hd_cuda_passed *passed; // what runs are given in other ways
    // Of sessions whose runs the device counts: cuda/issue/capture.h.
    hd_cuda_captures *captures;
    hd_cu_ptr tally; // owned: an hd_kernel_tally
    bool capturing;  // commands are, into a graph
    bool captured;   // this run, into a graph of the caller's
    hd_cuda_products *products;
    hd_cuda_attends *attends;
    hd_cuda_dnn *dnn;
    struct hd_cuda_loaded **kernel; // owned: the home's that this session uses
    int nkernels, kernel_room;
    hd_cuda_nccl *nccl;
    hd_cuda_fused *fused; // NULL if there are no launches that may be
    const struct hd_cuda_provider *provider; // of those; borrowed
    hd_cuda_mp *mp;                          // cuBLASMp's
    hd_cuda_runs *run;
    hd_device *beside; // of the home's sessions that are watched, the next one
    bool watched;      // it is one of these
    hd_cuda_progress progress; // for the thread that watches alone

    uint64_t allocations, host_waits;
    uint64_t plans;           // made
    uint64_t graphs, patches; // executables made; updated to another capture
};

// The flag alone crosses threads: nothing that it says is read with it.
static inline bool hd_cuda_is_stuck(const hd_device *device)
{
    return device->home != NULL &&
           atomic_load_explicit(&device->home->stuck, memory_order_relaxed);
}

static inline void hd_cuda_set_stuck(hd_device *device, bool stuck)
{
    atomic_store_explicit(&device->home->stuck, stuck, memory_order_relaxed);
}

// The last of the streams makes the sends that do not hold up theirs.
static inline int hd_cuda_helper(const hd_device *device)
{
    return device->nstreams - 1;
}

static inline hd_cu_ptr hd_cuda_address(const hd_device *device, hd_cuda_at at)
{
    return (at.buffer >= 0 ? device->base[at.buffer] : 0) + at.offset;
}

// --------------------------------------- cuda/device/context.c

// What a kept choice depends on beside its subject: the driver's CUDA, and the
// device's name, architecture and SMs. False if they are not to be had.
bool hd_cuda_add_device(hd_device *device, hd_text *key);
// Fails with the driver's message for `result`: HD_ERROR_NO_MEMORY, else
// HD_ERROR_SYSTEM.
hd_status hd_cuda_error(hd_device *device, hd_cu_result result, hd_diag *diag,
                        const char *call);
// Makes the device's context the calling thread's, and a capture that is under
// way anywhere, of which these calls are no part, forbids the thread nothing;
// until it leaves with the `mode` that it is given here.
hd_status hd_cuda_enter(hd_device *device, hd_diag *diag, int *mode);
void hd_cuda_leave(hd_device *device, int mode);
// The driver's call `name`, checked.
#define HD_CUDA_TRY(device, diag, name, ...)                        \
    do {                                                            \
        hd_cu_result result_ = (device)->cu.name(__VA_ARGS__);      \
        if (result_ != HD_CU_SUCCESS)                               \
            return hd_cuda_error((device), result_, (diag), #name); \
    } while (0)
// Copies and waits, on the rescue stream.
hd_status hd_cuda_copy_now(hd_device *device, hd_cu_ptr to, hd_cu_ptr from,
                           size_t bytes, hd_diag *diag);
// Grows an array of `size`-byte elements to hold one more; false if memory runs
// out.
bool hd_cuda_grow(void **array, int n, int *room, size_t size);

// ---------------------------------------- cuda/device/kernel.c

// Compiles and loads, or finds what was made from the same text.
hd_status hd_cuda_kernel(hd_device *device, const char *text, hd_diag *diag,
                         hd_cu_function *out);
// The session uses none any more.
void hd_cuda_kernels_leave(hd_device *device);
// All of a home's.
void hd_cuda_kernels_close(hd_cuda_home *home);

// ------------------------------------------ cuda/device/fail.c

// Nanoseconds that a released device has to come to rest.
#define HD_CUDA_REST INT64_C(10000000000)

bool hd_cuda_has_failed(const hd_device *device);
// Ends everything on this device with its first failure, and tells the peers.
void hd_cuda_fail(hd_device *device, hd_status status, const char *text,
                  const char *notes);
// The same, where the group has failed, and where the device has.
void hd_cuda_fail_with_group(hd_cuda_home *home);
void hd_cuda_tell_failed(hd_device *device, hd_cu_result result);
// Blocks the host until `event` is reached or the device failed.
hd_status hd_cuda_await(hd_device *device, hd_cu_event event, hd_diag *diag);
// As above, until `deadline` at most: `over` is false if neither has come by
// then. Any thread that has entered may call.
hd_status hd_cuda_await_until(hd_device *device, hd_cu_event event,
                              int64_t deadline, hd_diag *diag, bool *over);
// Whoever has seen the end of a run asks this before it says that all is well:
// a peer that failed may have fed it what means nothing. The failure that peers
// had told of by then, as below.
hd_status hd_cuda_catch_up(hd_device *device, hd_diag *diag);
// As above, until `deadline` at most: `over` is false if it is not known then.
hd_status hd_cuda_catch_up_until(hd_device *device, int64_t deadline,
                                 hd_diag *diag, bool *over);
// Called for each command that was put into the stream: the host waits for what
// it put there long ago.
hd_status hd_cuda_throttle(hd_device *device, int stream, hd_diag *diag);
// The device's failure, once it is at rest; HD_OK if it has none.
hd_status hd_cuda_report(hd_device *device, hd_diag *diag);
// Whether the host is in the middle of a run of this session, or of any of the
// home: more is to come on the streams, or they are being captured, and nobody
// may ask how far they are.
bool hd_cuda_runs_issue(const hd_device *device);
bool hd_cuda_home_issues(const hd_cuda_home *home);
void hd_cuda_nap(int64_t ns);
static inline bool hd_cuda_has_rested(const hd_cuda_home *home)
{
    return atomic_load_explicit(&home->rested, memory_order_acquire);
}

#endif
