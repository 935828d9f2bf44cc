#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <heddle/verify.h>

#include "tests/seed.h"
#include "tests/unit/program.h"

extern "C" {
#include "tools/verify.h"
}

namespace
{

struct Answer {
    std::vector<double> value, bound;
};

std::vector<float> Random(size_t n, unsigned seed)
{
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> result(n);

    for (float &x : result)
        x = normal(random);
    return result;
}

Answer Reference(const Program &p, const std::vector<const void *> &whole,
                 size_t i, int rank)
{
    hd_argument argument = HD_EMPTY(hd_argument);
    hd_reference *reference = nullptr;
    Answer answer;

    EXPECT_EQ(hd_reference_create(p.module, whole.data(), p.diag, &reference),
              HD_OK)
        << p.Said();
    hd_module_argument(p.module, i, &argument);
    answer.value.resize(argument.local_elements);
    answer.bound.resize(argument.local_elements);
    hd_reference_local(reference, i, rank, answer.value.data(),
                       answer.bound.data());
    hd_reference_destroy(reference);
    return answer;
}

// What it computes, the caller alone knows.
TEST(Reference, IsOfNoProgramThatCalls)
{
    Program p("tensor program t\nin %a : f32[5]\nout %c : f32[5]\n"
              "{ %c = call \"f\" %a }");
    const void *whole[2] = {};
    hd_reference *reference = nullptr;

    EXPECT_EQ(hd_reference_create(p.module, whole, p.diag, &reference),
              HD_ERROR_UNSUPPORTED);
    EXPECT_EQ(reference, nullptr);
    EXPECT_NE(std::string(p.Said()).find(":5: call \"f\": what a function of "
                                         "the caller's computes, no reference "
                                         "knows"),
              std::string::npos)
        << p.Said();
}

TEST(Reference, AMatmulIsTheSumOfItsProducts)
{
    Program p("tensor program t in %a : f32[5, 70] in %b : f32[70, 3] "
              "out %c : f32[5, 3] { %c = matmul %a, %b }");
    std::vector<float> a = Random(350, 1), b = Random(210, 2);
    Answer c = Reference(p, {a.data(), b.data(), nullptr}, 2, 0);

    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++) {
            double sum = 0;

            for (int k = 0; k < 70; k++)
                sum += double(a[i * 70 + k]) * b[k * 3 + j];
            EXPECT_NEAR(c.value[i * 3 + j], sum, 1e-12);
            EXPECT_GT(c.bound[i * 3 + j], 0);
        }
}

// Beyond what a double holds, and beyond what the dtype does: they wrap.
template <class Int> void CheckIntegers(const char *dtype)
{
    std::mt19937_64 random(Seed());
    std::string type = dtype;
    Program p("tensor program t in %a : " + type + "[3, 64] in %b : " + type +
              "[3, 64] out %s : " + type + "[64] out %m : " + type +
              "[64] out %p : " + type + "[3, 64] out %c : " + type +
              "[3, 64] { %s = sum %a dim 0 %m = max %a dim 0 "
              "%p = mul %a, %b %c = add %a, %b }");
    std::vector<Int> a(192), b(192);

    for (size_t i = 0; i < a.size(); i++) {
        a[i] = static_cast<Int>(random());
        b[i] = i % 3 == 0 ? std::numeric_limits<Int>::max()
                          : static_cast<Int>(random());
    }
    a[0] = std::numeric_limits<Int>::min();
    std::vector<const void *> whole = {a.data(), b.data(), nullptr,
                                       nullptr,  nullptr,  nullptr};
    Answer sum = Reference(p, whole, 2, 0), most = Reference(p, whole, 3, 0);
    Answer product = Reference(p, whole, 4, 0),
           both = Reference(p, whole, 5, 0);

    for (size_t i = 0; i < 192; i++) {
        uint64_t x = static_cast<uint64_t>(a[i]);
        uint64_t y = static_cast<uint64_t>(b[i]);

        EXPECT_EQ(product.value[i], double(static_cast<Int>(x * y)));
        EXPECT_EQ(both.value[i], double(static_cast<Int>(x + y)));
        EXPECT_EQ(product.bound[i], 0);
    }
    for (size_t i = 0; i < 64; i++) {
        uint64_t total = 0;

        for (size_t k = 0; k < 3; k++)
            total += static_cast<uint64_t>(a[k * 64 + i]);
        EXPECT_EQ(sum.value[i], double(static_cast<Int>(total)));
        EXPECT_EQ(sum.bound[i], 0);
        EXPECT_EQ(most.value[i],
                  double(std::max({a[i], a[64 + i], a[128 + i]})));
    }
}

TEST(Reference, IntegersAreExactModuloTheirWidth)
{
    CheckIntegers<int64_t>("i64");
    CheckIntegers<int32_t>("i32");
    CheckIntegers<uint8_t>("u8");
}

const char *const kLongMatmul =
    "tensor program t in %a : f32[4, 1024] in %b : f32[1024, 4] "
    "out %c : f32[4, 4] { %c = matmul %a, %b }";

// How many of `got` --verify counts as wrong.
size_t Off(const Answer &answer, const std::vector<double> &got)
{
    verdict found = {};
    finding place = {};

    verdict_values(&found, HD_DTYPE_F64, got.data(), answer.value.data(),
                   answer.bound.data(), got.size(), &place);
    return found.off;
}

// Equal infinities and NaNs are right whatever the bound; what differs where
// anything would do is neither right nor wrong.
TEST(Reference, AnInfiniteBoundProvesNothing)
{
    const double inf = INFINITY, nan = NAN;
    const std::vector<double> values = {-inf, nan, 1, 1, inf, 2, -inf},
                              bounds = {inf, inf, inf, inf, inf, inf, 0},
                              got = {-inf, nan, 1, nan, -inf, 3, -inf};
    hd_argument about = HD_EMPTY(hd_argument);
    verdict found = {};
    finding place = {};
    char said[512] = "";
    FILE *to = fmemopen(said, sizeof said, "w");

    about.name = "y";
    about.ndims = 1;
    about.local[0] = 7;
    verdict_values(&found, HD_DTYPE_F64, got.data(), values.data(),
                   bounds.data(), got.size(), &place);
    EXPECT_EQ(found.checked, 4u);
    EXPECT_EQ(found.off, 0u);
    EXPECT_EQ(found.unbounded, 3u);
    EXPECT_EQ(verdict_report(&found, &about, to), FINE);
    fclose(to);
    EXPECT_EQ(std::string(said).find(
                  "%y: not verified: 3 of 7 values have no bound on their "
                  "error, so that any would do; largest error 0 "),
              0u)
        << said;
}

// 6 sqrt(K) u sum|a b| and half a step of the result, no more and no less; an
// answer that is off by nearly as much is right, one beyond it is wrong.
TEST(Reference, TheBoundOfAMatmulIsAsDerived)
{
    Program p(kLongMatmul);
    std::vector<float> a = Random(4096, Seed()), b = Random(4096, Seed() + 1);
    Answer right = Reference(p, {a.data(), b.data(), nullptr}, 2, 0);
    std::vector<double> within = right.value, beyond = right.value;

    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            double magnitude = 0, at = right.value[i * 4 + j];
            double bound = right.bound[i * 4 + j];
            int exponent;

            for (size_t k = 0; k < 1024; k++)
                magnitude += std::fabs(double(a[i * 1024 + k]) * b[k * 4 + j]);
            double sum = 6 * 32 * 0x1p-24 * magnitude;
            std::frexp(std::fabs(at) + sum, &exponent);
            double derived = sum + std::ldexp(0x1p-24, exponent - 1);
            EXPECT_NEAR(bound, derived, 1e-9 * derived);
            within[i * 4 + j] += (j % 2 == 0 ? 0.999 : -0.999) * bound;
            beyond[i * 4 + j] += (j % 2 == 0 ? 1.001 : -1.001) * bound;
        }
    EXPECT_EQ(Off(right, within), 0u);
    EXPECT_EQ(Off(right, beyond), 16u);
}

// One element of an operand that is off by as much as shows in one result.
TEST(Reference, AnErrorInOneElementExceedsTheBound)
{
    Program p(kLongMatmul);
    std::vector<float> a = Random(4096, Seed()), b = Random(4096, Seed() + 1);
    Answer right = Reference(p, {a.data(), b.data(), nullptr}, 2, 0);
    size_t most = 17 * 4;

    for (size_t j = 17 * 4; j < 18 * 4; j++)
        most = std::fabs(b[j]) > std::fabs(b[most]) ? j : most;
    for (double factor : {0.9, 1.1}) {
        std::vector<float> other = a;
        size_t j = most % 4;

        other[1024 + 17] +=
            float(factor * right.bound[4 + j] / std::fabs(b[most]));
        Answer wrong = Reference(p, {other.data(), b.data(), nullptr}, 2, 0);
        double error = std::fabs(wrong.value[4 + j] - right.value[4 + j]);
        EXPECT_EQ(error > right.bound[4 + j], factor > 1);
        for (j = 0; j < 4; j++)
            EXPECT_EQ(wrong.value[j], right.value[j]); // row 0 is untouched
    }
}

// How Hopper's tensor cores add products of f8: an instruction cuts them and
// the sum so far to 13 bits below the largest exponent, that of a product being
// its operands' together, adds them exactly and cuts the sum to a fraction of
// 13 bits. Every `window` products that is added to a sum in fp32.
struct TensorCores {
    size_t group, window;

    static double Cut(double x, int exponent)
    {
        double last = std::ldexp(1, exponent - 13);

        return std::trunc(x / last) * last;
    }
    static double Instruction(double sum, const double *a, const double *b,
                              size_t n)
    {
        int most = sum != 0 ? std::ilogb(sum) : -1000;

        for (size_t i = 0; i < n; i++)
            if (a[i] * b[i] != 0)
                most = std::max(most, std::ilogb(a[i]) + std::ilogb(b[i]));
        sum = Cut(sum, most);
        for (size_t i = 0; i < n; i++)
            sum += Cut(a[i] * b[i], most);
        return sum != 0 ? Cut(sum, std::ilogb(sum)) : 0;
    }
    double Sum(const std::vector<double> &a, const std::vector<double> &b) const
    {
        size_t n = a.size();
        float total = 0;
        double part = 0;

        for (size_t k = 0; k < n; k += group) {
            part = Instruction(part, &a[k], &b[k], std::min(group, n - k));
            if ((k + group) % window == 0 || k + group >= n) {
                total += static_cast<float>(part);
                part = 0;
            }
        }
        return total;
    }
};

// A row of k by the columns of another matrix, of f8.
struct F8Product {
    static constexpr size_t n = 64;
    size_t k;
    std::vector<double> a, b; // b: column after column
    Answer right;

    F8Product(const std::string &dtype, size_t k, bool positive) : k(k)
    {
        hd_dtype code = dtype == "f8e4m3" ? HD_DTYPE_F8E4M3 : HD_DTYPE_F8E5M2;
        std::string size = std::to_string(k);
        Program p("tensor program t in %a : " + dtype + "[1, " + size +
                  "] in %b : " + dtype + "[64, " + size +
                  "] out %c : f32[1, 64] { %c = matmul %a, %b tb }");
        std::vector<uint8_t> first = Fill(code, k, positive, Seed(), a);
        std::vector<uint8_t> second =
            Fill(code, k * n, positive, Seed() + 1, b);

        right = Reference(p, {first.data(), second.data(), nullptr}, 2, 0);
    }
    static std::vector<uint8_t> Fill(hd_dtype dtype, size_t n, bool positive,
                                     unsigned seed, std::vector<double> &values)
    {
        std::vector<float> random = Random(n, seed);
        std::vector<uint8_t> bytes(n);

        values.assign(random.begin(), random.end());
        for (double &x : values)
            x = positive ? std::fabs(x) : x;
        hd_dtype_store(dtype, values.data(), n, bytes.data());
        hd_dtype_load(dtype, bytes.data(), n, values.data());
        return bytes;
    }
    // The largest error beside its bound, where k is taken in that order.
    double WorstRatio(const TensorCores &cores,
                      const std::vector<size_t> &order) const
    {
        std::vector<double> x(k), y(k);
        double worst = 0;

        for (size_t j = 0; j < n; j++) {
            for (size_t i = 0; i < k; i++) {
                x[i] = a[order[i]];
                y[i] = b[j * k + order[i]];
            }
            worst =
                std::max(worst, std::fabs(cores.Sum(x, y) - right.value[j]) /
                                    right.bound[j]);
        }
        return worst;
    }
};

// Of any sign, where what is lost is of any too, and of one, where it adds up.
TEST(Reference, TensorCoresAreWithinTheBoundOfF8)
{
    for (const char *dtype : {"f8e4m3", "f8e5m2"})
        for (bool positive : {false, true})
            for (size_t k : {16, 48, 64, 100, 1000}) {
                F8Product p(dtype, k, positive);
                std::vector<size_t> order(k);
                double worst = 0;

                std::iota(order.begin(), order.end(), size_t(0));
                for (int times = 0; times < 2; times++) {
                    for (TensorCores cores :
                         {TensorCores{16, 64}, {16, 128}, {32, 128}})
                        worst = std::max(worst, p.WorstRatio(cores, order));
                    std::reverse(order.begin(), order.end());
                }
                EXPECT_LE(worst, 1) << dtype << " k " << k;
                // Of few products all bits may be kept.
                EXPECT_GE(worst, k > 16 ? 0.01 : 0) << dtype << " k " << k;
            }
}

// Nearly every product shows if it is left out, all those that matter.
TEST(Reference, AMissingProductOfF8ExceedsTheBound)
{
    F8Product p("f8e4m3", 48, false);
    size_t seen = 0;

    for (size_t j = 0; j < p.n; j++)
        for (size_t k = 0; k < p.k; k++) {
            std::vector<double> column(&p.b[j * p.k], &p.b[j * p.k] + p.k);
            double product = p.a[k] * column[k], got;

            column[k] = 0;
            got = TensorCores{32, 128}.Sum(p.a, column);
            bool off = std::fabs(got - p.right.value[j]) > p.right.bound[j];
            seen += off;
            EXPECT_TRUE(off || std::fabs(product) < 0.1) << product;
        }
    EXPECT_GT(seen, p.n * p.k * 9 / 10);
}

// 128 products of 1, which eight instructions add up: 16 cuts at 13 bits below
// 128. Then 1 and 3 2^-15: two cuts at 2^-13, and all of the last product.
TEST(Reference, TheBoundOfF8IsAsDerived)
{
    Program p("tensor program t in %a : f8e4m3[1, 130] in %b : f8e4m3[1, 130] "
              "out %c : f32[1, 1] { %c = matmul %a, %b tb }");
    std::vector<double> a(130, 1), b(130, 1);
    uint8_t first[130], second[130];

    a[129] = 3 * 0x1p-9;
    b[129] = 0x1p-6;
    hd_dtype_store(HD_DTYPE_F8E4M3, a.data(), 130, first);
    hd_dtype_store(HD_DTYPE_F8E4M3, b.data(), 130, second);
    Answer c = Reference(p, {first, second, nullptr}, 2, 0);
    double lost = 16 * 0x1p-6 + 2 * 0x1p-13 + 3 * 0x1p-15;
    double sum = 6 * std::sqrt(130) * 0x1p-24 * c.value[0];
    double derived = lost + sum + 0x1p-17;

    EXPECT_EQ(c.value[0], 129 + 3 * 0x1p-15);
    EXPECT_NEAR(c.bound[0], derived, 1e-9 * derived);
}

TEST(Reference, OneStepOfTheFormatExceedsTheBound)
{
    Program p("tensor program t in %a : f32[512] out %c : bf16[512] "
              "{ %c = copy %a }");
    std::vector<float> a = Random(512, Seed());
    Answer c = Reference(p, {a.data(), nullptr}, 1, 0);
    std::vector<uint16_t> stored(512);
    std::vector<double> exact(a.begin(), a.end()), near(512), next(512);

    hd_dtype_store(HD_DTYPE_BF16, exact.data(), 512, stored.data());
    hd_dtype_load(HD_DTYPE_BF16, stored.data(), 512, near.data());
    EXPECT_EQ(Off(c, near), 0u);
    for (int step : {1, -1}) {
        std::vector<uint16_t> bits(512);

        for (size_t i = 0; i < 512; i++)
            bits[i] = static_cast<uint16_t>(stored[i] + step);
        hd_dtype_load(HD_DTYPE_BF16, bits.data(), 512, next.data());
        for (size_t i = 0; i < 512; i++) {
            double error = std::fabs(near[i] - exact[i]);
            double further = std::fabs(next[i] - exact[i]);

            // Half way between the two either is right, and below a power of
            // two steps are half as long.
            if (error > 0 && further > error) {
                EXPECT_GT(further, c.bound[i]) << exact[i];
            }
        }
    }
}

TEST(Reference, WhatIsExactlyZeroIsNothingElse)
{
    Program p("tensor program t in %a : f32[2] out %c : bf16[2] "
              "{ %c = copy %a }");
    std::vector<float> a = {0, 0x1p-140F};
    Answer c = Reference(p, {a.data(), nullptr}, 1, 0);

    EXPECT_EQ(Off(c, {0, 0}), 0u); // 2^-133 is the least above
    EXPECT_EQ(Off(c, {0x1p-133, 0x1p-133}), 1u);
}

TEST(Reference, IntegersAreExact)
{
    Program p("tensor program t in %a : i32[4] in %b : i32[4] "
              "out %c : i32[4] { %c = mul %a, %b }");
    int32_t a[] = {3, -7, 2147483647, 65536}, b[] = {5, 11, 2, 65536};
    Answer c = Reference(p, {a, b, nullptr}, 2, 0);

    EXPECT_EQ(c.value, (std::vector<double>{15, -77, -2, 0}));
    EXPECT_EQ(c.bound, std::vector<double>(4, 0.0));
}

// As a run has it: the largest i64, cut to the width of an i32.
TEST(Reference, AnIntegerThatNoI64HoldsIsCutFromTheLargest)
{
    Program p("tensor program t in %a : i32[2] out %c : i32[2] "
              "{ %c = scale %a by 1e300 }");
    int32_t a[] = {3, -3};
    Answer c = Reference(p, {a, nullptr}, 1, 0);

    EXPECT_EQ(c.value, (std::vector<double>{-1, 0}));
}

TEST(Reference, MarksChangeNothing)
{
    std::vector<float> a = Random(24, 6);
    Program dense("tensor program t in %a : f32[4, 6] out %c : f32[6] "
                  "{ %c = sum %a dim 0 }");
    Program sharded("tensor program t mesh tp=4 in %a : f32[4@tp, 6] "
                    "out %c : f32[6] { %c = sum %a dim 0 }");

    EXPECT_EQ(Reference(dense, {a.data(), nullptr}, 1, 0).value,
              Reference(sharded, {a.data(), nullptr}, 1, 3).value);
}

// What is divided by zero, or the log of it, is known where the operands are
// exact; where they are not, and zero lies within their bounds, it may be
// anything, and what is made of it too.
TEST(Reference, AroundZeroAnExactOperandIsJudgedAndAnotherIsNot)
{
    Program p("tensor program t in %a : f32[3] in %b : f32[3] "
              "out %q : f32[3] out %l : f32[3] out %u : f32[3] out %v : f32[3] "
              "temp %d : f32[3] temp %e : f32[3] temp %z : f32[3] "
              "{ %q = div %a, %b %l = log %b %d = exp %a %e = exp %a "
              "%z = sub %d, %e %u = div %a, %z %v = mul %u, %z }");
    std::vector<float> a = {1, -1, 0}, b = {0, 0, -2};
    std::vector<const void *> whole = {a.data(), b.data(), nullptr,
                                       nullptr,  nullptr,  nullptr};
    std::vector<double> none(3, NAN), zero(3, 0);
    Answer q = Reference(p, whole, 2, 0), l = Reference(p, whole, 3, 0);
    Answer u = Reference(p, whole, 4, 0), v = Reference(p, whole, 5, 0);

    EXPECT_EQ(Off(q, {INFINITY, -INFINITY, 0}), 0u);
    EXPECT_EQ(Off(q, {-INFINITY, 1e30, 1}), 3u);
    EXPECT_EQ(Off(l, {-INFINITY, -INFINITY, NAN}), 0u);
    EXPECT_EQ(Off(l, {-88, NAN, 0}), 3u);
    for (const Answer *any : {&u, &v}) {
        EXPECT_EQ(Off(*any, none), 0u);
        EXPECT_EQ(Off(*any, zero), 0u);
    }
}

TEST(Reference, AnInputThatIsMissingIsNamed)
{
    Program p("tensor program t inout %x : f32[2] { %x = scale %x by 2.0 }");
    const void *whole[] = {nullptr};
    hd_reference *reference = nullptr;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_reference_create(p.module, whole, p.diag, &reference),
              HD_ERROR_ARGUMENT);
    EXPECT_NE(p.Said().find("%x is NULL"), std::string::npos) << p.Said();
    hd_reference_destroy(reference);
}

TEST(Reference, ADeadlockIsAnErrorAndNeverAHang)
{
    Program p("host program d mesh tp=2 inout %x : f32[4] shared "
              "out %y : f32[4] shared "
              "{ send %x to 1 - tp %y = recv from 1 - tp }");
    std::vector<float> x = Random(4, 7);
    const void *whole[] = {x.data(), nullptr};
    hd_reference *reference = nullptr;

    EXPECT_EQ(hd_reference_create(p.module, whole, p.diag, &reference),
              HD_ERROR_INVALID);
    EXPECT_NE(p.Said().find("deadlock"), std::string::npos) << p.Said();
}

} // namespace
