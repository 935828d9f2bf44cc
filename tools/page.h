// The page of `heddle view`: a program, what it is lowered to, its pipeline,
// its timeline and what was found, as one file of HTML that needs no other.
#ifndef HD_TOOLS_PAGE_H
#define HD_TOOLS_PAGE_H

#include "finding.h"
#include "link.h"
#include "timeline.h"

typedef struct page {
    const char *file;      // as messages name it
    const content *source; // what was read
    const char *name;      // of the program; NULL if it could not be read
    int ranks;
    const char *host; // the host program, NULL if there is none
    bool complete;    // the source is the host program
    const char *way;  // how it was lowered, in words; "" if it was not
    const findings *findings;
    const links *links;   // of a program with a host program
    const timeline *line; // NULL if it was not simulated, nor the next two
    const hd_prediction *prediction;
    const char *machine;
} page;

outcome page_print(void *page, FILE *to);

#endif
