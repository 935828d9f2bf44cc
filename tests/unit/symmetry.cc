// Where ranks are said to turn, the first one's verdict is that of all: of
// programs that show each rule, and of random ones.
#include "ir/symmetry.h"

#include <cstdlib>
#include <random>

#include "check/prove.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

bool Turns(const std::string &body, int axis = 0)
{
    Program p("host program t mesh tp=4, dp=2 streams 1 inout %x : f32[4, 2] "
              "shared inout %y : f32[4, 2] shared temp %z : f32[8] of %x "
              "temp %w : f32[2, 2, 2] of %y temp %u : f32[4, 1, 2] of %y "
              "temp %e : event[4] { " +
              body + " }");
    hd_symmetry symmetry;

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    if (p.status != HD_OK)
        return false;
    EXPECT_EQ(hd_symmetry_find(p.module, nullptr, &symmetry), HD_OK);
    return symmetry.turns[axis];
}

std::string Copy(const std::string &to, const std::string &from)
{
    return "%x[" + to + "] = copy %y[" + from + "]";
}

} // namespace

TEST(Symmetry, IndicesTurnWithTheRank)
{
    EXPECT_TRUE(Turns(Copy("tp", "0")));
    EXPECT_TRUE(Turns(Copy("(tp + 1) mod 4", "tp")));
    EXPECT_TRUE(Turns(Copy("(tp - 3) mod size tp", "tp")));
    EXPECT_TRUE(Turns(Copy("(5 * tp - 7) mod 4", "(1 + tp * (0 - 3)) mod 4")));
    EXPECT_TRUE(Turns(Copy("((tp + 1) mod 4 + tp - tp) mod 4", "tp")));
    EXPECT_TRUE(Turns("for j in 0..4 { let i = (tp + j) mod 4 " +
                      Copy("i", "(i - tp) mod 4") + " }"));
    EXPECT_TRUE(Turns("if (tp + 1) mod 4 == tp { } " + Copy("tp", "tp")));
    EXPECT_TRUE(Turns("%e[tp] = record wait %e[tp]"));
    EXPECT_TRUE(Turns(Copy("(tp + min(1, cdiv(3, 2))) mod 4", "tp")));
    EXPECT_TRUE(
        Turns("for j in 0..max(2, 3) { let i = (tp + min(j, 2)) mod 4 " +
              Copy("i", "tp") + " }"));
}

TEST(Symmetry, WhatDoesNotTurnIsSeen)
{
    EXPECT_FALSE(Turns(Copy("3 - tp", "0")));
    EXPECT_FALSE(Turns(Copy("(0 - tp) mod 4", "0")));
    EXPECT_FALSE(Turns(Copy("(2 * tp) mod 4", "0")));
    EXPECT_FALSE(Turns(Copy("tp mod 2", "0")));
    EXPECT_FALSE(Turns(Copy("tp / 2", "0")));
    EXPECT_FALSE(Turns(Copy("cdiv(tp, 2)", "0")));
    EXPECT_FALSE(Turns(Copy("min(tp, 2)", "0")));
    EXPECT_FALSE(Turns(Copy("max(1, tp)", "0")));
    EXPECT_FALSE(Turns(Copy("(tp + 1) mod 8 / 2", "0")));
    EXPECT_FALSE(Turns("if tp == 0 { " + Copy("0", "0") + " }"));
    EXPECT_FALSE(Turns("%x[tp..tp + 1] = copy %y[0..1]"));
    EXPECT_FALSE(Turns(Copy("tp", "tp") + " %x[0..1] = copy %y[0..1]"));
    EXPECT_TRUE(Turns("%x[0..3] = copy %y[1..4]"));
    EXPECT_FALSE(Turns("for i in 0..tp { " + Copy("i", "i") + " }"));
    EXPECT_FALSE(Turns("let a = 1 / (tp - 2)"));
    // Some ranks overflow.
    EXPECT_FALSE(Turns(Copy("(tp + 9223372036854775806) mod 4", "0")));
    EXPECT_FALSE(Turns("let n = 9223372036854775807 for j in 0..2 { " +
                       Copy("(tp + max(n - 1, j)) mod 4", "0") + " }"));
    EXPECT_FALSE(Turns("let n = 9223372036854775807 for j in 0..2 { " +
                       Copy("(tp + cdiv(n - j, 1)) mod 4", "0") + " }"));
    // One index that turns and one that does not, of one dimension.
    EXPECT_FALSE(Turns(Copy("tp", "0") + Copy("1", "0")));
    EXPECT_FALSE(Turns("on stream tp / 4 { " + Copy("0", "0") + " }"));
    EXPECT_FALSE(Turns("broadcast@tp %y[0, 0] root 0"));
    EXPECT_FALSE(Turns("%x = reduce@tp %y root 0"));
    EXPECT_FALSE(Turns("send@tp %y to 3 - tp"));
    EXPECT_FALSE(Turns("send@tp %y to 1"));
}

TEST(Symmetry, OtherNamesOfTheBytesTurnAlikeOrNot)
{
    EXPECT_FALSE(Turns(Copy("tp", "0") + " %z = copy %z")); // not seen
    EXPECT_FALSE(Turns(Copy("tp", "0") + " %z[0] = copy %z[1]"));
    EXPECT_FALSE(Turns(Copy("0", "tp") + " %w = copy %w"));
    EXPECT_TRUE(Turns(Copy("0", "tp") + " %u[tp] = copy %u[tp]"));
    EXPECT_FALSE(Turns(Copy("0", "tp") + " %u[0] = copy %u[1]"));
    // A dimension of one index, which has the stride of one of four.
    EXPECT_FALSE(Turns("%u[tp, tp] = copy %u[(tp + 1) mod 4, 0]"));
}

TEST(Symmetry, TheFirstRankOfALineKnowsItsPlaceOnTheOtherAxes)
{
    Program p("host program p mesh dp=2, tp=4 inout %y : f32[2, 8]"
              " temp %x : f32[2, 8] shared {\n"
              "%x = copy %y %x[0] = reduce_scatter@dp %x %y = copy %x }");
    hd_symmetry symmetry;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_EQ(hd_symmetry_find(p.module, nullptr, &symmetry), HD_OK);
    EXPECT_TRUE(symmetry.turns[1]);
    EXPECT_FALSE(symmetry.turns[0]);
    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_ERROR_INVALID);
    EXPECT_NE(p.Said().find("HD0809"), std::string::npos) << p.Said();
}

TEST(Symmetry, EachAxisHasItsOwn)
{
    std::string send = "group { send@tp %y[dp] to (tp + 1) mod 4 "
                       "%x[dp] = recv@tp from (tp - 1) mod 4 }";

    EXPECT_TRUE(Turns(send, 0));
    EXPECT_FALSE(Turns(send, 1)); // extent 4 is not the size of dp
    EXPECT_TRUE(Turns("%x = all_reduce@tp %y", 0));
    EXPECT_TRUE(Turns("%x = all_reduce@tp %y", 1));
    EXPECT_FALSE(Turns("if dp == 0 { %x = all_reduce@tp %y }", 1));
    EXPECT_TRUE(Turns("if dp == 0 { %x = all_reduce@tp %y }", 0));
}

TEST(Symmetry, PiecesInPlaceAreTheOwn)
{
    EXPECT_TRUE(Turns("%x = all_gather@tp %x[tp]"));
    EXPECT_FALSE(Turns("%x = all_gather@tp %x[0]"));
    EXPECT_FALSE(Turns("%x[0] = reduce_scatter@tp %x"));
    EXPECT_TRUE(Turns("%x[0] = reduce_scatter@tp %y"));
}

// ----------------------------------------------------------------- random

namespace
{

class Writer
{
  public:
    explicit Writer(unsigned seed) : random_(seed), n_(2 + seed % 4)
    {
    }

    std::string Text()
    {
        std::string n = std::to_string(n_);
        std::string text = "host program t mesh tp=" + n +
                           " streams 2 inout %x : f32[" + n +
                           ", 2] shared inout %y : f32[" + n +
                           ", 2] shared temp %v : f32[2, " + n +
                           "] of %y temp %e : event[2] { fork ";

        for (unsigned i = 1 + Below(4); i > 0; i--)
            text += Statement();
        return text + " join }";
    }

  private:
    unsigned Below(unsigned n)
    {
        return static_cast<unsigned>(random_() % n);
    }

    std::string Turn(const std::string &by)
    {
        return "(tp + " + by + ") mod " + std::to_string(n_);
    }

    std::string Index()
    {
        std::string n = std::to_string(n_), k = std::to_string(Below(n_));

        switch (Below(14)) {
        case 0:
            return k;
        case 1:
            return "(" + k + " - tp) mod " + n;
        case 2:
            return n + " - 1 - tp";
        case 3:
            return "(2 * tp + " + k + ") mod " + n;
        case 4:
            return "(tp * (" + n + " + 1) + " + k + ") mod " + n;
        case 5:
            return "tp / 2";
        case 6:
        case 7:
            return "tp";
        default:
            return Turn(k);
        }
    }

    std::string View()
    {
        static const char *const names[] = {"%x", "%y"};
        unsigned which = Below(20);

        return which == 0 ? "%v[" + std::to_string(Below(2)) + "]"
                          : names[which % 2] + ("[" + Index() + "]");
    }

    std::string Exchange()
    {
        std::string by = std::to_string(1 + Below(n_ - 1));
        std::string from = Below(8) == 0 ? Index() : Turn("0 - " + by);
        std::string sent = "send %" + std::string(Below(2) ? "x" : "y") + "[" +
                           Index() + "] to " + Turn(by) +
                           (Below(3) == 0 ? " done %e[0] " : " ");
        std::string got = "%" + std::string(Below(2) ? "x" : "y") + "[" +
                          Index() + "] = recv from " + from + " ";

        return Below(5) == 0 ? sent + got : "group { " + sent + got + "} ";
    }

    std::string Step()
    {
        switch (Below(8)) {
        case 0:
        case 1:
            return "%x[" + Index() + "] = copy %y[" + Index() + "] ";
        case 2:
            return Below(2) ? "%e[1] = record " : "wait %e[1] ";
        case 3:
            return Below(2) ? "%x = all_gather %x[" + Index() + "] "
                            : "%x[" + Index() + "] = reduce_scatter %" +
                                  (Below(2) ? "x " : "y ");
        case 4:
            return "if " + Index() + " == " + Index() + " { " + View() +
                   " = copy " + View() + " } ";
        default:
            return Exchange();
        }
    }

    std::string Statement()
    {
        std::string stream = std::to_string(Below(2));

        switch (Below(5)) {
        case 0:
            return Step();
        case 1:
            return "join fork ";
        default:
            return "on stream " + stream + " { " + Step() + "} ";
        }
    }

    std::mt19937 random_;
    unsigned n_;
};

} // namespace

// What the first rank shows holds of all.
TEST(Symmetry, TheFirstRankSpeaksForAll)
{
    unsigned seed = Seed();
    hd_check_options options = hd_check_defaults();
    int turning = 0, right = 0, wrong = 0, alone = 0;

    for (unsigned i = 0; i < 6000; i++) {
        std::string text = Writer(seed + i).Text();
        Program p(text);
        hd_symmetry symmetry;

        if (p.status != HD_OK)
            continue;
        ASSERT_EQ(hd_symmetry_find(p.module, nullptr, &symmetry), HD_OK);
        if (!symmetry.turns[0])
            continue;
        bool first = false;
        ASSERT_EQ(hd_prove_first(p.module, &options, nullptr, &first), HD_OK);
        bool all = hd_prove_all(p.module, &options, p.diag) == HD_OK;

        turning++;
        right += first;
        wrong += !all;
        alone += all && !first; // peers order what the first alone does not
        ASSERT_TRUE(all || !first) << "HEDDLE_TEST_SEED=" << seed + i << "\n"
                                   << text << "\n"
                                   << p.Said();
    }
    printf("turning %d, right %d, wrong %d, ordered by peers %d\n", turning,
           right, wrong, alone);
    EXPECT_GT(right, 50);
    EXPECT_GT(wrong, 50);
    EXPECT_LT(alone, right);
}

TEST(Symmetry, ManyRanksAreProvenByTheFirst)
{
    std::string body =
        "streams 2 in %a : f32[4] out %y : f32[size tp, 4] "
        "shared { for k in 0..4 { %y[tp] = copy %a } for j in 0..size tp - 1 { "
        "let i = (tp - j) mod size tp group { "
        "send %y[i] to (tp + 1) mod size tp "
        "%y[(i - 1) mod size tp] = recv from (tp - 1) mod "
        "size tp } } }";
    std::string slip = body;
    slip.replace(slip.find("i - 1"), 5, "i - 0");
    Program good("host program t mesh tp=4096 " + body);
    Program bad("host program t mesh tp=64 " + slip);

    ASSERT_EQ(good.status, HD_OK) << good.Said();
    EXPECT_EQ(hd_check(good.module, nullptr, good.diag), HD_OK) << good.Said();
    EXPECT_EQ(hd_check(bad.module, nullptr, bad.diag), HD_ERROR_INVALID);
}
