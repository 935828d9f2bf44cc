// The passes, in order. Each takes a module at the stage before it, works in
// place, and leaves it at its own stage. `scratch` holds its temporaries.
#ifndef HD_LOWER_PASS_H
#define HD_LOWER_PASS_H

#include "ir/module.h"

HD_BEGIN_DECLS

// What became of the options that were asked for.
typedef struct hd_effect {
    unsigned asked;  // hd_option
    unsigned used;   // changed something
    unsigned warned; // were warned of, at the place where they change nothing
    struct hd_cliffs *cliffs; // NULL, or what is told though nobody asked
} hd_effect;

typedef hd_status hd_pass_fn(hd_module *module, const hd_lower_options *options,
                             hd_arena *scratch, hd_diag *diag,
                             hd_effect *effect);

// What decides how a gather or a reduction travels, and does nothing where none
// is pipelined.
#define HD_OPTIONS_OF_TRANSFERS                                              \
    ((unsigned)(HD_OPTION_TRANSFER | HD_OPTION_PROTOCOL | HD_OPTION_CHUNKS | \
                HD_OPTION_COPY_OWN | HD_OPTION_DEFER_SENDS | HD_OPTION_WIRE))

// Whether a collective moves all at once, as it is written: also what is not
// fused does.
static inline bool hd_lower_is_bulk(const hd_lower_options *options)
{
    return options->transfer == HD_TRANSFER_BULK ||
           options->transfer == HD_TRANSFER_FUSED;
}

hd_effect hd_effect_start(const hd_module *module,
                          const hd_lower_options *options);
// After the passes from stage `start` to `end`: warns of those that nothing was
// said of and that changed nothing.
void hd_effect_finish(hd_effect *effect, hd_stage start, hd_stage end,
                      hd_diag *diag);
// Warns of those of `options` that were asked for: they change nothing at
// `loc`, for that reason.
void hd_effect_none(hd_effect *effect, unsigned options, hd_diag *diag,
                    hd_loc loc, const char *reason);
// Whether anybody hears of that.
bool hd_effect_heard(const hd_effect *effect, unsigned options, hd_loc loc);

// Each operand of a tensor program is brought to where its statement needs it,
// and every tensor is declared: the program stays one, and says all of it.
hd_pass_fn hd_pass_place;
// set and sum between placements become named communication; tensor ops become
// host ops on the caller's stream.
hd_pass_fn hd_pass_reshard;
// Leaves out sets of what the next one takes apart again; the first thing that
// the pass above does.
void hd_join_sets(hd_module *module, hd_arena *scratch);
// What `set` and `sum` became is joined with the matmuls that it serves; the
// first thing that the next pass does, if asked.
void hd_fuse(hd_module *module, hd_arena *scratch, hd_diag *diag,
             hd_effect *effect);
// Ops over a stream dimension become one loop, an iteration an index; a gather
// that feeds it becomes a broadcast in the loop, a reduction that it feeds a
// reduce.
hd_pass_fn hd_pass_stream;
// The broadcasts or reductions of a loop become the pipeline that the options
// choose.
hd_pass_fn hd_pass_transfer;
// Forks, joins, records and waits that order the streams.
hd_pass_fn hd_pass_event;
// Which buffers peers map, which share bytes, which are not needed.
hd_pass_fn hd_pass_share;
// The products of a pipeline as one launch; only if that is asked for.
hd_pass_fn hd_pass_launch;

HD_END_DECLS

#endif
