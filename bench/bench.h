// Small tools that the benchmarks share: a clock, the median of samples, and an
// end with words.
#ifndef HD_BENCH_BENCH_H
#define HD_BENCH_BENCH_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double bench_now(void) // seconds
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void bench_die(const char *why)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
    exit(1);
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// Sorts the samples; p = 0.5 is the median.
static inline double bench_percentile(double *samples, size_t n, double p)
{
    qsort(samples, n, sizeof *samples, bench_compare);
    return samples[(size_t)(p * (double)(n - 1) + 0.5)];
}

#endif
