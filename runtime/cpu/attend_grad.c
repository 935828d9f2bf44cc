// Tiles of rows and of keys meet twice, in double precision: once all keys a
// tile of rows, whose dq they add up to, and once all rows a tile of keys, for
// dk and dv. So each sum has memory of a tile, and each result is rounded once.
//
//     p  = exp(scale q k - lse)        dv = sum over rows of p do
//     ds = p (do v - do o)             dk = scale * sum over rows of ds q
//                                      dq = scale * sum over keys of ds k
#include "runtime/cpu/attend_grad.h"

#include <math.h>
#include <string.h>

#include "ir/causal.h"

enum { TILE_ROWS = 32, TILE_KEYS = 64 };

typedef struct job {
    hd_cpu_rows dq, dk, dv, q, k, v, o, lse, grad; // `grad` is that of o
    hd_sight sight;
    double scale;
    bool adds[3];               // to what dq, dk, dv hold
    int64_t depth, wide, group; // heads of queries a head of keys
    // Memory: tiles of q and of o's gradient, of k and v, of p and ds, what
    // they add up to, and a row.
    double *query, *upper, *key, *value, *p, *ds, *to_depth, *to_wide, *row;
    double lse_of[TILE_ROWS], delta[TILE_ROWS];
} job;

// The greater of two tiles is that of keys.
size_t hd_cpu_attend_grad_need(const hd_step *step)
{
    const hd_span *dk = &step->span[1], *dv = &step->span[2];
    size_t depth = (size_t)dk->extent[dk->ndims - 1];
    size_t wide = (size_t)dv->extent[dv->ndims - 1];

    return (TILE_ROWS + 2 * TILE_KEYS + 1) * (depth + wide) +
           2 * TILE_ROWS * TILE_KEYS;
}

static void lay_out(job *j, double *memory)
{
    j->query = memory;
    j->upper = j->query + TILE_ROWS * j->depth;
    j->key = j->upper + TILE_ROWS * j->wide;
    j->value = j->key + TILE_KEYS * j->depth;
    j->p = j->value + TILE_KEYS * j->wide;
    j->ds = j->p + TILE_ROWS * TILE_KEYS;
    j->to_depth = j->ds + TILE_ROWS * TILE_KEYS;
    j->to_wide = j->to_depth + TILE_KEYS * j->depth;
    j->row = j->to_wide + TILE_KEYS * j->wide; // as wide as the wider
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void add_times(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * x[i];
}

static void load_rows(job *j, int64_t head, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *upper = &j->upper[i * j->wide];

        hd_cpu_rows_load(&j->q, head, row + i, &j->query[i * j->depth]);
        hd_cpu_rows_load(&j->grad, head, row + i, upper);
        hd_cpu_rows_load(&j->o, head, row + i, j->row);
        j->delta[i] = dot(upper, j->row, j->wide);
        j->lse_of[i] = hd_cpu_rows_number(&j->lse, head, row + i);
    }
}

static void load_keys(job *j, int64_t shared, int64_t key, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        hd_cpu_rows_load(&j->k, shared, key + i, &j->key[i * j->depth]);
        hd_cpu_rows_load(&j->v, shared, key + i, &j->value[i * j->wide]);
    }
}

// p and ds of row `i` of a tile and keys [from, past) of one.
static void weigh(job *j, int64_t i, int64_t from, int64_t past)
{
    const double *q = &j->query[i * j->depth], *upper = &j->upper[i * j->wide];

    for (int64_t c = from; c < past; c++) {
        double score = j->scale * dot(q, &j->key[c * j->depth], j->depth);
        double p = exp(score - j->lse_of[i]);
        double to_p = dot(upper, &j->value[c * j->wide], j->wide);

        j->p[i * TILE_KEYS + c] = p;
        j->ds[i * TILE_KEYS + c] = j->scale * p * (to_p - j->delta[i]);
    }
}

// Which keys of the tile [key, key + n) the row sees. What sees none at all has
// no weights.
static void see(const job *j, int64_t row, int64_t i, int64_t key, int64_t n,
                int64_t *from, int64_t *past)
{
    hd_sight_keys(&j->sight, row + i, 0, from, past);
    *from = *from > key ? *from - key : 0;
    *past = *past < key + n ? *past - key : n;
    if (isinf(j->lse_of[i]) && j->lse_of[i] < 0)
        *past = *from;
}

// Whether no row of a tile sees any key of one.
static bool misses(const job *j, int64_t row, int64_t rows, int64_t key,
                   int64_t n)
{
    int64_t from, past;

    hd_sight_tile(&j->sight, row, rows, &from, &past);
    return key + n <= from || key >= past;
}

static void store(const hd_cpu_rows *to, bool adds, int64_t head, int64_t row,
                  double *sum, double *memory)
{
    if (adds) {
        hd_cpu_rows_load(to, head, row, memory);
        add_times(sum, 1, memory, to->extent[2]);
    }
    hd_cpu_rows_store(to, head, row, sum);
}

static int64_t tile_at(int64_t at, int64_t extent, int64_t most)
{
    return extent - at < most ? extent - at : most;
}

// dq of a tile of rows.
static void sum_keys(job *j, int64_t head, int64_t row, int64_t rows)
{
    int64_t keys = j->k.extent[1], n;

    load_rows(j, head, row, rows);
    memset(j->to_depth, 0, sizeof *j->to_depth * (size_t)(rows * j->depth));
    for (int64_t key = 0; key < keys; key += n) {
        n = tile_at(key, keys, TILE_KEYS);
        if (misses(j, row, rows, key, n))
            continue;
        load_keys(j, head / j->group, key, n);
        for (int64_t i = 0; i < rows; i++) {
            int64_t from, past;

            see(j, row, i, key, n, &from, &past);
            weigh(j, i, from, past);
            for (int64_t c = from; c < past; c++)
                add_times(&j->to_depth[i * j->depth], j->ds[i * TILE_KEYS + c],
                          &j->key[c * j->depth], j->depth);
        }
    }
    for (int64_t i = 0; i < rows; i++)
        store(&j->dq, j->adds[0], head, row + i, &j->to_depth[i * j->depth],
              j->row);
}

// What a tile of rows adds to dk and dv of a tile of keys.
static void add_rows(job *j, int64_t row, int64_t rows, int64_t key, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t from, past;

        see(j, row, i, key, n, &from, &past);
        weigh(j, i, from, past);
        for (int64_t c = from; c < past; c++) {
            add_times(&j->to_depth[c * j->depth], j->ds[i * TILE_KEYS + c],
                      &j->query[i * j->depth], j->depth);
            add_times(&j->to_wide[c * j->wide], j->p[i * TILE_KEYS + c],
                      &j->upper[i * j->wide], j->wide);
        }
    }
}

// dk and dv of a tile of keys, of all heads that share them.
static void sum_rows(job *j, int64_t shared, int64_t key, int64_t n)
{
    int64_t rows = j->q.extent[1], some;

    load_keys(j, shared, key, n);
    memset(j->to_depth, 0, sizeof *j->to_depth * (size_t)(n * j->depth));
    memset(j->to_wide, 0, sizeof *j->to_wide * (size_t)(n * j->wide));
    for (int64_t head = shared * j->group; head < (shared + 1) * j->group;
         head++)
        for (int64_t row = 0; row < rows; row += some) {
            some = tile_at(row, rows, TILE_ROWS);
            if (misses(j, row, some, key, n))
                continue;
            load_rows(j, head, row, some);
            add_rows(j, row, some, key, n);
        }
    for (int64_t c = 0; c < n; c++) {
        store(&j->dk, j->adds[1], shared, key + c, &j->to_depth[c * j->depth],
              j->row);
        store(&j->dv, j->adds[2], shared, key + c, &j->to_wide[c * j->wide],
              j->row);
    }
}

void hd_cpu_attend_grad(const hd_step *step, void *const *base,
                        const hd_cpu_rows *view, const hd_sight *sight,
                        double *memory)
{
    job j = {.dq = view[0],
             .dk = view[1],
             .dv = view[2],
             .q = view[3],
             .k = view[4],
             .v = view[5],
             .o = view[6],
             .lse = view[7],
             .grad = view[8],
             .sight = *sight,
             .scale = hd_cpu_rows_scale(step, base),
             .depth = view[3].extent[2],
             .wide = view[5].extent[2],
             .group = view[3].extent[0] / view[4].extent[0]};
    int64_t rows = j.q.extent[1], keys = j.k.extent[1];

    for (int i = 0; i < 3; i++)
        j.adds[i] = hd_step_access(step, i) == HD_ACCESS_UPDATE;
    j.sight.keys = keys; // no more than are counted
    lay_out(&j, memory);
    for (int64_t head = 0; head < j.q.extent[0]; head++)
        for (int64_t row = 0; row < rows; row += TILE_ROWS)
            sum_keys(&j, head, row, tile_at(row, rows, TILE_ROWS));
    for (int64_t shared = 0; shared < j.k.extent[0]; shared++)
        for (int64_t key = 0; key < keys; key += TILE_KEYS)
            sum_rows(&j, shared, key, tile_at(key, keys, TILE_KEYS));
}
