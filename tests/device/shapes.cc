// Sessions of many shapes in one group: they share its memory, so each run
// finds in its temporaries what another left, is next to a peer that is still
// at the run before, and sees sessions come and go. What comes out is exact,
// and nothing grows.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

#include "tests/device/device.h"
#include "tests/unit/memory.h"
#include "tests/unit/ranks.h"

namespace
{

constexpr int kRanks = 3;
constexpr int kKinds = 5;

// Programs on %z : i32[n], which both copy and send it: what a run makes of
// the ranks' numbers is said by Turn.
std::string TextOf(int kind, int n)
{
    const char *const bodies[kKinds] = {
        // Put, by a stream of its own.
        "{ fork\n on stream 0 { %s = copy %z\n group { send %s to (tp + 1) mod "
        "size tp\n %t = recv from (tp - 1) mod size tp } }\n"
        "on stream 1 { %u = add %z, %z }\n join\n %z = add %t, %u }",
        // Get.
        "{ %s = copy %z\n group { send %s to (tp + 1) mod size tp get\n"
        "%t = recv from (tp - 1) mod size tp get }\n"
        "%u = add %z, %z\n %z = add %t, %u }",
        // A result beside its operand.
        "{ %s = copy %z\n %s = all_reduce %s\n %z = add %s, %z }",
        "{ %g = all_gather %z\n %u = add %g[0], %g[1]\n"
        "%t = add %u, %g[2]\n %z = add %t, %z }",
        // A stream that begins by itself, and a send that none waits for.
        "{ %s = copy %z\n group { send %s to (tp + 1) mod size tp done %e[0]\n"
        "%t = recv from (tp - 1) mod size tp }\n wait %e[0]\n"
        "%e[1] = record\n on stream 0 { %u = fill value 3\n wait %e[1]\n"
        "%u = add %u, %t\n %z = add %u, %z\n %e[2] = record }\n"
        "wait %e[2] }"};
    std::string type = " : i32[" + std::to_string(n) + "]";

    return "heddle 2\nhost program shape\nmesh tp=3\nstreams 2\ninout %z" +
           type + "\ntemp %s" + type + " shared\ntemp %t" + type +
           " shared\ntemp %u" + type + "\ntemp %g : i32[3, " +
           std::to_string(n) + "] shared\ntemp %e : event[3]\n" + bodies[kind] +
           "\n";
}

void Turn(int kind, int n, std::vector<uint32_t> z[kRanks])
{
    for (int i = 0; i < n; i++) {
        uint32_t old[kRanks], sum = 0;

        for (int r = 0; r < kRanks; r++)
            sum += old[r] = z[r][i];
        for (int r = 0; r < kRanks; r++) {
            uint32_t left = old[(r + kRanks - 1) % kRanks];

            z[r][i] = kind < 2   ? left + 2 * old[r]
                      : kind < 4 ? sum + old[r]
                                 : left + 3 + old[r];
        }
    }
}

struct Shape {
    int kind, n;
    hd_module *module = nullptr;
    hd_session *session = nullptr;

    hd_status Open(hd_group *group, hd_diag *diag)
    {
        hd_session_options options = DeviceOptions();
        std::string text = TextOf(kind, n);

        HD_TRY(hd_parse("shape.hd", text.data(), text.size(), nullptr, 0, diag,
                        &module));
        HD_TRY(CheckHere(module, diag));
        return hd_session_create(group, module, &options, diag, &session);
    }
    Shape(int kind, int n) : kind(kind), n(n)
    {
    }
    Shape(const Shape &) = delete;
    Shape &operator=(const Shape &) = delete;
    ~Shape()
    {
        hd_session_destroy(session);
        hd_module_destroy(module);
    }
};

// What this process has.
struct Has {
    size_t resident, threads, descriptors, windows;
};

size_t CountLines(const char *file, const char *word, bool sum)
{
    char line[4096];
    size_t n = 0;
    FILE *stream = fopen(file, "r");

    while (stream != nullptr && fgets(line, sizeof line, stream) != nullptr) {
        const char *at = strstr(line, word);

        if (at != nullptr)
            n += sum ? size_t(atol(at + strlen(word))) : 1;
    }
    if (stream != nullptr)
        fclose(stream);
    return n;
}

Has Count()
{
    return {CountLines("/proc/self/status", "VmRSS:", true) << 10,
            CountLines("/proc/self/status", "Threads:", true),
            OpenDescriptors(), CountLines("/proc/self/maps", "/memfd:", false)};
}

// Lives that all ranks live alike: sessions come, run and go in random order.
class Lives
{
  public:
    Lives(hd_group *group, unsigned seed, int most, int largest, hd_diag *diag)
        : group_(group), random_(seed), own_(seed + 1 + hd_group_rank(group)),
          most_(most), largest_(largest), diag_(diag)
    {
        for (std::vector<uint32_t> &of_rank : want_)
            for (int i = 0; i < largest; i++)
                of_rank.push_back(uint32_t(random_()));
        z_ = want_[hd_group_rank(group)];
    }
    // Many small steps of each kind.
    hd_status Live(int steps)
    {
        for (int i = 0; i < steps; i++)
            HD_TRY(Step());
        return HD_OK;
    }
    hd_status Open(int kind, int n)
    {
        shapes_.push_back(std::make_unique<Shape>(kind, n));
        return shapes_.back()->Open(group_, diag_);
    }
    hd_status Run(size_t i)
    {
        void *arguments[] = {z_.data()};

        Turn(shapes_[i]->kind, shapes_[i]->n, want_);
        return hd_session_run(shapes_[i]->session, arguments, 1, nullptr,
                              diag_);
    }
    hd_status Finish()
    {
        for (auto &shape : shapes_)
            HD_TRY(hd_session_finish(shape->session, diag_));
        RANK_EXPECT(z_ == want_[hd_group_rank(group_)]);
        return HD_OK;
    }
    void Clear()
    {
        shapes_.clear();
    }
    size_t Alive() const
    {
        return shapes_.size();
    }
    Shape &At(size_t i)
    {
        return *shapes_[i];
    }

  private:
    hd_group *group_;
    std::mt19937 random_, own_; // of all ranks, and this one's own
    int most_, largest_;
    hd_diag *diag_;
    std::vector<uint32_t> want_[kRanks], z_;
    std::deque<std::unique_ptr<Shape>> shapes_;

    int Pick(int n)
    {
        return int(random_() % unsigned(n));
    }
    hd_status Step()
    {
        int what = Pick(8);

        if (shapes_.empty() || (what < 2 && int(shapes_.size()) < most_))
            return Open(Pick(kKinds), 1 + Pick(largest_ >> Pick(8)));
        size_t i = size_t(Pick(int(shapes_.size())));
        if (what < 4) { // its runs may be under way
            shapes_.erase(shapes_.begin() + long(i));
            return HD_OK;
        }
        if (own_() % 32 == 0)
            HD_TRY(hd_group_trim(group_, diag_));
        if (what == 7 && Pick(4) == 0)
            return Finish();
        return Run(i);
    }
};

int StepsOf(int quick, int usual)
{
    const char *lives = getenv("HEDDLE_TEST_LIVES");

    return lives != nullptr ? atoi(lives) : IsQuick() ? quick : usual;
}

// Rank 1 is slow, or all are, or none.
TEST(Shapes, ComeRunAndGoInAnyOrderBesideASlowPeer)
{
    if (!OnCpu() || !HasDevices(kRanks))
        return;
    for (int slow : {-1, 1, kRanks}) {
        unsigned seed = Seed();
        int steps = StepsOf(60, 250);

        AllEndWell(Launch(kRanks, [&](hd_group *group, hd_diag *diag) {
            if (slow == kRanks || slow == hd_group_rank(group))
                setenv("HEDDLE_CHAOS", std::to_string(seed).c_str(), 1);
            Lives lives(group, seed, 8, 4000, diag);
            HD_TRY(lives.Live(steps));
            return lives.Finish();
        }));
    }
}

// In turns, and each after all others, without a wait between.
TEST(Shapes, InTurnsLeaveNothingToEachOther)
{
    unsigned seed = Seed();

    if (!OnCpu())
        return;
    AllEndWell(Launch(kRanks, [&](hd_group *group, hd_diag *diag) {
        Lives lives(group, seed, 20, 5000, diag);

        setenv("HEDDLE_CHAOS", std::to_string(seed).c_str(), 1);
        for (int i = 0; i < 2 * kKinds; i++)
            HD_TRY(lives.Open(i % kKinds, 5000 - 487 * i));
        for (int round = 0; round < 6; round++)
            for (size_t i = 0; i < lives.Alive(); i++)
                HD_TRY(lives.Run(round % 2 == 0 ? i : (i * 3 + 1) % 10));
        return lives.Finish();
    }));
}

// Each is larger than all before it, which have runs under way.
TEST(Shapes, OneThatOutgrowsTheOthersLeavesTheirRunsAlone)
{
    unsigned seed = Seed();

    if (!OnCpu())
        return;
    AllEndWell(Launch(kRanks, [&](hd_group *group, hd_diag *diag) {
        Lives lives(group, seed, 20, 1 << 17, diag);

        setenv("HEDDLE_CHAOS", std::to_string(seed).c_str(), 1);
        for (int i = 0; i < 9; i++) {
            HD_TRY(lives.Open(i % kKinds, 100 << i));
            for (int k = 0; k < 6; k++)
                HD_TRY(lives.Run(size_t(k % (i + 1))));
        }
        return lives.Finish();
    }));
}

// After a while nothing grows any more: some 10,000 lives with
// HEDDLE_TEST_LIVES=40000.
TEST(Cpu, SessionsThatComeAndGoLeaveNothing)
{
    HD_NEEDS_PLAIN_MALLOC();
    unsigned seed = Seed();
    int steps = StepsOf(400, 1600);

    AllEndWell(Launch(
        kRanks,
        [&](hd_group *group, hd_diag *diag) {
            Lives lives(group, seed, 8, 4000, diag);
            Has before, after;

            for (int i = 0; i < kKinds; i++) // one of each, of the largest
                HD_TRY(lives.Open(i, 4000));
            for (size_t i = 0; i < kKinds; i++)
                HD_TRY(lives.Run(i));
            HD_TRY(lives.Finish());
            HD_TRY(lives.Live(steps / 4));
            lives.Clear();
            before = Count();
            HD_TRY(lives.Live(steps));
            HD_TRY(lives.Finish());
            lives.Clear();
            after = Count();
            RANK_EXPECT(after.threads == before.threads);
            RANK_EXPECT(after.descriptors == before.descriptors);
            RANK_EXPECT(after.windows == before.windows);
            // What the C library keeps is not to the byte.
            RANK_EXPECT(after.resident < before.resident + (1 << 20));
            return HD_OK;
        },
        3600));
}

// One window of the rank's own, one of each peer, one that shows who lives,
// threads as for one; and a few KiB a session.
TEST(Cpu, SessionsOfOneGroupShareItsMemory)
{
    if (RanksAreThreads())
        GTEST_SKIP() << "it counts what a process has";
    HD_NEEDS_PLAIN_MALLOC();
    AllEndWell(Launch(kRanks, [&](hd_group *group, hd_diag *diag) {
        const int n = IsQuick() ? 40 : 200;
        Lives lives(group, 1, n + kKinds, 100000, diag);
        hd_stats stats = HD_EMPTY(hd_stats);
        Has before, after;

        for (int i = 0; i < kKinds; i++)
            HD_TRY(lives.Open(i, 100000));
        hd_session_stats(lives.At(0).session, &stats);
        RANK_EXPECT(stats.handle_exchanges == kRanks - 1);
        for (size_t i = 0; i < kKinds; i++)
            HD_TRY(lives.Run(i));
        HD_TRY(lives.Finish());
        before = Count();
        RANK_EXPECT(before.windows == kRanks + 1);
        for (int i = 0; i < n; i++) {
            HD_TRY(lives.Open(i % kKinds, 1 + 99999 / n * i));
            hd_session_stats(lives.At(lives.Alive() - 1).session, &stats);
            RANK_EXPECT(stats.handle_exchanges == 0);
            RANK_EXPECT(stats.allocations == 0);
        }
        for (size_t i = 0; i < lives.Alive(); i++)
            HD_TRY(lives.Run(i));
        HD_TRY(lives.Finish());
        after = Count();
        RANK_EXPECT(after.threads == before.threads);
        RANK_EXPECT(after.descriptors == before.descriptors);
        RANK_EXPECT(after.windows == before.windows);
        RANK_EXPECT(after.resident - before.resident < size_t(n) << 17);
        return HD_OK;
    }));
}

// What the checker would refuse: its stream is at work when its run ends.
const char kLeft[] = "heddle 2\nhost program left\nmesh tp=3\nstreams 1\n"
                     "in %z : i32[4000]\ntemp %u : i32[4000]\n"
                     "temp %t : i32[4000] shared\n{ on stream 0 {\n"
                     "for i in 0..20 { %u = fill value 9 %t = fill value 8 }\n"
                     "} }\n";

TEST(Cpu, AStreamThatAProgramLeavesBehindHarmsNoOtherSession)
{
    unsigned seed = Seed();

    AllEndWell(Launch(kRanks, [&](hd_group *group, hd_diag *diag) {
        Lives lives(group, seed, 4, 4000, diag);
        std::vector<uint32_t> z(4000);
        void *arguments[] = {z.data()};
        hd_module *module = nullptr;
        hd_session *left = nullptr;

        setenv("HEDDLE_CHAOS", std::to_string(seed).c_str(), 1);
        HD_TRY(hd_parse("left.hd", kLeft, sizeof kLeft - 1, nullptr, 0, diag,
                        &module));
        HD_TRY(hd_session_create(group, module, nullptr, diag, &left));
        HD_TRY(lives.Open(2, 4000));
        for (int i = 0; i < 20; i++) {
            HD_TRY(hd_session_run(left, arguments, 1, nullptr, diag));
            HD_TRY(lives.Run(0));
        }
        HD_TRY(lives.Finish());
        hd_session_destroy(left);
        hd_module_destroy(module);
        return HD_OK;
    }));
}

// The largest is gone; a smaller one has runs under way.
TEST(Cpu, TrimmingGivesBackWhatNoSessionNeeds)
{
    HD_NEEDS_PLAIN_MALLOC();
    AllEndWell(Launch(kRanks, [&](hd_group *group, hd_diag *diag) {
        const int large = 1 << 21;
        Lives lives(group, 3, 4, large, diag);
        Has before, after;

        HD_TRY(lives.Open(0, 1000));
        HD_TRY(lives.Run(0));
        {
            std::vector<uint32_t> z(large);
            Shape largest(0, large);
            void *arguments[] = {z.data()};

            HD_TRY(largest.Open(group, diag));
            HD_TRY(
                hd_session_run(largest.session, arguments, 1, nullptr, diag));
        }
        HD_TRY(hd_group_allgather(group, nullptr, 0, nullptr, diag));
        before = Count();
        HD_TRY(lives.Run(0));
        HD_TRY(hd_group_trim(group, diag));
        HD_TRY(lives.Run(0));
        HD_TRY(lives.Finish());
        // All ranks have trimmed: what was mapped of theirs is gone too.
        HD_TRY(hd_group_allgather(group, nullptr, 0, nullptr, diag));
        after = Count();
        RANK_EXPECT(after.resident + (size_t(3 * 4 - 1) << 21) <
                    before.resident);
        HD_TRY(lives.Open(2, large / 2));
        HD_TRY(lives.Run(1));
        HD_TRY(lives.Run(0));
        return lives.Finish();
    }));
}

} // namespace
