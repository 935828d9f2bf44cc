// See array.h.
#include "base/array.h"

#include <stdlib.h>

hd_status hd_grow(void **array, int64_t *room, int64_t need, size_t size,
                  hd_diag *diag)
{
    int64_t larger = *room > 0 ? *room : 64;
    void *grown;

    if (need <= *room)
        return HD_OK;
    while (larger < need)
        larger *= 2;
    grown = realloc(*array, size * (size_t)larger);
    if (grown == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    *array = grown;
    *room = larger;
    return HD_OK;
}

hd_status hd_clear_array(int64_t n, size_t size, hd_diag *diag, void **out)
{
    void *array = calloc((size_t)n + 1, size);

    if (array == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    *out = array;
    return HD_OK;
}
