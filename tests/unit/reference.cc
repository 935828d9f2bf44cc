#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/program.h"

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
    hd_argument argument = {};
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
    std::random_device device;
    unsigned seed = device();
    std::mt19937_64 random(seed);
    std::string type = dtype;
    Program p("tensor program t in %a : " + type + "[3, 64] in %b : " + type +
              "[3, 64] out %s : " + type + "[64] out %m : " + type +
              "[64] out %p : " + type + "[3, 64] out %c : " + type +
              "[3, 64] { %s = sum %a dim 0 %m = max %a dim 0 "
              "%p = mul %a, %b %c = add %a, %b }");
    std::vector<Int> a(192), b(192);

    SCOPED_TRACE("seed " + std::to_string(seed));
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

// A change of one element of an operand moves results by more than their bound.
TEST(Reference, AnErrorInOneElementExceedsTheBound)
{
    Program p("tensor program t in %a : f32[4, 1024] in %b : f32[1024, 4] "
              "out %c : f32[4, 4] { %c = matmul %a, %b }");
    std::vector<float> a = Random(4096, 3), b = Random(4096, 4);
    Answer right = Reference(p, {a.data(), b.data(), nullptr}, 2, 0);

    a[1024 + 17] += 0.05f;
    Answer wrong = Reference(p, {a.data(), b.data(), nullptr}, 2, 0);
    for (int j = 0; j < 4; j++) {
        EXPECT_GT(std::fabs(wrong.value[4 + j] - right.value[4 + j]),
                  right.bound[4 + j]);
        EXPECT_EQ(wrong.value[j], right.value[j]); // row 0 is untouched
    }
}

TEST(Reference, OneStepOfTheFormatExceedsTheBound)
{
    Program p("tensor program t in %a : f32[512] out %c : bf16[512] "
              "{ %c = copy %a }");
    std::vector<float> a = Random(512, 5);
    Answer c = Reference(p, {a.data(), nullptr}, 1, 0);
    std::vector<uint16_t> stored(512);
    std::vector<double> exact(a.begin(), a.end()), near(512), far(512);

    hd_dtype_store(HD_BF16, exact.data(), 512, stored.data());
    hd_dtype_load(HD_BF16, stored.data(), 512, near.data());
    for (uint16_t &bits : stored)
        bits += 2;
    hd_dtype_load(HD_BF16, stored.data(), 512, far.data());
    for (int i = 0; i < 512; i++) {
        EXPECT_LE(std::fabs(near[i] - c.value[i]), c.bound[i]);
        EXPECT_GT(std::fabs(far[i] - c.value[i]), c.bound[i]);
    }
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

TEST(Reference, AnInputThatIsMissingIsNamed)
{
    Program p("tensor program t inout %x : f32[2] { %x = scale %x by 2.0 }");
    const void *whole[] = {nullptr};
    hd_reference *reference = nullptr;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_reference_create(p.module, whole, p.diag, &reference),
              HD_ARGUMENT);
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
              HD_INVALID);
    EXPECT_NE(p.Said().find("deadlock"), std::string::npos) << p.Said();
}

} // namespace
