// Callers who hear of the end of runs without waiting for them, beside a
// capture of their own, which nobody may disturb.
#include <gtest/gtest.h>

#include <poll.h>

#include <heddle/async.h>

#include "tests/cuda/caller.h"
#include "tests/cuda/way.h"
#include "tests/unit/ranks.h"

namespace
{

class CudaCompletion : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaCompletion, testing::ValuesIn(kWays),
                         NameOfWay);

bool IsReadable(int fd, double seconds)
{
    pollfd ask = {fd, POLLIN, 0};

    return poll(&ask, 1, int(seconds * 1000)) == 1 &&
           (ask.revents & POLLIN) != 0;
}

struct Told {
    std::atomic<int> calls{0};
    std::atomic<hd_status> status{HD_OK};
};

void Tell(void *context, hd_status status)
{
    Told *told = static_cast<Told *>(context);

    told->status = status;
    told->calls++;
}

// Once a caller: a run behind work of the caller's: what is asked for comes
// once that is let go of, and not before.
hd_status HearOfARun(const Rank &rank, const Program &program,
                     hd_session *session, Caller &caller, Shards &shards,
                     int set)
{
    hd_cu_stream stream = caller.Stream();
    Told told;
    bool done = true;
    int fd = -1;

    HD_TRY(shards.Set(program.Inputs(set), program.Module(), rank.rank,
                      rank.diag));
    HD_TRY(caller.HoldUp(stream));
    HD_TRY(shards.RunOn(stream, rank.diag));
    HD_TRY(hd_session_descriptor(session, rank.diag, &fd));
    HD_TRY(hd_session_notify(session, Tell, &told, rank.diag));
    HD_TRY(hd_session_query(session, rank.diag, &done));
    RANK_EXPECT(!done);
    HD_TRY(hd_session_wait(session, 0.05, rank.diag, &done));
    RANK_EXPECT(!done);
    RANK_EXPECT(!IsReadable(fd, 0.05) && told.calls == 0);
    caller.LetGo();
    RANK_EXPECT(IsReadable(fd, kPatience));
    // The other rank may be through, and saying goodbye.
    for (double end = Now() + kPatience; !done && Now() < end;)
        HD_TRY(hd_session_query(session, rank.diag, &done));
    RANK_EXPECT(done);
    while (told.calls == 0)
        usleep(1000);
    RANK_EXPECT(told.status == HD_OK);
    HD_TRY(shards.Get(rank.diag));
    RANK_EXPECT(told.calls == 1);
    return program.Compare(shards, rank.rank, set);
}

TEST_P(CudaCompletion, IsTold)
{
    Program program(kEverything, 2);
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session;

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, Options()));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        HD_TRY(shards.Run(rank.diag));
        HD_TRY(shards.Get(rank.diag));
        return HearOfARun(rank, program, session, caller, shards, 1);
    };

    AllAreRight(RunRanks(2, body));
}

// A stream is captured in the mode that forbids most.
TEST_P(CudaCompletion, IsToldBesideACapture)
{
    Program program(kEverything, 2);
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session;
        hd_cu_graph graph = nullptr;

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, Options()));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        hd_cu_stream captured = caller.Stream();
        RANK_EXPECT(caller.cu.capture_begin(captured, 0) == 0);
        hd_status status =
            HearOfARun(rank, program, session, caller, shards, 1);
        RANK_EXPECT(caller.cu.capture_end(captured, &graph) == 0);
        caller.cu.graph_destroy(graph);
        return status;
    };

    AllAreRight(RunRanks(2, body));
}

// Rank 1 never runs, and is aborted.
TEST_P(CudaCompletion, OfAFailureIsTold)
{
    Program program(kEverything);
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session;
        Told told;
        bool done = false;
        int fd = -1;

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, Options()));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        HD_TRY(Meet(rank));
        if (rank.rank == 1) {
            SleepFor(0.1);
            hd_group_abort(rank.group);
            return HD_ERROR_PEER;
        }
        HD_TRY(shards.Run(rank.diag));
        HD_TRY(hd_session_descriptor(session, rank.diag, &fd));
        HD_TRY(hd_session_notify(session, Tell, &told, rank.diag));
        RANK_EXPECT(IsReadable(fd, kPatience));
        while (told.calls == 0)
            usleep(1000);
        RANK_EXPECT(told.status == HD_ERROR_PEER);
        RANK_EXPECT(caller.IsIdle(nullptr));
        hd_status status = hd_session_query(session, rank.diag, &done);
        RANK_EXPECT(done);
        return status;
    };

    for (const Answer &answer : RunRanks(2, body)) {
        EXPECT_TRUE(answer.ended);
        EXPECT_EQ(answer.status, HD_ERROR_PEER) << answer.text;
    }
}

// Two halves of four ranks at once with the whole.
TEST_P(CudaCompletion, OfGroupsThatAreSplitIsTheirOwn)
{
    Program program(kEverything, 2);
    Program whole("heddle 2\nhost program whole mesh tp=4\n"
                  "in %x : f32[size tp@tp, 64] shared\n"
                  "out %y : f32[64]\n"
                  "{ %y = all_reduce %x[tp] }\n");
    auto body = [&](Rank &rank) {
        Caller caller;
        Rank half = rank;

        HD_TRY(caller.Open(rank));
        HD_TRY(hd_group_split(rank.group, rank.rank % 2, -rank.rank, rank.diag,
                              &half.group));
        half.rank = hd_group_rank(half.group);
        half.size = hd_group_size(half.group);
        RANK_EXPECT(half.size == 2 && half.rank == 1 - rank.rank / 2);
        {
            Session part, all;

            HD_TRY(all.Open(rank, whole, Options()));
            HD_TRY(part.Open(half, program, Options()));
            Shards of_all(all), of_part(part);
            HD_TRY(of_all.Put(whole.Inputs(), whole.Module(), rank.rank,
                              rank.diag));
            HD_TRY(of_part.Put(program.Inputs(rank.rank % 2), program.Module(),
                               half.rank, rank.diag));
            for (int run = 0; run < 3; run++) {
                HD_TRY(of_all.Run(rank.diag));
                HD_TRY(of_part.Run(rank.diag));
            }
            HD_TRY(of_part.Get(rank.diag));
            HD_TRY(of_all.Get(rank.diag));
            HD_TRY(program.Compare(of_part, half.rank, rank.rank % 2));
            HD_TRY(whole.Compare(of_all, rank.rank));
        }
        hd_group_destroy(half.group);
        return HD_OK;
    };

    AllAreRight(RunRanks(4, body));
}

} // namespace
