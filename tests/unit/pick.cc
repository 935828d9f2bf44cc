// What data decides: the cpu, the oracle and the emitted kernels against what
// is said in the fewest words here, on random shapes, strides and numbers.
#include <algorithm>

#include <heddle/verify.h>

#include "tests/draw.h"
#include "tests/seed.h"
#include "tests/unit/estimates.h"
#include "tests/unit/kernels.h"

namespace
{

// A step in memory of its own.
class Step
{
  public:
    explicit Step(const std::string &text)
        : program_("host program picks " + text)
    {
        EXPECT_EQ(program_.status, HD_OK) << program_.Said() << text;
        EXPECT_EQ(hd_steps_collect(program_.module, 0, program_.diag, &steps_),
                  HD_OK)
            << program_.Said();
    }
    Step(const Step &) = delete;
    Step &operator=(const Step &) = delete;
    ~Step()
    {
        hd_steps_free(&steps_);
    }
    const hd_module *Module() const
    {
        return program_.module;
    }
    const hd_step &Get() const
    {
        return steps_.step[0];
    }
    Kernel Emitted() const
    {
        return Emit([this](hd_text *out, hd_kernel_grid *grid) {
            return hd_emit_step(&Get(), program_.diag, out, grid);
        });
    }

  private:
    Program program_;
    hd_steps steps_ = {};
};

size_t Place(const hd_span &span, size_t i)
{
    return size_t(span.offset +
                  hd_span_offset(&span, 0, span.ndims, int64_t(i)));
}

// A view's elements, of up to 64 bits each, in row-major order.
std::vector<uint64_t> Codes(const Buffers &from, const hd_span &span)
{
    size_t size = hd_dtype_size(span.buffer->type.dtype);
    std::vector<uint64_t> codes(size_t(hd_span_elements(&span)));

    for (size_t i = 0; i < codes.size(); i++)
        std::memcpy(&codes[i],
                    static_cast<char *>(from.At(span)) + Place(span, i) * size,
                    size);
    return codes;
}

void Put(const Buffers &to, const hd_span &span,
         const std::vector<uint64_t> &codes)
{
    size_t size = hd_dtype_size(span.buffer->type.dtype);

    for (size_t i = 0; i < codes.size(); i++)
        std::memcpy(static_cast<char *>(to.At(span)) + Place(span, i) * size,
                    &codes[i], size);
}

// What the step makes, by view.
using Results = std::vector<std::vector<uint64_t>>;

Results ResultsOf(const Step &step, const Buffers &from)
{
    Results results;

    for (int i = 0; i < step.Get().op->noutputs; i++)
        results.push_back(Codes(from, step.Get().span[i]));
    return results;
}

// The elements that no view of the step's results names.
std::vector<std::vector<char>> Rest(const Step &step, const Buffers &from)
{
    std::vector<std::vector<char>> rest;

    for (const hd_buffer *b = step.Module()->buffers; b; b = b->next) {
        const char *at = static_cast<const char *>(from.At(b));
        size_t size = hd_dtype_size(b->type.dtype);

        rest.emplace_back(at, at + size * size_t(hd_type_elements(&b->type)));
    }
    for (int i = 0; i < step.Get().op->noutputs; i++) {
        const hd_span &span = step.Get().span[i];
        size_t size = hd_dtype_size(span.buffer->type.dtype);

        for (size_t k = 0; k < size_t(hd_span_elements(&span)); k++)
            std::fill_n(rest[size_t(span.buffer->id)].begin() +
                            long(Place(span, k) * size),
                        size, '\0');
    }
    return rest;
}

// The oracle on the buffers, whose numbers it leaves there.
void Judge(const Step &step, const Buffers &buffers)
{
    Estimates of(step.Module(),
                 [&buffers](const hd_buffer *b) { return buffers.At(b); });

    ASSERT_EQ(of.Compute(step.Get()), HD_OK);
    for (int i = 0; i < step.Get().op->noutputs; i++) {
        const hd_buffer *b = step.Get().span[i].buffer;
        size_t n = size_t(hd_type_elements(&b->type));
        char *to = static_cast<char *>(buffers.At(b));

        for (size_t k = 0; k < n; k++, to += hd_dtype_size(b->type.dtype)) {
            const hd_estimate &one = of.At(b)[k];

            EXPECT_EQ(one.bound, 0) << b->name;
            if (hd_dtype_is_integer(b->type.dtype))
                hd_dtype_store_integers(b->type.dtype, &one.whole, 1, to);
            else
                hd_dtype_store(b->type.dtype, &one.value, 1, to);
        }
    }
}

// In each of two blocks.
hd_kernel_grid TwoWarps(hd_kernel_grid grid)
{
    grid.blocks = 2;
    grid.threads = 64;
    return grid;
}

struct Case {
    std::string text;
    std::vector<uint64_t> operand;
    Results want;
};

void CheckAll(const std::vector<Case> &cases, unsigned seed)
{
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<Kernel> kernels;

    for (const Case &c : cases) {
        steps.push_back(std::make_unique<Step>(c.text));
        if (::testing::Test::HasFailure())
            return;
        kernels.push_back(steps.back()->Emitted());
    }
    Host host(kernels), gpu(kernels, Warps());
    for (size_t i = 0; i < cases.size(); i++) {
        const Step &step = *steps[i];
        const hd_step &of = step.Get();
        Buffers cpu(step.Module(), seed, false, 0);
        Buffers oracle(step.Module(), seed, false, 0);
        Buffers device(step.Module(), seed, false, 1);
        Buffers few(step.Module(), seed, false, 0);
        Buffers warps(step.Module(), seed, false, 0);
        std::vector<std::vector<char>> rest;

        SCOPED_TRACE(cases[i].text);
        for (const Buffers *one : {&cpu, &oracle, &device, &few, &warps})
            Put(*one, of.span[of.op->noutputs], cases[i].operand);
        rest = Rest(step, cpu);
        Compute(of, cpu);
        Judge(step, oracle);
        host.Launch(i, Arguments(of, device), kernels[i].grid);
        host.Launch(i, Arguments(of, few), Few(kernels[i].grid));
        if (i % 3 == 0) // threads take long
            gpu.LaunchWarps(i, Arguments(of, warps), TwoWarps(kernels[i].grid));
        else
            host.Launch(i, Arguments(of, warps), TwoWarps(kernels[i].grid));
        EXPECT_EQ(ResultsOf(step, cpu), cases[i].want) << "the cpu";
        EXPECT_EQ(ResultsOf(step, oracle), cases[i].want) << "the oracle";
        EXPECT_EQ(ResultsOf(step, device), cases[i].want) << "the kernel";
        EXPECT_EQ(ResultsOf(step, few), cases[i].want) << "few threads";
        EXPECT_EQ(ResultsOf(step, warps), cases[i].want) << "warps";
        for (const Buffers *one : {&cpu, &device, &few, &warps}) {
            EXPECT_EQ(Rest(step, *one), rest) << "what lies beside";
            EXPECT_TRUE(one->GuardsAreWhole());
        }
    }
}

// ------------------------------------------------------------------- route

const char *const kRoutes[] = {
    "in %x : i32[B, T, K] out %p : i32[B, E, C] out %s : i32[B, T, K] "
    "out %n : i32[B, E] { %p, %s, %n = route %x }",
    "in %x : i32[T, 3, K] inout %p : i32[E, 3, C] inout %s : i32[3, T, K] "
    "inout %n : i32[2, E] { %p[:, 1], %s[2], %n[1] = route %x[:, 1] }",
    "in %x : i32[2, B, T, K, 3] inout %p : i32[2, B, E, C, 3] "
    "inout %s : i32[2, B, T, 2, K] inout %n : i32[2, B, 3, E] "
    "{ %p[:, :, :, :, 1], %s[:, :, :, 1], %n[:, :, 2] = "
    "route %x[:, :, :, :, 0] }",
};

// Of a batch of so many: entry by entry, whether there is room.
Results Routed(const std::vector<int> &expert, int batch, int t, int k, int e,
               int cap)
{
    std::vector<int> token(size_t(batch * e * cap), -1);
    std::vector<int> slot(size_t(batch * t * k), -1);
    std::vector<int> count(size_t(batch * e), 0);
    Results results;

    for (int i = 0; i < batch * t * k; i++) {
        int who = expert[size_t(i)], b = i / (t * k);

        if (who < 0 || who >= e || count[size_t(b * e + who)] == cap)
            continue;
        slot[size_t(i)] = who * cap + count[size_t(b * e + who)]++;
        token[size_t(b * e * cap + slot[size_t(i)])] = i % (t * k) / k;
    }
    for (const std::vector<int> *one : {&token, &slot, &count}) {
        results.emplace_back();
        for (int number : *one)
            results.back().push_back(uint32_t(number));
    }
    return results;
}

// Of all experts, of few of them, of one, of some that there are not.
std::vector<int> Experts(int n, int e, std::mt19937 &random)
{
    std::vector<int> expert;
    int kind = Between(0, 4, random), one = Between(0, e - 1, random);

    for (int i = 0; i < n; i++)
        expert.push_back(kind == 0   ? one
                         : kind == 1 ? Between(-2, e + 1, random)
                         : kind == 2 ? int(random())
                         : kind == 3 ? e - 1 - Between(0, e - 1, random) / 3
                                     : Between(0, e - 1, random));
    return expert;
}

Case DrawRoute(const char *form, int most, std::mt19937 &random)
{
    int b = Between(1, 4, random), t = Between(most / 2, most, random);
    int k = Between(1, 4, random), e = Between(1, 9, random);
    int cap = random() % 3 == 0 ? t * k : Between(1, t * k / 4 + 1, random);
    std::string text =
        Filled(form, {{'B', b}, {'T', t}, {'K', k}, {'E', e}, {'C', cap}});
    Step step(text);
    int batch = int(hd_span_elements(&step.Get().span[3])) / (t * k);
    std::vector<int> expert = Experts(batch * t * k, e, random);
    Case c = {text, {}, Routed(expert, batch, t, k, e, cap)};

    for (int one : expert)
        c.operand.push_back(uint32_t(one));
    return c;
}

TEST(Pick, RouteGivesEntriesPlacesInTheirOrder)
{
    unsigned seed = Seed();
    std::mt19937 random(seed);
    std::vector<Case> cases;

    for (int i = 0; i < 9; i++)
        for (const char *form : kRoutes)
            cases.push_back(DrawRoute(form, i == 0 ? 2000 : 40, random));
    CheckAll(cases, seed);
}

// ------------------------------------------------------------------- top_k

const char *const kTops[] = {
    "in %x : D[B, N] out %v : D[B, K] out %i : i32[B, K] "
    "{ %v, %i = top_k %x }",
    "in %x : D[B, 2, N, 3] inout %v : D[B, 2, 2, K] inout %i : i32[B, 2, K, 2] "
    "{ %v[:, :, 1], %i[:, :, :, 0] = top_k %x[:, :, :, 2] }",
};

// Of few numbers, so that many are equal, or of any.
uint64_t Number(hd_dtype dtype, bool few, std::mt19937 &random)
{
    static const double odd[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0,
                                 1,   -1,   0.5,      1e-3,      100};
    double value = few ? odd[random() % 11] : double(random() % 8192) / 64 - 64;
    int64_t whole =
        int64_t(random() % (few ? 5 : 200)) - 2 * (dtype != HD_DTYPE_U8);
    uint64_t code = 0;

    if (dtype == HD_DTYPE_I64) // a double has not all of it
        whole += whole % 2 == 0 ? int64_t(1) << 60 : -(int64_t(1) << 60);
    if (hd_dtype_is_integer(dtype))
        hd_dtype_store_integers(dtype, &whole, 1, &code);
    else
        hd_dtype_store(dtype, &value, 1, &code);
    return code;
}

bool Greater(hd_dtype dtype, uint64_t a, uint64_t b)
{
    if (hd_dtype_is_integer(dtype)) {
        int64_t x, y;

        hd_dtype_load_integers(dtype, &a, 1, &x);
        hd_dtype_load_integers(dtype, &b, 1, &y);
        return x > y;
    }
    double x = At(dtype, &a, 0), y = At(dtype, &b, 0);
    return std::isnan(x) ? !std::isnan(y) : x > y;
}

// What is sorted stays in its order where it is equal.
Results Sorted(hd_dtype dtype, const std::vector<uint64_t> &all, size_t n,
               size_t k)
{
    Results results(2);

    for (size_t row = 0; row < all.size(); row += n) {
        std::vector<size_t> order;

        for (size_t i = 0; i < n; i++)
            order.push_back(i);
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            return Greater(dtype, all[row + a], all[row + b]);
        });
        for (size_t j = 0; j < k; j++) {
            results[0].push_back(all[row + order[j]]);
            results[1].push_back(order[j]);
        }
    }
    return results;
}

Case DrawTop(const char *form, const char *dtype, std::mt19937 &random)
{
    // Of which a lane holds one, some, or none, as they are many.
    int kind = int(random() % 3);
    int n = kind == 0   ? Between(1, 40, random)
            : kind == 1 ? Between(41, 512, random)
                        : Between(513, 700, random);
    int k = Between(1, kind == 0 ? n : 8, random);
    std::string text = Replaced(form, "D", dtype);

    text = Filled(text, {{'B', Between(1, 5, random)}, {'N', n}, {'K', k}});
    Step step(text);
    hd_dtype of = step.Get().span[2].buffer->type.dtype;
    bool few = random() % 2 == 0;
    Case c = {text, {}, {}};

    for (int64_t i = 0; i < hd_span_elements(&step.Get().span[2]); i++)
        c.operand.push_back(Number(of, few, random));
    c.want = Sorted(of, c.operand, size_t(n), size_t(k));
    return c;
}

const char *const kDtypes[] = {"f64",    "f32", "f16", "bf16", "f8e4m3",
                               "f8e5m2", "i64", "i32", "u8"};

TEST(Pick, TopKPicksTheGreatestAndOfEqualOnesTheFirst)
{
    unsigned seed = Seed();
    std::mt19937 random(seed);
    std::vector<Case> cases;

    for (const char *dtype : kDtypes)
        for (const char *form : kTops)
            for (int i = 0; i < 3; i++)
                cases.push_back(DrawTop(form, dtype, random));
    CheckAll(cases, seed);
}

class PickNvrtc : public Nvrtc
{
};

TEST_F(PickNvrtc, CompilesTheTexts)
{
    std::mt19937 random(Seed());
    std::vector<Case> cases;

    for (const char *form : kRoutes)
        cases.push_back(DrawRoute(form, 40, random));
    for (const char *dtype : kDtypes)
        cases.push_back(DrawTop(kTops[random() % 2], dtype, random));
    for (const Case &c : cases) {
        EXPECT_FALSE(Compile(Step(c.text).Emitted().text, "sm_90a").empty())
            << hd_diag_text(diag_) << c.text;
    }
}

} // namespace
