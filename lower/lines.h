// What of a statement of a tensor program axes may divide: its lines are what
// dimensions of its views lie along, and an axis divides one of them, or has
// all of the statement on each rank.
#ifndef HD_LOWER_LINES_H
#define HD_LOWER_LINES_H

#include "ir/signature.h"
#include "lower/placement.h"

HD_BEGIN_DECLS

#define HD_MAX_LINES HD_BOUND_DIMS
#define HD_MAX_GROUPS 2 // of operands that an op is linear in together
// What an axis divides of which ranks have parts of the operands of group `k`,
// and so parts of the result, in place of a line.
#define HD_LINE_OF_PARTS(k) (-2 - (k))

typedef struct hd_lines {
    const hd_op *op;
    hd_bound bound;             // without one where the op has no signature
    hd_type type[HD_MAX_VIEWS]; // what views keep, over no axis
    int n;
    int8_t at[HD_MAX_VIEWS][HD_MAX_DIMS]; // -1: along none
    int64_t extent[HD_MAX_LINES];
    int joined;      // the line whose parts ranks may add up behind, or -1
    int heads, rows; // of an attention, or -1: its signature wants rows whole
    int keys;        // of one, or -1: rows may meet some of these on each rank
    unsigned beside; // lines under which a gather of what a product reads hides
    bool fixed;      // done as it stands
    unsigned group[HD_MAX_GROUPS]; // views, as bits
} hd_lines;

// Whether an axis that divides this line is made a dimension of the batch.
bool hd_lines_splits(const hd_lines *lines, int line);

// Whether ranks of an axis that divides this line attend to keys of their own,
// and what that makes is merged.
bool hd_lines_merges(const hd_lines *lines, int line);

hd_lines hd_lines_find(const hd_module *module, const hd_op *op);

// Which line each axis divides.
typedef struct hd_cut {
    int8_t line[HD_MAX_AXES];
} hd_cut;

// The axis over which operands are parts, and which views these are; -1.
int hd_cut_parts(hd_cut cut);
unsigned hd_lines_parts(const hd_lines *lines, hd_cut cut);
// Where views lie then, results with parts that are yet to be added; false if
// the statement cannot be divided so.
bool hd_lines_divide(const hd_module *module, const hd_lines *lines, hd_cut cut,
                     hd_placement at[HD_MAX_VIEWS]);
// How the statement is divided that has its views there, as far as it can be.
hd_cut hd_lines_cut(const hd_module *module, const hd_lines *lines, int view,
                    hd_placement at);
// Whether it is a product or an attention.
bool hd_lines_have_flops(const hd_op *op);
// Multiplications and additions of it that a rank does; 0 of what is neither.
int64_t hd_lines_flops(const hd_module *module, const hd_lines *lines,
                       hd_cut cut);
// What a rank computes of it, in bytes that it could receive meanwhile.
int64_t hd_lines_work(const hd_module *module, const hd_lines *lines,
                      hd_cut cut);
// Whether operand `i` is keys that are values, too, and stand ahead of it.
bool hd_lines_are_values(const hd_lines *lines, int i);
// What it takes for all keys to arrive where each rank has a block of the rows,
// and for parts of their gradients to leave, beside that.
hd_moves hd_lines_arrive(const hd_module *module, const hd_lines *lines,
                         hd_cut cut, const hd_placement *at);
// What result `i` is on the ranks of `axis` before it is merged: ranks in
// front, and not rounded yet.
hd_type hd_lines_unmerged(const hd_module *module, const hd_lines *lines, int i,
                          int axis, hd_placement at);
// What it takes to move that to where results lie, and to merge it there.
hd_moves hd_lines_merge(const hd_module *module, const hd_lines *lines,
                        int axis, const hd_placement *at);
// Whether each rank of an axis has as many indices of what a product joins, so
// that the axis becomes a dimension of operands.
bool hd_lines_lead(const hd_module *module, const hd_lines *lines, int axis);
// Whether there is a product of the operands as they lie whose result has an
// index for each rank of `axis` in front: of blocks of what it joins.
bool hd_lines_make_parts(const hd_module *module, const hd_lines *lines,
                         int axis, const hd_placement *at);
// Whether ranks may have parts of what view `i` has.
bool hd_lines_may_be_parts(const hd_lines *lines, int i);
// Whether the text says that a tensor's values are of a narrow dtype.
bool hd_buffer_is_narrow(const hd_buffer *buffer);
// Whether a key says what is done to a product's sums, once.
bool hd_key_ends(hd_key_code code);

// [.., k@axis, ..] as [n@axis, 1.., .., k / n, ..] of `ndims` dimensions; of -1
// for `dim`, what no rank of the axis has a part of, is repeated.
hd_type hd_type_led(const hd_module *module, const hd_type *type, int dim,
                    int axis, int ndims);

HD_END_DECLS

#endif
