// Where the elements of a program's buffers are in the one memory that it is
// evaluated on, and an operation with its views as places there. Not each
// element need be there: along a dimension a few indices may stand for all
// (check/grain).
//
// The folder is read in this order: layout, compute, evaluate, attend.
#ifndef HD_EVAL_LAYOUT_H
#define HD_EVAL_LAYOUT_H

#include <assert.h>

#include "ir/space.h"
#include "steps/graph.h"

HD_BEGIN_DECLS

// The pieces of a dimension: each has `unit` indices, or each two together
// have, of which the first has `cut`. Of a piece two indices are kept, or the
// only one.
typedef struct hd_grain {
    int64_t unit, cut; // 0 is no cut
} hd_grain;

// One that is kept, as the piece that it stands for.
typedef struct hd_piece {
    int64_t first, length;
    int64_t number; // among those that are kept of the piece
} hd_piece;

static inline int64_t hd_piece_kept(int64_t length)
{
    return length < 2 ? length : 2;
}

// How many of each `unit` are kept.
static inline int64_t hd_grain_period(hd_grain grain)
{
    return hd_piece_kept(grain.cut) + hd_piece_kept(grain.unit - grain.cut);
}

// How many of the first `n` indices, which are some pieces, are kept.
static inline int64_t hd_grain_kept(hd_grain grain, int64_t n)
{
    int64_t rest = n % grain.unit;

    assert(rest == 0 || rest == grain.cut);
    return n / grain.unit * hd_grain_period(grain) + hd_piece_kept(rest);
}

// How many indices the first `n` that are kept, of some pieces, stand for.
static inline int64_t hd_grain_extent(hd_grain grain, int64_t n)
{
    int64_t period = hd_grain_period(grain);

    return n / period * grain.unit + (n % period > 0 ? grain.cut : 0);
}

static inline hd_piece hd_grain_piece(hd_grain grain, int64_t k)
{
    int64_t period = hd_grain_period(grain), front = hd_piece_kept(grain.cut);
    hd_piece piece = {k / period * grain.unit, grain.cut, k % period};

    if (piece.number >= front) {
        piece.first += grain.cut;
        piece.length = grain.unit - grain.cut;
        piece.number -= front;
    }
    return piece;
}

// A buffer of which only the indices that stand for others are kept.
typedef struct hd_sieve {
    int ndims;
    int64_t extent[HD_MAX_DIMS]; // how many there is room for
    int64_t stride[HD_MAX_DIMS];
    hd_grain grain[HD_MAX_DIMS];
    int64_t whole[HD_MAX_DIMS]; // how many the run has, of which these are kept
    int64_t elements;           // none of an event
} hd_sieve;

// Of a tensor program whole tensors, of a host program each rank's buffers, one
// rank after the other. Names of the same bytes begin at one place.
typedef struct hd_layout {
    const hd_module *module; // borrowed
    const hd_graph *graph;   // borrowed; NULL of a tensor program
    hd_sieve *sieve;         // owned, by buffer id
    int64_t *at;             // owned, by buffer id: in each rank's share
    int64_t share;           // elements of a rank, or of all
} hd_layout;

// One after the other. Of more than `most` elements any number will do.
hd_status hd_layout_place(hd_layout *layout, int64_t most, hd_diag *diag);
void hd_layout_free(hd_layout *layout);

// A step, or a statement of a tensor program. The spans' offsets are places in
// the memory, and their indices are those that are kept.
typedef struct hd_work_item {
    hd_step step; // of which it has the spans
    hd_span span[HD_MAX_VIEWS];
    hd_grain grain[HD_MAX_VIEWS][HD_MAX_DIMS];
} hd_work_item;

// How many indices those of a view's dimension stand for.
static inline int64_t hd_item_extent(const hd_work_item *item, int view, int d)
{
    return hd_grain_extent(item->grain[view][d], item->span[view].extent[d]);
}

void hd_layout_step(const hd_layout *layout, int rank, int64_t step,
                    hd_work_item *out);
void hd_layout_op(const hd_layout *layout, const hd_op *op, hd_work_item *out);

// What a rank's transfer moves to or from member `i` of its line; `ndims` is -1
// where that is nothing.
hd_span hd_layout_piece(const hd_layout *layout, int rank, int64_t step,
                        bool result, int64_t i);

// Which element of a whole tensor element `i` of a rank's shard is, of what is
// kept of both; -1 where there is room for more indices than there are.
int64_t hd_sieve_whole(const hd_module *module, const hd_type *type,
                       const hd_sieve *local, const hd_sieve *whole, int rank,
                       int64_t i);

// Where its element number `i` is, in row-major order.
static inline int64_t hd_span_place(const hd_span *span, int64_t i)
{
    int64_t at = span->offset;

    for (int d = span->ndims - 1; d > 0; d--) {
        at += i % span->extent[d] * span->stride[d];
        i /= span->extent[d];
    }
    return span->ndims > 0 ? at + i * span->stride[0] : at;
}

// The element that lies there; -1 if none does.
int64_t hd_span_find(const hd_span *span, int64_t at);
// Index `i` of dimension `d` of it.
hd_span hd_span_slice(const hd_span *span, int d, int64_t i);

// Of an op that does each element of a batch by itself: how many there are, and
// what a view has of number `b`, along which it may repeat.
int64_t hd_batch_elements(const hd_step *step);
hd_span hd_batch_span(const hd_step *step, int view, int64_t b);

HD_END_DECLS

#endif
