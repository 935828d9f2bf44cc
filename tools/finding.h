// What was found in a program, with its places: in the text that was read, and
// in the host program that it was lowered to.
#ifndef HD_TOOLS_FINDING_H
#define HD_TOOLS_FINDING_H

#include "tool.h"

// Bytes of a line, both from 1; a line of 0 is no place.
typedef struct place {
    int line, column, width;
} place;

typedef struct finding {
    hd_severity severity;
    char code[8]; // "" if it has none
    char *text;   // owned
    place source, host;
} finding;

typedef struct findings {
    finding *all; // owned
    size_t n;
    char *rest; // owned: what is said behind them, of those left out
} findings;

// Of a diag that has not been cleared.
findings findings_of(hd_diag *diag);

// `host` is what was found in the host program's own text. If those are the
// findings from `first` on, they have their places there from now on too.
void findings_locate(findings *findings, size_t first, hd_diag *host);

void findings_free(findings *findings);

#endif
