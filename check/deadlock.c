// Every stream that is stuck waits for one other stream, of its own rank or of
// a peer: going from one to the next must come back to where it has been, and
// that cycle is the deadlock.
#include "check/deadlock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"

enum { MOST_EDGES = 12 }; // that are shown of one cycle

static const char *word_of(const hd_graph *g, int rank, int64_t step)
{
    return hd_op_info_get(hd_graph_node(g, rank, step)->op->code)->text;
}

static void need(const hd_replay *r, hd_edge *e, int peer, int64_t step)
{
    e->peer = peer;
    e->needed = step;
    e->next = hd_graph_node(r->schedule.graph, peer, step)->stream;
}

static bool has_started(const hd_replay *r, int rank, int64_t step)
{
    return hd_schedule_has(&r->schedule, rank, step, HD_STEP_STARTED);
}

static void need_launch(const hd_replay *r, hd_edge *e, int rank,
                        int64_t launch)
{
    int stream = hd_graph_node(r->schedule.graph, rank, launch)->stream;

    e->held = true;
    need(r, e, rank, hd_schedule_stuck(&r->schedule, rank, stream));
}

// A transfer that must start: its own stream has not come to it, or an earlier
// transfer is before it, whose stream is stuck with it or has not come to it.
static void need_start(const hd_replay *r, hd_edge *e, int rank, int64_t step)
{
    int64_t blocker = hd_replay_blocker(r, rank, step), launch;

    e->meets = step;
    while (blocker >= 0 && blocker != step) {
        e->in_order = true;
        step = blocker;
        blocker =
            has_started(r, rank, step) ? -1 : hd_replay_blocker(r, rank, step);
    }
    launch = has_started(r, rank, step) || blocker == step
                 ? -1
                 : hd_replay_launch(r, rank, step);
    if (launch >= 0)
        need_launch(r, e, rank, launch);
    else
        need(r, e, rank, step);
}

// A member of the rendezvous that has not started; there is one.
static void need_member(const hd_replay *r, hd_edge *e, int rank, int64_t step)
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

static void need_transfer(const hd_replay *r, hd_edge *e, int rank,
                          int64_t step)
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

static void need_group(const hd_replay *r, hd_edge *e)
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
static void need_need(const hd_replay *r, hd_edge *e, const hd_need *n)
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

hd_edge hd_deadlock_edge(const hd_replay *replay, int rank, int stream)
{
    const hd_replay *r = replay;
    hd_edge e = {.rank = rank,
                 .stream = stream,
                 .step = hd_schedule_stuck(&r->schedule, rank, stream),
                 .meets = -1};
    hd_need lacking;
    int64_t launch;

    assert(e.step >= 0 && "whoever is waited for is stuck itself");
    launch = hd_schedule_has(&r->schedule, rank, e.step, HD_STEP_BEGUN)
                 ? -1
                 : hd_replay_launch(r, rank, e.step);
    if (hd_schedule_lacks(&r->schedule, rank, e.step, &lacking))
        need_need(r, &e, &lacking);
    else if (launch >= 0)
        need_launch(r, &e, rank, launch);
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
static void name_needed(const hd_replay *r, const hd_edge *e, char *out,
                        size_t size)
{
    const char *why = e->held        ? ", whose launch has the processors"
                      : !e->in_order ? ""
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

static void print_edge(const hd_replay *r, const hd_edge *e, char *out,
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
static hd_edge find_cycle(const hd_replay *r, hd_edge e, bool *seen)
{
    for (;;) {
        bool *been =
            &seen[(int64_t)e.rank * r->schedule.graph->nstreams + e.stream];

        if (*been)
            return e;
        *been = true;
        e = hd_deadlock_edge(r, e.peer, e.next);
    }
}

// The cycle begins where rank and stream are lowest, so that the same deadlock
// always reads the same.
static hd_edge find_first(const hd_replay *r, hd_edge e, int *length)
{
    hd_edge first = e, at = e;

    *length = 0;
    do {
        if (at.rank < first.rank ||
            (at.rank == first.rank && at.stream < first.stream))
            first = at;
        at = hd_deadlock_edge(r, at.peer, at.next);
        ++*length;
    } while (at.rank != e.rank || at.stream != e.stream);
    return first;
}

static bool has_op(const hd_block *block, const hd_op *op)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if ((s->kind == HD_STMT_OP && s->op == op) || has_op(&s->body, op) ||
            has_op(&s->otherwise, op))
            return true;
    return false;
}

// The launch in the text that has the op.
static const hd_stmt *find_launch(const hd_block *block, const hd_op *op)
{
    const hd_stmt *found = NULL;

    for (const hd_stmt *s = block->first; s != NULL && found == NULL;
         s = s->next) {
        if (s->kind == HD_STMT_LAUNCH && has_op(&s->body, op))
            return s;
        found = find_launch(&s->body, op);
        if (found == NULL)
            found = find_launch(&s->otherwise, op);
    }
    return found;
}

// The launch, and the transfer that cannot start beside it.
static void note_launch(const hd_graph *g, const hd_edge *e, hd_diag *diag)
{
    const hd_op *op = hd_graph_node(g, e->peer, e->needed)->op;

    if (!e->held)
        return;
    hd_note(diag, find_launch(&g->module->body, op)->loc,
            "from its beginning to its end this launch has the processors of "
            "rank %d: nothing else that takes them starts meanwhile",
            g->number[e->peer]);
    if (e->meets >= 0 && (e->peer != e->rank || e->meets != e->step))
        hd_note(diag, hd_graph_node(g, e->peer, e->meets)->op->loc,
                "rank %d's %s (step %lld), which takes them", e->peer,
                word_of(g, e->peer, e->meets), (long long)e->meets);
}

static hd_status report_cycle(const hd_replay *r, hd_edge e, hd_diag *diag)
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
    note_launch(g, &e, diag);
    for (int i = 1; i < length && i < MOST_EDGES; i++) {
        e = hd_deadlock_edge(r, e.peer, e.next);
        print_edge(r, &e, words, sizeof words);
        hd_note(diag, hd_graph_node(g, e.rank, e.step)->op->loc, "%s", words);
        note_launch(g, &e, diag);
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
                hd_edge e =
                    find_cycle(replay, hd_deadlock_edge(replay, rank, s), seen);

                free(seen);
                return report_cycle(replay, e, diag);
            }
    free(seen);
    return HD_OK;
}
