// Whole arrays as files hold them, whatever the format.
#ifndef HD_TOOLS_ARRAY_H
#define HD_TOOLS_ARRAY_H

#include "file.h"

typedef struct array {
    const char *name; // borrowed, for messages: the path, or path:tensor
    hd_dtype dtype;
    bool opaque;  // the file says how wide an element is, not what it means:
                  // numpy has no name for bf16 and f8
    size_t size;  // bytes of one element
    bool fortran; // the first dimension is the dense one
    int ndims;
    int64_t extent[HD_MAX_DIMS];
    const unsigned char *data; // in `content`
    content content;           // owned
} array;

void array_close(array *array);

// Extents times `size`, the bytes that the elements take; false if that does
// not fit.
bool array_bytes(const array *array, size_t *out);

// The array as argument `argument` of a program wants it: same shape, its
// dtype, row-major. The shape must be equal; the dtype too, except that a
// conversion that keeps every value is made silently and any other one if
// `cast`. The result is aligned, and points into the array where it can.
typedef struct whole {
    const void *data;
    void *memory; // owned: pages, or NULL where data belongs to an array
    size_t bytes;
} whole;

outcome array_whole(const array *array, const hd_argument *argument, bool cast,
                    whole *out);

#endif
