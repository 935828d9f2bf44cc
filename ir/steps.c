// The steps of a rank as one array, and as text.
#include <stdlib.h>
#include <string.h>

#include "ir/print.h"
#include "ir/walk.h"

typedef struct collector {
    hd_diag *diag;
    hd_steps steps;
    int64_t steps_room, spans_room, nspans;
} collector;

static hd_status grow(hd_diag *diag, void **array, int64_t *room, int64_t need,
                      size_t size)
{
    int64_t larger = *room > 0 ? *room : 64;
    void *grown;

    while (larger < need)
        larger *= 2;
    if (larger == *room)
        return HD_OK;
    grown = realloc(*array, size * (size_t)larger);
    if (grown == NULL)
        return hd_fail(diag, HD_NO_MEMORY, "out of memory");
    *array = grown;
    *room = larger;
    return HD_OK;
}

static hd_status collect(void *context, const hd_step *steps, int n)
{
    collector *c = context;

    for (int i = 0; i < n; i++) {
        HD_TRY(grow(c->diag, (void **)&c->steps.step, &c->steps_room,
                    c->steps.nsteps + 1, sizeof(hd_step)));
        HD_TRY(grow(c->diag, (void **)&c->steps.span, &c->spans_room,
                    c->nspans + steps[i].nspans, sizeof(hd_span)));
        memcpy(&c->steps.span[c->nspans], steps[i].span,
               sizeof(hd_span) * (size_t)steps[i].nspans);
        c->steps.step[c->steps.nsteps++] = steps[i];
        c->nspans += steps[i].nspans;
    }
    return HD_OK;
}

hd_status hd_steps_collect(const hd_module *module, int64_t rank, hd_diag *diag,
                           hd_steps *out)
{
    collector c = {.diag = diag};
    hd_status status = hd_walk(module, rank, diag, collect, &c);
    int64_t at = 0;

    if (status != HD_OK) {
        hd_steps_free(&c.steps);
        return status;
    }
    for (int64_t i = 0; i < c.steps.nsteps; i++) { // the spans stand still now
        c.steps.step[i].span = &c.steps.span[at];
        at += c.steps.step[i].nspans;
    }
    *out = c.steps;
    return HD_OK;
}

void hd_steps_free(hd_steps *steps)
{
    free(steps->step);
    free(steps->span);
    *steps = (hd_steps){0};
}

bool hd_step_touches(const hd_step *step, int view)
{
    return step->op->code != HD_OP_BROADCAST || step->peer == step->rank ||
           view < step->op->noutputs;
}

int64_t hd_span_elements(const hd_span *span)
{
    int64_t n = 1;

    for (int i = 0; i < span->ndims; i++)
        n *= span->extent[i];
    return n;
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
    if (rank < 0 || rank >= module->nranks)
        return hd_fail(diag, HD_ARGUMENT, "rank %d of a mesh of %lld", rank,
                       (long long)module->nranks);
    HD_TRY(hd_walk_count(module, rank, diag, &tally));
    *out = tally.steps;
    return HD_OK;
}
