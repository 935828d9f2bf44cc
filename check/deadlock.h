// Finds who waits for whom in a replay that does not go on.
#ifndef HD_CHECK_DEADLOCK_H
#define HD_CHECK_DEADLOCK_H

#include "check/replay.h"

HD_BEGIN_DECLS

// Why a stream does not move: it is at `step`, which needs `needed` of `peer`
// (another rank, or the same), which `stream` of that rank would issue.
typedef struct hd_edge {
    int rank, stream;
    int64_t step;
    int peer, next;
    int64_t needed;
    int64_t meets; // of a transfer: the step of `peer` that must start
    bool in_order; // `needed` is an earlier transfer of `peer`, which has to
                   // start, or over NCCL to end, before the one that is
                   // waited for
    bool held;     // `needed` is where a launch of `peer` is, which has the
                   // processors that the step takes, or what it meets
} hd_edge;

// Of a stream that is not at its end.
hd_edge hd_deadlock_edge(const hd_replay *replay, int rank, int stream);

// Reports the cycle, each edge at its place. Returns HD_ERROR_INVALID.
hd_status hd_deadlock_report(const hd_replay *replay, hd_diag *diag);

HD_END_DECLS

#endif
