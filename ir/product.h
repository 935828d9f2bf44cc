// What a step that multiplies does, decoded once for all that compute it, write
// its kernel or say what it costs:
//
//     c = act(scale * a b + bias) + c
//             '--- aux keeps ---'   '--- with `accumulate`
//
// where a and b may be times scales of their own, each of a block of elements.
//
// The result's dimensions are those of the batch, then rows, then the columns.
// A piece is one plain product of matrices whose rows are evenly spaced; all
// pieces together, in row-major order of the dimensions in front of theirs, are
// the step:
//
//     %c[batch, r0, r1, columns]       r0 and r1 even: a piece a batch index
//        '--------' outer              else: one for each index of r0 too
//
// A grouped product has a piece for each group of rows, which are data: the
// rows of group g begin behind those of the groups ahead of it.
//
//     c[rows, N] = a[rows, K] b[e, K, N]       of a and c some rows, of b one
//                                              matrix
//     c[e, M, N] = a[rows, M] b[rows, N] ta    of a and b some rows, of c one
#ifndef HD_IR_PRODUCT_H
#define HD_IR_PRODUCT_H

#include "ir/space.h"

HD_BEGIN_DECLS

// As it is stored, in elements.
typedef struct hd_matrix {
    int64_t rows, columns, row_stride, column_stride;
} hd_matrix;

// The first three are the step's first three spans.
enum {
    HD_PRODUCT_C,
    HD_PRODUCT_A,
    HD_PRODUCT_B,
    HD_PRODUCT_BIAS,
    HD_PRODUCT_AUX,
    HD_PRODUCT_PARTS,
};

typedef struct hd_product_part {
    int view;     // the number of its span in the step; -1: there is none
    hd_span span; // along the result's dimensions: hd_space_span
    hd_matrix
        matrix; // of a piece: of a [K, M] with `ta`, of b [N, K] with `tb`
} hd_product_part;

// Of an operand, one for so many rows of the result (of b columns) by so many
// of what is contracted. Where they repeat along either the stride is 0.
typedef struct hd_scales {
    int view;     // -1: there are none
    hd_span span; // hd_space_span
    int64_t lines, deep;
    int64_t line_stride, deep_stride; // in elements
    int64_t to_group; // of b, from one group's to the next; 0: they share
} hd_scales;

typedef struct hd_product {
    hd_space space;
    int64_t batch, m, n, k; // m: all rows of one index of the batch
    int outer;              // dimensions of the result that number the pieces
    int64_t pieces;
    bool ta, tb, accumulate;
    bool keep;           // rows of no group stay as they are
    int counts;          // the view of `groups`; -1: the product is not grouped
    int64_t groups;      // how many there are; with `counts`
    int64_t rows;        // that they share
    int64_t to_group;    // from one group's matrix to the next, in elements: of
                         // b, with `ta` of c
    int64_t to_bias;     // from its row of the bias to the next; 0: they share
    bool wide;           // multiplied in f64
    bool integers;       // which are, too: sums of theirs are exact in that
    const hd_key *scale; // NULL: none
    hd_scales scales[2]; // of a, whose pieces have one dimension of rows then,
                         // and of b
    hd_act act;
    hd_product_part part[HD_PRODUCT_PARTS];
} hd_product;

// Rows are cut into pieces until they are evenly spaced in the first `even`
// parts, and of one count: HD_PRODUCT_PARTS for all, HD_PRODUCT_BIAS for the
// three matrices, 0 for whoever does not look at pieces.
hd_product hd_product_of(const hd_step *step, int even);

// Whether nothing follows the product.
static inline bool hd_product_is_plain(const hd_product *p)
{
    return p->scale == NULL && p->act == HD_ACT_NONE && !p->accumulate &&
           p->part[HD_PRODUCT_BIAS].view < 0 &&
           p->part[HD_PRODUCT_AUX].view < 0;
}
// Where a part of piece `i` begins, in elements of its buffer; of a grouped
// product's piece 0.
int64_t hd_product_offset(const hd_product *product, int part, int64_t i);
// Likewise where the scales of the first row (column) of an operand begin.
int64_t hd_scales_offset(const hd_product *product, const hd_scales *scales,
                         int64_t i);
// How far behind that the scale of row (column) `line` and index `k` is.
static inline int64_t hd_scales_at(const hd_scales *scales, int64_t line,
                                   int64_t k)
{
    return line / scales->lines * scales->line_stride +
           k / scales->deep * scales->deep_stride;
}

HD_END_DECLS

#endif
