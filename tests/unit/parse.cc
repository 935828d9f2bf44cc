#include "ir/parse.h"

#include "tests/unit/program.h"

namespace
{

const char *const kHead = "host program p in %x : f32[4] out %y : f32[4] ";

std::string Times(const std::string &text, int n)
{
    std::string result;

    for (int i = 0; i < n; i++)
        result += text;
    return result;
}

size_t Errors(const std::string &body)
{
    Program p(body);

    EXPECT_EQ(p.status, HD_ERROR_INVALID);
    return hd_diag_errors(p.diag);
}

TEST(Parse, WhatPrintsParsesBackTheSame)
{
    const char *const bodies[] = {
        "tensor program t mesh a=2, b=3 in %x : bf16[2@a, 3@b, 8] "
        "out %y : bf16[2, 3@b, 8] { %y = set %x }",
        "host program h streams 3 in %x : f32[4, 4] out %y : f32[4] "
        "temp %z : f32[16] of %x temp %e : event[4] { for i in 0..4 { "
        "let k = (i + 1) mod 4 if not (i == 1 or i == 2 and k != 0) { "
        "on stream i mod 3 { %e[i] = record } } else if i < 2 { "
        "%y = copy %x[k - 1 + 1] } else { %y = scale %x[i] by 1e-3 } } }",
        "host program m mesh tp=4 streams 1 in %x : f32[4] inout %y : f32[4] "
        "shared temp %d : event[] { group { send %x to (tp + 1) mod 4 done %d "
        "%y = recv from (tp - 1) mod 4 } wait %d }",
    };

    for (const char *body : bodies) {
        Program first(body);
        std::string text = first.Print();
        hd_module *again = nullptr;
        char *reprinted = nullptr;

        ASSERT_EQ(first.status, HD_OK) << first.Said();
        ASSERT_EQ(hd_parse("again", text.data(), text.size(), nullptr, 0,
                           first.diag, &again),
                  HD_OK)
            << text << first.Said();
        ASSERT_EQ(hd_print(again, &reprinted), HD_OK);
        EXPECT_EQ(text, reprinted);
        hd_free(reprinted);
        hd_module_destroy(again);
    }
}

// Two orders of keys are one op, whose steps have the same spans.
TEST(Parse, ViewsOfKeysStandInTheOrderOfTheTable)
{
    Program p("host program h in %a : f32[2, 2] in %b : f32[2, 2] "
              "in %d : f32[2] in %s : f32[1] out %c : f32[2, 2] "
              "out %x : f32[2, 2] "
              "{ %c = matmul %a, %b aux %x bias %d tb scale %s }");

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    const hd_op *op = p.module->body.first->op;
    const char *const names[] = {"c", "a", "b", "s", "d", "x"};
    ASSERT_EQ(op->nviews, 6);
    for (int i = 0; i < op->nviews; i++)
        EXPECT_STREQ(op->view[i].buffer->name, names[i]);
    EXPECT_EQ(hd_op_key_view(op, HD_KEY_SCALE), 3);
    EXPECT_EQ(hd_op_key_view(op, HD_KEY_BIAS), 4);
    EXPECT_EQ(hd_op_key_view(op, HD_KEY_AUX), 5);
    EXPECT_EQ(hd_op_access(op, 5), HD_ACCESS_WRITE);
}

TEST(Parse, DefinesReplaceParametersAndAxes)
{
    const char *body = "tensor program t param n = 2 mesh tp=4 "
                       "in %x : f32[size tp @tp, n] out %y : f32[size tp, n] "
                       "{ %y = set %x }";
    Program p(body, {{"n", 7}, {"tp", 3}});

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_NE(p.Print().find("f32[3@tp, 7]"), std::string::npos) << p.Print();
    Program last(body, {{"n", 7}, {"n", 9}});
    EXPECT_NE(last.Print().find("[4, 9]"), std::string::npos) << last.Said();
    Program wrong(body, {{"m", 7}});
    EXPECT_EQ(wrong.status, HD_ERROR_INVALID);
    EXPECT_NE(wrong.Said().find("-D m"), std::string::npos);
}

TEST(Parse, TwiceNotMakesATruthOfANumber)
{
    Program p("host program p inout %x : f32[2] in %y : f32[]"
              " { %x[not not 5] = copy %y %x[not not not 5] = copy %y }");

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_OK) << p.Said();
}

TEST(Parse, TenMistakesAreTenErrors)
{
    std::string body = std::string(kHead) + "{\n";

    for (int i = 0; i < 10; i++)
        body += "    %y = relu %unknown" + std::to_string(i) + "\n";
    EXPECT_EQ(Errors(body + "}\n"), 10u);
}

TEST(Parse, AMisdeclaredBufferIsReportedOnce)
{
    EXPECT_EQ(Errors("host program p in %x : f32[0] out %y : f32[4]\n"
                     "{\n%y = copy %x\n%y = relu %x\n}\n"),
              1u);
}

TEST(Parse, NestingIsBounded)
{
    EXPECT_EQ(Errors(kHead + Times("{ if 1 ", 1000000)), 1u);
    EXPECT_EQ(Errors(kHead + ("{ if " + Times("(", 1000000))), 1u);
    EXPECT_EQ(
        Errors(kHead + ("{ if 1 { } " + Times("else if 1 { } ", 100000) + "}")),
        1u);
    Program deep(kHead + Times("{ if 1 ", 64) + "{ }" + Times("}", 64));
    EXPECT_EQ(deep.status, HD_ERROR_INVALID);
    Program fine(kHead + Times("{ if 1 ", 63) + "{ }" + Times("}", 63));
    EXPECT_EQ(fine.status, HD_OK) << fine.Said();
}

TEST(Parse, LongExpressionsOfOneLevelAreFine)
{
    Program signs(kHead + ("{ if " + Times("-", 100001) + "1 { } }"));
    Program sum(kHead + ("{ if 1" + Times(" + 1", 100000) + " { } }"));

    EXPECT_EQ(signs.status, HD_OK) << signs.Said();
    EXPECT_EQ(sum.status, HD_OK) << sum.Said();
}

TEST(Parse, TextThatIsNoTextIsAnError)
{
    Program nul(std::string("host program p\0 { }", 19));
    Program bytes("host program p \xff\xfe { }");
    Program windows("host program p\r\nin %x : f32[4]\r\n{\r\n}\r\n");

    EXPECT_EQ(nul.status, HD_ERROR_INVALID);
    EXPECT_EQ(bytes.status, HD_ERROR_INVALID);
    EXPECT_EQ(windows.status, HD_OK) << windows.Said();
}

TEST(Parse, EveryPrefixOfAProgramEnds)
{
    std::string text =
        "host program h streams 3 in %x : f32[4, 4] "
        "out %y : f32[4] { for i in 0..4 { if i < 2 { "
        "%y = copy %x[i] } else { %y = scale %x[i] by 1e-3 } } }";

    for (size_t i = 0; i < text.size(); i++) {
        Program p(text.substr(0, i));
        EXPECT_EQ(p.status, HD_ERROR_INVALID) << text.substr(0, i);
        EXPECT_GT(hd_diag_errors(p.diag), 0u);
    }
}

} // namespace
