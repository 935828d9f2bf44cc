#include "lower/sequence.h"

#include "base/dtype.h"
#include "ir/space.h"
#include "lower/build.h"

// ---------------------------------------------------------------- estimates

// In bytes that one rank sends another meanwhile, of a GPU of some years: as
// many operations of a product, as many bytes of its own memory, and what any
// transfer takes, or a collective that adds nothing up.
static const double FLOPS = 2048, LOCAL = 12, LATENCY = 4 << 20,
                    COLLECTIVE = 10 << 20;

static double bytes_of(const hd_view *view)
{
    double n = (double)hd_dtype_size(view->buffer->type.dtype);

    for (int d = 0; d < view->buffer->type.ndims; d++)
        if (!hd_view_picks(view, d))
            n *= (double)hd_view_room(view, d);
    return n;
}

// Multiplications and additions of a product, of what a rank has.
static double operations(const hd_op *op)
{
    hd_space space;
    double n = 2;

    hd_space_map_op(op, &space);
    for (int d = 0; d < space.ndims; d++) {
        double most = 1;

        for (int i = 0; i < op->noutputs + op->ninputs; i++) {
            int own = space.dim[i][d];
            double here =
                own < 0
                    ? 1
                    : (double)hd_view_room(&op->view[i],
                                           hd_view_kept_dim(&op->view[i], own));

            most = here > most ? here : most;
        }
        n *= most;
    }
    return n;
}

// Each row with each key, twice; gradients five times, of which all need the
// first.
static double attended(const hd_op *op)
{
    const hd_view *q = &op->view[op->noutputs], *k = q + 1;
    bool grad = hd_op_attend(op) != HD_ATTEND_ATTENTION;
    double size = (double)hd_dtype_size(q->buffer->type.dtype);
    int d = k->buffer->type.ndims - 2;

    return (grad ? 10 : 4) * bytes_of(q) / size *
           (d < 0 || hd_view_picks(k, d) ? 1 : (double)hd_view_room(k, d));
}

static double time_of_op(const hd_module *module, const hd_op *op)
{
    double bytes = 0;
    int n = op->noutputs + op->ninputs;

    if (hd_op_is(op, HD_UNIT_TRANSFER))
        return (hd_op_is_collective(op) && hd_op_fold(op) == HD_FOLD_NONE
                    ? COLLECTIVE
                    : LATENCY) +
               hd_op_received(op, (double)module->axis[op->axis].size,
                              bytes_of(&op->view[0]));
    if (!hd_op_is(op, HD_UNIT_COMPUTE))
        return 0;
    for (int i = 0; i < n; i++)
        bytes += bytes_of(&op->view[i]);
    bytes /= LOCAL;
    if (hd_op_family(op) == HD_FAMILY_PRODUCT)
        bytes += operations(op) / FLOPS;
    else if (hd_op_family(op) == HD_FAMILY_ATTEND && op->ninputs > 1)
        bytes += attended(op) / FLOPS;
    return bytes;
}

static double time_of(const hd_module *module, const hd_block *block)
{
    double all = 0;

    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        double times = 1;

        if (s->kind == HD_STMT_OP)
            all += time_of_op(module, s->op);
        if (s->kind == HD_STMT_FOR && hd_expr_is_const(module, s->a) &&
            hd_expr_is_const(module, s->b))
            times = (double)(hd_expr_value(module, s->b) -
                             hd_expr_value(module, s->a));
        all +=
            times * time_of(module, &s->body) + time_of(module, &s->otherwise);
    }
    return all;
}

// ------------------------------------------------------------- what follows

typedef struct edge {
    struct edge *next;
    int to;
} edge;

typedef struct node {
    edge *after;  // items that need it to have ended
    int before;   // how many it needs
    double takes; // the time
    double way;   // with the longest of those after it
    double ready; // when all that it needs has ended
} node;

// Of a buffer: who wrote it last, and has read it since; -1 for none.
typedef struct touched {
    int writer;
    edge *readers;
} touched;

typedef struct search {
    hd_arena *scratch;
    node *node;
    touched *by; // by buffer id
    int at;
} search;

static void put(search *s, edge **list, int to)
{
    edge *e;

    if (*list != NULL && (*list)->to == to)
        return;
    e = hd_new(s->scratch, edge);
    *e = (edge){*list, to};
    *list = e;
}

static void follow(search *s, int from)
{
    edge **list;

    if (from < 0 || from == s->at)
        return;
    list = &s->node[from].after;
    if (*list != NULL && (*list)->to == s->at)
        return;
    put(s, list, s->at);
    s->node[s->at].before++;
}

static void touch(void *context, hd_op *op)
{
    search *s = context;

    for (int i = 0; i < op->nviews; i++) {
        touched *t = &s->by[hd_buffer_root(op->view[i].buffer)->id];

        follow(s, t->writer);
        if (hd_op_access(op, i) == HD_ACCESS_READ) {
            put(s, &t->readers, s->at);
            continue;
        }
        for (const edge *e = t->readers; e != NULL; e = e->next)
            follow(s, e->to);
        *t = (touched){.writer = s->at};
    }
}

// ----------------------------------------------------------------- sequences

typedef struct clocks {
    double caller, transfers;
} clocks;

// Item i comes next.
static void run(node *all, const hd_sequenced *item, int i, clocks *c)
{
    double *clock = item[i].travels ? &c->transfers : &c->caller;
    double start = *clock > all[i].ready ? *clock : all[i].ready;

    *clock = start + all[i].takes;
    for (const edge *e = all[i].after; e != NULL; e = e->next)
        if (all[e->to].ready < *clock)
            all[e->to].ready = *clock;
}

static double ends(const clocks *c)
{
    return c->caller > c->transfers ? c->caller : c->transfers;
}

// Whether item i is the better one to come next.
static bool is_better(const node *all, const hd_sequenced *item, int i,
                      int than, const clocks *c)
{
    bool goes, other;

    if (than < 0)
        return true;
    goes =
        item[i].travels ? c->transfers <= c->caller : all[i].ready <= c->caller;
    other = item[than].travels ? c->transfers <= c->caller
                               : all[than].ready <= c->caller;
    if (goes != other)
        return goes;
    if (item[i].travels != item[than].travels)
        return goes ? item[i].travels : !item[i].travels;
    if (!goes && all[i].ready != all[than].ready)
        return all[i].ready < all[than].ready;
    return all[i].way > all[than].way;
}

// Those from `low` to before `past`, of which none holds.
static double sort(node *all, const hd_sequenced *item, int low, int past,
                   int *order)
{
    clocks c = {0};
    int *open = order, nopen = 0; // from the end of what is in order on

    for (int i = low; i < past; i++)
        if (all[i].before == 0)
            open[nopen++] = i;
    for (int k = 0; k < past - low; k++) {
        int best = -1, at = k;

        for (int o = k; o < k + nopen; o++)
            if (best < 0 || is_better(all, item, order[o], best, &c)) {
                best = order[o];
                at = o;
            }
        for (; at > k; at--)
            order[at] = order[at - 1];
        order[k] = best;
        nopen--;
        run(all, item, best, &c);
        for (const edge *e = all[best].after; e != NULL; e = e->next)
            if (e->to < past && --all[e->to].before == 0)
                order[k + 1 + nopen++] = e->to;
    }
    return ends(&c);
}

static void find_ways(node *all, int low, int past)
{
    for (int i = past - 1; i >= low; i--) {
        all[i].way = 0;
        for (const edge *e = all[i].after; e != NULL; e = e->next)
            if (e->to < past && all[e->to].way > all[i].way)
                all[i].way = all[e->to].way;
        all[i].way += all[i].takes;
    }
}

static void start(node *all, int low, int past)
{
    for (int i = low; i < past; i++)
        all[i].before = 0;
    for (int i = low; i < past; i++) {
        all[i].ready = 0;
        for (const edge *e = all[i].after; e != NULL; e = e->next)
            if (e->to < past)
                all[e->to].before++;
    }
}

static const double GAIN = .99; // of the time as they stand

static void sort_some(node *all, const hd_sequenced *item, int low, int past,
                      int *order)
{
    clocks c = {0};
    double stand;

    for (int i = low; i < past; i++)
        all[i].ready = 0; // what is ahead of the section has ended
    for (int i = low; i < past; i++)
        run(all, item, i, &c);
    stand = ends(&c);
    find_ways(all, low, past);
    start(all, low, past);
    if (sort(all, item, low, past, order) >= GAIN * stand)
        for (int i = low; i < past; i++)
            order[i - low] = i;
}

void hd_sequence(const hd_module *module, const hd_sequenced *item, int n,
                 hd_arena *scratch, int *order)
{
    search s = {.scratch = scratch,
                .node = hd_new_array(scratch, node, n),
                .by = hd_new_array(scratch, touched, module->nbuffers + 1)};
    int low = 0;

    for (int i = 0; i <= module->nbuffers; i++)
        s.by[i].writer = -1;
    for (s.at = 0; s.at < n; s.at++) {
        s.node[s.at].takes = time_of(module, item[s.at].block);
        hd_block_each(item[s.at].block, touch, &s);
    }
    for (int i = 0; i <= n; i++) {
        if (i < n && !item[i].holds)
            continue;
        sort_some(s.node, item, low, i, order + low);
        if (i < n)
            order[i] = i;
        low = i + 1;
    }
}
