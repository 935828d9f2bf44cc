// Device memory of the caller's, which sessions work in.
#include <gtest/gtest.h>
#include <map>

#include <heddle/memory.h>

#include "tests/cuda/caller.h"
#include "tests/cuda/way.h"

namespace
{

// Takes it from the device, and keeps books.
struct Books {
    explicit Books(Caller &of) : caller(&of)
    {
    }

    Caller *caller;
    std::map<void *, size_t> out; // what heddle has now
    size_t calls = 0, most = 0;
    size_t fails_at = SIZE_MAX; // which call has no memory
    size_t off = 0;             // by how much what it gives is shifted
    bool wrong = false;         // something was given back that is not out

    size_t Bytes() const
    {
        size_t bytes = 0;

        for (const auto &one : out)
            bytes += one.second;
        return bytes;
    }
};

hd_status Take(void *context, const char *device, size_t bytes, void **out)
{
    Books &books = *static_cast<Books *>(context);
    hd_cu_ptr at = 0;

    books.wrong |= strncmp(device, "cuda:", 5) != 0 || bytes == 0;
    if (books.calls++ >= books.fails_at ||
        books.caller->cu.alloc(&at, bytes + books.off) != 0)
        return HD_ERROR_NO_MEMORY;
    *out = reinterpret_cast<void *>(static_cast<uintptr_t>(at + books.off));
    books.out[*out] = bytes;
    books.most = std::max(books.most, books.Bytes());
    return HD_OK;
}

void Give(void *context, const char *device, void *memory, size_t bytes)
{
    Books &books = *static_cast<Books *>(context);
    auto found = books.out.find(memory);

    if (strncmp(device, "cuda:", 5) != 0 || found == books.out.end() ||
        found->second != bytes) {
        books.wrong = true;
        return;
    }
    books.caller->cu.free(reinterpret_cast<uintptr_t>(memory) - books.off);
    books.out.erase(found);
}

hd_allocator AllocatorOf(Books &books)
{
    hd_allocator allocator = HD_EMPTY(hd_allocator);

    allocator.context = &books;
    allocator.alloc = Take;
    allocator.free = Give;
    return allocator;
}

class CudaAllocators : public CudaWays
{
};

// Sessions of the group, one after the other, work in it; runs of what is dense
// ask for nothing, and no more is out than the memory that is left needs.
TEST_P(CudaAllocators, GiveWhatSessionsWorkIn)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Caller caller;
        Books books(caller);
        hd_allocator allocator = AllocatorOf(books);

        HD_TRY(caller.Open(rank));
        HD_TRY(hd_group_set_allocator(rank.group, &allocator, rank.diag));
        memset(&allocator, 0, sizeof(allocator)); // it is copied
        for (int i = 0; i < 2; i++) {
            Session session;
            size_t calls;

            HD_TRY(session.Open(rank, program, Options()));
            calls = books.calls;
            RANK_EXPECT(books.Bytes() > 0);
            HD_TRY(RunAndCompare(rank, program, session, 6));
            RANK_EXPECT(books.calls == calls);
            RANK_EXPECT(hd_group_set_allocator(rank.group, nullptr, nullptr) ==
                        HD_ERROR_ARGUMENT);
        }
        HD_TRY(Meet(rank));
        HD_TRY(hd_group_set_allocator(rank.group, nullptr, rank.diag));
        RANK_EXPECT(books.out.empty() && !books.wrong);
        {
            size_t calls = books.calls;
            Session session;

            HD_TRY(session.Open(rank, program, Options()));
            HD_TRY(RunAndCompare(rank, program, session, 1));
            RANK_EXPECT(books.calls == calls);
        }
        return HD_OK;
    });

    AllAreRight(answers);
}

INSTANTIATE_TEST_SUITE_P(By, CudaAllocators, testing::ValuesIn(kWays),
                         NameOfWay);

// Each call in turn has no memory, on one rank: both are told, what was taken
// is given back, and the next session is none the worse.
TEST(CudaAllocator, ThatFailsIsToldToAllRanks)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Caller caller;
        Books books(caller);
        hd_allocator allocator = AllocatorOf(books);
        bool failed = true;

        HD_TRY(caller.Open(rank));
        HD_TRY(hd_group_set_allocator(rank.group, &allocator, rank.diag));
        for (size_t call = 0; failed; call++) {
            Session session;
            hd_status status;

            books.calls = 0;
            books.fails_at = rank.rank == 1 ? call : SIZE_MAX;
            hd_diag_clear(rank.diag);
            status = session.Open(rank, program, CudaOptions());
            failed = status != HD_OK;
            if (failed &&
                (status !=
                     (rank.rank == 1 ? HD_ERROR_NO_MEMORY : HD_ERROR_PEER) ||
                 strstr(hd_diag_text(rank.diag), "the caller's allocator has "
                                                 "no ") == nullptr))
                return HD_ERROR_INVALID;
            if (!failed) {
                RANK_EXPECT(call > 0);
                HD_TRY(RunAndCompare(rank, program, session, 2));
            }
        }
        HD_TRY(hd_group_trim(rank.group, rank.diag));
        RANK_EXPECT(books.out.empty() && !books.wrong);
        return HD_OK;
    });

    AllAreRight(answers);
}

TEST(CudaAllocator, ThatGivesWhatIsNoMultipleOf256IsRefused)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Caller caller;
        Books books(caller);
        hd_allocator allocator = AllocatorOf(books);

        books.off = 16;
        HD_TRY(caller.Open(rank));
        HD_TRY(hd_group_set_allocator(rank.group, &allocator, rank.diag));
        {
            Session session;

            RANK_EXPECT(session.Open(rank, program, CudaOptions()) ==
                        HD_ERROR_ARGUMENT);
            RANK_EXPECT(strstr(hd_diag_text(rank.diag), "no multiple of 256") !=
                        nullptr);
        }
        RANK_EXPECT(books.calls > 0 && books.out.empty() && !books.wrong);
        return HD_OK;
    });

    AllAreRight(answers);
}

// Packed arguments and values, too, and all of it is back when the group ends.
TEST(CudaAllocator, HasEverythingBackWhenTheGroupEnds)
{
    Program program("heddle 2\nhost program one\nin %a : f32[8, 8]\n"
                    "in %s : f32[1]\nout %c : f32[8, 8]\n"
                    "{ %c = mul %a, %s }\n");
    const int64_t transposed[] = {1, 8};
    const int64_t *strides[] = {transposed, nullptr, nullptr};
    std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
        Caller caller;
        Books books(caller);
        hd_allocator allocator = AllocatorOf(books);
        hd_group *group = nullptr;

        HD_TRY(caller.Open(rank));
        HD_TRY(hd_group_split(rank.group, 0, 0, rank.diag, &group));
        HD_TRY(hd_group_set_allocator(group, &allocator, rank.diag));
        Rank part = rank;
        part.group = group;
        {
            Session session;
            hd_run_options with = HD_EMPTY(hd_run_options);

            HD_TRY(session.Open(part, program, CudaOptions()));
            RANK_EXPECT(books.Bytes() > 0); // values
            Shards shards(session);
            HD_TRY(
                shards.Put(program.Inputs(), program.Module(), 0, rank.diag));
            void *address[] = {shards.Address(0), shards.Address(1),
                               shards.Address(2)};
            size_t bytes = books.Bytes();
            with.strides = strides;
            HD_TRY(hd_session_run(session, address, 3, &with, rank.diag));
            RANK_EXPECT(books.Bytes() == bytes + 256);
            HD_TRY(hd_session_run(session, address, 3, &with, rank.diag));
            RANK_EXPECT(books.Bytes() == bytes + 256);
            HD_TRY(shards.Get(rank.diag));
        }
        hd_group_destroy(group);
        RANK_EXPECT(books.out.empty() && !books.wrong);
        return HD_OK;
    });

    AllAreRight(answers);
}

// What is no status would be taken for one, and its words for text.
TEST(CudaAllocator, ThatReturnsNoStatusIsToldSo)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Caller caller;
        Books books(caller);
        hd_allocator allocator = AllocatorOf(books);
        Session session;

        allocator.alloc = [](void *, const char *, size_t, void **) {
            return hd_status(4711);
        };
        HD_TRY(caller.Open(rank));
        if (rank.rank == 1)
            HD_TRY(hd_group_set_allocator(rank.group, &allocator, rank.diag));
        return session.Open(rank, program, CudaOptions());
    });

    EXPECT_EQ(answers[0].status, HD_ERROR_PEER) << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_ERROR_ARGUMENT) << answers[1].text;
    for (int i = 0; i < 2; i++) {
        Ended(answers[size_t(i)], i);
        EXPECT_TRUE(Has(answers[size_t(i)],
                        "rank 1: the caller's allocator has returned 4711, "
                        "which is no status"))
            << answers[size_t(i)].text;
    }
}

} // namespace
