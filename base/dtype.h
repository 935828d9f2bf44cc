// Element types in one place: size, name, and scalar conversion. Arrays convert
// through hd_dtype_load and hd_dtype_store of the public header.
#ifndef HD_BASE_DTYPE_H
#define HD_BASE_DTYPE_H

#include <heddle/verify.h>

#include "base/status.h"

HD_BEGIN_DECLS

// False if `length` bytes of `name` spell no dtype.
bool hd_dtype_find(const char *name, size_t length, hd_dtype *out);
bool hd_dtype_is_float(hd_dtype dtype);
bool hd_dtype_is_f8(hd_dtype dtype); // a float of 8 bits
bool hd_dtype_is_integer(hd_dtype dtype);
// Whether every value of `other` is one of `dtype`.
bool hd_dtype_holds(hd_dtype dtype, hd_dtype other);

// Half the distance between 1 and the next number: the relative error of one
// rounding to nearest. 0 for integers.
double hd_dtype_unit(hd_dtype dtype);
// The smallest positive subnormal, which bounds the absolute error of rounding
// near zero. 0 for integers.
double hd_dtype_tiny(hd_dtype dtype);

// The number that storing it leaves.
double hd_dtype_round(hd_dtype dtype, double number);

// As hd_dtype_load and hd_dtype_store, through float: exact for every dtype of
// at most 32 bits in floating point.
void hd_dtype_load_float(hd_dtype dtype, const void *from, size_t n, float *to);
void hd_dtype_store_float(hd_dtype dtype, const float *from, size_t n,
                          void *to);

// Integers as they are, of any alignment. What is stored wraps to the width of
// the dtype.
void hd_dtype_load_integers(hd_dtype dtype, const void *from, size_t n,
                            int64_t *to);
void hd_dtype_store_integers(hd_dtype dtype, const int64_t *from, size_t n,
                             void *to);

HD_END_DECLS

#endif
