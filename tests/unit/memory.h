// Runs a piece of a test in a process of its own whose memory has run out.
#ifndef HD_TESTS_MEMORY_H
#define HD_TESTS_MEMORY_H

#include <cstdlib>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sanitized.h"

// From here on malloc returns NULL, for the smallest block too.
inline void ExhaustMemory()
{
    rlimit none;

    getrlimit(RLIMIT_AS, &none);
    none.rlim_cur = 0;
    setrlimit(RLIMIT_AS, &none);
    for (size_t bytes = size_t(1) << 24; bytes > 0; bytes /= 2)
        while (void *volatile taken = malloc(bytes))
            (void)taken;
}

// As much as there may be again.
inline void AllowMemory()
{
    rlimit all;

    getrlimit(RLIMIT_AS, &all);
    all.rlim_cur = all.rlim_max;
    setrlimit(RLIMIT_AS, &all);
}

// What malloc has handed out.
inline size_t HeapBytes()
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

// Is `body`, a lambda that returns bool, true without memory?
template <typename Body> bool HoldsWithoutMemory(Body body)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        bool holds = body();

        AllowMemory(); // what measures coverage writes it down as it ends
        _exit(holds ? 0 : 1);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#ifdef HD_TEST_SANITIZED
#define HD_NEEDS_PLAIN_MALLOC() GTEST_SKIP() << "malloc is the sanitizer's"
#else
#define HD_NEEDS_PLAIN_MALLOC() (void)0
#endif

#endif
