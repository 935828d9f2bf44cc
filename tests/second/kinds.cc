// Programs of each kind that not all ranks, or not all runs, do alike, and
// mutants of them: what the checker takes the oracle must find right, in each
// of some runs where sizes differ. Lowered from random tensor programs by every
// pipeline, each kind in turn; launches, whose interleavings are explored, are
// of programs from nothing. HEDDLE_SECOND_KINDS says of how many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "ir/module.h"
#include "tests/info.h"
#include "tests/mutation/mutate.h"
#include "tests/second/change.h"
#include "tests/second/generate.h"
#include "tests/second/model.h"
#include "tests/second/module.h"
#include "tests/seed.h"
#include "tools/gen/generate.h"

namespace second
{

namespace
{

const int kRuns = 5; // of a program with sizes
const char *const kKinds[] = {"uneven blocks", "sizes of runs", "counts",
                              "zigzag",        "causal",        "launches"};

struct Tally {
    int right = 0, wrong = 0; // and accepted, and refused
    int strict = 0;           // right in all runs that were looked at
    int unknown = 0;
};

using Kinds = std::set<std::string>;
using Tallies = std::map<std::string, Tally>;

bool Has(const std::string &text, const char *word)
{
    return text.find(word) != std::string::npos;
}

Kinds KindsOf(const std::string &text)
{
    Module host(text);
    Kinds kinds = {"all"};

    if (host.it == nullptr)
        return {};
    for (const hd_buffer *b = host.it->buffers; b != nullptr; b = b->next)
        for (int d = 0; d < b->type.ndims; d++)
            if (hd_dim_is_uneven(b->type.dim[d]))
                kinds.insert("uneven blocks");
    if (host.it->nsizes > 0)
        kinds.insert("sizes of runs");
    if (Has(text, " by %"))
        kinds.insert("counts");
    for (const char *mask : {"zigzag", "causal"})
        if (Has(text, mask))
            kinds.insert(mask);
    if (Has(text, "launch {"))
        kinds.insert("launches");
    return kinds;
}

// The least and the greatest sizes, and others between.
void Give(Program *program, int run, std::mt19937 &random)
{
    for (Size &size : program->sizes)
        size.now =
            run == 0 ? size.high
            : run == 1
                ? size.low
                : size.low + static_cast<int64_t>(
                                 random() % static_cast<uint64_t>(
                                                size.high - size.low + 1));
}

// What is wrong with some run; nothing if all is well.
std::string Wrong(const std::string &text, std::mt19937 &random, bool *known)
{
    Program program = Parse(text);
    Schedules schedules;

    schedules.random = 1;
    *known = true;
    for (int run = 0; run < (program.sizes.empty() ? 1 : kRuns); run++) {
        Give(&program, run, random);
        Verdict verdict = Judge(program, schedules);

        *known &= verdict.launch != Launches::UNKNOWN;
        EXPECT_EQ(verdict.inconsistent, "") << text;
        if (!verdict.Clean())
            return verdict.Text();
    }
    return "";
}

// Empty, or what is wrong with a program that the checker takes.
std::string Disagreement(const std::string &text, std::mt19937 &random,
                         const Kinds &kinds, Tallies *tallies)
{
    Module host(text);
    bool known;
    std::string wrong;

    if (host.it == nullptr || module_info(host.it).stage != HD_STAGE_HOST)
        return "";
    hd_status status = hd_check(host.it, nullptr, host.diag);
    if (status != HD_OK && status != HD_ERROR_INVALID)
        return "";
    try {
        wrong = Wrong(host.Text(), random, &known);
    } catch (const Unreadable &) {
        return "";
    }
    for (const std::string &kind : kinds) {
        Tally &t = (*tallies)[kind];

        if (!known)
            t.unknown++;
        else if (!wrong.empty())
            t.wrong++;
        else
            (status == HD_OK ? t.right : t.strict)++;
    }
    if (status == HD_OK && !wrong.empty())
        return "oracle: " + wrong + "\nchecker: fine";
    return "";
}

// Attention of a rank's rows with the keys of all.
std::string Masked(const std::string &mask, choices *choices)
{
    int n = 2 + choices_pick(choices, 4);
    std::string size = std::to_string(n),
                rows = std::to_string(2 * (1 + choices_pick(choices, 2))),
                shape = " : f32[" + size + "@tp, 1, " + rows + ", 2] ",
                sums = " : f32[" + size + "@tp, 1, " + rows + "] ",
                all = " : f32[" + size + "@stream, 1, " + rows + ", 2] ",
                by = mask == "zigzag"
                         ? choices_pick(choices, 2) ? "tp" : size + " - 1 - tp"
                     : choices_pick(choices, 2) ? "tp * " + rows
                                                : "0 - tp",
                text = "heddle 2\ntensor program t mesh tp=" + size;

    if (choices_pick(choices, 2))
        return text + " in %q" + shape + "in %k" + shape + "temp %g" + all +
               "out %o" + shape + "out %l" + sums +
               "{ %g = set %k %o, %l = attention %q, %g, %g blocks " + mask +
               " " + by + " }";
    return text + " in %q" + shape + "in %k" + shape + "in %d" + shape +
           "in %o" + shape + "in %l" + sums + "temp %g" + all + "out %s" +
           shape + "out %t" + shape + "out %u" + shape +
           "{ %g = set %k %s, %t, %u = attention_grad %d, %q, %g, %g, %o, %l "
           "blocks " +
           mask + " " + by + " }";
}

// What a tensor program is lowered to; "" where it is refused.
std::string Drawn(const std::string &kind, unsigned seed)
{
    uint8_t bytes[320];
    generate_options generating = {true, 0};

    choices_fill(seed, bytes, sizeof bytes);
    choices choices = {bytes, sizeof bytes, 0};
    hd_lower_options options = generate_lowering(&choices);
    std::string text;
    if (kind == "zigzag" || kind == "causal") {
        text = Masked(kind, &choices);
    } else {
        char *made = generate_program(&choices, &generating);
        text = made;
        free(made);
    }
    Module module(text);
    options.asked = 0;
    return module.it != nullptr && hd_lower(module.it, &options, nullptr,
                                            nullptr, module.diag) == HD_OK
               ? module.Text()
               : "";
}

// A program of the kind, and from which seed on there are others.
std::string DrawnOf(const std::string &kind, unsigned *seed)
{
    for (;;) {
        std::mt19937 random(*seed);
        std::string text = kind == "launches" ? Print(Parse(Generate(random)))
                                              : Drawn(kind, *seed);

        ++*seed;
        if (KindsOf(text).count(kind) != 0)
            return text;
    }
}

std::string Mutant(const std::string &text, std::mt19937 &random)
{
    std::string changed = text;

    for (unsigned n = 1 + random() % 3; n > 0; n--) {
        Module mutant(changed);

        if (mutant.it == nullptr)
            return changed;
        if (random() % 2 == 0) {
            Program program = Parse(mutant.Text());

            Slip(&program, random);
            changed = Print(program);
        } else {
            Mutate(mutant.it, random);
            changed = mutant.Text();
        }
    }
    return changed;
}

TEST(Second, FindsProgramsOfEachKindRightThatTheCheckerTakes)
{
    const char *setting = std::getenv("HEDDLE_SECOND_KINDS");
    long count = setting != nullptr ? std::atol(setting) : 60;
    unsigned first = static_cast<unsigned>(SeedFrom(1)), seed = first;
    Tallies tallies;

    for (long done = 0; done < count; done++) {
        unsigned from = seed;
        std::string text = DrawnOf(kKinds[done % 6], &seed);
        std::mt19937 random(from);
        Kinds kinds = KindsOf(text);

        for (int i = 0; i < 8; i++) {
            std::string mutant = i == 0 ? text : Mutant(text, random);

            ASSERT_EQ(Disagreement(mutant, random, kinds, &tallies), "")
                << "seed " << from << "\n"
                << mutant;
        }
    }
    printf("%ld programs from seed %u to %u\n", count, first, seed);
    for (const auto &entry : tallies)
        printf("  %-14s %d right and %d wrong; %d right, refused; %d unknown\n",
               entry.first.c_str(), entry.second.right, entry.second.wrong,
               entry.second.strict, entry.second.unknown);
    EXPECT_GT(tallies["all"].right, count);
    EXPECT_GT(tallies["all"].wrong, count);
}

} // namespace

} // namespace second
