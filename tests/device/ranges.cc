// Host programs whose views keep ranges: ranks have shares of different sizes,
// some none, which they gather, and rows, columns and what is summed over are
// computed with in pieces. Sizes are drawn anew in each run of the test.
#include <gtest/gtest.h>

#include "tests/device/options.h"
#include "tests/draw.h"
#include "tests/unit/ranks.h"

namespace
{

// T rows over the ranks in blocks of B: the last ones have fewer or none. D
// columns stand before the others of C, J before those of K. What is sent is
// waited for by its event, recorded where nothing is sent, too.
const char kProgram[] =
    "heddle 2 host program uneven mesh tp=2 streams 2 "
    "in %a : $[size tp @tp, B, K] in %w : $[K, C] in %b : $[C] "
    "inout %h : $[T, C] out %c : $[T, C] out %t : $[C, T] out %m : $[T] "
    "out %s : $[K] temp %g : $[T, K] shared temp %e : event[size tp] { "
    "let lo = min(tp * B, T) let n = max(0, min(B, T - tp * B)) "
    "%g[lo..lo + n] = copy %a[tp, 0..n] fork "
    "on stream 0 { for j in 1..size tp { let to = (tp + j) mod size tp "
    "let from = (tp - j) mod size tp let low = min(from * B, T) "
    "let m = max(0, min(B, T - from * B)) "
    "group { send %g[lo..lo + n] to to done %e[j] "
    "%g[low..low + m] = recv from from } } "
    "for j in 1..size tp { wait %e[j] } } "
    "on stream 1 { %h[lo..lo + n, 0..D] = "
    "add %h[lo..lo + n, 0..D], %h[lo..lo + n, C - D..C - D + D] "
    "if n > 0 { %s[0..J] = sum %g[lo..lo + n, 0..J] dim 0 "
    "%s[J..K] = max %g[lo..lo + n, J..K] dim 0 } "
    "else { %s = fill value 0.5 } } join "
    "for i in 0..size tp { let low = min(i * B, T) "
    "let m = min(B, T - low) "
    "%c[low..low + m, 0..D] = "
    "matmul %g[low..low + m], %w[:, 0..D] bias %b[0..D] act gelu "
    "%c[low..low + m, D..C] = matmul %g[low..low + m, 0..J], %w[0..J, D..C] "
    "%c[low..low + m, D..C] = "
    "matmul %g[low..low + m, J..K], %w[J..K, D..C] accumulate "
    "%t[:, low..low + m] = transpose %c[low..low + m] "
    "%m[low..low + m] = max %g[low..low + m, J..K] dim 1 } "
    "%h[lo..lo + n] = mul %h[lo..lo + n], %c[lo..lo + n] }";

struct Sizes {
    int ranks, block, rows, k, c, first_k, first_c;
};

Sizes Draw(std::mt19937 &random)
{
    Sizes s = {};

    s.ranks = std::min(Between(2, IsQuick() ? 3 : 5, random), MostRanks());
    s.block = Between(1, 9, random);
    // In half of the draws at least one rank has none.
    s.rows = Between(1, s.block * (s.ranks - int(random() % 2)), random);
    s.k = Between(2, 24, random);
    s.c = Between(2, 24, random);
    s.first_k = Between(1, s.k - 1, random);
    s.first_c = Between(1, s.c / 2, random);
    return s;
}

std::string TextOf(const Sizes &s)
{
    return Filled(kProgram, {{'B', s.block},
                             {'T', s.rows},
                             {'K', s.k},
                             {'C', s.c},
                             {'J', s.first_k},
                             {'D', s.first_c}});
}

TEST(Ranges, OfDifferentLengthsGiveTheDenseAnswer)
{
    const std::vector<const char *> dtypes =
        Choose<const char *>({"f32", "f16", "bf16", "f64"}, {"f32", "bf16"});
    std::mt19937 random(Seed());

    if (!HasDevices(2))
        return;
    for (const char *dtype : dtypes)
        for (int draw = 0; draw < (IsQuick() ? 1 : 3); draw++) {
            Sizes sizes = Draw(random);
            std::string text = TextOf(sizes);
            Module module = Parse(text, dtype, sizes.ranks);
            hd_diag *diag = hd_diag_create();

            SCOPED_TRACE(std::string(dtype) + ", " +
                         std::to_string(sizes.ranks) + " ranks: " + text);
            ASSERT_NE(module, nullptr);
            ASSERT_EQ(CheckHere(module.get(), diag), HD_OK)
                << hd_diag_text(diag);
            hd_diag_destroy(diag);
            Expected expected(module.get(), 2, Seed() + unsigned(draw));
            AllEndWell(Launch(sizes.ranks, [&](hd_group *group, hd_diag *said) {
                hd_session_options options = DeviceOptions();
                hd_session *session = nullptr;
                int rank = hd_group_rank(group);

                HD_TRY(hd_session_create(group, module.get(), &options, said,
                                         &session));
                for (int set = 0; set < 2; set++)
                    HD_TRY(RunAndCompare(session, module.get(), expected, set,
                                         rank, said));
                hd_session_destroy(session);
                return HD_OK;
            }));
        }
}

// Dimensions over ranks in blocks, by rows and columns and over two axes. What
// a rank has room for alone holds NaNs, which reach no result, and keeps them.
// There are T rows over the P ranks of tp and R over the Q ranks of dp.
const char kBlocks[] =
    "heddle 2 host program blocks mesh dp=Q, tp=2 streams 2 "
    "in %a : $[T@tp, K] in %w : $[K, C] in %x : $[R@dp, T@tp] "
    "inout %h : $[T@tp, C] out %c : $[T, C] out %p : $[C, T@tp] "
    "out %q : $[R@dp, T@tp] out %m : $[2, T@tp] temp %g : $[T, K] shared { "
    "%g[tp of P] = copy %a[tp of P] fork "
    "on stream 0 { for j in 1..P { let from = (tp - j) mod P group { "
    "send@tp %g[tp of P] to (tp + j) mod P "
    "%g[from of P] = recv@tp from from } } } "
    "on stream 1 { %h[tp of P] = matmul %a[tp of P], %w accumulate "
    "%p[:, tp of P] = transpose %h[tp of P] "
    "%q[dp of Q, tp of P] = scale %x[dp of Q, tp of P] by 2 "
    "%m[0, tp of P] = max %h[tp of P] dim 1 "
    "%m[1, tp of P] = sum %h[tp of P, 0 of 2] dim 1 } join "
    "for i in 0..P { %c[i of P] = matmul %g[i of P], %w act gelu } }";

TEST(Ranges, WhatARankHasRoomForAloneIsNobodys)
{
    const std::vector<const char *> dtypes =
        Choose<const char *>({"f32", "f16", "bf16", "f64"}, {"f32", "bf16"});
    std::mt19937 random(Seed());

    if (!HasDevices(2))
        return;
    for (const char *dtype : dtypes)
        for (int draw = 0; draw < (IsQuick() ? 1 : 4); draw++) {
            int most = std::min(IsQuick() ? 3 : 5, MostRanks());
            int dp = most >= 4 ? Between(1, 2, random) : 1;
            int tp = Between(2, most / dp, random);
            const std::pair<const char *, int> values[] = {
                {"P", tp},
                {"Q", dp},
                {"T", Between(1, 3 * tp + 1, random)},
                {"R", Between(1, 3 * dp + 1, random)},
                {"K", Between(1, 20, random)},
                {"C", Between(1, 20, random)}};
            std::string text = kBlocks;

            for (const auto &value : values)
                text = ReplacedWord(text, value.first,
                                    std::to_string(value.second));
            Module module = Parse(text, dtype, tp);
            hd_diag *diag = hd_diag_create();

            SCOPED_TRACE(std::string(dtype) + ": " + text);
            ASSERT_NE(module, nullptr);
            ASSERT_EQ(CheckHere(module.get(), diag), HD_OK)
                << hd_diag_text(diag);
            hd_diag_destroy(diag);
            Expected expected(module.get(), 2, Seed() + unsigned(draw));
            AllEndWell(Launch(dp * tp, [&](hd_group *group, hd_diag *said) {
                hd_session_options options = DeviceOptions();
                hd_session *session = nullptr;
                int rank = hd_group_rank(group);

                HD_TRY(hd_session_create(group, module.get(), &options, said,
                                         &session));
                for (int set = 0; set < 2; set++)
                    HD_TRY(RunAndCompare(session, module.get(), expected, set,
                                         rank, said));
                hd_session_destroy(session);
                return HD_OK;
            }));
        }
}

} // namespace
