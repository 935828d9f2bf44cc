// The arithmetic of element-wise operations and of reductions, on dense runs of
// doubles, or of 64-bit integers for integer dtypes.
#ifndef HD_RUNTIME_CPU_MAP_H
#define HD_RUNTIME_CPU_MAP_H

#include "ir/op.h"

HD_BEGIN_DECLS

// x[i] becomes what the map makes of it and of y[i], which is not read if it
// has one operand. Not for `scale`; HD_MAP_NONE changes nothing.
void hd_cpu_map_doubles(hd_map map, const double *y, size_t n, double *x);
void hd_cpu_map_integers(hd_map map, const int64_t *y, size_t n, int64_t *x);

// x[i] becomes what the fold makes of it and of y[i].
void hd_cpu_fold_doubles(hd_fold fold, const double *y, size_t n, double *x);
void hd_cpu_fold_integers(hd_fold fold, const int64_t *y, size_t n, int64_t *x);

HD_END_DECLS

#endif
