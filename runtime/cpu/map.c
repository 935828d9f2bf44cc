// A line an operation. Integers wrap, which unsigned arithmetic does; signed
// would be undefined.
#include "runtime/cpu/map.h"

#include <assert.h>
#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// The tanh of gelu: sqrt(2 / pi) (x + 0.044715 x^3).
static double gelu_tanh(double x)
{
    return tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
}

static double gelu_slope(double x)
{
    double t = gelu_tanh(x), rest = 1 - t * t;

    // Where tanh is flat, x may be too large to be squared.
    if (rest == 0)
        return 0.5 * (1 + t);
    return 0.5 * (1 + t) +
           0.5 * x * rest * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

static double gelu_erf_share(double x)
{
    return 0.5 * (1 + erf(x * 0.70710678118654752440));
}

static double gelu_erf_slope(double x)
{
    double density = 0.39894228040143267794 * exp(-0.5 * x * x);

    return gelu_erf_share(x) + (density > 0 ? x * density : 0);
}

static double silu_slope(double x)
{
    double s = sigmoid(x);

    return s * (1 + x * (1 - s));
}

static int64_t add(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x + (uint64_t)y);
}

static int64_t subtract(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x - (uint64_t)y);
}

static int64_t multiply(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x * (uint64_t)y);
}

// Toward zero; by zero it is 0. The smallest by -1 wraps.
static int64_t divide(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? subtract(0, x) : x / y;
}

// What no i64 holds is the nearest that one does; the fraction goes.
static int64_t scale(int64_t x, double factor)
{
    double y = factor * (double)x;

    if (y >= 0x1p63)
        return INT64_MAX;
    return y >= -0x1p63 ? (int64_t)y : INT64_MIN;
}

#define EACH(formula)              \
    for (size_t i = 0; i < n; i++) \
        x[i] = (formula);          \
    return

void hd_cpu_map_doubles(hd_map map, double factor, const double *y,
                        const double *z, size_t n, double *x)
{
    switch (map) {
    case HD_MAP_NONE:
    case HD_MAP_AND: // of u8 alone
    case HD_MAP_OR:
    case HD_MAP_XOR:
    case HD_MAP_NOT:
        return;
    case HD_MAP_ADD:
        EACH(x[i] + y[i]);
    case HD_MAP_SUB:
        EACH(x[i] - y[i]);
    case HD_MAP_MUL:
        EACH(x[i] * y[i]);
    case HD_MAP_DIV:
        EACH(x[i] / y[i]);
    case HD_MAP_LT:
        EACH(x[i] < y[i]);
    case HD_MAP_LE:
        EACH(x[i] <= y[i]);
    case HD_MAP_GT:
        EACH(x[i] > y[i]);
    case HD_MAP_GE:
        EACH(x[i] >= y[i]);
    case HD_MAP_EQ:
        EACH(x[i] == y[i]);
    case HD_MAP_NE:
        EACH(x[i] != y[i]);
    case HD_MAP_SELECT:
        EACH(x[i] != 0 ? y[i] : z[i]);
    case HD_MAP_FILL:
        EACH(factor);
    case HD_MAP_SCALE:
        EACH(x[i] * factor);
    case HD_MAP_NEG:
        EACH(-x[i]);
    case HD_MAP_ABS:
        EACH(fabs(x[i]));
    case HD_MAP_SIN:
        EACH(sin(x[i]));
    case HD_MAP_COS:
        EACH(cos(x[i]));
    case HD_MAP_FLOOR:
        EACH(floor(x[i]));
    case HD_MAP_POW:
        EACH(pow(x[i], y[i]));
    case HD_MAP_EXP:
        EACH(exp(x[i]));
    case HD_MAP_LOG:
        EACH(log(x[i]));
    case HD_MAP_SQRT:
        EACH(sqrt(x[i]));
    case HD_MAP_RSQRT:
        EACH(1 / sqrt(x[i]));
    case HD_MAP_TANH:
        EACH(tanh(x[i]));
    case HD_MAP_SIGMOID:
        EACH(sigmoid(x[i]));
    case HD_MAP_RELU: // keeps a NaN
        EACH(x[i] < 0 ? 0 : x[i]);
    case HD_MAP_GELU:
        EACH(0.5 * x[i] * (1 + gelu_tanh(x[i])));
    case HD_MAP_GELU_ERF:
        EACH(x[i] * gelu_erf_share(x[i]));
    case HD_MAP_SILU:
        EACH(x[i] / (1 + exp(-x[i])));
    case HD_MAP_RELU_GRAD:
        EACH(x[i] <= 0 ? 0 : y[i]);
    case HD_MAP_GELU_GRAD:
        EACH(y[i] * gelu_slope(x[i]));
    case HD_MAP_GELU_ERF_GRAD:
        EACH(y[i] * gelu_erf_slope(x[i]));
    case HD_MAP_SILU_GRAD:
        EACH(y[i] * silu_slope(x[i]));
    }
}

void hd_cpu_map_integers(hd_map map, double factor, const int64_t *y,
                         const int64_t *z, size_t n, int64_t *x)
{
    switch (map) {
    case HD_MAP_NONE:
        return;
    case HD_MAP_ADD:
        EACH(add(x[i], y[i]));
    case HD_MAP_SUB:
        EACH(subtract(x[i], y[i]));
    case HD_MAP_MUL:
        EACH(multiply(x[i], y[i]));
    case HD_MAP_DIV:
        EACH(divide(x[i], y[i]));
    case HD_MAP_LT:
        EACH(x[i] < y[i]);
    case HD_MAP_LE:
        EACH(x[i] <= y[i]);
    case HD_MAP_GT:
        EACH(x[i] > y[i]);
    case HD_MAP_GE:
        EACH(x[i] >= y[i]);
    case HD_MAP_EQ:
        EACH(x[i] == y[i]);
    case HD_MAP_NE:
        EACH(x[i] != y[i]);
    case HD_MAP_AND:
        EACH(x[i] != 0 && y[i] != 0);
    case HD_MAP_OR:
        EACH(x[i] != 0 || y[i] != 0);
    case HD_MAP_XOR:
        EACH((x[i] != 0) != (y[i] != 0));
    case HD_MAP_NOT:
        EACH(x[i] == 0);
    case HD_MAP_SELECT:
        EACH(x[i] != 0 ? y[i] : z[i]);
    case HD_MAP_SCALE:
        EACH(scale(x[i], factor));
    case HD_MAP_NEG:
        EACH(subtract(0, x[i]));
    case HD_MAP_ABS:
        EACH(x[i] < 0 ? subtract(0, x[i]) : x[i]);
    case HD_MAP_FILL: // by way of doubles, which a store rounds
#define ANY(...)
#define TEST(...)
#define PICK(...)
#define LOGIC(...)
#define FLOAT(code) case HD_MAP_##code:
#define HD_OP(...)
#define HD_MAP(code, text, numbers, ...) numbers(code)
#include "ir/ops.def"
        break;
    }
    assert(false && "the verifier has refused integers");
}

// A NaN on either side is the result, so that none is lost; of equal ones,
// zeros of both signs, it is the later.
#define FOLD(type, name)                                      \
    void name(hd_fold fold, const type *y, size_t n, type *x) \
    {                                                         \
        switch (fold) {                                       \
        case HD_FOLD_SUM:                                     \
            EACH(x[i] + y[i]);                                \
        case HD_FOLD_MAX:                                     \
            EACH(x[i] > y[i] || isnan(x[i]) ? x[i] : y[i]);   \
        case HD_FOLD_MIN:                                     \
            EACH(x[i] < y[i] || isnan(x[i]) ? x[i] : y[i]);   \
        case HD_FOLD_NONE:                                    \
            break;                                            \
        }                                                     \
        assert(false && "it joins nothing");                  \
    }

FOLD(float, hd_cpu_fold_floats)
FOLD(double, hd_cpu_fold_doubles)

void hd_cpu_fold_integers(hd_fold fold, const int64_t *y, size_t n, int64_t *x)
{
    switch (fold) {
    case HD_FOLD_SUM:
        EACH(add(x[i], y[i]));
    case HD_FOLD_MAX:
        EACH(x[i] > y[i] ? x[i] : y[i]);
    case HD_FOLD_MIN:
        EACH(x[i] < y[i] ? x[i] : y[i]);
    case HD_FOLD_NONE:
        break;
    }
    assert(false && "it joins nothing");
}
