// What `heddle run` tells of a job that ran.
#ifndef HD_TOOLS_REPORT_H
#define HD_TOOLS_REPORT_H

#include "job.h"

// One line an output; FAILED if one is wrong.
outcome report_verdicts(const job *job, FILE *to);

// One line: where the values of a whole output lie.
void report_values(const hd_argument *about, const void *data, FILE *to);

// How long runs took, where standard error is a terminal: what goes into a file
// is the same each time.
void report_time(const job *job);

// Counts and times, a line each.
void report_stats(const job *job, FILE *to);

#endif
