// Orders the streams with few events. Each loop over streams is forked
// from the caller's stream and joined to it. Inside, iterations on one stream
// follow each other; what an iteration on another stream must wait for is found
// by evaluating the views of every iteration: two iterations conflict where
// they touch the same elements and one of them writes. In a ring the distance
// between such iterations is constant, so one event an iteration orders them:
//
//     j:        wait %hop[j]  ..  recv  %hop[j + 1] = record  ..  compute
//     j + 1:                            wait %hop[j + 1]  ..
//
// Where the distance is 1 this chain reaches every stream from the first
// iteration, and starting it on the caller's stream makes the fork unnecessary.
// Iterations whose conflicts have no constant distance are put on one stream,
// and so are those of a loop of another form, which only a text that goes on
// from here can have.
//
// With a stream of its own for transfers, what an iteration transfers goes
// there and what it computes stays, so that no matmul stands in the way of a
// transfer:
//
//     on stream S:         send  recv  %hop[j + d] = record
//     on stream j mod S:   wait %hop[j]  ..  compute
//
// where d is how many iterations later that is computed on which arrives; or,
// where sends are deferred and touch nothing that arrives, even without events:
//
//     on stream S:         send
//     on stream j mod S:   recv  ..  compute
//
// Neither is done unless the views of every iteration say that it orders them
// all.
#include <stdlib.h>
#include <string.h>

#include "lower/build.h"
#include "lower/pass.h"
#include "steps/part.h"

enum {
    MANY_RANKS = 64,           // beyond it, three ranks stand for all
    MANY_ITERATIONS = 1 << 18, // beyond it, a loop gets one stream
};

typedef struct access {
    hd_part part;
    int root;          // id
    int64_t low, high; // elements, of the whole range
    int64_t iteration, stream;
    const hd_stmt *stmt; // of the iteration, outermost
    bool moves, sends;   // by a transfer, by a send
} access;

typedef struct loop {
    hd_module *module;
    hd_arena *scratch;
    hd_diag *diag;
    hd_stmt *stmt; // the for
    hd_stmt *on;
    int64_t iterations;
    int64_t stream; // of the iteration that is evaluated
    int64_t *vars;
    hd_env env;
    const hd_frame *frame; // by buffer id
    access *access;
    int naccesses, room;
    bool *written; // by buffer id
    // What was found.
    int64_t distance;
    bool varied;             // more than one distance, or none that is known
    const hd_stmt *producer; // the one statement that must come first
    bool many_producers;
    bool unknown; // the iterations cannot be evaluated
    // With a stream for transfers: iterations from a transfer to what computes
    // on it, -1 if nothing does; and whether that orders all, or sends apart
    // do.
    bool split;
    int64_t lag;
    bool events_fail, sends_fail;
} loop;

// Nothing that is still to be found would change what is done.
static bool is_settled(const loop *l)
{
    return l->unknown ||
           (l->varied && (!l->split || (l->events_fail && l->sends_fail)));
}

// -------------------------------------------------------------- evaluation

// An index that has no value is reported by the walk.
static hd_part find_part(const loop *l, const hd_view *view)
{
    const hd_frame *frame = &l->frame[view->buffer->id];
    hd_span span = {.buffer = view->buffer};

    for (int i = 0; i < frame->ndims && i < view->nindex; i++) {
        int64_t value = 0;

        if (view->index[i] == HD_EXPR_ALL ||
            hd_dim_is_sharded(view->buffer->type.dim[i]))
            continue;
        (void)hd_expr_eval(l->module, view->index[i], &l->env, &value);
        span.offset += value * frame->stride[i];
    }
    return hd_part_make(frame, view, &span);
}

static access *add_access(loop *l)
{
    if (l->naccesses == l->room) {
        access *grown = hd_new_array(l->scratch, access, 2 * l->room + 64);

        if (l->naccesses > 0)
            memcpy(grown, l->access, sizeof *grown * (size_t)l->naccesses);
        l->access = grown;
        l->room = 2 * l->room + 64;
    }
    return &l->access[l->naccesses++];
}

static void evaluate_op(loop *l, const hd_op *op, const hd_stmt *outer,
                        int64_t iteration)
{
    for (int i = 0; i < op->nviews; i++) {
        hd_buffer *root = hd_buffer_root(op->view[i].buffer);
        access *a;

        if (!l->written[root->id] || root->type.dtype == HD_EVENT)
            continue;
        a = add_access(l);
        *a = (access){.part = find_part(l, &op->view[i]),
                      .root = root->id,
                      .iteration = iteration,
                      .stream = l->stream,
                      .stmt = outer,
                      .moves = hd_op_is(op, HD_UNIT_TRANSFER),
                      .sends = op->code == HD_OP_SEND};
        a->part.access = (uint8_t)hd_op_access(op, i);
        hd_part_range(&l->frame[a->part.buffer], &a->part, &a->low, &a->high);
    }
}

static void evaluate_block(loop *l, const hd_block *block, const hd_stmt *outer,
                           int64_t iteration)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        const hd_stmt *top = outer != NULL ? outer : s;
        int64_t value = 0;

        switch (s->kind) {
        case HD_STMT_OP:
            evaluate_op(l, s->op, top, iteration);
            break;
        case HD_STMT_LET:
            (void)hd_expr_eval(l->module, s->a, &l->env, &l->vars[s->var]);
            break;
        case HD_STMT_IF:
            (void)hd_expr_eval(l->module, s->a, &l->env, &value);
            evaluate_block(l, value != 0 ? &s->body : &s->otherwise, top,
                           iteration);
            break;
        case HD_STMT_FOR: // no pass makes one inside an iteration
            l->unknown = true;
            break;
        case HD_STMT_ON:
        case HD_STMT_GROUP:
            evaluate_block(l, &s->body, top, iteration);
        }
    }
}

static void note_written(void *context, hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (hd_op_access(op, i) != HD_ACCESS_READ)
            ((bool *)context)[hd_buffer_root(op->view[i].buffer)->id] = true;
}

// --------------------------------------------------------------- conflicts

// Of two conflicting accesses, what becomes of their order when transfers, or
// sends alone, get a stream of their own.
static void note_split(loop *l, const access *a, const access *b)
{
    const access *moved = a->moves ? a : b, *computed = a->moves ? b : a;
    int64_t lag = computed->iteration - moved->iteration;

    if (a->sends != b->sends || (!a->sends && a->stream != b->stream))
        l->sends_fail = true;
    if (a->moves == b->moves) {
        l->events_fail |= !a->moves && a->stream != b->stream;
        return;
    }
    l->events_fail |= lag < 0 || (l->lag >= 0 && l->lag != lag);
    l->lag = lag;
}

static void note_conflict(loop *l, const access *a, const access *b)
{
    const access *first = a->iteration < b->iteration ? a : b;
    int64_t distance = llabs(a->iteration - b->iteration);

    if (!(hd_part_writes(&a->part) || hd_part_writes(&b->part)) ||
        !hd_parts_overlap(l->frame, &a->part, &b->part))
        return;
    note_split(l, a, b);
    if (a->stream == b->stream)
        return;
    l->varied |= l->distance != 0 && l->distance != distance;
    l->distance = distance;
    l->many_producers |= l->producer != NULL && l->producer != first->stmt;
    l->producer = first->stmt;
}

static int compare_accesses(const void *x, const void *y)
{
    const access *a = x, *b = y;

    if (a->root != b->root)
        return a->root < b->root ? -1 : 1;
    return (a->low > b->low) - (a->low < b->low);
}

static void compare_iterations(loop *l)
{
    if (l->naccesses == 0)
        return;
    qsort(l->access, (size_t)l->naccesses, sizeof *l->access, compare_accesses);
    for (int i = 0; i < l->naccesses; i++)
        for (int k = i + 1;
             k < l->naccesses && l->access[k].root == l->access[i].root &&
             l->access[k].low < l->access[i].high && !is_settled(l);
             k++)
            note_conflict(l, &l->access[i], &l->access[k]);
}

static void evaluate_rank(loop *l, int64_t rank)
{
    for (int i = 0; i < l->module->naxes; i++)
        l->env.coord[i] = hd_mesh_coord(l->module, rank, i);
    l->naccesses = 0;
    for (int64_t iteration = 0; iteration < l->iterations; iteration++) {
        l->vars[l->stmt->var] = iteration;
        l->unknown |= !hd_expr_eval(l->module, l->on->a, &l->env, &l->stream);
        evaluate_block(l, &l->on->body, NULL, iteration);
    }
    compare_iterations(l);
}

static void find_conflicts(loop *l)
{
    int64_t n = l->module->nranks;
    int64_t some[3] = {0, 1, n - 1};

    l->lag = -1;
    if (l->unknown || (!l->split && hd_expr_is_const(l->module, l->on->a)))
        return;
    if (n <= MANY_RANKS)
        for (int64_t rank = 0; rank < n && !is_settled(l); rank++)
            evaluate_rank(l, rank);
    else
        for (int i = 0; i < 3 && !is_settled(l); i++)
            evaluate_rank(l, some[i]);
}

// ------------------------------------------------------------------ events

static hd_view event_at(const loop *l, hd_buffer *hop, hd_expr index)
{
    return hd_view_at(hd_view_whole(hop, l->stmt->loc), 0, index);
}

static hd_stmt *record_stmt(loop *l, hd_buffer *hop, hd_expr index)
{
    hd_stmt *stmt =
        hd_stmt_op(l->module, HD_OP_RECORD, -1, 1, 0, 0, l->stmt->loc);

    stmt->op->view[0] = event_at(l, hop, index);
    return stmt;
}

// `if condition { stmt }`, or the statement alone without a condition.
static hd_stmt *guarded(loop *l, hd_stmt *stmt, hd_expr condition)
{
    hd_stmt *guard;

    if (condition < 0)
        return stmt;
    guard = hd_stmt_new(l->module, HD_STMT_IF, l->stmt->loc);
    guard->a = condition;
    hd_block_append(&guard->body, stmt);
    return guard;
}

// Before everything that touches memory in an iteration, after its lets.
static void add_wait(loop *l, hd_buffer *hop, bool chained)
{
    hd_module *m = l->module;
    hd_expr j = hd_expr_of_var(m, l->stmt->var);
    hd_stmt *wait = hd_stmt_op(m, HD_OP_WAIT, -1, 0, 1, 0, l->stmt->loc);
    hd_stmt *at = NULL;

    wait->op->view[0] = event_at(l, hop, j);
    for (hd_stmt *s = l->on->body.first; s != NULL && s->kind == HD_STMT_LET;
         s = s->next)
        at = s;
    hd_block_insert(
        &l->on->body, at,
        guarded(l, wait,
                chained ? HD_EXPR_NONE
                        : hd_expr_binary(m, HD_EXPR_LE,
                                         hd_expr_const(m, l->distance), j)));
}

// A transfer pass writes `if j < last { group { .. } }`: the record then goes
// inside, right after the group.
static bool guards_itself(const loop *l, const hd_stmt *stmt)
{
    const hd_expr_node *node;

    if (stmt->kind != HD_STMT_IF || stmt->otherwise.first != NULL)
        return false;
    node = hd_expr_get(l->module, stmt->a);
    return node->kind == HD_EXPR_LT &&
           node->a == hd_expr_of_var(l->module, l->stmt->var) &&
           hd_expr_is_const(l->module, node->b) &&
           hd_expr_value(l->module, node->b) == l->iterations - l->distance;
}

static void add_record(loop *l, hd_buffer *hop)
{
    hd_module *m = l->module;
    hd_expr j = hd_expr_of_var(m, l->stmt->var);
    hd_stmt *record = record_stmt(
        l, hop,
        hd_expr_binary(m, HD_EXPR_ADD, j, hd_expr_const(m, l->distance)));
    hd_expr more = hd_expr_binary(
        m, HD_EXPR_LT, j, hd_expr_const(m, l->iterations - l->distance));
    hd_stmt *producer = (hd_stmt *)l->producer; // a statement of this loop

    if (!l->many_producers && guards_itself(l, producer))
        hd_block_append(&producer->body, record);
    else if (!l->many_producers)
        hd_block_insert(&l->on->body, producer, guarded(l, record, more));
    else
        hd_block_append(&l->on->body, guarded(l, record, more));
}

static void add_fork(loop *l, hd_block *done)
{
    hd_block_append(
        done, hd_stmt_op(l->module, HD_OP_FORK, -1, 0, 0, 0, l->stmt->loc));
}

// --------------------------------------------------- a stream for transfers

static bool transfers(const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if (s->kind == HD_STMT_OP
                ? hd_op_is(s->op, HD_UNIT_TRANSFER)
                : transfers(&s->body) || transfers(&s->otherwise))
            return true;
    return false;
}

static bool is_transfer(const hd_stmt *stmt)
{
    return stmt->kind == HD_STMT_OP
               ? hd_op_is(stmt->op, HD_UNIT_TRANSFER)
               : transfers(&stmt->body) || transfers(&stmt->otherwise);
}

// An iteration is lets, then transfers, then what computes.
static bool can_split(const loop *l)
{
    const hd_stmt *s = l->on->body.first;
    bool moved = false;

    while (s != NULL && s->kind == HD_STMT_LET)
        s = s->next;
    for (; s != NULL && is_transfer(s); s = s->next)
        moved = true;
    for (; s != NULL; s = s->next)
        if (is_transfer(s) || s->kind == HD_STMT_LET)
            return false;
    return moved && !l->unknown;
}

// Moves what `sends` asks for - the sends, or everything else - of a block of
// transfers into a block of its own; groups and branches that stay empty go.
static hd_block part_of(loop *l, const hd_block *block, bool sends)
{
    hd_block part = {0};

    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        hd_stmt *copy = hd_stmt_new(l->module, s->kind, s->loc);

        copy->a = s->a;
        copy->op = s->op;
        if (s->kind == HD_STMT_OP) {
            if ((s->op->code == HD_OP_SEND) == sends)
                hd_block_append(&part, copy);
            continue;
        }
        copy->body = part_of(l, &s->body, sends);
        copy->otherwise = part_of(l, &s->otherwise, sends);
        if (copy->body.first != NULL || copy->otherwise.first != NULL)
            hd_block_append(&part, copy);
    }
    return part;
}

static bool all_deferred(const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        if (s->kind != HD_STMT_OP &&
            (!all_deferred(&s->body) || !all_deferred(&s->otherwise)))
            return false;
        if (s->kind == HD_STMT_OP && s->op->code != HD_OP_RECV &&
            s->op->code != HD_OP_COPY && hd_op_key(s->op, HD_KEY_DONE) == NULL)
            return false;
    }
    return true;
}

// Lets go to the loop itself, transfers to `moved` and the rest to `computed`.
static hd_block sort_iteration(loop *l, hd_block *moved, hd_block *computed)
{
    hd_block lets = {0};
    hd_stmt *next;

    for (hd_stmt *s = l->on->body.first; s != NULL; s = next) {
        next = s->next;
        hd_block_append(s->kind == HD_STMT_LET ? &lets
                        : is_transfer(s)       ? moved
                                               : computed,
                        s);
    }
    return lets;
}

static void finish_split(loop *l, hd_block lets, hd_block moved,
                         hd_block computed)
{
    hd_stmt *on = hd_stmt_new(l->module, HD_STMT_ON, l->on->loc);

    on->a = hd_expr_const(l->module, l->module->streams - 1);
    on->body = moved;
    l->on->body = computed;
    hd_block_append(&lets, on);
    hd_block_append(&lets, l->on);
    l->stmt->body = lets;
}

// Iterations that wait for no other: the stream for transfers only sends, and
// what an iteration receives it waits for itself, so that no send waits for an
// arrival.
static void split_sends(loop *l)
{
    hd_block moved = {0}, computed = {0}, all = {0};
    hd_block lets = sort_iteration(l, &moved, &computed);
    hd_stmt *next;

    all = part_of(l, &moved, false);
    for (hd_stmt *s = computed.first; s != NULL; s = next) {
        next = s->next;
        hd_block_append(&all, s);
    }
    finish_split(l, lets, part_of(l, &moved, true), all);
}

static void split_iteration(loop *l, hd_buffer *hop)
{
    hd_module *m = l->module;
    hd_expr j = hd_expr_of_var(m, l->stmt->var), lag = hd_expr_const(m, l->lag);
    hd_block moved = {0}, computed = {0}, lets;
    hd_stmt *wait = hd_stmt_op(m, HD_OP_WAIT, -1, 0, 1, 0, l->stmt->loc);
    hd_stmt *record;

    wait->op->view[0] = event_at(l, hop, j);
    if (l->lag > 0)
        wait = guarded(l, wait, hd_expr_binary(m, HD_EXPR_LE, lag, j));
    hd_block_append(&computed, wait);
    lets = sort_iteration(l, &moved, &computed);
    record = record_stmt(
        l, hop, l->lag > 0 ? hd_expr_binary(m, HD_EXPR_ADD, j, lag) : j);
    if (l->lag > 0)
        record =
            guarded(l, record,
                    hd_expr_binary(m, HD_EXPR_LT, j,
                                   hd_expr_const(m, l->iterations - l->lag)));
    hd_block_append(&moved, record);
    finish_split(l, lets, moved, computed);
}

static bool sends_are_deferred(const loop *l)
{
    for (const hd_stmt *s = l->on->body.first; s != NULL; s = s->next) {
        if (s->kind != HD_STMT_LET && is_transfer(s) &&
            (s->kind == HD_STMT_OP ||
             !(all_deferred(&s->body) && all_deferred(&s->otherwise))))
            return false;
    }
    return true;
}

static const char *why_not_split(const loop *l)
{
    for (const hd_stmt *s = l->on->body.first; s != NULL; s = s->next)
        if (is_transfer(s))
            return l->unknown ? "what its iterations touch is not known here"
                   : can_split(l)
                       ? "no event an iteration would order its transfers "
                         "and what it computes"
                       : "some of what it computes stands before its transfers";
    return "nothing in the loop is transferred";
}

// False if no such order is enough: nothing is changed then.
static bool split_loop(loop *l, hd_block *done)
{
    hd_type type = {.dtype = HD_EVENT, .ndims = 1};
    bool apart = !l->sends_fail && sends_are_deferred(l);
    hd_buffer *hop;

    if (!can_split(l) || (!apart && (l->events_fail || l->lag < 0)))
        return false;
    add_fork(l, done);
    if (apart) {
        split_sends(l);
        return true;
    }
    type.dim[0] = (hd_dim){l->iterations, HD_LOCAL};
    hop = hd_module_add_buffer(l->module, "hop", HD_TEMP, &type);
    hop->loc = l->stmt->loc;
    split_iteration(l, hop);
    return true;
}

// The loop loses its streams: those who asked for anything hear of it.
static void report_one_stream(const loop *l, hd_effect *effect)
{
    effect->warned |= HD_OPTION_STREAMS;
    if (effect->asked == 0 || hd_expr_is_const(l->module, l->on->a))
        return;
    hd_warning(l->diag, HD_E0504, l->stmt->loc,
               "the loop runs on one stream: %s",
               l->unknown ? "what its iterations touch is not known here"
                          : "its iterations wait for each other at several "
                            "distances, which no one event orders");
}

static void order_loop(loop *l, hd_block *done, hd_effect *effect)
{
    hd_type type = {.dtype = HD_EVENT, .ndims = 1};
    bool chained = l->distance == 1;
    hd_buffer *hop;

    if (l->varied || l->unknown) {
        report_one_stream(l, effect);
        l->on->a = hd_expr_const(l->module, 0);
        l->distance = 0;
    }
    if (l->distance == 0) {
        add_fork(l, done);
        return;
    }
    type.dim[0] = (hd_dim){l->iterations, HD_LOCAL};
    hop = hd_module_add_buffer(l->module, "hop", HD_TEMP, &type);
    hop->loc = l->stmt->loc;
    if (chained)
        hd_block_append(done, record_stmt(l, hop, hd_expr_const(l->module, 0)));
    else
        add_fork(l, done);
    add_wait(l, hop, chained);
    add_record(l, hop);
}

// ---------------------------------------------------------------- the pass

// for j in 0..CONST { on stream EXPR { .. } }
static bool is_loop(loop *l, hd_stmt *stmt)
{
    hd_stmt *on = stmt->body.first;

    if (stmt->kind != HD_STMT_FOR || on == NULL || on->next != NULL ||
        on->kind != HD_STMT_ON || !hd_expr_is_const(l->module, stmt->b))
        return false;
    l->stmt = stmt;
    l->on = on;
    l->iterations = hd_expr_value(l->module, stmt->b);
    l->unknown |= !hd_expr_is_const(l->module, stmt->a) ||
                  hd_expr_value(l->module, stmt->a) != 0 ||
                  l->iterations > MANY_ITERATIONS;
    return true;
}

static void order(loop *l, hd_block *done, hd_effect *effect)
{
    if (l->iterations == 1 && l->module->nranks > 1)
        hd_effect_none(effect, HD_OPTION_STREAMS, l->diag, l->stmt->loc,
                       "the loop has one iteration");
    if (l->split && split_loop(l, done)) {
        effect->used |= HD_OPTION_COMM_STREAM | HD_OPTION_STREAMS;
        return;
    }
    if (l->split)
        hd_effect_none(effect, HD_OPTION_COMM_STREAM, l->diag, l->stmt->loc,
                       why_not_split(l));
    order_loop(l, done, effect);
    effect->used |= HD_OPTION_STREAMS;
}

// Nothing else is held where the arena may run out.
static hd_status find_frames(loop *l)
{
    size_t n = (size_t)l->module->nbuffers;
    hd_frame *kept = hd_new_array(l->scratch, hd_frame, n + 1), *found;

    HD_TRY(hd_frames_create(l->module, l->diag, &found));
    memcpy(kept, found, sizeof *kept * n);
    free(found);
    l->frame = kept;
    return HD_OK;
}

hd_status hd_pass_event(hd_module *module, const hd_lower_options *options,
                        hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    hd_block done = {0};
    hd_stmt *next;
    loop base = {.module = module,
                 .scratch = scratch,
                 .diag = diag,
                 .split = options->comm_stream};

    base.vars = hd_new_array(scratch, int64_t, module->nvars + 1);
    base.env.var = base.vars;
    HD_TRY(find_frames(&base));
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = next) {
        loop l = base;

        next = stmt->next;
        // What a variable of the whole program holds is not evaluated here.
        base.unknown |= stmt->kind == HD_STMT_LET;
        if (!is_loop(&l, stmt)) {
            hd_block_append(&done, stmt);
            continue;
        }
        l.written = hd_new_array(scratch, bool, module->nbuffers + 1);
        hd_block_each(&l.on->body, note_written, l.written);
        find_conflicts(&l);
        order(&l, &done, effect);
        hd_block_append(&done, stmt);
        hd_block_append(&done,
                        hd_stmt_op(module, HD_OP_JOIN, -1, 0, 0, 0, stmt->loc));
    }
    module->body = done;
    return HD_OK;
}
