// What is known of every kernel, whoever writes its text.
#ifndef HD_CODEGEN_KERNEL_H
#define HD_CODEGEN_KERNEL_H

#include "base/text.h"
#include "codegen/length.h"

HD_BEGIN_DECLS

#define HD_KERNEL_NAME "hd_kernel"
#define HD_KERNEL_POINTERS 80                 // at most
#define HD_KERNEL_SIZES (2 * HD_MAX_DIMS + 8) // at most

// What a kernel tells of the first count that does not fit, of groups or of a
// dimension, if there is nothing told yet: words in the device's memory, all 0
// before. A dimension's counts are numbered in the room that they have.
typedef struct hd_kernel_miscount {
    int64_t step; // and one more
    int64_t group, count, left;
} hd_kernel_miscount;

// How a kernel is started.
typedef struct hd_kernel_grid {
    unsigned blocks, threads;
    unsigned shared; // bytes of dynamic shared memory
    int pointers; // of at[], addresses on the device
    int sizes;    // of size[], numbers that follow them
    int64_t size[HD_KERNEL_SIZES];
} hd_kernel_grid;

// Whether the kernel of a step reads counts.
static inline bool hd_kernel_tells(const hd_step *step)
{
    return hd_op_key(step->op, HD_KEY_GROUPS) != NULL ||
           hd_op_has_counts(step->op);
}

HD_END_DECLS

#endif
