// What stands for a value: a number modulo the prime 2^61 - 45. Sums, products
// and factors are those of the field, so whatever is equal by the laws of
// arithmetic is equal here, in any order. Other functions of a value are
// random ones, each fixed by its key. Modulo this prime no two powers of two
// that a double has are alike; modulo 2^61 - 1, say, 2^61 would be 1.
#ifndef HD_CHECK_FIELD_H
#define HD_CHECK_FIELD_H

#include <math.h>
#include <stdint.h>

#define HD_FIELD_REST 45
#define HD_FIELD_PRIME (((uint64_t)1 << 61) - HD_FIELD_REST)

__extension__ typedef unsigned __int128 hd_wide;

static inline uint64_t hd_field_add(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;

    return sum >= HD_FIELD_PRIME ? sum - HD_FIELD_PRIME : sum;
}

static inline uint64_t hd_field_subtract(uint64_t a, uint64_t b)
{
    return hd_field_add(a, b == 0 ? 0 : HD_FIELD_PRIME - b);
}

// Of any number. 2^61 is HD_FIELD_REST: once leaves less than 2^73, twice less
// than two primes.
static inline uint64_t hd_field_reduce(hd_wide x)
{
    const uint64_t low = ((uint64_t)1 << 61) - 1;

    x = (x & low) + (x >> 61) * HD_FIELD_REST;
    return hd_field_add(0, (uint64_t)((x & low) + (x >> 61) * HD_FIELD_REST));
}

// How many products of two fit in an hd_wide.
#define HD_FIELD_PRODUCTS 32

static inline uint64_t hd_field_multiply(uint64_t a, uint64_t b)
{
    return hd_field_reduce((hd_wide)a * b);
}

static inline uint64_t hd_field_scramble(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93;
    return x ^ x >> 32;
}

// The random function number `key` of `x`.
static inline uint64_t hd_field_mix(uint64_t key, uint64_t x)
{
    uint64_t once = hd_field_scramble(key * 0x9e3779b97f4a7c15 + x + 1);

    return hd_field_scramble(once + hd_field_scramble(x ^ ~key)) %
           HD_FIELD_PRIME;
}

static inline uint64_t hd_field_of_integer(int64_t x)
{
    uint64_t size = x < 0 ? (uint64_t)0 - (uint64_t)x : (uint64_t)x;
    uint64_t rest = size % HD_FIELD_PRIME;

    return x < 0 ? hd_field_subtract(0, rest) : rest;
}

static inline uint64_t hd_field_power(uint64_t x, unsigned n)
{
    uint64_t power = 1;

    for (; n > 0; n /= 2, x = hd_field_multiply(x, x))
        power = n % 2 != 0 ? hd_field_multiply(power, x) : power;
    return power;
}

// Doubles are whole numbers times powers of two, of which each has an inverse.
static inline uint64_t hd_field_of_double(double x)
{
    const uint64_t half = (HD_FIELD_PRIME + 1) / 2;
    int exponent;
    int64_t whole;

    if (!isfinite(x))
        return hd_field_mix(x > 0 ? 1 : 2, 0);
    whole = (int64_t)ldexp(frexp(x, &exponent), 53);
    exponent -= 53;
    return hd_field_multiply(
        hd_field_of_integer(whole),
        hd_field_power(exponent < 0 ? half : 2,
                       (unsigned)(exponent < 0 ? -exponent : exponent)));
}

#endif
