// `-D tp=2,4,8`: every combination of the values that parameters may have.
#ifndef HD_TOOLS_SWEEP_H
#define HD_TOOLS_SWEEP_H

#include "program.h"

enum { SWEEP_LIMIT = 4096 }; // combinations

typedef struct sweep_values {
    char *name;     // owned
    int64_t *value; // owned
    size_t n;
} sweep_values;

typedef struct sweep {
    sweep_values *values; // owned, one a name
    size_t n;
} sweep;

// Takes "name=value" or "name=value,value,..". The last word of a name counts.
outcome sweep_take(void *sweep, const char *option, const char *word);
void sweep_free(sweep *sweep);

// How many combinations; 1 if nothing was taken.
size_t sweep_count(const sweep *sweep);
// Defines what combination `i` sets, the last name changing fastest.
void sweep_define(const sweep *sweep, size_t i, program_options *options);

#endif
