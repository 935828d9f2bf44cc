// See sample.h. Bounds are those of docs/numerics.md.
#include <heddle/verify.h>

#include "sample.h"

#include "file.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double lambda = 6;

// ------------------------------------------------------------------ inputs

bool pool_open(pool *pool, hd_dtype dtype, uint64_t seed, size_t width)
{
    enum { STARTS = 1 << 20 };

    pool->dtype = dtype;
    pool->starts = STARTS;
    pool->bytes = (STARTS + width) * hd_dtype_size(dtype);
    pool->first = memory_pages(pool->bytes, false);
    if (!pool->first)
        return false;
    random_fill(dtype, seed, STARTS + width, pool->first);
    return true;
}

void pool_close(pool *pool)
{
    memory_free(pool->first, pool->bytes);
    pool->first = NULL;
}

// FNV-1a, finished as splitmix64 is.
static uint64_t hash_row(int set, const char *name, int64_t row)
{
    uint64_t x = 0xcbf29ce484222325;

    for (; *name; name++)
        x = (x ^ (unsigned char)*name) * 0x100000001b3;
    x = (x ^ (uint64_t)set) * 0x100000001b3;
    return random_mix(x + (uint64_t)row * 0x9e3779b97f4a7c15);
}

const void *pool_row(const pool *pool, int set, const char *name, int64_t row)
{
    size_t start = hash_row(set, name, row) % pool->starts;

    return pool->first + start * hd_dtype_size(pool->dtype);
}

// ------------------------------------------------------------------- sample

static size_t values_of(const sample *sample)
{
    return (size_t)sample->nrows * (size_t)sample->n;
}

size_t sample_part(const sample *sample)
{
    return 2 * values_of(sample);
}

static void pick_rows(sample *sample)
{
    int64_t m = sample->m;

    sample->nrows = m < SAMPLE_ROWS ? (int)m : SAMPLE_ROWS;
    for (int i = 0; i < sample->nrows; i++) {
        int64_t low = m * i / sample->nrows;
        int64_t high = m * (i + 1) / sample->nrows;

        sample->row[i] = low + (int64_t)(hash_row(sample->set, "sampled", i) %
                                         (uint64_t)(high - low));
    }
}

bool sample_open(sample *sample)
{
    size_t bytes;

    pick_rows(sample);
    bytes = values_of(sample) * sizeof(double);
    sample->part = malloc(2 * bytes);
    sample->value = malloc(bytes);
    sample->bound = malloc(bytes);
    sample->hop_bound = malloc(bytes);
    sample->part_value = malloc(bytes);
    sample->part_bound = malloc(bytes);
    return sample->part && sample->value && sample->bound &&
           sample->hop_bound && sample->part_value && sample->part_bound;
}

void sample_close(sample *sample)
{
    free(sample->part);
    free(sample->value);
    free(sample->bound);
    free(sample->hop_bound);
    free(sample->part_value);
    free(sample->part_bound);
}

// The range of k that a rank computes, and where its rows begin.
typedef struct share {
    int64_t first, end;
    int64_t a, w;
} share;

static share share_of(const sample *sample, int rank)
{
    if (sample->split)
        return (share){0, sample->k, rank * sample->m, rank * sample->n};
    return (share){sample->k * rank / sample->ranks,
                   sample->k * (rank + 1) / sample->ranks, 0, 0};
}

static void load_range(const sample *sample, const char *name, int64_t row,
                       const share *share, double *to)
{
    const pool *pool = sample->from;
    const char *from = pool_row(pool, sample->set, name, row);

    hd_dtype_load(pool->dtype,
                  from + (size_t)share->first * hd_dtype_size(pool->dtype),
                  (size_t)(share->end - share->first), to);
}

// All sampled rows advance together, so that the inner loop is a vector's.
static void multiply(const double *a, const double *w, int64_t k, double *sums,
                     double *sizes)
{
    memset(sums, 0, SAMPLE_ROWS * sizeof *sums);
    memset(sizes, 0, SAMPLE_ROWS * sizeof *sizes);
    for (int64_t i = 0; i < k; i++, a += SAMPLE_ROWS)
        for (int r = 0; r < SAMPLE_ROWS; r++) {
            double product = a[r] * w[i];

            sums[r] += product;
            sizes[r] += fabs(product);
        }
}

// Those rows of A side by side: element i of all of them, then i + 1.
static double *gather_rows(const sample *sample, const share *share,
                           double *row)
{
    int64_t k = share->end - share->first;
    double *a = need((size_t)(k ? k : 1) * SAMPLE_ROWS, sizeof *a);

    for (int r = 0; r < sample->nrows; r++) {
        load_range(sample, "a", share->a + sample->row[r], share, row);
        for (int64_t i = 0; i < k; i++)
            a[i * SAMPLE_ROWS + r] = row[i];
    }
    return a;
}

// Half the distance between numbers of the format at 1.
static double unit_of(hd_dtype dtype)
{
    static const double units[HD_DTYPE_EVENT] = {[HD_DTYPE_F64] = 0x1p-53,
                                                 [HD_DTYPE_F32] = 0x1p-24,
                                                 [HD_DTYPE_F16] = 0x1p-11,
                                                 [HD_DTYPE_BF16] = 0x1p-8};

    return units[dtype];
}

// Half the distance between numbers of the format at `value`.
static double half_step(hd_dtype dtype, double value)
{
    double least = dtype == HD_DTYPE_F16 ? 0x1p-14 : 0x1p-126;
    int exponent;

    frexp(fmax(fabs(value), least), &exponent);
    return unit_of(dtype) * ldexp(1, exponent - 1);
}

// Stored with an error of at most `error` so far.
static double store_bound(hd_dtype dtype, double value, double error)
{
    return error + half_step(dtype, fabs(value) + error);
}

static double sum_bound(int64_t terms, double size)
{
    return lambda * sqrt((double)terms) * 0x1p-24 * size;
}

// ---------------------------------------------------------------- attention

int64_t attended_row(const attended *attention, int ranks, int64_t row)
{
    int64_t block = attention->rows / ranks;
    int64_t heads = attention->batch * attention->kv_heads;
    int64_t head = row / attention->rows, at = row % attention->rows;
    int64_t chunk = block / 2, owner = at / block;

    if (attention->zigzag && at / chunk < ranks) {
        owner = at / chunk;
        at = at % chunk;
    } else if (attention->zigzag) {
        owner = 2 * ranks - 1 - at / chunk;
        at = chunk + at % chunk;
    }
    return (owner * heads + head) * block + at % block;
}

int64_t attended_place(const attended *attention, int ranks, int64_t row)
{
    int64_t block = attention->rows / ranks, chunk = block / 2;
    int64_t owner = row / (attention->batch * attention->heads * block);
    int64_t at = row % block;

    if (!attention->zigzag)
        return owner * block + at;
    return at < chunk ? owner * chunk + at
                      : (2 * ranks - 2 - owner) * chunk + at;
}

// One sampled row of an attention.
typedef struct query {
    const sample *sample;
    double *q, *row; // depth elements
    double *weight;  // a key each
    int64_t head;    // of K and V, in all batches
    int64_t keys;    // the first ones of the sequence, which it sees
    double most;     // the largest score
    double size;     // the largest sum of a score's products by absolute value
} query;

static void load_row(const sample *sample, const char *name, int64_t row,
                     double *to)
{
    hd_dtype_load(sample->from->dtype,
                  pool_row(sample->from, sample->set, name, row),
                  (size_t)sample->attention->depth, to);
}

static void load_key(const query *query, const char *name, int64_t j)
{
    const sample *sample = query->sample;

    load_row(sample, name,
             attended_row(sample->attention, sample->ranks,
                          query->head * sample->attention->rows + j),
             query->row);
}

static void score_keys(query *query)
{
    int64_t depth = query->sample->attention->depth;
    double scale = 1 / sqrt((double)depth);

    query->most = -INFINITY;
    query->size = 0;
    for (int64_t j = 0; j < query->keys; j++) {
        double score = 0, size = 0;

        load_key(query, "k", j);
        for (int64_t d = 0; d < depth; d++) {
            double product = query->q[d] * query->row[d] * scale;

            score += product;
            size += fabs(product);
        }
        query->weight[j] = score;
        query->most = fmax(query->most, score);
        query->size = fmax(query->size, size);
    }
}

// Of one element of the mean, times the sum of all weights.
typedef struct mean {
    double value, size; // and of the absolute values
    double squares;     // of weight times value
    double block;       // value of the block, or chunk, that is being added
    double blocks;      // sizes of those before it
} mean;

static void add_key(mean *m, double weight, double value, bool last)
{
    m->value += weight * value;
    m->size += weight * fabs(value);
    m->squares += weight * value * (weight * value);
    m->block += weight * value;
    if (!last)
        return;
    m->blocks += fabs(m->block);
    m->block = 0;
}

// Scores that are off move weights; these, and the part of each rank's block,
// may be rounded to the operands' dtype. Weights err independently of each
// other (docs/numerics.md).
static double mean_bound(const query *query, const mean *m)
{
    const sample *sample = query->sample;
    double unit = unit_of(sample->from->dtype);
    double moved = expm1(2 * sum_bound(sample->attention->depth, query->size)) +
                   sum_bound(sample->attention->rows, 1);

    return moved * m->size + unit * m->blocks +
           unit * fmin(m->size, lambda * sqrt(m->squares));
}

static void mean_values(const query *query, double *value, double *bound)
{
    const sample *sample = query->sample;
    int64_t depth = sample->attention->depth;
    int64_t block = sample->attention->rows / sample->ranks;
    mean *means = need((size_t)depth, sizeof *means);
    double sum = 0;

    if (sample->attention->zigzag)
        block /= 2;
    for (int64_t j = 0; j < query->keys; j++) {
        double weight = exp(query->weight[j] - query->most);
        bool last = j % block == block - 1 || j == query->keys - 1;

        load_key(query, "v", j);
        sum += weight;
        for (int64_t d = 0; d < depth; d++)
            add_key(&means[d], weight, query->row[d], last);
    }
    for (int64_t d = 0; d < depth; d++) {
        value[d] = means[d].value / sum;
        bound[d] = mean_bound(query, &means[d]) / sum;
    }
    free(means);
}

// Each rank has some of the rows, and zeros in the others.
static void compute_attention(sample *sample, int rank)
{
    const attended *attention = sample->attention;
    size_t depth = (size_t)attention->depth;
    query query = {.sample = sample,
                   .q = need(2 * depth, sizeof(double)),
                   .weight = need((size_t)attention->rows, sizeof(double))};
    int64_t block = attention->rows / sample->ranks;

    query.row = query.q + depth;
    memset(sample->part, 0, sample_part(sample) * sizeof *sample->part);
    for (int i = rank; i < sample->nrows; i += sample->ranks) {
        int64_t head = sample->row[i] / block;
        int64_t of_each = attention->heads / attention->kv_heads;

        query.head = head % (attention->batch * attention->heads) / of_each;
        query.keys =
            attention->zigzag
                ? attended_place(attention, sample->ranks, sample->row[i]) + 1
                : attention->rows;
        load_row(sample, "q", sample->row[i], query.q);
        score_keys(&query);
        mean_values(&query, sample->part + (size_t)i * depth,
                    sample->part + values_of(sample) + (size_t)i * depth);
    }
    free(query.weight);
    free(query.q);
}

static void combine_attention(sample *sample, const double *parts, size_t i)
{
    size_t n = values_of(sample);
    double value = 0, bound = 0;

    for (int peer = 0; peer < sample->ranks; peer++) {
        value += parts[2 * n * (size_t)peer + i];
        bound += parts[2 * n * (size_t)peer + n + i];
    }
    sample->value[i] = value;
    sample->bound[i] = store_bound(sample->from->dtype, value, bound);
    sample->hop_bound[i] = sample->bound[i];
}

// ------------------------------------------------------------------- product

static void compute_product(sample *sample, int rank)
{
    share share = share_of(sample, rank);
    int64_t k = share.end - share.first;
    double *row = need((size_t)(k ? k : 1), sizeof *row);
    double *a = gather_rows(sample, &share, row);
    double *sizes = sample->part + values_of(sample);
    double sum[SAMPLE_ROWS], size[SAMPLE_ROWS];

    for (int64_t j = 0; j < sample->n; j++) {
        load_range(sample, "w", share.w + j, &share, row);
        multiply(a, row, k, sum, size);
        for (int r = 0; r < sample->nrows; r++) {
            sample->part[r * sample->n + j] = sum[r];
            sizes[r * sample->n + j] = size[r];
        }
    }
    free(a);
    free(row);
}

void sample_compute(sample *sample, int rank)
{
    if (sample->attention)
        compute_attention(sample, rank);
    else
        compute_product(sample, rank);
}

// Partial results are rounded, then added in fp32.
static void combine_split(sample *sample, int rank, const double *parts,
                          size_t i)
{
    size_t n = values_of(sample);
    hd_dtype dtype = sample->from->dtype;
    double value = 0, size = 0, errors = 0, squares = 0, error;

    for (int peer = 0; peer < sample->ranks; peer++) {
        const double *part = parts + 2 * n * (size_t)peer;

        error = store_bound(dtype, part[i], sum_bound(sample->k, part[n + i]));
        value += part[i];
        size += fabs(part[i]);
        errors += error;
        squares += error * error;
        if (peer == rank) {
            sample->part_value[i] = part[i];
            sample->part_bound[i] = error;
        }
    }
    error =
        fmin(errors, lambda * sqrt(squares)) + sum_bound(sample->ranks, size);
    sample->value[i] = value;
    sample->bound[i] = store_bound(dtype, value, error);
    // No sum on the way is larger than the sum of all sizes.
    error += lambda * sqrt(sample->ranks) * half_step(dtype, size);
    sample->hop_bound[i] = store_bound(dtype, value, error);
}

static void combine_whole(sample *sample, const double *parts, size_t i)
{
    size_t n = values_of(sample);
    double value = 0, size = 0;

    for (int peer = 0; peer < sample->ranks; peer++) {
        const double *part = parts + 2 * n * (size_t)peer;

        value += part[i];
        size += part[n + i];
    }
    sample->value[i] = value;
    sample->bound[i] =
        store_bound(sample->from->dtype, value, sum_bound(sample->k, size));
    sample->hop_bound[i] = sample->bound[i];
}

void sample_combine(sample *sample, int rank, const double *parts)
{
    for (size_t i = 0; i < values_of(sample); i++)
        if (sample->attention)
            combine_attention(sample, parts, i);
        else if (sample->split)
            combine_split(sample, rank, parts, i);
        else
            combine_whole(sample, parts, i);
}

void sample_compare(const sample *sample, int i, sample_of of, const void *got,
                    const finding *place, verdict *verdict)
{
    size_t at = (size_t)i * (size_t)sample->n;
    const double *values =
        of == SAMPLE_OWN ? sample->part_value : sample->value;
    const double *bounds = of == SAMPLE_OWN    ? sample->part_bound
                           : of == SAMPLE_HOPS ? sample->hop_bound
                                               : sample->bound;

    verdict_values(verdict, sample->from->dtype, got, values + at, bounds + at,
                   (size_t)sample->n, place);
}
