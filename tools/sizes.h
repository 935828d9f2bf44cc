// The sizes that --run gives runs, one after the other.
#ifndef HD_TOOLS_SIZES_H
#define HD_TOOLS_SIZES_H

#include "tool.h"

// As many different runs as it can say.
enum { MOST_SIZES = 64 };

typedef struct size_values {
    char *name; // owned
    int64_t value[MOST_SIZES];
    size_t n;
} size_values;

typedef struct sizes {
    size_values *size; // owned
    size_t n;
    size_t runs; // after which they begin again; 0 if there are none
} sizes;

// NAME=VALUE,VALUE,..: an option's.
outcome sizes_take(void *to, const char *option, const char *word);
void sizes_free(sizes *sizes);
// Each has the name of a size of the module, and values in its range.
outcome sizes_check(sizes *sizes, const hd_module *module);
// What run `run`, from 0, is given: the greatest of a size that is not named.
// `out` has room for as many as the module has.
void sizes_of_run(const sizes *sizes, const hd_module *module, int64_t run,
                  int64_t *out);
// The module with these.
hd_status sizes_set(const sizes *sizes, hd_module *module, int64_t run,
                    hd_diag *diag);

#endif
