// Structs that callers of another version of the library know in part.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/unit/program.h"

#include "base/sized.h"

namespace
{

struct Now {
    size_t size;
    int first, second;
    double third;
};

// What an earlier version had, and what a later one may have.
struct Before {
    size_t size;
    int first;
};

struct Later {
    Now now;
    int fourth, fifth;
};

class Sized : public ::testing::Test
{
  protected:
    hd_diag *diag_ = hd_diag_create();
    std::mt19937 random_{std::random_device{}()};
    Now usual_ = {sizeof(Now), Draw(), Draw(), 0.5 * Draw()};

    int Draw()
    {
        return 1 + (int)(random_() % 1000000);
    }
    hd_status Read(const void *given, Now *out)
    {
        *out = usual_;
        return hd_sized_read("hd_something", given, sizeof *out, diag_, out);
    }
    ~Sized() override
    {
        hd_diag_destroy(diag_);
    }
};

TEST_F(Sized, WhatACallerDoesNotGiveIsAsUsual)
{
    Now got;

    ASSERT_EQ(Read(nullptr, &got), HD_OK);
    EXPECT_EQ(memcmp(&got, &usual_, sizeof got), 0);
    Before before = {sizeof before, Draw()};
    ASSERT_EQ(Read(&before, &got), HD_OK);
    EXPECT_EQ(got.size, sizeof(Now));
    EXPECT_EQ(got.first, before.first);
    // The padding of the older struct lies where a member is now.
    EXPECT_EQ(got.third, usual_.third);
    Now same = {sizeof same, Draw(), Draw(), 1.5 * Draw()};
    ASSERT_EQ(Read(&same, &got), HD_OK);
    EXPECT_EQ(memcmp(&got, &same, sizeof got), 0);
}

TEST_F(Sized, WhatIsNotKnownHereMustBeZero)
{
    Later later = {{sizeof later, Draw(), Draw(), 1}, 0, 0};
    Now got;

    ASSERT_EQ(Read(&later, &got), HD_OK);
    EXPECT_EQ(got.second, later.now.second);
    later.fifth = Draw();
    ASSERT_EQ(Read(&later, &got), HD_ERROR_ARGUMENT);
    EXPECT_NE(std::string(hd_diag_text(diag_)).find("hd_something: byte 28"),
              std::string::npos)
        << hd_diag_text(diag_);
}

TEST_F(Sized, AStructWithoutASizeIsRefused)
{
    Now none = {0, 1, 2, 3}, garbage = {0x5a5a5a5a5a5a5a5a, 1, 2, 3}, got;

    EXPECT_EQ(Read(&none, &got), HD_ERROR_ARGUMENT);
    EXPECT_EQ(Read(&garbage, &got), HD_ERROR_ARGUMENT);
    EXPECT_NE(std::string(hd_diag_text(diag_)).find("HD_EMPTY"),
              std::string::npos);
}

TEST_F(Sized, NoMoreIsWrittenThanACallerKnows)
{
    struct {
        Before told;
        unsigned char beyond[64];
    } old;
    Later later;

    memset(&old, 0xa5, sizeof old);
    old.told.size = sizeof old.told;
    hd_sized_write(&usual_, sizeof usual_, &old);
    EXPECT_EQ(old.told.size, sizeof old.told);
    EXPECT_EQ(old.told.first, usual_.first);
    for (unsigned char byte : old.beyond)
        EXPECT_EQ(byte, 0xa5);
    memset(&later, 0xa5, sizeof later);
    later.now.size = sizeof later;
    hd_sized_write(&usual_, sizeof usual_, &later);
    EXPECT_EQ(later.now.size, sizeof later);
    EXPECT_EQ(later.now.third, usual_.third);
    EXPECT_EQ(later.fourth, 0);
    EXPECT_EQ(later.fifth, 0);
}

} // namespace
