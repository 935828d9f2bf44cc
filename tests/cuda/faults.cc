// Every call of a vendor's library that one rank of two makes fails once. Both
// ranks end in time, with words that name the call, and give back whatever they
// had; or the call did not matter, and the answer is right.
#include <gtest/gtest.h>

#include <atomic>
#include <poll.h>

#include <heddle/async.h>
#include <heddle/tune.h>

#include "tests/cuda/program.h"
#include "tests/seed.h"
#include "tests/unit/folder.h"

namespace
{

struct Symbol {
    const char *name;  // as the library exports it
    const char *field; // as messages have it
};

const Symbol kSymbols[] = {
#define HD_CU(symbol, name, ...) {#symbol, #name},
#include "runtime/cuda/vendor/cuda.def"
#undef HD_CU
#define HD_LT(symbol, result, name, ...) {#symbol, #name},
#include "runtime/cuda/vendor/cublaslt.def"
#undef HD_LT
#define HD_NCCL(symbol, result, name, ...) {#symbol, #name},
#include "runtime/cuda/vendor/nccl.def"
#undef HD_NCCL
#define HD_DNN(symbol, result, name, ...) {#symbol, #name},
#include "runtime/cuda/vendor/cudnn.def"
#undef HD_DNN
};
const size_t kCount = sizeof(kSymbols) / sizeof(*kSymbols);
static_assert(kCount <= size_t(kSymbolsMost), "room for all counts");

void Tell(void *context, hd_status status)
{
    *static_cast<std::atomic<int> *>(context) = int(status);
}

// The end of the runs so far, in every way that there is. The thread that tells
// may fail by itself, which is told then, and is no failure of the session's.
hd_status Hear(Rank &rank, hd_session *session)
{
    std::atomic<int> told(-1);
    bool done = false;
    int fd = -1;

    HD_TRY(hd_session_descriptor(session, rank.diag, &fd));
    HD_TRY(hd_session_notify(session, Tell, &told, rank.diag));
    pollfd ask = {fd, POLLIN, 0};
    RANK_EXPECT(poll(&ask, 1, int(kPatience * 1000)) == 1);
    while (told < 0)
        usleep(100);
    HD_TRY(hd_session_wait(session, kPatience, rank.diag, &done));
    RANK_EXPECT(done && (told == HD_OK || told == HD_ERROR_SYSTEM));
    return HD_OK;
}

// Two runs of each of two sets of memory, so that a graph is captured, replayed
// and set anew.
hd_status RunAll(Rank &rank, const Program &program,
                 const hd_session_options &options)
{
    Session session;

    HD_TRY(session.Open(rank, program, options));
    Shards one(session), two(session);
    for (Shards *shards : {&one, &two})
        HD_TRY(shards->Put(program.Inputs(), program.Module(), rank.rank,
                           rank.diag));
    for (Shards *shards : {&one, &one, &two, &two})
        HD_TRY(shards->Run(rank.diag));
    HD_TRY(Hear(rank, session));
    for (Shards *shards : {&one, &two}) {
        HD_TRY(shards->Get(rank.diag));
        HD_TRY(program.Compare(*shards, rank.rank));
    }
    return HD_OK;
}

bool Is(const Symbol &symbol, const char *name)
{
    return strcmp(symbol.name, name) == 0;
}

// Who cannot enter its context any more, or cannot say that it captures nothing
// there, cannot free anything.
bool FreesNothing(const std::string &name)
{
    return name == "cuCtxPushCurrent_v2" ||
           name == "cuThreadExchangeStreamCaptureMode";
}

hd_status RunWithFault(Rank &rank, const Program &program,
                       const hd_session_options &options,
                       const std::string &fault)
{
    hd_status status;

    if (rank.rank == 0 && !fault.empty())
        setenv("FAKE_CUDA_FAIL", fault.c_str(), 1);
    if (FreesNothing(fault.substr(0, fault.find(':'))))
        rank.page->keeps = true;
    status = RunAll(rank, program, options);
    auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
    for (size_t i = 0; i < kCount && calls != nullptr; i++)
        rank.answer->calls[i] = calls(kSymbols[i].name);
    return status;
}

// The call by name, or what its failure means to a user.
bool IsNamed(const Answer &answer, const Symbol &symbol)
{
    if (Is(symbol, "cuMemAlloc_v2") && Has(answer, "no memory for"))
        return true;
    if (Is(symbol, "cuDriverGetVersion") && Has(answer, "the CUDA driver") &&
        Has(answer, "tell its version"))
        return true;
    if (Is(symbol, "cuEventQuery") && Has(answer, "its device failed"))
        return true;
    return Has(answer, symbol.field);
}

// What every rank owes, whether it failed or not.
void JudgeEnd(const Answer &answer, const Symbol &symbol,
              const std::string &what)
{
    EXPECT_TRUE(answer.ended) << what << " hangs";
    EXPECT_NE(answer.status, HD_ERROR_INVALID) << what << " has a wrong answer";
    if (!FreesNothing(symbol.name)) {
        EXPECT_STREQ(answer.left, "") << what;
    }
}

// The rank at fault, and its peer, which has done nothing wrong.
void Judge(const std::vector<Answer> &answers, const Symbol &symbol,
           const std::string &fault)
{
    const Answer &faulty = answers[0], &peer = answers[1];
    bool memory = Is(symbol, "cuMemAlloc_v2") || Is(symbol, "cuMemHostAlloc");

    JudgeEnd(faulty, symbol, fault + ": rank 0");
    JudgeEnd(peer, symbol, fault + ": rank 1");
    if (faulty.status == HD_OK) {
        EXPECT_EQ(peer.status, HD_OK) << fault << "\n" << peer.text;
        return;
    }
    EXPECT_EQ(faulty.status, memory ? HD_ERROR_NO_MEMORY : HD_ERROR_SYSTEM)
        << fault << "\n"
        << faulty.text;
    EXPECT_TRUE(IsNamed(faulty, symbol)) << fault << "\n" << faulty.text;
    // It may have been through with everything by then.
    if (peer.status != HD_OK) {
        EXPECT_EQ(peer.status, HD_ERROR_PEER) << fault << "\n" << peer.text;
        EXPECT_TRUE(Has(peer, "rank 0")) << fault << "\n" << peer.text;
    }
}

bool AreAllAsked()
{
    const char *all = getenv("HEDDLE_FAULTS");

    return all != nullptr && *all != '\0';
}

// Of what is called very often, the first call and the last, unless all are
// asked for; each one that asks for memory. How often is asked whether
// something is over differs from run to run, so that the last such call may be
// made when the session ends.
std::vector<long> Which(const Symbol &symbol, long calls)
{
    bool polls = Is(symbol, "cuEventQuery") || Is(symbol, "cuStreamQuery") ||
                 Is(symbol, "ncclCommGetAsyncError");
    std::vector<long> which;

    for (long k = 1; k <= calls; k++) {
        if (k == 1 || (k == calls && !polls) || Is(symbol, "cuMemAlloc_v2") ||
            (AreAllAsked() && k <= 200))
            which.push_back(k);
    }
    return which;
}

// Of symbols that begin with `library`; one fault of `each`, others in another
// run, unless all are asked for.
void Sweep(const hd_session_options &options, const char *text = kEverything,
           const std::string &library = "", unsigned each = 1)
{
    Program program(text);
    unsigned share = AreAllAsked() ? 1 : each;
    unsigned drawn = share > 1 ? Seed() % share : 0, at = 0;
    auto run = [&](const std::string &fault) {
        return RunRanks(2, [&](Rank &rank) {
            return RunWithFault(rank, program, options, fault);
        });
    };
    std::vector<Answer> fine = run("");
    int runs = 0;

    ASSERT_EQ(fine[0].status, HD_OK) << fine[0].text;
    ASSERT_EQ(fine[1].status, HD_OK) << fine[1].text;
    for (size_t i = 0; i < kCount; i++) {
        if (std::string(kSymbols[i].name).rfind(library, 0) != 0)
            continue;
        for (long k : Which(kSymbols[i], fine[0].calls[i])) {
            std::string fault =
                std::string(kSymbols[i].name) + ":" + std::to_string(k);

            if (at++ % share != drawn)
                continue;
            Judge(run(fault), kSymbols[i], fault);
            runs++;
        }
    }
    EXPECT_GT(runs, library.empty() && each == 1 ? 50 : 15);
    printf("%d runs\n", runs);
}

TEST(CudaFaults, AreToldToBothRanks)
{
    Sweep(CudaOptions(10));
}

// Nobody asks streams that are being captured how far they are, which would end
// the capture: the words would be CUDA's, not those of the rank at fault.
TEST(CudaFaults, OfAPeerDoNotEndACapture)
{
    Program program(kEverything);
    hd_session_options options = CudaOptions(10);

    options.graph = true;
    ScopedSetting host("HEDDLE_CHAOS", "1"); // to capture takes a while
    for (const Symbol &symbol : kSymbols) {
        std::string fault = std::string(symbol.name) + ":1";

        if (Is(symbol, "cuStreamBeginCapture_v2") ||
            Is(symbol, "cuStreamBatchMemOp_v2") || Is(symbol, "cuEventRecord"))
            for (int i = 0; i < 5; i++)
                Judge(RunRanks(2,
                               [&](Rank &rank) {
                                   return RunWithFault(rank, program, options,
                                                       fault);
                               }),
                      symbol, fault);
    }
}

TEST(CudaFaults, AreToldToBothRanksWithAGraph)
{
    hd_session_options options = CudaOptions(10);

    options.graph = true;
    Sweep(options);
}

// A plan that cannot be timed is none that is chosen.
TEST(CudaFaults, AreToldToBothRanksThatTune)
{
    hd_session_options options = CudaOptions(10);

    options.tune = true;
    ScopedSetting lt("FAKE_CUBLASLT_PLANS", "4");
    Sweep(options);
}

// An argument of a hundred parts of which one cannot be copied: what was taken
// for it is given back.
TEST(CudaFaults, OfArgumentsThatAreDrawnToTuneLeaveNothing)
{
    Program program("heddle 2 tensor program g mesh tp=2 "
                    "in %a : f32[2@tp, 4, 2048] in %w : f32[2048, 800] "
                    "out %c : f32[2@stream, 4, 800] "
                    "temp %g : f32[2@stream, 4, 2048] "
                    "{ %g = set %a %c = matmul %g, %w }");
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        hd_session_options session = CudaOptions(10);
        hd_tune_options options = hd_tune_defaults();
        hd_tuned tuned = HD_EMPTY(hd_tuned);

        options.session = &session;
        if (rank.rank == 0)
            setenv("FAKE_CUDA_FAIL", "cuMemcpyAsync:50", 1);
        return hd_tune(rank.group, program.Module(), &options, rank.diag,
                       &tuned);
    });

    Ended(answers[0], 0);
    EXPECT_EQ(answers[0].status, HD_ERROR_SYSTEM) << answers[0].text;
    EXPECT_TRUE(Has(answers[0], "copy")) << answers[0].text;
    EndedByPeer(answers[1], 1, "rank 0");
}

// What is kept on disk is found, or made anew.
TEST(CudaFaults, AreToldToBothRanksThatFindKernelsAndPlansOnDisk)
{
    Folder folder;
    Program program(kEverything);
    hd_session_options options = CudaOptions(10);

    options.tune = true;
    setenv("HEDDLE_CACHE_DIR", folder.Path("cache").c_str(), 1);
    std::vector<Answer> first = RunRanks(2, [&](Rank &rank) {
        return RunWithFault(rank, program, options, "");
    });
    EXPECT_EQ(first[0].status, HD_OK) << first[0].text;
    Sweep(options);
    setenv("HEDDLE_CACHE_DIR", "off", 1);
}

TEST(CudaFaults, AreToldToBothRanksWithKernelsThatSend)
{
    hd_session_options options = CudaOptions(10);

    options.transport = HD_TRANSPORT_SM;
    Sweep(options);
}

TEST(CudaFaults, AreToldToBothRanksWithNccl)
{
    hd_session_options options = CudaOptions(10);

    options.transport = HD_TRANSPORT_NCCL;
    Sweep(options, kEverything, "", 6); // who fails is waited for
}

// Two shapes of attention, one of which goes through scratch memory, of keys
// that a peer sends.
const char *const kAttention = "heddle 2\n"
                               "host program attends\n"
                               "mesh tp=2\n"
                               "in %q : bf16[2, 8, 16]\n"
                               "in %k : bf16[2, 12, 16] shared\n"
                               "in %v : bf16[2, 12, 16]\n"
                               "out %o : f32[2, 8, 16]\n"
                               "out %l : f32[2, 8]\n"
                               "temp %p : bf16[2, 8, 16]\n"
                               "temp %m : f32[2, 8]\n"
                               "out %r : bf16[2, 8, 16]\n"
                               "temp %t : bf16[2, 12, 16] shared\n"
                               "{\n"
                               "    group { send %k to 1 - tp\n"
                               "            %t = recv from 1 - tp }\n"
                               "    %p, %m = attention %q, %t, %v\n"
                               "    %o, %l = attention %q, %t, %v causal 4\n"
                               "    %r = copy %p\n"
                               "}\n";

// What fails when a plan is made may leave the step to a generated kernel.
TEST(CudaFaults, OfCudnnAreToldToBothRanksOrDoNotMatter)
{
    hd_session_options options = CudaOptions(10);

    Sweep(options, kAttention, "cudnn");
    options.graph = true;
    Sweep(options, kAttention, "cudnn");
}

TEST(CudaFaults, OfCudnnWithPlansOnDisk)
{
    Folder folder;
    Program program(kAttention);

    setenv("HEDDLE_CACHE_DIR", folder.Path("cache").c_str(), 1);
    AllAreRight(RunRanks(2, [&](Rank &rank) {
        return RunWithFault(rank, program, CudaOptions(10), "");
    }));
    Sweep(CudaOptions(10), kAttention, "cudnn");
    setenv("HEDDLE_CACHE_DIR", "off", 1);
}

// Rank 0 cannot enter its context when it waits once more for what is over.
hd_status EndLate(Rank &rank, const Program &program, const std::string &fault)
{
    const char *enter = "cuCtxPushCurrent_v2";
    Session session;

    if (rank.rank == 0 && !fault.empty())
        setenv("FAKE_CUDA_FAIL", fault.c_str(), 1);
    if (FreesNothing(fault.substr(0, fault.find(':'))))
        rank.page->keeps = true;
    HD_TRY(session.Open(rank, program, CudaOptions(10)));
    HD_TRY(RunAndCompare(rank, program, session, 2));
    HD_TRY(hd_session_finish(session, rank.diag));
    rank.answer->number =
        Extra<decltype(fake_cuda_calls)>("fake_cuda_calls")(enter);
    if (rank.rank == 0)
        hd_session_destroy(session.Take());
    return hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag);
}

TEST(CudaFaults, OfASessionWhoseRunsAreOverAreNobodysFailure)
{
    Program program(kEverything);
    auto run = [&](const std::string &fault) {
        return RunRanks(
            2, [&](Rank &rank) { return EndLate(rank, program, fault); });
    };
    std::vector<Answer> fine = run("");

    AllAreRight(fine);
    AllAreRight(
        run("cuCtxPushCurrent_v2:" + std::to_string(fine[0].number + 1)));
}

} // namespace
