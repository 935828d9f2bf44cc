// Times in order, and which of them stands where.
#ifndef HD_TOOLS_QUANTILE_H
#define HD_TOOLS_QUANTILE_H

#include <stddef.h>

void sort_doubles(double *value, size_t n);
// The nearest of `n` sorted values; of at least one.
double quantile(const double *sorted, size_t n, double share);

#endif
