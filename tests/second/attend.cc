// Attention, its gradients, and two of it merged.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/second/compute.h"

namespace second
{

namespace
{

const Real kInfinity = std::numeric_limits<Real>::infinity();

bool IsNone(const Scalar &lse)
{
    return lse.value == -kInfinity;
}

// What rows of one head see, of keys, so far. Where it is nothing, `o` is not
// looked at.
struct Mean {
    std::vector<Scalar> o;
    Scalar lse = Exact(-kInfinity);
};

// Its weight is a, and b's is 1 less that.
Scalar Share(const Scalar &a, const Scalar &b)
{
    return Unary("sigmoid", Sub(a, b));
}

Mean MergeMeans(const Mean &a, const Mean &b)
{
    Mean both = a;

    if (IsNone(a.lse) || IsNone(b.lse)) {
        both = IsNone(a.lse) ? b : a;
        both.lse.lost = a.lse.lost || b.lse.lost;
        return both;
    }
    bool first = a.lse.value > b.lse.value;
    const Scalar &more = first ? a.lse : b.lse, &less = first ? b.lse : a.lse;
    both.lse =
        Add(more, Unary("log", Add(Exact(1), Unary("exp", Sub(less, more)))));
    for (size_t d = 0; d < a.o.size(); d++)
        both.o[d] = Add(Mul(Share(a.lse, b.lse), a.o[d]),
                        Mul(Share(b.lse, a.lse), b.o[d]));
    return both;
}

// The loops of an attention: the batch, and then these.
enum Loop { BLOCK, HEAD, KEY_HEAD, ROW, KEY, WIDTH, VALUE, SEQUENCE, NLOOPS };

// The views of an attention and of its gradients, and who sees what.
class Sight
{
  public:
    Sight(const Work &work, const Shape &shape, Memory *memory);
    Loops Lay(const Seen &seen, std::vector<Loop> inner) const;
    // Spans, and the counts of rows or keys if it has some.
    Span Rows(const Seen &seen, std::vector<Loop> inner);
    Span Keys(const Seen &seen, Loop width);

    bool Sees(const Point &at) const;
    bool LacksRow(const Point &at) const
    {
        return rows_.Lacks(at) ||
               (packed_ && SequenceOf(NumberOfRow(at[Of(ROW)])) < 0);
    }
    Point Start(const Point &batch) const
    {
        Point at = batch;

        at.resize(batch_ + NLOOPS, 0);
        return at;
    }
    size_t Of(Loop loop) const
    {
        return batch_ + loop;
    }
    int64_t Extent(Loop loop) const
    {
        return extents_[Of(loop)];
    }
    // The head of keys that a head of rows has.
    void EnterHead(Point *at, int64_t head) const
    {
        (*at)[Of(HEAD)] = head;
        (*at)[Of(KEY_HEAD)] = head * Extent(KEY_HEAD) / Extent(HEAD);
    }
    // Calls `visit` with each row, of each head of all of the batch.
    template <class F> void EachRow(F visit)
    {
        std::vector<int64_t> batch(
            extents_.begin(), extents_.begin() + static_cast<long>(batch_));

        ForEach(batch, [&](const Point &element) {
            Point at = Start(element);

            Enter(element);
            for (int64_t head = 0; head < Extent(HEAD); head++)
                for (int64_t row = 0; row < Extent(ROW); row++) {
                    EnterHead(&at, head);
                    at[Of(ROW)] = row;
                    visit(at);
                }
        });
    }
    // Calls `visit` with each key that a row sees, of each block.
    template <class F> void EachKey(Point at, F visit) const
    {
        for (int64_t block = 0; block < Extent(BLOCK); block++)
            for (int64_t key = 0; key < Extent(KEY); key++) {
                at[Of(BLOCK)] = block;
                at[Of(KEY)] = key;
                if (Sees(at))
                    visit(at);
            }
    }
    Scalar scale;

  private:
    // Sets what one element of the batch is seen by.
    void Enter(const Point &batch);
    bool Leaves(int64_t row, int64_t key, int64_t block) const;
    // Where an index of a block in zigzag stands in the sequence.
    int64_t Place(int64_t index, int64_t block) const
    {
        int64_t half = Extent(KEY) / 2, from_end = 2 * Extent(BLOCK) - 1;
        int64_t chunk = index < half ? block : from_end - block;

        return chunk * half + index % half;
    }
    // Which of the rows of all sequences a row is, and a key.
    int64_t NumberOfRow(int64_t row) const
    {
        return zigzag_ ? Place(row, offset_) : first_row_ + row;
    }
    int64_t NumberOfKey(int64_t key, int64_t block) const
    {
        return zigzag_ ? Place(key, block)
                       : first_key_ + block * Extent(KEY) + key;
    }
    // -1 of none.
    int64_t SequenceOf(int64_t number) const
    {
        return number < static_cast<int64_t>(sequence_.size())
                   ? sequence_[static_cast<size_t>(number)]
                   : -1;
    }

    const Work &work_;
    const Shape &shape_;
    Memory *memory_;
    size_t batch_;
    std::vector<int64_t> extents_;
    Counted rows_, keys_;
    bool blocks_, causal_, zigzag_, packed_, both_;
    // Of the element of the batch that is entered.
    int64_t offset_ = 0, step_ = 0, window_ = 0, own_ = 0;
    int64_t first_row_ = 0, first_key_ = 0;
    std::vector<int64_t> sequence_; // by number among the rows of all
};

Sight::Sight(const Work &work, const Shape &shape, Memory *memory)
    : work_(work), shape_(shape), memory_(memory)
{
    const Stmt &stmt = *work.stmt;
    // The result has all of the batch.
    std::vector<int64_t> q = ExtentsOf(work.from[0]),
                         k = ExtentsOf(work.from[1]);
    std::vector<int64_t> v = ExtentsOf(work.from[2]);
    std::vector<int64_t> result = ExtentsOf(work.to[0]);

    blocks_ = stmt.Find("blocks") != nullptr;
    causal_ = stmt.Find("causal") != nullptr;
    zigzag_ = stmt.Find("zigzag") != nullptr;
    packed_ = stmt.Find("groups") != nullptr;
    both_ = stmt.Find("window") != nullptr && !causal_ && !zigzag_;
    batch_ = result.size() - 3;
    extents_ = result;
    extents_.resize(batch_);
    extents_.resize(batch_ + NLOOPS, 1);
    if (blocks_)
        extents_[Of(BLOCK)] = k.at(k.size() - 4);
    extents_[Of(HEAD)] = q[q.size() - 3];
    extents_[Of(KEY_HEAD)] = k[k.size() - 3];
    extents_[Of(ROW)] = q[q.size() - 2];
    extents_[Of(KEY)] = k[k.size() - 2];
    extents_[Of(WIDTH)] = q[q.size() - 1];
    extents_[Of(VALUE)] = v[v.size() - 1];
    if (packed_)
        extents_[Of(SEQUENCE)] =
            work.keys.at("groups").region.dims.back().first;
    scale = stmt.Find("scale")
                ? Factor(work, "scale", memory)
                : Div(Exact(1),
                      Unary("sqrt", Exact(static_cast<Real>(Extent(WIDTH)))));
}

Loops Sight::Lay(const Seen &seen, std::vector<Loop> inner) const
{
    Loops loops = FromTheEnd(seen.region.dims.size() - inner.size(), batch_);

    for (Loop loop : inner)
        loops.push_back(static_cast<int>(Of(loop)));
    return loops;
}

Span Sight::Rows(const Seen &seen, std::vector<Loop> inner)
{
    Loops loops = Lay(seen, inner);

    if (!rows_.Any())
        rows_ = Counted(memory_, seen, loops, extents_);
    return Span(memory_, seen.region, loops, extents_);
}

Span Sight::Keys(const Seen &seen, Loop width)
{
    std::vector<Loop> inner = {KEY_HEAD, KEY, width};

    if (blocks_)
        inner.insert(inner.begin(), BLOCK);
    Loops loops = Lay(seen, inner);
    if (!keys_.Any())
        keys_ = Counted(memory_, seen, loops, extents_);
    return Span(memory_, seen.region, loops, extents_);
}

void Sight::Enter(const Point &batch)
{
    Point at = Start(batch);
    int64_t row = 0;

    auto key = [&](const char *name, int64_t otherwise) {
        return KeyOr(work_, shape_, name, otherwise, batch);
    };

    offset_ = key(zigzag_ ? "zigzag" : "causal", 0);
    step_ = key("step", -Extent(KEY));
    window_ = key("window", std::numeric_limits<int32_t>::max());
    own_ = 0;
    for (const auto &axis : work_.coordinates) {
        size_t d = static_cast<size_t>(axis.second);

        if (d < batch_ && extents_[d] == Extent(BLOCK) &&
            Extent(ROW) == Extent(KEY))
            own_ = batch[d];
    }
    if (!packed_)
        return;
    const Seen &counts = work_.keys.at("groups");
    Loops loops = From(0, counts.region.dims.size() - 1);
    loops.push_back(static_cast<int>(Of(SEQUENCE)));
    Span n(memory_, counts.region, loops, extents_);
    int64_t room = key("room", Extent(BLOCK) * Extent(KEY));
    first_row_ = key("row", own_ * Extent(KEY));
    first_key_ = key("key", 0);
    sequence_.assign(static_cast<size_t>(room), -1);
    for (int64_t s = 0; s < Extent(SEQUENCE); s++) {
        at[Of(SEQUENCE)] = s;
        int64_t left = std::max<int64_t>(WholeNumber(n.At(at)), 0);
        for (int64_t i = 0; i < left && row < room; i++, row++)
            sequence_[static_cast<size_t>(row)] = s;
    }
}

// What the mask leaves, by numbers of row and key.
bool Sight::Leaves(int64_t row, int64_t key, int64_t block) const
{
    int64_t half = Extent(KEY) / 2, ahead = offset_ - block;
    int64_t last = row + offset_ + block * step_;
    int64_t apart = (block - own_) * Extent(KEY) + key - row;

    if (both_)
        return apart < window_ && -apart < window_;
    if (zigzag_ && window_ < std::numeric_limits<int32_t>::max()) {
        int64_t behind = Place(row, offset_) - Place(key, block);

        return behind >= 0 && behind < window_;
    }
    if (zigzag_)
        return ahead > 0   ? key < half
               : ahead < 0 ? row >= Extent(ROW) / 2
                           : key <= row;
    return !causal_ || (key <= last && key > last - window_);
}

bool Sight::Sees(const Point &at) const
{
    int64_t row = at[Of(ROW)], key = at[Of(KEY)];

    if (rows_.Lacks(at) || keys_.Lacks(at))
        return false;
    if (packed_) {
        int64_t own = SequenceOf(NumberOfRow(row));

        if (own < 0 || own != SequenceOf(NumberOfKey(key, at[Of(BLOCK)])))
            return false;
    }
    return Leaves(row, key, at[Of(BLOCK)]);
}

// q k^T times the scale.
Scalar Score(const Sight &sight, const Span &q, const Span &k, Point at)
{
    size_t width = sight.Of(WIDTH);
    Scalar sum;

    for (at[width] = 0; at[width] < sight.Extent(WIDTH); at[width]++)
        sum = Add(sum, Mul(q.At(at), k.At(at)));
    return Mul(sight.scale, sum);
}

Mean AttendRow(const Sight &sight, const Span &q, const Span &k, const Span &v,
               const Point &at)
{
    std::vector<std::pair<Scalar, Point>> seen;
    Mean mean;
    Scalar sum, largest = Exact(-kInfinity);
    size_t width = sight.Of(VALUE);

    mean.o.resize(static_cast<size_t>(sight.Extent(VALUE)));
    sight.EachKey(at, [&](const Point &key) {
        seen.push_back({Score(sight, q, k, key), key});
        if (!(seen.back().first.value <= largest.value))
            largest = Exact(seen.back().first.value);
    });
    if (seen.empty())
        return mean;
    for (auto &key : seen) {
        Scalar weight = Unary("exp", Sub(key.first, largest));

        sum = Add(sum, weight);
        for (size_t d = 0; d < mean.o.size(); d++) {
            key.second[width] = static_cast<int64_t>(d);
            mean.o[d] = Add(mean.o[d], Mul(weight, v.At(key.second)));
        }
    }
    for (Scalar &o : mean.o)
        o = Div(o, sum);
    mean.lse = Add(largest, Unary("log", sum));
    return mean;
}

Mean ReadMean(const Span &o, const Span &lse, Point at, size_t width, int64_t n)
{
    Mean mean;

    mean.lse = lse.At(at);
    for (at[width] = 0; at[width] < n; at[width]++)
        mean.o.push_back(IsNone(mean.lse) ? Exact(0) : o.At(at));
    return mean;
}

void WriteMean(const Mean &mean, const Span &o, const Span &lse, Point at,
               size_t width)
{
    lse.At(at) = mean.lse;
    for (size_t d = 0; d < mean.o.size(); d++) {
        at[width] = static_cast<int64_t>(d);
        o.At(at) = mean.o[d];
    }
}

} // namespace

void Attend(const Work &work, const Shape &shape, Memory *memory)
{
    Sight sight(work, shape, memory);
    Span q = sight.Rows(work.from[0], {HEAD, ROW, WIDTH});
    Span k = sight.Keys(work.from[1], WIDTH);
    Span v = sight.Keys(work.from[2], VALUE);
    Span o = sight.Rows(work.to[0], {HEAD, ROW, VALUE});
    Span lse = sight.Rows(work.to[1], {HEAD, ROW});
    bool more = work.stmt->Find("accumulate") != nullptr;

    sight.EachRow([&](const Point &at) {
        if (more && sight.LacksRow(at))
            return;
        Mean mean = AttendRow(sight, q, k, v, at);
        if (more)
            mean = MergeMeans(
                ReadMean(o, lse, at, sight.Of(VALUE), sight.Extent(VALUE)),
                mean);
        WriteMean(mean, o, lse, at, sight.Of(VALUE));
    });
}

void Merge(const Work &work, Memory *memory)
{
    std::vector<int64_t> extents = ExtentsOf(work.to[0]), rows = extents;
    size_t n = extents.size(), width = n - 1;
    std::vector<Span> spans;

    rows.pop_back();
    for (size_t i = 0; i < 6; i++) {
        const Region &region = (i < 2 ? work.to[i] : work.from[i - 2]).region;
        // Of means the last dimension is one more.
        size_t inner = i % 2 == 0 ? n : width;
        spans.emplace_back(
            memory, region,
            From(static_cast<int>(inner) - static_cast<int>(region.dims.size()),
                 region.dims.size()),
            extents);
    }
    ForEach(rows, [&](const Point &row) {
        Point at = row;

        at.push_back(0);
        Mean first = ReadMean(spans[2], spans[3], at, width, extents[width]);
        Mean second = ReadMean(spans[4], spans[5], at, width, extents[width]);
        WriteMean(MergeMeans(first, second), spans[0], spans[1], at, width);
    });
}

// Row by row, what each key that it sees adds.
void AttendGrad(const Work &work, const Shape &shape, Memory *memory)
{
    Sight sight(work, shape, memory);
    Span q = sight.Rows(work.from[0], {HEAD, ROW, WIDTH});
    Span k = sight.Keys(work.from[1], WIDTH);
    Span v = sight.Keys(work.from[2], VALUE);
    Span o = sight.Rows(work.from[3], {HEAD, ROW, VALUE});
    Span lse = sight.Rows(work.from[4], {HEAD, ROW});
    Span d_o = sight.Rows(work.from[5], {HEAD, ROW, VALUE});
    Span dq = sight.Rows(work.to[0], {HEAD, ROW, WIDTH});
    Span dk = sight.Keys(work.to[1], WIDTH), dv = sight.Keys(work.to[2], VALUE);
    size_t width = sight.Of(WIDTH), value = sight.Of(VALUE);

    if (!work.stmt->Find("accumulate"))
        for (const Seen &to : work.to) {
            int64_t n = to.region.Elements();

            Write(memory, to, std::vector<Scalar>(static_cast<size_t>(n)));
        }
    auto add_key = [&](const Scalar &delta, Point at) {
        Scalar p = Unary("exp", Sub(Score(sight, q, k, at), lse.At(at))), dp;

        for (at[value] = 0; at[value] < sight.Extent(VALUE); at[value]++) {
            dp = Add(dp, Mul(d_o.At(at), v.At(at)));
            dv.At(at) = Add(dv.At(at), Mul(p, d_o.At(at)));
        }
        Scalar ds = Mul(sight.scale, Mul(p, Sub(dp, delta)));
        for (at[width] = 0; at[width] < sight.Extent(WIDTH); at[width]++) {
            dq.At(at) = Add(dq.At(at), Mul(ds, k.At(at)));
            dk.At(at) = Add(dk.At(at), Mul(ds, q.At(at)));
        }
    };
    auto add_row = [&](Point at) {
        Scalar delta;
        bool any = false;

        sight.EachKey(at, [&](const Point &) { any = true; });
        if (!any || IsNone(lse.At(at)))
            return;
        for (at[value] = 0; at[value] < sight.Extent(VALUE); at[value]++)
            delta = Add(delta, Mul(d_o.At(at), o.At(at)));
        sight.EachKey(at, [&](const Point &key) { add_key(delta, key); });
    };
    sight.EachRow(add_row);
}

} // namespace second
