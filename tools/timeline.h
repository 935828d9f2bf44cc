// Steps on the time axis, predicted or measured, for what draws them.
#ifndef HD_TOOLS_TIMELINE_H
#define HD_TOOLS_TIMELINE_H

#include <heddle/simulate.h>

#include "tool.h"

typedef struct timeline {
    const hd_simulation *names; // borrowed: of the same program
    const char *title;          // borrowed
    hd_interval *interval;      // owned, as the simulation has them
    int64_t n;
    int ranks;
    double end; // s
    // Borrowed, by interval: its line of the host program, which bars of the
    // picture then have beside their own as attributes. Or NULL.
    const int *host;
} timeline;

// What was predicted; the caller may overwrite starts and ends.
timeline timeline_of(const hd_simulation *simulation, const char *title,
                     int ranks);
void timeline_free(timeline *timeline);

// Writes each whose path is not NULL, also where the other cannot be written.
// The trace is in Chrome's format: a process a rank, a thread a stream, arrows
// for what ranks send each other. The picture is of the first ranks: compute,
// transfers and idle streams, and the critical path.
outcome timeline_draw(timeline *timeline, const char *trace, const char *svg);
void timeline_print_svg(const timeline *timeline, FILE *to);

#endif
