// Writes the canonical form of docs/text-form.md.
#include "ir/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/locale.h"

void hd_dim_print(const hd_module *module, hd_dim dim, hd_text *text)
{
    if (hd_dim_is_counted(dim))
        hd_expr_print(module, (hd_expr)~dim.extent, text);
    else if (hd_dim_is_sized(dim) && dim.times > 1)
        hd_text_printf(text, "%lld * %s", (long long)dim.times,
                       module->size[dim.size - 1].name);
    else if (hd_dim_is_sized(dim))
        hd_text_puts(text, module->size[dim.size - 1].name);
    else
        hd_text_printf(text, "%lld", (long long)dim.extent);
}

const char *hd_mark_text(const hd_module *module, int mark)
{
    return mark == HD_STREAM ? "stream" : module->axis[mark].name;
}

static void print_mark(const hd_module *module, hd_dim dim, hd_text *text)
{
    if (dim.mark < 0 && hd_dim_is_cut(dim))
        hd_text_printf(text, " in %lld", (long long)dim.blocks);
    if (dim.mark != HD_LOCAL)
        hd_text_printf(text, "@%s", hd_mark_text(module, dim.mark));
}

static void print_dim(const hd_module *module, hd_dim dim, hd_text *text)
{
    hd_dim_print(module, dim, text);
    print_mark(module, dim, text);
}

// A dimension whose extent the declaration leaves open.
static void print_placed(const hd_module *module, hd_dim dim, hd_text *text)
{
    bool beside = hd_dim_is_sharded(dim) ||
                  (dim.mark == HD_STREAM && !hd_dim_is_cut(dim));

    hd_text_puts(text, beside ? ": " : ":");
    print_mark(module, dim, text);
}

void hd_type_print(const hd_module *module, const hd_type *type, hd_text *text)
{
    hd_text_printf(text, "%s[", hd_dtype_text(type->dtype));
    for (int i = 0; i < type->ndims; i++) {
        hd_text_puts(text, i > 0 ? ", " : "");
        print_dim(module, type->dim[i], text);
    }
    hd_text_puts(text, "]");
}

void hd_buffer_print_dim(const hd_module *module, const hd_buffer *buffer,
                         int dim, hd_text *text)
{
    print_dim(module, buffer->type.dim[dim], text);
    if (buffer->by != NULL && dim == buffer->counted)
        hd_text_printf(text, " by %%%s", buffer->by->name);
}

void hd_ranks_print(const hd_module *module, hd_ranks ranks, hd_text *text)
{
    if (hd_ranks_are_all(ranks)) {
        hd_text_puts(text, "all ranks");
        return;
    }
    hd_text_printf(text, "%s %lld", module->axis[ranks.axis].name,
                   (long long)ranks.low);
    if (ranks.past > ranks.low + 1)
        hd_text_printf(text, "..%lld", (long long)ranks.past);
}

static void print_index(const hd_module *module, const hd_view *view, int i,
                        hd_text *text)
{
    const hd_range *range = hd_view_range(view, i);

    if (range != NULL && range->block != HD_EXPR_NONE) {
        hd_expr_print(module, range->block, text);
        hd_text_printf(text, " of %lld", (long long)range->blocks);
    } else if (range != NULL) {
        hd_expr_print(module, range->low, text);
        hd_text_puts(text, "..");
        hd_expr_print(module, range->past, text);
    } else if (view->index[i] == HD_EXPR_ALL) {
        hd_text_puts(text, ":");
    } else {
        hd_expr_print(module, view->index[i], text);
    }
}

void hd_view_print(const hd_module *module, const hd_view *view, hd_text *text)
{
    hd_text_printf(text, "%%%s", view->buffer->name);
    for (int i = 0; i < view->nindex; i++) {
        hd_text_puts(text, i > 0 ? ", " : "[");
        print_index(module, view, i, text);
    }
    if (view->nindex > 0)
        hd_text_puts(text, "]");
}

void hd_number_print(double value, hd_text *text)
{
    char digits[40];
    locale_t before = hd_locale_enter();

    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    hd_locale_leave(before);
    hd_text_puts(text, digits);
}

// A fraction always with a point or an exponent, so that it stays one.
void hd_key_number_print(const hd_key *key, hd_text *text)
{
    size_t before = text->length;

    if (hd_key_info_get(key->code)->value == HD_VALUE_INT) {
        hd_text_printf(text, "%d", (int)key->number);
        return;
    }
    hd_number_print(key->number, text);
    if (!text->failed && strpbrk(text->bytes + before, ".en") == NULL)
        hd_text_puts(text, ".0");
}

void hd_key_ints_print(const hd_key *key, const char *before,
                       const char *between, const char *after, hd_text *text)
{
    hd_text_puts(text, before);
    for (int i = 0; i < key->nints; i++)
        hd_text_printf(text, "%s%d", i > 0 ? between : "", (int)key->ints[i]);
    hd_text_puts(text, after);
}

static void print_key(const hd_module *module, const hd_op *op,
                      const hd_key *key, hd_text *text)
{
    const hd_key_info *info = hd_key_info_get(key->code);

    hd_text_printf(text, " %s", info->text);
    if (info->value == HD_VALUE_FLAG)
        return;
    hd_text_puts(text, " ");
    if (key->view >= 0)
        hd_view_print(module, &op->view[key->view], text);
    else if (info->value == HD_VALUE_EXPR)
        hd_expr_print(module, key->expr, text);
    else if (info->value == HD_VALUE_ACT)
        hd_text_puts(text, hd_act_text(key->act));
    else if (info->value == HD_VALUE_INTS)
        hd_key_ints_print(key, "(", ", ", ")", text);
    else
        hd_key_number_print(key, text);
}

bool hd_key_is_shown(hd_key_code code)
{
    return code != HD_KEY_NAME && code != HD_KEY_NUMBERS &&
           hd_key_info_get(code)->value != HD_VALUE_BY;
}

// The shape that no operand says where the result's declaration has none; of a
// `fill` it is one element, unless it is said.
static void print_said(const hd_module *module, const hd_op *op, hd_text *text)
{
    const hd_type *made = op->noutputs > 0 ? &op->view[0].buffer->type : NULL;

    if (!hd_op_says_shape(op) || made == NULL ||
        (op->view[0].buffer->open & HD_OPEN_SHAPE) == 0 ||
        (made->ndims == 0 && hd_op_family(op) == HD_FAMILY_MAP))
        return;
    for (int d = 0; d < made->ndims; d++) {
        hd_text_puts(text, d > 0 ? ", " : " to [");
        hd_dim_print(module, made->dim[d], text);
    }
    hd_text_puts(text, made->ndims > 0 ? "]" : " to []");
}

static void print_op(const hd_module *module, const hd_op *op, hd_text *text)
{
    for (int i = 0; i < op->noutputs; i++) {
        hd_text_puts(text, i > 0 ? ", " : "");
        hd_view_print(module, &op->view[i], text);
    }
    hd_text_printf(text, "%s%s", op->noutputs > 0 ? " = " : "",
                   hd_op_info_get(op->code)->text);
    if (op->axis >= 0 && module->naxes > 1)
        hd_text_printf(text, "@%s", module->axis[op->axis].name);
    if (hd_op_key(op, HD_KEY_NAME) != NULL)
        hd_text_printf(text, " \"%s\"", hd_op_callee(op));
    for (int k = 0; k < hd_op_operands(op); k++) {
        int view = hd_op_operand(op, k);

        hd_text_puts(text, k > 0 ? ", " : " ");
        if (view >= 0)
            hd_view_print(module, &op->view[view], text);
        else
            hd_number_print(hd_op_number_written(op, k), text);
    }
    print_said(module, op, text);
    for (int i = 0; i < op->nkeys; i++)
        if (hd_key_is_shown(op->key[i].code))
            print_key(module, op, &op->key[i], text);
    if (hd_op_keeps_dim(op))
        hd_text_puts(text, " keep");
}

static void print_block(const hd_module *module, const hd_block *block,
                        int depth, hd_text *text);

static void print_braces(const hd_module *module, const hd_block *block,
                         int depth, hd_text *text)
{
    hd_text_puts(text, " {\n");
    print_block(module, block, depth + 1, text);
    hd_text_printf(text, "%*s}", 4 * depth, "");
}

bool hd_block_is_else_if(const hd_block *otherwise)
{
    const hd_stmt *first = otherwise->first;

    return first != NULL && first->kind == HD_STMT_IF && first->next == NULL;
}

static void print_if(const hd_module *module, const hd_stmt *stmt, int depth,
                     hd_text *text)
{
    hd_text_puts(text, "if ");
    hd_expr_print(module, stmt->a, text);
    print_braces(module, &stmt->body, depth, text);
    if (stmt->otherwise.first == NULL)
        return;
    hd_text_puts(text, " else");
    if (hd_block_is_else_if(&stmt->otherwise)) {
        hd_text_puts(text, " ");
        print_if(module, stmt->otherwise.first, depth, text);
    } else {
        print_braces(module, &stmt->otherwise, depth, text);
    }
}

static void print_stmt(const hd_module *module, const hd_stmt *stmt, int depth,
                       hd_text *text)
{
    switch (stmt->kind) {
    case HD_STMT_OP:
        print_op(module, stmt->op, text);
        break;
    case HD_STMT_LET:
        hd_text_printf(text, "let %s = ", module->vars[stmt->var].name);
        hd_expr_print(module, stmt->a, text);
        break;
    case HD_STMT_FOR:
        hd_text_printf(text, "for %s in ", module->vars[stmt->var].name);
        hd_expr_print(module, stmt->a, text);
        hd_text_puts(text, "..");
        hd_expr_print(module, stmt->b, text);
        print_braces(module, &stmt->body, depth, text);
        break;
    case HD_STMT_IF:
        print_if(module, stmt, depth, text);
        break;
    case HD_STMT_ON:
        hd_text_puts(text, "on stream ");
        hd_expr_print(module, stmt->a, text);
        print_braces(module, &stmt->body, depth, text);
        break;
    case HD_STMT_GROUP:
        hd_text_puts(text, "group");
        print_braces(module, &stmt->body, depth, text);
        break;
    case HD_STMT_LAUNCH:
        hd_text_puts(text, "launch");
        print_braces(module, &stmt->body, depth, text);
        break;
    }
}

static void print_block(const hd_module *module, const hd_block *block,
                        int depth, hd_text *text)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        hd_text_printf(text, "%*s", 4 * depth, "");
        print_stmt(module, s, depth, text);
        if (s->why != NULL)
            hd_text_printf(text, " // %s", s->why);
        hd_text_puts(text, "\n");
    }
}

const char *hd_role_text(hd_role role)
{
    static const char *const roles[] = {"in", "out", "inout", "temp"};

    return roles[role];
}

// What its declaration says of a buffer.
static void print_declared(const hd_module *module, const hd_buffer *b,
                           hd_text *text)
{
    if ((b->open & HD_OPEN_DTYPE) == 0)
        hd_text_puts(text, hd_dtype_text(b->type.dtype));
    if ((b->open & HD_OPEN_PLACE) != 0 && (b->open & HD_OPEN_SHAPE) != 0)
        return;
    hd_text_puts(text, "[");
    for (int i = 0; i < b->type.ndims; i++) {
        hd_text_puts(text, i > 0 ? ", " : "");
        if ((b->open & HD_OPEN_SHAPE) != 0)
            print_placed(module, b->type.dim[i], text);
        else
            hd_buffer_print_dim(module, b, i, text);
    }
    hd_text_puts(text, b->shared ? "] shared" : "]");
    hd_text_puts(text, (b->open & HD_OPEN_PLACE) != 0 ? " open" : "");
}

static void print_buffers(const hd_module *module, hd_text *text)
{
    int roles = 0, names = 0;

    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        int role = (int)strlen(hd_role_text(b->role));
        int name = (int)strlen(b->name);

        if (!hd_buffer_is_declared(b))
            continue;
        roles = role > roles ? role : roles;
        names = name > names ? name : names;
    }
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        if (!hd_buffer_is_declared(b))
            continue;
        hd_text_printf(text, "%-*s %%%-*s : ", roles, hd_role_text(b->role),
                       names, b->name);
        print_declared(module, b, text);
        if (b->of != NULL)
            hd_text_printf(text, " of %%%s", b->of->name);
        if (!hd_ranks_are_all(b->on)) {
            hd_text_puts(text, " on ");
            hd_ranks_print(module, b->on, text);
        }
        hd_text_puts(text, "\n");
    }
}

const char *hd_stage_text(hd_stage stage)
{
    static const char *const stages[] = {
        [HD_STAGE_TENSOR] = "tensor", [HD_STAGE_RESHARD] = "reshard",
        [HD_STAGE_STREAM] = "stream", [HD_STAGE_TRANSFER] = "transfer",
        [HD_STAGE_EVENT] = "event",   [HD_STAGE_HOST] = "host",
        [HD_STAGE_PLACE] = "place"};

    return stages[stage];
}

void hd_module_print(const hd_module *module, hd_text *text)
{
    bool whole =
        module->stage == HD_STAGE_TENSOR || module->stage == HD_STAGE_HOST;

    hd_text_printf(text, "heddle %d\n%s program %s%s%s\n", module->form,
                   module->stage == HD_STAGE_TENSOR ? "tensor" : "host",
                   module->name, whole ? "" : " after ",
                   whole ? "" : hd_stage_text(module->stage));
    for (int i = 0; i < module->nsizes; i++)
        hd_text_printf(text, "param %s in %lld..%lld\n", module->size[i].name,
                       (long long)module->size[i].low,
                       (long long)module->size[i].high);
    for (int i = 0; i < module->naxes; i++)
        hd_text_printf(text, "%s%s=%lld%s", i == 0 ? "mesh " : ", ",
                       module->axis[i].name, (long long)module->axis[i].size,
                       i + 1 == module->naxes ? "\n" : "");
    if (module->streams > 0)
        hd_text_printf(text, "streams %lld\n", (long long)module->streams);
    print_buffers(module, text);
    hd_text_puts(text, "{\n");
    if (module->why != NULL)
        hd_text_printf(text, "    // %s\n", module->why);
    print_block(module, &module->body, 1, text);
    hd_text_puts(text, "}\n");
}

hd_status hd_print_give(hd_status status, hd_text *text, hd_diag *diag,
                        char **out)
{
    char *taken;

    if (status != HD_OK) {
        hd_text_free(text);
        return status;
    }
    taken = hd_text_take(text);
    if (taken == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    *out = taken;
    return HD_OK;
}

hd_status hd_print(const hd_module *module, char **out)
{
    hd_text text = {0};

    if (module == NULL || out == NULL)
        return HD_ERROR_ARGUMENT;
    hd_module_print(module, &text);
    return hd_print_give(HD_OK, &text, NULL, out);
}
