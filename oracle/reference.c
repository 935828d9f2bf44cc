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
#include "eval/evaluate.h"
#include "oracle/numeric.h"
#include "steps/execute.h"
#include "steps/match.h"

struct hd_reference {
    const hd_module *module; // borrowed
    bool dense;
    int nranks;
    hd_layout layout;    // owned
    hd_estimate *memory; // owned
    hd_graph graph;      // owned; empty if dense
};

static hd_status out_of_memory(hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory for the reference");
}

// ------------------------------------------------------------------ values

// Every element is kept, of all of a tensor or of what a rank has room for.
static hd_sieve sieve_of(const hd_module *module, const hd_type *type,
                         bool dense)
{
    hd_sieve s = {.ndims = type->ndims,
                  .elements = type->dtype != HD_DTYPE_EVENT};

    for (int d = s.ndims - 1; d >= 0; d--) {
        hd_dim now = type->dim[d];

        now.extent = hd_module_extent(module, now);
        s.whole[d] = dense ? now.extent : hd_dim_local(now);
        s.extent[d] = dense ? now.extent : hd_dim_local(type->dim[d]);
        s.grain[d] = (hd_grain){1, 0};
        s.stride[d] = s.elements;
        s.elements *= s.extent[d];
    }
    return s;
}

static hd_estimate *values_of(const hd_reference *r, int rank,
                              const hd_buffer *buffer)
{
    return &r->memory[rank * r->layout.share + r->layout.at[buffer->id]];
}

static int64_t elements_of(const hd_reference *r)
{
    return r->layout.share * (r->dense ? 1 : r->nranks);
}

static hd_status allocate_values(hd_reference *r)
{
    const int64_t most = INT64_MAX / HD_MAX_RANKS / 64;
    int64_t n;

    HD_TRY(hd_clear_array(r->module->nbuffers, sizeof *r->layout.sieve, NULL,
                          (void **)&r->layout.sieve));
    for (const hd_buffer *b = r->module->buffers; b != NULL; b = b->next)
        r->layout.sieve[b->id] = sieve_of(r->module, &b->type, r->dense);
    HD_TRY(hd_layout_place(&r->layout, most, NULL));
    if (r->layout.share > most)
        return HD_ERROR_NO_MEMORY;
    n = elements_of(r) + HD_MAX_SCALARS;
    HD_TRY(hd_clear_array(n, sizeof *r->memory, NULL, (void **)&r->memory));
    for (int64_t i = 0; i < n; i++)
        r->memory[i] = (hd_estimate){NAN, HD_UNWRITTEN, 0};
    return HD_OK;
}

// An argument of a rank, and of all of them.
typedef struct shard {
    const hd_module *module;
    const hd_type *type;
    hd_sieve local, whole;
} shard;

static shard shard_of(const hd_reference *r, const hd_buffer *buffer)
{
    return (shard){r->module, &buffer->type,
                   sieve_of(r->module, &buffer->type, false),
                   sieve_of(r->module, &buffer->type, true)};
}

// Where element i is in the whole array; -1 where there is room for more
// indices than the rank has.
static int64_t whole_position(const shard *s, int rank, int64_t i)
{
    return hd_sieve_whole(s->module, s->type, &s->local, &s->whole, rank, i);
}

static void fill_values(hd_reference *r, int rank, const hd_buffer *buffer,
                        const void *whole)
{
    hd_dtype dtype = buffer->type.dtype;
    hd_estimate *v = values_of(r, rank, buffer);
    shard s = shard_of(r, buffer);

    for (int64_t i = 0; i < r->layout.sieve[buffer->id].elements; i++) {
        int64_t at = r->dense ? i : whole_position(&s, rank, i);
        const char *from = whole;

        if (at < 0)
            continue;
        from += (size_t)at * hd_dtype_size(dtype);
        v[i].bound = 0;
        hd_dtype_load(dtype, from, 1, &v[i].value);
        if (hd_dtype_is_integer(dtype))
            hd_dtype_load_integers(dtype, from, 1, &v[i].whole);
    }
}

static hd_status prepare_values(hd_reference *r, const void *const *whole)
{
    size_t argument = 0;

    HD_TRY(allocate_values(r));
    for (const hd_buffer *b = r->module->buffers; b != NULL; b = b->next) {
        const void *from = b->role != HD_ROLE_TEMP ? whole[argument++] : NULL;

        if (from == NULL || b->of != NULL || b->type.dtype == HD_DTYPE_EVENT ||
            b->role == HD_ROLE_OUT)
            continue;
        for (int rank = 0; rank < (r->dense ? 1 : r->nranks); rank++)
            fill_values(r, rank, b, from);
    }
    return HD_OK;
}

// ------------------------------------------------------------- interpreting

static hd_evaluator evaluator_of(const hd_reference *r)
{
    return (hd_evaluator){&hd_numeric, r->memory, NULL, &r->layout,
                          elements_of(r)};
}

static hd_status run_step(void *context, int rank, int64_t step)
{
    return hd_evaluate_step(context, rank, step);
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
    hd_evaluator e = evaluator_of(r);
    hd_schedule done;
    hd_status status;

    // What runs out of memory is told by the caller.
    HD_TRY(hd_execute(&r->graph, run_step, &e, NULL, &done));
    status = report_stuck(r, &done, diag);
    hd_schedule_close(&done);
    return status;
}

static hd_status run_dense(const hd_reference *r)
{
    hd_evaluator e = evaluator_of(r);

    return hd_evaluate_tensor(&e);
}

// Says itself what fails, as do the walks that it makes. Whether transfers
// match is asked where there is most to move.
static hd_status prepare_ranks(hd_reference *r, hd_diag *diag)
{
    hd_module full = hd_module_full(r->module);
    hd_graph graph;
    hd_status status = hd_graph_create(&full, diag, &graph);

    HD_TRY(status);
    status = hd_graph_match(&graph, diag);
    hd_graph_free(&graph);
    HD_TRY(status);
    HD_TRY(hd_graph_create(r->module, diag, &r->graph));
    r->layout.graph = &r->graph;
    return HD_OK;
}

// ------------------------------------------------------------ public calls

// Every element of every `out` argument has been computed, on every rank.
static hd_status check_written(const hd_reference *r, hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &r->module->source);
    hd_status status = HD_OK;

    for (const hd_buffer *b = r->module->buffers; b != NULL; b = b->next) {
        int64_t n = b->of == NULL && b->role == HD_ROLE_OUT
                        ? r->layout.sieve[b->id].elements
                        : 0;
        shard s = shard_of(r, b);

        for (int rank = 0; rank < (r->dense ? 1 : r->nranks); rank++)
            for (int64_t i = 0; i < n && status == HD_OK; i++)
                if (values_of(r, rank, b)[i].bound == HD_UNWRITTEN &&
                    (r->dense || whole_position(&s, rank, i) >= 0))
                    status = hd_error(diag, HD_E0707, b->loc,
                                      "element %lld of output %%%s is never "
                                      "written on rank %d",
                                      (long long)i, b->name, rank);
    }
    hd_diag_source(diag, outer);
    return status;
}

static bool has_elements(const hd_module *module, const hd_buffer *b)
{
    for (int d = 0; d < b->type.ndims; d++)
        if (hd_module_extent(module, b->type.dim[d]) == 0)
            return false;
    return true;
}

static hd_status check_arguments(const hd_module *module,
                                 const void *const *whole, hd_diag *diag)
{
    size_t i = 0;

    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        const void *from = b->role != HD_ROLE_TEMP ? whole[i++] : NULL;

        if (from == NULL && b->type.dtype != HD_DTYPE_EVENT &&
            (b->role == HD_ROLE_IN || b->role == HD_ROLE_INOUT) &&
            has_elements(module, b))
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
    r->module = r->layout.module = module;
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
    if (r == NULL)
        return;
    hd_layout_free(&r->layout);
    hd_graph_free(&r->graph);
    free(r->memory);
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
    const hd_estimate *v;
    shard s;

    assert(r != NULL && values != NULL);
    buffer = argument(r->module, i);
    if (buffer == NULL || buffer->type.dtype == HD_DTYPE_EVENT || rank < 0 ||
        rank >= r->nranks)
        return;
    root = buffer->of != NULL ? buffer->of : buffer;
    v = values_of(r, r->dense ? 0 : rank, root);
    s = shard_of(r, buffer);
    for (int64_t k = 0; k < s.local.elements; k++) {
        int64_t whole = whole_position(&s, rank, k);
        int64_t at = r->dense || whole < 0 ? whole : k;

        values[k] = at < 0 ? NAN : v[at].value;
        if (bounds != NULL)
            bounds[k] = at < 0 ? HD_UNWRITTEN : v[at].bound;
    }
}
