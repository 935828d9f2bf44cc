// A clock at the start of a step is the greatest of what its stream, forks,
// waits, joins and peers knew before it. It is found from there backwards, and
// no further than to the depth of the step that is asked about: what is less
// deep cannot have come after that. Clocks that were found are kept while one
// rank is visited, with the depth down to which they were.
//
// A loose send is seen to have ended by who sees a wait for it end, or its
// recv: so a clock counts, beside the streams of its rank, every stream of a
// peer that receives such sends.
#include "check/past.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum {
    MOST_COUNTS = 1 << 28, // in the clocks of a rank: 1 GiB
    RENDEZVOUS = -1,       // all members of a collective have started
    END = -2,              // the caller's stream has come to HD_RUN_END
};

static int64_t slot_of(const hd_past *p, int rank, int64_t step)
{
    return 2 * p->graph->first[rank] + step;
}

static int64_t depth_of(const hd_past *p, int rank, int64_t step)
{
    return step == HD_RUN_END ? p->depth.turn[rank]
                              : p->depth.start[slot_of(p, rank, step)];
}

static bool is_first_run(const hd_past *p, int rank, int64_t step)
{
    return step < hd_graph_steps(p->graph, rank);
}

static int64_t in_run(const hd_past *p, int64_t step)
{
    int64_t n = hd_graph_steps(p->graph, p->watch->rank);

    return step < n ? step : step - n;
}

static void merge(const hd_past *p, int32_t *into, const int32_t *from)
{
    for (int i = 0; i < p->width; i++)
        if (into[i] < from[i])
            into[i] = from[i];
}

static void count(int32_t *clock, int64_t column, int64_t n)
{
    if (clock[column] < n)
        clock[column] = (int32_t)n;
}

// ----------------------------------------------------------------- events

static int64_t index_of(const hd_past *p, hd_past_event e)
{
    int64_t steps = 2 * p->graph->first[p->graph->nranks];

    return e.rank == END          ? steps + 2 * p->graph->nrendezvous
           : e.rank == RENDEZVOUS ? steps + e.number
                                  : slot_of(p, e.rank, e.number);
}

// Its clock, if it has been found down to the bound.
static int32_t *find(const hd_past *p, hd_past_event e)
{
    int32_t number = p->found[index_of(p, e)];
    int32_t *kept;

    if (number == 0)
        return NULL;
    kept = &p->kept[(int64_t)(number - 1) * (p->width + 1)];
    return kept[0] <= p->bound ? kept : NULL;
}

static void push(hd_past *p, hd_past_event e)
{
    hd_status status = hd_grow((void **)&p->stack, &p->stack_room,
                               p->nstack + 1, sizeof e, p->diag);

    if (status == HD_OK)
        p->stack[p->nstack++] = e;
    else
        p->status = status;
}

static void take_event(hd_past *p, hd_past_event e)
{
    const int32_t *kept = find(p, e);

    if (kept != NULL) {
        merge(p, p->sum, kept + 1);
        return;
    }
    p->lacks = true;
    push(p, e);
}

// The members of a group start together.
static void take_start(hd_past *p, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(p->graph, rank, step);
    int64_t head = hd_graph_same_run(p->graph, rank, step, rank, node->head);

    if (depth_of(p, rank, head) > p->bound)
        take_event(p, (hd_past_event){rank, (int32_t)head});
}

static int32_t loose_of(const hd_past *p, int rank, int64_t step)
{
    return rank != p->watch->rank ? -1 : p->watch->loose[in_run(p, step)];
}

static void take_send(hd_past *p, int rank, int64_t send)
{
    take_start(p, rank, send);
    if (rank == p->watch->rank && loose_of(p, rank, send) < 0)
        count(p->sum, hd_graph_node(p->graph, rank, send)->stream,
              hd_order_count(p->graph, rank, send));
}

static void take_recv(hd_past *p, int rank, int64_t step, const hd_node *node)
{
    int64_t send =
        hd_graph_same_run(p->graph, rank, step, node->peer, node->partner);
    int32_t loose = loose_of(p, node->peer, send);

    take_send(p, node->peer, send);
    if (loose >= 0)
        count(p->sum, p->column[loose], hd_order_count(p->graph, rank, step));
}

// Of a broadcast the others wait for the root alone, of a reduce the root alone
// waits.
static void take_rendezvous(hd_past *p, int rank, int64_t step,
                            const hd_node *node)
{
    const hd_graph *g = p->graph;
    const hd_member *member = hd_graph_members(g, node->rendezvous);
    int64_t root = hd_mesh_coord(g->module, node->peer, node->op->axis);
    int64_t rendezvous =
        node->rendezvous + (is_first_run(p, rank, step) ? 0 : g->nrendezvous);

    if (hd_op_move(node->op) == HD_MOVE_BROADCAST)
        take_start(
            p, node->peer,
            hd_graph_same_run(g, rank, step, node->peer, member[root].step));
    else if (hd_op_move(node->op) != HD_MOVE_REDUCE || node->peer == rank)
        take_event(p, (hd_past_event){RENDEZVOUS, (int32_t)rendezvous});
}

// What the peers of a transfer have done before it ends.
static void take_peers(hd_past *p, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(p->graph, rank, step);

    if (node->kind == HD_NODE_RECV)
        take_recv(p, rank, step, node);
    if (node->kind == HD_NODE_COLLECTIVE)
        take_rendezvous(p, rank, step, node);
}

// The stream has gone past the step, which is the last one of its group.
static void take_end(hd_past *p, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(p->graph, rank, step);
    int64_t head = hd_graph_same_run(p->graph, rank, step, rank, node->head);

    take_start(p, rank, head);
    for (int64_t i = head; i <= step; i++)
        take_peers(p, rank, i);
    if (rank == p->watch->rank)
        count(p->sum, node->stream, hd_order_count(p->graph, rank, step));
}

static void take_need(hd_past *p, int rank, int64_t step, const hd_need *need)
{
    int64_t last = need->step;

    if (last == step) // a join
        last = hd_graph_before(p->graph, rank, need->stream, step);
    if (need->async)
        take_send(p, rank, last);
    else if (last >= 0)
        take_end(p, rank, last);
}

static void expand_start(hd_past *p, int rank, int64_t step)
{
    const hd_graph *g = p->graph;
    const hd_node *node = hd_graph_node(g, rank, step);
    int64_t length = hd_graph_length(g, rank, node->stream);
    int64_t place = node->place + (is_first_run(p, rank, step) ? 0 : length);
    hd_need need;

    if (place > 0)
        take_end(p, rank, hd_graph_at(g, rank, node->stream, place - 1));
    for (int i = 0; hd_graph_need(g, rank, step, &i, &need);)
        take_need(p, rank, step, &need);
    if (node->stream == 0 && place >= length && rank == p->watch->rank)
        count(p->sum, 0, hd_order_turn(g, rank));
}

static void expand(hd_past *p, hd_past_event e)
{
    const hd_graph *g = p->graph;
    bool second = e.number >= g->nrendezvous;
    int64_t rendezvous = second ? e.number - g->nrendezvous : e.number;
    int64_t length;

    ++*p->visits;
    if (e.rank >= 0) {
        expand_start(p, e.rank, e.number);
    } else if (e.rank == RENDEZVOUS) {
        for (const hd_member *m = hd_graph_members(g, rendezvous);
             m < hd_graph_members(g, rendezvous + 1); m++)
            take_start(p, m->rank,
                       m->step + (second ? hd_graph_steps(g, m->rank) : 0));
    } else {
        length = hd_graph_length(g, p->watch->rank, 0);
        if (length > 0)
            take_end(p, p->watch->rank,
                     hd_graph_at(g, p->watch->rank, 0, length - 1));
    }
}

// ----------------------------------------------------------------- search

static void keep(hd_past *p, hd_past_event e)
{
    int32_t *number = &p->found[index_of(p, e)], *kept;
    int64_t w = p->width + 1;

    if (*number == 0) {
        p->full = (p->nkept + 1) * w > MOST_COUNTS;
        if (p->full)
            return;
        p->status = hd_grow((void **)&p->kept, &p->kept_room,
                            (p->nkept + 1) * w, sizeof *p->kept, p->diag);
        if (p->status == HD_OK)
            p->status = hd_grow((void **)&p->event, &p->events_room,
                                p->nkept + 1, sizeof e, p->diag);
        if (p->status != HD_OK)
            return;
        p->event[p->nkept++] = e;
        *number = (int32_t)p->nkept;
    }
    kept = &p->kept[(*number - 1) * w];
    kept[0] = (int32_t)p->bound;
    memcpy(kept + 1, p->sum, sizeof *kept * (size_t)p->width);
}

static void search(hd_past *p, hd_past_event e)
{
    p->nstack = 0;
    push(p, e);
    while (p->nstack > 0 && p->status == HD_OK && !p->full) {
        hd_past_event top = p->stack[p->nstack - 1];

        if (find(p, top) != NULL) {
            p->nstack--;
            continue;
        }
        memset(p->sum, 0, sizeof *p->sum * (size_t)p->width);
        p->lacks = false;
        expand(p, top);
        if (p->lacks)
            continue;
        keep(p, top);
        p->nstack--;
    }
}

// Where a clock was found that does not go down far enough, twice as far, so
// that who asks for ever earlier steps is not answered anew for each.
static int64_t bound_for(const hd_past *p, hd_past_event e, int64_t top,
                         int64_t bound)
{
    int32_t number = p->found[index_of(p, e)];
    int64_t twice = bound;

    if (number != 0)
        twice =
            top - 2 * (top - p->kept[(int64_t)(number - 1) * (p->width + 1)]);
    return twice < -1 ? -1 : twice < bound ? twice : bound;
}

hd_status hd_past_learn(hd_past *past, int64_t since)
{
    hd_past *p = past;
    int rank = p->watch->rank;
    int64_t bound = depth_of(p, rank, since), top;
    hd_past_event e = {END, 0};
    const int32_t *kept;

    if (p->step != HD_RUN_END) {
        const hd_node *node = hd_graph_node(p->graph, rank, p->step);

        e = (hd_past_event){rank,
                            (int32_t)hd_graph_same_run(p->graph, rank, p->step,
                                                       rank, node->head)};
    }
    top = depth_of(p, rank, p->step);
    if (top <= bound || p->full || p->status != HD_OK)
        return p->status;
    p->bound = bound;
    if (find(p, e) == NULL) {
        p->bound = bound_for(p, e, top, bound);
        search(p, e);
    }
    kept = find(p, e);
    if (kept == NULL)
        return p->status;
    merge(p, p->clock, kept + 1);
    if (p->step != HD_RUN_END)
        merge(p,
              &p->known[hd_graph_node(p->graph, rank, p->step)->stream *
                        p->width],
              p->clock);
    return HD_OK;
}

// ------------------------------------------------------------------- rank

static void forget(hd_past *p)
{
    for (int64_t i = 0; i < p->nkept; i++)
        p->found[index_of(p, p->event[i])] = 0;
    p->nkept = 0;
    p->full = false;
}

static int64_t own_row(const hd_past *p, int64_t step)
{
    int64_t last = 2 * hd_graph_steps(p->graph, p->watch->rank);

    return (step == HD_RUN_END ? last : step) * p->graph->nstreams;
}

static void note_own(void *context, int64_t step, const int32_t *clock)
{
    hd_past *p = context;

    memcpy(&p->own[own_row(p, step)], clock,
           sizeof *clock * (size_t)p->graph->nstreams);
}

// A column for each stream of a peer that receives loose sends.
static hd_status number_columns(hd_past *p)
{
    const hd_graph *g = p->graph;
    const hd_node *node = &g->node[g->first[p->watch->rank]];
    int64_t n = hd_graph_steps(g, p->watch->rank);

    p->width = g->nstreams;
    free(p->column);
    p->column = NULL;
    HD_TRY(hd_clear_array(p->watch->nloose, sizeof *p->column, p->diag,
                          (void **)&p->column));
    for (int64_t i = 0; i < n; i++) {
        int32_t loose = p->watch->loose[i], *column;

        if (loose < 0)
            continue;
        column = &p->column_of[(int64_t)node[i].peer * g->nstreams +
                               hd_graph_node(g, node[i].peer, node[i].partner)
                                   ->stream];
        if (*column == 0)
            *column = p->width++;
        p->column[loose] = *column;
    }
    for (int64_t i = 0; i < n; i++)
        if (p->watch->loose[i] >= 0)
            p->column_of[(int64_t)node[i].peer * g->nstreams +
                         hd_graph_node(g, node[i].peer, node[i].partner)
                             ->stream] = 0;
    return HD_OK;
}

static hd_status allocate_rank(hd_past *p)
{
    int64_t n = hd_graph_steps(p->graph, p->watch->rank);
    int64_t w = p->graph->nstreams;

    if ((2 * n + 1) * w > MOST_COUNTS)
        return HD_ERROR_UNSUPPORTED;
    HD_TRY(number_columns(p));
    HD_TRY(hd_clear_array((2 * n + 1) * w, sizeof *p->own, p->diag,
                          (void **)&p->own));
    HD_TRY(hd_clear_array(2 * n + 1, sizeof *p->order, p->diag,
                          (void **)&p->order));
    HD_TRY(hd_clear_array(w * p->width, sizeof *p->known, p->diag,
                          (void **)&p->known));
    HD_TRY(hd_clear_array(p->width, sizeof *p->clock, p->diag,
                          (void **)&p->clock));
    return hd_clear_array(p->width, sizeof *p->sum, p->diag, (void **)&p->sum);
}

static void free_rank(hd_past *p)
{
    free(p->own);
    free(p->order);
    free(p->known);
    free(p->clock);
    free(p->sum);
    p->own = p->known = p->clock = p->sum = NULL;
    p->order = NULL;
}

static int compare_order(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return (a > b) - (a < b);
}

// By depth, then by number: what must end before a step starts is less deep.
static void sort_steps(hd_past *p)
{
    int rank = p->watch->rank;
    int64_t n = 2 * hd_graph_steps(p->graph, rank);

    for (int64_t i = HD_RUN_END; i < n; i++)
        p->order[i + 1] = depth_of(p, rank, i) << 32 | (i + 1);
    qsort(p->order, (size_t)n + 1, sizeof *p->order, compare_order);
}

const int32_t *hd_past_go(hd_past *past, int64_t step)
{
    past->step = step;
    memset(past->clock, 0, sizeof *past->clock * (size_t)past->width);
    memcpy(past->clock, &past->own[own_row(past, step)],
           sizeof *past->clock * (size_t)past->graph->nstreams);
    return past->clock;
}

hd_status hd_past_each(hd_past *past, const hd_watch *watch)
{
    hd_past *p = past;
    hd_watch own = {watch->rank, watch->nloose, watch->loose, note_own, p};
    int64_t n = 2 * hd_graph_steps(p->graph, watch->rank) + 1;

    free_rank(p);
    forget(p);
    p->watch = watch;
    HD_TRY(allocate_rank(p));
    HD_TRY(hd_order_each(p->graph, 2, &own, p->diag));
    sort_steps(p);
    for (int64_t i = 0; i < n; i++) {
        int64_t step = (p->order[i] & 0xffffffff) - 1;

        hd_past_go(p, step);
        if (step != HD_RUN_END)
            merge(p, p->clock,
                  &p->known[hd_graph_node(p->graph, watch->rank, step)->stream *
                            p->width]);
        watch->fn(watch->context, step, p->clock);
    }
    return p->status;
}

bool hd_past_is_received(const hd_past *past, int64_t send)
{
    int rank = past->watch->rank;
    const hd_node *node = hd_graph_node(past->graph, rank, send);
    int32_t loose = past->watch->loose[in_run(past, send)];

    assert(node->kind == HD_NODE_SEND && loose >= 0);
    return past->clock[past->column[loose]] >=
           hd_order_count(past->graph, node->peer,
                          hd_graph_same_run(past->graph, rank, send, node->peer,
                                            node->partner));
}

// ------------------------------------------------------------------ whole

hd_status hd_past_create(const hd_graph *graph, int64_t *visits, hd_diag *diag,
                         hd_past *out)
{
    hd_past p = {.graph = graph, .visits = visits, .diag = diag};
    int64_t events =
        2 * graph->first[graph->nranks] + 2 * graph->nrendezvous + 1;
    hd_status status;

    HD_TRY(hd_depth_create(graph, diag, &p.depth));
    *visits += 2 * graph->first[graph->nranks];
    status = hd_clear_array(events, sizeof *p.found, diag, (void **)&p.found);
    if (status == HD_OK)
        status =
            hd_clear_array((int64_t)graph->nranks * graph->nstreams,
                           sizeof *p.column_of, diag, (void **)&p.column_of);
    if (status == HD_OK)
        *out = p;
    else
        hd_past_free(&p);
    return status;
}

void hd_past_free(hd_past *past)
{
    free_rank(past);
    hd_depth_free(&past->depth);
    free(past->column);
    free(past->column_of);
    free(past->found);
    free(past->kept);
    free(past->event);
    free(past->stack);
    *past = (hd_past){0};
}
