#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/ranks/frame.h"
#include "runtime/ranks/group.h"
#include "tests/clock.h"
#include "tests/unit/memory.h"
#include "tests/unit/ranks.h"

// Of mesh.h, which is C alone: a failure that no peer is told of yet.
extern "C" bool hd_group_note_failure(hd_group *group, hd_status status,
                                      const char *text);

namespace
{

double Seconds(Clock::time_point since)
{
    return std::chrono::duration<double>(Clock::now() - since).count();
}

hd_status GatherSizes(hd_group *group)
{
    size_t n = static_cast<size_t>(hd_group_size(group));

    for (size_t bytes : {size_t{0}, size_t{1}, size_t{100}, HD_FRAME_ROOM,
                         3 * HD_FRAME_ROOM + 17}) {
        std::vector<char> mine(bytes), all(bytes * n, 0x7f);

        for (size_t i = 0; i < bytes; i++)
            mine[i] = static_cast<char>(i * 7 + size_t(hd_group_rank(group)));
        HD_TRY(
            hd_group_allgather(group, mine.data(), bytes, all.data(), nullptr));
        for (size_t i = 0; i < bytes * n; i++)
            RANK_EXPECT(all[i] == static_cast<char>(i % bytes * 7 + i / bytes));
    }
    return HD_OK;
}

TEST(Group, EveryRankGathersFromEveryOther)
{
    for (int ranks : {1, 2, 3, 5, 8}) {
        Outcome outcome = Launch(ranks, [](hd_group *group, hd_diag *) {
            return GatherSizes(group);
        });

        EXPECT_EQ(outcome.status, HD_OK) << ranks << ": " << outcome.text;
    }
}

TEST(Group, RanksMayBeThreads)
{
    for (hd_status status : Threads(4, GatherSizes))
        EXPECT_EQ(status, HD_OK);
}

TEST(Group, NoDescriptorIsLeftOpen)
{
    size_t before = OpenDescriptors();

    Threads(3, GatherSizes);
    EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Group, ARankThatFinishesFirstIsNotTakenForDead)
{
    for (hd_status status : Threads(3, [](hd_group *group) {
             if (hd_group_rank(group) == 1)
                 return HD_OK;
             SleepFor(0.05);
             return hd_group_failed(group) ? HD_ERROR_PEER : HD_OK;
         }))
        EXPECT_EQ(status, HD_OK);
}

TEST(Group, WaitingForARankThatHasLeftEndsAtOnce)
{
    auto start = Clock::now();
    std::vector<hd_status> status = Threads(2, [](hd_group *group) {
        if (hd_group_rank(group) == 1)
            return HD_OK;
        return hd_group_allgather(group, nullptr, 0, nullptr, nullptr);
    });

    EXPECT_EQ(status[0], HD_ERROR_PEER);
    EXPECT_LT(Seconds(start), 15);
}

TEST(Group, ARankThatNeverCallsIsNamedAtTheDeadline)
{
    std::string text;
    std::vector<hd_status> status = Threads(
        2,
        [&](hd_group *group) {
            hd_diag *diag = hd_diag_create();
            hd_status got = HD_OK;

            if (hd_group_rank(group) == 0) {
                got = hd_group_allgather(group, nullptr, 0, nullptr, diag);
                text = hd_diag_text(diag);
            } else {
                SleepFor(0.5);
            }
            hd_diag_destroy(diag);
            return got;
        },
        0.2);

    EXPECT_EQ(status[0], HD_ERROR_TIMEOUT);
    EXPECT_NE(text.find("rank 0 waits for rank 1"), std::string::npos) << text;
}

TEST(Group, ARankThatIsNotAsFarInACallIsNotSaidToHaveNotCalledIt)
{
    std::string text;
    std::vector<hd_status> status = Threads(2, [&](hd_group *group) {
        hd_diag *diag = hd_diag_create();
        hd_exchange exchange = hd_exchange_begin(
            group, HD_CALL_SESSION, hd_group_rank(group) == 0 ? 0.2 : 20, diag);
        hd_status got = hd_exchange_agree(&exchange, HD_OK);

        // Rank 1 hears of the failure when it comes to the second phase.
        while (hd_group_rank(group) == 1 && !hd_group_failed(group))
            usleep(1000);
        if (got == HD_OK)
            got = hd_exchange_agree(&exchange, HD_OK);
        if (hd_group_rank(group) == 0)
            text = hd_diag_text(diag);
        hd_diag_destroy(diag);
        return got;
    });

    EXPECT_EQ(status[0], HD_ERROR_TIMEOUT);
    EXPECT_NE(text.find("rank 0 waits for rank 1 in hd_session_create, which "
                        "has called it and is not as far"),
              std::string::npos)
        << text;
}

TEST(Group, DifferentCallsAreNamed)
{
    std::string text[2];

    Threads(2, [&](hd_group *group) {
        int rank = hd_group_rank(group);
        hd_diag *diag = hd_diag_create();
        hd_meeting call = rank == 0 ? HD_CALL_SESSION : HD_CALL_ALLGATHER;
        hd_exchange exchange = hd_exchange_begin(group, call, 5, diag);
        hd_status got = hd_exchange_allgather(&exchange, "", 0, nullptr);

        text[rank] = hd_diag_text(diag);
        hd_diag_destroy(diag);
        return got;
    });
    EXPECT_NE(text[0].find("rank 1 is in hd_group_allgather"),
              std::string::npos)
        << text[0];
}

TEST(Group, AKilledRankIsNamedByEveryOther)
{
    auto start = Clock::now();
    Outcome outcome = Launch(4, [](hd_group *group, hd_diag *diag) {
        if (hd_group_rank(group) == 2)
            raise(SIGKILL);
        hd_status status = hd_group_allgather(group, nullptr, 0, nullptr, diag);
        std::string text = hd_diag_text(diag);

        RANK_EXPECT(status == HD_ERROR_PEER);
        RANK_EXPECT(text.find("rank 2 died") != std::string::npos);
        return HD_ERROR_PEER;
    });

    EXPECT_EQ(outcome.status, HD_ERROR_PEER);
    EXPECT_NE(outcome.text.find("rank 2 was killed by signal 9 (Killed)"),
              std::string::npos)
        << outcome.text;
    EXPECT_LT(Seconds(start), 15);
}

// A process that a dead rank has forked keeps its sockets open, as one does
// that the kernel has not taken apart yet. It ends once nobody writes to
// `fate`.
void DieWithSocketsOpen(const int fate[2], const int told[2])
{
    if (fork() == 0) {
        char nothing;

        for (int fd : {fate[1], told[1]})
            close(fd);
        while (read(fate[0], &nothing, 1) > 0)
            ;
        _exit(0);
    }
    raise(SIGKILL);
}

TEST(Group, ARankIsDeadBeforeItsSocketsClose)
{
    if (RanksAreThreads())
        GTEST_SKIP() << "one of them dies";
    int fate[2], told[2];

    ASSERT_EQ(pipe(fate), 0);
    ASSERT_EQ(pipe(told), 0);
    Outcome outcome = Launch(4, [&](hd_group *group, hd_diag *diag) {
        hd_status status = hd_group_allgather(group, nullptr, 0, nullptr, diag);

        if (hd_group_rank(group) == 2)
            DieWithSocketsOpen(fate, told);
        if (status == HD_OK) // else some rank was slow, and heard of it there
            status = hd_group_allgather(group, nullptr, 0, nullptr, diag);
        if (status == HD_ERROR_PEER &&
            strstr(hd_diag_text(diag), "rank 2 died") != nullptr)
            RANK_EXPECT(write(told[1], "", 1) == 1);
        return HD_OK;
    });
    char one;
    int all = 0;

    close(fate[0]);
    close(fate[1]);
    close(told[1]);
    while (read(told[0], &one, 1) == 1)
        all++;
    EXPECT_EQ(all, 3) << outcome.text;
    close(told[0]);
}

TEST(Group, WhatAFailedRankSaysReachesTheOthers)
{
    std::vector<std::string> text(3);
    std::vector<hd_status> status = Threads(3, [&](hd_group *group) {
        size_t rank = size_t(hd_group_rank(group));
        hd_diag *diag = hd_diag_create();
        hd_status got;

        if (rank == 1)
            hd_group_fail(group, "rank 1 failed: the loom is on fire");
        got = hd_group_allgather(group, nullptr, 0, nullptr, diag);
        text[rank] = hd_diag_text(diag);
        hd_diag_destroy(diag);
        return got;
    });

    for (size_t rank = 0; rank < 3; rank++) {
        EXPECT_EQ(status[rank], HD_ERROR_PEER);
        EXPECT_NE(text[rank].find("the loom is on fire"), std::string::npos)
            << text[rank];
    }
}

// Rank 1 of three is aborted while all wait for a rank that never calls. How
// it is done, `abort` says.
void ExpectAborted(int caller, const std::function<void(hd_group *)> &abort)
{
    std::atomic<double> longest = 0;
    std::vector<hd_status> status = Threads(3, [&](hd_group *group) {
        hd_diag *diag = hd_diag_create();
        Clock::time_point start;
        std::thread other;
        hd_status got;

        if (hd_group_rank(group) == caller) {
            start = Clock::now();
            abort(group);
        } else {
            other = std::thread([&] {
                // Long enough that all are in the call.
                SleepFor(0.1);
                start = Clock::now();
                if (hd_group_rank(group) == 1)
                    abort(group);
            });
            got = hd_group_allgather(group, nullptr, 0, nullptr, diag);
            other.join();
            longest = std::max(longest.load(), Seconds(start));
            RANK_EXPECT(got == HD_ERROR_PEER);
            RANK_EXPECT(strstr(hd_diag_text(diag), "rank 1 was aborted by its "
                                                   "caller") != nullptr);
        }
        // What comes later fails too.
        got = hd_group_allgather(group, nullptr, 0, nullptr, nullptr);
        hd_diag_destroy(diag);
        return got;
    });

    for (hd_status one : status)
        EXPECT_EQ(one, HD_ERROR_PEER);
    EXPECT_LT(longest, 5); // of 20; on an idle machine below 0.001
}

hd_group *aborted; // by the handler

TEST(Group, AnAbortEndsTheWaitsOfAllRanksAndIsNamed)
{
    // Rank 0 does not call before it knows.
    ExpectAborted(0, [&](hd_group *group) {
        for (int i = 0; i < 2 && hd_group_rank(group) == 1; i++)
            hd_group_abort(group);
        while (!hd_group_failed(group))
            std::this_thread::yield();
    });
}

TEST(Group, ASignalHandlerMayAbort)
{
    signal(SIGUSR1, [](int) { hd_group_abort(aborted); });
    ExpectAborted(0, [&](hd_group *group) {
        if (hd_group_rank(group) == 1) {
            aborted = group;
            errno = 4711;
            raise(SIGUSR1);
            EXPECT_EQ(errno, 4711);
        }
        while (!hd_group_failed(group))
            std::this_thread::yield();
    });
    signal(SIGUSR1, SIG_DFL);
}

// A send waits for room where its peer is stopped and takes nothing.
// Rank 1 knows of it by rank 0 alone.
TEST(Group, AnAbortHidesNoFailureThatWasBefore)
{
    std::string text[2];
    std::vector<hd_status> status = Threads(2, [&](hd_group *group) {
        int rank = hd_group_rank(group);
        hd_diag *diag = hd_diag_create();
        hd_status got;

        if (rank == 0) {
            hd_group_note_failure(group, HD_ERROR_PEER, "rank 2 died");
            hd_group_abort(group);
        }
        got = hd_group_allgather(group, nullptr, 0, nullptr, diag);
        text[rank] = hd_diag_text(diag);
        hd_diag_destroy(diag);
        return got;
    });

    for (size_t rank = 0; rank < 2; rank++) {
        EXPECT_EQ(status[rank], HD_ERROR_PEER);
        EXPECT_NE(text[rank].find("rank 2 died"), std::string::npos)
            << text[rank];
    }
}

// Ends once the process is no more.
bool AwaitDeath(pid_t pid)
{
    int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    pollfd ask = {fd, POLLIN, 0};
    bool gone = fd < 0 ? errno == ESRCH : poll(&ask, 1, 20000) == 1;

    if (fd >= 0)
        close(fd);
    return gone;
}

TEST(Group, WhoAbortsItBecauseARankDiedIsToldOfTheRank)
{
    if (RanksAreThreads())
        GTEST_SKIP() << "one of them dies";
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *diag) {
        pid_t mine = getpid(), all[3];
        std::string text;

        HD_TRY(hd_group_allgather(group, &mine, sizeof mine, all, diag));
        if (hd_group_rank(group) == 2)
            raise(SIGKILL);
        RANK_EXPECT(AwaitDeath(all[2]));
        hd_group_abort(group);
        RANK_EXPECT(hd_group_allgather(group, nullptr, 0, nullptr, diag) ==
                    HD_ERROR_PEER);
        text = hd_diag_text(diag);
        RANK_EXPECT(text.find("rank 2 died") != std::string::npos);
        hd_diag_clear(diag);
        return HD_OK;
    });

    EXPECT_NE(outcome.text.find("rank 2"), std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.text.find("is false"), std::string::npos);
}

TEST(Group, AnAbortEndsASendThatNobodyTakes)
{
    Outcome outcome = Launch(2, [](hd_group *group, hd_diag *diag) {
        pid_t pid = getpid(), other[2];
        std::vector<char> much(16 << 20), all(32 << 20);

        HD_TRY(hd_group_allgather(group, &pid, sizeof pid, other, diag));
        if (hd_group_rank(group) == 1) {
            sleep(30);
            return HD_OK;
        }
        kill(other[1], SIGSTOP);
        Clock::time_point start;
        std::thread aborter([&] {
            SleepFor(0.3);
            start = Clock::now();
            hd_group_abort(group);
        });
        hd_status status = hd_group_allgather(group, much.data(), much.size(),
                                              all.data(), nullptr);
        aborter.join();
        RANK_EXPECT(Seconds(start) < 5); // of 30; on an idle machine 0.07
        RANK_EXPECT(status == HD_ERROR_PEER);
        kill(other[1], SIGKILL);
        return HD_OK;
    });

    EXPECT_EQ(outcome.status, HD_ERROR_PEER) << outcome.text;
    EXPECT_NE(outcome.text.find("rank 1 was killed"), std::string::npos)
        << outcome.text;
}

TEST(Group, APhaseFailsOnAllRanksOrOnNone)
{
    std::vector<hd_status> status = Threads(3, [](hd_group *group) {
        hd_exchange exchange =
            hd_exchange_begin(group, HD_CALL_SESSION, 5, nullptr);
        hd_status mine = hd_group_rank(group) == 2 ? HD_ERROR_NO_MEMORY : HD_OK;
        hd_status got = hd_exchange_agree(&exchange, mine);

        if (hd_group_failed(group) || hd_exchange_agree(&exchange, HD_OK))
            return HD_ERROR_INVALID; // the group itself must still work
        return got;
    });

    EXPECT_EQ(status[0], HD_ERROR_PEER);
    EXPECT_EQ(status[1], HD_ERROR_PEER);
    EXPECT_EQ(status[2], HD_ERROR_NO_MEMORY);
}

TEST(Group, ARankThatHasFailedItselfIsNotToldOfOthers)
{
    std::vector<hd_status> status = Threads(2, [](hd_group *group) {
        hd_diag *diag = hd_diag_create();
        hd_exchange exchange =
            hd_exchange_begin(group, HD_CALL_SESSION, 5, diag);
        hd_status mine;

        if (hd_group_rank(group) == 1)
            hd_group_fail(group, "rank 1 failed: the loom is on fire");
        while (!hd_group_failed(group))
            std::this_thread::yield();
        mine = hd_fail(diag, HD_ERROR_SYSTEM, "the thread is torn");
        mine = hd_exchange_agree(&exchange, mine);
        RANK_EXPECT(hd_diag_count(diag) == 1);
        hd_diag_destroy(diag);
        return mine;
    });

    EXPECT_EQ(status[0], HD_ERROR_SYSTEM);
    EXPECT_EQ(status[1], HD_ERROR_SYSTEM);
}

TEST(Group, ADescriptorTravelsWithItsPart)
{
    std::vector<hd_status> status = Threads(2, [](hd_group *group) {
        hd_exchange exchange =
            hd_exchange_begin(group, HD_CALL_SESSION, 5, nullptr);
        int rank = hd_group_rank(group);
        int ends[2];
        int fd = -1;
        int number = 0;
        char got = 0;

        if (rank == 1) {
            HD_TRY(hd_exchange_collect(&exchange, 0, &number, sizeof(number),
                                       &fd));
            RANK_EXPECT(number == 4711 && fd >= 0);
            RANK_EXPECT(read(fd, &got, 1) == 1 && got == 'x');
            close(fd);
            return HD_OK;
        }
        RANK_EXPECT(pipe2(ends, O_CLOEXEC) == 0);
        RANK_EXPECT(write(ends[1], "x", 1) == 1);
        number = 4711;
        HD_TRY(
            hd_exchange_post(&exchange, 1, &number, sizeof(number), ends[0]));
        close(ends[0]);
        close(ends[1]);
        return HD_OK;
    });

    EXPECT_EQ(status[0], HD_OK);
    EXPECT_EQ(status[1], HD_OK);
}

// Rank 1 fails when it has all that it needs of an exchange, and rank 0 hears
// of that before it has posted to rank 2.
TEST(Group, ARankThatFailsPastAnExchangeDoesNotFailIt)
{
    std::vector<hd_status> status = Threads(3, [](hd_group *group) {
        hd_exchange exchange =
            hd_exchange_begin(group, HD_CALL_SESSION, 5, nullptr);
        int rank = hd_group_rank(group);
        int number = rank + 4711;
        int got = 0;

        for (int i : {1, 0, 2}) {
            if (i == rank)
                continue;
            HD_TRY(hd_exchange_post(&exchange, i, &number, sizeof(number), -1));
            while (rank == 0 && i == 1 && !hd_group_failed(group))
                usleep(1000); // the watcher hears of it, or of rank 1's end
        }
        for (int i : {0, 1, 2}) {
            if (i == rank)
                continue;
            HD_TRY(
                hd_exchange_collect(&exchange, i, &got, sizeof(got), nullptr));
            RANK_EXPECT(got == i + 4711);
        }
        if (rank == 1)
            hd_group_fail(group, "rank 1 failed: past it");
        if (rank != 0)
            return HD_OK;
        RANK_EXPECT(hd_group_allgather(group, nullptr, 0, nullptr, nullptr) ==
                    HD_ERROR_PEER);
        return HD_OK;
    });

    EXPECT_EQ(status[0], HD_OK);
    EXPECT_EQ(status[1], HD_OK);
    EXPECT_EQ(status[2], HD_ERROR_PEER); // which rank 0 did not post to
}

TEST(Group, AFailureOfItsGatheringIsTheRanksOwn)
{
    struct {
        int given;
        hd_status want;
        const char *says;
    } cases[] = {
        {HD_ERROR_TIMEOUT, HD_ERROR_TIMEOUT,
         "rank 1: the ranks' addresses could not be"},
        {HD_ERROR_PEER, HD_ERROR_PEER, "its allgather failed (another rank"},
        {HD_ERROR_SYSTEM, HD_ERROR_SYSTEM,
         "its allgather failed (system error"},
        {HD_ERROR_INVALID, HD_ERROR_INVALID,
         "its allgather failed (invalid program)"},
        {57, HD_ERROR_ARGUMENT,
         "its allgather has returned 57, which is no status"},
        {-1, HD_ERROR_ARGUMENT,
         "its allgather has returned -1, which is no status"},
    };

    for (auto &one : cases) {
        hd_diag *diag = hd_diag_create();
        hd_group *group = nullptr;
        hd_oob oob = {sizeof oob, &one.given, 1, 2,
                      [](void *context, const void *, size_t, void *) {
                          hd_status status;

                          memcpy(&status, context, sizeof status);
                          return status;
                      }};

        EXPECT_EQ(hd_group_create(&oob, 1, diag, &group), one.want);
        EXPECT_NE(strstr(hd_diag_text(diag), one.says), nullptr)
            << hd_diag_text(diag);
        hd_diag_destroy(diag);
    }
}

TEST(Group, ItsArgumentsAreChecked)
{
    hd_oob oob = {sizeof oob, nullptr, 2, 2, nullptr};
    hd_group *group = nullptr;

    EXPECT_EQ(hd_group_create(&oob, 1, nullptr, &group), HD_ERROR_ARGUMENT);
    oob.rank = 0;
    EXPECT_EQ(hd_group_create(&oob, 1, nullptr, &group), HD_ERROR_ARGUMENT);
    oob.nranks = 1;
    EXPECT_EQ(hd_group_create(&oob, 0, nullptr, &group), HD_ERROR_ARGUMENT);
    EXPECT_EQ(hd_group_create(&oob, 1, nullptr, &group), HD_OK);
    hd_group_destroy(group);
    hd_group_destroy(nullptr);
}

// As where ranks are numbered in one way here and in another there.
hd_status GatherBackwards(void *context, const void *mine, size_t bytes,
                          void *all)
{
    Seat *seat = static_cast<Seat *>(context);
    Seat other = {seat->rendezvous, 1 - seat->rank};

    return GatherAtSeat(&other, mine, bytes, all);
}

TEST(Group, AnAllgatherOutOfRankOrderIsToldAtOnce)
{
    Rendezvous rendezvous(2);
    std::vector<std::thread> threads;

    for (int rank = 0; rank < 2; rank++)
        threads.emplace_back([&, rank] {
            Seat seat = {&rendezvous, rank};
            hd_oob oob = {sizeof oob, &seat, rank, 2, GatherBackwards};
            hd_diag *diag = hd_diag_create();
            hd_group *group = nullptr;

            EXPECT_EQ(hd_group_create(&oob, 5, diag, &group),
                      HD_ERROR_ARGUMENT);
            EXPECT_NE(std::string(hd_diag_text(diag)).find("its allgather"),
                      std::string::npos)
                << hd_diag_text(diag);
            hd_diag_destroy(diag);
        });
    for (std::thread &thread : threads)
        thread.join();
}

// Where a rank listens, as its endpoint has it: an address in the abstract
// namespace that the kernel picked, which is a family, a NUL and five digits.
bool FindAddress(const char *endpoint, size_t bytes, sockaddr_un *out)
{
    const sa_family_t family = AF_UNIX;

    for (size_t i = 0; i + 8 <= bytes; i++) {
        if (memcmp(endpoint + i, &family, sizeof(family)) != 0 ||
            endpoint[i + 2] != 0)
            continue;
        int digits = 0;

        while (digits < 5 && isxdigit(endpoint[i + 3 + size_t(digits)]))
            digits++;
        if (digits < 5)
            continue;
        memcpy(out, endpoint + i, 8);
        return true;
    }
    return false;
}

// A process that calls as often as there is room, and then waits. It is none of
// the ranks.
class Strangers
{
  public:
    // Comes back once there is room for no more; says how many they are.
    int Call(const sockaddr_un &address)
    {
        int n = 0, ends[2];

        if (pipe2(ends, O_CLOEXEC) != 0)
            return 0;
        child_ = fork();
        if (child_ == 0) {
            while (CallOnce(address))
                n++;
            _exit(write(ends[1], &n, sizeof n) == sizeof n ? pause() : 1);
        }
        close(ends[1]);
        EXPECT_EQ(read(ends[0], &n, sizeof n), ssize_t(sizeof n));
        close(ends[0]);
        return n;
    }
    ~Strangers()
    {
        if (child_ > 0) {
            kill(child_, SIGKILL);
            waitpid(child_, nullptr, 0);
        }
    }

  private:
    static bool CallOnce(const sockaddr_un &address)
    {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

        return connect(fd, reinterpret_cast<const sockaddr *>(&address), 8) ==
               0;
    }
    pid_t child_ = -1;
};

// Two ranks, of which rank 0 does not come back from the gathering before its
// queue is full of strangers; then before rank 1 has given up, if it is to be
// `deaf`.
struct FullQueue {
    hd_status Run(double timeout)
    {
        std::thread zero([&] { Join(0, timeout, zero_diag); });

        hd_status status = Join(1, timeout, one_diag);
        given_up = true;
        zero.join();
        return status;
    }
    hd_status Join(int rank, double timeout, hd_diag *diag)
    {
        Place place = {this, rank};
        hd_oob oob = {sizeof oob, &place, rank, 2, Gather};
        hd_group *group = nullptr;
        hd_status status = hd_group_create(&oob, timeout, diag, &group);

        hd_group_destroy(group);
        return status;
    }
    struct Place {
        FullQueue *queue;
        int rank;
    };
    static hd_status Gather(void *context, const void *mine, size_t bytes,
                            void *all)
    {
        Place *place = static_cast<Place *>(context);
        FullQueue *queue = place->queue;
        sockaddr_un address = {};

        HD_TRY(queue->rendezvous.Gather(place->rank, mine, bytes, all));
        if (place->rank == 1) {
            EXPECT_TRUE(FindAddress(static_cast<char *>(all), bytes, &address));
            queue->callers = queue->strangers.Call(address);
            queue->full = true;
            return HD_OK;
        }
        while (!queue->full || (queue->deaf && !queue->given_up))
            usleep(1000);
        SleepFor(0.05); // so that rank 1 has surely called
        return HD_OK;
    }

    Rendezvous rendezvous{2};
    Strangers strangers;
    int callers = 0;
    std::atomic<bool> full{false}, given_up{false};
    bool deaf = false;
    hd_diag *zero_diag = hd_diag_create(), *one_diag = hd_diag_create();

    ~FullQueue()
    {
        hd_diag_destroy(zero_diag);
        hd_diag_destroy(one_diag);
    }
};

// Descriptors for as many callers as the system lets wait.
bool MayFillAQueue()
{
    struct rlimit limit = {};
    rlim_t somaxconn = 0;

    std::ifstream("/proc/sys/net/core/somaxconn") >> somaxconn;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return somaxconn > 0 && limit.rlim_max > somaxconn + 100;
}

TEST(Group, ARankWaitsForRoomInAQueueThatStrangersHaveFilled)
{
    FullQueue queue;

    if (!MayFillAQueue())
        GTEST_SKIP() << "ulimit -Hn is below net.core.somaxconn";
    EXPECT_EQ(queue.Run(20), HD_OK) << hd_diag_text(queue.one_diag);
    EXPECT_GT(queue.callers, 2);
}

TEST(Group, AQueueThatStaysFullIsATimeoutAndSaidToBe)
{
    FullQueue queue;

    if (!MayFillAQueue())
        GTEST_SKIP() << "ulimit -Hn is below net.core.somaxconn";
    queue.deaf = true;
    EXPECT_EQ(queue.Run(0.3), HD_ERROR_TIMEOUT);
    EXPECT_NE(strstr(hd_diag_text(queue.one_diag),
                     "rank 1 waits for room among those who call rank 0"),
              nullptr)
        << hd_diag_text(queue.one_diag);
}

// The watcher may learn of both at once.
TEST(Group, AnAbortIsToldThoughTheGroupIsDestroyedAtOnce)
{
    for (int i = 0; i < 50; i++) {
        std::string text;

        Threads(2, [&](hd_group *group) {
            if (hd_group_rank(group) == 1) {
                hd_group_abort(group);
                return HD_OK; // and it is destroyed
            }
            hd_diag *diag = hd_diag_create();
            hd_status status =
                hd_group_allgather(group, nullptr, 0, nullptr, diag);

            text = hd_diag_text(diag);
            hd_diag_destroy(diag);
            return status;
        });
        ASSERT_NE(text.find("rank 1 was aborted by its caller"), text.npos)
            << i << ": " << text;
    }
}

// A watcher that may not poll as many descriptors as it has says so.
TEST(Group, ALimitOfDescriptorsBelowTheRanksIsToldToAll)
{
    AllEndWell(Launch(3, [](hd_group *group, hd_diag *) {
        int rank = hd_group_rank(group);
        hd_diag *words = hd_diag_create();
        rlimit before{}, few{};
        hd_status status = HD_OK;

        getrlimit(RLIMIT_NOFILE, &before);
        few = before;
        few.rlim_cur = 3;
        if (rank == 1)
            setrlimit(RLIMIT_NOFILE, &few);
        for (int i = 0; i < 1000 && status == HD_OK; i++)
            status = hd_group_allgather(group, nullptr, 0, nullptr, words);
        setrlimit(RLIMIT_NOFILE, &before);
        std::string text = hd_diag_text(words);
        hd_diag_destroy(words);
        RANK_EXPECT(status == HD_ERROR_PEER);
        RANK_EXPECT(text.find("rank 1 cannot watch 3 ranks any more") !=
                    text.npos);
        return HD_OK;
    }));
}

// Two connected sockets as ranks have them.
class Frame : public testing::Test
{
  protected:
    void SetUp() override
    {
        int on = 1;

        ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, end_),
                  0);
        setsockopt(end_[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    }
    void TearDown() override
    {
        close(end_[0]);
        close(end_[1]);
    }
    hd_status Receive(pid_t pid)
    {
        return hd_frame_receive(end_[1], pid, &got_, payload_, &passed_);
    }
    int end_[2];
    hd_frame got_;
    int passed_;
    char payload_[HD_FRAME_ROOM];
};

TEST_F(Frame, ArrivesAsItWasSent)
{
    hd_frame frame = {};

    frame.kind = HD_FRAME_DATA;
    frame.serial = 12;
    frame.bytes = 5;
    ASSERT_EQ(hd_frame_send(end_[0], frame, "hallo", -1, INT64_MAX), HD_OK);
    ASSERT_EQ(Receive(getpid()), HD_OK);
    EXPECT_EQ(std::string(payload_, got_.bytes), "hallo");
    EXPECT_EQ(got_.serial, 12u);
    EXPECT_EQ(passed_, -1);
    EXPECT_EQ(Receive(getpid()), HD_ERROR_TIMEOUT);
}

TEST_F(Frame, WithADescriptorThatThereIsNoRoomForIsNotBroken)
{
    hd_frame frame = {};
    rlimit before{}, none{};

    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    ASSERT_EQ(hd_frame_send(end_[0], frame, "", end_[0], INT64_MAX), HD_OK);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    hd_status status = Receive(getpid());
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(status, HD_ERROR_NO_MEMORY);
    EXPECT_EQ(passed_, -1);
}

TEST_F(Frame, FromAnotherProcessIsRefused)
{
    hd_frame frame = {};

    ASSERT_EQ(hd_frame_send(end_[0], frame, "", -1, INT64_MAX), HD_OK);
    EXPECT_EQ(Receive(getpid() + 1), HD_ERROR_INVALID);
}

TEST_F(Frame, WithAFlippedBitIsRefused)
{
    hd_frame frame = {};
    char bytes[sizeof(frame) + 5];

    frame.bytes = 5;
    ASSERT_EQ(hd_frame_send(end_[0], frame, "hallo", -1, INT64_MAX), HD_OK);
    ASSERT_EQ(recv(end_[1], bytes, sizeof(bytes), 0), ssize_t(sizeof(bytes)));
    ASSERT_EQ(send(end_[0], bytes, sizeof(bytes), 0), ssize_t(sizeof(bytes)));
    EXPECT_EQ(Receive(getpid()), HD_OK);
    bytes[sizeof(frame) + 2] ^= 4;
    ASSERT_EQ(send(end_[0], bytes, sizeof(bytes), 0), ssize_t(sizeof(bytes)));
    EXPECT_EQ(Receive(getpid()), HD_ERROR_INVALID);
}

TEST_F(Frame, TooShortIsRefused)
{
    ASSERT_EQ(send(end_[0], "hedd", 4, 0), 4);
    EXPECT_EQ(Receive(getpid()), HD_ERROR_INVALID);
}

// As ranks of several hosts have them: what arrives is any part of a frame.
class FramePart : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, end_), 0);
    }
    void TearDown() override
    {
        close(end_[0]);
        close(end_[1]);
    }
    // The bytes that a frame with this payload travels as.
    std::string Bytes(const std::string &payload, uint32_t kind = HD_FRAME_DATA)
    {
        std::string bytes(sizeof(hd_frame) + payload.size(), '\0');
        hd_frame frame = {};

        frame.kind = kind;
        frame.serial = 12;
        frame.bytes = static_cast<uint32_t>(payload.size());
        EXPECT_EQ(hd_wire_put(end_[0], frame, payload.data(), INT64_MAX),
                  HD_OK);
        EXPECT_EQ(recv(end_[1], &bytes[0], bytes.size(), MSG_WAITALL),
                  ssize_t(bytes.size()));
        return bytes;
    }
    void Send(const std::string &bytes)
    {
        ASSERT_EQ(send(end_[0], bytes.data(), bytes.size(), 0),
                  ssize_t(bytes.size()));
    }
    hd_status Take(pid_t pid = getpid())
    {
        wire_.fd = end_[1];
        wire_.pid = pid;
        return hd_wire_take(&wire_, data_, 0, HD_FRAME_ROOM);
    }
    int end_[2];
    hd_wire wire_ = {};
    char data_[HD_FRAME_ROOM];
};

TEST_F(FramePart, IsTakenAsItComesAndNoFurther)
{
    std::string first = Bytes("hallo"), second = Bytes("", HD_FRAME_GOODBYE);
    std::string both = first + second;

    for (size_t i = 0; i < both.size(); i++) {
        bool whole = i + 1 == first.size() || i + 1 == both.size();

        Send(both.substr(i, 1));
        ASSERT_EQ(Take(), whole ? HD_OK : HD_ERROR_TIMEOUT) << i;
        if (i + 1 == first.size()) {
            EXPECT_EQ(std::string(data_, wire_.frame.bytes), "hallo");
            EXPECT_EQ(wire_.frame.serial, 12u);
        }
    }
    EXPECT_EQ(wire_.frame.kind, uint32_t(HD_FRAME_GOODBYE));
    Send(both);
    EXPECT_EQ(Take(), HD_OK);
    EXPECT_EQ(std::string(data_, wire_.frame.bytes), "hallo");
    EXPECT_EQ(Take(), HD_OK);
    EXPECT_EQ(Take(), HD_ERROR_TIMEOUT);
    Send(first.substr(0, 20));
    EXPECT_EQ(Take(), HD_ERROR_TIMEOUT);
    shutdown(end_[0], SHUT_WR);
    EXPECT_EQ(Take(), HD_ERROR_PEER);
}

TEST_F(FramePart, WithAFlippedBitIsRefused)
{
    std::string bytes = Bytes("hallo");

    for (size_t i = 0; i < bytes.size(); i++) {
        std::string broken = bytes;

        // A length that has grown waits for more: let it come.
        broken[i] = static_cast<char>(broken[i] ^ 0x10);
        Send(broken + std::string(HD_FRAME_ROOM, 'x'));
        hd_status status = Take();
        EXPECT_TRUE(status == HD_ERROR_INVALID || status == HD_ERROR_ARGUMENT)
            << i;
        TearDown();
        SetUp();
        wire_.got = 0;
    }
}

TEST_F(FramePart, FromAnotherProcessIsRefused)
{
    Send(Bytes("hallo"));
    EXPECT_EQ(Take(getpid() + 1), HD_ERROR_INVALID);
}

TEST_F(FramePart, CutShortByTheDeadlineIsTheLast)
{
    std::string payload(HD_FRAME_ROOM, 'x');
    hd_frame frame = {};
    hd_status status = HD_OK;
    int room = 8192; // less than a frame

    setsockopt(end_[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    frame.kind = HD_FRAME_DATA;
    frame.bytes = static_cast<uint32_t>(payload.size());
    for (int i = 0; i < 1000 && status == HD_OK; i++)
        status = hd_wire_put(end_[0], frame, payload.data(), 0);
    EXPECT_EQ(status, HD_ERROR_TIMEOUT);
    while ((status = Take()) == HD_OK)
        EXPECT_EQ(wire_.frame.bytes, HD_FRAME_ROOM);
    EXPECT_EQ(status, HD_ERROR_PEER);
    EXPECT_EQ(hd_wire_put(end_[0], frame, payload.data(), INT64_MAX),
              HD_ERROR_PEER);
}

TEST_F(Frame, SendingToAFullQueueEndsAtTheDeadline)
{
    std::vector<char> payload(HD_FRAME_ROOM, 'x');
    hd_frame frame = {};
    hd_status status = HD_OK;

    frame.bytes = static_cast<uint32_t>(payload.size());
    for (int i = 0; i < 1000 && status == HD_OK; i++)
        status = hd_frame_send(end_[0], frame, payload.data(), -1, 0);
    EXPECT_EQ(status, HD_ERROR_TIMEOUT);
}

} // namespace
