// Large groups over NCCL: each member is looked at a few times, not as often as
// another one ends.
#include "check/replay.h"

#include "program.h"

namespace
{

bool Ends(const std::string &body, unsigned serial)
{
    Program p("host program p mesh tp=2 in %x : f32[1] out %y : f32[1]"
              " temp %s : f32[1] shared temp %t : f32[200000] shared temp %u : "
              "f32[200000, 1] shared { %s = copy %x " +
              body + " %y = copy %x }");
    hd_graph graph;
    hd_replay replay;

    if (p.status != HD_OK ||
        hd_graph_create(p.module, p.diag, &graph) != HD_OK) {
        ADD_FAILURE() << p.Said();
        return false;
    }
    EXPECT_EQ(hd_replay_run(&graph, serial, p.diag, &replay), HD_OK);
    bool ends = hd_schedule_is_over(&replay.schedule);
    hd_replay_free(&replay);
    hd_graph_free(&graph);
    return ends;
}

const std::string kSends = "for i in 0..200000 { send %x to 1 - tp }";
const std::string kRecvs = "for i in 0..200000 { %t[i] = recv from 1 - tp }";
const std::string kBoth = "for i in 0..20000 { %u[i] = all_reduce %s } "
                          "for i in 0..20000 { send %x to 1 - tp } "
                          "for i in 0..20000 { %t[i] = recv from 1 - tp }";

// In time that is quadratic, each takes longer than a test may.
TEST(Replay, OneRanksLargeGroupMeetsSingleTransfers)
{
    EXPECT_TRUE(Ends(
        "if tp == 0 { group { " + kSends + " } } else { " + kRecvs + " }", 1));
    EXPECT_TRUE(Ends(
        "if tp == 0 { group { " + kRecvs + " } } else { " + kSends + " }", 1));
}

TEST(Replay, LargeGroupsOfCollectivesAndTransfersMeet)
{
    EXPECT_TRUE(Ends("group { " + kBoth + " }", 1));
    EXPECT_TRUE(Ends(
        "if tp == 0 { " + kBoth + " } else { group { " + kBoth + " } }", 1));
}

} // namespace
