// One operation of unit COMPUTE, of any algebra: which elements of its operands
// each element of a result is made of, and how many of them counts count.
#ifndef HD_EVAL_COMPUTE_H
#define HD_EVAL_COMPUTE_H

#include "eval/layout.h"

HD_BEGIN_DECLS

// What is done with values of a memory, each at a place.
typedef struct hd_algebra {
    // Of `from`, a place of each operand; copies are maps of one operand.
    void (*map)(void *memory, const hd_work_item *item, int64_t to,
                const int64_t *from);
    // n values are joined, of indices that stand for those of pieces.
    void (*join)(void *memory, hd_fold fold, hd_dtype dtype, int64_t to,
                 const int64_t *from, int64_t n, hd_grain grain);
    // The one of n values from `first` on that `index` says, of which `start`
    // is the first.
    void (*take)(void *memory, int64_t to, int64_t index, int64_t start,
                 int64_t first, int64_t stride, int64_t n, hd_grain grain);
    // Where an element is in the whole.
    void (*place)(void *memory, int64_t to, int64_t index);
    hd_status (*multiply)(void *memory, const hd_work_item *item);
    hd_status (*pick)(void *memory, const hd_work_item *item); // and call
    hd_status (*attend)(void *memory, const hd_work_item *item);
    void (*copy)(void *memory, int64_t to, int64_t from);
    void (*clear)(void *memory, int64_t at);
    // What is behind the indices that are counted, is moved as no value.
    void (*forget)(void *memory, int64_t to, int64_t from);
    // A number that is an operand, as a dtype rounds it.
    void (*number)(void *memory, int64_t at, hd_dtype dtype, double number);
    // How many of `room` indices the count there counts.
    int64_t (*count)(const void *memory, int64_t at, int64_t room);
    // What follows is written by this node of the graph.
    void (*begin)(void *memory, int64_t node);
} hd_algebra;

typedef struct hd_evaluator {
    const hd_algebra *algebra; // borrowed
    void *memory;              // borrowed: the algebra's
    hd_diag *diag;             // may be NULL
    const hd_layout *layout;   // borrowed
    int64_t spare; // from here on HD_MAX_SCALARS places of the memory are free
} hd_evaluator;

// What needs no layout.
hd_status hd_compute(const hd_evaluator *e, const hd_work_item *item);

HD_END_DECLS

#endif
