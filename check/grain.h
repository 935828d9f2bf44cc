// How finely values have to be distinguished. Along a dimension that no step
// picks an index of, all indices are treated alike, so two of them stand for
// all: each for some, of a number that is drawn (check/value). Where names of
// other shapes cut a dimension into pieces, that holds within a piece, the unit
// of the dimension; a dimension whose unit is 1 is distinguished index by
// index. Of uneven blocks each is cut where the last one, which is shorter,
// ends: views begin and end where pieces do, also where a rank has fewer
// indices than it has room for.
//
//     %a  : bf16[4@tp, 128, 1024]      128 = 2 pieces of 64: 2 x 2 stand for it
//     %ac : bf16[4@tp, 2, 64, 1024]    1024: 2 stand for it
//     %x  : bf16[22@tp, 1024]          4 + 2 + 4 + 2 + 4 + 2 + 4, each by 2
#ifndef HD_CHECK_GRAIN_H
#define HD_CHECK_GRAIN_H

#include "eval/layout.h"

HD_BEGIN_DECLS

// What each of both keeps of its buffers, by id: sieves that are the layouts'.
// `argument` has for each buffer of the tensor program the one of the host
// program that is the same argument, NULL for none.
hd_status hd_grain_find(const hd_buffer *const *argument, hd_diag *diag,
                        hd_layout *tensor, hd_layout *host);

// How many indices an index that is kept stands for, where they are counted for
// those who read it: the last one for itself.
static inline int64_t hd_grain_weight(hd_grain grain, int64_t k)
{
    hd_piece piece = hd_grain_piece(grain, k);

    return piece.number == 0 && piece.length > 1 ? piece.length - 1 : 1;
}

HD_END_DECLS

#endif
