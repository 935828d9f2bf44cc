// Fused ops by a provider: what it is given, what is refused and how it fails.
#include <gtest/gtest.h>

#include "tests/cuda/program.h"
#include "tests/cuda/system.h"

namespace
{

// $ is what the matmuls have besides.
const char *const kFused =
    "heddle 2\nhost program fused mesh tp=2 streams 2\n"
    "in %x : bf16[8, 16] in %w : bf16[12, 16] in %b : bf16[12]\n"
    "in %u : bf16[2, 3, 24] in %v : bf16[16, 24]\n"
    "out %c : bf16[2, 8, 12] out %d : bf16[3, 16] out %e : bf16[2, 3, 16]\n"
    "{ %c = all_gather_matmul %x, %w tb bias %b act relu\n"
    "  %d = matmul_reduce_scatter %u, %v tb scale 0.5\n"
    "  %e = matmul_all_reduce %u, %v tb }\n";

std::vector<Answer> RunFused(const Program &program,
                             const hd_session_options &options,
                             const char *variable = "FAKE_NOTHING",
                             const std::string &value = "")
{
    return RunRanks(program.Ranks(), [&](Rank &rank) {
        Session session;

        setenv(variable, value.c_str(), 1);
        HD_TRY(session.Open(rank, program, options));
        return RunAndCompare(rank, program, session, 3);
    });
}

void Refuses(const std::vector<Answer> &answers, const std::string &words,
             const char *place = "")
{
    for (const Answer &answer : answers) {
        EXPECT_TRUE(answer.ended);
        EXPECT_EQ(answer.status, HD_ERROR_UNSUPPORTED) << answer.text;
        EXPECT_STREQ(answer.left, "");
        EXPECT_TRUE(Has(answer, words.c_str())) << answer.text;
        EXPECT_TRUE(Has(answer, place)) << answer.text;
    }
}

TEST(CudaFused, GivesTheAnswerRunAfterRunByEachTransport)
{
    Program program(kFused);

    for (hd_transport transport :
         {HD_TRANSPORT_COPY, HD_TRANSPORT_SM, HD_TRANSPORT_NCCL}) {
        hd_session_options options = CudaOptions();

        options.transport = transport;
        std::vector<Answer> answers = RunFused(program, options);
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

// Along an axis of one rank it is its parts, whatever a provider takes.
TEST(CudaFused, IsAPlainProductWhereItsAxisHasOneRank)
{
    const std::string head = "heddle 2\nhost program alone mesh dp=2, tp=1\n"
                             "streams 1\n";
    Program alone(head +
                  "in %x : f32[8, 16] in %w : f32[16, 12]\n"
                  "in %u : f32[1, 3, 24] in %v : f32[24, 16]\n"
                  "out %c : f32[1, 8, 12] out %d : f32[3, 16]\n"
                  "out %e : f32[1, 3, 16]\n"
                  "{ %c = all_gather_matmul@tp %x, %w act silu\n"
                  "  fork on stream 0 {\n"
                  "    %d = matmul_reduce_scatter@tp %u, %v scale 0.5 }\n"
                  "  join %e = matmul_all_reduce@tp %u, %v }\n");
    Program beside(head + "in %x : bf16[8, 16] in %w : bf16[12, 16]\n"
                          "out %c : bf16[2, 8, 12] out %d : bf16[8, 12]\n"
                          "{ %c = all_gather_matmul@dp %x, %w tb\n"
                          "  %d = matmul_all_reduce@tp %x, %w tb }\n");
    hd_session_options options = CudaOptions();

    for (hd_transport transport :
         {HD_TRANSPORT_COPY, HD_TRANSPORT_SM, HD_TRANSPORT_NCCL}) {
        options.transport = transport;
        options.graph = false;
        AllAreRight(RunFused(beside, options));
        AllAreRight(RunFused(alone, options));
        options.graph = true;
        AllAreRight(RunFused(alone, options));
    }
}

TEST(CudaFused, SaysWhatItsProviderDoesNotTake)
{
    const struct {
        const char *lines, *words;
    } cases[] = {
        {"in %x : f32[8, 16] in %w : f32[12, 16] out %c : f32[2, 8, 12]\n"
         "{ %c = all_gather_matmul %x, %w tb }",
         "all f16 or all bf16"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] out %c : f32[2, 8, 12]\n"
         "{ %c = all_gather_matmul %x, %w tb }",
         "all f16 or all bf16"},
        {"in %x : f16[8, 16] in %w : f16[16, 12] out %c : f16[2, 8, 12]\n"
         "{ %c = all_gather_matmul %x, %w }",
         "line 4): cuBLASMp is given a second operand"},
        {"in %x : f16[16, 8] in %w : f16[12, 16] out %c : f16[8, 12]\n"
         "{ %c = matmul_all_reduce %x, %w ta tb }",
         "`ta`"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] out %c : f16[2, 8, 12]\n"
         "{ %c = all_gather_matmul %x, %w tb act silu }",
         "silu"},
        {"in %x : f16[8, 16] in %w : f16[12, 16] in %s : f32[]\n"
         "out %c : f16[2, 8, 12]\n"
         "{ %c = all_gather_matmul %x, %w tb scale %s }",
         "a scale that is a number"},
        {"in %x : f16[2, 8, 16] in %w : f16[2, 12, 16]\n"
         "out %c : f16[2, 8, 12]\n"
         "{ %c = matmul_all_reduce %x, %w tb }",
         "one product of matrices"},
        {"in %x : f16[8, 16] in %w : f16[12, 16]\n"
         "out %c : f16[2, 8, 12] out %d : f16[8, 12]\n"
         "{ fork on stream 0 { %c = all_gather_matmul %x, %w tb }\n"
         "  join %d = matmul_all_reduce %x, %w tb }",
         "on one stream"},
    };

    for (const auto &one : cases) {
        Program program(
            std::string("heddle 2\nhost program t mesh tp=2 streams 1\n") +
            one.lines);

        Refuses(RunFused(program, CudaOptions()), one.words);
    }
}

TEST(CudaFused, SaysWhatIsLackingAndWhatToDo)
{
    Program program(kFused);
    hd_session_options graph = CudaOptions();

    graph.graph = true;
    Refuses(RunFused(program, graph), "another --transfer");
    for (const char *library : {"HEDDLE_CUBLASMP_LIB", "HEDDLE_NVSHMEM_LIB"})
        Refuses(RunFused(program, CudaOptions(), library, "/nowhere/lib.so"),
                "/nowhere/lib.so");
    for (const char *version : {"601", "801"})
        Refuses(
            RunFused(program, CudaOptions(), "FAKE_CUBLASMP_VERSION", version),
            "0.7");
}

// On both ranks alike, as what it refuses is.
TEST(CudaFused, AFailingCallOfTheProviderIsNamed)
{
    Program program(kFused);
    bool named = false;

    for (const char *call : {"cublasMpCreate", "cublasMpGridCreate",
                             "cublasMpMatmul_bufferSize", "nvshmem_malloc"})
        Refuses(RunFused(program, CudaOptions(), "FAKE_CUDA_FAIL",
                         std::string(call) + ":1"),
                "another --transfer", "line ");
    for (const Answer &answer : RunFused(
             program, CudaOptions(), "FAKE_CUDA_FAIL", "cublasMpMatmul:2")) {
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
        named |= Has(answer, "all_gather_matmul") && Has(answer, "cuBLASMp");
    }
    EXPECT_TRUE(named);
}

} // namespace
