// Reading arrays from files that are anything.
#ifndef HD_TESTS_FUZZ_READERS_H
#define HD_TESTS_FUZZ_READERS_H

#include "tests/fuzz/fuzz.h"
#include "tools/array.h"

HD_BEGIN_DECLS

// What a reader made of a file of these bytes: refused in one readable line, or
// an array that lies in the file, and that converts to any argument of its
// shape.
void must_be_sound(outcome result, const array *array, const uint8_t *data,
                   size_t size);

HD_END_DECLS

#endif
