// The threads behind a group's sessions. Jobs hang together by fields of their
// own, so that the list of a thread needs no room.
#include "runtime/ranks/workers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/ranks/doorbell.h"

#define LOOKS 16 // before a thread sleeps
#define LONG_NAP ((int64_t)3600 * 1000000000)

typedef struct worker {
    hd_doorbell given; // rung when there is a job, or none will ever come
    atomic_bool closing;
    pthread_t thread;
    pthread_mutex_t lock;  // guards the rest
    pthread_cond_t done;   // `at` has changed
    hd_job *_Atomic first; // seen without the lock, but for what it points to
    hd_job *last;          // NULL if there is none
    const void *at;        // whose job is being done, or NULL
} worker;

struct hd_workers {
    pthread_mutex_t lock;       // guards the array, and holds jobs together
    worker *worker[HD_WORKERS]; // owned; NULL where none was needed yet
};

// The next job, if there is one. What was done before is done from now on.
static bool take_job(worker *worker, hd_job *out)
{
    hd_job *job;

    pthread_mutex_lock(&worker->lock);
    job = atomic_load_explicit(&worker->first, memory_order_relaxed);
    if (worker->at != NULL)
        pthread_cond_broadcast(&worker->done);
    worker->at = NULL;
    if (job != NULL) {
        *out = *job;
        worker->at = job->owner;
        atomic_store_explicit(&worker->first, job->next, memory_order_relaxed);
        if (job->next == NULL)
            worker->last = NULL;
    }
    pthread_mutex_unlock(&worker->lock);
    return job != NULL;
}

static bool has_news(const worker *worker)
{
    return atomic_load_explicit(&worker->first, memory_order_seq_cst) != NULL ||
           atomic_load_explicit(&worker->closing, memory_order_seq_cst);
}

static void await_news(worker *worker)
{
    uint32_t seen;

    for (int i = 0; i < LOOKS; i++) {
        if (has_news(worker))
            return;
        if (i >= LOOKS / 2)
            sched_yield();
    }
    seen = hd_doorbell_arm(&worker->given);
    if (!has_news(worker))
        hd_doorbell_sleep(&worker->given, seen, LONG_NAP);
    hd_doorbell_disarm(&worker->given);
}

static void *do_jobs(void *context)
{
    worker *worker = context;
    hd_job job;

    for (;;) {
        if (take_job(worker, &job))
            job.run(job.owner, job.n);
        else if (atomic_load_explicit(&worker->closing, memory_order_seq_cst))
            return NULL;
        else
            await_news(worker);
    }
}

static void free_worker(worker *worker)
{
    pthread_cond_destroy(&worker->done);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

static hd_status start_worker(hd_diag *diag, worker **out)
{
    worker *worker = calloc(1, sizeof *worker);
    int code;

    if (worker == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory for a stream's thread");
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->done, NULL);
    code = hd_thread_start(do_jobs, worker, &worker->thread);
    if (code != 0) {
        free_worker(worker);
        errno = code;
        return hd_system_error(diag, "a thread for a stream");
    }
    *out = worker;
    return HD_OK;
}

hd_workers *hd_workers_create(void)
{
    hd_workers *workers = calloc(1, sizeof *workers);

    if (workers != NULL)
        pthread_mutex_init(&workers->lock, NULL);
    return workers;
}

void hd_workers_destroy(hd_workers *workers)
{
    if (workers == NULL)
        return;
    for (int i = 0; i < HD_WORKERS; i++) {
        worker *worker = workers->worker[i];

        if (worker == NULL)
            continue;
        atomic_store_explicit(&worker->closing, true, memory_order_seq_cst);
        hd_doorbell_wake(&worker->given);
        pthread_join(worker->thread, NULL);
        free_worker(worker);
    }
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

hd_status hd_workers_need(hd_workers *workers, int i, hd_diag *diag)
{
    hd_status status = HD_OK;

    pthread_mutex_lock(&workers->lock);
    if (workers->worker[i] == NULL)
        status = start_worker(diag, &workers->worker[i]);
    pthread_mutex_unlock(&workers->lock);
    return status;
}

void hd_workers_lock(hd_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
}

void hd_workers_unlock(hd_workers *workers)
{
    pthread_mutex_unlock(&workers->lock);
}

void hd_workers_give(hd_workers *workers, int i, hd_job *job)
{
    worker *worker = workers->worker[i];

    job->next = NULL;
    pthread_mutex_lock(&worker->lock);
    if (worker->last != NULL)
        worker->last->next = job;
    else
        atomic_store_explicit(&worker->first, job, memory_order_seq_cst);
    worker->last = job;
    pthread_mutex_unlock(&worker->lock);
    hd_doorbell_ring(&worker->given);
}

// The lock is held.
static void forget_jobs(worker *worker, const void *owner)
{
    hd_job *job = atomic_load_explicit(&worker->first, memory_order_relaxed);
    hd_job *first = NULL, *last = NULL;

    for (; job != NULL; job = job->next) {
        if (job->owner == owner)
            continue;
        if (last != NULL)
            last->next = job;
        else
            first = job;
        last = job;
    }
    if (last != NULL)
        last->next = NULL;
    atomic_store_explicit(&worker->first, first, memory_order_relaxed);
    worker->last = last;
}

void hd_workers_drop(hd_workers *workers, int i, const void *owner)
{
    worker *worker;

    pthread_mutex_lock(&workers->lock);
    worker = workers->worker[i];
    pthread_mutex_unlock(&workers->lock);
    if (worker == NULL)
        return;
    pthread_mutex_lock(&worker->lock);
    forget_jobs(worker, owner);
    while (worker->at == owner)
        pthread_cond_wait(&worker->done, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
}
