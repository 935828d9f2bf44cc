#include "tests/cuda/system.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <utility>

#include "tests/clock.h"

namespace
{

std::atomic<int> threads{INT_MAX};
thread_local double longer = 0;
std::atomic<long> steps{0}, last{-1};
std::atomic<double> late{0};

} // namespace

void StartThreads(int most)
{
    threads = most;
}

void NapFor(double seconds)
{
    longer = seconds;
}

void HearLate(double seconds)
{
    late = seconds;
}

long StepsOnCpu()
{
    return steps;
}

void DieAtStepOnCpu(long k)
{
    last = steps + k;
}

extern "C" {

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *context)
{
    return threads-- <= 0
               ? EAGAIN
               : __real_pthread_create(thread, attributes, body, context);
}

int __real_nanosleep(const timespec *time, timespec *left);
int __wrap_nanosleep(const timespec *time, timespec *left);
int __wrap_nanosleep(const timespec *time, timespec *left)
{
    if (longer <= 0)
        return __real_nanosleep(time, left);
    SleepFor(std::exchange(longer, 0.0));
    return 0;
}

bool __real_hd_group_note_failure(void *group, int status, const char *text);
bool __wrap_hd_group_note_failure(void *group, int status, const char *text);
bool __wrap_hd_group_note_failure(void *group, int status, const char *text)
{
    SleepFor(late);
    return __real_hd_group_note_failure(group, status, text);
}

void __real_hd_ranges_step(const void *ranges, const void *step);
void __wrap_hd_ranges_step(const void *ranges, const void *step);
void __wrap_hd_ranges_step(const void *ranges, const void *step)
{
    if (++steps == last)
        raise(SIGKILL);
    __real_hd_ranges_step(ranges, step);
}

} // extern "C"
