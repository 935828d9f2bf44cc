// What is known of every kernel, whoever writes its text.
#ifndef HD_CODEGEN_KERNEL_H
#define HD_CODEGEN_KERNEL_H

#include "base/text.h"
#include "codegen/length.h"

HD_BEGIN_DECLS

#define HD_KERNEL_NAME "hd_kernel"
#define HD_KERNEL_POINTERS 80    // at most
#define HD_KERNEL_PROCESSORS 132 // that grids are made for
#define HD_KERNEL_SIZES 96       // at most

// What a kernel tells of the first count that does not fit, of groups or of a
// dimension, if there is nothing told yet: words in the device's memory, all 0
// before. A dimension's counts are numbered in the room that they have.
typedef struct hd_kernel_miscount {
    int64_t step; // and one more
    int64_t group, count, left;
} hd_kernel_miscount;
// In place of a group: a wait within the kernel; or for a word, by the product
// `count` of those that the kernel does, which has seen `left` there.
#define HD_KERNEL_LATE (-1)
#define HD_KERNEL_UNTOLD (-2)

// What a kernel reads or writes in boxes, in one go: a view of three
// dimensions, the first one dense, of 8 or 16 bits (a tensor map of CUDA's).
typedef struct hd_kernel_map {
    int pointer; // of at[]: where it begins
    hd_dtype dtype;
    int64_t extent[3], stride[2]; // the latter in bytes, of the last two
    uint32_t box[2];              // of the first two; of the last it is 1
} hd_kernel_map;

enum {
    HD_KERNEL_MAPS = 48, // at most
    HD_KERNEL_MAP_BYTES = 128,
    HD_KERNEL_MAP_ALIGN = 128
};

// How a kernel is started.
typedef struct hd_kernel_grid {
    unsigned blocks, threads;
    unsigned shared;  // bytes of dynamic shared memory
    unsigned cluster; // blocks; 0: none
    bool early;       // it waits itself for what its stream has ahead of it
    int maps;         // of map[], behind the others at a multiple of 128 bytes
    hd_kernel_map map[HD_KERNEL_MAPS];
    int pointers; // of at[], addresses on the device
    int sizes;    // of size[], numbers that follow them
    int64_t size[HD_KERNEL_SIZES];
} hd_kernel_grid;

// Where its maps begin in its parameters, and how many bytes these are.
static inline size_t hd_kernel_maps_at(const hd_kernel_grid *grid)
{
    size_t bytes = (size_t)(grid->pointers + grid->sizes) * sizeof(uint64_t);

    return (bytes + HD_KERNEL_MAP_ALIGN - 1) / HD_KERNEL_MAP_ALIGN *
           HD_KERNEL_MAP_ALIGN;
}

static inline size_t hd_kernel_bytes(const hd_kernel_grid *grid)
{
    return grid->maps > 0
               ? hd_kernel_maps_at(grid) +
                     (size_t)grid->maps * HD_KERNEL_MAP_BYTES
               : (size_t)(grid->pointers + grid->sizes) * sizeof(uint64_t);
}

// Whether the kernel of a step reads counts.
static inline bool hd_kernel_tells(const hd_step *step)
{
    return hd_op_key(step->op, HD_KEY_GROUPS) != NULL ||
           hd_op_has_counts(step->op);
}

HD_END_DECLS

#endif
