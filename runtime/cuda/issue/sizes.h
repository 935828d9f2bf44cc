// What each rank says of its runs: the sizes that it was given. They are the
// same on all ranks, so nobody sends them to anyone; but a caller may get them
// wrong on one rank, and then what moves has other places and lengths there. So
// ranks of a host write them where the others look, and a run pays a few words.
#ifndef HD_RUNTIME_CUDA_ISSUE_SIZES_H
#define HD_RUNTIME_CUDA_ISSUE_SIZES_H

#include "runtime/cuda/commands/plan.h"

// Does nothing for a program without sizes, or of one rank.
hd_status hd_cuda_sizes_open(hd_device *device, hd_diag *diag);
void hd_cuda_sizes_close(hd_device *device);
// For the peer to map; -1 where it cannot. Stays the device's.
int hd_cuda_sizes_export(const hd_device *device, int peer);
// Takes `fd` over.
hd_status hd_cuda_sizes_import(hd_device *device, int peer, int fd,
                               hd_diag *diag);
// Run `run` is of the plan.
void hd_cuda_sizes_say(const hd_cuda_plan *plan, uint64_t run);
// Whether a rank of this host was given others in a run, which `text` then
// tells. Any thread may call.
bool hd_cuda_sizes_differ(const hd_device *device, char *text, size_t bytes);

#endif
