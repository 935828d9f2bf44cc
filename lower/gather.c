// Gathers: a trip moves a piece, then it computes on one. A rank's local shard
// is computed on where it lies, unless the gathered buffer is needed whole.
#include "lower/pipe.h"

#include "ir/causal.h"

// ------------------------------------------------------------------- views

// What is sent or received of a piece.
static hd_view source_view(hd_pipe *p, const hd_moved *m,
                           const hd_trip_piece *at)
{
    return hd_pipe_at_chunk(p, *m->from, hd_pipe_chunk_dim(m->from), at->chunk);
}

static hd_view target_view(hd_pipe *p, const hd_moved *m,
                           const hd_trip_piece *at)
{
    hd_view out = hd_pipe_at_shard(p, *m->to, m->dim, at->shard);

    return hd_pipe_at_chunk(p, hd_pipe_at_slot(m, out, at),
                            hd_pipe_chunk_dim(m->to), at->chunk);
}

// ---------------------------------------------------------------- masks

// Whether the rows of a rank see any key of a block, by the mask with which
// they attend to it; HD_EXPR_NONE if that is not said.
static hd_expr sees_any(hd_pipe *p, const hd_op *op, hd_expr rank,
                        hd_expr shard)
{
    const hd_key *causal = hd_op_key(op, HD_KEY_CAUSAL);
    hd_dim rows, keys;
    hd_sight sight;
    hd_expr offset, seen;
    int64_t least, past;

    if (hd_op_family(op) != HD_FAMILY_ATTEND || causal == NULL)
        return HD_EXPR_NONE;
    rows = hd_causal_line(&op->view[op->noutputs]);
    keys = hd_causal_line(&op->view[op->noutputs + 1]);
    if (hd_dim_is_sized(rows) || hd_dim_is_sized(keys) ||
        hd_causal_is_sized(p->module, op) || hd_dim_is_counted(rows) ||
        hd_dim_is_counted(keys))
        return HD_EXPR_NONE;
    sight = hd_sight_of_op(op, rows.extent, keys.extent);
    hd_sight_range(&sight, &least, &past);
    offset = hd_expr_replace_at(p->module, causal->expr, p->loop->var, shard,
                                p->axis, rank);
    seen = hd_pipe_binary(p, HD_EXPR_LT, hd_pipe_number(p, least - 1), offset);
    if (past == INT64_MAX)
        return seen;
    return hd_pipe_binary(
        p, HD_EXPR_AND, seen,
        hd_pipe_binary(p, HD_EXPR_LT, offset, hd_pipe_number(p, past)));
}

enum { MOST_ASKED = 256 }; // ranks, of which each pair is looked at

// Whether the rank that is `distance` behind one on the axis needs its shard.
static bool needs_shard(const hd_pipe *p, hd_expr needed, int64_t of,
                        int64_t distance, int64_t *var)
{
    hd_env env = {.var = var};
    int64_t needs;

    for (int axis = 0; axis < p->module->naxes; axis++)
        env.coord[axis] = hd_mesh_coord(p->module, of, axis);
    var[p->loop->var] = env.coord[p->axis];
    env.coord[p->axis] = (env.coord[p->axis] + distance) % p->ranks;
    return hd_expr_eval(p->module, needed, &env, &needs) && needs != 0;
}

// Whether every rank needs its own.
static bool needs_own(const hd_pipe *p, hd_expr needed)
{
    int64_t *var = hd_new_array(p->scratch, int64_t, p->module->nvars);

    for (int64_t rank = 0; rank < p->module->nranks; rank++)
        if (!needs_shard(p, needed, rank, 0, var))
            return false;
    return true;
}

// When one of two is needed: HD_EXPR_NONE is in any case.
static hd_expr either(hd_pipe *p, hd_expr a, hd_expr b)
{
    hd_expr never = hd_pipe_number(p, 0);

    if (a == HD_EXPR_NONE || b == HD_EXPR_NONE)
        return HD_EXPR_NONE;
    return b == never || a == b ? a
           : a == never         ? b
                                : hd_pipe_binary(p, HD_EXPR_OR, a, b);
}

// When a rank needs a block that it attends to. What others add to is made of
// the first one, of which every rank needs all: its own, or that of rank 0.
static hd_expr need_of_keys(hd_pipe *p, const hd_op *op, hd_expr rank,
                            hd_expr shard)
{
    bool in_order =
        p->schedule->shard == NULL || p->schedule->shard == hd_trip_step;
    hd_expr zero = hd_pipe_number(p, 0), own = hd_pipe_rank(p);
    hd_expr sees = sees_any(p, op, rank, shard);

    if (sees == HD_EXPR_NONE || !hd_pipe_begins(p, op) ||
        needs_own(p, sees_any(p, op, own, in_order ? zero : own)))
        return sees;
    return either(p, sees,
                  hd_pipe_binary(p, HD_EXPR_EQ, shard, in_order ? zero : rank));
}

// When the results of a statement are needed, where `need` says it of buffers.
static hd_expr need_of_op(hd_pipe *p, const hd_op *op, hd_expr rank,
                          hd_expr shard, const hd_expr *need)
{
    hd_expr any = hd_pipe_number(p, 0);

    if (hd_op_family(op) == HD_FAMILY_ATTEND)
        return need_of_keys(p, op, rank, shard);
    if (!hd_op_is(op, HD_UNIT_COMPUTE))
        return HD_EXPR_NONE;
    for (int i = 0; i < op->nviews && any != HD_EXPR_NONE; i++) {
        const hd_view *view = &op->view[i];

        if (hd_op_access(op, i) == HD_ACCESS_READ)
            continue;
        any = either(p, any, need[view->buffer->id]);
        if (any != HD_EXPR_NONE &&
            (hd_pipe_index(p, view) < 0 || !hd_pipe_is_alone(p, view->buffer)))
            any = HD_EXPR_NONE;
    }
    return any;
}

// Whether anything of an iteration has a mask: else all is needed.
static bool attends(const hd_pipe *p)
{
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        if (hd_op_family(s->op) == HD_FAMILY_ATTEND)
            return true;
    return false;
}

// When a rank needs a shard of each buffer, by id, and of what each statement
// makes, in their order: from the last one on, whose results those behind it
// read. Masks say of blocks of keys that no row sees them, and so of what these
// are made of.
typedef struct needs {
    hd_expr *buffer, *op;
} needs;

static needs find_needs(hd_pipe *p, hd_expr rank, hd_expr shard)
{
    int nbuffers = p->module->nbuffers + 1, n = 0;
    const hd_stmt **stmt;
    needs all = {hd_new_array(p->scratch, hd_expr, nbuffers), NULL};

    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        n++;
    stmt = hd_new_array(p->scratch, const hd_stmt *, n);
    all.op = hd_new_array(p->scratch, hd_expr, n);
    n = 0;
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        stmt[n++] = s;
    for (int i = 0; i < nbuffers; i++) // nothing reads it yet
        all.buffer[i] = hd_pipe_number(p, 0);
    while (n-- > 0) {
        const hd_op *op = stmt[n]->op;

        all.op[n] = need_of_op(p, op, rank, shard, all.buffer);
        for (int i = 0; i < op->nviews && op->code != HD_OP_BROADCAST; i++) {
            hd_expr *need = &all.buffer[op->view[i].buffer->id];

            if (hd_op_access(op, i) != HD_ACCESS_WRITE)
                *need = either(p, *need, all.op[n]);
        }
    }
    return all;
}

static const hd_expr *all_needed(const hd_pipe *p)
{
    hd_expr *need;
    int n = 0;

    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        n++;
    need = hd_new_array(p->scratch, hd_expr, n);
    while (n-- > 0)
        need[n] = HD_EXPR_NONE;
    return need;
}

const hd_expr *hd_pipe_needs(hd_pipe *p, const hd_trip_piece *at)
{
    hd_expr rank = hd_pipe_rank(p);
    needs some, own;
    int n = 0;

    if (at->shard < 0 || !attends(p))
        return all_needed(p);
    own = some = find_needs(p, rank, at->shard);
    if (at->own)
        own = find_needs(p, rank, hd_expr_of_var(p->module, p->loop->var));
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next, n++)
        if (some.op[n] < 0 || hd_expr_is_const(p->module, some.op[n]) ||
            hd_op_family(s->op) == HD_FAMILY_ATTEND ||
            (at->own && needs_own(p, own.op[n])))
            some.op[n] = HD_EXPR_NONE;
    return some.op;
}

hd_build hd_pipe_within(hd_guard *guard, hd_build *b, hd_expr need)
{
    hd_build none;

    if (need != HD_EXPR_NONE &&
        (guard->need != need || guard->block != b->block))
        guard->inside = hd_build_if(b, need, &none);
    guard->need = need;
    guard->block = b->block;
    return need != HD_EXPR_NONE ? guard->inside : *b;
}

// --------------------------------------------------------------- computing

static bool reads_in_place(const hd_pipe *p, const hd_op *op)
{
    for (int i = op->noutputs; i < op->nviews; i++)
        for (int k = 0; k < p->nmoved; k++)
            if (p->moved[k].in_place &&
                p->moved[k].to->buffer == op->view[i].buffer)
                return true;
    return false;
}

// Whether a rank begins with a block of a sequence in zigzag that only the
// second half of its rows sees. Loops that go from block to block in order
// begin with one that all rows are not before.
static bool begins_behind(const hd_pipe *p, const hd_op *op)
{
    const hd_key *key = hd_op_key(op, HD_KEY_ZIGZAG);
    hd_env env = {0};
    int64_t *var, offset;

    if (key == NULL || p->schedule->shard == NULL ||
        p->schedule->shard == hd_trip_step)
        return false;
    env.var = var = hd_new_array(p->scratch, int64_t, p->module->nvars);
    for (int64_t rank = 0; rank < p->module->nranks; rank++) {
        for (int axis = 0; axis < p->module->naxes; axis++)
            env.coord[axis] = hd_mesh_coord(p->module, rank, axis);
        var[p->loop->var] = env.coord[p->axis];
        if (hd_expr_eval(p->module, key->expr, &env, &offset) && offset < 0)
            return true;
    }
    return false;
}

// The first of what others add to, which makes all of the result: where it sees
// only half of the rows, it adds to what keys make that no row sees.
static void begin_op(hd_pipe *p, hd_build *b, const hd_op *op,
                     const hd_trip_piece *at)
{
    hd_op *fresh = hd_pipe_clone(p, b, op, at);
    hd_type rows;

    hd_build_drop_key(fresh, HD_KEY_ACCUMULATE);
    if (!begins_behind(p, op))
        return;
    rows = hd_view_type(&op->view[op->noutputs]);
    hd_build_drop_key(fresh, HD_KEY_ZIGZAG);
    hd_build_key(fresh, HD_KEY_CAUSAL,
                 hd_pipe_number(p, -rows.dim[rows.ndims - 2].extent));
    hd_pipe_clone(p, b, op, at);
}

// A statement for a piece. What adds to earlier pieces is begun with the first,
// which `first` says.
static void emit_op(hd_pipe *p, hd_build *b, const hd_op *op,
                    const hd_trip_piece *at, hd_expr first)
{
    hd_build begun = *b, others = *b;
    bool known = hd_expr_is_const(p->module, first);
    bool begins = hd_pipe_begins(p, op);

    if (begins && !known)
        begun = hd_build_if(b, first, &others);
    if (begins && (!known || hd_expr_value(p->module, first) != 0))
        begin_op(p, &begun, op, at);
    if (!begins || !known || hd_expr_value(p->module, first) == 0)
        hd_pipe_clone(p, &others, op, at);
}

// Whether a piece is the first that is computed on: of shards in a loop of
// their own, that of index 0.
static hd_expr is_first(const hd_trip *t, const hd_trip_piece *at)
{
    return t->at.shard == HD_EXPR_ALL && at->shard >= 0
               ? hd_pipe_binary(t->p, HD_EXPR_EQ, at->shard,
                                hd_pipe_number(t->p, 0))
               : hd_trip_is_first(t);
}

// The computation of a trip, which branches where the local shard lies
// elsewhere.
static void emit_compute(hd_build *all, const hd_trip *t)
{
    hd_trip_piece at = t->at;
    hd_build own = hd_pipe_open_shards(t->p, all, t->p->ops, NULL, &at);
    hd_build *b = &own;
    hd_build mine = *b, theirs = *b;
    hd_expr first = is_first(t, &at);
    bool branched = false, same = t->own == first;
    hd_trip_piece local = at;
    hd_guard of_mine = {0}, of_others = {0};
    const hd_expr *need = hd_pipe_needs(t->p, &at), *need_own;

    local.own = true;
    // Blocks are as long as each other by their numbers alone.
    if (at.shard != HD_EXPR_ALL && t->p->cut)
        local.shard = hd_pipe_rank(t->p);
    need_own = hd_pipe_needs(t->p, &local);
    for (hd_stmt *s = t->p->ops; s != NULL; s = s->next, need++, need_own++) {
        bool branches = t->own >= 0 && reads_in_place(t->p, s->op);
        hd_build within;

        if (branches && !branched)
            mine = hd_build_if(b, t->own, &theirs);
        branched = branches;
        if (s->op->code == HD_OP_BROADCAST)
            continue;
        if (branches) {
            within = hd_pipe_within(&of_mine, &mine, *need_own);
            emit_op(t->p, &within, s->op, &local,
                    same ? hd_pipe_number(t->p, 1) : first);
        }
        within = hd_pipe_within(&of_others, branches ? &theirs : b, *need);
        emit_op(t->p, &within, s->op, &at,
                same && branches ? hd_pipe_number(t->p, 0) : first);
    }
}

// ------------------------------------------------------------------ moves

// Buffers of chunks are declared in the order in which their views are made.
static void copy_own(hd_pipe *p, hd_build *b, const hd_moved *m,
                     const hd_trip_piece *at)
{
    hd_view in = source_view(p, m, at), out = target_view(p, m, at);

    hd_build_unary(b, HD_OP_COPY, -1, out, in);
}

// When a rank needs a shard of what is moved; HD_EXPR_NONE if it does in any
// case.
static hd_expr is_needed(hd_pipe *p, const hd_moved *m, hd_expr rank,
                         hd_expr shard)
{
    hd_expr need;

    if (!attends(p))
        return HD_EXPR_NONE;
    need = find_needs(p, rank, shard).buffer[m->to->buffer->id];
    return need == hd_pipe_number(p, 0) ? HD_EXPR_NONE : need;
}

// Whether each shard that a ring relays is needed by the first ranks on its way
// and by none behind them.
static bool ends_early(hd_pipe *p, const hd_moved *m)
{
    int64_t *var = hd_new_array(p->scratch, int64_t, p->module->nvars);
    hd_expr needed = is_needed(p, m, hd_pipe_rank(p),
                               hd_expr_of_var(p->module, p->loop->var));

    if (needed == HD_EXPR_NONE || p->module->nranks > MOST_ASKED)
        return false;
    for (int64_t rank = 0; rank < p->module->nranks; rank++)
        for (int64_t d = 2; d < p->ranks; d++)
            if (needs_shard(p, needed, rank, d, var) &&
                !needs_shard(p, needed, rank, d - 1, var))
                return false;
    return true;
}

// Where a transfer of what `rank` may not need stands.
static hd_build open_needed(const hd_trip *t, hd_build *b, const hd_moved *m,
                            hd_expr rank, hd_expr shard)
{
    hd_expr needed;
    hd_build none;

    // What is relayed others may need, and a deferred send is waited for.
    if (m->sent != NULL || !hd_pipe_is_alone(t->p, m->to->buffer) ||
        (t->p->schedule->relays && !m->early))
        return *b;
    needed = is_needed(t->p, m, rank, shard);
    return needed == HD_EXPR_NONE ? *b : hd_build_if(b, needed, &none);
}

// A send and a recv.
static void exchange(const hd_trip *t, hd_build *b, const hd_moved *m)
{
    hd_pipe *p = t->p;
    bool relays = p->schedule->relays;
    hd_build own = t->mine, others = *b;
    hd_trip_piece mine = t->at, in = t->at;

    in.shard = p->schedule->arrives(t);
    if (m->cut)
        mine.shard = hd_pipe_rank(p);
    if (!relays && !m->in_place)
        copy_own(p, &own, m, &mine);
    if (relays && m->in_place) {
        own = hd_build_if(b, t->own, &others);
        own = open_needed(t, &own, m, p->schedule->to(t), hd_pipe_rank(p));
        hd_trip_transfer(t, &own, m, HD_OP_SEND, source_view(p, m, &t->at));
    }
    others = open_needed(t, &others, m, p->schedule->to(t),
                         relays ? t->at.shard : hd_pipe_rank(p));
    hd_trip_transfer(t, &others, m, HD_OP_SEND,
                     relays ? target_view(p, m, &t->at)
                            : source_view(p, m, &t->at));
    others = open_needed(t, b, m, hd_pipe_rank(p), in.shard);
    hd_trip_transfer(t, &others, m, HD_OP_RECV, target_view(p, m, &in));
}

// From the rank whose shard it is, to all.
static void broadcast(const hd_trip *t, hd_build *b, const hd_moved *m)
{
    hd_pipe *p = t->p;
    hd_view in = source_view(p, m, &t->at), out = target_view(p, m, &t->at);
    hd_build mine, theirs;

    if (!m->in_place) {
        hd_build_key(hd_build_unary(b, HD_OP_BROADCAST, p->axis, out, in),
                     HD_KEY_ROOT, t->at.shard);
        return;
    }
    mine = hd_build_if(b, t->own, &theirs);
    hd_build_key(hd_build_op(&mine, HD_OP_BROADCAST, p->axis, 0, 1, &in),
                 HD_KEY_ROOT, t->at.shard);
    hd_build_key(hd_build_op(&theirs, HD_OP_BROADCAST, p->axis, 1, 0, &out),
                 HD_KEY_ROOT, t->at.shard);
}

// All shards at once: of one rank its own, which nothing has packed, so that
// chunks may be of what stands ahead.
static void gather_all(hd_pipe *p, hd_build *b, const hd_moved *m, hd_view out,
                       hd_view in)
{
    hd_op *op;

    if (p->ranks == 1) {
        int dim = hd_pipe_dim_of(m->to, m->dim, &out);

        out = hd_view_block(p->module, out, dim, hd_pipe_number(p, 0), 1);
        hd_build_unary(b, HD_OP_COPY, -1, out, in);
        return;
    }
    op = hd_build_unary(b, HD_OP_ALL_GATHER, p->axis, out, in);
    hd_build_pieces_dim(p->module, op, 0, m->dim);
    hd_build_past_ones(p->module, op);
}

// From every rank to all.
static void collect(const hd_trip *t, hd_build *b, const hd_moved *m)
{
    hd_view in = source_view(t->p, m, &t->at);
    hd_view out = target_view(t->p, m, &t->at);

    gather_all(t->p, b, m, out, in);
}

// Where a trip's transfers stand: sends and recvs together, in those trips that
// have any.
static hd_build open_moves(hd_build *b, hd_trip *t)
{
    const hd_trips *s = t->p->schedule;
    hd_build theirs;

    if (s->to == NULL)
        return *b;
    t->mine =
        hd_build_if(b, s->relays ? hd_trip_is_before_end(t) : t->own, &theirs);
    return hd_build_group(s->relays ? &t->mine : &theirs);
}

static void emit_trip(hd_pipe *p, hd_build *b, hd_expr j)
{
    hd_trip t = hd_trip_start(p, b, j);
    hd_build moves;

    if (p->schedule->move != NULL) {
        moves = open_moves(b, &t);
        for (int i = 0; i < p->nmoved; i++) {
            moves.loc = p->moved[i].op->loc;
            p->schedule->move(&t, &moves, &p->moved[i]);
        }
    }
    emit_compute(b, &t);
}

// Of blocks, which need not be as long, one after the other.
static void gather_blocks(hd_pipe *p, hd_build *b, const hd_moved *m)
{
    hd_expr i;
    hd_build body = hd_build_for(b, "i", hd_pipe_number(p, p->ranks), &i);
    hd_view out = hd_pipe_at_shard(p, *m->to, m->dim, i);

    hd_build_key(hd_build_unary(&body, HD_OP_BROADCAST, p->axis, out, *m->from),
                 HD_KEY_ROOT, i);
}

// What is moved or copied before the loop.
static void emit_before(hd_pipe *p, hd_build *b)
{
    hd_trip_piece own = {.shard = hd_pipe_rank(p), .chunk = HD_EXPR_NONE};

    for (int i = 0; i < p->nmoved; i++) {
        const hd_moved *m = &p->moved[i];
        hd_view out = *m->to;

        b->loc = m->op->loc;
        out = hd_view_all_of(p->module, out, m->dim);
        if (p->schedule->move == NULL && m->cut)
            gather_blocks(p, b, m);
        else if (p->schedule->move == NULL)
            gather_all(p, b, m, out, *m->from);
        else if (p->schedule->relays && !m->in_place)
            copy_own(p, b, m, &own);
    }
}

static bool picks_alike(const hd_view *a, const hd_view *b)
{
    for (int i = 0; i < a->nindex || i < b->nindex; i++) {
        hd_expr x = i < a->nindex ? hd_view_index(a, i) : HD_EXPR_ALL;
        hd_expr y = i < b->nindex ? hd_view_index(b, i) : HD_EXPR_ALL;

        if (x != y)
            return false;
    }
    return true;
}

// Whether the local shard lies as the gathered ones do, but for where those
// have their index: a text may gather a part of something else.
static bool lies_alike(const hd_pipe *p, const hd_moved *m)
{
    const hd_view *to = m->to, *from = m->from;
    int dim = hd_type_axis_dim(&from->buffer->type, p->axis);
    hd_type type;
    hd_view view;

    if (dim < 0 || from->buffer->type.ndims != to->buffer->type.ndims)
        return false;
    type = hd_type_moved(&from->buffer->type, dim, m->dim);
    type.dim[m->dim] = to->buffer->type.dim[m->dim];
    view = hd_view_moved(p->module, *from, to->buffer, dim, m->dim);
    view = hd_view_block(p->module, view, m->dim,
                         hd_expr_of_var(p->module, p->loop->var), p->ranks);
    return hd_type_same_dims(&type, &to->buffer->type) &&
           picks_alike(&view, to);
}

static bool is_attended_to(const hd_pipe *p, const hd_buffer *buffer)
{
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = s->op->noutputs; i < s->op->nviews; i++)
            if (hd_op_family(s->op) == HD_FAMILY_ATTEND &&
                s->op->view[i].buffer == buffer)
                return true;
    return false;
}

// Whether what is gathered arrives in slots: no trip needs more of it than its
// own shard, nor relays that, and nothing else needs any. It is done for what
// is attended to, as attention makes no more of all shards than of one, where
// results of products grow with the ranks, too. Blocks may differ in length. A
// copy of the local shard that is read in the last trip, too, takes no turns.
static bool fits_slots(const hd_pipe *p, const hd_moved *m)
{
    hd_buffer *all = m->to->buffer;

    return p->ranks > 1 && !m->cut && p->schedule->to != NULL &&
           !p->schedule->relays && (m->in_place || !p->ahead) &&
           hd_pipe_is_alone(p, all) && is_attended_to(p, all);
}

// Trip j is on stream j mod S, as the pass before writes it.
static int64_t count_streams(const hd_pipe *p)
{
    hd_expr stream = p->loop->body.first->a;
    const hd_expr_node *node = hd_expr_get(p->module, stream);

    if (node->kind == HD_EXPR_MOD && hd_expr_is_const(p->module, node->b))
        return hd_expr_value(p->module, node->b);
    return hd_expr_is_const(p->module, stream) ? 1 : p->module->streams;
}

// Trips on one stream follow each other: with a slot a stream none waits that
// did not wait before. Beside a stream for transfers all may compute on one
// stream; then one slot fills while another one is read, and so it does where
// shards arrive ahead of time.
static int64_t count_slots(const hd_pipe *p)
{
    int64_t n = count_streams(p), needed = 0;

    if (n == 1 && (p->options->comm_stream || p->ahead))
        n = 2;
    for (int i = 0; i < p->nmoved; i++) {
        const hd_moved *m = &p->moved[i];
        int64_t shards = p->ranks - m->in_place;

        if (fits_slots(p, m) && shards > needed)
            needed = shards;
    }
    return n < needed ? n : needed;
}

static void add_slots(hd_pipe *p, hd_moved *m)
{
    const hd_buffer *all = m->to->buffer;
    hd_type type = all->type;

    type.dim[m->dim] = hd_dim_whole(p->slots);
    m->slots = hd_module_add_buffer(
        p->module, hd_arena_printf(p->scratch, "%s_in", all->name),
        HD_ROLE_TEMP, &type);
    m->slots->said = all->said;
}

static void prepare(hd_pipe *p)
{
    for (int i = 0; i < p->nmoved; i++)
        p->moved[i].in_place = !p->options->copy_own &&
                               lies_alike(p, &p->moved[i]) &&
                               hd_pipe_is_alone(p, p->moved[i].to->buffer);
    for (int i = 0; i < p->nmoved && p->schedule->relays; i++)
        p->moved[i].early = ends_early(p, &p->moved[i]);
    p->slots = count_slots(p);
    for (int i = 0; i < p->nmoved; i++)
        if (fits_slots(p, &p->moved[i]))
            add_slots(p, &p->moved[i]);
}

// --------------------------------------------------------------- pipelines

static hd_expr upwards(const hd_trip *t)
{
    return hd_pipe_around(t->p, HD_EXPR_ADD, hd_pipe_rank(t->p), t->step);
}

static hd_expr downwards(const hd_trip *t)
{
    return hd_pipe_around(t->p, HD_EXPR_SUB, hd_pipe_rank(t->p), t->step);
}

// The rank for which this trip is that of the local shard here.
static hd_expr mirrored(const hd_trip *t)
{
    hd_expr n = hd_pipe_number(t->p, t->p->ranks);

    return hd_pipe_around(
        t->p, HD_EXPR_SUB,
        hd_pipe_binary(t->p, HD_EXPR_ADD, n, hd_pipe_rank(t->p)), t->step);
}

static hd_expr is_of_rank(const hd_trip *t)
{
    return hd_pipe_binary(t->p, HD_EXPR_EQ, t->at.shard, hd_pipe_rank(t->p));
}

// One all_gather before the loop: what is not fused, too.
static const hd_trips bulk = {.shard = hd_trip_step};
// Trip j gathers chunk j of every shard, and computes on all of them.
static const hd_trips pipelined = {.move = collect};
// Rank j sends to all.
static const hd_trips rooted = {
    .shard = hd_trip_step, .own = is_of_rank, .move = broadcast};
// From rank + j, to rank - j.
static const hd_trips direct = {.shard = upwards,
                                .own = hd_trip_is_first,
                                .move = exchange,
                                .to = mirrored,
                                .from = hd_trip_shard,
                                .arrives = hd_trip_shard};
// What came from the left neighbour goes on to the right.
static const hd_trips ring = {.shard = downwards,
                              .own = hd_trip_is_first,
                              .move = exchange,
                              .to = hd_trip_right,
                              .from = hd_trip_left,
                              .arrives = hd_trip_shard_below,
                              .relays = true};

static const hd_trips *const schedules[] = {
    [HD_TRANSFER_BULK] = &bulk,           [HD_TRANSFER_FUSED] = &bulk,
    [HD_TRANSFER_PIPELINED] = &pipelined, [HD_TRANSFER_BROADCAST] = &rooted,
    [HD_TRANSFER_DIRECT] = &direct,       [HD_TRANSFER_RING] = &ring,
};

const hd_flow hd_flow_gather = {.schedules = schedules,
                                .first = 1,
                                .prepare = prepare,
                                .before = emit_before,
                                .trip = emit_trip};
