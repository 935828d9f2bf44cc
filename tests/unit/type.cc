// Arithmetic on shapes.
#include "ir/type.h"

#include <gtest/gtest.h>
#include <vector>

static hd_type MakeType(const std::vector<hd_dim> &dims)
{
    hd_type type = {};

    type.dtype = HD_DTYPE_F32;
    for (hd_dim dim : dims)
        type.dim[type.ndims++] = dim;
    return type;
}

TEST(Type, AScalarHasOneElement)
{
    hd_type scalar = MakeType({});

    EXPECT_EQ(hd_type_elements(&scalar), 1);
    EXPECT_EQ(hd_type_local_elements(&scalar), 1);
    EXPECT_EQ(hd_type_stream_dim(&scalar), -1);
}

TEST(Type, ARankHoldsOneIndexOfAShardedDimension)
{
    hd_type type = MakeType({{4, 0, 0, 0, 0},
                             {3, HD_LOCAL, 0, 0, 0},
                             {2, 1, 0, 0, 0},
                             {5, HD_STREAM, 0, 0, 0}});

    EXPECT_EQ(hd_type_elements(&type), 120);
    EXPECT_EQ(hd_type_local_elements(&type), 15);
    EXPECT_EQ(hd_type_stream_dim(&type), 3);
    EXPECT_EQ(hd_type_axis_dim(&type, 0), 0);
    EXPECT_EQ(hd_type_axis_dim(&type, 1), 2);
    EXPECT_EQ(hd_type_axis_dim(&type, 2), -1);
}

TEST(Type, HugeProductsSaturate)
{
    hd_type type = MakeType(
        {{INT64_MAX, HD_LOCAL, 0, 0, 0}, {INT64_MAX, HD_LOCAL, 0, 0, 0}});

    EXPECT_EQ(hd_type_elements(&type), INT64_MAX);
    EXPECT_EQ(hd_type_local_elements(&type), INT64_MAX);
}

TEST(Type, AStreamDimensionCountsAsLocal)
{
    EXPECT_TRUE(hd_dim_same({4, HD_STREAM, 0, 0, 0}, {4, HD_LOCAL, 0, 0, 0}));
    EXPECT_TRUE(hd_dim_same({4, 1, 0, 0, 0}, {4, 1, 0, 0, 0}));
    EXPECT_FALSE(hd_dim_same({4, 1, 0, 0, 0}, {4, 0, 0, 0, 0}));
    EXPECT_FALSE(hd_dim_same({4, 1, 0, 0, 0}, {4, HD_STREAM, 0, 0, 0}));
    EXPECT_FALSE(hd_dim_same({4, HD_LOCAL, 0, 0, 0}, {5, HD_LOCAL, 0, 0, 0}));
}
