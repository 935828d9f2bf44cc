// What a run asks of the driver and of the device, by count: each call, word
// and node costs a part of a microsecond or more.
#include <gtest/gtest.h>

#include "tests/cuda/program.h"

namespace
{

// A gather in front of a matmul, as pipelines are made of it.
const char kGather[] = "heddle 1\n"
                       "tensor program ag mesh tp=4\n"
                       "in %x : f32[size tp@tp, 4, 8] in %w : f32[8, 12]\n"
                       "out %c : f32[size tp@stream, 4, 12]\n"
                       "temp %all : f32[size tp@stream, 4, 8]\n"
                       "{ %all = set %x  %c = matmul %all, %w }\n";

hd_lower_options Pipeline(hd_transfer transfer)
{
    hd_lower_options options = hd_lower_defaults();

    options.transfer = transfer;
    options.comm_stream = options.defer_sends = true;
    return options;
}

// How often rank 0 does `what` in the last of three runs, whose answers are
// right on all ranks.
int64_t Count(const Program &program, const hd_session_options &options,
              const char *what)
{
    std::vector<Answer> answers = RunRanks(program.Ranks(), [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, options));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(0), program.Module(), rank.rank,
                          rank.diag));
        for (int run = 0; run < 3; run++) {
            HD_TRY(shards.Set(program.Inputs(run), program.Module(), rank.rank,
                              rank.diag));
            long before = calls(what);
            HD_TRY(shards.Run(rank.diag));
            rank.answer->number = calls(what) - before;
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank, run));
        }
        return HD_OK;
    });

    for (const Answer &answer : answers) {
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
        EXPECT_STREQ(answer.left, "");
    }
    return answers[0].number;
}

// One "early" of a peer's lets in all that goes there in a run: a ring of four
// sends three shards to one neighbour, and waits for three from the other one.
TEST(CudaCosts, OneReadyOfEachPeerIsWaitedForInARun)
{
    hd_session_options options = CudaOptions();

    for (hd_transport way : {HD_TRANSPORT_COPY, HD_TRANSPORT_SM}) {
        hd_lower_options ring = Pipeline(HD_TRANSFER_RING);
        hd_lower_options direct = Pipeline(HD_TRANSFER_DIRECT);

        options.transport = way;
        ring.chunks = direct.chunks = 2;
        EXPECT_EQ(Count(Program(kGather, 3, &ring), options, "word waits"),
                  1 + 6);
        EXPECT_EQ(Count(Program(kGather, 3, &direct), options, "word waits"),
                  3 + 6);
    }
}

// Two streams put to one peer, each of which waits for its "early"; the last
// put of the first goes where the peer has read before, which has a "ready" of
// its own.
TEST(CudaCosts, EachStreamWaitsForOneReadyAndForThoseThatAreLate)
{
    Program program("heddle 1\n"
                    "host program late mesh tp=2 streams 2\n"
                    "in %x : f32[size tp@tp, 4, 64]\n"
                    "out %y : f32[size tp@tp, 4, 64]\n"
                    "temp %t : f32[3, 64] shared\n"
                    "{ fork on stream 0 {\n"
                    "    for i in 0..2 { group { send %x[tp, i] to 1 - tp\n"
                    "                            %t[i] = recv from 1 - tp } }\n"
                    "    %y[tp, 0] = copy %t[0] %y[tp, 1] = copy %t[1]\n"
                    "    group { send %x[tp, 3] to 1 - tp\n"
                    "            %t[0] = recv from 1 - tp }\n"
                    "    %y[tp, 3] = copy %t[0]\n"
                    "  } on stream 1 {\n"
                    "    group { send %x[tp, 2] to 1 - tp\n"
                    "            %t[2] = recv from 1 - tp }\n"
                    "    %y[tp, 2] = copy %t[2]\n"
                    "  } join }\n",
                    3);

    setenv("HEDDLE_CHAOS", "3", 1);
    setenv("FAKE_CUDA_CHAOS", "3", 1);
    EXPECT_EQ(Count(program, CudaOptions(), "word waits"), 2 + 1 + 4);
    unsetenv("HEDDLE_CHAOS");
    unsetenv("FAKE_CUDA_CHAOS");
}

} // namespace
