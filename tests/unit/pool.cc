#include <gtest/gtest.h>

#include <cstring>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/diag.h"
#include "runtime/ranks/pool.h"
#include "tests/unit/memory.h"
#include "tests/unit/program.h"

namespace
{

constexpr size_t kPage = 4096;

// Two ranks in one process, each of which has mapped the other's window.
class GroupPool : public testing::Test
{
  protected:
    GroupPool()
    {
        for (int rank = 0; rank < 2; rank++)
            pool_[rank] = hd_pool_create(rank, 2);
    }
    ~GroupPool() override
    {
        for (hd_pool *pool : pool_)
            hd_pool_destroy(pool);
    }
    hd_hold *Take(int rank, size_t words, size_t shared = 0, size_t own = 0)
    {
        hd_hold *hold = nullptr;

        EXPECT_EQ(hd_pool_take(pool_[rank], words, shared, own, nullptr, &hold),
                  HD_OK);
        return hold;
    }
    void Map(int rank)
    {
        const hd_window *theirs = hd_pool_window(pool_[1 - rank], 1 - rank);

        ASSERT_EQ(hd_pool_map(pool_[rank], 1 - rank, dup(theirs->fd),
                              theirs->bytes, nullptr),
                  HD_OK);
    }
    char *At(int rank, size_t words)
    {
        return static_cast<char *>(hd_pool_window(pool_[rank], rank)->base) +
               words;
    }
    // The same as a peer sees it.
    char *From(int rank, size_t words)
    {
        return static_cast<char *>(
                   hd_pool_window(pool_[1 - rank], rank)->base) +
               words;
    }
    // Bytes of the window that are there.
    size_t Present(int rank)
    {
        struct stat status = {};

        fstat(hd_pool_window(pool_[rank], rank)->fd, &status);
        return size_t(status.st_blocks) * 512;
    }

    hd_pool *pool_[2];
};

TEST_F(GroupPool, WordsOfOneLieApartFromThoseOfAnotherAndAreZero)
{
    hd_hold *a = Take(0, 1000), *b = Take(0, 3), *c = Take(0, 70000);

    EXPECT_GE(b->words, a->words + 1000);
    EXPECT_GE(c->words, b->words + 3);
    memset(At(0, a->words), 0x5a, 1000);
    hd_pool_give(pool_[0], a, false);
    hd_hold *d = Take(0, 500);
    EXPECT_EQ(d->words, 0u); // where the first one was
    for (int i = 0; i < 500; i++)
        ASSERT_EQ(At(0, d->words)[i], 0);
}

TEST_F(GroupPool, WordsThatPeersKnowStayUntilAllRanksHaveLeft)
{
    hd_hold *mine = Take(0, 1000), *theirs = Take(1, 5000);
    size_t words = mine->words;

    Take(1, 7); // so that the other's are elsewhere than ours
    Map(0);
    Map(1);
    hd_pool_leave(At(0, mine->words));
    hd_pool_leave(From(1, theirs->words));
    hd_pool_give(pool_[0], mine, true);
    EXPECT_NE(Take(0, 1000)->words, words);
    hd_pool_leave(From(0, words));
    EXPECT_EQ(Take(0, 1000)->words, words);
    hd_pool_leave(At(1, theirs->words));
    hd_pool_give(pool_[1], theirs, true);
    EXPECT_EQ(Take(1, 5000)->words, 0u);
}

TEST_F(GroupPool, RegionsOfRunsAreCommonAndGrowWhereTheyAre)
{
    hd_hold *small = Take(0, 8, 3 * kPage, 5);

    EXPECT_EQ(small->old_shared, 0u);
    EXPECT_EQ(small->old_own, 0u);
    memset(At(0, hd_pool_shared(pool_[0])), 0x11, 3 * kPage);
    hd_pool_own(pool_[0])[4] = 0x11;
    hd_hold *large = Take(0, 8, 9 * kPage, 20 * kPage);
    EXPECT_EQ(large->old_shared, 3 * kPage);
    EXPECT_EQ(large->old_own, 5u);
    memset(hd_pool_own(pool_[0]) + 5, 0x22, 20 * kPage - 5);
    EXPECT_EQ(hd_pool_own(pool_[0])[4], 0x11);
    EXPECT_EQ(At(0, hd_pool_shared(pool_[0]))[3 * kPage - 1], 0x11);
    hd_hold *again = Take(0, 8, 9 * kPage, kPage);
    EXPECT_EQ(again->old_shared, 9 * kPage);
    EXPECT_EQ(again->old_own, kPage);
}

TEST_F(GroupPool, TrimmingLeavesWhatSomeSessionNeeds)
{
    hd_hold *words = Take(0, 64 * kPage);
    hd_hold *small = Take(0, 8, 3 * kPage, 2 * kPage);
    hd_hold *large = Take(0, 8, 100 * kPage, 50 * kPage);
    char *shared = At(0, hd_pool_shared(pool_[0]));

    memset(At(0, words->words), 1, 64 * kPage);
    memset(shared, 0x33, 100 * kPage);
    memset(hd_pool_own(pool_[0]), 0x44, 50 * kPage);
    ASSERT_EQ(hd_pool_trim(pool_[0], nullptr), HD_OK);
    EXPECT_GE(Present(0), 164 * kPage);
    hd_pool_give(pool_[0], large, false);
    hd_pool_give(pool_[0], words, false);
    EXPECT_GE(Present(0), 164 * kPage); // kept, until somebody asks
    ASSERT_EQ(hd_pool_trim(pool_[0], nullptr), HD_OK);
    EXPECT_LE(Present(0), 8 * kPage);
    EXPECT_EQ(shared[3 * kPage - 1], 0x33);
    EXPECT_EQ(hd_pool_own(pool_[0])[2 * kPage - 1], 0x44);
    EXPECT_EQ(shared[3 * kPage], 0); // another page
    // What comes next finds it as new.
    large = Take(0, 8, 100 * kPage, 50 * kPage);
    EXPECT_EQ(large->old_shared, 3 * kPage);
    EXPECT_EQ(large->old_own, 2 * kPage);
    EXPECT_EQ(hd_pool_own(pool_[0])[49 * kPage], 0);
    hd_pool_own(pool_[0])[49 * kPage] = 1;
    hd_pool_give(pool_[0], small, false);
    ASSERT_EQ(hd_pool_trim(pool_[0], nullptr), HD_OK);
    EXPECT_EQ(hd_pool_own(pool_[0])[49 * kPage], 1);
}

TEST_F(GroupPool, TrimmingOneThatWasNeverOpenedDoesNothing)
{
    EXPECT_EQ(hd_pool_trim(pool_[0], nullptr), HD_OK);
    EXPECT_EQ(hd_pool_window(pool_[0], 0)->base, nullptr);
}

TEST_F(GroupPool, MoreWordsThanThereIsRoomForAreRefused)
{
    hd_hold *hold = nullptr;
    hd_diag *diag = hd_diag_create();
    size_t room = hd_pool_shared(pool_[0]);

    EXPECT_EQ(hd_pool_take(pool_[0], room + 1, 0, 0, diag, &hold),
              HD_ERROR_NO_MEMORY);
    EXPECT_EQ(hd_diag_errors(diag), 1u);
    EXPECT_EQ(hold, nullptr);
    EXPECT_EQ(Take(0, 8)->words, 0u);
    hd_diag_destroy(diag);
}

// A file longer than that would end the process by a signal.
TEST_F(GroupPool, ItsRoomIsWithinTheLimitsOfTheProcess)
{
    HD_NEEDS_PLAIN_MALLOC();
    for (auto resource : {RLIMIT_AS, RLIMIT_FSIZE}) {
        struct rlimit before, limit;
        size_t most = size_t(8) << 30;
        hd_hold *hold = nullptr;

        ASSERT_EQ(getrlimit(resource, &before), 0);
        limit = before;
        limit.rlim_cur = most;
        ASSERT_EQ(setrlimit(resource, &limit), 0);
        hd_pool *pool = hd_pool_create(0, 2);
        size_t room = hd_pool_room(pool);
        hd_status status = hd_pool_take(pool, 8, 8, 8, nullptr, &hold);
        hd_pool_destroy(pool);
        ASSERT_EQ(setrlimit(resource, &before), 0);
        EXPECT_EQ(status, HD_OK);
        EXPECT_LE(room, most / 2);
        EXPECT_GT(room, 0u);
    }
}

} // namespace
