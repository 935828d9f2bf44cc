// Runs that a caller captures into a graph of its own. Such a run has no number
// that the host could know: it happens whenever the graph is launched. So in a
// session that may be captured the device counts its runs, captured or not: the
// first command of each takes the next number, and all that tells peers the
// number, or waits for it, reads it where it is kept, the tally.
//
//     caller's stream   begin: run 7 ── .. ── ready ────────── await done ──
//     end the tally's run          7 a work stream                      └──
//     copy ── write done = 7 ──┘
//
// Words go to the device by a kernel in place of a call, and what the host
// knows by events of its own - whether a run is under way, and when nobody
// waits any more - is read from the tally and written to it.
#ifndef HD_RUNTIME_CUDA_ISSUE_CAPTURE_H
#define HD_RUNTIME_CUDA_ISSUE_CAPTURE_H

#include "runtime/cuda/commands/plan.h"

// ---------------------------------------- cuda/issue/capture.c

// Does nothing for sessions that are not asked for it, as the next one.
hd_status hd_cuda_captures_open(hd_device *device, hd_diag *diag);
void hd_cuda_captures_close(hd_device *device);
// The words of a command, by kernels.
hd_status hd_cuda_count_words(hd_device *device, const hd_cu_memop *word,
                              int all, hd_cu_stream stream, hd_diag *diag);
// HD_ERROR_ARGUMENT if what goes into the stream now cannot become part of its
// capture; else other streams stand in for the session's until `end`, whatever
// happens in between. Those that are captured stay so until the capture ends.
hd_status hd_cuda_capture_begin(hd_device *device, hd_cu_stream stream,
                                hd_diag *diag);
hd_status hd_cuda_capture_end(hd_device *device, hd_diag *diag);
// Lets the capture fail, of which a part of a run is: launched as it is, it
// would leave peers waiting for the rest. Before `end`.
void hd_cuda_capture_break(hd_device *device);
// The run on the stream, of which the rest will not be issued, has ended there.
void hd_cuda_captures_abandon(hd_device *device, hd_cu_stream stream);
// The number of the run that is under way on the device; 0 if there is none, or
// it cannot be asked. For the thread that watches.
uint64_t hd_cuda_captures_busy(hd_device *device);
// Nothing of the session waits for peers from now on. For that thread, too.
void hd_cuda_captures_release(hd_device *device);

#endif
