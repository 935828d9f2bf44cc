// Groups of a part of a group's ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <sys/resource.h>

#include "runtime/ranks/group.h"
#include "tests/clock.h"
#include "tests/cuda/ranks.h"
#include "tests/seed.h"
#include "tests/unit/program.h"
#include "tests/unit/ranks.h"

namespace
{

// What each rank has, summed over the ranks of its group.
const char kSum[] = "host program sum\nmesh tp=2\nin %x : f32[size tp@tp, 64]\n"
                    "out %y : f32[64]\ntemp %s : f32[64] shared\n"
                    "{\n    %s = copy %x[tp]\n    %y = all_reduce %s\n}\n";

// A session of that on a group, and its inputs.
struct Sum {
    hd_group *group;
    hd_session *session = nullptr;
    Program program;
    std::vector<float> x, y;
    void *arguments[2];

    // Whole numbers, so that sums are exact.
    explicit Sum(hd_group *of)
        : group(of), program(kSum, {{"tp", hd_group_size(of)}}), x(64),
          y(64, NAN)
    {
        std::mt19937_64 random(Seed() + unsigned(hd_group_size(of)) * 1000 +
                               unsigned(hd_group_rank(of)));

        for (float &value : x)
            value = float(random() % 2001) - 1000;
        arguments[0] = x.data();
        arguments[1] = y.data();
    }
    Sum(const Sum &) = delete;
    Sum &operator=(const Sum &) = delete;
    ~Sum()
    {
        hd_session_destroy(session);
    }
    hd_status Open(hd_diag *diag)
    {
        RANK_EXPECT(program.status == HD_OK);
        return hd_session_create(group, program.module, nullptr, diag,
                                 &session);
    }
    hd_status Run(hd_diag *diag)
    {
        return hd_session_run(session, arguments, 2, nullptr, diag);
    }
    hd_status Compare(hd_diag *diag)
    {
        std::vector<float> all(64 * size_t(hd_group_size(group)));

        HD_TRY(hd_session_finish(session, diag));
        HD_TRY(hd_group_allgather(group, x.data(), 64 * sizeof(float),
                                  all.data(), diag));
        for (size_t i = 0; i < 64; i++) {
            float sum = 0;

            for (size_t j = i; j < all.size(); j += 64)
                sum += all[j];
            RANK_EXPECT(y[i] == sum);
        }
        return HD_OK;
    }
};

// Whose ranks of the whole are in the group, in its order.
hd_status ExpectMembers(hd_group *group, int whole, const std::vector<int> &of)
{
    std::vector<int> all(of.size());

    RANK_EXPECT(hd_group_size(group) == int(of.size()));
    HD_TRY(
        hd_group_allgather(group, &whole, sizeof whole, all.data(), nullptr));
    RANK_EXPECT(all == of);
    RANK_EXPECT(of[size_t(hd_group_rank(group))] == whole);
    return HD_OK;
}

// Rows and columns of a mesh of 2 x 3, columns from the last row up.
hd_status UseMesh(hd_group *group, hd_diag *diag)
{
    int rank = hd_group_rank(group), row = rank / 3, column = rank % 3;
    hd_group *rows = nullptr, *columns = nullptr;

    HD_TRY(hd_group_split(group, row, 0, diag, &rows));
    HD_TRY(hd_group_split(group, column, -row, diag, &columns));
    HD_TRY(ExpectMembers(rows, rank, {3 * row, 3 * row + 1, 3 * row + 2}));
    HD_TRY(ExpectMembers(columns, rank, {3 + column, column}));
    {
        Sum all(group), along(rows), down(columns);

        // Sessions of several groups may be created in any order.
        HD_TRY(down.Open(diag));
        HD_TRY(all.Open(diag));
        HD_TRY(along.Open(diag));
        for (int run = 0; run < 5; run++) {
            HD_TRY(along.Run(diag));
            HD_TRY(all.Run(diag));
            HD_TRY(down.Run(diag));
        }
        HD_TRY(down.Compare(diag));
        HD_TRY(along.Compare(diag));
        HD_TRY(all.Compare(diag));
    }
    hd_group_destroy(rank % 2 == 0 ? rows : columns);
    hd_group_destroy(rank % 2 == 0 ? columns : rows);
    return hd_group_allgather(group, nullptr, 0, nullptr, diag);
}

TEST(Split, RowsAndColumnsOfAMeshRunAtOnceWithTheWhole)
{
    AllEndWell(Launch(6, UseMesh));
}

TEST(Split, RanksMayBeThreads)
{
    for (hd_status status :
         Threads(6, [](hd_group *group) { return UseMesh(group, nullptr); }))
        EXPECT_EQ(status, HD_OK);
}

// Also across two hosts, one of which has no rank in one of the groups.
TEST(Split, RanksOfSeveralHosts)
{
    std::vector<std::string> hosts = {"a", "a", "b", "b"};
    std::vector<Answer> answers = RunRanks(
        4,
        [](Rank &rank) {
            int mine = rank.rank;
            hd_group *half = nullptr, *across = nullptr;

            HD_TRY(hd_group_split(rank.group, mine / 2, 0, rank.diag, &half));
            HD_TRY(hd_group_split(rank.group, mine == 0 ? 1 : 0, mine,
                                  rank.diag, &across));
            HD_TRY(mine < 2 ? ExpectMembers(half, mine, {0, 1})
                            : ExpectMembers(half, mine, {2, 3}));
            HD_TRY(mine == 0 ? ExpectMembers(across, mine, {0})
                             : ExpectMembers(across, mine, {1, 2, 3}));
            RANK_EXPECT(hd_group_leader(half, 1) == 0);
            RANK_EXPECT(mine == 0 || hd_group_leader(across, 2) == 1);
            hd_group_destroy(across);
            hd_group_destroy(half);
            return hd_group_allgather(rank.group, nullptr, 0, nullptr,
                                      rank.diag);
        },
        hosts);

    for (const Answer &answer : answers) {
        EXPECT_TRUE(answer.ended);
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
    }
}

TEST(Split, ARankWithANegativeColourHasNone)
{
    for (hd_status status : Threads(4, [](hd_group *group) {
             int rank = hd_group_rank(group);
             hd_group *odd = group; // which is written over

             HD_TRY(hd_group_split(group, rank % 2 == 1 ? 5 : -1, -rank,
                                   nullptr, &odd));
             RANK_EXPECT((odd == nullptr) == (rank % 2 == 0));
             if (odd != nullptr)
                 HD_TRY(ExpectMembers(odd, rank, {3, 1}));
             hd_group_destroy(odd);
             // Nobody in a group, and everybody alone in one.
             HD_TRY(hd_group_split(group, -7, 0, nullptr, &odd));
             RANK_EXPECT(odd == nullptr);
             HD_TRY(hd_group_split(group, rank, 0, nullptr, &odd));
             HD_TRY(ExpectMembers(odd, rank, {rank}));
             hd_group_destroy(odd);
             return HD_OK;
         }))
        EXPECT_EQ(status, HD_OK);
}

TEST(Split, AGroupThatIsAbortedLeavesTheOthersAlone)
{
    for (hd_status status : Threads(4, [](hd_group *group) {
             int rank = hd_group_rank(group);
             hd_group *half = nullptr;

             HD_TRY(hd_group_split(group, rank / 2, 0, nullptr, &half));
             if (rank == 1)
                 hd_group_abort(half);
             if (rank == 0)
                 RANK_EXPECT(hd_group_allgather(half, nullptr, 0, nullptr,
                                                nullptr) == HD_ERROR_PEER);
             if (rank >= 2)
                 HD_TRY(hd_group_allgather(half, nullptr, 0, nullptr, nullptr));
             HD_TRY(hd_group_allgather(group, nullptr, 0, nullptr, nullptr));
             hd_group_destroy(half);
             // The group that was split serves further splits.
             HD_TRY(hd_group_split(group, 0, 0, nullptr, &half));
             HD_TRY(ExpectMembers(half, rank, {0, 1, 2, 3}));
             hd_group_destroy(half);
             return HD_OK;
         }))
        EXPECT_EQ(status, HD_OK);
}

// Rank 2 may open no descriptor: those of the other colour fail too, with its
// reason, and the whole goes on.
TEST(Split, FailsOnAllRanksOrOnNone)
{
    AllEndWell(Launch(4, [](hd_group *group, hd_diag *) {
        int rank = hd_group_rank(group);
        hd_diag *words = hd_diag_create();
        hd_group *half = nullptr;
        rlimit limit, none;

        getrlimit(RLIMIT_NOFILE, &limit);
        none = limit;
        int next = dup(0); // with less than there are poll would fail, too
        close(next);
        none.rlim_cur = rlim_t(next);
        if (rank == 2)
            setrlimit(RLIMIT_NOFILE, &none);
        hd_status status = hd_group_split(group, rank / 2, 0, words, &half);
        setrlimit(RLIMIT_NOFILE, &limit);
        std::string text = hd_diag_text(words);
        hd_diag_destroy(words);
        RANK_EXPECT(half == nullptr);
        RANK_EXPECT(status == (rank == 2 ? HD_ERROR_SYSTEM : HD_ERROR_PEER));
        // The one of its colour knows it by its own rank there.
        RANK_EXPECT(rank < 2 ? text.find("rank 2 failed") != text.npos
                             : text != "");
        HD_TRY(hd_group_allgather(group, nullptr, 0, nullptr, nullptr));
        HD_TRY(hd_group_split(group, rank / 2, 0, nullptr, &half));
        hd_group_destroy(half);
        return HD_OK;
    }));
}

// What is wrong with one rank's call all hear at once, and the group goes on.
TEST(Split, AnOutThatIsNullIsToldToAllRanks)
{
    std::vector<std::string> text(3);
    auto begun = Clock::now();

    for (hd_status status : Threads(3, [&](hd_group *group) {
             int rank = hd_group_rank(group);
             hd_diag *diag = hd_diag_create();
             hd_group *part = nullptr;
             hd_status got = hd_group_split(group, rank / 2, 0, diag,
                                            rank == 1 ? nullptr : &part);

             text[size_t(rank)] = hd_diag_text(diag);
             hd_diag_destroy(diag);
             RANK_EXPECT(got ==
                         (rank == 1 ? HD_ERROR_ARGUMENT : HD_ERROR_PEER));
             RANK_EXPECT(part == nullptr);
             HD_TRY(hd_group_split(group, 0, 0, nullptr, &part));
             hd_group_destroy(part);
             return HD_OK;
         }))
        EXPECT_EQ(status, HD_OK);
    EXPECT_LT(Clock::now() - begun, std::chrono::seconds(10));
    EXPECT_NE(text[1].find("'out' is NULL"), text[1].npos) << text[1];
    for (int rank : {0, 2})
        EXPECT_NE(text[size_t(rank)].find("rank 1 failed: hd_group_split: "
                                          "'out' is NULL"),
                  std::string::npos)
            << text[size_t(rank)];
}

TEST(Split, OtherCallsAreNamed)
{
    std::string text;

    Threads(2, [&](hd_group *group) {
        hd_diag *diag = hd_diag_create();
        hd_group *half = nullptr;
        hd_status got =
            hd_group_rank(group) == 0
                ? hd_group_allgather(group, nullptr, 0, nullptr, diag)
                : hd_group_split(group, 0, 0, nullptr, &half);

        if (hd_group_rank(group) == 0)
            text = hd_diag_text(diag);
        hd_diag_destroy(diag);
        return got;
    });

    EXPECT_NE(text.find("rank 1 is in hd_group_split"), std::string::npos)
        << text;
}

} // namespace
