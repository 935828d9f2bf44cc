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
// So are gradients of queries added up, of which the first is stored
// (ir/zeros.h), and of pieces of them each by itself. Parts of half of the
// rows, as in zigzag, are merged with what the first part has of these rows;
// the others are its own. Nobody may see the temporary then, nor the result
// before it is copied.
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/libraries/attends.h"
#include "runtime/cuda/plan/make.h"

// What is found of a list of steps.
typedef struct sums {
    hd_cuda_plan *plan;
    const hd_steps *steps;
    const hd_chains *chains;
    int *named;  // owned, by buffer: how many views are of it
    int *parts;  // owned, by buffer: steps that add to it, in all
    int *latest; // owned, by buffer: the last of them; -1: there is none
    int *before; // owned, by step: the one before it; -1: it is the first
    hd_diag *diag;
} sums;

static const hd_step *step_at(const sums *s, int64_t i)
{
    return &s->steps->step[i];
}

static hd_cuda_detour *detour_at(const sums *s, int64_t i)
{
    return &s->plan->detour[i];
}

// Whether a span has all elements of one of the same buffer.
static bool has_all_of(const hd_span *all, const hd_span *some)
{
    int64_t apart = some->offset - all->offset;

    if (all->ndims != some->ndims || apart < 0)
        return false;
    for (int d = 0; d < all->ndims; d++) {
        int64_t index = apart / all->stride[d];

        if (all->stride[d] != some->stride[d] ||
            index + some->extent[d] > all->extent[d])
            return false;
        apart %= all->stride[d];
    }
    return apart == 0;
}

// The last step before this one that makes the same, or adds to it, and maybe
// more; -1 if none does.
static int previous(const sums *s, int i)
{
    const hd_span *sum = &step_at(s, i)->span[0];

    do
        i = s->before[i];
    while (i >= 0 && !has_all_of(&step_at(s, i)->span[0], sum));
    return i;
}

// Whether what the step makes is what step `k` before it made, or some of that
// if it is the first to.
static bool adds_to_all_of(const sums *s, int i, int k)
{
    const hd_span *sum = &step_at(s, i)->span[0];
    const hd_span *had = &step_at(s, k)->span[0];

    return hd_span_equal(had, sum) ||
           (has_all_of(had, sum) && previous(s, k) < 0);
}

// Whether none of those up to `last` adds to the same behind it.
static bool is_last(const sums *s, int i, int last)
{
    const hd_span *sum = &step_at(s, i)->span[0];

    while (last > i && !hd_span_equal(&step_at(s, last)->span[0], sum))
        last = s->before[last];
    return last == i;
}

// Whether the parts and the copy alone see the temporary.
static bool is_private(const sums *s, const hd_buffer *temp)
{
    return temp->role == HD_ROLE_TEMP &&
           !s->plan->device->buffer[temp->id].shared &&
           s->named[temp->id] == s->parts[temp->id] + 1;
}

// Whether the copy alone sees its result.
static bool is_alone(const sums *s, const hd_step *copy)
{
    const hd_span *to = &copy->span[0];

    for (int64_t i = 0; i < s->steps->nsteps; i++) {
        const hd_step *step = step_at(s, i);

        for (int k = 0; k < step->op->nviews && step != copy; k++)
            if (hd_span_overlaps(&step->span[k], to))
                return false;
    }
    return true;
}

// Whether it lies in what is copied as in what that becomes.
static bool is_piece(const hd_span *span, const hd_step *copy)
{
    const hd_span *to = &copy->span[0], *from = &copy->span[1];

    return hd_span_equal(span, from) ||
           (hd_span_is_dense(from) && hd_span_is_dense(to) &&
            span->offset >= from->offset &&
            hd_span_last(span) <= hd_span_last(from));
}

// Whether step `i` makes a piece of what is copied, which is the result's when
// it is the first to, and adds to it otherwise.
static bool is_part_of(const sums *s, int i, const hd_step *copy)
{
    const hd_step *step = step_at(s, i);
    bool adds = hd_step_access(step, 0) == HD_ACCESS_UPDATE;

    for (int k = s->before[i]; k >= 0; k = s->before[k])
        if (hd_span_overlaps(&step_at(s, k)->span[0], &step->span[0]) &&
            !adds_to_all_of(s, i, k))
            return false;
    return is_piece(&step->span[0], copy) && adds == (previous(s, i) >= 0) &&
           step->span[step->op->noutputs].buffer->type.dtype ==
               copy->span[0].buffer->type.dtype;
}

// Whether steps `last` and before make what is copied, and nothing else.
static bool are_parts(const sums *s, int last, const hd_step *copy)
{
    const hd_span *sum = &copy->span[1], *result = &copy->span[0];
    int64_t made = 0;

    for (int i = last; i >= 0; i = s->before[i]) {
        if (!is_part_of(s, i, copy))
            return false;
        if (previous(s, i) < 0)
            made += hd_span_elements(&step_at(s, i)->span[0]);
    }
    return made == hd_span_elements(sum) && result->ndims == sum->ndims &&
           memcmp(result->extent, sum->extent,
                  (size_t)sum->ndims * sizeof *sum->extent) == 0;
}

static hd_cuda_detour detour_of(const sums *s, int i, int last,
                                const hd_step *copy)
{
    int earlier = previous(s, i);

    return (hd_cuda_detour){.copy = copy,
                            .result = earlier < 0 || is_last(s, i, last),
                            .before = earlier >= 0 && previous(s, earlier) < 0};
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
    if (copy->op->code != HD_OP_COPY || hd_op_has_counts(copy->op))
        return HD_OK;
    last = last_part(s, copy);
    *out = last >= 0 && last < copy->index &&
           is_private(s, copy->span[1].buffer) && are_parts(s, last, copy) &&
           is_alone(s, copy);
    for (int i = last; i >= 0 && *out; i = s->before[i]) {
        const hd_step *step = step_at(s, i);
        hd_cuda_detour detour = detour_of(s, i, last, copy);

        HD_TRY(hd_cuda_attends_by(s->plan, step->stream + 1, step, &detour,
                                  s->diag, out));
    }
    return HD_OK;
}

static void leave_out(const sums *s, const hd_step *copy)
{
    int last = last_part(s, copy);

    for (int i = last; i >= 0; i = s->before[i])
        *detour_at(s, i) = detour_of(s, i, last, copy);
    detour_at(s, copy->index)->left_out = true;
}

// Of steps that one kernel does all are needless, or none is left out.
static hd_status look_at_chain(const sums *s, int64_t i)
{
    hd_chain chain;
    bool needless = true;

    hd_chains_find(s->chains, s->plan->device->binding.steps, i, &chain);
    if (chain.nsteps == 0)
        return HD_OK;
    for (int k = 0; k < chain.nsteps && needless; k++)
        HD_TRY(look_at(s, step_at(s, chain.step[k]->index), &needless));
    for (int k = 0; k < chain.nsteps && needless; k++)
        leave_out(s, step_at(s, chain.step[k]->index));
    return HD_OK;
}

static void count_views(sums *s)
{
    for (int b = 0; b < s->plan->device->nbuffers; b++)
        s->latest[b] = -1;
    for (int64_t i = 0; i < s->steps->nsteps; i++) {
        const hd_step *step = step_at(s, i);
        int to;

        for (int k = 0; k < step->op->nviews; k++)
            s->named[step->span[k].buffer->id]++;
        if (!hd_op_meets_keys(step->op))
            continue;
        to = step->span[0].buffer->id;
        s->parts[to]++;
        s->before[i] = s->latest[to];
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

static bool has_parts(const hd_steps *steps)
{
    for (int64_t i = 0; i < steps->nsteps; i++)
        if (hd_op_meets_keys(steps->step[i].op))
            return true;
    return false;
}

hd_status hd_cuda_find_sums(hd_cuda_plan *plan, const hd_chains *chains,
                            hd_diag *diag)
{
    hd_device *device = plan->device;
    const hd_steps *steps = plan->steps;
    size_t n = (size_t)device->nbuffers + 1;
    sums s = {.plan = plan, .steps = steps, .chains = chains, .diag = diag};
    hd_status status;

    if (!has_parts(steps))
        return HD_OK;
    s.named = calloc(n, sizeof *s.named);
    s.parts = calloc(n, sizeof *s.parts);
    s.latest = calloc(n, sizeof *s.latest);
    s.before = calloc((size_t)steps->nsteps, sizeof *s.before);
    status = s.named == NULL || s.parts == NULL || s.latest == NULL ||
                     s.before == NULL
                 ? hd_cuda_no_room(device, diag)
                 : find(&s);
    free(s.named);
    free(s.parts);
    free(s.latest);
    free(s.before);
    return status;
}
