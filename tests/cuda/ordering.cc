// Groups, sessions and memory that ranks destroy in whatever order each likes,
// while others of theirs go on. None is waited for in vain, nothing is lost of
// what others still receive, nothing is freed that a peer has open, and all is
// given back.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/cuda/caller.h"
#include "tests/cuda/places.h"
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

    return given != nullptr && *given != '\0' ? atol(given) : 15;
}

// A session, and memory of its group that it may have for its arguments.
struct Life {
    std::unique_ptr<Places> places;
    std::unique_ptr<Session> session;
};

struct Part {
    Rank in;
    std::vector<std::unique_ptr<Life>> lives;
};

// Of one that is there its session, or what memory it has, which may be in use
// on other ranks, once that is gone. True as both are.
bool DestroySome(Life &life)
{
    if (life.session != nullptr)
        life.session.reset();
    else
        life.places.reset();
    return life.session == nullptr && life.places == nullptr;
}

hd_status TrimAtTimes(Part &part, Random &random)
{
    return Below(random, 6) == 0 ? hd_group_trim(part.in.group, part.in.diag)
                                 : HD_OK;
}

// One of the group's, whichever it is.
hd_status DestroyOne(Part &part, Random &random)
{
    size_t at = size_t(Below(random, int(part.lives.size())));

    if (DestroySome(*part.lives[at]))
        part.lives.erase(part.lives.begin() + long(at));
    return TrimAtTimes(part, random);
}

// One group of those that are there: something of it, or the group once all of
// that is gone.
hd_status DestroyAny(std::vector<std::unique_ptr<Part>> &parts, Random &random)
{
    size_t at = size_t(Below(random, int(parts.size())));
    Part &part = *parts[at];

    if (!part.lives.empty())
        return DestroyOne(part, random);
    hd_group_destroy(part.in.group);
    parts.erase(parts.begin() + long(at));
    return HD_OK;
}

typedef std::vector<std::unique_ptr<Program>> Programs;

// What is done alike by all ranks is drawn from `common`.
hd_status Live(Part &part, const Programs &programs, hd_session_options options,
               Random &common)
{
    const Program &program = *programs[size_t(Below(common, 6)) / 5];
    auto life = std::make_unique<Life>();
    bool fixed = Below(common, 3) == 0;
    int runs = 1 + Below(common, 2);

    if (fixed) {
        life->places = std::make_unique<Places>(part.in);
        HD_TRY(life->places->Take(program));
        options.fixed = life->places->address.data();
        options.nfixed = life->places->address.size();
    }
    life->session = std::make_unique<Session>();
    HD_TRY(life->session->Open(part.in, program, options));
    HD_TRY(fixed ? RunThere(part.in, program, *life->session,
                            life->places->address, runs)
                 : RunAndCompare(part.in, program, *life->session, runs));
    part.lives.push_back(std::move(life));
    return HD_OK;
}

// And the order in which this one destroys, while others go on and when all
// have had enough, from `own`.
hd_status OneOrder(Rank &rank, const Programs &programs,
                   const hd_session_options &options, Random &common,
                   Random &own)
{
    std::vector<std::unique_ptr<Part>> parts;

    for (int i = 1 + Below(common, 3); i > 0; i--) {
        parts.push_back(std::make_unique<Part>());
        parts.back()->in = rank;
        HD_TRY(hd_group_split(rank.group, 0, rank.rank, rank.diag,
                              &parts.back()->in.group));
    }
    for (int i = int(parts.size()) + Below(common, 4); i > 0; i--) {
        Part &part = *parts[size_t(Below(common, int(parts.size())))];

        HD_TRY(Live(part, programs, options, common));
        while (!part.lives.empty() && Below(own, 2) == 0)
            HD_TRY(DestroyOne(part, own));
    }
    while (!parts.empty()) {
        if (Below(own, 4) == 0)
            usleep(unsigned(Below(own, 3000)));
        HD_TRY(DestroyAny(parts, own));
    }
    return HD_OK;
}

// The second is more than a window has that was made for the first.
Programs TwoPrograms()
{
    Programs two;

    for (const char *extent : {"64", "270000"}) {
        std::string text = "heddle 2\nhost program swap\nmesh tp=2\n"
                           "in %x : f32[2@tp, N] shared\n"
                           "out %y : f32[2@tp, N] shared\n"
                           "out %z : f32[N]\n"
                           "{ group { send %x[tp] to 1 - tp\n"
                           "          %y[tp] = recv from 1 - tp }\n"
                           "  %z = all_reduce %x[tp] }\n";

        for (size_t at; (at = text.find("N]")) != text.npos;)
            text.replace(at, 1, extent);
        two.push_back(std::make_unique<Program>(text));
    }
    return two;
}

const char *const kSwap = "heddle 2\nhost program swap mesh tp=2\n"
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
    const int64_t at_once = 15; // orders of one start of the ranks
    Programs programs = TwoPrograms();

    for (int64_t from = 0; from < Orders(); from += at_once) {
        unsigned seed = Seed() + unsigned(from);

        AllAreRight(RunRanks(2, [&](Rank &rank) {
            Random common(seed), own(seed + 1 + unsigned(rank.rank));

            for (int64_t i = from; i < Orders() && i < from + at_once; i++)
                HD_TRY(OneOrder(rank, programs, Options(), common, own));
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
