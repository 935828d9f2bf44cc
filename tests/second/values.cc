// What programs compute, by an evaluator that was written from the pages alone:
// it knows every operation and key, and on generated programs, before and after
// lowering, it and the library's reference have the same answers.
// HEDDLE_SECOND_VALUES says of how many.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include <heddle/verify.h>

#include "ir/op.h"
#include "tests/info.h"
#include "tests/second/compute.h"
#include "tests/second/judge.h"
#include "tests/second/module.h"
#include "tests/seed.h"
#include "tools/gen/generate.h"

namespace second
{

namespace
{

TEST(Values, EveryOperationAndKeyIsKnown)
{
    int known = 0;

    for (int code = 0; code < HD_NOPS; code++) {
        const hd_op_info *op = hd_op_info_get(static_cast<hd_opcode>(code));
        std::string text = op->text;
        bool tensor = op->level != HD_LEVEL_HOST;
        bool host = op->level != HD_LEVEL_TENSOR;

        EXPECT_TRUE(!tensor || Computes(text)) << text;
        EXPECT_TRUE(!host || Executes(text)) << text;
        for (int key = 0; key < HD_NKEYS; key++) {
            std::string name =
                hd_key_info_get(static_cast<hd_key_code>(key))->text;

            if (!(op->keys >> key & 1) || name[0] == '[')
                continue;
            EXPECT_TRUE(!tensor || TakesKey(text, name)) << text << " " << name;
            EXPECT_TRUE(!host || ExecutesKey(text, name))
                << text << " " << name;
            known++;
        }
    }
    EXPECT_GT(known, 50);
}

// An argument's whole array as bytes of its dtype, and what those stand for.
struct Stored {
    std::vector<std::vector<char>> bytes;
    std::vector<const void *> whole;
    Arrays given;

    Stored(const hd_module *module, Arrays drawn) : given(std::move(drawn))
    {
        hd_argument a = HD_EMPTY(hd_argument);

        for (size_t i = 0; hd_module_argument(module, i, &a); i++) {
            auto found = given.find(a.name);
            std::vector<double> values(a.elements);

            bytes.emplace_back(a.elements * hd_dtype_size(a.dtype) + 1);
            if (found == given.end())
                continue;
            for (size_t k = 0; k < values.size(); k++)
                values[k] = static_cast<double>(found->second.at(k).value);
            hd_dtype_store(a.dtype, values.data(), a.elements,
                           bytes.back().data());
            hd_dtype_load(a.dtype, bytes.back().data(), a.elements,
                          values.data());
            for (size_t k = 0; k < values.size(); k++)
                found->second[k] = Exact(values[k]);
        }
        for (size_t i = 0; i < bytes.size(); i++) {
            hd_module_argument(module, i, &a);
            whole.push_back(given.count(a.name) ? bytes[i].data() : nullptr);
        }
    }
};

// The reference adds in double precision, 2^11 times as coarsely.
bool Near(const Scalar &mine, double theirs, double bound)
{
    Scalar n;
    double size = std::fabs(static_cast<double>(mine.value));

    if (mine.lost)
        return false;
    if (std::isinf(bound) || std::isinf(mine.bound))
        return true;
    n.value = theirs;
    n.bound = 8192 * mine.bound + (size > 1e15 ? 1e-15 * size : 0);
    return MayBeEqual(n, Exact(mine.value));
}

// Where a rank's shard is not what the reference has; empty if nowhere.
std::string FromReference(const hd_module *module, const hd_reference *answer,
                          const Shards &have)
{
    hd_argument a = HD_EMPTY(hd_argument);

    for (size_t i = 0; hd_module_argument(module, i, &a); i++)
        for (size_t rank = 0; rank < have.size(); rank++) {
            auto shard = have[rank].find(a.name);
            std::vector<double> values(a.local_elements), bounds(values);
            size_t next = 0;

            if (shard == have[rank].end())
                continue;
            hd_reference_local(answer, i, static_cast<int>(rank), values.data(),
                               bounds.data());
            for (size_t k = 0; k < values.size(); k++) {
                if (bounds[k] < 0)
                    continue; // room
                const Scalar &mine = shard->second.value.at(next++);
                if (!Near(mine, values[k], bounds[k]))
                    return std::string("%") + a.name + " of rank " +
                           std::to_string(rank) + ", local " +
                           std::to_string(k) + ": evaluated " +
                           (mine.lost ? "lost" : std::to_string(mine.value)) +
                           ", reference " + std::to_string(values[k]);
            }
            if (next != shard->second.value.size())
                return std::string("%") + a.name + " has other elements";
        }
    return "";
}

// What each rank holds of whole arrays.
Shards Scatter(const Program &program, const Arrays &whole)
{
    Shape shape(program);
    Shards shards;

    for (int rank = 0; rank < shape.ranks; rank++) {
        shards.push_back({});
        for (const auto &array : whole) {
            Shard &shard = shards.back()[array.first];

            for (auto place :
                 Places(program, shape, rank, shape.decl.at(array.first))) {
                shard.place.push_back(place.second);
                shard.value.push_back(
                    array.second.at(static_cast<size_t>(place.second)));
            }
        }
    }
    return shards;
}

struct Tally {
    int programs = 0, sized = 0, hosts = 0, undecided = 0;
};

std::string Compare(const hd_module *module, const Program &program,
                    const Stored &stored)
{
    hd_reference *answer = nullptr;
    std::string different;
    hd_diag *diag = hd_diag_create();

    if (hd_reference_create(module, stored.whole.data(), diag, &answer) !=
        HD_OK)
        different = hd_diag_text(diag);
    else if (program.level == "tensor")
        different = FromReference(
            module, answer,
            Scatter(program, EvaluateTensor(program, stored.given)));
    else
        different =
            FromReference(module, answer, EvaluateHost(program, stored.given));
    hd_reference_destroy(answer);
    hd_diag_destroy(diag);
    return different;
}

void Resize(Module *module, const Program &program)
{
    std::vector<int64_t> sizes;

    for (const Size &size : program.sizes)
        sizes.push_back(size.now);
    if (!sizes.empty()) {
        ASSERT_EQ(hd_module_resize(module->it, sizes.data(), sizes.size(),
                                   module->diag),
                  HD_OK);
    }
}

void CompareGenerated(unsigned seed, Tally *tally)
{
    uint8_t bytes[320];
    std::mt19937 random(seed);
    generate_options generating = {random() % 2 == 0, 0};
    Draw draw;

    choices_fill(seed, bytes, sizeof bytes);
    choices choices = {bytes, sizeof bytes, 0};
    hd_lower_options options = generate_lowering(&choices);
    char *text = generate_program(&choices, &generating);
    Module tensor(text), host(text);
    free(text);
    ASSERT_NE(tensor.it, nullptr);
    options.asked = 0;
    Program program = Parse(tensor.Text()), lowered;
    if (hd_lower(host.it, &options, nullptr, nullptr, host.diag) == HD_OK)
        lowered = Parse(host.Text());
    draw.whole = generating.integers;
    draw.number = static_cast<int>(random() % 5);
    DrawSizes(&program, &lowered, draw, random);
    Resize(&tensor, program);
    Stored stored(tensor.it, DrawInputs(program, draw, random));
    tally->programs++;
    tally->sized += !program.sizes.empty();
    try {
        ASSERT_EQ(Compare(tensor.it, program, stored), "") << tensor.Text();
        if (lowered.body.empty())
            return;
        tally->hosts++;
        Resize(&host, lowered);
        ASSERT_EQ(Compare(host.it, lowered, stored), "")
            << tensor.Text() << host.Text();
        ASSERT_EQ(Difference(EvaluateTensor(program, stored.given),
                             EvaluateHost(lowered, stored.given)),
                  "")
            << tensor.Text() << host.Text();
    } catch (const Undecided &) {
        tally->undecided++;
    } catch (const std::exception &e) {
        FAIL() << e.what() << "\n" << tensor.Text() << host.Text();
    }
}

TEST(Values, AreThoseOfTheReferenceOfGeneratedPrograms)
{
    const char *setting = std::getenv("HEDDLE_SECOND_VALUES");
    int count = setting != nullptr ? std::atoi(setting) : 400;
    unsigned seed = Seed();
    Tally tally;

    for (int i = 0; i < count && !HasFailure(); i++) {
        SCOPED_TRACE("HEDDLE_TEST_SEED=" + std::to_string(seed + i));
        CompareGenerated(seed + static_cast<unsigned>(i), &tally);
    }
    printf("%d programs, %d of them sized, %d lowered, %d undecided\n",
           tally.programs, tally.sized, tally.hosts, tally.undecided);
}

} // namespace

} // namespace second
