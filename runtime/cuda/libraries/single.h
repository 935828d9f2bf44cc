// A call of a library's, a product or an attention, as a graph of its own.
#ifndef HD_RUNTIME_CUDA_LIBRARIES_SINGLE_H
#define HD_RUNTIME_CUDA_LIBRARIES_SINGLE_H

#include "runtime/cuda/commands/plan.h"
#include "runtime/cuda/libraries/attends.h"

#define HD_CUDA_OPERANDS HD_CUDA_PARTS // an attention has the most
#define HD_CUDA_CAPTURED_MOST 32       // sets of addresses, of a call

// A node of the call's: a kernel, or a fill of the session's own memory.
typedef struct hd_cuda_work {
    int type; // HD_CU_NODE_KERNEL or .._FILL
    hd_cu_kernel_node kernel;
    hd_cu_fill_node fill;
} hd_cuda_work;

// What the call enqueues on a set of addresses, no two of which are the same.
typedef struct hd_cuda_captured {
    hd_cu_ptr operand[HD_CUDA_OPERANDS];
    hd_cu_graph graph;                     // owned: of nothing else
    hd_cuda_work work[HD_CUDA_NODES_MOST]; // points into the graph
    size_t n;
} hd_cuda_captured;

typedef struct hd_cuda_single {
    hd_cuda_captured *captured; // owned
    int n, room;
    unsigned dropped;      // captures, for later ones
    hd_cu_graph_exec exec; // owned: of the first; NULL if there is none
    hd_cuda_nodes nodes;   // that it has
    hd_cu_ptr operand[HD_CUDA_OPERANDS]; // that it is set for
    bool refused;                        // it could not be set: no more of it
} hd_cuda_single;

// ------------------------------------- cuda/libraries/single.c

// Makes those of the plan's calls, which it has until they are closed; those of
// a variant have no graphs of their own, since runs are under way.
hd_status hd_cuda_singles_open(hd_cuda_plan *plan, hd_diag *diag);
void hd_cuda_singles_close(hd_device *device, hd_cuda_plan *plan);
// By its own graph, or else by the library's call.
hd_status hd_cuda_issue_single(const hd_cuda_plan *plan,
                               const hd_cuda_command *command,
                               hd_cu_stream stream, hd_diag *diag);
// What nodes are; false if one is anything else, or two are the same, of which
// it could not be told which is to be given what.
bool hd_cuda_single_read(const hd_device *device, const hd_cuda_nodes *nodes,
                         hd_cuda_work *out);
// Sets the command's nodes in a graph, which are like those of `like`, for the
// addresses of now. False if they cannot be set.
bool hd_cuda_single_set(const hd_cuda_plan *plan,
                        const hd_cuda_command *command, hd_cu_graph_exec exec,
                        const hd_cuda_nodes *nodes, const hd_cuda_nodes *like);

#endif
