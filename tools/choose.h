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

// Candidate `i`; false if there are not so many.
bool candidate_get(const hd_choice *choice, size_t i, candidate *out);

// hd_choose of a program that is not complete. Complains if no pipeline fits.
outcome choose_all(const char *path, const hd_module *module,
                   const program_options *options, const hd_machine *machine,
                   hd_choice **out);

// For --transfer auto: sets options->lower and says so on standard error, where
// options->quiet does not keep it. Does nothing for a program that is lowered
// already.
outcome choose_best(const char *path, const content *text,
                    program_options *options);

// Whether there is a choice: then `*out` is the program, which the caller
// destroys. What does not parse is told when it is parsed in earnest.
bool choose_has(const char *path, const content *text,
                const program_options *options, hd_module **out);
// That which is chosen for.
outcome choose_machine(const program_options *options, hd_machine *out);
// What is typed for the same program.
enum { CHOOSE_FLAGS = 160 };
void choose_flags(const hd_lower_options *lower, char out[CHOOSE_FLAGS]);
// The same in few words, as a name: "ring s4 c2 comm defer".
enum { CHOOSE_NAME = 64 };
void choose_name(const hd_lower_options *lower, char out[CHOOSE_NAME]);
// On standard error, with `then` behind it: what was chosen.
void choose_tell(const char *path, const hd_lower_options *lower,
                 double predicted, const hd_machine *machine, const char *then);

#endif
