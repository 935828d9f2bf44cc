// Device memory that the sessions of a home work in by turns, since their runs
// follow one another: as much as the one that is alive and needs most of it.
//
// An address that a session knows stays valid as long as it is alive, so a
// region does not grow. It is a list of chunks: a session has the least that is
// large enough, one more is made where none is, and those that nobody has go,
// but for the largest.
#ifndef HD_RUNTIME_CUDA_REGION_H
#define HD_RUNTIME_CUDA_REGION_H

#include "runtime/cuda/api.h"
#include "runtime/driver.h"

typedef struct hd_cuda_home hd_cuda_home;

typedef struct hd_cuda_chunk {
    struct hd_cuda_chunk *next;
    hd_cu_ptr at; // owned
    size_t bytes;
    int users; // sessions
} hd_cuda_chunk;

typedef struct hd_cuda_region {
    hd_cuda_chunk *first; // owned; guarded by the home's `making`
} hd_cuda_region;

// A chunk of as many bytes, NULL for none. Of one that is new the first
// `filled` bytes have every bit set, which is a NaN in each floating dtype: who
// reads what nobody wrote will see it in the answer. HD_ERROR_NO_MEMORY, in
// words that have the program's name, if the device has less than `bytes` and
// `more` left.
hd_status hd_cuda_region_take(hd_device *device, hd_cuda_region *region,
                              size_t bytes, size_t filled, size_t more,
                              hd_diag *diag, hd_cuda_chunk **out);
// Takes NULL too.
void hd_cuda_region_give(hd_device *device, hd_cuda_region *region,
                         hd_cuda_chunk *chunk);
// Frees what nobody has. The context is entered.
void hd_cuda_region_trim(hd_cuda_home *home, hd_cuda_region *region);

#endif
