// Attention and its parts, of every dtype, mask and form: as the reference has
// them, and the reference as the definition has it. What no row sees is a NaN.
#include <gtest/gtest.h>

#include <cmath>

#include "base/diag.h"
#include "tests/device/options.h"
#include "tests/draw.h"
#include "tests/unit/ranks.h"

namespace
{

void Add(const std::string &text, const std::string &dtype, int ranks,
         std::deque<Case> *cases)
{
    SCOPED_TRACE(text);
    Module tensor = Parse(text, dtype, ranks);
    Module host = Proven(tensor, Parse(text, dtype, ranks), HD_TRANSFER_BULK);

    cases->emplace_back(std::move(host), dtype + ": " + text, 2, Seed(),
                        std::function<void(Arguments *)>(), std::move(tensor));
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

std::string Replaced(std::string text, const std::string &what,
                     const std::string &by)
{
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos;
         at += by.size())
        text.replace(at, what.size(), by);
    return text;
}

std::string Mask(int rows, int keys, std::mt19937 &random)
{
    int offset = Between(-rows, keys, random);

    switch (Between(0, 3, random)) {
    case 0:
        return "";
    case 1:
        return "causal 0";
    case 2:
        return "causal " + std::to_string(offset);
    default:
        return "causal " + std::to_string(offset) + " window " +
               std::to_string(Between(1, keys, random));
    }
}

TEST(Attention, OfAnyShapeAndMaskIsTheReferences)
{
    const std::vector<const char *> dtypes =
        Choose<const char *>({"f64", "f32", "f16", "bf16"}, {"f32", "bf16"});
    std::mt19937 random(Seed());

    for (int ranks : Choose<int>({1, 2, 3, 8}, {2})) {
        std::deque<Case> cases;

        if (!HasDevices(ranks))
            continue;
        for (const char *form : kForms)
            for (const std::string dtype : dtypes) {
                int rows = Between(1, 70, random),
                    keys = Between(1, 150, random);
                Extents extents = {{'B', Between(1, 4, random)},
                                   {'G', Between(1, 3, random)},
                                   {'Q', Between(1, 3, random)},
                                   {'S', rows},
                                   {'K', keys},
                                   {'D', Between(1, 70, random)},
                                   {'W', Between(1, 70, random)}};
                std::string text =
                    Replaced(form, "M ", Mask(rows, keys, random) + " ");

                text = Replaced(text, "L[", dtype == "f64" ? "f64[" : "f32[");
                Add(Filled("heddle 1 tensor program attends mesh tp=1 " + text,
                           extents),
                    dtype, ranks, &cases);
            }
        RunCases(cases, RunSetsOf, ranks);
    }
}

// ------------------------------------------------------------ the definition

struct Shape {
    int heads, shared, rows, keys, depth, wide;
    bool masked;
    int causal, window;
};

std::vector<double> Numbers(size_t n, std::mt19937 &random)
{
    std::normal_distribution<double> number;
    std::vector<double> numbers(n);

    for (double &x : numbers)
        x = number(random);
    return numbers;
}

// o[h, i, c] and lse[h, i], as the formula says them.
void Define(const Shape &s, const std::vector<double> &q,
            const std::vector<double> &k, const std::vector<double> &v,
            std::vector<double> *o, std::vector<double> *lse)
{
    for (int h = 0; h < s.heads; h++)
        for (int i = 0; i < s.rows; i++) {
            long double total = 0;
            std::vector<long double> weight(size_t(s.keys), 0),
                sum(size_t(s.wide), 0);
            int kv = h / (s.heads / s.shared);

            for (int j = 0; j < s.keys; j++) {
                long double dot = 0;

                if (s.masked && j > i + s.causal)
                    continue;
                if (s.masked && s.window > 0 && j <= i + s.causal - s.window)
                    continue;
                for (int d = 0; d < s.depth; d++)
                    dot +=
                        (long double)q[size_t((h * s.rows + i) * s.depth + d)] *
                        k[size_t((kv * s.keys + j) * s.depth + d)];
                weight[size_t(j)] =
                    std::exp(dot / std::sqrt((long double)s.depth));
                total += weight[size_t(j)];
            }
            for (int c = 0; c < s.wide; c++) {
                for (int j = 0; j < s.keys; j++)
                    sum[size_t(c)] += weight[size_t(j)] *
                                      v[size_t((kv * s.keys + j) * s.wide + c)];
                o->push_back(double(total > 0 ? sum[size_t(c)] / total : 0));
            }
            lse->push_back(double(std::log(total)));
        }
}

std::string TextOf(const Shape &s)
{
    auto of = [](std::vector<int> extents) {
        std::string text = " : f64[";

        for (int n : extents)
            text += std::to_string(n) + ", ";
        return text.substr(0, text.size() - 2) + "] ";
    };
    std::string mask = !s.masked ? "" : " causal " + std::to_string(s.causal);

    if (s.masked && s.window > 0)
        mask += " window " + std::to_string(s.window);
    return "heddle 1 tensor program t mesh tp=1 in %q" +
           of({s.heads, s.rows, s.depth}) + "in %k" +
           of({s.shared, s.keys, s.depth}) + "in %v" +
           of({s.shared, s.keys, s.wide}) + "out %o" +
           of({s.heads, s.rows, s.wide}) + "out %l" + of({s.heads, s.rows}) +
           "{ %o, %l = attention %q, %k, %v" + mask + " }";
}

void ExpectNear(const hd_reference *reference, size_t argument,
                const std::vector<double> &want)
{
    std::vector<double> value(want.size()), bound(want.size());

    hd_reference_local(reference, argument, 0, value.data(), bound.data());
    for (size_t i = 0; i < want.size(); i++) {
        if (std::isinf(want[i]))
            ASSERT_EQ(value[i], want[i]) << i;
        else
            ASSERT_NEAR(value[i], want[i], 1e-12) << i;
        ASSERT_LT(bound[i], 1e-11) << i; // of f64
    }
}

TEST(Attention, TheReferenceIsTheDefinition)
{
    std::mt19937 random(Seed());

    for (int n = 0; n < 200; n++) {
        Shape s = {0,
                   Between(1, 3, random),
                   Between(1, 12, random),
                   Between(1, 12, random),
                   Between(1, 9, random),
                   Between(1, 9, random),
                   n % 3 > 0,
                   0,
                   0};
        std::vector<double> o, lse;

        s.heads = s.shared * Between(1, 3, random);
        s.causal = Between(-s.rows, s.keys, random);
        s.window = n % 3 == 2 ? Between(1, s.keys, random) : 0;
        std::vector<double> q =
            Numbers(size_t(s.heads * s.rows * s.depth), random);
        std::vector<double> k =
            Numbers(size_t(s.shared * s.keys * s.depth), random);
        std::vector<double> v =
            Numbers(size_t(s.shared * s.keys * s.wide), random);
        Module module = Parse(TextOf(s), "f64", 1);
        const void *whole[] = {q.data(), k.data(), v.data(), nullptr, nullptr};
        hd_reference *reference = nullptr;

        SCOPED_TRACE(TextOf(s));
        ASSERT_EQ(hd_reference_create(module.get(), whole, nullptr, &reference),
                  HD_OK);
        Define(s, q, k, v, &o, &lse);
        ExpectNear(reference, 3, o);
        ExpectNear(reference, 4, lse);
        hd_reference_destroy(reference);
    }
}

} // namespace
