#include "tests/second/model.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <random>
#include <set>

namespace second
{

namespace
{

using Bits = std::vector<uint64_t>;

void Put(Bits *bits, size_t i)
{
    (*bits)[i / 64] |= uint64_t{1} << (i % 64);
}

bool Has(const Bits &bits, size_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

bool Meet(const Bits &a, const Bits &b)
{
    for (size_t i = 0; i < a.size(); i++)
        if (a[i] & b[i])
            return true;
    return false;
}

uint64_t Mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

// --------------------------------------------------------------------- cells

// Elements that no view of a rank tells apart are one cell.
class Memory
{
  public:
    void Add(const Region &region, int64_t root_elements);
    void Number();
    const std::vector<size_t> &Cells(const Region &region);
    size_t ncells() const
    {
        return ncells_;
    }

  private:
    using Id = std::pair<std::pair<int, int64_t>,
                         std::vector<std::pair<int64_t, int64_t>>>;
    static Id IdOf(const Region &region)
    {
        return {{region.root, region.offset}, region.dims};
    }

    std::map<int, std::vector<size_t>> mark_; // of each element of a root
    size_t nmarks_ = 0, ncells_ = 0;
    std::map<Id, std::vector<size_t>> seen_;
};

void Memory::Add(const Region &region, int64_t root_elements)
{
    std::map<size_t, size_t> renamed;

    if (!seen_.insert({IdOf(region), {}}).second)
        return;
    if (root_elements > 1 << 20)
        throw TooLarge("a buffer that is too large");
    auto &mark = mark_[region.root];
    if (region.offset + region.Elements() > root_elements)
        throw Unreadable("a name that is larger than what it renames");
    if (mark.empty())
        mark.assign(static_cast<size_t>(root_elements), nmarks_++);
    for (int64_t at : region.Offsets()) {
        size_t &m = mark.at(static_cast<size_t>(at));
        auto found = renamed.insert({m, nmarks_});

        nmarks_ += found.second;
        m = found.first->second;
    }
}

void Memory::Number()
{
    std::map<size_t, size_t> cell;

    for (auto &root : mark_)
        for (size_t &m : root.second)
            m = cell.insert({m, cell.size()}).first->second;
    ncells_ = cell.size();
}

const std::vector<size_t> &Memory::Cells(const Region &region)
{
    std::vector<size_t> &cells = seen_.at(IdOf(region));

    if (cells.empty()) {
        const auto &mark = mark_.at(region.root);
        std::set<size_t> met;

        for (int64_t at : region.Offsets())
            if (met.insert(mark[static_cast<size_t>(at)]).second)
                cells.push_back(mark[static_cast<size_t>(at)]);
    }
    return cells;
}

// --------------------------------------------------------------------- graph

struct Touch {
    int decl;
    const std::vector<size_t> *cells;
};

// A step at work, or the caller between runs (`work` is null).
struct Access {
    int rank, run;
    const Work *work;
    int begin = -1, end = -1;
    std::vector<Touch> reads, writes;
    Bits read, write;
    std::vector<int> from; // accesses whose data this one takes
    std::string text;
};

struct Node {
    std::vector<int> after;  // what is promised
    std::vector<int> driver; // and what a driver may add
    std::vector<int> begins; // accesses
    int ends = -1;
};

using Frontier = std::vector<int>;

void Merge(Frontier *into, const Frontier &from)
{
    for (int node : from)
        if (std::find(into->begin(), into->end(), node) == into->end())
            into->push_back(node);
}

const int kRuns = 2;

class Graph
{
  public:
    Graph(const Program &program);

    void CheckPlaces(Verdict *out);
    void CheckEvents(Verdict *out) const;
    bool Proceeds() const; // under all blocking that a driver may show
    void Order();
    bool Ordered(const Access &a, const Access &b) const;
    bool Conflict(const Access &a, const Access &b) const
    {
        return a.rank == b.rank &&
               (Meet(a.write, b.read) || Meet(a.write, b.write) ||
                Meet(a.read, b.write));
    }
    void CheckOverlaps(Verdict *out) const;
    static Rule RuleOf(const Access &a, const Access &b);

    const Program &program;
    Shape shape;
    std::vector<std::vector<Step>> steps; // of each rank
    std::vector<Memory> memory;           // of each rank
    std::vector<Access> accesses;
    std::vector<Node> nodes;
    std::vector<std::vector<int>> caller; // of each rank, one more than runs
    std::vector<int> order;               // of nodes: one schedule
    std::vector<Bits> before;             // of each node, itself included

  private:
    int RootOf(int decl) const;
    int64_t RootElements(int rank, int decl) const;
    void CollectMemory(int rank);
    int AddNode(const Frontier &after);
    int AddAccess(int rank, int run, const Work *work, int begin);
    void BuildRank(int rank);
    void BuildCaller(int rank, int run, Frontier *stream);
    void BuildStep(int rank, int run, const Step &step,
                   std::vector<Frontier> *streams,
                   std::map<EventId, Frontier> *events, int *last);
    void MatchPairs();
    void MatchCollectives();
    void Join(const std::vector<int> &members);

    // Accesses in issue order: of a pair of ranks along an axis, and of each
    // rank's collectives along an axis.
    std::map<std::vector<int>, std::vector<int>> sends_, recvs_;
    std::map<std::vector<int>, std::map<int, std::vector<int>>> collectives_;
};

int Graph::RootOf(int decl) const
{
    const Decl &d = program.decls[static_cast<size_t>(decl)];

    return d.of.empty() ? decl : shape.decl.at(d.of);
}

int64_t Graph::RootElements(int rank, int decl) const
{
    return RoomElements(program, shape, rank, RootOf(decl));
}

void Graph::CollectMemory(int rank)
{
    Memory &mine = memory[static_cast<size_t>(rank)];

    for (size_t d = 0; d < program.decls.size(); d++)
        if (program.decls[d].dtype != "event") {
            int decl = static_cast<int>(d);

            mine.Add(Whole(program, shape, rank, decl),
                     RootElements(rank, decl));
        }
    for (const Step &step : steps[static_cast<size_t>(rank)])
        for (const Work &work : step.work) {
            for (const Region &r : work.reads)
                mine.Add(r, RootElements(rank, r.decl));
            for (const Region &r : work.writes)
                mine.Add(r, RootElements(rank, r.decl));
        }
    mine.Number();
}

int Graph::AddNode(const Frontier &after)
{
    nodes.emplace_back();
    nodes.back().after = after;
    return static_cast<int>(nodes.size()) - 1;
}

int Graph::AddAccess(int rank, int run, const Work *work, int begin)
{
    int id = static_cast<int>(accesses.size());
    Memory &mine = memory[static_cast<size_t>(rank)];
    Access a;

    a.rank = rank;
    a.run = run;
    a.work = work;
    a.begin = begin;
    a.end = AddNode({begin});
    a.read.resize(mine.ncells() / 64 + 1);
    a.write.resize(mine.ncells() / 64 + 1);
    a.text = work == nullptr ? "the caller" : work->text;
    a.text +=
        " of rank " + std::to_string(rank) + ", run " + std::to_string(run + 1);
    if (work != nullptr) {
        for (const Region &r : work->reads)
            a.reads.push_back({r.decl, &mine.Cells(r)});
        for (const Region &r : work->writes)
            a.writes.push_back({r.decl, &mine.Cells(r)});
    }
    nodes[static_cast<size_t>(begin)].begins.push_back(id);
    nodes[static_cast<size_t>(a.end)].ends = id;
    accesses.push_back(a);
    return id;
}

void Graph::BuildCaller(int rank, int run, Frontier *stream)
{
    int id = AddAccess(rank, run, nullptr, AddNode(*stream));
    Access &a = accesses[static_cast<size_t>(id)];

    for (size_t d = 0; d < program.decls.size(); d++) {
        int decl = static_cast<int>(d);
        const Decl &what = program.decls[d];

        if (what.role != "temp" && what.dtype != "event")
            a.writes.push_back({decl, &memory[static_cast<size_t>(rank)].Cells(
                                          Whole(program, shape, rank, decl))});
    }
    *stream = {a.end};
    caller[static_cast<size_t>(rank)].push_back(id);
}

// A transfer of nothing is not issued; what the other side has is asked all the
// same.
bool IsEmpty(const Work &work)
{
    return work.transfer && work.nothing;
}

// Stream i stands at index i + 1, the caller's at 0.
void Graph::BuildStep(int rank, int run, const Step &step,
                      std::vector<Frontier> *streams,
                      std::map<EventId, Frontier> *events, int *last)
{
    Frontier &mine = (*streams)[static_cast<size_t>(step.stream + 1)];

    if (step.kind == Step::RECORD) {
        for (const EventId &event : step.events)
            (*events)[event] = mine;
    } else if (step.kind == Step::WAIT) {
        for (const EventId &event : step.events)
            Merge(&mine, (*events)[event]); // nothing, if the caller records
    } else if (step.kind == Step::FORK) {
        for (size_t s = 1; s < streams->size(); s++)
            Merge(&(*streams)[s], (*streams)[0]);
    } else if (step.kind == Step::JOIN) {
        for (size_t s = 1; s < streams->size(); s++)
            Merge(&(*streams)[0], (*streams)[s]);
    } else {
        bool some = false;

        for (const Work &work : step.work)
            some |= !IsEmpty(work);
        int begin = some ? AddNode(mine) : -1;
        if (some)
            mine = {begin};
        for (const Work &work : step.work) {
            int id = -1;

            if (!IsEmpty(work)) {
                id = AddAccess(rank, run, &work, begin);
                int end = accesses[static_cast<size_t>(id)].end;

                if (work.deferred)
                    (*events)[work.event] = {end};
                else
                    mine.push_back(end);
            }
            if (!work.transfer)
                continue;
            if (work.op == "send")
                sends_[{run, rank, work.peer, work.axis}].push_back(id);
            else if (work.op == "recv")
                recvs_[{run, work.peer, rank, work.axis}].push_back(id);
            else {
                auto at = shape.Coordinates(rank);
                at[static_cast<size_t>(work.axis)] = 0;
                collectives_[{run, shape.Rank(at), work.axis}][rank].push_back(
                    id);
            }
        }
        if (some && step.work[0].transfer) {
            if (*last >= 0) // transfers of a rank start in issue order
                nodes[static_cast<size_t>(begin)].driver.push_back(*last);
            *last = begin;
        }
    }
}

void Graph::BuildRank(int rank)
{
    std::vector<Frontier> streams(static_cast<size_t>(shape.streams) + 1);
    int last = -1;

    for (int run = 0; run < kRuns; run++) {
        std::map<EventId, Frontier> events;

        BuildCaller(rank, run, &streams[0]);
        for (const Step &step : steps[static_cast<size_t>(rank)])
            BuildStep(rank, run, step, &streams, &events, &last);
    }
    BuildCaller(rank, kRuns, &streams[0]);
}

void Graph::MatchPairs()
{
    for (auto &entry : recvs_)
        sends_[entry.first];
    for (auto &entry : sends_) {
        auto &recvs = recvs_[entry.first];

        // Of nothing more on one side there is nothing to say.
        for (auto *list : {&entry.second, &recvs})
            while (!list->empty() && list->back() < 0)
                list->pop_back();
        if (recvs.size() != entry.second.size())
            throw Broken(MISMATCH, "a send or recv without the other");
        for (size_t i = 0; i < recvs.size(); i++) {
            if (recvs[i] < 0 && entry.second[i] < 0)
                continue;
            if (recvs[i] < 0 || entry.second[i] < 0)
                throw Broken(MISMATCH, "a send and its recv differ in size");
            Access &s = accesses[static_cast<size_t>(entry.second[i])];
            Access &r = accesses[static_cast<size_t>(recvs[i])];

            if (s.work->elements != r.work->elements ||
                s.work->dtype != r.work->dtype)
                throw Broken(MISMATCH, "a send and its recv differ in size");
            if (s.work->get != r.work->get)
                throw Broken(MISMATCH, "a send and its recv: protocol");
            r.from = {entry.second[i]};
            nodes[static_cast<size_t>(r.end)].after.push_back(s.end);
            nodes[static_cast<size_t>(s.end)].driver.push_back(r.begin);
        }
    }
}

void Graph::Join(const std::vector<int> &members)
{
    const Work &first = *accesses[static_cast<size_t>(members[0])].work;

    for (int id : members) {
        Access &a = accesses[static_cast<size_t>(id)];
        const Work &w = *a.work;

        if (w.op != first.op || w.root != first.root || w.fold != first.fold ||
            w.elements != first.elements || w.dtype != first.dtype)
            throw Broken(MISMATCH, "ranks issue different collectives");
        for (int other : members) {
            const Access &o = accesses[static_cast<size_t>(other)];

            if (o.work->sends && (a.work->receives || other == id)) {
                a.from.push_back(other);
                nodes[static_cast<size_t>(a.end)].after.push_back(o.begin);
            }
            nodes[static_cast<size_t>(a.end)].driver.push_back(o.begin);
        }
    }
}

void Graph::MatchCollectives()
{
    for (auto &entry : collectives_) {
        auto &lists = entry.second;
        size_t n = 0;
        size_t size = static_cast<size_t>(
            shape.mesh[static_cast<size_t>(entry.first[2])].second);

        for (auto &list : lists) {
            while (!list.second.empty() && list.second.back() < 0)
                list.second.pop_back();
            n = std::max(n, list.second.size());
        }
        for (auto &list : lists)
            if (n > 0 && (list.second.size() != n || lists.size() != size))
                throw Broken(MISMATCH, "a collective that some do not issue");
        for (size_t i = 0; i < n; i++) {
            std::vector<int> members;
            size_t nothing = 0;

            for (auto &list : lists) {
                members.push_back(list.second[i]);
                nothing += list.second[i] < 0;
            }
            if (nothing == size)
                continue;
            if (nothing > 0)
                throw Broken(MISMATCH, "ranks issue different collectives");
            Join(members);
        }
    }
}

Graph::Graph(const Program &p) : program(p), shape(p)
{
    size_t ranks = static_cast<size_t>(shape.ranks);

    memory.resize(ranks);
    caller.resize(ranks);
    for (int rank = 0; rank < shape.ranks; rank++)
        steps.push_back(Unroll(program, shape, rank));
    for (int rank = 0; rank < shape.ranks; rank++) {
        CollectMemory(rank);
        BuildRank(rank);
    }
    MatchPairs();
    MatchCollectives();
    for (Access &a : accesses) {
        for (const Touch &touch : a.reads)
            for (size_t cell : *touch.cells)
                Put(&a.read, cell);
        for (const Touch &touch : a.writes)
            for (size_t cell : *touch.cells)
                Put(&a.write, cell);
    }
}

// ------------------------------------------------------ what the graph says

void Graph::CheckPlaces(Verdict *out)
{
    for (int rank = 0; rank < shape.ranks; rank++) {
        Memory &mine = memory[static_cast<size_t>(rank)];

        for (const Step &step : steps[static_cast<size_t>(rank)])
            for (const Work &work : step.work)
                for (const auto &clash : work.clashes) {
                    const auto &a = mine.Cells(clash.first);
                    std::set<size_t> cells(a.begin(), a.end());

                    for (size_t cell : mine.Cells(clash.second))
                        if (cells.count(cell))
                            out->broken.insert(
                                {IN_PLACE, work.text + " of rank " +
                                               std::to_string(rank)});
                }
    }
}

// Every `out` event is recorded on every rank.
void Graph::CheckEvents(Verdict *out) const
{
    for (const auto &mine : steps) {
        std::set<int> recorded;

        for (const Step &step : mine) {
            if (step.kind == Step::RECORD)
                for (const EventId &event : step.events)
                    recorded.insert(event.first);
            for (const Work &work : step.work)
                recorded.insert(work.event.first);
        }
        for (size_t i = 0; i < program.decls.size(); i++)
            if (program.decls[i].role == "out" &&
                program.decls[i].dtype == "event" &&
                !recorded.count(static_cast<int>(i)))
                out->broken.insert({HOLE, "%" + program.decls[i].name});
    }
}

// Nodes in an order in which each comes after what it waits for; those that
// wait for ever are left out.
std::vector<int> Sorted(const std::vector<Node> &nodes, bool driver)
{
    std::vector<int> pending(nodes.size()), sorted;
    std::vector<std::vector<int>> next(nodes.size());
    std::priority_queue<int, std::vector<int>, std::greater<int>> ready;

    for (size_t i = 0; i < nodes.size(); i++) {
        for (int node : nodes[i].after)
            next[static_cast<size_t>(node)].push_back(static_cast<int>(i));
        if (driver)
            for (int node : nodes[i].driver)
                next[static_cast<size_t>(node)].push_back(static_cast<int>(i));
        pending[i] = static_cast<int>(nodes[i].after.size() +
                                      (driver ? nodes[i].driver.size() : 0));
        if (pending[i] == 0)
            ready.push(static_cast<int>(i));
    }
    while (!ready.empty()) {
        int node = ready.top();

        ready.pop();
        sorted.push_back(node);
        for (int n : next[static_cast<size_t>(node)])
            if (--pending[static_cast<size_t>(n)] == 0)
                ready.push(n);
    }
    return sorted;
}

bool Graph::Proceeds() const
{
    return Sorted(nodes, true).size() == nodes.size();
}

void Graph::Order()
{
    order = Sorted(nodes, false);
    before.assign(nodes.size(), Bits(nodes.size() / 64 + 1));
    for (int node : order) {
        Bits &mine = before[static_cast<size_t>(node)];

        Put(&mine, static_cast<size_t>(node));
        for (int other : nodes[static_cast<size_t>(node)].after)
            for (size_t i = 0; i < mine.size(); i++)
                mine[i] |= before[static_cast<size_t>(other)][i];
    }
}

bool Graph::Ordered(const Access &a, const Access &b) const
{
    return Has(before[static_cast<size_t>(b.begin)],
               static_cast<size_t>(a.end)) ||
           Has(before[static_cast<size_t>(a.begin)],
               static_cast<size_t>(b.end));
}

Rule Graph::RuleOf(const Access &a, const Access &b)
{
    if (a.work != nullptr && b.work != nullptr)
        return RACE;
    const Access &work = a.work != nullptr ? a : b;
    const Access &caller = a.work != nullptr ? b : a;
    return work.run >= caller.run ? EARLY : UNJOINED;
}

void Graph::CheckOverlaps(Verdict *out) const
{
    std::vector<std::vector<const Access *>> of(
        static_cast<size_t>(shape.ranks));

    for (const Access &a : accesses) {
        auto &mine = of[static_cast<size_t>(a.rank)];

        for (const Access *b : mine)
            if (Conflict(a, *b) && !Ordered(a, *b))
                out->broken.insert({RuleOf(a, *b), a.text + " and " + b->text});
        mine.push_back(&a);
        if (a.work == nullptr)
            continue;
        int next =
            caller[static_cast<size_t>(a.rank)][static_cast<size_t>(a.run) + 1];
        int end = accesses[static_cast<size_t>(next)].begin;
        if (!Has(before[static_cast<size_t>(end)], static_cast<size_t>(a.end)))
            out->broken.insert({UNJOINED, a.text});
    }
}

// ----------------------------------------------------------------- execution

struct Cell {
    int readers = 0, writers = 0;
    int run = -1;           // in which it was written; -1: undefined
    std::vector<int> names; // through which, in that run
    int last = -1;          // the last of them
    uint64_t value = 0;
};

// One schedule on cells.
class Execution
{
  public:
    explicit Execution(const Graph &graph);

    void Do(int node);
    bool Ready(int node) const;
    void RunRandom(unsigned seed);
    void RunLate(int access); // that one ends as late as it can
    std::vector<uint64_t> Values() const
    {
        return seen_;
    }

    std::map<Rule, std::string> broken;

  private:
    void Begin(int id);
    void End(int id);
    void Read(const Access &a, const Touch &touch, size_t cell);
    void Finish(const Access &caller);
    Cell &At(const Access &a, size_t cell)
    {
        return cells_[static_cast<size_t>(a.rank)][cell];
    }

    const Graph &graph_;
    std::vector<std::vector<Cell>> cells_;
    std::vector<char> done_, active_;
    std::vector<uint64_t> took_; // what an access read
    std::vector<uint64_t> seen_; // what every access read: the answer
};

Execution::Execution(const Graph &graph)
    : graph_(graph), done_(graph.nodes.size()), active_(graph.accesses.size()),
      took_(graph.accesses.size()), seen_(graph.accesses.size())
{
    for (const Memory &m : graph.memory)
        cells_.emplace_back(m.ncells());
}

void Execution::Read(const Access &a, const Touch &touch, size_t cell)
{
    const Cell &c = At(a, cell);
    auto &names = c.names;

    if (c.run != a.run)
        broken.insert({UNWRITTEN, a.text});
    else if (c.last != touch.decl &&
             std::find(names.begin(), names.end(), touch.decl) != names.end())
        broken.insert({LIFETIME, a.text});
}

void Execution::Begin(int id)
{
    const Access &a = graph_.accesses[static_cast<size_t>(id)];

    if (a.work == nullptr && a.run > 0)
        Finish(a);
    for (size_t i = 0; i < active_.size(); i++) {
        const Access &b = graph_.accesses[i];

        if (active_[i] && graph_.Conflict(a, b))
            broken.insert({Graph::RuleOf(a, b), a.text + " and " + b.text});
    }
    active_[static_cast<size_t>(id)] = true;
    uint64_t hash = 1;
    for (const Touch &touch : a.reads)
        for (size_t cell : *touch.cells) {
            Read(a, touch, cell);
            hash = Mix(hash, At(a, cell).value);
        }
    took_[static_cast<size_t>(id)] = hash;
}

// All work of the run has ended, and its outputs are whole.
void Execution::Finish(const Access &caller)
{
    for (const Access &a : graph_.accesses)
        if (a.rank == caller.rank && a.work != nullptr && a.run < caller.run &&
            !done_[static_cast<size_t>(a.end)])
            broken.insert({UNJOINED, a.text});
    for (const Touch &touch : caller.writes)
        for (size_t cell : *touch.cells)
            if (At(caller, cell).run != caller.run - 1)
                broken.insert(
                    {HOLE,
                     "%" +
                         graph_.program.decls[static_cast<size_t>(touch.decl)]
                             .name +
                         " of rank " + std::to_string(caller.rank)});
}

void Execution::End(int id)
{
    const Access &a = graph_.accesses[static_cast<size_t>(id)];
    uint64_t hash =
        Mix(static_cast<uint64_t>(id), took_[static_cast<size_t>(id)]);

    for (int other : a.from)
        hash = Mix(hash, took_[static_cast<size_t>(other)]);
    active_[static_cast<size_t>(id)] = false;
    seen_[static_cast<size_t>(id)] = hash;
    for (const Touch &touch : a.writes) {
        bool undefined =
            a.work == nullptr &&
            graph_.program.decls[static_cast<size_t>(touch.decl)].role == "out";

        for (size_t cell : *touch.cells) {
            Cell &c = At(a, cell);

            if (c.run != a.run)
                c.names.clear();
            c.run = undefined ? -1 : a.run;
            if (undefined)
                continue;
            if (std::find(c.names.begin(), c.names.end(), touch.decl) ==
                c.names.end())
                c.names.push_back(touch.decl);
            c.last = touch.decl;
            c.value = Mix(hash, cell);
        }
    }
}

void Execution::Do(int node)
{
    const Node &n = graph_.nodes[static_cast<size_t>(node)];

    for (int id : n.begins)
        Begin(id);
    if (n.ends >= 0)
        End(n.ends);
    done_[static_cast<size_t>(node)] = true;
}

bool Execution::Ready(int node) const
{
    for (int other : graph_.nodes[static_cast<size_t>(node)].after)
        if (!done_[static_cast<size_t>(other)])
            return false;
    return !done_[static_cast<size_t>(node)];
}

void Execution::RunRandom(unsigned seed)
{
    std::mt19937 random(seed);
    std::vector<int> pending(graph_.nodes.size()), ready;
    std::vector<std::vector<int>> next(graph_.nodes.size());

    for (size_t i = 0; i < graph_.nodes.size(); i++) {
        for (int node : graph_.nodes[i].after)
            next[static_cast<size_t>(node)].push_back(static_cast<int>(i));
        pending[i] = static_cast<int>(graph_.nodes[i].after.size());
        if (pending[i] == 0)
            ready.push_back(static_cast<int>(i));
    }
    // Now and then the newest goes first, which lets one rank run far ahead.
    unsigned newest = random() % 4;
    while (!ready.empty()) {
        size_t at =
            random() % 4 < newest ? ready.size() - 1 : random() % ready.size();
        int node = ready[at];

        ready.erase(ready.begin() + static_cast<long>(at));
        Do(node);
        for (int n : next[static_cast<size_t>(node)])
            if (--pending[static_cast<size_t>(n)] == 0)
                ready.push_back(n);
    }
}

void Execution::RunLate(int access)
{
    int late =
        access < 0 ? -1 : graph_.accesses[static_cast<size_t>(access)].end;

    // The order of the graph is one in which all can be done, so one pass over
    // it does whatever needs no end of `late`, and a second one the rest.
    for (int pass = 0; pass < 2; pass++)
        for (int node : graph_.order)
            if ((pass > 0 || node != late) && Ready(node))
                Do(node);
}

// --------------------------------------------------------- all interleavings

// Which rules of overlap some interleaving breaks. A state is the set of nodes
// done; false if there are more of them than `limit`.
bool Enumerate(const Graph &graph, long limit, std::set<Rule> *out)
{
    size_t words = graph.nodes.size() / 64 + 1;
    std::set<Bits> met;
    std::vector<Bits> open = {Bits(words)};

    while (!open.empty()) {
        Bits state = open.back();

        open.pop_back();
        for (size_t n = 0; n < graph.nodes.size(); n++) {
            bool ready = !Has(state, n);

            for (int other : graph.nodes[n].after)
                ready = ready && Has(state, static_cast<size_t>(other));
            if (!ready)
                continue;
            Bits next = state;
            Put(&next, n);
            if (!met.insert(next).second)
                continue;
            if (static_cast<long>(met.size()) > limit)
                return false;
            open.push_back(next);
            for (int id : graph.nodes[n].begins) {
                const Access &a = graph.accesses[static_cast<size_t>(id)];

                for (const Access &b : graph.accesses) {
                    bool begun = Has(next, static_cast<size_t>(b.begin));
                    bool ended = Has(next, static_cast<size_t>(b.end));

                    if (&a == &b)
                        continue;
                    if (begun && !ended && graph.Conflict(a, b))
                        out->insert(Graph::RuleOf(a, b));
                    if (a.work == nullptr && b.work != nullptr && !ended &&
                        b.rank == a.rank && b.run < a.run)
                        out->insert(UNJOINED);
                }
            }
        }
    }
    return true;
}

std::set<Rule> Overlaps(const std::map<Rule, std::string> &broken)
{
    std::set<Rule> rules;

    for (Rule rule : {RACE, EARLY, UNJOINED})
        if (broken.count(rule))
            rules.insert(rule);
    return rules;
}

std::string Words(const std::set<Rule> &rules)
{
    std::string text = "{";

    for (Rule rule : rules)
        text += std::string(" ") + kRuleText[rule];
    return text + " }";
}

// ---------------------------------------------------------------- everything

// Schedules beside the graph: each shows no more than the graph says, those
// that delay one step show all of it together, and without a finding all read
// the same values.
void Execute(const Graph &graph, const Schedules &schedules, Verdict *out)
{
    Execution base(graph);
    std::set<Rule> shown, said = Overlaps(out->broken);

    base.RunLate(-1);
    for (Rule rule : {UNWRITTEN, LIFETIME, HOLE})
        if (base.broken.count(rule))
            out->broken.insert({rule, base.broken.at(rule)});
    for (int i = 0; i < schedules.random; i++) {
        Execution one(graph);

        one.RunRandom(schedules.seed + static_cast<unsigned>(i));
        for (Rule rule : Overlaps(one.broken))
            if (!said.count(rule))
                out->inconsistent = "a schedule shows " + Words({rule});
        if (said.empty() && one.Values() != base.Values())
            out->inconsistent = "values depend on the schedule";
        for (const auto &entry : one.broken)
            if (said.empty() && !out->broken.count(entry.first))
                out->inconsistent = "a schedule shows " + entry.second;
    }
    if (schedules.each) {
        for (size_t i = 0; i < graph.accesses.size(); i++) {
            Execution one(graph);

            one.RunLate(static_cast<int>(i));
            for (Rule rule : Overlaps(one.broken))
                shown.insert(rule);
        }
        if (shown != said)
            out->inconsistent =
                "schedules show " + Words(shown) + ", not " + Words(said);
    }
    shown.clear();
    if (schedules.states > 0 && Enumerate(graph, schedules.states, &shown)) {
        out->enumerated = true;
        if (shown != said)
            out->inconsistent =
                "all states show " + Words(shown) + ", not " + Words(said);
    }
}

} // namespace

std::string Verdict::Text() const
{
    std::string text = broken.empty() ? "clean" : "";

    for (const auto &entry : broken)
        text += (text.empty() ? "" : "; ") +
                std::string(kRuleText[entry.first]) + ": " + entry.second;
    return text;
}

Verdict Judge(const Program &program, const Schedules &schedules)
{
    Verdict verdict;

    try {
        Graph graph(program);

        if (!graph.Proceeds()) {
            verdict.broken.insert({DEADLOCK, ""});
            return verdict;
        }
        verdict.launch = Explore(program);
        if (verdict.launch == Launches::HANG)
            verdict.broken.insert({DEADLOCK, "by a launch"});
        graph.CheckPlaces(&verdict);
        graph.CheckEvents(&verdict);
        graph.Order();
        graph.CheckOverlaps(&verdict);
        Execute(graph, schedules, &verdict);
    } catch (const Broken &broken) {
        verdict.broken.insert({broken.rule, broken.what()});
    }
    return verdict;
}

} // namespace second
