#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/ranks/window.h"

namespace
{

TEST(Window, WhatOneMappingWritesTheOtherReads)
{
    hd_window mine = HD_WINDOW_NONE;
    hd_window theirs = HD_WINDOW_NONE;

    ASSERT_EQ(hd_window_open(5000, nullptr, &mine), HD_OK);
    ASSERT_EQ(hd_window_map(dup(mine.fd), 5000, nullptr, &theirs), HD_OK);
    EXPECT_NE(mine.base, theirs.base);
    memset(theirs.base, 0x5a, 5000);
    EXPECT_EQ(static_cast<char *>(mine.base)[4999], 0x5a);
    hd_window_close(&mine);
    EXPECT_EQ(static_cast<char *>(theirs.base)[0], 0x5a);
    hd_window_close(&theirs);
}

TEST(Window, ItsSizeCannotChange)
{
    hd_window mine = HD_WINDOW_NONE;

    ASSERT_EQ(hd_window_open(4096, nullptr, &mine), HD_OK);
    EXPECT_NE(ftruncate(mine.fd, 0), 0);
    EXPECT_NE(ftruncate(mine.fd, 8192), 0);
    hd_window_close(&mine);
}

TEST(Window, AnotherSizeThanAnnouncedIsRefused)
{
    hd_window mine = HD_WINDOW_NONE;
    hd_window theirs = HD_WINDOW_NONE;

    ASSERT_EQ(hd_window_open(4096, nullptr, &mine), HD_OK);
    EXPECT_EQ(hd_window_map(dup(mine.fd), 8192, nullptr, &theirs),
              HD_ERROR_PEER);
    EXPECT_EQ(theirs.base, nullptr);
    hd_window_close(&mine);
}

TEST(Window, AMemoryThatCouldStillShrinkIsRefused)
{
    hd_window theirs = HD_WINDOW_NONE;
    int fd = memfd_create("unsealed", MFD_CLOEXEC);

    ASSERT_EQ(ftruncate(fd, 4096), 0);
    EXPECT_EQ(hd_window_map(fd, 4096, nullptr, &theirs), HD_ERROR_PEER);
    EXPECT_EQ(fcntl(fd, F_GETFD), -1); // it was closed
}

TEST(Window, ClosingWhatIsNotOpenDoesNothing)
{
    hd_window none = HD_WINDOW_NONE;

    hd_window_close(&none);
    EXPECT_EQ(none.fd, -1);
}

} // namespace
