// A logarithm is not linear, and one to one: here it is the cube, since 3 has
// no factor in common with one less than the prime. So nothing but a merge adds
// what two of them stand for.
#include "check/attend.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "check/field.h"

enum {
    KEY_WEIGHT = 600,
    KEY_TOGETHER, // of a row and a key: whether they are of one sequence
    KEY_PAIR,     // which row and which key
};

static uint64_t power(uint64_t x, uint64_t n)
{
    uint64_t result = 1;

    for (; n > 0; n /= 2, x = hd_field_multiply(x, x))
        result = n % 2 != 0 ? hd_field_multiply(result, x) : result;
    return result;
}

// 0 of 0.
static uint64_t inverse(uint64_t x)
{
    return power(x, HD_FIELD_PRIME - 2);
}

static uint64_t logarithm(uint64_t sum)
{
    return power(sum, 3);
}

// x^(3 n) is x where 3 n is 1 modulo one less than the prime: twice that, and
// one more, is three times a whole number.
static uint64_t exponential(uint64_t lse)
{
    return power(lse, (2 * (HD_FIELD_PRIME - 1) + 1) / 3);
}

static int64_t row_at(const hd_span *tile, int64_t head, int64_t row)
{
    return tile->offset + head * tile->stride[0] + row * tile->stride[1];
}

static hd_dtype dtype_of(const hd_op *op, int view)
{
    return op->view[view].buffer->type.dtype;
}

static void put(hd_values *values, const hd_attention *a, int view, int64_t at,
                uint64_t x)
{
    hd_values_put(
        values, at,
        hd_value_convert(dtype_of(a->op, a->lse), dtype_of(a->op, view), x));
}

// Of rows of views `x` and `y`, as long as that of `x`.
static uint64_t dot(const hd_values *values, const hd_attention *a, int x,
                    int64_t x_at, int y, int64_t y_at)
{
    const hd_span *one = &a->tile[x], *other = &a->tile[y];
    uint64_t sum = 0;

    for (int64_t d = 0; d < one->extent[2]; d++)
        sum = hd_field_add(
            sum, hd_field_multiply(values->value[x_at + d * one->stride[2]],
                                   values->value[y_at + d * other->stride[2]]));
    return sum;
}

// `q` is the number of the queries' view, which the keys' follows.
static uint64_t weight(const hd_values *values, const hd_attention *a, int q,
                       int64_t q_at, int64_t k_at)
{
    return hd_field_mix(
        KEY_WEIGHT,
        hd_field_multiply(dot(values, a, q, q_at, q + 1, k_at), a->scale));
}

// Counts of sequences decide which keys a row sees, and are not known: each key
// has a share in each row, a random function of all counts, of how many rows
// there are, of the row and of the key. What a mask says by numbers within a
// sequence it says by those of all rows, too, as far as a row sees a key at
// all.
static uint64_t share_of(const hd_attention *a, int64_t row, int64_t key)
{
    uint64_t pair;

    if (!a->has_sequences)
        return 1;
    pair = hd_field_add(hd_field_mix(KEY_PAIR, (uint64_t)row), (uint64_t)key);
    return hd_field_mix(
        KEY_TOGETHER, hd_field_add(a->sequences, hd_field_mix(KEY_PAIR, pair)));
}

// Two means as one of both.
static uint64_t joined(uint64_t x, uint64_t x_sum, uint64_t y, uint64_t y_sum)
{
    return hd_field_multiply(
        hd_field_add(hd_field_multiply(x, x_sum), hd_field_multiply(y, y_sum)),
        inverse(hd_field_add(x_sum, y_sum)));
}

static bool has_row(const hd_attention *a, int64_t row)
{
    return row < a->rows;
}

// What the row makes of the keys of a block: `share` has the weight of each,
// and is 0 of those that it does not see. Returns what they add up to.
static uint64_t weigh_block(const hd_values *values, const hd_attention *a,
                            int64_t head, int64_t row, int64_t block,
                            uint64_t *share)
{
    int64_t shared = head / (a->tile[2].extent[0] / a->tile[3].extent[0]);
    int64_t q = row_at(&a->tile[2], head, row), from, past;
    uint64_t sum = 0;

    hd_sight_keys(&a->sight, row, block, &from, &past);
    for (int64_t j = 0; j < a->tile[3].extent[1]; j++) {
        int64_t key = row_at(&a->tile[3], shared, j) + block * a->apart[3];

        share[j] = j < from || j >= past || !has_row(a, row)
                       ? 0
                       : hd_field_multiply(weight(values, a, 2, q, key),
                                           share_of(a, row, j));
        sum = hd_field_add(sum, share[j]);
    }
    return sum;
}

// Column `c` of the values, each by its share.
static uint64_t mix_column(const hd_values *values, const hd_attention *a,
                           int64_t head, int64_t c, const uint64_t *share)
{
    const hd_span *v = &a->tile[4];
    int64_t shared = head / (a->tile[2].extent[0] / v->extent[0]);
    uint64_t x = 0;

    for (int64_t block = 0; block < a->nblocks; block++)
        for (int64_t j = 0; j < v->extent[1]; j++) {
            int64_t at = row_at(v, shared, j) + block * a->apart[4];
            uint64_t mine = share[block * v->extent[1] + j];

            if (mine != 0)
                x = hd_field_add(
                    x, hd_field_multiply(mine,
                                         values->value[at + c * v->stride[2]]));
        }
    return x;
}

// What is added to is then left as it is, and not rounded anew: of keys in
// blocks it is, as the blocks are joined in a wider dtype.
static bool leaves_row(const hd_attention *a, int64_t row)
{
    int64_t from, past;

    if (a->updates && !has_row(a, row))
        return true;
    hd_sight_keys(&a->sight, row, 0, &from, &past);
    return a->updates && from >= past && !hd_op_has_blocks(a->op, 3);
}

// `share` has room for the weight of each key.
static void attend_row(hd_values *values, const hd_attention *a, int64_t head,
                       int64_t row, uint64_t *share)
{
    const hd_span *o = &a->tile[0];
    int64_t out = row_at(o, head, row), at = row_at(&a->tile[1], head, row);
    uint64_t sum = 0, before = 0;

    if (leaves_row(a, row))
        return;
    for (int64_t block = 0; block < a->nblocks; block++)
        sum = hd_field_add(sum,
                           weigh_block(values, a, head, row, block,
                                       share + block * a->tile[3].extent[1]));
    if (a->updates)
        before = exponential(values->value[at]);
    for (int64_t c = 0; c < o->extent[2]; c++) {
        int64_t to = out + c * o->stride[2];
        uint64_t x = hd_field_multiply(mix_column(values, a, head, c, share),
                                       inverse(sum));

        if (a->updates)
            x = joined(values->value[to], before, x, sum);
        put(values, a, 0, to, x);
    }
    put(values, a, 1, at, logarithm(hd_field_add(before, sum)));
}

void hd_attend_rows(hd_values *values, const hd_attention *a)
{
    uint64_t *share = NULL;

    if (hd_clear_array(a->nblocks * a->tile[3].extent[1] + 1, sizeof *share,
                       values->diag, (void **)&share) != HD_OK) {
        values->status = HD_ERROR_NO_MEMORY;
        return;
    }
    for (int64_t head = 0; head < a->tile[2].extent[0]; head++)
        for (int64_t row = 0; row < a->tile[2].extent[1]; row++)
            attend_row(values, a, head, row, share);
    free(share);
}

static void merge_row(hd_values *values, const hd_attention *a, int64_t head,
                      int64_t row)
{
    uint64_t x = exponential(values->value[row_at(&a->tile[3], head, row)]);
    uint64_t y = exponential(values->value[row_at(&a->tile[5], head, row)]);
    int64_t out = row_at(&a->tile[0], head, row);
    int64_t one = row_at(&a->tile[2], head, row);
    int64_t other = row_at(&a->tile[4], head, row);

    for (int64_t c = 0; c < a->tile[0].extent[2]; c++)
        put(values, a, 0, out + c * a->tile[0].stride[2],
            joined(values->value[one + c * a->tile[2].stride[2]], x,
                   values->value[other + c * a->tile[4].stride[2]], y));
    put(values, a, 1, row_at(&a->tile[1], head, row),
        logarithm(hd_field_add(x, y)));
}

void hd_attend_merge(hd_values *values, const hd_attention *a)
{
    for (int64_t head = 0; head < a->tile[0].extent[0]; head++)
        for (int64_t row = 0; row < a->tile[0].extent[1]; row++)
            merge_row(values, a, head, row);
}

// -------------------------------------------------------------- gradients

enum { DQ, DK, DV, Q, K, V, O, LSE, DO };

// Of one head of keys: what dk and dv add up to, and dq of a row.
typedef struct grads {
    const hd_attention *a;
    int64_t shared, depth, wide, keys;
    uint64_t *dk, *dv, *dq;
} grads;

static void add_times(uint64_t *to, uint64_t factor, const hd_values *values,
                      const hd_span *from, int64_t at)
{
    for (int64_t d = 0; d < from->extent[2]; d++)
        to[d] = hd_field_add(
            to[d],
            hd_field_multiply(factor, values->value[at + d * from->stride[2]]));
}

// `to` is a row of a result, of which `sum` is the new part. What nothing is
// added to is not rounded anew, but where keys come in blocks, whose sums for
// rows are of a wider dtype.
static void put_row(hd_values *values, const hd_attention *a, int view,
                    int64_t at, const uint64_t *sum)
{
    const hd_span *to = &a->tile[view];
    bool joins = view == DQ && hd_op_has_blocks(a->op, K);

    for (int64_t d = 0; d < to->extent[2]; d++) {
        int64_t i = at + d * to->stride[2];

        if (!a->updates)
            put(values, a, view, i, sum[d]);
        else if (sum[d] != 0 || joins)
            put(values, a, view, i, hd_field_add(values->value[i], sum[d]));
    }
}

// What a row and key `j` of a block add to each other's sums; `total` is what
// the row's weights are multiplied by.
static void add_pair(const hd_values *values, const grads *g, int64_t q,
                     int64_t grad, uint64_t total, uint64_t delta,
                     int64_t block, int64_t j)
{
    const hd_attention *a = g->a;
    int64_t k = row_at(&a->tile[K], g->shared, j) + block * a->apart[K];
    int64_t v = row_at(&a->tile[V], g->shared, j) + block * a->apart[V];
    int64_t key = block * g->keys + j;
    uint64_t p = hd_field_multiply(weight(values, a, Q, q, k), total);
    uint64_t ds = hd_field_multiply(
        hd_field_multiply(p, a->scale),
        hd_field_subtract(dot(values, a, V, v, DO, grad), delta));

    add_times(g->dq, ds, values, &a->tile[K], k);
    add_times(g->dk + key * g->depth, ds, values, &a->tile[Q], q);
    add_times(g->dv + key * g->wide, p, values, &a->tile[DO], grad);
}

static void add_row(hd_values *values, const grads *g, int64_t head,
                    int64_t row)
{
    const hd_attention *a = g->a;
    int64_t q = row_at(&a->tile[Q], head, row);
    int64_t grad = row_at(&a->tile[DO], head, row), from, past;
    uint64_t total =
        inverse(exponential(values->value[row_at(&a->tile[LSE], head, row)]));
    uint64_t delta =
        dot(values, a, O, row_at(&a->tile[O], head, row), DO, grad);

    memset(g->dq, 0, sizeof *g->dq * (size_t)g->depth);
    for (int64_t block = 0; block < a->nblocks; block++) {
        hd_sight_keys(&a->sight, row, block, &from, &past);
        for (int64_t j = from; j < past && has_row(a, row); j++)
            add_pair(values, g, q, grad,
                     hd_field_multiply(total, share_of(a, row, j)), delta,
                     block, j);
    }
    put_row(values, a, DQ, row_at(&a->tile[DQ], head, row), g->dq);
}

static void put_keys(hd_values *values, const grads *g, int64_t block)
{
    const hd_attention *a = g->a;

    for (int64_t j = 0; j < g->keys; j++) {
        int64_t key = block * g->keys + j;

        put_row(values, a, DK,
                row_at(&a->tile[DK], g->shared, j) + block * a->apart[DK],
                g->dk + key * g->depth);
        put_row(values, a, DV,
                row_at(&a->tile[DV], g->shared, j) + block * a->apart[DV],
                g->dv + key * g->wide);
    }
}

static void add_heads(hd_values *values, const grads *g)
{
    const hd_attention *a = g->a;
    int64_t group = a->tile[Q].extent[0] / a->tile[K].extent[0];
    int64_t keys = a->nblocks * g->keys;

    memset(g->dk, 0, sizeof *g->dk * (size_t)(keys * g->depth));
    memset(g->dv, 0, sizeof *g->dv * (size_t)(keys * g->wide));
    for (int64_t head = g->shared * group; head < (g->shared + 1) * group;
         head++)
        for (int64_t row = 0; row < a->tile[Q].extent[1]; row++)
            add_row(values, g, head, row);
    for (int64_t block = 0; block < a->nblocks; block++)
        put_keys(values, g, block);
}

void hd_attend_grads(hd_values *values, const hd_attention *a)
{
    grads g = {.a = a,
               .depth = a->tile[K].extent[2],
               .wide = a->tile[V].extent[2],
               .keys = a->tile[K].extent[1]};
    int64_t keys = a->nblocks * g.keys;
    int64_t n = keys * (g.depth + g.wide) + g.depth;

    if (hd_clear_array(n, sizeof *g.dk, values->diag, (void **)&g.dk) !=
        HD_OK) {
        values->status = HD_ERROR_NO_MEMORY;
        return;
    }
    g.dv = g.dk + keys * g.depth;
    g.dq = g.dv + keys * g.wide;
    for (; g.shared < a->tile[K].extent[0]; g.shared++)
        add_heads(values, &g);
    free(g.dk);
}
