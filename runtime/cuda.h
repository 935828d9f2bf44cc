// The inside of the cuda driver. Ranks are processes with a device each,
// streams are CUDA streams, and what peers touch lies in one window a rank,
// device memory that all of them map by CUDA IPC:
//
//   | probe words | slots with peer 0 | peer 1 | ... | marks | shared buffers |
//
// Every meeting of two ranks has one slot in the window of each, at the same
// place in the pair's list (meeting.h). A slot holds two words that only the
// peer writes and only the owner waits on, as cpu.h has them: "I am ready" and
// "it is done". They count runs and are waited for with >=. In a graph, which
// replays the same values, a word is set to 1 by the peer and cleared by its
// owner before it answers, so that the peer cannot set it again too early.
//
// Marks are words that this rank's streams write for its own watchdog, which
// the words of a slot do not tell everything: in a graph, where a word that
// came is cleared, how many a stream has seen; and which steps NCCL is done
// with.
//
// A program is compiled once into a list of commands a step: words to write and
// wait for, copies, kernels, products, events. A run issues them and patches in
// no more than its number and the arguments' addresses.
#ifndef HD_RUNTIME_CUDA_H
#define HD_RUNTIME_CUDA_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/cache.h"
#include "base/library.h"
#include "codegen/emit.h"
#include "codegen/nvrtc.h"
#include "runtime/bell.h"
#include "runtime/cuda_api.h"
#include "runtime/driver.h"
#include "runtime/group.h"
#include "runtime/meeting.h"

#define HD_CUDA_RUNS 16         // that may be in flight
#define HD_CUDA_PROBES 4096     // bytes of the window's head: a word a peer
#define HD_CUDA_GRAPHS 8        // sets of arguments that are remembered
#define HD_CUDA_STREAMS_MOST 66 // the caller's, 64 work streams, the helper
#define HD_CUDA_THROTTLE 256    // commands between marks on a stream
#define HD_CUDA_BATCH 128       // words a call; CUDA takes 256
#define HD_CUDA_NOTES 4096      // bytes of who waits for whom
#define HD_CUDA_WORKSPACE ((size_t)32 << 20) // of cuBLASLt, a stream
#define HD_CUDA_PLANS 16 // of cuBLASLt's, that are timed for a product

// ----------------------------------------------------- in the window

typedef struct hd_cuda_slot {
    uint32_t word[4]; // written by the peer: ready, done, fetched; unused
    uint64_t offset;  // in this window: what the peer may touch
    uint64_t bytes;   // likewise; 0 for nothing
    uint64_t kind;    // what this side does, for the peer to compare
    uint64_t share;   // offset of this side's share of a result; 0 for none
    uint64_t unused[2];
} hd_cuda_slot;
_Static_assert(sizeof(hd_cuda_slot) == 64, "slots do not share sectors");

// --------------------------------------------------------- the plan

// An address: `offset` into buffer `buffer`, into the caller's own memory for
// argument `buffer - nbuffers` where it is staged, or as it is if `buffer` is
// negative. HD_CUDA_WORD_VALUE stands for what this run writes into words.
#define HD_CUDA_WORD_VALUE (-2)
typedef struct hd_cuda_at {
    int buffer;
    uint64_t offset;
} hd_cuda_at;

typedef enum hd_cuda_kind {
    HD_CUDA_WORDS,
    HD_CUDA_COPY,
    HD_CUDA_KERNEL,
    HD_CUDA_PRODUCT,
    HD_CUDA_RECORD,
    HD_CUDA_WAIT,
    HD_CUDA_RECORD_ARGUMENT,
    HD_CUDA_WAIT_ARGUMENT,
    HD_CUDA_NCCL,
} hd_cuda_kind;

// What a stream waits for, for those who wonder why nothing happens: a word of
// a peer's, or what NCCL does, which this rank's stream itself marks as over.
typedef struct hd_cuda_wait {
    const hd_step *step; // borrowed
    int n;               // of steps, where NCCL does a group
    int peer;            // -1: NCCL waits, for any that the steps name
    int stream;
    uint32_t before; // waits for words ahead of it on its stream
    uint64_t offset; // of the word in our window; 0 if nothing marks it
} hd_cuda_wait;

typedef struct hd_cuda_command {
    hd_cuda_kind kind;
    int stream;          // index; 0 is the caller's
    const hd_step *step; // borrowed
    int first, n;        // WORDS: of device->word; KERNEL: of device->pointer
    hd_cuda_at to, from; // COPY
    uint64_t bytes;      // COPY
    hd_cu_function function; // KERNEL
    hd_kernel_grid grid;     // KERNEL
    int product;             // PRODUCT: of device->product
    hd_cuda_at a, b, c, bias;
    double alpha, beta;
    int event; // RECORD, WAIT: of device->event; ..ARGUMENT: of the arguments
} hd_cuda_command;

// A shape of product that cuBLASLt takes, column-major: c[m,n] = a[m,k] b[k,n].
typedef struct hd_cuda_shape {
    int64_t m, n, k, lda, ldb, ldc;
    int ta, tb;
    int type_a, type_b, type_c, type_bias; // cudaDataType_t
    int epilogue;
    int wide;  // f64
    int align; // bytes that every operand is aligned to
} hd_cuda_shape;

typedef struct hd_cuda_product {
    hd_cuda_shape shape;
    hd_lt_desc desc;        // owned
    hd_lt_layout layout[3]; // owned: a, b, c
    hd_lt_algo algo;
    size_t workspace;
    bool tuned;
} hd_cuda_product;

// ------------------------------------------------------- the device

typedef struct hd_cuda_buffer {
    const hd_buffer *buffer; // borrowed
    bool shared;
    size_t bytes;  // of the root, on one rank
    size_t offset; // in the window or in the private memory
    int argument;  // its position, -1 for a temp
} hd_cuda_buffer;

typedef struct hd_cuda_peer {
    hd_pair pair;
    uint64_t mine;      // in our window: offset of the pair's slots
    uint64_t theirs;    // in theirs
    uint64_t bytes;     // of their window
    hd_cu_ptr window;   // owned: imported; 0 if not
    hd_cuda_slot *slot; // owned: copies of theirs, while planning
    hd_cuda_slot *own;  // owned: copies of ours, while planning
} hd_cuda_peer;

typedef struct hd_cuda_stream {
    hd_cu_stream stream; // owned, but for the caller's
    uint64_t issued;     // commands
    uint64_t planned;    // commands of a run, so far
    uint64_t handed;     // of these, ahead of its last deferred send
    uint32_t heard;      // waits for words of a run, so far
    hd_cu_event mark[2]; // owned: after every HD_CUDA_THROTTLE commands
    hd_cu_ptr workspace; // of cuBLASLt; 0 until it is needed
    hd_cu_ptr counter;   // of blocks that are done; 0 until it is needed
    hd_cu_ptr scratch;   // products that go on
    size_t scratch_bytes;
} hd_cuda_stream;

typedef struct hd_cuda_module {
    char *text;          // owned: what it was made from
    hd_cu_module module; // owned
    hd_cu_function function;
} hd_cuda_module;

typedef struct hd_cuda_run {
    hd_cu_event start, end; // owned, with times
} hd_cuda_run;

// Memory that was freed may come back at the same address as another
// allocation, and a graph must not be replayed on it.
typedef struct hd_cuda_argument {
    void *at;
    uint64_t allocation; // what CUDA numbers it; kept for graphs alone
} hd_cuda_argument;

typedef struct hd_cuda_graph {
    hd_cuda_argument *argument; // owned
    hd_cu_graph_exec exec;      // owned
} hd_cuda_graph;

struct hd_device {
    hd_binding binding;
    int rank, size;

    hd_library cuda_library, lt_library, nccl_library;
    hd_cu_api cu;
    hd_lt_api lt;
    hd_nccl_api nccl;
    hd_nvrtc *nvrtc;   // owned; NULL if no kernel is needed
    hd_lt_handle blas; // owned; NULL if there is no product
    char matmul[200];
    hd_cache cache; // of kernels and tuned plans
    double tuning;  // seconds that it took so far
    hd_cu_device ordinal;
    hd_cu_context context;
    bool retained;        // the context is ours to release
    char arch[16];        // "sm_90a"
    char transports[256]; // "node=nccl,tp=copy"

    hd_cuda_buffer *buffer; // owned, by id
    int nbuffers, narguments;
    hd_cu_ptr window; // owned
    size_t window_bytes;
    size_t slots;      // offset in the window
    size_t marks;      // likewise: how far our own streams have come
    size_t slot_bytes; // of all slots and marks
    int nmarked;       // steps by NCCL that have a mark, so far
    hd_cu_ptr memory;  // owned: private buffers
    hd_cu_ptr *extra;  // owned: what the plan needs beside them
    int nextra, extra_room;
    hd_cuda_peer *peer; // owned, by rank

    hd_cuda_stream *stream; // owned: caller's, work streams, helper
    int nstreams;           // all of them
    hd_cu_stream capture;   // owned: stands in for the caller's in graphs
    hd_cu_stream rescue;    // owned: never waits
    hd_cu_event *event;     // owned
    int nevents;

    // Owned, by step: the first of its commands, or of its group's at the first
    // step; at the end, the first behind them all. Commands ahead and behind
    // are a run's own.
    int *first;
    bool *early;         // owned, by step: its \"ready\" is said in the head
    hd_cu_ptr *gathered; // owned, by step: where NCCL puts together all ranks'
                         // operands of a maximum, 0 for what it reduces
    uint64_t *share; // owned, by step: our share of its result in the window
    hd_cuda_command *command; // owned
    int ncommands, command_room;
    hd_cu_memop *word; // owned
    int nwords, word_room;
    hd_cuda_at *pointer; // owned
    int npointers, pointer_room;
    hd_cuda_wait *wait; // owned
    int nwaits, wait_room;
    hd_cuda_product *product; // owned
    int nproducts, product_room;
    hd_cuda_module *module; // owned
    int nmodules, module_room;
    uint64_t sending;            // bytes to peers a run
    _Atomic(hd_nccl_comm) *comm; // owned, by axis: who takes one out ends it

    uint64_t runs; // begun
    hd_cuda_run run[HD_CUDA_RUNS];
    hd_cu_ptr *base;            // owned: by buffer, then by argument
    hd_cuda_argument *argument; // owned: of this run
    hd_cu_stream caller;        // of this run
    hd_cuda_graph graph[HD_CUDA_GRAPHS];
    int ngraphs;
    hd_cuda_graph *replay; // of this run; NULL if steps are issued
    bool capturing;
    bool takes_events; // among its arguments
    hd_cu_event *mark; // owned: two a step, if times are asked for
    uint64_t random;   // of chaos
    double seconds;

    pthread_t watchdog;
    bool watching;
    hd_bell bell;
    atomic_bool closing;
    atomic_bool failed;        // written once, under the lock
    atomic_bool rested;        // the failed device does nothing any more
    pthread_mutex_t comm_lock; // held while a communicator is used
    pthread_mutex_t lock;      // guards what the first failure said
    hd_status status;
    char text[HD_GROUP_TEXT];
    char notes[HD_CUDA_NOTES]; // lines: who waits for whom
    // For the watchdog: runs of which something is issued, the stream that the
    // caller gave the last of them, and runs that are issued whole.
    _Atomic uint64_t entered;
    _Atomic(hd_cu_stream) entered_on;
    _Atomic uint64_t begun;
    uint32_t *snapshot; // owned, pinned: the slots
    atomic_bool stuck;  // the device did not come to rest: nothing is freed

    uint64_t allocations, host_waits;
};

// The flag alone crosses threads: nothing that it says is read with it.
static inline bool hd_cuda_is_stuck(const hd_device *device)
{
    return atomic_load_explicit(&device->stuck, memory_order_relaxed);
}

static inline void hd_cuda_set_stuck(hd_device *device, bool stuck)
{
    atomic_store_explicit(&device->stuck, stuck, memory_order_relaxed);
}

static inline hd_cuda_run *hd_cuda_run_of(hd_device *device, uint64_t n)
{
    return &device->run[n % HD_CUDA_RUNS];
}

// The last of the streams makes the sends that do not hold up theirs.
static inline int hd_cuda_helper(const hd_device *device)
{
    return device->nstreams - 1;
}

// ------------------------------------------------ cuda_open.c

hd_status hd_cuda_open(const hd_binding *binding, hd_diag *diag,
                       hd_device **out);
void hd_cuda_close(hd_device *device);
// Fails with the driver's words for `result`: HD_NO_MEMORY, else HD_SYSTEM.
hd_status hd_cuda_error(hd_device *device, hd_cu_result result, hd_diag *diag,
                        const char *call);
// The driver's call `name`, checked.
#define HD_CUDA_TRY(device, diag, name, ...)                        \
    do {                                                            \
        hd_cu_result result_ = (device)->cu.name(__VA_ARGS__);      \
        if (result_ != HD_CU_SUCCESS)                               \
            return hd_cuda_error((device), result_, (diag), #name); \
    } while (0)

// ------------------------------------------------ cuda_memory.c

hd_status hd_cuda_alloc(hd_device *device, hd_diag *diag);
void hd_cuda_free(hd_device *device);
hd_status hd_cuda_export(hd_device *device, int peer, hd_diag *diag,
                         hd_handle *out);
hd_status hd_cuda_import(hd_device *device, int peer, const hd_handle *handle,
                         hd_diag *diag);
// Whether the words that the peers wrote have come.
hd_status hd_cuda_check_probes(hd_device *device, hd_diag *diag);
// Memory that lives as long as the device.
hd_status hd_cuda_extra(hd_device *device, size_t bytes, hd_diag *diag,
                        hd_cu_ptr *out);
// Copies and waits, on the rescue stream.
hd_status hd_cuda_copy_now(hd_device *device, hd_cu_ptr to, hd_cu_ptr from,
                           size_t bytes, hd_diag *diag);

// --------------------------------------------------- cuda_plan.c

hd_status hd_cuda_plan(hd_device *device, hd_diag *diag);
void hd_cuda_plan_free(hd_device *device);
// ------------------------------------------------ cuda_command.c

// Grows an array of `size`-byte elements to hold one more; false if memory runs
// out.
bool hd_cuda_grow(void **array, int n, int *room, size_t size);
hd_status hd_cuda_no_room(const hd_device *device, hd_diag *diag);
// A command to fill in; NULL if memory runs out.
hd_cuda_command *hd_cuda_add(hd_device *device, hd_cuda_kind kind, int stream,
                             const hd_step *step);
hd_cuda_at hd_cuda_at_span(const hd_span *span);
hd_cuda_at hd_cuda_at_place(hd_stretch place);
hd_status hd_cuda_add_copy(hd_device *device, int stream, const hd_step *step,
                           hd_cuda_at to, hd_cuda_at from, uint64_t bytes,
                           hd_diag *diag);
// A kernel that is given the addresses `at`; the text is freed.
hd_status hd_cuda_add_kernel(hd_device *device, int stream, const hd_step *step,
                             hd_text *text, hd_kernel_grid grid,
                             const hd_cuda_at *at, int n, hd_diag *diag);
hd_status hd_cuda_new_event(hd_device *device, hd_diag *diag, int *out);
hd_status hd_cuda_add_event(hd_device *device, hd_cuda_kind kind, int stream,
                            const hd_step *step, int event, hd_diag *diag);
// `later` goes on when `first` has come this far.
hd_status hd_cuda_tie(hd_device *device, int first, int later,
                      const hd_step *step, hd_diag *diag);

// ------------------------------------------------- cuda_tidy.c

// Leaves out what the plan can do without.
hd_status hd_cuda_tidy(hd_device *device, hd_diag *diag);

// ----------------------------------------------- cuda_transfer.c

bool hd_cuda_by_nccl(const hd_device *device, const hd_step *step);
// A send that does not hold up its stream.
bool hd_cuda_defers(const hd_step *step);
// Those of `n` steps, a group, that are deferred, or those that are not.
hd_status hd_cuda_plan_party(hd_device *device, const hd_step *steps, int n,
                             int stream, bool deferred, hd_diag *diag);
// Which steps say "ready" at the start of a run: device->early.
void hd_cuda_find_early(hd_device *device);
hd_status hd_cuda_say_early(hd_device *device, hd_diag *diag);
// Of `n` steps, a group, that NCCL was just given those that are its.
hd_status hd_cuda_mark_nccl(hd_device *device, const hd_step *steps, int n,
                            int stream, hd_diag *diag);
// Whether it may be this rank that the wait is for.
bool hd_cuda_waits_for(const hd_device *device, const hd_cuda_wait *wait,
                       int rank);

// ------------------------------------------------- cuda_reduce.c

// Bytes of the window that this rank's share of the step's result takes; 0 if
// it reduces all of it, or the step does not reduce.
uint64_t hd_cuda_share_bytes(const hd_device *device, const hd_step *step);

// ------------------------------------------------- cuda_matmul.c

hd_status hd_cuda_plan_matmul(hd_device *device, int stream,
                              const hd_step *step, hd_diag *diag);
hd_status hd_cuda_multiply(hd_device *device, const hd_cuda_command *command,
                           hd_diag *diag);
void hd_cuda_matmul_free(hd_device *device);

// --------------------------------------------------- cuda_tune.c

// Whether a plan for the product is on disk, which it then has.
bool hd_cuda_tuned(hd_device *device, hd_cuda_product *product);
// Gives the product the fastest of `n` plans, and keeps it on disk. It stays as
// it is if no time or memory is left for that.
hd_status hd_cuda_tune(hd_device *device, hd_cuda_product *product,
                       const hd_lt_heuristic *plan, int n, hd_diag *diag);

// ------------------------------------------------- cuda_kernel.c

// Compiles and loads, or finds what was made from the same text.
hd_status hd_cuda_kernel(hd_device *device, const char *text, hd_diag *diag,
                         hd_cu_function *out);
void hd_cuda_kernel_free(hd_device *device);

// --------------------------------------------------- cuda_nccl.c

hd_status hd_cuda_nccl_open(hd_device *device, hd_diag *diag);
// Of `n` steps, a group: memory for the maxima that NCCL only gathers, and,
// once it was given the group, the kernels that take them.
hd_status hd_cuda_plan_gathers(hd_device *device, const hd_step *steps, int n,
                               hd_diag *diag);
hd_status hd_cuda_plan_maxima(hd_device *device, const hd_step *steps, int n,
                              int stream, hd_diag *diag);
// In cuda_comm.c. Connects this rank with those that it `meets`, by rank of
// the communicator. A failure is told to all peers.
hd_status hd_cuda_comm_join(hd_device *device, const hd_nccl_id *id, int size,
                            int rank, const bool *meets, const char *axis,
                            hd_diag *diag, hd_nccl_comm *out);
void hd_cuda_nccl_close(hd_device *device);
// Ends what its kernels wait for.
void hd_cuda_nccl_abort(hd_device *device);
// Whether what has run went well: its kernels end without a word if not.
hd_status hd_cuda_nccl_check(hd_device *device, hd_diag *diag);
hd_status hd_cuda_nccl_transfer(hd_device *device,
                                const hd_cuda_command *command, hd_diag *diag);
void *hd_cuda_address(const hd_device *device, hd_cuda_at at);

// -------------------------------------------------- cuda_watch.c

hd_status hd_cuda_watch(hd_device *device, hd_diag *diag);
void hd_cuda_unwatch(hd_device *device);
// Ends everything on this device with its first failure, and tells the peers.
void hd_cuda_fail(hd_device *device, hd_status status, const char *text,
                  const char *notes);
// Blocks the host until `event` is reached or the device failed.
hd_status hd_cuda_await(hd_device *device, hd_cu_event event, hd_diag *diag);
// The device's failure, once it is at rest; HD_OK if it has none.
hd_status hd_cuda_report(hd_device *device, hd_diag *diag);

#endif
