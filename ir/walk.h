// Unrolls a program to the finite list of steps that one rank issues. The
// checker, the simulator, the reference and the runtime all consume this list,
// so what is checked is exactly what runs.
#ifndef HD_IR_WALK_H
#define HD_IR_WALK_H

#include "ir/arc.h"
#include "ir/module.h"

HD_BEGIN_DECLS

#define HD_MAX_STEPS ((int64_t)1 << 24)      // of one rank
#define HD_MAX_ITERATIONS ((int64_t)1 << 24) // of loops, also empty

// A view with numbers for its indices: a strided part of a root buffer (one
// with `of` NULL), in elements of its dtype. Dimensions that the view drops are
// gone; a sharded dimension that it keeps has extent 1.
typedef struct hd_span {
    const hd_buffer *buffer; // the root
    int64_t offset;
    int ndims;
    int64_t extent[HD_MAX_DIMS];
    int64_t stride[HD_MAX_DIMS];
} hd_span;

#define HD_CALLER_STREAM (-1) // the stream that called the program

// Where an event that is waited for was last recorded before.
typedef struct hd_record {
    int32_t step; // its index; -1 where the event is an argument that this
                  // program has not recorded
    int32_t view; // of that step
} hd_record;

// Where rows and keys are of an attention with the key GROUPS: the number of
// the first row, and of the first key, among those that the sequences have one
// behind the other, and how many these are together, at most.
typedef struct hd_among {
    int32_t row, key, room;
} hd_among;
#define HD_MAX_AMONG INT32_MAX

// What an attention whose keys are in blocks, or that is of sequences, has
// besides.
typedef struct hd_attended {
    const int32_t *causal; // of each block, which the reference alone has in
                           // one step; else NULL
    hd_among among;        // 0 without GROUPS
} hd_attended;

// There may be HD_MAX_STEPS of them, so that all numbers are as small as their
// limits allow.
typedef struct hd_step {
    const hd_op *op;
    const hd_span *span; // op->nviews, in their order; valid during the call
    union {
        const hd_record *record; // wait: of each of its events
        // attention whose keys are in blocks, or that is of sequences; NULL
        // where no rank is meant
        const hd_attended *attended;
    };             // valid during the call; NULL of other steps
    int32_t rank;  // whose step it is
    int32_t index; // position in the rank's list, from 0
    int32_t group; // 0, or the number of the group it is a member of, from 1
    // Transfers. `peer` is a rank of the mesh: the receiver of a send, the
    // sender of a recv, the root of a broadcast or reduce, -1 otherwise. `seq`
    // counts from 0: sends and recvs per (peer, axis), collectives per axis;
    // the send and the recv with equal numbers match, and so do collectives.
    int32_t peer;
    union {
        int32_t seq; // of what is not issued since it moves nothing, too
        // attention: row i sees keys up to i + causal; HD_SEES_ALL without the
        // key. What is further is as far.
        int32_t causal;
        int32_t start; // take, iota: what its key says; 0 without
    };
    int8_t stream; // 0 .. streams - 1, or HD_CALLER_STREAM
    // attention_grad that accumulates: bit i is set of a result i that holds
    // zeros, of which no step has filled them (ir/zeros.h).
    uint8_t stores;
    // 0, or of a step of a launch 1 or 2, which the launch before it in the
    // list does not have. Its steps follow each other.
    uint8_t launch;
    bool varies; // `causal` is another number in other runs
} hd_step;

#define HD_SEES_ALL INT32_MAX

// How many records it has: of a wait, one an event.
int hd_step_records(const hd_step *step);
// Of an attention of sequences; else all are 0.
hd_among hd_step_among(const hd_step *step);

// Whether the step does anything with a view: the operand of a broadcast is its
// root's alone, and so is the result of a reduce.
bool hd_step_touches(const hd_step *step, int view);
// What the step does with a view.
hd_access hd_step_access(const hd_step *step, int view);

// Members of a group arrive in one call, n > 1 or a group of one.
typedef hd_status hd_step_fn(void *context, const hd_step *steps, int n);

// HD_ERROR_ARGUMENT if the mesh has no such rank.
hd_status hd_walk_check_rank(const hd_module *module, int rank, hd_diag *diag);

// Calls `fn` with each step that `rank` issues, in issue order. Stops at the
// first status that is not HD_OK, and returns it. What has no elements is not
// issued: a compute op without results, a send, recv, broadcast or reduce; of a
// send with `done` its record is left, which comes before the group that the
// send is in. What depends on the rank is checked here and reported at its
// place: indices and streams in range, sharded dimensions at the own
// coordinate, peers on the axis and not oneself, a wait with no record before
// it, the views that a root needs and the others, operands that are empty where
// a result is not, and the limits above.
hd_status hd_walk(const hd_module *module, int64_t rank, hd_diag *diag,
                  hd_step_fn *fn, void *context);
// The same, and each transfer that is not issued goes to `empty`.
hd_status hd_walk_all(const hd_module *module, int64_t rank, hd_diag *diag,
                      hd_step_fn *fn, hd_step_fn *empty, void *context);
// The same, but what is added to zeros is added, and all fills are steps.
hd_status hd_walk_as_written(const hd_module *module, int64_t rank,
                             hd_diag *diag, hd_step_fn *fn, void *context);

// A rank that stands for all those that it turns into (ir/symmetry): what some
// of them have less of, it has whole.
typedef struct hd_full_dims {
    int64_t block[HD_MAX_DIMS]; // 0, or how long each block of the dimension is
    int64_t n[HD_MAX_DIMS];     // then: how many there are
    uint8_t axes[HD_MAX_DIMS];  // and a bit for each axis along which they turn
} hd_full_dims;

typedef struct hd_full {
    hd_full_dims *of;        // owned, by id of the buffer
    bool turns[HD_MAX_AXES]; // ranks along the axis
    bool masks;              // what rows see is not the same on all
    bool empty;              // a block may be, and what moves it is not issued
    int split;               // one of those axes, whose ranks issue some of the
                             // steps each; -1 if all do
    bool apart; // and each rank along it has sends and recvs of its own
} hd_full;

// How many indices of a dimension each of those ranks has room for.
static inline int64_t hd_full_extent(const hd_full *full,
                                     const hd_buffer *buffer, int dim)
{
    const hd_full_dims *of = &full->of[buffer->id];
    hd_dim d = buffer->type.dim[dim];

    return of->block[dim] > 0 && !hd_dim_is_sharded(d)
               ? of->block[dim] * of->n[dim]
               : hd_dim_local(d);
}

// `arc` has which ranks along `split` issue each of them; NULL: all do.
typedef hd_status hd_full_step_fn(void *context, const hd_step *steps,
                                  const hd_arc *arc, int n);

// The walk as written, where each block of a dimension that turns is as long as
// the longest one is, and where masks differ no row or key is left out by them.
// E0609 is asked of all ranks. Along `split` all ranks are walked at once: each
// step that some of them issue comes once, as it is when the first of those is
// turned to `rank`, and each rank issues its own ones in the order in which
// they come. Sends over a distance are numbered as they come, and so are recvs,
// of which some ranks issue each; what is one collective there has one number.
// Transfers that are not issued go to `empty`. HD_ERROR_INVALID, and nothing
// need be said, where that cannot be told, or is too much.
hd_status hd_walk_full(const hd_module *module, int64_t rank,
                       const hd_full *full, hd_diag *diag, hd_full_step_fn *fn,
                       hd_full_step_fn *empty, void *context);

typedef struct hd_tally {
    int64_t steps;
    int64_t idle; // loop iterations that issue no step
} hd_tally;

// How many steps that is. Only what control flow and steps with ranges need is
// computed and checked.
hd_status hd_walk_count(const hd_module *module, int64_t rank, hd_diag *diag,
                        hd_tally *out);

// All steps of a rank in one array. Steps that touch the same have their spans
// in common.
typedef struct hd_steps {
    hd_step *step; // owned
    int64_t nsteps;
    hd_span *span;         // owned
    hd_record *record;     // owned
    hd_attended *attended; // owned
} hd_steps;

hd_status hd_steps_collect(const hd_module *module, int64_t rank, hd_diag *diag,
                           hd_steps *out);
void hd_steps_free(hd_steps *steps);
// How many are issued at once from step `i` on, which no group before holds: 1,
// or the members of its group.
int hd_steps_together(const hd_steps *steps, int64_t i);

int64_t hd_span_elements(const hd_span *span);
// The same elements of the same root, in the same dimensions.
bool hd_span_equal(const hd_span *a, const hd_span *b);
// Whether the ranges of their root from first to last element overlap: if not,
// they have none in common.
bool hd_span_overlaps(const hd_span *a, const hd_span *b);
// Where its last element is.
int64_t hd_span_last(const hd_span *span);
// Its elements are one contiguous range in row-major order.
bool hd_span_is_dense(const hd_span *span);
// Dimensions [from, to] are as one whose indices are evenly spaced. Those of
// one index in front of it add nothing, whatever their stride is.
bool hd_span_is_even(const hd_span *span, int from, int to);
// In elements, of index `i`, in row-major order, into dimensions [from, to).
int64_t hd_span_offset(const hd_span *span, int from, int to, int64_t i);

typedef enum hd_index_kind {
    HD_INDEX_ALL,   // of the dimension's
    HD_INDEX_RANGE, // from `low` to before `past`
    HD_INDEX_ONE,   // `low`
} hd_index_kind;

// What a view of a step has of a dimension, in numbers.
typedef struct hd_index {
    hd_index_kind kind;
    int64_t low, past;
} hd_index;

// Those of the first dimensions, which say something, and how many these are.
// A sharded dimension shows the rank's own coordinate.
int hd_span_indices(const hd_module *module, int64_t rank, const hd_view *view,
                    const hd_span *span, hd_index out[HD_MAX_DIMS]);
// Whether the text of a step has a key of its op's: a callee stands ahead of
// the operands, and left out are a mask that hides nothing and what adds to no
// result.
bool hd_step_shows(const hd_step *step, hd_key_code code);
// The key of an op that stores some of what it would add to has the numbers of
// the other results; false of any other.
bool hd_step_adds(const hd_step *step, const hd_key *key, hd_key *out);
// The number that the walk made of a key; false of a key that stays as it is.
bool hd_step_number(const hd_module *module, const hd_step *step,
                    hd_key_code code, int64_t *out);
// "%ag[3]": a view of a step of `rank`, with numbers for its indices.
void hd_span_print(const hd_module *module, int64_t rank, const hd_view *view,
                   const hd_span *span, hd_text *text);

HD_END_DECLS

#endif
