// Dimensions of one index are left out, and those that continue each other are
// joined, so that what is dense but for one stride has one dimension of rows.
#include "runtime/packing.h"

#include <string.h>

static void add(hd_packing *rows, size_t count, size_t theirs, size_t dense)
{
    int last = rows->ndims - 1;

    if (count == 1)
        return;
    if (last < 0 && theirs == rows->bytes && dense == rows->bytes) {
        rows->bytes *= count;
    } else if (last >= 0 && theirs == rows->theirs[last] * rows->count[last] &&
               dense == rows->dense[last] * rows->count[last]) {
        rows->count[last] *= count;
    } else {
        rows->ndims++;
        rows->count[last + 1] = count;
        rows->theirs[last + 1] = theirs;
        rows->dense[last + 1] = dense;
    }
}

hd_packing hd_packing_of(const hd_module *module, const hd_buffer *buffer,
                         int rank, const int64_t *stride)
{
    const hd_type *type = &buffer->type;
    size_t element = hd_dtype_size(type->dtype), dense = element;
    hd_packing rows = {.bytes = element};

    for (int d = type->ndims - 1; d >= 0; d--) {
        int64_t first, count;

        hd_module_part(module, type->dim[d], rank, &first, &count);
        if (count == 0)
            return (hd_packing){0};
        add(&rows, (size_t)count, (size_t)stride[d] * element, dense);
        dense *= (size_t)hd_dim_local(type->dim[d]);
    }
    return rows;
}

// Recursion is as deep as a buffer has dimensions: 8 at most.
static void copy(const hd_packing *rows, int d, const size_t *from_stride,
                 const char *from, const size_t *to_stride, char *to)
{
    if (d < 0) {
        memcpy(to, from, rows->bytes);
        return;
    }
    for (size_t i = 0; i < rows->count[d]; i++)
        copy(rows, d - 1, from_stride, from + i * from_stride[d], to_stride,
             to + i * to_stride[d]);
}

void hd_packing_in(const hd_packing *rows, const void *theirs, void *dense)
{
    if (rows->bytes > 0)
        copy(rows, rows->ndims - 1, rows->theirs, theirs, rows->dense, dense);
}

void hd_packing_out(const hd_packing *rows, const void *dense, void *theirs)
{
    if (rows->bytes > 0)
        copy(rows, rows->ndims - 1, rows->dense, dense, rows->theirs, theirs);
}
