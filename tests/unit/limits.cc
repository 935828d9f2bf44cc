// The limits of docs/semantics.md, from both sides.
#include "tests/unit/program.h"

namespace
{

std::string Repeat(const std::string &piece, size_t n)
{
    std::string text;

    for (size_t i = 0; i < n; i++)
        text += piece;
    return text;
}

std::string Buffers(int n)
{
    std::string text = "host program t\n";

    for (int i = 0; i < n; i++)
        text += "temp %x" + std::to_string(i) + " : u8[]\n";
    return text + "{ }";
}

} // namespace

TEST(Limits, TextHasSixteenMebibytes)
{
    const size_t most = 16 << 20;
    std::string text = "heddle 1\nhost program t { }";
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    text.resize(most, ' ');
    EXPECT_EQ(hd_parse("t.hd", text.data(), most, nullptr, 0, diag, &module),
              HD_OK);
    hd_module_destroy(module);
    module = nullptr;
    text += ' ';
    EXPECT_EQ(
        hd_parse("t.hd", text.data(), most + 1, nullptr, 0, diag, &module),
        HD_INVALID);
    EXPECT_EQ(module, nullptr);
    EXPECT_NE(std::string(hd_diag_text(diag)).find("16777217 bytes"),
              std::string::npos);
    hd_diag_destroy(diag);
}

TEST(Limits, AProgramHas65536Buffers)
{
    Program most(Buffers(65536)), more(Buffers(65537));

    EXPECT_EQ(most.status, HD_OK);
    EXPECT_EQ(more.status, HD_INVALID);
    EXPECT_NE(more.Said().find("HD0105"), std::string::npos);
    EXPECT_NE(more.Said().find("65536"), std::string::npos) << more.Said();
}

// Operators nest as deep as parentheses do, also without any.
TEST(Limits, ExpressionsNest200Operators)
{
    std::string head = "host program t mesh tp=2 { let x = tp", tail = " }";
    Program most(head + Repeat(" mod 7 + 1", 90) + tail);
    Program more(head + Repeat(" * tp", 300) + tail);

    EXPECT_EQ(most.status, HD_OK) << most.Said();
    EXPECT_EQ(more.status, HD_INVALID);
    EXPECT_NE(more.Said().find("200 nested operators"), std::string::npos)
        << more.Said();
}

TEST(Limits, ManyVariablesAreFound)
{
    std::string text = "host program t mesh tp=2 { let v0 = tp\n";

    for (int i = 1; i < 200; i++)
        text += "let v" + std::to_string(i) + " = v" + std::to_string(i - 1) +
                " + 1\n";
    Program good(text + "if v199 == 200 { } }"), bad(text + "if v200 { } }");

    EXPECT_EQ(good.status, HD_OK) << good.Said();
    EXPECT_EQ(bad.status, HD_INVALID);
    EXPECT_NE(bad.Said().find("unknown variable 'v200'; did you mean 'v"),
              std::string::npos)
        << bad.Said();
}
