// The pipelines and options that a tensor program may be lowered with, and what
// each is predicted to take.
#ifndef HD_TOOLS_CHOOSE_H
#define HD_TOOLS_CHOOSE_H

#include <heddle/simulate.h>

#include "program.h"

typedef struct candidate {
    hd_lower_options lower;
    hd_prediction prediction;
    unsigned also; // a bit for each other hd_transfer that makes the same
} candidate;

enum { MOST_CANDIDATES = 64 };

// Fills `out`, best first; those that do not fit the program are left out, and
// those that make the same program as one before. Complains if there is none.
outcome choose_all(const char *path, const content *text,
                   const program_options *options, const hd_machine *machine,
                   candidate out[MOST_CANDIDATES], int *n);

// For --transfer auto: sets options->lower and says so on standard error, where
// options->quiet does not keep it. Does nothing for a program that is lowered
// already.
outcome choose_best(const char *path, const content *text,
                    program_options *options);

const char *choose_name(hd_transfer transfer);

#endif
