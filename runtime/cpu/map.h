// The arithmetic of element-wise operations and of reductions, on dense runs of
// doubles, or of 64-bit integers for integer dtypes; of floats what ranks add.
#ifndef HD_RUNTIME_CPU_MAP_H
#define HD_RUNTIME_CPU_MAP_H

#include "ir/op.h"

HD_BEGIN_DECLS

// x[i] becomes what the map makes of it, of y[i] and z[i], as far as it has
// such operands, and of the factor of `scale` and `fill`. A truth is 1 or 0.
// HD_MAP_NONE changes nothing.
void hd_cpu_map_doubles(hd_map map, double factor, const double *y,
                        const double *z, size_t n, double *x);
void hd_cpu_map_integers(hd_map map, double factor, const int64_t *y,
                         const int64_t *z, size_t n, int64_t *x);

// x[i] becomes what the fold makes of it and of y[i].
void hd_cpu_fold_floats(hd_fold fold, const float *y, size_t n, float *x);
void hd_cpu_fold_doubles(hd_fold fold, const double *y, size_t n, double *x);
void hd_cpu_fold_integers(hd_fold fold, const int64_t *y, size_t n, int64_t *x);

HD_END_DECLS

#endif
