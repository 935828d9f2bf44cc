// Written to be read: plain loops over every element, no blocking but for the
// matmul's order of loops. With the kernels that it judges it shares what says
// where elements lie, ir/space and ir/product, and no arithmetic.
#include <heddle/verify.h>

#include "oracle/numeric.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/dtype.h"
#include "eval/attend.h"
#include "ir/product.h"
#include "ir/signature.h"

// How many standard deviations independent errors may add up to.
static const double LAMBDA = 6;

typedef hd_estimate item;

// ----------------------------------------------------------------- access

// The element of a span with row-major number i.
static item load(const hd_span *span, const item *memory, int64_t i)
{
    return memory[hd_span_place(span, i)];
}

static double unit_of_compute(hd_dtype dtype)
{
    return dtype == HD_DTYPE_F64 ? 0x1p-53 : 0x1p-24;
}

// What is left of 64 bits in the width of an integer dtype.
static int64_t wrap(hd_dtype dtype, int64_t whole)
{
    if (dtype == HD_DTYPE_I32)
        return (int32_t)(uint32_t)(uint64_t)whole;
    if (dtype == HD_DTYPE_I8)
        return (int8_t)(uint8_t)(uint64_t)whole;
    return dtype == HD_DTYPE_U8 ? (uint8_t)(uint64_t)whole : whole;
}

// Half the distance between neighbours of the format at x: what one rounding
// may err there. Zero is a number of every format.
static double half_step(hd_dtype dtype, double x)
{
    int exponent;

    if (!isfinite(x) || !(x > 0))
        return 0;
    (void)frexp(x, &exponent); // x is in [2^(exponent - 1), 2^exponent)
    return hd_dtype_unit(dtype) * ldexp(1, exponent - 1) + hd_dtype_tiny(dtype);
}

// What storing in the dtype does: one rounding, which the bound takes in.
static void store_place(hd_dtype dtype, item *memory, int64_t at, item x)
{
    if (hd_dtype_is_integer(dtype)) {
        x.whole = wrap(dtype, x.whole);
        x.value = (double)x.whole;
    } else {
        x.bound += half_step(dtype, fabs(x.value) + x.bound);
        if (isnan(x.bound))
            x.bound = INFINITY; // any value is right
        if (dtype == HD_DTYPE_F8E4M3 && fabs(x.value) > 448)
            x.value = copysign(448, x.value);
        x.whole = 0;
    }
    memory[at] = x;
}

static void store(const hd_span *span, item *memory, int64_t i, item x)
{
    store_place(span->buffer->type.dtype, memory, hd_span_place(span, i), x);
}

// A count as it is taken: of no less than no indices, of no more than there is
// room for.
static int64_t count(const void *memory, int64_t at, int64_t room)
{
    int64_t n = ((const item *)memory)[at].whole;

    return n < 0 ? 0 : n < room ? n : room;
}

// ------------------------------------------------------------- arithmetic

// What one rounding in the unit may err; an infinity and a NaN are exact.
static double rounding(double unit, double value)
{
    return isfinite(value) ? unit * fabs(value) : 0;
}

static item add(item x, item y, double unit)
{
    double value = x.value + y.value;

    return (item){value, x.bound + y.bound + rounding(unit, value),
                  (int64_t)((uint64_t)x.whole + (uint64_t)y.whole)};
}

static item multiply(item x, item y, double unit)
{
    double value = x.value * y.value;

    return (item){value,
                  fabs(x.value) * y.bound + fabs(y.value) * x.bound +
                      x.bound * y.bound + rounding(unit, value),
                  (int64_t)((uint64_t)x.whole * (uint64_t)y.whole)};
}

static item larger(item x, item y)
{
    item result = x.value > y.value || isnan(x.value) ? x : y;

    result.bound = x.bound > y.bound ? x.bound : y.bound;
    result.whole = x.whole > y.whole ? x.whole : y.whole;
    return result;
}

static item smaller(item x, item y)
{
    item result = x.value < y.value || isnan(x.value) ? x : y;

    result.bound = x.bound > y.bound ? x.bound : y.bound;
    result.whole = x.whole < y.whole ? x.whole : y.whole;
    return result;
}

static item join(hd_fold fold, item x, item y, double unit)
{
    switch (fold) {
    case HD_FOLD_SUM:
        return add(x, y, unit);
    case HD_FOLD_MAX:
        return larger(x, y);
    case HD_FOLD_MIN:
        return smaller(x, y);
    case HD_FOLD_NONE:
        break;
    }
    return x;
}

static item negated(item x)
{
    return (item){-x.value, x.bound, (int64_t)(0 - (uint64_t)x.whole)};
}

static item absolute(item x)
{
    return x.whole < 0 || x.value < 0 ? negated(x)
                                      : (item){fabs(x.value), x.bound, x.whole};
}

// Toward zero; by zero it is 0, as no number is right.
static int64_t quotient(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

static item divide(item x, item y, double unit, bool whole)
{
    double value = x.value / y.value;
    double error = x.bound + y.bound > 0 ? (x.bound + fabs(value) * y.bound) /
                                               (fabs(y.value) - y.bound)
                                         : 0;

    if (!(fabs(y.value) > y.bound) && x.bound + y.bound > 0)
        error = INFINITY; // the divisor may be zero
    if (whole)            // no integer by another is larger
        return (item){(double)quotient(x.whole, y.whole),
                      x.bound + y.bound > 0 ? fabs(x.value) + x.bound : 0,
                      quotient(x.whole, y.whole)};
    return (item){value, error + rounding(unit, value), 0};
}

// A function that only rises or only falls: what the operand's error may do
// shows at the ends. A correct kernel errs by a few units of the result, or of
// the smallest number that there is.
static item monotone(double (*f)(double), item x, double units, double unit)
{
    double value = f(x.value);
    double below = fabs(f(x.value - x.bound) - value);
    double above = fabs(f(x.value + x.bound) - value);
    double most = below > above ? below : above;

    if (x.bound == 0)
        most = 0;
    else if (isnan(below) || isnan(above))
        most = INFINITY; // beyond what the function is defined for
    return (item){value,
                  most + units * (rounding(unit, value) + unit * 0x1p-125), 0};
}

// No two values of a sine are further apart than 2, and it is no steeper
// than 1.
static item wave(double (*f)(double), item x, double unit)
{
    double value = f(x.value);

    return (item){
        value, fmin(x.bound, 2) + 4 * (rounding(unit, value) + unit * 0x1p-125),
        0};
}

// Of a base that is not zero it only rises or only falls in either operand, if
// that keeps its sign or the exponent is a whole number and exact: then what
// errors do shows where both are at their ends.
static item power(item x, item y, double unit)
{
    double value = pow(x.value, y.value), most = 0;
    bool whole = y.bound == 0 && y.value == floor(y.value);

    for (int i = 0; i < 4; i++) {
        double end = pow(x.value + (i % 2 == 0 ? x.bound : -x.bound),
                         y.value + (i / 2 == 0 ? y.bound : -y.bound));

        most = fmax(most, fabs(end - value));
    }
    if (x.bound + y.bound == 0)
        most = 0;
    else if (!(whole ? fabs(x.value) > x.bound : x.value > x.bound) ||
             isnan(most) || isnan(value))
        most = INFINITY;
    return (item){value, most + 8 * (rounding(unit, value) + unit * 0x1p-125),
                  0};
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// The argument of gelu's tanh.
static double gelu_inner(double x)
{
    return 0.79788456080286535588 * (x + 0.044715 * x * x * x); // sqrt(2 / pi)
}

static item relu(item x)
{
    return (item){x.value < 0 ? 0 : x.value, x.bound, 0};
}

// The largest slopes are 1.13 and 1.1.
static item gelu(item x, double unit)
{
    double v = x.value;

    return (item){0.5 * v * (1 + tanh(gelu_inner(v))),
                  1.13 * x.bound + 8 * unit * fabs(v), 0};
}

// The largest slope is that of gelu, too.
static item gelu_erf(item x, double unit)
{
    double v = x.value;

    return (item){0.5 * v * (1 + erf(v * 0.70710678118654752440)),
                  1.13 * x.bound + 8 * unit * fabs(v), 0};
}

static item silu(item x, double unit)
{
    double v = x.value;

    return (item){v / (1 + exp(-v)), 1.1 * x.bound + 8 * unit * fabs(v), 0};
}

// The slope at x times what comes from behind, g. An error of x changes the
// slope by at most `bend` of it, and the slope itself errs by `error`.
static item chained(item x, item g, double slope, double bend, double error)
{
    return (item){slope * g.value,
                  fabs(slope) * g.bound +
                      (bend * x.bound + error) * (fabs(g.value) + g.bound),
                  0};
}

// Where x may be on either side of zero, the slope may be 0 or 1.
static item relu_grad(item x, item g)
{
    bool either = x.bound > 0 && fabs(x.value) <= x.bound;

    return chained(x, g, x.value <= 0 ? 0 : 1, 0, either ? 1 : 0);
}

// From |x| = 10 on, tanh and with it the slope are flat in every format.
static item gelu_grad(item x, item g, double unit)
{
    double v = x.value, t = tanh(gelu_inner(v));
    double inner = 0.79788456080286535588 * (1 + 3 * 0.044715 * v * v);
    double flat = 1 - t * t == 0 ? 0 : 0.5 * v * (1 - t * t) * inner;
    double near = fmin(fabs(v), 10);

    return chained(x, g, 0.5 * (1 + t) + flat, 1.2,
                   unit * (16 + 4 * near * (1 + 0.2 * near * near)));
}

// Its slope bends by 2 / sqrt(2 pi) at most, at 0.
static item gelu_erf_grad(item x, item g, double unit)
{
    double v = x.value;
    double density = 0.39894228040143267794 * exp(-0.5 * v * v);
    double flat = density > 0 ? v * density : 0;

    return chained(x, g, 0.5 * (1 + erf(v * 0.70710678118654752440)) + flat,
                   0.8, unit * 16);
}

static item silu_grad(item x, item g, double unit)
{
    double v = x.value, s = sigmoid(v);

    return chained(x, g, s * (1 + v * (1 - s)), 0.6,
                   unit * (16 + 8 * fmin(fabs(v), 20)));
}

// 1 where it holds. Operands whose errors overlap may compare either way.
static item compare(bool holds, const item *x)
{
    double error = x[0].bound + x[1].bound;
    bool either = error > 0 && !(fabs(x[0].value - x[1].value) > error);

    return (item){holds, either, holds};
}

// Of truths; one that may be either leaves it open.
static item decide(const item *x, bool holds, int n)
{
    bool either = x[0].bound > 0 || (n == 2 && x[1].bound > 0);

    return (item){holds, either, holds};
}

static item choose(item mask, item x, item y)
{
    item result = mask.whole != 0 ? x : y;

    if (mask.bound > 0)
        result.bound = fmax(x.bound, y.bound) + fabs(x.value - y.value);
    return result;
}

// What is whole stays so: the fraction goes, and what no i64 holds is the
// nearest that one does.
static item scaled(item x, item factor, double unit)
{
    x = multiply(x, factor, unit);
    x.whole = x.value >= 0x1p63    ? INT64_MAX
              : x.value >= -0x1p63 ? (int64_t)x.value
                                   : INT64_MIN;
    return x;
}

// Integers are compared as such.
#define COMPARED(operator)                          \
    compare(whole ? x[0].whole operator x[1].whole               \
                  : x[0].value operator x[1].value,              \
            x)

// What the map makes of its operands, and of a factor.
static item map_items(hd_map map, const item *x, item factor, double unit,
                      bool whole)
{
    switch (map) {
    case HD_MAP_NONE:
        break;
    case HD_MAP_ADD:
        return add(x[0], x[1], unit);
    case HD_MAP_SUB:
        return add(x[0], negated(x[1]), unit);
    case HD_MAP_MUL:
        return multiply(x[0], x[1], unit);
    case HD_MAP_DIV:
        return divide(x[0], x[1], unit, whole);
    case HD_MAP_LT:
        return COMPARED(<);
    case HD_MAP_LE:
        return COMPARED(<=);
    case HD_MAP_GT:
        return COMPARED(>);
    case HD_MAP_GE:
        return COMPARED(>=);
    case HD_MAP_EQ:
        return COMPARED(==);
    case HD_MAP_NE:
        return COMPARED(!=);
    case HD_MAP_AND:
        return decide(x, x[0].whole != 0 && x[1].whole != 0, 2);
    case HD_MAP_OR:
        return decide(x, x[0].whole != 0 || x[1].whole != 0, 2);
    case HD_MAP_XOR:
        return decide(x, (x[0].whole != 0) != (x[1].whole != 0), 2);
    case HD_MAP_NOT:
        return decide(x, x[0].whole == 0, 1);
    case HD_MAP_SELECT:
        return choose(x[0], x[1], x[2]);
    case HD_MAP_FILL:
        return factor;
    case HD_MAP_SCALE:
        return scaled(x[0], factor, unit);
    case HD_MAP_NEG:
        return negated(x[0]);
    case HD_MAP_ABS:
        return absolute(x[0]);
    case HD_MAP_SIN:
        return wave(sin, x[0], unit);
    case HD_MAP_COS:
        return wave(cos, x[0], unit);
    case HD_MAP_FLOOR:
        return monotone(floor, x[0], 0, unit);
    case HD_MAP_POW:
        return power(x[0], x[1], unit);
    case HD_MAP_EXP:
        return monotone(exp, x[0], 4, unit);
    case HD_MAP_LOG:
        return monotone(log, x[0], 4, unit);
    case HD_MAP_SQRT:
        return monotone(sqrt, x[0], 2, unit);
    case HD_MAP_RSQRT:
        return monotone(rsqrt, x[0], 4, unit);
    case HD_MAP_TANH:
        return monotone(tanh, x[0], 4, unit);
    case HD_MAP_SIGMOID:
        return monotone(sigmoid, x[0], 8, unit);
    case HD_MAP_RELU:
        return relu(x[0]);
    case HD_MAP_GELU:
        return gelu(x[0], unit);
    case HD_MAP_GELU_ERF:
        return gelu_erf(x[0], unit);
    case HD_MAP_SILU:
        return silu(x[0], unit);
    case HD_MAP_RELU_GRAD:
        return relu_grad(x[0], x[1]);
    case HD_MAP_GELU_GRAD:
        return gelu_grad(x[0], x[1], unit);
    case HD_MAP_GELU_ERF_GRAD:
        return gelu_erf_grad(x[0], x[1], unit);
    case HD_MAP_SILU_GRAD:
        return silu_grad(x[0], x[1], unit);
    }
    return x[0];
}

// The sum of n terms of which `total` is the value, `magnitude` the sum of
// their absolute memory, and `square` that of their squared bounds, `straight`
// of their bounds.
static item summed(double total, double magnitude, double square,
                   double straight, int64_t n, double unit)
{
    double spread = LAMBDA * sqrt(square);

    return (item){total,
                  LAMBDA * sqrt((double)n) * unit * magnitude +
                      (spread < straight ? spread : straight),
                  0};
}

// ------------------------------------------------------------ element-wise

static item factor_of(const hd_step *step, hd_key_code code, item *memory)
{
    const hd_key *key = hd_op_key(step->op, code);

    if (key == NULL)
        return (item){1, 0, 1};
    if (key->view < 0)
        return (item){key->number, 0, 0};
    return load(&step->span[key->view], memory, 0);
}

// A cast to an integer rounds and saturates, as hd_dtype_store does.
static item made_whole(hd_dtype to, item x)
{
    unsigned char bytes[8];

    hd_dtype_store(to, &x.value, 1, bytes);
    hd_dtype_load_integers(to, bytes, 1, &x.whole);
    x.bound = x.bound > 0 ? x.bound + 1 : 0;
    return x;
}

static item cast(const hd_step *step, item x)
{
    hd_dtype to = step->span[0].buffer->type.dtype;

    return hd_dtype_is_integer(to) &&
                   !hd_dtype_is_integer(step->span[1].buffer->type.dtype)
               ? made_whole(to, x)
               : x;
}

static item map_operands(const hd_step *step, const item *x, item *memory)
{
    hd_map map = hd_op_info_get(step->op->code)->map;
    hd_dtype out = step->span[0].buffer->type.dtype;
    hd_dtype in = step->span[hd_op_number_view(step->op)].buffer->type.dtype;
    bool whole = hd_dtype_is_integer(in);
    item factor = {0};

    if (map == HD_MAP_FILL || map == HD_MAP_SCALE)
        factor = factor_of(step, map == HD_MAP_FILL ? HD_KEY_VALUE : HD_KEY_BY,
                           memory);
    if (map == HD_MAP_FILL && hd_dtype_is_integer(out))
        factor = made_whole(out, factor);
    else if (map == HD_MAP_FILL && isinf(hd_dtype_round(out, factor.value)))
        factor = (item){hd_dtype_round(out, factor.value), 0, 0};
    return map_items(map, x, factor, whole ? 0 : unit_of_compute(in), whole);
}

static void map(void *memory, const hd_work_item *of, int64_t to,
                const int64_t *from)
{
    const hd_step *step = &of->step;
    hd_dtype out = step->span[0].buffer->type.dtype;
    item *m = memory, x[HD_MAX_OPERANDS];

    for (int k = 0; k < hd_op_operands(step->op); k++)
        x[k] = m[from[k]];
    if (hd_op_family(step->op) == HD_FAMILY_MAP)
        store_place(out, m, to, map_operands(step, x, m));
    else if (step->span[1].buffer->type.dtype == out)
        m[to] = x[0];
    else
        store_place(out, m, to, cast(step, x[0]));
}

// What an index says: from `first` on, each so many elements from the next.
typedef struct choice {
    const item *first;
    int64_t stride, n;
} choice;

static item item_at(const choice *c, int64_t index)
{
    return index >= 0 && index < c->n ? c->first[index * c->stride] : (item){0};
}

// An index that may be another one, since what it was made from was rounded,
// may take what lies there.
static item taken(const choice *c, item index)
{
    item x = item_at(c, index.whole), other;
    double low = (double)index.whole - index.bound;
    double high = (double)index.whole + index.bound;
    int64_t from = low < -1 ? -1 : (int64_t)low;
    int64_t to = high > (double)c->n ? c->n : (int64_t)high;
    double bound = x.bound;

    for (; index.bound > 0 && from <= to; from++) {
        other = item_at(c, from);
        bound = fmax(bound, fabs(other.value - x.value) + other.bound);
    }
    x.bound = isnan(x.value - x.value) && index.bound > 0 ? INFINITY : bound;
    return x;
}

static void take(void *memory, int64_t to, int64_t index, int64_t start,
                 int64_t first, int64_t stride, int64_t n, hd_grain grain)
{
    item *m = memory;
    choice c = {&m[first], stride, n};
    item i = m[index];

    (void)grain; // all are there
    i.whole -= start;
    m[to] = taken(&c, i);
}

static void place(void *memory, int64_t to, int64_t index)
{
    item *m = memory;

    m[to] = (item){(double)index, 0, index};
}

// Of nothing, which a run may have of what is reduced.
static item neutral(hd_fold fold, hd_dtype dtype)
{
    item none = {0};

    hd_fold_neutral(fold, dtype, &none.value, &none.whole);
    if (hd_dtype_is_integer(dtype))
        none.value = (double)none.whole;
    return none;
}

static void join_all(void *memory, hd_fold fold, hd_dtype dtype, int64_t to,
                     const int64_t *from, int64_t n, hd_grain grain)
{
    const item *m = memory;
    double unit = hd_dtype_is_integer(dtype) ? 0 : unit_of_compute(dtype);
    double total = 0, magnitude = 0, square = 0, straight = 0;
    item best = neutral(fold, dtype), sum;
    uint64_t whole = 0; // wraps

    (void)grain; // all are there
    for (int64_t k = 0; k < n; k++) {
        item x = m[from[k]];

        best = k > 0 ? join(fold, best, x, unit) : x;
        whole += (uint64_t)x.whole;
        total += x.value;
        magnitude += fabs(x.value);
        square += x.bound * x.bound;
        straight += x.bound;
    }
    sum = summed(total, magnitude, square, straight, n, unit);
    sum.whole = (int64_t)whole;
    store_place(dtype, memory, to, fold == HD_FOLD_SUM ? sum : best);
}

// ----------------------------------------------------------------- matmul

// One piece, operands copied out densely: a [memory, k], b [k, n].
typedef struct dense {
    int64_t m, n, k;
    double *a, *da, *b, *db; // owned
    double *row;             // owned: ROWS rows of n sums
    bool exact;              // all bounds are zero
    bool f8;                 // both operands are
} dense;

enum {
    ROWS = 8,     // see multiply_row and add_lost
    WINDOW = 128, // f8 products that tensor cores add up before fp32 is used
    GROUP = 16,   // the fewest of them that one instruction takes
    BITS = 13     // of a fraction that an instruction keeps
};

static bool allocate(dense *p)
{
    size_t a = (size_t)(p->m * p->k), b = (size_t)(p->k * p->n);

    p->a = calloc(a, sizeof(double));
    p->da = calloc(a, sizeof(double));
    p->b = calloc(b, sizeof(double));
    p->db = calloc(b, sizeof(double));
    p->row = calloc((size_t)p->n * ROWS, sizeof(double));
    return p->a != NULL && p->da != NULL && p->b != NULL && p->db != NULL &&
           p->row != NULL;
}

static void release(dense *p)
{
    free(p->a);
    free(p->da);
    free(p->b);
    free(p->db);
    free(p->row);
}

// The scales of an operand of a piece. Whoever multiplies it by them rounds
// once.
typedef struct scaling {
    const hd_scales *of; // none, of which the view is -1
    const item *from;
    int64_t first; // row that the matrix begins with, of those they are of
    bool deep;     // rows of the matrix are of what is contracted
    double unit;
} scaling;

static item times_scale(const scaling *s, int64_t i, int64_t j, item x)
{
    if (s->of->view < 0)
        return x;
    i += s->first;
    return multiply(
        x, s->from[hd_scales_at(s->of, s->deep ? j : i, s->deep ? i : j)],
        s->unit);
}

// A matrix that begins at `at`, or what it is transposed.
static void take_matrix(dense *p, const hd_matrix *m, bool transposed,
                        const scaling *scales, const item *memory, int64_t at,
                        double *value, double *bound)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++) {
            item from = times_scale(
                scales, i, j,
                memory[at + i * m->row_stride + j * m->column_stride]);
            int64_t to = transposed ? j * m->rows + i : i * m->columns + j;

            value[to] = from.value;
            bound[to] = from.bound;
            p->exact &= from.bound == 0;
        }
}

// What the last bit is worth that is kept beside a number as large as x.
static double last_bit(double x)
{
    int exponent;

    if (!(x > 0) || !isfinite(x))
        return 0;
    (void)frexp(x, &exponent); // x is in [2^(exponent - 1), 2^exponent)
    return ldexp(1, exponent - 1 - BITS);
}

// What is lost of x, not negative, cut to a multiple of `last`: adding a number
// whose own last bit that is rounds it there.
static double cut_off(double x, double last)
{
    double large = last * 0x1.8p52;
    double rest = x - ((x + large) - large);

    return rest < 0 ? rest + last : rest;
}

// What tensor cores may lose of the f8 products [first, end) of row i. Each of
// their instructions cuts its products, the sum so far and the new one to bits
// that the largest of them has. Wherever a sum begins, all of these are the
// difference of two running sums, so none is larger than the range of those.
static void add_lost(const dense *p, int64_t i, int64_t first, int64_t end)
{
    double *lost = p->row + 4 * p->n, *sum = lost + p->n;
    double *low = sum + p->n, *high = low + p->n, *last = high;
    const double *a = &p->a[i * p->k];
    double cuts = 2 * ceil((double)(end - first) / GROUP);

    memset(sum, 0, sizeof(double) * 3 * (size_t)p->n);
    for (int64_t k = first; k < end; k++)
        for (int64_t j = 0; j < p->n; j++) {
            sum[j] += a[k] * p->b[k * p->n + j];
            low[j] = sum[j] < low[j] ? sum[j] : low[j];
            high[j] = sum[j] > high[j] ? sum[j] : high[j];
        }
    for (int64_t j = 0; j < p->n; j++) {
        last[j] = last_bit(high[j] - low[j]);
        lost[j] += cuts * last[j];
    }
    for (int64_t k = first; k < end; k++)
        for (int64_t j = 0; j < p->n; j++)
            lost[j] += cut_off(fabs(a[k] * p->b[k * p->n + j]), last[j]);
}

static void multiply_row(const dense *p, int64_t i)
{
    double *total = p->row, *magnitude = total + p->n;
    double *square = magnitude + p->n, *straight = square + p->n;

    memset(p->row, 0, sizeof(double) * ROWS * (size_t)p->n);
    for (int64_t k = 0; p->f8 && k < p->k; k += WINDOW)
        add_lost(p, i, k, k + WINDOW < p->k ? k + WINDOW : p->k);
    for (int64_t k = 0; k < p->k; k++) {
        double a = p->a[i * p->k + k], da = p->da[i * p->k + k];
        const double *b = &p->b[k * p->n], *db = &p->db[k * p->n];

        for (int64_t j = 0; j < p->n; j++) {
            double x = a * b[j];

            total[j] += x;
            magnitude[j] += fabs(x);
        }
        for (int64_t j = 0; !p->exact && j < p->n; j++) {
            double from_a = da * (fabs(b[j]) + db[j]), from_b = fabs(a) * db[j];

            square[j] += from_a * from_a + from_b * from_b;
            straight[j] += from_a + from_b;
        }
    }
}

// Row number `row` of the whole result.
static void finish_row(const dense *dense, const hd_product *p, item factor,
                       item *memory, int64_t row)
{
    const hd_product_part *c = &p->part[HD_PRODUCT_C];
    const hd_product_part *bias = &p->part[HD_PRODUCT_BIAS];
    const hd_product_part *aux = &p->part[HD_PRODUCT_AUX];
    bool whole = hd_dtype_is_integer(c->span.buffer->type.dtype);
    double unit =
        whole ? 0 : unit_of_compute(p->wide ? HD_DTYPE_F64 : HD_DTYPE_F32);
    int64_t n = dense->n;

    for (int64_t j = 0; j < n; j++) {
        int64_t at = row * n + j;
        item x = summed(dense->row[j], dense->row[n + j], dense->row[2 * n + j],
                        dense->row[3 * n + j], dense->k, unit);

        x.bound += dense->row[4 * n + j];
        if (p->scale != NULL)
            x = multiply(x, factor, unit);
        if (bias->view >= 0)
            x = add(x, load(&bias->span, memory, at), unit);
        if (aux->view >= 0)
            store(&aux->span, memory, at, x);
        if (p->act != HD_ACT_NONE)
            x = map_items(hd_act_map(p->act), &x, x, unit, false);
        if (p->accumulate)
            x = add(x, load(&c->span, memory, at), unit);
        if (whole) // exact, of less than 2^53
            x = (item){.whole = (int64_t)x.value, .bound = ceil(x.bound)};
        store(&c->span, memory, at, x);
    }
}

static bool is_f8(const hd_span *span)
{
    hd_dtype dtype = span->buffer->type.dtype;

    return hd_dtype_is_float(dtype) && hd_dtype_size(dtype) == 1;
}

// The rows of the result from number `from` on.
static void multiply_rows(dense *d, const hd_product *p, item factor,
                          item *memory, int64_t from)
{
    for (int64_t i = 0; i < d->m; i++) {
        multiply_row(d, i);
        finish_row(d, p, factor, memory, from + i);
    }
}

// Rows of A and B as `a` and `b` have them, which begin at these elements, of
// piece `piece`; `first` is the row that they begin with, of a group.
static void take_operands(dense *d, const hd_product *p, const hd_matrix *a,
                          int64_t a_at, const hd_matrix *b, int64_t b_at,
                          int64_t piece, int64_t first, item *memory)
{
    scaling scales[2];

    for (int i = 0; i < 2; i++) {
        scales[i].of = &p->scales[i];
        scales[i].from =
            p->scales[i].view < 0
                ? NULL
                : memory + hd_scales_offset(p, &p->scales[i], piece);
        scales[i].first = i == 0 || p->ta ? first : 0;
        scales[i].deep = i == 0 ? p->ta : !p->tb;
        scales[i].unit = unit_of_compute(p->wide ? HD_DTYPE_F64 : HD_DTYPE_F32);
    }
    d->exact = true;
    take_matrix(d, a, p->ta, &scales[0], memory, a_at, d->a, d->da);
    take_matrix(d, b, p->tb, &scales[1], memory, b_at, d->b, d->db);
}

// A count as it is taken: no group has less than no rows, nor more than are
// left.
static int64_t rows_of_group(const hd_step *step, const hd_product *p,
                             item *memory, int64_t group, int64_t left)
{
    int64_t rows = load(&step->span[p->counts], memory, group).whole;

    if (rows < 0)
        return 0;
    return rows < left ? rows : left;
}

// Rows that no matrix is for.
static void clear_rows(const hd_product *p, item *memory, int64_t from,
                       int64_t end)
{
    const hd_product_part *c = &p->part[HD_PRODUCT_C];
    const hd_product_part *aux = &p->part[HD_PRODUCT_AUX];

    for (int64_t i = from * p->n; i < end * p->n; i++) {
        if (!p->accumulate && !p->keep)
            store(&c->span, memory, i, (item){0});
        if (aux->view >= 0)
            store(&aux->span, memory, i, (item){0});
    }
}

// `from` is the first of the group's rows; `d->m` and `d->k` are as of all.
static void compute_group(dense *d, const hd_product *p, item factor,
                          item *memory, int64_t group, int64_t from,
                          int64_t rows)
{
    hd_matrix a = p->part[HD_PRODUCT_A].matrix;
    hd_matrix b = p->part[HD_PRODUCT_B].matrix;
    int64_t a_at = hd_product_offset(p, HD_PRODUCT_A, 0) + from * a.row_stride;
    int64_t b_at = hd_product_offset(p, HD_PRODUCT_B, 0);

    a.rows = rows;
    if (!p->ta) {
        d->m = rows;
        take_operands(d, p, &a, a_at, &b, b_at + group * p->to_group, 0, from,
                      memory);
        multiply_rows(d, p, factor, memory, from);
        return;
    }
    b.rows = d->k = rows;
    if (rows == 0) {
        clear_rows(p, memory, group * d->m, (group + 1) * d->m);
        return;
    }
    take_operands(d, p, &a, a_at, &b, b_at + from * b.row_stride, 0, from,
                  memory);
    multiply_rows(d, p, factor, memory, group * d->m);
}

static void compute_groups(dense *d, const hd_step *step, const hd_product *p,
                           item factor, item *memory)
{
    int64_t from = 0;

    for (int64_t g = 0; g < p->groups; g++) {
        int64_t rows = rows_of_group(step, p, memory, g, p->rows - from);
        hd_product own = *p;

        own.part[HD_PRODUCT_BIAS].span.offset += g * p->to_bias;
        own.scales[1].span.offset += g * p->scales[1].to_group;
        compute_group(d, &own, factor, memory, g, from, rows);
        from += rows;
    }
    if (!p->ta)
        clear_rows(p, memory, from, p->rows);
}

static void compute_pieces(dense *d, const hd_product *p, item factor,
                           item *memory)
{
    for (int64_t piece = 0; piece < p->pieces; piece++) {
        take_operands(d, p, &p->part[HD_PRODUCT_A].matrix,
                      hd_product_offset(p, HD_PRODUCT_A, piece),
                      &p->part[HD_PRODUCT_B].matrix,
                      hd_product_offset(p, HD_PRODUCT_B, piece), piece, 0,
                      memory);
        multiply_rows(d, p, factor, memory, piece * d->m);
    }
}

static hd_status product(void *memory, const hd_work_item *of)
{
    const hd_step *step = &of->step;
    hd_product p = hd_product_of(step, HD_PRODUCT_PARTS);
    item factor = factor_of(step, HD_KEY_SCALE, memory);
    dense d = {.m = p.part[HD_PRODUCT_C].matrix.rows,
               .n = p.n,
               .k = p.k,
               .f8 = is_f8(&step->span[1]) && is_f8(&step->span[2])};

    if (!allocate(&d)) {
        release(&d);
        return HD_ERROR_NO_MEMORY;
    }
    if (p.counts >= 0)
        compute_groups(&d, step, &p, factor, memory);
    else
        compute_pieces(&d, &p, factor, memory);
    release(&d);
    return HD_OK;
}

// ------------------------------------------------------------------- picks

static bool is_exact(const hd_span *span, const item *memory)
{
    for (int64_t i = 0; i < hd_span_elements(span); i++)
        if (load(span, memory, i).bound > 0)
            return false;
    return true;
}

static void fill_whole(const hd_span *span, item *memory, item x)
{
    for (int64_t i = 0; i < hd_span_elements(span); i++)
        store(span, memory, i, x);
}

// Places are asked one by one for who gets them: of those who want an expert
// the one that as many came before. Where experts may be others, so may all
// else, within what it can be.
static void route_batch(const hd_span view[HD_PICK_VIEWS], item *memory)
{
    const hd_span *token = &view[0], *slot = &view[1], *expert = &view[3];
    int64_t k = expert->extent[1], cap = token->extent[1], next;
    double loose = is_exact(expert, memory) ? 0 : 1;
    item t = {.whole = -1, .bound = loose * (double)expert->extent[0]};
    item s = {.whole = -1, .bound = loose * (double)hd_span_elements(token)};
    item n = {.whole = 0, .bound = loose * (double)cap};

    fill_whole(token, memory, t);
    fill_whole(slot, memory, s);
    fill_whole(&view[2], memory, n);
    for (int64_t e = 0; e < token->extent[0]; e++) {
        next = 0;
        for (n.whole = 0; n.whole < cap; store(&view[2], memory, e, n)) {
            while (next < hd_span_elements(expert) &&
                   load(expert, memory, next).whole != e)
                next++;
            if (next == hd_span_elements(expert))
                break;
            t.whole = next / k;
            s.whole = e * cap + n.whole++;
            store(token, memory, s.whole, t);
            store(slot, memory, next++, s);
        }
    }
}

static void compute_route(const hd_step *step, item *memory)
{
    hd_span view[HD_PICK_VIEWS];

    for (int64_t b = 0; b < hd_batch_elements(step); b++) {
        for (int i = 0; i < step->op->nviews; i++)
            view[i] = hd_batch_span(step, i, b);
        route_batch(view, memory);
    }
}

// One of a row, as qsort has it.
typedef struct candidate {
    item x;
    int64_t index;
} candidate;

static int compare_values(const item *x, const item *y)
{
    if (isnan(x->value) || isnan(y->value))
        return (isnan(x->value) != 0) - (isnan(y->value) != 0);
    if (x->whole != y->whole) // both 0 but of integers
        return x->whole > y->whole ? 1 : -1;
    return (x->value > y->value) - (x->value < y->value);
}

// The greater one first, of equal ones that which is first.
static int compare_candidates(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    int greater = compare_values(&x->x, &y->x);

    if (greater != 0)
        return -greater;
    return (x->index > y->index) - (x->index < y->index);
}

// Whether errors may exchange two that are next to each other.
static bool may_turn(const candidate *c, double error)
{
    return error > 0 && !(c[0].x.value - c[1].x.value > 2 * error);
}

// If every one of a row errs by so much at most, so does the j-th greatest.
static void sort_row(candidate *row, const hd_span *in, const item *memory,
                     double *error)
{
    *error = 0;
    for (int64_t i = 0; i < in->extent[0]; i++) {
        row[i] = (candidate){load(in, memory, i), i};
        *error = fmax(*error, row[i].x.bound);
    }
    qsort(row, (size_t)in->extent[0], sizeof *row, compare_candidates);
}

static void pick_row(const candidate *row, int64_t n, double error,
                     const hd_span *best, const hd_span *where, item *memory)
{
    for (int64_t j = 0; j < best->extent[0]; j++) {
        bool turns = (j > 0 && may_turn(&row[j - 1], error)) ||
                     (j + 1 < n && may_turn(&row[j], error));
        item x = row[j].x;

        x.bound = error;
        memory[hd_span_place(best, j)] = x; // which is not rounded again
        store(where, memory, j,
              (item){.whole = row[j].index, .bound = turns ? (double)n : 0});
    }
}

static hd_status compute_top_k(const hd_step *step, item *memory)
{
    int64_t n = step->span[2].extent[step->span[2].ndims - 1];
    candidate *row = calloc((size_t)n + 1, sizeof *row);
    double error;

    if (row == NULL)
        return HD_ERROR_NO_MEMORY;
    for (int64_t b = 0; b < hd_batch_elements(step); b++) {
        hd_span in = hd_batch_span(step, 2, b);
        hd_span best = hd_batch_span(step, 0, b);
        hd_span where = hd_batch_span(step, 1, b);

        sort_row(row, &in, memory, &error);
        pick_row(row, n, error, &best, &where, memory);
    }
    free(row);
    return HD_OK;
}

static hd_status pick(void *memory, const hd_work_item *of)
{
    const hd_step *step = &of->step;

    switch (hd_op_pick(step->op)) {
    case HD_PICK_ROUTE:
        compute_route(step, memory);
        return HD_OK;
    case HD_PICK_TOP_K:
        return compute_top_k(step, memory);
    case HD_PICK_NONE:
        break;
    }
    return HD_OK;
}

// ---------------------------------------------------------------- attention

// Views of an attention, and of its gradients.
enum { MEAN, SUM, QUERIES, KEYS, VALUES };
enum { DQ, DK, DV, Q, K, V, O, LSE, DO };

// Products of what was met, which a driver may round to the operands' dtype
// ahead of them: independent errors.
typedef struct total {
    item sum;
    double magnitude, rounded, squares;
    double before; // `sum` when the head began
} total;

// A key that a row sees, and where its value is.
typedef struct sight {
    item score;
    int64_t v;
} sight;

// What the rows of a step are made of.
typedef struct attention {
    hd_attention a;
    item *memory;
    item scale;
    hd_sequence *sequence; // owned
    double unit;
    hd_dtype dtype; // of the keys
    double loose;   // a weight may be rounded to that
    bool twice;     // a result may be rounded to it ahead of its own
    sight *sight;   // owned: the keys that a row sees, while it is made
    int64_t nsights;
    // Gradients of a head of keys. What `loose` is, %o and %do may be, too.
    total *dk, *dv, *dq; // dk is owned, with the others behind it
    double *seen;        // owned: by how many rows each key is
    int64_t head, row;   // the row that meets keys
    item lse, delta;     // of it: its logarithm, and its do o
    double met;          // how many
} attention;

static item load_at(const attention *a, int view, int64_t at, int64_t column)
{
    const hd_span *span = &a->a.view[view];
    item x = a->memory[span->ndims > 2 ? at + column * span->stride[2] : at];

    if ((view == O || view == DO) && a->loose > 0 &&
        a->dtype != span->buffer->type.dtype)
        x.bound += half_step(a->dtype, fabs(x.value) + x.bound);
    return x;
}

static void store_at(const attention *a, int view, int64_t at, int64_t column,
                     item x)
{
    const hd_span *span = &a->a.view[view];

    store_place(span->buffer->type.dtype, a->memory,
                span->ndims > 2 ? at + column * span->stride[2] : at, x);
}

// Of two rows, summed in the unit.
static item dot(const attention *a, int x, int64_t x_at, int y, int64_t y_at)
{
    int64_t n = a->a.view[x].extent[2];
    double magnitude = 0;
    item sum = {0};

    for (int64_t d = 0; d < n; d++) {
        item term = multiply(load_at(a, x, x_at, d), load_at(a, y, y_at, d), 0);

        sum = add(sum, term, 0);
        magnitude += fabs(term.value) + term.bound;
    }
    sum.bound += LAMBDA * sqrt((double)n) * a->unit * magnitude;
    return sum;
}

static item score_of(const attention *a, int64_t q_at, int64_t k_at)
{
    item result =
        multiply(dot(a, a->a.q, q_at, a->a.q + 1, k_at), a->scale, a->unit);

    result.bound += 2 * a->unit * fabs(result.value);
    return result;
}

// Where the sequences are of the rows, as far as there is room for them.
static void find_sequences(void *own, int64_t b)
{
    attention *a = own;
    int64_t rows = a->a.view[a->a.q].extent[1], end = 0;
    hd_span counts;

    if (a->sequence == NULL)
        return;
    counts = hd_attention_counts(a->a.step, b);
    memset(a->sequence, 0, sizeof *a->sequence * (size_t)rows);
    for (int64_t s = 0; s < counts.extent[0]; s++) {
        int64_t from = end;

        end += count(a->memory, hd_span_place(&counts, s),
                     hd_step_among(a->a.step).room - from);
        for (int64_t row = 0; row < rows; row++) {
            int64_t number = hd_sight_row(&a->a.sight, row);

            if (from <= number && number < end)
                a->sequence[row] = (hd_sequence){from, end};
        }
    }
    a->a.together = end;
}

// The logarithm of the sum of exp of the scores seen, and how far each weight
// may be off, relatively: what moves a score moves its weight, and what moves
// all of them the sum.
static item lse_of(const attention *a, double *relative)
{
    const sight *end = a->sight + a->nsights;
    double most = -INFINITY, sum = 0, worst = 0, total;
    double spread = LAMBDA * sqrt((double)a->nsights) * a->unit;

    *relative = 0;
    if (a->nsights == 0)
        return (item){-INFINITY, 0, 0};
    for (const sight *s = a->sight; s < end; s++)
        if (s->score.value > most || isnan(s->score.value))
            most = s->score.value;
    for (const sight *s = a->sight; s < end; s++) {
        double far = fabs(s->score.value - most);

        sum += exp(s->score.value - most);
        worst =
            fmax(worst, s->score.bound + 4 * a->unit * (1 + fmin(far, 100)));
    }
    total = most + log(sum);
    *relative = expm1(2 * worst) + spread;
    return (item){total,
                  worst + log1p(spread) +
                      4 * a->unit * (fabs(most) + fabs(total - most) + 1),
                  0};
}

// A mean by weights that are each off by no more than `relative`: so much of
// the mean distance from it, and what the sum of n terms rounds.
static item mean_of(const attention *a, int64_t column, double lse,
                    double relative)
{
    const sight *end = a->sight + a->nsights;
    double value = 0, bound = 0, spread = 0, magnitude = 0;

    for (const sight *s = a->sight; s < end; s++) {
        item v = load_at(a, VALUES, s->v, column);
        double weight = exp(s->score.value - lse);

        value += weight * v.value;
        bound += weight * v.bound;
        magnitude += weight * fabs(v.value);
    }
    for (const sight *s = a->sight; s < end; s++)
        spread += exp(s->score.value - lse) *
                  fabs(load_at(a, VALUES, s->v, column).value - value);
    if (!(relative < 0.5))
        return (item){value, INFINITY, 0};
    bound += (spread + bound) * relative / (1 - relative) +
             (LAMBDA * sqrt((double)a->nsights) + 6) * a->unit * magnitude +
             4 * unit_of_compute(HD_DTYPE_F64) * fabs(lse) * magnitude +
             a->loose * magnitude;
    return (item){value, bound, 0};
}

static bool is_nothing(item lse)
{
    return isinf(lse.value) && lse.value < 0;
}

static item joined_lse(item x, item y, double unit)
{
    double most = x.value > y.value || isnan(x.value) ? x.value : y.value;
    double value;

    if (is_nothing(x))
        return y;
    if (is_nothing(y))
        return x;
    value = most + log(exp(x.value - most) + exp(y.value - most));
    return (item){
        value,
        fmax(x.bound, y.bound) + 6 * unit * (fabs(value) + fabs(most) + 1), 0};
}

// Both as one mean: each has a share, which its logarithm says.
static item joined(item x, item x_lse, item y, item y_lse, double unit)
{
    item both = joined_lse(x_lse, y_lse, 0);
    double mine = exp(x_lse.value - both.value);
    double other = exp(y_lse.value - both.value);
    double apart = x_lse.bound + y_lse.bound;
    double wide = fabs(x.value - y.value) + x.bound + y.bound, off;
    double value = mine * x.value + other * y.value;

    if (is_nothing(x_lse) && is_nothing(y_lse))
        return (item){0};
    if (is_nothing(x_lse) || is_nothing(y_lse)) {
        item one = is_nothing(x_lse) ? y : x;

        one.bound += 4 * unit * fabs(one.value); // by a share of one
        return one;
    }
    // Both shares are off alike by what the sum of the logarithms rounds.
    off = 4 * unit * (1 + fabs(x_lse.value) + fabs(y_lse.value));
    return (item){value,
                  mine * x.bound + other * y.bound +
                      mine * other * wide * expm1(apart) +
                      off * (fabs(mine * x.value) + fabs(other * y.value)),
                  0};
}

static void look(attention *a, int64_t head, int64_t row)
{
    int64_t q = hd_attention_row(&a->a, QUERIES, head, row), from, past;
    int64_t shared = head / a->a.group;

    a->nsights = 0;
    for (int64_t block = 0; block < a->a.nblocks; block++) {
        hd_attention_sees(&a->a, row, block, &from, &past);
        for (int64_t j = from; j < past; j++)
            a->sight[a->nsights++] = (sight){
                score_of(a, q, hd_attention_key(&a->a, KEYS, shared, block, j)),
                hd_attention_key(&a->a, VALUES, shared, block, j)};
    }
}

static void attend_row(void *own, int64_t head, int64_t row)
{
    attention *a = own;
    int64_t o = hd_attention_row(&a->a, MEAN, head, row);
    int64_t sum = hd_attention_row(&a->a, SUM, head, row);
    item lse, before = {-INFINITY, 0, 0};
    double relative;

    look(a, head, row);
    lse = lse_of(a, &relative);
    if (a->a.updates)
        before = load_at(a, SUM, sum, 0);
    for (int64_t c = 0; c < a->a.view[MEAN].extent[2]; c++) {
        item x =
            is_nothing(lse) ? (item){0} : mean_of(a, c, lse.value, relative);

        if (a->twice)
            x.bound += half_step(a->dtype, fabs(x.value) + x.bound);
        if (a->a.updates)
            x = joined(x, lse, load_at(a, MEAN, o, c), before, a->unit);
        store_at(a, MEAN, o, c, x);
    }
    store_at(a, SUM, sum, 0,
             a->a.updates ? joined_lse(lse, before, a->unit) : lse);
}

// Each operand is followed by its logarithm. Rows may lie over those that they
// are made of.
static void merge_row(void *own, int64_t head, int64_t row)
{
    const attention *a = own;
    int64_t at[6];
    item x, y;

    for (int i = 0; i < 6; i++)
        at[i] = hd_attention_row(&a->a, i, head, row);
    x = load_at(a, 3, at[3], 0);
    y = load_at(a, 5, at[5], 0);
    for (int64_t c = 0; c < a->a.view[0].extent[2]; c++)
        store_at(a, 0, at[0], c,
                 joined(load_at(a, 2, at[2], c), x, load_at(a, 4, at[4], c), y,
                        a->unit));
    store_at(a, 1, at[1], 0, joined_lse(x, y, a->unit));
}

// -------------------------------------------------- gradients of attention

// What a column is multiplied by, and how far off that is where a driver rounds
// it to the operands' dtype.
typedef struct weight {
    item x;
    double off;
} weight;

// What may be rounded to the operands' dtype ahead of a product, and be scaled
// before that or behind.
static double rounded_by(const attention *a, double x)
{
    double scale = fabs(a->scale.value);
    double here = half_step(a->dtype, fabs(x));

    if (!(a->loose > 0))
        return 0;
    return scale > 0 ? fmax(here, half_step(a->dtype, fabs(x) * scale) / scale)
                     : here;
}

static weight weight_of(const attention *a, item x)
{
    return (weight){x, rounded_by(a, fabs(x.value) + x.bound)};
}

// p = exp(score - lse) and ds = p (do v - delta) of the row and a key.
static void weigh(const attention *a, item score, item up, weight *p,
                  weight *ds)
{
    item delta = negated(a->delta), x;
    double off = score.bound + a->lse.bound +
                 4 * a->unit * (1 + fabs(score.value) + fabs(a->lse.value));

    x.value = exp(score.value - a->lse.value);
    x.bound = x.value * expm1(off) + 4 * a->unit * 0x1p-125; // subnormals
    x.whole = 0;
    *p = weight_of(a, x);
    *ds = weight_of(a, multiply(x, add(up, delta, a->unit), 2 * a->unit));
}

// Products of a weight and a row's columns.
static void add_products(const attention *a, total *t, const weight *w,
                         int view, int64_t at)
{
    for (int64_t d = 0; d < a->a.view[view].extent[2]; d++, t++) {
        item y = load_at(a, view, at, d), term = multiply(w->x, y, 0);
        double off = w->off * (fabs(y.value) + y.bound);

        t->sum = add(t->sum, term, 0);
        t->magnitude += fabs(term.value) + term.bound;
        t->rounded += off;
        t->squares += off * off;
    }
}

// A part of a sum that a driver may round by itself.
static void round_part(const attention *a, total *t, double part)
{
    double off = rounded_by(a, fabs(part));

    t->rounded += off;
    t->squares += off * off;
}

// With a mask a driver may do the rows that see all keys by themselves: what
// each of both parts adds is rounded, and a narrow result behind the first.
static void round_parts_of_rows(const attention *a, int view, total *t)
{
    hd_dtype dtype = a->a.view[view].buffer->type.dtype;

    if (a->a.sight.causal[0] == HD_SEES_ALL)
        return;
    for (int i = 0; i < (hd_dtype_unit(dtype) > a->unit ? 2 : 1); i++)
        round_part(a, t, t->magnitude);
}

// Times a factor, where n rows or keys were met. A driver may round it to the
// operands' dtype before it adds it to what there is.
static void store_total(const attention *a, int view, int64_t at,
                        int64_t column, total t, double n, item factor)
{
    item x = t.sum;

    x.bound += (LAMBDA * sqrt(n) + 2) * a->unit * t.magnitude +
               fmin(t.rounded, LAMBDA * sqrt(t.squares));
    x = multiply(x, factor, a->unit);
    if (a->loose > 0)
        x.bound += half_step(a->dtype, fabs(x.value) + x.bound);
    if (hd_step_access(a->a.step, view) == HD_ACCESS_UPDATE)
        x = add(x, load_at(a, view, at, column), a->unit);
    store_at(a, view, at, column, x);
}

static void begin_keys(void *own, int64_t head)
{
    attention *a = own;

    (void)head;
    memset(a->dk, 0,
           sizeof *a->dk * (size_t)(a->a.nkeys * (a->a.depth + a->a.wide)));
    memset(a->seen, 0, sizeof *a->seen * (size_t)a->a.nkeys);
}

// A row that nothing was seen by has no weights.
static bool begin_row(void *own, int64_t head, int64_t row)
{
    attention *a = own;

    a->head = head;
    a->row = row;
    a->lse = load_at(a, LSE, hd_attention_row(&a->a, LSE, head, row), 0);
    a->delta = dot(a, DO, hd_attention_row(&a->a, DO, head, row), O,
                   hd_attention_row(&a->a, O, head, row));
    a->met = 0;
    memset(a->dq, 0, sizeof *a->dq * (size_t)a->a.depth);
    return !is_nothing(a->lse);
}

static void meet(void *own, int64_t block, int64_t j)
{
    attention *a = own;
    int64_t shared = a->head / a->a.group,
            key = hd_attention_number(&a->a, block, j);
    int64_t q = hd_attention_row(&a->a, Q, a->head, a->row);
    int64_t grad = hd_attention_row(&a->a, DO, a->head, a->row);
    int64_t k = hd_attention_key(&a->a, K, shared, block, j);
    int64_t v = hd_attention_key(&a->a, V, shared, block, j);
    weight p, ds;

    weigh(a, score_of(a, q, k), dot(a, DO, grad, V, v), &p, &ds);
    a->met++;
    a->seen[key]++;
    add_products(a, a->dq, &ds, K, k);
    add_products(a, a->dk + key * a->a.depth, &ds, Q, q);
    add_products(a, a->dv + key * a->a.wide, &p, DO, grad);
}

// A driver may round the sum of each head that shares the keys.
static void round_heads(const attention *a)
{
    for (total *t = a->dk; t < a->dq; t++) {
        round_part(a, t, t->sum.value - t->before);
        t->before = t->sum.value;
    }
}

static void end_row(void *own, int64_t head, int64_t row)
{
    const attention *a = own;
    int64_t at = hd_attention_row(&a->a, DQ, head, row);

    for (int64_t d = 0; d < a->a.depth; d++)
        store_total(a, DQ, at, d, a->dq[d], a->met, a->scale);
}

static void end_head(void *own)
{
    const attention *a = own;

    if (a->a.group > 1)
        round_heads(a);
}

static void end_key(void *own, int64_t head, int64_t block, int64_t j)
{
    const attention *a = own;
    int64_t key = hd_attention_number(&a->a, block, j);
    total *dk = a->dk + key * a->a.depth, *dv = a->dv + key * a->a.wide;
    int64_t k_at = hd_attention_key(&a->a, DK, head, block, j);
    int64_t v_at = hd_attention_key(&a->a, DV, head, block, j);

    for (int64_t d = 0; d < a->a.depth; d++) {
        round_parts_of_rows(a, DK, &dk[d]);
        store_total(a, DK, k_at, d, dk[d], a->seen[key], a->scale);
    }
    for (int64_t d = 0; d < a->a.wide; d++) {
        round_parts_of_rows(a, DV, &dv[d]);
        store_total(a, DV, v_at, d, dv[d], a->seen[key], (item){1, 0, 1});
    }
}

// ------------------------------------------------------- attention, whole

static const hd_attend_rows means = {.begin = find_sequences,
                                     .row = attend_row};
static const hd_attend_rows merges = {.row = merge_row};
static const hd_attend_rows gradients = {
    .begin = find_sequences,
    .begin_keys = begin_keys,
    .begin_row = begin_row,
    .meet = meet,
    .end_row = end_row,
    .end_head = end_head,
    .end_key = end_key,
};

static attention attention_of(const hd_step *step, item *memory)
{
    const hd_span *q = &step->span[step->op->noutputs], *k = q + 1;
    hd_dtype lse = step->span[hd_op_lse(step->op)].buffer->type.dtype;
    hd_dtype dtype = q->buffer->type.dtype;
    attention a = {.a = hd_attention_of(step),
                   .memory = memory,
                   .unit = unit_of_compute(lse),
                   .dtype = k->buffer->type.dtype};

    a.loose = hd_dtype_unit(dtype) > a.unit ? hd_dtype_unit(dtype) : 0;
    a.scale = factor_of(step, HD_KEY_SCALE, memory);
    if (hd_op_key(step->op, HD_KEY_SCALE) == NULL)
        a.scale = (item){1 / sqrt((double)q->extent[q->ndims - 1]), 0, 0};
    return a;
}

// For sequences, the keys that a row sees, and the sums of gradients.
static hd_status reserve(attention *a)
{
    const hd_span *q = &a->a.step->span[a->a.q];

    a->twice =
        a->loose > 0 && (a->a.updates || a->a.nblocks > 1 ||
                         a->dtype != a->a.step->span[0].buffer->type.dtype);
    if (hd_op_has_sequences(a->a.step->op)) {
        HD_TRY(hd_clear_array(q->extent[q->ndims - 2], sizeof *a->sequence,
                              NULL, (void **)&a->sequence));
        a->a.sequence = a->sequence;
    }
    HD_TRY(
        hd_clear_array(a->a.nkeys, sizeof *a->sight, NULL, (void **)&a->sight));
    if (a->a.q != Q)
        return HD_OK;
    HD_TRY(
        hd_clear_array(a->a.nkeys, sizeof *a->seen, NULL, (void **)&a->seen));
    HD_TRY(hd_clear_array(a->a.nkeys * (a->a.depth + a->a.wide) + a->a.depth,
                          sizeof *a->dk, NULL, (void **)&a->dk));
    a->dv = a->dk + a->a.nkeys * a->a.depth;
    a->dq = a->dv + a->a.nkeys * a->a.wide;
    return HD_OK;
}

static hd_status compute_keys(attention *a, const hd_attend_rows *rows)
{
    hd_status status = reserve(a);

    if (status == HD_OK)
        hd_attend_all(&a->a, &hd_numeric, a->memory, rows, a);
    free(a->sequence);
    free(a->sight);
    free(a->seen);
    free(a->dk);
    return status;
}

static hd_status attend(void *memory, const hd_work_item *of)
{
    const hd_step *step = &of->step;
    attention a = attention_of(step, memory);

    switch (hd_op_attend(step->op)) {
    case HD_ATTEND_ATTENTION:
        return compute_keys(&a, &means);
    case HD_ATTEND_ATTENTION_GRAD:
        return compute_keys(&a, &gradients);
    case HD_ATTEND_MERGE:
        hd_attend_all(&a.a, &hd_numeric, memory, &merges, &a);
        break;
    case HD_ATTEND_NONE:
        break;
    }
    return HD_OK;
}

// ------------------------------------------------------------------- whole

static void copy(void *memory, int64_t to, int64_t from)
{
    item *m = memory;

    m[to] = m[from];
}

// A zero that nothing rounds.
static void clear(void *memory, int64_t at)
{
    item *m = memory;

    m[at] = (item){0};
}

// An integer that has none is one that no count or index is.
static void forget(void *memory, int64_t to, int64_t from)
{
    item *m = memory;

    (void)from;
    m[to] = (item){NAN, HD_UNWRITTEN, INT64_MIN};
}

static void number(void *memory, int64_t at, hd_dtype dtype, double number)
{
    item *m = memory;

    m[at] = (item){hd_dtype_round(dtype, number), 0, 0};
    if (hd_dtype_is_integer(dtype))
        m[at].whole = (int64_t)number;
}

static void begin(void *memory, int64_t node)
{
    (void)memory;
    (void)node;
}

const hd_algebra hd_numeric = {map,    join_all, take, place, product,
                               pick,   attend,   copy, clear, forget,
                               number, count,    begin};
