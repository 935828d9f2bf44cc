// The answer to compare with. A tensor program is computed on whole arrays, as
// if nothing were sharded. A host program is interpreted: the steps of all
// ranks run one at a time in this process, in an order that it allows; where
// nothing can move, it deadlocks.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/call.h>
#include <heddle/verify.h>

#include "base/array.h"
#include "base/dtype.h"
#include "ir/causal.h"
#include "ir/counts.h"
#include "ir/parts.h"
#include "ir/space.h"
#include "oracle/numeric.h"
#include "steps/execute.h"
#include "steps/match.h"

struct hd_reference {
    const hd_module *module; // borrowed, or `split`
    hd_module *split;        // owned; NULL unless the program has fused ops
    bool dense;
    int nranks;
    hd_estimates *values; // owned: by rank (one if dense) and buffer id
    hd_module full;       // with room for all sizes; of host programs
    hd_graph graph;       // owned, of it; empty if dense
    hd_steps *steps;      // owned, by rank; NULL if dense
};

static hd_status out_of_memory(hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory for the reference");
}

// ------------------------------------------------------------------ values

static hd_estimates *values_of(const hd_reference *r, int rank,
                               const hd_buffer *buffer)
{
    return &r->values[rank * r->module->nbuffers + buffer->id];
}

static int64_t elements_of(const hd_reference *r, const hd_buffer *buffer)
{
    int64_t n = 1;

    if (!r->dense)
        return hd_type_local_elements(&buffer->type);
    for (int d = 0; d < buffer->type.ndims; d++)
        n *= hd_module_extent(r->module, buffer->type.dim[d]);
    return n;
}

static hd_status allocate_values(hd_reference *r, int rank,
                                 const hd_buffer *buffer)
{
    hd_estimates *v = values_of(r, rank, buffer);
    size_t n = (size_t)elements_of(r, buffer);

    if (n > SIZE_MAX / sizeof(double))
        return HD_ERROR_NO_MEMORY;
    v->value = malloc(n * sizeof(double));
    v->bound = malloc(n * sizeof(double));
    if (v->value == NULL || v->bound == NULL)
        return HD_ERROR_NO_MEMORY;
    if (hd_dtype_is_integer(buffer->type.dtype)) {
        v->whole = calloc(n, sizeof(int64_t));
        if (v->whole == NULL)
            return HD_ERROR_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        v->value[i] = NAN;
        v->bound[i] = HD_UNWRITTEN;
    }
    return HD_OK;
}

// The row-major position in the whole array of element i of a rank's shard; -1
// where its room is for more indices than it has.
static int64_t whole_position(const hd_module *module, const hd_type *type,
                              int rank, int64_t i)
{
    int64_t position = 0, scale = 1;

    for (int d = type->ndims - 1; d >= 0; d--) {
        int64_t room = hd_dim_local(type->dim[d]);
        hd_dim now = type->dim[d];
        int64_t index = i % room;

        now.extent = hd_module_extent(module, now);
        if (index >= hd_dim_local(now))
            return -1;
        if (hd_dim_is_sharded(now))
            index += hd_dim_local(now) * hd_mesh_coord(module, rank, now.mark);
        if (index >= now.extent)
            return -1;
        i /= room;
        position += index * scale;
        scale *= now.extent;
    }
    return position;
}

static void fill_values(hd_reference *r, int rank, const hd_buffer *buffer,
                        const void *whole)
{
    hd_dtype dtype = buffer->type.dtype;
    size_t size = hd_dtype_size(dtype);
    hd_estimates *v = values_of(r, rank, buffer);
    int64_t n = elements_of(r, buffer);

    memset(v->bound, 0, sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at =
            r->dense ? i : whole_position(r->module, &buffer->type, rank, i);
        const char *from;

        if (at < 0) {
            v->bound[i] = HD_UNWRITTEN;
            continue;
        }
        from = (const char *)whole + (size_t)at * size;
        hd_dtype_load(dtype, from, 1, &v->value[i]);
        if (v->whole != NULL)
            hd_dtype_load_integers(dtype, from, 1, &v->whole[i]);
    }
}

static hd_status prepare_values(hd_reference *r, const void *const *whole)
{
    int n = r->dense ? 1 : r->nranks;
    size_t argument = 0;

    r->values =
        calloc((size_t)n * (size_t)r->module->nbuffers + 1, sizeof *r->values);
    if (r->values == NULL)
        return HD_ERROR_NO_MEMORY;
    for (const hd_buffer *b = r->module->buffers; b != NULL; b = b->next) {
        const void *from = b->role != HD_ROLE_TEMP ? whole[argument++] : NULL;

        if (b->of != NULL || b->type.dtype == HD_DTYPE_EVENT)
            continue;
        for (int rank = 0; rank < n; rank++) {
            HD_TRY(allocate_values(r, rank, b));
            if (from != NULL &&
                (b->role == HD_ROLE_IN || b->role == HD_ROLE_INOUT))
                fill_values(r, rank, b, from);
        }
    }
    return HD_OK;
}

static hd_status compute_step(const hd_reference *r, int rank,
                              const hd_step *step)
{
    hd_estimates *values[HD_MAX_VIEWS];

    for (int i = 0; i < step->op->nviews; i++)
        values[i] = values_of(r, rank, step->span[i].buffer);
    return hd_numeric_compute(step, values);
}

// ----------------------------------------------------------- dense programs

// A reshape is a copy of as many elements, in their order.
static hd_span flat_span(const hd_reference *r, const hd_buffer *buffer)
{
    return (hd_span){.buffer = buffer,
                     .ndims = 1,
                     .extent = {elements_of(r, buffer)},
                     .stride = {1}};
}

// All ranks' elements that a view of a tensor has.
static hd_span dense_span(const hd_module *module, const hd_view *view)
{
    const hd_type *whole = &view->buffer->type;
    hd_type type = hd_view_type(view);
    hd_span span = {.buffer = view->buffer, .ndims = type.ndims};
    int64_t stride = 1;

    for (int d = whole->ndims - 1, i = span.ndims - 1; d >= 0; d--) {
        span.offset += hd_view_first(module, view, d) * stride;
        if (!hd_view_picks(view, d)) {
            span.extent[i] = hd_module_extent(module, type.dim[i]);
            span.stride[i--] = stride;
        }
        stride *= hd_module_extent(module, whole->dim[d]);
    }
    return span;
}

// Index by index, where ranks say what rows see.
static hd_status attend(hd_reference *r, const hd_step *step)
{
    hd_span span[HD_MAX_VIEWS];
    hd_step part = *step;
    hd_placed placed;

    part.span = span;
    for (int64_t rank = 0; rank < r->module->nranks; rank++) {
        if (!hd_causal_place(r->module, step->op, rank, &placed))
            continue;
        if (hd_op_has_blocks(step->op, step->op->noutputs + 1))
            part.blocks = placed.causal;
        else
            part.causal = placed.causal[0];
        for (int i = 0; i < step->op->nviews; i++) {
            span[i] = step->span[i];
            for (int d = 0; d < span[i].ndims; d++)
                if (placed.index[i][d] >= 0) {
                    span[i].offset += placed.index[i][d] * span[i].stride[d];
                    span[i].extent[d] = 1;
                }
        }
        HD_TRY(compute_step(r, 0, &part));
    }
    return HD_OK;
}

static hd_status run_dense(hd_reference *r)
{
    for (const hd_stmt *s = r->module->body.first; s != NULL; s = s->next) {
        hd_span spans[HD_MAX_VIEWS];
        hd_step step = {.op = s->op, .span = spans};

        for (int i = 0; i < step.op->nviews; i++)
            spans[i] = s->op->code == HD_OP_RESHAPE
                           ? flat_span(r, s->op->view[i].buffer)
                           : dense_span(r->module, &s->op->view[i]);
        hd_space_dims(r->module, s->op, spans[0].ndims, step.dim);
        HD_TRY(hd_op_family(s->op) == HD_FAMILY_ATTEND
                   ? attend(r, &step)
                   : compute_step(r, 0, &step));
    }
    return HD_OK;
}

// --------------------------------------------------------------- transfers

static const hd_step *step_of(const hd_reference *r, hd_member who)
{
    return &r->steps[who.rank].step[who.step];
}

static const hd_span *input_span(const hd_step *step)
{
    return &step->span[step->op->noutputs];
}

static hd_span nth(const hd_span *span, int64_t i)
{
    hd_span part = *span;

    part.offset += i * span->stride[0];
    part.ndims--;
    memmove(part.extent, part.extent + 1,
            sizeof(int64_t) * HD_MAX_DIMS - sizeof(int64_t));
    memmove(part.stride, part.stride + 1,
            sizeof(int64_t) * HD_MAX_DIMS - sizeof(int64_t));
    return part;
}

static void move(const hd_reference *r, int to_rank, const hd_span *to,
                 int from_rank, const hd_span *from)
{
    hd_numeric_copy(to, values_of(r, to_rank, to->buffer), from,
                    values_of(r, from_rank, from->buffer));
}

// What a step of `from` moves by counts to `to`, in piece `piece`: behind the
// rows that are counted there is no value.
static void forget_rest(const hd_reference *r, int from_rank,
                        const hd_step *from, int64_t piece, int to_rank,
                        const hd_span *to)
{
    hd_rows rows;
    const hd_estimates *counts;

    if (hd_op_counted(from->op) < 0)
        return;
    rows = hd_rows_of(from, piece);
    counts = values_of(r, from_rank, rows.counts->buffer);
    for (int64_t i = 0; i < rows.n; i++) {
        int64_t n = counts->whole[hd_rows_count(&rows, i)];
        int64_t first = i * rows.room + (n < 0 ? 0 : n);

        if (n < rows.room)
            hd_numeric_forget(to, values_of(r, to_rank, to->buffer),
                              first * rows.row, (i + 1) * rows.room * rows.row);
    }
}

static void run_point(const hd_reference *r, int rank, int64_t recv)
{
    const hd_node *node = hd_graph_node(&r->graph, rank, recv);
    const hd_step *sent = &r->steps[node->peer].step[node->link];
    const hd_span *to = &r->steps[rank].step[recv].span[0];

    move(r, rank, to, node->peer, &sent->span[0]);
    forget_rest(r, node->peer, sent, -1, rank, to);
}

// Member i's part of what every rank gathers, or of what each one sends it.
static void run_exchange(const hd_reference *r, const hd_member *who, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            const hd_step *to = step_of(r, who[i]), *from = step_of(r, who[j]);
            hd_span out = nth(&to->span[0], j);
            hd_span in = hd_op_is_led(from->op, 1) ? nth(input_span(from), i)
                                                   : *input_span(from);

            move(r, who[i].rank, &out, who[j].rank, &in);
            forget_rest(r, who[j].rank, from, i, who[i].rank, &out);
        }
}

static void run_broadcast(const hd_reference *r, const hd_member *who,
                          int64_t n)
{
    int root = step_of(r, who[0])->peer;
    const hd_step *from = NULL;

    for (int64_t i = 0; i < n; i++)
        if (who[i].rank == root)
            from = step_of(r, who[i]);
    for (int64_t i = 0; i < n; i++) {
        const hd_step *to = step_of(r, who[i]);

        if (to->op->noutputs > 0)
            move(r, who[i].rank, &to->span[0], root, input_span(from));
    }
}

// An all_reduce may be in place on every rank, so it is done once and copied.
static hd_status run_reduce(const hd_reference *r, const hd_member *who,
                            int64_t n)
{
    const hd_step *first = step_of(r, who[0]);
    hd_fold fold = hd_op_fold(first->op);
    bool rooted = hd_op_is_rooted(first->op);
    bool scatter = hd_op_is_led(first->op, 1);
    hd_span *in = calloc((size_t)n, sizeof *in);
    hd_estimates **from = calloc((size_t)n, sizeof *from);
    hd_status status = in != NULL && from != NULL ? HD_OK : HD_ERROR_NO_MEMORY;

    for (int64_t i = 0; i < n && status == HD_OK; i++) {
        const hd_span *out = &step_of(r, who[i])->span[0];

        if (rooted && who[i].rank != first->peer)
            continue;
        if (i > 0 && !scatter && !rooted) {
            move(r, who[i].rank, out, who[0].rank, &first->span[0]);
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            const hd_span *span = input_span(step_of(r, who[j]));

            in[j] = scatter ? nth(span, i) : *span;
            from[j] = values_of(r, who[j].rank, span->buffer);
        }
        status =
            hd_numeric_reduce(fold, out, values_of(r, who[i].rank, out->buffer),
                              (int)n, in, from);
    }
    free(in);
    free(from);
    return status;
}

static hd_status run_rendezvous(const hd_reference *r, int64_t rendezvous)
{
    const hd_graph *g = &r->graph;
    const hd_member *who = &g->member[g->rendezvous[rendezvous]];
    int64_t n = g->rendezvous[rendezvous + 1] - g->rendezvous[rendezvous];

    switch (hd_op_move(step_of(r, who[0])->op)) {
    case HD_MOVE_BROADCAST:
        run_broadcast(r, who, n);
        return HD_OK;
    case HD_MOVE_REDUCE_SCATTER:
    case HD_MOVE_ALL_REDUCE:
    case HD_MOVE_REDUCE:
        return run_reduce(r, who, n);
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_ALL_TO_ALL:
    case HD_MOVE_SEND:
    case HD_MOVE_RECV:
    case HD_MOVE_ALL_GATHER_MATMUL:
    case HD_MOVE_MATMUL_REDUCE_SCATTER:
    case HD_MOVE_MATMUL_ALL_REDUCE:
    case HD_MOVE_NONE:
        break;
    }
    run_exchange(r, who, n);
    return HD_OK;
}

// ------------------------------------------------------------- interpreting

static hd_status run_step(void *context, int rank, int64_t step)
{
    const hd_reference *r = context;
    const hd_node *node = hd_graph_node(&r->graph, rank, step);

    if (node->kind == HD_NODE_COLLECTIVE)
        return run_rendezvous(r, node->link);
    if (node->kind != HD_NODE_RECV)
        return compute_step(r, rank, &r->steps[rank].step[step]);
    run_point(r, rank, step);
    return HD_OK;
}

static hd_status report_stuck(const hd_reference *r, const hd_schedule *stuck,
                              hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &r->module->source);
    hd_status status = HD_OK;

    for (int rank = 0; rank < r->nranks; rank++)
        for (int stream = 0; stream < r->graph.nstreams; stream++) {
            int64_t i = hd_schedule_stuck(stuck, rank, stream);
            const hd_op *op;

            if (i < 0)
                continue;
            op = hd_graph_node(&r->graph, rank, i)->op;
            if (status == HD_OK)
                status = hd_error(diag, HD_E0706, op->loc,
                                  "deadlock: rank %d never gets past this %s "
                                  "(step %lld)",
                                  rank, hd_op_info_get(op->code)->text,
                                  (long long)i);
            else
                hd_note(diag, op->loc, "nor rank %d past this %s (step %lld)",
                        rank, hd_op_info_get(op->code)->text, (long long)i);
        }
    hd_diag_source(diag, outer);
    return status;
}

static hd_status run_host(hd_reference *r, hd_diag *diag)
{
    hd_schedule done;
    hd_status status;

    // What runs out of memory is told by the caller.
    HD_TRY(hd_execute(&r->graph, run_step, r, NULL, &done));
    status = report_stuck(r, &done, diag);
    hd_schedule_close(&done);
    return status;
}

// Says itself what fails, as do the walks that it makes.
static hd_status prepare_ranks(hd_reference *r, hd_diag *diag)
{
    r->full = hd_module_full(r->module);
    HD_TRY(hd_graph_create(&r->full, diag, &r->graph));
    HD_TRY(hd_graph_match(&r->graph, diag));
    HD_TRY(
        hd_clear_array(r->nranks, sizeof *r->steps, diag, (void **)&r->steps));
    for (int rank = 0; rank < r->nranks; rank++)
        HD_TRY(hd_steps_collect(r->module, rank, diag, &r->steps[rank]));
    return HD_OK;
}

// ------------------------------------------------------------ public calls

// Every element of every `out` argument has been computed, on every rank.
static hd_status check_written(const hd_reference *r, hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &r->module->source);
    hd_status status = HD_OK;

    for (const hd_buffer *b = r->module->buffers; b != NULL; b = b->next) {
        int64_t n =
            b->of == NULL && b->role == HD_ROLE_OUT ? elements_of(r, b) : 0;

        if (b->type.dtype == HD_DTYPE_EVENT)
            continue;
        for (int rank = 0; rank < (r->dense ? 1 : r->nranks); rank++)
            for (int64_t i = 0; i < n && status == HD_OK; i++)
                if (values_of(r, rank, b)->bound[i] == HD_UNWRITTEN &&
                    whole_position(r->module, &b->type, rank, i) >= 0)
                    status = hd_error(diag, HD_E0707, b->loc,
                                      "element %lld of output %%%s is never "
                                      "written on rank %d",
                                      (long long)i, b->name, rank);
    }
    hd_diag_source(diag, outer);
    return status;
}

static hd_status check_arguments(const hd_module *module,
                                 const void *const *whole, hd_diag *diag)
{
    size_t i = 0;

    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        const void *from = b->role != HD_ROLE_TEMP ? whole[i++] : NULL;

        if (from == NULL && b->type.dtype != HD_DTYPE_EVENT &&
            (b->role == HD_ROLE_IN || b->role == HD_ROLE_INOUT))
            return hd_fail(diag, HD_ERROR_ARGUMENT, "argument %%%s is NULL",
                           b->name);
    }
    return HD_OK;
}

static hd_status compute(hd_reference *r, const void *const *whole,
                         hd_diag *diag)
{
    hd_status status;

    HD_TRY(check_arguments(r->module, whole, diag));
    if (!r->dense)
        HD_TRY(prepare_ranks(r, diag));
    status = prepare_values(r, whole);
    if (status == HD_OK)
        status = r->dense ? run_dense(r) : run_host(r, diag);
    if (status == HD_OK)
        status = check_written(r, diag);
    return status == HD_ERROR_NO_MEMORY ? out_of_memory(diag) : status;
}

hd_status hd_reference_create(const hd_module *module, const void *const *whole,
                              hd_diag *diag, hd_reference **out)
{
    hd_call_info call = HD_EMPTY(hd_call_info);
    hd_reference *r;
    hd_status status;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    if (module->narguments > 0)
        HD_REQUIRE(diag, whole);
    if (module->stage != HD_STAGE_TENSOR && module->stage != HD_STAGE_HOST)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "a reference is of a tensor program or a complete host "
                       "program; %s is lowered half way",
                       module->name);
    if (hd_module_call(module, 0, &call))
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "%s:%d: call \"%s\": what a function of the caller's "
                       "computes, no reference knows",
                       module->source.name != NULL ? module->source.name
                                                   : module->name,
                       call.line, call.name);
    r = calloc(1, sizeof *r);
    if (r == NULL)
        return out_of_memory(diag);
    r->dense = module->stage == HD_STAGE_TENSOR;
    r->nranks = (int)module->nranks;
    status = hd_module_split(module, HD_MAX_RANKS, diag, &r->split);
    r->module = r->split != NULL ? r->split : module;
    if (status == HD_OK)
        status = compute(r, whole, diag);
    if (status != HD_OK) {
        hd_reference_destroy(r);
        return status;
    }
    *out = r;
    return HD_OK;
}

void hd_reference_destroy(hd_reference *r)
{
    int n;

    if (r == NULL)
        return;
    n = r->dense ? 1 : r->nranks;
    for (int i = 0; r->values != NULL && i < n * r->module->nbuffers; i++) {
        free(r->values[i].value);
        free(r->values[i].bound);
        free(r->values[i].whole);
    }
    for (int i = 0; r->steps != NULL && i < r->nranks; i++)
        hd_steps_free(&r->steps[i]);
    hd_graph_free(&r->graph);
    hd_module_destroy(r->split);
    free(r->values);
    free(r->steps);
    free(r);
}

static const hd_buffer *argument(const hd_module *module, size_t i)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->role != HD_ROLE_TEMP && i-- == 0)
            return b;
    return NULL;
}

void hd_reference_local(const hd_reference *r, size_t i, int rank,
                        double *values, double *bounds)
{
    const hd_buffer *buffer;
    const hd_buffer *root;
    const hd_estimates *v;
    int64_t n;

    assert(r != NULL && values != NULL);
    buffer = argument(r->module, i);
    if (buffer == NULL || buffer->type.dtype == HD_DTYPE_EVENT || rank < 0 ||
        rank >= r->nranks)
        return;
    root = buffer->of != NULL ? buffer->of : buffer;
    v = values_of(r, r->dense ? 0 : rank, root);
    n = hd_type_local_elements(&buffer->type);
    for (int64_t k = 0; k < n; k++) {
        int64_t whole = whole_position(r->module, &buffer->type, rank, k);
        int64_t at = r->dense || whole < 0 ? whole : k;

        values[k] = at < 0 ? NAN : v->value[at];
        if (bounds != NULL)
            bounds[k] = at < 0 ? HD_UNWRITTEN : v->bound[at];
    }
}
