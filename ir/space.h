// What an op iterates over, and where each of its views lies in that: the one
// place that knows which dimension of a result comes from which of an operand.
//
//     %c[i, j] = matmul %a[i, k], %b[k, j] bias %d[j]
//
//     space    i PARALLEL   j PARALLEL   k REDUCED
//     %c       0            1            -
//     %a       0            -            1
//     %b       -            1            0
//     %d       -            0            -
//
// A view repeats along a dimension that it has not, or has with one index. One
// of scales may be in a grain: an index of it is along as many of the space's.
// Of a grouped product the matrices' dimension of the groups lies along
// nothing: which of them a row takes is data. The dimension that `take` takes
// from is the reduced one: one term of it, or none, is not zero. Of an op of
// family PICK or ATTEND views lie along the dimensions of the batch alone,
// counts of sequences along the first of these. Counts of a dimension lie as
// their dimensions do in the view that has them.
#ifndef HD_IR_SPACE_H
#define HD_IR_SPACE_H

#include "ir/walk.h"

HD_BEGIN_DECLS

#define HD_SPACE_DIMS (HD_MAX_DIMS + 1)
#define HD_REPEATED (-1)

typedef struct hd_space {
    int ndims;     // the parallel ones, then the reduced one if there is one
    int nparallel; // those of the result, in its order
    int counted;   // the one of which the key COUNTS says how many; -1: none
    int64_t extent[HD_SPACE_DIMS];
    // Per view and dimension of the space: the view's dimension that lies along
    // it, or HD_REPEATED.
    int8_t dim[HD_MAX_VIEWS][HD_SPACE_DIMS];
    // Likewise, a bit a dimension of the space: whether each index of the view
    // is along hd_op_grain of them, of the last ones perhaps fewer.
    uint16_t grained[HD_MAX_VIEWS];
} hd_space;

typedef struct hd_shape {
    int ndims;
    int64_t extent[HD_MAX_DIMS];
} hd_shape;

// How the dimensions of an op of unit COMPUTE lie, whether their extents fit or
// not: it says no extents, and views repeat along what they lack alone.
void hd_space_map(const hd_op *op, const hd_shape *view, hd_space *out);
// Of a verified op whose views have these shapes.
void hd_space_of(const hd_op *op, const hd_shape *view, hd_space *out);
void hd_space_of_step(const hd_step *step, hd_space *out);
// Of the dimensions that its views keep, all ranks' of those that are sharded.
void hd_space_of_op(const hd_op *op, hd_space *out);
// Likewise, as hd_space_map has it: a view's dimension of one index is one.
void hd_space_map_op(const hd_op *op, hd_space *out);
// Which dimension of view `i` lies along `d` of the result where the view lies
// along its last ones, whether it repeats there or not; -1 if none does. Both
// are counted in the buffers' dimensions.
int hd_space_beside(const hd_op *op, int i, int d);
static inline bool hd_space_is_grained(const hd_space *space, int view, int d)
{
    return (space->grained[view] >> d & 1) != 0;
}

// Which dimension of a view lies along the reduced one; -1 if none does.
static inline int hd_space_folded(const hd_space *space, int view)
{
    return space->ndims > space->nparallel ? space->dim[view][space->nparallel]
                                           : HD_REPEATED;
}

// The dimension of the space that dimension `own` of view `view` lies along, -1
// if it repeats there.
int hd_space_along(const hd_space *space, int view, int own);

// Whether the first dimension of view `i` is that of a grouped product's
// groups, with an index for each.
bool hd_space_leads_groups(const hd_op *op, const hd_shape *view, int i);
// From one group's part of what a key of a grouped product reads, a bias or
// scales, to the next one's, in elements; 0 if all have the same, or there is
// no such key.
int64_t hd_space_to_group(const hd_step *step, hd_key_code code);

// A view of a step along the dimensions of its result; along those in a grain
// where the first index lies.
hd_span hd_space_span(const hd_space *space, const hd_step *step, int view);
// The strides of a view along the space's dimensions, of those of its own; 0
// where it repeats, or lies in a grain.
void hd_space_strides(const hd_space *space, int view, const int64_t *stride,
                      int64_t out[HD_SPACE_DIMS]);

HD_END_DECLS

#endif
