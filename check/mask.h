// Where masks of attention begin and end to leave something, as what a run is
// given moves them: a mask's place is a sum of sizes and a number, and so are
// rows and keys, but for blocks. Sizes that lie about such a place tell masks
// apart that are alike where all rows see all keys, or none.
#ifndef HD_CHECK_MASK_H
#define HD_CHECK_MASK_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// How many there are of a step: a number, or as many as a run says.
typedef struct hd_mask_line {
    int64_t n;      // or times the size
    int64_t blocks; // of which it is one; 0 if it is all
    int32_t size;   // -1: none
} hd_mask_line;

typedef struct hd_mask {
    int64_t first;               // `causal` where all sizes are 0
    int64_t times[HD_MAX_SIZES]; // and so much more for each of a size
    hd_mask_line rows, keys;
    int64_t window; // 0: none
} hd_mask;

typedef struct hd_masks {
    int nsizes;
    int64_t low[HD_MAX_SIZES], high[HD_MAX_SIZES];
    hd_mask *mask; // owned: each once
    int64_t n, room;
} hd_masks;

// Those of both programs; none where no run says where a mask is.
hd_status hd_masks_find(const hd_graph *graph, const hd_module *tensor,
                        hd_diag *diag, hd_masks *out);
void hd_masks_free(hd_masks *masks);

enum { HD_MASK_ENDS = 8 };

// Where end number `end` of a mask passes the first or the last key while size
// `i` grows, the others being `sizes`: the least value from which on it has.
// False if it is the same at all values.
bool hd_mask_solve(const hd_masks *masks, const hd_mask *mask, int end, int i,
                   const int64_t *sizes, int64_t *out);

HD_END_DECLS

#endif
