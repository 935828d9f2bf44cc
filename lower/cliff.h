// What is slow of a program though it is right: a statement for which lowering
// moves much more than the placements of its tensors need, and one that moves
// while nothing is computed, though something could be. Each is a warning with
// what to write.
#ifndef HD_LOWER_CLIFF_H
#define HD_LOWER_CLIFF_H

#include "ir/module.h"

HD_BEGIN_DECLS

// Functions take NULL, where nobody is told.
typedef struct hd_cliffs hd_cliffs;

// The statements of a tensor program that move anything, with what they need;
// NULL if none does. They live in `scratch`. If `bulk` was asked for, nothing
// is said of what nothing goes on beside.
hd_cliffs *hd_cliffs_find(const hd_module *module, bool bulk,
                          hd_arena *scratch);
// Once loops are made, and before they are pipelines: what each of them moves.
// Pipelines order that, and move no more.
void hd_cliffs_count(hd_cliffs *cliffs, const hd_module *module,
                     hd_arena *scratch);
void hd_cliffs_tell(const hd_cliffs *cliffs, hd_module *module, hd_diag *diag);

// What passes know of the statement at a place. Whether it matters why no loop
// takes it; without a place, whether any moves so much that it matters what
// goes on beside it.
bool hd_cliffs_waits(const hd_cliffs *cliffs, hd_loc loc);
// Why no loop takes it. The text lives as long as the statements.
void hd_cliffs_alone(hd_cliffs *cliffs, hd_loc loc, const char *reason);
// A stream for transfers lets it go on beside others: if there is one.
void hd_cliffs_beside(hd_cliffs *cliffs, hd_loc loc, bool streams);
// A reason has been told already.
void hd_cliffs_told(hd_cliffs *cliffs, hd_loc loc);

HD_END_DECLS

#endif
