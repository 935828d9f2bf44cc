// See schedule.h. The streams of a rank are tried in turn until each has stood
// still since another one moved. A queue holds the ranks that may go on: all at
// first, then those for whom a transfer has ended.
#include "steps/schedule.h"

#include <stdlib.h>

#include "base/array.h"

static int64_t *next_of(const hd_schedule *s, int rank, int stream)
{
    return &s->next[(int64_t)rank * s->graph->nstreams + stream];
}

static int64_t all_steps(const hd_schedule *s, int rank)
{
    return s->runs * hd_graph_steps(s->graph, rank);
}

// -------------------------------------------------------------- readiness

static bool is_met(const hd_schedule *s, int rank, const hd_need *need)
{
    return need->async && hd_schedule_defers(
                              s, hd_graph_node(s->graph, rank, need->step))
               ? hd_schedule_has(s, rank, need->step, HD_STEP_ENDED)
               : *next_of(s, rank, need->stream) > need->step;
}

bool hd_schedule_has_come(const hd_schedule *schedule, int rank, int64_t step)
{
    const hd_graph *g = schedule->graph;

    return hd_graph_node(g, rank, step)->stream == 0 ||
           *next_of(schedule, rank, 0) > hd_graph_fork(g, rank, step);
}

// Most streams have gone past a join's step; its own has not, and ends the row.
bool hd_schedule_lacks(const hd_schedule *schedule, int rank, int64_t step,
                       hd_need *out)
{
    const int64_t *next = next_of(schedule, rank, 0);

    for (int i = 0; hd_graph_need(schedule->graph, rank, step, &i, out);) {
        if (!is_met(schedule, rank, out))
            return true;
        for (int k = out->stream; out->step == step && next[--k] > step;)
            i++;
    }
    return false;
}

static bool may_begin(const hd_schedule *s, int rank, int64_t step)
{
    hd_need need;

    return (s->may_begin == NULL || s->may_begin(s->context, rank, step)) &&
           !hd_schedule_lacks(s, rank, step, &need);
}

// How many steps the stream goes past: the group that begins with `step`, or 0
// if it must wait for some of it. It goes on from where it stopped before, so
// that each member is looked at once, however often the group is.
static int64_t find_passed(const hd_schedule *s, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(s->graph, rank, step);
    const hd_node *end = &s->graph->node[s->graph->first[rank + 1]];
    const uint8_t *state = hd_schedule_state(s, rank, step);
    int64_t *over = &s->over[(int64_t)rank * s->graph->nstreams + node->stream];

    do {
        if ((state[*over] & HD_STEP_ENDED) == 0 &&
            !hd_schedule_defers(s, &node[*over]))
            return 0;
        ++*over;
    } while (node + *over < end && node[*over].head == node->head);
    return *over;
}

// ----------------------------------------------------------------- streams

static void find_next(const hd_schedule *s, int rank, int stream)
{
    int64_t i = (int64_t)rank * s->graph->nstreams + stream;
    int64_t at = s->cursor[i];

    s->over[i] = 0;
    *next_of(s, rank, stream) =
        at < s->runs * hd_graph_length(s->graph, rank, stream)
            ? hd_graph_at(s->graph, rank, stream, at)
            : all_steps(s, rank);
}

static hd_status begin(const hd_schedule *s, int rank, int64_t step)
{
    int64_t n = hd_graph_together(s->graph, rank, step);
    uint8_t *state = hd_schedule_state(s, rank, step);

    for (int64_t i = 0; i < n; i++)
        state[i] |= HD_STEP_BEGUN;
    return s->begin(s->context, rank, step, n);
}

static hd_status advance_stream(const hd_schedule *s, int rank, int stream,
                                bool *moved)
{
    const int64_t *next = next_of(s, rank, stream);
    int64_t last = all_steps(s, rank);

    while (*next < last) {
        int64_t step = *next, n;

        if (!hd_schedule_has(s, rank, step, HD_STEP_BEGUN)) {
            if (!may_begin(s, rank, step))
                return HD_OK;
            HD_TRY(begin(s, rank, step));
        }
        n = find_passed(s, rank, step);
        if (n == 0)
            return HD_OK;
        s->cursor[(int64_t)rank * s->graph->nstreams + stream] += n;
        find_next(s, rank, stream);
        if (s->pass != NULL)
            s->pass(s->context, rank, step, n);
        *moved = true;
    }
    return HD_OK;
}

hd_status hd_schedule_advance(hd_schedule *schedule, int rank)
{
    int nstreams = schedule->graph->nstreams;

    if (schedule->wake != NULL)
        HD_TRY(schedule->wake(schedule->context, rank));
    for (int stream = 0, still = 0; still < nstreams;
         stream = stream + 1 < nstreams ? stream + 1 : 0) {
        bool moved = false;

        HD_TRY(advance_stream(schedule, rank, stream, &moved));
        still = moved ? 1 : still + 1;
    }
    return HD_OK;
}

// ------------------------------------------------------------------- ranks

void hd_schedule_wake(hd_schedule *schedule, int rank)
{
    hd_schedule *s = schedule;

    if (s->queued[rank])
        return;
    s->queued[rank] = true;
    s->queue[(s->head + s->nqueued++) % s->graph->nranks] = rank;
}

hd_status hd_schedule_resume(hd_schedule *schedule)
{
    hd_schedule *s = schedule;

    while (s->nqueued > 0) {
        int rank = s->queue[s->head];

        s->head = (s->head + 1) % s->graph->nranks;
        s->nqueued--;
        s->queued[rank] = false;
        HD_TRY(hd_schedule_advance(s, rank));
    }
    return HD_OK;
}

hd_status hd_schedule_run(hd_schedule *schedule)
{
    for (int rank = 0; rank < schedule->graph->nranks; rank++)
        hd_schedule_wake(schedule, rank);
    return hd_schedule_resume(schedule);
}

int64_t hd_schedule_stuck(const hd_schedule *schedule, int rank, int stream)
{
    int64_t next = *next_of(schedule, rank, stream);

    return next < all_steps(schedule, rank) ? next : -1;
}

bool hd_schedule_is_over(const hd_schedule *schedule)
{
    for (int rank = 0; rank < schedule->graph->nranks; rank++)
        for (int s = 0; s < schedule->graph->nstreams; s++)
            if (hd_schedule_stuck(schedule, rank, s) >= 0)
                return false;
    return true;
}

// --------------------------------------------------------------- transfers

void hd_schedule_end(hd_schedule *schedule, int rank, int64_t step)
{
    *hd_schedule_state(schedule, rank, step) |= HD_STEP_ENDED;
}

bool hd_schedule_meet(hd_schedule *schedule, int rank, int64_t step)
{
    const hd_graph *g = schedule->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int64_t run = step >= hd_graph_steps(g, rank);

    *hd_schedule_state(schedule, rank, step) |= HD_STEP_STARTED;
    if (node->kind == HD_NODE_COLLECTIVE)
        return ++schedule->arrived[node->rendezvous + run * g->nrendezvous] ==
               hd_graph_meets(g, node->rendezvous);
    return hd_schedule_has(
        schedule, node->peer,
        hd_graph_same_run(g, rank, step, node->peer, node->partner),
        HD_STEP_STARTED);
}

static void end_and_wake(hd_schedule *s, int rank, int64_t step)
{
    hd_schedule_end(s, rank, step);
    hd_schedule_wake(s, rank);
}

void hd_schedule_end_all(hd_schedule *schedule, int rank, int64_t step)
{
    const hd_graph *g = schedule->graph;
    const hd_node *node = hd_graph_node(g, rank, step);

    if (node->kind != HD_NODE_COLLECTIVE) {
        end_and_wake(schedule, rank, step);
        end_and_wake(
            schedule, node->peer,
            hd_graph_same_run(g, rank, step, node->peer, node->partner));
        return;
    }
    for (const hd_member *m = hd_graph_members(g, node->rendezvous);
         m < hd_graph_members(g, node->rendezvous + 1); m++)
        end_and_wake(schedule, m->rank,
                     hd_graph_same_run(g, rank, step, m->rank, m->step));
}

// ------------------------------------------------------------------- whole

static hd_status allocate(hd_schedule *s, hd_diag *diag)
{
    const hd_graph *g = s->graph;
    int64_t streams = (int64_t)g->nranks * g->nstreams;

    HD_TRY(
        hd_clear_array(streams, sizeof *s->cursor, diag, (void **)&s->cursor));
    HD_TRY(hd_clear_array(streams, sizeof *s->next, diag, (void **)&s->next));
    HD_TRY(hd_clear_array(streams, sizeof *s->over, diag, (void **)&s->over));
    HD_TRY(hd_clear_array(s->runs * g->first[g->nranks], sizeof *s->state, diag,
                          (void **)&s->state));
    HD_TRY(hd_clear_array(s->runs * g->nrendezvous, sizeof *s->arrived, diag,
                          (void **)&s->arrived));
    HD_TRY(
        hd_clear_array(g->nranks, sizeof *s->queue, diag, (void **)&s->queue));
    return hd_clear_array(g->nranks, sizeof *s->queued, diag,
                          (void **)&s->queued);
}

hd_status hd_schedule_open(const hd_graph *graph, int runs, hd_diag *diag,
                           hd_schedule *out)
{
    hd_schedule s = {.graph = graph, .runs = runs};
    hd_status status = allocate(&s, diag);

    if (status != HD_OK) {
        hd_schedule_close(&s);
        return status;
    }
    for (int rank = 0; rank < graph->nranks; rank++)
        for (int stream = 0; stream < graph->nstreams; stream++)
            find_next(&s, rank, stream);
    *out = s;
    return HD_OK;
}

void hd_schedule_close(hd_schedule *schedule)
{
    free(schedule->cursor);
    free(schedule->next);
    free(schedule->over);
    free(schedule->state);
    free(schedule->arrived);
    free(schedule->queue);
    free(schedule->queued);
    *schedule = (hd_schedule){0};
}
