// Blocks as long as each other against an index of each rank: of [8192@tp] and
// of [8@tp, 1024] the same steps are made, whatever the pipeline.
#include <gtest/gtest.h>
#include <heddle/simulate.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/seed.h"
#include "tests/unit/program.h"
#include "tests/words.h"

namespace
{
// <3@tp> is a dimension of the ranks' blocks, of 3 indices each; where that is
// two dimensions, a batch of the other operand has one of one index, |.
const char *const kPatterns[] = {
    // A gather ahead of a product, in front and behind a batch.
    "in %x : f32[<L@tp>, 6] in %w : f32[6, 5] temp %g : f32[<L@stream>, 6] "
    "out %y : f32[<L@stream>, 5] { %g = set %x %y = matmul %g, %w }",
    "in %x : f32[2, <L@tp>, 6] in %w : f32[6, 5] "
    "temp %g : f32[2, <L@stream>, 6] out %y : f32[2, <L@stream>, 5] "
    "{ %g = set %x %y = matmul %g, %w }",
    "in %x : f32[1, <L@tp>, 6] in %b : f32[6] temp %g : f32[1, <L@stream>, 6] "
    "out %y : f32[1, <L@stream>, 6] { %g = set %x %y = mul %g, %b }",
    // Partial sums that are scattered, and that all ranks want.
    "in %a : f32[P@tp, <L>, 6] in %w : f32[P@tp, |6, 5] "
    "temp %p : f32[P@tp, <L@stream>, 5] out %y : f32[<L@tp>, 5] "
    "{ %p = matmul %a, %w %y = sum %p dim 0 }",
    "in %a : bf16[P@tp, <L>, 6] in %w : bf16[P@tp, |6, 5] "
    "temp %p : bf16[P@tp, <L@stream>, 5] out %y : bf16[<L@stream>, 5] "
    "{ %p = matmul %a, %w %y = sum %p dim 0 }",
    "in %a : f32[P@tp, 2, <L>, 6] in %w : f32[P@tp, 1, |6, 5] "
    "temp %p : f32[P@tp, 2, <L@stream>, 5] out %y : f32[2, <L@stream>, 5] "
    "{ %p = matmul %a, %w %y = max %p dim 0 }",
    // Both, one behind the other.
    "in %x : f32[<L@tp>, 6] in %v : f32[P@tp, |6, 4] in %w : f32[P@tp, |4, 6] "
    "temp %g : f32[<L@stream>, 6] temp %h : f32[P@tp, <L@stream>, 4] "
    "temp %p : f32[P@tp, <L@stream>, 6] out %y : f32[<L@tp>, 6] "
    "{ %g = set %x %h = matmul %g, %v act gelu %p = matmul %h, %w "
    "%y = sum %p dim 0 }",
    // Outside of loops: a gather, an exchange, a sum.
    "in %x : f32[4, <L@tp>, 3] out %y : f32[4, <L>, 3] { %y = set %x }",
    "in %x : f32[<L@tp>, <M>, 3] out %y : f32[<L>, <M@tp>, 3] { %y = set %x }",
    "in %x : f32[<L>, <M@tp>, 3] out %y : f32[<L@tp>, <M>, 3] { %y = set %x }",
    "in %x : f32[P@tp, 4, <L>] out %y : f32[4, <L@tp>] { %y = sum %x dim 0 }",
};

std::string Written(std::string text, int ranks, int l, int m, bool blocks)
{
    const std::string p = std::to_string(ranks);

    for (const auto &[letter, n] : {std::pair{"L", l}, std::pair{"M", m}}) {
        const std::string one = std::to_string(n);
        const std::string all = std::to_string(ranks * n);
        const std::string block = std::string("<") + letter;

        text = Replaced(text, block + "@stream>",
                        blocks ? all + " in P@stream" : "P@stream, " + one);
        for (const std::string mark : {"@tp", ""})
            text = Replaced(text, block + mark + ">",
                            blocks ? all + mark : "P" + mark + ", " + one);
    }
    text = Replaced(text, "|", blocks ? "" : "1, ");
    return "tensor program t mesh tp=" + p + " " + ReplacedWord(text, "P", p);
}

hd_lower_options Drawn(std::mt19937 &random)
{
    hd_lower_options options = hd_lower_defaults();

    options.transfer = hd_transfer(random() % (HD_TRANSFER_RING + 1));
    options.protocol = hd_protocol(random() % 2);
    options.streams = 1 + int(random() % 3);
    options.chunks = 1 + int(random() % 2);
    options.copy_own = random() % 2 != 0;
    options.defer_sends = random() % 2 != 0;
    options.comm_stream = random() % 4 == 0;
    options.wire = random() % 4 == 0 ? HD_WIRE_F32 : HD_WIRE_RESULT;
    return options;
}

// What is to be alike of both.
struct Made {
    hd_status status;
    std::vector<int64_t> steps; // by rank
    hd_prediction predicted = HD_EMPTY(hd_prediction);
};

Made Make(const std::string &text, const hd_lower_options &options)
{
    Program program(text);
    hd_simulation *simulation = nullptr;
    Made made;

    EXPECT_EQ(program.status, HD_OK) << program.Said() << text;
    made.status =
        hd_lower(program.module, &options, nullptr, nullptr, program.diag);
    if (made.status != HD_OK)
        return made;
    for (int64_t rank = 0; rank < program.module->nranks; rank++) {
        hd_steps steps;

        EXPECT_EQ(hd_steps_collect(program.module, rank, nullptr, &steps),
                  HD_OK);
        made.steps.push_back(steps.nsteps);
        hd_steps_free(&steps);
    }
    EXPECT_EQ(hd_check(program.module, nullptr, program.diag), HD_OK)
        << program.Said();
    EXPECT_EQ(hd_simulate(program.module, nullptr, nullptr, &simulation),
              HD_OK);
    hd_simulation_predict(simulation, &made.predicted);
    hd_simulation_destroy(simulation);
    return made;
}

TEST(Pieces, OfBlocksTakeTheStepsOfIndices)
{
    std::mt19937 random(Seed());

    for (int i = 0; i < 300; i++) {
        const char *pattern = kPatterns[random() % std::size(kPatterns)];
        int ranks = 1 + int(random() % 8), l = 2 + int(random() % 6);
        int m = 2 + int(random() % 3);
        hd_lower_options options = Drawn(random);

        // All pieces at once of a batch, which has no dimension for them, are
        // one after the other.
        if (strchr(pattern, '|') != nullptr &&
            (options.transfer == HD_TRANSFER_BULK ||
             options.transfer == HD_TRANSFER_PIPELINED))
            options.transfer = HD_TRANSFER_DIRECT;
        std::string index = Written(pattern, ranks, l, m, false);
        std::string block = Written(pattern, ranks, l, m, true);
        Made a = Make(index, options), b = Make(block, options);

        SCOPED_TRACE(block);
        SCOPED_TRACE(index);
        SCOPED_TRACE("transfer " + std::to_string(options.transfer) +
                     " streams " + std::to_string(options.streams) +
                     " chunks " + std::to_string(options.chunks));
        ASSERT_EQ(a.status, b.status);
        if (a.status != HD_OK)
            continue;
        EXPECT_EQ(a.steps, b.steps);
        EXPECT_EQ(a.predicted.bytes_copied, b.predicted.bytes_copied);
        EXPECT_EQ(a.predicted.bytes_gathered, b.predicted.bytes_gathered);
        EXPECT_NEAR(a.predicted.time, b.predicted.time,
                    1e-9 * a.predicted.time);
        ASSERT_FALSE(HasFailure());
    }
}
} // namespace
