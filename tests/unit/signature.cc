// Rows of ir/signature.def judge random statements as the rules do that are
// written out here, view by view, and as the verifier does. Statements are
// legal, or were until one thing of them changed.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>

#include "ir/parse.h"
#include "ir/signature.h"
#include "ir/space.h"
#include "ir/verify.h"
#include "tests/draw.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

// A dimension, as text: "3", "2@tp", "m".
using Dims = std::vector<std::string>;

struct Statement {
    std::string op, keys;                          // behind the operands
    std::vector<Dims> view;                        // the result, the operands
    std::vector<std::pair<std::string, Dims>> key; // those with a view
    bool host = false;
    bool front = false; // of the text form 1
    size_t results = 1;
};

const char *const maps[] = {"add", "neg", "select", "lt", "exp"};
const char *const folds[] = {"sum", "max", "min"};

std::string Dtype(const Statement &s, size_t view)
{
    if ((s.op == "take" && view == 2) || (s.op == "top_k" && view == 1) ||
        s.op == "route")
        return "i32";
    return (s.op == "select" && view == 1) || (s.op == "lt" && view == 0)
               ? "u8"
               : "f32";
}

std::string Shape(const Dims &dims)
{
    std::string text = "[";

    for (const std::string &dim : dims)
        text += (text.size() > 1 ? ", " : "") + dim;
    return text + "]";
}

std::string Text(const Statement &s)
{
    std::string decls, line = "   ";
    size_t n = s.view.size();

    for (size_t i = 0; i < n; i++) {
        bool out = i < s.results;

        decls += std::string(out ? "out" : "in") + " %v" + std::to_string(i) +
                 " : " + Dtype(s, i) + Shape(s.view[i]) + "\n";
        line += std::string(i == s.results ? " = " + s.op : "") +
                (i == 0 || i == s.results ? " %v" : ", %v") + std::to_string(i);
    }
    if (n == s.results)
        line += " = " + s.op;
    line += s.keys;
    for (const auto &key : s.key) {
        decls += std::string(key.first == "aux" ? "out" : "in") + " %v" +
                 std::to_string(n) +
                 (key.first == "groups" ? " : i32" : " : f32") +
                 Shape(key.second) + "\n";
        line += " " + key.first + " %v" + std::to_string(n++);
    }
    return std::string(s.front ? "heddle 1\n" : "heddle 2\n") +
           (s.host ? "host" : "tensor") +
           " program t\nparam m in 1..8\nmesh tp=2, cp=3\n" + decls + "{\n" +
           line + "\n}\n";
}

// ---------------------------------------------------------------- drawing

using Random = std::mt19937;

// No more than one is over each axis, nor more than two lengths are known late.
std::string DrawDim(Random &random)
{
    static const char *const all[] = {"1", "2", "3",     "2",    "3",
                                      "4", "m", "2 * m", "2@tp", "3@cp"};

    return all[random() % std::size(all)];
}

Dims DrawDims(Random &random, int least = 0, int most = 2)
{
    Dims dims(size_t(Between(least, most, random)));

    for (std::string &dim : dims)
        dim = DrawDim(random);
    return dims;
}

std::string DrawLocal(Random &random)
{
    static const char *const all[] = {"1", "2", "3", "4", "m"};

    return all[random() % std::size(all)];
}

Dims Join(std::initializer_list<Dims> parts)
{
    Dims all;

    for (const Dims &part : parts)
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

Dims Turned(Dims dims)
{
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    return dims;
}

// Some lacking in front, some of one index.
Dims Repeating(Dims dims, Random &random)
{
    if (random() % 3 == 0)
        dims.erase(dims.begin(),
                   dims.begin() + long(random() % (dims.size() + 1)));
    for (std::string &dim : dims)
        if (random() % 4 == 0)
            dim = "1";
    return dims;
}

Dims Unplaced(Dims dims)
{
    for (std::string &dim : dims)
        dim = dim.substr(0, dim.find('@'));
    return dims;
}

Statement DrawCopy(Random &random)
{
    Dims all = DrawDims(random, 0, 3);

    if (random() % 2 == 0)
        return {"set", "", {random() % 2 == 0 ? Unplaced(all) : all, all}, {}};
    return {"copy", "", {all, all}, {}};
}

Statement DrawMap(Random &random)
{
    Dims all = DrawDims(random, 0, 4);
    Statement s = {maps[random() % std::size(maps)], "", {all}, {}};
    int n = s.op == "add" || s.op == "lt" ? 2 : s.op == "select" ? 3 : 1;

    if (random() % 4 == 0) {
        s.op = folds[random() % std::size(folds)];
        n = Between(1, 4, random);
    }
    for (int i = 0; i < n; i++)
        s.view.push_back(Repeating(all, random));
    return s;
}

Statement DrawFold(Random &random)
{
    Dims a = DrawDims(random), c = DrawDims(random);
    Dims kept = random() % 3 == 0 ? Dims{"1"} : Dims{};

    return {folds[random() % std::size(folds)],
            " dim " + std::to_string(a.size()),
            {Join({a, kept, c}), Join({a, {DrawDim(random)}, c})},
            {}};
}

Statement DrawTranspose(Random &random)
{
    Dims in = DrawDims(random, 2, 4), out = in;
    size_t n = in.size(), i = n - 2, k = n - 1;
    Statement s = {"transpose", "", {}, {}};

    if (random() % 2 == 0) {
        i = random() % n;
        k = random() % n;
        s.keys = " dim0 " + std::to_string(i) + " dim1 " + std::to_string(k);
    }
    std::swap(out[i], out[k]);
    s.view = {out, in};
    return s;
}

Statement DrawPermute(Random &random)
{
    Dims in = DrawDims(random, 0, 4), out;
    std::vector<size_t> order(in.size());
    std::string keys;

    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (size_t d : order) {
        out.push_back(in[d]);
        keys += (keys.empty() ? "" : ", ") + std::to_string(d);
    }
    return {"permute", " order (" + keys + ")", {out, in}, {}};
}

Statement DrawTake(Random &random)
{
    Dims b = DrawDims(random), i = DrawDims(random), r = DrawDims(random);

    return {"take",
            " dim " + std::to_string(b.size()),
            {Join({b, i, r}), Join({b, {DrawLocal(random)}, r}), Join({b, i})},
            {}};
}

// Of which ranks may have parts.
std::string DrawJoined(Random &random)
{
    static const char *const all[] = {"3@tp", "2@tp", "3@cp", "2@cp", "m@cp"};

    return random() % 3 == 0 ? all[random() % std::size(all)]
                             : DrawLocal(random);
}

Statement DrawProduct(Random &random)
{
    Dims batch = DrawDims(random), rows = DrawDims(random);
    std::string k = DrawJoined(random);
    Dims columns = {DrawDim(random)};
    bool ta = random() % 3 == 0, tb = random() % 2 == 0;
    Dims a, b;
    Statement s = {"matmul", "", {}, {}};

    if (ta)
        rows = {DrawDim(random)};
    s.front = random() % 3 == 0;
    if (!s.front && random() % 2 == 0)
        rows = {DrawDim(random)};
    a = Join({random() % 3 == 0 ? Dims{} : batch, rows, {k}});
    b = Join({batch, {k}, columns});
    if (!s.front && random() % 2 == 0)
        b = Join({Repeating(batch, random), {k}, columns});
    else if (!s.front && random() % 3 == 0)
        a = Join({Repeating(batch, random), rows, {k}});
    s.keys = std::string(ta ? " ta" : "") + (tb ? " tb" : "");
    s.view = {Join({batch, rows, columns}), ta ? Turned(a) : a,
              tb ? Turned(b) : b};
    if (k.find('@') != std::string::npos)
        s.view[0].insert(s.view[0].begin(),
                         k.back() == 'p' && k[k.size() - 2] == 't' ? "2@tp"
                                                                   : "3@cp");
    if (random() % 3 == 0)
        s.key.push_back({"bias", Repeating(s.view[0], random)});
    if (random() % 4 == 0)
        s.key.push_back({"aux", s.view[0]});
    return s;
}

Statement DrawGroups(Random &random)
{
    Dims g = {DrawLocal(random)}, k = {DrawLocal(random)};
    Dims r = {DrawLocal(random)}, n = {DrawDim(random)};
    Dims b = Join({g, k, n});

    if (random() % 3 == 0)
        return {
            "matmul", " ta", {b, Join({r, k}), Join({r, n})}, {{"groups", g}}};
    Statement s = {
        "matmul", "", {Join({r, n}), Join({r, k}), b}, {{"groups", g}}};
    if (random() % 2 == 0) {
        s.keys = " tb";
        s.view[2] = Turned(b);
    }
    if (random() % 2 == 0)
        s.key.push_back({"bias", Repeating(Join({g, n}), random)});
    return s;
}

// One of the dimensions, by letters; `b` leads all.
Dims Batched(const Dims &b, const std::string &letters,
             const std::map<char, std::string> &dim)
{
    Dims all = b;

    for (char letter : letters)
        all.push_back(dim.at(letter));
    return all;
}

// Results and operands by the letters of what is behind the batch, along which
// operands may repeat.
Statement DrawBatched(const std::string &op, size_t results,
                      const std::vector<std::string> &letters, bool repeats,
                      std::map<char, std::string> dim, Random &random)
{
    Dims b = DrawDims(random);
    Statement s = {op, "", {}, {}};

    s.results = results;
    for (char letter : std::string("cdeknst"))
        if (dim.count(letter) == 0)
            dim[letter] = DrawLocal(random);
    for (const std::string &of : letters)
        s.view.push_back(Batched(
            repeats && s.view.size() >= results ? Repeating(b, random) : b, of,
            dim));
    return s;
}

using Letters = std::vector<std::string>;

const Letters top_k = {"k", "k", "n"};
const Letters route = {"ec", "tk", "e", "tk"};
const Letters merge = {"hse", "hs", "hse", "hs", "hse", "hs"};
const Letters attention = {"hse", "hs", "hsd", "gtd", "gte"};
const Letters grad = {"hsd", "gtd", "gte", "hsd", "gtd",
                      "gte", "hse", "hs",  "hse"};

Statement DrawPick(Random &random)
{
    if (random() % 2 == 0)
        return DrawBatched("top_k", 2, top_k, false,
                           {{'k', random() % 4 == 0 ? "2" : "1"}}, random);
    return DrawBatched("route", 3, route, false, {}, random);
}

// With blocks keys have another dimension; with groups as many as rows.
Letters WithBlocks(Letters letters)
{
    for (std::string &of : letters)
        if (of[0] == 'g')
            of = "n" + of;
    return letters;
}

Letters WithGroups(Letters letters)
{
    for (std::string &of : letters)
        std::replace(of.begin(), of.end(), 't', 's');
    return letters;
}

Statement DrawAttend(Random &random)
{
    const char *const heads[] = {"4", "4", "2", "3", "m", "2@tp"};
    const char *const shared[] = {"2", "2", "2", "2@tp"};
    std::map<char, std::string> dim = {{'h', heads[random() % 6]},
                                       {'g', shared[random() % 4]},
                                       {'n', "3"},
                                       {'d', random() % 8 == 0 ? "m" : "2"},
                                       {'e', "4"}};
    bool gradient = random() % 2 == 0;
    std::string op = gradient ? "attention_grad" : "attention";
    const Letters &of = gradient ? grad : attention;
    size_t results = gradient ? 3 : 2;

    switch (random() % 4) {
    case 0:
        return DrawBatched("merge", 2, merge, true, dim, random);
    case 1: {
        Statement s =
            DrawBatched(op, results, WithBlocks(of), true, dim, random);

        s.keys = " blocks";
        return s;
    }
    case 2: {
        // Some of all rows and keys, or all of both.
        bool some = random() % 2 == 0, blocks = some && random() % 2 == 0;
        Statement s = DrawBatched(op, results,
                                  blocks ? WithBlocks(of)
                                  : some ? of
                                         : WithGroups(of),
                                  true, dim, random);
        const Dims &out = s.view[0];

        s.keys = blocks ? " blocks row 0" : some ? " row 0" : "";
        s.key = {{"groups",
                  Join({Dims(out.begin(),
                             out.end() - 3 - long(random() % (out.size() - 2))),
                        {DrawLocal(random)}})}};
        return s;
    }
    default:
        return DrawBatched(op, results, of, true, dim, random);
    }
}

Statement DrawCall(Random &random)
{
    Dims b = DrawDims(random);
    size_t over = random() % 3;
    Statement s = {"call \"f\"", "", {}, {}};

    s.keys = over > 0 ? " over " + std::to_string(over) : "";
    s.results = 1 + random() % 2;
    for (size_t i = 0; i < s.results + 2; i++) {
        Dims own(over);

        for (std::string &dim : own)
            dim = DrawLocal(random);
        s.view.push_back(Join({i < s.results ? b : Repeating(b, random), own}));
    }
    return s;
}

// Something of it is another, mostly such that it is no longer legal.
void Change(Statement *s, Random &random)
{
    size_t i = random() % (s->view.size() + s->key.size());
    Dims &dims =
        i < s->view.size() ? s->view[i] : s->key[i - s->view.size()].second;

    switch (random() % 5) {
    case 0:
        dims.insert(dims.begin() + long(random() % (dims.size() + 1)),
                    DrawDim(random));
        return;
    case 1:
        if (!dims.empty())
            dims.erase(dims.begin() + long(random() % dims.size()));
        return;
    case 2:
        if (dims.size() > 1)
            std::swap(dims[random() % dims.size()],
                      dims[random() % dims.size()]);
        return;
    default:
        if (!dims.empty())
            dims[random() % dims.size()] = DrawDim(random);
    }
}

Statement DrawStatement(Random &random)
{
    static Statement (*const draw[])(Random &) = {
        DrawCopy,    DrawMap,    DrawFold, DrawTranspose, DrawPermute, DrawTake,
        DrawProduct, DrawGroups, DrawPick, DrawAttend,    DrawCall};
    Statement s = draw[random() % std::size(draw)](random);

    for (unsigned n = random() % 3; n > 0; n--)
        Change(&s, random);
    s.host = s.op != "set" && s.keys.find("blocks") == std::string::npos &&
             random() % 2 == 0;
    return s;
}

// ------------------------------------------------------------------ rules

bool Same(const hd_type &a, int i, const hd_type &b, int k)
{
    return hd_dim_same(a.dim[i], b.dim[k]);
}

bool AsLong(const hd_type &a, const hd_type &b)
{
    bool fits = a.ndims == b.ndims;

    for (int d = 0; d < a.ndims && fits; d++)
        fits = hd_dim_as_long(a.dim[d], b.dim[d]);
    return fits;
}

bool Repeats(const hd_type &in, const hd_type &out)
{
    int lead = out.ndims - in.ndims;

    for (int d = 0; d < in.ndims && lead >= 0; d++)
        if (!hd_dim_is_one(in.dim[d]) && !Same(in, d, out, lead + d))
            return false;
    return lead >= 0;
}

bool Folds(const hd_type &out, const hd_type &in, int dim, bool tensor)
{
    hd_type rest = hd_type_without(&in, dim);
    bool over = hd_dim_is_sharded(in.dim[dim]);

    if (out.ndims == in.ndims) {
        if (!hd_dim_is_one(out.dim[dim]) || over)
            return false;
        rest = hd_type_with(&rest, dim, out.dim[dim]);
    }
    return tensor ? AsLong(out, rest) : !over && hd_type_same_dims(&out, &rest);
}

// What the key says, or what is said without it.
int Number(const hd_op *op, hd_key_code code, int without)
{
    const hd_key *key = hd_op_key(op, code);

    return key == nullptr ? without : int(key->number);
}

bool Transposes(const hd_op *op, const hd_type &out, const hd_type &in)
{
    const hd_key *order = hd_op_key(op, HD_KEY_ORDER);
    hd_type want = in;

    for (int d = 0; order != nullptr && d < in.ndims; d++)
        want.dim[d] = in.dim[order->ints[d]];
    if (order != nullptr)
        return hd_type_same_dims(&out, &want);
    std::swap(want.dim[Number(op, HD_KEY_DIM0, in.ndims - 2)],
              want.dim[Number(op, HD_KEY_DIM1, in.ndims - 1)]);
    return hd_type_same_dims(&out, &want);
}

// From a dimension over ranks, in tensor programs, to any placement.
bool Takes(const hd_type &out, const hd_type &in, const hd_type &at, int dim,
           bool tensor)
{
    int behind = in.ndims - dim - 1;
    bool over = hd_dim_is_sharded(in.dim[dim]);
    bool fits =
        at.ndims >= dim && out.ndims == at.ndims + behind && (tensor || !over);
    hd_type want = at;

    for (int d = 0; d < dim && fits; d++)
        fits = Same(in, d, at, d);
    if (!fits)
        return false;
    for (int d = 0; d < behind; d++)
        want.dim[want.ndims++] = in.dim[dim + 1 + d];
    return over ? AsLong(out, want) : hd_type_same_dims(&out, &want);
}

bool IsLocal(const hd_type &type, int d)
{
    return !hd_dim_is_sharded(type.dim[d]);
}

// Of the text form 1: batches pair from the front.
bool MultipliesInFront(const hd_type &c, const hd_type &a, const hd_type &b,
                       bool ta, bool tb)
{
    int batch = b.ndims - 2, matrix = ta ? 2 : 1;
    bool crossed = batch > 0 && c.ndims == a.ndims + batch;
    int paired = crossed ? 0 : batch, ka = a.ndims - (ta ? 2 : 1);
    int kb = b.ndims - (tb ? 1 : 2), n = b.ndims - (tb ? 2 : 1);

    if (batch < 0 || a.ndims < matrix + paired ||
        (ta && a.ndims != 2 + paired) || c.ndims != a.ndims + batch - paired ||
        !Same(a, ka, b, kb) || !IsLocal(a, ka) || !Same(c, c.ndims - 1, b, n))
        return false;
    for (int d = 0; d < batch; d++)
        if (!Same(c, d, b, d) || (d < paired && !Same(c, d, a, d)))
            return false;
    for (int d = batch; d < c.ndims - 1; d++)
        if (!Same(c, d, a, ta ? a.ndims - 1 : d - batch + paired))
            return false;
    return true;
}

// The dimension of `t` that stands `behind` dimensions from the end, one index
// where there is none.
hd_dim Behind(const hd_type &t, int behind)
{
    return behind < t.ndims ? t.dim[t.ndims - 1 - behind] : hd_dim_whole(1);
}

bool IsOne(hd_dim dim)
{
    return dim.extent == 1 && !hd_dim_is_sharded(dim) && !hd_dim_is_sized(dim);
}

bool SameDim(hd_dim a, hd_dim b)
{
    hd_type x = {}, y = {};

    x.ndims = y.ndims = 1;
    x.dim[0] = a;
    y.dim[0] = b;
    return Same(x, 0, y, 0);
}

// Of others: from the last dimension on, or each matrix of b by all of a.
bool Multiplies(const hd_type &c, const hd_type &a, const hd_type &b, bool ta,
                bool tb)
{
    bool crossed = c.ndims == a.ndims + b.ndims - 2;
    hd_dim k = Behind(a, ta ? 1 : 0), kb = Behind(b, tb ? 0 : 1);

    if (crossed && !ta)
        return MultipliesInFront(c, a, b, ta, tb);
    if (a.ndims < 2 || b.ndims < 2 || c.ndims != std::max(a.ndims, b.ndims) ||
        !SameDim(k, kb) || hd_dim_is_sharded(k) ||
        !SameDim(Behind(c, 0), Behind(b, tb ? 1 : 0)) ||
        !SameDim(Behind(c, 1), Behind(a, ta ? 0 : 1)))
        return false;
    for (int d = 2; d < c.ndims; d++)
        for (hd_dim x : {Behind(a, d), Behind(b, d)})
            if (!IsOne(x) && !SameDim(x, Behind(c, d)))
                return false;
    return true;
}

// Whether some product of the form has as many dimensions.
bool HasAsMany(int c, int a, int b, bool ta, bool front)
{
    int batch = b - 2, matrix = ta ? 2 : 1;

    if (batch < 0)
        return false;
    if (!front)
        return (a >= 2 && c == std::max(a, b)) ||
               (!ta && a >= 1 && c == a + batch);
    return (c == a && (ta ? a == 2 + batch : a >= matrix + batch)) ||
           (batch > 0 && c == a + batch && (ta ? a == 2 : a >= matrix));
}

// Of what ranks have of the contracted dimension, in front of what would be a
// product of all of it.
bool MakesParts(const hd_type &c, hd_type a, hd_type b, bool ta, bool tb,
                bool front)
{
    hd_type rest = c, ranks = {};
    int ka = a.ndims - (ta ? 2 : 1), kb = b.ndims - (tb ? 1 : 2);
    hd_dim k;

    if (ka < 0 || kb < 0 || c.ndims == 0 ||
        HasAsMany(c.ndims, a.ndims, b.ndims, ta, front) || !Same(a, ka, b, kb))
        return false;
    k = a.dim[ka];
    rest.ndims--;
    std::copy(c.dim + 1, c.dim + c.ndims, rest.dim);
    ranks.ndims = 1;
    ranks.dim[0] = hd_dim_whole(k.mark == 0 ? 2 : 3);
    ranks.dim[0].mark = k.mark;
    a.dim[ka] = b.dim[kb] = hd_dim_whole(k.extent);
    return hd_dim_is_sharded(k) && !hd_dim_is_sized(k) &&
           Same(c, 0, ranks, 0) &&
           (front ? MultipliesInFront : Multiplies)(rest, a, b, ta, tb);
}

bool Groups(const hd_type &c, const hd_type &a, const hd_type &b,
            const hd_type &counts, bool ta, bool tb)
{
    const hd_type &matrices = ta ? c : b, &rows = ta ? b : c;

    return !(ta && tb) && a.ndims == 2 && rows.ndims == 2 &&
           matrices.ndims == 3 && counts.ndims == 1 && Same(a, 0, rows, 0) &&
           IsLocal(a, 0) && Same(a, 1, matrices, tb ? 2 : 1) && IsLocal(a, 1) &&
           Same(counts, 0, matrices, 0) && IsLocal(counts, 0) &&
           Same(rows, 1, matrices, tb ? 1 : 2);
}

// The result of one row of each group, along which the bias lies.
hd_type RowsOfGroups(const hd_type &c, const hd_type &counts)
{
    hd_type rows = c;

    rows.dim[0] = counts.dim[0];
    return rows;
}

// What the op says, its views' shapes, and what dimensions its keys name.
struct Judged {
    const hd_op *op;
    hd_type type[HD_MAX_VIEWS];
    bool tensor;
    hd_type lead; // of a batch
};

bool Has(const hd_op *op, hd_key_code code)
{
    return hd_op_key(op, code) != nullptr;
}

bool MatmulIsFine(const Judged &j)
{
    bool ta = Has(j.op, HD_KEY_TA), tb = Has(j.op, HD_KEY_TB), fits;
    int groups = hd_op_key_view(j.op, HD_KEY_GROUPS);
    int bias = hd_op_key_view(j.op, HD_KEY_BIAS);
    int aux = hd_op_key_view(j.op, HD_KEY_AUX);

    fits =
        groups < 0
            ? (j.op->front ? MultipliesInFront : Multiplies)(
                  j.type[0], j.type[1], j.type[2], ta, tb) ||
                  (j.tensor && MakesParts(j.type[0], j.type[1], j.type[2], ta,
                                          tb, j.op->front))
            : Groups(j.type[0], j.type[1], j.type[2], j.type[groups], ta, tb);
    return fits &&
           (bias < 0 ||
            Repeats(j.type[bias],
                    groups < 0 ? j.type[0]
                               : RowsOfGroups(j.type[0], j.type[groups]))) &&
           (aux < 0 || hd_type_same_dims(&j.type[aux], &j.type[0]));
}

hd_type Ahead(const hd_type &type, int behind)
{
    hd_type first = type;

    first.ndims = std::max(type.ndims - behind, 0);
    return first;
}

// The batches of results are one, those of operands lie along it.
bool LeadAlike(const Judged &j, int i, int behind, bool repeats)
{
    hd_type lead = Ahead(j.type[i], behind);

    return repeats && i >= j.op->noutputs ? Repeats(lead, j.lead)
                                          : hd_type_same_dims(&lead, &j.lead);
}

// Each rank has what is behind the batch.
bool IsLocalBehind(const hd_type &type, int behind)
{
    bool fits = true;

    for (int d = std::max(type.ndims - behind, 0); d < type.ndims; d++)
        fits = fits && IsLocal(type, d);
    return fits;
}

// But heads, of which ranks may have some, the same ones of all views.
bool IsHeads(char letter)
{
    return letter == 'h' || letter == 'g';
}

bool BatchIsFine(Judged j, const Letters &letters, bool repeats)
{
    std::map<char, hd_dim> seen;

    j.lead = Ahead(j.type[0], int(letters[0].size()));
    for (int i = 0; i < int(letters.size()); i++) {
        const std::string &of = letters[size_t(i)];
        int behind = int(of.size()), batch = j.type[i].ndims - behind;

        if (batch < 0 || !LeadAlike(j, i, behind, repeats))
            return false;
        for (int d = 0; d < behind; d++) {
            char letter = of[size_t(d)];
            hd_dim dim = j.type[i].dim[batch + d];
            hd_dim first = seen.emplace(letter, dim).first->second;

            if (!(IsHeads(letter) ? hd_dim_same(first, dim)
                                  : hd_dim_as_long(first, dim)) ||
                (!IsHeads(letter) && hd_dim_is_sharded(dim)))
                return false;
        }
    }
    return true;
}

bool AttendIsFine(const Judged &j)
{
    int counts = hd_op_key_view(j.op, HD_KEY_GROUPS);
    Letters letters = j.op->code == HD_OP_MERGE       ? merge
                      : j.op->code == HD_OP_ATTENTION ? attention
                                                      : grad;
    hd_type first;

    if (Has(j.op, HD_KEY_BLOCKS))
        letters = WithBlocks(letters);
    if (counts < 0)
        return BatchIsFine(j, letters, true);
    if (!BatchIsFine(j, letters, true) || j.type[counts].ndims == 0)
        return false;
    first = Ahead(j.type[counts], 1);
    for (int d = 0; d < first.ndims; d++)
        if (d >= j.type[0].ndims - 3 || !Same(first, d, j.type[0], d))
            return false;
    return IsLocal(j.type[counts], first.ndims);
}

bool CallIsFine(Judged j)
{
    int over = hd_op_over(j.op);
    bool fits = true;

    j.lead = Ahead(j.type[0], over);
    for (int i = 0; i < j.op->nviews && fits; i++)
        fits = (i >= j.op->noutputs || j.type[i].ndims >= over) &&
               LeadAlike(j, i, over, true) && IsLocalBehind(j.type[i], over);
    return fits;
}

bool IsFine(const Judged &j)
{
    switch (hd_op_family(j.op)) {
    case HD_FAMILY_COPY:
        return j.op->code == HD_OP_SET
                   ? AsLong(j.type[0], j.type[1])
                   : hd_type_same_dims(&j.type[0], &j.type[1]);
    case HD_FAMILY_TRANSPOSE:
        return Transposes(j.op, j.type[0], j.type[1]);
    case HD_FAMILY_TAKE:
        return Takes(j.type[0], j.type[1], j.type[2],
                     Number(j.op, HD_KEY_DIM, 0), j.tensor);
    case HD_FAMILY_PRODUCT:
        return MatmulIsFine(j);
    case HD_FAMILY_PICK:
        return BatchIsFine(j, j.op->code == HD_OP_TOP_K ? top_k : route, false);
    case HD_FAMILY_ATTEND:
        return AttendIsFine(j);
    case HD_FAMILY_CALL:
        return CallIsFine(j);
    case HD_FAMILY_FOLD:
        if (Has(j.op, HD_KEY_DIM))
            return Folds(j.type[0], j.type[1], Number(j.op, HD_KEY_DIM, 0),
                         j.tensor);
        break;
    default:
        break;
    }
    for (int i = 1; i < j.op->nviews; i++)
        if (!Repeats(j.type[i], j.type[0]))
            return false;
    return true;
}

// ----------------------------------------------------------------- judging

// Where the verifier judges otherwise than rows do, each with its reason.
enum Class {
    ALIKE,
    FEWER, // it refuses the k greatest of what may be fewer
    HEADS, // heads of queries that are no multiple of those of keys, on a rank
    LATE,  // depths, heads or blocks of a length that a run says
    APART, // what is taken from a dimension over ranks that it refuses
    PARTS, // of products that something is done to behind their sum
    NCLASSES
};

hd_dim Back(const hd_type &type, int i)
{
    return type.dim[type.ndims - i];
}

// Of attention: heads are the third from the back, depths the last, blocks of
// keys the fourth.
Class ClassOfHeads(const Judged &j)
{
    int q = j.op->noutputs;
    hd_dim h = Back(j.type[q], 3), g = Back(j.type[q + 1], 3);
    bool late = false;

    if (j.op->code == HD_OP_MERGE)
        return hd_dim_is_sized(Back(j.type[0], 1)) ? LATE : ALIKE;
    for (int i : {q, q + 1, q + 2})
        late |= hd_dim_is_sized(Back(j.type[i], 1));
    if (Has(j.op, HD_KEY_BLOCKS))
        late |= hd_dim_is_sized(Back(j.type[q + 1], 4));
    if (late || hd_dim_is_sized(h) || hd_dim_is_sized(g))
        return LATE;
    return h.extent % g.extent != 0 || hd_dim_is_sharded(h) ||
                   hd_dim_is_sharded(g)
               ? HEADS
               : ALIKE;
}

// Of a length that a run says, or where the same ranks have some of the
// indices.
Class ClassOfTake(const Judged &j)
{
    int dim = Number(j.op, HD_KEY_DIM, 0);

    if (!hd_dim_is_sharded(j.type[1].dim[dim]))
        return ALIKE;
    if (hd_dim_is_sized(j.type[1].dim[dim]))
        return APART;
    for (int d = 0; d < j.type[1].ndims; d++)
        for (int e = 0; e < j.type[2].ndims; e++)
            if (hd_dim_is_sharded(j.type[1].dim[d]) && (d >= dim || e != d) &&
                j.type[1].dim[d].mark == j.type[2].dim[e].mark)
                return APART;
    return ALIKE;
}

Class ClassOf(const Judged &j, bool rows)
{
    if (rows && hd_op_family(j.op) == HD_FAMILY_TAKE)
        return ClassOfTake(j);
    if (rows && hd_op_family(j.op) == HD_FAMILY_ATTEND)
        return ClassOfHeads(j);
    if (rows && j.op->code == HD_OP_MATMUL)
        return Has(j.op, HD_KEY_AUX) && j.tensor ? PARTS : ALIKE;
    if (rows && j.op->code == HD_OP_TOP_K) {
        hd_dim k = Back(j.type[0], 1), n = Back(j.type[2], 1);

        return hd_dim_is_sized(k) || hd_dim_is_sized(n) || k.extent > n.extent
                   ? FEWER
                   : ALIKE;
    }
    return ALIKE;
}

struct Tally {
    int drawn = 0, fine = 0, classes[NCLASSES] = {};
    int ops[HD_NOPS][2] = {};
};

// Whether keys name dimensions that there are: else that is what is refused.
bool NamesDims(const Judged &j)
{
    const hd_key *order = hd_op_key(j.op, HD_KEY_ORDER);
    int ndims = j.type[1].ndims;

    if (order != nullptr) // it is drawn of as many as the operand had
        return order->nints == ndims;
    return hd_op_over(j.op) <= j.type[0].ndims &&
           Number(j.op, HD_KEY_DIM, -1) < ndims &&
           Number(j.op, HD_KEY_DIM0, -1) < ndims &&
           Number(j.op, HD_KEY_DIM1, -1) < ndims &&
           (hd_op_family(j.op) != HD_FAMILY_TRANSPOSE || ndims > 1 ||
            Has(j.op, HD_KEY_DIM0));
}

void Judge(const Statement &s, Tally *tally)
{
    std::string text = Text(s);
    hd_diag *diag = hd_diag_create();
    hd_module *module = hd_module_create();
    hd_status status;
    Judged j = {};

    module->source = hd_source{};
    module->source.name = "test.hd";
    module->source.text = text.c_str();
    module->source.length = text.size();
    // Two dimensions over one axis are refused with the declaration.
    if (hd_parse_module(module, nullptr, 0, diag) == HD_OK) {
        j.op = module->body.first->op;
        j.tensor = !s.host;
        for (int i = 0; i < j.op->nviews; i++)
            j.type[i] = hd_view_type(&j.op->view[i]);
        if (NamesDims(j)) {
            hd_misfit why;
            bool rows =
                hd_signature_fits(j.op, j.type, j.tensor, nullptr, &why);
            bool rules = IsFine(j);

            module->placed = true; // placements are judged, too
            status = hd_verify(module, diag);
            EXPECT_EQ(rows, rules) << text;
            tally->drawn++;
            tally->fine += rows;
            tally->ops[j.op->code][rows]++;
            if (rows != (status == HD_OK)) {
                Class differs = ClassOf(j, rows);

                EXPECT_NE(differs, ALIKE) << text << "rows say " << rows << "\n"
                                          << hd_diag_text(diag);
                tally->classes[differs]++;
            }
        }
    }
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

bool IsQuick()
{
    const char *quick = std::getenv("HEDDLE_TEST_QUICK");

    return quick != nullptr && std::string(quick) == "1";
}

TEST(Signature, RowsJudgeAsTheRulesAndTheVerifierDo)
{
    Random random(Seed());
    const int most = IsQuick() ? 2000 : 20000;
    Tally tally;

    while (tally.drawn < most && !HasFailure())
        Judge(DrawStatement(random), &tally);
    std::printf("%d statements, %d fine; the verifier differs on %d k, %d "
                "heads, %d lengths\n",
                tally.drawn, tally.fine, tally.classes[FEWER],
                tally.classes[HEADS], tally.classes[LATE]);
    for (int i = 0; i < HD_NOPS && !IsQuick(); i++)
        EXPECT_EQ(tally.ops[i][0] > 0, tally.ops[i][1] > 0)
            << hd_op_info_get(hd_opcode(i))->text;
    EXPECT_GT(tally.fine, most / 4);
    EXPECT_LT(tally.fine, most * 3 / 4);
}

} // namespace
