// Dimensions of which data says how many indices there are. What lies behind
// them holds NaNs, which reach no result. The answers are held to those of the
// same program without counts, whose operands have there what changes nothing:
// looked up element by element, apart from what tells kernels and reference
// where a slab lies.
#include <gtest/gtest.h>

#include <cmath>

#include <heddle/verify.h>

#include "tests/device/options.h"
#include "tests/draw.h"
#include "tests/unit/ranks.h"

namespace
{

// %n is the first argument. Of an argument and its dimension that is counted,
// "x1", the ones ahead are those of %n, or of its index 1 where it has one
// more.
struct Form {
    const char *arguments, *step;
    std::vector<const char *> counted; // operands: poisoned
    std::vector<const char *> zeros; // results that are zero where they are not
    double nothing; // what operands have there in the program without counts
};

const Form kForms[] = {
    {"in %n : i32[E] in %x : $[E, C by %n, K] in %b : $[K] "
     "out %y : $[E, C by %n, K]",
     "%y = add %x, %b",
     {"x1"},
     {"y1"},
     0},
    {"in %n : i32[E, 2] in %x : $[E, 2, C by %n, K] "
     "out %y : $[E, 2, C by %n, K]",
     "%y = neg %x",
     {"x2"},
     {"y2"},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n, K] out %y : f64[E, C, K]",
     "%y = copy %x",
     {"x1"},
     {"y1"},
     0},
    {"in %n : i32[E] in %x : $[E, C, K] out %y : $[E, C by %n, K]",
     "%y = copy %x",
     {"x1"},
     {"y1"},
     0},
    {"in %n : i32[3, E] in %x : $[3, E, C by %n, K] in %z : $[E, C, K] "
     "out %y : $[E, C, K]",
     "%y = sum %z, %x[1], %z",
     {"x2", "z1"},
     {"y1"},
     0},
    {"in %n : i32[E] in %x : $[E, N, K] in %i : i32[E, C] "
     "out %y : $[E, C by %n, K]",
     "%y = take %x, %i dim 1",
     {},
     {"y1"},
     0},
    {"in %n : i32[E] inout %x : $[E, C by %n, K]",
     "%x = relu %x",
     {"x1"},
     {"x1"},
     0},
    {"in %n : i32[] in %x : $[C by %n, K] out %y : u8[C by %n, K] "
     "in %z : $[1, K]",
     "%y = lt %x, %z",
     {"x0"},
     {"y0"},
     0},
    {"in %n : i32[E] in %x : $[E, K, C by %n] in %m : u8[C] "
     "out %y : $[E, K, C by %n]",
     "%y = select %m, %x, %x",
     {"x2"},
     {"y2"},
     0},
    {"in %n : i32[E] out %y : $[E, C by %n]",
     "%y = fill value 3",
     {},
     {"y1"},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n, K] out %y : $[E, K, C by %n]",
     "%y = transpose %x",
     {"x1"},
     {"y2"},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n, K] out %y : $[C, E, K]",
     "%y = transpose %x dim0 0 dim1 1",
     {"x1"},
     {},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n, K] out %y : $[E, K]",
     "%y = sum %x dim 1",
     {"x1"},
     {},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n, K] out %y : $[E, 1, K]",
     "%y = max %x dim 1",
     {"x1"},
     {},
     -INFINITY},
    {"in %n : i32[3, E] in %x : $[3, E, C by %n, K] out %y : $[E, K]",
     "%y = min %x[1] dim 1",
     {"x2"},
     {},
     INFINITY},
    {"in %n : i32[E] in %x : i32[E, C by %n] out %y : i32[E]",
     "%y = max %x dim 1",
     {"x1"},
     {},
     INT_MIN},
    {"in %n : i32[E] in %x : $[E, C by %n, K] out %y : $[C, K]",
     "%y = sum %x dim 0",
     {"x1"},
     {},
     0},
    {"in %n : i32[2, E] in %x : $[2, E, C by %n, K] out %y : $[2, 1, C, K]",
     "%y = max %x dim 1",
     {"x2"},
     {},
     -INFINITY},
    {"in %n : i32[E, 2] in %x : i32[E, 2, K, C by %n] out %y : i32[2, K, C]",
     "%y = max %x dim 0",
     {"x3"},
     {},
     INT_MIN},
    {"in %n : i32[E] in %x : $[E, C by %n] out %y : f64[C]",
     "%y = sum %x dim 0",
     {"x1"},
     {},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n, K] out %y : $[E, C by %n]",
     "%y = sum %x dim 2",
     {"x1"},
     {"y1"},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n, K] in %w : $[E, K, N] "
     "out %y : $[E, C by %n, N]",
     "%y = matmul %x, %w",
     {"x1"},
     {"y1"},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n, K] in %w : $[E, N, K] "
     "out %y : $[E, C, N] out %h : f32[E, C, N] in %b : $[E, 1, N]",
     "%y = matmul %x, %w tb scale 0.5 bias %b act gelu aux %h",
     {"x1"},
     {"y1", "h1"},
     0},
    {"in %n : i32[3, E] in %x : $[3, E, C by %n, K] in %z : $[E, C, N] "
     "out %y : f32[E, K, N]",
     "%y = matmul %x[1], %z ta",
     {"x2", "z1"},
     {},
     0},
    {"in %n : i32[E] in %x : $[E, K, C by %n] in %w : $[E, C, N] "
     "inout %y : $[E, K, N]",
     "%y = matmul %x, %w accumulate",
     {"x2", "w1"},
     {},
     0},
    {"in %n : i32[E, 3] in %x : $[E, 3, C by %n, 7, K] in %w : $[K, N] "
     "out %y : $[E, C, 7, N]",
     "%y = matmul %x[:, 1], %w",
     {"x2"},
     {},
     0},
    {"in %n : i32[] in %x : $[C by %n, K] in %w : $[K, N] "
     "inout %y : $[C, N]",
     "%y = matmul %x, %w accumulate",
     {"x0"},
     {},
     0},
    {"in %n : i32[E] in %x : $[E, C by %n] in %w : $[C, N] out %y : $[E, N]",
     "%y = matmul %x, %w",
     {"x1"},
     {},
     0},
};

std::string TextOf(const Form &form, std::mt19937 &random)
{
    Extents extents;

    for (const auto &most :
         {std::pair<char, int>('E', 5), {'C', 40}, {'K', 20}, {'N', 20}})
        extents[most.first] = Between(1, most.second, random);
    return Filled(std::string("heddle 2 host program counted ") +
                      form.arguments + " { " + form.step + " }",
                  extents);
}

std::string WithoutCounts(const std::string &text)
{
    return Replaced(text, " by %n", "");
}

size_t Find(const Arguments &arguments, char name)
{
    size_t i = 0;

    while (*arguments.Info(i).name != name)
        i++;
    return i;
}

// The elements that are not counted of the argument that `counted` names.
std::vector<size_t> Rest(const Arguments &arguments, const char *counted)
{
    const hd_argument &info = arguments.Info(Find(arguments, *counted));
    const hd_argument &n = arguments.Info(0);
    int dim = counted[1] - '0';
    bool picked = n.ndims > dim;
    size_t lead = picked ? n.elements / size_t(n.extent[0]) : 0;
    size_t inner = 1, slab = info.elements;
    std::vector<double> counts(n.elements);
    std::vector<size_t> rest;

    hd_dtype_load(HD_DTYPE_I32, arguments.Whole()[0], n.elements,
                  counts.data());
    for (int d = 0; d < n.ndims - picked; d++)
        slab /= size_t(info.extent[d]);
    for (int d = dim + 1; d < info.ndims; d++)
        inner *= size_t(info.extent[d]);
    for (size_t i = 0; i < info.elements; i++)
        if (double(i / inner % size_t(info.extent[dim])) >=
            counts[lead + i / slab])
            rest.push_back(i);
    return rest;
}

// NaNs; of integers what would be found.
void Poison(const Form &form, Arguments *arguments)
{
    for (const char *counted : form.counted) {
        size_t i = Find(*arguments, *counted);
        bool whole = arguments->Info(i).dtype == HD_DTYPE_I32;

        for (size_t element : Rest(*arguments, counted))
            arguments->Set(i, element, whole ? INT_MAX : NAN);
    }
}

// What the reference makes of the program without counts, and zeros.
void ExpectAnswers(const Form &form, const Module &plain,
                   const Expected &expected)
{
    Arguments arguments = expected.Inputs(0);
    hd_reference *made = nullptr;

    for (const char *counted : form.counted)
        for (size_t element : Rest(arguments, counted))
            arguments.Set(Find(arguments, *counted), element, form.nothing);
    ASSERT_EQ(hd_reference_create(plain.get(), arguments.Whole().data(),
                                  nullptr, &made),
              HD_OK);
    for (size_t i = 0; i < arguments.Count(); i++) {
        const hd_argument &info = arguments.Info(i);
        std::vector<double> want(info.elements), got(info.elements);

        if (info.role == HD_ROLE_IN)
            continue;
        hd_reference_local(made, i, 0, want.data(), nullptr);
        hd_reference_local(expected.Reference(0), i, 0, got.data(), nullptr);
        for (const char *zeros : form.zeros)
            if (*zeros == *info.name)
                for (size_t element : Rest(arguments, zeros))
                    want[element] = 0;
        EXPECT_EQ(want, got) << info.name;
    }
    hd_reference_destroy(made);
}

TEST(Counts, WhatIsNotCountedReachesNoResult)
{
    const std::vector<const char *> dtypes = {"f32", "f16", "bf16", "f64"};
    std::mt19937 random(Seed());
    std::deque<Case> cases;

    for (const Form &form : kForms)
        for (int draw = 0; draw < (IsQuick() ? 2 : 6); draw++) {
            const char *dtype = dtypes[random() % dtypes.size()];
            std::string text = TextOf(form, random);

            SCOPED_TRACE(std::string(dtype) + ": " + text);
            Module plain = Read(WithoutCounts(text), dtype);
            cases.emplace_back(
                Read(text, dtype), std::string(dtype) + ": " + text, 1,
                unsigned(random()),
                [&](Arguments *arguments) { Poison(form, arguments); });
            ExpectAnswers(form, plain, cases.back().expected);
        }
    RunCases(cases, RunSetsOf);
}

// Runs in a row, each with other counts in the same memory, which replays of a
// graph read anew.
TEST(Counts, AreThoseOfTheirRun)
{
    std::mt19937 random(Seed());
    Module module = Read(
        "heddle 2 host program counted in %n : i32[5] in %x : f32[5, 9 by %n, "
        "8] in %w : f32[5, 8, 6] temp %h : f32[5, 9 by %n, 6] "
        "out %y : f32[5, 9, 6] out %s : f32[5, 6] "
        "{ %h = matmul %x, %w %y = relu %h %s = sum %h dim 1 }",
        "f32");
    Expected expected(module.get(), 6, unsigned(random()));

    AllEndWell(Launch(1, [&](hd_group *group, hd_diag *said) {
        return RunSets(group, module.get(), expected, DeviceOptions(), said);
    }));
}

// The first count that does not fit is told, with its indices; the run goes on
// with what it is taken for.
// `picks` is the dimension of %n of which the step picks index 1 of 3, or -1.
std::string Spoil(Arguments *arguments, int picks, std::mt19937 &random)
{
    const hd_argument &n = arguments->Info(0);
    size_t slabs = picks < 0 ? n.elements : n.elements / 3;
    size_t at = random() % slabs;
    auto place = [&](size_t i) {
        return picks < 0 ? i : picks == 0 ? slabs + i : 3 * i + 1;
    };
    double wrong[] = {-1 - double(random() % 100),
                      double(n.counted + 1 + int64_t(random() % 100)), INT_MIN,
                      INT_MAX};
    double count = wrong[random() % 4];

    arguments->Set(0, place(at), count);
    if (at + 1 < slabs && random() % 2 == 0)
        arguments->Set(0, place(slabs - 1), -7);
    std::string index = std::to_string(
        picks < 0 && n.ndims > 1 ? at / size_t(n.extent[1]) : at);
    if (picks < 0 && n.ndims > 1)
        index += ", " + std::to_string(at % size_t(n.extent[1]));
    return "count " + (n.ndims > 0 ? "[" + index + "] " : std::string()) +
           "of %n is " + std::to_string(int(count)) + "; dimension ";
}

TEST(Counts, ThatDoNotFitAreClampedAndTold)
{
    std::mt19937 random(Seed());
    std::deque<Case> cases;

    for (const Form &form : kForms)
        for (int draw = 0; draw < (IsQuick() ? 1 : 3); draw++) {
            std::string counts(form.arguments, strcspn(form.arguments, "]"));
            int picks = counts.back() == '3'                        ? 1
                        : counts.find('3', 12) != std::string::npos ? 0
                                                                    : -1;
            std::string text = TextOf(form, random), told;

            cases.emplace_back(Read(text, "f32"), text, 1, unsigned(random()),
                               [&](Arguments *arguments) {
                                   told = Spoil(arguments, picks, random);
                               });
            cases.back().told = told;
        }
    RunCases(cases, RunMiscounted);
}

// Of what has no counts on the other side ranks move a dense copy.
const char kRanks[] =
    "heddle 2 tensor program moved mesh tp=2 "
    "in %n : i32[4@tp] in %x : $[4@tp, 9 by %n, 6] in %w : $[4@tp, 6, 5] "
    "in %l : i32[3] in %v : $[3, 8 by %l, 6@tp] "
    "temp %h : $[4@tp, 9 by %n, 5] temp %d : $[4, 9, 5] "
    "out %m : i32[4] out %y : $[4, 9 by %m, 5] out %s : $[4, 5] "
    "out %a : $[3, 8 by %l, 6] out %r : $[3, 8 by %l] "
    "{ %h = matmul %x, %w %d = set %h %m = set %n %y = copy %d "
    "%s = sum %h dim 1 %a = set %v %r = sum %v dim 2 }";

hd_status RunRank(hd_group *group, const Module &module,
                  const Expected &expected, hd_diag *diag)
{
    hd_session_options options = DeviceOptions();
    hd_session *session = nullptr;

    HD_TRY(hd_session_create(group, module.get(), &options, diag, &session));
    for (int set = 0; set < expected.Count(); set++)
        HD_TRY(RunAndCompare(session, module.get(), expected, set,
                             hd_group_rank(group), diag));
    hd_session_destroy(session);
    return HD_OK;
}

TEST(Counts, OfOneSideMoveAsZeros)
{
    for (int ranks = 1; ranks <= 4 && HasDevices(ranks); ranks++)
        for (int transfer : {HD_TRANSFER_BULK, HD_TRANSFER_RING}) {
            Module tensor = Parse(kRanks, "f32", ranks);
            Module module =
                Proven(tensor, Parse(kRanks, "f32", ranks), transfer);
            Expected expected(tensor.get(), 3, Seed());
            AllEndWell(Launch(ranks, [&](hd_group *group, hd_diag *said) {
                return RunRank(group, module, expected, said);
            }));
        }
}

// There by counts, by an index a rank or by blocks of which some ranks have
// fewer or none, with the dimensions of the counts in another order while they
// are there, and back.
const char kThereAndBack[] =
    "heddle 2 tensor program moved mesh tp=2 "
    "in %n : i32[size tp @tp, E] in %x : $[size tp @tp, E, C by %n, K] "
    "temp %c : i32[size tp, E @tp] "
    "temp %there : $[size tp, E @tp, C by %c, K] "
    "temp %t : i32[E @tp, size tp] "
    "temp %turned : $[E @tp, size tp, C by %t, K] "
    "temp %h : $[E @tp, size tp, C by %t, K] "
    "temp %again : $[size tp, E @tp, C by %c, K] "
    "temp %back : $[size tp @tp, E, C by %n, K] "
    "out %a : $[size tp @tp, E, C, K] out %s : $[E @tp, size tp, K] "
    "out %d : $[size tp, E @tp, C, K] out %y : $[size tp @tp, E, C by %n, K] "
    "{ %c = set %n %there = set %x %d = copy %there %t = transpose %c "
    "%turned = transpose %there dim0 1 dim1 0 %s = sum %turned dim 2 "
    "%h = neg %turned %again = transpose %h dim0 0 dim1 1 %back = set %again "
    "%a = copy %back %y = abs %back }";

// As they are drawn, none, all, or all of one expert's.
void DrawCounts(Arguments *arguments, std::mt19937 &random)
{
    const hd_argument &n = arguments->Info(0);
    unsigned how = random() % 4;
    size_t expert = random() % size_t(n.extent[1]);

    for (size_t i = 0; i < n.elements && how > 0; i++)
        arguments->Set(0, i,
                       how == 1                            ? 0
                       : how == 2                          ? double(n.counted)
                       : i % size_t(n.extent[1]) == expert ? double(n.counted)
                                                           : 0);
    for (size_t element : Rest(*arguments, "x2"))
        arguments->Set(1, element, NAN);
}

// Lowered so, on `sets` of random inputs with random counts.
void GivesTheAnswers(const std::string &text, const char *dtype, int ranks,
                     int transfer, int sets, std::mt19937 &random)
{
    Module tensor = Parse(text, dtype, ranks);
    Module module = Proven(tensor, Parse(text, dtype, ranks), transfer);
    Expected expected(
        tensor.get(), sets, unsigned(random()),
        [&](Arguments *arguments) { DrawCounts(arguments, random); });

    AllEndWell(Launch(ranks, [&](hd_group *group, hd_diag *said) {
        return RunRank(group, module, expected, said);
    }));
}

TEST(Counts, OfBothSidesMoveTheirRowsAlone)
{
    std::mt19937 random(Seed());

    for (int ranks = 1; ranks <= std::min(IsQuick() ? 3 : 5, MostRanks());
         ranks++)
        for (int draw = 0; draw < (IsQuick() ? 2 : 5); draw++) {
            const char *dtypes[] = {"f32", "bf16", "f64", "f16"};
            const char *dtype = dtypes[random() % 4];
            std::string text =
                Filled(kThereAndBack,
                       {{'E', draw == 0 ? ranks : Between(1, 7, random)},
                        {'C', Between(1, 9, random)},
                        {'K', random() % 2 == 0 ? 8 : Between(1, 9, random)}});

            SCOPED_TRACE(std::string(dtype) + ": " + text);
            GivesTheAnswers(text, dtype, ranks, HD_TRANSFER_BULK, 4, random);
        }
}

// Products beside gathers and sums: of what has counts they stay as they are,
// of what was copied to a tensor without any they are fused.
struct Drawn {
    std::string declared, done;
    void Add(std::mt19937 &random, bool gathers, bool counted);
};

void Drawn::Add(std::mt19937 &random, bool gathers, bool counted)
{
    static const char *const keys[] = {"", " scale 1 / 2", " act relu"};
    Extents extents = {{'N', Between(1, 9, random)}};
    bool scattered = random() % 2 == 0;
    std::string own = std::to_string(done.size()); // as no other's
    auto add = [&](std::string *to, std::string text) {
        *to += Replaced(Filled(text, extents), "_", own);
    };

    add(&declared, "in %w_ : $[N, K] ");
    if (gathers) {
        add(&declared, counted ? "temp %g_ : $[size tp, size tp, C by %c, K] "
                               : "temp %g_ : $[size tp, size tp, C, K] ");
        add(&declared, "out %y_ : $[size tp, size tp, C, N] ");
        add(&done, "%g_ = set %x %y_ = matmul %g_, %w_ tb" +
                       std::string(keys[random() % 3]) + " ");
        return;
    }
    add(&declared, "temp %p_ : $[size tp @tp, size tp, C, N] ");
    add(&declared, scattered ? "out %y_ : $[size tp @tp, C, N] "
                             : "out %y_ : $[size tp, C, N] ");
    if (!counted) {
        add(&declared, "temp %d_ : $[size tp @tp, size tp, C, K] ");
        add(&done, "%d_ = copy %x ");
    }
    add(&done, std::string("%p_ = matmul ") + (counted ? "%x" : "%d_") +
                   ", %w_ tb" + keys[random() % 2] + " %y_ = sum %p_ dim 0 ");
}

// A provider takes those of 16 bits, and no axis of one rank.
TEST(Counts, StayBesideFusedProducts)
{
    const std::vector<const char *> dtypes = {"f32", "f16", "bf16", "f64"};
    std::mt19937 random(Seed());

    for (int draw = 0; draw < (IsQuick() ? 4 : 12); draw++) {
        int ranks = Between(1, IsQuick() ? 3 : 5, random);
        const char *dtype = dtypes[random() % dtypes.size()];
        Drawn drawn = {"temp %c : i32[size tp, size tp] ", "%c = set %n "};
        std::string text;

        if (!HasDevices(ranks))
            continue;
        for (int i = Between(1, 4, random); i > 0; i--)
            drawn.Add(random, random() % 2 == 0, random() % 2 == 0);
        text = Filled(
            "heddle 2 tensor program drawn mesh tp=2 "
            "in %n : i32[size tp @tp, size tp] "
            "in %x : $[size tp @tp, size tp, C by %n, K] " +
                drawn.declared + "{ " + drawn.done + "}",
            {{'C', Between(1, 9, random)}, {'K', Between(1, 9, random)}});
        SCOPED_TRACE(std::string(dtype) + " on " + std::to_string(ranks) +
                     ": " + text);
        GivesTheAnswers(text, dtype, ranks, HD_TRANSFER_FUSED, 3, random);
    }
}

// A transport that knows the counts writes nothing behind them: what was there
// stays. A rank's own piece may be copied whole.
const char kBehind[] =
    "heddle 2 host program behind mesh tp=2 in %n : i32[size tp @tp, size tp] "
    "in %x : f32[size tp @tp, size tp, C by %n, K] "
    "in %was : f32[size tp, size tp @tp, C, K] "
    "in %mask : u8[size tp, size tp @tp, C, K] "
    "out %y : f32[size tp, size tp @tp, C, K] "
    "temp %z : f32[size tp, size tp @tp, C, K] shared "
    "{ %z = copy %was %z[:, tp] = all_to_all %x[tp] %y = copy %z }";
const char kSelected[] = "heddle 2 tensor program behind mesh tp=2 "
                         "in %n : i32[size tp @tp, size tp] "
                         "in %x : f32[size tp @tp, size tp, C by %n, K] "
                         "in %was : f32[size tp, size tp @tp, C, K] "
                         "in %mask : u8[size tp, size tp @tp, C, K] "
                         "out %y : f32[size tp, size tp @tp, C, K] "
                         "temp %z : f32[size tp, size tp @tp, C, K] "
                         "{ %z = set %x %y = select %mask, %z, %was }";

bool MovesByCounts()
{
    return OnCpu() || DeviceOptions().transport == HD_TRANSPORT_SM;
}

void DrawMask(Arguments *arguments)
{
    const hd_argument &mask = arguments->Info(3);
    size_t ranks = size_t(mask.extent[0]);

    for (size_t i = 0; i < ranks; i++)
        arguments->Set(0, i * ranks + i, double(mask.extent[2]));
    for (size_t i = 0; i < mask.elements; i++)
        arguments->Set(3, i, 1);
    for (size_t element : Rest(*arguments, "x2")) {
        arguments->Set(1, element, NAN);
        arguments->Set(3, element, 0);
    }
}

TEST(Counts, WriteNothingWhereNothingIsCounted)
{
    std::mt19937 random(Seed());

    if (!MovesByCounts())
        GTEST_SKIP() << "this transport moves all there is room for";
    for (int ranks = 2; ranks <= std::min(3, MostRanks()); ranks++)
        for (int draw = 0; draw < (IsQuick() ? 2 : 5); draw++) {
            Extents extents = {{'C', Between(1, 40, random)},
                               {'K', Between(1, 300, random)}};
            Module module = Parse(Filled(kBehind, extents), "f32", ranks);
            Module want = Parse(Filled(kSelected, extents), "f32", ranks);
            Expected expected(want.get(), 3, unsigned(random()), DrawMask);

            AllEndWell(Launch(ranks, [&](hd_group *group, hd_diag *said) {
                return RunSets(group, module.get(), expected, DeviceOptions(),
                               said);
            }));
        }
}

// The first count of the step, whichever peer comes first. What it is taken for
// is moved, so that all ranks end.
TEST(Counts, OfTransfersThatDoNotFitAreTold)
{
    const char text[] = "heddle 2 host program told mesh tp=3 "
                        "in %n : i32[size tp @tp, size tp] "
                        "in %x : f32[size tp @tp, size tp, 5 by %n, 3] "
                        "out %y : f32[3] temp %z : f32[size tp, 5, 3] shared "
                        "{ %z = all_to_all %x[tp] %y = fill value 1 }";
    std::mt19937 random(Seed());

    if (!MovesByCounts())
        GTEST_SKIP() << "this transport moves all there is room for";
    for (double wrong : {-1.0, 6.0, double(INT_MIN), double(INT_MAX)}) {
        size_t first = random() % 3;
        Case each(Parse(text, "f32", 3), text, 1, unsigned(random()),
                  [&](Arguments *arguments) {
                      for (size_t i = 0; i < 9; i++)
                          if (i % 3 >= first)
                              arguments->Set(0, i, wrong);
                  });

        each.told = "count [" + std::to_string(first) + "] of %n is " +
                    std::to_string(int(wrong)) +
                    "; dimension 2 of %x has 0 to 5";
        AllEndWell(Launch(3, [&](hd_group *group, hd_diag *diag) {
            return RunMiscounted(group, each, diag);
        }));
    }
}

} // namespace
