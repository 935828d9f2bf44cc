// What `heddle run` tells of a job that ran.
#ifndef HD_TOOLS_REPORT_H
#define HD_TOOLS_REPORT_H

#include "job.h"

// One line an output; FAILED if one is wrong.
outcome report_verdicts(const job *job, FILE *to);

// Counts and times, a line each.
void report_stats(const job *job, FILE *to);

#endif
