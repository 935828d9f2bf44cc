// What has surely ended on a rank when one of its steps starts: a clock, which
// counts by stream how many of its steps have ended, over both runs. Two steps
// of a rank are ordered if the clock of one has counted the other.
//
// Between the runs the caller reads and writes the arguments on its own stream:
// that counts as one step of it, so that what has seen the first run end has
// not thereby seen the second begin.
//
// A send may end before its stream: where the stream does not wait for it, or
// it shares a group with others. Such a send is loose: what has seen it end
// need not have seen the stream go on. A wait for its `done` event says so, or
// that its peer has received it (check/past).
#ifndef HD_CHECK_ORDER_H
#define HD_CHECK_ORDER_H

#include "steps/graph.h"

HD_BEGIN_DECLS

enum {
    HD_RUN_END = -1
}; // in place of a step: the caller's stream has come to
   // the end of the first run

// What the clock of a rank counts of the caller's stream once the second run
// has begun there.
static inline int64_t hd_order_turn(const hd_graph *graph, int rank)
{
    return hd_graph_length(graph, rank, 0) + 1;
}

// What it counts of a step's stream once that step has ended.
static inline int64_t hd_order_count(const hd_graph *graph, int rank,
                                     int64_t step)
{
    const hd_node *node = hd_graph_node(graph, rank, step);

    if (step < hd_graph_steps(graph, rank))
        return node->place + 1;
    return node->place + 1 +
           (node->stream == 0 ? hd_order_turn(graph, rank)
                              : hd_graph_length(graph, rank, node->stream));
}

// Called with each step of a rank after all that precede it.
typedef void hd_step_seen_fn(void *context, int64_t step, const int32_t *clock);

typedef struct hd_watch {
    int rank;
    int64_t nloose;       // of one run
    const int32_t *loose; // borrowed, by step of one run: its number, or -1
    hd_step_seen_fn *fn;
    void *context;
} hd_watch;

// Numbers the loose sends of one run of a rank, from 0; `out` has room for its
// steps. Returns how many.
int64_t hd_order_number_loose(const hd_graph *graph, int rank, int32_t *out);

// Visits the steps of one run or two in issue order, and HD_RUN_END, with what
// this rank alone decides: peers are not asked, so what is ordered by way of
// them is not seen. A wait is visited with what its stream knew before it.
hd_status hd_order_each(const hd_graph *graph, int runs, const hd_watch *watch,
                        hd_diag *diag);

HD_END_DECLS

#endif
