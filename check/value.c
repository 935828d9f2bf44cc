// Whatever is linear is computed in the field. Activations, conversions that
// lose something, and what integers drop are random functions of their operand.
// So is the maximum of several, of a set: it is the same in any order, and a
// maximum of maxima is one of all that they are of. What lies below all numbers
// of a dtype is in none, and the maximum of one is that one; numbers that are
// known are compared, so that of these there is one in the set.
#include <heddle/verify.h>

#include "check/value.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/dtype.h"
#include "check/attend.h"
#include "check/field.h"
#include "eval/attend.h"
#include "ir/signature.h"
#include "ir/space.h"

// Keys below 100 are those of memories.
enum {
    KEY_CONVERT = 100, // and the dtype
    KEY_MAP = 200,     // and the map's name
    KEY_FOLD = 300,    // of a set, and the fold
    KEY_OPERAND = 400, // of a set's member
    KEY_TRUNCATE,
    KEY_LEFT,    // of an integer product: the factor
    KEY_NEUTRAL, // and the fold
    KEY_GROUP,   // of a row among groups: which, by the counts
    KEY_NO_GROUP,
    KEY_PICK,   // and the result's number
    KEY_CALL,   // of the function: its name
    KEY_TAKE,   // of an element among those of a dimension: which, by an index
    KEY_PLACE,  // of an element in the whole
    KEY_BEHIND, // of what is moved to where nothing is counted
    KEY_UNIT,   // of how many indices one stands for
    KEY_NUMBER, // of a set's member that is known
};

// ------------------------------------------------------------------- memory

hd_status hd_values_create(const hd_draw *draw, int64_t n, uint64_t key,
                           hd_diag *diag, hd_values *out)
{
    hd_values values = {.draw = draw, .n = n, .diag = diag};

    key = hd_draw_number(draw, key);
    HD_TRY(
        hd_clear_array(n, sizeof *values.value, diag, (void **)&values.value));
    for (int64_t i = 0; i < n; i++)
        values.value[i] = hd_field_mix(key, (uint64_t)i);
    *out = values;
    return HD_OK;
}

void hd_values_free(hd_values *values)
{
    free(values->value);
    free(values->maximum);
    free(values->change);
    *values = (hd_values){0};
}

static void note_status(hd_values *values, hd_status status)
{
    if (values->status == HD_OK)
        values->status = status;
}

void hd_values_put(hd_values *values, int64_t at, uint64_t value)
{
    uint64_t before = values->value[at];

    values->value[at] = value;
    values->nwrites++;
    if (!values->keep || values->status != HD_OK)
        return;
    note_status(values, hd_grow((void **)&values->change, &values->changes_room,
                                values->nchanges + 1, sizeof *values->change,
                                values->diag));
    if (values->status == HD_OK)
        values->change[values->nchanges++] =
            (hd_change){at, values->event, values->node, before, value};
}

// ------------------------------------------------------------------ maxima

static int64_t maximum_slot(const hd_values *values, uint64_t value)
{
    int64_t mask = values->maxima_room - 1;
    int64_t slot = (int64_t)hd_field_scramble(value) & mask;

    while (values->maximum[slot].value != 0 &&
           values->maximum[slot].value != value)
        slot = (slot + 1) & mask;
    return slot;
}

static hd_status grow_maxima(hd_values *values)
{
    hd_values larger = {
        .maxima_room = values->maxima_room > 0 ? 2 * values->maxima_room : 256};

    HD_TRY(hd_clear_array(larger.maxima_room, sizeof *larger.maximum,
                          values->diag, (void **)&larger.maximum));
    for (int64_t i = 0; i < values->maxima_room; i++) {
        hd_maximum m = values->maximum[i];

        if (m.value != 0)
            larger.maximum[maximum_slot(&larger, m.value)] = m;
    }
    free(values->maximum);
    values->maximum = larger.maximum;
    values->maxima_room = larger.maxima_room;
    return HD_OK;
}

// Numbers that programs name are, nearly all of them, some 256ths, and of an
// element that is none of them such a number is one of 2^30.
static bool is_known(uint64_t x, int64_t *number)
{
    const uint64_t most = (uint64_t)1 << 30;
    uint64_t scaled = hd_field_multiply(x, 256);

    *number = scaled < most ? (int64_t)scaled
                            : -(int64_t)hd_field_subtract(0, scaled);
    return scaled < most || scaled > HD_FIELD_PRIME - most;
}

static hd_best better_of(hd_fold fold, hd_best a, hd_best b)
{
    if (!a.any || !b.any)
        return a.any ? a : b;
    return (fold == HD_FOLD_MAX) == (a.number > b.number) ? a : b;
}

// What an operand adds to a maximum: one that is a maximum, all that it is of.
static hd_maximum part_of_maximum(const hd_values *values, hd_fold fold,
                                  uint64_t value, bool compares)
{
    const hd_maximum *known =
        values->maxima_room > 0 && value != 0
            ? &values->maximum[maximum_slot(values, value)]
            : NULL;
    hd_maximum one = {.fold = fold};

    if (known != NULL && known->value == value && known->fold == fold)
        return *known;
    one.best.any =
        (compares || value == 0) && is_known(value, &one.best.number);
    if (!one.best.any)
        one.of = hd_field_mix(KEY_OPERAND, value);
    return one;
}

// The maximum of which those are the parts, added up, and the known number.
static uint64_t make_maximum(hd_values *values, hd_fold fold, uint64_t parts,
                             hd_best best)
{
    uint64_t number =
        best.any ? hd_field_mix(KEY_NUMBER, (uint64_t)best.number) : 0;
    hd_maximum m = {hd_field_mix(KEY_FOLD + fold, hd_field_add(parts, number)),
                    parts, best, fold};
    int64_t slot;

    if (2 * (values->nmaxima + 1) > values->maxima_room)
        note_status(values, grow_maxima(values));
    if (values->status != HD_OK)
        return m.value;
    slot = maximum_slot(values, m.value);
    values->nmaxima += values->maximum[slot].value != m.value;
    values->maximum[slot] = m;
    return m.value;
}

static uint64_t load(const hd_values *values, const hd_span *span, int64_t i)
{
    return values->value[hd_span_place(span, i)];
}

static uint64_t neutral_of(hd_fold fold)
{
    return hd_field_mix(KEY_NEUTRAL, (uint64_t)fold);
}

// What is beyond all numbers of its dtype as a cast makes it of the largest, or
// of f64, which has that, twice the largest.
static bool is_neutral(hd_fold fold, uint64_t x)
{
    double far = fold == HD_FOLD_MAX ? -DBL_MAX : DBL_MAX;

    return fold != HD_FOLD_SUM &&
           (x == neutral_of(fold) ||
            x == hd_field_multiply(hd_field_of_double(far),
                                   hd_field_of_double(2)));
}

// What is joined of several.
typedef struct joined {
    uint64_t parts, last;
    int64_t n;
    hd_best best;
    bool unknown; // some are no known number
} joined;

enum { MOST_KEPT = 4 }; // of each unit

// How often an index of a dimension counts that is kept.
typedef struct weight {
    int64_t times;   // as an integer
    uint64_t number; // as one of the field
} weight;

// Of a piece of n indices one that is kept stands for w of them and the other
// one for n - w. What holds for n numbers holds where w are one number and the
// rest another, for each w from 0 to n, and so for any w: it is a random one.
// Of two each is told apart.
static weight weight_of(const hd_values *values, hd_grain grain, int64_t k)
{
    hd_piece piece = hd_grain_piece(grain, k);
    weight w = {hd_grain_weight(grain, k), 1};

    if (piece.length <= 2)
        return w;
    w.number = hd_draw_number(values->draw,
                              hd_field_mix(KEY_UNIT, (uint64_t)piece.length));
    if (piece.number != 0)
        w.number =
            hd_field_subtract(hd_field_of_integer(piece.length), w.number);
    return w;
}

// Of each unit the same.
typedef struct weights {
    int64_t n;
    weight of[MOST_KEPT];
} weights;

static weights weights_of(const hd_values *values, hd_grain grain)
{
    weights w = {.n = hd_grain_period(grain)};

    for (int64_t k = 0; k < w.n; k++)
        w.of[k] = weight_of(values, grain, k);
    return w;
}

// What counts is an integer, and what is made of counts is not known, but for
// zeros, as they are where counts leave nothing.
static void join_value(const hd_values *values, hd_fold fold, hd_dtype dtype,
                       uint64_t x, weight w, joined *out)
{
    uint64_t part = x;

    if (is_neutral(fold, x))
        return;
    if (fold != HD_FOLD_SUM) {
        hd_maximum m =
            part_of_maximum(values, fold, x, !hd_dtype_is_integer(dtype));

        part = m.of;
        out->best = better_of(fold, out->best, m.best);
        out->unknown |= part != 0;
    }
    if (w.number != 1)
        part = hd_field_multiply(part, w.number);
    out->parts = hd_field_add(out->parts, part);
    out->last = x;
    out->n += w.times;
}

static uint64_t number_value(int64_t number)
{
    return hd_field_of_double((double)number / 256);
}

static uint64_t joined_value(hd_values *values, hd_fold fold, const joined *all)
{
    return fold == HD_FOLD_SUM ? all->parts
           : all->n == 0       ? neutral_of(fold)
           : all->n == 1       ? all->last
           : !all->unknown     ? number_value(all->best.number)
                           : make_maximum(values, fold, all->parts, all->best);
}

static void join(void *memory, hd_fold fold, hd_dtype dtype, int64_t to,
                 const int64_t *from, int64_t n, hd_grain grain)
{
    hd_values *values = memory;
    weights w = weights_of(values, grain);
    joined all = {0};

    for (int64_t k = 0; k < n; k++)
        join_value(values, fold, dtype, values->value[from[k]], w.of[k % w.n],
                   &all);
    hd_values_put(values, to, joined_value(values, fold, &all));
}

// -------------------------------------------------------------- conversions

uint64_t hd_value_convert(hd_dtype from, hd_dtype to, uint64_t x)
{
    return x == 0 || hd_dtype_holds(to, from)
               ? x
               : hd_field_mix(KEY_CONVERT + to, x);
}

static hd_dtype dtype_of(const hd_op *op, int view)
{
    return op->view[view].buffer->type.dtype;
}

// ------------------------------------------------------------- element-wise

static uint64_t factor_of(const hd_values *values, const hd_work_item *item,
                          hd_key_code code)
{
    const hd_key *key = hd_op_key(item->step.op, code);

    if (key == NULL)
        return 1;
    return key->view >= 0 ? load(values, &item->span[key->view], 0)
                          : hd_field_of_double(key->number);
}

static uint64_t scaled(const hd_values *values, const hd_work_item *item,
                       uint64_t x)
{
    const hd_key *key = hd_op_key(item->step.op, HD_KEY_BY);
    uint64_t factor = factor_of(values, item, HD_KEY_BY);
    bool whole = key->view < 0 && key->number == trunc(key->number);

    if (whole || !hd_dtype_is_integer(dtype_of(item->step.op, 0)))
        return hd_field_multiply(x, factor);
    return hd_field_mix(KEY_TRUNCATE,
                        hd_field_add(x, hd_field_mix(KEY_LEFT, factor)));
}

// ------------------------------------------------------------------- counts

// A random function of two, in this order.
static uint64_t mix_pair(uint64_t key, uint64_t x, uint64_t y)
{
    return hd_field_mix(key, hd_field_add(x, hd_field_mix(KEY_LEFT, y)));
}

static void forget(void *memory, int64_t to, int64_t from)
{
    hd_values *values = memory;

    hd_values_put(values, to, hd_field_mix(KEY_BEHIND, values->value[from]));
}

// Whatever rows there are beside it, so that findings stay what they are.
static uint64_t key_of(hd_map map)
{
    const char *text = hd_map_text(map);

    return KEY_MAP + ((uint64_t)hd_name_hash(text, strlen(text)) << 16);
}

// A mask that is the same takes of each as much: so what is selected of equal
// ones is that one.
static uint64_t chosen(uint64_t mask, uint64_t x, uint64_t y)
{
    uint64_t share = hd_field_mix(key_of(HD_MAP_SELECT), mask);

    return hd_field_add(y, hd_field_multiply(share, hd_field_subtract(x, y)));
}

// What the map makes of its operands; `whole` are integers. What is linear in
// one operand stays so, and what is in none is random.
static uint64_t map_values(hd_map map, const uint64_t *x, bool whole)
{
    switch (map) {
    case HD_MAP_NONE:
    case HD_MAP_SCALE: // `scaled`
    case HD_MAP_FILL:  // `filled`
        break;
    case HD_MAP_ADD:
        return hd_field_add(x[0], x[1]);
    case HD_MAP_SUB:
        return hd_field_subtract(x[0], x[1]);
    case HD_MAP_NEG:
        return hd_field_subtract(0, x[0]);
    case HD_MAP_MUL:
        return hd_field_multiply(x[0], x[1]);
    case HD_MAP_DIV:
        return whole ? mix_pair(key_of(map), x[0], x[1])
                     : hd_field_multiply(x[0], hd_field_mix(key_of(map), x[1]));
    case HD_MAP_SELECT:
        return chosen(x[0], x[1], x[2]);
    case HD_MAP_RELU_GRAD:
    case HD_MAP_GELU_GRAD:
    case HD_MAP_GELU_ERF_GRAD:
    case HD_MAP_SILU_GRAD:
        return hd_field_multiply(x[1], hd_field_mix(key_of(map), x[0]));
#define ALL(...)
#define EACH(...)
#define FIRST(...)
#define SECOND(...)
#define LATER(...)
#define CURVED(code, inputs) CURVED_##inputs(code)
#define CURVED_0(...)
#define CURVED_1(code)  \
    case HD_MAP_##code: \
        return hd_field_mix(key_of(map), x[0]);
#define CURVED_2(code)  \
    case HD_MAP_##code: \
        return mix_pair(key_of(map), x[0], x[1]);
#define HD_OP(...)
#define HD_MAP(code, text, numbers, shape, inputs, ...) shape(code, inputs)
#include "ir/ops.def"
    }
    return x[0];
}

// What a number that is stored is, as the text has it: one that the dtype does
// not hold is rounded.
static uint64_t stored_value(hd_dtype dtype, double number)
{
    uint64_t value = hd_field_of_double(number);
    double stored = hd_dtype_round(dtype, number);

    if (stored >= number && stored <= number)
        return value;
    if (stored <= hd_dtype_round(dtype, -DBL_MAX))
        return neutral_of(HD_FOLD_MAX);
    if (stored >= hd_dtype_round(dtype, DBL_MAX))
        return neutral_of(HD_FOLD_MIN);
    return hd_field_mix(KEY_CONVERT + dtype, value);
}

static uint64_t filled(const hd_values *values, const hd_work_item *item)
{
    const hd_key *key = hd_op_key(item->step.op, HD_KEY_VALUE);
    hd_dtype dtype = dtype_of(item->step.op, 0);

    return key->view >= 0
               ? hd_value_convert(HD_DTYPE_F32, dtype,
                                  factor_of(values, item, HD_KEY_VALUE))
               : stored_value(dtype, key->number);
}

// A copy and a factor alone may have another dtype than what it is of; what a
// comparison makes is
// no number of its operands' dtype.
static void map(void *memory, const hd_work_item *item, int64_t to,
                const int64_t *from)
{
    hd_values *values = memory;
    const hd_op *op = item->step.op;
    hd_map map = hd_op_info_get(op->code)->map;
    uint64_t x[HD_MAX_OPERANDS];

    for (int k = 0; k < hd_op_operands(op); k++)
        x[k] = values->value[from[k]];
    if (map == HD_MAP_NONE)
        x[0] = hd_value_convert(dtype_of(op, 1), dtype_of(op, 0), x[0]);
    else if (map == HD_MAP_SCALE)
        x[0] = hd_value_convert(dtype_of(op, 1), dtype_of(op, 0),
                                scaled(values, item, x[0]));
    else if (map == HD_MAP_FILL)
        x[0] = filled(values, item);
    else
        x[0] = map_values(
            map, x, hd_dtype_is_integer(dtype_of(op, hd_op_number_view(op))));
    hd_values_put(values, to, x[0]);
}

// What an index takes is not known: the k-th element of the whole dimension,
// from 1 on, has a share, the k-th power of a random function of the index. So
// what stands for others has the sum of theirs, however finely a dimension is
// told apart. What is zero adds nothing, as an index beyond the end does.
typedef struct shares {
    int64_t n;                // of each unit, one that is kept after the other:
    uint64_t many[MOST_KEPT]; // of what it stands for
    uint64_t step[MOST_KEPT]; // the share of the one behind that
    uint64_t first;           // the share of what `start` says is first
} shares;

// 1 + x + .. + x^(n - 1), and x^n, by the bits of n.
static void sum_powers(uint64_t x, int64_t n, uint64_t *sum, uint64_t *power)
{
    *sum = 0;
    *power = 1;
    for (int bit = 62; bit >= 0; bit--) {
        if (n >> bit == 0)
            continue;
        *sum = hd_field_multiply(*sum, hd_field_add(*power, 1));
        *power = hd_field_multiply(*power, *power);
        if ((n >> bit & 1) == 0)
            continue;
        *sum = hd_field_add(*sum, *power);
        *power = hd_field_multiply(*power, x);
    }
}

static shares shares_of(uint64_t index, int64_t start, hd_grain grain)
{
    uint64_t base = hd_field_mix(KEY_TAKE, index);
    shares s = {.n = hd_grain_period(grain),
                .first = hd_field_power(base, (unsigned)start + 1)};

    for (int64_t k = 0; k < s.n; k++)
        sum_powers(base, hd_grain_weight(grain, k), &s.many[k], &s.step[k]);
    return s;
}

static uint64_t taken(const shares *s, const uint64_t *x, int64_t stride,
                      int64_t n)
{
    uint64_t total = 0, power = s->first;

    for (int64_t k = 0; k < n; k++) {
        uint64_t share = hd_field_multiply(power, s->many[k % s->n]);

        total = hd_field_add(total, hd_field_multiply(share, x[k * stride]));
        power = hd_field_multiply(power, s->step[k % s->n]);
    }
    return total;
}

static void take(void *memory, int64_t to, int64_t index, int64_t start,
                 int64_t first, int64_t stride, int64_t n, hd_grain grain)
{
    hd_values *values = memory;
    shares s = shares_of(values->value[index], start, grain);

    hd_values_put(values, to, taken(&s, &values->value[first], stride, n));
}

// As if each index were an argument's element: numbers would be taken for equal
// that are so at those places alone that stand for others.
static void place(void *memory, int64_t to, int64_t index)
{
    hd_values_put(memory, to, hd_field_mix(KEY_PLACE, (uint64_t)index));
}

// ------------------------------------------------------------------- matmul

// Where the scales of an operand lie, if it has any.
typedef struct scales {
    bool any;
    hd_span along;         // along the result
    int64_t behind, lines; // rows (columns) are these elements of it, so many
    int64_t grain, stride; // and have a scale each so many
    int64_t k_grain, k_stride;
    int64_t to_group; // of a grouped product, to those of the next matrix
} scales;

// How many indices that are kept have one scale in common. Those of an operand
// are told apart so that it is a number of units.
static int64_t kept_grain(const hd_work_item *item, const hd_space *space,
                          int view, int operand, int d)
{
    hd_grain grain = item->grain[operand][space->dim[operand][d]];

    return hd_space_is_grained(space, view, d)
               ? hd_grain_kept(grain, hd_op_grain(item->step.op))
               : 1;
}

static scales scales_of(const hd_work_item *item, const hd_space *space,
                        int view)
{
    int operand = view == hd_op_key_view(item->step.op, HD_KEY_SCALE_A) ? 1 : 2;
    int k = space->nparallel, line = operand == 1 ? k - 2 : k - 1;
    const int64_t *stride = item->span[view].stride;
    scales s = {.any = true,
                .along = hd_space_span(space, &item->step, view),
                .behind = operand == 1 ? space->extent[k - 1] : 1,
                .lines = 1,
                .grain = 1,
                .k_grain = 1,
                .to_group = operand == 2
                                ? hd_space_to_group(&item->step, HD_KEY_SCALE_B)
                                : 0};

    if (line >= 0 && hd_space_is_grained(space, view, line)) {
        s.lines = space->extent[line];
        s.grain = kept_grain(item, space, view, operand, line);
        s.stride = stride[space->dim[view][line]];
    }
    if (space->dim[view][k] != HD_REPEATED) {
        s.k_grain = kept_grain(item, space, view, operand, k);
        s.k_stride = stride[space->dim[view][k]];
    }
    return s;
}

// Of term `k` of element `i` of the result.
static int64_t scale_at(const scales *s, int64_t i, int64_t k)
{
    return hd_span_place(&s->along, i) +
           i / s->behind % s->lines / s->grain * s->stride +
           k / s->k_grain * s->k_stride;
}

// The terms of one element, each a product; the contracted dimension is taken
// by indices that stand for others.
typedef struct product {
    hd_span a, b;               // along the result
    int64_t a_stride, b_stride; // along the contracted dimension
    int64_t k;
    weights weights;
    scales scales[2];
} product;

static product product_of(const hd_values *values, const hd_work_item *item,
                          const hd_space *space)
{
    int k = space->nparallel;
    const hd_span *a = &item->span[1], *b = &item->span[2];
    static const hd_key_code code[] = {HD_KEY_SCALE_A, HD_KEY_SCALE_B};
    scales scales[2] = {{0}};

    for (int i = 0; i < 2; i++)
        if (hd_op_key(item->step.op, code[i]) != NULL)
            scales[i] =
                scales_of(item, space, hd_op_key_view(item->step.op, code[i]));
    return (product){.a = hd_space_span(space, &item->step, 1),
                     .b = hd_space_span(space, &item->step, 2),
                     .a_stride = a->stride[space->dim[1][k]],
                     .b_stride = b->stride[space->dim[2][k]],
                     .k = space->extent[k],
                     .weights =
                         weights_of(values, item->grain[1][space->dim[1][k]]),
                     .scales = {scales[0], scales[1]}};
}

static uint64_t term_weight(const product *p, int64_t k)
{
    return p->weights.of[k % p->weights.n].number;
}

// Terms of one weight are added up first, and reduced where they might
// overflow.
static uint64_t dot(const hd_values *values, const product *p, int64_t i)
{
    const uint64_t *left = &values->value[hd_span_place(&p->a, i)];
    const uint64_t *right = &values->value[hd_span_place(&p->b, i)];
    hd_wide sum[MOST_KEPT] = {0};
    int64_t same = 0; // k mod p->weights.n
    uint64_t total = 0;

    for (int64_t k = 0; k < p->k; k++) {
        if (k % HD_FIELD_PRODUCTS >= HD_FIELD_PRODUCTS - p->weights.n)
            sum[same] = hd_field_reduce(sum[same]);
        sum[same] += (hd_wide)left[k * p->a_stride] * right[k * p->b_stride];
        same = same + 1 < p->weights.n ? same + 1 : 0;
    }
    for (int64_t k = 0; k < p->weights.n; k++)
        total = hd_field_add(total, hd_field_multiply(hd_field_reduce(sum[k]),
                                                      term_weight(p, k)));
    return total;
}

// The scales of term `k` of element `i`, of matrix `m`, times each other.
static uint64_t scale_of(const hd_values *values, const product *p, int64_t i,
                         int64_t k, int64_t m)
{
    uint64_t x = 1;

    for (int s = 0; s < 2; s++)
        if (p->scales[s].any)
            x = hd_field_multiply(x,
                                  values->value[scale_at(&p->scales[s], i, k) +
                                                m * p->scales[s].to_group]);
    return x;
}

// Terms that have scales, each with its own.
static uint64_t scaled_dot(const hd_values *values, const product *p, int64_t i)
{
    const uint64_t *left = &values->value[hd_span_place(&p->a, i)];
    const uint64_t *right = &values->value[hd_span_place(&p->b, i)];
    uint64_t total = 0;

    for (int64_t k = 0; k < p->k; k++) {
        uint64_t x =
            hd_field_multiply(left[k * p->a_stride], right[k * p->b_stride]);

        x = hd_field_multiply(x, scale_of(values, p, i, k, 0));
        total = hd_field_add(total, hd_field_multiply(x, term_weight(p, k)));
    }
    return total;
}

// The counts of a grouped product decide which matrix a row takes, and are not
// known: each matrix has a share in each row, a random function of all counts,
// of how many rows there are, of the row and of the matrix. So the product of a
// part of the rows is another one, as it is with data: its counts may not fit.
typedef struct grouping {
    int64_t matrices, stride; // of b; 1 with `ta`
    int64_t to_bias;          // from a matrix' row of the bias to the next
    int64_t each; // elements of the result that are of one row, with
                  // `ta` of one matrix
    uint64_t counts;
    bool ta;
} grouping;

static bool is_grouped(const hd_work_item *item)
{
    return hd_op_key(item->step.op, HD_KEY_GROUPS) != NULL;
}

// Whether every element is of all matrices of the second operand.
static bool is_stacked(const hd_work_item *item)
{
    return is_grouped(item) && hd_op_key(item->step.op, HD_KEY_TA) == NULL;
}

// Of an index of the first dimension.
static int64_t elements_behind(const hd_span *tile)
{
    hd_span one = hd_span_slice(tile, 0, 0);

    return hd_span_elements(&one);
}

uint64_t hd_values_counts(const hd_values *values, uint64_t room,
                          hd_span counts)
{
    uint64_t x = room;

    for (int64_t i = 0; i < counts.extent[0]; i++)
        x = mix_pair(KEY_GROUP, load(values, &counts, i), x);
    return x;
}

static grouping grouping_of(const hd_values *values, const hd_work_item *item)
{
    const hd_span *out = &item->span[0], *b = &item->span[2];
    const hd_span *counts =
        &item->span[hd_op_key_view(item->step.op, HD_KEY_GROUPS)];
    grouping g = {.matrices = 1,
                  .to_bias = hd_space_to_group(&item->step, HD_KEY_BIAS),
                  .each = elements_behind(out),
                  .ta = !is_stacked(item)};

    if (!g.ta) {
        g.matrices = b->extent[0];
        g.stride = b->stride[0];
    }
    g.counts =
        hd_values_counts(values, (uint64_t)hd_item_extent(item, 1, 0), *counts);
    return g;
}

static uint64_t share_of(const grouping *g, int64_t row, int64_t matrix)
{
    return mix_pair(KEY_GROUP, g->counts,
                    mix_pair(KEY_GROUP, (uint64_t)row, (uint64_t)matrix));
}

// What element i has of its old value where rows of no group are kept.
static uint64_t kept_share(const grouping *g, int64_t i)
{
    return mix_pair(KEY_NO_GROUP, g->counts, (uint64_t)(i / g->each));
}

static uint64_t grouped_dot(const hd_values *values, const product *p,
                            const grouping *g, int64_t i)
{
    const uint64_t *left = &values->value[hd_span_place(&p->a, i)];
    const uint64_t *right = &values->value[hd_span_place(&p->b, i)];
    uint64_t total = 0;

    for (int64_t m = 0; m < g->matrices; m++)
        for (int64_t k = 0; k < p->k; k++) {
            uint64_t x = hd_field_multiply(
                left[k * p->a_stride], right[k * p->b_stride + m * g->stride]);
            uint64_t share = g->ta ? share_of(g, k, i / g->each)
                                   : share_of(g, i / g->each, m);

            x = hd_field_multiply(x, term_weight(p, k));
            x = hd_field_multiply(x, scale_of(values, p, i, k, m));
            total = hd_field_add(total, hd_field_multiply(x, share));
        }
    return total;
}

// What element i has of the bias, which no row of no group has.
static uint64_t grouped_bias(const hd_values *values, const hd_span *bias,
                             const grouping *g, int64_t i)
{
    const uint64_t *row = &values->value[hd_span_place(bias, i)];
    uint64_t total = 0;

    for (int64_t m = 0; m < g->matrices; m++)
        total =
            hd_field_add(total, hd_field_multiply(share_of(g, i / g->each, m),
                                                  row[m * g->to_bias]));
    return total;
}

static hd_status multiply(void *memory, const hd_work_item *item)
{
    hd_values *values = memory;
    const hd_op *op = item->step.op;
    const hd_key *act = hd_op_key(op, HD_KEY_ACT);
    const hd_span *out = &item->span[0];
    int of_bias = hd_op_key_view(op, HD_KEY_BIAS);
    int aux = hd_op_key_view(op, HD_KEY_AUX);
    uint64_t factor = factor_of(values, item, HD_KEY_SCALE);
    int64_t n = hd_span_elements(out);
    grouping groups = {0};
    hd_space space;
    hd_span bias;
    product p;

    hd_space_of_step(&item->step, &space);
    p = product_of(values, item, &space);
    bias = hd_space_span(&space, &item->step, of_bias >= 0 ? of_bias : 0);
    if (is_grouped(item))
        groups = grouping_of(values, item);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = is_grouped(item) ? grouped_dot(values, &p, &groups, i)
                     : p.scales[0].any || p.scales[1].any
                         ? scaled_dot(values, &p, i)
                         : dot(values, &p, i);

        x = hd_field_multiply(x, factor);
        if (of_bias >= 0)
            x = hd_field_add(x, is_grouped(item)
                                    ? grouped_bias(values, &bias, &groups, i)
                                    : load(values, &bias, i));
        if (aux >= 0)
            hd_values_put(
                values, hd_span_place(&item->span[aux], i),
                hd_value_convert(dtype_of(op, 1), dtype_of(op, aux), x));
        if (act != NULL)
            x = map_values(hd_act_map(act->act), &x, false);
        if (hd_op_key(op, HD_KEY_ACCUMULATE) != NULL)
            x = hd_field_add(x, load(values, out, i));
        if (hd_op_key(op, HD_KEY_KEEP) != NULL)
            x = hd_field_add(x, hd_field_multiply(kept_share(&groups, i),
                                                  load(values, out, i)));
        x = hd_value_convert(dtype_of(op, 1), dtype_of(op, 0), x);
        hd_values_put(values, hd_span_place(out, i), x);
    }
    return HD_OK;
}

// ----------------------------------------------------------- picks and calls

// Which function it is. How many dimensions are together tell their extents.
static uint64_t function_of(const hd_op *op)
{
    const char *name;

    if (hd_op_family(op) != HD_FAMILY_CALL)
        return (uint64_t)op->code;
    name = hd_op_callee(op);
    return hd_field_mix(KEY_CALL, hd_name_hash(name, strlen(name)));
}

// A random function of all that the element of the batch is made of, and of how
// much that and the results are in each dimension.
static uint64_t digest_of(const hd_values *values, const hd_work_item *item,
                          int64_t number)
{
    uint64_t x = function_of(item->step.op);

    for (int view = 0; view < item->step.op->nviews; view++) {
        hd_span tile = hd_batch_span(&item->step, view, number);

        for (int d = item->span[view].ndims - tile.ndims;
             d < item->span[view].ndims; d++)
            x = mix_pair(KEY_PICK, (uint64_t)hd_item_extent(item, view, d), x);
        for (int64_t i = 0;
             hd_op_access(item->step.op, view) != HD_ACCESS_WRITE &&
             i < hd_span_elements(&tile);
             i++)
            x = mix_pair(KEY_PICK, load(values, &tile, i), x);
    }
    return x;
}

static int64_t places_of(const hd_work_item *route)
{
    return hd_item_extent(route, 0, route->span[0].ndims - 1);
}

// How many places of an expert are taken, is a count, and a number if anything
// is counted.
static bool is_route_count(const hd_values *values, const hd_work_item *item,
                           int view)
{
    return item->step.op->code == HD_OP_ROUTE && view == 2 &&
           values->draw->counts;
}

// Each element of a result is a random function of that, of where it is and of
// which result.
static hd_status pick(void *memory, const hd_work_item *item)
{
    hd_values *values = memory;

    for (int64_t b = 0; b < hd_batch_elements(&item->step); b++) {
        uint64_t digest = digest_of(values, item, b);

        for (int view = 0; view < item->step.op->noutputs; view++) {
            hd_span out = hd_batch_span(&item->step, view, b);
            uint64_t key = mix_pair(KEY_PICK, digest, (uint64_t)view);
            int64_t n = hd_span_elements(&out);

            for (int64_t i = 0; i < n; i++) {
                uint64_t x = mix_pair(KEY_PICK, key, (uint64_t)i);

                if (is_route_count(values, item, view))
                    x = (uint64_t)hd_draw_count(values->draw, x,
                                                places_of(item));
                hd_values_put(values, hd_span_place(&out, i), x);
            }
        }
    }
    return HD_OK;
}

// ---------------------------------------------------------------- attention

static hd_status attend(void *memory, const hd_work_item *item)
{
    hd_values *values = memory;
    const hd_span *q = &item->span[item->step.op->noutputs];
    bool scales = hd_op_key(item->step.op, HD_KEY_SCALE) != NULL;

    return hd_values_attend(
        values, item,
        scales ? factor_of(values, item, HD_KEY_SCALE)
               : hd_field_of_double(1 / sqrt((double)q->extent[q->ndims - 1])));
}

// -------------------------------------------------------------------- whole

static void copy(void *memory, int64_t to, int64_t from)
{
    hd_values *values = memory;

    hd_values_put(values, to, values->value[from]);
}

static void clear(void *memory, int64_t at)
{
    hd_values_put(memory, at, 0);
}

static void number(void *memory, int64_t at, hd_dtype dtype, double number)
{
    hd_values *values = memory;

    values->value[at] = stored_value(dtype, number);
}

static int64_t count(const void *memory, int64_t at, int64_t room)
{
    const hd_values *values = memory;
    int64_t n = hd_draw_counted(values->draw, values->value[at]);

    return n < room ? n : room;
}

static void begin(void *memory, int64_t node)
{
    hd_values *values = memory;

    values->node = node;
}

const hd_algebra hd_field = {map,    join,   take, place, multiply,
                             pick,   attend, copy, clear, forget,
                             number, count,  begin};

bool hd_op_is_move(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_TRANSPOSE ||
           (hd_op_family(op) == HD_FAMILY_COPY && !hd_op_has_counts(op) &&
            hd_dtype_holds(dtype_of(op, 0), dtype_of(op, 1)));
}

// ------------------------------------------------------------------ origins

// Of the reduced dimension.
static int64_t terms_of(const hd_space *space, int view)
{
    return space->ndims > space->nparallel &&
                   space->dim[view][space->nparallel] != HD_REPEATED
               ? space->extent[space->nparallel]
               : 1;
}

// From one matrix of those that every element is of to the next, or to its row
// of the bias; 0 if the view has none.
static int64_t to_matrix(const hd_work_item *item, int view)
{
    static const hd_key_code by_groups[] = {HD_KEY_BIAS, HD_KEY_SCALE_B};

    if (!is_stacked(item))
        return 0;
    if (view == 2)
        return item->span[2].stride[0];
    for (int i = 0; i < 2; i++)
        if (view == hd_op_key_view(item->step.op, by_groups[i]))
            return hd_space_to_group(&item->step, by_groups[i]);
    return 0;
}

static bool is_counts(const hd_work_item *item, int view)
{
    return is_grouped(item) &&
           hd_op_key_view(item->step.op, HD_KEY_GROUPS) == view;
}

// Of an op that does each element of a batch by itself.
static hd_span read_of_batch(const hd_work_item *item, int view, int64_t b)
{
    return is_counts(item, view) ? hd_attention_counts(&item->step, b)
                                 : hd_batch_span(&item->step, view, b);
}

int64_t hd_compute_find(const hd_work_item *item, int64_t at)
{
    if (!hd_op_is_batched(item->step.op))
        return hd_span_find(&item->span[0], at);
    for (int view = 0; view < item->step.op->noutputs; view++) {
        int64_t i = hd_span_find(&item->span[view], at);

        if (i >= 0)
            return i / (hd_span_elements(&item->span[view]) /
                        hd_batch_elements(&item->step));
    }
    return -1;
}

int64_t hd_compute_terms(const hd_work_item *item, int view)
{
    hd_space space;

    if (!hd_op_is(item->step.op, HD_UNIT_COMPUTE))
        return 1;
    if (hd_op_is_batched(item->step.op)) {
        hd_span tile = read_of_batch(item, view, 0);

        return hd_span_elements(&tile);
    }
    if (is_counts(item, view))
        return hd_span_elements(&item->span[view]);
    hd_space_of_step(&item->step, &space);
    return terms_of(&space, view) *
           (to_matrix(item, view) != 0 ? item->span[2].extent[0] : 1);
}

// Of each row and each key the products.
static double attend_work(const hd_work_item *item)
{
    hd_attention a = hd_attention_of(&item->step);
    double results = (double)hd_span_elements(&item->span[0]);
    double keys = (double)a.nkeys, depth = (double)a.depth;
    double wide = (double)a.wide;

    switch (hd_op_attend(item->step.op)) {
    case HD_ATTEND_ATTENTION:
        return results / wide * keys * (depth + wide);
    case HD_ATTEND_ATTENTION_GRAD:
        return results / depth * keys * (3 * depth + 2 * wide);
    case HD_ATTEND_MERGE:
    case HD_ATTEND_NONE:
        break;
    }
    return 2 * results;
}

double hd_compute_work(const hd_work_item *item)
{
    double n = 0;

    if (hd_op_family(item->step.op) == HD_FAMILY_ATTEND)
        return attend_work(item);
    if (!hd_op_is_batched(item->step.op))
        return (double)hd_span_elements(&item->span[0]) *
               (double)hd_compute_terms(item, is_stacked(item) ? 2 : 1);
    for (int view = 0; view < item->step.op->nviews; view++)
        n += (double)hd_span_elements(&item->span[view]);
    return n;
}

int64_t hd_compute_place(const hd_work_item *item, int64_t i, int view,
                         int64_t k)
{
    const hd_span *tile = &item->span[view];
    hd_span along;
    hd_space space;
    int64_t n, at;

    if (!hd_op_is(item->step.op, HD_UNIT_COMPUTE))
        return hd_span_place(tile, i % hd_span_elements(tile));
    if (hd_op_is_batched(item->step.op)) {
        along = read_of_batch(item, view, i);
        return hd_span_place(&along, k);
    }
    if (is_counts(item, view))
        return hd_span_place(tile, k);
    hd_space_of_step(&item->step, &space);
    along = hd_space_span(&space, &item->step, view);
    n = terms_of(&space, view);
    if (hd_op_has_scales(item->step.op, view)) {
        scales s = scales_of(item, &space, view);

        return scale_at(&s, i, k % n) + k / n * to_matrix(item, view);
    }
    at = hd_span_place(&along, i);
    if (n > 1)
        at += k % n * tile->stride[space.dim[view][space.nparallel]];
    return at + k / n * to_matrix(item, view);
}
