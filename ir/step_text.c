// A step as text: the op with numbers for its indices and peers.
#include <stdio.h>

#include <heddle/simulate.h>

#include "ir/print.h"
#include "ir/walk.h"

// Whether the span has fewer indices than the view of a dimension, which is
// number `kept` of those that it keeps: it is of half of the rows.
static bool keeps_less(const hd_module *module, const hd_view *view, int dim,
                       const hd_span *span, int kept)
{
    hd_dim all = view->buffer->type.dim[dim];

    return !hd_view_picks(view, dim) && hd_view_range(view, dim) == NULL &&
           !hd_dim_is_sharded(all) &&
           span->extent[kept] < hd_module_extent(module, all);
}

// How many of a view's indices say anything.
static int count_printed(const hd_module *module, const hd_view *view,
                         const hd_span *span)
{
    int n = view->nindex, kept = 0;

    for (int d = 0; d < view->buffer->type.ndims; d++) {
        if (keeps_less(module, view, d, span, kept) && d >= n)
            n = d + 1;
        kept += !hd_view_picks(view, d);
    }
    return n;
}

// The indices that a view picks are in its span's offset: strides are
// row-major, so each is the quotient by its dimension's stride.
int hd_span_indices(const hd_module *module, int64_t rank, const hd_view *view,
                    const hd_span *span, hd_index out[HD_MAX_DIMS])
{
    const hd_type *type = &view->buffer->type;
    int64_t stride = hd_type_local_elements(type);
    int64_t rest = span->offset;
    int kept = 0, n = count_printed(module, view, span);

    for (int i = 0; i < n; i++) {
        bool picks = hd_view_picks(view, i);

        stride /= hd_dim_local(type->dim[i]);
        out[i] = (hd_index){picks ? HD_INDEX_ONE : HD_INDEX_ALL,
                            .low = rest / stride};
        rest %= stride;
        if (picks && hd_dim_is_sharded(type->dim[i]))
            out[i].low = hd_mesh_coord(module, rank, type->dim[i].mark);
        if (hd_view_range(view, i) != NULL ||
            keeps_less(module, view, i, span, kept)) {
            out[i].kind = HD_INDEX_RANGE;
            out[i].past = out[i].low + span->extent[kept];
        }
        kept += !picks;
    }
    return n;
}

void hd_span_print(const hd_module *module, int64_t rank, const hd_view *view,
                   const hd_span *span, hd_text *text)
{
    hd_index index[HD_MAX_DIMS];
    int n = hd_span_indices(module, rank, view, span, index);

    hd_text_printf(text, "%%%s", view->buffer->name);
    for (int i = 0; i < n; i++) {
        hd_text_puts(text, i == 0 ? "[" : ", ");
        if (index[i].kind == HD_INDEX_ALL)
            hd_text_puts(text, ":");
        else
            hd_text_printf(text, "%lld", (long long)index[i].low);
        if (index[i].kind == HD_INDEX_RANGE)
            hd_text_printf(text, "..%lld", (long long)index[i].past);
    }
    hd_text_puts(text, n > 0 ? "]" : "");
}

bool hd_step_shows(const hd_step *step, hd_key_code code)
{
    bool mask =
        code == HD_KEY_CAUSAL || code == HD_KEY_WINDOW || code == HD_KEY_ZIGZAG;

    return code != HD_KEY_NAME && code != HD_KEY_NUMBERS &&
           !(mask && step->causal == HD_SEES_ALL) &&
           !(code == HD_KEY_ACCUMULATE &&
             step->stores == (1 << step->op->noutputs) - 1);
}

bool hd_step_adds(const hd_step *step, const hd_key *key, hd_key *out)
{
    if (key->code != HD_KEY_ACCUMULATE || step->stores == 0)
        return false;
    *out = *key;
    out->nints = 0;
    for (int i = 0; i < step->op->noutputs; i++)
        if (hd_step_access(step, i) == HD_ACCESS_UPDATE)
            out->ints[out->nints++] = i;
    return true;
}

bool hd_step_number(const hd_module *module, const hd_step *step,
                    hd_key_code code, int64_t *out)
{
    if (code == HD_KEY_TO || code == HD_KEY_FROM || code == HD_KEY_ROOT)
        *out = hd_mesh_coord(module, step->peer, step->op->axis);
    else if (code == HD_KEY_CAUSAL)
        *out = step->causal;
    else if (code == HD_KEY_ROW)
        *out = hd_step_among(step).row;
    else if (code == HD_KEY_FIRST_KEY)
        *out = hd_step_among(step).key;
    else if (code == HD_KEY_ROOM)
        *out = hd_step_among(step).room;
    else if (code == HD_KEY_START)
        *out = step->start;
    else if (code == HD_KEY_ZIGZAG)
        *out = 0; // of others halves see halves, without a mask
    else
        return false;
    return true;
}

static void print_view(const hd_module *module, const hd_step *step, int i,
                       hd_text *text)
{
    hd_span_print(module, step->rank, &step->op->view[i], &step->span[i], text);
}

static void print_key(const hd_module *module, const hd_step *step,
                      const hd_key *key, hd_text *text)
{
    const hd_key_info *info = hd_key_info_get(key->code);
    int64_t number;
    hd_key adds;

    if (!hd_step_shows(step, key->code))
        return;
    hd_text_printf(text, " %s", info->text);
    if (hd_step_adds(step, key, &adds))
        hd_key_ints_print(&adds, " (", ", ", ")", text);
    if (info->value == HD_VALUE_FLAG)
        return;
    hd_text_puts(text, " ");
    if (key->view >= 0)
        print_view(module, step, key->view, text);
    else if (hd_step_number(module, step, key->code, &number))
        hd_text_printf(text, "%lld", (long long)number);
    else if (info->value == HD_VALUE_EXPR)
        hd_expr_print(module, key->expr, text);
    else if (info->value == HD_VALUE_ACT)
        hd_text_puts(text, hd_act_text(key->act));
    else if (info->value == HD_VALUE_INTS)
        hd_key_ints_print(key, "(", ", ", ")", text);
    else
        hd_number_print(key->number, text);
}

// "%c[3] = matmul %ag[3], %w"
static void print_step(const hd_module *module, const hd_step *step,
                       hd_text *text)
{
    const hd_op *op = step->op;

    for (int i = 0; i < op->noutputs; i++) {
        hd_text_puts(text, i > 0 ? ", " : "");
        print_view(module, step, i, text);
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
            print_view(module, step, view, text);
        else
            hd_number_print(hd_op_number_written(op, k), text);
    }
    for (int i = 0; i < op->nkeys; i++)
        print_key(module, step, &op->key[i], text);
}

typedef struct printer {
    const hd_module *module;
    hd_text text;
    int32_t launch; // of the line before
    size_t mark;    // where its mark is, in the text
} printer;

// What goes on with a launch is marked as its end until more follows; a launch
// of one step has no mark.
static char mark_launch(printer *p, int32_t launch)
{
    bool on = launch > 0 && launch == p->launch;

    if (on && !p->text.failed)
        p->text.bytes[p->mark] = p->text.bytes[p->mark] == ' ' ? '[' : ':';
    p->launch = launch;
    p->mark = p->text.length;
    return on ? ']' : ' ';
}

static hd_status print_line(void *context, const hd_step *steps, int n)
{
    printer *p = context;

    for (int i = 0; i < n; i++) {
        char stream[16];

        snprintf(stream, sizeof stream, "s%d", steps[i].stream);
        hd_text_printf(&p->text, "%5lld  %-6s ", (long long)steps[i].index,
                       steps[i].stream == HD_CALLER_STREAM ? "caller" : stream);
        hd_text_printf(&p->text, "%c ",
                       n == 1      ? mark_launch(p, steps[i].launch)
                       : i == 0    ? '{'
                       : i + 1 < n ? '|'
                                   : '}');
        print_step(p->module, &steps[i], &p->text);
        hd_text_puts(&p->text, "\n");
    }
    return HD_OK;
}

hd_status hd_print_steps(const hd_module *module, int rank, hd_diag *diag,
                         char **out)
{
    printer p = {.module = module};
    hd_status status;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_walk_check_rank(module, rank, diag));
    status = hd_walk(module, rank, diag, print_line, &p);
    return hd_print_give(status, &p.text, diag, out);
}
