// What data decides, drawn anew in each run: every element exactly as the
// reference has it, and what lies beside what a step names as it was.
#include <gtest/gtest.h>

#include "base/diag.h"
#include "tests/device/options.h"
#include "tests/draw.h"
#include "tests/unit/ranks.h"

namespace
{

using Change = std::function<void(Arguments *)>;

// Adds the program and four sets of its arguments, once it is proven.
void Add(const std::string &text, const std::string &dtype, int ranks,
         const Change &change, std::deque<Case> *cases)
{
    SCOPED_TRACE(text);
    Module tensor = Parse(text, dtype, ranks);
    Module host = Proven(tensor, Parse(text, dtype, ranks), HD_TRANSFER_BULK);

    cases->emplace_back(std::move(host), dtype + ": " + text, 4, Seed(), change,
                        std::move(tensor));
}

// ------------------------------------------------------------------- route

const char *const kRoutes[] = {
    "in %x : i32[B@tp, T, K] out %p : i32[B@tp, E, C] out %s : i32[B@tp, T, K] "
    "out %n : i32[B@tp, E] { %p, %s, %n = route %x }",
    "in %x : i32[T, K] out %p : i32[E, C] out %s : i32[T, K] out %n : i32[E] "
    "{ %p, %s, %n = route %x }",
    "in %x : i32[2, B@tp, T, K] inout %p : i32[3, 2, B@tp, E, C] "
    "inout %s : i32[2, B@tp, T, 2 * K] out %n : i32[2, B@tp, E] "
    "{ %p[1], %s[:, :, :, K..2 * K], %n = route %x }",
};

// All wish for one expert; some for experts that there are not; any numbers;
// fewer experts; all alike.
void SetExperts(size_t argument, int e, std::mt19937 &random,
                Arguments *arguments)
{
    int kind = Between(0, 4, random), one = Between(0, e - 1, random);

    for (size_t i = 0; i < arguments->Info(argument).elements; i++)
        arguments->Set(argument, i,
                       kind == 0   ? one
                       : kind == 1 ? Between(-2, e + 1, random)
                       : kind == 2 ? int(random())
                       : kind == 3 ? e - 1 - Between(0, e - 1, random) / 3
                                   : Between(0, e - 1, random));
}

TEST(Picks, RoutesOfAnyExpertsGiveTheDenseAnswer)
{
    std::mt19937 random(Seed());

    for (int ranks : Choose<int>({1, 2, 3, 8}, {2})) {
        std::deque<Case> cases;

        if (!HasDevices(ranks))
            continue;
        for (const char *form : kRoutes)
            for (int e : Choose<int>({1, 2, 8, 64, 257}, {8})) {
                int t = Between(1, 300, random), k = Between(1, 8, random);
                Extents extents = {
                    {'B', Between(1, 9, random)},
                    {'T', t},
                    {'K', k},
                    {'E', e},
                    {'C', random() % 3 == 0 ? t : Between(1, 40, random)}};

                Add(
                    Filled(std::string("heddle 2 tensor program routes mesh "
                                       "tp=1 ") +
                               form,
                           extents),
                    "i32", ranks,
                    [&](Arguments *arguments) {
                        SetExperts(0, e, random, arguments);
                    },
                    &cases);
            }
        RunCases(cases, RunSetsOf, ranks);
    }
}

// ------------------------------------------------------------------- top_k

const char *const kTops[] = {
    "in %x : $[B@tp, T, N] out %v : $[B@tp, T, K] out %i : i32[B@tp, T, K] "
    "{ %v, %i = top_k %x }",
    "in %x : $[N] out %v : $[K] out %i : i32[K] { %v, %i = top_k %x }",
    "in %x : $[B@tp, T, 2 * N] inout %v : $[B@tp, 2, T, K] "
    "inout %i : i32[B@tp, T, 2 * K] "
    "{ %v[:, 1], %i[:, :, K..2 * K] = top_k %x[:, :, N..2 * N] }",
};

// Many of them are equal, or none of them is a number.
void SetFew(std::mt19937 &random, Arguments *arguments)
{
    static const double few[] = {NAN, 64, -64, 0, -0.0, 1, 2, -3};
    int kind = Between(0, 3, random);

    for (size_t i = 0; i < arguments->Info(0).elements && kind > 0; i++)
        if (random() % 4 != 0 || kind == 3)
            arguments->Set(0, i, kind == 3 ? NAN : few[random() % 8]);
}

TEST(Picks, TheGreatestOfAnyRowsAreTheReferences)
{
    const std::vector<const char *> dtypes = Choose<const char *>(
        {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "u8"},
        {"f32", "bf16", "i32"});
    std::mt19937 random(Seed());

    for (int ranks : Choose<int>({1, 2, 3, 8}, {2})) {
        std::deque<Case> cases;

        if (!HasDevices(ranks))
            continue;
        for (const char *form : kTops)
            for (const char *dtype : dtypes) {
                int n = Between(1, 300, random);
                Extents extents = {{'B', Between(1, 9, random)},
                                   {'T', Between(1, 40, random)},
                                   {'N', n},
                                   {'K', Between(1, std::min(n, 9), random)}};

                Add(
                    Filled(std::string("heddle 2 tensor program tops mesh "
                                       "tp=1 ") +
                               form,
                           extents),
                    dtype, ranks,
                    [&](Arguments *arguments) { SetFew(random, arguments); },
                    &cases);
            }
        RunCases(cases, RunSetsOf, ranks);
    }
}

} // namespace
