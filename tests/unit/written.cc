// Parts of a tensor that are written, against a map of its elements.
#include "ir/written.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/seed.h"

namespace
{

const int kDims = 3, kExtent = 4;

int64_t Draw(std::mt19937 &random, int64_t low, int64_t high)
{
    return std::uniform_int_distribution<int64_t>(low, high)(random);
}

hd_box DrawBox(std::mt19937 &random)
{
    hd_box box = {};

    for (int d = 0; d < kDims; d++) {
        box.low[d] = Draw(random, 0, kExtent - 1);
        box.past[d] = Draw(random, box.low[d] + 1, kExtent);
    }
    return box;
}

std::vector<int> ElementsOf(const hd_box &box)
{
    std::vector<int> all;

    for (int64_t i = box.low[0]; i < box.past[0]; i++)
        for (int64_t j = box.low[1]; j < box.past[1]; j++)
            for (int64_t k = box.low[2]; k < box.past[2]; k++)
                all.push_back(int((i * kExtent + j) * kExtent + k));
    return all;
}

// Boxes that meet none before are written; all are looked up before.
void WriteSome(std::mt19937 &random)
{
    std::vector<bool> map(kExtent * kExtent * kExtent);
    std::vector<hd_box> boxes;

    for (int n = 0; n < 40; n++) {
        hd_box part = DrawBox(random), common;
        hd_written written = {boxes.data(), int64_t(boxes.size()), 0};
        std::vector<int> elements = ElementsOf(part);
        size_t found = 0, met = 0;

        for (int element : elements)
            found += map[size_t(element)];
        for (const hd_box &box : boxes)
            if (hd_box_meet(&box, &part, kDims, &common))
                met += ElementsOf(common).size();
        ASSERT_EQ(hd_box_elements(&part, kDims), int64_t(elements.size()));
        ASSERT_EQ(met, found);
        ASSERT_EQ(hd_written_has(&written, &part, kDims),
                  found == elements.size());
        if (found < elements.size()) {
            hd_box gap = hd_written_first_gap(&written, &part, kDims);

            ASSERT_EQ(hd_box_elements(&gap, kDims), 1);
            ASSERT_TRUE(hd_box_meet(&gap, &part, kDims, &common));
            ASSERT_FALSE(map[size_t(ElementsOf(gap)[0])]);
        }
        if (found > 0)
            continue;
        boxes.push_back(part);
        for (int element : elements)
            map[size_t(element)] = true;
    }
}

TEST(Written, IsWhatAMapOfTheElementsSays)
{
    std::mt19937 random(Seed());

    for (int n = 0; n < 200; n++)
        WriteSome(random);
}

} // namespace
