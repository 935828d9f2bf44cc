// Finds who waits for whom in a replay that is stuck.
#ifndef HD_CHECK_DEADLOCK_H
#define HD_CHECK_DEADLOCK_H

#include "check/replay.h"

HD_BEGIN_DECLS

// Reports the cycle, each edge at its place. Returns HD_ERROR_INVALID.
hd_status hd_deadlock_report(const hd_replay *replay, hd_diag *diag);

HD_END_DECLS

#endif
