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

hd_moves hd_moves_sum(hd_moves a, hd_moves b)
{
    return (hd_moves){a.ahead + b.ahead, a.beside + b.beside, a.alone + b.alone,
                      a.work + b.work,   a.bytes + b.bytes,   a.n + b.n};
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

// Whether blocks of a dimension lie one after the other: no dimension before it
// has more than an index on a rank.
static bool is_in_front(const hd_module *module, const hd_type *type,
                        hd_placement now, int dim)
{
    for (int d = 0; d < dim; d++)
        if (hd_placement_share(module, type->dim[d],
                               hd_placement_axis(now, d)) > 1)
            return false;
    return true;
}

// What is touched to put so many bytes in another order, where blocks of the
// dimension do not lie one after the other.
static int64_t pack(const hd_module *module, const hd_type *type,
                    hd_placement now, int dim, int64_t bytes)
{
    return is_in_front(module, type, now, dim) ? 0
                                               : 2 * bytes / HD_COST_TOUCHED;
}

// A sum of few bytes is one kernel, which meets its peers sooner than others
// do.
static int64_t begin_alone(step step, int64_t bytes)
{
    int64_t few = HD_COST_ALONE / 2, more = 4 * bytes;

    if (step != STEP_SCATTER && step != STEP_ADD)
        return HD_COST_ALONE;
    return few + (more < few ? more : few);
}

// `now` is what the tensor is over before it. What goes on piece by piece
// beside a statement begins sooner, and lies as it arrives.
static hd_moves move_step(const hd_module *module, const hd_type *type,
                          hd_placement now, int axis, int to, step step,
                          unsigned gathers)
{
    int64_t all = hd_placement_bytes(module, type, now);
    int64_t ranks = module->axis[axis].size;
    hd_moves moves = {.n = 1};
    bool beside = false;
    int64_t takes;

    switch (step) {
    case STEP_SLICE:
        return (hd_moves){.work = all / ranks / HD_COST_TOUCHED};
    case STEP_SCATTER:
        moves.bytes = all - all / ranks;
        takes = moves.bytes + HD_COST_MOVE / 2;
        break;
    case STEP_EXCHANGE:
        moves.n = 2;
        moves.work = pack(module, type, now, to, all) +
                     pack(module, type, now, now.dim[axis], all);
        moves.bytes = all - all / ranks;
        takes = moves.bytes + HD_COST_MOVE;
        break;
    case STEP_ADD:
        moves.bytes = 2 * (all - all / ranks);
        takes = moves.bytes + HD_COST_MOVE / 2;
        break;
    case STEP_GATHER:
        beside = (gathers >> now.dim[axis] & 1) != 0;
        if (!beside)
            moves.work = pack(module, type, now, now.dim[axis], all * ranks);
        moves.bytes = all * (ranks - 1);
        takes = moves.bytes + HD_COST_MOVE / (beside ? 2 : 1);
        break;
    case STEPS:
    case STEP_NONE:
        return (hd_moves){0};
    }
    moves.ahead = beside ? 0 : takes;
    moves.beside = beside ? takes : 0;
    moves.alone = moves.bytes + begin_alone(step, moves.bytes);
    return moves;
}

hd_moves hd_placement_move(const hd_module *module, const hd_type *type,
                           hd_placement from, hd_placement to, unsigned gathers)
{
    hd_moves move = {0};
    hd_placement now = from;

    for (step s = STEP_SLICE; s < STEPS; s++)
        for (int a = 0; a < module->naxes; a++)
            if (step_of(from.dim[a], to.dim[a]) == s) {
                move = hd_moves_sum(move, move_step(module, type, now, a,
                                                    to.dim[a], s, gathers));
                now.dim[a] = to.dim[a];
            }
    return move;
}
