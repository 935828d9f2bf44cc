// What will end when: tasks with work left, which goes on at a rate that may
// change, and the heap of their ends. Time jumps from one end to the next.
#ifndef HD_SIMULATE_AGENDA_H
#define HD_SIMULATE_AGENDA_H

#include "base/diag.h"

HD_BEGIN_DECLS

typedef enum hd_task_kind {
    HD_TASK_COMPUTE, // shares its rank's processor
    HD_TASK_DELAY,   // the fixed part of a transfer, or of a kernel
    HD_TASK_FLOW,    // the bytes of a send and recv: shares two links
    HD_TASK_GATHER,  // the bytes of a collective: shares links of all members
    HD_TASK_WAKE,    // the host has issued what a stream waits for
} hd_task_kind;

typedef struct hd_task {
    hd_task_kind kind;
    int rank;     // of FLOW the sender
    int64_t node; // the step; of FLOW the send, of GATHER the first member
    double then;  // of a kernel's DELAY: the seconds of work behind it
    double left;  // work, in seconds at rate 1; where processors are shared,
                  // of COMPUTE all that a task of them will have done when it
                  // ends
    double rate, since; // as of when `left` is meant
    int32_t version;    // of its end in the heap: another one is void
    // Neighbours in a list, 0 at its ends. A flow is in two: of what its sender
    // sends, and of what its receiver receives.
    int32_t next[2], before[2];
    int32_t behind; // of FLOW: the one whose bytes wait for its own; 0 if none
} hd_task;

typedef struct hd_task_end {
    double time;
    int64_t order; // of equal times, the one that was put in first
    int32_t task, version;
} hd_task_end;

typedef struct hd_agenda {
    double now;
    hd_task *task; // owned, from 1
    int64_t ntasks, tasks_room, free_task;
    hd_task_end *heap; // owned
    int64_t nends, ends_room, norders;
    hd_status status; // running out of memory is said once
    hd_diag *diag;
} hd_agenda;

// A task that does not go on yet; 0 if memory has run out.
int32_t hd_agenda_add(hd_agenda *agenda, hd_task_kind kind, int rank,
                      int64_t node, double work);
// From now on it goes on at `rate`, which may be 0.
void hd_agenda_rate(hd_agenda *agenda, int32_t id, double rate);
// It ends at `time`, whatever was said before.
void hd_agenda_put(hd_agenda *agenda, int32_t id, double time);
// A DELAY that takes so long and shares nothing; `then` is of a kernel, else 0.
void hd_agenda_delay(hd_agenda *agenda, int rank, int64_t node, double seconds,
                     double then);
void hd_agenda_drop(hd_agenda *agenda, int32_t id);
// Goes on to the next end, and returns whose it is; 0 if there is none, or
// memory has run out.
int32_t hd_agenda_next(hd_agenda *agenda);
void hd_agenda_free(hd_agenda *agenda);

// List `k` of those that a task may be in.
void hd_task_link(hd_agenda *agenda, int32_t *first, int32_t id, int k);
void hd_task_unlink(hd_agenda *agenda, int32_t *first, int32_t id, int k);

HD_END_DECLS

#endif
