// The products of a pipeline become one launch: its loop is taken apart into
// what its transfers do and what its products do, each stream as it was.
//
//     for j { on stream 1 { recv j; record }       for j { on stream 1 { .. } }
//             on stream 0 { wait; matmul j } }     on stream 0 { launch {
//                                                      for j { wait; matmul } }
//                                                      }
//
// A wait follows the last record that was issued before it. So transfers stand
// in front if products wait for them, and behind if they do not. Where
// transfers wait for products the loop stays: no kernel tells of a product
// before it ends.
//
// A launch must not wait for what takes processors and may come behind it
// (docs/checking.md, Launches). Where products wait, transfers are copies by
// copy engines, no stream has anything left when the loop begins, and nothing
// in it waits for events from outside. So what the launch needs of any rank is
// of this loop or of loops ahead of it there, whose launches end without it.
#include <stdio.h>

#include "ir/transport.h"
#include "lower/build.h"
#include "lower/pass.h"

// Products on one side of the loop, all else on the other.
typedef enum side { TRANSFERS, PRODUCTS } side;

typedef struct split {
    hd_module *module;
    hd_arena *scratch;
    hd_stmt *before, *loop; // of the program's body; NULL: it is the first
    int64_t first, past;    // of the loop
    int64_t stream;         // of the products
    unsigned busy;          // axes along which kernels transfer
    side side;              // that is being looked at
    bool multiplies, transfers;
    // By buffer id, of events: which sides record it, and wait for it.
    uint8_t *records, *waits;
    const hd_op *taking; // of the transfers one that takes processors; or NULL
    const char *why;     // they cannot be one launch; NULL: they can
    hd_loc at;
} split;

static void refuse(split *s, hd_loc at, const char *why)
{
    if (s->why != NULL)
        return;
    s->why = why;
    s->at = at;
}

// The value of an expression in an iteration; false if it depends on more.
static bool value_at(const split *s, hd_expr expr, int64_t j, int64_t *out)
{
    hd_expr now = hd_expr_replace(s->module, expr, s->loop->var,
                                  hd_expr_const(s->module, j));

    if (!hd_expr_is_const(s->module, now))
        return false;
    *out = hd_expr_value(s->module, now);
    return true;
}

// -------------------------------------------------------------- what is there

static void note_op(void *context, hd_op *op)
{
    split *s = context;

    s->multiplies |= hd_op_family(op) == HD_FAMILY_PRODUCT;
    s->transfers |= hd_op_is(op, HD_UNIT_TRANSFER);
}

// Whether transfers of no kernel do it: what is sent or received as it lies.
static bool takes_processors(const split *s, const hd_op *op)
{
    if (hd_op_is(op, HD_UNIT_SYNC))
        return false;
    return (hd_op_move(op) != HD_MOVE_SEND && hd_op_move(op) != HD_MOVE_RECV) ||
           hd_op_counted(op) >= 0 || (s->busy >> op->axis & 1) != 0;
}

static void note_side(void *context, hd_op *op)
{
    split *s = context;
    bool own = s->side == PRODUCTS;

    for (int i = 0; i < op->nviews; i++) {
        hd_access access = hd_op_access(op, i);
        int id = op->view[i].buffer->id;

        if ((access & HD_ACCESS_RECORD) != 0)
            s->records[id] |= (uint8_t)(1 << s->side);
        if ((access & HD_ACCESS_WAIT) != 0)
            s->waits[id] |= (uint8_t)(1 << s->side);
    }
    if (own && hd_op_family(op) != HD_FAMILY_PRODUCT &&
        hd_op_sync(op) != HD_SYNC_WAIT && hd_op_sync(op) != HD_SYNC_RECORD)
        refuse(s, op->loc, "more than products is done on their stream");
    if (!own && s->taking == NULL && takes_processors(s, op))
        s->taking = op;
}

static bool has_products(const hd_stmt *stmt)
{
    split found = {0};

    hd_stmt_each(stmt, note_op, &found);
    return found.multiplies;
}

// The stream that products of all iterations are on; -1 if that differs.
static int64_t stream_of(const split *s, const hd_stmt *on)
{
    int64_t stream = -1, other;

    for (int64_t j = s->first; j < s->past; j++) {
        if (!value_at(s, on->a, j, &other) || (j > s->first && other != stream))
            return -1;
        stream = other;
    }
    return stream;
}

static side side_of(const split *s, const hd_stmt *stmt)
{
    return stmt->kind == HD_STMT_ON && stream_of(s, stmt) == s->stream
               ? PRODUCTS
               : TRANSFERS;
}

static void find_stream(split *s)
{
    s->stream = -1;
    for (const hd_stmt *on = s->loop->body.first; on != NULL; on = on->next) {
        int64_t stream;

        if (on->kind != HD_STMT_ON && on->kind != HD_STMT_LET)
            refuse(s, on->loc, "the loop does more than its streams do");
        if (on->kind != HD_STMT_ON || !has_products(on))
            continue;
        stream = stream_of(s, on);
        if (stream < 0 || (s->stream >= 0 && stream != s->stream))
            refuse(s, on->loc, "its products are on several streams");
        s->stream = stream;
    }
}

static void look_at_sides(split *s)
{
    int n = s->module->nbuffers + 1;

    s->records = hd_new_array(s->scratch, uint8_t, n);
    s->waits = hd_new_array(s->scratch, uint8_t, n);
    for (const hd_stmt *stmt = s->loop->body.first; stmt != NULL;
         stmt = stmt->next) {
        s->side = side_of(s, stmt);
        hd_stmt_each(stmt, note_side, s);
    }
}

// --------------------------------------------------------- what may be split

static bool waits_for(const split *s, side waiting, side recorded)
{
    for (int i = 0; i < s->module->nbuffers; i++)
        if ((s->waits[i] & 1 << waiting) != 0 &&
            (s->records[i] & 1 << recorded) != 0)
            return true;
    return false;
}

typedef struct marks {
    split *split;
    bool *recorded; // by event of the buffer
    const hd_buffer *buffer;
    bool again; // one may be recorded twice in the loop
} marks;

static void mark_record(void *context, hd_op *op)
{
    marks *m = context;
    int64_t at;

    for (int i = 0; i < op->nviews; i++) {
        if ((hd_op_access(op, i) & HD_ACCESS_RECORD) == 0 ||
            op->view[i].buffer != m->buffer)
            continue;
        for (int64_t j = m->split->first; j < m->split->past; j++) {
            if (op->view[i].nindex != 1 ||
                !value_at(m->split, op->view[i].index[0], j, &at)) {
                m->again = true;
                return;
            }
            if (at < 0 || at >= m->buffer->type.dim[0].extent)
                continue; // which a condition leaves out
            m->again |= m->recorded[at];
            m->recorded[at] = true;
        }
    }
}

// Whether each event that the other side waits for is recorded once at most, so
// that a wait finds the same record wherever it stands behind it.
static bool are_recorded_once(split *s, side recorded)
{
    side waiting = recorded == PRODUCTS ? TRANSFERS : PRODUCTS;

    for (hd_buffer *b = s->module->buffers; b != NULL; b = b->next) {
        marks m = {.split = s, .buffer = b};

        if ((s->waits[b->id] & 1 << waiting) == 0 || s->records[b->id] == 0)
            continue;
        if (b->type.ndims != 1)
            return false;
        m.recorded = hd_new_array(s->scratch, bool, b->type.dim[0].extent);
        hd_stmt_each(s->loop, mark_record, &m);
        if (m.again || s->records[b->id] != 1 << recorded)
            return false;
    }
    return true;
}

// Whether one side, or the other, waits for what it does not record, or
// neither.
static bool waits_beyond(const split *s, unsigned waiting, unsigned recorded)
{
    for (int i = 0; i < s->module->nbuffers; i++)
        if ((s->waits[i] & waiting) != 0 && (s->records[i] & recorded) == 0)
            return true;
    return false;
}

static bool is_sync(const hd_stmt *stmt, hd_sync sync)
{
    return stmt->kind == HD_STMT_OP && hd_op_sync(stmt->op) == sync;
}

// Whether the streams fork right ahead of the loop, and have been joined since
// they did anything.
static bool is_apart(const split *s)
{
    bool forked = false, busy = false;

    for (const hd_stmt *stmt = s->module->body.first; stmt != s->loop;
         stmt = stmt->next) {
        forked = is_sync(stmt, HD_SYNC_FORK) && !busy;
        if (is_sync(stmt, HD_SYNC_JOIN))
            busy = false;
        else if (hd_stmt_has_stream(stmt))
            busy = true;
    }
    return forked;
}

static const char *name_taking(const split *s)
{
    return hd_arena_printf(s->scratch,
                           "its products wait for transfers, of which %s takes "
                           "processors%s",
                           hd_op_info_get(s->taking->code)->text,
                           hd_op_is(s->taking, HD_UNIT_TRANSFER) &&
                                   (s->busy >> s->taking->axis & 1) != 0
                               ? ", as kernels transfer along its axis"
                               : "");
}

// Where products wait.
static void look_at_waits(split *s)
{
    if (s->taking != NULL)
        refuse(s, s->taking->loc, name_taking(s));
    if (waits_beyond(s, 1 << PRODUCTS | 1 << TRANSFERS,
                     1 << PRODUCTS | 1 << TRANSFERS))
        refuse(s, s->loop->loc, "it waits for what is ahead of it");
    if (!is_apart(s))
        refuse(s, s->loop->loc,
               "other streams may still be at work when it begins");
}

// Whether transfers stand in front.
static bool look(split *s)
{
    bool gathers;

    find_stream(s);
    if (s->why != NULL)
        return false;
    look_at_sides(s);
    gathers = waits_for(s, PRODUCTS, TRANSFERS);
    if (waits_for(s, TRANSFERS, PRODUCTS))
        refuse(s, s->loop->loc,
               gathers
                   ? "its transfers wait for products, and products for them"
                   : "its transfers wait for its products, and a kernel tells "
                     "of all of them when it ends");
    if (!are_recorded_once(s, gathers ? TRANSFERS : PRODUCTS))
        refuse(s, s->loop->loc, "events of it are recorded more than once");
    if (waits_beyond(s, 1 << PRODUCTS, 1 << PRODUCTS))
        look_at_waits(s);
    return gathers;
}

// ------------------------------------------------------------------ the split

// A loop like it, of one side's statements: of products what is in `on stream`.
static hd_stmt *build_loop(const split *s, side side)
{
    hd_stmt *loop = hd_stmt_new(s->module, HD_STMT_FOR, s->loop->loc);

    loop->var = s->loop->var;
    loop->a = s->loop->a;
    loop->b = s->loop->b;
    for (const hd_stmt *stmt = s->loop->body.first; stmt != NULL;
         stmt = stmt->next) {
        const hd_stmt *first = stmt, *last = stmt->next;

        if (stmt->kind != HD_STMT_LET && side_of(s, stmt) != side)
            continue;
        if (stmt->kind == HD_STMT_ON && side == PRODUCTS) {
            first = stmt->body.first;
            last = NULL;
        }
        for (; first != last; first = first->next) {
            hd_stmt *copy = hd_stmt_new(s->module, first->kind, first->loc);

            *copy = *first;
            copy->next = NULL;
            hd_block_append(&loop->body, copy);
        }
    }
    return loop;
}

// Returns the last statement in the loop's place.
static hd_stmt *build(split *s, bool gathers)
{
    hd_block *body = &s->module->body;
    hd_stmt *on = hd_stmt_new(s->module, HD_STMT_ON, s->loop->loc);
    hd_stmt *launch = hd_stmt_new(s->module, HD_STMT_LAUNCH, s->loop->loc);
    hd_stmt *transfers = build_loop(s, TRANSFERS);

    on->a = hd_expr_const(s->module, s->stream);
    hd_block_append(&launch->body, build_loop(s, PRODUCTS));
    hd_block_append(&on->body, launch);
    hd_block_insert(body, s->loop, gathers ? on : transfers);
    hd_block_insert(body, s->loop, gathers ? transfers : on);
    hd_block_remove(body, s->before, s->loop);
    return gathers ? on : transfers;
}

static bool is_pipeline(const hd_module *module, const hd_stmt *stmt)
{
    split found = {0};

    hd_stmt_each(stmt, note_op, &found);
    return stmt->kind == HD_STMT_FOR && found.multiplies && found.transfers &&
           hd_expr_is_const(module, stmt->a) &&
           hd_expr_is_const(module, stmt->b);
}

// Returns what stands in the loop's place at last.
static hd_stmt *make(split *s, hd_diag *diag, hd_effect *effect)
{
    bool gathers;

    s->first = hd_expr_value(s->module, s->loop->a);
    s->past = hd_expr_value(s->module, s->loop->b);
    gathers = look(s);
    if (s->why == NULL) {
        effect->used |= HD_OPTION_LAUNCH;
        return build(s, gathers);
    }
    hd_effect_none(effect, HD_OPTION_LAUNCH, diag, s->at, s->why);
    return s->loop;
}

hd_status hd_pass_launch(hd_module *module, const hd_lower_options *options,
                         hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    hd_stmt *before = NULL, *next;
    unsigned busy;

    HD_TRY(hd_transports_busy(module, options->transport, options->axes, diag,
                              &busy));
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = next) {
        split s = {.module = module,
                   .scratch = scratch,
                   .before = before,
                   .loop = stmt,
                   .busy = busy};

        next = stmt->next;
        before = is_pipeline(module, stmt) ? make(&s, diag, effect) : stmt;
    }
    return HD_OK;
}
