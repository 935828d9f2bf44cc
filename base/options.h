// Structs that cross the border of the library. Each begins with a size_t that
// says how long its caller takes it to be, so that either may be older.
#ifndef HD_BASE_OPTIONS_H
#define HD_BASE_OPTIONS_H

#include "base/status.h"

HD_BEGIN_DECLS

// Copies what `given` has of the `bytes` that this library knows; the rest is
// 0. False if it has no size, or anything beyond these that is not 0.
HD_MUST_USE bool hd_struct_take(const void *given, size_t bytes, void *out);

HD_END_DECLS

#endif
