// Both programs are evaluated on random numbers of a field in place of values
// (check/value), once: nothing races, so whatever order is as good as any.
// Outputs that agree everywhere are the same polynomials of the inputs, but for
// a chance below 2^-40. Where they do not, both are evaluated again with all
// that was written kept, and check/blame goes back from an element that is
// wrong to the statement that first took or made something else.
#include "check/provenance.h"

#include "check/blame.h"
#include "check/history.h"
#include "ir/parts.h"
#include "steps/match.h"

enum { MOST_WRITES = 1 << 25 }; // of which changes are kept: 1.3 GB

// An element of an output, as its rank holds it.
typedef struct output {
    const hd_buffer *tensor;
    int rank;
    int64_t i;
} output;

static bool is_output(const hd_evaluation *e, const hd_buffer *tensor)
{
    return e->argument[tensor->id] != NULL && tensor->role != HD_ROLE_IN;
}

static int64_t place_of(const hd_evaluation *e, const output *o)
{
    return o->rank * e->share + e->local_at[e->argument[o->tensor->id]->id] +
           o->i;
}

// Where a rank has room for more indices than it has, nothing is wanted.
static bool is_right(const hd_evaluation *e, const output *o)
{
    int64_t whole = hd_evaluation_whole(e, o->tensor, o->rank, o->i);

    return whole < 0 || e->local.value[place_of(e, o)] == e->dense.value[whole];
}

static int64_t count_elements(const hd_evaluation *e, const hd_buffer *tensor)
{
    return e->grain.local[e->argument[tensor->id]->id].elements;
}

// The tensor's element that is wrong on some rank.
static bool is_wrong(const hd_evaluation *e, const hd_buffer *tensor)
{
    int64_t n = count_elements(e, tensor);
    output o = {.tensor = tensor};

    for (; o.rank < e->graph->nranks; o.rank++)
        for (o.i = 0; o.i < n; o.i++)
            if (!is_right(e, &o))
                return true;
    return false;
}

// Of the wrong elements the one that was written first for the last time: what
// went wrong earliest did so by itself.
static output find_first(const hd_evaluation *e, const hd_buffer *tensor)
{
    int64_t n = count_elements(e, tensor), earliest = INT64_MAX;
    output o = {.tensor = tensor}, first = o;

    for (; o.rank < e->graph->nranks; o.rank++)
        for (o.i = 0; o.i < n; o.i++) {
            const hd_change *c;

            if (is_right(e, &o))
                continue;
            c = hd_history_last(e, place_of(e, &o), INT64_MAX);
            if ((c != NULL ? c->event : 0) < earliest) {
                earliest = c != NULL ? c->event : 0;
                first = o;
            }
        }
    return first;
}

// Changes that would fill the memory are not kept: nobody is to blame then.
static hd_status report_outputs(const hd_evaluation *e, hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &e->graph->module->source);
    hd_status status = HD_OK;

    for (const hd_buffer *b = e->tensor->buffers; b != NULL; b = b->next)
        if (is_output(e, b) && is_wrong(e, b))
            status = hd_error(
                diag, HD_E0901, e->argument[b->id]->loc,
                "%%%s is wrong; all steps write %lld pieces, and only among "
                "%d is the one to blame looked for",
                b->name, (long long)e->local.nwrites, MOST_WRITES);
    hd_diag_source(diag, outer);
    return status;
}

// The outputs are looked at again with what every step wrote.
static hd_status explain(const hd_graph *graph, const hd_module *tensor,
                         hd_diag *diag)
{
    hd_evaluation e;
    hd_blame blame;
    hd_status status = hd_evaluate(graph, tensor, true, diag, &e);

    HD_TRY(status);
    status = hd_blame_create(&e, &blame);
    for (const hd_buffer *b = tensor->buffers; b != NULL && status == HD_OK;
         b = b->next) {
        output o;

        if (!is_output(&e, b) || !is_wrong(&e, b))
            continue;
        o = find_first(&e, b);
        status = hd_blame_report(&blame, b, o.rank, o.i, diag);
    }
    hd_blame_free(&blame);
    hd_evaluation_free(&e);
    return status == HD_OK ? HD_ERROR_INVALID : status;
}

static hd_status compare(const hd_graph *graph, const hd_module *tensor,
                         hd_diag *diag)
{
    hd_evaluation e;
    bool wrong = false, many;
    hd_status status = HD_OK;

    HD_TRY(hd_evaluate(graph, tensor, false, diag, &e));
    for (const hd_buffer *b = tensor->buffers; b != NULL && !wrong; b = b->next)
        wrong = is_output(&e, b) && is_wrong(&e, b);
    many = e.local.nwrites > MOST_WRITES;
    if (wrong && many)
        status = report_outputs(&e, diag);
    hd_evaluation_free(&e);
    return wrong && !many ? explain(graph, tensor, diag) : status;
}

// Values are made by parts, of fused ops too.
hd_status hd_provenance_check(const hd_graph *graph, const hd_module *tensor,
                              hd_diag *diag)
{
    hd_module *split;
    hd_graph parts;
    hd_status status;

    HD_TRY(hd_module_split(graph->module, HD_MAX_RANKS, diag, &split));
    if (split == NULL)
        return compare(graph, tensor, diag);
    status = hd_graph_create(split, diag, &parts);
    if (status == HD_OK) {
        status = hd_graph_match(&parts, diag);
        if (status == HD_OK)
            status = compare(&parts, tensor, diag);
        hd_graph_free(&parts);
    }
    hd_module_destroy(split);
    return status;
}
