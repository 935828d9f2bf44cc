#include <gtest/gtest.h>

#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/ranks/lease.h"

namespace
{

// As a descriptor that a peer has passed.
int Joined(int lease)
{
    int joined = HD_LEASE_NONE;

    EXPECT_EQ(hd_lease_join(lease, nullptr, &joined), HD_OK);
    return joined;
}

TEST(Lease, WhatAPeerHoldsIsNotTakenBack)
{
    int lease = HD_LEASE_NONE;

    ASSERT_EQ(hd_lease_open(nullptr, &lease), HD_OK);
    int one = Joined(lease), other = Joined(lease);
    EXPECT_TRUE(hd_lease_hold(one, 7));
    EXPECT_TRUE(hd_lease_hold(other, 7));
    EXPECT_TRUE(hd_lease_hold(other, uint64_t(1) << 40));
    EXPECT_FALSE(hd_lease_take_back(lease, 7));
    EXPECT_TRUE(hd_lease_take_back(lease, 8));
    hd_lease_let_go(one, 7);
    EXPECT_FALSE(hd_lease_take_back(lease, 7));
    hd_lease_let_go(other, 7);
    EXPECT_TRUE(hd_lease_take_back(lease, 7));
    EXPECT_FALSE(hd_lease_hold(one, 7)) << "what is taken back";
    EXPECT_FALSE(hd_lease_take_back(lease, uint64_t(1) << 40));
    close(other);
    EXPECT_TRUE(hd_lease_take_back(lease, uint64_t(1) << 40));
    close(one);
    close(lease);
}

TEST(Lease, WhoDiesLetsGo)
{
    int lease = HD_LEASE_NONE, ready[2];
    char byte = 0;

    ASSERT_EQ(pipe(ready), 0);
    ASSERT_EQ(hd_lease_open(nullptr, &lease), HD_OK);
    pid_t child = fork();
    if (child == 0) {
        byte = hd_lease_hold(Joined(lease), 1);
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 1);
    EXPECT_FALSE(hd_lease_take_back(lease, 1));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(hd_lease_take_back(lease, 1));
    for (int fd : {lease, ready[0], ready[1]})
        close(fd);
}

TEST(Lease, WhatIsNoFileIsRefused)
{
    int ends[2], joined = HD_LEASE_NONE;

    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(hd_lease_join(ends[0], nullptr, &joined), HD_ERROR_SYSTEM);
    EXPECT_EQ(joined, HD_LEASE_NONE);
    EXPECT_NE(fcntl(ends[0], F_GETFD), -1); // it is borrowed
    close(ends[0]);
    close(ends[1]);
}

} // namespace
