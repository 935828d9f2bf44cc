#include "tests/cuda/system.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <ctime>
#include <pthread.h>

namespace
{

std::atomic<int> threads{INT_MAX};
thread_local timespec longer{};

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

} // extern "C"
