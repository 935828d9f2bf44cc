// The oracle itself: programs whose verdict is plain to see, and the schedules
// that delay one step against all interleavings.
#include "tests/match.h"
#include "tests/mutation/cases.h"
#include "tests/mutation/mutate.h"
#include "tests/unit/program.h"

namespace
{

oracle_verdict Judge(const std::string &text, oracle_search search,
                     long count = 200000)
{
    Program p(text);
    char why[200] = "";

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(match_module(p.module, p.diag), HD_OK) << p.Said();
    return oracle_judge(p.module, search, count, 1, why, sizeof why);
}

TEST(Oracle, SeesWhatIsPlainBothWays)
{
    for (const PlainCase &c : kCases) {
        EXPECT_EQ(oracle_text(Judge(c.text, ORACLE_DELAY)),
                  std::string(oracle_text(c.verdict)))
            << c.text;
        EXPECT_EQ(oracle_text(Judge(c.text, ORACLE_EVERY)),
                  std::string(oracle_text(c.verdict)))
            << c.text;
    }
}

TEST(Oracle, RandomSchedulesFindARaceOnceInAWhile)
{
    for (const PlainCase &c : kCases) {
        std::string text = c.text;

        if (text.find("program fine ") != std::string::npos ||
            text.find("program race ") != std::string::npos) {
            EXPECT_EQ(Judge(text, ORACLE_RANDOM, 100), c.verdict) << text;
        }
    }
}

// Mutants of small programs: delaying one step finds what all interleavings do.
TEST(Oracle, DelayingOneStepFindsWhatAllInterleavingsDo)
{
    int known = 0, failed = 0;

    for (unsigned seed = 1; seed <= 400; seed++) {
        std::mt19937 random(seed);
        Program base(kCases[random() % (sizeof kCases / sizeof *kCases)].text);
        std::string what = Mutate(base.module, random);

        if (random() % 2)
            what += Mutate(base.module, random);
        std::string text = base.Print();
        Program p(text.substr(text.find('\n') + 1));
        char why[200] = "";

        if (p.status != HD_OK || match_module(p.module, nullptr) != HD_OK)
            continue;
        oracle_verdict every =
            oracle_judge(p.module, ORACLE_EVERY, 4000, 0, why, sizeof why);
        oracle_verdict delay =
            oracle_judge(p.module, ORACLE_DELAY, 0, 0, why, sizeof why);
        if (every == ORACLE_TOO_LARGE)
            continue;
        known++;
        failed += every != ORACLE_CLEAN;
        EXPECT_EQ(every == ORACLE_CLEAN, delay == ORACLE_CLEAN)
            << "seed " << seed << ", " << what << ": " << oracle_text(every)
            << " and " << oracle_text(delay) << "\n"
            << text;
    }
    EXPECT_GT(known, 100);
    EXPECT_GT(failed, known / 4);
    EXPECT_LT(failed, known);
}

} // namespace
