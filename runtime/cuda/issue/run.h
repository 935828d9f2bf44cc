// Runs of a session, and the thread that watches them.
#ifndef HD_RUNTIME_CUDA_ISSUE_RUN_H
#define HD_RUNTIME_CUDA_ISSUE_RUN_H

#include "runtime/cuda/device/device.h"

// -------------------------------------------- cuda/issue/run.c

hd_status hd_cuda_runs_open(hd_device *device, hd_diag *diag);
void hd_cuda_runs_close(hd_device *device);
// Issues a run on the caller's `stream`.
hd_status hd_cuda_run(hd_device *device, void *stream, void *const *arguments,
                      const hd_passing *passing, int variant, hd_diag *diag,
                      bool *captured);
// Destroys the graphs of a plan that no run is under way with.
void hd_cuda_runs_forget(hd_device *device, const hd_cuda_plan *plan);
// Blocks until all runs are over.
hd_status hd_cuda_finish(hd_device *device, hd_diag *diag);
hd_status hd_cuda_await_runs(hd_device *device, uint64_t run, int64_t deadline,
                             hd_diag *diag, bool *over);
void hd_cuda_run_stats(const hd_device *device, hd_stats *stats);
// For the thread that watches. The first run that is not over; 0 if there is
// none, or if the caller's stream has not come to it: until then it waits for
// nobody. 0 also for runs that never do.
uint64_t hd_cuda_run_in_flight(hd_device *device);
bool hd_cuda_runs_rest(hd_device *device);
// Whether the run's stream is past what mark `mark` of a run stands behind.
bool hd_cuda_run_has_passed(const hd_device *device, uint64_t run, int stream,
                            int mark);
// How many runs are issued whole.
uint64_t hd_cuda_runs_begun(const hd_device *device);

// ------------------------------------------ cuda/issue/watch.c

// From now on the home's thread looks after this session too; and no more. Of a
// device that has failed it comes to rest first.
hd_status hd_cuda_watch_start(hd_device *device, hd_diag *diag);
void hd_cuda_watch_stop(hd_device *device);
// Ends the home's thread.
void hd_cuda_watch_end(hd_cuda_home *home);

#endif
