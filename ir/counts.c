#include "ir/counts.h"
#include "ir/signature.h"

#include <assert.h>
#include <string.h>

// ------------------------------------------------------------------ the key

static void drop_keys(hd_op *op)
{
    while (op->nkeys > 0 &&
           hd_key_info_get(op->key[op->nkeys - 1].code)->value == HD_VALUE_BY) {
        assert(op->key[op->nkeys - 1].view == op->nviews - 1);
        op->nkeys--;
        op->nviews--;
    }
    assert(!hd_op_has_counts(op) && "the last keys");
}

// The indices that a view has of the first dimensions are those of the counts.
static hd_view counts_of(const hd_view *view)
{
    hd_view counts = *view;

    counts.buffer = view->buffer->by;
    if (counts.nindex > counts.buffer->type.ndims)
        counts.nindex = counts.buffer->type.ndims;
    return counts;
}

static void add_key(hd_module *module, hd_op *op, hd_key_code code, int counted)
{
    hd_view *view;
    hd_key *key;

    if (counted < 0)
        return;
    view = hd_new_array(module->arena, hd_view, op->nviews + 1);
    key = hd_new_array(module->arena, hd_key, op->nkeys + 1);
    memcpy(view, op->view, sizeof *view * (size_t)op->nviews);
    if (op->nkeys > 0)
        memcpy(key, op->key, sizeof *key * (size_t)op->nkeys);
    view[op->nviews] = counts_of(&view[counted]);
    key[op->nkeys++] =
        (hd_key){code, view[counted].loc, HD_EXPR_NONE, .view = op->nviews++};
    op->view = view;
    op->key = key;
}

void hd_op_add_counts(hd_module *module, hd_op *op)
{
    drop_keys(op);
    add_key(module, op, HD_KEY_COUNTS, hd_op_counted(op));
    add_key(module, op, HD_KEY_COUNTS_OF_KEYS, hd_op_counted_keys(op));
}

static void add_to_block(hd_module *module, const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        if (s->kind == HD_STMT_OP)
            hd_op_add_counts(module, s->op);
        add_to_block(module, &s->body);
        add_to_block(module, &s->otherwise);
    }
}

void hd_module_add_counts(hd_module *module)
{
    add_to_block(module, &module->body);
}

// -------------------------------------------------------------------- slabs

hd_slabs hd_slabs_of(const hd_step *step)
{
    hd_slabs slabs = {.step = step,
                      .view = hd_op_key_view(step->op, HD_KEY_COUNTS),
                      .counts = 1};
    const hd_span *counts = &step->span[slabs.view];

    hd_space_of_step(step, &slabs.space);
    slabs.first = *counts;
    slabs.room = slabs.space.extent[slabs.space.counted];
    slabs.folded = hd_space_folded(&slabs.space, slabs.view);
    if (slabs.folded >= 0) {
        slabs.counts = counts->extent[slabs.folded];
        slabs.apart = counts->stride[slabs.folded];
        slabs.first.extent[slabs.folded] = 1;
    }
    slabs.n = hd_span_elements(&slabs.first);
    return slabs;
}

int64_t hd_slab_count(const hd_slabs *slabs, int64_t i)
{
    return slabs->first.offset +
           hd_span_offset(&slabs->first, 0, slabs->first.ndims, i);
}

// Of dimension `d` of the space indices [from, end) alone.
static void narrow(const hd_slabs *slabs, int d, int64_t from, int64_t end,
                   hd_span *span)
{
    for (int v = 0; v < slabs->step->op->nviews; v++) {
        int own = slabs->space.dim[v][d];

        if (own == HD_REPEATED)
            continue;
        span[v].offset += from * span[v].stride[own];
        span[v].extent[own] = end - from;
    }
}

void hd_slab_spans(const hd_slabs *slabs, int64_t i, int64_t from, int64_t end,
                   hd_span out[HD_MAX_VIEWS])
{
    const hd_space *space = &slabs->space;
    const hd_span *first = &slabs->first;

    memcpy(out, slabs->step->span,
           sizeof *out * (size_t)slabs->step->op->nviews);
    for (int own = first->ndims - 1; own >= 0; own--) {
        int64_t at = i % first->extent[own];

        for (int d = 0; d < space->nparallel; d++)
            if (space->dim[slabs->view][d] == own)
                narrow(slabs, d, at, at + 1, out);
        i /= first->extent[own];
    }
    narrow(slabs, space->counted, from, end, out);
}

// `accumulate` and `keep` leave the result as it was; what is kept beside it is
// written whole.
bool hd_slabs_clear(const hd_slabs *slabs, int v)
{
    return slabs->space.counted < slabs->space.nparallel &&
           hd_op_access(slabs->step->op, v) == HD_ACCESS_WRITE;
}

// --------------------------------------------------------------- attention

hd_row_counts hd_row_counts_of(const hd_step *step, hd_key_code code)
{
    int of = step->op->noutputs + (code == HD_KEY_COUNTS_OF_KEYS);
    const hd_span *span = &step->span[of], *by;
    int batch = hd_op_batch(step->op, of, span->ndims);
    bool blocks = hd_op_has_blocks(step->op, of);
    hd_row_counts counts = {.step = step,
                            .view = hd_op_key_view(step->op, code),
                            .room = span->extent[batch + blocks + 1],
                            .blocks = 1};

    if (counts.view < 0)
        return counts;
    by = &step->span[counts.view];
    if (blocks && by->ndims > batch)
        counts.blocks = by->extent[batch];
    counts.n = hd_span_elements(by);
    hd_space_of_step(step, &counts.space);
    return counts;
}

int64_t hd_row_counts_number(const hd_row_counts *counts, int64_t b)
{
    const hd_space *space = &counts->space;
    int batch = hd_op_batch(counts->step->op, 0, space->nparallel);
    int64_t number = 0, each = counts->blocks;

    for (int d = batch - 1; d >= 0; d--) {
        if (space->dim[counts->view][d] != HD_REPEATED) {
            number += b % space->extent[d] * each;
            each *= space->extent[d];
        }
        b /= space->extent[d];
    }
    return number;
}

// Which element of its buffer number `i` of a view is.
static int64_t element_of(const hd_span *span, int64_t i)
{
    return span->offset + hd_span_offset(span, 0, span->ndims, i);
}

int64_t hd_row_counts_at(const hd_row_counts *counts, int64_t i)
{
    return element_of(&counts->step->span[counts->view], i);
}

// ---------------------------------------------------------------- sequences

hd_sequences hd_sequences_of(const hd_step *step)
{
    const hd_span *out = &step->span[0];
    hd_among among = hd_step_among(step);
    hd_sequences sequences = {
        .room = among.room, .row = among.row, .key = among.key, .beside = 1};

    if (!hd_op_has_sequences(step->op))
        return sequences;
    sequences.counts = &step->span[hd_op_key_view(step->op, HD_KEY_GROUPS)];
    sequences.n = hd_span_elements(sequences.counts);
    sequences.each = sequences.counts->extent[sequences.counts->ndims - 1];
    for (int d = sequences.counts->ndims - 1;
         d < hd_op_batch(step->op, 0, out->ndims); d++)
        sequences.beside *= out->extent[d];
    return sequences;
}

int64_t hd_sequences_number(const hd_sequences *sequences, int64_t b)
{
    return b / sequences->beside * sequences->each;
}

int64_t hd_sequences_at(const hd_sequences *sequences, int64_t i)
{
    return element_of(sequences->counts, i);
}

// ---------------------------------------------------------------- transfers

int64_t hd_rows_piece(const hd_module *module, const hd_op *op, int rank)
{
    return hd_op_is_led(op, hd_op_counted(op))
               ? hd_mesh_coord(module, rank, op->axis)
               : -1;
}

hd_rows hd_rows_of(const hd_step *step, int64_t piece)
{
    const hd_op *op = step->op;
    int v = hd_op_counted(op);
    const hd_view *view = &op->view[v];
    const hd_span *span = &step->span[v];
    hd_rows rows = {
        .counts = &step->span[hd_op_key_view(op, HD_KEY_COUNTS)],
        .dim = hd_view_kept_ahead(view, view->buffer->counted),
        .n = 1,
        .row = 1,
    };
    int64_t all = 1, counts = hd_span_elements(rows.counts);

    rows.room = span->extent[rows.dim];
    for (int d = 0; d < rows.dim; d++)
        all *= span->extent[d];
    for (int d = rows.dim + 1; d < span->ndims; d++)
        rows.row *= span->extent[d];
    rows.n = piece >= 0 && all > 0 ? all / span->extent[0] : all;
    rows.first = piece >= 0 ? piece * rows.n : 0;
    rows.each = counts > 0 ? all / counts : 1;
    return rows;
}

int64_t hd_rows_number(const hd_rows *rows, int64_t i)
{
    return (rows->first + i) / rows->each;
}

int64_t hd_rows_count(const hd_rows *rows, int64_t i)
{
    return rows->counts->offset + hd_span_offset(rows->counts, 0,
                                                 rows->counts->ndims,
                                                 hd_rows_number(rows, i));
}
