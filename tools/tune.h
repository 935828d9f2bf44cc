// The fastest of what is predicted to be fast, by running it.
#ifndef HD_TOOLS_TUNE_H
#define HD_TOOLS_TUNE_H

#include <heddle/launch.h>

#include "program.h"

// As choose_best does it, but by hd_tune, on the ranks that a run has: forked
// here, or those of the launcher of `place`, which may be NULL.
// `*chosen` says whether there was a choice; where nothing could be run for it,
// and so nothing is tuned, that is warned of.
outcome tune_best(const char *path, const content *text,
                  program_options *options, const hd_session_options *session,
                  const hd_place *place, bool *chosen);
// Warns that it was asked for and has no effect, where that is so.
void tune_in_vain(const program_options *options,
                  const hd_session_options *session, const char *why);

#endif
