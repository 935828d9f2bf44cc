#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <random>
#include <unistd.h>

#include <heddle/verify.h>

#include <heddle/async.h>
#include <heddle/environment.h>

#include "base/diag.h"
#include "runtime/driver.h"
#include "runtime/ranks/group.h"
#include "tests/clock.h"
#include "tests/seed.h"
#include "tests/unit/memory.h"
#include "tests/unit/ranks.h"

// Of runtime/event.h, which is C alone.
extern "C" {
uint64_t hd_event_issue(hd_event *event, uint64_t n);
void hd_event_reach(hd_event *event, uint64_t number);
}

namespace
{

// Seconds that a rank waits where a test waits until it does not any more, of a
// clock that stands still while a busy machine does not get round to ranks.
const double kLate = 1;

// As messages tell it.
std::string ForLate()
{
    char text[32];

    snprintf(text, sizeof text, " for %.1f s", kLate);
    return text;
}

// The ring of an all-gather and a matmul: each rank has [2, 8], the weights are
// [8, 3]. KEYS goes to the transfers.
std::string RingText(int streams, const std::string &keys)
{
    return "heddle 2\n"
           "host program ring\n"
           "mesh tp=4\n"
           "streams " +
           std::to_string(streams) +
           "\n"
           "in %a : f32[size tp@tp, 2, 8]\n"
           "in %b : f32[8, 3]\n"
           "out %c : f32[size tp, 2, 3]\n"
           "temp %ag : f32[size tp, 2, 8] shared\n"
           "temp %hop : event[size tp]\n"
           "{\n"
           "    %ag[tp] = copy %a[tp]\n"
           "    %hop[0] = record\n"
           "    fork\n"
           "    for j in 0..size tp {\n"
           "        on stream j mod " +
           std::to_string(streams) +
           " {\n"
           "            let i = (tp - j) mod size tp\n"
           "            wait %hop[j]\n"
           "            if j < size tp - 1 {\n"
           "                group {\n"
           "                    send %ag[i] to (tp + 1) mod size tp" +
           keys +
           "\n"
           "                    %ag[(i - 1) mod size tp] = recv from (tp - 1) "
           "mod size tp" +
           keys +
           "\n"
           "                }\n"
           "                %hop[j + 1] = record\n"
           "            }\n"
           "            %c[i] = matmul %ag[i], %b\n"
           "        }\n"
           "    }\n"
           "    join\n"
           "}\n";
}

hd_status Parse(const std::string &text, hd_diag *diag, hd_module **out,
                int ranks = 0)
{
    hd_define define = {"tp", ranks};

    return hd_parse("test.hd", text.data(), text.size(), &define,
                    ranks > 0 ? 1 : 0, diag, out);
}

// Small whole numbers, so that every sum is exact.
float Input(int rank, size_t i, int run)
{
    return static_cast<float>((size_t(rank) * 5 + i * 3 + size_t(run) * 7) %
                              11) -
           5;
}

float Weight(size_t i, int run)
{
    return static_cast<float>((i * 7 + size_t(run) * 3) % 9) - 4;
}

// One run's arguments on one rank, and its answer.
struct RingRun {
    RingRun(int rank, int ranks, int run) : ranks(ranks), run(run)
    {
        for (size_t i = 0; i < 16; i++)
            a.push_back(Input(rank, i, run));
        for (size_t i = 0; i < 24; i++)
            b.push_back(Weight(i, run));
        c.assign(size_t(ranks) * 6, NAN);
    }
    std::vector<void *> Arguments()
    {
        return {a.data(), b.data(), c.data()};
    }
    bool IsRight() const
    {
        for (size_t r = 0; r < size_t(ranks); r++) {
            for (size_t m = 0; m < 2; m++) {
                for (size_t n = 0; n < 3; n++) {
                    float sum = 0;

                    for (size_t k = 0; k < 8; k++)
                        sum += Input(int(r), m * 8 + k, run) *
                               Weight(k * 3 + n, run);
                    if (c[(r * 2 + m) * 3 + n] != sum)
                        return false;
                }
            }
        }
        return true;
    }
    int ranks, run;
    std::vector<float> a, b, c;
};

// All of `runs` are issued before any is waited for.
hd_status RunRing(hd_session *session, hd_group *group, int runs, int seed,
                  hd_diag *diag)
{
    std::vector<RingRun> run;

    for (int i = 0; i < runs; i++)
        run.emplace_back(hd_group_rank(group), hd_group_size(group), seed + i);
    for (RingRun &one : run)
        HD_TRY(
            hd_session_run(session, one.Arguments().data(), 3, nullptr, diag));
    HD_TRY(hd_session_finish(session, diag));
    for (const RingRun &one : run)
        RANK_EXPECT(one.IsRight());
    return HD_OK;
}

hd_status RingOnRank(hd_group *group, hd_diag *diag, const std::string &text,
                     int runs)
{
    hd_module *module = nullptr;
    hd_session *session = nullptr;

    HD_TRY(Parse(text, diag, &module, hd_group_size(group)));
    HD_TRY(hd_session_create(group, module, nullptr, diag, &session));
    HD_TRY(RunRing(session, group, runs, 0, diag));
    hd_session_destroy(session);
    hd_module_destroy(module);
    return HD_OK;
}

TEST(Session, ARingGathersAndMultipliesOnAnyNumberOfRanks)
{
    for (int ranks : {1, 2, 3, 5, 8}) {
        for (int streams : {1, 3}) {
            for (const char *keys : {"", " get"}) {
                std::string text = RingText(streams, keys);
                Outcome outcome =
                    Launch(ranks, [&](hd_group *group, hd_diag *diag) {
                        return RingOnRank(group, diag, text, 3);
                    });

                EXPECT_EQ(outcome.status, HD_OK)
                    << ranks << " ranks, " << streams << " streams" << keys
                    << "\n"
                    << outcome.text;
            }
        }
    }
}

TEST(Session, RanksMayBeThreadsOfOneProcess)
{
    std::string text = RingText(2, "");

    for (hd_status status : Threads(4, [&](hd_group *group) {
             return RingOnRank(group, nullptr, text, 5);
         }))
        EXPECT_EQ(status, HD_OK);
}

TEST(Session, MoreRunsThanFitMayBeInFlight)
{
    AllEndWell(Launch(4, [](hd_group *group, hd_diag *diag) {
        return RingOnRank(group, diag, RingText(2, ""), 100);
    }));
}

// Copies `n` elements by way of a temporary of its own, and of one that peers
// may touch.
std::string CopyText(size_t n)
{
    std::string type = "f32[" + std::to_string(n) + "]";

    return "heddle 2\nhost program copies\nmesh tp=2\nin %x : " + type +
           "\nout %y : " + type + "\ntemp %t : " + type +
           "\ntemp %s : " + type +
           " shared\n{\n    %t = copy %x\n    %s = copy %t\n" +
           "    %y = copy %s\n}\n";
}

size_t ResidentBytes()
{
    size_t all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == nullptr || fscanf(file, "%zu %zu", &all, &resident) != 2)
        resident = 0;
    if (file != nullptr)
        fclose(file);
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

bool IsMapped(const char *name)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "r");

    while (file != nullptr && fgets(line, sizeof line, file) != nullptr)
        found |= strstr(line, name) != nullptr;
    if (file != nullptr)
        fclose(file);
    return found;
}

// `alive` sessions at a time, the oldest of which makes room for each new one.
hd_status ManySizes(hd_group *group, size_t alive, size_t largest,
                    hd_diag *diag)
{
    constexpr size_t kSessions = 400;
    std::vector<std::pair<hd_module *, hd_session *>> cache;
    size_t before = ResidentBytes();

    for (size_t i = 0; i < kSessions + alive; i++) {
        hd_module *module = nullptr;
        hd_session *session = nullptr;

        if (cache.size() == alive || i >= kSessions) {
            hd_session_destroy(cache.front().second);
            hd_module_destroy(cache.front().first);
            cache.erase(cache.begin());
        }
        if (i >= kSessions)
            continue;
        size_t n =
            largest / sizeof(float) / kSessions * (i * 211 % kSessions + 1);
        std::vector<float> x(n, float(i + 1)), y(n, NAN);
        void *arguments[] = {x.data(), y.data()};

        HD_TRY(Parse(CopyText(n), diag, &module));
        HD_TRY(hd_session_create(group, module, nullptr, diag, &session));
        HD_TRY(hd_session_run(session, arguments, 2, nullptr, diag));
        HD_TRY(hd_session_finish(session, diag));
        RANK_EXPECT(x == y);
        cache.emplace_back(module, session);
    }
    // The group may keep what was there at once, twice; threads and the C
    // library have their own.
    RANK_EXPECT(ResidentBytes() - before <
                (size_t(16) << 20) + (4 + 2 * alive) * largest);
    return HD_OK;
}

TEST(Session, AProgramWithoutAProductLeavesOpenBlasAlone)
{
    bool was_there = IsMapped("libopenblas");
    AllEndWell(Launch(2, [&](hd_group *group, hd_diag *diag) {
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        hd_stats stats = HD_EMPTY(hd_stats);

        HD_TRY(Parse(CopyText(100), diag, &module));
        HD_TRY(hd_session_create(group, module, nullptr, diag, &session));
        hd_session_stats(session, &stats);
        RANK_EXPECT(*stats.matmul == '\0');
        RANK_EXPECT(IsMapped("libopenblas") == was_there);
        hd_session_destroy(session);
        hd_module_destroy(module);
        return HD_OK;
    }));
}

TEST(Session, MemoryOfEverNewShapesStaysBounded)
{
    HD_NEEDS_PLAIN_MALLOC();
    for (size_t alive : {size_t(1), size_t(4)}) {
        Outcome outcome = Launch(2, [&](hd_group *group, hd_diag *diag) {
            return ManySizes(group, alive, 1 << 19, diag);
        });

        EXPECT_EQ(outcome.status, HD_OK) << alive << "\n" << outcome.text;
    }
}

TEST(Session, LaterRunsAllocateAndExchangeNothing)
{
    AllEndWell(Launch(4, [](hd_group *group, hd_diag *diag) {
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        hd_stats first = HD_EMPTY(hd_stats), last = HD_EMPTY(hd_stats);

        HD_TRY(Parse(RingText(2, ""), diag, &module));
        HD_TRY(hd_session_create(group, module, nullptr, diag, &session));
        HD_TRY(RunRing(session, group, 1, 0, diag));
        hd_session_stats(session, &first);
        for (int i = 1; i < 5; i++)
            HD_TRY(RunRing(session, group, 2, i, diag));
        hd_session_stats(session, &last);
        RANK_EXPECT(first.runs == 1 && last.runs == 9);
        RANK_EXPECT(first.allocations == last.allocations);
        RANK_EXPECT(first.handle_exchanges == 3);
        RANK_EXPECT(last.handle_exchanges == 3);
        RANK_EXPECT(last.host_waits <= first.host_waits + 4);
        RANK_EXPECT(last.bytes_sent == 3 * 2 * 8 * 4);
        RANK_EXPECT(last.steps == first.steps && last.steps > 15);
        hd_session_destroy(session);
        hd_module_destroy(module);
        return HD_OK;
    }));
}

TEST(Session, TwoOfThemWorkSideBySide)
{
    AllEndWell(Launch(3, [](hd_group *group, hd_diag *diag) {
        hd_module *module[2] = {};
        hd_session *session[2] = {};
        size_t before = OpenDescriptors();

        for (int i = 0; i < 2; i++) {
            HD_TRY(Parse(RingText(1 + i, ""), diag, &module[i], 3));
            HD_TRY(hd_session_create(group, module[i], nullptr, diag,
                                     &session[i]));
        }
        for (int i = 0; i < 6; i++)
            HD_TRY(RunRing(session[i % 2], group, 3, i, diag));
        hd_session_destroy(session[0]);
        HD_TRY(RunRing(session[1], group, 3, 20, diag));
        hd_session_destroy(session[1]);
        RANK_EXPECT(OpenDescriptors() == before);
        hd_module_destroy(module[0]);
        hd_module_destroy(module[1]);
        return HD_OK;
    }));
}

// Runs `text` on some ranks, `fill`ing and checking each argument by hand.
typedef std::function<hd_status(hd_session *, int rank, hd_diag *)> Body;

Outcome RunText(int ranks, const std::string &text, const Body &body,
                double timeout = 30)
{
    return Launch(ranks, [&](hd_group *group, hd_diag *diag) {
        hd_session_options options = hd_session_defaults();
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        hd_status status;

        options.timeout = timeout;
        HD_TRY(Parse(text, diag, &module));
        HD_TRY(hd_session_create(group, module, &options, diag, &session));
        status = body(session, hd_group_rank(group), diag);
        hd_session_destroy(session);
        hd_module_destroy(module);
        return status;
    });
}

const char *const kDeferred = "heddle 2\n"
                              "host program shift\n"
                              "mesh tp=3\n"
                              "in %x : f32[4, 5]\n"
                              "out %y : f32[4, 5]\n"
                              "temp %in : f32[4, 5] shared\n"
                              "temp %sent : event[4]\n"
                              "{\n"
                              "    for i in 0..4 {\n"
                              "        group {\n"
                              "            send %x[i] to (tp + 1) mod size tp "
                              "done %sent[i]\n"
                              "            %in[i] = recv from (tp - 1) mod "
                              "size tp\n"
                              "        }\n"
                              "    }\n"
                              "    for i in 0..4 {\n"
                              "        wait %sent[i]\n"
                              "    }\n"
                              "    %y = copy %in\n"
                              "}\n";

TEST(Session, ASendMayBeWaitedForLater)
{
    AllEndWell(
        RunText(3, kDeferred, [](hd_session *session, int rank, hd_diag *diag) {
            for (int run = 0; run < 20; run++) {
                std::vector<float> x(20), y(20, NAN);
                void *arguments[] = {x.data(), y.data()};

                for (size_t i = 0; i < 20; i++)
                    x[i] = Input(rank, i, run);
                HD_TRY(hd_session_run(session, arguments, 2, nullptr, diag));
                HD_TRY(hd_session_finish(session, diag));
                for (size_t i = 0; i < 20; i++)
                    RANK_EXPECT(y[i] == Input((rank + 2) % 3, i, run));
            }
            return HD_OK;
        }));
}

TEST(Session, SharedArgumentsAreCopiedInAndOut)
{
    AllEndWell(RunText(2,
                       "heddle 2\nhost program swap\nmesh tp=2\n"
                       "inout %x : i32[6] shared\n"
                       "temp %y : i32[6] shared\n"
                       "{\n"
                       "    group {\n"
                       "        send %x to 1 - tp get\n"
                       "        %y = recv from 1 - tp get\n"
                       "    }\n"
                       "    %x = add %x, %y\n"
                       "}\n",
                       [](hd_session *session, int rank, hd_diag *diag) {
                           std::vector<int32_t> x[2];
                           void *arguments[2][1];

                           // Two runs in flight, each with memory of its own.
                           for (int run = 0; run < 2; run++) {
                               for (int i = 0; i < 6; i++)
                                   x[run].push_back(rank * 100 + i + run);
                               arguments[run][0] = x[run].data();
                               HD_TRY(hd_session_run(session, arguments[run], 1,
                                                     nullptr, diag));
                           }
                           HD_TRY(hd_session_finish(session, diag));
                           for (int run = 0; run < 2; run++) {
                               for (int i = 0; i < 6; i++)
                                   RANK_EXPECT(x[run][size_t(i)] ==
                                               100 + 2 * (i + run));
                           }
                           return HD_OK;
                       }));
}

TEST(Session, ItsEventsOrderAgainstTheCallers)
{
    AllEndWell(RunText(1,
                       "heddle 2\nhost program gate\n"
                       "in %go : event[]\n"
                       "in %x : f32[4]\n"
                       "out %y : f32[4]\n"
                       "out %done : event[]\n"
                       "{\n"
                       "    wait %go\n"
                       "    %y = copy %x\n"
                       "    %done = record\n"
                       "}\n",
                       [](hd_session *session, int, hd_diag *diag) {
                           hd_event *go = hd_event_create();
                           hd_event *done = hd_event_create();
                           float x[4] = {1, 2, 3, 4};
                           float y[4] = {};
                           void *arguments[] = {go, x, y, done};

                           hd_event_record(go);
                           HD_TRY(hd_session_run(session, arguments, 4, nullptr,
                                                 diag));
                           HD_TRY(hd_event_wait(done, 5));
                           RANK_EXPECT(y[3] == 4);
                           HD_TRY(hd_session_finish(session, diag));
                           hd_event_destroy(go);
                           hd_event_destroy(done);
                           return HD_OK;
                       }));
}

// Of those that are waited for the first is there and the second is to come,
// and of those that are recorded each is told.
TEST(Session, SeveralEventsOrderAgainstTheCallersAtOnce)
{
    AllEndWell(RunText(
        1,
        "heddle 2\nhost program gates\nstreams 1\n"
        "in %go : event[]\n"
        "in %set : event[]\n"
        "in %x : f32[4]\n"
        "out %y : f32[4]\n"
        "out %done : event[]\n"
        "out %told : event[]\n"
        "temp %e : event[]\n"
        "{\n"
        "    fork\n"
        "    on stream 0 {\n"
        "        wait %go, %set\n"
        "        %y = copy %x\n"
        "        %done, %e, %told = record\n"
        "    }\n"
        "    wait %e, %go\n"
        "    %told, %done = record\n"
        "}\n",
        [](hd_session *session, int, hd_diag *diag) {
            hd_event *event[4];
            float x[4] = {1, 2, 3, 4};

            for (hd_event *&e : event)
                e = hd_event_create();
            for (int run = 0; run < 3; run++) {
                float y[4] = {NAN, NAN, NAN, NAN};
                void *arguments[] = {event[0], event[1], x,
                                     y,        event[2], event[3]};

                x[3] = static_cast<float>(run + 4);
                hd_event_record(event[0]);
                uint64_t set = hd_event_issue(event[1], 1);
                HD_TRY(hd_session_run(session, arguments, 6, nullptr, diag));
                RANK_EXPECT(hd_event_wait(event[3], 0.02) == HD_ERROR_TIMEOUT);
                RANK_EXPECT(hd_event_wait(event[2], 0.02) == HD_ERROR_TIMEOUT);
                hd_event_reach(event[1], set);
                HD_TRY(hd_event_wait(event[2], 5));
                HD_TRY(hd_event_wait(event[3], 5));
                RANK_EXPECT(y[3] == x[3]);
                HD_TRY(hd_session_finish(session, diag));
            }
            for (hd_event *e : event)
                hd_event_destroy(e);
            return HD_OK;
        }));
}

// Not from where it comes to the last of them.
TEST(Session, AWaitForSeveralEventsIsMeasuredFromItsBeginning)
{
    const char *text = "heddle 2\nhost program measured\nin %set : event[]\n"
                       "in %go : event[]\nin %x : f32[4]\nout %y : f32[4]\n"
                       "out %begun : event[]\n{\n    %begun = record\n"
                       "    wait %set, %go\n    %y = copy %x\n}\n";

    Threads(1, [&](hd_group *group) {
        hd_session_options options = hd_session_defaults();
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        hd_event *set = hd_event_create(), *go = hd_event_create();
        hd_event *begun = hd_event_create();
        float x[4] = {1, 2, 3, 4}, y[4] = {NAN, NAN, NAN, NAN};
        double times[6] = {};
        void *arguments[] = {set, go, x, y, begun};

        options.times = times;
        HD_TRY(Parse(text, nullptr, &module));
        HD_TRY(hd_session_create(group, module, &options, nullptr, &session));
        uint64_t number = hd_event_issue(set, 1);
        hd_event_record(go);
        HD_TRY(hd_session_run(session, arguments, 5, nullptr, nullptr));
        HD_TRY(hd_event_wait(begun, 5));
        SleepFor(0.05);
        hd_event_reach(set, number);
        HD_TRY(hd_session_finish(session, nullptr));
        EXPECT_GT(times[3] - times[2], 0.001); // some microseconds otherwise
        hd_session_destroy(session);
        hd_module_destroy(module);
        for (hd_event *event : {set, go, begun})
            hd_event_destroy(event);
        return HD_OK;
    });
}

TEST(Session, ARunWaitsForWhatAnotherSessionRecords)
{
    const char *produce = "heddle 2\nhost program produce\n"
                          "in %x : f32[64, 64]\nout %y : f32[64, 64]\n"
                          "out %done : event[]\n"
                          "{\n    %y = matmul %x, %x\n    %done = record\n}\n";
    const char *consume = "heddle 2\nhost program consume\n"
                          "in %go : event[]\nin %x : f32[64, 64]\n"
                          "out %y : f32[64, 64]\n"
                          "{\n    wait %go\n    %y = copy %x\n}\n";

    setenv("HEDDLE_CHAOS", "3", 1);
    Threads(1, [&](hd_group *group) {
        hd_module *module[2] = {};
        hd_session *session[2] = {};
        hd_event *event = hd_event_create();
        std::vector<float> x(64 * 64, 1.0f), y(64 * 64, NAN), z(64 * 64, NAN);
        void *first[] = {x.data(), y.data(), event};
        void *second[] = {event, y.data(), z.data()};

        HD_TRY(Parse(produce, nullptr, &module[0]));
        HD_TRY(Parse(consume, nullptr, &module[1]));
        for (int i = 0; i < 2; i++)
            HD_TRY(hd_session_create(group, module[i], nullptr, nullptr,
                                     &session[i]));
        for (int run = 0; run < 20; run++) {
            std::fill(y.begin(), y.end(), NAN);
            HD_TRY(hd_session_run(session[0], first, 3, nullptr, nullptr));
            HD_TRY(hd_session_run(session[1], second, 3, nullptr, nullptr));
            HD_TRY(hd_session_finish(session[1], nullptr));
            EXPECT_EQ(z[100], 64.0f);
            HD_TRY(hd_session_finish(session[0], nullptr));
        }
        for (int i = 0; i < 2; i++) {
            hd_session_destroy(session[i]);
            hd_module_destroy(module[i]);
        }
        hd_event_destroy(event);
        return HD_OK;
    });
    unsetenv("HEDDLE_CHAOS");
}

TEST(Session, ChaosChangesNoBit)
{
    for (const char *seed : {"1", "2", "0x7777"}) {
        setenv("HEDDLE_CHAOS", seed, 1);
        Outcome outcome = Launch(4, [](hd_group *group, hd_diag *diag) {
            return RingOnRank(group, diag, RingText(3, ""), 10);
        });
        unsetenv("HEDDLE_CHAOS");

        EXPECT_EQ(outcome.status, HD_OK) << seed << "\n" << outcome.text;
    }
}

TEST(Session, ChaosThatIsNoNumberIsRefused)
{
    setenv("HEDDLE_CHAOS", "much", 1);
    Outcome outcome = Launch(2, [](hd_group *group, hd_diag *diag) {
        return RingOnRank(group, diag, RingText(1, ""), 1);
    });
    unsetenv("HEDDLE_CHAOS");

    EXPECT_EQ(outcome.status, HD_ERROR_ARGUMENT);
    EXPECT_NE(outcome.text.find("'much'"), std::string::npos);
}

// --------------------------------------------------------- what goes wrong

TEST(Session, DifferentProgramsAreAnErrorThatNamesTheRanks)
{
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *diag) {
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        int streams = hd_group_rank(group) == 2 ? 2 : 1;

        HD_TRY(Parse(RingText(streams, ""), diag, &module, 3));
        return hd_session_create(group, module, nullptr, diag, &session);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_ARGUMENT);
    EXPECT_NE(outcome.text.find("rank 2 binds another program than rank 0: "
                                "line 4 of it is 'streams 2', and 'streams 1' "
                                "on rank 0"),
              std::string::npos)
        << outcome.text;
}

// Wherever the first difference is, and where one text goes on and the other
// ends.
TEST(Session, TheFirstLineThatDiffersIsNamed)
{
    std::mt19937 random(Seed());

    for (int i = 0; i < 6; i++) {
        size_t n = 1 + random() % 40, odd = random() % n;
        bool more = random() % 3 == 0; // on rank 1
        Outcome outcome = Launch(2, [&](hd_group *group, hd_diag *diag) {
            std::string text = "heddle 2\nhost program p\nmesh tp=2\n"
                               "inout %x : f32[4]\n{\n";
            bool second = hd_group_rank(group) == 1;
            hd_module *module = nullptr;
            hd_session *session = nullptr;

            for (size_t j = 0; j < n; j++)
                text += "    %x = scale %x by " +
                        std::to_string(j == odd && second && !more ? 999 : j) +
                        ".5\n";
            text += second && more ? "    %x = relu %x\n}\n" : "}\n";
            HD_TRY(Parse(text, diag, &module, 2));
            return hd_session_create(group, module, nullptr, diag, &session);
        });
        std::string line = std::to_string(6 + (more ? n : odd));
        std::string want =
            "line " + line + " of it is '%x = " +
            (more ? "relu %x', and '}' on rank 0"
                  : "scale %x by 999.5', and '%x = scale %x by " +
                        std::to_string(odd) + ".5' on rank 0");

        EXPECT_EQ(outcome.status, HD_ERROR_ARGUMENT);
        EXPECT_NE(outcome.text.find(want), std::string::npos)
            << "want: " << want << "\ngot:  " << outcome.text;
    }
}

// What the checker has refused, when nobody has asked it.
TEST(Session, ReductionsThatDifferAreRefused)
{
    const char *const pairs[][2] = {{"", "max"}, {"", "min"}, {"min", "max"}};

    for (const auto &pair : pairs) {
        Outcome outcome = Launch(2, [&](hd_group *group, hd_diag *diag) {
            std::string text =
                std::string("heddle 2\nhost program p\nmesh tp=2\n"
                            "inout %x : f32[4] shared\n"
                            "{ if tp == 0 { %x = all_reduce %x ") +
                pair[0] + " } else { %x = all_reduce %x " + pair[1] + " } }";
            hd_module *module = nullptr;
            hd_session *session = nullptr;

            HD_TRY(Parse(text, diag, &module, 2));
            return hd_session_create(group, module, nullptr, diag, &session);
        });

        EXPECT_EQ(outcome.status, HD_ERROR_INVALID);
        EXPECT_NE(outcome.text.find("meets another operation"),
                  std::string::npos)
            << outcome.text;
    }
}

// One of `bytes` that ranks 0 and 1 differ in; rank 2 has no part in it.
std::string UnevenText(int bytes)
{
    return "heddle 2\nhost program p\nmesh tp=3\ninout %x : u8[8]\n"
           "temp %t : u8[8] shared\n{ if tp == 0 { send %x[0..4] to 1 } "
           "else { if tp == 1 { %t[0.." +
           std::to_string(bytes) + "] = recv from 0 } } }";
}

// The group has exchanged its windows already, so that one message is all.
TEST(Session, SidesThatDifferAreRefusedOnAllRanksAfterOneMessageToo)
{
    std::vector<std::string> text(3);
    auto status = Threads(3, [&](hd_group *group) {
        hd_module *module[2] = {};
        hd_session *session[2] = {};
        hd_diag *diag = hd_diag_create();
        uint8_t x[8] = {};
        void *arguments[] = {x};

        HD_TRY(Parse(UnevenText(4), diag, &module[0], 3));
        HD_TRY(Parse(UnevenText(5), diag, &module[1], 3));
        HD_TRY(hd_session_create(group, module[0], nullptr, diag, &session[0]));
        hd_status uneven =
            hd_session_create(group, module[1], nullptr, diag, &session[1]);
        text[size_t(hd_group_rank(group))] = hd_diag_text(diag);
        // The group is of use, and so is the session before.
        HD_TRY(hd_session_run(session[0], arguments, 1, nullptr, diag));
        HD_TRY(hd_session_finish(session[0], diag));
        HD_TRY(hd_session_create(group, module[0], nullptr, diag, &session[1]));
        for (int i = 0; i < 2; i++) {
            hd_session_destroy(session[i]);
            hd_module_destroy(module[i]);
        }
        hd_diag_destroy(diag);
        return uneven;
    });

    EXPECT_EQ(status[0], HD_ERROR_INVALID);
    EXPECT_NE(text[0].find("moves 4 bytes, rank 1 5"), std::string::npos)
        << text[0];
    EXPECT_NE(status[1], HD_OK);
    EXPECT_EQ(status[2], HD_ERROR_PEER);
    EXPECT_NE(text[2].find("rank 0 failed: "), std::string::npos) << text[2];
}

hd_status RefuseToPrepare(hd_device *, hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_SYSTEM, "not today");
}

// What a driver must not do: its peers have a session that is none.
TEST(Session, ARankThatCannotPrepareWhatIsAgreedEndsItsGroup)
{
    std::vector<std::string> text(2);
    auto status = Threads(2, [&](hd_group *group) {
        bool odd = hd_group_rank(group) == 1;
        hd_driver driver = hd_driver_cpu;
        hd_session_options options = hd_session_defaults();
        hd_module *module = nullptr;
        hd_session *first = nullptr, *second = nullptr;
        hd_diag *diag = hd_diag_create();

        HD_TRY(Parse(RingText(1, ""), diag, &module, 2));
        HD_TRY(hd_session_open(group, module, &options, &driver, diag, &first));
        if (odd)
            driver.prepare = RefuseToPrepare;
        hd_status got =
            hd_session_open(group, module, &options, &driver, diag, &second);
        if (got == HD_OK)
            got = RunRing(second, group, 1, 0, diag);
        text[size_t(hd_group_rank(group))] = hd_diag_text(diag);
        hd_session_destroy(second);
        hd_session_destroy(first);
        hd_module_destroy(module);
        hd_diag_destroy(diag);
        return got;
    });

    EXPECT_EQ(status[1], HD_ERROR_SYSTEM);
    EXPECT_EQ(status[0], HD_ERROR_PEER);
    EXPECT_NE(text[0].find("rank 1 failed: not today"), std::string::npos)
        << text[0];
}

TEST(Session, AMeshOfAnotherSizeThanTheGroupIsRefused)
{
    Outcome outcome = Launch(2, [](hd_group *group, hd_diag *diag) {
        hd_module *module = nullptr;
        hd_session *session = nullptr;

        HD_TRY(Parse(RingText(1, ""), diag, &module));
        return hd_session_create(group, module, nullptr, diag, &session);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_ARGUMENT);
    EXPECT_NE(outcome.text.find("has 4 ranks, the group 2"), std::string::npos)
        << outcome.text;
}

TEST(Session, WrongArgumentsAreRefusedAndHarmNothing)
{
    AllEndWell(RunText(
        1,
        "heddle 2\nhost program double\n"
        "in %x : f32[4]\nout %y : f32[4]\n{\n    %y = add %x, %x\n}\n",
        [](hd_session *session, int, hd_diag *diag) {
            float x[4] = {1, 2, 3, 4};
            float y[4] = {};
            void *arguments[] = {x, y};
            void *wrong[] = {x, nullptr}, *none[] = {nullptr, nullptr};
            void *first[] = {nullptr, y};

            RANK_EXPECT(hd_session_run(session, arguments, 1, nullptr, diag) ==
                        HD_ERROR_ARGUMENT);
            RANK_EXPECT(hd_session_run(session, none, 2, nullptr, diag) ==
                        HD_ERROR_ARGUMENT);
            RANK_EXPECT(hd_session_run(session, wrong, 2, nullptr, diag) ==
                        HD_ERROR_ARGUMENT);
            RANK_EXPECT(
                std::string(hd_diag_text(diag)).find("argument %y is NULL") !=
                std::string::npos);
            HD_TRY(hd_session_run(session, arguments, 2, nullptr, diag));
            // What was refused once is refused again.
            for (int i = 0; i < 2; i++)
                RANK_EXPECT(hd_session_run(session, first, 2, nullptr, diag) ==
                            HD_ERROR_ARGUMENT);
            hd_run_options on = HD_EMPTY(hd_run_options);
            on.stream = x; // there are none here
            RANK_EXPECT(hd_session_run(session, arguments, 2, &on, diag) ==
                        HD_ERROR_ARGUMENT);
            HD_TRY(hd_session_run(session, arguments, 2, nullptr, diag));
            HD_TRY(hd_session_finish(session, diag));
            RANK_EXPECT(y[3] == 8);
            return HD_OK;
        }));
}

// The sanitizer of undefined behaviour tells where an address must be even.
TEST(Session, ArgumentsMayLieAtAnyAddress)
{
    for (hd_dtype dtype : {HD_DTYPE_F64, HD_DTYPE_F32, HD_DTYPE_F16,
                           HD_DTYPE_BF16, HD_DTYPE_F8E4M3, HD_DTYPE_F8E5M2,
                           HD_DTYPE_I64, HD_DTYPE_I32, HD_DTYPE_U8}) {
        std::string type = std::string(hd_dtype_text(dtype)) + "[2, 2] ";
        Outcome outcome = RunText(
            1,
            "heddle 2\nhost program p in %x : " + type + "out %y : " + type +
                "{ %y = add %x, %x }",
            [=](hd_session *session, int, hd_diag *diag) {
                const double x[4] = {1, 2, 3, 4};
                double y[4] = {};
                char memory[2][40];
                void *arguments[] = {memory[0] + 1, memory[1] + 1};

                hd_dtype_store(dtype, x, 4, arguments[0]);
                HD_TRY(hd_session_run(session, arguments, 2, nullptr, diag));
                HD_TRY(hd_session_finish(session, diag));
                hd_dtype_load(dtype, arguments[1], 4, y);
                for (int i = 0; i < 4; i++)
                    RANK_EXPECT(y[i] == 2 * x[i]);
                return HD_OK;
            });

        EXPECT_EQ(outcome.status, HD_OK) << type << outcome.text;
    }
}

// Arguments of random sizes in random order, most of them apart; whether two
// overlap of which a run writes one is asked of all pairs.
struct Layout {
    static constexpr size_t count = 40;
    std::mt19937 random{Seed()};
    bool written[count];
    size_t words[count], at[count], end = 0;

    Layout()
    {
        for (size_t i = 0; i < count; i++) {
            written[i] = random() % 2 == 0;
            words[i] = 1 + random() % 8;
        }
    }
    std::string Text() const
    {
        std::string text = "heddle 2\nhost program many\n";

        for (size_t i = 0; i < count; i++)
            text += std::string(written[i] ? "inout" : "in") + " %a" +
                    std::to_string(i) + " : f32[" + std::to_string(words[i]) +
                    "]\n";
        return text + "{\n}\n";
    }
    void Draw()
    {
        size_t order[count];

        for (size_t i = 0; i < count; i++)
            order[i] = i;
        std::shuffle(order, order + count, random);
        end = 0;
        for (size_t i : order) {
            at[i] = end + random() % 2;
            end = at[i] + words[i];
        }
        if (random() % 2 == 0)
            at[random() % count] = random() % (end - 8);
    }
    bool Overlaps() const
    {
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < i; k++)
                if ((written[i] || written[k]) && at[i] < at[k] + words[k] &&
                    at[k] < at[i] + words[i])
                    return true;
        return false;
    }
};

TEST(Session, OverlapsAreFoundInAnyOrderOfTheAddresses)
{
    Layout layout;
    AllEndWell(
        RunText(1, layout.Text(), [&](hd_session *session, int, hd_diag *diag) {
            std::vector<float> memory(Layout::count * 10);
            int overlaps = 0;

            for (int trial = 0; trial < 300; trial++) {
                std::vector<void *> arguments;
                hd_status want;

                layout.Draw();
                for (size_t at : layout.at)
                    arguments.push_back(&memory[at]);
                want = layout.Overlaps() ? HD_ERROR_ARGUMENT : HD_OK;
                overlaps += want != HD_OK;
                RANK_EXPECT(hd_session_run(session, arguments.data(),
                                           arguments.size(), nullptr,
                                           diag) == want);
            }
            RANK_EXPECT(overlaps > 30 && overlaps < 200);
            return hd_session_finish(session, diag);
        }));
}

TEST(Session, ManyArgumentsAreLookedAtInAboutTheTimeOfFew)
{
    constexpr size_t count = 30000;
    std::string text = "heddle 2\nhost program many\n";

    for (size_t i = 0; i < count; i++)
        text += "in %a" + std::to_string(i) + " : u8[1]\n";
    AllEndWell(RunText(1, text + "{\n}\n",
                       [&](hd_session *session, int, hd_diag *diag) {
                           std::vector<char> memory(count);
                           std::vector<void *> arguments;
                           clock_t start;

                           for (size_t i = count; i > 0; i--)
                               arguments.push_back(&memory[i - 1]);
                           start = clock();
                           HD_TRY(hd_session_run(session, arguments.data(),
                                                 count, nullptr, diag));
                           RANK_EXPECT(clock() - start < CLOCKS_PER_SEC / 4);
                           return hd_session_finish(session, diag);
                       }));
}

TEST(Session, NothingIsCopiedFromNowhere)
{
    AllEndWell(RunText(1, "heddle 2\nhost program p in %x : f32[] { }",
                       [](hd_session *session, int, hd_diag *diag) {
                           return hd_session_copy(session, nullptr, nullptr, 0,
                                                  diag);
                       }));
}

// Of two ranks that differ in their options: the statuses, and the words.
struct Pair {
    std::vector<hd_status> status;
    std::string text[2];
};

Pair CreateWith(const hd_session_options (&options)[2], bool out_on_1 = true)
{
    Pair pair;

    pair.status = Threads(2, [&](hd_group *group) {
        int rank = hd_group_rank(group);
        hd_diag *diag = hd_diag_create();
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        hd_status status;

        // An error from before the call, that is none of its.
        RANK_EXPECT(hd_parse("old", "junk", 4, nullptr, 0, diag, &module) ==
                    HD_ERROR_INVALID);
        HD_TRY(Parse(RingText(1, ""), diag, &module, 2));
        status = hd_session_create(group, module, &options[rank], diag,
                                   rank == 0 || out_on_1 ? &session : nullptr);
        pair.text[rank] = hd_diag_text(diag);
        hd_session_destroy(session);
        session = nullptr;
        // The group is as it was.
        RANK_EXPECT(hd_session_create(group, module, nullptr, diag, &session) ==
                    HD_OK);
        hd_session_destroy(session);
        hd_module_destroy(module);
        hd_diag_destroy(diag);
        return status;
    });
    return pair;
}

TEST(Session, OptionsThatAreWrongOnOneRankFailOnAll)
{
    hd_session_options options[2] = {hd_session_defaults(),
                                     hd_session_defaults()};

    options[1].device = "abacus";
    Pair device = CreateWith(options);
    options[1] = options[0];
    options[1].timeout = 0;
    Pair timeout = CreateWith(options);

    EXPECT_EQ(device.status[1], HD_ERROR_UNSUPPORTED) << device.text[1];
    EXPECT_EQ(device.status[0], HD_ERROR_PEER) << device.text[0];
    EXPECT_NE(device.text[0].find("rank 1 failed: there is no device 'abacus'"),
              std::string::npos)
        << device.text[0];
    EXPECT_EQ(timeout.status[1], HD_ERROR_ARGUMENT) << timeout.text[1];
    EXPECT_EQ(timeout.status[0], HD_ERROR_PEER) << timeout.text[0];
    EXPECT_NE(timeout.text[0].find("rank 1 failed: a timeout of 0 s"),
              std::string::npos)
        << timeout.text[0];
}

TEST(Session, ARankWithNoPlaceForItsSessionTellsTheOthers)
{
    hd_session_options options[2] = {hd_session_defaults(),
                                     hd_session_defaults()};
    Pair pair = CreateWith(options, false);

    EXPECT_EQ(pair.status[1], HD_ERROR_ARGUMENT) << pair.text[1];
    EXPECT_EQ(pair.status[0], HD_ERROR_PEER) << pair.text[0];
    EXPECT_NE(pair.text[0].find("rank 1 failed: hd_session_create: 'out' is "
                                "NULL"),
              std::string::npos)
        << pair.text[0];
}

TEST(Session, RanksOnDevicesOfTwoKindsAreRefused)
{
    hd_session_options options[2] = {hd_session_defaults(),
                                     hd_session_defaults()};

    options[1].device = "cuda";
    for (hd_status status : CreateWith(options).status)
        EXPECT_EQ(status, HD_ERROR_ARGUMENT);
}

TEST(Session, DevicesAreNamedByDriverAndNumber)
{
    for (const char *name : {"cpu", "cuda", "cuda:0", "cuda:12"})
        EXPECT_TRUE(hd_is_device(name)) << name;
    for (const char *name : {"", "CPU", "cpu:0", "cpux", "cudax", "cuda:",
                             "cuda:x", "cuda:-1", "cuda:1x", "cuda: 1", "gpu"})
        EXPECT_FALSE(hd_is_device(name)) << name;
    EXPECT_FALSE(hd_is_device(nullptr));
}

TEST(Session, AnUnknownDeviceIsNamed)
{
    Threads(1, [](hd_group *group) {
        hd_session_options options = hd_session_defaults();
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        hd_diag *diag = hd_diag_create();

        options.device = "abacus";

        HD_TRY(Parse(RingText(1, ""), diag, &module, 1));
        EXPECT_EQ(hd_session_create(group, module, &options, diag, &session),
                  HD_ERROR_UNSUPPORTED);
        EXPECT_NE(std::string(hd_diag_text(diag)).find("abacus"),
                  std::string::npos);
        hd_module_destroy(module);
        hd_diag_destroy(diag);
        return HD_OK;
    });
}

// A temp that no machine has memory for, and statements.
Outcome RunHuge(const std::string &body)
{
    return RunText(1,
                   "heddle 2\nhost program huge\n"
                   "in %x : f32[4]\nout %y : f32[4]\n"
                   "temp %t : f32[0x100000, 0x100000]\n{\n" +
                       body + "}\n",
                   [](hd_session *, int, hd_diag *) { return HD_OK; });
}

TEST(Session, ATempThatNoMachineHasIsRefused)
{
    Outcome outcome =
        RunHuge("    %t[0, 0..4] = copy %x\n    %y = copy %t[0, 0..4]\n");

    EXPECT_EQ(outcome.status, HD_ERROR_NO_MEMORY);
    EXPECT_NE(outcome.text.find("%t"), std::string::npos) << outcome.text;
}

TEST(Session, ATempThatNoStepNamesTakesNoMemory)
{
    Outcome outcome = RunHuge("    %y = copy %x\n");

    EXPECT_EQ(outcome.status, HD_OK) << outcome.text;
}

// Rank `victim` ends by `signal` before its run number `when`.
Outcome KillDuring(int victim, int when, int signal, double timeout)
{
    return Launch(4, [=](hd_group *group, hd_diag *diag) {
        hd_session_options options = hd_session_defaults();
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        hd_status status = HD_OK;

        options.timeout = timeout;
        HD_TRY(Parse(RingText(2, ""), diag, &module));
        HD_TRY(hd_session_create(group, module, &options, diag, &session));
        for (int i = 0; i < 5 && status == HD_OK; i++) {
            if (hd_group_rank(group) == victim && i == when)
                raise(signal);
            status = RunRing(session, group, 1, i, diag);
        }
        hd_session_destroy(session);
        hd_module_destroy(module);
        return status;
    });
}

TEST(Session, AKilledRankEndsTheOthersAtOnce)
{
    auto start = Clock::now();
    Outcome outcome = KillDuring(2, 3, SIGKILL, 30);
    std::chrono::duration<double> took = Clock::now() - start;

    EXPECT_EQ(outcome.status, HD_ERROR_PEER);
    EXPECT_NE(outcome.text.find("rank 2 was killed by signal 9"),
              std::string::npos)
        << outcome.text;
    EXPECT_LT(took.count(), 15); // and would wait for 30
}

// Aborted by another thread while it creates a session, runs it and destroys
// it, over and over.
TEST(Session, AnAbortEndsWhateverIsGoingOn)
{
    for (int when = 0; when < 20; when++) {
        std::vector<std::string> text(4);
        std::vector<double> took(4);
        std::vector<hd_status> status = Threads(4, [&](hd_group *group) {
            int rank = hd_group_rank(group);
            hd_diag *diag = hd_diag_create();
            hd_module *module = nullptr;
            hd_status got = HD_OK;
            Clock::time_point start;

            HD_TRY(Parse(RingText(2, ""), diag, &module));
            std::thread aborter([&, rank] {
                usleep(useconds_t(when) * 700);
                start = Clock::now();
                if (rank == when % 4)
                    hd_group_abort(group);
            });
            while (got == HD_OK) {
                hd_session *session = nullptr;

                got = hd_session_create(group, module, nullptr, diag, &session);
                for (int i = 0; i < 8 && got == HD_OK; i++)
                    got = RunRing(session, group, 4, 0, diag);
                hd_session_destroy(session);
            }
            aborter.join();
            std::chrono::duration<double> time = Clock::now() - start;
            took[size_t(rank)] = time.count();
            text[size_t(rank)] = hd_diag_text(diag);
            hd_module_destroy(module);
            hd_diag_destroy(diag);
            return got;
        });
        std::string wanted =
            "rank " + std::to_string(when % 4) + " was aborted by its caller";

        for (size_t i = 0; i < 4; i++) {
            EXPECT_EQ(status[i], HD_ERROR_PEER) << when << ", rank " << i;
            EXPECT_NE(text[i].find(wanted), std::string::npos)
                << when << ", rank " << i << ": " << text[i];
            EXPECT_LT(took[i], 5) << when << ", rank " << i; // of 30
        }
    }
}

// Nobody else is there to tell it: a rank that waits for its caller, and steps
// that wait for nobody and would go on for long.
TEST(Session, OneRankIsAbortedWhereItWaitsForItsCallerOrComputes)
{
    const char *waits = "heddle 2\nhost program waits\n"
                        "in %go : event[]\nin %x : f32[4]\nout %y : f32[4]\n"
                        "{\n    wait %go\n    %y = copy %x\n}\n";
    const char *computes = "heddle 2\nhost program computes\n"
                           "in %x : f32[64, 64]\nout %y : f32[64, 64]\n{\n"
                           "    for i in 0..100000 {\n"
                           "        %y = matmul %x, %x\n    }\n}\n";

    for (const char *text : {waits, computes}) {
        std::vector<hd_status> status = Threads(1, [&](hd_group *group) {
            hd_module *module = nullptr;
            hd_session *session = nullptr;
            hd_event *event = hd_event_create();
            std::vector<float> x(64 * 64, 1.0f), y(64 * 64, NAN);
            void *arguments[] = {event, x.data(), y.data()};
            void *const *first = text == waits ? arguments : arguments + 1;
            Clock::time_point start;

            RANK_EXPECT(hd_event_wait(event, 0) == HD_OK); // none is issued
            hd_event_issue(event, 1);                      // and not reached
            HD_TRY(Parse(text, nullptr, &module));
            HD_TRY(
                hd_session_create(group, module, nullptr, nullptr, &session));
            HD_TRY(hd_session_run(session, first, text == waits ? 3 : 2,
                                  nullptr, nullptr));
            std::thread aborter([&] {
                SleepFor(0.05);
                start = Clock::now();
                hd_group_abort(group);
            });
            hd_status got = hd_session_finish(session, nullptr);
            aborter.join();
            std::chrono::duration<double> took = Clock::now() - start;
            EXPECT_LT(took.count(), 2); // of 30
            EXPECT_EQ(hd_session_run(session, first, 3, nullptr, nullptr),
                      HD_ERROR_PEER);
            hd_session_destroy(session);
            hd_module_destroy(module);
            hd_event_destroy(event);
            return got;
        });

        EXPECT_EQ(status[0], HD_ERROR_PEER);
    }
}

// Kills itself before the `fatal`-th run that it issues, or behind it if
// `issued`.
int fatal;
bool issued;

hd_status RunOrDie(hd_device *device, void *stream, void *const *arguments,
                   const hd_passing *passing, int variant, hd_diag *diag,
                   bool *captured)
{
    hd_status status;

    if (fatal == 0 && !issued)
        raise(SIGKILL);
    status = hd_driver_cpu.run(device, stream, arguments, passing, variant,
                               diag, captured);
    if (fatal-- == 0)
        raise(SIGKILL);
    return status;
}

// Two of the ranks at each run, before it and after, each time others.
TEST(Session, ARankMayBeKilledAtAnyRun)
{
    const int turn = int(Seed() % 4);

    for (int when = 0; when < 32; when++) {
        if ((when + when / 4 + turn) % 4 > 1)
            continue;
        Outcome outcome = Launch(4, [=](hd_group *group, hd_diag *diag) {
            hd_session_options options = hd_session_defaults();
            hd_driver driver = hd_driver_cpu;
            hd_module *module = nullptr;
            hd_session *session = nullptr;
            hd_status status = HD_OK;

            driver.run = RunOrDie;
            fatal = hd_group_rank(group) == when % 4 ? when / 8 : -1;
            issued = when / 4 % 2 == 1;
            HD_TRY(Parse(RingText(2, ""), diag, &module));
            HD_TRY(hd_session_open(group, module, &options, &driver, diag,
                                   &session));
            for (int i = 0; i < 4 && status == HD_OK; i++)
                status = RunRing(session, group, 1, i, diag);
            hd_session_destroy(session);
            hd_module_destroy(module);
            return status;
        });

        EXPECT_EQ(outcome.status, HD_ERROR_PEER) << when;
        EXPECT_NE(outcome.text.find("killed by signal 9"), std::string::npos)
            << when << ": " << outcome.text;
    }
}

// Every other moment, another half each time.
TEST(Session, ARankMayBeKilledAtAnyMoment)
{
    const int from = int(Seed() % 2);

    for (int when = 0; when < 20; when++) {
        if ((when + when / 4 + from) % 2 != 0)
            continue;
        Outcome outcome = Launch(4, [=](hd_group *group, hd_diag *diag) {
            hd_module *module = nullptr;
            hd_session *session = nullptr;
            hd_status status = HD_OK;

            HD_TRY(Parse(RingText(2, ""), diag, &module));
            HD_TRY(hd_session_create(group, module, nullptr, diag, &session));
            bool victim = hd_group_rank(group) == when % 4;
            std::thread([=] {
                usleep(useconds_t(when) * 300);
                if (victim)
                    raise(SIGKILL);
            }).detach();
            while (status == HD_OK)
                status = RunRing(session, group, 4, 0, diag);
            hd_session_destroy(session);
            hd_module_destroy(module);
            return status;
        });

        EXPECT_EQ(outcome.status, HD_ERROR_PEER) << when;
        EXPECT_NE(outcome.text.find("killed by signal 9"), std::string::npos)
            << when << ": " << outcome.text;
    }
}

TEST(Session, AStuckRankIsReportedAtTheDeadlineWithItsPlace)
{
    Outcome outcome = KillDuring(2, 1, SIGSTOP, kLate);

    EXPECT_EQ(outcome.status, HD_ERROR_TIMEOUT);
    EXPECT_NE(outcome.text.find("waits for rank"), std::string::npos);
    EXPECT_NE(outcome.text.find("at test.hd:"), std::string::npos);
    EXPECT_NE(outcome.text.find(ForLate()), std::string::npos);
    EXPECT_NE(outcome.text.find("rank 2 has not begun run 2"),
              std::string::npos)
        << outcome.text;
}

// Sessions of one rank, and what they are run on.
struct Stuck {
    std::vector<hd_session *> sessions;
    std::vector<hd_module *> modules;
    hd_event *never = hd_event_create();
    float a[4] = {1, 2, 3, 4}, b[4] = {};

    Stuck() = default;
    Stuck(const Stuck &) = delete;
    Stuck &operator=(const Stuck &) = delete;
    ~Stuck()
    {
        for (hd_session *session : sessions)
            hd_session_destroy(session);
        for (hd_module *module : modules)
            hd_module_destroy(module);
        hd_event_destroy(never);
    }
    hd_status Open(hd_group *group, const std::string &text, double timeout,
                   hd_diag *diag)
    {
        hd_session_options options = hd_session_defaults();

        options.timeout = timeout;
        modules.push_back(nullptr);
        HD_TRY(Parse(text, diag, &modules.back()));
        sessions.push_back(nullptr);
        return hd_session_create(group, modules.back(), &options, diag,
                                 &sessions.back());
    }
    hd_status Run(size_t which, hd_diag *diag)
    {
        void *arguments[] = {never, a, b};

        return hd_session_run(sessions[which], arguments, 3, nullptr, diag);
    }
};

const char kToRank1[] =
    "heddle 2\nhost program p\nmesh tp=3\nin %go : event[]\nin %a : f32[4]\n"
    "out %b : f32[4] shared\n{\n    if tp == 0 {\n        send %a to 1\n"
    "    }\n    if tp == 1 {\n        %b = recv from 0\n    }\n}\n";

// Rank 1 skips the first session, in which rank 0 then waits for it, and waits
// for rank 0 in the second. Rank 2 is done at once.
TEST(Session, AReportSaysWhatTheOthersAreAt)
{
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *diag) {
        int rank = hd_group_rank(group);
        double timeout = rank == 1 ? kLate : 60;
        Stuck stuck;

        HD_TRY(stuck.Open(group, kToRank1, timeout, diag));
        HD_TRY(stuck.Open(group, kToRank1, timeout, diag));
        if (rank == 0)
            HD_TRY(stuck.Run(0, diag));
        HD_TRY(stuck.Run(1, diag));
        return hd_session_finish(stuck.sessions[1], diag);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_TIMEOUT) << outcome.text;
    for (const std::string &says :
         {"rank 1 waits for rank 0: recv at test.hd:12:14 (step 0, the "
          "caller's stream)" +
              ForLate(),
          std::string("rank 0 waits for itself: the runs of other sessions "
                      "before it"),
          std::string("rank 2 has done all of its 1 runs")})
        EXPECT_NE(outcome.text.find(says), std::string::npos) << outcome.text;
}

TEST(Session, ADeferredSendThatNobodyReceivesIsReported)
{
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *diag) {
        std::string text = kToRank1;
        Stuck stuck;

        text.replace(text.find("send %a to 1"), 12,
                     "send %a to 1 done %e wait %e");
        text.replace(text.find("{"), 1, "temp %e : event[] {");
        HD_TRY(stuck.Open(group, text, kLate, diag));
        if (hd_group_rank(group) != 0)
            return hd_group_allgather(group, nullptr, 0, nullptr, diag);
        HD_TRY(stuck.Run(0, diag));
        return hd_session_finish(stuck.sessions[0], diag);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_TIMEOUT);
    EXPECT_NE(outcome.text.find("rank 0 waits for rank 1: send at test.hd:9:9 "
                                "(step 0, the sends' helper)" +
                                ForLate()),
              std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("rank 1 has not begun run 1 of this session"),
              std::string::npos)
        << outcome.text;
}

TEST(Session, ARankThatLeavesBeforeItsRunIsNamedAtOnce)
{
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *diag) {
        Stuck stuck;

        HD_TRY(stuck.Open(group, kToRank1, 30, diag));
        if (hd_group_rank(group) == 0)
            return HD_OK;
        HD_TRY(stuck.Run(0, diag));
        return hd_session_finish(stuck.sessions[0], diag);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_PEER);
    EXPECT_NE(outcome.text.find("rank 0 has left the group; rank 1 waits for "
                                "it in 'recv' (step 0, line 12)"),
              std::string::npos)
        << outcome.text;
}

TEST(Session, AfterARunThatFailedItMayOnlyBeDestroyed)
{
    Outcome outcome = Launch(3, [](hd_group *group, hd_diag *diag) {
        int rank = hd_group_rank(group);
        Stuck stuck;

        HD_TRY(stuck.Open(group, kToRank1, kLate, diag));
        if (rank == 1) {
            HD_TRY(stuck.Run(0, nullptr));
            RANK_EXPECT(hd_session_finish(stuck.sessions[0], nullptr) ==
                        HD_ERROR_TIMEOUT);
            RANK_EXPECT(stuck.Run(0, diag) == HD_ERROR_ARGUMENT);
        }
        return rank == 1 ? HD_ERROR_ARGUMENT
                         : hd_group_allgather(group, nullptr, 0, nullptr, diag);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_ARGUMENT);
    EXPECT_NE(outcome.text.find("a run of this session has failed: it may only "
                                "be destroyed"),
              std::string::npos)
        << outcome.text;
}

TEST(Session, AProgramThatIsNotLoweredYetIsRefused)
{
    Outcome outcome = Launch(1, [](hd_group *group, hd_diag *diag) {
        Stuck stuck;

        return stuck.Open(group,
                          "heddle 2\ntensor program early\nin %a : f32[4]\n"
                          "out %b : f32[4]\n{\n    %b = relu %a\n}\n",
                          1, diag);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_ARGUMENT);
    EXPECT_NE(outcome.text.find("'early'"), std::string::npos) << outcome.text;
}

TEST(Session, ARankThatNeverCreatesItIsNamedAtTheDeadline)
{
    Outcome outcome = Launch(2, [](hd_group *group, hd_diag *diag) {
        hd_session_options options = hd_session_defaults();
        hd_module *module = nullptr;
        hd_session *session = nullptr;

        options.timeout = kLate;
        HD_TRY(Parse(RingText(1, ""), diag, &module, 2));
        if (hd_group_rank(group) == 1) {
            while (!hd_group_failed(group))
                usleep(1000);
            return HD_OK;
        }
        return hd_session_create(group, module, &options, diag, &session);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_TIMEOUT);
    EXPECT_NE(outcome.text.find("rank 0 waits for rank 1 in hd_session_create"),
              std::string::npos)
        << outcome.text;
}

// --------------------------------------------------------------- drivers

// A driver that does nothing but write down what it is asked.
std::string *asked;

hd_status NullOpen(const hd_binding *, hd_diag *, hd_device **out)
{
    *out = reinterpret_cast<hd_device *>(asked);
    return HD_OK;
}
hd_status NullExport(hd_device *, int, hd_diag *, hd_handle *)
{
    return HD_OK;
}
hd_status NullImport(hd_device *, int, const hd_handle *, hd_diag *)
{
    return HD_OK;
}
void NullTell(hd_device *, int, hd_told *)
{
}
void NullHear(hd_device *, int, const hd_told *)
{
}
void NullSettle(hd_device *)
{
    asked->append("s");
}
hd_status NullAlloc(hd_device *, hd_diag *, hd_fit *out)
{
    *out = {true, false, 0};
    asked->append("a");
    return HD_OK;
}
hd_status NullPrepare(hd_device *, hd_diag *)
{
    asked->append("p");
    return HD_OK;
}
std::vector<int> varied; // in turns
hd_status NullVary(hd_device *, int variant, const hd_module *,
                   const hd_steps *, bool again, hd_diag *, bool *better)
{
    varied.push_back(variant);
    asked->append(again ? "V" : "v");
    *better = !again;
    return HD_OK;
}
hd_status NullPack(hd_device *, size_t, hd_diag *)
{
    return HD_OK;
}
hd_status NullRun(hd_device *, void *, void *const *, const hd_passing *, int,
                  hd_diag *, bool *)
{
    asked->append("r");
    return HD_OK;
}
hd_status NullFinish(hd_device *, hd_diag *)
{
    asked->append("f");
    return HD_OK;
}
hd_status NullAwait(hd_device *, uint64_t, int64_t, hd_diag *, bool *over)
{
    *over = true;
    return HD_OK;
}
hd_status NullLend(hd_group *, const char *, size_t, hd_diag *, void **)
{
    return HD_OK;
}
bool NullReclaim(hd_group *, void *)
{
    return false;
}
hd_status NullTake(hd_device *, size_t, hd_diag *, void **)
{
    return HD_OK;
}
void NullGive(hd_device *, void *)
{
}
hd_status NullFail(hd_device *, hd_status status, const char *, hd_diag *)
{
    return status;
}
hd_status NullCopy(hd_device *, void *, const void *, size_t, hd_diag *)
{
    return HD_OK;
}
void NullStats(const hd_device *, hd_stats *)
{
}
int NullOrdinal(const hd_device *)
{
    return -1;
}
void NullClose(hd_device *)
{
    asked->append(".");
}

const hd_driver kNullDriver = {
    "null",      NullOpen,    NullAlloc,  NullTell,  NullHear,   NullExport,
    NullImport,  NullPrepare, NullSettle, NullVary,  NullPack,   NullRun,
    NullFinish,  NullAwait,   NullFail,   NullTake,  NullGive,   NullLend,
    NullReclaim, NullCopy,    NullStats,  NullClose, NullOrdinal};

TEST(Session, PreparesItsDriverOnceAndAsksItForRuns)
{
    std::string text;

    asked = &text;
    Threads(1, [](hd_group *group) {
        hd_session_options options = hd_session_defaults();
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        RingRun run(0, 1, 0);

        EXPECT_EQ(Parse(RingText(1, ""), nullptr, &module, 1), HD_OK);
        EXPECT_EQ(hd_session_open(group, module, &options, &kNullDriver,
                                  nullptr, &session),
                  HD_OK);
        for (int i = 0; i < 2; i++)
            EXPECT_EQ(hd_session_run(session, run.Arguments().data(), 3,
                                     nullptr, nullptr),
                      HD_OK);
        hd_session_destroy(session);
        hd_module_destroy(module);
        return HD_OK;
    });
    EXPECT_EQ(text, "apsrrf.");
}

// What is better made for sizes that come back is made again once, elsewhere: a
// run that is under way may have what was made for the first one.
TEST(Session, MakesAgainWhatIsBetterForSizesThatComeBack)
{
    std::string text;

    asked = &text;
    Threads(1, [](hd_group *group) {
        hd_session_options options = hd_session_defaults();
        hd_run_options with = HD_EMPTY(hd_run_options);
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        float x[64], y[64];
        void *arguments[] = {x, y};

        EXPECT_EQ(Parse("heddle 2 host program t param m in 1..64 "
                        "in %x : f32[m] out %y : f32[m] { %y = copy %x }",
                        nullptr, &module),
                  HD_OK);
        EXPECT_EQ(hd_session_open(group, module, &options, &kNullDriver,
                                  nullptr, &session),
                  HD_OK);
        varied.clear();
        // Then more than are remembered, so that 5 is new again.
        std::vector<int64_t> sizes = {5, 5, 5, 7, 5, 7};
        for (int64_t m = 8; m < 8 + HD_VARIANTS; m++)
            sizes.push_back(m);
        sizes.push_back(5);
        for (int64_t &m : sizes) {
            with.sizes = &m;
            with.nsizes = 1;
            EXPECT_EQ(hd_session_run(session, arguments, 2, &with, nullptr),
                      HD_OK);
        }
        hd_session_destroy(session);
        hd_module_destroy(module);
        return HD_OK;
    });
    std::string many;
    for (int i = 0; i <= HD_VARIANTS; i++)
        many += "vr";
    EXPECT_EQ(text, "apsvrVrrvrrVr" + many + "f.");
    ASSERT_EQ(varied.size(), size_t{4 + HD_VARIANTS + 1});
    EXPECT_NE(varied[1], varied[0]);
    EXPECT_NE(varied[3], varied[2]);
}

// Sessions one after another, the runs of which have fewer rows than there is
// room for: whoever has one first begins its run while others still make it.
hd_status RunSizesInTurn(hd_group *group, unsigned seed, hd_diag *diag)
{
    std::mt19937_64 random(seed); // the same on all ranks
    hd_module *module = nullptr;

    HD_TRY(Parse("heddle 2 tensor program t param m in 1..64 mesh tp=4 "
                 "in %x : f32[4@tp, m, 4] out %y : f32[4, m, 4] "
                 "{ %y = set %x }",
                 diag, &module));
    HD_TRY(hd_lower(module, nullptr, nullptr, nullptr, diag));
    for (int i = 0; i < 200; i++) {
        hd_session *session = nullptr;
        int64_t m = 1 + static_cast<int64_t>(random() % 64);
        std::vector<float> whole(4 * 64 * 4), y(whole.size(), NAN);
        void *arguments[] = {whole.data() +
                                 size_t{64 * 4} * size_t(hd_group_rank(group)),
                             y.data()};
        hd_run_options options = HD_EMPTY(hd_run_options);

        for (float &value : whole)
            value = static_cast<float>(random() % 1000);
        options.sizes = &m;
        options.nsizes = 1;
        HD_TRY(hd_session_create(group, module, nullptr, diag, &session));
        HD_TRY(hd_session_run(session, arguments, 2, &options, diag));
        HD_TRY(hd_session_finish(session, diag));
        hd_session_destroy(session);
        for (size_t at = 0; at < whole.size(); at++) {
            if (static_cast<int64_t>(at / 4 % 64) < m)
                RANK_EXPECT(y[at] == whole[at]);
        }
    }
    hd_module_destroy(module);
    return HD_OK;
}

TEST(Session, ARunOfOtherSizesMayBeginWhileAPeerStillMakesTheSession)
{
    unsigned seed = Seed();

    AllEndWell(Launch(4, [&](hd_group *group, hd_diag *diag) {
        return RunSizesInTurn(group, seed, diag);
    }));
}

} // namespace

// A program may have 2^24 steps on each rank: a step costs what it needs.
TEST(Session, TakesAtMost100BytesAStep)
{
    HD_NEEDS_PLAIN_MALLOC();
    const size_t steps = 65000;
    AllEndWell(Launch(1, [](hd_group *group, hd_diag *diag) {
        hd_module *module = nullptr;
        hd_session *session = nullptr;
        size_t before;

        HD_TRY(Parse("heddle 2 host program t in %x : f32[4] out %y : f32[4] "
                     "{ for i in 0..65000 { %y = copy %x } }",
                     diag, &module));
        before = HeapBytes();
        HD_TRY(hd_session_create(group, module, nullptr, diag, &session));
        RANK_EXPECT(HeapBytes() - before >= 40 * steps); // it is counted
        RANK_EXPECT(HeapBytes() - before <= 100 * steps);
        hd_session_destroy(session);
        hd_module_destroy(module);
        return HD_OK;
    }));
}
