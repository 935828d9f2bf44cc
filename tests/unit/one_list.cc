// Ranks that issue some of the steps each: one list of all of them is proven,
// and what it hides is told.
#include <string>
#include <vector>

#include "check/prove.h"
#include "ir/symmetry.h"
#include "tests/unit/program.h"

namespace
{

struct Verdict {
    bool splits = false, first = false, all = false;
    std::string said;
};

Verdict Prove(const std::string &text,
              hd_transport transport = HD_TRANSPORT_COPY)
{
    Program p("host program t " + text);
    hd_check_options options = hd_check_defaults();
    hd_symmetry turns, split;
    Verdict v;

    EXPECT_EQ(p.status, HD_OK) << text << p.Said();
    if (p.status != HD_OK)
        return v;
    hd_module full = hd_module_full(p.module);
    options.transport = transport;
    EXPECT_EQ(hd_symmetry_find(&full, nullptr, &turns), HD_OK);
    for (int axis = 0; axis < full.naxes; axis++) {
        split = turns;
        EXPECT_EQ(hd_symmetry_split(&full, axis, nullptr, &split), HD_OK);
        v.splits |= split.split >= 0;
    }
    EXPECT_EQ(hd_prove_first(&full, &options, nullptr, &v.first), HD_OK);
    v.all = hd_prove_all(&full, &options, p.diag) == HD_OK;
    v.said = p.Said();
    return v;
}

std::string Put(std::string text, const std::string &what,
                const std::string &by)
{
    for (size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + by.size()))
        text.replace(at, what.size(), by);
    return text;
}

// Each rank hands on what has come, to the last one.
const std::string kChain =
    "in %x : f32[size tp @tp, 4] out %y : f32[size tp, 4] shared "
    "{ %y[tp] = copy %x[tp] for j in 0..tp + 1 { let b = tp - j group { "
    "if tp < size tp - 1 { send %y[b] to tp + 1 } "
    "if 0 < b { %y[b - 1] = recv from tp - 1 } } } "
    "for k in 1..size tp - tp { %y[tp + k] = fill value 0 } }";

const std::string kBroadcast =
    "in %x : f32[22@tp, 4] temp %g : f32[22, 4] shared out %y : f32[22, 4] "
    "{ fork for j in 0..size tp { on stream j mod 2 { if j == tp { "
    "broadcast %x[tp of size tp] root j } else { "
    "%g[j of size tp] = broadcast root j } if j == tp { "
    "%y[tp of size tp] = copy %x[tp of size tp] } else { "
    "%y[j of size tp] = copy %g[j of size tp] } } } join }";

const std::string kReduce =
    "in %x : f32[m, 4] out %y : f32[m@tp, 4] temp %s : f32[m, 4] shared { fork "
    "for j in 0..size tp { on stream j mod 2 { "
    "%s[j of size tp] = copy %x[j of size tp] "
    "%y[tp of size tp] = reduce %s[j of size tp] root j } } join }";

// Keys of ranks behind the own one are left out.
const std::string kCausal =
    "in %q : f32[size tp @tp, 1, 2, 4] out %o : f32[size tp @tp, 1, 2, 4] "
    "out %l : f32[size tp @tp, 1, 2] temp %k : f32[2, 1, 2, 4] shared { fork "
    "for j in 0..size tp { on stream j mod 2 { "
    "let i = (tp + j) mod size tp if j == 0 { "
    "%o[tp], %l[tp] = attention %q[tp], %q[tp], %q[tp] causal 0 } else { "
    "let to = (tp - j) mod size tp group { "
    "if -2 < to * 2 - tp * 2 { send %q[tp] to to } "
    "if -2 < tp * 2 - i * 2 { %k[j mod 2] = recv from i } } "
    "%o[tp], %l[tp] = attention %q[tp], %k[j mod 2], %k[j mod 2] accumulate "
    "causal tp * 2 - i * 2 } } join fork } join }";

const std::string kPadded =
    "in %x : f32[13@tp, 2] temp %p : f32[4, 2] temp %g : f32[4, 4, 2] shared "
    "out %y : f32[13, 2] { "
    "%p[min(tp * 4 + 4, 13) - tp * 4..4] = fill value 0 "
    "%p[0..min(tp * 4 + 4, 13) - tp * 4] = copy %x[tp of 4] "
    "%g = all_gather %p for i in 0..4 { "
    "%y[i of 4] = copy %g[i, 0..min(i * 4 + 4, 13) - i * 4] } }";

// Each rank keeps its own block of what all have.
const std::string kAgain =
    "temp %g : f32[18, 2] shared temp %h : f32[18, 2] out %y : f32[18@tp, 2] "
    "{ %g = fill value 0 for i in 0..5 { "
    "%g[i of 5] = broadcast %x[tp of 5] root i } fork for j in 0..5 { "
    "on stream j mod 2 { %h[j of 5] = relu %g[j of 5] } } join "
    "%y[tp of 5] = copy %h[tp of 5] }";

TEST(OneList, WhatRanksIssueInPartIsProvenOnOneList)
{
    const std::string programs[] = {
        "mesh tp=5 streams 2 " + kChain,
        "mesh tp=4 streams 2 " + kBroadcast,
        "param m in 1..23 mesh tp=5 streams 2 " + kReduce,
        "mesh tp=5 streams 2 " + kCausal,
        "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] "
        "temp %t : f32[4] shared { if tp == 2 { broadcast %x root 2 } else { "
        "%t = broadcast root 2 } if tp == 2 { %y = copy %x } else { "
        "%y = copy %t } }",
        // A line of each rank of another axis, which is not turned.
        "mesh dp=2, tp=4 streams 2 inout %x : f32[4] shared "
        "out %y : f32[2, 4] shared { if tp == 3 { %x = all_reduce@dp %x } "
        "if dp == 0 { %y[0] = copy %x %y[1] = recv@dp from 1 } else { "
        "%y[1] = copy %x send@dp %x to 0 %y[0] = fill value 0 } }",
        // Events that some ranks record, and these wait for.
        "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] temp %t : f32[4] "
        "temp %e : event[1] { fork on stream 0 { %t = copy %x "
        "if 1 <= tp and tp < 3 { %e[0] = record } } on stream 1 { "
        "if tp == 1 or tp == 2 { wait %e[0] %y = copy %t } } join "
        "if tp < 1 or 2 < tp { %y = copy %t } }",
        // By numbers, of one rank each.
        "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] "
        "temp %z : f32[4] shared { group { if tp == 3 { send %x to 1 } "
        "if tp == 1 { %z = recv from 3 } } if tp == 1 { %y = copy %z } else { "
        "%y = copy %x } }",
        // The last rank has less than the others, or none.
        "mesh tp=4 streams 2 " + kPadded,
        "mesh tp=5 streams 2 in %x : f32[18@tp, 2] " + kAgain,
        "mesh tp=5 streams 2 in %x : f32[16@tp, 2] " +
            Put(Put(kAgain, "18", "16"), "%y[tp", "if tp < 4 { %y[tp") + " }",
        // By two names, each on some ranks.
        "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] temp %q : f32[4] "
        "temp %p : f32[4] of %q { %q = copy %x if tp < 2 { %p = copy %x } "
        "if 1 < tp { %p = fill value 1 } %y = copy %p }",
        // No rank reads what it overwrites.
        "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] temp %t : f32[4] "
        "{ %t = copy %x fork on stream 0 { if tp < 2 { %y = copy %t } } "
        "on stream 1 { if 1 < tp { %t = fill value 0 } } join "
        "if 1 < tp { %y = copy %t } }",
        // Indices that do not turn.
        "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[7, 4] "
        "temp %e : event[8] { %y = fill value 0 fork on stream 0 { "
        "%y[2 * tp] = copy %x %e[2 * tp + 1] = record } on stream 1 { "
        "wait %e[2 * tp + 1] %y[6 - 2 * tp] = copy %x } join }",
    };

    for (const std::string &text : programs)
        for (hd_transport transport : {HD_TRANSPORT_COPY, HD_TRANSPORT_NCCL}) {
            Verdict v = Prove(text, transport);

            EXPECT_TRUE(v.all) << text << v.said;
            EXPECT_TRUE(v.splits) << text;
            EXPECT_TRUE(v.first) << text;
        }
}

struct Trap {
    const char *code, *text;
};

const Trap kTraps[] = {
    // Only rank 0 waits.
    {"HD0801",
     "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] temp %t : f32[4] "
     "temp %e : event[1] { fork on stream 0 { %t = copy %x %e[0] = record } "
     "on stream 1 { if tp == 0 { wait %e[0] } %y = copy %t } join }"},
    // Rank 0's wait is not rank 1's, which comes later on the stream.
    {"HD0801",
     "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] temp %t : f32[4] "
     "temp %e : event[1] { fork on stream 0 { %t = copy %x %e[0] = record } "
     "on stream 1 { if tp == 0 { wait %e[0] } if tp == 1 { wait %e[0] } "
     "if tp < 2 { %y = copy %t } } if 1 < tp { %y = fill value 0 } join "
     "on stream 1 { if 1 < tp { %t = fill value 1 } } on stream 0 { "
     "if 2 < tp { %t = fill value 2 } } join }"},
    // Rank 3 waits for what it has not recorded.
    {"HD0605",
     "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] temp %t : f32[4] "
     "temp %e : event[1] { fork on stream 0 { %t = copy %x "
     "if tp < 3 { %e[0] = record } } on stream 1 { wait %e[0] %y = copy %t } "
     "join }"},
    // What rank 0 wrote first the others overwrite, on another stream.
    {"HD0801",
     "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] temp %t : f32[4] "
     "temp %e : event[1] { fork on stream 0 { if tp == 0 { %t = copy %x } } "
     "on stream 1 { if 0 < tp { %t = copy %x } %y = copy %t } join }"},
    // Rank 2 has not received it.
    {"HD0803",
     "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] "
     "temp %t : f32[4] shared { group { if tp < 2 { send %x to tp + 1 } "
     "if 0 < tp and tp < 3 { %t = recv from tp - 1 } } if 0 < tp { "
     "%y = copy %t } else { %y = copy %x } }"},
    {"HD0707", "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] { "
               "if tp < 3 { %y = copy %x } }"},
    {"HD0705",
     "mesh tp=4 streams 2 in %x : f32[4] shared out %y : f32[4] shared { "
     "if tp < 3 { %y = all_reduce %x } else { %y = copy %x } }"},
    // Of each rank of dp another one of tp.
    {"HD0705",
     "mesh tp=4, dp=2 streams 2 in %x : f32[4] shared out %y : f32[4] "
     "temp %z : f32[4] shared { if tp == dp { %z = all_reduce@dp %x } "
     "%y = copy %x }"},
    {"HD0701",
     "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] shared { %y = copy %x "
     "group { if tp < 3 { send %x to tp + 1 } %y = recv from (tp - 1) mod 4 } "
     "}"},
    // The second one that is sent is the first one that is received.
    {"HD0702",
     "mesh tp=4 streams 2 in %x : f32[4] in %v : f32[8] out %y : f32[4] shared "
     "out %z : f32[8] shared { group { if tp == 0 { send %v to 1 } "
     "if tp == 0 { send %x to 1 } if tp == 1 { %y = recv from 0 } "
     "if tp == 1 { %z = recv from 0 } } if tp == 1 { } else { %y = copy %x "
     "%z = copy %v } }"},
    // One root says itself, the others the next one.
    {"HD0704",
     "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] "
     "temp %t : f32[4] shared { if tp == 2 { broadcast %x root 2 } else { "
     "if tp == 3 { broadcast %x root 3 } else { %t = broadcast root 2 } } "
     "%y = copy %x }"},
    // As long as another block, where that is short.
    {"HD0704",
     "mesh tp=4 streams 2 in %x : f32[7@tp, 4] temp %g : f32[7, 4] shared "
     "out %y : f32[7, 4] { for j in 0..4 { if j == tp { "
     "broadcast %x[tp of 4] root j } else { "
     "%g[(j + 1) mod 4 of 4] = broadcast root j } } %y = fill value 0 }"},
    // Each rank waits for what the one behind it sends after it has met all.
    {"HD0706",
     "mesh tp=4 streams 2 in %x : f32[4] shared out %y : f32[4] shared "
     "temp %z : f32[4] shared { if 0 < tp { %y = recv from tp - 1 } else { "
     "%y = copy %x } %z = all_reduce %x if tp < 3 { send %x to tp + 1 } }"},
    // The event of a send that only some wait for.
    {"HD0801",
     "mesh tp=4 streams 2 inout %x : f32[4] shared out %y : f32[4] shared "
     "temp %e : event[1] { group { send %x to (tp + 1) mod 4 done %e[0] "
     "%y = recv from (tp - 1) mod 4 } if tp < 2 { wait %e[0] } "
     "%x = fill value 0 if 1 < tp { wait %e[0] } }"},
    // Keys that a rank leaves out are not read elsewhere.
    {"HD0803",
     "mesh tp=4 streams 2 in %q : f32[4@tp, 1, 2, 4] "
     "out %o : f32[4@tp, 1, 2, 4] out %l : f32[4@tp, 1, 2] "
     "temp %k : f32[1, 2, 4] shared out %y : f32[1, 2, 4] { group { "
     "if tp < 3 { send %q[tp] to tp + 1 } if 0 < tp { %k = recv from tp - 1 } "
     "} %o[tp], %l[tp] = attention %q[tp], %q[tp], %q[tp] causal 0 "
     "%o[tp], %l[tp] = attention %q[tp], %k, %k accumulate "
     "causal tp * 2 - 1 %y = fill value 0 }"},
    // A mask that another axis, which turns, has a part in.
    {"HD0801",
     "mesh dp=2, tp=4 streams 2 in %q : f32[1, 2, 4] in %k : f32[1, 2, 4] "
     "out %o : f32[1, 2, 4] out %l : f32[1, 2] out %y : f32[1, 2, 4] "
     "out %z : f32[1, 2, 4] { if tp == 0 { %z = copy %q } else { %z = copy %k "
     "} fork on stream 0 { %o, %l = attention %q, %k, %k causal 0 } join fork "
     "on stream 0 { %o, %l = attention %q, %k, %k accumulate "
     "causal tp * 2 + dp * 10 - 10 } on stream 1 { if 1 < tp { %y = copy %o } "
     "} join if tp < 2 { %y = copy %o } }"},
    // One that is further than masks go.
    {"HD0801",
     "mesh tp=4 streams 2 in %q : f32[1, 2, 4] in %k : f32[1, 2, 4] "
     "out %o : f32[1, 2, 4] out %l : f32[1, 2] out %y : f32[1, 2, 4] "
     "out %z : f32[1, 2, 4] { if tp == 0 { %z = copy %q } else { %z = copy %k "
     "} fork on stream 0 { %o, %l = attention %q, %k, %k causal 0 } join fork "
     "on stream 0 { %o, %l = attention %q, %k, %k accumulate "
     "causal tp * 2000000000 } on stream 1 { if 1 < tp { %y = copy %o } } "
     "join if tp < 2 { %y = copy %o } }"},
    // Rows of three columns, which count as four blocks.
    {"HD0702", "mesh tp=4 inout %y : f32[12, 3] shared "
               "temp %w : f32[12, 3] shared { %w[:, tp of 4] = fill value 1 "
               "group { send %y[0 of 3] to (tp + 3) mod 4 "
               "%w[1 of 4] = recv from (tp + 1) mod 4 } }"},
    {"HD0704", "mesh tp=4, dp=2 inout %y : f32[12, 3] shared "
               "temp %w : f32[12, 3] shared { %w[:, tp of 4] = fill value 1 "
               "if dp == 0 { %y[0 of 3] = all_reduce@dp %y[0 of 3] } else { "
               "%w[1 of 4] = all_reduce@dp %w[1 of 4] } }"},
    // Nothing is beside what the last rank has.
    {"HD0803", "mesh tp=4 streams 2 in %x : f32[13@tp, 2] temp %p : f32[4, 2] "
               "out %g : f32[4, 4, 2] shared { "
               "%p[0..min(tp * 4 + 4, 13) - tp * 4] = copy %x[tp of 4] "
               "%g = all_gather %p }"},
    // A block that is written on another stream, of each rank another one.
    {"HD0801", "mesh tp=5 streams 2 in %x : f32[18, 2] temp %h : f32[18, 2] "
               "out %y : f32[18@tp, 2] { fork on stream 0 { for j in 0..5 { "
               "%h[j of 5] = copy %x[j of 5] } } on stream 1 { "
               "%y[tp of 5] = copy %h[tp of 5] } join }"},
    // Of five blocks the fourth one is not the last.
    {"HD0707", "mesh tp=5 streams 2 in %x : f32[16, 2] "
               "out %y : f32[16@tp, 2] { if tp < 3 { "
               "%y[tp of 5] = copy %x[tp of 5] } }"},
    // Ranks 2 and 3 have written it by the other name since.
    {"HD0807", "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] "
               "temp %q : f32[4] temp %p : f32[4] of %q { %q = fill value 0 "
               "%p = copy %x %q = fill value 2 if tp < 2 { %p = copy %x } "
               "%y = copy %p }"},
    // Rank 2 reads what it overwrites.
    {"HD0801",
     "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[4] temp %t : f32[4] "
     "{ %t = copy %x fork on stream 0 { if tp < 3 { %y = copy %t } } "
     "on stream 1 { if 1 < tp { %t = fill value 0 } } join "
     "if 2 < tp { %y = copy %t } }"},
    {"HD0601", "mesh tp=4 streams 2 in %x : f32[4] out %y : f32[6, 4] { "
               "%y = fill value 0 %y[2 * tp] = copy %x }"},
    // Of one block, of which a bound is no other on any rank.
    {"HD0601", "mesh tp=3 in %x : f32[3] out %y : f32[3] { "
               "%y[tp of 1] = copy %x }"},
    // Of a let, an index out of range on the last rank.
    {"HD0601", "mesh tp=4 streams 2 in %x : f32[4, 4] out %y : f32[4, 4] { "
               "for j in 0..4 { %y[(tp + j) mod 4] = copy %x[j] } if 0 < tp { "
               "%y[tp + 1] = copy %x[0] } }"},
};

TEST(OneList, OneListDoesNotHideWhatRanksShow)
{
    for (const Trap &trap : kTraps) {
        Verdict v = Prove(trap.text);

        EXPECT_FALSE(v.first) << trap.text;
        EXPECT_FALSE(v.all) << trap.text;
        EXPECT_NE(v.said.find(trap.code), std::string::npos)
            << trap.text << v.said;
    }
}

TEST(OneList, ManyRanksAreProvenOnOneList)
{
    for (const std::string &body : {kChain, kBroadcast, kCausal}) {
        Program p("host program t mesh tp=4096 streams 2 " + body);

        ASSERT_EQ(p.status, HD_OK) << p.Said();
        EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_OK) << p.Said();
    }
}

} // namespace
