// Expressions: folding, values, and that what prints reads back the same, held
// against a second reader of the grammar.
#include "ir/expr.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "ir/module.h"

namespace
{

// A second reader of the grammar of docs/text-form.md, apart from the parser of
// the library, to hold the printer to.
class Reader
{
  public:
    Reader(hd_module *module, const std::string &text)
        : module(module), text(text)
    {
    }

    hd_expr Read() // HD_EXPR_NONE if it is not an expression
    {
        hd_expr expr = Or();
        Skip();
        return failed || at != text.size() ? HD_EXPR_NONE : expr;
    }

  private:
    void Skip()
    {
        while (at < text.size() && text[at] == ' ')
            at++;
    }

    bool Take(const std::string &word)
    {
        Skip();
        if (text.compare(at, word.size(), word) != 0)
            return false;
        if (isalpha(word[0]) && at + word.size() < text.size() &&
            isalnum(text[at + word.size()]))
            return false;
        at += word.size();
        return true;
    }

    hd_expr Binary(hd_expr_kind kind, hd_expr a, hd_expr b)
    {
        return failed ? a : hd_expr_binary(module, kind, a, b);
    }

    hd_expr Or()
    {
        hd_expr a = And();
        while (Take("or"))
            a = Binary(HD_EXPR_OR, a, And());
        return a;
    }

    hd_expr And()
    {
        hd_expr a = Not();
        while (Take("and"))
            a = Binary(HD_EXPR_AND, a, Not());
        return a;
    }

    hd_expr Not()
    {
        if (!Take("not"))
            return Compare();
        hd_expr a = Compare();
        return failed ? a : hd_expr_not(module, a);
    }

    hd_expr Compare()
    {
        hd_expr a = Sum();
        if (Take("=="))
            return Binary(HD_EXPR_EQ, a, Sum());
        if (Take("!="))
            return Binary(HD_EXPR_NE, a, Sum());
        if (Take("<="))
            return Binary(HD_EXPR_LE, a, Sum());
        if (Take("<"))
            return Binary(HD_EXPR_LT, a, Sum());
        return a;
    }

    hd_expr Sum()
    {
        hd_expr a = Product();
        for (;;) {
            if (Take("+"))
                a = Binary(HD_EXPR_ADD, a, Product());
            else if (Take("-"))
                a = Binary(HD_EXPR_SUB, a, Product());
            else
                return a;
        }
    }

    hd_expr Product()
    {
        hd_expr a = Unary();
        for (;;) {
            if (Take("*"))
                a = Binary(HD_EXPR_MUL, a, Unary());
            else if (Take("/"))
                a = Binary(HD_EXPR_DIV, a, Unary());
            else if (Take("mod"))
                a = Binary(HD_EXPR_MOD, a, Unary());
            else
                return a;
        }
    }

    hd_expr Unary()
    {
        if (Take("-"))
            return Binary(HD_EXPR_SUB, hd_expr_const(module, 0), Atom());
        return Atom();
    }

    // Behind its name.
    hd_expr Call(hd_expr_kind kind)
    {
        failed = failed || !Take("(");
        hd_expr a = Or();
        failed = failed || !Take(",");
        hd_expr b = Or();
        failed = failed || !Take(")");
        return Binary(kind, a, b);
    }

    hd_expr Atom()
    {
        Skip();
        if (Take("min"))
            return Call(HD_EXPR_MIN);
        if (Take("max"))
            return Call(HD_EXPR_MAX);
        if (Take("cdiv"))
            return Call(HD_EXPR_CDIV);
        if (Take("(")) {
            hd_expr inner = Or();
            failed = failed || !Take(")");
            return inner;
        }
        size_t start = at;
        while (at < text.size() && isalnum(text[at]))
            at++;
        std::string word = text.substr(start, at - start);
        for (int i = 0; i < module->nvars; i++)
            if (word == module->vars[i].name)
                return hd_expr_of_var(module, i);
        int axis = hd_module_find_axis(module, word.data(), word.size());
        if (axis >= 0)
            return hd_expr_coord(module, axis);
        failed = failed || word.empty() || !isdigit(word[0]);
        return failed ? 0 : hd_expr_const(module, std::stoll(word));
    }

    hd_module *module;
    std::string text;
    size_t at = 0;
    bool failed = false;
};

} // namespace

// Axes tp and dp, variables x and y.
class Expr : public testing::Test
{
  protected:
    Expr()
    {
        module->naxes = 2;
        module->axis[0].name = "tp";
        module->axis[1].name = "dp";
        env.coord[0] = 3;
        env.coord[1] = 1;
        env.var = vars;
        hd_module_add_var(module, "x", {});
        hd_module_add_var(module, "y", {});
    }

    ~Expr() override
    {
        hd_module_destroy(module);
    }

    hd_expr Read(const std::string &text)
    {
        return Reader(module, text).Read();
    }

    std::string Print(hd_expr expr)
    {
        hd_text text = {};
        hd_expr_print(module, expr, &text);
        std::string printed = text.bytes;
        hd_text_free(&text);
        return printed;
    }

    // The value as text, or "none" where there is none.
    std::string Value(const std::string &text)
    {
        int64_t value;
        return hd_expr_eval(module, Read(text), &env, &value)
                   ? std::to_string(value)
                   : "none";
    }

    hd_expr Random(int depth)
    {
        static const int64_t numbers[] = {0,  1,  2,         5,
                                          -1, -7, INT64_MAX, INT64_MIN};
        switch (depth == 0 ? random() % 3 : random() % 14) {
        case 0:
            return hd_expr_const(module, numbers[random() % 8]);
        case 1:
            return hd_expr_coord(module, static_cast<int>(random() % 2));
        case 2:
            return hd_expr_of_var(module, static_cast<int>(random() % 2));
        case 3:
            return hd_expr_not(module, Random(depth - 1));
        default:
            auto kind = static_cast<hd_expr_kind>(HD_EXPR_ADD + random() % 14);
            hd_expr a = Random(depth - 1);
            return hd_expr_binary(module, kind, a, Random(depth - 1));
        }
    }

    hd_module *module = hd_module_create();
    int64_t vars[2] = {10, -4};
    hd_env env = {};
    std::mt19937 random{5};
};

TEST_F(Expr, ConstantsFold)
{
    EXPECT_EQ(hd_expr_value(module, Read("2 + 3 * 4 - 6 / 4")), 13);
    EXPECT_EQ(hd_expr_value(module, Read("1 < 2 and not 3 == 4")), 1);
    EXPECT_EQ(Read("x + 0"), Read("x"));
    EXPECT_EQ(Read("0 + x"), Read("x"));
    EXPECT_EQ(Read("1 * x * 1 - 0"), Read("x"));
    EXPECT_EQ(Read("min(x * tp, x * tp)"), Read("x * tp"));
    EXPECT_EQ(Read("max(x, 0 + x)"), Read("x"));
    EXPECT_NE(Read("min(x, y)"), Read("max(x, y)"));
    EXPECT_EQ(hd_expr_value(module, Read("max(min(7, 3), -2) + cdiv(5, 2)")),
              6);
    EXPECT_FALSE(hd_expr_is_const(module, HD_EXPR_NONE));
    EXPECT_FALSE(hd_expr_is_const(module, HD_EXPR_ALL));
}

TEST_F(Expr, ModIsNeverNegative)
{
    EXPECT_EQ(hd_expr_value(module, Read("-1 mod 4")), 3);
    EXPECT_EQ(hd_expr_value(module, Read("-8 mod 4")), 0);
    EXPECT_EQ(hd_expr_value(module, Read("-1 / 4")), -1);
    EXPECT_EQ(hd_expr_value(module, Read("-8 / 4")), -2);
    EXPECT_EQ(hd_expr_value(module, Read("7 / 4")), 1);
    hd_expr least = hd_expr_const(module, INT64_MIN);
    EXPECT_EQ(hd_expr_value(module, hd_expr_mod(module, least, Read("7"))), 6);
}

TEST_F(Expr, CdivRoundsUp)
{
    EXPECT_EQ(hd_expr_value(module, Read("cdiv(0, 4)")), 0);
    EXPECT_EQ(hd_expr_value(module, Read("cdiv(1, 4)")), 1);
    EXPECT_EQ(hd_expr_value(module, Read("cdiv(8, 4)")), 2);
    EXPECT_EQ(hd_expr_value(module, Read("cdiv(9, 4)")), 3);
    EXPECT_EQ(hd_expr_value(module, Read("cdiv(-1, 4)")), 0);
    EXPECT_EQ(hd_expr_value(module, Read("cdiv(-9, 4)")), -2);
    EXPECT_EQ(hd_expr_value(module, Read("cdiv(9223372036854775807, 2)")),
              int64_t{1} << 62);
    EXPECT_EQ(hd_expr_value(module, Read("cdiv(9223372036854775807, 1)")),
              INT64_MAX);
    hd_expr least = hd_expr_const(module, INT64_MIN);
    EXPECT_EQ(hd_expr_value(module, hd_expr_binary(module, HD_EXPR_CDIV, least,
                                                   Read("1"))),
              INT64_MIN);
}

TEST_F(Expr, EqualOnesAreOne)
{
    std::vector<std::pair<std::string, hd_expr>> made;

    for (int i = 0; i < 5000; i++) {
        hd_expr expr = Random(3);
        made.emplace_back(Print(expr), expr);
        ASSERT_EQ(Read(made[random() % made.size()].first) < 0, false);
    }
    for (auto &[text, expr] : made)
        ASSERT_EQ(Read(text), expr) << text;
    EXPECT_NE(Read("x + y"), Read("y + x"));
    EXPECT_NE(hd_expr_coord(module, 1), hd_expr_of_var(module, 1));
}

TEST_F(Expr, ChildrenComeAheadOfParents)
{
    for (int i = 0; i < 200; i++)
        Random(5);
    for (int i = 0; i < module->nexprs; i++) {
        const hd_expr_node *node = hd_expr_get(module, i);
        if (node->kind >= HD_EXPR_NOT) {
            ASSERT_LT(node->a, i);
            ASSERT_LT(node->b, i);
            ASSERT_GT(node->depth, hd_expr_depth(module, node->a));
        }
    }
}

TEST_F(Expr, ValuesAreThoseOfTheRankAndItsVariables)
{
    EXPECT_EQ(Value("(tp - x) mod 4"), "1");
    EXPECT_EQ(Value("y / 3"), "-2");
    EXPECT_EQ(Value("x * tp + dp"), "31");
    EXPECT_EQ(Value("not x < y or dp != 1"), "1");
    EXPECT_EQ(Value("x <= 10 and y <= -5"), "0");
    EXPECT_EQ(Value("2 and 3"), "1");
    EXPECT_EQ(Value("not 7"), "0");
    EXPECT_EQ(Value("min(x, y) * 100 + max(x, y)"), "-390");
    EXPECT_EQ(Value("min(y, x)"), "-4");
    EXPECT_EQ(Value("max(y, x)"), "10");
    EXPECT_EQ(Value("cdiv(x, tp)"), "4");
    EXPECT_EQ(Value("cdiv(y, tp)"), "-1");
    EXPECT_EQ(Value("cdiv(y, dp)"), "-4");
}

TEST_F(Expr, WhatHasNoValueIsSaidToHaveNone)
{
    EXPECT_EQ(Value("1 / 0"), "none");
    EXPECT_EQ(Value("x mod (y + 4)"), "none");
    EXPECT_EQ(Value("x / y"), "none");
    EXPECT_EQ(Value("9223372036854775807 + 1"), "none");
    EXPECT_EQ(Value("-9223372036854775807 - x"), "none");
    EXPECT_EQ(Value("9223372036854775807 * x"), "none");
    EXPECT_EQ(Value("not 1 / 0"), "none");
    EXPECT_EQ(Value("cdiv(x, 0)"), "none");
    EXPECT_EQ(Value("cdiv(1, y)"), "none");
    EXPECT_EQ(Value("min(0, 1 / 0)"), "none");
    EXPECT_EQ(Value("max(9223372036854775807 + 1, 0)"), "none");
    EXPECT_EQ(Value("y < 0 and 1 / 0"), "none");
}

TEST_F(Expr, LogicStopsWhereItIsDecided)
{
    EXPECT_EQ(Value("0 < y and x / y < 4"), "0");
    EXPECT_EQ(Value("y <= 0 or x / y < 4"), "1");
}

TEST_F(Expr, PrintsWithTheFewestParentheses)
{
    for (const char *text : {"(tp - x) mod 4",
                             "x - y - 1",
                             "x - (y - 1)",
                             "x + (y + 1)",
                             "x * (y * 2)",
                             "x / 2 * 3",
                             "x * (y mod 3)",
                             "x + -1",
                             "x - -1",
                             "-1 * x",
                             "x mod -2",
                             "not x < y",
                             "(not x) < y",
                             "not (not x)",
                             "x < y and not y == 1",
                             "(x or y) and x",
                             "x or y and x",
                             "x or (y or x)",
                             "(x < y) == 1",
                             "x < y + 1",
                             "(x < y) + 1",
                             "0 - x",
                             "0 - (x - y)",
                             "not (x and y)",
                             "1 / 0",
                             "min(x or y, x + 1) * 2",
                             "max(x, min(y, 1)) - 1 < x",
                             "not cdiv(x, 2)",
                             "cdiv(1, 0)",
                             "9223372036854775807 + x"})
        EXPECT_EQ(Print(Read(text)), text);
    EXPECT_EQ(Print(hd_expr_const(module, INT64_MIN)),
              "-9223372036854775807 - 1");
}

// And leaving out any pair of the parentheses would say something else.
TEST_F(Expr, WhatPrintsReadsBackTheSame)
{
    for (int i = 0; i < 5000; i++) {
        hd_expr expr = Random(4);
        std::string text = Print(expr);
        std::vector<size_t> open;

        ASSERT_EQ(Read(text), expr) << text;
        for (size_t at = 0; at < text.size(); at++) {
            if (text[at] == '(')
                open.push_back(at);
            if (text[at] != ')')
                continue;
            std::string without = text;
            without[at] = without[open.back()] = ' ';
            open.pop_back();
            ASSERT_NE(Read(without), expr) << text << " as " << without;
        }
    }
}

TEST_F(Expr, UsesAreFound)
{
    hd_expr expr = Read("not (x * 2 < tp)");

    EXPECT_TRUE(hd_expr_uses_var(module, expr, 0));
    EXPECT_FALSE(hd_expr_uses_var(module, expr, 1));
    EXPECT_FALSE(hd_expr_uses_var(module, HD_EXPR_ALL, 0));
    EXPECT_FALSE(hd_expr_uses_var(module, HD_EXPR_NONE, 0));
}

TEST_F(Expr, OfSizesHaveBoundsWhereTheyAreLinear)
{
    hd_expr m = hd_expr_size(module, 0), n = hd_expr_size(module, 1);
    auto make = [&](hd_expr_kind kind, hd_expr a, hd_expr b) {
        return hd_expr_binary(module, kind, a, b);
    };
    hd_expr three = hd_expr_const(module, 3), tp = hd_expr_coord(module, 0);
    hd_expr less = make(HD_EXPR_SUB, n, make(HD_EXPR_MUL, three, m));
    hd_expr far = make(HD_EXPR_MUL, less, hd_expr_const(module, INT64_MAX / 9));
    hd_env env = {{-2}, nullptr};
    int64_t low = 0, high = 0;

    module->nsizes = 2;
    module->size[0] = {"m", 1, 4, 0, {}, 5, 4};
    module->size[1] = {"n", 0, 7, 0, {}, 7, 7};
    EXPECT_TRUE(
        hd_expr_bounds(module, make(HD_EXPR_MUL, less, tp), &env, &low, &high));
    EXPECT_EQ(low, -8);
    EXPECT_EQ(high, 30);
    EXPECT_TRUE(hd_expr_is_linear(module, less));
    EXPECT_TRUE(hd_expr_uses_size(module, less));
    EXPECT_FALSE(hd_expr_uses_size(module, make(HD_EXPR_MUL, three, tp)));
    EXPECT_TRUE(hd_expr_is_linear(module, make(HD_EXPR_DIV, three, tp)));
    for (hd_expr_kind kind : {HD_EXPR_MUL, HD_EXPR_DIV, HD_EXPR_MOD,
                              HD_EXPR_MIN, HD_EXPR_LT, HD_EXPR_CDIV})
        EXPECT_FALSE(hd_expr_is_linear(module, make(kind, less, n)));
    EXPECT_FALSE(hd_expr_bounds(module, far, &env, &low, &high));
}

TEST_F(Expr, ReplacingFoldsAgain)
{
    hd_expr expr = Read("(tp - x * 2) mod 4 + x");

    EXPECT_EQ(hd_expr_replace(module, expr, 0, Read("y + 1")),
              Read("(tp - (y + 1) * 2) mod 4 + (y + 1)"));
    EXPECT_EQ(hd_expr_replace(module, expr, 0, Read("0")), Read("tp mod 4"));
    EXPECT_EQ(hd_expr_replace(module, expr, 1, Read("5")), expr);
    EXPECT_EQ(hd_expr_replace(module, Read("not x"), 0, Read("0")), Read("1"));
    EXPECT_EQ(hd_expr_replace(module, HD_EXPR_ALL, 0, expr), HD_EXPR_ALL);
}

TEST_F(Expr, DepthIsWhatTheParserRefuses)
{
    hd_expr expr = Read("x");

    EXPECT_EQ(hd_expr_depth(module, expr), 0);
    for (int i = 1; i <= 100000; i++) {
        expr = hd_expr_binary(module, HD_EXPR_ADD, expr, Read("y"));
        ASSERT_EQ(hd_expr_depth(module, expr), i);
    }
    EXPECT_EQ(hd_expr_depth(module, Read("not (x + 1) * (y + 2) < x")), 4);
}
