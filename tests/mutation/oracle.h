// Says whether a host program is right by executing it: two runs of all ranks
// in one process, step by step, on tagged buffers. It shares nothing with
// check/ but the walk: no clocks, no graph of order.
//
// A step that is at work marks the elements that it touches; one that starts on
// marked elements, and either of the two writes, has shown a race. Which
// schedules are tried is the art:
//
//   ORACLE_DELAY    for each step one schedule in which that step never ends,
//                   and all else goes on as far as it can. What a step waits for is
//                   fixed by the walk, so whatever may start while it is at
//                   work does start in that schedule: this finds what any
//                   schedule would (the unit tests compare it with EVERY).
//   ORACLE_RANDOM   random schedules, as many as asked for
//   ORACLE_EVERY    all interleavings of starts and ends, for tiny programs
#ifndef HD_TESTS_MUTATION_ORACLE_H
#define HD_TESTS_MUTATION_ORACLE_H

#include "ir/walk.h"

HD_BEGIN_DECLS

typedef enum oracle_verdict {
    ORACLE_CLEAN,
    ORACLE_DEADLOCK,
    ORACLE_RACE,
    ORACLE_UNWRITTEN, // a read of what nothing has written in this run
    ORACLE_LIFETIME,  // a read of bytes that another name has taken
    ORACLE_HOLE,      // an output that is not written whole
    ORACLE_UNJOINED,  // work at the end of its run
    ORACLE_EARLY,     // work on an argument before its run
    ORACLE_TOO_LARGE, // for the states that may be kept: nothing is known
} oracle_verdict;

typedef enum oracle_search {
    ORACLE_DELAY,
    ORACLE_RANDOM,
    ORACLE_EVERY,
} oracle_search;

// The module is a complete host program that hd_graph_match accepts. `count` is
// the number of random schedules, or the most states of EVERY; `seed` is of
// RANDOM. `why` receives one line.
oracle_verdict oracle_judge(const hd_module *module, oracle_search search,
                            long count, unsigned seed, char *why, size_t size);

const char *oracle_text(oracle_verdict verdict);

HD_END_DECLS

#endif
