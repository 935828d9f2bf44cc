// Every stream that is stuck waits for one other stream, of its own rank or of
// a peer: going from one to the next must come back to where it has been, and
// that cycle is the deadlock.
#include "check/deadlock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"

enum { MOST_EDGES = 12 }; // that are shown of one cycle

// Why a stream does not move: it is at `step`, which needs `needed` of `peer`
// (another rank, or the same), which `stream` of that rank would issue.
typedef struct edge {
    int rank, stream;
    int64_t step;
    int peer, next;
    int64_t needed;
    int64_t meets; // of a transfer: the step of `peer` that must start
    bool in_order; // `needed` is an earlier transfer of `peer`, which has to
                   // start, or over NCCL to end, before the one that is
                   // waited for
} edge;

static const char *word_of(const hd_graph *g, int rank, int64_t step)
{
    return hd_op_info_get(hd_graph_node(g, rank, step)->op->code)->text;
}

static void need(const hd_replay *r, edge *e, int peer, int64_t step)
{
    e->peer = peer;
    e->needed = step;
    e->next = hd_graph_node(r->schedule.graph, peer, step)->stream;
}

static bool has_started(const hd_replay *r, int rank, int64_t step)
{
    return hd_schedule_has(&r->schedule, rank, step, HD_STEP_STARTED);
}

// A transfer that must start: its own stream has not come to it, or an earlier
// transfer is before it, whose stream is stuck with it or has not come to it.
static void need_start(const hd_replay *r, edge *e, int rank, int64_t step)
{
    int64_t blocker = hd_replay_blocker(r, rank, step);

    e->meets = step;
    while (blocker >= 0 && blocker != step) {
        e->in_order = true;
        step = blocker;
        blocker =
            has_started(r, rank, step) ? -1 : hd_replay_blocker(r, rank, step);
    }
    need(r, e, rank, step);
}

// A member of the rendezvous that has not started; there is one.
static void need_member(const hd_replay *r, edge *e, int rank, int64_t step)
{
    const hd_graph *g = r->schedule.graph;
    int32_t rendezvous = hd_graph_node(g, rank, step)->rendezvous;

    for (const hd_member *m = hd_graph_members(g, rendezvous);
         m < hd_graph_members(g, rendezvous + 1); m++) {
        int64_t there = hd_graph_same_run(g, rank, step, m->rank, m->step);

        if (!has_started(r, m->rank, there)) {
            need_start(r, e, m->rank, there);
            return;
        }
    }
}

static void need_transfer(const hd_replay *r, edge *e, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(r->schedule.graph, rank, step);

    if (!has_started(r, rank, step))
        need_start(r, e, rank, step);
    else if (node->kind == HD_NODE_COLLECTIVE)
        need_member(r, e, rank, step);
    else
        need_start(r, e, node->peer,
                   hd_graph_same_run(r->schedule.graph, rank, step, node->peer,
                                     node->partner));
}

static void need_group(const hd_replay *r, edge *e)
{
    int64_t step = e->step, ahead;

    while (hd_schedule_defers(
               &r->schedule, hd_graph_node(r->schedule.graph, e->rank, step)) ||
           hd_schedule_has(&r->schedule, e->rank, step, HD_STEP_ENDED))
        step++;
    while ((ahead = hd_replay_ahead(r, e->rank, step)) >= 0)
        step = ahead;
    e->step = step;
    need_transfer(r, e, e->rank, step);
}

// A deferred send that has begun, what else is waited for, or where a stream
// that is to be joined is stuck.
static void need_need(const hd_replay *r, edge *e, const hd_need *n)
{
    if (n->step == e->step)
        need(r, e, e->rank,
             hd_schedule_stuck(&r->schedule, e->rank, n->stream));
    else if (n->async &&
             hd_schedule_defers(
                 &r->schedule,
                 hd_graph_node(r->schedule.graph, e->rank, n->step)) &&
             hd_schedule_has(&r->schedule, e->rank, n->step, HD_STEP_BEGUN))
        need_transfer(r, e, e->rank, n->step);
    else
        need(r, e, e->rank, n->step);
}

static edge find_edge(const hd_replay *r, int rank, int stream)
{
    edge e = {.rank = rank,
              .stream = stream,
              .step = hd_schedule_stuck(&r->schedule, rank, stream),
              .meets = -1};
    hd_need lacking;

    assert(e.step >= 0 && "whoever is waited for is stuck itself");
    if (hd_schedule_lacks(&r->schedule, rank, e.step, &lacking))
        need_need(r, &e, &lacking);
    else
        need_group(r, &e);
    return e;
}

static void name_stream(int stream, char out[40])
{
    if (stream == 0)
        snprintf(out, 40, "the caller's stream");
    else
        snprintf(out, 40, "stream %d", stream - 1);
}

// "rank 1's recv (step 4) on stream 0"
static void name_needed(const hd_replay *r, const edge *e, char *out,
                        size_t size)
{
    const char *why = !e->in_order ? ""
                      : has_started(r, e->peer, e->needed)
                          ? ", which NCCL ends first"
                          : ", which comes first in the order of its transfers";
    char whose[40], where[40];

    if (e->peer == e->rank)
        snprintf(whose, sizeof whose, "its own");
    else
        snprintf(whose, sizeof whose, "rank %d's", e->peer);
    name_stream(e->next, where);
    snprintf(out, size, "%s %s (step %lld) on %s%s", whose,
             word_of(r->schedule.graph, e->peer, e->needed),
             (long long)e->needed, where, why);
}

static void print_edge(const hd_replay *r, const edge *e, char *out,
                       size_t size)
{
    char where[40], needed[200];

    name_stream(e->stream, where);
    name_needed(r, e, needed, sizeof needed);
    snprintf(out, size, "rank %d, %s: this %s (step %lld) waits for %s",
             e->rank, where, word_of(r->schedule.graph, e->rank, e->step),
             (long long)e->step, needed);
}

// Goes from `e` until it meets a stream again, and returns one on the cycle.
static edge find_cycle(const hd_replay *r, edge e, bool *seen)
{
    for (;;) {
        bool *been =
            &seen[(int64_t)e.rank * r->schedule.graph->nstreams + e.stream];

        if (*been)
            return e;
        *been = true;
        e = find_edge(r, e.peer, e.next);
    }
}

// The cycle begins where rank and stream are lowest, so that the same deadlock
// always reads the same.
static edge find_first(const hd_replay *r, edge e, int *length)
{
    edge first = e, at = e;

    *length = 0;
    do {
        if (at.rank < first.rank ||
            (at.rank == first.rank && at.stream < first.stream))
            first = at;
        at = find_edge(r, at.peer, at.next);
        ++*length;
    } while (at.rank != e.rank || at.stream != e.stream);
    return first;
}

static hd_status report_cycle(const hd_replay *r, edge e, hd_diag *diag)
{
    const hd_graph *g = r->schedule.graph;
    int length;
    char words[320];
    hd_status status;

    e = find_first(r, e, &length);
    print_edge(r, &e, words, sizeof words);
    status =
        hd_error(diag, r->schedule.held != 0 ? HD_E0708 : HD_E0706,
                 hd_graph_node(g, e.rank, e.step)->op->loc,
                 "deadlock%s: %d streams wait for each other in a cycle; %s",
                 r->schedule.held != 0 ? " over nccl" : "", length, words);
    if (r->schedule.held != 0 && e.meets >= 0 && e.meets != e.needed)
        hd_note(diag, hd_graph_node(g, e.peer, e.meets)->op->loc,
                "rank %d's %s (step %lld) that it is to meet", e.peer,
                word_of(g, e.peer, e.meets), (long long)e.meets);
    for (int i = 1; i < length && i < MOST_EDGES; i++) {
        e = find_edge(r, e.peer, e.next);
        print_edge(r, &e, words, sizeof words);
        hd_note(diag, hd_graph_node(g, e.rank, e.step)->op->loc, "%s", words);
    }
    if (length > MOST_EDGES)
        hd_note(diag, hd_graph_node(g, e.rank, e.step)->op->loc,
                "and %d more like these", length - MOST_EDGES);
    if (r->schedule.held != 0)
        hd_note(diag, hd_graph_node(g, e.rank, e.step)->op->loc,
                "over nccl a rank's transfers follow one another, along "
                "whichever axes, and a send ends with its recv: all ranks "
                "issue them in one order, and what goes both ways belongs into "
                "one group; over copies it runs as it is");
    return status;
}

hd_status hd_deadlock_report(const hd_replay *replay, hd_diag *diag)
{
    const hd_graph *g = replay->schedule.graph;
    bool *seen;

    HD_TRY(hd_clear_array((int64_t)g->nranks * g->nstreams, sizeof *seen, diag,
                          (void **)&seen));
    for (int rank = 0; rank < g->nranks; rank++)
        for (int s = 0; s < g->nstreams; s++)
            if (hd_schedule_stuck(&replay->schedule, rank, s) >= 0) {
                edge e = find_cycle(replay, find_edge(replay, rank, s), seen);

                free(seen);
                return report_cycle(replay, e, diag);
            }
    free(seen);
    return HD_OK;
}
