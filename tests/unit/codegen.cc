// The emitted kernels, compiled for the host and run a thread at a time: their
// answers against the cpu kernels' and within the oracle's bounds, conversions
// code by code, and nothing else touched. Then, where NVRTC is installed, that
// it compiles them.
#include <algorithm>
#include <cmath>

#include <heddle/verify.h>

#include "base/diag.h"
#include "ir/counts.h"
#include "tests/seed.h"
#include "tests/unit/estimates.h"
#include "tests/unit/kernels.h"

namespace
{

const std::vector<hd_dtype> kDtypes = {
    HD_DTYPE_F64,    HD_DTYPE_F32, HD_DTYPE_F16, HD_DTYPE_BF16, HD_DTYPE_F8E4M3,
    HD_DTYPE_F8E5M2, HD_DTYPE_I64, HD_DTYPE_I32, HD_DTYPE_U8,   HD_DTYPE_I8};
const std::vector<std::string> kFloats = {"f64",  "f32",    "f16",
                                          "bf16", "f8e4m3", "f8e5m2"};
const std::vector<std::string> kAll = {"f64",    "f32", "f16", "bf16", "f8e4m3",
                                       "f8e5m2", "i64", "i32", "u8",   "i8"};

// ---------------------------------------------------------------------- cases

// What counts of a dimension are drawn as.
enum class Counts { Any, Fitting, OneOff };

// One step, computed by the cpu, by the oracle, and by its kernel. A matmul's
// kernel may be its epilogue alone: `product` is then the program of the plain
// product, whose second output is scratch memory.
struct Case {
    std::string program;
    unsigned seed;
    bool special;
    std::string product; // empty: the whole step
    bool exact = false;  // the cpu's bits, whatever the bounds
    int64_t columns = 0; // of every span, fewer than the program says
    Counts counts = Counts::Any;
};

class Checked
{
  public:
    explicit Checked(const Case &c)
        : case_(c), program_("host program kernel " + c.program)
    {
        EXPECT_EQ(program_.status, HD_OK) << program_.Said() << c.program;
        if (program_.status != HD_OK)
            return;
        EXPECT_EQ(hd_steps_collect(program_.module, 0, program_.diag, &steps_),
                  HD_OK)
            << program_.Said();
        for (int i = 0; case_.columns > 0 && i < Step().op->nviews; i++)
            steps_.span[i].extent[steps_.span[i].ndims - 1] = case_.columns;
    }
    Checked(const Checked &) = delete;
    Checked &operator=(const Checked &) = delete;
    ~Checked()
    {
        hd_steps_free(&steps_);
    }
    const hd_step &Step() const
    {
        return steps_.step[0];
    }
    Kernel Emitted() const
    {
        return Emit([this](hd_text *out, hd_kernel_grid *grid) {
            return case_.product.empty()
                       ? hd_emit_step(&Step(), program_.diag, out, grid)
                       : hd_emit_epilogue(&Step(), program_.diag, out, grid);
        });
    }
    // Empty, or what is off.
    std::string Wrong(const Host &host, size_t i, hd_kernel_grid grid,
                      size_t shift, bool backwards = false) const
    {
        Buffers have(program_.module, case_.seed, case_.special, shift);
        Buffers want(program_.module, case_.seed, case_.special, 0);
        for (const Buffers *one : {&have, &want})
            DrawCounts(*one);
        Estimates oracle(program_.module,
                         [&want](const hd_buffer *b) { return want.At(b); });
        std::vector<double> product;
        Addresses args;

        std::memset(&args, 0xee, sizeof args);
        for (int k = 0; k < Step().op->nviews; k++) {
            const hd_span &span = Step().span[k];
            int64_t size =
                static_cast<int64_t>(hd_dtype_size(span.buffer->type.dtype));

            args.at[k] = reinterpret_cast<uint64_t>(have.At(span)) +
                         static_cast<uint64_t>(span.offset * size);
        }
        if (!case_.product.empty()) {
            product = Product(want);
            args.at[Step().op->nviews] =
                reinterpret_cast<uint64_t>(product.data());
        }
        hd_kernel_miscount told = {0, -1, -1, -1};
        if (hd_kernel_tells(&Step())) {
            args.at[Step().op->nviews] = reinterpret_cast<uint64_t>(&told);
            args.at[Step().op->nviews + 1] = 41;
        }
        if (backwards)
            host.LaunchBackwards(i, args, grid);
        else
            host.Launch(i, args, grid);
        EXPECT_EQ(oracle.Compute(Step()), HD_OK);
        hd_miscount miscount = Compute(Step(), want);
        if ((told.step == 42) != miscount.found ||
            (miscount.found &&
             (told.group != miscount.group || told.count != miscount.count ||
              told.left != miscount.left)))
            return "another count is told than the cpu's";
        if (!have.GuardsAreWhole())
            return "bytes outside of the buffers are written";
        return Differs(have, want, oracle);
    }

  private:
    Case case_;
    Program program_;
    hd_steps steps_ = {};

    // What is not counted is a NaN; of integers it is what it was drawn as.
    void Poison(const Buffers &buffers, const hd_slabs &slabs, int64_t i,
                int64_t n) const
    {
        hd_span span[HD_MAX_VIEWS];
        const double nan = NAN;

        hd_slab_spans(&slabs, i, n, slabs.room, span);
        for (int v = Step().op->noutputs; v < slabs.view; v++) {
            hd_dtype dtype = span[v].buffer->type.dtype;
            char *base = static_cast<char *>(buffers.At(span[v]));

            if (span[v].buffer->by == nullptr || hd_dtype_is_integer(dtype))
                continue;
            for (int64_t k = 0; k < hd_span_elements(&span[v]); k++)
                hd_dtype_store(dtype, &nan, 1,
                               base + size_t(span[v].offset +
                                             hd_span_offset(&span[v], 0,
                                                            span[v].ndims, k)) *
                                          hd_dtype_size(dtype));
        }
    }
    void DrawCounts(const Buffers &buffers) const
    {
        std::mt19937 random(case_.seed);

        if (hd_op_key(Step().op, HD_KEY_COUNTS) == nullptr ||
            case_.counts == Counts::Any)
            return;
        hd_slabs slabs = hd_slabs_of(&Step());
        int32_t *counts =
            static_cast<int32_t *>(buffers.At(Step().span[slabs.view]));
        int64_t all = slabs.n * slabs.counts;
        int64_t odd = int64_t(random()) % all;
        for (int64_t i = 0; i < all; i++) {
            int64_t slab = i / slabs.counts, k = i % slabs.counts;
            int64_t n = int64_t(random()) % (slabs.room + 1);

            Poison(buffers, slabs, slab, n);
            if (i == odd && case_.counts == Counts::OneOff)
                n = random() % 2 == 0 ? -1 : slabs.room + 1;
            counts[hd_slab_count(&slabs, slab) + k * slabs.apart] = int32_t(n);
        }
    }

    // The plain product as a library leaves it, in room for doubles. The
    // buffers are the same but for one more after them.
    std::vector<double> Product(const Buffers &from) const
    {
        Program plain("host program kernel " + case_.product);
        hd_steps steps;

        EXPECT_EQ(plain.status, HD_OK) << plain.Said() << case_.product;
        EXPECT_EQ(hd_steps_collect(plain.module, 0, plain.diag, &steps), HD_OK);
        Buffers buffers(plain.module, case_.seed, case_.special, 0);
        const hd_buffer *b = program_.module->buffers, *last = nullptr;
        for (const hd_buffer *p = plain.module->buffers; p; p = p->next) {
            last = p;
            if (b == nullptr)
                continue;
            std::memcpy(buffers.At(p), from.At(b),
                        static_cast<size_t>(hd_type_local_elements(&p->type)) *
                            hd_dtype_size(p->type.dtype));
            b = b->next;
        }
        Compute(steps.step[0], buffers);
        std::vector<double> product(
            static_cast<size_t>(hd_type_local_elements(&last->type)));
        std::memcpy(product.data(), buffers.At(last),
                    product.size() * hd_dtype_size(last->type.dtype));
        hd_steps_free(&steps);
        return product;
    }
    // Scales before a sum or behind it give a zero either sign.
    bool IsZeroOfProduct(double value) const
    {
        return std::fabs(value) <= 0 &&
               hd_op_family(Step().op) == HD_FAMILY_PRODUCT;
    }
    std::string Differs(const Buffers &have, const Buffers &want,
                        const Estimates &oracle) const
    {
        for (const hd_buffer *b = program_.module->buffers; b; b = b->next) {
            size_t n = static_cast<size_t>(hd_type_local_elements(&b->type));
            size_t size = hd_dtype_size(b->type.dtype);
            const char *x = static_cast<const char *>(have.At(b));
            const char *y = static_cast<const char *>(want.At(b));

            for (size_t i = 0; i < n; i++) {
                double mine = At(b->type.dtype, x, i);
                double cpu = At(b->type.dtype, y, i);
                double value = oracle.At(b)[i].value,
                       bound = oracle.At(b)[i].bound;

                if (std::memcmp(x + i * size, y + i * size, size) == 0 ||
                    (std::isnan(mine) && std::isnan(cpu)) ||
                    (IsZeroOfProduct(mine) && IsZeroOfProduct(cpu)) ||
                    (bound > 0 && !case_.exact &&
                     std::fabs(mine - value) <= bound))
                    continue;
                return std::string("%") + b->name + " element " +
                       std::to_string(i) + ": " + std::to_string(mine) +
                       ", the cpu's is " + std::to_string(cpu) + ", " +
                       std::to_string(value) + " +- " + std::to_string(bound);
            }
        }
        return "";
    }
};

// Each kernel as it would be started, then with addresses that no vector can
// use, then by a few threads.
void CheckAll(const std::vector<Case> &cases)
{
    std::vector<std::unique_ptr<Checked>> checked;
    std::vector<Kernel> kernels;

    for (const Case &c : cases) {
        checked.push_back(std::make_unique<Checked>(c));
        if (::testing::Test::HasFailure())
            return;
        kernels.push_back(checked.back()->Emitted());
    }
    Host host(kernels);
    for (size_t i = 0; i < cases.size(); i++) {
        const std::string &said = cases[i].program;

        EXPECT_EQ(checked[i]->Wrong(host, i, kernels[i].grid, 0), "") << said;
        EXPECT_EQ(checked[i]->Wrong(host, i, kernels[i].grid, 1), "") << said;
        EXPECT_EQ(checked[i]->Wrong(host, i, Few(kernels[i].grid), 0), "")
            << said;
        // Which count is told does not depend on which thread is the first.
        if (hd_kernel_tells(&checked[i]->Step())) {
            EXPECT_EQ(checked[i]->Wrong(host, i, kernels[i].grid, 0, true), "")
                << said;
        }
    }
}

// ------------------------------------------------------------ element-wise

// Small ones with gaps in all places; rows that vectors fit in; and ranges
// that are no multiple of any vector.
std::vector<std::string> Shapes(const std::string &x, const std::string &y)
{
    return {
        "in %a : " + x + "[3, 5, 4] in %b : " + x + "[5, 4] in %v : " + x +
            "[4] out %y : " + y + "[5, 3, 4] out %t : " + y +
            "[4, 5] out %r : " + y + "[3, 4] out %s : " + y + "[3, 5] ",
        "in %a : " + x + "[3, 2, 48] in %b : " + x + "[2, 48] in %v : " + x +
            "[48] out %y : " + y + "[2, 3, 48] out %t : " + y +
            "[48, 2] out %r : " + y + "[3, 48] out %s : " + y + "[3, 2] ",
        "in %a : " + x + "[3, 37, 11] in %b : " + x + "[37, 11] in %v : " + x +
            "[11] out %y : " + y + "[37, 3, 11] out %t : " + y +
            "[11, 37] out %r : " + y + "[3, 11] out %s : " + y + "[3, 37] ",
    };
}

std::vector<Case> ElementWise()
{
    std::vector<Case> cases;

    for (const std::string &d : kAll)
        for (const std::string &shape : Shapes(d, d))
            for (const char *op :
                 {"%y[:, 1] = copy %a[1]", "%y[:, 2] = sum %a[0], %b, %a[2]",
                  "%y[:, 0] = max %a[0], %a[2]", "%y[:, 1] = add %a[2], %v",
                  "%y[:, 1] = mul %a[2], %b", "%r = sum %a dim 1",
                  "%r = max %a dim 1", "%s = sum %a dim 2",
                  "%s[0] = max %b dim 1", "%t = transpose %b"})
                cases.push_back(
                    {shape + "{ " + op + " }", 1, false, "", false});
    return cases;
}

TEST(Codegen, ElementWiseOperationsAreTheCpusInEveryDtype)
{
    CheckAll(ElementWise());
}

std::vector<Case> Activations()
{
    std::vector<Case> cases;

    for (const std::string &d : kFloats)
        for (const char *op : {"relu %a",          "gelu %a",
                               "silu %a",          "scale %a by 0.375",
                               "scale %a by 0.1",  "scale %a by %f",
                               "neg %a",           "abs %a",
                               "exp %a",           "tanh %a",
                               "sigmoid %a",       "sin %a",
                               "cos %a",           "floor %a",
                               "gelu_erf %a",      "relu_grad %a, %b",
                               "gelu_grad %a, %b", "gelu_erf_grad %a, %b",
                               "silu_grad %a, %b", "pow %a, 3",
                               "div %a, %b",       "fill value 0.1",
                               "fill value %f"})
            cases.push_back({"in %a : " + d + "[7, 43] in %b : " + d +
                                 "[7, 43] in %f : f32[1] out %y : " + d +
                                 "[7, 43] { %y = " + op + " }",
                             5, false, "", false});
    for (const std::string &d : kFloats)
        for (const char *op : {"log %a", "sqrt %a", "rsqrt %a"})
            cases.push_back({"in %a : " + d + "[7, 43] out %y : " + d +
                                 "[7, 43] { %y = " + op + " }",
                             5, false, "", false});
    for (const char *d : {"i64", "i32", "u8", "i8"})
        for (const char *op : {"scale %a by 3", "scale %a by 0.3"})
            cases.push_back({std::string("in %a : ") + d + "[7, 43] out %y : " +
                                 d + "[7, 43] { %y = " + op + " }",
                             5, false, "", false});
    return cases;
}

TEST(Codegen, ActivationsAndFactorsAreWithinTheBounds)
{
    CheckAll(Activations());
}

// One operation in float is one in double that is rounded to float; and what a
// float cannot hold of a factor is not lost.
TEST(Codegen, SingleOperationsAreTheCpusBitByBit)
{
    std::vector<Case> cases;

    for (const char *d : {"f64", "f32", "i64", "i32", "u8", "i8"})
        for (const char *op :
             {"add %a, %b", "mul %a, %b", "sum %a, %b", "max %a, %b",
              "scale %a by 3", "sub %a, %b", "div %a, %b", "min %a, %b",
              "neg %a", "abs %a", "fill value 2.5", "fill value -3e9",
              "sub 3, %a", "div 7, %a", "sum %a, 2, %b"})
            cases.push_back({std::string("in %a : ") + d +
                                 "[997] in %b : " + d + "[997] out %y : " + d +
                                 "[997] { %y = " + op + " }",
                             37, false, "", true});
    for (const char *d : {"f64", "f32"})
        for (const char *op : {"relu %a", "scale %a by 0.1", "scale %a by %f"})
            cases.push_back({std::string("in %a : ") + d +
                                 "[997] in %f : f32[1] out %y : " + d +
                                 "[997] { %y = " + op + " }",
                             41, false, "", true});
    CheckAll(cases);
}

TEST(Codegen, NumbersAreOperandsAsTheirDtypeRoundsThem)
{
    std::vector<Case> cases;

    for (const std::string &d : kFloats)
        cases.push_back({"in %a : " + d + "[97] in %m : u8[97] out %y : " + d +
                             "[97] { %y = select %m, %a, -1 / 3 }",
                         17, false, "", true});
    cases.push_back({"in %a : f16[97] out %y : u8[97] { %y = gt 0.1, %a }", 17,
                     false, "", true});
    cases.push_back({"in %a : i64[97] out %y : i64[97] "
                     "{ %y = sub %a, -9007199254740991 }",
                     17, false, "", true});
    CheckAll(cases);
}

std::vector<Case> Casts()
{
    std::vector<Case> cases;

    for (const std::string &from : kAll)
        for (const std::string &to : kAll)
            for (int s = 0; s < 2; s++)
                cases.push_back({Shapes(from, to)[s == 0 ? 0 : 2] +
                                     (s == 0 ? "{ %y[:, 1] = copy %a[1] }"
                                             : "{ %r = copy %a[:, 3] }"),
                                 11, s == 1, ""});
    return cases;
}

TEST(Codegen, CopyCastsBetweenAllDtypes)
{
    CheckAll(Casts());
}

// Truths and what is selected by them, of numbers that are often equal and
// where NaNs are among them; each of the operands repeats along something.
std::vector<Case> Selections()
{
    std::vector<Case> cases;

    for (const std::string &d : kAll)
        for (bool special : {false, true})
            for (const char *op : {"lt %a, %b", "le %b, %a", "gt %a, %r",
                                   "ge %a, %b", "eq %a, %a", "ne %b, %a"})
                cases.push_back({"in %a : " + d + "[9, 32] in %b : " + d +
                                     "[9, 1] in %r : " + d +
                                     "[32] in %m : u8[9, 1] " +
                                     "out %t : u8[9, 32] out %y : " + d +
                                     "[9, 32] { %t = " + op + " }",
                                 7, special, "", true});
    for (const std::string &d : kAll)
        cases.push_back({"in %a : " + d + "[9, 32] in %b : " + d +
                             "[9, 1] in %m : u8[32] out %y : " + d +
                             "[9, 32] { %y = select %m, %a, %b }",
                         7, false, "", true});
    return cases;
}

TEST(Codegen, TruthsAndSelectionsAreTheCpusBitByBit)
{
    CheckAll(Selections());
}

TEST(Codegen, OperandsRepeatAlongAnyDimension)
{
    std::vector<Case> cases;

    for (const std::string &d : kAll)
        for (const char *b : {"[1, 5, 8]", "[3, 1, 8]", "[3, 5, 1]", "[5, 1]",
                              "[1, 1, 1]", "[]", "[1]", "[3, 1, 1]"})
            for (const char *op : {"sub %a, %b", "sub %b, %a", "max %b, %a"})
                cases.push_back({"in %a : " + d + "[3, 5, 8] in %b : " + d + b +
                                     " out %y : " + d +
                                     "[3, 5, 8] { %y = " + op + " }",
                                 13, false, "", true});
    for (const std::string &d : kAll)
        for (const char *op :
             {"%y = sum %a dim 1", "%z = min %a dim 2", "%w = max %a dim 0"})
            cases.push_back({"in %a : " + d + "[3, 5, 8] out %y : " + d +
                                 "[3, 1, 8] out %z : " + d +
                                 "[3, 5, 1] out %w : " + d + "[1, 5, 8] { " +
                                 op + " }",
                             13, false, "", false});
    CheckAll(cases);
}

TEST(Codegen, InfinitiesAndNaNsAreTheCpus)
{
    std::vector<Case> cases;

    for (const std::string &d : kFloats)
        for (const char *op :
             {"add %a, %b", "mul %a, %b", "max %a, %b, %c", "relu %a",
              "silu %a", "scale %a by 0.5", "scale %a by 0.1", "sub %a, %b",
              "div %a, %b", "min %a, %b, %c", "neg %a", "abs %a", "exp %a",
              "sqrt %a", "rsqrt %a", "tanh %a", "sigmoid %a",
              "relu_grad %a, %b"})
            cases.push_back({"in %a : " + d + "[333] in %b : " + d +
                                 "[333] in %c : " + d + "[333] out %y : " + d +
                                 "[333] { %y = " + op + " }",
                             3, true, "", false});
    CheckAll(cases);
}

// Each is loaded as it is stored, into f32, and the sum is rounded once.
TEST(Codegen, SumsTakeF32BesideANarrowerDtype)
{
    std::vector<Case> cases;

    for (const char *d : {"f16", "bf16", "f8e4m3", "f8e5m2"})
        for (const char *op :
             {"%y = sum %a, %b", "%y = sum %b, %a, %a, %b", "%z = sum %b, %a",
              "%z = sum %b, %b", "%y = sum %c, %b"})
            cases.push_back({std::string("in %a : f32[6, 37] in %b : ") + d +
                                 "[6, 37] in %c : f32[37] out %y : " + d +
                                 "[6, 37] out %z : f32[6, 37] { " + op + " }",
                             19, false, "", true});
    CheckAll(cases);
}

TEST(Codegen, AResultMayLieOverAnOperand)
{
    std::vector<Case> cases;

    for (const std::string &d : kFloats)
        for (const char *op :
             {"%x = add %x, %b", "%x[1] = relu %x[1]", "%x = scale %x by 0.5",
              "%x = sum %b, %x, %b", "%x = sum %x, %x"})
            cases.push_back({"inout %x : " + d + "[5, 32] in %b : " + d +
                                 "[5, 32] { " + op + " }",
                             13, false, "", false});
    CheckAll(cases);
}

// Rows that begin where a vector may but have no whole number of them, and the
// other way round.
TEST(Codegen, RowsThatVectorsDoNotFit)
{
    std::vector<Case> cases;

    for (const std::string &d : kAll) {
        cases.push_back({"in %a : " + d + "[5, 4, 4] out %y : " + d +
                             "[5, 4, 4] { %y[:, 0] = add %a[:, 0], %a[:, 0] }",
                         43, false, "", false, 0});
        cases.push_back({"in %a : " + d + "[5, 21] out %y : " + d +
                             "[5, 21] { %y = max %a, %a }",
                         43, false, "", false, 16});
        cases.push_back({"in %a : " + d + "[5, 3, 7] out %y : " + d +
                             "[3, 7] { %y = sum %a dim 0 }",
                         43, false, "", false, 0});
    }
    CheckAll(cases);
}

// Rows that vectors fit in, and that they do not; one index an element, of a
// batch, or for all; what lies apart, and is turned.
std::vector<Case> Takes()
{
    std::vector<Case> cases;

    for (const std::string &d : kAll)
        for (const char *program :
             {"in %a : $[3, 7, 5, 16] in %i : i32[3, 4] "
              "out %y : $[3, 4, 5, 16] { %y = take %a, %i dim 1 }",
              "in %a : $[9, 48] in %i : i32[2, 40] out %y : $[2, 40, 48] "
              "{ %y = take %a, %i dim 0 }",
              "in %a : $[5, 48] in %i : i32[2, 40] out %y : $[2, 40, 48] "
              "{ %y = take %a, %i dim 0 start 3 }",
              "in %a : $[9, 11] in %i : i32[37] out %y : $[37, 11] "
              "{ %y = take %a, %i dim 0 }",
              "in %a : $[4, 9] in %i : i32[4, 2, 16] out %y : $[4, 2, 16] "
              "{ %y = take %a, %i dim 1 }",
              "in %a : $[5] in %i : i32[] out %y : $[] "
              "{ %y = take %a, %i dim 0 }",
              "in %a : $[5, 1] in %i : i32[5] out %y : $[5] "
              "{ %y = take %a, %i dim 1 }",
              "in %a : $[2, 5, 3, 16] in %i : i32[4, 3, 2] "
              "out %y : $[4, 3, 16] "
              "{ %y[:, 1] = take %a[1, :, 2], %i[:, 1, 0] dim 0 }",
              "in %a : $[6, 5, 7] in %i : i32[6, 5, 9] out %y : $[6, 5, 9] "
              "{ %y[1..4, :, 2..7] = take %a[1..4, :, 2..6], "
              "%i[1..4, :, 4..9] dim 2 }"}) {
            std::string text = program;

            for (size_t at; (at = text.find('$')) != std::string::npos;)
                text.replace(at, 1, d);
            cases.push_back({text, 53, true, "", true, 0});
        }
    return cases;
}

TEST(Codegen, TakesOfEveryShapeAreTheCpusBitByBit)
{
    std::vector<Case> cases = Takes();
    std::string text;

    CheckAll(cases);
    for (const Case &c : cases) // rows of f16, in vectors of 8
        if (c.program.find(": f16[9, 48]") != std::string::npos)
            text = Checked(c).Emitted().text;
    EXPECT_NE(text.find("enum { W = 8 }"), std::string::npos) << text;
    EXPECT_NE(text.find("if (v2 >= 0 && (u32)v2 < 9u) {\n"
                        "            const vector1 v = *(const vector1 *)"
                        "(p1 + o1 + (u32)v2 * 48u);"),
              std::string::npos)
        << text;
}

// Sums are exact, in threads of few rows and in tiles of more.
std::vector<Case> IntegerMatmuls()
{
    std::vector<Case> cases;

    for (const char *op :
         {"in %a : i8[5, 70] in %b : i8[70, 7] out %y : i32[5, 7] "
          "{ %y = matmul %a, %b }",
          "in %a : i8[65, 70] in %b : i8[90, 70] in %i : i32[90] "
          "inout %y : i32[65, 90] "
          "{ %y = matmul %a, %b tb bias %i accumulate }",
          "in %a : i8[70, 65] in %b : i8[70, 90] in %i : f32[90] "
          "out %y : f32[65, 90] { %y = matmul %a, %b ta scale 0.3 bias %i }"})
        cases.push_back({op, 59, false, "", true, 0});
    return cases;
}

TEST(Codegen, ProductsOfIntegersAreTheCpusBitByBit)
{
    CheckAll(IntegerMatmuls());
}

// Along rows that vectors fit in and that they do not, along what is outside of
// rows, in what lies apart.
std::vector<Case> Places()
{
    std::vector<Case> cases;

    for (const char *d : {"i32", "i64"})
        for (const char *op :
             {"out %y : $[5, 48] { %y = iota dim 1 }",
              "out %y : $[5, 48] { %y = iota dim 0 start 7 }",
              "out %y : $[5, 11] { %y = iota dim 1 start 2147483000 }",
              "out %y : $[3, 1, 4, 16] { %y = iota dim 2 start 1 }",
              "out %y : $[16, 5, 48] { %y[:, 2, 3..36] = iota dim 0 }",
              "out %y : $[16, 5, 48] { %y[:, 2, 3..36] = iota dim 1 start 9 }",
              "out %y : $[1] { %y = iota dim 0 start 3 }"}) {
            std::string text = op;

            text.replace(text.find('$'), 1, d);
            cases.push_back({text, 61, false, "", true, 0});
        }
    return cases;
}

TEST(Codegen, PlacesOfElementsAreTheCpusBitByBit)
{
    CheckAll(Places());
}

// Elements are taken in square tiles where those fit.
TEST(Codegen, TransposesOfEveryShape)
{
    std::vector<Case> cases;

    for (const std::string &d : kAll)
        for (const char *extents :
             {"48, 2, 32", "32, 3, 5", "16, 3, 16", "24, 1, 16"}) {
            int a, b, c;

            ASSERT_EQ(std::sscanf(extents, "%d, %d, %d", &a, &b, &c), 3);
            std::string out = std::to_string(c) + ", " + std::to_string(b) +
                              ", " + std::to_string(a);
            cases.push_back({"in %a : " + d + "[" + extents +
                                 "] out %y : " + d + "[" + out +
                                 "] { %y = transpose %a dim0 0 dim1 2 }",
                             47, false, "", true, 0});
        }
    for (const std::string &d : kAll)
        cases.push_back({"in %a : " + d + "[48, 2, 32, 3] out %y : " + d +
                             "[32, 3, 48, 2] "
                             "{ %y = permute %a order (2, 3, 0, 1) }",
                         47, false, "", true, 0});
    CheckAll(cases);
    EXPECT_NE(Checked(cases[0]).Emitted().text.find(
                  "const u32 i4 = r % 16u;\n        r /= 16u;\n"
                  "        const u32 i3 = r % 16u;"),
              std::string::npos);
}

// Views of eight dimensions, where random ones are dropped.
TEST(Codegen, AnyViewsOfEightDimensions)
{
    std::mt19937 random(17);
    std::vector<Case> cases;

    for (int trial = 0; trial < 40; trial++) {
        std::string extents, picks[2], kept, tail;
        std::string d = kAll[random() % kAll.size()];

        for (int i = 0; i < 8; i++) {
            unsigned extent = 1 + random() % 3 * (random() % 3);
            bool drop = random() % 3 == 0;

            extents += (i > 0 ? ", " : "") + std::to_string(extent);
            for (std::string &pick : picks)
                pick += (i > 0 ? ", " : "") +
                        (drop ? std::to_string(random() % extent)
                              : std::string(":"));
            if (!drop)
                kept += (kept.empty() ? "" : ", ") + std::to_string(extent);
        }
        cases.push_back({"in %a : " + d + "[" + extents + "] in %b : " + d +
                             "[" + kept + "] out %y : " + d + "[" + extents +
                             "] { %y[" + picks[0] + "] = add %a[" + picks[1] +
                             "], %b }",
                         static_cast<unsigned>(trial), false, "", false});
    }
    CheckAll(cases);
}

TEST(Codegen, FifteenOperandsAreAddedInOrder)
{
    std::string operands;

    for (int i = 0; i < 15; i++)
        operands +=
            std::string(i > 0 ? ", " : "") + "%a[" + std::to_string(i) + "]";
    std::vector<Case> cases;
    for (const std::string &d : kAll)
        cases.push_back({"in %a : " + d + "[15, 77] out %y : " + d +
                             "[77] { %y = sum " + operands + " }",
                         19, false, "", false});
    CheckAll(cases);
}

// ------------------------------------------------------------------ matmuls

// Buffers and the op, without what follows the product.
struct Product {
    const char *a, *b, *c;                 // extents
    const char *left, *right, *out, *keys; // views
    const char *columns;
};

const std::vector<Product> kProducts = {
    {"5, 7", "7, 6", "5, 6", "%a", "%b", "%c", "", "6"},
    {"7, 5", "7, 6", "5, 6", "%a", "%b", "%c", "ta", "6"},
    {"5, 7", "6, 7", "5, 6", "%a", "%b", "%c", "tb", "6"},
    {"7, 5", "6, 7", "5, 6", "%a", "%b", "%c", "ta tb", "6"},
    {"7", "7, 6", "6", "%a", "%b", "%c", "", "6"},
    {"5, 3", "3, 32", "5, 32", "%a", "%b", "%c", "", "32"},
    {"3, 5, 7", "3, 7, 6", "3, 5, 6", "%a", "%b", "%c", "", "6"},
    {"3, 7, 5", "3, 6, 7", "3, 5, 6", "%a", "%b", "%c", "ta tb", "6"},
    {"5, 7", "3, 7, 6", "3, 5, 6", "%a", "%b", "%c", "", "6"},
    {"2, 5, 7", "3, 7, 6", "3, 2, 5, 6", "%a", "%b", "%c", "", "6"},
    {"7, 5", "3, 7, 6", "3, 5, 6", "%a", "%b", "%c", "ta", "6"},
    {"2, 3, 5, 7", "3, 7, 6", "2, 3, 5, 6", "%a", "%b", "%c", "", "6"},
    {"3, 5, 7", "2, 3, 6, 7", "2, 3, 5, 6", "%a", "%b", "%c", "tb", "6"},
    {"2, 1, 7, 5", "1, 3, 7, 6", "2, 3, 5, 6", "%a", "%b", "%c", "ta", "6"},
    {"2, 3, 7, 5", "7, 6", "2, 3, 5, 6", "%a", "%b", "%c", "ta", "6"},
    {"3, 2, 5, 7", "7, 6", "3, 5, 2, 6", "%a[:, 1]", "%b", "%c[:, :, 0]", "",
     "6"},
    {"67, 7", "7, 70", "67, 70", "%a", "%b", "%c", "", "70"},
    {"2, 3, 7, 9", "3, 8, 7", "2, 3, 9, 8", "%a", "%b", "%c", "ta tb", "8"},
    {"3, 2, 4, 5, 7", "3, 2, 1, 6, 7", "3, 3, 4, 5, 16", "%a[:, 1]", "%b[:, 0]",
     "%c[:, 2, :, :]", "tb", "6"},
};

std::string Text(const Product &p, const std::string &x, const std::string &w,
                 const std::string &y, const std::string &extra,
                 const std::string &keys)
{
    std::string c = p.c;

    if (c == "3, 3, 4, 5, 16")
        c = "3, 3, 4, 5, 6";
    return "in %a : " + x + "[" + p.a + "] in %b : " + w + "[" + p.b +
           "] inout %c : " + y + "[" + c + "] in %v : " + y + "[" + p.columns +
           "] in %f : f32[1] inout %z : " + y + "[" + c + "] " + extra + "{ " +
           keys + " }";
}

std::string Body(const Product &p, const std::string &keys)
{
    std::string out = p.out;
    size_t c = keys.find("%z");
    std::string rest = keys;

    if (c != std::string::npos)
        rest.replace(c, 2, "%z" + out.substr(2));
    return out + " = matmul " + p.left + ", " + p.right + " " + p.keys + rest;
}

const std::vector<std::string> kKeys = {
    "",
    " scale 0.5 bias %v act relu aux %z",
    " scale 0.3 act gelu accumulate",
    " scale %f bias %v act silu aux %z accumulate",
};

struct Mix {
    const char *a, *b, *c;
};

const std::vector<Mix> kMixes = {
    {"f64", "f64", "f64"},       {"f32", "f32", "f32"},
    {"f16", "f16", "f16"},       {"bf16", "bf16", "bf16"},
    {"f8e4m3", "f8e5m2", "f16"}, {"bf16", "bf16", "f32"},
    {"f32", "f32", "f64"},       {"f32", "f32", "bf16"},
    {"f64", "f64", "f32"},       {"f8e5m2", "f8e5m2", "f8e4m3"},
};

std::vector<Case> Matmuls()
{
    std::vector<Case> cases;

    for (size_t i = 0; i < kMixes.size(); i++)
        for (size_t p = 0; p < kProducts.size(); p++) {
            const Mix &m = kMixes[i];
            const std::string &keys = kKeys[(i + p) % kKeys.size()];

            cases.push_back({Text(kProducts[p], m.a, m.b, m.c, "",
                                  Body(kProducts[p], keys)),
                             23, false, "", false});
        }
    return cases;
}

TEST(Codegen, MatmulsOfEveryShapeAndDtype)
{
    CheckAll(Matmuls());
}

// Counts are drawn without regard to the rows: most do not fit.
std::vector<Case> GroupedMatmuls()
{
    static const char *const forms[] = {
        "in %a : X[3, 9, 7] in %b : W[4, 7, 5] in %n : i32[2, 4] "
        "inout %c : Y[3, 9, 5] { %c[1] = matmul %a[1], %b groups %n[1] }",
        "in %a : X[9, 3, 7] in %b : W[4, 3, 5, 7] in %n : i32[4, 2] "
        "inout %c : Y[9, 3, 5] inout %z : Y[3, 9, 5] in %f : f32[1] "
        "{ %c[:, 1] = matmul %a[:, 1], %b[:, 1] tb scale %f act silu "
        "aux %z[1] groups %n[:, 1] keep }",
        "in %a : X[9, 7] in %b : W[4, 7, 5] in %n : i32[4] "
        "inout %c : Y[9, 5] inout %z : Y[9, 5] { %c = "
        "matmul %a, %b scale 0.3 act relu aux %z accumulate groups %n }",
        "in %a : X[3, 9, 7] in %b : W[9, 3, 5] in %n : i32[2, 4] "
        "inout %c : Y[4, 3, 7, 5] { %c[:, 1] = "
        "matmul %a[1], %b[:, 1] ta scale 0.5 groups %n[1] }",
        "in %a : X[9, 7] in %b : W[9, 5] in %n : i32[4] "
        "inout %c : Y[4, 7, 5] "
        "{ %c = matmul %a, %b ta accumulate groups %n }",
        "in %a : X[99, 7] in %b : W[4, 7, 70] in %n : i32[4] "
        "in %v : Y[4, 70] inout %c : Y[99, 70] "
        "{ %c = matmul %a, %b bias %v groups %n }",
        "in %a : X[30, 9] in %b : W[5, 7, 9] in %n : i32[5] "
        "in %v : f32[5, 3, 7] inout %c : Y[30, 7] inout %z : Y[30, 7] "
        "{ %c = matmul %a, %b tb scale 0.5 bias %v[:, 1] act gelu aux %z "
        "groups %n keep }",
        "in %a : X[30, 70] in %b : W[30, 7] in %n : i32[2, 4] "
        "inout %c : Y[4, 70, 7] { %c = matmul %a, %b ta groups %n[1] }",
        "in %a : X[30, 9] in %b : W[5, 7, 9] in %n : i32[5] "
        "in %s : f32[30, 2, 3] in %t : f32[5, 2, 3] inout %c : Y[30, 7] "
        "{ %c = matmul %a, %b tb scale_a %s[:, 1] scale_b %t grain 4 act relu "
        "groups %n }",
        "in %a : X[30, 9] in %b : W[5, 9, 7] in %n : i32[5] "
        "in %s : f32[30, 1] in %t : f32[5, 2, 1, 7] inout %c : Y[30, 7] "
        "{ %c = matmul %a, %b scale_a %s scale_b %t[:, 1] groups %n keep }",
        "in %a : X[30, 9] in %b : W[30, 7] in %n : i32[4] "
        "in %s : f32[10, 9] in %t : f32[30, 7] inout %c : Y[4, 9, 7] "
        "{ %c = matmul %a, %b ta scale_a %s scale_b %t grain 3 scale 0.5 "
        "groups %n }",
    };
    std::vector<Case> cases;
    unsigned seed = Seed();

    for (size_t i = 0; i < kMixes.size(); i++)
        for (size_t k = 0; k < std::size(forms); k++) {
            std::string text = forms[k];
            const std::pair<char, const char *> dtypes[] = {
                {'X', kMixes[i].a}, {'W', kMixes[i].b}, {'Y', kMixes[i].c}};

            for (const auto &dtype : dtypes)
                for (size_t at;
                     (at = text.find(dtype.first)) != std::string::npos;)
                    text.replace(at, 1, dtype.second);
            cases.push_back(
                {text, seed + unsigned(std::size(forms) * i + k), false, ""});
        }
    return cases;
}

TEST(Codegen, GroupedMatmulsTakeAnyCountsWithinTheirRows)
{
    CheckAll(GroupedMatmuls());
}

// ------------------------------------------------------------------- counts

// Rows that are joined to vectors, that are not, in tiles, behind what is
// reduced and multiplied, and what is reduced and multiplied itself.
const std::vector<std::string> kCounted = {
    "in %a : $[3, 5, 24 by %n, 16] in %v : $[16] inout %y : $[5, 24, 16] "
    "{ %y = add %a[1], %v }",
    "in %a : $[3, 5, 24 by %n, 7] in %b : $[5, 24, 7] inout %y : $[5, 24, 7] "
    "{ %y = sum %b, %a[2] }",
    "in %a : $[3, 5, 24 by %n, 3, 4] inout %y : $[3, 5, 24 by %n, 3, 4] "
    "{ %y[0] = max %a[0], %y[0] }",
    "in %a : $[3, 5, 32 by %n, 48] inout %y : $[5, 48, 32] "
    "{ %y = transpose %a[1] }",
    "in %a : $[3, 5, 16 by %n, 2] inout %y : $[16, 5, 2] "
    "{ %y = transpose %a[0] dim0 0 dim1 1 }",
    "in %a : $[3, 5, 7, 48 by %n] inout %y : $[3, 5, 7, 48 by %n] "
    "{ %y = copy %a }",
    "in %a : $[3, 5, 1 by %n, 4] inout %y : $[3, 5, 1, 4] { %y = copy %a }",
    "in %a : $[3, 5, 24 by %n, 8] in %f : f32[1] inout %y : $[3, 5, 24, 8] "
    "{ %y = scale %a by %f }",
    "inout %y : $[3, 5, 24 by %n, 8] in %f : f32[1] { %y = fill value %f }",
    "in %a : $[24 by %l, 8] inout %y : $[24, 8] { %y = copy %a }",
    "in %a : $[3, 5, 24 by %n, 16] inout %y : $[3, 5, 16] "
    "{ %y = sum %a dim 2 }",
    "in %a : $[3, 5, 24 by %n, 7] inout %y : $[5, 1, 7] "
    "{ %y = max %a[1] dim 1 }",
    "in %a : $[3, 5, 7, 24 by %n] inout %y : $[3, 7] "
    "{ %y = min %a[:, 4] dim 2 }",
    "in %a : $[3, 5, 24 by %n, 16] inout %y : $[3, 5, 24] "
    "{ %y = sum %a dim 3 }",
    "in %a : $[3, 5, 24 by %n, 16] inout %y : $[5, 24, 16] "
    "{ %y = max %a dim 0 }",
    "in %a : $[3, 5, 7, 3 by %n] inout %y : $[3, 1, 7, 3] { %y = sum %a dim 1 "
    "}",
};

const std::vector<std::string> kCountedMatmuls = {
    "in %a : X[3, 5, 9 by %n, 7] in %b : W[5, 7, 6] inout %c : Y[5, 9, 6] "
    "{ %c = matmul %a[1], %b }",
    "in %a : X[3, 5, 9 by %n, 7] in %b : W[5, 6, 7] in %v : Y[6] "
    "inout %c : Y[5, 9, 6] inout %z : Y[5, 9, 6] in %f : f32[1] "
    "{ %c = matmul %a[0], %b tb scale %f bias %v act relu aux %z accumulate }",
    "in %a : X[3, 5, 9 by %n, 7] in %b : W[5, 9, 6] inout %c : Y[5, 7, 6] "
    "{ %c = matmul %a[2], %b ta scale 0.5 }",
    "in %a : X[5, 7, 9] in %b : W[3, 5, 9 by %n, 6] inout %c : Y[5, 7, 6] "
    "{ %c = matmul %a, %b[1] accumulate }",
    // In tiles: of rows, with a dimension behind them, of columns, of the
    // depth.
    "in %a : X[3, 5, 70 by %n, 7] in %b : W[7, 9] in %v : Y[9] "
    "inout %c : Y[3, 5, 70, 9] { %c = matmul %a, %b bias %v act relu }",
    "in %a : X[3, 5, 3 by %n, 4, 7] in %b : W[7, 9] inout %z : Y[3, 5, 3, 4, 9]"
    "inout %c : Y[3, 5, 3, 4, 9] { %c = matmul %a, %b aux %z accumulate }",
    "in %a : X[5, 9, 7] in %b : W[3, 5, 70 by %n, 7] inout %c : Y[5, 9, 70] "
    "{ %c = matmul %a, %b[2] tb scale 0.5 }",
    "in %a : X[3, 5, 9 by %n, 8] in %b : W[5, 9, 70] inout %c : Y[5, 8, 70] "
    "{ %c = matmul %a[1], %b ta }",
};

// Counts of every kind: all fit, or nearly all do, or hardly any.
std::vector<Case> CountedBy(const std::vector<std::string> &bodies,
                            std::pair<char, std::string> x,
                            std::pair<char, std::string> w,
                            std::pair<char, std::string> y, unsigned seed)
{
    std::vector<Case> cases;

    for (std::string body : bodies) {
        for (const auto &dtype : {x, w, y})
            for (size_t at; (at = body.find(dtype.first)) != std::string::npos;)
                body.replace(at, 1, dtype.second);
        for (Counts counts : {Counts::Fitting, Counts::OneOff, Counts::Any})
            cases.push_back({"in %n : i32[3, 5] in %l : i32[] " + body, seed++,
                             false, "", false, 0, counts});
    }
    return cases;
}

std::vector<Case> Counted()
{
    unsigned seed = Seed();
    std::vector<Case> cases;

    for (const std::string &d : kAll)
        for (const Case &c :
             CountedBy(kCounted, {'$', d}, {'$', d}, {'$', d}, seed += 97))
            cases.push_back(c);
    return cases;
}

TEST(Codegen, CountedDimensionsAreTheCpusInEveryDtype)
{
    CheckAll(Counted());
}

std::vector<Case> CountedMatmuls()
{
    unsigned seed = Seed();
    std::vector<Case> cases;

    for (const Mix &m : kMixes)
        for (const Case &c : CountedBy(kCountedMatmuls, {'X', m.a}, {'W', m.b},
                                       {'Y', m.c}, seed += 97))
            cases.push_back(c);
    return cases;
}

TEST(Codegen, CountedMatmulsAreTheCpusInEveryDtype)
{
    CheckAll(CountedMatmuls());
}

// ------------------------------------------------------------------- scales

// Of rows, columns and blocks, whose last ones are shorter, in batches, beside
// counts; and what follows a library's product.
const std::vector<std::string> kScaled = {
    "in %a : X[5, 7] in %b : W[7, 6] in %s : f32[5, 1] in %t : f32[1, 6] "
    "inout %c : Y[5, 6] { %c = matmul %a, %b scale_a %s scale_b %t }",
    "in %a : X[5, 7] in %b : W[7, 6] in %s : f32[5, 3] in %t : f32[3, 2] "
    "inout %c : Y[5, 6] { %c = matmul %a, %b scale_a %s scale_b %t grain 3 }",
    "in %a : X[7, 5] in %b : W[6, 7] in %s : f32[7, 2] in %t : f32[6, 3] "
    "in %f : f32[1] inout %c : Y[5, 6] inout %z : Y[5, 6] "
    "{ %c = matmul %a, %b ta tb scale %f scale_a %s scale_b %t grain 3 act "
    "relu "
    "aux %z accumulate }",
    "in %a : X[3, 2, 5, 7] in %b : W[3, 1, 7, 6] in %s : f32[3, 2, 3, 1] "
    "in %t : f32[2, 3, 1, 4, 6] inout %c : Y[3, 2, 5, 6] "
    "{ %c = matmul %a, %b scale_a %s scale_b %t[1] grain 2 }",
    "in %a : X[3, 2, 5, 7] in %b : W[3, 1, 7, 6] in %s : f32[1, 2, 1, 4] "
    "inout %c : Y[3, 2, 5, 6] { %c = matmul %a, %b scale_a %s grain 2 }",
    "in %a : X[3, 5, 9 by %n, 7] in %b : W[5, 7, 6] in %s : f32[5, 9, 3] "
    "in %t : f32[5, 3, 2] inout %c : Y[5, 9, 6] "
    "{ %c = matmul %a[1], %b scale_a %s scale_b %t grain 3 }",
    "in %a : X[3, 5, 9 by %n, 7] in %b : W[5, 9, 6] in %s : f32[5, 9, 1] "
    "in %t : f32[5, 1, 2] inout %c : Y[5, 7, 6] "
    "{ %c = matmul %a[2], %b ta scale_a %s scale_b %t grain 3 }",
};

std::vector<Case> Scaled()
{
    unsigned seed = Seed();
    std::vector<Case> cases;

    for (const Mix &m : kMixes)
        for (const Case &c :
             CountedBy(kScaled, {'X', m.a}, {'W', m.b}, {'Y', m.c}, seed += 97))
            cases.push_back(c);
    return cases;
}

TEST(Codegen, ScaledMatmulsAreTheCpusInEveryDtype)
{
    CheckAll(Scaled());
}

std::vector<Case> ScaledEpilogues()
{
    std::vector<Case> cases;

    for (const Mix &m : kMixes)
        for (const char *scales : {"scale_a %s", "scale_b %t",
                                   "scale 0.5 scale_a %s scale_b %t "
                                   "grain 4 bias %t act relu"}) {
            std::string text =
                std::string("in %a : ") + m.a + "[32, 7] in %b : " + m.b +
                "[7, 32] in %s : f32[" +
                (std::strlen(scales) > 10 ? "8" : "32") +
                ", 1] in %t : f32[1, 32] inout %c : " + m.c + "[32, 32] ";

            cases.push_back(
                {text + "{ %c = matmul %a, %b " + scales + " }", 29, false,
                 text +
                     "out %p : " + (std::string(m.a) == "f64" ? "f64" : "f32") +
                     "[32, 32] { %p = matmul %a, %b }"});
        }
    return cases;
}

TEST(Codegen, EpiloguesMultiplyAProductInScratchMemory)
{
    CheckAll(ScaledEpilogues());
}

// The extents of what an output view has.
std::string Kept(const Product &p)
{
    return std::string(p.out) == "%c[:, :, 0]"      ? "3, 5, 6"
           : std::string(p.out) == "%c[:, 2, :, :]" ? "3, 4, 5, 6"
                                                    : p.c;
}

std::vector<Case> Epilogues()
{
    std::vector<Case> cases;

    for (size_t i = 0; i < kMixes.size(); i++)
        for (size_t p = 0; p < kProducts.size(); p++) {
            const Mix &m = kMixes[i];
            const Product &of = kProducts[p];
            const std::string &keys = kKeys[(i + p + 1) % kKeys.size()];
            std::string scratch = std::string("out %p : ") +
                                  (std::string(m.a) == "f64" ? "f64" : "f32") +
                                  "[" + Kept(of) + "] ";

            cases.push_back({Text(of, m.a, m.b, m.c, "", Body(of, keys)), 29,
                             false,
                             Text(of, m.a, m.b, m.c, scratch,
                                  std::string("%p = matmul ") + of.left + ", " +
                                      of.right + " " + of.keys)});
        }
    return cases;
}

TEST(Codegen, EpiloguesFinishAProductInScratchMemory)
{
    CheckAll(Epilogues());
}

// -------------------------------------------------------------- conversions

Kernel Cast(hd_dtype from, hd_dtype to, size_t n)
{
    std::string extent = "[" + std::to_string(n) + "]";
    Program p(std::string("host program cast in %a : ") + hd_dtype_text(from) +
              extent + " out %y : " + hd_dtype_text(to) + extent +
              " { %y = copy %a }");
    hd_steps steps;
    Kernel kernel;

    EXPECT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_steps_collect(p.module, 0, p.diag, &steps), HD_OK);
    kernel = Emit([&](hd_text *out, hd_kernel_grid *grid) {
        return hd_emit_step(&steps.step[0], p.diag, out, grid);
    });
    hd_steps_free(&steps);
    return kernel;
}

// All codes of the dtype, each beside those that a rounding has to tell apart:
// half way to the next one, and a little to both sides.
std::vector<double> Borders(hd_dtype dtype)
{
    size_t n = hd_dtype_size(dtype) == 2 ? 65536 : 256;
    std::vector<double> values;

    for (size_t code = 0; code + 1 < n; code++) {
        unsigned char bytes[4] = {static_cast<unsigned char>(code & 255),
                                  static_cast<unsigned char>(code >> 8), 0, 0};
        unsigned char next[4] = {static_cast<unsigned char>((code + 1) & 255),
                                 static_cast<unsigned char>((code + 1) >> 8), 0,
                                 0};
        double x = At(dtype, bytes, 0), y = At(dtype, next, 0);
        double half = x + (y - x) / 2;

        for (double v :
             {x, half, std::nextafter(half, x), std::nextafter(half, y),
              half * (1 + 0x1p-23), half * (1 - 0x1p-23), half * (1 + 0x1p-27),
              half * (1 - 0x1p-27)})
            values.push_back(v);
    }
    return values;
}

std::vector<double> RandomDoubles()
{
    std::mt19937_64 random(31);
    std::vector<double> values = {
        0.0,   -0.0,   INFINITY, -INFINITY, NAN,      -NAN,   448,     464,
        480,   65504,  65520,    57344,     61440,    0x1p63, -0x1p63, 0x1p31,
        1e300, -1e300, 5e-324,   0.5,       1.5,      2.5,    -0.5,    254.5,
        255.5, 256,    -0x1p31,  0x1p-149,  0x1p-150, 1e-45};

    for (int i = 0; i < 60000; i++) {
        uint64_t bits = random();
        double x;

        std::memcpy(&x, &bits, sizeof x);
        values.push_back(x);
        values.push_back(std::ldexp(static_cast<double>(bits) * 0x1p-64 - 0.5,
                                    static_cast<int>(bits % 64) - 40));
    }
    return values;
}

// Runs a cast kernel on `codes`, an array of n elements.
std::vector<char> RunCast(const Host &host, size_t i, hd_kernel_grid grid,
                          const void *codes, size_t n, hd_dtype to)
{
    std::vector<char> result(n * hd_dtype_size(to) + 16, 0x33);
    Addresses args = {};

    args.at[0] = reinterpret_cast<uint64_t>(result.data());
    args.at[1] = reinterpret_cast<uint64_t>(codes);
    host.Launch(i, args, grid);
    result.resize(n * hd_dtype_size(to));
    return result;
}

TEST(Codegen, EveryNarrowCodeIsLoadedAsByTheLibrary)
{
    std::vector<Kernel> kernels;
    std::vector<hd_dtype> narrow = {HD_DTYPE_F16, HD_DTYPE_BF16,
                                    HD_DTYPE_F8E4M3, HD_DTYPE_F8E5M2};
    std::vector<uint16_t> codes(65536);

    for (hd_dtype d : narrow)
        for (hd_dtype to : {HD_DTYPE_F32, HD_DTYPE_F64})
            kernels.push_back(Cast(d, to, hd_dtype_size(d) == 2 ? 65536 : 256));
    Host host(kernels);
    for (size_t i = 0; i < kernels.size(); i++) {
        hd_dtype d = narrow[i / 2],
                 to = i % 2 == 0 ? HD_DTYPE_F32 : HD_DTYPE_F64;
        size_t n = hd_dtype_size(d) == 2 ? 65536 : 256;
        std::vector<double> values(n);
        std::vector<char> want(n * hd_dtype_size(to));

        for (size_t c = 0; c < n; c++)
            if (n == 256)
                reinterpret_cast<unsigned char *>(codes.data())[c] =
                    static_cast<unsigned char>(c);
            else
                codes[c] = static_cast<uint16_t>(c);
        // By way of double a NaN would become a quiet one.
        hd_dtype_load(d, codes.data(), n, values.data());
        if (to == HD_DTYPE_F32)
            hd_dtype_load_float(d, codes.data(), n,
                                reinterpret_cast<float *>(want.data()));
        else
            hd_dtype_store(to, values.data(), n, want.data());
        EXPECT_EQ(RunCast(host, i, kernels[i].grid, codes.data(), n, to), want)
            << hd_dtype_text(d) << " to " << hd_dtype_text(to);
    }
}

const std::vector<hd_dtype> kFrom = {HD_DTYPE_F64, HD_DTYPE_F32, HD_DTYPE_I64,
                                     HD_DTYPE_I32};

// From wide dtypes to every other one, bit by bit.
TEST(Codegen, EveryDtypeIsStoredAsByTheLibrary)
{
    std::vector<Kernel> kernels;
    std::vector<std::vector<double>> inputs;

    for (hd_dtype to : kDtypes) {
        inputs.push_back(RandomDoubles());
        if (hd_dtype_size(to) <= 2 && hd_dtype_is_float(to))
            for (double v : Borders(to))
                inputs.back().push_back(v);
        for (hd_dtype from : kFrom)
            kernels.push_back(Cast(from, to, inputs.back().size()));
    }
    Host host(kernels);
    for (size_t i = 0; i < kernels.size(); i++) {
        hd_dtype from = kFrom[i % 4], to = kDtypes[i / 4];
        std::vector<double> values = inputs[i / 4];
        size_t n = values.size();
        std::vector<double> codes(n); // room for either
        std::vector<char> want(n * hd_dtype_size(to));

        if (hd_dtype_is_integer(from) && hd_dtype_is_integer(to))
            continue; // wraps: CopyCastsBetweenAllDtypes
        hd_dtype_store(from, values.data(), n, codes.data());
        hd_dtype_load(from, codes.data(), n, values.data());
        hd_dtype_store(to, values.data(), n, want.data());
        if (from == to)
            std::memcpy(want.data(), codes.data(), want.size());
        EXPECT_EQ(RunCast(host, i, kernels[i].grid, codes.data(), n, to), want)
            << hd_dtype_text(from) << " to " << hd_dtype_text(to);
    }
}

// -------------------------------------------------------------- over ranks

// A number in the text, or a parameter.
hd_length Length(int64_t n, bool sized)
{
    return sized ? hd_length{n, 2 * n + 100, 1, true} : hd_length_fixed(n);
}

Kernel Reduce(hd_dtype dtype, hd_fold fold, int operands, int64_t n, bool sized)
{
    return Emit([=](hd_text *out, hd_kernel_grid *grid) {
        return hd_emit_reduce(dtype, fold, operands, Length(n, sized), nullptr,
                              out, grid);
    });
}

Kernel Spread(int copies, int flags, bool tally, int64_t bytes, bool sized)
{
    return Emit([=](hd_text *out, hd_kernel_grid *grid) {
        return hd_emit_spread(copies, flags, tally, Length(bytes, sized),
                              nullptr, out, grid);
    });
}

// What a kernel tells: a number, or the address of where one stands.
uint64_t Told(const hd_kernel_tally &tally, bool address)
{
    return address ? reinterpret_cast<uint64_t>(&tally) : tally.run;
}

TEST(Codegen, OneRangeIsCopiedToAllPlacesAndNowhereElse)
{
    const int64_t sizes[] = {1, 15, 16, 1003, 16 * 16384 * 4 + 48};
    std::vector<Kernel> kernels;

    std::mt19937 coin(Seed());

    for (int64_t bytes : sizes)
        for (int copies : {1, 3})
            kernels.push_back(Spread(copies, copies - 1, kernels.size() % 3 > 0,
                                     bytes, coin() % 2 != 0));
    Host host(kernels);
    const hd_kernel_tally tally = {0xfffffff0, 1, 0, 0};
    for (size_t i = 0; i < kernels.size() * 2; i++) {
        size_t bytes = static_cast<size_t>(sizes[i / 4]);
        size_t copies = i / 2 % 2 == 0 ? 1 : 3;
        size_t odd = i % 2; // addresses that vectors do not fit
        std::mt19937 random(static_cast<unsigned>(i));
        std::vector<unsigned char> from(bytes + 32);
        std::vector<std::vector<unsigned char>> to(copies);
        std::vector<uint32_t> flags(copies + 1, 7);
        uint32_t counter = 0;
        Addresses args = {};

        for (unsigned char &byte : from)
            byte = static_cast<unsigned char>(random());
        for (size_t f = 0; f < copies - 1; f++)
            args.at[copies + 1 + f] = reinterpret_cast<uint64_t>(&flags[f]);
        args.at[2 * copies] = Told(tally, i / 2 % 3 > 0);
        args.at[2 * copies + 1] = reinterpret_cast<uint64_t>(&counter);
        args.at[copies] = reinterpret_cast<uint64_t>(from.data()) + odd;
        for (size_t k = 0; k < copies; k++) {
            to[k].assign(bytes + 32, 0x5a);
            args.at[k] = reinterpret_cast<uint64_t>(to[k].data()) + 16;
        }
        host.Launch(i / 2, args, kernels[i / 2].grid);
        EXPECT_EQ(counter, 0u);
        for (size_t f = 0; f < flags.size(); f++)
            EXPECT_EQ(flags[f], f < copies - 1 ? 0xfffffff0 : 7);
        for (const std::vector<unsigned char> &one : to) {
            EXPECT_EQ(std::memcmp(&one[16], &from[odd], bytes), 0)
                << bytes << " bytes to " << copies;
            EXPECT_EQ(std::count(one.begin(), one.begin() + 16, 0x5a), 16);
            EXPECT_EQ(std::count(one.begin() + 16 + ptrdiff_t(bytes), one.end(),
                                 0x5a),
                      16);
        }
    }
}

Kernel Rows(const hd_rows &rows, int flags, bool tally)
{
    return Emit([=](hd_text *out, hd_kernel_grid *grid) {
        return hd_emit_rows(&rows, HD_DTYPE_BF16, flags, tally, out, grid);
    });
}

hd_rows SomeRows(int64_t n = 8, int64_t room = 12, int64_t row = 16,
                 int64_t each = 1)
{
    hd_rows rows = {};

    rows.n = n;
    rows.room = room;
    rows.row = row;
    rows.each = each;
    return rows;
}

// Slabs with none, one and all of their rows, one count of several slabs, rows
// that vectors fit and others, and counts that are taken for others.
TEST(Codegen, RowsThatAreCountedAreCopiedAndNothingElse)
{
    struct Shape {
        int64_t n, room, row, each;
    };
    const Shape shapes[] = {
        {5, 7, 8, 1}, {6, 3, 5, 2}, {3, 40, 1024, 1}, {1, 300, 1001, 1}};
    std::vector<Kernel> kernels;
    std::mt19937 random(Seed());

    for (const Shape &s : shapes)
        for (int flags : {0, 1})
            kernels.push_back(Rows(SomeRows(s.n, s.room, s.row, s.each), flags,
                                   kernels.size() % 3 > 0));
    Host host(kernels);
    const hd_kernel_tally tally = {11, 1, 0, 0};
    for (size_t i = 0; i < 4 * kernels.size(); i++) {
        const Shape &s = shapes[i / 4 / 2];
        size_t flags = i / 4 % 2;
        size_t slab = size_t(s.room * s.row);
        std::vector<uint16_t> from(size_t(s.n) * slab + 8);
        std::vector<uint16_t> to(from.size(), 0x5a5a), want = to;
        std::vector<int> counts(size_t(s.n / s.each));
        int64_t told[4] = {}, bad = -1;
        uint32_t word = 7, counter = 0;
        Addresses args = {};

        for (uint16_t &code : from)
            code = uint16_t(random());
        for (int &count : counts)
            count = random() % 3 == 0   ? 0
                    : random() % 3 == 0 ? int(s.room)
                                        : int(random() % unsigned(s.room + 1));
        if (i % 4 > 1) {
            bad = int64_t(random() % counts.size());
            counts[size_t(bad)] = i % 4 == 2 ? -3 : int(s.room) + 1;
        }
        for (size_t k = 0; k < size_t(s.n); k++) {
            int64_t n =
                std::clamp<int64_t>(counts[k / size_t(s.each)], 0, s.room);

            std::copy_n(&from[k * slab], size_t(n * s.row), &want[k * slab]);
        }
        args.at[0] = reinterpret_cast<uint64_t>(to.data());
        args.at[1] = reinterpret_cast<uint64_t>(from.data());
        args.at[2] = reinterpret_cast<uint64_t>(&word);
        args.at[2 + flags] = Told(tally, i / 4 % 3 > 0);
        args.at[3 + flags] = reinterpret_cast<uint64_t>(&counter);
        args.at[4 + flags] = reinterpret_cast<uint64_t>(counts.data());
        args.at[5 + flags] = reinterpret_cast<uint64_t>(told);
        args.at[6 + flags] = 20;
        args.at[7 + flags] = 100;
        host.Launch(i / 4, args, kernels[i / 4].grid);
        EXPECT_EQ(to, want) << "shape " << i / 8;
        EXPECT_EQ(word, flags > 0 ? 11u : 7u);
        EXPECT_EQ(counter, 0u);
        EXPECT_EQ(told[0], bad < 0 ? 0 : 21);
        EXPECT_EQ(told[1], bad < 0 ? 0 : 100 + bad);
        EXPECT_EQ(told[2], bad < 0 ? 0 : counts[size_t(bad)]);
        EXPECT_EQ(told[3], bad < 0 ? 0 : s.room);
    }
}

TEST(Codegen, RanksAreReducedInOrderAndRoundedOnce)
{
    const size_t n = 1003;
    const hd_fold folds[] = {HD_FOLD_SUM, HD_FOLD_MAX, HD_FOLD_MIN};
    std::vector<Kernel> kernels;
    std::mt19937 coin(Seed());

    for (hd_dtype d : kDtypes)
        for (int operands : {1, 3, 16})
            for (hd_fold fold : folds)
                kernels.push_back(
                    Reduce(d, fold, operands, n, coin() % 2 != 0));
    Host host(kernels);
    for (size_t i = 0; i < kernels.size(); i++) {
        hd_dtype d = kDtypes[i / 9];
        size_t operands = i / 3 % 3 == 0 ? 1 : i / 3 % 3 == 1 ? 3 : 16;
        size_t size = hd_dtype_size(d);
        std::mt19937 random(static_cast<unsigned>(i));
        std::vector<std::vector<double>> memory(operands);
        std::vector<double> total(n), sum(n, 0.0);
        Addresses args = {};

        for (size_t k = 0; k < operands; k++) {
            std::vector<double> values(n);

            for (double &v : values)
                v = static_cast<double>(random() % 200) - 100;
            memory[k].resize(n);
            hd_dtype_store(d, values.data(), n, memory[k].data());
            hd_dtype_load(d, memory[k].data(), n, values.data());
            for (size_t e = 0; e < n; e++) {
                total[e] = k == 0       ? values[e]
                           : i % 3 == 0 ? total[e] + values[e]
                           : i % 3 == 1 ? std::fmax(total[e], values[e])
                                        : std::fmin(total[e], values[e]);
                sum[e] += std::fabs(values[e]);
            }
            args.at[1 + k] = reinterpret_cast<uint64_t>(memory[k].data());
        }
        args.at[0] = args.at[operands]; // over the last operand
        host.Launch(i, args, kernels[i].grid);
        std::vector<char> want(n * size);
        if (d == HD_DTYPE_U8) // wraps
            for (double &v : total)
                v = static_cast<double>(static_cast<int64_t>(v) & 255);
        if (d == HD_DTYPE_I8)
            for (double &v : total)
                v = static_cast<int8_t>(static_cast<int64_t>(v) & 255);
        hd_dtype_store(d, total.data(), n, want.data());
        EXPECT_EQ(
            std::memcmp(memory[operands - 1].data(), want.data(), want.size()),
            0)
            << hd_dtype_text(d) << ", " << operands << " operands, fold "
            << folds[i % 3];
    }
}

// Numbers, bits by turns, and the numbers of a tally.
int TurnsOf(size_t i)
{
    const int turns[] = {1, 4, HD_TURNS_OF_TALLY};

    return turns[(i + i / 3) % 3];
}

Kernel Oneshot(hd_dtype dtype, hd_fold fold, int ranks, int turns, int64_t n,
               bool sized)
{
    return Emit([=](hd_text *out, hd_kernel_grid *grid) {
        return hd_emit_oneshot(dtype, fold, ranks, turns, Length(n, sized),
                               nullptr, out, grid);
    });
}

// One launch of a kernel that meets its peers, whose words have come.
struct Meeting {
    const int ranks, turns;
    const uint32_t told; // of the last turn, so that the next is the first
    std::vector<uint32_t> words;
    uint32_t counter = 0;
    const hd_kernel_tally tally;
    Addresses args = {};

    Meeting(int n, int t)
        : ranks(n), turns(t), told(t > 1 ? 8 : 0x80000000u),
          words(static_cast<size_t>(4 * (n - 1)), 0), tally{told, 1, 0, 0}
    {
        for (size_t i = 0; i < words.size(); i++) {
            bool ours = i / static_cast<size_t>(n - 1) % 2 == 1;

            if (ours) // a peer may be a run ahead
                words[i] = i % 2 == 0 ? told : t > 1 ? 1 : told + 1;
            args.at[1 + static_cast<size_t>(n) + i] =
                reinterpret_cast<uint64_t>(&words[i]);
        }
        args.at[5 * n - 3] = Told(tally, t == HD_TURNS_OF_TALLY);
        args.at[5 * n - 2] = reinterpret_cast<uint64_t>(&counter);
    }
    void Expect() const
    {
        size_t peers = static_cast<size_t>(ranks - 1);

        EXPECT_EQ(counter, 0u);
        for (size_t i = 0; i < peers; i++) {
            EXPECT_EQ(words[i], told);
            EXPECT_EQ(words[2 * peers + i], told);
        }
    }
};

TEST(Codegen, AKernelThatMeetsItsPeersReducesLikeOneThatDoesNot)
{
    const int ranks[] = {2, 3, 16};
    // Of f64 the larger takes more than one vector a thread.
    const int64_t sizes[] = {5, 70011};
    std::mt19937 random(std::random_device{}());
    std::vector<Kernel> kernels;

    for (size_t i = 0; i < kDtypes.size() * 6; i++) {
        hd_dtype d = kDtypes[i / 6];
        hd_fold fold = i / 3 % 2 == 0 ? HD_FOLD_SUM : HD_FOLD_MAX;
        int n = ranks[i % 3];

        for (int64_t size : sizes) {
            kernels.push_back(Reduce(d, fold, n, size, false));
            kernels.push_back(
                Oneshot(d, fold, n, TurnsOf(i), size, random() % 2 != 0));
        }
    }
    Host host(kernels);
    for (size_t k = 0; k < kernels.size(); k += 2) {
        size_t i = k / 4, n = static_cast<size_t>(ranks[i % 3]);
        hd_dtype d = kDtypes[i / 6];
        size_t elements = static_cast<size_t>(sizes[k / 2 % 2]);
        size_t odd = random() % 2; // an element past what vectors fit
        std::vector<double> values(elements + 2);
        std::vector<std::vector<double>> in(n), to(2);
        Meeting meeting(static_cast<int>(n), TurnsOf(i));
        Addresses plain = {};

        for (std::vector<double> &one : in) {
            for (double &v : values)
                v = static_cast<double>(random() % 4001) / 16 - 125;
            one.resize(values.size());
            hd_dtype_store(d, values.data(), values.size(), one.data());
        }
        for (std::vector<double> &one : to)
            one.assign(values.size(), NAN);
        for (size_t r = 0; r < n; r++)
            meeting.args.at[1 + r] = plain.at[1 + r] =
                reinterpret_cast<uint64_t>(in[r].data()) +
                odd * hd_dtype_size(d);
        plain.at[0] = reinterpret_cast<uint64_t>(to[0].data());
        meeting.args.at[0] = reinterpret_cast<uint64_t>(to[1].data());
        host.Launch(k, plain, kernels[k].grid);
        host.Launch(k + 1, meeting.args, kernels[k + 1].grid);
        meeting.Expect();
        EXPECT_EQ(std::memcmp(to[0].data(), to[1].data(),
                              to[0].size() * sizeof(double)),
                  0)
            << hd_dtype_text(d) << ", " << n << " ranks, " << elements;
    }
}

Kernel Twoshot(hd_dtype dtype, hd_fold fold, int ranks, int turns, int64_t n,
               int64_t share, bool sized)
{
    return Emit([=](hd_text *out, hd_kernel_grid *grid) {
        return hd_emit_twoshot(dtype, fold, ranks, turns, Length(n, sized),
                               Length(share, sized), nullptr, out, grid);
    });
}

// Ranks whose kernels run beside each other, run after run, each as soon as its
// own last one has ended.
class Line
{
  public:
    Line(hd_dtype dtype, int ranks, int turns, size_t elements, size_t share,
         size_t odd, bool in_place)
        : size_(hd_dtype_size(dtype)), ranks_(static_cast<size_t>(ranks)),
          turns_(turns), elements_(elements), share_(share), odd_(odd),
          in_place_(in_place), words_(ranks_ * ranks_ * 2), counters_(ranks_),
          tallies_(ranks_)
    {
        // An operand, a result and what the peers put, by rank, then run.
        for (std::vector<Memory> *one : {&in_, &out_, &landing_})
            for (size_t r = 0; r < ranks_; r++)
                one->emplace_back(elements + 2);
        if (turns > 1) // of the run before
            std::fill(words_.begin(), words_.end(), 1u << (turns - 1));
    }
    // Fills the operands anew, and returns what they are.
    void *Operand(size_t rank)
    {
        return Bytes(in_[rank]);
    }
    void *Result(size_t rank)
    {
        return in_place_ ? Bytes(in_[rank]) : Bytes(out_[rank]);
    }
    void Poison(size_t rank)
    {
        std::fill(out_[rank].begin(), out_[rank].end(), NAN);
    }
    size_t Bytes() const
    {
        return elements_ * size_;
    }
    // What rank `me` gives its kernel in a run.
    Addresses Args(size_t me, unsigned run)
    {
        const size_t n = ranks_;
        const size_t base = std::min(me * share_, elements_);
        Addresses args = {};
        size_t peer = 0;

        args.at[0] = Address(Result(me));
        for (size_t r = 0; r < n; r++)
            args.at[1 + r] = Address(Operand(r)) + base * size_;
        args.at[1 + n] = Address(landing_[me].data());
        for (size_t r = 0; r < n; r++) {
            if (r == me)
                continue;
            uint64_t *word = &args.at[1 + 2 * n + peer];

            args.at[2 + n + peer] = Address(landing_[r].data()) + base * size_;
            for (size_t which : {0, 1}) { // ready, done
                word[2 * which * (n - 1)] = Word(me, r, which);
                word[(2 * which + 1) * (n - 1)] = Word(r, me, which);
            }
            peer++;
        }
        tallies_[me].run = run + 1;
        args.at[6 * n - 3] = turns_ > 1 ? 1u << run % unsigned(turns_)
                                        : Told(tallies_[me], turns_ != 1);
        args.at[6 * n - 2] = Address(&counters_[me]);
        args.at[6 * n - 1] = base;
        return args;
    }

  private:
    using Memory = std::vector<double>;

    static uint64_t Address(void *at)
    {
        return reinterpret_cast<uint64_t>(at);
    }
    char *Bytes(Memory &memory) const
    {
        return reinterpret_cast<char *>(memory.data()) + odd_ * size_;
    }
    uint64_t Word(size_t from, size_t to, size_t which)
    {
        return Address(&words_[(from * ranks_ + to) * 2 + which]);
    }

    size_t size_, ranks_;
    int turns_;
    size_t elements_, share_, odd_;
    bool in_place_;
    std::vector<Memory> in_, out_, landing_;
    std::vector<uint32_t> words_, counters_;
    std::vector<hd_kernel_tally> tallies_;
};

// Each rank's operand in each run, and what the plain kernel makes of them.
struct Runs {
    std::vector<std::vector<std::vector<char>>> in; // by run and rank
    std::vector<std::vector<char>> want;            // by run
};

Runs Draw(const Host &host, size_t plain, hd_kernel_grid grid, hd_dtype d,
          size_t ranks, size_t elements, std::mt19937 &random)
{
    Runs runs;

    for (int run = 0; run < 6; run++) {
        std::vector<double> values(elements);
        Addresses args = {};

        runs.in.emplace_back();
        for (size_t r = 0; r < ranks; r++) {
            for (double &v : values)
                v = static_cast<double>(random() % 4001) / 16 - 125;
            runs.in.back().emplace_back(elements * hd_dtype_size(d) + 16);
            hd_dtype_store(d, values.data(), elements,
                           runs.in.back().back().data());
        }
        for (size_t r = 0; r < ranks; r++)
            args.at[1 + r] =
                reinterpret_cast<uint64_t>(runs.in.back()[r].data());
        runs.want.emplace_back(elements * hd_dtype_size(d));
        args.at[0] = reinterpret_cast<uint64_t>(runs.want.back().data());
        host.Launch(plain, args, grid);
    }
    return runs;
}

TEST(Codegen, RanksThatReduceTheirSharesAgreeInEveryRun)
{
    struct Shape {
        int ranks;
        size_t elements; // shares that are alike, shorter, empty
    };
    const std::vector<Shape> shapes = {{2, 512}, {2, 1003}, {3, 4097},
                                       {5, 3},   {8, 8190}, {13, 700}};
    const hd_fold folds[] = {HD_FOLD_SUM, HD_FOLD_MAX, HD_FOLD_MIN};
    std::mt19937 random(Seed());
    std::vector<Kernel> kernels;
    std::vector<size_t> shares;

    for (size_t i = 0; i < kDtypes.size() * shapes.size(); i++) {
        hd_dtype d = kDtypes[i / shapes.size()];
        Shape s = shapes[i % shapes.size()];
        size_t n = static_cast<size_t>(s.ranks), lanes = 16 / hd_dtype_size(d);
        size_t share = ((s.elements + n - 1) / n + lanes - 1) / lanes * lanes;
        int64_t elements = static_cast<int64_t>(s.elements);

        shares.push_back(share);
        kernels.push_back(Reduce(d, folds[i % 3], s.ranks, elements, false));
        kernels.push_back(Twoshot(d, folds[i % 3], s.ranks, TurnsOf(i),
                                  elements, static_cast<int64_t>(share),
                                  random() % 2 != 0));
    }
    Host host(kernels);
    for (size_t i = 0; i < shares.size(); i++) {
        hd_dtype d = kDtypes[i / shapes.size()];
        Shape s = shapes[i % shapes.size()];
        size_t ranks = static_cast<size_t>(s.ranks);
        Runs runs = Draw(host, 2 * i, kernels[2 * i].grid, d, ranks, s.elements,
                         random);
        Line line(d, s.ranks, TurnsOf(i), s.elements, shares[i], random() % 2,
                  random() % 2 != 0);
        hd_kernel_grid grid = kernels[2 * i + 1].grid;
        std::vector<int> wrong(ranks, 0);
        std::vector<std::thread> all;

        grid.blocks = grid.threads = 2;
        for (size_t r = 0; r < ranks; r++)
            all.emplace_back([&, r] {
                for (unsigned run = 0; run < runs.in.size(); run++) {
                    line.Poison(r);
                    memcpy(line.Operand(r), runs.in[run][r].data(),
                           line.Bytes());
                    host.LaunchTogether(2 * i + 1, line.Args(r, run), grid);
                    wrong[r] += memcmp(line.Result(r), runs.want[run].data(),
                                       line.Bytes()) != 0;
                }
            });
        for (std::thread &rank : all)
            rank.join();
        EXPECT_EQ(wrong, std::vector<int>(ranks, 0))
            << hd_dtype_text(d) << ", " << s.ranks << " ranks, " << s.elements;
    }
}

Kernel Words()
{
    return Emit([](hd_text *out, hd_kernel_grid *grid) {
        return hd_emit_words(out, grid);
    });
}

// A device that counts its runs, and words that it tells and awaits.
struct Teller {
    hd_kernel_tally tally = {41, 0, 0, 0};
    std::vector<uint32_t> word = std::vector<uint32_t>(8, 7);
    Addresses args = {};
    int n = 0;

    void Add(uint64_t at, int kind)
    {
        args.at[0] = reinterpret_cast<uint64_t>(&tally);
        args.at[1 + n++] = at + static_cast<uint64_t>(kind);
    }
    void Add(int i, int kind)
    {
        Add(reinterpret_cast<uint64_t>(&word[static_cast<size_t>(i)]), kind);
    }
    void Add(int kind)
    {
        Add(reinterpret_cast<uint64_t>(&tally), kind);
    }
    // So many threads, and the kernel as long as they run.
    void Launch(const Host &host, hd_kernel_grid grid) const
    {
        grid.threads = 2;
        host.LaunchTogether(0, args, grid);
    }
};

TEST(Codegen, WordsSayTheNumberOfTheRunThatTheDeviceCounts)
{
    std::vector<Kernel> kernels = {Words()};
    Host host(kernels);
    Teller teller;

    teller.word[3] = 43; // a peer may be a run ahead
    teller.word[4] = 42;
    teller.Add(HD_WORD_BEGIN);
    for (int i : {0, 1, 2})
        teller.Add(i, HD_WORD_WRITE);
    for (int i : {3, 4})
        teller.Add(i, HD_WORD_WAIT);
    teller.Add(5, HD_WORD_WRITE);
    teller.Launch(host, kernels[0].grid);
    EXPECT_EQ(teller.word,
              (std::vector<uint32_t>{42, 42, 42, 43, 42, 42, 7, 7}));
    EXPECT_EQ(teller.tally.run, 42u);
    EXPECT_EQ(teller.tally.busy, 1u);

    Teller last;
    last.tally = {0xffffffff, 0, 0, 0}; // numbers go round
    last.word[1] = 0xffffffff;
    last.Add(0, HD_WORD_WRITE);
    last.Add(1, HD_WORD_WAIT);
    last.Add(HD_WORD_BEGIN);
    last.Add(2, HD_WORD_WRITE);
    last.Add(HD_WORD_END);
    last.Launch(host, kernels[0].grid);
    EXPECT_EQ(last.word[0], 0xffffffff);
    EXPECT_EQ(last.word[2], 0u);
    EXPECT_EQ(last.tally.run, 0u);
    EXPECT_EQ(last.tally.busy, 0u);
}

// What it was told of before, it says before it waits.
TEST(Codegen, WordsAreWaitedForInOrderAndNoLongerThanAnybodyWaits)
{
    std::vector<Kernel> kernels = {Words()};
    Host host(kernels);
    Teller teller;

    for (int i = 0; i < 4; i++)
        teller.Add(i, i % 2 == 0 ? HD_WORD_WRITE : HD_WORD_WAIT);
    auto look = [&](int i) {
        return __atomic_load_n(&teller.word[static_cast<size_t>(i)],
                               __ATOMIC_ACQUIRE);
    };
    std::thread kernel([&] { teller.Launch(host, kernels[0].grid); });
    while (look(0) != 41)
        std::this_thread::yield();
    usleep(2000);
    EXPECT_EQ(look(2), 7u);
    __atomic_store_n(&teller.word[1], 42, __ATOMIC_RELEASE);
    while (look(2) != 41)
        std::this_thread::yield();
    __atomic_store_n(&teller.tally.over, 1, __ATOMIC_RELEASE);
    kernel.join();
    EXPECT_EQ(look(3), 7u);
}

TEST(Codegen, MoreRanksThanAKernelHasPointersForAreRefused)
{
    hd_diag *diag = hd_diag_create();
    hd_text text = {};
    hd_length ten = hd_length_fixed(10);
    hd_kernel_grid grid;

    EXPECT_EQ(
        hd_emit_reduce(HD_DTYPE_F32, HD_FOLD_SUM, 80, ten, diag, &text, &grid),
        HD_ERROR_UNSUPPORTED);
    EXPECT_STREQ(hd_diag_text(diag),
                 "heddle: error: a reduction over 80 ranks; a "
                 "kernel takes 1 to 79\n");
    hd_diag_clear(diag);
    EXPECT_EQ(hd_emit_oneshot(HD_DTYPE_F32, HD_FOLD_SUM, 17, 1, ten, diag,
                              &text, &grid),
              HD_ERROR_UNSUPPORTED);
    EXPECT_STREQ(hd_diag_text(diag),
                 "heddle: error: a reduction in one kernel over 17 ranks; it "
                 "takes 2 to 16\n");
    hd_diag_clear(diag);
    EXPECT_EQ(hd_emit_twoshot(HD_DTYPE_F32, HD_FOLD_SUM, 14, 1, ten, ten, diag,
                              &text, &grid),
              HD_ERROR_UNSUPPORTED);
    EXPECT_STREQ(hd_diag_text(diag),
                 "heddle: error: a reduction in one kernel over 14 ranks; it "
                 "takes 2 to 13\n");
    hd_diag_destroy(diag);
    hd_text_free(&text);
}

// ------------------------------------------------------------------- text

TEST(Codegen, IndicesAreWideWhereExtentsAreLarge)
{
    Program p("host program wide in %a : u8[3, 2000000000] out %y : "
              "u8[3, 2000000000] in %b : u8[2000000000, 3] out %z : u8[3] { "
              "%y = add %a, %a %y[1] = add %a[0], %a[0] %z = max %b dim 0 }");
    hd_steps steps;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_EQ(hd_steps_collect(p.module, 0, p.diag, &steps), HD_OK);
    for (int64_t i = 0; i < 3; i++) {
        Kernel k = Emit([&](hd_text *out, hd_kernel_grid *grid) {
            return hd_emit_step(&steps.step[i], p.diag, out, grid);
        });

        EXPECT_NE(k.text.find(i == 1 ? "u32 start" : "u64 start"),
                  std::string::npos)
            << k.text;
        EXPECT_EQ(k.grid.blocks, i < 2 ? 1056u : 1u);
        EXPECT_EQ(k.grid.threads, 256u);
    }
    hd_steps_free(&steps);
}

TEST(Codegen, NamesOfTheProgramAreNotInTheText)
{
    Program p("host program abort in %asm : bf16[64] in %exit : bf16[64, 64] "
              "inout %system : bf16[64] { %system = matmul %asm, %exit bias "
              "%asm act gelu accumulate }");
    hd_steps steps;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_EQ(hd_steps_collect(p.module, 0, p.diag, &steps), HD_OK);
    Kernel k = Emit([&](hd_text *out, hd_kernel_grid *grid) {
        return hd_emit_step(&steps.step[0], p.diag, out, grid);
    });
    for (const char *name : {"asm", "exit", "system", "abort"})
        EXPECT_EQ(k.text.find(name), std::string::npos) << name;
    hd_steps_free(&steps);
}

// ------------------------------------------------------------------- NVRTC

// Runs before the tests that load the real one.
TEST(CodegenNvrtc, ALibraryThatDoesNotDoIsNamed)
{
    Folder folder;
    std::string old = folder.Compile(
        "extern \"C\" int nvrtcVersion(int *, int *) { return 0; }", "old.so");
    std::string garbage = folder.Path("garbage.so");
    hd_diag *diag = hd_diag_create();
    hd_nvrtc *nvrtc = nullptr;

    std::ofstream(garbage) << "no library";
    setenv("HEDDLE_NVRTC_LIB", old.c_str(), 1);
    EXPECT_EQ(hd_nvrtc_open(diag, &nvrtc), HD_ERROR_UNSUPPORTED);
    EXPECT_EQ(std::string(hd_diag_text(diag)),
              "heddle: error: NVRTC at " + old +
                  " is too old: it has no nvrtcGetErrorString\n");
    hd_diag_clear(diag);
    setenv("HEDDLE_NVRTC_LIB", garbage.c_str(), 1);
    EXPECT_EQ(hd_nvrtc_open(diag, &nvrtc), HD_ERROR_UNSUPPORTED);
    std::string said = hd_diag_text(diag);
    EXPECT_NE(said.find("HEDDLE_NVRTC_LIB is no such library: " + garbage),
              std::string::npos)
        << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
    EXPECT_EQ(nvrtc, nullptr);
    unsetenv("HEDDLE_NVRTC_LIB");
    hd_diag_destroy(diag);
}

TEST_F(Nvrtc, CompilesKernelsForThreeGenerations)
{
    bool all = std::getenv("HEDDLE_ALL_KERNELS") != nullptr;
    std::vector<Case> cases;
    const char *archs[] = {"sm_80", "sm_90a", "sm_100"};
    size_t n = 0;

    for (const auto &some : {ElementWise(), Activations(), Casts(), Matmuls(),
                             Epilogues(), GroupedMatmuls(), Takes(), Counted(),
                             CountedMatmuls(), Places(), IntegerMatmuls()})
        cases.insert(cases.end(), some.begin(), some.end());
    size_t stride = all ? 1 : cases.size() / 40;
    for (size_t i = 0; i < cases.size(); i += stride, n++) {
        Kernel kernel = Checked(cases[i]).Emitted();

        for (size_t a = 0; a < 3; a++) {
            if (!all && n % 3 != a)
                continue;
            EXPECT_FALSE(Compile(kernel.text, archs[a]).empty())
                << archs[a] << ": " << hd_diag_text(diag_) << kernel.text;
        }
    }
    EXPECT_GE(n, 40u);
    for (const char *arch : archs) {
        for (const Kernel &kernel :
             {Spread(7, 6, false, 1003, false), Spread(7, 6, true, 1003, true),
              Rows(SomeRows(), 1, true), Words()})
            EXPECT_FALSE(Compile(kernel.text, arch).empty())
                << arch << ": " << hd_diag_text(diag_);
    }
    for (hd_dtype d : kDtypes)
        for (size_t a = 0; a < 3; a++) {
            if (!all && size_t(d) % 3 != a)
                continue;
            for (const Kernel &kernel :
                 {Oneshot(d, HD_FOLD_SUM, 8, TurnsOf(size_t(d)), 1003,
                          d % 2 == 0),
                  Twoshot(d, HD_FOLD_SUM, 8, TurnsOf(size_t(d) + 1), 1003, 128,
                          d % 2 == 0)})
                EXPECT_FALSE(Compile(kernel.text, archs[a]).empty())
                    << archs[a] << ": " << hd_diag_text(diag_);
        }
}

TEST_F(Nvrtc, ErrorsHaveTheFirstLinesOfTheLog)
{
    EXPECT_TRUE(Compile("int f() { return nothing; }", "sm_90a").empty());
    std::string said = hd_diag_text(diag_);

    EXPECT_NE(said.find("nvrtcCompileProgram of NVRTC "), std::string::npos);
    EXPECT_NE(said.find("for sm_90a: NVRTC_ERROR_COMPILATION: kernel.cu(1)"),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("nothing"), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
    EXPECT_TRUE(Compile("extern \"C\" __global__ void k() {}", "sm_1").empty());
}

} // namespace
