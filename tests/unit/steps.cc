// What reads the list of a rank's steps: counts, texts, spans.
#include <heddle/simulate.h>

#include "tests/unit/program.h"

namespace
{

const char kLoop[] = "host program h mesh tp=3 inout %x : f32[4] "
                     "{ for i in 0..5 { if tp == 1 { %x = relu %x } } }";

hd_span Span(std::vector<int64_t> extents, std::vector<int64_t> strides)
{
    hd_span span = {};

    span.ndims = static_cast<int>(extents.size());
    for (size_t i = 0; i < extents.size(); i++) {
        span.extent[i] = extents[i];
        span.stride[i] = strides[i];
    }
    return span;
}

} // namespace

TEST(Steps, AreCountedPerRank)
{
    Program p(kLoop);
    int64_t n = -1;

    EXPECT_EQ(hd_module_steps(p.module, 0, p.diag, &n), HD_OK);
    EXPECT_EQ(n, 0);
    EXPECT_EQ(hd_module_steps(p.module, 1, p.diag, &n), HD_OK);
    EXPECT_EQ(n, 5);
}

TEST(Steps, OfAllRanksAreThoseOfEach)
{
    Program differ(kLoop);
    std::vector<int64_t> n(3, -1);

    EXPECT_EQ(hd_module_step_counts(differ.module, differ.diag, n.data()),
              HD_OK);
    EXPECT_EQ(n, (std::vector<int64_t>{0, 5, 0}));
}

// Ranks whose rows see more of the keys issue more.
TEST(Steps, OfRanksWhoseRowsSeeOtherKeysAreCountedEach)
{
    Program p("host program h mesh cp=4 in %q : f32[1, 2, 4]"
              " in %k : f32[4, 1, 2, 4] in %v : f32[4, 1, 2, 4]"
              " out %o : f32[1, 2, 4] out %l : f32[1, 2] { for j in 0..4 {"
              " if j == 0 { %o, %l = attention %q, %k[0], %v[0] causal cp * 2 }"
              " else { %o, %l = attention %q, %k[j], %v[j]"
              " causal (cp - j) * 2 accumulate } } }");
    std::vector<int64_t> n(4, -1);

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_module_step_counts(p.module, p.diag, n.data()), HD_OK);
    EXPECT_EQ(n, (std::vector<int64_t>{1, 2, 3, 4}));
}

// 4096 ranks of 2^24 iterations each would be counted for hours.
TEST(Steps, RanksThatIssueAsManyAreCountedOnce)
{
    Program same("host program h mesh tp=4096 streams 1 inout %x : f32[4] "
                 "{ for i in 0..16777216 { if i mod 4096 == 7 { fork join } "
                 "} }");
    std::vector<int64_t> n(4096, -1);

    ASSERT_EQ(same.status, HD_OK) << same.Said();
    EXPECT_EQ(hd_module_step_counts(same.module, same.diag, n.data()), HD_OK);
    EXPECT_EQ(n, std::vector<int64_t>(4096, 8192));
}

TEST(Steps, OfARankThatIsNotOnTheMeshAreRefused)
{
    for (int rank : {-1, 3}) {
        Program p(kLoop);
        int64_t n = -1;
        char *text = nullptr;

        EXPECT_EQ(hd_module_steps(p.module, rank, p.diag, &n),
                  HD_ERROR_ARGUMENT);
        EXPECT_EQ(n, -1);
        EXPECT_EQ(hd_print_steps(p.module, rank, p.diag, &text),
                  HD_ERROR_ARGUMENT);
        EXPECT_EQ(text, nullptr);
        EXPECT_NE(
            p.Said().find("rank " + std::to_string(rank) + " of a mesh of 3"),
            std::string::npos)
            << p.Said();
    }
}

TEST(Steps, AnErrorOfTheWalkLeavesNothing)
{
    Program p("host program h mesh tp=2 in %x : f32[4] out %y : f32[] "
              "{ %y = copy %x[0] %y = copy %x[3 + tp] }");
    hd_steps steps = {};
    char *text = nullptr;

    EXPECT_EQ(hd_steps_collect(p.module, 1, p.diag, &steps), HD_ERROR_INVALID);
    EXPECT_EQ(steps.step, nullptr);
    EXPECT_EQ(hd_print_steps(p.module, 1, p.diag, &text), HD_ERROR_INVALID);
    EXPECT_EQ(text, nullptr);
    EXPECT_EQ(hd_steps_collect(p.module, 0, p.diag, &steps), HD_OK);
    EXPECT_EQ(steps.nsteps, 2);
    hd_steps_free(&steps);
}

TEST(Span, IsDenseIfItsElementsAreContiguous)
{
    hd_span scalar = Span({}, {});
    hd_span matrix = Span({3, 4}, {4, 1});
    hd_span column = Span({3}, {4});
    hd_span ones = Span({1, 3, 1, 4}, {99, 4, 77, 1});
    hd_span spaced = Span({3, 4}, {8, 1});

    EXPECT_TRUE(hd_span_is_dense(&scalar));
    EXPECT_TRUE(hd_span_is_dense(&matrix));
    EXPECT_FALSE(hd_span_is_dense(&column));
    EXPECT_TRUE(hd_span_is_dense(&ones)); // one index has no stride
    EXPECT_FALSE(hd_span_is_dense(&spaced));
    EXPECT_EQ(hd_span_elements(&scalar), 1);
    EXPECT_EQ(hd_span_elements(&ones), 12);
}

// A long loop is kept in as many spans as it has different accesses.
TEST(Steps, EqualSpansAreKeptOnce)
{
    Program p(
        "host program h streams 1 inout %x : f32[100, 4] inout %y : f32[4] "
        "{ for i in 0..5000 { %x[i mod 100] = copy %y fork join "
        "%y = copy %x[i mod 100] } }");
    hd_steps steps;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_EQ(hd_steps_collect(p.module, 0, p.diag, &steps), HD_OK);
    ASSERT_EQ(steps.nsteps, 20000);
    for (int64_t i = 0; i < steps.nsteps; i += 4) {
        const hd_step *to = &steps.step[i], *from = &steps.step[i + 3];
        int64_t row = i / 4 % 100;

        ASSERT_EQ(to->span[0].offset, 4 * row);
        ASSERT_STREQ(to->span[0].buffer->name, "x");
        ASSERT_STREQ(to->span[1].buffer->name, "y");
        ASSERT_EQ(from->span[1].offset, 4 * row);
        if (i >= 400) {
            ASSERT_EQ(to->span, steps.step[i - 400].span);
            ASSERT_EQ(from->span, steps.step[i - 397].span);
        }
    }
    hd_steps_free(&steps);
}
