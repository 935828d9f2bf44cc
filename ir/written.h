// Which parts of a tensor are written, as boxes: indices from and to in each
// dimension.
#ifndef HD_IR_WRITTEN_H
#define HD_IR_WRITTEN_H

#include "ir/module.h"

HD_BEGIN_DECLS

// The indices of each dimension that a part of a tensor has.
typedef struct hd_box {
    int64_t low[HD_MAX_DIMS], past[HD_MAX_DIMS];
    hd_loc loc;
} hd_box;

// What of a tensor statements have written so far: no element twice.
typedef struct hd_written {
    hd_box *box; // owned
    int64_t n, room;
} hd_written;

hd_box hd_box_of(const hd_module *module, const hd_view *view);
// What two have in common, but for `loc`; false if that is nothing.
bool hd_box_meet(const hd_box *a, const hd_box *b, int ndims, hd_box *out);
int64_t hd_box_elements(const hd_box *all, int ndims);
// Whether all of the part is written.
bool hd_written_has(const hd_written *w, const hd_box *part, int ndims);
// The first element of a part that is not; there is one.
hd_box hd_written_first_gap(const hd_written *w, const hd_box *part, int ndims);

HD_END_DECLS

#endif
