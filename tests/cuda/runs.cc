// Many runs of a session: replayed, queued, on changing memory and streams.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/cuda/caller.h"
#include "tests/cuda/way.h"

namespace
{

const int kSets = 10; // of arguments: more than graphs that are kept
const int kTurns = 4; // of runs, for which a graph is made each
const int kKept = 8;  // of these graphs, where one does not do

class CudaRuns : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaRuns, testing::ValuesIn(kWays), NameOfWay);

// The set of inputs that memory `at` holds in run `n`, so that neither repeats
// with the other.
int SetOf(int n)
{
    return (n * 7 + n / 13) % kSets;
}

TEST_P(CudaRuns, FollowInputsAndAddresses)
{
    Program program(kEverything, kSets);
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session, other;
        Memory memory, apart;
        std::mt19937 random(7 + unsigned(rank.rank));

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, Options()));
        // One that is not replayed, on the same devices, takes turns with it.
        HD_TRY(other.Open(rank, program, CudaOptions()));
        HD_TRY(Fill(memory, rank, program, session, kSets));
        HD_TRY(Fill(apart, rank, program, other, 2));
        for (int n = 0; n < 100; n++) {
            Shards &shards = *memory[random() % kSets];

            HD_TRY(shards.Set(program.Inputs(SetOf(n)), program.Module(),
                              rank.rank, rank.diag));
            HD_TRY(shards.Run(rank.diag));
            if (n % 10 == 0)
                HD_TRY(apart[n / 10 % 2]->Run(rank.diag));
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank, SetOf(n)));
            if (n % 10 != 0)
                continue;
            HD_TRY(apart[n / 10 % 2]->Get(rank.diag));
            HD_TRY(program.Compare(*apart[n / 10 % 2], rank.rank, n / 10 % 2));
        }
        memory.clear();
        apart.clear();
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

// How often rank 0 calls `what` in six runs, of which the last three are on
// memory that came back at the same addresses.
int64_t CallsOnMemoryThatCameBack(const char *what)
{
    Program program(kEverything, 1);
    auto body = [&](Rank &rank) {
        hd_session_options options = CudaOptions();
        Session session;

        options.graph = true;
        HD_TRY(session.Open(rank, program, options));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        auto *renumber =
            Extra<decltype(fake_cuda_renumber)>("fake_cuda_renumber");
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(0), program.Module(), rank.rank,
                          rank.diag));
        for (int n = 0; n < 6; n++) {
            if (n == 3)
                renumber();
            HD_TRY(shards.Run(rank.diag));
            HD_TRY(shards.Get(rank.diag));
        }
        rank.answer->number = calls(what);
        return program.Compare(shards, rank.rank, 0);
    };
    std::vector<Answer> answers = RunRanks(2, body);

    AllAreRight(answers);
    return answers[0].number;
}

// A graph holds on to the allocations that it was made with; a product that
// cannot be told from others may, too.
TEST(CudaGraphs, AreNotReplayedOnMemoryThatCameBack)
{
    const char *made = "cuGraphInstantiateWithFlags";

    EXPECT_GT(CallsOnMemoryThatCameBack("cuGraphExecMemcpyNodeSetParams"), 0);
    EXPECT_EQ(CallsOnMemoryThatCameBack(made), kTurns);
    ScopedSetting lt("FAKE_CUBLASLT_KERNELS", "4");
    EXPECT_EQ(CallsOnMemoryThatCameBack(made), 2 * kTurns);
}

// How many graphs a rank makes of the program for more sets of memory than are
// remembered, which take turns with other contents each time.
int64_t GraphsMade(const Program &program, const hd_session_options &options)
{
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;
        Memory memory;

        HD_TRY(session.Open(rank, program, options));
        HD_TRY(Fill(memory, rank, program, session, kSets));
        for (int n = 0; n < 3 * kSets; n++) {
            Shards &shards = *memory[size_t(n % kSets)];

            HD_TRY(shards.Set(program.Inputs(SetOf(n)), program.Module(),
                              rank.rank, rank.diag));
            HD_TRY(shards.Run(rank.diag));
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank, SetOf(n)));
        }
        memory.clear();
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        rank.answer->number = calls("cuGraphInstantiateWithFlags");
        return HD_OK;
    });

    AllAreRight(answers);
    return answers[0].number;
}

TEST(CudaGraphs, AreMadeOnceForAnyAddresses)
{
    Program program(kEverything, kSets);
    hd_session_options options = CudaOptions();

    options.graph = true;
    for (hd_transport way : {HD_TRANSPORT_COPY, HD_TRANSPORT_SM}) {
        options.transport = way;
        for (const char *kernels : {"1", "2", "3"}) {
            ScopedSetting lt("FAKE_CUBLASLT_KERNELS", kernels);
            EXPECT_EQ(GraphsMade(program, options), kTurns) << kernels;
        }
    }
}

// Of kernels that are the same one cannot tell which is to be given what. So
// each set is captured; beyond those that are kept, one of them is patched.
TEST(CudaGraphs, ArePatchedForEachSetWhereTheyCannotBeSetAnew)
{
    Program program(kEverything, kSets);
    hd_session_options options = CudaOptions();

    options.graph = true;
    ScopedSetting lt("FAKE_CUBLASLT_KERNELS", "4");
    EXPECT_EQ(GraphsMade(program, options), kKept * kTurns);
}

// Of two kernels CUDA does not say which follows which, once.
TEST(CudaGraphs, AreMadeOnceMoreWhereOneWasNotUnderstood)
{
    Program program(kEverything, kSets);
    hd_session_options options = CudaOptions();

    options.graph = true;
    ScopedSetting lt("FAKE_CUBLASLT_KERNELS", "2");
    ScopedSetting fault("FAKE_CUDA_FAIL", "cuGraphNodeGetDependencies:1");
    EXPECT_EQ(GraphsMade(program, options), 2 * kTurns);
}

// What CUDA refuses to set, or to describe, once is not tried again.
TEST(CudaGraphs, AreGivenUpWhereTheyCannotBeSet)
{
    Program program(kEverything, kSets);
    hd_session_options options = CudaOptions();

    options.graph = true;
    for (const char *call :
         {"cuGraphExecKernelNodeSetParams:2", "cuGraphNodeGetType:1",
          "cuGraphExecMemcpyNodeSetParams:1",
          "cuGraphExecBatchMemOpNodeSetParams:2"}) {
        ScopedSetting fault("FAKE_CUDA_FAIL", call);
        EXPECT_LE(GraphsMade(program, options), kTurns) << call;
    }
}

// Each on a stream of the caller's, in order with what it has put there before
// and puts there afterwards.
TEST_P(CudaRuns, FollowTheCallersStreams)
{
    Program program(kEverything, kSets);
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session;
        Memory memory;

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, Options()));
        HD_TRY(Fill(memory, rank, program, session, kSets));
        hd_cu_stream stream[] = {caller.Stream(), nullptr, caller.Stream()};
        for (int n = 0; n < 60; n++) {
            Shards &shards = *memory[size_t(n % 5)];

            // By way of the stream, which the run has to wait for.
            HD_TRY(caller.Set(shards, stream[n % 3], program, rank.rank,
                              SetOf(n)));
            HD_TRY(shards.RunOn(stream[n % 3], rank.diag));
            HD_TRY(caller.Get(shards, stream[n % 3]));
            HD_TRY(program.Compare(shards, rank.rank, SetOf(n)));
        }
        HD_TRY(hd_session_finish(session, rank.diag));
        memory.clear();
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

// The handle of a thread's own stream is the same on all threads, and the
// stream is not.
TEST(CudaThreads, RunsOnTheirOwnStreamsFollowEachOther)
{
    Program program("heddle 2\nhost program one\nin %a : f32[64]\n"
                    "out %c : f32[64]\n{ %c = gelu %a }\n",
                    2);
    std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
        Caller caller;
        Session session;
        Memory memory;

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, CudaOptions()));
        HD_TRY(Fill(memory, rank, program, session, 2));
        HD_TRY(caller.HoldUp(HD_CU_STREAM_PER_THREAD));
        HD_TRY(memory[0]->RunOn(HD_CU_STREAM_PER_THREAD, rank.diag));
        hd_status status = HD_ERROR_INVALID;
        std::thread other([&] {
            status = memory[1]->RunOn(HD_CU_STREAM_PER_THREAD, rank.diag);
            SleepFor(0.05);
            if (caller.cu.context_push(caller.Context()) != 0 ||
                caller.IsIdle(HD_CU_STREAM_PER_THREAD))
                status = HD_ERROR_INVALID;
        });
        other.join();
        caller.LetGo();
        HD_TRY(status);
        for (int i = 0; i < 2; i++) {
            HD_TRY(memory[size_t(i)]->Get(rank.diag));
            HD_TRY(program.Compare(*memory[size_t(i)], 0, i));
        }
        memory.clear();
        return HD_OK;
    });

    AllAreRight(answers);
}

TEST_P(CudaRuns, QueueUpWithoutAnyoneWaiting)
{
    Program program(kEverything, kSets);
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session;
        Memory memory;

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, Options()));
        HD_TRY(Fill(memory, rank, program, session, kSets));
        hd_cu_stream stream[] = {caller.Stream(), nullptr, caller.Stream()};
        for (int n = 0; n < 200; n++)
            HD_TRY(memory[size_t(n % kSets)]->RunOn(stream[n / 40 % 3],
                                                    rank.diag));
        for (int i = 0; i < kSets; i++) {
            HD_TRY(memory[size_t(i)]->Get(rank.diag));
            HD_TRY(program.Compare(*memory[size_t(i)], rank.rank, i));
        }
        memory.clear();
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

// More commands than the driver puts into a stream unseen.
TEST_P(CudaRuns, MayBeLong)
{
    Program program("heddle 2\n"
                    "host program long mesh tp=2 streams 2\n"
                    "in %x : i32[size tp@tp, 64] shared\n"
                    "out %y : i32[size tp@tp, 64]\n"
                    "temp %a : i32[64] shared temp %b : i32[64] shared\n"
                    "{ %a = copy %x[tp]\n"
                    "  for i in 0..150 {\n"
                    "    group { send %a to 1 - tp  %b = recv from 1 - tp }\n"
                    "    %a = copy %b\n"
                    "    %a = add %a, %x[tp]\n"
                    "    fork on stream i mod 2 { %a = copy %a } join\n"
                    "  } %y[tp] = copy %a }\n",
                    2);
    auto body = [&](Rank &rank) {
        Session session;
        Memory memory;

        // One rank may have made its graphs long before the other.
        HD_TRY(session.Open(rank, program, Options()));
        HD_TRY(Fill(memory, rank, program, session, 2));
        for (int n = 0; n < 4; n++)
            HD_TRY(memory[size_t(n % 2)]->Run(rank.diag));
        for (int i = 0; i < 2; i++) {
            HD_TRY(memory[size_t(i)]->Get(rank.diag));
            HD_TRY(program.Compare(*memory[size_t(i)], rank.rank, i));
        }
        memory.clear();
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

// On the host and in the device's streams.
TEST_P(CudaRuns, GiveTheSameBitsWithDelays)
{
    Program program(kEverything);
    std::vector<uint64_t> first;

    for (const char *seed : {"", "1", "2", "77"}) {
        ScopedSetting host("HEDDLE_CHAOS", seed);
        ScopedSetting streams("FAKE_CUDA_CHAOS", seed);
        std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
            Session session;

            HD_TRY(session.Open(rank, program, Options()));
            Shards shards(session);
            HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                              rank.diag));
            for (int n = 0; n < 5; n++)
                HD_TRY(shards.Run(rank.diag));
            HD_TRY(shards.Get(rank.diag));
            rank.answer->number = int64_t(shards.Hash());
            return program.Compare(shards, rank.rank);
        });

        AllAreRight(answers);
        for (size_t i = 0; i < answers.size(); i++) {
            uint64_t hash = uint64_t(answers[i].number);

            EXPECT_NE(hash, 0u);
            if (first.size() == i)
                first.push_back(hash);
            EXPECT_EQ(hash, first[i]) << "seed " << seed;
        }
    }
}

} // namespace
