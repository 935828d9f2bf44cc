// The rows of a product that a benchmark checks, and what they are compared
// with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

extern "C" {
#include <heddle/verify.h>

#include "tools/sample.h"
}

namespace
{

// One product of `ranks` ranks, each of which computes its part here.
class Product
{
  public:
    Product(int64_t m, int64_t n, int64_t k, int ranks, bool split)
    {
        EXPECT_TRUE(pool_open(&pool_, HD_DTYPE_BF16, 7, 256));
        for (int rank = 0; rank < ranks; rank++) {
            sample_.push_back(sample());
            sample_[rank].from = &pool_;
            sample_[rank].set = 1;
            sample_[rank].m = m;
            sample_[rank].n = n;
            sample_[rank].k = k;
            sample_[rank].ranks = ranks;
            sample_[rank].split = split;
            EXPECT_TRUE(sample_open(&sample_[rank]));
            sample_compute(&sample_[rank], rank);
            parts_.insert(parts_.end(), sample_[rank].part,
                          sample_[rank].part + sample_part(&sample_[rank]));
        }
        for (int rank = 0; rank < ranks; rank++)
            sample_combine(&sample_[rank], rank, parts_.data());
    }

    ~Product()
    {
        for (sample &sample : sample_)
            sample_close(&sample);
        pool_close(&pool_);
    }

    const sample &At(int rank) const
    {
        return sample_[rank];
    }
    int64_t N() const
    {
        return sample_[0].n;
    }

    // The dot product of a row of A and one of W, in fp32 as a device has it.
    float Dot(int64_t a, int64_t w) const
    {
        std::vector<double> x(Load("a", a)), y(Load("w", w));
        float sum = 0;

        for (size_t i = 0; i < x.size(); i++)
            sum += (float)(x[i] * y[i]);
        return sum;
    }

    // Row `i` of the sample as `rank` would have it for its own share.
    std::vector<double> Own(int rank, int i) const
    {
        const sample &s = sample_[rank];
        std::vector<double> row;
        int64_t a = s.row[i] + (s.split ? rank * s.m : 0);

        for (int64_t j = 0; j < s.n; j++)
            row.push_back(Round(Dot(a, j + (s.split ? rank * s.n : 0))));
        return row;
    }

    // The same of the whole product.
    std::vector<double> Whole(int i) const
    {
        std::vector<double> row(N());

        if (!sample_[0].split)
            return Own(0, i);
        for (size_t rank = 0; rank < sample_.size(); rank++) {
            std::vector<double> part = Own((int)rank, i);

            for (size_t j = 0; j < row.size(); j++)
                row[j] = (float)(row[j] + part[j]);
        }
        for (double &value : row)
            value = Round(value);
        return row;
    }

    verdict Judge(int rank, sample_of of, int i,
                  const std::vector<double> &row) const
    {
        std::vector<uint16_t> stored(row.size());
        verdict verdict = {};
        finding place = {};

        place.rank = rank;
        place.index = 1000;
        hd_dtype_store(HD_DTYPE_BF16, row.data(), row.size(), stored.data());
        sample_compare(&sample_[rank], i, of, stored.data(), &place, &verdict);
        return verdict;
    }

  private:
    static double Round(double value)
    {
        uint16_t stored;

        hd_dtype_store(HD_DTYPE_BF16, &value, 1, &stored);
        hd_dtype_load(HD_DTYPE_BF16, &stored, 1, &value);
        return value;
    }

    std::vector<double> Load(const char *name, int64_t row) const
    {
        std::vector<double> values((size_t)sample_[0].k);

        hd_dtype_load(HD_DTYPE_BF16, pool_row(&pool_, 1, name, row),
                      values.size(), values.data());
        return values;
    }

    pool pool_;
    std::vector<sample> sample_;
    std::vector<double> parts_;
};

TEST(Sample, RowsComeFromAllOfTheResult)
{
    Product product(320, 3, 8, 2, false);
    const sample &s = product.At(0);

    ASSERT_EQ(s.nrows, SAMPLE_ROWS);
    for (int i = 0; i < s.nrows; i++) {
        EXPECT_GE(s.row[i], 10 * i);
        EXPECT_LT(s.row[i], 10 * (i + 1));
    }
}

TEST(Sample, FewRowsAreAllOfThem)
{
    Product product(5, 3, 8, 2, false);
    const sample &s = product.At(1);

    ASSERT_EQ(s.nrows, 5);
    for (int i = 0; i < 5; i++)
        EXPECT_EQ(s.row[i], i);
}

TEST(Sample, TheRightAnswerIsAccepted)
{
    for (int ranks : {1, 3, 4}) {
        Product product(40, 17, 130, ranks, false);

        for (int i = 0; i < SAMPLE_ROWS; i++) {
            verdict v =
                product.Judge(ranks - 1, SAMPLE_SUM, i, product.Whole(i));

            EXPECT_EQ(v.checked, 17u);
            EXPECT_EQ(v.off, 0u) << "row " << i << " of " << ranks;
        }
    }
}

TEST(Sample, SumsOverRanksAndTheirPartsAreAccepted)
{
    Product product(40, 17, 130, 4, true);

    for (int i = 0; i < SAMPLE_ROWS; i++) {
        EXPECT_EQ(product.Judge(2, SAMPLE_SUM, i, product.Whole(i)).off, 0u);
        EXPECT_EQ(product.Judge(2, SAMPLE_HOPS, i, product.Whole(i)).off, 0u);
        EXPECT_EQ(product.Judge(2, SAMPLE_OWN, i, product.Own(2, i)).off, 0u);
    }
}

TEST(Sample, TheShareOfAnotherRankIsRefused)
{
    Product product(40, 17, 130, 4, true);

    EXPECT_GT(product.Judge(2, SAMPLE_OWN, 0, product.Own(1, 0)).off, 12u);
    EXPECT_GT(product.Judge(2, SAMPLE_SUM, 0, product.Own(2, 0)).off, 12u);
}

TEST(Sample, ARowInAnothersPlaceIsRefused)
{
    Product product(40, 17, 130, 2, false);

    for (int i = 1; i < SAMPLE_ROWS; i++)
        EXPECT_GT(product.Judge(0, SAMPLE_SUM, i, product.Whole(i - 1)).off,
                  12u);
}

TEST(Sample, OneValueThatIsOffIsNamed)
{
    Product product(40, 17, 130, 2, false);
    std::vector<double> row = product.Whole(3);
    verdict v;

    row[5] += std::fabs(row[5]) * 0.02 + 0.01;
    v = product.Judge(1, SAMPLE_SUM, 3, row);
    EXPECT_EQ(v.off, 1u);
    EXPECT_EQ(v.worst.index, 1005u);
    EXPECT_EQ(v.worst.rank, 1);
}

TEST(Sample, ValuesThatNobodyWroteAreRefused)
{
    Product product(40, 17, 130, 2, false);
    std::vector<double> row = product.Whole(3);

    row[16] = NAN;
    EXPECT_EQ(product.Judge(0, SAMPLE_SUM, 3, row).off, 1u);
}

TEST(Sample, AMissingTermOfTheSumIsRefused)
{
    Product product(40, 17, 130, 4, true);
    size_t off = 0;

    for (int i = 0; i < SAMPLE_ROWS; i++) {
        std::vector<double> row = product.Whole(i), part = product.Own(3, i);

        for (size_t j = 0; j < row.size(); j++)
            row[j] -= part[j];
        off += product.Judge(0, SAMPLE_HOPS, i, row).off;
    }
    EXPECT_GT(off, SAMPLE_ROWS * 17u / 2);
}

// An attention of `ranks` ranks over two batches, whose rows are those of the
// shards: [ranks, batch, heads, rows / ranks].
class Attention
{
  public:
    Attention(int ranks, int64_t heads, int64_t kv_heads, int64_t rows,
              bool zigzag = false)
    {
        attended_.zigzag = zigzag;
        attended_.batch = 2;
        attended_.heads = heads;
        attended_.kv_heads = kv_heads;
        attended_.rows = rows;
        attended_.depth = 24;
        EXPECT_TRUE(pool_open(&pool_, HD_DTYPE_BF16, 11, 24));
        for (int rank = 0; rank < ranks; rank++) {
            sample_.push_back(sample());
            sample_[rank].from = &pool_;
            sample_[rank].set = 1;
            sample_[rank].m = 2 * heads * rows;
            sample_[rank].n = 24;
            sample_[rank].attention = &attended_;
            sample_[rank].ranks = ranks;
            EXPECT_TRUE(sample_open(&sample_[rank]));
            sample_compute(&sample_[rank], rank);
            parts_.insert(parts_.end(), sample_[rank].part,
                          sample_[rank].part + sample_part(&sample_[rank]));
        }
        for (int rank = 0; rank < ranks; rank++)
            sample_combine(&sample_[rank], rank, parts_.data());
    }

    ~Attention()
    {
        for (sample &sample : sample_)
            sample_close(&sample);
        pool_close(&pool_);
    }

    // Sampled row `i` by the definition, without the key at place `without` of
    // the sequence.
    std::vector<double> Row(int i, int64_t without = -1) const
    {
        int64_t block = attended_.rows / (int64_t)sample_.size();
        int64_t at = sample_[0].row[i] / block;
        int64_t head = at % attended_.heads;
        int64_t batch = at / attended_.heads % attended_.batch;
        int64_t shared = head * attended_.kv_heads / attended_.heads;
        std::vector<double> q = Load("q", sample_[0].row[i]);
        std::vector<long double> sums(q.size() + 1);
        std::vector<double> row(q.size());

        for (int64_t j = 0; j < attended_.rows; j++) {
            int64_t k =
                ((j / block * attended_.batch + batch) * attended_.kv_heads +
                 shared) *
                    block +
                j % block;
            int64_t place = Place(j / block, j % block);

            if (place == without ||
                (attended_.zigzag &&
                 place > Place(at / attended_.heads / attended_.batch,
                               sample_[0].row[i] % block)))
                continue;
            std::vector<double> key = Load("k", k), value = Load("v", k);
            long double score = 0, weight;

            for (size_t d = 0; d < q.size(); d++)
                score += (long double)q[d] * key[d];
            weight = std::exp(score / std::sqrt((long double)q.size()));
            sums.back() += weight;
            for (size_t d = 0; d < q.size(); d++)
                sums[d] += weight * value[d];
        }
        for (size_t d = 0; d < q.size(); d++)
            row[d] = (double)(sums[d] / sums.back());
        return row;
    }

    verdict Judge(int rank, int i, const std::vector<double> &row,
                  sample_of of = SAMPLE_SUM) const
    {
        std::vector<uint16_t> stored(row.size());
        verdict verdict = {};
        finding place = {};

        hd_dtype_store(HD_DTYPE_BF16, row.data(), row.size(), stored.data());
        sample_compare(&sample_[rank], i, of, stored.data(), &place, &verdict);
        return verdict;
    }

  private:
    // Where a row of a rank's block is in the sequence: of two chunks, one from
    // either end, or of a block behind those of the ranks before.
    int64_t Place(int64_t rank, int64_t row) const
    {
        int64_t ranks = (int64_t)sample_.size(), block = attended_.rows / ranks;
        int64_t chunk = rank;

        if (!attended_.zigzag)
            return rank * block + row;
        if (row >= block / 2)
            chunk = 2 * ranks - 1 - rank;
        return chunk * (block / 2) + row % (block / 2);
    }
    std::vector<double> Load(const char *name, int64_t row) const
    {
        std::vector<double> values((size_t)attended_.depth);

        hd_dtype_load(HD_DTYPE_BF16, pool_row(&pool_, 1, name, row),
                      values.size(), values.data());
        return values;
    }

    attended attended_;
    pool pool_;
    std::vector<sample> sample_;
    std::vector<double> parts_;
};

void IsAcceptedAndWithoutAKeyIsNot(int ranks, const Attention &attention,
                                   int64_t without)
{
    size_t off = 0;

    for (int i = 0; i < SAMPLE_ROWS; i++) {
        EXPECT_EQ(attention.Judge(ranks - 1, i, attention.Row(i)).off, 0u)
            << "row " << i << " of " << ranks;
        off += attention.Judge(0, i, attention.Row(i, without)).off;
    }
    EXPECT_GT(off, SAMPLE_ROWS * 24u / 2);
}

TEST(Sample, AnAttentionIsAcceptedAndOneWithoutAKeyIsNot)
{
    for (int ranks : {1, 2, 4})
        IsAcceptedAndWithoutAKeyIsNot(ranks, Attention(ranks, 6, 3, 32), 31);
}

TEST(Sample, AnAttentionInZigzagIsAcceptedAndOneWithoutAKeyIsNot)
{
    for (int ranks : {1, 2, 3})
        IsAcceptedAndWithoutAKeyIsNot(ranks, Attention(ranks, 6, 3, 24, true),
                                      0);
}

TEST(Sample, OneElementOfAnAttentionThatIsOffIsFound)
{
    Attention attention(2, 4, 4, 32);
    std::vector<double> row = attention.Row(5);

    // Nothing is added up over ranks, whatever moves the keys.
    EXPECT_EQ(attention.Judge(1, 5, row, SAMPLE_HOPS).off, 0u);
    row[7] += 0.05;
    EXPECT_EQ(attention.Judge(1, 5, row).off, 1u);
    EXPECT_EQ(attention.Judge(1, 5, row, SAMPLE_HOPS).off, 1u);
}

TEST(Sample, RowsOfWholeSequencesAreThoseOfTheShards)
{
    attended attention = {2, 6, 3, 12, 8, false};
    std::set<int64_t> rows;

    for (int64_t i = 0; i < 2 * 3 * 12; i++)
        rows.insert(attended_row(&attention, 4, i));
    EXPECT_EQ(rows.size(), 72u);
    EXPECT_EQ(*rows.rbegin(), 71);
    // Batch 1, head 2, row 7: row 1 of block 2.
    EXPECT_EQ(attended_row(&attention, 4, (1 * 3 + 2) * 12 + 7),
              ((2 * 2 + 1) * 3 + 2) * 3 + 1);
    EXPECT_EQ(attended_row(&attention, 1, 43), 43);
}

// What is where in the sequence the row of a block says that it is.
TEST(Sample, RowsInZigzagAreInTheirPlaces)
{
    attended attention = {2, 3, 3, 12, 8, true};

    for (int ranks : {1, 2, 3})
        for (int64_t i = 0; i < 2 * 3 * 12; i++)
            EXPECT_EQ(attended_place(&attention, ranks,
                                     attended_row(&attention, ranks, i)),
                      i % 12)
                << i << " of " << ranks;
    // Batch 1, head 2, row 7, which is in chunk 3 of 6: rank 2 has it second.
    EXPECT_EQ(attended_row(&attention, 3, (1 * 3 + 2) * 12 + 7),
              ((2 * 2 + 1) * 3 + 2) * 4 + 2 + 1);
}

TEST(Pool, RowsOfSetsTensorsAndPlacesDiffer)
{
    pool pool;
    std::set<const void *> rows;

    ASSERT_TRUE(pool_open(&pool, HD_DTYPE_F32, 3, 16));
    for (int set = 0; set < 2; set++)
        for (const char *name : {"a", "w"})
            for (int64_t row = 0; row < 100; row++)
                rows.insert(pool_row(&pool, set, name, row));
    EXPECT_GT(rows.size(), 390u);
    pool_close(&pool);
}

} // namespace
