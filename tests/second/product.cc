// A matmul, and one whose rows are grouped by data.
#include <algorithm>

#include "tests/second/compute.h"

namespace second
{

namespace
{

// What follows a product: factor, bias, activation, and what was there.
class Epilogue
{
  public:
    // Those of a bias may lack some in front.
    Epilogue(const Work &work, const Loops &of_c, const Loops &of_bias,
             const std::vector<int64_t> &extents, Memory *memory)
        : result_(memory, work.to[0].region, of_c, extents),
          dtype_(work.to[0].dtype)
    {
        const Stmt &stmt = *work.stmt;

        if (stmt.Find("scale"))
            factor_ = {Factor(work, "scale", memory)};
        if (stmt.Find("bias")) {
            const Region &region = work.keys.at("bias").region;
            Loops loops(of_bias.end() - static_cast<long>(region.dims.size()),
                        of_bias.end());

            bias_ = {Span(memory, region, loops, extents)};
        }
        if (stmt.Find("aux"))
            aux_ = {Span(memory, work.keys.at("aux").region, of_c, extents)};
        if (stmt.Find("act"))
            act_ = stmt.Find("act")->word;
        accumulates_ = stmt.Find("accumulate") != nullptr;
        keeps_ = accumulates_ || stmt.Find("keep") != nullptr;
    }
    void Store(const Point &at, Scalar sum) const
    {
        for (const Scalar &factor : factor_)
            sum = Mul(sum, factor);
        for (const Span &bias : bias_)
            sum = Add(sum, bias.At(at));
        for (const Span &aux : aux_)
            aux.At(at) = sum;
        if (!act_.empty())
            sum = Activate(act_, sum);
        if (accumulates_)
            sum = Add(sum, result_.At(at));
        result_.At(at) = IsInteger(dtype_) ? Wrapped(sum) : sum;
    }
    // Of an element that is not computed.
    void Skip(const Point &at) const
    {
        for (const Span &aux : aux_)
            aux.At(at) = Exact(0);
        if (!keeps_)
            result_.At(at) = Exact(0);
    }

  private:
    // Sums of integers are exact.
    Scalar Wrapped(const Scalar &sum) const
    {
        Scalar whole = Convert("i64", dtype_, Exact(sum.value));

        if (sum.bound >= 0.5)
            return Unknown();
        whole.lost = sum.lost;
        return whole;
    }

    Span result_;
    std::string dtype_;
    std::vector<Scalar> factor_;   // one, or none
    std::vector<Span> bias_, aux_; // likewise
    std::string act_;
    bool accumulates_, keeps_;
};

// What an operand's elements are multiplied by: one scale each, or for blocks
// of so many indices, by the words of docs/semantics.md.
class Scales
{
  public:
    // `loops` are those of the operand, with the last of which a view ends.
    Scales(const Work &work, const Shape &shape, const char *key,
           const Loops &loops, const std::vector<int64_t> &extents,
           Memory *memory)
    {
        if (!work.stmt->Find(key))
            return;
        const Region &region = work.keys.at(key).region;
        int64_t grain = KeyOr(work, shape, "grain", 1);
        size_t missing = loops.size() - region.dims.size();

        if (region.dims.size() > loops.size())
            throw Unreadable("scales of more dimensions than their operand");
        elements_ = &memory->at(region.root);
        offset_ = region.offset;
        for (size_t d = 0; d < region.dims.size(); d++) {
            int loop = loops[missing + d];
            int64_t extent = region.dims[d].first;
            int64_t all = extents[static_cast<size_t>(loop)];
            int64_t of = extent == all ? 1 : grain;

            if (extent != 1 && extent != (all + of - 1) / of)
                throw Unreadable("scales of another number of blocks");
            if (extent != 1)
                dims_.push_back({loop, of, region.dims[d].second});
        }
    }
    Scalar Times(const Scalar &x, const Point &at) const
    {
        int64_t place = offset_;

        if (elements_ == nullptr)
            return x;
        for (const Dim &dim : dims_)
            place += at[static_cast<size_t>(dim.loop)] / dim.of * dim.stride;
        return Mul(x, (*elements_)[static_cast<size_t>(place)]);
    }

  private:
    struct Dim {
        int loop;
        int64_t of, stride;
    };
    std::vector<Scalar> *elements_ = nullptr; // borrowed
    int64_t offset_ = 0;
    std::vector<Dim> dims_;
};

// Which group each row is in, -1 for none: those before it leave the rest.
std::vector<int64_t> GroupOfRows(const std::vector<Scalar> &counts,
                                 int64_t rows)
{
    std::vector<int64_t> group(static_cast<size_t>(rows), -1);
    int64_t row = 0;

    for (size_t g = 0; g < counts.size(); g++) {
        int64_t n =
            std::min(std::max<int64_t>(WholeNumber(counts[g]), 0), rows - row);

        std::fill_n(group.begin() + row, n, static_cast<int64_t>(g));
        row += n;
    }
    return group;
}

// y[row] = x[row] w[the group of row]. Loops: groups, rows, n, k.
void MultiplyGroups(const Work &work, const Shape &shape, Memory *memory)
{
    const auto &x = work.from[0].region, &w = work.from[1].region;
    const auto &y = work.to[0].region;
    bool tb = work.stmt->Find("tb") != nullptr;
    std::vector<int64_t> extents = {w.dims.at(0).first, y.dims.at(0).first,
                                    y.dims.at(1).first, x.dims.at(1).first};
    std::vector<int64_t> group =
        GroupOfRows(Read(memory, work.keys.at("groups"), false), extents[1]);
    Loops of_w = tb ? Loops{0, 2, 3} : Loops{0, 3, 2};
    Span a(memory, x, {1, 3}, extents), b(memory, w, of_w, extents);
    Scales of_a(work, shape, "scale_a", {1, 3}, extents, memory);
    Scales of_b(work, shape, "scale_b", of_w, extents, memory);
    Epilogue epilogue(work, {1, 2}, {0, 2}, extents, memory);

    ForEach({extents[1], extents[2]}, [&](const Point &c) {
        Point at = {group[static_cast<size_t>(c[0])], c[0], c[1], 0};
        Scalar sum;

        if (at[0] < 0) {
            at[0] = 0;
            return epilogue.Skip(at);
        }
        for (; at[3] < extents[3]; at[3]++)
            sum = Add(sum,
                      Mul(of_a.Times(a.At(at), at), of_b.Times(b.At(at), at)));
        epilogue.Store(at, sum);
    });
}

// w[g] = the product over the rows of group g. Loops: groups, k, n, rows.
void ContractGroups(const Work &work, const Shape &shape, Memory *memory)
{
    const auto &x = work.from[0].region, &g = work.from[1].region;
    const auto &w = work.to[0].region;
    std::vector<int64_t> extents = {w.dims.at(0).first, w.dims.at(1).first,
                                    w.dims.at(2).first, x.dims.at(0).first};
    std::vector<int64_t> group =
        GroupOfRows(Read(memory, work.keys.at("groups"), false), extents[3]);
    Span a(memory, x, {3, 1}, extents), b(memory, g, {3, 2}, extents);
    Scales of_a(work, shape, "scale_a", {3, 1}, extents, memory);
    Scales of_b(work, shape, "scale_b", {3, 2}, extents, memory);
    Epilogue epilogue(work, {0, 1, 2}, {}, extents, memory);

    ForEach({extents[0], extents[1], extents[2]}, [&](const Point &c) {
        Point at = {c[0], c[1], c[2], 0};
        Scalar sum;

        for (; at[3] < extents[3]; at[3]++)
            if (group[static_cast<size_t>(at[3])] == c[0])
                sum = Add(sum, Mul(of_a.Times(a.At(at), at),
                                   of_b.Times(b.At(at), at)));
        epilogue.Store(at, sum);
    });
}

// Loops: those of C, the last of which is n, and k.
void Multiply(const Work &work, const Shape &shape, Memory *memory)
{
    const Seen &a = work.from[0], &b = work.from[1], &c = work.to[0];
    bool ta = work.stmt->Find("ta") != nullptr;
    bool tb = work.stmt->Find("tb") != nullptr;
    std::vector<int64_t> extents = ExtentsOf(c), all = extents;
    size_t nc = extents.size(), na = a.region.dims.size();
    size_t nb = b.region.dims.size(), batch = nb - 2;
    int n = static_cast<int>(nc) - 1, k = static_cast<int>(nc);
    // Paired with A's first dimensions or with its last ones, or crossed with
    // all of them; else parts lead, each of a block of k.
    bool front = work.stmt->front;
    size_t together = front ? na : std::max(na, nb);
    int lead = nc != together && nc != na + batch;
    bool paired = nc == together + static_cast<size_t>(lead);
    Loops of_a =
        paired && !front
            ? FromTheEnd(na - 1, nc - 1)
            : From(lead + (paired ? 0 : static_cast<int>(batch)), na - 1);
    Loops of_b =
        paired && !front ? FromTheEnd(batch, nc - 2) : From(lead, batch);
    Loops of_c = From(0, nc);

    of_a.insert(ta ? of_a.end() - 1 : of_a.end(), k);
    of_b.insert(of_b.end(), {tb ? n : k, tb ? k : n});
    all.push_back(b.region.dims[batch + (tb ? 1 : 0)].first);
    std::vector<std::pair<const Seen *, Loops>> views = {
        {&a, of_a}, {&b, of_b}, {&c, of_c}};
    if (work.keys.count("aux"))
        views.push_back({&work.keys.at("aux"), of_c});
    Counted counts = CountsAmong(views, all, memory);
    Span left(memory, a.region, of_a, all), right(memory, b.region, of_b, all);
    Scales of_left(work, shape, "scale_a", of_a, all, memory);
    Scales of_right(work, shape, "scale_b", of_b, all, memory);
    Epilogue epilogue(work, of_c, of_c, all, memory);
    bool within = counts.ChangesWith(k);
    ForEach(extents, [&](const Point &point) {
        Point at = point;
        Scalar sum;

        int64_t of_k = all.back(), past = of_k;

        at.push_back(0);
        if (lead > 0) {
            int64_t block = (of_k - 1) / extents[0] + 1;

            at.back() = std::min(point[0] * block, of_k);
            past = std::min(at.back() + block, of_k);
        }
        if (!within && counts.Lacks(at))
            return epilogue.Skip(at);
        for (; at.back() < past; at.back()++)
            if (!counts.Lacks(at))
                sum = Add(sum, Mul(of_left.Times(left.At(at), at),
                                   of_right.Times(right.At(at), at)));
        epilogue.Store(at, sum);
    });
}

} // namespace

void Product(const Work &work, const Shape &shape, Memory *memory)
{
    if (!work.stmt->Find("groups"))
        Multiply(work, shape, memory);
    else if (work.stmt->Find("ta"))
        ContractGroups(work, shape, memory);
    else
        MultiplyGroups(work, shape, memory);
}

} // namespace second
