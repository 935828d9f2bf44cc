// Sessions whose runs the caller may capture into graphs of its own, and
// replay, beside runs that it issues.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include <heddle/async.h>
#include <heddle/memory.h>

#include "tests/cuda/capturing.h"
#include "tests/cuda/way.h"

namespace
{

class CudaCaptured : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaCaptured, testing::ValuesIn(WaysThat(true)),
                         NameOfWay);

// Some three in four are replays, on inputs of their own, and one rank is late
// now and then. What a thread waits for ends a global capture of another.
hd_status Mix(const Rank &rank, const Program &program,
              const hd_session_options &options, int rounds,
              bool threads = false)
{
    Scene scene;
    std::mt19937 coin(Seed()), late(Seed() + unsigned(rank.rank));
    int replays = 0;

    HD_TRY(scene.Open(rank, program, options));
    Graph graph(scene.caller);
    if (coin() % 2 == 0)
        HD_TRY(scene.Run(rank, program, 0));
    HD_TRY(
        scene.Capture(rank, graph, threads ? THREAD_LOCAL : int(coin() % 3)));
    for (int i = 0; i < rounds; i++) {
        bool replay = coin() % 4 > 0;

        if (late() % 4 == 0)
            usleep(late() % 3000);
        HD_TRY(replay ? scene.Replay(rank, program, graph, i)
                      : scene.Run(rank, program, i));
        replays += replay;
    }
    rank.answer->number = replays;
    return hd_session_finish(scene.session, rank.diag);
}

TEST_P(CudaCaptured, RunsAreReplayedAmongRunsThatAreNot)
{
    const int rounds = 28;
    Program program(kEverything, rounds);
    std::vector<Answer> answers = RunRanks(
        2, [&](Rank &rank) { return Mix(rank, program, Options(), rounds); });

    AllAreRight(answers);
    EXPECT_GE(answers[0].number, 12) << "of seed " << Seed();
}

// Each captures while the other may be in any call, and counts for itself.
TEST_P(CudaCaptured, RunsOfThreadsAreReplayed)
{
    Program program(kEverything, 8);

    AllAreRight(RunProcesses({{0, 1}}, [&](Rank &rank) {
        return Mix(rank, program, Options(), 8, true);
    }));
}

const char *const kGather = "heddle 2\n"
                            "tensor program gather\n"
                            "mesh tp=3\n"
                            "in %x : f32[12 @tp, 6]\n"
                            "in %w : f32[size tp @tp, 6, 5]\n"
                            "out %y : f32[size tp @tp, 12 @stream, 5]\n"
                            "temp %xg : f32[12 @stream, 6]\n"
                            "{ %xg = set %x\n"
                            "  %y = matmul %xg, %w }\n";
const char *const kScatter = "heddle 2\n"
                             "tensor program scatter\n"
                             "mesh tp=3\n"
                             "in %h : f32[size tp @tp, 12 @stream, 6]\n"
                             "in %w : f32[size tp @tp, 6, 5]\n"
                             "temp %p : f32[size tp @tp, 12 @stream, 5]\n"
                             "out %y : f32[12 @tp, 5]\n"
                             "{ %p = matmul %h, %w\n"
                             "  %y = sum %p dim 0 }\n";

TEST_P(CudaCaptured, PipelinesAreReplayed)
{
    for (const char *text : {kGather, kScatter})
        for (hd_transfer transfer : {HD_TRANSFER_RING, HD_TRANSFER_DIRECT})
            for (hd_protocol protocol : {HD_PROTOCOL_PUT, HD_PROTOCOL_GET}) {
                hd_lower_options lower = hd_lower_defaults();

                lower.transfer = transfer;
                lower.protocol = protocol;
                lower.comm_stream = true;
                lower.defer_sends = GetParam().transport != HD_TRANSPORT_NCCL;
                lower.transport = GetParam().transport;
                Program program(text, 6, &lower);
                AllAreRight(RunRanks(3, [&](Rank &rank) {
                    return Mix(rank, program, Options(), 6);
                }));
            }
}

// The caller's own copies are in the graph, and nothing waits in between.
TEST_P(CudaCaptured, RunsAreReplayedInARow)
{
    const int rounds = 20;
    Program program(kEverything, rounds);
    auto body = [&](Rank &rank) {
        Scene scene;
        std::vector<std::vector<char>> kept(rounds);

        HD_TRY(scene.Open(rank, program, Options()));
        Shards &shards = *scene.shards;
        Graph graph(scene.caller);
        HD_TRY(scene.Capture(rank, graph));
        // Pinned: nothing here may wait for the stream.
        size_t bytes = 0;
        for (size_t i = 0; i < shards.Count(); i++)
            bytes += shards.Bytes(i).size();
        void *host = nullptr;
        if (scene.caller.cu.host_alloc(&host, 2 * rounds * bytes,
                                       HD_CU_HOST_PORTABLE) != 0)
            return HD_ERROR_SYSTEM;
        auto walk = [&](int round, int which, const auto &visit) {
            char *at =
                static_cast<char *>(host) + size_t(2 * round + which) * bytes;

            for (size_t i = 0; i < shards.Count(); i++) {
                visit(i, at, shards.Bytes(i).size());
                at += shards.Bytes(i).size();
            }
        };
        auto at = [](const void *p) { return hd_cu_ptr(uintptr_t(p)); };
        for (int n = 0; n < rounds; n++)
            walk(n, 0, [&](size_t i, char *to, size_t size) {
                memcpy(to,
                       program.Inputs(n)
                           .Local(program.Module(), i, rank.rank)
                           .data(),
                       size);
            });
        for (int n = 0; n < rounds; n++) {
            walk(n, 0, [&](size_t i, char *from, size_t size) {
                scene.caller.cu.copy(at(shards.Address(i)), at(from), size,
                                     scene.stream);
            });
            HD_TRY(n % 7 == 3 ? shards.RunOn(scene.stream, rank.diag)
                              : graph.Launch(scene.stream));
            walk(n, 1, [&](size_t i, char *to, size_t size) {
                scene.caller.cu.copy(at(to), at(shards.Address(i)), size,
                                     scene.stream);
            });
        }
        if (scene.caller.cu.stream_synchronize(scene.stream) != 0)
            return HD_ERROR_SYSTEM;
        for (int n = 0; n < rounds; n++) {
            walk(n, 1, [&](size_t i, char *from, size_t size) {
                memcpy(shards.Bytes(i).data(), from, size);
            });
            HD_TRY(program.Compare(shards, rank.rank, n));
        }
        scene.caller.cu.host_free(host);
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

// Three runs of two sessions, on two streams of one capture.
TEST_P(CudaCaptured, SeveralRunsAreOneGraph)
{
    Program program(kEverything, 6);
    auto body = [&](Rank &rank) {
        Scene scene;
        Session second;

        HD_TRY(scene.Open(rank, program, Options()));
        HD_TRY(second.Open(rank, program, Options()));
        hd_cu_api &cu = scene.caller.cu;
        hd_cu_stream other = scene.caller.Stream();
        hd_cu_event fork = scene.caller.Event(), join = scene.caller.Event();
        Shards more(scene.session), theirs(second);
        for (Shards *one : {&more, &theirs})
            HD_TRY(one->Put(program.Inputs(), program.Module(), rank.rank,
                            rank.diag));
        Graph graph(scene.caller);
        HD_TRY(graph.Begin(scene.stream));
        if (cu.event_record(fork, scene.stream) != 0 ||
            cu.stream_wait_event(other, fork, 0) != 0)
            return HD_ERROR_SYSTEM;
        HD_TRY(scene.shards->RunOn(scene.stream, rank.diag));
        // Behind the run of the other stream, which has forked before it.
        HD_TRY(theirs.RunOn(other, rank.diag));
        HD_TRY(more.RunOn(other, rank.diag));
        if (cu.event_record(join, other) != 0 ||
            cu.stream_wait_event(scene.stream, join, 0) != 0)
            return HD_ERROR_SYSTEM;
        HD_TRY(graph.End());
        for (int n = 0; n < 6; n++) {
            int set = n;

            for (Shards *one : {scene.shards.get(), &more, &theirs})
                HD_TRY(scene.caller.Set(*one, scene.stream, program, rank.rank,
                                        (set++) % 6));
            HD_TRY(graph.Launch(scene.stream));
            set = n;
            for (Shards *one : {scene.shards.get(), &more, &theirs}) {
                HD_TRY(scene.caller.Get(*one, scene.stream));
                HD_TRY(program.Compare(*one, rank.rank, (set++) % 6));
            }
        }
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

// Nothing of it has happened, on one rank alone too.
TEST_P(CudaCaptured, ACaptureThatIsNotLaunchedLeavesNothing)
{
    Program program(kEverything, 4);
    auto body = [&](Rank &rank) {
        Scene scene;
        bool done = false;
        hd_stats stats = HD_EMPTY(hd_stats);

        HD_TRY(scene.Open(rank, program, Options()));
        HD_TRY(scene.Run(rank, program, 0));
        if (rank.rank == 0) {
            Graph graph(scene.caller);

            HD_TRY(graph.Begin(scene.stream));
            HD_TRY(scene.shards->RunOn(scene.stream, rank.diag));
            // What is captured is no run of which an end could come.
            HD_TRY(hd_session_query(scene.session, rank.diag, &done));
            HD_TRY(graph.End());
        }
        if (rank.rank == 0 && !done)
            return Wrong(rank, "a run that is captured is waited for");
        HD_TRY(scene.Run(rank, program, 1));
        Graph graph(scene.caller);
        HD_TRY(scene.Capture(rank, graph));
        HD_TRY(scene.Replay(rank, program, graph, 2));
        HD_TRY(scene.Run(rank, program, 3));
        HD_TRY(hd_session_finish(scene.session, rank.diag));
        hd_session_stats(scene.session, &stats);
        rank.answer->number = int64_t(stats.runs);
        return stats.seconds > 0 ? HD_OK : Wrong(rank, "no time");
    };
    std::vector<Answer> answers = RunRanks(2, body);

    AllAreRight(answers);
    EXPECT_EQ(answers[0].number, 3); // that were issued
}

// A run of the session is issued beside an open capture; a second capture is
// refused as long as the first one is open, and harms neither.
TEST_P(CudaCaptured, OneCaptureAtATimeHasRunsOfASession)
{
    Program program(kEverything, 4);
    auto body = [&](Rank &rank) {
        Scene scene;

        HD_TRY(scene.Open(rank, program, Options()));
        hd_cu_stream second = scene.caller.Stream();
        Graph first(scene.caller), other(scene.caller);
        HD_TRY(first.Begin(scene.stream, RELAXED));
        HD_TRY(scene.shards->RunOn(scene.stream, rank.diag));
        hd_cu_stream stream = scene.stream;
        scene.stream = scene.caller.Stream();
        HD_TRY(scene.Run(rank, program, 0));
        scene.stream = stream;
        HD_TRY(other.Begin(second, RELAXED));
        if (scene.shards->RunOn(second, rank.diag) != HD_ERROR_ARGUMENT ||
            strstr(hd_diag_text(rank.diag), "has not ended") == nullptr)
            return Wrong(rank, "two captures have one session's streams");
        hd_diag_clear(rank.diag);
        HD_TRY(first.End());
        HD_TRY(scene.shards->RunOn(second, rank.diag));
        HD_TRY(other.End());
        HD_TRY(scene.Replay(rank, program, first, 1));
        HD_TRY(scene.Replay(rank, program, other, 2));
        return scene.Run(rank, program, 3);
    };

    AllAreRight(RunRanks(2, body));
}

// ------------------------------------------------------------- failures

// A rank replays alone: its replays end, and the session tells why.
TEST_P(CudaCaptured, APeerThatDoesNotReplayIsATimeoutThatNamesIt)
{
    Program program(kEverything, 2);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Scene scene;

        HD_TRY(scene.Open(rank, program, Options(kLate)));
        Graph graph(scene.caller);
        HD_TRY(scene.Capture(rank, graph));
        HD_TRY(scene.Replay(rank, program, graph, 1));
        HD_TRY(Meet(rank));
        double start = Now();
        for (int i = 0; rank.rank == 0 && i < 5; i++)
            HD_TRY(graph.Launch(scene.stream));
        if (rank.rank == 0 &&
            scene.caller.cu.stream_synchronize(scene.stream) != 0)
            return HD_ERROR_SYSTEM;
        rank.answer->seconds = Now() - start;
        HD_TRY(Meet(rank));
        return rank.rank == 0 ? scene.shards->RunOn(scene.stream, rank.diag)
                              : HD_OK;
    });

    for (int i = 0; i < 2; i++)
        Ended(answers[size_t(i)], i);
    EXPECT_EQ(answers[0].status, HD_ERROR_TIMEOUT) << answers[0].text;
    EXPECT_GT(answers[0].seconds, 0.9 * kLate);
    EXPECT_LT(answers[0].seconds, 3 * kLate);
    EXPECT_TRUE(Has(answers[0], GetParam().IsUnnamed()
                                    ? "run 2 of rank 0 has not ended for"
                                    : "rank 0 waits for rank 1"))
        << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_OK) << answers[1].text;
}

enum class Fate { DIES, IS_ABORTED };

class CudaCapturedFates : public testing::TestWithParam<std::tuple<Way, Fate>>
{
};

INSTANTIATE_TEST_SUITE_P(
    All, CudaCapturedFates,
    testing::Combine(testing::ValuesIn(WaysThat(true)),
                     testing::Values(Fate::DIES, Fate::IS_ABORTED)),
    [](const testing::TestParamInfo<std::tuple<Way, Fate>> &info) {
        return std::string(std::get<0>(info.param).name) +
               (std::get<1>(info.param) == Fate::DIES ? "_dies" : "_aborted");
    });

TEST_P(CudaCapturedFates, APeersEndEndsReplaysAtOnce)
{
    const Way way = std::get<0>(GetParam());
    const bool dies = std::get<1>(GetParam()) == Fate::DIES;
    Program program(kEverything, 2);
    hd_session_options options = CudaOptions();
    options.transport = way.transport;
    options.capturable = true;
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Scene scene;

        HD_TRY(scene.Open(rank, program, options));
        Graph graph(scene.caller);
        HD_TRY(scene.Capture(rank, graph));
        HD_TRY(scene.Replay(rank, program, graph, 1));
        HD_TRY(Meet(rank));
        if (rank.rank == 1) {
            SleepFor(0.2);
            rank.answer->seconds = Now();
            if (dies)
                raise(SIGKILL);
            hd_group_abort(rank.group);
            SleepFor(0.3);
            return scene.shards->RunOn(scene.stream, rank.diag);
        }
        for (int i = 0; i < 3; i++)
            HD_TRY(graph.Launch(scene.stream));
        if (scene.caller.cu.stream_synchronize(scene.stream) != 0)
            return HD_ERROR_SYSTEM;
        rank.answer->seconds = Now();
        return hd_session_finish(scene.session, rank.diag);
    });

    EndedByPeer(answers[0], 0, "rank 1");
    EXPECT_LT(answers[0].seconds - answers[1].seconds, kPatience / 4);
    if (!dies) {
        Ended(answers[1], 1);
        EXPECT_EQ(answers[1].status, HD_ERROR_PEER) << answers[1].text;
    }
}

// ------------------------------------------------------- what it is not for

TEST(CudaCapturable, AllRanksSaySo)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;
        hd_session_options options = CudaOptions();

        options.capturable = rank.rank == 1;
        return session.Create(rank, program, options);
    });

    for (int i = 0; i < 2; i++) {
        Ended(answers[size_t(i)], i);
        EXPECT_EQ(answers[size_t(i)].status, HD_ERROR_ARGUMENT);
        EXPECT_TRUE(Has(answers[size_t(i)],
                        "rank 1 binds with other options than rank 0: 'cuda, "
                        "capturable, tp=copy', and 'cuda, tp=copy' on rank 0"))
            << answers[size_t(i)].text;
    }
}

TEST(CudaCapturable, IsNotAGraphOfItsOwn)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;
        hd_session_options options = CudaOptions();

        options.capturable = options.graph = true;
        return session.Create(rank, program, options);
    });

    for (int i = 0; i < 2; i++) {
        Ended(answers[size_t(i)], i);
        EXPECT_EQ(answers[size_t(i)].status, HD_ERROR_ARGUMENT);
        EXPECT_TRUE(Has(answers[size_t(i)], "it cannot be 'capturable' too"))
            << answers[size_t(i)].text;
    }
}

// What counts a run's words, and what a capture may not have, is refused as
// nothing that happened.
TEST(CudaCapturable, AnEventOfTheCallersIsRefusedInACapture)
{
    Program program("heddle 2\n"
                    "host program waits mesh tp=2\n"
                    "in %x : i32[size tp@tp, 64] shared\n"
                    "in %go : event[]\n"
                    "out %y : i32[size tp, 64] shared\n"
                    "{ wait %go  %y = all_gather %x[tp] }\n");
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session;
        hd_session_options options = CudaOptions();
        hd_run_options on = HD_EMPTY(hd_run_options);

        options.capturable = true;
        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, options));
        hd_cu_stream stream = caller.Stream();
        void *arguments[3] = {nullptr, caller.Event(), nullptr};
        on.stream = stream;
        for (int i : {0, 2})
            HD_TRY(hd_session_alloc(session, 2 * 64 * 4, rank.diag,
                                    &arguments[i]));
        Graph graph(caller);
        HD_TRY(graph.Begin(stream));
        if (hd_session_run(session, arguments, 3, &on, rank.diag) !=
                HD_ERROR_ARGUMENT ||
            strstr(hd_diag_text(rank.diag), "a run with the event %go is no "
                                            "part of a capture") == nullptr)
            return Wrong(rank, "an event in a capture");
        hd_diag_clear(rank.diag);
        HD_TRY(graph.End());
        HD_TRY(hd_session_run(session, arguments, 3, &on, rank.diag));
        HD_TRY(hd_session_finish(session, rank.diag));
        for (int i : {0, 2})
            hd_session_free(session, arguments[i]);
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

// A run has the sizes with which it was captured, whatever others have; its
// arguments may be where peers touch them, and anything may be late.
enum class Where { COPIED, FIXED, FIXED_AND_LATE };

class CudaCapturedSizes : public testing::TestWithParam<std::tuple<Way, Where>>
{
};

std::string
NameOfSizes(const testing::TestParamInfo<std::tuple<Way, Where>> &info)
{
    const char *const where[] = {"_copied", "_fixed", "_late"};

    return std::string(std::get<0>(info.param).name) +
           where[int(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaCapturedSizes,
    testing::Combine(testing::ValuesIn(WaysThat(true)),
                     testing::Values(Where::COPIED, Where::FIXED,
                                     Where::FIXED_AND_LATE)),
    NameOfSizes);

TEST_P(CudaCapturedSizes, AreThoseOfTheCapture)
{
    const int64_t kHigh = 40, kWide = 16;
    const Where where = std::get<1>(GetParam());
    const bool late = where == Where::FIXED_AND_LATE;
    ScopedSetting chaos("HEDDLE_CHAOS", late ? "7" : "");
    ScopedSetting fake("FAKE_CUDA_CHAOS", late ? "7" : "0");
    Program program("heddle 2\n"
                    "host program whole\n"
                    "param m in 1..40\n"
                    "mesh tp=2\n"
                    "in %x : i32[size tp @tp, m, 16] shared\n"
                    "out %y : i32[size tp @tp, m, 16]\n"
                    "out %g : i32[size tp, m, 16] shared\n"
                    "{ %y[tp] = all_reduce %x[tp]\n"
                    "  %g = all_gather %x[tp] }\n");
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session;
        const size_t part = size_t(kHigh * kWide), bytes = part * 4;
        const int64_t sizes[] = {1, 13, kHigh, 7};
        void *at[3];
        std::mt19937 random(Seed());

        hd_session_options options = CudaOptions();

        options.transport = std::get<0>(GetParam()).transport;
        options.capturable = true;
        HD_TRY(caller.Open(rank));
        for (size_t i = 0; i < 3; i++)
            HD_TRY(hd_group_alloc(rank.group, "cuda", (i == 2 ? 2 : 1) * bytes,
                                  rank.diag, &at[i]));
        options.fixed = at;
        options.nfixed = where == Where::COPIED ? 0 : 3;
        HD_TRY(session.Open(rank, program, options));
        hd_cu_stream stream = caller.Stream();
        auto run = [&](int64_t m) {
            hd_run_options on = HD_EMPTY(hd_run_options);

            on.stream = stream;
            on.sizes = &m;
            on.nsizes = 1;
            return hd_session_run(session, at, 3, &on, rank.diag);
        };
        std::vector<std::unique_ptr<Graph>> graphs;
        for (int i = 0; i < 3; i++) {
            graphs.push_back(std::make_unique<Graph>(caller));
            HD_TRY(graphs.back()->Begin(stream));
            HD_TRY(run(sizes[i]));
            HD_TRY(graphs.back()->End());
        }
        for (int n = 0; n < 20; n++) {
            std::vector<int32_t> x(2 * part), y(part), g(2 * part, -1);
            unsigned which = random() % 4;
            size_t rows = size_t(sizes[which] * kWide);

            for (int32_t &one : x)
                one = int32_t(random() % 1000);
            HD_TRY(hd_session_copy(session, at[0], &x[size_t(rank.rank) * part],
                                   bytes, rank.diag));
            HD_TRY(hd_session_copy(session, at[2], g.data(), 2 * bytes,
                                   rank.diag));
            HD_TRY(which < 3 ? graphs[which]->Launch(stream) : run(sizes[3]));
            if (caller.cu.stream_synchronize(stream) != 0)
                return HD_ERROR_SYSTEM;
            HD_TRY(hd_session_copy(session, y.data(), at[1], bytes, rank.diag));
            HD_TRY(hd_session_copy(session, g.data(), at[2], 2 * bytes,
                                   rank.diag));
            for (size_t i = 0; i < rows; i++) {
                if (y[i] != x[i] + x[part + i] || g[i] != x[i] ||
                    g[part + i] != x[part + i])
                    return Wrong(rank, "the answer is another");
            }
            if (rows < part && (g[rows] != -1 || g[part + rows] != -1))
                return Wrong(rank, "what is room alone is written");
        }
        graphs.clear();
        return HD_OK; // the memory goes with its group
    };

    AllAreRight(RunRanks(2, body));
}

} // namespace
