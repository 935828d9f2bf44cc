// Arrays that grow, for the checker: millions of steps are kept, so each is one
// malloc'ed block that its owner frees, and running out of memory is a status.
#ifndef HD_CHECK_MEMORY_H
#define HD_CHECK_MEMORY_H

#include "base/diag.h"

HD_BEGIN_DECLS

// Makes room for `need` elements of `size` bytes; what is new is not cleared.
hd_status hd_grow(void **array, int64_t *room, int64_t need, size_t size,
                  hd_diag *diag);
// Cleared; room for at least one element, so never NULL on success.
hd_status hd_clear_array(int64_t n, size_t size, hd_diag *diag, void **out);

HD_END_DECLS

#endif
