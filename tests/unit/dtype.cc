// The narrow formats against tables computed from their definition: every code,
// and rounding by searching the table for the nearest number.
#include <heddle/verify.h>

#include "base/dtype.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

namespace
{

struct Format {
    hd_dtype dtype;
    int bits, fraction, bias;
    bool infinite; // has infinities; without them only one code is a NaN
};

const Format formats[] = {{HD_DTYPE_F16, 16, 10, 15, true},
                          {HD_DTYPE_BF16, 16, 7, 127, true},
                          {HD_DTYPE_F8E5M2, 8, 2, 15, true},
                          {HD_DTYPE_F8E4M3, 8, 3, 7, false}};

uint32_t SignOf(const Format &f)
{
    return 1u << (f.bits - 1);
}

// The number that a code stands for; of infinity the power of two after the
// largest number, which is where rounding to it begins.
double Value(const Format &f, uint32_t code)
{
    uint32_t fraction = code & ((1u << f.fraction) - 1);
    int exponent = static_cast<int>(code >> f.fraction);

    if (exponent == 0)
        return std::ldexp(fraction, 1 - f.bias - f.fraction);
    return std::ldexp((1u << f.fraction) + fraction,
                      exponent - f.bias - f.fraction);
}

uint32_t LastCode(const Format &f) // infinity, or the largest number
{
    uint32_t top = SignOf(f) - 1;

    return f.infinite ? top & ~((1u << f.fraction) - 1) : top - 1;
}

std::vector<double> Table(const Format &f)
{
    std::vector<double> values;

    for (uint32_t code = 0; code <= LastCode(f); code++)
        values.push_back(Value(f, code));
    return values;
}

uint32_t SlowRound(const Format &f, const std::vector<double> &table, double x)
{
    uint32_t sign = std::signbit(x) ? SignOf(f) : 0;
    double magnitude = std::fabs(x);
    auto above = std::lower_bound(table.begin(), table.end(), magnitude);
    auto code = static_cast<uint32_t>(above - table.begin());

    if (above == table.end())
        return sign | LastCode(f);
    if (code > 0 && *above != magnitude) {
        double up = *above - magnitude, down = magnitude - above[-1];
        if (down < up || (down == up && code % 2 == 1))
            code--;
    }
    return sign | code;
}

uint32_t Store(const Format &f, double x)
{
    uint16_t code = 0xdead;
    uint8_t narrow = 0xde;

    if (f.bits == 16) {
        hd_dtype_store(f.dtype, &x, 1, &code);
        return code;
    }
    hd_dtype_store(f.dtype, &x, 1, &narrow);
    return narrow;
}

uint32_t StoreFloat(const Format &f, float x)
{
    uint16_t code = 0xdead;
    uint8_t narrow = 0xde;

    if (f.bits == 16) {
        hd_dtype_store_float(f.dtype, &x, 1, &code);
        return code;
    }
    hd_dtype_store_float(f.dtype, &x, 1, &narrow);
    return narrow;
}

double Load(const Format &f, uint32_t code)
{
    uint16_t wide = static_cast<uint16_t>(code);
    uint8_t narrow = static_cast<uint8_t>(code);
    double x = -7;

    hd_dtype_load(f.dtype, f.bits == 16 ? static_cast<void *>(&wide) : &narrow,
                  1, &x);
    return x;
}

bool IsNan(const Format &f, uint32_t code)
{
    return (code & (SignOf(f) - 1)) > LastCode(f);
}

} // namespace

TEST(Dtype, NamesAndSizesAreFound)
{
    for (int i = HD_DTYPE_F64; i <= HD_DTYPE_EVENT; i++) {
        auto dtype = static_cast<hd_dtype>(i);
        const char *text = hd_dtype_text(dtype);
        hd_dtype found;

        ASSERT_TRUE(hd_dtype_find(text, strlen(text), &found));
        EXPECT_EQ(found, dtype);
    }
    hd_dtype none;
    EXPECT_FALSE(hd_dtype_find("f1", 2, &none));
    EXPECT_FALSE(hd_dtype_find("f160", 4, &none));
    EXPECT_EQ(hd_dtype_size(HD_DTYPE_F8E4M3), 1u);
    EXPECT_EQ(hd_dtype_size(HD_DTYPE_BF16), 2u);
    EXPECT_EQ(hd_dtype_size(HD_DTYPE_I64), 8u);
    EXPECT_EQ(hd_dtype_size(HD_DTYPE_EVENT), 0u);
    EXPECT_TRUE(hd_dtype_is_float(HD_DTYPE_F8E5M2));
    EXPECT_FALSE(hd_dtype_is_float(HD_DTYPE_EVENT));
    EXPECT_TRUE(hd_dtype_is_integer(HD_DTYPE_U8));
    EXPECT_FALSE(hd_dtype_is_integer(HD_DTYPE_EVENT));
}

TEST(Dtype, UnitAndTinyAreThoseOfTheCodes)
{
    for (const Format &f : formats) {
        double one = Store(f, 1.0);
        double next = Load(f, static_cast<uint32_t>(one) + 1);

        EXPECT_EQ(hd_dtype_unit(f.dtype), (next - 1) / 2);
        EXPECT_EQ(hd_dtype_tiny(f.dtype), Load(f, 1));
    }
    EXPECT_EQ(hd_dtype_unit(HD_DTYPE_F64),
              std::numeric_limits<double>::epsilon() / 2);
    EXPECT_EQ(hd_dtype_unit(HD_DTYPE_F32),
              std::numeric_limits<float>::epsilon() / 2);
    EXPECT_EQ(hd_dtype_tiny(HD_DTYPE_F64),
              std::numeric_limits<double>::denorm_min());
    EXPECT_EQ(hd_dtype_tiny(HD_DTYPE_F32),
              std::numeric_limits<float>::denorm_min());
    EXPECT_EQ(hd_dtype_unit(HD_DTYPE_I32), 0);
    EXPECT_EQ(hd_dtype_tiny(HD_DTYPE_EVENT), 0);
}

TEST(Dtype, OneHoldsAnotherIfEveryNumberOfThatIsOneOfIts)
{
    for (const Format &f : formats)
        for (const Format &g : formats) {
            std::vector<double> numbers = Table(f), table = Table(g);

            numbers.pop_back(); // infinity, or its double
            EXPECT_EQ(hd_dtype_holds(g.dtype, f.dtype),
                      std::includes(table.begin(), table.end(), numbers.begin(),
                                    numbers.end()))
                << hd_dtype_text(g.dtype) << " " << hd_dtype_text(f.dtype);
            EXPECT_TRUE(hd_dtype_holds(HD_DTYPE_F32, f.dtype));
            EXPECT_FALSE(hd_dtype_holds(f.dtype, HD_DTYPE_F32));
        }
    EXPECT_TRUE(hd_dtype_holds(HD_DTYPE_F32, HD_DTYPE_U8));
    EXPECT_TRUE(hd_dtype_holds(HD_DTYPE_BF16, HD_DTYPE_U8));
    EXPECT_FALSE(hd_dtype_holds(HD_DTYPE_F8E4M3, HD_DTYPE_U8));
    EXPECT_FALSE(hd_dtype_holds(HD_DTYPE_F32, HD_DTYPE_I32));
    EXPECT_TRUE(hd_dtype_holds(HD_DTYPE_F64, HD_DTYPE_I32));
    EXPECT_FALSE(hd_dtype_holds(HD_DTYPE_F64, HD_DTYPE_I64));
    EXPECT_TRUE(hd_dtype_holds(HD_DTYPE_I64, HD_DTYPE_I32));
    EXPECT_FALSE(hd_dtype_holds(HD_DTYPE_U8, HD_DTYPE_I32));
    EXPECT_FALSE(hd_dtype_holds(HD_DTYPE_U8, HD_DTYPE_I8));
    EXPECT_FALSE(hd_dtype_holds(HD_DTYPE_I8, HD_DTYPE_U8));
    EXPECT_TRUE(hd_dtype_holds(HD_DTYPE_I32, HD_DTYPE_I8));
    EXPECT_TRUE(hd_dtype_holds(HD_DTYPE_BF16, HD_DTYPE_I8));
    EXPECT_FALSE(hd_dtype_holds(HD_DTYPE_F8E4M3, HD_DTYPE_I8));
    EXPECT_FALSE(hd_dtype_holds(HD_DTYPE_I64, HD_DTYPE_F16));
}

TEST(Dtype, EveryCodeLoadsAsItIsDefined)
{
    for (const Format &f : formats)
        for (uint32_t code = 0; code < 2 * SignOf(f); code++) {
            uint32_t magnitude = code & (SignOf(f) - 1);
            double x = Load(f, code);

            ASSERT_EQ(std::isnan(x), IsNan(f, code)) << code;
            ASSERT_EQ(std::signbit(x), code != magnitude) << code;
            if (std::isnan(x))
                continue;
            if (f.infinite && magnitude == LastCode(f))
                ASSERT_TRUE(std::isinf(x)) << code;
            else
                ASSERT_EQ(std::fabs(x), Value(f, magnitude)) << code;
        }
}

TEST(Dtype, EveryCodeSurvivesTheRoundTrip)
{
    for (const Format &f : formats)
        for (uint32_t code = 0; code < 2 * SignOf(f); code++) {
            double x = Load(f, code);

            if (std::isnan(x)) {
                ASSERT_TRUE(IsNan(f, Store(f, x))) << code;
                ASSERT_TRUE(IsNan(f, StoreFloat(f, static_cast<float>(x))));
                continue;
            }
            ASSERT_EQ(Store(f, x), code) << hd_dtype_text(f.dtype);
            ASSERT_EQ(StoreFloat(f, static_cast<float>(x)), code);
        }
}

TEST(Dtype, TheEndsOfF8AreThoseOfTheStandard)
{
    double inf = std::numeric_limits<double>::infinity();
    const Format &e5m2 = formats[2], &e4m3 = formats[3];

    EXPECT_EQ(Load(e4m3, 0x7e), 448);
    EXPECT_TRUE(std::isnan(Load(e4m3, 0x7f)));
    EXPECT_TRUE(std::isnan(Load(e4m3, 0xff)));
    EXPECT_EQ(Store(e4m3, 1e30), 0x7eu);
    EXPECT_EQ(Store(e4m3, -inf), 0xfeu);
    EXPECT_EQ(Store(e4m3, std::nan("")) & 0x7f, 0x7fu);
    EXPECT_EQ(Load(e5m2, 0x7b), 57344);
    EXPECT_EQ(Store(e5m2, 61439.9), 0x7bu);
    EXPECT_EQ(Store(e5m2, 61440), 0x7cu);
    EXPECT_EQ(Store(e5m2, -1e300), 0xfcu);
}

// Between each two neighbours: the middle, and a hair to either side of it.
TEST(Dtype, TiesRoundToEven)
{
    for (const Format &f : formats) {
        std::vector<double> table = Table(f);

        for (size_t i = 0; i + 1 < table.size(); i++) {
            double middle = (table[i] + table[i + 1]) / 2;

            for (double x : {middle, std::nextafter(middle, 0),
                             std::nextafter(middle, HUGE_VAL), -middle}) {
                uint32_t want = SlowRound(f, table, x);
                ASSERT_EQ(Store(f, x), want)
                    << hd_dtype_text(f.dtype) << " " << x;
                auto near = static_cast<float>(x);
                ASSERT_EQ(StoreFloat(f, near), SlowRound(f, table, near))
                    << hd_dtype_text(f.dtype) << " " << near;
            }
        }
    }
}

TEST(Dtype, RandomDoublesRoundToTheNearest)
{
    std::mt19937_64 random(20240607);

    for (const Format &f : formats) {
        std::vector<double> table = Table(f);
        std::uniform_real_distribution<double> exponent(
            -f.bias - f.fraction - 3.0, f.bias + 3.0);

        for (int i = 0; i < 100000; i++) {
            double x = std::exp2(exponent(random)) * (i % 2 ? -1 : 1);
            auto near = static_cast<float>(x);

            ASSERT_EQ(Store(f, x), SlowRound(f, table, x))
                << hd_dtype_text(f.dtype) << " " << x;
            if (std::isinf(near) && !f.infinite)
                continue;
            ASSERT_EQ(StoreFloat(f, near), SlowRound(f, table, near))
                << hd_dtype_text(f.dtype) << " " << near;
        }
    }
}

// Rounding to float on the way would land on a tie and go down.
TEST(Dtype, ADoubleIsRoundedOnce)
{
    double x = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);

    EXPECT_EQ(Store(formats[0], x), 0x3c01u);
    EXPECT_EQ(StoreFloat(formats[0], static_cast<float>(x)), 0x3c00u);
}

TEST(Dtype, IntegersSaturateAndRoundToEven)
{
    const double x[] = {2.5,    3.5,     -2.5, 1e300, -1e300, std::nan(""),
                        0x1p63, -0x1p63, 300,  -1,    255.5,  254.5};
    const size_t n = sizeof x / sizeof *x;
    const int64_t want64[n] = {2,         4,  -2,        INT64_MAX,
                               INT64_MIN, 0,  INT64_MAX, INT64_MIN,
                               300,       -1, 256,       254};
    const int32_t want32[n] = {2,         4,  -2,        INT32_MAX,
                               INT32_MIN, 0,  INT32_MAX, INT32_MIN,
                               300,       -1, 256,       254};
    const uint8_t want8[n] = {2, 4, 0, 255, 0, 0, 255, 0, 255, 0, 255, 254};
    int64_t got64[n];
    int32_t got32[n];
    const int8_t want_signed[n] = {2,   4,    -2,  127, -128, 0,
                                   127, -128, 127, -1,  127,  127};
    uint8_t got8[n];
    int8_t got_signed[n];

    hd_dtype_store(HD_DTYPE_I64, x, n, got64);
    hd_dtype_store(HD_DTYPE_I32, x, n, got32);
    hd_dtype_store(HD_DTYPE_U8, x, n, got8);
    hd_dtype_store(HD_DTYPE_I8, x, n, got_signed);
    for (size_t i = 0; i < n; i++) {
        EXPECT_EQ(got64[i], want64[i]) << x[i];
        EXPECT_EQ(got32[i], want32[i]) << x[i];
        EXPECT_EQ(got8[i], want8[i]) << x[i];
        EXPECT_EQ(got_signed[i], want_signed[i]) << x[i];
    }
    double back[n];
    hd_dtype_load(HD_DTYPE_I32, got32, n, back);
    EXPECT_EQ(back[3], INT32_MAX);
    hd_dtype_load(HD_DTYPE_U8, got8, n, back);
    EXPECT_EQ(back[8], 255);
    hd_dtype_load(HD_DTYPE_I8, got_signed, n, back);
    EXPECT_EQ(back[4], -128);
    hd_dtype_load(HD_DTYPE_I64, got64, n, back);
    EXPECT_EQ(back[7], -0x1p63);
}

// Odd lengths and odd addresses, since vectors have remainders and tensors in
// files have any alignment.
TEST(Dtype, ArraysConvertAtAnyAddress)
{
    std::mt19937 random(3);
    std::uniform_real_distribution<double> value(-100, 100);

    for (int t = HD_DTYPE_F64; t < HD_DTYPE_EVENT; t++)
        for (size_t n : {0, 1, 5, 37, 256}) {
            auto dtype = static_cast<hd_dtype>(t);
            std::vector<char> bytes(n * 8 + 9, 0x5a), again(bytes);
            std::vector<double> x(n), back(n + 1, -7);
            std::vector<float> floats(n + 1, -7);

            for (double &v : x)
                v = value(random);
            hd_dtype_store(dtype, x.data(), n, &bytes[1]);
            EXPECT_EQ(bytes[1 + n * hd_dtype_size(dtype)], 0x5a);
            hd_dtype_load(dtype, &bytes[1], n, back.data());
            hd_dtype_load_float(dtype, &bytes[1], n, floats.data());
            EXPECT_EQ(back[n], -7);
            EXPECT_EQ(floats[n], -7);
            for (size_t i = 0; i < n; i++) {
                double one = -7;
                char code[8];

                hd_dtype_store(dtype, &x[i], 1, code);
                hd_dtype_load(dtype, code, 1, &one);
                ASSERT_EQ(back[i], one);
                ASSERT_EQ(floats[i], static_cast<float>(one));
            }
            if (dtype == HD_DTYPE_F64)
                continue;
            hd_dtype_store_float(dtype, floats.data(), n, &again[1]);
            EXPECT_EQ(bytes, again);
        }
}
