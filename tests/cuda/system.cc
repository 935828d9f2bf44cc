#include "tests/cuda/system.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <pthread.h>

namespace
{

std::atomic<int> threads{INT_MAX};
thread_local timespec longer{};
std::atomic<long> steps{0}, last{-1};
std::atomic<double> late{0};

} // namespace

void StartThreads(int most)
{
    threads = most;
}

void NapFor(double seconds)
{
    longer.tv_sec = time_t(seconds);
    longer.tv_nsec = long((seconds - double(longer.tv_sec)) * 1e9);
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
    timespec nap = longer;

    longer = {};
    return __real_nanosleep(nap.tv_sec + nap.tv_nsec > 0 ? &nap : time, left);
}

bool __real_hd_group_note_failure(void *group, int status, const char *text);
bool __wrap_hd_group_note_failure(void *group, int status, const char *text);
bool __wrap_hd_group_note_failure(void *group, int status, const char *text)
{
    if (late > 0) {
        NapFor(late);
        nanosleep(&longer, nullptr);
    }
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
