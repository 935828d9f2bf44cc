#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <pthread.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <heddle/launch.h>

#include "base/diag.h"
#include "tests/clock.h"
#include "tests/unit/ranks.h"

namespace
{

bool Says(const Outcome &outcome, const char *text)
{
    return outcome.text.find(text) != std::string::npos;
}

void SleepForever()
{
    for (;;)
        pause();
}

TEST(Launch, EachRankRunsOnceAndAllAreWaitedFor)
{
    int ends[2];

    ASSERT_EQ(pipe(ends), 0);
    Outcome outcome = Launch(5, [&](hd_group *group, hd_diag *) {
        char rank = static_cast<char>(hd_group_rank(group));

        RANK_EXPECT(hd_group_size(group) == 5);
        RANK_EXPECT(write(ends[1], &rank, 1) == 1);
        return HD_OK;
    });
    close(ends[1]);
    int seen = 0;
    char rank;

    while (read(ends[0], &rank, 1) == 1)
        seen += 1 << rank * 2;
    close(ends[0]);
    EXPECT_EQ(outcome.status, HD_OK) << outcome.text;
    EXPECT_EQ(seen, 0x155);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1); // no child is left
}

TEST(Launch, WhatIsNoStatusIsNotPassedOn)
{
    for (int returned : {57, -1, 256, 1 << 20}) {
        Outcome outcome = Launch(2, [&](hd_group *group, hd_diag *diag) {
            hd_status status = HD_OK;

            if (hd_group_rank(group) != 1)
                return hd_group_allgather(group, nullptr, 0, nullptr, diag);
            memcpy(&status, &returned, sizeof status);
            return status;
        });

        EXPECT_EQ(outcome.status, HD_ERROR_ARGUMENT);
        EXPECT_TRUE(Says(outcome, ("rank 1: its function has returned " +
                                   std::to_string(returned))
                                      .c_str()))
            << outcome.text;
    }
}

TEST(Launch, WithoutAFunctionNothingStarts)
{
    EXPECT_EQ(hd_launch(2, 10, 0, nullptr, nullptr, nullptr),
              HD_ERROR_ARGUMENT);
}

TEST(Launch, AStatusAndItsWordsTravel)
{
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *diag) {
        if (hd_group_rank(group) != 1)
            return hd_group_allgather(group, nullptr, 0, nullptr, diag);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "%s", "no yarn for rank one");
    });

    EXPECT_EQ(outcome.status, HD_ERROR_NO_MEMORY);
    EXPECT_TRUE(Says(outcome, "rank 1: no yarn for rank one")) << outcome.text;
}

TEST(Launch, AWarningIsNotTheReason)
{
    Outcome outcome = Launch(2, [](hd_group *group, hd_diag *diag) {
        if (hd_group_rank(group) == 1) {
            hd_warning(diag, HD_CODE_NONE, hd_loc(), "%s", "the yarn is thin");
            return HD_ERROR_SYSTEM;
        }
        RANK_EXPECT(hd_group_allgather(group, nullptr, 0, nullptr, diag) ==
                    HD_ERROR_PEER);
        RANK_EXPECT(std::string(hd_diag_text(diag)) ==
                    "heddle: error: rank 1 failed: system error\n");
        return HD_ERROR_PEER;
    });

    EXPECT_EQ(outcome.status, HD_ERROR_SYSTEM);
    EXPECT_EQ(outcome.text, "heddle: warning: rank 1: the yarn is thin\n"
                            "heddle: error: rank 1 failed: system error\n");
}

hd_status ClearAndFail(void *words, hd_group *)
{
    hd_diag *diag = static_cast<hd_diag *>(words);

    hd_diag_clear(diag);
    return hd_fail(diag, HD_ERROR_SYSTEM, "%s", "the yarn tore");
}

TEST(Launch, WordsTravelFromADiagThatARankHasCleared)
{
    hd_diag *diag = hd_diag_create();

    EXPECT_EQ(hd_fail(diag, HD_ERROR_INVALID, "%s", "a knot"),
              HD_ERROR_INVALID);
    EXPECT_EQ(hd_launch(1, 10, 10, ClearAndFail, diag, diag), HD_ERROR_SYSTEM);
    EXPECT_STREQ(hd_diag_text(diag), "heddle: error: a knot\n"
                                     "heddle: error: rank 0: the yarn tore\n");
    hd_diag_destroy(diag);
}

TEST(Launch, ASignalIsNamed)
{
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *diag) {
        if (hd_group_rank(group) == 2)
            raise(SIGTERM);
        return hd_group_allgather(group, nullptr, 0, nullptr, diag);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_PEER);
    EXPECT_TRUE(Says(outcome, "rank 2 was killed by signal 15 (Terminated)"))
        << outcome.text;
}

TEST(Launch, ARankThatLeavesByItselfIsAFailure)
{
    Outcome outcome = Launch(2, [](hd_group *group, hd_diag *) {
        if (hd_group_rank(group) == 1)
            _exit(9);
        return HD_OK;
    });

    EXPECT_EQ(outcome.status, HD_ERROR_PEER);
    EXPECT_TRUE(Says(outcome, "rank 1 exited with code 9")) << outcome.text;
}

TEST(Launch, TheRestHaveOneSecond)
{
    auto start = Clock::now();
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *) {
        if (hd_group_rank(group) != 0)
            SleepForever();
        return HD_ERROR_UNSUPPORTED;
    });
    std::chrono::duration<double> took = Clock::now() - start;

    EXPECT_EQ(outcome.status, HD_ERROR_UNSUPPORTED);
    EXPECT_GT(took.count(), 0.9);
    EXPECT_LT(took.count(), 15);
}

TEST(Launch, WhoIsLateIsNamed)
{
    Outcome outcome = Launch(
        3,
        [](hd_group *group, hd_diag *) {
            if (hd_group_rank(group) != 0)
                SleepForever();
            return HD_OK;
        },
        0.3);

    EXPECT_EQ(outcome.status, HD_ERROR_TIMEOUT);
    EXPECT_TRUE(Says(outcome, "ranks 1, 2 still ran after 0.3 s"))
        << outcome.text;
}

TEST(Launch, MoreLateRanksThanThereIsRoomForAreCounted)
{
    Outcome outcome = Launch(
        100,
        [](hd_group *, hd_diag *) {
            SleepForever();
            return HD_OK;
        },
        0.3);

    EXPECT_TRUE(Says(outcome, "ranks 0, 1, ")) << outcome.text;
    EXPECT_TRUE(Says(outcome, ", 59 and 40 more still ran after 0.3 s"))
        << outcome.text;
}

bool IsRunning(pid_t pid)
{
    std::string path = "/proc/" + std::to_string(pid) + "/stat";
    FILE *file = fopen(path.c_str(), "r");
    char state = 'Z';

    if (file == nullptr)
        return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    fclose(file);
    return state != 'Z';
}

// Within 2 s; that its new parent reaps it may take longer.
bool IsGone(pid_t pid)
{
    for (int i = 0; i < 200 && IsRunning(pid); i++)
        usleep(10000);
    return !IsRunning(pid);
}

// Forks a launcher whose two ranks sleep; tells the ranks' processes.
pid_t ForkLauncher(pid_t rank[2])
{
    int ends[2];

    if (pipe(ends) != 0)
        return -1;
    pid_t launcher = fork();

    if (launcher == 0) {
        signal(SIGINT, SIG_DFL); // which a shell's background jobs ignore
        Outcome outcome = Launch(2, [&](hd_group *, hd_diag *) {
            pid_t self = getpid();

            RANK_EXPECT(write(ends[1], &self, sizeof(self)) == sizeof(self));
            SleepForever();
            return HD_OK;
        });
        _exit(outcome.status);
    }
    close(ends[1]);
    for (int i = 0; i < 2; i++) {
        if (read(ends[0], &rank[i], sizeof(pid_t)) != sizeof(pid_t))
            rank[i] = -1;
    }
    close(ends[0]);
    return launcher;
}

TEST(Launch, NoRankOutlivesAKilledLauncher)
{
    pid_t rank[2];
    pid_t launcher = ForkLauncher(rank);
    int how;

    ASSERT_GT(rank[0], 0);
    ASSERT_GT(rank[1], 0);
    kill(launcher, SIGKILL);
    waitpid(launcher, &how, 0);
    EXPECT_TRUE(IsGone(rank[0]));
    EXPECT_TRUE(IsGone(rank[1]));
}

TEST(Launch, AnInterruptEndsTheRanksAndThenTheLauncher)
{
    for (int signal : {SIGINT, SIGTERM}) {
        pid_t rank[2];
        pid_t launcher = ForkLauncher(rank);
        int how = 0;

        ASSERT_GT(rank[0], 0);
        ASSERT_GT(rank[1], 0);
        kill(launcher, signal);
        waitpid(launcher, &how, 0);
        EXPECT_TRUE(WIFSIGNALED(how));
        EXPECT_EQ(WTERMSIG(how), signal);
        EXPECT_TRUE(IsGone(rank[0]));
        EXPECT_TRUE(IsGone(rank[1]));
    }
}

volatile sig_atomic_t caught = 0;

TEST(Launch, TheCallersHandlersAreLeftAsTheyWere)
{
    struct sigaction ours = {};
    struct sigaction after = {};

    ours.sa_handler = [](int) { caught = 1; };
    sigaction(SIGTERM, &ours, nullptr);
    Outcome outcome = Launch(1, [](hd_group *, hd_diag *) {
        kill(getppid(), SIGTERM);
        SleepForever();
        return HD_OK;
    });

    sigaction(SIGTERM, nullptr, &after);
    EXPECT_EQ(after.sa_handler, ours.sa_handler);
    EXPECT_EQ(caught, 1);
    EXPECT_EQ(outcome.status, HD_ERROR_SYSTEM);
    EXPECT_TRUE(Says(outcome, "ended by signal 15")) << outcome.text;
    signal(SIGTERM, SIG_DFL);
}

TEST(Launch, ASignalThatTheCallerIgnoresEndsNothing)
{
    for (int ignored : {SIGHUP, SIGINT, SIGTERM}) {
        auto before = signal(ignored, SIG_IGN);
        Outcome outcome = Launch(2, [&](hd_group *group, hd_diag *diag) {
            kill(getppid(), ignored);
            return hd_group_allgather(group, nullptr, 0, nullptr, diag);
        });

        signal(ignored, before);
        EXPECT_EQ(outcome.status, HD_OK) << outcome.text;
    }
}

TEST(Launch, NoDescriptorIsLeftOpen)
{
    size_t before = OpenDescriptors();
    size_t here = before;
    AllEndWell(Launch(3, [here](hd_group *, hd_diag *) {
        // Two peers, the watcher's eventfd, and nothing of the launcher's.
        RANK_EXPECT(OpenDescriptors() == here + 3);
        return HD_OK;
    }));
    EXPECT_EQ(OpenDescriptors(), before);
}

// The child of that number does not come back from fork; -1: all do.
int stuck_child = -1;
int children = 0;

void CountChild()
{
    children++;
}

void StickChild()
{
    if (children - 1 == stuck_child)
        SleepForever();
}

TEST(Launch, ARankThatDoesNotConnectIsNamedWithinTheTimeout)
{
    static int once = pthread_atfork(CountChild, nullptr, StickChild);

    EXPECT_EQ(once, 0);
    children = 0;
    stuck_child = 2;
    auto start = Clock::now();
    Outcome outcome = Launch(
        4, [](hd_group *, hd_diag *) { return HD_OK; }, 60, 3);
    std::chrono::duration<double> took = Clock::now() - start;

    stuck_child = -1;
    EXPECT_EQ(outcome.status, HD_ERROR_TIMEOUT);
    EXPECT_TRUE(Says(outcome, " waits for rank 2 to connect, for 3 s now"))
        << outcome.text;
    EXPECT_LT(took.count(), 30);
}

TEST(Launch, CollectiveCallsWaitAsLongAsItsTimeout)
{
    auto start = Clock::now();
    Outcome outcome = Launch(
        2,
        [](hd_group *group, hd_diag *diag) {
            if (hd_group_rank(group) == 1)
                SleepForever();
            return hd_group_allgather(group, nullptr, 0, nullptr, diag);
        },
        60, 3);
    std::chrono::duration<double> took = Clock::now() - start;

    EXPECT_EQ(outcome.status, HD_ERROR_TIMEOUT);
    EXPECT_TRUE(Says(outcome, "rank 1")) << outcome.text;
    EXPECT_LT(took.count(), 30);
}

TEST(Launch, ItsArgumentsAreChecked)
{
    EXPECT_EQ(hd_launch(0, 1, 0, CallRank, nullptr, nullptr),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(hd_launch(5000, 1, 0, CallRank, nullptr, nullptr),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(hd_launch(1, 0, 0, CallRank, nullptr, nullptr),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(hd_launch(1, NAN, 0, CallRank, nullptr, nullptr),
              HD_ERROR_ARGUMENT);
}

} // namespace
