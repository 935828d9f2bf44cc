// The functions that kernels' texts may call: conversions of numbers and
// activations. A text gets those that it names, and what these call, each of
// which stands above them, behind an empty line, and has none in it.
//
// Conversions are those of base/dtype.c, written for one element; a test
// compares them code by code. They are plain C on bits, so that the text needs
// no header and any compiler takes it.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#endif

// Products and sums that are rounded for themselves: a compiler for GPUs makes
// one fma of a product and a sum of the operators.
static inline float product_float(float x, float y)
{
#if defined(__CUDA_ARCH__)
    return __fmul_rn(x, y);
#else
    return x * y;
#endif
}

static inline double product_double(double x, double y)
{
#if defined(__CUDA_ARCH__)
    return __dmul_rn(x, y);
#else
    return x * y;
#endif
}

static inline float total_float(float x, float y)
{
#if defined(__CUDA_ARCH__)
    return __fadd_rn(x, y);
#else
    return x + y;
#endif
}

static inline double total_double(double x, double y)
{
#if defined(__CUDA_ARCH__)
    return __dadd_rn(x, y);
#else
    return x + y;
#endif
}

static inline u32 bits_of_float(float x)
{
    union {
        float x;
        u32 bits;
    } u;
    u.x = x;
    return u.bits;
}

static inline float float_of_bits(u32 bits)
{
    union {
        u32 bits;
        float x;
    } u;
    u.bits = bits;
    return u.x;
}

static inline u64 bits_of_double(double x)
{
    union {
        double x;
        u64 bits;
    } u;
    u.x = x;
    return u.bits;
}

static inline double double_of_bits(u64 bits)
{
    union {
        u64 bits;
        double x;
    } u;
    u.bits = bits;
    return u.x;
}

static inline float widen(u32 code, int fraction, int bias, u32 sign, u32 nan,
                          u32 infinity)
{
    u32 magnitude = code & (sign - 1);
    u32 minus = (code & sign) * (0x80000000u / sign);
    float scale = float_of_bits((u32)(254 - bias) << 23);
    float small = float_of_bits(magnitude << (23 - fraction));
    u32 finite = bits_of_float(small * scale);
    u32 special = 0x7f800000u | (magnitude - infinity) << (23 - fraction);
    if (infinity == nan)
        special = 0x7fc00000u;
    return float_of_bits(minus | (magnitude >= infinity ? special : finite));
}

static inline u32 narrow_float(float x, int fraction, int bias, u32 sign,
                               u32 largest, u32 nan)
{
    int cut = 23 - fraction;
    u32 bits = bits_of_float(x), magnitude = bits & 0x7fffffffu;
    u32 minus = (bits >> 31) * sign;
    u32 smallest = (u32)(128 - bias) << 23;
    u32 magic = smallest + ((u32)cut << 23);
    u32 odd = magnitude >> cut & 1;
    u32 normal = ((magnitude + (1u << (cut - 1)) - 1 + odd) >> cut) -
                 ((u32)(127 - bias) << fraction);
    u32 subnormal =
        bits_of_float(float_of_bits(magnitude) + float_of_bits(magic)) - magic;
    u32 code = magnitude < smallest ? subnormal : normal;
    code = code > largest ? largest : code;
    code = magnitude > 0x7f800000u ? nan : code;
    return minus | code;
}

static inline u32 narrow_double(double x, int fraction, int bias, u32 sign,
                                u32 largest, u32 nan)
{
    int cut = 52 - fraction;
    u64 bits = bits_of_double(x);
    u64 magnitude = bits & 0x7fffffffffffffffull;
    u32 minus = (u32)(bits >> 63) * sign;
    u64 smallest = (u64)(1024 - bias) << 52;
    u64 magic = smallest + ((u64)cut << 52);
    u64 odd = magnitude >> cut & 1;
    u64 normal = ((magnitude + (1ull << (cut - 1)) - 1 + odd) >> cut) -
                 ((u64)(1023 - bias) << fraction);
    u64 subnormal =
        bits_of_double(double_of_bits(magnitude) + double_of_bits(magic)) -
        magic;
    u64 code = magnitude < smallest ? subnormal : normal;
    code = code > largest ? largest : code;
    code = magnitude > 0x7ff0000000000000ull ? nan : code;
    return minus | (u32)code;
}

static inline float load_f16(u16 code)
{
    return widen(code, 10, 15, 0x8000, 0x7e00, 0x7c00);
}

// The upper half of a float.
static inline float load_bf16(u16 code)
{
    return float_of_bits((u32)code << 16);
}

static inline float load_f8e4m3(u8 code)
{
    return widen(code, 3, 7, 0x80, 0x7f, 0x7f);
}

static inline float load_f8e5m2(u8 code)
{
    return widen(code, 2, 15, 0x80, 0x7e, 0x7c);
}

static inline u16 store_f16_float(float x)
{
    return (u16)narrow_float(x, 10, 15, 0x8000, 0x7c00, 0x7e00);
}

// Exponents are the same, so that subnormals round like other numbers.
static inline u16 store_bf16_float(float x)
{
    u32 bits = bits_of_float(x);
    u32 code = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (u16)(x != x ? (bits >> 16 & 0x8000u) | 0x7fc0u : code);
}

static inline u8 store_f8e4m3_float(float x)
{
    return (u8)narrow_float(x, 3, 7, 0x80, 0x7e, 0x7f);
}

static inline u8 store_f8e5m2_float(float x)
{
    return (u8)narrow_float(x, 2, 15, 0x80, 0x7c, 0x7e);
}

static inline u16 store_f16_double(double x)
{
    return (u16)narrow_double(x, 10, 15, 0x8000, 0x7c00, 0x7e00);
}

static inline u16 store_bf16_double(double x)
{
    return (u16)narrow_double(x, 7, 127, 0x8000, 0x7f80, 0x7fc0);
}

static inline u8 store_f8e4m3_double(double x)
{
    return (u8)narrow_double(x, 3, 7, 0x80, 0x7e, 0x7f);
}

static inline u8 store_f8e5m2_double(double x)
{
    return (u8)narrow_double(x, 2, 15, 0x80, 0x7c, 0x7e);
}

// 2^63 is a double, 2^63 - 1 is not: casts are right below the one.
static inline i64 i64_of_double(double x)
{
    if (x != x)
        return 0;
    if (x >= 9223372036854775808.0)
        return 0x7fffffffffffffffll;
    if (x < -9223372036854775808.0)
        return -0x7fffffffffffffffll - 1;
    return (i64)rint(x);
}

static inline i64 clamp_double(double x, double least, double most)
{
    if (x != x)
        return 0;
    x = x < least ? least : x;
    return (i64)rint(x > most ? most : x);
}

static inline float gelu_float(float x)
{
    float cube = 0.044715f * x * x * x;
    return product_float(0.5f * x, 1.0f + tanhf(0.797884561f * (x + cube)));
}

static inline double gelu_double(double x)
{
    double cube = 0.044715 * x * x * x;
    return product_double(0.5 * x,
                          1.0 + tanh(0.79788456080286535588 * (x + cube)));
}

// Where tanh is flat, x may be too large to be squared.
static inline float gelu_slope_float(float x)
{
    float t = tanhf(0.797884561f * (x + 0.044715f * x * x * x));
    float rest = 1.0f - t * t;
    float bend = 0.5f * x * rest * 0.797884561f * (1.0f + 0.134145f * x * x);
    return 0.5f * (1.0f + t) + (rest == 0 ? 0 : bend);
}

static inline double gelu_slope_double(double x)
{
    double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    double rest = 1.0 - t * t;
    double bend =
        0.5 * x * rest * 0.79788456080286535588 * (1.0 + 0.134145 * x * x);
    return 0.5 * (1.0 + t) + (rest == 0 ? 0 : bend);
}

static inline float gelu_erf_float(float x)
{
    return product_float(0.5f * x, 1.0f + erff(0.707106781f * x));
}

static inline double gelu_erf_double(double x)
{
    return product_double(0.5 * x, 1.0 + erf(0.70710678118654752440 * x));
}

// Where the density is zero, x may be infinite.
static inline float gelu_erf_slope_float(float x)
{
    float density = 0.398942280f * expf(-0.5f * x * x);
    float share = 0.5f * (1.0f + erff(0.707106781f * x));
    return share + (density == 0 ? 0 : x * density);
}

static inline double gelu_erf_slope_double(double x)
{
    double density = 0.39894228040143267794 * exp(-0.5 * x * x);
    double share = 0.5 * (1.0 + erf(0.70710678118654752440 * x));
    return share + (density == 0 ? 0 : x * density);
}

static inline float silu_slope_float(float x)
{
    float s = 1.0f / (1.0f + expf(-x));
    return s * (1.0f + x * (1.0f - s));
}

static inline double silu_slope_double(double x)
{
    double s = 1.0 / (1.0 + exp(-x));
    return s * (1.0 + x * (1.0 - s));
}

// Toward zero; by zero it is 0, and the smallest by -1 wraps.
static inline i64 quotient(i64 x, i64 y)
{
    if (y == 0)
        return 0;
    return y == -1 ? (i64)(0 - (u64)x) : x / y;
}

static inline float silu_float(float x)
{
    return x / (1.0f + expf(-x));
}

static inline double silu_double(double x)
{
    return x / (1.0 + exp(-x));
}
