// The arguments of runs as a session knows them: what each is, and whether
// those of a run may be where they are.
#ifndef HD_RUNTIME_ARGUMENT_H
#define HD_RUNTIME_ARGUMENT_H

#include "ir/module.h"

HD_BEGIN_DECLS

typedef struct hd_given hd_given;

typedef struct hd_arguments {
    const hd_module *module; // borrowed
    size_t n;
    hd_given *given;        // owned
    const hd_given **order; // owned: by the addresses they had last, and as
                            // much room to sort them
} hd_arguments;

hd_status hd_arguments_list(const hd_module *module, hd_diag *diag,
                            hd_arguments *out);
void hd_arguments_free(hd_arguments *arguments);
// Refuses as many as are not asked for, NULL, and written ones that overlap
// others. Asks for no memory.
hd_status hd_arguments_check(hd_arguments *arguments, void *const *address,
                             size_t n, hd_diag *diag);

HD_END_DECLS

#endif
