// The compute operations on the CPU, on views of any stride.
#ifndef HD_RUNTIME_CPU_KERNELS_H
#define HD_RUNTIME_CPU_KERNELS_H

#include "ir/walk.h"
#include "runtime/cpu/blas.h"
#include "runtime/miscount.h"

HD_BEGIN_DECLS

// What a thread that computes keeps: conversion buffers for matmuls. All zero
// but for `blas` is a fresh one.
typedef struct hd_cpu_scratch {
    const hd_cpu_blas *blas; // borrowed
    void *memory;            // owned
    size_t bytes;
    hd_miscount miscount; // until who computes has seen it
} hd_cpu_scratch;

// Makes room for what `step` needs, so that computing it allocates nothing.
hd_status hd_cpu_scratch_reserve(hd_cpu_scratch *scratch, const hd_step *step);
void hd_cpu_scratch_free(hd_cpu_scratch *scratch);

// Computes one verified step of unit COMPUTE. base[i] is the address of the
// root buffer of span[i]. Room was reserved.
void hd_cpu_compute(hd_cpu_scratch *scratch, const hd_step *step,
                    void *const *base);

HD_END_DECLS

#endif
