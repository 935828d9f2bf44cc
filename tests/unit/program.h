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

struct Program {
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;
    hd_status status;

    explicit Program(const std::string &body,
                     const std::vector<hd_define> &defines = {})
    {
        std::string text = "heddle 1\n" + body;

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

#endif
