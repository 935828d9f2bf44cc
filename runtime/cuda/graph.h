// A run as a CUDA graph, which is captured once and made ready for each turn of
// runs: its nodes carry what such a run writes into words and waits for. Before
// a launch nodes are given other addresses of the caller's, as far as they are
// understood.
#ifndef HD_RUNTIME_CUDA_GRAPH_H
#define HD_RUNTIME_CUDA_GRAPH_H

#include "runtime/cuda/plan.h"

// Memory that was freed may come back at the same address as another
// allocation. Kernels know addresses alone; whatever else a graph holds must
// not be replayed on it.
typedef struct hd_cuda_argument {
    void *at;
    uint64_t allocation; // what CUDA numbers it; 0 where no graph holds one
} hd_cuda_argument;

typedef struct hd_cuda_graph {
    const hd_cuda_plan *plan;   // borrowed: its commands
    hd_cuda_argument *argument; // owned, by turn: those that it is set for
    bool *fixed; // owned, by argument: what cannot be set anew names it
    bool *held;  // owned, by argument: what is no kernel names it
    hd_cuda_nodes *nodes; // owned, by command
    bool numberless;      // a node that carries the run's number cannot be set
    size_t nnodes;        // that were captured so far
    hd_cu_graph graph;    // owned: the nodes are its own
    hd_cu_graph_exec exec[HD_CUDA_TURNS]; // owned: by turn
    int nturns;                           // 1 if no node carries a number
} hd_cuda_graph;

hd_status hd_cuda_graph_new(const hd_device *device, hd_diag *diag,
                            hd_cuda_graph *out);
void hd_cuda_graph_free(const hd_device *device, hd_cuda_graph *graph);
// The command was just captured.
void hd_cuda_graph_note(hd_device *device, hd_cuda_graph *graph, int command);
// Makes what was captured for this run, on these arguments, ready for all
// turns. It is `numberless` afterwards if it is ready for this run alone.
hd_status hd_cuda_graph_make(hd_device *device, hd_cuda_graph *graph,
                             const hd_cuda_argument *argument, uint64_t run,
                             hd_diag *diag);
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
