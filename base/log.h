// Tells whoever listens what was decided and why, where nothing else tells it:
// neither a status nor a diag, since nothing is wrong.
#ifndef HD_BASE_LOG_H
#define HD_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

HD_BEGIN_DECLS

// Whether anybody listens: where words cost something.
bool hd_log_on(void);
// A note says what was chosen; a warning, that it is less than might be had.
void hd_log(hd_severity severity, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

HD_END_DECLS

#endif
