// A line an operation. Integers wrap, which unsigned arithmetic does; signed
// would be undefined.
#include "runtime/cpu_map.h"

#include <assert.h>
#include <math.h>

static double gelu(double x)
{
    static const double root = 0.79788456080286535588; // sqrt(2 / pi)

    return 0.5 * x * (1 + tanh(root * (x + 0.044715 * x * x * x)));
}

static int64_t add(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x + (uint64_t)y);
}

static int64_t multiply(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x * (uint64_t)y);
}

#define EACH(formula)              \
    for (size_t i = 0; i < n; i++) \
        x[i] = (formula);          \
    return

void hd_cpu_map_doubles(hd_map map, const double *y, size_t n, double *x)
{
    switch (map) {
    case HD_MAP_NONE:
    case HD_MAP_SCALE:
        return;
    case HD_MAP_ADD:
        EACH(x[i] + y[i]);
    case HD_MAP_MUL:
        EACH(x[i] * y[i]);
    case HD_MAP_RELU: // keeps a NaN
        EACH(x[i] < 0 ? 0 : x[i]);
    case HD_MAP_GELU:
        EACH(gelu(x[i]));
    case HD_MAP_SILU:
        EACH(x[i] / (1 + exp(-x[i])));
    }
}

void hd_cpu_map_integers(hd_map map, const int64_t *y, size_t n, int64_t *x)
{
    switch (map) {
    case HD_MAP_NONE:
    case HD_MAP_SCALE:
        return;
    case HD_MAP_ADD:
        EACH(add(x[i], y[i]));
    case HD_MAP_MUL:
        EACH(multiply(x[i], y[i]));
    case HD_MAP_RELU:
    case HD_MAP_GELU:
    case HD_MAP_SILU:
        break;
    }
    assert(!"the verifier has refused integers");
}

void hd_cpu_fold_doubles(hd_fold fold, const double *y, size_t n, double *x)
{
    switch (fold) {
    case HD_FOLD_SUM:
        EACH(x[i] + y[i]);
    case HD_FOLD_MAX: // a NaN on either side is it, so that none is lost
        EACH(x[i] > y[i] || isnan(x[i]) ? x[i] : y[i]);
    case HD_FOLD_NONE:
        break;
    }
    assert(!"it joins nothing");
}

void hd_cpu_fold_integers(hd_fold fold, const int64_t *y, size_t n, int64_t *x)
{
    switch (fold) {
    case HD_FOLD_SUM:
        EACH(add(x[i], y[i]));
    case HD_FOLD_MAX:
        EACH(x[i] > y[i] ? x[i] : y[i]);
    case HD_FOLD_NONE:
        break;
    }
    assert(!"it joins nothing");
}
