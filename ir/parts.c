// A copy of the program's statements and buffers in an arena of its own. Names,
// expressions and keys stay the module's: a walk only reads them.
//
// Between the parts stands a buffer of the copy's own. Where the op is on a
// stream that an expression numbers, that has an index a stream: the same op
// may be under way on each.
#include "ir/parts.h"

#include <assert.h>

typedef struct splitter {
    const hd_module *from;
    hd_module *to;
    int64_t most;       // ranks along the axis of an op that is split
    hd_buffer **buffer; // of the copy, by id
    hd_expr stream;     // of the `on` around, HD_EXPR_NONE outside
} splitter;

static bool lead(hd_type *type, int64_t extent)
{
    if (type->ndims == HD_MAX_DIMS)
        return false;
    *type = hd_type_with(type, 0, hd_dim_whole(extent));
    return true;
}

bool hd_fused_types(const hd_module *module, const hd_op *op, hd_type *out,
                    hd_type *a)
{
    int64_t n = module->axis[op->axis].size;
    hd_type between;

    *out = hd_view_type(&op->view[0]);
    *a = hd_view_type(&op->view[1]);
    if (hd_op_fused(op) == HD_MOVE_ALL_GATHER && !lead(a, n))
        return false;
    if (hd_op_fused(op) == HD_MOVE_REDUCE_SCATTER && !lead(out, n))
        return false;
    // What stands between the parts may have an index a stream.
    between = hd_op_fused(op) == HD_MOVE_ALL_GATHER ? *a : *out;
    return lead(&between, 1);
}

bool hd_op_splits(const hd_module *module, const hd_op *op, int64_t most)
{
    return hd_op_fused(op) != HD_MOVE_NONE &&
           module->axis[op->axis].size <= most;
}

// ------------------------------------------------------------------- parts

// A new temp, or what of it belongs to the stream at hand.
static hd_view add_between(splitter *s, hd_type type, const hd_op *op)
{
    hd_module *m = s->to;
    hd_buffer *b = hd_new(m->arena, hd_buffer);
    hd_view view;

    if (s->stream != HD_EXPR_NONE)
        lead(&type, m->streams);
    *b = (hd_buffer){.name = op->view[0].buffer->name,
                     .role = HD_ROLE_TEMP,
                     .type = type,
                     .shared = true,
                     .id = m->nbuffers++,
                     .loc = op->loc};
    m->last_buffer->next = b;
    m->last_buffer = b;
    view = hd_view_whole(b, op->loc);
    if (s->stream != HD_EXPR_NONE)
        view.index[view.nindex++] = s->stream;
    return view;
}

static void add_transfer(splitter *s, hd_block *to, hd_opcode code,
                         const hd_op *op, hd_view out, hd_view in)
{
    hd_stmt *stmt = hd_stmt_op(s->to, code, op->axis, 1, 1, 0, op->loc);

    stmt->op->view[0] = out;
    stmt->op->view[1] = in;
    hd_block_append(to, stmt);
}

static void add_product(splitter *s, hd_block *to, const hd_op *op, hd_view out,
                        hd_view a)
{
    hd_stmt *stmt = hd_stmt_new(s->to, HD_STMT_OP, op->loc);
    hd_op *product = hd_arena_copy(s->to->arena, op, sizeof *op);

    product->code = HD_OP_MATMUL;
    product->axis = -1;
    product->view = hd_arena_copy(s->to->arena, op->view,
                                  sizeof *op->view * (size_t)op->nviews);
    product->view[0] = out;
    product->view[1] = a;
    stmt->op = product;
    hd_block_append(to, stmt);
}

// `op` has views of the copy.
static void add_parts(splitter *s, hd_block *to, const hd_op *op)
{
    hd_type out, a;
    hd_view between;
    bool fits = hd_fused_types(s->from, op, &out, &a);

    (void)fits;
    assert(fits); // verified
    if (hd_op_fused(op) == HD_MOVE_ALL_GATHER) {
        between = add_between(s, a, op);
        add_transfer(s, to, HD_OP_ALL_GATHER, op, between, op->view[1]);
        add_product(s, to, op, op->view[0], between);
        return;
    }
    between = add_between(s, out, op);
    add_product(s, to, op, between, op->view[1]);
    add_transfer(s, to,
                 hd_op_fused(op) == HD_MOVE_REDUCE_SCATTER
                     ? HD_OP_REDUCE_SCATTER
                     : HD_OP_ALL_REDUCE,
                 op, op->view[0], between);
}

// -------------------------------------------------------------------- copy

static hd_op *copy_op(splitter *s, const hd_op *op)
{
    hd_op *copy = hd_arena_copy(s->to->arena, op, sizeof *op);

    copy->view = hd_arena_copy(s->to->arena, op->view,
                               sizeof *op->view * (size_t)op->nviews);
    for (int i = 0; i < op->nviews; i++)
        copy->view[i].buffer = s->buffer[op->view[i].buffer->id];
    return copy;
}

static void copy_block(splitter *s, const hd_block *from, hd_block *to)
{
    *to = (hd_block){0};
    for (const hd_stmt *stmt = from->first; stmt != NULL; stmt = stmt->next) {
        hd_expr outer = s->stream;
        hd_stmt *copy;

        if (stmt->kind == HD_STMT_OP &&
            hd_op_splits(s->from, stmt->op, s->most)) {
            add_parts(s, to, copy_op(s, stmt->op));
            continue;
        }
        copy = hd_arena_copy(s->to->arena, stmt, sizeof *stmt);
        copy->next = NULL;
        if (stmt->kind == HD_STMT_OP)
            copy->op = copy_op(s, stmt->op);
        if (stmt->kind == HD_STMT_ON)
            s->stream = stmt->a;
        copy_block(s, &stmt->body, &copy->body);
        copy_block(s, &stmt->otherwise, &copy->otherwise);
        s->stream = outer;
        hd_block_append(to, copy);
    }
}

static void copy_buffers(splitter *s)
{
    const hd_module *from = s->from;
    hd_module *to = s->to;
    hd_buffer **end = &to->buffers;

    s->buffer =
        hd_new_array(to->arena, hd_buffer *, (size_t)from->nbuffers + 1);
    to->argument = hd_new_array(to->arena, hd_buffer *, from->narguments + 1);
    for (const hd_buffer *b = from->buffers; b != NULL; b = b->next) {
        hd_buffer *copy = hd_arena_copy(to->arena, b, sizeof *b);

        // It names an earlier one.
        copy->of = b->of != NULL ? s->buffer[b->of->id] : NULL;
        copy->next = NULL;
        s->buffer[b->id] = to->last_buffer = *end = copy;
        end = &copy->next;
    }
    for (int i = 0; i < from->narguments; i++)
        to->argument[i] = s->buffer[from->argument[i]->id];
}

static bool any_splits(const hd_module *module, const hd_block *block,
                       int64_t most)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if ((s->kind == HD_STMT_OP && hd_op_splits(module, s->op, most)) ||
            any_splits(module, &s->body, most) ||
            any_splits(module, &s->otherwise, most))
            return true;
    return false;
}

hd_status hd_module_split(const hd_module *module, int64_t most, hd_diag *diag,
                          hd_module **out)
{
    splitter s = {.from = module, .most = most, .stream = HD_EXPR_NONE};
    hd_arena *arena;
    jmp_buf guard;

    *out = NULL;
    if (!any_splits(module, &module->body, most))
        return HD_OK;
    s.to = hd_module_create();
    if (s.to == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    arena = s.to->arena;
    if (setjmp(guard) != 0) {
        hd_arena_destroy(arena);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    }
    hd_arena_guard(arena, &guard);
    *s.to = *module;
    s.to->arena = arena;
    copy_buffers(&s);
    copy_block(&s, &module->body, &s.to->body);
    hd_arena_guard(arena, NULL);
    *out = s.to;
    return HD_OK;
}
