// Attention's kernels for tensor cores, whose instructions threads of the host
// do in their place, against the oracle and its bounds. What is fetched is a
// NaN until it is awaited.
#include <map>
#include <set>

#include "codegen/prelude.h"
#include "tests/draw.h"
#include "tests/seed.h"
#include "tests/unit/estimates.h"
#include "tests/unit/kernels.h"

namespace
{

// In place of kernels/mma.cu: lanes say what they have, and meet.
const char kInstructions[] = R"(
#define AT(line, chunk, chunks) \
    ((line) * (chunks)*16 +     \
     (((chunk) ^ ((line) & ((chunks) < 8 ? (chunks)-1 : 7))) << 4))
alignas(128) unsigned char memory[1 << 18];
static u32 fragment[1024][6];
static thread_local struct fetched {
    u32 to;
    const void *from;
    int bytes;
} pending[4096];
static thread_local int waits;

static u32 shared_address(const void *at)
{
    return (u32)((const unsigned char *)at - memory);
}
static void fetch_sixteen(u32 to, const void *from, int bytes)
{
    if ((u64)from % 16 != 0 || to % 16 != 0 || waits == 4096)
        __builtin_trap();
    __builtin_memset(memory + to, 0xff, 16);
    pending[waits++] = {to, from, bytes};
}
static bool await_fetches(bool x)
{
    bool any = false;

    for (; waits > 0; waits--) {
        const fetched &f = pending[waits - 1];
        __builtin_memset(memory + f.to, 0, 16);
        __builtin_memcpy(memory + f.to, f.from, f.bytes);
    }
    __syncthreads();
    said[threadIdx.x] = x;
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x; i++)
        any |= said[i] != 0;
    __syncthreads();
    return any;
}
static void store_sixteen(u32 to, const u32 *x)
{
    __builtin_memcpy(memory + to, x, 16);
}
// Of the lines whose places the warp's lanes have said.
static u16 half_at(int line, int column)
{
    u16 x;
    __builtin_memcpy(&x, memory + said[threadIdx.x / 32 * 32 + line] +
                             column * 2, 2);
    return x;
}
static void read_along(u32 *out, u32 at)
{
    const int lane_ = threadIdx.x % 32;
    said[threadIdx.x] = at;
    meet_lanes();
    for (int f = 0; f < 4; f++)
        out[f] = half_at(8 * f + lane_ / 4, lane_ % 4 * 2) |
                 (u32)half_at(8 * f + lane_ / 4, lane_ % 4 * 2 + 1) << 16;
    meet_lanes();
}
static void read_across(u32 *out, u32 at)
{
    const int lane_ = threadIdx.x % 32;
    said[threadIdx.x] = at;
    meet_lanes();
    for (int f = 0; f < 4; f++)
        out[f] = half_at(8 * f + lane_ % 4 * 2, lane_ / 4) |
                 (u32)half_at(8 * f + lane_ % 4 * 2 + 1, lane_ / 4) << 16;
    meet_lanes();
}
static float number(u32 code)
{
#if IS_F16
    const int power = code >> 10 & 31;
    const double part = code & 1023;
    const double x = power == 31  ? (part > 0 ? NAN : INFINITY)
                     : power == 0 ? ldexp(part, -24)
                                  : ldexp(1024 + part, power - 25);
    return (float)(code >> 15 ? -x : x);
#else
    const u32 bits = code << 16;
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
#endif
}
static u32 code_of(float x)
{
#if IS_F16
    const double size = fabs((double)x);
    const u32 sign = x < 0 ? 0x8000 : 0;
    int power;
    if (x != x)
        return 0x7e00;
    if (size >= 65520)
        return sign | 0x7c00;
    if (size < ldexp(1, -14))
        return sign | (u32)nearbyint(ldexp(size, 24));
    frexp(size, &power);
    return sign + ((u32)(power + 13) << 10) +
           (u32)nearbyint(ldexp(size, 11 - power));
#else
    u32 bits;
    __builtin_memcpy(&bits, &x, 4);
    return x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
}
static u32 pack(float x, float y)
{
    return code_of(x) | code_of(y) << 16;
}
// Element (line, k) of 16 by 16 of the depth, (column, k) of 8.
static float left(int line, int k)
{
    const u32 *of = fragment[threadIdx.x / 32 * 32 + line % 8 * 4 + k % 8 / 2];
    return number(of[line / 8 + k / 8 * 2] >> k % 2 * 16 & 0xffff);
}
static float right(int column, int k)
{
    const u32 *of = fragment[threadIdx.x / 32 * 32 + column * 4 + k % 8 / 2];
    return number(of[4 + k / 8] >> k % 2 * 16 & 0xffff);
}
static void multiply_add(float *c, const u32 *a, const u32 *b)
{
    const int lane_ = threadIdx.x % 32;
    __builtin_memcpy(fragment[threadIdx.x], a, 16);
    __builtin_memcpy(fragment[threadIdx.x] + 4, b, 8);
    meet_lanes();
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 16; k++)
            c[e] += left(lane_ / 4 + e / 2 * 8, k) *
                    right(lane_ % 4 * 2 + e % 2, k);
    meet_lanes();
}
static float power(float x)
{
    return exp2f(x);
}
static int least_of(int x)
{
    said[threadIdx.x] = (u64)(i64)x;
    meet_lanes();
    for (int i = 0; i < 32; i++) {
        const int y = (int)(i64)said[threadIdx.x / 32 * 32 + i];
        x = y < x ? y : x;
    }
    meet_lanes();
    return x;
}
static int most_of(int x)
{
    return -least_of(-x);
}
)";

std::string Tensor()
{
    return Warps() + "#undef __shared__\n#define __shared__\n"
                     "#define __align__(n)\n#include <math.h>\n"
                     "static inline void __syncwarp() { meet_lanes(); }\n";
}

// With what threads of the host can do.
Kernel Here(Kernel kernel)
{
    const std::string from = reinterpret_cast<const char *>(hd_mma_cu);
    size_t at = kernel.text.find(from);

    EXPECT_NE(at, std::string::npos) << kernel.text;
    if (at != std::string::npos)
        kernel.text.replace(at, from.size(), kInstructions);
    return kernel;
}

// All steps of a host program.
struct Steps {
    Program program;
    hd_steps steps = {};

    explicit Steps(const std::string &text)
        : program("host program attention " + text)
    {
        EXPECT_EQ(program.status, HD_OK) << program.Said() << text;
        EXPECT_EQ(hd_steps_collect(program.module, 0, program.diag, &steps),
                  HD_OK)
            << program.Said();
    }
    Steps(const Steps &) = delete;
    Steps &operator=(const Steps &) = delete;
    ~Steps()
    {
        hd_steps_free(&steps);
    }
};

struct Form {
    std::string text;
    std::map<std::string, std::vector<int32_t>> counts; // by name
    std::set<int64_t> keys, rows; // that no row sees, that see no key
};

// What nobody sees may be anything.
void Fill(const Steps &of, const Form &form, const Buffers &buffers)
{
    const double nan = NAN;

    for (const hd_buffer *b = of.program.module->buffers; b; b = b->next) {
        const std::string name = b->name;
        const hd_type &type = b->type;
        int rows = type.ndims - 2;

        if (type.dtype == HD_DTYPE_I32)
            std::memcpy(buffers.At(b), form.counts.at(name).data(),
                        size_t(hd_type_elements(&type)) * sizeof(int32_t));
        const bool of_keys = name == "k" || name == "v";
        if (!of_keys && name != "q" && name != "g")
            continue;
        const std::set<int64_t> &unseen = of_keys ? form.keys : form.rows;
        int64_t n = type.dim[rows].extent, d = type.dim[rows + 1].extent;
        for (int64_t i = 0; i < hd_type_elements(&type); i++)
            if (unseen.count(i / d % n) > 0)
                hd_dtype_store(type.dtype, &nan, 1,
                               static_cast<char *>(buffers.At(b)) +
                                   size_t(i) * hd_dtype_size(type.dtype));
    }
}

Addresses Arguments(const hd_step &of, const Buffers &buffers, int64_t *told)
{
    Addresses args = Arguments(of, buffers);

    args.at[of.op->nviews] = reinterpret_cast<uint64_t>(told);
    args.at[of.op->nviews + 1] = uint64_t(of.index);
    return args;
}

void Compare(const Steps &of, const Buffers &device, const Estimates &want)
{
    for (size_t s = 0; s < size_t(of.steps.nsteps); s++)
        for (int i = 0; i < of.steps.step[s].op->noutputs; i++) {
            const hd_buffer *b = of.steps.step[s].span[i].buffer;
            const hd_estimate *all = want.At(b);
            size_t n = size_t(hd_type_elements(&b->type));
            int wrong = 0;

            for (size_t k = 0; k < n && wrong < 3; k++) {
                double x = At(b->type.dtype, device.At(b), k);

                if (x == all[k].value ||
                    std::fabs(x - all[k].value) <= all[k].bound)
                    continue;
                ADD_FAILURE() << b->name << "[" << k << "] is " << x << ", not "
                              << all[k].value << " within " << all[k].bound;
                wrong++;
            }
        }
}

void Check(const std::vector<Form> &forms)
{
    std::vector<std::unique_ptr<Steps>> all;
    std::vector<Kernel> kernels;
    unsigned seed = Seed();

    for (const Form &form : forms) {
        all.push_back(std::make_unique<Steps>(form.text));
        if (::testing::Test::HasFailure())
            return;
        const Steps &of = *all.back();
        for (size_t s = 0; s < size_t(of.steps.nsteps); s++)
            kernels.push_back(
                Here(Emit([&](hd_text *out, hd_kernel_grid *grid) {
                    return hd_emit_step(&of.steps.step[s], of.program.diag, out,
                                        grid);
                })));
    }
    Host host(kernels, Tensor());
    for (size_t i = 0, k = 0; i < forms.size(); i++) {
        const Steps &of = *all[i];
        Buffers oracle(of.program.module, seed, false, 0);
        Buffers device(of.program.module, seed, false, 0);
        Fill(of, forms[i], oracle);
        Fill(of, forms[i], device);
        Estimates want(of.program.module,
                       [&](const hd_buffer *b) { return oracle.At(b); });
        int64_t told[4] = {0};

        SCOPED_TRACE(forms[i].text);
        for (size_t s = 0; s < size_t(of.steps.nsteps); s++, k++) {
            const hd_step &step = of.steps.step[s];
            hd_kernel_grid grid = kernels[k].grid;

            ASSERT_EQ(grid.threads, 128u);
            grid.blocks = grid.blocks > 2 ? grid.blocks - 1 : grid.blocks;
            ASSERT_EQ(want.Compute(step), HD_OK);
            host.LaunchWarps(k, Arguments(step, device, told), grid);
        }
        EXPECT_EQ(told[0], 0);
        EXPECT_TRUE(device.GuardsAreWhole());
        Compare(of, device, want);
    }
}

int Among(std::mt19937 &random, const std::vector<int> &of)
{
    return of[random() % of.size()];
}

// Forward and backward, of B elements of a batch, G groups of Q heads, S rows,
// K keys, D and W wide.
const char kBoth[] =
    "in %q : $[B, G * Q, S ROWS, D] in %k : $[B, G, K KEYS, D] "
    "in %v : $[B, G, K KEYS, W] in %g : L[B, G * Q, S, W] "
    "inout %o : L[B, G * Q, S ROWS, W] inout %l : f32[B, G * Q, S] "
    "inout %a : $[B, G * Q, S ROWS, D] inout %b : L[B, G, K, D] "
    "inout %c : f32[B, G, K, W] { %o, %l = attention %q, %k, %v MASK "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g MASK }";

struct Kind {
    const char *counts, *rows, *keys, *mask;
};

const Kind kKinds[] = {
    {"", "", "", ""},
    {"", "", "", "scale -0.3"},
    {"", "", "", "causal C"},
    {"", "", "", "accumulate causal C"},
    {"", "", "", "causal C window 9"},
    {"in %n : i32[B] in %m : i32[B]", "by %n", "by %m", ""},
    {"in %n : i32[B] in %m : i32[B]", "by %n", "by %m", "accumulate causal C"},
    {"in %n : i32[6]", "", "", "groups %n causal -2"},
    {"in %n : i32[6]", "", "", "accumulate groups %n causal 1 window 5"},
};

// Up to `most` of all, or of each.
std::vector<int32_t> Counts(std::mt19937 &random, size_t n, int most, bool all)
{
    std::vector<int32_t> counts;

    while (counts.size() < n) {
        counts.push_back(Between(0, most, random));
        most -= all ? counts.back() : 0;
    }
    return counts;
}

// Of so many rows and keys from `first` on, where row i sees keys up to i + c.
void LeaveOut(int first, int rows, int keys, int c, Form *form)
{
    for (int i = 0; i < std::min(rows, -c); i++)
        form->rows.insert(first + i);
    for (int i = std::max(0, rows + c); i < keys; i++)
        form->keys.insert(first + i);
}

// With what is drawn in the places of words.
Form Drawn(std::mt19937 &random, const Kind &kind)
{
    const std::string dtype = random() % 2 == 0 ? "bf16" : "f16";
    const bool grouped = std::strstr(kind.mask, "groups") != nullptr;
    const bool adds = std::strstr(kind.mask, "accumulate") != nullptr;
    const bool masked = std::strstr(kind.mask, "causal C") != nullptr;
    const int s = Between(1, 90, random), k = Between(1, 150, random);
    const int c = Between(-60, 140, random);
    std::string text = kind.counts + std::string(" ") + kBoth;
    Form form;

    text = ReplacedWord(text, "ROWS", kind.rows);
    text = ReplacedWord(text, "KEYS", kind.keys);
    text = ReplacedWord(text, "MASK", kind.mask);
    text = Replaced(text, "$", dtype);
    text = ReplacedWord(text, "L", random() % 2 == 0 ? "f32" : dtype);
    form.text =
        Filled(text, {{'B', Among(random, {1, 2})},
                      {'G', Among(random, {1, 2})},
                      {'Q', Among(random, {1, 2, 3})},
                      {'S', s},
                      {'K', grouped ? s : k},
                      {'D', Among(random, {3, 8, 16, 24, 72, 136, 200})},
                      {'W', Among(random, {5, 8, 16, 48, 136, 200})},
                      {'C', c}});
    form.counts["n"] = Counts(random, 6, s, grouped);
    form.counts["m"] = Counts(random, 6, k, false);
    if (masked)
        LeaveOut(0, s, k, c, &form);
    for (int n = 0, i = 0; grouped && !adds && i < 6; i++) {
        LeaveOut(n, form.counts["n"][i], form.counts["n"][i], -2, &form);
        n += form.counts["n"][i];
    }
    if (adds) // what is there before has seen something
        form.rows.clear();
    return form;
}

TEST(AttendTiles, AreWithinTheOraclesBounds)
{
    // Threads take long.
    const size_t some = std::getenv("HEDDLE_ALL_KERNELS") ? 9 : 4;
    std::mt19937 random(Seed());
    std::vector<Form> forms;

    std::vector<Kind> kinds(std::begin(kKinds), std::end(kKinds));

    std::shuffle(kinds.begin(), kinds.end(), random);
    for (size_t i = 0; i < some; i++)
        forms.push_back(Drawn(random, kinds[i]));
    Check(forms);
}

} // namespace
