// All that orders the steps of one rank among themselves leads from a step to
// one issued later, so a single pass in issue order meets everything after what
// it waits for. Clocks are kept for what others look up: records, forks and
// sends that are waited for.
#include "check/order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

typedef struct pass {
    const hd_graph *graph;
    const hd_watch *watch;
    int runs;
    int64_t nsteps; // of one run
    size_t bytes;   // of a clock
    int32_t *now;   // owned, by stream
    // Where ranks of a line issue some of the steps each: what holds of all of
    // them, which `now` does of the arc; else NULL.
    int32_t *all;      // owned, by stream
    hd_arc *arc;       // owned, by stream
    int32_t *kept_all; // owned: of the clocks that are kept
    hd_arc *kept_arc;  // owned
    int32_t *kept;     // owned: the clocks that others look up
    int32_t *slot;  // owned, by step of one run: its place among those, or -1
    int64_t nslots; // of one run
    int64_t *fork;  // owned, by stream: the last one it has followed, -1
    uint64_t moved; // a bit for each work stream that has since the last join
} pass;

int64_t hd_order_number_loose(const hd_graph *graph, int rank, int32_t *out)
{
    const hd_node *node = &graph->node[graph->first[rank]];
    int64_t n = hd_graph_steps(graph, rank);
    int32_t count = 0;

    for (int64_t i = 0; i < n; i++) {
        bool grouped = node[i].head != (int32_t)i ||
                       (i + 1 < n && node[i + 1].head == (int32_t)i);

        out[i] = node[i].kind == HD_NODE_SEND && (node[i].async || grouped)
                     ? count++
                     : -1;
    }
    return count;
}

static int32_t *clock_of(const pass *p, int stream)
{
    return p->now + (int64_t)stream * p->graph->nstreams;
}

static int32_t *all_of(const pass *p, int stream)
{
    return p->all + (int64_t)stream * p->graph->nstreams;
}

static void merge(int32_t *into, const int32_t *from, int n)
{
    for (int i = 0; i < n; i++)
        if (into[i] < from[i])
            into[i] = from[i];
}

static int64_t slot_of(const pass *p, int64_t step)
{
    int64_t run = step >= p->nsteps;

    assert(p->slot[step - run * p->nsteps] >= 0 && "somebody waits for it");
    return p->slot[step - run * p->nsteps] + run * p->nslots;
}

static const int32_t *kept_clock(const pass *p, int64_t step)
{
    return p->kept + slot_of(p, step) * p->graph->nstreams;
}

static void keep_clock(const pass *p, int64_t step)
{
    const hd_node *node = hd_graph_node(p->graph, p->watch->rank, step);
    int64_t at;

    if (p->slot[step % p->nsteps] < 0)
        return;
    at = slot_of(p, step);
    memcpy(p->kept + at * p->graph->nstreams, clock_of(p, node->stream),
           p->bytes);
    if (p->all == NULL)
        return;
    memcpy(p->kept_all + at * p->graph->nstreams, all_of(p, node->stream),
           p->bytes);
    p->kept_arc[at] = p->arc[node->stream];
}

static bool is_within(const pass *p, int64_t step, hd_arc arc)
{
    const hd_node *node = hd_graph_node(p->graph, p->watch->rank, step);

    return hd_arc_within(hd_graph_arc(p->graph, node), arc, p->graph->line);
}

// What the ranks that issue the step know, at least.
static const int32_t *known_at(const pass *p, int stream, int64_t step)
{
    return p->all == NULL || is_within(p, step, p->arc[stream])
               ? clock_of(p, stream)
               : all_of(p, stream);
}

static const int32_t *known_kept(const pass *p, int64_t step, int64_t by)
{
    return p->all == NULL || is_within(p, by, p->kept_arc[slot_of(p, step)])
               ? kept_clock(p, step)
               : p->kept_all + slot_of(p, step) * p->graph->nstreams;
}

// What the ranks that issue the step learn by it.
static void learn(pass *p, int stream, int64_t step, const int32_t *clock)
{
    int n = p->graph->nstreams;
    hd_arc arc;

    if (p->all == NULL) {
        merge(clock_of(p, stream), clock, n);
        return;
    }
    arc = hd_graph_arc(p->graph, hd_graph_node(p->graph, p->watch->rank, step));
    if (arc.n == p->graph->line) {
        merge(all_of(p, stream), clock, n);
    } else {
        if (!hd_arc_within(arc, p->arc[stream], p->graph->line))
            memcpy(clock_of(p, stream), all_of(p, stream), p->bytes);
        p->arc[stream] = arc;
    }
    merge(clock_of(p, stream), clock, n);
}

// All ranks know where their stream has come to.
static void count(pass *p, int stream, int at, int32_t to)
{
    clock_of(p, stream)[at] = to;
    if (p->all != NULL)
        all_of(p, stream)[at] = to;
}

static void follow_fork(pass *p, int stream, int64_t step)
{
    int64_t fork =
        stream == 0 ? -1 : hd_graph_fork(p->graph, p->watch->rank, step);

    if (fork <= p->fork[stream])
        return;
    p->fork[stream] = fork;
    learn(p, stream, fork, known_kept(p, fork, fork));
}

// The caller's clock knows already of streams that have not moved.
static void follow_join(pass *p, int64_t step)
{
    for (int s = 1; s < p->graph->nstreams; s++)
        if ((p->moved >> (s - 1) & 1) != 0)
            learn(p, 0, step, known_at(p, s, step));
    p->moved = 0;
}

// What a wait needs but for its fork, which its stream has followed.
static void follow_wait(pass *p, int stream, int64_t step)
{
    hd_need need;

    for (int i = 1; hd_graph_need(p->graph, p->watch->rank, step, &i, &need);)
        learn(p, stream, step, known_kept(p, need.step, step));
}

// The members of a group are visited with one clock.
static void visit_group(pass *p, int64_t step, int64_t n)
{
    const hd_graph *g = p->graph;
    int stream = hd_graph_node(g, p->watch->rank, step)->stream;

    if (stream > 0)
        p->moved |= (uint64_t)1 << (stream - 1);
    follow_fork(p, stream, step);
    for (int64_t i = step; i < step + n; i++) {
        p->watch->fn(p->watch->context, i, known_at(p, stream, i));
        // Whoever waits for a send has not seen the rest of its group end.
        if (hd_graph_node(g, p->watch->rank, i)->async)
            keep_clock(p, i);
    }
    for (int64_t i = step; i < step + n; i++) {
        const hd_node *node = hd_graph_node(g, p->watch->rank, i);

        if (node->kind == HD_NODE_JOIN)
            follow_join(p, i);
        else if (node->kind == HD_NODE_WAIT)
            follow_wait(p, stream, i);
        count(p, stream, stream, (int32_t)hd_order_count(g, p->watch->rank, i));
        if (!node->async)
            keep_clock(p, i);
    }
}

static void end_run(pass *p)
{
    p->watch->fn(p->watch->context, HD_RUN_END,
                 p->all != NULL ? all_of(p, 0) : clock_of(p, 0));
    count(p, 0, 0, (int32_t)hd_order_turn(p->graph, p->watch->rank));
}

static void visit_runs(pass *p)
{
    for (int64_t run = 0; run < p->runs; run++) {
        for (int64_t i = 0, n; i < p->nsteps; i += n) {
            n = hd_graph_together(p->graph, p->watch->rank, i);
            visit_group(p, run * p->nsteps + i, n);
        }
        if (run == 0)
            end_run(p);
    }
}

static void number_slot(pass *p, int64_t step)
{
    if (step >= 0 && p->slot[step] < 0)
        p->slot[step] = (int32_t)p->nslots++;
}

// Records that nobody waits for are looked up by nobody.
static void number_slots(pass *p)
{
    const hd_node *node = &p->graph->node[p->graph->first[p->watch->rank]];

    memset(p->slot, 0xff, sizeof *p->slot * (size_t)p->nsteps);
    for (int64_t i = 0; i < p->nsteps; i++) {
        if (node[i].kind == HD_NODE_FORK)
            number_slot(p, i);
        for (int k = 0; node[i].kind == HD_NODE_WAIT && k < node[i].op->ninputs;
             k++)
            number_slot(p, hd_graph_records(p->graph, &node[i])[k].step);
    }
}

static hd_status allocate(pass *p, hd_diag *diag)
{
    int64_t w = p->graph->nstreams;

    HD_TRY(hd_clear_array(w * w, sizeof *p->now, diag, (void **)&p->now));
    HD_TRY(hd_clear_array(w, sizeof *p->fork, diag, (void **)&p->fork));
    HD_TRY(hd_clear_array(p->nsteps, sizeof *p->slot, diag, (void **)&p->slot));
    number_slots(p);
    HD_TRY(hd_clear_array(p->runs * p->nslots * w, sizeof *p->kept, diag,
                          (void **)&p->kept));
    if (p->graph->arc == NULL)
        return HD_OK;
    HD_TRY(hd_clear_array(w * w, sizeof *p->all, diag, (void **)&p->all));
    HD_TRY(hd_clear_array(w, sizeof *p->arc, diag, (void **)&p->arc));
    HD_TRY(hd_clear_array(p->runs * p->nslots * w, sizeof *p->kept_all, diag,
                          (void **)&p->kept_all));
    return hd_clear_array(p->runs * p->nslots, sizeof *p->kept_arc, diag,
                          (void **)&p->kept_arc);
}

hd_status hd_order_each(const hd_graph *graph, int runs, const hd_watch *watch,
                        hd_diag *diag)
{
    pass p = {.graph = graph,
              .watch = watch,
              .runs = runs,
              .nsteps = hd_graph_steps(graph, watch->rank),
              .bytes = sizeof(int32_t) * (size_t)graph->nstreams};
    hd_status status = allocate(&p, diag);

    if (status == HD_OK) {
        for (int s = 0; s < graph->nstreams; s++) {
            p.fork[s] = -1;
            if (p.arc != NULL)
                p.arc[s] = hd_arc_all(graph->line);
        }
        visit_runs(&p);
    }
    free(p.now);
    free(p.all);
    free(p.arc);
    free(p.kept);
    free(p.kept_all);
    free(p.kept_arc);
    free(p.slot);
    free(p.fork);
    return status;
}
