// The arguments of runs as a session knows them: what each is, and whether
// those of a run may be where they are.
#ifndef HD_RUNTIME_ARGUMENT_H
#define HD_RUNTIME_ARGUMENT_H

#include "ir/module.h"

HD_BEGIN_DECLS

typedef struct hd_given hd_given;

// How a run is given an argument.
typedef struct hd_passing {
    bool on_host; // one element, in the host's memory, for the call
    bool strided; // not dense
    int64_t stride[HD_MAX_DIMS];
} hd_passing;

typedef struct hd_arguments {
    const hd_module *module; // borrowed
    size_t n;
    hd_given *given;        // owned
    void **fixed;           // owned: NULL, or where each is in every run
    const hd_given **order; // owned: by the addresses they had last, and as
                            // much room to sort them
    hd_passing *passing;    // owned: of the last run that had any
} hd_arguments;

hd_status hd_arguments_list(const hd_module *module, hd_diag *diag,
                            hd_arguments *out);
// Before they are listed: runs have each where `fixed`, one an argument, says,
// unless that is NULL. Copied.
hd_status hd_arguments_fix(hd_arguments *arguments, const hd_module *module,
                           void *const *fixed, size_t n, hd_diag *diag);
void hd_arguments_free(hd_arguments *arguments);
// Refuses as many as are not asked for, NULL, written ones that overlap others,
// and what cannot be on the host or lie as it is said to. Asks for no memory.
// `out` is by argument, until the next call; NULL if all are dense memory of
// the device.
hd_status hd_arguments_check(hd_arguments *arguments, void *const *address,
                             size_t n, const hd_run_options *options,
                             hd_diag *diag, const hd_passing **out);

HD_END_DECLS

#endif
