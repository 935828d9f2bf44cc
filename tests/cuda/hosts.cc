// Ranks on several hosts, which here are one host under several names, so that
// the fake of NCCL still carries what travels between them.
#include <gtest/gtest.h>

#include "tests/cuda/caller.h"

namespace
{

// A gather and sends along tp, sums along node, and a matmul after them.
const char *const kGrid =
    "heddle 2\n"
    "host program grid\n"
    "mesh node=2, tp=2\n"
    "streams 2\n"
    "in %x : f32[size node@node, size tp@tp, 4, 8] shared\n"
    "in %w : f32[8, 6]\n"
    "out %g : f32[size node@node, size tp, 4, 8] shared\n"
    "out %s : f32[size tp@tp, 4, 8]\n"
    "out %c : f32[size node@node, size tp@tp, 4, 6]\n"
    "temp %t : f32[size node@node, size tp@tp, 4, 8] shared\n"
    "temp %u : f32[size node@node, size tp@tp, 4, 8] shared\n"
    "{\n"
    "    fork\n"
    "    on stream 0 {\n"
    "        %g[node] = all_gather@tp %x[node, tp]\n"
    "        group { send@tp %x[node, tp] to 1 - tp\n"
    "                %t[node, tp] = recv@tp from 1 - tp }\n"
    "        group { send@node %t[node, tp] to 1 - node\n"
    "                %u[node, tp] = recv@node from 1 - node }\n"
    "        %c[node, tp] = matmul %u[node, tp], %w\n"
    "    }\n"
    "    on stream 1 { %s[tp] = all_reduce@node %x[node, tp] }\n"
    "    join\n"
    "}\n";

const std::vector<std::string> kTwoHosts = {"left", "left", "right", "right"};

hd_session_options Options(const char *axes, bool graph,
                           double timeout = kPatience)
{
    hd_session_options options = CudaOptions(timeout);

    options.axes = axes;
    options.graph = graph;
    return options;
}

// Three runs on other inputs each. What the session says of its transports is
// `number` long, and `sum` is how many windows the rank has mapped.
hd_status RunThrice(Rank &rank, const Program &program,
                    const hd_session_options &options)
{
    Session session;
    hd_stats stats = HD_EMPTY(hd_stats);

    HD_TRY(session.Open(rank, program, options));
    Shards shards(session);
    for (int n = 0; n < 3; n++) {
        HD_TRY(n == 0 ? shards.Put(program.Inputs(n), program.Module(),
                                   rank.rank, rank.diag)
                      : shards.Set(program.Inputs(n), program.Module(),
                                   rank.rank, rank.diag));
        HD_TRY(shards.Run(rank.diag));
        HD_TRY(shards.Get(rank.diag));
        HD_TRY(program.Compare(shards, rank.rank, n));
    }
    auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
    rank.answer->number = calls("cuIpcOpenMemHandle_v2");
    hd_session_stats(session, &stats);
    snprintf(rank.answer->text, sizeof(rank.answer->text), "%s",
             stats.transport);
    return hd_diag_count(rank.diag) == 0 ? HD_OK : HD_ERROR_INVALID;
}

struct Choice {
    const char *axes; // nullptr: nothing is said
    int64_t maps;     // of other ranks' windows
};

TEST(CudaHosts, OfAGridRunByNcclBetweenAndByCopiesWithin)
{
    Program program(kGrid, 3);
    const Choice choices[] = {{nullptr, 1},
                              {"node=nccl,tp=copy", 1},
                              {"tp=sm", 1},
                              {"tp=nccl,node=nccl", 0}};

    for (const Choice &choice : choices) {
        for (bool graph : {false, true}) {
            SCOPED_TRACE(choice.axes != nullptr ? choice.axes : "nothing said");
            std::vector<Answer> answers = RunRanks(
                4,
                [&](Rank &rank) {
                    return RunThrice(rank, program,
                                     Options(choice.axes, graph));
                },
                kTwoHosts);

            AllAreRight(answers);
            for (const Answer &answer : answers)
                EXPECT_EQ(answer.number, choice.maps);
        }
    }
}

TEST(CudaHosts, MayBeNumberedInAnyOrder)
{
    Program program(kGrid, 3);

    // Along node ranks share a host now, and along tp they do not.
    AllAreRight(RunRanks(4,
                         [&](Rank &rank) {
                             return RunThrice(rank, program,
                                              Options(nullptr, false));
                         },
                         {"left", "right", "left", "right"}));
}

TEST(CudaHosts, OfARingMayHaveARankEach)
{
    Program program(kRing, 3);
    std::vector<Answer> answers =
        RunRanks(3,
                 [&](Rank &rank) {
                     return RunThrice(rank, program, Options(nullptr, false));
                 },
                 {"a", "b", "c"});

    AllAreRight(answers);
    for (const Answer &answer : answers)
        EXPECT_EQ(answer.number, 0);
}

// Who has said something else is told what to say, in one line.
TEST(CudaHosts, AreNotReachedByCopies)
{
    Program program(kGrid);
    const char *const choices[][2] = {
        {"node=copy", "use --transport node=nccl,tp=copy"},
        {"node=sm,tp=sm", "use --transport node=nccl,tp=sm"},
        {"node=copy,tp=nccl", "use --transport node=nccl,tp=nccl"}};

    for (auto &choice : choices) {
        std::vector<Answer> answers = RunRanks(
            4,
            [&](Rank &rank) {
                Session session;

                return session.Open(rank, program, Options(choice[0], false));
            },
            kTwoHosts);

        for (const Answer &answer : answers) {
            const char *newline = strchr(answer.text, '\n');

            EXPECT_EQ(answer.status, HD_ERROR_UNSUPPORTED) << answer.text;
            EXPECT_TRUE(Has(answer, "axis node is between hosts (rank 0 on "
                                    "left, rank 2 on right)"))
                << answer.text;
            EXPECT_TRUE(Has(answer, choice[1])) << answer.text;
            EXPECT_TRUE(newline == nullptr || newline[1] == '\0')
                << answer.text;
        }
    }
}

TEST(CudaHosts, AreNotReachedByTheCpuAtAll)
{
    Program program(kGrid);
    std::vector<Answer> answers = RunRanks(
        4,
        [&](Rank &rank) {
            hd_session_options options = hd_session_defaults();
            Session session;

            return session.Create(rank, program, options);
        },
        kTwoHosts);

    for (const Answer &answer : answers) {
        EXPECT_EQ(answer.status, HD_ERROR_UNSUPPORTED) << answer.text;
        EXPECT_TRUE(Has(answer, "must be on one host: rank 0 is on left, rank "
                                "2 on right"))
            << answer.text;
    }
}

TEST(CudaHosts, MustBeToldTheSameTransports)
{
    Program program(kGrid);
    std::vector<Answer> answers = RunRanks(
        4,
        [&](Rank &rank) {
            Session session;

            return session.Open(
                rank, program,
                Options(rank.rank == 3 ? "tp=sm" : nullptr, false));
        },
        kTwoHosts);

    for (const Answer &answer : answers)
        EXPECT_NE(answer.status, HD_OK);
    EXPECT_TRUE(Has(answers[0], "rank 3 binds with other options than rank 0"))
        << answers[0].text;
}

// In the middle of a run that waits for it.
TEST(CudaHosts, EndAtOnceWhenARankOfAnotherIsKilled)
{
    Program program(kGrid);

    for (bool graph : {false, true}) {
        std::vector<Answer> answers = RunRanks(
            4,
            [&](Rank &rank) {
                Session session;

                HD_TRY(session.Open(rank, program, Options(nullptr, graph)));
                Shards shards(session);
                HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                                  rank.diag));
                HD_TRY(shards.Run(rank.diag));
                HD_TRY(shards.Get(rank.diag));
                if (rank.rank == 3) {
                    SleepFor(0.1);
                    rank.answer->seconds = Now();
                    raise(SIGKILL);
                }
                HD_TRY(shards.Run(rank.diag));
                hd_status status = shards.Get(rank.diag);
                rank.answer->seconds = Now();
                return status;
            },
            kTwoHosts);

        EXPECT_FALSE(answers[3].ended);
        for (int i = 0; i < 3; i++) {
            const Answer &answer = answers[size_t(i)];

            EXPECT_TRUE(answer.ended) << "rank " << i << " hangs";
            EXPECT_STREQ(answer.left, "") << "rank " << i;
            EXPECT_EQ(answer.status, HD_ERROR_PEER) << answer.text;
            EXPECT_TRUE(Has(answer, "rank 3")) << answer.text;
            EXPECT_LT(answer.seconds - answers[3].seconds, kPatience / 4);
        }
    }
}

// One that never runs, on another host, is late for NCCL or for copies.
TEST(CudaHosts, EndInTimeWhenARankOfAnotherNeverRuns)
{
    Program program(kGrid);
    std::vector<Answer> answers = RunRanks(
        4,
        [&](Rank &rank) {
            Session session;
            hd_status status = HD_OK;

            HD_TRY(session.Open(rank, program, Options(nullptr, false, kLate)));
            Shards shards(session);
            HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                              rank.diag));
            if (rank.rank != 2)
                status = shards.Run(rank.diag);
            if (rank.rank != 2 && status == HD_OK)
                status = shards.Get(rank.diag);
            HD_TRY(Meet(rank));
            return status;
        },
        kTwoHosts);

    for (int i : {0, 1, 3}) {
        const Answer &answer = answers[size_t(i)];

        EXPECT_TRUE(answer.ended) << "rank " << i << " hangs";
        EXPECT_TRUE(answer.status == HD_ERROR_TIMEOUT ||
                    answer.status == HD_ERROR_PEER)
            << answer.status << answer.text;
    }
    EXPECT_EQ(answers[2].status, HD_OK) << answers[2].text;
}

// Of the devices of its host, not of all.
TEST(CudaHosts, NumberTheirDevicesFromZeroEach)
{
    Program program(kGrid);
    std::vector<Answer> answers = RunRanks(
        4,
        [&](Rank &rank) {
            Session session;
            Caller caller; // only asks, once the session has chosen
            int device = -1;
            void *memory = nullptr;

            HD_TRY(session.Open(rank, program, Options(nullptr, false)));
            HD_TRY(hd_session_alloc(session, 64, rank.diag, &memory));
            HD_TRY(caller.Open(rank));
            if (caller.cu.pointer_attribute(
                    &device, HD_CU_POINTER_DEVICE_ORDINAL,
                    reinterpret_cast<uintptr_t>(memory)) != 0)
                return HD_ERROR_SYSTEM;
            rank.answer->number = device;
            hd_session_free(session, memory);
            return HD_OK;
        },
        kTwoHosts);

    AllAreRight(answers);
    for (int i = 0; i < 4; i++)
        EXPECT_EQ(answers[size_t(i)].number, i % 2);
}

} // namespace
