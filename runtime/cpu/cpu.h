// The inside of the cpu driver. Ranks are processes, streams are threads, and
// what peers share lies in one window a rank, a memfd that all of them map
// (runtime/ranks/pool.h). Of that a session has words of its own, and shared
// buffers, which lie where those of all sessions of the group do:
//
//   | doorbell, marks | slots with peer 0 | peer 1 | ...    shared buffers
//
// Every transfer between two ranks has one slot in the window of each, at the
// same place in the pair's list. A slot holds two words that only the peer
// writes, with the number of the run, and that only the owner waits on: one for
// "I am ready", one for "it is done". Since the words only grow and each run
// has its own number, no signal is lost or taken for that of another run. Where
// the peer finds the data stands in the slot too, so no rank needs to walk
// another's program.
//
// A program is compiled once into a list of entries a stream. The threads that
// follow them are the group's, one an index of streams (runtime/ranks/workers),
// and each is given a job a run: to follow its stream's entries from beginning
// to end. All threads are given runs of all sessions in the order of their
// issue, which is the same on all ranks. So runs of a group happen in order,
// and no thread waits for a run behind the one that it is at.
#ifndef HD_RUNTIME_CPU_H
#define HD_RUNTIME_CPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/cpu/kernels.h"
#include "runtime/driver.h"
#include "runtime/event.h"
#include "runtime/failure.h"
#include "runtime/ranks/doorbell.h"
#include "runtime/ranks/group.h"
#include "runtime/ranks/pool.h"
#include "runtime/ranks/workers.h"
#include "runtime/rendezvous.h"

#define HD_CPU_RUNS 16    // that may be in flight
#define HD_CPU_STREAMS 66 // 64 work streams, the caller's, the helper
#define HD_CPU_HELPER (HD_CPU_STREAMS - 1)
_Static_assert(HD_CPU_STREAMS == HD_WORKERS, "a thread a stream");

// ------------------------------------------------- in shared memory

// What one stream does, for those who wonder why nothing happens. Only its
// stream writes it; the two words may be read torn, which only blurs a report.
typedef struct hd_cpu_mark {
    _Atomic uint64_t what;  // state, op, peer and step: report.c packs them
    _Atomic uint64_t where; // line and column, 32 bits each
} hd_cpu_mark;

typedef struct hd_cpu_header {
    uint64_t left;         // the pool's
    hd_doorbell doorbell;  // of everything that this rank's streams wait for
    _Atomic uint64_t runs; // issued: their arguments are there
    _Atomic uint64_t over; // ended, on the caller's stream
    hd_cpu_mark mark[HD_CPU_STREAMS];
    // Of runs, by number: what they were given. Their rank writes them before
    // the run begins, and peers that move data for it read them before they say
    // that it is done.
    _Atomic int64_t sizes[2 * HD_CPU_RUNS][HD_MAX_SIZES];
} hd_cpu_header;

typedef struct hd_cpu_slot {
    _Atomic uint64_t word[2]; // written by the peer: ready, done
    hd_offer offer;
    char line[24]; // pairs do not share cache lines
} hd_cpu_slot;

// --------------------------------------------------------- the plan

// One side of what passes between two ranks, or a copy of our own.
typedef struct hd_cpu_part {
    hd_side side; // HD_SIDE_NONE: a copy
    int peer;     // -1 for a copy
    hd_cpu_slot *mine;
    hd_cpu_slot *theirs;
    hd_location place;
    hd_location from; // of a copy
    void *remote;     // PUT, PULL, READ
    size_t bytes;
    const hd_step *counted; // borrowed: moves what its counts say; NULL: all
    int64_t piece;          // of its operand; -1: all of that
    struct hd_cpu_reduce *reduce; // READ
    int operand;                  // READ: which of the reduce's
    bool over;                    // in this run
} hd_cpu_part;

// Reduces one operand a rank, in the order of ranks.
typedef struct hd_cpu_reduce {
    hd_fold fold;
    hd_dtype dtype;
    size_t elements;
    hd_location out;
    hd_location own;
    int n;                // operands
    int own_index;        // which of them is ours
    const void **operand; // owned: addresses; ours is filled in by each run
    bool beside;          // the result lies over our operand
    size_t at;            // of `scratch` among what is made beside
    void *scratch;        // borrowed; NULL unless it is made beside
    int nparts;           // READ parts that feed it
    int missing;          // operands that are not ready in this run
} hd_cpu_reduce;

typedef enum hd_cpu_entry_kind {
    HD_CPU_COMPUTE,
    HD_CPU_CALL,
    HD_CPU_TRANSFER,
    HD_CPU_DEFER,       // hands its parts to the helper
    HD_CPU_RECORD,      // one of the step's events
    HD_CPU_WAIT,        // for what step `target` records
    HD_CPU_WAIT_CALLER, // for what the caller recorded in argument `target`
    HD_CPU_WAIT_STREAM, // until stream `target` has done `position` entries
    HD_CPU_BEGIN,       // of a run: copies arguments that are shared into the
                        // window
    HD_CPU_END,         // of a run: copies them out
} hd_cpu_entry_kind;

// What TRANSFER and DEFER move.
typedef struct hd_cpu_transfer {
    hd_cpu_part *part;     // owned
    hd_cpu_reduce *reduce; // owned
    int nparts, nreduces;
    int64_t first; // of its steps
    int nsteps;
    bool deferred;  // it has those that are, or the others
    uint64_t sizes; // of the run that its parts are as in
    int left;       // parts that are not over in this run
    // DEFER: runs for which its stream asked, and those that are sent.
    _Atomic uint64_t asked;
    uint64_t begun;
    _Atomic uint64_t sent;
} hd_cpu_transfer;

// There may be HD_MAX_STEPS of them, so that what few have stands apart.
typedef struct hd_cpu_entry {
    hd_cpu_entry_kind kind;
    bool watched;              // another stream waits until this one is done
    const hd_step *step;       // borrowed; NULL for BEGIN and END
    hd_cpu_transfer *transfer; // owned; NULL but for TRANSFER and DEFER
    int target; // RECORD and DEFER: the argument it records into, or -1; CALL:
                // the function's number
    int event;  // and which record of this run it is there, from 0
    uint64_t position;
} hd_cpu_entry;

// ------------------------------------------------------- the device

// A fixed argument of a peer's.
typedef struct hd_cpu_fixed {
    hd_window window; // owned: mapped
    uint64_t offset;  // in it
} hd_cpu_fixed;

typedef struct hd_cpu_peer {
    const hd_window *window; // borrowed: theirs
    hd_cpu_fixed *fixed;     // owned, by argument; NULL if none is fixed
    int nfixed;              // as many
    hd_cpu_header *header;
    size_t words, slots; // in their window: what it told us
    size_t offset;       // in our words: of the pair's slots
    hd_cpu_slot *mine;
    hd_cpu_slot *theirs;
    hd_pair pair; // what passes between us in a run
    hd_pair told; // likewise, as the peer says
} hd_cpu_peer;

// What one run in flight has of its own.
typedef struct hd_cpu_run {
    void **base;       // owned, by buffer id: of roots
    void **argument;   // owned, by argument
    uint64_t *value;   // owned, by argument: what it was given of the host's
    bool *packed;      // owned, by argument: whether it is one
    uint64_t *event;   // owned, by argument: what to wait for
    uint64_t *reaches; // owned, by argument: number of the first record
    // Borrowed: the program at its sizes, and the steps.
    const hd_module *module;
    const hd_steps *steps;
    uint64_t sizes; // the variant's, 0: those of the binding
} hd_cpu_run;

// Memory of an argument that is not dense in some runs, for one at a time, and
// the strides that each run in flight was given.
typedef struct hd_cpu_pack {
    void *memory; // owned
    int64_t stride[HD_CPU_RUNS][HD_MAX_DIMS];
} hd_cpu_pack;

typedef struct hd_cpu_stream {
    hd_device *device;   // borrowed
    int index;           // 0 is the caller's, then the work streams
    hd_cpu_entry *entry; // owned
    size_t nentries, room;
    size_t joined;             // of them, by the caller's stream
    _Atomic uint64_t finished; // entries done, over all runs
    hd_cpu_scratch scratch;    // of whoever follows it
    hd_job job[HD_CPU_RUNS];
    uint64_t chaos; // state of its random numbers
} hd_cpu_stream;

struct hd_device {
    hd_binding binding;
    int rank, size;
    hd_cpu_blas blas; // owned
    hd_root *buffer;  // owned, by id; offsets are in the window or, of what
                      // is private, in the region that no peer sees
    uint64_t *events; // owned, by argument: records a run makes into it
    int nbuffers, narguments;
    hd_pool *pool; // borrowed: the group's
    hd_hold *hold; // the pool's
    bool settled;  // peers have what we told them
    hd_cpu_header *header;
    size_t beside;     // bytes for results that are made beside their operands
    uint64_t digest;   // hd_fit's
    hd_cpu_peer *peer; // owned, by rank
    hd_cpu_stream *stream; // owned
    int nstreams;
    _Atomic uint64_t *recorded; // owned, by step: the last run that recorded
    hd_cpu_run run[HD_CPU_RUNS];
    hd_cpu_pack **pack; // owned, by argument: NULL until one is not dense
    struct {
        const hd_module *module; // borrowed
        const hd_steps *steps;   // borrowed
        uint64_t sizes;          // `varied` with these
    } variant[HD_VARIANTS];
    uint64_t varied;  // times that a variant was given sizes
    uint64_t runs;    // issued
    uint64_t sending; // bytes to peers a run

    hd_cpu_entry **deferred; // owned, of borrowed: sends the helper makes
    size_t ndeferred;
    size_t unsent;        // of them, in its run: the helper's own
    hd_cpu_stream helper; // its entries are those of the streams
    hd_doorbell host;     // rung when a stream ends a run, or the helper sent

    atomic_bool closing;
    hd_failure failure;
    hd_failure miscount; // of a run that ends: the first that was seen

    uint64_t allocations, host_waits;
};

// The run that number n (from 1) uses.
static inline hd_cpu_run *hd_cpu_run_of(hd_device *device, uint64_t n)
{
    return &device->run[n % HD_CPU_RUNS];
}

// The slot of a rendezvous in a pair's list, which begins at `first`.
static inline hd_cpu_slot *hd_cpu_slot_of(hd_cpu_slot *first,
                                          const hd_cpu_peer *peer,
                                          const hd_rendezvous *rendezvous)
{
    return &first[hd_pair_slot(&peer->pair, rendezvous)];
}

// The step as the run has it.
static inline const hd_step *hd_cpu_step_of(const hd_cpu_run *run,
                                            const hd_step *step)
{
    return &run->steps->step[step->index];
}

static inline void *hd_cpu_address(const hd_cpu_run *run, hd_location place)
{
    return (char *)run->base[place.buffer] + place.offset;
}

// ------------------------------------------------ cpu/memory.c

// Lists buffers, and counts what passes between this rank and its peers.
hd_status hd_cpu_list(hd_device *device, hd_diag *diag);
// Takes what the plan needs.
hd_status hd_cpu_alloc(hd_device *device, hd_diag *diag);
void hd_cpu_free(hd_device *device);
void hd_cpu_tell(hd_device *device, int peer, hd_told *out);
void hd_cpu_hear(hd_device *device, int peer, const hd_told *note);
hd_status hd_cpu_export(hd_device *device, int peer, hd_diag *diag,
                        hd_handle *out);
hd_status hd_cpu_import(hd_device *device, int peer, const hd_handle *handle,
                        hd_diag *diag);
// Where an offset that a peer tells is, and how many bytes there are in all of
// the window, or of the argument's memory.
void *hd_cpu_remote(const hd_cpu_peer *peer, uint64_t offset);
uint64_t hd_cpu_room(const hd_cpu_peer *peer, uint64_t offset);

// ------------------------------------------------ cpu/fixed.c

// Whether peers can be told of the fixed arguments.
hd_status hd_cpu_fixed_check(hd_device *device, hd_diag *diag);
// Collective: maps those of all peers.
hd_status hd_cpu_fixed_meet(hd_device *device, hd_diag *diag);
void hd_cpu_fixed_close(hd_device *device);

// ------------------------------------------------ cpu/memory.c

// Finds the peers' words.
hd_status hd_cpu_meet(hd_device *device, hd_diag *diag);
// Memory for argument `i` where it is not dense.
hd_status hd_cpu_pack_argument(hd_device *device, size_t i, hd_diag *diag);
// Fills the memory of temporaries with NaNs, from these places on.
void hd_cpu_poison(hd_device *device, size_t shared, size_t own);

// --------------------------------------------------- cpu/plan.c

hd_status hd_cpu_plan(hd_device *device, hd_diag *diag);
void hd_cpu_plan_free(hd_device *device);
// What is made beside its operand is made here.
void hd_cpu_plan_place(hd_device *device, char *beside);
// Finds the slots of all parts, and what peers offer in theirs.
hd_status hd_cpu_plan_connect(hd_device *device, hd_diag *diag);
// Gives a transfer the lengths and places that a run's sizes make of it.
void hd_cpu_plan_again(hd_device *device, hd_cpu_transfer *transfer,
                       const hd_cpu_run *run);

// --------------------------------------------- cpu/transfer.c

// Starts the parts of an entry in a run: says what needs no wait.
void hd_cpu_begin_parts(hd_device *device, hd_cpu_transfer *transfer,
                        uint64_t n);
// Does whatever has become possible; true once all parts are over. `peer`
// becomes one that is waited for.
bool hd_cpu_move_parts(hd_device *device, hd_cpu_transfer *transfer, uint64_t n,
                       int *peer);

// ----------------------------------------------- cpu/stream.c

// The run goes on; the host's next wait tells of the first such count.
void hd_cpu_note_miscount(hd_device *device, const hd_step *step,
                          const hd_miscount *miscount);

// A wait of a stream. `ready` may do work, and is called until it is true.
typedef struct hd_cpu_wait {
    bool (*ready)(struct hd_cpu_wait *wait);
    hd_cpu_stream *stream;
    hd_cpu_entry *entry; // NULL: for a send to make
    uint64_t run;
    hd_doorbell *doorbell; // rung when `ready` may have become true
    bool timed;            // ends at the deadline
    int peer;              // waited for, -1 if none
} hd_cpu_wait;

hd_status hd_cpu_start(hd_device *device, hd_diag *diag);
// Has the group's threads begin run n.
void hd_cpu_issue_run(hd_device *device, uint64_t n);
// What was issued and is not over ends where it is.
void hd_cpu_stop(hd_device *device);
// Blocks until run n is over or the device failed; false if neither has come by
// `deadline`. Any thread may call.
bool hd_cpu_await_run(hd_device *device, uint64_t n, int64_t deadline);

// ----------------------------------------------- cpu/report.c

typedef enum hd_cpu_state {
    HD_CPU_IDLE,
    HD_CPU_BUSY,    // at a step
    HD_CPU_LOCAL,   // waits for another stream of its rank, or an event
    HD_CPU_WAITING, // waits for a peer
} hd_cpu_state;

void hd_cpu_set_mark(hd_cpu_stream *stream, hd_cpu_state state,
                     const hd_step *step, int peer);
// Ends everything on this device with its first failure, and tells the peers.
// `text` names the rank at fault; `notes` is lines, may be empty.
void hd_cpu_fail(hd_device *device, hd_status status, const char *text,
                 const char *notes);
// Rings for every thread of the device.
void hd_cpu_wake(hd_device *device);
void hd_cpu_fail_late(const hd_cpu_wait *wait);
void hd_cpu_fail_left(const hd_cpu_wait *wait);

#endif
