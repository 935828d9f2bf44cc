// Dimensions are joined, so that dense operands are one, and then either rows
// are cut into vectors or two dimensions into tiles. What is done must do in
// every run, so that a length that a run says counts with its room, and what
// divides it is what divides it in every run.
#include "codegen/arrange.h"

enum {
    VECTOR_BYTES = 16,
    TILE = 16, // its square is a block's threads
};

// Behind each index of `d` there would be a gap, of one that a run says.
static bool joins(const hd_nest *nest, int d)
{
    hd_length next = nest->length[d + 1];

    for (int i = 0; i < nest->n; i++) {
        const hd_operand *o = &nest->operand[i];

        if (!o->dense && (o->stride[d] != o->stride[d + 1] * next.room ||
                          o->block[d] > 1 || o->block[d + 1] > 1))
            return false;
    }
    return !next.sized && nest->counts.place[d + 1] == 0;
}

static bool has_blocks(const hd_nest *nest, const hd_operand *o)
{
    for (int d = 0; d < nest->ndims; d++)
        if (o->block[d] > 1)
            return true;
    return false;
}

static void drop_dim(hd_nest *nest, int d)
{
    nest->ndims--;
    for (int i = d; i < nest->ndims; i++) {
        nest->length[i] = nest->length[i + 1];
        nest->counts.place[i] = nest->counts.place[i + 1];
        for (int k = 0; k < nest->n; k++) {
            nest->operand[k].stride[i] = nest->operand[k].stride[i + 1];
            nest->operand[k].block[i] = nest->operand[k].block[i + 1];
        }
    }
}

// An index that is counted, or not, is all of what is joined behind it.
static void join_dim(hd_nest *nest, int d)
{
    int64_t n = nest->length[d + 1].room;

    nest->length[d + 1] = hd_length_times(nest->length[d], n);
    nest->counts.place[d + 1] = nest->counts.place[d];
    if (nest->counts.place[d] != 0)
        nest->counts.times *= n;
    drop_dim(nest, d);
}

// Leaves at least one dimension.
static void join_dims(hd_nest *nest)
{
    for (int d = nest->ndims - 1; d >= 0; d--)
        if (nest->length[d].room == 1 && !nest->length[d].sized &&
            nest->counts.place[d] == 0)
            drop_dim(nest, d);
    for (int d = nest->ndims - 2; d >= 0; d--)
        if (joins(nest, d))
            join_dim(nest, d);
    if (nest->ndims > 0)
        return;
    nest->ndims = 1;
    nest->length[0] = hd_length_fixed(1);
    for (int i = 0; i < nest->n; i++)
        nest->operand[i].stride[0] = 1;
}

// Moves the fine part of dimension `d` to the end.
static void split_dim(hd_nest *nest, int d)
{
    int last = nest->ndims++;

    nest->length[last] = hd_length_fixed(TILE);
    nest->length[d].now /= TILE;
    nest->length[d].room /= TILE;
    nest->length[d].unit /= TILE;
    nest->counts.place[last] = nest->counts.place[d];
    nest->counts.place[d] *= TILE;
    for (int i = 0; i < nest->n; i++) {
        nest->operand[i].stride[last] = nest->operand[i].stride[d];
        nest->operand[i].stride[d] *= TILE;
    }
}

// In a transposition one operand is dense along the last dimension and another
// along an earlier one, `d`. Elements are then taken in square tiles, a block
// one, so that memory is moved in whole lines on both sides.
static void tile_dims(hd_nest *nest)
{
    int last = nest->ndims - 1;

    if (nest->inner != HD_INNER_NONE || nest->ndims + 2 > HD_MAX_DIMS ||
        nest->length[last].unit % TILE != 0)
        return;
    for (int i = 0; i < nest->n; i++)
        if (nest->operand[i].dense || has_blocks(nest, &nest->operand[i]))
            return;
    for (int i = 0; i < nest->n; i++)
        for (int d = 0; d < last; d++)
            if (nest->operand[i].stride[d] == 1 && !nest->operand[i].counts &&
                nest->length[d].unit % TILE == 0) {
                split_dim(nest, d);
                split_dim(nest, last);
                return;
            }
}

int64_t hd_nest_room(const hd_nest *nest)
{
    int64_t n = 1;

    for (int d = 0; d < nest->ndims; d++)
        n *= nest->length[d].room;
    return n;
}

int64_t hd_nest_elements(const hd_nest *nest)
{
    int64_t n = 1;

    for (int d = 0; d < nest->ndims; d++)
        n *= nest->length[d].now;
    return n;
}

// Every row of the operand begins at a multiple of `width` elements.
static bool rows_align(const hd_nest *nest, const hd_operand *o, int width)
{
    if (o->dense)
        return true; // as rows are whole vectors, where there are several
    if (o->block[nest->ndims - 1] > 1)
        return false;
    if (o->stride[nest->ndims - 1] != 1)
        return hd_nest_repeats(nest, o) && !o->write && !o->walked;
    for (int d = 0; d + 1 < nest->ndims; d++)
        if (o->stride[d] % width != 0)
            return false;
    return o->walk % width == 0;
}

// The elements of a vector are counted, or not, alike.
static bool counts_vectors(const hd_nest *nest, int width)
{
    const hd_nest_counts *counts = &nest->counts;

    if (counts->operand == 0)
        return true;
    return hd_nest_repeats(nest, &nest->operand[counts->operand]) &&
           (counts->place[nest->ndims - 1] == 0 || counts->times % width == 0);
}

// Elements a vector: 16 bytes of the narrowest operand. 1 if there are no
// vectors.
static int vector_width(const hd_nest *nest)
{
    int width = 1;

    for (int i = 0; i < nest->n; i++) {
        int fit = VECTOR_BYTES / (int)hd_dtype_size(nest->operand[i].dtype);

        width = fit > width ? fit : width;
    }
    if (nest->inner == HD_INNER_DOT || hd_nest_room(nest) < width ||
        (nest->ndims > 1 && nest->length[nest->ndims - 1].unit % width != 0) ||
        !counts_vectors(nest, width))
        return 1;
    for (int i = 0; i < nest->n; i++)
        if (!rows_align(nest, &nest->operand[i], width))
            return 1;
    return width;
}

int hd_nest_arrange(hd_nest *nest)
{
    int width;

    join_dims(nest);
    width = vector_width(nest);
    if (width == 1)
        tile_dims(nest);
    return width;
}
