// What reductions of partial sums to the ranks stand beside in a model, by
// every pipeline on rank processes: each pattern with every value of every
// option, number of ranks and dtype, and each of those with every other one.
// Values are those of the tensor program, within the bounds of the program that
// runs, since a ring rounds more often. Inputs are new in each run but the
// last, which repeats the first bit for bit, as does a launch under chaos.
// Likewise over rows that ranks do not divide.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "tests/device/options.h"
#include "tests/info.h"
#include "tests/unit/ranks.h"
#include "tests/words.h"

namespace
{

enum { SETS = 2, RUNS = 3 };

struct Pattern {
    const char *name;
    const char *declarations; // n is the size of tp, $ the dtype
    const char *body;
};

#define LINEAR                                             \
    "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, 1, 8, 5] " \
    "out %c : $[n @tp, 6, 5] "
#define PARTIAL "%p : $[n @tp, n @stream, 6, 5] "
#define BLOCK                                                 \
    "in %x : $[n @tp, 6, 8] in %u : $[n @tp, 8, 4] "          \
    "in %w : $[n @tp, 1, 4, 5] temp %g : $[n @stream, 6, 8] " \
    "temp %h : $[n @tp, n @stream, 6, 4] out %c : $[n @tp, 6, 5] "

const Pattern kPatterns[] = {
    {"sum", LINEAR "temp " PARTIAL, "%p = matmul %a, %w %c = sum %p dim 0"},
    {"max", LINEAR "temp " PARTIAL, "%p = matmul %a, %w %c = max %p dim 0"},
    {"min", LINEAR "temp " PARTIAL, "%p = matmul %a, %w %c = min %p dim 0"},
    {"integers",
     "in %a : i32[n @tp, n, 6, 5] in %b : i32[n @tp, n, 6, 5] "
     "temp %p : i32[n @tp, n @stream, 6, 5] out %c : i32[n @tp, 6, 5] "
     "out %d : i32[n @tp, 6, 5]",
     "%p = mul %a, %b %c = sum %p dim 0 %d = min %p dim 0"},
    {"elements", LINEAR "in %b : $[n @tp, n, 6, 5] temp " PARTIAL,
     "%p = silu %b %c = sum %p dim 0"},
    {"activation", LINEAR "in %b : $[5] temp " PARTIAL,
     "%p = matmul %a, %w bias %b act gelu %c = sum %p dim 0"},
    {"scaled", LINEAR "temp " PARTIAL,
     "%p = matmul %a, %w scale 0.75 %c = sum %p dim 0"},
    {"transposed",
     "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, n, 5, 8] temp " PARTIAL
     "out %c : $[n @tp, 6, 5] ",
     "%p = matmul %a, %w tb %c = sum %p dim 0"},
    {"stored_transposed",
     "in %a : $[n @tp, n, 8, 6] in %w : $[n @tp, n, 8, 5] temp " PARTIAL
     "out %c : $[n @tp, 6, 5] ",
     "%p = matmul %a, %w ta %c = sum %p dim 0"},
    {"turned",
     "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, n, 8, 5] temp " PARTIAL
     "temp %t : $[n @tp, n @stream, 8, 6] out %c : $[n @tp, 6, 5] ",
     "%t = transpose %a %p = matmul %t, %w ta %c = sum %p dim 0"},
    {"partial_is_an_output", LINEAR "out " PARTIAL,
     "%p = matmul %a, %w %c = sum %p dim 0"},
    {"partial_is_updated", LINEAR "inout " PARTIAL,
     "%p = matmul %a, %w accumulate %c = sum %p dim 0"},
    {"wide_partial",
     "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, 1, 8, 5] "
     "temp %p : f32[n @tp, n @stream, 6, 5] temp %s : f32[n @tp, 6, 5] "
     "out %c : $[n @tp, 6, 5]",
     "%p = matmul %a, %w %s = sum %p dim 0 %c = copy %s"},
    {"wide_sum",
     "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, 1, 8, 5] temp " PARTIAL
     "out %c : f32[n @tp, 6, 5] out %d : f32[n, 6, 5]",
     "%p = matmul %a, %w %c = sum %p dim 0 %d = max %p dim 0"},
    {"narrow_partial",
     "in %a : f32[n @tp, n, 6, 8] in %w : f32[n @tp, 1, 8, 5] temp " PARTIAL
     "out %c : $[n @tp, 6, 5]",
     "%p = matmul %a, %w %c = sum %p dim 0"},
    {"two_sums",
     LINEAR "in %v : $[n @tp, 1, 8, 5] temp " PARTIAL
            "temp %q : $[n @tp, n @stream, 6, 5] out %d : $[n @tp, 6, 5]",
     "%p = matmul %a, %w %q = matmul %a, %v "
     "%c = sum %p dim 0 %d = max %q dim 0"},
    {"block", BLOCK "temp " PARTIAL,
     "%g = set %x %h = matmul %g, %u act gelu %p = matmul %h, %w "
     "%c = sum %p dim 0"},
    {"parts_of_weights",
     "in %x : $[n @tp, 6, 8] in %u : $[n @tp, 3, 8, 4] in %b : $[4, 4] "
     "in %w : $[n @tp, 2, 1, 4, 6] temp %g : $[n @stream, 6, 8] "
     "temp %h : $[n @tp, n @stream, 6, 4] temp " PARTIAL
     "out %c : $[n @tp, 6, 5]",
     "%g = set %x %h = matmul %g, %u[:, 1] bias %b[2] act gelu "
     "%p = matmul %h, %w[:, 0, :, :, 1..6] %c = sum %p dim 0"},
    {"parts_of_results",
     BLOCK "in %v : $[n @tp, 8, 2] temp " PARTIAL
           "temp %k : $[n @tp, n @stream, 6, 6] in %y : $[n @tp, 6, 5] "
           "temp %j : $[n @tp, 8, 5] out %d : $[n @tp, 8, 5]",
     "%g = set %x %k[:, :, :, 0..4] = matmul %g, %u "
     "%k[:, :, :, 4..6] = matmul %g, %v %h = silu %k[:, :, :, 1..5] "
     "%p = matmul %h, %w %c = sum %p dim 0 %j[:, 2..8] = add %c, %y "
     "%j[:, 0..2] = fill value 0.5 %d = relu %j"},
    {"reshaped",
     "in %x : $[n @tp, 6, 8] in %w : $[n @tp, 2, 2, 10] "
     "temp %g : $[n @stream, 6, 8] temp %f : $[n, 3, 2, 8] "
     "temp %u : $[n @tp, 8, 5] temp %k : $[n @tp, n @stream, 6, 5] "
     "temp %l : $[n @tp, n @stream, 30] out %c : $[n @tp, 30] "
     "out %o : $[n * 6, 8]",
     "%g = set %x %f = reshape %g %u = reshape %w %k = matmul %g, %u "
     "%l = reshape %k %c = sum %l dim 0 %o = reshape %f"},
    {"batch_in_front",
     "in %x : $[6, n @tp, 2, 8] in %u : $[n @tp, 8, 4] "
     "in %w : $[n @tp, 1, 1, 4, 5] temp %g : $[6, n @stream, 2, 8] "
     "temp %h : $[n @tp, 6, n @stream, 2, 4] "
     "temp %p : $[n @tp, 6, n @stream, 2, 5] out %c : $[6, n @tp, 2, 5]",
     "%g = set %x %h = matmul %g, %u act gelu %p = matmul %h, %w "
     "%c = sum %p dim 0"},
    {"batch_that_is_kept",
     "in %x : $[6, n @tp, 2, 8] in %w : $[n @tp, 8, 5] "
     "out %g : $[6, n @stream, 2, 8] out %p : $[n @tp, 6, n @stream, 2, 5] "
     "out %c : $[6, n @tp, 2, 5] out %d : $[6, n @tp, 2, 5]",
     "%g = set %x %p = matmul %g, %w %c = sum %p dim 0 %d = max %p dim 0"},
    {"gated_block",
     BLOCK "temp " PARTIAL "in %v : $[n @tp, 8, 4] "
           "temp %k : $[n @tp, n @stream, 6, 4] "
           "temp %s : $[n @tp, n @stream, 6, 4] "
           "temp %m : $[n @tp, n @stream, 6, 4]",
     "%g = set %x %h = matmul %g, %u %k = matmul %g, %v %s = silu %h "
     "%m = mul %s, %k %p = matmul %m, %w %c = sum %p dim 0"},
    {"residual",
     "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, 1, 8, 5] temp " PARTIAL
     "in %r : $[n @tp, 6, 5] in %b : $[5] temp %s : $[n @tp, 6, 5] "
     "temp %t : $[n @tp, 6, 5] out %c : $[n @tp, 6, 5]",
     "%p = matmul %a, %w %s = sum %p dim 0 %t = add %s, %r %c = add %t, %b"},
    {"for_all",
     "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, 1, 8, 5] temp " PARTIAL
     "out %c : $[n, 6, 5]",
     "%p = matmul %a, %w %c = sum %p dim 0"},
    {"for_all_and_for_one",
     LINEAR "in %b : $[n @tp, n, 6, 5] temp " PARTIAL
            "temp %q : $[n @tp, n @stream, 6, 5] out %d : $[n, 6, 5] "
            "out %e : $[n, 6, 5]",
     "%p = matmul %a, %w act relu %q = mul %b, %b %c = sum %p dim 0 "
     "%d = sum %q dim 0 %e = max %p dim 0"},
    {"for_all_then_more",
     "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, 1, 8, 5] temp " PARTIAL
     "temp %s : $[n @stream, 6, 5] in %r : $[n, 6, 5] "
     "out %c : $[n @stream, 6, 5]",
     "%p = matmul %a, %w %s = sum %p dim 0 %c = add %s, %r"},
    {"batch_for_all",
     "in %a : $[n @tp, 6, n, 2, 8] in %w : $[n @tp, 1, 1, 8, 5] "
     "temp %p : $[n @tp, 6, n @stream, 2, 5] in %r : $[6, n, 2, 5] "
     "temp %s : $[6, n @stream, 2, 5] out %c : $[6, n @stream, 2, 5] "
     "out %d : $[6, n, 2, 5]",
     "%p = matmul %a, %w %s = sum %p dim 0 %d = max %p dim 0 "
     "%c = add %s, %r"},
    {"tiles_in_and_out",
     "in %x : $[3, n @tp, 6, 8] in %u : $[n @tp, 8, 4] "
     "in %w : $[n @tp, 1, 1, 4, 5] temp %g : $[3 @stream, n, 6, 8] "
     "temp %h : $[n @tp, 3 @stream, n, 6, 4] "
     "temp %p : $[n @tp, 3 @stream, n, 6, 5] "
     "out %c : $[3 @stream, n @tp, 6, 5]",
     "%g = set %x %h = matmul %g, %u act gelu %p = matmul %h, %w "
     "%c = sum %p dim 0"},
    {"beside",
     LINEAR "temp " PARTIAL "in %x : $[7, 6] in %g : $[7, 4] "
            "inout %u : f32[6, 4] out %r : $[7, 6]",
     "%r = silu %x %p = matmul %a, %w %c = sum %p dim 0 "
     "%u = matmul %x, %g ta accumulate"},
    {"beside_collectives",
     "in %a : $[n @tp, n, 6, 8] in %w : $[n @tp, 1, 8, 5] "
     "temp %p : $[n @tp, n, 6, 5] temp %s : $[n @tp, 6, 5] "
     "out %c : $[n @tp, 6, 5] in %x : $[n @tp, 3, 5] temp %g : $[n, 3, 5] "
     "out %y : $[n, 3, 4] in %v : $[5, 4] inout %u : f32[5, 4] "
     "in %q : $[7, 5] in %k : $[7, 4]",
     "%g = set %x %p = matmul %a, %w %y = matmul %g, %v %s = sum %p dim 0 "
     "%u = matmul %q, %k ta accumulate %c = relu %s"},
    {"two_axes",
     "in %a : $[2 @dp, n @tp, n, 6, 8] in %w : $[2 @dp, n @tp, 1, 8, 5] "
     "temp %p : $[2 @dp, n @tp, n @stream, 6, 5] "
     "out %c : $[2 @dp, n @tp, 6, 5]",
     "%p = matmul %a, %w %c = sum %p dim 1"},
    {"inner_axis",
     "in %a : $[n @tp, n, 2 @dp, 6, 8] in %w : $[n @tp, 1, 1, 8, 5] "
     "temp %p : $[n @tp, n @stream, 2 @dp, 6, 5] "
     "out %c : $[n @tp, 2 @dp, 6, 5]",
     "%p = matmul %a, %w %c = sum %p dim 0"},
};

enum { PATTERNS = sizeof kPatterns / sizeof kPatterns[0] };

// The same over m rows that the ranks need not divide, and that may be fewer
// than they: what a rank has room for alone holds NaNs.
#define ROWS                                         \
    "in %a : $[n @tp, m, 8] in %w : $[n @tp, 8, 5] " \
    "temp %p : $[n @tp, m in n @stream, 5] "
const Pattern kBlocks[] = {
    {"gathered",
     "in %x : $[m @tp, 8] in %w : $[8, 5] in %b : $[5] "
     "temp %g : $[m in n @stream, 8] out %c : $[m in n @stream, 5]",
     "%g = set %x %c = matmul %g, %w bias %b act gelu"},
    {"gathered_behind_a_batch",
     "in %x : $[3, m @tp, 8] in %w : $[8, 5] "
     "temp %g : $[3, m in n @stream, 8] out %c : $[3, m in n @stream, 5]",
     "%g = set %x %c = matmul %g, %w"},
    {"gathered_whole", "in %x : $[4, m @tp] out %y : $[4, m] out %z : $[m, 4]",
     "%y = set %x %z = transpose %y"},
    {"scattered", ROWS "out %c : $[m @tp, 5]",
     "%p = matmul %a, %w %c = sum %p dim 0"},
    {"scattered_max",
     ROWS "in %r : $[m @tp, 5] temp %s : $[m @tp, 5] "
          "out %c : $[m @tp, 5]",
     "%p = matmul %a, %w act relu %s = max %p dim 0 %c = add %s, %r"},
    {"for_all", ROWS "out %c : $[m, 5]",
     "%p = matmul %a, %w %c = sum %p dim 0"},
    {"block",
     "in %x : $[m @tp, 8] in %u : $[n @tp, 8, 4] in %w : $[n @tp, 4, 5] "
     "temp %g : $[m in n @stream, 8] temp %h : $[n @tp, m in n @stream, 4] "
     "temp %p : $[n @tp, m in n @stream, 5] out %c : $[m @tp, 5]",
     "%g = set %x %h = matmul %g, %u act gelu %p = matmul %h, %w "
     "%c = sum %p dim 0"},
    {"over_rows",
     "in %x : $[m @tp, 6] out %s : $[6] out %t : $[6] out %u : $[6]",
     "%s = sum %x dim 0 %t = max %x dim 0 %u = min %x dim 0"},
    {"integers_over_rows",
     "in %x : i32[6, m @tp] out %s : i32[6] out %t : i32[6] out %u : i32[6]",
     "%s = sum %x dim 1 %t = max %x dim 1 %u = min %x dim 1"},
    {"moved_to_columns", "in %x : $[m @tp, 7] out %y : $[m, 7 @tp]",
     "%y = set %x"},
    {"exchanged",
     "in %x : $[n @tp, m, 7] in %u : i32[m @tp, n, 3] temp %t : $[n, m @tp, 7] "
     "out %y : $[n @tp, m, 7] out %v : i32[m, n @tp, 3] out %w : $[n, m @tp, "
     "7]",
     "%t = set %x %y = set %t %w = relu %t %v = set %u"},
    {"led_by_another_axis",
     "in %x : $[n @tp, m @dp, 8] in %w : $[8, 4] "
     "temp %g : $[n @stream, m @dp, 8] out %c : $[n @stream, m @dp, 4]",
     "%g = set %x %c = matmul %g, %w"},
    {"scattered_beside_another_axis",
     "in %a : $[n @tp, n, m @dp, 8] in %w : $[n @tp, 1, 8, 4] "
     "temp %p : $[n @tp, n @stream, m @dp, 4] out %c : $[n @tp, m @dp, 4] "
     "out %d : $[n, m @dp, 4]",
     "%p = matmul %a, %w %c = sum %p dim 0 %d = max %p dim 0"},
    {"two_axes",
     "in %x : $[5 @dp, m @tp, 8] in %w : $[8, 4] "
     "temp %g : $[5 @dp, m in n @stream, 8] "
     "out %c : $[5 @dp, m in n @stream, 4]",
     "%g = set %x %c = matmul %g, %w"},
};

enum { BLOCKS = sizeof kBlocks / sizeof kBlocks[0] };

bool HasTwoAxes(const Pattern &pattern)
{
    return strstr(pattern.declarations, "@dp") != nullptr;
}

// A pattern on so many ranks, over so many rows if it has blocks.
struct Drawn {
    const Pattern &pattern;
    std::string dtype;
    int tp, rows;
};

Module ParsePattern(const Drawn &drawn)
{
    const Pattern &pattern = drawn.pattern;
    std::string text =
        std::string(pattern.declarations) + " { " + pattern.body + " }\n";

    text = ReplacedWord(text, "n", "size tp");
    if (drawn.rows > 0)
        text = ReplacedWord(text, "m", std::to_string(drawn.rows));
    return Parse(
        "heddle 2 tensor program pattern mesh " +
            std::string(HasTwoAxes(pattern) ? "dp=2, tp=2 " : "tp=2 ") + text,
        drawn.dtype, drawn.tp);
}

// What a rank's runs left behind, for the launches to come.
class Hashes
{
  public:
    Hashes()
        : hash_(static_cast<uint64_t *>(
              mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0)))
    {
        EXPECT_NE(hash_, MAP_FAILED);
    }
    Hashes(const Hashes &) = delete;
    Hashes &operator=(const Hashes &) = delete;
    ~Hashes()
    {
        munmap(hash_, kBytes);
    }
    // False if it is another one than that of the rank's first run.
    bool Keep(int rank, uint64_t hash)
    {
        if (hash_[rank] == 0)
            hash_[rank] = hash;
        return hash_[rank] == hash;
    }

  private:
    static constexpr size_t kBytes = 4096;
    uint64_t *hash_;
};

struct Case {
    const hd_module *module;
    const Expected &expected, &bounds;
    Hashes hashes;
};

hd_status RunAll(hd_group *group, Case *c, int runs, hd_diag *diag)
{
    const hd_module *module = c->module;
    hd_session_options options = DeviceOptions();
    hd_session *session = nullptr;
    int rank = hd_group_rank(group);

    HD_TRY(hd_session_create(group, module, &options, diag, &session));
    for (int run = 0; run < runs; run++) {
        Shards shards(session);
        int set = run % SETS;

        HD_TRY(shards.Put(c->expected.Inputs(set), module, rank, diag));
        HD_TRY(shards.Run(diag));
        HD_TRY(shards.Get(diag));
        HD_TRY(Compare(shards, c->expected, c->bounds, set, rank));
        if (set == 0)
            RANK_EXPECT(c->hashes.Keep(rank, shards.Hash()));
    }
    hd_session_destroy(session);
    return HD_OK;
}

void Launches(Case *c, const char *chaos, int runs)
{
    if (chaos != nullptr)
        setenv("HEDDLE_CHAOS", chaos, 1);
    AllEndWell(Launch(module_info(c->module).ranks,
                      [&](hd_group *group, hd_diag *diag) {
                          return RunAll(group, c, runs, diag);
                      }));
    unsetenv("HEDDLE_CHAOS");
}

// All but a ring are held to the bounds of the tensor program itself.
void LowersAndRuns(const Drawn &drawn, const hd_lower_options &options)
{
    Module tensor = ParsePattern(drawn);
    Module host = ParsePattern(drawn);
    hd_diag *diag = hd_diag_create();

    ASSERT_EQ(hd_lower(host.get(), &options, nullptr, nullptr, diag), HD_OK)
        << hd_diag_text(diag);
    ASSERT_EQ(CheckHere(host.get(), diag), HD_OK) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    Expected expected(tensor.get(), SETS, Seed());
    Expected rounded(host.get(), SETS, Seed());
    bool rounds = options.transfer == HD_TRANSFER_RING;
    Case c = {host.get(), expected, rounds ? rounded : expected, {}};
    Launches(&c, nullptr, RUNS);
    if (!IsQuick())
        Launches(&c, "5", 1);
}

class Patterns : public testing::TestWithParam<int>
{
};

TEST_P(Patterns, GiveTheDenseAnswerWithEveryPairOfOptions)
{
    if (DeviceOptions().graph && GetParam() != HD_TRANSFER_DIRECT &&
        GetParam() != HD_TRANSFER_RING)
        GTEST_SKIP() << "graphs of two pipelines are enough";
    const std::vector<int> sizes = Choose<int>({1, 2, 3, 4, 5, 8}, {2, 3});
    const std::vector<const char *> dtypes =
        Choose<const char *>({"f32", "f16", "bf16"}, {"f32", "bf16"});
    const int most = IsQuick() ? 2 : 3;
    std::mt19937 random(Seed());
    const unsigned share = IsQuick() ? 6 : 5;
    unsigned n = unsigned(Seed() % share);

    for (const std::vector<int> &row :
         CoverPairs({PATTERNS, int(sizes.size()), int(dtypes.size()), most,
                     most, 2, 2, 2, 2, 2},
                    random)) {
        const Pattern &pattern = kPatterns[row[0]];
        const std::string dtype = dtypes[size_t(row[2])];

        // A share of them, each time another.
        if (n++ % share != 0)
            continue;

        hd_lower_options options = OptionsOf(GetParam());
        int axes = HasTwoAxes(pattern) ? 2 : 1;
        int tp = std::min(sizes[size_t(row[1])], MostRanks() / axes);

        if (!HasDevices(axes))
            continue;
        options.chunks = 1 + row[3];
        options.streams = 1 + row[4];
        options.protocol = static_cast<hd_protocol>(row[5]);
        options.copy_own = row[6] != 0;
        options.defer_sends = row[7] != 0;
        options.comm_stream = row[8] != 0;
        options.wire = static_cast<hd_wire_dtype>(row[9]);
        SCOPED_TRACE(std::string(pattern.name) + " of " + dtype + " on tp=" +
                     std::to_string(tp) + ", " + OptionText(options));
        LowersAndRuns({pattern, dtype, tp, 0}, options);
    }
}

TEST_P(Patterns, OverRowsInBlocksGiveTheDenseAnswer)
{
    if (DeviceOptions().graph && GetParam() != HD_TRANSFER_DIRECT &&
        GetParam() != HD_TRANSFER_RING)
        GTEST_SKIP() << "graphs of two pipelines are enough";
    const std::vector<int> sizes =
        Choose<int>({1, 2, 3, 5, 2, 3, 5, 8}, {1, 2, 3, 5});
    const std::vector<const char *> dtypes =
        Choose<const char *>({"f32", "f64", "bf16"}, {"f32", "bf16"});
    std::mt19937 random(Seed());
    const unsigned share = IsQuick() ? 16 : 6;
    unsigned n = unsigned(Seed() % share);

    for (const std::vector<int> &row :
         CoverPairs({BLOCKS, int(sizes.size()), 4, int(dtypes.size()), 2, 2, 2,
                     2, 2, 2},
                    random)) {
        if (n++ % share != 0)
            continue;

        const Pattern &pattern = kBlocks[row[0]];
        hd_lower_options options = OptionsOf(GetParam());
        int axes = HasTwoAxes(pattern) ? 2 : 1;
        int tp = std::min(sizes[size_t(row[1])], MostRanks() / axes);
        const int rows[] = {1, std::max(1, tp - 1), 13, IsQuick() ? 17 : 4093};

        if (!HasDevices(axes))
            continue;
        options.streams = 1 + row[4];
        options.protocol = static_cast<hd_protocol>(row[5]);
        options.copy_own = row[6] != 0;
        options.defer_sends = row[7] != 0;
        options.comm_stream = row[8] != 0;
        options.wire = static_cast<hd_wire_dtype>(row[9]);
        Drawn drawn = {pattern, dtypes[size_t(row[3])], tp, rows[row[2]]};
        SCOPED_TRACE(std::string(pattern.name) + " of " + drawn.dtype + ", " +
                     std::to_string(drawn.rows) + " rows on tp=" +
                     std::to_string(tp) + ", " + OptionText(options));
        LowersAndRuns(drawn, options);
    }
}

// What each rank has of so many rows would err by more, rounded by itself, than
// the sum may.
TEST(Blocks, AreSummedWithOneRounding)
{
    const Pattern *pattern = kBlocks;

    while (strcmp(pattern->name, "over_rows") != 0)
        pattern++;
    for (const char *dtype : {"bf16", "f16"})
        if (HasDevices(1))
            LowersAndRuns({*pattern, dtype, std::min(4, MostRanks()), 1021},
                          OptionsOf(HD_TRANSFER_BULK));
}

INSTANTIATE_TEST_SUITE_P(All, Patterns, testing::Range(0, 6), TransferName);

} // namespace
