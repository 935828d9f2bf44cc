// What a product is decoded to: its shape, where each part of each piece lies,
// and what follows. What the driver makes of it is held against loops over the
// text's own indices.
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "ir/product.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

// The last step of rank 0, or of another, of a host program.
class Product
{
  public:
    hd_product p = {};

    explicit Product(const std::string &body, int even = HD_PRODUCT_PARTS,
                     int64_t rank = 0)
        : program_("host program product " + body)
    {
        EXPECT_EQ(program_.status, HD_OK) << program_.Said();
        if (program_.status != HD_OK ||
            hd_steps_collect(program_.module, rank, program_.diag, &steps_) !=
                HD_OK)
            return;
        p = hd_product_of(&steps_.step[steps_.nsteps - 1], even);
    }
    Product(const Product &) = delete;
    Product &operator=(const Product &) = delete;
    ~Product()
    {
        hd_steps_free(&steps_);
    }
    // "3x4 by 12 and 1": a piece's matrix.
    std::string Matrix(int part) const
    {
        const hd_matrix &m = p.part[part].matrix;

        return std::to_string(m.rows) + "x" + std::to_string(m.columns) +
               " by " + std::to_string(m.row_stride) + " and " +
               std::to_string(m.column_stride);
    }
    // "0 12": where a part of each piece begins.
    std::string Places(int part) const
    {
        std::string text;

        for (int64_t i = 0; i < p.pieces; i++)
            text += (i > 0 ? " " : "") +
                    std::to_string(hd_product_offset(&p, part, i));
        return text;
    }
    std::string Shape() const
    {
        return std::to_string(p.batch) + " of " + std::to_string(p.m) + "x" +
               std::to_string(p.n) + "x" + std::to_string(p.k);
    }

  private:
    Program program_;
    hd_steps steps_ = {};
};

TEST(Product, OfTwoMatricesIsOnePiece)
{
    Product x("in %a : f32[3, 4] in %b : f32[4, 5] out %c : f32[3, 5] "
              "{ %c = matmul %a, %b }");

    EXPECT_EQ(x.Shape(), "1 of 3x5x4");
    EXPECT_EQ(x.p.pieces, 1);
    EXPECT_EQ(x.Matrix(HD_PRODUCT_C), "3x5 by 5 and 1");
    EXPECT_EQ(x.Matrix(HD_PRODUCT_A), "3x4 by 4 and 1");
    EXPECT_EQ(x.Matrix(HD_PRODUCT_B), "4x5 by 5 and 1");
    EXPECT_EQ(x.p.part[HD_PRODUCT_BIAS].view, -1);
    EXPECT_EQ(x.p.part[HD_PRODUCT_AUX].view, -1);
    EXPECT_FALSE(x.p.ta || x.p.tb || x.p.accumulate || x.p.wide);
    EXPECT_EQ(x.p.counts, -1);
    EXPECT_EQ(x.p.scale, nullptr);
    EXPECT_EQ(x.p.act, HD_ACT_NONE);
}

TEST(Product, TransposedOperandsAreAsTheyAreStored)
{
    Product x("in %a : f64[4, 3] in %b : f64[5, 4] out %c : f64[3, 5] "
              "{ %c = matmul %a, %b ta tb }");
    Product first("in %a : f32[4, 3] in %b : f32[4, 5] out %c : f32[3, 5] "
                  "{ %c = matmul %a, %b ta }");

    EXPECT_EQ(x.Shape(), "1 of 3x5x4");
    EXPECT_TRUE(x.p.ta && x.p.tb && x.p.wide);
    EXPECT_EQ(x.Matrix(HD_PRODUCT_A), "4x3 by 3 and 1");
    EXPECT_EQ(x.Matrix(HD_PRODUCT_B), "5x4 by 4 and 1");
    EXPECT_TRUE(first.p.ta && !first.p.tb);
    EXPECT_EQ(first.Matrix(HD_PRODUCT_A), "4x3 by 3 and 1");
    EXPECT_EQ(first.Matrix(HD_PRODUCT_B), "4x5 by 5 and 1");
}

TEST(Product, ABatchIsPairedOrCrossed)
{
    Product paired("in %a : f32[2, 3, 4] in %b : f32[2, 4, 5] "
                   "out %c : f32[2, 3, 5] { %c = matmul %a, %b }");
    Product crossed("in %a : f32[3, 4] in %b : f32[2, 5, 4] "
                    "out %c : f32[2, 3, 5] { %c = matmul %a, %b tb }");

    EXPECT_EQ(paired.Shape(), "2 of 3x5x4");
    EXPECT_EQ(paired.Places(HD_PRODUCT_C), "0 15");
    EXPECT_EQ(paired.Places(HD_PRODUCT_A), "0 12");
    EXPECT_EQ(paired.Places(HD_PRODUCT_B), "0 20");
    EXPECT_EQ(crossed.Shape(), "2 of 3x5x4");
    EXPECT_EQ(crossed.Places(HD_PRODUCT_A), "0 0");
    EXPECT_EQ(crossed.Places(HD_PRODUCT_B), "0 20");
    EXPECT_EQ(crossed.Matrix(HD_PRODUCT_A), "3x4 by 4 and 1");
}

TEST(Product, RowsOfManyDimensionsAreOneMatrixIfTheyAreEven)
{
    Product x("in %a : f32[2, 3, 4] in %b : f32[4, 5] out %c : f32[2, 3, 5] "
              "{ %c = matmul %a, %b }");

    EXPECT_EQ(x.Shape(), "1 of 6x5x4");
    EXPECT_EQ(x.p.pieces, 1);
    EXPECT_EQ(x.Matrix(HD_PRODUCT_C), "6x5 by 5 and 1");
    EXPECT_EQ(x.Matrix(HD_PRODUCT_A), "6x4 by 4 and 1");
}

TEST(Product, RowsThatAreNotEvenAreAPieceEach)
{
    const std::string body =
        "in %a : f32[2, 3, 4] in %b : f32[4, 5] out %c : f32[2, 3, 5] "
        "out %x : f32[2, 7, 3, 5] { %c = matmul %a, %b aux %x[:, 6] }";
    Product gaps("in %a : f32[2, 6, 3, 4] in %b : f32[4, 5] "
                 "out %c : f32[2, 3, 5] { %c = matmul %a[:, 2], %b }");
    Product all(body), matrices(body, HD_PRODUCT_BIAS);

    EXPECT_EQ(gaps.Shape(), "1 of 6x5x4");
    EXPECT_EQ(gaps.p.pieces, 2);
    EXPECT_EQ(gaps.Places(HD_PRODUCT_A), "24 96");
    EXPECT_EQ(gaps.Places(HD_PRODUCT_B), "0 0");
    EXPECT_EQ(gaps.Places(HD_PRODUCT_C), "0 15");
    EXPECT_EQ(gaps.Matrix(HD_PRODUCT_A), "3x4 by 4 and 1");
    EXPECT_EQ(gaps.Matrix(HD_PRODUCT_C), "3x5 by 5 and 1");
    EXPECT_EQ(all.p.pieces, 2); // for the aux alone
    EXPECT_EQ(all.Places(HD_PRODUCT_AUX), "90 195");
    EXPECT_EQ(matrices.p.pieces, 1);
    EXPECT_EQ(matrices.Matrix(HD_PRODUCT_C), "6x5 by 5 and 1");
}

TEST(Product, AVectorIsOneRow)
{
    Product x("in %a : f32[4] in %b : f32[4, 5] out %c : f32[5] "
              "{ %c = matmul %a, %b }");
    Product batch("in %a : f32[4] in %b : f32[2, 4, 5] out %c : f32[2, 5] "
                  "{ %c = matmul %a, %b }");

    EXPECT_EQ(x.Shape(), "1 of 1x5x4");
    EXPECT_EQ(x.Matrix(HD_PRODUCT_A), "1x4 by 4 and 1");
    EXPECT_EQ(batch.Shape(), "2 of 1x5x4");
    EXPECT_EQ(batch.Matrix(HD_PRODUCT_C), "1x5 by 5 and 1");
    EXPECT_EQ(batch.Places(HD_PRODUCT_A), "0 0");
}

TEST(Product, BatchesPairFromTheLastDimensionOnAndRepeat)
{
    Product x("in %a : f32[2, 3, 6, 4] in %b : f32[3, 4, 5] "
              "out %c : f32[2, 3, 6, 5] { %c = matmul %a, %b }");
    Product one("in %a : f32[2, 3, 6, 4] in %b : f32[2, 1, 4, 5] "
                "out %c : f32[2, 3, 6, 5] { %c = matmul %a, %b }");
    Product turned("in %a : f32[2, 4, 6] in %b : f32[4, 5] "
                   "out %c : f32[2, 6, 5] { %c = matmul %a, %b ta }");

    EXPECT_EQ(x.Shape(), "6 of 6x5x4");
    EXPECT_EQ(x.Places(HD_PRODUCT_B), "0 20 40 0 20 40");
    EXPECT_EQ(one.Shape(), "2 of 18x5x4");
    EXPECT_EQ(one.Places(HD_PRODUCT_B), "0 20");
    EXPECT_EQ(turned.Shape(), "2 of 6x5x4");
    EXPECT_EQ(turned.Places(HD_PRODUCT_A), "0 24");
    EXPECT_EQ(turned.Places(HD_PRODUCT_B), "0 0");
}

TEST(Product, ViewsBeginWhereTheirIndicesSay)
{
    Product x("in %a : f32[5, 3, 4] in %b : f32[4, 2, 6] "
              "out %c : f32[2, 3, 7, 6] "
              "{ %c[1, :, 3] = matmul %a[4], %b[:, 1] }");

    EXPECT_EQ(x.Places(HD_PRODUCT_A), "48");
    EXPECT_EQ(x.Places(HD_PRODUCT_B), "6");
    EXPECT_EQ(x.Places(HD_PRODUCT_C), "144");
    EXPECT_EQ(x.Matrix(HD_PRODUCT_B), "4x6 by 12 and 1");
    EXPECT_EQ(x.Matrix(HD_PRODUCT_C), "3x6 by 42 and 1");
}

TEST(Product, ColumnsMayBeApart)
{
    Product x("in %a : f32[3, 4, 2] in %b : f32[4, 5] out %c : f32[3, 5] "
              "{ %c = matmul %a[:, :, 1], %b }");

    EXPECT_EQ(x.Matrix(HD_PRODUCT_A), "3x4 by 8 and 2");
    EXPECT_EQ(x.Places(HD_PRODUCT_A), "1");
}

TEST(Product, WhatFollowsIsFoundByItsKey)
{
    Product x("in %a : f32[2, 3, 4] in %b : f32[2, 4, 5] in %f : f32[9] "
              "in %d : f32[2, 5] inout %c : f32[2, 3, 5] out %x : f32[2, 3, 5] "
              "{ %c = matmul %a, %b scale %f[7] bias %d[1] act gelu aux %x "
              "accumulate }");
    Product rows("in %a : f32[3, 4] in %b : f32[4, 5] in %d : f32[3, 1] "
                 "out %c : f32[3, 5] { %c = matmul %a, %b bias %d }");
    Product number("in %a : f32[3, 4] in %b : f32[4, 5] out %c : f32[3, 5] "
                   "{ %c = matmul %a, %b scale 0.25 }");

    EXPECT_TRUE(x.p.accumulate);
    EXPECT_EQ(x.p.act, HD_ACT_GELU);
    ASSERT_NE(x.p.scale, nullptr);
    EXPECT_EQ(x.p.scale->view, 3);
    EXPECT_EQ(x.p.part[HD_PRODUCT_BIAS].view, 4);
    EXPECT_EQ(x.p.part[HD_PRODUCT_AUX].view, 5);
    EXPECT_EQ(x.Matrix(HD_PRODUCT_BIAS), "3x5 by 0 and 1");
    EXPECT_EQ(x.Places(HD_PRODUCT_BIAS), "5 5");
    EXPECT_EQ(x.Matrix(HD_PRODUCT_AUX), "3x5 by 5 and 1");
    EXPECT_EQ(x.Places(HD_PRODUCT_AUX), "0 15");
    EXPECT_EQ(rows.Matrix(HD_PRODUCT_BIAS), "3x5 by 1 and 0");
    ASSERT_NE(number.p.scale, nullptr);
    EXPECT_EQ(number.p.scale->number, 0.25);
    EXPECT_EQ(number.p.scale->view, -1);
}

TEST(Product, GroupsHaveSomeRowsAndOneMatrixEach)
{
    Product rows("in %a : f32[6, 2, 4] in %b : f32[2, 3, 5, 4] in %n : i32[3] "
                 "out %c : f32[6, 5] "
                 "{ %c = matmul %a[:, 1], %b[1] tb groups %n }");
    Product matrices("in %a : f32[6, 4] in %b : f32[6, 5] in %n : i32[3] "
                     "out %c : f32[3, 2, 4, 5] "
                     "{ %c[:, 1] = matmul %a, %b ta groups %n }");
    const std::string biased =
        "in %a : f32[6, 4] in %b : f32[3, 4, 5] in %n : i32[3] "
        "in %v : f32[3, 2, 5] in %w : f32[1, 5] out %c : f32[6, 5] "
        "{ %c = matmul %a, %b groups %n bias ";
    Product own(biased + "%v[:, 1] }"), one(biased + "%v[1, 1] }");
    Product same(biased + "%w }");

    EXPECT_EQ(own.p.to_bias, 10);
    EXPECT_EQ(own.Matrix(HD_PRODUCT_BIAS), "6x5 by 0 and 1");
    EXPECT_EQ(own.Places(HD_PRODUCT_BIAS), "5");
    EXPECT_EQ(one.p.to_bias, 0);
    EXPECT_EQ(one.Matrix(HD_PRODUCT_BIAS), "6x5 by 0 and 1");
    EXPECT_EQ(same.p.to_bias, 0);
    EXPECT_EQ(rows.Shape(), "1 of 6x5x4");
    EXPECT_EQ(rows.p.counts, 3);
    EXPECT_EQ(rows.p.groups, 3);
    EXPECT_EQ(rows.p.rows, 6);
    EXPECT_EQ(rows.p.to_group, 20);
    EXPECT_EQ(rows.Matrix(HD_PRODUCT_A), "6x4 by 8 and 1");
    EXPECT_EQ(rows.Matrix(HD_PRODUCT_B), "5x4 by 4 and 1");
    EXPECT_EQ(rows.Matrix(HD_PRODUCT_C), "6x5 by 5 and 1");
    EXPECT_EQ(matrices.Shape(), "1 of 4x5x6");
    EXPECT_EQ(matrices.p.groups, 3);
    EXPECT_EQ(matrices.p.rows, 6);
    EXPECT_EQ(matrices.p.to_group, 40);
    EXPECT_EQ(matrices.Matrix(HD_PRODUCT_A), "6x4 by 4 and 1");
    EXPECT_EQ(matrices.Matrix(HD_PRODUCT_B), "6x5 by 5 and 1");
    EXPECT_EQ(matrices.Matrix(HD_PRODUCT_C), "4x5 by 5 and 1");
}

TEST(Product, APieceHasOneCount)
{
    Product x("in %n : i32[3] in %a : f32[3, 4 by %n, 2, 5] in %b : f32[5, 6] "
              "out %c : f32[3, 4, 2, 6] { %c = matmul %a, %b }");

    EXPECT_EQ(x.p.pieces, 3);
    EXPECT_EQ(x.Matrix(HD_PRODUCT_A), "8x5 by 5 and 1");
}

TEST(Product, OfAShardHasTheExtentsThatTheRankHolds)
{
    Product x("mesh tp=4 in %a : f32[4@tp, 3, 6] in %b : f32[4@tp, 6, 5] "
              "out %c : f32[4@tp, 3, 5] { %c = matmul %a, %b }",
              HD_PRODUCT_PARTS, 2);
    Product rows("mesh tp=4 in %a : f32[4@tp, 3, 6] in %b : f32[6, 5] "
                 "out %c : f32[4@tp, 3, 5] { %c = matmul %a, %b }",
                 HD_PRODUCT_PARTS, 3);

    EXPECT_EQ(x.Shape(), "1 of 3x5x6");
    EXPECT_EQ(x.Places(HD_PRODUCT_A), "0");
    EXPECT_EQ(rows.Shape(), "1 of 3x5x6");
    EXPECT_EQ(rows.p.pieces, 1);
}

// The elements of random products, as the decoder places them, against the
// indices that the text has.
TEST(Product, EachElementLiesWhereItsIndicesSay)
{
    unsigned seed = Seed();
    std::mt19937 random(seed);

    for (int trial = 0; trial < 200; trial++) {
        auto draw = [&random] { return int64_t(1 + random() % 4); };
        int64_t g = draw(), p = draw(), r = draw(), m = draw(), n = draw(),
                k = draw(), gap = draw(), pick = int64_t(random()) % gap;
        bool ta = random() % 2 == 0, tb = random() % 2 == 0;
        auto text = [](int64_t i) { return std::to_string(i); };
        auto dims = [&text](const std::vector<int64_t> &extent) {
            std::string s;

            for (int64_t e : extent)
                s += (s.empty() ? "" : ", ") + text(e);
            return "f32[" + s + "]";
        };
        if (ta)
            r = 1; // no more rows than a's last dimension
        // a [p, gap, (r,) m, k], b [g, p, (1,) k, n], c [p, r, gap, m, n].
        std::vector<int64_t> a = ta ? std::vector<int64_t>{p, gap, k, m}
                                    : std::vector<int64_t>{p, gap, r, m, k};
        std::vector<int64_t> c = ta ? std::vector<int64_t>{p, gap, m, n}
                                    : std::vector<int64_t>{p, r, gap, m, n};
        std::vector<int64_t> b{g, p, 1, tb ? n : k, tb ? k : n};
        if (ta)
            b.erase(b.begin() + 2);
        std::string body =
            "in %a : " + dims(a) + " in %b : " + dims(b) +
            " out %c : " + dims(c) + " { %c[:, " + (ta ? "" : ":, ") +
            text(pick) + "] = matmul %a[:, " + text(pick) + "], %b[" +
            text(g - 1) + "]" + (ta ? " ta" : "") + (tb ? " tb" : "") + " }";
        Product x(body);
        int64_t rows = x.p.part[HD_PRODUCT_C].matrix.rows;
        auto at = [&x](int part, int64_t piece, int64_t i, int64_t j) {
            const hd_matrix &s = x.p.part[part].matrix;

            return hd_product_offset(&x.p, part, piece) + i * s.row_stride +
                   j * s.column_stride;
        };

        ASSERT_EQ(x.p.pieces * rows, p * r * m) << body << " seed " << seed;
        for (int64_t row = 0; row < p * r * m; row++) {
            int64_t piece = row / rows, i = row % rows;
            int64_t ip = row / (r * m), ir = row / m % r, im = row % m;

            for (int64_t in = 0; in < n; in++)
                ASSERT_EQ(at(HD_PRODUCT_C, piece, i, in),
                          (((ip * r + ir) * gap + pick) * m + im) * n + in)
                    << body << " seed " << seed;
            for (int64_t ik = 0; ik < k; ik++) {
                int64_t outer = (ip * gap + pick) * r + ir;

                ASSERT_EQ(ta ? at(HD_PRODUCT_A, piece, ik, i)
                             : at(HD_PRODUCT_A, piece, i, ik),
                          ta ? (outer * k + ik) * m + im
                             : (outer * m + im) * k + ik)
                    << body << " seed " << seed;
                for (int64_t in = 0; in < n; in++)
                    ASSERT_EQ(tb ? at(HD_PRODUCT_B, piece, in, ik)
                                 : at(HD_PRODUCT_B, piece, ik, in),
                              (((g - 1) * p + ip) * n * k) +
                                  (tb ? in * k + ik : ik * n + in))
                        << body << " seed " << seed;
            }
        }
    }
}

} // namespace
