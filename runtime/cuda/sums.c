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
    int *latest;   // owned, by buffer: the last of them; -1: there is none
    int *previous; // owned, by step: the one before it; -1: it is the first
    hd_diag *diag;
} sums;

static bool is_attention(const hd_step *step)
{
    return hd_op_attend(step->op) == HD_ATTEND_ATTENTION;
}

// Whether the parts and the copy alone see the temporary.
static bool is_private(const sums *s, const hd_buffer *temp)
{
    return temp->role == HD_ROLE_TEMP && !s->device->buffer[temp->id].shared &&
           s->named[temp->id] == s->parts[temp->id] + 1;
}

// Whether the copy alone sees its result.
static bool is_alone(const sums *s, const hd_step *copy)
{
    const hd_span *to = &copy->span[0];

    for (int64_t i = 0; i < s->steps->nsteps; i++) {
        const hd_step *step = &s->steps->step[i];

        for (int k = 0; k < step->op->nviews && step != copy; k++)
            if (hd_span_overlaps(&step->span[k], to))
                return false;
    }
    return true;
}

// Whether steps `last` and before make what is copied, and nothing else.
static bool are_parts(const sums *s, int last, const hd_step *copy)
{
    const hd_span *sum = &copy->span[1], *result = &copy->span[0];
    const hd_step *step = NULL;

    for (int i = last; i >= 0; i = s->previous[i]) {
        step = &s->steps->step[i];
        if (!hd_span_equal(&step->span[0], sum) ||
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

static int last_part(const sums *s, const hd_step *copy)
{
    return s->latest[copy->span[1].buffer->id];
}

// Whether the copy is needless: its parts can go where it puts their sum.
static hd_status look_at(const sums *s, const hd_step *copy, bool *out)
{
    int last;

    *out = false;
    if (copy->op->code != HD_OP_COPY ||
        hd_op_key(copy->op, HD_KEY_COUNTS) != NULL)
        return HD_OK;
    last = last_part(s, copy);
    *out = last >= 0 && last < copy->index &&
           is_private(s, copy->span[1].buffer) && are_parts(s, last, copy) &&
           is_alone(s, copy);
    for (int i = last; i >= 0 && *out; i = s->previous[i]) {
        const hd_step *step = &s->steps->step[i];
        hd_cuda_detour detour = detour_of(s, i, last, &copy->span[0]);

        HD_TRY(hd_cuda_attends_by(s->device, step->stream + 1, step, &detour,
                                  s->diag, out));
    }
    return HD_OK;
}

static void leave_out(const sums *s, const hd_step *copy)
{
    hd_cuda_detour *detour = s->device->plan->detour;
    int last = last_part(s, copy);

    for (int i = last; i >= 0; i = s->previous[i])
        detour[i] = detour_of(s, i, last, &copy->span[0]);
    detour[copy->index].left_out = true;
}

// Of steps that one kernel does all are needless, or none is left out.
static hd_status look_at_chain(const sums *s, int64_t i)
{
    hd_chain chain;
    bool needless = true;

    hd_chains_find(s->chains, s->device->binding.steps, i, &chain);
    if (chain.nsteps == 0)
        return HD_OK;
    for (int k = 0; k < chain.nsteps && needless; k++)
        HD_TRY(look_at(s, &s->steps->step[chain.step[k]->index], &needless));
    for (int k = 0; k < chain.nsteps && needless; k++)
        leave_out(s, &s->steps->step[chain.step[k]->index]);
    return HD_OK;
}

static void count_views(sums *s)
{
    for (int b = 0; b < s->device->nbuffers; b++)
        s->latest[b] = -1;
    for (int64_t i = 0; i < s->steps->nsteps; i++) {
        const hd_step *step = &s->steps->step[i];
        int to;

        for (int k = 0; k < step->op->nviews; k++)
            s->named[step->span[k].buffer->id]++;
        if (!is_attention(step))
            continue;
        to = step->span[0].buffer->id;
        s->parts[to]++;
        s->previous[i] = s->latest[to];
        s->latest[to] = (int)i;
    }
}

static hd_status find(sums *s)
{
    count_views(s);
    for (int64_t i = 0; i < s->steps->nsteps; i++)
        if (s->steps->step[i].op->code == HD_OP_COPY && !s->chains->joined[i])
            HD_TRY(look_at_chain(s, i));
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

    if (!has_attention(steps))
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
