// The few public functions that belong to no object.
#include "base/status.h"

#include <stdlib.h>

const char *hd_status_text(hd_status status)
{
    switch (status) {
    case HD_OK:
        return "ok";
    case HD_ERROR_INVALID:
        return "invalid program";
    case HD_ERROR_ARGUMENT:
        return "invalid argument";
    case HD_ERROR_NO_MEMORY:
        return "out of memory";
    case HD_ERROR_SYSTEM:
        return "system error";
    case HD_ERROR_UNSUPPORTED:
        return "not supported";
    case HD_ERROR_PEER:
        return "another rank failed";
    case HD_ERROR_TIMEOUT:
        return "timed out";
    }
    return "unknown status";
}

const char *hd_version(void)
{
    return HD_VERSION;
}

void hd_free(void *memory)
{
    free(memory);
}
