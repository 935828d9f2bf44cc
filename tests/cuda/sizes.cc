// Runs of other sizes in one session, against answers that are computed here:
// whole numbers, so that any order of sums gives the same. What is room alone
// holds NaNs, which nothing reads or replaces.
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "tests/cuda/program.h"

namespace
{

const int kRanks = 4, kHigh = 21, kK = 6, kN = 5;
const std::vector<int64_t> kSizes = {0, 1, kRanks - 1, 13, kHigh};

const char *const kGather =
    "heddle 2\n"
    "tensor program gather\n"
    "param m in 0..21\n"
    "mesh tp=4\n"
    "in %x : f32[m @tp, 6]\n"
    "in %w : f32[size tp @tp, 6, 5]\n"
    "out %y : f32[size tp @tp, m in size tp @stream, 5]\n"
    "temp %xg : f32[m in size tp @stream, 6]\n"
    "{ %xg = set %x\n"
    "  %y = matmul %xg, %w }\n";
const char *const kReduce =
    "heddle 2\n"
    "tensor program reduce\n"
    "param m in 0..21\n"
    "mesh tp=4\n"
    "in %h : f32[size tp @tp, m in size tp @stream, 6]\n"
    "in %w : f32[size tp @tp, 6, 5]\n"
    "temp %p : f32[size tp @tp, m in size tp @stream, 5]\n"
    "out %y : f32[m @tp, 5]\n"
    "{ %p = matmul %h, %w\n"
    "  %y = sum %p dim 0 }\n";
// All of it in place, and a maximum.
const char *const kWhole = "heddle 2\n"
                           "host program whole\n"
                           "param m in 0..21\n"
                           "mesh tp=4\n"
                           "in %x : f32[size tp @tp, m, 6] shared\n"
                           "out %y : f32[size tp @tp, m, 6]\n"
                           "out %z : f32[size tp @tp, m]\n"
                           "temp %u : f32[m, 6] shared\n"
                           "{ %u = gelu %x[tp]\n"
                           "  %y[tp] = all_reduce %x[tp]\n"
                           "  %u = add %y[tp], %y[tp]\n"
                           "  %z[tp] = max %u dim 1 }\n";

// What collectives move, of which NCCL's have gaps between their pieces.
const char *const kMoves = "heddle 2\n"
                           "host program moves\n"
                           "param m in 0..21\n"
                           "mesh tp=4\n"
                           "in %x : f32[size tp @tp, m, 6]\n"
                           "in %h : f32[size tp @tp, size tp, m, 6] shared\n"
                           "out %g : f32[size tp, m, 6] shared\n"
                           "out %y : f32[size tp @tp, m, 6]\n"
                           "out %a : f32[size tp @tp, size tp, m, 6] shared\n"
                           "{ %g = all_gather %x[tp]\n"
                           "  %y[tp] = reduce_scatter %h[tp]\n"
                           "  %a[tp] = all_to_all %h[tp] }\n";

// Of which each rank reduces a share that the others fetch.
const int kLargest = 90001, kWide = 64;
const char *const kLarge = "heddle 2\n"
                           "host program large\n"
                           "param m in 1..90001\n"
                           "mesh tp=4\n"
                           "in %x : f32[size tp @tp, m, 64] shared\n"
                           "out %y : f32[size tp @tp, m, 64]\n"
                           "{ %y[tp] = all_reduce %x[tp] }\n";

struct SizedProgram {
    hd_module *module = nullptr;

    SizedProgram(const char *text, const hd_lower_options *lower,
                 hd_transport way)
    {
        hd_diag *diag = hd_diag_create();
        hd_check_options check = hd_check_defaults();

        check.transport = way;
        hd_status status =
            hd_parse("sizes.hd", text, strlen(text), nullptr, 0, diag, &module);
        if (status == HD_OK && lower != nullptr)
            status = hd_lower(module, lower, nullptr, nullptr, diag);
        if (status == HD_OK)
            status = hd_check(module, &check, diag);
        if (status != HD_OK) {
            fprintf(stderr, "%s\n", hd_diag_text(diag));
            abort();
        }
        hd_diag_destroy(diag);
    }
    SizedProgram(const SizedProgram &) = delete;
    SizedProgram &operator=(const SizedProgram &) = delete;
    ~SizedProgram()
    {
        hd_module_destroy(module);
    }
};

typedef std::vector<float> Floats;

// Of numbers that every rank draws alike, by run.
struct Drawn {
    Floats x, w;

    Drawn(size_t nx, size_t nw, uint64_t seed)
    {
        std::mt19937_64 random(seed);
        std::uniform_int_distribution<int> number(-8, 8);

        for (size_t i = 0; i < nx; i++)
            x.push_back(float(number(random)));
        for (size_t i = 0; i < nw; i++)
            w.push_back(float(number(random)));
    }
};

bool IsNan(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits == UINT32_MAX;
}

// Whole arrays are filled and compared as bytes: where each access is watched,
// a loop over them takes most of the time of a test.
void Poison(Floats &all)
{
    memset(all.data(), 0xff, all.size() * sizeof(float));
}

// The block of m rows that a rank has.
struct Block {
    int64_t low, rows;
    Block(int64_t m, int rank)
    {
        int64_t each = (m + kRanks - 1) / kRanks;

        low = std::min(rank * each, m);
        rows = std::min((rank + 1) * each, m) - low;
    }
};

// A rank's memory of a program on a session of its own, and what it should
// hold.
struct Case {
    const char *text;
    // Fills inputs and what is expected of outputs, by argument.
    void (*fill)(int64_t m, int rank, uint64_t seed,
                 std::vector<Floats> &arguments);
    size_t inputs; // of the arguments, the first ones
    std::vector<int64_t> sizes;
    size_t runs;
};

void FillGather(int64_t m, int rank, uint64_t seed,
                std::vector<Floats> &arguments)
{
    Drawn drawn(kHigh * kK, kRanks * kK * kN, seed);
    Block block(m, rank);

    for (int64_t i = 0; i < block.rows * kK; i++)
        arguments[0][size_t(i)] = drawn.x[size_t(block.low * kK + i)];
    for (size_t i = 0; i < kK * kN; i++)
        arguments[1][i] = drawn.w[size_t(rank) * kK * kN + i];
    for (size_t i = 0; i < size_t(m); i++)
        for (size_t n = 0; n < kN; n++) {
            float sum = 0;

            for (size_t k = 0; k < kK; k++)
                sum += drawn.x[i * kK + k] * arguments[1][k * kN + n];
            arguments[2][i * kN + n] = sum;
        }
}

void FillReduce(int64_t m, int rank, uint64_t seed,
                std::vector<Floats> &arguments)
{
    Drawn drawn(kRanks * kHigh * kK, kRanks * kK * kN, seed);
    Block block(m, rank);

    for (size_t i = 0; i < size_t(m) * kK; i++)
        arguments[0][i] = drawn.x[size_t(rank) * kHigh * kK + i];
    for (size_t i = 0; i < kK * kN; i++)
        arguments[1][i] = drawn.w[size_t(rank) * kK * kN + i];
    for (size_t i = 0; i < size_t(block.rows); i++)
        for (size_t n = 0; n < kN; n++) {
            float sum = 0;

            for (size_t r = 0; r < kRanks; r++)
                for (size_t k = 0; k < kK; k++)
                    sum +=
                        drawn.x[(r * kHigh + size_t(block.low) + i) * kK + k] *
                        drawn.w[(r * kK + k) * kN + n];
            arguments[2][i * kN + n] = sum;
        }
}

void FillWhole(int64_t m, int rank, uint64_t seed,
               std::vector<Floats> &arguments)
{
    Drawn drawn(kRanks * kHigh * kK, 1, seed);

    for (size_t i = 0; i < size_t(m) * kK; i++) {
        float sum = 0;

        for (size_t r = 0; r < kRanks; r++)
            sum += drawn.x[r * kHigh * kK + i];
        arguments[0][i] = drawn.x[size_t(rank) * kHigh * kK + i];
        arguments[1][i] = sum;
        float &most = arguments[2][i / kK];
        most = i % kK == 0 ? 2 * sum : std::max(most, 2 * sum);
    }
}

void FillMoves(int64_t m, int rank, uint64_t seed,
               std::vector<Floats> &arguments)
{
    const size_t each = kHigh * kK;
    Drawn drawn(kRanks * each, kRanks * kRanks * each, seed);

    for (size_t i = 0; i < size_t(m) * kK; i++) {
        arguments[0][i] = drawn.x[size_t(rank) * each + i];
        arguments[3][i] = 0;
        for (size_t r = 0; r < kRanks; r++) {
            const float *theirs = &drawn.w[r * kRanks * each];

            arguments[1][r * each + i] =
                drawn.w[(size_t(rank) * kRanks + r) * each + i];
            arguments[2][r * each + i] = drawn.x[r * each + i];
            arguments[3][i] += theirs[size_t(rank) * each + i];
            arguments[4][r * each + i] = theirs[size_t(rank) * each + i];
        }
    }
}

void FillLarge(int64_t m, int rank, uint64_t seed,
               std::vector<Floats> &arguments)
{
    float *x = arguments[0].data(), *y = arguments[1].data();

    for (size_t i = 0; i < size_t(m) * kWide; i++) {
        float drawn = float((i * 2654435761u + seed) % 1021);

        x[i] = drawn * float(rank + 1);
        y[i] = drawn * (kRanks * (kRanks + 1) / 2);
    }
}

const Case kCaseOfGather = {kGather, FillGather, 2, kSizes, 12};
const Case kCaseOfReduce = {kReduce, FillReduce, 2, kSizes, 12};
const Case kCaseOfWhole = {kWhole, FillWhole, 1, kSizes, 12};
const Case kCaseOfMoves = {kMoves, FillMoves, 2, kSizes, 12};
const Case kCaseOfLarge = {
    kLarge, FillLarge, 1, {1, kRanks - 1, 10001, kLargest}, 5};

class Sized
{
  public:
    Sized(const Case &all, const hd_module *module, hd_session *session)
        : case_(all), module_(module), session_(session)
    {
    }
    Sized(const Sized &) = delete;
    Sized &operator=(const Sized &) = delete;
    ~Sized()
    {
        for (void *memory : owned_)
            hd_session_free(session_, memory);
    }

    hd_status Take(hd_diag *diag)
    {
        hd_argument argument = HD_EMPTY(hd_argument);

        for (size_t i = 0; hd_module_argument(module_, i, &argument); i++) {
            void *at;

            HD_TRY(hd_session_alloc(session_, argument.local_bytes, diag, &at));
            owned_.push_back(at);
            expected_.emplace_back(argument.local_bytes / sizeof(float));
        }
        got_ = expected_;
        return HD_OK;
    }

    hd_status Start(int64_t m, hd_diag *diag)
    {
        hd_run_options with = HD_EMPTY(hd_run_options);

        with.sizes = &m;
        with.nsizes = 1;
        return hd_session_run(session_, owned_.data(), owned_.size(), &with,
                              diag);
    }

    // What a run of `m` takes.
    hd_status Put(int64_t m, const Rank &rank, uint64_t seed)
    {
        for (std::vector<Floats> *all : {&expected_, &got_})
            for (Floats &one : *all)
                Poison(one);
        case_.fill(m, rank.rank, seed, expected_);
        for (size_t i = 0; i < owned_.size(); i++) {
            const Floats &first = i < case_.inputs ? expected_[i] : got_[i];

            HD_TRY(hd_session_copy(session_, owned_[i], first.data(),
                                   first.size() * sizeof(float), rank.diag));
        }
        return HD_OK;
    }

    // What the last run on this memory made.
    hd_status Check(int64_t m, const Rank &rank)
    {
        HD_TRY(hd_session_finish(session_, rank.diag));
        for (size_t i = 0; i < owned_.size(); i++)
            HD_TRY(Compare(i, m, expected_[i], rank));
        return HD_OK;
    }

    hd_status Run(int64_t m, const Rank &rank, uint64_t seed)
    {
        HD_TRY(Put(m, rank, seed));
        HD_TRY(Start(m, rank.diag));
        return Check(m, rank);
    }

  private:
    hd_status Compare(size_t argument, int64_t m, const Floats &expected,
                      const Rank &rank)
    {
        Floats &got = got_[argument];
        size_t bytes = got.size() * sizeof(float);

        HD_TRY(hd_session_copy(session_, got.data(), owned_[argument], bytes,
                               rank.diag));
        if (memcmp(got.data(), expected.data(), bytes) == 0)
            return HD_OK;
        for (size_t i = 0; i < got.size(); i++) {
            if (IsNan(expected[i]) ? IsNan(got[i]) : got[i] == expected[i])
                continue;
            fprintf(stderr,
                    "rank %d, m = %lld: element %zu of argument %zu is %g, "
                    "not %g\n",
                    rank.rank, (long long)m, i, argument, double(got[i]),
                    double(expected[i]));
            return HD_ERROR_INVALID;
        }
        return HD_OK;
    }

    const Case &case_;
    const hd_module *module_;
    hd_session *session_;
    std::vector<void *> owned_;
    std::vector<Floats> expected_, got_; // by argument
};

hd_session_options By(hd_transport way)
{
    hd_session_options options = CudaOptions();

    options.transport = way;
    return options;
}

// Sizes in random order, each several times, the same on all ranks.
std::vector<int64_t> Order(const std::vector<int64_t> &sizes, size_t runs,
                           uint64_t seed)
{
    std::mt19937_64 random(seed);
    std::vector<int64_t> order;

    for (size_t i = 0; i < runs; i++)
        order.push_back(sizes[i < 4 ? (i + seed) % 4 : random() % 4]);
    return order;
}

void AnswersAreRight(const Case &all, const hd_lower_options *lower,
                     hd_session_options options)
{
    SizedProgram program(all.text, lower, options.transport);
    uint64_t seed = Seed();
    std::vector<Answer> answers = RunRanks(kRanks, [&](Rank &rank) {
        hd_session *session = nullptr;
        hd_status status = hd_session_create(rank.group, program.module,
                                             &options, rank.diag, &session);
        if (status == HD_OK) {
            Sized sized(all, program.module, session);
            uint64_t n = 0;

            status = sized.Take(rank.diag);
            for (int64_t m : Order(all.sizes, all.runs, seed))
                if (status == HD_OK)
                    status = sized.Run(m, rank, seed + n++);
        }
        hd_session_destroy(session);
        return status;
    });

    AllAreRight(answers);
}

const hd_transport kWays[] = {HD_TRANSPORT_COPY, HD_TRANSPORT_SM,
                              HD_TRANSPORT_NCCL};

void AnswersAreRightEachWay(const Case &all,
                            const std::vector<hd_transfer> &pipelines)
{
    for (hd_transport way : kWays)
        for (hd_transfer how : pipelines) {
            hd_lower_options lower = hd_lower_defaults();

            SCOPED_TRACE(testing::Message() << "way " << way << " how " << how);
            lower.transfer = how;
            lower.transport = way;
            AnswersAreRight(all, &lower, By(way));
        }
}

TEST(CudaSizes, GathersOfAnySizeAreRight)
{
    AnswersAreRightEachWay(
        kCaseOfGather,
        Choose<hd_transfer>({HD_TRANSFER_RING, HD_TRANSFER_DIRECT,
                             HD_TRANSFER_BULK, HD_TRANSFER_BROADCAST},
                            {HD_TRANSFER_RING, HD_TRANSFER_BROADCAST}));
}

TEST(CudaSizes, ReductionsOfAnySizeAreRight)
{
    AnswersAreRightEachWay(
        kCaseOfReduce,
        Choose<hd_transfer>(
            {HD_TRANSFER_RING, HD_TRANSFER_DIRECT, HD_TRANSFER_BULK},
            {HD_TRANSFER_DIRECT, HD_TRANSFER_BULK}));
}

TEST(CudaSizes, WhatIsReducedWholeIsRight)
{
    for (hd_transport way : kWays)
        for (const char *shots : {"1", "2"}) {
            ScopedSetting setting("HEDDLE_SHOTS", shots);

            SCOPED_TRACE(testing::Message() << "way " << way << " " << shots);
            AnswersAreRight(kCaseOfWhole, nullptr, By(way));
        }
}

TEST(CudaSizes, WhatCollectivesMoveIsRight)
{
    for (hd_transport way : kWays) {
        SCOPED_TRACE(testing::Message() << "way " << way);
        AnswersAreRight(kCaseOfMoves, nullptr, By(way));
    }
}

TEST(CudaSizes, WhatIsReducedInSharesIsRight)
{
    AnswersAreRight(kCaseOfLarge, nullptr, By(HD_TRANSPORT_COPY));
}

// Words are told by turns, of which each variant has all.
TEST(CudaSizes, GraphsOfOtherSizesTakeTurns)
{
    for (const Case *one : {&kCaseOfGather, &kCaseOfReduce, &kCaseOfWhole}) {
        hd_lower_options lower = hd_lower_defaults();
        hd_session_options options = By(HD_TRANSPORT_COPY);

        options.graph = true;
        AnswersAreRight(*one, strstr(one->text, "tensor") ? &lower : nullptr,
                        options);
    }
}

TEST(CudaSizes, WhatIsReducedInSharesByGraphsIsRight)
{
    hd_session_options options = By(HD_TRANSPORT_COPY);

    options.graph = true;
    AnswersAreRight(kCaseOfLarge, nullptr, options);
}

// Sizes of which no rank's block is empty, so that all graphs of them have the
// same nodes: more than are kept.
const std::vector<int64_t> kFull = {4,  7,  8,  10, 11, 12, 13, 14,
                                    15, 16, 17, 18, 19, 20, 21};
const int64_t kTurns = 4, kKept = 8; // graphs of a capture, and captures

// Each size on two sets of memory; runs of three sizes are under way at a time.
hd_status RunInTurns(const Rank &rank, const Case &all, const hd_module *module,
                     hd_session *session, uint64_t seed)
{
    std::mt19937_64 random(seed);
    std::vector<int64_t> sizes = kFull;
    std::vector<std::unique_ptr<Sized>> memory;

    for (size_t i = 0; i < 3; i++) {
        memory.push_back(std::make_unique<Sized>(all, module, session));
        HD_TRY(memory.back()->Take(rank.diag));
    }
    for (size_t n = 0; n < 6 * sizes.size(); n += 3) {
        size_t at = n / 2 / 3 * 3 % sizes.size();

        if (at == 0 && n % 2 == 0)
            std::shuffle(sizes.begin(), sizes.end(), random);
        for (size_t i = 0; i < 3; i++)
            HD_TRY(memory[(i + n / 3) % 3]->Put(sizes[at + i], rank,
                                                seed + n + i));
        for (size_t i = 0; i < 3; i++)
            HD_TRY(memory[(i + n / 3) % 3]->Start(sizes[at + i], rank.diag));
        for (size_t i = 0; i < 3; i++)
            HD_TRY(memory[(i + n / 3) % 3]->Check(sizes[at + i], rank));
    }
    return HD_OK;
}

using RunsOf =
    std::function<hd_status(const Rank &rank, const hd_module *, hd_session *)>;

// An answer's number is of graphs that were made, its first count of patches.
std::vector<Answer> GraphsOf(const Case &all, hd_transport way,
                             const RunsOf &runs)
{
    hd_lower_options lower = hd_lower_defaults();
    hd_session_options options = By(way);

    options.graph = true;
    lower.transport = way;
    SizedProgram program(all.text,
                         strstr(all.text, "tensor") ? &lower : nullptr, way);
    std::vector<Answer> answers = RunRanks(kRanks, [&](Rank &rank) {
        hd_session *session = nullptr;
        hd_status status = hd_session_create(rank.group, program.module,
                                             &options, rank.diag, &session);

        if (status == HD_OK) {
            hd_stats stats = HD_EMPTY(hd_stats);

            status = runs(rank, program.module, session);
            hd_session_stats(session, &stats);
            rank.answer->number = int64_t(stats.graphs);
            rank.answer->calls[0] = long(stats.patches);
        }
        hd_session_destroy(session);
        return status;
    });

    AllAreRight(answers);
    return answers;
}

std::vector<Answer> GraphsInTurns(const Case &all, hd_transport way)
{
    uint64_t seed = Seed();

    return GraphsOf(
        all, way,
        [&](const Rank &rank, const hd_module *module, hd_session *session) {
            return RunInTurns(rank, all, module, session, seed);
        });
}

TEST(CudaSizes, GraphsOfMoreSizesThanAreKeptArePatched)
{
    for (const Case *one : {&kCaseOfGather, &kCaseOfReduce, &kCaseOfWhole})
        for (hd_transport way : {HD_TRANSPORT_COPY, HD_TRANSPORT_SM}) {
            SCOPED_TRACE(testing::Message() << one->text << way);
            for (const Answer &answer : GraphsInTurns(*one, way)) {
                EXPECT_EQ(answer.number, kKept * kTurns);
                EXPECT_GE(answer.calls[0], 15);
            }
        }
}

// Blocks of one row are empty on three ranks: another graph, used last of all
// when the ninth comes, which stays since its executables do not fit.
TEST(CudaSizes, AGraphOfOtherNodesIsNotPatched)
{
    const std::vector<int64_t> order = {1, 4, 7, 8, 10, 11, 12, 13, 14, 1, 4};
    uint64_t seed = Seed();
    auto runs = [&](const Rank &rank, const hd_module *module,
                    hd_session *session) {
        Sized sized(kCaseOfGather, module, session);

        HD_TRY(sized.Take(rank.diag));
        for (size_t i = 0; i < order.size(); i++)
            HD_TRY(sized.Run(order[i], rank, seed + i));
        return HD_OK;
    };

    for (const Answer &answer :
         GraphsOf(kCaseOfGather, HD_TRANSPORT_COPY, runs)) {
        EXPECT_EQ(answer.number, kKept * kTurns);
        EXPECT_EQ(answer.calls[0], 2);
    }
}

// The ninth size is patched for its first run, and for the turn of its second
// one; the tenth comes next. Refused at once, one is made; refused in a later
// turn, runs go without.
TEST(CudaSizes, GraphsThatCudaDoesNotPatchAreMade)
{
    for (int k : {1, 2, 3}) {
        ScopedSetting fault("FAKE_CUDA_FAIL",
                            "cuGraphExecUpdate_v2:" + std::to_string(k));

        for (const Answer &answer :
             GraphsInTurns(kCaseOfGather, HD_TRANSPORT_COPY)) {
            EXPECT_EQ(answer.number, (k == 2 ? kKept : kKept + 1) * kTurns);
        }
    }
}

// Calls that take or give up what a run may not.
const char *const kHeavy[] = {"cuMemAlloc_v2",
                              "cuMemFree_v2",
                              "cuIpcGetMemHandle",
                              "cuIpcOpenMemHandle_v2",
                              "cuModuleLoadData",
                              "cuGraphInstantiateWithFlags",
                              "cuStreamCreateWithPriority",
                              "cuEventCreate",
                              "cuMemHostAlloc",
                              "cublasLtMatmulAlgoGetHeuristic"};

long CallsOfAll(const char *const *names, size_t n)
{
    auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
    long sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += calls(names[i]);
    return sum;
}

// Eight runs at a time are under way, each of a size of its own, of more sizes
// than are remembered.
hd_status ManyRuns(const Rank &rank, const Case &all,
                   const SizedProgram &program, hd_session *session, int runs,
                   uint64_t seed)
{
    std::mt19937_64 random(seed);
    std::vector<std::unique_ptr<Sized>> memory;
    hd_stats first = HD_EMPTY(hd_stats), stats = HD_EMPTY(hd_stats);
    long before = 0;

    for (int i = 0; i < 8; i++) {
        memory.push_back(std::make_unique<Sized>(all, program.module, session));
        HD_TRY(memory.back()->Take(rank.diag));
    }
    for (int n = 0; n < runs; n += 8) {
        std::vector<int64_t> sizes;

        for (int i = 0; i < 8; i++)
            sizes.push_back(n < 48 ? 1 + (n + i) % kHigh
                                   : int64_t(1 + random() % kHigh));
        for (size_t i = 0; i < 8; i++)
            HD_TRY(memory[i]->Put(sizes[i], rank, seed + size_t(n) + i));
        for (size_t i = 0; i < 8; i++)
            HD_TRY(memory[i]->Start(sizes[i], rank.diag));
        for (size_t i = 0; i < 8; i++)
            HD_TRY(memory[i]->Check(sizes[i], rank));
        if (n == 48) {
            before = CallsOfAll(kHeavy, std::size(kHeavy));
            hd_session_stats(session, &first);
        }
    }
    rank.answer->number = CallsOfAll(kHeavy, std::size(kHeavy)) - before;
    hd_session_stats(session, &stats);
    if (stats.allocations != first.allocations ||
        stats.handle_exchanges != first.handle_exchanges ||
        stats.plans < first.plans || stats.plans > uint64_t(runs) + 1)
        return HD_ERROR_INVALID;
    return HD_OK;
}

void TakesNothing(const Case &all, hd_transfer how, hd_transport way)
{
    hd_lower_options lower = hd_lower_defaults();
    hd_session_options options = By(way);

    lower.transfer = how;
    lower.transport = way;
    SizedProgram program(all.text, &lower, way);
    const int runs = IsQuick() ? 80 : 304;
    uint64_t seed = Seed();
    std::vector<Answer> answers = RunRanks(kRanks, [&](Rank &rank) {
        hd_session *session = nullptr;
        hd_status status = hd_session_create(rank.group, program.module,
                                             &options, rank.diag, &session);

        if (status == HD_OK)
            status = ManyRuns(rank, all, program, session, runs, seed);
        hd_session_destroy(session);
        return status;
    });

    AllAreRight(answers);
    for (const Answer &answer : answers)
        EXPECT_EQ(answer.number, 0);
}

TEST(CudaSizes, RunsUnderWayTakeNothingAndMeetNobody)
{
    TakesNothing(kCaseOfGather, HD_TRANSFER_RING, HD_TRANSPORT_COPY);
    TakesNothing(kCaseOfReduce, HD_TRANSFER_BULK, HD_TRANSPORT_SM);
    TakesNothing(kCaseOfReduce, HD_TRANSFER_DIRECT, HD_TRANSPORT_NCCL);
}

// Rank 1 is wrong in its third run.
hd_status WrongOnOneRank(const Rank &rank, const SizedProgram &program,
                         const hd_session_options &options)
{
    hd_session *session = nullptr;
    hd_status status = hd_session_create(rank.group, program.module, &options,
                                         rank.diag, &session);

    if (status == HD_OK) {
        Sized sized(kCaseOfGather, program.module, session);

        status = sized.Take(rank.diag);
        if (status == HD_OK)
            status = sized.Put(13, rank, 7);
        for (int n = 1; n <= 4 && status == HD_OK; n++)
            status = sized.Start(n == 3 && rank.rank == 1 ? 12 : 13, rank.diag);
        if (status == HD_OK)
            status = hd_session_finish(session, rank.diag);
    }
    hd_session_destroy(session);
    return status;
}

TEST(CudaSizes, ThatAreOthersOnARankAreNamedWithIt)
{
    for (hd_transport way : kWays) {
        hd_lower_options lower = hd_lower_defaults();
        hd_session_options options = By(way);

        lower.transport = way;
        SizedProgram program(kGather, &lower, way);
        std::vector<Answer> answers = RunRanks(kRanks, [&](Rank &rank) {
            return WrongOnOneRank(rank, program, options);
        });
        for (int i = 0; i < kRanks; i++) {
            const Answer &answer = answers[size_t(i)];

            Ended(answer, i);
            EXPECT_NE(answer.status, HD_OK);
            EXPECT_TRUE(Has(answer, "run 3 of 'gather': m is ")) << answer.text;
            EXPECT_TRUE(Has(answer, "12 on rank 1")) << answer.text;
            EXPECT_TRUE(Has(answer, "13 on rank ")) << answer.text;
        }
    }
}

} // namespace
