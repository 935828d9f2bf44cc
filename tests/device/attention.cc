// Attention, its parts and its gradients, of every dtype, mask and form: as the
// reference has them, and the reference as the definition has it, whose
// gradients are its slopes. What no row sees is a NaN.
#include <gtest/gtest.h>

#include <cmath>

#include "base/diag.h"
#include "tests/device/options.h"
#include "tests/draw.h"
#include "tests/unit/ranks.h"

namespace
{

using Change = std::function<void(Arguments *)>;

void Add(const std::string &text, const std::string &dtype, int ranks,
         const Change &change, std::deque<Case> *cases)
{
    SCOPED_TRACE(text);
    Module tensor = Parse(text, dtype, ranks);
    Module host = Proven(tensor, Parse(text, dtype, ranks), HD_TRANSFER_BULK);

    cases->emplace_back(std::move(host), dtype + ": " + text, 2, Seed(), change,
                        std::move(tensor));
}

// B elements of a batch, G groups of Q heads, S rows, K keys, D and W wide.
const char *const kForms[] = {
    "in %q : $[B@tp, G * Q, S, D] in %k : $[B@tp, G, K, D] "
    "in %v : $[B@tp, G, K, W] out %o : $[B@tp, G * Q, S, W] "
    "out %l : L[B@tp, G * Q, S] { %o, %l = attention %q, %k, %v M }",
    "in %q : $[G * Q, S, D] in %k : $[G, K, D] in %v : $[G, K, W] "
    "out %o : L[G * Q, S, W] out %l : L[G * Q, S] "
    "{ %o, %l = attention %q, %k, %v scale 0.25 M }",
    // One set of keys for all, rows and keys that lie apart, into a part.
    "in %q : $[2, B@tp, G, S, 2, D] in %k : $[1, K, 3, D] in %v : $[1, K, W] "
    "inout %o : $[2, B@tp, G, 2 * S, W] inout %l : L[2, B@tp, G, 2, S] "
    "{ %o[1, :, :, S..2 * S], %l[1, :, :, 0] = attention %q[1, :, :, :, 1], "
    "%k[:, :, 2], %v M }",
    // What is there is merged with it, with a factor from memory.
    "in %q : $[B@tp, G, S, D] in %k : $[G, K, D] in %v : $[G, K, W] "
    "in %f : f32[1] inout %o : $[B@tp, G, S, W] inout %l : L[B@tp, G, S] "
    "{ %o, %l = attention %q, %k, %v scale %f accumulate M }",
    // Two parts of the keys, merged with a third one where that is.
    "in %q : $[B@tp, G, S, D] in %k : $[B@tp, 1, 2 * K, D] "
    "in %v : $[B@tp, 1, 2 * K, W] inout %o : L[B@tp, G, S, W] "
    "inout %l : L[B@tp, G, S] temp %p : L[B@tp, G, S, W] "
    "temp %m : L[B@tp, G, S] temp %r : $[B@tp, G, S, W] "
    "temp %n : L[B@tp, G, S] temp %s : L[B@tp, G, S, W] "
    "temp %t : L[B@tp, G, S] "
    "{ %p, %m = attention %q, %k[:, :, K..2 * K], %v[:, :, K..2 * K] "
    "%r, %n = attention %q, %k[:, :, 0..K], %v[:, :, 0..K] M "
    "%s, %t = merge %p, %m, %r, %n %o, %l = merge %o, %l, %s, %t }",
    // Each rank's rows have a place of their own.
    "in %q : $[size tp @tp, G, S, D] in %k : $[G, K, D] in %v : $[G, K, W] "
    "out %o : $[size tp @tp, G, S, W] out %l : L[size tp @tp, G, S] "
    "{ %o, %l = attention %q, %k, %v causal tp * 3 - 1 window 5 }",
    "in %x : $[B@tp, G, S, D] in %a : L[B@tp, G, S] in %y : $[G, S, D] "
    "in %b : L[G, S] out %o : L[B@tp, G, S, D] out %l : L[B@tp, G, S] "
    "{ %o, %l = merge %x, %a, %y, %b }",
};

// Likewise, forward and backward.
const char *const kGradients[] = {
    "in %q : $[B@tp, G * Q, S, D] in %k : $[B@tp, G, K, D] "
    "in %v : $[B@tp, G, K, W] in %g : $[B@tp, G * Q, S, W] "
    "temp %o : $[B@tp, G * Q, S, W] temp %l : L[B@tp, G * Q, S] "
    "out %a : $[B@tp, G * Q, S, D] out %b : $[B@tp, G, K, D] "
    "out %c : $[B@tp, G, K, W] { %o, %l = attention %q, %k, %v M "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g M }",
    // Of keys that all ranks have, in two blocks whose rows add up; views that
    // lie apart, and repeat.
    "in %q : $[2, B@tp, G * Q, S, 2, D] in %k : $[1, G, 2 * K, 3, D] "
    "in %v : $[1, G, 2 * K, W] in %g : L[G * Q, S, W] "
    "temp %o : L[B@tp, G * Q, S, W] temp %l : L[B@tp, G * Q, S] "
    "inout %a : L[2, B@tp, G * Q, 2 * S, D] inout %b : L[B@tp, G, 2 * K, D] "
    "inout %c : L[B@tp, G, 2 * K, 2, W] "
    "{ %o, %l = attention %q[1, :, :, :, 1], %k[:, :, :, 2], %v scale 0.25 N "
    "%a[1, :, :, S..2 * S], %b[:, :, 0..K], %c[:, :, 0..K, 1] = "
    "attention_grad %q[1, :, :, :, 1], %k[:, :, 0..K, 2], %v[:, :, 0..K], "
    "%o, %l, %g accumulate scale 0.25 N "
    "%a[1, :, :, S..2 * S], %b[:, :, K..2 * K], %c[:, :, K..2 * K, 1] = "
    "attention_grad %q[1, :, :, :, 1], %k[:, :, K..2 * K, 2], "
    "%v[:, :, K..2 * K], %o, %l, %g accumulate scale 0.25 }",
    // Of keys in blocks, of which rows of each rank see others.
    "in %q : $[size tp @tp, G * Q, S, D] in %k : $[B, G, K, D] "
    "in %v : $[B, G, K, W] in %g : $[size tp @tp, G * Q, S, W] "
    "temp %o : L[size tp @tp, G * Q, S, W] temp %l : L[size tp @tp, G * Q, S] "
    "out %a : $[size tp @tp, G * Q, S, D] out %b : $[size tp @tp, B, G, K, D] "
    "out %c : L[size tp @tp, B, G, K, W] "
    "{ %o, %l = attention %q, %k, %v blocks causal K - tp * 3 window 9 "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g blocks "
    "causal K - tp * 3 window 9 }",
    // What ranks make of keys that all have is added up.
    "in %q : $[size tp @tp, G, S, D] in %k : $[G, K, D] in %v : $[G, K, W] "
    "in %g : $[size tp @tp, G, S, W] in %f : f32[1] "
    "temp %o : L[size tp @tp, G, S, W] temp %l : L[size tp @tp, G, S] "
    "temp %pk : L[size tp @tp, G, K, D] temp %pv : L[size tp @tp, G, K, W] "
    "out %a : L[size tp @tp, G, S, D] out %b : L[G, K, D] out %c : L[G, K, W] "
    "{ %o, %l = attention %q, %k, %v scale %f causal tp * 3 - 1 window 5 "
    "%a, %pk, %pv = attention_grad %q, %k, %v, %o, %l, %g scale %f "
    "causal tp * 3 - 1 window 5 %b = sum %pk dim 0 %c = sum %pv dim 0 }",
};

// A sequence in zigzag, of which each rank has a block: halves of rows and
// keys, which lie apart.
const char *const kZigzag[] = {
    "in %q : $[size tp @tp, G * Q, 2 * S, D] in %k : $[size tp, G, 2 * S, D] "
    "in %v : $[size tp, G, 2 * S, W] in %g : L[size tp @tp, G * Q, 2 * S, W] "
    "out %o : $[size tp @tp, G * Q, 2 * S, W] "
    "out %l : L[size tp @tp, G * Q, 2 * S] "
    "out %a : $[size tp @tp, G * Q, 2 * S, D] "
    "out %b : $[size tp @tp, size tp, G, 2 * S, D] "
    "out %c : L[size tp @tp, size tp, G, 2 * S, W] "
    "{ %o, %l = attention %q, %k, %v blocks zigzag tp "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g blocks zigzag tp }",
    // Behind a batch, in parts of what is there, which is added to. There is
    // a block that no rank's rows are.
    "in %q : $[2, size tp @tp, B, G * Q, 3 * S, 2, D] "
    "in %k : $[B, size tp + 1, G, 2 * S, 3, D] "
    "in %v : $[B, size tp + 1, G, 3 * S, W] in %f : f32[1] "
    "in %g : $[G * Q, 2 * S, W] inout %o : $[2, size tp @tp, B, G * Q, 2 * S, "
    "W] inout %l : L[size tp @tp, B, G * Q, 2, 2 * S] "
    "inout %a : L[2, size tp @tp, B, G * Q, 3 * S, D] "
    "inout %b : L[size tp @tp, B, size tp + 1, G, 2 * S, D] "
    "inout %c : $[size tp @tp, B, size tp + 1, G, 2 * S, 2, W] "
    "{ %o[1], %l[:, :, :, 1] = attention %q[1, :, :, :, S..3 * S, 1], "
    "%k[:, :, :, :, 2], %v[:, :, :, S..3 * S] scale %f accumulate blocks "
    "zigzag size tp - tp window 2 * S "
    "%a[1, :, :, :, S..3 * S], %b, %c[:, :, :, :, :, 1] = "
    "attention_grad %q[1, :, :, :, S..3 * S, 1], %k[:, :, :, :, 2], "
    "%v[:, :, :, S..3 * S], %o[1], %l[:, :, :, 1], %g scale %f accumulate "
    "blocks zigzag size tp - tp window 2 * S }",
};

// Each element of the batch has as many rows and keys as counts say.
const char *const kCounted[] = {
    // Sequences that attend to themselves. What has no counts joins.
    "in %n : i32[B@tp] in %q : $[B@tp, G * Q, S by %n, D] "
    "in %k : $[B@tp, G, S by %n, D] in %v : $[B@tp, G, S, W] "
    "in %g : $[B@tp, G * Q, S, W] out %o : $[B@tp, G * Q, S by %n, W] "
    "out %l : L[B@tp, G * Q, S] out %a : $[B@tp, G * Q, S by %n, D] "
    "out %b : $[B@tp, G, S, D] out %c : $[B@tp, G, S by %n, W] "
    "{ %o, %l = attention %q, %k, %v M "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g M }",
    // Rows and keys by counts of their own, of all of which one index.
    "in %n : i32[2, B@tp] in %m : i32[B@tp, 3] "
    "in %q : $[2, B@tp, 3, G * Q, S by %n, D] "
    "in %k : $[B@tp, 3, G, K by %m, D] in %v : $[B@tp, 3, G, K by %m, W] "
    "in %g : L[3, G * Q, S, W] out %o : L[B@tp, 3, G * Q, S, W] "
    "out %l : L[B@tp, 3, G * Q, S] out %a : L[B@tp, 3, G * Q, S, D] "
    "out %b : $[B@tp, 3, G, K by %m, D] out %c : $[B@tp, 3, G, K, W] "
    "{ %o, %l = attention %q[1], %k, %v scale 0.25 M "
    "%a, %b, %c = attention_grad %q[1], %k, %v, %o, %l, %g scale 0.25 M }",
    // One count for all keys, which all have, and rows that are whole.
    "in %m : i32[] in %q : $[B@tp, G, S, D] in %k : $[G, K by %m, D] "
    "in %v : $[G, K by %m, W] in %g : $[B@tp, G, S, W] in %f : f32[1] "
    "out %o : $[B@tp, G, S, W] out %l : L[B@tp, G, S] "
    "out %a : $[B@tp, G, S, D] out %b : L[B@tp, G, K, D] "
    "out %c : L[B@tp, G, K, W] { %o, %l = attention %q, %k, %v scale %f M "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g scale %f M }",
    // What is not counted stays as it was.
    "in %n : i32[B@tp] in %m : i32[B@tp] in %q : $[B@tp, 1, G, S by %n, D] "
    "in %k : $[B@tp, 1, 1, K by %m, D] in %v : $[B@tp, 1, 1, K, W] "
    "in %g : L[B@tp, 1, G, S, W] inout %o : $[B@tp, 1, G, S by %n, W] "
    "inout %l : L[B@tp, 1, G, S by %n] inout %a : L[B@tp, 1, G, S by %n, D] "
    "inout %b : L[B@tp, 1, 1, K by %m, D] inout %c : $[B@tp, 1, 1, K, W] "
    "{ %a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g accumulate M "
    "%o, %l = attention %q, %k, %v accumulate M }",
    // Each rank's rows have a place of their own.
    "in %n : i32[size tp @tp] in %q : $[size tp @tp, G, S by %n, D] "
    "in %k : $[G, K, D] in %v : $[G, K, W] "
    "out %o : $[size tp @tp, G, S by %n, W] out %l : L[size tp @tp, G, S] "
    "{ %o, %l = attention %q, %k, %v causal tp * 3 - 1 window 5 }",
};

// E sequences, one behind the other, of which each attends to itself.
const char *const kPacked[] = {
    "in %n : i32[B@tp, E] in %q : $[B@tp, G * Q, S, D] "
    "in %k : $[B@tp, G, S, D] in %v : $[B@tp, G, S, W] "
    "in %g : $[B@tp, G * Q, S, W] out %o : $[B@tp, G * Q, S, W] "
    "out %l : L[B@tp, G * Q, S] out %a : $[B@tp, G * Q, S, D] "
    "out %b : $[B@tp, G, S, D] out %c : L[B@tp, G, S, W] "
    "{ %o, %l = attention %q, %k, %v groups %n M "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g groups %n M }",
    // Of the first dimensions of the batch, of which one index is taken, and
    // counts that lie apart. Operands repeat, and lie apart, too.
    "in %m : i32[2, B@tp, E, 2] in %q : $[2, B@tp, 3, G * Q, S, D] "
    "in %k : $[B@tp, 3, G, 2 * S, D] in %v : $[G, S, W] in %g : L[G * Q, S, W] "
    "out %o : L[B@tp, 3, G * Q, S, W] out %l : L[B@tp, 3, G * Q, S] "
    "out %a : L[B@tp, 3, G * Q, S, D] out %b : $[B@tp, 3, G, S, D] "
    "out %c : $[B@tp, 3, G, S, W] "
    "{ %o, %l = attention %q[1], %k[:, :, :, S..2 * S], %v scale 0.25 "
    "groups %m[1, :, :, 1] M "
    "%a, %b, %c = attention_grad %q[1], %k[:, :, :, S..2 * S], %v, %o, %l, %g "
    "scale 0.25 groups %m[1, :, :, 1] M }",
    // The same sequences in all of the batch.
    "in %n : i32[E] in %q : $[B@tp, G, S, D] in %k : $[G, S, D] "
    "in %v : $[G, S, W] in %g : $[B@tp, G, S, W] in %f : f32[1] "
    "out %o : $[B@tp, G, S, W] out %l : L[B@tp, G, S] "
    "out %a : $[B@tp, G, S, D] out %b : L[B@tp, G, S, D] "
    "out %c : L[B@tp, G, S, W] "
    "{ %o, %l = attention %q, %k, %v scale %f groups %n M "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g scale %f groups %n M }",
    // Rows of none, and keys of none, stay as they were.
    "in %n : i32[B@tp, 1, E] in %q : $[B@tp, 1, G, S, D] "
    "in %k : $[B@tp, 1, 1, S, D] in %v : $[B@tp, 1, 1, S, W] "
    "in %g : L[B@tp, 1, G, S, W] inout %o : $[B@tp, 1, G, S, W] "
    "inout %l : L[B@tp, 1, G, S] inout %a : L[B@tp, 1, G, S, D] "
    "inout %b : L[B@tp, 1, 1, S, D] inout %c : $[B@tp, 1, 1, S, W] "
    "{ %a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g accumulate groups %n "
    "M %o, %l = attention %q, %k, %v accumulate groups %n M }",
    // Each rank's rows have a place of their own.
    "in %n : i32[size tp @tp, E] in %q : $[size tp @tp, G, S, D] "
    "in %k : $[size tp @tp, G, S, D] in %v : $[G, S, W] "
    "out %o : $[size tp @tp, G, S, W] out %l : L[size tp @tp, G, S] "
    "{ %o, %l = attention %q, %k, %v groups %n causal tp * 3 - 1 window 5 }",
    // Some of the rows and of the keys that the sequences have together.
    "in %p : i32[B@tp, E] in %q : $[B@tp, G * Q, S, D] "
    "in %k : $[B@tp, G, K, D] in %v : $[B@tp, G, K, W] "
    "in %g : $[B@tp, G * Q, S, W] out %o : $[B@tp, G * Q, S, W] "
    "out %l : L[B@tp, G * Q, S] out %a : $[B@tp, G * Q, S, D] "
    "out %b : $[B@tp, G, K, D] out %c : L[B@tp, G, K, W] "
    "{ %o, %l = attention %q, %k, %v groups %p row K key 2 room 3 * S M "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g groups %p row S key K "
    "room 2 * S + K M }",
    "in %p : i32[E] in %q : $[B@tp, G, S, D] in %k : $[B@tp, 1, K, D] "
    "in %v : $[B@tp, 1, K, W] in %g : $[B@tp, G, S, W] "
    "inout %o : L[B@tp, G, S, W] inout %l : L[B@tp, G, S] "
    "inout %a : L[B@tp, G, S, D] inout %b : L[B@tp, 1, K, D] "
    "inout %c : $[B@tp, 1, K, W] "
    "{ %a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g accumulate groups %p "
    "row 3 key 1 room S + K M %o, %l = attention %q, %k, %v accumulate "
    "groups %p row K key 0 room S + K M }",
};

// The elements that are not counted of an argument.
std::vector<size_t> Rest(const Arguments &arguments, size_t i)
{
    const hd_argument &info = arguments.Info(i);
    std::vector<size_t> rest;

    if (info.counted_dim < 0)
        return rest;
    const hd_argument &n = arguments.Info(size_t(info.counts));
    std::vector<double> counts(n.elements);
    size_t inner = 1, slab = info.elements / n.elements;

    hd_dtype_load(HD_DTYPE_I32, arguments.Whole()[size_t(info.counts)],
                  counts.size(), counts.data());
    for (int d = info.counted_dim + 1; d < info.ndims; d++)
        inner *= size_t(info.extent[d]);
    for (size_t k = 0; k < info.elements; k++)
        if (double(k / inner % size_t(info.extent[info.counted_dim])) >=
            counts[k / slab])
            rest.push_back(k);
    return rest;
}

// What is there to stay is a number, of a row that saw nothing.
void Poison(Arguments *arguments)
{
    for (size_t i = 0; i < arguments->Count(); i++) {
        const hd_argument &info = arguments->Info(i);
        bool stays = info.role == HD_ROLE_INOUT;

        if (info.role != HD_ROLE_OUT)
            for (size_t k : Rest(*arguments, i))
                arguments->Set(i, k,
                               !stays              ? NAN
                               : *info.name == 'l' ? -INFINITY
                                                   : 7.5);
    }
}

std::vector<double> Counts(const Arguments &arguments)
{
    std::vector<double> counts(arguments.Info(0).elements);

    hd_dtype_load(HD_DTYPE_I32, arguments.Whole()[0], counts.size(),
                  counts.data());
    return counts;
}

// How many rows each element of the batch has in its sequences, %n's.
std::vector<int> Packed(const Arguments &arguments)
{
    const hd_argument &info = arguments.Info(0);
    size_t each = size_t(info.extent[info.ndims - 1]);
    std::vector<double> counts = Counts(arguments);
    std::vector<int> rows(info.elements / each);

    for (size_t i = 0; i < counts.size(); i++)
        rows[i / each] += int(counts[i]);
    return rows;
}

// What is of no sequence is a NaN, or stays.
void PoisonPacked(Arguments *arguments)
{
    const hd_argument &counts = arguments->Info(0);
    std::vector<double> drawn = Counts(*arguments);

    // Those that lie apart are drawn to fit along another dimension.
    for (size_t i = 0; *counts.name == 'm' && i < drawn.size(); i++)
        arguments->Set(
            0, i,
            std::floor(drawn[i] / double(counts.extent[counts.ndims - 2])));
    for (size_t i = 1; *counts.name == 'n' && i < arguments->Count(); i++) {
        const hd_argument &info = arguments->Info(i);
        bool lse = *info.name == 'l', stays = info.role == HD_ROLE_INOUT;
        int at = info.ndims - (lse ? 1 : 2);
        std::vector<int> rows = Packed(*arguments);
        size_t inner = lse ? 1 : size_t(info.extent[info.ndims - 1]);

        // What repeats has rows that some element has in its sequences.
        if (info.role == HD_ROLE_OUT || at < counts.ndims)
            continue;
        for (size_t k = 0; k < info.elements; k++)
            if (int(k / inner % size_t(info.extent[at])) >=
                rows[k / (info.elements / rows.size())])
                arguments->Set(i, k, !stays ? NAN : lse ? -INFINITY : 7.5);
    }
}

std::string Replaced(std::string text, const std::string &what,
                     const std::string &by)
{
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos;
         at += by.size())
        text.replace(at, what.size(), by);
    return text;
}

// Whether every row sees one of the keys.
bool EachSees(int rows, int keys, int offset, int window)
{
    for (int i = 0; i < rows; i++) {
        if (std::max(0, i + offset - window + 1) >
            std::min(i + offset, keys - 1))
            return false;
    }
    return true;
}

std::string Mask(int rows, int keys, std::mt19937 &random)
{
    int offset = Between(-rows, keys, random);

    switch (Between(0, 4, random)) {
    case 0:
        return "";
    case 1:
        return "causal 0";
    case 2:
        return "causal " + std::to_string(offset);
    case 3:
        return "window " + std::to_string(Between(1, keys, random));
    default:
        return "causal " + std::to_string(offset) + " window " +
               std::to_string(Between(1, keys, random));
    }
}

// By which every row sees one of twice as many keys: gradients of a row that
// saw none, and sees one here, are NaNs by cuDNN (docs/cuda.md).
std::string SightedMask(int rows, int keys, std::mt19937 &random)
{
    for (;;) {
        const std::string mask = Mask(rows, keys, random);
        int offset = 2 * keys, window = rows + 2 * keys;

        sscanf(mask.c_str(), "causal %d window %d", &offset, &window);
        if (sscanf(mask.c_str(), "window %d", &window) == 1) { // both sides
            offset = window - 1;
            window = 2 * window - 1;
        }
        if (EachSees(rows, 2 * keys, offset, window))
            return mask;
    }
}

// Half of the rows are as wide as cuDNN takes them.
int Width(int most, std::mt19937 &random)
{
    int n = Between(1, most, random);

    return Between(0, 1, random) == 0 || n < 8 ? n : n / 8 * 8;
}

// Each form once for each dtype and number of ranks, with extents of its own.
void Try(const std::vector<const char *> &forms, const Extents &most,
         const Change &change = Change())
{
    const std::vector<const char *> dtypes =
        Choose<const char *>({"f64", "f32", "f16", "bf16"}, {"f32", "bf16"});
    std::mt19937 random(Seed());

    for (int ranks : Choose<int>({1, 2, 3, 8}, {2})) {
        std::deque<Case> cases;

        if (!HasDevices(ranks))
            continue;
        for (const char *form : forms)
            for (const std::string dtype : dtypes) {
                Extents extents;
                std::string text;

                for (auto [name, n] : most)
                    extents[name] = name == 'D' || name == 'W'
                                        ? Width(n, random)
                                        : Between(1, n, random);
                text = Replaced(form, "M ",
                                Mask(extents['S'], extents['K'], random) + " ");
                text = Replaced(text, "N ",
                                (OnCpu() ? Mask : SightedMask)(
                                    extents['S'], extents['K'], random) +
                                    " ");
                text = Replaced(text, "L[", dtype == "f64" ? "f64[" : "f32[");
                Add(Filled("heddle 2 tensor program attends mesh tp=1 " + text,
                           extents),
                    dtype, ranks, change, &cases);
            }
        RunCases(cases, RunSetsOf, ranks);
    }
}

TEST(Attention, OfAnyShapeAndMaskIsTheReferences)
{
    Try({std::begin(kForms), std::end(kForms)}, {{'B', 4},
                                                 {'G', 3},
                                                 {'Q', 3},
                                                 {'S', 70},
                                                 {'K', 150},
                                                 {'D', 70},
                                                 {'W', 70}});
}

// More than a tile of rows and of keys.
TEST(Attention, GradientsOfAnyShapeAndMaskAreTheReferences)
{
    Try({std::begin(kGradients), std::end(kGradients)}, {{'B', 2},
                                                         {'G', 2},
                                                         {'Q', 2},
                                                         {'S', 40},
                                                         {'K', 80},
                                                         {'D', 20},
                                                         {'W', 20}});
}

TEST(Attention, OfASequenceInZigzagIsTheReferences)
{
    Try({std::begin(kZigzag), std::end(kZigzag)}, {{'B', 2},
                                                   {'G', 2},
                                                   {'Q', 2},
                                                   {'S', 8},
                                                   {'K', 1},
                                                   {'D', 16},
                                                   {'W', 16}});
}

TEST(Attention, OfCountedRowsAndKeysIsTheReferences)
{
    int rows = IsQuick() || OnCpu() ? 12 : 40;

    Try({std::begin(kCounted), std::end(kCounted)},
        {{'B', 4},
         {'G', 2},
         {'Q', 2},
         {'S', rows},
         {'K', 2 * rows},
         {'D', 20},
         {'W', 20}},
        Poison);
}

TEST(Attention, OfSequencesBehindEachOtherIsTheReferences)
{
    Try({std::begin(kPacked), std::end(kPacked)},
        {{'B', 3},
         {'E', 9},
         {'G', 2},
         {'Q', 2},
         {'S', 80},
         {'K', 70},
         {'D', 12},
         {'W', 12}},
        PoisonPacked);
}

// One count is too much, or none, sometimes two: the first is told.
TEST(Attention, CountsOfSequencesThatDoNotFitAreClampedAndTold)
{
    const std::string text =
        "heddle 2 host program packed in %n : i32[2, 3] "
        "in %q : f32[2, 2, 2, 9, 4] in %k : f32[2, 2, 1, 9, 4] "
        "in %g : f32[2, 2, 2, 9, 4] out %o : f32[2, 2, 2, 9, 4] "
        "out %l : f32[2, 2, 2, 9] out %a : f32[2, 2, 2, 9, 4] "
        "out %b : f32[2, 2, 1, 9, 4] out %c : f32[2, 2, 1, 9, 4] "
        "{ %o, %l = attention %q, %k, %k groups %n causal 1 "
        "%a, %b, %c = attention_grad %q, %k, %k, %o, %l, %g groups %n "
        "causal 1 }";
    std::mt19937 random(Seed());
    std::deque<Case> cases;

    for (int wrong : {-1, INT_MIN, 6, INT_MAX})
        for (int at = 0; at < 6; at++) {
            int before = at % 3 == 0 ? 0 : Between(4, 5, random);

            cases.emplace_back(
                Read(text, "f32"), text, 1, Seed(), [&](Arguments *arguments) {
                    for (size_t i = 0; i < 6; i++)
                        arguments->Set(0, i, 0);
                    if (before > 0)
                        arguments->Set(0, size_t(at) - 1, before);
                    arguments->Set(0, size_t(at),
                                   wrong == 6 ? 10 - before : wrong);
                    if (at < 4)
                        arguments->Set(0, 5, -8);
                });
            cases.back().told =
                "sequence [" + std::to_string(at / 3) + ", " +
                std::to_string(at % 3) + "] of %n has " +
                std::to_string(wrong == 6 ? 10 - before : wrong) +
                " rows; it may have 0 to " + std::to_string(9 - before) +
                ", what the sequences before it leave of 9";
        }
    RunCases(cases, RunMiscounted);
}

// What the counts of keys say first is told behind those of rows.
TEST(Attention, CountsThatDoNotFitAreClampedAndTold)
{
    const std::string text =
        "heddle 2 host program attends in %n : i32[2, 3] in %m : i32[2] "
        "in %q : f32[2, 3, 2, 5 by %n, 4] in %k : f32[2, 3, 1, 7 by %m, 4] "
        "in %v : f32[2, 3, 1, 7, 4] out %o : f32[2, 3, 2, 5, 4] "
        "out %l : f32[2, 3, 2, 5] { %o, %l = attention %q, %k, %v }";
    std::deque<Case> cases;

    for (bool rows : {false, true}) {
        cases.emplace_back(Read(text, "f32"), text, 1, Seed(),
                           [&](Arguments *arguments) {
                               arguments->Set(1, 1, 8);
                               if (rows)
                                   arguments->Set(0, 4, -3);
                           });
        cases.back().told =
            rows ? "count [1, 1] of %n is -3; dimension 3 of %q has 0 to 5"
                 : "count [1] of %m is 8; dimension 3 of %k has 0 to 7";
    }
    RunCases(cases, RunMiscounted);
}

// ------------------------------------------------------------- in parts

// All keys at once, and in three parts that are merged, of which rows see all
// or some: forward and backward, each result rounded once.
const char *const kWholeAndParts =
    "heddle 2 host program parts mesh tp=1 "
    "in %q : $[G * Q, S, D] in %k : $[G, 3 * K, D] in %v : $[G, 3 * K, W] "
    "in %g : $[G * Q, S, W] out %o : $[G * Q, S, W] out %l : f32[G * Q, S] "
    "out %a : $[G * Q, S, D] out %p : $[G * Q, S, W] out %m : f32[G * Q, S] "
    "out %b : $[G * Q, S, D] temp %t : f32[G * Q, S, W] "
    "temp %u : f32[G * Q, S, D] temp %x : f32[G, 3 * K, D] "
    "temp %y : f32[G, 3 * K, W] { "
    "%o, %l = attention %q, %k, %v causal 3 * K - 1 "
    "%a, %x, %y = attention_grad %q, %k, %v, %o, %l, %g causal 3 * K - 1 "
    "for i in 0..3 { let at = i * K "
    "if i == 0 { %t, %m = attention %q, %k[:, at..at + K], %v[:, at..at + K] } "
    "else { %t, %m = attention %q, %k[:, at..at + K], %v[:, at..at + K] "
    "causal 3 * K - 1 - at accumulate } } "
    "%p = copy %t %u = fill value 0 %x = fill value 0 %y = fill value 0 "
    "for i in 0..3 { let at = i * K "
    "%u, %x[:, at..at + K], %y[:, at..at + K] = attention_grad %q, "
    "%k[:, at..at + K], %v[:, at..at + K], %o, %l, %g "
    "causal 3 * K - 1 - at accumulate } %b = copy %u }";

// What a result is off by at most, and how large it is.
struct Distance {
    double off = 0, size = 0, unit = 0;

    void Take(const Shards &shards, const Expected &expected, int set, size_t i)
    {
        const hd_argument &info = expected.Inputs(set).Info(i);
        std::vector<double> want(info.local_elements), got(want);

        unit = std::ldexp(1, info.dtype == HD_DTYPE_BF16 ? -9 : -24);

        hd_reference_local(expected.Reference(set), i, 0, want.data(), nullptr);
        hd_dtype_load(info.dtype, shards.Bytes(i).data(), got.size(),
                      got.data());
        for (size_t k = 0; k < got.size(); k++) {
            off = std::max(off, std::fabs(got[k] - want[k]));
            size = std::max(size, std::fabs(want[k]));
        }
    }
};

// o, lse and dq, at once and in parts: the greatest distances of all draws. On
// the cpu f32 is rounded once, from f64, while each of two merges rounds a
// result in f32 once more, and by their lse, whose error is one of weights.
hd_status RunBoth(hd_group *group, const std::deque<Case> &cases, hd_diag *diag)
{
    const double u = std::ldexp(1, -24);
    Distance once[3], merged[3];
    hd_session_options options = DeviceOptions();

    for (const Case &each : cases) {
        const Expected &expected = each.expected;
        hd_session *session = nullptr;

        HD_TRY(hd_session_create(group, each.module.get(), &options, diag,
                                 &session));
        {
            Shards shards(session);

            HD_TRY(shards.Put(expected.Inputs(0), each.module.get(), 0, diag));
            for (int set = 0; set < expected.Count(); set++) {
                HD_TRY(shards.Set(expected.Inputs(set), each.module.get(), 0,
                                  diag));
                HD_TRY(shards.Run(diag));
                HD_TRY(shards.Get(diag));
                HD_TRY(Compare(shards, expected, expected, set, 0));
                for (size_t i = 0; i < 3; i++) {
                    once[i].Take(shards, expected, set, 4 + i);
                    merged[i].Take(shards, expected, set, 7 + i);
                }
            }
        }
        hd_session_destroy(session);
    }
    for (int i = 0; i < 3; i++) {
        double unit = i == 2 ? once[i].unit : u; // dq adds up in its own dtype
        double rounds =
            2 * unit * once[i].size * (i == 0 ? 1 + once[1].size : 1);

        printf("%g at once, %g in parts, of %g\n", once[i].off, merged[i].off,
               once[i].size);
        RANK_EXPECT(once[i].off > 0);
        RANK_EXPECT(merged[i].off <= 1.5 * once[i].off + rounds);
    }
    return HD_OK;
}

TEST(Attention, InPartsIsHardlyFurtherFromTheReferenceThanAtOnce)
{
    std::mt19937 random(Seed());

    for (const std::string dtype : {"f32", "bf16"}) {
        std::deque<Case> cases;

        for (int i = 0; i < (IsQuick() ? 1 : 5); i++) {
            std::string text =
                Filled(kWholeAndParts, {{'G', Between(1, 2, random)},
                                        {'Q', Between(1, 3, random)},
                                        {'S', Between(1, 16, random)},
                                        {'K', Between(1, 24, random)},
                                        {'D', Width(32, random)},
                                        {'W', Width(32, random)}});

            cases.emplace_back(Read(text, dtype), dtype + ": " + text, 6,
                               unsigned(random()),
                               std::function<void(Arguments *)>());
        }
        AllEndWell(Launch(1, [&](hd_group *group, hd_diag *diag) {
            return RunBoth(group, cases, diag);
        }));
    }
}

// ------------------------------------------------------------ the definition

using Longs = std::vector<long double>;

struct Shape {
    int heads, shared, rows, keys, depth, wide;
    bool masked;
    int causal, window;
    int nrows, nkeys;        // that are counted, or all
    std::vector<int> counts; // of sequences; none: there is one

    // Which sequence a row is of, and which of its rows it is; none has -1.
    std::pair<int, int> Place(int row) const
    {
        int end = 0, sequence = 0;

        for (int n : counts) {
            n = std::min(std::max(n, 0), rows - end);
            if (row < end + n)
                return {sequence, row - end};
            end += n;
            sequence++;
        }
        return {-1, 0};
    }

    bool Sees(int row, int key) const
    {
        if (row >= nrows || key >= nkeys)
            return false;
        if (!counts.empty()) {
            auto [of, i] = Place(row);
            auto [other, j] = Place(key);

            if (of < 0 || of != other)
                return false;
            row = i;
            key = j;
        }
        return !masked || (key <= row + causal &&
                           (window == 0 || key > row + causal - window));
    }
};

// Of one attention, as the formulas say it; `up` is the gradient of o.
struct Attention {
    Shape s;
    Longs q, k, v, up, o, lse, dq, dk, dv;

    int Shared(int h) const
    {
        return h / (s.heads / s.shared);
    }

    long double Score(int h, int i, int j) const
    {
        long double dot = 0;

        for (int d = 0; d < s.depth; d++)
            dot += q[size_t((h * s.rows + i) * s.depth + d)] *
                   k[size_t((Shared(h) * s.keys + j) * s.depth + d)];
        return dot / std::sqrt((long double)s.depth);
    }

    void Forward()
    {
        o.assign(size_t(s.heads * s.rows * s.wide), 0);
        lse.clear();
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < s.rows; i++) {
                long double total = 0;

                for (int j = 0; j < s.keys; j++)
                    if (s.Sees(i, j))
                        total += std::exp(Score(h, i, j));
                lse.push_back(std::log(total));
                for (int j = 0; j < s.keys; j++)
                    for (int c = 0; s.Sees(i, j) && c < s.wide; c++)
                        o[size_t((h * s.rows + i) * s.wide + c)] +=
                            std::exp(Score(h, i, j)) / total *
                            v[size_t((Shared(h) * s.keys + j) * s.wide + c)];
            }
    }

    void Backward()
    {
        dq.assign(q.size(), 0);
        dk.assign(k.size(), 0);
        dv.assign(v.size(), 0);
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < s.rows; i++)
                for (int j = 0; j < s.keys; j++)
                    if (s.Sees(i, j))
                        Pair(h, i, j);
    }

    void Pair(int h, int i, int j)
    {
        size_t row = size_t(h * s.rows + i),
               key = size_t(Shared(h) * s.keys + j);
        long double p = std::exp(Score(h, i, j) - lse[row]), slope = 0;

        for (size_t c = 0; c < size_t(s.wide); c++) {
            long double g = up[row * size_t(s.wide) + c];

            slope +=
                g * (v[key * size_t(s.wide) + c] - o[row * size_t(s.wide) + c]);
            dv[key * size_t(s.wide) + c] += p * g;
        }
        slope *= p / std::sqrt((long double)s.depth);
        for (size_t d = 0; d < size_t(s.depth); d++) {
            dq[row * size_t(s.depth) + d] +=
                slope * k[key * size_t(s.depth) + d];
            dk[key * size_t(s.depth) + d] +=
                slope * q[row * size_t(s.depth) + d];
        }
    }

    // What `up` makes of o.
    long double Total()
    {
        long double total = 0;

        Forward();
        for (size_t i = 0; i < o.size(); i++)
            total += up[i] * o[i];
        return total;
    }
};

// Doubles, so that programs get the same.
Longs Numbers(int n, std::mt19937 &random)
{
    std::normal_distribution<double> number;
    Longs numbers(static_cast<size_t>(n));

    for (long double &x : numbers)
        x = number(random);
    return numbers;
}

// What says how many rows and keys there are.
enum Lengths { kExtents, kCounts, kSequences, kLengths };

Attention Draw(bool masked, bool windowed, Lengths lengths,
               std::mt19937 &random)
{
    Attention a;
    Shape &s = a.s;

    s = {0,
         Between(1, 3, random),
         Between(1, 12, random),
         Between(1, 12, random),
         Between(1, 9, random),
         Between(1, 9, random),
         masked,
         0,
         0,
         0,
         0,
         {}};
    if (lengths == kSequences) {
        s.keys = s.rows;
        for (int n = Between(1, 5, random); n > 0; n--)
            s.counts.push_back(Between(-1, s.rows / 2 + 1, random));
    }
    s.nrows = lengths == kCounts ? Between(0, s.rows, random) : s.rows;
    s.nkeys = lengths == kCounts ? Between(0, s.keys, random) : s.keys;
    s.heads = s.shared * Between(1, 3, random);
    s.causal = Between(-s.rows, s.keys, random);
    s.window = windowed ? Between(1, s.keys, random) : 0;
    a.q = Numbers(s.heads * s.rows * s.depth, random);
    a.k = Numbers(s.shared * s.keys * s.depth, random);
    a.v = Numbers(s.shared * s.keys * s.wide, random);
    a.up = Numbers(s.heads * s.rows * s.wide, random);
    a.Forward();
    return a;
}

// With counts, %n and %m, of rows and of keys; %n of sequences.
std::string TextOf(const Shape &s, Lengths lengths)
{
    auto of = [](std::vector<int> extents) {
        std::string text = " : f64[";

        for (int n : extents)
            text += std::to_string(n) + ", ";
        return text.substr(0, text.size() - 2) + "] ";
    };
    std::string mask = !s.masked ? "" : " causal " + std::to_string(s.causal);
    std::string q = of({s.heads, s.rows, s.depth});
    std::string k = of({s.shared, s.keys, s.depth});
    std::string v = of({s.shared, s.keys, s.wide});
    std::string o = of({s.heads, s.rows, s.wide});

    if (lengths == kCounts) {
        for (std::string *rows : {&q, &o})
            rows->insert(rows->rfind(','), " by %n");
        for (std::string *keys : {&k, &v})
            keys->insert(keys->rfind(','), " by %m");
    }
    if (s.masked && s.window > 0)
        mask += " window " + std::to_string(s.window);
    if (lengths == kSequences)
        mask += " groups %n";
    return "heddle 2 tensor program t mesh tp=1 " +
           (lengths == kCounts ? std::string("in %n : i32[] in %m : i32[] ")
            : lengths == kSequences
                ? "in %n : i32[" + std::to_string(s.counts.size()) + "] "
                : std::string()) +
           "in %q" + q + "in %k" + k + "in %v" + v + "in %g" + o + "out %o" +
           o + "out %l" + of({s.heads, s.rows}) + "out %a" + q + "out %b" + k +
           "out %c" + v + "{ %o, %l = attention %q, %k, %v" + mask +
           " %a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g" + mask + " }";
}

void ExpectNear(const hd_reference *reference, size_t argument,
                const Longs &want)
{
    std::vector<double> value(want.size()), bound(want.size());

    hd_reference_local(reference, argument, 0, value.data(), bound.data());
    for (size_t i = 0; i < want.size(); i++) {
        if (std::isinf(want[i]))
            ASSERT_EQ(value[i], double(want[i])) << argument << " " << i;
        else
            ASSERT_NEAR(value[i], double(want[i]), 1e-11)
                << argument << " " << i;
        ASSERT_LT(bound[i], 1e-10) << argument << " " << i; // of f64
    }
}

TEST(Attention, TheReferenceIsTheDefinition)
{
    std::mt19937 random(Seed());

    for (int n = 0; n < 300; n++) {
        auto lengths = Lengths(n / 3 % kLengths);
        Attention a = Draw(n % 3 > 0, n % 3 == 2, lengths, random);
        std::vector<std::vector<double>> in;
        std::vector<const void *> whole;
        hd_reference *reference = nullptr;

        SCOPED_TRACE(TextOf(a.s, lengths));
        Module module = Parse(TextOf(a.s, lengths), "f64", 1);
        if (lengths == kCounts)
            whole = {&a.s.nrows, &a.s.nkeys};
        if (lengths == kSequences)
            whole = {a.s.counts.data()};
        for (const Longs *x : {&a.q, &a.k, &a.v, &a.up})
            in.emplace_back(x->begin(), x->end());
        for (const std::vector<double> &x : in)
            whole.push_back(x.data());
        size_t first = whole.size();
        whole.resize(first + 5);
        ASSERT_EQ(hd_reference_create(module.get(), whole.data(), nullptr,
                                      &reference),
                  HD_OK);
        a.Backward();
        ExpectNear(reference, first, a.o);
        ExpectNear(reference, first + 1, a.lse);
        ExpectNear(reference, first + 2, a.dq);
        ExpectNear(reference, first + 3, a.dk);
        ExpectNear(reference, first + 4, a.dv);
        hd_reference_destroy(reference);
    }
}

// By differences: what moves a little moves the total by its gradient.
TEST(Attention, TheDefinitionOfGradientsIsTheSlope)
{
    const long double little = 1e-6L;
    std::mt19937 random(Seed());

    for (int n = 0; n < 60; n++) {
        auto lengths = Lengths(n / 3 % kLengths);
        Attention a = Draw(n % 3 > 0, n % 3 == 2, lengths, random);

        SCOPED_TRACE(TextOf(a.s, lengths));
        a.Backward();
        for (auto [x, slope] : {std::pair(&a.q, &a.dq), std::pair(&a.k, &a.dk),
                                std::pair(&a.v, &a.dv)}) {
            size_t i = random() % x->size();
            long double at = (*x)[i], above;

            (*x)[i] = at + little;
            above = a.Total();
            (*x)[i] = at - little;
            EXPECT_NEAR(double((above - a.Total()) / (2 * little)),
                        double((*slope)[i]), 1e-7);
            (*x)[i] = at;
        }
    }
}

} // namespace
