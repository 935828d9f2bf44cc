// What attention is to cuDNN: a graph of operations on tensors, of which those
// that are virtual are nowhere. cuDNN knows it by its pattern: an operation
// more, or another order, and it has no kernel.
#ifndef HD_RUNTIME_CUDA_LIBRARIES_OPERATION_H
#define HD_RUNTIME_CUDA_LIBRARIES_OPERATION_H

#include "runtime/cuda/libraries/attends.h"

// Tensors that a pack has addresses for, by these numbers: that of an operand
// is one more than the operand's. Of the others, which are by value, the
// address is the host's.
enum {
    HD_CUDA_UID_SCALE = 20, // f32
    HD_CUDA_UID_ONE,        // f32: 1
    HD_CUDA_UID_NOTHING,    // f32: -infinity
    HD_CUDA_UID_KEYS,       // i32
    HD_CUDA_UID_ROWS,       // i32
    HD_CUDA_UID_VIRTUAL = 100,
};
static inline int64_t hd_cuda_uid(int part)
{
    return part + 1;
}

// The graph as it is built: what fails first is remembered, and nothing
// follows.
typedef struct hd_cuda_operation {
    const hd_dnn_api *dnn; // borrowed
    hd_dnn_desc desc[160]; // owned
    int ndescs;
    hd_dnn_desc op[32]; // of these, in order
    int nops;
    int64_t uid;      // of the last virtual tensor
    int status;       // of the first call that failed, and which that was:
    const char *call; // as the table has it
} hd_cuda_operation;

// The graph of the shape and kind, which lasts as long as the operation; NULL
// if a call failed.
hd_dnn_desc hd_cuda_operation_attend(hd_cuda_operation *o,
                                     const hd_cuda_attention *shape);
void hd_cuda_operation_free(hd_cuda_operation *o);

// The parts of it that others make of their own: a descriptor, one of its
// attributes, and its end.
hd_dnn_desc hd_cuda_operation_make(hd_cuda_operation *o, int kind);
void hd_cuda_operation_set(hd_cuda_operation *o, hd_dnn_desc desc,
                           int attribute, int type, int64_t n,
                           const void *value);
void hd_cuda_operation_finish(hd_cuda_operation *o, hd_dnn_desc desc);

#endif
