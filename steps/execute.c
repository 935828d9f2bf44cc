// A step ends as it begins, a transfer when the last of those who take part has
// come to it.
#include "steps/execute.h"

typedef struct execution {
    hd_schedule schedule;
    hd_execute_fn *fn;
    void *context;
} execution;

static hd_status move(execution *e, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(e->schedule.graph, rank, step);

    if (!hd_schedule_meet(&e->schedule, rank, step))
        return HD_OK;
    hd_schedule_end_all(&e->schedule, rank, step);
    return node->kind == HD_NODE_SEND
               ? e->fn(e->context, node->peer, node->partner)
               : e->fn(e->context, rank, step);
}

static hd_status begin(void *context, int rank, int64_t step, int64_t n)
{
    execution *e = context;
    const hd_node *node = hd_graph_node(e->schedule.graph, rank, step);

    if (node->kind >= HD_NODE_SEND) {
        for (int64_t i = step; i < step + n; i++)
            HD_TRY(move(e, rank, i));
        return HD_OK;
    }
    hd_schedule_end(&e->schedule, rank, step);
    return hd_op_is(node->op, HD_UNIT_COMPUTE) ? e->fn(e->context, rank, step)
                                               : HD_OK;
}

hd_status hd_execute(const hd_graph *graph, hd_execute_fn *fn, void *context,
                     hd_diag *diag, hd_schedule *out)
{
    execution e = {.fn = fn, .context = context};
    hd_status status;

    HD_TRY(hd_schedule_open(graph, 1, diag, &e.schedule));
    e.schedule.begin = begin;
    e.schedule.context = &e;
    status = hd_schedule_run(&e.schedule);
    if (status != HD_OK)
        hd_schedule_close(&e.schedule);
    else
        *out = e.schedule;
    return status;
}
