// The library's clock in tests: it goes by at most 1 ms for each nap of 1 ms
// that the machine gives it (or several, where a test asks for it), so that
// under load it slows down with the ranks, and stands still while they are
// starved. The linker puts it in hd_clock's
// place.
//
// A process of its own moves it, in memory that all share which are forked from
// the test program: a thread would be in none of them, and ThreadSanitizer
// forbids that what has threads forks, and starts others. Nobody can wait for
// that process, which raises no SIGCHLD, and it ends with the one that began
// it.
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/ranks/clock.h"

#define NAP 1000000 // ns

static struct {
    _Atomic int64_t at, step;
} * own;
static pid_t mover;

int64_t __real_hd_clock(void);
// Stand-ins that the program loads find it by its name.
__attribute__((visibility("default"))) int64_t __wrap_hd_clock(void);

pid_t clock_mover(void);

pid_t clock_mover(void)
{
    return mover;
}

int64_t __wrap_hd_clock(void)
{
    return atomic_load_explicit(&own->at, memory_order_relaxed);
}

void clock_goes(int times);

void clock_goes(int times)
{
    atomic_store_explicit(&own->step, times * NAP, memory_order_relaxed);
}

// Whatever the sanitizers have of this process is that of another one.
static void move(pid_t owner)
{
    const struct timespec nap = {.tv_nsec = NAP};

    const struct sched_param none = {0};

    // As it wakes it takes no processor from whoever has one: it waits its
    // turn, as the ranks do.
    sched_setscheduler(0, SCHED_BATCH, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    setsid();                            // signals to the group are the ranks'
    syscall(SYS_close_range, 0, ~0u, 0); // a pipe of ctest's among them
    while (getppid() == owner) {
        syscall(SYS_nanosleep, &nap, NULL);
        atomic_fetch_add_explicit(
            &own->at, atomic_load_explicit(&own->step, memory_order_relaxed),
            memory_order_relaxed);
    }
    _exit(0);
}

__attribute__((constructor)) static void begin(void)
{
    pid_t owner = getpid();
    void *page =
        (void *)syscall(SYS_mmap, NULL, sizeof *own, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        abort();
    own = page;
    atomic_store_explicit(&own->at, __real_hd_clock(), memory_order_relaxed);
    clock_goes(1);
    mover = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0);
    if (mover < 0)
        abort();
    if (mover == 0)
        move(owner);
}
