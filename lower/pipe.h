// A loop whose iteration j works on shard j, written anew as the trips of a
// pipeline, in the order in which shards come or go. A pipeline is one of its
// flow's schedules, which says what a trip computes on and what it moves; a
// flow says in which order: `gather` moves and then computes, `scatter` and
// `all_reduce` compute, move, and add what has come, the latter for all ranks;
// `roundtrip` gathers, computes, and scatters.
//
// Chunks split the first dimension inside a shard: buffers get a second shape
// with one more dimension (`of`), and a shard has a trip a chunk.
#ifndef HD_LOWER_PIPE_H
#define HD_LOWER_PIPE_H

#include "lower/build.h"
#include "lower/pass.h"
#include "lower/pieces.h"

HD_BEGIN_DECLS

// One of the loop's transfers.
typedef struct hd_moved {
    hd_op *op;                // %ag[.., j] = broadcast %a[.., x] root j
                              // %c = reduce %p[.., j] root j
                              // %c[.., j] = all_reduce %p[.., j]
    const hd_view *from, *to; // its operand, and its result
    int dim;                  // which index of %ag or %p is j
    bool cut;                 // j is a block's number
    bool in_place;            // the local shard is not copied
    bool early;               // a ring need not relay it to all
    hd_buffer *sent;          // events of deferred sends; NULL if none is
    hd_buffer *slots; // what arrives fills them by turns, not %ag; or NULL

    // Of the last two. Buffers are shaped as %p, and NULL where there are none.
    // Where the wire is wider than the result, the first two are of its dtype.
    const hd_op *maker; // what makes %p, if nothing else needs it
    bool fused;         // it is a product, which adds what has arrived
    hd_buffer *arrived; // what peers have sent
    hd_buffer *sums;    // what goes on to the next, where that is not %p
    hd_buffer *kept;    // where the joined shard is copied to the result from;
                        // of an all_reduce, peers read it there
    hd_view whole;      // the result, as a product that makes it has it
    bool picks;         // such a one has the rank's own index alone of operands
} hd_moved;

typedef struct hd_alias hd_alias;
typedef struct hd_trips hd_trips;
typedef struct hd_flow hd_flow;

typedef struct hd_pipe {
    hd_module *module;
    const hd_lower_options *options;
    hd_arena *scratch;
    hd_diag *diag;
    hd_stmt *loop; // one after the other, as all below
    hd_stmt *ops;  // the statements of an iteration
    // The first of those that come after what is moved, which are the last
    // ones; NULL if none do.
    hd_stmt *behind;
    hd_moved *moved;
    int nmoved;
    hd_moved *back; // reductions that stand behind the loop, of what it gathers
    int nback;
    const char *why_back; // they do
    int64_t ranks, chunks;
    int64_t slots; // of what has any
    bool ahead;    // shards arrive in the trip before the one that reads them
    int64_t late;  // trips behind those of the shards
    bool cut;      // some of what is moved comes in blocks, of any dimension
    bool beside;   // it has collectives along other axes, which do as what
                   // computes does
    int axis;
    const hd_flow *flow;
    const hd_trips *schedule;
    const hd_transport *transport; // by axis
    hd_alias *aliases;
    const hd_pieces *pieces;
    const int *uses; // by buffer id, in the whole program
    // Of the statements, those that add to what earlier iterations made, and
    // that the first one begins anew.
    const hd_op **begun;
    int nbegun;
    // By buffer id, of what the loop moves and makes: the dimension that chunks
    // split.
    int *split;
} hd_pipe;

// What a trip works on: the shard's index, and the chunk's (HD_EXPR_NONE if
// shards are whole). An index of HD_EXPR_ALL is every shard.
typedef struct hd_trip_piece {
    hd_expr shard, chunk;
    hd_expr slot; // that the shard is in, of what has any
    bool own;
} hd_trip_piece;

typedef struct hd_trip {
    hd_pipe *p;
    hd_expr j;        // its number
    hd_expr step;     // the number of its shard: j, where shards are whole
    hd_trip_piece at; // what it computes on
    hd_expr own; // when that is the local shard; HD_EXPR_NONE if that makes no
                 // difference
    hd_build mine; // what it does then, where it moves nothing
} hd_trip;

typedef hd_expr hd_trip_fn(const hd_trip *t);
typedef void hd_move_fn(const hd_trip *t, hd_build *b, const hd_moved *m);

// What the trips of a pipeline do, for each chunk the same.
struct hd_trips {
    hd_trip_fn *shard; // computed on; NULL: all of them, a chunk a trip
    hd_trip_fn *own;   // when that is the local one; NULL: no trip has it alone
    hd_move_fn *move;  // NULL: all is moved at once, outside of the loop
    // Of what is sent and received: the peers, and the shard that arrives (of a
    // reduction, the index of `arrived`). One that relays sends on what came
    // the trip before, and is at it in all trips but the last shard's; another
    // sends the local shard (of a reduction, that of its peer), in all trips
    // but the local shard's own.
    hd_trip_fn *to, *from, *arrives;
    bool relays;
};

struct hd_flow {
    const hd_trips *const *schedules; // by hd_transfer
    int first; // shards whose trips come before exchanges
    int piece; // which view of what is moved has an index of the loop
    void (*prepare)(hd_pipe *p);
    void (*before)(hd_pipe *p, hd_build *b); // on the caller's stream
    void (*trip)(hd_pipe *p, hd_build *b, hd_expr j);
    void (*after)(hd_pipe *p, hd_build *b);
};

extern const hd_flow hd_flow_gather, hd_flow_scatter, hd_flow_all_reduce,
    hd_flow_roundtrip;

// ------------------------------------------------------------- expressions

hd_expr hd_pipe_number(const hd_pipe *p, int64_t value);
hd_expr hd_pipe_binary(const hd_pipe *p, hd_expr_kind kind, hd_expr a,
                       hd_expr b);
hd_expr hd_pipe_rank(const hd_pipe *p);
// a + b or a - b, counted around the ranks
hd_expr hd_pipe_around(const hd_pipe *p, hd_expr_kind kind, hd_expr a,
                       hd_expr b);
hd_trip_fn hd_trip_step, hd_trip_shard, hd_trip_shard_below;
// Whether the trip is of the first shard; and whether it comes before those
// that exchange nothing any more, or is one of them.
hd_trip_fn hd_trip_is_first, hd_trip_is_before_end, hd_trip_is_past_end;
// Neighbours: rank + 1, rank - 1.
hd_trip_fn hd_trip_right, hd_trip_left;

// -------------------------------------------------------- views and chunks

// Which index of the view is the loop variable; -1 if none.
int hd_pipe_index(const hd_pipe *p, const hd_view *view);
// Whether trips end what they move; else it ends after the loop.
bool hd_pipe_ends_in_trips(const hd_trips *s);
// By the statements of an iteration before `end`; NULL is all of them.
int hd_pipe_count_uses(const hd_pipe *p, const hd_stmt *end,
                       const hd_buffer *buffer);
// Nothing but this loop needs the buffer.
bool hd_pipe_is_alone(const hd_pipe *p, hd_buffer *buffer);
// Nor does another reduction of the loop need what this one reduces.
bool hd_pipe_is_reduced_once(const hd_pipe *p, const hd_moved *m);
// The dimension that chunks of what is moved split: the first that a piece
// keeps of more than one index, so that they are contiguous, too.
int hd_pipe_chunk_dim(const hd_view *piece);
// Where dimension `dim` of what `piece` is of stands in the view of a chunk.
int hd_pipe_dim_of(const hd_view *piece, int dim, const hd_view *chunk);
// Of each statement of an iteration that computes, and of what is moved.
hd_status hd_pipe_check_chunks(hd_pipe *p);
// The view with the loop's index replaced. With HD_EXPR_ALL that of `dim`.
hd_view hd_pipe_at_shard(hd_pipe *p, hd_view view, int dim, hd_expr shard);
// The view of one chunk, or as it is for HD_EXPR_NONE: `dim` is the dimension
// that is split, all before it are indexed or kept as they were.
hd_view hd_pipe_at_chunk(hd_pipe *p, hd_view view, int dim, hd_expr chunk);
// The view of a shard, in its slot if it has one.
hd_view hd_pipe_at_slot(const hd_moved *m, hd_view view,
                        const hd_trip_piece *at);
// The statement, for a piece.
hd_op *hd_pipe_clone(hd_pipe *p, hd_build *b, const hd_op *op,
                     const hd_trip_piece *at);
// Whether a matmul may have these first views; how many they are: its result,
// its operands and their scales.
int hd_pipe_product_views(const hd_op *op);
bool hd_pipe_is_product(const hd_op *op, const hd_view *view);

// Whether the first iteration begins what the op adds to.
bool hd_pipe_begins(const hd_pipe *p, const hd_op *op);

// What statements before `end` compute of all shards they do at once or, where
// an operand does not have them in the order of dimensions of the result, in a
// loop that is opened here, one after the other.
hd_build hd_pipe_open_shards(hd_pipe *p, hd_build *b, const hd_stmt *ops,
                             const hd_stmt *end, hd_trip_piece *at);

// ------------------------------------------------------------------- masks

// Of each statement of an iteration, in their order, when a rank needs what it
// makes for a piece; HD_EXPR_NONE if in any case.
const hd_expr *hd_pipe_needs(hd_pipe *p, const hd_trip_piece *at);

// Where statements stand that are not needed in any case.
typedef struct hd_guard {
    const hd_block *block;
    hd_expr need;
    hd_build inside;
} hd_guard;

// Where the next one stands in `b`: with the one before it, if both are needed
// alike. Nothing else is written there in between.
hd_build hd_pipe_within(hd_guard *guard, hd_build *b, hd_expr need);

// ------------------------------------------------------------------- trips

int64_t hd_pipe_trips(const hd_pipe *p);
// The first trip that sends and receives, and the one after the last.
int64_t hd_pipe_first_exchange(const hd_pipe *p);
int64_t hd_pipe_end_of_exchanges(const hd_pipe *p);
// Names the chunk and the shard of trip j; with NULL for `b` the shard, which
// is whole then, has no name.
hd_trip hd_trip_start(hd_pipe *p, hd_build *b, hd_expr j);
// What keeps --wire from changing anything; NULL if nothing does.
const char *hd_pipe_why_no_wire(const hd_pipe *p, const hd_moved *m);
// A send to, or a recv from, the rank `peer`; `get`: the receiver reads.
hd_op *hd_pipe_transfer(const hd_pipe *p, hd_build *b, hd_opcode code,
                        hd_view what, hd_expr peer, bool get);
// The same as its schedule and the options say.
void hd_trip_transfer(const hd_trip *t, hd_build *b, const hd_moved *m,
                      hd_opcode code, hd_view what);

HD_END_DECLS

#endif
