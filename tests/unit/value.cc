// What two programs make alike and what they do not: pairs of them, compared
// with each other.
#include "program.h"

namespace
{

constexpr char head[] = " program p mesh tp=2\n"
                        "in %a : f32[4, 8] in %b : f32[4, 8] in %c : f32[4, 8]"
                        " in %i : i32[4] out %y : f32[4, 8] out %j : i32[4]"
                        " temp %t : f32[4, 8] temp %u : f32[4, 8]"
                        " temp %h : bf16[4, 8] temp %d : f64[4, 8]"
                        " temp %k : i32[4] temp %g : f16[4, 8]"
                        " temp %m : i32[4, 8]\n";

// Whether the host's body makes what the tensor's does.
bool Same(const std::string &host, const std::string &tensor,
          const std::string &j = " %j = copy %i ", std::string other = "")
{
    Program h("host" + (head + ("{ " + host + j + "}")));
    Program t("tensor" +
              (head + ("{ " + tensor + (other.empty() ? j : other) + "}")));
    hd_check_options how = hd_check_defaults();

    EXPECT_EQ(h.status, HD_OK) << h.Said();
    EXPECT_EQ(t.status, HD_OK) << t.Said();
    how.against = t.module;
    hd_status status = hd_check(h.module, &how, h.diag);
    EXPECT_TRUE(status == HD_OK || h.Said().find("HD0901") != std::string::npos)
        << h.Said();
    return status == HD_OK;
}

// As the text form has it, to the last bit.
std::string Exact(double number)
{
    char text[64];

    snprintf(text, sizeof text, "%.17g", number);
    return text;
}

TEST(Value, SumsMayBeInAnyOrderAndNoTermTwice)
{
    EXPECT_TRUE(Same("%t = add %c, %a %y = add %b, %t", "%y = sum %a, %b, %c"));
    EXPECT_FALSE(
        Same("%t = add %a, %a %y = add %b, %t", "%y = sum %a, %b, %c"));
    EXPECT_FALSE(Same("%y = add %b, %a", "%y = sum %a, %b, %c"));
}

// A sum that is rounded is taken for exact, as it is where it is stored; what
// is no sum, or a sum that is cast down, is another value.
TEST(Value, SumsOfF32AndANarrowerDtypeAreSums)
{
    const std::string head = " program t in %a : bf16[8] in %b : bf16[8] "
                             "temp %f : f32[8] temp %g : f32[8] "
                             "out %y : bf16[8] ";
    auto same = [&head](const char *text) {
        Program h("host" + head + "{ " + text + " }");
        Program t("tensor" + head + "{ %y = sum %a, %b, %b }");
        hd_check_options how = hd_check_defaults();

        EXPECT_EQ(h.status, HD_OK) << h.Said();
        how.against = t.module;
        return hd_check(h.module, &how, h.diag);
    };

    EXPECT_EQ(same("%f = sum %a, %b %y = sum %f, %b"), HD_OK);
    EXPECT_EQ(same("%f = copy %b %g = sum %f, %b %y = sum %g, %a"), HD_OK);
    EXPECT_NE(same("%f = sum %a, %b %y = sum %f, %a"), HD_OK);
    EXPECT_NE(same("%f = sum %a, %b, %b %y = copy %f"), HD_OK);
}

// Of n numbers the squares of what is less than their mean, and what a sum of
// squares less n squares of the mean is. Of n + 1 it is another one.
TEST(Value, ProductsOfSumsAreThoseOfAsManyNumbersAsThereAre)
{
    for (int n : {1, 2, 3, 4, 5, 64, 1000}) {
        auto program = [n](const char *kind, double by, const char *body) {
            std::string rows = std::to_string(n);

            return std::string(kind) + " program p in %x : f64[" + rows +
                   "] temp %s : f64[1] temp %m : f64[1] temp %d : f64[" + rows +
                   "] temp %q : f64[" + rows +
                   "] temp %r : f64[1]"
                   " temp %t : f64[1] temp %u : f64[1] out %y : f64[1] {"
                   " %s = sum %x dim 0 " +
                   body + Exact(by) + " }";
        };
        const char *squares = "%q = mul %x, %x %r = sum %q dim 0"
                              " %t = scale %r by ";
        Program t(program("tensor", n,
                          (std::string(squares) + Exact(n) +
                           " %u = mul %s, %s %m = sub %t, %u"
                           " %y = scale %m by ")
                              .c_str()));

        for (int other : {n, n + 1}) {
            // n d is n x less the sum of x: n sums of squares of that
            Program h(program("host", 1,
                              ("%d = scale %x by " + Exact(other) +
                               " %q = sub %d, %s %q = mul %q, %q"
                               " %r = sum %q dim 0 %t = copy %r"
                               " %u = copy %t %y = scale %u by ")
                                  .c_str()));
            hd_check_options how = hd_check_defaults();

            how.against = t.module;
            ASSERT_EQ(t.status, HD_OK) << t.Said();
            ASSERT_EQ(h.status, HD_OK) << h.Said();
            EXPECT_EQ(hd_check(h.module, &how, h.diag) == HD_OK, other == n)
                << n << h.Said();
        }
    }
}

TEST(Value, OfACallMayBeOne)
{
    const std::string head = " program one in %x : f32[] out %y : f32[] ";
    Program t("tensor" + head + "{ %y = call \"norm\" %x }");

    for (const char *name : {"norm", "mean"}) {
        Program h("host" + head + "{ %y = call \"" + name + "\" %x }");
        hd_check_options how = hd_check_defaults();

        how.against = t.module;
        ASSERT_EQ(t.status, HD_OK) << t.Said();
        ASSERT_EQ(h.status, HD_OK) << h.Said();
        EXPECT_EQ(hd_check(h.module, &how, h.diag) == HD_OK,
                  std::string(name) == "norm")
            << h.Said();
    }
}

TEST(Value, MaximaMayBeInAnyOrderAndAreNoSums)
{
    EXPECT_TRUE(Same("%t = max %c, %a %y = max %b, %t", "%y = max %a, %b, %c"));
    EXPECT_TRUE(Same("%t = max %c, %a %u = max %b, %c %u = max %b, %a"
                     " %u = copy %b %y = max %u, %t",
                     "%y = max %a, %b, %c"));
    EXPECT_FALSE(
        Same("%t = max %c, %a %y = add %b, %t", "%y = max %a, %b, %c"));
    EXPECT_FALSE(Same("%t = max %a, %b %u = max %b, %c %y = add %t, %u",
                      "%t = max %a, %b %u = max %b, %c %y = max %t, %u"));
    EXPECT_FALSE(Same("%y = max %a, %b", "%y = max %a, %b, %c"));
}

TEST(Value, RanksMayAllTakeAMaximumOrAMinimum)
{
    auto host = [](const char *key) {
        return std::string("host program p mesh tp=2 in %x : f32[2@tp, 8]"
                           " temp %t : f32[8] shared out %y : f32[8] {\n"
                           "%t = copy %x[tp] %y = all_reduce %t ") +
               key + " }";
    };

    for (std::string op : {"sum", "max", "min"}) {
        Program t("tensor program p mesh tp=2 in %x : f32[2@tp, 8]"
                  " out %y : f32[8] { %y = " +
                  op + " %x dim 0 }");
        hd_check_options how = hd_check_defaults();

        how.against = t.module;
        for (std::string key : {"", "max", "min"}) {
            Program p(host(key.c_str()));

            EXPECT_EQ(hd_check(p.module, &how, p.diag),
                      op == (key.empty() ? "sum" : key) ? HD_OK
                                                        : HD_ERROR_INVALID)
                << op << ", " << key << ": " << p.Said();
        }
    }
}

// The dimension over ranks is joined with no other one.
TEST(Value, WhatIsGatheredHasAPieceOfEachRank)
{
    auto host = [](const char *op) {
        return std::string("host program p mesh tp=4 in %x : f32[4@tp, 8]"
                           " temp %s : f32[8] temp %g : f32[4, 8] shared"
                           " out %y : f32[8] {\n"
                           "%s = copy %x[tp] %g = all_gather %s %y = ") +
               op + " %g dim 0 }";
    };
    Program t("tensor program p mesh tp=4 in %x : f32[4@tp, 8]"
              " out %y : f32[8] { %y = sum %x dim 0 }");
    Program sum(host("sum")), max(host("max"));
    hd_check_options how = hd_check_defaults();

    how.against = t.module;
    EXPECT_EQ(hd_check(sum.module, &how, sum.diag), HD_OK) << sum.Said();
    EXPECT_EQ(hd_check(max.module, &how, max.diag), HD_ERROR_INVALID);
}

TEST(Value, FactorsArePulledOutAndActivationsAreNot)
{
    EXPECT_TRUE(Same("%t = scale %a by 0.3 %u = scale %b by 0.3"
                     " %y = add %t, %u",
                     "%t = add %a, %b %y = scale %t by 0.3"));
    EXPECT_FALSE(Same("%t = relu %a %u = relu %b %y = add %t, %u",
                      "%t = add %a, %b %y = relu %t"));
    EXPECT_FALSE(Same("%y = gelu %a", "%y = silu %a"));
    EXPECT_TRUE(Same("%t = mul %a, %b %y = mul %t, %c",
                     "%t = mul %b, %c %y = mul %a, %t"));
}

TEST(Value, FactorsThatDifferByAPowerOfTwoAreNotAlike)
{
    std::string none = "%y = copy %a";
    double factor = 1;

    for (int e = 1; e <= 126; e++) {
        factor *= 2;
        EXPECT_FALSE(Same("%y = scale %a by " + Exact(factor), none)) << e;
        EXPECT_FALSE(Same("%y = scale %a by " + Exact(1 / factor), none)) << e;
        EXPECT_TRUE(Same("%t = scale %a by " + Exact(factor) +
                             " %y = scale %t by " + Exact(1 / factor),
                         none))
            << e;
    }
    EXPECT_TRUE(Same("%y = scale %a by 3", "%y = sum %a, %a, %a"));
    EXPECT_TRUE(Same("%y = scale %a by -0.75", "%t = scale %a by -3"
                                               " %y = scale %t by 0.25"));
}

TEST(Value, OnlyCastsThatLoseSomethingAreSeen)
{
    EXPECT_TRUE(Same("%d = copy %a %y = copy %a", "%y = copy %a"));
    EXPECT_FALSE(Same("%h = copy %a %y = copy %h", "%y = copy %a"));
    EXPECT_FALSE(Same("%g = copy %a %m = copy %g %d = copy %m %y = copy %d",
                      "%g = copy %a %d = copy %g %y = copy %d"));
    EXPECT_TRUE(Same("%h = copy %a %t = copy %h %y = copy %t",
                     "%h = copy %a %y = copy %h"));
}

TEST(Value, IntegersDropTheFractionOfEachProduct)
{
    EXPECT_TRUE(Same("%y = copy %a", "%y = copy %a",
                     " %k = scale %i by 2 %j = scale %k by 3 ",
                     " %j = scale %i by 6 "));
    EXPECT_FALSE(Same("%y = copy %a", "%y = copy %a",
                      " %k = scale %i by 0.5 %j = scale %k by 0.5 ",
                      " %j = scale %i by 0.25 "));
    EXPECT_FALSE(Same("%y = copy %a", "%y = copy %a", " %j = scale %i by 0.5 ",
                      " %j = scale %i by 0.25 "));
}

} // namespace
