// A caller that captures a graph of its own: a run that would have to be part
// of it is refused before anything begins, and all else goes on beside it
// without either noticing the other.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include <heddle/environment.h>

#include "tests/cuda/caller.h"
#include "tests/cuda/way.h"

namespace
{

class CudaCaptures : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaCaptures, testing::ValuesIn(WaysThat(false)),
                         NameOfWay);

// A graph of the caller's, of one fill.
class Graph
{
  public:
    explicit Graph(Caller &caller) : caller_(caller)
    {
        if (caller.cu.alloc(&memory_, 64) != 0)
            abort();
    }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    ~Graph()
    {
        caller_.cu.free(memory_);
    }
    bool Begin(hd_cu_stream stream, int mode)
    {
        stream_ = stream;
        return caller_.cu.capture_begin(stream, mode) == 0 &&
               caller_.cu.fill8(memory_, 1, 64, stream) == 0;
    }
    // Whether it is whole, and was until now.
    bool End()
    {
        hd_cu_graph graph = nullptr;
        int result = caller_.cu.fill8(memory_, 2, 64, stream_);

        if (caller_.cu.capture_end(stream_, &graph) != 0 || result != 0)
            return false;
        return caller_.cu.graph_destroy(graph) == 0;
    }

  private:
    Caller &caller_;
    hd_cu_ptr memory_ = 0;
    hd_cu_stream stream_ = nullptr;
};

// HD_ERROR_ARGUMENT with these words, and with what to do instead.
bool IsRefused(hd_status status, const Rank &rank, const char *words)
{
    std::string text = hd_diag_text(rank.diag);

    return status == HD_ERROR_ARGUMENT &&
           text.find(words) != std::string::npos &&
           text.find("outside of the capture") != std::string::npos;
}

// A run beside whatever goes on, right on the inputs `set`.
hd_status RunRight(Shards &shards, const Program &program, const Rank &rank,
                   hd_cu_stream stream, int set)
{
    const Arguments &inputs = program.Inputs(set);

    if (shards.Count() == 0)
        HD_TRY(shards.Put(inputs, program.Module(), rank.rank, rank.diag));
    HD_TRY(shards.Set(inputs, program.Module(), rank.rank, rank.diag));
    HD_TRY(shards.RunOn(stream, rank.diag));
    HD_TRY(shards.Get(rank.diag));
    return program.Compare(shards, rank.rank, set);
}

// What a caller has who captures beside a session.
struct Scene {
    Caller caller;
    Session session;
    hd_cu_stream stream = nullptr;
    std::unique_ptr<Shards> shards;
    std::unique_ptr<Graph> graph;

    hd_status Open(const Rank &rank, const Program &program,
                   const hd_session_options &options)
    {
        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, options));
        stream = caller.Stream();
        shards = std::make_unique<Shards>(session);
        graph = std::make_unique<Graph>(caller);
        return HD_OK;
    }
    // Runs into the stream while that is being captured.
    hd_status BeRefused(const Rank &rank, int mode)
    {
        if (!graph->Begin(stream, mode))
            return Wrong(rank, "no capture");
        for (int i = 0; i < 2; i++) {
            if (!IsRefused(shards->RunOn(stream, rank.diag), rank,
                           "which is being captured"))
                return Wrong(rank, hd_diag_text(rank.diag));
        }
        hd_diag_clear(rank.diag);
        return graph->End() ? HD_OK : Wrong(rank, "the capture has failed");
    }
};

TEST_P(CudaCaptures, OfTheStreamIsRefusedAndNothingHasBegun)
{
    Program program(kEverything, 3);
    auto body = [&](Rank &rank) {
        Scene scene;
        hd_stats stats = HD_EMPTY(hd_stats);

        HD_TRY(scene.Open(rank, program, Options()));
        for (int mode : {GLOBAL, THREAD_LOCAL, RELAXED}) {
            HD_TRY(RunRight(*scene.shards, program, rank, scene.stream, mode));
            HD_TRY(scene.BeRefused(rank, mode));
        }
        hd_session_stats(scene.session, &stats);
        rank.answer->number = int64_t(stats.runs);
        return HD_OK;
    };
    std::vector<Answer> answers = RunRanks(2, body);

    AllAreRight(answers);
    EXPECT_EQ(answers[0].number, 3);
}

// The other rank waits as for any rank that comes late.
TEST_P(CudaCaptures, OnOneRankAloneHoldsUpTheOthersUntilItRuns)
{
    Program program(kEverything, 2);
    auto body = [&](Rank &rank) {
        Scene scene;

        HD_TRY(scene.Open(rank, program, Options()));
        HD_TRY(RunRight(*scene.shards, program, rank, scene.stream, 0));
        if (rank.rank == 0)
            HD_TRY(scene.BeRefused(rank, GLOBAL));
        return RunRight(*scene.shards, program, rank, scene.stream, 1);
    };

    AllAreRight(RunRanks(2, body));
}

TEST_P(CudaCaptures, OnOneRankForGoodIsATimeoutThatNamesIt)
{
    Program program(kEverything);
    auto body = [&](Rank &rank) {
        Scene scene;

        HD_TRY(scene.Open(rank, program, Options(kLate)));
        HD_TRY(RunRight(*scene.shards, program, rank, scene.stream, 0));
        if (rank.rank == 0) {
            HD_TRY(scene.BeRefused(rank, GLOBAL));
            return Meet(rank);
        }
        hd_status status = scene.shards->RunOn(scene.stream, rank.diag);
        if (status == HD_OK)
            status = hd_session_finish(scene.session, rank.diag);
        HD_TRY(Meet(rank));
        return status;
    };
    std::vector<Answer> answers = RunRanks(2, body);

    EXPECT_TRUE(answers[0].ended && answers[1].ended) << "hangs";
    EXPECT_EQ(answers[0].status, HD_OK) << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_ERROR_TIMEOUT) << answers[1].text;
    if (!GetParam().IsUnnamed()) {
        EXPECT_TRUE(Has(answers[1], "rank 1 waits for rank 0"))
            << answers[1].text;
    }
}

// A stream that is in order with the default one makes that unusable, and a
// capture of it must not fail for it.
TEST_P(CudaCaptures, ThatTheDefaultStreamIsInOrderWithIsRefused)
{
    Program program(kEverything, 2);
    auto body = [&](Rank &rank) {
        Scene scene;
        hd_cu_stream blocking = nullptr;

        HD_TRY(scene.Open(rank, program, Options()));
        if (scene.caller.cu.stream_create(&blocking, 0, 0) != 0)
            return HD_ERROR_SYSTEM;
        HD_TRY(RunRight(*scene.shards, program, rank, nullptr, 0));
        if (!scene.graph->Begin(blocking, RELAXED) ||
            !IsRefused(scene.shards->Run(rank.diag), rank,
                       "the default stream") ||
            !scene.graph->End())
            return Wrong(rank, hd_diag_text(rank.diag));
        hd_diag_clear(rank.diag);
        scene.caller.cu.stream_destroy(blocking);
        return RunRight(*scene.shards, program, rank, nullptr, 1);
    };

    AllAreRight(RunRanks(2, body));
}

// Sessions are made, run, waited for and ended, and memory is taken, copied and
// given back, while a stream of the same thread, or of another one, is captured
// in a mode that forbids that; and the thread that watches looks on.
TEST_P(CudaCaptures, OfAnotherStreamIsLeftAlone)
{
    Program program(kEverything, 3);
    auto body = [&](Rank &rank) {
        Caller caller;

        HD_TRY(caller.Open(rank));
        hd_cu_stream captured = caller.Stream(), stream = caller.Stream();
        Graph graph(caller);
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        hd_cu_context context = nullptr;
        caller.cu.context_current(&context);
        auto live = [&](int set) {
            Session session;

            HD_TRY(session.Open(rank, program, Options()));
            Shards shards(session);
            for (int n = 0; n < 3; n++)
                HD_TRY(RunRight(shards, program, rank, stream, set));
            long before = calls("cuEventQuery");
            while (calls("cuEventQuery") < before + 4)
                usleep(1000);
            return HD_OK;
        };
        HD_TRY(graph.Begin(captured, GLOBAL) ? live(0) : HD_ERROR_SYSTEM);
        if (!graph.End())
            return Wrong(rank, "its own capture has failed");
        for (int mode : {GLOBAL, RELAXED}) {
            std::atomic<int> state{0};
            bool whole = false;
            std::thread other([&] {
                whole = caller.cu.context_push(context) == 0 &&
                        graph.Begin(captured, mode);
                state = 1;
                while (state == 1)
                    usleep(100);
                whole = graph.End() && whole;
            });

            while (state == 0)
                usleep(100);
            hd_status status = live(1 + mode / RELAXED);
            state = 2;
            other.join();
            HD_TRY(status);
            if (!whole)
                return Wrong(rank, "the other thread's capture has failed");
        }
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

TEST(CudaCapture, IsLeftAloneByWhoAsksWhatAMachineOffers)
{
    auto body = [&](Rank &rank) {
        Caller caller;
        hd_environment *found = nullptr;

        HD_TRY(caller.Open(rank));
        Graph graph(caller);
        if (!graph.Begin(caller.Stream(), GLOBAL))
            return Wrong(rank, "no capture");
        HD_TRY(hd_environment_create(rank.diag, &found));
        bool verified = found->nlinks > 0 && found->link[0].verified;
        hd_environment_destroy(found);
        return graph.End() && verified ? HD_OK : Wrong(rank, "it failed");
    };

    AllAreRight(RunRanks(1, body));
}

TEST_P(CudaCaptures, ThatAnEventWasRecordedInIsRefused)
{
    Program program("heddle 2\n"
                    "host program waits mesh tp=2\n"
                    "in %x : i32[size tp@tp, 64] shared\n"
                    "in %early : event[]\n"
                    "in %go : event[]\n"
                    "out %y : i32[size tp, 64] shared\n"
                    "temp %own : event[]\n"
                    "{ %own = record  wait %own, %early, %go"
                    "  %y = all_gather %x[tp] }\n");
    auto body = [&](Rank &rank) {
        Caller caller;
        Session session;

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, Options()));
        hd_cu_stream captured = caller.Stream(), stream = caller.Stream();
        hd_cu_event early = caller.Event(), go = caller.Event();
        Graph graph(caller);
        void *arguments[4] = {nullptr, early, go, nullptr};
        hd_run_options on = HD_EMPTY(hd_run_options);

        on.stream = stream;
        HD_TRY(hd_session_alloc(session, 2 * 64 * 4, rank.diag, &arguments[0]));
        HD_TRY(hd_session_alloc(session, 2 * 64 * 4, rank.diag, &arguments[3]));
        if (!graph.Begin(captured, GLOBAL) ||
            caller.cu.event_record(go, captured) != 0)
            return Wrong(rank, "no capture");
        hd_status status =
            hd_session_run(session, arguments, 4, &on, rank.diag);
        if (!IsRefused(status, rank, "waits for the event %go"))
            return Wrong(rank, hd_diag_text(rank.diag));
        graph.End(); // which asking for the event may have spoilt
        hd_diag_clear(rank.diag);
        if (caller.cu.event_record(go, stream) != 0)
            return HD_ERROR_SYSTEM;
        HD_TRY(hd_session_run(session, arguments, 4, &on, rank.diag));
        HD_TRY(hd_session_finish(session, rank.diag));
        hd_session_free(session, arguments[0]);
        hd_session_free(session, arguments[3]);
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

} // namespace
