// Statements of tensor programs that stand for several operations, where a run
// says how long dimensions are: how many that are, and where an element of one
// tensor lies in another, is calculated by operations, as data.
#ifndef HD_IR_EXPAND_H
#define HD_IR_EXPAND_H

#include "ir/module.h"

HD_BEGIN_DECLS

// What is made on the way to the result of a statement, ahead of it.
typedef struct hd_expansion {
    hd_module *module;
    const hd_op *of;
    hd_block *block; // appended to
} hd_expansion;

// A temporary on the ranks of the op's result, called after it and `word`.
hd_buffer *hd_expand_temp(hd_module *module, const hd_op *of, const char *word,
                          const hd_type *type);
// An op that makes a temporary of `type`, with room for operands and a key.
hd_op *hd_expand_op(const hd_expansion *e, hd_opcode code, const hd_type *type,
                    hd_buffer **result);
void hd_expand_read(hd_op *op, hd_buffer *operand);
// One element, `times` as many as a run has of the size of `dim`: ones that are
// added up. Ranks do so each by itself.
hd_buffer *hd_expand_length(const hd_expansion *e, hd_dim dim, hd_dtype dtype,
                            double times);

// Whether a reshape leaves what a run has of both sides where it lies: what it
// says the length of stays by itself, or is one of `uncut`, and leads what it
// is split into or merged with.
bool hd_reshape_stays(const hd_type *to, const hd_type *from, uint32_t uncut);
// Whether both sides have as many elements in every run, of one size.
bool hd_reshape_fits(const hd_type *to, const hd_type *from);
// A reshape that moves elements, as a `take` of each. False if it stays, or
// does not fit, or what it merges is cut.
bool hd_expand_reshape(const hd_expansion *e, hd_stmt *stmt);
// A concat along `dim`, of which all operands and the result are a size times a
// number: each is taken from, and picked where it has indices.
void hd_expand_concat(const hd_expansion *e, hd_stmt *stmt, int dim);

HD_END_DECLS

#endif
