// Programs evaluated: a tensor program on whole tensors, statement by
// statement; a host program on memory of each rank, step by step, in any order
// that it allows. What a value is, the algebra says: here it is moved alone.
#ifndef HD_EVAL_EVALUATE_H
#define HD_EVAL_EVALUATE_H

#include "eval/layout.h"

HD_BEGIN_DECLS

// What is done with values of a memory, each at a place.
typedef struct hd_algebra {
    // A step of unit COMPUTE.
    hd_status (*compute)(void *memory, const hd_work_item *item);
    void (*copy)(void *memory, int64_t to, int64_t from);
    // What is behind the indices that are counted, is moved as no value.
    void (*forget)(void *memory, int64_t to, int64_t from);
    // Element `i` of each of `n` spans, joined.
    void (*join)(void *memory, hd_fold fold, hd_dtype dtype, int64_t to,
                 const hd_span *from, int64_t n, int64_t i);
    // How many of `room` indices the count there counts.
    int64_t (*count)(const void *memory, int64_t at, int64_t room);
    // What follows is written by this node of the graph.
    void (*begin)(void *memory, int64_t node);
} hd_algebra;

typedef struct hd_evaluator {
    const hd_algebra *algebra; // borrowed
    const hd_layout *layout;   // borrowed
    void *memory;              // borrowed: the algebra's
    hd_diag *diag;             // may be NULL
} hd_evaluator;

hd_status hd_evaluate_tensor(const hd_evaluator *e);
// One step of a host program, by whose order the others stand in the memory;
// transfers when the last of those who take part has come to them.
hd_status hd_evaluate_step(const hd_evaluator *e, int rank, int64_t step);

HD_END_DECLS

#endif
