// Programs for tests, from text: parses, or fails the test with the
// diagnostics.
#ifndef HD_TESTS_UNIT_PROGRAM_H
#define HD_TESTS_UNIT_PROGRAM_H

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "ir/walk.h"

// By a ring, so that what is made does not hang on what is predicted.
inline hd_lower_options RingDefaults()
{
    hd_lower_options options = hd_lower_defaults();

    options.transfer = HD_TRANSFER_RING;
    options.asked = 0;
    return options;
}

struct Program {
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;
    hd_status status;

    explicit Program(const std::string &body,
                     const std::vector<hd_define> &defines = {})
    {
        std::string text = "heddle 2\n" + body;

        status = hd_parse("test.hd", text.data(), text.size(), defines.data(),
                          defines.size(), diag, &module);
    }
    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;
    ~Program()
    {
        hd_module_destroy(module);
        hd_diag_destroy(diag);
    }
    std::string Said() const
    {
        return hd_diag_text(diag);
    }
    std::string Print() const
    {
        char *text = nullptr;

        if (module == nullptr || hd_print(module, &text) != HD_OK)
            return "";
        std::string result = text;
        hd_free(text);
        return result;
    }
};

// Indices of what a `take` takes from by the buffer, some of none; or nothing.
template <typename Random>
std::vector<double> DrawIndices(const hd_module *module, const hd_buffer *b,
                                Random &random)
{
    hd_argument argument = HD_EMPTY(hd_argument);
    size_t i = 0;

    while (hd_module_argument(module, i, &argument) && argument.name != b->name)
        i++;
    if (argument.name != b->name || argument.taken_extent < 0)
        return {};
    const double extent = static_cast<double>(argument.taken_extent);
    const double odd[] = {-1, -2147483648., 2147483647., extent};
    std::vector<double> values(argument.elements);
    for (double &v : values)
        v = random() % 4 == 0 || extent == 0
                ? odd[random() % 4]
                : static_cast<double>(random() % static_cast<size_t>(extent));
    return values;
}

#endif
