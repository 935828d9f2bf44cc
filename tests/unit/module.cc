// Building a module by hand, and the public questions about it.
#include <heddle/verify.h>

#include "ir/module.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "memory.h"
#include "tests/info.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

// A program on a mesh dp=2, tp=3.
class Module : public testing::Test
{
  protected:
    Module()
    {
        module->naxes = 2;
        module->axis[0] = {"dp", 2, {}};
        module->axis[1] = {"tp", 3, {}};
        module->nranks = 6;
    }

    ~Module() override
    {
        hd_module_destroy(module);
    }

    hd_buffer *Add(const char *name, hd_role role,
                   const std::vector<hd_dim> &dims,
                   hd_dtype dtype = HD_DTYPE_F32)
    {
        hd_type type = {};

        type.dtype = dtype;
        for (hd_dim dim : dims)
            type.dim[type.ndims++] = dim;
        return hd_module_add_buffer(module, name, role, &type);
    }

    hd_buffer *Find(const std::string &name)
    {
        return hd_module_buffer(module, name.data(), name.size());
    }

    hd_module *module = hd_module_create();
};

TEST_F(Module, BeginsEmptyOnOneRank)
{
    hd_module *empty = hd_module_create();

    EXPECT_EQ(module_info(empty).ranks, 1);
    EXPECT_EQ(module_info(empty).narguments, 0u);
    EXPECT_EQ(module_info(empty).stage, HD_STAGE_TENSOR);
    EXPECT_STREQ(module_info(empty).name, "");
    EXPECT_EQ(hd_module_buffer(empty, "a", 1), nullptr);
    EXPECT_EQ(hd_module_find_axis(empty, "tp", 2), -1);
    hd_module_destroy(empty);
    hd_module_destroy(nullptr);
}

TEST_F(Module, BuffersAreFoundByName)
{
    for (int i = 0; i < 500; i++)
        EXPECT_EQ(Add(("b" + std::to_string(i)).c_str(), HD_ROLE_TEMP, {})->id,
                  i);
    for (int i = 0; i < 500; i++)
        ASSERT_EQ(Find("b" + std::to_string(i))->id, i);
    EXPECT_EQ(Find("b"), nullptr);
    EXPECT_EQ(Find("b500"), nullptr);
    EXPECT_EQ(hd_module_buffer(module, "b12", 2)->id, 1);
    EXPECT_EQ(module->nbuffers, 500);
    EXPECT_EQ(module->last_buffer->id, 499);
}

TEST_F(Module, TakenNamesGetANumber)
{
    EXPECT_STREQ(Add("ag", HD_ROLE_TEMP, {})->name, "ag");
    EXPECT_STREQ(Add("ag_3", HD_ROLE_TEMP, {})->name, "ag_3");
    EXPECT_STREQ(Add("ag", HD_ROLE_TEMP, {})->name, "ag_2");
    EXPECT_STREQ(Add("ag", HD_ROLE_TEMP, {})->name, "ag_4");
    for (int i = 5; i < 1000; i++)
        ASSERT_EQ(Add("ag", HD_ROLE_TEMP, {})->name, "ag_" + std::to_string(i));
}

TEST_F(Module, WhatAPassMakesIsSaidToBeWhatHasItsName)
{
    hd_buffer *first = Add("ag", HD_ROLE_TEMP, {});
    hd_buffer *made = Add(first->name, HD_ROLE_TEMP, {});
    hd_buffer *again = Add(made->name, HD_ROLE_TEMP, {});
    hd_module *clone = nullptr;

    EXPECT_STREQ(first->said, "ag");
    EXPECT_STREQ(made->said, "ag");
    EXPECT_STREQ(again->said, "ag");
    EXPECT_STRNE(again->name, made->name);
    ASSERT_EQ(hd_module_clone(module, nullptr, &clone), HD_OK);
    EXPECT_STREQ(clone->buffers->said, "ag");
    EXPECT_STREQ(clone->last_buffer->said, "ag");
    EXPECT_NE(clone->last_buffer->said, again->said); // of its own memory
    hd_module_destroy(clone);
}

TEST_F(Module, UnusedTempsAreGone)
{
    hd_buffer *a = Add("a", HD_ROLE_TEMP, {});
    hd_buffer *b = Add("b", HD_ROLE_TEMP, {});
    hd_buffer *c = Add("c", HD_ROLE_IN, {});
    const bool first[] = {true, false, false}, none[] = {false, false};

    hd_module_drop_temps(module, first);
    EXPECT_EQ(a->next, c);
    EXPECT_EQ(c->id, 1);
    EXPECT_EQ(Find("b"), nullptr);
    EXPECT_EQ(b->next, nullptr);
    hd_module_drop_temps(module, none);
    EXPECT_EQ(module->buffers, c);
    EXPECT_EQ(module->last_buffer, c);
    EXPECT_EQ(module->nbuffers, 1);
    EXPECT_EQ(Add("d", HD_ROLE_TEMP, {}), c->next);
}

TEST_F(Module, ArgumentsAreCountedInTheOrderOfDeclaration)
{
    hd_argument out = HD_EMPTY(hd_argument);

    for (int i = 0; i < 100; i++)
        Add(("x" + std::to_string(i)).c_str(),
            i % 3 == 0 ? HD_ROLE_TEMP : HD_ROLE_IN, {});
    ASSERT_EQ(module_info(module).narguments, 66u);
    for (size_t i = 0; i < 66; i++) {
        ASSERT_TRUE(hd_module_argument(module, i, &out));
        EXPECT_EQ(out.name, "x" + std::to_string(3 * (i / 2) + 1 + i % 2));
    }
    EXPECT_FALSE(hd_module_argument(module, 66, &out));
}

TEST_F(Module, VariablesKeepClearOfAxesAndWords)
{
    auto name = [this](const char *wish) {
        hd_var var = hd_module_add_var(module, wish, {}); // moves vars
        return module->vars[var].name;
    };

    EXPECT_STREQ(name("j"), "j");
    EXPECT_STREQ(name("j"), "j_2");
    EXPECT_STREQ(name("tp"), "tp_2");
    EXPECT_STREQ(name("mod"), "mod_2");
    EXPECT_STREQ(name("send"), "send"); // stands where no name does
    EXPECT_STREQ(name("root"), "root");
    hd_var again = hd_module_declare_var(module, "jx", 1, {});
    EXPECT_STREQ(module->vars[again].name, "j");
    EXPECT_STREQ(name("j"), "j_3");
    EXPECT_EQ(module->nvars, 8);
    EXPECT_TRUE(hd_name_is_reserved("streams", 7));
    EXPECT_TRUE(hd_name_is_reserved("streams", 6));
    EXPECT_FALSE(hd_name_is_reserved("strea", 5));
}

TEST_F(Module, RanksCountRowMajor)
{
    for (int64_t rank = 0; rank < 6; rank++) {
        EXPECT_EQ(hd_mesh_coord(module, rank, 0), rank / 3);
        EXPECT_EQ(hd_mesh_coord(module, rank, 1), rank % 3);
        for (int64_t c = 0; c < 2; c++)
            EXPECT_EQ(hd_mesh_peer(module, rank, 0, c), c * 3 + rank % 3);
        for (int64_t c = 0; c < 3; c++)
            EXPECT_EQ(hd_mesh_peer(module, rank, 1, c), rank / 3 * 3 + c);
    }
}

TEST_F(Module, BlocksAreEditedAnywhere)
{
    hd_block block = {};
    hd_stmt *stmt[4];

    for (hd_stmt *&s : stmt)
        s = hd_stmt_new(module, HD_STMT_LET, {7, 1, 3});
    hd_block_append(&block, stmt[1]);
    hd_block_append(&block, stmt[3]);
    hd_block_insert(&block, stmt[1], stmt[2]);
    hd_block_insert(&block, nullptr, stmt[0]);
    int i = 0;
    for (hd_stmt *s = block.first; s != nullptr; s = s->next)
        EXPECT_EQ(s, stmt[i++]);
    EXPECT_EQ(i, 4);
    EXPECT_EQ(block.last, stmt[3]);

    hd_block_remove(&block, stmt[2], stmt[3]);
    EXPECT_EQ(block.last, stmt[2]);
    hd_block_remove(&block, nullptr, stmt[0]);
    EXPECT_EQ(block.first, stmt[1]);
    hd_block_remove(&block, stmt[1], stmt[2]);
    hd_block_remove(&block, nullptr, stmt[1]);
    EXPECT_EQ(block.first, nullptr);
    EXPECT_EQ(block.last, nullptr);
    EXPECT_EQ(stmt[0]->loc.line, 7u);
    EXPECT_EQ(stmt[0]->a, HD_EXPR_NONE);
}

TEST_F(Module, AnOpStatementHasRoomForItsParts)
{
    hd_stmt *stmt = hd_stmt_op(module, HD_OP_MATMUL, -1, 1, 2, 3, {4, 5, 6});

    EXPECT_EQ(stmt->kind, HD_STMT_OP);
    EXPECT_EQ(stmt->op->code, HD_OP_MATMUL);
    EXPECT_EQ(stmt->op->axis, -1);
    EXPECT_EQ(stmt->op->loc.column, 5u);
    EXPECT_EQ(stmt->op->nviews, 3);
    EXPECT_EQ(stmt->op->nkeys, 0);
    for (int i = 0; i < 6; i++)
        EXPECT_EQ(stmt->op->view[i].buffer, nullptr);
}

TEST_F(Module, AViewKeepsWhatItDoesNotIndex)
{
    hd_buffer *b = Add("b", HD_ROLE_IN,
                       {{2, 0, 0, 0, 0},
                        {3, HD_STREAM, 0, 0, 0},
                        {4, HD_LOCAL, 0, 0, 0},
                        {5, 1, 0, 0, 0}},
                       HD_DTYPE_BF16);
    hd_view view = hd_view_whole(b, {1, 2, 3});
    hd_type type = hd_view_type(&view);

    EXPECT_EQ(memcmp(&type, &b->type, sizeof type), 0);
    view.nindex = 3;
    view.index[0] = hd_expr_const(module, 1);
    view.index[1] = HD_EXPR_ALL;
    view.index[2] = hd_expr_coord(module, 1);
    type = hd_view_type(&view);
    EXPECT_EQ(type.dtype, HD_DTYPE_BF16);
    ASSERT_EQ(type.ndims, 2);
    EXPECT_EQ(type.dim[0].extent, 3);
    EXPECT_EQ(type.dim[0].mark, HD_STREAM);
    EXPECT_EQ(type.dim[1].extent, 5);
    EXPECT_EQ(type.dim[1].mark, 1);
}

TEST_F(Module, ArgumentsAreTheBuffersOfTheCaller)
{
    hd_argument a = HD_EMPTY(hd_argument);

    Add("x", HD_ROLE_IN, {{3, 1, 0, 0, 0}, {7, HD_LOCAL, 0, 0, 0}},
        HD_DTYPE_BF16);
    Add("t", HD_ROLE_TEMP, {{9, HD_LOCAL, 0, 0, 0}});
    Add("go", HD_ROLE_IN, {}, HD_DTYPE_EVENT);
    Add("y", HD_ROLE_INOUT, {});
    ASSERT_EQ(module_info(module).narguments, 3u);
    ASSERT_TRUE(hd_module_argument(module, 0, &a));
    EXPECT_STREQ(a.name, "x");
    EXPECT_EQ(a.ndims, 2);
    EXPECT_EQ(a.extent[0], 3);
    EXPECT_EQ(a.local[0], 1);
    EXPECT_EQ(a.elements, 21u);
    EXPECT_EQ(a.local_elements, 7u);
    EXPECT_EQ(a.local_bytes, 14u);
    ASSERT_TRUE(hd_module_argument(module, 1, &a));
    EXPECT_EQ(a.local_elements, 1u);
    EXPECT_EQ(a.local_bytes, 0u);
    ASSERT_TRUE(hd_module_argument(module, 2, &a));
    EXPECT_EQ(a.role, HD_ROLE_INOUT);
    EXPECT_EQ(a.local_bytes, 4u);
    EXPECT_FALSE(hd_module_argument(module, 3, &a));
}

TEST(Argument, CountsAreOfTheFewestRowsThatAProductHasNow)
{
    Program p("tensor program p\nparam m in 0..40\n"
              "in %x : f32[3 * m, 4]\nin %w : f32[2, 4, 4]\n"
              "in %n : i32[2]\nin %k : i32[2]\nin %z : f32[50, 4]\n"
              "out %y : f32[3 * m, 4]\nout %u : f32[50, 4]\n"
              "out %v : f32[50, 4]\n{\n"
              "    %y = matmul %x, %w groups %n\n"
              "    %u = matmul %z, %w groups %n\n"
              "    %v = matmul %z, %w groups %k\n}\n");
    auto rows = [&p](size_t i) {
        hd_argument a = HD_EMPTY(hd_argument);

        EXPECT_TRUE(hd_module_argument(p.module, i, &a));
        return a.grouped_rows;
    };

    for (int64_t m : {40, 16, 17, 0}) {
        ASSERT_EQ(hd_module_resize(p.module, &m, 1, p.diag), HD_OK);
        EXPECT_EQ(rows(0), -1);
        EXPECT_EQ(rows(2), std::min<int64_t>(3 * m, 50)) << m;
        EXPECT_EQ(rows(3), 50) << m;
    }
}

// Element (i, j, k, l) of the whole, computed by hand for each rank.
TEST_F(Module, ShardsHoldTheIndexOfTheirCoordinate)
{
    Add("a", HD_ROLE_IN,
        {{5, HD_LOCAL, 0, 0, 0},
         {3, 1, 0, 0, 0},
         {2, HD_STREAM, 0, 0, 0},
         {2, 0, 0, 0, 0},
         {4, -1, 0, 0, 0}},
        HD_DTYPE_I32);
    std::vector<int32_t> whole(5 * 3 * 2 * 2 * 4), back(whole.size(), -1);

    std::iota(whole.begin(), whole.end(), 100);
    for (int rank = 0; rank < 6; rank++) {
        std::vector<int32_t> local(5 * 2 * 4 + 1, -1);
        size_t n = 0;

        hd_shard(module, 0, rank, whole.data(), local.data());
        for (int i = 0; i < 5; i++)
            for (int k = 0; k < 2; k++)
                for (int m = 0; m < 4; m++)
                    EXPECT_EQ(
                        local[n++],
                        100 +
                            (((i * 3 + rank % 3) * 2 + k) * 2 + rank / 3) * 4 +
                            m);
        EXPECT_EQ(local[n], -1);
        hd_unshard(module, 0, rank, local.data(), back.data());
    }
    EXPECT_EQ(back, whole);
}

TEST_F(Module, ReplicatedArraysAreCopiedWhole)
{
    Add("s", HD_ROLE_IN, {}, HD_DTYPE_F64);
    Add("r", HD_ROLE_IN, {{3, HD_LOCAL, 0, 0, 0}, {2, HD_STREAM, 0, 0, 0}},
        HD_DTYPE_U8);
    Add("e", HD_ROLE_IN, {{3, HD_LOCAL, 0, 0, 0}}, HD_DTYPE_EVENT);
    double scalar = 2.5, got = -1;
    char whole[] = "abcdef", local[] = "......";

    hd_shard(module, 0, 5, &scalar, &got);
    EXPECT_EQ(got, 2.5);
    hd_shard(module, 1, 4, whole, local);
    EXPECT_STREQ(local, "abcdef");
    hd_shard(module, 2, 0, nullptr, nullptr); // events have no bytes
    local[0] = '#';
    hd_shard(module, 1, 6, whole, local); // no such rank
    hd_unshard(module, 3, 0, whole, local);
    EXPECT_STREQ(local, "#bcdef");
}

TEST_F(Module, NoneIsMadeWithoutMemory)
{
    HD_NEEDS_PLAIN_MALLOC();
    EXPECT_TRUE(HoldsWithoutMemory([] {
        ExhaustMemory();
        return hd_module_create() == nullptr;
    }));
}

// Lengths are compared as numbers where they are constants, and else by the
// expression that is added to the first index.
TEST_F(Module, RangesAreAsLongAsTheirCountSays)
{
    hd_buffer *b =
        Add("b", HD_ROLE_IN, {{8, HD_LOCAL, 0, 0, 0}, {5, HD_LOCAL, 0, 0, 0}},
            HD_DTYPE_F32);
    hd_view x = hd_view_whole(b, {1, 2, 3}), y = x;
    hd_expr two = hd_expr_const(module, 2), five = hd_expr_const(module, 5);
    hd_expr n = hd_expr_coord(module, 0), at = hd_expr_coord(module, 1);

    x.nindex = 1;
    hd_view_keep(module, &x, 0, two, five);
    EXPECT_FALSE(hd_view_picks(&x, 0));
    EXPECT_EQ(hd_view_type(&x).dim[0].extent, 3);
    EXPECT_EQ(hd_view_type(&x).dim[1].extent, 5);
    EXPECT_EQ(hd_view_range(&x, 1), nullptr);
    y.nindex = 1;
    hd_view_keep(module, &x, 0, two,
                 hd_expr_binary(module, HD_EXPR_ADD, two, n));
    hd_view_keep(module, &y, 0, at, hd_expr_binary(module, HD_EXPR_ADD, n, at));
    EXPECT_TRUE(hd_dim_is_counted(hd_view_type(&x).dim[0]));
    EXPECT_TRUE(hd_dim_same(hd_view_type(&x).dim[0], hd_view_type(&y).dim[0]));
    hd_view_keep(module, &y, 0, at,
                 hd_expr_binary(module, HD_EXPR_ADD, at, at));
    EXPECT_FALSE(hd_dim_same(hd_view_type(&x).dim[0], hd_view_type(&y).dim[0]));
    hd_view_keep(module, &y, 0, five, two);
    EXPECT_EQ(hd_view_type(&y).dim[0].extent, 0);
}

// ------------------------------------------------------------- reflection

namespace
{
// A type's dimension as text, perhaps over an axis that is still free.
std::string DrawDim(std::mt19937_64 &random, std::vector<std::string> *axes)
{
    std::string extent = std::to_string(1 + random() % 13);

    if (!axes->empty() && random() % 2 == 0) {
        extent += "@" + axes->back();
        axes->pop_back();
    }
    return extent;
}
} // namespace

// Blocks of as many indices as a rank has room for, one after the other, by the
// rank's coordinate; and what hd_shard copies lies there.
TEST(Reflection, AShardLiesWhereItsElementsComeFrom)
{
    std::mt19937_64 random(Seed());

    for (int round = 0; round < 60; round++) {
        std::string dp = std::to_string(1 + random() % 4);
        std::string tp = std::to_string(1 + random() % 5);
        std::vector<std::string> axes = {"dp", "tp"};
        std::string dims;
        int ndims = 1 + int(random() % 4);

        std::shuffle(axes.begin(), axes.end(), random);
        for (int d = 0; d < ndims; d++)
            dims += (d > 0 ? ", " : "") + DrawDim(random, &axes);
        Program p("tensor program p\nmesh dp=" + dp + ", tp=" + tp +
                  "\nin %x : i64[" + dims + "]\n{\n}\n");
        ASSERT_EQ(p.status, HD_OK) << p.Said();
        hd_argument x = HD_EMPTY(hd_argument);
        ASSERT_TRUE(hd_module_argument(p.module, 0, &x));
        std::vector<int64_t> whole(x.elements), local(x.local_elements);
        std::iota(whole.begin(), whole.end(), 0);
        for (int rank = 0; rank < module_info(p.module).ranks; rank++) {
            const int64_t coord[] = {rank / std::stoi(tp),
                                     rank % std::stoi(tp)};
            int64_t first[HD_MAX_DIMS], count[HD_MAX_DIMS];

            std::fill(local.begin(), local.end(), -1);
            hd_shard(p.module, 0, rank, whole.data(), local.data());
            ASSERT_TRUE(hd_module_shard(p.module, 0, rank, first, count));
            for (int d = 0; d < ndims; d++) {
                int64_t at = x.axis[d] < 0 ? 0 : coord[x.axis[d]] * x.local[d];
                int64_t n = std::max(int64_t(0),
                                     std::min(x.local[d], x.extent[d] - at));

                EXPECT_EQ(count[d], n) << dims << " rank " << rank;
                EXPECT_EQ(first[d], n > 0 ? at : 0) << dims << " rank " << rank;
            }
            // Index by index: what lies there is what the shard has.
            for (size_t i = 0; i < local.size(); i++) {
                size_t rest = i;
                int64_t at = 0, stride = 1;
                bool here = true;

                for (int d = ndims; d-- > 0;) {
                    int64_t index = int64_t(rest % size_t(x.local[d]));

                    rest /= size_t(x.local[d]);
                    here &= index < count[d];
                    at += (first[d] + index) * stride;
                    stride *= x.extent[d];
                }
                EXPECT_EQ(local[i], here ? at : -1)
                    << dims << " rank " << rank << " element " << i;
            }
        }
    }
}

TEST(Reflection, AxesSayHowRanksAreNumbered)
{
    Program p("tensor program p\nmesh dp=3, pp=1, tp=4\n{\n}\n");
    hd_axis_info axis = HD_EMPTY(hd_axis_info);
    const char *const names[] = {"dp", "pp", "tp"};

    for (int rank = 0; rank < 12; rank++)
        for (size_t i = 0; i < 3; i++) {
            ASSERT_TRUE(hd_module_axis(p.module, i, &axis));
            EXPECT_STREQ(axis.name, names[i]);
            EXPECT_EQ(axis.extent, p.module->axis[i].size);
            EXPECT_EQ(rank / axis.stride % axis.extent,
                      hd_mesh_coord(p.module, rank, int(i)));
        }
    EXPECT_FALSE(hd_module_axis(p.module, 3, &axis));
}

TEST(Reflection, AModuleTellsAllOfItselfAtOnce)
{
    Program p("host program p\nparam m in 1..6\nmesh tp=2\nstreams 3\n"
              "in %x : f32[m@tp, 4]\ntemp %t : f32[m, 4]\n"
              "temp %u : f32[m, 2, 2] of %t\nout %e : event[]\n{\n}\n");
    ASSERT_EQ(p.status, HD_OK) << p.Said();
    hd_program_info info = module_info(p.module);

    EXPECT_STREQ(info.name, "p");
    EXPECT_EQ(info.stage, HD_STAGE_HOST);
    EXPECT_EQ(info.ranks, 2);
    EXPECT_EQ(info.naxes, 1u);
    EXPECT_EQ(info.narguments, 2u);
    EXPECT_EQ(info.nsizes, 1u);
    EXPECT_EQ(info.streams, 3);
    EXPECT_EQ(info.argument_bytes, 3 * 4 * 4);
    EXPECT_EQ(info.temp_bytes, 6 * 4 * 4); // %u has the bytes of %t
}

// A shorter struct of an older caller gets what it has room for.
TEST(Reflection, NoMoreIsWrittenThanTheCallerHas)
{
    Program p("host program p\nmesh tp=2\n{\n}\n");
    hd_program_info info;

    memset(&info, 0x5a, sizeof info);
    info.size = offsetof(hd_program_info, ranks);
    hd_module_info(p.module, &info);
    EXPECT_STREQ(info.name, "p");
    EXPECT_EQ(info.size, offsetof(hd_program_info, ranks));
    EXPECT_EQ(info.ranks, 0x5a5a5a5a);
}

TEST(Reflection, WhoCountsADimensionIsTold)
{
    Program p("tensor program p\nin %n : i32[4]\nin %x : f32[4, 64 by %n, 8]\n"
              "{\n}\n");
    ASSERT_EQ(p.status, HD_OK) << p.Said();
    hd_argument x = HD_EMPTY(hd_argument);

    ASSERT_TRUE(hd_module_argument(p.module, 1, &x));
    EXPECT_EQ(x.counts, 0);
    EXPECT_EQ(x.counted_dim, 1);
    ASSERT_TRUE(hd_module_argument(p.module, 0, &x));
    EXPECT_EQ(x.counts, -1);
    EXPECT_EQ(x.counted_dim, -1);
}

// A sum leaves each of its terms a share, beside its numbers.
TEST(Reflection, CountsThatAProgramMakesFitTheirRoom)
{
    Program p("tensor program p\n"
              "in %n : i32[4]\nin %z : i32[2, 4]\nin %k : i32[4]\n"
              "in %i : i32[4]\ntemp %a : i32[4]\ntemp %s : i32[4]\n"
              "temp %m : i32[4]\nin %x : f32[4, 13 by %m, 8]\n"
              "out %y : f32[4, 8]\nout %j : i32[4]\n{\n"
              "    %s = sum %z dim 0\n    %a = add %n, %s\n"
              "    %m = max %a, %k\n    %y = sum %x dim 1\n"
              "    %j = mul %i, %m\n}\n");
    const int64_t most[] = {6, 3, 13, -1};

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    for (size_t i = 0; i < 4; i++) {
        hd_argument x = HD_EMPTY(hd_argument);

        ASSERT_TRUE(hd_module_argument(p.module, i, &x));
        EXPECT_EQ(x.counted, most[i]) << x.name;
    }
}

TEST(Reflection, RanksAndArgumentsThatAreNotThereHaveNoShard)
{
    Program p("tensor program p\nmesh tp=2\nin %x : f32[4@tp]\n{\n}\n");
    int64_t first[HD_MAX_DIMS] = {77}, count[HD_MAX_DIMS] = {77};

    EXPECT_FALSE(hd_module_shard(p.module, 1, 0, first, count));
    EXPECT_FALSE(hd_module_shard(p.module, 0, 2, first, count));
    EXPECT_FALSE(hd_module_shard(p.module, 0, -1, first, count));
    EXPECT_EQ(first[0], 77);
}
