// Which dimensions of an op's views are one. A row of ir/signature.def says it
// with letters for each form of an op:
//
//     take    y[B.. I.. R..] = x[B.. n R..] i[B.. I..]    dim at n
//
// Binding finds the form and how many dimensions each letter has, from how many
// the views have, and so what each dimension lies along. Fitting compares those
// that lie along the same.
#ifndef HD_IR_SIGNATURE_H
#define HD_IR_SIGNATURE_H

#include "base/arena.h"
#include "base/text.h"
#include "ir/op.h"

HD_BEGIN_DECLS

// What the dimensions of all views lie along, at most: those of a result, and
// of an operand or two what no view before has.
#define HD_BOUND_DIMS (3 * HD_MAX_DIMS)
#define HD_ALONE (-1) // lies along nothing

// In place of how many dimensions a result has: as many as operands make.
#define HD_INFERRED (-1)

struct hd_bound {
    int nviews;
    int8_t dim;                // that the key DIM names; -1: none
    int8_t order[HD_MAX_DIMS]; // of family TRANSPOSE, as hd_op_order has it
    int ndims[HD_MAX_VIEWS];   // of each view
    int64_t grain;             // of its scales
    // What the views' dimensions lie along: first the result's own, in its
    // order, then what the first operand has beside these, then any other.
    int nparallel, nspace, nlines;
    int8_t along[HD_MAX_VIEWS][HD_MAX_DIMS];
    uint16_t letter[HD_MAX_VIEWS][HD_MAX_DIMS];
    bool anyhow[HD_MAX_VIEWS];
    bool joins; // the result is placed in any way if what is joined is over
                // ranks
    bool parts; // the result leads with an index for each block of what is
                // joined
};

typedef enum hd_misfit_kind {
    HD_MISFIT_FORM,   // there is none with these keys
    HD_MISFIT_DIMS,   // a view has not as many dimensions as its letters
    HD_MISFIT_MOST,   // the result would have too many
    HD_MISFIT_LENGTH, // two dimensions of one letter are not as long
    HD_MISFIT_PLACE,  // or placed differently
    HD_MISFIT_ONE,    // one is to have one index that every rank has
    HD_MISFIT_WHOLE,  // one is over ranks, and each needs all of it
    HD_MISFIT_GRAIN,  // scales lie otherwise than what they are of
} hd_misfit_kind;

typedef struct hd_misfit {
    hd_misfit_kind kind;
    int view, dim;        // what does not fit
    int other, other_dim; // LENGTH, PLACE, GRAIN: what is before it
    int ndims;            // MOST
    bool blocks;          // LENGTH: of scales, which may be of blocks
    uint16_t letter;      // of the dimension; DIMS: of all, or 0
    const uint16_t *form; // DIMS: what it should be
} hd_misfit;

// Of an op whose views have so many dimensions, the result as many as operands
// make if it has HD_INFERRED. False if no form has them, or the op has none at
// all; `why` is then the reason, and of parts why they are no form without.
bool hd_bind(const hd_op *op, const int *ndims, hd_bound *out, hd_misfit *why);
// Whether dimensions that lie along the same are as long and placed alike, of
// the views from `first` on.
bool hd_bound_fits(const hd_bound *bound, const hd_type *type, int first,
                   bool tensor, hd_misfit *why);
// Which dimension of a view is joined, of those that form PARTS has; -1: none.
int hd_bound_joined(const hd_bound *bound, int view);
// Whether a dimension has scales of which one may be of several indices.
bool hd_bound_is_grained(const hd_bound *bound, int view, int d);
// Whether each block of a dimension in blocks has scales of its own, each of
// `grain` of its indices: all are as long, so that a view of one is by a
// number.
static inline bool hd_grain_fits(int64_t grain, hd_dim dim)
{
    return dim.extent % dim.blocks == 0 && hd_dim_block(dim) % grain == 0;
}
// What the operands make, of the dtype of `type[0]`.
hd_type hd_bound_result(const hd_bound *bound, const hd_type *type);
// The dimensions of result `i` as views from `first` on make them, its operands
// and what keys read; false if none of these says how long one is.
bool hd_bound_makes(const hd_bound *bound, const hd_type *type, int i,
                    int first, hd_type *out);
// Binding where operands decide: of the forms that they fit that whose first
// result has the fewest dimensions. `ndims` has HD_INFERRED of results that are
// not known, and types no marks.
bool hd_bind_operands(const hd_op *op, const int *ndims, const hd_type *type,
                      hd_bound *out, hd_misfit *why);
// Binding and fitting: whether an op with views of such types is one of its
// forms. `out`, where it is wanted, is how they are bound.
bool hd_signature_fits(const hd_op *op, const hd_type *type, bool tensor,
                       hd_bound *out, hd_misfit *why);
// How views of an op that fit are bound: as the verifier found it, or anew in
// `room` where they have other dimensions than the program's.
const hd_bound *hd_bound_of(const hd_op *op, const int *ndims, hd_bound *room);

// Whether each rank has the heads of keys that its heads of queries share, of
// an op whose `noutputs` first views are results.
bool hd_bound_heads_fit(const hd_bound *bound, const hd_type *type,
                        int noutputs);

// Whether the result's dimension is one of any number that have its letter, or
// of one index, so that the op does an index of it as it does all.
bool hd_bound_picks(const hd_bound *bound, int dim);
// Whether the op may be done in parts along `line` of its space: no view has a
// letter there that is whole.
bool hd_bound_parts(const hd_bound *bound, int line);

// Of family PICK, ATTEND or CALL: how many last dimensions of result or operand
// `i` belong together.
int hd_op_inner(const hd_op *op, int i);
// How many dimensions of the batch view `i` leads with, of the `ndims` that it
// keeps: an operand of a call, or of family ATTEND, may lack them all, and what
// keys have has none.
int hd_op_batch(const hd_op *op, int i, int ndims);
// Of family ATTEND: the first view that has logarithms, whose dtype is the
// widest of all.
int hd_op_lse(const hd_op *op);

// Whether the text form that the op is of has any of its kind.
bool hd_op_is_of_text(const hd_op *op);

// Room for what the verifier finds of an op; NULL if that is nothing.
hd_bound *hd_bound_room(hd_arena *arena, hd_opcode code);

// "k", NULL of one of several dimensions that have one letter.
const char *hd_letter_text(uint16_t letter);
// "B.. R.. k", what the view's dimensions are in the form.
void hd_misfit_form(const hd_misfit *misfit, hd_text *text);

HD_END_DECLS

#endif
