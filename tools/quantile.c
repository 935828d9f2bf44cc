// See quantile.h.
#include "quantile.h"

#include <math.h>
#include <stdlib.h>

static int compare_doubles(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

void sort_doubles(double *value, size_t n)
{
    qsort(value, n, sizeof *value, compare_doubles);
}

double quantile(const double *sorted, size_t n, double share)
{
    return sorted[(size_t)lround(share * (double)(n - 1))];
}
