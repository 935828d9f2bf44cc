// Vendor libraries, opened at run time: nothing here links against them, and
// the same build works where none is installed. What runs some op is a row of
// this kind, and one that is absent or too old is said to be so in one way.
#ifndef HD_BASE_LIBRARY_H
#define HD_BASE_LIBRARY_H

#include <stddef.h>

#include "base/status.h"

HD_BEGIN_DECLS

#define HD_LIBRARY_VERSION 64 // bytes, with the NUL

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
    size_t bytes; // of the table
    // For whoever asks what a machine offers.
    const char *use;     // what is done with it: "matmul on cuda"
    const char *install; // how to come by it
    const char *instead; // what does that where there is none; NULL: nothing
    // Whether it may be opened at all; NULL: it may.
    hd_status (*check)(hd_diag *diag);
    // Its version, "13.0.1"; false if it does not tell. NULL: it has none.
    bool (*version)(const void *table, char out[HD_LIBRARY_VERSION]);
    const char *oldest; // version needed; NULL: any that has the symbols
} hd_library_info;

typedef struct hd_library {
    void *handle;    // owned; NULL if not open
    char path[1024]; // of the file that was loaded
    char version[HD_LIBRARY_VERSION];
} hd_library;

// Looks for the library where the process has loaded one already, then at the
// file that the variable names (and then nowhere else), then in the
// site-packages of the python3 on PATH, then where the loader looks; and fills
// in `table`. HD_ERROR_UNSUPPORTED, in one line that names paths, versions and
// what is lacking, if there is none that will do; of one that is too old `out`
// has path and version; HD_ERROR_SYSTEM if it does not tell its version. All
// zero is a library that is not open. What was loaded stays in the process
// until its end.
hd_status hd_library_open(const hd_library_info *info, void *table,
                          hd_diag *diag, hd_library *out);
void hd_library_close(hd_library *library);

// Of a number such as 130001, "13.0.1".
void hd_library_write_version(size_t number, char out[HD_LIBRARY_VERSION]);

HD_END_DECLS

#endif
