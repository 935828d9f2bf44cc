#include "tests/second/span.h"

#include <algorithm>
#include <cmath>

namespace second
{

Span::Span(Memory *memory, const Region &region, const Loops &loops,
           const std::vector<int64_t> &extents)
    : elements_(&memory->at(region.root)), offset_(region.offset),
      stride_(extents.size(), 0)
{
    if (loops.size() != region.dims.size())
        throw Unreadable("a view of other dimensions than its operation");
    for (size_t d = 0; d < loops.size(); d++) {
        int64_t extent = region.dims[d].first;

        if (loops[d] < 0 || loops[d] >= static_cast<int>(extents.size()))
            throw Unreadable("a view of more dimensions than its operation");
        size_t loop = static_cast<size_t>(loops[d]);
        if (extent != extents[loop] && extent != 1)
            throw Unreadable("dimensions that do not fit each other");
        if (extent == extents[loop])
            stride_[loop] += region.dims[d].second;
    }
}

Counted::Counted(Memory *memory, const Seen &seen, const Loops &loops,
                 const std::vector<int64_t> &extents)
{
    if (seen.counted < 0)
        return;
    ahead_.assign(loops.begin(),
                  loops.begin() +
                      static_cast<long>(seen.counts[0].dims.size()));
    loop_ = loops[static_cast<size_t>(seen.counted)];
    first_ = seen.first;
    all_ = seen.all;
    counts_.emplace_back(memory, seen.counts[0], ahead_, extents);
}

int64_t Counted::Count(const Point &point) const
{
    int64_t n = WholeNumber(counts_[0].At(point));

    return std::min(std::max<int64_t>(n, 0), all_) - first_;
}

Loops From(int first, size_t ndims)
{
    Loops loops;

    for (size_t d = 0; d < ndims; d++)
        loops.push_back(first + static_cast<int>(d));
    return loops;
}

Loops FromTheEnd(size_t ndims, size_t nloops)
{
    return From(static_cast<int>(nloops) - static_cast<int>(ndims), ndims);
}

std::vector<int64_t> ExtentsOf(const Seen &seen)
{
    std::vector<int64_t> extents;

    for (const auto &dim : seen.region.dims)
        extents.push_back(dim.first);
    return extents;
}

std::vector<Scalar> Read(Memory *memory, const Seen &seen, bool counted)
{
    std::vector<int64_t> extents = ExtentsOf(seen);
    Loops loops = From(0, extents.size());
    Span span(memory, seen.region, loops, extents);
    Counted counts;
    std::vector<Scalar> values;

    if (counted)
        counts = Counted(memory, seen, loops, extents);
    ForEach(extents, [&](const Point &at) {
        values.push_back(span.At(at));
        if (counts.Lacks(at))
            values.back().lost = true;
    });
    return values;
}

void Write(Memory *memory, const Seen &seen, const std::vector<Scalar> &values)
{
    std::vector<int64_t> extents = ExtentsOf(seen);
    Span span(memory, seen.region, From(0, extents.size()), extents);
    size_t i = 0;

    ForEach(extents, [&](const Point &at) {
        if (i >= values.size())
            throw Unreadable("a transfer of other elements than its result's");
        span.At(at) = values[i++];
    });
    if (i != values.size())
        throw Unreadable("a transfer of other elements than its result's");
}

int64_t WholeNumber(const Scalar &n)
{
    if (n.lost)
        throw Broken(UNWRITTEN, "an index or a count that nobody has written");
    if (n.bound > 0 || !std::isfinite(n.value))
        throw Undecided("an index or a count of no certain value");
    return static_cast<int64_t>(std::nearbyint(n.value));
}

} // namespace second
