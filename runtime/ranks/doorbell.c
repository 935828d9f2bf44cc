// Doorbells on futexes. The futex is never private, since a doorbell may lie in
// memory that several processes map.
#include "runtime/ranks/doorbell.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool hd_lock_until(pthread_mutex_t *mutex, int64_t deadline)
{
    while (pthread_mutex_trylock(mutex) != 0) {
        if (hd_clock() >= deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return true;
}

int hd_thread_start(void *(*fn)(void *), void *context, pthread_t *out)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(out, NULL, fn, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

void hd_doorbell_wake(hd_doorbell *doorbell)
{
    atomic_fetch_add_explicit(&doorbell->rings, 1, memory_order_seq_cst);
    syscall(SYS_futex, &doorbell->rings, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

uint32_t hd_doorbell_arm(hd_doorbell *doorbell)
{
    atomic_fetch_add_explicit(&doorbell->sleepers, 1, memory_order_seq_cst);
    return atomic_load_explicit(&doorbell->rings, memory_order_seq_cst);
}

void hd_doorbell_sleep(hd_doorbell *doorbell, uint32_t seen, int64_t ns)
{
    struct timespec limit = {.tv_sec = ns / 1000000000,
                             .tv_nsec = ns % 1000000000};

    if (ns > 0)
        syscall(SYS_futex, &doorbell->rings, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void hd_doorbell_disarm(hd_doorbell *doorbell)
{
    atomic_fetch_sub_explicit(&doorbell->sleepers, 1, memory_order_relaxed);
}
