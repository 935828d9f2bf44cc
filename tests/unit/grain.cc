// Which indices of a dimension stand for others: two of each piece that nothing
// cuts, and each index where one is picked or shapes do not nest.
#include "check/grain.h"

#include <random>

#include "program.h"
#include "tests/seed.h"

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
        return Grains(of, name, &hd_grain::unit);
    }
    std::vector<int64_t> Cuts(const Program &of, const char *name) const
    {
        return Grains(of, name, &hd_grain::cut);
    }

  private:
    std::vector<int64_t> Grains(const Program &of, const char *name,
                                int64_t hd_grain::*what) const
    {
        const hd_buffer *b = hd_module_buffer(of.module, name, strlen(name));
        const hd_sieve &s =
            (of.module == graph.module ? local.sieve : whole.sieve)[b->id];
        std::vector<int64_t> grains;

        for (int d = 0; d < s.ndims; d++)
            grains.push_back(s.grain[d].*what);
        return grains;
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

// 22 rows of four ranks: 6, 6, 6 and 4.
const char *const uneven = "tensor program p mesh tp=4\n"
                           "in %x : f32[22@tp, 128] in %w : f32[96, 128]\n"
                           "out %y : f32[22, 96] { %y = matmul %x, %w tb }";

std::string Ring(const std::string &names, const std::string &body)
{
    return "host program p mesh tp=4\n"
           "in %x : f32[22@tp, 128] in %w : f32[96, 128]\n"
           "out %y : f32[22, 96] temp %g : f32[22, 128] shared\n" +
           names +
           " { %g[tp of 4] = copy %x[tp of 4]"
           " for i in 1..4 { group { send %x[tp of 4] to (tp + i) mod 4"
           " %g[(tp - i) mod 4 of 4] = recv from (tp - i) mod 4 } }" +
           body + " }";
}

TEST(Grain, TheLengthOfTheLastBlockCutsEach)
{
    Program t(uneven), h(Ring("", " %y = matmul %g, %w tb"));
    Grain g(h, t);

    EXPECT_EQ(g.Units(t, "x"), (Units{6, 128}));
    EXPECT_EQ(g.Cuts(t, "y"), (Units{4, 0}));
    EXPECT_EQ(g.Units(h, "x"), (Units{6, 128}));
    EXPECT_EQ(g.Cuts(h, "x"), (Units{4, 0}));
    EXPECT_EQ(g.Units(h, "g"), (Units{6, 128}));
    EXPECT_EQ(g.Units(h, "w"), (Units{96, 128}));
}

TEST(Grain, SoItDoesWhereNobodyHasAllBlocks)
{
    Program t(uneven),
        h(Ring("temp %t : f32[22@tp, 4]",
               " %t[tp of 4] = fill value 1.0 %y = matmul %g, %w tb"));
    Grain g(h, t);

    EXPECT_EQ(g.Units(h, "t"), (Units{6, 4}));
    EXPECT_EQ(g.Cuts(h, "t"), (Units{4, 0}));
}

TEST(Grain, ARangeBesideBlocksLeavesWhatBothBeginAtMultiplesOf)
{
    Program t(uneven), h(Ring("", " %y[0..12] = matmul %g[0..12], %w tb"
                                  " %y[12..22] = matmul %g[12..22], %w tb"));
    Grain g(h, t);

    // 6, cut at 4, and multiples of 2.
    EXPECT_EQ(g.Units(h, "g"), (Units{2, 128}));
    EXPECT_EQ(g.Cuts(h, "g"), (Units{0, 0}));
}

TEST(Grain, NoPieceLiesInTheMidstOfAnotherShapes)
{
    Program t(uneven), h(Ring("temp %f : f32[11, 256] of %g"
                              " temp %z : f32[11, 256]",
                              " %y = matmul %g, %w tb %z = copy %f"));
    Grain g(h, t);

    EXPECT_EQ(g.Units(h, "g"), (Units{1, 128}));
    EXPECT_EQ(g.Cuts(h, "g"), (Units{0, 0}));
}

TEST(Grain, WhatIsKeptStandsForAllAndEachForItsOwn)
{
    std::mt19937 random(Seed());

    for (int i = 0; i < 200; i++) {
        hd_grain grain = {1 + int64_t(random() % 9), 0};
        grain.cut = int64_t(random()) % grain.unit;
        int64_t n =
            int64_t(random() % 4) * grain.unit + (random() % 2 ? grain.cut : 0);
        int64_t kept = hd_grain_kept(grain, n), all = 0, past = 0;

        EXPECT_EQ(hd_grain_extent(grain, kept), n);
        EXPECT_LE(kept, n);
        for (int64_t k = 0; k < kept; k++) {
            hd_piece piece = hd_grain_piece(grain, k);

            all += hd_grain_weight(grain, k);
            EXPECT_EQ(piece.first + (piece.number > 0 ? piece.length : 0),
                      past);
            past = piece.first + piece.length;
            EXPECT_EQ(all == past,
                      piece.number == hd_piece_kept(piece.length) - 1);
        }
        EXPECT_EQ(all, n);
    }
}

TEST(Grain, TheTwoThatAreKeptCountForAll)
{
    EXPECT_EQ(hd_grain_weight({7, 0}, 0) + hd_grain_weight({7, 0}, 1), 7);
    EXPECT_EQ(hd_grain_weight({1, 0}, 0), 1);
}

} // namespace
