// Which keys rows see: asked of each row and each key by itself.
#include "ir/causal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/seed.h"

namespace
{

struct Mask {
    int32_t causal;
    hd_sight sight;

    Mask(int64_t rows, int64_t keys, int32_t offset, int64_t window)
        : causal(offset), sight{&causal, 0, window, rows, keys, {}}
    {
    }
    Mask(const Mask &) = delete;
    Mask &operator=(const Mask &) = delete;

    bool Sees(int64_t row, int64_t key) const
    {
        return causal == HD_SEES_ALL ||
               (key <= row + causal &&
                (sight.window == 0 || key > row + causal - sight.window));
    }
    // How many pairs of a row among `n` and a key there are.
    int64_t Pairs(int64_t row, int64_t n) const
    {
        int64_t pairs = 0;

        for (int64_t i = row; i < row + n; i++)
            for (int64_t key = 0; key < sight.keys; key++)
                pairs += Sees(i, key);
        return pairs;
    }
};

void ExpectRows(const Mask &m)
{
    for (int64_t row = 0; row < m.sight.rows; row++) {
        int64_t from, past;

        hd_sight_keys(&m.sight, row, 0, &from, &past);
        for (int64_t key = 0; key < m.sight.keys; key++)
            ASSERT_EQ(key >= from && key < past, m.Sees(row, key))
                << row << " " << key << " causal " << m.causal << " window "
                << m.sight.window;
        ASSERT_TRUE(from >= past || (from >= 0 && past <= m.sight.keys));
    }
}

// No row sees a key outside of it, and of rows that see none it says so.
void ExpectTile(const Mask &m, int64_t row, int64_t n)
{
    int64_t from, past;

    hd_sight_tile(&m.sight, row, n, &from, &past);
    for (int64_t i = row; i < row + n; i++)
        for (int64_t key = 0; key < m.sight.keys; key++)
            ASSERT_TRUE(!m.Sees(i, key) || (key >= from && key < past));
    EXPECT_TRUE(m.Pairs(row, n) > 0 || from >= past || past <= 0 ||
                from >= m.sight.keys);
}

void ExpectAll(const Mask &m)
{
    int64_t pairs = m.Pairs(0, m.sight.rows), least, past;

    EXPECT_EQ(hd_sight_is_whole(&m.sight),
              pairs == m.sight.rows * m.sight.keys);
    hd_sight_range(&m.sight, &least, &past);
    EXPECT_EQ(m.causal >= least && m.causal<past, pairs> 0)
        << "causal " << m.causal << " window " << m.sight.window << " rows "
        << m.sight.rows << " keys " << m.sight.keys;
}

TEST(Sight, RowsTilesAndAllAreWhatEachPairSays)
{
    std::mt19937 random(Seed());
    int whole = 0, none = 0, some = 0;

    for (int n = 0; n < 3000; n++) {
        int64_t rows = 1 + random() % 9, keys = 1 + random() % 9;
        int64_t window = random() % 2 == 0 ? 0 : 1 + random() % 12;
        bool all = window == 0 && random() % 8 == 0;
        Mask m(rows, keys, all ? HD_SEES_ALL : int32_t(random() % 41) - 20,
               window);
        int64_t row = random() % rows;

        ExpectRows(m);
        ExpectTile(m, row, 1 + random() % (rows - row));
        ExpectAll(m);
        whole += m.Pairs(0, rows) == rows * keys;
        none += m.Pairs(0, rows) == 0;
        some += m.Pairs(0, rows) > 0 && m.Pairs(0, rows) < rows * keys;
    }
    EXPECT_GT(whole, 100);
    EXPECT_GT(none, 100);
    EXPECT_GT(some, 100);
}

// Of a sequence in 2 `blocks` chunks block b is chunks b and 2 blocks - 1 - b.
// A window leaves the last of the keys up to the row's place.
TEST(Sight, InZigzagARowSeesWhatIsBeforeItInTheSequence)
{
    enum { BLOCKS = 5, HALF = 3, KEYS = 2 * BLOCKS * HALF };
    auto place = [](int64_t block, int64_t i) {
        int64_t chunk = i < HALF ? block : 2 * BLOCKS - 1 - block;

        return chunk * HALF + i % HALF;
    };

    for (int64_t n = 0; n < BLOCKS * (KEYS + 2); n++) {
        int64_t mine = n % BLOCKS, window = n / BLOCKS;
        int32_t behind[BLOCKS];
        hd_sight sight = {behind, BLOCKS, window, 2 * HALF, 2 * HALF, {}};

        for (int b = 0; b < BLOCKS; b++)
            behind[b] = int32_t(mine) - b;
        for (int64_t i = 0; i < 2 * HALF * KEYS; i++) {
            int64_t row = i / KEYS, block = i % KEYS / (2 * HALF);
            int64_t key = i % (2 * HALF), from, past;
            int64_t before = place(mine, row) - place(block, key);

            hd_sight_keys(&sight, row, block, &from, &past);
            ASSERT_EQ(key >= from && key < past,
                      before >= 0 && (window == 0 || before < window))
                << mine << " " << row << " " << block << " " << key
                << " window " << window;
        }
    }
}

} // namespace
