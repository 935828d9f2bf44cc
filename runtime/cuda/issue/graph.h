// A run as a CUDA graph, which is captured once and made ready for each turn of
// runs: its nodes carry what such a run writes into words and waits for. Before
// a launch nodes are given other addresses of the caller's, as far as they are
// understood.
#ifndef HD_RUNTIME_CUDA_ISSUE_GRAPH_H
#define HD_RUNTIME_CUDA_ISSUE_GRAPH_H

#include "runtime/cuda/commands/plan.h"

// Memory that was freed may come back at the same address as another
// allocation. Kernels know addresses alone; whatever else a graph holds must
// not be replayed on it.
typedef struct hd_cuda_argument {
    void *at;
    uint64_t allocation; // what CUDA numbers it; 0 where no graph holds one
} hd_cuda_argument;

// What was captured, and which nodes of it are which command's.
typedef struct hd_cuda_capture {
    hd_cu_graph graph;    // owned: the nodes are its own
    hd_cuda_nodes *nodes; // owned, by command
} hd_cuda_capture;

// Executables know their nodes by those of the graph that they were made from,
// `first`, and go on to do so where they are patched: updated to what was
// captured since, `now`, of the same shape. Those of other turns are `stale`
// until a run comes to them.
//
//     capture A ── instantiate ── run ── run
//                       :                      first = now = A
//     capture B ────── update ─── run          first = A, now = B
typedef struct hd_cuda_graph {
    const hd_cuda_plan *plan;   // borrowed: its commands
    hd_cuda_argument *argument; // owned, by turn: those that it is set for
    bool *fixed;     // owned, by argument: what cannot be set anew names it
    bool *held;      // owned, by argument: what is no kernel names it
    bool numberless; // a node that carries the run's number cannot be set
    size_t nnodes;   // that were captured so far
    hd_cuda_capture first, now;           // one and the same if not patched
    hd_cu_graph_exec exec[HD_CUDA_TURNS]; // owned: by turn
    bool stale[HD_CUDA_TURNS];
    int nturns; // 1 if no node carries a number
} hd_cuda_graph;

hd_status hd_cuda_graph_new(const hd_cuda_plan *plan, hd_diag *diag,
                            hd_cuda_graph *out);
void hd_cuda_graph_free(const hd_device *device, hd_cuda_graph *graph);
// The command was just captured into `now`.
void hd_cuda_graph_note(hd_device *device, hd_cuda_graph *graph, int command);
// Makes what was captured for this run, on these arguments, ready for all
// turns. It is `numberless` afterwards if it is ready for this run alone.
hd_status hd_cuda_graph_make(hd_device *device, hd_cuda_graph *graph,
                             const hd_cuda_argument *argument, uint64_t run,
                             hd_diag *diag);
// Does the same with the executables of `old`, which is alike and of no use
// any more. Runs of these may be under way: CUDA updates later launches alone.
// False if it refuses.
bool hd_cuda_graph_patch(hd_device *device, hd_cuda_graph *graph,
                         hd_cuda_graph *old, const hd_cuda_argument *argument,
                         uint64_t run);
// Whether what was captured becomes the same nodes in the same order, and is
// known to be updated by CUDA: NCCL ties what it needs to the graph that it
// was captured into.
bool hd_cuda_graph_is_alike(const hd_cuda_graph *graph,
                            const hd_cuda_graph *other);
// Whether all that is fixed is as it was.
bool hd_cuda_graph_fits(const hd_device *device, const hd_cuda_graph *graph,
                        const hd_cuda_argument *argument);
// Sets all nodes whose arguments are others now, of the run's turn of a graph
// that fits. False if CUDA refuses one: then the graph is of no use any more.
bool hd_cuda_graph_set(hd_device *device, hd_cuda_graph *graph,
                       const hd_cuda_argument *argument, uint64_t run);
// The run's turn of a graph that is set for it.
hd_status hd_cuda_graph_launch(hd_device *device, const hd_cuda_graph *graph,
                               uint64_t run, hd_cu_stream stream,
                               hd_diag *diag);

#endif
