// A table of the caller's is looked through once, for the names that a program
// has; from then on a call is a number. A call's views are its step's spans.
#include "runtime/call.h"

#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ir/suggest.h"
#include "runtime/failure.h"

// A later version's entries may be longer.
static const hd_call *entry_of(const hd_call *table, size_t i)
{
    return (const hd_call *)((const char *)table + i * table->size);
}

static hd_status check_entry(const hd_call *table, size_t i, hd_diag *diag)
{
    hd_call call = {0};
    bool fine = entry_of(table, i)->size == table->size &&
                hd_sized_take(entry_of(table, i), sizeof call, &call);

    if (fine && call.name != NULL && call.fn != NULL)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "hd_session_create: entry %zu of 'calls' %s", i,
                   !fine ? "has no size, another than the first, or sets what "
                           "this version does not know"
                   : call.name == NULL ? "has no name"
                                       : "has no function");
}

static hd_status check_table(const hd_call *table, size_t n, hd_diag *diag)
{
    if (n > 0 && table == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_session_create: 'calls' is NULL, and there are %zu",
                       n);
    for (size_t i = 0; i < n; i++)
        HD_TRY(check_entry(table, i, diag));
    return HD_OK;
}

// Of several with one name the last.
static const hd_call *find_entry(const hd_call *table, size_t n,
                                 const char *name)
{
    for (size_t i = n; i-- > 0;)
        if (strcmp(entry_of(table, i)->name, name) == 0)
            return entry_of(table, i);
    return NULL;
}

// "; it was given 'gelu', 'silu'", or which one may have been meant.
static hd_status refuse(const hd_module *module, const hd_op *op,
                        const hd_call *table, size_t n, hd_diag *diag)
{
    const char *name = hd_op_callee(op);
    hd_suggestion near = hd_suggest(name, strlen(name));
    char text[HD_GROUP_TEXT] = "";
    hd_line line = {text, sizeof text};
    uint64_t outer;
    hd_status status;

    if (op->loc.line > 0 && module->source.name != NULL)
        hd_line_put(&line, "%s:%u:%u: ", module->source.name, op->loc.line,
                    op->loc.column);
    hd_line_put(&line, "call \"%s\": the session was given %s", name,
                n == 0 ? "no functions" : "no such function");
    for (size_t i = 0; i < n; i++)
        hd_suggest_consider(&near, entry_of(table, i)->name);
    if (near.best != NULL)
        hd_line_put(&line, "; did you mean '%s'?", near.best);
    for (size_t i = 0; i < n; i++)
        hd_line_put(&line, "%s'%s'",
                    i > 0               ? ", "
                    : near.best != NULL ? " It was given "
                                        : "; it was given ",
                    entry_of(table, i)->name);
    outer =
        hd_diag_cookie(diag, hd_source_cookie(&module->source, op->loc.line));
    status = hd_fail(diag, HD_ERROR_ARGUMENT, "%s", text);
    hd_diag_cookie(diag, outer);
    return status;
}

int hd_callees_find(const hd_callees *callees, const hd_op *op)
{
    const char *name = hd_op_callee(op);
    int i = 0;

    while (i < callees->n && strcmp(callees->callee[i].name, name) != 0)
        i++;
    return i;
}

static hd_status find_callee(const hd_module *module, const hd_op *op,
                             const hd_call *table, size_t n, hd_diag *diag,
                             hd_callees *out)
{
    const hd_call *call;
    hd_callee *grown;

    if (hd_callees_find(out, op) < out->n)
        return HD_OK;
    call = find_entry(table, n, hd_op_callee(op));
    if (call == NULL)
        return refuse(module, op, table, n, diag);
    grown = realloc(out->callee, sizeof *grown * ((size_t)out->n + 1));
    if (grown == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for calls");
    out->callee = grown;
    out->callee[out->n++] =
        (hd_callee){hd_op_callee(op), call->fn, call->context};
    return HD_OK;
}

static hd_status find_callees(const hd_module *module, const hd_block *block,
                              const hd_call *table, size_t n, hd_diag *diag,
                              hd_callees *out)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        if (s->kind == HD_STMT_OP && hd_op_family(s->op) == HD_FAMILY_CALL)
            HD_TRY(find_callee(module, s->op, table, n, diag, out));
        HD_TRY(find_callees(module, &s->body, table, n, diag, out));
        HD_TRY(find_callees(module, &s->otherwise, table, n, diag, out));
    }
    return HD_OK;
}

hd_status hd_callees_create(const hd_module *module, const hd_call *table,
                            size_t n, hd_diag *diag, hd_callees *out)
{
    hd_callees callees = {0};
    hd_status status;

    HD_TRY(check_table(table, n, diag));
    status = find_callees(module, &module->body, table, n, diag, &callees);
    if (status != HD_OK)
        hd_callees_free(&callees);
    else
        *out = callees;
    return status;
}

void hd_callees_free(hd_callees *callees)
{
    free(callees->callee);
    *callees = (hd_callees){0};
}

// ------------------------------------------------------------------- a call

static hd_call_view view_of(const hd_span *span, void *address)
{
    hd_call_view view = {.address = address,
                         .dtype = span->buffer->type.dtype,
                         .ndims = span->ndims};

    memcpy(view.extent, span->extent, sizeof view.extent);
    memcpy(view.stride, span->stride, sizeof view.stride);
    return view;
}

// One with which nothing else says what did not happen.
static hd_status told(hd_status status)
{
    if (status == HD_ERROR_ARGUMENT)
        return HD_ERROR_INVALID;
    return status > HD_OK && status <= HD_ERROR_TIMEOUT ? status
                                                        : HD_ERROR_SYSTEM;
}

static void describe(const hd_module *module, const hd_step *step,
                     hd_status status, const char *why,
                     char text[HD_GROUP_TEXT])
{
    hd_line line = {text, HD_GROUP_TEXT};

    hd_line_put(&line, "rank %d: \"%s\" failed, ", step->rank,
                hd_op_callee(step->op));
    hd_line_put_step(&line, module, step->op->code, step->op->loc.line,
                     step->op->loc.column, step->index, step->stream + 1, -1);
    hd_line_put(&line, "): %s%s%s", hd_status_text(status),
                *why != '\0' ? ": " : "", why);
}

hd_status hd_callee_call(const hd_callee *callee, const hd_module *module,
                         const hd_step *step, hd_call_place place,
                         void *const *address, char text[HD_GROUP_TEXT])
{
    const hd_op *op = step->op;
    hd_call_view view[HD_MAX_VIEWS];
    char why[HD_GROUP_TEXT] = "";
    hd_call_site site = {.size = sizeof site,
                         .name = callee->name,
                         .rank = step->rank,
                         .device = place.device,
                         .stream = place.stream,
                         .over = hd_op_over(op),
                         .keep = hd_op_key(op, HD_KEY_KEEP) != NULL,
                         .line = (int)op->loc.line,
                         .cookie =
                             hd_source_cookie(&module->source, op->loc.line),
                         .nresults = op->noutputs,
                         .noperands = op->ninputs,
                         .result = view,
                         .operand = view + op->noutputs,
                         .why = why,
                         .nwhy = sizeof why};
    hd_status status;

    if (hd_span_elements(&step->span[0]) == 0) // as a run may have it
        return HD_OK;
    for (int i = 0; i < op->nviews; i++)
        view[i] = view_of(&step->span[i], address[i]);
    status = callee->fn(callee->context, &site);
    if (status == HD_OK)
        return HD_OK;
    why[sizeof why - 1] = '\0';
    describe(module, step, told(status), why, text);
    return told(status);
}
