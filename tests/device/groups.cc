// Grouped products: the rows of each group are data, drawn anew in each run.
// Rows of no group hold NaNs, which reach no result; what lies beside what the
// step names stays as it was, also where a count does not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/device/options.h"
#include "tests/draw.h"
#include "tests/unit/ranks.h"

namespace
{

struct Sizes {
    int groups, rows, k, n;
    int grain; // of scales
};

Sizes Draw(int groups, std::mt19937 &random)
{
    auto size = [&](int most) {
        int n = Between(1, most, random);

        return n == 3 ? most : n; // of views alone
    };

    return {groups, size(70), size(20), size(20), 4};
}

// Results lie between others; %x, %n and the result begin the arguments.
struct Form {
    const char *arguments, *step;
    bool keeps; // rows of no group, or matrices of none
    bool ta;
};

const Form kForms[] = {
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : $[3, R, N] "
     "in %w : $[E, K, N]",
     "%y[1] = matmul %x[1], %w groups %n[1]", false, false},
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : f32[3, R, N] "
     "in %w : $[2, E, N, K] inout %h : $[3, R, N] in %b : $[E, N]",
     "%y[1] = matmul %x[1], %w[1] tb scale 0.5 bias %b act silu aux %h[1] "
     "groups %n[1]",
     false, false},
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : $[R, 3, N] "
     "in %w : $[E, K, N] in %f : f32[1]",
     "%y[:, 1] = matmul %x[1], %w scale %f accumulate groups %n[1]", true,
     false},
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : $[R, 3, N] "
     "in %w : $[E, K, N] in %b : f32[E, 2, N]",
     "%y[:, 1] = matmul %x[1], %w bias %b[:, 1] accumulate groups %n[1]", true,
     false},
    {"in %x : $[R, 3, K] in %n : i32[E, 3] inout %y : $[3, R, N] "
     "in %w : $[E, 2, N, K] in %b : $[1, N]",
     "%y[1] = matmul %x[:, 1], %w[:, 1] tb bias %b act relu groups %n[:, 1] "
     "keep",
     true, false},
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : $[3, E, K, N] "
     "in %g : $[3, R, N]",
     "%y[1] = matmul %x[1], %g[1] ta scale 2 groups %n[1]", false, true},
    {"in %x : $[R, 3, K] in %n : i32[E, 3] inout %y : f32[E, 3, K, N] "
     "in %g : $[3, R, N]",
     "%y[:, 1] = matmul %x[:, 1], %g[1] ta accumulate groups %n[:, 1]", true,
     true},
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : $[3, R, N] "
     "in %w : $[E, N, K] in %s : f32[R, P] in %t : f32[E, Q, P]",
     "%y[1] = matmul %x[1], %w tb scale_a %s scale_b %t grain G act relu "
     "groups %n[1]",
     false, false},
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : f32[3, R, N] "
     "in %w : $[E, K, N] in %s : f32[R, 2, 1] in %t : f32[E, 2, 1, N]",
     "%y[1] = matmul %x[1], %w scale_a %s[:, 1] scale_b %t[:, 1] groups %n[1] "
     "keep",
     true, false},
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : $[3, E, K, N] "
     "in %g : $[3, R, N] in %s : f32[O, K] in %t : f32[R, 1]",
     "%y[1] = matmul %x[1], %g[1] ta scale_a %s scale_b %t grain G "
     "groups %n[1]",
     false, true},
};

std::string TextOf(const Form &form, const Sizes &s)
{
    return Filled(std::string("heddle 2 host program grouped ") +
                      form.arguments + " { " + form.step + " }",
                  {{'R', s.rows},
                   {'K', s.k},
                   {'N', s.n},
                   {'E', s.groups},
                   {'G', s.grain},
                   {'O', (s.rows + s.grain - 1) / s.grain},
                   {'P', (s.k + s.grain - 1) / s.grain},
                   {'Q', (s.n + s.grain - 1) / s.grain}});
}

// Counts that fit: of all rows or of some, of one group, or of none.
std::vector<int> Counts(const Sizes &s, std::mt19937 &random)
{
    std::vector<int> counts(size_t(s.groups), 0);
    int kind = Between(0, 4, random);
    int left = kind == 0 ? 0 : kind == 1 ? Between(0, s.rows, random) : s.rows;
    int only = Between(0, s.groups - 1, random);

    for (; left > 0; left--)
        counts[kind == 2 ? size_t(only)
                         : size_t(Between(0, s.groups - 1, random))]++;
    return counts;
}

// The elements of index 1 of the dimension of three, in order.
std::vector<size_t> Picked(const hd_argument &info)
{
    std::vector<size_t> places;
    int dim = 0;
    size_t inner = 1;

    while (info.extent[dim] != 3)
        dim++;
    for (int d = info.ndims - 1; d > dim; d--)
        inner *= size_t(info.extent[d]);
    for (size_t i = 0; i < info.elements; i++)
        if (i / inner % size_t(info.extent[dim]) == 1)
            places.push_back(i);
    return places;
}

void SetPicked(Arguments *arguments, size_t argument, double value,
               size_t from = 0)
{
    const hd_argument &info = arguments->Info(argument);
    std::vector<size_t> places = Picked(info);

    for (size_t i = from; i < places.size(); i++)
        arguments->Set(argument, places[i], value);
}

// Rows of no group, and what is written whole, are NaNs.
void Poison(const Form &form, const Sizes &s, size_t rows, Arguments *arguments)
{
    for (size_t i = 0; i < arguments->Count(); i++) {
        std::string name = arguments->Info(i).name;

        if (name == "x")
            SetPicked(arguments, i, NAN, rows * size_t(s.k));
        if (name == "g")
            SetPicked(arguments, i, NAN, rows * size_t(s.n));
        if (name == "h" || (name == "y" && !form.keeps))
            SetPicked(arguments, i, NAN);
    }
}

void SetCounts(const std::vector<int> &counts, Arguments *arguments)
{
    std::vector<size_t> places = Picked(arguments->Info(1));

    for (size_t g = 0; g < counts.size(); g++)
        arguments->Set(1, places[g], counts[g]);
}

hd_session_options WithGraphs(bool graph)
{
    hd_session_options options = DeviceOptions();

    options.graph = graph;
    return options;
}

// Adds a program of sets of counts that fit, and of other random arguments.
void Add(const Sizes &sizes, const Form &form, const char *dtype, int sets,
         std::mt19937 &random, std::deque<Case> *cases)
{
    std::string text = TextOf(form, sizes);

    cases->emplace_back(
        Read(text, dtype), std::string(dtype) + ": " + text, sets, Seed(),
        [&](Arguments *arguments) {
            std::vector<int> counts = Counts(sizes, random);

            SetCounts(counts, arguments);
            Poison(form, sizes,
                   size_t(std::accumulate(counts.begin(), counts.end(), 0)),
                   arguments);
        });
}

TEST(Groups, OfAnyCountsGiveTheDenseAnswer)
{
    const std::vector<const char *> dtypes = Choose<const char *>(
        {"f32", "f16", "bf16", "f64", "f8e4m3"}, {"f32", "bf16"});
    std::mt19937 random(Seed());
    std::deque<Case> cases;

    for (int groups : Choose<int>({1, 2, 8, 32, 64, 257}, {2, 64}))
        for (const Form &form : kForms)
            Add(Draw(groups, random), form, dtypes[random() % dtypes.size()], 6,
                random, &cases);
    RunCases(cases, RunSetsOf);
}

// As large as tiles of tensor cores are, whose scales are of all slices of the
// depth or of each.
const Form kBytes[] = {
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : bf16[3, R, N] "
     "in %w : f8e5m2[E, N, K] in %s : f32[R, P] in %t : f32[E, Q, P]",
     "%y[1] = matmul %x[1], %w tb scale_a %s scale_b %t grain G groups %n[1]",
     false, false},
    {"in %x : $[3, R, K] in %n : i32[3, E] inout %y : f32[3, R, N] "
     "in %w : $[E, N, K] in %s : f32[R, 1] in %t : f32[1, N, 1]",
     "%y[1] = matmul %x[1], %w tb scale_a %s scale_b %t accumulate "
     "groups %n[1]",
     true, false},
};

TEST(Groups, OfEightBitsInTilesGiveTheDenseAnswer)
{
    std::mt19937 random(Seed());
    std::deque<Case> cases;

    for (const Form &form : kBytes)
        Add({4, 150 + int(random() % 50), 272, 136, 128}, form, "f8e4m3", 2,
            random, &cases);
    RunCases(cases, RunSetsOf);
}

TEST(Groups, ReplaysWithOtherCountsAreAsRunsWithoutGraphs)
{
    std::mt19937 random(Seed());
    std::deque<Case> cases;

    if (OnCpu())
        return;
    for (const Form &form : kForms)
        Add(Draw(8, random), form, "f32", 8, random, &cases);
    RunCases(cases, [](hd_group *group, const Case &each, hd_diag *diag) {
        std::vector<uint64_t> replayed, eager;

        HD_TRY(RunSets(group, each.module.get(), each.expected,
                       WithGraphs(true), diag, &replayed));
        HD_TRY(RunSets(group, each.module.get(), each.expected,
                       WithGraphs(false), diag, &eager));
        return replayed == eager
                   ? HD_OK
                   : hd_fail(diag, HD_ERROR_INVALID, "a replay differs");
    });
}

// One count is negative or beyond what is left, sometimes two: the first is
// told.
struct Miscount {
    std::vector<int> counts;
    int group, left;
};

Miscount DrawMiscount(const Sizes &s, std::mt19937 &random)
{
    Miscount m = {Counts(s, random), Between(0, s.groups - 1, random), s.rows};
    int &wrong = m.counts[size_t(m.group)];

    for (int g = 0; g < m.group; g++)
        m.left -= m.counts[size_t(g)];
    switch (Between(0, 3, random)) {
    case 0:
        wrong = -Between(1, 100, random);
        break;
    case 1:
        wrong = m.left + Between(1, 100, random);
        break;
    case 2:
        wrong = INT_MIN;
        break;
    default:
        wrong = INT_MAX;
        break;
    }
    if (m.group + 1 < s.groups && random() % 2 == 0)
        m.counts.back() = -7;
    return m;
}

std::string Told(const Sizes &s, const Miscount &m)
{
    return "group " + std::to_string(m.group) + " of %n has " +
           std::to_string(m.counts[size_t(m.group)]) +
           " rows; it may have 0 to " + std::to_string(m.left) +
           ", what the groups before it leave of " + std::to_string(s.rows);
}

TEST(Groups, CountsThatDoNotFitAreClampedAndTold)
{
    std::mt19937 random(Seed());
    std::deque<Case> cases;

    for (int groups : Choose<int>({1, 2, 8, 64, 257}, {2, 8}))
        for (const Form &form : kForms)
            for (int draw = 0; draw < (IsQuick() ? 1 : 3); draw++) {
                Sizes s = Draw(groups, random);
                Miscount m = DrawMiscount(s, random);

                cases.emplace_back(Read(TextOf(form, s), "f32"),
                                   TextOf(form, s), 1, Seed(),
                                   [&](Arguments *arguments) {
                                       SetCounts(m.counts, arguments);
                                   });
                cases.back().told = Told(s, m);
            }
    RunCases(cases, RunMiscounted);
}

} // namespace
