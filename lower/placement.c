#include "lower/placement.h"

#include "base/dtype.h"

hd_placement hd_placement_nowhere(void)
{
    hd_placement p;

    for (int a = 0; a < HD_MAX_AXES; a++)
        p.dim[a] = HD_PLACED_NOWHERE;
    return p;
}

hd_placement hd_placement_of(const hd_type *type)
{
    hd_placement p = hd_placement_nowhere();

    for (int d = 0; d < type->ndims; d++)
        if (hd_dim_is_sharded(type->dim[d]))
            p.dim[type->dim[d].mark] = (int8_t)d;
    return p;
}

int hd_placement_parts(hd_placement placement)
{
    return hd_placement_axis(placement, HD_PLACED_PARTS);
}

int hd_placement_axis(hd_placement placement, int dim)
{
    for (int a = 0; a < HD_MAX_AXES; a++)
        if (placement.dim[a] == dim)
            return a;
    return -1;
}

hd_type hd_placement_type(const hd_module *module, const hd_type *type,
                          hd_placement placement)
{
    hd_type placed = *type;

    for (int d = 0; d < placed.ndims; d++)
        if (hd_dim_is_sharded(placed.dim[d]))
            placed.dim[d] = hd_dim_unmarked(placed.dim[d]);
    for (int a = 0; a < module->naxes; a++)
        if (placement.dim[a] >= 0) {
            hd_dim *dim = &placed.dim[placement.dim[a]];

            *dim = hd_dim_cut(*dim, module->axis[a].size);
            dim->mark = a;
        }
    return placed;
}

// All dimensions of a size are cut into as many blocks, or none.
bool hd_dim_may_shard(const hd_module *module, hd_dim dim, int axis)
{
    return !hd_dim_is_sized(dim) ||
           module->size[dim.size - 1].blocks == module->axis[axis].size;
}

bool hd_dim_splits(const hd_module *module, hd_dim dim, int axis)
{
    return !hd_dim_is_sized(dim) && dim.extent % module->axis[axis].size == 0;
}

int64_t hd_placement_share(const hd_module *module, hd_dim dim, int axis)
{
    return axis < 0 ? dim.extent
                    : hd_block_size(dim.extent, module->axis[axis].size);
}

int64_t hd_placement_bytes(const hd_module *module, const hd_type *type,
                           hd_placement placement)
{
    hd_type placed = hd_placement_type(module, type, placement);

    return hd_type_local_bytes(&placed);
}

hd_cost hd_cost_sum(hd_cost a, hd_cost b)
{
    return (hd_cost){a.total + b.total, a.bytes + b.bytes, a.moves + b.moves};
}

int hd_cost_compare(hd_cost a, hd_cost b)
{
    if (a.total != b.total)
        return a.total < b.total ? -1 : 1;
    if (a.bytes != b.bytes)
        return a.bytes < b.bytes ? -1 : 1;
    return a.moves - b.moves;
}

typedef enum step {
    STEP_SLICE,
    STEP_SCATTER, // of sums
    STEP_EXCHANGE,
    STEP_ADD,
    STEP_GATHER,
    STEPS,
    STEP_NONE
} step;

static step step_of(int from, int to)
{
    if (from == to)
        return STEP_NONE;
    if (from == HD_PLACED_PARTS)
        return to >= 0 ? STEP_SCATTER : STEP_ADD;
    if (from == HD_PLACED_NOWHERE)
        return STEP_SLICE;
    return to >= 0 ? STEP_EXCHANGE : STEP_GATHER;
}

// What hides under a product counts a sixth: it begins before, or ends behind
// it, and on a machine with slower links it hides less.
static int64_t hide(int64_t bytes, int64_t *hides)
{
    int64_t hidden = bytes < *hides ? bytes : *hides;

    *hides -= hidden;
    return bytes - hidden + hidden / 6;
}

// `now` is what the tensor is over before it.
static hd_cost cost_step(const hd_module *module, const hd_type *type,
                         hd_placement now, int axis, step step,
                         unsigned gathers, int64_t *hides)
{
    int64_t all = hd_placement_bytes(module, type, now);
    int64_t n = module->axis[axis].size, bytes = 0;
    bool hidden = false;

    switch (step) {
    case STEP_SLICE:
        return (hd_cost){all / n / HD_COST_TOUCHED, 0, 0};
    case STEP_SCATTER:
        bytes = all - all / n;
        hidden = true;
        break;
    case STEP_EXCHANGE:
        bytes = all - all / n;
        break;
    case STEP_ADD:
        bytes = 2 * (all - all / n);
        hidden = true;
        break;
    case STEP_GATHER:
        bytes = all * (n - 1);
        hidden = (gathers >> now.dim[axis] & 1) != 0;
        break;
    case STEPS:
    case STEP_NONE:
        return (hd_cost){0};
    }
    // To begin and to end hides in part, too.
    return (hd_cost){hidden ? hide(bytes, hides) + HD_COST_MOVE * 3 / 4
                            : bytes + HD_COST_MOVE,
                     bytes, step == STEP_EXCHANGE ? 2 : 1};
}

hd_cost hd_placement_move(const hd_module *module, const hd_type *type,
                          hd_placement from, hd_placement to, unsigned gathers,
                          int64_t *hides)
{
    hd_cost cost = {0};
    hd_placement now = from;

    for (step s = STEP_SLICE; s < STEPS; s++)
        for (int a = 0; a < module->naxes; a++)
            if (step_of(from.dim[a], to.dim[a]) == s) {
                cost = hd_cost_sum(
                    cost, cost_step(module, type, now, a, s, gathers, hides));
                now.dim[a] = to.dim[a];
            }
    return cost;
}
