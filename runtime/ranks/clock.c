// The clock of the system.
#include "runtime/ranks/clock.h"

#include <time.h>

int64_t hd_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
