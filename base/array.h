// Arrays that grow. Of what may be millions, as steps are, each is one
// malloc'ed block that its owner frees, and running out of memory is a status.
#ifndef HD_BASE_ARRAY_H
#define HD_BASE_ARRAY_H

#include "base/diag.h"

HD_BEGIN_DECLS

// Makes room for `need` elements of `size` bytes; what is new is not cleared.
hd_status hd_grow(void **array, int64_t *room, int64_t need, size_t size,
                  hd_diag *diag);
// Cleared; room for at least one element, so never NULL on success.
hd_status hd_clear_array(int64_t n, size_t size, hd_diag *diag, void **out);

HD_END_DECLS

#endif
