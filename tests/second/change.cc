#include "tests/second/change.h"

#include <algorithm>
#include <set>

namespace second
{

namespace
{

// A statement and the block that holds it.
struct Place {
    std::vector<Stmt> *block;
    size_t at;

    Stmt &Get() const
    {
        return (*block)[at];
    }
};

void List(std::vector<Stmt> *block, std::vector<Place> *out)
{
    for (size_t i = 0; i < block->size(); i++) {
        out->push_back({block, i});
        List(&(*block)[i].body, out);
        List(&(*block)[i].otherwise, out);
    }
}

std::vector<Place> Places(Program *program)
{
    std::vector<Place> places;

    List(&program->body, &places);
    return places;
}

void Erase(const Place &place)
{
    place.block->erase(place.block->begin() + static_cast<long>(place.at));
}

void Unwrap(const Place &place)
{
    std::vector<Stmt> inner = place.Get().body;

    Erase(place);
    place.block->insert(place.block->begin() + static_cast<long>(place.at),
                        inner.begin(), inner.end());
}

// ------------------------------------------------------------------- slips

class Slipper
{
  public:
    Slipper(Program *program, std::mt19937 &random)
        : program_(program), random_(random), places_(Places(program))
    {
    }
    void Once();

  private:
    size_t Below(size_t n)
    {
        return random_() % n;
    }
    Place Any()
    {
        return places_[Below(places_.size())];
    }
    void AnySync();
    void Move();
    void Wrap();
    void Cross();
    void Ungroup();
    void Launch();
    void Rename();
    void Overlay();
    void ChangeNumber();
    void ChangeView();
    void ChangeRange();
    void ChangeKey();
    void ChangeOp();
    void ChangeDecl();

    Program *program_;
    std::mt19937 &random_;
    std::vector<Place> places_;
};

// Most mistakes of people are about these: one is forgotten, or one event of a
// list.
void Slipper::AnySync()
{
    static const std::set<std::string> sync = {"wait", "record", "fork",
                                               "join"};

    for (int tries = 0; tries < 30; tries++) {
        Place place = Any();
        Stmt &stmt = place.Get();
        std::vector<View> &list =
            stmt.results.empty() ? stmt.operands : stmt.results;

        if (!sync.count(stmt.op))
            continue;
        if (list.size() < 2 || Below(3) == 0)
            return Erase(place);
        list.erase(list.begin() + static_cast<long>(Below(list.size())));
        return;
    }
}

void Slipper::Move()
{
    Place from = Any();
    Stmt stmt = from.Get();

    Erase(from);
    places_ = Places(program_);
    if (places_.empty()) {
        program_->body.push_back(stmt);
        return;
    }
    Place to = Any();
    to.block->insert(to.block->begin() + static_cast<long>(to.at), stmt);
}

void Slipper::Wrap()
{
    Place place = Any();
    Stmt outer;

    if (Below(3) == 0 || program_->mesh.empty()) {
        outer.kind = "for";
        outer.name = "w";
        outer.exprs = {Number(0), Number(static_cast<int64_t>(Below(3)))};
    } else {
        const auto &axis = program_->mesh[Below(program_->mesh.size())];

        outer.kind = "if";
        outer.exprs = {Make("==", Name(axis.first),
                            Number(static_cast<int64_t>(Below(3))))};
    }
    outer.body = {place.Get()};
    place.Get() = outer;
}

// Some ranks issue two neighbours in the other order.
void Slipper::Cross()
{
    Place place = Any();
    Stmt outer;

    if (place.at + 1 >= place.block->size() || program_->mesh.empty())
        return;
    Stmt &next = (*place.block)[place.at + 1];
    const auto &axis = program_->mesh[Below(program_->mesh.size())];
    outer.kind = "if";
    outer.exprs = {
        Make("==", Name(axis.first), Number(static_cast<int64_t>(Below(2))))};
    outer.body = {next, place.Get()};
    outer.otherwise = {place.Get(), next};
    next = outer;
    Erase(place);
}

// What should proceed together does not.
void Slipper::Ungroup()
{
    for (int tries = 0; tries < 30; tries++) {
        Place place = Any();

        if (place.Get().kind == "group")
            return Unwrap(place);
    }
}

bool MayBeLaunched(const Stmt &stmt)
{
    static const std::set<std::string> ops = {"matmul", "wait", "record"};
    bool may = stmt.kind == "op" ? ops.count(stmt.op) > 0
                                 : stmt.kind == "for" || stmt.kind == "if";

    for (const std::vector<Stmt> &block : {stmt.body, stmt.otherwise})
        for (const Stmt &inner : block)
            may = may && MayBeLaunched(inner);
    return may;
}

// A launch is none, or a statement and those behind it become one.
void Slipper::Launch()
{
    for (int tries = 0; tries < 30; tries++) {
        Place place = Any();
        Stmt launch;

        if (place.Get().kind == "launch" && Below(2))
            return Unwrap(place);
        launch.kind = "launch";
        for (size_t n = 1 + Below(4); n > 0; n--)
            if (place.at < place.block->size() && MayBeLaunched(place.Get())) {
                launch.body.push_back(place.Get());
                Erase(place);
            }
        if (launch.body.empty())
            continue;
        place.block->insert(place.block->begin() + static_cast<long>(place.at),
                            launch);
        return;
    }
}

// One buffer takes the bytes of another, as a placement with a bug has it.
void Slipper::Rename()
{
    auto &decls = program_->decls;

    for (int tries = 0; tries < 30; tries++) {
        size_t i = Below(decls.size()), k = Below(decls.size());

        if (k >= i || !decls[k].of.empty() || decls[i].role != "temp" ||
            decls[i].dtype == "event" || decls[k].role == "in" ||
            decls[i].dtype != decls[k].dtype)
            continue;
        decls[i].of = decls[k].name;
        decls[i].shared = false;
        decls[k].shared = true;
        return;
    }
}

// Both ends of a range go along.
void PutAt(Index *index, const Expr &at)
{
    for (Expr &past : index->past)
        past = Make("+", at, Make("-", past, index->at));
    index->at = at;
}

void Numbers(Expr *e, std::vector<Expr *> *out)
{
    if (e->op == "number")
        out->push_back(e);
    for (Expr &arg : e->args)
        Numbers(&arg, out);
}

std::vector<View *> Views(Stmt *stmt)
{
    std::vector<View *> views;

    for (View &view : stmt->results)
        views.push_back(&view);
    for (View &view : stmt->operands)
        views.push_back(&view);
    for (Key &key : stmt->keys)
        for (View &view : key.view)
            views.push_back(&view);
    return views;
}

// A result lands on what the step reads, or near it.
void Slipper::Overlay()
{
    for (int tries = 0; tries < 30; tries++) {
        Stmt &stmt = Any().Get();

        if (stmt.results.empty() || stmt.operands.empty())
            continue;
        View &other = stmt.operands[Below(stmt.operands.size())];
        View &result = stmt.results[0];
        if (other.name != result.name && tries < 20)
            continue; // better one that is in place already
        if (other.name != result.name &&
            other.index.size() == result.index.size())
            result = other;
        View &moved = other.index.size() > result.index.size() ? other : result;
        // Where the two meet is for each rank to find out.
        for (Index &index : moved.index)
            if (!index.all && !program_->mesh.empty())
                PutAt(&index, Make("mod",
                                   Make("+", Name(program_->mesh[0].first),
                                        Number(static_cast<int64_t>(Below(2)))),
                                   Number(2 + static_cast<int64_t>(Below(2)))));
        return;
    }
}

void Slipper::ChangeNumber()
{
    std::vector<Expr *> numbers;
    Stmt &stmt = Any().Get();

    for (Expr &e : stmt.exprs)
        Numbers(&e, &numbers);
    for (Key &key : stmt.keys)
        for (Expr &e : key.expr)
            Numbers(&e, &numbers);
    for (View *view : Views(&stmt))
        for (Index &index : view->index) {
            Numbers(&index.at, &numbers);
            for (Expr &past : index.past)
                Numbers(&past, &numbers);
            for (Expr &of : index.of)
                Numbers(&of, &numbers);
        }
    if (numbers.empty())
        return;
    Expr *e = numbers[Below(numbers.size())];
    e->number = Below(2) ? e->number + 1 : std::max<int64_t>(e->number - 1, 0);
}

void Slipper::ChangeView()
{
    std::vector<View *> views = Views(&Any().Get());

    if (views.empty())
        return;
    View *view = views[Below(views.size())];
    if (Below(3) && view->name != "e") {
        View other;

        // A view as another statement has it, or another name alone.
        for (int tries = 0; tries < 5 && other.name.empty(); tries++) {
            std::vector<View *> there = Views(&Any().Get());

            if (!there.empty())
                other = *there[Below(there.size())];
        }
        if (Below(2) && !other.name.empty())
            *view = other;
        else
            view->name = program_->decls[Below(program_->decls.size())].name;
    } else if (!view->index.empty()) {
        Index &index = view->index[Below(view->index.size())];

        if (Below(2) && !index.all) {
            // The neighbour's in place of the own.
            PutAt(&index, Make("mod", Make("+", index.at, Number(1)),
                               Number(2 + static_cast<int64_t>(Below(2)))));
            return;
        }
        index.past.clear();
        index.of.clear();
        index.all = Below(8) == 0;
        index.at = Number(static_cast<int64_t>(Below(4)));
        if (Below(2) && !program_->mesh.empty())
            index.at = Name(program_->mesh[Below(program_->mesh.size())].first);
    }
}

// A range goes a step aside, or all of a statement begin or end elsewhere; or
// where nothing or one index was picked there is one.
void Slipper::ChangeRange()
{
    for (int tries = 0; tries < 30; tries++) {
        std::vector<View *> views = Views(&Any().Get());
        std::vector<Index *> ranges;

        for (View *view : views)
            for (Index &index : view->index)
                if (!index.past.empty())
                    ranges.push_back(&index);
        if (ranges.empty() && tries < 25)
            continue;
        if (ranges.empty()) {
            for (View *view : views) {
                if (view->index.empty())
                    view->index.emplace_back();
                view->index[0].all = false;
                view->index[0].of.clear();
                if (view->index[0].at.op.empty())
                    view->index[0].at = Number(0);
                view->index[0].past = {Make("+", view->index[0].at, Number(1))};
            }
            return;
        }
        std::string way = Below(2) ? "+" : "-";
        size_t which = Below(4);
        Index *one = ranges[Below(ranges.size())];
        if (which < 2)
            return PutAt(one, Make(way, one->at, Number(1)));
        for (Index *range : ranges) {
            Expr &end = which == 2 ? range->at : range->past[0];

            end = Make(way, end, Number(1));
        }
        return;
    }
}

void Slipper::ChangeKey()
{
    Stmt &stmt = Any().Get();

    if (!stmt.keys.empty() && Below(2)) {
        stmt.keys.erase(stmt.keys.begin() +
                        static_cast<long>(Below(stmt.keys.size())));
        return;
    }
    Key key;
    key.name = stmt.op == "send" || stmt.op == "recv" ? "get"
               : stmt.op == "matmul"                  ? "accumulate"
               : Below(2)                             ? "max"
                                                      : "min";
    if (stmt.op == "send" && Below(2)) {
        View event;

        event.name = "e";
        event.index.emplace_back();
        event.index[0].at = Number(static_cast<int64_t>(Below(3)));
        key.name = "done";
        key.view = {event};
    }
    stmt.keys.push_back(key);
}

void Slipper::ChangeOp()
{
    static const char *const ops[] = {"relu",       "copy", "all_reduce",
                                      "all_gather", "send", "all_to_all"};

    for (int tries = 0; tries < 10; tries++) {
        Stmt &stmt = Any().Get();

        if (stmt.kind != "op" || stmt.operands.size() != 1)
            continue;
        stmt.op = ops[Below(6)];
        return;
    }
}

void Slipper::ChangeDecl()
{
    static const char *const roles[] = {"in", "out", "inout", "temp"};
    Decl &decl = program_->decls[Below(program_->decls.size())];
    const Decl &other = program_->decls[Below(program_->decls.size())];

    switch (Below(4)) {
    case 0:
        decl.role = roles[Below(4)];
        break;
    case 1:
        decl.of.clear();
        break;
    case 2:
        for (Dim &dim : decl.dims)
            if (dim.extent.op == "number" && Below(2))
                dim.extent.number += static_cast<int64_t>(Below(2)) * 2 - 1;
        break;
    case 3:
        decl.role = "temp";
        decl.shared = false;
        decl.of = other.name;
    }
}

void Slipper::Once()
{
    if (places_.empty())
        return;
    Place place = Any();
    switch (Below(30)) {
    case 0:
        return Erase(place);
    case 1: {
        Stmt copy = place.Get();
        Place to = Below(2) ? place : Any();

        to.block->insert(to.block->begin() + static_cast<long>(to.at), copy);
        return;
    }
    case 2:
        if (place.at + 1 < place.block->size())
            std::swap(place.Get(), (*place.block)[place.at + 1]);
        return;
    case 3:
        return Move();
    case 4:
    case 5:
        return ChangeNumber();
    case 6:
    case 7:
        return ChangeView();
    case 8:
        return Wrap();
    case 9:
        return ChangeKey();
    case 10:
        return ChangeOp();
    case 11:
        return ChangeDecl();
    case 12:
        if (!place.Get().body.empty())
            Unwrap(place);
        return;
    case 13:
        return Cross();
    case 14:
        return Ungroup();
    case 15:
    case 16:
        return Rename();
    case 17:
    case 18:
    case 19:
    case 20:
        return Overlay();
    case 21:
    case 22:
    case 23:
    case 24:
        return ChangeRange();
    case 25:
    case 26:
        return Launch();
    default:
        return AnySync();
    }
}

// --------------------------------------------------------------- shrinking

// Each smaller program by one cut, in turn; the first that fails is taken.
bool Cut(Program *program, const std::function<bool(const Program &)> &fails)
{
    size_t n = Places(program).size();

    for (size_t i = 0; i < n; i++)
        for (int way = 0; way < 4; way++) {
            Program less = *program;
            Place place = Places(&less)[i];
            Stmt &stmt = place.Get();

            if (way == 0)
                Erase(place);
            else if (way == 1 && !stmt.body.empty())
                Unwrap(place);
            else if (way == 2 && !stmt.otherwise.empty())
                stmt.otherwise.clear();
            else if (way == 3 && !stmt.keys.empty())
                stmt.keys.pop_back();
            else
                continue;
            if (fails(less)) {
                *program = less;
                return true;
            }
        }
    for (size_t i = 0; i < program->decls.size(); i++) {
        Program less = *program;

        less.decls.erase(less.decls.begin() + static_cast<long>(i));
        if (fails(less)) {
            *program = less;
            return true;
        }
    }
    return false;
}

} // namespace

void Slip(Program *program, std::mt19937 &random)
{
    Slipper(program, random).Once();
}

Program Shrink(Program program,
               const std::function<bool(const Program &)> &fails)
{
    while (Cut(&program, fails))
        continue;
    return program;
}

} // namespace second
