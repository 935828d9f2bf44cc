// Takes the times of contests, in the ranks: the contenders of a contest are
// all open at once and take turns, so that a clock that slows or a neighbour
// that wakes hits all alike.
//
//     warm up on inputs 0 | verify on inputs 1 | round 1: b b a a c c | round 2
//
// Ranks meet before each sample, and a sample took as long as its slowest
// rank.
#ifndef HD_TOOLS_MEASURE_H
#define HD_TOOLS_MEASURE_H

#include <heddle/launch.h>

#include "contest.h"

typedef struct measure {
    hd_session_options session; // device and timeout
    bool cuda;
    int64_t warmup, rounds, iters;
    int64_t queue; // runs in a row that one sample is
    double memory; // bytes that the sessions of a contest may take together
    uint64_t seed;
    contest *contest; // borrowed
    int n;
    int ranks;
    hd_diag *diag;         // borrowed
    const hd_place *place; // borrowed: of this process, or NULL
    // Called on rank 0 when the scores of a contest are there.
    void (*done)(void *context, const contest *contest);
    void *context; // borrowed
} measure;

// Whether the contenders of a contest need more memory together than they may
// take: they are then opened and measured one after the other.
bool measure_apart(const measure *measure, const contest *contest);

// Launches the ranks once, or joins those of a launcher. Says what went wrong.
outcome measure_all(measure *measure);

#endif
