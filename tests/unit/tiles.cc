// Products in tiles of sm_90a: which are at hand, what they compile to, and
// that the blocks of each do every tile once.
#include <atomic>
#include <climits>
#include <cstdlib>
#include <random>
#include <thread>

#include "codegen/tiles.h"
#include "ir/product.h"
#include "tests/seed.h"
#include "tests/unit/kernels.h"
#include "tests/words.h"

namespace
{

enum { PROCESSORS = 132, ROOM = 64 };

// The step of a host program, and what is at hand for it.
class Tiles
{
  public:
    explicit Tiles(const std::string &body) : program_("host program p " + body)
    {
        EXPECT_EQ(program_.status, HD_OK) << program_.Said();
        if (program_.status != HD_OK ||
            hd_steps_collect(program_.module, 0, program_.diag, &steps_) !=
                HD_OK)
            return;
        EXPECT_TRUE(hd_tiles_map(Step())) << body;
        const hd_tiles_row row = hd_tiles_row_of(Step());
        choices.resize(ROOM);
        choices.resize(
            size_t(hd_tiles_choose(&row, PROCESSORS, ROOM, choices.data())));
    }
    Tiles(const Tiles &) = delete;
    Tiles &operator=(const Tiles &) = delete;
    ~Tiles()
    {
        hd_steps_free(&steps_);
    }
    const hd_step *Step(int i = 0) const
    {
        return &steps_.step[i];
    }
    const hd_module *Module() const
    {
        return program_.module;
    }
    // So many of its steps, in turns.
    hd_tiles_row Row(int products, int words, int64_t limit) const
    {
        hd_tiles_row row = {};

        row.products = products;
        row.words = words;
        row.limit = limit;

        for (int i = 0; i < products; i++)
            row.product[i] = Step(i % int(steps_.nsteps));
        return row;
    }
    Kernel Of(const hd_tiles_choice &choice) const
    {
        return Of(choice, Row(1, 0, 0));
    }
    Kernel Of(const hd_tiles_choice &choice, const hd_tiles_row &row) const
    {
        return Emit([&](hd_text *text, hd_kernel_grid *grid) {
            return hd_tiles_emit_choice(&row, &choice, text, grid);
        });
    }

    std::vector<hd_tiles_choice> choices;

  private:
    Program program_;
    hd_steps steps_ = {};
};

std::string Name(const hd_tiles_choice &c)
{
    return std::to_string(c.rows) + "x" + std::to_string(c.columns) + " in " +
           std::to_string(c.cluster_m) + "x" + std::to_string(c.cluster_n) +
           (c.split ? ", split" : "") + (c.alternate ? ", in turns" : "") +
           (c.sideways ? ", sideways" : "") + (c.turned ? ", turned" : "");
}

const std::vector<std::string> kForms = {
    "in %a : bf16[8192, 4096] in %b : bf16[7168, 4096] "
    "out %c : bf16[8192, 7168] { %c = matmul %a, %b tb }",
    "in %a : f16[900, 1024] in %b : f16[1024, 1000] in %v : f16[1000] "
    "out %c : f16[900, 1000] out %z : f16[900, 1000] "
    "{ %c = matmul %a, %b scale 0.5 bias %v act gelu aux %z }",
    "in %a : bf16[4, 4096, 2000] in %b : bf16[4, 4096, 1504] "
    "inout %c : f32[4, 2000, 1504] { %c = matmul %a, %b ta accumulate }",
    "in %a : bf16[16384, 7168] in %b : bf16[32, 2048, 7168] in %n : i32[32] "
    "out %c : bf16[16384, 2048] { %c = matmul %a, %b tb groups %n }",
    "in %a : bf16[16384, 2048] in %b : bf16[32, 2048, 7168] in %n : i32[32] "
    "in %v : bf16[32, 7168] inout %c : bf16[16384, 7168] "
    "{ %c = matmul %a, %b bias %v act silu accumulate groups %n }",
    "in %a : bf16[16384, 2048] in %b : bf16[16384, 7168] in %n : i32[32] "
    "out %c : bf16[32, 2048, 7168] { %c = matmul %a, %b ta groups %n }",
    "in %n : i32[8] in %a : bf16[8, 4096 by %n, 2048] in %b : bf16[2048, 1024] "
    "out %c : bf16[8, 4096, 1024] { %c = matmul %a, %b act relu }",
    "in %a : f8e4m3[16384, 7168] in %b : f8e4m3[32, 2048, 7168] "
    "in %s : f32[16384, 56] in %t : f32[32, 16, 56] in %n : i32[32] "
    "out %c : bf16[16384, 2048] "
    "{ %c = matmul %a, %b tb scale_a %s scale_b %t grain 128 groups %n }",
    "in %a : f8e4m3[16384, 7168] in %b : f8e4m3[32, 2048, 7168] "
    "in %s : f32[16384, 1] in %t : f32[32, 2048, 1] in %n : i32[32] "
    "out %c : bf16[16384, 2048] "
    "{ %c = matmul %a, %b tb scale_a %s scale_b %t groups %n }",
    "in %a : f8e5m2[16384, 2048] in %b : f8e4m3[32, 7168, 2048] "
    "in %s : f32[16384, 16] in %t : f32[32, 7168, 1] in %n : i32[32] "
    "in %v : bf16[32, 7168] inout %c : bf16[16384, 7168] { %c = matmul %a, %b "
    "tb scale_a %s scale_b %t grain 128 bias %v act silu accumulate groups %n "
    "}",
};

using TilesNvrtc = Nvrtc;

// What a log says of registers, and whether wgmma is as it was written.
void CheckLog(const std::string &log, const std::string &what)
{
    const std::string used = NumberBefore(log, " registers");

    EXPECT_NE(used, "") << what << log;
    EXPECT_EQ(NumberBefore(log, " bytes spill stores"), "0") << what << log;
    EXPECT_EQ(log.find("C75"), std::string::npos) << what << log;
    printf("%-60s %s registers\n", what.c_str(), used.c_str());
}

TEST(Tiles, ManyGroupsHaveThemToo)
{
    Tiles rows("in %a : bf16[65536, 7168] in %b : bf16[1024, 2048, 7168] "
               "in %n : i32[1024] out %c : bf16[65536, 2048] "
               "{ %c = matmul %a, %b tb groups %n }");
    Tiles turned("in %a : bf16[65536, 2048] in %b : bf16[65536, 7168] "
                 "in %n : i32[1024] out %c : bf16[1024, 2048, 7168] "
                 "{ %c = matmul %a, %b ta groups %n }");

    EXPECT_FALSE(rows.choices.empty());
    EXPECT_FALSE(turned.choices.empty());
}

// As the kernel says: which tile, and where it lies, of each unit in turns.
const char kWalk[] = R"(
extern "C" int share_out(int unit, int units, int tiles, int slices, int *out)
{
    share s = share_of(unit, units, tiles, slices);
    coord tile, from, past;
    int n = 0;

    for (; next_share(&s, slices, &tile, &from, &past); n++) {
        out[3 * n] = tile;
        out[3 * n + 1] = from;
        out[3 * n + 2] = past;
    }
    return n;
}
// The blocks whose sums the owner of a shared tile adds, as the kernel does.
extern "C" int owners(int unit, int units, int tiles, int slices, int tile,
                      int *out)
{
    const share own = share_of(unit, units, tiles, slices);
    const coord shared = tiles - own.whole;
    const coord rest = (tile - own.whole + 1) * slices;
    int n = 0;

    for (coord end = own.end; end < rest;) {
        const coord before = end;

        end = end_of(++unit, units, shared, slices);
        if (end != before)
            out[n++] = unit;
    }
    return n;
}
extern "C" int find_out(const void *args, int i, int *out)
{
    walk w = {-1, 0, 0, 0};
    tile t = {0};

    if (!find_tile(*(const hd_kernel_args *)args, i, &w, &t))
        return 0;
    const int all[] = {(int)t.piece,     (int)t.row,     (int)t.column,
                       (int)t.k,         t.rows,         t.columns,
                       t.fill_rows,      t.fill_columns, (int)t.depth, t.product};
    for (int e = 0; e < 10; e++)
        out[e] = all[e];
    return 1;
}
)";

// The text of a kernel's schedule, compiled for this machine.
class Schedule
{
  public:
    explicit Schedule(const Kernel &kernel)
    {
        library_ = dlopen(
            folder_.Compile(kHost + kernel.text + kWalk, "schedule.so", "-w")
                .c_str(),
            RTLD_NOW | RTLD_NODELETE);
        EXPECT_NE(library_, nullptr);
        Get("share_out", &share);
        Get("find_out", &find);
        Get("owners", &owners);
    }
    ~Schedule()
    {
        if (library_ != nullptr)
            dlclose(library_);
    }
    Schedule(const Schedule &) = delete;
    Schedule &operator=(const Schedule &) = delete;

    int (*share)(int unit, int units, int tiles, int slices, int *out);
    int (*find)(const void *args, int i, int *out);
    int (*owners)(int unit, int units, int tiles, int slices, int tile,
                  int *out);

  private:
    template <class Function> void Get(const char *name, Function *out)
    {
        void *at = dlsym(library_, name);

        ASSERT_NE(at, nullptr) << name;
        std::memcpy(out, &at, sizeof at);
    }

    Folder folder_;
    void *library_;
};

// Every slice of a tile is of one block. Who has the first of a tile adds what
// those leave that have the others; nobody else's, and nobody leaves two.
TEST(Tiles, EachSliceIsOfOneBlock)
{
    Tiles tiles(kForms[0]);
    hd_tiles_choice choice = tiles.choices[0];

    choice.split = true;
    Schedule schedule(tiles.Of(choice));
    std::mt19937 random(Seed());

    for (int draw = 0; draw < 400; draw++) {
        const int units = std::vector<int>{1, 2, 7, 66, 132}[random() % 5];
        const int all = 1 + int(random() % (draw % 2 ? 700 : 140)),
                  slices = 1 + int(random() % 90);
        std::vector<int> seen(size_t(all) * size_t(slices));
        // By tile: who leaves sums of it, and whose are added.
        std::vector<std::vector<int>> left(static_cast<size_t>(all)),
            added(static_cast<size_t>(all));
        int most = 0, least = INT_MAX;

        for (int u = 0; u < units; u++) {
            std::vector<int> mine(size_t(3 * (all + 2))), others(132);
            int n = schedule.share(u, units, all, slices, mine.data());
            int sum = 0;

            for (int i = 0; i < n; i++) {
                int tile = mine[size_t(3 * i)], from = mine[size_t(3 * i + 1)];
                int past = mine[size_t(3 * i + 2)];

                ASSERT_TRUE(tile >= 0 && tile < all && from >= 0 &&
                            from < past && past <= slices);
                EXPECT_TRUE(from == 0 || i == std::max(all / units - 1, 0));
                if (from > 0) {
                    left[size_t(tile)].push_back(u);
                } else if (past < slices) {
                    others.resize(size_t(schedule.owners(u, units, all, slices,
                                                         tile, others.data())));
                    added[size_t(tile)] = others;
                    others.resize(132);
                }
                sum += past - from;
                for (int s = from; s < past; s++)
                    seen[size_t(tile * slices + s)]++;
            }
            most = std::max(most, sum);
            least = std::min(least, sum);
        }
        for (int n : seen)
            ASSERT_EQ(n, 1);
        EXPECT_EQ(left, added) << all << " " << units << " " << slices;
        if (all % units != 0) {
            EXPECT_LE(most - least, 1) << all << " " << units << " " << slices;
        }
    }
}

// Elements of the result that tiles have, and rows of groups beside those.
void CheckTiles(const Schedule &schedule, const std::vector<int32_t> &counts,
                int rows, int columns, bool turned, int depth)
{
    std::vector<uint64_t> args(64);
    const size_t each = size_t(rows) * size_t(columns);
    std::vector<uint8_t> seen(each * (turned ? counts.size() : 1));
    std::vector<int> from = {0};
    int tile[10];

    args[3] = reinterpret_cast<uintptr_t>(counts.data());
    for (int32_t n : counts)
        from.push_back(
            std::min<int>(turned ? depth : rows, from.back() + std::max(n, 0)));
    for (int i = 0; schedule.find(args.data(), i, tile) != 0; i++) {
        const int piece = tile[0], row = tile[1], column = tile[2];

        for (int r = row; r < row + tile[4]; r++)
            for (int c = column; c < column + tile[5]; c++)
                seen[(turned ? size_t(piece) * each : 0) +
                     size_t(r) * size_t(columns) + size_t(c)]++;
        if (turned) {
            EXPECT_EQ(tile[3], from[size_t(piece)]);
            EXPECT_EQ(tile[8], from[size_t(piece) + 1] - from[size_t(piece)]);
            EXPECT_EQ(tile[6], tile[8] > 0 ? tile[4] : 0);
        } else if (tile[6] > 0) {
            EXPECT_GE(row, from[size_t(piece)]);
            EXPECT_LE(row + tile[6], from[size_t(piece) + 1]);
        } else {
            EXPECT_GE(row, from.back());
        }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), int64_t(seen.size()));
}

TEST(Tiles, EachRowOfEachGroupIsInOneTile)
{
    Tiles rows("in %a : bf16[700, 128] in %b : bf16[9, 192, 128] "
               "in %n : i32[9] out %c : bf16[700, 192] "
               "{ %c = matmul %a, %b tb groups %n }");
    Tiles turned("in %a : bf16[700, 192] in %b : bf16[700, 128] "
                 "in %n : i32[9] out %c : bf16[9, 192, 128] "
                 "{ %c = matmul %a, %b ta groups %n }");
    std::mt19937 random(Seed());

    for (int k = 0; k < 3; k++) {
        Schedule a(rows.Of(rows.choices[random() % rows.choices.size()]));
        Schedule b(turned.Of(turned.choices[random() % turned.choices.size()]));

        for (int draw = 0; draw < 15; draw++) {
            std::vector<int32_t> counts(9);

            for (int32_t &n : counts)
                n = random() % 3 == 0
                        ? 0
                        : int32_t(random() % (draw % 2 ? 78 : 300)) - 2;
            CheckTiles(a, counts, 700, 192, false, 0);
            CheckTiles(b, counts, 192, 128, true, 700);
        }
    }
}

// Tiles of products follow each other in their order, so that no block waits
// for what comes after what it has; together those that read the same.
void CheckRow(const Tiles &tiles, int rows, std::vector<int> columns,
              bool together)
{
    std::mt19937 random(Seed());
    const hd_tiles_row row = tiles.Row(2 + int(random() % 4), 1, 1);
    hd_tiles_choice choice = tiles.choices[random() % tiles.choices.size()];

    choice.turned = columns.size() == 1 && random() % 2 > 0;
    choice.together = together;
    const Kernel kernel = tiles.Of(choice, row);
    Schedule schedule(kernel);
    std::vector<uint64_t> args(size_t(kernel.grid.pointers));
    std::vector<std::vector<int>> seen;
    int tile[10], last = 0;

    args.insert(args.end(), kernel.grid.size,
                kernel.grid.size + kernel.grid.sizes);
    args.resize(args.size() + 1024);
    for (int p = 0; p < row.products; p++)
        seen.emplace_back(size_t(rows * columns[size_t(p) % columns.size()]));
    for (int i = 0; schedule.find(args.data(), i, tile) != 0; i++) {
        const size_t p = size_t(tile[9]);

        ASSERT_LT(p, seen.size());
        EXPECT_TRUE(together ? tile[9] == i % row.products : tile[9] >= last);
        last = tile[9];
        for (int r = tile[1]; r < tile[1] + tile[4]; r++)
            for (int c = tile[2]; c < tile[2] + tile[5]; c++)
                seen[p][choice.turned
                            ? size_t(c * columns[0] + r)
                            : size_t(r * columns[p % columns.size()] + c)]++;
    }
    for (const std::vector<int> &each : seen)
        EXPECT_EQ(std::count(each.begin(), each.end(), 1),
                  int64_t(each.size()));
}

TEST(Tiles, OfProductsInARowComeInTheirOrder)
{
    for (int rows : {72, 700}) {
        const std::string m = std::to_string(rows);
        Tiles alike("in %a : bf16[" + m + ", 64] in %b : bf16[200, 64] " +
                    "out %c : bf16[" + m + ", 200] { %c = matmul %a, %b tb }");
        Tiles mixed("in %a : bf16[" + m + ", 64] in %b : bf16[64, 200] " +
                    "in %d : bf16[64, 456] out %c : bf16[" + m +
                    ", 200] out %e : bf16[" + m +
                    ", 456] { %c = matmul %a, %b %e = matmul %a, %d }");

        CheckRow(alike, rows, {200}, false);
        CheckRow(alike, rows, {200}, true);
        CheckRow(mixed, rows, {200, 456}, false);
    }
}

const char kRun[] = R"(
extern "C" void run(const void *args)
{
    gridDim.x = 2;
    blockDim.x = 3;
    for (unsigned i = 0; i < 6; i++) {
        blockIdx.x = i / 3;
        threadIdx.x = i % 3;
        hd_kernel(*(const hd_kernel_args *)args);
    }
}
)";

// The step by the text that a host has, beside the cpu.
void CheckTurned(const Tiles &tiles, hd_tiles_choice choice)
{
    const hd_step &step = *tiles.Step();
    Buffers want(tiles.Module(), Seed(), false, 0);
    Buffers have(tiles.Module(), Seed(), false, 0);
    alignas(128) uint64_t args[512] = {};
    Folder folder;

    choice.turned = true;
    const Kernel kernel = tiles.Of(choice);
    void *library = dlopen(
        folder.Compile(kHost + kernel.text + kRun, "turned.so", "-w").c_str(),
        RTLD_NOW | RTLD_NODELETE);
    ASSERT_NE(library, nullptr);
    // The second operand's lines are the tile's rows; the result lies as ever.
    const hd_matrix c =
        hd_product_of(&step, HD_PRODUCT_PARTS).part[HD_PRODUCT_C].matrix;
    EXPECT_EQ(kernel.grid.map[0].pointer, HD_PRODUCT_B);
    EXPECT_EQ(kernel.grid.map[1].pointer, HD_PRODUCT_A);
    EXPECT_EQ(kernel.grid.map[2].extent[0], c.columns);
    EXPECT_EQ(kernel.grid.map[2].extent[1], c.rows);
    EXPECT_EQ(kernel.grid.map[2].stride[0], c.row_stride * 2);
    for (int i = 0; i < step.op->nviews; i++)
        args[i] = reinterpret_cast<uintptr_t>(have.At(step.span[i]));
    reinterpret_cast<void (*)(const void *)>(dlsym(library, "run"))(args);
    Compute(step, want);
    for (const hd_buffer *b = tiles.Module()->buffers; b; b = b->next)
        for (int64_t i = 0; i < hd_type_local_elements(&b->type); i++) {
            const double x = At(b->type.dtype, want.At(b), size_t(i));

            ASSERT_NEAR(At(b->type.dtype, have.At(b), size_t(i)), x,
                        .02 * (1 + std::fabs(x)));
        }
    EXPECT_TRUE(have.GuardsAreWhole());
    dlclose(library);
}

TEST(Tiles, TurnedTheyMakeTheSameResult)
{
    for (const char *form :
         {"in %a : bf16[72, 64] in %b : bf16[200, 64] "
          "out %c : bf16[72, 200] { %c = matmul %a, %b tb }",
          "in %a : f16[64, 96] in %b : f16[64, 80] in %v : f16[80] "
          "out %c : f16[96, 80] out %z : f16[96, 80] "
          "{ %c = matmul %a, %b ta scale 0.5 bias %v act gelu aux %z }",
          "in %a : bf16[2, 70, 72] in %b : bf16[2, 72, 64] "
          "inout %c : bf16[2, 70, 64] { %c = matmul %a, %b accumulate }"}) {
        Tiles tiles(form);

        CheckTurned(tiles, tiles.choices[Seed() % tiles.choices.size()]);
    }
}

hd_tiles_choice Best(const hd_tiles_row &row)
{
    hd_tiles_choice choice = {};

    EXPECT_EQ(hd_tiles_choose(&row, PROCESSORS, 1, &choice), 1);
    return choice;
}

// Few rows of many products are worth reading the other operand for once; not
// where the first ones would wait for what comes later.
TEST(Tiles, OfFewRowsAreDoneTogetherUnlessTheyComeLate)
{
    Tiles few("in %a : bf16[64, 8192] in %b : bf16[7168, 8192] "
              "out %c : bf16[64, 7168] { %c = matmul %a, %b tb }");
    Tiles half("in %a : bf16[256, 8192] in %b : bf16[7168, 8192] "
               "out %c : bf16[256, 7168] { %c = matmul %a, %b tb }");
    Tiles many("in %a : bf16[4096, 8192] in %b : bf16[7168, 8192] "
               "out %c : bf16[4096, 7168] { %c = matmul %a, %b tb }");
    hd_tiles_row late = half.Row(2, 1, 1);
    const hd_tiles_row whole = half.Row(1, 0, 0);

    EXPECT_TRUE(Best(few.Row(8, 0, 0)).together);
    EXPECT_FALSE(Best(many.Row(2, 0, 0)).together);
    late.late[1] = true;
    EXPECT_FALSE(Best(late).together);
    // The first product has all processors, as it has alone.
    EXPECT_EQ(Best(late).columns, Best(whole).columns);
}

// However few processors there are, and rows of a group in the mean.
TEST(Tiles, AreChosenForFewProcessorsAndFewRowsOfAGroup)
{
    Tiles plain(kForms[0]);
    Tiles few("in %a : bf16[64, 1024] in %b : bf16[128, 2048, 1024] "
              "in %n : i32[128] out %c : bf16[64, 2048] "
              "{ %c = matmul %a, %b tb groups %n }");
    hd_tiles_choice choice = {};

    for (int processors : {1, 2, 3})
        for (int products : {1, 3}) {
            const hd_tiles_row row = plain.Row(products, 0, 0);

            EXPECT_EQ(hd_tiles_choose(&row, processors, 1, &choice), 1);
            EXPECT_GT(choice.rows, 0);
        }
    EXPECT_EQ(few.choices[0].rows, 64);
}

const char kAwait[] = R"(
extern "C" int await(const void *args, int product, int past)
{
    await_words(*(const hd_kernel_args *)args, product, &past);
    return past;
}
)";

// The words of what is ahead of a product are waited for, too, whatever stands
// there 32 bits further on; a word that is late is told, once, and no more
// waited for.
TEST(Tiles, AProductWaitsForItsWordsAndThoseAheadOfIt)
{
    Tiles tiles(kForms[0]);
    const hd_tiles_row row = tiles.Row(3, 2, 50000000);
    Folder folder;
    void *library = dlopen(
        folder
            .Compile(kHost + tiles.Of(tiles.choices[0], row).text + kAwait,
                     "await.so", "-w")
            .c_str(),
        RTLD_NOW | RTLD_NODELETE);
    ASSERT_NE(library, nullptr);
    auto *await = reinterpret_cast<int (*)(const void *, int, int)>(
        dlsym(library, "await"));
    ASSERT_NE(await, nullptr);
    const uint32_t run = std::mt19937(Seed())();
    std::vector<uint64_t> args(64);
    std::atomic<uint32_t> word[3] = {{run}, {run + 5}, {run - 1}};
    int64_t told[4] = {0};

    args[9] = reinterpret_cast<uintptr_t>(told); // behind three views each
    args[10] = 6;
    args[13 + 0] = reinterpret_cast<uintptr_t>(&word[0]);
    args[13 + 3] = reinterpret_cast<uintptr_t>(&word[1]);
    args[13 + 4] = reinterpret_cast<uintptr_t>(&word[2]);
    args[13 + 6] = run;
    EXPECT_EQ(await(args.data(), 1, 0), 2);
    EXPECT_EQ(told[0], 0);
    std::thread late([&] {
        usleep(20000);
        word[2] = run;
    });
    EXPECT_EQ(await(args.data(), 2, 0), 3);
    EXPECT_EQ(word[2], run);
    late.join();
    EXPECT_EQ(told[0], 0);
    word[2] = run - 1;
    EXPECT_EQ(await(args.data(), 2, 2), 3);
    EXPECT_EQ(told[0], 7);
    EXPECT_EQ(told[1], HD_KERNEL_UNTOLD);
    EXPECT_EQ(told[2], 2);
    EXPECT_EQ(told[3], int64_t(run - 1));
    dlclose(library);
}

// All forms of each choice with HEDDLE_ALL_KERNELS=1, else one, in turns.
TEST_F(TilesNvrtc, EveryChoiceCompilesWithoutSpills)
{
    const bool all = std::getenv("HEDDLE_ALL_KERNELS") != nullptr;
    const size_t first = std::random_device()() % 17;

    for (size_t f = 0; f < kForms.size(); f++) {
        Tiles tiles(kForms[f]);

        std::sort(tiles.choices.begin(), tiles.choices.end(),
                  [](auto &a, auto &b) {
                      return std::make_pair(a.rows, a.columns) <
                             std::make_pair(b.rows, b.columns);
                  });
        for (size_t i = 0; i < tiles.choices.size(); i++)
            if (all || (i + first) % 17 == f)
                CheckLog(Log(tiles.Of(tiles.choices[i]).text, "sm_90a"),
                         Name(tiles.choices[i]) + " of form " +
                             std::to_string(f));
    }
}

// Likewise of those that wait for words.
TEST_F(TilesNvrtc, EveryChoiceOfALaunchCompilesWithoutSpills)
{
    const bool all = std::getenv("HEDDLE_ALL_KERNELS") != nullptr;
    const size_t first = std::random_device()();
    std::vector<std::string> forms(kForms.begin(), kForms.begin() + 2);

    forms.push_back("in %a : bf16[2048, 7168] in %b : bf16[1024, 7168] "
                    "in %d : bf16[4096, 7168] out %c : bf16[2048, 1024] "
                    "out %e : bf16[2048, 4096] "
                    "{ %c = matmul %a, %b tb %e = matmul %a, %d tb }");
    for (size_t f = 0; f < forms.size(); f++) {
        Tiles tiles(forms[f]);
        const hd_tiles_row row = tiles.Row(8, 1, INT64_C(60000000000));

        tiles.choices.resize(ROOM);
        tiles.choices.resize(size_t(
            hd_tiles_choose(&row, PROCESSORS, ROOM, tiles.choices.data())));
        for (size_t i = 0; i < tiles.choices.size(); i++)
            if (all || (i + first) % 19 == 6 * f)
                CheckLog(Log(tiles.Of(tiles.choices[i], row).text, "sm_90a"),
                         Name(tiles.choices[i]) + " of a launch of form " +
                             std::to_string(f));
    }
}

} // namespace
