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

typedef struct hd_cost {
    int64_t total; // what counts
    int64_t bytes; // that a rank receives, for what costs alike
    int moves;     // likewise
} hd_cost;

// What a compute statement is worth in bytes: a product's, another one's.
#define HD_COST_FLOPS 2048
#define HD_COST_TOUCHED 12
#define HD_COST_MOVE ((int64_t)4 << 20)

hd_cost hd_cost_sum(hd_cost a, hd_cost b);
// Negative, 0 or positive, as `a` is less, the same or more.
int hd_cost_compare(hd_cost a, hd_cost b);

// From one placement to another, one axis at a time: slices, sums that are
// scattered, exchanges, sums that all get, gathers. `hides` is what is computed
// while what hides there moves, which has it no more; `gathers` has a bit for
// each dimension whose gather does. Sums of parts always may.
hd_cost hd_placement_move(const hd_module *module, const hd_type *type,
                          hd_placement from, hd_placement to, unsigned gathers,
                          int64_t *hides);

HD_END_DECLS

#endif
