#include <heddle/simulate.h>

#include "ir/walk.h"

#include "tests/match.h"
#include "tests/unit/program.h"

namespace
{

const char *const kRing =
    "host program ring mesh tp=4 streams 2\n"
    "in %a : f32[4@tp, 6]\nout %c : f32[4, 6]\ntemp %ag : f32[4, 6] shared\n"
    "temp %hop : event[4]\n{\n"
    "    %ag[tp] = copy %a[tp]\n    %hop[0] = record\n    for j in 0..4 {\n"
    "        on stream j mod 2 {\n            let i = (tp - j) mod 4\n"
    "            wait %hop[j]\n            if j < 3 {\n                group "
    "{\n"
    "                    send %ag[i] to (tp + 1) mod 4\n"
    "                    %ag[(i - 1) mod 4] = recv from (tp - 1) mod 4\n"
    "                }\n                %hop[j + 1] = record\n            }\n"
    "            %c[i] = copy %ag[i]\n        }\n    }\n    join\n}\n";

struct Seen {
    std::vector<hd_step> steps;
    std::vector<std::vector<hd_span>> spans;
    std::vector<std::vector<hd_record>> records;
    std::vector<int> calls;
};

hd_status Take(void *context, const hd_step *steps, int n)
{
    Seen *seen = static_cast<Seen *>(context);

    seen->calls.push_back(n);
    for (int i = 0; i < n; i++) {
        seen->steps.push_back(steps[i]);
        seen->spans.emplace_back(steps[i].span,
                                 steps[i].span + steps[i].op->nviews);
        seen->records.emplace_back(steps[i].record,
                                   steps[i].record + (steps[i].record != nullptr
                                                          ? steps[i].op->nviews
                                                          : 0));
    }
    return HD_OK;
}

Seen Walk(const Program &p, int64_t rank)
{
    Seen seen;

    EXPECT_EQ(hd_walk(p.module, rank, p.diag, Take, &seen), HD_OK) << p.Said();
    return seen;
}

hd_status WalkFails(const std::string &body, std::string *said)
{
    Program p(body);
    Seen seen;

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    if (p.status != HD_OK)
        return HD_OK;
    hd_status status = hd_walk(p.module, 1, p.diag, Take, &seen);
    *said = p.Said();
    return status;
}

TEST(Walk, UnrollsEveryRankInIssueOrder)
{
    Program p(kRing);
    Seen seen = Walk(p, 3);

    ASSERT_EQ(seen.steps.size(), 20u);
    for (size_t i = 0; i < seen.steps.size(); i++) {
        EXPECT_EQ(seen.steps[i].index, static_cast<int64_t>(i));
        EXPECT_EQ(seen.steps[i].rank, 3);
    }
    EXPECT_EQ(seen.steps[0].stream, HD_CALLER_STREAM);
    EXPECT_EQ(seen.steps[2].stream, 0);
    EXPECT_EQ(seen.steps[7].stream, 1);
}

TEST(Walk, AGroupArrivesInOneCall)
{
    Program p(kRing);
    Seen seen = Walk(p, 0);
    int groups = 0;

    for (int n : seen.calls)
        groups += n == 2;
    EXPECT_EQ(groups, 3);
    EXPECT_EQ(seen.steps[3].group, seen.steps[4].group);
    EXPECT_EQ(seen.steps[5].group, 0);
}

TEST(Walk, ViewsBecomeOffsetsInTheRoot)
{
    Program p(kRing);
    Seen seen = Walk(p, 3);

    EXPECT_EQ(seen.spans[0][0].offset, 18); // %ag[3]
    EXPECT_EQ(seen.spans[0][1].offset, 0);  // %a[3]: the rank's only index
    EXPECT_EQ(seen.spans[0][1].ndims, 1);
    EXPECT_EQ(seen.spans[0][1].extent[0], 6);
}

TEST(Walk, PeersAreRanksAndTransfersAreCounted)
{
    Program p(kRing);
    Seen seen = Walk(p, 3);

    EXPECT_EQ(seen.steps[3].peer, 0); // 3 sends to 0
    EXPECT_EQ(seen.steps[4].peer, 2);
    EXPECT_EQ(seen.steps[3].seq, 0);
    EXPECT_EQ(seen.steps[8].seq, 1);
}

std::vector<std::string> Words(const Seen &seen)
{
    std::vector<std::string> words;

    for (const hd_step &step : seen.steps)
        words.push_back(std::string(hd_op_info_get(step.op->code)->text) + " " +
                        std::to_string(step.index));
    return words;
}

// Rank 0 has nothing to send to rank 1, which has an index for it.
const char *const kEmpty =
    "host program p mesh tp=2 streams 1\n"
    "in %a : f32[4] inout %c : f32[4] shared temp %e : event[2]\n{\n"
    "    fork %c[2..2 + tp] = relu %a[4 - tp..4 - tp + tp]\n"
    "    on stream 0 { group {\n"
    "            send %a[1..2] to 1 - tp done %e[1]\n"
    "            send %a[0..tp] to 1 - tp done %e[0]\n"
    "            %c[3..4] = recv from 1 - tp\n"
    "            %c[1..1 + (1 - tp)] = recv from 1 - tp\n"
    "            send %a[1..2] to 1 - tp\n"
    "            %c[0..1] = recv from 1 - tp } }\n"
    "    wait %e[0], %e[1] join\n}\n";

TEST(Walk, WhatHasNoElementsIsNotIssued)
{
    Program p(kEmpty);
    Seen none = Walk(p, 0), one = Walk(p, 1);
    hd_tally tally;

    EXPECT_EQ(Words(none),
              (std::vector<std::string>{"fork 0", "record 1", "send 2",
                                        "recv 3", "recv 4", "send 5", "recv 6",
                                        "wait 7", "join 8"}));
    EXPECT_EQ(Words(one), (std::vector<std::string>{
                              "fork 0", "relu 1", "send 2", "send 3", "recv 4",
                              "send 5", "recv 6", "wait 7", "join 8"}));
    // The record stands before its group, and is waited for there.
    EXPECT_EQ(none.calls, (std::vector<int>{1, 1, 5, 1, 1}));
    EXPECT_EQ(none.steps[1].group, 0);
    EXPECT_EQ(none.steps[1].stream, 0);
    EXPECT_EQ(none.steps[1].op->loc.line, 3u);
    EXPECT_EQ(none.records[7][0].step, 1);
    EXPECT_EQ(none.records[7][1].step, 2);
    // What is not issued is counted as one of its peer's.
    EXPECT_EQ(none.steps[5].seq, 2);
    EXPECT_EQ(none.steps[6].seq, 2);
    for (int rank = 0; rank < 2; rank++) {
        EXPECT_EQ(hd_walk_count(p.module, rank, p.diag, &tally), HD_OK);
        EXPECT_EQ(tally.steps, 9);
    }
    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_OK) << p.Said();
}

TEST(Walk, AnEventOfAnEmptySendAndOfAMemberIsTheMembers)
{
    std::string text = kEmpty;

    text.replace(text.find("done %e[0]"), 10, "done %e[1]");
    text.replace(text.find("wait %e[0], "), 12, "wait ");
    Program p(text);
    Seen none = Walk(p, 0), one = Walk(p, 1);

    EXPECT_EQ(none.records[7][0].step, 2);
    EXPECT_EQ(one.records[7][0].step, 3);
}

TEST(Walk, StepsOfRanksAreCountedApartWhereLengthsDiffer)
{
    Program p("host program p mesh tp=3 in %a : f32[4] out %c : f32[4] "
              "{ %c = copy %a %c[0..tp / 2] = copy %a[0..tp / 2] }");
    int64_t counts[3];

    ASSERT_EQ(hd_module_step_counts(p.module, p.diag, counts), HD_OK);
    EXPECT_EQ(counts[0], 1);
    EXPECT_EQ(counts[1], 1);
    EXPECT_EQ(counts[2], 2);
}

// Gradients of two blocks of keys, in halves of the heads, of which `second`
// says which rows of the second block see its keys.
std::string Gradients(const std::string &second, const std::string &more = "")
{
    return "host program g mesh tp=2 streams 1 in %q : f32[2, 4, 8] "
           "in %k : f32[2, 2, 4, 8] in %l : f32[2, 4] out %a : f32[2, 4, 8] "
           "out %b : f32[2, 2, 4, 8] out %c : f32[2, 2, 4, 8] "
           "temp %e : event[] { %a = fill value 0 %e = record "
           "for i in 0..2 { %b[i] = fill value 0 %c[i] = fill value 0 " +
           more +
           "%a, %b[i], %c[i] = attention_grad %q, %k[i], %k[i], %q, %l, %q "
           "accumulate causal i * (" +
           second + ") } wait %e }";
}

TEST(Walk, FillsOfWhatGradientsStoreAreNoSteps)
{
    Program p(Gradients("0"));
    Seen seen = Walk(p, 0);
    hd_tally tally;

    EXPECT_EQ(Words(seen),
              (std::vector<std::string>{"record 0", "attention_grad 1",
                                        "attention_grad 2", "wait 3"}));
    EXPECT_EQ(seen.steps[1].stores, 7);
    EXPECT_EQ(seen.steps[2].stores, 6);
    EXPECT_EQ(seen.records[3][0].step, 0);
    EXPECT_EQ(hd_walk_count(p.module, 0, p.diag, &tally), HD_OK);
    EXPECT_EQ(tally.steps, 4);
}

TEST(Walk, FillsOfWhatNoRowSeesAreSteps)
{
    Program p(Gradients("-4 * tp"));
    int64_t counts[2];

    EXPECT_EQ(Words(Walk(p, 1)),
              (std::vector<std::string>{"record 0", "attention_grad 1",
                                        "fill 2", "fill 3", "wait 4"}));
    ASSERT_EQ(hd_module_step_counts(p.module, p.diag, counts), HD_OK);
    EXPECT_EQ(counts[0], 4);
    EXPECT_EQ(counts[1], 5);
}

TEST(Walk, FillsOfWhatIsTouchedBeforeAreSteps)
{
    Program p(Gradients("0", "%b[i, 1] = scale %b[i, 1] by 2 "));
    Seen seen = Walk(p, 0);

    EXPECT_EQ(Words(seen),
              (std::vector<std::string>{"record 0", "fill 1", "scale 2",
                                        "attention_grad 3", "fill 4", "scale 5",
                                        "attention_grad 6", "wait 7"}));
    EXPECT_EQ(seen.steps[3].stores, 5);
}

// Which of two ranks is the one whose gradients are all that is filled the text
// does not tell.
TEST(Walk, StepsOfRanksAreCountedApartWhereOneStoresAllThatIsFilled)
{
    Program p("host program g mesh tp=2 in %q : f32[2, 4, 8] "
              "in %k : f32[2, 4, 8] in %l : f32[2, 4] out %a : f32[2, 2, 4, 8] "
              "out %b : f32[2, 4, 8] out %c : f32[2, 4, 8] "
              "{ %a[0] = fill value 0 %b = fill value 1 %c = fill value 1 "
              "%a[1] = fill value 1 "
              "%a[tp], %b, %c = attention_grad %q, %k, %k, %q, %l, %q "
              "accumulate }");
    int64_t counts[2];

    ASSERT_EQ(hd_module_step_counts(p.module, p.diag, counts), HD_OK);
    EXPECT_EQ(counts[0], 4);
    EXPECT_EQ(counts[1], 5);
}

TEST(Walk, FillsAreStepsOfListsThatAreTooLong)
{
    std::string text = Gradients("0"), more = "%e = record ";

    for (int n : {4087, 4088}) {
        Program p(text.substr(0, text.rfind('}')) + "for i in 0.." +
                  std::to_string(n) + " { " + more + "} }");
        Seen seen = Walk(p, 0);

        EXPECT_EQ(seen.steps.size(), n == 4087 ? 4087u + 4 : 4088u + 9);
        EXPECT_EQ(seen.steps[0].op->code,
                  n == 4087 ? HD_OP_RECORD : HD_OP_FILL);
    }
}

// Runs of all sizes have one list.
TEST(Walk, FillsAreStepsOfProgramsWithSizes)
{
    std::string text = Gradients("0");

    text.replace(text.find("mesh"), 4, "param m in 1..4 mesh");
    EXPECT_EQ(Walk(Program(text), 0).steps.size(), 9u);
}

TEST(Walk, AWaitNamesTheLastRecordBeforeIt)
{
    Program p(kRing);
    Seen seen = Walk(p, 0);

    EXPECT_EQ(seen.records[2][0].step, 1);
    EXPECT_EQ(seen.records[7][0].step, 5);
    EXPECT_EQ(seen.steps[1].record, nullptr);
}

TEST(Walk, ASecondRecordOfAnEventIsTheOneWaitedFor)
{
    Program p("host program r temp %e : event[]\n"
              "{ %e = record %e = record wait %e }");
    Seen seen = Walk(p, 0);

    EXPECT_EQ(seen.records[2][0].step, 1);
}

TEST(Walk, AWaitNamesARecordForEachOfItsEvents)
{
    Program p("host program r in %go : event[] temp %e : event[3]\n"
              "{ %e[2], %e[0] = record %e[1] = record "
              "wait %e[0], %go, %e[1], %e[2] }");
    Seen seen = Walk(p, 0);
    const int want[4][2] = {{0, 1}, {-1, 0}, {1, 0}, {0, 0}};

    ASSERT_EQ(seen.records[2].size(), 4u);
    for (size_t i = 0; i < 4; i++) {
        EXPECT_EQ(seen.records[2][i].step, want[i][0]);
        EXPECT_EQ(seen.records[2][i].view, want[i][1]);
    }
}

// As far as those of a walk, they stay when more steps come.
TEST(Walk, RecordsOfCollectedStepsAreEachSteps)
{
    Program p("host program r temp %e : event[200]\n"
              "{ for i in 0..100 { %e[2 * i], %e[2 * i + 1] = record "
              "wait %e[2 * i + 1], %e[i] } }");
    hd_steps steps;

    ASSERT_EQ(hd_steps_collect(p.module, 0, p.diag, &steps), HD_OK);
    for (int i = 0; i < 100; i++) {
        const hd_record *record = steps.step[2 * i + 1].record;

        EXPECT_EQ(steps.step[2 * i].record, nullptr);
        EXPECT_EQ(record[0].step, 2 * i);
        EXPECT_EQ(record[0].view, 1);
        EXPECT_EQ(record[1].step, i - i % 2);
        EXPECT_EQ(record[1].view, i % 2);
    }
    hd_steps_free(&steps);
}

TEST(Walk, AliasesShareTheRoot)
{
    Program p("host program r in %x : f32[4, 6] out %y : f32[6]\n"
              "temp %z : f32[2, 2, 6] of %x { %y = copy %z[1, 0] }");
    Seen seen = Walk(p, 0);

    EXPECT_STREQ(seen.spans[0][1].buffer->name, "x");
    EXPECT_EQ(seen.spans[0][1].offset, 12);
}

TEST(Walk, KeptDimensionsKeepTheirStride)
{
    Program p("host program r in %x : f32[4, 6, 5] out %y : f32[4, 5]\n"
              "{ %y = copy %x[:, 2] }");
    Seen seen = Walk(p, 0);
    const hd_span &x = seen.spans[0][1];

    EXPECT_EQ(x.offset, 10);
    EXPECT_EQ(x.ndims, 2);
    EXPECT_EQ(x.stride[0], 30);
    EXPECT_EQ(x.stride[1], 1);
    EXPECT_FALSE(hd_span_is_dense(&x));
    EXPECT_EQ(hd_span_elements(&x), 20);
}

TEST(Walk, RangesKeepTheirStrideAndBeginAtTheirFirstIndex)
{
    Program p("host program r mesh tp=3 in %x : f32[4, 6, 5] out %y : f32[3, 5]"
              "{ let n = tp + 1 %y[0..n] = copy %x[2, tp..tp + n] }");

    for (int64_t rank = 0; rank < 3; rank++) {
        Seen seen = Walk(p, rank);
        const hd_span &y = seen.spans[0][0], &x = seen.spans[0][1];

        EXPECT_EQ(y.offset, 0);
        EXPECT_EQ(x.offset, 2 * 30 + 5 * rank);
        EXPECT_EQ(x.ndims, 2);
        EXPECT_EQ(x.extent[0], rank + 1);
        EXPECT_EQ(y.extent[0], rank + 1);
        EXPECT_EQ(x.extent[1], 5);
        EXPECT_EQ(x.stride[0], 5);
        EXPECT_EQ(x.stride[1], 1);
    }
}

TEST(Walk, RangesThatEndAheadOfThemselvesOrPastTheDimensionAreReported)
{
    std::string said;

    EXPECT_EQ(WalkFails("host program r mesh tp=2 in %x : f32[4] out %y : "
                        "f32[4] { let n = 0 - tp %y[0..n] = copy %x[0..n] }",
                        &said),
              HD_ERROR_INVALID);
    EXPECT_NE(
        said.find(
            "indices 0..-1 of %y on rank 1, which begin behind their end"),
        std::string::npos)
        << said;
    EXPECT_EQ(WalkFails("host program r mesh tp=2 in %x : f32[4] out %y : "
                        "f32[4] { %y[0..2] = copy %x[tp + 2..tp + 2 + 2] }",
                        &said),
              HD_ERROR_INVALID);
    EXPECT_NE(said.find("indices 3..5 of %x on rank 1; its dimension 0 has "
                        "extent 4"),
              std::string::npos)
        << said;
}

TEST(Walk, WhatDependsOnTheRankIsReportedAtItsPlace)
{
    std::string said;

    EXPECT_EQ(WalkFails("host program r mesh tp=2 in %x : f32[4] out %y : "
                        "f32[] { %y = copy %x[tp + 3] }",
                        &said),
              HD_ERROR_INVALID);
    EXPECT_NE(said.find("index 4 of %x on rank 1"), std::string::npos) << said;
    EXPECT_EQ(WalkFails("host program r mesh tp=2 streams 2 in %x : f32[4] "
                        "out %y : f32[4] { on stream tp + 1 { %y = copy %x } }",
                        &said),
              HD_ERROR_INVALID);
    EXPECT_NE(said.find("stream 2 on rank 1"), std::string::npos) << said;
    EXPECT_EQ(WalkFails("host program r mesh tp=2 in %x : f32[4] "
                        "{ send %x to tp }",
                        &said),
              HD_ERROR_INVALID);
    EXPECT_NE(said.find("names itself"), std::string::npos) << said;
    EXPECT_EQ(WalkFails("host program r mesh tp=2 in %x : f32[4] "
                        "{ send %x to tp + 1 }",
                        &said),
              HD_ERROR_INVALID);
    EXPECT_NE(said.find("to 2 on rank 1"), std::string::npos) << said;
    EXPECT_EQ(WalkFails("host program r mesh tp=2 temp %e : event[2] "
                        "{ %e[0] = record wait %e[tp] }",
                        &said),
              HD_ERROR_INVALID);
    EXPECT_NE(said.find("HD0605"), std::string::npos) << said;
}

TEST(Walk, EndlessLoopsEndAtTheLimit)
{
    std::string said;

    EXPECT_EQ(WalkFails("host program r in %x : f32[4] out %y : f32[4]\n"
                        "{ for i in 0..1000000000 { for j in 0..1000000000 "
                        "{ if j < 0 { %y = copy %x } } } }",
                        &said),
              HD_ERROR_INVALID);
    EXPECT_NE(said.find("loop iterations"), std::string::npos) << said;
}

TEST(Walk, StopsAtTheFirstStatusThatIsNotOk)
{
    Program p(kRing);
    int calls = 0;
    auto stop = [](void *context, const hd_step *, int) {
        return ++*static_cast<int *>(context) == 3 ? HD_ERROR_PEER : HD_OK;
    };

    EXPECT_EQ(hd_walk(p.module, 0, p.diag, stop, &calls), HD_ERROR_PEER);
    EXPECT_EQ(calls, 3);
}

TEST(Walk, StepsPrintWithNumbers)
{
    Program p(kRing);
    char *text = nullptr;

    ASSERT_EQ(hd_print_steps(p.module, 1, p.diag, &text), HD_OK);
    EXPECT_NE(std::string(text).find("recv from 0"), std::string::npos) << text;
    EXPECT_NE(std::string(text).find("%ag[1] = copy %a[1]"), std::string::npos)
        << text;
    hd_free(text);
    EXPECT_EQ(hd_print_steps(p.module, 4, p.diag, &text), HD_ERROR_ARGUMENT);
}

// ------------------------------------------------------------------- match

std::string MatchSays(const std::string &body)
{
    Program p(body);

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    if (p.status != HD_OK)
        return "does not parse";
    return match_module(p.module, p.diag) == HD_OK ? "" : p.Said();
}

const char *const kHead = "host program m mesh tp=3 in %x : f32[6] "
                          "in %w : f32[3] out %y : f32[6] shared "
                          "temp %z : f32[3, 6] shared ";

TEST(Match, ARingMatches)
{
    EXPECT_EQ(MatchSays(kRing), "");
}

TEST(Match, ASendWithoutItsRecvIsReported)
{
    std::string said =
        MatchSays(std::string(kHead) + "{ if tp == 0 { send %x to 2 } }");

    EXPECT_NE(said.find("HD0701"), std::string::npos) << said;
    EXPECT_NE(said.find("to rank 2 along tp, which receives 0"),
              std::string::npos)
        << said;
}

TEST(Match, SizesThatDifferAreReportedWithBothSides)
{
    std::string said = MatchSays(
        std::string(kHead) +
        "{ if tp == 0 { send %w to 1 } if tp == 1 { %y = recv from 0 } }");

    EXPECT_NE(said.find("HD0702"), std::string::npos) << said;
    EXPECT_NE(said.find("note:"), std::string::npos) << said;
}

TEST(Match, ProtocolsThatDifferAreReported)
{
    std::string said =
        MatchSays("host program m mesh tp=2 inout %x : f32[6] shared "
                  "{ if tp == 0 { send %x to 1 get } "
                  "else { %x = recv from 0 } }");

    EXPECT_NE(said.find("HD0703"), std::string::npos) << said;
}

TEST(Match, CollectivesOutOfOrderAreReported)
{
    std::string said =
        MatchSays("host program m mesh tp=2 inout %x : f32[6] shared "
                  "out %y : f32[6] shared out %z : f32[2, 6] shared "
                  "{ if tp == 0 { %y = all_reduce %x %z = all_gather %x } "
                  "else { %z = all_gather %x %y = all_reduce %x } }");

    EXPECT_NE(said.find("HD0704"), std::string::npos) << said;
}

TEST(Match, ACollectiveThatOneRankSkipsIsReported)
{
    std::string said =
        MatchSays(std::string(kHead) + "{ if tp > 0 { %z = all_gather %x } }");

    EXPECT_NE(said.find("HD0705"), std::string::npos) << said;
    EXPECT_NE(said.find("2 of 3 ranks"), std::string::npos) << said;
}

} // namespace
