// What a statement of a tensor program makes, where no declaration says it: how
// long its results are, of which dtype, and with which counts.
#ifndef HD_IR_INFER_H
#define HD_IR_INFER_H

#include "ir/module.h"
#include "ir/signature.h"

HD_BEGIN_DECLS

// What stands in a statement in place of its result's declaration.
typedef struct hd_said {
    bool keep;     // of a fold with a dimension: it stays, with one index
    bool shaped;   // `shape` stands behind `to`
    hd_type shape; // of what hd_op_says_shape
} hd_said;

// Completes the types of the op's results, and of what keys keep beside them.
// One that operands do not say, or say wrongly, stays without a shape, for the
// verifier to tell why.
void hd_infer(hd_op *op, const hd_said *said);

// Binds an op that has results without a shape, as its operands are: `type` is
// what its views are, without marks.
bool hd_infer_bind(const hd_op *op, const hd_said *said, hd_type *type,
                   hd_bound *out, hd_misfit *why);

// Whether any view of the op has no shape.
bool hd_op_is_shapeless(const hd_op *op);

HD_END_DECLS

#endif
