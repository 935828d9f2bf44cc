// Each element is a hash of the seed and of its index.
#include <heddle/verify.h>

#include "random.h"

uint64_t random_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    return x ^ x >> 31;
}

#define STEP 0x9e3779b97f4a7c15

static uint64_t stream_of(uint64_t seed)
{
    return random_mix(seed + STEP);
}

static uint64_t bits_of(uint64_t stream, uint64_t i)
{
    return random_mix(stream + i * STEP);
}

static int64_t at_most_i32(int64_t n)
{
    return n < INT32_MAX ? n : INT32_MAX;
}

// The sum of four even distributions is close to a normal one, and has no tail
// that could overflow a narrow dtype: |x| < 3.47.
static double bell(uint64_t bits)
{
    double sum = 0;

    for (int i = 0; i < 4; i++)
        sum += (double)(bits >> 16 * i & 0xffff);
    return (sum / 65535 - 2) * 1.7320508075688772;
}

void random_fill(hd_dtype dtype, uint64_t seed, size_t n, void *to)
{
    enum { BATCH = 1024 };
    double values[BATCH];
    uint64_t stream = stream_of(seed);
    bool whole = dtype == HD_DTYPE_I64 || dtype == HD_DTYPE_I32 ||
                 dtype == HD_DTYPE_U8 || dtype == HD_DTYPE_I8;
    double low = dtype == HD_DTYPE_U8 ? 0 : -8;

    for (size_t i = 0; i < n; i += BATCH) {
        size_t count = n - i < BATCH ? n - i : BATCH;

        for (size_t j = 0; j < count; j++) {
            uint64_t bits = bits_of(stream, i + j);

            values[j] = whole ? (double)(bits >> 60) + low : bell(bits);
        }
        hd_dtype_store(dtype, values, count,
                       (char *)to + i * hd_dtype_size(dtype));
    }
}

// Shares of 0 to 15 of what is shared out, half of them of nothing.
static void share_out(uint64_t stream, size_t groups, int64_t rows, int32_t *to)
{
    uint64_t bits = random_mix(stream);
    int64_t all = bits % 3 == 0 ? (int64_t)(bits >> 32) * rows >> 32 : rows;
    size_t last = bits >> 8 & 0xffffff;
    int64_t total = 0, left = all;

    for (size_t g = 0; g < groups; g++) {
        bits = bits_of(stream, g + 1);
        to[g] = (bits & 1) == 0 ? 0 : (int32_t)(bits >> 60);
        total += to[g];
    }
    for (size_t g = 0; g < groups; g++) {
        to[g] = total > 0 ? (int32_t)(to[g] * all / total) : 0;
        left -= to[g];
    }
    to[last % groups] += (int32_t)left;
}

void random_counts(uint64_t seed, size_t n, size_t groups, int64_t rows,
                   int32_t *to)
{
    uint64_t stream = stream_of(seed);

    rows = at_most_i32(rows);
    for (size_t i = 0; i < n; i += groups)
        share_out(random_mix(stream + i), groups, rows, to + i);
}

void random_indices(uint64_t seed, size_t n, int64_t extent, int32_t *to)
{
    uint64_t stream = stream_of(seed);

    extent = at_most_i32(extent);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = bits_of(stream, i);

        to[i] = bits >> 60 == 0   ? -1
                : bits >> 60 == 1 ? (int32_t)extent
                : extent == 0     ? 0
                                  : (int32_t)(bits % (uint64_t)extent);
    }
}

void random_lengths(uint64_t seed, size_t n, int64_t most, int32_t *to)
{
    uint64_t stream = stream_of(seed);

    most = at_most_i32(most);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = bits_of(stream, i);
        uint64_t some = (bits >> 8) % (uint64_t)(most + 1);

        to[i] = (int32_t)((bits & 7) == 0   ? 0
                          : (bits & 7) == 1 ? (uint64_t)most
                                            : some);
    }
}

void random_input(const hd_argument *argument, uint64_t seed, void *to)
{
    int last = argument->ndims - 1;

    if (argument->counted >= 0)
        random_lengths(seed, argument->elements, argument->counted, to);
    else if (argument->grouped_rows >= 0)
        random_counts(seed, argument->elements, (size_t)argument->extent[last],
                      argument->grouped_rows, to);
    else if (argument->taken_extent >= 0)
        random_indices(seed, argument->elements, argument->taken_extent, to);
    else
        random_fill(argument->dtype, seed, argument->elements, to);
}

void random_order(uint64_t seed, int n, int *order)
{
    uint64_t stream = stream_of(seed);

    for (int i = 0; i < n; i++) {
        uint64_t bits = bits_of(stream, (uint64_t)i);
        uint64_t at = bits % (uint64_t)(i + 1);

        order[i] = i;
        order[i] = order[at];
        order[at] = i;
    }
}
