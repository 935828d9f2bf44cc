// Whether a rank of this host lives, as a lock that its watcher holds in memory
// that all of them map. The kernel takes a thread's robust locks from it first
// of all when it ends, however that comes, and then takes apart what its
// process has: sockets hang up after memory is gone, which takes seconds of one
// that has much, or a device that others are busy with.
#ifndef HD_RUNTIME_RANKS_PULSE_H
#define HD_RUNTIME_RANKS_PULSE_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_group hd_group;

// A cache line each.
typedef union hd_pulse {
    pthread_mutex_t lock;
    char line[64];
} hd_pulse;

// Shares one a rank, of those of this host, which the lowest of them opens, and
// tells the watcher; nothing where they are threads of one process, which dies
// with all of them. A part of hd_group_create: no descriptor stays open.
hd_status hd_pulse_share(hd_group *group, int64_t deadline, hd_diag *diag);
// Of the thread whose life it shows, which ends it before it ends well. False
// if it is to be tried again.
bool hd_pulse_begin(hd_pulse *pulse);
void hd_pulse_end(hd_pulse *pulse);
// Whether its thread has ended without ending it. False of one that never
// began.
bool hd_pulse_has_stopped(hd_pulse *pulse);

HD_END_DECLS

#endif
