// Both programs are evaluated on random numbers of a field in place of values
// (check/value): nothing races, so whatever order is as good as any. Outputs
// that agree everywhere are the same polynomials of the inputs, but for a
// chance below 2^-40. Where counts or the sizes of a run matter, that is done
// for several of them (check/draw). Where outputs do not agree, both programs
// are evaluated again with all that was written kept, and check/blame goes back
// from an element that is wrong to the statement that first took or made
// something else.
#include "check/provenance.h"

#include "check/blame.h"
#include "check/history.h"
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
    return o->rank * e->host.share +
           e->host.at[e->argument[o->tensor->id]->id] + o->i;
}

// Where a rank has room for more indices than it has, nothing is wanted.
static bool is_right(const hd_evaluation *e, const output *o)
{
    int64_t whole = hd_evaluation_whole(e, o->tensor, o->rank, o->i);

    return whole < 0 || e->local.value[place_of(e, o)] == e->dense.value[whole];
}

static int64_t count_elements(const hd_evaluation *e, const hd_buffer *tensor)
{
    return e->host.sieve[e->argument[tensor->id]->id].elements;
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

// ------------------------------------------------------------------- draws

enum { MOST_COUNTS = 8 }; // of a buffer, that are told

// A pair of programs and what they are evaluated on.
typedef struct trial {
    const hd_graph *graph;
    const hd_module *tensor;
    const hd_draw *draw;
    uint64_t seed; // that the draw is of
    hd_diag *diag;
} trial;

// "%n = [0, 3]"
static void print_counts(const hd_evaluation *e, const hd_buffer *counts,
                         hd_text *text)
{
    int64_t n = e->whole.sieve[counts->id].elements;
    const uint64_t *value = &e->dense.value[e->whole.at[counts->id]];

    hd_text_printf(text, "%%%s = [", counts->name);
    for (int64_t i = 0; i < n && i < MOST_COUNTS; i++)
        hd_text_printf(text, "%s%lld", i > 0 ? ", " : "",
                       (long long)hd_draw_counted(e->draw, value[i]));
    hd_text_puts(text, n > MOST_COUNTS ? ", ..]" : "]");
}

// Of counts that are none of the caller's the first ones: others are those,
// moved.
static void print_draw(const hd_evaluation *e, hd_text *text)
{
    const hd_module *m = e->tensor;
    const char *between = "with ";
    bool any = false;

    for (int i = 0; i < m->nsizes; i++) {
        hd_text_printf(text, "%s%s = %lld", between, m->size[i].name,
                       (long long)m->size[i].now);
        between = ", ";
    }
    for (const hd_buffer *b = m->buffers; b != NULL; b = b->next) {
        bool counts = hd_module_counts_by(m, b) ||
                      hd_draw_room(e->graph->module, m, b) > 0;

        if (!counts || (any && b->role == HD_ROLE_TEMP))
            continue;
        hd_text_puts(text, between);
        print_counts(e, b, text);
        between = ", ";
        any = true;
    }
}

// In which run it is wrong, if that matters, and how to see it again.
static void note_draw(const trial *t, const hd_evaluation *e)
{
    hd_text text = {0};

    print_draw(e, &text);
    if (text.bytes != NULL && e->draw->random)
        hd_text_printf(&text, "; --seed %llu draws that again",
                       (unsigned long long)t->seed);
    if (text.bytes != NULL)
        hd_note(t->diag, (hd_loc){0}, "%s", text.bytes);
    hd_text_free(&text);
}

// ------------------------------------------------------------------- words

// Changes that would fill the memory are not kept: nobody is to blame then.
static hd_status report_outputs(const trial *t, const hd_evaluation *e)
{
    const hd_source *outer = hd_diag_source(t->diag, &t->graph->module->source);
    hd_status status = HD_OK;

    for (const hd_buffer *b = e->tensor->buffers; b != NULL; b = b->next) {
        if (!is_output(e, b) || !is_wrong(e, b))
            continue;
        status = hd_error(
            t->diag, HD_E0901, e->argument[b->id]->loc,
            "%%%s is wrong; all steps write %lld pieces, and only among "
            "%d is the one to blame looked for",
            b->name, (long long)e->local.nwrites, MOST_WRITES);
        note_draw(t, e);
    }
    hd_diag_source(t->diag, outer);
    return status;
}

static hd_status explain_output(const trial *t, hd_blame *blame,
                                const hd_buffer *tensor)
{
    const hd_evaluation *e = blame->e;
    output o = find_first(e, tensor);
    size_t said = hd_diag_count(t->diag);
    hd_status status = hd_blame_report(blame, tensor, o.rank, o.i, t->diag);

    if (hd_diag_count(t->diag) > said)
        note_draw(t, e);
    return status;
}

// The outputs are looked at again with what every step wrote.
static hd_status explain(const trial *t)
{
    hd_evaluation e;
    hd_blame blame;
    hd_status status =
        hd_evaluate(t->graph, t->tensor, t->draw, true, t->diag, &e);

    HD_TRY(status);
    status = hd_blame_create(&e, &blame);
    for (const hd_buffer *b = t->tensor->buffers; b != NULL && status == HD_OK;
         b = b->next)
        if (is_output(&e, b) && is_wrong(&e, b))
            status = explain_output(t, &blame, b);
    hd_blame_free(&blame);
    hd_evaluation_free(&e);
    return status == HD_OK ? HD_ERROR_INVALID : status;
}

// ------------------------------------------------------------------- whole

static hd_status compare(const trial *t)
{
    hd_evaluation e;
    bool wrong = false, many;
    hd_status status = HD_OK;

    HD_TRY(hd_evaluate(t->graph, t->tensor, t->draw, false, t->diag, &e));
    for (const hd_buffer *b = t->tensor->buffers; b != NULL && !wrong;
         b = b->next)
        wrong = is_output(&e, b) && is_wrong(&e, b);
    many = e.local.nwrites > MOST_WRITES;
    if (wrong && many)
        status = report_outputs(t, &e);
    hd_evaluation_free(&e);
    return wrong && !many ? explain(t) : status;
}

// The steps are the same in each run, but for how long they are, and so are
// the ranks that they meet.
static hd_status compare_run(const trial *full)
{
    hd_module host = hd_module_sized(full->graph->module, full->draw->size);
    hd_module tensor = hd_module_sized(full->tensor, full->draw->size);
    hd_graph graph;
    trial t = *full;
    hd_status status = hd_graph_create(&host, full->diag, &graph);

    HD_TRY(status);
    t.graph = &graph;
    t.tensor = &tensor;
    status = compare(&t);
    hd_graph_free(&graph);
    return status;
}

// Up to the first draw that shows a difference.
hd_status hd_provenance_check(const hd_graph *graph, const hd_module *tensor,
                              uint64_t seed, hd_diag *diag)
{
    hd_draws draws;
    hd_status status = hd_draws_create(graph, tensor, seed, diag, &draws);

    HD_TRY(status);
    for (int i = 0; i < draws.n && status == HD_OK; i++) {
        hd_draw draw = hd_draws_get(&draws, i);
        trial t = {graph, tensor, &draw, draws.seed, diag};

        status = tensor->nsizes > 0 ? compare_run(&t) : compare(&t);
    }
    hd_draws_free(&draws);
    return status;
}
