// What --in and --out name, and the arrays behind --in.
#ifndef HD_TOOLS_INPUTS_H
#define HD_TOOLS_INPUTS_H

#include "array.h"

typedef struct binding {
    char *name;       // owned: an argument's, without %
    const char *path; // borrowed
} binding;

typedef struct bindings {
    const char *option; // "--in" or "--out"
    binding *binding;   // owned
    size_t n;
} bindings;

// Takes "name=path". A name may stand once.
outcome bindings_take(void *bindings, const char *option, const char *word);
void bindings_free(bindings *bindings);
// The path bound to `name`, or NULL.
const char *bindings_find(const bindings *bindings, const char *name);
// That every name is an argument of the module whose role fits the option.
outcome bindings_check(const bindings *bindings, const hd_module *module);
// That the output `name` of an option replaces none of the files; it may be
// NULL.
outcome bindings_spared(const bindings *bindings, const char *option,
                        const char *name);

// Reads the array that `path` names for `argument`: "x.npy", "-", or
// "x.safetensors:name". `file` owns what `out` may point into.
outcome input_open(const char *path, const hd_argument *argument, bool cast,
                   array *file, whole *out);

#endif
