// One edit picks one statement and changes one thing of it. Variables stay in
// scope, and what only the parser establishes (keys in order, extents, aliases)
// stays as it is, since every pass relies on that.
#include "tests/fuzz/mutate.h"

#include "ir/counts.h"

enum {
    MOST_STATEMENTS = 4096,
    MOST_EDITS = 16, // bytes
};

typedef struct place {
    hd_block *block;
    hd_stmt *before; // NULL at the front
    hd_stmt *stmt;
} place;

typedef struct mutator {
    hd_module *module;
    choices *choices;
    int nplaces;
    place place[MOST_STATEMENTS];
} mutator;

static int pick(mutator *m, int n)
{
    return choices_pick(m->choices, n);
}

static void list_places(mutator *m, hd_block *block)
{
    hd_stmt *before = NULL;

    for (hd_stmt *s = block->first; s != NULL; before = s, s = s->next) {
        if (m->nplaces == MOST_STATEMENTS)
            return;
        m->place[m->nplaces++] = (place){block, before, s};
        list_places(m, &s->body);
        list_places(m, &s->otherwise);
    }
}

static const place *pick_place(mutator *m)
{
    int page = m->nplaces > 256 ? pick(m, m->nplaces / 256 + 1) : 0;
    int at = 256 * page + pick(m, m->nplaces < 256 ? m->nplaces : 256);

    return &m->place[at < m->nplaces ? at : m->nplaces - 1];
}

static hd_buffer *pick_buffer(mutator *m)
{
    hd_buffer *buffer = m->module->buffers;

    for (int i = pick(m, m->module->nbuffers); i > 0; i--)
        buffer = buffer->next;
    return buffer;
}

// A number near the ones that programs use.
static hd_expr pick_number(mutator *m)
{
    return hd_expr_const(m->module, pick(m, 12) - 2);
}

// What stands there may be named elsewhere in the statement, and no further.
static hd_expr change_expr(mutator *m, hd_expr expr)
{
    static const hd_expr_kind kinds[] = {HD_EXPR_ADD, HD_EXPR_SUB, HD_EXPR_MUL,
                                         HD_EXPR_DIV, HD_EXPR_MOD, HD_EXPR_LT,
                                         HD_EXPR_EQ,  HD_EXPR_AND, HD_EXPR_MIN,
                                         HD_EXPR_MAX, HD_EXPR_CDIV};
    int how = pick(m, 3);

    if (expr < 0 || how == 0)
        return pick_number(m);
    if (how == 1 && m->module->naxes > 0)
        return hd_expr_coord(m->module, pick(m, m->module->naxes));
    // As deep as the parser lets it be, or printing it would not parse.
    if (hd_expr_depth(m->module, expr) >= HD_MAX_EXPR_DEPTH / 2)
        return expr;
    return hd_expr_binary(m->module, kinds[pick(m, 11)], expr, pick_number(m));
}

static hd_expr plus(mutator *m, hd_expr expr, hd_expr more)
{
    return hd_expr_depth(m->module, expr) >= HD_MAX_EXPR_DEPTH / 2
               ? expr
               : hd_expr_binary(m->module, HD_EXPR_ADD, expr, more);
}

// What stands there becomes a block, or a block is another one or one of more
// or fewer.
static void change_block_of(mutator *m, hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);
    bool is_block = range != NULL && range->block != HD_EXPR_NONE;
    hd_expr block = is_block        ? range->block
                    : range != NULL ? range->low
                                    : view->index[i];

    if (!is_block || pick(m, 2) == 0)
        block = change_expr(m, block);
    hd_view_keep_block(m->module, view, i, block,
                       is_block && pick(m, 2) == 0 ? range->blocks
                                                   : 1 + pick(m, 6));
}

// What stands there becomes a range, or a range is moved or begins or ends
// elsewhere.
static void change_range(mutator *m, hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);
    hd_expr number = pick_number(m), low = number, past = pick_number(m);

    if (range == NULL && view->index[i] >= 0) {
        low = view->index[i];
        past = plus(m, low, number);
    } else if (range != NULL && pick(m, 2) == 0) {
        bool moves = pick(m, 2) == 0;

        low = moves ? plus(m, range->low, number) : range->low;
        past = plus(m, range->past, number);
    } else if (range != NULL) {
        low = change_expr(m, range->low);
        past = range->past;
    }
    hd_view_keep(m->module, view, i, low, past);
}

// An index, or HD_EXPR_ALL, in place of what stands there.
static void put_index(mutator *m, hd_view *view, int i, hd_expr index)
{
    hd_range *range;

    view->index[i] = index;
    if (view->range == NULL)
        return;
    range = hd_new_array(m->module->arena, hd_range, HD_MAX_DIMS);
    for (int d = 0; d < HD_MAX_DIMS; d++)
        range[d] = view->range[d];
    range[i].past = HD_EXPR_NONE;
    view->range = range;
}

// Where they begin and end depends on the buffer.
static void renew_blocks(mutator *m, hd_view *view)
{
    for (int i = 0; i < view->nindex; i++) {
        const hd_range *range = hd_view_range(view, i);

        if (range == NULL || range->block == HD_EXPR_NONE)
            continue;
        if (i < view->buffer->type.ndims)
            hd_view_keep_block(m->module, view, i, range->block, range->blocks);
        else
            put_index(m, view, i, range->block);
    }
}

static void change_view(mutator *m, hd_view *view)
{
    int at;

    switch (pick(m, 5)) {
    case 0:
        view->buffer = pick_buffer(m);
        renew_blocks(m, view);
        break;
    case 1:
        view->nindex = pick(m, view->nindex + 1);
        break;
    case 2:
        at = pick(m, view->nindex);
        if (at < view->nindex && at < view->buffer->type.ndims &&
            pick(m, 2) == 0)
            change_block_of(m, view, at);
        else if (view->nindex > 0)
            change_range(m, view, at);
        break;
    case 3:
        if (view->nindex < HD_MAX_DIMS) {
            put_index(m, view, view->nindex,
                      pick(m, 2) == 0 ? HD_EXPR_ALL : pick_number(m));
            view->nindex++;
        }
        break;
    default:
        if (view->nindex > 0) {
            int i = pick(m, view->nindex);

            put_index(m, view, i,
                      pick(m, 4) == 0 ? HD_EXPR_ALL
                                      : change_expr(m, view->index[i]));
        }
    }
}

static void drop_view(hd_op *op, int i)
{
    op->nviews--;
    for (int k = i; k < op->nviews; k++)
        op->view[k] = op->view[k + 1];
    for (int k = 0; k < op->nkeys; k++)
        op->key[k].view -= op->key[k].view > i;
}

static void drop_key(hd_op *op, int i)
{
    if (op->key[i].view >= 0)
        drop_view(op, op->key[i].view);
    for (int k = i; k + 1 < op->nkeys; k++)
        op->key[k] = op->key[k + 1];
    op->nkeys--;
}

// Numbers stand among operands, as many as there are now.
static void keep_numbers(hd_op *op)
{
    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].code == HD_KEY_NUMBERS &&
            op->key[i].scalar[op->key[i].nscalars - 1].operand >=
                hd_op_operands(op))
            drop_key(op, i);
}

static void change_scalar(mutator *m, hd_key *key)
{
    hd_scalar *scalar = hd_arena_copy(m->module->arena, key->scalar,
                                      sizeof *scalar * (size_t)key->nscalars);

    scalar[pick(m, key->nscalars)].number = pick(m, 12) / 2.0 - 2;
    key->scalar = scalar;
}

static void change_key(mutator *m, hd_op *op)
{
    int i = pick(m, op->nkeys);
    hd_key *key;

    if (op->nkeys == 0)
        return;
    key = &op->key[i];
    if (pick(m, 3) == 0) {
        drop_key(op, i);
    } else if (key->code == HD_KEY_NUMBERS) {
        change_scalar(m, key);
    } else if (key->view >= 0) {
        change_view(m, &op->view[key->view]);
    } else if (key->expr != HD_EXPR_NONE) {
        key->expr = change_expr(m, key->expr);
    } else if (hd_key_info_get(key->code)->value == HD_VALUE_ACT) {
        key->act = (hd_act)(1 + pick(m, 3));
    } else if (hd_key_info_get(key->code)->value == HD_VALUE_FACTOR ||
               hd_key_info_get(key->code)->value == HD_VALUE_INT) {
        key->number = pick(m, 12) - 2;
    } else if (hd_key_info_get(key->code)->value == HD_VALUE_INTS) {
        key->ints[pick(m, HD_MAX_DIMS)] = pick(m, HD_MAX_DIMS + 2) - 1;
        key->nints = pick(m, 4) == 0 ? pick(m, HD_MAX_DIMS + 1) : key->nints;
    }
}

static void change_op(mutator *m, hd_op *op)
{
    int nviews = op->noutputs + op->ninputs;

    switch (pick(m, 6)) {
    case 0:
        op->code = (hd_opcode)pick(m, HD_NOPS);
        break;
    case 1:
        // What the parser leaves out, it could not read back.
        if (m->module->naxes > 0)
            op->axis = pick(m, m->module->naxes + 1) - 1;
        break;
    case 2:
        op->noutputs = pick(m, nviews + 1);
        op->ninputs = nviews - op->noutputs;
        break;
    case 3:
        if (op->ninputs > 0)
            drop_view(op, op->noutputs + --op->ninputs);
        break;
    case 4:
        change_key(m, op);
        break;
    default:
        if (nviews > 0)
            change_view(m, &op->view[pick(m, nviews)]);
    }
    keep_numbers(op);
}

// Loops and variables keep their kind: what stands in them names theirs.
static void change_block(mutator *m, hd_stmt *stmt)
{
    static const hd_stmt_kind kinds[] = {HD_STMT_IF, HD_STMT_ON, HD_STMT_GROUP};
    bool loop = stmt->kind == HD_STMT_FOR || stmt->kind == HD_STMT_LET;

    if (!loop && pick(m, 3) == 0) {
        stmt->kind = kinds[pick(m, 3)];
        if (stmt->a < 0)
            stmt->a = pick_number(m);
        if (stmt->kind != HD_STMT_IF)
            stmt->otherwise = (hd_block){NULL, NULL};
    } else if (stmt->kind == HD_STMT_FOR && pick(m, 2) == 0) {
        stmt->b = pick_number(m);
    } else if (stmt->kind != HD_STMT_GROUP) {
        stmt->a = change_expr(m, stmt->a);
    }
}

// A second statement of the same op: both are one object from here on.
static void repeat_op(mutator *m, const place *p)
{
    hd_stmt *stmt = hd_stmt_new(m->module, HD_STMT_OP, p->stmt->loc);

    stmt->op = p->stmt->op;
    hd_block_insert(p->block, p->stmt, stmt);
}

static hd_view *copy_views(hd_view *to, const hd_view *from, int n)
{
    for (int i = 0; i < n; i++)
        *to++ = from[i];
    return to;
}

// Two waits in a row, or two records, become one for the events of both.
static bool join_lists(mutator *m, const place *p)
{
    const hd_op *a = p->stmt->op, *b = p->stmt->next->op;
    int noutputs, ninputs;
    hd_op *joined;
    hd_view *to;

    if (p->stmt->kind != HD_STMT_OP || p->stmt->next->kind != HD_STMT_OP ||
        a->code != b->code ||
        (a->code != HD_OP_WAIT && a->code != HD_OP_RECORD))
        return false;
    noutputs = a->noutputs + b->noutputs;
    ninputs = a->ninputs + b->ninputs;
    if (noutputs + ninputs > HD_MAX_OPERANDS)
        return false;
    joined =
        hd_stmt_op(m->module, a->code, a->axis, noutputs, ninputs, 0, a->loc)
            ->op;
    to = copy_views(joined->view, a->view, a->noutputs);
    to = copy_views(to, b->view, b->noutputs);
    to = copy_views(to, a->view + a->noutputs, a->ninputs);
    copy_views(to, b->view + b->noutputs, b->ninputs);
    p->stmt->op = joined;
    hd_block_remove(p->block, p->stmt, p->stmt->next);
    return true;
}

// Statements that declare a variable stay where they are.
static void move_stmt(mutator *m, const place *p)
{
    hd_stmt *next = p->stmt->next;

    if (next == NULL || next->kind == HD_STMT_LET || join_lists(m, p))
        return;
    hd_block_remove(p->block, p->before, p->stmt);
    hd_block_insert(p->block, next, p->stmt);
}

// The arguments are those that are not temps, in their order; one more at most.
static void change_role(mutator *m, hd_buffer *buffer)
{
    hd_module *module = m->module;
    int room = module->narguments + 1;

    buffer->role = (hd_role)pick(m, 4);
    module->argument = hd_new_array(module->arena, hd_buffer *, room);
    module->arguments_room = room;
    module->narguments = 0;
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->role != HD_ROLE_TEMP)
            module->argument[module->narguments++] = b;
}

static void change_buffer(mutator *m)
{
    hd_buffer *buffer = pick_buffer(m);
    hd_dim *dim = &buffer->type.dim[pick(m, buffer->type.ndims)];

    if (buffer->of != NULL)
        return;
    switch (pick(m, 3)) {
    case 0:
        change_role(m, buffer);
        break;
    case 1:
        buffer->shared = !buffer->shared;
        break;
    default:
        if (buffer->type.ndims > 0 && buffer->type.dtype != HD_DTYPE_EVENT)
            dim->mark =
                dim->mark >= 0 || pick(m, 2) == 0 ? HD_LOCAL : HD_STREAM;
    }
}

static void edit_any(mutator *m)
{
    const place *p = pick_place(m);
    int how = pick(m, 8);

    if (how == 0 && m->module->nbuffers > 0)
        change_buffer(m);
    else if (how == 1 && p->stmt->kind != HD_STMT_LET)
        hd_block_remove(p->block, p->before, p->stmt);
    else if (how == 2 && p->stmt->kind == HD_STMT_OP)
        repeat_op(m, p);
    else if (how == 3 && p->stmt->kind != HD_STMT_LET)
        move_stmt(m, p);
    else if (p->stmt->kind == HD_STMT_OP)
        change_op(m, p->stmt->op);
    else
        change_block(m, p->stmt);
}

static hd_expr turn(mutator *m, hd_expr expr, int64_t extent)
{
    hd_expr by = hd_expr_const(m->module, 1 + pick(m, 3));

    if (expr < 0 || hd_expr_depth(m->module, expr) >= HD_MAX_EXPR_DEPTH / 2)
        return expr;
    return hd_expr_mod(m->module,
                       hd_expr_binary(m->module, HD_EXPR_ADD, expr, by),
                       hd_expr_const(m->module, extent));
}

// As long as it was.
static void turn_range(mutator *m, hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);
    int64_t places = view->buffer->type.dim[i].extent - range->extent + 1;
    hd_expr low = range->low;

    if (hd_dim_is_sharded(view->buffer->type.dim[i]))
        return; // of which there is the own block alone
    if (range->block != HD_EXPR_NONE && pick(m, 2) == 0) {
        hd_view_keep_block(m->module, view, i,
                           turn(m, range->block, range->blocks), range->blocks);
        return;
    }
    if (range->extent > 0 && places > 1)
        low = turn(m, low, places);
    if (low != range->low)
        hd_view_keep(m->module, view, i, low,
                     plus(m, low, hd_expr_const(m->module, range->extent)));
}

static void turn_view(mutator *m, hd_view *view)
{
    int i = pick(m, view->nindex);

    if (hd_view_range(view, i) != NULL)
        turn_range(m, view, i);
    else if (view->nindex > 0 && !hd_dim_is_sharded(view->buffer->type.dim[i]))
        view->index[i] =
            turn(m, view->index[i], view->buffer->type.dim[i].extent);
}

// Stays in range, so that more than the walk gets to see it.
static void edit_gently(mutator *m)
{
    const place *p = pick_place(m);
    hd_op *op = p->stmt->op;
    int how = pick(m, 3);

    if (p->stmt->kind == HD_STMT_ON) {
        p->stmt->a = turn(m, p->stmt->a, m->module->streams);
    } else if (p->stmt->kind != HD_STMT_OP) {
        change_block(m, p->stmt);
    } else if (how == 0 && op->nkeys > 0) {
        change_key(m, op);
    } else if (how == 0 && op->ninputs > 1) {
        hd_view *operand = &op->view[op->noutputs], first = operand[0];

        operand[0] = operand[1];
        operand[1] = first;
    } else if (how == 1) {
        move_stmt(m, p);
    } else if (op->nviews > 0) {
        turn_view(m, &op->view[pick(m, op->nviews)]);
    }
}

static int mutate(hd_module *module, choices *choices, int most,
                  void (*edit)(mutator *))
{
    int n = 1 + choices_pick(choices, most), done = 0;

    for (; done < n; done++) {
        mutator m;

        m.module = module;
        m.choices = choices;
        m.nplaces = 0;
        list_places(&m, &module->body);
        if (m.nplaces == 0 || choices_ended(choices))
            break;
        edit(&m);
    }
    // As a parser of the edited text would have it.
    hd_module_add_counts(module);
    return done;
}

int mutate_module(hd_module *module, choices *choices, int most)
{
    return mutate(module, choices, most, edit_any);
}

int mutate_gently(hd_module *module, choices *choices, int most)
{
    return mutate(module, choices, most, edit_gently);
}

choices take_edits(choices *choices)
{
    struct choices edits = *choices;

    if (edits.length > MOST_EDITS)
        edits.length = MOST_EDITS;
    choices->at = edits.length;
    return edits;
}
