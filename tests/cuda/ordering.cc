// Groups and sessions that ranks destroy in whatever order each likes. None is
// waited for in vain, nothing is lost of what others still receive, and all is
// given back.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/cuda/caller.h"
#include "tests/cuda/way.h"
#include "tests/seed.h"

namespace
{

typedef std::mt19937 Random;

int Below(Random &random, int n)
{
    return int(random() % unsigned(n));
}

int64_t Orders()
{
    const char *given = getenv("HEDDLE_TEST_ORDERS");

    return given != nullptr && *given != '\0' ? atol(given) : 30;
}

struct Part {
    Rank in;
    std::vector<std::unique_ptr<Session>> sessions;
};

// One group of those that are there: its newest session, or the group once all
// of them are gone.
void DestroySome(std::vector<Part> &parts, Random &random)
{
    size_t at = size_t(Below(random, int(parts.size())));
    Part &part = parts[at];

    if (!part.sessions.empty()) {
        std::swap(
            part.sessions[size_t(Below(random, int(part.sessions.size())))],
            part.sessions.back());
        part.sessions.pop_back();
        return;
    }
    hd_group_destroy(part.in.group);
    parts.erase(parts.begin() + long(at));
}

// What all ranks do alike is drawn from `common`, and the order in which this
// one destroys from `own`.
hd_status OneOrder(Rank &rank, const Program &program,
                   const hd_session_options &options, Random &common,
                   Random &own)
{
    std::vector<Part> parts(size_t(1 + Below(common, 3)));

    for (Part &part : parts) {
        int sessions = 1 + Below(common, 2);

        part.in = rank;
        HD_TRY(hd_group_split(rank.group, 0, rank.rank, rank.diag,
                              &part.in.group));
        for (int i = 0; i < sessions; i++) {
            part.sessions.push_back(std::make_unique<Session>());
            HD_TRY(part.sessions.back()->Open(part.in, program, options));
        }
    }
    for (Part &part : parts)
        for (auto &session : part.sessions)
            HD_TRY(RunAndCompare(part.in, program, *session,
                                 1 + Below(common, 2)));
    while (!parts.empty()) {
        if (Below(own, 4) == 0)
            usleep(unsigned(Below(own, 3000)));
        DestroySome(parts, own);
    }
    return HD_OK;
}

const char *const kSwap = "heddle 1\nhost program swap mesh tp=2\n"
                          "in %x : f32[2@tp, 64] shared\n"
                          "out %y : f32[2@tp, 64] shared out %z : f32[64]\n"
                          "{ group { send %x[tp] to 1 - tp\n"
                          "          %y[tp] = recv from 1 - tp }\n"
                          "  %z = all_reduce %x[tp] }\n";

class CudaOrders : public CudaWays
{
};

TEST_P(CudaOrders, GroupsAndSessionsAreDestroyedInAnyOrder)
{
    const int64_t at_once = 50; // orders of one start of the ranks
    Program program(kSwap);

    for (int64_t from = 0; from < Orders(); from += at_once) {
        unsigned seed = Seed() + unsigned(from);

        AllAreRight(RunRanks(2, [&](Rank &rank) {
            Random common(seed), own(seed + 1 + unsigned(rank.rank));

            for (int64_t i = from; i < Orders() && i < from + at_once; i++)
                HD_TRY(OneOrder(rank, program, Options(), common, own));
            return HD_OK;
        }));
    }
}

INSTANTIATE_TEST_SUITE_P(, CudaOrders,
                         testing::ValuesIn(std::vector<Way>(kWays, kWays + 6)),
                         NameOfWay);

// Each waits for the other in the end of another group.
TEST(CudaNcclOrders, TwoGroupsThatAreDestroyedInOppositeOrdersEnd)
{
    Program program(kSwap);
    hd_session_options options = CudaOptions();

    options.transport = HD_TRANSPORT_NCCL;
    AllAreRight(RunRanks(2, [&](Rank &rank) {
        Rank in[2] = {rank, rank};

        for (Rank &part : in) {
            Session session;

            HD_TRY(hd_group_split(rank.group, 0, rank.rank, rank.diag,
                                  &part.group));
            HD_TRY(session.Open(part, program, options));
            HD_TRY(RunAndCompare(part, program, session, 1));
        }
        for (int i = 0; i < 2; i++)
            hd_group_destroy(in[(i + rank.rank) % 2].group);
        return HD_OK;
    }));
}

// It is at work while its peer goes on to other things, and then comes.
TEST(CudaNcclOrders, AGroupThatAPeerStillUsesIsEndedWhenThatComes)
{
    Program program(kSwap);
    hd_session_options options = CudaOptions();

    options.transport = HD_TRANSPORT_NCCL;
    AllAreRight(RunRanks(2, [&](Rank &rank) {
        Rank in = rank;

        HD_TRY(hd_group_split(rank.group, 0, rank.rank, rank.diag, &in.group));
        {
            Session session;

            HD_TRY(session.Open(in, program, options));
            HD_TRY(RunAndCompare(in, program, session, 1));
        }
        if (rank.rank == 0)
            hd_group_destroy(in.group);
        HD_TRY(Meet(rank)); // so the first does not wait for the second
        if (rank.rank == 1)
            hd_group_destroy(in.group);
        return HD_OK;
    }));
}

} // namespace
