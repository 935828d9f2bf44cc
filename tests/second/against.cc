// What `--against` accepts and refuses, held to what programs compute: pairs of
// a host program and a tensor program, right and wrong ones, in families of
// small mistakes. A pair is wrong if the evaluator's answers differ on one of
// many draws of inputs, counts and sizes; then it must be refused. It is right
// by the way it was made, and must be accepted.
//
// HEDDLE_AGAINST_PROGRAMS says how many wrong and how many right ones of each
// family there are (10000: the long tier), HEDDLE_AGAINST_FAMILY of which one
// alone, and HEDDLE_TEST_SEED where seeds begin.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/info.h"
#include "tests/second/change.h"
#include "tests/second/families.h"
#include "tests/second/judge.h"
#include "tests/second/module.h"
#include "tests/seed.h"
#include "tools/gen/generate.h"

namespace second
{

static std::ostream &operator<<(std::ostream &out, const Family &family)
{
    return out << family.name;
}

namespace
{

// What a host program is, of one rank by its own text, or lowered anyhow.
std::string HostOf(const std::string &tensor, std::mt19937 &random)
{
    Module module(tensor);
    uint8_t bytes[64];
    std::string own = tensor;

    if (module.it == nullptr)
        return "";
    if (tensor.find("mesh ") == std::string::npos && random() % 2)
        return own.replace(own.find("tensor program"), 6, "host");
    choices_fill(random(), bytes, sizeof bytes);
    choices choices = {bytes, sizeof bytes, 0};
    hd_lower_options options = generate_lowering(&choices);
    options.asked = 0;
    if (hd_lower(module.it, &options, nullptr, nullptr, module.diag) != HD_OK)
        return "";
    return module.Text();
}

struct Subject {
    std::string tensor, host;
    bool right = false;
};

std::string Slipped(const std::string &host, std::mt19937 &random)
{
    Program slipped = Parse(host);

    Slip(&slipped, random);
    return Print(slipped);
}

// Whether a generated program has what the family is about, and not what
// another one is.
bool IsOf(const Family &family, const std::string &text)
{
    for (const Family &other : kFamilies)
        if (other.generated != nullptr &&
            (text.find(other.generated) != std::string::npos) !=
                (strcmp(other.name, family.name) == 0))
            return false;
    return true;
}

// A generated program that has the family's word in it, and what it is lowered
// to, or a slip of that.
Subject Generated(const Family &family, bool right, std::mt19937 &random)
{
    Subject subject;
    generate_options generating = {true, 0};

    for (int tries = 0; tries < 100 && subject.host.empty(); tries++) {
        uint8_t bytes[200];

        choices_fill(random(), bytes, sizeof bytes);
        choices choices = {bytes, sizeof bytes, 0};
        char *text = generate_program(&choices, &generating);
        subject.tensor = text;
        free(text);
        if (IsOf(family, subject.tensor))
            subject.host = HostOf(subject.tensor, random);
    }
    if (!right && !subject.host.empty())
        subject.host = Slipped(subject.host, random);
    return subject;
}

Subject Written(const Family &family, bool right, unsigned seed,
                std::mt19937 &random)
{
    Choices choices(seed);
    Pair pair = family.write(&choices);
    Subject subject;

    subject.tensor = pair.tensor;
    // Wrong is another choice, or a slip in the right host program.
    bool slips = !right && random() % 4 == 0;
    choices.Rewind();
    if (right)
        choices.Respell();
    else if (!slips && !choices.Change())
        return subject;
    pair = family.write(&choices);
    subject.host = pair.host;
    if (pair.host.empty() || pair.host.find(" after ") != std::string::npos)
        subject.host =
            HostOf(pair.host.empty() ? pair.tensor : pair.host, random);
    if (slips && !subject.host.empty())
        subject.host = Slipped(subject.host, random);
    return subject;
}

bool SameArguments(const Program &x, const Program &y)
{
    Shape of_x(x), of_y(y);
    size_t n = 0, m = 0;

    for (const Decl &decl : y.decls)
        m += decl.role != "temp";
    for (size_t i = 0; i < x.decls.size(); i++) {
        const Decl &a = x.decls[i];

        if (a.role == "temp")
            continue;
        n++;
        auto found = of_y.decl.find(a.name);
        if (found == of_y.decl.end())
            return false;
        const Decl &b = y.decls[static_cast<size_t>(found->second)];
        if (a.role != b.role || a.dtype != b.dtype ||
            Extents(x, of_x, static_cast<int>(i)) !=
                Extents(y, of_y, found->second))
            return false;
    }
    return n == m;
}

hd_status Ask(const std::string &tensor, const std::string &host,
              std::string *said)
{
    Module x(tensor), y(host);
    hd_check_options options = hd_check_defaults();

    if (x.it == nullptr || y.it == nullptr)
        return HD_ERROR_ARGUMENT;
    options.against = x.it;
    hd_status status = hd_check(y.it, &options, y.diag);
    *said = y.Said();
    return status;
}

// The smallest host program that is accepted and differs all the same.
std::string Smallest(const Subject &subject, unsigned seed)
{
    Program tensor = Parse(Module(subject.tensor).Whole());
    std::string said;

    return Print(Shrink(Parse(subject.host), [&](const Program &host) {
        std::mt19937 random(seed);

        if (Ask(subject.tensor, Print(host), &said) != HD_OK)
            return false;
        try {
            return !Differs(tensor, host, 20, random).empty();
        } catch (const std::exception &) {
            return false;
        }
    }));
}

class Campaign
{
  public:
    Campaign(const Family &family, int draws) : family_(family), draws_(draws)
    {
    }
    void Judge(bool right, unsigned seed);
    std::string Text() const;
    int wrong = 0, right = 0, false_proofs = 0, false_refusals = 0;
    std::string first; // disagreement, in words

  private:
    void Decide(const Subject &subject, bool right, unsigned seed,
                std::mt19937 &random);

    const Family &family_;
    int draws_;
    int nothing_ = 0, otherwise_ = 0, unjudged_ = 0;
    int alike_ = 0, strict_ = 0;
};

std::string Campaign::Text() const
{
    return std::string(family_.name) + ": " + std::to_string(wrong) +
           " wrong, of which accepted " + std::to_string(false_proofs) + "; " +
           std::to_string(right) + " right, of which refused " +
           std::to_string(false_refusals) + "; besides " +
           std::to_string(alike_) + " changed and alike, of which refused " +
           std::to_string(strict_) + ", " + std::to_string(otherwise_) +
           " refused for other reasons, " + std::to_string(nothing_) +
           " no programs, " + std::to_string(unjudged_) + " not judged";
}

void Campaign::Judge(bool right_one, unsigned seed)
{
    std::mt19937 random(seed);
    bool generated = family_.generated != nullptr && random() % 4 == 0;
    Subject subject = generated ? Generated(family_, right_one, random)
                                : Written(family_, right_one, seed, random);
    Module tensor(subject.tensor), host(subject.host);

    if (tensor.it == nullptr || host.it == nullptr ||
        module_info(tensor.it).stage != HD_STAGE_TENSOR ||
        module_info(host.it).stage != HD_STAGE_HOST) {
        nothing_++;
        return;
    }
    subject.tensor = tensor.Text();
    subject.host = host.Text();
    try {
        Decide(subject, right_one, seed, random);
    } catch (const Unreadable &) {
        unjudged_++;
    } catch (const Broken &) { // of a tensor program of no ranks, or the like
        unjudged_++;
    }
}

void Campaign::Decide(const Subject &subject, bool right_one, unsigned seed,
                      std::mt19937 &random)
{
    Program tensor = Parse(Module(subject.tensor).Whole());
    Program host = Parse(subject.host);
    std::string said, where;

    if (!SameArguments(tensor, host)) {
        nothing_++;
        return;
    }
    hd_status status = Ask(subject.tensor, subject.host, &said);
    if (status != HD_OK && status != HD_ERROR_INVALID) {
        unjudged_++;
        return;
    }
    // What races or deadlocks says nothing of the proof of values.
    if (!right_one && status != HD_OK &&
        said.find("HD0901") == std::string::npos) {
        otherwise_++;
        return;
    }
    where = Differs(tensor, host, draws_, random);
    std::string words = " of family " + std::string(family_.name) +
                        ", HEDDLE_TEST_SEED=" + std::to_string(seed) + "\n" +
                        subject.tensor;
    if (right_one && !where.empty())
        first = "not right" + words + subject.host + where;
    right += right_one;
    wrong += !right_one && !where.empty();
    alike_ += !right_one && where.empty();
    strict_ += !right_one && where.empty() && status != HD_OK;
    if (right_one && status != HD_OK) {
        if (false_refusals++ == 0 && first.empty())
            first = "right and refused" + words + subject.host + said;
    } else if (!right_one && !where.empty() && status == HD_OK) {
        if (false_proofs++ == 0)
            first =
                "wrong and accepted" + words + Smallest(subject, seed) + where;
    }
}

TEST(Families, WriteProgramsThatAreRightAsTheyStand)
{
    unsigned seed = Seed();

    for (const Family &family : kFamilies)
        for (unsigned i = 0; i < 200; i++) {
            Choices choices(seed + i);
            Pair pair = family.write(&choices);
            Module tensor(pair.tensor), host(pair.host);
            hd_lower_options options = hd_lower_defaults();

            EXPECT_NE(tensor.it, nullptr) << pair.tensor << tensor.Said();
            EXPECT_TRUE(pair.host.empty() || host.it != nullptr)
                << pair.host << host.Said();
            if (tensor.it != nullptr) {
                EXPECT_EQ(hd_lower(tensor.it, &options, nullptr, nullptr,
                                   tensor.diag),
                          HD_OK)
                    << pair.tensor << tensor.Said();
            }
        }
}

class Against : public ::testing::TestWithParam<Family>
{
};

TEST_P(Against, WrongOnesAreRefusedAndRightOnesAreNot)
{
    const char *asked = std::getenv("HEDDLE_AGAINST_PROGRAMS");
    const char *only = std::getenv("HEDDLE_AGAINST_FAMILY");
    int count = asked != nullptr ? std::atoi(asked) : 150;
    unsigned seed = Seed();
    Campaign campaign(GetParam(), asked != nullptr ? 50 : 10);

    if (only != nullptr && strcmp(only, GetParam().name) != 0)
        GTEST_SKIP() << "HEDDLE_AGAINST_FAMILY asks for another family";
    // A family of which few pairs can be made fails rather than never ends.
    for (int i = 0; i < 40 * count && campaign.wrong < count; i++)
        campaign.Judge(false, seed + static_cast<unsigned>(i));
    for (int i = 0; i < 40 * count && campaign.right < count; i++)
        campaign.Judge(true, seed + static_cast<unsigned>(i));
    printf("%s\n", campaign.Text().c_str());
    if (!campaign.first.empty())
        ADD_FAILURE() << campaign.first;
    EXPECT_EQ(campaign.wrong, count);
    EXPECT_EQ(campaign.right, count);
}

INSTANTIATE_TEST_SUITE_P(Families, Against, ::testing::ValuesIn(kFamilies),
                         [](const auto &info) {
                             return std::string(info.param.name);
                         });

// With one seed after the other.
void ExpectRefused(const std::string &tensor, const std::string &host,
                   unsigned seeds)
{
    Module x("heddle 2 tensor program t " + tensor);
    Module y("heddle 2 host program t " + host);
    hd_check_options options = hd_check_defaults();
    unsigned first = Seed();

    ASSERT_NE(x.it, nullptr) << x.Said();
    ASSERT_NE(y.it, nullptr) << y.Said();
    options.against = x.it;
    for (unsigned i = 1; i <= seeds; i++) {
        options.seed = first + i;
        EXPECT_EQ(hd_check(y.it, &options, y.diag), HD_ERROR_INVALID)
            << "--seed " << options.seed;
        hd_diag_clear(y.diag);
    }
}

// Wrong where of eight counts the first is none, the second all and the third
// again none: with a 64th of 65,536 combinations.
TEST(Counts, InThreeStatesAtOnceAreMissedByNoSeed)
{
    std::string args = "in %n : i32[8] in %x : f32[8, 3 by %n] in %w : f32[] "
                       "out %y : f32[] out %z : f32[8, 3] ";

    ExpectRefused(
        args + "{ %z = copy %x %y = copy %w }",
        args + "temp %a : f32[8, 3] temp %c : f32[8, 3 by %n] temp %s : f32[8]"
               " temp %b : f32[] temp %d : f32[] "
               "{ %z = copy %x %a = fill value 0.0 %a[0, 0] = neg %w "
               "%a[1, 2] = copy %w %a[2, 0] = neg %w %c = copy %a "
               "%s = sum %c dim 1 %b = add %w, %s[0] %d = add %w, %s[2] "
               "%b = mul %b, %s[1] %b = mul %b, %d %y = add %w, %b }",
        600);
}

// Wrong where the second block is empty, with one of 200 sizes, and a count is
// none: of an empty block the maximum is less than 1.
TEST(Counts, BesideASizeInOneStateEachAreMissedByNoSeed)
{
    std::string args =
        "param m in 1..200 in %n : i32[6] in %x : f64[m in 2, 1] "
        "in %v : f64[6, 3 by %n] in %w : f64[1] out %y : f64[1] "
        "out %z : f64[m in 2, 1] out %u : f64[6, 3] ";

    ExpectRefused(
        args + "{ %z = copy %x %u = copy %v %y = copy %w }",
        args + "temp %o : f64[m in 2, 1] temp %a : f64[1] temp %b : f64[1] "
               "temp %f : f64[1] temp %q : f64[6, 3] temp %c : f64[6, 3 by %n] "
               "temp %s : f64[6] { %z = copy %x %u = copy %v "
               "%o[1 of 2] = fill value 1.0 %b = max %o[1 of 2] dim 0 "
               "%f = fill value 1.0 %b = min %b, %f %b = sub %f, %b "
               "%q = fill value 0.0 %q[2, 0] = neg %w[0] %c = copy %q "
               "%s = sum %c dim 1 %a = add %w, %s[2] %b = mul %b, %a "
               "%y = add %w, %b }",
        100);
}

// The operand's lie under what is written.
TEST(Counts, OfBothSidesOfATransposeAreTheResults)
{
    std::string args = "program t in %n : i32[2, 3] in %x : i32[2, 3, 1 by %n] "
                       "out %y : i32[3, 2, 1] temp %m : i32[3, 2] ";
    Module tensor("heddle 2 tensor " + args +
                  "temp %z : i32[3, 2, 1 by %m] { %m = transpose %n "
                  "%z = transpose %x dim0 0 dim1 1 %y = copy %z }");
    Module host("heddle 2 host " + args +
                "temp %c : i32[2, 3] temp %d : i32[2, 3, 1 by %c] "
                "temp %z : i32[3, 2, 1 by %m] of %c { %c = copy %n "
                "%d = copy %x %m = transpose %c "
                "%z = transpose %d dim0 0 dim1 1 %y = copy %z }");

    ASSERT_NE(tensor.it, nullptr) << tensor.Said();
    ASSERT_NE(host.it, nullptr) << host.Said();
    EXPECT_EQ(Differs(tensor.Text(), host.Text(), 20, Seed()), "");
}

} // namespace

} // namespace second
