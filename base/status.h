// Early return on failure, for functions that hold nothing yet.
#ifndef HD_BASE_STATUS_H
#define HD_BASE_STATUS_H

#include <heddle/heddle.h>

#define HD_TRY(call)                    \
    do {                                \
        hd_status try_status_ = (call); \
        if (try_status_ != HD_OK)       \
            return try_status_;         \
    } while (0)

#endif
