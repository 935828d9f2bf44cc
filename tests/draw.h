// What tests draw of sizes, and texts of programs with them.
#ifndef HD_TESTS_DRAW_H
#define HD_TESTS_DRAW_H

#include <map>
#include <random>
#include <string>

#include "tests/words.h"

inline int Between(int low, int high, std::mt19937 &random)
{
    return low + int(random() % unsigned(high - low + 1));
}

// Extents by one-letter names, which a text has numbers for.
using Extents = std::map<char, int>;

inline std::string Filled(std::string text, const Extents &extents)
{
    for (const auto &one : extents)
        text = ReplacedWord(text, std::string(1, one.first),
                            std::to_string(one.second));
    return text;
}

#endif
