// The programs whose times say what a machine costs: each goes by one term of
// the simulator's machine more than by any other. It is run twice, with little
// and with much of what is asked for, so that what both have in common is not
// in the difference.
#ifndef HD_TOOLS_PROBE_H
#define HD_TOOLS_PROBE_H

#include <heddle/simulate.h>

#include "tool.h"

typedef enum unit {
    UNIT_SECONDS,
    UNIT_BYTES,      // a second
    UNIT_OPERATIONS, // a second
    UNIT_SHARE,
} unit;

// On which devices.
enum { PROBE_CPU = 1, PROBE_CUDA = 2 };

typedef struct probe {
    const char *term; // as a machine file has it
    size_t at;        // the double of hd_machine that it is
    size_t unbound;   // 0, or another, a rate, that does not bound it: what one
                      // measures is at most what the other one is
    unit in;
    unsigned devices;
    int ranks; // that it takes at least
    const char *text;
    hd_dtype dtype, result; // that stand in it
    int few, many;          // what $N is in either
    int base;               // what $M is at level 0; it doubles with each
    int levels;
    int growth;     // as many times as long takes the next level, at most
    double longest; // s: levels go up as long as `many` takes no longer
    bool hot;       // a GPU is kept busy up to the run that is timed: its clock
                    // goes down when it has much to do
    bool by_host;   // the difference is that of the time in which the host
                    // issues the steps, of which one is asked for
} probe;

extern const probe probes[]; // a term NULL ends them

// Why it cannot be had on so many ranks; NULL if it can, and for another device
// there is none of it (`devices`).
const char *probe_obstacle(const probe *probe, int ranks);

// A complete host program. HD_ERROR_NO_MEMORY is all that goes wrong.
hd_status probe_module(const probe *probe, int ranks, int level, bool many,
                       hd_diag *diag, hd_module **out);

#endif
