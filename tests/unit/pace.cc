// The pace by which `place` judges: what hides under what is computed.
#include "lower/pace.h"

#include <gtest/gtest.h>

namespace
{
TEST(Pace, WhatIsNeededMayHaveMovedSinceItWasThere)
{
    hd_pace pace = {};

    hd_pace_compute(&pace, 100, 0);
    EXPECT_EQ(hd_pace_await(&pace, 60, 0), 0); // an argument
    EXPECT_EQ(pace.now, 100);
    EXPECT_EQ(hd_pace_await(&pace, 60, 0), 20); // links were free for 40
    EXPECT_EQ(pace.now, 120);
    hd_pace_compute(&pace, 100, 0);
    EXPECT_EQ(hd_pace_await(&pace, 60, 190), 30); // it was there late
    EXPECT_EQ(hd_pace_end(&pace), 250);
}

TEST(Pace, WhatMovesBesideAStatementTakesItsLinks)
{
    hd_pace pace = {};

    hd_pace_compute(&pace, 100, 80);
    EXPECT_EQ(pace.now, 100);
    EXPECT_EQ(hd_pace_await(&pace, 60, 0), 40);
}

TEST(Pace, WhatNothingNeedsMovesLater)
{
    hd_pace pace = {};

    hd_pace_compute(&pace, 50, 0);
    EXPECT_EQ(hd_pace_owe(&pace, 80, 50), 80);
    EXPECT_EQ(hd_pace_end(&pace), 130);
    hd_pace_compute(&pace, 60, 0);
    EXPECT_EQ(hd_pace_end(&pace), 130);
    hd_pace_compute(&pace, 60, 0);
    EXPECT_EQ(hd_pace_end(&pace), 170);
    EXPECT_EQ(hd_pace_owe(&pace, 30, 50), 0); // beside what it comes from
}

TEST(Pace, WhatIsNeededGoesFirst)
{
    hd_pace pace = {};

    hd_pace_compute(&pace, 100, 0);
    EXPECT_EQ(hd_pace_owe(&pace, 90, 0), 0);
    EXPECT_EQ(hd_pace_await(&pace, 100, 0), 0);
    EXPECT_EQ(pace.now, 100);
    EXPECT_EQ(hd_pace_end(&pace), 190); // 10 moved, before
    hd_pace_wait(&pace, 140);
    EXPECT_EQ(pace.now, 140);
    EXPECT_EQ(hd_pace_end(&pace), 190);
}
} // namespace
