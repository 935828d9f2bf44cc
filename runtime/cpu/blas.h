// OpenBLAS, opened at run time as base/library.h says. Where there is none,
// plain loops multiply, and the name says so.
#ifndef HD_RUNTIME_CPU_BLAS_H
#define HD_RUNTIME_CPU_BLAS_H

#include "base/library.h"

HD_BEGIN_DECLS

typedef struct hd_cpu_blas {
#define HD_BLAS(name, result, parameters) result(*name) parameters;
#include "runtime/cpu/blas.def"
#undef HD_BLAS
    hd_library library; // owned; not open: the built-in loops
    char name[256];     // "OpenBLAS 0.3.21 (libopenblas.so.0)"
} hd_cpu_blas;

// Of an hd_cpu_blas. What has been opened is named in it.
extern const hd_library_info hd_blas_library;

// Never fails: without a library, or where ulimit -v is below 16 GiB, it is the
// built-in loops, and the name says why. A product is made by the thread that
// asks for it: while one runs, OpenBLAS has one thread for the whole process,
// and afterwards as many as it had.
void hd_cpu_blas_open(hd_cpu_blas *out);
void hd_cpu_blas_close(hd_cpu_blas *blas);

// C = alpha A B in row-major order; a transposed operand is stored the
// other way round. Leading dimensions in elements. Extents fit in an int.
typedef struct hd_gemm {
    bool ta, tb;
    int m, n, k;
    int lda, ldb, ldc;
    double alpha;
} hd_gemm;

void hd_cpu_blas_sgemm(const hd_cpu_blas *blas, const hd_gemm *gemm,
                       const float *a, const float *b, float *c);
void hd_cpu_blas_dgemm(const hd_cpu_blas *blas, const hd_gemm *gemm,
                       const double *a, const double *b, double *c);

HD_END_DECLS

#endif
