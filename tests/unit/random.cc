// In what order a benchmark's candidates take turns, and counts that fit.
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

TEST(Random, IndicesAreOfAllOfAnExtentAndSomeOfNone)
{
    unsigned seed = Seed();

    for (int64_t extent : {1, 2, 17}) {
        std::vector<int32_t> indices(4000);
        std::vector<int> times(size_t(extent) + 2);

        random_indices(seed, indices.size(), extent, indices.data());
        for (int32_t i : indices) {
            ASSERT_GE(i, -1);
            ASSERT_LE(i, extent);
            times[size_t(i + 1)]++;
        }
        for (int n : times) // that one has fewer has a chance of 10^-20
            EXPECT_GT(n, 80);
    }
}

TEST(Random, CountsFitTheirRowsAndAreOfAllOrSomeOfThem)
{
    unsigned seed = Seed();

    for (int groups : {1, 2, 8, 64, 257})
        for (int64_t rows : {1, 7, 4096, 1 << 30}) {
            int full = 0, fewer = 0, none = 0;

            for (unsigned draw = 0; draw < 200; draw++) {
                std::vector<int32_t> counts(size_t(3 * groups));

                random_counts(seed + draw, counts.size(), size_t(groups), rows,
                              counts.data());
                for (auto at = counts.begin(); at != counts.end();
                     at += groups) {
                    int64_t sum = 0;

                    for (auto n = at; n != at + groups; n++) {
                        ASSERT_GE(*n, 0);
                        none += *n == 0;
                        sum += *n;
                    }
                    ASSERT_LE(sum, rows);
                    full += sum == rows;
                    fewer += sum < rows;
                }
            }
            EXPECT_GT(full, 300);
            EXPECT_GT(fewer, 100);
            EXPECT_TRUE(groups == 1 || none > 100 * groups);
        }
}

} // namespace
