// The fastest of what is predicted to be fast, by running it.
#ifndef HD_TOOLS_TUNE_H
#define HD_TOOLS_TUNE_H

#include <heddle/launch.h>

#include "program.h"

// As choose_best does it, but by hd_tune, on the ranks that a run has: forked
// here, or those of the launcher of `place`, which may be NULL.
outcome tune_best(const char *path, const content *text,
                  program_options *options, const hd_session_options *session,
                  const hd_place *place);

#endif
