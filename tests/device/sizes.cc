// Programs that each run is given sizes: one session, whose runs have lengths
// drawn anew, among them those at which ranks have nothing.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "tests/device/options.h"
#include "tests/sanitized.h"
#include "tests/unit/ranks.h"
#include "tests/words.h"

namespace
{

const int64_t kHigh = 61;

// An all-gather before a product, one after it, and both as a layer of an MLP.
const char *const kPrograms[] = {
    "heddle 2 tensor program gather param m in 0..61 mesh tp=2 "
    "in %x : $[m @tp, 12] in %w : $[size tp @tp, 12, 6] "
    "out %y : $[size tp @tp, m in size tp @stream, 6] "
    "temp %g : $[m in size tp @stream, 12] { "
    "%g = set %x %y = matmul %g, %w act gelu }",
    "heddle 2 tensor program scatter param m in 0..61 mesh tp=2 "
    "in %h : $[size tp @tp, m in size tp @stream, 5] "
    "in %w : $[size tp @tp, 5, 7] out %y : $[m @tp, 7] "
    "temp %p : $[size tp @tp, m in size tp @stream, 7] { "
    "%p = matmul %h, %w %y = sum %p dim 0 }",
    "heddle 2 tensor program mlp param m in 0..61 mesh tp=2 "
    "in %x : $[m @tp, 8] in %u : $[size tp @tp, 8, 6] "
    "in %v : $[size tp @tp, 6, 8] out %y : $[m @tp, 8] "
    "temp %g : $[m in size tp @stream, 8] "
    "temp %h : $[size tp @tp, m in size tp @stream, 6] "
    "temp %p : $[size tp @tp, m in size tp @stream, 8] "
    "temp %s : $[m @tp, 8] { "
    "%g = set %x %h = matmul %g, %u act silu %p = matmul %h, %v "
    "%s = sum %p dim 0 %y = add %s, %x }",
    "heddle 2 tensor program reductions param m in 0..61 mesh tp=2 "
    "in %x : $[m @tp, 8] out %s : $[8] out %a : $[m, 8] out %g : $[8, 8] "
    "out %r : $[m @tp] temp %q : $[m @tp, 8] { "
    "%q = exp %x %s = sum %q dim 0 %a = set %q %r = max %q dim 1 "
    "%g = matmul %a, %a ta }"};

Module Lowered(const char *text, const char *dtype, int ranks,
               hd_transfer transfer)
{
    Module module = Parse(text, dtype, ranks);
    hd_lower_options options = hd_lower_defaults();
    hd_diag *diag = hd_diag_create();

    options.transfer = transfer;
    options.asked = 0;
    options.transport = DeviceOptions().transport;
    EXPECT_EQ(hd_lower(module.get(), &options, nullptr, nullptr, diag), HD_OK)
        << hd_diag_text(diag);
    EXPECT_EQ(CheckHere(module.get(), diag), HD_OK) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return module;
}

// Memory for the greatest size, and what a run makes of it at another.
class SizedRun
{
  public:
    // Resizes a copy of the module, which ranks may have in common.
    SizedRun(hd_session *session, const hd_module *module, int rank)
        : session_(session), rank_(rank)
    {
        EXPECT_EQ(hd_module_clone(module, nullptr, &module_), HD_OK);
    }
    SizedRun(const SizedRun &) = delete;
    SizedRun &operator=(const SizedRun &) = delete;
    ~SizedRun()
    {
        hd_module_destroy(module_);
    }

    hd_status RunAndCompare(int64_t m, unsigned seed, hd_diag *diag)
    {
        HD_TRY(hd_module_resize(module_, &m, 1, diag));
        Expected expected(module_, 1, seed);
        if (shards_ == nullptr) {
            shards_ = std::make_unique<Shards>(session_);
            HD_TRY(shards_->Put(expected.Inputs(0), module_, rank_, diag));
        }
        HD_TRY(shards_->Set(expected.Inputs(0), module_, rank_, diag));
        HD_TRY(Run(m, diag));
        HD_TRY(shards_->Get(diag));
        return Compare(*shards_, expected, expected, 0, rank_);
    }

    hd_status Run(int64_t m, hd_diag *diag)
    {
        hd_run_options with = HD_EMPTY(hd_run_options);
        std::vector<void *> address;

        for (size_t i = 0; i < shards_->Count(); i++)
            address.push_back(shards_->Address(i));
        with.stream = OwnStream();
        with.sizes = &m;
        with.nsizes = 1;
        return hd_session_run(session_, address.data(), address.size(), &with,
                              diag);
    }

    hd_session *Session() const
    {
        return session_;
    }
    int Rank() const
    {
        return rank_;
    }

  private:
    hd_session *session_;
    hd_module *module_ = nullptr; // owned
    int rank_;
    std::unique_ptr<Shards> shards_;
};

// Each rank opens a session, and `body` runs it. The memory that it takes goes
// before the session does.
void RunSessions(const Module &module, int ranks,
                 const hd_session_options &options,
                 const std::function<hd_status(SizedRun &, hd_diag *)> &body)
{
    AllEndWell(Launch(ranks, [&](hd_group *group, hd_diag *said) {
        hd_session *session = nullptr;
        hd_status status;

        HD_TRY(
            hd_session_create(group, module.get(), &options, said, &session));
        {
            SizedRun run(session, module.get(), hd_group_rank(group));

            status = body(run, said);
        }
        hd_session_destroy(session);
        return status;
    }));
}

std::vector<int64_t> DrawSizes(int ranks, std::mt19937 &random)
{
    std::vector<int64_t> sizes = {kHigh, 0, 1, ranks - 1, ranks + 1};

    for (int i = 0; i < (IsQuick() ? 3 : 10); i++)
        sizes.push_back(1 + int64_t(random() % uint64_t(kHigh)));
    std::shuffle(sizes.begin(), sizes.end(), random);
    return sizes;
}

void RunAllSizes(const char *text, const char *dtype, int ranks,
                 hd_transfer transfer, std::mt19937 &random)
{
    Module module = Lowered(text, dtype, ranks, transfer);
    std::vector<int64_t> sizes = DrawSizes(ranks, random);
    unsigned seed = unsigned(random());

    RunSessions(
        module, ranks, DeviceOptions(), [&](SizedRun &run, hd_diag *said) {
            hd_status status = HD_OK;

            for (size_t i = 0; i < sizes.size() && status == HD_OK; i++) {
                status = run.RunAndCompare(sizes[i], seed + unsigned(i), said);
                if (status != HD_OK)
                    fprintf(stderr, "with m = %d\n", int(sizes[i]));
            }
            return status;
        });
}

TEST(Sizes, OfEachRunGiveTheDenseAnswer)
{
    std::mt19937 random(Seed());

    for (int ranks : Choose<int>({1, 2, 3, 5}, {2 + int(random() % 2)}))
        for (const char *text : kPrograms)
            for (hd_transfer transfer :
                 Choose<hd_transfer>({HD_TRANSFER_BULK, HD_TRANSFER_BROADCAST,
                                      HD_TRANSFER_DIRECT, HD_TRANSFER_RING},
                                     {HD_TRANSFER_BULK, HD_TRANSFER_DIRECT,
                                      HD_TRANSFER_RING})) {
                SCOPED_TRACE(std::string(text) + ", " + std::to_string(ranks) +
                             " ranks, transfer " + std::to_string(transfer));
                if (HasDevices(ranks))
                    RunAllSizes(text, random() % 2 == 0 ? "f32" : "bf16", ranks,
                                transfer, random);
            }
}

// Of one row, as of one product, strides are what they need not be elsewhere:
// such a run may be done in a way that the greatest is not.
TEST(Sizes, OfOneRowHaveAWayOfTheirOwn)
{
    const char *const texts[] = {
        "heddle 2 host program rows param m in 0..200 mesh tp=1 in %a : $[m, "
        "64] "
        "in %b : $[64, 200] out %c : $[m, 200] { "
        "%c[:, 0..100] = matmul %a, %b[:, 0..100] "
        "%c[:, 100..200] = matmul %a, %b[:, 0..100] }",
        "heddle 2 host program batch param m in 0..3 mesh tp=1 "
        "in %a : $[m, 4, 64, 64] in %b : $[m, 4, 64, 64] "
        "inout %c : $[m, 4, 64, 64] { %c[:, 0..2, :, :] = "
        "matmul %a[:, 0..2, :, :], %b[:, 0..2, :, :] accumulate }"};

    for (const char *text : texts) {
        Module module = Parse(text, "bf16", 1);

        RunSessions(module, 1, DeviceOptions(),
                    [&](SizedRun &run, hd_diag *said) {
                        HD_TRY(run.RunAndCompare(1, Seed(), said));
                        HD_TRY(run.RunAndCompare(3, Seed(), said));
                        HD_TRY(run.RunAndCompare(0, Seed(), said));
                        return run.RunAndCompare(1, Seed(), said);
                    });
    }
}

long Resident()
{
    std::ifstream file("/proc/self/statm");
    long total = 0, resident = 0;

    file >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

// Of many runs in a row none makes the device allocate or a rank ask another,
// and the lists of lengths take turns in memory that is there.
TEST(Sizes, DrawnForEachOfManyRunsNeedNothingNew)
{
    const int runs = IsQuick() ? 120 : 1500, settled = 50;
    const int64_t high = 4096;
    std::mt19937 random(Seed());
    std::string text =
        Replaced(kPrograms[2], "0..61", "0.." + std::to_string(high));
    Module module = Lowered(text.c_str(), "f32", 2, HD_TRANSFER_RING);
    unsigned seed = unsigned(random());

    if (!HasDevices(2))
        return;
    RunSessions(module, 2, DeviceOptions(), [&](SizedRun &run, hd_diag *said) {
        hd_session *session = run.Session();
        hd_stats before = HD_EMPTY(hd_stats), after = HD_EMPTY(hd_stats);
        std::mt19937 same(seed);
        long resident = 0;

        HD_TRY(run.RunAndCompare(high, 1, said));
        for (int i = 0; i < runs; i++) {
            if (i == settled) {
                HD_TRY(hd_session_finish(session, said));
                hd_session_stats(session, &before);
                resident = Resident();
            }
            HD_TRY(run.Run(1 + int64_t(same() % uint64_t(high)), said));
        }
        HD_TRY(hd_session_finish(session, said));
        hd_session_stats(session, &after);
        RANK_EXPECT(after.allocations == before.allocations);
        RANK_EXPECT(after.handle_exchanges == before.handle_exchanges);
#ifndef HD_TEST_SANITIZED
        // Of two that are threads the first to be here compares already.
        RANK_EXPECT(RanksAreThreads() || Resident() - resident < 1 << 20);
#else
        (void)resident;
#endif
        return run.RunAndCompare(7, 2, said);
    });
}

TEST(Sizes, OutOfTheirRangeAreRefusedAndTheSessionGoesOn)
{
    Module module = Lowered(kPrograms[0], "f32", 2, HD_TRANSFER_RING);

    if (!HasDevices(2))
        return;
    RunSessions(module, 2, DeviceOptions(), [&](SizedRun &run, hd_diag *said) {
        hd_diag *diag = hd_diag_create();

        HD_TRY(run.RunAndCompare(5, 1, said));
        RANK_EXPECT(run.Run(kHigh + 1, diag) == HD_ERROR_ARGUMENT);
        RANK_EXPECT(strstr(hd_diag_text(diag),
                           "m is 62, and of 'gather' it is in 0..61"));
        hd_diag_clear(diag);
        RANK_EXPECT(hd_session_run(run.Session(), nullptr, 0, nullptr, diag) ==
                    HD_ERROR_ARGUMENT);
        RANK_EXPECT(run.Run(-1, diag) == HD_ERROR_ARGUMENT);
        hd_diag_destroy(diag);
        return run.RunAndCompare(6, 2, said);
    });
}

TEST(Sizes, OtherOnesOnOtherRanksAreToldByName)
{
    Module module = Lowered(kPrograms[0], "f32", 2, HD_TRANSFER_RING);
    hd_session_options options = DeviceOptions();

    if (!HasDevices(2))
        return;
    options.timeout = 20;
    RunSessions(module, 2, options, [&](SizedRun &run, hd_diag *said) {
        hd_diag *diag = hd_diag_create();
        hd_status status;

        HD_TRY(run.RunAndCompare(5, 1, said));
        status = run.Run(40 + run.Rank(), diag);
        if (status == HD_OK)
            status = hd_session_finish(run.Session(), diag);
        RANK_EXPECT(status != HD_OK);
        RANK_EXPECT(strstr(hd_diag_text(diag), "m is 4"));
        RANK_EXPECT(strstr(hd_diag_text(diag), "on rank "));
        hd_diag_destroy(diag);
        return HD_OK;
    });
}

} // namespace
