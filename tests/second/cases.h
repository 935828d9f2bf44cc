// Host programs whose verdict is plain to see from docs/semantics.md: each rule
// broken, and beside it what is as near to that as a program can come.
#ifndef HD_TESTS_SECOND_CASES_H
#define HD_TESTS_SECOND_CASES_H

#include "tests/second/unroll.h"

namespace second
{

struct Case {
    const char *name, *text;
    std::vector<Rule> broken;
};

const std::vector<Case> kCases = {
    // ------------------------------------------------ what depends on the rank
    {"index",
     "mesh tp=2 in %x : f32[2, 2] out %y : f32[2] "
     "{ %y = copy %x[tp + 1] }",
     {INVALID}},
    {"stream",
     "mesh tp=2 streams 2 in %x : f32[2] out %y : f32[2] "
     "{ fork on stream tp + 1 { %y = copy %x } join }",
     {INVALID}},
    {"oneself",
     "mesh tp=2 in %x : f32[2] inout %y : f32[2] shared "
     "{ group { send %x to 0 %y = recv from 1 } }",
     {INVALID}},
    {"wait",
     "in %x : f32[2] out %y : f32[2] temp %e : event[2] "
     "{ %e[0] = record wait %e[1] %y = copy %x }",
     {INVALID}},
    {"wait for the caller",
     "in %x : f32[2] out %y : f32[2] in %e : event[] "
     "{ wait %e %y = copy %x }",
     {}},
    {"wait for several, of which one is not recorded",
     "in %x : f32[2] out %y : f32[2] in %go : event[] temp %e : event[2] "
     "{ %e[0] = record wait %e[0], %go, %e[1] %y = copy %x }",
     {INVALID}},
    {"divisor",
     "mesh tp=2 in %x : f32[2, 2] out %y : f32[2] "
     "{ %y = copy %x[0 mod tp] }",
     {INVALID}},
    {"divisor that is not reached",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] "
     "{ if tp > 0 and 4 / tp > 3 { %y = relu %x } else { %y = copy %x } }",
     {}},
    {"divisor of a ceiling",
     "mesh tp=2 in %x : f32[2, 2] out %y : f32[2] "
     "{ %y = copy %x[cdiv(0, tp)] }",
     {INVALID}},
    {"the smaller and the larger",
     "mesh tp=3 in %x : f32[2, 2] out %y : f32[cdiv(7, 4)] "
     "{ %y = copy %x[min(tp, 1)] %y = copy %x[max(tp, 1) - cdiv(tp, 2)] }",
     {}},
    {"neither the smaller nor the larger",
     "mesh tp=3 in %x : f32[2, 2] out %y : f32[2] "
     "{ %y = copy %x[max(tp, 1)] }",
     {INVALID}},
    {"a ceiling too high",
     "mesh tp=3 in %x : f32[2, 2] out %y : f32[2] "
     "{ %y = copy %x[cdiv(tp + 1, 2)] }",
     {INVALID}},
    // --------------------------------------------------------------- emptiness
    {"nothing",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] "
     "{ %y = copy %x %y[1..1 + tp] = relu %x[1..1 + tp] }",
     {}},
    {"less than nothing",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] "
     "{ %y = copy %x %y[1..1 - tp] = relu %x[1..1 - tp] }",
     {INVALID}},
    {"nothing past the end",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] "
     "{ %y = copy %x %y[3..3] = relu %x[0..0] }",
     {INVALID}},
    {"nothing to sum",
     "mesh tp=2 in %x : f32[2, 2] out %y : f32[2] "
     "{ %y = sum %x[0..tp] dim 0 }",
     {INVALID}},
    {"nothing to sum into nothing",
     "mesh tp=2 in %x : f32[2, 2] out %y : f32[2] "
     "{ %y = copy %x[0] %y[0..tp] = sum %x[0..tp, 0..tp] dim 0 }",
     {}},
    {"nothing to broadcast, something to receive",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared "
     "{ %y = copy %x if tp == 0 { broadcast %x[0..tp] root 0 } else "
     "{ %y[0..tp] = broadcast root 0 } }",
     {MISMATCH}},
    {"an output of nothing",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] { %y[0..2 * tp] = copy "
     "%x[0..2 * tp] }",
     {HOLE}},
    {"nothing sent, nothing received",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared { %y = copy %x "
     "group { send %x[0..tp] to 1 - tp %y[0..1 - tp] = recv from 1 - tp } }",
     {}},
    {"nothing sent, something received",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared { %y = copy %x "
     "group { send %x[0..tp] to 1 - tp %y[0..tp] = recv from 1 - tp } }",
     {MISMATCH}},
    {"nothing sent ahead of what the other receives first",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared { %y = copy %x "
     "for i in 0..2 { group { send %x[0..i] to 1 - tp "
     "%y[0..1 - i] = recv from 1 - tp } } }",
     {MISMATCH}},
    {"nothing sent and nobody who receives",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared { %y = copy %x "
     "send %x[1..1] to 1 - tp }",
     {}},
    {"nothing sent is done at once",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared temp %e : event[] "
     "{ %y = copy %x if tp == 0 { send %x[0..tp] to 1 done %e "
     "wait %e %y[0..1] = recv from 1 } else { send %x[0..1] to 0 } }",
     {}},
    {"an event of nothing stands before its group",
     "mesh tp=2 streams 2 in %x : f32[2] inout %y : f32[2] shared "
     "out %z : f32[2] temp %e : event[] { fork on stream 0 { "
     "group { %y[0..1] = recv from 1 - tp send %x[0..1] to 1 - tp "
     "send %x[2..2] to 1 - tp done %e } } "
     "on stream 1 { wait %e %z = copy %y } join }",
     {RACE}},
    {"broadcast without a view",
     "mesh tp=2 in %x : f32[2] "
     "{ broadcast %x root 0 }",
     {INVALID}},
    {"reduce without a result",
     "mesh tp=2 inout %x : f32[2] shared "
     "{ reduce %x root 0 }",
     {INVALID}},
    {"reduce whose root alone names a result",
     "mesh tp=2 inout %x : f32[2] shared "
     "{ if tp == 1 { %x = reduce %x root 1 } else { reduce %x root 1 } }",
     {}},
    // --------------------------------------------------------------- matching
    {"send alone",
     "mesh tp=2 in %x : f32[2] "
     "{ if tp == 0 { send %x to 1 } }",
     {MISMATCH}},
    {"recv alone",
     "mesh tp=2 out %y : f32[2] shared "
     "{ %y = recv from 1 - tp }",
     {MISMATCH}},
    {"sizes",
     "mesh tp=2 in %x : f32[2] out %y : f32[3] shared { if tp == 0 { "
     "send %x to 1 } else { %y = recv from 0 } }",
     {MISMATCH}},
    {"dtypes",
     "mesh tp=2 in %x : f32[2] inout %y : i32[2] shared { if tp == 0 "
     "{ send %x to 1 } else { %y = recv from 0 } }",
     {MISMATCH}},
    {"protocols",
     "mesh tp=2 in %x : f32[2] shared inout %y : f32[2] shared "
     "{ if tp == 0 { send %x to 1 get } else { %y = recv from 0 } "
     "}",
     {MISMATCH}},
    {"get",
     "mesh tp=2 in %x : f32[2] shared inout %y : f32[2] "
     "{ if tp == 0 { send %x to 1 get } else { %y = recv from 0 get } "
     "}",
     {}},
    {"different collectives",
     "mesh tp=2 inout %x : f32[2] shared { if tp == 0 { %x = all_reduce %x } "
     "else { %x = all_reduce %x max } }",
     {MISMATCH}},
    {"a sum and a minimum",
     "mesh tp=2 inout %x : f32[2] shared { if tp == 0 { %x = all_reduce %x min "
     "} else { %x = all_reduce %x } }",
     {MISMATCH}},
    {"different reductions",
     "mesh tp=2 inout %x : f32[2] shared { if tp == 0 { %x = all_reduce %x min "
     "} else { %x = all_reduce %x max } }",
     {MISMATCH}},
    {"the same reduction",
     "mesh tp=2 inout %x : f32[2] shared { if tp == 0 { %x = all_reduce %x min "
     "} else { %x = all_reduce %x min } }",
     {}},
    {"different roots",
     "mesh tp=2 inout %x : f32[2] shared { %x = broadcast %x root tp }",
     {MISMATCH}},
    {"different roots of a sum",
     "mesh tp=2 inout %x : f32[2] shared { %x = reduce %x root tp }",
     {MISMATCH}},
    {"a sum and a maximum for one root",
     "mesh tp=2 inout %x : f32[2] shared { if tp == 0 { %x = reduce %x root 0 "
     "} else { reduce %x root 0 max } }",
     {MISMATCH}},
    {"collective alone",
     "mesh tp=2 inout %x : f32[2] shared "
     "{ if tp == 0 { %x = all_reduce %x } }",
     {MISMATCH}},
    {"collectives of two axes",
     "mesh dp=2, tp=2 inout %x : f32[2] shared inout %y : f32[2] shared "
     "{ %x = all_reduce@tp %x %y = all_reduce@dp %y }",
     {}},
    // --------------------------------------------------------------- deadlock
    {"both send first",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared "
     "{ send %x to 1 - tp %y = recv from 1 - tp }",
     {DEADLOCK}},
    {"both at once",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared "
     "{ group { send %x to 1 - tp %y = recv from 1 - tp } }",
     {}},
    {"one send deferred",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] shared temp %e : event[] "
     "{ send %x to 1 - tp done %e %y = recv from 1 - tp wait %e }",
     {}},
    {"transfers start in issue order",
     "mesh tp=2 streams 2 inout %x : f32[2] shared inout %y : f32[2] shared "
     "{ fork if tp == 0 { on stream 0 { send %x to 1 } on stream 1 { "
     "%y = recv from 1 } } else { on stream 0 { send %y to 0 } on stream 1 { "
     "%x = recv from 0 } } join }",
     {}},
    {"and wait in it",
     "mesh tp=3 streams 2 inout %w : f32[2] shared inout %x : f32[2] shared "
     "inout %z : f32[2] shared { fork if tp == 0 { on stream 0 { %x = recv "
     "from 1 } on stream 1 { %z = all_reduce %z } } else { if tp == 1 { "
     "%z = all_reduce %z send %x to 0 } else { %z = all_reduce %z } } join }",
     {}},
    {"behind a stream",
     "mesh tp=3 inout %x : f32[2] shared inout %z : f32[2] shared "
     "{ if tp == 0 { %x = recv from 1 %z = all_reduce %z } else { if tp == 1 { "
     "%z = all_reduce %z send %x to 0 } else { %z = all_reduce %z } } }",
     {DEADLOCK}},
    // ---------------------------------------------------------------- outputs
    {"hole", "in %x : f32[2] out %y : f32[2] { %y[0] = copy %x[0] }", {HOLE}},
    {"whole",
     "in %x : f32[2] out %y : f32[2] "
     "{ for i in 0..2 { %y[i] = copy %x[i] } }",
     {}},
    {"through another name",
     "in %x : f32[4] out %y : f32[2, 2] temp %z : f32[4] of %y "
     "{ %z = copy %x }",
     {}},
    {"event",
     "mesh tp=2 in %x : f32[2] out %y : f32[2] out %e : event[] "
     "{ %y = copy %x if tp == 0 { %e = record } }",
     {HOLE}},
    {"recorded event",
     "in %x : f32[2] out %y : f32[2] out %e : event[] "
     "{ %y = copy %x %e = record }",
     {}},
    // ------------------------------------------------------------------ races
    {"two writers",
     "streams 2 in %x : f32[2] out %y : f32[2] { fork on stream "
     "0 { %y = relu %x } on stream 1 { %y = gelu %x } join }",
     {RACE}},
    {"two writers apart",
     "streams 2 in %x : f32[2] out %y : f32[2] { fork on stream 0 { %y[0] = "
     "relu %x[0] } on stream 1 { %y[1] = gelu %x[1] } join }",
     {}},
    {"two writers in order",
     "streams 2 in %x : f32[2] out %y : f32[2] temp %e : event[] { fork on "
     "stream 0 { %y = relu %x %e = record } on stream 1 { wait %e %y = gelu %x "
     "} join }",
     {}},
    {"two readers",
     "streams 2 in %x : f32[2] out %y : f32[2] out %z : f32[2] "
     "{ fork on stream 0 { %y = relu %x } on stream 1 { %z = "
     "relu %x } join }",
     {}},
    {"group",
     "mesh tp=2 inout %x : f32[2] shared "
     "{ group { send %x to 1 - tp %x = recv from 1 - tp } }",
     {RACE}},
    {"group that reads twice",
     "mesh tp=3 in %x : f32[2] out %y : f32[2] shared out %z : f32[2] shared "
     "{ group { send %x to (tp + 1) mod 3 send %x to (tp + 2) mod 3 "
     "%y = recv from (tp + 1) mod 3 %z = recv from (tp + 2) mod 3 } }",
     {}},
    {"run boundary",
     "streams 1 in %x : f32[2] out %y : f32[2] temp %t : f32[2] "
     "{ on stream 0 { %t = copy %y } %y = copy %x }",
     {RACE, UNWRITTEN, UNJOINED, EARLY}},
    {"run boundary of a temporary",
     "streams 1 in %x : f32[2] out %y : f32[2] temp %t : f32[2] "
     "temp %e : event[] { %t = relu %x %y = copy %t fork on stream 0 { %t = "
     "gelu %x } join }",
     {}},
    {"sent and written",
     "mesh tp=2 inout %x : f32[2] out %y : f32[2] shared "
     "temp %e : event[] { group { send %x to 1 - tp done "
     "%e %y = recv from 1 - tp } %x = relu %y wait %e }",
     {RACE}},
    {"the receiver tells the sender nothing",
     "mesh tp=2 streams 2 in %a : f32[2] inout %x : f32[2] "
     "inout %y : f32[2] shared inout %z : f32[2] shared { fork if tp == 0 { "
     "on stream 0 { send %x to 1 send %a to 1 } on stream 1 { %y = recv from 1 "
     "%x = relu %a } } else { on stream 0 { %y = recv from 0 %z = recv from 0 "
     "} on stream 1 { send %a to 0 } } join }",
     {RACE}},
    {"an answer does",
     "mesh tp=2 streams 2 in %a : f32[2] inout %x : f32[2] "
     "inout %y : f32[2] shared { fork if tp == 0 { on stream 0 { send %x to 1 "
     "} on stream 1 { %y = recv from 1 %x = relu %a } } else { on stream 0 { "
     "%y = recv from 0 send %a to 0 } } join }",
     {}},
    // -------------------------------------------------------------- unwritten
    {"unwritten",
     "in %x : f32[2] out %y : f32[2] temp %t : f32[2] "
     "{ %y = copy %t %t = copy %x }",
     {UNWRITTEN}},
    {"half written",
     "in %x : f32[2] out %y : f32[2] temp %t : f32[2] "
     "{ %t[1] = copy %x[0] %y = copy %t }",
     {UNWRITTEN}},
    {"output of the run before",
     "in %x : f32[2] out %y : f32[2] out %z : f32[2] "
     "{ %z = copy %y %y = copy %x }",
     {UNWRITTEN}},
    {"operand of a broadcast that only its root has",
     "mesh tp=2 in %x : f32[2] temp %t : f32[2] out %y : f32[2] shared "
     "{ if tp == 0 { %t = copy %x } %y = broadcast %t root 0 }",
     {}},
    {"result of a reduce on another rank than its root",
     "mesh tp=2 inout %x : f32[2] shared out %y : f32[2] "
     "{ %y = reduce %x root 0 }",
     {HOLE}},
    {"result of a reduce on another rank, read",
     "mesh tp=2 inout %x : f32[2] shared temp %t : f32[2] out %y : f32[2] "
     "{ %t = reduce %x root 0 %y = copy %t }",
     {UNWRITTEN}},
    {"operand of a reduce that one rank lacks",
     "mesh tp=2 in %x : f32[2] temp %t : f32[2] shared inout %y : f32[2] "
     "{ if tp == 0 { %t = copy %x } %y = reduce %t root 0 }",
     {UNWRITTEN}},
    {"operand of a broadcast that its root lacks",
     "mesh tp=2 in %x : f32[2] temp %t : f32[2] out %y : f32[2] shared "
     "{ if tp == 1 { %t = copy %x } %y = broadcast %t root 0 }",
     {UNWRITTEN}},
    {"accumulated",
     "in %x : f32[2, 2] out %y : f32[2, 2] "
     "{ %y = matmul %x, %x accumulate }",
     {UNWRITTEN}},
    {"accumulated afterwards",
     "in %x : f32[2, 2] out %y : f32[2, 2] "
     "{ %y = copy %x %y = matmul %x, %x accumulate }",
     {}},
    {"kept",
     "in %x : f32[2, 2] in %w : f32[3, 2, 2] in %n : i32[3] "
     "out %y : f32[2, 2] { %y = matmul %x, %w groups %n keep }",
     {UNWRITTEN}},
    {"kept afterwards",
     "in %x : f32[2, 2] in %w : f32[3, 2, 2] in %n : i32[3] "
     "out %y : f32[2, 2] "
     "{ %y = copy %x %y = matmul %x, %w groups %n keep }",
     {}},
    {"of a group each",
     "in %x : f32[4, 2] in %g : f32[4, 2] in %n : i32[3] "
     "out %y : f32[3, 2, 2] { %y = matmul %x, %g ta groups %n }",
     {}},
    {"counts that are not there",
     "in %x : f32[2, 2] in %w : f32[3, 2, 2] in %n : i32[3] temp %m : i32[3] "
     "out %y : f32[2, 2] { %m[0..2] = copy %n[0..2] "
     "%y = matmul %x, %w groups %m }",
     {UNWRITTEN}},
    {"counts that are not there yet",
     "streams 1 in %x : f32[2, 2] in %w : f32[3, 2, 2] inout %n : i32[3] "
     "out %y : f32[2, 2] { fork on stream 0 { %n = fill value 0 } "
     "%y = matmul %x, %w groups %n join }",
     {RACE}},
    {"routed",
     "in %x : i32[4, 2] out %p : i32[3, 2] out %s : i32[4, 2] out %n : i32[3] "
     "{ %p, %s, %n = route %x }",
     {}},
    {"routed before there is what is routed",
     "in %a : i32[4, 2] temp %x : i32[4, 2] out %p : i32[3, 2] "
     "out %s : i32[4, 2] out %n : i32[3] "
     "{ %x[0..3] = copy %a[0..3] %p, %s, %n = route %x }",
     {UNWRITTEN}},
    {"the last result is read too early",
     "streams 1 in %x : i32[4, 2] out %p : i32[3, 2] out %s : i32[4, 2] "
     "out %n : i32[3] out %y : i32[3] "
     "{ fork on stream 0 { %p, %s, %n = route %x } %y = copy %n join }",
     {RACE}},
    {"attended to, in two parts that are merged over one of them",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] temp %a : f32[2, 4, 8] temp %b : f32[2, 4] "
     "{ %a, %b = attention %q, %k[:, 0..2], %k[:, 0..2] causal 2 window 3 "
     "%o, %l = attention %q, %k[:, 2..6], %k[:, 2..6] "
     "%o, %l = merge %a, %b, %o, %l }",
     {}},
    {"attended to, and added to what is not there",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] { %o, %l = attention %q, %k, %k accumulate }",
     {UNWRITTEN}},
    {"attended to, where the block that would be added is seen by no row",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] temp %n : f32[1, 6, 8] "
     "{ %o, %l = attention %q, %k, %k causal 0 "
     "%o, %l = attention %q, %n, %n accumulate causal -4 "
     "%o, %l = attention %q, %n, %n accumulate causal 6 window 1 }",
     {}},
    {"attended to, where the last row sees the first key of it",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] temp %n : f32[1, 6, 8] "
     "{ %o, %l = attention %q, %k, %k causal 0 "
     "%o, %l = attention %q, %n, %n accumulate causal -3 }",
     {UNWRITTEN}},
    {"attended to, where the first row sees the last key of it",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] temp %n : f32[1, 6, 8] "
     "{ %o, %l = attention %q, %k, %k causal 0 "
     "%o, %l = attention %q, %n, %n accumulate causal 5 window 1 }",
     {UNWRITTEN}},
    {"merged before both are there",
     "streams 1 in %o1 : f32[2, 4, 8] in %l1 : f32[2, 4] in %k : f32[2, 6, 8] "
     "out %o : f32[2, 4, 8] out %l : f32[2, 4] temp %a : f32[2, 4, 8] "
     "temp %b : f32[2, 4] { fork on stream 0 { %a, %b = attention %o1, %k, %k "
     "} "
     "%o, %l = merge %o1, %l1, %a, %b join }",
     {RACE}},
    {"gradients of attention, of two blocks of keys",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] in %l : f32[2, 4] "
     "inout %a : f32[2, 4, 8] out %b : f32[1, 6, 8] out %c : f32[1, 6, 8] "
     "{ %b = fill value 0 %c = fill value 0 "
     "%a, %b[:, 0..2], %c[:, 0..2] = attention_grad %q, %k[:, 0..2], "
     "%k[:, 0..2], %q, %l, %q accumulate causal 2 window 3 "
     "%a, %b[:, 2..6], %c[:, 2..6] = attention_grad %q, %k[:, 2..6], "
     "%k[:, 2..6], %q, %l, %q accumulate }",
     {}},
    {"gradients, where the block that would be added is seen by no row",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] in %l : f32[2, 4] "
     "out %a : f32[2, 4, 8] out %b : f32[1, 6, 8] out %c : f32[1, 6, 8] "
     "temp %n : f32[1, 6, 8] "
     "{ %a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q causal 0 "
     "%a, %b, %c = attention_grad %q, %n, %n, %q, %l, %q accumulate causal -4 "
     "}",
     {}},
    {"gradients, where the last row sees the first key of it",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] in %l : f32[2, 4] "
     "out %a : f32[2, 4, 8] out %b : f32[1, 6, 8] out %c : f32[1, 6, 8] "
     "temp %n : f32[1, 6, 8] "
     "{ %a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q causal 0 "
     "%a, %b, %c = attention_grad %q, %n, %n, %q, %l, %q accumulate causal -3 "
     "}",
     {UNWRITTEN}},
    {"gradients, added to where nothing is",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] in %l : f32[2, 4] "
     "inout %a : f32[2, 4, 8] inout %b : f32[1, 6, 8] out %c : f32[1, 6, 8] "
     "{ %a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q accumulate }",
     {UNWRITTEN}},
    {"in zigzag, behind the keys: half of them",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] temp %n : f32[1, 4, 8] "
     "{ %n[:, 0..2] = copy %k[:, 0..2] %o, %l = attention %q, %n, %n zigzag 1 "
     "}",
     {}},
    {"in zigzag, behind the keys: the other half",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] temp %n : f32[1, 4, 8] "
     "{ %n[:, 2..4] = copy %k[:, 2..4] %o, %l = attention %q, %n, %n zigzag 1 "
     "}",
     {UNWRITTEN}},
    {"in zigzag, the own block: all of the keys",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] temp %n : f32[1, 4, 8] "
     "{ %n[:, 0..3] = copy %k[:, 0..3] %o, %l = attention %q, %n, %n zigzag 0 "
     "}",
     {UNWRITTEN}},
    {"in zigzag, ahead of the keys: half of the rows, of each head",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] out %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] temp %n : f32[2, 4, 8] temp %a : f32[2, 4, 8] "
     "temp %b : f32[2, 4] "
     "{ %n[:, 2..4] = copy %q[:, 2..4] %a[:, 2..4] = copy %q[:, 2..4] "
     "%b[:, 2..4] = copy %q[:, 2..4, 0] "
     "%a, %b = attention %n, %k, %k accumulate zigzag -3 "
     "%a[:, 0..2] = copy %q[:, 0..2] %b[:, 0..2] = copy %q[:, 0..2, 0] "
     "%o = copy %a %l = copy %b }",
     {}},
    {"in zigzag, ahead of the keys: a row that is not there",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] inout %o : f32[2, 4, 8] "
     "inout %l : f32[2, 4] temp %n : f32[2, 4, 8] "
     "{ %n[:, 0..3] = copy %q[:, 0..3] "
     "%o, %l = attention %n, %k, %k accumulate zigzag -1 }",
     {UNWRITTEN}},
    {"in zigzag, ahead of the keys: an lse that is not there",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] inout %o : f32[2, 4, 8] "
     "out %l : f32[2, 4] { %l[:, 0..3] = copy %q[:, 0..3, 0] "
     "%o, %l = attention %q, %k, %k accumulate zigzag -1 "
     "%l = copy %q[:, :, 1] }",
     {UNWRITTEN}},
    {"in zigzag, ahead of the keys without what is merged with",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] inout %o : f32[2, 4, 8] "
     "inout %l : f32[2, 4] { %o, %l = attention %q, %k, %k zigzag -1 }",
     {INVALID}},
    {"in zigzag, ahead of the keys on one rank alone",
     "mesh cp=2 in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] "
     "inout %o : f32[2, 4, 8] inout %l : f32[2, 4] "
     "{ %o, %l = attention %q, %k, %k zigzag -cp }",
     {INVALID}},
    {"in zigzag, the first of all ranks' blocks in order",
     "mesh cp=3 in %q : f32[2, 4, 8] in %k : f32[3, 1, 4, 8] "
     "out %o : f32[2, 4, 8] out %l : f32[2, 4] { for b in 0..3 { if b == 0 { "
     "%o, %l = attention %q, %k[b], %k[b] zigzag cp - b } else { "
     "%o, %l = attention %q, %k[b], %k[b] accumulate zigzag cp - b } } }",
     {}},
    {"in zigzag, the first of all ranks' blocks backwards",
     "mesh cp=3 in %q : f32[2, 4, 8] in %k : f32[3, 1, 4, 8] "
     "out %o : f32[2, 4, 8] out %l : f32[2, 4] { for b in 0..3 { if b == 0 { "
     "%o, %l = attention %q, %k[2 - b], %k[2 - b] zigzag cp - 2 + b } else { "
     "%o, %l = attention %q, %k[2 - b], %k[2 - b] accumulate zigzag cp - 2 + b "
     "} } }",
     {INVALID}},
    {"in zigzag, halves of the rows on streams of their own",
     "streams 2 in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] "
     "inout %o : f32[2, 4, 8] inout %l : f32[2, 4] "
     "{ fork on stream 0 { %o, %l = attention %q, %k, %k accumulate zigzag -1 "
     "} on stream 1 { %o[:, 0..2], %l[:, 0..2] = attention %q[:, 0..2], %k, %k "
     "} join }",
     {}},
    {"in zigzag, rows of one half on streams of their own",
     "streams 2 in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] "
     "inout %o : f32[2, 4, 8] inout %l : f32[2, 4] "
     "{ fork on stream 0 { %o, %l = attention %q, %k, %k accumulate zigzag -1 "
     "} on stream 1 { %o[:, 1..3], %l[:, 1..3] = attention %q[:, 1..3], %k, %k "
     "} join }",
     {RACE}},
    {"gradients in zigzag, behind the keys: half of them, and all rows",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] in %l : f32[2, 4] "
     "inout %a : f32[2, 4, 8] out %b : f32[1, 4, 8] out %c : f32[1, 4, 8] "
     "temp %n : f32[1, 4, 8] "
     "{ %n[:, 0..2] = copy %k[:, 0..2] %b[:, 0..2] = copy %n[:, 0..2] "
     "%c[:, 0..2] = copy %n[:, 0..2] "
     "%a, %b, %c = attention_grad %q, %n, %n, %q, %l, %q accumulate zigzag 2 "
     "%b[:, 2..4] = copy %k[:, 2..4] %c[:, 2..4] = copy %k[:, 2..4] }",
     {}},
    {"gradients in zigzag, behind the keys, whose second half stays as it was",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] in %l : f32[2, 4] "
     "inout %a : f32[2, 4, 8] out %b : f32[1, 4, 8] inout %c : f32[1, 4, 8] "
     "{ %b[:, 0..2] = copy %k[:, 0..2] "
     "%a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q accumulate zigzag 2 }",
     {HOLE}},
    {"gradients in zigzag, behind the keys, of rows that are not there",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] in %l : f32[2, 4] "
     "out %a : f32[2, 4, 8] inout %b : f32[1, 4, 8] inout %c : f32[1, 4, 8] "
     "{ %a[:, 2..4] = copy %q[:, 2..4] "
     "%a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q accumulate zigzag 2 "
     "%a = copy %q }",
     {UNWRITTEN}},
    {"gradients in zigzag, ahead of the keys: half of all that is of rows",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] out %a : f32[2, 4, 8] "
     "inout %b : f32[1, 4, 8] inout %c : f32[1, 4, 8] temp %x : f32[2, 4, 8] "
     "temp %o : f32[2, 4, 8] temp %l : f32[2, 4] temp %g : f32[2, 4, 8] "
     "{ %x[:, 2..4] = copy %q[:, 2..4] %o[:, 2..4] = copy %q[:, 2..4] "
     "%l[:, 2..4] = copy %q[:, 2..4, 0] %g[:, 2..4] = copy %q[:, 2..4] "
     "%a[:, 2..4] = copy %q[:, 2..4] "
     "%a, %b, %c = attention_grad %x, %k, %k, %o, %l, %g accumulate zigzag -1 "
     "%a[:, 0..2] = copy %q[:, 0..2] }",
     {}},
    {"gradients in zigzag, ahead of the keys, of an lse that is not there",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] inout %a : f32[2, 4, 8] "
     "inout %b : f32[1, 4, 8] inout %c : f32[1, 4, 8] temp %l : f32[2, 4] "
     "{ %l[:, 0..3] = copy %q[:, 0..3, 0] "
     "%a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q accumulate zigzag -1 "
     "}",
     {UNWRITTEN}},
    {"gradients in zigzag, of keys of which a half is not there",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] in %l : f32[2, 4] "
     "inout %a : f32[2, 4, 8] inout %b : f32[1, 4, 8] inout %c : f32[1, 4, 8] "
     "temp %n : f32[1, 4, 8] { %n[:, 0..2] = copy %k[:, 0..2] "
     "%a, %b, %c = attention_grad %q, %n, %k, %q, %l, %q accumulate zigzag -1 "
     "}",
     {UNWRITTEN}},
    {"gradients in zigzag of the own block",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] in %l : f32[2, 4] "
     "out %a : f32[2, 4, 8] out %b : f32[1, 4, 8] out %c : f32[1, 4, 8] "
     "{ %a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q zigzag 0 }",
     {}},
    {"gradients in zigzag behind the keys, of half of them",
     "in %q : f32[2, 4, 8] in %k : f32[1, 4, 8] in %l : f32[2, 4] "
     "inout %a : f32[2, 4, 8] inout %b : f32[1, 4, 8] inout %c : f32[1, 4, 8] "
     "{ %a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q zigzag 1 }",
     {INVALID}},
    {"gradients of keys and of values in one place",
     "in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] in %l : f32[2, 4] "
     "out %a : f32[2, 4, 8] inout %b : f32[2, 1, 6, 8] "
     "{ for i in 0..1 { %a, %b[i], %b[0] = "
     "attention_grad %q, %k, %k, %q, %l, %q } }",
     {IN_PLACE}},
    {"the last gradient is read too early",
     "streams 1 in %q : f32[2, 4, 8] in %k : f32[1, 6, 8] in %l : f32[2, 4] "
     "out %a : f32[2, 4, 8] out %b : f32[1, 6, 8] temp %c : f32[1, 6, 8] "
     "out %d : f32[1, 6, 8] "
     "{ fork on stream 0 { %a, %b, %c = attention_grad %q, %k, %k, %q, %l, %q "
     "} %d = copy %c join }",
     {RACE}},
    {"called",
     "in %x : f32[4, 2] inout %p : f32[4, 2] out %y : f32[4, 2] "
     "{ %y = call \"f\" %x %p = call \"g<2>\" %x, %y over 1 keep }",
     {}},
    {"a call on another stream than what it reads",
     "streams 1 in %x : f32[4, 2] out %y : f32[4, 2] out %z : f32[4, 2] "
     "{ fork on stream 0 { %y = call \"f\" %x } %z = call \"f\" %y join }",
     {RACE}},
    {"a call that keeps what is not there",
     "in %x : f32[4, 2] out %y : f32[4, 2] out %z : f32[4, 2] "
     "{ %y, %z = call \"f\" %x over 1 keep }",
     {UNWRITTEN}},
    {"a call that keeps its second result's half",
     "in %x : f32[4, 2] inout %y : f32[4, 2] out %z : f32[4, 2] "
     "{ %z[0..2] = copy %x[0..2] %y, %z = call \"f\" %x over 1 keep }",
     {UNWRITTEN}},
    {"counted",
     "in %n : i32[2] in %x : f32[2, 3 by %n] out %y : f32[2, 3] "
     "{ %y = relu %x }",
     {}},
    {"counted by what was not written",
     "in %m : i32[2] in %x : f32[2, 3] temp %n : i32[2] "
     "temp %z : f32[2, 3 by %n] out %y : f32[2, 3] "
     "{ %n[0] = copy %m[0] %z[0] = copy %x[0] %z[1] = copy %x[1] "
     "%y = copy %z }",
     {UNWRITTEN}},
    {"counted too early",
     "streams 1 in %x : f32[2, 3] temp %n : i32[2] out %y : f32[2, 3 by %n] "
     "{ fork on stream 0 { %n = fill value 1 } %y = copy %x join }",
     {RACE}},
    {"in place", "inout %x : f32[2] { %x = relu %x }", {}},
    // ------------------------------------------- the beginning and the end
    {"unjoined",
     "streams 1 in %x : f32[2] out %y : f32[2] "
     "{ fork on stream 0 { %y = relu %x } }",
     {UNJOINED}},
    {"unjoined temporary",
     "streams 1 in %x : f32[2] out %y : f32[2] temp %t : f32[2] "
     "{ %y = copy %x fork on stream 0 { %t = relu %x } }",
     {UNJOINED}},
    {"sent, and answered",
     "mesh tp=2 streams 1 in %x : f32[2] out %y : f32[2] shared "
     "{ fork if tp == 0 { on stream 0 { send %x to 1 } %y = recv from 1 } else "
     "{ %y = recv from 0 send %x to 0 } }",
     {}},
    {"two sent, and one answered",
     "mesh tp=3 streams 1 in %x : f32[2] out %y : f32[2] shared "
     "{ fork if tp == 0 { on stream 0 { group { send %x to 2 send %x to 1 } } "
     "%y = recv from 1 } else { %y = recv from 0 if tp == 1 { send %x to 0 } } "
     "}",
     {UNJOINED}},
    {"awaited",
     "streams 1 in %x : f32[2] out %y : f32[2] temp %e : event[] "
     "{ fork on stream 0 { %y = relu %x %e = record } wait %e }",
     {}},
    {"awaited too early",
     "streams 1 in %x : f32[2] out %y : f32[2] temp %e : event[] { fork on "
     "stream 0 { %e = record %y = relu %x } wait %e }",
     {UNJOINED}},
    {"awaited of two streams at once",
     "streams 2 in %x : f32[2] out %y : f32[2, 2] temp %e : event[4] "
     "{ %e[0], %e[1] = record on stream 0 { wait %e[1] %y[0] = relu %x "
     "%e[2] = record } on stream 1 { wait %e[0] %y[1] = relu %x "
     "%e[3] = record } wait %e[2], %e[3] }",
     {}},
    {"awaited of one of two streams",
     "streams 2 in %x : f32[2] out %y : f32[2, 2] temp %e : event[4] "
     "{ %e[0], %e[1] = record on stream 0 { wait %e[1] %y[0] = relu %x "
     "%e[2] = record } on stream 1 { wait %e[0] %y[1] = relu %x "
     "%e[3] = record } wait %e[2], %e[1] }",
     {UNJOINED}},
    {"an event of a list that is recorded again",
     "streams 1 in %x : f32[2] out %y : f32[2] temp %e : event[2] { fork on "
     "stream 0 { %e[0], %e[1] = record %y = relu %x %e[1] = record } "
     "wait %e[0], %e[1] }",
     {}},
    {"early",
     "streams 1 in %x : f32[2] out %y : f32[2] "
     "{ on stream 0 { %y = relu %x } join }",
     {EARLY}},
    {"told to begin",
     "streams 1 in %x : f32[2] out %y : f32[2] "
     "temp %e : event[] { %e = record on stream 0 { wait %e "
     "%y = relu %x } join }",
     {}},
    {"told to begin by the run before",
     "streams 1 in %x : f32[2] out %y : f32[2] "
     "{ on stream 0 { %y = relu %x } join fork }",
     {EARLY}},
    {"a record that nobody waits for",
     "streams 1 in %x : f32[2] out %y : f32[2] temp %e : event[] "
     "{ %y = copy %x on stream 0 { %e = record } }",
     {}},
    {"a deferred send that the caller awaits",
     "mesh tp=2 streams 1 in %x : f32[2] out %y : f32[2] shared "
     "temp %e : event[] { fork if tp == 0 { on stream 0 { send %x to 1 done %e "
     "} wait %e %y = copy %x } else { %y = recv from 0 } }",
     {}},
    {"a deferred send that a join does not",
     "mesh tp=2 streams 1 in %x : f32[2] out %y : f32[2] shared "
     "temp %e : event[] { fork if tp == 0 { on stream 0 { send %x to 1 done %e "
     "} join %y = copy %x } else { %y = recv from 0 } }",
     {UNJOINED}},
    {"told by the caller alone",
     "streams 1 in %x : f32[2] out %y : f32[2] in %e : event[] "
     "{ on stream 0 { wait %e %y = relu %x } join }",
     {EARLY}},
    // -------------------------------------------------------------- lifetimes
    {"ended",
     "in %x : f32[2] out %y : f32[2] temp %a : f32[2] "
     "temp %b : f32[2] of %a "
     "{ %a = relu %x %b = gelu %x %y = copy %a }",
     {LIFETIME}},
    {"ended in part",
     "in %x : f32[2] out %y : f32[2] temp %a : f32[2] temp %b : f32[2] of %a "
     "{ %a = relu %x %b[1] = gelu %x[1] %y = copy %a }",
     {LIFETIME}},
    {"ended elsewhere",
     "in %x : f32[2] inout %y : f32[2] temp %a : f32[2] temp %b : f32[2] of "
     "%a { %a = relu %x %b[1] = gelu %x[1] %y[0] = copy %a[0] }",
     {}},
    {"begun again",
     "in %x : f32[2] out %y : f32[2] temp %a : f32[2] temp %b : f32[2] of %a "
     "{ %a = relu %x %b = gelu %x %a = silu %x %y = copy %a }",
     {}},
    {"the caller's value ended",
     "in %x : f32[2] inout %r : f32[2] out %y : f32[2] temp %s : f32[2] of %r "
     "{ %s = relu %x %y = copy %r }",
     {LIFETIME}},
    {"the caller's value in another shape",
     "inout %r : f32[4] out %y : f32[2, 2] temp %s : f32[2, 2] of %r "
     "{ %y = copy %s %s = relu %y }",
     {}},
    {"in another shape",
     "in %x : f32[4] out %y : f32[2, 2] temp %a : f32[4] "
     "temp %b : f32[2, 2] of %a { %a = relu %x %y = copy %b }",
     {}},
    {"by a name that was never written",
     "in %x : f32[2] out %y : f32[2] temp %a : f32[2] temp %b : f32[2] of %a "
     "temp %c : f32[2] of %a { %a = relu %x %b = gelu %x %y = copy %c }",
     {}},
    // --------------------------------------------------------------- in place
    {"over a shifted operand",
     "mesh tp=2 inout %z : f32[2, 2, 2] { %z[0] = transpose %z[tp] }",
     {IN_PLACE}},
    {"permuted over its operand",
     "mesh tp=2 inout %z : f32[2, 2, 2, 2] "
     "{ %z[0] = permute %z[tp] order (1, 2, 0) }",
     {IN_PLACE}},
    {"taken over what is taken from",
     "mesh tp=2 inout %z : i32[2, 2, 2] in %i : i32[2] "
     "{ %z[0] = take %z[tp], %i dim 0 }",
     {IN_PLACE}},
    {"taken over the indices",
     "mesh tp=2 in %x : i32[2] inout %z : i32[2, 2] "
     "{ %z[0] = take %x, %z[tp] dim 0 }",
     {IN_PLACE}},
    {"gathered over another's index",
     "mesh tp=2 inout %x : f32[2, 2] shared { %x = all_gather %x[0] }",
     {IN_PLACE}},
    {"gathered over the own index",
     "mesh tp=2 inout %x : f32[2, 2] shared { %x = all_gather %x[tp] }",
     {}},
    {"scattered over the own index",
     "mesh tp=2 inout %x : f32[2, 2] shared { %x[tp] = reduce_scatter %x }",
     {}},
    {"scattered over another's index",
     "mesh tp=2 inout %x : f32[2, 2] shared { %x[1 - tp] = reduce_scatter %x }",
     {IN_PLACE}},
    {"reduced over a neighbour",
     "mesh tp=2 inout %x : f32[2, 2] shared { %x[tp] = all_reduce %x[1] }",
     {}},
    {"reduced over a neighbour of the other shape",
     "mesh tp=2 inout %x : f32[4] shared temp %z : f32[2, 2] of %x "
     "{ for i in 0..1 { %x[i] = all_reduce %z[i, 1 - i] } }",
     {}},
    {"all to all over itself",
     "mesh tp=2 inout %x : f32[2, 2, 2] shared "
     "{ %x[0] = all_to_all %x[tp] }",
     {IN_PLACE}},
    {"scattered over itself by one rank",
     "mesh tp=1 inout %x : f32[1, 2] shared { %x = reduce_scatter %x }",
     {}},
    {"reduced to a root in place",
     "mesh tp=2 inout %x : f32[2] shared { %x = reduce %x root 1 }",
     {}},
    {"reduced in place",
     "mesh tp=2 inout %x : f32[2] shared { %x = all_reduce %x }",
     {}},
    // ----------------------------------------------------------------- ranges
    {"a range past the end",
     "mesh tp=2 in %x : f32[3] out %y : f32[2] { %y = copy %x[tp * 2..tp * 2 + "
     "2] }",
     {INVALID}},
    {"a range before the beginning",
     "mesh tp=2 in %x : f32[3] out %y : f32[2] { %y = copy %x[tp - 1..tp - 1 + "
     "2] "
     "}",
     {INVALID}},
    {"a range that ends before it begins",
     "mesh tp=2 in %x : f32[3] inout %y : f32[3] "
     "{ %y[2 - tp..tp + 1] = copy %x[2 - tp..tp + 1] }",
     {INVALID}},
    {"a range of more than 64 bits can count",
     "mesh tp=2 inout %x : f32[3] { "
     "%x[tp - 9223372036854775807..9223372036854775807] = relu "
     "%x[tp - 9223372036854775807..9223372036854775807] }",
     {INVALID}},
    {"whole in ranges",
     "mesh tp=2 in %x : f32[3] out %y : f32[3] { let n = tp + 1 "
     "%y[0..n] = copy %x[0..n] %y[n..3] = relu %x[n..3] }",
     {}},
    {"a hole between ranges",
     "mesh tp=2 in %x : f32[4] out %y : f32[4] { let n = tp + 1 "
     "%y[0..n] = copy %x[0..n] %y[2..4] = relu %x[2..4] }",
     {HOLE}},
    {"two writers of ranges apart",
     "streams 2 in %x : f32[3, 3] out %y : f32[3, 3] { fork on stream 0 { "
     "%y[:, 0..1] = relu %x[:, 0..1] } on stream 1 { "
     "%y[:, 1..3] = gelu %x[:, 1..3] } join }",
     {}},
    {"two writers of ranges that meet",
     "streams 2 in %x : f32[3, 3] out %y : f32[3, 3] { fork on stream 0 { "
     "%y[:, 0..2] = relu %x[:, 0..2] } on stream 1 { "
     "%y[:, 1..3] = gelu %x[:, 1..3] } join }",
     {RACE}},
    {"two writers that meet in a corner",
     "streams 2 in %x : f32[3, 3] inout %y : f32[3, 3] { fork on stream 0 { "
     "%y[0..2, 0..2] = relu %x[0..2, 0..2] } on stream 1 { "
     "%y[1..3, 1..3] = gelu %x[1..3, 1..3] } join }",
     {RACE}},
    {"two writers whose rows meet alone",
     "streams 2 in %x : f32[3, 3] inout %y : f32[3, 3] { fork on stream 0 { "
     "%y[0..2, 0..2] = relu %x[0..2, 0..2] } on stream 1 { "
     "%y[1..3, 2..3] = gelu %x[1..3, 2..3] } join }",
     {}},
    {"a range and an index of it",
     "streams 2 in %x : f32[4] inout %y : f32[4] { fork on stream 0 { "
     "%y[1..3] = relu %x[1..3] } on stream 1 { %y[2] = gelu %x[2] } join }",
     {RACE}},
    {"a range and the index behind it",
     "streams 2 in %x : f32[4] inout %y : f32[4] { fork on stream 0 { "
     "%y[1..3] = relu %x[1..3] } on stream 1 { %y[3] = gelu %x[3] } join }",
     {}},
    {"a range and the same bytes by another name",
     "streams 2 in %x : f32[2, 3] inout %y : f32[2, 3] temp %z : f32[6] of %y "
     "{ fork on stream 0 { %y[:, 1..3] = relu %x[:, 1..3] } on stream 1 { "
     "%z[2..4] = gelu %x[0, 0..2] } join }",
     {RACE}},
    {"a range and the bytes beside it by another name",
     "streams 2 in %x : f32[2, 3] inout %y : f32[2, 3] temp %z : f32[6] of %y "
     "{ fork on stream 0 { %y[:, 1..3] = relu %x[:, 1..3] } on stream 1 { "
     "%z[3..4] = gelu %x[0, 0..1] } join }",
     {}},
    {"ranges of three dimensions and what is between them",
     "streams 2 in %x : f32[2, 3, 2] inout %y : f32[2, 3, 2] { fork on stream "
     "0 { %y[:, 0..2, 0..1] = relu %x[:, 0..2, 0..1] } on stream 1 { "
     "%y[:, 2..3] = gelu %x[:, 2..3] %y[0..2, 0..3, 1..2] = "
     "copy %x[0..2, 0..3, 1..2] } join }",
     {}},
    {"ranges of three dimensions that are read when one is not written",
     "in %x : f32[2, 3, 2] inout %y : f32[2, 3, 2] temp %t : f32[2, 3, 2] { "
     "%t[:, 0..2, 0..1] = relu %x[:, 0..2, 0..1] "
     "%y[:, 2..3, 0..1] = copy %t[:, 1..2, 0..1] "
     "%y[1..2, 0..2, 0..1] = copy %t[1..2, 1..3, 0..1] }",
     {UNWRITTEN}},
    {"ranges of three dimensions that are read as they are written",
     "in %x : f32[2, 3, 2] inout %y : f32[2, 3, 2] temp %t : f32[2, 3, 2] { "
     "%t[:, 0..2, 0..1] = relu %x[:, 0..2, 0..1] "
     "%y[:, 2..3, 0..1] = copy %t[:, 1..2, 0..1] "
     "%y[1..2, 0..2, 0..1] = copy %t[1..2, 0..2, 0..1] }",
     {}},
    {"half of a range is written",
     "in %x : f32[4] out %y : f32[4] temp %t : f32[4] { "
     "%t[0..2] = relu %x[0..2] %y[0..3] = copy %t[0..3] %y[3] = copy %x[3] }",
     {UNWRITTEN}},
    {"a lifetime ends in a range",
     "in %x : f32[4] out %y : f32[2] temp %a : f32[4] temp %b : f32[2, 2] of "
     "%a { %a = relu %x %b[1..2, 0..1] = gelu %x[0..1] %y = copy %a[1..3] }",
     {LIFETIME}},
    {"a lifetime ends beside a range",
     "in %x : f32[4] out %y : f32[2] temp %a : f32[4] temp %b : f32[2, 2] of "
     "%a { %a = relu %x %b[1..2, 0..1] = gelu %x[0..1] %y = copy %a[0..2] }",
     {}},
    {"a range over itself",
     "mesh tp=2 inout %x : f32[3] { let n = tp + 1 %x[1..1 + n] = relu "
     "%x[1..1 + n] }",
     {}},
    {"a range over its neighbour",
     "mesh tp=2 inout %x : f32[3] { %x[tp..tp + 2] = relu %x[1..3] }",
     {IN_PLACE}},
    {"ranges as long as they are sent",
     "mesh tp=2 in %x : f32[2] inout %y : f32[2] shared { group { "
     "send %x[0..tp + 1] to 1 - tp %y[0..2 - tp] = recv from 1 - tp } }",
     {}},
    {"ranges longer than they are sent",
     "mesh tp=2 in %x : f32[2] inout %y : f32[2] shared { group { "
     "send %x[0..tp + 1] to 1 - tp %y[0..tp + 1] = recv from 1 - tp } }",
     {MISMATCH}},
    {"gathered over a range whose piece it reads",
     "mesh tp=2 inout %x : f32[4, 2] shared { %x[1..3] = all_gather %x[tp + 1] "
     "}",
     {}},
    {"gathered over a range whose neighbour it reads",
     "mesh tp=2 inout %x : f32[4, 2] shared { %x[1..3] = all_gather %x[tp] }",
     {IN_PLACE}},
    // ----------------------------------------------------------------- blocks
    {"own blocks",
     "mesh tp=2 in %x : f32[3@tp] out %y : f32[3@tp] "
     "{ %y[tp of 2] = relu %x[tp of 2] }",
     {}},
    {"an own block that a rank lacks",
     "mesh tp=2 in %x : f32[3@tp] out %y : f32[3@tp] "
     "{ if tp == 0 { %y[tp of 2] = relu %x[tp of 2] } }",
     {HOLE}},
    {"own blocks of two axes",
     "mesh dp=2, tp=3 in %x : f32[5@tp, 2, 3@dp] out %y : f32[5@tp, 2, 3@dp] "
     "{ %y[tp of 3, 0..1, dp of 2] = relu %x[tp of 3, 0..1, dp of 2] "
     "%y[tp of 3, 1, dp of 2] = relu %x[tp of 3, 1, dp of 2] }",
     {}},
    {"own blocks of two axes, in part",
     "mesh dp=2, tp=3 in %x : f32[5@tp, 2, 3@dp] out %y : f32[5@tp, 2, 3@dp] "
     "{ %y[tp of 3, 0..1, dp of 2] = relu %x[tp of 3, 0..1, dp of 2] "
     "if tp + dp != 3 { "
     "%y[tp of 3, 1, dp of 2] = relu %x[tp of 3, 1, dp of 2] } }",
     {HOLE}},
    {"a block past the last",
     "mesh tp=3 in %x : f32[3] inout %y : f32[3] "
     "{ %y[tp of 2] = relu %x[tp of 2] }",
     {INVALID}},
    {"a block before the first",
     "mesh tp=2 in %x : f32[3] inout %y : f32[3] "
     "{ %y[tp - 1 of 2] = relu %x[tp - 1 of 2] }",
     {INVALID}},
    {"a block beyond 64 bits",
     "mesh tp=2 in %x : f32[3] inout %y : f32[3] "
     "{ %y[tp + 9223372036854775806 of 2] = "
     "relu %x[tp + 9223372036854775806 of 2] }",
     {INVALID}},
    {"whole in blocks",
     "streams 2 in %x : f32[5] out %y : f32[5] { fork "
     "on stream 0 { %y[0 of 2] = relu %x[0 of 2] } "
     "on stream 1 { %y[1 of 2] = gelu %x[1 of 2] } join }",
     {}},
    {"blocks of other lengths that meet",
     "streams 2 in %x : f32[5] inout %y : f32[5] { fork "
     "on stream 0 { %y[0 of 2] = relu %x[0 of 2] } "
     "on stream 1 { %y[1 of 3] = gelu %x[1 of 3] } join }",
     {RACE}},
    {"blocks of other lengths apart",
     "streams 2 in %x : f32[5] inout %y : f32[5] { fork "
     "on stream 0 { %y[0 of 2] = relu %x[0 of 2] } "
     "on stream 1 { %y[2 of 3] = gelu %x[2 of 3] } join }",
     {}},
    {"blocks exchanged",
     "mesh tp=2 in %x : f32[3@tp] out %y : f32[3] shared { group { "
     "send %x[tp of 2] to 1 - tp %y[1 - tp of 2] = recv from 1 - tp } "
     "%y[tp of 2] = copy %x[tp of 2] }",
     {}},
    {"a block sent into a shorter one",
     "mesh tp=2 in %x : f32[3@tp] inout %y : f32[3] shared { group { "
     "send %x[tp of 2] to 1 - tp %y[tp of 2] = recv from 1 - tp } }",
     {MISMATCH}},
    {"blocks as long everywhere in a collective",
     "mesh tp=2 in %x : f32[4@tp] shared out %y : f32[4] "
     "{ for i in 0..2 { %y[i of 2] = all_reduce %x[tp of 2] } }",
     {}},
    {"a root that has as much as it names of all",
     "mesh tp=3 in %x : f32[5@tp] out %y : f32[5] shared "
     "{ for i in 0..3 { %y[i of 3] = broadcast %x[tp of 3] root i } }",
     {}},
    {"a root that has less than it names of all",
     "mesh tp=3 in %x : f32[5@tp] inout %y : f32[5] shared "
     "{ %y[0 of 3] = broadcast %x[tp of 3] root 2 }",
     {INVALID}},
    {"a root of a reduce that has less than it names of all",
     "mesh tp=3 inout %x : f32[5] shared inout %y : f32[5@tp] "
     "{ %y[tp of 3] = reduce %x[0 of 3] root 2 }",
     {INVALID}},
    {"ranks without blocks to broadcast or reduce to",
     "mesh tp=4 in %x : f32[2@tp] out %y : f32[2] shared "
     "in %p : f32[2] shared out %z : f32[2@tp] { for i in 0..4 { "
     "%y[i of 4] = broadcast %x[tp of 4] root i "
     "%z[tp of 4] = reduce %p[i of 4] root i } }",
     {}},
    {"nothing more to broadcast on one rank",
     "mesh tp=2 inout %y : f32[2] shared "
     "{ if tp == 0 { broadcast %y[1..1] root 0 } }",
     {}},
    {"a broadcast of nothing to a rank that expects some",
     "mesh tp=2 in %x : f32[2] inout %y : f32[2] shared "
     "{ for i in 0..2 { if tp == 0 { broadcast %x[0..i] root 0 } "
     "else { %y[0..1 - i] = broadcast root 0 } } }",
     {MISMATCH}},
    {"a reduce of nothing, and then of something",
     "mesh tp=2 in %x : f32[2] shared inout %y : f32[2] "
     "{ %y[0..tp] = reduce %x[0..tp] root 1 "
     "%y[0..1] = reduce %x[0..1] root 1 }",
     {MISMATCH}},
    {"room by another name",
     "mesh tp=2 in %x : f32[3@tp] inout %y : f32[2] temp %t : f32[3@tp] "
     "temp %n : f32[2] of %t "
     "{ %t[tp of 2] = relu %x[tp of 2] %y = copy %n }",
     {UNWRITTEN}},
    {"room put to use",
     "mesh tp=2 in %x : f32[3@tp] out %y : f32[2] temp %t : f32[3@tp] "
     "temp %n : f32[2] of %t { %t[tp of 2] = relu %x[tp of 2] "
     "if tp == 1 { %n[1..2] = relu %n[0..1] } %y = copy %n }",
     {}},
};

} // namespace second

#endif
