// Several sessions of one group are alive, and a run of one of them is under
// way: what happens to the group then, its parts and its process. Nobody waits
// for what never comes, and each is told what is written in heddle.h.
#include <gtest/gtest.h>

#include <array>
#include <thread>

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

// Each of rank 0, of which one waits for a peer that does not come, says who
// was aborted, and so does what comes after; a part of the group goes on.
hd_status EndByAbort(Rank &rank, const Program &program,
                     const hd_session_options &options)
{
    Several several;
    Session late;
    Rank part = rank;
    hd_status status = HD_OK;

    HD_TRY(several.Open(rank, program, options));
    HD_TRY(hd_group_split(rank.group, 0, 0, rank.diag, &part.group));
    {
        Session session;

        HD_TRY(session.Open(part, program, options));
        if (rank.rank == 0)
            status = several.shards->RunOn(several.stream, rank.diag);
        std::thread aborting([&] {
            SleepFor(0.05);
            if (rank.rank == 0)
                hd_group_abort(rank.group);
        });
        double start = Now();
        if (status == HD_OK && rank.rank == 0)
            status = hd_session_finish(several.sessions[1], rank.diag);
        rank.answer->seconds = Now() - start;
        aborting.join();
        if (rank.rank == 1)
            status =
                hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag);
        for (Session &one : several.sessions) {
            bool done;

            if (hd_session_finish(one, nullptr) != HD_ERROR_PEER ||
                hd_session_query(one, nullptr, &done) != HD_ERROR_PEER)
                status = HD_ERROR_INVALID;
        }
        if (late.Open(rank, program, options) != HD_ERROR_PEER)
            status = HD_ERROR_INVALID;
        hd_status other = RunAndCompare(part, program, session, 2);
        if (other != HD_OK)
            status = hd_fail(rank.diag, HD_ERROR_INVALID, "the part: %d",
                             int(other));
    }
    hd_group_destroy(part.group);
    return status;
}

TEST_P(CudaSeveral, EndWithTheirGroupAndNoOther)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(
        2, [&](Rank &rank) { return EndByAbort(rank, program, Options()); });

    for (int i = 0; i < 2; i++) {
        EndedByPeer(answers[size_t(i)], i, "rank 0 was aborted by its caller");
    }
    EXPECT_LT(answers[0].seconds, kPatience / 4);
}

// None of its calls waits to hear of it first.
hd_status CallAborted(Rank &rank, hd_session *session)
{
    bool done = false;
    int fd;
    void *at;
    hd_session *late;
    float word = 0;

    RANK_EXPECT(hd_session_finish(session, rank.diag) == HD_ERROR_PEER);
    RANK_EXPECT(hd_session_query(session, nullptr, &done) == HD_ERROR_PEER);
    RANK_EXPECT(hd_session_wait(session, 1, nullptr, &done) == HD_ERROR_PEER);
    RANK_EXPECT(hd_session_run(session, nullptr, 0, nullptr, nullptr) ==
                HD_ERROR_PEER);
    RANK_EXPECT(hd_session_copy(session, &word, &word, 4, nullptr) ==
                HD_ERROR_PEER);
    RANK_EXPECT(hd_session_alloc(session, 4, nullptr, &at) == HD_ERROR_PEER);
    RANK_EXPECT(hd_session_descriptor(session, nullptr, &fd) == HD_ERROR_PEER);
    RANK_EXPECT(hd_session_create(rank.group, hd_session_module(session),
                                  nullptr, nullptr, &late) == HD_ERROR_PEER);
    RANK_EXPECT(hd_group_trim(rank.group, nullptr) == HD_ERROR_PEER);
    RANK_EXPECT(hd_group_allgather(rank.group, nullptr, 0, nullptr, nullptr) ==
                HD_ERROR_PEER);
    return HD_OK;
}

TEST(Several, IdleSessionsOfAnAbortedGroupSaySoAtOnce)
{
    for (const char *device : {"cpu", "cuda"})
        for (int ranks : {1, 2}) {
            Program program(
                "heddle 2 host program idle mesh tp=" + std::to_string(ranks) +
                " in %x : f32[8] shared out %y : f32[8] shared { %y = "
                "all_reduce %x }");
            auto body = [&](Rank &rank) {
                hd_session_options options = CudaOptions();
                Session session;

                options.device = device;
                HD_TRY(session.Create(rank, program, options));
                HD_TRY(RunAndCompare(rank, program, session, 1));
                HD_TRY(Meet(rank));
                if (rank.rank == 0)
                    hd_group_abort(rank.group);
                else
                    RANK_EXPECT(hd_group_allgather(rank.group, nullptr, 0,
                                                   nullptr,
                                                   nullptr) == HD_ERROR_PEER);
                return CallAborted(rank, session);
            };

            for (const Answer &answer : RunRanks(ranks, body)) {
                Ended(answer, 0);
                EXPECT_EQ(answer.status, HD_OK) << answer.text;
                EXPECT_TRUE(Has(answer, "rank 0 was aborted by its caller"))
                    << answer.text;
            }
        }
}

// The caller's stream holds a run up that no word of a peer's could end: calls
// come back, and what the device may still be working with stays.
TEST(CudaStuck, SessionsAreGivenUp)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        auto several = std::make_unique<Several>();
        hd_group *part = nullptr;

        rank.page->keeps = true;
        HD_TRY(several->Open(rank, program, CudaOptions()));
        HD_TRY(hd_group_split(rank.group, 0, 0, rank.diag, &part));
        // A run that is issued later is refused, and leaves a stream held up
        // with nothing of ours on it, which CUDA waits for whenever it frees.
        if (rank.rank == 0)
            HD_TRY(several->Hold(rank));
        HD_TRY(Meet(rank));
        clock_goes(8);
        if (rank.rank == 1)
            hd_group_abort(rank.group);
        hd_status status = hd_session_finish(several->sessions[1], rank.diag);
        if (rank.rank == 1)
            status =
                hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag);
        hd_session_destroy(several->sessions[0].Take());
        hd_session_destroy(several->sessions[2].Take());
        hd_session *stuck = several->sessions[1].Take();
        // To free it would wait for the stream.
        Shards *lost = several->shards.release();
        static_cast<void>(lost);
        hd_session_destroy(stuck);
        hd_group_destroy(rank.group);
        rank.group = part; // another one of the process is none the worse
        several->caller.LetGo();
        clock_goes(1);
        Session session;
        HD_TRY(session.Open(rank, program, CudaOptions()));
        HD_TRY(RunAndCompare(rank, program, session, 1));
        return status;
    });

    for (int i = 0; i < 2; i++) {
        EXPECT_TRUE(answers[size_t(i)].ended);
        EXPECT_EQ(answers[size_t(i)].status, HD_ERROR_PEER)
            << answers[size_t(i)].text;
        EXPECT_TRUE(Has(answers[size_t(i)], "rank 1 was aborted by its caller"))
            << answers[size_t(i)].text;
    }
}

// All that a forked child may do is to let go of them. `calls` was looked up
// before: the lock of what finds it may be one of a thread that is not here.
hd_status UseInChild(const Rank &rank, Several &several, void *memory,
                     decltype(fake_cuda_calls) *calls)
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
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(UseInChild(rank, several, memory, calls) == HD_OK ? 0 : 1);
        }
        waitpid(child, &how, 0);
        HD_TRY(several.LetGo(rank, program)); // or to free would wait for ever
        return WIFEXITED(how) && WEXITSTATUS(how) == 0
                   ? HD_OK
                   : hd_fail(rank.diag, HD_ERROR_INVALID, "the child: %d", how);
    };

    AllAreRight(RunRanks(2, body));
}

} // namespace
