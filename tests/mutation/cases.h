// Host programs whose verdict is plain to see, each for one rule of
// docs/checking.md.
#ifndef HD_TESTS_MUTATION_CASES_H
#define HD_TESTS_MUTATION_CASES_H

#include "tests/mutation/oracle.h"

struct PlainCase {
    const char *text;
    oracle_verdict verdict;
};

const PlainCase kCases[] = {
    {"host program fine streams 1 in %x : f32[2] out %y : f32[2] "
     "{ fork on stream 0 { %y = relu %x } join }",
     ORACLE_CLEAN},
    {"host program open streams 1 in %x : f32[2] out %y : f32[2] "
     "{ fork on stream 0 { %y = relu %x } }",
     ORACLE_UNJOINED},
    {"host program early streams 1 in %x : f32[2] out %y : f32[2] "
     "{ on stream 0 { %y = relu %x } join }",
     ORACLE_EARLY},
    // The last fork of a run says nothing of what the caller does after it, and
    // nor does an event that it recorded there.
    {"host program late streams 1 in %x : f32[2] out %y : f32[2] "
     "{ on stream 0 { %y = relu %x } join fork }",
     ORACLE_EARLY},
    {"host program carried streams 1 in %x : f32[2] out %y : f32[2] "
     "inout %e : event[1] { on stream 0 { wait %e[0] %y = relu %x } join "
     "%e[0] = record }",
     ORACLE_EARLY},
    // Whoever has seen the caller's first step of a run begin has seen the run
    // begin.
    {"host program begun mesh tp=2 streams 1 in %x : f32[2] out %y : f32[2] "
     "temp %g : f32[2] shared temp %e : event[1] { group { "
     "send %x to 1 - tp done %e[0] %g = recv from 1 - tp } "
     "on stream 0 { wait %e[0] %y = relu %x } join }",
     ORACLE_CLEAN},
    // The same by way of a peer, which has met the caller's first step.
    {"host program heard mesh tp=2 streams 1 in %x : f32[2] in %i : f32[1] "
     "out %y : f32[2] temp %b : f32[2, 2] shared temp %w : f32[1] shared "
     "{ %b = all_gather %x if tp == 0 { on stream 0 { %w = recv from 1 "
     "%y = relu %x } } else { send %i to 0 %y = relu %x } join }",
     ORACLE_CLEAN},
    {"host program lists streams 2 in %x : f32[2] out %y : f32[2, 2] "
     "temp %e : event[4] { %e[0], %e[1] = record on stream 0 { wait %e[1] "
     "%y[0] = relu %x %e[2] = record } on stream 1 { wait %e[0] "
     "%y[1] = relu %x %e[3] = record } wait %e[2], %e[3] }",
     ORACLE_CLEAN},
    {"host program shorter streams 2 in %x : f32[2] out %y : f32[2, 2] "
     "temp %e : event[4] { %e[0], %e[1] = record on stream 0 { wait %e[1] "
     "%y[0] = relu %x %e[2] = record } on stream 1 { wait %e[0] "
     "%y[1] = relu %x %e[3] = record } wait %e[2], %e[1] }",
     ORACLE_UNJOINED},
    {"host program race streams 2 in %x : f32[2] out %y : f32[2] temp %t : "
     "f32[2] { fork on stream 0 { %t = relu %x } on stream 1 { %t = gelu %x } "
     "join %y = copy %t }",
     ORACLE_RACE},
    {"host program unwritten in %x : f32[2] out %y : f32[2] temp %t : f32[2] "
     "{ %y = copy %t %t = copy %x }",
     ORACLE_UNWRITTEN},
    {"host program hole in %x : f32[2] out %y : f32[2] "
     "{ %y[0] = copy %x[0] }",
     ORACLE_HOLE},
    {"host program told in %x : f32[2] out %y : f32[2] out %done : event[] "
     "{ %y = copy %x %done = record }",
     ORACLE_CLEAN},
    {"host program untold mesh tp=2 in %x : f32[2] out %y : f32[2] "
     "out %done : event[] { %y = copy %x if tp == 0 { %done = record } }",
     ORACLE_HOLE},
    {"host program lives in %x : f32[2] out %y : f32[2] temp %a : f32[2] "
     "temp %b : f32[2] of %a { %a = relu %x %b = gelu %x %y = copy %a }",
     ORACLE_LIFETIME},
    {"host program cross mesh tp=2 in %x : f32[2] out %y : f32[2] shared "
     "{ send %x to 1 - tp %y = recv from 1 - tp }",
     ORACLE_DEADLOCK},
    {"host program pair mesh tp=2 in %x : f32[2] out %y : f32[2] shared "
     "{ group { send %x to 1 - tp %y = recv from 1 - tp } }",
     ORACLE_CLEAN},
    {"host program group mesh tp=2 inout %x : f32[2] shared "
     "{ group { send %x to 1 - tp %x = recv from 1 - tp } }",
     ORACLE_RACE},
    // The answer orders the send before the write, by way of the peer.
    {"host program answer mesh tp=2 streams 2 in %a : f32[2] in %i : f32[1] "
     "temp %x : f32[2] temp %got : f32[2] shared temp %word : f32[1] shared "
     "{ %x = copy %a fork if tp == 0 { on stream 0 { send %x to 1 } "
     "on stream 1 { %word = recv from 1 %x = relu %a } } else { "
     "on stream 0 { %got = recv from 0 send %i to 0 } } join }",
     ORACLE_CLEAN},
    {"host program deferred mesh tp=2 inout %x : f32[2] out %y : f32[2] shared "
     "temp %e : event[1] { group { send %x to 1 - tp done %e[0] "
     "%y = recv from 1 - tp } %x = relu %y wait %e[0] }",
     ORACLE_RACE},
    // Of a broadcast a receiver knows that the root has started it, and nothing
    // of the other receivers.
    {"host program hears mesh tp=3 streams 2 in %x : f32[2] in %i : f32[1] "
     "temp %t : f32[2] temp %b : f32[2] shared temp %w : f32[1] shared "
     "{ fork on stream 0 { if tp == 1 { %t = relu %x } "
     "if tp == 0 { broadcast %x root 0 } else { %b = broadcast root 0 } "
     "if tp == 2 { send %i to 1 } } "
     "on stream 1 { if tp == 1 { %w = recv from 2 %t = gelu %x } } join }",
     ORACLE_RACE},
    // The same by all_gather, which every rank must have started.
    {"host program hears mesh tp=3 streams 2 in %x : f32[2] in %i : f32[1] "
     "temp %t : f32[2] temp %b : f32[3, 2] shared temp %w : f32[1] shared "
     "{ fork on stream 0 { if tp == 1 { %t = relu %x } %b = all_gather %x "
     "if tp == 2 { send %i to 1 } } "
     "on stream 1 { if tp == 1 { %w = recv from 2 %t = gelu %x } } join }",
     ORACLE_CLEAN},
    // The root of a reduce knows that all have started it, the others nothing.
    {"host program sums mesh tp=2 streams 2 in %x : f32[2] in %i : f32[1] "
     "temp %t : f32[2] temp %b : f32[2] shared temp %w : f32[1] shared "
     "{ %b = copy %x fork on stream 0 { if tp == 1 { %t = relu %x } "
     "if tp == 0 { %b = reduce %b root 0 send %i to 1 } "
     "else { reduce %b root 0 } } "
     "on stream 1 { if tp == 1 { %w = recv from 0 %t = gelu %x } } join }",
     ORACLE_CLEAN},
    {"host program sums mesh tp=2 streams 2 in %x : f32[2] in %i : f32[1] "
     "temp %t : f32[2] temp %b : f32[2] shared temp %w : f32[1] shared "
     "{ %b = copy %x fork on stream 0 { if tp == 1 { %t = relu %x } "
     "if tp == 1 { %b = reduce %b root 1 } else { reduce %b root 1 "
     "send %i to 1 } } "
     "on stream 1 { if tp == 1 { %w = recv from 0 %t = gelu %x } } join }",
     ORACLE_RACE},
    // Two sends of a group, and one answer: %x has left, of %z nothing is
    // known.
    {"host program half mesh tp=3 streams 2 in %a : f32[2] in %i : f32[1] "
     "temp %x : f32[2] temp %z : f32[2] temp %g : f32[2] shared "
     "temp %w : f32[1] shared { %x = copy %a %z = copy %a fork "
     "if tp == 0 { on stream 0 { group { send %x to 1 send %z to 2 } } "
     "on stream 1 { %w = recv from 1 %x = relu %a } } else { "
     "on stream 0 { %g = recv from 0 if tp == 1 { send %i to 0 } } } join }",
     ORACLE_CLEAN},
    {"host program half mesh tp=3 streams 2 in %a : f32[2] in %i : f32[1] "
     "temp %x : f32[2] temp %z : f32[2] temp %g : f32[2] shared "
     "temp %w : f32[1] shared { %x = copy %a %z = copy %a fork "
     "if tp == 0 { on stream 0 { group { send %z to 2 send %x to 1 } } "
     "on stream 1 { %w = recv from 1 %z = relu %a } } else { "
     "on stream 0 { %g = recv from 0 if tp == 1 { send %i to 0 } } } join }",
     ORACLE_RACE},
    // Whoever waits for a deferred send has not seen the recv of its group end.
    {"host program beside mesh tp=2 streams 2 in %a : f32[2] "
     "temp %got : f32[2] shared out %y : f32[2] temp %e : event[1] "
     "{ fork on stream 0 { group { %got = recv from 1 - tp "
     "send %a to 1 - tp done %e[0] } } "
     "on stream 1 { wait %e[0] %y = copy %got } join }",
     ORACLE_RACE},
    // What the stream did before a deferred send is known to its waiter.
    {"host program ahead mesh tp=2 streams 2 in %a : f32[2] "
     "temp %got : f32[2] shared temp %t : f32[2] out %y : f32[2] "
     "temp %e : event[1] { fork on stream 0 { %t = relu %a "
     "group { %got = recv from 1 - tp send %a to 1 - tp done %e[0] } } "
     "on stream 1 { wait %e[0] %y = copy %t } join }",
     ORACLE_CLEAN},
};

#endif
