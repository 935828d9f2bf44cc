// Memory of a rank that its peers have open, which is not freed: the fake of
// CUDA ends a process that does it. When they have let go of it, it is.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>

#include "base/diag.h"
#include "runtime/cuda/keep.h"
#include "runtime/ranks/group.h"
#include "tests/cuda/caller.h"
#include "tests/cuda/places.h"

namespace
{

// More than a window has that was made for little.
const char *const kBig = "heddle 2\nhost program big\nmesh tp=2\n"
                         "in %x : f32[2@tp, 600000] shared\n"
                         "out %y : f32[600000]\n"
                         "{ %y = all_reduce %x[tp] }\n";
const char *const kSmall = "heddle 2\nhost program small\nmesh tp=2\n"
                           "in %x : f32[2@tp, 64] shared\n"
                           "out %y : f32[64]\n"
                           "{ %y = all_reduce %x[tp] }\n";

// Pieces of this rank's memory that peers were told of.
int Told()
{
    return Extra<decltype(fake_cuda_exported)>("fake_cuda_exported")();
}

hd_status Expect(Rank &rank, const char *when, int wanted)
{
    return Told() == wanted
               ? HD_OK
               : hd_fail(rank.diag, HD_ERROR_INVALID,
                         "rank %d has %d pieces of memory, not %d, %s",
                         rank.rank, Told(), wanted, when);
}

// A group of all ranks, with one session.
struct Part {
    Rank in;
    Session session;

    explicit Part(const Rank &rank) : in(rank)
    {
        in.group = nullptr;
    }
    ~Part()
    {
        Destroy();
    }
    hd_status Open(const Rank &rank, const Program &program)
    {
        HD_TRY(hd_group_split(rank.group, 0, rank.rank, rank.diag, &in.group));
        HD_TRY(session.Open(in, program, CudaOptions()));
        return RunAndCompare(in, program, session, 1);
    }
    void Destroy()
    {
        hd_session_destroy(session.Take());
        hd_group_destroy(in.group);
        in.group = nullptr;
    }
};

// Rank `first` ends its group, of whose memory `left` pieces are there then:
// the others have the group until all have looked.
hd_status EndOneFirst(Rank &rank, Part &part, int first, const char *words,
                      int left)
{
    HD_TRY(Meet(rank));
    double start = Now();
    if (rank.rank == first)
        part.Destroy();
    if (Now() - start > 5)
        return Wrong(rank, "it waits for its peer");
    HD_TRY(Expect(rank, words, left));
    HD_TRY(Meet(rank));
    part.Destroy();
    HD_TRY(Meet(rank));
    if (!hd_cuda_keep_look())
        return Wrong(rank, "memory is kept that nobody has open");
    return Expect(rank, "as none has the group", 0);
}

// The older of two windows, whose session one rank destroys before the other.
TEST(CudaFreed, AWindowIsWhenItsPeerHasLetGoOfIt)
{
    Program small(kSmall), big(kBig);

    for (int first = 0; first < 2; first++)
        AllAreRight(RunRanks(2, [&](Rank &rank) {
            Session older, newer;

            HD_TRY(older.Open(rank, small, CudaOptions()));
            HD_TRY(newer.Open(rank, big, CudaOptions()));
            HD_TRY(RunAndCompare(rank, small, older, 1));
            HD_TRY(Meet(rank));
            if (rank.rank == first)
                hd_session_destroy(older.Take());
            HD_TRY(Expect(rank, "as one has no session", 2));
            HD_TRY(Meet(rank));
            if (rank.rank != first) {
                hd_session_destroy(older.Take());
                HD_TRY(Expect(rank, "as its peer had let go before", 1));
            }
            HD_TRY(Meet(rank));
            if (rank.rank == first) { // which its peer need not call
                HD_TRY(hd_group_trim(rank.group, rank.diag));
                HD_TRY(Expect(rank, "as none has a session", 1));
            }
            return RunAndCompare(rank, big, newer, 2);
        }));
}

// A window takes the place of one that is too small for the next session.
TEST(CudaFreed, AWindowIsWhenAnotherTakesItsPlace)
{
    Program small(kSmall), big(kBig);

    AllAreRight(RunRanks(2, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, small, CudaOptions()));
        HD_TRY(RunAndCompare(rank, small, session, 1));
        hd_session_destroy(session.Take());
        HD_TRY(session.Open(rank, big, CudaOptions()));
        HD_TRY(Expect(rank, "as the session is made", 1));
        return RunAndCompare(rank, big, session, 1);
    }));
}

// It waits for the other for a moment, and not until that comes.
TEST(CudaFreed, MemoryOfAGroupIsThatEndsLongBeforeItsPeers)
{
    Program small(kSmall);

    for (int first = 0; first < 2; first++)
        AllAreRight(RunRanks(2, [&](Rank &rank) {
            Part part(rank);

            HD_TRY(part.Open(rank, small));
            return EndOneFirst(rank, part, first, "as one has no group", 1);
        }));
}

// Ranks that end together wait for each other, so that nothing is left.
TEST(CudaFreed, MemoryOfAGroupIsAsItsRanksEnd)
{
    Program small(kSmall);

    AllAreRight(RunRanks(3, [&](Rank &rank) {
        Program ring(kRing);
        Part part(rank);

        HD_TRY(part.Open(rank, ring));
        HD_TRY(Meet(rank));
        part.Destroy();
        return Expect(rank, "as the group is gone", 0);
    }));
}

// A session whose arguments are memory that the caller was lent.
struct Lent {
    std::unique_ptr<Places> places;
    Session session;

    hd_status Run(Rank &rank, const Program &program)
    {
        hd_session_options options = CudaOptions();

        places = std::make_unique<Places>(rank);
        HD_TRY(places->Take(program));
        options.fixed = places->address.data();
        options.nfixed = places->address.size();
        HD_TRY(session.Open(rank, program, options));
        HD_TRY(RunThere(rank, program, session, places->address, 1));
        return Meet(rank);
    }
    void GiveBack()
    {
        hd_session_destroy(session.Take());
        places.reset();
    }
};

// What the caller gives back while a peer's session has it for its arguments.
TEST(CudaFreed, LentMemoryIsWhenItsPeerHasLetGoOfIt)
{
    Program small(kSmall);

    for (int first = 0; first < 2; first++)
        AllAreRight(RunRanks(2, [&](Rank &rank) {
            void *other = nullptr;
            Lent lent;

            HD_TRY(lent.Run(rank, small));
            if (rank.rank == first)
                lent.GiveBack();
            HD_TRY(Expect(rank, "as one has given it back", 2));
            HD_TRY(Meet(rank));
            hd_session_destroy(lent.session.Take());
            HD_TRY(Meet(rank));
            lent.GiveBack();
            HD_TRY(hd_group_alloc(rank.group, "cuda", 64, rank.diag, &other));
            return Expect(rank, "as none has a session", 1);
        }));
}

// As above, where the peer is a thread: both have the same process's.
TEST(CudaFreed, LentMemoryIsWhenAThreadHasLetGoOfIt)
{
    Program small(kSmall);

    for (int first = 0; first < 2; first++)
        AllAreRight(RunProcesses({{0, 1}}, [&](Rank &rank) {
            Lent lent;

            HD_TRY(lent.Run(rank, small));
            if (rank.rank == first)
                lent.GiveBack();
            HD_TRY(Meet(rank));
            HD_TRY(Expect(rank, "as one has given it back", 2));
            HD_TRY(Meet(rank));
            lent.GiveBack();
            HD_TRY(Meet(rank));
            HD_TRY(hd_group_trim(rank.group, rank.diag));
            HD_TRY(Meet(rank));
            return Expect(rank, "as none has a session", 0);
        }));
}

// What was lent, of a group that one rank ends long before the other.
TEST(CudaFreed, LentMemoryOfAGroupIsThatEndsLongBeforeItsPeers)
{
    Program small(kSmall);

    AllAreRight(RunRanks(2, [&](Rank &rank) {
        hd_session_options options = CudaOptions();
        Part part(rank);

        HD_TRY(hd_group_split(rank.group, 0, rank.rank, rank.diag,
                              &part.in.group));
        std::vector<void *> address(2);
        for (void *&at : address)
            HD_TRY(hd_group_alloc(part.in.group, "cuda", 600, rank.diag, &at));
        options.fixed = address.data();
        options.nfixed = address.size();
        HD_TRY(part.session.Open(part.in, small, options));
        HD_TRY(RunThere(part.in, small, part.session, address, 1));
        return EndOneFirst(rank, part, 0, "as one has no group", 2);
    }));
}

// The kernel says that a peer has let go which has died.
TEST(CudaFreed, MemoryIsThatADeadPeerHadOpen)
{
    Program small(kSmall);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Part part(rank);

        HD_TRY(part.Open(rank, small));
        HD_TRY(Meet(rank));
        if (rank.rank == 1)
            raise(SIGKILL);
        while (!hd_group_failed(part.in.group))
            usleep(1000);
        part.Destroy();
        return Expect(rank, "as its peer is dead", 0);
    });

    Ended(answers[0], 0);
    EXPECT_EQ(answers[0].status, HD_OK) << answers[0].text;
}

// An end of the group is none of what its sessions have open.
TEST(CudaFreed, MemoryOfAnAbortedGroupIsWhenItsPeerHasLetGoOfIt)
{
    Program small(kSmall);

    AllAreRight(RunRanks(2, [&](Rank &rank) {
        Part part(rank);

        HD_TRY(part.Open(rank, small));
        HD_TRY(Meet(rank));
        hd_group_abort(part.in.group);
        return EndOneFirst(rank, part, 0, "as one has no group", 1);
    }));
}

// A process that is forked has nothing open, and lets go of nothing.
TEST(CudaFreed, AForkedChildChangesNothing)
{
    Program small(kSmall);

    AllAreRight(RunRanks(2, [&](Rank &rank) {
        Part part(rank);
        pid_t child = 0;

        HD_TRY(part.Open(rank, small));
        if (rank.rank == 1 && (child = fork()) == 0) {
            part.Destroy();
            pause();
        }
        hd_status status =
            EndOneFirst(rank, part, 0, "as a child has no group", 1);
        if (child > 0) {
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
        return status;
    }));
}

// A window that a thread of this process works in, and another process.
TEST(CudaFreed, AWindowIsWhenThreadsAndProcessesHaveLetGoOfIt)
{
    Program ring(kRing);

    for (int first = 0; first < 3; first++)
        AllAreRight(RunProcesses({{0, 2}, {1}}, [&](Rank &rank) {
            Part part(rank);

            HD_TRY(part.Open(rank, ring));
            HD_TRY(Meet(rank));
            if (rank.rank == first)
                part.Destroy();
            HD_TRY(Meet(rank));
            if (rank.rank == (first + 1) % 3)
                part.Destroy();
            return Meet(rank);
        }));
}

} // namespace
