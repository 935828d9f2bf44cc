// A call that is made again and again, its first request failing, then its
// second, until none does. Every k up to 200 is tried, then every 7th; with
// HEDDLE_TEST_QUICK=1 up to 60 and then every 13th, where HEDDLE_FAULTS is
// `all` all of them.
#ifndef HD_TESTS_FAULTS_SWEEP_H
#define HD_TESTS_FAULTS_SWEEP_H

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include <heddle/heddle.h>

#include "tests/faults/fault.h"

inline long NextFault(long k)
{
    auto is = [](const char *name, const char *text) {
        const char *value = getenv(name);

        return value != nullptr && strcmp(value, text) == 0;
    };
    const bool all = is("HEDDLE_FAULTS", "all");
    const bool quick = is("HEDDLE_TEST_QUICK", "1");
    const long dense = quick ? 60 : 200, step = quick ? 13 : 7;

    return all || k < dense ? k + 1 : k + step;
}

// Descriptors that this process has open.
inline size_t CountDescriptors()
{
    DIR *directory = opendir("/proc/self/fd");
    size_t n = 0;

    while (readdir(directory) != nullptr)
        n++;
    closedir(directory);
    return n;
}

// What is held now, to be compared with what is held then.
struct Held {
    long blocks = fault_live();
    size_t descriptors = CountDescriptors();

    void ExpectSame(long k) const
    {
        EXPECT_EQ(fault_live(), blocks) << "leak after request " << k;
        EXPECT_EQ(CountDescriptors(), descriptors) << "after request " << k;
    }
};

struct Sweep {
    long requests = 0; // that the call makes when none fails
    long faults = 0;   // calls of which one failed
};

// `call` gets k, begins and ends the fault around what it tests, checks what it
// must, and says whether a request did fail.
inline Sweep SweepFaults(const std::function<bool(long)> &call)
{
    Sweep sweep;

    for (long k = 1;; k = NextFault(k)) {
        Held before;
        bool fired = call(k);

        before.ExpectSame(k);
        sweep.requests = fault_count();
        EXPECT_TRUE(fired || k > sweep.requests) << "none failed at " << k;
        if (!fired || ::testing::Test::HasFatalFailure())
            return sweep;
        sweep.faults++;
    }
}

// For calls that return a status: HD_OK if nothing failed, else `wanted`.
inline void ExpectOutcome(long k, bool fired, hd_status got, hd_status wanted)
{
    EXPECT_EQ(got, fired ? wanted : HD_OK)
        << "request " << k << (fired ? " failed: " : ": ")
        << hd_status_text(got);
}

#endif
