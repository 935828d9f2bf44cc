// See launch.h. Tiles of a product begin when there are no more of the one
// ahead of it, beside the last of these: what a product adds is what all since
// the last one that had to wait take with it, less what they take without it.
#include "simulate/launch.h"

#include <string.h>

// What the launch of the step is, and which of its products that is. False if
// tiles do not take all of it, or others wait for what it records: the driver
// does it as its parts then.
static bool list_job(const hd_simulation *s, int rank, int64_t step,
                     hd_tiles_job *job, int *product)
{
    int64_t first = hd_graph_node(&s->graph, rank, step)->launch;
    int64_t last = hd_graph_launched(&s->graph, rank, step);
    const hd_node *one = NULL; // of its products
    bool late = false;

    memset(job, 0, sizeof *job);
    for (int64_t i = first; i <= last; i++) {
        const hd_node *node = hd_graph_node(&s->graph, rank, i);
        int n = job->products;

        late |= hd_op_sync(node->op) == HD_SYNC_WAIT;
        if (node->kind >= HD_NODE_SEND ||
            hd_op_sync(node->op) == HD_SYNC_RECORD)
            return false;
        if (!hd_op_is(node->op, HD_UNIT_COMPUTE))
            continue;
        if (n == HD_TILES_PRODUCTS ||
            !hd_cost_tiles(&s->graph, node, &job->work[n]) ||
            job->work[n].k != job->work[0].k ||
            (one != NULL && !hd_cost_alike(&s->graph, one, node)))
            return false;
        one = node;
        if (i == step)
            *product = n;
        job->late[n] = late;
        late = false;
        job->products++;
    }
    return job->products > 1;
}

// The first `n` products from `first` on. What tiles take was fitted to single
// products; in a row of long ones a GPU is at the limit of its power, and there
// they are as fast as other products are, less what they need more of it.
static double seconds_of(const hd_simulation *s, const hd_tiles_job *job,
                         int first, int n, const hd_tiles_choice *tiles)
{
    static const double part = 0.98;
    double rate = part * hd_cost_rate(&s->machine, HD_DTYPE_BF16);
    double seconds, least = 0, columns = 0, elements = 0;

    if (n == 0)
        return 0;
    for (int i = first; i < first + n; i++) {
        const hd_tiles_work *w = &job->work[i];

        least += 2 * w->m * w->n * w->k / rate;
        elements += w->m * (w->n + w->k);
        if (!tiles->together || w->n > columns) // which they share
            columns = (tiles->together ? 0 : columns) + w->n;
    }
    elements += columns * job->work[0].k;
    seconds = 2 * elements * HD_COST_FETCH / s->machine.memory;
    least = least > seconds ? least : seconds;
    seconds = hd_tiles_cycles(job, first, n, tiles) /
              hd_cost_hertz(&s->machine, HD_DTYPE_BF16);
    return seconds > least ? seconds : least;
}

bool hd_launch_seconds(hd_simulation *s, int rank, int64_t step, double *out)
{
    hd_course *course = &s->course[rank];
    const hd_tiles_choice *tiles;
    hd_tiles_job job;
    int product = 0, n;

    if (s->machine.multiprocessors == 0)
        return false;
    if (!list_job(s, rank, step, &job, &product)) {
        s->prediction.parts = true;
        return false;
    }
    tiles = hd_cost_pick(&s->machine, &job, &s->tiles);
    // It goes on from the last one, or had to wait.
    if (product == 0 || s->cause != course->last)
        course->first = product;
    course->last = s->graph.first[rank] + step;
    if (tiles->together) { // behind all that they wait for
        *out = product + 1 < job.products
                   ? 0
                   : seconds_of(s, &job, 0, job.products, tiles);
        return true;
    }
    n = product - course->first;
    *out = seconds_of(s, &job, course->first, n + 1, tiles) -
           seconds_of(s, &job, course->first, n, tiles);
    *out = *out > 0 ? *out : 0;
    return true;
}
