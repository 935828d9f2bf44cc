// A product takes as long as its tiles (tiles/choose.h), the last of which
// leave a part of the processor to others, but no shorter than the rate lets it
// be; anything else is bound by the bytes that it reads and writes.
#include <heddle/simulate.h>

#include "simulate/cost.h"

#include <assert.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/causal.h"
#include "ir/counts.h"
#include "ir/product.h"

// A node with its spans again.
typedef struct task {
    hd_step step;
    hd_span span[HD_MAX_VIEWS];
} task;

static void recall(const hd_graph *g, const hd_node *node, task *out)
{
    int n = 0;

    out->step =
        (hd_step){.op = node->op, .span = out->span, .stores = node->stores};
    if (hd_op_is(node->op, HD_UNIT_COMPUTE)) {
        out->step.causal = hd_graph_causal(g, node);
        out->step.attended = hd_graph_attends(g, node);
    }
    for (int64_t i = node->part; i < node[1].part; i++)
        out->span[n++] =
            hd_part_span(&g->frame[g->part[i].buffer], &g->part[i]);
    // A view that a step does not touch, or an event, is no part.
    assert(!hd_op_is(node->op, HD_UNIT_COMPUTE) || n == node->op->nviews);
    assert(!hd_op_is(node->op, HD_UNIT_TRANSFER) || n > 0);
}

static double bytes_of(const hd_span *span)
{
    return (double)hd_span_elements(span) *
           (double)hd_dtype_size(span->buffer->type.dtype);
}

double hd_cost_rate(const hd_machine *machine, hd_dtype dtype)
{
    double rate = machine->matmul[dtype];

    if (hd_dtype_is_integer(dtype) && !(rate > 0)) // in which they are done
        rate = machine->matmul[HD_DTYPE_F64];
    return rate > 0 ? rate : machine->matmul[HD_DTYPE_F32];
}

static double ceil_div(double a, double b)
{
    double quotient = a / b;
    double down = (double)(int64_t)quotient;

    return down < quotient ? down + 1 : down;
}

// Plain products of matrices.
typedef struct work {
    double m, n, k, batch;
} work;

// What they take by themselves, and the share of the processor that their tiles
// fill.
static hd_cost work_cost(const hd_machine *machine, work w, hd_dtype dtype)
{
    double rate = hd_cost_rate(machine, dtype);
    double tiles, full;

    if (machine->units == 0)
        return (hd_cost){.seconds = 2.0 * w.m * w.n * w.k * w.batch / rate,
                         .width = 1};
    tiles = ceil_div(w.m, machine->tile_m) * ceil_div(w.n, machine->tile_n) *
            w.batch;
    full = tiles > machine->units ? tiles : machine->units;
    return (hd_cost){.seconds = full * 2.0 * machine->tile_m * machine->tile_n *
                                w.k / rate,
                     .width = tiles / full};
}

// How many rows a group has is data: its last tile is taken to be half full,
// and groups of a sum over rows to be alike.
static work group_work(const hd_machine *machine, const hd_product *p, work w)
{
    double groups = (double)p->groups;

    if (groups <= 1)
        return w;
    if (p->ta)
        return (work){w.m, w.n, w.k / groups, groups};
    w.m += (groups < w.m ? groups : w.m) * machine->tile_m / 2;
    return w;
}

// With what a product moves at its end while it multiplies nothing. Its result
// is in no rate: a GPU at the limit of its power writes it beside nothing, and
// streams that meet gain nothing by it. What it reads there leaves the
// processor to other kernels. A result that is wider than the operands takes
// cuBLASLt three times as long as the bytes that it has more, on an H200, as do
// sums that it adds to, and leaves others nothing that was seen.
static hd_cost with_end(const hd_machine *machine, const hd_step *step,
                        const hd_product *p, hd_cost cost)
{
    int bias = p->part[HD_PRODUCT_BIAS].view;
    int aux = p->part[HD_PRODUCT_AUX].view;
    hd_dtype from = step->span[1].buffer->type.dtype;
    hd_dtype to = step->span[0].buffer->type.dtype;
    bool wide = hd_dtype_size(to) > hd_dtype_size(from);
    double result = (double)hd_span_elements(&step->span[0]) *
                    (double)hd_dtype_size(wide ? from : to);
    double bytes = bytes_of(&step->span[0]) * (p->accumulate ? 2 : 1) - result;
    double busy = cost.seconds + result / machine->memory, moves;

    if (machine->processors > 0)
        return cost;
    bytes += bias >= 0 ? bytes_of(&step->span[bias]) : 0;
    bytes += aux >= 0 ? bytes_of(&step->span[aux]) : 0;
    moves = bytes > 0 ? (wide ? 3 : 1) * bytes / machine->memory : 0;
    cost.seconds = busy + moves;
    cost.width *= wide ? 1 : busy / cost.seconds;
    return cost;
}

// Whether tiles of sm_90a take such a product at all.
static bool has_tiles(const hd_product *p, hd_dtype dtype)
{
    return (dtype == HD_DTYPE_BF16 || dtype == HD_DTYPE_F16) && p->counts < 0 &&
           p->k > 0 && p->scales[0].view < 0 && p->scales[1].view < 0;
}

// Member by member, for what is compared as bytes.
static void fill_work(const hd_product *p, hd_tiles_work *out)
{
    out->m = (double)p->m * (double)p->batch / (double)p->pieces;
    out->n = (double)p->n;
    out->k = (double)p->k;
    out->pieces = (double)p->pieces;
    out->splits = true;
    out->ragged = false;
    out->plain = hd_product_is_plain(p);
    out->turns = p->n % 8 == 0;
    out->along[0] = !p->ta;
    out->along[1] = p->tb;
}

const hd_tiles_choice *hd_cost_pick(const hd_machine *machine,
                                    const hd_tiles_job *job,
                                    hd_known_tiles *known)
{
    int at;

    for (int i = 0; i < HD_KNOWN_JOBS; i++)
        if (memcmp(job, &known->job[i], sizeof *job) == 0)
            return &known->tiles[i];
    at = (int)(known->n++ % HD_KNOWN_JOBS);
    known->job[at] = *job;
    (void)hd_tiles_pick(job, machine->multiprocessors, 1, &known->tiles[at]);
    return &known->tiles[at];
}

double hd_cost_hertz(const hd_machine *machine, hd_dtype dtype)
{
    hd_machine usual = HD_EMPTY(hd_machine);

    hd_machine_default(&usual);
    return HD_TILES_HERTZ * hd_cost_rate(machine, dtype) /
           hd_cost_rate(&usual, dtype);
}

// Of one that cuBLASLt does, whose tiles are taken to be as good as ours.
static hd_cost tiles_cost(const hd_machine *machine, const hd_product *p,
                          hd_dtype dtype, hd_known_tiles *known)
{
    double full = 2.0 * (double)p->batch * (double)p->m * (double)p->n *
                  (double)p->k / hd_cost_rate(machine, dtype);
    const hd_tiles_choice *tiles;
    double seconds, busy;
    hd_tiles_job job;

    memset(&job, 0, sizeof job);
    job.products = 1;
    fill_work(p, &job.work[0]);
    tiles = hd_cost_pick(machine, &job, known);
    seconds =
        hd_tiles_cycles(&job, 0, 1, tiles) / hd_cost_hertz(machine, dtype);
    seconds = seconds > full ? seconds : full;
    busy = hd_tiles_busy(&job.work[0], tiles);
    return (hd_cost){.seconds = seconds,
                     .width = busy > full / seconds ? busy : full / seconds};
}

static hd_cost matmul_cost(const hd_machine *machine, const hd_step *step,
                           hd_known_tiles *known)
{
    hd_product p = hd_product_of(step, 0);
    hd_dtype dtype = step->span[1].buffer->type.dtype;
    work w = {(double)p.m, (double)p.n, (double)p.k, (double)p.batch};
    hd_cost cost;

    if (machine->multiprocessors > 0 && has_tiles(&p, dtype))
        cost = tiles_cost(machine, &p, dtype, known);
    else
        cost = work_cost(machine,
                         p.counts >= 0 ? group_work(machine, &p, w) : w, dtype);
    return with_end(machine, step, &p, cost);
}

// How many keys the rows of one head see, of sequences that are so long, or of
// 0 of one.
static double visible(const hd_sight *sight, int64_t length)
{
    double n = 0;

    if (length == 0 && hd_sight_is_whole(sight))
        return (double)sight->rows * (double)sight->keys;
    for (int64_t row = 0; row < sight->rows; row++) {
        int64_t from, past, first;

        hd_sight_keys(sight, row, 0, &from, &past);
        if (length > 0) {
            first = hd_sight_row(sight, row) / length * length;
            hd_sight_within(sight, first, first + length, 0, &from, &past);
        }
        n += past > from ? (double)(past - from) : 0;
    }
    return n;
}

// How many of them a row does. How long sequences are is data: here they share
// the rows out evenly.
static double seen_by_row(const hd_step *step)
{
    hd_sequences sequences = hd_sequences_of(step);
    hd_sight sight = hd_sight_of(step);
    int64_t n = sequences.each, length = 0;

    if (sequences.counts != NULL && n > 0)
        length = (sequences.room + n - 1) / n;
    return visible(&sight, length) / (double)sight.rows;
}

// Its products, of what rows see. All have as many rows and keys as tiles of a
// matmul have rows and columns.
static hd_cost attend_cost(const hd_machine *machine, const hd_step *step)
{
    const hd_span *q = &step->span[step->op->noutputs], *v = &q[2];
    int64_t rows = q->extent[q->ndims - 2];
    int64_t columns = hd_op_attend_columns(step->op, q->extent[q->ndims - 1],
                                           v->extent[v->ndims - 1]);
    double heads, seen;
    hd_cost cost;

    if (columns == 0 || rows == 0)
        return (hd_cost){.width = 1};
    heads = (double)hd_span_elements(&step->span[0]) /
            (double)(rows * step->span[0].extent[step->span[0].ndims - 1]);
    seen = seen_by_row(step);
    cost =
        work_cost(machine, (work){(double)rows, (double)columns, seen, heads},
                  q->buffer->type.dtype);
    if (machine->attention > 0)
        cost.seconds /= machine->attention;
    return cost;
}

// What is read or written of a view: of what is taken from no more than is
// taken.
static double bytes_moved(const hd_step *step, int i)
{
    bool from = hd_op_family(step->op) == HD_FAMILY_TAKE && i == 1;

    return bytes_of(&step->span[from ? 0 : i]);
}

// What keeps the memory busy for half of its time has half of it to spare, and
// so has what fetches its operands more slowly than the memory could.
static hd_cost compute_cost(const hd_machine *machine, const hd_step *step,
                            hd_known_tiles *known)
{
    hd_cost cost = {.width = 1};
    double bytes = 0, bound;

    for (int i = 0; i < step->op->nviews; i++)
        bytes += (hd_step_access(step, i) == HD_ACCESS_UPDATE ? 2 : 1) *
                 bytes_moved(step, i);
    bound = bytes / machine->memory;
    if (hd_op_family(step->op) == HD_FAMILY_PRODUCT) {
        cost = matmul_cost(machine, step, known);
        bound *= machine->processors > 0 ? 1 : HD_COST_FETCH;
    }
    if (hd_op_family(step->op) == HD_FAMILY_ATTEND)
        cost = attend_cost(machine, step);
    if (cost.seconds <= bound)
        cost =
            (hd_cost){.seconds = bound,
                      .width = bound > 0 ? bytes / machine->memory / bound : 1};
    else if (cost.width < bound / cost.seconds)
        cost.width = bound / cost.seconds;
    if (machine->processors > 0)
        cost.seconds += machine->launch;
    else
        cost.latency = machine->launch;
    return cost;
}

hd_cost hd_cost_of(const hd_graph *graph, const hd_machine *machine,
                   const hd_node *node, hd_known_tiles *known)
{
    hd_cost cost = {0};
    task task;

    recall(graph, node, &task);
    if (hd_op_is(node->op, HD_UNIT_COMPUTE))
        return compute_cost(machine, &task.step, known);
    if (hd_op_is(node->op, HD_UNIT_TRANSFER))
        cost.bytes = hd_op_received(
            node->op, (double)graph->module->axis[node->op->axis].size,
            bytes_of(&task.span[0]));
    return cost;
}

// Whether rows of a view begin at multiples of 16 bytes, along which it is
// dense.
static bool is_even(const hd_span *span)
{
    uint64_t bits = (uint64_t)span->offset;
    bool dense = false;

    for (int d = 0; d < span->ndims; d++) {
        if (span->stride[d] == 1)
            dense = true;
        else if (span->extent[d] > 1)
            bits |= (uint64_t)span->stride[d];
    }
    return dense && bits % 8 == 0;
}

bool hd_cost_tiles(const hd_graph *graph, const hd_node *node,
                   hd_tiles_work *out)
{
    const hd_span *a;
    task task;
    hd_product p;

    if (hd_op_family(node->op) != HD_FAMILY_PRODUCT ||
        hd_op_has_counts(node->op) || graph->module->nsizes > 0)
        return false;
    recall(graph, node, &task);
    p = hd_product_of(&task.step, 0);
    a = &task.span[task.step.op->noutputs];
    fill_work(&p, out);
    return has_tiles(&p, a->buffer->type.dtype) && p.batch == 1 &&
           !p.accumulate && p.m >= HD_TILES_LEAST_SIDE &&
           p.n >= HD_TILES_LEAST_SIDE && is_even(a) && is_even(a + 1);
}

bool hd_cost_alike(const hd_graph *graph, const hd_node *a, const hd_node *b)
{
    task one, other;
    hd_product p, q;

    recall(graph, a, &one);
    recall(graph, b, &other);
    if (a->op->code != b->op->code || a->op->nviews != b->op->nviews)
        return false;
    for (int i = 0; i < a->op->nviews; i++)
        if (one.span[i].buffer->type.dtype != other.span[i].buffer->type.dtype)
            return false;
    p = hd_product_of(&one.step, 0);
    q = hd_product_of(&other.step, 0);
    return p.act == q.act && p.ta == q.ta && p.tb == q.tb &&
           (p.scale == NULL) == (q.scale == NULL);
}
