// What a host program must not do, judged by the words of docs/semantics.md.
//
// Two runs stand one after the other on every rank, and before, between and
// after them the caller writes all arguments on its own stream. Every step is
// a beginning and an end, so that it takes time; what is ordered is a graph of
// those. Deadlock is judged on the graph with all blocking that a driver may
// show, all else on the graph with none but what is promised:
//
//     send begins ── send ends ──▸ recv ends        promised: data has left
//     recv begins ──▸ send ends                     a driver may: rendezvous
//
// Two steps overlap in some schedule if and only if neither ends before the
// other's beginning. That is looked up in the graph, and beside it schedules
// are executed on memory of which each cell knows who is at work on it, who
// wrote it, through which name and in which run: what the graph says must show
// in a schedule, and no schedule may show what the graph does not say.
#ifndef HD_TESTS_SECOND_MODEL_H
#define HD_TESTS_SECOND_MODEL_H

#include "tests/second/launches.h"

namespace second
{

struct Schedules {
    int random = 2;    // random schedules to execute
    unsigned seed = 1; // of the first
    bool each = false; // one for each step, in which it ends last
    long states = 0;   // enumerate all interleavings, up to so many states
};

struct Verdict {
    std::map<Rule, std::string> broken; // and a word about where
    // What schedules and graph disagree about: a bug of this oracle.
    std::string inconsistent;
    bool enumerated = false; // all interleavings were seen
    Launches launch = Launches::END;

    bool Clean() const
    {
        return broken.empty();
    }
    std::string Text() const;
};

// Throws Unreadable.
Verdict Judge(const Program &program, const Schedules &schedules);

} // namespace second

#endif
