#include "tests/second/compute.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

namespace second
{

namespace
{

bool Compares(const std::string &op)
{
    return op == "lt" || op == "le" || op == "gt" || op == "ge" || op == "eq" ||
           op == "ne";
}

// Of truths: what is not 0 is true.
Scalar Decide(const std::string &op, const std::vector<Scalar> &x)
{
    bool a = x[0].value != 0, b = x.back().value != 0;
    Scalar n = Exact(op == "and"   ? a && b
                     : op == "or"  ? a || b
                     : op == "xor" ? a != b
                                   : !a);

    n.bound = x[0].bound > 0 || x.back().bound > 0 ? 1 : 0;
    n.lost = x[0].lost || x.back().lost;
    return n;
}

Scalar MapElement(const Work &work, const std::vector<Scalar> &x,
                  const Scalar &factor)
{
    const std::string &op = work.op, &dtype = work.to[0].dtype;

    if (op == "set" || op == "copy")
        return Convert(work.from[0].dtype, dtype, x[0]);
    if (op == "fill" && std::isfinite(factor.value) &&
        std::isinf(Nearest(dtype, factor.value).value))
        return Nearest(dtype, factor.value);
    if (op == "fill")
        return Cast(dtype, factor);
    if (op == "scale")
        return Scale(dtype, x[0], factor);
    if (op == "select") {
        Scalar picked = x[0].value != 0 ? x[1] : x[2];

        picked.lost |= x[0].lost;
        if (x[0].bound > 0 && x[1].value != x[2].value)
            picked.bound = Unknown().bound;
        return picked;
    }
    if (Compares(op))
        return Compare(op, x[0], x[1]);
    if (op == "and" || op == "or" || op == "xor" || op == "not")
        return Decide(op, x);
    if (op == "pow")
        return Power(x[0], x[1]);
    if (op == "relu_grad" || op == "gelu_grad" || op == "gelu_erf_grad" ||
        op == "silu_grad")
        return Gradient(op, x[0], x[1]);
    if (op == "sum" || op == "max" || op == "min" || x.size() == 2) {
        Scalar sum = x[0];

        for (size_t i = 1; i < x.size(); i++)
            sum = Combine(op, dtype, sum, x[i]);
        return sum;
    }
    return Change(op, dtype, x[0]);
}

// The operands, of which `views` are none, with those that are numbers.
std::vector<Scalar> Numbers(const Work &work, size_t views)
{
    std::vector<Scalar> x(views + work.numbers.size());
    const Seen &like = Compares(work.op) ? work.from[0] : work.to[0];

    for (const auto &number : work.numbers)
        x.at(number.first) = Nearest(like.dtype, number.second);
    return x;
}

// Which operands the views are.
std::vector<size_t> Others(const Work &work, size_t views)
{
    std::vector<size_t> places;

    for (size_t i = 0; i < views + work.numbers.size(); i++)
        if (!work.numbers.count(i))
            places.push_back(i);
    return places;
}

void Map(const Work &work, Memory *memory)
{
    const Seen &to = work.to[0];
    std::vector<int64_t> extents = ExtentsOf(to);
    std::vector<Span> operands;
    // Where both sides of a copy have counts, the result's are read.
    std::vector<std::pair<const Seen *, Loops>> views = {
        {&to, From(0, extents.size())}};
    Scalar factor;

    for (const char *key : {"by", "value"})
        if (work.stmt->Find(key))
            factor = Factor(work, key, memory);
    for (const Seen &from : work.from) {
        Loops loops = FromTheEnd(from.region.dims.size(), extents.size());

        views.push_back({&from, loops});
        operands.emplace_back(memory, from.region, loops, extents);
    }
    Counted counts = CountsAmong(views, extents, memory);
    Span result(memory, to.region, views[0].second, extents);
    std::vector<Scalar> x = Numbers(work, operands.size());
    std::vector<size_t> places = Others(work, operands.size());
    ForEach(extents, [&](const Point &at) {
        if (counts.Lacks(at)) {
            result.At(at) = Exact(0);
            return;
        }
        for (size_t i = 0; i < places.size(); i++)
            x[places[i]] = operands[i].At(at);
        result.At(at) = MapElement(work, x, factor);
    });
}

void Fold(const Work &work, const Shape &shape, Memory *memory)
{
    const Seen &from = work.from[0], &to = work.to[0];
    std::vector<int64_t> extents = ExtentsOf(from), outer = extents;
    size_t d = static_cast<size_t>(KeyOr(work, shape, "dim", 0));
    Loops all = From(0, extents.size()), kept = all;

    if (d >= extents.size())
        throw Unreadable("a dimension that there is not");
    if (to.region.dims.size() < all.size())
        kept.erase(kept.begin() + static_cast<long>(d));
    outer[d] = 1;
    Counted counts = CountsAmong({{&from, all}, {&to, kept}}, extents, memory);
    Span operand(memory, from.region, all, extents);
    Span result(memory, to.region, kept,
                to.region.dims.size() < all.size() ? extents : outer);
    bool within = counts.ChangesWith(static_cast<int>(d));
    ForEach(outer, [&](const Point &at) {
        Point inner = at;
        Scalar sum = None(work.op, to.dtype);

        if (!within && counts.Lacks(at)) {
            result.At(at) = Exact(0);
            return;
        }
        for (int64_t n = 0; inner[d] < extents[d]; inner[d]++) {
            if (counts.Lacks(inner))
                continue;
            const Scalar &x = operand.At(inner);
            sum = n++ == 0 ? x : Combine(work.op, to.dtype, sum, x);
        }
        result.At(at) = sum;
    });
}

// Which loop each dimension of the operand is of.
Loops Turned(const Work &work, const Shape &shape, size_t ndims)
{
    const Key *order = work.stmt->Find("order");
    int64_t n = static_cast<int64_t>(ndims);
    Loops loops = From(0, ndims);

    if (order == nullptr) {
        std::swap(
            loops.at(static_cast<size_t>(KeyOr(work, shape, "dim0", n - 2))),
            loops.at(static_cast<size_t>(KeyOr(work, shape, "dim1", n - 1))));
        return loops;
    }
    for (size_t i = 0; i < order->expr.size(); i++)
        loops.at(static_cast<size_t>(
            Evaluate(order->expr[i], shape, work.scope))) = static_cast<int>(i);
    return loops;
}

void Transpose(const Work &work, const Shape &shape, Memory *memory)
{
    const Seen &from = work.from[0], &to = work.to[0];
    std::vector<int64_t> extents = ExtentsOf(to);
    Loops loops = From(0, extents.size());
    Loops swapped = Turned(work, shape, extents.size());
    Counted counts =
        CountsAmong({{&to, loops}, {&from, swapped}}, extents, memory);
    Span operand(memory, from.region, swapped, extents);
    Span result(memory, to.region, loops, extents);
    ForEach(extents, [&](const Point &at) {
        result.At(at) = counts.Lacks(at) ? Exact(0) : operand.At(at);
    });
}

// Loops are the result's dimensions, and the one that is taken from.
void Take(const Work &work, const Shape &shape, Memory *memory)
{
    const Seen &x = work.from[0], &i = work.from[1], &to = work.to[0];
    std::vector<int64_t> extents = ExtentsOf(to), outer = extents;
    size_t d = static_cast<size_t>(KeyOr(work, shape, "dim", 0));
    size_t indices = i.region.dims.size(), n = extents.size();
    int64_t rows = x.region.dims.at(d).first;
    int64_t start = KeyOr(work, shape, "start", 0);
    Loops of_x = From(0, d);

    of_x.push_back(static_cast<int>(n));
    for (size_t k = d + 1; k < x.region.dims.size(); k++)
        of_x.push_back(static_cast<int>(indices + k - d - 1));
    extents.push_back(rows);
    Counted counts =
        CountsAmong({{&x, of_x}, {&i, From(0, indices)}, {&to, From(0, n)}},
                    extents, memory);
    Span taken(memory, x.region, of_x, extents);
    Span index(memory, i.region, From(0, indices), extents);
    Span result(memory, to.region, From(0, n), extents);
    ForEach(outer, [&](const Point &point) {
        Point at = point;

        at.push_back(0);
        if (counts.Lacks(at)) {
            result.At(at) = Exact(0);
            return;
        }
        const Scalar which = index.At(at);
        Scalar y = Exact(0);
        at.back() = static_cast<int64_t>(which.value) - start;
        if (at.back() >= 0 && at.back() < rows)
            y = taken.At(at);
        y.bound = which.bound > 0 ? Unknown().bound : y.bound;
        y.lost |= which.lost;
        result.At(at) = y;
    });
}

void Iota(const Work &work, const Shape &shape, Memory *memory)
{
    const Seen &to = work.to[0];
    std::vector<int64_t> extents = ExtentsOf(to);
    size_t d = static_cast<size_t>(KeyOr(work, shape, "dim", 0));
    int64_t start = KeyOr(work, shape, "start", 0);
    Span result(memory, to.region, From(0, extents.size()), extents);

    ForEach(extents, [&](const Point &at) {
        result.At(at) = Exact(static_cast<Real>(start + at[d]));
    });
}

void Reshape(const Work &work, Memory *memory)
{
    Write(memory, work.to[0], Read(memory, work.from[0], false));
}

// The batch is what stands in front of `inner` dimensions.
std::vector<int64_t> Batch(const Seen &seen, size_t inner)
{
    std::vector<int64_t> extents = ExtentsOf(seen);

    extents.resize(extents.size() - inner);
    return extents;
}

// A view of the elements of one element of the batch.
Seen Within(const Seen &seen, const Point &batch)
{
    Seen inner = seen;
    auto &dims = inner.region.dims;

    for (size_t d = 0; d < batch.size(); d++)
        inner.region.offset += batch[d] * dims[d].second;
    dims.erase(dims.begin(), dims.begin() + static_cast<long>(batch.size()));
    return inner;
}

// NaNs are greater than all numbers; of equals the first comes first.
bool ComesBefore(const Scalar &a, const Scalar &b)
{
    if (std::isnan(a.value) || std::isnan(b.value))
        return std::isnan(a.value) && !std::isnan(b.value);
    return a.value > b.value;
}

void TopK(const Work &work, Memory *memory)
{
    ForEach(Batch(work.from[0], 1), [&](const Point &batch) {
        std::vector<Scalar> x =
            Read(memory, Within(work.from[0], batch), false);
        std::vector<size_t> order(x.size());
        Seen values = Within(work.to[0], batch);
        size_t k = static_cast<size_t>(values.region.dims[0].first);
        std::vector<Scalar> greatest, which;
        double bound = 0;
        bool lost = false;

        for (size_t i = 0; i < x.size(); i++) {
            order[i] = i;
            bound = std::max(bound, x[i].bound);
            lost |= x[i].lost;
        }
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            return ComesBefore(x[a], x[b]);
        });
        for (size_t i = 0; i < k; i++) {
            greatest.push_back(x.at(order[i]));
            which.push_back(Exact(static_cast<Real>(order[i])));
            for (size_t other : {i - 1, i + 1})
                if (bound > 0 && other < x.size() &&
                    !(std::fabs(x[order[i]].value - x[order[other]].value) >
                      2 * static_cast<Real>(bound)))
                    which.back().bound = Unknown().bound;
            greatest.back().bound = bound;
            greatest.back().lost = which.back().lost = lost;
        }
        Write(memory, values, greatest);
        Write(memory, Within(work.to[1], batch), which);
    });
}

void Route(const Work &work, Memory *memory)
{
    ForEach(Batch(work.from[0], 2), [&](const Point &batch) {
        Seen wanted = Within(work.from[0], batch);
        Seen token = Within(work.to[0], batch);
        std::vector<Scalar> expert = Read(memory, wanted, false);
        size_t k = static_cast<size_t>(wanted.region.dims[1].first);
        int64_t experts = token.region.dims[0].first;
        int64_t places = token.region.dims[1].first;
        std::vector<Scalar> tokens(static_cast<size_t>(experts * places),
                                   Exact(-1));
        std::vector<Scalar> slots(expert.size(), Exact(-1));
        std::vector<int64_t> n(static_cast<size_t>(experts), 0);
        Scalar doubt; // of all of it

        for (size_t i = 0; i < expert.size(); i++) {
            doubt.bound += expert[i].bound > 0 ? Unknown().bound : 0;
            doubt.lost |= expert[i].lost;
            int64_t e = static_cast<int64_t>(expert[i].value);
            if (e < 0 || e >= experts || n[static_cast<size_t>(e)] >= places)
                continue;
            int64_t place = e * places + n[static_cast<size_t>(e)]++;
            tokens[static_cast<size_t>(place)] =
                Exact(static_cast<Real>(i / k));
            slots[i] = Exact(static_cast<Real>(place));
        }
        std::vector<Scalar> counts;
        for (int64_t got : n)
            counts.push_back(Exact(static_cast<Real>(got)));
        for (std::vector<Scalar> *all : {&tokens, &slots, &counts})
            for (Scalar &each : *all) {
                each.bound = doubt.bound;
                each.lost = doubt.lost;
            }
        Write(memory, token, tokens);
        Write(memory, Within(work.to[1], batch), slots);
        Write(memory, Within(work.to[2], batch), counts);
    });
}

// The keys of each operation that computes. One that lacks a row here is not
// known.
const std::map<std::string, std::set<std::string>> kOps = {
    {"set", {}},
    {"copy", {}},
    {"reshape", {}},
    {"sum", {"dim"}},
    {"max", {"dim"}},
    {"min", {"dim"}},
    {"add", {}},
    {"sub", {}},
    {"mul", {}},
    {"div", {}},
    {"lt", {}},
    {"le", {}},
    {"gt", {}},
    {"ge", {}},
    {"eq", {}},
    {"ne", {}},
    {"and", {}},
    {"or", {}},
    {"xor", {}},
    {"not", {}},
    {"sin", {}},
    {"cos", {}},
    {"floor", {}},
    {"pow", {}},
    {"gelu_erf", {}},
    {"gelu_erf_grad", {}},
    {"select", {}},
    {"fill", {"value"}},
    {"scale", {"by"}},
    {"neg", {}},
    {"abs", {}},
    {"exp", {}},
    {"log", {}},
    {"sqrt", {}},
    {"rsqrt", {}},
    {"tanh", {}},
    {"sigmoid", {}},
    {"relu", {}},
    {"gelu", {}},
    {"silu", {}},
    {"relu_grad", {}},
    {"gelu_grad", {}},
    {"silu_grad", {}},
    {"transpose", {"dim0", "dim1"}},
    {"permute", {"order"}},
    {"take", {"dim", "start"}},
    {"iota", {"dim", "start"}},
    {"matmul",
     {"ta", "tb", "scale", "scale_a", "scale_b", "grain", "bias", "act", "aux",
      "accumulate", "groups", "keep"}},
    {"route", {}},
    {"top_k", {}},
    {"attention",
     {"scale", "accumulate", "groups", "row", "key", "room", "blocks", "causal",
      "step", "window", "zigzag"}},
    {"merge", {}},
    {"attention_grad",
     {"scale", "accumulate", "groups", "row", "key", "room", "blocks", "causal",
      "step", "window", "zigzag"}},
    {"call", {"keep", "over"}},
};

} // namespace

bool Computes(const std::string &op)
{
    return kOps.count(op) > 0;
}

bool TakesKey(const std::string &op, const std::string &key)
{
    return kOps.at(op).count(key) > 0;
}

int64_t KeyOr(const Work &work, const Shape &shape, const char *key,
              int64_t otherwise, const Point &batch)
{
    const Key *found = work.stmt->Find(key);
    Scope scope = work.scope;

    if (found == nullptr)
        return otherwise;
    for (const auto &axis : work.coordinates) {
        size_t d = static_cast<size_t>(axis.second);

        if (d < batch.size()) // else it is of heads
            scope.push_back({axis.first, batch[d]});
    }
    return Evaluate(found->expr[0], shape, scope);
}

Counted CountsAmong(const std::vector<std::pair<const Seen *, Loops>> &views,
                    const std::vector<int64_t> &extents, Memory *memory)
{
    for (const auto &view : views)
        if (view.first->counted >= 0)
            return Counted(memory, *view.first, view.second, extents);
    return Counted();
}

Scalar Factor(const Work &work, const std::string &key, Memory *memory)
{
    if (work.keys.count(key))
        return Read(memory, work.keys.at(key), false).at(0);
    return Exact(work.reals.at(key));
}

void Compute(const Work &work, const Shape &shape, Memory *memory)
{
    const std::string &op = work.op;

    if (!Computes(op))
        throw Unreadable("what " + op + " computes");
    for (const Key &key : work.stmt->keys)
        if (!TakesKey(op, key.name))
            throw Unreadable(op + " with " + key.name);
    if (op == "matmul")
        Product(work, shape, memory);
    else if (op == "attention")
        Attend(work, shape, memory);
    else if (op == "attention_grad")
        AttendGrad(work, shape, memory);
    else if (op == "merge")
        Merge(work, memory);
    else if (op == "call")
        Call(work, memory);
    else if (op == "route")
        Route(work, memory);
    else if (op == "top_k")
        TopK(work, memory);
    else if (op == "take")
        Take(work, shape, memory);
    else if (op == "iota")
        Iota(work, shape, memory);
    else if (op == "transpose" || op == "permute")
        Transpose(work, shape, memory);
    else if (op == "reshape")
        Reshape(work, memory);
    else if (work.stmt->Find("dim"))
        Fold(work, shape, memory);
    else
        Map(work, memory);
}

} // namespace second
