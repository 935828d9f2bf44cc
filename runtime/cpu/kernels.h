// The compute operations on the CPU, on views of any stride.
#ifndef HD_RUNTIME_CPU_KERNELS_H
#define HD_RUNTIME_CPU_KERNELS_H

#include "ir/walk.h"
#include "runtime/cpu/blas.h"
#include "runtime/miscount.h"

HD_BEGIN_DECLS

// What a thread that computes has: conversion buffers for matmuls.
typedef struct hd_cpu_scratch {
    const hd_cpu_blas *blas; // borrowed
    void *memory;            // borrowed, 64-byte aligned
    size_t bytes;
    hd_miscount miscount; // until who computes has seen it
} hd_cpu_scratch;

// Raises `bytes` to what `step` needs, so that computing it allocates nothing.
// HD_ERROR_UNSUPPORTED if it is too large for a library.
hd_status hd_cpu_scratch_need(const hd_step *step, size_t *bytes);

// Computes one verified step of unit COMPUTE. base[i] is the address of the
// root buffer of span[i]. Room was reserved.
void hd_cpu_compute(hd_cpu_scratch *scratch, const hd_step *step,
                    void *const *base);

HD_END_DECLS

#endif
