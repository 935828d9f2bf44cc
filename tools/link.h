// Which lines of a program and of the host program that it is lowered to belong
// together, and what every step of a simulation stands for in both.
#ifndef HD_TOOLS_LINK_H
#define HD_TOOLS_LINK_H

#include <heddle/simulate.h>

#include "file.h"

// Lines count from 1; 0 is none. Those of the host program are indices.
typedef struct links {
    int nlines;    // of the host program
    int *source;   // owned: the line that a line is made from
    int *loop;     // owned: the outermost `for` around a line
    int64_t n;     // intervals of the simulation
    int *host;     // owned, by interval: its line
    int64_t *trip; // owned, by interval: of that loop, from 0
} links;

// `host` is the text of the module that was simulated; where it was not,
// `simulation` is NULL and there are no intervals. The links of statements are
// those of their steps, those of declarations their names.
hd_status links_make(const content *source, const char *host,
                     const hd_simulation *simulation, hd_diag *diag,
                     links *out);
void links_free(links *links);

#endif
