// Element types. Narrow floating point formats are converted by one pair of
// functions, which take the format as a constant and have no branches in the
// end: the compiler turns each into a loop of vector selects.
#include <heddle/verify.h>

#include "base/dtype.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct row {
    const char *text;
    size_t size;
    int fraction;     // bits of it; -1 for what is not floating point
    int min_exponent; // of a normal number
    int max_exponent; // the largest power of two
} row;

static const row rows[] = {
    [HD_DTYPE_F64] = {"f64", 8, 52, -1022, 1023},
    [HD_DTYPE_F32] = {"f32", 4, 23, -126, 127},
    [HD_DTYPE_F16] = {"f16", 2, 10, -14, 15},
    [HD_DTYPE_BF16] = {"bf16", 2, 7, -126, 127},
    [HD_DTYPE_F8E4M3] = {"f8e4m3", 1, 3, -6, 8},
    [HD_DTYPE_F8E5M2] = {"f8e5m2", 1, 2, -14, 15},
    [HD_DTYPE_I64] = {"i64", 8, -1, 0, 62},
    [HD_DTYPE_I32] = {"i32", 4, -1, 0, 30},
    [HD_DTYPE_U8] = {"u8", 1, -1, 0, 7},
    [HD_DTYPE_I8] = {"i8", 1, -1, 0, 6},
    [HD_DTYPE_EVENT] = {"event", 0, -1, 0, -1},
};

enum { NDTYPES = sizeof rows / sizeof *rows };

size_t hd_dtype_size(hd_dtype dtype)
{
    return (unsigned)dtype < NDTYPES ? rows[dtype].size : 0;
}

const char *hd_dtype_text(hd_dtype dtype)
{
    return (unsigned)dtype < NDTYPES ? rows[dtype].text : "unknown dtype";
}

bool hd_dtype_find(const char *name, size_t length, hd_dtype *out)
{
    for (int i = 0; i < NDTYPES; i++)
        if (strlen(rows[i].text) == length &&
            memcmp(rows[i].text, name, length) == 0) {
            *out = (hd_dtype)i;
            return true;
        }
    return false;
}

bool hd_dtype_is_float(hd_dtype dtype)
{
    return rows[dtype].fraction >= 0;
}

bool hd_dtype_is_f8(hd_dtype dtype)
{
    return hd_dtype_is_float(dtype) && hd_dtype_size(dtype) == 1;
}

bool hd_dtype_is_integer(hd_dtype dtype)
{
    return dtype == HD_DTYPE_I64 || dtype == HD_DTYPE_I32 ||
           dtype == HD_DTYPE_U8 || dtype == HD_DTYPE_I8;
}

static int significant_bits(hd_dtype dtype)
{
    return 1 + (hd_dtype_is_float(dtype) ? rows[dtype].fraction
                                         : rows[dtype].max_exponent);
}

bool hd_dtype_holds(hd_dtype dtype, hd_dtype other)
{
    if (dtype == other)
        return true;
    if (dtype == HD_DTYPE_U8) // which has no number below 0
        return false;
    return significant_bits(other) <= significant_bits(dtype) &&
           rows[other].max_exponent <= rows[dtype].max_exponent &&
           (hd_dtype_is_integer(other) || hd_dtype_is_float(dtype));
}

double hd_dtype_unit(hd_dtype dtype)
{
    if (!hd_dtype_is_float(dtype))
        return 0;
    return ldexp(1, -rows[dtype].fraction - 1);
}

double hd_dtype_tiny(hd_dtype dtype)
{
    if (!hd_dtype_is_float(dtype))
        return 0;
    return ldexp(1, rows[dtype].min_exponent - rows[dtype].fraction);
}

double hd_dtype_round(hd_dtype dtype, double number)
{
    unsigned char code[8];
    double stored;

    hd_dtype_store(dtype, &number, 1, code);
    hd_dtype_load(dtype, code, 1, &stored);
    return stored;
}

// A format of at most 16 bits. Codes are compared without their sign.
typedef struct format {
    int fraction;      // bits of it
    int bias;          // of the exponent
    uint32_t sign;     // its bit
    uint32_t largest;  // infinity, or where there is none the largest number
    uint32_t nan;      // what a NaN is stored as
    uint32_t infinity; // codes from here on are infinity and NaN
} format;

static const format f16 = {10, 15, 0x8000, 0x7c00, 0x7e00, 0x7c00};
static const format bf16 = {7, 127, 0x8000, 0x7f80, 0x7fc0, 0x7f80};
static const format e5m2 = {2, 15, 0x80, 0x7c, 0x7e, 0x7c};
static const format e4m3 = {3, 7, 0x80, 0x7e, 0x7f, 0x7f};

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float bits_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint64_t double_bits(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE double bits_double(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

// The fraction goes to its place in a float and the exponent is put right by a
// multiplication, which is exact for subnormals too.
INLINE float widen(format f, uint32_t code)
{
    uint32_t magnitude = code & (f.sign - 1);
    uint32_t sign = (code & f.sign) * (0x80000000u / f.sign);
    uint32_t bits = magnitude << (23 - f.fraction);
    float scale = bits_float((uint32_t)(254 - f.bias) << 23);
    uint32_t finite = float_bits(bits_float(bits) * scale);
    // Infinity has no fraction; what has one is a NaN.
    uint32_t fraction = (magnitude - f.infinity) << (23 - f.fraction);
    uint32_t special = 0x7f800000u | fraction;

    if (f.infinity == f.nan) // no infinity: the one code left is a NaN
        special = 0x7fc00000u;
    return bits_float(sign | (magnitude >= f.infinity ? special : finite));
}

// To nearest even. For a normal number, half a unit less one, and one more if
// the unit is odd, is added to the bits before those that do not fit are cut
// off; a carry into the exponent is right. For a subnormal one, adding a power
// of two whose last bit is the format's smallest number makes the machine round
// there. Both are computed and one is chosen.
INLINE uint32_t narrow_float(format f, float x)
{
    int cut = 23 - f.fraction;
    uint32_t bits = float_bits(x);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t sign = (bits >> 31) * f.sign;
    uint32_t smallest = (uint32_t)(128 - f.bias) << 23; // normal number
    float magic = bits_float(smallest + ((uint32_t)cut << 23));
    uint32_t odd = magnitude >> cut & 1;
    uint32_t normal = ((magnitude + (1u << (cut - 1)) - 1 + odd) >> cut) -
                      ((uint32_t)(127 - f.bias) << f.fraction);
    uint32_t subnormal =
        float_bits(bits_float(magnitude) + magic) - float_bits(magic);
    uint32_t code = magnitude < smallest ? subnormal : normal;

    code = code > f.largest ? f.largest : code;
    code = magnitude > 0x7f800000u ? f.nan : code;
    return sign | code;
}

// The same from a double, at once: rounding to float first would round twice.
INLINE uint32_t narrow_double(format f, double x)
{
    int cut = 52 - f.fraction;
    uint64_t bits = double_bits(x);
    uint64_t magnitude = bits & 0x7fffffffffffffffu;
    uint32_t sign = (uint32_t)(bits >> 63) * f.sign;
    uint64_t smallest = (uint64_t)(1024 - f.bias) << 52; // normal number
    double magic = bits_double(smallest + ((uint64_t)cut << 52));
    uint64_t odd = magnitude >> cut & 1;
    uint64_t normal =
        ((magnitude + ((uint64_t)1 << (cut - 1)) - 1 + odd) >> cut) -
        ((uint64_t)(1023 - f.bias) << f.fraction);
    uint64_t subnormal =
        double_bits(bits_double(magnitude) + magic) - double_bits(magic);
    uint64_t code = magnitude < smallest ? subnormal : normal;

    code = code > f.largest ? f.largest : code;
    code = magnitude > 0x7ff0000000000000u ? f.nan : code;
    return sign | (uint32_t)code;
}

// 2^63 is a double, 2^63 - 1 is not: casts are right below the one.
static int64_t to_i64(double x)
{
    double limit = 0x1p63;

    if (isnan(x))
        return 0;
    if (x >= limit)
        return INT64_MAX;
    return x < -limit ? INT64_MIN : (int64_t)rint(x);
}

// For ranges whose ends are doubles.
static int64_t to_integer(double x, double least, double most)
{
    if (isnan(x))
        return 0;
    x = x < least ? least : x;
    return (int64_t)rint(x > most ? most : x);
}

// Tensors may be mapped from files, where nothing is aligned; the compiler
// turns these copies into plain loads and stores.
INLINE uint32_t load2(const void *from, size_t i)
{
    uint16_t code;

    memcpy(&code, (const char *)from + 2 * i, sizeof code);
    return code;
}

INLINE void store2(void *to, size_t i, uint32_t code)
{
    uint16_t narrow = (uint16_t)code;

    memcpy((char *)to + 2 * i, &narrow, sizeof narrow);
}

INLINE uint32_t load1(const void *from, size_t i)
{
    return ((const uint8_t *)from)[i];
}

INLINE void store1(void *to, size_t i, uint32_t code)
{
    ((uint8_t *)to)[i] = (uint8_t)code;
}

INLINE float load_f32(const void *from, size_t i)
{
    float x;

    memcpy(&x, (const char *)from + 4 * i, sizeof x);
    return x;
}

INLINE double load_f64(const void *from, size_t i)
{
    double x;

    memcpy(&x, (const char *)from + 8 * i, sizeof x);
    return x;
}

INLINE int32_t load_i32(const void *from, size_t i)
{
    int32_t x;

    memcpy(&x, (const char *)from + 4 * i, sizeof x);
    return x;
}

INLINE int64_t load_i64(const void *from, size_t i)
{
    int64_t x;

    memcpy(&x, (const char *)from + 8 * i, sizeof x);
    return x;
}

INLINE void store_f32(void *to, size_t i, float x)
{
    memcpy((char *)to + 4 * i, &x, sizeof x);
}

INLINE void store_f64(void *to, size_t i, double x)
{
    memcpy((char *)to + 8 * i, &x, sizeof x);
}

INLINE void store_i32(void *to, size_t i, int32_t x)
{
    memcpy((char *)to + 4 * i, &x, sizeof x);
}

INLINE void store_i64(void *to, size_t i, int64_t x)
{
    memcpy((char *)to + 8 * i, &x, sizeof x);
}

// A case of the switches below: one loop, whose statement uses i.
#define EACH(n, statement)             \
    for (size_t i = 0; i < (n); i++) { \
        statement;                     \
    }                                  \
    return

// The cases of a load into an array of `type`.
#define LOAD_CASES(type, from, n, to)                  \
    case HD_DTYPE_F64:                                 \
        EACH(n, to[i] = (type)load_f64(from, i));      \
    case HD_DTYPE_F32:                                 \
        EACH(n, to[i] = load_f32(from, i));            \
    case HD_DTYPE_F16:                                 \
        EACH(n, to[i] = widen(f16, load2(from, i)));   \
    case HD_DTYPE_BF16:                                \
        EACH(n, to[i] = widen(bf16, load2(from, i)));  \
    case HD_DTYPE_F8E4M3:                              \
        EACH(n, to[i] = widen(e4m3, load1(from, i)));  \
    case HD_DTYPE_F8E5M2:                              \
        EACH(n, to[i] = widen(e5m2, load1(from, i)));  \
    case HD_DTYPE_I64:                                 \
        EACH(n, to[i] = (type)load_i64(from, i));      \
    case HD_DTYPE_I32:                                 \
        EACH(n, to[i] = (type)load_i32(from, i));      \
    case HD_DTYPE_U8:                                  \
        EACH(n, to[i] = (type)load1(from, i));         \
    case HD_DTYPE_I8:                                  \
        EACH(n, to[i] = (type)(int8_t)load1(from, i)); \
    case HD_DTYPE_EVENT:                               \
        return

// The cases of a store from an array, whose narrowing is `narrow`.
#define STORE_CASES(narrow, from, n, to)                                     \
    case HD_DTYPE_F64:                                                       \
        EACH(n, store_f64(to, i, from[i]));                                  \
    case HD_DTYPE_F32:                                                       \
        EACH(n, store_f32(to, i, (float)from[i]));                           \
    case HD_DTYPE_F16:                                                       \
        EACH(n, store2(to, i, narrow(f16, from[i])));                        \
    case HD_DTYPE_BF16:                                                      \
        EACH(n, store2(to, i, narrow(bf16, from[i])));                       \
    case HD_DTYPE_F8E4M3:                                                    \
        EACH(n, store1(to, i, narrow(e4m3, from[i])));                       \
    case HD_DTYPE_F8E5M2:                                                    \
        EACH(n, store1(to, i, narrow(e5m2, from[i])));                       \
    case HD_DTYPE_I64:                                                       \
        EACH(n, store_i64(to, i, to_i64(from[i])));                          \
    case HD_DTYPE_I32:                                                       \
        EACH(n,                                                              \
             store_i32(to, i,                                                \
                       (int32_t)to_integer(from[i], INT32_MIN, INT32_MAX))); \
    case HD_DTYPE_U8:                                                        \
        EACH(n, store1(to, i, (uint32_t)to_integer(from[i], 0, 255)));       \
    case HD_DTYPE_I8:                                                        \
        EACH(n, store1(to, i, (uint32_t)to_integer(from[i], -128, 127)));    \
    case HD_DTYPE_EVENT:                                                     \
        return

void hd_dtype_load(hd_dtype dtype, const void *from, size_t n, double *to)
{
    assert((unsigned)dtype < NDTYPES &&
           (n == 0 || (from != NULL && to != NULL)));
    switch (dtype) {
        LOAD_CASES(double, from, n, to);
    }
}

void hd_dtype_store(hd_dtype dtype, const double *from, size_t n, void *to)
{
    assert((unsigned)dtype < NDTYPES &&
           (n == 0 || (from != NULL && to != NULL)));
    switch (dtype) {
        STORE_CASES(narrow_double, from, n, to);
    }
}

void hd_dtype_load_float(hd_dtype dtype, const void *from, size_t n, float *to)
{
    switch (dtype) {
        LOAD_CASES(float, from, n, to);
    }
}

void hd_dtype_store_float(hd_dtype dtype, const float *from, size_t n, void *to)
{
    switch (dtype) {
        STORE_CASES(narrow_float, from, n, to);
    }
}

void hd_dtype_load_integers(hd_dtype dtype, const void *from, size_t n,
                            int64_t *to)
{
    switch (dtype) {
    case HD_DTYPE_I64:
        EACH(n, to[i] = load_i64(from, i));
    case HD_DTYPE_I32:
        EACH(n, to[i] = load_i32(from, i));
    case HD_DTYPE_U8:
        EACH(n, to[i] = load1(from, i));
    case HD_DTYPE_I8:
        EACH(n, to[i] = (int8_t)load1(from, i));
    case HD_DTYPE_F64:
    case HD_DTYPE_F32:
    case HD_DTYPE_F16:
    case HD_DTYPE_BF16:
    case HD_DTYPE_F8E4M3:
    case HD_DTYPE_F8E5M2:
    case HD_DTYPE_EVENT:
        return;
    }
}

void hd_dtype_store_integers(hd_dtype dtype, const int64_t *from, size_t n,
                             void *to)
{
    switch (dtype) {
    case HD_DTYPE_I64:
        EACH(n, store_i64(to, i, from[i]));
    case HD_DTYPE_I32:
        EACH(n, store_i32(to, i, (int32_t)(uint32_t)(uint64_t)from[i]));
    case HD_DTYPE_U8:
    case HD_DTYPE_I8:
        EACH(n, store1(to, i, (uint32_t)(uint64_t)from[i]));
    case HD_DTYPE_F64:
    case HD_DTYPE_F32:
    case HD_DTYPE_F16:
    case HD_DTYPE_BF16:
    case HD_DTYPE_F8E4M3:
    case HD_DTYPE_F8E5M2:
    case HD_DTYPE_EVENT:
        return;
    }
}
