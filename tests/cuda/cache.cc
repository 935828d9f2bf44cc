// What sessions keep on disk: kernels that are compiled once, and plans that
// are tuned once; whatever becomes of the files, of the libraries and of their
// versions.
#include <gtest/gtest.h>

#include <glob.h>
#include <sys/stat.h>

#include "tests/cuda/program.h"
#include "tests/unit/folder.h"

namespace
{

const int kPlans = 5, kFastest = 1;

// Products of all kinds of operands that cuBLASLt takes, with its epilogues and
// added to matrices that lie otherwise.
const char *const kProducts =
    "heddle 2\n"
    "host program products\n"
    "mesh tp=2\n"
    "in %a : f32[16, 32]\n"
    "in %b : f32[32, 16]\n"
    "in %bias : f32[16]\n"
    "in %wide : f64[16, 24]\n"
    "in %half : bf16[16, 48]\n"
    "in %half16 : bf16[48, 8]\n"
    "in %bias16 : bf16[16]\n"
    "in %tiny : f8e4m3[16, 64]\n"
    "in %r : f32[32, 32]\n"
    "in %r2 : f32[32, 2, 32]\n"
    "out %c : f32[16, 16]\n"
    "out %d : f64[16, 16]\n"
    "out %e : bf16[16, 16]\n"
    "out %f : f32[16, 16]\n"
    "out %g : f32[32, 32]\n"
    "out %h : bf16[16, 8]\n"
    "out %i : f32[32, 32]\n"
    "out %j : f32[32, 32]\n"
    "{\n"
    "    %c = matmul %a, %b bias %bias act relu\n"
    "    %d = matmul %wide, %wide tb\n"
    "    %e = matmul %half, %half tb bias %bias16 act gelu\n"
    "    %f = matmul %tiny, %tiny tb\n"
    "    %g = matmul %b, %a\n"
    "    %h = matmul %half, %half16\n"
    "    %i = matmul %b, %a bias %r\n"
    "    %j = matmul %b, %a bias %r2[:, 0]\n"
    "}\n";
const int kShapes = 8;

// What a rank's session did. Ranks run at the same time, so that one may find
// what the other has just made.
struct Deeds {
    long compiled;        // kernels
    long asked;           // for plans, times
    long timed;           // products
    long used[kPlans];    // of each plan, in a run
    bool told;            // that plans are tuned
    const Answer *answer; // all else
    long Used(int plan) const
    {
        return plan < kPlans ? used[plan] : 0;
    }
};

// As `calls` of an answer.
enum { COMPILED, ASKED, TIMED, TOLD, USED };

long Calls(const std::string &symbol)
{
    return Extra<decltype(fake_cuda_calls)>("fake_cuda_calls")(symbol.c_str());
}

long CallsOfPlan(int plan)
{
    return Calls("plan " + std::to_string(plan));
}

hd_status RunOnce(Rank &rank, const Program &program, Session &session)
{
    long *calls = rank.answer->calls;
    hd_stats stats = HD_EMPTY(hd_stats);

    calls[COMPILED] = Calls("nvrtcCompileProgram");
    calls[ASKED] = Calls("cublasLtMatmulAlgoGetHeuristic");
    calls[TIMED] = 0;
    for (int i = 0; i < kPlans; i++) {
        calls[USED + i] = -CallsOfPlan(i);
        calls[TIMED] += CallsOfPlan(i);
    }
    Shards shards(session);
    HD_TRY(
        shards.Put(program.Inputs(), program.Module(), rank.rank, rank.diag));
    HD_TRY(shards.Run(rank.diag));
    HD_TRY(shards.Get(rank.diag));
    for (int i = 0; i < kPlans; i++)
        calls[USED + i] += CallsOfPlan(i);
    hd_session_stats(session, &stats);
    calls[TOLD] = strstr(stats.matmul, "tuned") != nullptr;
    return program.Compare(shards, rank.rank);
}

hd_session_options Tuning()
{
    hd_session_options options = CudaOptions();

    options.tune = true;
    return options;
}

class CudaCache : public testing::Test
{
  protected:
    Folder top_;
    std::string folder_ = top_.Path("cache");
    std::vector<Answer> answers_;

    void SetUp() override
    {
        setenv("HEDDLE_CACHE_DIR", folder_.c_str(), 1);
        setenv("FAKE_CUBLASLT_PLANS", std::to_string(kPlans).c_str(), 1);
        setenv("FAKE_CUBLASLT_FASTEST", std::to_string(kFastest).c_str(), 1);
    }
    void TearDown() override
    {
        setenv("HEDDLE_CACHE_DIR", "off", 1);
        for (const char *name : {"FAKE_CUBLASLT_PLANS", "FAKE_CUBLASLT_FASTEST",
                                 "FAKE_CUBLASLT_VERSION", "FAKE_CUBLASLT_SLEEP",
                                 "FAKE_CUDA_VERSION", "FAKE_CUDA_FAIL"})
            unsetenv(name);
    }

    // A session and a run on both ranks, with the right answer; what each did.
    std::vector<Deeds> Do(const hd_session_options &options,
                          const char *text = kEverything)
    {
        Program program(text);
        std::vector<Deeds> deeds;

        answers_ = RunRanks(2, [&](Rank &rank) {
            Session session;

            HD_TRY(session.Open(rank, program, options));
            return RunOnce(rank, program, session);
        });
        for (const Answer &answer : answers_) {
            Deeds one = {answer.calls[COMPILED], answer.calls[ASKED],
                         answer.calls[TIMED],    {},
                         answer.calls[TOLD] > 0, &answer};

            EXPECT_TRUE(answer.ended);
            EXPECT_EQ(answer.status, HD_OK) << answer.text;
            EXPECT_STREQ(answer.left, "");
            for (int i = 0; i < kPlans; i++)
                one.used[i] = answer.calls[USED + i];
            deeds.push_back(one);
        }
        return deeds;
    }
    std::vector<std::string> Files() const
    {
        std::vector<std::string> files;
        glob_t found;

        if (glob((folder_ + "/*").c_str(), 0, nullptr, &found) != 0)
            return files;
        for (size_t i = 0; i < found.gl_pathc; i++)
            files.push_back(found.gl_pathv[i]);
        globfree(&found);
        return files;
    }
};

// ---------------------------------------------------------------- kernels

TEST_F(CudaCache, KernelsAreCompiledOnce)
{
    std::vector<Deeds> first = Do(CudaOptions());
    size_t kernels = Files().size();

    EXPECT_GT(kernels, 1u);
    EXPECT_GE(first[0].compiled + first[1].compiled, long(kernels));
    for (const Deeds &one : Do(CudaOptions()))
        EXPECT_EQ(one.compiled, 0);
    setenv("HEDDLE_CACHE_DIR", "off", 1);
    for (const Deeds &one : Do(CudaOptions()))
        EXPECT_EQ(one.compiled, long(kernels));
}

TEST_F(CudaCache, KernelThatTheDriverRefusesIsCompiledAnew)
{
    Do(CudaOptions());
    setenv("FAKE_CUDA_FAIL", "cuModuleLoadData:1", 1);
    for (const Deeds &one : Do(CudaOptions()))
        EXPECT_EQ(one.compiled, 1);
}

// ------------------------------------------------------------------ plans

TEST_F(CudaCache, FastestPlanIsChosenAndKept)
{
    std::vector<Deeds> first = Do(Tuning());

    EXPECT_GT(first[0].timed + first[1].timed, kPlans);
    for (const Deeds &one : first) {
        EXPECT_EQ(one.Used(kFastest), 1);
        EXPECT_TRUE(one.told);
    }
    for (bool tune : {false, true}) {
        for (const Deeds &one : Do(tune ? Tuning() : CudaOptions())) {
            EXPECT_EQ(one.timed, 0);
            EXPECT_EQ(one.asked, 0);
            EXPECT_EQ(one.Used(kFastest), 1);
            EXPECT_TRUE(one.told);
        }
    }
}

TEST_F(CudaCache, NothingIsTimedUnlessItIsAskedFor)
{
    for (int session = 0; session < 2; session++) {
        for (const Deeds &one : Do(CudaOptions())) {
            EXPECT_EQ(one.timed, 0);
            EXPECT_EQ(one.asked, 1);
            EXPECT_EQ(one.Used(0), 1);
            EXPECT_FALSE(one.told);
        }
    }
}

TEST_F(CudaCache, TunesWithoutAFolder)
{
    setenv("HEDDLE_CACHE_DIR", "off", 1);
    for (const Deeds &one : Do(Tuning()))
        EXPECT_EQ(one.Used(kFastest), 1);
    for (const Deeds &one : Do(CudaOptions()))
        EXPECT_EQ(one.Used(0), 1);
}

// The last but one is marked as none, and the last one is refused.
TEST_F(CudaCache, PlanThatIsRefusedIsNotChosen)
{
    setenv("HEDDLE_CACHE_DIR", "off", 1);
    for (int fastest : {kPlans - 2, kPlans - 1}) {
        setenv("FAKE_CUBLASLT_FASTEST", std::to_string(fastest).c_str(), 1);
        for (const Deeds &one : Do(Tuning()))
            EXPECT_EQ(one.Used(kPlans - 3), 1) << fastest;
    }
}

TEST_F(CudaCache, AllKindsOfProductsAreTuned)
{
    for (bool tune : {true, false}) {
        std::vector<Deeds> both =
            Do(tune ? Tuning() : CudaOptions(), kProducts);

        EXPECT_EQ(both[0].timed + both[1].timed > 0, tune);
        for (const Deeds &one : both)
            EXPECT_EQ(one.Used(kFastest), kShapes);
    }
    EXPECT_EQ(Files().size(), size_t(kShapes));
}

// No plan of cuBLASLt's takes as little time as a kernel does here.
TEST_F(CudaCache, TilesThatAreFasterAreChosenAndKept)
{
    const char *text = "heddle 2\nhost program tiles\nmesh tp=2\n"
                       "in %a : bf16[96, 64]\nin %b : bf16[72, 64]\n"
                       "out %c : bf16[96, 72]\n{\n"
                       "    %c = matmul %a, %b tb\n}\n";

    setenv("FAKE_CUBLASLT_FASTEST", std::to_string(kPlans + 2).c_str(), 1);
    for (bool tune : {true, false}) {
        std::vector<Deeds> both = Do(tune ? Tuning() : CudaOptions(), text);

        EXPECT_EQ(both[0].timed + both[1].timed > 0, tune);
        for (const Deeds &one : both) {
            EXPECT_EQ(std::count(one.used, one.used + kPlans, 0), kPlans);
            EXPECT_TRUE(one.told);
        }
    }
}

TEST_F(CudaCache, GraphUsesATunedPlan)
{
    hd_session_options options = Tuning();

    options.graph = true;
    for (const Deeds &one : Do(options))
        EXPECT_EQ(one.Used(kFastest), 1);
}

// Plans are kept for one version of the libraries; and one that the library
// does not know any more is not used although all versions are the same.
TEST_F(CudaCache, PlanOfAnotherVersionIsNotUsed)
{
    const std::pair<const char *, const char *> others[] = {
        {"FAKE_CUBLASLT_VERSION", "130001"},
        {"FAKE_CUDA_VERSION", "13010"},
        {"FAKE_CUBLASLT_PLANS", "1"}};

    Do(Tuning());
    for (const auto &other : others) {
        setenv(other.first, other.second, 1);
        for (const Deeds &one : Do(CudaOptions())) {
            EXPECT_EQ(one.Used(0), 1) << other.first;
            EXPECT_EQ(one.asked, 1) << other.first;
            EXPECT_FALSE(one.told);
        }
        unsetenv(other.first);
    }
    setenv("FAKE_CUBLASLT_PLANS", std::to_string(kPlans).c_str(), 1);
    for (const Deeds &one : Do(CudaOptions()))
        EXPECT_EQ(one.Used(kFastest), 1);
}

// Of six products each takes seconds, which the session has not; the peer does
// not tune, and waits.
TEST_F(CudaCache, TuningEndsBeforeThePeersGiveUp)
{
    Program program(kProducts);

    setenv("FAKE_CUBLASLT_SLEEP", "40", 1);
    answers_ = RunRanks(2, [&](Rank &rank) {
        hd_session_options options = CudaOptions(12);
        Session session;

        options.tune = rank.rank == 0;
        HD_TRY(session.Create(rank, program, options));
        return RunOnce(rank, program, session);
    });
    for (const Answer &answer : answers_) {
        EXPECT_TRUE(answer.ended);
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
        EXPECT_STREQ(answer.left, "");
    }
    // The rest is for the next session that tunes.
    EXPECT_GE(Files().size(), 1u);
    EXPECT_LT(Files().size(), size_t(kShapes));
}

// A product cannot be called back, and what it touches cannot be freed.
TEST_F(CudaCache, PlanThatDoesNotEndIsGivenUp)
{
    Program program(kEverything);

    setenv("FAKE_CUBLASLT_SLEEP", "4000", 1); // beyond kLate, and then some
    answers_ = RunRanks(2, [&](Rank &rank) {
        Session session;
        hd_session_options options = CudaOptions(kLate);

        options.tune = true;
        rank.page->keeps = true;
        return session.Open(rank, program, options);
    });
    for (const Answer &answer : answers_) {
        EXPECT_TRUE(answer.ended);
        EXPECT_EQ(answer.status, HD_ERROR_TIMEOUT) << answer.text;
        EXPECT_NE(
            std::string(answer.text).find("has not ended in " + TextOfLate()),
            std::string::npos)
            << answer.text;
    }
}

// ------------------------------------------------------------------ files

TEST_F(CudaCache, DamagedFilesAreMadeAnew)
{
    Do(Tuning());
    std::vector<std::string> files = Files();
    for (const std::string &path : files) {
        FILE *file = fopen(path.c_str(), "r+b");

        fseek(file, -1, SEEK_END); // a bit of the payload
        int last = fgetc(file);
        fseek(file, -1, SEEK_END);
        fputc(last ^ 4, file);
        fclose(file);
    }
    std::vector<Deeds> again = Do(Tuning());
    EXPECT_GE(again[0].compiled + again[1].compiled, long(files.size()) - 1);
    EXPECT_GT(again[0].timed + again[1].timed, 0);
    EXPECT_EQ(Files(), files);
    for (const Deeds &one : Do(Tuning())) {
        EXPECT_EQ(one.compiled, 0);
        EXPECT_EQ(one.timed, 0);
        EXPECT_EQ(one.Used(kFastest), 1);
    }
}

TEST_F(CudaCache, FolderThatIsOfNoUseDoesNotMatter)
{
    Folder::Run("touch '" + top_.Path("file") + "'");
    ASSERT_EQ(mkfifo(top_.Path("pipe").c_str(), 0600), 0);
    Folder::Run("mkdir -m 0777 '" + top_.Path("open") + "'");
    for (std::string folder :
         {top_.Path("file"), top_.Path("pipe"), top_.Path("open"),
          std::string("/proc/heddle"), "/" + std::string(1100, 'x')}) {
        setenv("HEDDLE_CACHE_DIR", folder.c_str(), 1);
        for (const Deeds &one : Do(Tuning())) {
            EXPECT_GT(one.compiled, 1) << folder.substr(0, 40);
            EXPECT_EQ(one.Used(kFastest), 1) << folder.substr(0, 40);
        }
    }
}

} // namespace
