// What runs of a capture are given: values of the host's, arrays with strides,
// and functions of the caller's, which may fail.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include <heddle/call.h>

#include "tests/cuda/capturing.h"
#include "tests/cuda/way.h"

namespace
{

class CudaCapturedPassing : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaCapturedPassing,
                         testing::ValuesIn(WaysThat(true)), NameOfWay);

const int64_t kRows = 6, kWide = 4, kAll = kRows * kWide;
const size_t kRoom = 512; // elements of memory for each argument

// Sums, products and moves of small whole numbers, which are exact.
const char *const kGiven = "heddle 2\n"
                           "host program given mesh tp=2 streams 2\n"
                           "in %x : f32[size tp@tp, 6, 4] shared\n"
                           "in %s : f32[1]\n"
                           "out %y : f32[6, 4]\n"
                           "out %g : f32[size tp, 6, 4] shared\n"
                           "out %r : f32[6, 4]\n"
                           "temp %u : f32[6, 4] shared\n"
                           "{ %u = mul %x[tp], %s\n"
                           "  fork\n"
                           "  on stream 0 { %g = all_gather %x[tp] }\n"
                           "  on stream 1 {\n"
                           "    %y = all_reduce %u\n"
                           "    %r = call \"turn\" %u over 2 }\n"
                           "  join }\n";

// All on the caller's own stream, so that nothing is left to be joined.
const char *const kAlone = "heddle 2\n"
                           "host program alone mesh tp=2\n"
                           "in %x : f32[size tp@tp, 6, 4] shared\n"
                           "in %s : f32[1]\n"
                           "out %y : f32[6, 4]\n"
                           "out %g : f32[size tp, 6, 4] shared\n"
                           "out %r : f32[6, 4]\n"
                           "temp %u : f32[6, 4] shared\n"
                           "{ %u = mul %x[tp], %s\n"
                           "  %g = all_gather %x[tp]\n"
                           "  %r = call \"turn\" %u over 2\n"
                           "  %y = all_reduce %u }\n";

struct Turn {
    Caller *caller;
    bool fails = false;
};

// Rows from the last to the first.
hd_status TurnRows(void *context, const hd_call_site *site)
{
    const Turn *turn = static_cast<const Turn *>(context);
    const hd_call_view &to = site->result[0], &from = site->operand[0];

    if (turn->fails) {
        snprintf(site->why, site->nwhy, "no room for %d rows", int(kRows));
        return HD_ERROR_NO_MEMORY;
    }
    for (int64_t i = 0; i < kRows; i++) {
        float *row = static_cast<float *>(to.address) + i * to.stride[0];
        float *other = static_cast<float *>(from.address) +
                       (kRows - 1 - i) * from.stride[0];

        if (turn->caller->cu.copy(uintptr_t(row), uintptr_t(other),
                                  kWide * sizeof(float),
                                  hd_cu_stream(site->stream)) != 0)
            return HD_ERROR_SYSTEM;
    }
    return HD_OK;
}

// How a run is given its arguments, drawn anew.
struct Given {
    int64_t x[3], y[2]; // strides
    float s;

    explicit Given(std::mt19937 &random)
    {
        Draw(random, x + 1);
        Draw(random, y);
        x[0] = 400; // of one index
        s = float(1 + random() % 9);
    }

  private:
    static void Draw(std::mt19937 &random, int64_t *stride)
    {
        bool turned = random() % 2 == 0;

        stride[turned] = 1 + int64_t(random() % 2);
        stride[!turned] =
            stride[turned] * (turned ? kRows : kWide) + int64_t(random() % 3);
        if (turned)
            std::swap(stride[0], stride[1]);
        // stride[0] is of rows.
        if (stride[0] < stride[1] ? stride[1] < stride[0] * kRows
                                  : stride[0] < stride[1] * kWide)
            stride[0] = stride[1] * kWide;
    }
};

// A session, the memory of its arguments, and the functions it calls.
struct GivenScene {
    Caller caller;
    Turn turn{&caller};
    Session session;
    hd_cu_stream stream = nullptr;
    void *at[5] = {};

    hd_status Open(const Rank &rank, const Program &program,
                   hd_session_options options)
    {
        hd_call call = {sizeof call, "turn", TurnRows, &turn};

        options.calls = &call;
        options.ncalls = 1;
        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, options));
        stream = caller.Stream();
        for (void *&one : at)
            HD_TRY(hd_session_alloc(session, kRoom * sizeof(float), rank.diag,
                                    &one));
        return HD_OK;
    }
    ~GivenScene()
    {
        for (void *one : at)
            hd_session_free(session, one);
    }
    // The value is gone when this returns.
    hd_status Issue(const Rank &rank, const Given &given)
    {
        const bool on_host[5] = {false, true};
        const int64_t *const strides[5] = {given.x, nullptr, given.y};
        hd_run_options with = HD_EMPTY(hd_run_options);
        float s = given.s;
        void *all[5] = {at[0], &s, at[2], at[3], at[4]};
        hd_status status;

        with.stream = stream;
        with.on_host = on_host;
        with.strides = strides;
        status = hd_session_run(session, all, 5, &with, rank.diag);
        s = -1;
        return status;
    }
    hd_status Capture(const Rank &rank, Graph &graph, const Given &given)
    {
        HD_TRY(graph.Begin(stream, THREAD_LOCAL));
        HD_TRY(Issue(rank, given));
        return graph.End();
    }
    // The graph's run, or one that is issued, on numbers that ranks draw alike.
    hd_status RunAndCompare(const Rank &rank, const Graph *graph,
                            const Given &given, unsigned seed)
    {
        std::mt19937 random(seed);
        std::vector<float> x(2 * kAll), whole(kRoom);

        for (float &one : x)
            one = float(random() % 16);
        memset(whole.data(), 0xff, kRoom * sizeof(float));
        for (void *one : at)
            HD_TRY(hd_session_copy(session, one, whole.data(),
                                   kRoom * sizeof(float), rank.diag));
        for (int64_t i = 0; i < kAll; i++)
            whole[size_t(At(given.x + 1, i))] = x[size_t(rank.rank * kAll + i)];
        HD_TRY(hd_session_copy(session, at[0], whole.data(),
                               kRoom * sizeof(float), rank.diag));
        HD_TRY(graph != nullptr ? graph->Launch(stream) : Issue(rank, given));
        if (caller.cu.stream_synchronize(stream) != 0)
            return HD_ERROR_SYSTEM;
        return Compare(rank, given, x);
    }

  private:
    static int64_t At(const int64_t *stride, int64_t i)
    {
        return i / kWide * stride[0] + i % kWide * stride[1];
    }
    // All of the memory: what lies between elements is as it was.
    hd_status Compare(const Rank &rank, const Given &given,
                      const std::vector<float> &x)
    {
        static const int64_t dense[] = {kWide, 1};
        std::vector<float> want[5], got(kRoom);
        const float *mine = &x[size_t(rank.rank * kAll)];

        for (std::vector<float> &one : want) {
            one.resize(kRoom);
            memset(one.data(), 0xff, kRoom * sizeof(float));
        }
        for (int64_t i = 0; i < kAll; i++) {
            want[2][size_t(At(given.y, i))] =
                (x[size_t(i)] + x[size_t(kAll + i)]) * given.s;
            want[4][size_t(At(dense, i))] =
                mine[(kRows - 1 - i / kWide) * kWide + i % kWide] * given.s;
        }
        std::copy(x.begin(), x.end(), want[3].begin());
        for (size_t i : {2, 3, 4}) {
            HD_TRY(hd_session_copy(session, got.data(), at[i],
                                   kRoom * sizeof(float), rank.diag));
            if (memcmp(got.data(), want[i].data(), kRoom * sizeof(float)) != 0)
                return Wrong(rank, i == 2   ? "%y is another"
                                   : i == 3 ? "%g is another"
                                            : "%r is another");
        }
        return HD_OK;
    }
};

// Several captures, each with a value and strides of its own, in any order and
// among runs that are issued with others.
hd_status Replay(Rank &rank, const Program &program,
                 const hd_session_options &options, unsigned seed)
{
    std::mt19937 random(seed);
    std::vector<Given> given;
    GivenScene scene;

    HD_TRY(scene.Open(rank, program, options));
    for (int i = 0; i < 4; i++)
        given.emplace_back(random);
    std::vector<std::unique_ptr<Graph>> graphs;
    for (int i = 0; i < 3; i++) {
        graphs.push_back(std::make_unique<Graph>(scene.caller));
        HD_TRY(scene.Capture(rank, *graphs.back(), given[size_t(i)]));
    }
    for (int n = 0; n < 16; n++) {
        size_t which = random() % 4;

        HD_TRY(scene.RunAndCompare(rank,
                                   which < 3 ? graphs[which].get() : nullptr,
                                   given[which], seed + unsigned(n)));
    }
    return HD_OK;
}

TEST_P(CudaCapturedPassing, ValuesStridesAndCallsAreThoseOfTheCapture)
{
    unsigned seed = Seed();

    for (const char *text : {kGiven, kAlone}) {
        Program program(text, 0); // nobody else knows what it calls
        auto body = [&](Rank &rank) {
            return Replay(rank, program, Options(), seed);
        };

        AllAreRight(RunRanks(2, body));
        AllAreRight(RunProcesses({{0, 1}}, body));
    }
}

// Nothing of the run can be launched, and the session goes on.
TEST_P(CudaCapturedPassing, AFunctionThatFailsEndsTheCapture)
{
    for (const char *text : {kGiven, kAlone}) {
        Program program(text, 0); // nobody else knows what it calls
        auto body = [&](Rank &rank) {
            std::mt19937 random(Seed());
            GivenScene scene;
            Given given(random);

            HD_TRY(scene.Open(rank, program, Options()));
            Graph failed(scene.caller), graph(scene.caller);
            scene.turn.fails = true;
            HD_TRY(failed.Begin(scene.stream));
            if (scene.Issue(rank, given) != HD_ERROR_NO_MEMORY ||
                strstr(hd_diag_text(rank.diag), "no room for 6 rows") ==
                    nullptr)
                return Wrong(rank, "a call that fails");
            hd_diag_clear(rank.diag);
            if (failed.End() == HD_OK)
                return Wrong(rank, "half a run is a graph");
            scene.turn.fails = false;
            HD_TRY(scene.RunAndCompare(rank, nullptr, given, 1));
            HD_TRY(scene.Capture(rank, graph, given));
            HD_TRY(scene.RunAndCompare(rank, &graph, given, 2));
            return hd_session_finish(scene.session, rank.diag);
        };

        AllAreRight(RunRanks(2, body));
    }
}

} // namespace
