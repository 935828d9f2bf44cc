// Takes the times of probes, in the ranks. Of each the two programs take turns,
// at the largest size that does not take too long; a time is that of the
// slowest rank.
#ifndef HD_TOOLS_GAUGE_H
#define HD_TOOLS_GAUGE_H

#include "probe.h"

enum { MOST_READINGS = 64, FEWEST_READINGS = 5 };

// What was read of one probe.
typedef struct reading {
    int level;
    int n;                      // of both
    double more[MOST_READINGS]; // s: by how much longer the second took
    bool late;                  // time was up: it was not measured
    char why[160];              // it cannot be measured
} reading;

typedef struct gauge {
    hd_session_options session; // device and timeout
    bool cuda;
    const probe *const *probe; // borrowed
    int n;
    int ranks;
    double start, limit; // s, by seconds(): when it began, and may take
    reading *reading;    // owned, shared by all processes: one a probe
    hd_diag *diag;       // borrowed
} gauge;

// Forks the ranks. Says what went wrong.
outcome gauge_all(gauge *gauge);
void gauge_close(gauge *gauge);

#endif
