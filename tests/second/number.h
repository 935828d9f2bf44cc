// Numbers that know how far they may be off, so that two evaluations of one
// sum may be compared whatever the order in which they add.
//
// Values are long doubles, whose 64 bits hold every i64, and carry a bound on
// what rounding has made of them: running error analysis, one bound an
// operation. Nothing is rounded to the dtype in which a program stores it, but
// for integers: what is compared are the programs as real arithmetic has them.
#ifndef HD_TESTS_SECOND_NUMBER_H
#define HD_TESTS_SECOND_NUMBER_H

#include <cfloat>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace second
{

using Real = long double;
static_assert(LDBL_MANT_DIG >= 64, "an i64 fits into the mantissa");

struct Scalar {
    Real value = 0;
    double bound = 0;  // infinite where anything may be right
    bool lost = false; // made of what nobody has written
};

// What rounding leaves open, so that nobody can say what a program makes.
struct Undecided : std::runtime_error {
    using std::runtime_error::runtime_error;
};

Scalar Exact(Real value);
Scalar Unknown(); // anything may be right

Scalar Add(Scalar a, Scalar b);
Scalar Sub(Scalar a, Scalar b);
Scalar Mul(Scalar a, Scalar b);
Scalar Div(Scalar a, Scalar b);
// Of zeros of both signs the last; a NaN is the result.
Scalar Max(Scalar a, Scalar b);
Scalar Min(Scalar a, Scalar b);
// By name: exp, relu_grad ..
Scalar Unary(const std::string &op, Scalar x);
Scalar Activate(const std::string &act, Scalar x);
Scalar Power(Scalar x, Scalar y);
Scalar Gradient(const std::string &op, Scalar x, Scalar g);
// 1 or 0, by lt, le ..
Scalar Compare(const std::string &op, Scalar a, Scalar b);

bool IsInteger(const std::string &dtype);
// As a cast makes it: integers are the nearest even, and saturate. Of floating
// dtypes the number itself.
Scalar Cast(const std::string &dtype, Scalar x);
// The one of the dtype's that is nearest, of two the even one.
Scalar Nearest(const std::string &dtype, Real number);
// The same, but that one integer becomes another as it wraps.
Scalar Convert(const std::string &from, const std::string &to, Scalar x);
// Arithmetic of a dtype: as above, or integers that wrap.
Scalar Combine(const std::string &op, const std::string &dtype, Scalar a,
               Scalar b);
Scalar Change(const std::string &op, const std::string &dtype, Scalar x);
Scalar Scale(const std::string &dtype, Scalar x, Scalar by);
// What a `sum`, `max` or `min` of nothing is.
Scalar None(const std::string &fold, const std::string &dtype);

// Whether both may be right values of one element.
bool MayBeEqual(const Scalar &a, const Scalar &b);

} // namespace second

#endif
