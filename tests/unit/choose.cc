// The choice among pipelines, against all of them lowered and predicted by
// themselves; and machines from text.
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <heddle/simulate.h>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "ir/module.h"
#include "ir/options.h"
#include "tests/device/arguments.h"
#include "tests/seed.h"
#include "tests/unit/generated.h"
#include "tests/unit/program.h"

namespace
{
struct ChoiceDeleter {
    void operator()(hd_choice *choice) const
    {
        hd_choice_destroy(choice);
    }
};
using Choice = std::unique_ptr<hd_choice, ChoiceDeleter>;

// A gather, a matmul and a reduction of random sizes.
std::string Mlp(std::mt19937_64 &random)
{
    auto pick = [&](int64_t n) {
        return std::to_string(4 * (1 + int64_t(random() % uint64_t(n))));
    };
    std::string m = pick(64), k = pick(512), n = pick(512);
    std::string tp = std::to_string(2 + random() % 3);

    return "tensor program mlp\nmesh tp=" + tp + "\nin %a : bf16[" + tp +
           "@tp, " + m + ", " + k + "]\nin %b : bf16[" + k + ", " + n +
           "]\nout %c : bf16[" + tp + "@stream, " + m + ", " + n +
           "]\ntemp %g : bf16[" + tp + "@stream, " + m + ", " + k +
           "]\n{\n    %g = set %a\n    %c = matmul %g, %b\n}\n";
}

double Predict(const std::string &text, const hd_lower_options &options,
               const hd_machine &machine)
{
    Program program(text);
    hd_simulation *simulation = nullptr;
    hd_prediction prediction = HD_EMPTY(hd_prediction);
    hd_simulate_options how = hd_simulate_defaults();

    how.machine = &machine;
    how.transport = options.transport;
    if (hd_lower(program.module, &options, nullptr, nullptr, nullptr) !=
            HD_OK ||
        hd_simulate_over(program.module, &how, nullptr, &simulation) != HD_OK)
        return INFINITY;
    hd_simulation_predict(simulation, &prediction);
    hd_simulation_destroy(simulation);
    // A launch that is no kernel is not tried.
    return prediction.parts ? INFINITY : prediction.time;
}

// The least that any pipeline takes, of those that send with a stream for it.
double Best(const std::string &text, const hd_machine &machine, int most)
{
    double best = INFINITY;

    for (int t = HD_TRANSFER_BULK; t <= HD_TRANSFER_RING; t++)
        for (int streams = 1; streams <= most; streams *= 2)
            for (int chunks = 1; chunks <= most; chunks *= 2)
                for (int way = 0; way < 3; way++) {
                    hd_lower_options o = hd_lower_defaults();
                    const bool own = way > 0;

                    o.transfer = static_cast<hd_transfer>(t);
                    o.streams = streams;
                    o.chunks = chunks;
                    o.comm_stream = own;
                    o.launch = way == 2 && t != HD_TRANSFER_BULK;
                    o.defer_sends = way == 1 && t != HD_TRANSFER_BULK;
                    const bool sends =
                        t == HD_TRANSFER_DIRECT || t == HD_TRANSFER_RING;
                    if (t != HD_TRANSFER_BULK && own != sends)
                        continue;
                    best = std::min(best, Predict(text, o, machine));
                }
    return best;
}

Choice Choose(const hd_module *module, const hd_choose_options *options)
{
    hd_choice *choice = nullptr;
    hd_diag *diag = hd_diag_create();

    EXPECT_EQ(hd_choose(module, options, diag, &choice), HD_OK)
        << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return Choice(choice);
}
} // namespace

TEST(Choose, TheFirstIsTheBestOfAllPipelines)
{
    std::mt19937_64 random(Seed());

    for (int i = 0; i < 5; i++) {
        std::string text = Mlp(random);
        Program program(text);
        hd_choose_options options = hd_choose_defaults();
        hd_machine machine = HD_EMPTY(hd_machine);
        hd_machine_default(&machine);
        hd_lower_options lower = HD_EMPTY(hd_lower_options);
        hd_prediction prediction = HD_EMPTY(hd_prediction), before = prediction;
        unsigned also;

        SCOPED_TRACE(text);
        machine.link *= double(1 + random() % 100) / 10;
        options.machine = &machine;
        options.most_streams = options.most_chunks = i % 2 == 0 ? 4 : 2;
        Choice choice = Choose(program.module, &options);
        for (size_t j = 0; j < hd_choice_count(choice.get()); j++) {
            ASSERT_TRUE(hd_choice_candidate(choice.get(), j, &lower,
                                            &prediction, &also));
            // In order to three digits.
            EXPECT_GE(prediction.time * 1.01, before.time);
            before = prediction;
            EXPECT_EQ(Predict(text, lower, machine), prediction.time);
            EXPECT_EQ(also >> lower.transfer & 1, 0u);
        }
        ASSERT_TRUE(hd_choice_candidate(choice.get(), 0, nullptr, &prediction,
                                        nullptr));
        EXPECT_LE(prediction.time,
                  Best(text, machine, options.most_chunks) * 1.01);
        EXPECT_GE(prediction.time, Best(text, machine, options.most_chunks));
        EXPECT_FALSE(hd_choice_candidate(choice.get(),
                                         hd_choice_count(choice.get()), nullptr,
                                         nullptr, nullptr));
        EXPECT_EQ(program.module->stage, HD_STAGE_TENSOR); // as it was
    }
}

namespace
{
hd_lower_options DrawOptions(std::mt19937_64 &random)
{
    hd_lower_options o = hd_lower_defaults();
    auto some = [&] { return random() % 3 == 0; };

    if (some()) {
        o.streams = int(1 + random() % 5);
        o.asked |= HD_OPTION_STREAMS;
    }
    if (some()) {
        o.chunks = int(1 + random() % 5);
        o.asked |= HD_OPTION_CHUNKS;
    }
    o.protocol = some() ? HD_PROTOCOL_GET : HD_PROTOCOL_PUT;
    o.copy_own = some();
    o.defer_sends = some();
    o.comm_stream = some();
    o.wire = some() ? HD_WIRE_F32 : HD_WIRE_RESULT;
    o.transport = some() ? HD_TRANSPORT_NCCL : HD_TRANSPORT_COPY;
    if (some()) // what is set is given, asked for or not
        o.asked &= ~unsigned(HD_OPTION_CHANGED);
    return o;
}

struct Chosen {
    hd_lower_options lower = HD_EMPTY(hd_lower_options);
    double time = INFINITY; // where no pipeline fits
};

Chosen ChooseFor(const std::string &text, const hd_lower_options &given)
{
    Program program(text);
    hd_choose_options options = hd_choose_defaults();
    hd_prediction prediction = HD_EMPTY(hd_prediction);
    hd_choice *choice = nullptr;
    Chosen chosen;

    options.lower = &given;
    if (hd_choose(program.module, &options, nullptr, &choice) != HD_OK)
        return chosen;
    EXPECT_TRUE(
        hd_choice_candidate(choice, 0, &chosen.lower, &prediction, nullptr));
    chosen.time = prediction.time;
    hd_choice_destroy(choice);
    return chosen;
}
} // namespace

// A program that is drawn begins with the line of its version, which Program
// writes.
TEST(Choose, HasWhatIsGivenAndMakesWhatItPredicts)
{
    std::mt19937_64 random(Seed());
    hd_lower_options usual = hd_lower_defaults();
    hd_machine machine = HD_EMPTY(hd_machine);
    int fit = 0;

    hd_machine_default(&machine);
    for (int i = 0; i < 40; i++) {
        std::string text = i % 4 == 0
                               ? Mlp(random)
                               : Generate(random(), 1 + i % 8, false).substr(9);
        hd_lower_options given = DrawOptions(random), alone = usual;
        Chosen chosen = ChooseFor(text, given), any;
        const hd_lower_options &lower = chosen.lower;

        SCOPED_TRACE(text);
        if (std::isinf(chosen.time))
            continue;
        fit++;
        EXPECT_EQ(Predict(text, lower, machine), chosen.time);
        EXPECT_EQ(hd_options_differ(&lower, &given) &
                      hd_options_differ(&given, &usual),
                  0u);
        EXPECT_EQ(lower.transport, given.transport);
        // Without any it is the best of all, where what sends has a stream for
        // it.
        alone.transport = given.transport;
        any = ChooseFor(text, alone);
        alone.wire = HD_WIRE_F32;
        alone.comm_stream = true;
        for (hd_transfer t : {HD_TRANSFER_DIRECT, HD_TRANSFER_RING}) {
            alone.transfer = t;
            EXPECT_LE(any.time, Predict(text, alone, machine) * 1.01) << t;
        }
    }
    EXPECT_GT(fit, 20);
}

namespace
{
std::vector<hd_lower_options> All(const hd_module *module,
                                  const hd_lower_options &given)
{
    hd_choose_options options = hd_choose_defaults();
    hd_lower_options lower = hd_lower_defaults();
    std::vector<hd_lower_options> all;

    options.lower = &given;
    Choice choice = Choose(module, &options);
    for (size_t j = 0;
         hd_choice_candidate(choice.get(), j, &lower, nullptr, nullptr); j++)
        all.push_back(lower);
    return all;
}
} // namespace

TEST(Choose, WhatIsGivenNarrowsTheSearch)
{
    std::mt19937_64 random(Seed());
    Program program(Mlp(random));
    hd_lower_options given = hd_lower_defaults();
    std::set<int> transfers, chunks;

    given.streams = 2;
    given.asked |= HD_OPTION_STREAMS; // though it is the default
    given.copy_own = true;
    for (const hd_lower_options &lower : All(program.module, given)) {
        EXPECT_EQ(lower.asked,
                  unsigned(HD_OPTION_STREAMS | HD_OPTION_COPY_OWN));
        EXPECT_EQ(lower.streams, 2);
        EXPECT_TRUE(lower.copy_own);
        EXPECT_FALSE(lower.launch); // which has one stream
        transfers.insert(lower.transfer);
    }
    EXPECT_EQ(transfers.count(HD_TRANSFER_BULK), 0u); // which copies nothing
    EXPECT_GT(transfers.size(), 1u);
    given.transfer = HD_TRANSFER_RING;
    for (const hd_lower_options &lower : All(program.module, given)) {
        EXPECT_EQ(lower.transfer, HD_TRANSFER_RING);
        chunks.insert(lower.chunks);
    }
    EXPECT_EQ(chunks.count(4), 1u);
}

// Of more than two ranks a ring would round sums of 16 bits more often than all
// others do.
TEST(Choose, SumsOfARingTravelAsF32UnlessSomebodyAsksForOthers)
{
    auto summed = [](int tp, const std::string &dtype) {
        std::string n = std::to_string(tp);
        return "tensor program s mesh tp=" + n + " in %a : " + dtype + "[" + n +
               "@tp, " + n + ", 64, 32] in %b : " + dtype + "[" + n +
               "@tp, 1, 32, 48] temp %p : " + dtype + "[" + n + "@tp, " + n +
               "@stream, 64, 48] out %c : " + dtype + "[" + n +
               "@tp, 64, 48] { %p = matmul %a, %b %c = sum %p dim 0 }";
    };
    struct Case {
        int tp;
        const char *dtype;
        unsigned asked;
        hd_wire_dtype want;
    } cases[] = {
        {4, "bf16", 0, HD_WIRE_F32},
        {3, "f16", 0, HD_WIRE_F32},
        {4, "bf16", HD_OPTION_WIRE, HD_WIRE_RESULT},
        {2, "bf16", 0, HD_WIRE_RESULT},
        {4, "f32", 0, HD_WIRE_RESULT},
    };

    for (const Case &c : cases) {
        Program program(summed(c.tp, c.dtype));
        hd_lower_options given = hd_lower_defaults();
        int rings = 0;

        ASSERT_EQ(program.status, HD_OK) << program.Said();
        given.asked |= c.asked;
        for (const hd_lower_options &lower : All(program.module, given)) {
            bool ring = lower.transfer == HD_TRANSFER_RING;

            rings += ring;
            EXPECT_EQ(lower.wire, ring ? c.want : HD_WIRE_RESULT)
                << c.tp << c.dtype;
        }
        EXPECT_GT(rings, 0);
        given.transfer = HD_TRANSFER_RING; // by name it is what that makes
        for (const hd_lower_options &lower : All(program.module, given))
            EXPECT_EQ(lower.wire, HD_WIRE_RESULT);
    }
}

// hd_lower takes the first, and of very many ranks a ring.
TEST(Choose, IsWhatLoweringDoesWhereNoTransferIsNamed)
{
    std::mt19937_64 random(Seed());
    std::string text = Mlp(random);
    std::string wide = "tensor program w mesh tp=65 in %a : f32[65@tp, 8, 8] "
                       "out %b : f32[65@stream, 8, 8] temp %g : f32[65@stream, "
                       "8, 8] { %g = set %a %b = relu %g }";
    Program chosen(text), named(text), many(wide), ring(wide);
    hd_lower_options by_ring = hd_lower_defaults();

    by_ring.transfer = HD_TRANSFER_RING;
    by_ring.asked = 0;
    hd_lower_options first = All(named.module, hd_lower_defaults()).at(0);
    for (auto [program, options] :
         {std::pair{&chosen, (hd_lower_options *)nullptr},
          std::pair{&named, &first},
          std::pair{&many, (hd_lower_options *)nullptr},
          std::pair{&ring, &by_ring}})
        ASSERT_EQ(
            hd_lower(program->module, options, nullptr, nullptr, program->diag),
            HD_OK)
            << program->Said();
    EXPECT_EQ(chosen.Print(), named.Print());
    EXPECT_EQ(many.Print(), ring.Print());
}

// Launches are tried where they may be kernels, and only those that there are.
TEST(Choose, TriesLaunchesWhereTheyMayBeKernels)
{
    auto gathered = [](const std::string &dtype, const std::string &n) {
        return "tensor program g mesh tp=2 in %a : " + dtype +
               "[2@tp, 128, 256] in %b : " + dtype + "[" + n +
               ", 256] out %c : " + dtype + "[2@stream, 128, " + n +
               "] temp %g : " + dtype +
               "[2@stream, 128, 256] { %g = set %a %c = matmul %g, %b tb }";
    };
    Program program(gathered("bf16", "512"));
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_lower_options lower = hd_lower_defaults();
    hd_choose_options options = hd_choose_defaults();
    auto launches_of = [&](const hd_module *module) {
        Choice choice = Choose(module, &options);
        hd_lower_options found = hd_lower_defaults();
        int n = 0;

        for (size_t j = 0;
             hd_choice_candidate(choice.get(), j, &found, nullptr, nullptr);
             j++)
            n += found.launch;
        return n;
    };
    auto launches = [&] { return launches_of(program.module); };

    hd_machine_default(&machine);
    options.machine = &machine;
    options.lower = &lower;
    EXPECT_GT(launches(), 0);
    // Of what tiles do not take they would go as their parts.
    EXPECT_EQ(launches_of(Program(gathered("f32", "512")).module), 0);
    EXPECT_EQ(launches_of(Program(gathered("bf16", "32")).module), 0);
    options.parts = true;
    EXPECT_EQ(launches(), 0);
    options.parts = false;
    lower.transport = HD_TRANSPORT_SM;
    EXPECT_EQ(launches(), 0);
    lower.transport = HD_TRANSPORT_COPY;
    machine.ranks_per_node = 1;
    EXPECT_EQ(launches(), 0);
    machine.ranks_per_node = 8;
    machine.multiprocessors = 0;
    EXPECT_EQ(launches(), 0);
}

TEST(Choose, HasWhatIsGivenWhereAllAreEqual)
{
    // Nothing is transferred, so all are equal.
    Program program("tensor program p in %x : f32[8] out %y : f32[8] "
                    "{ %y = relu %x }");
    hd_choose_options options = hd_choose_defaults();
    hd_lower_options given = hd_lower_defaults(), lower = given;

    given.streams = 3;
    given.chunks = 5;
    given.until = HD_STAGE_STREAM;
    options.lower = &given;
    Choice choice = Choose(program.module, &options);
    ASSERT_TRUE(hd_choice_candidate(choice.get(), 0, &lower, nullptr, nullptr));
    EXPECT_EQ(lower.streams, 3);
    EXPECT_EQ(lower.chunks, 5);
    EXPECT_EQ(lower.asked, unsigned(HD_OPTION_STREAMS | HD_OPTION_CHUNKS));
    EXPECT_EQ(lower.until, HD_STAGE_STREAM); // of the program that is made
}

TEST(Choose, TellsItsCallerWhatItTries)
{
    struct Seen {
        size_t calls = 0, n = 0;
    } seen;
    std::mt19937_64 random(Seed());
    Program program(Mlp(random));
    hd_choose_options options = hd_choose_defaults();

    options.context = &seen;
    options.hook = [](void *context, size_t i, size_t n,
                      const hd_lower_options *candidate) {
        Seen *s = static_cast<Seen *>(context);

        EXPECT_EQ(i, s->calls++);
        EXPECT_NE(candidate, nullptr);
        s->n = n;
    };
    Choice choice = Choose(program.module, &options);
    EXPECT_EQ(seen.calls, seen.n);
    EXPECT_GE(seen.n, hd_choice_count(choice.get()));
}

TEST(Choose, RefusesWhatIsCompleteAndLimitsThatAreNone)
{
    Program host("host program h in %x : f32[2] out %y : f32[2] "
                 "{ %y = relu %x }");
    Program tensor("tensor program h in %x : f32[2] out %y : f32[2] "
                   "{ %y = relu %x }");
    hd_choose_options options = hd_choose_defaults();
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_default(&machine);
    hd_choice *choice = nullptr;

    EXPECT_EQ(hd_choose(host.module, nullptr, host.diag, &choice),
              HD_ERROR_ARGUMENT);
    options.most_chunks = 0;
    EXPECT_EQ(hd_choose(tensor.module, &options, tensor.diag, &choice),
              HD_ERROR_ARGUMENT);
    options = hd_choose_defaults();
    hd_lower_options lower = hd_lower_defaults();
    lower.chunks = 5000;
    options.lower = &lower;
    EXPECT_EQ(hd_choose(tensor.module, &options, tensor.diag, &choice),
              HD_ERROR_ARGUMENT);
    EXPECT_NE(tensor.Said().find("5000 chunks a shard"), std::string::npos);
    options = hd_choose_defaults();
    machine.link = 0;
    options.machine = &machine;
    EXPECT_EQ(hd_choose(tensor.module, &options, tensor.diag, &choice),
              HD_ERROR_ARGUMENT);
    EXPECT_NE(tensor.Said().find("link is 0"), std::string::npos);
    options.machine = nullptr;
    options.size = 0;
    EXPECT_EQ(hd_choose(tensor.module, &options, tensor.diag, &choice),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(choice, nullptr);
}

// ---------------------------------------------------------------- machines

namespace
{
const char *const kWhole[] = {"ranks_per_node", "processors",
                              "units",          "tile_m",
                              "tile_n",         "multiprocessors"};
const char *const kRates[] = {"memory", "copy_bandwidth", "link",
                              "collective_bandwidth", "network_bandwidth"};
const char *const kShares[] = {"issue",
                               "launch",
                               "hop",
                               "copy_latency",
                               "collective_latency",
                               "network_latency",
                               "reduction_latency",
                               "collision",
                               "collective_units"};

struct Read {
    hd_status status;
    hd_machine machine = HD_EMPTY(hd_machine);
    std::string said;
};

Read Parse(const std::string &text)
{
    hd_diag *diag = hd_diag_create();
    Read read = {};

    read.status = hd_machine_parse("m.json", text.data(), text.size(), diag,
                                   &read.machine);
    read.said = hd_diag_text(diag);
    hd_diag_destroy(diag);
    return read;
}

std::string Number(double value)
{
    char text[40];

    snprintf(text, sizeof text, "%.17g", value);
    return text;
}

// Keys and values in a random order, with random white space.
struct Drawn {
    std::vector<std::pair<std::string, double>> member;
    std::vector<std::pair<std::string, double>> rate;
    std::string text;
};

Drawn Draw(std::mt19937_64 &random)
{
    auto space = [&] {
        static const char *const spaces[] = {"", " ", "\n", "\t", "\r\n  "};
        return std::string(spaces[random() % 5]);
    };
    auto unit = [&] { return double(random() >> 11) / 9007199254740992.; };
    Drawn d;

    for (const char *key : kWhole)
        d.member.push_back({key, double(1 + random() % 1024)});
    for (const char *key : kRates)
        d.member.push_back({key, std::pow(10, 18 * unit())});
    for (const char *key : kShares)
        d.member.push_back({key, 0.001 + 0.99 * unit()});
    d.rate.push_back({"f32", 1 + 1e12 * unit()});
    d.rate.push_back({"bf16", 1 + 1e12 * unit()});
    std::shuffle(d.member.begin(), d.member.end(), random);
    d.text = space() + "{" + space();
    for (const auto &m : d.member)
        d.text += "\"" + m.first + "\"" + space() + ":" + space() +
                  Number(m.second) + space() + "," + space();
    d.text += "\"matmul\": {\"f32\":" + space() + Number(d.rate[0].second) +
              ",\"bf16\" :" + Number(d.rate[1].second) + "}" + space() +
              ", \"name\": \"a \\\"machine\\\"\"}" + space();
    return d;
}

double Of(const hd_machine &m, const std::string &key)
{
    const std::map<std::string, double> all = {
        {"ranks_per_node", m.ranks_per_node},
        {"processors", m.processors},
        {"units", m.units},
        {"tile_m", m.tile_m},
        {"tile_n", m.tile_n},
        {"multiprocessors", m.multiprocessors},
        {"memory", m.memory},
        {"copy_bandwidth", m.copy_bandwidth},
        {"link", m.link},
        {"collective_bandwidth", m.collective_bandwidth},
        {"network_bandwidth", m.network_bandwidth},
        {"issue", m.issue},
        {"launch", m.launch},
        {"hop", m.hop},
        {"copy_latency", m.copy_latency},
        {"collective_latency", m.collective_latency},
        {"network_latency", m.network_latency},
        {"reduction_latency", m.reduction_latency},
        {"collision", m.collision},
        {"collective_units", m.collective_units}};

    return all.at(key);
}
} // namespace

TEST(MachineText, EveryNumberIsReadWhereItBelongs)
{
    std::mt19937_64 random(Seed());

    for (int i = 0; i < 50; i++) {
        Drawn d = Draw(random);
        Read read = Parse(d.text);

        ASSERT_EQ(read.status, HD_OK) << d.text << read.said;
        for (const auto &m : d.member)
            EXPECT_EQ(Of(read.machine, m.first), m.second) << m.first;
        EXPECT_EQ(read.machine.matmul[HD_DTYPE_F32], d.rate[0].second);
        EXPECT_EQ(read.machine.matmul[HD_DTYPE_BF16], d.rate[1].second);
        EXPECT_EQ(read.machine.matmul[HD_DTYPE_F64], 0);
        EXPECT_STREQ(read.machine.name, "a \"machine\"");
    }
}

// No text that is cut, or has a byte changed, is read past its end or accepted
// for another reason than that it is a machine.
TEST(MachineText, WhatIsCutIsRefusedWithItsPlace)
{
    std::mt19937_64 random(Seed());
    std::string text = Draw(random).text;
    size_t end = text.rfind('}');

    for (size_t n = 0; n <= end; n++) {
        // Of its own, so that a byte past its end is somebody else's.
        std::vector<char> cut(text.begin(), text.begin() + long(n));
        hd_diag *diag = hd_diag_create();
        hd_machine machine = HD_EMPTY(hd_machine);
        hd_message message = HD_EMPTY(hd_message);

        EXPECT_EQ(hd_machine_parse("m.json", cut.data(), n, diag, &machine),
                  HD_ERROR_INVALID)
            << n;
        ASSERT_TRUE(hd_diag_message(diag, 0, &message));
        EXPECT_GT(message.line, 0);
        EXPECT_STREQ(message.file, "m.json");
        hd_diag_destroy(diag);
    }
    for (int i = 0; i < 2000; i++) {
        std::string other = text;

        other[random() % other.size()] = char(random());
        Read read = Parse(other);
        EXPECT_EQ(read.status == HD_OK, read.said.empty()) << other;
    }
}

TEST(MachineText, SaysWhatIsWrongWithItsLineKeyValueAndLimits)
{
    struct Case {
        const char *from, *to, *want;
    } cases[] = {
        {"\"hop\": 1.2e-05", "\"hop\": 2", "hop is 2; it lies between 0 and 1"},
        {"\"hop\": 1.2e-05", "\"hop\": 1e999", "hop is inf; it lies between"},
        {"\"hop\": 1.2e-05", "\"hop\": nan", "hop is not a number"},
        {"\"hop\": 1.2e-05", "\"hop\": 01", "hop is not a number"},
        {"\"hop\": 1.2e-05", "\"hop\": .5", "hop is not a number"},
        {"\"hop\": 1.2e-05", "\"hop\": [1]", "hop is not a number"},
        {"\"hop\": 1.2e-05", "\"hop\": 0x1", "not JSON, from byte"},
        {"\"units\": 99", "\"units\": 1.5", "units is 1.5; it is a whole"},
        {"\"units\": 99", "\"unit\": 99",
         "unknown key 'unit'; did you mean "
         "'units'?"},
        {"\"units\": 99", "\"units\": 99, \"units\": 1", "units stands twice"},
        {"\"f32\": 5.1e13", "\"f64\": 1", "matmul lacks f32"},
        {"\"f32\": 5.1e13", "\"event\": 1", "matmul.event: no such dtype"},
        {"\"f32\": 5.1e13", "\"f32\": 0.5", "matmul.f32 is 0.5; it lies"},
        {"\"name\": \"8", "\"name\": 8, \"x\": \"", "name is not a string"},
        {"\"name\": \"8", "\"name\": \"\\n", "an escape other than"},
        {"\"name\": \"8", "\"name\": \"\n", "not JSON"},
    };
    std::string text = "{\"name\": \"8 x H200\",\n";

    for (const char *line :
         {"\"ranks_per_node\": 8", "\"processors\": 0", "\"issue\": 1e-6",
          "\"launch\": 1e-6", "\"memory\": 4e12",
          "\"matmul\": {\"f32\": 5.1e13}", "\"units\": 99", "\"tile_m\": 128",
          "\"tile_n\": 128", "\"hop\": 1.2e-05", "\"copy_latency\": 2e-6",
          "\"copy_bandwidth\": 4e11", "\"link\": 3e11", "\"collision\": 0.6",
          "\"collective_latency\": 2e-5", "\"collective_bandwidth\": 3e11",
          "\"collective_units\": 0.1", "\"network_latency\": 1e-5"})
        text += std::string("  ") + line + ",\n";
    text += "  \"network_bandwidth\": 5e10\n}\n";
    ASSERT_EQ(Parse(text).status, HD_OK) << Parse(text).said;
    EXPECT_EQ(Parse(text).machine.reduction_latency, 2e-5);
    for (const Case &c : cases) {
        std::string wrong = text;
        size_t at = wrong.find(c.from);

        ASSERT_NE(at, std::string::npos) << c.from;
        wrong.replace(at, strlen(c.from), c.to);
        Read read = Parse(wrong);
        EXPECT_EQ(read.status, HD_ERROR_INVALID) << c.to;
        EXPECT_NE(read.said.find(c.want), std::string::npos)
            << "want: " << c.want << "\ngot:  " << read.said;
    }
    EXPECT_NE(Parse("{").said.find("m.json:1:2: error: not JSON"),
              std::string::npos);
    EXPECT_NE(Parse("").said.find("a machine is a JSON object"),
              std::string::npos);
    EXPECT_NE(Parse("{}").said.find("ranks_per_node is missing"),
              std::string::npos);
    EXPECT_NE(Parse(text + "}").said.find("m.json:22:1: error: not JSON"),
              std::string::npos)
        << Parse(text + "}").said;
}

TEST(MachineText, ANameIsCutBetweenCharactersAndIsTheFilesWithoutOne)
{
    std::mt19937_64 random(Seed());
    std::string text = Draw(random).text;
    size_t at = text.find(", \"name\"");
    std::string without = text.substr(0, at) + "}";
    std::string longer = text.substr(0, at) + ", \"name\": \"" +
                         std::string(62, 'x') + "\xc3\xa9\xc3\xa9\"}";

    EXPECT_STREQ(Parse(without).machine.name, "m.json");
    EXPECT_EQ(Parse(longer).machine.name, std::string(62, 'x'));
}

// Machines of the kind that hd_machine_parse makes.
TEST(MachineText, WhatIsPrintedIsReadBackAlike)
{
    std::mt19937_64 random(Seed());

    for (int i = 0; i < 50; i++) {
        Read read = Parse(Draw(random).text);
        char *text = nullptr;

        ASSERT_EQ(read.status, HD_OK) << read.said;
        ASSERT_EQ(hd_machine_print(&read.machine, nullptr, &text), HD_OK);
        Read again = Parse(text);
        EXPECT_EQ(again.status, HD_OK) << text << again.said;
        EXPECT_EQ(memcmp(&again.machine, &read.machine, sizeof read.machine), 0)
            << text;
        hd_free(text);
    }
    hd_machine machine = HD_EMPTY(hd_machine);
    char *text = nullptr;

    hd_machine_default(&machine);
    snprintf(machine.name, sizeof machine.name, "\"\\\n");
    ASSERT_EQ(hd_machine_print(&machine, nullptr, &text), HD_OK);
    EXPECT_STREQ(Parse(text).machine.name, "\"\\?");
    EXPECT_NE(std::string(text).find("\n  \"launch\": 2.5e-06,\n"),
              std::string::npos)
        << text;
    hd_free(text);
    machine.link = -1;
    EXPECT_EQ(hd_machine_print(&machine, nullptr, &text), HD_ERROR_ARGUMENT);
}
