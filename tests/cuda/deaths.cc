// A rank is killed at each thing that it does in a run of attention over a
// sequence that ranks share: at each step on the cpu, and on cuda at each
// command of its streams. Every other rank ends at once with words that name
// it, or with what is right, and keeps nothing.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cuda/system.h"
#include "tests/cuda/way.h"
#include "tests/draw.h"

namespace
{

const int kRanks = 3;
const double kAtOnce = kPatience / 4;

std::string TextOf(const std::string &example)
{
    std::ifstream file(HEDDLE_EXAMPLES "/" + example);
    std::string text(std::istreambuf_iterator<char>(file), {});

    return Replaced(text, "mesh cp=4", "mesh cp=" + std::to_string(kRanks));
}

// The cpu is one way of them.
const Way kSome[] = {{"cpu", HD_TRANSPORT_AUTO, false},
                     {"copy", HD_TRANSPORT_COPY, false},
                     {"copy_graph", HD_TRANSPORT_COPY, true},
                     {"sm", HD_TRANSPORT_SM, false},
                     {"nccl", HD_TRANSPORT_NCCL, false}};

class Deaths : public testing::TestWithParam<std::tuple<Way, const char *>>
{
  public:
    // Shards are where the session's device is.
    Deaths()
    {
        setenv("HEDDLE_TEST_DEVICE", cpu ? "cpu" : "cuda", 1);
    }
    ~Deaths()
    {
        setenv("HEDDLE_TEST_DEVICE", "cuda", 1);
    }

    hd_session_options Options() const
    {
        hd_session_options options = CudaOptions();

        options.device = cpu ? "cpu" : "cuda";
        options.transport = way.transport;
        options.graph = way.graph;
        return options;
    }

    // Of one rank's second run, all that it does.
    long Count() const
    {
        return cpu ? StepsOnCpu()
                   : Extra<decltype(fake_cuda_calls)>("fake_cuda_calls")(
                         "work of streams");
    }
    void DieAt(long k) const
    {
        if (cpu)
            DieAtStepOnCpu(k);
        else
            Extra<decltype(fake_cuda_fail)>("fake_cuda_fail")("work of streams",
                                                              k);
    }

    // Two runs, in the second of which `victim`, if there is one, dies at its
    // k-th deed, or behind it, and rank `deaf` hears of that so many seconds
    // late: each rank's number of deeds and time of the end, of the victim that
    // of its beginning.
    std::vector<Answer> Run(int victim, long k, int deaf = -1,
                            double late = 0) const
    {
        return RunRanks(kRanks, [&](Rank &rank) {
            Session session;

            HD_TRY(session.Create(rank, program, Options()));
            Shards shards(session);
            HD_TRY(shards.Put(program.Inputs(0), program.Module(), rank.rank,
                              rank.diag));
            HD_TRY(shards.Run(rank.diag));
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank, 0));
            HD_TRY(shards.Set(program.Inputs(1), program.Module(), rank.rank,
                              rank.diag));
            HD_TRY(Meet(rank));
            rank.answer->seconds = Now();
            long before = Count();
            if (rank.rank == victim)
                DieAt(k);
            if (rank.rank == deaf)
                HearLate(late);
            hd_status status = shards.Run(rank.diag);
            if (status == HD_OK)
                status = hd_session_finish(session, rank.diag);
            rank.answer->number = Count() - before;
            if (rank.rank == victim)
                raise(SIGKILL);
            rank.answer->seconds = Now();
            HD_TRY(status);
            HD_TRY(shards.Get(rank.diag));
            return program.Compare(shards, rank.rank, 1);
        });
    }
    long Deeds(const std::vector<Answer> &answers) const
    {
        long most = 0;

        AllAreRight(answers);
        for (const Answer &answer : answers)
            most = std::max(most, long(answer.number));
        return most;
    }

    const Way way = std::get<0>(GetParam());
    const bool cpu = std::string(way.name) == "cpu";
    const Program program{TextOf(std::get<1>(GetParam())), 2};
};

INSTANTIATE_TEST_SUITE_P(
    All, Deaths,
    testing::Combine(testing::ValuesIn(kSome),
                     testing::Values("attention_ring.hd",
                                     "attention_ring_backward.hd")),
    [](const testing::TestParamInfo<std::tuple<Way, const char *>> &info) {
        std::string example = std::get<1>(info.param);

        return std::string(std::get<0>(info.param).name) + "_" +
               example.substr(0, example.size() - 3);
    });

// Where peers write to each other's memory.
class Traces : public Deaths
{
};

INSTANTIATE_TEST_SUITE_P(
    All, Traces,
    testing::Combine(testing::ValuesIn(kSome + 1, kSome + 4),
                     testing::Values("attention_ring_backward.hd")),
    [](const testing::TestParamInfo<std::tuple<Way, const char *>> &info) {
        return std::string(std::get<0>(info.param).name);
    });

// How many of the others could not go on.
int Judge(const std::vector<Answer> &answers, int victim)
{
    const std::string name = "rank " + std::to_string(victim);
    int failed = 0;

    EXPECT_FALSE(answers[size_t(victim)].ended);
    for (int i = 0; i < kRanks; i++) {
        const Answer &answer = answers[size_t(i)];

        if (i == victim)
            continue;
        Ended(answer, i);
        EXPECT_LT(answer.seconds - answers[size_t(victim)].seconds, kAtOnce);
        if (answer.status == HD_OK)
            continue;
        EXPECT_EQ(answer.status, HD_ERROR_PEER) << answer.text;
        EXPECT_TRUE(Has(answer, name + " died")) << answer.text;
        failed++;
    }
    return failed;
}

// Where tests are to be quick, at some of the steps.
TEST_P(Deaths, AtEachStepEndTheOthersAtOnce)
{
    std::mt19937 random(Seed());
    std::vector<Answer> fine = Run(-1, 0);
    long most = Deeds(fine), deaths = 0;

    EXPECT_GT(most, 5);
    for (long k = 1; k <= most; k += IsQuick() ? Between(1, 4, random) : 1) {
        int victim = Between(0, kRanks - 1, random);

        while (fine[size_t(victim)].number < k)
            victim = (victim + 1) % kRanks;
        SCOPED_TRACE("rank " + std::to_string(victim) + ", " +
                     std::to_string(k) + " of " +
                     std::to_string(fine[size_t(victim)].number));
        int failed = Judge(Run(victim, k), victim);
        // It had done nothing that anyone waits for.
        EXPECT_TRUE(k > 1 || failed > 0);
        deaths++;
    }
    printf("%ld deaths\n", deaths);
}

// A rank that waits for the dead one lets go of its device, and what it then
// sends on is not what anybody waits for. The last of them has not heard of the
// death by then, and may take it for that: but it looks for what it was told
// before it says that all is well.
TEST_P(Traces, AreNotTakenForWellByWhoHearsOfADeathLate)
{
    const double late = .25;
    std::mt19937 random(Seed());
    long most = Deeds(Run(-1, 0));

    for (long k = 1; k <= most; k += IsQuick() ? Between(3, 6, random) : 1) {
        int victim = Between(0, kRanks - 1, random);
        int deaf = (victim + Between(1, 2, random)) % kRanks;

        SCOPED_TRACE("rank " + std::to_string(victim) + " dies at " +
                     std::to_string(k) + ", rank " + std::to_string(deaf) +
                     " hears of it late");
        Judge(Run(victim, k, deaf, late), victim);
    }
}

} // namespace
