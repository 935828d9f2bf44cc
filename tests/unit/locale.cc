// Texts in a process whose locale writes numbers with a comma.
#include "base/locale.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include <heddle/tune.h>

#include "base/text.h"
#include "tests/unit/folder.h"
#include "tests/unit/program.h"
#include "tests/unit/ranks.h"

namespace
{

// A locale of the test's own, as few machines have any: the C locale with
// another point. It is the process's until this goes.
class Comma
{
  public:
    Comma()
    {
        std::ofstream source(folder_.Path("source"));

        source << "comment_char %\nescape_char /\n";
        for (const char *name :
             {"CTYPE", "COLLATE", "MONETARY", "TIME", "MESSAGES", "PAPER",
              "NAME", "ADDRESS", "TELEPHONE", "MEASUREMENT", "IDENTIFICATION"})
            source << "LC_" << name << "\ncopy \"POSIX\"\nEND LC_" << name
                   << "\n";
        source << "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\n"
                  "grouping 3;3\nEND LC_NUMERIC\n";
        source.close();
        std::string make = "localedef -c -i '" + folder_.Path("source") +
                           "' -f UTF-8 '" + folder_.Path("comma") +
                           "' >/dev/null 2>&1";
        found_ = std::system("command -v localedef >/dev/null") == 0;
        if (!found_)
            return;
        (void)!std::system(make.c_str()); // it warns of what it lacks
        setenv("LOCPATH", folder_.Path("").c_str(), 1);
        found_ = setlocale(LC_ALL, "comma") != nullptr;
        unsetenv("LOCPATH");
    }
    Comma(const Comma &) = delete;
    Comma &operator=(const Comma &) = delete;
    ~Comma()
    {
        setlocale(LC_ALL, "C");
    }
    bool Found() const
    {
        return found_;
    }

  private:
    Folder folder_;
    bool found_ = false;
};

std::string Rendered(double value)
{
    char text[40];

    snprintf(text, sizeof text, "%g", value);
    return text;
}

// The bytes of a machine as its file has it.
std::string Machine()
{
    const char *name = HEDDLE_EXAMPLES "/machines/h200x8.json";
    std::ifstream file(name);
    std::string text((std::istreambuf_iterator<char>(file)),
                     std::istreambuf_iterator<char>());
    hd_diag *diag = hd_diag_create();
    hd_machine machine;

    memset(&machine, 0, sizeof machine);
    machine.size = sizeof machine;
    EXPECT_EQ(hd_machine_parse(name, text.data(), text.size(), diag, &machine),
              HD_OK)
        << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return std::string(reinterpret_cast<char *>(&machine), sizeof machine);
}

TEST(Locale, NumbersOfTextsHaveAPointWhereThoseOfTheProcessHaveAComma)
{
    std::string machine = Machine();
    hd_text text = {};
    Comma comma;

    if (!comma.Found())
        GTEST_SKIP() << "there is no localedef";
    ASSERT_EQ(Rendered(1.5), "1,5");
    Program program("tensor program p\nin %x : f32[4]\nout %y : f32[4]\n{\n"
                    "    %y = scale %x by 0.1375\n}\n");
    ASSERT_EQ(program.status, HD_OK) << program.Said();
    EXPECT_NE(program.Print().find("by 0.1375\n"), std::string::npos)
        << program.Print();
    EXPECT_EQ(Machine(), machine);
    hd_text_printf(&text, "%g", 0.5);
    EXPECT_STREQ(text.bytes, "0.5");
    hd_text_free(&text);
    EXPECT_EQ(Rendered(1.5), "1,5"); // the process's is as it was
}

// Whether it is found that was kept before.
bool Tuned(const hd_module *module)
{
    hd_tune_options options = hd_tune_defaults();
    hd_tuned tuned = HD_EMPTY(hd_tuned);

    options.seconds = 0;
    EXPECT_EQ(Threads(1,
                      [&](hd_group *group) {
                          return hd_tune(group, module, &options, nullptr,
                                         &tuned);
                      })[0],
              HD_OK);
    EXPECT_GT(tuned.tried, 1);
    return tuned.kept;
}

TEST(Locale, WhatWasTunedIsFoundWhereNumbersHaveAComma)
{
    Folder top;
    Program program("tensor program t mesh tp=1 in %a : f32[4, 4, 8] "
                    "in %b : f32[8, 4] out %c : f32[4@stream, 4, 4] "
                    "{ %c = matmul %a, %b }");

    setenv("HEDDLE_CACHE_DIR", top.Path("cache").c_str(), 1);
    EXPECT_FALSE(Tuned(program.module));
    Comma comma;
    if (!comma.Found())
        GTEST_SKIP() << "there is no localedef";
    EXPECT_TRUE(Tuned(program.module));
}

TEST(Locale, WhatIsEnteredIsLeft)
{
    locale_t mine = uselocale(locale_t(0));
    locale_t outer = hd_locale_enter();
    locale_t inner = hd_locale_enter();

    EXPECT_EQ(outer, mine);
    EXPECT_NE(inner, mine);
    hd_locale_leave(inner);
    EXPECT_EQ(Rendered(1.5), "1.5");
    hd_locale_leave(outer);
    EXPECT_EQ(uselocale(locale_t(0)), mine);
}

} // namespace
