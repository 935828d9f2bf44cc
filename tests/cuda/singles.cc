// Products and attentions that are launched as graphs of their own: how often
// their library is asked and nodes are set, and that what is computed is right
// whatever the addresses are, and whatever CUDA refuses.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "tests/cuda/program.h"

namespace
{

// A batch of three, which is one call; f64; 16 bits with an epilogue of
// cuBLASLt's; one that accumulates; one whose epilogue is a kernel; one that is
// added to a matrix; and two on memory of the session's own, which stays where
// it is.
const char *const kProducts = "heddle 2\n"
                              "host program products\n"
                              "mesh tp=2\n"
                              "streams 2\n"
                              "in %x : f32[3, 16, 32]\n"
                              "in %w : f32[3, 32, 16]\n"
                              "in %bias : f32[16]\n"
                              "in %wide : f64[16, 24]\n"
                              "in %half : bf16[16, 48]\n"
                              "in %bias16 : bf16[16]\n"
                              "in %r : f32[16, 2, 16]\n"
                              "out %c : f32[3, 16, 16]\n"
                              "out %d : f64[16, 16]\n"
                              "out %e : bf16[16, 16]\n"
                              "inout %f : f32[16, 16]\n"
                              "out %g : f32[16, 16]\n"
                              "out %h : f32[16, 16]\n"
                              "out %i : f32[16, 16]\n"
                              "temp %t : f32[16, 32]\n"
                              "temp %u : f32[16, 16]\n"
                              "temp %v : f32[16, 16]\n"
                              "{\n"
                              "    %t = copy %x[2]\n"
                              "    fork\n"
                              "    on stream 0 {\n"
                              "        %c = matmul %x, %w\n"
                              "        %u = matmul %t, %t tb\n"
                              "        %v = matmul %u, %u tb\n"
                              "        %h = copy %v\n"
                              "    }\n"
                              "    on stream 1 {\n"
                              "        %d = matmul %wide, %wide tb\n"
                              "        %e = matmul %half, %half tb bias %bias16"
                              " act gelu\n"
                              "        %f = matmul %x[0], %w[1] accumulate\n"
                              "        %g = matmul %t, %w[0] bias %bias"
                              " act silu\n"
                              "        %i = matmul %x[1], %w[2] bias %r[:, 1]\n"
                              "    }\n"
                              "    join\n"
                              "}\n";
const int kAll = 8, kNamed = 6;   // products, and those that name an argument
const int kKept = 31;             // sets of addresses, beside the first
const size_t kBias16 = 5, kR = 6; // among the arguments

// What a rank's runs asked the libraries for, each run for itself.
struct Counts {
    std::vector<long> calls, set, launched;
};

typedef std::vector<long> Row;

// What a library's call is, how many kernels its fake says it takes, and a
// program: its calls, and those that name an argument.
struct Library {
    const char *call, *kernels, *text;
    long all, named;
};

class CudaSingles : public testing::Test
{
  protected:
    hd_session_options options_ = CudaOptions();

    explicit CudaSingles(const Library &library) : library_(library)
    {
    }

    Counts RunOn(const std::vector<int> &sets) const
    {
        return RunOn(sets, library_.text);
    }

    // Runs on these sets of memory in turn, each with the right answer.
    Counts RunOn(const std::vector<int> &sets, const char *text) const
    {
        int n = 1 + *std::max_element(sets.begin(), sets.end());
        Program program(text, n);
        std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
            Session session;

            HD_TRY(session.Open(rank, program, options_));
            return RunThem(rank, program, session, sets, n);
        });

        AllAreRight(answers);
        Counts counts;
        for (size_t i = 0; i < sets.size(); i++) {
            const long *calls = &answers[0].calls[3 * i];

            counts.calls.push_back(calls[0]);
            counts.set.push_back(calls[1]);
            counts.launched.push_back(calls[2]);
        }
        return counts;
    }

    void AreCapturedOnce() const
    {
        for (long kernels : {1, 2, 3}) {
            ScopedSetting each(library_.kernels, std::to_string(kernels));
            Counts counts = RunOn({0, 0, 1, 1, 0, 2, 1});
            const long n = library_.named, m = n * kernels;

            EXPECT_EQ(counts.calls, (Row{n, 0, n, 0, 0, n, 0}));
            EXPECT_EQ(counts.set, (Row{m, 0, m, 0, m, m, m}));
            EXPECT_EQ(counts.launched, Row(7, library_.all));
        }
    }

    // In a graph of a run as well.
    void AreSetInAGraph()
    {
        const long n = library_.named;

        options_.graph = true;
        for (const char *kernels : {"1", "2", "3"}) {
            ScopedSetting each(library_.kernels, kernels);
            Counts counts = RunOn({0, 0, 1, 1, 0, 1, 0});

            EXPECT_EQ(counts.calls, (Row{library_.all, 0, n, 0, n, 0, 0}));
            EXPECT_EQ(counts.launched, Row(7, 1));
        }
    }

    // One that CUDA refuses something of is issued, and all others are
    // launched.
    void AreIssuedWhereRefused(const std::vector<const char *> &refused) const
    {
        for (const char *call : refused) {
            ScopedSetting fault("FAKE_CUDA_FAIL", call);
            Counts counts = RunOn({0, 0, 1, 1});

            EXPECT_EQ(counts.calls[1], 1) << call;
            EXPECT_EQ(counts.calls[2], library_.named) << call;
            EXPECT_EQ(counts.calls[3], 1) << call;
            EXPECT_EQ(counts.launched, Row(4, library_.all - 1)) << call;
        }
    }

    void AreRightBetweenDelays() const
    {
        for (const char *seed : {"1", "2"}) {
            ScopedSetting host("HEDDLE_CHAOS", seed),
                streams("FAKE_CUDA_CHAOS", seed);
            RunOn({0, 1, 1, 2, 0, 2});
        }
    }

  private:
    const Library library_;

    void Count(long *calls, int sign) const
    {
        const char *const symbols[] = {library_.call,
                                       "cuGraphExecKernelNodeSetParams_v2",
                                       "cuGraphLaunch"};
        auto *count = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");

        for (int i = 0; i < 3; i++)
            calls[i] += sign * count(symbols[i]);
    }

    // Inputs are others in each run of a set.
    hd_status RunThem(Rank &rank, const Program &program, hd_session *session,
                      const std::vector<int> &sets, int n) const
    {
        Memory memory;
        int turn = 0;

        HD_TRY(Fill(memory, rank, program, session, n));
        for (int set : sets) {
            Shards &shards = *memory[size_t(set)];
            long *calls = &rank.answer->calls[3 * turn];
            int inputs = turn++ % n;

            HD_TRY(shards.Set(program.Inputs(inputs), program.Module(),
                              rank.rank, rank.diag));
            Count(calls, -1);
            HD_TRY(shards.Run(rank.diag));
            Count(calls, 1);
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank, inputs));
        }
        return HD_OK;
    }
};

class CudaProducts : public CudaSingles
{
  protected:
    CudaProducts()
        : CudaSingles({"cublasLtMatmul", "FAKE_CUBLASLT_KERNELS", kProducts,
                       kAll, kNamed})
    {
    }
};

TEST_F(CudaProducts, AreCapturedOnceForEachAddress)
{
    AreCapturedOnce();
}

TEST_F(CudaProducts, AreCapturedAgainWhereThereAreTooManyAddresses)
{
    std::vector<int> sets;
    Row captured(kKept, kNamed);

    for (int i = 0; i < kKept; i++)
        sets.push_back(i);
    // One more takes the place of set 0, and that one later that of set 1.
    for (int set : {0, kKept, 2, 0, 2, 1})
        sets.push_back(set);
    captured.insert(captured.end(), {0, kNamed, 0, kNamed, 0, kNamed});
    EXPECT_EQ(RunOn(sets).calls, captured);
}

TEST_F(CudaProducts, AreSetInAGraphAsTheyWereCaptured)
{
    AreSetInAGraph();
}

// More than are looked at; and two of three the same, where the fake finds no
// room for what its first kernel does.
TEST_F(CudaProducts, OfKernelsThatAreNotToldApartAreIssued)
{
    ScopedSetting lt("FAKE_CUBLASLT_KERNELS", "5");
    Counts many = RunOn({0, 0, 1, 0});
    EXPECT_EQ(many.calls, Row(4, kAll));
    EXPECT_EQ(many.launched, Row(4, 0));
    setenv("FAKE_CUBLASLT_KERNELS", "3", 1);
    Counts same = RunOn({0, 0, 1, 0}, "heddle 2\n"
                                      "host program large mesh tp=2\n"
                                      "in %x : f32[8, 96] in %w : f32[96, 32]\n"
                                      "out %y : f32[8, 32]\n"
                                      "{ %y = matmul %x, %w }\n");
    EXPECT_EQ(same.calls, Row(4, 1));
    EXPECT_EQ(same.launched, Row(4, 0));
}

TEST_F(CudaProducts, AreIssuedWhereCudaRefuses)
{
    AreIssuedWhereRefused({"cuStreamBeginCapture:1", "cublasLtMatmul:4",
                           "cuStreamEndCapture:4", "cuGraphGetNodes:1",
                           "cuGraphKernelNodeGetParams:1",
                           "cuGraphInstantiateWithFlags:1", "cuGraphUpload:1",
                           "cuGraphExecKernelNodeSetParams:1"});
}

TEST_F(CudaProducts, FollowNoArgumentButTheirOwn)
{
    Program program(kProducts, 2);

    for (size_t other : {kBias16, kR}) {
        std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
            Session session;
            Memory memory;
            std::vector<void *> mixed;

            HD_TRY(session.Open(rank, program, options_));
            HD_TRY(Fill(memory, rank, program, session, 2));
            HD_TRY(memory[0]->Run(rank.diag));
            for (size_t i = 0; i < memory[0]->Count(); i++)
                mixed.push_back(memory[i == other]->Address(i));
            auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
            rank.answer->number = -calls("cublasLtMatmul");
            HD_TRY(hd_session_run(session, mixed.data(), mixed.size(), nullptr,
                                  rank.diag));
            rank.answer->number += calls("cublasLtMatmul");
            return hd_session_finish(session, rank.diag);
        });

        AllAreRight(answers);
        EXPECT_EQ(answers[0].number, 1) << other;
    }
}

// The fake tells when two products use a workspace at the same time.
TEST_F(CudaProducts, HaveTheWorkspaceOfTheStreamThatTheyRunOn)
{
    ScopedSetting lt("FAKE_CUBLASLT_SLEEP", "5");
    RunOn({0, 0, 1, 0});
}

TEST_F(CudaProducts, AreRightWithDelays)
{
    AreRightBetweenDelays();
}

// Steps that are timed are issued one by one.
TEST_F(CudaProducts, AreLaunchedWhereStepsAreTimed)
{
    std::vector<double> times(200);

    options_.times = times.data();
    EXPECT_EQ(RunOn({0, 0, 1}).calls, (Row{kNamed, 0, kNamed}));
}

// A run that is captured, until it is to go on.
struct Held {
    std::atomic<bool> captures{false}, goes_on{false};
};

// Who waits for the run to end makes no session before that.
hd_status Hold(void *context, const hd_call_site *)
{
    Held *held = static_cast<Held *>(context);
    double deadline = Now() + 0.5;

    held->captures = true;
    while (!held->goes_on && Now() < deadline)
        usleep(1000);
    return HD_OK;
}

// They have one stream for captures.
TEST_F(CudaProducts, AreCapturedWhileAThreadCapturesAnotherSessionsRun)
{
    Program program("heddle 2\n"
                    "host program held mesh tp=2\n"
                    "in %x : f32[4]\n"
                    "out %y : f32[4]\n"
                    "{ %y = copy %x  %y = call \"hold\" %x }\n",
                    0);
    Program products(kProducts);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Held held;
        hd_call call = {sizeof call, "hold", Hold, &held};
        hd_session_options options = options_;
        hd_status status = HD_ERROR_INVALID;
        Session one, two;

        options.graph = true;
        options.calls = &call;
        options.ncalls = 1;
        HD_TRY(one.Open(rank, program, options));
        void *at[2] = {};
        for (void *&argument : at)
            HD_TRY(hd_session_alloc(one, 16, rank.diag, &argument));
        std::thread other([&] {
            status = hd_session_run(one, at, 2, nullptr, nullptr);
            held.captures = true; // it has failed
        });
        while (!held.captures)
            usleep(100);
        hd_status made = two.Open(rank, products, options_);
        held.goes_on = true;
        other.join();
        HD_TRY(made);
        HD_TRY(status);
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        rank.answer->number = -calls("cuGraphLaunch");
        HD_TRY(RunAndCompare(rank, products, two, 1));
        rank.answer->number += calls("cuGraphLaunch");
        status = hd_session_finish(one, rank.diag);
        for (void *argument : at)
            hd_session_free(one, argument);
        return status;
    });

    AllAreRight(answers);
    EXPECT_EQ(answers[0].number, kAll);
}

// ------------------------------------------------------------ attention

// Of arguments: results with and without a mask, and gradients; of the
// session's own memory, results.
const char *const kAttends =
    "heddle 2\n"
    "host program attends\n"
    "mesh tp=2\n"
    "in %q : bf16[2, 4, 24, 16]\n"
    "in %k : bf16[2, 2, 32, 16]\n"
    "in %v : bf16[2, 2, 32, 16]\n"
    "in %g : bf16[2, 4, 24, 16]\n"
    "out %o : bf16[2, 4, 24, 16]\n"
    "out %l : f32[2, 4, 24]\n"
    "out %dq : bf16[2, 4, 24, 16]\n"
    "out %dk : bf16[2, 2, 32, 16]\n"
    "out %dv : bf16[2, 2, 32, 16]\n"
    "out %p : bf16[2, 4, 24, 16]\n"
    "out %m : f32[2, 4, 24]\n"
    "out %t : bf16[2, 4, 24, 16]\n"
    "temp %x : bf16[2, 4, 24, 16]\n"
    "temp %y : bf16[2, 4, 24, 16]\n"
    "temp %z : f32[2, 4, 24]\n"
    "{\n"
    "    %x = copy %q\n"
    "    %o, %l = attention %q, %k, %v\n"
    "    %dq, %dk, %dv = attention_grad %q, %k, %v, %o, %l, %g\n"
    "    %p, %m = attention %q, %k, %v causal 8\n"
    "    %y, %z = attention %x, %x, %x\n"
    "    %t = add %y, %q\n"
    "}\n";
const int kAttending = 4, kOnArguments = 3;

class CudaAttends : public CudaSingles
{
  protected:
    CudaAttends()
        : CudaSingles({"cudnnBackendExecute", "FAKE_CUDNN_KERNELS", kAttends,
                       kAttending, kOnArguments})
    {
    }
};

// What a call clears is where it was, and is not set.
TEST_F(CudaAttends, AreCapturedOnceForEachAddress)
{
    AreCapturedOnce();
}

TEST_F(CudaAttends, AreSetInAGraphAsTheyWereCaptured)
{
    AreSetInAGraph();
}

// Four of which two are the same, and five, which are too many beside a fill.
TEST_F(CudaAttends, OfKernelsThatAreNotToldApartAreIssued)
{
    for (const char *kernels : {"4", "5"}) {
        ScopedSetting dnn("FAKE_CUDNN_KERNELS", kernels);
        Counts counts = RunOn({0, 0, 1, 0});

        EXPECT_EQ(counts.calls, Row(4, kAttending));
        EXPECT_EQ(counts.launched, Row(4, 0));
    }
}

// A fill would go where the operand was.
TEST_F(CudaAttends, ThatClearOperandsAreIssuedWhereTheseAreElsewhere)
{
    ScopedSetting dnn("FAKE_CUDNN_CLEARS", "1");
    Counts counts = RunOn({0, 0, 1, 0});
    const long n = kOnArguments;

    EXPECT_EQ(counts.calls, (Row{2 * n, n, n, n}));
    EXPECT_EQ(counts.launched, Row(4, kAttending - n));
}

// Such a graph is kept for each set of addresses.
TEST_F(CudaAttends, ThatClearOperandsHaveGraphsForTheAddressesOfThese)
{
    ScopedSetting dnn("FAKE_CUDNN_CLEARS", "1");

    options_.graph = true;
    Counts counts = RunOn({0, 0, 1, 0, 1});
    EXPECT_EQ(counts.calls, (Row{kAttending, 0, kAttending, 0, 0}));
    EXPECT_EQ(counts.launched, Row(5, 1));
}

// Nor has the session any other memory of its own.
TEST_F(CudaAttends, MayDoWithoutAWorkspace)
{
    ScopedSetting dnn("FAKE_CUDNN_WORKSPACE", "0");
    Counts counts = RunOn({0, 0, 1, 0}, "heddle 2\n"
                                        "host program alone mesh tp=2\n"
                                        "in %q : bf16[4, 24, 16]\n"
                                        "in %k : bf16[4, 32, 16]\n"
                                        "out %o : bf16[4, 24, 16]\n"
                                        "out %l : f32[4, 24]\n"
                                        "{ %o, %l = attention %q, %k, %k }\n");

    EXPECT_EQ(counts.calls, (Row{1, 0, 1, 0}));
    EXPECT_EQ(counts.launched, Row(4, 1));
}

TEST_F(CudaAttends, AreIssuedWhereCudaRefuses)
{
    AreIssuedWhereRefused(
        {"cuStreamBeginCapture:1", "cudnnBackendExecute:2",
         "cuStreamEndCapture:3", "cuGraphGetNodes:1", "cuGraphNodeGetType:1",
         "cuGraphMemsetNodeGetParams:1", "cuGraphKernelNodeGetParams:1",
         "cuGraphInstantiateWithFlags:1", "cuGraphUpload:1",
         "cuGraphExecKernelNodeSetParams:1"});
}

TEST_F(CudaAttends, AreRightWithDelays)
{
    AreRightBetweenDelays();
}

} // namespace
