// The plan of the cuda driver: what a run issues, a list of commands.
#ifndef HD_RUNTIME_CUDA_COMMANDS_PLAN_H
#define HD_RUNTIME_CUDA_COMMANDS_PLAN_H

#include <string.h>

#include "codegen/emit.h"
#include "codegen/tiles.h"
#include "runtime/cuda/device/device.h"

// Steps of a program whose steps are compared with one another, at most.
#define HD_CUDA_COMPARED 4096
#define HD_CUDA_BATCH 128 // words a call; CUDA takes 256

// Operations of words beside CUDA's, at the tally: a run begins, and ends.
enum { HD_CUDA_OP_BEGIN = 1 << 16, HD_CUDA_OP_END };

typedef enum hd_cuda_kind {
    HD_CUDA_WORDS,
    HD_CUDA_COPY,
    HD_CUDA_KERNEL,
    HD_CUDA_PRODUCT,
    HD_CUDA_ATTEND,
    HD_CUDA_CALL,
    HD_CUDA_RECORD,
    HD_CUDA_WAIT,
    HD_CUDA_RECORD_ARGUMENT,
    HD_CUDA_WAIT_ARGUMENT,
    HD_CUDA_NCCL,
    HD_CUDA_FUSED,
} hd_cuda_kind;

// What a stream waits for, for those who wonder why nothing happens: a word of
// a peer's, or what NCCL does, behind which the stream has a mark.
typedef struct hd_cuda_wait {
    const hd_step *step; // borrowed
    int n;               // of steps, where NCCL does a group
    int peer;            // -1: NCCL waits, for any that the steps name
    int stream;
    uint64_t offset; // of the word in our window; 0: NCCL's, which has none
    int marked;      // the stream whose marks it has one of
    int mark;        // which of that stream's in a run; -1: none, in a graph
} hd_cuda_wait;

// What a run writes into a launch's parameters: an address of the caller's, or
// the run's number. All else stands there from the beginning.
typedef struct hd_cuda_patch {
    size_t offset; // in the plan's blob
    hd_cuda_at at;
    int map; // of plan->map, one of which begins there; -1: the address itself
} hd_cuda_patch;

// How a kernel is started.
typedef struct hd_cuda_launch {
    hd_cu_function function;
    unsigned grid[3], block[3];
    unsigned cluster[3];   // blocks; all 0 for none
    bool early;            // it may begin before those ahead of it have ended
    unsigned shared_bytes; // dynamic shared memory
    size_t blob, bytes;    // of its parameters, in the plan's blob
    int patch, npatches;   // of the plan's
} hd_cuda_launch;

// What a command is in a graph: a node, or a chain of them for a call of a
// library's.
#define HD_CUDA_NODES_MOST 4
typedef struct hd_cuda_nodes {
    hd_cu_node at[HD_CUDA_NODES_MOST];
    size_t n; // 0 if they cannot be set anew
} hd_cuda_nodes;

typedef struct hd_cuda_command {
    hd_cuda_kind kind;
    int stream;          // index; 0 is the caller's
    const hd_step *step; // borrowed
    int first, n;        // WORDS: of plan->word; FUSED: first is its number;
                         // CALL: first is the function's; ATTEND: first is of
                         // plan->attend
    hd_cuda_at to, from; // COPY
    uint64_t bytes;      // COPY
    int launch;          // KERNEL: of plan->launch
    bool meets;          // KERNEL: it waits for peers
    int product;         // PRODUCT: of plan->product
    hd_cuda_at a, b, c, bias, workspace;
    double alpha, beta;
    struct hd_cuda_single *single; // PRODUCT, ATTEND: borrowed from the plan
    int event; // RECORD, WAIT: of device->event; ..ARGUMENT: of the arguments
    int wait;  // NCCL, FUSED: of device->waits, with a mark behind it; or -1
} hd_cuda_command;

// What attention does in place of what its step says, where steps around it do
// nothing but bring its results there.
typedef struct hd_cuda_detour {
    const hd_step
        *copy;     // borrowed: of what its first result is part of; or NULL
    bool result;   // which goes where that is copied to
    bool before;   // what it is added to, or merged with, is there, too
    bool left_out; // a copy of what is there
} hd_cuda_detour;

// The commands of a list of steps. There is one for the binding's steps, which
// has a session's rooms, waits and marks made, and one for each variant, which
// uses them.
struct hd_cuda_plan {
    hd_device *device;          // borrowed: whose it is
    const hd_module *module;    // borrowed, with the sizes of now
    const hd_steps *steps;      // borrowed
    int64_t size[HD_MAX_SIZES]; // of runs, by size of the module
    bool again;                 // an earlier run had these sizes
    bool better;                // steps of it would be a library's if one had
    // Owned, by step: the first of its commands, or of its group's at the first
    // step; at the end, the first after them all. Commands ahead and behind
    // are a run's own.
    int *first;
    hd_cuda_detour *detour; // owned, by step
    // Owned, by step: of a launch that one kernel does how many of its steps
    // are left from here on; else 0. Which word a step that records writes for
    // such a kernel, from 1; 0: none.
    int *launched, *gate;
    hd_cuda_command *command; // owned
    int ncommands, command_room;
    hd_cu_memop *word; // owned
    int nwords, word_room;
    hd_cuda_launch *launch; // owned
    int nlaunches, launch_room;
    char *blob; // owned: parameters of all launches
    size_t blob_bytes, blob_room;
    hd_cuda_patch *patch; // owned
    int npatches, patch_room;
    hd_kernel_map *map; // owned
    int nmaps, map_room;
    struct hd_cuda_product *product; // owned
    int nproducts, product_room;
    struct hd_cuda_attend *attend; // owned: an attention of cuDNN's
    int nattends, attend_room;
    struct hd_cuda_single *single; // owned: a command of either kind
    int nsingles;
    int nwaits;       // of the device's, so far
    int nevents;      // likewise
    int nfused;       // steps of a provider, so far
    uint64_t sending; // bytes to peers a run
};

// How many steps are planned and issued at once from step `i` on.
static inline int hd_cuda_together(const hd_cuda_plan *plan, int64_t i)
{
    return plan->launched[i] > 0 ? plan->launched[i]
                                 : hd_steps_together(plan->steps, i);
}

// The step of the binding that a step of any plan is, with room for all.
static inline const hd_step *hd_cuda_whole(const hd_device *device,
                                           const hd_step *step)
{
    return &device->binding.steps->step[step->index];
}
// ------------------------------------- cuda/commands/command.c

hd_status hd_cuda_no_room(const hd_device *device, hd_diag *diag);
// A command to fill in; NULL if memory runs out.
hd_cuda_command *hd_cuda_add(hd_cuda_plan *plan, hd_cuda_kind kind, int stream,
                             const hd_step *step);
// The `i`th address that a run writes into the command; false after the last.
bool hd_cuda_address_of(const hd_cuda_plan *plan,
                        const hd_cuda_command *command, int i, hd_cuda_at *out);
hd_cuda_at hd_cuda_at_span(const hd_span *span);
hd_cuda_at hd_cuda_at_place(hd_location place);
hd_status hd_cuda_add_copy(hd_cuda_plan *plan, int stream, const hd_step *step,
                           hd_cuda_at to, hd_cuda_at from, uint64_t bytes,
                           hd_diag *diag);
// A kernel that is given the addresses `at`; the text is freed.
hd_status hd_cuda_add_kernel(hd_cuda_plan *plan, int stream,
                             const hd_step *step, hd_text *text,
                             hd_kernel_grid grid, const hd_cuda_at *at, int n,
                             hd_diag *diag);
// The launch alone, the plan's last one.
hd_status hd_cuda_add_launch(hd_cuda_plan *plan, hd_text *text,
                             hd_kernel_grid grid, const hd_cuda_at *at, int n,
                             hd_diag *diag);
hd_status hd_cuda_start(const hd_cuda_plan *plan, const hd_cuda_launch *launch,
                        uint64_t run, hd_cu_stream stream, hd_diag *diag);
// The kernel of all that a step of unit COMPUTE does.
hd_status hd_cuda_add_step(hd_cuda_plan *plan, int stream, const hd_step *step,
                           hd_diag *diag);
// Which tiles of sm_90a there are for the row on the device, the best first.
int hd_cuda_choices(hd_device *device, const hd_tiles_row *row, int room,
                    hd_tiles_choice *out);
// The best, if the plan has room for it: which tiles a step has depends on the
// extents of a run, too.
bool hd_cuda_best_tiles(hd_cuda_plan *plan, int stream, const hd_tiles_row *row,
                        hd_tiles_choice *out);
// `words` are the addresses of those that each product waits for, if any do.
hd_status hd_cuda_add_row(hd_cuda_plan *plan, int stream,
                          const hd_tiles_row *row,
                          const hd_tiles_choice *choice, const hd_cu_ptr *words,
                          hd_diag *diag);
// The kernel of a matmul in tiles, the best that there is for the device.
hd_status hd_cuda_add_tiles(hd_cuda_plan *plan, int stream, const hd_step *step,
                            hd_diag *diag);
hd_status hd_cuda_new_event(hd_cuda_plan *plan, hd_diag *diag, int *out);
hd_status hd_cuda_add_event(hd_cuda_plan *plan, hd_cuda_kind kind, int stream,
                            const hd_step *step, int event, hd_diag *diag);
// `later` goes on when `first` has come this far.
hd_status hd_cuda_tie(hd_cuda_plan *plan, int first, int later,
                      const hd_step *step, hd_diag *diag);

// Which argument's own memory the address is in; -1: memory of the session's
// own, which stays where it is.
int hd_cuda_argument_of(const hd_device *device, hd_cuda_at at);
// Writes the addresses that stay as they are into the launches' parameters, and
// keeps no patch for them.
void hd_cuda_settle(hd_cuda_plan *plan);
// The parameters of a launch as CUDA takes them, with what a run patches: the
// kernel's one parameter, in the plan's blob. (Not all of them as one buffer:
// where that begins CUDA takes for no multiple of 128, which maps lie at.)
void hd_cuda_parameters_now(const hd_cuda_plan *plan,
                            const hd_cuda_launch *launch, uint64_t run,
                            void **parameters);
// What a run writes into words: its number. In a session with graphs it is one
// bit, its turn: then a graph for each turn need not be given numbers. No word
// is written for the next run but after all waits for it of this one, so that
// the last run, this one and the next are all that has to be told apart.
#define HD_CUDA_TURNS 4
static inline uint32_t hd_cuda_told(const hd_device *device, uint64_t run)
{
    return device->binding.graph ? 1u << run % HD_CUDA_TURNS : (uint32_t)run;
}
// What a run waits for: this number or one beyond, or either of these bits.
static inline uint32_t hd_cuda_awaited(const hd_device *device, uint64_t run)
{
    return device->binding.graph
               ? hd_cuda_told(device, run) | hd_cuda_told(device, run + 1)
               : (uint32_t)run;
}
static inline bool hd_cuda_has_come(const hd_device *device, uint32_t word,
                                    uint64_t run)
{
    uint32_t awaited = hd_cuda_awaited(device, run);

    return device->binding.graph ? (word & awaited) != 0
                                 : (int32_t)(word - awaited) >= 0;
}
// Gives words what the run tells and waits for.
static inline void hd_cuda_number_words(const hd_cuda_plan *plan,
                                        const hd_cuda_command *command,
                                        uint64_t run)
{
    for (int i = 0; i < command->n; i++) {
        hd_cu_memop *word = &plan->word[command->first + i];

        word->word.value = word->operation == HD_CU_OP_WAIT_32
                               ? hd_cuda_awaited(plan->device, run)
                               : hd_cuda_told(plan->device, run);
    }
}
// A word to write, or to wait for, in one call with those that the stream has
// since there were `after` commands.
hd_status hd_cuda_add_words(hd_cuda_plan *plan, int stream, const hd_step *step,
                            int after, int operation, hd_cu_ptr address,
                            hd_diag *diag);
// The word that says that the step has recorded; 0: no launch waits for it.
hd_cu_ptr hd_cuda_gate_of(const hd_cuda_plan *plan, int64_t record);
// The event that the step records, into events[step] if anything waits for it,
// and its word if a launch does.
hd_status hd_cuda_plan_record(hd_cuda_plan *plan, int stream,
                              const hd_step *step, int *events, hd_diag *diag);
// Whether the argument is copied out of the window when a run ends, or into it
// when one begins, as far as the program reads or writes it.
bool hd_cuda_is_staged(const hd_root *buffer);
// Whether the caller's argument is copied into the window when a run begins.
bool hd_cuda_is_staged_in(const hd_root *buffer);

// --------------------------------------- cuda/commands/rooms.c

// Memory of the home's, of zeros; whoever takes it gives it back.
hd_status hd_cuda_take_zeroed(hd_device *device, size_t bytes, hd_diag *diag,
                              hd_cu_ptr *out);
// A room of the stream for as many bytes; its memory is there once all of the
// plan is known: of the binding's steps, other plans need no more. Scratch is
// the stream's next: what one step or group takes lies side by side, and the
// next one's takes its place.
hd_cuda_at hd_cuda_need(hd_cuda_plan *plan, int stream, hd_cuda_room room,
                        size_t bytes);
// Whether it may: a plan that is not the binding's has what that one needed.
bool hd_cuda_may_need(const hd_cuda_plan *plan, int stream, hd_cuda_room room,
                      size_t bytes);
int hd_cuda_room_of(const hd_device *device, int stream, int room);
// Whether the stream has room for a product, and for so much more scratch.
bool hd_cuda_has_room(const hd_cuda_plan *plan, int stream, size_t scratch);
hd_status hd_cuda_alloc_rooms(hd_device *device, hd_diag *diag);

#endif
