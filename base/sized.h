// Structs of the public interface, whose first member, `size_t size`, says how
// many bytes of them the caller knows: programs that were compiled before a
// struct grew, or after it, work with this library.
#ifndef HD_BASE_SIZED_H
#define HD_BASE_SIZED_H

#include "base/diag.h"

HD_BEGIN_DECLS

// Takes over what a caller gave, where `out`, of `own` bytes, has the defaults:
// all of it if `given` is NULL, else of members that the caller does not know.
// HD_ERROR_ARGUMENT if `given` has no size, or sets what is not known here.
// `function` stands in the message.
HD_MUST_USE hd_status hd_sized_read(const char *function, const void *given,
                                    size_t own, hd_diag *diag, void *out);

// The same where nobody is told: false is HD_ERROR_ARGUMENT.
HD_MUST_USE bool hd_sized_take(const void *given, size_t own, void *out);

// Gives a caller as much of `mine` as it knows; what it knows more is zero.
void hd_sized_write(const void *mine, size_t own, void *out);

HD_END_DECLS

#endif
