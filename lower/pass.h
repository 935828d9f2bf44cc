// The passes, in order. Each takes a module at the stage before it, works in
// place, and leaves it at its own stage. `scratch` holds its temporaries.
#ifndef HD_LOWER_PASS_H
#define HD_LOWER_PASS_H

#include "ir/module.h"

HD_BEGIN_DECLS

typedef hd_status hd_pass_fn(hd_module *module, const hd_lower_options *options,
                             hd_arena *scratch, hd_diag *diag);

// set and sum between placements become named communication; tensor ops become
// host ops on the caller's stream.
hd_pass_fn hd_pass_reshard;
// Ops over a stream dimension become one loop, a trip an index; communication
// that feeds it becomes a broadcast in the loop.
hd_pass_fn hd_pass_stream;
// Each broadcast of a loop becomes the pipeline that the options choose.
hd_pass_fn hd_pass_transfer;
// The fewest forks, joins, records and waits that order the streams.
hd_pass_fn hd_pass_event;
// Which buffers peers map, which share bytes, which are not needed.
hd_pass_fn hd_pass_place;

HD_END_DECLS

#endif
