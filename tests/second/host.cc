// A host program: each rank's streams go on as far as they can, in turn, until
// nothing is left. What a send reads is taken when its step begins and lies in
// the mail until the receiver comes for it, which no program that is free of
// races can tell from a rendezvous; so do the operands of collectives.
#include <algorithm>
#include <set>
#include <tuple>

#include "tests/second/compute.h"
#include "tests/second/evaluate.h"

namespace second
{

namespace
{

const std::map<std::string, std::set<std::string>> kTransfers = {
    {"send", {"to", "get", "done"}},
    {"recv", {"from", "get"}},
    {"all_gather", {}},
    {"reduce_scatter", {"max", "min"}},
    {"all_reduce", {"max", "min"}},
    {"broadcast", {"root"}},
    {"reduce", {"root", "max", "min"}},
    {"all_to_all", {}}};

const std::set<std::string> kSync = {"record", "wait", "fork", "join"};

using Values = std::vector<Scalar>;

// Where the mail for a transfer lies: of a collective that of each coordinate.
using Address = std::tuple<int, int, int, int>; // from, to or -1, axis, number

struct Member {
    Work work;
    Address address;
    int own = 0;       // coordinate
    bool none = false; // it moves nothing, and waits for nobody
};

struct Issued {
    Step::Kind kind;
    int stream;
    std::vector<Member> members;
    std::vector<size_t> after; // steps of this rank that end before
    // How many steps of streams end before.
    std::vector<std::pair<int, size_t>> joined;
    bool begun = false, ended = false;
};

struct Rank {
    int rank;
    Memory memory;
    std::vector<Issued> steps;
    std::map<int, std::vector<size_t>> streams; // what each was given, in order
    std::map<int, size_t> next;                 // how much of that has ended
};

class Machine
{
  public:
    Machine(const Program &program, const Arrays &given);
    void Run();
    Shards Answers() const;

  private:
    void Load(Rank *rank, const Arrays &given);
    void Issue(Rank *rank);
    void Order(Rank *rank, const Step &step, Issued *issued);
    void Match(Rank *rank, Member *member);
    bool Advance(Rank *rank);
    bool MayBegin(const Rank &rank, const Issued &step) const;
    void Overwrite(Rank *rank, const Work &work);
    void Begin(Rank *rank, Issued *step);
    bool End(Rank *rank, Issued *step);
    bool IsThere(const Member &member) const;
    Values Bring(Rank *rank, const Member &member);
    void Take(Rank *rank, const Member &member);
    Values Joined(const Member &member, const std::vector<Values> &parts) const;

    const Program &program_;
    Shape shape_;
    std::vector<Rank> ranks_;
    std::map<Address, std::map<int, Values>> mail_; // by coordinate
    std::map<std::tuple<int, int, int>, int> sent_, received_;
    std::map<std::pair<int, int>, int> met_; // rank, axis
    std::map<std::pair<int, EventId>, size_t> recorded_;
};

Machine::Machine(const Program &program, const Arrays &given)
    : program_(program), shape_(program)
{
    for (int r = 0; r < shape_.ranks; r++) {
        ranks_.push_back({});
        ranks_.back().rank = r;
        Load(&ranks_.back(), given);
        Issue(&ranks_.back());
    }
}

void Machine::Load(Rank *rank, const Arrays &given)
{
    for (size_t i = 0; i < program_.decls.size(); i++) {
        const Decl &decl = program_.decls[i];
        int n = static_cast<int>(i);

        if (decl.dtype == "event")
            continue;
        Values &values = rank->memory[Bank(program_, shape_, n)];
        Values all = Lost(RoomElements(program_, shape_, rank->rank, n));
        if (all.size() > values.size())
            values.swap(all);
        if (decl.role == "in" || decl.role == "inout")
            for (auto place : Places(program_, shape_, rank->rank, n))
                values.at(static_cast<size_t>(place.first)) =
                    given.at(decl.name).at(static_cast<size_t>(place.second));
    }
}

// Transfers between two ranks, and collectives of an axis, match in the order
// in which they are issued.
void Machine::Match(Rank *rank, Member *member)
{
    const Work &work = member->work;
    std::vector<int64_t> at = shape_.Coordinates(rank->rank);
    size_t axis = static_cast<size_t>(work.axis);

    member->own = static_cast<int>(at[axis]);
    at[axis] = 0;
    if (work.op == "send" || work.op == "recv") {
        bool sends = work.op == "send";
        int from = sends ? rank->rank : work.peer;
        int to = sends ? work.peer : rank->rank;
        auto &count = sends ? sent_ : received_;

        member->address = {from, to, work.axis, count[{from, to, work.axis}]++};
    } else {
        member->address = {shape_.Rank(at), -1, work.axis,
                           met_[{rank->rank, work.axis}]++};
    }
}

// What a step waits for beside its own stream.
void Machine::Order(Rank *rank, const Step &step, Issued *issued)
{
    for (const EventId &event : step.events) {
        auto record = recorded_.find({rank->rank, event});

        if (step.kind == Step::WAIT && record != recorded_.end())
            issued->after.push_back(record->second);
        if (step.kind == Step::RECORD)
            recorded_[{rank->rank, event}] = rank->steps.size();
    }
    for (const auto &stream : rank->streams)
        if (step.kind == Step::JOIN && stream.first >= 0)
            issued->joined.push_back({stream.first, stream.second.size()});
    for (const Work &work : step.work)
        if (work.deferred)
            recorded_[{rank->rank, work.event}] = rank->steps.size();
}

// Whether a transfer that one side of may leave out is of no elements.
bool IsOfNone(const Work &work)
{
    static const std::set<std::string> kLeftOut = {"recv", "broadcast",
                                                   "reduce"};

    const std::vector<Seen> &moved = work.op == "reduce" ? work.from : work.to;

    return kLeftOut.count(work.op) > 0 && !moved.empty() &&
           moved[0].region.Offsets().empty();
}

void Machine::Issue(Rank *rank)
{
    for (const Step &step : Unroll(program_, shape_, rank->rank)) {
        Issued issued = {};

        issued.kind = step.kind;
        issued.stream = step.kind == Step::FORK || step.kind == Step::JOIN
                            ? -1
                            : step.stream;
        Order(rank, step, &issued);
        for (const Work &work : step.work) {
            issued.members.push_back({work, {}, 0, IsOfNone(work)});
            if (work.transfer)
                Match(rank, &issued.members.back());
        }
        size_t index = rank->steps.size();
        rank->streams[issued.stream].push_back(index);
        rank->next[issued.stream] = 0;
        if (step.kind == Step::FORK) // stands on every work stream too
            for (int s = 0; s < shape_.streams; s++) {
                rank->streams[s].push_back(index);
                rank->next[s] = 0;
            }
        rank->steps.push_back(issued);
    }
}

// What is written ends the values of names of the same bytes whose elements are
// of another size.
void Machine::Overwrite(Rank *rank, const Work &work)
{
    std::vector<Seen> written = work.to;
    int decls = static_cast<int>(program_.decls.size());

    if (work.keys.count("aux"))
        written.push_back(work.keys.at("aux"));
    for (const Seen &seen : written)
        for (auto &bank : rank->memory) {
            int64_t size = SizeOf(seen.dtype);

            if (bank.first < 0 || bank.first == seen.region.root ||
                bank.first % decls != seen.region.root % decls)
                continue;
            int64_t other =
                bank.first < decls
                    ? SizeOf(
                          program_.decls[static_cast<size_t>(bank.first)].dtype)
                    : bank.first / decls;
            for (int64_t at : seen.region.Offsets())
                for (int64_t byte = at * size; byte < at * size + size; byte++)
                    if (static_cast<size_t>(byte / other) < bank.second.size())
                        bank.second[static_cast<size_t>(byte / other)].lost =
                            true;
        }
}

bool Machine::MayBegin(const Rank &rank, const Issued &step) const
{
    for (size_t before : step.after)
        if (!rank.steps[before].ended)
            return false;
    for (const auto &stream : step.joined)
        if (rank.next.at(stream.first) < stream.second)
            return false;
    return true;
}

Values Machine::Bring(Rank *rank, const Member &member)
{
    const Work &work = member.work;
    Memory *memory = &rank->memory;

    if (work.op == "broadcast" && !work.sends)
        return {};
    bool counted = (work.op == "send" && !work.get) || work.op == "all_to_all";
    return Read(memory, work.from.at(0), counted);
}

void Machine::Begin(Rank *rank, Issued *step)
{
    step->begun = true;
    for (Member &member : step->members) {
        if (!member.work.transfer) {
            Compute(member.work, shape_, &rank->memory);
            Overwrite(rank, member.work);
        } else if (member.work.op != "recv") {
            mail_[member.address][member.own] = Bring(rank, member);
        }
    }
}

bool Machine::IsThere(const Member &member) const
{
    const Work &work = member.work;

    if (!work.transfer || work.op == "send" || member.none)
        return true;
    auto found = mail_.find(member.address);
    size_t all = work.op == "recv" ? 1 : static_cast<size_t>(work.size);
    return found != mail_.end() && found->second.size() == all;
}

// All of a collective's operands, added or picked as the operation says.
Values Machine::Joined(const Member &member,
                       const std::vector<Values> &parts) const
{
    const Work &work = member.work;
    bool scatters = work.op == "reduce_scatter";
    std::string fold = work.fold.empty() ? "sum" : work.fold;
    size_t n = parts[0].size() / (scatters ? parts.size() : 1);
    size_t first = scatters ? n * static_cast<size_t>(member.own) : 0;
    Values joined;

    for (size_t k = first; k < first + n; k++) {
        Scalar sum = parts[0][k];

        for (size_t i = 1; i < parts.size(); i++)
            sum = Combine(fold, work.to[0].dtype, sum, parts[i].at(k));
        joined.push_back(sum);
    }
    return joined;
}

// What a collective is to one of its ranks, once all have brought their parts.
void Machine::Take(Rank *rank, const Member &member)
{
    const Work &work = member.work;
    const std::string &op = work.op;
    std::vector<Values> parts;
    Values values;

    if (!work.transfer || op == "send" || work.to.empty() || member.none ||
        (op == "reduce" && !work.receives))
        return;
    for (const auto &part : mail_[member.address])
        parts.push_back(part.second);
    if (op == "recv") {
        values = parts[0];
    } else if (op == "broadcast") {
        values = parts.at(static_cast<size_t>(work.root));
    } else if (op == "all_gather") {
        for (const Values &part : parts)
            values.insert(values.end(), part.begin(), part.end());
    } else if (op == "all_to_all") {
        for (const Values &part : parts) {
            long n = static_cast<long>(part.size() / parts.size());
            auto own = part.begin() + n * member.own;

            values.insert(values.end(), own, own + n);
        }
    } else {
        values = Joined(member, parts);
    }
    Write(&rank->memory, work.to[0], values);
    Overwrite(rank, work);
}

bool Machine::End(Rank *rank, Issued *step)
{
    for (const Member &member : step->members)
        if (!IsThere(member))
            return false;
    for (const Member &member : step->members)
        Take(rank, member);
    step->ended = true;
    return true;
}

bool Machine::Advance(Rank *rank)
{
    bool moved = false;

    for (auto &stream : rank->streams)
        while (rank->next[stream.first] < stream.second.size()) {
            size_t index = stream.second[rank->next[stream.first]];
            Issued *step = &rank->steps[index];
            // Where a fork stands on other streams than its own it is waited
            // for alone.
            bool own = step->stream == stream.first;

            if (own && !step->begun && MayBegin(*rank, *step)) {
                Begin(rank, step);
                moved = true;
            }
            if (own && step->begun && !step->ended)
                End(rank, step);
            if (!step->ended)
                break;
            rank->next[stream.first]++;
            moved = true;
        }
    return moved;
}

void Machine::Run()
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (Rank &rank : ranks_)
            moved |= Advance(&rank);
    }
    for (const Rank &rank : ranks_)
        for (const Issued &step : rank.steps)
            if (!step.ended)
                throw Broken(DEADLOCK, "a step that never ends");
}

Shards Machine::Answers() const
{
    Shards shards;

    for (const Rank &rank : ranks_) {
        shards.push_back({});
        for (size_t i = 0; i < program_.decls.size(); i++) {
            const Decl &decl = program_.decls[i];
            int n = static_cast<int>(i);

            if ((decl.role != "out" && decl.role != "inout") ||
                decl.dtype == "event")
                continue;
            Shard &shard = shards.back()[decl.name];
            for (auto place : Places(program_, shape_, rank.rank, n)) {
                shard.place.push_back(place.second);
                shard.value.push_back(
                    rank.memory.at(n).at(static_cast<size_t>(place.first)));
            }
        }
    }
    return shards;
}

} // namespace

bool Executes(const std::string &op)
{
    return kTransfers.count(op) || kSync.count(op) ||
           (Computes(op) && op != "set" && op != "reshape");
}

bool ExecutesKey(const std::string &op, const std::string &key)
{
    return kTransfers.count(op) ? kTransfers.at(op).count(key) > 0
           : kSync.count(op)    ? false
                                : TakesKey(op, key);
}

Shards EvaluateHost(const Program &program, const Arrays &given)
{
    Machine machine(program, given);

    machine.Run();
    return machine.Answers();
}

} // namespace second
