// Gives the transfers of each loop the pipeline that the options choose. The
// loop that `stream` made works on shard j in iteration j; here its iterations
// become the trips of a pipeline, as lower/pipe.h tells.
#include <assert.h>

#include "ir/transport.h"
#include "lower/pack.h"
#include "lower/pieces.h"
#include "lower/pipe.h"

// Waits for deferred sends, after the loop.
static void wait_for_sends(hd_pipe *p, hd_build *b)
{
    for (int i = 0; i < p->nmoved && p->ranks > 1; i++) {
        hd_expr t;
        hd_build body;

        if (p->moved[i].sent == NULL)
            continue;
        body = hd_build_for(b, "t",
                            hd_pipe_number(p, hd_pipe_end_of_exchanges(p)), &t);
        b->block->last->a = hd_pipe_number(p, hd_pipe_first_exchange(p));
        hd_build_event(&body, HD_OP_WAIT, p->moved[i].sent, t);
    }
}

// NCCL ends a send with its recv, and does nothing else along the axis until
// then: there the two stay in one group, and none is deferred.
static void add_sent_events(hd_pipe *p)
{
    if (!p->options->defer_sends || p->schedule->to == NULL ||
        p->transport[p->axis] == HD_TRANSPORT_NCCL)
        return;
    for (int i = 0; i < p->nmoved; i++)
        p->moved[i].sent = hd_build_events(p->module, "sent", hd_pipe_trips(p),
                                           p->moved[i].op->loc);
}

// A pipeline that moves all at once, and computes all at once, needs no loop.
static void rebuild_loop(hd_pipe *p, hd_build *b)
{
    hd_block *on = &p->loop->body.first->body;
    hd_build body = {p->module, on, p->moved[0].op->loc};
    bool whole = p->schedule->shard == NULL && p->schedule->move == NULL;

    if (p->flow->before != NULL)
        p->flow->before(p, b);
    if (whole) {
        p->flow->trip(p, b, hd_pipe_number(p, 0));
    } else {
        *on = (hd_block){0};
        p->loop->b = hd_pipe_number(p, hd_pipe_trips(p));
        hd_block_append(b->block, p->loop);
        p->flow->trip(p, &body, hd_expr_of_var(p->module, p->loop->var));
    }
    if (p->flow->after != NULL)
        p->flow->after(p, b);
    wait_for_sends(p, b);
}

// ------------------------------------------------------------ finding loops

// What keeps --copy-own from changing anything; NULL if nothing does.
static const char *why_no_copy(const hd_pipe *p, const hd_moved *m)
{
    bool gathers = m->op->code == HD_OP_BROADCAST;

    if (p->schedule->own == NULL && gathers)
        return "this pipeline gathers the local shard with the others";
    if (p->schedule->own == NULL)
        return "this pipeline reduces the local shard with the others";
    if (gathers)
        return hd_pipe_is_alone(p, m->to->buffer)
                   ? NULL
                   : "the local shard is copied without it: the gathered "
                     "buffer is an argument, or used outside the loop";
    if (p->schedule->relays)
        return "a ring joins the local shard where it is computed";
    if (p->flow == &hd_flow_roundtrip)
        return hd_pipe_is_reduced_once(p, m)
                   ? NULL
                   : "the local partial result is copied without it: it is an "
                     "argument, or used or reduced in more places than one";
    return m->maker != NULL
               ? NULL
               : "the local partial result is copied without it: it is an "
                 "argument, or used or made in more places than one";
}

// What was asked for and this pipeline, or this transfer, has no use for.
static void report_effect(const hd_pipe *p, const hd_moved *m,
                          hd_effect *effect)
{
    const hd_trips *s = p->schedule;
    unsigned of_sends = HD_OPTION_PROTOCOL | HD_OPTION_DEFER_SENDS;
    unsigned of_kind = p->options->transfer == HD_TRANSFER_FUSED
                           ? 0 // it has said why
                           : HD_OPTION_TRANSFER;
    hd_loc loc = m->op->loc;

    if (s->move == NULL)
        hd_effect_none(effect, HD_OPTION_CHUNKS, p->diag, loc,
                       "this pipeline moves shards whole, in one collective");
    else if (p->flow == &hd_flow_roundtrip)
        hd_effect_none(effect, HD_OPTION_CHUNKS, p->diag, loc,
                       "shards move whole, of which partial results go back");
    else if (p->beside)
        hd_effect_none(effect, HD_OPTION_CHUNKS, p->diag, loc,
                       "shards move whole, of which each iteration moves all "
                       "along another axis, too");
    else if (p->chunks < p->options->chunks)
        hd_effect_none(effect, HD_OPTION_CHUNKS, p->diag, loc,
                       "blocks move whole: chunks of some would be longer "
                       "than of others");
    if (m->cut && p->options->transfer == HD_TRANSFER_FUSED)
        hd_effect_none(effect, HD_OPTION_TRANSFER, p->diag, loc,
                       "no provider takes blocks, which need not be as long as "
                       "each other: they move as with bulk");
    if (p->cut && p->options->transfer == HD_TRANSFER_PIPELINED)
        hd_effect_none(effect, HD_OPTION_TRANSFER, p->diag, loc,
                       "a block has no chunk of each rank's: it moves as with "
                       "broadcast");
    if (p->ranks == 1 && p->module->nranks > 1)
        hd_effect_none(effect, of_kind | HD_OPTION_WIRE | of_sends, p->diag,
                       loc,
                       hd_arena_printf(p->scratch, "%s has one rank",
                                       p->module->axis[p->axis].name));
    else if (s->to == NULL)
        hd_effect_none(effect, of_sends, p->diag, loc,
                       "this pipeline moves by collectives, and sends nothing");
    else if (p->transport[p->axis] == HD_TRANSPORT_NCCL)
        hd_effect_none(effect, of_sends, p->diag, loc,
                       "over nccl put and get are the same, and a send ends "
                       "with its recv, in one group with it");
    if (why_no_copy(p, m) != NULL)
        hd_effect_none(effect, HD_OPTION_COPY_OWN, p->diag, loc,
                       why_no_copy(p, m));
    if (p->ranks > 1 && hd_pipe_why_no_wire(p, m) != NULL)
        hd_effect_none(effect, HD_OPTION_WIRE, p->diag, loc,
                       hd_pipe_why_no_wire(p, m));
    effect->used |= HD_OPTIONS_OF_TRANSFERS;
}

static void add_moved(hd_pipe *p, hd_op *op, const hd_flow *flow)
{
    const hd_view *piece = &op->view[flow->piece];
    hd_moved *m;
    bool uneven;

    p->axis = op->axis;
    p->ranks = p->module->axis[op->axis].size;
    p->flow = flow;
    if (p->nmoved == 0)
        p->schedule = flow->schedules[p->options->transfer];
    m = &p->moved[p->nmoved++];
    *m = (hd_moved){.op = op,
                    .from = &op->view[1],
                    .to = &op->view[0],
                    .dim = hd_pipe_index(p, piece)};
    assert(m->dim >= 0 && "the loop's variable says which piece is moved");
    m->cut = hd_view_range(piece, m->dim) != NULL;
    uneven = !m->cut && hd_view_is_uneven(piece, m->dim);
    p->cut |= m->cut || uneven;
    // Of blocks nothing has a chunk of each, and slots take a dimension more;
    // all of the loop moves alike.
    if ((uneven && (p->schedule->shard == NULL || p->schedule->move == NULL)) ||
        (m->cut && ((p->schedule->shard == NULL && p->schedule->move != NULL) ||
                    piece->buffer->type.ndims == HD_MAX_DIMS)))
        p->schedule = flow->schedules[HD_TRANSFER_BROADCAST];
}

static bool same_view(const hd_view *a, const hd_view *b)
{
    for (int d = 0; d < a->nindex || d < b->nindex; d++)
        if ((d < a->nindex ? hd_view_index(a, d) : HD_EXPR_ALL) !=
            (d < b->nindex ? hd_view_index(b, d) : HD_EXPR_ALL))
            return false;
    return a->buffer == b->buffer;
}

// Whether the second does what the first does, and adds that to what there is.
static bool adds_as(const hd_op *first, const hd_op *other)
{
    if (first->code != HD_OP_ATTENTION || other->code != HD_OP_ATTENTION ||
        hd_op_access(first, 0) == HD_ACCESS_UPDATE ||
        first->nviews != other->nviews || hd_op_has_ranges(first) ||
        hd_op_has_ranges(other) || other->nkeys != first->nkeys + 1)
        return false;
    for (int i = 0; i < first->nviews; i++)
        if (!same_view(&first->view[i], &other->view[i]))
            return false;
    for (int i = 0, k = 0; k < other->nkeys; k++) {
        if (other->key[k].code == HD_KEY_ACCUMULATE)
            continue;
        if (i == first->nkeys || first->key[i].code != other->key[k].code ||
            first->key[i].expr != other->key[k].expr ||
            first->key[i].number < other->key[k].number ||
            first->key[i].number > other->key[k].number)
            return false;
        i++;
    }
    return true;
}

// The op that adds to what the loop has made, where the first iteration begins
// it: if VAR == 0 { op } else { op .. accumulate }. NULL if it is not that.
static hd_op *find_begun(hd_module *module, const hd_stmt *loop,
                         const hd_stmt *stmt)
{
    const hd_stmt *first = stmt->body.first, *other = stmt->otherwise.first;

    if (stmt->kind != HD_STMT_IF || first == NULL || other == NULL ||
        first->next != NULL || other->next != NULL ||
        first->kind != HD_STMT_OP || other->kind != HD_STMT_OP ||
        stmt->a != hd_expr_binary(module, HD_EXPR_EQ,
                                  hd_expr_of_var(module, loop->var),
                                  hd_expr_const(module, 0)))
        return NULL;
    return adds_as(first->op, other->op) ? other->op : NULL;
}

// for ON { .. }, of operations alone
static bool is_loop(hd_module *module, const hd_stmt *stmt)
{
    const hd_stmt *on = stmt->body.first;

    if (stmt->kind != HD_STMT_FOR || on == NULL || on != stmt->body.last ||
        on->kind != HD_STMT_ON)
        return false;
    for (const hd_stmt *s = on->body.first; s != NULL; s = s->next)
        if (s->kind != HD_STMT_OP && find_begun(module, stmt, s) == NULL)
            return false;
    return true;
}

// The statements of an iteration, of what is begun that which adds.
static void find_ops(hd_pipe *p)
{
    hd_block ops = {0};
    int n = 0;

    for (const hd_stmt *s = p->loop->body.first->body.first; s != NULL;
         s = s->next)
        n++;
    p->begun = hd_new_array(p->scratch, const hd_op *, n + 1);
    p->nbegun = 0;
    for (hd_stmt *s = p->loop->body.first->body.first; s != NULL; s = s->next) {
        hd_stmt *copy = hd_stmt_new(p->module, HD_STMT_OP, s->loc);

        copy->op =
            s->kind == HD_STMT_OP ? s->op : find_begun(p->module, p->loop, s);
        if (s->kind != HD_STMT_OP)
            p->begun[p->nbegun++] = copy->op;
        hd_block_append(&ops, copy);
    }
    p->ops = ops.first;
}

// There are as many iterations as ranks.
static bool is_of_shards(const hd_pipe *p, const hd_op *op)
{
    return op->noutputs == 1 && op->ninputs == 1 &&
           p->loop->a == hd_pipe_number(p, 0) &&
           p->loop->b == hd_pipe_number(p, p->module->axis[op->axis].size) &&
           (p->nmoved == 0 || op->axis == p->axis);
}

// Iteration j is about shard j of rank j.
static bool is_rooted(const hd_pipe *p, const hd_op *op)
{
    return is_of_shards(p, op) && hd_op_key(op, HD_KEY_ROOT)->expr ==
                                      hd_expr_of_var(p->module, p->loop->var);
}

// It gathers shard j, into what it has not touched before.
static bool is_gather(const hd_pipe *p, const hd_stmt *stmt)
{
    const hd_op *op = stmt->op;

    return op->code == HD_OP_BROADCAST && is_rooted(p, op) &&
           hd_pipe_index(p, &op->view[0]) >= 0 &&
           hd_pipe_count_uses(p, stmt, hd_buffer_root(op->view[0].buffer)) == 0;
}

static bool is_written_after(const hd_stmt *stmt, const hd_buffer *root)
{
    for (stmt = stmt->next; stmt != NULL; stmt = stmt->next)
        for (int i = 0; i < stmt->op->nviews; i++)
            if (hd_op_access(stmt->op, i) != HD_ACCESS_READ &&
                hd_buffer_root(stmt->op->view[i].buffer) == root)
                return true;
    return false;
}

// Whether the loop gathers from ranks or reduces to them: what is for all then
// is a collective beside that.
static bool has_roots(const hd_pipe *p)
{
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        if (s->op->code == HD_OP_BROADCAST || s->op->code == HD_OP_REDUCE)
            return true;
    return false;
}

// Whether a view has all that a rank has of a dimension.
static bool has_local(const hd_pipe *p, const hd_view *view, int i, int axis)
{
    const hd_range *range = hd_view_range(view, i);
    hd_dim dim = view->buffer->type.dim[i];

    return hd_dim_local(dim) <= 1 || hd_view_index(view, i) == HD_EXPR_ALL ||
           (range != NULL && hd_dim_is_sharded(dim) && dim.mark != axis &&
            range->blocks == p->module->axis[dim.mark].size &&
            range->block == hd_expr_coord(p->module, dim.mark));
}

// Behind the loop's index a view fixes nothing but what a rank has one index,
// or one block of.
static bool is_led_by_shards(const hd_pipe *p, const hd_view *view, int axis)
{
    int j = hd_pipe_index(p, view);

    for (int i = j + 1; i < view->nindex; i++)
        if (!has_local(p, view, i, axis))
            return false;
    return j >= 0;
}

// It reduces shard j, behind whose index is no other, to one place that nothing
// else in the loop touches, or to its index of that on all ranks, which the
// statements behind it may read. What it reduces stays as it is.
static bool is_reduction(const hd_pipe *p, const hd_stmt *stmt)
{
    const hd_op *op = stmt->op;
    bool all = op->code == HD_OP_ALL_REDUCE;
    const hd_buffer *result;
    const hd_view *out, *in;

    if (!(all && is_of_shards(p, op) && !has_roots(p)) &&
        !(op->code == HD_OP_REDUCE && is_rooted(p, op)))
        return false;
    out = &op->view[0];
    in = &op->view[1];
    result = hd_buffer_root(out->buffer);
    return (all ? hd_view_lead(out) == out->nindex &&
                      is_led_by_shards(p, out, op->axis)
                : hd_pipe_index(p, out) < 0) &&
           is_led_by_shards(p, in, op->axis) &&
           hd_pipe_count_uses(p, all ? stmt->next : NULL, result) == 1 &&
           !is_written_after(stmt, result) &&
           !is_written_after(stmt, hd_buffer_root(in->buffer));
}

static const hd_flow *flow_of(const hd_pipe *p, const hd_stmt *stmt)
{
    if (is_gather(p, stmt))
        return &hd_flow_gather;
    if (!is_reduction(p, stmt))
        return NULL;
    return stmt->op->code == HD_OP_ALL_REDUCE ? &hd_flow_all_reduce
                                              : &hd_flow_scatter;
}

// Whether the loop is at index j in iteration j wherever it is at what this
// view writes, so that no iteration sees what another has left.
static bool is_written_apart(const hd_pipe *p, const hd_view *written)
{
    int j = hd_pipe_index(p, written);

    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews; i++) {
            const hd_view *view = &s->op->view[i];

            if (hd_buffer_root(view->buffer) ==
                    hd_buffer_root(written->buffer) &&
                (view->buffer != written->buffer ||
                 hd_pipe_index(p, view) != j))
                return false;
        }
    return j >= 0;
}

// Whether views are at other indices of a dimension, or other blocks of it.
static bool are_apart(const hd_pipe *p, const hd_view *a, const hd_view *b)
{
    for (int d = 0; d < a->nindex && d < b->nindex; d++) {
        hd_expr x = hd_view_index(a, d), y = hd_view_index(b, d);

        if (x != y && x >= 0 && y >= 0 && hd_expr_is_const(p->module, x) &&
            hd_expr_is_const(p->module, y))
            return true;
    }
    return false;
}

// Whether both add to the same results over all iterations, in any order, or to
// other parts of these.
static bool add_alike(const hd_pipe *p, const hd_op *a, const hd_op *b)
{
    bool same = true, other = true;

    if (a->code != b->code || hd_op_access(b, 0) != HD_ACCESS_UPDATE)
        return false;
    for (int i = 0; i < a->noutputs; i++) {
        const hd_view *x = &a->view[i], *y = &b->view[i];

        if (x->buffer != y->buffer)
            return false;
        if (hd_pipe_index(p, x) >= 0) // of one iteration
            continue;
        same &= same_view(x, y);
        other &= are_apart(p, x, y);
    }
    return same || other;
}

// Whether anything else in the loop touches it, but results of what adds to
// these likewise.
static bool is_touched_beside(const hd_pipe *p, const hd_op *op,
                              const hd_view *view)
{
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next) {
        bool alike = add_alike(p, op, s->op);

        for (int i = alike ? s->op->noutputs : 0; i < s->op->nviews; i++)
            if (s->op != op && hd_buffer_root(s->op->view[i].buffer) ==
                                   hd_buffer_root(view->buffer))
                return true;
    }
    return false;
}

// Whether what the op adds up over all iterations, in any order, is touched by
// nothing in the loop that does not add to it likewise, and other results are
// of an iteration each.
static bool adds_apart(const hd_pipe *p, const hd_op *op)
{
    if (hd_op_family(op) != HD_FAMILY_ATTEND ||
        hd_op_access(op, 0) != HD_ACCESS_UPDATE ||
        hd_pipe_index(p, &op->view[0]) >= 0)
        return false;
    for (int i = 0; i < op->noutputs; i++)
        if (hd_pipe_index(p, &op->view[i]) >= 0
                ? !is_written_apart(p, &op->view[i])
                : is_touched_beside(p, op, &op->view[i]))
            return false;
    return true;
}

static bool writes_apart(const hd_pipe *p, const hd_op *op)
{
    if (adds_apart(p, op))
        return true;
    for (int i = 0; i < op->nviews; i++)
        if (hd_op_access(op, i) != HD_ACCESS_READ &&
            !is_written_apart(p, &op->view[i]))
            return false;
    return true;
}

// Whether iteration j is at index j wherever it is at one that changes.
static bool is_in_step(const hd_pipe *p, const hd_op *op)
{
    hd_var j = p->loop->var;

    for (int i = 0; i < op->nviews; i++)
        for (int k = 0; k < op->view[i].nindex; k++) {
            hd_expr index = hd_view_index(&op->view[i], k);

            if (index >= 0 && hd_expr_uses_var(p->module, index, j) &&
                index != hd_expr_of_var(p->module, j))
                return false;
        }
    return true;
}

// Whether it needs what a reduction for all ranks makes, or has to stay behind
// a statement that does.
static bool follows(const hd_pipe *p, const hd_op *op, const hd_block *behind)
{
    for (int i = 0; i < p->nmoved; i++)
        if (p->moved[i].op != op &&
            hd_op_uses(op, hd_buffer_root(p->moved[i].to->buffer), false))
            return true;
    for (const hd_stmt *s = behind->first; s != NULL; s = s->next)
        if (hd_op_conflicts(s->op, op))
            return true;
    return false;
}

// Puts those last. False if one of them moves something.
static bool find_behind(hd_pipe *p)
{
    hd_block ahead = {0}, behind = {0};
    bool fits = true;

    if (p->flow != &hd_flow_all_reduce)
        return true;
    for (hd_stmt *s = p->ops, *next; s != NULL; s = next) {
        bool last = follows(p, s->op, &behind);

        next = s->next;
        fits &= !last || hd_op_is(s->op, HD_UNIT_COMPUTE);
        hd_block_append(last ? &behind : &ahead, s);
    }
    p->behind = behind.first;
    ahead.last->next = behind.first;
    p->ops = ahead.first;
    return fits;
}

// The statements of the loop but its reductions.
static void take_back(hd_pipe *p)
{
    hd_block ops = {0};

    for (hd_stmt *s = p->ops, *next; s != NULL; s = next) {
        next = s->next;
        if (s->op->code != HD_OP_REDUCE)
            hd_block_append(&ops, s);
    }
    p->ops = ops.first;
}

// Why the reductions of a loop that gathers, too, are no part of its pipeline;
// NULL if they are.
static const char *why_behind(const hd_pipe *p)
{
    if (p->options->transfer != HD_TRANSFER_DIRECT)
        return "its loop gathers what this is made of, and of the pipelines "
               "direct alone takes back what it makes";
    if (p->beside)
        return "its loop moves what it gathers along another axis, too";
    if (p->nbegun > 0)
        return "its loop attends to what it gathers, too, and adds that up";
    return p->cut ? "its loop moves blocks, which need not be as long as each "
                    "other"
                  : NULL;
}

// Of a loop that gathers and reduces: the gathers, and behind them reductions,
// which come back in its pipeline, or stand behind the loop.
static void sort_moved(hd_pipe *p)
{
    const char *why = why_behind(p);
    hd_moved *all = p->moved;
    int n = p->nmoved, reductions = 0;

    for (int i = 0; i < n; i++)
        reductions += all[i].op->code == HD_OP_REDUCE;
    if (reductions == 0 || reductions == n)
        return;
    p->moved = hd_new_array(p->scratch, hd_moved, n);
    p->nmoved = 0;
    p->cut = false;
    for (int i = 0; i < n; i++)
        if (all[i].op->code != HD_OP_REDUCE)
            add_moved(p, all[i].op, &hd_flow_gather);
    p->back = p->moved + p->nmoved;
    for (int i = 0; i < n; i++)
        if (all[i].op->code == HD_OP_REDUCE)
            p->back[p->nback++] = all[i];
    p->why_back = why;
    if (why != NULL) {
        take_back(p);
        return;
    }
    p->flow = &hd_flow_roundtrip;
    p->nmoved = n;
    p->nback = 0;
}

// Whether one loop may have both, as the pass before joins what keys are
// gathered for.
static bool may_join(const hd_flow *a, const hd_flow *b)
{
    return a == b || (a != &hd_flow_all_reduce && b != &hd_flow_all_reduce);
}

// A buffer with counts of which the op has a view, NULL if there is none. What
// takes its place in a pipeline, a shard or a slot, has none.
static const hd_buffer *find_counted(const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer->by != NULL)
            return op->view[i].buffer;
    return NULL;
}

// None if the loop is not as the stream pass writes it: trips, which come in
// another order, and all move first or all compute first, would not have its
// meaning.
static void find_moved(hd_pipe *p)
{
    bool fits = true;
    unsigned along = 0; // which axes collectives move along, a bit each
    int n = 0;

    find_ops(p);
    for (hd_stmt *s = p->ops; s != NULL; s = s->next)
        n++;
    p->moved = hd_new_array(p->scratch, hd_moved, n + 1);
    for (hd_stmt *s = p->ops; s != NULL; s = s->next) {
        const hd_flow *flow = flow_of(p, s);

        fits &=
            (hd_op_is(s->op, HD_UNIT_COMPUTE) || find_counted(s->op) == NULL) &&
            is_in_step(p, s->op) &&
            (flow == &hd_flow_scatter || writes_apart(p, s->op));
        if (flow == NULL && hd_op_is_collective(s->op))
            along |= 1U << s->op->axis;
        else if (flow == NULL)
            fits &= hd_op_is(s->op, HD_UNIT_COMPUTE);
        else if (hd_op_has_ranges(s->op))
            fits = false;
        else if (p->nmoved > 0 && !may_join(flow, p->flow))
            fits = false;
        else
            add_moved(p, s->op, flow);
    }
    p->beside = along != 0;
    fits &= p->nmoved == 0 || (along >> p->axis & 1) == 0;
    if (p->nmoved > 0)
        sort_moved(p);
    fits &= p->nbegun == 0 || p->flow == &hd_flow_gather;
    if (!fits || (p->nmoved > 0 && !find_behind(p)))
        p->nmoved = p->nback = 0;
}

// Each all at once, as behind a loop that does not gather.
static void emit_back(const hd_pipe *p, hd_build *b, hd_effect *effect)
{
    hd_pipe back = *p;

    if (p->nback == 0)
        return;
    back.flow = &hd_flow_scatter;
    back.schedule = hd_flow_scatter.schedules[HD_TRANSFER_BULK];
    back.moved = p->back;
    back.nmoved = p->nback;
    back.flow->after(&back, b);
    for (int i = 0; i < p->nback; i++)
        hd_effect_none(effect, HD_OPTIONS_OF_TRANSFERS, p->diag,
                       p->back[i].op->loc, p->why_back);
}

typedef struct transfers {
    bool any, single; // some are of one rank to another, to all, or of all
    const hd_buffer *counted; // one that has counts
} transfers;

static void note_transfer(void *context, hd_op *op)
{
    transfers *t = context;
    bool moves = hd_op_is(op, HD_UNIT_TRANSFER);

    if (t->counted == NULL)
        t->counted = find_counted(op);
    t->any |= moves;
    t->single |= moves && !hd_op_is_collective(op);
}

static bool has_block(const hd_view *view)
{
    for (int i = 0; i < view->nindex; i++) {
        const hd_range *range = hd_view_range(view, i);

        if (range != NULL && range->block != HD_EXPR_NONE)
            return true;
    }
    return false;
}

// What moves in pieces, as reshard writes blocks that are not contiguous: in
// loops over what stands in front of them, in one over the ranks. NULL if the
// loop is not that.
static const hd_buffer *find_pieces(const hd_stmt *loop)
{
    const hd_stmt *stmt = loop->body.first;
    const hd_view *view;

    if (loop->kind != HD_STMT_FOR || stmt == NULL || stmt->kind != HD_STMT_FOR)
        return NULL;
    while (stmt != NULL && stmt->kind == HD_STMT_FOR)
        stmt = stmt->body.first;
    if (stmt == NULL || stmt->kind != HD_STMT_OP ||
        (stmt->op->code != HD_OP_BROADCAST && stmt->op->code != HD_OP_REDUCE))
        return NULL;
    view = &stmt->op->view[stmt->op->code == HD_OP_REDUCE];
    return has_block(view) ? view->buffer : NULL;
}

static const char *why_form(const hd_pipe *p, const transfers *t)
{
    const hd_buffer *pieces = find_pieces(p->loop);

    if (pieces != NULL)
        return hd_arena_printf(p->scratch,
                               "a block of %%%s is not contiguous, and moves "
                               "piece by piece, which no pipeline does",
                               pieces->said);
    if (t->counted != NULL)
        return hd_arena_printf(p->scratch,
                               "%%%s has counts, which no shard and no slot of "
                               "a pipeline has",
                               t->counted->said);
    return t->single ? "it is not a loop on streams over all ranks whose "
                       "iteration j gathers from rank j or reduces to it, "
                       "computes on that, and writes at index j alone"
                     : "each iteration has collectives of its own";
}

// Transfers that stay as they are, in a loop or branch of another form.
static void report_form(const hd_pipe *p, hd_effect *effect)
{
    transfers t = {0};

    hd_stmt_each(p->loop, note_transfer, &t);
    if (t.any && p->loop->kind != HD_STMT_OP && p->loop->kind != HD_STMT_LAUNCH)
        hd_effect_none(effect, HD_OPTIONS_OF_TRANSFERS, p->diag, p->loop->loc,
                       why_form(p, &t));
}

// Whether a statement of an iteration has a block of anything, which a chunk
// cannot be of: it is a range by its own number.
static bool has_blocks(const hd_pipe *p)
{
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews; i++)
            if (has_block(&s->op->view[i]))
                return true;
    return false;
}

static hd_status plan_stmt(hd_pipe *p, hd_build *b, hd_pieces *pieces,
                           hd_effect *effect)
{
    p->nmoved = p->nback = 0;
    p->slots = p->late = 0;
    p->cut = p->ahead = p->beside = false;
    p->behind = NULL;
    if (is_loop(p->module, p->loop)) {
        hd_pieces_name(pieces, p->loop);
        find_moved(p);
    }
    if (p->nmoved == 0) {
        report_form(p, effect);
        hd_block_append(b->block, p->loop);
        return HD_OK;
    }
    p->chunks = p->schedule->move == NULL || p->beside || has_blocks(p) ||
                        p->flow == &hd_flow_roundtrip
                    ? 1
                    : p->options->chunks;
    if (p->chunks > 1)
        HD_TRY(hd_pipe_check_chunks(p));
    p->flow->prepare(p);
    for (int i = 0; i < p->nmoved; i++)
        report_effect(p, &p->moved[i], effect);
    add_sent_events(p);
    rebuild_loop(p, b);
    emit_back(p, b, effect);
    return HD_OK;
}

hd_status hd_pass_transfer(hd_module *module, const hd_lower_options *options,
                           hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    hd_transport transport[HD_MAX_AXES];
    hd_pieces pieces = {module, scratch, NULL};
    hd_block done = {0};
    hd_stmt *next;
    hd_pipe p = {.module = module,
                 .options = options,
                 .scratch = scratch,
                 .diag = diag,
                 .transport = transport,
                 .pieces = &pieces};

    HD_TRY(hd_transports_read(module, options->transport, options->axes, diag,
                              transport));
    hd_pack(module, scratch);
    p.uses = hd_module_count_views(module, scratch);
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = next) {
        hd_build b = {module, &done, stmt->loc};

        next = stmt->next;
        p.loop = stmt;
        HD_TRY(plan_stmt(&p, &b, &pieces, effect));
    }
    module->body = done;
    hd_pieces_undo(&pieces);
    return HD_OK;
}
