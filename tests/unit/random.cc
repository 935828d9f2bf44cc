// In what order a benchmark's candidates take turns.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tests/seed.h"

extern "C" {
#include "tools/random.h"
}

namespace
{

TEST(Random, OrdersHaveEachOnceAndAnyBehindAnyOther)
{
    const int n = 7;
    std::set<std::pair<int, int>> neighbours;
    unsigned seed = Seed();

    // That one of the 42 pairs is in none of 500 orders has a chance of 10^-31.
    for (unsigned round = 0; round < 500; round++) {
        std::vector<int> order(n, -1), sorted;

        random_order(seed + round, n, order.data());
        for (int i = 1; i < n; i++)
            neighbours.insert({order[i - 1], order[i]});
        sorted = order;
        std::sort(sorted.begin(), sorted.end());
        for (int i = 0; i < n; i++)
            ASSERT_EQ(sorted[i], i);
    }
    EXPECT_EQ(neighbours.size(), size_t(n * (n - 1)));
}

} // namespace
