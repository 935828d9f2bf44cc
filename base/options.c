#include "base/options.h"

#include <string.h>

bool hd_struct_take(const void *given, size_t bytes, void *out)
{
    const char *from = given;
    size_t size;

    memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return false;
    for (size_t i = bytes; i < size; i++)
        if (from[i] != 0)
            return false;
    memset(out, 0, bytes);
    memcpy(out, given, size < bytes ? size : bytes);
    return true;
}
