// An attention of cuDNN's as a command has it: its shape, and where its
// operands are.
#ifndef HD_RUNTIME_CUDA_COMMANDS_ATTENTION_H
#define HD_RUNTIME_CUDA_COMMANDS_ATTENTION_H

#include "runtime/cuda/device/device.h"

// Which keys row i sees of n rows and m keys.
typedef enum hd_cuda_mask {
    HD_CUDA_MASK_NONE,
    HD_CUDA_MASK_TOP,    // up to i
    HD_CUDA_MASK_BOTTOM, // up to i + m - n
} hd_cuda_mask;

// What is made: results, or gradients, and these the same in each run or not.
typedef enum hd_cuda_attend_kind {
    HD_CUDA_ATTEND_RESULTS,
    HD_CUDA_ATTEND_GRADIENTS,
    HD_CUDA_ATTEND_GRADIENTS_ALIKE,
} hd_cuda_attend_kind;

// Operands. Gradients have all of them, results the first ones.
enum {
    HD_CUDA_O,
    HD_CUDA_LSE,
    HD_CUDA_Q,
    HD_CUDA_K,
    HD_CUDA_V,
    HD_CUDA_DO,
    HD_CUDA_DQ,
    HD_CUDA_DK,
    HD_CUDA_DV,
    HD_CUDA_DELTA, // f32, scratch: of each row do o
    HD_CUDA_SUM,   // f32, scratch: what dq is added up in
    HD_CUDA_PARTS,
};
static inline bool hd_cuda_is_of_keys(int part)
{
    return part == HD_CUDA_K || part == HD_CUDA_V || part == HD_CUDA_DK ||
           part == HD_CUDA_DV;
}
// In f32, whatever the others are in.
static inline bool hd_cuda_is_wide(int part)
{
    return part == HD_CUDA_LSE || part == HD_CUDA_DELTA || part == HD_CUDA_SUM;
}
enum { HD_CUDA_ATTEND_DIMS = 3 }; // batch, head, row; a row's elements follow

// A shape of attention. `shared` heads of keys and values are of as many groups
// of the heads.
typedef struct hd_cuda_attention {
    int64_t batch, heads, shared, rows, keys, depth, wide;
    int64_t stride[HD_CUDA_PARTS][HD_CUDA_ATTEND_DIMS];
    int32_t type; // cudnnDataType_t of all but lse
    int32_t mask; // hd_cuda_mask
    int32_t kind; // hd_cuda_attend_kind
    int32_t unused;
} hd_cuda_attention;
_Static_assert(sizeof(hd_cuda_attention) ==
                   (7 + HD_CUDA_PARTS * HD_CUDA_ATTEND_DIMS) * sizeof(int64_t) +
                       4 * sizeof(int32_t),
               "compared as bytes: there are none between its members");

// Whether the operand is one of what is made.
static inline bool hd_cuda_has_part(const hd_cuda_attention *shape, int part)
{
    switch (shape->kind) {
    case HD_CUDA_ATTEND_RESULTS:
        return part <= HD_CUDA_V;
    case HD_CUDA_ATTEND_GRADIENTS:
        return true;
    default:
        return part != HD_CUDA_SUM;
    }
}

// One attention of a plan's commands. What cuDNN reads from the host stands
// here, and is read when it is issued.
typedef struct hd_cuda_attend {
    hd_cuda_attention shape;
    int known; // of the session's shapes that cuDNN has a plan for
    hd_cuda_at at[HD_CUDA_PARTS], workspace;
    float scale, nothing, one;
    int32_t rows, keys;
    hd_dnn_desc pack; // owned; NULL before it is issued first
    void *address[HD_CUDA_PARTS];
} hd_cuda_attend;

#endif
