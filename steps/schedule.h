// The steps of all ranks, begun and ended in an order that the program allows.
// A cursor a stream says how far it has come, and the fields of the nodes what
// the step there waits for; when a step that has begun ends is the caller's to
// say, who adds what it is after: values, durations, clocks.
//
// A stream begins the step at its cursor, or the group that begins there, once
// nothing of hd_graph_need is left, and goes past it once all of it has ended
// but sends that it does not wait for.
#ifndef HD_STEPS_SCHEDULE_H
#define HD_STEPS_SCHEDULE_H

#include "steps/graph.h"

HD_BEGIN_DECLS

enum {
    HD_STEP_BEGUN = 1,   // its stream has come to it
    HD_STEP_STARTED = 2, // of a transfer: hd_schedule_meet has counted it
    HD_STEP_ENDED = 4,
};

// A stream has come to the `n` steps from `step` on, or goes past them.
typedef hd_status hd_begin_fn(void *context, int rank, int64_t step, int64_t n);
typedef void hd_pass_fn(void *context, int rank, int64_t step, int64_t n);

typedef struct hd_schedule {
    const hd_graph *graph; // borrowed
    int runs;              // 1, or 2 that follow each other
    unsigned held; // a bit for each axis whose deferred sends hold up their
                   // streams, too
    // The caller's, whose first status that is not HD_OK ends all. `may_begin`
    // is asked before what the node says; `wake` is called when a rank goes
    // on after others have. All but `begin` may be NULL.
    hd_begin_fn *begin;
    hd_pass_fn *pass;
    bool (*may_begin)(void *context, int rank, int64_t step);
    hd_status (*wake)(void *context, int rank);
    void *context;
    int64_t *cursor;  // owned, by rank and stream: steps passed, over all runs
    int64_t *next;    // owned, by rank and stream: the step at the cursor, past
                      // all steps of the rank where the stream is at its end
    int64_t *over;    // owned, by rank and stream: as many members of the group
                      // at the cursor need no more waiting for
    uint8_t *state;   // owned, by rank and step of all runs
    int32_t *arrived; // owned, by run and rendezvous: members that have started
    int32_t *queue;   // owned: ranks that may go on, a ring
    bool *queued;     // owned, by rank
    int64_t head, nqueued;
} hd_schedule;

// Of a graph that is matched; the caller fills in its functions.
hd_status hd_schedule_open(const hd_graph *graph, int runs, hd_diag *diag,
                           hd_schedule *out);
void hd_schedule_close(hd_schedule *schedule);

// Goes on from rank to rank until none can.
hd_status hd_schedule_run(hd_schedule *schedule);
// Likewise, beginning with the ranks that were woken since.
hd_status hd_schedule_resume(hd_schedule *schedule);
// Goes on with the streams of one rank until none can.
hd_status hd_schedule_advance(hd_schedule *schedule, int rank);
// hd_schedule_run will come to the rank (again).
void hd_schedule_wake(hd_schedule *schedule, int rank);

void hd_schedule_end(hd_schedule *schedule, int rank, int64_t step);
// Counts the transfer's step among those that have started; true for the last
// one of those who take part.
bool hd_schedule_meet(hd_schedule *schedule, int rank, int64_t step);
// Ends the steps of all who take part, and wakes their ranks.
void hd_schedule_end_all(hd_schedule *schedule, int rank, int64_t step);

// Every stream of every rank has come to its end.
bool hd_schedule_is_over(const hd_schedule *schedule);
// Where the stream is stuck, -1 if it has come to its end.
int64_t hd_schedule_stuck(const hd_schedule *schedule, int rank, int stream);
// Whether its stream, which is at the step, has come to it: it may wait for all
// but what every step of that stream waits for.
bool hd_schedule_has_come(const hd_schedule *schedule, int rank, int64_t step);
// The first thing on its own rank that a step still waits for; false if there
// is none.
bool hd_schedule_lacks(const hd_schedule *schedule, int rank, int64_t step,
                       hd_need *out);

// A send whose stream goes on at its start.
static inline bool hd_schedule_defers(const hd_schedule *schedule,
                                      const hd_node *node)
{
    return node->async && (schedule->held >> node->op->axis & 1) == 0;
}

static inline uint8_t *hd_schedule_state(const hd_schedule *schedule, int rank,
                                         int64_t step)
{
    return &schedule
                ->state[schedule->runs * schedule->graph->first[rank] + step];
}

static inline bool hd_schedule_has(const hd_schedule *schedule, int rank,
                                   int64_t step, int state)
{
    return (*hd_schedule_state(schedule, rank, step) & state) != 0;
}

HD_END_DECLS

#endif
