// The state of a simulation, which its parts share:
//
//     agenda      what will end when
//     launch      compute that one kernel does
//     processor   compute, which shares a rank's processor
//     traffic     bytes, which share links and networks
//     transfer    its sides meet, its fixed part, its bytes, its end
//     advance     streams and their steps, from event to event
//     critical    the chain of steps that the time is made of
//     simulate    what the public header has
#ifndef HD_SIMULATE_SIMULATION_H
#define HD_SIMULATE_SIMULATION_H

#include <heddle/simulate.h>

#include "simulate/agenda.h"
#include "simulate/cost.h"
#include "steps/turns.h"

HD_BEGIN_DECLS

enum { HD_NOBODY = -1, HD_HOST = -2 }; // what a start waited for, beside steps
enum { HD_NEAR, HD_FAR }; // over links within a node, or the network

// Flows one way, by the peers at their other ends. All are of one peer exactly
// if `squares` times their number is the square of `sum`.
typedef struct hd_peers {
    int64_t flows;
    uint64_t sum, squares; // of the peers' ranks
} hd_peers;

// What a rank is doing, and since when.
typedef struct hd_activity {
    int32_t flows[2]; // first FLOW that it sends, and that it receives
    int ncompute, ntransfers;
    // Flows and collectives on its links, and on its network.
    hd_peers sending[2], receiving[2];
    int gathering[2];
    double ready; // when it has met its peers; 0: it has not yet begun to
    double since, transferring, both;
} hd_activity;

// The COMPUTE tasks of a rank of its own, or of a node's ranks that share a few
// processors. Either is shared equally. Tasks of a rank's own fill their shares
// as far as they can, and the list holds the narrowest first. Where processors
// are shared a task that began when all was last idle would have done `done` by
// `since`, and goes on at `rate`; so the order in which tasks end is known when
// they start, and only the first one's end is in the agenda.
typedef struct hd_processor {
    int32_t first, last; // tasks, in the order of their widths or ends
    int32_t next;        // the one whose end is in the agenda; 0 if none
    int busy;            // how many
    double done, since, rate;
} hd_processor;

typedef struct hd_lane {
    double woken; // when the host will have issued its next step; 0 if not
                  // asked
    // Deferred puts: the FLOW whose bytes travel, and those behind it.
    int32_t flow, last;
    bool synced;    // events stand in front of its next step
    int64_t behind; // 1 + the first step of the group that it has come to, of
                    // which some wait for what NCCL serves; 0 if none does
} hd_lane;

typedef struct hd_step_time {
    double start, end;
    int64_t cause; // node that its start waited for, HD_NOBODY or HD_HOST
} hd_step_time;

// How far a launch that tiles do has come: the product from which on none had
// to wait, and the node of the last one.
typedef struct hd_course {
    int first;
    int64_t last;
} hd_course;

typedef struct hd_op_cost {
    const hd_node *node; // the first of its op with such lengths; NULL: none
    hd_cost cost;
} hd_op_cost;

struct hd_simulation {
    hd_module full;       // the program with room for all sizes of runs
    hd_graph graph;       // owned, of it
    hd_schedule schedule; // owned, of the graph; `held`: what NCCL serves
    hd_turns turns;       // owned: of that
    hd_machine machine;
    bool apart;    // reductions are on several streams
    unsigned busy; // a bit for each axis whose transfers take
                   // processors
    // Owned, where there are launches, and each is one kernel; else NULL: by
    // rank, the first step of the one that is under way, -1; by node, how many
    // are issued before it.
    int32_t *under_way, *issued;
    hd_course *course; // owned, by rank; NULL with them
    hd_known_tiles tiles;
    hd_agenda agenda;        // owned
    int64_t cause;           // what is being dealt with
    hd_step_time *step;      // owned, by node
    bool *critical;          // owned, by node
    hd_lane *lane;           // owned, by rank and stream
    hd_activity *activity;   // owned, by rank
    hd_processor *processor; // owned, by rank, or by node if its ranks share it
    int32_t *pending;        // owned, by rendezvous: tasks left
    hd_op_cost *cost;        // owned: a hash by op and lengths of its views
    int64_t ncosts, cost_room;
    hd_prediction prediction;
};

static inline const hd_node *hd_simulation_node(const hd_simulation *s,
                                                int64_t node)
{
    return &s->graph.node[node];
}

static inline double hd_simulation_least(double a, double b)
{
    return a < b ? a : b;
}

// The node of the machine that a rank is on.
static inline int hd_simulation_host(const hd_simulation *s, int rank)
{
    return rank / s->machine.ranks_per_node;
}

static inline int hd_simulation_way(const hd_simulation *s, int from, int to)
{
    return hd_simulation_host(s, from) == hd_simulation_host(s, to) ? HD_NEAR
                                                                    : HD_FAR;
}

// Whether a step is of a reduction over ranks, without a product.
static inline bool hd_simulation_reduces(const hd_node *node)
{
    return node->kind == HD_NODE_COLLECTIVE &&
           hd_op_fold(node->op) != HD_FOLD_NONE;
}

// Of steps of an op whose views are as long it is found once, unless there are
// very many lengths.
hd_cost hd_simulation_cost(hd_simulation *s, const hd_node *node);
// Brings the account of what the rank does up to now.
void hd_simulation_settle(hd_simulation *s, int rank);

// A step starts, for the cause that is being dealt with, or ends.
void hd_simulation_begin(hd_simulation *s, int rank, int64_t step);
void hd_simulation_end(hd_simulation *s, int rank, int64_t step);

// Of the graph of `module`; refused if its transfers do not match. `serial` has
// a bit for each axis that NCCL serves, `busy` for each whose transfers take
// processors.
hd_status hd_simulation_open(hd_simulation *s, const hd_module *module,
                             unsigned serial, unsigned busy, hd_diag *diag);

HD_END_DECLS

#endif
