// Dimensions over ranks of any extent: who has which index, by the public
// questions, against the arithmetic of docs/text-form.md written out.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <heddle/verify.h>

#include "heddle/heddle.h"
#include "tests/seed.h"

namespace
{

struct Dim {
    int64_t extent;
    int axis; // -1: of none
};

struct Shape {
    std::vector<int64_t> mesh;
    std::vector<Dim> dims;

    int64_t Ranks() const
    {
        int64_t n = 1;

        for (int64_t size : mesh)
            n *= size;
        return n;
    }
    int64_t Coord(int64_t rank, int axis) const
    {
        for (size_t i = mesh.size(); i-- > size_t(axis) + 1;)
            rank /= mesh[i];
        return rank % mesh[size_t(axis)];
    }
    int64_t Room(const Dim &dim) const
    {
        return dim.axis < 0 ? dim.extent
                            : (dim.extent + mesh[size_t(dim.axis)] - 1) /
                                  mesh[size_t(dim.axis)];
    }
    int64_t LocalElements() const
    {
        int64_t n = 1;

        for (const Dim &dim : dims)
            n *= Room(dim);
        return n;
    }
    int64_t Elements() const
    {
        int64_t n = 1;

        for (const Dim &dim : dims)
            n *= dim.extent;
        return n;
    }
    // Where element `i` of what a rank has room for lies in the whole, -1 if
    // it has none there.
    int64_t Whole(int64_t rank, int64_t i) const
    {
        int64_t at = 0, stride = 1;

        for (size_t d = dims.size(); d-- > 0;) {
            int64_t room = Room(dims[d]), index = i % room;

            if (dims[d].axis >= 0)
                index += Coord(rank, dims[d].axis) * room;
            if (index >= dims[d].extent)
                return -1;
            at += index * stride;
            stride *= dims[d].extent;
            i /= room;
        }
        return at;
    }
    std::string Type() const
    {
        std::string text;

        for (const Dim &dim : dims)
            text += (text.empty() ? "[" : ", ") + std::to_string(dim.extent) +
                    (dim.axis < 0    ? ""
                     : dim.axis == 0 ? "@dp"
                                     : "@tp");
        return text + "]";
    }
    // The own blocks of all.
    std::string Own() const
    {
        std::string text;

        for (const Dim &dim : dims) {
            std::string axis = dim.axis == 0 ? "dp" : "tp";

            text += (text.empty() ? "[" : ", ") +
                    (dim.axis < 0 ? ":" : axis + " of size " + axis);
        }
        return text + "]";
    }
    std::string Mesh() const
    {
        return "mesh dp=" + std::to_string(mesh[0]) +
               ", tp=" + std::to_string(mesh[1]) + " ";
    }
};

// Of one or two axes, on which one, two or none of the dimensions lie.
Shape Draw(std::mt19937 &random)
{
    auto below = [&](size_t n) { return random() % n; };
    Shape s;

    s.mesh = {int64_t(below(2) ? 1 + below(3) : 1), int64_t(1 + below(5))};
    for (size_t n = 1 + below(4); n > 0; n--)
        s.dims.push_back({int64_t(1 + below(4)), -1});
    for (int axis = 0; axis < 2; axis++) {
        Dim &dim = s.dims[below(s.dims.size())];

        if (dim.axis < 0)
            dim = {int64_t(1 + below(size_t(3 * s.mesh[size_t(axis)] + 1))),
                   axis};
    }
    return s;
}

struct Delete {
    void operator()(hd_module *module) const
    {
        hd_module_destroy(module);
    }
    void operator()(hd_reference *reference) const
    {
        hd_reference_destroy(reference);
    }
};

std::unique_ptr<hd_module, Delete> Parse(const std::string &text)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    EXPECT_EQ(hd_parse("blocks.hd", text.data(), text.size(), nullptr, 0, diag,
                       &module),
              HD_OK)
        << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return std::unique_ptr<hd_module, Delete>(module);
}

const int kRounds = 300;

TEST(Blocks, ArgumentsSayWhatARankHasRoomFor)
{
    std::mt19937 random(Seed());

    for (int round = 0; round < kRounds; round++) {
        Shape s = Draw(random);
        std::string text = "heddle 2 host program p " + s.Mesh() +
                           "in %a : f16" + s.Type() + " { }";
        auto module = Parse(text);
        hd_argument a = HD_EMPTY(hd_argument);

        SCOPED_TRACE(text);
        ASSERT_NE(module, nullptr);
        ASSERT_TRUE(hd_module_argument(module.get(), 0, &a));
        EXPECT_EQ(a.elements, size_t(s.Elements()));
        EXPECT_EQ(a.local_elements, size_t(s.LocalElements()));
        EXPECT_EQ(a.local_bytes, size_t(2 * s.LocalElements()));
        for (size_t d = 0; d < s.dims.size(); d++) {
            EXPECT_EQ(a.extent[d], s.dims[d].extent);
            EXPECT_EQ(a.local[d], s.Room(s.dims[d]));
            EXPECT_EQ(a.axis[d], s.dims[d].axis);
        }
    }
}

// Each rank gets its own and gives it back, and neither touches what it has
// room for alone; together they have each element once.
TEST(Blocks, ShardsCoverTheWholeOnceAndLeaveRoomAlone)
{
    std::mt19937 random(Seed());

    for (int round = 0; round < kRounds; round++) {
        Shape s = Draw(random);
        auto module = Parse("heddle 2 host program p " + s.Mesh() +
                            "in %a : i32" + s.Type() + " { }");
        std::vector<int32_t> whole(size_t(s.Elements()), 0);
        std::vector<int> times(whole.size(), 0);
        const int32_t room = -77;

        SCOPED_TRACE(s.Mesh() + s.Type());
        ASSERT_NE(module, nullptr);
        for (int32_t &value : whole)
            value = int32_t(random() % 1000000);
        for (int rank = 0; rank < s.Ranks(); rank++) {
            std::vector<int32_t> local(size_t(s.LocalElements()), room);
            std::vector<int32_t> back(whole.size(), room), mine = local;

            hd_shard(module.get(), 0, rank, whole.data(), local.data());
            hd_unshard(module.get(), 0, rank, local.data(), back.data());
            for (size_t i = 0; i < local.size(); i++) {
                int64_t at = s.Whole(rank, int64_t(i));

                ASSERT_EQ(local[i], at < 0 ? room : whole[size_t(at)])
                    << "rank " << rank << ", element " << i;
                if (at < 0)
                    continue;
                ASSERT_EQ(back[size_t(at)], whole[size_t(at)]);
                back[size_t(at)] = room;
                bool first = true; // of those that have the same
                for (int axis = 0; axis < 2; axis++) {
                    bool shards = false;

                    for (const Dim &dim : s.dims)
                        shards |= dim.axis == axis;
                    first &= shards || s.Coord(rank, axis) == 0;
                }
                times[size_t(at)] += first;
            }
            for (int32_t value : back)
                ASSERT_EQ(value, room) << "rank " << rank;
        }
        for (int n : times)
            ASSERT_EQ(n, 1);
    }
}

void ExpectReference(const Shape &s, const std::string &text,
                     const std::vector<float> &whole)
{
    auto module = Parse(text);
    const void *inputs[] = {whole.data(), nullptr};
    hd_reference *made = nullptr;

    SCOPED_TRACE(text);
    ASSERT_NE(module, nullptr);
    ASSERT_EQ(hd_reference_create(module.get(), inputs, nullptr, &made), HD_OK);
    std::unique_ptr<hd_reference, Delete> reference(made);
    for (int rank = 0; rank < s.Ranks(); rank++) {
        std::vector<double> value(size_t(s.LocalElements()), 5), bound = value;

        hd_reference_local(made, 1, rank, value.data(), bound.data());
        for (size_t i = 0; i < value.size(); i++) {
            int64_t at = s.Whole(rank, int64_t(i));

            if (at < 0) {
                ASSERT_TRUE(std::isnan(value[i])) << value[i];
                ASSERT_EQ(bound[i], -1);
            } else {
                ASSERT_EQ(value[i], 2 * double(whole[size_t(at)]));
                ASSERT_GE(bound[i], 0);
            }
        }
    }
}

TEST(Blocks, TheReferenceHasNothingForWhatIsRoomAlone)
{
    std::mt19937 random(Seed());

    for (int round = 0; round < kRounds && !testing::Test::HasFailure();
         round++) {
        Shape s = Draw(random);
        std::string decls =
            s.Mesh() + "in %a : f32" + s.Type() + " out %y : f32" + s.Type();
        std::vector<float> whole(size_t(s.Elements()));

        for (float &value : whole)
            value = float(random() % 4096) / 64 + 1;
        ExpectReference(s,
                        "heddle 2 host program p " + decls + " { %y" + s.Own() +
                            " = scale %a" + s.Own() + " by 2 }",
                        whole);
        ExpectReference(
            s, "heddle 2 tensor program p " + decls + " { %y = scale %a by 2 }",
            whole);
    }
}

} // namespace
