// Each element is a hash of the seed and of its index.
#include "random.h"

uint64_t random_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    return x ^ x >> 31;
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
    uint64_t stream = random_mix(seed + 0x9e3779b97f4a7c15);
    bool whole = dtype == HD_I64 || dtype == HD_I32 || dtype == HD_U8;
    double low = dtype == HD_U8 ? 0 : -8;

    for (size_t i = 0; i < n; i += BATCH) {
        size_t count = n - i < BATCH ? n - i : BATCH;

        for (size_t j = 0; j < count; j++) {
            uint64_t bits = random_mix(stream + (i + j) * 0x9e3779b97f4a7c15);

            values[j] = whole ? (double)(bits >> 60) + low : bell(bits);
        }
        hd_dtype_store(dtype, values, count,
                       (char *)to + i * hd_dtype_size(dtype));
    }
}

void random_order(uint64_t seed, int n, int *order)
{
    uint64_t stream = random_mix(seed + 0x9e3779b97f4a7c15);

    for (int i = 0; i < n; i++) {
        uint64_t bits = random_mix(stream + (uint64_t)i * 0x9e3779b97f4a7c15);
        uint64_t at = bits % (uint64_t)(i + 1);

        order[i] = i;
        order[i] = order[at];
        order[at] = i;
    }
}
