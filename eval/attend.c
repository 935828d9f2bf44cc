// See attend.h.
#include "eval/attend.h"

#include "ir/counts.h"
#include "ir/signature.h"

hd_attention hd_attention_of(const hd_step *step)
{
    int q = step->op->noutputs;
    const hd_span *k = &step->span[q + 1], *v = k + 1;
    int64_t blocks =
        hd_op_has_blocks(step->op, q + 1) ? k->extent[k->ndims - 4] : 1;

    return (hd_attention){
        .step = step,
        .q = q,
        .depth = k->extent[k->ndims - 1],
        .wide = v->extent[v->ndims - 1],
        .nkeys = blocks * k->extent[k->ndims - 2],
        .nblocks = blocks,
        .sight = hd_sight_of(step),
        .updates = hd_op_access(step->op, 0) == HD_ACCESS_UPDATE,
    };
}

hd_span hd_attention_counts(const hd_step *step, int64_t b)
{
    const hd_span *out = &step->span[0];
    hd_span counts = step->span[hd_op_key_view(step->op, HD_KEY_GROUPS)];
    int own = counts.ndims - 1;

    for (int d = hd_op_batch(step->op, 0, out->ndims); d-- > 0;
         b /= out->extent[d])
        if (d < own)
            counts = hd_span_slice(&counts, d, b % out->extent[d]);
    return counts;
}

static void take_views(hd_attention *a, int64_t b)
{
    const hd_op *op = a->step->op;

    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        hd_span *view = &a->view[i];

        *view = hd_batch_span(a->step, i, b);
        if (!hd_op_has_blocks(op, i))
            continue;
        a->apart[i] = view->stride[0];
        *view = hd_span_slice(view, 0, 0);
    }
    // Of a merge, which may be of none, each has its own.
    if (hd_op_meets_keys(op))
        a->group = a->view[a->q].extent[0] / a->view[a->q + 1].extent[0];
}

// How many of `all` rows, or keys of block `block`, an element of the batch
// has.
static int64_t count_of(const hd_row_counts *counts, const hd_algebra *algebra,
                        const void *memory, int64_t all, int64_t b,
                        int64_t block)
{
    int64_t number;

    if (counts->view < 0)
        return all;
    number = hd_row_counts_number(counts, b) + (counts->blocks > 1 ? block : 0);
    return algebra->count(memory, hd_row_counts_at(counts, number), all);
}

static void count_all(hd_attention *a, const hd_algebra *algebra,
                      const void *memory, int64_t b)
{
    hd_row_counts rows = hd_row_counts_of(a->step, HD_KEY_COUNTS);
    hd_row_counts keys = hd_row_counts_of(a->step, HD_KEY_COUNTS_OF_KEYS);
    int64_t all = a->view[a->q + 1].extent[1];

    a->rows = count_of(&rows, algebra, memory, a->view[a->q].extent[1], b, 0);
    for (int64_t block = 0; block < a->nblocks; block++)
        a->keys[block] = count_of(&keys, algebra, memory, all, b, block);
}

// A sequence's rows are its keys, and lie among these as they lie among all:
// a row sees keys with the numbers of its own sequence.
void hd_attention_sees(const hd_attention *a, int64_t row, int64_t block,
                       int64_t *from, int64_t *past)
{
    *from = *past = 0;
    if (!hd_attention_has_row(a, row))
        return;
    hd_sight_keys(&a->sight, row, block, from, past);
    if (a->sequence != NULL)
        hd_sight_within(&a->sight, a->sequence[row].from, a->sequence[row].past,
                        block, from, past);
    if (*past > a->keys[block])
        *past = a->keys[block];
}

// Whether results are left as they are where a row is not counted. What is
// added up of blocks is rounded in all rows.
static bool leaves_row(const hd_attention *a, int64_t row)
{
    return a->updates && !hd_attention_has_row(a, row) &&
           !hd_op_has_blocks(a->step->op, a->q + 1);
}

static void do_rows(const hd_attention *a, const hd_attend_rows *attend,
                    void *own)
{
    const hd_span *out = &a->view[0];

    for (int64_t head = 0; head < out->extent[0]; head++)
        for (int64_t row = 0; row < out->extent[1]; row++)
            if (!leaves_row(a, row))
                attend->row(own, head, row);
}

static void meet_keys(const hd_attention *a, const hd_attend_rows *attend,
                      void *own, int64_t head, int64_t row)
{
    int64_t from, past;

    if (leaves_row(a, row))
        return;
    if (attend->begin_row(own, head, row))
        for (int64_t block = 0; block < a->nblocks; block++) {
            hd_attention_sees(a, row, block, &from, &past);
            for (int64_t key = from; key < past; key++)
                attend->meet(own, block, key);
        }
    attend->end_row(own, head, row);
}

static bool has_key(const hd_attention *a, int64_t block, int64_t key)
{
    return key < a->keys[block] &&
           (a->sequence == NULL ||
            hd_sight_key(&a->sight, block, key) < a->together);
}

static void do_gradients(const hd_attention *a, const hd_attend_rows *attend,
                         void *own)
{
    const hd_span *q = &a->view[a->q], *k = q + 1;

    for (int64_t shared = 0; shared < k->extent[0]; shared++) {
        attend->begin_keys(own, shared);
        for (int64_t head = shared * a->group; head < (shared + 1) * a->group;
             head++) {
            for (int64_t row = 0; row < q->extent[1]; row++)
                meet_keys(a, attend, own, head, row);
            if (attend->end_head != NULL)
                attend->end_head(own);
        }
        for (int64_t block = 0; block < a->nblocks; block++)
            for (int64_t key = 0; key < k->extent[1]; key++)
                if (!a->updates || has_key(a, block, key))
                    attend->end_key(own, shared, block, key);
    }
}

void hd_attend_all(hd_attention *a, const hd_algebra *algebra, void *memory,
                   const hd_attend_rows *attend, void *own)
{
    int64_t n = hd_batch_elements(a->step);

    for (int64_t b = 0; b < n; b++) {
        take_views(a, b);
        count_all(a, algebra, memory, b);
        if (attend->begin != NULL)
            attend->begin(own, b);
        if (attend->row != NULL)
            do_rows(a, attend, own);
        else
            do_gradients(a, attend, own);
    }
}
