// The stand-ins for what the library calls: `--wrap=malloc` makes its calls of
// malloc go to __wrap_malloc, and __real_malloc is the one it meant.
//
// The plan lies in memory that forked ranks share with the test, so that the
// test learns of a fault in one of them.
#include "tests/faults/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

typedef struct plan {
    atomic_long seen;
    atomic_bool fired;
    atomic_long k; // threads that were started earlier may look meanwhile
    atomic_int kinds;
    int child; // the fork whose process is watched; -1: this process
    int forks; // so far
} plan;

static plan *shared;
static atomic_long live;
static _Thread_local bool watched;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd,
                  off_t offset);
int __real_munmap(void *memory, size_t bytes);
pid_t __real_fork(void);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *context);

// Before all threads, which read it whether they are watched or not.
__attribute__((constructor)) static void make_plan(void)
{
    shared = __real_mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
}

static void begin(long k, int kinds, int child)
{
    plan *p = shared;

    atomic_store(&p->seen, 0);
    atomic_store(&p->fired, false);
    p->k = k;
    p->kinds = kinds;
    p->child = child;
    p->forks = 0;
    watched = child < 0;
}

void fault_begin(long k, int kinds)
{
    begin(k, kinds, -1);
}

void fault_begin_in_child(long k, int kinds, int child)
{
    begin(k, kinds, child);
}

bool fault_end(void)
{
    watched = false;
    shared->child = -1;
    return atomic_load(&shared->fired);
}

void fault_leave(void)
{
    watched = false;
}

long fault_count(void)
{
    return atomic_load(&shared->seen);
}

long fault_live(void)
{
    return atomic_load(&live);
}

static bool fails(int kind)
{
    plan *p = shared;
    int kinds = atomic_load(&p->kinds);
    long n, k;

    if (!watched || (kinds & kind) == 0)
        return false;
    n = atomic_fetch_add(&p->seen, 1) + 1;
    k = atomic_load(&p->k);
    if (k == 0 || n < k || (n > k && !(kinds & FAULT_LASTING)))
        return false;
    atomic_store(&p->fired, true);
    return true;
}

static bool refuse(int kind, int code)
{
    if (!fails(kind))
        return false;
    errno = code;
    return true;
}

static void *count(void *memory)
{
    atomic_fetch_add(&live, memory != NULL);
    return memory;
}

void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return refuse(FAULT_MEMORY, ENOMEM) ? NULL : count(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return refuse(FAULT_MEMORY, ENOMEM) ? NULL : count(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    bool fresh = memory == NULL;
    void *grown;

    if (refuse(FAULT_MEMORY, ENOMEM))
        return NULL;
    grown = __real_realloc(memory, bytes);
    return fresh ? count(grown) : grown;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return refuse(FAULT_MEMORY, ENOMEM)
               ? NULL
               : count(__real_aligned_alloc(alignment, bytes));
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    int code = fails(FAULT_MEMORY)
                   ? ENOMEM
                   : __real_posix_memalign(out, alignment, bytes);

    if (code == 0)
        count(*out);
    return code;
}

void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
    atomic_fetch_sub(&live, memory != NULL);
    __real_free(memory);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd,
                  off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd,
                  off_t offset)
{
    void *memory;

    if (refuse(FAULT_SYSTEM, ENOMEM))
        return MAP_FAILED;
    memory = __real_mmap(at, bytes, protection, flags, fd, offset);
    atomic_fetch_add(&live, memory != MAP_FAILED);
    return memory;
}

int __wrap_munmap(void *memory, size_t bytes);
int __wrap_munmap(void *memory, size_t bytes)
{
    atomic_fetch_sub(&live, 1);
    return __real_munmap(memory, bytes);
}

// A promise of memory.
int __real_mprotect(void *at, size_t bytes, int protection);
int __wrap_mprotect(void *at, size_t bytes, int protection);
int __wrap_mprotect(void *at, size_t bytes, int protection)
{
    return refuse(FAULT_MEMORY, ENOMEM)
               ? -1
               : __real_mprotect(at, bytes, protection);
}

// Calls of the system that return a descriptor or 0, and -1 with this errno.
#define WRAP(name, code, parameters, ...)                                    \
    int __real_##name parameters;                                            \
    int __wrap_##name parameters;                                            \
    int __wrap_##name parameters                                             \
    {                                                                        \
        return refuse(FAULT_SYSTEM, code) ? -1 : __real_##name(__VA_ARGS__); \
    }

WRAP(madvise, EAGAIN, (void *at, size_t bytes, int advice), at, bytes, advice)
WRAP(memfd_create, EMFILE, (const char *name, unsigned flags), name, flags)
WRAP(ftruncate, ENOSPC, (int fd, off_t bytes), fd, bytes)
WRAP(socket, EMFILE, (int domain, int type, int protocol), domain, type,
     protocol)
WRAP(bind, ENOMEM, (int fd, const void *address, unsigned bytes), fd, address,
     bytes)
WRAP(listen, EADDRINUSE, (int fd, int waiting), fd, waiting)
WRAP(accept4, EMFILE, (int fd, void *address, void *bytes, int flags), fd,
     address, bytes, flags)
WRAP(getsockname, ENOBUFS, (int fd, void *address, void *bytes), fd, address,
     bytes)
WRAP(eventfd, EMFILE, (unsigned value, int flags), value, flags)
WRAP(signalfd, EMFILE, (int fd, const void *mask, int flags), fd, mask, flags)

// A rank is watched if it is the one asked for; the launcher is not, then.
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
    plan *p = shared;
    int number;
    pid_t pid;

    if (refuse(FAULT_SYSTEM, EAGAIN))
        return -1;
    number = ++p->forks; // the launcher's next fork may come first
    pid = __real_fork();
    if (pid == 0)
        watched = p->child >= 0 && p->child + 1 == number;
    return pid;
}

// What a thread is started with, so that it is watched if its starter is.
typedef struct start {
    void *(*body)(void *);
    void *context;
} start;

static void *run_watched(void *context)
{
    start s = *(start *)context;

    __real_free(context);
    watched = true;
    return s.body(s.context);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *context)
{
    start *s;
    int code;

    if (!watched)
        return __real_pthread_create(thread, attributes, body, context);
    if (fails(FAULT_SYSTEM))
        return EAGAIN;
    s = __real_malloc(sizeof *s);
    if (s == NULL)
        return EAGAIN;
    *s = (start){body, context};
    code = __real_pthread_create(thread, attributes, run_watched, s);
    if (code != 0)
        __real_free(s);
    return code;
}
