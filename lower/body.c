// Outside of loops, too, what is computed need not wait for what travels. The
// last transfers of a loop are under way when its last product has been issued;
// so what has nothing to do with the loop comes before the caller's stream
// joins its streams, and what needs it, and what needs that, comes after:
//
//     fork  for ..  %gw = matmul ..  join  %gx = sum ..
//
// It is on the caller's stream, beside the loop, if products of that wait for
// what travels and leave gaps. If they do not, they come first, so that what
// they make is on its way, and it is behind them, on their stream. So is then
// what needs what the loop computes alone, beside what still travels: the
// stream of the last product waits for the others.
//
//     fork  for ..  on stream 0: %all[0] = record
//     on stream 1:  wait %all[0]  %gw = matmul ..  join  %gx = sum ..
//
// A collective by itself goes to the stream for transfers and waits there for
// what it needs; the caller's stream waits for it where it first touches the
// same:
//
//     %p = matmul ..
//     %made[0] = record
//     on stream S:   wait %made[0]  %gx = reduce_scatter %p  %hop[0] = record
//     %gw = matmul ..
//     wait %hop[0]
//
// It does so if something else is computed between what it needs and what needs
// it. What is touched is a whole buffer here.
#include "lower/body.h"

#include <string.h>

#include "lower/build.h"
#include "lower/cliff.h"
#include "lower/sequence.h"

// A statement; or a loop with its fork, its join and what stands between, which
// to the caller's stream are one.
typedef struct item {
    hd_block block;
    bool computes;   // and moves nothing
    bool travels;    // a collective by itself
    bool holds;      // nothing may pass it
    bool loops;      // it ends with a join
    bool forks;      // and begins with a fork
    bool beside;     // a collective that goes to the stream for transfers
    int first, last; // of a collective: the items that it must be between
    hd_block before; // what orders it
} item;

// The last item that touched a buffer, counted from 1; 0 is none.
typedef struct seen {
    int read, write;
} seen;

struct hd_body {
    hd_module *module;
    hd_arena *scratch;
    int nbuffers; // without the events that order loops
    item *item;
    int nitems, room;
    // A loop that has not been joined yet.
    bool open;
    int nloops; // its number, from 1
    hd_ordered loop;
    seen *apart;   // by buffer id, and the loop's number: what is left alone
                   // before the join
    seen *moved;   // likewise, what travels and is left alone by the rest
    seen *ahead;   // likewise by what was before the loop and begins behind it
    bool awaits;   // the stream of its last products waits for all of them
    hd_block late; // what comes after the join
};

// ------------------------------------------------------ what touches the same

// `seen`, of an item at `at`; and the last one `found` there that it must not
// pass.
typedef struct glance {
    seen *seen; // by buffer id
    int nbuffers;
    int at, found;
} glance;

static int larger(int a, int b)
{
    return a > b ? a : b;
}

// NULL for the events that order loops.
static seen *glance_at(const glance *g, const hd_view *view)
{
    int id = hd_buffer_root(view->buffer)->id;

    return id < g->nbuffers ? &g->seen[id] : NULL;
}

static void look(void *context, hd_op *op)
{
    glance *g = context;

    for (int i = 0; i < op->nviews; i++) {
        const seen *s = glance_at(g, &op->view[i]);

        if (s == NULL)
            continue;
        g->found = larger(g->found, s->write);
        if (hd_op_access(op, i) != HD_ACCESS_READ)
            g->found = larger(g->found, s->read);
    }
}

static void mark(void *context, hd_op *op)
{
    glance *g = context;

    for (int i = 0; i < op->nviews; i++) {
        seen *s = glance_at(g, &op->view[i]);
        bool reads = hd_op_access(op, i) == HD_ACCESS_READ;

        if (s == NULL)
            continue;
        if (reads)
            s->read = larger(s->read, g->at);
        else
            s->write = larger(s->write, g->at);
    }
}

static seen *see_nothing(const hd_body *body)
{
    return hd_new_array(body->scratch, seen, body->nbuffers + 1);
}

static glance glance_start(const hd_body *body, seen *table, int at)
{
    return (glance){.seen = table, .nbuffers = body->nbuffers, .at = at};
}

// ------------------------------------------------------------------ the items

typedef struct traits {
    const hd_body *body;
    bool computes, moves, syncs;
    bool multiplies; // and takes long: a product, or attention
} traits;

// A wait for a send of the open loop orders nothing else.
static bool waits_for_loop(const hd_body *body, const hd_op *op)
{
    if (!body->open || op->code != HD_OP_WAIT)
        return false;
    for (int i = 0; i < op->nviews; i++)
        if (body->apart[hd_buffer_root(op->view[i].buffer)->id].write !=
            body->nloops)
            return false;
    return true;
}

static void note_traits(void *context, hd_op *op)
{
    traits *t = context;

    t->computes |= hd_op_is(op, HD_UNIT_COMPUTE);
    t->multiplies |= hd_op_family(op) == HD_FAMILY_PRODUCT ||
                     hd_op_family(op) == HD_FAMILY_ATTEND;
    t->moves |= hd_op_is(op, HD_UNIT_TRANSFER);
    t->syncs |= hd_op_is(op, HD_UNIT_SYNC) && !waits_for_loop(t->body, op);
}

// Also one that goes tile by tile.
static bool is_collective(const hd_module *module, const hd_stmt *stmt)
{
    const hd_op *op = stmt->op;

    if (stmt->kind == HD_STMT_FOR && stmt->body.first != NULL &&
        stmt->body.first->next == NULL)
        return is_collective(module, stmt->body.first);
    return stmt->kind == HD_STMT_OP && hd_op_is_collective(op) &&
           module->axis[op->axis].size > 1;
}

bool hd_body_has_collectives(const hd_module *module)
{
    for (const hd_stmt *s = module->body.first; s != NULL; s = s->next)
        if (is_collective(module, s))
            return true;
    return false;
}

static item *add_item(hd_body *body)
{
    body->item = hd_arena_grow(body->scratch, body->item, body->nitems,
                               &body->room, sizeof *body->item);
    body->item[body->nitems] = (item){0};
    return &body->item[body->nitems++];
}

static void add_stmt(hd_body *body, hd_stmt *stmt)
{
    traits t = {.body = body};
    item *it = add_item(body);

    hd_stmt_each(stmt, note_traits, &t);
    it->travels = is_collective(body->module, stmt);
    // A launch's own collective waits for those ahead of it, which may not
    // start any more once it has begun.
    it->holds = t.syncs || hd_stmt_has_stream(stmt) ||
                stmt->kind == HD_STMT_LET || stmt->kind == HD_STMT_LAUNCH;
    it->computes = t.computes && !t.moves;
    hd_block_append(&it->block, stmt);
}

// -------------------------------------------------------- what passes the join

static void close_loop(hd_body *body)
{
    hd_build b = {body->module, &body->loop.block, {0}};
    hd_stmt *next;
    item *it;

    if (!body->open)
        return;
    body->open = false;
    b.loc = b.block->last->loc;
    hd_build_op(&b, HD_OP_JOIN, -1, 0, 0, NULL);
    it = add_item(body);
    *it = (item){.block = body->loop.block,
                 .computes = true,
                 .loops = true,
                 .forks = body->loop.forks,
                 .holds = body->loop.syncs};
    for (hd_stmt *s = body->late.first; s != NULL; s = next) {
        next = s->next;
        add_stmt(body, s);
    }
    body->late = (hd_block){0};
}

// Before the join: on the caller's stream, or on that of the last products.
static void pass_join(hd_body *body, hd_stmt *stmt)
{
    hd_build b = {body->module, &body->loop.block, stmt->loc};
    hd_expr stream = body->loop.behind;

    if (stream != HD_EXPR_NONE &&
        (b.block->last->kind != HD_STMT_ON || b.block->last->a != stream))
        (void)hd_build_on(&b, stream);
    hd_block_append(stream != HD_EXPR_NONE ? &b.block->last->body : b.block,
                    stmt);
}

// What travels, and what waits for it.
static void mark_moved(const hd_body *body, const hd_block *block, glance *g)
{
    hd_module *m = body->module;
    hd_expr last = hd_expr_const(m, m->streams - 1);

    for (hd_stmt *s = block->first; s != NULL; s = s->next) {
        if (s->kind == HD_STMT_FOR)
            mark_moved(body, &s->body, g);
        else if (s->kind != HD_STMT_ON || s->a == last)
            hd_stmt_each(s, mark, g);
    }
}

// The stream of the last products waits for what the loop computes on others.
static void await_computed(hd_body *body, hd_loc loc)
{
    hd_module *m = body->module;
    hd_build b = {m, &body->loop.block, loc}, on;
    hd_buffer *all;
    int64_t n = 0;

    if (body->awaits || m->streams <= 2)
        return;
    body->awaits = true;
    all = hd_build_events(m, "all", m->streams - 2, loc);
    for (int64_t k = 0; k < m->streams - 1; k++) {
        hd_expr stream = hd_expr_const(m, k);

        if (stream == body->loop.behind)
            continue;
        on = hd_build_on(&b, stream);
        hd_build_event(&on, HD_OP_RECORD, all, hd_expr_const(m, n++));
    }
    on = hd_build_on(&b, body->loop.behind);
    for (int64_t k = 0; k < n; k++)
        hd_build_event(&on, HD_OP_WAIT, all, hd_expr_const(m, k));
}

// Whether it comes before the join: beside the loop, or behind what that
// computes.
static bool passes_join(hd_body *body, hd_stmt *stmt)
{
    glance g = glance_start(body, body->apart, body->nloops);
    glance moved = glance_start(body, body->moved, body->nloops);

    hd_stmt_each(stmt, look, &g);
    if (g.found < g.at)
        return true;
    hd_stmt_each(stmt, look, &moved);
    if (body->loop.behind == HD_EXPR_NONE || moved.found == moved.at)
        return false;
    await_computed(body, stmt->loc);
    return true;
}

void hd_body_add(hd_body *body, hd_stmt *stmt)
{
    glance g = glance_start(body, body->apart, body->nloops);
    traits t = {.body = body};

    if (body->open) {
        hd_stmt_each(stmt, note_traits, &t);
        if (stmt->kind == HD_STMT_LET || t.syncs || hd_stmt_has_stream(stmt))
            close_loop(body);
    }
    if (!body->open) {
        add_stmt(body, stmt);
        return;
    }
    if (t.computes && !t.moves && passes_join(body, stmt)) {
        pass_join(body, stmt);
        return;
    }
    hd_stmt_each(stmt, mark, &g);
    g.seen = body->moved;
    hd_stmt_each(stmt, mark, &g);
    hd_block_append(&body->late, stmt);
}

// What stands before the loop and computes nothing that it needs begins no
// earlier than the loop either.
static void pass_fork(hd_body *body)
{
    glance g = glance_start(body, body->ahead, body->nloops);
    hd_block passes = {0};
    int from = body->nitems, to;
    hd_stmt *next;

    hd_block_each(&body->loop.block, mark, &g);
    while (from > 0 && body->item[from - 1].computes &&
           !body->item[from - 1].loops && !body->item[from - 1].holds)
        from--;
    to = body->nitems;
    for (int i = body->nitems - 1; i >= from; i--) {
        item *it = &body->item[i];

        g.found = 0;
        hd_block_each(&it->block, look, &g);
        if (g.found < g.at) {
            hd_block_insert(&passes, NULL, it->block.first);
            continue;
        }
        hd_block_each(&it->block, mark, &g);
        body->item[--to] = *it;
    }
    while (to < body->nitems)
        body->item[from++] = body->item[to++];
    body->nitems = from;
    for (hd_stmt *s = passes.first; s != NULL; s = next) {
        next = s->next;
        pass_join(body, s);
    }
}

void hd_body_add_loop(hd_body *body, const hd_ordered *loop)
{
    glance g;

    close_loop(body);
    g = glance_start(body, body->apart, ++body->nloops);
    hd_block_each(&loop->block, mark, &g);
    g.seen = body->moved;
    mark_moved(body, &loop->block, &g);
    body->loop = *loop;
    body->open = true;
    body->awaits = false;
    if (loop->moves && !loop->syncs)
        pass_fork(body);
    else
        close_loop(body);
}

// A loop whose streams wait for nothing of the caller's stays where it is.
static void sort_items(hd_body *body)
{
    hd_sequenced *all = hd_new_array(body->scratch, hd_sequenced, body->nitems);
    item *sorted = hd_new_array(body->scratch, item, body->nitems);
    int *order = hd_new_array(body->scratch, int, body->nitems);

    for (int i = 0; i < body->nitems; i++) {
        const item *it = &body->item[i];

        all[i] = (hd_sequenced){&it->block, it->travels,
                                it->holds || (it->loops && !it->forks)};
    }
    hd_sequence(body->module, all, body->nitems, body->scratch, order);
    for (int i = 0; i < body->nitems; i++)
        sorted[i] = body->item[order[i]];
    memcpy(body->item, sorted, sizeof *sorted * (size_t)body->nitems);
}

// --------------------------------------------------- collectives by themselves

static int number_of(const hd_body *body, int i, bool back)
{
    return back ? body->nitems - i : i + 1;
}

// Where collectives may begin, or looking `back` from the end, where they must
// have ended. They stay in their order themselves, on one stream: what holds of
// one holds of those that follow from it.
static void find_bounds(hd_body *body, bool back)
{
    glance g = glance_start(body, see_nothing(body), 0);
    int held = 0;

    for (int k = 0; k < body->nitems; k++) {
        int i = back ? body->nitems - 1 - k : k;
        item *it = &body->item[i];

        g.at = number_of(body, i, back);
        held = it->holds ? g.at : held;
        if (it->travels) {
            g.found = held;
            hd_block_each(&it->block, look, &g);
            g.at = g.found;
            *(back ? &it->last : &it->first) =
                back ? body->nitems - g.found : g.found - 1;
        }
        hd_block_each(&it->block, mark, &g);
    }
}

// How many items before each compute, or compute what takes long.
static int *count_computed(const hd_body *body, bool all)
{
    int *n = hd_new_array(body->scratch, int, body->nitems + 1);

    for (int i = 0; i < body->nitems; i++) {
        const item *it = &body->item[i];
        traits t = {.body = body, .multiplies = all};

        if (!all)
            hd_block_each(&it->block, note_traits, &t);
        n[i + 1] = n[i] + (it->computes && t.multiplies);
    }
    return n;
}

// Those beside which nothing is computed stay on the caller's stream, and all
// without a stream for transfers: it is told for which that would be good.
static void choose_collectives(hd_body *body, bool split, hd_effect *effect)
{
    const int *computed = count_computed(body, split);

    find_bounds(body, false);
    find_bounds(body, true);
    for (int i = 0; i < body->nitems; i++) {
        item *it = &body->item[i];

        if (!it->travels || computed[it->last] <= computed[it->first + 1])
            continue;
        it->beside = split;
        hd_cliffs_beside(effect->cliffs, it->block.first->loc, split);
    }
}

// Events outside of loops are used once each: recorded there, waited for here.
typedef struct events {
    const char *name;
    hd_buffer *buffer; // NULL before the first one
} events;

typedef struct split {
    hd_body *body;
    glance caller, other; // who touched what: items, and by their number those
                          // that went to the stream for transfers
    hd_block **on;        // of the latter, what that stream does
    int nothers;
    int ready, done; // how much of the first the second has waited for,
                     // and of the second the first
    int held;
    events made, hop;
} split;

static void emit_event(split *s, events *of, hd_block *records, hd_block *waits,
                       hd_loc loc)
{
    hd_build b = {s->body->module, records, loc};
    hd_expr index;

    if (of->buffer == NULL)
        of->buffer = hd_build_events(b.module, of->name, 0, loc);
    index = hd_expr_const(b.module, of->buffer->type.dim[0].extent++);
    hd_build_event(&b, HD_OP_RECORD, of->buffer, index);
    b.block = waits;
    hd_build_event(&b, HD_OP_WAIT, of->buffer, index);
}

// The last collective on the caller's stream that could begin no later and is
// ahead: the links are that one's first. Counted from 1; 0 is none.
static int find_ahead(const hd_body *body, const item *it)
{
    int found = 0;

    for (int i = 0; &body->item[i] != it; i++) {
        const item *x = &body->item[i];

        if (x->travels && !x->beside && x->first <= it->first)
            found = i + 1;
    }
    return found;
}

// On the stream for transfers, as early as may be: the caller's records where
// the last item ends that it must not pass.
static void emit_beside(split *s, item *it)
{
    hd_module *m = s->body->module;
    hd_stmt *stmt = it->block.first;
    hd_build b = {m, &it->block, stmt->loc}, body;
    hd_block record = {0};
    glance *g = &s->caller;

    it->block = (hd_block){0};
    m->streams = m->streams > 0 ? m->streams : 1;
    body = hd_build_on(&b, hd_expr_const(m, m->streams - 1));
    g->found = larger(s->held, find_ahead(s->body, it));
    hd_stmt_each(stmt, look, g);
    if (g->found > s->ready) {
        emit_event(s, &s->made, &record, body.block, stmt->loc);
        hd_block_insert(&s->body->item[g->found].before, NULL, record.first);
        s->ready = g->found;
    }
    hd_block_append(body.block, stmt);
    s->on[++s->nothers] = body.block;
    s->other.at = s->nothers;
    hd_stmt_each(stmt, mark, &s->other);
}

// On the caller's stream.
static void emit_in_line(split *s, item *it, int at)
{
    glance *g = &s->other;

    g->found = it->holds ? s->nothers : 0;
    hd_block_each(&it->block, look, g);
    if (g->found > s->done) {
        emit_event(s, &s->hop, s->on[g->found], &it->before,
                   s->on[g->found]->last->loc);
        s->done = g->found;
    }
    if (it->forks)
        s->ready = at - 1;
    if (it->loops)
        s->done = s->nothers;
    s->held = it->holds ? at : s->held;
    s->caller.at = at;
    hd_block_each(&it->block, mark, &s->caller);
}

// If nobody could use the stream for transfers.
static void report_collectives(const hd_body *body, hd_effect *effect,
                               hd_diag *diag)
{
    if ((effect->used & HD_OPTION_COMM_STREAM) != 0)
        return;
    for (int i = 0; i < body->nitems; i++)
        if (body->item[i].travels)
            hd_effect_none(effect, HD_OPTION_COMM_STREAM, diag,
                           body->item[i].block.first->loc,
                           "nothing is computed between what makes what it "
                           "moves and what reads that");
}

static void split_body(hd_body *body, hd_effect *effect, hd_diag *diag)
{
    split s = {.body = body,
               .caller = glance_start(body, see_nothing(body), 0),
               .other = glance_start(body, see_nothing(body), 0),
               .on = hd_new_array(body->scratch, hd_block *, body->nitems + 1),
               .ready = -1,
               .made.name = "made",
               .hop.name = "hop"};

    for (int i = 0; i < body->nitems; i++)
        if (body->item[i].beside) {
            emit_beside(&s, &body->item[i]);
            effect->used |= HD_OPTION_COMM_STREAM;
        } else {
            emit_in_line(&s, &body->item[i], i + 1);
        }
    report_collectives(body, effect, diag);
}

hd_body *hd_body_create(hd_module *module, hd_arena *scratch)
{
    hd_body *body = hd_new(scratch, hd_body);

    body->module = module;
    body->scratch = scratch;
    body->nbuffers = module->nbuffers;
    body->apart = see_nothing(body);
    body->moved = see_nothing(body);
    body->ahead = see_nothing(body);
    return body;
}

void hd_body_finish(hd_body *body, bool split, hd_effect *effect, hd_diag *diag)
{
    hd_block *out = &body->module->body;

    close_loop(body);
    *add_item(body) = (item){.holds = true}; // the end
    if (split)
        sort_items(body);
    if (split || hd_cliffs_waits(effect->cliffs, (hd_loc){0}))
        choose_collectives(body, split, effect);
    if (split)
        split_body(body, effect, diag);
    *out = (hd_block){0};
    for (int i = 0; i < body->nitems; i++) {
        hd_block_append_all(out, &body->item[i].before);
        hd_block_append_all(out, &body->item[i].block);
    }
}
