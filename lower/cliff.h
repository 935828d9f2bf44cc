// What lowering moves, beside what the placements of a program's tensors need.
// A statement of which it moves much more than that is a warning: the program
// is right, and slow, and may often be written so that it is not.
#ifndef HD_LOWER_CLIFF_H
#define HD_LOWER_CLIFF_H

#include "ir/module.h"

HD_BEGIN_DECLS

typedef struct hd_cliffs hd_cliffs;

// The statements of a tensor program that move anything, with what they need;
// NULL if none does. They live in `scratch`.
hd_cliffs *hd_cliffs_find(const hd_module *module, hd_arena *scratch);
// Once loops are made, and before they are pipelines: what each of them moves.
// Pipelines order that, and move no more.
void hd_cliffs_count(hd_cliffs *cliffs, const hd_module *module,
                     hd_arena *scratch);
void hd_cliffs_tell(const hd_cliffs *cliffs, const hd_module *module,
                    hd_diag *diag);

HD_END_DECLS

#endif
