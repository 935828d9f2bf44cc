// Counts of grouped products, of sequences and of dimensions that do not fit:
// what they are taken for, and what is said of them. The run goes on; the
// host's next wait for it fails.
#ifndef HD_RUNTIME_MISCOUNT_H
#define HD_RUNTIME_MISCOUNT_H

#include "ir/walk.h"
#include "runtime/ranks/group.h"

HD_BEGIN_DECLS

// A count of a grouped product, or of an attention's sequences, that is no
// number of rows it may have, or one of a dimension that is no number of its
// indices: the first in the order of the groups, or of the counts that the step
// reads, those of keys behind those of rows. All zero: there is none.
typedef struct hd_miscount {
    bool found;
    int64_t group, count; // which one it is, and what it says
    int64_t left;         // rows that the groups before it leave, or indices
} hd_miscount;

// The rows that the group is taken to have, or the indices of the dimension;
// notes the first that are others than the count.
static inline int64_t hd_miscount_clamp(hd_miscount *miscount, int64_t group,
                                        int64_t count, int64_t left)
{
    int64_t rows = count < 0 ? 0 : count > left ? left : count;

    if (rows != count && !miscount->found) {
        miscount->found = true;
        miscount->group = group;
        miscount->count = count;
        miscount->left = left;
    }
    return rows;
}

// Of a step of `rank`: in words, and as what the host's next wait ends with.
void hd_miscount_print(const hd_module *module, int rank, const hd_step *step,
                       const hd_miscount *miscount, char out[HD_GROUP_TEXT]);
hd_status hd_miscount_report(const hd_module *module, int rank,
                             const hd_step *step, const hd_miscount *miscount,
                             hd_diag *diag);

HD_END_DECLS

#endif
