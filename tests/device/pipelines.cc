// The pipelines with every pair of options on rank processes, against the
// dense answer of the tensor program: new inputs at new addresses in every run,
// so that whatever a run leaves behind shows. Under HEDDLE_CHAOS, which delays
// every stream at random, each answer is bit for bit the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "base/status.h"
#include "tests/device/options.h"
#include "tests/draw.h"
#include "tests/unit/ranks.h"

namespace
{

const int kRuns = 3;

// A gather that feeds two matmuls and an activation; 12 rows split into up to 3
// chunks. $ is the dtype.
const char *const kProgram =
    "heddle 2 tensor program pipeline mesh tp=4\n"
    "in %a : $[size tp @tp, 12, 16] in %w : $[10, 16] in %bias : $[10]\n"
    "in %v : $[size tp @tp, 16, 6]\n"
    "temp %ag : $[size tp @stream, 12, 16]\n"
    "temp %u : $[size tp @stream, 12, 10]\n"
    "out %c : $[size tp @stream, 12, 10]\n"
    "out %d : $[size tp @tp, size tp @stream, 12, 6]\n"
    "{ %ag = set %a %u = matmul %ag, %w tb bias %bias %c = gelu %u\n"
    "  %d = matmul %ag, %v }\n";

// Five tiles of every collective: of partial sums that a product makes, to all
// and to each its part; gathered ahead of a product, and behind the tiles; a
// dimension that changes its axis.
const char *const kTiles =
    "heddle 2 tensor program tiles mesh tp=4\n"
    "in %a : $[size tp @tp, 5 @stream, size tp, 6, 16]\n"
    "in %w : $[size tp @tp, 1, 1, 16, 10]\n"
    "in %g : $[5, size tp @tp, 6, 8] in %v : $[8, 4]\n"
    "in %x : $[5, size tp @tp, size tp, 3]\n"
    "temp %p : $[size tp @tp, 5 @stream, size tp, 6, 10]\n"
    "temp %s : $[5 @stream, size tp @tp, 6, 10]\n"
    "temp %r : $[5, size tp, 6, 10]\n"
    "temp %h : $[5 @stream, size tp, 6, 8]\n"
    "temp %y : $[5 @stream, size tp, size tp @tp, 3]\n"
    "out %c : $[5 @stream, size tp @tp, 6, 10]\n"
    "out %d : $[5 @stream, size tp, 6, 10]\n"
    "out %e : $[5 @stream, size tp, 6, 4]\n"
    "out %f : $[5 @stream, size tp, size tp @tp, 3]\n"
    "{ %p = matmul %a, %w %s = sum %p dim 0 %c = gelu %s %r = sum %p dim 0\n"
    "  %d = relu %r %h = set %g %e = matmul %h, %v %y = set %x %f = relu %y "
    "}\n";

// Memory that is held from run to run moves the arguments of the next ones.
hd_status RunAll(hd_group *group, const hd_module *module,
                 const Expected &expected, int runs, hd_diag *diag)
{
    std::vector<void *> held;
    hd_session *session = nullptr;
    hd_session_options options = DeviceOptions();
    hd_stats first = HD_EMPTY(hd_stats), last = HD_EMPTY(hd_stats);

    HD_TRY(hd_session_create(group, module, &options, diag, &session));
    for (int run = 0; run < runs; run++) {
        HD_TRY(RunAndCompare(session, module, expected, run,
                             hd_group_rank(group), diag));
        hd_session_stats(session, run == 0 ? &first : &last);
        held.push_back(nullptr);
        HD_TRY(hd_session_alloc(session, 1 << 20, diag, &held.back()));
    }
    for (void *memory : held)
        hd_session_free(session, memory);
    hd_session_destroy(session);
    // From the second run on nothing is allocated and nothing exchanged.
    RANK_EXPECT(last.allocations == first.allocations);
    RANK_EXPECT(last.handle_exchanges == first.handle_exchanges);
    // No run did without the graph that it was to be.
    RANK_EXPECT(hd_diag_count(diag) == 0 ||
                strstr(hd_diag_text(diag), "is done as its parts") != nullptr);
    return HD_OK;
}

void RunsOf(const char *text, const Expected &expected,
            const std::string &dtype, int ranks,
            const hd_lower_options &options, int runs = kRuns)
{
    Module module = Parse(text, dtype, ranks);
    hd_diag *diag = hd_diag_create();

    ASSERT_EQ(hd_lower(module.get(), &options, nullptr, nullptr, diag), HD_OK)
        << hd_diag_text(diag);
    ASSERT_EQ(CheckHere(module.get(), diag), HD_OK) << hd_diag_text(diag);
    Outcome outcome = Launch(ranks, [&](hd_group *group, hd_diag *said) {
        return RunAll(group, module.get(), expected, runs, said);
    });
    EXPECT_EQ(outcome.status, HD_OK) << outcome.text << OptionText(options);
    hd_diag_destroy(diag);
}

void Runs(const Expected &expected, const std::string &dtype, int ranks,
          const hd_lower_options &options, int runs = kRuns)
{
    RunsOf(kProgram, expected, dtype, ranks, options, runs);
}

class Pipelines : public testing::TestWithParam<int>
{
};

TEST_P(Pipelines, GiveTheDenseAnswerWithEveryPairOfOptions)
{
    std::mt19937 random(Seed());
    const int ranks = std::min(4, MostRanks());
    // The dense answers, made once for all options.
    Module tensor = Parse(kProgram, "f32", ranks);
    Expected expected(tensor.get(), kRuns, Seed());
    const std::vector<int> streams = Choose<int>({1, 2, 3, 4}, {1, 2, 4});
    const int chunks = IsQuick() ? 2 : 3;

    for (const std::vector<int> &row :
         CoverPairs({2, int(streams.size()), chunks, 2, 2, 2}, random)) {
        hd_lower_options options = OptionsOf(GetParam());

        options.protocol = static_cast<hd_protocol>(row[0]);
        options.streams = streams[size_t(row[1])];
        options.chunks = 1 + row[2];
        options.copy_own = row[3] != 0;
        options.defer_sends = row[4] != 0;
        options.comm_stream = row[5] != 0;
        Runs(expected, "f32", ranks, options);
    }
}

TEST_P(Pipelines, GiveTheDenseAnswerOnEveryNumberOfRanks)
{
    for (int ranks : Choose<int>({1, 2, 3, 5, 8}, {1, 2, 3})) {
        if (ranks > MostRanks())
            break;
        Module tensor = Parse(kProgram, "bf16", ranks);
        Expected expected(tensor.get(), kRuns, Seed());
        hd_lower_options options = OptionsOf(GetParam());

        options.chunks = ranks % 3 + 1;
        options.comm_stream = ranks % 2 != 0;
        options.defer_sends = true;
        Runs(expected, "bf16", ranks, options);
    }
}

// Blocks of keys in order, one made of what is gathered, the results of which
// are narrower than what they are added up in, and of two sequences from both
// ends, each rank's rows once in front and once behind: a rank sees all, none
// or a triangle of a block.
const char *const kBlocks =
    "heddle 2 tensor program blocks mesh tp=4\n"
    "in %q : bf16[size tp @tp, 6, 9, 8] in %k : bf16[size tp @tp, 3, 9, 8]\n"
    "in %v : bf16[size tp @tp, 3, 9, 5] out %o : bf16[size tp @tp, 6, 9, 5]\n"
    "out %l : f32[size tp @tp, 6, 9]\n"
    "temp %kg : bf16[size tp @stream, 3, 9, 8]\n"
    "temp %kn : bf16[size tp @stream, 3, 9, 8]\n"
    "temp %vg : bf16[size tp @stream, 3, 9, 5]\n"
    "in %x : $[size tp @tp, 2, 2, 7, 4] in %y : $[2, size tp @tp, 2, 2, 7, 4]\n"
    "temp %yg : $[2, size tp @stream, 2, 2, 7, 4]\n"
    "inout %a : $[size tp @tp, 2, 2, 7, 4] inout %b : f32[size tp @tp, 2, 2, "
    "7]\n"
    "temp %c : $[size tp @tp, 2, 2, 7, 4] temp %d : f32[size tp @tp, 2, 2, 7]\n"
    "out %e : $[size tp @tp, 2, 2, 7, 4] out %f : f32[size tp @tp, 2, 2, 7]\n"
    "{ %kg = set %k %vg = set %v %kn = tanh %kg\n"
    "  %o, %l = attention %q, %kn, %vg blocks causal 9 * tp window 12\n"
    "  %yg = set %y\n"
    "  %a, %b = attention %x, %yg[:, :, 0], %yg[:, :, 0] accumulate blocks "
    "causal 7 * tp\n"
    "  %c, %d = attention %x, %yg[:, :, 1], %yg[:, :, 1] scale 0.25 blocks "
    "causal -7 * tp step 7\n"
    "  %e, %f = merge %a, %b, %c, %d }\n";

// Blocks of a sequence in zigzag, which a rank holds in order and from the
// other end: then the first to come may be behind half of its rows. Gradients
// go back.
const char *const kZigzag =
    "heddle 2 tensor program zigzag mesh tp=2\n"
    "in %q : $[size tp @tp, 2, 6, 8, 6] in %k : $[2, size tp @tp, 3, 8, 6]\n"
    "in %v : $[2, size tp @tp, 3, 8, 5] in %g : $[size tp @tp, 2, 6, 8, 5]\n"
    "temp %kg : $[2, size tp @stream, 3, 8, 6]\n"
    "temp %vg : $[2, size tp @stream, 3, 8, 5]\n"
    "temp %kh : $[2, size tp @stream, 3, 8, 6]\n"
    "temp %vh : $[2, size tp @stream, 3, 8, 5]\n"
    "temp %ki : $[2, size tp @stream, 3, 8, 6]\n"
    "temp %vi : $[2, size tp @stream, 3, 8, 5]\n"
    "out %o : f32[size tp @tp, 2, 6, 8, 5] out %l : f32[size tp @tp, 2, 6, 8]\n"
    "out %p : $[size tp @tp, 2, 6, 8, 5] out %m : f32[size tp @tp, 2, 6, 8]\n"
    "out %a : $[size tp @tp, 2, 6, 8, 6]\n"
    "temp %bs : f32[size tp @tp, 2, size tp @stream, 3, 8, 6]\n"
    "temp %cs : f32[size tp @tp, 2, size tp @stream, 3, 8, 5]\n"
    "out %b : f32[2, size tp @tp, 3, 8, 6]\n"
    "out %c : f32[2, size tp @tp, 3, 8, 5]\n"
    "{ %kg = set %k %vg = set %v\n"
    "  %o, %l = attention %q, %kg, %vg blocks zigzag tp\n"
    "  %kh = set %k %vh = set %v\n"
    "  %p, %m = attention %q, %kh, %vh blocks zigzag size tp - 1 - tp\n"
    "  %ki = set %k %vi = set %v\n"
    "  %a, %bs, %cs = attention_grad %q, %ki, %vi, %o, %l, %g blocks zigzag "
    "tp\n"
    "  %b = sum %bs dim 0\n"
    "  %c = sum %cs dim 0 }\n";

void AttendTo(const char *program, const char *dtype, int transfer)
{
    std::mt19937 random(Seed());

    for (int ranks : Choose<int>({1, 2, 3, 5, 8}, {1, 2, 3})) {
        if (ranks > MostRanks())
            break;
        Module tensor = Parse(program, dtype, ranks);
        Expected expected(tensor.get(), kRuns, Seed());
        hd_lower_options options = OptionsOf(transfer);

        options.protocol = static_cast<hd_protocol>(Between(0, 1, random));
        options.streams = Between(1, 3, random);
        options.copy_own = Between(0, 1, random) != 0;
        options.comm_stream = ranks % 2 != 0;
        options.defer_sends = Between(0, 1, random) != 0;
        RunsOf(program, expected, dtype, ranks, options);
    }
}

TEST_P(Pipelines, AttendToBlocksOnEveryNumberOfRanks)
{
    AttendTo(kBlocks, "f32", GetParam());
}

TEST_P(Pipelines, AttendToBlocksInZigzagOnEveryNumberOfRanks)
{
    AttendTo(kZigzag, "bf16", GetParam());
}

// Each fused form, an axis between others, and what its matmul does besides.
const char *const kFused =
    "heddle 2 tensor program fused mesh tp=4\n"
    "in %a : $[size tp @tp, 6, 10] in %w : $[8, 10] in %bias : $[8]\n"
    "in %b : $[size tp @tp, size tp, 3, 8] in %v : $[size tp @tp, 1, 5, 8]\n"
    "temp %ag : $[size tp @stream, 6, 10]\n"
    "out %c : $[size tp @stream, 6, 8]\n"
    "temp %p : $[size tp @tp, size tp, 3, 5] out %d : $[size tp @tp, 3, 5]\n"
    "temp %q : $[size tp @tp, size tp, 3, 5] out %e : $[size tp, 3, 5]\n"
    "{ %ag = set %a %c = matmul %ag, %w tb scale 0.5 bias %bias act gelu\n"
    "  %p = matmul %b, %v tb %d = sum %p dim 0\n"
    "  %q = matmul %b, %v tb scale 2.0 %e = sum %q dim 0 }\n";

// A provider takes those of 16 bits, and no axis of one rank.
TEST(Fused, GivesTheDenseAnswerOnEveryNumberOfRanks)
{
    for (int ranks : Choose<int>({1, 2, 3, 4, 5, 8}, {1, 2, 3}))
        for (const char *name : {"bf16", "f16", "f32", "f64"}) {
            const std::string dtype = name;

            if (ranks > MostRanks())
                continue;
            Module tensor = Parse(kFused, dtype, ranks);
            Expected expected(tensor.get(), kRuns, Seed());

            RunsOf(kFused, expected, dtype, ranks,
                   OptionsOf(HD_TRANSFER_FUSED));
        }
}

TEST(Tiles, GiveTheDenseAnswerOnEveryNumberOfRanks)
{
    for (int most : Choose<int>({1, 2, 3, 4, 5}, {2, 3})) {
        int ranks = std::min(most, MostRanks());
        Module tensor = Parse(kTiles, "f32", ranks);
        Expected expected(tensor.get(), kRuns, Seed());

        for (int streams : Choose<int>({1, 2, 3}, {2}))
            for (int comm = 0; comm < 2; comm++) {
                hd_lower_options options = OptionsOf(HD_TRANSFER_RING);

                options.streams = streams;
                options.comm_stream = comm != 0;
                RunsOf(kTiles, expected, "f32", ranks, options);
            }
        RunsOf(kTiles, expected, "f32", ranks, OptionsOf(HD_TRANSFER_BULK));
    }
}

INSTANTIATE_TEST_SUITE_P(All, Pipelines, testing::Range(0, 6), TransferName);

// More sets than are kept of anything, all at once in use.
TEST(Addresses, OfTenRunsAreTenSets)
{
    const int ranks = std::min(2, MostRanks()), runs = 10;
    Module tensor = Parse(kProgram, "bf16", ranks);
    Expected expected(tensor.get(), runs, Seed());
    hd_lower_options options = OptionsOf(HD_TRANSFER_DIRECT);

    options.comm_stream = options.defer_sends = true;
    Runs(expected, "bf16", ranks, options, runs);
}

hd_status RunAndHash(hd_group *group, const hd_module *module,
                     const Arguments &arguments, uint64_t *hash, hd_diag *diag)
{
    int rank = hd_group_rank(group);
    hd_session *session = nullptr;
    hd_session_options options = DeviceOptions();

    HD_TRY(hd_session_create(group, module, &options, diag, &session));
    {
        Shards shards(session);

        HD_TRY(shards.Put(arguments, module, rank, diag));
        HD_TRY(shards.Run(diag));
        HD_TRY(shards.Get(diag));
        hash[rank] = shards.Hash();
    }
    hd_session_destroy(session);
    return HD_OK;
}

TEST(Chaos, DelaysChangeNoBit)
{
    const int ranks = std::min(4, MostRanks());
    Module module = Parse(kProgram, "f32", ranks);
    Arguments arguments(module.get(), Seed());
    hd_lower_options options = OptionsOf(HD_TRANSFER_RING);
    // Shared with the ranks, which are processes: a hash a rank and run.
    uint64_t *hash =
        static_cast<uint64_t *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    uint64_t *mine = hash;

    ASSERT_NE(hash, MAP_FAILED);
    options.streams = 3;
    options.chunks = 2;
    options.comm_stream = options.defer_sends = true;
    ASSERT_EQ(hd_lower(module.get(), &options, nullptr, nullptr, nullptr),
              HD_OK);
    for (const char *seed : {"", "1", "2", "77"}) {
        if (*seed != '\0')
            setenv("HEDDLE_CHAOS", seed, 1);
        AllEndWell(Launch(ranks, [&](hd_group *group, hd_diag *diag) {
            return RunAndHash(group, module.get(), arguments, mine, diag);
        }));
        for (int rank = 0; rank < ranks; rank++) {
            EXPECT_NE(mine[rank], 0u);
            EXPECT_EQ(mine[rank], hash[rank]) << "seed " << seed;
        }
        mine += ranks;
    }
    unsetenv("HEDDLE_CHAOS");
    munmap(hash, 4096);
}

} // namespace
