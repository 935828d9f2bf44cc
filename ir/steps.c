// The steps of a rank as one array, and as text.
#include <stdlib.h>
#include <string.h>

#include <heddle/simulate.h>

#include "base/array.h"
#include "ir/print.h"
#include "ir/symmetry.h"
#include "ir/walk.h"

// A step of a loop touches as a rule what another one did: equal spans are kept
// once, found by a hash.
typedef struct collector {
    hd_diag *diag;
    hd_steps steps;
    int64_t steps_room, spans_room, nspans, records_room, nrecords;
    int64_t attended_room, nattended;
    int32_t *first; // owned, by step: its first span
    int64_t first_room;
    int32_t *slot; // owned: 1 + the first span of each list that is kept
    int64_t nslots, nlists; // slots: a power of two
} collector;

static uint64_t hash_spans(const hd_span *span, int n)
{
    uint64_t h = (uint64_t)n;

    for (int i = 0; i < n; i++) {
        h = (h ^ (uint64_t)span[i].buffer->id) * 0x9e3779b97f4a7c15u;
        h = (h ^ (uint64_t)span[i].offset) * 0x9e3779b97f4a7c15u;
        h = (h ^ (uint64_t)span[i].ndims) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

// Whether the step's spans stand at `at`.
static bool are_at(const collector *c, int64_t at, const hd_step *step)
{
    if (at + step->op->nviews > c->nspans)
        return false;
    for (int i = 0; i < step->op->nviews; i++)
        if (!hd_span_equal(&c->steps.span[at + i], &step->span[i]))
            return false;
    return true;
}

static hd_status keep_spans(collector *c, const hd_step *step)
{
    HD_TRY(hd_grow((void **)&c->steps.span, &c->spans_room,
                   c->nspans + step->op->nviews, sizeof(hd_span), c->diag));
    memcpy(&c->steps.span[c->nspans], step->span,
           sizeof(hd_span) * (size_t)step->op->nviews);
    c->nspans += step->op->nviews;
    c->nlists++;
    return HD_OK;
}

// The slots double; which step a list is of does not matter.
static hd_status grow_slots(collector *c)
{
    int64_t n = c->nslots == 0 ? 64 : 2 * c->nslots;
    int32_t *slot;

    if (2 * (c->nlists + 1) <= c->nslots)
        return HD_OK;
    slot = calloc((size_t)n, sizeof *slot);
    if (slot == NULL)
        return hd_fail(c->diag, HD_ERROR_NO_MEMORY, "out of memory");
    free(c->slot);
    c->slot = slot;
    c->nslots = n;
    c->nlists = 0;
    for (int64_t i = 0; i < c->steps.nsteps; i++) {
        const hd_step *step = &c->steps.step[i];
        uint64_t at;

        if (step->op->nviews == 0)
            continue;
        at = hash_spans(&c->steps.span[c->first[i]], step->op->nviews);
        while (slot[at % (uint64_t)n] != 0 &&
               slot[at % (uint64_t)n] != c->first[i] + 1)
            at++;
        c->nlists += slot[at % (uint64_t)n] == 0;
        slot[at % (uint64_t)n] = c->first[i] + 1;
    }
    return HD_OK;
}

static hd_status find_spans(collector *c, const hd_step *step, int32_t *out)
{
    uint64_t at = hash_spans(step->span, step->op->nviews);
    int32_t *slot;

    *out = 0;
    if (step->op->nviews == 0)
        return HD_OK;
    HD_TRY(grow_slots(c));
    while (*(slot = &c->slot[at % (uint64_t)c->nslots]) != 0 &&
           !are_at(c, *slot - 1, step))
        at++;
    if (*slot == 0) {
        *slot = (int32_t)c->nspans + 1;
        HD_TRY(keep_spans(c, step));
    }
    *out = *slot - 1;
    return HD_OK;
}

static hd_status keep_records(collector *c, const hd_step *step)
{
    int n = hd_step_records(step);

    HD_TRY(hd_grow((void **)&c->steps.record, &c->records_room, c->nrecords + n,
                   sizeof(hd_record), c->diag));
    for (int i = 0; i < n; i++)
        c->steps.record[c->nrecords++] = step->record[i];
    return HD_OK;
}

static hd_status keep_attended(collector *c, const hd_step *step)
{
    if (!hd_op_has_sequences(step->op))
        return HD_OK;
    HD_TRY(hd_grow((void **)&c->steps.attended, &c->attended_room,
                   c->nattended + 1, sizeof(hd_attended), c->diag));
    c->steps.attended[c->nattended++] = *step->attended;
    return HD_OK;
}

static hd_status collect(void *context, const hd_step *steps, int n)
{
    collector *c = context;

    for (int i = 0; i < n; i++) {
        int64_t at = c->steps.nsteps;

        HD_TRY(hd_grow((void **)&c->steps.step, &c->steps_room, at + 1,
                       sizeof(hd_step), c->diag));
        HD_TRY(hd_grow((void **)&c->first, &c->first_room, at + 1,
                       sizeof *c->first, c->diag));
        HD_TRY(find_spans(c, &steps[i], &c->first[at]));
        HD_TRY(keep_records(c, &steps[i]));
        HD_TRY(keep_attended(c, &steps[i]));
        c->steps.step[c->steps.nsteps++] = steps[i];
    }
    return HD_OK;
}

hd_status hd_steps_collect(const hd_module *module, int64_t rank, hd_diag *diag,
                           hd_steps *out)
{
    collector c = {.diag = diag};
    hd_status status = hd_walk(module, rank, diag, collect, &c);
    const hd_record *record = c.steps.record;
    const hd_attended *attended = c.steps.attended;

    // What they have stands still from here on.
    for (int64_t i = 0; i < c.steps.nsteps; i++) {
        hd_step *step = &c.steps.step[i];

        step->span = c.steps.span != NULL ? c.steps.span + c.first[i] : NULL;
        if (hd_op_has_sequences(step->op))
            step->attended = attended++;
        if (hd_step_records(step) == 0)
            continue;
        step->record = record;
        record += hd_step_records(step);
    }
    free(c.first);
    free(c.slot);
    if (status != HD_OK)
        hd_steps_free(&c.steps);
    else
        *out = c.steps;
    return status;
}

void hd_steps_free(hd_steps *steps)
{
    free(steps->step);
    free(steps->span);
    free(steps->record);
    free(steps->attended);
    *steps = (hd_steps){0};
}

int hd_steps_together(const hd_steps *steps, int64_t i)
{
    int32_t group = steps->step[i].group;
    int n = 1;

    while (group != 0 && i + n < steps->nsteps &&
           steps->step[i + n].group == group)
        n++;
    return n;
}

int hd_step_records(const hd_step *step)
{
    return step->op->code == HD_OP_WAIT ? step->op->nviews : 0;
}

hd_among hd_step_among(const hd_step *step)
{
    return hd_op_has_sequences(step->op) && step->attended != NULL
               ? step->attended->among
               : (hd_among){0};
}

bool hd_step_touches(const hd_step *step, int view)
{
    return hd_op_touches(step->op, view, step->peer == step->rank);
}

hd_access hd_step_access(const hd_step *step, int view)
{
    return (step->stores >> view & 1) != 0 ? HD_ACCESS_WRITE
                                           : hd_op_access(step->op, view);
}

int64_t hd_span_elements(const hd_span *span)
{
    int64_t n = 1;

    for (int i = 0; i < span->ndims; i++)
        n *= span->extent[i];
    return n;
}

bool hd_span_equal(const hd_span *a, const hd_span *b)
{
    size_t bytes = sizeof *a->extent * (size_t)a->ndims;

    return a->buffer == b->buffer && a->offset == b->offset &&
           a->ndims == b->ndims && memcmp(a->extent, b->extent, bytes) == 0 &&
           memcmp(a->stride, b->stride, bytes) == 0;
}

int64_t hd_span_last(const hd_span *span)
{
    int64_t last = span->offset;

    for (int d = 0; d < span->ndims; d++)
        last += (span->extent[d] - 1) * span->stride[d];
    return last;
}

bool hd_span_overlaps(const hd_span *a, const hd_span *b)
{
    return a->buffer == b->buffer && a->offset <= hd_span_last(b) &&
           b->offset <= hd_span_last(a);
}

bool hd_span_is_dense(const hd_span *span)
{
    int64_t next = 1;

    for (int i = span->ndims - 1; i >= 0; i--) {
        if (span->extent[i] != 1 && span->stride[i] != next)
            return false;
        next *= span->extent[i];
    }
    return true;
}

int64_t hd_span_offset(const hd_span *span, int from, int to, int64_t i)
{
    int64_t offset = 0;

    for (int d = to - 1; d >= from; d--) {
        offset += i % span->extent[d] * span->stride[d];
        i /= span->extent[d];
    }
    return offset;
}

bool hd_span_is_even(const hd_span *span, int from, int to)
{
    int64_t next = span->stride[to] * span->extent[to];

    for (int d = to - 1; d >= from; d--) {
        if (span->extent[d] != 1 && span->stride[d] != next)
            return false;
        next *= span->extent[d];
    }
    return true;
}

hd_status hd_module_steps(const hd_module *module, int rank, hd_diag *diag,
                          int64_t *out)
{
    hd_tally tally;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_walk_check_rank(module, rank, diag));
    HD_TRY(hd_walk_count(module, rank, diag, &tally));
    *out = tally.steps;
    return HD_OK;
}

hd_status hd_module_step_counts(const hd_module *module, hd_diag *diag,
                                int64_t *out)
{
    hd_symmetry symmetry;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_symmetry_find(module, diag, &symmetry));
    for (int rank = 0; rank < module->nranks; rank++) {
        if (rank > 0 && symmetry.steps)
            out[rank] = out[0];
        else
            HD_TRY(hd_module_steps(module, rank, diag, &out[rank]));
    }
    return HD_OK;
}
