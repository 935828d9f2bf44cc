// Which indices of a dimension stand for others: two of each piece that nothing
// cuts, and each index where one is picked or shapes do not nest.
#include "check/grain.h"

#include "program.h"

namespace
{

struct Grain {
    hd_graph graph = {};
    hd_layout whole = {}, local = {};
    std::vector<const hd_buffer *> argument;

    Grain(const Program &host, const Program &tensor)
        : argument(size_t(tensor.module->nbuffers))
    {
        for (const hd_buffer *b = tensor.module->buffers; b; b = b->next)
            argument[size_t(b->id)] =
                hd_module_buffer(host.module, b->name, strlen(b->name));
        EXPECT_EQ(hd_graph_create(host.module, host.diag, &graph), HD_OK);
        whole.module = tensor.module;
        local.module = host.module;
        local.graph = &graph;
        EXPECT_EQ(hd_grain_find(argument.data(), host.diag, &whole, &local),
                  HD_OK)
            << host.Said();
    }
    ~Grain()
    {
        hd_layout_free(&whole);
        hd_layout_free(&local);
        hd_graph_free(&graph);
    }
    Grain(const Grain &) = delete;
    Grain &operator=(const Grain &) = delete;
    // The units of a buffer's dimensions on a rank, or in the tensor program.
    std::vector<int64_t> Units(const Program &of, const char *name) const
    {
        const hd_buffer *b = hd_module_buffer(of.module, name, strlen(name));
        const hd_sieve &s =
            (of.module == graph.module ? local.sieve : whole.sieve)[b->id];

        return {s.unit, s.unit + s.ndims};
    }
};

using Units = std::vector<int64_t>;

const char *const tensor = "tensor program p mesh tp=2\n"
                           "in %x : f32[6, 128] in %w : f32[96, 128]\n"
                           "out %y : f32[6, 96] { %y = matmul %x, %w tb }";

std::string Host(const std::string &names, const std::string &body)
{
    return "host program p mesh tp=2\n"
           "in %x : f32[6, 128] in %w : f32[96, 128] out %y : f32[6, 96]\n" +
           names + " { " + body + " }";
}

TEST(Grain, DimensionsThatNothingCutsAreWhole)
{
    Program t(tensor), h(Host("", "%y = matmul %x, %w tb"));
    Grain g(h, t);

    EXPECT_EQ(g.Units(h, "x"), (Units{6, 128}));
    EXPECT_EQ(g.Units(t, "y"), (Units{6, 96}));
}

TEST(Grain, AnIndexThatIsPickedTellsAllOfItsDimensionApart)
{
    Program t(tensor),
        h(Host("", "for i in 0..6 { %y[i] = matmul %x[i], %w tb }"));
    Grain g(h, t);

    EXPECT_EQ(g.Units(h, "x"), (Units{1, 128}));
    EXPECT_EQ(g.Units(t, "y"), (Units{1, 96}));
    EXPECT_EQ(g.Units(h, "w"), (Units{96, 128}));
}

TEST(Grain, ANameCutsTheContractedDimensionOfAllWhoShareIt)
{
    Program t(tensor), h(Host("temp %xs : f32[6, 4, 32] of %x"
                              " temp %ws : f32[96, 4, 32] of %w",
                              "for k in 0..4 { if k == 0 {"
                              " %y = matmul %xs[:, k], %ws[:, k] tb } else {"
                              " %y = matmul %xs[:, k], %ws[:, k] tb"
                              " accumulate } }"));
    Grain g(h, t);

    EXPECT_EQ(g.Units(h, "x"), (Units{6, 32}));
    EXPECT_EQ(g.Units(t, "w"), (Units{96, 32}));
    EXPECT_EQ(g.Units(h, "xs"), (Units{6, 1, 32}));
}

TEST(Grain, ShapesThatDoNotNestShareTheGreatestPiece)
{
    Program t(tensor),
        h(Host("temp %xs : f32[8, 96] of %x temp %z : f32[8, 96]",
               "%z = copy %xs %y = matmul %x, %w tb"));
    Grain g(h, t);

    // Rows of 96 and of 128: only the last 32 of both are in step.
    EXPECT_EQ(g.Units(h, "x"), (Units{1, 32}));
    EXPECT_EQ(g.Units(h, "z"), (Units{1, 32}));
}

TEST(Grain, TheTwoThatAreKeptCountForAll)
{
    EXPECT_EQ(hd_sieve_weight(7, 0) + hd_sieve_weight(7, 1), 7);
    EXPECT_EQ(hd_sieve_weight(1, 0), 1);
}

} // namespace
