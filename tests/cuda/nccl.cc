// What the driver asks of NCCL, and what NCCL does with programs that the proof
// refuses for it.
#include <gtest/gtest.h>
#include <malloc.h>

#include "tests/cuda/program.h"
#include "tests/cuda/system.h"

namespace
{

hd_session_options NcclOptions(double timeout = kPatience)
{
    hd_session_options options = CudaOptions(timeout);

    options.transport = HD_TRANSPORT_NCCL;
    return options;
}

std::vector<Answer> RunOverNccl(const Program &program,
                                const hd_session_options &options,
                                int ranks = 2)
{
    return RunRanks(ranks, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, options));
        return RunAndCompare(rank, program, session, 3);
    });
}

std::string Milliseconds(double seconds)
{
    return std::to_string(long(seconds * 1e3));
}

hd_status Proof(const Program &program)
{
    hd_check_options options = hd_check_defaults();

    options.transport = HD_TRANSPORT_NCCL;
    return hd_check(program.Module(), &options, nullptr);
}

// One rank sends and receives in a group, the other first receives. NCCL would
// connect the two by what each does first, which is not the mirror image of the
// other's: so they are connected before.
TEST(CudaNccl, RanksThatMeetInDifferentGroupsAreConnectedBoth)
{
    Program program("heddle 2\nhost program sides mesh tp=2\n"
                    "in %x : f32[2@tp, 64]\nout %y : f32[2@tp, 64] shared\n"
                    "{ if tp == 0 {\n"
                    "    group { send %x[tp] to 1  %y[tp] = recv from 1 }\n"
                    "  } else { %y[tp] = recv from 0  send %x[tp] to 0 } }\n");

    EXPECT_EQ(Proof(program), HD_OK);
    for (bool graph : {false, true}) {
        hd_session_options options = NcclOptions();

        options.graph = graph;
        for (const Answer &answer : RunOverNccl(program, options)) {
            EXPECT_TRUE(answer.ended);
            EXPECT_EQ(answer.status, HD_OK) << answer.text;
            EXPECT_STREQ(answer.left, "");
        }
    }
}

// Two communicators on two streams, which nothing in the program orders: a
// device is given to one at a time, in the order of the text.
TEST(CudaNccl, CallsOfSeveralCommunicatorsFollowEachOther)
{
    Program program(
        "heddle 2\nhost program both mesh a=2, b=2 streams 2\n"
        "in %x : f32[size a@a, size b@b, 64]\n"
        "out %y : f32[6, 2, 64] shared\n"
        "out %z : f32[6, 2, 64] shared\n"
        "{ fork for i in 0..6 {\n"
        "    on stream i mod 2 { %y[i] = all_gather@a %x[a, b] }\n"
        "    on stream 1 - i mod 2 { %z[i] = all_gather@b %x[a, b] }\n"
        "  } join }\n");

    EXPECT_EQ(Proof(program), HD_OK);
    for (bool graph : {false, true}) {
        hd_session_options options = NcclOptions();

        options.graph = graph;
        for (const Answer &answer : RunOverNccl(program, options, 4)) {
            EXPECT_TRUE(answer.ended);
            EXPECT_EQ(answer.status, HD_OK) << answer.text;
            EXPECT_STREQ(answer.left, "");
        }
    }
}

// What runs over copies, and what NCCL does with it.
const char *const kRefused[] = {
    "heddle 2\nhost program lone mesh tp=2\n"
    "in %x : f32[2@tp, 64]\nout %y : f32[2@tp, 64] shared\n"
    "temp %e : event[]\n"
    "{ send %x[tp] to 1 - tp done %e\n"
    "  %y[tp] = recv from 1 - tp  wait %e }\n",
    "heddle 2\nhost program apart mesh tp=2 streams 2\n"
    "in %x : f32[2@tp, 64]\nout %y : f32[2@tp, 64] shared\n"
    "{ fork on stream 0 { send %x[tp] to 1 - tp }\n"
    "  on stream 1 { %y[tp] = recv from 1 - tp } join }\n"};

TEST(CudaNccl, WhatTheProofRefusesHangsAndIsNamed)
{
    for (const char *text : kRefused) {
        Program program(text);
        bool named = false;

        EXPECT_EQ(Proof(program), HD_ERROR_INVALID) << text;
        for (const Answer &answer : RunOverNccl(program, NcclOptions(kLate))) {
            EXPECT_TRUE(answer.ended);
            EXPECT_TRUE(answer.status == HD_ERROR_TIMEOUT ||
                        answer.status == HD_ERROR_PEER)
                << answer.text;
            named |=
                answer.status == HD_ERROR_TIMEOUT && Has(answer, "by NCCL");
        }
        EXPECT_TRUE(named) << text;
    }
}

const char kSides[] = "heddle 2\nhost program sides mesh tp=2\n"
                      "in %x : f32[2@tp, 64]\n"
                      "out %y : f32[2@tp, 64] shared\n"
                      "{ group { send %x[tp] to 1 - tp\n"
                      "          %y[tp] = recv from 1 - tp } }\n";

TEST(CudaNccl, AVersionThatCannotSplitIsRefusedByItsNumber)
{
    Program program(kSides);
    ScopedSetting version("FAKE_NCCL_VERSION", "21705");

    for (const Answer &answer : RunOverNccl(program, NcclOptions())) {
        EXPECT_TRUE(answer.ended);
        EXPECT_EQ(answer.status, HD_ERROR_UNSUPPORTED) << answer.text;
        EXPECT_TRUE(Has(answer, "2.17.5") && Has(answer, "2.18"))
            << answer.text;
        EXPECT_STREQ(answer.left, "");
    }
}

// A run asks for nothing more of a communicator that has not done what it was
// asked for: its words would be lost, and NCCL refuses the next call.
TEST(CudaNccl, ACallThatIsInProgressIsRefusedInARun)
{
    const std::pair<const char *, const char *> cases[] = {
        {kSides, "group_end"},
        {"heddle 2\nhost program sum mesh tp=2\n"
         "in %x : f32[2@tp, 64] shared\nout %y : f32[64]\n"
         "{ %y = all_reduce %x[tp] }\n",
         "all_reduce"}};
    ScopedSetting never("FAKE_NCCL_NEVER_BLOCKS", "1");

    for (const auto &[text, call] : cases) {
        Program program(text);
        bool named = false;

        for (const Answer &answer : RunOverNccl(program, NcclOptions())) {
            EXPECT_TRUE(answer.ended);
            EXPECT_TRUE(answer.status == HD_ERROR_SYSTEM ||
                        answer.status == HD_ERROR_PEER)
                << answer.status << answer.text;
            named |= Has(answer, ("refused '" + std::string(call) +
                                  "': NCCL operation in progress")
                                     .c_str());
            EXPECT_STREQ(answer.left, "");
        }
        EXPECT_TRUE(named) << text;
    }
}

// Else it would give up before ranks that are starved are late.
TEST(CudaNccl, TheStandInWaitsByTheClockOfTheRanks)
{
    void *library = dlopen(FAKE_NCCL_PATH, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    auto *clock =
        reinterpret_cast<double (*)()>(dlsym(library, "fake_nccl_clock"));
    ASSERT_NE(clock, nullptr);

    kill(clock_mover(), SIGSTOP);
    usleep(20000);
    double before = clock(), mine = Now();
    usleep(20000);
    double after = clock();
    kill(clock_mover(), SIGCONT);
    EXPECT_EQ(before, after);
    EXPECT_EQ(before, mine);
    dlclose(library);
}

// The peers gave up long ago, and so has the session: what comes of it is
// ended, and no kernel waits on the device for peers that are not there.
TEST(CudaNccl, ACommunicatorThatIsJoinedTooLateIsEnded)
{
    Program program(kSides);
    auto answers = RunRanks(2, [&](Rank &rank) {
        Session session;

        if (rank.rank == 0)
            setenv("FAKE_NCCL_LATE", Milliseconds(10 * kLate).c_str(), 1);
        hd_status status = session.Open(rank, program, NcclOptions(kLate));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        double deadline = Now() + kPatience;
        while (rank.rank == 0 && Now() < deadline) {
            if (calls("ncclCommAbort") > 0)
                return status;
            usleep(5000);
        }
        return rank.rank == 0 ? HD_ERROR_INVALID : status;
    });

    for (const Answer &answer : answers) {
        EXPECT_TRUE(answer.ended);
        EXPECT_TRUE(answer.status == HD_ERROR_TIMEOUT ||
                    answer.status == HD_ERROR_PEER)
            << answer.status << answer.text;
    }
}

// A peer that fails as soon as it has joined may meet a rank whose call has not
// returned yet: that rank gives back all it has once it does.
TEST(CudaNccl, APeerThatFailsWhileOneStillJoinsLeavesNothing)
{
    Program program(kSides);
    auto answers = RunRanks(2, [&](Rank &rank) {
        Session session;

        if (rank.rank == 0)
            setenv("FAKE_CUDA_FAIL", "ncclRecv:1", 1);
        else
            setenv("FAKE_NCCL_LATE", "300", 1);
        return session.Open(rank, program, NcclOptions());
    });

    EXPECT_EQ(answers[0].status, HD_ERROR_SYSTEM) << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_ERROR_PEER) << answers[1].text;
    for (const Answer &answer : answers) {
        EXPECT_TRUE(answer.ended);
        EXPECT_STREQ(answer.left, "");
    }
}

// A communicator is ended on a thread of its own. Where there is none when the
// peer dies, there may be one when the session ends; and if not, NCCL stays.
TEST(CudaNccl, ACommunicatorThatNoThreadEndsKeepsWhatItHas)
{
    Program program(kSides);

    for (bool forever : {false, true}) {
        auto answers = RunRanks(2, [&](Rank &rank) {
            {
                Session session;

                HD_TRY(session.Open(rank, program, NcclOptions()));
                Shards shards(session);
                HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                                  rank.diag));
                HD_TRY(shards.Run(rank.diag));
                HD_TRY(shards.Get(rank.diag));
                StartThreads(0);
                HD_TRY(Meet(rank));
                if (rank.rank == 1)
                    raise(SIGKILL);
                SleepFor(0.5);
                rank.answer->status = shards.Get(rank.diag);
                StartThreads(forever ? 0 : 10);
                rank.page->keeps = forever;
            }
            return rank.answer->status;
        });

        EXPECT_TRUE(answers[0].ended);
        EXPECT_EQ(answers[0].status, HD_ERROR_PEER) << answers[0].text;
        // As the device does, which NCCL may still work on.
        std::string left = answers[0].left;
        EXPECT_EQ(left.empty(), !forever) << left;
        EXPECT_EQ(left.find("streams") != left.npos, forever) << left;
    }
}

// The session is given up long before NCCL has ended its communicator, which
// then still has what it uses.
TEST(CudaNccl, ACommunicatorThatEndsAfterItsSessionFindsNothingGone)
{
    Program program(kSides);
    auto answers = RunRanks(2, [&](Rank &rank) {
        mallopt(M_PERTURB, 0x5a); // what is freed is nonsense
        setenv("FAKE_NCCL_ENDS_LATE", "11500", 1);
        {
            Session session;

            HD_TRY(session.Open(rank, program, NcclOptions(kLate)));
            Shards shards(session);
            HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                              rank.diag));
            if (rank.rank == 0)
                (void)shards.Run(rank.diag);
            rank.answer->status = shards.Get(rank.diag);
            HD_TRY(Meet(rank)); // whoever leaves is named before
            clock_goes(8);
        }
        SleepFor(2.5);
        return rank.answer->status;
    });
    clock_goes(1);

    for (const Answer &answer : answers)
        EXPECT_TRUE(answer.ended);
    EXPECT_EQ(answers[0].status, HD_ERROR_TIMEOUT) << answers[0].text;
}

// In pieces on the rank whose view has gaps, at once on the other: NCCL would
// wait without end.
void RefusesAndTakes(const std::string &declarations, const std::string &one,
                     const std::string &dense, const std::string &spaced,
                     const std::string &words)
{
    const std::string begin = "heddle 2\nhost program apart mesh tp=2\n" +
                              declarations + "{ if tp == 1 {" + one + "}\n";
    Program apart((begin + "  else {" + dense + "} }\n").c_str());
    Program alike((begin + "  else {" + spaced + "} }\n").c_str());
    auto answers = RunOverNccl(apart, NcclOptions());

    EXPECT_EQ(Proof(apart), HD_ERROR_INVALID);
    EXPECT_EQ(answers[1].status, HD_ERROR_UNSUPPORTED) << answers[1].text;
    for (const Answer &answer : answers) {
        EXPECT_TRUE(answer.ended);
        EXPECT_TRUE(Has(answer, words.c_str())) << answer.text;
        EXPECT_STREQ(answer.left, "");
    }
    EXPECT_EQ(Proof(alike), HD_OK);
    for (const Answer &answer : RunOverNccl(alike, NcclOptions()))
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
}

TEST(CudaNccl, AGatherWithGapsOnOneRankAloneIsRefusedByName)
{
    RefusesAndTakes("in %x : f32[64] out %y : f32[2, 2, 64] shared\n"
                    "temp %z : f32[2, 64] shared\n",
                    "%y[:, 0] = all_gather %x %y[:, 1] = all_gather %x",
                    "%z = all_gather %x %y[:, 0] = copy %z\n"
                    "%y[:, 1] = all_gather %x",
                    "%y[:, 1] = all_gather %x %y[:, 0] = all_gather %x",
                    "all_gather with gaps between the pieces of %y on rank 1 "
                    "(line 5) and without in %z on rank 0 (line 6)");
}

TEST(CudaNccl, AScatterWithGapsOnOneRankAloneIsRefusedByName)
{
    RefusesAndTakes("in %x : f32[2, 2, 64] shared out %y : f32[64]\n"
                    "in %z : f32[2, 64] shared\n",
                    "%y = reduce_scatter %x[:, 0]", "%y = reduce_scatter %z",
                    "%y = reduce_scatter %x[:, 1]",
                    "reduce_scatter with gaps between the pieces of %x on rank "
                    "1 (line 5) and without in %z on rank 0 (line 6)");
}

} // namespace
