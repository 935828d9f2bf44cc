// A module of the library that is to be judged, as tests hold it.
#ifndef HD_TESTS_SECOND_MODULE_H
#define HD_TESTS_SECOND_MODULE_H

#include <heddle/heddle.h>

#include "ir/module.h"
#include "tests/second/program.h"

namespace second
{

struct Module {
    hd_module *it = nullptr; // or none, where the text is no program
    hd_diag *diag = hd_diag_create();

    explicit Module(const std::string &text)
    {
        if (hd_parse("t", text.data(), text.size(), nullptr, 0, diag, &it) !=
            HD_OK)
            it = nullptr;
    }
    Module(const Module &) = delete;
    Module &operator=(const Module &) = delete;
    ~Module()
    {
        hd_module_destroy(it);
        hd_diag_destroy(diag);
    }
    std::string Text() const
    {
        char *printed = nullptr;
        std::string text;

        if (hd_print(it, &printed) == HD_OK)
            text = printed;
        hd_free(printed);
        return text;
    }
    // With what is open declared as long as statements say.
    std::string Whole() const
    {
        std::vector<unsigned> open;
        std::string text;

        for (hd_buffer *b = it->buffers; b != nullptr; b = b->next) {
            open.push_back(b->open);
            b->open = 0;
        }
        text = Text();
        for (hd_buffer *b = it->buffers; b != nullptr; b = b->next) {
            b->open = open.front();
            open.erase(open.begin());
        }
        return text;
    }
    std::string Said() const
    {
        return hd_diag_text(diag);
    }
};

} // namespace second

#endif
