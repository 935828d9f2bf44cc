// Meshes whose ranks do the same, turned: along some axes a program mentions
// the own coordinate only in ways that turn with it, so that the rank `d`
// further along does what this one does with all peers and indices `d` further
// along, modulo the size of the axis. What holds of one then holds of all.
#ifndef HD_IR_SYMMETRY_H
#define HD_IR_SYMMETRY_H

#include "ir/walk.h"

HD_BEGIN_DECLS

typedef struct hd_symmetry {
    bool steps;              // all ranks issue as many steps, op by op the same
    bool turns[HD_MAX_AXES]; // ranks along the axis only turn
    int split; // one of those axes, whose ranks issue some of the steps each;
               // -1 if all do
} hd_symmetry;

// False where the text does not show it. HD_OK, or HD_ERROR_NO_MEMORY.
hd_status hd_symmetry_find(const hd_module *module, hd_diag *diag,
                           hd_symmetry *out);
// Adds an axis that does not turn, as `split`, if the text shows that.
hd_status hd_symmetry_split(const hd_module *module, int axis, hd_diag *diag,
                            hd_symmetry *symmetry);
// What the first rank has, as it stands for those along the axes that turn.
// HD_ERROR_INVALID, and nothing is said, if that is too much.
hd_status hd_symmetry_full(const hd_module *module, const hd_symmetry *symmetry,
                           hd_diag *diag, hd_full *out);
void hd_full_free(hd_full *full);

// The rank of which `rank` is a turn: coordinate 0 on the axes that turn.
int64_t hd_symmetry_first(const hd_module *module, const hd_symmetry *symmetry,
                          int64_t rank);
// Where `rank` is when `by` is turned to its first rank.
int64_t hd_symmetry_turn(const hd_module *module, const hd_symmetry *symmetry,
                         int64_t rank, int64_t by);

HD_END_DECLS

#endif
