// A clone of the program, with the parts in the place of each fused op.
//
// Between the parts stands a buffer of the clone's own. Where the op is on a
// stream that an expression numbers, that has an index a stream: the same op
// may be under way on each.
#include "ir/parts.h"

#include <assert.h>

typedef struct splitter {
    hd_module *module;
    int64_t most;   // ranks along the axis of an op that is split
    hd_expr stream; // of the `on` around, HD_EXPR_NONE outside
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
    hd_module *m = s->module;
    hd_buffer *b = hd_new(m->arena, hd_buffer);
    hd_view view;

    if (s->stream != HD_EXPR_NONE)
        lead(&type, m->streams);
    *b = (hd_buffer){.name = op->view[0].buffer->name,
                     .said = op->view[0].buffer->said,
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
    hd_stmt *stmt = hd_stmt_op(s->module, code, op->axis, 1, 1, 0, op->loc);

    stmt->op->view[0] = out;
    stmt->op->view[1] = in;
    hd_block_append(to, stmt);
}

static void add_product(splitter *s, hd_block *to, const hd_op *op, hd_view out,
                        hd_view a)
{
    hd_stmt *stmt = hd_stmt_new(s->module, HD_STMT_OP, op->loc);
    hd_op *product = hd_arena_copy(s->module->arena, op, sizeof *op);

    product->code = HD_OP_MATMUL;
    product->axis = -1;
    product->view = hd_arena_copy(s->module->arena, op->view,
                                  sizeof *op->view * (size_t)op->nviews);
    product->view[0] = out;
    product->view[1] = a;
    stmt->op = product;
    hd_block_append(to, stmt);
}

static void add_parts(splitter *s, hd_block *to, const hd_op *op)
{
    hd_type out, a;
    hd_view between;
    bool fits = hd_fused_types(s->module, op, &out, &a);

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

static void split_block(splitter *s, hd_block *block)
{
    hd_stmt *next = block->first;

    *block = (hd_block){0};
    while (next != NULL) {
        hd_stmt *stmt = next;
        hd_expr outer = s->stream;

        next = stmt->next;
        stmt->next = NULL;
        if (stmt->kind == HD_STMT_OP &&
            hd_op_splits(s->module, stmt->op, s->most)) {
            add_parts(s, block, stmt->op);
            continue;
        }
        if (stmt->kind == HD_STMT_ON)
            s->stream = stmt->a;
        split_block(s, &stmt->body);
        split_block(s, &stmt->otherwise);
        s->stream = outer;
        hd_block_append(block, stmt);
    }
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
    splitter s = {.most = most, .stream = HD_EXPR_NONE};
    jmp_buf guard;

    *out = NULL;
    if (!any_splits(module, &module->body, most))
        return HD_OK;
    HD_TRY(hd_module_clone(module, diag, &s.module));
    if (setjmp(guard) != 0) {
        hd_module_destroy(s.module);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    }
    hd_arena_guard(s.module->arena, &guard);
    split_block(&s, &s.module->body);
    hd_arena_guard(s.module->arena, NULL);
    *out = s.module;
    return HD_OK;
}
