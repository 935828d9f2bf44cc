// Vendor libraries, opened at run time: nothing here links against them, and
// the same build works where none is installed.
#ifndef HD_BASE_LIBRARY_H
#define HD_BASE_LIBRARY_H

#include <stddef.h>

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_symbol {
    const char *name; // as the library exports it
    size_t offset;    // of the pointer in the table
} hd_symbol;

// All static; arrays of names end in NULL.
typedef struct hd_library_info {
    const char *title;          // "the CUDA driver"
    const char *variable;       // of the environment: "HEDDLE_CUDA_LIB"
    const char *const *names;   // SONAMEs, best first
    const char *const *folders; // below site-packages: "nvidia/nccl/lib"
    const hd_symbol *symbol;
    size_t nsymbols;
} hd_library_info;

typedef struct hd_library {
    void *handle;    // owned; NULL if not open
    char path[1024]; // of the file that was loaded
} hd_library;

// Looks for the library where the process has loaded one already, then at the
// file that the variable names (and then nowhere else), then in the
// site-packages of the python3 on PATH, then where the loader looks; and fills
// in `table`. HD_UNSUPPORTED, in one line that names paths and what is lacking,
// if there is none. All zero is a library that is not open. What was loaded
// stays in the process until its end.
hd_status hd_library_open(const hd_library_info *info, void *table,
                          hd_diag *diag, hd_library *out);
void hd_library_close(hd_library *library);

HD_END_DECLS

#endif
