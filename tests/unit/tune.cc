// The fastest of what is predicted to be fast, by running it: the same on all
// ranks, one of the best that are listed, and kept.
#include <heddle/tune.h>

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/folder.h"
#include "tests/unit/program.h"
#include "tests/unit/ranks.h"

namespace
{

const char kGather[] =
    "tensor program g mesh tp=3 in %a : f32[3@tp, 32, 64] in %w : f32[64, 48] "
    "out %c : f32[3@stream, 32, 48] temp %g : f32[3@stream, 32, 64] "
    "{ %g = set %a %c = matmul %g, %w }";
// All of its candidates are one.
const char kAlone[] = "tensor program p mesh tp=3 in %x : f32[3@tp, 8] "
                      "out %y : f32[3@tp, 8] { %y = relu %x }";
// Rows of groups by data, which has to be drawn so that it fits.
const char kGroups[] =
    "tensor program r mesh ep=3 in %n : i32[4] in %x : bf16[40, 16] "
    "in %w : bf16[4, 16, 24] in %b : f32[3@ep, 5, 8] temp %g : f32[3@stream, "
    "5, 8] out %d : f32[3@stream, 5, 8] out %y : bf16[40, 24] "
    "{ %y = matmul %x, %w groups %n %g = set %b %d = relu %g }";

struct Found {
    hd_status status;
    hd_tuned tuned = HD_EMPTY(hd_tuned);
    std::string said;
};

// What each rank is told, of which the last one may have options of its own.
std::vector<Found> Tune(const char *text, const hd_tune_options *options,
                        const hd_tune_options *last = nullptr)
{
    std::vector<Found> found(3);

    Threads(3, [&](hd_group *group) {
        Program program(text);
        int rank = hd_group_rank(group);
        Found &mine = found[size_t(rank)];

        mine.status = hd_tune(group, program.module,
                              rank == 2 && last != nullptr ? last : options,
                              program.diag, &mine.tuned);
        mine.said = program.Said();
        return mine.status;
    });
    return found;
}

class Tuning : public testing::Test
{
  protected:
    Folder top_;
    hd_tune_options options_ = hd_tune_defaults();
    hd_choose_options choose_ = hd_choose_defaults();
    hd_lower_options lower_ = hd_lower_defaults();

    void SetUp() override
    {
        setenv("HEDDLE_CACHE_DIR", top_.Path("cache").c_str(), 1);
        options_.seconds = 0.05;
        options_.choose = &choose_;
        choose_.parts = true;
        choose_.lower = &lower_;
    }
    void TearDown() override
    {
        setenv("HEDDLE_CACHE_DIR", "off", 1);
    }
    // What all ranks agree on.
    hd_tuned One(const char *text)
    {
        std::vector<Found> found = Tune(text, &options_);

        for (const Found &f : found) {
            EXPECT_EQ(f.status, HD_OK) << f.said;
            EXPECT_EQ(memcmp(&f.tuned, &found[0].tuned, sizeof f.tuned), 0);
        }
        return found[0].tuned;
    }
};

} // namespace

TEST_F(Tuning, TakesOneOfTheBestAndKeepsIt)
{
    Program program(kGather);
    hd_choice *choice = nullptr;
    bool listed = false;

    options_.most = 5;
    hd_tuned first = One(kGather), again = One(kGather);
    EXPECT_FALSE(first.kept);
    EXPECT_EQ(first.tried, 5);
    EXPECT_GT(first.time, 0);
    EXPECT_LT(first.time, first.slowest);
    EXPECT_TRUE(again.kept);
    again.kept = false;
    EXPECT_EQ(memcmp(&first, &again, sizeof first), 0);
    ASSERT_EQ(hd_choose(program.module, &choose_, nullptr, &choice), HD_OK);
    for (size_t i = 0; i < 5; i++) {
        hd_lower_options lower = HD_EMPTY(hd_lower_options);
        hd_prediction p = HD_EMPTY(hd_prediction);

        EXPECT_TRUE(hd_choice_candidate(choice, i, &lower, &p, nullptr));
        listed |= memcmp(&lower, &first.lower, sizeof lower) == 0 &&
                  p.time == first.predicted;
    }
    EXPECT_TRUE(listed);
    hd_choice_destroy(choice);
}

TEST_F(Tuning, WhatDiffersIsMeasuredAnew)
{
    hd_session_options session = hd_session_defaults();

    EXPECT_FALSE(One(kGather).kept);
    lower_.streams = 2;
    lower_.asked = HD_OPTION_STREAMS;
    hd_tuned narrow = One(kGather);
    EXPECT_FALSE(narrow.kept);
    EXPECT_EQ(narrow.lower.streams, 2);
    session.deterministic = true;
    options_.session = &session;
    EXPECT_FALSE(One(kGather).kept);
    EXPECT_TRUE(One(kGather).kept);
    // What is predicted on another machine may be other candidates.
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_default(&machine);
    choose_.machine = &machine;
    EXPECT_TRUE(One(kGather).kept);
    machine.copy_bandwidth /= 2;
    EXPECT_FALSE(One(kGather).kept);
    setenv("HEDDLE_CACHE_DIR", "off", 1);
    EXPECT_FALSE(One(kGather).kept);
    EXPECT_FALSE(One(kGather).kept);
}

TEST_F(Tuning, WhatCannotBeComparedIsPredicted)
{
    hd_tuned alone = One(kAlone);

    EXPECT_EQ(alone.tried, 0);
    EXPECT_EQ(alone.time, 0);
    EXPECT_GT(alone.predicted, 0);
    options_.most = 1;
    EXPECT_EQ(One(kGather).tried, 0);
    options_.most = 4;
    EXPECT_GT(One(kGroups).tried, 1);
}

TEST_F(Tuning, WhatIsWrongIsToldOnAllRanks)
{
    options_.most = 0;
    for (const Found &f : Tune(kGather, &options_)) {
        EXPECT_EQ(f.status, HD_ERROR_ARGUMENT);
        EXPECT_NE(f.said.find("0 candidates"), std::string::npos) << f.said;
    }
    options_.most = 4;
    for (const Found &f :
         Tune("host program h mesh tp=3 in %x : f32[2] out %y : f32[2] "
              "{ %y = relu %x }",
              &options_)) {
        EXPECT_EQ(f.status, HD_ERROR_ARGUMENT);
        EXPECT_NE(f.said.find("lowered already"), std::string::npos) << f.said;
    }
    lower_.chunks = 5000;
    for (const Found &f : Tune(kGather, &options_)) {
        EXPECT_EQ(f.status, HD_ERROR_ARGUMENT);
        EXPECT_NE(f.said.find("5000 chunks"), std::string::npos) << f.said;
    }
}

TEST_F(Tuning, WhatIsWrongOnOneRankIsToldOnAll)
{
    hd_tune_options none = options_;

    none.most = 0;
    std::vector<Found> found = Tune(kGather, &options_, &none);
    EXPECT_EQ(found[2].status, HD_ERROR_ARGUMENT);
    for (int rank : {0, 1}) {
        EXPECT_EQ(found[size_t(rank)].status, HD_ERROR_PEER);
        EXPECT_NE(found[size_t(rank)].said.find("rank 2 cannot tune"),
                  std::string::npos)
            << found[size_t(rank)].said;
    }
    for (const Found &f :
         Tune("tensor program t mesh tp=2 in %x : f32[2@tp, 8] "
              "out %y : f32[2@stream, 8] { %y = set %x }",
              &options_)) {
        EXPECT_EQ(f.status, HD_ERROR_ARGUMENT);
        EXPECT_NE(f.said.find("2 ranks, the group 3"), std::string::npos)
            << f.said;
    }
}
