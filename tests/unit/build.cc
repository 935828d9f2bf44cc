#include "lower/build.h"

#include "tests/unit/program.h"

namespace
{

struct Build : testing::Test {
    Program program{"host program t streams 1 in %a : f32[4, 4] "
                    "in %w : f32[4, 4] in %b : f32[4] out %c : f32[4, 4] { }"};
    hd_build b = {program.module, &program.module->body, {7, 5, 1}};

    hd_view View(const char *name)
    {
        return hd_view_whole(
            hd_module_buffer(program.module, name, strlen(name)), b.loc);
    }
    // The statements, a line each.
    std::string Body()
    {
        std::string text = program.Print();
        size_t from = text.find("{\n") + 2;

        return text.substr(from, text.rfind('}') - from);
    }
};

TEST_F(Build, AnOpHasAnyNumberOfOperands)
{
    hd_view view[] = {View("c"), View("a"), View("w"), View("a")};

    hd_build_op(&b, HD_OP_FORK, -1, 0, 0, nullptr);
    hd_build_op(&b, HD_OP_SUM, -1, 1, 3, view);
    EXPECT_EQ(Body(), "    fork\n    %c = sum %a, %w, %a\n");
    EXPECT_EQ(program.module->body.last->op->loc.line, 7u);
}

TEST_F(Build, AnOpHasRoomForAllItsKeys)
{
    hd_view view[] = {View("c"), View("a"), View("w")};
    hd_op *op = hd_build_op(&b, HD_OP_MATMUL, -1, 1, 2, view);

    hd_build_key(op, HD_KEY_TA, HD_EXPR_NONE);
    hd_build_key(op, HD_KEY_TB, HD_EXPR_NONE);
    hd_build_key_view(op, HD_KEY_BIAS, View("b"));
    hd_build_key(op, HD_KEY_ACCUMULATE, HD_EXPR_NONE);
    EXPECT_EQ(Body(), "    %c = matmul %a, %w ta tb bias %b accumulate\n");
}

TEST_F(Build, ACopyHasViewsAndKeysOfItsOwn)
{
    hd_view view[] = {View("c"), View("a"), View("w")};
    hd_op *op = hd_build_op(&b, HD_OP_MATMUL, -1, 1, 2, view), *copy;

    hd_build_key_view(op, HD_KEY_BIAS, View("b"));
    b.loc.line = 8;
    copy = hd_build_copy(&b, op);
    copy->view[1] = View("w");
    copy->view[3] = View("a");
    EXPECT_EQ(Body(), "    %c = matmul %a, %w bias %b\n"
                      "    %c = matmul %w, %w bias %a\n");
    EXPECT_EQ(copy->loc.line, 7u);
}

} // namespace
