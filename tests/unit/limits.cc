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
    std::string text = "heddle 2\nhost program t { }";
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
        HD_ERROR_INVALID);
    EXPECT_EQ(module, nullptr);
    EXPECT_NE(std::string(hd_diag_text(diag)).find("16777217 bytes"),
              std::string::npos);
    hd_diag_destroy(diag);
}

TEST(Limits, AProgramHas65536Buffers)
{
    Program most(Buffers(65536)), more(Buffers(65537));

    EXPECT_EQ(most.status, HD_OK);
    EXPECT_EQ(more.status, HD_ERROR_INVALID);
    EXPECT_NE(more.Said().find("HD0105"), std::string::npos);
    EXPECT_NE(more.Said().find("65536"), std::string::npos) << more.Said();
}

// Of a tensor of so many single elements.
TEST(Limits, ATensorIsWrittenIn4096Parts)
{
    auto parts = [](int n) {
        std::string text = "tensor program t in %x : u8[]\nout %y : u8[" +
                           std::to_string(n) + "] {\n";

        for (int i = 0; i < n; i++)
            text += "%y[" + std::to_string(i) + "] = copy %x\n";
        return text + "}";
    };
    Program most(parts(4096)), more(parts(4097));

    EXPECT_EQ(most.status, HD_OK) << most.Said();
    EXPECT_EQ(more.status, HD_ERROR_INVALID);
    EXPECT_NE(more.Said().find("more than 4096 parts of %y"), std::string::npos)
        << more.Said();
}

// Operators nest as deep as parentheses do, also without any.
TEST(Limits, ExpressionsNest200Operators)
{
    std::string head = "host program t mesh tp=2 { let x = tp", tail = " }";
    Program most(head + Repeat(" mod 7 + 1", 90) + tail);
    Program more(head + Repeat(" * tp", 300) + tail);

    EXPECT_EQ(most.status, HD_OK) << most.Said();
    EXPECT_EQ(more.status, HD_ERROR_INVALID);
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
    EXPECT_EQ(bad.status, HD_ERROR_INVALID);
    EXPECT_NE(bad.Said().find("unknown variable 'v200'; did you mean 'v"),
              std::string::npos)
        << bad.Said();
}

// A look-up that tried every name would not end within the test's time.
TEST(Limits, NamesAreFoundAmongHalfAMillion)
{
    const int n = 500000;
    std::string text = "host program t\n";

    for (int i = 0; i < n / 2; i++)
        text += "param p" + std::to_string(i) + "=" + std::to_string(i) + "\n";
    text += "{\n";
    for (int i = 0; i < n / 2; i++)
        text += "let v" + std::to_string(i) + "=p" + std::to_string(i) + "\n";
    Program program(text + "if v0 != 0 or v249999 != 249999 { wait %x } }");

    EXPECT_EQ(program.status, HD_ERROR_INVALID);
    EXPECT_NE(program.Said().find("unknown buffer '%x'"), std::string::npos)
        << program.Said();
    EXPECT_EQ(program.Said().find("variable"), std::string::npos);
}

// Past what is shown, nobody looks for names that were meant.
TEST(Limits, ThousandsOfUnknownNamesAreCounted)
{
    const int n = 60000;
    std::string text = "host program t {\n";

    for (int i = 0; i < n; i++)
        text += "let v" + std::to_string(i) + " = 1\n";
    for (int i = 0; i < n; i++)
        text += "let w" + std::to_string(i) + " = x" + std::to_string(i) + "\n";
    Program program(text + "}");

    EXPECT_NE(program.Said().find("59980 more errors not shown"),
              std::string::npos);
}

TEST(Limits, NamesEndWithTheirBlocks)
{
    std::string text = "host program t { let a = 1\n";

    for (int i = 0; i < 100; i++)
        text += "if a == 1 { let b = " + std::to_string(i) +
                " for i in 0..b { let c = i + b } }\n";
    Program good(text + "let b = a for i in 0..b { } }");
    Program bad(text + "let d = b }");

    EXPECT_EQ(good.status, HD_OK) << good.Said();
    EXPECT_EQ(bad.status, HD_ERROR_INVALID);
    EXPECT_NE(bad.Said().find("unknown variable 'b'"), std::string::npos)
        << bad.Said();
}
