// Chains of element-wise steps: how many kernels they are, what they leave, and
// what is said of their times.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/program.h"
#include "tests/unit/ranks.h"

namespace
{

const char kDecls[] = "heddle 2\n"
                      "host program chain streams 2\n"
                      "in %x : bf16[6, 64] in %bias : bf16[64]\n"
                      "in %r : bf16[6, 64] in %f : f32[]\n"
                      "out %y : f32[6, 64] inout %z : f32[6, 64]\n"
                      "temp %t : bf16[6, 64] temp %u : f32[6, 64]\n"
                      "temp %e : event[]\n";

// One rank's answers to three runs on other memory each, with how many kernels
// the last one started, or set anew in its graph.
std::vector<Answer> RunThrice(const std::string &body, bool graph = false,
                              const char *decls = kDecls)
{
    Program program(decls + body);

    return RunRanks(1, [&](Rank &rank) {
        hd_session_options options = CudaOptions();
        Session session;

        options.graph = graph;
        HD_TRY(session.Open(rank, program, options));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        const char *call =
            graph ? "cuGraphExecKernelNodeSetParams_v2" : "cuLaunchKernelEx";
        for (int run = 0; run < 3; run++) {
            Shards shards(session);
            HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                              rank.diag));
            long before = calls(call);
            HD_TRY(shards.Run(rank.diag));
            rank.answer->number = calls(call) - before;
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank));
        }
        return HD_OK;
    });
}

void Starts(int64_t kernels, const std::string &body, bool graph = false,
            const char *decls = kDecls)
{
    std::vector<Answer> answers = RunThrice(body, graph, decls);

    EXPECT_EQ(answers[0].status, HD_OK) << answers[0].text << body;
    EXPECT_STREQ(answers[0].left, "");
    EXPECT_EQ(answers[0].number, kernels) << body;
}

TEST(CudaChains, OfFiveStepsAreOneKernel)
{
    Starts(1, "{ %t = add %x, %bias  %t = gelu %t  %t = scale %t by %f\n"
              "  %t = add %t, %r  %y = copy %t }\n");
}

// Kernels are given what a run says beside their addresses.
TEST(CudaChains, LengthsThatARunSaysAreParameters)
{
    const char decls[] = "heddle 2\n"
                         "host program chain param m in 1..6 param n in 1..9\n"
                         "in %x : bf16[m, 64] in %bias : bf16[64]\n"
                         "out %y : f32[m, 64] inout %z : f32[5, m, n]\n"
                         "out %s : f32[5, n] temp %t : bf16[m, 64]\n";

    for (bool graph : {false, true})
        Starts(3,
               "{ %t = add %x, %bias  %y = copy %t  %z = relu %z\n"
               "  %s = sum %z dim 1 }\n",
               graph, decls);
}

TEST(CudaChains, WhatOthersMayWaitForIsAKernelOfItsOwn)
{
    Starts(2, "{ %t = add %x, %bias  %t = gelu %t  %e = record\n"
              "  %y = copy %t  %y = scale %y by %f }\n");
    Starts(2, "{ %t = add %x, %bias  %u = copy %t  %e = record\n"
              "  fork on stream 1 { wait %e  %y = relu %u\n"
              "  %y = add %y, %z } join }\n");
}

TEST(CudaChains, OfTwoStreamsAreTwoKernels)
{
    Starts(2,
           "{ fork for i in 0..3 {\n"
           "  on stream 0 { %z = scale %z by %f }\n"
           "  on stream 1 { %y = copy %x  %y = scale %y by 0.5 } } join }\n");
}

// Each run has new addresses, for which as many kernels are set anew.
TEST(CudaChains, AreAPartOfGraphs)
{
    Starts(1, "{ %t = add %x, %bias  %y = copy %t  %z = mul %z, %y }", true);
    Starts(2,
           "{ %t = add %x, %bias  %y = copy %t  %e = record\n"
           "  %z = mul %z, %y }",
           true);
}

// Two ranks exchange what their chains make, on two streams that are delayed at
// random; what is in registers alone takes turns in two slots.
TEST(CudaChains, BetweenTransfersGiveTheSameAnswerWithDelays)
{
    Program program("heddle 2\n"
                    "host program exchange mesh tp=2 streams 2\n"
                    "in %x : f32[size tp@tp, 8, 16] in %b : f32[16]\n"
                    "out %y : f32[size tp@tp, 4, 8, 16]\n"
                    "temp %t : f32[2, 8, 16] temp %s : f32[4, 8, 16]\n"
                    "temp %g : f32[4, 8, 16] shared\n"
                    "{ fork for j in 0..4 { on stream j mod 2 {\n"
                    "    %t[j mod 2] = scale %x[tp] by 0.5\n"
                    "    %t[j mod 2] = add %t[j mod 2], %b\n"
                    "    %s[j] = gelu %t[j mod 2]\n"
                    "    group { send %s[j] to 1 - tp\n"
                    "            %g[j] = recv from 1 - tp }\n"
                    "    %y[tp, j] = add %g[j], %s[j]\n"
                    "    %y[tp, j] = mul %y[tp, j], %b } } join }\n",
                    3);

    ScopedSetting host("HEDDLE_CHAOS", "5"), streams("FAKE_CUDA_CHAOS", "5");
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, CudaOptions()));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        for (int set = 0; set < 3; set++) {
            Shards shards(session);
            HD_TRY(shards.Put(program.Inputs(set), program.Module(), rank.rank,
                              rank.diag));
            long before = calls("cuLaunchKernelEx");
            HD_TRY(shards.Run(rank.diag));
            rank.answer->number = calls("cuLaunchKernelEx") - before;
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank, set));
        }
        return HD_OK;
    });

    for (const Answer &answer : answers) {
        EXPECT_TRUE(answer.ended);
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
        EXPECT_STREQ(answer.left, "");
        // The end of an iteration and the beginning of the stream's next are
        // one.
        EXPECT_EQ(answer.number, 6);
    }
}

// Copies in a row are the copy engines', as they are alone.
TEST(CudaChains, OfCopiesNeedNoNvrtc)
{
    setenv("HEDDLE_NVRTC_LIB", "/nowhere/lib.so", 1);
    Starts(0, "{ %u = copy %z  %y = copy %u }");
    setenv("HEDDLE_NVRTC_LIB", FAKE_NVRTC_PATH, 1);
}

// The first step of a chain takes its time, the others none after it. On the
// clock of events a kernel takes 100 s, all else what it takes.
TEST(CudaChains, GiveTheirTimeToTheirFirstStep)
{
    Program program(kDecls + std::string("{ %t = add %x, %bias  %t = gelu %t\n"
                                         "  %y = copy %t  %e = record\n"
                                         "  %z = mul %z, %y }"));
    std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
        double times[10] = {0};
        hd_session_options options = CudaOptions();
        Session session;

        options.times = times;
        HD_TRY(session.Open(rank, program, options));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        Extra<decltype(fake_cuda_kernels_spend)>("fake_cuda_kernels_spend")(
            100);
        HD_TRY(shards.Run(rank.diag));
        HD_TRY(shards.Get(rank.diag));
        const double want[] = {0, 100, 100, 100, 100, 100, 100, 100, 100, 200};
        for (int i = 0; i < 10; i++)
            RANK_EXPECT(std::fabs(times[i] - times[0] - want[i]) < 30);
        return program.Compare(shards, rank.rank);
    });

    EXPECT_EQ(answers[0].status, HD_OK) << answers[0].text;
}

} // namespace
