// The tensor program is evaluated on whole tensors, statement by statement; the
// host program step by step, on memory of each rank.
#include "check/evaluate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "eval/evaluate.h"
#include "ir/print.h"
#include "steps/execute.h"

// Numbers that are kept, of all ranks.
#define MOST_VALUES ((int64_t)1 << 28)

// Terms that are added up and elements that are written, a minute's worth.
static const double most_work = 0x1p30;

// What nothing has written is no value of the other program.
enum { DENSE_KEY = 3, LOCAL_KEY };

// ---------------------------------------------------------------- arguments

static const hd_buffer *find_argument(const hd_module *module, const char *name)
{
    const hd_buffer *b = hd_module_buffer(module, name, strlen(name));

    return b != NULL && b->role != HD_ROLE_TEMP ? b : NULL;
}

// Of the tensor program if `in_tensor`.
static hd_status report_missing(const hd_module *host, const hd_module *tensor,
                                const hd_buffer *b, bool in_tensor,
                                hd_diag *diag)
{
    const hd_source *outer =
        hd_diag_source(diag, in_tensor ? &tensor->source : &host->source);
    hd_status status =
        hd_error(diag, HD_E0902, b->loc,
                 in_tensor ? "argument %%%s of the tensor program is none of "
                             "host program %s"
                           : "argument %%%s is none of tensor program %s",
                 b->name, in_tensor ? host->name : tensor->name);

    hd_diag_source(diag, outer);
    return status;
}

static bool has_same_type(const hd_buffer *x, const hd_buffer *y)
{
    bool same =
        x->type.dtype == y->type.dtype && x->type.ndims == y->type.ndims;

    for (int d = 0; d < x->type.ndims && same; d++)
        same = hd_dim_as_long(x->type.dim[d], y->type.dim[d]);
    return same;
}

static hd_status report_different(const hd_module *host,
                                  const hd_module *tensor, const hd_buffer *x,
                                  const hd_buffer *y, hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &host->source);
    hd_text here = {0}, there = {0};
    hd_status status;

    hd_type_print(host, &y->type, &here);
    hd_type_print(tensor, &x->type, &there);
    if (has_same_type(x, y))
        status = hd_error(diag, HD_E0902, y->loc,
                          "%%%s has another role than in the tensor program",
                          y->name);
    else
        status = hd_error(diag, HD_E0902, y->loc,
                          "%%%s is %s here and %s in the tensor program",
                          y->name, here.bytes != NULL ? here.bytes : "",
                          there.bytes != NULL ? there.bytes : "");
    hd_diag_source(diag, &tensor->source);
    hd_note(diag, x->loc, "%%%s of tensor program %s", x->name, tensor->name);
    hd_diag_source(diag, outer);
    hd_text_free(&here);
    hd_text_free(&there);
    return status;
}

hd_status hd_arguments_match(const hd_module *host, const hd_module *tensor,
                             hd_diag *diag, const hd_buffer **out)
{
    hd_status status = HD_OK;

    for (const hd_buffer *x = tensor->buffers; x != NULL; x = x->next) {
        const hd_buffer *y = find_argument(host, x->name);

        if (x->role == HD_ROLE_TEMP || x->type.dtype == HD_DTYPE_EVENT)
            continue;
        if (y == NULL)
            status = report_missing(host, tensor, x, true, diag);
        else if (x->role != y->role || !has_same_type(x, y))
            status = report_different(host, tensor, x, y, diag);
        else if (out != NULL)
            out[x->id] = y;
    }
    for (const hd_buffer *y = host->buffers; y != NULL; y = y->next)
        if (y->role != HD_ROLE_TEMP && y->type.dtype != HD_DTYPE_EVENT &&
            find_argument(tensor, y->name) == NULL)
            status = report_missing(host, tensor, y, false, diag);
    return status;
}

int64_t hd_evaluation_whole(const hd_evaluation *e, const hd_buffer *tensor,
                            int rank, int64_t i)
{
    const hd_buffer *mine = e->argument[tensor->id];
    int64_t at =
        hd_sieve_whole(e->graph->module, &mine->type, &e->host.sieve[mine->id],
                       &e->whole.sieve[tensor->id], rank, i);

    return at < 0 ? -1 : e->whole.at[tensor->id] + at;
}

// --------------------------------------------------------------- evaluating

static int64_t local_elements(const hd_evaluation *e)
{
    return e->host.share * e->graph->nranks;
}

static hd_status evaluate_step(void *context, int rank, int64_t step)
{
    hd_evaluation *e = context;
    hd_evaluator of = {&hd_field, &e->local, e->diag, &e->host,
                       local_elements(e)};

    e->local.event++;
    HD_TRY(hd_evaluate_step(&of, rank, step));
    return e->local.status;
}

// -------------------------------------------------------------------- whole

static hd_status check_room(const hd_evaluation *e)
{
    if (e->whole.share > MOST_VALUES)
        return hd_error(e->diag, HD_E0105, (hd_loc){0},
                        "tensor program %s is of more than %lld pieces; values "
                        "are not compared beyond",
                        e->tensor->name, (long long)MOST_VALUES);
    if (e->host.share <= MOST_VALUES / e->graph->nranks)
        return HD_OK;
    return hd_error(e->diag, HD_E0105, (hd_loc){0},
                    "%lld pieces a rank on %d ranks; values are compared for "
                    "at most %lld pieces of all ranks",
                    (long long)e->host.share, e->graph->nranks,
                    (long long)MOST_VALUES);
}

// What the rank adds up in the step. The sum of an all_reduce is made once.
static double step_work(const hd_evaluation *e, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(e->graph, rank, step);
    hd_work_item item;
    double n = 0;

    hd_layout_step(&e->host, rank, step, &item);
    if (node[1].part > node->part)
        n = hd_compute_work(&item);
    switch (hd_op_move(node->op)) {
    case HD_MOVE_REDUCE_SCATTER:
        return n * (double)e->graph->module->axis[node->op->axis].size;
    case HD_MOVE_REDUCE:
        return node->peer != rank
                   ? 0
                   : n * (double)e->graph->module->axis[node->op->axis].size;
    case HD_MOVE_ALL_REDUCE:
        return 2 * n;
    case HD_MOVE_SEND: // its recv counts
        return 0;
    case HD_MOVE_NONE:
    case HD_MOVE_RECV:
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_BROADCAST:
    case HD_MOVE_ALL_TO_ALL:
        break;
    }
    return n;
}

static hd_status refuse_work(const hd_evaluation *e, const hd_module *module,
                             hd_loc loc)
{
    const hd_source *outer = hd_diag_source(e->diag, &module->source);
    hd_status status = hd_error(
        e->diag, HD_E0105, loc,
        "up to here %s has more than %.0f results and products of pieces; "
        "values are not compared beyond: indices and names of other shapes cut "
        "its buffers too finely, or there are too many steps",
        module->name, most_work);

    hd_diag_source(e->diag, outer);
    return status;
}

// Refuses what would take hours before it is begun.
static hd_status check_work(const hd_evaluation *e)
{
    const hd_graph *g = e->graph;
    double work = 0;

    for (const hd_stmt *s = e->tensor->body.first; s != NULL; s = s->next) {
        hd_work_item item;

        hd_layout_op(&e->whole, s->op, &item);
        work += hd_compute_work(&item);
        if (work > most_work)
            return refuse_work(e, e->tensor, s->op->loc);
    }
    work = 0;
    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t step = 0; step < hd_graph_steps(g, rank); step++) {
            work += step_work(e, rank, step);
            if (work > most_work)
                return refuse_work(e, g->module,
                                   hd_graph_node(g, rank, step)->op->loc);
        }
    return HD_OK;
}

// What counts holds whole numbers.
static void fill_counts(hd_evaluation *e)
{
    uint64_t number = 0, turn = e->draw->turn;

    for (const hd_buffer *b = e->tensor->buffers; b != NULL; b = b->next) {
        uint64_t *value = &e->dense.value[e->whole.at[b->id]];
        int64_t room = hd_draw_room(e->graph->module, e->tensor, b);

        for (int64_t i = 0; room > 0 && i < e->whole.sieve[b->id].elements; i++)
            value[i] = (uint64_t)hd_draw_next(e->draw, number++, room, &turn);
    }
}

// Every rank's shard of an input holds what the whole one does.
static void fill_inputs(hd_evaluation *e)
{
    for (const hd_buffer *b = e->tensor->buffers; b != NULL; b = b->next) {
        const hd_buffer *mine = e->argument[b->id];
        int64_t n;

        if (mine == NULL || b->role == HD_ROLE_OUT)
            continue;
        n = e->host.sieve[mine->id].elements;
        for (int rank = 0; rank < e->graph->nranks; rank++)
            for (int64_t i = 0; i < n; i++) {
                int64_t whole = hd_evaluation_whole(e, b, rank, i);

                if (whole >= 0)
                    e->local.value[rank * e->host.share + e->host.at[mine->id] +
                                   i] = e->dense.value[whole];
            }
    }
}

static hd_status allocate(hd_evaluation *e)
{
    HD_TRY(hd_layout_place(&e->whole, MOST_VALUES, e->diag));
    HD_TRY(hd_layout_place(&e->host, MOST_VALUES, e->diag));
    HD_TRY(check_room(e));
    HD_TRY(check_work(e));
    HD_TRY(hd_values_create(e->draw, e->whole.share + HD_MAX_SCALARS, DENSE_KEY,
                            e->diag, &e->dense));
    return hd_values_create(e->draw, local_elements(e) + HD_MAX_SCALARS,
                            LOCAL_KEY, e->diag, &e->local);
}

static hd_status evaluate_host(hd_evaluation *e)
{
    hd_schedule done;

    HD_TRY(hd_execute(e->graph, evaluate_step, e, e->diag, &done));
    assert(hd_schedule_is_over(&done)); // it does not deadlock
    hd_schedule_close(&done);
    return HD_OK;
}

static hd_status evaluate(hd_evaluation *e, bool keep)
{
    hd_evaluator tensor = {&hd_field, &e->dense, e->diag, &e->whole, 0};

    HD_TRY(hd_clear_array(e->tensor->nbuffers, sizeof *e->argument, e->diag,
                          (void **)&e->argument));
    HD_TRY(
        hd_arguments_match(e->graph->module, e->tensor, e->diag, e->argument));
    HD_TRY(hd_grain_find(e->argument, e->diag, &e->whole, &e->host));
    HD_TRY(allocate(e));
    if (e->draw->counts)
        fill_counts(e);
    fill_inputs(e);
    tensor.spare = e->whole.share;
    HD_TRY(hd_evaluate_tensor(&tensor));
    HD_TRY(e->dense.status);
    e->local.keep = keep;
    return evaluate_host(e);
}

hd_status hd_evaluate(const hd_graph *graph, const hd_module *tensor,
                      const hd_draw *draw, bool keep, hd_diag *diag,
                      hd_evaluation *out)
{
    hd_status status;

    *out = (hd_evaluation){.graph = graph,
                           .tensor = tensor,
                           .draw = draw,
                           .whole = {.module = tensor},
                           .host = {.module = graph->module, .graph = graph},
                           .diag = diag};
    status = evaluate(out, keep);
    if (status != HD_OK)
        hd_evaluation_free(out);
    return status;
}

void hd_evaluation_free(hd_evaluation *e)
{
    free(e->argument);
    hd_layout_free(&e->whole);
    hd_layout_free(&e->host);
    hd_values_free(&e->dense);
    hd_values_free(&e->local);
    *e = (hd_evaluation){0};
}
