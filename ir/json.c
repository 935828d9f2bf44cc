// Writes a program, or what its ranks issue, as docs/json.md has it: the text
// form told apart, with the line that each statement has there. Nothing that
// stands in quotes needs an escape: names are letters, digits and '_', a callee
// is visible ASCII without quotes and backslashes.
#include <heddle/simulate.h>

#include "ir/print.h"
#include "ir/walk.h"

typedef struct writer {
    const hd_module *module;
    const hd_step *step; // NULL of a statement
    hd_text text;
    int line; // of the text form: where what is written next begins
    int32_t launch, launched; // of the step before, and its first one's number
} writer;

// The end of the line before, and the blanks of a new one.
static void put_break(writer *w, bool first, int depth)
{
    hd_text_printf(&w->text, "%s\n%*s", first ? "" : ",", depth, "");
}

// ------------------------------------------------------------ expressions

// As deep as expressions may be.
static void put_tree(writer *w, hd_expr expr)
{
    const hd_expr_node *node = hd_expr_get(w->module, expr);

    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_CONST:
        if (node->value == INT64_MIN) // its text is a difference
            hd_text_printf(&w->text, "[\"-\",%lld,1]", (long long)-INT64_MAX);
        else
            hd_expr_print(w->module, expr, &w->text);
        return;
    case HD_FORM_COORD:
    case HD_FORM_VAR:
    case HD_FORM_SIZE:
        hd_text_puts(&w->text, "\"");
        hd_expr_print(w->module, expr, &w->text);
        hd_text_puts(&w->text, "\"");
        return;
    case HD_FORM_NOT:
        hd_text_puts(&w->text, "[\"not\",");
        put_tree(w, node->a);
        break;
    case HD_FORM_BINARY:
        hd_text_printf(&w->text, "[\"%s\",", hd_expr_operator(node->kind));
        put_tree(w, node->a);
        hd_text_puts(&w->text, ",");
        put_tree(w, node->b);
        break;
    }
    hd_text_puts(&w->text, "]");
}

static void put_expr(writer *w, hd_expr expr)
{
    if (hd_expr_is_const(w->module, expr) &&
        hd_expr_value(w->module, expr) != INT64_MIN) {
        put_tree(w, expr);
        return;
    }
    hd_text_puts(&w->text, "{\"text\":\"");
    hd_expr_print(w->module, expr, &w->text);
    hd_text_puts(&w->text, "\",\"tree\":");
    put_tree(w, expr);
    hd_text_puts(&w->text, "}");
}

static void put_member(writer *w, const char *name, hd_expr expr)
{
    hd_text_printf(&w->text, ",\"%s\":", name);
    put_expr(w, expr);
}

// ------------------------------------------------------------------ views

static void put_index(writer *w, const hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);

    if (range != NULL && range->block != HD_EXPR_NONE) {
        hd_text_puts(&w->text, "{\"block\":");
        put_expr(w, range->block);
        hd_text_printf(&w->text, ",\"blocks\":%lld}", (long long)range->blocks);
    } else if (range != NULL) {
        hd_text_puts(&w->text, "{\"low\":");
        put_expr(w, range->low);
        put_member(w, "past", range->past);
        hd_text_puts(&w->text, "}");
    } else if (view->index[i] == HD_EXPR_ALL) {
        hd_text_puts(&w->text, "null");
    } else {
        put_expr(w, view->index[i]);
    }
}

static void put_indices(writer *w, const hd_view *view)
{
    for (int i = 0; i < view->nindex; i++) {
        hd_text_puts(&w->text, i > 0 ? "," : "");
        put_index(w, view, i);
    }
}

static void put_numbers(writer *w, const hd_view *view, const hd_span *span)
{
    hd_index index[HD_MAX_DIMS];
    int n = hd_span_indices(w->module, w->step->rank, view, span, index);

    for (int i = 0; i < n; i++) {
        long long low = index[i].low, past = index[i].past;

        hd_text_puts(&w->text, i > 0 ? "," : "");
        if (index[i].kind == HD_INDEX_ALL)
            hd_text_puts(&w->text, "null");
        else if (index[i].kind == HD_INDEX_RANGE)
            hd_text_printf(&w->text, "{\"low\":%lld,\"past\":%lld}", low, past);
        else
            hd_text_printf(&w->text, "%lld", low);
    }
}

static void put_view(writer *w, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];

    hd_text_printf(&w->text, "{\"buffer\":\"%s\",\"index\":[",
                   view->buffer->name);
    if (w->step != NULL)
        put_numbers(w, view, &w->step->span[i]);
    else
        put_indices(w, view);
    hd_text_puts(&w->text, "],\"text\":\"");
    if (w->step != NULL)
        hd_span_print(w->module, w->step->rank, view, &w->step->span[i],
                      &w->text);
    else
        hd_view_print(w->module, view, &w->text);
    hd_text_puts(&w->text, "\"}");
}

// ------------------------------------------------------------- operations

static void put_key(writer *w, const hd_op *op, const hd_key *key)
{
    const hd_key_info *info = hd_key_info_get(key->code);
    int64_t number;
    hd_key adds;

    hd_text_printf(&w->text, "\"%s\":", info->text);
    if (w->step != NULL && hd_step_adds(w->step, key, &adds))
        hd_key_ints_print(&adds, "[", ",", "]", &w->text);
    else if (info->value == HD_VALUE_FLAG)
        hd_text_puts(&w->text, "true");
    else if (key->view >= 0)
        put_view(w, op, key->view);
    else if (w->step != NULL &&
             hd_step_number(w->module, w->step, key->code, &number))
        hd_text_printf(&w->text, "%lld", (long long)number);
    else if (info->value == HD_VALUE_EXPR)
        put_expr(w, key->expr);
    else if (info->value == HD_VALUE_ACT)
        hd_text_printf(&w->text, "\"%s\"", hd_act_text(key->act));
    else if (info->value == HD_VALUE_INTS)
        hd_key_ints_print(key, "[", ",", "]", &w->text);
    else if (w->step != NULL)
        hd_number_print(key->number, &w->text);
    else
        hd_key_number_print(key, &w->text);
}

static void put_keys(writer *w, const hd_op *op)
{
    const char *between = "";

    hd_text_puts(&w->text, ",\"keys\":{");
    for (int i = 0; i < op->nkeys; i++) {
        hd_key_code code = op->key[i].code;

        if (w->step != NULL ? !hd_step_shows(w->step, code)
                            : !hd_key_is_shown(code))
            continue;
        hd_text_puts(&w->text, between);
        put_key(w, op, &op->key[i]);
        between = ",";
    }
    hd_text_puts(&w->text, "}");
}

static void put_results(writer *w, const hd_op *op)
{
    hd_text_puts(&w->text, ",\"results\":[");
    for (int i = 0; i < op->noutputs; i++) {
        hd_text_puts(&w->text, i > 0 ? "," : "");
        put_view(w, op, i);
    }
    hd_text_puts(&w->text, "]");
}

static void put_operands(writer *w, const hd_op *op)
{
    hd_text_puts(&w->text, ",\"operands\":[");
    for (int k = 0; k < hd_op_operands(op); k++) {
        int view = hd_op_operand(op, k);

        hd_text_puts(&w->text, k > 0 ? "," : "");
        if (view >= 0)
            put_view(w, op, view);
        else
            hd_number_print(hd_op_number_written(op, k), &w->text);
    }
    hd_text_puts(&w->text, "]");
}

static const char *family_text(hd_family family)
{
    static const char *const families[] = {
        [HD_FAMILY_COPY] = "copy",       [HD_FAMILY_MAP] = "map",
        [HD_FAMILY_FOLD] = "fold",       [HD_FAMILY_TRANSPOSE] = "transpose",
        [HD_FAMILY_TAKE] = "take",       [HD_FAMILY_IOTA] = "iota",
        [HD_FAMILY_PRODUCT] = "product", [HD_FAMILY_PICK] = "pick",
        [HD_FAMILY_ATTEND] = "attend",   [HD_FAMILY_CALL] = "call",
        [HD_FAMILY_MOVE] = "move",       [HD_FAMILY_SYNC] = "sync",
    };

    return families[family];
}

static void put_op(writer *w, const hd_op *op)
{
    put_results(w, op);
    hd_text_printf(&w->text, ",\"op\":\"%s\",\"family\":\"%s\"",
                   hd_op_info_get(op->code)->text,
                   family_text(hd_op_family(op)));
    if (op->axis >= 0)
        hd_text_printf(&w->text, ",\"axis\":\"%s\"",
                       w->module->axis[op->axis].name);
    if (hd_op_key(op, HD_KEY_NAME) != NULL)
        hd_text_printf(&w->text, ",\"callee\":\"%s\"", hd_op_callee(op));
    put_operands(w, op);
    put_keys(w, op);
}

// ------------------------------------------------------------- statements

static void put_stmt(writer *w, const hd_stmt *stmt, int depth);

static void put_block(writer *w, const char *name, const hd_block *block,
                      int depth)
{
    hd_text_printf(&w->text, ",\"%s\":[", name);
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        put_break(w, s == block->first, depth);
        put_stmt(w, s, depth);
    }
    hd_text_puts(&w->text, "]");
}

// Each brace ends a line, but for one that an `else if` follows, whose line
// that is.
static void put_blocks(writer *w, const hd_stmt *stmt, int depth)
{
    const hd_block *other = &stmt->otherwise;
    bool chained = hd_block_is_else_if(other);

    w->line++;
    put_block(w, "body", &stmt->body, depth);
    w->line += !chained;
    if (other->first == NULL)
        return;
    put_block(w, "otherwise", other, depth);
    w->line += !chained;
}

static void put_stmt(writer *w, const hd_stmt *stmt, int depth)
{
    const hd_var_info *vars = w->module->vars;
    int line = w->line;

    switch (stmt->kind) {
    case HD_STMT_OP:
        hd_text_puts(&w->text, "{\"kind\":\"op\"");
        put_op(w, stmt->op);
        break;
    case HD_STMT_LET:
        hd_text_printf(&w->text, "{\"kind\":\"let\",\"name\":\"%s\"",
                       vars[stmt->var].name);
        put_member(w, "value", stmt->a);
        break;
    case HD_STMT_FOR:
        hd_text_printf(&w->text, "{\"kind\":\"for\",\"name\":\"%s\"",
                       vars[stmt->var].name);
        put_member(w, "first", stmt->a);
        put_member(w, "past", stmt->b);
        break;
    case HD_STMT_IF:
        hd_text_puts(&w->text, "{\"kind\":\"if\"");
        put_member(w, "condition", stmt->a);
        break;
    case HD_STMT_ON:
        hd_text_puts(&w->text, "{\"kind\":\"on\"");
        put_member(w, "stream", stmt->a);
        break;
    case HD_STMT_GROUP:
        hd_text_puts(&w->text, "{\"kind\":\"group\"");
        break;
    case HD_STMT_LAUNCH:
        hd_text_puts(&w->text, "{\"kind\":\"launch\"");
        break;
    }
    hd_text_printf(&w->text, ",\"line\":%d", line);
    if (stmt->kind == HD_STMT_OP || stmt->kind == HD_STMT_LET)
        w->line++;
    else
        put_blocks(w, stmt, depth + 1);
    hd_text_puts(&w->text, "}");
}

// ---------------------------------------------------------------- buffers

static void put_dim(writer *w, const hd_buffer *buffer, int i)
{
    const hd_module *module = w->module;
    hd_dim dim = buffer->type.dim[i];
    hd_text *text = &w->text;

    if (hd_dim_is_sized(dim)) {
        const hd_size *size = &module->size[dim.size - 1];

        hd_text_printf(text, "{\"extent\":%lld,\"size\":\"%s\"",
                       (long long)(dim.times * size->high), size->name);
        if (dim.times > 1)
            hd_text_printf(text, ",\"times\":%lld", (long long)dim.times);
    } else {
        hd_text_printf(text, "{\"extent\":%lld", (long long)dim.extent);
    }
    if (dim.mark < 0 && hd_dim_is_cut(dim))
        hd_text_printf(text, ",\"blocks\":%lld", (long long)dim.blocks);
    if (dim.mark != HD_LOCAL)
        hd_text_printf(text, ",\"mark\":\"%s\"",
                       hd_mark_text(module, dim.mark));
    if (buffer->by != NULL && i == buffer->counted)
        hd_text_printf(text, ",\"by\":\"%s\"", buffer->by->name);
    hd_text_puts(text, ",\"text\":\"");
    hd_buffer_print_dim(module, buffer, i, text);
    hd_text_puts(text, "\"}");
}

// What a rank passes for an argument.
static void put_argument(writer *w, const hd_type *type, int argument)
{
    hd_text_printf(&w->text, ",\"argument\":%d,\"local\":[", argument);
    for (int i = 0; i < type->ndims; i++)
        hd_text_printf(&w->text, "%s%lld", i > 0 ? "," : "",
                       (long long)hd_dim_local(type->dim[i]));
    hd_text_printf(&w->text, "],\"local_bytes\":%lld",
                   (long long)hd_type_local_bytes(type));
}

// What the text does not say of a temp, hd_open.
static void put_open(unsigned open, hd_text *text)
{
    static const char *const parts[] = {"dtype", "place", "shape"};
    const char *before = ",\"open\":[";

    for (int i = 0; i < 3; i++)
        if ((open >> i & 1) != 0) {
            hd_text_printf(text, "%s\"%s\"", before, parts[i]);
            before = ",";
        }
    hd_text_puts(text, open != 0 ? "]" : "");
}

// `argument` is its number if it is one.
static void put_buffer(writer *w, const hd_buffer *b, int argument)
{
    hd_text *text = &w->text;

    hd_text_printf(text,
                   "{\"name\":\"%s\",\"role\":\"%s\",\"dtype\":\"%s\","
                   "\"dims\":[",
                   b->name, hd_role_text(b->role),
                   hd_dtype_text(b->type.dtype));
    for (int i = 0; i < b->type.ndims; i++) {
        hd_text_puts(text, i > 0 ? "," : "");
        put_dim(w, b, i);
    }
    hd_text_puts(text, b->shared ? "],\"shared\":true" : "]");
    if (b->of != NULL)
        hd_text_printf(text, ",\"of\":\"%s\"", b->of->name);
    if (!hd_ranks_are_all(b->on))
        hd_text_printf(text,
                       ",\"on\":{\"axis\":\"%s\",\"low\":%lld,\"past\":%lld}",
                       w->module->axis[b->on.axis].name, (long long)b->on.low,
                       (long long)b->on.past);
    if (b->role != HD_ROLE_TEMP)
        put_argument(w, &b->type, argument);
    put_open(b->open, text);
    if (hd_buffer_is_declared(b))
        hd_text_printf(text, ",\"line\":%d", w->line++);
    hd_text_puts(text, "}");
}

static void put_buffers(writer *w)
{
    int narguments = 0;

    hd_text_puts(&w->text, ",\n\"buffers\":[");
    for (const hd_buffer *b = w->module->buffers; b != NULL; b = b->next) {
        put_break(w, b == w->module->buffers, 1);
        put_buffer(w, b, narguments);
        narguments += b->role != HD_ROLE_TEMP;
    }
    hd_text_puts(&w->text, "]");
}

// ------------------------------------------------------------------- head

static void put_mesh(writer *w)
{
    hd_axis_info axis = HD_EMPTY(hd_axis_info);

    for (size_t i = 0; hd_module_axis(w->module, i, &axis); i++)
        hd_text_printf(&w->text,
                       "%s{\"name\":\"%s\",\"size\":%d,\"stride\":%d}",
                       i > 0 ? "," : "", axis.name, axis.extent, axis.stride);
}

static void put_params(writer *w)
{
    for (int i = 0; i < w->module->nparams; i++)
        hd_text_printf(&w->text, "%s{\"name\":\"%s\",\"value\":%lld}",
                       i > 0 ? "," : "", w->module->param[i].name,
                       (long long)w->module->param[i].value);
}

static void put_sizes(writer *w)
{
    for (int i = 0; i < w->module->nsizes; i++) {
        const hd_size *size = &w->module->size[i];

        hd_text_printf(&w->text,
                       "%s{\"name\":\"%s\",\"low\":%lld,\"high\":%lld}",
                       i > 0 ? "," : "", size->name, (long long)size->low,
                       (long long)size->high);
    }
}

// What all stages begin with. In the text form the first buffer follows two
// lines, one for each size, and those of mesh and streams where there are any.
static writer begin(const hd_module *module, const char *stage)
{
    writer w = {.module = module,
                .line = 3 + module->nsizes + (module->naxes > 0) +
                        (module->streams > 0)};

    hd_text_printf(&w.text,
                   "{\"format\":%d,\"name\":\"%s\",\"stage\":\"%s\","
                   "\"ranks\":%lld,\"streams\":%lld,\"mesh\":[",
                   module->form, module->name, stage, (long long)module->nranks,
                   (long long)module->streams);
    put_mesh(&w);
    hd_text_puts(&w.text, "],\"params\":[");
    put_params(&w);
    hd_text_puts(&w.text, "],\"sizes\":[");
    put_sizes(&w);
    hd_text_puts(&w.text, "]");
    put_buffers(&w);
    return w;
}

hd_status hd_print_json(const hd_module *module, char **out)
{
    writer w;

    if (module == NULL || out == NULL)
        return HD_ERROR_ARGUMENT;
    w = begin(module, hd_stage_text(module->stage));
    w.line++; // of the brace that begins the body
    put_block(&w, "body", &module->body, 1);
    hd_text_puts(&w.text, "}\n");
    return hd_print_give(HD_OK, &w.text, NULL, out);
}

// ------------------------------------------------------------------ steps

// Members of a group have the number of its first, and so have the steps of a
// launch.
static hd_status put_steps(void *context, const hd_step *steps, int n)
{
    writer *w = context;

    for (int i = 0; i < n; i++) {
        w->step = &steps[i];
        put_break(w, steps[i].index == 0, 2);
        hd_text_printf(&w->text, "{\"step\":%d,\"stream\":%d",
                       (int)steps[i].index, (int)steps[i].stream);
        if (n > 1)
            hd_text_printf(&w->text, ",\"group\":%d", (int)steps[0].index);
        if (steps[i].launch != w->launch)
            w->launched = steps[i].index;
        w->launch = steps[i].launch;
        if (steps[i].launch > 0)
            hd_text_printf(&w->text, ",\"launch\":%d", (int)w->launched);
        put_op(w, steps[i].op);
        if (steps[i].peer >= 0)
            hd_text_printf(&w->text, ",\"peer\":%d", (int)steps[i].peer);
        hd_text_puts(&w->text, "}");
    }
    return HD_OK;
}

hd_status hd_print_steps_json(const hd_module *module, int rank, hd_diag *diag,
                              char **out)
{
    writer w;
    hd_status status;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_walk_check_rank(module, rank, diag));
    w = begin(module, "steps");
    hd_text_printf(&w.text, ",\n\"steps\":[\n {\"rank\":%d,\"steps\":[", rank);
    status = hd_walk(module, rank, diag, put_steps, &w);
    hd_text_puts(&w.text, "]}]}\n");
    return hd_print_give(status, &w.text, diag, out);
}
