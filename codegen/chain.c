// A chain grows step by step. Each thread of its kernel does all steps for one
// element before it turns to the next, in any order of elements; so a step may
// join if no element of it depends on another element of an earlier step, nor
// writes what an earlier step has yet to read there:
//
//     %t = relu %x          %t = relu %x
//     %y = add %t, %b       %y = add %t[1], %b    // element i needs i + n
//     one kernel            two
//
// Views of one buffer are therefore either equal, element for element, or they
// do not meet, or nothing writes them. Memory of different buffers is never the
// same.
//
// Two blocks that are as long at room may be one longer than the other in a
// run, so that lengths are equal if they are by their terms. All else that
// holds of elements at room holds in every run, which has some of them.
#include "codegen/chain.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(HD_CHAIN_VALUES >= HD_MAX_VIEWS, "one step fits");

// ------------------------------------------------------------------- steps

// A kernel of one step alone reads counts.
static bool can_join(const hd_step *step)
{
    return hd_op_is_elementwise(step->op) && !hd_op_has_counts(step->op);
}

// A copy of one contiguous range of bytes to another, which needs no kernel.
static bool is_plain_copy(const hd_step *step)
{
    const hd_span *to = &step->span[0], *from = &step->span[1];

    return step->op->code == HD_OP_COPY &&
           to->buffer->type.dtype == from->buffer->type.dtype &&
           hd_length_is_dense(step, 0) && hd_length_is_dense(step, 1);
}

// Whether the step orders the stream, or is a part of it that is no chain's. A
// fork and a join concern all streams.
static bool ends_stream(const hd_step *step, int stream)
{
    return hd_op_sync(step->op) == HD_SYNC_FORK ||
           hd_op_sync(step->op) == HD_SYNC_JOIN ||
           (step->stream == stream && !can_join(step));
}

// ------------------------------------------------------------------ values

// Not of one index in every run.
static bool counts(hd_length length)
{
    return length.sized || length.room != 1;
}

// What the step's span `i` is along the dimensions of its result.
static hd_chain_value value_of(const hd_step *step, const hd_space *space,
                               int i)
{
    hd_chain_value value = {.span = &step->span[i]};
    int64_t stride[HD_SPACE_DIMS];
    int n = 0;

    hd_space_strides(space, i, step->span[i].stride, stride);
    for (int d = 0; d < space->nparallel; d++)
        if (counts(hd_length_of(step, 0, d)))
            value.stride[n++] = stride[d];
    return value;
}

static bool are_equal(const hd_chain *chain, const hd_chain_value *a,
                      const hd_chain_value *b)
{
    return a->span->buffer == b->span->buffer &&
           a->span->offset == b->span->offset &&
           memcmp(a->stride, b->stride,
                  (size_t)chain->ndims * sizeof *a->stride) == 0;
}

static int64_t last_element(const hd_chain *chain, const hd_chain_value *value)
{
    int64_t last = value->span->offset;

    for (int d = 0; d < chain->ndims; d++)
        last += value->stride[d] * (chain->dim[d].length.room - 1);
    return last;
}

// Whether two values with these strides, their first elements `apart`, have an
// element in common. Strides shrink: what the later dimensions span is less
// than one step of an earlier one, which leaves two multiples to try.
static bool strides_meet(const hd_chain *chain, const int64_t *stride, int d,
                         int64_t apart)
{
    int64_t k;

    while (d < chain->ndims && stride[d] == 0)
        d++;
    if (d == chain->ndims)
        return apart == 0;
    k = apart / stride[d] - (apart % stride[d] < 0);
    for (int i = 0; i < 2; i++, k++) {
        if (k > -chain->dim[d].length.room && k < chain->dim[d].length.room &&
            strides_meet(chain, stride, d + 1, apart - k * stride[d]))
            return true;
    }
    return false;
}

// They may have an element in common; if in doubt, they do.
static bool may_meet(const hd_chain *chain, const hd_chain_value *a,
                     const hd_chain_value *b)
{
    if (a->span->buffer != b->span->buffer ||
        last_element(chain, a) < b->span->offset ||
        last_element(chain, b) < a->span->offset)
        return false;
    return memcmp(a->stride, b->stride,
                  (size_t)chain->ndims * sizeof *a->stride) != 0 ||
           strides_meet(chain, a->stride, 0, b->span->offset - a->span->offset);
}

// The number of the step's value `i`, which is new or was there before. -1 if
// it may not be a part of the chain.
static int add_value(hd_chain *chain, const hd_step *step,
                     const hd_space *space, int i, bool write)
{
    hd_chain_value value = value_of(step, space, i);
    int same = -1;

    for (int k = 0; k < chain->nvalues; k++) {
        const hd_chain_value *other = &chain->value[k];

        if (are_equal(chain, other, &value))
            same = k;
        else if ((write || other->written) && may_meet(chain, other, &value))
            return -1;
    }
    if (same < 0) {
        if (chain->nvalues == HD_CHAIN_VALUES)
            return -1;
        same = chain->nvalues++;
        chain->value[same] = value;
    }
    if (write)
        chain->value[same].written = chain->value[same].stored = true;
    else if (!chain->value[same].written)
        chain->value[same].loaded = true;
    return same;
}

// ------------------------------------------------------------------ chains

// Dimension `d` of the step's result. At room the blocks of what a run says are
// as long as each other, so that where one begins says which it is; of a
// sharded dimension, the axis does.
static hd_chain_dim dim_of(const hd_step *step, int d)
{
    const hd_view *view = &step->op->view[0];
    int own = hd_view_kept_dim(view, d);
    hd_dim dim = view->buffer->type.dim[own];
    const hd_range *range = hd_view_range(view, own);
    hd_chain_dim out = {.length = hd_length_of(step, 0, d)};
    int64_t block = -1;

    if (!hd_view_has_sized(view, own))
        return out;
    if (hd_dim_is_sharded(dim))
        block = -2 - dim.mark;
    else if (range != NULL)
        block = step->span[0].offset / step->span[0].stride[d] % dim.extent /
                out.length.room;
    out.terms =
        hd_dim_terms_of(dim, block, range != NULL ? range->blocks : dim.blocks);
    return out;
}

static bool same_dim(const hd_chain_dim *a, const hd_chain_dim *b)
{
    return a->length.room == b->length.room &&
           hd_dim_same_terms(a->terms, b->terms);
}

// The first step says which elements the chain is over, the others have as
// many.
static bool fits(hd_chain *chain, const hd_step *step)
{
    hd_chain_dim dim[HD_MAX_DIMS];
    int n = 0;

    for (int d = 0; d < step->span[0].ndims; d++)
        if (counts(hd_length_of(step, 0, d)))
            dim[n++] = dim_of(step, d);
    if (chain->nsteps == 0) {
        chain->ndims = n;
        memcpy(chain->dim, dim, (size_t)n * sizeof *dim);
    }
    for (int d = 0; d < n && d < chain->ndims; d++)
        if (!same_dim(&dim[d], &chain->dim[d]))
            return false;
    return n == chain->ndims;
}

// What a step reads counts before what it writes.
static bool add_step(hd_chain *chain, const hd_step *step)
{
    hd_length length[HD_SPACE_DIMS];
    hd_space space;
    int *of;

    if (chain->nsteps == HD_CHAIN_STEPS || !fits(chain, step))
        return false;
    hd_length_space(step, &space, length);
    of = chain->of[chain->nsteps];
    for (int i = step->op->nviews - 1; i >= 0; i--) {
        of[i] = add_value(chain, step, &space, i, i == 0);
        if (of[i] < 0)
            return false;
    }
    chain->step[chain->nsteps++] = step;
    return true;
}

// A copy engine's work is a chain's only where that saves memory traffic: if it
// names elements that the steps before it name too.
static bool is_worthwhile(const hd_chain *before, const hd_chain *after)
{
    const hd_step *last = after->step[before->nsteps];
    const int *of = after->of[before->nsteps];

    if (!is_plain_copy(last) &&
        (before->nsteps > 1 || !is_plain_copy(before->step[0])))
        return true;
    for (int i = 0; i < last->op->nviews; i++)
        if (of[i] < before->nvalues)
            return true;
    return false;
}

static bool join(hd_chain *chain, const hd_step *step)
{
    hd_chain longer = *chain;

    if (!add_step(&longer, step) ||
        (chain->nsteps > 0 && !is_worthwhile(chain, &longer)))
        return false;
    *chain = longer;
    return true;
}

static bool needs_kernel(const hd_chain *chain)
{
    for (int i = 0; i < chain->nsteps; i++)
        if (!is_plain_copy(chain->step[i]))
            return true;
    return false;
}

void hd_chain_find(const hd_steps *steps, int64_t start, hd_chain *out)
{
    const hd_step *first = &steps->step[start];

    *out = (hd_chain){0};
    if (!can_join(first) || !join(out, first))
        return;
    for (int64_t i = start + 1; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];

        if (ends_stream(step, first->stream))
            break;
        if (step->stream == first->stream && !join(out, step))
            break;
    }
    // Copy engines do these without NVRTC, which there may be none of.
    if (!needs_kernel(out))
        out->nsteps = 1;
}

// -------------------------------------------------------- all of a rank's

static void note_reads(const hd_step *step, bool *read)
{
    for (int i = 0; i < step->op->nviews; i++)
        if (hd_op_access(step->op, i) != HD_ACCESS_WRITE)
            read[step->span[i].buffer->id] = true;
}

// Between the steps of a chain there are others, which are in no chain yet.
static void note_chain(const hd_steps *steps, const hd_chain *chain,
                       hd_chains *out)
{
    for (int i = 1; i < chain->nsteps; i++)
        out->joined[chain->step[i] - steps->step] = true;
    for (int i = 0; i < chain->nvalues; i++)
        if (chain->value[i].loaded)
            out->read[chain->value[i].span->buffer->id] = true;
}

bool hd_chains_collect(const hd_steps *steps, int nbuffers, hd_chains *out)
{
    hd_chain chain;

    *out =
        (hd_chains){.joined = calloc((size_t)steps->nsteps + 1, sizeof(bool)),
                    .read = calloc((size_t)nbuffers + 1, sizeof(bool))};
    if (out->joined == NULL || out->read == NULL) {
        hd_chains_free(out);
        return false;
    }
    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (out->joined[i])
            continue;
        hd_chain_find(steps, i, &chain);
        if (chain.nsteps > 1)
            note_chain(steps, &chain, out);
        else
            note_reads(&steps->step[i], out->read);
    }
    return true;
}

void hd_chains_free(hd_chains *chains)
{
    free(chains->joined);
    free(chains->read);
    *chains = (hd_chains){0};
}

void hd_chains_find(const hd_chains *chains, const hd_steps *steps,
                    int64_t start, hd_chain *out)
{
    int last;

    hd_chain_find(steps, start, out);
    if (out->nsteps < 2)
        return;
    // A kernel stores something.
    last = out->of[out->nsteps - 1][0];
    for (int i = 0; i < out->nvalues; i++) {
        const hd_buffer *buffer = out->value[i].span->buffer;

        if (i != last && buffer->role == HD_ROLE_TEMP && !buffer->shared &&
            !chains->read[buffer->id])
            out->value[i].stored = false;
    }
}

// -------------------------------------------------------------- in a run

hd_chain hd_chain_now(const hd_chain *chain, const hd_steps *room,
                      const hd_steps *now)
{
    hd_chain out = *chain;
    int n = 0;

    for (int k = chain->nsteps - 1; k >= 0; k--) {
        out.step[k] = &now->step[chain->step[k] - room->step];
        for (int i = 0; i < out.step[k]->op->nviews; i++)
            out.value[out.of[k][i]].span = &out.step[k]->span[i];
    }
    for (int d = 0; d < out.step[0]->span[0].ndims; d++) {
        hd_length length = hd_length_of(out.step[0], 0, d);

        if (counts(length))
            out.dim[n++].length = length;
    }
    return out;
}
