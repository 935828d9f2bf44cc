// Walks the ranks one after the other. A transfer first keeps its sequence
// number as its `seq`; once all ranks are there, sends are looked up by (peer,
// axis, number) and collectives are numbered by (axis, line of the mesh).
#include "steps/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

// A send of some rank, found by key.
typedef struct sent {
    uint64_t key;
    int32_t step;
} sent;

// A send, or a recv, that some ranks of a line issue.
typedef struct side {
    int rank;     // of the graph
    int32_t step; // -1: it moves nothing, and is not issued
    uint64_t key; // as of a send
    hd_arc arc;
    bool met;
    int64_t skip; // of the first one of its peer and axis: so many, from it on,
                  // have met theirs
} side;

typedef struct sides {
    side *of; // owned: sorted by rank and key
    int64_t n, room;
} sides;

typedef struct builder {
    hd_graph *graph;
    hd_symmetry symmetry; // axes along which ranks are folded into one
    const hd_full *full;  // borrowed: then; else NULL
    int32_t *place;       // owned, by rank of the mesh: its first one's
    hd_diag *diag;
    int rank;
    int64_t nnodes, nodes_room, parts_room, nrecords, records_room;
    int64_t attended_room, arcs_room;
    int32_t fork;
    int32_t launch, launched; // of the step before, and its first one
    sent *sent;               // owned: of all ranks, sorted within each
    int64_t nsent, sent_room;
    int64_t *first_sent; // owned: by rank
    sides sends, recvs;
} builder;

// ------------------------------------------------------------------ steps

static hd_node_kind kind_of(const hd_op *op)
{
    switch (hd_op_sync(op)) {
    case HD_SYNC_WAIT:
        return HD_NODE_WAIT;
    case HD_SYNC_FORK:
        return HD_NODE_FORK;
    case HD_SYNC_JOIN:
        return HD_NODE_JOIN;
    case HD_SYNC_RECORD:
    case HD_SYNC_NONE:
        break;
    }
    switch (hd_op_move(op)) {
    case HD_MOVE_SEND:
        return HD_NODE_SEND;
    case HD_MOVE_RECV:
        return HD_NODE_RECV;
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_REDUCE_SCATTER:
    case HD_MOVE_ALL_REDUCE:
    case HD_MOVE_BROADCAST:
    case HD_MOVE_REDUCE:
    case HD_MOVE_ALL_TO_ALL:
        return HD_NODE_COLLECTIVE;
    case HD_MOVE_NONE:
        break;
    }
    return HD_NODE_PLAIN;
}

static uint64_t key_of(const hd_module *module, int peer, int axis, int64_t seq)
{
    return ((uint64_t)peer * (uint64_t)module->naxes + (uint64_t)axis) << 32 |
           (uint64_t)seq;
}

static hd_status add_sent(builder *b, const hd_step *step)
{
    sent s = {
        .key = key_of(b->graph->module, step->peer, step->op->axis, step->seq),
        .step = (int32_t)step->index};

    HD_TRY(hd_grow((void **)&b->sent, &b->sent_room, b->nsent + 1, sizeof s,
                   b->diag));
    b->sent[b->nsent++] = s;
    return HD_OK;
}

static hd_status add_parts(builder *b, const hd_step *step)
{
    hd_graph *g = b->graph;
    const hd_view *view = step->op->view;
    int n = step->op->nviews;

    if (g->nparts + b->nrecords + n > HD_MAX_GRAPH_PARTS)
        return hd_error(b->diag, HD_E0105, step->op->loc,
                        "step %lld of rank %d: steps of all ranks up to here "
                        "have more than %lld results and operands",
                        (long long)step->index, b->rank,
                        (long long)HD_MAX_GRAPH_PARTS);
    HD_TRY(hd_grow((void **)&g->part, &b->parts_room, g->nparts + n,
                   sizeof *g->part, b->diag));
    for (int i = 0; i < n; i++) {
        hd_part_frame *frame = &g->frame[view[i].buffer->id];
        hd_part part;

        if (frame->buffer->type.dtype == HD_DTYPE_EVENT ||
            !hd_step_touches(step, i))
            continue;
        HD_TRY(
            hd_part_of_view(frame, &view[i], &step->span[i], b->diag, &part));
        part.access = hd_step_access(step, i) & 3;
        part.view = (uint32_t)i & 31;
        g->part[g->nparts++] = part;
    }
    return HD_OK;
}

static hd_status add_records(builder *b, const hd_step *step, hd_node *wait)
{
    hd_graph *g = b->graph;

    wait->records = (int32_t)b->nrecords;
    HD_TRY(hd_grow((void **)&g->record, &b->records_room,
                   b->nrecords + step->op->nviews, sizeof *g->record, b->diag));
    for (int i = 0; i < step->op->nviews; i++)
        g->record[b->nrecords++] = step->record[i];
    return HD_OK;
}

static hd_status add_attended(builder *b, const hd_step *step, hd_node *node)
{
    hd_graph *g = b->graph;

    HD_TRY(hd_grow((void **)&g->attended, &b->attended_room, g->nattended + 1,
                   sizeof *g->attended, b->diag));
    node->attended = (int32_t)g->nattended;
    g->attended[g->nattended++] =
        (hd_graph_attended){*step->attended, step->causal};
    return HD_OK;
}

static hd_status add_step(builder *b, const hd_step *step, int64_t head)
{
    hd_graph *g = b->graph;
    hd_node *node;

    HD_TRY(hd_grow((void **)&g->node, &b->nodes_room, b->nnodes + 2,
                   sizeof *node, b->diag));
    node = &g->node[b->nnodes++];
    if (step->launch != b->launch)
        b->launched = (int32_t)step->index;
    b->launch = step->launch;
    *node = (hd_node){.op = step->op,
                      .peer = step->peer,
                      .fork = b->fork,
                      .head = (int32_t)head,
                      .part = (int32_t)g->nparts,
                      .launch = step->launch > 0 ? b->launched : -1,
                      .stream = (uint8_t)(step->stream + 1),
                      .kind = (uint8_t)kind_of(step->op),
                      .stores = step->stores};
    if (hd_op_has_sequences(step->op))
        HD_TRY(add_attended(b, step, node));
    else if (hd_op_is(step->op, HD_UNIT_COMPUTE))
        node->causal = step->causal;
    else
        node->seq = step->seq;
    if (node->kind == HD_NODE_WAIT)
        HD_TRY(add_records(b, step, node));
    if (node->kind == HD_NODE_FORK)
        b->fork = (int32_t)step->index;
    if (node->kind == HD_NODE_SEND) {
        node->async = hd_op_key(step->op, HD_KEY_DONE) != NULL;
        HD_TRY(add_sent(b, step));
    }
    return add_parts(b, step);
}

// The event of a send that is not issued is recorded ahead of its group.
static bool records_twice(const hd_step *steps, int n)
{
    for (int i = 1; i < n; i++) {
        int a = hd_op_key_view(steps[i].op, HD_KEY_DONE);

        for (int k = 0; k < i && a >= 0; k++) {
            int b = hd_op_key_view(steps[k].op, HD_KEY_DONE);

            if (b >= 0 &&
                hd_span_overlaps(&steps[i].span[a], &steps[k].span[b]))
                return true;
        }
    }
    return false;
}

static hd_status take_steps(void *context, const hd_step *steps, int n)
{
    builder *b = context;

    for (int i = 0; i < n; i++)
        HD_TRY(add_step(b, &steps[i],
                        steps[i].group != 0 ? steps[0].index : steps[i].index));
    return HD_OK;
}

// Of ranks that issue steps of their own for one collective these start
// together, as in a group.
static void join_opened(const builder *b, hd_node *node)
{
    const hd_graph *g = b->graph;

    if (node > &g->node[g->first[b->rank]] &&
        node->kind == HD_NODE_COLLECTIVE &&
        node[-1].kind == HD_NODE_COLLECTIVE &&
        node->op->axis == node[-1].op->axis && node->seq == node[-1].seq)
        node->head = node[-1].head;
}

static hd_status add_side(builder *b, const hd_step *step, int32_t index,
                          hd_arc arc)
{
    hd_move move = hd_op_move(step->op);
    sides *all = move == HD_MOVE_SEND ? &b->sends : &b->recvs;

    if (move != HD_MOVE_SEND && move != HD_MOVE_RECV)
        return HD_OK;
    HD_TRY(hd_grow((void **)&all->of, &all->room, all->n + 1, sizeof *all->of,
                   b->diag));
    all->of[all->n++] = (side){
        .rank = b->rank,
        .step = index,
        .key = key_of(b->graph->module, step->peer, step->op->axis, step->seq),
        .arc = arc};
    return HD_OK;
}

// Forks and joins are for all streams of all ranks.
static hd_status add_arcs(builder *b, const hd_step *steps, const hd_arc *arc,
                          int n)
{
    hd_graph *g = b->graph;

    if (b->nnodes > HD_MAX_GRAPH_STEPS)
        return HD_ERROR_INVALID; // nor are they counted before
    HD_TRY(hd_grow((void **)&g->arc, &b->arcs_room, b->nnodes, sizeof *g->arc,
                   b->diag));
    for (int i = 0; i < n; i++) {
        hd_node *node = &g->node[b->nnodes - n + i];

        if ((node->kind == HD_NODE_FORK || node->kind == HD_NODE_JOIN) &&
            arc[i].n < g->line)
            return HD_ERROR_INVALID;
        g->arc[node - g->node] = arc[i];
        if (arc[i].n < g->line)
            join_opened(b, node);
        HD_TRY(add_side(b, &steps[i], (int32_t)steps[i].index, arc[i]));
    }
    return HD_OK;
}

static hd_status take_full_steps(void *context, const hd_step *steps,
                                 const hd_arc *arc, int n)
{
    builder *b = context;

    if ((b->full->empty || arc != NULL) && records_twice(steps, n))
        return HD_ERROR_INVALID;
    HD_TRY(take_steps(context, steps, n));
    return arc != NULL ? add_arcs(b, steps, arc, n) : HD_OK;
}

static hd_status take_empty(void *context, const hd_step *steps,
                            const hd_arc *arc, int n)
{
    builder *b = context;

    for (int i = 0; i < n; i++)
        HD_TRY(add_side(b, &steps[i], -1, arc[i]));
    return HD_OK;
}

static int compare_sent(const void *x, const void *y)
{
    const sent *a = x, *b = y;

    return (a->key > b->key) - (a->key < b->key);
}

static hd_status walk_rank(builder *b)
{
    hd_graph *g = b->graph;
    sent *from;
    int64_t n;
    bool sorted = true;

    b->fork = -1;
    b->launch = 0;
    if (b->full != NULL)
        HD_TRY(hd_walk_full(g->module, g->number[b->rank], b->full, b->diag,
                            take_full_steps, take_empty, b));
    else
        HD_TRY(hd_walk(g->module, g->number[b->rank], b->diag, take_steps, b));
    g->first[b->rank + 1] = b->nnodes;
    b->first_sent[b->rank + 1] = b->nsent;
    n = b->nsent - b->first_sent[b->rank];
    from = b->sent + b->first_sent[b->rank];
    for (int64_t i = 1; i < n && sorted; i++)
        sorted = from[i - 1].key < from[i].key;
    if (!sorted)
        qsort(from, (size_t)n, sizeof *from, compare_sent);
    return HD_OK;
}

// ---------------------------------------------------------------- streams

// Sorts the steps of a rank by stream, in issue order within each.
static void order_rank(hd_graph *g, int rank, int64_t *count)
{
    hd_node *node = &g->node[g->first[rank]];
    int32_t *order = &g->order[g->first[rank]];
    int32_t *begin = &g->begin[(int64_t)rank * (g->nstreams + 1)];
    int64_t n = hd_graph_steps(g, rank);

    memset(count, 0, sizeof *count * (size_t)g->nstreams);
    for (int64_t i = 0; i < n; i++)
        node[i].place = (int32_t)count[node[i].stream]++;
    begin[0] = 0;
    for (int s = 0; s < g->nstreams; s++)
        begin[s + 1] = begin[s] + (int32_t)count[s];
    for (int64_t i = 0; i < n; i++)
        order[begin[node[i].stream] + node[i].place] = (int32_t)i;
}

static hd_status order_streams(builder *b)
{
    hd_graph *g = b->graph;
    int64_t *count;

    HD_TRY(hd_clear_array(b->nnodes, sizeof *g->order, b->diag,
                          (void **)&g->order));
    HD_TRY(hd_clear_array((int64_t)g->nranks * (g->nstreams + 1),
                          sizeof *g->begin, b->diag, (void **)&g->begin));
    HD_TRY(
        hd_clear_array(g->nstreams, sizeof *count, b->diag, (void **)&count));
    for (int rank = 0; rank < g->nranks; rank++)
        order_rank(g, rank, count);
    free(count);
    return HD_OK;
}

// -------------------------------------------------------------- transfers

// A dimension that is as long as others of these terms: which block of it, -1
// for all of it, and a bit for each axis along which that turns.
typedef struct terms {
    hd_dim dim;
    int64_t blocks, block;
    uint8_t axes;
} terms;

// What a side of a transfer moves: of how many elements it is, but for the
// dimensions that some ranks or runs have less of.
typedef struct moved {
    int64_t elements;
    int n;
    terms of[HD_MAX_DIMS];
} moved;

// Which block a rank has that the graph's rank turns into.
static int64_t turned_block(const hd_graph *g, const hd_full_dims *full, int d,
                            int64_t block, int64_t rank, int64_t turned)
{
    for (int axis = 0; axis < g->module->naxes; axis++)
        if ((full->axes[d] >> axis & 1) != 0)
            block += hd_mesh_coord(g->module, turned, axis) -
                     hd_mesh_coord(g->module, rank, axis) + full->n[d];
    return full->axes[d] != 0 ? block % full->n[d] : block;
}

// The coordinate of the only rank that issues a node, where that alone says
// which block of the dimension it has; -1.
static int64_t alone_at(const builder *b, const hd_node *node, hd_dim dim,
                        const hd_full_dims *full, int d)
{
    const hd_graph *g = b->graph;
    hd_arc arc = hd_graph_arc(g, node);

    return g->line > 0 && arc.n == 1 && full->axes[d] == 1 << g->axis &&
                   (!hd_dim_is_sharded(dim) || dim.mark == g->axis)
               ? arc.first
               : -1;
}

static int64_t length_of(int64_t extent, int64_t blocks, int64_t block)
{
    int64_t most = hd_block_size(extent, blocks), left = extent - block * most;

    return left < 0 ? 0 : left < most ? left : most;
}

static void add_dim(const builder *b, const hd_node *node, int d, int64_t rank,
                    int64_t turned, moved *out)
{
    const hd_graph *g = b->graph;
    const hd_part *part = &g->part[node->part];
    const hd_part_frame *frame = &g->frame[part->buffer];
    const hd_full_dims *full = &b->full->of[part->buffer];
    const hd_view *view = &node->op->view[part->view];
    const hd_range *range = hd_view_range(view, d);
    hd_dim dim = frame->buffer->type.dim[d];
    bool own = hd_dim_is_sharded(dim);
    int64_t blocks = range != NULL ? range->blocks
                     : own         ? hd_dim_blocks(dim)
                                   : 1;
    bool uneven = range != NULL && full->block[d] > 0 && blocks > 0 &&
                  dim.extent % blocks != 0;
    int64_t block = -1, n = hd_part_extent(frame, part, d);
    int64_t alone = alone_at(b, node, dim, full, d);

    if (!uneven && !hd_view_has_sized(view, d)) {
        out->elements *= hd_part_length(frame, part, d);
        return;
    }
    if (own)
        block = alone >= 0 ? alone : hd_mesh_coord(g->module, turned, dim.mark);
    else if (range != NULL && n > 0)
        block =
            alone >= 0
                ? (hd_part_index(frame, part, d) / n + alone) % full->n[d]
                : turned_block(g, full, d, hd_part_index(frame, part, d) / n,
                               rank, turned);
    if (alone >= 0 && block >= 0 && !hd_view_has_sized(view, d))
        out->elements *= length_of(dim.extent, blocks, block);
    else
        out->of[out->n++] =
            (terms){hd_dim_unmarked(dim), blocks, block,
                    block >= 0 && alone < 0 ? full->axes[d] : 0};
}

// The rank of the graph turns into rank `turned` of the mesh.
static moved moved_by(const builder *b, const hd_node *node, int64_t rank,
                      int64_t turned)
{
    const hd_part *part = &b->graph->part[node->part];
    moved m = {.elements = 1};

    for (int d = 0; d < b->graph->frame[part->buffer].ndims; d++)
        if ((part->kept >> d & 1) != 0)
            add_dim(b, node, d, rank, turned, &m);
    return m;
}

static bool same_terms(const terms *a, const terms *b)
{
    return a->dim.extent == b->dim.extent && a->dim.size == b->dim.size &&
           a->dim.times == b->dim.times && a->blocks == b->blocks &&
           a->block == b->block && a->axes == b->axes;
}

// Whether as much is sent as is received by all ranks that the receiver turns
// into, in every run.
static bool moves_as_much(const builder *b, const hd_node *send, int from,
                          int64_t sender, const hd_node *recv, int rank)
{
    const int32_t *number = b->graph->number;
    moved x = moved_by(b, send, number[from], sender);
    moved y = moved_by(b, recv, number[rank], number[rank]);

    for (int i = 0; i < x.n && i < y.n; i++)
        if (!same_terms(&x.of[i], &y.of[i]))
            return false;
    return x.n == y.n && x.elements == y.elements;
}

// Both sides are turned to where the sender is a rank of the graph.
static void pair_recv(const builder *b, int rank, hd_node *recv, int32_t step)
{
    hd_graph *g = b->graph;
    int64_t to =
        hd_symmetry_turn(g->module, &b->symmetry, g->number[rank], recv->peer);
    int from = b->place[recv->peer];
    sent want = {.key = key_of(g->module, (int)to, recv->op->axis, recv->seq)};
    int64_t n = b->first_sent[from + 1] - b->first_sent[from];
    const sent *found = n > 0 ? bsearch(&want, b->sent + b->first_sent[from],
                                        (size_t)n, sizeof want, compare_sent)
                              : NULL;

    if (found != NULL && b->full != NULL &&
        !moves_as_much(b, &g->node[g->first[from] + found->step], from,
                       recv->peer, recv, rank))
        found = NULL;
    recv->partner = found != NULL ? found->step : -1;
    if (found != NULL)
        g->node[g->first[from] + found->step].partner = step;
}

static void pair_recvs(const builder *b)
{
    hd_graph *g = b->graph;

    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t i = g->first[rank]; i < g->first[rank + 1]; i++)
            if (g->node[i].kind == HD_NODE_RECV)
                pair_recv(b, rank, &g->node[i], (int32_t)(i - g->first[rank]));
}

static int compare_sides(const void *x, const void *y)
{
    const side *a = x, *b = y;

    return a->rank != b->rank ? (a->rank > b->rank) - (a->rank < b->rank)
                              : (a->key > b->key) - (a->key < b->key);
}

static bool is_with(const side *a, int rank, uint64_t key)
{
    return a->rank == rank && a->key >> 32 == key >> 32;
}

// The first send with this peer and axis, and past which there are no more.
static side *find_sends(const sides *s, int rank, uint64_t key)
{
    side want = {.rank = rank, .key = key};
    int64_t low = 0, past = s->n;

    while (low < past) {
        int64_t at = low + (past - low) / 2;

        if (compare_sides(&s->of[at], &want) < 0)
            low = at + 1;
        else
            past = at;
    }
    return &s->of[low];
}

// The first send of those that the recv's ranks receive from that has met none:
// if it is just theirs, then it is for each of them the one of its number.
static hd_status meet_recv(const builder *b, const side *recv)
{
    hd_graph *g = b->graph;
    const hd_module *m = g->module;
    int64_t naxes = m->naxes;
    int64_t peer = (int64_t)(recv->key >> 32) / naxes;
    int axis = (int)((int64_t)(recv->key >> 32) % naxes), from = b->place[peer];
    int64_t to = hd_symmetry_turn(m, &b->symmetry, g->number[recv->rank], peer);
    uint64_t key = key_of(m, (int)to, axis, 0);
    const side *end = b->sends.of + b->sends.n;
    side *first = find_sends(&b->sends, from, key), *s = first;
    hd_arc senders =
        hd_arc_turn(recv->arc, g->line, -hd_mesh_coord(m, to, g->axis));
    hd_node *sends, *receives;

    if (first < end)
        for (s += first->skip; s < end && is_with(s, from, key) && s->met; s++)
            first->skip++;
    while (s < end && is_with(s, from, key) &&
           (s->met || !hd_arc_meets(s->arc, senders, g->line)))
        s++;
    if (s == end || !is_with(s, from, key) ||
        !hd_arc_equal(s->arc, senders, g->line) ||
        (s->step < 0) != (recv->step < 0))
        return HD_ERROR_INVALID;
    s->met = true;
    if (s->step < 0)
        return HD_OK;
    sends = &g->node[g->first[from] + s->step];
    receives = &g->node[g->first[recv->rank] + recv->step];
    sends->partner = recv->step;
    receives->partner = s->step;
    return moves_as_much(b, sends, from, peer, receives, recv->rank)
               ? HD_OK
               : HD_ERROR_INVALID;
}

static hd_status pair_sides(const builder *b)
{
    const sides *all[] = {&b->sends, &b->recvs};

    for (int i = 0; i < 2; i++)
        if (all[i]->n > 0)
            qsort(all[i]->of, (size_t)all[i]->n, sizeof *all[i]->of,
                  compare_sides);
    for (int64_t i = 0; i < b->recvs.n; i++)
        HD_TRY(meet_recv(b, &b->recvs.of[i]));
    for (int64_t i = 0; i < b->sends.n; i++)
        if (!b->sends.of[i].met)
            return HD_ERROR_INVALID;
    return HD_OK;
}

static hd_status pair_transfers(const builder *b)
{
    hd_graph *g = b->graph;

    for (int64_t i = 0; i < b->nnodes; i++)
        if (g->node[i].kind == HD_NODE_SEND)
            g->node[i].partner = -1; // until its recv is there
    if (g->line > 0)
        HD_TRY(pair_sides(b));
    else
        pair_recvs(b);
    for (int64_t i = 0; i < b->nnodes; i++)
        if (g->node[i].peer >= 0)
            g->node[i].peer = b->place[g->node[i].peer];
    return HD_OK;
}

// Collectives of one line of the mesh are rendezvous base[axis, first rank] +
// seq.
static int64_t *line_of(const builder *b, int64_t *base, int rank, int axis)
{
    const hd_graph *g = b->graph;

    return &base[(int64_t)axis * g->nranks +
                 b->place[hd_mesh_peer(g->module, g->number[rank], axis, 0)]];
}

// Counts rendezvous by line, then turns counts into the first number of each.
static void number_lines(const builder *b, int64_t *base)
{
    hd_graph *g = b->graph;
    int rank = 0;

    for (int64_t i = 0; i < b->nnodes; i++) {
        int64_t *line;

        while (i >= g->first[rank + 1])
            rank++;
        if (g->node[i].kind != HD_NODE_COLLECTIVE)
            continue;
        line = line_of(b, base, rank, g->node[i].op->axis);
        if (*line <= g->node[i].seq)
            *line = g->node[i].seq + 1;
    }
    for (int64_t i = 0; i < (int64_t)g->module->naxes * g->nranks; i++) {
        int64_t n = base[i];

        base[i] = g->nrendezvous;
        g->nrendezvous += n;
    }
}

// Counts the steps of each rendezvous.
static void mark_issued(const builder *b, int64_t *base, int64_t *issued)
{
    const hd_graph *g = b->graph;

    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t i = g->first[rank]; i < g->first[rank + 1]; i++)
            if (g->node[i].kind == HD_NODE_COLLECTIVE)
                issued[*line_of(b, base, rank, g->node[i].op->axis) +
                       g->node[i].seq]++;
}

// As many as a line has ranks, those that lack it too; of ranks that turn one,
// or its steps where they have several.
static int64_t count_members(const builder *b, int64_t axis, int64_t issued)
{
    if (b->full != NULL && b->full->split == axis)
        return issued;
    return b->symmetry.turns[axis] ? 1 : b->graph->module->axis[axis].size;
}

// Rendezvous follow each other in the order of lines, so the sizes of their
// axes give the places of their members. Those that no rank issues have none.
static hd_status place_members(const builder *b, int64_t *base)
{
    hd_graph *g = b->graph;
    int64_t last = (int64_t)g->module->naxes * g->nranks, n = 0;

    HD_TRY(hd_clear_array(g->nrendezvous + 1, sizeof *g->rendezvous, b->diag,
                          (void **)&g->rendezvous));
    mark_issued(b, base, g->rendezvous);
    for (int64_t line = 0; line < last; line++) {
        int64_t end = line + 1 < last ? base[line + 1] : g->nrendezvous;
        int64_t axis = line / g->nranks;

        for (int64_t i = base[line]; i < end; i++) {
            int64_t issued = g->rendezvous[i];

            g->rendezvous[i] = n;
            n += issued > 0 ? count_members(b, axis, issued) : 0;
        }
    }
    g->rendezvous[g->nrendezvous] = n;
    HD_TRY(hd_clear_array(n, sizeof *g->member, b->diag, (void **)&g->member));
    for (int64_t i = 0; i < n; i++)
        g->member[i].step = -1;
    return HD_OK;
}

static void fill_members(const builder *b, int64_t *base)
{
    hd_graph *g = b->graph;

    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t i = g->first[rank]; i < g->first[rank + 1]; i++) {
            hd_node *node = &g->node[i];
            int axis = node->kind == HD_NODE_COLLECTIVE ? node->op->axis : -1;
            hd_member *member;

            if (axis < 0)
                continue;
            node->rendezvous =
                (int32_t)*line_of(b, base, rank, axis) + node->seq;
            member =
                &g->member[g->rendezvous[node->rendezvous] +
                           hd_mesh_coord(g->module, g->number[rank], axis)];
            while (member->step >= 0) // another one of ranks that turn
                member++;
            *member = (hd_member){rank, (int32_t)(i - g->first[rank])};
        }
}

static hd_status gather_collectives(builder *b)
{
    hd_graph *g = b->graph;
    int64_t *base;
    hd_status status;

    HD_TRY(hd_clear_array((int64_t)g->module->naxes * g->nranks, sizeof *base,
                          b->diag, (void **)&base));
    number_lines(b, base);
    status = place_members(b, base);
    if (status == HD_OK)
        fill_members(b, base);
    free(base);
    return status;
}

// ------------------------------------------------------------------- size

// `whose` is "each" or a number of ranks.
static hd_status refuse(const builder *b, const char *whose,
                        const hd_tally *tally, int64_t all)
{
    char idle[80] = "";

    if (tally->idle > 0)
        snprintf(idle, sizeof idle, " and %lld loop iterations without a step",
                 (long long)tally->idle);
    return hd_error(b->diag, HD_E0105, (hd_loc){0},
                    "%s of %d ranks: %lld steps%s, %lld in all; the limit is "
                    "%lld",
                    whose, b->graph->nranks, (long long)tally->steps, idle,
                    (long long)all, (long long)HD_MAX_GRAPH_STEPS);
}

// Refuses what is too large before anything is kept of it. Where control flow
// is the same on all ranks, the first one tells. What is wrong with a rank the
// walk says later, in its place.
static hd_status check_size(const builder *b)
{
    int64_t nranks = b->graph->nranks;
    hd_symmetry symmetry;
    hd_tally all = {0}, one;

    HD_TRY(hd_symmetry_find(b->graph->module, b->diag, &symmetry));
    for (int rank = 0; rank < nranks; rank++) {
        char whose[40];
        bool muted = hd_diag_mute(b->diag, true);
        hd_status status = hd_walk_count(b->graph->module,
                                         b->graph->number[rank], b->diag, &one);

        hd_diag_mute(b->diag, muted);
        if (status == HD_ERROR_NO_MEMORY)
            return status;
        if (status != HD_OK)
            return HD_OK;
        all.steps += one.steps;
        all.idle += one.idle;
        if (symmetry.steps &&
            all.steps + all.idle <= HD_MAX_GRAPH_STEPS / nranks)
            return HD_OK;
        if (symmetry.steps)
            return refuse(b, "each", &all, (all.steps + all.idle) * nranks);
        snprintf(whose, sizeof whose, "%d", rank + 1);
        if (all.steps + all.idle > HD_MAX_GRAPH_STEPS)
            return refuse(b, whose, &all, all.steps + all.idle);
    }
    return HD_OK;
}

// ------------------------------------------------------------------ whole

static hd_status number_ranks(builder *b)
{
    hd_graph *g = b->graph;
    int64_t n = g->module->nranks;

    HD_TRY(hd_clear_array(n, sizeof *g->number, b->diag, (void **)&g->number));
    HD_TRY(hd_clear_array(n, sizeof *b->place, b->diag, (void **)&b->place));
    for (int rank = 0; rank < n; rank++) {
        int64_t first = hd_symmetry_first(g->module, &b->symmetry, rank);

        if (first == rank) {
            b->place[rank] = g->nranks;
            g->number[g->nranks++] = rank;
        } else {
            b->place[rank] = b->place[first]; // which comes before it
        }
    }
    return HD_OK;
}

static hd_status build(builder *b)
{
    hd_graph *g = b->graph;

    HD_TRY(number_ranks(b));
    if (b->full != NULL && b->full->split >= 0) {
        g->axis = b->full->split;
        g->line = g->module->axis[g->axis].size;
    }
    if (g->line == 0 || g->nranks > 1)
        HD_TRY(check_size(b));
    HD_TRY(hd_frames_create(g->module, b->full, b->diag, &g->frame));
    HD_TRY(hd_clear_array(g->nranks, sizeof *g->first, b->diag,
                          (void **)&g->first));
    HD_TRY(hd_clear_array(g->nranks, sizeof *b->first_sent, b->diag,
                          (void **)&b->first_sent));
    HD_TRY(
        hd_grow((void **)&b->sent, &b->sent_room, 1, sizeof *b->sent, b->diag));
    HD_TRY(hd_grow((void **)&g->node, &b->nodes_room, 2, sizeof *g->node,
                   b->diag));
    for (b->rank = 0; b->rank < g->nranks; b->rank++)
        HD_TRY(walk_rank(b));
    g->node[b->nnodes] = (hd_node){.part = (int32_t)g->nparts};
    HD_TRY(order_streams(b));
    HD_TRY(pair_transfers(b));
    return gather_collectives(b);
}

static hd_status create(const hd_module *module, const hd_symmetry *symmetry,
                        const hd_full *full, hd_diag *diag, hd_graph *out)
{
    hd_graph graph = {.module = module,
                      .folded = full != NULL,
                      .nstreams = (int)module->streams + 1};
    builder b = {
        .graph = &graph, .symmetry = *symmetry, .full = full, .diag = diag};
    hd_status status = build(&b);

    free(b.sent);
    free(b.first_sent);
    free(b.sends.of);
    free(b.recvs.of);
    free(b.place);
    if (status != HD_OK)
        hd_graph_free(&graph);
    else
        *out = graph;
    return status;
}

hd_status hd_graph_create(const hd_module *module, hd_diag *diag, hd_graph *out)
{
    hd_symmetry none = {.steps = false};

    return create(module, &none, NULL, diag, out);
}

hd_status hd_graph_fold(const hd_module *module, const hd_symmetry *symmetry,
                        const hd_full *full, hd_diag *diag, hd_graph *out)
{
    return create(module, symmetry, full, diag, out);
}

void hd_graph_free(hd_graph *graph)
{
    free(graph->number);
    hd_frames_free(graph->frame);
    free(graph->node);
    free(graph->first);
    free(graph->order);
    free(graph->begin);
    free(graph->part);
    free(graph->attended);
    free(graph->record);
    free(graph->rendezvous);
    free(graph->member);
    free(graph->arc);
    *graph = (hd_graph){0};
}

// ---------------------------------------------------------------- queries

int32_t hd_graph_causal(const hd_graph *graph, const hd_node *node)
{
    return hd_op_has_sequences(node->op)
               ? graph->attended[node->attended].causal
               : node->causal;
}

const hd_attended *hd_graph_attends(const hd_graph *graph, const hd_node *node)
{
    return hd_op_has_sequences(node->op)
               ? &graph->attended[node->attended].attended
               : NULL;
}

int hd_graph_rank(const hd_graph *graph, int64_t node)
{
    int low = 0, high = graph->nranks;

    while (high - low > 1) {
        int middle = low + (high - low) / 2;

        if (graph->first[middle] <= node)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t hd_graph_at(const hd_graph *graph, int rank, int stream, int64_t place)
{
    int64_t length = hd_graph_length(graph, rank, stream);
    const int32_t *order =
        &graph->order[graph->first[rank] +
                      graph->begin[(int64_t)rank * (graph->nstreams + 1) +
                                   stream]];

    return place < length ? order[place]
                          : order[place - length] + hd_graph_steps(graph, rank);
}

int64_t hd_graph_together(const hd_graph *graph, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(graph, rank, step);
    const hd_node *end = &graph->node[graph->first[rank + 1]];
    int64_t n = 1;

    while (node + n < end && node[n].head == node->head)
        n++;
    return n;
}

int64_t hd_graph_launched(const hd_graph *graph, int rank, int64_t step)
{
    int32_t launch = hd_graph_node(graph, rank, step)->launch;
    int64_t n = hd_graph_steps(graph, rank);

    assert(launch >= 0 && step < n);
    while (step + 1 < n &&
           hd_graph_node(graph, rank, step + 1)->launch == launch)
        step++;
    return step;
}

// Whether a rank's own piece is where the result has it.
static bool is_in_place(const hd_graph *graph, const hd_node *node)
{
    const hd_part *part = &graph->part[node->part];

    for (int i = 0; i < node[1].part - node->part; i++)
        for (int k = 0; k < i; k++)
            if (hd_parts_overlap(graph->frame, &part[i], &part[k]))
                return true;
    return false;
}

bool hd_graph_is_busy(const hd_graph *graph, int rank, int64_t step,
                      unsigned busy)
{
    const hd_node *node = hd_graph_node(graph, rank, step);

    if (!hd_op_is(node->op, HD_UNIT_TRANSFER))
        return hd_op_is(node->op, HD_UNIT_COMPUTE);
    if ((busy >> node->op->axis & 1) != 0 || hd_op_counted(node->op) >= 0 ||
        hd_op_fold(node->op) != HD_FOLD_NONE)
        return true;
    return node->kind == HD_NODE_COLLECTIVE && node[1].part - node->part > 1 &&
           !is_in_place(graph, node);
}

int64_t hd_graph_before(const hd_graph *graph, int rank, int stream,
                        int64_t step)
{
    int64_t n = hd_graph_length(graph, rank, stream), low = 0;
    int64_t high = step < hd_graph_steps(graph, rank) ? n : 2 * n;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (hd_graph_at(graph, rank, stream, middle) < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? hd_graph_at(graph, rank, stream, low - 1) : -1;
}
