#include "tests/second/number.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace second
{

namespace
{

// The C library's long functions are off by less than one in the last place.
const double kUnit = static_cast<double>(LDBL_EPSILON);
const double kNoBound = std::numeric_limits<double>::infinity();

// `bound` is what errors of the operands do; `rounding` what the operation
// itself may be off by.
Scalar Make(Real value, double bound, double rounding, bool lost)
{
    Scalar n;

    n.value = value;
    n.bound = std::isfinite(value) ? (bound + rounding) * (1 + 4 * DBL_EPSILON)
                                   : bound;
    // An infinity or a NaN is exact if what made it is.
    if (!std::isfinite(value) && !(n.bound == 0))
        n.bound = kNoBound;
    if (std::isnan(n.bound))
        n.bound = kNoBound;
    n.lost = lost;
    return n;
}

double Size(Real x)
{
    return static_cast<double>(std::fabs(x));
}

// An error times how much it is enlarged; nothing of nothing.
double Times(double error, Real by)
{
    return error == 0 || by == 0 ? 0 : error * Size(by);
}

// Whether 32 bits of a mantissa hold it, so that products are exact.
bool IsShort(Real x)
{
    return static_cast<Real>(static_cast<float>(x)) == x;
}

bool Exactly(const Scalar &a, const Scalar &b)
{
    return a.bound == 0 && b.bound == 0;
}

// What is off is itself a number (Knuth): nothing, if a double holds the sum
// too, so that what is exact here is exact there.
double SumError(Real a, Real b, Real sum)
{
    Real other = sum - a;
    bool exact = (a - (sum - other)) + (b - other) == 0;

    return exact && static_cast<Real>(static_cast<double>(sum)) == sum
               ? 0
               : kUnit * Size(sum);
}

// A function that only rises or only falls between x - d and x + d, and the
// error of the library's own in units of the last place.
template <class F> Scalar Monotone(const Scalar &x, F f, double units)
{
    Real value = f(x.value);
    double bound = 0;

    if (x.bound > 0) {
        Real low = f(x.value - static_cast<Real>(x.bound));
        Real high = f(x.value + static_cast<Real>(x.bound));
        bound = std::max(Size(low - value), Size(high - value));
        if (std::isnan(low) || std::isnan(high))
            bound = kNoBound;
    }
    double rounding = value == 0 ? 0 : units * kUnit * Size(value);
    return Make(value, bound, rounding, x.lost);
}

Real Sigmoid(Real x)
{
    return 1 / (1 + std::exp(-x));
}

const Real kGelu = std::sqrt(static_cast<Real>(2) / std::acos(-1.0L));

Real GeluTanh(Real x)
{
    return std::tanh(kGelu * (x + 0.044715L * x * x * x));
}

// Of a normal distribution.
Real Below(Real x)
{
    return std::erfc(-x / std::sqrt(2.0L)) / 2;
}

bool IsUnsure(const Scalar &a, const Scalar &b)
{
    return a.bound + b.bound > 0 &&
           !(Size(a.value - b.value) > a.bound + b.bound);
}

int Bits(const std::string &dtype)
{
    return dtype == "u8" || dtype == "i8" ? 8 : dtype == "i32" ? 32 : 64;
}

Real Least(const std::string &dtype)
{
    return dtype == "u8" ? 0 : -std::ldexp(1.0L, Bits(dtype) - 1);
}

Real Greatest(const std::string &dtype)
{
    return dtype == "u8" ? 255 : std::ldexp(1.0L, Bits(dtype) - 1) - 1;
}

Scalar Wrap(const std::string &dtype, uint64_t bits, bool lost)
{
    Scalar n;

    n.value = dtype == "u8"    ? static_cast<uint8_t>(bits)
              : dtype == "i8"  ? static_cast<int8_t>(bits)
              : dtype == "i32" ? static_cast<int32_t>(bits)
                               : static_cast<int64_t>(bits);
    n.lost = lost;
    return n;
}

// Toward zero, and 0 by zero; the least by -1 is itself.
uint64_t DivideIntegers(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1)
        return -static_cast<uint64_t>(a);
    return static_cast<uint64_t>(a / b);
}

Scalar CombineIntegers(const std::string &op, const std::string &dtype,
                       const Scalar &a, const Scalar &b)
{
    int64_t x = static_cast<int64_t>(a.value);
    int64_t y = static_cast<int64_t>(b.value);
    uint64_t ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
    uint64_t bits = op == "add"   ? ux + uy
                    : op == "sub" ? ux - uy
                    : op == "mul" ? ux * uy
                                  : DivideIntegers(x, y);
    Scalar n = Wrap(dtype, bits, a.lost || b.lost);

    n.bound = Exactly(a, b) ? 0 : kNoBound;
    return n;
}

} // namespace

Scalar Exact(Real value)
{
    Scalar n;

    n.value = value;
    return n;
}

Scalar Unknown()
{
    Scalar n;

    n.bound = kNoBound;
    return n;
}

Scalar Add(Scalar a, Scalar b)
{
    Real sum = a.value + b.value;

    return Make(sum, a.bound + b.bound,
                std::isfinite(sum) ? SumError(a.value, b.value, sum) : 0,
                a.lost || b.lost);
}

Scalar Sub(Scalar a, Scalar b)
{
    b.value = -b.value;
    return Add(a, b);
}

Scalar Mul(Scalar a, Scalar b)
{
    Real product = a.value * b.value;
    bool exact = IsShort(a.value) && IsShort(b.value);
    double both = a.bound == 0 || b.bound == 0 ? 0 : a.bound * b.bound;

    return Make(product,
                Times(a.bound, b.value) + Times(b.bound, a.value) + both,
                exact ? 0 : kUnit * Size(product), a.lost || b.lost);
}

Scalar Div(Scalar a, Scalar b)
{
    Real q = a.value / b.value;
    double room = Size(b.value) - b.bound, bound = 0;

    if (!Exactly(a, b))
        bound = b.value == 0 && b.bound == 0 && Size(a.value) > a.bound ? 0
                : room > 0 ? (a.bound + Times(b.bound, q)) / room
                           : kNoBound;
    bool exact = IsShort(q) && IsShort(b.value) && q * b.value == a.value;
    return Make(q, bound, exact || q == 0 ? 0 : kUnit * Size(q),
                a.lost || b.lost);
}

Scalar Max(Scalar a, Scalar b)
{
    Scalar n = std::isnan(a.value) || a.value > b.value ? a : b;

    n.bound = std::max(a.bound, b.bound);
    n.lost = a.lost || b.lost;
    return n;
}

Scalar Min(Scalar a, Scalar b)
{
    Scalar n = std::isnan(a.value) || a.value < b.value ? a : b;

    n.bound = std::max(a.bound, b.bound);
    n.lost = a.lost || b.lost;
    return n;
}

Scalar Unary(const std::string &op, Scalar x)
{
    if (op == "neg" || op == "abs") {
        x.value = op == "neg" ? -x.value : std::fabs(x.value);
        return x;
    }
    if (op == "relu" || op == "gelu" || op == "gelu_erf" || op == "silu")
        return Activate(op, x);
    if (op == "sin" || op == "cos") {
        Real value = op == "sin" ? std::sin(x.value) : std::cos(x.value);

        return Make(value, std::min(x.bound, 2.0), 2 * kUnit * Size(value),
                    x.lost);
    }
    if (op == "floor")
        return Monotone(
            x, [](Real v) { return std::floor(v); }, 0);
    if (op == "exp")
        return Monotone(
            x, [](Real v) { return std::exp(v); }, 2);
    if (op == "log")
        return Monotone(
            x, [](Real v) { return std::log(v); }, 2);
    if (op == "sqrt")
        return Monotone(
            x, [](Real v) { return std::sqrt(v); }, 1);
    if (op == "rsqrt")
        return Monotone(
            x, [](Real v) { return 1 / std::sqrt(v); }, 3);
    if (op == "tanh")
        return Monotone(
            x, [](Real v) { return std::tanh(v); }, 2);
    return Monotone(x, Sigmoid, 6);
}

// Slopes of gelu and silu are at most 1.13 and 1.1; what 1 + tanh cancels is
// off by a unit of 1.
Scalar Activate(const std::string &act, Scalar x)
{
    if (act == "relu") {
        x.value = x.value < 0 ? 0 : x.value;
        return x;
    }
    Real value = act == "gelu"       ? x.value * (1 + GeluTanh(x.value)) / 2
                 : act == "gelu_erf" ? x.value * Below(x.value)
                                     : x.value * Sigmoid(x.value);
    return Make(value, x.bound * 1.2, 16 * kUnit * Size(x.value), x.lost);
}

// Where it is not known exactly, of a base above zero: it rises or falls.
Scalar Power(Scalar x, Scalar y)
{
    Real value = std::pow(x.value, y.value);
    double bound = 0;

    for (int i = 0; i < 4 && !Exactly(x, y); i++) {
        Real base = static_cast<Real>(i % 2 ? x.bound : -x.bound);
        Real exponent = static_cast<Real>(i / 2 ? y.bound : -y.bound);

        bound = std::max(
            bound, Size(std::pow(x.value + base, y.value + exponent) - value));
    }
    if (!Exactly(x, y) && !(x.value > static_cast<Real>(x.bound)))
        bound = kNoBound;
    return Make(value, bound, value == 0 ? 0 : 4 * kUnit * Size(value),
                x.lost || y.lost);
}

Scalar Gradient(const std::string &op, Scalar x, Scalar g)
{
    Real v = x.value, slope, bend;
    double size = std::min(Size(v), 20.0);

    if (op == "relu_grad") {
        Scalar passed = v <= 0 ? Exact(0) : g;

        passed.lost = x.lost || g.lost;
        if (x.bound > 0 && Size(v) <= x.bound) // nothing, or all of it
            passed.bound = g.bound + Size(g.value);
        return passed;
    }
    if (op == "gelu_grad") {
        Real t = GeluTanh(v), rest = 1 - t * t;

        slope = (1 + t) / 2;
        if (rest != 0)
            slope += v * rest / 2 * kGelu * (1 + 3 * 0.044715L * v * v);
        bend = 1.2L;
    } else if (op == "gelu_erf_grad") {
        Real density = std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0L));

        slope = Below(v) + (density > 0 ? v * density : 0);
        bend = 0.8L;
    } else {
        Real s = Sigmoid(v);

        slope = s * (1 + v * (1 - s));
        bend = 0.6L;
    }
    return Make(g.value * slope,
                Times(g.bound, std::fabs(slope) + bend * x.bound) +
                    Times(x.bound, bend * g.value),
                kUnit * Size(g.value) * (64 + 16 * size * size * size),
                x.lost || g.lost);
}

Scalar Compare(const std::string &op, Scalar a, Scalar b)
{
    Real x = a.value, y = b.value;
    Scalar n = Exact(op == "lt"   ? x < y
                     : op == "le" ? x <= y
                     : op == "gt" ? x > y
                     : op == "ge" ? x >= y
                     : op == "eq" ? x == y
                                  : x != y);

    n.bound = IsUnsure(a, b) ? 1 : 0;
    n.lost = a.lost || b.lost;
    return n;
}

bool IsInteger(const std::string &dtype)
{
    return dtype == "u8" || dtype == "i8" || dtype == "i32" || dtype == "i64";
}

Scalar Cast(const std::string &dtype, Scalar x)
{
    if (!IsInteger(dtype))
        return x;
    Real low = x.value - static_cast<Real>(x.bound);
    Real high = x.value + static_cast<Real>(x.bound);
    auto nearest = [&](Real v) {
        return std::isnan(v)
                   ? 0
                   : std::min(std::max(std::nearbyint(v), Least(dtype)),
                              Greatest(dtype));
    };
    double bound = x.bound == 0 ? 0 : Size(nearest(high) - nearest(low));

    x.value = nearest(x.value);
    x.bound = std::isnan(bound) ? kNoBound : bound;
    return x;
}

Scalar Nearest(const std::string &dtype, Real number)
{
    static const std::map<std::string, std::pair<int, int>> formats = {
        {"f64", {52, -1022}}, {"f32", {23, -126}}, {"bf16", {7, -126}},
        {"f16", {10, -14}},   {"f8e4m3", {3, -6}}, {"f8e5m2", {2, -14}}};
    auto format = formats.find(dtype); // bits of a fraction, least exponent

    if (format == formats.end() || number == 0)
        return Cast(dtype, Exact(number));
    int least = format->second.second;
    int exponent = std::max(std::ilogb(number), least);
    Real step = std::ldexp(1.0L, exponent - format->second.first);
    Real nearest = std::nearbyint(number / step) * step;
    if (dtype == "f8e4m3")
        return Exact(std::min(std::max(nearest, -448.0L), 448.0L));
    if (std::fabs(nearest) >= std::ldexp(1.0L, 2 - least))
        return Exact(std::copysign(kNoBound, nearest));
    return Exact(nearest);
}

Scalar Convert(const std::string &from, const std::string &to, Scalar x)
{
    if (!IsInteger(from) || !IsInteger(to))
        return Cast(to, x);
    Scalar n =
        Wrap(to, static_cast<uint64_t>(static_cast<int64_t>(x.value)), x.lost);

    n.bound = x.bound > 0 ? kNoBound : 0;
    return n;
}

Scalar Combine(const std::string &op, const std::string &dtype, Scalar a,
               Scalar b)
{
    if (op == "max")
        return Max(a, b);
    if (op == "min")
        return Min(a, b);
    if (IsInteger(dtype))
        return CombineIntegers(op == "sum" ? "add" : op, dtype, a, b);
    return op == "sub"   ? Sub(a, b)
           : op == "mul" ? Mul(a, b)
           : op == "div" ? Div(a, b)
                         : Add(a, b);
}

Scalar Change(const std::string &op, const std::string &dtype, Scalar x)
{
    if (!IsInteger(dtype))
        return Unary(op, x);
    if (op == "abs" && x.value >= 0)
        return x;
    return CombineIntegers("sub", dtype, Exact(0), x);
}

// Of integers the product's fraction is dropped, and what is left wraps.
Scalar Scale(const std::string &dtype, Scalar x, Scalar by)
{
    Scalar n = Mul(x, by);

    if (!IsInteger(dtype))
        return n;
    if (n.bound > 0 && std::trunc(n.value - static_cast<Real>(n.bound)) !=
                           std::trunc(n.value + static_cast<Real>(n.bound)))
        return Unknown();
    Real whole = std::trunc(n.value);
    if (std::isnan(whole))
        return Exact(0);
    return Wrap(dtype,
                static_cast<uint64_t>(static_cast<int64_t>(
                    std::min(std::max(whole, Least("i64")), Greatest("i64")))),
                n.lost);
}

Scalar None(const std::string &fold, const std::string &dtype)
{
    const Real infinity = std::numeric_limits<Real>::infinity();

    if (fold == "sum")
        return Exact(0);
    if (IsInteger(dtype))
        return Exact(fold == "max" ? Least(dtype) : Greatest(dtype));
    return Exact(fold == "max" ? -infinity : infinity);
}

bool MayBeEqual(const Scalar &a, const Scalar &b)
{
    if (a.lost || b.lost)
        return a.lost && b.lost;
    if (std::isinf(a.bound) || std::isinf(b.bound))
        return true;
    if (!std::isfinite(a.value) || !std::isfinite(b.value))
        return std::isnan(a.value) ? std::isnan(b.value) : a.value == b.value;
    return Size(a.value - b.value) <= a.bound + b.bound;
}

} // namespace second
