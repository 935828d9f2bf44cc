// Functions of a caller's. Each name is a function of its own: weighted sums of
// all that belongs together, bent, whose weights are drawn from the name, from
// `over` and from where in the results and operands a number is. Nothing else
// has a say, as docs/semantics.md asks of such functions.
#include <algorithm>
#include <functional>
#include <random>

#include "tests/second/compute.h"

namespace second
{

namespace
{

// From -1 to 1, another one for each name, number and place.
Scalar Weight(const std::string &what)
{
    std::minstd_rand random(
        static_cast<unsigned>(std::hash<std::string>()(what)));

    random.discard(3);
    return Exact(static_cast<Real>(random() % 2001) / 1024 - 1);
}

// Where the inner dimensions of a view lie: behind the batch, loops of its own.
struct Piece {
    Span span;
    std::vector<int64_t> inner;
};

class Function
{
  public:
    Function(const Work &work, Memory *memory);
    void Run();

  private:
    Piece Cut(const Seen &seen);
    std::vector<Scalar> Gather(const Piece &piece, const Point &batch) const;

    const Work &work_;
    Memory *memory_;
    size_t over_ = 0;
    std::vector<int64_t> batch_;
    std::vector<Piece> from_, to_;
};

Function::Function(const Work &work, Memory *memory)
    : work_(work), memory_(memory)
{
    if (const Key *over = work.stmt->Find("over"))
        over_ = static_cast<size_t>(over->expr[0].number);
    batch_ = ExtentsOf(work.to[0]);
    batch_.resize(batch_.size() - std::min(over_, batch_.size()));
    for (const Seen &seen : work.from)
        from_.push_back(Cut(seen));
    for (const Seen &seen : work.to)
        to_.push_back(Cut(seen));
    if (work.stmt->Find("keep"))
        from_.insert(from_.end(), to_.begin(), to_.end());
}

Piece Function::Cut(const Seen &seen)
{
    std::vector<int64_t> extents = batch_, own = ExtentsOf(seen);
    // One of fewer dimensions belongs to each element, whole.
    size_t ahead = own.size() - std::min(over_, own.size());
    std::vector<int64_t> inner(own.begin() + static_cast<long>(ahead),
                               own.end());
    Loops loops = FromTheEnd(ahead, batch_.size());

    for (size_t d = 0; d < inner.size(); d++) {
        loops.push_back(static_cast<int>(extents.size()));
        extents.push_back(inner[d]);
    }
    return {Span(memory_, seen.region, loops, extents), inner};
}

std::vector<Scalar> Function::Gather(const Piece &piece,
                                     const Point &batch) const
{
    std::vector<Scalar> values;

    ForEach(piece.inner, [&](const Point &at) {
        Point point = batch;

        point.insert(point.end(), at.begin(), at.end());
        values.push_back(piece.span.At(point));
    });
    return values;
}

void Function::Run()
{
    ForEach(batch_, [&](const Point &batch) {
        std::vector<std::vector<Scalar>> x;

        for (const Piece &piece : from_)
            x.push_back(Gather(piece, batch));
        for (size_t r = 0; r < to_.size(); r++) {
            size_t element = 0;

            ForEach(to_[r].inner, [&](const Point &at) {
                std::string place = work_.stmt->name + std::to_string(over_) +
                                    " " + std::to_string(r) + " " +
                                    std::to_string(element++);
                Scalar sum = Weight(place);
                Point point = batch;

                for (size_t i = 0; i < x.size(); i++)
                    for (size_t j = 0; j < x[i].size(); j++)
                        sum = Add(sum,
                                  Mul(x[i][j],
                                      Weight(place + " " + std::to_string(i) +
                                             " " + std::to_string(j))));
                point.insert(point.end(), at.begin(), at.end());
                sum = Add(Unary("tanh", sum), Mul(sum, Exact(0.25)));
                const std::string &dtype = work_.to[r].dtype;
                if (IsInteger(dtype))
                    sum = Mul(Add(sum, Exact(8)), Exact(3));
                to_[r].span.At(point) = Cast(dtype, sum);
            });
        }
    });
}

} // namespace

void Call(const Work &work, Memory *memory)
{
    Function(work, memory).Run();
}

} // namespace second
