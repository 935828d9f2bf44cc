// The simulator on a machine of round numbers, against times worked out by
// hand.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <heddle/simulate.h>

#include "tests/unit/program.h"
#include "tests/words.h"
#include "tiles/choose.h"

namespace
{

// A byte takes a second to travel, an element-wise byte a second to touch.
hd_machine Round()
{
    hd_machine m = HD_EMPTY(hd_machine);

    m.ranks_per_node = 4;
    m.memory = 1;
    m.matmul[HD_DTYPE_F32] = 1;
    m.copy_bandwidth = m.link = m.collective_bandwidth = 1;
    m.network_bandwidth = 0.5;
    m.collision = 0.5;
    return m;
}

struct Simulated {
    hd_simulation *simulation = nullptr;
    hd_prediction p = HD_EMPTY(hd_prediction);
    Program program;
    hd_status status;

    explicit Simulated(const std::string &text,
                       const hd_machine &machine = Round(),
                       const char *axes = nullptr)
        : program(text)
    {
        EXPECT_EQ(program.status, HD_OK) << program.Said();
        hd_check_options check = hd_check_defaults();
        hd_simulate_options options = hd_simulate_defaults();

        check.axes = options.axes = axes;
        options.machine = &machine;
        EXPECT_EQ(hd_check(program.module, &check, program.diag), HD_OK)
            << program.Said();
        status = hd_simulate_over(program.module, &options, program.diag,
                                  &simulation);
        if (status == HD_OK)
            hd_simulation_predict(simulation, &p);
    }
    Simulated(const Simulated &) = delete;
    Simulated &operator=(const Simulated &) = delete;
    ~Simulated()
    {
        hd_simulation_destroy(simulation);
    }
    void Measure(const double *times)
    {
        hd_simulation_measure(simulation, times);
        hd_simulation_predict(simulation, &p);
    }
    hd_interval At(int64_t i) const
    {
        hd_interval v = HD_EMPTY(hd_interval);

        hd_simulation_interval(simulation, i, &v);
        return v;
    }
};

TEST(Simulation, ATempTakesMemoryOnTheRanksThatNameIt)
{
    Simulated s("host program apart mesh pp=2 in %x : u8[3] out %y : u8[3] "
                "temp %a : u8[3] temp %b : u8[3] temp %c : u8[3] { "
                "if pp == 0 { %a = copy %x %y = copy %a } else { "
                "%b = copy %x %c = copy %b %y = copy %c } }");

    EXPECT_DOUBLE_EQ(s.p.memory, 12); // not 15: rank 1 has no %a
}

// The memory of attention to blocks of keys, of 5 x 3 x 2 f32 each.
double MemoryOfBlocks(int ranks, const hd_lower_options &options)
{
    std::string all = std::to_string(ranks);
    Program p("tensor program blocks mesh tp=" + all +
              " in %q : f32[size tp @tp, 1, 5, 3] "
              "in %k : f32[size tp @tp, 1, 5, 3] "
              "in %v : f32[size tp @tp, 1, 5, 3] "
              "out %o : f32[size tp @tp, 1, 5, 3] "
              "out %l : f32[size tp @tp, 1, 5] "
              "temp %kg : f32[size tp @stream, 1, 5, 3] "
              "temp %vg : f32[size tp @stream, 1, 5, 3] "
              "{ %kg = set %k %vg = set %v "
              "%o, %l = attention %q, %kg, %vg blocks }");

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_lower(p.module, &options, nullptr, nullptr, p.diag), HD_OK)
        << p.Said();
    std::string text = p.Print();

    return Simulated(text.substr(text.find('\n') + 1)).p.memory;
}

// One rank's block lies in its arguments already; with --copy-own it does not
// count. A ring and the others have all blocks.
TEST(Simulation, BlocksOfKeysThatArriveByTurnsTakeSlotsAlone)
{
    const double block = 2 * 5 * 3 * 4, arguments = 2 * block + 5 * 4;

    for (int ranks : {1, 2, 3, 4, 8})
        for (int streams = 1; streams <= 4; streams++)
            for (int kind = 0; kind < 4; kind++) {
                hd_lower_options options = RingDefaults();
                bool beside = kind % 2 != 0, copies = kind / 2 != 0;

                options.asked = 0;
                options.transfer = HD_TRANSFER_DIRECT;
                options.streams = streams;
                options.comm_stream = beside;
                options.copy_own = copies;
                int slots = std::min(std::max(streams, beside ? 2 : 1),
                                     ranks - (copies ? 0 : 1));
                EXPECT_DOUBLE_EQ(MemoryOfBlocks(ranks, options),
                                 arguments + slots * block)
                    << ranks << " ranks, " << streams << " streams, " << kind;
                options.transfer = HD_TRANSFER_RING;
                EXPECT_DOUBLE_EQ(MemoryOfBlocks(ranks, options),
                                 arguments +
                                     (ranks > 1 || copies ? ranks : 0) * block);
            }
}

// How long each is data, so that they are taken to share the rows evenly.
TEST(Simulation, SequencesCostAsMuchAsAsManyOfOneLength)
{
    hd_machine fast = Round();

    fast.memory = 1e9;
    for (const char *mask : {"", " causal 0", " causal 1 window 2"}) {
        auto time = [&](const std::string &of, const std::string &groups) {
            return Simulated(
                       "host program attends in %n : i32[3] in %q : f32[" + of +
                           ", 8] out %o : f32[" + of + ", 8] out %l : f32[" +
                           of + "] { %o, %l = attention %q, %q, %q" + groups +
                           mask + " }",
                       fast)
                .p.time;
        };

        EXPECT_DOUBLE_EQ(time("4, 15", " groups %n"), time("3, 4, 5", ""));
        EXPECT_GT(time("4, 15", ""), time("4, 15", " groups %n"));
    }
}

// How many rows each has is data: here half a tile more than it fills.
TEST(Simulation, GroupsCostHalfATileEachAndTheirMatricesAsABatch)
{
    hd_machine machine = Round();

    machine.memory = 1e30;
    machine.units = 6;
    machine.tile_m = machine.tile_n = 4;
    auto time = [&](const std::string &program) {
        return Simulated("host program p in %n : i32[3] " + program, machine)
            .p.time;
    };
    double rows = time("in %x : f32[24, 8] in %w : f32[3, 8, 5] "
                       "out %y : f32[24, 5] { %y = matmul %x, %w groups %n }");
    double matrices = time("in %x : f32[24, 8] in %g : f32[24, 5] "
                           "out %y : f32[3, 8, 5] "
                           "{ %y = matmul %x, %g ta groups %n }");

    EXPECT_DOUBLE_EQ(rows, time("in %x : f32[30, 8] in %w : f32[8, 5] "
                                "out %y : f32[30, 5] { %y = matmul %x, %w }"));
    EXPECT_DOUBLE_EQ(matrices,
                     time("in %x : f32[3, 8, 8] in %g : f32[3, 8, 5] "
                          "out %y : f32[3, 8, 5] { %y = matmul %x, %g }"));
}

TEST(Simulation, StepsOfAStreamFollowEachOther)
{
    Simulated s("host program chain in %x : u8[3] out %y : u8[3] "
                "temp %t : u8[3] { %t = copy %x %y = copy %t }");

    EXPECT_DOUBLE_EQ(s.p.time, 12); // 3 bytes in and 3 out, twice
    EXPECT_DOUBLE_EQ(s.p.compute, 12);
    EXPECT_DOUBLE_EQ(s.At(1).start, 6);
    EXPECT_DOUBLE_EQ(s.p.memory, 9);
    EXPECT_TRUE(s.At(0).critical && s.At(1).critical);
}

TEST(Simulation, StepsTakeAsLongAsWhatTheyHaveOfADimension)
{
    // Three rows, then one; rank 1 has the one alone.
    Simulated blocks("host program blocks in %x : u8[4] out %y : u8[4] "
                     "{ for i in 0..2 { %y[i * 3..i + 3] = "
                     "copy %x[i * 3..i + 3] } }");

    EXPECT_DOUBLE_EQ(blocks.p.time, 8);
    EXPECT_DOUBLE_EQ(blocks.At(1).start, 6);

    Simulated ranks("host program ranks mesh tp=2 in %x : u8[5@tp] "
                    "out %y : u8[5@tp] "
                    "{ %y[tp of 2] = copy %x[tp of 2] }");

    EXPECT_DOUBLE_EQ(ranks.At(0).end, 6);
    EXPECT_DOUBLE_EQ(ranks.At(1).end, 4);

    // More lengths than are kept.
    Simulated many("host program many in %x : u8[100] out %y : u8[100, 100] "
                   "{ for i in 0..100 { %y[i, 0..i + 1] = copy %x[0..i + 1] "
                   "%y[i, i + 1..100] = fill value 0 } }");

    EXPECT_DOUBLE_EQ(many.p.compute, 2 * 5050 + 4950);
}

TEST(Simulation, WhatWorksAtTheSameTimeSharesTheProcessor)
{
    // 2 bytes of work and 6: both are at half speed until 4, on a processor of
    // a rank's own and where ranks share one.
    for (int processors : {0, 1}) {
        hd_machine m = Round();

        m.processors = processors;
        Simulated s("host program share streams 2 in %x : u8[4] "
                    "out %y : u8[4] { fork on stream 0 { %y[0] = copy %x[0] } "
                    "on stream 1 { for i in 1..4 { %y[i] = copy %x[i] } } "
                    "join }",
                    m);

        EXPECT_DOUBLE_EQ(s.p.time, 8);
        EXPECT_DOUBLE_EQ(s.At(1).end, 4);
        EXPECT_DOUBLE_EQ(s.At(2).end, 4);
        EXPECT_DOUBLE_EQ(s.At(3).end, 6);
    }
}

TEST(Simulation, AMatmulOfFewTilesLeavesTheProcessorIdle)
{
    hd_machine m = Round();

    m.tile_m = m.tile_n = 2;
    m.memory = 1e30;
    // Six tiles of a 4 x 6 result: their own time, or that of eight.
    for (int units : {4, 8}) {
        m.units = units;
        Simulated s("host program tiles in %a : f32[4, 3] in %b : f32[3, 6] "
                    "out %c : f32[4, 6] { %c = matmul %a, %b }",
                    m);
        EXPECT_DOUBLE_EQ(s.p.time, (units == 4 ? 6 : 8) * 2 * 2 * 2 * 3);
    }
}

// 4 x 6 numbers are written, 12 and 18 read; and as many as are written where
// the product is added to a matrix or to what stands there.
TEST(Simulation, AMatmulReadsWhatItIsAddedTo)
{
    hd_machine m = Round();

    m.matmul[HD_DTYPE_F32] = 1e9;
    for (const char *to : {"", " bias %r", " accumulate"}) {
        Simulated s("host program sum in %a : f32[4, 3] in %b : f32[3, 6] "
                    "in %r : f32[4, 6] inout %c : f32[4, 6] "
                    "{ %c = matmul %a, %b" +
                        std::string(to) + " }",
                    m);
        EXPECT_DOUBLE_EQ(s.p.time, (54 + (*to != 0 ? 24 : 0)) * 4 * 1.2) << to;
    }
}

// A result of the operands' dtype; what a wider one has more, three times.
TEST(Simulation, AMatmulEndsWithWhatItsResultTakes)
{
    struct {
        const char *operands, *to;
        double bytes;
    } const cases[] = {{"f32", "", 24 * 4},
                       {"f32", " accumulate", 24 * 4 + 24 * 4},
                       {"bf16", "", 24 * 2 + 3 * 24 * 2},
                       {"bf16", " accumulate", 24 * 2 + 3 * 24 * 6}};

    for (const auto &c : cases) {
        hd_machine m = Round();
        const std::string dtype = c.operands;

        m.matmul[HD_DTYPE_F32] = 0.1;
        Simulated s("host program end in %a : " + dtype +
                        "[4, 3] in %b : " + dtype +
                        "[3, 6] inout %c : f32[4, 6] "
                        "{ %c = matmul %a, %b" +
                        c.to + " }",
                    m);
        EXPECT_NEAR(s.p.time, 2 * 4 * 6 * 3 / 0.1 + c.bytes, 1e-9)
            << dtype << c.to;
    }
}

// 24 numbers are read and 9 written: alone at 1 / 1.2 of the memory's rate, two
// at all of it.
TEST(Simulation, MatmulsThatFetchFillTheMemoryTogether)
{
    for (int n : {1, 2}) {
        hd_machine m = Round();
        const std::string each = std::to_string(n);

        m.matmul[HD_DTYPE_F32] = 1e9;
        Simulated s("host program fetch streams 2 in %a : f32[3, 4] "
                    "in %b : f32[4, 3] out %c : f32[" +
                        each + ", 3, 3] { fork for i in 0.." + each +
                        " { on stream i { %c[i] = matmul %a, %b } } join }",
                    m);
        EXPECT_NEAR(s.p.time, (n == 1 ? 1.2 : 2) * 33 * 4, 1e-6);
    }
}

// A step of a loop stores all, the next one adds to %a, of 12 f32.
TEST(Simulation, GradientsReadWhatTheyAreAddedToButNoZeros)
{
    hd_machine machine = Round();

    machine.matmul[HD_DTYPE_F32] = 1e9;
    Simulated s("host program p in %q : f32[1, 4, 3] in %k : f32[2, 1, 4, 3] "
                "in %l : f32[1, 4] out %a : f32[1, 4, 3] "
                "out %b : f32[2, 1, 4, 3] out %c : f32[2, 1, 4, 3] "
                "{ %a = fill value 0 %b = fill value 0 %c = fill value 0 "
                "for i in 0..2 { %a, %b[i], %c[i] = attention_grad "
                "%q, %k[i], %k[i], %q, %l, %q accumulate } }",
                machine);

    EXPECT_DOUBLE_EQ(s.At(0).end - s.At(0).start, 4 * (8 * 12 + 4));
    EXPECT_DOUBLE_EQ(s.At(1).end - s.At(1).start, 4 * (9 * 12 + 4));
}

TEST(Simulation, MatmulsOfFewTilesFillTheProcessorTogether)
{
    hd_machine m = Round();

    m.tile_m = m.tile_n = 2;
    m.memory = 1e30;
    // Each has 2 of 8 tiles, and takes as long as all 8: 192 s. Four of them
    // fill the processor, eight share it.
    m.units = 8;
    for (int n : {1, 4, 8}) {
        Simulated s("host program small streams " + std::to_string(n) +
                        " in %a : f32[2, 3] in %b : f32[3, 4] out %c : f32[" +
                        std::to_string(n) + ", 2, 4] { fork for i in 0.." +
                        std::to_string(n) +
                        " { on stream i { %c[i] = matmul %a, %b } } join }",
                    m);
        EXPECT_DOUBLE_EQ(s.p.time, n == 8 ? 2 * 192 : 192);
    }
}

const char *const kExchange =
    "host program exchange mesh tp=2 in %x : u8[5] out %y : u8[5] shared "
    "{ group { send %x to 1 - tp %y = recv from 1 - tp } }";

TEST(Simulation, LinksCarryBothWaysAtOnce)
{
    hd_machine m = Round();

    m.hop = 2;
    m.copy_latency = 1;
    Simulated s(kExchange, m);
    EXPECT_DOUBLE_EQ(s.p.time, 3 + 5);
    EXPECT_DOUBLE_EQ(s.p.bytes_copied, 10);
    EXPECT_DOUBLE_EQ(s.p.transfer, 8);
    EXPECT_EQ(s.At(0).peer, 1);
    EXPECT_EQ(s.At(0).meets, 1);
    EXPECT_STREQ(s.At(1).op, "recv");
}

// Each rank's first transfer is behind that, the second one no longer, and no
// reduction.
TEST(Simulation, RanksMeetOnceInARun)
{
    const std::string text =
        "host program twice mesh tp=2 in %x : u8[5] temp %y : u8[2, 5] shared "
        "{ for i in 0..2 { group { send %x to 1 - tp "
        "%y[i] = recv from 1 - tp } } }";
    hd_machine m = Round();

    m.hop = 3;
    m.run = 7;
    EXPECT_DOUBLE_EQ(Simulated(text, m).p.time, 7 + 2 * (3 + 5));
    m.run = 0;
    EXPECT_DOUBLE_EQ(Simulated(text, m).p.time, 2 * (3 + 5));
    m.run = 7;
    m.collective_latency = m.reduction_latency = 2;
    Simulated s("host program gather mesh tp=2 in %x : u8[2@tp, 5] "
                "out %y : u8[2, 5] shared { %y = all_gather %x[tp] }",
                m);
    EXPECT_DOUBLE_EQ(s.p.time, 7 + 2 + 5);
    EXPECT_DOUBLE_EQ(
        Simulated("host program sum mesh tp=2 in %x : f32[5] shared "
                  "out %y : f32[5] { %y = all_reduce %x }",
                  m)
            .p.time,
        2 + 5 * 4);
}

TEST(Simulation, BetweenNodesTheNetworkCounts)
{
    hd_machine m = Round();

    m.ranks_per_node = 1;
    m.network_latency = 4;
    Simulated s(kExchange, m);
    EXPECT_DOUBLE_EQ(s.p.time, 4 + 10);
    EXPECT_DOUBLE_EQ(s.p.bytes_networked, 10);
    EXPECT_DOUBLE_EQ(s.p.bytes_copied, 0);
}

TEST(Simulation, SeveralPeersAtOnceCollide)
{
    // Rank 0 receives 4 bytes from each of two: half a link's share for both.
    Simulated s("host program fan mesh tp=3 in %x : u8[4] "
                "temp %y : u8[2, 4] shared { if tp == 0 { group { "
                "%y[0] = recv from 1 %y[1] = recv from 2 } } "
                "else { send %x to 0 } }");

    EXPECT_DOUBLE_EQ(s.p.time, 8 / 0.5);
}

TEST(Simulation, FlowsOfOnePeerShareItsLinkWithoutCollisions)
{
    // Two halves at once take as long as the whole.
    Simulated s("host program halves mesh tp=2 in %x : u8[2, 4] "
                "out %y : u8[2, 4] shared { group { "
                "for c in 0..2 { send %x[c] to 1 - tp "
                "%y[c] = recv from 1 - tp } } }");

    EXPECT_DOUBLE_EQ(s.p.time, 8);
}

TEST(Simulation, CollectivesWaitForAllAndShareTheirLinks)
{
    hd_machine m = Round();

    m.collective_latency = 3;
    // Rank 1 comes late, after 10 bytes of work. Then 2 of 3 pieces of 2 bytes.
    Simulated s("host program late mesh tp=3 in %x : u8[2] in %w : u8[5] "
                "temp %t : u8[5] out %y : u8[3, 2] shared "
                "{ if tp == 1 { %t = copy %w } %y = all_gather %x }",
                m);
    EXPECT_DOUBLE_EQ(s.p.time, 10 + 3 + 4);
    EXPECT_DOUBLE_EQ(s.p.bytes_gathered, 12);
    EXPECT_TRUE(s.At(1).critical);
    EXPECT_DOUBLE_EQ(s.At(0).start, 10);
}

// Of two axes on two streams, of which NCCL orders the one behind the other.
TEST(Simulation, CallsOfNcclFollowEachOtherOnWhicheverStreamsAndAxes)
{
    const char *text = "host program two mesh dp=2, tp=2 streams 2 "
                       "in %x : u8[10] in %y : u8[30] "
                       "out %a : u8[2, 10] shared out %b : u8[2, 30] shared "
                       "{ fork on stream 0 { %a = all_gather@dp %x } "
                       "on stream 1 { %b = all_gather@tp %y } join }";
    hd_machine m = Round();

    m.collective_latency = 3;
    m.link = 1000;
    EXPECT_DOUBLE_EQ(Simulated(text, m).p.time, 3 + 20 + 20);
    EXPECT_DOUBLE_EQ(Simulated(text, m, "dp=nccl").p.time, 3 + 20 + 20);
    Simulated s(text, m, "dp=nccl,tp=nccl");
    EXPECT_DOUBLE_EQ(s.p.time, 3 + 10 + 3 + 30);
    EXPECT_DOUBLE_EQ(s.p.transfer, s.p.time);
    EXPECT_DOUBLE_EQ(s.At(1).end, 13);
    EXPECT_DOUBLE_EQ(s.At(2).start, 13);
    // Of one axis as well.
    EXPECT_DOUBLE_EQ(Simulated("host program one mesh tp=2 streams 2 "
                               "in %x : u8[10] in %y : u8[30] "
                               "out %a : u8[2, 10] shared "
                               "out %b : u8[2, 30] shared "
                               "{ fork on stream 0 { %a = all_gather %x } "
                               "on stream 1 { %b = all_gather %y } join }",
                               m, "tp=nccl")
                         .p.time,
                     46);
}

// Of a group each collective is a call, what is sent and received one more, and
// copies come last.
TEST(Simulation, AGroupOverNcclIsOneCallAfterTheOther)
{
    hd_machine m = Round();

    m.link = 1000;
    Simulated s("host program g mesh dp=2, tp=2 in %x : u8[10] "
                "out %a : u8[2, 10] shared out %b : u8[10] shared "
                "out %c : u8[2, 10] shared { group { "
                "%c = all_gather@tp %x send@dp %x to 1 - dp "
                "%b = recv@dp from 1 - dp %a = all_gather@dp %x } }",
                m, "dp=nccl");
    EXPECT_DOUBLE_EQ(s.At(3).end, 10);
    EXPECT_DOUBLE_EQ(s.At(1).start, 10);
    EXPECT_DOUBLE_EQ(s.At(2).end, 20);
    EXPECT_DOUBLE_EQ(s.At(0).start, 20);
    EXPECT_DOUBLE_EQ(s.p.time, 30);
}

// Its stream goes on with its recv, not at its start.
TEST(Simulation, OverNcclNoSendIsDeferred)
{
    const char *text =
        "host program d mesh tp=2 in %x : u8[10] in %w : u8[5] "
        "out %z : u8[5] temp %b : u8[10] shared temp %e : event[1] "
        "{ if tp == 0 { send %x to 1 done %e[0] %z = copy %w "
        "wait %e[0] } else { %b = recv from 0 %z = copy %w } }";
    hd_machine m = Round();

    EXPECT_DOUBLE_EQ(Simulated(text, m).At(1).start, 0);
    EXPECT_DOUBLE_EQ(Simulated(text, m, "tp=nccl").At(1).start, 10);
}

hd_tiles_job Job(int products, double m, double n, double k)
{
    hd_tiles_job job = {};

    job.products = products;
    for (int i = 0; i < products; i++)
        job.work[i] = {m,
                       n,
                       k,
                       1,
                       true,
                       false,
                       true,
                       int(n) % 8 == 0,
                       {true, false},
                       false,
                       false};
    return job;
}

double Seconds(const hd_tiles_job &job, int first, int n)
{
    hd_tiles_choice choice = {};

    EXPECT_EQ(hd_tiles_pick(&job, 132, 1, &choice), 1);
    return hd_tiles_cycles(&job, first, n, &choice) / HD_TILES_HERTZ;
}

hd_machine Shipped()
{
    hd_machine machine = HD_EMPTY(hd_machine);

    hd_machine_default(&machine);
    return machine;
}

// One that has tiles for a part of the processors leaves the others to another
// one's.
TEST(Simulation, AProductTakesAsLongAsItsTiles)
{
    const hd_tiles_job job = Job(1, 640, 640, 1024);
    hd_tiles_choice choice = {};
    hd_machine m = Round();

    m.memory = 1e30;
    m.multiprocessors = 132;
    m.matmul[HD_DTYPE_BF16] = Shipped().matmul[HD_DTYPE_BF16];
    ASSERT_EQ(hd_tiles_pick(&job, 132, 1, &choice), 1);
    const double alone = Seconds(job, 0, 1);
    const double full = 2. * 640 * 640 * 1024 / m.matmul[HD_DTYPE_BF16];
    const double busy =
        std::max(hd_tiles_busy(&job.work[0], &choice), full / alone);
    ASSERT_LT(full, alone);
    ASSERT_LT(busy, 1);
    for (int n : {1, 2, 4}) {
        Simulated s("host program p streams 4 in %x : bf16[640, 1024] "
                    "in %w : bf16[1024, 640] temp %y : bf16[4, 640, 640] "
                    "{ fork for i in 0.." +
                        std::to_string(n) +
                        " { on stream i { %y[i] = matmul %x, %w } } join }",
                    m);

        EXPECT_NEAR(s.p.time, alone * std::max(1., n * busy), 1e-12) << n;
    }
}

// Each product reads the second operand again, of tiles that are done together
// all do once.
TEST(Simulation, AProductOfFewRowsTakesAsLongAsItsOperands)
{
    hd_machine m = Shipped();

    m.launch = m.issue = m.event = 0;
    m.memory = 1e12;
    for (const std::string word : {"", "launch "}) {
        const std::string open = !word.empty() ? "{ " : "",
                          close = !word.empty() ? "} " : "";
        Simulated s("host program few streams 1 in %x : bf16[2, 64, 4096] "
                    "in %w : bf16[8192, 4096] out %y : bf16[2, 64, 8192] "
                    "{ fork on stream 0 { " +
                        word + open +
                        "for i in 0..2 { %y[i] = matmul %x[i], %w tb } " +
                        close + "} join }",
                    m);
        const double once = 2 * (64. * 4096 + 8192. * 4096 + 64. * 8192);
        const double twice = 2 * once;
        const double together = twice - 2 * 8192. * 4096;

        EXPECT_NEAR(s.p.time, 1.2e-12 * (word.empty() ? twice : together),
                    1e-12)
            << word;
    }
}

// Tiles of products follow each other; where they take none, or the device has
// no such kernels, products do.
TEST(Simulation, ProductsOfALaunchAreTilesOfOneKernel)
{
    const std::string body = "[2, 640, 1024] in %w : bf16[1024, 640] "
                             "out %y : bf16[2, 640, 640] { fork on stream 0 { "
                             "launch { for i in 0..2 "
                             "{ %y[i] = matmul %x[i], %w } } } join }";
    const std::string text = "host program l streams 1 in %x : bf16";
    hd_machine m = Round();
    const hd_tiles_job job = Job(2, 640, 640, 1024);

    m.memory = 1e30;
    m.matmul[HD_DTYPE_BF16] = 1e12;
    const double apart = Simulated(text + body, m).p.time;
    EXPECT_DOUBLE_EQ(apart, 2 * 2. * 640 * 640 * 1024 / 1e12);
    m.multiprocessors = 132;
    m.matmul[HD_DTYPE_BF16] = Shipped().matmul[HD_DTYPE_BF16];
    const double together = Simulated(text + body, m).p.time;
    EXPECT_NEAR(together, Seconds(job, 0, 2), 1e-12);
    // Neither product has tiles for all processors.
    EXPECT_LT(together, 2 * Seconds(job, 0, 1));
    m.matmul[HD_DTYPE_BF16] *= 1.25; // all products are faster
    EXPECT_NEAR(Simulated(text + body, m).p.time, together / 1.25, 1e-12);
    const std::string f32 = Replaced(text + body, "bf16", "f32");
    EXPECT_DOUBLE_EQ(Simulated(f32, m).p.time, 2 * 2. * 640 * 640 * 1024);
}

// One whose rows come later begins then, with all processors.
TEST(Simulation, AProductOfALaunchThatWaitsBeginsAnew)
{
    hd_machine m = Round();
    hd_tiles_job job = Job(2, 128, 128, 256);

    job.late[1] = true;
    m.matmul[HD_DTYPE_BF16] = Shipped().matmul[HD_DTYPE_BF16];
    m.memory = 1e30;
    m.multiprocessors = 132;
    Simulated gathered(
        "host program g mesh tp=2 streams 2 in %a : bf16[2@tp, 128, 256] "
        "in %w : bf16[128, 256] temp %g : bf16[2, 128, 256] shared "
        "out %c : bf16[2, 128, 128] temp %hop : event[1] { fork "
        "on stream 1 { group { send %a[tp] to 1 - tp "
        "%g[1 - tp] = recv from 1 - tp } %hop[0] = record } "
        "on stream 0 { launch { %c[tp] = matmul %a[tp], %w tb wait %hop[0] "
        "%c[1 - tp] = matmul %g[1 - tp], %w tb } } join }",
        m);
    EXPECT_NEAR(gathered.p.time - 128 * 256 * 2, Seconds(job, 1, 1), 1e-9);
}

// As kernels on one stream; on two, with words around them.
TEST(Simulation, ReductionsInANodeHaveALatencyOfTheirOwn)
{
    const std::string sum =
        "host program sum mesh tp=2 streams 2 "
        "in %x : f32[2] shared out %y : f32[2] out %z : f32[2] { ";
    const std::string second = " } on stream 1 { %z = all_reduce %x } join }";
    hd_machine m = Round();

    m.collective_latency = 30;
    m.reduction_latency = 3;
    m.hop = 5;
    // Eight bytes come to each.
    Simulated one(sum + "%y = all_reduce %x %z = all_reduce %x }", m);
    EXPECT_DOUBLE_EQ(one.p.time, 2 * (3 + 8));
    Simulated two(sum + "fork on stream 0 { %y = all_reduce %x" + second, m);
    EXPECT_DOUBLE_EQ(two.p.time, 3 + 5 + 2 * 8);
    m.collective_latency = 7;
    Simulated least(sum + "fork on stream 0 { %y = all_reduce %x" + second, m);
    EXPECT_DOUBLE_EQ(least.p.time, 7 + 2 * 8);
    m.collective_latency = 30;
    m.ranks_per_node = 1;
    m.network_latency = 4;
    m.network_bandwidth = 1;
    Simulated far(sum + "%y = all_reduce %x %z = all_reduce %x }", m);
    EXPECT_DOUBLE_EQ(far.p.time, 2 * (30 + 4 + 8));
}

TEST(Simulation, RanksFetchSharesOfALargeAllReduceOneAfterTheOther)
{
    hd_machine m = Round();
    const auto time = [&m](int ranks, const char *mega, bool apart) {
        const std::string text =
            "host program sum mesh tp=" + std::to_string(ranks) +
            " streams 2 in %x : u8[" + mega + ", 1048576] shared out %y : u8[" +
            mega + ", 1048576] out %z : " +
            "u8[1] in %s : u8[1] shared { fork on stream 0 { %y = all_reduce "
            "%x } on stream " +
            (apart ? "1" : "0") + " { %z = all_reduce %s } join }";
        return Simulated(text, m).p.time;
    };
    const auto by_copies = [&](int ranks, const char *mega, bool apart) {
        m.copy_latency = 0;
        m.hop = 1000;
        const double without = time(ranks, mega, apart);
        m.copy_latency = 7;
        return time(ranks, mega, apart) - without;
    };

    m.memory = m.link = m.collective_bandwidth = 1e9;
    m.collective_latency = m.reduction_latency = 1;
    // Of 12 MB four ranks save 18, of 4 MB 6; three ranks of 12 MB 8.
    EXPECT_EQ(by_copies(4, "12", true), 3 * 7);
    EXPECT_EQ(by_copies(4, "4", true), 0);
    EXPECT_EQ(by_copies(3, "12", true), 2 * 7);
    EXPECT_EQ(by_copies(2, "12", true), 0);
    // On one stream a kernel meets its peers, of up to 32 MB that come.
    EXPECT_EQ(by_copies(4, "12", false), 0);
    EXPECT_EQ(by_copies(4, "24", false), 3 * 7);
}

TEST(Simulation, TheRootOfAReduceReceivesWhatTheOthersBring)
{
    const char *const text =
        "host program reduces mesh tp=3 in %x : u8[4] temp %t : u8[4] shared "
        "out %y : u8[4] { %t = copy %x if tp == 1 { %y = reduce %t root 1 } "
        "else { reduce %t root 1 %y = copy %x } }";
    hd_machine m = Round();

    Simulated links(text, m);
    EXPECT_DOUBLE_EQ(links.p.time, 8 + 8 + 8); // 2 x 4 bytes come in
    EXPECT_DOUBLE_EQ(links.p.bytes_gathered, 8);
    // One of the ranks' processors copies, at the speed of one.
    m.processors = 3;
    Simulated processors(text, m);
    EXPECT_DOUBLE_EQ(processors.p.time, 8 + 8 + 8);
    // With one processor all copies of elements follow each other.
    m.processors = 1;
    Simulated one(text, m);
    EXPECT_DOUBLE_EQ(one.p.time, 3 * 8 + 8 + 2 * 8);
}

TEST(Simulation, OverlapIsTheShareOfTransfersThatIsComputedIn)
{
    // 4 s of transfer, 2 s of compute beside it.
    Simulated s("host program beside mesh tp=2 streams 1 in %x : u8[4] "
                "in %w : u8[1] out %y : u8[4] shared out %z : u8[1] "
                "{ fork on stream 0 { group { send %x to 1 - tp "
                "%y = recv from 1 - tp } } %z = copy %w join }");

    EXPECT_DOUBLE_EQ(s.p.time, 4);
    EXPECT_DOUBLE_EQ(s.p.overlap, 0.5);
}

TEST(Simulation, LinksAndTheNetworkDoNotShare)
{
    hd_machine m = Round();

    m.ranks_per_node = 2;
    // Rank 0 sends 4 bytes to rank 1 beside it, and 4 to rank 2 far away.
    Simulated s("host program ways mesh tp=3 in %x : u8[4] "
                "temp %y : u8[4] shared { if tp == 0 { group { "
                "send %x to 1 send %x to 2 } } "
                "else { %y = recv from 0 } }",
                m);

    EXPECT_DOUBLE_EQ(s.At(0).end, 4);
    EXPECT_DOUBLE_EQ(s.At(1).end, 8);
    EXPECT_DOUBLE_EQ(s.p.bytes_copied, 4);
    EXPECT_DOUBLE_EQ(s.p.bytes_networked, 4);
}

// Seconds that a collective of `ranks` takes, two ranks on a node and a quarter
// of a byte a second on the network of each.
double Across(const std::string &ranks, const std::string &code)
{
    hd_machine m = Round();

    m.ranks_per_node = 2;
    m.network_bandwidth = 0.25;
    m.network_latency = 4;
    m.collective_latency = 3;
    Simulated s("host program across mesh tp=" + ranks +
                    " in %x : u8[4, 2] in %w : u8[2] out %y : u8[" + ranks +
                    ", 2] shared { %y = " + code + " }",
                m);
    return s.p.time - 3 - 4;
}

TEST(Simulation, ACollectiveBetweenNodesUsesTheNetworksOfAllItsMembers)
{
    // Six bytes a rank, that two ranks bring in together.
    EXPECT_DOUBLE_EQ(Across("4", "all_gather %w"), 6 / 0.5);
    // Four of six bytes come from afar, each for one rank alone.
    EXPECT_DOUBLE_EQ(Across("4", "all_to_all %x"), 4 / 0.25);
    // Rank 2 is alone on its node: four bytes.
    EXPECT_DOUBLE_EQ(Across("3", "all_gather %w"), 4 / 0.25);
}

TEST(Simulation, TheHostIssuesOneStepAfterTheOther)
{
    hd_machine m = Round();

    m.issue = 10;
    m.memory = 1e30;
    Simulated s("host program issue in %x : u8[4] out %y : u8[4] "
                "{ for i in 0..4 { %y[i] = copy %x[i] } }",
                m);
    EXPECT_NEAR(s.p.time, 40, 1e-6);
    EXPECT_NEAR(s.p.wait, 40, 1e-6);
}

TEST(Simulation, FewProcessorsAreSharedByTheRanksOfANode)
{
    hd_machine m = Round();

    m.processors = 2;
    Simulated s("host program crowd mesh tp=4 in %x : u8[1] out %y : u8[1] "
                "{ %y = copy %x }",
                m);
    EXPECT_DOUBLE_EQ(s.p.time, 4); // 4 ranks x 2 s of work on 2 processors
}

TEST(Simulation, DeferredPutsOfAStreamTravelOneAfterTheOther)
{
    hd_machine m = Round();

    m.copy_latency = 3;
    for (bool get : {false, true}) {
        const std::string word = get ? " get" : "";
        Simulated s("host program later mesh tp=2 streams 2 in %x : u8[2, 4]" +
                        std::string(get ? " shared" : "") +
                        " out %y : u8[2, 4] shared temp %e : event[2] "
                        "{ fork for c in 0..2 { send %x[c] to 1 - tp" +
                        word +
                        " done %e[c] on stream c { %y[c] = recv from 1 - tp" +
                        word + " } } join wait %e[0] wait %e[1] }",
                    m);

        // A put is a copy on its stream, and begins when the one ahead is
        // done; a get is one on the receiver's.
        EXPECT_DOUBLE_EQ(s.At(2).end, get ? 3 + 8 : 3 + 4);
        EXPECT_DOUBLE_EQ(s.p.time, get ? 3 + 8 : 2 * (3 + 4));
    }
}

TEST(Simulation, ADeferredSendHoldsUpNobody)
{
    Simulated s("host program defer mesh tp=2 in %x : u8[4] in %w : u8[1] "
                "temp %y : u8[4] shared out %z : u8[1] temp %e : event[1] "
                "{ if tp == 0 { send %x to 1 done %e[0] } %z = copy %w "
                "if tp == 0 { wait %e[0] } else { %y = recv from 0 } }");

    EXPECT_DOUBLE_EQ(s.At(1).start, 0);
    EXPECT_DOUBLE_EQ(s.p.time, 2 + 4);
}

TEST(Simulation, MeasuredTimesTakeThePlaceOfPredictedOnes)
{
    Simulated s("host program chain in %x : u8[3] out %y : u8[3] "
                "temp %t : u8[3] { %t = copy %x %y = copy %t }");
    double times[] = {100, 101, 105, 107};

    s.Measure(times);
    EXPECT_DOUBLE_EQ(s.p.time, 7);
    EXPECT_DOUBLE_EQ(s.p.compute, 3);
    EXPECT_DOUBLE_EQ(s.p.wait, 4);
    EXPECT_DOUBLE_EQ(s.At(1).start, 5);
    EXPECT_TRUE(s.At(0).critical);
}

// Rank 0 comes to its recv at once, rank 1 to its send after 6 s of compute.
TEST(Simulation, WhatAMeasuredTransferWaitsForIsItsPartnersTime)
{
    Simulated s("host program late mesh tp=2 in %w : u8[1] temp %x : u8[1] "
                "temp %y : u8[1] shared { if tp == 0 { %y = recv from 1 } "
                "else { %x = copy %w send %x to 0 } }");
    double times[] = {0, 10, 0, 6, 6, 10};

    s.Measure(times);
    EXPECT_DOUBLE_EQ(s.p.time, 10);
    EXPECT_DOUBLE_EQ(s.p.compute, 6);
    EXPECT_DOUBLE_EQ(s.p.transfer, 4);
    EXPECT_DOUBLE_EQ(s.p.wait, 0);
}

TEST(Simulation, AMeasuredStepDoesNotWaitForASendThatItsStreamLeftBehind)
{
    Simulated s("host program defer mesh tp=2 in %x : u8[4] in %w : u8[1] "
                "temp %y : u8[4] shared out %z : u8[1] temp %e : event[1] "
                "{ if tp == 0 { send %x to 1 done %e[0] } %z = copy %w "
                "if tp == 0 { wait %e[0] } else { %y = recv from 0 } }");
    double times[] = {0, 9, 4, 12, 12, 12, 0, 4, 4, 9};

    s.Measure(times);
    EXPECT_DOUBLE_EQ(s.p.compute, 8);
    EXPECT_DOUBLE_EQ(s.p.transfer, 0);
    EXPECT_DOUBLE_EQ(s.p.wait, 4);
    EXPECT_FALSE(s.At(0).critical);
}

TEST(Simulation, AMeasuredMemberOfAGroupDoesNotWaitForTheOthers)
{
    Simulated s(kExchange);
    double times[] = {0, 10, 0, 12, 0, 12, 0, 10};

    s.Measure(times);
    EXPECT_DOUBLE_EQ(s.p.transfer, 12);
    EXPECT_FALSE(s.At(0).critical);
    EXPECT_TRUE(s.At(1).critical);
}

TEST(Simulation, AMeasuredWaitIsNoCompute)
{
    // The wait is woken a second after what it waits for.
    Simulated s("host program wait streams 1 in %x : u8[1] out %y : u8[1] "
                "temp %e : event[1] { fork on stream 0 { %y = copy %x "
                "%e[0] = record } wait %e[0] join }");
    double times[] = {0, 0, 0, 5, 5, 5, 0, 6, 6, 6};

    s.Measure(times);
    EXPECT_DOUBLE_EQ(s.p.compute, 5);
    EXPECT_DOUBLE_EQ(s.p.wait, 1);
}

TEST(Simulation, TheSameProgramTakesTheSameTime)
{
    hd_machine m = HD_EMPTY(hd_machine);
    hd_machine_default(&m);
    std::string text =
        "tensor program ring mesh tp=8 in %a : bf16[8@tp, 64, 64] "
        "in %w : bf16[64, 64] out %c : bf16[8@stream, 64, 64] "
        "temp %g : bf16[8@stream, 64, 64] "
        "{ %g = set %a %c = matmul %g, %w }";
    double first = 0;

    for (int i = 0; i < 3; i++) {
        Program p(text);
        hd_lower_options o = RingDefaults();
        hd_simulation *simulation = nullptr;
        hd_prediction prediction = HD_EMPTY(hd_prediction);

        ASSERT_EQ(hd_lower(p.module, &o, nullptr, nullptr, p.diag), HD_OK);
        ASSERT_EQ(hd_simulate(p.module, &m, p.diag, &simulation), HD_OK);
        hd_simulation_predict(simulation, &prediction);
        hd_simulation_destroy(simulation);
        first = i == 0 ? prediction.time : first;
        EXPECT_EQ(prediction.time, first);
    }
    EXPECT_GT(first, 7 * m.hop);
}

TEST(Simulation, WhatCannotBeSimulatedIsRefused)
{
    hd_machine m = Round();
    hd_simulation *simulation = nullptr;
    Program tensor("tensor program t in %x : f32[2] out %y : f32[2] "
                   "{ %y = relu %x }");
    Program stuck("host program h mesh tp=2 in %x : f32[2] "
                  "out %y : f32[2] shared "
                  "{ send %x to 1 - tp %y = recv from 1 - tp }");
    Program fine("host program h in %x : f32[2] out %y : f32[2] "
                 "{ %y = relu %x }");

    EXPECT_EQ(hd_simulate(tensor.module, &m, tensor.diag, &simulation),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(hd_simulate(stuck.module, &m, stuck.diag, &simulation),
              HD_ERROR_INVALID);
    EXPECT_NE(stuck.Said().find("h deadlocks"), std::string::npos);
    m.link = 0;
    EXPECT_EQ(hd_simulate(fine.module, &m, fine.diag, &simulation),
              HD_ERROR_ARGUMENT);
    EXPECT_NE(fine.Said().find("link is 0; it is above 0"), std::string::npos);
    m = Round();
    m.hop = INFINITY;
    EXPECT_EQ(hd_simulate(fine.module, &m, fine.diag, &simulation),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(simulation, nullptr);
}

} // namespace
