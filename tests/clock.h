// The clock that the library waits by in tests: seconds and sleeps of tests
// that have to do with how long it waits are of this clock too.
#ifndef HD_TESTS_CLOCK_H
#define HD_TESTS_CLOCK_H

#include <chrono>
#include <unistd.h>

#include "runtime/ranks/clock.h"

// As std::chrono::steady_clock is one.
struct Clock {
    typedef std::chrono::nanoseconds duration;
    typedef duration::rep rep;
    typedef duration::period period;
    typedef std::chrono::time_point<Clock> time_point;
    static constexpr bool is_steady = true;

    static time_point now()
    {
        return time_point(duration(hd_clock()));
    }
};

// What moves it.
extern "C" pid_t clock_mover(void);

// Makes it go so many times as fast, in all processes that share it: for tests
// that wait for long, from where they do nothing else.
extern "C" void clock_goes(int times);

inline double Now()
{
    return double(hd_clock()) * 1e-9;
}

inline void SleepFor(double seconds)
{
    int64_t end = hd_clock_after(seconds), left;

    while ((left = end - hd_clock()) > 0)
        usleep(useconds_t(left / 1000) + 1);
}

#endif
