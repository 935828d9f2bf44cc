#include "base/sized.h"

#include <assert.h>
#include <string.h>

// No struct comes near: a larger size was never set.
enum { MOST = 1 << 16 };

static size_t size_of(const void *sized)
{
    size_t size;

    memcpy(&size, sized, sizeof size);
    return size;
}

static bool is_size(size_t size)
{
    return size >= sizeof size && size <= MOST;
}

// The first byte that is set and not known here; `size` if there is none.
static size_t find_unknown(const char *given, size_t own, size_t size)
{
    size_t i = own;

    while (i < size && given[i] == 0)
        i++;
    return i < size ? i : size;
}

bool hd_sized_take(const void *given, size_t own, void *out)
{
    size_t size = size_of(given);

    if (!is_size(size) || find_unknown(given, own, size) < size)
        return false;
    memcpy(out, given, size < own ? size : own);
    memcpy(out, &own, sizeof own);
    return true;
}

hd_status hd_sized_read(const char *function, const void *given, size_t own,
                        hd_diag *diag, void *out)
{
    if (given == NULL || hd_sized_take(given, own, out))
        return HD_OK;
    if (!is_size(size_of(given)))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%s: a struct has no size: begin with its defaults, or "
                       "with HD_EMPTY",
                       function);
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "%s: byte %zu of a struct is set; heddle %s knows the first "
                   "%zu",
                   function, find_unknown(given, own, size_of(given)),
                   HD_VERSION, own);
}

void hd_sized_write(const void *mine, size_t own, void *out)
{
    size_t size = size_of(out);

    assert(is_size(size));
    if (!is_size(size))
        return;
    memcpy(out, mine, size < own ? size : own);
    if (size > own)
        memset((char *)out + own, 0, size - own);
    memcpy(out, &size, sizeof size);
}
