// The five pipelines with every option on rank processes, against the dense
// answer of the tensor program: new inputs at new addresses in every run, so
// that whatever a run leaves behind shows. Under HEDDLE_CHAOS, which delays
// every stream at random, each answer is bit for bit the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/mman.h>

#include "base/status.h"
#include "tests/device/device.h"
#include "tests/unit/ranks.h"

namespace
{

const int kRuns = 3;

// A gather that feeds two matmuls and an activation; 12 rows split into up to 3
// chunks. $ is the dtype.
const char *const kProgram =
    "heddle 1 tensor program pipeline mesh tp=4\n"
    "in %a : $[size tp @tp, 12, 16] in %w : $[10, 16] in %bias : $[10]\n"
    "in %v : $[size tp @tp, 16, 6]\n"
    "temp %ag : $[size tp @stream, 12, 16]\n"
    "temp %u : $[size tp @stream, 12, 10]\n"
    "out %c : $[size tp @stream, 12, 10]\n"
    "out %d : $[size tp @tp, size tp @stream, 12, 6]\n"
    "{ %ag = set %a %u = matmul %ag, %w tb bias %bias %c = gelu %u\n"
    "  %d = matmul %ag, %v }\n";

struct ModuleDeleter {
    void operator()(hd_module *module) const
    {
        hd_module_destroy(module);
    }
};
using Module = std::unique_ptr<hd_module, ModuleDeleter>;

Module Parse(std::string text, const std::string &dtype, int ranks)
{
    hd_define size = {"tp", ranks};
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    for (size_t at; (at = text.find('$')) != std::string::npos;)
        text.replace(at, 1, dtype);
    EXPECT_EQ(hd_parse("pipeline.hd", text.data(), text.size(), &size, 1, diag,
                       &module),
              HD_OK)
        << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return Module(module);
}

// The dense answers to kRuns sets of inputs, made once for all options.
struct Expected {
    Module tensor;
    std::vector<Arguments> arguments;
    std::vector<hd_reference *> reference;

    Expected(const std::string &dtype, int ranks, unsigned seed)
        : tensor(Parse(kProgram, dtype, ranks))
    {
        for (int run = 0; run < kRuns; run++) {
            hd_reference *made = nullptr;

            arguments.emplace_back(tensor.get(), seed + unsigned(run));
            EXPECT_EQ(hd_reference_create(tensor.get(),
                                          arguments[run].Whole().data(),
                                          nullptr, &made),
                      HD_OK);
            reference.push_back(made);
        }
    }
    ~Expected()
    {
        for (hd_reference *made : reference)
            hd_reference_destroy(made);
    }
};

hd_status RunAll(hd_group *group, const hd_module *module,
                 const Expected &expected, hd_diag *diag)
{
    hd_session *session = nullptr;
    hd_session_options options = DeviceOptions();
    hd_stats first = {}, last = {};

    HD_TRY(hd_session_create(group, module, &options, diag, &session));
    for (int run = 0; run < kRuns; run++) {
        HD_TRY(RunAndCompare(session, module, expected.arguments[run],
                             expected.reference[run], hd_group_rank(group),
                             diag));
        hd_session_stats(session, run == 0 ? &first : &last);
    }
    hd_session_destroy(session);
    // From the second run on nothing is allocated and nothing exchanged.
    return last.allocations == first.allocations &&
                   last.handle_exchanges == first.handle_exchanges
               ? HD_OK
               : HD_INVALID;
}

void Runs(const Expected &expected, const std::string &dtype, int ranks,
          const hd_lower_options &options)
{
    Module module = Parse(kProgram, dtype, ranks);
    hd_diag *diag = hd_diag_create();

    ASSERT_EQ(hd_lower(module.get(), &options, nullptr, nullptr, diag), HD_OK)
        << hd_diag_text(diag);
    ASSERT_EQ(hd_check(module.get(), diag), HD_OK) << hd_diag_text(diag);
    Outcome outcome = Launch(ranks, [&](hd_group *group, hd_diag *said) {
        return RunAll(group, module.get(), expected, said);
    });
    EXPECT_EQ(outcome.status, HD_OK)
        << outcome.text << "transfer " << options.transfer << " protocol "
        << options.protocol << " streams " << options.streams << " chunks "
        << options.chunks << " copy_own " << options.copy_own << " defer_sends "
        << options.defer_sends;
    hd_diag_destroy(diag);
}

unsigned Seed()
{
    unsigned seed = std::random_device()();

    printf("seed %u\n", seed);
    return seed;
}

class Pipelines : public testing::TestWithParam<int>
{
};

TEST_P(Pipelines, GiveTheDenseAnswerWithEveryOption)
{
    Expected expected("f32", 4, Seed());
    hd_lower_options options = hd_lower_defaults();

    options.transfer = static_cast<hd_transfer>(GetParam());
    for (int protocol = 0; protocol < 2; protocol++)
        for (options.streams = 1; options.streams <= 4; options.streams++)
            for (options.chunks = 1; options.chunks <= 3; options.chunks++) {
                options.protocol = static_cast<hd_protocol>(protocol);
                options.copy_own = options.chunks == 2;
                options.defer_sends = (options.streams + options.chunks) % 2;
                // One number of chunks each, and all of them with either.
                if (!IsQuick() ||
                    (options.streams + protocol) % 3 + 1 == options.chunks)
                    Runs(expected, "f32", 4, options);
            }
}

TEST_P(Pipelines, GiveTheDenseAnswerOnEveryNumberOfRanks)
{
    for (int ranks : Choose<int>({1, 2, 3, 5, 8}, {1, 2, 3})) {
        Expected expected("bf16", ranks, Seed());
        hd_lower_options options = hd_lower_defaults();

        options.transfer = static_cast<hd_transfer>(GetParam());
        options.chunks = ranks % 3 + 1;
        Runs(expected, "bf16", ranks, options);
    }
}

std::string TransferName(const testing::TestParamInfo<int> &info)
{
    static const char *const names[] = {"bulk", "pipelined", "broadcast",
                                        "direct", "ring"};

    return names[info.param];
}

INSTANTIATE_TEST_SUITE_P(All, Pipelines, testing::Range(0, 5), TransferName);

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
    const int kRanks = 4;
    Module module = Parse(kProgram, "f32", kRanks);
    Arguments arguments(module.get(), Seed());
    hd_lower_options options = hd_lower_defaults();
    // Shared with the ranks, which are processes: a hash a rank and run.
    uint64_t *hash =
        static_cast<uint64_t *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    uint64_t *mine = hash;

    ASSERT_NE(hash, MAP_FAILED);
    options.streams = 3;
    options.chunks = 2;
    ASSERT_EQ(hd_lower(module.get(), &options, nullptr, nullptr, nullptr),
              HD_OK);
    for (const char *seed : {"", "1", "2", "77"}) {
        if (*seed != '\0')
            setenv("HEDDLE_CHAOS", seed, 1);
        Outcome outcome = Launch(kRanks, [&](hd_group *group, hd_diag *diag) {
            return RunAndHash(group, module.get(), arguments, mine, diag);
        });
        EXPECT_EQ(outcome.status, HD_OK) << outcome.text;
        for (int rank = 0; rank < kRanks; rank++) {
            EXPECT_NE(mine[rank], 0u);
            EXPECT_EQ(mine[rank], hash[rank]) << "seed " << seed;
        }
        mine += kRanks;
    }
    unsetenv("HEDDLE_CHAOS");
    munmap(hash, 4096);
}

} // namespace
