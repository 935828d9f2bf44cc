#include "tests/second/generate.h"

#include <algorithm>
#include <set>
#include <vector>

namespace second
{

namespace
{

// Pieces of one shape: [k, piece], or one piece where k is 0. With rows it is
// [rows, piece] in k blocks, over the axis or whole.
struct Buffer {
    std::string name, role, dtype, axis; // axis: one piece a rank, of k ranks
    int k = 0;
    int root = 0;      // of another name: the buffer's index
    bool flat = false; // of one dimension, whatever a piece has
    int rows = 0;
};

// What is known of one piece of a root.
struct Slot {
    std::set<int> writers, readers; // steps, since the last whole write
    std::set<int> names;            // that wrote it
    int last = -1;                  // -1: undefined
};

// A view: which slots it may touch, and whether it is exactly those.
struct Pick {
    int buffer = 0;
    std::vector<size_t> slots;
    bool exact = true;
    std::string text;
    int low = 0;         // the first of the pieces that it keeps
    bool turned = false; // where it begins is each rank's own
};

std::string Str(int n)
{
    return std::to_string(n);
}

class Generator
{
  public:
    explicit Generator(std::mt19937 &random) : random_(random)
    {
    }
    std::string Run();

  private:
    int Below(int n)
    {
        return static_cast<int>(random_() % static_cast<unsigned>(n));
    }
    bool Chance(int percent)
    {
        return Below(100) < percent;
    }
    int AnyStream()
    {
        return Below(streams_ + 1) - 1;
    }
    void ChooseMesh();
    void Declare();
    void DeclareBlocks();
    int AddBuffer(const std::string &role, int k, const std::string &axis);
    std::string Declaration(const Buffer &b) const;

    bool Readable(const Pick &pick) const;
    Pick OnePiece(int buffer);
    Pick AllPieces(int buffer);
    Pick SomePieces(int buffer, int pieces);
    Pick Counted(int buffer, const std::string &count, int most);
    std::string Turned(int n);
    std::string At(const Pick &pick, const std::string &index) const;
    void Narrow(Pick *pick, const std::vector<int> &lengths);
    std::vector<int> Lengths() const;
    int PieceElements() const;
    Pick FlatRange(int buffer, int length);
    std::string Range(int low, int n, int all);
    static bool HasRange(const Pick &pick);
    Pick Block(int buffer, const std::string &block);
    bool FindBlock(bool write, int axis, const std::string &block, Pick *out);
    std::string AnyBlock(int n);
    std::string Guarded(const std::string &block, const std::string &text,
                        bool must = false);
    bool FindRead(int pieces, const std::string &dtype, Pick *out);
    bool FindWrite(int pieces, const std::string &dtype, Pick *out);
    bool Apart(const Pick &a, const Pick &b) const;
    bool Disjoint(const Pick &a, const Pick &b) const;

    void Put(int stream, const std::string &text);
    void Need(const Pick &pick, bool write, std::set<int> *out);
    void Await(int stream, const std::set<int> &steps);
    int NewStep(int stream, const std::vector<Pick> &reads,
                const std::vector<Pick> &writes);
    int Step(int stream, const std::vector<Pick> &reads,
             const std::vector<Pick> &writes);
    void Note(int step, const std::vector<Pick> &reads,
              const std::vector<Pick> &writes);
    std::string NewEvent();
    void Record(int stream);
    void Fork();
    void Join();

    void Compute();
    void Ranges();
    void Product();
    void Exchange(size_t axis, const std::string &d, const Pick &a,
                  const Pick &c);
    void Uneven();
    void Split();
    void Flat();
    int AnyPieces();
    void Blocks();
    void BlockProduct();
    void BlockSum();
    void BlockGather();
    void BlockShift();
    void BlockRoot();
    void Loop();
    void Shift();
    void OneWay();
    void Collect();
    void Broadcast();
    void Reduce();
    void Mixed();
    void Pipeline();
    void Noise();
    void Finish();
    std::string Repeat(const std::string &text);
    std::string Axis(size_t *axis);

    std::mt19937 &random_;
    std::vector<std::pair<std::string, int>> mesh_;
    int streams_ = 0, nevents_ = 0;
    std::string piece_ = "2";
    std::vector<Buffer> buffers_;
    std::vector<std::vector<Slot>> slots_;          // of each root
    std::vector<std::set<int>> known_;              // to stream i at i + 1
    std::vector<int> stream_of_;                    // of each step
    std::vector<std::string> event_of_;             // recorded behind it, or ""
    std::vector<std::set<int>> told_;               // by that event
    std::vector<std::pair<int, std::string>> body_; // stream, statement
    bool go_ = false, done_ = false;
    // Rows in blocks: over which axis, of what size, and the blocks of any.
    std::string cut_;
    int cuts_ = 0, rows_ = 0, full_ = 0;
};

void Generator::ChooseMesh()
{
    static const int sizes[] = {1, 2, 2, 2, 3, 3, 4};
    static const int flat[][2] = {{2, 2}, {2, 2}, {1, 2}, {2, 1}};

    if (Chance(75)) {
        mesh_ = {{"tp", sizes[Below(7)]}};
    } else if (Chance(80)) {
        const int *two = flat[Below(4)];

        mesh_ = {{"dp", two[0]}, {"tp", two[1]}};
    }
    streams_ = Below(4);
    piece_ = Chance(50) ? "2" : Chance(40) ? "2, 2" : Chance(50) ? "1" : "3";
}

int Generator::AddBuffer(const std::string &role, int k,
                         const std::string &axis)
{
    Buffer b;
    int id = static_cast<int>(buffers_.size());

    b.name = "b" + Str(id);
    b.role = role;
    b.dtype = Chance(92) ? "f32" : "i32";
    b.axis = axis;
    b.k = k;
    b.root = id;
    std::vector<Slot> slots(axis.empty() ? static_cast<size_t>(std::max(k, 1))
                                         : 1);
    for (Slot &slot : slots)
        if (role == "in" || role == "inout") {
            slot.names = {id};
            slot.last = id;
        }
    buffers_.push_back(b);
    slots_.push_back(slots);
    return id;
}

void Generator::Declare()
{
    static const char *const roles[] = {"in",   "inout", "out", "temp",
                                        "temp", "temp",  "temp"};
    int n = 4 + Below(4);

    for (int i = 0; i < n; i++) {
        std::string role = i == 0 ? "in" : i == 1 ? "out" : roles[Below(7)];
        int k = Chance(40) ? 0 : 2 + Below(2);
        std::string axis;

        if (!mesh_.empty()) {
            auto &a = mesh_[static_cast<size_t>(
                Below(static_cast<int>(mesh_.size())))];
            if (Chance(35))
                k = a.second;
            if (k == a.second && Chance(30))
                axis = a.first;
        }
        AddBuffer(role, k, axis);
    }
    if (!mesh_.empty() && Chance(45))
        DeclareBlocks();
    for (size_t root = 0; root < slots_.size(); root++) {
        Buffer b = buffers_[root];

        if (b.role == "in" || (!b.axis.empty() && b.rows == 0) || !Chance(30))
            continue;
        b.root = static_cast<int>(root);
        b.role = "temp";
        b.name = "n" + Str(static_cast<int>(root));
        if (b.k > 1 && b.rows == 0 && Chance(40) &&
            buffers_[root].role == "temp")
            b.k--;
        buffers_.push_back(b);
    }
    for (size_t root = 0; root < slots_.size(); root++) {
        Buffer b = buffers_[root];

        if (b.role == "in" || !b.axis.empty() || b.rows > 0 ||
            b.dtype != "f32" || !Chance(25))
            continue;
        b.root = static_cast<int>(root);
        b.role = "temp";
        b.name = "f" + Str(static_cast<int>(root));
        b.flat = true;
        buffers_.push_back(b);
    }
    go_ = Chance(15);
    done_ = Chance(15);
}

void Generator::DeclareBlocks()
{
    static const char *const roles[] = {"in", "inout", "out", "temp", "temp"};
    const auto &axis =
        mesh_[static_cast<size_t>(Below(static_cast<int>(mesh_.size())))];
    int n = 3 + Below(3);

    cut_ = axis.first;
    cuts_ = axis.second;
    rows_ = 1 + Below(3 * cuts_ + 1);
    int each = (rows_ - 1) / cuts_ + 1;
    full_ = (rows_ - 1) / each + 1;
    for (int i = 0; i < n; i++) {
        bool shards = i < 2 || Chance(40);
        AddBuffer(i == 0 ? "in" : roles[Below(5)], full_, shards ? cut_ : "");

        buffers_.back().dtype = "f32";
        buffers_.back().rows = rows_;
    }
}

std::string Generator::Declaration(const Buffer &b) const
{
    std::string text = b.role + " %" + b.name + " : " + b.dtype + "[";

    if (b.k > 0 && !b.flat)
        text +=
            Str(b.rows > 0 ? b.rows : b.k) +
            (b.axis.empty() ? b.root % 5 == 3 ? " in 2" : "" : "@" + b.axis) +
            ", ";
    text += (b.flat ? Str(std::max(b.k, 1) * PieceElements()) : piece_) + "]";
    const Buffer &root = buffers_[static_cast<size_t>(b.root)];
    if (root.name != b.name)
        return text + " of %" + root.name;
    return text + " shared";
}

// --------------------------------------------------------------------- views

bool Generator::Readable(const Pick &pick) const
{
    const Buffer &b = buffers_[static_cast<size_t>(pick.buffer)];

    for (size_t i : pick.slots) {
        const Slot &slot = slots_[static_cast<size_t>(b.root)][i];

        if (slot.last < 0 ||
            (slot.last != pick.buffer && slot.names.size() > 1))
            return false;
    }
    return true;
}

// Each rank's own number below `n`.
std::string Generator::Turned(int n)
{
    size_t axis;
    std::string at = Axis(&axis) + " + " + Str(Below(3));
    std::string last = Str(n - 1), by = Str(1 + Below(3));

    switch (Below(5)) {
    case 0:
        return "min(" + at + ", " + last + ")";
    case 1:
        return "max(" + last + " - (" + at + "), 0)";
    case 2:
        return "min(" + last + ", cdiv(" + at + ", " + by + "))";
    default:
        return "(" + at + ") mod " + Str(n);
    }
}

Pick Generator::OnePiece(int buffer)
{
    const Buffer &b = buffers_[static_cast<size_t>(buffer)];
    Pick pick;

    pick.buffer = buffer;
    pick.slots = {0};
    pick.text = "%" + b.name;
    if (!b.axis.empty()) {
        pick.text += "[" + b.axis + "]";
    } else if (b.k > 0 && (mesh_.empty() || Chance(70))) {
        pick.slots = {static_cast<size_t>(Below(b.k))};
        pick.text += "[" + Str(static_cast<int>(pick.slots[0])) + "]";
    } else if (b.k > 0) {
        pick = AllPieces(buffer);
        pick.exact = false;
        pick.turned = true;
        pick.text += "[" + Turned(b.k) + "]";
    }
    return pick;
}

Pick Generator::AllPieces(int buffer)
{
    const Buffer &b = buffers_[static_cast<size_t>(buffer)];
    Pick pick;

    pick.buffer = buffer;
    pick.text = "%" + b.name;
    for (int i = 0; i < std::max(b.k, 1); i++)
        pick.slots.push_back(static_cast<size_t>(i));
    if (!b.axis.empty())
        pick = OnePiece(buffer);
    return pick;
}

// Of so many indices: as a block, if they are one.
std::string Generator::Range(int low, int n, int all)
{
    for (int of = 1; of <= all + 1 && Chance(80); of++) {
        int each = (all - 1) / of + 1;

        if (low % each == 0 && n == std::min(each, all - low))
            return Str(low / each) + " of " + Str(of);
    }
    return Str(low) + ".." + Str(low + n);
}

bool Generator::HasRange(const Pick &pick)
{
    return pick.text.find("..") != std::string::npos ||
           pick.text.find(" of ") != std::string::npos;
}

// As many neighbours, where they begin known or each rank's own.
Pick Generator::SomePieces(int buffer, int pieces)
{
    const Buffer &b = buffers_[static_cast<size_t>(buffer)];
    Pick pick = AllPieces(buffer);
    int places = b.k - pieces + 1;

    if (places == 1 && Chance(75))
        return pick;
    if (!mesh_.empty() && b.k % pieces == 0 && Chance(20)) {
        int of = b.k / pieces;

        pick.exact = of == 1;
        pick.turned = true;
        pick.text += "[" + Turned(of) + " of " + Str(of) + "]";
        return pick;
    }
    if (!mesh_.empty() && Chance(25)) {
        std::string low = Turned(places);

        pick.exact = places == 1;
        pick.turned = true;
        pick.text += "[" + low + ".." + low + " + " + Str(pieces) + "]";
        return pick;
    }
    pick.low = Below(places);
    pick.slots.clear();
    for (int i = 0; i < pieces; i++)
        pick.slots.push_back(static_cast<size_t>(pick.low + i));
    pick.text += "[" + Range(pick.low, pieces, b.k) + "]";
    return pick;
}

// So many pieces, at most `most`; on some ranks there may be none.
Pick Generator::Counted(int buffer, const std::string &count, int most)
{
    const Buffer &b = buffers_[static_cast<size_t>(buffer)];
    Pick pick = AllPieces(buffer);
    std::string low = Str(Below(b.k - most + 1));

    pick.exact = false;
    pick.text += "[" + low + ".." + low + " + " + count + "]";
    return pick;
}

// One of the pieces of a view that keeps a known range of them.
std::string Generator::At(const Pick &pick, const std::string &index) const
{
    return "%" + buffers_[static_cast<size_t>(pick.buffer)].name + "[" +
           (pick.low > 0 ? Str(pick.low) + " + " : "") + index + "]";
}

// How much to keep of each dimension of a piece.
std::vector<int> Generator::Lengths() const
{
    std::vector<int> lengths;

    for (char c : piece_)
        if (c >= '0' && c <= '9')
            lengths.push_back(c - '0');
    return lengths;
}

int Generator::PieceElements() const
{
    int n = 1;

    for (int length : Lengths())
        n *= length;
    return n;
}

// So many elements of a flat name, which may begin and end within pieces.
Pick Generator::FlatRange(int buffer, int length)
{
    const Buffer &b = buffers_[static_cast<size_t>(buffer)];
    int of = PieceElements(), n = std::max(b.k, 1) * of;
    int low = Below(n - length + 1);
    Pick pick;

    if (Chance(50))
        low = low / of * of;
    pick.buffer = buffer;
    for (int i = low / of; i * of < low + length; i++)
        pick.slots.push_back(static_cast<size_t>(i));
    pick.exact = low % of == 0 && length % of == 0;
    pick.text = "%" + b.name + "[" + Range(low, length, n) + "]";
    return pick;
}

// Of a view of pieces alone: ranges of so many indices of their dimensions.
void Generator::Narrow(Pick *pick, const std::vector<int> &lengths)
{
    std::vector<int> all = Lengths();
    std::string inner;

    for (size_t i = 0; i < all.size(); i++) {
        int low = Below(all[i] - lengths[i] + 1);

        pick->exact &= lengths[i] == all[i];
        inner += (i ? ", " : "") + Range(low, lengths[i], all[i]);
    }
    if (pick->text.back() == ']') {
        pick->text.back() = ',';
        pick->text += " ";
    } else {
        pick->text +=
            buffers_[static_cast<size_t>(pick->buffer)].k > 0 &&
                    buffers_[static_cast<size_t>(pick->buffer)].axis.empty()
                ? "[:, "
                : "[";
    }
    pick->text += inner + "]";
}

// `pieces` is 0 for one piece alone, else the extent of the first dimension.
bool Generator::FindRead(int pieces, const std::string &dtype, Pick *out)
{
    for (int tries = 0; tries < 20; tries++) {
        int id = Below(static_cast<int>(buffers_.size()));
        const Buffer &b = buffers_[static_cast<size_t>(id)];

        if (b.flat || b.rows > 0 || (!dtype.empty() && b.dtype != dtype) ||
            (pieces > 0 && (b.k < pieces || !b.axis.empty())))
            continue;
        *out = pieces > 0 ? SomePieces(id, pieces) : OnePiece(id);
        if (Readable(*out))
            return true;
    }
    return false;
}

bool Generator::FindWrite(int pieces, const std::string &dtype, Pick *out)
{
    for (int tries = 0; tries < 20; tries++) {
        int id = Below(static_cast<int>(buffers_.size()));
        const Buffer &b = buffers_[static_cast<size_t>(id)];

        if (b.flat || b.rows > 0 || b.role == "in" ||
            (!dtype.empty() && b.dtype != dtype) ||
            (pieces > 0 && (b.k < pieces || !b.axis.empty())))
            continue;
        *out = pieces > 0 ? SomePieces(id, pieces) : OnePiece(id);
        return true;
    }
    return false;
}

bool Generator::Apart(const Pick &a, const Pick &b) const
{
    return buffers_[static_cast<size_t>(a.buffer)].root !=
           buffers_[static_cast<size_t>(b.buffer)].root;
}

bool Generator::Disjoint(const Pick &a, const Pick &b) const
{
    return Apart(a, b) ||
           std::none_of(a.slots.begin(), a.slots.end(), [&b](size_t slot) {
               return std::count(b.slots.begin(), b.slots.end(), slot) > 0;
           });
}

// --------------------------------------------------------------------- order

void Generator::Put(int stream, const std::string &text)
{
    body_.push_back({stream, text});
}

std::string Generator::NewEvent()
{
    return "%e[" + Str(nevents_++) + "]";
}

// An event or two behind all that `stream` was given; its steps learn of one.
void Generator::Record(int stream)
{
    std::string event = NewEvent(), other = Chance(20) ? NewEvent() : event;
    const std::set<int> &knows = known_[static_cast<size_t>(stream + 1)];

    Put(stream, event + (other != event ? ", " + other : "") + " = record");
    for (int step : knows)
        if (stream_of_[static_cast<size_t>(step)] == stream &&
            (event_of_[static_cast<size_t>(step)].empty() || Chance(30))) {
            event_of_[static_cast<size_t>(step)] = Chance(50) ? event : other;
            told_[static_cast<size_t>(step)] = knows;
        }
}

void Generator::Fork()
{
    Put(-1, "fork");
    for (auto &known : known_)
        known.insert(known_[0].begin(), known_[0].end());
}

void Generator::Join()
{
    Put(-1, "join");
    for (auto &known : known_)
        known_[0].insert(known.begin(), known.end());
}

// Waits for several events, in one statement or in some.
void Generator::Await(int stream, const std::set<int> &steps)
{
    std::string list;
    int n = 0;

    for (int step : steps) {
        auto &known = known_[static_cast<size_t>(stream + 1)];
        size_t s = static_cast<size_t>(step);
        int from = stream_of_[s];

        if (known.count(step))
            continue;
        bool deferred = !known_[static_cast<size_t>(from + 1)].count(step);
        if (!deferred && from < 0 && stream >= 0 && Chance(40)) {
            Fork();
        } else if (!deferred && stream < 0 && Chance(40)) {
            Join();
        } else {
            if (event_of_[s].empty())
                Record(from);
            list += (list.empty() ? "wait " : ", ") + event_of_[s];
            known.insert(told_[s].begin(), told_[s].end());
            if (++n < 16 && Chance(60))
                continue;
            Put(stream, list);
            list.clear();
            n = 0;
        }
    }
    if (!list.empty())
        Put(stream, list);
}

void Generator::Need(const Pick &pick, bool write, std::set<int> *out)
{
    const Buffer &b = buffers_[static_cast<size_t>(pick.buffer)];

    for (size_t i : pick.slots) {
        const Slot &slot = slots_[static_cast<size_t>(b.root)][i];

        out->insert(slot.writers.begin(), slot.writers.end());
        if (write)
            out->insert(slot.readers.begin(), slot.readers.end());
    }
}

void Generator::Note(int step, const std::vector<Pick> &reads,
                     const std::vector<Pick> &writes)
{
    for (const Pick &pick : reads)
        for (size_t i : pick.slots)
            slots_[static_cast<size_t>(
                buffers_[static_cast<size_t>(pick.buffer)].root)][i]
                .readers.insert(step);
    for (const Pick &pick : writes)
        for (size_t i : pick.slots) {
            Slot &slot = slots_[static_cast<size_t>(
                buffers_[static_cast<size_t>(pick.buffer)].root)][i];

            if (pick.exact) {
                slot.writers.clear();
                slot.readers.clear();
                slot.last = pick.buffer;
            } else if (slot.last != pick.buffer) {
                slot.last = -1; // on some ranks another's, on some not
            }
            slot.writers.insert(step);
            slot.names.insert(pick.buffer);
        }
}

// Gives a step a number.
int Generator::NewStep(int stream, const std::vector<Pick> &reads,
                       const std::vector<Pick> &writes)
{
    int step = static_cast<int>(stream_of_.size());

    stream_of_.push_back(stream);
    event_of_.push_back("");
    told_.push_back({});
    Note(step, reads, writes);
    known_[static_cast<size_t>(stream + 1)].insert(step);
    return step;
}

// Makes `stream` wait for what a step needs. Step 0 is the beginning of the
// run.
int Generator::Step(int stream, const std::vector<Pick> &reads,
                    const std::vector<Pick> &writes)
{
    std::set<int> needs = {0};

    for (const Pick &pick : reads)
        Need(pick, false, &needs);
    for (const Pick &pick : writes)
        Need(pick, true, &needs);
    Await(stream, needs);
    return NewStep(stream, reads, writes);
}

// --------------------------------------------------------------------- steps

std::string Generator::Axis(size_t *axis)
{
    *axis = static_cast<size_t>(Below(static_cast<int>(mesh_.size())));
    return mesh_[*axis].first;
}

std::string Generator::Repeat(const std::string &text)
{
    if (!Chance(8))
        return text;
    return "for r in 0.." + Str(1 + Below(2)) + " { " + text + " }";
}

void Generator::Compute()
{
    static const char *const unary[] = {"relu", "copy", "exp", "sum"};
    static const char *const binary[] = {"add", "sub", "min", "max"};
    int stream = AnyStream();
    Pick a, b, c;

    if (!FindRead(0, "", &a) || !FindWrite(0, "", &c))
        return;
    auto dtype = [this](const Pick &p) {
        return buffers_[static_cast<size_t>(p.buffer)].dtype;
    };
    bool fits = Apart(a, c) || a.text == c.text;
    bool same = dtype(a) == dtype(c) && dtype(a) == "f32";
    if (!fits)
        return;
    if (same && Apart(a, c) && Chance(25)) {
        std::vector<int> lengths = Lengths();

        for (int &n : lengths)
            n -= Below(n);
        Narrow(&a, lengths);
        Narrow(&c, lengths);
    }
    if (same && !HasRange(c) && Chance(40) && FindRead(0, "f32", &b) &&
        (Apart(b, c) || b.text == c.text)) {
        bool product =
            piece_ == "2, 2" && Apart(a, c) && Apart(b, c) && Chance(50);
        bool call = !product && Apart(a, c) && Apart(b, c) && Chance(30);
        bool more = (product || call) && Chance(40) && Readable(c);

        Step(stream,
             more ? std::vector<Pick>{a, b, c} : std::vector<Pick>{a, b}, {c});
        Put(stream, Repeat(c.text + " = " +
                           (product ? "matmul"
                            : call  ? "call \"f\""
                                    : binary[Below(4)]) +
                           " " + a.text + ", " + b.text +
                           (!more  ? ""
                            : call ? " keep"
                                   : " accumulate")));
        return;
    }
    Step(stream, {a}, {c});
    std::string op = same ? unary[Below(4)] : "copy";
    if (same && piece_ == "2, 2" && Apart(a, c) && Chance(30) && !HasRange(c))
        op = Chance(50) ? "transpose" : "permute";
    std::string text = c.text + " = " + op + " " + a.text +
                       (op == "permute" ? " order (1, 0)" : "");
    if (!mesh_.empty() && Chance(10)) {
        size_t axis;
        std::string mine = Axis(&axis);

        text = "if " + mine + " == " + Str(Below(mesh_[axis].second)) + " { " +
               text + " } else { " + c.text + " = copy " + a.text + " }";
    }
    Put(stream, Repeat(text));
}

// Several pieces at once: as many on all ranks, each rank's own number, or in
// each round of a loop one more, from none on.
void Generator::Ranges()
{
    static const char *const unary[] = {"relu", "copy", "exp", "sum"};
    static const char *const binary[] = {"add", "sub", "min", "max"};
    int stream = AnyStream(), n = 1 + Below(3);
    bool both = Chance(40), folds = Chance(20), loops = !folds && Chance(20);
    size_t axis;
    std::string count = loops ? "i" : "";
    Pick a, b, c;

    if (!mesh_.empty() && !loops && Chance(40)) {
        std::string mine = Axis(&axis);

        n = mesh_[axis].second;
        count = folds || Chance(50) ? "(" + mine + " + 1)" : mine;
    }
    if (!FindRead(n, "f32", &a) || !FindRead(n, "f32", &b) ||
        !FindWrite(folds ? 0 : n, "f32", &c))
        return;
    if (!count.empty()) {
        for (Pick *pick : {&a, &b})
            *pick = Counted(pick->buffer, count, n);
        if (!folds)
            c = Counted(c.buffer, count, n);
    }
    std::vector<int> lengths = Lengths();
    if (Chance(30) && !folds) {
        for (int &length : lengths)
            length -= Below(length);
        for (Pick *pick : {&a, &b, &c})
            Narrow(pick, lengths);
    }
    if (!Readable(a) || !Readable(b) || (!Disjoint(a, c) && a.text != c.text) ||
        (!Disjoint(b, c) && b.text != c.text))
        return;
    auto around = [&](const std::string &text) {
        return loops ? "for i in 0.." + Str(n + 1) + " { " + text + " }"
                     : Repeat(text);
    };
    if (folds) {
        if (!Disjoint(a, c))
            return;
        Step(stream, {a}, {c});
        Put(stream, Repeat(c.text + " = sum " + a.text + " dim 0"));
    } else if (both) {
        Step(stream, {a, b}, {c});
        Put(stream, around(c.text + " = " + binary[Below(4)] + " " + a.text +
                           ", " + b.text));
    } else {
        Step(stream, {a}, {c});
        Put(stream, around(c.text + " = " + unary[Below(4)] + " " + a.text));
    }
}

// Rows, columns and what is summed over are ranges.
void Generator::Product()
{
    int stream = AnyStream(), rows = 1 + Below(3), k, columns;
    std::vector<int> whole = Lengths();
    Pick a, b, c;

    if (whole.size() != 1)
        return;
    k = whole[0] - Below(whole[0]);
    columns = whole[0] - Below(whole[0]);
    if (!FindRead(rows, "f32", &a) || !FindRead(k, "f32", &b) ||
        !FindWrite(rows, "f32", &c) || !Disjoint(a, c) || !Disjoint(b, c))
        return;
    Narrow(&a, {k});
    Narrow(&b, {columns});
    Narrow(&c, {columns});
    bool more = Chance(40) && Readable(c);
    Step(stream, more ? std::vector<Pick>{a, b, c} : std::vector<Pick>{a, b},
         {c});
    std::string text = Repeat(c.text + " = matmul " + a.text + ", " + b.text +
                              (more ? " accumulate" : ""));
    Put(stream, Chance(20) ? "launch { " + text + " }" : text);
}

// Through names of another shape.
void Generator::Flat()
{
    std::vector<int> flat;
    int stream = AnyStream();

    for (size_t i = 0; i < buffers_.size(); i++)
        if (buffers_[i].flat)
            flat.push_back(static_cast<int>(i));
    if (flat.empty())
        return;
    int n = static_cast<int>(flat.size()), of = PieceElements();
    int from = flat[static_cast<size_t>(Below(n))];
    int to = flat[static_cast<size_t>(Below(n))];
    int length =
        1 +
        Below(of * std::max(1, std::min(buffers_[static_cast<size_t>(from)].k,
                                        buffers_[static_cast<size_t>(to)].k)));
    if (Chance(60))
        length = (length + of - 1) / of * of;
    Pick a = FlatRange(from, length), c = FlatRange(to, length);
    if (!Readable(a) || (!Disjoint(a, c) && a.text != c.text))
        return;
    Step(stream, {a}, {c});
    Put(stream, Repeat(c.text + " = relu " + a.text));
}

// A piece in two halves, side by side on two streams.
void Generator::Split()
{
    int one = AnyStream(), two = AnyStream();
    std::vector<int> all = Lengths();
    std::set<int> needs = {0};
    Pick a, c;

    if (all[0] < 2 || !FindRead(0, "f32", &a) || !FindWrite(0, "f32", &c) ||
        !Apart(a, c))
        return;
    std::string at = Str(1 + Below(all[0] - 1)), end = Str(all[0]);
    auto part = [](const std::string &text, const std::string &low,
                   const std::string &past) {
        bool more = text.back() == ']';

        return (more ? text.substr(0, text.size() - 1) + ", " : text + "[") +
               low + ".." + past + "]";
    };
    Need(a, false, &needs);
    Need(c, true, &needs);
    Await(one, needs);
    Await(two, needs);
    NewStep(one, {a}, {c});
    Put(one, part(c.text, "0", at) + " = relu " + part(a.text, "0", at));
    c.exact = false;
    NewStep(two, {a}, {c});
    Put(two, part(c.text, at, end) + " = copy " + part(a.text, at, end));
}

// -------------------------------------------------------------------- blocks

// One block of rows: of what is sharded the own, else any.
Pick Generator::Block(int buffer, const std::string &block)
{
    const Buffer &b = buffers_[static_cast<size_t>(buffer)];
    Pick pick = AllPieces(buffer);

    if (!b.axis.empty()) {
        pick.text = "%" + b.name + "[" + cut_ + " of " + Str(cuts_) + "]";
        return pick;
    }
    if (block.size() == 1 && block[0] >= '0' && block[0] <= '9')
        pick.slots.assign(block[0] - '0' < full_,
                          static_cast<size_t>(block[0] - '0'));
    pick.exact = pick.slots.size() == 1 && (block != cut_ || cuts_ == 1);
    pick.turned = true;
    pick.text = "%" + b.name + "[" + block + " of " + Str(cuts_) + "]";
    return pick;
}

// `axis`: 1 for what is sharded, 0 for what is not, -1 for either.
bool Generator::FindBlock(bool write, int axis, const std::string &block,
                          Pick *out)
{
    for (int tries = 0; tries < 20; tries++) {
        int id = Below(static_cast<int>(buffers_.size()));
        const Buffer &b = buffers_[static_cast<size_t>(id)];

        if (b.rows == 0 || (write && b.role == "in") ||
            (axis >= 0 && b.axis.empty() != (axis == 0)))
            continue;
        *out = Block(id, block);
        if (write || Readable(*out))
            return true;
    }
    return false;
}

// One of the first `n`, or the own one.
std::string Generator::AnyBlock(int n)
{
    return Chance(40) ? cut_ : Chance(50) ? Str(Below(n)) : Turned(n);
}

// Only ranks that have rows do it; on the others it would do nothing.
std::string Generator::Guarded(const std::string &block,
                               const std::string &text, bool must)
{
    if (full_ == cuts_ || block != cut_ || (!must && Chance(60)))
        return text;
    return "if " + cut_ + " < " + Str(full_) + " { " + text + " }";
}

void Generator::Blocks()
{
    static const char *const unary[] = {"relu", "copy", "exp", "sum"};
    static const char *const binary[] = {"add", "sub", "min", "max"};
    std::string block = rows_ > 0 ? AnyBlock(cuts_) : "";
    int stream = AnyStream(), axis = block == cut_ ? -1 : 0;
    std::vector<int> lengths = Lengths();
    bool both = Chance(40);
    Pick a, b, c;

    if (rows_ == 0 || !FindBlock(false, axis, block, &a) ||
        !FindBlock(false, axis, block, &b) || !FindBlock(true, axis, block, &c))
        return;
    if (Chance(30)) {
        for (int &length : lengths)
            length -= Below(length);
        for (Pick *pick : {&a, &b, &c})
            Narrow(pick, lengths);
    }
    if ((!Disjoint(a, c) && a.text != c.text) ||
        (both && !Disjoint(b, c) && b.text != c.text))
        return;
    std::string text = c.text + " = " + (both ? binary : unary)[Below(4)] +
                       " " + a.text + (both ? ", " + b.text : "");
    Step(stream, both ? std::vector<Pick>{a, b} : std::vector<Pick>{a}, {c});
    Put(stream, Repeat(Guarded(block, text)));
}

// Rows in blocks by a matrix that all have.
void Generator::BlockProduct()
{
    std::string block = rows_ > 0 ? AnyBlock(cuts_) : "";
    int stream = AnyStream(), axis = block == cut_ ? -1 : 0;
    std::vector<int> whole = Lengths();
    Pick a, b, c;

    if (rows_ == 0 || whole.size() != 1 || !FindBlock(false, axis, block, &a) ||
        !FindRead(whole[0], "f32", &b) || !FindBlock(true, axis, block, &c) ||
        !Disjoint(a, c))
        return;
    bool more = Chance(40) && Readable(c);
    Step(stream, more ? std::vector<Pick>{a, b, c} : std::vector<Pick>{a, b},
         {c});
    Put(stream,
        Repeat(Guarded(block, c.text + " = matmul " + a.text + ", " + b.text +
                                  (more ? " accumulate" : ""))));
}

// As many rows as a block has are one piece then.
void Generator::BlockSum()
{
    std::string block = rows_ > 0 ? AnyBlock(full_) : "";
    int stream = AnyStream();
    Pick a, c;

    if (rows_ == 0 || !FindBlock(false, block == cut_ ? -1 : 0, block, &a) ||
        !FindWrite(0, "f32", &c) || HasRange(c))
        return;
    c.exact &= full_ == cuts_ || block != cut_;
    Step(stream, {a}, {c});
    Put(stream, Repeat(Guarded(block,
                               c.text + " = " + (Chance(50) ? "sum " : "max ") +
                                   a.text + " dim 0",
                               true)));
}

// Each rank gives its rows to all others.
void Generator::BlockGather()
{
    int stream = AnyStream();
    std::string size = Str(cuts_), at = "@" + cut_;
    Pick a, c, own, other;

    if (rows_ == 0 || !FindBlock(false, 1, cut_, &a) ||
        !FindBlock(true, 0, cut_, &c))
        return;
    own = c;
    other = Block(c.buffer, "i");
    c.exact = true;
    Step(stream, {a}, {c});
    Put(stream, "for i in 0.." + Str(Chance(50) ? full_ : cuts_) +
                    " { if i == " + cut_ + " { " + own.text + " = copy " +
                    a.text + " for j in 1.." + size + " { send" + at + " " +
                    own.text + " to (" + cut_ + " + j) mod " + size +
                    " } } else { " + other.text + " = recv" + at +
                    " from i } }");
}

// Those that have rows send them, and receive from those that have some.
void Generator::BlockShift()
{
    int stream = AnyStream();
    std::string size = Str(cuts_), at = "@" + cut_;
    bool even = rows_ > 0 && rows_ % cuts_ == 0;
    Pick a, c;

    if (rows_ == 0 || cuts_ < 2 || !FindBlock(false, -1, cut_, &a))
        return;
    std::string d = Str(1 + Below(cuts_ - 1));
    std::string from = "(" + cut_ + " - " + d + ") mod " + size;
    std::string get = Chance(25) ? " get" : "";
    if (!FindBlock(true, even ? -1 : 0, from, &c) || !Disjoint(a, c))
        return;
    std::string recv = c.text + " = recv" + at + " from " + from + get;
    bool guards = full_ < cuts_ && Chance(50); // both sides alike
    if (guards)
        recv = "if " + from + " < " + Str(full_) + " { " + recv + " }";
    c.exact &= full_ == cuts_;
    Step(stream, {a}, {c});
    std::string send = "send" + at + " " + a.text + " to (" + cut_ + " + " + d +
                       ") mod " + size + get;
    Put(stream, "group { " + (guards ? Guarded(cut_, send, true) : send) + " " +
                    recv + " }");
}

// A block that all ranks name, in a collective.
void Generator::BlockRoot()
{
    int stream = AnyStream(), which = Below(3);
    std::string block = rows_ > 0 ? Str(Below(full_)) : "";
    size_t axis;
    Pick a, c;

    if (rows_ == 0 || !FindBlock(false, 0, block, &a) ||
        !FindBlock(true, 0, block, &c) || !Disjoint(a, c))
        return;
    std::string mine = Axis(&axis);
    std::string root = " root " + Str(Below(mesh_[axis].second));
    c.exact &= which != 1; // only the root has it afterwards
    Step(stream, {a}, {c});
    Put(stream,
        Repeat(c.text + " = " +
               (which == 0   ? "all_reduce@" + mine + " " + a.text
                : which == 1 ? "reduce@" + mine + " " + a.text + root
                             : "broadcast@" + mine + " " + a.text + root)));
}

// How many pieces a transfer moves; 0 is one alone.
int Generator::AnyPieces()
{
    return Chance(30) ? 1 + Below(3) : 0;
}

void Generator::Loop()
{
    int stream = AnyStream(), k = 2 + Below(2);
    Pick a, c;

    if (!FindRead(k, "f32", &a) || !FindWrite(k, "f32", &c) ||
        (!Disjoint(a, c) && a.text != c.text) || a.turned || c.turned)
        return;
    std::string i = Chance(50) ? "i" : "i..i + 1";
    auto piece = [&](const Pick &pick) {
        std::string low = pick.low > 0 ? Str(pick.low) + " + i" : "i";

        return At(pick, i == "i" ? i : "i.." + low + " + 1");
    };
    Step(stream, {a}, {c});
    Put(stream, "for i in 0.." + Str(k) + " { " + piece(c) + " = relu " +
                    piece(a) + " }");
}

// Each rank sends to the one `d` further along the axis, and receives from the
// one that is as far behind.
void Generator::Exchange(size_t axis, const std::string &d, const Pick &a,
                         const Pick &c)
{
    std::string mine = mesh_[axis].first, at = "@" + mine;
    std::string size = Str(mesh_[axis].second);
    std::string get = Chance(25) ? " get" : "";
    bool deferred = Chance(30);
    std::string event = deferred ? NewEvent() : "";
    int stream = AnyStream();
    int sent = Step(stream, {a}, {});
    std::string send = "send" + at + " " + a.text + " to (" + mine + " + " + d +
                       ") mod " + size + get +
                       (deferred ? " done " + event : "");
    int got = Step(stream, {}, {c});
    std::string recv = c.text + " = recv" + at + " from (" + mine + " - " + d +
                       ") mod " + size + get;
    std::string text = Chance(50) ? send + " " + recv : recv + " " + send;

    if (deferred) {
        auto &known = known_[static_cast<size_t>(stream + 1)];

        known.erase(sent);
        known.erase(got);
        event_of_[static_cast<size_t>(sent)] = event;
        told_[static_cast<size_t>(sent)] = known;
        told_[static_cast<size_t>(sent)].insert(sent);
        known.insert(got);
    }
    std::string group = "group { " + text + " }";
    Put(stream, deferred ? group : Repeat(group));
}

// As many pieces on all ranks.
void Generator::Shift()
{
    size_t axis;
    Pick a, c;

    if (mesh_.empty())
        return;
    Axis(&axis);
    int n = mesh_[axis].second, pieces = AnyPieces();
    if (n < 2 || !FindRead(pieces, "f32", &a) ||
        !FindWrite(pieces, "f32", &c) || !Disjoint(a, c))
        return;
    Exchange(axis, Str(1 + Below(n - 1)), a, c);
}

// Each rank sends as many pieces as it has, and receives as many as the other
// has.
void Generator::Uneven()
{
    size_t axis;
    Pick a, c;

    if (mesh_.empty())
        return;
    std::string mine = Axis(&axis);
    int n = mesh_[axis].second;
    if (n < 2 || !FindRead(n, "f32", &a) || !FindWrite(n, "f32", &c))
        return;
    std::string d = Str(1 + Below(n - 1)), more = Chance(50) ? " + 1" : "";
    a = Counted(a.buffer, "(" + mine + more + ")", n);
    c = Counted(c.buffer,
                "((" + mine + " - " + d + ") mod " + Str(n) + more + ")", n);
    if (!Readable(a) || !Disjoint(a, c))
        return;
    Exchange(axis, d, a, c);
}

// One rank sends, another receives, on streams of their own.
void Generator::OneWay()
{
    size_t axis;
    int from = AnyStream(), to = AnyStream();
    Pick a, c;

    if (mesh_.empty())
        return;
    std::string mine = Axis(&axis), at = "@" + mine;
    int n = mesh_[axis].second;
    int pieces = AnyPieces();
    if (n < 2 || !FindRead(pieces, "f32", &a) || !FindWrite(pieces, "f32", &c))
        return;
    int i = Below(n), j = (i + 1 + Below(n - 1)) % n;
    std::string get = Chance(25) ? " get" : "";
    bool deferred = Chance(25);
    std::string event = deferred ? NewEvent() : "";
    int sent = Step(from, {a}, {});
    Put(from,
        "if " + mine + " == " + Str(i) + " { send" + at + " " + a.text +
            " to " + Str(j) + get +
            (deferred ? " done " + event + " } else { " + event + " = record }"
                      : " }"));
    if (deferred) {
        auto &known = known_[static_cast<size_t>(from + 1)];

        event_of_[static_cast<size_t>(sent)] = event;
        told_[static_cast<size_t>(sent)] = known;
        known.erase(sent);
    }
    bool whole = c.exact;
    c.exact = false; // only one rank has it afterwards
    Step(to, {}, {c});
    std::string other;
    Pick own = c;
    if (whole && Apart(a, c)) {
        // The others take their own.
        own.exact = true;
        Step(to, {a}, {own});
        other = " else { " + c.text + " = copy " + a.text + " }";
    }
    Put(to, "if " + mine + " == " + Str(j) + " { " + c.text + " = recv" + at +
                " from " + Str(i) + get + " }" + other);
}

void Generator::Collect()
{
    static const char *const ops[] = {"all_gather", "reduce_scatter",
                                      "all_reduce", "all_to_all"};
    size_t axis;
    int stream = AnyStream(), which = Below(4);
    Pick a, c;

    if (mesh_.empty())
        return;
    std::string mine = Axis(&axis);
    int n = mesh_[axis].second;
    bool wide_read = which == 1 || which == 3;
    bool wide_write = which == 0 || which == 3;
    if (!FindRead(wide_read ? n : 0, "f32", &a) ||
        !FindWrite(wide_write ? n : 0, "f32", &c))
        return;
    if (which < 2 && Chance(40) && FindWrite(n, "f32", &c))
        a = c;
    bool place = which == 2 && a.text == c.text;
    if (!place && !Apart(a, c)) {
        // Over the own index of the other, which is allowed.
        if (which == 0 && a.buffer == c.buffer)
            a = c;
        else if (which == 1 && a.buffer == c.buffer)
            c = a, c.exact = false;
        else
            return;
        Pick &piece = which == 0 ? a : c;
        if (!Readable(a) || a.turned)
            return;
        piece.text = At(piece, mine);
    }
    Step(stream, {a}, {c});
    Put(stream, Repeat(c.text + " = " + ops[which] + "@" + mine + " " + a.text +
                       (which % 3 == 0 || Chance(55) ? ""
                        : Chance(50)                 ? " max"
                                                     : " min")));
}

void Generator::Broadcast()
{
    size_t axis;
    int stream = AnyStream(), pieces = AnyPieces();
    Pick a, c;

    if (mesh_.empty() || !FindRead(pieces, "f32", &a) ||
        !FindWrite(pieces, "f32", &c) || !Disjoint(a, c))
        return;
    std::string mine = Axis(&axis);
    std::string root = Str(Below(mesh_[axis].second));
    std::string op = "broadcast@" + mine;
    bool both = Chance(40), all = Chance(25);
    if (!both && !all)
        c.exact = false;
    Step(stream, {a}, {c});
    if (all) // every rank names both
        Put(stream, c.text + " = " + op + " " + a.text + " root " + root);
    else
        Put(stream, "if " + mine + " == " + root + " { " +
                        (both ? c.text + " = " : "") + op + " " + a.text +
                        " root " + root + " } else { " + c.text + " = " + op +
                        " root " + root + " }");
}

void Generator::Reduce()
{
    size_t axis;
    int stream = AnyStream(), pieces = AnyPieces();
    Pick a, c;

    if (mesh_.empty() || !FindRead(pieces, "f32", &a) ||
        !FindWrite(pieces, "f32", &c))
        return;
    if (Chance(30) && buffers_[static_cast<size_t>(a.buffer)].role != "in")
        c = a; // in place
    else if (!Disjoint(a, c))
        return;
    std::string mine = Axis(&axis);
    std::string root = Str(Below(mesh_[axis].second));
    std::string op = "reduce@" + mine + " " + a.text + " root " + root +
                     (Chance(55)   ? ""
                      : Chance(50) ? " max"
                                   : " min");
    c.exact = false; // only the root has it afterwards
    Step(stream, {a}, {c});
    if (Chance(40)) // every rank names a result
        Put(stream, c.text + " = " + op);
    else
        Put(stream, "if " + mine + " == " + root + " { " + c.text + " = " + op +
                        " } else { " + op + " }");
}

// A collective and an exchange in one group.
void Generator::Mixed()
{
    size_t axis;
    int stream = AnyStream();
    Pick a, b, c, d;

    if (mesh_.empty())
        return;
    std::string mine = Axis(&axis), at = "@" + mine;
    int n = mesh_[axis].second;
    if (n < 2 || !FindRead(0, "f32", &a) || !FindRead(0, "f32", &b) ||
        !FindWrite(n, "f32", &c) || !FindWrite(0, "f32", &d) || !Apart(a, c) ||
        !Apart(a, d) || !Apart(b, c) || !Apart(b, d) || !Apart(c, d))
        return;
    Step(stream, {a, b}, {c, d});
    Put(stream, "group { " + c.text + " = all_gather" + at + " " + a.text +
                    " send" + at + " " + b.text + " to (" + mine +
                    " + 1) mod " + Str(n) + " " + d.text + " = recv" + at +
                    " from (" + mine + " - 1) mod " + Str(n) + " }");
}

// Two streams hand slots to each other.
void Generator::Pipeline()
{
    Pick source, slots, result;

    if (streams_ < 2 || !FindRead(3, "f32", &source) ||
        !FindWrite(3, "f32", &result) || !FindWrite(2, "f32", &slots) ||
        !Apart(source, result) || !Apart(source, slots) ||
        !Apart(slots, result) || source.turned || slots.turned || result.turned)
        return;
    int base = nevents_;
    std::string full = "%e[" + Str(base) + " + i]";
    std::string free = "%e[" + Str(base + 3) + " + i";
    std::set<int> needs = {0};
    nevents_ += 6;
    Need(source, false, &needs);
    Need(slots, true, &needs);
    Need(result, true, &needs);
    Await(0, needs);
    Await(1, needs);
    int first = NewStep(0, {source}, {slots});
    NewStep(1, {slots}, {result});
    known_[2].insert(first);
    Put(-1,
        "for i in 0..3 { on stream 0 { if i > 1 { wait " + free + " - 2] } " +
            At(slots, "i mod 2") + " = copy " + At(source, "i") + " " + full +
            " = record } on stream 1 { wait " + full + " " + At(result, "i") +
            " = relu " + At(slots, "i mod 2") + " " + free + "] = record } }");
}

void Generator::Noise()
{
    int what = Below(4), stream = AnyStream();

    if (what == 0 && streams_ > 0)
        Fork();
    else if (what == 1 && streams_ > 0)
        Join();
    else if (what == 2)
        Record(stream);
    else if (go_)
        Put(stream, "wait %go");
}

// Outputs whole, all work joined.
void Generator::Finish()
{
    for (size_t id = 0; id < buffers_.size(); id++) {
        const Buffer b = buffers_[id];

        if (b.role != "out")
            continue;
        for (size_t i = 0; i < slots_[id].size(); i++) {
            Pick from, to;

            if (slots_[id][i].last >= 0)
                continue;
            if (b.rows > 0) {
                std::string block =
                    b.axis.empty() ? Str(static_cast<int>(i)) : cut_;
                int stream = AnyStream();

                to = Block(static_cast<int>(id), block);
                Step(stream, {}, {to});
                Put(stream, Guarded(block, to.text + " = fill value 1"));
                continue;
            }
            to.buffer = static_cast<int>(id);
            to.slots = {i};
            to.text = "%" + b.name;
            if (!b.axis.empty())
                to.text += "[" + b.axis + "]";
            else if (b.k > 0)
                to.text += "[" + Str(static_cast<int>(i)) + "]";
            int stream = AnyStream();
            if (!FindRead(0, "", &from) || !Apart(from, to))
                from = OnePiece(0); // an input
            Step(stream, {from}, {to});
            Put(stream, to.text + " = copy " + from.text);
        }
    }
    std::set<int> all;
    for (size_t i = 0; i < stream_of_.size(); i++)
        all.insert(static_cast<int>(i));
    if (done_)
        Put(AnyStream(), "%done = record");
    Await(-1, all);
}

std::string Generator::Run()
{
    ChooseMesh();
    Declare();
    known_.assign(static_cast<size_t>(streams_) + 1, {});
    known_[0] = {0};
    stream_of_ = {-1};
    event_of_ = {""};
    told_ = {{}};
    if (streams_ > 0 && Chance(60))
        Fork();
    int n = 2 + Below(6);
    for (int i = 0; i < n; i++) {
        void (Generator::*const steps[])() = {
            &Generator::Compute,      &Generator::Compute,
            &Generator::Compute,      &Generator::Loop,
            &Generator::Shift,        &Generator::Shift,
            &Generator::OneWay,       &Generator::OneWay,
            &Generator::Collect,      &Generator::Collect,
            &Generator::Broadcast,    &Generator::Reduce,
            &Generator::Mixed,        &Generator::Pipeline,
            &Generator::Noise,        &Generator::Ranges,
            &Generator::Ranges,       &Generator::Product,
            &Generator::Split,        &Generator::Uneven,
            &Generator::Flat,         &Generator::Flat,
            &Generator::Blocks,       &Generator::BlockSum,
            &Generator::BlockProduct, &Generator::BlockGather,
            &Generator::BlockShift,   &Generator::BlockRoot};
        int all = static_cast<int>(std::size(steps));
        (this->*steps[rows_ > 0 && Chance(40) ? all - 1 - Below(6)
                                              : Below(all)])();
        if (Chance(30))
            Record(AnyStream());
    }
    Finish();
    if (streams_ > 0 && Chance(5))
        Fork();

    std::string text = "heddle 2\nhost program g\n";
    for (size_t i = 0; i < mesh_.size(); i++)
        text +=
            (i ? ", " : "mesh ") + mesh_[i].first + "=" + Str(mesh_[i].second);
    text += (mesh_.empty() ? "" : "\n");
    if (streams_ > 0)
        text += "streams " + Str(streams_) + "\n";
    for (const Buffer &b : buffers_)
        text += Declaration(b) + "\n";
    if (nevents_ > 0)
        text += "temp %e : event[" + Str(nevents_) + "]\n";
    if (go_)
        text += "in %go : event[]\n";
    if (done_)
        text += "out %done : event[]\n";
    text += "{\n";
    for (size_t i = 0; i < body_.size(); i++) {
        int s = body_[i].first;

        if (s >= 0 && (i == 0 || body_[i - 1].first != s))
            text += "on stream " + Str(s) + " {\n";
        text += body_[i].second + "\n";
        if (s >= 0 && (i + 1 == body_.size() || body_[i + 1].first != s))
            text += "}\n";
    }
    return text + "}\n";
}

} // namespace

std::string Generate(std::mt19937 &random)
{
    return Generator(random).Run();
}

} // namespace second
