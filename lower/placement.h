// Where a tensor lies, and what it takes to bring it elsewhere: how `place`
// judges. Costs are whole numbers, the same on every machine: bytes that a rank
// receives, and what it computes as bytes that it could have received
// meanwhile.
#ifndef HD_LOWER_PLACEMENT_H
#define HD_LOWER_PLACEMENT_H

#include "ir/module.h"

HD_BEGIN_DECLS

enum {
    HD_PLACED_NOWHERE = -1, // each rank of the axis has all of it
    HD_PLACED_PARTS = -2,   // each has a part of every element, yet to be added
};

// Of each axis the dimension that it shards.
typedef struct hd_placement {
    int8_t dim[HD_MAX_AXES];
} hd_placement;

static inline bool hd_placement_same(hd_placement a, hd_placement b)
{
    bool same = true;

    for (int i = 0; i < HD_MAX_AXES; i++)
        same &= a.dim[i] == b.dim[i];
    return same;
}

hd_placement hd_placement_nowhere(void);
hd_placement hd_placement_of(const hd_type *type);
// The axis over which each rank has parts, or -1.
int hd_placement_parts(hd_placement placement);
// The axis that shards a dimension, or -1.
int hd_placement_axis(hd_placement placement, int dim);
// The same shape over these axes, and no others; what is streamed stays so.
hd_type hd_placement_type(const hd_module *module, const hd_type *type,
                          hd_placement placement);
// Whether an axis may shard a dimension, in blocks of which the last may be
// shorter; whether blocks are as long as each other.
bool hd_dim_may_shard(const hd_module *module, hd_dim dim, int axis);
bool hd_dim_splits(const hd_module *module, hd_dim dim, int axis);
// How many indices a rank has of a dimension of that extent.
int64_t hd_placement_share(const hd_module *module, hd_dim dim, int axis);
int64_t hd_placement_bytes(const hd_module *module, const hd_type *type,
                           hd_placement placement);

// What a compute statement is worth in bytes: a product's, another one's.
#define HD_COST_FLOPS 2048
#define HD_COST_TOUCHED 12
// What arrives while a move begins, on a machine like H200 and on one on which
// nothing hides that.
#define HD_COST_MOVE ((int64_t)6 << 20)
#define HD_COST_ALONE ((int64_t)24 << 20)

// What it takes to bring a tensor elsewhere.
typedef struct hd_moves {
    int64_t ahead;  // what arrives ahead of what needs it
    int64_t beside; // or while that is done
    int64_t alone;  // all of that, where nothing hides
    int64_t work;   // what a rank touches for it
    int64_t bytes;  // that a rank receives
    int n;          // moves; an exchange is two, where all else is alike
} hd_moves;

hd_moves hd_moves_sum(hd_moves a, hd_moves b);

// From one placement to another, one axis at a time: slices, sums that are
// scattered, exchanges, sums that all get, gathers. `gathers` has a bit for
// each dimension whose gather may go on beside what needs it.
hd_moves hd_placement_move(const hd_module *module, const hd_type *type,
                           hd_placement from, hd_placement to,
                           unsigned gathers);

HD_END_DECLS

#endif
