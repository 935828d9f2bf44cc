// A logarithm is not linear, and one to one: here it is the cube, since 3 has
// no factor in common with one less than the prime. So nothing but a merge adds
// what two of them stand for.
#include "check/attend.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "check/field.h"
#include "eval/attend.h"
#include "ir/signature.h"

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

// One element of a batch.
typedef struct field {
    hd_attention a;
    const hd_work_item *item;
    hd_values *values;
    hd_dtype lse; // which results have before they are stored
    uint64_t scale;
    uint64_t sequences; // a random function of all counts; 0: there are none
    uint64_t *share;    // owned: of each key, while a row is made
    // Gradients of one head of keys: what dk and dv add up to, and a row's dq.
    uint64_t *dk, *dv, *dq; // dk is owned, with the others behind it
    int64_t q, grad;        // where the row is
    int64_t head, row;
    uint64_t total, delta; // what its weights are multiplied by; do o
} field;

static uint64_t value_at(const field *f, int64_t at)
{
    return f->values->value[at];
}

static hd_dtype dtype_of(const field *f, int view)
{
    return f->a.step->op->view[view].buffer->type.dtype;
}

static void put(const field *f, int view, int64_t at, uint64_t x)
{
    hd_values_put(f->values, at,
                  hd_value_convert(f->lse, dtype_of(f, view), x));
}

// Of rows of views `x` and `y`, as long as that of `x`.
static uint64_t dot(const field *f, int x, int64_t x_at, int y, int64_t y_at)
{
    const hd_span *one = &f->a.view[x], *other = &f->a.view[y];
    uint64_t sum = 0;

    for (int64_t d = 0; d < one->extent[2]; d++)
        sum = hd_field_add(
            sum, hd_field_multiply(value_at(f, x_at + d * one->stride[2]),
                                   value_at(f, y_at + d * other->stride[2])));
    return sum;
}

static uint64_t weight(const field *f, int64_t q_at, int64_t k_at)
{
    return hd_field_mix(
        KEY_WEIGHT,
        hd_field_multiply(dot(f, f->a.q, q_at, f->a.q + 1, k_at), f->scale));
}

// Counts of sequences decide which keys a row sees, and are not known: each key
// has a share in each row, a random function of all counts, of how much room
// there is, and of the numbers of the row and of the key among the rows of all.
// What a mask says by numbers within a sequence it says by those of all rows,
// too, as far as a row sees a key at all.
static uint64_t share_of(const field *f, int64_t row, int64_t block,
                         int64_t key)
{
    uint64_t pair;

    if (f->sequences == 0)
        return 1;
    pair = hd_field_add(
        hd_field_mix(KEY_PAIR, (uint64_t)hd_sight_row(&f->a.sight, row)),
        (uint64_t)hd_sight_key(&f->a.sight, block, key));
    return hd_field_mix(
        KEY_TOGETHER, hd_field_add(f->sequences, hd_field_mix(KEY_PAIR, pair)));
}

// Two means as one of both.
static uint64_t joined(uint64_t x, uint64_t x_sum, uint64_t y, uint64_t y_sum)
{
    return hd_field_multiply(
        hd_field_add(hd_field_multiply(x, x_sum), hd_field_multiply(y, y_sum)),
        inverse(hd_field_add(x_sum, y_sum)));
}

static void begin(void *own, int64_t b)
{
    field *f = own;

    if (hd_op_has_sequences(f->a.step->op))
        f->sequences =
            hd_values_counts(f->values, (uint64_t)hd_step_among(f->a.step).room,
                             hd_attention_counts(f->a.step, b));
}

// ------------------------------------------------------------------- means

enum { MEAN, SUM, QUERIES, KEYS, VALUES };

// What the row makes of the keys of a block: `share` has the weight of each,
// and is 0 of those that it does not see. Returns what they add up to.
static uint64_t weigh_block(const field *f, int64_t head, int64_t row,
                            int64_t block, uint64_t *share)
{
    int64_t q = hd_attention_row(&f->a, QUERIES, head, row), from, past;
    int64_t keys = f->a.view[KEYS].extent[1];
    uint64_t sum = 0;

    hd_attention_sees(&f->a, row, block, &from, &past);
    for (int64_t j = 0; j < keys; j++) {
        share[j] =
            j < from || j >= past
                ? 0
                : hd_field_multiply(
                      weight(f, q,
                             hd_attention_key(&f->a, KEYS, head / f->a.group,
                                              block, j)),
                      share_of(f, row, block, j));
        sum = hd_field_add(sum, share[j]);
    }
    return sum;
}

// Column `c` of the values, each by its share.
static uint64_t mix_column(const field *f, int64_t head, int64_t c)
{
    const hd_span *v = &f->a.view[VALUES];
    uint64_t x = 0;

    for (int64_t block = 0; block < f->a.nblocks; block++)
        for (int64_t j = 0; j < v->extent[1]; j++) {
            uint64_t mine = f->share[block * v->extent[1] + j];
            int64_t at =
                hd_attention_key(&f->a, VALUES, head / f->a.group, block, j);

            if (mine != 0)
                x = hd_field_add(
                    x, hd_field_multiply(mine,
                                         value_at(f, at + c * v->stride[2])));
        }
    return x;
}

// What is added to is left as it is where nothing is seen, and not rounded
// anew: of keys in blocks it is, as the blocks are joined in a wider dtype.
static bool leaves_row(const field *f, int64_t row)
{
    int64_t from, past;

    hd_attention_sees(&f->a, row, 0, &from, &past);
    return f->a.updates && from >= past &&
           !hd_op_has_blocks(f->a.step->op, KEYS);
}

static void attend_row(void *own, int64_t head, int64_t row)
{
    const field *f = own;
    const hd_span *o = &f->a.view[MEAN];
    int64_t out = hd_attention_row(&f->a, MEAN, head, row);
    int64_t at = hd_attention_row(&f->a, SUM, head, row);
    uint64_t sum = 0, before = 0;

    if (leaves_row(f, row))
        return;
    for (int64_t block = 0; block < f->a.nblocks; block++)
        sum = hd_field_add(
            sum, weigh_block(f, head, row, block,
                             f->share + block * f->a.view[KEYS].extent[1]));
    if (f->a.updates)
        before = exponential(value_at(f, at));
    for (int64_t c = 0; c < o->extent[2]; c++) {
        int64_t to = out + c * o->stride[2];
        uint64_t x = hd_field_multiply(mix_column(f, head, c), inverse(sum));

        if (f->a.updates)
            x = joined(value_at(f, to), before, x, sum);
        put(f, MEAN, to, x);
    }
    put(f, SUM, at, logarithm(hd_field_add(before, sum)));
}

// The first result, then each operand with its logarithm. Beside one that has
// seen nothing the other one is what it was, rounded from its own dtype.
static void merge_row(void *own, int64_t head, int64_t row)
{
    const field *f = own;
    const hd_span *view = f->a.view;
    hd_dtype from, to = dtype_of(f, 0);
    int64_t at[6];
    uint64_t x, y;

    for (int i = 0; i < 6; i++)
        at[i] = hd_attention_row(&f->a, i, head, row);
    x = exponential(value_at(f, at[3]));
    y = exponential(value_at(f, at[5]));
    from = y == 0 ? dtype_of(f, 2) : x == 0 ? dtype_of(f, 4) : f->lse;
    for (int64_t c = 0; c < view[0].extent[2]; c++)
        hd_values_put(
            f->values, at[0] + c * view[0].stride[2],
            hd_value_convert(
                from, to,
                joined(value_at(f, at[2] + c * view[2].stride[2]), x,
                       value_at(f, at[4] + c * view[4].stride[2]), y)));
    put(f, 1, at[1], logarithm(hd_field_add(x, y)));
}

// -------------------------------------------------------------- gradients

enum { DQ, DK, DV, Q, K, V, O, LSE, DO };

static void add_times(const field *f, uint64_t *to, uint64_t factor, int view,
                      int64_t at)
{
    const hd_span *from = &f->a.view[view];

    for (int64_t d = 0; d < from->extent[2]; d++)
        to[d] = hd_field_add(
            to[d],
            hd_field_multiply(factor, value_at(f, at + d * from->stride[2])));
}

// `at` is a row of a result, of which `sum` is the new part. What nothing is
// added to is not rounded anew, but where keys come in blocks, whose sums for
// rows are of a wider dtype, and those for keys that rows meet in parts.
static void put_row(const field *f, int view, int64_t at, const uint64_t *sum)
{
    const hd_span *to = &f->a.view[view];
    bool joins = hd_op_has_blocks(f->a.step->op, K) &&
                 (view == DQ || hd_causal_parts(f->a.step->op) > 1);
    bool adds = hd_step_access(f->a.step, view) == HD_ACCESS_UPDATE;

    for (int64_t d = 0; d < to->extent[2]; d++) {
        int64_t i = at + d * to->stride[2];

        if (!adds)
            put(f, view, i, sum[d]);
        else if (sum[d] != 0 || joins)
            put(f, view, i, hd_field_add(value_at(f, i), sum[d]));
    }
}

static void begin_keys(void *own, int64_t head)
{
    field *f = own;

    (void)head;
    memset(f->dk, 0,
           sizeof *f->dk * (size_t)(f->a.nkeys * (f->a.depth + f->a.wide)));
}

static bool begin_row(void *own, int64_t head, int64_t row)
{
    field *f = own;
    int64_t o = hd_attention_row(&f->a, O, head, row);
    int64_t lse = hd_attention_row(&f->a, LSE, head, row);

    f->head = head;
    f->row = row;
    f->q = hd_attention_row(&f->a, Q, head, row);
    f->grad = hd_attention_row(&f->a, DO, head, row);
    f->total = inverse(exponential(value_at(f, lse)));
    f->delta = dot(f, O, o, DO, f->grad);
    memset(f->dq, 0, sizeof *f->dq * (size_t)f->a.depth);
    return true;
}

// A row and a key add to each other's sums.
static void meet(void *own, int64_t block, int64_t j)
{
    const field *f = own;
    int64_t shared = f->head / f->a.group;
    int64_t k = hd_attention_key(&f->a, K, shared, block, j);
    int64_t v = hd_attention_key(&f->a, V, shared, block, j);
    int64_t key = hd_attention_number(&f->a, block, j);
    uint64_t total = hd_field_multiply(f->total, share_of(f, f->row, block, j));
    uint64_t p = hd_field_multiply(weight(f, f->q, k), total);
    uint64_t ds = hd_field_multiply(
        hd_field_multiply(p, f->scale),
        hd_field_subtract(dot(f, V, v, DO, f->grad), f->delta));

    add_times(f, f->dq, ds, K, k);
    add_times(f, f->dk + key * f->a.depth, ds, Q, f->q);
    add_times(f, f->dv + key * f->a.wide, p, DO, f->grad);
}

static void end_row(void *own, int64_t head, int64_t row)
{
    const field *f = own;

    put_row(f, DQ, hd_attention_row(&f->a, DQ, head, row), f->dq);
}

static void end_key(void *own, int64_t head, int64_t block, int64_t j)
{
    const field *f = own;
    int64_t key = hd_attention_number(&f->a, block, j);

    put_row(f, DK, hd_attention_key(&f->a, DK, head, block, j),
            f->dk + key * f->a.depth);
    put_row(f, DV, hd_attention_key(&f->a, DV, head, block, j),
            f->dv + key * f->a.wide);
}

// ------------------------------------------------------------------- whole

static const hd_attend_rows attention = {.begin = begin, .row = attend_row};
static const hd_attend_rows merge = {.row = merge_row};
static const hd_attend_rows gradients = {
    .begin = begin,
    .begin_keys = begin_keys,
    .begin_row = begin_row,
    .meet = meet,
    .end_row = end_row,
    .end_key = end_key,
};

static hd_status reserve(field *f, int64_t n, uint64_t **out)
{
    return hd_clear_array(n, sizeof **out, f->values->diag, (void **)out);
}

static hd_status compute_attention(field *f)
{
    HD_TRY(reserve(f, f->a.nkeys, &f->share));
    hd_attend_all(&f->a, &hd_field, f->values, &attention, f);
    free(f->share);
    return HD_OK;
}

static hd_status compute_gradients(field *f)
{
    HD_TRY(
        reserve(f, f->a.nkeys * (f->a.depth + f->a.wide) + f->a.depth, &f->dk));
    f->dv = f->dk + f->a.nkeys * f->a.depth;
    f->dq = f->dv + f->a.nkeys * f->a.wide;
    hd_attend_all(&f->a, &hd_field, f->values, &gradients, f);
    free(f->dk);
    return HD_OK;
}

hd_status hd_values_attend(hd_values *values, const hd_work_item *item,
                           uint64_t scale)
{
    const hd_step *step = &item->step;
    field f = {.a = hd_attention_of(step),
               .item = item,
               .values = values,
               .lse = step->span[hd_op_lse(step->op)].buffer->type.dtype,
               .scale = scale};

    switch (hd_op_attend(step->op)) {
    case HD_ATTEND_ATTENTION:
        return compute_attention(&f);
    case HD_ATTEND_ATTENTION_GRAD:
        return compute_gradients(&f);
    case HD_ATTEND_MERGE:
        hd_attend_all(&f.a, &hd_field, values, &merge, &f);
        break;
    case HD_ATTEND_NONE:
        break;
    }
    return HD_OK;
}
