// Whether an op takes the counts of its views, and what stands around one that
// does not: in a tensor program copies without counts, which have zeros behind
// what was counted.
#ifndef HD_IR_COUNTED_H
#define HD_IR_COUNTED_H

#include "ir/module.h"
#include "ir/signature.h"

HD_BEGIN_DECLS

enum { HD_COUNTED_WHY = 512 };

// The first view whose counts a computing op, bound so, does not take, and why,
// unless that is NULL; -1 if it takes all of them.
int hd_counted_misfit(const hd_module *module, const hd_op *op,
                      const hd_bound *bound, char why[HD_COUNTED_WHY]);

// Of each buffer, by its id, the copy of all of it that there is; in the arena.
typedef struct hd_uncounted {
    hd_buffer **of;
    int room;
} hd_uncounted;

// Has the op of a statement that is to be appended read and make copies without
// counts in place of the views that it does not take, where that means the
// same. What stands ahead goes to the block, and the statement becomes the last
// one. What is left is for the verifier to refuse.
void hd_counted_settle(hd_module *module, hd_stmt *stmt, hd_block *block,
                       hd_uncounted *known, hd_diag *diag);

HD_END_DECLS

#endif
