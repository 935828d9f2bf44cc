// Several sessions of one group: their runs are in the order in which they are
// issued, what a run writes overlaps nothing else of it, and what a session
// held is gone with it. The same on every device.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>

#include <heddle/async.h>

#include "tests/device/device.h"
#include "tests/unit/ranks.h"

extern "C" {
uint64_t hd_event_issue(hd_event *event, uint64_t n);
void hd_event_reach(hd_event *event, uint64_t number);
}

namespace
{

constexpr size_t kElements = 4096;

struct Bound {
    hd_module *module = nullptr;
    hd_session *session = nullptr;

    hd_status Open(hd_group *group, const std::string &text, hd_diag *diag,
                   double timeout = 30)
    {
        hd_session_options options = DeviceOptions();
        std::string all = "heddle 2\nhost program sessions\n" + text;

        options.timeout = timeout;
        HD_TRY(hd_parse("sessions.hd", all.data(), all.size(), nullptr, 0, diag,
                        &module));
        return hd_session_create(group, module, &options, diag, &session);
    }
    ~Bound()
    {
        hd_session_destroy(session);
        hd_module_destroy(module);
    }
};

// y = the sum of both ranks' z: what takes long is the peer.
const char kSum[] =
    "mesh tp=2\nin %z : f64[4096]\nout %y : f64[4096]\n"
    "temp %t : f64[4096] shared\n{\n    group {\n"
    "        send %z to 1 - tp\n        %t = recv from 1 - tp\n    }\n"
    "    %y = add %z, %t\n}\n";
// z = y + c
const char kNext[] = "mesh tp=2\nin %y : f64[4096]\nin %c : f64[4096]\n"
                     "out %z : f64[4096]\n{\n    %z = add %y, %c\n}\n";

hd_status Alternate(hd_group *group, unsigned seed, hd_diag *diag)
{
    constexpr size_t kBytes = kElements * sizeof(double);
    std::mt19937 random(seed);
    double rank = hd_group_rank(group);
    std::vector<double> z(kElements), c(kElements), got(kElements);
    double want[2] = {1, 2}, more[2] = {3, 5};
    void *at_y, *at_z, *at_c;
    Bound sum, next;

    std::fill(z.begin(), z.end(), rank + 1);
    std::fill(c.begin(), c.end(), 2 * rank + 3);
    HD_TRY(sum.Open(group, kSum, diag));
    HD_TRY(next.Open(group, kNext, diag));
    HD_TRY(hd_session_alloc(sum.session, kBytes, diag, &at_y));
    HD_TRY(hd_session_alloc(next.session, kBytes, diag, &at_z));
    HD_TRY(hd_session_alloc(next.session, kBytes, diag, &at_c));
    HD_TRY(hd_session_copy(next.session, at_z, z.data(), kBytes, diag));
    HD_TRY(hd_session_copy(next.session, at_c, c.data(), kBytes, diag));
    for (int i = 0; i < 24; i++) {
        void *of_sum[] = {at_z, at_y}, *of_next[] = {at_y, at_c, at_z};

        // One that is issued twice in a row says the same.
        for (unsigned k = random() % 2 + 1; k > 0; k--)
            HD_TRY(hd_session_run(sum.session, of_sum, 2, nullptr, diag));
        for (unsigned k = random() % 2 + 1; k > 0; k--)
            HD_TRY(hd_session_run(next.session, of_next, 3, nullptr, diag));
        for (int r = 0; r < 2; r++)
            more[r] = 2 * r + 3;
        double both = want[0] + want[1];
        want[0] = both + more[0];
        want[1] = both + more[1];
    }
    HD_TRY(hd_session_copy(next.session, got.data(), at_z, kBytes, diag));
    hd_session_free(sum.session, at_y);
    hd_session_free(next.session, at_z);
    hd_session_free(next.session, at_c);
    for (double value : got)
        RANK_EXPECT(value == want[hd_group_rank(group)]);
    return HD_OK;
}

TEST(Sessions, RunsOfOneGroupAreInTheOrderOfTheirIssue)
{
    unsigned seed = Seed();
    AllEndWell(Launch(2, [&](hd_group *group, hd_diag *diag) {
        return Alternate(group, seed, diag);
    }));
}

// Rank 1 never runs what rank 0 waits for; the run after it ends as well.
hd_status FailFirst(hd_group *group, hd_diag *diag)
{
    std::vector<double> memory(3 * kElements);
    double *big[] = {&memory[0], &memory[kElements], &memory[2 * kElements]};
    void *of_sum[] = {big[0], big[1]};
    void *of_next[] = {big[1], big[0], big[2]};
    Bound sum, next;

    HD_TRY(sum.Open(group, kSum, diag, 5));
    HD_TRY(next.Open(group, kNext, diag));
    if (hd_group_rank(group) == 1)
        return hd_group_allgather(group, nullptr, 0, nullptr, diag);
    HD_TRY(hd_session_run(sum.session, of_sum, 2, nullptr, diag));
    HD_TRY(hd_session_run(next.session, of_next, 3, nullptr, diag));
    return hd_session_finish(next.session, diag);
}

TEST(Cpu, ARunBehindOneThatFailsFailsWithItsWords)
{
    Outcome outcome = Launch(2, FailFirst);

    EXPECT_NE(outcome.status, HD_OK);
    EXPECT_NE(outcome.text.find("rank 0 waits for rank 1: "), std::string::npos)
        << outcome.text;
}

// What two streams compute, and one more what a third copies of it, is all
// waited for by lists.
const char kLists[] =
    "mesh tp=1\nstreams 3\nin %x : f64[64, 64]\nin %w : f64[64, 64]\n"
    "out %y : f64[4, 64, 64]\ntemp %e : event[7]\n{\n"
    "    %e[0], %e[1] = record\n"
    "    on stream 0 {\n        wait %e[1]\n"
    "        %y[0] = matmul %x, %w\n        %e[2], %e[3] = record\n    }\n"
    "    on stream 1 {\n        wait %e[0]\n"
    "        %y[1] = matmul %w, %x\n        %e[4], %e[5] = record\n    }\n"
    "    on stream 2 {\n        wait %e[0], %e[5], %e[2]\n"
    "        %y[2] = sub %y[0], %y[1]\n        %e[6] = record\n    }\n"
    "    wait %e[4], %e[3]\n    %y[3] = add %y[0], %y[1]\n"
    "    wait %e[6]\n}\n";

hd_status RunLists(hd_group *group, unsigned seed, hd_diag *diag)
{
    constexpr int n = 64;
    std::mt19937 random(seed);
    std::vector<double> in[2], y(4 * n * n);
    void *at[3];
    Bound lists;

    HD_TRY(lists.Open(group, kLists, diag));
    for (int i = 0; i < 3; i++)
        HD_TRY(hd_session_alloc(lists.session, (i < 2 ? 1 : 4) * n * n * 8,
                                diag, &at[i]));
    for (int run = 0; run < 5; run++) {
        for (int i = 0; i < 2; i++) {
            in[i].clear();
            for (int k = 0; k < n * n; k++) // exact in any order
                in[i].push_back(1.0 + random() % 1000);
            HD_TRY(hd_session_copy(lists.session, at[i], in[i].data(),
                                   n * n * 8, diag));
        }
        std::fill(y.begin(), y.end(), NAN);
        HD_TRY(hd_session_copy(lists.session, at[2], y.data(), 4 * n * n * 8,
                               diag));
        HD_TRY(hd_session_run(lists.session, at, 3, nullptr, diag));
        HD_TRY(hd_session_copy(lists.session, y.data(), at[2], 4 * n * n * 8,
                               diag));
        for (int i = 0; i < n * n; i++) {
            double a = 0, b = 0;

            for (int k = 0; k < n; k++) {
                a += in[0][i / n * n + k] * in[1][k * n + i % n];
                b += in[1][i / n * n + k] * in[0][k * n + i % n];
            }
            RANK_EXPECT(y[i] == a);
            RANK_EXPECT(y[n * n + i] == b);
            RANK_EXPECT(y[2 * n * n + i] == a - b);
            RANK_EXPECT(y[3 * n * n + i] == a + b);
        }
    }
    for (void *memory : at)
        hd_session_free(lists.session, memory);
    return HD_OK;
}

TEST(Sessions, StreamsWaitForListsOfEvents)
{
    unsigned seed = Seed();
    AllEndWell(Launch(1, [&](hd_group *group, hd_diag *diag) {
        return RunLists(group, seed, diag);
    }));
}

const char kFive[] =
    "mesh tp=1\nin %x : f32[8]\nin %w : f32[8]\nout %a : f32[8]\n"
    "out %b : f32[8]\ninout %c : f32[8]\n{\n    %a = add %x, %w\n"
    "    %b = add %x, %c\n    %c = add %x, %x\n}\n";

hd_status RunAt(hd_session *session, char *base,
                const std::vector<size_t> &offsets, hd_diag *diag)
{
    std::vector<void *> arguments;

    for (size_t offset : offsets)
        arguments.push_back(base + offset);
    return hd_session_run(session, arguments.data(), arguments.size(), nullptr,
                          diag);
}

hd_status Overlaps(hd_group *group, hd_diag *diag)
{
    struct {
        std::vector<size_t> offsets;
        const char *says; // "" where it is right
    } cases[] = {
        {{0, 32, 64, 96, 128}, ""},
        {{128, 96, 64, 32, 0}, ""},
        {{0, 0, 64, 96, 128}, ""},  // what is only read
        {{0, 16, 64, 96, 128}, ""}, // likewise
        {{0, 32, 96, 96, 128}, "arguments %a and %b overlap"},
        {{0, 32, 96, 96, 128}, "arguments %a and %b overlap"}, // again
        {{0, 32, 64, 96, 128}, ""},
        {{0, 32, 16, 96, 128}, "arguments %x and %a overlap, and 'sessions'"},
        {{16, 64, 0, 96, 128}, "arguments %a and %x overlap"},
        {{0, 32, 64, 96, 112}, "arguments %b and %c overlap"},
        {{0, 32, 64, 96, 0}, "%x"},
        {{0, 32, 64, 96, 128}, ""},
    };
    Bound five;
    void *base;

    HD_TRY(five.Open(group, kFive, diag));
    HD_TRY(hd_session_alloc(five.session, 256, diag, &base));
    for (const auto &one : cases) {
        hd_diag *said = hd_diag_create();
        hd_status status =
            RunAt(five.session, static_cast<char *>(base), one.offsets, said);
        std::string text = hd_diag_text(said);

        hd_diag_destroy(said);
        RANK_EXPECT(status == (*one.says != '\0' ? HD_ERROR_ARGUMENT : HD_OK));
        RANK_EXPECT(text.find(one.says) != std::string::npos);
    }
    HD_TRY(hd_session_finish(five.session, diag));
    hd_session_free(five.session, base);
    return HD_OK;
}

TEST(Sessions, WhatARunWritesOverlapsNoOtherArgument)
{
    AllEndWell(Launch(1, Overlaps));
}

// Windows, mine and the peers', and all memory of the devices that stand in for
// real ones.
size_t MappedFiles()
{
    char line[4096];
    size_t n = 0;
    FILE *file = fopen("/proc/self/maps", "r");

    while (file != nullptr && fgets(line, sizeof line, file) != nullptr)
        n += strstr(line, "/memfd:") != nullptr;
    if (file != nullptr)
        fclose(file);
    return n;
}

TEST(Sessions, WhatASessionMapsGoesWithIt)
{
    AllEndWell(Launch(2, [](hd_group *group, hd_diag *diag) {
        size_t before = 0;

        for (int i = 1; i <= 12; i++) {
            std::string n = std::to_string(1000 * i);
            Bound bound;

            HD_TRY(bound.Open(group,
                              "mesh tp=2\nin %z : f32[" + n +
                                  "]\nout %y : f32[" + n + "]\ntemp %t : f32[" +
                                  n + "] shared\ntemp %u : f32[" + n +
                                  "]\n{\n    group { send %z to 1 - tp\n"
                                  "        %t = recv from 1 - tp }\n"
                                  "    %u = copy %t\n    %y = copy %u\n}\n",
                              diag));
            hd_session_destroy(bound.session);
            bound.session = nullptr;
            // A few kernels of those before stay loaded.
            if (i == 1 || (i == 9 && !OnCpu()))
                before = MappedFiles();
        }
        RANK_EXPECT(MappedFiles() == before);
        return HD_OK;
    }));
}

// %z of both ranks, in place: what the peer has and twice its own, on `streams`
// streams, and by a send that no stream waits for.
std::string Mix(int n, int streams)
{
    std::string type = " : i32[" + std::to_string(n) + "]";
    std::string text = "mesh tp=2\nstreams " + std::to_string(streams) +
                       "\ninout %z" + type + "\n";
    std::string last = std::to_string(streams - 1);

    for (std::string name : {"%t", "%s"})
        text += "temp " + name + type + " shared\n";
    return text + "temp %u" + type +
           "\ntemp %e : event[]\n{\n    %s = copy %z\n    fork\n"
           "    on stream 0 {\n        group {\n"
           "            send %s to 1 - tp done %e\n"
           "            %t = recv from 1 - tp\n        }\n"
           "        wait %e\n    }\n"
           "    on stream " +
           last + " { %u = add %z, %z }\n    join\n    %z = add %t, %u\n}\n";
}

// What such a run makes of both ranks' numbers, which wrap.
void MixHere(std::vector<uint32_t> z[2], int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t a = z[0][i], b = z[1][i];

        z[0][i] = b + 2 * a;
        z[1][i] = a + 2 * b;
    }
}

int CountThreads()
{
    char line[256];
    int n = -1;
    FILE *file = fopen("/proc/self/status", "r");

    while (file != nullptr && fgets(line, sizeof line, file) != nullptr)
        if (strncmp(line, "Threads:", 8) == 0)
            n = atoi(line + 8);
    if (file != nullptr)
        fclose(file);
    return n;
}

// A session often, in turns with each of the others; then one of more streams
// that was created last, beside one that goes.
hd_status MixInTurns(hd_group *group, unsigned seed, int nsessions,
                     hd_diag *diag)
{
    constexpr int n = 1024;
    std::mt19937 random(seed);
    std::vector<uint32_t> want[2], z;
    std::deque<Bound> sessions(nsessions);
    int rank = hd_group_rank(group), before = CountThreads();

    for (int i = 0; i < n; i++)
        for (std::vector<uint32_t> &of_rank : want)
            of_rank.push_back(uint32_t(random()));
    z = want[rank];
    void *at[] = {z.data()};
    for (int i = 0; i < nsessions; i++)
        HD_TRY(sessions[i].Open(group, Mix(i + 1, 2), diag));
    // Two work streams, the caller's, and the sends' helper.
    RANK_EXPECT(CountThreads() == before + 4);
    for (int i = 0; i < nsessions; i++) {
        for (int k : {0, i}) {
            HD_TRY(hd_session_run(sessions[k].session, at, 1, nullptr, diag));
            MixHere(want, k + 1);
        }
    }
    Bound wide;
    HD_TRY(wide.Open(group, Mix(n, 6), diag));
    RANK_EXPECT(CountThreads() == before + 8);
    for (int i = 0; i < 20; i++) {
        int k = int(random() % unsigned(nsessions));
        Bound *each = i % 2 == 0 ? &wide : &sessions[k];

        HD_TRY(hd_session_run(each->session, at, 1, nullptr, diag));
        MixHere(want, i % 2 == 0 ? n : k + 1);
    }
    HD_TRY(hd_session_finish(wide.session, diag));
    for (Bound &each : sessions)
        HD_TRY(hd_session_finish(each.session, diag));
    RANK_EXPECT(z == want[rank]);
    RANK_EXPECT(CountThreads() == before + 8);
    return HD_OK;
}

TEST(Cpu, SessionsOfOneGroupShareItsThreads)
{
    if (RanksAreThreads())
        GTEST_SKIP() << "it counts what a process has";
    unsigned seed = Seed();
    int nsessions = IsQuick() ? 40 : 200;
    AllEndWell(Launch(2, [&](hd_group *group, hd_diag *diag) {
        return MixInTurns(group, seed, nsessions, diag);
    }));
}

const char kAwait[] = "mesh tp=1\nin %go : event[]\ninout %z : f64[8]\n{\n"
                      "    wait %go\n    %z = add %z, %z\n}\n";
const char kTwice[] = "mesh tp=1\ninout %z : f64[8]\n{\n"
                      "    %z = add %z, %z\n}\n";

// One session waits for its caller on the thread that they share.
TEST(Cpu, ASessionIsDestroyedWhileTheRunOfAnotherWaits)
{
    AllEndWell(Launch(1, [&](hd_group *group, hd_diag *diag) {
        std::vector<double> z(8, 3.0);
        hd_event *go = hd_event_create();
        void *of_stuck[] = {go, z.data()}, *of_other[] = {z.data()};
        Bound stuck, other, idle;

        HD_TRY(stuck.Open(group, kAwait, diag));
        HD_TRY(other.Open(group, kTwice, diag));
        HD_TRY(idle.Open(group, kTwice, diag));
        HD_TRY(hd_session_run(other.session, of_other, 1, nullptr, diag));
        HD_TRY(hd_session_finish(other.session, diag));
        uint64_t number = hd_event_issue(go, 1);
        HD_TRY(hd_session_run(stuck.session, of_stuck, 2, nullptr, diag));
        hd_session_destroy(other.session);
        hd_session_destroy(idle.session);
        other.session = idle.session = nullptr;
        RANK_EXPECT(z[7] == 6.0);
        hd_event_reach(go, number);
        HD_TRY(hd_session_finish(stuck.session, diag));
        RANK_EXPECT(z[7] == 12.0);
        hd_event_destroy(go);
        return HD_OK;
    }));
}

// Its deadline passes while runs of both are behind it. What follows it in
// order never begins: it would read what was not written.
TEST(Cpu, WhatIsIssuedBehindAFailureFailsAndLeavesItsMemoryAlone)
{
    Outcome outcome = Launch(1, [&](hd_group *group, hd_diag *diag) {
        std::vector<double> z(8, 3.0);
        hd_event *go = hd_event_create();
        void *of_stuck[] = {go, z.data()}, *of_other[] = {z.data()};
        Bound stuck, other;

        HD_TRY(stuck.Open(group, kAwait, diag, 0.2));
        HD_TRY(other.Open(group, kTwice, diag));
        hd_event_issue(go, 1);
        for (int i = 0; i < 6; i++) {
            HD_TRY(hd_session_run(stuck.session, of_stuck, 2, nullptr, diag));
            HD_TRY(hd_session_run(other.session, of_other, 1, nullptr, diag));
        }
        RANK_EXPECT(hd_session_finish(other.session, nullptr) == HD_ERROR_PEER);
        hd_session_destroy(other.session);
        other.session = nullptr;
        RANK_EXPECT(z == std::vector<double>(8, 3.0));
        return hd_session_finish(stuck.session, diag);
    });

    EXPECT_EQ(outcome.status, HD_ERROR_TIMEOUT);
    EXPECT_NE(outcome.text.find("rank 0 waits for itself: wait at"),
              std::string::npos)
        << outcome.text;
}

} // namespace
