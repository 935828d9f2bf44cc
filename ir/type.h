// What a buffer holds: a dtype, and per dimension an extent and a mark that
// says where its indices live.
#ifndef HD_IR_TYPE_H
#define HD_IR_TYPE_H

#include "base/dtype.h"
#include "base/status.h"

HD_BEGIN_DECLS

enum {
    HD_LOCAL = -1,  // every rank holds all indices
    HD_STREAM = -2, // the same, and each may be computed by itself
};

typedef struct hd_dim {
    int64_t extent; // of the whole dimension, at least 1; of one that a view
                    // keeps by a count that is no constant hd_dim_counted
    int mark;       // HD_LOCAL, HD_STREAM, or the axis it is sharded over
    // 0, or into how many blocks of as many indices each it is cut, the last
    // ones of fewer or none: of a sharded one a block a rank, of a stream one a
    // block an iteration, where each would else have one index.
    int64_t blocks;
    // 0, or which of the module's sizes, from 1, says how many of its indices
    // there are in a run: `times` as many. `extent` is the room for them.
    int size;
    int64_t times;
} hd_dim;

typedef struct hd_type {
    hd_dtype dtype;
    int ndims; // 0 is a scalar
    hd_dim dim[HD_MAX_DIMS];
} hd_type;

// No buffer has more elements than this, so that offsets in bytes fit in 63
// bits and sums of a few of them too.
#define HD_MAX_ELEMENTS ((int64_t)1 << 48)

// The extent of a dimension that is as long as an expression says, of index
// `count` in its module's table: equal expressions are one extent.
static inline int64_t hd_dim_counted(int32_t count)
{
    return ~(int64_t)count;
}

static inline bool hd_dim_is_counted(hd_dim dim)
{
    return dim.extent < 0;
}

static inline bool hd_dim_is_sharded(hd_dim dim)
{
    return dim.mark >= 0;
}

// A dimension that is neither sharded nor a stream one.
static inline hd_dim hd_dim_whole(int64_t extent)
{
    hd_dim dim = {extent, HD_LOCAL, 0, 0, 0};

    return dim;
}

// As many indices, of which every rank has all.
static inline hd_dim hd_dim_unmarked(hd_dim dim)
{
    dim.mark = HD_LOCAL;
    dim.blocks = 0;
    return dim;
}

// Whether a run says how many of its indices there are.
static inline bool hd_dim_is_sized(hd_dim dim)
{
    return dim.size > 0;
}

// One index, which every rank has: what repeats has it.
static inline bool hd_dim_is_one(hd_dim dim)
{
    return dim.extent == 1 && !hd_dim_is_sharded(dim);
}

static inline bool hd_dim_is_cut(hd_dim dim)
{
    return dim.blocks > 0;
}

// The same in blocks, without any where each would always be one index.
static inline hd_dim hd_dim_cut(hd_dim dim, int64_t blocks)
{
    dim.blocks = blocks == dim.extent && !hd_dim_is_sized(dim) ? 0 : blocks;
    return dim;
}

// How many indices each of `blocks` blocks has; the last ones perhaps fewer.
static inline int64_t hd_block_size(int64_t extent, int64_t blocks)
{
    return (extent - 1) / blocks + 1;
}

// How many indices a rank has, or an iteration; the last ones perhaps fewer.
static inline int64_t hd_dim_block(hd_dim dim)
{
    return hd_dim_is_cut(dim) ? hd_block_size(dim.extent, dim.blocks) : 1;
}

// How many ranks or iterations that is.
static inline int64_t hd_dim_blocks(hd_dim dim)
{
    return hd_dim_is_cut(dim) ? dim.blocks : dim.extent;
}

// How many indices a rank has room for.
static inline int64_t hd_dim_local(hd_dim dim)
{
    return hd_dim_is_sharded(dim) ? hd_dim_block(dim) : dim.extent;
}

// Whether some ranks may have fewer indices than they have room for.
static inline bool hd_dim_is_uneven(hd_dim dim)
{
    return hd_dim_is_sharded(dim) &&
           (hd_dim_is_sized(dim) || dim.extent % hd_dim_blocks(dim) != 0);
}

// How many block `block` has: 0 to hd_dim_block.
int64_t hd_dim_block_length(hd_dim dim, int64_t block);

// Of as many indices, in every run.
bool hd_dim_as_long(hd_dim a, hd_dim b);
// Two dimensions can be computed on together: same extent, and sharded over
// the same axis or not at all (a stream dimension counts as local).
bool hd_dim_same(hd_dim a, hd_dim b);

// What is as long at room and by the same terms is as long in every run.
typedef struct hd_dim_terms {
    int size;      // the dimension's
    int64_t times; // likewise
    int64_t block; // which one of the dimension, -1: all of it
} hd_dim_terms;

// Of block `block` of `blocks`: the only one is all.
static inline hd_dim_terms hd_dim_terms_of(hd_dim dim, int64_t block,
                                           int64_t blocks)
{
    hd_dim_terms terms = {dim.size, dim.times, blocks == 1 ? -1 : block};

    return terms;
}

static inline bool hd_dim_same_terms(hd_dim_terms a, hd_dim_terms b)
{
    return a.size == b.size && a.times == b.times && a.block == b.block;
}

// What a view has: of how many elements it is, but for the dimensions whose
// length a run says, in their order.
typedef struct hd_view_terms {
    int64_t elements;
    int n;
    hd_dim_terms of[HD_MAX_DIMS];
} hd_view_terms;

bool hd_view_same_terms(const hd_view_terms *a, const hd_view_terms *b);

int64_t hd_type_elements(const hd_type *type);       // of the whole
int64_t hd_type_local_elements(const hd_type *type); // of one rank
int64_t hd_type_local_bytes(const hd_type *type);    // 0 of events

// The dimension sharded over `axis`, and the one marked @stream, or -1.
int hd_type_axis_dim(const hd_type *type, int axis);
int hd_type_stream_dim(const hd_type *type);
// Dimension by dimension.
bool hd_type_same_dims(const hd_type *a, const hd_type *b);
// Whether what a rank has of the one is what it has of the other: what it has
// room for alone is nobody's, by another name as well. Of a size that is one of
// `uncut` another shape has as many elements for each.
bool hd_type_same_room(const hd_type *a, const hd_type *b, uint32_t uncut);
// Whether one may be a name for bytes of the other: where a run says how long
// a dimension is, another shape has other ones of the room.
bool hd_type_may_rename(const hd_type *a, const hd_type *b, uint32_t uncut);
// The same, of which every rank has all.
hd_type hd_type_unmarked(const hd_type *type);
// Without dimensions of one index that every rank has; `place` has where the
// others are.
hd_type hd_type_without_ones(const hd_type *type, int place[HD_MAX_DIMS]);
// How many of `a`, and how many of `b`, are the fewest that have as many
// indices together, one of each at least where there is one. All of both have
// as many.
void hd_dims_factor(const hd_dim *a, int most_a, const hd_dim *b, int most_b,
                    int *na, int *nb);
// A type that lacks a dimension, or has one more; there is room for it.
hd_type hd_type_without(const hd_type *type, int dim);
hd_type hd_type_with(const hd_type *type, int dim, hd_dim added);
// The same with dimension `from` at `to`.
hd_type hd_type_moved(const hd_type *type, int from, int to);

HD_END_DECLS

#endif
