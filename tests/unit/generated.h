// Random tensor programs, as text.
#ifndef HD_TESTS_UNIT_GENERATED_H
#define HD_TESTS_UNIT_GENERATED_H

#include <cstdlib>
#include <string>
#include <vector>

#include "tools/gen/generate.h"

inline std::string Generate(uint64_t seed, int ops, bool integers)
{
    generate_options options = {integers, ops};
    std::vector<uint8_t> bytes(generate_bytes(ops));
    choices choices = {bytes.data(), bytes.size(), 0};

    choices_fill(seed, bytes.data(), bytes.size());
    char *text = generate_program(&choices, &options);
    std::string result = text;
    free(text);
    return result;
}

#endif
