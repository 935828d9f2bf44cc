// The rules of declarations, of buffers that no text has: as a pass makes them.
#include "ir/verify.h"

#include <functional>

#include "tests/unit/program.h"

namespace
{

const char text[] = "host program t\n"
                    "param m in 1..8\n"
                    "mesh tp=2, pp=3\n"
                    "in   %x : f32[4]\n"
                    "in   %u : f32[3@tp]\n"
                    "in   %s : f32[m in 2]\n"
                    "in   %n : i32[4]\n"
                    "in   %e : event[]\n"
                    "out  %y : f32[4]\n"
                    "{\n    %y = copy %x\n}\n";

hd_dim Dim(int64_t extent, int mark = HD_LOCAL, int64_t blocks = 0)
{
    return hd_dim{extent, mark, blocks, 0, 0};
}

hd_dim Sized(int64_t blocks, int mark = HD_LOCAL)
{
    return hd_dim{8, mark, blocks, 1, 1};
}

hd_buffer *Find(hd_module *module, const char *name)
{
    return hd_module_buffer(module, name, strlen(name));
}

hd_buffer *Add(hd_module *module, const std::vector<hd_dim> &dims,
               hd_role role = HD_ROLE_TEMP, hd_dtype dtype = HD_DTYPE_F32)
{
    hd_type type = {};

    type.dtype = dtype;
    for (hd_dim dim : dims)
        type.dim[type.ndims++] = dim;
    return hd_module_add_buffer(module, "new", role, &type);
}

// With a name for %x's bytes, or %u's.
std::function<void(hd_module *)> Alias(const std::vector<hd_dim> &dims,
                                       const char *of = "x",
                                       hd_dtype dtype = HD_DTYPE_F32)
{
    return [=](hd_module *m) {
        Add(m, dims, HD_ROLE_TEMP, dtype)->of = Find(m, of);
    };
}

// With as many of its last dimension as %n says.
std::function<void(hd_module *)> Counted(const std::vector<hd_dim> &dims,
                                         const char *by = "n",
                                         hd_dtype dtype = HD_DTYPE_F32)
{
    return [=](hd_module *m) {
        hd_buffer *x = Add(m, dims, HD_ROLE_TEMP, dtype);

        x->by = Find(m, by);
        x->counted = x->type.ndims - 1;
    };
}

std::function<void(hd_module *)> On(const std::vector<hd_dim> &dims,
                                    hd_ranks ranks,
                                    hd_stage stage = HD_STAGE_TENSOR,
                                    hd_role role = HD_ROLE_TEMP)
{
    return [=](hd_module *m) {
        m->stage = stage;
        Add(m, dims, role)->on = ranks;
    };
}

struct Case {
    const char *said;
    std::function<void(hd_module *)> edit;
};

const Case cases[] = {
    {"HD0105]: more than 281474976710656 elements",
     [](hd_module *m) {
         Add(m, {Dim(1 << 30), Dim(1 << 30)});
     }},
    {"HD0105]: more than 65536 buffers",
     [](hd_module *m) {
         for (int i = 0; i < 65536; i++)
             Add(m, {});
     }},
    {"HD0205]: 4 blocks over tp, whose size is 2",
     [](hd_module *m) { Add(m, {Dim(4, 0)}); }},
    {"HD0205]: 3 blocks over tp, whose size is 2",
     [](hd_module *m) { Add(m, {Dim(8, 0, 3)}); }},
    {"HD0206]: tp shards two dimensions",
     [](hd_module *m) {
         Add(m, {Dim(2, 0), Dim(2, 0)}, HD_ROLE_OUT);
     }},
    {"HD0206]: tp shards two dimensions",
     [](hd_module *m) {
         m->stage = HD_STAGE_TENSOR;
         Add(m, {Dim(2, 0), Dim(2, 0)});
     }},
    {"HD0206]: events are not sharded",
     [](hd_module *m) { Add(m, {Dim(2, 0)}, HD_ROLE_TEMP, HD_DTYPE_EVENT); }},
    {"HD0207]: %new renames %x and is no argument",
     [](hd_module *m) { Add(m, {Dim(4)}, HD_ROLE_OUT)->of = Find(m, "x"); }},
    {"HD0207]: %new renames %x: only host programs",
     [](hd_module *m) {
         m->stage = HD_STAGE_TENSOR;
         Alias({Dim(4)})(m);
     }},
    {"HD0207]: %new_2 cannot rename %new: that is an alias itself",
     [](hd_module *m) {
         Alias({Dim(4)})(m);
         Alias({Dim(4)}, "new")(m);
     }},
    {"HD0207]: %new cannot rename %e: that is an event", Alias({}, "e")},
    {"HD0207]: %new cannot rename %x: that is of another dtype",
     Alias({Dim(4)}, "x", HD_DTYPE_F16)},
    {"HD0207]: %new has 3 elements a rank, %x 4", Alias({Dim(3)})},
    {"HD0207]: %new renames %u, of which some ranks", Alias({Dim(2)}, "u")},
    {"HD0207]: %new_2 renames %new: the dimensions whose length",
     [](hd_module *m) {
         Add(m, {Sized(2)});
         Alias({Dim(8)}, "new")(m);
     }},
    {"HD0212]: %new has 2 events",
     [](hd_module *m) { Add(m, {Dim(2)}, HD_ROLE_IN, HD_DTYPE_EVENT); }},
    {"HD0214]: by %x, which is f32", Counted({Dim(4), Dim(8)}, "x")},
    {"HD0214]: by %n, of events",
     Counted({Dim(4), Dim(8)}, "n", HD_DTYPE_EVENT)},
    {"HD0214]: by %n, of a dimension in pieces",
     Counted({Dim(4), Dim(8, HD_STREAM)})},
    {"HD0214]: by %n, whose dimension 0 differs", Counted({Dim(5), Dim(8)})},
    {"HD0214]: by %n, whose dimension 0 differs", Counted({Dim(4)})},
    {"HD0214]: by %new, which has counts itself",
     [](hd_module *m) {
         Counted({Dim(4), Dim(8)}, "n", HD_DTYPE_I32)(m);
         Counted({Dim(4), Dim(8), Dim(2)}, "new")(m);
     }},
    {"HD0214]: by %new, which is on pp 0, and %new_2 on pp 0..2",
     [](hd_module *m) {
         hd_type counts = Find(m, "n")->type;

         m->stage = HD_STAGE_TENSOR;
         hd_module_add_buffer(m, "new", HD_ROLE_TEMP, &counts)->on =
             hd_ranks_of(m, 1, 0, 1);
         Counted({Dim(4), Dim(8)}, "new")(m);
         Find(m, "new_2")->on = hd_ranks_of(m, 1, 0, 2);
     }},
    {"HD0215]: %new on some ranks of a host program",
     On({Dim(4)}, {true, 0, 0, 1}, HD_STAGE_HOST)},
    {"HD0215]: %new on some ranks: an argument",
     On({Dim(4)}, {true, 0, 0, 1}, HD_STAGE_TENSOR, HD_ROLE_IN)},
    {"HD0215]: %new on tp 2: coordinates are 0 to 1",
     On({Dim(4)}, {true, 0, 2, 3})},
    {"HD0215]: %new on tp 1..0: coordinates are 0 to 1",
     On({Dim(4)}, {true, 0, 1, 0})},
    {"HD0215]: %new on ranks of tp, over which its dimension 1",
     On({Dim(4), Dim(2, 0)}, {true, 0, 0, 1})},
    {"HD0318]: 4 blocks: m, which a run says, is cut into 2",
     [](hd_module *m) { Add(m, {Sized(4)}); }},
    {"HD0318]: 0 blocks: m, which a run says, is cut into 2",
     [](hd_module *m) { Add(m, {Sized(0, HD_STREAM)}); }},
};

// Each is refused for its own reason, once, and at no place of the text.
TEST(Declare, WhatAPassMakesIsJudgedAsTheTextIs)
{
    for (const Case &c : cases) {
        Program program(text);

        ASSERT_EQ(program.status, HD_OK) << program.Said();
        ASSERT_EQ(hd_verify(program.module, program.diag), HD_OK);
        c.edit(program.module);
        EXPECT_EQ(hd_verify(program.module, program.diag), HD_ERROR_INVALID)
            << c.said;
        EXPECT_EQ(program.Said().find(std::string("test.hd: error[") + c.said),
                  0u)
            << "wanted " << c.said << ", said\n"
            << program.Said();
        EXPECT_EQ(program.Said().find("error[", 10), std::string::npos)
            << program.Said();
    }
}

TEST(Declare, WhatFitsIsNotRefused)
{
    Program program(text);
    hd_module *m = program.module;

    Add(m, {Dim(8)});
    Add(m, {Dim(2, 0), Dim(2, 0)}); // a temp of a host program
    Add(m, {Dim(3)}, HD_ROLE_TEMP, HD_DTYPE_EVENT);
    Add(m, {Sized(2)});
    Alias({Dim(2), Dim(2)})(m);
    Alias({Dim(2)}, "new")(m); // smaller than a temp
    Counted({Dim(4), Dim(8)})(m);
    EXPECT_EQ(hd_verify(m, program.diag), HD_OK) << program.Said();
}

// Between two passes somebody adds what none may.
void Spoil(void *context, const char *pass, const hd_module *module)
{
    hd_module *m = static_cast<hd_module *>(context);

    ASSERT_EQ(m, module);
    if (strcmp(pass, "stream") == 0)
        Add(m, {Dim(2, 0), Dim(2, 0)}, HD_ROLE_OUT);
}

TEST(Declare, LoweringEndsWhereAPassLeavesWhatIsRefused)
{
    Program program("tensor program t mesh tp=2 in %x : f32[4@tp]\n"
                    "out %y : f32[4]\n{ %y = set %x }");

    EXPECT_EQ(
        hd_lower(program.module, nullptr, Spoil, program.module, program.diag),
        HD_ERROR_INVALID);
    EXPECT_NE(program.Said().find("HD0206"), std::string::npos)
        << program.Said();
}

} // namespace
