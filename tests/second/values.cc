// What programs compute, by an evaluator that was written from the pages alone:
// it knows every operation and key, and on generated programs, before and after
// lowering, it and the library's reference have the same answers.
// HEDDLE_SECOND_VALUES says of how many.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <heddle/call.h>
#include <heddle/verify.h>

#include "ir/op.h"
#include "tests/info.h"
#include "tests/second/change.h"
#include "tests/second/compute.h"
#include "tests/second/each.h"
#include "tests/second/families.h"
#include "tests/second/judge.h"
#include "tests/second/module.h"
#include "tests/seed.h"
#include "tools/gen/generate.h"

namespace second
{

namespace
{

// By which a move names a dimension: no program that runs has it.
bool IsOfPasses(const hd_op_info *op, int key)
{
    return op->family == HD_FAMILY_MOVE &&
           hd_key_names_dims(static_cast<hd_key_code>(key));
}

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

            if (!(op->keys >> key & 1) || name[0] == '[' || IsOfPasses(op, key))
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
            for (size_t k = 0; k < values.size(); k++) {
                int64_t whole = static_cast<int64_t>(found->second[k].value);

                if (a.dtype == HD_DTYPE_I64) // a double holds them not all
                    memcpy(&bytes.back()[8 * k], &whole, 8);
                else
                    found->second[k] = Exact(values[k]);
            }
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

    if (mine.lost) // the reference has a NaN for what nobody has written
        return std::isnan(theirs);
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
    int programs = 0, sized = 0, hosts = 0, slipped = 0, undecided = 0;
};

// Whether rows of an answer were moved by counts that did not count them.
bool LacksAnswers(const Program &program, const Stored &stored)
{
    for (const auto &rank : EvaluateHost(program, stored.given))
        for (const auto &shard : rank)
            for (const Scalar &value : shard.second.value)
                if (value.lost)
                    return true;
    return false;
}

std::string Compare(const hd_module *module, const Program &program,
                    const Stored &stored)
{
    hd_reference *answer = nullptr;
    std::string different;
    hd_diag *diag = hd_diag_create();

    if (hd_reference_create(module, stored.whole.data(), diag, &answer) !=
        HD_OK)
        different = program.level == "host" && LacksAnswers(program, stored)
                        ? "" // and so says the reference
                        : hd_diag_text(diag);
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

// What is to be given and answered, in order.
std::string ArgumentsOf(const Program &program)
{
    Shape shape(program);
    std::string text;

    for (size_t i = 0; i < program.decls.size(); i++) {
        const Decl &decl = program.decls[i];

        if (decl.role == "temp")
            continue;
        text += decl.role + " " + decl.name + " " + decl.dtype;
        for (int64_t extent : Extents(program, shape, static_cast<int>(i)))
            text += " " + std::to_string(extent);
    }
    return text;
}

// A slip in a host program, if that leaves it free of races: what it computes
// is another thing at times, and for both the same.
void CompareSlipped(Program host, const Stored &stored, std::mt19937 &random,
                    Tally *tally)
{
    std::string arguments = ArgumentsOf(host);

    Slip(&host, random);
    Module module(Print(host));

    if (module.it == nullptr || module_info(module.it).stage != HD_STAGE_HOST ||
        hd_check(module.it, nullptr, module.diag) != HD_OK)
        return;
    Program slipped = Parse(module.Text());
    for (size_t i = 0; i < slipped.sizes.size(); i++)
        slipped.sizes[i].now = host.sizes.at(i).now;
    if (ArgumentsOf(slipped) != arguments)
        return;
    Resize(&module, slipped);
    tally->slipped++;
    ASSERT_EQ(Compare(module.it, slipped, stored), "") << module.Text();
}

// The tensor program and what it is lowered to, on one draw.
void CompareLowered(const std::string &text, Draw draw,
                    const hd_lower_options &options, std::mt19937 &random,
                    Tally *tally)
{
    Module tensor(text), host(text);

    ASSERT_NE(tensor.it, nullptr) << text;
    Program program = Parse(tensor.Whole()), lowered;
    if (hd_lower(host.it, &options, nullptr, nullptr, host.diag) == HD_OK)
        lowered = Parse(host.Text());
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
        // In blocks an attention is of means that are merged, of which one may
        // be infinite where the whole is not.
        if (!draw.special || text.find("attention") == text.npos) {
            ASSERT_EQ(Difference(EvaluateTensor(program, stored.given),
                                 EvaluateHost(lowered, stored.given)),
                      "")
                << tensor.Text() << host.Text();
        }
        CompareSlipped(lowered, stored, random, tally);
    } catch (const TooLarge &) {
        tally->undecided++;
    } catch (const Undecided &) {
        tally->undecided++;
    } catch (const std::exception &e) {
        FAIL() << e.what() << "\n" << tensor.Text() << host.Text();
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
    options.asked = 0;
    draw.whole = generating.integers;
    CompareLowered(text, draw, options, random, tally);
    free(text);
}

// One of a family of tests/second/families.h; functions of a caller's the
// reference does not know.
void CompareOfFamily(unsigned seed, Tally *tally)
{
    uint8_t bytes[64];
    std::mt19937 random(seed);
    Choices choices(seed);
    const Family &family = kFamilies[random() % kFamilies.size()];
    std::string text = family.write(&choices).tensor;

    choices_fill(seed, bytes, sizeof bytes);
    ::choices lowering = {bytes, sizeof bytes, 0};
    hd_lower_options options = generate_lowering(&lowering);
    options.asked = 0;
    if (text.find("= call") == std::string::npos && Module(text).it != nullptr)
        CompareLowered(text, Draw(), options, random, tally);
}

TEST(Values, AreThoseOfTheReferenceOfGeneratedPrograms)
{
    const char *setting = std::getenv("HEDDLE_SECOND_VALUES");
    int count = setting != nullptr ? std::atoi(setting) : 700;
    unsigned seed = Seed();
    Tally tally;

    for (int i = 0; i < count && !HasFailure(); i++) {
        SCOPED_TRACE("HEDDLE_TEST_SEED=" + std::to_string(seed + i));
        if (i % 4 == 3)
            CompareOfFamily(seed + static_cast<unsigned>(i), &tally);
        else
            CompareGenerated(seed + static_cast<unsigned>(i), &tally);
    }
    printf(
        "%d programs, %d of them sized, %d lowered, %d of these with a slip, "
        "%d undecided\n",
        tally.programs, tally.sized, tally.hosts, tally.slipped,
        tally.undecided);
}

// "matmul" and "matmul tb" ..
void NoteOps(const std::vector<Stmt> &block, std::set<std::string> *seen)
{
    for (const Stmt &stmt : block) {
        if (stmt.kind == "op")
            seen->insert(stmt.op);
        for (const Key &key : stmt.keys)
            seen->insert(stmt.op + " " + key.name);
        NoteOps(stmt.body, seen);
        NoteOps(stmt.otherwise, seen);
    }
}

// Few enough numbers to be computed one at a time.
bool IsSmall(const hd_module *module)
{
    hd_argument a = HD_EMPTY(hd_argument);
    size_t elements = 0;

    for (size_t i = 0; hd_module_argument(module, i, &a); i++)
        elements += a.elements;
    return elements < 3000 && module_info(module).ranks <= 8;
}

// A program as it stands, and lowered if it can be.
void CompareProgram(const std::string &text, Draw draw, std::mt19937 &random,
                    Tally *tally)
{
    Module module(text);
    hd_lower_options options = hd_lower_defaults();

    options.transfer = HD_TRANSFER_RING;
    ASSERT_NE(module.it, nullptr) << text << module.Said();
    Program program = Parse(module.Whole());
    if (program.level == "tensor")
        return CompareLowered(text, draw, options, random, tally);
    try {
        draw.number = static_cast<int>(random() % 3);
        Stored stored(module.it, DrawInputs(program, draw, random));
        tally->hosts++;
        EXPECT_EQ(Compare(module.it, program, stored), "") << module.Text();
    } catch (const TooLarge &) {
    } catch (const std::exception &e) {
        ADD_FAILURE() << e.what() << "\n" << module.Text();
    }
}

// Every element-wise operation of every dtype that it takes.
std::vector<std::string> Maps()
{
    std::vector<std::string> programs;

    for (int code = 0; code < HD_NOPS; code++) {
        const hd_op_info *op = hd_op_info_get(static_cast<hd_opcode>(code));

        if (op->family != HD_FAMILY_MAP || op->required != 0 ||
            op->numbers == HD_NUMBERS_PICK)
            continue;
        for (const char *dtype : {"f64", "bf16", "i64", "i32", "u8", "i8"}) {
            std::string of = dtype, text = "tensor program t in %x : " + of;

            if ((op->numbers == HD_NUMBERS_FLOAT && IsInteger(of)) ||
                (op->numbers == HD_NUMBERS_LOGIC && of != "u8"))
                continue;
            text += "[3, 4] in %z : " + of + "[4] out %y : ";
            text += op->numbers == HD_NUMBERS_TEST ? "u8" : of;
            text += std::string("[3, 4] { %y = ") + op->text + " %x";
            programs.push_back(text + (op->min_inputs == 2 ? ", %z }" : " }"));
        }
    }
    return programs;
}

TEST(Values, AreThoseOfTheReferenceOfNaNsAndInfinities)
{
    std::mt19937 random(Seed());
    Draw draw;
    Tally tally;

    draw.special = true;
    for (const std::string &body : Maps())
        for (int i = 0; i < 10; i++)
            CompareProgram("heddle 2 " + body, draw, random, &tally);
    // Two logarithms of 1e30 are as large as that of their sum.
    for (const char *body : kEach)
        for (int i = 0; i < 10 && strstr(body, "merge") == nullptr; i++)
            CompareProgram(std::string("heddle 2 ") + body, draw, random,
                           &tally);
}

void ExpectSame(const Arrays &want, const Arrays &have)
{
    ASSERT_EQ(want.size(), have.size());
    for (const auto &array : want)
        for (size_t i = 0; i < array.second.size(); i++)
            ASSERT_TRUE(MayBeEqual(array.second[i], have.at(array.first).at(i)))
                << array.first << " " << i;
}

// What is printed says where rows lie of which a text says it by the lengths
// of its dimensions alone.
TEST(Values, AreThoseOfTheTextOfWindowsToBothSides)
{
    std::mt19937 random(Seed());
    Draw draw;
    int windows = 0;

    for (const char *body : kEach) {
        std::string text = std::string("heddle 2 ") + body;
        Module module(text);
        Program said = Parse(text), printed = Parse(module.Text());

        if (text.find("window") == text.npos ||
            text.find("causal") != text.npos ||
            text.find("zigzag") != text.npos)
            continue;
        for (int i = 0; i < 5; i++) {
            Arrays given = DrawInputs(said, draw, random);

            ExpectSame(EvaluateTensor(said, given),
                       EvaluateTensor(printed, given));
        }
        windows++;
    }
    EXPECT_EQ(windows, 3);
}

TEST(Values, AreThoseOfTheReferenceOfEachOperationAndKey)
{
    std::mt19937 random(Seed());
    std::vector<std::string> programs = Maps();
    std::set<std::string> seen;
    Tally tally;

    programs.insert(programs.end(), std::begin(kEach), std::end(kEach));
    for (const std::string &body : programs) {
        std::string text = "heddle 2 " + body;

        NoteOps(Parse(text).body, &seen);
        for (int i = 0; i < 5; i++)
            CompareProgram(text, Draw(), random, &tally);
    }
    EXPECT_EQ(tally.undecided, 0);
    for (int code = 0; code < HD_NOPS; code++) {
        const hd_op_info *op = hd_op_info_get(static_cast<hd_opcode>(code));

        if (code == HD_OP_CALL)
            continue; // no reference knows functions of a caller's
        EXPECT_TRUE(seen.count(op->text)) << op->text;
        for (int key = 0; key < HD_NKEYS; key++) {
            std::string name =
                hd_key_info_get(static_cast<hd_key_code>(key))->text;

            if (op->keys >> key & 1 && name[0] != '[' && !IsOfPasses(op, key)) {
                EXPECT_TRUE(seen.count(op->text + (" " + name)))
                    << op->text << " " << name;
            }
        }
    }
}

// What a program leaves open is found out first: this evaluator does not.
bool Place(hd_module *module)
{
    hd_lower_options options = hd_lower_defaults();

    options.until = HD_STAGE_PLACE;
    return hd_lower(module, &options, nullptr, nullptr, nullptr) == HD_OK;
}

// Those that are right, and small.
void CompareFile(const std::string &text, std::mt19937 &random, Tally *tally)
{
    Module module(text);

    if (module.it == nullptr || hd_module_calls(module.it) > 0 ||
        !IsSmall(module.it))
        return;
    hd_stage stage = module_info(module.it).stage;
    if (stage == HD_STAGE_TENSOR && Place(module.it))
        CompareProgram(module.Text(), Draw(), random, tally);
    if (stage == HD_STAGE_HOST &&
        hd_check(module.it, nullptr, module.diag) == HD_OK)
        CompareProgram(text, Draw(), random, tally);
}

// All of them with HEDDLE_SECOND_VALUES, else one in sixteen.
TEST(Values, AreThoseOfTheReferenceOfTheProgramsOfThisRepository)
{
    std::mt19937 random(Seed());
    bool all = std::getenv("HEDDLE_SECOND_VALUES") != nullptr;
    Tally tally;

    for (const char *folder : {"examples", "tests/golden", "tests/fuzz/corpus"})
        for (const auto &file : std::filesystem::recursive_directory_iterator(
                 std::string(HEDDLE_SOURCE "/") + folder)) {
            std::ifstream stream(file.path());
            std::stringstream text;

            SCOPED_TRACE(file.path().string());
            text << stream.rdbuf();
            if (all || random() % 16 == 0)
                CompareFile(text.str(), random, &tally);
        }
    printf("%d programs and %d hosts\n", tally.programs, tally.hosts);
}

} // namespace

} // namespace second
