// What becomes of a rank whose peer dies, never comes, or leaves.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "runtime/ranks/group.h"
#include "tests/cuda/caller.h"
#include "tests/cuda/system.h"
#include "tests/cuda/way.h"
#include "tests/sanitized.h"

namespace
{

class CudaPeers : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaPeers, testing::ValuesIn(kWays), NameOfWay);

// Seconds, a few of which a busy machine takes, and far fewer than a run waits.
const double kAtOnce = kPatience / 4;

TEST_P(CudaPeers, OfAKilledRankEndAtOnceAndNameIt)
{
    Program program(kRing);
    std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
        return AfterOneRun(rank, program, Options(),
                           [&](Session &, Shards &shards, Caller &caller) {
                               // Rank 2 dies with a run in its stream that has
                               // not begun.
                               if (rank.rank == 2)
                                   HD_TRY(caller.HoldUp(nullptr));
                               HD_TRY(shards.Run(rank.diag));
                               SleepFor(0.1);
                               if (rank.rank == 2) {
                                   rank.answer->seconds = Now();
                                   raise(SIGKILL);
                               }
                               hd_status status = shards.Get(rank.diag);
                               rank.answer->seconds = Now();
                               return status;
                           });
    });

    EXPECT_FALSE(answers[2].ended);
    for (int i = 0; i < 2; i++) {
        EndedByPeer(answers[size_t(i)], i, "rank 2");
        EXPECT_LT(answers[size_t(i)].seconds - answers[2].seconds, kAtOnce);
    }
}

// A kernel of rank 0's touches what it may not, before a run of its own or in
// place of one, and then rank 0 asks for nothing any more.
// A thread of each that is left waits in cuMemFree for streams that wait for
// the rank that dies.
TEST_P(CudaPeers, OfAKilledRankEndThoughAThreadFreesMemory)
{
    if (Options().capturable)
        GTEST_SKIP() << "which run is under way the device is asked, by a copy";
    Program program(kRing);
    std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
        return AfterOneRun(rank, program, Options(),
                           [&](Session &, Shards &shards, Caller &caller) {
                               hd_cu_ptr memory = 0;

                               if (caller.cu.alloc(&memory, 64) != 0)
                                   return HD_ERROR_SYSTEM;
                               if (rank.rank == 2)
                                   HD_TRY(caller.HoldUp(nullptr));
                               HD_TRY(shards.Run(rank.diag));
                               std::thread frees([&] {
                                   hd_cu_context popped;

                                   if (rank.rank == 2)
                                       return;
                                   caller.cu.context_push(caller.Context());
                                   rank.answer->number = caller.cu.free(memory);
                                   caller.cu.context_pop(&popped);
                               });
                               SleepFor(0.1);
                               if (rank.rank == 2)
                                   raise(SIGKILL);
                               hd_status status = shards.Get(rank.diag);
                               frees.join();
                               return status;
                           });
    });

    EXPECT_FALSE(answers[2].ended);
    for (int i = 0; i < 2; i++) {
        EndedByPeer(answers[size_t(i)], i, "rank 2");
        EXPECT_EQ(answers[size_t(i)].number, 0);
    }
}

TEST_P(CudaPeers, OfARankWhoseDeviceFailsAreToldOfItThoughNobodyAsks)
{
    Program program(kRing);

    for (bool runs : {true, false}) {
        SCOPED_TRACE(runs ? "before a run" : "in place of a run");
        std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
            return AfterOneRun(
                rank, program, Options(),
                [&](Session &session, Shards &shards, Caller &) {
                    auto *enqueue =
                        Extra<decltype(fake_cuda_enqueue)>("fake_cuda_enqueue");
                    auto fails = [](void *) { return usleep(50000), 1; };

                    rank.answer->seconds = Now();
                    if (rank.rank == 0 && enqueue(
                                              nullptr, fails, nullptr,
                                              [](void *) {}, nullptr) != 0)
                        return HD_ERROR_INVALID;
                    if (rank.rank != 0 || runs)
                        HD_TRY(shards.Run(rank.diag));
                    while (!hd_group_failed(rank.group))
                        usleep(1000);
                    rank.answer->seconds = Now() - rank.answer->seconds;
                    rank.answer->number = hd_session_finish(session, rank.diag);
                    return HD_OK; // a device that failed is never idle
                });
        });

        for (int i = 0; i < 3; i++) {
            const Answer &answer = answers[size_t(i)];

            Ended(answer, i);
            EXPECT_EQ(answer.number, i == 0 ? HD_ERROR_SYSTEM : HD_ERROR_PEER)
                << answer.text;
            EXPECT_TRUE(Has(answer, "rank 0: its device failed: "
                                    "CUDA_ERROR_ILLEGAL_ADDRESS"))
                << answer.text;
            EXPECT_LT(answer.seconds, kAtOnce);
        }
    }
}

// Rank 0 is aborted by another thread while it waits for rank 2, which never
// runs, as rank 1 does.
TEST_P(CudaPeers, OfAnAbortedRankEndAtOnceAndNameIt)
{
    Program program(kRing);
    std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
        return AfterOneRun(
            rank, program, Options(), [&](Session &, Shards &shards, Caller &) {
                if (rank.rank != 2)
                    HD_TRY(shards.Run(rank.diag));
                std::thread aborter([&] {
                    SleepFor(0.2);
                    rank.answer->seconds = Now();
                    if (rank.rank == 0)
                        hd_group_abort(rank.group);
                });
                if (rank.rank == 2)
                    while (!hd_group_failed(rank.group))
                        usleep(1000);
                hd_status status =
                    rank.rank == 2 ? shards.Run(rank.diag) : HD_OK;
                if (status == HD_OK)
                    status = shards.Get(rank.diag);
                aborter.join();
                rank.answer->sum = Now();
                return status;
            });
    });

    for (int i = 0; i < 3; i++) {
        const Answer &answer = answers[size_t(i)];

        Ended(answer, i);
        EXPECT_EQ(answer.status, HD_ERROR_PEER) << answer.text;
        EXPECT_TRUE(Has(answer, "rank 0 was aborted by its caller"))
            << answer.text;
        EXPECT_LT(answer.sum - answers[0].seconds, kAtOnce);
    }
}

// Seconds that this thread was on a processor.
double Work()
{
    timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

// Of a wait that nothing ends no more is work; a sanitizer's is more of it.
#ifdef HD_TEST_SANITIZED
const double kAwake = 4;
#else
const double kAwake = 12;
#endif

TEST_P(CudaPeers, OfARankThatNeverRunsEndInTime)
{
    Program program(kRing);
    std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
        return AfterOneRun(rank, program, Options(kLate),
                           [&](Session &, Shards &shards, Caller &) {
                               double start = Now(), work = Work();
                               hd_status status =
                                   RunIf(rank.rank != 2, rank, shards);

                               rank.answer->seconds = Now() - start;
                               rank.answer->sum = Work() - work;
                               HD_TRY(Meet(rank));
                               return status;
                           });
    });
    int late = 0;

    EXPECT_EQ(answers[2].status, HD_OK) << answers[2].text;
    for (int i = 0; i < 2; i++) {
        const Answer &answer = answers[size_t(i)];

        Ended(answer, i);
        EXPECT_LT(answer.seconds, kLate + kAtOnce);
        EXPECT_LT(answer.sum, kLate / kAwake); // it sleeps most of the time
        // Who is told of the other's timeout ends with HD_ERROR_PEER.
        EXPECT_TRUE(answer.status == HD_ERROR_TIMEOUT ||
                    answer.status == HD_ERROR_PEER)
            << answer.text;
        if (answer.status != HD_ERROR_TIMEOUT)
            continue;
        late++;
        EXPECT_GT(answer.seconds, kLate * 0.9);
        if (GetParam().IsUnnamed()) {
            EXPECT_TRUE(Has(answer, "NCCL")) << answer.text;
            continue;
        }
        EXPECT_TRUE(
            Has(answer, "rank " + std::to_string(i) + " waits for rank "))
            << answer.text;
        EXPECT_TRUE(Has(answer, "send at program.hd:7:13") ||
                    Has(answer, "recv at program.hd:8:22") ||
                    Has(answer, "all_reduce at program.hd:9:10"))
            << answer.text;
        EXPECT_TRUE(Has(answer, " for " + TextOfLate())) << answer.text;
    }
    EXPECT_GT(late, 0);
}

TEST_P(CudaPeers, OfARankThatHasLeftAreToldSo)
{
    Program program(kRing);
    std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
        return AfterOneRun(rank, program, Options(kLate),
                           [&](Session &, Shards &shards, Caller &) {
                               if (rank.rank == 2)
                                   return HD_OK;
                               HD_TRY(shards.Run(rank.diag));
                               return shards.Get(rank.diag);
                           });
    });

    EXPECT_EQ(answers[2].status, HD_OK) << answers[2].text;
    for (int i = 0; i < 3; i++)
        Ended(answers[size_t(i)], i);
    for (int i = 0; i < 2; i++) {
        hd_status status = answers[size_t(i)].status;

        EXPECT_EQ(status, HD_ERROR_PEER) << answers[size_t(i)].text;
    }
    EXPECT_TRUE(Has(answers[0], "rank 2 has left") ||
                Has(answers[1], "rank 2 has left"))
        << answers[0].text << answers[1].text;
}

// Whoever has done its part may leave, however late the others are.
TEST_P(CudaPeers, OfARankThatLeavesInGoodOrderAreNotDisturbed)
{
    Program program(kRing);

    for (int late = 0; late < 3; late++) {
        std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
            return AfterOneRun(rank, program, Options(),
                               [&](Session &, Shards &shards, Caller &caller) {
                                   if (rank.rank == late)
                                       HD_TRY(caller.HoldUp(nullptr));
                                   HD_TRY(shards.Run(rank.diag));
                                   SleepFor(rank.rank == late ? 0.2 : 0);
                                   caller.LetGo();
                                   HD_TRY(shards.Get(rank.diag));
                                   return program.Compare(shards, rank.rank);
                               });
        });

        for (int i = 0; i < 3; i++) {
            Ended(answers[size_t(i)], i);
            EXPECT_EQ(answers[size_t(i)].status, HD_OK)
                << answers[size_t(i)].text;
        }
    }
}

// A run that the caller's stream has not come to waits for nobody.
TEST_P(CudaPeers, WhoseStreamsAreBusyForLongerThanTheTimeoutAreNotLate)
{
    Program program(kRing);
    std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
        return AfterOneRun(rank, program, Options(kLate),
                           [&](Session &, Shards &shards, Caller &caller) {
                               HD_TRY(caller.HoldUp(nullptr));
                               HD_TRY(shards.Run(rank.diag));
                               HD_TRY(Meet(rank));
                               SleepFor(kLate + 1);
                               caller.LetGo();
                               HD_TRY(shards.Get(rank.diag));
                               return program.Compare(shards, rank.rank);
                           });
    });

    for (int i = 0; i < 3; i++) {
        Ended(answers[size_t(i)], i);
        EXPECT_EQ(answers[size_t(i)].status, HD_OK) << answers[size_t(i)].text;
    }
}

// Ranks 0 and 1 have told each other that they are there, and neither ends
// before rank 2 comes: it is rank 2 that both wait for.
TEST_P(CudaPeers, OfAReductionNameTheRankThatHasNotCome)
{
    Program program("heddle 2\n"
                    "host program sum mesh tp=3\n"
                    "in %x : f32[64] shared\n"
                    "out %y : f32[64]\n"
                    "{ %y = all_reduce %x }\n");

    if (GetParam().transport == HD_TRANSPORT_NCCL)
        GTEST_SKIP() << "it does not tell which of them";
    for (int i = 0; i < 4; i++) {
        bool leaves = i % 2 != 0;

        setenv("HEDDLE_SHOTS", i < 2 ? "1" : "2", 1);
        std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
            return AfterOneRun(rank, program, Options(kLate),
                               [&](Session &, Shards &shards, Caller &) {
                                   hd_status status =
                                       RunIf(rank.rank != 2, rank, shards);

                                   if (!leaves)
                                       HD_TRY(Meet(rank));
                                   return status;
                               });
        });

        EXPECT_EQ(answers[2].status, HD_OK) << answers[2].text;
        for (int i = 0; i < 2; i++) {
            const Answer &answer = answers[size_t(i)];

            Ended(answer, i);
            EXPECT_TRUE(Has(answer, "waits for rank 2: all_reduce at "
                                    "program.hd:5:8 "))
                << answer.text;
            EXPECT_EQ(Has(answer, "rank 2 has left the group"), leaves)
                << answer.text;
        }
    }
    unsetenv("HEDDLE_SHOTS");
}

// Four ranks that meet in pairs: on line 7 along b, so often, on line 9 along
// a.
std::string Square(int times = 1)
{
    return "heddle 2\n"
           "host program square mesh a=2, b=2 streams 1\n"
           "in %x : f32[size a@a, size b@b, 64] shared\n"
           "out %y : f32[size a@a, size b@b, 64] shared\n"
           "out %z : f32[size a@a, size b@b, 64] shared\n"
           "{ fork on stream 0 { for i in 0.." +
           std::to_string(times) +
           " {\n"
           "    group { send@b %x[a, b] to 1 - b\n"
           "            %y[a, b] = recv@b from 1 - b } }\n"
           "    group { send@a %x[a, b] to 1 - a\n"
           "            %z[a, b] = recv@a from 1 - a }\n"
           "  } join }\n";
}

// Of so many runs rank 3 takes part in the first half. Ranks 0 and 1 have come
// through line 7, where rank 2 still is, when rank `hasty` finds that nothing
// moves.
std::vector<Answer> WaitForRank3(const Program &program,
                                 const hd_session_options &options, int hasty,
                                 int runs = 1)
{
    return RunRanks(4, [&](Rank &rank) {
        hd_session_options mine = options;

        mine.timeout = rank.rank == hasty ? kLate : kPatience;
        return AfterOneRun(rank, program, mine,
                           [&](Session &, Shards &shards, Caller &) {
                               int all = rank.rank == 3 ? runs / 2 : runs;
                               hd_status status = HD_OK;

                               for (int i = 0; i < all && status == HD_OK; i++)
                                   status = shards.Run(rank.diag);
                               if (status == HD_OK)
                                   status = shards.Get(rank.diag);
                               HD_TRY(Meet(rank));
                               return status;
                           });
    });
}

TEST_P(CudaPeers, AreNamedWithTheStepThatWaitsAndNotAnEarlierOne)
{
    bool nccl = GetParam().transport == HD_TRANSPORT_NCCL;
    const std::string step = nccl ? ", stream 0, by NCCL)" : ", stream 0)";

    for (int hasty : {0, 2}) {
        std::vector<Answer> answers =
            WaitForRank3(Program(Square()), Options(), hasty);
        const Answer &answer = answers[size_t(hasty)];
        // The neighbour along the axis on which it waits.
        int peer = hasty == 0 ? 2 : 3;
        int line = hasty == 2 ? 7 : 9;

        Ended(answer, hasty);
        EXPECT_EQ(answer.status, HD_ERROR_TIMEOUT) << answer.text;
        if (GetParam().IsUnnamed()) {
            EXPECT_TRUE(Has(
                answer,
                "run 2 of rank " + std::to_string(hasty) +
                    " has not ended for " + TextOfLate() +
                    ": it waits at or after send at program.hd:7:13 (step 1"))
                << answer.text;
            EXPECT_TRUE(Has(answer, GetParam().graph
                                        ? "without the graph the step is named"
                                        : "without 'capturable' the step is "
                                          "named"))
                << answer.text;
            continue;
        }
        EXPECT_TRUE(Has(answer, "error: rank " + std::to_string(hasty) +
                                    " waits for rank " + std::to_string(peer) +
                                    ": "))
            << answer.text;
        // Of a group, either of its steps.
        EXPECT_TRUE(
            Has(answer, " at program.hd:" + std::to_string(line) + ":") ||
            Has(answer, " at program.hd:" + std::to_string(line + 1) + ":"))
            << answer.text;
        EXPECT_TRUE(Has(answer, step + " for " + TextOfLate())) << answer.text;
        EXPECT_TRUE(line == 7 || !Has(answer, " at program.hd:7:"))
            << answer.text;
        EXPECT_TRUE(line == 7 || !Has(answer, " at program.hd:8:"))
            << answer.text;
    }
}

// A mark's event has stood for others before, and others come behind it: a run
// has more marks than there are events, or a few runs in a row have.
TEST(CudaMarks, OfManyRunsNameTheStepThatWaits)
{
    hd_session_options options = CudaOptions();

    options.transport = HD_TRANSPORT_NCCL;
    for (int times : Choose<int>({1, 100, 600}, {1, 600})) {
        Program program(Square(times));
        const int runs = times == 1 ? 40 : 7;
        std::vector<Answer> answers = WaitForRank3(program, options, 0, runs);
        const Answer &answer = answers[0];
        std::string step = "(step " + std::to_string(2 * times + 1);

        Ended(answer, 0);
        EXPECT_EQ(answer.status, HD_ERROR_TIMEOUT) << answer.text;
        EXPECT_TRUE(Has(answer, "rank 0 waits for rank 2: "
                                "send at program.hd:9:13 " +
                                    step))
            << answer.text;
    }
}

// Each step takes less than the timeout, and the run more.
TEST_P(CudaPeers, ThatComeOneByOneAreNotLate)
{
    Program program(Square());
    const double kSlow = 2 * kLate, kPause = 0.6 * kSlow;

    if (GetParam().IsUnnamed())
        GTEST_SKIP() << "nothing is seen to move there";
    std::vector<Answer> answers = RunRanks(4, [&](Rank &rank) {
        return AfterOneRun(rank, program, Options(kSlow),
                           [&](Session &, Shards &shards, Caller &) {
                               SleepFor(kPause * (rank.rank == 0   ? 0
                                                  : rank.rank == 1 ? 1
                                                                   : 2));
                               HD_TRY(shards.Run(rank.diag));
                               HD_TRY(shards.Get(rank.diag));
                               return program.Compare(shards, rank.rank);
                           });
    });

    for (int i = 0; i < 4; i++) {
        Ended(answers[size_t(i)], i);
        EXPECT_EQ(answers[size_t(i)].status, HD_OK) << answers[size_t(i)].text;
    }
}

// What NCCL does in a graph is not told apart, and goes into a note where a
// word is missing too.
TEST(CudaMixedGraphs, TellThatNcclMayBeWhatWaits)
{
    hd_session_options options = CudaOptions();

    options.graph = true;
    options.axes = "a=nccl,b=copy";
    std::vector<Answer> answers = WaitForRank3(Program(Square()), options, 2);

    EXPECT_EQ(answers[2].status, HD_ERROR_TIMEOUT) << answers[2].text;
    EXPECT_TRUE(Has(answers[2], "error: rank 2 waits for rank 3: "))
        << answers[2].text;
    EXPECT_TRUE(Has(answers[2], "the first of it is send at program.hd:9:13"))
        << answers[2].text;
}

// The host itself waits in the middle of a long program, and is let go too. A
// run that is issued whole is short: nobody sees such a one move by NCCL, and
// then all of the first one has to end in time.
TEST_P(CudaPeers, OfARankThatNeverRunsEndInTheMiddleOfIssuing)
{
    if (GetParam().capturable && GetParam().transport == HD_TRANSPORT_SM)
        GTEST_SKIP() << "so many kernels end too late on a busy machine";

    Program program(
        "heddle 2\n"
        "host program long mesh tp=2\n"
        "in %x : f32[size tp@tp, 64] shared\n"
        "out %y : f32[size tp@tp, 64] shared\n"
        "{ for i in 0.." +
        std::string(GetParam().graph || GetParam().capturable ? "40" : "800") +
        " {\n"
        "    group { send %x[tp] to 1 - tp\n"
        "            %y[tp] = recv from 1 - tp } } }\n");
    std::vector<Answer> answers = RunOneAlone(program, Options(kLate));

    Ended(answers[0], 0);
    EXPECT_EQ(answers[0].status, HD_ERROR_TIMEOUT) << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_OK) << answers[1].text;
}

// The second run's kernel is refused when its transfers are issued already, and
// the peer never runs: what was issued is let go before the caller is told.
TEST_P(CudaPeers, AreNotWaitedForByARunThatWasIssuedInPart)
{
    if (GetParam().graph || GetParam().transport == HD_TRANSPORT_SM)
        GTEST_SKIP() << "kernels send there, and a graph is issued whole";
    Program program("heddle 2\n"
                    "host program part mesh tp=2\n"
                    "in %x : f32[size tp@tp, 64] shared\n"
                    "out %y : f32[size tp@tp, 64] shared\n"
                    "out %z : f32[size tp@tp, 64]\n"
                    "{ group { send %x[tp] to 1 - tp\n"
                    "          %y[tp] = recv from 1 - tp }\n"
                    "  %z[tp] = gelu %y[tp] }\n");
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        return AfterOneRun(
            rank, program, Options(), [&](Session &, Shards &shards, Caller &) {
                auto *fail = Extra<decltype(fake_cuda_fail)>("fake_cuda_fail");
                auto *calls =
                    Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
                hd_status status = HD_OK;
                // One behind it says that the run has ended.
                long n = calls("cuLaunchKernelEx") - GetParam().capturable;

                fail("cuLaunchKernelEx", n);
                if (rank.rank == 0)
                    status = shards.Run(rank.diag);
                HD_TRY(Meet(rank));
                return status;
            });
    });

    Ended(answers[0], 0);
    EXPECT_EQ(answers[0].status, HD_ERROR_SYSTEM) << answers[0].text;
    EXPECT_TRUE(Has(answers[0], "refused 'launch'")) << answers[0].text;
    Ended(answers[1], 1);
    EXPECT_EQ(answers[1].status, HD_OK) << answers[1].text;
}

// Rank 1 dies while rank 0 takes a break in the middle of issuing: nothing is
// under way for a while, and then a product that takes longer than the rest.
TEST_P(CudaPeers, ThatDieWhileARunIsIssuedLeaveItToEnd)
{
    Program program("heddle 2\n"
                    "host program part mesh tp=2\n"
                    "in %x : f32[size tp@tp, 8, 8] shared\n"
                    "out %y : f32[size tp@tp, 8, 8] shared\n"
                    "out %z : f32[size tp@tp, 8, 8]\n"
                    "{ for i in 0..20 {\n"
                    "    group { send %x[tp] to 1 - tp\n"
                    "            %y[tp] = recv from 1 - tp } }\n"
                    "  %z[tp] = matmul %x[tp], %x[tp] }\n");
    ScopedSetting host("HEDDLE_CHAOS", "1"); // naps between commands
    ScopedSetting lt("FAKE_CUBLASLT_SLEEP", "500");
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        return AfterOneRun(rank, program, Options(),
                           [&](Session &, Shards &shards, Caller &) {
                               if (rank.rank == 1) {
                                   SleepFor(0.1);
                                   raise(SIGKILL);
                               }
                               NapFor(0.6);
                               return RunIf(true, rank, shards);
                           });
    });

    Ended(answers[0], 0);
    EXPECT_EQ(answers[0].status, HD_ERROR_PEER) << answers[0].text;
}

const char *const kPush = "cuCtxPushCurrent_v2";

// Rank 0's second run waits for peers that never run, and of its calls that
// enter a context the one numbered `push` fails (0: none, they are counted):
// the next run's, or that of the wait for the end.
std::vector<Answer> FailToEnter(const hd_session_options &options, long push,
                                bool waits)
{
    Program program(kRing);

    return RunRanks(3, [&](Rank &rank) {
        std::string fault = kPush + (":" + std::to_string(push));

        if (rank.rank == 0 && push > 0)
            setenv("FAKE_CUDA_FAIL", fault.c_str(), 1);
        return AfterOneRun(
            rank, program, options, [&](Session &, Shards &shards, Caller &) {
                auto *calls =
                    Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
                hd_status status = HD_OK;

                SleepFor(push > 0 ? 0 : 0.1); // all threads have begun
                rank.answer->number = calls(kPush);
                if (rank.rank == 0 && push > 0) {
                    while (calls(kPush) < push - 2)
                        usleep(1000);
                    HD_TRY(shards.Run(rank.diag));
                    status =
                        waits ? shards.Get(rank.diag) : shards.Run(rank.diag);
                }
                HD_TRY(Meet(rank));
                return status;
            });
    });
}

TEST_P(CudaPeers, AreNotWaitedForByARankThatCannotEnterItsContext)
{
    for (bool waits : {false, true}) {
        std::vector<Answer> counted = FailToEnter(Options(), 0, waits);
        std::vector<Answer> answers =
            FailToEnter(Options(), long(counted[0].number) + 2, waits);

        Ended(answers[0], 0);
        EXPECT_EQ(answers[0].status, HD_ERROR_SYSTEM) << answers[0].text;
        EXPECT_TRUE(Has(answers[0], "refused 'context_push'"))
            << answers[0].text;
        for (int i : {1, 2})
            EXPECT_EQ(answers[size_t(i)].status, HD_OK)
                << answers[size_t(i)].text;
    }
}

} // namespace
