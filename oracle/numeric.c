// Written to be read: plain loops over every element, no blocking but for the
// matmul's order of loops. With the kernels that it judges it shares what says
// where elements lie, ir/space and ir/product, and no arithmetic.
#include <heddle/verify.h>

#include "oracle/numeric.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/causal.h"
#include "ir/counts.h"
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
    case HD_MAP_SILU:
        return silu(x[0], unit);
    case HD_MAP_RELU_GRAD:
        return relu_grad(x[0], x[1]);
    case HD_MAP_GELU_GRAD:
        return gelu_grad(x[0], x[1], unit);
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

// A mask is before what it selects of.
static bool computes_whole(const hd_step *step)
{
    return hd_dtype_is_integer(
        step->span[step->op->ninputs > 0].buffer->type.dtype);
}

static void compute_map(const hd_step *step, const hd_space *space,
                        item *memory)
{
    const hd_op_info *info = hd_op_info_get(step->op->code);
    hd_key_code key = info->map == HD_MAP_FILL ? HD_KEY_VALUE : HD_KEY_BY;
    hd_dtype out = step->span[0].buffer->type.dtype;
    bool whole = computes_whole(step);
    double unit =
        whole ? 0
              : unit_of_compute(
                    step->span[step->op->ninputs > 0].buffer->type.dtype);
    item factor = factor_of(step, key, memory);
    int64_t n = hd_span_elements(&step->span[0]);
    hd_span in[HD_MAX_OPERANDS];
    item x[HD_MAX_OPERANDS] = {{0}};

    if (info->map == HD_MAP_FILL && hd_dtype_is_integer(out))
        factor = made_whole(out, factor);
    for (int k = 1; k <= step->op->ninputs; k++)
        in[k] = hd_space_span(space, step, k);
    for (int64_t i = 0; i < n; i++) {
        for (int k = 1; k <= step->op->ninputs; k++)
            x[k - 1] = load(&in[k], memory, i);
        store(&step->span[0], memory, i,
              map_items(info->map, x, factor, unit, whole));
    }
}

static void compute_copy(const hd_step *step, const hd_space *space,
                         item *memory)
{
    const hd_span *out = &step->span[0];
    int64_t n = hd_span_elements(out);
    hd_span in = hd_space_span(space, step, 1);
    bool same = out->buffer->type.dtype == in.buffer->type.dtype;

    for (int64_t i = 0; i < n; i++) {
        item x = load(&in, memory, i);

        if (same)
            memory[hd_span_place(out, i)] = x;
        else
            store(out, memory, i, cast(step, x));
    }
}

static int64_t elements_behind(const hd_span *span, int dim)
{
    int64_t n = 1;

    while (++dim < span->ndims)
        n *= span->extent[dim];
    return n;
}

// A place in the operand that an index says: `first` is that of index 0 of the
// dimension taken from, and the next one so many elements on.
typedef struct pick {
    const hd_span *span;
    const item *memory;
    int64_t first, step, extent;
} pick;

static item item_at(const pick *p, int64_t index)
{
    return index >= 0 && index < p->extent
               ? load(p->span, p->memory, p->first + index * p->step)
               : (item){0};
}

// An index that may be another one, since what it was made from was rounded,
// may take what lies there.
static item taken(const pick *p, item index)
{
    item x = item_at(p, index.whole), other;
    double low = (double)index.whole - index.bound;
    double high = (double)index.whole + index.bound;
    int64_t from = low < -1 ? -1 : (int64_t)low;
    int64_t to = high > (double)p->extent ? p->extent : (int64_t)high;
    double bound = x.bound;

    for (; index.bound > 0 && from <= to; from++) {
        other = item_at(p, from);
        bound = fmax(bound, fabs(other.value - x.value) + other.bound);
    }
    x.bound = isnan(x.value - x.value) && index.bound > 0 ? INFINITY : bound;
    return x;
}

// Elements are counted in row-major order, of the result as of its operands.
static void compute_take(const hd_step *step, item *memory)
{
    const hd_span *out = &step->span[0], *indices = &step->span[2];
    pick p = {.span = &step->span[1], .memory = memory};
    int64_t behind = elements_behind(indices, step->dim[0] - 1);
    int64_t n = hd_span_elements(out);

    p.extent = p.span->extent[step->dim[0]];
    p.step = elements_behind(p.span, step->dim[0]);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = i / p.step, batch = index / behind;

        p.first = batch * p.extent * p.step + i % p.step;
        memory[hd_span_place(out, i)] = taken(&p, load(indices, memory, index));
    }
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

void hd_numeric_join(item *memory, hd_fold fold, hd_dtype dtype, int64_t to,
                     const hd_span *from, int64_t n, int64_t i)
{
    double unit = hd_dtype_is_integer(dtype) ? 0 : unit_of_compute(dtype);
    double total = 0, magnitude = 0, square = 0, straight = 0;
    item best = neutral(fold, dtype), sum;
    uint64_t whole = 0; // wraps

    for (int64_t k = 0; k < n; k++) {
        item x = load(&from[k], memory, i);

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

// Several operands, or the indices of the reduced dimension of one.
static hd_status compute_fold(const hd_step *step, const hd_space *space,
                              item *memory)
{
    const hd_span *out = &step->span[0];
    bool reduces = space->ndims > space->nparallel;
    int64_t n = reduces ? space->extent[space->nparallel] : step->op->ninputs;
    int64_t elements = hd_span_elements(out);
    hd_span *from = calloc((size_t)n + 1, sizeof *from);

    if (from == NULL)
        return HD_ERROR_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        from[i] = hd_space_span(space, step, reduces ? 1 : (int)i + 1);
        if (reduces)
            from[i].offset +=
                i * step->span[1].stride[space->dim[1][space->nparallel]];
    }
    for (int64_t i = 0; i < elements; i++)
        hd_numeric_join(memory, hd_op_fold(step->op), out->buffer->type.dtype,
                        hd_span_place(out, i), from, n, i);
    free(from);
    return HD_OK;
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

// A matrix that begins at `at`, or what it is transposed.
static void take_matrix(dense *p, const hd_matrix *m, bool transposed,
                        const item *memory, int64_t at, double *value,
                        double *bound)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++) {
            const item *from =
                &memory[at + i * m->row_stride + j * m->column_stride];
            int64_t to = transposed ? j * m->rows + i : i * m->columns + j;

            value[to] = from->value;
            bound[to] = from->bound;
            p->exact &= from->bound == 0;
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
    double unit = unit_of_compute(p->wide ? HD_DTYPE_F64 : HD_DTYPE_F32);
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

// Rows of A and B as `a` and `b` have them, which begin at these elements.
static void take_operands(dense *d, const hd_product *p, const hd_matrix *a,
                          int64_t a_at, const hd_matrix *b, int64_t b_at,
                          item *memory)
{
    d->exact = true;
    take_matrix(d, a, p->ta, memory, a_at, d->a, d->da);
    take_matrix(d, b, p->tb, memory, b_at, d->b, d->db);
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
        take_operands(d, p, &a, a_at, &b, b_at + group * p->to_group, memory);
        multiply_rows(d, p, factor, memory, from);
        return;
    }
    b.rows = d->k = rows;
    if (rows == 0) {
        clear_rows(p, memory, group * d->m, (group + 1) * d->m);
        return;
    }
    take_operands(d, p, &a, a_at, &b, b_at + from * b.row_stride, memory);
    multiply_rows(d, p, factor, memory, group * d->m);
}

static void compute_groups(dense *d, const hd_step *step, const hd_product *p,
                           item factor, item *memory)
{
    int64_t from = 0;

    for (int64_t g = 0; g < p->groups; g++) {
        int64_t rows = rows_of_group(step, p, memory, g, p->rows - from);

        compute_group(d, p, factor, memory, g, from, rows);
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
                      hd_product_offset(p, HD_PRODUCT_B, piece), memory);
        multiply_rows(d, p, factor, memory, piece * d->m);
    }
}

static hd_status compute_matmul(const hd_step *step, item *memory)
{
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

// What of a view is of one element of the batch.
static hd_span span_of_batch(const hd_step *step, int view, int64_t number)
{
    hd_span span = step->span[view];
    int batch = hd_op_batch(step->op, view, span.ndims);

    span.offset += hd_span_offset(&span, 0, batch, number);
    span.ndims -= batch;
    memmove(span.extent, span.extent + batch,
            sizeof *span.extent * (size_t)span.ndims);
    memmove(span.stride, span.stride + batch,
            sizeof *span.stride * (size_t)span.ndims);
    return span;
}

static int64_t batch_of(const hd_step *step)
{
    hd_span all = step->span[0];

    all.ndims = hd_op_batch(step->op, 0, all.ndims);
    return hd_span_elements(&all);
}

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

    for (int64_t b = 0; b < batch_of(step); b++) {
        for (int i = 0; i < step->op->nviews; i++)
            view[i] = span_of_batch(step, i, b);
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
    for (int64_t b = 0; b < batch_of(step); b++) {
        hd_span in = span_of_batch(step, 2, b);
        hd_span best = span_of_batch(step, 0, b);
        hd_span where = span_of_batch(step, 1, b);

        sort_row(row, &in, memory, &error);
        pick_row(row, n, error, &best, &where, memory);
    }
    free(row);
    return HD_OK;
}

static hd_status compute_pick(const hd_step *step, item *memory)
{
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

// What a view has of one element of the batch. Keys and values may be in
// blocks: their rows are those of all, one block after the other.
typedef struct rows {
    hd_span span;
    item *memory;
    hd_dtype taken; // that numbers may be rounded to first, if not their own
    bool in_blocks;
    int64_t blocks, heads, each; // rows of a block
} rows;

// Which sequence of several that lie one behind the other a row is of, and the
// key of its number, and which row of that it is.
typedef struct member {
    int64_t sequence, number; // -1 and 0 of a row of none
} member;

// What the rows of one element of the batch are made of.
typedef struct attention {
    rows o, lse, q, k, v;
    item scale;
    hd_sight sight;
    int64_t nrows, nkeys; // those behind them are not counted
    member *member;       // each row; NULL: there is one sequence
    double unit;
    double loose; // a weight may be rounded to the operands' dtype
    bool twice;   // a result may be rounded to that ahead of its own
    item *score;  // of each key, while a row is made
} attention;

// What a view that may repeat along the batch has of element `number` of it.
static hd_span span_beside(const hd_step *step, int view, int64_t number)
{
    const hd_span *out = &step->span[0];
    hd_span span = step->span[view];
    int lead = hd_op_batch(step->op, 0, out->ndims);
    int own = hd_op_batch(step->op, view, span.ndims);

    for (int d = lead; d-- > 0; number /= out->extent[d]) {
        int mine = d - lead + own;

        if (mine >= 0 && span.extent[mine] > 1)
            span.offset += number % out->extent[d] * span.stride[mine];
    }
    span.ndims -= own;
    memmove(span.extent, span.extent + own,
            sizeof *span.extent * (size_t)span.ndims);
    memmove(span.stride, span.stride + own,
            sizeof *span.stride * (size_t)span.ndims);
    return span;
}

static int64_t rows_of_all(const rows *x)
{
    return x->blocks * x->each;
}

static int64_t at_row(const rows *x, int64_t head, int64_t row, int64_t column)
{
    int64_t block = row / x->each;
    int64_t i = (block * x->heads + head) * x->each + row % x->each;

    return x->span.ndims > 2 ? i * x->span.extent[x->span.ndims - 1] + column
                             : i;
}

// Where that is. Each is loaded many times.
static int64_t place_at(const rows *x, int64_t head, int64_t row,
                        int64_t column)
{
    const int64_t *stride = x->span.stride + x->in_blocks;
    int64_t at = x->span.offset + head * stride[0];

    if (x->in_blocks) {
        at += row / x->each * x->span.stride[0];
        row %= x->each;
    }
    at += row * stride[1];
    return x->span.ndims > 2 ? at + column * stride[2] : at;
}

static item load_at(const rows *x, int64_t head, int64_t row, int64_t column)
{
    item value = x->memory[place_at(x, head, row, column)];

    if (x->taken != x->span.buffer->type.dtype)
        value.bound += half_step(x->taken, fabs(value.value) + value.bound);
    return value;
}

static void store_at(const rows *x, int64_t head, int64_t row, int64_t column,
                     item value)
{
    store(&x->span, x->memory, at_row(x, head, row, column), value);
}

// Whether a row, or a key, is one at all, as counts and sequences say.
static bool is_there(const attention *a, int64_t counted, int64_t i)
{
    return i < counted && (a->member == NULL || a->member[i].sequence >= 0);
}

static bool sees(const attention *a, int64_t row, int64_t key)
{
    int64_t block = key / a->k.each, from, past;

    if (!is_there(a, a->nrows, row) || !is_there(a, a->nkeys, key))
        return false;
    if (a->member != NULL) {
        if (a->member[row].sequence != a->member[key].sequence)
            return false;
        row = a->member[row].number;
        key = a->member[key].number;
    }
    key %= a->k.each;
    hd_sight_keys(&a->sight, row, block, &from, &past);
    return key >= from && key < past;
}

// Of two rows, summed in the unit.
static item dot(const rows *x, int64_t x_head, int64_t x_row, const rows *y,
                int64_t y_head, int64_t y_row, double unit)
{
    int64_t n = x->span.extent[2];
    double magnitude = 0;
    item sum = {0};

    for (int64_t d = 0; d < n; d++) {
        item term = multiply(load_at(x, x_head, x_row, d),
                             load_at(y, y_head, y_row, d), 0);

        sum = add(sum, term, 0);
        magnitude += fabs(term.value) + term.bound;
    }
    sum.bound += LAMBDA * sqrt((double)n) * unit * magnitude;
    return sum;
}

static item score_of(const attention *a, int64_t head, int64_t row,
                     int64_t shared, int64_t key)
{
    item result = multiply(dot(&a->q, head, row, &a->k, shared, key, a->unit),
                           a->scale, a->unit);

    result.bound += 2 * a->unit * fabs(result.value);
    return result;
}

// The logarithm of the sum of exp of the scores seen, and how far each weight
// may be off, relatively: what moves a score moves its weight, and what moves
// all of them the sum.
static item lse_of(const attention *a, int64_t row, double *relative)
{
    double most = -INFINITY, sum = 0, worst = 0, n = 0, total;

    for (int64_t j = 0; j < rows_of_all(&a->k); j++)
        if (sees(a, row, j)) {
            most = a->score[j].value > most || isnan(a->score[j].value)
                       ? a->score[j].value
                       : most;
            n++;
        }
    *relative = 0;
    if (!(n > 0))
        return (item){-INFINITY, 0, 0};
    for (int64_t j = 0; j < rows_of_all(&a->k); j++)
        if (sees(a, row, j)) {
            double far = fabs(a->score[j].value - most);

            sum += exp(a->score[j].value - most);
            worst = fmax(worst, a->score[j].bound +
                                    4 * a->unit * (1 + fmin(far, 100)));
        }
    total = most + log(sum);
    *relative = expm1(2 * worst) + LAMBDA * sqrt(n) * a->unit;
    return (item){total,
                  worst + log1p(LAMBDA * sqrt(n) * a->unit) +
                      4 * a->unit * (fabs(most) + fabs(total - most) + 1),
                  0};
}

// A mean by weights that are each off by no more than `relative`: so much of
// the mean distance from it, and what the sum of n terms rounds.
static item mean_of(const attention *a, int64_t row, int64_t shared,
                    int64_t column, double lse, double relative)
{
    double value = 0, bound = 0, spread = 0, magnitude = 0, n = 0;

    for (int64_t j = 0; j < rows_of_all(&a->k); j++)
        if (sees(a, row, j)) {
            item v = load_at(&a->v, shared, j, column);
            double weight = exp(a->score[j].value - lse);

            value += weight * v.value;
            bound += weight * v.bound;
            magnitude += weight * fabs(v.value);
            n++;
        }
    for (int64_t j = 0; j < rows_of_all(&a->k); j++)
        if (sees(a, row, j)) {
            item v = load_at(&a->v, shared, j, column);

            spread += exp(a->score[j].value - lse) * fabs(v.value - value);
        }
    if (!(relative < 0.5))
        return (item){value, INFINITY, 0};
    bound += (spread + bound) * relative / (1 - relative) +
             (LAMBDA * sqrt(n) + 6) * a->unit * magnitude +
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

static void attend_row(const attention *a, const hd_step *step, int64_t head,
                       int64_t row)
{
    bool updates = hd_op_key(step->op, HD_KEY_ACCUMULATE) != NULL;
    int64_t shared = head / (a->q.span.extent[0] / a->k.heads);
    item lse, before = {-INFINITY, 0, 0};
    double relative;

    if (updates && !is_there(a, a->nrows, row))
        return; // what is not counted stays as it was
    for (int64_t j = 0; j < rows_of_all(&a->k); j++)
        a->score[j] = score_of(a, head, row, shared, j);
    lse = lse_of(a, row, &relative);
    if (updates)
        before = load_at(&a->lse, head, row, 0);
    for (int64_t c = 0; c < a->o.span.extent[2]; c++) {
        item x = is_nothing(lse)
                     ? (item){0}
                     : mean_of(a, row, shared, c, lse.value, relative);

        if (a->twice)
            x.bound += half_step(a->k.span.buffer->type.dtype,
                                 fabs(x.value) + x.bound);
        if (updates)
            x = joined(x, lse, load_at(&a->o, head, row, c), before, a->unit);
        store_at(&a->o, head, row, c, x);
    }
    store_at(&a->lse, head, row, 0,
             updates ? joined_lse(lse, before, a->unit) : lse);
}

// Without its rows.
static attention attention_of(const hd_step *step, item *memory)
{
    const hd_span *q = &step->span[step->op->noutputs];
    hd_dtype dtype = q->buffer->type.dtype;
    hd_dtype lse = step->span[hd_op_lse(step->op)].buffer->type.dtype;
    attention a = {.sight = hd_sight_of(step), .unit = unit_of_compute(lse)};

    a.loose = hd_dtype_unit(dtype) > a.unit ? hd_dtype_unit(dtype) : 0;
    a.scale = factor_of(step, HD_KEY_SCALE, memory);
    if (hd_op_key(step->op, HD_KEY_SCALE) == NULL)
        a.scale = (item){1 / sqrt((double)q->extent[q->ndims - 1]), 0, 0};
    return a;
}

static rows rows_of(const hd_step *step, item *memory, int view, int64_t number)
{
    rows x = {.span = span_beside(step, view, number),
              .memory = memory,
              .taken = step->span[view].buffer->type.dtype,
              .blocks = 1};
    bool block = hd_op_has_blocks(step->op, view);

    x.in_blocks = block;
    if (block)
        x.blocks = x.span.extent[0];
    x.heads = x.span.extent[block];
    x.each = x.span.extent[block + 1];
    return x;
}

// Of the batch.
static int64_t elements_ahead(const hd_step *step)
{
    hd_span all = step->span[0];

    all.ndims = hd_op_batch(step->op, 0, all.ndims);
    return hd_span_elements(&all);
}

int64_t hd_numeric_count(const item *memory, int64_t at, int64_t room)
{
    int64_t n = memory[at].whole;

    return n < 0 ? 0 : n < room ? n : room;
}

// How many rows, or keys, element `b` of the batch has.
static int64_t lines_of(const hd_step *step, item *memory, hd_key_code code,
                        int64_t b)
{
    hd_row_counts counts = hd_row_counts_of(step, code);

    return counts.view < 0 ? INT64_MAX
                           : hd_numeric_count(
                                 memory,
                                 hd_row_counts_at(
                                     &counts, hd_row_counts_number(&counts, b)),
                                 counts.room);
}

static void take_counts(attention *a, const hd_step *step, item *memory,
                        int64_t b)
{
    a->nrows = lines_of(step, memory, HD_KEY_COUNTS, b);
    a->nkeys = lines_of(step, memory, HD_KEY_COUNTS_OF_KEYS, b);
}

// Room for where the step's rows are, if they are of several sequences.
static hd_status reserve_members(attention *a, const hd_step *step)
{
    const hd_span *q = &step->span[step->op->noutputs];

    if (hd_op_key(step->op, HD_KEY_GROUPS) == NULL)
        return HD_OK;
    a->member = calloc((size_t)q->extent[q->ndims - 2] + 1, sizeof *a->member);
    return a->member != NULL ? HD_OK : HD_ERROR_NO_MEMORY;
}

// The counts that element `b` of the batch has: the index of each dimension of
// the batch that they have, too, which are the first.
static hd_span counts_of_sequences(const hd_step *step, int view, int64_t b)
{
    const hd_span *out = &step->span[0];
    hd_span counts = step->span[view];
    int last = counts.ndims - 1;

    for (int d = hd_op_batch(step->op, 0, out->ndims); d-- > 0;
         b /= out->extent[d])
        if (d < last)
            counts.offset += b % out->extent[d] * counts.stride[d];
    counts.ndims = 1;
    counts.extent[0] = counts.extent[last];
    counts.stride[0] = counts.stride[last];
    return counts;
}

static void find_members(attention *a, const hd_step *step, item *memory,
                         int64_t b)
{
    int view = hd_op_key_view(step->op, HD_KEY_GROUPS);
    int64_t rows = a->q.each, row = 0;
    hd_span counts;

    if (a->member == NULL)
        return;
    counts = counts_of_sequences(step, view, b);
    for (int64_t s = 0; s < counts.extent[0]; s++) {
        int64_t n =
            hd_numeric_count(memory, hd_span_place(&counts, s), rows - row);

        for (int64_t i = 0; i < n; i++)
            a->member[row++] = (member){s, i};
    }
    while (row < rows)
        a->member[row++] = (member){-1, 0};
}

static hd_status compute_attention(const hd_step *step, item *memory)
{
    attention a = attention_of(step, memory);

    a.k = rows_of(step, memory, 3, 0);
    a.twice =
        a.loose > 0 &&
        (hd_op_key(step->op, HD_KEY_ACCUMULATE) != NULL || a.k.blocks > 1 ||
         a.k.span.buffer->type.dtype != step->span[0].buffer->type.dtype);
    a.score = calloc((size_t)rows_of_all(&a.k) + 1, sizeof *a.score);
    if (a.score == NULL || reserve_members(&a, step) != HD_OK) {
        free(a.score);
        return HD_ERROR_NO_MEMORY;
    }
    for (int64_t b = 0; b < elements_ahead(step); b++) {
        a.o = rows_of(step, memory, 0, b);
        a.lse = rows_of(step, memory, 1, b);
        a.q = rows_of(step, memory, 2, b);
        a.k = rows_of(step, memory, 3, b);
        a.v = rows_of(step, memory, 4, b);
        take_counts(&a, step, memory, b);
        find_members(&a, step, memory, b);
        for (int64_t head = 0; head < a.q.span.extent[0]; head++)
            for (int64_t row = 0; row < a.q.span.extent[1]; row++)
                attend_row(&a, step, head, row);
    }
    free(a.score);
    free(a.member);
    return HD_OK;
}

// Rows may lie over those that they are made of.
static void merge_row(const hd_span view[HD_ATTEND_VIEWS], item *memory,
                      int64_t i, double unit)
{
    item x_lse = load(&view[3], memory, i);
    item y_lse = load(&view[5], memory, i);
    int64_t n = view[0].extent[2];

    for (int64_t c = i * n; c < (i + 1) * n; c++)
        store(&view[0], memory, c,
              joined(load(&view[2], memory, c), x_lse,
                     load(&view[4], memory, c), y_lse, unit));
    store(&view[1], memory, i, joined_lse(x_lse, y_lse, unit));
}

static void compute_merge(const hd_step *step, item *memory)
{
    double unit = unit_of_compute(step->span[1].buffer->type.dtype);
    hd_span view[HD_ATTEND_VIEWS];

    for (int64_t b = 0; b < elements_ahead(step); b++) {
        for (int i = 0; i < step->op->nviews; i++)
            view[i] = span_beside(step, i, b);
        for (int64_t i = 0; i < hd_span_elements(&view[1]); i++)
            merge_row(view, memory, i, unit);
    }
}

// -------------------------------------------------- gradients of attention

// What a column is multiplied by, and how far off that is where a driver rounds
// it to the operands' dtype.
typedef struct weight {
    item x;
    double off;
} weight;

// What attention's own rows are, and what is made of them.
typedef struct gradients {
    attention a;
    rows dq, dk, dv, grad; // `grad` is that of o
    hd_dtype dtype;        // of q, k and v
    bool updates;
    int64_t group;  // heads of queries a head of keys
    item *delta;    // of each row of each head: its do o
    weight *p, *ds; // of what a sum is over, while it is made
    bool *is_seen;  // of the same
    double seen;    // how many
} gradients;

// What may be rounded to the operands' dtype ahead of a product, and be scaled
// before that or behind.
static double rounded_by(const gradients *g, double x)
{
    double scale = fabs(g->a.scale.value);
    double here = half_step(g->dtype, fabs(x));

    if (!(g->a.loose > 0))
        return 0;
    return scale > 0 ? fmax(here, half_step(g->dtype, fabs(x) * scale) / scale)
                     : here;
}

// p = exp(score - lse) and ds = p (do v - delta) of a row and a key.
static void weigh(const gradients *g, int64_t head, int64_t row, int64_t key,
                  item *p, item *ds)
{
    const attention *a = &g->a;
    int64_t shared = head / g->group;
    item lse = load_at(&a->lse, head, row, 0);
    item score = score_of(a, head, row, shared, key);
    item up = dot(&g->grad, head, row, &a->v, shared, key, a->unit);
    item delta = g->delta[head * a->q.span.extent[1] + row];
    double off = score.bound + lse.bound +
                 4 * a->unit * (1 + fabs(score.value) + fabs(lse.value));

    delta.value = -delta.value;
    p->value = exp(score.value - lse.value);
    p->bound = p->value * expm1(off) + 4 * a->unit * 0x1p-125; // subnormals
    *ds = multiply(*p, add(up, delta, a->unit), 2 * a->unit);
}

// A row that nothing was seen by has no weights.
static void meet(gradients *g, int64_t head, int64_t row, int64_t key,
                 int64_t i)
{
    g->is_seen[i] =
        sees(&g->a, row, key) && !is_nothing(load_at(&g->a.lse, head, row, 0));
    if (!g->is_seen[i])
        return;
    g->seen++;
    weigh(g, head, row, key, &g->p[i].x, &g->ds[i].x);
    g->p[i].off = rounded_by(g, fabs(g->p[i].x.value) + g->p[i].x.bound);
    g->ds[i].off = rounded_by(g, fabs(g->ds[i].x.value) + g->ds[i].x.bound);
}

// Products of what was met, which a driver may round to the operands' dtype
// ahead of them: independent errors.
typedef struct total {
    item sum;
    double magnitude, rounded, squares;
} total;

static void add_product(total *t, const weight *w, item y)
{
    item term = multiply(w->x, y, 0);
    double off = w->off * (fabs(y.value) + y.bound);

    t->sum = add(t->sum, term, 0);
    t->magnitude += fabs(term.value) + term.bound;
    t->rounded += off;
    t->squares += off * off;
}

// A part of a sum that a driver may round by itself.
static void round_part(const gradients *g, total *t, double part)
{
    double off = rounded_by(g, fabs(part));

    t->rounded += off;
    t->squares += off * off;
}

// With a mask a driver may do the rows that see all keys by themselves: what
// each of both parts adds is rounded, and a narrow result behind the first.
static void round_parts_of_rows(const gradients *g, const rows *to, total *t)
{
    bool narrow = hd_dtype_unit(to->span.buffer->type.dtype) > g->a.unit;

    if (g->a.sight.causal[0] == HD_SEES_ALL)
        return;
    for (int i = 0; i < (narrow ? 2 : 1); i++)
        round_part(g, t, t->magnitude);
}

// Times a factor. A driver may round it to the operands' dtype before it adds
// it to what there is.
static void store_total(const gradients *g, const rows *to, int64_t head,
                        int64_t row, int64_t column, total t, item factor)
{
    item x = t.sum;

    x.bound += (LAMBDA * sqrt(g->seen) + 2) * g->a.unit * t.magnitude +
               fmin(t.rounded, LAMBDA * sqrt(t.squares));
    x = multiply(x, factor, g->a.unit);
    if (g->a.loose > 0)
        x.bound += half_step(g->dtype, fabs(x.value) + x.bound);
    if (g->updates)
        x = add(x, load_at(to, head, row, column), g->a.unit);
    store_at(to, head, row, column, x);
}

static void sum_keys(gradients *g, int64_t head, int64_t row)
{
    const rows *k = &g->a.k;
    int64_t keys = rows_of_all(k);

    if (g->updates && !is_there(&g->a, g->a.nrows, row))
        return;
    g->seen = 0;
    for (int64_t j = 0; j < keys; j++)
        meet(g, head, row, j, j);
    for (int64_t d = 0; d < k->span.extent[k->span.ndims - 1]; d++) {
        total t = {0};

        for (int64_t j = 0; j < keys; j++)
            if (g->is_seen[j])
                add_product(&t, &g->ds[j], load_at(k, head / g->group, j, d));
        store_total(g, &g->dq, head, row, d, t, g->a.scale);
    }
}

// Sums over all rows of the heads that share a key, of weights `x` times a
// column of `of`. A driver may round the sum of each head.
static void sum_rows(const gradients *g, const rows *to, int64_t shared,
                     int64_t key, const weight *x, const rows *of, item factor)
{
    int64_t rows = of->span.extent[1];

    for (int64_t d = 0; d < of->span.extent[2]; d++) {
        total t = {0};
        double before = 0;

        for (int64_t i = 0; i < g->group * rows; i++) {
            if (g->is_seen[i])
                add_product(
                    &t, &x[i],
                    load_at(of, shared * g->group + i / rows, i % rows, d));
            if (g->group > 1 && i % rows == rows - 1) {
                round_part(g, &t, t.sum.value - before);
                before = t.sum.value;
            }
        }
        round_parts_of_rows(g, to, &t);
        store_total(g, to, shared, key, d, t, factor);
    }
}

static void meet_rows(gradients *g, int64_t shared, int64_t key)
{
    int64_t rows = g->a.q.span.extent[1];

    if (g->updates && !is_there(&g->a, g->a.nkeys, key))
        return;
    g->seen = 0;
    for (int64_t i = 0; i < g->group * rows; i++)
        meet(g, shared * g->group + i / rows, i % rows, key, i);
    sum_rows(g, &g->dk, shared, key, g->ds, &g->a.q, g->a.scale);
    sum_rows(g, &g->dv, shared, key, g->p, &g->grad, (item){1, 0, 1});
}

static void make_gradients(gradients *g)
{
    int64_t heads = g->a.q.span.extent[0], rows = g->a.q.span.extent[1];

    for (int64_t i = 0; i < heads * rows; i++)
        g->delta[i] = dot(&g->grad, i / rows, i % rows, &g->a.o, i / rows,
                          i % rows, g->a.unit);
    for (int64_t i = 0; i < heads * rows; i++)
        sum_keys(g, i / rows, i % rows);
    for (int64_t shared = 0; shared < g->a.k.heads; shared++)
        for (int64_t j = 0; j < rows_of_all(&g->a.k); j++)
            meet_rows(g, shared, j);
}

static hd_status reserve(gradients *g, const hd_step *step, const rows *q,
                         const rows *k)
{
    size_t rows = (size_t)(q->heads * q->each) + 1;
    size_t keys = (size_t)rows_of_all(k) + 1;
    size_t n = rows > keys ? rows : keys;

    g->delta = calloc(rows, sizeof *g->delta);
    g->p = calloc(n, sizeof *g->p);
    g->ds = calloc(n, sizeof *g->ds);
    g->is_seen = calloc(n, sizeof *g->is_seen);
    return g->delta == NULL || g->p == NULL || g->ds == NULL ||
                   g->is_seen == NULL
               ? HD_ERROR_NO_MEMORY
               : reserve_members(&g->a, step);
}

static hd_status compute_attention_grad(const hd_step *step, item *memory)
{
    gradients g = {.a = attention_of(step, memory),
                   .dtype = step->span[3].buffer->type.dtype,
                   .updates = hd_op_key(step->op, HD_KEY_ACCUMULATE) != NULL};
    rows q = rows_of(step, memory, 3, 0), k = rows_of(step, memory, 4, 0);
    hd_status status = reserve(&g, step, &q, &k);

    for (int64_t b = 0; status == HD_OK && b < elements_ahead(step); b++) {
        g.dq = rows_of(step, memory, 0, b);
        g.dk = rows_of(step, memory, 1, b);
        g.dv = rows_of(step, memory, 2, b);
        g.a.q = rows_of(step, memory, 3, b);
        g.a.k = rows_of(step, memory, 4, b);
        g.a.v = rows_of(step, memory, 5, b);
        g.a.o = rows_of(step, memory, 6, b);
        g.a.lse = rows_of(step, memory, 7, b);
        g.grad = rows_of(step, memory, 8, b);
        take_counts(&g.a, step, memory, b);
        find_members(&g.a, step, memory, b);
        if (g.a.loose > 0)
            g.a.o.taken = g.grad.taken = g.dtype;
        g.group = g.a.q.heads / g.a.k.heads;
        make_gradients(&g);
    }
    free(g.delta);
    free(g.p);
    free(g.ds);
    free(g.is_seen);
    free(g.a.member);
    return status;
}

static hd_status compute_attend(const hd_step *step, item *memory)
{
    switch (hd_op_attend(step->op)) {
    case HD_ATTEND_ATTENTION:
        return compute_attention(step, memory);
    case HD_ATTEND_MERGE:
        compute_merge(step, memory);
        return HD_OK;
    case HD_ATTEND_ATTENTION_GRAD:
        return compute_attention_grad(step, memory);
    case HD_ATTEND_NONE:
        break;
    }
    return HD_OK;
}

static hd_status compute_whole(const hd_step *step, item *memory)
{
    hd_space space;

    if (hd_op_family(step->op) == HD_FAMILY_PRODUCT)
        return compute_matmul(step, memory); // which lays out its own
    hd_space_of_step(step, &space);
    switch (hd_op_family(step->op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_TRANSPOSE:
        compute_copy(step, &space, memory);
        return HD_OK;
    case HD_FAMILY_MAP:
        compute_map(step, &space, memory);
        return HD_OK;
    case HD_FAMILY_TAKE:
        compute_take(step, memory);
        return HD_OK;
    case HD_FAMILY_FOLD:
        return compute_fold(step, &space, memory);
    case HD_FAMILY_PICK:
        return compute_pick(step, memory);
    case HD_FAMILY_ATTEND:
        return compute_attend(step, memory);
    case HD_FAMILY_PRODUCT: // above
    case HD_FAMILY_CALL:    // which no reference is made of
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    assert(false && "no computation");
    return HD_ERROR_UNSUPPORTED;
}

// Zeros that nothing rounds.
static void clear_span(const hd_span *span, item *memory)
{
    for (int64_t i = 0; i < hd_span_elements(span); i++)
        memory[hd_span_place(span, i)] = (item){0};
}

// Each slab has the indices that are counted, and zeros behind them.
static hd_status compute_slabs(const hd_step *step, item *memory)
{
    hd_slabs slabs = hd_slabs_of(step);
    hd_span span[HD_MAX_VIEWS];
    hd_step slab = *step;

    slab.span = span;
    for (int64_t i = 0; i < slabs.n; i++) {
        int64_t n =
            hd_numeric_count(memory, hd_slab_count(&slabs, i), slabs.room);

        hd_slab_spans(&slabs, i, n, slabs.room, span);
        for (int v = 0; v < step->op->nviews; v++)
            if (hd_slabs_clear(&slabs, v))
                clear_span(&span[v], memory);
        hd_slab_spans(&slabs, i, 0, n, span);
        if (hd_span_elements(&span[0]) > 0)
            HD_TRY(compute_whole(&slab, memory));
    }
    return HD_OK;
}

hd_status hd_numeric_compute(const hd_step *step, item *memory)
{
    return hd_op_has_counts(step->op) &&
                   hd_op_family(step->op) != HD_FAMILY_ATTEND
               ? compute_slabs(step, memory)
               : compute_whole(step, memory);
}
