// Any bytes as a .npy file: refused in one line, or an array that lies in the
// file. The header that the writer makes for it reads back as the same array.
#include "tools/npy.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/readers.h"

static hd_dtype dtype_of(const array *array)
{
    if (!array->opaque)
        return array->dtype;
    return array->size == 2 ? HD_DTYPE_BF16 : HD_DTYPE_F8E4M3;
}

static void check_round_trip(const array *array)
{
    hd_argument a = {
        .name = "x", .dtype = dtype_of(array), .ndims = array->ndims};
    struct array again = {.name = "again.npy"};
    size_t bytes = 0, length = 0;
    unsigned char *file;
    char *header;

    memcpy(a.extent, array->extent, sizeof a.extent);
    must(array_bytes(array, &bytes), "the size of an array fits", "");
    header = npy_header(&a, &length);
    file = malloc(length + bytes);
    memcpy(file, header, length);
    memcpy(file + length, array->data, bytes);
    again.content = (content){.bytes = file, .length = length + bytes};
    must(npy_parse(&again) == FINE, "what is written is read", header);
    must(again.ndims == array->ndims && again.size == array->size &&
             !again.fortran && again.opaque == array->opaque &&
             (again.opaque || again.dtype == array->dtype) &&
             memcmp(again.extent, array->extent, sizeof a.extent) == 0,
         "it reads as what was written", header);
    free(file);
    free(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    array array = {.name = "fuzz.npy",
                   .content = {.bytes = data, .length = size}};
    outcome result = npy_parse(&array);

    must_be_sound(result, &array, data, size);
    if (result == FINE)
        check_round_trip(&array);
    return 0;
}
