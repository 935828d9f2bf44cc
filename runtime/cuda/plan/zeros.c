// Gradients that are added to zeros, as those of the first block are, and those
// of each block's own keys: what a step's gradients are the first to touch of a
// fill with zeros they store, and a fill of which they touch all does nothing.
//
//     %dq = fill value 0                                          nothing
//     %dk = fill value 0                                          nothing
//     %dq, %dk[0], .. = attention_grad .., %k[0], .. accumulate   both stored
//     %dq, %dk[1], .. = attention_grad .., %k[1], .. accumulate   %dk[1] stored
//
// In zigzag half of a block's keys may be seen by no row: there the fill stays.
#include <stdlib.h>

#include "runtime/cuda/libraries/attends.h"
#include "runtime/cuda/plan/make.h"

enum { GRADIENTS = 3, PIECES = 256 }; // pieces of a fill that are told apart

// What of a fill has been touched since, in pieces: those that are stored do
// not meet.
typedef struct filled {
    const hd_span *span;
    const hd_span *piece[PIECES]; // borrowed
    int npieces;
    int64_t elements; // of all that are stored
    bool over;        // all of it is touched, or there is no more room
} filled;

static bool fills_with_zeros(const hd_step *step)
{
    const hd_key *value = hd_op_key(step->op, HD_KEY_VALUE);

    return step->op->code == HD_OP_FILL && value != NULL && value->view < 0 &&
           value->number == 0 && !hd_op_has_counts(step->op) &&
           hd_span_is_dense(&step->span[0]);
}

static bool adds_gradients(const hd_step *step)
{
    return hd_op_attend(step->op) == HD_ATTEND_ATTENTION_GRAD &&
           hd_op_access(step->op, 0) == HD_ACCESS_UPDATE;
}

static bool is_piece(const hd_span *all, const hd_span *span)
{
    return span->offset >= all->offset &&
           hd_span_last(span) <= hd_span_last(all);
}

// Whether nobody has touched any of it; from now on somebody has.
static bool touch_first(filled *f, const hd_span *span)
{
    bool first = true;

    for (int i = 0; i < f->npieces; i++) {
        if (hd_span_equal(f->piece[i], span))
            return false;
        first &= !hd_span_overlaps(f->piece[i], span);
    }
    f->over = f->npieces == PIECES || is_piece(span, f->span);
    if (f->npieces == PIECES)
        return false;
    f->piece[f->npieces++] = span;
    return first;
}

// Notes what the step has of the fill, and says in `detour` what it stores.
static void take(filled *f, const hd_step *step, hd_cuda_detour *detour)
{
    for (int i = 0; i < step->op->nviews && !f->over; i++) {
        const hd_span *span = &step->span[i];

        if (!hd_span_overlaps(f->span, span) || !touch_first(f, span) ||
            !adds_gradients(step) || i >= GRADIENTS || !is_piece(f->span, span))
            continue;
        f->elements += hd_span_elements(span);
        detour[step->index].stores[i] = true;
    }
}

// Whether gradients make all of it before anybody sees it.
static bool is_needless(const hd_steps *steps, int64_t fill,
                        hd_cuda_detour *detour)
{
    filled f = {.span = &steps->step[fill].span[0]};
    int64_t all = hd_span_elements(f.span);

    for (int64_t i = fill + 1; i < steps->nsteps && f.elements < all && !f.over;
         i++)
        take(&f, &steps->step[i], detour);
    return f.elements == all;
}

// Of fills that one kernel does all are needless, or none is left out.
static void look_at_chain(const hd_steps *steps, const hd_chain *chain,
                          hd_cuda_detour *detour)
{
    bool needless = chain->nsteps > 0;

    for (int k = 0; k < chain->nsteps; k++) {
        int i = chain->step[k]->index;

        needless = fills_with_zeros(&steps->step[i]) &&
                   is_needless(steps, i, detour) && needless;
    }
    for (int k = 0; k < chain->nsteps && needless; k++)
        detour[chain->step[k]->index].left_out = true;
}

static bool has_gradients(const hd_steps *steps)
{
    for (int64_t i = 0; i < steps->nsteps; i++)
        if (adds_gradients(&steps->step[i]))
            return true;
    return false;
}

// cuDNN alone stores what it would add: otherwise all is as it was written.
static hd_status keep_if_theirs(hd_cuda_plan *plan, hd_diag *diag)
{
    const hd_steps *steps = plan->steps;
    hd_cuda_detour *detour = plan->detour;
    bool theirs = true;

    for (int64_t i = 0; i < steps->nsteps && theirs; i++)
        if (detour[i].stores[0] || detour[i].stores[1] || detour[i].stores[2])
            HD_TRY(hd_cuda_attends_by(plan, steps->step[i].stream + 1,
                                      &steps->step[i], &detour[i], diag,
                                      &theirs));
    for (int64_t i = 0; i < steps->nsteps && !theirs; i++)
        if (adds_gradients(&steps->step[i]) ||
            fills_with_zeros(&steps->step[i]))
            detour[i] = (hd_cuda_detour){0};
    return HD_OK;
}

hd_status hd_cuda_find_zeros(hd_cuda_plan *plan, const hd_chains *chains,
                             hd_diag *diag)
{
    const hd_steps *steps = plan->steps;
    hd_chain chain;

    if (!has_gradients(steps))
        return HD_OK;
    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (chains->joined[i] || !fills_with_zeros(&steps->step[i]))
            continue;
        hd_chains_find(chains, plan->device->binding.steps, i, &chain);
        look_at_chain(steps, &chain, plan->detour);
    }
    return keep_if_theirs(plan, diag);
}
