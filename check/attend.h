// Attention in the field. A key has a weight in each row, a random function of
// their score; `lse` stands for what the weights of a row add up to, and `o` is
// their mean of v. So whatever attends to the same keys, in any parts and in
// any order, makes the same. Gradients are those of the formulas, with weights
// divided by what `lse` says they add up to: so parts of keys and of rows, each
// with the whole o and lse, add up to the same.
#ifndef HD_CHECK_ATTEND_H
#define HD_CHECK_ATTEND_H

#include "check/value.h"

HD_BEGIN_DECLS

hd_status hd_values_attend(hd_values *values, const hd_work_item *item,
                           uint64_t scale);

HD_END_DECLS

#endif
