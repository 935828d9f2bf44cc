// Views of memory, laid along what an operation iterates over: how far each
// step of each loop goes in each view, and up to where counts let it go.
#ifndef HD_TESTS_SECOND_SPAN_H
#define HD_TESTS_SECOND_SPAN_H

#include <algorithm>

#include "tests/second/number.h"
#include "tests/second/unroll.h"

namespace second
{

// The elements of each buffer that owns its bytes, by declaration.
using Memory = std::map<int, std::vector<Scalar>>;

using Point = std::vector<int64_t>; // an index of each loop

// Calls `visit` with every point below these extents, the last one fastest.
template <class F> void ForEach(const std::vector<int64_t> &extents, F visit)
{
    Point at(extents.size(), 0);

    for (int64_t extent : extents)
        if (extent <= 0)
            return;
    for (;;) {
        size_t d = extents.size();

        visit(static_cast<const Point &>(at));
        while (d > 0 && ++at[d - 1] == extents[d - 1])
            at[--d] = 0;
        if (d == 0)
            return;
    }
}

// Which loop each dimension of a view goes with.
using Loops = std::vector<int>;

class Span
{
  public:
    Span(Memory *memory, const Region &region, const Loops &loops,
         const std::vector<int64_t> &extents);
    Scalar &At(const Point &point) const
    {
        int64_t at = offset_;

        for (size_t d = 0; d < stride_.size(); d++)
            at += point[d] * stride_[d];
        return (*elements_)[static_cast<size_t>(at)];
    }

  private:
    std::vector<Scalar> *elements_; // borrowed
    int64_t offset_;
    std::vector<int64_t> stride_; // of each loop
};

// How many indices of one loop data says that there are.
class Counted
{
  public:
    Counted() = default; // all of them
    Counted(Memory *memory, const Seen &seen, const Loops &loops,
            const std::vector<int64_t> &extents);
    bool Any() const
    {
        return loop_ >= 0;
    }
    // Whether the point is behind the indices that are counted.
    bool Lacks(const Point &point) const
    {
        return loop_ >= 0 && point[static_cast<size_t>(loop_)] >= Count(point);
    }
    // Whether what is behind them is another thing at each step of the loop.
    bool ChangesWith(int loop) const
    {
        return loop_ == loop ||
               std::find(ahead_.begin(), ahead_.end(), loop) != ahead_.end();
    }

  private:
    int64_t Count(const Point &point) const;

    int loop_ = -1;
    Loops ahead_; // those of the counts
    int64_t first_ = 0, all_ = 0;
    std::vector<Span> counts_; // one, or none
};

// Loops of dimensions that end where the loops do: the last one with the last.
Loops FromTheEnd(size_t ndims, size_t nloops);
// The loops from `first` on.
Loops From(int first, size_t ndims);

std::vector<int64_t> ExtentsOf(const Seen &seen);
// All elements of a view in row-major order; those behind its counts are lost,
// if it goes by them.
std::vector<Scalar> Read(Memory *memory, const Seen &seen, bool counted);
void Write(Memory *memory, const Seen &seen, const std::vector<Scalar> &values);

// Of an index or a count.
int64_t WholeNumber(const Scalar &n);

} // namespace second

#endif
