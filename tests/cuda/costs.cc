// What a run asks of the driver and of the device, by count: each call, word
// and node costs a part of a microsecond or more.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "tests/cuda/caller.h"
#include "tests/unit/ranks.h"

namespace
{

// A gather in front of a matmul, as pipelines are made of it.
std::string Gather(int ranks)
{
    return "heddle 2\ntensor program ag mesh tp=" + std::to_string(ranks) +
           "\n"
           "in %x : f32[size tp@tp, 4, 8] in %w : f32[8, 12]\n"
           "out %c : f32[size tp@stream, 4, 12]\n"
           "temp %all : f32[size tp@stream, 4, 8]\n"
           "{ %all = set %x  %c = matmul %all, %w }\n";
}

hd_lower_options Pipeline(hd_transfer transfer)
{
    hd_lower_options options = hd_lower_defaults();

    options.transfer = transfer;
    options.comm_stream = options.defer_sends = true;
    return options;
}

// How often rank 0 does `what` in the last of so many runs, whose answers are
// right on all ranks.
int64_t Count(const Program &program, const hd_session_options &options,
              const char *what, int runs = 3)
{
    std::vector<Answer> answers = RunRanks(program.Ranks(), [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, options));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(0), program.Module(), rank.rank,
                          rank.diag));
        for (int run = 0; run < runs; run++) {
            HD_TRY(shards.Set(program.Inputs(run % 3), program.Module(),
                              rank.rank, rank.diag));
            long before = calls(what);
            HD_TRY(shards.Run(rank.diag));
            rank.answer->number = calls(what) - before;
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank, run % 3));
        }
        return HD_OK;
    });

    for (const Answer &answer : answers) {
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
        EXPECT_STREQ(answer.left, "");
    }
    return answers[0].number;
}

// One "early" of a peer's lets in all that goes there in a run: a ring of four
// sends three shards to one neighbour, and waits for three from the other one.
TEST(CudaCosts, OneReadyOfEachPeerIsWaitedForInARun)
{
    hd_session_options options = CudaOptions();

    for (hd_transport way : {HD_TRANSPORT_COPY, HD_TRANSPORT_SM}) {
        hd_lower_options ring = Pipeline(HD_TRANSFER_RING);
        hd_lower_options direct = Pipeline(HD_TRANSFER_DIRECT);

        options.transport = way;
        ring.chunks = direct.chunks = 2;
        EXPECT_EQ(Count(Program(Gather(4), 3, &ring), options, "word waits"),
                  1 + 6);
        EXPECT_EQ(Count(Program(Gather(4), 3, &direct), options, "word waits"),
                  3 + 6);
    }
}

// Two streams put to one peer, each of which waits for its "early"; the last
// put of the first goes where the peer has read before, which has a "ready" of
// its own.
TEST(CudaCosts, EachStreamWaitsForOneReadyAndForThoseThatAreLate)
{
    Program program("heddle 2\n"
                    "host program late mesh tp=2 streams 2\n"
                    "in %x : f32[size tp@tp, 4, 64]\n"
                    "out %y : f32[size tp@tp, 4, 64]\n"
                    "temp %t : f32[3, 64] shared\n"
                    "{ fork on stream 0 {\n"
                    "    for i in 0..2 { group { send %x[tp, i] to 1 - tp\n"
                    "                            %t[i] = recv from 1 - tp } }\n"
                    "    %y[tp, 0] = copy %t[0] %y[tp, 1] = copy %t[1]\n"
                    "    group { send %x[tp, 3] to 1 - tp\n"
                    "            %t[0] = recv from 1 - tp }\n"
                    "    %y[tp, 3] = copy %t[0]\n"
                    "  } on stream 1 {\n"
                    "    group { send %x[tp, 2] to 1 - tp\n"
                    "            %t[2] = recv from 1 - tp }\n"
                    "    %y[tp, 2] = copy %t[2]\n"
                    "  } join }\n",
                    3);

    ScopedSetting host("HEDDLE_CHAOS", "3"), streams("FAKE_CUDA_CHAOS", "3");
    EXPECT_EQ(Count(program, CudaOptions(), "word waits"), 2 + 1 + 4);
}

// What a run tells its peer when it begins goes along with what a stream then
// waits for: three batches of words.
TEST(CudaCosts, APipelineOfTwoRanksHasFewBatchesOfWords)
{
    for (hd_transfer transfer : {HD_TRANSFER_RING, HD_TRANSFER_DIRECT}) {
        hd_lower_options lower = Pipeline(transfer);
        Program program(Gather(2), 3, &lower);
        hd_session_options options = CudaOptions();

        EXPECT_EQ(Count(program, options, "cuStreamBatchMemOp_v2"), 3);
        EXPECT_EQ(Count(program, options, "word writes"), 2);
        EXPECT_EQ(Count(program, options, "word waits"), 2);
    }
}

// The words of each turn of runs stand in a graph of its own.
TEST(CudaCosts, AGraphOnTheSameMemoryIsGivenNothing)
{
    hd_session_options options = CudaOptions();
    hd_lower_options lower = Pipeline(HD_TRANSFER_RING);
    Program program(Gather(4), 3, &lower);

    options.graph = true;
    for (hd_transport way : {HD_TRANSPORT_COPY, HD_TRANSPORT_SM}) {
        options.transport = way;
        for (const char *call :
             {"cuGraphExecBatchMemOpNodeSetParams",
              "cuGraphExecKernelNodeSetParams_v2",
              "cuGraphExecMemcpyNodeSetParams", "cuGraphInstantiateWithFlags"})
            EXPECT_EQ(Count(program, options, call, 9), 0) << call;
        EXPECT_EQ(Count(program, options, "cuGraphLaunch", 9), 1);
    }
}

// A graph's kernels know addresses alone: of the three arguments CUDA is asked
// whose memory the one is that is copied.
TEST(CudaCosts, ARunAsksForTheMemoryThatIsCopiedAlone)
{
    hd_lower_options lower = Pipeline(HD_TRANSFER_DIRECT);
    Program program(Gather(2), 3, &lower);
    hd_session_options options = CudaOptions();

    for (bool graph : {false, true}) {
        options.graph = graph;
        EXPECT_EQ(Count(program, options, "cuPointerGetAttribute"), graph);
    }
}

// The thread that watches asks for events and streams at times of its own, and
// copies.
TEST(CudaCosts, AReplayedRunIsNineCallsOfTheDriver)
{
    const std::map<std::string, int> wanted = {
        {"cuCtxPushCurrent_v2", 1}, {"cuThreadExchangeStreamCaptureMode", 2},
        {"cuStreamIsCapturing", 1}, {"cuEventRecord", 2},
        {"cuGraphLaunch", 1},       {"cuPointerGetAttribute", 1},
        {"cuCtxPopCurrent_v2", 1}};
    static const char *const symbols[] = {
#define HD_CU(symbol, name, ...) #symbol,
#include "runtime/cuda/vendor/cuda.def"
#undef HD_CU
    };
    hd_lower_options lower = Pipeline(HD_TRANSFER_DIRECT);
    Program program(Gather(2), 3, &lower);
    hd_session_options options = CudaOptions();

    options.graph = true;
    for (std::string symbol : symbols) {
        if (symbol == "cuEventQuery" || symbol == "cuStreamQuery" ||
            symbol == "cuMemcpyAsync")
            continue;
        auto found = wanted.find(symbol);
        EXPECT_EQ(Count(program, options, symbol.c_str()),
                  found == wanted.end() ? 0 : found->second)
            << symbol;
    }
}

// What streams wait for each other, and record for it.
TEST(CudaCosts, APipelineOfTwoRanksHasFewEvents)
{
    hd_lower_options ring = Pipeline(HD_TRANSFER_RING);
    hd_lower_options direct = Pipeline(HD_TRANSFER_DIRECT);
    Program by_ring(Gather(2), 3, &ring), directly(Gather(2), 3, &direct);
    const char *wait = "cuStreamWaitEvent", *record = "cuEventRecord";

    for (bool graph : {false, true}) {
        hd_session_options options = CudaOptions();
        int in_graph = graph ? 0 : 1; // that is captured already

        options.graph = graph;
        // Two streams and the helper begin, or two of which one goes on with
        // what the other has; two end. A run has a start and an end.
        EXPECT_EQ(Count(directly, options, wait), 4 * in_graph);
        EXPECT_EQ(Count(directly, options, record), 2 + 3 * in_graph);
        EXPECT_EQ(Count(by_ring, options, wait), 5 * in_graph);
        EXPECT_EQ(Count(by_ring, options, record), 2 + 4 * in_graph);
    }
}

// A mark behind each step by NCCL is an event, beside those of a run's start
// and end: a word would hold up its stream.
TEST(CudaCosts, WhatNcclIsDoneWithIsMarkedByAnEvent)
{
    Program program("heddle 2\nhost program marks mesh tp=2\n"
                    "in %x : f32[64] shared temp %y : f32[64] shared\n"
                    "out %z : f32[64]\n"
                    "{ %y = all_reduce %x %z = all_reduce %y\n"
                    "  %y = all_reduce %x %z = all_reduce %y }\n",
                    3);
    hd_session_options options = CudaOptions();

    options.transport = HD_TRANSPORT_NCCL;
    for (bool graph : {false, true}) {
        options.graph = graph;
        EXPECT_EQ(Count(program, options, "cuEventRecord"), graph ? 2 : 2 + 4);
        EXPECT_EQ(Count(program, options, "cuStreamBatchMemOp_v2"), 0);
    }
}

// The words that tell peers of a small reduction are its kernel's. Where two
// streams reduce they are the streams': as many kernels might wait for peers
// as fill a device.
TEST(CudaCosts, ASmallReductionIsOneKernel)
{
    const std::string head = "heddle 2\nhost program small mesh tp=2 "
                             "streams 2\n"
                             "in %x : f32[64] shared temp %y : f32[64] shared\n"
                             "out %z : f32[64]\n";
    Program together(head + "{ %y = all_reduce %x %z = all_reduce %y }\n", 3);
    Program apart(head + "{ fork on stream 0 { %y = all_reduce %x }\n"
                         "  on stream 1 { %z = all_reduce %x } join }\n",
                  3);
    // As a pipeline of one stream has it.
    Program looped("heddle 2\nhost program loop mesh tp=2 streams 1\n"
                   "in %x : f32[64] shared out %y : f32[2, 64]\n"
                   "{ fork for j in 0..2 { on stream j mod 1 {\n"
                   "  %y[j] = all_reduce %x } } join }\n",
                   3);
    hd_session_options options = CudaOptions();

    for (hd_transport transport : {HD_TRANSPORT_COPY, HD_TRANSPORT_SM}) {
        options.transport = transport;
        for (const Program *program : {&together, &looped}) {
            EXPECT_EQ(Count(*program, options, "cuLaunchKernelEx"), 2);
            EXPECT_EQ(Count(*program, options, "cuStreamBatchMemOp_v2"), 0);
        }
        EXPECT_EQ(Count(apart, options, "cuLaunchKernelEx"), 2);
        EXPECT_GT(Count(apart, options, "cuStreamBatchMemOp_v2"), 0);
    }
}

int64_t BytesSent(const Program &program, const hd_session_options &options)
{
    std::vector<Answer> answers = RunRanks(program.Ranks(), [&](Rank &rank) {
        Session session;
        hd_stats stats = HD_EMPTY(hd_stats);

        HD_TRY(session.Open(rank, program, options));
        HD_TRY(RunAndCompare(rank, program, session, 2));
        hd_session_stats(session, &stats);
        rank.answer->number = static_cast<int64_t>(stats.bytes_sent);
        return HD_OK;
    });

    for (const Answer &answer : answers)
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
    return answers[0].number;
}

// What rank 0 sends in a run of an all_reduce of f32, whose answer is right.
int64_t Sent(int ranks, int elements)
{
    std::string n = std::to_string(elements);
    Program program(
        "heddle 2\nhost program sum mesh tp=" + std::to_string(ranks) +
            "\nin %x : f32[" + n + "] shared out %y : f32[" + n +
            "]\n{ %y = all_reduce %x }\n",
        3);
    hd_session_options options = CudaOptions();

    EXPECT_EQ(Count(program, options, "cuLaunchKernelEx"), 1);
    EXPECT_EQ(Count(program, options, "cuStreamBatchMemOp_v2"), 0);
    return BytesSent(program, options);
}

// As many bytes as a second half of its kernel takes time for, or as asked.
TEST(CudaCosts, AnAllReduceIsInSharesWhereThatSavesEnough)
{
    const int least = 174763; // of 4 ranks: 6 quarters of them are 1 MiB
    const int64_t share = 174768, last = 4 * least - 3 * share;

    EXPECT_EQ(Sent(4, least - 1), 3 * 4 * (least - 1));
    EXPECT_EQ(Sent(4, least), 2 * (share + share) + last + share);
    EXPECT_EQ(Sent(2, 1 << 20), 4 << 20);
    setenv("HEDDLE_SHOTS", "1", 1);
    EXPECT_EQ(Sent(4, least), 3 * 4 * least);
    setenv("HEDDLE_SHOTS", "2", 1);
    EXPECT_EQ(Sent(4, 8), 16 + 3 * 16); // two ranks have none
    EXPECT_EQ(Sent(2, 1001), 4 * 1001);
    unsetenv("HEDDLE_SHOTS");
}

std::string Matmul(const std::string &body)
{
    return "heddle 2\nhost program one streams 1\n"
           "in %a : f32[8, 16] in %b : f32[16, 12] out %c : f32[8, 12]\n{ " +
           body + " }\n";
}

// A run that begins while others are under way has no times, and one without
// peers has nobody watch when it begins: it records its end alone.
// So does one on a stream of its own, which nothing else goes on beside.
void IsAProductAndAnEvent(const std::string &text)
{
    Program program(text, 3);
    std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, CudaOptions()));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        std::vector<std::unique_ptr<Shards>> memory;
        for (int i = 0; i < 3; i++) {
            memory.push_back(std::make_unique<Shards>(session));
            HD_TRY(memory.back()->Put(program.Inputs(i), program.Module(), 0,
                                      rank.diag));
        }
        for (int n = 0; n < 6; n++) {
            long events = calls("cuEventRecord");
            long timed = calls("timed records");
            long words = calls("cuStreamBatchMemOp_v2");
            long waits = calls("cuStreamWaitEvent");
            HD_TRY(memory[size_t(n) % 3]->Run(rank.diag));
            RANK_EXPECT(calls("cuEventRecord") - events == (n == 0 ? 2 : 1));
            RANK_EXPECT(calls("timed records") - timed == (n == 0 ? 2 : 0));
            RANK_EXPECT(calls("cuStreamBatchMemOp_v2") == words);
            RANK_EXPECT(calls("cuStreamWaitEvent") == waits);
        }
        for (int i = 0; i < 3; i++) {
            HD_TRY(memory[size_t(i)]->Get(rank.diag));
            HD_TRY(program.Compare(*memory[size_t(i)], 0, i));
        }
        memory.clear();
        return HD_OK;
    });

    EXPECT_EQ(answers[0].status, HD_OK) << answers[0].text;
    EXPECT_STREQ(answers[0].left, "");
}

TEST(CudaCosts, ARunOfAMatmulAmongOthersIsAProductAndAnEvent)
{
    IsAProductAndAnEvent(Matmul("%c = matmul %a, %b"));
    IsAProductAndAnEvent(
        Matmul("fork on stream 0 { %c = matmul %a, %b } join"));
}

// CUDA is not asked whether a run is over that the caller has waited for.
TEST(CudaCosts, ARunDoesNotAskForWhatIsKnownToBeOver)
{
    Program program(Matmul("%c = matmul %a, %b"), 3);

    EXPECT_EQ(Count(program, CudaOptions(), "cuEventQuery", 20), 0);
}

// As a ring adds what has arrived, and as gradients of weights are added up in
// f32: by the product itself, wherever rows are evenly spaced.
TEST(CudaCosts, AProductIsAddedToAMatrixWithoutAKernel)
{
    const char *const decls =
        "heddle 2\nhost program added streams 1\n"
        "in %a : bf16[2, 8, 16] in %b : bf16[16, 16] in %r : bf16[8, 3, 16]\n"
        "in %u : bf16[2, 2, 8, 16] in %v : f32[8, 16]\n";
    struct {
        const char *text;
        int products, kernels;
    } cases[] = {
        {"out %c : bf16[8, 16] { %c = matmul %a[0], %b bias %r[:, 1] }", 1, 0},
        {"out %c : bf16[2, 8, 16] { %c = matmul %a, %b bias %u[1] }", 1, 0},
        {"out %c : f32[8, 16] { %c = matmul %a[0], %b bias %v }", 1, 0},
        {"inout %c : f32[8, 16] { %c = matmul %a[1], %b accumulate }", 1, 0},
        {"inout %c : f32[16, 16] { %c = matmul %a[1], %a[0] ta accumulate }", 1,
         0},
        // Others have a kernel behind them.
        {"out %c : bf16[2, 8, 16] { %c = matmul %a, %b bias %u[:, 1] }", 1, 1},
        {"out %c : bf16[8, 16] { %c = matmul %a[0], %b bias %v }", 1, 1},
    };

    for (auto [text, products, kernels] : cases) {
        Program program(decls + std::string(text), 3);
        hd_session_options options = CudaOptions();

        EXPECT_EQ(Count(program, options, "cuGraphLaunch"), products) << text;
        EXPECT_EQ(Count(program, options, "cuLaunchKernelEx"), kernels) << text;
    }
}

// Runs of one kernel each, of which the second begins when the first is over,
// but nobody has waited for it yet. By the clock of events it takes longer.
TEST(CudaCosts, SecondsAreOfTheLastRunThatBeganAlone)
{
    Program program("heddle 2\nhost program one\nin %a : f32[64]\n"
                    "out %c : f32[64]\n{ %c = gelu %a }\n");

    for (bool all : {false, true}) {
        std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
            double times[2] = {0};
            hd_session_options options = CudaOptions();
            Caller caller;
            Session session;
            hd_stats stats = HD_EMPTY(hd_stats);

            options.times = all ? times : nullptr;
            HD_TRY(caller.Open(rank));
            HD_TRY(session.Open(rank, program, options));
            auto *spend = Extra<decltype(fake_cuda_kernels_spend)>(
                "fake_cuda_kernels_spend");
            hd_cu_stream stream = caller.Stream();
            Shards shards(session);
            HD_TRY(
                shards.Put(program.Inputs(), program.Module(), 0, rank.diag));
            for (double seconds : {100, 500, 900}) {
                spend(seconds);
                HD_TRY(shards.RunOn(stream, rank.diag));
                RANK_EXPECT(caller.cu.stream_synchronize(stream) == 0);
                spend(seconds + 200);
                HD_TRY(shards.RunOn(stream, rank.diag));
                HD_TRY(shards.Get(rank.diag));
                hd_session_stats(session, &stats);
                RANK_EXPECT(
                    std::fabs(stats.seconds - seconds - (all ? 200 : 0)) < 30);
            }
            return program.Compare(shards, 0);
        });

        EXPECT_EQ(answers[0].status, HD_OK) << answers[0].text;
        EXPECT_STREQ(answers[0].left, "");
    }
}

} // namespace
