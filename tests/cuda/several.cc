// Several sessions of one group are alive, and a run of one of them is under
// way: what happens to the group then, its parts and its process. Nobody waits
// for what never comes, and each is told what is written in heddle.h.
#include <gtest/gtest.h>

#include <array>

#include <heddle/async.h>
#include <heddle/memory.h>

#include "tests/cuda/caller.h"
#include "tests/cuda/way.h"

namespace
{

class CudaSeveral : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaSeveral, testing::ValuesIn(kWays), NameOfWay);

// Three sessions, one of which has a run that the caller holds up. All of them
// have run before.
struct Several {
    Caller caller;
    hd_cu_stream stream = nullptr;
    std::array<Session, 3> sessions;
    std::unique_ptr<Shards> shards;

    hd_status Open(const Rank &rank, const Program &program,
                   const hd_session_options &options)
    {
        HD_TRY(caller.Open(rank));
        stream = caller.Stream();
        for (Session &session : sessions) {
            HD_TRY(session.Open(rank, program, options));
            HD_TRY(RunAndCompare(rank, program, session, 1));
        }
        shards = std::make_unique<Shards>(sessions[1]);
        return shards->Put(program.Inputs(), program.Module(), rank.rank,
                           rank.diag);
    }
    // A run of the second one that is under way until LetGo.
    hd_status Hold(const Rank &rank)
    {
        HD_TRY(caller.HoldUp(stream));
        return shards->RunOn(stream, rank.diag);
    }
    hd_status LetGo(const Rank &rank, const Program &program)
    {
        bool done = true;

        HD_TRY(hd_session_query(sessions[1], rank.diag, &done));
        if (done)
            return hd_fail(rank.diag, HD_ERROR_INVALID, "the run is over");
        caller.LetGo();
        HD_TRY(shards->Get(rank.diag));
        HD_TRY(program.Compare(*shards, rank.rank));
        for (Session &session : sessions)
            HD_TRY(RunAndCompare(rank, program, session, 1));
        return HD_OK;
    }
};

// A part of the group has sessions, runs and memory of its own meanwhile, which
// go before or after those of the whole.
TEST_P(CudaSeveral, AreLeftAloneByAPartOfTheirGroup)
{
    Program program(kEverything);
    auto body = [&](Rank &rank) {
        auto several = std::make_unique<Several>();
        Rank part = rank;

        HD_TRY(several->Open(rank, program, Options()));
        HD_TRY(
            hd_group_split(rank.group, 0, -rank.rank, rank.diag, &part.group));
        part.rank = hd_group_rank(part.group);
        {
            Session session;

            HD_TRY(session.Open(part, program, Options()));
            Shards shards(session);
            HD_TRY(shards.Put(program.Inputs(), program.Module(), part.rank,
                              rank.diag));
            HD_TRY(several->Hold(rank));
            HD_TRY(shards.RunOn(several->caller.Stream(), rank.diag));
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, part.rank));
            HD_TRY(several->LetGo(rank, program));
        }
        if (rank.rank == 0)
            several.reset();
        hd_group_destroy(part.group);
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

// All that a forked child may do is to let go of them.
hd_status UseInChild(const Rank &rank, Several &several, void *memory)
{
    hd_group *group;
    hd_session *session;
    bool done;
    void *at;

    for (Session &one : several.sessions)
        for (hd_status status :
             {hd_session_finish(one, nullptr),
              hd_session_query(one, nullptr, &done),
              hd_session_alloc(one, 64, nullptr, &at),
              hd_session_copy(one, memory, &at, sizeof at, nullptr)})
            RANK_EXPECT(status == HD_ERROR_ARGUMENT);
    RANK_EXPECT(several.shards->Run(nullptr) == HD_ERROR_ARGUMENT);
    RANK_EXPECT(
        hd_session_create(rank.group, hd_session_module(several.sessions[0]),
                          nullptr, nullptr, &session) == HD_ERROR_ARGUMENT);
    RANK_EXPECT(hd_group_alloc(rank.group, "cuda", 64, nullptr, &at) ==
                HD_ERROR_ARGUMENT);
    RANK_EXPECT(hd_group_trim(rank.group, nullptr) == HD_ERROR_ARGUMENT);
    RANK_EXPECT(hd_group_split(rank.group, 0, 0, nullptr, &group) ==
                HD_ERROR_ARGUMENT);
    auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
    hd_group_abort(rank.group);
    hd_group_free(rank.group, memory);
    several.shards.reset();
    for (Session &one : several.sessions)
        hd_session_destroy(one.Take());
    hd_group_destroy(rank.group);
    // CUDA is not to be called where it was not begun.
    for (const char *symbol : {"cuMemFree_v2", "cuCtxPushCurrent_v2",
                               "cuStreamDestroy_v2", "cuMemAlloc_v2"})
        RANK_EXPECT(calls(symbol) == 0);
    return HD_OK;
}

TEST_P(CudaSeveral, AreNoneOfAChildThatIsForked)
{
    Program program(kEverything);
    auto body = [&](Rank &rank) {
        Several several;
        void *memory = nullptr;
        int how = 0;

        HD_TRY(several.Open(rank, program, Options()));
        HD_TRY(hd_group_alloc(rank.group, "cuda", 64, rank.diag, &memory));
        HD_TRY(several.Hold(rank));
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(UseInChild(rank, several, memory) == HD_OK ? 0 : 1);
        }
        waitpid(child, &how, 0);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            return hd_fail(rank.diag, HD_ERROR_INVALID, "the child: %d", how);
        return several.LetGo(rank, program);
    };

    AllAreRight(RunRanks(2, body));
}

} // namespace
