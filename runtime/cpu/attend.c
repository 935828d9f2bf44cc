// A tile of rows meets the keys tile by tile, in double precision: each row has
// the largest score so far, the sum of exp(score - largest), and the sum of v
// by these weights, which are scaled down when a larger score comes. Each
// result is rounded once.
#include <heddle/verify.h>

#include "runtime/cpu/attend.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "runtime/cpu/matmul.h"

enum { TILE_ROWS = 32, TILE_KEYS = 64, CHUNK = 256 };

// What a view has of one element of the batch: [heads, rows, columns].
typedef struct block {
    char *at;
    hd_dtype dtype;
    size_t size; // bytes of an element
    int64_t extent[3], stride[3];
} block;

static block block_of(const hd_step *step, int view, void *base, int64_t number)
{
    const hd_span *span = &step->span[view], *out = &step->span[0];
    int lead = hd_op_batch(step->op, 0, out->ndims);
    int own = hd_op_batch(step->op, view, span->ndims);
    int64_t offset = span->offset;
    block b = {.dtype = span->buffer->type.dtype,
               .size = hd_dtype_size(span->buffer->type.dtype),
               .extent = {1, 1, 1}};

    for (int d = lead - 1; d >= 0; d--) {
        int mine = d - (lead - own);

        if (mine >= 0 && span->extent[mine] > 1)
            offset += number % out->extent[d] * span->stride[mine];
        number /= out->extent[d];
    }
    for (int d = own; d < span->ndims; d++) {
        b.extent[d - own] = span->extent[d];
        b.stride[d - own] = span->stride[d];
    }
    b.at = (char *)base + offset * (int64_t)b.size;
    return b;
}

static char *row_at(const block *b, int64_t head, int64_t row)
{
    return b->at +
           (head * b->stride[0] + row * b->stride[1]) * (int64_t)b->size;
}

static void load_row(const block *b, int64_t head, int64_t row, double *to)
{
    const char *from = row_at(b, head, row);
    char dense[CHUNK * sizeof(double)];
    int64_t n = b->extent[2], step = b->stride[2] * (int64_t)b->size;

    if (b->stride[2] == 1) {
        hd_dtype_load(b->dtype, from, (size_t)n, to);
        return;
    }
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;

        for (int64_t i = 0; i < m; i++)
            memcpy(dense + (size_t)i * b->size, from + (at + i) * step,
                   b->size);
        hd_dtype_load(b->dtype, dense, (size_t)m, to + at);
    }
}

static void store_row(const block *b, int64_t head, int64_t row,
                      const double *from)
{
    char *to = row_at(b, head, row);
    int64_t n = b->extent[2], step = b->stride[2] * (int64_t)b->size;

    if (b->stride[2] == 1) {
        hd_dtype_store(b->dtype, from, (size_t)n, to);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        hd_dtype_store(b->dtype, &from[i], 1, to + i * step);
}

static double load_number(const block *b, int64_t head, int64_t row)
{
    double x;

    hd_dtype_load(b->dtype, row_at(b, head, row), 1, &x);
    return x;
}

static void store_number(const block *b, int64_t head, int64_t row, double x)
{
    hd_dtype_store(b->dtype, &x, 1, row_at(b, head, row));
}

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
    block o, lse, q, k, v;
    double scale;
    int64_t causal, window; // 0: no window
    bool updates;
    // Memory: tiles of q, o, k, v, of scores, and a row of o.
    double *query, *mean, *key, *value, *score, *row;
    double most[TILE_ROWS], sum[TILE_ROWS];
} job;

static size_t doubles_of(const hd_step *step)
{
    const hd_span *q = &step->span[2], *v = &step->span[4];
    size_t depth = 0, wide;

    if (hd_op_attend(step->op) == HD_ATTEND_MERGE)
        return 2 * (size_t)step->span[0].extent[step->span[0].ndims - 1];
    depth = (size_t)q->extent[q->ndims - 1];
    wide = (size_t)v->extent[v->ndims - 1];
    return (TILE_ROWS + TILE_KEYS) * (depth + wide) + TILE_ROWS * TILE_KEYS +
           wide;
}

void hd_cpu_attend_need(const hd_step *step, size_t *bytes)
{
    size_t need = doubles_of(step) * sizeof(double);

    if (*bytes < need)
        *bytes = need;
}

// Row `row` sees keys [from, past), of all that there are.
static void see_keys(const job *j, int64_t row, int64_t *from, int64_t *past)
{
    int64_t end = row + j->causal + 1;

    *from = 0;
    *past = j->k.extent[1];
    if (j->causal == HD_SEES_ALL)
        return;
    if (end < *past)
        *past = end;
    if (j->window > 0 && end > j->window)
        *from = end - j->window;
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

        see_keys(j, row + i, &from, &past);
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
        load_row(&j->o, head, row, j->row);
        lse = join_rows(mean, lse, j->row, load_number(&j->lse, head, row),
                        j->v.extent[2]);
    }
    store_row(&j->o, head, row, mean);
    store_number(&j->lse, head, row, lse);
}

static void attend_rows(job *j, int64_t head, int64_t row, int64_t rows)
{
    int64_t shared = head / (j->q.extent[0] / j->k.extent[0]);

    for (int64_t i = 0; i < rows; i++) {
        load_row(&j->q, head, row + i, &j->query[i * j->q.extent[2]]);
        j->most[i] = -INFINITY;
        j->sum[i] = 0;
    }
    memset(j->mean, 0, sizeof *j->mean * (size_t)(rows * j->v.extent[2]));
    for (int64_t first = 0; first < j->k.extent[1]; first += TILE_KEYS) {
        int64_t n = j->k.extent[1] - first, from, past, unused;

        n = n < TILE_KEYS ? n : TILE_KEYS;
        see_keys(j, row, &from, &unused);
        see_keys(j, row + rows - 1, &unused, &past);
        if (first + n <= from || first >= past)
            continue; // no row sees any
        for (int64_t c = 0; c < n; c++) {
            load_row(&j->k, shared, first + c, &j->key[c * j->k.extent[2]]);
            load_row(&j->v, shared, first + c, &j->value[c * j->v.extent[2]]);
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

static void merge(const block view[HD_ATTEND_VIEWS], double *memory)
{
    const block *o = &view[0];
    double *x = memory, *y = memory + o->extent[2];

    for (int64_t head = 0; head < o->extent[0]; head++)
        for (int64_t row = 0; row < o->extent[1]; row++) {
            double lse;

            load_row(&view[2], head, row, x);
            load_row(&view[4], head, row, y);
            lse = join_rows(x, load_number(&view[3], head, row), y,
                            load_number(&view[5], head, row), o->extent[2]);
            store_row(o, head, row, x);
            store_number(&view[1], head, row, lse);
        }
}

void hd_cpu_attend(hd_cpu_scratch *scratch, const hd_step *step,
                   void *const *base)
{
    const hd_key *window = hd_op_key(step->op, HD_KEY_WINDOW);
    hd_span all = step->span[0];
    block view[HD_ATTEND_VIEWS];
    job j = {.causal = step->causal,
             .window = window != NULL ? (int64_t)window->number : 0,
             .updates = hd_op_access(step->op, 0) == HD_ACCESS_UPDATE};

    // hd_cpu_attend_need has seen the step.
    assert(doubles_of(step) * sizeof(double) <= scratch->bytes);
    all.ndims = hd_op_batch(step->op, 0, all.ndims);
    for (int64_t b = 0; b < hd_span_elements(&all); b++) {
        for (int i = 0; i < step->op->noutputs + step->op->ninputs; i++)
            view[i] = block_of(step, i, base[i], b);
        if (hd_op_attend(step->op) == HD_ATTEND_MERGE) {
            merge(view, scratch->memory);
            continue;
        }
        j.o = view[0], j.lse = view[1];
        j.q = view[2], j.k = view[3], j.v = view[4];
        j.scale = hd_op_key(step->op, HD_KEY_SCALE) != NULL
                      ? hd_cpu_factor(step, HD_KEY_SCALE, base)
                      : 1 / sqrt((double)j.q.extent[2]);
        lay_out(&j, scratch->memory);
        attend(&j);
    }
}
