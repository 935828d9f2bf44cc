// Who may begin when: what a step lacks is said, and it begins once it lacks
// nothing, whoever decides when steps end.
#include "steps/schedule.h"

#include <vector>

#include "program.h"

namespace
{

// Steps end when the test says so, or as they begin.
struct Trace {
    struct Begun {
        int rank;
        int64_t step, n;
    };

    explicit Trace(const Program &p, bool ends = false, int runs = 1,
                   unsigned held = 0)
        : ends(ends)
    {
        EXPECT_EQ(p.status, HD_OK) << p.Said();
        EXPECT_EQ(hd_graph_create(p.module, p.diag, &graph), HD_OK) << p.Said();
        EXPECT_EQ(hd_schedule_open(&graph, runs, p.diag, &schedule), HD_OK);
        schedule.held = held;
        schedule.context = this;
        schedule.begin = [](void *context, int rank, int64_t step, int64_t n) {
            Trace *self = static_cast<Trace *>(context);

            self->begun.push_back({rank, step, n});
            for (int64_t i = step; i < step + n && self->ends; i++)
                hd_schedule_end(&self->schedule, rank, i);
            return HD_OK;
        };
    }

    ~Trace()
    {
        hd_schedule_close(&schedule);
        hd_graph_free(&graph);
    }

    void Go()
    {
        EXPECT_EQ(hd_schedule_run(&schedule), HD_OK);
    }

    void End(int64_t step)
    {
        hd_schedule_end(&schedule, 0, step);
        Go();
    }

    bool HasBegun(int64_t step, int rank = 0)
    {
        return hd_schedule_has(&schedule, rank, step, HD_STEP_BEGUN);
    }

    // "stream step", or "" where nothing is lacking.
    std::string Lacks(int64_t step)
    {
        hd_need need;

        return hd_schedule_lacks(&schedule, 0, step, &need)
                   ? std::to_string(need.stream) + " " +
                         std::to_string(need.step)
                   : "";
    }

    bool ends;
    hd_graph graph;
    hd_schedule schedule;
    std::vector<Begun> begun;
};

TEST(Schedule, AStepLacksForksRecordsAndStreamsInTurn)
{
    Program p("host program p mesh tp=1 streams 2 in %a : f32[4]"
              " out %y : f32[4] temp %t : f32[4] temp %u : f32[4]"
              " temp %e : event[] {\n"
              "%t = relu %a fork on stream 1 { %u = copy %t %e = record }\n"
              "on stream 0 { wait %e } join %y = copy %u }");
    Trace run(p);

    run.Go(); // 0 relu, 1 fork, 2 copy, 3 record, 4 wait, 5 join, 6 copy
    EXPECT_EQ(run.begun.size(), 1u);
    EXPECT_EQ(run.Lacks(4), "0 1");
    run.End(0);
    EXPECT_EQ(run.Lacks(2), "0 1");
    run.End(1);
    EXPECT_EQ(run.Lacks(2), "");
    EXPECT_TRUE(run.HasBegun(2));
    EXPECT_EQ(run.Lacks(4), "2 3");
    EXPECT_EQ(run.Lacks(5), "2 5"); // the last stream first
    run.End(2);
    run.End(3);
    EXPECT_EQ(run.Lacks(5), "1 5");
    EXPECT_FALSE(run.HasBegun(5));
    run.End(4);
    EXPECT_TRUE(run.HasBegun(5));
    EXPECT_EQ(hd_schedule_stuck(&run.schedule, 0, 0), 5);
    EXPECT_EQ(hd_schedule_stuck(&run.schedule, 0, 1), -1);
    run.End(5);
    run.End(6);
    EXPECT_TRUE(hd_schedule_is_over(&run.schedule));
}

const char deferred[] = "host program p mesh tp=2 in %a : f32[4]"
                        " out %y : f32[4] temp %e : event[]"
                        " temp %g : f32[4] shared {\n"
                        "send %a to 1 - tp done %e\n%g = recv from 1 - tp\n"
                        "wait %e\n%y = copy %g }";

TEST(Schedule, AStreamGoesPastADeferredSendWhoseEndAWaitNeeds)
{
    Program p(deferred);
    Trace run(p);

    run.Go(); // 0 send, 1 recv, 2 wait
    EXPECT_TRUE(run.HasBegun(1));
    run.End(1);
    EXPECT_FALSE(run.HasBegun(2));
    EXPECT_EQ(run.Lacks(2), "0 0");
    run.End(0);
    EXPECT_TRUE(run.HasBegun(2));
}

TEST(Schedule, AnAxisMayHoldUpTheStreamOfADeferredSend)
{
    Program p(deferred);
    Trace run(p, false, 1, 1u);

    run.Go();
    EXPECT_FALSE(run.HasBegun(1));
    run.End(0);
    EXPECT_TRUE(run.HasBegun(1));
}

TEST(Schedule, AGroupBeginsTogetherAndIsPassedWhenAllOfItHasEnded)
{
    Program p("host program p mesh tp=2 in %a : f32[4] out %y : f32[4]"
              " temp %g : f32[4] shared {\n"
              "group { send %a to 1 - tp %g = recv from 1 - tp }\n"
              "%y = copy %g }");
    Trace run(p);

    run.Go();
    ASSERT_EQ(run.begun.size(), 2u); // on either rank
    EXPECT_EQ(run.begun[0].n, 2);
    run.End(1);
    EXPECT_FALSE(run.HasBegun(2));
    run.End(0);
    EXPECT_TRUE(run.HasBegun(2));
}

TEST(Schedule, OfTwoRunsTheSecondsWorkStreamsFollowTheLastForkOfTheFirst)
{
    Program p("host program p mesh tp=1 streams 1 in %a : f32[4]"
              " out %y : f32[4] temp %t : f32[4] {\n"
              "on stream 0 { %t = copy %a } fork join %y = copy %t }");
    Trace run(p, true, 2);
    std::vector<int64_t> order;

    run.Go();
    for (const Trace::Begun &b : run.begun)
        order.push_back(b.step);
    // The copy of the second run follows the fork, 1, and not the join.
    EXPECT_EQ(order, (std::vector<int64_t>{1, 0, 4, 2, 3, 5, 6, 7}));
    EXPECT_TRUE(hd_schedule_is_over(&run.schedule));
}

TEST(Schedule, ATransferMeetsWhenTheLastOfItHasStarted)
{
    Program p("host program p mesh tp=3 in %a : f32[4] out %y : f32[4]"
              " temp %t : f32[4] shared {\n"
              "%t = copy %a\n%y = all_reduce %t }");
    Trace run(p);

    EXPECT_FALSE(hd_schedule_meet(&run.schedule, 2, 1));
    EXPECT_FALSE(hd_schedule_meet(&run.schedule, 0, 1));
    EXPECT_TRUE(hd_schedule_meet(&run.schedule, 1, 1));
    hd_schedule_end_all(&run.schedule, 1, 1);
    for (int rank = 0; rank < 3; rank++)
        EXPECT_TRUE(hd_schedule_has(&run.schedule, rank, 1, HD_STEP_ENDED));
}

} // namespace
