// Who wants to know that runs are over without waiting for them: a thread of
// the session's, started for the first that asks, waits in the driver and tells
// one after the other. A run knows nothing of it.
#ifndef HD_RUNTIME_COMPLETION_H
#define HD_RUNTIME_COMPLETION_H

#include <heddle/async.h>

#include "runtime/driver.h"

HD_BEGIN_DECLS

typedef struct hd_completion hd_completion;

hd_status hd_completion_open(const hd_driver *driver, hd_device *device,
                             hd_diag *diag, hd_completion **out);
// Tells all that is left, which no run may hold up any more, and ends the
// thread.
void hd_completion_close(hd_completion *completion);
// Calls `fn` when the first `run` runs are over, or the device has failed.
hd_status hd_completion_notify(hd_completion *completion, uint64_t run,
                               hd_notify_fn *fn, void *context, hd_diag *diag);
// From now on the descriptor is readable once the first `run` runs are over, or
// the device has failed.
hd_status hd_completion_descriptor(hd_completion *completion, uint64_t run,
                                   hd_diag *diag, int *out);

HD_END_DECLS

#endif
