// Attention over keys in parts, the first of which writes a temporary of f32,
// others are merged with that, and a copy makes a result of it in the operands'
// dtype. cuDNN writes that dtype, so what the temporary has of the first part
// is no more than the result itself can hold, and the last part may as well be
// merged into the result:
//
//     %t, %lse = attention %q, %k[0], %v[0]               into %o
//     %t, %lse = attention %q, %k[1], %v[1] accumulate    %o with this, into %t
//     %t, %lse = attention %q, %k[2], %v[2] accumulate    %t with this, into %o
//     %o = copy %t                                        nothing
//
// Nobody may see the temporary then, nor the result before it is copied.
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/attends.h"

// What is found of a list of steps.
typedef struct sums {
    hd_device *device;
    const hd_steps *steps;
    const hd_chains *chains;
    int *named;    // owned, by buffer: how many views are of it
    int *parts;    // owned, by buffer: attentions that write it, in all
    int *latest;   // owned, by buffer: the last of them, -1 before the first
    int *previous; // owned, by step: the one before it, -1 for the first
    hd_diag *diag;
} sums;

static bool is_attention(const hd_step *step)
{
    return hd_op_attend(step->op) == HD_ATTEND_ATTENTION;
}

static bool is_same(const hd_span *a, const hd_span *b)
{
    bool same = a->buffer == b->buffer && a->offset == b->offset &&
                a->ndims == b->ndims;

    for (int d = 0; same && d < a->ndims; d++)
        same = a->extent[d] == b->extent[d] &&
               (a->extent[d] == 1 || a->stride[d] == b->stride[d]);
    return same;
}

// Whether the copy alone may see the temporary and the result.
static bool is_alone(const sums *s, const hd_step *copy)
{
    const hd_buffer *to = copy->span[0].buffer, *from = copy->span[1].buffer;

    return from->role == HD_ROLE_TEMP && !s->device->buffer[from->id].shared &&
           s->named[from->id] == s->parts[from->id] + 1 &&
           s->named[to->id] == 1;
}

// Whether steps `last` and before make what is copied, and nothing else.
static bool are_parts(const sums *s, int last, const hd_step *copy)
{
    const hd_span *sum = &copy->span[1], *result = &copy->span[0];
    const hd_step *step = NULL;

    for (int i = last; i >= 0; i = s->previous[i]) {
        step = &s->steps->step[i];
        if (!is_same(&step->span[0], sum) ||
            step->span[2].buffer->type.dtype != result->buffer->type.dtype ||
            (hd_op_access(step->op, 0) == HD_ACCESS_UPDATE) !=
                (s->previous[i] >= 0))
            return false;
    }
    return result->ndims == sum->ndims &&
           memcmp(result->extent, sum->extent,
                  (size_t)sum->ndims * sizeof *sum->extent) == 0;
}

static hd_cuda_detour detour_of(const sums *s, int i, int last,
                                const hd_span *result)
{
    int before = s->previous[i];
    hd_cuda_detour detour = {0};

    if (i == last || before < 0)
        detour.result = result;
    if (before >= 0 && s->previous[before] < 0)
        detour.before = result;
    return detour;
}

static hd_status take_detours(sums *s, int last, const hd_step *copy)
{
    hd_cuda_detour *detour = s->device->plan->detour;
    bool does = true;

    for (int i = last; i >= 0 && does; i = s->previous[i]) {
        const hd_step *step = &s->steps->step[i];
        hd_cuda_detour it = detour_of(s, i, last, &copy->span[0]);

        HD_TRY(hd_cuda_attends_by(s->device, step->stream + 1, step, &it,
                                  s->diag, &does));
    }
    if (!does)
        return HD_OK;
    for (int i = last; i >= 0; i = s->previous[i])
        detour[i] = detour_of(s, i, last, &copy->span[0]);
    detour[copy->index].left_out = true;
    return HD_OK;
}

static bool is_plain_copy(const sums *s, const hd_step *step)
{
    hd_chain chain;

    if (step->op->code != HD_OP_COPY || s->chains->joined[step->index])
        return false;
    hd_chains_find(s->chains, s->device->binding.steps, step->index, &chain);
    return chain.nsteps == 1 && hd_op_key(step->op, HD_KEY_COUNTS) == NULL;
}

static void count_views(sums *s)
{
    for (int64_t i = 0; i < s->steps->nsteps; i++) {
        const hd_step *step = &s->steps->step[i];

        for (int k = 0; k < step->op->nviews; k++)
            s->named[step->span[k].buffer->id]++;
        if (is_attention(step))
            s->parts[step->span[0].buffer->id]++;
    }
}

static hd_status find(sums *s)
{
    count_views(s);
    for (int b = 0; b < s->device->nbuffers; b++)
        s->latest[b] = -1;
    for (int64_t i = 0; i < s->steps->nsteps; i++) {
        const hd_step *step = &s->steps->step[i];
        int last;

        if (is_attention(step)) {
            int *latest = &s->latest[step->span[0].buffer->id];

            s->previous[i] = *latest;
            *latest = (int)i;
        } else if (is_plain_copy(s, step)) {
            last = s->latest[step->span[1].buffer->id];
            if (last >= 0 && is_alone(s, step) && are_parts(s, last, step))
                HD_TRY(take_detours(s, last, step));
        }
    }
    return HD_OK;
}

static bool has_attention(const hd_steps *steps)
{
    for (int64_t i = 0; i < steps->nsteps; i++)
        if (is_attention(&steps->step[i]))
            return true;
    return false;
}

hd_status hd_cuda_find_sums(hd_device *device, const hd_chains *chains,
                            hd_diag *diag)
{
    const hd_steps *steps = device->plan->steps;
    size_t n = (size_t)device->nbuffers + 1;
    sums s = {.device = device, .steps = steps, .chains = chains, .diag = diag};
    hd_status status;

    // cuDNN does nothing of a run's own shape.
    if (device->plan->module->nsizes > 0 || !has_attention(steps))
        return HD_OK;
    s.named = calloc(n, sizeof *s.named);
    s.parts = calloc(n, sizeof *s.parts);
    s.latest = calloc(n, sizeof *s.latest);
    s.previous = calloc((size_t)steps->nsteps, sizeof *s.previous);
    status = s.named == NULL || s.parts == NULL || s.latest == NULL ||
                     s.previous == NULL
                 ? hd_cuda_no_room(device, diag)
                 : find(&s);
    free(s.named);
    free(s.parts);
    free(s.latest);
    free(s.previous);
    return status;
}
