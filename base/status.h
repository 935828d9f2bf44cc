// What becomes of a status.
#ifndef HD_BASE_STATUS_H
#define HD_BASE_STATUS_H

#include <heddle/heddle.h>

// Early return on failure, for functions that hold nothing yet.
#define HD_TRY(call)                    \
    do {                                \
        hd_status try_status_ = (call); \
        if (try_status_ != HD_OK)       \
            return try_status_;         \
    } while (0)

// For a failure that is told otherwise, or that nobody is left to be told of.
static inline void hd_ignore(hd_status status)
{
    (void)status;
}

#endif
