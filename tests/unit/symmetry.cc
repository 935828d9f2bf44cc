// Where ranks are said to turn, the first one's verdict is that of all: of
// programs that show each rule, and of random ones.
#include "ir/symmetry.h"

#include <cstdlib>
#include <random>

#include "check/prove.h"
#include "heddle/simulate.h"
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
    EXPECT_TRUE(Turns(Copy("tp", "0") + " %z = copy %z"));
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

TEST(Symmetry, WhatThereIsNoRoomForNeedNotBeWritten)
{
    Program p("host program p mesh q=3, tp=2 streams 3 out %c : f32[2@q, 2] { "
              "fork on stream q { %c[q of 3] = fill value 0 } join }");
    hd_check_options options = hd_check_defaults();
    bool first = false;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_prove_first(p.module, &options, p.diag, &first), HD_OK);
    EXPECT_TRUE(first);
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
    // Indices are single ones, or of blocks, of which the last ones may be
    // shorter, or empty.
    explicit Writer(unsigned seed)
        : random_(seed), n_(2 + seed / 2 % 4), blocks_(seed % 2 == 1),
          rows_(blocks_ ? 1 + Below(4 * n_) : n_)
    {
    }

    std::string Text()
    {
        std::string n = std::to_string(n_), rows = std::to_string(rows_);
        std::string other =
            blocks_ && Below(4) > 0 ? rows + ", 2" : "2, " + rows;
        std::string text =
            "host program t mesh tp=" + n + " streams 2 inout %x : f32[" +
            rows + ", 2] shared inout %y : f32[" + rows +
            ", 2] shared temp %v : f32[" + other +
            "] of %y in %q : f32[1, 4, 2] inout %k : f32[" + n +
            ", 1, 4, 2] shared inout %o : f32[1, 4, 2] inout %l : f32[1, 4] "
            "temp %e : event[2] { fork ";

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

    // Of %x and %y.
    std::string Some()
    {
        return Index() + (blocks_ ? " of " + std::to_string(n_) : "");
    }

    std::string Attention()
    {
        std::string i = Index();
        std::string far = Below(2) ? "(tp - " + i + ")" : Index();
        std::string mask = Below(3) == 0 ? ""
                           : Below(2)    ? " zigzag " + far
                                         : " causal 4 * " + far;

        return "%o, %l = attention %q, %k[" + i + "], %k[" + i + "]" +
               (Below(3) > 0 ? " accumulate" : "") + mask + " ";
    }

    std::string View()
    {
        static const char *const names[] = {"%x", "%y"};
        unsigned which = Below(20);

        return which == 0 ? "%v[" + std::to_string(Below(2)) + "]"
                          : names[which % 2] + ("[" + Some() + "]");
    }

    std::string Exchange()
    {
        std::string by = std::to_string(1 + Below(n_ - 1));
        std::string from = Below(8) == 0 ? Index() : Turn("0 - " + by);
        std::string sent = "send %" + std::string(Below(2) ? "x" : "y") + "[" +
                           Some() + "] to " + Turn(by) +
                           (Below(3) == 0 ? " done %e[0] " : " ");
        std::string got = "%" + std::string(Below(2) ? "x" : "y") + "[" +
                          Some() + "] = recv from " + from + " ";

        return Below(5) == 0 ? sent + got : "group { " + sent + got + "} ";
    }

    std::string Step()
    {
        switch (Below(9)) {
        case 0:
        case 1:
            return "%x[" + Some() + "] = copy %y[" + Some() + "] ";
        case 2:
            return Below(2) ? "%e[1] = record " : "wait %e[1] ";
        case 3:
            return Below(2) ? "%x = all_gather %x[" + Some() + "] "
                            : "%x[" + Some() + "] = reduce_scatter %" +
                                  (Below(2) ? "x " : "y ");
        case 4:
            return "if " + Index() + " == " + Index() + " { " + View() +
                   " = copy " + View() + " } ";
        case 5:
            return Attention();
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
    bool blocks_;
    unsigned rows_;
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
        options.transport = i % 3 == 0 ? HD_TRANSPORT_NCCL : HD_TRANSPORT_COPY;
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

// ------------------------------------------------------------------ traps

namespace
{

// What the first rank alone would not show, if it were asked without care.
struct Trap {
    const char *code, *text;
    hd_transport transport = HD_TRANSPORT_COPY;
};

// Each is right on rank 0.
const Trap kTraps[] = {
    // Lengths of transfers: block 3 is shorter than what it goes into.
    {"HD0702", "mesh tp=4 in %a : f32[7@tp, 2] out %g : f32[7, 2] shared { "
               "group { send %a[tp of 4] to (tp + 1) mod 4 "
               "%g[0 of 4] = recv from (tp - 1) mod 4 } "
               "%g = fill value 1 }"},
    {"HD0702", "mesh tp=4 in %a : f32[5@tp, 2] out %g : f32[5, 2] shared { "
               "%g = fill value 1 "
               "group { send %a[tp of 4] to (tp + 1) mod 4 "
               "%g[tp of 4] = recv from (tp - 1) mod 4 } }"},
    {"HD0702", "mesh tp=4 in %a : f32[5@tp, 2] out %g : f32[6, 2] shared { "
               "%g = fill value 1 "
               "group { send %a[tp of 4] to (tp + 1) mod 4 "
               "%g[(tp - 1) mod 4 of 4] = recv from (tp - 1) mod 4 } }"},
    {"HD0702", "mesh tp=4 in %a : f32[5@tp, 4] out %g : f32[4] shared { "
               "group { send %a[tp of 4] to (tp + 1) mod 4 "
               "%g = recv from (tp - 1) mod 4 } }"},
    {"HD0702", "mesh tp=4 in %a : f32[5@tp, 4] out %g : f32[5, 3] shared { "
               "%g = fill value 1 "
               "group { send %a[tp of 4] to (tp + 1) mod 4 "
               "%g[(tp - 1) mod 4 of 4] = recv from (tp - 1) mod 4 } }"},
    {"HD0702", "mesh tp=3, dp=4 in %a : f32[5, 2] shared "
               "out %g : f32[5, 2] shared { %g = fill value 1 "
               "group { send@tp %a[(tp + 1) mod 3 of 3] to (tp + 1) mod 3 "
               "%g[dp of 4] = recv@tp from (tp - 1) mod 3 } }"},
    {"HD0702",
     "mesh tp=2 in %a : f32[2] shared out %g : f32[3] shared { "
     "group { send %a to (tp + 1) mod 2 %g = recv from (tp + 1) mod 2 } }"},
    {"HD0702", "mesh tp=2 in %a : f32[2] shared out %g : i32[2] shared { "
               "group { send %a to (tp + 1) mod 2 "
               "%g = recv from (tp + 1) mod 2 } }"},
    {"HD0702", "param m in 1..8 mesh tp=4 in %a : f32[m@tp, 2] "
               "out %g : f32[m, 2] shared { %g = fill value 1 "
               "group { send %a[tp of 4] to (tp + 1) mod 4 "
               "%g[tp of 4] = recv from (tp - 1) mod 4 } }"},
    {"HD0702", "param m in 1..8 param k in 1..8 mesh tp=4 "
               "in %a : f32[m@tp, 2] in %b : f32[k@tp, 2] "
               "out %g : f32[k, 2] shared { %g = fill value 1 "
               "group { send %a[tp of 4] to (tp + 1) mod 4 "
               "%g[(tp - 1) mod 4 of 4] = recv from (tp - 1) mod 4 } }"},
    // Nothing to sum up, on the last rank.
    {"HD0601", "mesh tp=4 in %x : f32[3@tp, 2] out %y : f32[2] { "
               "%y = sum %x[tp of 4] dim 0 }"},
    {"HD0601", "mesh tp=4 in %x : f32[3@tp, 2, 4] out %y : f32[2, 4] { "
               "%y[:, tp of 4] = fill value 1 %y = fill value 1 "
               "%y = sum %x[tp of 4] dim 0 }"},
    {"HD0601", "mesh tp=4 in %x : f32[3@tp, 4] out %y : f32[4] { "
               "%y = fill value 1 "
               "%y[tp of 4] = sum %x[tp of 4, tp of 4] dim 0 }"},
    {"HD0601", "mesh tp=4 in %a : f32[2, 3@tp] in %b : f32[3@tp, 2] "
               "out %y : f32[2, 2] { "
               "%y = matmul %a[:, tp of 4], %b[tp of 4] }"},
    // Other names of bytes.
    {"HD0803", "mesh tp=2 in %a : f32[3@tp, 2] out %y : f32[4] "
               "temp %t : f32[3@tp, 2] temp %f : f32[4] of %t { "
               "%t[tp of 2] = copy %a[tp of 2] %y = copy %f }"},
    {"HD0803", "mesh tp=2 in %a : f32[3@tp, 2] out %y : f32[4@tp, 2] "
               "temp %t : f32[3@tp, 2] temp %f : f32[4@tp, 2] of %t { "
               "%t[tp of 2] = copy %a[tp of 2] "
               "%y[tp of 2] = copy %f[tp of 2] }"},
    {"HD0801", "mesh tp=4 streams 1 out %y : f32[5, 2] "
               "temp %v : f32[2, 5] of %y { %y = fill value 1 fork "
               "on stream 0 { %y[tp of 4] = fill value 2 } "
               "%v[1] = fill value 3 join }"},
    {"HD0801", "mesh tp=4 streams 1 out %y : f32[2, 5] "
               "temp %v : f32[10] of %y { %y = fill value 1 fork "
               "on stream 0 { %y[:, tp of 4] = fill value 2 } "
               "%v[7..8] = fill value 3 join }"},
    // A dimension of blocks and of single indices, of blocks and of ranges.
    {"HD0801", "mesh tp=4 streams 1 out %y : f32[5, 2] { %y = fill value 1 "
               "fork on stream 0 { %y[tp of 4] = fill value 2 } "
               "%y[4] = fill value 3 join }"},
    {"HD0801", "mesh tp=4 streams 1 out %y : f32[8, 2] { %y = fill value 1 "
               "fork on stream 0 { %y[tp of 4] = fill value 2 } "
               "%y[2..5] = fill value 3 join }"},
    {"HD0801", "mesh tp=4 streams 1 out %y : f32[8, 2] { %y = fill value 1 "
               "fork on stream 0 { %y[tp of 4] = fill value 2 } "
               "%y[1 of 4] = fill value 3 join }"},
    {"HD0801", "mesh tp=4, dp=2 streams 1 out %y : f32[7, 2] { "
               "%y = fill value 1 fork "
               "on stream 0 { %y[(tp + 1) mod 4 of 4] = fill value 2 } "
               "%y[dp of 2] = fill value 3 join }"},
    // Blocks of another number than there are ranks.
    {"HD0801", "mesh tp=4 streams 1 out %y : f32[8, 2] { %y = fill value 1 "
               "fork on stream 0 { %y[tp of 8] = fill value 2 } "
               "%y[(tp - 1) mod 4 of 4] = fill value 3 join }"},
    // Events are of one index each.
    {"HD0605", "mesh tp=4 streams 1 temp %e : event[4] out %y : f32[2] { "
               "%y = fill value 1 %e[tp] = record "
               "on stream 0 { wait %e[0] } join }"},
    // Masks that keep a row or a key out on the first rank alone.
    {"HD0801", "mesh tp=2 streams 1 in %q : f32[1, 2, 2] in %k : f32[1, 2, 2] "
               "out %o : f32[1, 2, 2] out %l : f32[1, 2] { "
               "%o, %l = attention %q, %k, %k fork "
               "on stream 0 { %o, %l = attention %q, %k, %k "
               "accumulate causal 2 * (tp - 1) } "
               "%o = fill value 1 join }"},
    {"HD0801", "mesh tp=2 streams 1 in %q : f32[1, 4, 2] in %k : f32[1, 4, 2] "
               "out %o : f32[1, 4, 2] out %l : f32[1, 4] { "
               "%o, %l = attention %q, %k, %k fork "
               "on stream 0 { %o, %l = attention %q, %k, %k "
               "accumulate zigzag tp - 1 } "
               "%o[:, 0..2] = fill value 1 join }"},
    // Rows of which a later rank makes nothing.
    {"HD0609", "mesh tp=3 in %q : f32[1, 4, 2] in %k : f32[1, 4, 2] "
               "out %o : f32[1, 4, 2] out %l : f32[1, 4] { "
               "let far = 0 - tp "
               "%o, %l = attention %q, %k, %k zigzag far }"},
    {"HD0609", "mesh tp=2, dp=2 in %q : f32[1, 4, 2] in %k : f32[1, 4, 2] "
               "out %o : f32[1, 4, 2] out %l : f32[1, 4] { "
               "let far = 1 - tp let farther = far - dp "
               "%o, %l = attention %q, %k, %k zigzag farther }"},
    {"HD0609", "mesh tp=3 in %q : f32[1, 4, 2] in %k : f32[1, 4, 2] "
               "out %o : f32[1, 4, 2] out %l : f32[1, 4] { "
               "%o, %l = attention %q, %k, %k for j in 0..2 { "
               "let far = 0 - j * tp if j == 1 { "
               "%o, %l = attention %q, %k, %k zigzag far } } }"},
    // The first rank's block is the one that the other side has on all.
    {"HD0702", "param m in 1..8 mesh tp=4 in %a : f32[m@tp, 2] shared "
               "out %g : f32[m, 2] shared { %g = fill value 1 "
               "group { send %a[tp of 4] to (tp + 1) mod 4 "
               "%g[3 of 4] = recv from (tp - 1) mod 4 } }"},
    {"HD0702", "mesh tp=3, dp=3 in %a : f32[4, 3] shared "
               "out %t : f32[4@tp, 3] shared { "
               "group { send@tp %a[(dp + 2) mod 3 of 3] to (tp + 1) mod 3 "
               "%t[tp of 3] = recv@tp from (tp - 1) mod 3 } }"},
    {"HD0702", "mesh tp=3, dp=3 in %a : f32[4, 3] shared "
               "out %t : f32[4@tp, 3] shared { "
               "group { send@tp %a[dp of 3] to (tp + 1) mod 3 "
               "%t[tp of 3] = recv@tp from (tp - 1) mod 3 } }"},
    // Ranges of some rows.
    {"HD0803", "mesh tp=4 out %y : f32[4] temp %t : f32[4] { "
               "%t[tp..4] = fill value 1 %y = copy %t }"},
    {"HD0803", "mesh tp=4 out %y : f32[4] temp %t : f32[4] { "
               "%t[0..4 - tp] = fill value 1 %y = copy %t }"},
    // A result that is not empty where an operand is.
    {"HD0601", "mesh tp=4 in %x : f32[3, 3] out %y : f32[3] { "
               "%y = fill value 1 "
               "%y[tp of 4] = sum %x[(tp + 1) mod 4 of 4, tp of 4] dim 0 }"},
    // A mask that has no value on rank 2.
    {"HD0608", "mesh tp=3 in %q : f32[1, 2, 2] in %k : f32[1, 2, 2] "
               "out %o : f32[1, 2, 2] out %l : f32[1, 2] { "
               "%o, %l = attention %q, %k, %k "
               "causal tp * 9223372036854775807 }"},
    // Names whose blocks are as long, and whose rows are not.
    {"HD0801", "mesh tp=2 streams 1 out %y : f32[4, 3] "
               "temp %v : f32[3, 4] of %y { %y = fill value 1 fork "
               "on stream 0 { %y[:, tp of 2] = fill value 2 } "
               "%v[:, (tp + 1) mod 2 of 2] = fill value 3 join }"},
    {"HD0801", "mesh tp=4 streams 1 out %y : f32[5, 2] "
               "temp %v : f32[5, 2] of %y { %y = fill value 1 fork "
               "on stream 0 { %y[(tp - 1) mod 4 of 4] = fill value 2 } "
               "%v = fill value 3 join }"},
    {"HD0801", "mesh tp=2 streams 1 out %y : f32[2] "
               "temp %t : f32[4@tp, 2] temp %f : f32[2, 2] of %t { "
               "%f = fill value 1 fork "
               "on stream 0 { %t[tp of 2] = fill value 2 } "
               "%f[1] = fill value 3 join %y = copy %f[0] }"},
    {"HD0803", "mesh tp=2, dp=2 in %a : f32[3@tp, 2] out %y : f32[3@dp, 2] "
               "temp %t : f32[3@tp, 2] temp %f : f32[3@dp, 2] of %t { "
               "%t[tp of 2] = copy %a[tp of 2] "
               "%y[dp of 2] = copy %f[dp of 2] }"},
    {"HD0703", "mesh tp=2 in %a : f32[2] shared out %g : f32[2] shared { "
               "group { send %a to (tp + 1) mod 2 get "
               "%g = recv from (tp + 1) mod 2 } }"},
    // The axis that has masks is not the last one.
    {"HD0801", "mesh tp=2, dp=2 streams 1 in %q : f32[1, 2, 2] "
               "in %k : f32[1, 2, 2] "
               "out %o : f32[1, 2, 2] out %l : f32[1, 2] { "
               "%o, %l = attention %q, %k, %k fork "
               "on stream 0 { %o, %l = attention %q, %k, %k "
               "accumulate causal 2 * (tp - 1) } "
               "%o = fill value 1 join }"},
    // A fill that is a step where some rows are left out.
    {"HD0801", "mesh tp=2 streams 1 in %q : f32[1, 4, 2] in %l : f32[1, 4] "
               "out %a : f32[1, 4, 2] out %b : f32[1, 4, 2] "
               "out %c : f32[1, 4, 2] { fork "
               "on stream 0 { %b = fill value 0 } "
               "%a = fill value 0 %c = fill value 0 "
               "%a, %b, %c = attention_grad %q, %q, %q, %q, %l, %q "
               "accumulate zigzag tp join }"},
    // NCCL: a limit of ranks, and one call at a time.
    {"HD0709",
     "mesh tp=80 in %a : f32[8] shared out %y : f32[8] { "
     "%y = all_reduce %a max }",
     HD_TRANSPORT_NCCL},
    {"HD0708",
     "mesh tp=2 streams 2 in %a : f32[2] shared "
     "out %x : f32[2] shared out %y : f32[2] shared "
     "{ fork "
     "on stream 0 { send %a to (tp + 1) mod 2 } "
     "on stream 1 { %y = recv from (tp + 1) mod 2 } "
     "%x = fill value 1 join }",
     HD_TRANSPORT_NCCL},
    // An acknowledgement that rank 3 has nothing to give.
    {"HD0801",
     "param n=3 mesh tp=4 streams 2 in %a : f32[n@tp, 8] in %x : f32[8] "
     "out %t : f32[8] temp %s : f32[8] shared temp %k : f32[n, 8] shared "
     "temp %r : f32[8] shared { fork on stream 1 { %s = copy %x "
     "%t = copy %s send %a[tp of 4] to (tp + 1) mod 4 } on stream 0 { "
     "%k[(tp - 1) mod 4 of 4] = recv from (tp - 1) mod 4 group { "
     "send %x to (tp - 1) mod 4 %r = recv from (tp + 1) mod 4 } "
     "%s = copy %r } join }"},
    // It comes back to another rank.
    {"HD0801",
     "mesh tp=4 streams 2 in %x : f32[8] shared out %t : f32[8] "
     "temp %s : f32[8] shared temp %k : f32[8] shared "
     "temp %r : f32[8] shared { fork on stream 1 { %s = copy %x "
     "%t = copy %s send %x to (tp + 1) mod 4 } on stream 0 { "
     "%k = recv from (tp - 1) mod 4 group { send %x to (tp + 1) mod 4 "
     "%r = recv from (tp - 1) mod 4 } %s = copy %r } join }"},
    // Steps of some ranks: those of tp 0 are of dp 0, and those of tp 1 of
    // dp 1.
    {"HD0705", "mesh tp=2, dp=2 inout %x : f32[2] shared { "
               "if tp == dp { %x = all_reduce@dp %x } }"},
    // What moves nothing has no step, and counts.
    {"HD0704", "mesh tp=3 in %x : f32[2] temp %y : f32[2] shared { "
               "if tp == 0 { broadcast %x root 0 } "
               "else { %y[0..0] = broadcast root 0 } }"},
    {"HD0702", "mesh tp=3 in %x : f32[2] temp %y : f32[2] shared { group { "
               "if tp == 0 { send %x[0..0] to tp + 1 } "
               "if tp == 2 { %y[0..0] = recv from tp - 1 } "
               "if tp == 0 { send %x to tp + 1 } "
               "if tp == 1 { %y = recv from tp - 1 } } }"},
    // As many are sent as are received, and not by the same.
    {"HD0701", "mesh tp=4 in %x : f32[2] temp %y : f32[2] shared { group { "
               "if tp < 2 { send %x to (tp + 1) mod 4 } "
               "if tp < 2 { %y = recv from (tp - 1) mod 4 } } }"},
    {"HD0704", "mesh tp=2 inout %x : f32[2] shared { if tp == 0 { "
               "%x = all_reduce %x } else { %x = all_reduce %x max } }"},
    {"HD0705", "mesh tp=4 inout %x : f32[2] shared { "
               "if tp > 0 { %x = all_reduce %x } }"},
    // Blocks that are other numbers on each rank, of which some are empty.
    {"HD0702", "mesh tp=4 in %a : f32[5@tp, 2] shared out %g : f32[5, 2] "
               "shared { %g = fill value 1 group { "
               "send %a[tp of 4] to (tp + 1) mod 4 "
               "%g[(tp + 2) mod 4 of 4] = recv from (tp - 1) mod 4 } "
               "%g[0] = fill value 1 }"},
    {"HD0702", "mesh tp=4 in %a : f32[5@tp, 2] shared out %g : f32[5, 2] "
               "shared { %g = fill value 1 group { "
               "send %a[tp of 4] to (tp + 1) mod 4 "
               "send %g[tp of 4] to (tp + 1) mod 4 } group { "
               "%g[(tp - 1) mod 4 of 4] = recv from (tp - 1) mod 4 "
               "%g[tp of 4] = recv from (tp - 1) mod 4 } "
               "%g[0] = fill value 1 }"},
    {"HD0702", "mesh tp=4 in %a : f32[5@tp, 2] shared out %g : f32[5, 2] "
               "shared { %g = fill value 1 group { "
               "send %a[tp of 4] to (tp + 1) mod 4 "
               "if tp > 0 { %g[(tp + 3) mod 4 of 4] = recv from (tp - 1) mod 4 "
               "} else { %g[0 of 4] = recv from 3 } } "
               "%g[0] = fill value 1 }"},
    // A collective leads to all ranks.
    {"HD0706", "mesh tp=4 inout %x : f32[2] shared { "
               "if tp > 0 { %x = recv from tp - 1 } %x = all_reduce %x "
               "if tp < 3 { send %x to tp + 1 } }"},
    // What some ranks record, write or wait for others do not.
    {"HD0605", "mesh tp=4 streams 1 inout %x : f32[2] temp %e : event[1] { "
               "if tp < 2 { %e[0] = record } on stream 0 { if tp < 3 { "
               "wait %e[0] %x = fill value 1 } } join }"},
    {"HD0707", "mesh tp=4 out %e : event[] { if tp < 3 { %e = record } }"},
    {"HD0707", "mesh tp=4 out %y : f32[2] { if tp > 0 { %y = fill value 1 } }"},
    {"HD0803", "mesh tp=4 temp %t : f32[2] inout %x : f32[2] { "
               "if tp < 2 { %t = copy %x } if tp > 0 { %x = copy %t } }"},
    {"HD0801", "mesh tp=4 streams 2 inout %x : f32[2] temp %e : event[1] { "
               "fork on stream 0 { %x = fill value 1 %e[0] = record } "
               "on stream 1 { if tp > 0 { wait %e[0] } %x = fill value 2 } "
               "join }"},
    {"HD0801", "mesh tp=4 streams 2 inout %x : f32[2] temp %e : event[1] { "
               "fork on stream 0 { if tp == 0 { %x = fill value 1 } } "
               "on stream 1 { if tp == 3 { %x = fill value 2 } "
               "%e[0] = record } on stream 0 { if tp < 3 { wait %e[0] } "
               "%x = fill value 3 } join }"},
    {"HD0801", "mesh tp=4 inout %x : f32[2] in %a : f32[2] shared "
               "temp %y : f32[2] shared temp %e : event[1] { "
               "send %x to (tp + 1) mod 4 done %e[0] "
               "%y = recv from (tp - 1) mod 4 if tp < 3 { wait %e[0] } "
               "%x = copy %a if tp == 3 { wait %e[0] } }"},
    {"HD0807", "mesh tp=4 inout %x : f32[2] inout %o : f32[2] "
               "temp %t : f32[2] temp %u : f32[2] of %t { %t = copy %x "
               "if tp == 2 { %u = copy %x } %o = copy %t }"},
};

} // namespace

TEST(Symmetry, TheFirstRankDoesNotHideWhatOthersShow)
{
    for (const Trap &trap : kTraps) {
        Program p(std::string("host program t ") + trap.text);
        hd_check_options options = hd_check_defaults();
        bool first = false;

        EXPECT_EQ(p.status, HD_OK) << trap.text << p.Said();
        if (p.status != HD_OK)
            continue;
        hd_module full = hd_module_full(p.module);
        options.transport = trap.transport;
        EXPECT_EQ(hd_prove_first(&full, &options, nullptr, &first), HD_OK);
        EXPECT_FALSE(first) << trap.text;
        EXPECT_EQ(hd_prove_all(&full, &options, p.diag), HD_ERROR_INVALID)
            << trap.text;
        EXPECT_NE(p.Said().find(trap.code), std::string::npos)
            << trap.text << p.Said();
    }
}

// Sends of blocks that turn meet recvs of blocks that are another number on
// each rank, none of which the last one has.
TEST(Symmetry, RanksOfOneListHaveTransfersOfTheirOwn)
{
    const char *const texts[] = {
        "mesh tp=4 in %a : f32[5@tp, 2] shared temp %g : f32[5, 2] shared "
        "out %y : f32[5, 2] { %g[tp of 4] = copy %a[tp of 4] for i in 0..3 { "
        "group { send %a[tp of 4] to (tp + i + 1) mod 4 "
        "%g[(tp - i - 1) mod 4 of 4] = recv from (tp - i - 1) mod 4 } } "
        "for j in 0..5 { %y[j] = relu %g[j] } }",
        "mesh tp=4 in %x : f32[8@tp, 4, 2] temp %t : f32[4, 8@tp, 2] shared "
        "out %y : f32[8, 2] shared { "
        "for i in 0..4 { %t[i, tp of 4] = copy %x[tp of 4, i] } "
        "%y[tp of 4] = copy %t[tp, tp of 4] for i in 0..3 { "
        "group { send %t[(tp + i + 1) mod 4, tp of 4] to (tp + i + 1) mod 4 "
        "%y[(tp - i - 1) mod 4 of 4] = recv from (tp - i - 1) mod 4 } } }",
    };

    for (const char *text : texts) {
        Program p(std::string("host program t ") + text);
        hd_check_options options = hd_check_defaults();
        bool first = false;

        ASSERT_EQ(p.status, HD_OK) << text << p.Said();
        EXPECT_EQ(hd_prove_first(p.module, &options, nullptr, &first), HD_OK);
        EXPECT_TRUE(first) << text;
        EXPECT_EQ(hd_prove_all(p.module, &options, p.diag), HD_OK) << p.Said();
    }
}

// What is full is too much to number: 2^72 elements.
TEST(Symmetry, FullBlocksAreNoMoreThanABufferMayHave)
{
    std::string of = "tp of 4096";
    Program p("host program t mesh tp=4096 inout %x : f32[1, 1, 1, 1, 1, 1] "
              "{ %x[" +
              of + ", " + of + ", " + of + ", " + of + ", " + of + ", " + of +
              "] = fill value 1 }");
    hd_check_options options = hd_check_defaults();
    bool first = true;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_prove_first(p.module, &options, p.diag, &first), HD_OK);
    EXPECT_FALSE(first);
    EXPECT_EQ(p.Said(), "");
    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_OK) << p.Said();
}

// Rank 0 stores what rank 1 adds to a fill.
TEST(Symmetry, RanksOfOtherMasksMayHaveOtherFills)
{
    Program p("host program t mesh tp=2 in %q : f32[1, 4, 2] "
              "in %l : f32[1, 4] out %a : f32[1, 4, 2] out %b : f32[1, 4, 2] "
              "out %c : f32[1, 4, 2] { %a = fill value 0 %b = fill value 0 "
              "%c = fill value 0 %a, %b, %c = attention_grad %q, %q, %q, %q, "
              "%l, %q accumulate zigzag tp }");
    hd_symmetry symmetry;
    int64_t steps[2];

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_EQ(hd_module_step_counts(p.module, nullptr, steps), HD_OK);
    EXPECT_LT(steps[0], steps[1]);
    EXPECT_EQ(hd_symmetry_find(p.module, nullptr, &symmetry), HD_OK);
    EXPECT_TRUE(symmetry.turns[0]);
    EXPECT_FALSE(symmetry.steps);
}

// Each let names the one ahead of it three times, and is followed once a rank.
TEST(Symmetry, LetsThatUseLetsAreFollowedOnce)
{
    std::string text = "host program t mesh tp=4 in %q : f32[1, 4, 2] "
                       "in %k : f32[1, 4, 2] out %o : f32[1, 4, 2] "
                       "out %l : f32[1, 4] { let a = tp ";
    std::string last = "a";

    for (int i = 0; i < 60; i++) {
        std::string name = "a" + std::to_string(i);

        text += "let " + name + " = (" + last + " + " + last + " - " + last +
                ") mod 4 ";
        last = name;
    }
    Program p(text + "%o, %l = attention %q, %k, %k zigzag " + last +
              " - tp }");
    hd_check_options options = hd_check_defaults();
    bool first = false;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_prove_first(p.module, &options, p.diag, &first), HD_OK);
    EXPECT_TRUE(first) << p.Said();
}
