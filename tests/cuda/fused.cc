// Launches of a collective and its product: what a provider is given, what goes
// as its parts, and how calls of it fail.
#include <gtest/gtest.h>

#include "tests/cuda/program.h"
#include "tests/cuda/system.h"

namespace
{

const char *const kFused =
    "heddle 2\nhost program fused mesh tp=2 streams 2\n"
    "in %x : bf16[8, 16] in %w : bf16[12, 16] in %b : bf16[12]\n"
    "in %u : bf16[2, 3, 24] in %v : bf16[16, 24]\n"
    "temp %g : bf16[2, 8, 16] shared temp %p : bf16[2, 3, 16] shared\n"
    "temp %q : bf16[2, 3, 16] shared\n"
    "out %c : bf16[2, 8, 12] out %d : bf16[3, 16] out %e : bf16[2, 3, 16]\n"
    "{ launch { %g = all_gather %x\n"
    "           %c = matmul %g, %w tb bias %b act relu }\n"
    "  launch { %p = matmul %u, %v tb scale 0.5\n"
    "           %d = reduce_scatter %p }\n"
    "  launch { %q = matmul %u, %v tb\n"
    "           %e = all_reduce %q } }\n";

bool Says(const std::string &text, const std::string &words)
{
    return text.find(words) != text.npos;
}

// Runs it, with as many calls of the provider's in each run of a rank, and with
// `words` told to rank 0, or nothing.
std::vector<Answer> RunFused(const Program &program,
                             const hd_session_options &options, long calls,
                             const std::string &words = "",
                             const char *variable = "FAKE_NOTHING",
                             const std::string &value = "")
{
    return RunRanks(program.Ranks(), [&](Rank &rank) {
        Session session;

        setenv(variable, value.c_str(), 1);
        HD_TRY(session.Open(rank, program, options));
        auto *made = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        const std::string said = hd_diag_text(rank.diag);
        const bool told =
            words.empty()
                ? said.empty()
                : rank.rank > 0 ||
                      (Says(said, "the launch is done as its parts: ") &&
                       Says(said, words));
        HD_TRY(RunAndCompare(rank, program, session, 3));
        if (!told)
            return hd_fail(rank.diag, HD_ERROR_INVALID, "told otherwise");
        if (made("cublasMpMatmul") != 3 * calls)
            return hd_fail(rank.diag, HD_ERROR_INVALID, "%ld calls",
                           made("cublasMpMatmul"));
        return HD_OK;
    });
}

TEST(CudaFused, GivesTheAnswerRunAfterRunByEachTransport)
{
    Program program(kFused);

    for (hd_transport transport :
         {HD_TRANSPORT_COPY, HD_TRANSPORT_SM, HD_TRANSPORT_NCCL}) {
        hd_session_options options = CudaOptions();

        options.transport = transport;
        std::vector<Answer> answers = RunFused(program, options, 3);
        AllAreRight(answers);
        for (const Answer &answer : answers)
            EXPECT_STREQ(answer.left, "");
    }
}

// NCCL has had the one that there is.
TEST(CudaFused, SaysThatThereIsNoThreadToOpenItsProvider)
{
    Program program(kFused);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;

        if (rank.rank == 0)
            StartThreads(0);
        rank.page->keeps = true; // nor is there one to end what it has joined
        return session.Open(rank, program, CudaOptions());
    });

    EXPECT_TRUE(answers[0].ended && answers[1].ended);
    EXPECT_EQ(answers[0].status, HD_ERROR_SYSTEM) << answers[0].text;
    EXPECT_TRUE(Has(answers[0], "no thread to open cuBLASMp"))
        << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_ERROR_PEER) << answers[1].text;
}

// Along an axis of one rank it is its parts, and nobody is told.
TEST(CudaFused, IsAPlainProductWhereItsAxisHasOneRank)
{
    const std::string head = "heddle 2\nhost program alone mesh dp=2, tp=1\n"
                             "streams 1\n";
    Program alone(head + "in %x : f32[8, 16] in %w : f32[16, 12]\n"
                         "in %u : f32[1, 3, 24] in %v : f32[24, 16]\n"
                         "temp %g : f32[1, 8, 16] shared\n"
                         "temp %p : f32[1, 3, 16] shared\n"
                         "out %c : f32[1, 8, 12] out %d : f32[3, 16]\n"
                         "{ launch { %g = all_gather@tp %x\n"
                         "           %c = matmul %g, %w act silu }\n"
                         "  fork on stream 0 { launch {\n"
                         "    %p = matmul %u, %v scale 0.5\n"
                         "    %d = reduce_scatter@tp %p } } join }\n");
    Program beside(head + "in %x : bf16[8, 16] in %w : bf16[12, 16]\n"
                          "temp %g : bf16[2, 8, 16] shared\n"
                          "temp %q : bf16[8, 12] shared\n"
                          "out %c : bf16[2, 8, 12] out %d : bf16[8, 12]\n"
                          "{ launch { %g = all_gather@dp %x\n"
                          "           %c = matmul %g, %w tb }\n"
                          "  launch { %q = matmul %x, %w tb\n"
                          "           %d = all_reduce@tp %q } }\n");
    hd_session_options options = CudaOptions();

    for (hd_transport transport :
         {HD_TRANSPORT_COPY, HD_TRANSPORT_SM, HD_TRANSPORT_NCCL}) {
        options.transport = transport;
        options.graph = false;
        AllAreRight(RunFused(beside, options, 1));
        AllAreRight(RunFused(alone, options, 0));
        options.graph = true;
        AllAreRight(RunFused(alone, options, 0));
    }
}

// By its parts, with the reason: and `taken` others by the provider.
TEST(CudaFused, SaysWhatItsProviderDoesNotTake)
{
    const struct {
        const char *lines, *words;
        long taken = 0;
    } cases[] = {
        {"in %x : f32[8, 16] in %w : f32[12, 16] temp %g : f32[2, 8, 16] shared"
         " out %c : f32[2, 8, 12]\n"
         "{ launch { %g = all_gather %x %c = matmul %g, %w tb } }",
         "all f16 or all bf16"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] temp %g : f16[2, 8, 16] shared"
         " out %c : f32[2, 8, 12]\n"
         "{ launch { %g = all_gather %x %c = matmul %g, %w tb } }",
         "all f16 or all bf16"},
        {"in %x : f16[8, 16] in %w : f16[16, 12] temp %g : f16[2, 8, 16] shared"
         " out %c : f16[2, 8, 12]\n"
         "{ launch { %g = all_gather %x\n %c = matmul %g, %w } }",
         "is given a second operand"},
        {"in %x : f16[16, 8] in %w : f16[12, 16] temp %q : f16[8, 12] shared"
         " out %c : f16[8, 12]\n"
         "{ launch { %q = matmul %x, %w ta tb %c = all_reduce %q } }",
         "`ta`"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] temp %g : f16[2, 8, 16] shared"
         " out %c : f16[2, 8, 12]\n"
         "{ launch { %g = all_gather %x %c = matmul %g, %w tb act silu } }",
         "silu"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] in %s : f32[]\n"
         "temp %g : f16[2, 8, 16] shared out %c : f16[2, 8, 12]\n"
         "{ launch { %g = all_gather %x %c = matmul %g, %w tb scale %s } }",
         "a scale that is a number"},
        {"in %x : f16[2, 8, 16] in %w : f16[2, 12, 16]\n"
         "temp %q : f16[2, 8, 12] shared out %c : f16[2, 8, 12]\n"
         "{ launch { %q = matmul %x, %w tb %c = all_reduce %q } }",
         "one product of matrices"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] in %b : f16[12]\n"
         "temp %q : f16[8, 12] shared out %c : f16[8, 12]\n"
         "{ launch { %q = matmul %x, %w tb bias %b %c = all_reduce %q } }",
         "without a bias"},
        {"in %x : f16[8, 16] in %w : f16[12, 16]\n"
         "temp %q : f16[8, 12] shared out %c : f16[8, 12]\n"
         "{ launch { %q = matmul %x, %w tb %c = all_reduce %q max } }",
         "or sums a product"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] temp %g : f16[2, 8, 16] shared"
         " out %c : f16[2, 8, 12] out %d : f16[2, 8, 16]\n"
         "{ launch { %g = all_gather %x %c = matmul %g, %w tb }\n"
         "  %d = copy %g }",
         "more than this launch reads"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] temp %g : f16[2, 8, 16] shared"
         " temp %h : f16[8, 16] out %c : f16[2, 8, 12]\n"
         "{ launch { %g = all_gather %x %c[0] = matmul %g[1], %w tb }\n"
         "  %c[1] = copy %c[0] }",
         "one product of matrices"},
        {"in %x : f16[16, 16] in %w : f16[16, 16] out %y : f16[16, 16]"
         " temp %q : f16[16, 16] shared\n"
         "{ %y = copy %x\n"
         "  launch { %q = matmul %y, %w tb %y = all_reduce %q } }",
         "lies over an operand"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] temp %g : f16[2, 8, 16] shared"
         " temp %q : f16[8, 12] shared\n"
         "out %c : f16[2, 8, 12] out %d : f16[8, 12]\n"
         "{ fork on stream 0 {\n"
         "    launch { %g = all_gather %x %c = matmul %g, %w tb } } join\n"
         "  launch { %q = matmul %x, %w tb %d = all_reduce %q } }",
         "on one stream", 1},
        {"in %x : f16[8, 16] in %w : f16[12, 16] temp %g : f16[2, 8, 16] shared"
         " temp %h : f16[2, 8, 16] shared out %c : f16[2, 8, 12]\n"
         "{ if tp == 0 {\n"
         "    launch { %g = all_gather %x %c = matmul %g, %w tb } } else {\n"
         "    launch { %h = all_gather %x %c = matmul %h, %w tb } } }",
         "not all ranks do it"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] temp %q : f16[8, 12] shared"
         " temp %p : f16[8, 12] shared out %c : f16[8, 12]\n"
         "{ for i in 0..2 { if tp == i {\n"
         "    launch { %q = matmul %x, %w tb %c = all_reduce %q } } else {\n"
         "    %p = matmul %x, %w tb %c = all_reduce %p } } }",
         "those of an axis together"},
    };

    for (const auto &one : cases) {
        Program program(
            std::string("heddle 2\nhost program t mesh tp=2 streams 1\n") +
            one.lines);

        SCOPED_TRACE(one.lines);
        AllAreRight(RunFused(program, CudaOptions(), one.taken, one.words));
    }
}

TEST(CudaFused, GoesAsItsPartsWhereSomethingLacks)
{
    Program program(kFused);
    hd_session_options graph = CudaOptions();

    graph.graph = true;
    AllAreRight(RunFused(program, graph, 0, "no provider takes part"));
    for (const char *library :
         {"HEDDLE_CUBLASMP_LIB", "HEDDLE_NVSHMEM_LIB", "HEDDLE_NCCL_LIB"})
        AllAreRight(RunFused(program, CudaOptions(), 0, "/nowhere/lib.so",
                             library, "/nowhere/lib.so"));
    for (const char *version : {"601", "801"})
        AllAreRight(RunFused(program, CudaOptions(), 0, "0.7",
                             "FAKE_CUBLASMP_VERSION", version));
    for (const char *call : {"cublasMpCreate", "cublasMpGridCreate",
                             "cublasMpMatmul_bufferSize", "nvshmem_malloc"})
        AllAreRight(RunFused(program, CudaOptions(), 0, "of rank",
                             "FAKE_CUDA_FAIL", std::string(call) + ":1"));
}

TEST(CudaFused, AFailingCallOfTheProviderIsNamed)
{
    Program program(kFused);
    bool named = false;

    for (const Answer &answer :
         RunFused(program, CudaOptions(), 3, "", "FAKE_CUDA_FAIL",
                  "cublasMpMatmul:2")) {
        EXPECT_TRUE(answer.ended);
        EXPECT_TRUE(answer.status == HD_ERROR_SYSTEM ||
                    answer.status == HD_ERROR_PEER)
            << answer.text;
        named |= answer.status == HD_ERROR_SYSTEM && Has(answer, "line ");
    }
    EXPECT_TRUE(named);
}

// Only one rank calls.
TEST(CudaFused, ARankThatWaitsForAnotherIsNamedWithItsProvider)
{
    Program program(kFused);
    bool named = false;

    for (const Answer &answer : RunRanks(2, [&](Rank &rank) {
             hd_session_options options = CudaOptions(kLate);
             Session session;

             HD_TRY(session.Open(rank, program, options));
             Shards shards(session);
             HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                               rank.diag));
             HD_TRY(Meet(rank));
             if (rank.rank == 0)
                 HD_TRY(shards.Run(rank.diag));
             else
                 SleepFor(kLate + 2);
             return shards.Get(rank.diag);
         })) {
        EXPECT_TRUE(answer.ended);
        named |= Has(answer, "all_gather") && Has(answer, "cuBLASMp");
    }
    EXPECT_TRUE(named);
}

} // namespace
