// What the checker says once of all runs, by looking at the one in which all
// blocks are full, held to what each run is: for every value of the sizes the
// oracle orders that run by itself, and the reference computes it. Programs are
// lowered from random tensor programs, and mutants of those.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include <heddle/verify.h>

#include "ir/module.h"
#include "tests/info.h"
#include "tests/second/change.h"
#include "tests/second/model.h"
#include "tests/seed.h"
#include "tools/gen/generate.h"

namespace second
{

namespace
{

const int kRunsOfEach = 24; // values at most, of a program

using Values = std::vector<int64_t>;

struct Module {
    hd_module *it = nullptr;
    hd_diag *diag = hd_diag_create();

    explicit Module(const std::string &text)
    {
        if (hd_parse("t", text.data(), text.size(), nullptr, 0, diag, &it) !=
            HD_OK)
            it = nullptr;
    }
    Module(const Module &) = delete;
    Module &operator=(const Module &) = delete;
    ~Module()
    {
        hd_module_destroy(it);
        hd_diag_destroy(diag);
    }
    std::string Text() const
    {
        char *printed = nullptr;
        std::string text;

        if (hd_print(it, &printed) == HD_OK)
            text = printed;
        hd_free(printed);
        return text;
    }
    void Give(const Values &values)
    {
        for (size_t i = 0; i < values.size(); i++)
            it->size[i].now = values[i];
    }
};

// All of them if they are few, else those at the ends and some between.
std::vector<Values> ValuesOf(const hd_module *module, std::mt19937 &random)
{
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

// Whole numbers for each argument of this run.
class Answers
{
  public:
    Answers(Module *tensor, Module *host, std::mt19937 &random)
    {
        hd_argument a = HD_EMPTY(hd_argument);

        for (size_t i = 0; hd_module_argument(tensor->it, i, &a); i++) {
            std::vector<double> values(a.elements);

            for (double &v : values)
                v = static_cast<double>(random() % (2 * GENERATE_INPUT + 1)) -
                    GENERATE_INPUT;
            bytes_.emplace_back(a.elements * hd_dtype_size(a.dtype) + 1);
            hd_dtype_store(a.dtype, values.data(), a.elements,
                           bytes_.back().data());
        }
        for (size_t i = 0; i < bytes_.size(); i++) {
            hd_module_argument(tensor->it, i, &a);
            whole_.push_back(a.role == HD_ROLE_OUT ? nullptr
                                                   : bytes_[i].data());
        }
        Compare(tensor, host);
    }
    std::string different; // where

  private:
    void Compare(Module *tensor, Module *host)
    {
        hd_reference *want = nullptr, *have = nullptr;
        hd_argument a = HD_EMPTY(hd_argument);

        if (hd_reference_create(tensor->it, whole_.data(), tensor->diag,
                                &want) != HD_OK)
            different = "the tensor program does not compute";
        else if (hd_reference_create(host->it, whole_.data(), host->diag,
                                     &have) != HD_OK)
            different =
                "it does not compute: " + std::string(hd_diag_text(host->diag));
        for (size_t i = 0;
             different.empty() && hd_module_argument(tensor->it, i, &a); i++)
            for (int rank = 0; rank < module_info(tensor->it).ranks; rank++)
                if (a.role == HD_ROLE_OUT || a.role == HD_ROLE_INOUT)
                    CompareOne(want, have, i, rank, a);
        hd_reference_destroy(want);
        hd_reference_destroy(have);
    }
    void CompareOne(hd_reference *want, hd_reference *have, size_t i, int rank,
                    const hd_argument &a)
    {
        std::vector<double> x(a.local_elements), y(a.local_elements);

        hd_reference_local(want, i, rank, x.data(), nullptr);
        hd_reference_local(have, i, rank, y.data(), nullptr);
        for (size_t k = 0; k < x.size(); k++)
            if (!std::isnan(x[k]) && x[k] != y[k]) // else room
                different = std::string("%") + a.name + " of rank " +
                            std::to_string(rank) + " element " +
                            std::to_string(k) + " is " + std::to_string(y[k]) +
                            ", not " + std::to_string(x[k]);
    }

    std::vector<std::vector<char>> bytes_;
    std::vector<const void *> whole_;
};

std::string TextOf(const Values &values)
{
    std::string text = "at";

    for (int64_t v : values)
        text += " " + std::to_string(v);
    return text + ": ";
}

bool SameArguments(const hd_module *tensor, const hd_module *host)
{
    hd_argument a = HD_EMPTY(hd_argument), b = HD_EMPTY(hd_argument);

    for (size_t i = 0; hd_module_argument(tensor, i, &a); i++) {
        hd_module_argument(host, i, &b);
        bool same = a.role == b.role && a.dtype == b.dtype &&
                    a.ndims == b.ndims && strcmp(a.name, b.name) == 0;
        for (int d = 0; d < a.ndims && same; d++)
            same = a.extent[d] == b.extent[d] && a.local[d] == b.local[d] &&
                   a.axis[d] == b.axis[d];
        if (!same)
            return false;
    }
    return true;
}

// What is wrong with this run; nothing if all is well.
std::string RunIsWrong(Module *tensor, Module *host, const Program &program,
                       const Values &values, std::mt19937 &random)
{
    Schedules schedules;
    Program at = program;

    if (!SameArguments(tensor->it, host->it))
        return "arguments";

    tensor->Give(values);
    host->Give(values);
    for (size_t i = 0; i < values.size(); i++)
        at.sizes[i].now = values[i];
    schedules.random = 1;
    try {
        Verdict verdict = Judge(at, schedules);

        if (!verdict.Clean() || !verdict.inconsistent.empty())
            return TextOf(values) + verdict.Text() + verdict.inconsistent;
    } catch (const TooLarge &) {
    } catch (const Unreadable &unreadable) {
        return TextOf(values) + unreadable.what();
    }
    Answers answers(tensor, host, random);
    return answers.different.empty() ? "" : TextOf(values) + answers.different;
}

struct Tally {
    int programs = 0, refused = 0, accepted = 0, rejected = 0;
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
    Program program = Parse(host.Text());
    for (const Values &values : ValuesOf(host.it, random)) {
        if (status != HD_OK && !wrong.empty())
            break;
        wrong = RunIsWrong(&tensor, &host, program, values, random);
        if (status == HD_OK && !wrong.empty())
            return wrong;
    }
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

// A sized tensor program and what it is lowered to; false if it has no sizes
// or is refused.
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
    if (module.it == nullptr || module.it->nsizes == 0 ||
        hd_lower(module.it, &options, nullptr, nullptr, module.diag) != HD_OK)
        return false;
    *host = module.Text();
    return true;
}

TEST(Second, WhatIsProvenOfAllSizesHoldsAtEach)
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

            if (random() % 5 == 0)
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
           "refused; right and rejected:",
           tally.programs, first, mutants.accepted, mutants.rejected,
           mutants.refused);
    for (const auto &entry : mutants.strict)
        printf(" %s %d", entry.first.c_str(), entry.second);
    printf("\n");
}

} // namespace

} // namespace second
