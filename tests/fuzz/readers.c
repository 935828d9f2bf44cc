#include <heddle/verify.h>

#include "tests/fuzz/readers.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_COMPLAINT = 4096 };

outcome __wrap_complain(outcome result, const char *format, ...);

// Stands for the tool's own (see the linker's --wrap), and prints nothing: a
// complaint is one line of printable text.
outcome __wrap_complain(outcome result, const char *format, ...)
{
    char text[MAX_COMPLAINT];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    must(length > 0 && length < MAX_COMPLAINT, "a complaint has words", "");
    for (int i = 0; i < length; i++)
        must((text[i] >= ' ' && text[i] <= '~') || (text[i] & 0x80) != 0,
             "a complaint is one safe line", text);
    must(result != FINE, "a complaint is no success", text);
    return result;
}

static hd_argument argument_like(const array *array, hd_dtype dtype)
{
    hd_argument a = {.name = "x",
                     .role = HD_ROLE_IN,
                     .dtype = dtype,
                     .ndims = array->ndims,
                     .elements = 1};

    for (int i = 0; i < array->ndims; i++) {
        a.extent[i] = a.local[i] = array->extent[i];
        a.elements *= (size_t)array->extent[i];
    }
    return a;
}

static uint64_t read_all(const whole *whole, size_t bytes)
{
    const unsigned char *from = whole->data;
    uint64_t sum = 0;

    must((uintptr_t)from % 16 == 0, "a whole array is aligned", "");
    for (size_t i = 0; i < bytes; i++)
        sum += from[i];
    return sum;
}

static void convert_to_all(const array *array)
{
    for (int dtype = HD_DTYPE_F64; dtype <= HD_DTYPE_I8; dtype++)
        for (int cast = 0; cast < 2; cast++) {
            hd_argument a = argument_like(array, (hd_dtype)dtype);
            whole whole = {0};
            outcome result = array_whole(array, &a, cast == 1, &whole);
            volatile uint64_t sum;

            must(result == FINE || cast == 0 || array->opaque,
                 "a cast converts any dtype to any other", "");
            if (result != FINE)
                continue;
            sum = read_all(&whole, a.elements * hd_dtype_size(a.dtype));
            (void)sum;
            memory_free(whole.memory, whole.bytes);
        }
}

void must_be_sound(outcome result, const array *array, const uint8_t *data,
                   size_t size)
{
    size_t bytes = 0;

    must(result == FINE || result == WRONG, "a file is fine or wrong", "");
    if (result != FINE)
        return;
    must(array->ndims >= 0 && array->ndims <= HD_MAX_DIMS,
         "an array has dimensions", "");
    for (int i = 0; i < array->ndims; i++)
        must(array->extent[i] >= 0, "an extent is not negative", "");
    must(array_bytes(array, &bytes), "the size of an array fits", "");
    must(array->data >= data && array->data <= data + size &&
             bytes <= size - (size_t)(array->data - data),
         "an array lies in its file", "");
    if (bytes > 0)
        convert_to_all(array);
}
