// The thread that waits for runs on behalf of others. All of them want to know
// of some run and those before it, and a later one is asked for later: so it
// waits for the first that is asked for, and tells whoever has asked for no
// more than that.
#include "runtime/completion.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/ranks/doorbell.h"

#define NEVER UINT64_MAX // a run that nobody asks for

typedef struct request {
    struct request *next;
    uint64_t run;
    hd_notify_fn *fn;
    void *context;
} request;

struct hd_completion {
    const hd_driver *driver;
    hd_device *device; // borrowed
    pthread_t thread;
    pthread_mutex_t lock; // guards the rest
    pthread_cond_t news;
    request *first, *last; // owned
    int descriptor;        // owned eventfd; -1 until one is asked for
    uint64_t armed;        // run for which it becomes readable, or NEVER
    bool closing;
};

// The next run that somebody wants to know of; NEVER if nobody will any more.
// The lock is held.
static uint64_t await_request(hd_completion *c)
{
    for (;;) {
        uint64_t run = c->armed;

        if (c->first != NULL && c->first->run < run)
            run = c->first->run;
        if (run != NEVER || c->closing)
            return run;
        pthread_cond_wait(&c->news, &c->lock);
    }
}

static void make_readable(const hd_completion *c)
{
    uint64_t one = 1;
    ssize_t wrote = write(c->descriptor, &one, sizeof one);

    (void)wrote; // an eventfd at 0 takes it
}

// The lock is held, but not while one is called.
static void tell(hd_completion *c, uint64_t run, hd_status status)
{
    if (c->armed <= run) {
        c->armed = NEVER;
        make_readable(c);
    }
    while (c->first != NULL && c->first->run <= run) {
        request *request = c->first;

        c->first = request->next;
        pthread_mutex_unlock(&c->lock);
        request->fn(request->context, status);
        free(request);
        pthread_mutex_lock(&c->lock);
    }
}

static void *serve(void *context)
{
    hd_completion *c = context;
    uint64_t run;

    pthread_mutex_lock(&c->lock);
    while ((run = await_request(c)) != NEVER) {
        hd_status status;
        bool over;

        pthread_mutex_unlock(&c->lock);
        status = c->driver->await(c->device, run, INT64_MAX, NULL, &over);
        pthread_mutex_lock(&c->lock);
        tell(c, run, status);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void free_completion(hd_completion *c)
{
    if (c->descriptor >= 0)
        close(c->descriptor);
    pthread_cond_destroy(&c->news);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

hd_status hd_completion_open(const hd_driver *driver, hd_device *device,
                             hd_diag *diag, hd_completion **out)
{
    hd_completion *c = calloc(1, sizeof *c);
    int code;

    if (c == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory to tell when runs are over");
    c->driver = driver;
    c->device = device;
    c->descriptor = -1;
    c->armed = NEVER;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->news, NULL);
    code = hd_thread_start(serve, c, &c->thread);
    if (code != 0) {
        free_completion(c);
        errno = code;
        return hd_system_error(diag, "a thread that tells when runs are over");
    }
    *out = c;
    return HD_OK;
}

void hd_completion_close(hd_completion *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->news);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    free_completion(c);
}

hd_status hd_completion_notify(hd_completion *c, uint64_t run, hd_notify_fn *fn,
                               void *context, hd_diag *diag)
{
    request *request = malloc(sizeof *request);

    if (request == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory to tell when runs are over");
    request->next = NULL;
    request->run = run;
    request->fn = fn;
    request->context = context;
    pthread_mutex_lock(&c->lock);
    if (c->first == NULL)
        c->first = request;
    else
        c->last->next = request;
    c->last = request;
    pthread_cond_signal(&c->news);
    pthread_mutex_unlock(&c->lock);
    return HD_OK;
}

// What it was readable for before is taken back: whoever polls it hears of what
// was asked for last.
static void arm(hd_completion *c, uint64_t run)
{
    uint64_t before;
    ssize_t got = read(c->descriptor, &before, sizeof before);

    (void)got; // there may be nothing to take back
    c->armed = run;
    pthread_cond_signal(&c->news);
}

hd_status hd_completion_descriptor(hd_completion *c, uint64_t run,
                                   hd_diag *diag, int *out)
{
    hd_status status = HD_OK;

    pthread_mutex_lock(&c->lock);
    if (c->descriptor < 0)
        c->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->descriptor < 0) {
        status = hd_system_error(diag, "eventfd");
    } else {
        arm(c, run);
        *out = c->descriptor;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}
