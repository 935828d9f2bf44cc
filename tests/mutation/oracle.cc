// See oracle.h.
#include "tests/mutation/oracle.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace
{

enum Kind { PLAIN, WAIT, FORK, JOIN, SEND, RECV, COLLECTIVE };

struct Access {
    int buffer; // id of the root
    int name;   // id of the buffer it goes through
    bool reads, writes;
    std::vector<int> cells; // elements of all buffers of the rank in a row
};

// A step of one of the two runs, or what the caller does on its own stream
// between them: to read and write the arguments.
struct Step {
    Kind kind;
    const hd_op *op;             // nullptr: the caller's
    int rank, run, stream;       // stream 0 is the caller's
    long index;                  // in its run
    int group;                   // 0, or the same number for members
    bool async;                  // its stream goes on at its start
    std::vector<int> records;    // of a wait, steps of the same run
    int fork = -1;               // the last one issued before it, of either run
    int partner = -1;            // of a send or recv
    std::vector<int> rendezvous; // of a collective: the members
    bool hears_root_only = false, hears_nobody = false;
    int root = -1;         // the member that is the root
    int64_t me = 0;        // own coordinate, of a collective
    bool argument = false; // touches one
    std::vector<Access> accesses;
    bool spoils_itself = false; // writes what it also reads
};

const char *WordOf(const Step &s)
{
    return s.op != nullptr ? hd_op_info_get(s.op->code)->text : "caller's work";
}

// `part` is index `i` of what `all` lists.
bool IsPiece(const std::vector<int> &all, int64_t i,
             const std::vector<int> &part)
{
    size_t n = part.size(), at = static_cast<size_t>(i) * n;

    return at + n <= all.size() &&
           std::equal(part.begin(), part.end(),
                      all.begin() + static_cast<long>(at));
}

// A result over an operand that needs other elements than its own.
bool IsOverWrongly(const Step &s, const Access &result, const Access &operand)
{
    std::set<int> cells(result.cells.begin(), result.cells.end());

    if (std::none_of(operand.cells.begin(), operand.cells.end(),
                     [&](int c) { return cells.count(c) > 0; }))
        return false;
    if (operand.writes)
        return true;
    switch (s.op->code) {
    case HD_OP_REDUCE_SCATTER:
        return !IsPiece(operand.cells, s.me, result.cells);
    case HD_OP_ALL_GATHER:
        return !IsPiece(result.cells, s.me, operand.cells);
    case HD_OP_ALL_TO_ALL:
    case HD_OP_MATMUL:
    case HD_OP_TRANSPOSE:
    case HD_OP_PERMUTE:
    case HD_OP_TAKE:
        return true;
    default:
        return result.cells != operand.cells;
    }
}

bool SpoilsItself(const Step &s)
{
    for (size_t i = 0; i < s.accesses.size(); i++)
        for (size_t k = 0; k < s.accesses.size(); k++)
            if (i != k && s.accesses[i].writes &&
                IsOverWrongly(s, s.accesses[i], s.accesses[k]))
                return true;
    return false;
}

bool Records(const hd_op *op, const hd_buffer *event)
{
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer == event &&
            hd_op_access(op, i) == HD_ACCESS_RECORD)
            return true;
    return false;
}

// The program, unrolled.
class Program
{
  public:
    std::vector<Step> steps;
    std::vector<std::vector<int>> streams;   // by rank and stream, both runs
    std::vector<std::vector<int>> transfers; // by rank, in issue order
    std::vector<const hd_buffer *> owner;    // by cell: the root, of any rank
    int nranks, nstreams, ncells = 0;

    explicit Program(const hd_module *module)
        : nranks(static_cast<int>(module->nranks)),
          nstreams(static_cast<int>(module->streams) + 1), module_(module)
    {
        for (const hd_buffer *b = module->buffers; b != nullptr; b = b->next) {
            first_[b] = ncells;
            if (b->of == nullptr && b->type.dtype != HD_DTYPE_EVENT) {
                ncells += static_cast<int>(hd_type_local_elements(&b->type));
                owner.resize(static_cast<size_t>(ncells), b);
            }
        }
        streams.resize(static_cast<size_t>(nranks * nstreams));
        transfers.resize(static_cast<size_t>(nranks));
        for (int run = 0; run < 2; run++)
            for (int rank = 0; rank < nranks; rank++) {
                if (run == 1)
                    AddCaller(rank);
                Unroll(rank, run);
            }
        Pair();
        for (Step &s : steps) // which each of many schedules asks
            s.spoils_itself = SpoilsItself(s);
    }
    const std::vector<int> &StreamOf(int rank, int stream) const
    {
        return streams[static_cast<size_t>(rank * nstreams + stream)];
    }
    // What the caller of the rank does between the runs.
    int CallerOf(int rank) const
    {
        return caller_[static_cast<size_t>(rank)];
    }
    // Whether the rank has the element, or room for it alone.
    bool Has(int rank, int cell) const
    {
        const hd_buffer *b = owner[static_cast<size_t>(cell)];
        int64_t at = cell - first_.at(b);

        for (int d = b->type.ndims - 1; d >= 0; d--) {
            hd_dim dim = b->type.dim[d];
            int64_t extent = hd_module_extent(module_, dim);
            int64_t ranks = dim.mark < 0 ? 1 : module_->axis[dim.mark].size;
            int64_t coord =
                dim.mark < 0 ? 0 : hd_mesh_coord(module_, rank, dim.mark);
            int64_t room = dim.extent / ranks + (dim.extent % ranks > 0);
            int64_t block = extent / ranks + (extent % ranks > 0);

            if (at % room >= block || coord * block + at % room >= extent)
                return false;
            at /= room;
        }
        return true;
    }
    // An event that the caller is to get and that the rank never records.
    const hd_buffer *Unrecorded(int rank) const
    {
        for (const hd_buffer *b = module_->buffers; b != nullptr; b = b->next)
            if (b->role == HD_ROLE_OUT && b->type.dtype == HD_DTYPE_EVENT &&
                std::none_of(steps.begin(), steps.end(), [&](const Step &step) {
                    return step.rank == rank && step.op != nullptr &&
                           Records(step.op, b);
                }))
                return b;
        return nullptr;
    }

  private:
    const hd_module *module_;
    std::map<const hd_buffer *, int> first_;
    std::map<int, int> last_fork_; // by rank
    std::vector<int> caller_;      // by rank

    void AddCaller(int rank)
    {
        Step s = {};

        s.rank = rank;
        s.run = 1;
        s.index = -1;
        caller_.push_back(static_cast<int>(steps.size()));
        streams[static_cast<size_t>(rank * nstreams)].push_back(caller_.back());
        steps.push_back(s);
    }
    void Unroll(int rank, int run)
    {
        hd_steps list;
        int base = static_cast<int>(steps.size());

        if (hd_steps_collect(module_, rank, nullptr, &list) != HD_OK)
            return;
        for (int64_t i = 0; i < list.nsteps; i++)
            Add(list.step[i], rank, run, base);
        hd_steps_free(&list);
    }
    void Add(const hd_step &from, int rank, int run, int base)
    {
        Step s = {};
        int id = static_cast<int>(steps.size());

        s.op = from.op;
        s.kind = KindOf(from.op->code);
        s.rank = rank;
        s.run = run;
        s.stream = from.stream + 1;
        s.index = from.index;
        s.group = from.group;
        s.async = hd_op_key(from.op, HD_KEY_DONE) != nullptr;
        for (int i = 0; s.kind == WAIT && i < from.op->nviews; i++)
            if (from.record[i].step >= 0)
                s.records.push_back(base + from.record[i].step);
        s.partner = s.root = -1;
        s.me = from.op->axis >= 0 ? hd_mesh_coord(module_, rank, from.op->axis)
                                  : 0;
        s.fork =
            s.stream > 0 && last_fork_.count(rank) > 0 ? last_fork_[rank] : -1;
        if (s.kind == FORK)
            last_fork_[rank] = id;
        AddAccesses(from, &s);
        streams[static_cast<size_t>(rank * nstreams + s.stream)].push_back(id);
        if (s.kind >= SEND) {
            transfers[static_cast<size_t>(rank)].push_back(id);
            Meet(from, id, run);
        }
        steps.push_back(s);
    }
    static Kind KindOf(hd_opcode code)
    {
        switch (code) {
        case HD_OP_WAIT:
            return WAIT;
        case HD_OP_FORK:
            return FORK;
        case HD_OP_JOIN:
            return JOIN;
        case HD_OP_SEND:
            return SEND;
        case HD_OP_RECV:
            return RECV;
        default:
            return hd_op_info_get(code)->family == HD_FAMILY_MOVE ? COLLECTIVE
                                                                  : PLAIN;
        }
    }
    void AddAccesses(const hd_step &from, Step *s)
    {
        for (int i = 0; i < from.op->nviews; i++) {
            const hd_span &span = from.span[i];
            int access = hd_step_access(&from, i);

            if (span.buffer->type.dtype == HD_DTYPE_EVENT)
                continue;
            // What a broadcast sends is the root's to read, and what a reduce
            // makes the root's to write.
            if (from.peer != s->rank &&
                ((s->op->code == HD_OP_BROADCAST && i == s->op->noutputs) ||
                 (s->op->code == HD_OP_REDUCE && i < s->op->noutputs)))
                continue;
            Access a = {span.buffer->id,
                        from.op->view[i].buffer->id,
                        (access & HD_ACCESS_READ) != 0,
                        (access & HD_ACCESS_WRITE) != 0,
                        {}};
            for (int64_t k = 0; k < hd_span_elements(&span); k++)
                a.cells.push_back(first_[span.buffer] + Element(span, k));
            s->argument |= span.buffer->role != HD_ROLE_TEMP;
            s->accesses.push_back(a);
        }
    }
    static int Element(const hd_span &span, int64_t k)
    {
        int64_t at = span.offset;

        for (int d = span.ndims - 1; d >= 0; d--) {
            at += k % span.extent[d] * span.stride[d];
            k /= span.extent[d];
        }
        return static_cast<int>(at);
    }
    // Transfers with equal keys are one rendezvous.
    typedef std::vector<int64_t> Key;
    std::map<Key, std::vector<int>> rendezvous_;

    void Meet(const hd_step &from, int id, int run)
    {
        int axis = from.op->axis;
        Key key = {run, axis,
                   from.op->code == HD_OP_SEND || from.op->code == HD_OP_RECV};

        if (from.op->code == HD_OP_SEND)
            key.insert(key.end(), {from.rank, from.peer});
        else if (from.op->code == HD_OP_RECV)
            key.insert(key.end(), {from.peer, from.rank});
        else
            key.push_back(hd_mesh_peer(module_, from.rank, axis, 0));
        key.push_back(from.seq);
        rendezvous_[key].push_back(id);
        root_[id] = from.peer;
    }
    std::map<int, int> root_; // the rank, by step

    void Pair()
    {
        for (auto &m : rendezvous_)
            for (int id : m.second) {
                Step &s = steps[static_cast<size_t>(id)];

                s.rendezvous = m.second;
                if (s.kind != COLLECTIVE) {
                    for (int other : m.second)
                        s.partner = other != id ? other : s.partner;
                    continue;
                }
                s.hears_root_only = s.op->code == HD_OP_BROADCAST;
                s.hears_nobody =
                    s.op->code == HD_OP_REDUCE && s.rank != root_[id];
                for (int other : m.second)
                    if (steps[static_cast<size_t>(other)].rank == root_[id])
                        s.root = other;
            }
    }
};

// One execution under way.
class Machine
{
  public:
    oracle_verdict verdict = ORACLE_CLEAN;
    std::string why;

    Machine(const Program &program, bool rendezvous)
        : p_(program), rendezvous_(rendezvous), started_(p_.steps.size()),
          ended_(p_.steps.size()), reached_(p_.steps.size()),
          at_(p_.streams.size()), chain_(static_cast<size_t>(p_.nranks)),
          cells_(static_cast<size_t>(p_.nranks * p_.ncells))
    {
    }

    // ------------------------------------------------------------ actions

    // The stream's next step, or group, may start now.
    bool CanStart(int rank, int stream) const
    {
        const std::vector<int> &list = p_.StreamOf(rank, stream);
        size_t at = at_[Slot(rank, stream)];

        if (at >= list.size() || Reached(list[at]) || !IsPassed(rank, stream))
            return false;
        const Step &s = S(list[at]);
        if (s.fork >= 0 && !Ended(s.fork))
            return false;
        return s.kind != JOIN || IsJoined(list[at]);
    }
    void Start(int rank, int stream)
    {
        const std::vector<int> &list = p_.StreamOf(rank, stream);
        size_t at = at_[Slot(rank, stream)], end = GroupEnd(list, at);

        for (size_t i = at; i < end; i++)
            reached_[I(list[i])] = 1;
        for (size_t i = at; i < end; i++)
            if (!rendezvous_ || S(list[i]).kind < SEND)
                Begin(list[i]);
        if (rendezvous_)
            StartInOrder(rank);
        Settle(rank, stream);
    }
    bool CanEnd(int id) const
    {
        const Step &s = S(id);

        if (!Started(id) || Ended(id))
            return false;
        switch (s.kind) {
        case WAIT:
            return std::all_of(s.records.begin(), s.records.end(),
                               [&](int record) { return Ended(record); });
        case RECV:
            return rendezvous_ ? Started(s.partner) : Ended(s.partner);
        case SEND:
            return !rendezvous_ || Started(s.partner);
        case COLLECTIVE:
            return HasMet(id);
        default:
            return true;
        }
    }
    void End(int id)
    {
        const Step &s = S(id);

        ended_[I(id)] = 1;
        inflight_.erase(id);
        for (const Access &a : s.accesses)
            for (int c : a.cells) {
                Cell &cell = At(s.rank, c);

                cell.readers -= a.reads;
                cell.writers -= a.writes;
                if (a.writes) {
                    cell.last = a.name;
                    if (s.run == 0)
                        cell.names.insert(a.name);
                    cell.written = true;
                }
            }
        Settle(s.rank, s.stream);
    }
    const std::set<int> &InFlight() const
    {
        return inflight_;
    }
    bool IsOver() const
    {
        return std::find(ended_.begin(), ended_.end(), 0) == ended_.end();
    }
    // What is left undone at the end.
    void CheckEnd()
    {
        for (int rank = 0; rank < p_.nranks; rank++)
            for (int c = 0; c < p_.ncells; c++)
                if (p_.owner[I(c)]->role == HD_ROLE_OUT &&
                    !At(rank, c).written && p_.Has(rank, c))
                    Fail(ORACLE_HOLE, std::string("%") + p_.owner[I(c)]->name +
                                          " of rank " + std::to_string(rank));
        for (int rank = 0; rank < p_.nranks; rank++)
            if (const hd_buffer *event = p_.Unrecorded(rank))
                Fail(ORACLE_HOLE, std::string("%") + event->name + " of rank " +
                                      std::to_string(rank));
    }
    std::string State() const
    {
        return std::string(reached_.begin(), reached_.end()) +
               std::string(started_.begin(), started_.end()) +
               std::string(ended_.begin(), ended_.end());
    }

  private:
    struct Cell {
        int readers = 0, writers = 0;
        bool written = false;
        int last = -1;       // the name that it was last written through
        std::set<int> names; // in the first run
    };
    const Program &p_;
    bool rendezvous_;
    std::vector<char> started_, ended_, reached_;
    std::vector<size_t> at_;    // by rank and stream
    std::vector<size_t> chain_; // by rank: transfers before it have started
    std::vector<Cell> cells_;   // by rank
    std::set<int> inflight_;

    static size_t I(int i)
    {
        return static_cast<size_t>(i);
    }
    size_t Slot(int rank, int stream) const
    {
        return I(rank * p_.nstreams + stream);
    }
    const Step &S(int id) const
    {
        return p_.steps[I(id)];
    }
    bool Started(int id) const
    {
        return started_[I(id)] != 0;
    }
    bool Ended(int id) const
    {
        return ended_[I(id)] != 0;
    }
    bool Reached(int id) const
    {
        return reached_[I(id)] != 0;
    }
    Cell &At(int rank, int c)
    {
        return cells_[I(rank * p_.ncells + c)];
    }
    void Fail(oracle_verdict v, const std::string &words)
    {
        if (verdict == ORACLE_CLEAN) {
            verdict = v;
            why = words;
        }
    }
    std::string Name(int id) const
    {
        const Step &s = S(id);

        return std::string(WordOf(s)) + " (rank " + std::to_string(s.rank) +
               ", step " + std::to_string(s.index) + " of run " +
               std::to_string(s.run + 1) + ")";
    }
    size_t GroupEnd(const std::vector<int> &list, size_t at) const
    {
        size_t end = at + 1;
        const Step &s = S(list[at]);

        while (s.group != 0 && end < list.size() &&
               S(list[end]).group == s.group && S(list[end]).run == s.run)
            end++;
        return end;
    }
    // What the stream was given before its cursor has let it go on.
    bool IsPassed(int rank, int stream) const
    {
        const std::vector<int> &list = p_.StreamOf(rank, stream);
        size_t at = at_[Slot(rank, stream)];

        return at == 0 || HasLetGo(list[at - 1]);
    }
    bool HasLetGo(int id) const
    {
        return S(id).async ? Reached(id) : Ended(id);
    }
    bool IsJoined(int join) const
    {
        const Step &s = S(join);

        for (int stream = 1; stream < p_.nstreams; stream++)
            for (int id : p_.StreamOf(s.rank, stream)) {
                const Step &t = S(id);

                if ((t.run < s.run || (t.run == s.run && t.index < s.index)) &&
                    !HasLetGo(id))
                    return false;
            }
        return true;
    }
    bool HasMet(int id) const
    {
        const Step &s = S(id);

        if (!rendezvous_ && s.hears_nobody)
            return true;
        if (!rendezvous_ && s.hears_root_only)
            return Started(s.root);
        for (int other : s.rendezvous)
            if (!Started(other))
                return false;
        return true;
    }
    void StartInOrder(int rank)
    {
        const std::vector<int> &list = p_.transfers[I(rank)];
        size_t &at = chain_[I(rank)];

        for (; at < list.size() && Reached(list[at]); at++)
            Begin(list[at]);
    }
    // Moves the cursor past a group whose members have let the stream go.
    void Settle(int rank, int stream)
    {
        const std::vector<int> &list = p_.StreamOf(rank, stream);
        size_t &at = at_[Slot(rank, stream)];

        while (at < list.size() && Reached(list[at])) {
            size_t end = GroupEnd(list, at);

            for (size_t i = at; i < end; i++)
                if (!HasLetGo(list[i]))
                    return;
            at = end;
        }
    }
    void CheckRunEnd(int rank)
    {
        for (size_t id = 0; id < p_.steps.size(); id++)
            if (p_.steps[id].rank == rank && p_.steps[id].run == 0 &&
                ended_[id] == 0 && !p_.steps[id].accesses.empty())
                Fail(ORACLE_UNJOINED, Name(static_cast<int>(id)));
    }
    void Begin(int id)
    {
        const Step &s = S(id);

        started_[I(id)] = 1;
        inflight_.insert(id);
        if (s.op == nullptr)
            CheckRunEnd(s.rank);
        if (s.run == 1 && s.argument && !Ended(p_.CallerOf(s.rank)))
            Fail(ORACLE_EARLY, Name(id));
        if (s.spoils_itself)
            Fail(ORACLE_RACE, Name(id) + " writes what it also reads");
        for (const Access &a : s.accesses)
            for (int c : a.cells) {
                Cell &cell = At(s.rank, c);

                if (cell.writers > 0 || (a.writes && cell.readers > 0))
                    CheckRace(id, s.rank, c, a.writes);
                if (a.reads && s.run == 0)
                    CheckRead(id, cell, c, a.name);
            }
        for (const Access &a : s.accesses)
            for (int c : a.cells) {
                At(s.rank, c).readers += a.reads;
                At(s.rank, c).writers += a.writes;
            }
    }
    void CheckRace(int id, int rank, int c, bool writes)
    {
        for (int other : inflight_)
            if (other != id && S(other).rank == rank)
                for (const Access &a : S(other).accesses)
                    if ((a.writes || writes) &&
                        std::find(a.cells.begin(), a.cells.end(), c) !=
                            a.cells.end())
                        Fail(ORACLE_RACE, Name(other) + " and " + Name(id) +
                                              " on %" + p_.owner[I(c)]->name);
    }
    void CheckRead(int id, const Cell &cell, int c, int name)
    {
        const hd_buffer *owner = p_.owner[I(c)];
        bool caller = owner->role == HD_ROLE_IN || owner->role == HD_ROLE_INOUT;

        if (!cell.written && !caller)
            Fail(ORACLE_UNWRITTEN, Name(id) + " reads %" + owner->name);
        else if (cell.written && cell.last != name &&
                 (cell.names.count(name) > 0 || (caller && name == owner->id)))
            Fail(ORACLE_LIFETIME, Name(id) + " on %" + p_.owner[I(c)]->name);
    }
};

// ---------------------------------------------------------------- searches

// Everything but the end of `held` goes on as far as it can.
void Exhaust(const Program &p, Machine *m, int held)
{
    for (bool moved = true; moved && m->verdict == ORACLE_CLEAN;) {
        moved = false;
        for (int rank = 0; rank < p.nranks; rank++)
            for (int stream = 0; stream < p.nstreams; stream++)
                while (m->CanStart(rank, stream)) {
                    m->Start(rank, stream);
                    moved = true;
                }
        std::vector<int> work(m->InFlight().begin(), m->InFlight().end());
        for (int id : work)
            if (id != held && m->CanEnd(id)) {
                m->End(id);
                moved = true;
            }
    }
}

struct Judgement {
    oracle_verdict verdict;
    std::string why;
};

Judgement Finish(Machine *m)
{
    if (m->verdict == ORACLE_CLEAN && !m->IsOver())
        return {ORACLE_DEADLOCK, "nothing moves any more"};
    if (m->verdict == ORACLE_CLEAN)
        m->CheckEnd();
    return {m->verdict, m->why};
}

// Deadlock under rendezvous, by one schedule: only that is asked of it.
Judgement Rendezvous(const Program &p)
{
    Machine m(p, true);

    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < p.nranks; rank++)
            for (int stream = 0; stream < p.nstreams; stream++)
                while (m.CanStart(rank, stream)) {
                    m.Start(rank, stream);
                    moved = true;
                }
        std::vector<int> work(m.InFlight().begin(), m.InFlight().end());
        for (int id : work)
            if (m.CanEnd(id)) {
                m.End(id);
                moved = true;
            }
    }
    if (!m.IsOver())
        return {ORACLE_DEADLOCK, "nothing moves any more under rendezvous"};
    return {ORACLE_CLEAN, ""};
}

Judgement Delay(const Program &p)
{
    Machine plain(p, false);
    Judgement j;

    Exhaust(p, &plain, -1);
    j = Finish(&plain);
    for (size_t held = 0; held < p.steps.size() && j.verdict == ORACLE_CLEAN;
         held++) {
        Machine m(p, false);

        Exhaust(p, &m, static_cast<int>(held));
        j = {m.verdict, m.why};
    }
    return j;
}

// Starts are numbered by rank and stream, ends by step.
std::vector<int> Actions(const Program &p, const Machine &m)
{
    std::vector<int> actions;
    int n = p.nranks * p.nstreams;

    for (int i = 0; i < n; i++)
        if (m.CanStart(i / p.nstreams, i % p.nstreams))
            actions.push_back(i);
    for (int id : m.InFlight())
        if (m.CanEnd(id))
            actions.push_back(n + id);
    return actions;
}

void Act(const Program &p, Machine *m, int action)
{
    int n = p.nranks * p.nstreams;

    if (action < n)
        m->Start(action / p.nstreams, action % p.nstreams);
    else
        m->End(action - n);
}

Judgement Random(const Program &p, long count, unsigned seed)
{
    std::mt19937 random(seed);

    for (long i = 0; i < count; i++) {
        Machine m(p, false);
        std::vector<int> actions;

        while (m.verdict == ORACLE_CLEAN && !(actions = Actions(p, m)).empty())
            Act(p, &m, actions[random() % actions.size()]);
        Judgement j = Finish(&m);
        if (j.verdict != ORACLE_CLEAN)
            return j;
    }
    return {ORACLE_CLEAN, ""};
}

Judgement Every(const Program &p, bool rendezvous, size_t most)
{
    std::unordered_set<std::string> seen;
    std::vector<Machine> stack(1, Machine(p, rendezvous));

    while (!stack.empty()) {
        Machine m = stack.back();

        stack.pop_back();
        if (m.verdict != ORACLE_CLEAN && !rendezvous)
            return {m.verdict, m.why};
        std::vector<int> actions = Actions(p, m);
        if (actions.empty() && rendezvous && !m.IsOver())
            return {ORACLE_DEADLOCK, "nothing moves any more"};
        if (actions.empty() && !rendezvous) {
            Judgement j = Finish(&m);
            if (j.verdict != ORACLE_CLEAN)
                return j;
        }
        for (int action : actions) {
            Machine next = m;

            Act(p, &next, action);
            if (seen.insert(next.State()).second)
                stack.push_back(next);
        }
        if (seen.size() > most)
            return {ORACLE_TOO_LARGE, "too many states"};
    }
    return {ORACLE_CLEAN, ""};
}

} // namespace

extern "C" oracle_verdict oracle_judge(const hd_module *module,
                                       oracle_search search, long count,
                                       unsigned seed, char *why, size_t size)
{
    Program p(module);
    Judgement j = search == ORACLE_EVERY
                      ? Every(p, true, static_cast<size_t>(count))
                      : Rendezvous(p);

    if (j.verdict == ORACLE_CLEAN)
        j = search == ORACLE_DELAY ? Delay(p)
            : search == ORACLE_RANDOM
                ? Random(p, count, seed)
                : Every(p, false, static_cast<size_t>(count));
    snprintf(why, size, "%s", j.why.c_str());
    return j.verdict;
}

extern "C" const char *oracle_text(oracle_verdict verdict)
{
    static const char *const texts[] = {
        "clean", "deadlock", "race",  "unwritten read", "lifetime",
        "hole",  "unjoined", "early", "too large"};

    return texts[verdict];
}
