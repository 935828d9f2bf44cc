// One execution of a program: each computation and each transfer happens once,
// and none before what it waits for.
#include "steps/execute.h"

#include <algorithm>
#include <utility>

#include "program.h"

namespace
{

using Happened = std::vector<std::pair<int, int64_t>>;

hd_status Note(void *context, int rank, int64_t step)
{
    static_cast<Happened *>(context)->emplace_back(rank, step);
    return HD_OK;
}

Happened Execute(const Program &p, hd_execute_fn *fn = Note,
                 hd_status want = HD_OK)
{
    hd_graph graph;
    hd_schedule done;
    Happened happened;

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_graph_create(p.module, p.diag, &graph), HD_OK) << p.Said();
    EXPECT_EQ(hd_execute(&graph, fn, &happened, p.diag, &done), want);
    if (want == HD_OK) {
        EXPECT_TRUE(hd_schedule_is_over(&done));
        hd_schedule_close(&done);
    }
    hd_graph_free(&graph);
    return happened;
}

int64_t When(const Happened &happened, int rank, int64_t step)
{
    auto at =
        std::find(happened.begin(), happened.end(), std::make_pair(rank, step));

    EXPECT_NE(at, happened.end()) << "rank " << rank << " step " << step;
    EXPECT_EQ(std::count(happened.begin(), happened.end(), *at), 1);
    return at - happened.begin();
}

TEST(Execute, ATransferWaitsForBothOfItsRanks)
{
    Program p("host program p mesh tp=2 in %a : f32[4] out %y : f32[4]"
              " temp %t : f32[4] temp %g : f32[4] shared {\n"
              "if tp == 1 { %t = relu %a send %t to 0 %y = copy %a }\n"
              "else { %g = recv from 1 %y = copy %g } }");
    Happened h = Execute(p);

    EXPECT_EQ(h.size(), 4u); // the send is the recv
    EXPECT_LT(When(h, 1, 0), When(h, 0, 0));
    EXPECT_LT(When(h, 0, 0), When(h, 0, 1));
    EXPECT_LT(When(h, 0, 0), When(h, 1, 2));
}

TEST(Execute, AWaitFollowsItsRecordAndAJoinAllStreams)
{
    Program p("host program p mesh tp=1 streams 2 in %a : f32[4]"
              " out %y : f32[4] temp %t : f32[4] temp %u : f32[4]"
              " temp %e : event[] {\n"
              "fork on stream 1 { %t = relu %a %e = record }\n"
              "on stream 0 { wait %e %u = relu %t } join %y = copy %u }");
    Happened h = Execute(p);

    EXPECT_EQ(h.size(), 3u);
    EXPECT_LT(When(h, 0, 1), When(h, 0, 4));
    EXPECT_LT(When(h, 0, 4), When(h, 0, 6));
}

TEST(Execute, AGroupThatCrossesDoesNotStandStill)
{
    Program p("host program p mesh tp=4 in %a : f32[4] out %y : f32[4]"
              " temp %g : f32[4] shared {\n"
              "group { send %a to (tp + 1) mod 4 %g = recv from (tp - 1) mod 4 "
              "}\n%y = copy %g }");
    Happened h = Execute(p);

    EXPECT_EQ(h.size(), 8u);
    for (int rank = 0; rank < 4; rank++)
        EXPECT_LT(When(h, rank, 1), When(h, rank, 2));
}

TEST(Execute, ACollectiveHappensOnceWhenAllHaveComeToIt)
{
    Program p("host program p mesh tp=4 in %a : f32[4] out %y : f32[4]"
              " temp %t : f32[4] shared temp %u : f32[4] {\n"
              "%t = relu %a %u = all_reduce %t %y = copy %u }");
    Happened h = Execute(p);
    auto meets = [](std::pair<int, int64_t> one) { return one.second == 1; };
    auto met = std::find_if(h.begin(), h.end(), meets) - h.begin();

    EXPECT_EQ(h.size(), 9u);
    for (int rank = 0; rank < 4; rank++) {
        EXPECT_LT(When(h, rank, 0), met);
        EXPECT_GT(When(h, rank, 2), met);
    }
}

TEST(Execute, WhatTheCallerSaysEndsIt)
{
    Program p("host program p mesh tp=1 in %a : f32[4] out %y : f32[4]"
              " temp %t : f32[4] { %t = relu %a %y = copy %t }");
    Happened h = Execute(
        p,
        [](void *context, int rank, int64_t step) {
            static_cast<void>(Note(context, rank, step));
            return HD_ERROR_NO_MEMORY;
        },
        HD_ERROR_NO_MEMORY);

    EXPECT_EQ(h.size(), 1u);
}

} // namespace
