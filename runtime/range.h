// Ranges of the host's time for tools that read NVTX, as Nsight Systems does:
// every run, and every step, named after its op: its issue, to which tools join
// what the device does of it, or on the CPU the step itself.
#ifndef HD_RUNTIME_RANGE_H
#define HD_RUNTIME_RANGE_H

#include "ir/walk.h"

HD_BEGIN_DECLS

typedef struct hd_ranges hd_ranges;

// NULL if no tool listens, memory runs out, or the build had no NVTX headers;
// the other functions take that and do nothing. `module` and `steps` are
// borrowed until it is closed.
hd_ranges *hd_ranges_open(const hd_module *module, const hd_steps *steps);
void hd_ranges_close(hd_ranges *ranges);

// Each begins a range of the calling thread, inside those that it has begun.
void hd_ranges_run(const hd_ranges *ranges, uint64_t run);
void hd_ranges_step(const hd_ranges *ranges, const hd_step *step);
// Ends the last that was begun.
void hd_ranges_end(const hd_ranges *ranges);

HD_END_DECLS

#endif
