// See zeros.h.
#include "ir/zeros.h"

#include <stdlib.h>

#include "base/array.h"

enum { TOUCHES_MOST = 1024 }; // that are looked at behind a fill

// A view of a step, of a buffer that gradients are added to.
typedef struct touch {
    const hd_op *op;
    int32_t step, view;
    hd_span span;
} touch;

typedef struct finder {
    hd_diag *diag;
    bool *added;  // owned, by buffer id
    touch *touch; // owned, as they are issued
    int64_t ntouches, room;
    hd_zeros zeros;
} finder;

static bool is_fill(const touch *t)
{
    const hd_key *value = hd_op_key(t->op, HD_KEY_VALUE);

    return t->op->code == HD_OP_FILL && value->view < 0 && value->number == 0 &&
           !hd_op_has_counts(t->op) && hd_span_is_dense(&t->span);
}

// What has counts, or sequences, leaves as it was what is not counted.
bool hd_zeros_may_be_stored(const hd_op *op)
{
    return hd_op_attend(op) == HD_ATTEND_ATTENTION_GRAD &&
           hd_op_access(op, 0) == HD_ACCESS_UPDATE && !hd_op_has_counts(op) &&
           !hd_op_has_sequences(op);
}

// What gradients are added to; whether there are any.
static bool find_added(finder *f, const hd_block *block)
{
    bool any = false;

    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        any |= find_added(f, &s->body);
        any |= find_added(f, &s->otherwise);
        if (s->kind != HD_STMT_OP || !hd_zeros_may_be_stored(s->op))
            continue;
        any = true;
        for (int i = 0; i < s->op->noutputs; i++)
            f->added[hd_buffer_root(s->op->view[i].buffer)->id] = true;
    }
    return any;
}

static hd_status note_touches(void *context, const hd_step *steps, int n)
{
    finder *f = context;

    for (int i = 0; i < n && ++f->zeros.nsteps <= HD_ZEROS_MOST; i++)
        for (int k = 0; k < steps[i].op->nviews; k++) {
            const hd_span *span = &steps[i].span[k];

            if (!f->added[span->buffer->id])
                continue;
            HD_TRY(hd_grow((void **)&f->touch, &f->room, f->ntouches + 1,
                           sizeof *f->touch, f->diag));
            f->touch[f->ntouches++] =
                (touch){steps[i].op, steps[i].index, k, *span};
        }
    return HD_OK;
}

static bool is_piece(const hd_span *all, const hd_span *span)
{
    return span->buffer == all->buffer && span->offset >= all->offset &&
           hd_span_last(span) <= hd_span_last(all);
}

// Whether a gradient is the first to touch some of the fill, which it is added
// to.
static bool is_stored(const touch *fill, const touch *t)
{
    if (!hd_zeros_may_be_stored(t->op) || t->view >= t->op->noutputs ||
        !is_piece(&fill->span, &t->span))
        return false;
    for (const touch *u = fill + 1; u < t; u++)
        if (hd_span_overlaps(&u->span, &t->span))
            return false;
    return true;
}

// Until somebody has touched all of it.
static void look_behind(finder *f, const touch *fill)
{
    const touch *past = f->touch + f->ntouches;
    int64_t left = hd_span_elements(&fill->span);
    bool over = false;

    if (past - fill > TOUCHES_MOST)
        past = fill + TOUCHES_MOST;
    for (const touch *t = fill + 1; t < past && left > 0 && !over; t++) {
        over = is_piece(&t->span, &fill->span);
        if (!is_stored(fill, t))
            continue;
        f->zeros.of[t->step] |= (uint8_t)(1 << t->view);
        left -= hd_span_elements(&t->span);
    }
    if (left == 0)
        f->zeros.of[fill->step] = HD_ZEROS_NO_STEP;
}

static hd_status find(finder *f, const hd_module *module, int64_t rank)
{
    HD_TRY(hd_clear_array(module->nbuffers, 1, f->diag, (void **)&f->added));
    if (!find_added(f, &module->body))
        return HD_OK;
    HD_TRY(hd_walk_as_written(module, rank, f->diag, note_touches, f));
    if (f->zeros.nsteps > HD_ZEROS_MOST)
        return HD_OK;
    HD_TRY(hd_clear_array(f->zeros.nsteps, 1, f->diag, (void **)&f->zeros.of));
    for (int64_t i = 0; i < f->ntouches; i++)
        if (is_fill(&f->touch[i]))
            look_behind(f, &f->touch[i]);
    return HD_OK;
}

hd_status hd_zeros_find(const hd_module *module, int64_t rank, hd_diag *diag,
                        hd_zeros *out)
{
    finder f = {.diag = diag};
    hd_status status = HD_OK;

    // Runs of all sizes have the same steps, and those of a tensor program are
    // its statements.
    if (module->nsizes == 0 && module->stage != HD_STAGE_TENSOR)
        status = find(&f, module, rank);
    free(f.added);
    free(f.touch);
    if (f.zeros.of == NULL)
        f.zeros.nsteps = 0;
    *out = f.zeros;
    return status;
}

void hd_zeros_free(hd_zeros *zeros)
{
    free(zeros->of);
    *zeros = (hd_zeros){0};
}
