// A wait that is asked for goes into the text, so it is there for every
// instance of the two ops on every rank: all of them are tried at once. It
// orders the two by its nature; what it may spoil is that the program comes to
// its end.
#include "check/repair.h"

#include <limits.h>
#include <stdlib.h>

#include "base/array.h"
#include "check/launch.h"

typedef struct trial {
    const hd_graph *graph;
    unsigned serial;
    const hd_op *x, *y;
    int64_t rounds; // how many instances of x back y waits
    int32_t *after; // owned, by node
    int32_t *at;    // owned: the instances of x on one rank
} trial;

// Of the first run, whichever one `step` is of.
static int64_t in_run(const hd_graph *graph, int rank, int64_t step)
{
    int64_t n = hd_graph_steps(graph, rank);

    return step < n ? step : step - n;
}

static int64_t count_instances(const hd_graph *graph, int rank, const hd_op *op,
                               int64_t from, int64_t to)
{
    int64_t n = 0;

    for (int64_t i = from; i < to; i++)
        n += hd_graph_node(graph, rank, i)->op == op;
    return n;
}

// Members of a group wait before it, and not for one another.
static void add_waits(const trial *t, int rank)
{
    const hd_graph *g = t->graph;
    const hd_node *node = &g->node[g->first[rank]];
    int32_t *after = &t->after[g->first[rank]];
    int64_t n = hd_graph_steps(g, rank), count = 0;

    for (int64_t i = 0; i < n; i++)
        after[i] = -1;
    for (int32_t i = 0; i < n; i++) {
        if (node[i].op == t->y && count >= t->rounds) {
            int32_t wanted = t->at[count - t->rounds];

            if (wanted < node[i].head)
                after[node[i].head] = wanted;
        }
        if (node[i].op == t->x)
            t->at[count++] = i;
    }
}

// Whatever takes processors: then no launch may wait for a transfer at all.
static hd_status try_one(const hd_graph *graph, unsigned serial, hd_diag *diag,
                         bool *works)
{
    hd_replay replay;
    hd_status status;
    bool muted;

    HD_TRY(hd_replay_run(graph, serial, diag, &replay));
    *works = hd_schedule_is_over(&replay.schedule);
    hd_replay_free(&replay);
    if (!*works)
        return HD_OK;
    muted = hd_diag_mute(diag, true);
    status = hd_launch_check(graph, serial, UINT_MAX, diag);
    hd_diag_mute(diag, muted);
    *works = status == HD_OK;
    return status == HD_ERROR_INVALID ? HD_OK : status;
}

static hd_status try_all(const trial *t, hd_diag *diag, bool *works)
{
    hd_graph tried = *t->graph;

    for (int rank = 0; rank < tried.nranks; rank++)
        add_waits(t, rank);
    tried.after = t->after;
    HD_TRY(try_one(&tried, 0, diag, works));
    return *works && t->serial != 0 ? try_one(&tried, t->serial, diag, works)
                                    : HD_OK;
}

hd_status hd_repair_try_wait(const hd_graph *graph, unsigned serial, int rank,
                             int64_t x, int64_t y, hd_diag *diag, bool *works)
{
    trial t = {.graph = graph,
               .serial = serial,
               .x = hd_graph_node(graph, rank, x)->op,
               .y = hd_graph_node(graph, rank, y)->op};
    int64_t nodes = graph->first[graph->nranks];
    hd_status status;

    t.rounds = count_instances(graph, rank, t.x, in_run(graph, rank, x),
                               in_run(graph, rank, y));
    status = hd_clear_array(nodes, sizeof *t.after, diag, (void **)&t.after);
    if (status == HD_OK)
        status = hd_clear_array(nodes, sizeof *t.at, diag, (void **)&t.at);
    if (status == HD_OK)
        status = try_all(&t, diag, works);
    free(t.after);
    free(t.at);
    return status;
}

static bool does_record(const hd_step *step, const hd_span *event)
{
    for (int i = 0; i < step->op->nviews; i++)
        if (hd_op_access(step->op, i) == HD_ACCESS_RECORD &&
            step->span[i].buffer == event->buffer &&
            step->span[i].offset == event->offset)
            return true;
    return false;
}

hd_status hd_repair_find_again(const hd_graph *graph, int rank, int64_t send,
                               int64_t end, hd_diag *diag, int64_t *again)
{
    hd_steps steps;
    const hd_span *event;
    int64_t from = in_run(graph, rank, send);

    HD_TRY(hd_steps_collect(graph->module, rank, diag, &steps));
    event = &steps.step[from]
                 .span[hd_op_key_view(steps.step[from].op, HD_KEY_DONE)];
    *again = -1;
    for (int64_t i = from + 1; i < end && *again < 0; i++)
        if (does_record(&steps.step[i], event))
            *again = i;
    hd_steps_free(&steps);
    return HD_OK;
}
