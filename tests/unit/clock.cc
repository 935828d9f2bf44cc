// The clock that tests put in the place of the library's, tests/clock.c.
#include "tests/clock.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/unit/ranks.h"

TEST(Clock, GoesNoFasterThanTheSystems)
{
    auto start = std::chrono::steady_clock::now();
    double before = Now();

    SleepFor(0.1);
    double mine = Now() - before;
    std::chrono::duration<double> real =
        std::chrono::steady_clock::now() - start;
    EXPECT_GT(mine, 0.0999);
    EXPECT_LE(mine, real.count() + 0.002); // what moved it may have been asleep
}

// The wait of one rank for the other is as long as its timeout by the clock of
// the system, but not by this one.
TEST(Clock, NobodyIsLateWhileItStandsStill)
{
    Outcome outcome = Launch(
        2,
        [](hd_group *group, hd_diag *diag) {
            if (hd_group_rank(group) == 1) {
                kill(clock_mover(), SIGSTOP);
                usleep(2500000);
                kill(clock_mover(), SIGCONT);
            }
            return hd_group_allgather(group, nullptr, 0, nullptr, diag);
        },
        60, 2);

    EXPECT_EQ(outcome.status, HD_OK) << outcome.text;
}
