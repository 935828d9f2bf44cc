// The steps of one rank: loops unrolled, indices numbers, as docs/semantics.md
// defines them.
#ifndef HD_TESTS_SECOND_UNROLL_H
#define HD_TESTS_SECOND_UNROLL_H

#include <map>

#include "tests/second/program.h"

namespace second
{

// Which rule a program breaks.
enum Rule {
    INVALID,   // an index, stream, peer, wait or number: 06xx
    MISMATCH,  // transfers that do not fit each other: 0701 to 0705
    DEADLOCK,  // 0706
    HOLE,      // an output or an event of the caller's: 0707
    RACE,      // 0801, 0802
    UNWRITTEN, // 0803
    UNJOINED,  // 0804
    EARLY,     // 0806
    LIFETIME,  // 0807
    IN_PLACE,  // 0809
    NRULES
};
extern const char *const kRuleText[NRULES];

struct Broken : std::runtime_error {
    Rule rule;
    Broken(Rule r, const std::string &why) : std::runtime_error(why), rule(r)
    {
    }
};

// The elements of a buffer that a view picks, in their order: offsets in the
// bytes' first name. Two regions are the same list of elements if and only if
// they compare equal, since extents of 1 and dense neighbours are folded.
struct Region {
    int decl = 0; // the name that it is seen through
    int root = 0; // the name that owns the bytes
    int64_t offset = 0;
    std::vector<std::pair<int64_t, int64_t>> dims; // extent, stride
    // Whether a range is empty in every run: what is of that is not issued,
    // unlike what has no elements because of what this run is given.
    bool nothing = false;

    int64_t Elements() const;
    std::vector<int64_t> Offsets() const;
    bool SameElements(const Region &other) const
    {
        return root == other.root && offset == other.offset &&
               dims == other.dims;
    }
};

// A view as the text has it: its own dimensions, and the counts of one of them.
struct Seen {
    Region region; // not folded; its root is a bank
    std::string dtype;
    int counted = -1;           // the dimension of which there are counts
    int64_t first = 0;          // where in that the view begins
    int64_t all = 0;            // and how many indices it has in all
    std::vector<Region> counts; // one, where there are some: of its first
                                // dimensions
};

// What names mean somewhere in a program, the innermost last.
using Scope = std::vector<std::pair<std::string, int64_t>>;

using EventId = std::pair<int, int64_t>; // declaration, index

// A compute step, or one transfer.
struct Work {
    std::string op, dtype;
    std::vector<Region> reads, writes;
    // Operands and results between which HD0809 asks; the rest of the reads
    // are what a step reads by its nature where it writes.
    std::vector<std::pair<Region, Region>> clashes; // operand, result
    bool transfer = false, deferred = false;
    EventId event{-1, 0}; // recorded when a deferred send is complete
    int axis = -1, size = 1, peer = -1, root = -1;
    bool get = false;
    std::string fold;                   // max, min, or nothing for a sum
    int64_t elements = 0;               // that a peer sees
    bool nothing = false;               // not issued, but the peer must agree
    bool receives = true, sends = true; // of those with a root, who does what
    std::string text;
    // What it computes with.
    const Stmt *stmt = nullptr; // borrowed from the program
    std::vector<Seen> from, to;
    std::map<std::string, Seen> keys; // those that are views
    std::map<std::string, double> reals;
    std::map<size_t, double> numbers; // that are operands: which
    Scope scope;
    // Of a tensor program: axes of which the coordinate is an index of the
    // first result, that of this dimension.
    std::vector<std::pair<std::string, int>> coordinates;
};

struct Step {
    enum Kind { WORK, RECORD, WAIT, FORK, JOIN } kind;
    int stream = -1;             // -1: the caller's
    int launch = 0;              // which of the rank's it is of, from 1
    std::vector<EventId> events; // of RECORD and WAIT
    std::vector<Work> work;      // several: a group
};

// What does not depend on the steps.
struct Shape {
    std::vector<std::pair<std::string, int64_t>> mesh;
    int ranks = 1;
    int64_t streams = 0;
    std::map<std::string, int> decl; // by name

    explicit Shape(const Program &program);
    std::vector<int64_t>
    Coordinates(int rank) const; // the last axis is fastest
    int Rank(const std::vector<int64_t> &coordinates) const;
};

// Bytes of an element; 0 of an event.
int64_t SizeOf(const std::string &dtype);
// Elements of a name lie in the bank of the buffer that owns its bytes, or in
// one of their own where they are of another size than that one's.
int Bank(const Program &program, const Shape &shape, int decl);

int64_t Evaluate(const Expr &e, const Shape &shape, const Scope &scope);

// Throws Broken for what has no meaning on this rank (INVALID). The program
// must outlive the steps.
std::vector<Step> Unroll(const Program &program, const Shape &shape, int rank);
// All that `rank` has of a declared buffer, and how many elements it has room
// for: where a dimension is cut into blocks, the last ranks have fewer indices.
Region Whole(const Program &program, const Shape &shape, int rank, int decl);
int64_t RoomElements(const Program &program, const Shape &shape, int rank,
                     int decl);
// The same elements as Whole's, each beside its place in the whole array, which
// is dense and has this run's sizes.
std::vector<std::pair<int64_t, int64_t>>
Places(const Program &program, const Shape &shape, int rank, int decl);
// The extents of that array.
std::vector<int64_t> Extents(const Program &program, const Shape &shape,
                             int decl);

} // namespace second

#endif
