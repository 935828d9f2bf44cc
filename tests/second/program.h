// Programs as the second oracle reads them: from their text alone, by the
// grammar of docs/text-form.md. Nothing here is shared with the library: what
// both get wrong, both have to get wrong on their own.
//
// To be read in this order: program.h and parse.cc (text), unroll.h (steps of a
// rank), model.h (what must not happen), launches.h (what launches may not wait
// for), generate.h (programs from nothing),
// change.h (slips, and smaller programs), second.cc (the tests). What programs
// compute: number.h, span.h (views of memory), compute.h (each operation),
// evaluate.h (whole programs), judge.h (whether two compute the same),
// values.cc (tests of these), families.h (pairs of programs), against.cc (what
// a proof of values is held to).
#ifndef HD_TESTS_SECOND_PROGRAM_H
#define HD_TESTS_SECOND_PROGRAM_H

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace second
{

// What the oracle cannot read.
struct Unreadable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// What it could read and will not execute.
struct TooLarge : Unreadable {
    using Unreadable::Unreadable;
};

// `op` is "number", "name", "size", "neg", "not", or an operator or a function
// of the text; of a real number also "real", with the literal as its name.
struct Expr {
    std::string op;
    int64_t number = 0;
    std::string name;
    std::vector<Expr> args;
};

struct Dim {
    Expr extent;
    std::vector<Expr> blocks; // one, of `n in s`
    std::string mark;         // the axis, "stream", or ""
    std::string by;           // of whose indices there are, or ""
};

struct Decl {
    std::string role, name, dtype;
    std::vector<Dim> dims;
    bool shared = false;
    std::string of;
    std::string on; // an axis, or ""
    std::vector<Expr>
        onRange; // the first coordinate on it, and perhaps past it
};

struct Index {
    bool all = false;       // `:`
    Expr at;                // or the first of a range, or a block
    std::vector<Expr> past; // one, of a range
    std::vector<Expr> of;   // one, of a block: of how many
};

struct View {
    std::string name;
    std::vector<Index> index;
};

// One of expr, real, view and word has the value; flags have none.
struct Key {
    std::string name;
    std::vector<Expr> expr;
    std::vector<Expr> real;
    std::vector<View> view;
    std::string word;
};

// `kind` is "op", "let", "for", "if", "stream", "group" or "launch".
struct Stmt {
    std::string kind;
    std::vector<View> results, operands;
    std::map<size_t, Expr> numbers; // in the place of operands: of which
    std::string op, axis;
    bool front = false; // of form 1: batches of a product pair from the front
    std::vector<Key> keys;
    std::string name;        // of let and for; of a call, with its quotes
    std::vector<Expr> exprs; // let and if: one; for: two; stream: one
    std::vector<Stmt> body, otherwise;

    const Key *Find(const std::string &key) const;
};

// What each run is given: `now`, from low to high.
struct Size {
    std::string name;
    int64_t low = 1, high = 1, now = 1;
};

struct Program {
    int form = 2;
    std::string level, name, after;
    std::vector<std::pair<std::string, int64_t>> params;
    std::vector<Size> sizes;
    std::vector<std::pair<std::string, Expr>> mesh;
    std::vector<Expr> streams; // one, or none
    std::vector<Decl> decls;
    std::vector<Stmt> body;
};

Program Parse(const std::string &text);
std::string Print(const Program &program);

Expr Number(int64_t n);
Expr Name(const std::string &name);
Expr Make(const std::string &op, Expr a, Expr b);

} // namespace second

#endif
