// A logarithm is not linear, and one to one: here it is the cube, since 3 has
// no factor in common with one less than the prime. So nothing but a merge adds
// what two of them stand for.
#include "check/attend.h"

#include <stdlib.h>

#include "base/array.h"
#include "check/field.h"

enum { KEY_WEIGHT = 600 };

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

static int64_t row_at(const hd_tile *tile, int64_t head, int64_t row)
{
    return tile->at + head * tile->stride[0] + row * tile->stride[1];
}

static hd_dtype dtype_of(const hd_op *op, int view)
{
    return op->view[view].buffer->type.dtype;
}

static void put(hd_values *values, const hd_op *op, int view, int64_t at,
                uint64_t x)
{
    hd_values_put(values, at,
                  hd_value_convert(dtype_of(op, 1), dtype_of(op, view), x));
}

static uint64_t weight(const hd_values *values, const hd_attention *a,
                       int64_t q, int64_t k)
{
    const hd_tile *query = &a->tile[2], *key = &a->tile[3];
    uint64_t score = 0;

    for (int64_t d = 0; d < query->extent[2]; d++)
        score = hd_field_add(
            score, hd_field_multiply(values->value[q + d * query->stride[2]],
                                     values->value[k + d * key->stride[2]]));
    return hd_field_mix(KEY_WEIGHT, hd_field_multiply(score, a->scale));
}

// Two means as one of both.
static uint64_t joined(uint64_t x, uint64_t x_sum, uint64_t y, uint64_t y_sum)
{
    return hd_field_multiply(
        hd_field_add(hd_field_multiply(x, x_sum), hd_field_multiply(y, y_sum)),
        inverse(hd_field_add(x_sum, y_sum)));
}

static void see_keys(const hd_attention *a, int64_t row, int64_t *from,
                     int64_t *past)
{
    *from = 0;
    *past = a->tile[3].extent[1];
    if (a->causal == HD_SEES_ALL)
        return;
    if (row + a->causal + 1 < *past)
        *past = row + a->causal + 1;
    if (a->window > 0 && row + a->causal + 1 - a->window > 0)
        *from = row + a->causal + 1 - a->window;
}

// `share` has room for the weight of each key.
static void attend_row(hd_values *values, const hd_attention *a, int64_t head,
                       int64_t row, uint64_t *share)
{
    const hd_tile *o = &a->tile[0], *lse = &a->tile[1], *v = &a->tile[4];
    int64_t shared = head / (a->tile[2].extent[0] / a->tile[3].extent[0]);
    int64_t out = row_at(o, head, row), at = row_at(lse, head, row);
    int64_t q = row_at(&a->tile[2], head, row), from, past;
    uint64_t sum = 0, before = 0;

    see_keys(a, row, &from, &past);
    for (int64_t j = from; j < past; j++) {
        share[j] = weight(values, a, q, row_at(&a->tile[3], shared, j));
        sum = hd_field_add(sum, share[j]);
    }
    if (a->updates)
        before = exponential(values->value[at]);
    for (int64_t c = 0; c < o->extent[2]; c++) {
        int64_t to = out + c * o->stride[2];
        uint64_t x = 0;

        for (int64_t j = from; j < past; j++)
            x = hd_field_add(
                x, hd_field_multiply(
                       share[j],
                       values->value[row_at(v, shared, j) + c * v->stride[2]]));
        x = hd_field_multiply(x, inverse(sum));
        if (a->updates)
            x = joined(values->value[to], before, x, sum);
        put(values, a->op, 0, to, x);
    }
    put(values, a->op, 1, at, logarithm(hd_field_add(before, sum)));
}

void hd_attend_rows(hd_values *values, const hd_attention *a)
{
    uint64_t *share = NULL;

    if (hd_clear_array(a->tile[3].extent[1] + 1, sizeof *share, values->diag,
                       (void **)&share) != HD_OK) {
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
        put(values, a->op, 0, out + c * a->tile[0].stride[2],
            joined(values->value[one + c * a->tile[2].stride[2]], x,
                   values->value[other + c * a->tile[4].stride[2]], y));
    put(values, a->op, 1, row_at(&a->tile[1], head, row),
        logarithm(hd_field_add(x, y)));
}

void hd_attend_merge(hd_values *values, const hd_attention *a)
{
    for (int64_t head = 0; head < a->tile[0].extent[0]; head++)
        for (int64_t row = 0; row < a->tile[0].extent[1]; row++)
            merge_row(values, a, head, row);
}
