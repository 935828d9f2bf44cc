// A tile of rows meets the keys tile by tile, in double precision: each row has
// the largest score so far, the sum of exp(score - largest), and the sum of v
// by these weights, which are scaled down when a larger score comes. Each
// result is rounded once.
#include <heddle/verify.h>

#include "runtime/cpu/attend.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ir/causal.h"
#include "ir/counts.h"
#include "ir/signature.h"
#include "runtime/cpu/attend_grad.h"
#include "runtime/cpu/rows.h"
#include "runtime/miscount.h"

enum { TILE_ROWS = 32, TILE_KEYS = 64 };

// -------------------------------------------------------------------- merge

static bool sees_nothing(double lse)
{
    return isinf(lse) && lse < 0;
}

// The logarithm of what two sums add up to.
static double lse_of_both(double x, double y)
{
    double most = x > y || isnan(x) ? x : y;

    if (sees_nothing(most) || isnan(most))
        return most;
    return most + log(exp(x - most) + exp(y - most));
}

static double share(double lse, double both)
{
    return sees_nothing(lse) ? 0 : exp(lse - both);
}

// `x` becomes the mean of both; what saw nothing is not read.
static double join_rows(double *x, double x_lse, const double *y, double y_lse,
                        int64_t n)
{
    double both = lse_of_both(x_lse, y_lse);
    double mine = share(x_lse, both), other = share(y_lse, both);

    for (int64_t i = 0; i < n; i++)
        x[i] = (sees_nothing(x_lse) ? 0 : mine * x[i]) +
               (sees_nothing(y_lse) ? 0 : other * y[i]);
    return both;
}

// ---------------------------------------------------------------- attention

typedef struct job {
    hd_cpu_rows o, lse, q, k, v;
    double scale;
    hd_sight sight;
    bool updates;
    // Memory: tiles of q, o, k, v, of scores, and a row of o.
    double *query, *mean, *key, *value, *score, *row;
    double most[TILE_ROWS], sum[TILE_ROWS];
} job;

static size_t doubles_of(const hd_step *step)
{
    const hd_span *q = &step->span[2], *v = &step->span[4];
    size_t depth = (size_t)q->extent[q->ndims - 1];
    size_t wide = (size_t)v->extent[v->ndims - 1];

    switch (hd_op_attend(step->op)) {
    case HD_ATTEND_ATTENTION:
        return (TILE_ROWS + TILE_KEYS) * (depth + wide) +
               TILE_ROWS * TILE_KEYS + wide;
    case HD_ATTEND_MERGE:
        return 2 * depth;
    case HD_ATTEND_ATTENTION_GRAD:
        return hd_cpu_attend_grad_need(step);
    case HD_ATTEND_NONE:
        break;
    }
    return 0;
}

void hd_cpu_attend_need(const hd_step *step, size_t *bytes)
{
    size_t need = doubles_of(step) * sizeof(double);

    if (*bytes < need)
        *bytes = need;
}

// The scores of row `i` of the tile with keys [from, past) of it.
static void score_row(job *j, int64_t i, int64_t from, int64_t past)
{
    const double *q = &j->query[i * j->q.extent[2]];

    for (int64_t c = from; c < past; c++) {
        const double *k = &j->key[c * j->k.extent[2]];
        double x = 0;

        for (int64_t d = 0; d < j->q.extent[2]; d++)
            x += q[d] * k[d];
        j->score[i * TILE_KEYS + c] = x * j->scale;
    }
}

static void add_keys(job *j, int64_t i, int64_t from, int64_t past)
{
    double *score = &j->score[i * TILE_KEYS];
    double *mean = &j->mean[i * j->v.extent[2]];
    double most = j->most[i], less;

    for (int64_t c = from; c < past; c++)
        most = score[c] > most || isnan(score[c]) ? score[c] : most;
    less = sees_nothing(j->most[i]) ? 0 : exp(j->most[i] - most);
    j->most[i] = most;
    j->sum[i] *= less;
    for (int64_t d = 0; d < j->v.extent[2]; d++)
        mean[d] *= less;
    for (int64_t c = from; c < past; c++) {
        double weight = exp(score[c] - most);
        const double *v = &j->value[c * j->v.extent[2]];

        j->sum[i] += weight;
        for (int64_t d = 0; d < j->v.extent[2]; d++)
            mean[d] += weight * v[d];
    }
}

// Keys [first, first + n) and rows [row, row + rows).
static void meet_tile(job *j, int64_t row, int64_t rows, int64_t first,
                      int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t from, past;

        hd_sight_keys(&j->sight, row + i, 0, &from, &past);
        from = from > first ? from - first : 0;
        past = past < first + n ? past - first : n;
        if (from >= past)
            continue;
        score_row(j, i, from, past);
        add_keys(j, i, from, past);
    }
}

static void finish_row(job *j, int64_t head, int64_t row, int64_t i)
{
    double *mean = &j->mean[i * j->v.extent[2]];
    bool none = sees_nothing(j->most[i]) && j->sum[i] <= 0;
    double lse = none ? -INFINITY : j->most[i] + log(j->sum[i]);

    for (int64_t d = 0; d < j->v.extent[2]; d++)
        mean[d] = none ? 0 : mean[d] / j->sum[i];
    if (j->updates) {
        hd_cpu_rows_load(&j->o, head, row, j->row);
        lse = join_rows(mean, lse, j->row,
                        hd_cpu_rows_number(&j->lse, head, row), j->v.extent[2]);
    }
    hd_cpu_rows_store(&j->o, head, row, mean);
    hd_cpu_rows_put_number(&j->lse, head, row, lse);
}

static void attend_rows(job *j, int64_t head, int64_t row, int64_t rows)
{
    int64_t shared = head / (j->q.extent[0] / j->k.extent[0]);

    for (int64_t i = 0; i < rows; i++) {
        hd_cpu_rows_load(&j->q, head, row + i, &j->query[i * j->q.extent[2]]);
        j->most[i] = -INFINITY;
        j->sum[i] = 0;
    }
    memset(j->mean, 0, sizeof *j->mean * (size_t)(rows * j->v.extent[2]));
    for (int64_t first = 0; first < j->k.extent[1]; first += TILE_KEYS) {
        int64_t n = j->k.extent[1] - first, from, past;

        n = n < TILE_KEYS ? n : TILE_KEYS;
        hd_sight_tile(&j->sight, row, rows, &from, &past);
        if (first + n <= from || first >= past)
            continue; // no row sees any
        for (int64_t c = 0; c < n; c++) {
            hd_cpu_rows_load(&j->k, shared, first + c,
                             &j->key[c * j->k.extent[2]]);
            hd_cpu_rows_load(&j->v, shared, first + c,
                             &j->value[c * j->v.extent[2]]);
        }
        meet_tile(j, row, rows, first, n);
    }
    for (int64_t i = 0; i < rows; i++)
        finish_row(j, head, row + i, i);
}

static void attend(job *j)
{
    for (int64_t head = 0; head < j->q.extent[0]; head++)
        for (int64_t row = 0; row < j->q.extent[1]; row += TILE_ROWS) {
            int64_t rows = j->q.extent[1] - row;

            attend_rows(j, head, row, rows < TILE_ROWS ? rows : TILE_ROWS);
        }
}

static void lay_out(job *j, double *memory)
{
    j->query = memory;
    j->mean = j->query + TILE_ROWS * j->q.extent[2];
    j->key = j->mean + TILE_ROWS * j->v.extent[2];
    j->value = j->key + TILE_KEYS * j->k.extent[2];
    j->score = j->value + TILE_KEYS * j->v.extent[2];
    j->row = j->score + TILE_ROWS * TILE_KEYS;
}

static void merge(const hd_cpu_rows view[HD_ATTEND_VIEWS], double *memory)
{
    const hd_cpu_rows *o = &view[0];
    double *x = memory, *y = memory + o->extent[2];

    for (int64_t head = 0; head < o->extent[0]; head++)
        for (int64_t row = 0; row < o->extent[1]; row++) {
            double lse;

            hd_cpu_rows_load(&view[2], head, row, x);
            hd_cpu_rows_load(&view[4], head, row, y);
            lse = join_rows(x, hd_cpu_rows_number(&view[3], head, row), y,
                            hd_cpu_rows_number(&view[5], head, row),
                            o->extent[2]);
            hd_cpu_rows_store(o, head, row, x);
            hd_cpu_rows_put_number(&view[1], head, row, lse);
        }
}

static void attend_batch(const hd_step *step, void *const *base,
                         const hd_cpu_rows view[HD_ATTEND_VIEWS],
                         const hd_sight *sight, double *memory)
{
    job j = {.o = view[0],
             .lse = view[1],
             .q = view[2],
             .k = view[3],
             .v = view[4],
             .scale = hd_cpu_rows_scale(step, base),
             .sight = *sight,
             .updates = hd_op_access(step->op, 0) == HD_ACCESS_UPDATE};

    j.sight.keys = j.k.extent[1]; // no more than are counted
    lay_out(&j, memory);
    attend(&j);
}

// Of one element of the batch, whose rows see keys as `sight` says.
static void compute(const hd_step *step, void *const *base,
                    const hd_cpu_rows view[HD_ATTEND_VIEWS],
                    const hd_sight *sight, double *memory)
{
    switch (hd_op_attend(step->op)) {
    case HD_ATTEND_ATTENTION:
        attend_batch(step, base, view, sight, memory);
        break;
    case HD_ATTEND_MERGE:
        merge(view, memory);
        break;
    case HD_ATTEND_ATTENTION_GRAD:
        hd_cpu_attend_grad(step, base, view, sight, memory);
        break;
    case HD_ATTEND_NONE:
        break;
    }
}

// ------------------------------------------------------------------- counts

// Notes the first count that does not fit, of those of the step from number
// `first` on.
static void note_counts(hd_cpu_scratch *scratch, const hd_row_counts *counts,
                        int64_t first, void *const *base)
{
    for (int64_t i = 0; i < counts->n; i++) {
        const int32_t *count = base[counts->view];

        hd_miscount_clamp(&scratch->miscount, first + i,
                          count[hd_row_counts_at(counts, i)], counts->room);
    }
}

static int64_t rows_counted(const hd_row_counts *counts, int64_t b,
                            void *const *base)
{
    const int32_t *count;
    hd_miscount noted = {0};

    if (counts->view < 0)
        return counts->room;
    count = base[counts->view];
    return hd_miscount_clamp(
        &noted, b,
        count[hd_row_counts_at(counts, hd_row_counts_number(counts, b))],
        counts->room);
}

// A row that is not counted is one that sees no key: zeros, and -infinity of a
// logarithm.
static void clear_rows(const hd_cpu_rows *rows, int64_t from, bool lse)
{
    const double nothing = lse ? -INFINITY : 0;

    for (int64_t head = 0; head < rows->extent[0]; head++)
        for (int64_t row = from; row < rows->extent[1]; row++)
            hd_cpu_rows_fill(rows, head, row, nothing);
}

// What results have behind the rows that are counted stays as it was where the
// step accumulates.
static void keep_counted(const hd_step *step, int64_t rows, int64_t keys,
                         hd_cpu_rows view[HD_ATTEND_VIEWS])
{
    for (int i = 0; i < step->op->noutputs + step->op->ninputs; i++) {
        int64_t n = hd_op_has_keys(step->op, i) ? keys : rows;

        if (hd_op_access(step->op, i) == HD_ACCESS_WRITE)
            clear_rows(&view[i], n, i == hd_op_lse(step->op));
        view[i].extent[1] = n;
    }
}

// ---------------------------------------------------------------- sequences

// How many rows the sequence is taken to have whose count is number `i`.
static int64_t rows_of_sequence(const hd_step *step,
                                const hd_sequences *sequences, int64_t i,
                                int64_t left, void *const *base,
                                hd_miscount *miscount)
{
    const int32_t *count = base[hd_op_key_view(step->op, HD_KEY_GROUPS)];

    return hd_miscount_clamp(miscount, i, count[hd_sequences_at(sequences, i)],
                             left);
}

static void note_sequences(hd_cpu_scratch *scratch, const hd_step *step,
                           const hd_sequences *sequences, void *const *base)
{
    int64_t left = 0;

    for (int64_t i = 0; i < sequences->n; i++) {
        if (i % sequences->each == 0)
            left = sequences->room;
        left -= rows_of_sequence(step, sequences, i, left, base,
                                 &scratch->miscount);
    }
}

// Those of `n` rows from number `first` on whose numbers are less than `end`.
static int64_t rows_ahead(int64_t end, int64_t first, int64_t n)
{
    return end <= first ? 0 : end - first < n ? end - first : n;
}

// What a step has of a sequence with the numbers [from, past): some of its rows
// and some of its keys, which lie among each other as `at` says then.
static void take_sequence(const hd_step *step, const hd_sequences *sequences,
                          const hd_cpu_rows view[HD_ATTEND_VIEWS], int64_t from,
                          int64_t past, hd_cpu_rows part[HD_ATTEND_VIEWS],
                          int32_t *at)
{
    int64_t apart = 0;

    for (int v = 0; v < step->op->noutputs + step->op->ninputs; v++) {
        bool of_keys = hd_op_has_keys(step->op, v);
        int64_t number = of_keys ? sequences->key : sequences->row;
        int64_t n = view[v].extent[1], first = rows_ahead(from, number, n);

        part[v] = hd_cpu_rows_part(&view[v], first,
                                   rows_ahead(past, number, n) - first);
        if (v == step->op->noutputs)
            apart += first;
        else if (v == step->op->noutputs + 1)
            apart -= first;
    }
    *at = step->causal == HD_SEES_ALL ? HD_SEES_ALL
                                      : hd_causal_of(step->causal + apart);
}

// Each sequence is done as if it were all that there is. Rows of none see no
// key.
static void compute_sequences(const hd_step *step,
                              const hd_sequences *sequences, int64_t b,
                              void *const *base,
                              const hd_cpu_rows view[HD_ATTEND_VIEWS],
                              double *memory)
{
    int64_t first = hd_sequences_number(sequences, b), from = 0;
    hd_cpu_rows part[HD_ATTEND_VIEWS];
    hd_sight sight = hd_sight_of(step);
    hd_miscount noted = {0};
    int32_t at;

    sight.causal = &at;
    for (int64_t i = first; i < first + sequences->each; i++) {
        int64_t rows = rows_of_sequence(step, sequences, i,
                                        sequences->room - from, base, &noted);

        take_sequence(step, sequences, view, from, from + rows, part, &at);
        compute(step, base, part, &sight, memory);
        from += rows;
    }
    for (int v = 0; v < step->op->noutputs; v++)
        if (hd_op_access(step->op, v) == HD_ACCESS_WRITE)
            clear_rows(&view[v],
                       rows_ahead(from,
                                  hd_op_has_keys(step->op, v) ? sequences->key
                                                              : sequences->row,
                                  view[v].extent[1]),
                       v == hd_op_lse(step->op));
}

// ------------------------------------------------------------------- entry

void hd_cpu_attend(hd_cpu_scratch *scratch, const hd_step *step,
                   void *const *base)
{
    hd_row_counts rows = hd_row_counts_of(step, HD_KEY_COUNTS);
    hd_row_counts keys = hd_row_counts_of(step, HD_KEY_COUNTS_OF_KEYS);
    hd_sequences sequences = hd_sequences_of(step);
    hd_sight sight = {0};
    hd_cpu_rows view[HD_ATTEND_VIEWS];
    hd_span all = step->span[0];

    // hd_cpu_attend_need has seen the step.
    assert(doubles_of(step) * sizeof(double) <= scratch->bytes);
    if (hd_op_meets_keys(step->op))
        sight = hd_sight_of(step);
    note_counts(scratch, &rows, 0, base);
    note_counts(scratch, &keys, rows.n, base);
    note_sequences(scratch, step, &sequences, base);
    all.ndims = hd_op_batch(step->op, 0, all.ndims);
    for (int64_t b = 0; b < hd_span_elements(&all); b++) {
        for (int i = 0; i < step->op->noutputs + step->op->ninputs; i++)
            view[i] = hd_cpu_rows_of(step, i, base[i], b);
        if (hd_op_has_counts(step->op))
            keep_counted(step, rows_counted(&rows, b, base),
                         rows_counted(&keys, b, base), view);
        if (sequences.counts != NULL)
            compute_sequences(step, &sequences, b, base, view, scratch->memory);
        else
            compute(step, base, view, &sight, scratch->memory);
    }
}
