// All ranks' steps of one run, a few bytes each, with what each waits for. The
// run after it has the same steps: where two runs are meant, step i of it is
// number nsteps + i, so that numbers go on counting in issue order.
//
// Edges are not stored but follow from the fields below:
//   on a stream, each step follows the one before it;
//   a work stream's step follows the last fork issued before it, on the
//   caller's stream; a join follows all that was issued before it;
//   a wait follows its records; a recv its send; a collective the start of it
//   on every rank (of a broadcast: on the root; of a reduce on another rank
//   than the root: there alone).
//
// The folder is read in this order: part, graph, match, schedule, execute;
// cells.
#ifndef HD_STEPS_GRAPH_H
#define HD_STEPS_GRAPH_H

#include <assert.h>

#include "ir/symmetry.h"
#include "steps/part.h"

HD_BEGIN_DECLS

// Steps of all ranks together, and the parts that they touch.
#define HD_MAX_GRAPH_STEPS ((int64_t)1 << 25)
#define HD_MAX_GRAPH_PARTS ((int64_t)1 << 28)

typedef enum hd_node_kind {
    HD_NODE_PLAIN, // computes or records: waits for nothing but its stream
    HD_NODE_WAIT,
    HD_NODE_FORK,
    HD_NODE_JOIN,
    HD_NODE_SEND,
    HD_NODE_RECV,
    HD_NODE_COLLECTIVE,
} hd_node_kind;

typedef struct hd_node {
    const hd_op *op;
    union {
        int32_t causal;     // attention: that of the step, and its `start`
        int32_t attended;   // of one of sequences: where in the graph's list
        int32_t records;    // wait: where its records begin
        int32_t partner;    // send and recv: the step of `peer` that it meets
        int32_t rendezvous; // collective: its own
        int32_t seq;        // of both that of the step, until they are matched
    };
    int32_t peer;
    int32_t fork;   // step number of the last fork before it, -1
    int32_t head;   // first member of its group; its own number outside groups
    int32_t place;  // among the steps of its stream
    int32_t part;   // its first one; the next node's is past its last
    int32_t launch; // first step of its launch; -1 outside launches
    uint8_t stream; // 0 is the caller's, then the work streams
    uint8_t kind;
    bool async;     // a send that its stream does not wait for
    uint8_t stores; // that of the step
} hd_node;

// What an attention of sequences has as its step.
typedef struct hd_graph_attended {
    hd_attended attended;
    int32_t causal;
} hd_graph_attended;

// One step of a collective.
typedef struct hd_member {
    int32_t rank;
    int32_t step; // -1 if the rank lacks it
} hd_member;

typedef struct hd_graph {
    bool folded;             // its ranks stand for others
    const hd_module *module; // borrowed
    int nranks, nstreams;    // streams with the caller's
    int32_t *number;         // owned: of rank r of the graph, in the mesh
    hd_part_frame *frame;    // owned, by buffer id
    hd_node *node;           // owned; one past the last one closes `part`
    int64_t *first;          // owned: rank r has nodes first[r] .. first[r + 1]
    int32_t *order;          // owned: steps of a rank, stream by stream
    int32_t *begin;          // owned, nstreams + 1 a rank: where in its order
    hd_part *part;           // owned
    int64_t nparts;
    hd_graph_attended *attended; // owned, a step of sequences
    int64_t nattended;
    hd_record *record;   // owned: of each wait, one an event
    int64_t *rendezvous; // owned: rendezvous i has members from here
    hd_member *member;   // owned
    int64_t nrendezvous;
    // Of a line whose ranks issue some of the steps each: along which axis, how
    // many they are, and which ones issue which node. 0 and NULL: all issue
    // all.
    int axis;
    int64_t line;
    hd_arc *arc; // owned
    // Borrowed, by node; NULL as a rule. A wait that is being tried: another
    // step of its rank and run, whose end it follows, too; -1.
    const int32_t *after;
} hd_graph;

// Which ranks of the line issue a node; all where there is none.
static inline hd_arc hd_graph_arc(const hd_graph *graph, const hd_node *node)
{
    return graph->arc != NULL ? graph->arc[node - graph->node]
                              : hd_arc_all(graph->line);
}

// Whether some rank issues both.
static inline bool hd_graph_meet(const hd_graph *graph, const hd_node *a,
                                 const hd_node *b)
{
    return graph->arc == NULL ||
           hd_arc_meets(hd_graph_arc(graph, a), hd_graph_arc(graph, b),
                        graph->line);
}

// Whether all ranks that issue `a` issue `b`.
static inline bool hd_graph_within(const hd_graph *graph, const hd_node *a,
                                   const hd_node *b)
{
    return graph->arc == NULL ||
           hd_arc_within(hd_graph_arc(graph, a), hd_graph_arc(graph, b),
                         graph->line);
}

static inline int64_t hd_graph_steps(const hd_graph *graph, int rank)
{
    return graph->first[rank + 1] - graph->first[rank];
}

// What the step of a node that computes has as `causal`, or `start`, and as
// `attended`, which stands as long as the graph.
int32_t hd_graph_causal(const hd_graph *graph, const hd_node *node);
const hd_attended *hd_graph_attends(const hd_graph *graph, const hd_node *node);

// Whose node `node` is: a rank of the graph.
int hd_graph_rank(const hd_graph *graph, int64_t node);

// Of either run.
static inline const hd_node *hd_graph_node(const hd_graph *graph, int rank,
                                           int64_t step)
{
    int64_t n = hd_graph_steps(graph, rank);

    return &graph->node[graph->first[rank] + (step < n ? step : step - n)];
}

// How many steps of one run the stream has.
static inline int64_t hd_graph_length(const hd_graph *graph, int rank,
                                      int stream)
{
    const int32_t *begin =
        &graph->begin[(int64_t)rank * (graph->nstreams + 1) + stream];

    return begin[1] - begin[0];
}

// How many steps are issued at once from `step` on, which no group before
// holds: 1, or the members of its group.
int64_t hd_graph_together(const hd_graph *graph, int rank, int64_t step);
// The last step of a launch, of which `step` is one; both of the first run.
int64_t hd_graph_launched(const hd_graph *graph, int rank, int64_t step);
// Whether the step takes processors of its device, where the transfers along
// the axes that `busy` has a bit for do: what computes, sums ranks up, copies a
// rank's own piece, or moves rows by counts. The rest is for copy engines.
bool hd_graph_is_busy(const hd_graph *graph, int rank, int64_t step,
                      unsigned busy);
// The step at `place` of a stream, counted over both runs.
int64_t hd_graph_at(const hd_graph *graph, int rank, int stream, int64_t place);
// The last step of a stream issued before `step`, over both runs; -1 if there
// is none.
int64_t hd_graph_before(const hd_graph *graph, int rank, int stream,
                        int64_t step);
// The step of `peer`'s run that a step meets: same run, number `there` in it.
static inline int64_t hd_graph_same_run(const hd_graph *graph, int rank,
                                        int64_t step, int peer, int64_t there)
{
    assert(there >= 0 && there < hd_graph_steps(graph, peer) && "they match");
    return step < hd_graph_steps(graph, rank)
               ? there
               : there + hd_graph_steps(graph, peer);
}

// Where the members of a rendezvous begin, which those of the next one follow,
// and how many it has.
static inline const hd_member *hd_graph_members(const hd_graph *graph,
                                                int64_t rendezvous)
{
    return &graph->member[graph->rendezvous[rendezvous]];
}

static inline int64_t hd_graph_meets(const hd_graph *graph, int64_t rendezvous)
{
    return graph->rendezvous[rendezvous + 1] - graph->rendezvous[rendezvous];
}

// Of a wait's events, as many as it has operands.
static inline const hd_record *hd_graph_records(const hd_graph *graph,
                                                const hd_node *wait)
{
    return &graph->record[wait->records];
}

// The last fork issued before a step of either run, -1 if there is none.
static inline int64_t hd_graph_fork(const hd_graph *graph, int rank,
                                    int64_t step)
{
    int64_t n = hd_graph_steps(graph, rank);
    const hd_node *node = &graph->node[graph->first[rank]];

    if (step < n)
        return node[step].fork;
    if (node[step - n].fork >= 0)
        return node[step - n].fork + n;
    return node[n - 1].kind == HD_NODE_FORK ? n - 1 : node[n - 1].fork;
}

// What a step waits for on its own rank, but for its place on its stream: that
// `stream` has gone past all steps up to `step`; or that `step`, a send that
// its stream does not wait for, has ended.
typedef struct hd_need {
    int stream;
    bool async;
    int64_t step;
} hd_need;

// What the need with number `i` is for, -1 if that is nothing: a fork, then
// records, at last a wait that is being tried.
static inline int64_t hd_need_at(const hd_graph *graph, int rank, int64_t step,
                                 const hd_node *node, int i, int nrecords)
{
    int64_t record;

    if (i == 0)
        return node->stream > 0 ? hd_graph_fork(graph, rank, step) : -1;
    if (i > nrecords)
        return graph->after != NULL ? graph->after[graph->first[rank] + step]
                                    : -1;
    record = hd_graph_records(graph, node)[i - 1].step;
    return record < 0 ? -1 : hd_graph_same_run(graph, rank, step, rank, record);
}

// The next one of a step of either run, from *i = 0 on; false past the last:
// a fork, records, a wait that is being tried; of a join the work streams, the
// last one first.
static inline bool hd_graph_need(const hd_graph *graph, int rank, int64_t step,
                                 int *i, hd_need *out)
{
    const hd_node *node = hd_graph_node(graph, rank, step);
    int nrecords = node->kind == HD_NODE_WAIT ? node->op->ninputs : 0;

    while (*i < nrecords + 2) {
        out->step = hd_need_at(graph, rank, step, node, (*i)++, nrecords);
        if (out->step >= 0) {
            node = hd_graph_node(graph, rank, out->step);
            out->stream = node->stream;
            out->async = node->async;
            return true;
        }
    }
    out->stream = graph->nstreams + 1 - (*i)++;
    out->async = false;
    out->step = step;
    return node->kind == HD_NODE_JOIN && out->stream > 0;
}

// Walks every rank. What works on a graph wants it matched.
hd_status hd_graph_create(const hd_module *module, hd_diag *diag,
                          hd_graph *out);
// The first rank alone of all that turn (ir/symmetry), as if it met itself: its
// peers are ranks of the graph, and a collective has one member along each axis
// that turns. `full` says what it has as it stands for them all. What holds of
// it but for order by way of peers, which may lead to another rank than it came
// from, holds of all ranks. Transfers of which some rank has another length
// than its peer are not paired. HD_ERROR_INVALID, and nothing is said, of a
// group that records an event twice while it may leave sends out.
hd_status hd_graph_fold(const hd_module *module, const hd_symmetry *symmetry,
                        const hd_full *full, hd_diag *diag, hd_graph *out);
void hd_graph_free(hd_graph *graph);

HD_END_DECLS

#endif
