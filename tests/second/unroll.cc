// An interpreter of the text: it walks the statements of one rank and writes
// down what that rank issues.
#include "tests/second/unroll.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <tuple>

namespace second
{

const char *const kRuleText[NRULES] = {
    "invalid",   "mismatch", "deadlock", "hole",     "race",
    "unwritten", "unjoined", "early",    "lifetime", "in place"};

int64_t Region::Elements() const
{
    int64_t n = 1;

    for (const auto &dim : dims)
        n *= dim.first;
    return n;
}

std::vector<int64_t> Region::Offsets() const
{
    std::vector<int64_t> all = {offset};

    for (const auto &dim : dims) {
        std::vector<int64_t> more;

        for (int64_t at : all)
            for (int64_t i = 0; i < dim.first; i++)
                more.push_back(at + i * dim.second);
        all.swap(more);
    }
    return all;
}

namespace
{

// `/` and `mod` round down, `cdiv` up.
int64_t Divide(const std::string &op, int64_t a, int64_t b)
{
    if (b <= 0)
        throw Broken(INVALID, "a divisor that is not positive");
    int64_t rest = a % b < 0 ? a % b + b : a % b;
    int64_t down = a / b - (a % b < 0);
    return op == "mod" ? rest : op == "cdiv" && rest > 0 ? down + 1 : down;
}

int64_t Arithmetic(const std::string &op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool overflow = op == "+"   ? __builtin_add_overflow(a, b, &r)
                    : op == "-" ? __builtin_sub_overflow(a, b, &r)
                    : op == "*" ? __builtin_mul_overflow(a, b, &r)
                                : false;

    if (overflow)
        throw Broken(INVALID, "a number beyond 64 bits");
    if (op == "+" || op == "-" || op == "*")
        return r;
    if (op == "/" || op == "mod" || op == "cdiv")
        return Divide(op, a, b);
    if (op == "min" || op == "max")
        return (a < b) == (op == "min") ? a : b;
    return op == "=="   ? a == b
           : op == "!=" ? a != b
           : op == "<"  ? a < b
           : op == "<=" ? a <= b
           : op == ">"  ? a > b
                        : a >= b;
}

struct Values {
    const Shape *shape;
    Scope scope;

    int64_t Value(const Expr &e) const;
    double Real(const Expr &e) const;
};

int64_t Values::Value(const Expr &e) const
{
    if (e.op == "number")
        return e.number;
    if (e.op == "size") {
        for (const auto &axis : shape->mesh)
            if (axis.first == e.name)
                return axis.second;
        throw Unreadable("no axis " + e.name);
    }
    if (e.op == "name") {
        for (size_t i = scope.size(); i-- > 0;)
            if (scope[i].first == e.name)
                return scope[i].second;
        throw Unreadable("no name " + e.name);
    }
    if (e.op == "neg")
        return Arithmetic("-", 0, Value(e.args[0]));
    if (e.op == "not")
        return !Value(e.args[0]);
    if (e.op == "and")
        return Value(e.args[0]) && Value(e.args[1]);
    if (e.op == "or")
        return Value(e.args[0]) || Value(e.args[1]);
    return Arithmetic(e.op, Value(e.args[0]), Value(e.args[1]));
}

double Values::Real(const Expr &e) const
{
    if (e.op == "real")
        return std::strtod(e.name.c_str(), nullptr);
    if (e.op == "neg")
        return -Real(e.args[0]);
    if (e.op == "+")
        return Real(e.args[0]) + Real(e.args[1]);
    if (e.op == "-")
        return Real(e.args[0]) - Real(e.args[1]);
    if (e.op == "*")
        return Real(e.args[0]) * Real(e.args[1]);
    if (e.op == "/")
        return Real(e.args[0]) / Real(e.args[1]);
    return static_cast<double>(Value(e));
}

// A region whose dimensions are still those of the view.
struct Piece {
    Region region;

    Region Folded() const;
    Piece At(int64_t index) const; // of the first dimension
};

Region Piece::Folded() const
{
    Region folded = region;
    auto &dims = folded.dims;

    dims.clear();
    if (region.Elements() == 0) {
        folded.offset = 0;
        dims = {{0, 1}};
        return folded;
    }
    for (size_t i = region.dims.size(); i-- > 0;) {
        auto dim = region.dims[i];

        if (dim.first == 1)
            continue;
        if (!dims.empty() &&
            dim.second == dims.front().first * dims.front().second)
            dims.front().first *= dim.first;
        else
            dims.insert(dims.begin(), dim);
    }
    return folded;
}

Piece Piece::At(int64_t index) const
{
    Piece piece = *this;

    if (region.dims.empty())
        throw Unreadable("a collective over a scalar");
    piece.region.offset += index * region.dims[0].second;
    piece.region.dims.erase(piece.region.dims.begin());
    return piece;
}

const std::set<std::string> kTransfers = {
    "send",       "recv",      "all_gather", "reduce_scatter",
    "all_reduce", "broadcast", "all_to_all", "reduce"};

class Unroller
{
  public:
    Unroller(const Program &program, const Shape &shape, int rank)
        : program_(program), shape_(shape), at_(shape.Coordinates(rank))
    {
        values_.shape = &shape;
        room_.shape = &shape;
        for (const auto &param : program.params)
            values_.scope.push_back(param);
        room_.scope = values_.scope;
        for (const Size &size : program.sizes) {
            values_.scope.push_back({size.name, size.now});
            room_.scope.push_back({size.name, RoomOf(size)});
        }
        for (size_t i = 0; i < shape.mesh.size(); i++)
            values_.scope.push_back({shape.mesh[i].first, at_[i]});
    }
    std::vector<Step> Run();
    std::vector<View> CountsOf(const View &view);
    Region All(int decl);
    int64_t AllRoom(int decl);
    std::vector<int64_t> AllExtents(int decl);
    std::vector<std::pair<int64_t, int64_t>> AllPlaces(int decl);

  private:
    void Block(const std::vector<Stmt> &block);
    void Statement(const Stmt &stmt);
    void Loop(const Stmt &stmt);
    void Stream(const Stmt &stmt);
    void Group(const Stmt &stmt);
    void Launch(const Stmt &stmt);
    void Operation(const Stmt &stmt);
    int64_t SecondLast(const View &view, bool *sized);
    bool SeesNothing(const Stmt &stmt);
    void TakeHalves(const Stmt &stmt, std::vector<Piece> *operands,
                    std::vector<Piece> *results);
    Seen See(const View &view);
    void SeeAll(const Stmt &stmt, Work *work);
    void Compute(const Stmt &stmt, Work *work);
    void Transfer(const Stmt &stmt, Work *work);
    void Collective(const Stmt &stmt, Work *work);
    void Broadcast(const Stmt &stmt, Work *work);
    void Reduce(const Stmt &stmt, Work *work);
    int64_t KeyValue(const Stmt &stmt, const char *key);
    int64_t Coordinate(const Stmt &stmt, const Work &work, const char *key);
    int DeclOf(const View &view) const;
    Piece Resolve(const View &view);
    int64_t RoomOf(const Size &size);
    int64_t Room(const Dim &dim);
    std::pair<int64_t, int64_t> BlockOf(const Dim &dim, int64_t e, int64_t of);
    std::pair<int64_t, int64_t> Kept(const Decl &decl, const Dim &dim,
                                     const Index &index);
    EventId Event(const View &view);
    void Emit(Step step);

    const Program &program_;
    const Shape &shape_;
    std::vector<int64_t> at_; // this rank's coordinates
    Values values_, room_;    // as this run has it, and as memory has room
    int stream_ = -1, launch_ = 0, launches_ = 0;
    Step *group_ = nullptr;
    std::set<EventId> recorded_;
    std::vector<Step> steps_;
};

int Unroller::DeclOf(const View &view) const
{
    auto found = shape_.decl.find(view.name);

    if (found == shape_.decl.end())
        throw Unreadable("no buffer " + view.name);
    return found->second;
}

bool Sharded(const Dim &dim)
{
    return !dim.mark.empty() && dim.mark != "stream";
}

bool Names(const Expr &e, const std::string &name)
{
    for (const Expr &arg : e.args)
        if (Names(arg, name))
            return true;
    return e.op == "name" && e.name == name;
}

bool IsSized(const Program &program, const Expr &e)
{
    for (const Size &size : program.sizes)
        if (Names(e, size.name))
            return true;
    return false;
}

// Its greatest value, rounded up to blocks of one length.
int64_t Unroller::RoomOf(const Size &size)
{
    int64_t blocks = 1;

    for (const Decl &decl : program_.decls)
        for (const Dim &dim : decl.dims) {
            if (!Names(dim.extent, size.name))
                continue;
            for (const Expr &of : dim.blocks)
                blocks = room_.Value(of);
            for (const auto &axis : shape_.mesh)
                if (axis.first == dim.mark)
                    blocks = axis.second;
        }
    return Divide("cdiv", size.high, blocks) * blocks;
}

// How many indices a rank has room for.
int64_t Unroller::Room(const Dim &dim)
{
    int64_t n = room_.Value(dim.extent);

    for (const auto &axis : shape_.mesh)
        if (axis.first == dim.mark)
            return Divide("cdiv", n, axis.second);
    return n;
}

// Where block `e` of so many begins, and where it ends.
std::pair<int64_t, int64_t> Unroller::BlockOf(const Dim &dim, int64_t e,
                                              int64_t of)
{
    int64_t n = values_.Value(dim.extent), each = Divide("cdiv", n, of);
    int64_t low = std::min(n, Arithmetic("*", e, each));

    return {low, std::min(n, low + each)};
}

// The first of the indices that are kept, as the rank counts them, and how
// many they are. Of a sharded dimension it has its own block.
std::pair<int64_t, int64_t> Unroller::Kept(const Decl &decl, const Dim &dim,
                                           const Index &index)
{
    int64_t n = values_.Value(dim.extent), low = 0, past = n, size = 0;

    for (const auto &axis : shape_.mesh)
        if (axis.first == dim.mark)
            size = axis.second;
    if (!index.of.empty()) {
        int64_t e = values_.Value(index.at), of = values_.Value(index.of[0]);

        if (e < 0 || e >= of ||
            (size > 0 && (of != size || e != values_.Value(Name(dim.mark)))))
            throw Broken(INVALID, "a block of %" + decl.name);
        std::tie(low, past) = BlockOf(dim, e, of);
    } else if (!index.past.empty()) {
        low = values_.Value(index.at);
        past = values_.Value(index.past[0]);
    } else if (size > 0) {
        std::tie(low, past) = BlockOf(dim, values_.Value(Name(dim.mark)), size);
        return {0, past - low};
    }
    if (low < 0 || low > past || past > n)
        throw Broken(INVALID, "range of %" + decl.name);
    return {size > 0 ? 0 : low, past - low};
}

Piece Unroller::Resolve(const View &view)
{
    Piece piece;
    Region &region = piece.region;
    region.decl = DeclOf(view);
    const Decl &decl = program_.decls[static_cast<size_t>(region.decl)];

    region.root =
        decl.of.empty() ? region.decl : shape_.decl.find(decl.of)->second;
    if (view.index.size() > decl.dims.size())
        throw Unreadable("too many indices");
    int64_t stride = 1;
    Index all;
    all.all = true;
    for (size_t i = decl.dims.size(); i-- > 0;) {
        const Dim &dim = decl.dims[i];
        Index index = all;

        if (i < view.index.size())
            index = view.index[i];
        if (index.all || !index.past.empty() || !index.of.empty()) {
            auto kept = Kept(decl, dim, index);

            region.nothing |=
                kept.second == 0 && !IsSized(program_, dim.extent);
            region.offset += kept.first * stride;
            region.dims.insert(region.dims.begin(), {kept.second, stride});
        } else {
            int64_t v = values_.Value(index.at);

            if (v < 0 || v >= values_.Value(dim.extent))
                throw Broken(INVALID, "index of %" + decl.name);
            if (!Sharded(dim))
                region.offset += v * stride;
            else if (v != values_.Value(Name(dim.mark)))
                throw Broken(INVALID, "a peer's shard of %" + decl.name);
        }
        stride *= Room(dim);
    }
    return piece;
}

Region Unroller::All(int decl)
{
    View view;

    view.name = program_.decls[static_cast<size_t>(decl)].name;
    return Resolve(view).Folded();
}

int64_t Unroller::AllRoom(int decl)
{
    int64_t n = 1;

    for (const Dim &dim : program_.decls[static_cast<size_t>(decl)].dims)
        n *= Room(dim);
    return n;
}

std::vector<int64_t> Unroller::AllExtents(int decl)
{
    std::vector<int64_t> extents;

    for (const Dim &dim : program_.decls[static_cast<size_t>(decl)].dims)
        extents.push_back(values_.Value(dim.extent));
    return extents;
}

std::vector<std::pair<int64_t, int64_t>> Unroller::AllPlaces(int decl)
{
    const Decl &declared = program_.decls[static_cast<size_t>(decl)];
    std::vector<std::pair<int64_t, int64_t>> places = {{0, 0}};
    View view;

    view.name = declared.name;
    Region region = Resolve(view).region;
    for (size_t i = 0; i < declared.dims.size(); i++) {
        const Dim &dim = declared.dims[i];
        std::vector<std::pair<int64_t, int64_t>> more;
        int64_t begin = 0;

        for (const auto &axis : shape_.mesh)
            if (axis.first == dim.mark)
                begin = BlockOf(dim, values_.Value(Name(dim.mark)), axis.second)
                            .first;
        for (const auto &at : places)
            for (int64_t k = 0; k < region.dims[i].first; k++)
                more.push_back(
                    {at.first + k * region.dims[i].second,
                     at.second * values_.Value(dim.extent) + begin + k});
        places.swap(more);
    }
    return places;
}

EventId Unroller::Event(const View &view)
{
    Region region = Resolve(view).region;

    if (region.Elements() != 1)
        throw Unreadable("several events");
    return {region.decl, region.offset};
}

int64_t Unroller::KeyValue(const Stmt &stmt, const char *key)
{
    const Key *found = stmt.Find(key);

    if (found == nullptr)
        throw Unreadable(stmt.op + " without " + key);
    return values_.Value(found->expr[0]);
}

int64_t Unroller::Coordinate(const Stmt &stmt, const Work &work,
                             const char *key)
{
    int64_t c = KeyValue(stmt, key);

    if (c < 0 || c >= work.size)
        throw Broken(INVALID, "peer of a " + stmt.op);
    return c;
}

const std::set<std::string> kElementwise = {
    "copy", "add",       "sub",          "mul",       "div",
    "lt",   "le",        "gt",           "ge",        "eq",
    "ne",   "neg",       "abs",          "exp",       "log",
    "sqrt", "rsqrt",     "tanh",         "relu",      "gelu",
    "silu", "relu_grad", "gelu_grad",    "silu_grad", "select",
    "fill", "sigmoid",   "scale",        "and",       "or",
    "xor",  "not",       "sin",          "cos",       "floor",
    "pow",  "gelu_erf",  "gelu_erf_grad"};

// Shapes agree before loops are unrolled; here they have numbers. What is read
// along a dimension is as long as that, or one for all of it.
void CheckShapes(const Region &operand, const Region &result)
{
    size_t n = operand.dims.size(), more = result.dims.size() - n;

    if (n > result.dims.size())
        throw Unreadable("an operand of more dimensions than the result");
    for (size_t i = 0; i < n; i++)
        if (operand.dims[i].first != result.dims[more + i].first &&
            operand.dims[i].first != 1)
            throw Unreadable("an operand as long as the result in no way");
}

// A root has as many elements on both sides.
void CheckRoot(const Work &work)
{
    if (!work.reads.empty() && !work.writes.empty() &&
        work.reads[0].Elements() != work.writes[0].Elements())
        throw Broken(INVALID, "a root whose sides differ");
}

bool AreEmpty(const std::vector<Region> &regions)
{
    for (const Region &region : regions)
        if (region.Elements() > 0)
            return false;
    return true;
}

// Something to join or to move, where there is a result.
void CheckSome(const std::vector<Region> &regions, const std::string &op)
{
    for (const Region &region : regions)
        if (region.nothing)
            throw Broken(INVALID, "a " + op + " of nothing");
}

// What says how many indices a dimension of the view has: as many dimensions as
// it has itself, picked as the view's first ones are.
std::vector<View> Unroller::CountsOf(const View &view)
{
    std::vector<View> counts;

    for (const Dim &dim :
         program_.decls[static_cast<size_t>(DeclOf(view))].dims)
        if (!dim.by.empty()) {
            View by = view;

            by.name = dim.by;
            by.index.resize(std::min(
                by.index.size(),
                program_.decls[static_cast<size_t>(DeclOf(by))].dims.size()));
            counts.push_back(by);
        }
    return counts;
}

// How many indices the last dimension but one of a view has: rows, or keys.
int64_t Unroller::SecondLast(const View &view, bool *sized)
{
    const Decl &decl = program_.decls[static_cast<size_t>(DeclOf(view))];
    const Region region = Resolve(view).region;
    int kept = 0;

    for (size_t i = decl.dims.size(); i-- > 0 && kept < 2;) {
        bool picked = i < view.index.size() && !view.index[i].all &&
                      view.index[i].past.empty() && view.index[i].of.empty();

        if (!picked && ++kept == 2)
            *sized |= IsSized(program_, decl.dims[i].extent);
    }
    return region.dims[region.dims.size() - 2].first;
}

// Attention that is merged with what is there, whose mask leaves every row no
// key: row i sees keys up to i + causal, and of these the last `window`.
bool Unroller::SeesNothing(const Stmt &stmt)
{
    if ((stmt.op != "attention" && stmt.op != "attention_grad") ||
        program_.level != "host" || !stmt.Find("accumulate") ||
        !stmt.Find("causal"))
        return false;
    bool sized = IsSized(program_, stmt.Find("causal")->expr[0]);
    int64_t rows = SecondLast(stmt.operands[0], &sized);
    int64_t keys = SecondLast(stmt.operands[1], &sized);
    int64_t causal = values_.Value(stmt.Find("causal")->expr[0]);

    if (sized)
        return false;
    for (int64_t row = 0; row < rows; row++) {
        int64_t last = std::min(row + causal, keys - 1), first = 0;

        if (stmt.Find("window"))
            first =
                row + causal + 1 - values_.Value(stmt.Find("window")->expr[0]);
        if (last >= std::max<int64_t>(first, 0))
            return false;
    }
    return true;
}

// Half of the indices of a dimension: rows, or keys.
void Halve(Piece *piece, size_t from_end, bool second)
{
    auto &dims = piece->region.dims;
    auto &dim = dims.at(dims.size() - from_end);

    dim.first /= 2;
    piece->region.offset += second ? dim.first * dim.second : 0;
}

// Of a sequence in zigzag, `zigzag` blocks behind the keys, all rows see the
// first half of the keys; ahead of them the second half of the rows sees all.
// Results are then of no other rows or keys, and what is there has to be kept.
void Unroller::TakeHalves(const Stmt &stmt, std::vector<Piece> *operands,
                          std::vector<Piece> *results)
{
    bool grads = stmt.op == "attention_grad";
    int64_t behind =
        stmt.Find("zigzag") ? values_.Value(stmt.Find("zigzag")->expr[0]) : 0;
    // Of q, k, v, o, lse and do, and of o and lse, or of dq, dk and dv.
    std::vector<size_t> rows = {0, 3, 4, 5}, keys = {1, 2};

    if (behind == 0)
        return;
    if ((behind < 0 || grads) && !stmt.Find("accumulate"))
        throw Broken(INVALID, "zigzag that leaves a half as it was");
    for (size_t i : behind < 0 ? rows : keys)
        if (i < operands->size())
            Halve(&(*operands)[i], i == 4 ? 1 : 2, behind < 0);
    for (size_t i = 0; i < results->size(); i++)
        if (grads ? (i == 0) == (behind < 0) : behind < 0)
            Halve(&(*results)[i], !grads && i == 1 ? 1 : 2, behind < 0);
}

Seen Unroller::See(const View &view)
{
    Seen seen;
    seen.region = Resolve(view).region;
    const Decl &decl = program_.decls[static_cast<size_t>(seen.region.decl)];
    int kept = 0;

    seen.dtype = decl.dtype;
    seen.region.root = Bank(program_, shape_, seen.region.decl);
    for (size_t i = 0; i < decl.dims.size(); i++) {
        bool picked = i < view.index.size() && !view.index[i].all &&
                      view.index[i].past.empty() && view.index[i].of.empty();

        if (!decl.dims[i].by.empty()) {
            if (picked)
                throw Unreadable("one index of a dimension with counts");
            seen.counted = kept;
            seen.all = values_.Value(decl.dims[i].extent);
            if (i < view.index.size() && !view.index[i].all)
                seen.first = Kept(decl, decl.dims[i], view.index[i]).first;
            seen.counts = {Resolve(CountsOf(view)[0]).region};
        }
        kept += !picked;
    }
    return seen;
}

void Unroller::SeeAll(const Stmt &stmt, Work *work)
{
    work->stmt = &stmt;
    work->scope = values_.scope;
    for (const Key &key : stmt.keys)
        for (const Expr &e : key.real)
            work->reals[key.name] = values_.Real(e);
    for (const auto &number : stmt.numbers)
        work->numbers[number.first] = values_.Real(number.second);
    for (const View &view : stmt.operands)
        work->from.push_back(See(view));
    for (const View &view : stmt.results)
        work->to.push_back(See(view));
    for (const Key &key : stmt.keys)
        for (const View &view : key.view)
            if (key.name != "done")
                work->keys[key.name] = See(view);
}

// A result may lie exactly over an operand where the operation goes element by
// element, and over none anywhere else.
void Unroller::Compute(const Stmt &stmt, Work *work)
{
    bool elementwise =
        kElementwise.count(stmt.op) ||
        ((stmt.op == "sum" || stmt.op == "max" || stmt.op == "min") &&
         !stmt.Find("dim"));
    std::vector<Region> operands, results;
    std::vector<Piece> from, to;

    for (const View &view : stmt.operands)
        from.push_back(Resolve(view));
    for (const View &view : stmt.results)
        to.push_back(Resolve(view));
    if ((stmt.op == "take" || stmt.op == "iota") && !to[0].region.nothing) {
        int64_t start = stmt.Find("start") ? KeyValue(stmt, "start") : 0;
        const Region &of = stmt.op == "take" ? from[0].region : to[0].region;
        int64_t n = of.dims[static_cast<size_t>(KeyValue(stmt, "dim"))].first;

        if (start < 0 || start > std::numeric_limits<int32_t>::max())
            throw Broken(INVALID, "start of a " + stmt.op);
        if (start + n - 1 > std::numeric_limits<int32_t>::max())
            throw Broken(INVALID, "last index of a " + stmt.op);
    }
    for (const char *key : {"row", "key", "room"}) {
        int64_t value = stmt.Find(key) ? KeyValue(stmt, key) : 0;

        if (value < 0 || value > std::numeric_limits<int32_t>::max())
            throw Broken(INVALID, key + std::string(" among sequences"));
    }
    if (program_.level == "host")
        TakeHalves(stmt, &from, &to);
    for (const Piece &piece : from) {
        operands.push_back(piece.Folded());
        if (elementwise && !to.empty())
            CheckShapes(piece.region, to[0].region);
    }
    for (const char *key :
         {"bias", "scale", "scale_a", "scale_b", "by", "value", "groups"})
        if (stmt.Find(key))
            for (const View &view : stmt.Find(key)->view)
                operands.push_back(Resolve(view).Folded());
    // Of the first view that has some.
    std::vector<View> views = stmt.results, counts;
    views.insert(views.end(), stmt.operands.begin(), stmt.operands.end());
    for (size_t i = 0; i < views.size() && counts.empty(); i++)
        counts = CountsOf(views[i]);
    for (const View &by : counts)
        operands.push_back(Resolve(by).Folded());
    for (const Piece &piece : to)
        results.push_back(piece.Folded());
    if (stmt.Find("aux"))
        results.push_back(Resolve(stmt.Find("aux")->view[0]).Folded());
    if (!AreEmpty(results))
        for (const std::vector<Region> &views : {operands, results})
            CheckSome(views, stmt.op);
    work->reads = operands;
    if (stmt.Find("accumulate") || stmt.Find("keep"))
        for (size_t i = 0; i < stmt.results.size(); i++)
            work->reads.push_back(results[i]);
    work->writes = results;
    for (const Region &operand : operands)
        for (const Region &result : results)
            if (!(elementwise || stmt.op == "merge") ||
                !operand.SameElements(result))
                work->clashes.push_back({operand, result});
    for (size_t i = 1; i < results.size(); i++)
        for (size_t k = 0; k < i; k++)
            work->clashes.push_back({results[k], results[i]});
}

void Unroller::Broadcast(const Stmt &stmt, Work *work)
{
    int64_t root = Coordinate(stmt, *work, "root");
    bool mine = root == at_[static_cast<size_t>(work->axis)];

    work->root = static_cast<int>(root);
    work->sends = mine;
    work->receives = !mine;
    if ((mine ? stmt.operands : stmt.results).empty())
        throw Broken(INVALID, "a broadcast that lacks a view");
    Piece piece = Resolve((mine ? stmt.operands : stmt.results)[0]);
    work->elements = piece.region.Elements();
    work->nothing = piece.region.nothing;
    // What the others name as operand is not read, though it must exist.
    for (const View &view : stmt.operands)
        if (Region region = Resolve(view).Folded(); mine)
            work->reads.push_back(region);
    for (const View &view : stmt.results)
        work->writes.push_back(Resolve(view).Folded());
    CheckRoot(*work);
    for (const Region &result : work->writes)
        if (mine && !result.SameElements(work->reads[0]))
            work->clashes.push_back({work->reads[0], result});
}

void Unroller::Reduce(const Stmt &stmt, Work *work)
{
    int64_t root = Coordinate(stmt, *work, "root");
    Piece operand = Resolve(stmt.operands.at(0));

    work->root = static_cast<int>(root);
    work->receives = root == at_[static_cast<size_t>(work->axis)];
    work->elements = operand.region.Elements();
    work->nothing = operand.region.nothing;
    work->reads = {operand.Folded()};
    if (work->receives && stmt.results.empty())
        throw Broken(INVALID, "a reduce whose root lacks a result");
    // What the others name as result is not written, though it must exist.
    for (const View &view : stmt.results)
        if (Region region = Resolve(view).Folded(); work->receives)
            work->writes.push_back(region);
    CheckRoot(*work);
    for (const Region &result : work->writes)
        if (!result.SameElements(work->reads[0]))
            work->clashes.push_back({work->reads[0], result});
}

void Unroller::Collective(const Stmt &stmt, Work *work)
{
    if (stmt.operands.empty() || stmt.results.empty())
        throw Unreadable(stmt.op + " without views");
    Piece operand = Resolve(stmt.operands[0]);
    Piece result = Resolve(stmt.results[0]);
    int64_t own = at_[static_cast<size_t>(work->axis)];
    bool over = false; // exactly where in place is allowed

    if (stmt.op == "all_gather")
        over = result.At(own).Folded().SameElements(operand.Folded());
    else if (stmt.op == "reduce_scatter")
        over = operand.At(own).Folded().SameElements(result.Folded());
    else if (stmt.op == "all_reduce")
        over = operand.Folded().SameElements(result.Folded());
    work->reads = {operand.Folded()};
    if (stmt.op == "all_to_all")
        for (const View &counts : CountsOf(stmt.operands[0]))
            work->reads.push_back(Resolve(counts).Folded());
    work->writes = {result.Folded()};
    work->elements = stmt.op == "all_gather" ? operand.region.Elements()
                                             : result.region.Elements();
    if (!over)
        work->clashes = {{work->reads[0], work->writes[0]}};
}

void Unroller::Transfer(const Stmt &stmt, Work *work)
{
    work->transfer = true;
    work->axis = stmt.axis.empty() ? 0 : -1;
    for (size_t i = 0; i < shape_.mesh.size(); i++)
        if (shape_.mesh[i].first == stmt.axis)
            work->axis = static_cast<int>(i);
    if (work->axis < 0 || shape_.mesh.empty())
        throw Unreadable("no axis for " + stmt.op);
    size_t axis = static_cast<size_t>(work->axis);
    work->size = static_cast<int>(shape_.mesh[axis].second);
    work->get = stmt.Find("get") != nullptr;
    for (const char *key : {"max", "min"})
        if (stmt.Find(key))
            work->fold += key;
    const View &view =
        stmt.operands.empty() ? stmt.results.at(0) : stmt.operands[0];
    work->dtype = program_.decls[static_cast<size_t>(DeclOf(view))].dtype;
    if (stmt.op == "broadcast")
        return Broadcast(stmt, work);
    if (stmt.op == "reduce")
        return Reduce(stmt, work);
    if (stmt.op != "send" && stmt.op != "recv") {
        for (const std::vector<View> *views : {&stmt.results, &stmt.operands})
            for (const View &v : *views)
                CheckSome({Resolve(v).region}, stmt.op);
        return Collective(stmt, work);
    }

    work->sends = stmt.op == "send";
    work->receives = !work->sends;
    std::vector<int64_t> peer = at_;
    peer[axis] = Coordinate(stmt, *work, work->sends ? "to" : "from");
    if (peer[axis] == at_[axis])
        throw Broken(INVALID, "a transfer with oneself");
    work->peer = shape_.Rank(peer);
    Region region = Resolve(view).Folded();
    work->elements = region.Elements();
    work->nothing = region.nothing;
    (work->sends ? work->reads : work->writes) = {region};
    if (work->sends && !work->get)
        for (const View &counts : CountsOf(view))
            work->reads.push_back(Resolve(counts).Folded());
    if (const Key *done = stmt.Find("done")) {
        work->event = Event(done->view[0]);
        recorded_.insert(work->event);
        work->deferred = !work->nothing;
        if (!work->deferred) { // recorded ahead of its group
            Step record;

            record.kind = Step::RECORD;
            record.events = {work->event};
            Emit(record);
        }
    }
}

void Unroller::Emit(Step step)
{
    step.stream = stream_;
    step.launch = launch_;
    steps_.push_back(std::move(step));
    if (steps_.size() > 20000)
        throw TooLarge("too many steps");
}

void Unroller::Operation(const Stmt &stmt)
{
    static const std::map<std::string, Step::Kind> sync = {
        {"record", Step::RECORD},
        {"wait", Step::WAIT},
        {"fork", Step::FORK},
        {"join", Step::JOIN}};
    Step step;

    if (sync.count(stmt.op)) {
        step.kind = sync.at(stmt.op);
        for (const View &view : stmt.results) {
            step.events.push_back(Event(view));
            recorded_.insert(step.events.back());
        }
        for (const View &view : stmt.operands) {
            EventId event = Event(view);
            const std::string &role =
                program_.decls[static_cast<size_t>(event.first)].role;
            if (!recorded_.count(event) && role != "in" && role != "inout")
                throw Broken(INVALID, "a wait that no record precedes");
            step.events.push_back(event);
        }
        return Emit(step);
    }
    Work work;
    work.op = work.text = stmt.op;
    SeeAll(stmt, &work);
    step.kind = Step::WORK;
    if (kTransfers.count(stmt.op))
        Transfer(stmt, &work);
    else
        Compute(stmt, &work);
    if (!work.transfer && !work.writes.empty() && AreEmpty(work.writes))
        return;
    if (SeesNothing(stmt))
        return;
    if (group_ != nullptr) {
        group_->work.push_back(work);
    } else {
        step.work = {work};
        Emit(step);
    }
}

void Unroller::Loop(const Stmt &stmt)
{
    int64_t from = values_.Value(stmt.exprs[0]);
    int64_t to = values_.Value(stmt.exprs[1]);

    if (to - from > 100000)
        throw TooLarge("too many iterations");
    for (int64_t i = from; i < to; i++) {
        size_t depth = values_.scope.size();

        values_.scope.push_back({stmt.name, i});
        Block(stmt.body);
        values_.scope.resize(depth);
    }
}

void Unroller::Stream(const Stmt &stmt)
{
    int64_t s = values_.Value(stmt.exprs[0]);

    if (s < 0 || s >= shape_.streams)
        throw Broken(INVALID, "no stream " + std::to_string(s));
    int before = stream_;
    stream_ = static_cast<int>(s);
    Block(stmt.body);
    stream_ = before;
}

void Unroller::Group(const Stmt &stmt)
{
    Step step;

    step.kind = Step::WORK;
    group_ = &step;
    Block(stmt.body);
    group_ = nullptr;
    if (!step.work.empty())
        Emit(step);
}

void Unroller::Launch(const Stmt &stmt)
{
    launch_ = ++launches_;
    Block(stmt.body);
    launch_ = 0;
}

void Unroller::Statement(const Stmt &stmt)
{
    if (stmt.kind == "let")
        values_.scope.push_back({stmt.name, values_.Value(stmt.exprs[0])});
    else if (stmt.kind == "for")
        Loop(stmt);
    else if (stmt.kind == "if")
        Block(values_.Value(stmt.exprs[0]) ? stmt.body : stmt.otherwise);
    else if (stmt.kind == "stream")
        Stream(stmt);
    else if (stmt.kind == "group")
        Group(stmt);
    else if (stmt.kind == "launch")
        Launch(stmt);
    else
        Operation(stmt);
}

void Unroller::Block(const std::vector<Stmt> &block)
{
    size_t depth = values_.scope.size();

    for (const Stmt &stmt : block)
        Statement(stmt);
    values_.scope.resize(depth);
}

std::vector<Step> Unroller::Run()
{
    Block(program_.body);
    return std::move(steps_);
}

} // namespace

Shape::Shape(const Program &program)
{
    Values values;

    values.shape = this;
    for (const auto &param : program.params)
        values.scope.push_back(param);
    for (const auto &axis : program.mesh) {
        mesh.push_back({axis.first, values.Value(axis.second)});
        ranks *= static_cast<int>(mesh.back().second);
    }
    for (const Expr &e : program.streams)
        streams = values.Value(e);
    for (size_t i = 0; i < program.decls.size(); i++)
        decl[program.decls[i].name] = static_cast<int>(i);
    if (ranks < 1 || ranks > 64)
        throw TooLarge("too many ranks");
}

std::vector<int64_t> Shape::Coordinates(int rank) const
{
    std::vector<int64_t> at(mesh.size());

    for (size_t i = mesh.size(); i-- > 0;) {
        at[i] = rank % mesh[i].second;
        rank /= static_cast<int>(mesh[i].second);
    }
    return at;
}

int Shape::Rank(const std::vector<int64_t> &coordinates) const
{
    int64_t rank = 0;

    for (size_t i = 0; i < mesh.size(); i++)
        rank = rank * mesh[i].second + coordinates[i];
    return static_cast<int>(rank);
}

int64_t SizeOf(const std::string &dtype)
{
    static const std::map<std::string, int64_t> sizes = {
        {"f64", 8}, {"i64", 8},  {"f32", 4},    {"i32", 4},
        {"f16", 2}, {"bf16", 2}, {"f8e4m3", 1}, {"f8e5m2", 1},
        {"u8", 1},  {"i8", 1},   {"event", 0}};

    return sizes.at(dtype);
}

int Bank(const Program &program, const Shape &shape, int decl)
{
    const Decl &name = program.decls[static_cast<size_t>(decl)];

    if (name.of.empty())
        return decl;
    int root = shape.decl.at(name.of);
    int64_t size = SizeOf(name.dtype);
    bool same = size == SizeOf(program.decls[static_cast<size_t>(root)].dtype);
    return same ? root
                : root + static_cast<int>(size) *
                             static_cast<int>(program.decls.size());
}

int64_t Evaluate(const Expr &e, const Shape &shape, const Scope &scope)
{
    return Values{&shape, scope}.Value(e);
}

std::vector<Step> Unroll(const Program &program, const Shape &shape, int rank)
{
    return Unroller(program, shape, rank).Run();
}

Region Whole(const Program &program, const Shape &shape, int rank, int decl)
{
    return Unroller(program, shape, rank).All(decl);
}

int64_t RoomElements(const Program &program, const Shape &shape, int rank,
                     int decl)
{
    return Unroller(program, shape, rank).AllRoom(decl);
}

std::vector<std::pair<int64_t, int64_t>>
Places(const Program &program, const Shape &shape, int rank, int decl)
{
    return Unroller(program, shape, rank).AllPlaces(decl);
}

std::vector<int64_t> Extents(const Program &program, const Shape &shape,
                             int decl)
{
    return Unroller(program, shape, 0).AllExtents(decl);
}

} // namespace second
