// runtime/cuda/vendor/api.h for C++: what it asserts is asserted in C.
#ifndef HD_FAKE_API_H
#define HD_FAKE_API_H

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc11-extensions"
#elif !defined(_Static_assert)
#define _Static_assert static_assert
#endif

extern "C" {
#include "runtime/cuda/vendor/api.h"
}

#ifdef __clang__
#pragma clang diagnostic pop
#else
#undef _Static_assert
#endif

#endif
