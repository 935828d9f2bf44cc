// Launches that one kernel does, and those that go as their parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include <heddle/environment.h>

#include "tests/cuda/caller.h"
#include "tests/cuda/way.h"

namespace
{

void Append(void *context, hd_severity, const char *text)
{
    std::string *all = static_cast<std::string *>(context);

    *all += text;
    *all += "\n";
}

hd_lower_options Launches(hd_transfer transfer, int chunks = 1)
{
    hd_lower_options options = hd_lower_defaults();

    options.transfer = transfer;
    options.chunks = chunks;
    options.launch = true;
    return options;
}

// Rows of all ranks meet one matrix.
std::string Gathered(int ranks, int rows, int columns, int depth,
                     const std::string &rest = "")
{
    const std::string t = std::to_string(ranks), m = std::to_string(rows),
                      n = std::to_string(columns), k = std::to_string(depth);

    return "heddle 2 tensor program gathered mesh tp=" + t + " in %a : bf16[" +
           t + "@tp, " + m + ", " + k + "]" + " in %w : bf16[" + n + ", " + k +
           "] in %v : f32[" + n + "]" + " temp %g : bf16[" + t + "@stream, " +
           m + ", " + k + "]" + " out %c : bf16[" + t + "@stream, " + m + ", " +
           n + "]\n" + "{\n%g = set %a\n%c = matmul %g, %w tb " + rest +
           "\n}\n";
}

const int kSets = 2; // of inputs

// What a rank's session says of launches, and calls for kernels in a run.
struct Told {
    std::string log;
    long kernels;
};

hd_status RunRank(Rank &rank, const Program &program,
                  const hd_session_options &options, int runs, Told *out)
{
    Session session;

    hd_set_log(Append, &out->log);
    HD_TRY(session.Open(rank, program, options));
    hd_set_log(nullptr, nullptr);
    auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
    Memory memory;
    std::mt19937 random(Seed() + unsigned(rank.rank));
    HD_TRY(Fill(memory, rank, program, session, kSets));
    for (int i = 0; i < runs; i++) {
        Shards &shards = *memory[size_t(i % kSets)];

        // What is there already is another run's.
        SleepFor(1e-3 * (random() % 3) * double(random() % 20));
        out->kernels = calls("cuLaunchKernelEx");
        HD_TRY(shards.Run(rank.diag));
        out->kernels = calls("cuLaunchKernelEx") - out->kernels;
        HD_TRY(shards.Get(rank.diag));
        HD_TRY(program.Compare(shards, rank.rank, i % kSets));
    }
    return HD_OK;
}

void AreKernels(const Program &program, const hd_session_options &options,
                const std::string &says, long kernels)
{
    AllAreRight(RunRanks(program.Ranks(), [&](Rank &rank) {
        Told told;

        HD_TRY(RunRank(rank, program, options, 3, &told));
        if (told.log.find(says) == std::string::npos ||
            (kernels > 0 && told.kernels != kernels))
            return hd_fail(rank.diag, HD_ERROR_INVALID, "%ld kernels: %s",
                           told.kernels, told.log.c_str());
        return HD_OK;
    }));
}

// Of any shape, with transfers and kernels that come when they like.
TEST(CudaLaunches, OfAPipelineAreOneKernelEach)
{
    ScopedSetting chaos("FAKE_CUDA_CHAOS", "3");
    std::mt19937 random(Seed());
    const std::vector<std::string> rests = {"", "bias %v act gelu",
                                            "scale 0.5"};

    for (hd_transfer transfer :
         Choose<hd_transfer>({HD_TRANSFER_RING, HD_TRANSFER_DIRECT},
                             {HD_TRANSFER_RING, HD_TRANSFER_DIRECT})) {
        const int ranks = 2 + int(random() % 3), chunks = 1 + int(random() % 2);
        const int rows = 64 * chunks + 8 * int(random() % 4) * chunks;
        hd_lower_options lower = Launches(transfer, chunks);
        Program program(Gathered(ranks, rows, 64 + 8 * int(random() % 9),
                                 64 + 8 * int(random() % 5),
                                 rests[random() % rests.size()]),
                        kSets, &lower);

        AreKernels(program, CudaOptions(),
                   "is one kernel: " + std::to_string(ranks * chunks) +
                       " products",
                   1);
    }
}

// Products of one gather that have columns of their own, and rows that ranks
// have unevenly many of.
TEST(CudaLaunches, OfSeveralProductsOfAGatherAreOneKernel)
{
    const std::string kTwo = "heddle 2 tensor program two mesh tp=3"
                             " in %a : bf16[3@tp, 72, 64] in %w : bf16[136, 64]"
                             " in %u : bf16[64, 64]"
                             " temp %g : bf16[3@stream, 72, 64]"
                             " out %c : bf16[3@stream, 72, 136]"
                             " out %d : bf16[3@stream, 72, 64]\n"
                             "{\n%g = set %a\n%c = matmul %g, %w tb\n"
                             "%d = matmul %g, %u tb\n}\n";
    const std::string kUneven = "heddle 2 tensor program uneven mesh tp=3"
                                " in %a : bf16[280@tp, 64]"
                                " in %w : bf16[136, 64]"
                                " temp %g : bf16[280 in 3 @stream, 64]"
                                " out %c : bf16[280 in 3 @stream, 136]\n"
                                "{\n%g = set %a\n%c = matmul %g, %w tb\n}\n";
    hd_lower_options lower = Launches(HD_TRANSFER_DIRECT);

    AreKernels(Program(kTwo, kSets, &lower), CudaOptions(),
               "is one kernel: 6 products", 1);
    AreKernels(Program(kUneven, kSets, &lower), CudaOptions(),
               "is one kernel: 3 products", 1);
}

TEST(CudaLaunches, GoAsTheirPartsWithAReason)
{
    hd_lower_options ring = Launches(HD_TRANSFER_RING);
    hd_session_options graph = CudaOptions();
    const std::string parts = ": the launch is done as its parts: ";

    graph.graph = true;
    AreKernels(Program(Gathered(2, 64, 64, 64), kSets, &ring), graph,
               parts + "it waits, and runs are graphs", 0);
    AreKernels(Program(Gathered(2, 16, 64, 64), kSets, &ring), CudaOptions(),
               parts + "its products are not alike, or not for tiles", 0);
    AreKernels(Program("heddle 2 host program p in %x : bf16[64, 64]"
                       " out %y : bf16[64, 64] { launch {"
                       " %y = matmul %x, %x } }",
                       kSets),
               CudaOptions(), parts + "it has one product alone", 0);
    AreKernels(Program("heddle 2 host program p in %x : bf16[64, 64]"
                       " in %u : bf16[64, 72] out %y : bf16[64, 64]"
                       " out %z : bf16[64, 72] { launch {"
                       " %y = matmul %x, %x %z = matmul %x, %u act gelu } }",
                       kSets),
               CudaOptions(), parts + "its products are not alike", 0);
}

// What comes of kernels could not start beside one that waits.
TEST(CudaLaunches, ThatMayWaitForProcessorsGoAsTheirParts)
{
    hd_lower_options ring = Launches(HD_TRANSFER_RING);
    const Program program(Gathered(2, 64, 64, 64), kSets, &ring);
    hd_session_options sm = CudaOptions();

    sm.transport = HD_TRANSPORT_SM;
    AreKernels(program, sm, "it waits, and not all transfers are copies", 0);
    ScopedSetting one("FAKE_CUDA_DEVICES", "1");
    AreKernels(program, CudaOptions(),
               "it waits, and another rank has the same device", 0);
}

// Products of a launch follow each other as on a stream: tiles of one would not
// wait for what another one makes, or still reads.
TEST(CudaLaunches, WhoseProductsReadEachOtherGoAsTheirParts)
{
    hd_lower_options lower = Launches(HD_TRANSFER_DIRECT);
    const std::string parts = "a product of it has to do with what another one";
    const std::string layers =
        "heddle 2 tensor program layers mesh tp=2"
        " in %a : bf16[2@tp, 64, 64] in %w : bf16[64, 64]"
        " temp %g : bf16[2@stream, 64, 64]"
        " temp %h : bf16[2@stream, 64, 64]"
        " out %c : bf16[2@stream, 64, 64]\n"
        "{\n%g = set %a\n%h = matmul %g, %w tb\n"
        "%c = matmul %h, %w tb\n}\n";

    AreKernels(Program(layers, kSets, &lower), CudaOptions(), parts, 0);
    AreKernels(
        Program("heddle 2 host program war in %x : bf16[64, 64]"
                " temp %u : bf16[64, 64] out %y : bf16[64, 64]"
                " out %z : bf16[64, 64] { %u = copy %x launch {"
                " %y = matmul %u, %x %u = matmul %x, %x } %z = copy %u }",
                kSets),
        CudaOptions(), parts, 0);
    // Columns of one result lie between each other's.
    AreKernels(Program("heddle 2 host program apart in %x : bf16[64, 64]"
                       " in %w : bf16[2, 64, 64] out %y : bf16[64, 2, 64]"
                       " { launch { for i in 0..2 {"
                       " %y[:, i] = matmul %x, %w[i] } } }",
                       kSets),
               CudaOptions(), "is one kernel: 2 products", 1);
}

// A send that is handed on is not over when its stream is.
TEST(CudaLaunches, WaitForSendsThatAreHandedOn)
{
    ScopedSetting chaos("FAKE_CUDA_CHAOS", "2");
    Program program("heddle 2 host program own mesh tp=2 streams 1"
                    " in %a : bf16[2@tp, 64, 64] in %x : bf16[64, 64]"
                    " temp %u : bf16[64, 64] shared"
                    " out %r : bf16[64, 64] shared out %c : bf16[64, 64]"
                    " out %d : bf16[64, 64] temp %sent : event[]"
                    " { fork on stream 0 { %u = copy %a[tp]"
                    " group { send %u to 1 - tp done %sent"
                    " %r = recv from 1 - tp }"
                    " launch { %c = matmul %x, %x\n wait %sent"
                    " %u = matmul %x, %x } %d = copy %u } join }",
                    kSets);

    AreKernels(program, CudaOptions(), "is one kernel: 2 products", 0);
}

// One that waits for nobody is a kernel in a graph, too, and in a capture.
TEST(CudaLaunches, ThatWaitForNobodyAreKernelsInGraphs)
{
    Program program("heddle 2 host program p in %x : bf16[3, 64, 64]"
                    " out %y : bf16[3, 64, 64] { launch { for i in 0..3 {"
                    " %y[i] = matmul %x[i], %x[(i + 1) mod 3] } } }",
                    kSets);
    hd_session_options graph = CudaOptions(), plain = CudaOptions();

    graph.graph = true;
    AreKernels(program, graph, "is one kernel: 3 products", 0);
    AreKernels(program, plain, "is one kernel: 3 products", 1);
}

// What the launch waits for comes behind a kernel, which it keeps from
// starting: `check` refuses that (HD0706). Here it ends, and is named.
TEST(CudaLaunches, ThatKeepThemselvesFromEndingAreTold)
{
    Program program("heddle 2 host program stuck mesh tp=2 streams 2"
                    " in %a : bf16[2@tp, 64, 64] shared"
                    " in %x : bf16[64, 64] temp %r : bf16[64, 64] shared"
                    " temp %p : bf16[64, 64] out %c : bf16[2, 64, 64]"
                    " temp %e : event[] { fork on stream 1 {"
                    " group { send %a[tp] to 1 - tp %r = recv from 1 - tp }"
                    " %p = gelu %r %e = record }\n"
                    "on stream 0 { launch { %c[0] = matmul %x, %x\n"
                    "wait %e %c[1] = matmul %p, %x } } join }",
                    1, nullptr, false);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, CudaOptions(kLate)));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        SleepFor(0.3 * rank.rank); // the first rank's launch has begun
        HD_TRY(shards.Run(rank.diag));
        return shards.Get(rank.diag);
    });

    Ended(answers[0], 0);
    EXPECT_EQ(answers[0].status, HD_ERROR_TIMEOUT) << answers[0].text;
    EXPECT_TRUE(Has(answers[0], "rank 0: matmul at program.hd:3:17 (step "))
        << answers[0].text;
    EXPECT_TRUE(Has(answers[0], "that of run 0 is the last one"))
        << answers[0].text;
}

// The kernel waits for a word that nobody writes: it ends when the streams do
// that were to write it, and what they wait for is named.
TEST(CudaLaunches, WhosePeerNeverRunsEndInTime)
{
    hd_lower_options lower = Launches(HD_TRANSFER_RING);
    Program program(Gathered(2, 64, 64, 64), kSets, &lower);
    std::vector<Answer> answers = RunOneAlone(program, CudaOptions(kLate));

    Ended(answers[0], 0);
    EXPECT_EQ(answers[0].status, HD_ERROR_TIMEOUT) << answers[0].text;
    EXPECT_TRUE(Has(answers[0], "rank 0 waits for rank 1: "))
        << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_OK) << answers[1].text;
}

TEST(CudaLaunches, WhosePeerIsKilledEndAtOnce)
{
    hd_lower_options lower = Launches(HD_TRANSFER_DIRECT);
    Program program(Gathered(3, 64, 64, 64), kSets, &lower);
    std::vector<Answer> answers = RunRanks(3, [&](Rank &rank) {
        return AfterOneRun(rank, program, CudaOptions(),
                           [&](Session &, Shards &shards, Caller &) {
                               if (rank.rank == 2) {
                                   SleepFor(0.1);
                                   raise(SIGKILL);
                               }
                               return RunIf(true, rank, shards);
                           });
    });

    EXPECT_FALSE(answers[2].ended);
    for (int i = 0; i < 2; i++)
        EndedByPeer(answers[size_t(i)], i, "rank 2");
}

} // namespace
