// numpy's .npy files, versions 1 to 3.
//
// numpy has no name for bf16 and f8. Libraries that add them, such as
// ml_dtypes, store them as raw bytes, '<V2' and '|V1'; so does the writer here,
// and the reader takes them for what the program says that they are.
#ifndef HD_TOOLS_NPY_H
#define HD_TOOLS_NPY_H

#include "array.h"

// Longer headers are refused; numpy's own are a few hundred bytes.
#define NPY_HEADER_LIMIT ((size_t)1 << 20)

// Reads the header in `out->content`, checks it against the length, and sets
// everything else. `out->name` is set by the caller.
outcome npy_parse(array *out);

// The bytes before the elements of argument `argument` in a .npy file. The
// caller frees them.
char *npy_header(const hd_argument *argument, size_t *length);

#endif
