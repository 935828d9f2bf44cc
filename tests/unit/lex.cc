// Where tokens end, in texts that do not end in NUL.
#include "tests/unit/program.h"

namespace
{

// Parses a copy that has not one byte more, so that a sanitizer sees a read
// past the end.
hd_status ParseExactly(const std::string &text, hd_diag *diag, hd_module **out)
{
    std::vector<char> bytes(text.begin(), text.end());

    bytes.shrink_to_fit();
    return hd_parse("t.hd", bytes.data(), bytes.size(), nullptr, 0, diag, out);
}

std::string ErrorOf(const std::string &text)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;
    hd_message message = HD_EMPTY(hd_message);
    std::string code;

    EXPECT_EQ(ParseExactly(text, diag, &module), HD_ERROR_INVALID) << text;
    if (hd_diag_message(diag, 0, &message))
        code = message.code;
    hd_diag_destroy(diag);
    return code;
}

} // namespace

TEST(Lex, AByteOrderMarkSaysNothing)
{
    hd_module *module = nullptr;

    EXPECT_EQ(ParseExactly("\xef\xbb\xbfheddle 2\nhost program t { }", nullptr,
                           &module),
              HD_OK);
    hd_module_destroy(module);
    EXPECT_EQ(ErrorOf("\xef\xbb"), "HD0101");
    EXPECT_EQ(ErrorOf("\xef\xbb\xbe"
                      "heddle 2"),
              "HD0101");
}

TEST(Lex, ACommentMayEndTheText)
{
    hd_module *module = nullptr;

    EXPECT_EQ(ParseExactly("heddle 2\nhost program t { } // the end", nullptr,
                           &module),
              HD_OK);
    hd_module_destroy(module);
    EXPECT_EQ(ErrorOf("heddle 2\nhost program t { } /"), "HD0103");
}

// Whatever it ends in, one error says so at the end, or in the last token.
TEST(Lex, ATextMayEndInAnyToken)
{
    const std::string start =
        "heddle 2\ntensor program t\nin %a : f32[4]\nout %b : f32[4]\n{\n";

    for (const char *rest :
         {"", "%", "%b", "%b =", "%b = scale %a by ", "%b = scale %a by 1",
          "%b = scale %a by 1.", "%b = scale %a by 1.5", "%b = scale %a by 1e",
          "%b = scale %a by 1e+", "%b = scale %a by 1e-3", "%b = scale %a by -",
          "%b = sum %a dim 0x", "%b = sum %a dim 0x1", "%b = sum %a dim 0 .",
          "%b = sum %a dim 0 .."})
        EXPECT_FALSE(ErrorOf(start + rest).empty()) << rest;
}

TEST(Lex, NumbersMayBeHexadecimalAndSpaced)
{
    Program p("tensor program t in %a : f32[0x1_0, 1_000] "
              "in %b : f32[0XfF] out %c : f32[16, 1000] { %c = copy %a }");
    hd_argument argument = HD_EMPTY(hd_argument);

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_TRUE(hd_module_argument(p.module, 0, &argument));
    EXPECT_EQ(argument.extent[0], 16);
    EXPECT_EQ(argument.extent[1], 1000);
    ASSERT_TRUE(hd_module_argument(p.module, 1, &argument));
    EXPECT_EQ(argument.extent[0], 255);
}

TEST(Lex, FactorsTakeFractionsAndExponents)
{
    Program p("tensor program t in %a : f32[4] out %b : f32[4] "
              "out %c : f32[4] out %d : f32[4] out %e : f32[4] "
              "{ %b = scale %a by 1.25e+2 %c = scale %a by -2E-1 "
              "%d = scale %a by 3 %e = scale %a by 1e30 }");
    std::string text = p.Print();

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_NE(text.find("%b = scale %a by 125.0\n"), std::string::npos) << text;
    EXPECT_NE(text.find("%c = scale %a by -0.2\n"), std::string::npos) << text;
    EXPECT_NE(text.find("%d = scale %a by 3.0\n"), std::string::npos) << text;
    EXPECT_NE(text.find("%e = scale %a by 1e+30\n"), std::string::npos) << text;
}

TEST(Lex, ARunOfBadCharactersIsOneToken)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    EXPECT_EQ(
        ParseExactly("heddle 2\nhost program t { ;;;\\'$ }", diag, &module),
        HD_ERROR_INVALID);
    EXPECT_EQ(hd_diag_errors(diag), 1u) << hd_diag_text(diag);
    EXPECT_NE(std::string(hd_diag_text(diag)).find("^~~~~~\n"),
              std::string::npos)
        << hd_diag_text(diag);
    hd_diag_destroy(diag);
}
