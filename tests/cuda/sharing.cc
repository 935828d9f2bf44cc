// Sessions of one group: many alive at once have one of what they share, and
// their runs follow one another whatever streams they are on. Shapes, inputs
// and orders are drawn.
#include <algorithm>
#include <dirent.h>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "tests/cuda/caller.h"
#include "tests/cuda/program.h"

namespace
{

// kEverything of other shapes: rows, columns, columns of the product, streams.
std::string Everything(int rows, int columns, int width, int streams)
{
    std::string text = kEverything;
    auto replace = [&](const std::string &from, const std::string &to) {
        for (size_t at = text.find(from); at != std::string::npos;
             at = text.find(from, at + to.size()))
            text.replace(at, from.size(), to);
    };

    replace("4, 8]", "<r>, <c>]");
    replace("4, 6]", "<r>, <w>]");
    replace("[8, 6]", "[<c>, <w>]");
    replace("[6]", "[<w>]");
    replace("<r>", std::to_string(rows));
    replace("<c>", std::to_string(columns));
    replace("<w>", std::to_string(width));
    replace("streams 2", "streams " + std::to_string(streams));
    return text;
}

typedef std::vector<std::unique_ptr<Program>> Programs;

Programs Draw(std::mt19937_64 &random, int n, int sets, int most)
{
    Programs all;
    auto draw = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };

    for (int i = 0; i < n; i++)
        all.push_back(std::make_unique<Program>(
            Everything(draw(1, most), draw(1, most), draw(1, most), draw(2, 4)),
            sets));
    return all;
}

// Of what the stand-in says is alive, how many there are of a kind.
long Alive(const char *kind)
{
    auto *balance = Extra<decltype(fake_cuda_balance)>("fake_cuda_balance");
    char text[512];
    const char *at = text;

    balance(text, sizeof(text));
    for (std::string end = std::string(" ") + kind; *at != '\0';) {
        const char *comma = strchr(at, ',');
        std::string one(at, comma == nullptr ? strlen(at) : size_t(comma - at));

        if (one.size() > end.size() &&
            one.compare(one.size() - end.size(), end.size(), end) == 0)
            return atol(one.c_str());
        at = comma == nullptr ? "" : comma + 2;
    }
    return 0;
}

long Threads()
{
    std::ifstream status("/proc/self/status");
    std::string line;

    while (std::getline(status, line))
        if (line.rfind("Threads:", 0) == 0)
            return atol(line.c_str() + 8);
    return -1;
}

long MiBLeft(const Caller &caller)
{
    size_t left = 0, total = 0;

    if (caller.cu.memory_info(&left, &total) != 0)
        abort();
    return long(left >> 20);
}

// Unless `found` is no more than `most`.
hd_status Exceeds(Rank &rank, const char *what, long found, long most)
{
    if (found <= most)
        return HD_OK;
    return hd_fail(rank.diag, HD_ERROR_INVALID,
                   "rank %d has %ld %s, more than %ld", rank.rank, found, what,
                   most);
}

TEST(CudaSharing, ManySessionsHaveTheStreamsAndThreadsOfOne)
{
    const int n = 60;
    std::mt19937_64 random(Seed());
    Programs programs = Draw(random, n, 1, 9);

    AllAreRight(RunRanks(2, [&](Rank &rank) -> hd_status {
        Caller caller;
        long threads, free;

        HD_TRY(caller.Open(rank));
        std::vector<Session> sessions{size_t(n)};
        HD_TRY(sessions[0].Open(rank, *programs[0], CudaOptions()));
        HD_TRY(RunAndCompare(rank, *programs[0], sessions[0], 1));
        threads = Threads();
        free = MiBLeft(caller);
        for (size_t i = 1; i < n; i++)
            HD_TRY(sessions[i].Open(rank, *programs[i], CudaOptions()));
        for (size_t i = 0; i < n; i++)
            HD_TRY(RunAndCompare(rank, *programs[i], sessions[i], 2));
        // The windows that they share, and one allocation a session of what is
        // 0 at first, many of which are one block of a real device.
        HD_TRY(Exceeds(rank, "MiB more", free - MiBLeft(caller), 8));
        HD_TRY(Exceeds(rank, "streams", Alive("streams"), 4 + 1 + 2));
        return Exceeds(rank, "threads", Threads(), threads + 2);
    }));
}

// Each of several programs has memory for some sets of inputs. All of it is
// filled, worked on and read in an order that is drawn, on streams that each
// rank draws for itself: only the order of sessions is the same.
hd_status Interleave(Rank &rank, const Programs &programs, int sets,
                     const hd_session_options &options, uint64_t seed)
{
    std::mt19937_64 order(seed), own(seed + 1 + unsigned(rank.rank));
    size_t n = programs.size();
    Caller caller;

    HD_TRY(caller.Open(rank));
    hd_cu_stream stream[] = {caller.Stream(), caller.Stream()};
    std::vector<Session> sessions{n};
    std::vector<Memory> memory{n};
    std::vector<std::pair<size_t, int>> turns;
    for (size_t i = 0; i < n; i++) {
        HD_TRY(sessions[i].Open(rank, *programs[i], options));
        HD_TRY(Fill(memory[i], rank, *programs[i], sessions[i], sets));
        for (int k = 0; k < sets; k++)
            turns.emplace_back(i, k);
    }
    for (int round = 0; round < 4; round++) {
        std::shuffle(turns.begin(), turns.end(), order);
        for (auto [i, k] : turns) {
            Shards &shards = *memory[i][size_t(k)];
            hd_cu_stream at = stream[own() % 2];

            HD_TRY(caller.Set(shards, at, *programs[i], rank.rank, k));
            HD_TRY(shards.RunOn(at, rank.diag));
        }
        for (auto [i, k] : turns) {
            HD_TRY(memory[i][size_t(k)]->Get(rank.diag));
            HD_TRY(programs[i]->Compare(*memory[i][size_t(k)], rank.rank, k));
        }
    }
    memory.clear();
    return HD_OK;
}

void InterleaveAll(hd_transport transport, bool graph)
{
    uint64_t seed = Seed();
    std::mt19937_64 random(seed);
    Programs programs = Draw(random, 4, 3, 40);
    hd_session_options options = CudaOptions();
    ScopedSetting chaos("FAKE_CUDA_CHAOS", std::to_string(seed % 1000000));

    options.transport = transport;
    options.graph = graph;
    AllAreRight(RunRanks(2, [&](Rank &rank) {
        return Interleave(rank, programs, 3, options, seed);
    }));
}

TEST(CudaSharing, RunsOfSessionsTakeTurnsOnTwoStreams)
{
    InterleaveAll(HD_TRANSPORT_COPY, false);
}

TEST(CudaSharing, RunsOfSessionsTakeTurnsOnTwoStreamsAsGraphs)
{
    InterleaveAll(HD_TRANSPORT_COPY, true);
}

TEST(CudaSharing, RunsOfSessionsTakeTurnsOnTwoStreamsByKernels)
{
    InterleaveAll(HD_TRANSPORT_SM, false);
}

TEST(CudaSharing, RunsOfSessionsTakeTurnsOnTwoStreamsByNccl)
{
    InterleaveAll(HD_TRANSPORT_NCCL, false);
}

TEST(CudaSharing, RunsOfSessionsTakeTurnsOnTwoStreamsByNcclAsGraphs)
{
    InterleaveAll(HD_TRANSPORT_NCCL, true);
}

// Ranks that only gather need no connection of their own, so that they take the
// communicator of those that send, but not the other way round: these have one
// more, and then one each for ever.
TEST(CudaSharing, SessionsOfTheSameRanksHaveOneCommunicator)
{
    Program sends(kRing);
    Program gathers("heddle 2\n"
                    "host program gathers mesh tp=3 streams 1\n"
                    "in %x : f32[size tp@tp, 5] shared\n"
                    "out %y : f32[size tp, 5] shared\n"
                    "{ %y = all_gather %x[tp] }\n");
    hd_session_options options = CudaOptions();

    options.transport = HD_TRANSPORT_NCCL;
    for (bool sent : {true, false}) {
        AllAreRight(RunRanks(3, [&](Rank &rank) -> hd_status {
            std::vector<Session> sessions{12};

            for (size_t i = 0; i < sessions.size(); i++) {
                const Program &program = sent == (i % 2 == 0) ? sends : gathers;

                HD_TRY(sessions[i].Open(rank, program, options));
                HD_TRY(RunAndCompare(rank, program, sessions[i], 1));
            }
            for (size_t i = 0; i < sessions.size(); i++)
                HD_TRY(RunAndCompare(rank,
                                     sent == (i % 2 == 0) ? sends : gathers,
                                     sessions[i], 2));
            auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
            return Exceeds(rank, "communicators too few or too many",
                           calls("ncclCommInitRankConfig") != (sent ? 1 : 2),
                           0);
        }));
    }
}

uint64_t Exchanges(hd_session *session)
{
    hd_stats stats = HD_EMPTY(hd_stats);

    hd_session_stats(session, &stats);
    return stats.handle_exchanges;
}

// One that needs no more than those before it, alive or not, and then one that
// needs more.
TEST(CudaSharing, ASessionThatFitsExchangesNoHandles)
{
    Program small(Everything(3, 5, 2, 2)), large(Everything(9, 8, 7, 3)),
        huge(Everything(512, 1024, 2, 2));

    AllAreRight(RunRanks(2, [&](Rank &rank) -> hd_status {
        Session a, b, c;

        HD_TRY(a.Open(rank, large, CudaOptions()));
        {
            Session gone;

            HD_TRY(gone.Open(rank, small, CudaOptions()));
            HD_TRY(RunAndCompare(rank, small, gone, 2));
            HD_TRY(Exceeds(rank, "handles", long(Exchanges(gone)), 0));
        }
        HD_TRY(b.Open(rank, small, CudaOptions()));
        HD_TRY(Exceeds(rank, "handles", long(Exchanges(b)), 0));
        HD_TRY(c.Open(rank, huge, CudaOptions()));
        HD_TRY(Exceeds(rank, "handles too few", Exchanges(c) == 0, 0));
        HD_TRY(RunAndCompare(rank, huge, c, 1));
        HD_TRY(RunAndCompare(rank, small, b, 2));
        HD_TRY(RunAndCompare(rank, large, a, 2));
        return RunAndCompare(rank, huge, c, 1);
    }));
}

// A rank that has given back all that its group had there has mapped nothing
// any more: handles are exchanged, though the other rank would fit.
TEST(CudaSharing, ARankThatHasTrimmedIsGivenHandlesAnew)
{
    Program program(kEverything);

    AllAreRight(RunRanks(2, [&](Rank &rank) -> hd_status {
        for (int round = 0; round < 3; round++) {
            Session session;

            HD_TRY(session.Open(rank, program, CudaOptions()));
            HD_TRY(Exceeds(rank, "exchanges too few or too many",
                           Exchanges(session) != (round == 1 ? 0 : 1), 0));
            HD_TRY(RunAndCompare(rank, program, session, 3));
            hd_session_destroy(session.Take());
            if (round == 1 && rank.rank == 0)
                HD_TRY(hd_group_trim(rank.group, rank.diag));
        }
        return HD_OK;
    }));
}

// Rank 0 works on two devices in turns. What rank 1 has left is a window that
// the other of the two has mapped: both ranks would fit, but not with each
// other.
TEST(CudaSharing, ARankOnAnotherDeviceIsGivenHandles)
{
    Program small(kEverything), large(Everything(300, 700, 3, 2));

    AllAreRight(RunRanks(2, [&](Rank &rank) -> hd_status {
        hd_session_options first = CudaOptions(), second = CudaOptions();
        Session a, b, c;

        first.device = rank.rank == 0 ? "cuda:0" : "cuda:2";
        second.device = rank.rank == 0 ? "cuda:1" : "cuda:2";
        HD_TRY(a.Open(rank, small, first));
        HD_TRY(RunAndCompare(rank, small, a, 1));
        hd_session_destroy(a.Take());
        HD_TRY(b.Open(rank, large, second));
        HD_TRY(c.Open(rank, small, first));
        HD_TRY(RunAndCompare(rank, small, c, 2));
        HD_TRY(Exceeds(rank, "handles too few", Exchanges(c) == 0, 0));
        return RunAndCompare(rank, large, b, 2);
    }));
}

// A session with memory for one set of inputs.
struct Living {
    const Program *program;
    Session session;
    std::unique_ptr<Shards> shards;
};

// In each round one of four sessions, the same on all ranks, goes and another
// one comes, while runs of the others are under way.
hd_status ComeAndGo(Rank &rank, const Programs &programs,
                    const hd_session_options &options, uint64_t seed)
{
    std::mt19937_64 order(seed), own(seed + 1 + unsigned(rank.rank));
    Caller caller;

    HD_TRY(caller.Open(rank));
    hd_cu_stream stream[] = {caller.Stream(), caller.Stream()};
    std::unique_ptr<Living> living[4];
    for (size_t i = 0; i < programs.size(); i++) {
        std::unique_ptr<Living> &place = living[order() % 4];

        if (place != nullptr) {
            HD_TRY(place->shards->Get(rank.diag));
            HD_TRY(place->program->Compare(*place->shards, rank.rank));
            place->shards.reset();
        }
        place = std::make_unique<Living>();
        place->program = programs[i].get();
        HD_TRY(place->session.Open(rank, *programs[i], options));
        place->shards = std::make_unique<Shards>(place->session);
        HD_TRY(place->shards->Put(programs[i]->Inputs(), programs[i]->Module(),
                                  rank.rank, rank.diag));
        for (int k = 0; k < 6; k++) {
            std::unique_ptr<Living> &one = living[order() % 4];

            if (one != nullptr)
                HD_TRY(one->shards->RunOn(stream[own() % 2], rank.diag));
        }
        // Else there would be nothing to compare.
        HD_TRY(place->shards->RunOn(stream[own() % 2], rank.diag));
    }
    for (std::unique_ptr<Living> &one : living) {
        if (one == nullptr)
            continue;
        HD_TRY(one->shards->Get(rank.diag));
        HD_TRY(one->program->Compare(*one->shards, rank.rank));
        one->shards.reset();
    }
    return HD_OK;
}

TEST(CudaSharing, SessionsComeAndGoWhileOthersRun)
{
    uint64_t seed = Seed();
    std::mt19937_64 random(seed);
    Programs programs = Draw(random, 6, 1, 9);
    ScopedSetting chaos("FAKE_CUDA_CHAOS", std::to_string(seed % 1000000));

    // They grow, and shrink again.
    for (int most : {40, 160, 400, 20})
        for (std::unique_ptr<Program> &one : Draw(random, 3, 1, most))
            programs.push_back(std::move(one));
    for (bool graph : {false, true}) {
        hd_session_options options = CudaOptions();

        options.graph = graph;
        AllAreRight(RunRanks(2, [&](Rank &rank) {
            return ComeAndGo(rank, programs, options, seed);
        }));
    }
}

// One that waits for a peer that has died ends, and so do all others.
TEST(CudaSharing, ADeathEndsAllSessions)
{
    Program program(kEverything);
    int ends[2];

    ASSERT_EQ(pipe(ends), 0);

    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) -> hd_status {
        Session sessions[3];
        hd_status status;
        char ran = 1;

        for (Session &session : sessions) {
            HD_TRY(session.Open(rank, program, CudaOptions()));
            HD_TRY(RunAndCompare(rank, program, session, 1));
        }
        // Not before rank 0's runs have ended: the last could fail.
        if (rank.rank == 1)
            _exit(read(ends[0], &ran, 1) == 1 ? 0 : 1);
        if (write(ends[1], &ran, 1) != 1)
            return HD_ERROR_INVALID;
        status = RunAndCompare(rank, program, sessions[1], 1);
        if (status != HD_ERROR_PEER)
            return HD_ERROR_INVALID;
        for (Session &session : sessions)
            if (hd_session_finish(session, rank.diag) != HD_ERROR_PEER)
                return HD_ERROR_INVALID;
        return HD_OK;
    });

    close(ends[0]);
    close(ends[1]);
    Ended(answers[0], 0);
    EXPECT_EQ(answers[0].status, HD_OK) << answers[0].text;
}

// The home goes with the last session that needs it, if it is asked for.
TEST(CudaSharing, TrimGivesBackWhatNoSessionNeeds)
{
    Program program(kEverything);

    AllAreRight(RunRanks(2, [&](Rank &rank) -> hd_status {
        for (int round = 0; round < 2; round++) {
            {
                Session session;

                HD_TRY(session.Open(rank, program, CudaOptions()));
                HD_TRY(hd_group_trim(rank.group, rank.diag)); // it needs all
                HD_TRY(RunAndCompare(rank, program, session, 3));
            }
            HD_TRY(Exceeds(rank, "streams that are gone", Alive("streams") == 0,
                           0));
            HD_TRY(hd_group_trim(rank.group, rank.diag));
            HD_TRY(Exceeds(rank, "streams", Alive("streams"), 0));
            HD_TRY(Exceeds(rank, "modules", Alive("modules"), 0));
            HD_TRY(Exceeds(rank, "memory", Alive("memory"), 0));
        }
        return HD_OK;
    }));
}

} // namespace
