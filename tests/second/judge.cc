#include "tests/second/judge.h"

#include <algorithm>
#include <limits>

#include "tests/second/compute.h"

namespace second
{

namespace
{

// What the elements of an argument may be: numbers, counts of a dimension or of
// rows, or indices from one ahead of what there is to one behind it.
struct Use {
    enum { NUMBER, COUNTS, GROUPS, INDEX } kind = NUMBER;
    int64_t limit = 0;
};

using Uses = std::map<int, Use>; // by declaration

void AddCounts(const Program &program, const Shape &shape, Uses *uses)
{
    for (size_t i = 0; i < program.decls.size(); i++) {
        const Decl &decl = program.decls[i];
        std::vector<int64_t> extents =
            Extents(program, shape, static_cast<int>(i));

        for (size_t d = 0; d < decl.dims.size(); d++)
            if (!decl.dims[d].by.empty()) {
                Use *use = &(*uses)[shape.decl.at(decl.dims[d].by)];
                int64_t limit = use->kind == Use::COUNTS
                                    ? std::min(use->limit, extents[d])
                                    : extents[d];

                use->kind = Use::COUNTS;
                use->limit = limit;
            }
    }
}

int64_t FromTheLast(const Seen &seen, size_t i)
{
    return seen.region.dims.at(seen.region.dims.size() - i).first;
}

// How many rows an attention's sequences may have together: of all blocks.
int64_t RoomOf(const Work &work, const Shape &shape)
{
    int64_t keys = FromTheLast(work.from[1], 2);

    if (work.stmt->Find("blocks"))
        keys *= FromTheLast(work.from[1], 4);
    return KeyOr(work, shape, "room", keys);
}

void AddUse(const Work &work, const Shape &shape, Uses *uses)
{
    const std::string &op = work.op;

    if (op == "take") {
        size_t d = static_cast<size_t>(
            Evaluate(work.stmt->Find("dim")->expr[0], shape, work.scope));

        uses->insert({work.from[1].region.root,
                      {Use::INDEX, KeyOr(work, shape, "start", 0) +
                                       work.from[0].region.dims.at(d).first}});
    } else if (op == "route") {
        uses->insert({work.from[0].region.root,
                      {Use::INDEX, FromTheLast(work.to[0], 2)}});
    } else if (work.keys.count("groups")) {
        uses->insert(
            {work.keys.at("groups").region.root,
             {Use::GROUPS, op == "matmul" ? FromTheLast(work.from[0], 2)
                                          : RoomOf(work, shape)}});
    } else if (op == "copy" || op == "set" || op == "transpose" ||
               op == "permute" || op == "reshape") {
        auto use = uses->find(work.to[0].region.root);

        if (use != uses->end())
            uses->insert({work.from[0].region.root, use->second});
    }
}

int64_t Below(std::mt19937 &random, int64_t n)
{
    return n <= 0 ? 0
                  : static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

int64_t DrawCount(int64_t most, const Draw &draw, std::mt19937 &random)
{
    int64_t drawn = Below(random, most + 1);
    unsigned how = random() % 4;

    return draw.number == 0 || (draw.number > 1 && how == 0)   ? 0
           : draw.number == 1 || (draw.number > 1 && how == 1) ? most
                                                               : drawn;
}

Scalar DrawNumber(const std::string &dtype, const Draw &draw,
                  std::mt19937 &random)
{
    std::uniform_real_distribution<double> size(0.25, 1.75);
    const double infinity = std::numeric_limits<double>::infinity();
    const double specials[] = {0.0,
                               -0.0,
                               infinity,
                               -infinity,
                               1e30,
                               -1e30,
                               std::numeric_limits<double>::quiet_NaN()};

    if (draw.special && random() % 3 == 0 && !IsInteger(dtype))
        return Exact(specials[random() % 7]);
    if (draw.special && random() % 3 == 0)
        return None(random() % 2 ? "max" : "min", dtype);
    if (dtype == "u8")
        return Exact(static_cast<Real>(random() % 3));
    if (draw.whole || IsInteger(dtype))
        return Exact(static_cast<Real>(Below(random, 7) - 3));
    double drawn = size(random);
    return Exact(random() % 2 ? drawn : -drawn);
}

std::vector<Scalar> DrawArray(const std::string &dtype, const Use &use,
                              const std::vector<int64_t> &extents,
                              const Draw &draw, std::mt19937 &random)
{
    std::vector<Scalar> values;
    int64_t elements = 1;
    for (int64_t extent : extents)
        elements *= extent;
    if (elements > kMostElements)
        throw TooLarge("too many elements");
    int64_t last = extents.empty() ? 1 : extents.back(), left = 0;

    ForEach(extents, [&](const Point &at) {
        if (at.empty() || at.back() == 0)
            left = use.limit;
        switch (use.kind) {
        case Use::NUMBER:
            values.push_back(DrawNumber(dtype, draw, random));
            return;
        case Use::INDEX:
            values.push_back(
                Exact(static_cast<Real>(Below(random, use.limit + 2) - 1)));
            return;
        case Use::COUNTS:
            values.push_back(
                Exact(static_cast<Real>(DrawCount(use.limit, draw, random))));
            return;
        case Use::GROUPS: {
            // The more there are, the fewer are left for each.
            int64_t n = draw.number == 1 ? use.limit / last
                                         : DrawCount(left, draw, random);

            if (draw.number > 1 && random() % 3 != 0)
                n = std::min(n, 2 * use.limit / last);
            left -= n;
            values.push_back(Exact(static_cast<Real>(n)));
            return;
        }
        }
    });
    return values;
}

std::string Words(const Scalar &n)
{
    return n.lost ? "not written" : std::to_string(n.value);
}

} // namespace

Arrays DrawInputs(const Program &program, const Draw &draw,
                  std::mt19937 &random)
{
    Program bare = Unmarked(program);
    Shape shape(bare);
    bool host = program.level == "host";
    Arrays arrays;
    Uses uses;

    AddCounts(bare, shape, &uses);
    for (int rank = 0; rank < (host ? shape.ranks : 1); rank++) {
        std::vector<Step> steps = Unroll(host ? program : bare, shape, rank);

        for (size_t i = steps.size(); i-- > 0;)
            for (const Work &work : steps[i].work)
                AddUse(work, shape, &uses);
    }
    for (size_t i = 0; i < bare.decls.size(); i++) {
        const Decl &decl = bare.decls[i];
        int n = static_cast<int>(i);

        if (decl.dtype != "event" &&
            (decl.role == "in" || decl.role == "inout"))
            arrays[decl.name] = DrawArray(
                decl.dtype, uses[n], Extents(bare, shape, n), draw, random);
    }
    return arrays;
}

void DrawSizes(Program *tensor, Program *host, const Draw &draw,
               std::mt19937 &random)
{
    for (Size &size : tensor->sizes) {
        size.now = draw.number == 0 ? size.low
                   : draw.number == 1
                       ? size.high
                       : size.low + Below(random, size.high - size.low + 1);
        for (Size &other : host->sizes)
            if (other.name == size.name)
                other.now = size.now;
    }
}

std::string Difference(const Arrays &want, const Shards &have)
{
    for (size_t rank = 0; rank < have.size(); rank++)
        for (const auto &shard : have[rank]) {
            const std::vector<Scalar> &whole = want.at(shard.first);

            for (size_t i = 0; i < shard.second.place.size(); i++) {
                size_t at = static_cast<size_t>(shard.second.place[i]);

                if (!MayBeEqual(whole.at(at), shard.second.value[i]))
                    return "%" + shard.first + " of rank " +
                           std::to_string(rank) + ", element " +
                           std::to_string(at) + " of the whole, is " +
                           Words(shard.second.value[i]) + ", not " +
                           Words(whole[at]);
            }
        }
    return "";
}

std::string Differs(const Program &tensor, const Program &host, int draws,
                    std::mt19937 &random)
{
    Program want = tensor, have = host;

    for (int i = 0; i < draws; i++) {
        Draw draw;

        draw.number = i;
        DrawSizes(&want, &have, draw, random);
        Arrays given = DrawInputs(want, draw, random);
        std::string where = "draw " + std::to_string(i) + ": ";
        for (const Size &size : want.sizes)
            where += size.name + "=" + std::to_string(size.now) + ", ";
        try {
            Arrays answer = EvaluateTensor(want, given);
            std::string difference =
                Difference(answer, EvaluateHost(have, given));

            if (!difference.empty())
                return where + difference;
        } catch (const Broken &broken) {
            return where + broken.what();
        } catch (const Undecided &) {
        }
    }
    return "";
}

std::string Differs(const std::string &tensor, const std::string &host,
                    int draws, unsigned seed)
{
    std::mt19937 random(seed);

    return Differs(Parse(tensor), Parse(host), draws, random);
}

} // namespace second
