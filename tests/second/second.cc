// The second oracle against its own words, and the checker against it: on the
// programs of this repository, on mutants of them and on programs from nothing.
// HEDDLE_SECOND_PROGRAMS and HEDDLE_SECOND_MUTANTS say how many,
// HEDDLE_TEST_SEED where they begin: each has a seed of its own, which a
// failure prints beside the smallest program that fails alike.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/mutation/mutate.h"
#include "tests/mutation/programs.h"
#include "tests/second/cases.h"
#include "tests/second/change.h"
#include "tests/second/checker.h"
#include "tests/second/generate.h"
#include "tests/seed.h"

namespace second
{

namespace
{

long Setting(const char *name, long otherwise)
{
    const char *value = std::getenv(name);

    return value != nullptr ? std::atol(value) : otherwise;
}

std::string FileText(const std::filesystem::path &path)
{
    std::ifstream file(path);
    std::stringstream text;

    text << file.rdbuf();
    return text.str();
}

// ---------------------------------------------------------------- the oracle

TEST(Second, SeesWhatIsPlainBothWays)
{
    Schedules schedules;

    schedules.random = 20;
    schedules.each = true;
    schedules.states = 300000;
    for (const Case &c : kCases) {
        std::string text = std::string("heddle 2 host program p ") + c.text;
        Compared both(text, schedules);
        std::vector<Rule> broken;

        ASSERT_TRUE(both.checked.parsed) << c.name << both.checked.said;
        for (const auto &entry : both.verdict.broken)
            broken.push_back(entry.first);
        EXPECT_EQ(broken, c.broken) << c.name << ": " << both.verdict.Text();
        EXPECT_EQ(both.Disagreement(), "") << c.name;
    }
}

// What the graph says, delays of one step and all interleavings say alike.
TEST(Second, AllInterleavingsShowWhatTheGraphSays)
{
    std::mt19937 random(SeedFrom(1));
    Schedules schedules;
    int enumerated = 0, broken = 0;

    schedules.random = 20;
    schedules.each = true;
    schedules.states = 3000;
    for (int i = 0; i < 300 && !HasFailure(); i++) {
        Program program = Parse(Generate(random));

        for (size_t slips = random() % 3; slips > 0; slips--)
            Slip(&program, random);
        if (!Checked(Print(program)).parsed)
            continue;
        try {
            Verdict verdict = Judge(program, schedules);

            EXPECT_EQ(verdict.inconsistent, "") << Print(program);
            enumerated += verdict.enumerated;
            broken += verdict.enumerated && !verdict.Clean();
        } catch (const Unreadable &) {
            continue;
        }
    }
    EXPECT_GT(enumerated, 20);
    EXPECT_GT(broken, 5);
}

// Any number of names of the same bytes.
TEST(Second, SeesHundredsOfNames)
{
    for (bool ended : {false, true}) {
        std::string text = "heddle 2 host program p in %x : f32[2] "
                           "out %y : f32[2] temp %a : f32[2] ";

        for (int i = 0; i < 200; i++)
            text += "temp %n" + std::to_string(i) + " : f32[2] of %a ";
        text += "{ %a = relu %x ";
        for (int i = 0; i < 200; i++)
            text += "%n" + std::to_string(i) + " = relu %x ";
        text += ended ? "%y = copy %n100 }" : "%y = copy %n199 }";
        Compared both(text, Schedules());
        EXPECT_EQ(both.Disagreement(), "");
        EXPECT_EQ(both.verdict.broken.count(LIFETIME), ended);
    }
}

TEST(Second, ReadsWhatItPrints)
{
    std::mt19937 random(7);

    for (int i = 0; i < 100; i++) {
        std::string text = Print(Parse(Generate(random)));

        EXPECT_EQ(Print(Parse(text)), text);
    }
}

// --------------------------------------------------------------- the checker

// How often each verdict was met.
struct Tally {
    std::map<std::string, int> met;

    void Count(const Compared &both)
    {
        if (!both.checked.parsed)
            met["refused by the parser"]++;
        else if (both.verdict.Clean())
            met["clean"]++;
        for (const auto &entry : both.verdict.broken)
            met[kRuleText[entry.first]]++;
        met["deadlock by a launch"] += both.verdict.launch == Launches::HANG;
        met["too large a launch"] += both.verdict.launch == Launches::UNKNOWN;
    }
    void Print(const char *what, long count, long seed) const
    {
        printf("%ld %s from seed %ld:", count, what, seed);
        for (const auto &entry : met)
            printf(" %s %d,", entry.first.c_str(), entry.second);
        printf("\n");
    }
};

// Empty, or the disagreement about the smallest program that shows it.
std::string Disagreement(const Program &program, Tally *tally, unsigned seed)
{
    Schedules schedules;

    schedules.seed = seed;
    Compared both(Print(program), schedules);
    std::string text = both.Disagreement();
    tally->Count(both);
    if (text.empty())
        return "";
    // The smaller one must be judged by both as this one is.
    auto alike = [&](const Program &less) {
        try {
            Compared now(Print(less), schedules);

            return now.checked.parsed && !now.Disagreement().empty() &&
                   now.verdict.Clean() == both.verdict.Clean() &&
                   now.checked.status == both.checked.status;
        } catch (const Unreadable &) {
            return false;
        }
    };
    Compared least(Print(Shrink(program, alike)), schedules);
    return least.checked.text + least.Disagreement();
}

std::string DisagreementOfText(const std::string &text, Tally *tally,
                               unsigned seed)
{
    try {
        return Disagreement(Parse(text), tally, seed);
    } catch (const TooLarge &) {
        tally->met["too large"]++;
        return "";
    } catch (const Unreadable &unreadable) {
        return std::string("the oracle cannot read it: ") + unreadable.what();
    }
}

TEST(Second, JudgesTheFilesOfTheRepositoryAsTheCheckerDoes)
{
    Tally tally;

    for (const char *folder :
         {"examples", "examples/broken", "tests/golden/check",
          "tests/golden/place/Inputs", "tests/golden/simulate",
          "tests/golden/match", "tests/golden/walk"})
        for (const auto &entry : std::filesystem::directory_iterator(
                 std::filesystem::path(HEDDLE_SOURCE) / folder)) {
            if (entry.path().extension() != ".hd")
                continue;
            std::string text = FileText(entry.path());
            Checked checked(text);

            // Limits are the library's own.
            if (checked.parsed && !checked.codes.count("HD0607") &&
                !checked.codes.count("HD0105")) {
                EXPECT_EQ(DisagreementOfText(checked.text, &tally, 1), "")
                    << entry.path();
            }
        }
    EXPECT_GT(tally.met["clean"], 5);
    EXPECT_GT(tally.met["race"], 5);
    EXPECT_LT(tally.met["too large"], 8);
}

// The canonical text of a program to mutate.
std::string Lowered(const Base &base)
{
    std::string text = "heddle 2\n" + base.text;
    hd_module *module = nullptr;
    char *printed = nullptr;

    if (hd_parse("t", text.data(), text.size(), nullptr, 0, nullptr, &module) ==
            HD_OK &&
        (!base.lower ||
         hd_lower(module, &base.options, nullptr, nullptr, nullptr) == HD_OK) &&
        hd_print(module, &printed) == HD_OK)
        text = printed;
    hd_free(printed);
    hd_module_destroy(module);
    return text;
}

std::string Mutant(const std::string &text, std::mt19937 &random)
{
    std::string mutant = text;
    hd_module *module = nullptr;
    char *printed = nullptr;

    if (hd_parse("t", text.data(), text.size(), nullptr, 0, nullptr, &module) ==
        HD_OK) {
        Mutate(module, random);
        if (random() % 4 == 0)
            Mutate(module, random);
        if (hd_print(module, &printed) == HD_OK)
            mutant = printed;
    }
    hd_free(printed);
    hd_module_destroy(module);
    return mutant;
}

TEST(Second, JudgesMutantsAsTheCheckerDoes)
{
    std::vector<std::string> texts;
    long count = Setting("HEDDLE_SECOND_MUTANTS", 1000);
    long first = SeedFrom(1), seed = first;
    Tally tally;

    for (const Base &base : TensorBases())
        texts.push_back(Lowered(base));
    for (const Base &base : HostBases())
        texts.push_back(Lowered(base));
    for (const std::string &text : texts)
        EXPECT_EQ(DisagreementOfText(text, &tally, 1), "");
    EXPECT_EQ(tally.met["clean"], static_cast<int>(texts.size()));
    for (long done = 0; done < count; done++, seed++) {
        std::mt19937 random(static_cast<unsigned>(seed));
        const std::string &base = texts[random() % texts.size()];
        std::string mutant = Mutant(base, random);

        if (!Checked(mutant).parsed) {
            tally.met["refused by the parser"]++;
            continue;
        }
        ASSERT_EQ(
            DisagreementOfText(mutant, &tally, static_cast<unsigned>(seed)), "")
            << "seed " << seed << "\n"
            << mutant;
    }
    tally.Print("mutants", count, first);
    if (count >= 1000) {
        EXPECT_GT(tally.met["deadlock by a launch"], 0);
    }
}

TEST(Second, JudgesProgramsFromNothingAsTheCheckerDoes)
{
    long count = Setting("HEDDLE_SECOND_PROGRAMS", 5000);
    long first = SeedFrom(1), seed = first;
    Tally tally;

    for (long done = 0; done < count; done++, seed++) {
        std::mt19937 random(static_cast<unsigned>(seed));
        Program program = Parse(Generate(random));

        for (size_t slips = random() % 4; slips > 0; slips--)
            Slip(&program, random);
        if (!Checked(Print(program)).parsed) {
            tally.met["refused by the parser"]++;
            continue;
        }
        std::string said =
            Disagreement(program, &tally, static_cast<unsigned>(seed));
        ASSERT_EQ(said, "") << "seed " << seed << "\n" << Print(program);
    }
    tally.Print("programs", count, first);
    // Verdicts of all kinds, so that the agreement says something.
    EXPECT_GT(tally.met["clean"], count / 5);
    EXPECT_GT(tally.met["deadlock by a launch"], 0);
    for (const char *rule : kRuleText)
        if (count >= 10000) {
            EXPECT_GT(tally.met[rule], 0) << rule;
        }
}

// Programs are right before anything slips.
TEST(Second, ProgramsFromNothingAreRight)
{
    Schedules schedules;

    for (unsigned seed = 1; seed <= 200; seed++) {
        std::mt19937 random(seed);
        std::string text = Generate(random);

        Checked checked(text);
        EXPECT_TRUE(checked.parsed) << "seed " << seed << "\n"
                                    << checked.said << text;
        EXPECT_EQ(Judge(Parse(text), schedules).Text(), "clean")
            << "seed " << seed << "\n"
            << text;
    }
}

} // namespace

} // namespace second
