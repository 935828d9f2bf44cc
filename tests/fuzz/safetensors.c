// Any bytes as a .safetensors file: refused in one line, or an array that lies
// in the file.
#include "tools/safetensors.h"

#include "tests/fuzz/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a", "w.0", ""};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        array array = {.name = "fuzz.safetensors:a",
                       .content = {.bytes = data, .length = size}};
        outcome result =
            safetensors_parse("fuzz.safetensors", names[i], &array);

        must_be_sound(result, &array, data, size);
    }
    return 0;
}
