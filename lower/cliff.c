// See cliff.h. What a rank needs is what it must receive: of a `set` what it
// has of the result and not of the operand; of a reduction over ranks others'
// parts of its share of the sums, and the sums that are no share of it. What is
// moved is read off the host ops that a statement has become, which have its
// place in the text. Both are of the rank that receives most, of room, where a
// run says how long dimensions are, and of the mean, where blocks are not as
// long as each other.
#include "lower/cliff.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/signature.h"
#include "lower/pad.h"

enum {
    // What a transfer could have moved while it began: it takes as long to
    // begin as that takes to arrive. Less is not spoken of.
    BEGIN_BYTES = 1 << 20,
    MOST_TIMES = 2,
    MOST_RANKS = 64, // that are looked at where they differ
    MOST_AHEAD = 64, // statements that are looked through
    SUBJECT = 256,   // bytes of words for a move
};

// What a statement names of its operand and its result, without what a sum
// reduces.
typedef struct sides {
    hd_type from, to;
    int reduced; // which dimension of the operand that is, -1: none
    int axis;    // which it is over, -1: none
} sides;

// A statement that moves something.
typedef struct moved {
    const hd_op *op;
    hd_loc loc;
    hd_ranks have; // who has the operand
    bool apart;    // not all who have the result do
    int64_t ranks; // of the axes along which anything moves
    double need, bytes, transfers;
    double alone;               // of the transfers those that no loop has
    double now, issued, looped; // of the rank that is looked at
    int more; // moves for the same statement, joined with this one

    // What it could go on beside: a product, which reads it or makes it, may be
    // done in parts along this dimension of what is moved. NULL: none may.
    const hd_op *product;
    int of_moved, of_product; // these dimensions, of the buffers
    bool marked;              // the text has a stream dimension of it
    bool told;
    bool beside;        // with a stream for transfers
    const char *reason; // why no loop takes it; NULL: none is known
} moved;

struct hd_cliffs {
    moved *moved; // in the order of their places in the text
    int n;
    bool bulk; // was asked for: nothing is to go on beside anything
};

// ------------------------------------------------------------------- needs

static bool is_spread(hd_dim dim)
{
    return hd_dim_is_sharded(dim) && hd_dim_blocks(dim) > 1;
}

// How many indices of a dimension a rank has, on average.
static double mean(hd_dim dim)
{
    return (double)dim.extent /
           (double)(hd_dim_is_sharded(dim) ? hd_dim_blocks(dim) : 1);
}

static double elements_of(const hd_type *type)
{
    double n = 1;

    for (int i = 0; i < type->ndims; i++)
        n *= mean(type->dim[i]);
    return n;
}

// How much of what a rank has of the one is of the other. Over two axes that is
// nothing, on some rank.
static double common(const hd_type *have, const hd_type *want)
{
    double n = 1;

    for (int i = 0; i < want->ndims; i++) {
        hd_dim a = have->dim[i], b = want->dim[i];

        if (!is_spread(a) || a.mark == b.mark)
            n *= mean(b);
        else
            n *= is_spread(b) ? 0 : mean(a);
    }
    return n;
}

static bool is_reduction(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_FOLD &&
           hd_op_key(op, HD_KEY_DIM) != NULL;
}

static sides sides_of(const hd_op *op)
{
    sides s = {hd_view_type(&op->view[1]), hd_view_type(&op->view[0]), -1, -1};
    hd_dim dim;

    if (!is_reduction(op))
        return s;
    s.reduced = hd_op_dim(op);
    dim = s.from.dim[s.reduced];
    if (is_spread(dim))
        s.axis = dim.mark;
    if (s.to.ndims < s.from.ndims)
        s.from = hd_type_without(&s.from, s.reduced);
    else
        s.from.dim[s.reduced] = hd_dim_whole(1);
    return s;
}

// What ranks that have none of the result's operand are sent, by those who have
// it: each of them at least its part of all.
static double sent_apart(const hd_module *module, const sides *s, hd_ranks have)
{
    double all = elements_of(&s->to);

    if (hd_type_axis_dim(&s->to, have.axis) < 0)
        return all;
    return all * (double)module->axis[have.axis].size /
           (double)(have.past - have.low);
}

// Of the share of the sums that it makes the other ranks' parts, and whatever
// else of the result it has not.
static double received(const hd_module *module, const sides *s)
{
    double all = elements_of(&s->to), have = common(&s->from, &s->to);
    double n = s->axis < 0 ? 1 : (double)module->axis[s->axis].size;

    if (s->axis >= 0 && hd_type_axis_dim(&s->to, s->axis) < 0)
        have /= n;
    return (n - 1) * have + all - have;
}

// Of the dtype that is narrower, but for sums, which are rounded at the end.
static double size_of(const sides *s)
{
    size_t from = hd_dtype_size(s->from.dtype), to = hd_dtype_size(s->to.dtype);

    return (double)(s->axis < 0 && to < from ? to : from);
}

// Of all axes over which anything is on either side.
static int64_t count_ranks(const hd_module *module, const sides *s,
                           hd_ranks have)
{
    int64_t n = 1;

    for (int i = 0; i < module->naxes; i++)
        if (i == s->axis || hd_type_axis_dim(&s->from, i) >= 0 ||
            hd_type_axis_dim(&s->to, i) >= 0 || (have.some && i == have.axis))
            n *= module->axis[i].size;
    return n;
}

// --------------------------------------------------- what it could go beside

// The dimension of its buffer that is the `n`-th of a side.
static int dim_of(const hd_op *op, const sides *s, bool from, int n)
{
    int all = hd_view_type(&op->view[from]).ndims;

    if (from && all > s->from.ndims && n >= s->reduced)
        n++;
    return hd_view_kept_dim(&op->view[from], n);
}

// Whether it could be moved part by part along a dimension: what is gathered,
// or scattered, or, where all ranks get all sums, what stays.
static bool may_part(const sides *s, int n)
{
    hd_dim from = s->from.dim[n], to = s->to.dim[n];

    if (s->axis < 0)
        return is_spread(from) && !is_spread(to) &&
               hd_type_axis_dim(&s->to, from.mark) < 0;
    return hd_type_axis_dim(&s->to, s->axis) >= 0
               ? to.mark == s->axis
               : !is_spread(from) && !is_spread(to) && to.extent > 1;
}

// Whether a product may be done in parts along what may be moved in parts,
// which it makes or reads as view `i`.
static bool find_part(const sides *s, const hd_op *op, int i, moved *m)
{
    for (int n = 0; n < s->to.ndims; n++) {
        int own = dim_of(m->op, s, i == 0, n);
        int line = op->bound->along[i][own];

        if (may_part(s, n) && line >= 0 && line < op->bound->nparallel &&
            hd_op_has_parts(op, line, true)) {
            m->product = op;
            m->of_moved = own;
            m->of_product = hd_view_kept_dim(&op->view[0], line);
            return true;
        }
    }
    return false;
}

static bool is_plain(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_PRODUCT &&
           hd_op_key(op, HD_KEY_GROUPS) == NULL && !hd_op_has_counts(op);
}

// The product that makes all of what is reduced, or one that reads what is set.
static void find_product(const hd_module *module, const hd_stmt *stmt,
                         const sides *s, moved *m)
{
    bool reduces = s->axis >= 0;
    const hd_view *side = &m->op->view[reduces];
    const hd_stmt *at = reduces ? module->body.first : stmt->next;

    for (int k = 0; at != NULL && at != stmt && side->nindex == 0;
         at = at->next) {
        if (!reduces && k++ == MOST_AHEAD)
            return;
        for (int i = !reduces; is_plain(at->op) && i < (reduces ? 1 : 3); i++)
            if (at->op->view[i].buffer == side->buffer &&
                at->op->view[i].nindex == 0 && find_part(s, at->op, i, m))
                return;
    }
}

// Whether nothing is said of a tensor of this type, however often it moves: it
// has no bytes to speak of.
static bool is_small(const hd_type *type)
{
    return 32 * hd_type_elements(type) < BEGIN_BYTES / 2;
}

static bool find_moved(const hd_module *module, const hd_stmt *stmt, moved *m)
{
    const hd_op *op = stmt->op;
    sides s;

    if ((op->code != HD_OP_SET && !is_reduction(op)) ||
        (is_small(&op->view[0].buffer->type) &&
         is_small(&op->view[1].buffer->type)))
        return false;
    s = sides_of(op);
    *m = (moved){
        .op = op, .loc = op->loc, .have = hd_view_ranks(module, &op->view[1])};
    m->apart = !hd_ranks_cover(m->have, hd_view_ranks(module, &op->view[0]));
    m->need = size_of(&s) * (m->apart ? sent_apart(module, &s, m->have)
                                      : received(module, &s));
    m->ranks = count_ranks(module, &s, m->have);
    m->marked = hd_type_stream_dim(&op->view[0].buffer->type) >= 0 ||
                hd_type_stream_dim(&op->view[1].buffer->type) >= 0;
    if (!m->apart && m->need >= BEGIN_BYTES * (double)m->ranks)
        find_product(module, stmt, &s, m);
    return m->ranks > 1;
}

// The first that does not stand before a place of the text.
static int first_from(const hd_cliffs *cliffs, hd_loc loc)
{
    int low = 0, past = cliffs->n;

    while (low < past) {
        int at = (low + past) / 2;
        const moved *m = &cliffs->moved[at];

        if (m->loc.line < loc.line ||
            (m->loc.line == loc.line && m->loc.column < loc.column))
            low = at + 1;
        else
            past = at;
    }
    return low;
}

static moved *find_place(const hd_cliffs *cliffs, hd_loc loc)
{
    int at = first_from(cliffs, loc);

    return at < cliffs->n && cliffs->moved[at].loc.line == loc.line &&
                   cliffs->moved[at].loc.column == loc.column
               ? &cliffs->moved[at]
               : NULL;
}

// What is brought to one statement of the text stands at its place alike: it is
// one, told of as the most of it.
static void join(moved *with, const moved *m)
{
    moved both = with->need > m->need ? *with : *m;

    both.need = with->need + m->need;
    both.ranks = with->ranks + m->ranks;
    both.more = with->more + 1;
    *with = both;
}

hd_cliffs *hd_cliffs_find(const hd_module *module, bool bulk, hd_arena *scratch)
{
    hd_cliffs *cliffs = hd_new(scratch, hd_cliffs);
    int room = 0;
    moved m;

    cliffs->moved = NULL;
    cliffs->n = 0;
    cliffs->bulk = bulk;
    for (const hd_stmt *s = module->body.first; s != NULL; s = s->next) {
        moved *with;
        hd_loc past;
        int at;

        if (!find_moved(module, s, &m))
            continue;
        with = m.loc.line > 0 ? find_place(cliffs, m.loc) : NULL;
        if (with != NULL) {
            join(with, &m);
            continue;
        }
        // A fold that is made where it is read stands at a place before that.
        past = m.loc;
        past.column++;
        at = first_from(cliffs, past);
        cliffs->moved =
            hd_arena_grow(scratch, cliffs->moved, cliffs->n, &room, sizeof m);
        memmove(&cliffs->moved[at + 1], &cliffs->moved[at],
                sizeof m * (size_t)(cliffs->n++ - at));
        cliffs->moved[at] = m;
    }
    return cliffs->n > 0 ? cliffs : NULL;
}

// ------------------------------------------------------------------- moves

typedef struct counter {
    const hd_module *module;
    hd_cliffs *cliffs;
    hd_env env;
    int64_t *var; // env.var
    bool ranked;  // not all ranks do the same
    bool streams; // on a stream, beside others
} counter;

static int64_t value_of(const counter *c, hd_expr expr)
{
    int64_t value = 0;

    return hd_expr_eval(c->module, expr, &c->env, &value) ? value : 0;
}

static double bytes_of(const hd_view *view)
{
    const hd_type *type = &view->buffer->type;
    double n = (double)hd_dtype_size(type->dtype);

    for (int i = 0; i < type->ndims; i++) {
        const hd_range *range = hd_view_range(view, i);

        if (hd_view_picks(view, i))
            continue;
        if (range == NULL)
            n *= mean(type->dim[i]);
        else if (range->block == HD_EXPR_NONE && range->extent > 0)
            n *= (double)range->extent;
        else
            n *= (double)type->dim[i].extent /
                 (double)(range->block == HD_EXPR_NONE ? 1 : range->blocks);
    }
    return n;
}

// The share of ranks, or of iterations, that are no root, or are one.
static double root_share(counter *c, const hd_op *op, bool root)
{
    hd_expr at = hd_op_key(op, HD_KEY_ROOT)->expr;
    double n = (double)c->module->axis[op->axis].size;

    if (!hd_expr_is_const(c->module, at)) // each of them in turn
        return (root ? 1 : n - 1) / n;
    c->ranked = true;
    return (hd_expr_value(c->module, at) == c->env.coord[op->axis]) == root;
}

static void count_op(counter *c, const hd_op *op, double times)
{
    moved *m =
        hd_op_is(op, HD_UNIT_TRANSFER) ? find_place(c->cliffs, op->loc) : NULL;
    double n;

    if (m == NULL || hd_op_move(op) == HD_MOVE_SEND)
        return;
    n = times * (double)hd_uneven_transfers(c->module, op);
    m->issued += n;
    m->looped += c->streams ? n : 0;
    if (hd_op_is_rooted(op))
        times *= root_share(c, op, hd_op_move(op) == HD_MOVE_REDUCE);
    m->now += times * hd_op_received(op, (double)c->module->axis[op->axis].size,
                                     bytes_of(&op->view[0]));
}

static bool is_asked(const hd_module *module, const hd_block *block, hd_var var)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if ((s->kind == HD_STMT_IF && hd_expr_uses_var(module, s->a, var)) ||
            is_asked(module, &s->body, var) ||
            is_asked(module, &s->otherwise, var))
            return true;
    return false;
}

// Iterations are alike unless a branch asks for their number.
static void count_block(counter *c, const hd_block *block, double times)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if (s->kind == HD_STMT_OP) {
            count_op(c, s->op, times);
        } else if (s->kind == HD_STMT_LET) {
            c->var[s->var] = value_of(c, s->a);
        } else if (s->kind == HD_STMT_IF) {
            c->ranked = true;
            count_block(c, value_of(c, s->a) != 0 ? &s->body : &s->otherwise,
                        times);
        } else if (s->kind == HD_STMT_FOR &&
                   !is_asked(c->module, &s->body, s->var)) {
            count_block(c, &s->body,
                        times *
                            (double)(value_of(c, s->b) - value_of(c, s->a)));
        } else if (s->kind == HD_STMT_FOR) {
            int64_t past = value_of(c, s->b);

            for (int64_t i = value_of(c, s->a); i < past; i++) {
                c->var[s->var] = i;
                count_block(c, &s->body, times);
            }
        } else {
            bool outer = c->streams;

            c->streams |= s->kind == HD_STMT_ON;
            count_block(c, &s->body, times);
            c->streams = outer;
        }
}

static void count_rank(counter *c, int64_t rank)
{
    for (int i = 0; i < c->module->naxes; i++)
        c->env.coord[i] = hd_mesh_coord(c->module, rank, i);
    for (int i = 0; i < c->cliffs->n; i++)
        c->cliffs->moved[i].now = c->cliffs->moved[i].issued =
            c->cliffs->moved[i].looped = 0;
    count_block(c, &c->module->body, 1);
    for (int i = 0; i < c->cliffs->n; i++) {
        moved *m = &c->cliffs->moved[i];
        double alone = m->issued - m->looped;

        m->alone = alone > m->alone ? alone : m->alone;
        m->bytes = m->now > m->bytes ? m->now : m->bytes;
        m->transfers = m->issued > m->transfers ? m->issued : m->transfers;
    }
}

void hd_cliffs_count(hd_cliffs *cliffs, const hd_module *module,
                     hd_arena *scratch)
{
    counter c = {.module = module,
                 .cliffs = cliffs,
                 .var = hd_new_array(scratch, int64_t, module->nvars + 1)};

    c.env.var = c.var;
    for (int64_t rank = 0;
         cliffs != NULL && rank < module->nranks && rank < MOST_RANKS; rank++)
        if (rank == 0 || c.ranked)
            count_rank(&c, rank);
}

// ------------------------------------------------------------------- words

// How many parts a pipeline along the axis that is moved along has.
static int64_t count_parts(const hd_module *module, const moved *m)
{
    sides s = sides_of(m->op);
    int axis = s.axis;

    for (int i = 0; i < s.from.ndims && axis < 0; i++)
        if (s.from.dim[i].mark != s.to.dim[i].mark &&
            hd_dim_is_sharded(s.from.dim[i]))
            axis = s.from.dim[i].mark;
    return axis < 0 ? 1 : module->axis[axis].size;
}

// What is told of one.
typedef struct teller {
    const hd_module *module;
    hd_diag *diag;
    const moved *m;
    sides sides;
} teller;

static void advise(const teller *t)
{
    const hd_buffer *to = t->m->op->view[0].buffer;
    hd_loc loc = t->m->op->view[1].buffer->loc;

    if (to->type.ndims == HD_MAX_DIMS && t->m->alone > (double)t->m->ranks)
        hd_note(t->diag, loc,
                "it moves index by index of another dimension, since what "
                "ranks have pieces of takes one more, and there are at most "
                "%d: give %%%s fewer",
                HD_MAX_DIMS, to->said);
    else if (t->m->apart)
        hd_note(t->diag, loc,
                "all of it goes to all ranks, as some alone have it: of a "
                "dimension that is an index a rank, a `set` of each index of "
                "%%%s sends each rank its own",
                to->said);
    else if (t->sides.axis >= 0)
        hd_note(t->diag, loc,
                "all of it is reduced, and then each rank keeps its part: "
                "`set` it to how %%%s lies first, which moves less",
                to->said);
    else
        hd_note(t->diag, loc,
                "its axes change one after the other, by way of more than "
                "either side: a `set` by way of a tensor that has another "
                "dimension over one of them moves less");
}

static bool is_cliff(const moved *m)
{
    double more = m->alone - 2 * (double)m->ranks;

    return m->bytes >= BEGIN_BYTES &&
           m->bytes + (more > 0 ? more * BEGIN_BYTES : 0) >
               MOST_TIMES * m->need + BEGIN_BYTES;
}

// What a statement of the text does, or what `place` wrote for it.
static bool is_written(const hd_op *op)
{
    return op->code == op->said ||
           (op->code == HD_OP_SET && op->said == HD_OP_COPY);
}

// "this set", "the gather of %x and 1 more at this matmul".
static const char *show_move(const moved *m, char out[SUBJECT])
{
    const hd_op *op = m->op;
    const char *said = hd_op_info_get(op->said)->text;
    sides s = sides_of(op);
    const char *what = s.axis >= 0 ? "sum" : "gather";
    char more[32] = "";

    if (is_written(op)) {
        snprintf(out, SUBJECT, "this %s", said);
        return out;
    }
    for (int i = 0; i < s.from.ndims && s.axis < 0; i++)
        if (is_spread(s.to.dim[i]) && s.from.dim[i].mark != s.to.dim[i].mark)
            what = "exchange";
    if (m->more > 0)
        snprintf(more, sizeof more, " and %d more", m->more);
    snprintf(out, SUBJECT, "the %s of %%%s%s at this %s", what,
             op->view[0].buffer->said, more, said);
    return out;
}

static void tell_more(const hd_module *module, const moved *m, hd_diag *diag)
{
    teller t = {module, diag, m, sides_of(m->op)};
    char subject[SUBJECT], moves[32], needs[32];

    hd_warning(diag, HD_E0505, m->loc,
               "%s moves %s to a rank, in %.0f transfer%s, where its "
               "placements need %s",
               show_move(m, subject), hd_bytes_text(m->bytes, moves),
               m->transfers, m->transfers == 1 ? "" : "s",
               hd_bytes_text(m->need, needs));
    advise(&t);
}

// Whether it goes on by itself, and need not.
static bool is_alone(const moved *m)
{
    return !m->told && !is_cliff(m) && m->need >= BEGIN_BYTES && m->alone > 0 &&
           (m->beside ||
            (m->reason != NULL && (m->marked || m->product != NULL)));
}

static void advise_stream(const hd_module *module, const moved *m,
                          hd_diag *diag)
{
    const hd_buffer *made = m->product->view[0].buffer;
    const hd_buffer *moves = m->op->view[is_reduction(m->op)].buffer;
    long long n = (long long)moves->type.dim[m->of_moved].extent;
    long long parts = (long long)count_parts(module, m);
    char blocks[32] = "";

    if (n != parts)
        snprintf(blocks, sizeof blocks, " in %lld", parts);
    if (made == moves)
        hd_note(diag, moves->loc,
                "each part of %%%s moves while the next one is computed if its "
                "dimension %d is `%lld%s @stream`",
                moves->name, m->of_moved, n, blocks);
    else
        hd_note(diag, moves->loc,
                "each part of %%%s is computed on while the next one moves if "
                "its dimension %d and dimension %d of %%%s are `%lld%s "
                "@stream`",
                moves->name, m->of_moved, m->of_product, made->name, n, blocks);
}

static void tell_alone(const hd_cliffs *cliffs, const hd_module *module,
                       const moved *m, hd_diag *diag)
{
    bool parts = m->reason != NULL && (m->marked || m->product != NULL);
    char subject[SUBJECT], moves[32];
    int others = -1;

    for (int i = 0; i < cliffs->n; i++)
        others += is_alone(&cliffs->moved[i]);
    hd_warning(diag, HD_E0506, m->loc,
               "nothing is computed while %s moves %s to a rank%s%s",
               show_move(m, subject), hd_bytes_text(m->bytes, moves),
               parts ? ": " : "", parts ? m->reason : "");
    if (parts && !m->marked)
        advise_stream(module, m, diag);
    if (m->beside)
        hd_note(diag, m->loc,
                "with `--comm-stream` it goes on beside what has nothing to do "
                "with it");
    if (others > 0)
        hd_note(diag, m->loc, "%d more statement%s move%s so", others,
                others == 1 ? "" : "s", others == 1 ? "s" : "");
}

void hd_cliffs_tell(const hd_cliffs *cliffs, hd_module *module, hd_diag *diag)
{
    const moved *most = NULL;

    for (int i = 0; cliffs != NULL && i < cliffs->n; i++) {
        const moved *m = &cliffs->moved[i];

        if (is_cliff(m))
            tell_more(module, m, diag);
        if (!cliffs->bulk && is_alone(m) &&
            (most == NULL || m->bytes > most->bytes))
            most = m;
    }
    module->told_alone = most != NULL;
    if (most != NULL)
        tell_alone(cliffs, module, most, diag);
}

// ------------------------------------------------------- what passes know

bool hd_cliffs_waits(const hd_cliffs *cliffs, hd_loc loc)
{
    const moved *m;

    if (cliffs == NULL)
        return false;
    if (loc.line > 0) {
        m = find_place(cliffs, loc);
        return m != NULL && m->need >= BEGIN_BYTES &&
               (m->marked || m->product != NULL);
    }
    for (int i = 0; i < cliffs->n; i++)
        if (cliffs->moved[i].need >= BEGIN_BYTES)
            return true;
    return false;
}

void hd_cliffs_alone(hd_cliffs *cliffs, hd_loc loc, const char *reason)
{
    moved *m = cliffs != NULL ? find_place(cliffs, loc) : NULL;

    if (m != NULL)
        m->reason = reason;
}

void hd_cliffs_beside(hd_cliffs *cliffs, hd_loc loc, bool streams)
{
    moved *m = cliffs != NULL ? find_place(cliffs, loc) : NULL;

    if (m == NULL)
        return;
    m->beside = !streams;
    m->told |= streams;
}

void hd_cliffs_told(hd_cliffs *cliffs, hd_loc loc)
{
    moved *m = cliffs != NULL ? find_place(cliffs, loc) : NULL;

    if (m != NULL)
        m->told = true;
}
