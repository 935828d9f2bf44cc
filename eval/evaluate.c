// See evaluate.h.
#include "eval/evaluate.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "ir/causal.h"
#include "ir/counts.h"
#include "ir/signature.h"

// ---------------------------------------------------------- tensor programs

// Index by index, where ranks say what rows see.
static hd_status attend(const hd_evaluator *e, const hd_work_item *item)
{
    const hd_op *op = item->step.op;
    hd_work_item part = *item;
    hd_placed placed;
    hd_attended attended;

    part.step.span = part.span;
    attended.causal = placed.causal;
    part.step.attended = &attended;
    for (int64_t rank = 0; rank < e->layout->module->nranks; rank++) {
        if (!hd_causal_place(e->layout->module, op, rank, &placed))
            continue;
        part.step.causal = placed.causal[0];
        attended.among = placed.among;
        for (int i = 0; i < op->nviews; i++) {
            part.span[i] = item->span[i];
            for (int d = 0; d < part.span[i].ndims; d++)
                if (placed.index[i][d] >= 0) {
                    part.span[i].offset +=
                        placed.index[i][d] * part.span[i].stride[d];
                    part.span[i].extent[d] = 1;
                }
        }
        HD_TRY(hd_compute(e, &part));
    }
    return HD_OK;
}

// The first dimension at one index.
static void pick_first(hd_work_item *item, int view, int64_t i)
{
    hd_span *span = &item->span[view];

    *span = hd_span_slice(span, 0, span->extent[0] > 1 ? i : 0);
    memmove(item->grain[view], item->grain[view] + 1,
            sizeof *item->grain[view] * (size_t)span->ndims);
}

// `n` indices of a dimension from `first` on, whole pieces.
static void keep_range(hd_work_item *item, int view, int d, int64_t first,
                       int64_t n)
{
    hd_span *span = &item->span[view];
    hd_grain grain = item->grain[view][d];

    span->offset += hd_grain_kept(grain, first) * span->stride[d];
    span->extent[d] = hd_grain_kept(grain, n);
}

// Each part is the product of a block of what is joined.
static hd_status multiply_parts(const hd_evaluator *e, const hd_work_item *item)
{
    const hd_op *op = item->step.op;
    int bias = hd_op_key_view(op, HD_KEY_BIAS);
    int64_t n = item->span[0].extent[0];

    for (int64_t i = 0; i < n; i++) {
        hd_work_item part = *item;

        part.step.span = part.span;
        pick_first(&part, 0, i);
        if (bias >= 0 && part.span[bias].ndims == item->span[0].ndims)
            pick_first(&part, bias, i);
        for (int v = 1; v < 3; v++) {
            int d = hd_bound_joined(op->bound, v);
            int64_t all = hd_item_extent(item, v, d);
            int64_t block = hd_block_size(all, n);
            int64_t first = i * block < all ? i * block : all;

            keep_range(&part, v, d, first,
                       block < all - first ? block : all - first);
        }
        HD_TRY(hd_compute(e, &part));
    }
    return HD_OK;
}

static hd_status compute(const hd_evaluator *e, const hd_work_item *item)
{
    const hd_op *op = item->step.op;

    if (hd_op_family(op) == HD_FAMILY_ATTEND)
        return attend(e, item);
    return op->bound != NULL && op->bound->parts ? multiply_parts(e, item)
                                                 : hd_compute(e, item);
}

hd_status hd_evaluate_tensor(const hd_evaluator *e)
{
    for (const hd_stmt *s = e->layout->module->body.first; s != NULL;
         s = s->next) {
        hd_work_item item;

        hd_layout_op(e->layout, s->op, &item);
        HD_TRY(compute(e, &item));
    }
    return HD_OK;
}

// ---------------------------------------------------------------- transfers

static const hd_op *op_of(const hd_evaluator *e, hd_member who)
{
    return hd_graph_node(e->layout->graph, who.rank, who.step)->op;
}

static hd_span piece_of(const hd_evaluator *e, hd_member who, bool result,
                        int64_t i)
{
    return hd_layout_piece(e->layout, who.rank, who.step, result, i);
}

static void begin(const hd_evaluator *e, hd_member who)
{
    e->algebra->begin(e->memory, e->layout->graph->first[who.rank] + who.step);
}

static void copy(const hd_evaluator *e, const hd_span *to, const hd_span *from)
{
    int64_t n = hd_span_elements(to);

    for (int64_t i = 0; i < n; i++)
        e->algebra->copy(e->memory, hd_span_place(to, i),
                         hd_span_place(from, i));
}

// Of each slab the rows that are counted.
static void copy_counted(const hd_evaluator *e, const hd_span *to,
                         const hd_span *from, const hd_rows *rows)
{
    int64_t each = rows->room * rows->row;

    for (int64_t slab = 0; slab < rows->n; slab++) {
        int64_t n =
            e->algebra->count(e->memory, hd_rows_count(rows, slab), rows->room);

        for (int64_t i = 0; i < each; i++) {
            int64_t at = hd_span_place(to, slab * each + i);
            int64_t source = hd_span_place(from, slab * each + i);

            if (i / rows->row < n)
                e->algebra->copy(e->memory, at, source);
            else
                e->algebra->forget(e->memory, at, source);
        }
    }
}

// What `from` has for rank `i` of a line goes to place `j` of `to`.
static void carry(const hd_evaluator *e, hd_member to, int64_t j,
                  hd_member from, int64_t i)
{
    const hd_op *op = op_of(e, from);
    hd_span there = piece_of(e, to, true, j);
    hd_span here = piece_of(e, from, false, i);
    hd_work_item item;
    hd_rows rows;

    if (hd_op_counted(op) < 0) {
        copy(e, &there, &here);
        return;
    }
    hd_layout_step(e->layout, from.rank, from.step, &item);
    rows = hd_rows_of(&item.step, hd_op_is_led(op, op->noutputs) ? i : -1);
    copy_counted(e, &there, &here, &rows);
}

static void exchange(const hd_evaluator *e, const hd_member *member, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        begin(e, member[i]);
        for (int64_t j = 0; j < n; j++)
            carry(e, member[i], j, member[j], i);
    }
}

static void broadcast(const hd_evaluator *e, const hd_member *member, int64_t n,
                      int root)
{
    hd_span from = {.ndims = -1};

    for (int64_t i = 0; i < n; i++)
        if (member[i].rank == root)
            from = piece_of(e, member[i], false, 0);
    for (int64_t i = 0; i < n; i++) {
        hd_span to = piece_of(e, member[i], true, 0);

        begin(e, member[i]);
        if (to.ndims >= 0)
            copy(e, &to, &from);
    }
}

static void join(const hd_evaluator *e, const hd_op *op, const hd_span *to,
                 const hd_span *from, int64_t n, int64_t *at)
{
    hd_fold fold = hd_op_fold(op);
    int64_t elements = hd_span_elements(to);

    for (int64_t i = 0; i < elements; i++) {
        for (int64_t k = 0; k < n; k++)
            at[k] = hd_span_place(&from[k], i);
        e->algebra->join(e->memory, fold, to->buffer->type.dtype,
                         hd_span_place(to, i), at, n, (hd_grain){1, 0});
    }
}

// Where every rank has the same sum, it is made once and copied: it may be in
// place on all of them.
static hd_status reduce(const hd_evaluator *e, const hd_member *member,
                        int64_t n, bool scatter)
{
    hd_span first = {.ndims = -1}, *from;
    int64_t *at;

    HD_TRY(
        hd_clear_array(n, sizeof *from + sizeof *at, e->diag, (void **)&from));
    at = (int64_t *)(from + n); // behind the spans
    for (int64_t i = 0; i < n; i++) {
        hd_span to = piece_of(e, member[i], true, i);

        if (to.ndims < 0) // another rank than the root of a reduce
            continue;
        begin(e, member[i]);
        if (!scatter && first.ndims >= 0) {
            copy(e, &to, &first);
            continue;
        }
        first = to;
        for (int64_t j = 0; j < n; j++)
            from[j] = piece_of(e, member[j], false, i);
        join(e, op_of(e, member[i]), &to, from, n, at);
    }
    free(from);
    return HD_OK;
}

static hd_status meet(const hd_evaluator *e, const hd_node *node)
{
    const hd_graph *g = e->layout->graph;
    const hd_member *member = hd_graph_members(g, node->rendezvous);
    int64_t n = hd_graph_meets(g, node->rendezvous);

    switch (hd_op_move(node->op)) {
    case HD_MOVE_REDUCE_SCATTER:
    case HD_MOVE_ALL_REDUCE:
    case HD_MOVE_REDUCE:
        return reduce(e, member, n, hd_op_is_led(node->op, 1));
    case HD_MOVE_BROADCAST:
        broadcast(e, member, n, node->peer);
        return HD_OK;
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_ALL_TO_ALL:
    case HD_MOVE_SEND:
    case HD_MOVE_RECV:
    case HD_MOVE_NONE:
        break;
    }
    exchange(e, member, n);
    return HD_OK;
}

hd_status hd_evaluate_step(const hd_evaluator *e, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(e->layout->graph, rank, step);
    hd_member mine = {rank, (int32_t)step};
    hd_work_item item;

    begin(e, mine);
    if (node->kind == HD_NODE_RECV) {
        carry(e, mine, 0, (hd_member){node->peer, node->partner}, 0);
        return HD_OK;
    }
    if (node->kind == HD_NODE_COLLECTIVE)
        return meet(e, node);
    hd_layout_step(e->layout, rank, step, &item);
    return hd_compute(e, &item);
}
