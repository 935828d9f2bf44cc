// From an array in a file to an argument of a program.
#include <heddle/verify.h>

#include "array.h"

#include <inttypes.h>
#include <string.h>

void array_close(array *array)
{
    content_close(&array->content);
    array->data = NULL;
}

bool array_bytes(const array *array, size_t *out)
{
    size_t bytes = array->size;

    // A zero anywhere makes it empty, however large the others are.
    for (int i = 0; i < array->ndims; i++)
        if (array->extent[i] == 0) {
            *out = 0;
            return true;
        }
    for (int i = 0; i < array->ndims; i++)
        if (__builtin_mul_overflow(bytes, (size_t)array->extent[i], &bytes))
            return false;
    *out = bytes;
    return bytes <= PTRDIFF_MAX;
}

static outcome check_shape(const array *array, const hd_argument *argument)
{
    char have[SHAPE_TEXT], want[SHAPE_TEXT];
    bool same = array->ndims == argument->ndims;

    for (int i = 0; same && i < array->ndims; i++)
        same = array->extent[i] == argument->extent[i];
    if (same)
        return FINE;
    return complain(WRONG, "%s has shape %s, but %%%s is %s", array->name,
                    show_shape(array->ndims, array->extent, have),
                    argument->name,
                    show_shape(argument->ndims, argument->extent, want));
}

// Every value of `from` is a value of `to`.
static bool is_widening(hd_dtype from, hd_dtype to)
{
    switch (to) {
    case HD_DTYPE_F64:
        return from != HD_DTYPE_I64 && from != HD_DTYPE_EVENT;
    case HD_DTYPE_F32:
        return from == HD_DTYPE_F16 || from == HD_DTYPE_BF16 ||
               from == HD_DTYPE_F8E4M3 || from == HD_DTYPE_F8E5M2 ||
               from == HD_DTYPE_U8 || from == HD_DTYPE_I8;
    case HD_DTYPE_F16:
        return from == HD_DTYPE_F8E4M3 || from == HD_DTYPE_F8E5M2 ||
               from == HD_DTYPE_U8 || from == HD_DTYPE_I8;
    case HD_DTYPE_BF16:
        return from == HD_DTYPE_F8E4M3 || from == HD_DTYPE_F8E5M2 ||
               from == HD_DTYPE_U8 || from == HD_DTYPE_I8;
    case HD_DTYPE_I64:
        return from == HD_DTYPE_I32 || from == HD_DTYPE_U8 ||
               from == HD_DTYPE_I8;
    case HD_DTYPE_I32:
        return from == HD_DTYPE_U8 || from == HD_DTYPE_I8;
    default:
        return false;
    }
}

static outcome check_dtype(const array *array, const hd_argument *argument,
                           bool cast)
{
    if (array->opaque) {
        if (array->size == hd_dtype_size(argument->dtype))
            return FINE;
        return complain(WRONG,
                        "%s holds raw elements of %zu bytes, but those of "
                        "%%%s are %s",
                        array->name, array->size, argument->name,
                        hd_dtype_text(argument->dtype));
    }
    if (cast || array->dtype == argument->dtype ||
        is_widening(array->dtype, argument->dtype))
        return FINE;
    return complain(WRONG, "%s holds %s, but %%%s is %s; --cast rounds it",
                    array->name, hd_dtype_text(array->dtype), argument->name,
                    hd_dtype_text(argument->dtype));
}

// Moves a row-major index one on, and keeps `from`, the offset of the element
// in column-major order, with it.
static void advance(const array *array, int64_t *index, const size_t *stride,
                    size_t *from)
{
    for (int i = array->ndims - 1; i >= 0; i--) {
        *from += stride[i];
        if (++index[i] < array->extent[i])
            return;
        *from -= stride[i] * (size_t)array->extent[i];
        index[i] = 0;
    }
}

static void copy_fortran(const array *array, size_t elements, char *to)
{
    int64_t index[HD_MAX_DIMS] = {0};
    size_t stride[HD_MAX_DIMS] = {0};
    size_t step = 1, from = 0;

    for (int i = 0; i < array->ndims; i++) {
        stride[i] = step;
        step *= (size_t)array->extent[i];
    }
    for (size_t i = 0; i < elements; i++) {
        memcpy(to + i * array->size, array->data + from * array->size,
               array->size);
        advance(array, index, stride, &from);
    }
}

static void convert(hd_dtype from, const char *source, size_t n, hd_dtype to,
                    char *target)
{
    enum { BATCH = 1024 };
    double values[BATCH];

    for (size_t i = 0; i < n; i += BATCH) {
        size_t count = n - i < BATCH ? n - i : BATCH;

        hd_dtype_load(from, source + i * hd_dtype_size(from), count, values);
        hd_dtype_store(to, values, count, target + i * hd_dtype_size(to));
    }
}

static bool is_aligned(const void *data)
{
    return (uintptr_t)data % 16 == 0;
}

// Row-major and aligned, in the dtype of the file.
static outcome straighten(const array *array, size_t elements, whole *out)
{
    size_t bytes = elements * array->size;

    *out = (whole){.data = array->data};
    if (!array->fortran && is_aligned(array->data))
        return FINE;
    *out = (whole){.memory = memory_pages(bytes, false), .bytes = bytes};
    if (!out->memory)
        return complain(FAILED, "%s: no memory for its %zu bytes", array->name,
                        bytes);
    if (array->fortran)
        copy_fortran(array, elements, out->memory);
    else
        memcpy(out->memory, array->data, bytes);
    out->data = out->memory;
    return FINE;
}

outcome array_whole(const array *array, const hd_argument *argument, bool cast,
                    whole *out)
{
    size_t elements = argument->elements;
    size_t bytes = elements * hd_dtype_size(argument->dtype);
    whole rows;
    void *memory;

    TRY(check_shape(array, argument));
    TRY(check_dtype(array, argument, cast));
    TRY(straighten(array, elements, &rows));
    *out = rows;
    if (array->opaque || array->dtype == argument->dtype)
        return FINE;
    memory = memory_pages(bytes, false);
    if (memory)
        convert(array->dtype, rows.data, elements, argument->dtype, memory);
    memory_free(rows.memory, rows.bytes);
    *out = (whole){memory, memory, bytes};
    return memory ? FINE
                  : complain(FAILED, "%s: no memory for %zu bytes", array->name,
                             bytes);
}
