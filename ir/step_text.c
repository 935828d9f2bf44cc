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
// row-major, so each is the quotient by its dimension's stride. A sharded
// dimension shows the rank's own coordinate.
void hd_span_print(const hd_module *module, int64_t rank, const hd_view *view,
                   const hd_span *span, hd_text *text)
{
    const hd_type *type = &view->buffer->type;
    int64_t stride = hd_type_local_elements(type);
    int64_t rest = span->offset;
    int kept = 0, n = count_printed(module, view, span);

    hd_text_printf(text, "%%%s", view->buffer->name);
    for (int i = 0; i < n; i++) {
        int64_t index;

        stride /= hd_dim_local(type->dim[i]);
        hd_text_puts(text, i == 0 ? "[" : ", ");
        index = rest / stride;
        rest %= stride;
        if (hd_view_range(view, i) != NULL ||
            keeps_less(module, view, i, span, kept)) {
            hd_text_printf(text, "%lld..%lld", (long long)index,
                           (long long)(index + span->extent[kept++]));
            continue;
        }
        if (!hd_view_picks(view, i)) {
            hd_text_puts(text, ":");
            kept++;
            continue;
        }
        if (hd_dim_is_sharded(type->dim[i]))
            index = hd_mesh_coord(module, rank, type->dim[i].mark);
        hd_text_printf(text, "%lld", (long long)index);
    }
    hd_text_puts(text, n > 0 ? "]" : "");
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
    bool peer = key->code == HD_KEY_TO || key->code == HD_KEY_FROM ||
                key->code == HD_KEY_ROOT;

    // One stands ahead of the operands, and the mask where there is none.
    if (info->value == HD_VALUE_NAME ||
        ((key->code == HD_KEY_CAUSAL || key->code == HD_KEY_WINDOW ||
          key->code == HD_KEY_ZIGZAG) &&
         step->causal == HD_SEES_ALL))
        return;
    hd_text_printf(text, " %s", info->text);
    if (key->view >= 0) {
        hd_text_puts(text, " ");
        print_view(module, step, key->view, text);
    } else if (peer) {
        hd_text_printf(
            text, " %lld",
            (long long)hd_mesh_coord(module, step->peer, step->op->axis));
    } else if (key->code == HD_KEY_CAUSAL) {
        hd_text_printf(text, " %lld", (long long)step->causal);
    } else if (key->code == HD_KEY_ZIGZAG) {
        hd_text_puts(text, " 0"); // of others halves see halves, without a mask
    } else if (info->value == HD_VALUE_EXPR) {
        hd_text_puts(text, " ");
        hd_expr_print(module, key->expr, text);
    } else if (info->value == HD_VALUE_ACT) {
        hd_text_printf(text, " %s", hd_act_text(key->act));
    } else if (info->value == HD_VALUE_FACTOR || info->value == HD_VALUE_INT) {
        hd_text_puts(text, " ");
        hd_number_print(key->number, text);
    }
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
    for (int i = 0; i < op->ninputs; i++) {
        hd_text_puts(text, i > 0 ? ", " : " ");
        print_view(module, step, op->noutputs + i, text);
    }
    for (int i = 0; i < op->nkeys; i++)
        print_key(module, step, &op->key[i], text);
}

typedef struct printer {
    const hd_module *module;
    hd_text text;
} printer;

static hd_status print_line(void *context, const hd_step *steps, int n)
{
    printer *p = context;

    for (int i = 0; i < n; i++) {
        char stream[16];
        const char *group = n == 1 ? " " : i == 0 ? "{" : i + 1 < n ? "|" : "}";

        snprintf(stream, sizeof stream, "s%d", steps[i].stream);
        hd_text_printf(&p->text, "%5lld  %-6s %s ", (long long)steps[i].index,
                       steps[i].stream == HD_CALLER_STREAM ? "caller" : stream,
                       group);
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
    char *taken;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    if (rank < 0 || rank >= module->nranks)
        return hd_fail(diag, HD_ERROR_ARGUMENT, "rank %d of a mesh of %lld",
                       rank, (long long)module->nranks);
    status = hd_walk(module, rank, diag, print_line, &p);
    if (status != HD_OK) {
        hd_text_free(&p.text);
        return status;
    }
    taken = hd_text_take(&p.text);
    if (taken == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    *out = taken;
    return HD_OK;
}
