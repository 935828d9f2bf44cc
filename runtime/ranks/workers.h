// Threads that the sessions of a group share: one an index, each of which does
// the jobs that it is given one after the other, in the order in which they
// were given. A thread is started when a session first needs it, and ends with
// the group.
#ifndef HD_RUNTIME_RANKS_WORKERS_H
#define HD_RUNTIME_RANKS_WORKERS_H

#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

#define HD_WORKERS 66 // of a group, at most

// Belongs to whoever gives it, and stays as it is until it is done or dropped:
// so that giving one allocates nothing.
typedef struct hd_job {
    struct hd_job *next;
    void (*run)(void *owner, uint64_t n);
    void *owner;
    uint64_t n;
} hd_job;

typedef struct hd_workers hd_workers;

hd_workers *hd_workers_create(void); // NULL if memory runs out
// Ends all threads. They have nothing to do.
void hd_workers_destroy(hd_workers *workers);

// Sees to it that there is thread `i`.
hd_status hd_workers_need(hd_workers *workers, int i, hd_diag *diag);
// Between these two nobody else gives jobs: what is given to several threads
// comes in the same order to all of them.
void hd_workers_lock(hd_workers *workers);
void hd_workers_unlock(hd_workers *workers);
// Locked.
void hd_workers_give(hd_workers *workers, int i, hd_job *job);
// Forgets the owner's jobs that thread `i`, if it is there, has not begun, and
// waits until the one that it has begun is done. None is given meanwhile.
void hd_workers_drop(hd_workers *workers, int i, const void *owner);

HD_END_DECLS

#endif
