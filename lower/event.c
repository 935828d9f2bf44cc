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
// A chain orders iterations at multiples of its distance, too, as those that
// all add to the same. Where iterations transfer, those that wait for what
// others compute do so by a chain of its own, so that no transfer waits for
// what is only added up:
//
//     j:   wait %hop[j]  ..  recv  %hop[j + 1] = record
//          wait %sum[j]  accumulate  %sum[j + 1] = record
//
// Iterations whose conflicts no such chain orders are put on one stream, and so
// are those of a loop of another form, which only a text that goes on from here
// can have.
//
// With a stream of its own for transfers, what an iteration transfers goes
// there and what it computes stays, so that no matmul stands in the way of a
// transfer:
//
//     on stream S:         send  recv  %hop[j + d] = record
//     on stream j mod S:   wait %hop[j]  ..  compute
//
// where d is how many iterations later that is computed on which arrives; and
// the other way round where what is computed is sent:
//
//     on stream j mod S:   compute  %made[j + d] = record
//     on stream S:         wait %made[j]  ..  send  recv
//
// or, where sends are deferred and touch nothing that arrives or is computed,
// even without events:
//
//     on stream S:         send
//     on stream j mod S:   recv  ..  compute
//
// What an iteration computes on what it received, and sends, stays where it is.
// Neither is done unless the views of every iteration say that it orders them
// all. What is a transfer its op says, and what follows what its views: a loop
// that a text has is ordered as one that the pass before has just written.
#include <stdlib.h>
#include <string.h>

#include "lower/body.h"
#include "lower/build.h"
#include "steps/part.h"

enum {
    MANY_RANKS = 64,           // beyond it, three ranks stand for all
    MANY_ITERATIONS = 1 << 18, // beyond it, a loop gets one stream
    MOST_DISTANCES = 8,        // that are told apart
    NEAREST = 64,              // of those that name the same
};

// Conflicts between iterations on different streams whose first one transfers,
// or whose first one computes.
typedef struct chain {
    int64_t least, most; // distance; 0: none
    int64_t common;      // divisor of all distances
    int first, last;     // statement that waits, that is waited for
} chain;

// Before a statement of the iterations from `from` on and before `end`, its
// stream waits for what the iteration `lag` earlier has done up to statement
// `last`; without any conflict `lag` is -1.
typedef struct link {
    int64_t lag, from, end;
    int last;
    hd_buffer *event;
} link;

// Of an iteration, outermost. Where transfers have a stream of their own, those
// of a statement may wait for what is computed, and what it computes for
// transfers.
typedef struct statement {
    const hd_stmt *stmt;
    bool moves; // some of it is a transfer
    bool stays; // on the iteration's stream, all the same
    link made, hop;
} statement;

typedef struct access {
    hd_part part;
    int root;          // id
    int64_t low, high; // elements, of the whole range
    int64_t iteration, stream;
    statement *of;
    const hd_op *op;
    int number; // of the op among those of an iteration
    int place;  // in the order of issue
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
    hd_part_frame *frame; // by buffer id
    statement *statement;
    int nstatements;
    const hd_op **op; // all of an iteration
    int nops, ops_room;
    int number; // of the op that was evaluated last
    access *access;
    int naccesses, room;
    bool *written; // by buffer id
    // What was found.
    bool moves;    // something is transferred
    bool computes; // and something computed
    bool syncs;    // something waits for an event of the text's own, or records
    bool holds;    // not all of it lets its stream go on before it has left
    bool unknown;  // the iterations cannot be evaluated
    bool inside;   // a loop in an iteration is evaluated
    // How many iterations apart, from the least on; if there are as many as
    // there is room for, there may be more.
    int64_t distance[MOST_DISTANCES];
    int ndistances;
    chain chain[2]; // of what is computed, of what is transferred
    // With a stream for transfers: whether events do not order all, nor sends
    // apart do.
    bool split;
    bool others; // collectives outside of loops may use it
    bool taken;  // an iteration runs on that stream
    bool events_fail, sends_fail;
} loop;

// The first statement of an iteration that does anything.
static int find_start(const loop *l)
{
    int n = 0;

    while (n < l->nstatements && l->statement[n].stmt->kind == HD_STMT_LET)
        n++;
    return n;
}

// The statement ahead of which iterations wait: where they transfer, that which
// needs what others compute; else they begin with it.
static int find_wait(const loop *l, const chain *c)
{
    return l->moves && c == &l->chain[0] ? c->first : find_start(l);
}

// Whether one event an iteration orders all of it: those at a multiple of the
// least distance by way of those between, which wait before they record. Where
// nothing of an iteration stands before or behind that, streams gain nothing.
static bool can_order(const loop *l, const chain *c)
{
    int first = find_wait(l, c);
    bool all = first == find_start(l) && c->last == l->nstatements - 1;

    return c->least == c->common &&
           (c->least == c->most || (first <= c->last && !all));
}

// Nothing that is still to be found would change what is done.
static bool is_settled(const loop *l)
{
    return l->unknown ||
           (l->ndistances == MOST_DISTANCES &&
            !(can_order(l, &l->chain[0]) && can_order(l, &l->chain[1])) &&
            (!l->split || (l->events_fail && l->sends_fail)));
}

// -------------------------------------------------------------- evaluation

// What the view keeps of a dimension; true if that is nothing.
static bool is_empty(const loop *l, const hd_view *view, int i, int64_t *low,
                     int64_t *extent)
{
    const hd_range *range = hd_view_range(view, i);
    int64_t past = 0;

    if (range == NULL)
        return false;
    (void)hd_expr_eval(l->module, range->low, &l->env, low);
    (void)hd_expr_eval(l->module, range->past, &l->env, &past);
    *extent = past - *low;
    if (hd_dim_is_sharded(view->buffer->type.dim[i]))
        *low = 0;
    return *extent <= 0;
}

// The number of what a part with ranges keeps, in a table of its frame.
static uint32_t number_lengths(loop *l, hd_part_frame *frame,
                               const hd_lengths *lengths)
{
    int64_t i = frame->nlengths;

    while (i > 0 && memcmp(&frame->lengths[i - 1], lengths, sizeof *lengths))
        i--;
    if (i > 0)
        return (uint32_t)i;
    if (frame->nlengths == frame->lengths_room) {
        hd_lengths *more;

        frame->lengths_room = 2 * frame->lengths_room + 4;
        more = hd_new_array(l->scratch, hd_lengths, frame->lengths_room);
        if (frame->nlengths > 0)
            memcpy(more, frame->lengths,
                   sizeof *more * (size_t)frame->nlengths);
        frame->lengths = more;
    }
    frame->lengths[frame->nlengths++] = *lengths;
    l->unknown |= frame->nlengths == HD_MAX_LENGTHS;
    return (uint32_t)frame->nlengths;
}

// An index that has no value is reported by the walk. False of a view that
// keeps nothing.
static bool find_part(loop *l, const hd_view *view, hd_part *out)
{
    hd_part_frame *frame = &l->frame[view->buffer->id];
    hd_span span = {.buffer = view->buffer};
    hd_lengths lengths = {{0}};
    bool all = true;

    for (int i = 0; i < frame->ndims; i++) {
        int64_t value = 0;

        lengths.extent[i] = hd_view_picks(view, i) ? 1 : frame->extent[i];
        if (is_empty(l, view, i, &value, &lengths.extent[i]))
            return false;
        if (hd_view_picks(view, i) &&
            !hd_dim_is_sharded(view->buffer->type.dim[i]))
            (void)hd_expr_eval(l->module, view->index[i], &l->env, &value);
        all &= hd_view_picks(view, i) || lengths.extent[i] == frame->extent[i];
        span.offset += value * frame->stride[i];
    }
    *out = hd_part_make(frame, view, &span);
    if (!all)
        out->ranges = number_lengths(l, frame, &lengths) & (HD_MAX_LENGTHS - 1);
    return true;
}

static access *add_access(loop *l)
{
    l->access = hd_arena_grow(l->scratch, l->access, l->naccesses, &l->room,
                              sizeof *l->access);
    return &l->access[l->naccesses++];
}

// A root without a value is reported by the walk.
static bool is_root(const loop *l, const hd_op *op)
{
    int64_t root = -1;

    if (hd_op_is_rooted(op))
        (void)hd_expr_eval(l->module, hd_op_key(op, HD_KEY_ROOT)->expr, &l->env,
                           &root);
    return root >= 0 && root == l->env.coord[op->axis];
}

static void evaluate_op(loop *l, const hd_op *op, statement *of)
{
    bool root = is_root(l, op);

    // They are evaluated as they are listed, but for what is left out.
    for (int i = 0; i < l->nops && l->op[l->number] != op; i++)
        l->number = (l->number + 1) % l->nops;
    for (int i = 0; i < op->nviews; i++) {
        hd_buffer *whole = hd_buffer_root(op->view[i].buffer);
        access *a;
        hd_part part;

        if (!l->written[whole->id] || whole->type.dtype == HD_DTYPE_EVENT ||
            !hd_op_touches(op, i, root) || !find_part(l, &op->view[i], &part))
            continue;
        a = add_access(l);
        *a = (access){.part = part,
                      .root = whole->id,
                      .iteration = l->vars[l->stmt->var],
                      .stream = l->stream,
                      .of = of,
                      .op = op,
                      .number = l->number,
                      .place = l->naccesses};
        a->part.access = hd_op_access(op, i) & 3;
        a->part.view = (uint32_t)i & 31;
        hd_part_range(&l->frame[a->part.buffer], &a->part, &a->low, &a->high);
    }
}

static void evaluate_block(loop *l, const hd_block *block, statement *of);

// A loop over shards in an iteration; no pass makes one in that.
static void evaluate_for(loop *l, const hd_stmt *stmt, statement *of)
{
    int64_t *i = &l->vars[stmt->var], end = 0;

    l->unknown |=
        l->inside || !hd_expr_eval(l->module, stmt->a, &l->env, i) ||
        !hd_expr_eval(l->module, stmt->b, &l->env, &end) ||
        (*i < end && (*i < 0 || end - *i > MANY_ITERATIONS / l->iterations));
    l->inside = true;
    for (; *i < end && !l->unknown; (*i)++)
        evaluate_block(l, &stmt->body, of);
    l->inside = false;
}

// Of an iteration itself, `of` is each of its statements in turn.
static void evaluate_block(loop *l, const hd_block *block, statement *of)
{
    int n = 0;

    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        statement *in = of != NULL ? of : &l->statement[n++];
        int64_t value = 0;

        switch (s->kind) {
        case HD_STMT_OP:
            evaluate_op(l, s->op, in);
            break;
        case HD_STMT_LET:
            (void)hd_expr_eval(l->module, s->a, &l->env, &l->vars[s->var]);
            break;
        case HD_STMT_IF:
            (void)hd_expr_eval(l->module, s->a, &l->env, &value);
            evaluate_block(l, value != 0 ? &s->body : &s->otherwise, in);
            break;
        case HD_STMT_FOR:
            evaluate_for(l, s, in);
            break;
        case HD_STMT_ON:
        case HD_STMT_GROUP:
        case HD_STMT_LAUNCH:
            evaluate_block(l, &s->body, in);
        }
    }
}

static void note_op(void *context, hd_op *op)
{
    loop *l = context;
    bool moves = hd_op_is(op, HD_UNIT_TRANSFER);

    l->op =
        hd_arena_grow(l->scratch, l->op, l->nops, &l->ops_room, sizeof *l->op);
    l->op[l->nops++] = op;
    l->statement[l->nstatements].moves |= moves;
    l->moves |= moves;
    l->computes |= hd_op_is(op, HD_UNIT_COMPUTE);
    l->syncs |= hd_op_is(op, HD_UNIT_SYNC);
    l->holds |=
        moves && op->code != HD_OP_RECV && hd_op_key(op, HD_KEY_DONE) == NULL;
    for (int i = 0; i < op->nviews; i++)
        if (hd_op_access(op, i) != HD_ACCESS_READ)
            l->written[hd_buffer_root(op->view[i].buffer)->id] = true;
}

static void note_statements(loop *l)
{
    int n = 0;

    for (const hd_stmt *s = l->on->body.first; s != NULL; s = s->next)
        n++;
    l->statement = hd_new_array(l->scratch, statement, n + 1);
    l->written = hd_new_array(l->scratch, bool, l->module->nbuffers + 1);
    for (const hd_stmt *s = l->on->body.first; s != NULL; s = s->next) {
        l->statement[l->nstatements] =
            (statement){.stmt = s, .made.lag = -1, .hop.lag = -1};
        hd_stmt_each(s, note_op, l);
        l->nstatements++;
    }
}

// --------------------------------------------------------------- conflicts

// Whether an op goes to the stream for transfers: a transfer, or a copy beside
// one, which moves the local shard.
static bool is_moved(const statement *of, const hd_op *op)
{
    return !of->stays && (hd_op_is(op, HD_UNIT_TRANSFER) ||
                          (of->moves && hd_op_family(op) == HD_FAMILY_COPY));
}

// What is computed waits for the iterations that it has a conflict with, each
// by the latest arrival: the stream for transfers is in order. That stream
// waits for every iteration that computes what it moves, each on a stream of
// its own.
static void note_link(const loop *l, link *k, const access *first,
                      const access *second)
{
    int64_t lag = second->iteration - first->iteration;
    int at = (int)(first->of - l->statement);
    bool arrives = k == &second->of->hop, none = k->lag < 0;
    int64_t waits = arrives ? second->iteration : first->iteration;

    k->from = none || waits < k->from ? waits : k->from;
    k->end = none || waits >= k->end ? waits + 1 : k->end;
    if (none || (arrives && lag < k->lag) ||
        ((!arrives || lag == k->lag) && at > k->last))
        k->last = at;
    k->lag = none || lag < k->lag ? lag : k->lag;
}

// Of two conflicting accesses, what becomes of their order when transfers, or
// sends alone, get a stream of their own.
static void note_split(loop *l, const access *first, const access *second)
{
    bool moves = is_moved(first->of, first->op);
    bool apart = first->stream != second->stream;
    bool sends = first->op->code == HD_OP_SEND;

    l->sends_fail |=
        sends != (second->op->code == HD_OP_SEND) || (!sends && apart);
    if (moves == is_moved(second->of, second->op)) {
        l->events_fail |= !moves && apart;
        return;
    }
    l->events_fail |=
        first->of == second->of && first->iteration == second->iteration;
    note_link(l, moves ? &second->of->hop : &second->of->made, first, second);
}

static void note_distance(loop *l, int64_t distance)
{
    int i = 0, n = l->ndistances;

    while (i < n && l->distance[i] < distance)
        i++;
    if (n == MOST_DISTANCES || (i < n && l->distance[i] == distance))
        return;
    memmove(&l->distance[i + 1], &l->distance[i],
            sizeof *l->distance * (size_t)(n - i));
    l->distance[i] = distance;
    l->ndistances++;
}

static int64_t divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : divisor(b, a % b);
}

static void note_chain(loop *l, const access *first, const access *second)
{
    chain *c = &l->chain[first->of->moves];
    int64_t distance = second->iteration - first->iteration;
    int waits = (int)(second->of - l->statement);
    int last = (int)(first->of - l->statement);
    bool none = c->least == 0;

    c->least = none || distance < c->least ? distance : c->least;
    c->most = none || distance > c->most ? distance : c->most;
    c->common = divisor(distance, c->common);
    c->first = none || waits < c->first ? waits : c->first;
    c->last = none || last > c->last ? last : c->last;
}

static bool conflicts(const loop *l, const access *a, const access *b)
{
    return (hd_part_writes(&a->part) || hd_part_writes(&b->part)) &&
           hd_parts_overlap(l->frame, &a->part, &b->part);
}

static void note_conflict(loop *l, const access *a, const access *b)
{
    const access *first = a->place < b->place ? a : b;
    int64_t distance = llabs(a->iteration - b->iteration);

    note_split(l, first, first == a ? b : a);
    if (a->stream == b->stream)
        return;
    note_distance(l, distance);
    note_chain(l, first, first == a ? b : a);
}

static int compare_accesses(const void *x, const void *y)
{
    const access *a = x, *b = y;

    if (a->root != b->root)
        return a->root < b->root ? -1 : 1;
    if (a->low != b->low)
        return a->low < b->low ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    if (a->part.view != b->part.view)
        return a->part.view < b->part.view ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

// Whether one view of an op names the same in both.
static bool is_same_view(const access *a, const access *b)
{
    return a->op == b->op && a->part.view == b->part.view &&
           a->part.ranges == b->part.ranges && a->part.offset == b->part.offset;
}

// As many from `first` on as name the same, in the order of issue.
static int count_same(const loop *l, int first)
{
    int n = 1;

    while (first + n < l->naccesses &&
           is_same_view(&l->access[first], &l->access[first + n]))
        n++;
    return n;
}

// The first of them that is issued behind `place`.
static int find_behind(const access *same, int n, int place)
{
    int low = 0, high = n;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (same[middle].place <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void compare_range(loop *l, const access *a, const access *same,
                          int from, int end)
{
    for (int i = from; i < end && !is_settled(l); i++)
        if (&same[i] != a)
            note_conflict(l, a, &same[i]);
}

// With the NEAREST on either side and as many at either end: what lies between
// is as far from others, by the same divisor, and waits for nobody else.
static void compare_nearest(loop *l, const access *a, const access *same, int n)
{
    int at = find_behind(same, n, a->place);
    int low = at > 2 * NEAREST ? at - NEAREST : 0;
    int high = n - at > 2 * NEAREST ? at + NEAREST : n;

    compare_range(l, a, same, low, high);
    if (low > 0)
        compare_range(l, a, same, 0, NEAREST);
    if (high < n)
        compare_range(l, a, same, n - NEAREST, n);
}

// Accesses that name the same are compared with all others together.
static void compare_iterations(loop *l)
{
    int n, more;

    if (l->naccesses == 0)
        return;
    qsort(l->access, (size_t)l->naccesses, sizeof *l->access, compare_accesses);
    for (int i = 0; i < l->naccesses; i += n) {
        const access *a = &l->access[i];

        n = count_same(l, i);
        if (n > 1 && conflicts(l, a, a))
            for (int k = 1; k < n; k++)
                compare_nearest(l, &a[k], a, k);
        for (int k = i + n; k < l->naccesses && l->access[k].root == a->root &&
                            l->access[k].low < a->high && !is_settled(l);
             k += more) {
            more = count_same(l, k);
            if (conflicts(l, a, &l->access[k]))
                for (int m = 0; m < n; m++)
                    compare_nearest(l, &a[m], &l->access[k], more);
        }
    }
}

static void evaluate_rank(loop *l, int64_t rank)
{
    for (int i = 0; i < l->module->naxes; i++)
        l->env.coord[i] = hd_mesh_coord(l->module, rank, i);
    l->naccesses = 0;
    for (int64_t iteration = 0; iteration < l->iterations; iteration++) {
        l->vars[l->stmt->var] = iteration;
        l->unknown |= !hd_expr_eval(l->module, l->on->a, &l->env, &l->stream);
        l->taken |= l->stream == l->module->streams - 1;
        evaluate_block(l, &l->on->body, NULL);
    }
    compare_iterations(l);
}

static void find_conflicts(loop *l)
{
    int64_t n = l->module->nranks;
    int64_t some[3] = {0, 1, n - 1};
    bool many = n > MANY_RANKS;

    if (l->unknown || (!l->split && hd_expr_is_const(l->module, l->on->a)))
        return;
    for (int64_t i = 0; i < (many ? 3 : n) && !is_settled(l); i++)
        evaluate_rank(l, many ? some[i] : i);
}

// ------------------------------------------------------------------ events

// That the iteration is from `from` on and before `end`; HD_EXPR_NONE if all
// are.
static hd_expr within(const loop *l, int64_t from, int64_t end)
{
    hd_module *m = l->module;
    hd_expr j = hd_expr_of_var(m, l->stmt->var);
    hd_expr least = hd_expr_binary(m, HD_EXPR_LE, hd_expr_const(m, from), j);
    hd_expr less = hd_expr_binary(m, HD_EXPR_LT, j, hd_expr_const(m, end));

    if (from > 0 && end < l->iterations)
        return hd_expr_binary(m, HD_EXPR_AND, least, less);
    return from > 0 ? least : end < l->iterations ? less : HD_EXPR_NONE;
}

// In those iterations that wait.
static void emit_wait(const loop *l, hd_build b, const link *k)
{
    hd_expr some = within(l, k->from, k->end);
    hd_build none;

    if (some != HD_EXPR_NONE)
        b = hd_build_if(&b, some, &none);
    hd_build_event(&b, HD_OP_WAIT, k->event,
                   hd_expr_of_var(l->module, l->stmt->var));
}

// For the iteration `lag` later, if that waits. What follows `after`, which has
// that condition itself, goes in there.
static void emit_record(const loop *l, hd_build b, const link *k,
                        hd_stmt *after)
{
    hd_module *m = l->module;
    hd_expr j = hd_expr_of_var(m, l->stmt->var);
    hd_expr some = within(l, k->from - k->lag, k->end - k->lag);
    hd_build none;

    if (after != NULL && after->kind == HD_STMT_IF && after->a == some &&
        after->otherwise.first == NULL)
        b.block = &after->body;
    else if (some != HD_EXPR_NONE)
        b = hd_build_if(&b, some, &none);
    if (k->lag > 0)
        j = hd_expr_binary(m, HD_EXPR_ADD, j, hd_expr_const(m, k->lag));
    hd_build_event(&b, HD_OP_RECORD, k->event, j);
}

// A wait before the first statement that needs one, and a record behind the
// last that is waited for. The `chained` link begins on the caller's stream.
static void add_events(loop *l, const link hop[2], const int first[2],
                       const link *chained)
{
    link all = {.end = l->iterations};
    hd_block *body = &l->on->body;
    hd_build b = {l->module, body, l->stmt->loc};
    hd_stmt *next = body->first;
    int n = 0;

    *body = (hd_block){0};
    for (hd_stmt *s = next; s != NULL; s = next, n++) {
        next = s->next;
        for (int i = 1; i >= 0; i--) {
            all.event = hop[i].event;
            if (hop[i].event != NULL && first[i] == n)
                emit_wait(l, b, &hop[i] == chained ? &all : &hop[i]);
        }
        hd_block_append(body, s);
        for (int i = 1; i >= 0; i--)
            if (hop[i].event != NULL && hop[i].last == n)
                emit_record(l, b, &hop[i], s);
    }
}

// --------------------------------------------------- a stream for transfers

// Which ops of a statement go to the stream for transfers.
typedef bool part_fn(const statement *of, const hd_op *op);

static bool is_send(const statement *of, const hd_op *op)
{
    (void)of;
    return op->code == HD_OP_SEND;
}

// What a stream gets of an iteration.
typedef struct part {
    hd_module *module;
    const statement *of;
    part_fn *moved;
    bool moves; // what is moved, or everything else
} part;

static void append_part(const part *p, const hd_stmt *stmt, hd_block *out);

static hd_block part_of(const part *p, const hd_block *block)
{
    hd_block rest = {0};

    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        append_part(p, s, &rest);
    return rest;
}

// Groups and branches that stay empty go.
static void append_part(const part *p, const hd_stmt *stmt, hd_block *out)
{
    hd_stmt *copy = hd_stmt_new(p->module, stmt->kind, stmt->loc);

    copy->a = stmt->a;
    copy->b = stmt->b;
    copy->var = stmt->var;
    copy->op = stmt->op;
    copy->body = part_of(p, &stmt->body);
    copy->otherwise = part_of(p, &stmt->otherwise);
    if (stmt->kind == HD_STMT_OP
            ? p->moved(p->of, stmt->op) == p->moves
            : stmt->kind == HD_STMT_LET || copy->body.first != NULL ||
                  copy->otherwise.first != NULL)
        hd_block_append(out, copy);
}

// ---------------------------------------- which events order the two of them

// Of those that wait for transfers, or those that transfers wait for.
static link *link_of(const loop *l, int i, bool arrives)
{
    return arrives ? &l->statement[i].hop : &l->statement[i].made;
}

// Where the wait of one statement may be for what a later one waits for, too,
// that waits no more.
static void merge_links(loop *l, bool arrives)
{
    link *k = NULL;
    int at = 0;

    for (int i = 0; i < l->nstatements; i++) {
        link *next = link_of(l, i, arrives);

        if (next->lag < 0)
            continue;
        if (k == NULL || next->lag != k->lag ||
            (k->lag == 0 && next->last >= at)) {
            k = next;
            at = i;
            continue;
        }
        k->from = next->from < k->from ? next->from : k->from;
        k->end = next->end > k->end ? next->end : k->end;
        k->last = next->last > k->last ? next->last : k->last;
        next->lag = -1;
    }
}

// Transfers follow each other on their stream: what a later statement of an
// earlier iteration has waited for, the next ones need not.
static bool is_implied(const loop *l, const link *made)
{
    for (int i = 0; i < l->nstatements; i++) {
        const link *before = &l->statement[i].made;
        int64_t earlier = made->lag - before->lag;

        if (before->lag >= 0 && earlier > 0 && before->last >= made->last &&
            before->from <= made->from - earlier &&
            made->end - earlier <= before->end)
            return true;
    }
    return false;
}

// A wait must come after its record, also in one iteration.
static bool find_links(loop *l)
{
    for (int i = 0; i < l->nstatements; i++) {
        link *made = &l->statement[i].made;

        if (made->lag < 0)
            continue;
        if (made->lag == 0 && made->last >= i)
            return false;
        made->from += made->lag;
        made->end += made->lag;
    }
    merge_links(l, false);
    merge_links(l, true);
    for (int i = 0; i < l->nstatements; i++)
        if (l->statement[i].made.lag > 0 &&
            is_implied(l, &l->statement[i].made))
            l->statement[i].made.lag = -1;
    return true;
}

// Whether what is computed waits for any.
static bool name_events(loop *l)
{
    bool hops = false;

    for (int i = 0; i < l->nstatements; i++)
        for (int arrives = 0; arrives < 2; arrives++) {
            link *k = link_of(l, i, arrives);

            if (k->lag >= 0)
                k->event = hd_build_events(l->module, arrives ? "hop" : "made",
                                           l->iterations, l->stmt->loc);
            hops |= k->lag >= 0 && arrives;
        }
    return hops;
}

// Of the last iteration's, if there is any.
static hd_expr stream_of_last(const loop *l)
{
    if (l->iterations == 0)
        return HD_EXPR_NONE;
    return hd_expr_replace(l->module, l->on->a, l->stmt->var,
                           hd_expr_const(l->module, l->iterations - 1));
}

// One of the two parts of statement `i`, on its stream: behind what is on that
// already, if the other has got nothing since.
static void emit_part(const loop *l, hd_block *out, int i, part_fn *moved,
                      bool moves)
{
    const statement *of = &l->statement[i];
    part p = {l->module, of, moved, moves};
    const link *wait = link_of(l, i, !moves);
    hd_build b = {l->module, out, l->stmt->loc};
    hd_expr stream =
        moves ? hd_expr_const(l->module, l->module->streams - 1) : l->on->a;
    hd_block mine = {0};

    if (of->stmt->kind != HD_STMT_LET)
        append_part(&p, of->stmt, &mine);
    if (mine.first == NULL)
        return;
    if (out->last == NULL || out->last->kind != HD_STMT_ON ||
        out->last->a != stream)
        (void)hd_build_on(&b, stream);
    b.block = &out->last->body;
    if (wait->event != NULL)
        emit_wait(l, b, wait);
    hd_block_append(b.block, mine.first);
    for (int k = 0; k < l->nstatements; k++) {
        const link *record = link_of(l, k, moves);

        if (record->event != NULL && record->last == i)
            emit_record(l, b, record, mine.first);
    }
}

// Lets go to the loop itself; transfers, or the sends of them, to the stream
// for transfers. With sends `apart` an iteration waits itself for what it
// receives, so that no send waits for an arrival.
static void split_iteration(loop *l, bool apart)
{
    hd_block body = {0};
    hd_stmt *next;

    for (hd_stmt *s = l->on->body.first; s != NULL; s = next) {
        next = s->next;
        if (s->kind == HD_STMT_LET)
            hd_block_append(&body, s);
    }
    for (int i = 0; i < l->nstatements; i++) {
        emit_part(l, &body, i, apart ? is_send : is_moved, true);
        if (!apart)
            emit_part(l, &body, i, is_moved, false);
    }
    for (int i = 0; i < l->nstatements && apart; i++)
        emit_part(l, &body, i, is_send, false);
    l->stmt->body = body;
}

static const char *why_not_split(const loop *l)
{
    return !l->moves    ? "nothing in the loop is transferred"
           : l->syncs   ? "its iterations wait for events of their own, or "
                          "record some"
           : l->unknown ? "what its iterations touch is not known here"
           : l->taken   ? "its iterations run on the last stream of the "
                          "program, which would be for transfers"
                        : "no event an iteration would order its transfers "
                          "and what it computes";
}

// False if no such order is enough: nothing is changed then.
static bool split_loop(loop *l, hd_ordered *out)
{
    hd_build b = {l->module, &out->block, l->stmt->loc};
    bool apart = !l->sends_fail && !l->holds;

    if (!l->moves || l->syncs || l->unknown || l->taken ||
        (!apart && (l->events_fail || !l->computes || !find_links(l))))
        return false;
    hd_build_op(&b, HD_OP_FORK, -1, 0, 0, NULL);
    out->forks = true;
    if (!apart)
        out->behind = name_events(l) ? HD_EXPR_NONE : stream_of_last(l);
    split_iteration(l, apart);
    return true;
}

// "1, 2 and 4"; where there may be more than are known, they "and more".
static const char *distances_text(const loop *l)
{
    bool all = l->ndistances < MOST_DISTANCES;
    const char *text = "";

    for (int i = 0; i < l->ndistances; i++)
        text = hd_arena_printf(l->scratch, "%s%s%lld", text,
                               i == 0                          ? ""
                               : all && i == l->ndistances - 1 ? " and "
                                                               : ", ",
                               (long long)l->distance[i]);
    return all ? text : hd_arena_printf(l->scratch, "%s and more", text);
}

// The loop loses its streams: those who asked for anything hear of it.
static void report_one_stream(const loop *l, hd_effect *effect)
{
    effect->warned |= HD_OPTION_STREAMS;
    if (effect->asked == 0 || hd_expr_is_const(l->module, l->on->a))
        return;
    hd_warning(
        l->diag, HD_E0504, l->stmt->loc, "the loop runs on one stream: %s",
        l->unknown ? "what its iterations touch is not known here"
                   : hd_arena_printf(
                         l->scratch,
                         "its iterations wait for each other at distances %s, "
                         "which no one event orders",
                         distances_text(l)));
}

// The chain that orders all iterations with each other from their beginning on.
static const link *find_chained(const loop *l, const link hop[2],
                                const int first[2])
{
    for (int i = 1; i >= 0; i--)
        if (hop[i].lag == 1 && first[i] == find_start(l))
            return &hop[i];
    return NULL;
}

static void order_loop(loop *l, hd_ordered *out, hd_effect *effect)
{
    hd_build b = {l->module, &out->block, l->stmt->loc};
    link hop[2] = {{0}, {0}};
    const link *chained;
    int first[2];

    if (l->unknown || !can_order(l, &l->chain[0]) ||
        !can_order(l, &l->chain[1])) {
        report_one_stream(l, effect);
        l->on->a = hd_expr_const(l->module, 0);
        l->chain[0] = l->chain[1] = (chain){0};
    }
    for (int i = 0; i < 2; i++) {
        const chain *c = &l->chain[i];

        hop[i] = (link){.lag = c->least,
                        .from = c->least,
                        .end = l->iterations,
                        .last = c->last};
        first[i] = find_wait(l, c);
    }
    chained = find_chained(l, hop, first);
    out->forks = chained == NULL;
    if (chained == NULL)
        hd_build_op(&b, HD_OP_FORK, -1, 0, 0, NULL);
    for (int i = 1; i >= 0; i--)
        if (hop[i].lag > 0)
            hop[i].event = hd_build_events(
                l->module, i == 0 && hop[1].lag > 0 ? "sum" : "hop",
                l->iterations, l->stmt->loc);
    if (chained != NULL)
        hd_build_event(&b, HD_OP_RECORD, chained->event,
                       hd_expr_const(l->module, 0));
    add_events(l, hop, first, chained);
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

static void order(loop *l, hd_ordered *out, hd_effect *effect)
{
    if (l->iterations == 1 && l->module->nranks > 1)
        hd_effect_none(effect, HD_OPTION_STREAMS, l->diag, l->stmt->loc,
                       "the loop has one iteration");
    if (l->split && split_loop(l, out)) {
        effect->used |= HD_OPTION_COMM_STREAM | HD_OPTION_STREAMS;
        return;
    }
    if (l->split && (l->moves || !l->others))
        hd_effect_none(effect, HD_OPTION_COMM_STREAM, l->diag, l->stmt->loc,
                       why_not_split(l));
    order_loop(l, out, effect);
    effect->used |= HD_OPTION_STREAMS;
}

// What an iteration computes on what it received, and transfers, stays on its
// stream: on that for transfers the next iteration would receive nothing until
// then. Whether anything does that did not before.
static bool keep_departures(loop *l)
{
    int received = l->nstatements;
    bool any = false;

    for (int i = 0; i < l->nstatements; i++) {
        statement *s = &l->statement[i];

        if (s->hop.lag == 0 && i < received)
            received = i;
        if (s->made.lag == 0 && s->made.last >= received)
            any = s->stays = true;
    }
    return any;
}

static void find_on(loop *l, const loop *fresh, hd_expr stream)
{
    *l = *fresh;
    l->on->a = stream;
    for (int i = 0; i < l->nstatements; i++)
        l->statement[i].made.lag = l->statement[i].hop.lag = -1;
    find_conflicts(l);
}

// With a stream for transfers, what all iterations add up is computed on one
// stream, if that is what orders them.
static void find_in_order(loop *l, const loop *fresh)
{
    hd_expr streams = l->on->a;

    if (!l->split || !l->moves || !l->computes || !l->events_fail || l->taken ||
        l->chain[0].least == 0 || (!l->sends_fail && !l->holds))
        return;
    find_on(l, fresh, hd_expr_const(l->module, 0));
    if (!l->events_fail)
        // A receive there would wait for all that is computed ahead of it.
        l->sends_fail = true;
    else if (l->sends_fail || l->holds)
        find_on(l, fresh, streams);
}

static void find_order(loop *l)
{
    const loop fresh = *l;

    find_conflicts(l);
    find_in_order(l, &fresh);
    while (l->split && (l->sends_fail || l->holds) && keep_departures(l))
        find_on(l, &fresh, l->on->a);
}

static void add_loop(loop *l, hd_body *body, hd_effect *effect)
{
    hd_ordered out = {.behind = HD_EXPR_NONE};

    note_statements(l);
    find_order(l);
    order(l, &out, effect);
    out.moves = l->moves;
    out.syncs = l->syncs;
    hd_block_append(&out.block, l->stmt);
    hd_body_add_loop(body, &out);
}

// Nothing else is held where the arena may run out.
static hd_status find_frames(loop *l)
{
    size_t n = (size_t)l->module->nbuffers;
    hd_part_frame *kept = hd_new_array(l->scratch, hd_part_frame, n + 1),
                  *found;

    HD_TRY(hd_frames_create(l->module, NULL, l->diag, &found));
    memcpy(kept, found, sizeof *kept * n);
    hd_frames_free(found);
    l->frame = kept;
    return HD_OK;
}

hd_status hd_pass_event(hd_module *module, const hd_lower_options *options,
                        hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    hd_body *body = hd_body_create(module, scratch);
    hd_stmt *next;
    loop base = {.module = module,
                 .scratch = scratch,
                 .diag = diag,
                 .split = options->comm_stream,
                 .others = hd_body_has_collectives(module)};

    base.vars = hd_new_array(scratch, int64_t, module->nvars + 1);
    base.env.var = base.vars;
    HD_TRY(find_frames(&base));
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = next) {
        loop l = base;

        next = stmt->next;
        // What a variable of the whole program holds is not evaluated here.
        base.unknown |= stmt->kind == HD_STMT_LET;
        if (is_loop(&l, stmt))
            add_loop(&l, body, effect);
        else
            hd_body_add(body, stmt);
    }
    hd_body_finish(body, options->comm_stream, effect, diag);
    return HD_OK;
}
