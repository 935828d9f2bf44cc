// What an op iterates over, and where its views lie in it.
#include <gtest/gtest.h>
#include <string>

#include "ir/space.h"
#include "tests/unit/program.h"

namespace
{

// "0 1 -": the dimension of view `view` along each of the space's.
std::string Along(const hd_space &space, int view)
{
    std::string text;

    for (int d = 0; d < space.ndims; d++) {
        int own = space.dim[view][d];

        text += (d > 0 ? " " : "") +
                (own == HD_REPEATED ? "-" : std::to_string(own));
    }
    return text;
}

// Of the first statement of a tensor program.
hd_space SpaceOf(const std::string &text)
{
    Program p("tensor program t " + text);
    hd_space space = {};

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    if (p.status == HD_OK)
        hd_space_of_op(p.module->body.first->op, &space);
    return space;
}

TEST(Space, OperandsLieAlongTheLastDimensionsAndRepeatAlongTheOthers)
{
    hd_space space = SpaceOf("in %a : f32[2, 3, 4] in %b : f32[3, 1] "
                             "out %c : f32[2, 3, 4] { %c = sub %b, %a }");

    EXPECT_EQ(space.ndims, 3);
    EXPECT_EQ(space.nparallel, 3);
    EXPECT_EQ(Along(space, 0), "0 1 2");
    EXPECT_EQ(Along(space, 1), "- 0 -");
    EXPECT_EQ(Along(space, 2), "0 1 2");
}

TEST(Space, AReducedDimensionIsTheLastAndMayBeKeptWithOneIndex)
{
    hd_space lost = SpaceOf("in %a : f32[2, 3, 4] out %c : f32[2, 4] "
                            "{ %c = sum %a dim 1 }");
    hd_space kept = SpaceOf("in %a : f32[2, 3, 4] out %c : f32[2, 1, 4] "
                            "{ %c = min %a dim 1 }");

    EXPECT_EQ(lost.ndims, 3);
    EXPECT_EQ(lost.nparallel, 2);
    EXPECT_EQ(lost.extent[2], 3);
    EXPECT_EQ(Along(lost, 0), "0 1 -");
    EXPECT_EQ(Along(lost, 1), "0 2 1");
    EXPECT_EQ(kept.ndims, 4);
    EXPECT_EQ(Along(kept, 0), "0 1 2 -");
    EXPECT_EQ(Along(kept, 1), "0 - 2 1");
}

TEST(Space, TransposedDimensionsChangePlaces)
{
    EXPECT_EQ(Along(SpaceOf("in %a : f32[2, 3, 4] out %c : f32[4, 3, 2] "
                            "{ %c = transpose %a dim0 0 dim1 2 }"),
                    1),
              "2 1 0");
    EXPECT_EQ(Along(SpaceOf("in %a : f32[2, 3, 4] out %c : f32[4, 2, 3] "
                            "{ %c = permute %a order (2, 0, 1) }"),
                    1),
              "2 0 1");
}

TEST(Space, TakenDimensionsAreTheIndicesInPlaceOfOne)
{
    hd_space space =
        SpaceOf("in %a : f32[2, 7, 3] in %i : i32[2, 4, 5] "
                "out %c : f32[2, 4, 5, 3] { %c = take %a, %i dim 1 }");

    EXPECT_EQ(space.ndims, 5);
    EXPECT_EQ(space.nparallel, 4);
    EXPECT_EQ(space.extent[4], 7);
    EXPECT_EQ(Along(space, 0), "0 1 2 3 -");
    EXPECT_EQ(Along(space, 1), "0 - - 2 1");
    EXPECT_EQ(Along(space, 2), "0 1 2 - -");
}

TEST(Space, OfAProductPairedAndCrossedAndTransposed)
{
    hd_space paired =
        SpaceOf("in %a : f32[2, 5, 3] in %b : f32[2, 3, 4] in %d : f32[5, 1] "
                "out %c : f32[2, 5, 4] { %c = matmul %a, %b bias %d }");
    hd_space crossed = SpaceOf("in %a : f32[5, 3] in %b : f32[2, 4, 3] "
                               "out %c : f32[2, 5, 4] { %c = matmul %a, %b "
                               "tb }");
    hd_space turned = SpaceOf("in %a : f32[2, 3, 5] in %b : f32[2, 3, 4] "
                              "out %c : f32[2, 5, 4] { %c = matmul %a, %b "
                              "ta }");

    EXPECT_EQ(paired.nparallel, 3);
    EXPECT_EQ(paired.extent[3], 3);
    EXPECT_EQ(Along(paired, 1), "0 1 - 2");
    EXPECT_EQ(Along(paired, 2), "0 - 2 1");
    EXPECT_EQ(Along(paired, 3), "- 0 - -");
    EXPECT_EQ(Along(crossed, 1), "- 0 - 1");
    EXPECT_EQ(Along(crossed, 2), "0 - 1 2");
    EXPECT_EQ(Along(turned, 1), "0 2 - 1");
}

TEST(Space, OfGroupsNothingLiesAlongTheOperandsMatrices)
{
    hd_space rows =
        SpaceOf("in %a : f32[6, 4] in %b : f32[3, 5, 4] "
                "in %n : i32[3] in %v : f32[3, 5] out %c : f32[6, 5] "
                "{ %c = matmul %a, %b tb groups %n bias %v }");
    hd_space matrices = SpaceOf("in %a : f32[6, 4] in %b : f32[6, 5] "
                                "in %n : i32[3] out %c : f32[3, 4, 5] "
                                "{ %c = matmul %a, %b ta groups %n }");

    EXPECT_EQ(Along(rows, 1), "0 - 1");
    EXPECT_EQ(Along(rows, 2), "- 1 2");
    EXPECT_EQ(Along(rows, 3), "- 1 -"); // the bias
    EXPECT_EQ(Along(rows, 4), "- - -");
    EXPECT_EQ(Along(matrices, 0), "0 1 2 -");
    EXPECT_EQ(Along(matrices, 1), "- 1 - 0");
    EXPECT_EQ(Along(matrices, 2), "- - 1 0");
    EXPECT_EQ(Along(matrices, 3), "- - - -");
}

} // namespace
