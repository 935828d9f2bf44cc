// All ranks executed step by step without data. What a step waits for never
// depends on who is faster, so if one execution comes to its end all do, and if
// one is stuck all are, at the same steps.
//
// HD_RENDEZVOUS executes one run: nothing in it waits for the next one, and
// once it is over the next one is like it. It may be told of axes that NCCL
// serves, whose calls follow one another. HD_EAGER executes two, and counts how
// deep each step is: what must end before a step starts is less deep.
#ifndef HD_CHECK_REPLAY_H
#define HD_CHECK_REPLAY_H

#include "steps/graph.h"

HD_BEGIN_DECLS

typedef enum hd_blocking {
    HD_EAGER,      // sends wait for nobody: the weakest ordering
    HD_RENDEZVOUS, // sends wait for their receivers, collectives for all ranks,
                   // and a rank's transfers start in issue order
} hd_blocking;

enum {
    HD_REACHED = 1, // its stream has come to the transfer
    HD_STARTED = 2,
};

typedef struct hd_replay {
    const hd_graph *graph; // borrowed
    hd_blocking blocking;
    unsigned serial; // a bit for each axis that NCCL serves
    int runs, nlanes;
    int64_t *cursor; // owned, by rank and stream: steps done, over all runs
    int64_t *next;   // owned, by rank and stream: the step at the cursor
    uint8_t *state;  // owned: HD_REACHED and HD_STARTED, of both runs: those of
                     // rank r from 2 first[r] on
    // Owned, by rank and lane (lane_of): no transfer of the lane before this
    // step is unstarted; in the lane of a serial axis, none is undone.
    int64_t *chain;
    int32_t *met; // owned, by run and meeting: members that have started
    // Of EAGER alone, else NULL.
    int32_t *now;       // owned, by rank and stream: the depth it has come to
    int32_t *start;     // owned, as `state`: where the step starts
    int32_t *end;       // owned, as `state`: where its stream goes on
    int32_t *turn;      // owned, by rank: where the caller's stream has come to
                        // the end of the first run; 0 if it has no steps
    int32_t *met_depth; // owned, by run and meeting
    int32_t *queue;     // owned: ranks that may go on, a ring
    bool *queued;       // owned, by rank
    int64_t queue_head, nqueued;
} hd_replay;

// `serial` has a bit for each axis that NCCL serves: RENDEZVOUS only.
hd_status hd_replay_run(const hd_graph *graph, hd_blocking blocking,
                        unsigned serial, hd_diag *diag, hd_replay *out);
void hd_replay_free(hd_replay *replay);

// Every stream of every rank has come to its end.
bool hd_replay_is_over(const hd_replay *replay);
// Where the stream is stuck, -1 if it has come to its end.
int64_t hd_replay_stuck(const hd_replay *replay, int rank, int stream);

uint8_t hd_replay_state(const hd_replay *replay, int rank, int64_t step);
// A transfer that has started is over on its own rank.
bool hd_replay_is_done(const hd_replay *replay, int rank, int64_t step);
// A send whose stream goes on at its start.
bool hd_replay_defers(const hd_replay *replay, const hd_node *node);
// The transfer of the same rank, which has not started or is not done, that
// this one may not start before; of its own group first. -1 if there is none,
// and itself if its stream has not come to it.
int64_t hd_replay_blocker(const hd_replay *replay, int rank, int64_t step);
// Likewise, of its own group alone; not itself.
int64_t hd_replay_ahead(const hd_replay *replay, int rank, int64_t step);

// The step of `peer`'s run that a step meets: same run, number `step` there.
static inline int64_t hd_same_run(const hd_graph *graph, int rank, int64_t step,
                                  int peer, int64_t there)
{
    return step < hd_graph_steps(graph, rank)
               ? there
               : there + hd_graph_steps(graph, peer);
}

HD_END_DECLS

#endif
