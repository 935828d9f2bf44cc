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
    int32_t *kept;  // owned: the clocks that others look up
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

static void merge(int32_t *into, const int32_t *from, int n)
{
    for (int i = 0; i < n; i++)
        if (into[i] < from[i])
            into[i] = from[i];
}

static int32_t *kept_clock(const pass *p, int64_t step)
{
    int64_t run = step >= p->nsteps;

    assert(p->slot[step - run * p->nsteps] >= 0 && "somebody waits for it");
    return p->kept + (p->slot[step - run * p->nsteps] + run * p->nslots) *
                         p->graph->nstreams;
}

static void keep_clock(const pass *p, int64_t step)
{
    const hd_node *node = hd_graph_node(p->graph, p->watch->rank, step);

    if (p->slot[step % p->nsteps] >= 0)
        memcpy(kept_clock(p, step), clock_of(p, node->stream), p->bytes);
}

static void follow_fork(pass *p, int stream, int64_t step)
{
    int64_t fork =
        stream == 0 ? -1 : hd_graph_fork(p->graph, p->watch->rank, step);

    if (fork <= p->fork[stream])
        return;
    p->fork[stream] = fork;
    merge(clock_of(p, stream), kept_clock(p, fork), p->graph->nstreams);
}

// The caller's clock knows already of streams that have not moved.
static void follow_join(pass *p)
{
    for (int s = 1; s < p->graph->nstreams; s++)
        if ((p->moved >> (s - 1) & 1) != 0)
            merge(clock_of(p, 0), clock_of(p, s), p->graph->nstreams);
    p->moved = 0;
}

// What a wait needs but for its fork, which its stream has followed.
static void follow_wait(pass *p, int stream, int64_t step)
{
    hd_need need;

    for (int i = 1; hd_graph_need(p->graph, p->watch->rank, step, &i, &need);)
        merge(clock_of(p, stream), kept_clock(p, need.step),
              p->graph->nstreams);
}

// The members of a group are visited with one clock.
static void visit_group(pass *p, int64_t step, int64_t n)
{
    const hd_graph *g = p->graph;
    int stream = hd_graph_node(g, p->watch->rank, step)->stream;
    int32_t *clock = clock_of(p, stream);

    if (stream > 0)
        p->moved |= (uint64_t)1 << (stream - 1);
    follow_fork(p, stream, step);
    for (int64_t i = step; i < step + n; i++) {
        p->watch->fn(p->watch->context, i, clock);
        // Whoever waits for a send has not seen the rest of its group end.
        if (hd_graph_node(g, p->watch->rank, i)->async)
            keep_clock(p, i);
    }
    for (int64_t i = step; i < step + n; i++) {
        const hd_node *node = hd_graph_node(g, p->watch->rank, i);

        if (node->kind == HD_NODE_JOIN)
            follow_join(p);
        else if (node->kind == HD_NODE_WAIT)
            follow_wait(p, stream, i);
        clock[stream] = (int32_t)hd_order_count(g, p->watch->rank, i);
        if (!node->async)
            keep_clock(p, i);
    }
}

static void end_run(const pass *p)
{
    p->watch->fn(p->watch->context, HD_RUN_END, clock_of(p, 0));
    clock_of(p, 0)[0] = (int32_t)hd_order_turn(p->graph, p->watch->rank);
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
    return hd_clear_array(p->runs * p->nslots * w, sizeof *p->kept, diag,
                          (void **)&p->kept);
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
        for (int s = 0; s < graph->nstreams; s++)
            p.fork[s] = -1;
        visit_runs(&p);
    }
    free(p.now);
    free(p.kept);
    free(p.slot);
    free(p.fork);
    return status;
}
