// An argument that is not dense, as rows that are contiguous both where the
// caller has it and in memory where it lies as arguments do. Only what this
// rank has at the sizes of a run is touched, and nothing in between.
#ifndef HD_RUNTIME_PACKING_H
#define HD_RUNTIME_PACKING_H

#include "ir/module.h"

HD_BEGIN_DECLS

typedef struct hd_packing {
    size_t bytes; // of a row; 0: there is nothing
    // From row to row, in bytes, the dimension of nearest rows in dense memory
    // first. One that continues another is part of it.
    int ndims;
    size_t count[HD_MAX_DIMS];
    size_t theirs[HD_MAX_DIMS], dense[HD_MAX_DIMS];
} hd_packing;

// `stride` is the caller's, in elements, which fits its address space.
hd_packing hd_packing_of(const hd_module *module, const hd_buffer *buffer,
                         int rank, const int64_t *stride);
void hd_packing_in(const hd_packing *rows, const void *theirs, void *dense);
void hd_packing_out(const hd_packing *rows, const void *dense, void *theirs);

HD_END_DECLS

#endif
