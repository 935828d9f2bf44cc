// What the checker says once of all runs, by looking at the one in which all
// blocks are full, held to what each run is: for every value of the sizes, and
// for counts of none, of all and of some, the oracle orders that run by itself,
// and computes it. Programs are lowered from random tensor programs of which
// some length is not fixed, and mutants of those. HEDDLE_SECOND_SIZES says of
// how many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "ir/module.h"
#include "tests/info.h"
#include "tests/second/change.h"
#include "tests/second/judge.h"
#include "tests/second/model.h"
#include "tests/second/module.h"
#include "tests/seed.h"
#include "tools/gen/generate.h"

namespace second
{

namespace
{

const int kRunsOfEach = 24;  // values at most, of a program
const int kRunsOfCounts = 8; // of one without sizes

using Values = std::vector<int64_t>;

// All of them if they are few, else those at the ends and some between.
std::vector<Values> ValuesOf(const hd_module *module, std::mt19937 &random)
{
    if (module->nsizes == 0)
        return std::vector<Values>(kRunsOfCounts);

    std::set<Values> all;
    Values low, high;
    double count = 1;

    for (int i = 0; i < module->nsizes; i++) {
        low.push_back(module->size[i].low);
        high.push_back(module->size[i].high);
        count *= static_cast<double>(high.back() - low.back() + 1);
    }
    all = {low, high};
    for (int tries = 0; tries < 40 * kRunsOfEach &&
                        all.size() < std::min<double>(count, kRunsOfEach);
         tries++) {
        Values values = low;

        for (size_t i = 0; i < values.size(); i++)
            values[i] += static_cast<int64_t>(
                random() % static_cast<uint64_t>(high[i] - low[i] + 1));
        all.insert(values);
    }
    return {all.begin(), all.end()};
}

// The same in both.
void Give(const Values &values, Program *program)
{
    for (size_t i = 0; i < values.size(); i++)
        program->sizes.at(i).now = values[i];
}

// Where the answers of this run differ, on whole numbers.
std::string Answers(const Program &tensor, const Program &host, int number,
                    std::mt19937 &random)
{
    Draw draw;

    draw.number = number;
    draw.whole = true;
    Arrays given = DrawInputs(tensor, draw, random);
    return Difference(EvaluateTensor(tensor, given), EvaluateHost(host, given));
}

std::string TextOf(const Values &values)
{
    std::string text = "at";

    for (int64_t v : values)
        text += " " + std::to_string(v);
    return text + ": ";
}

// What is wrong with this run; nothing if all is well.
std::string RunIsWrong(Program tensor, Program host, const Values &values,
                       int number, std::mt19937 &random)
{
    Schedules schedules;

    Give(values, &tensor);
    Give(values, &host);
    schedules.random = 1;
    try {
        Verdict verdict = Judge(host, schedules);

        if (!verdict.Clean() || !verdict.inconsistent.empty())
            return TextOf(values) + verdict.Text() + verdict.inconsistent;
    } catch (const TooLarge &) {
    } catch (const Unreadable &unreadable) {
        return TextOf(values) + unreadable.what();
    }
    try {
        std::string different = Answers(tensor, host, number, random);

        return different.empty() ? "" : TextOf(values) + different;
    } catch (const Undecided &) {
        return "";
    } catch (const std::exception &error) {
        return TextOf(values) + error.what();
    }
}

struct Tally {
    int programs = 0, refused = 0, accepted = 0, rejected = 0;
    int wrong = 0;                     // rejected, and wrong in some run
    std::map<std::string, int> strict; // rejected, and right in every run
};

// Of a program that is accepted every run is right.
std::string Judged(const std::string &tensor_text, const std::string &text,
                   std::mt19937 &random, Tally *tally)
{
    Module tensor(tensor_text), host(text);
    hd_check_options options = hd_check_defaults();
    std::string wrong;
    hd_message message = HD_EMPTY(hd_message);

    if (host.it == nullptr || host.it->nsizes != tensor.it->nsizes ||
        module_info(host.it).stage != HD_STAGE_HOST ||
        module_info(host.it).narguments != module_info(tensor.it).narguments) {
        tally->refused++;
        return "";
    }
    options.against = tensor.it;
    hd_status status = hd_check(host.it, &options, host.diag);
    if (status != HD_OK && status != HD_ERROR_INVALID) {
        tally->refused++;
        return "";
    }
    (status == HD_OK ? tally->accepted : tally->rejected)++;
    for (size_t i = 0;
         status != HD_OK && hd_diag_message(host.diag, i, &message); i++)
        if (message.severity == HD_SEVERITY_ERROR)
            break;
    Program want = Parse(tensor.Whole()), have = Parse(host.Text());
    int number = 0;
    for (const Values &values : ValuesOf(host.it, random)) {
        if (status != HD_OK && !wrong.empty())
            break;
        wrong = RunIsWrong(want, have, values, number++, random);
        if (status == HD_OK && !wrong.empty())
            return wrong;
    }
    tally->wrong += !wrong.empty();
    if (status != HD_OK && wrong.empty())
        tally->strict[message.code]++;
    return "";
}

// A dimension takes another size, or another number of them.
void ChangeSize(Program *program, std::mt19937 &random)
{
    for (int tries = 0; tries < 30; tries++) {
        Decl &decl = program->decls[random() % program->decls.size()];

        if (decl.dims.empty())
            continue;
        Dim &dim = decl.dims[random() % decl.dims.size()];
        const Size &size = program->sizes[random() % program->sizes.size()];
        if (dim.extent.op != "name" && dim.extent.op != "*" && tries < 20)
            continue;
        dim.extent = Name(size.name);
        if (random() % 3 == 0)
            dim.extent = Make("*", Number(2), dim.extent);
        if (random() % 6 == 0)
            dim.extent = Number(size.high);
        return;
    }
}

// Counts, groups, or uneven blocks: where those lie some ranks have less.
bool Varies(const hd_module *module, const std::string &text)
{
    bool varies = module->nsizes > 0 ||
                  text.find(" by %") != std::string::npos ||
                  text.find(" groups %") != std::string::npos;

    for (const hd_buffer *b = module->buffers; b != nullptr; b = b->next)
        for (int d = 0; d < b->type.ndims; d++)
            varies |= hd_dim_is_uneven(b->type.dim[d]);
    return varies;
}

// A tensor program of which some length is not fixed, and what it is lowered
// to; false if all are, or it is refused.
bool Draw(unsigned seed, std::string *tensor, std::string *host)
{
    uint8_t bytes[320];
    generate_options generating = {true, 0};

    choices_fill(seed, bytes, sizeof bytes);
    choices choices = {bytes, sizeof bytes, 0};
    hd_lower_options options = generate_lowering(&choices);
    char *text = generate_program(&choices, &generating);
    *tensor = text;
    free(text);
    Module module(*tensor);
    options.asked = 0;
    if (module.it == nullptr || !Varies(module.it, *tensor) ||
        hd_lower(module.it, &options, nullptr, nullptr, module.diag) != HD_OK)
        return false;
    *host = module.Text();
    return true;
}

TEST(Second, WhatIsProvenOfAllLengthsHoldsAtEach)
{
    const char *setting = std::getenv("HEDDLE_SECOND_SIZES");
    long count = setting != nullptr ? std::atol(setting) : 20;
    unsigned first = static_cast<unsigned>(SeedFrom(1)), seed = first;
    Tally tally, mutants;

    for (; tally.programs < count; seed++) {
        std::string tensor, host;
        std::mt19937 random(seed);

        if (!Draw(seed, &tensor, &host))
            continue;
        tally.programs++;
        ASSERT_EQ(Judged(tensor, host, random, &tally), "")
            << "seed " << seed << "\n"
            << tensor << host;
        ASSERT_EQ(tally.rejected, 0) << "seed " << seed;
        for (int i = 0; i < 6; i++) {
            Program mutant = Parse(host);

            if (!mutant.sizes.empty() && random() % 5 == 0)
                ChangeSize(&mutant, random);
            else
                Slip(&mutant, random);
            std::string text = Print(mutant);
            ASSERT_EQ(Judged(tensor, text, random, &mutants), "")
                << "seed " << seed << "\n"
                << tensor << text;
        }
    }
    printf("%d programs from seed %u; of mutants %d accepted, %d rejected, %d "
           "of these wrong, %d refused; right and rejected:",
           tally.programs, first, mutants.accepted, mutants.rejected,
           mutants.wrong, mutants.refused);
    for (const auto &entry : mutants.strict)
        printf(" %s %d", entry.first.c_str(), entry.second);
    printf("\n");
}

} // namespace

} // namespace second
