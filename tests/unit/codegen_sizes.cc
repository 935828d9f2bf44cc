// Kernels of programs with sizes: one text for every run, and at each size the
// cpu's answers, bit by bit, with nothing touched beyond what the run has.
#include <algorithm>
#include <map>

#include <heddle/verify.h>

#include "base/diag.h"
#include "tests/seed.h"
#include "tests/unit/kernels.h"

namespace
{

// One value of each of a program's sizes.
using Sizes = std::vector<int64_t>;

// A program's steps at room, and as they are in runs.
class Sized
{
  public:
    explicit Sized(const std::string &body)
        : body_(body), program_("host program sized " + body)
    {
        EXPECT_EQ(program_.status, HD_OK) << program_.Said() << body;
        if (program_.status != HD_OK)
            return;
        full_ = hd_module_full(program_.module);
        Collect(&full_, &room_);
        EXPECT_TRUE(
            hd_chains_collect(&room_, program_.module->nbuffers, &chains_));
    }
    Sized(const Sized &) = delete;
    Sized &operator=(const Sized &) = delete;
    ~Sized()
    {
        hd_chains_free(&chains_);
        hd_steps_free(&room_);
        for (auto &one : runs_)
            hd_steps_free(&one.second);
    }
    const hd_module *Module() const
    {
        return program_.module;
    }
    const std::string &Body() const
    {
        return body_;
    }
    // Of a run of these sizes.
    const hd_steps &Steps(const Sizes &sizes)
    {
        auto found = runs_.find(sizes);

        if (found != runs_.end())
            return found->second;
        hd_module now = hd_module_sized(program_.module, sizes.data());
        Collect(&now, &runs_[sizes]);
        EXPECT_EQ(runs_[sizes].nsteps, room_.nsteps) << body_;
        return runs_[sizes];
    }
    // Its chains in that run, of one step too.
    std::vector<hd_chain> Chains(const Sizes &sizes)
    {
        const hd_steps &now = Steps(sizes);
        std::vector<hd_chain> all;

        for (int64_t i = 0; i < room_.nsteps; i++) {
            hd_chain chain;

            if (chains_.joined[i])
                continue;
            hd_chains_find(&chains_, &room_, i, &chain);
            if (chain.nsteps > 0)
                all.push_back(hd_chain_now(&chain, &room_, &now));
        }
        return all;
    }
    // The kernels of all steps of a run, or of all chains.
    std::vector<Kernel> Kernels(const Sizes &sizes, bool chains)
    {
        std::vector<Kernel> kernels;

        if (chains) {
            for (const hd_chain &chain : Chains(sizes))
                kernels.push_back(Emit([&](hd_text *out, hd_kernel_grid *grid) {
                    return hd_emit_chain(&chain, out, grid);
                }));
            return kernels;
        }
        const hd_steps &steps = Steps(sizes);
        for (int64_t i = 0; i < steps.nsteps; i++)
            kernels.push_back(Emit([&](hd_text *out, hd_kernel_grid *grid) {
                return hd_emit_step(&steps.step[i], program_.diag, out, grid);
            }));
        return kernels;
    }
    Kernel Epilogue(const Sizes &sizes)
    {
        const hd_steps &steps = Steps(sizes);

        return Emit([&](hd_text *out, hd_kernel_grid *grid) {
            return hd_emit_epilogue(&steps.step[0], program_.diag, out, grid);
        });
    }
    // As many sizes as the program has, each drawn from what it may be, now and
    // then its least or its greatest.
    Sizes Draw(std::mt19937 &random) const
    {
        Sizes sizes;

        for (int i = 0; i < program_.module->nsizes; i++) {
            const hd_size &size = program_.module->size[i];
            int64_t range = size.high - size.low + 1;
            int64_t drawn = size.low + static_cast<int64_t>(random()) % range;

            sizes.push_back(random() % 4 == 0   ? size.low
                            : random() % 4 == 0 ? size.high
                                                : drawn);
        }
        return sizes;
    }

  private:
    std::string body_;
    Program program_;
    hd_module full_ = {};
    hd_steps room_ = {};
    hd_chains chains_ = {};
    std::map<Sizes, hd_steps> runs_;

    void Collect(const hd_module *module, hd_steps *out)
    {
        EXPECT_EQ(hd_steps_collect(module, 0, program_.diag, out), HD_OK)
            << program_.Said() << body_;
    }
};

uint64_t Address(const Buffers &buffers, const hd_span &span)
{
    int64_t size = static_cast<int64_t>(hd_dtype_size(span.buffer->type.dtype));

    return reinterpret_cast<uint64_t>(buffers.At(span)) +
           static_cast<uint64_t>(span.offset * size);
}

size_t BytesOf(const hd_buffer *b)
{
    return static_cast<size_t>(hd_type_local_elements(&b->type)) *
           hd_dtype_size(b->type.dtype);
}

// Calls `fn` with the place of each element of the span in its buffer.
template <typename Fn> void Each(const hd_span &span, Fn fn)
{
    int64_t n = hd_span_elements(&span);

    for (int64_t i = 0; i < n; i++)
        fn(static_cast<size_t>(span.offset +
                               hd_span_offset(&span, 0, span.ndims, i)));
}

// Numbers where the run reads its arguments, and elsewhere bytes that are a NaN
// of every floating dtype.
void Fill(const Buffers &buffers, const hd_module *module,
          const hd_steps &steps, unsigned seed)
{
    std::mt19937 random(seed);

    for (const hd_buffer *b = module->buffers; b; b = b->next)
        if (b->of == nullptr)
            std::memset(buffers.At(b), 0xff, BytesOf(b));
    for (int64_t i = 0; i < steps.nsteps; i++)
        for (int k = 0; k < steps.step[i].op->nviews; k++) {
            const hd_span &span = steps.step[i].span[k];
            hd_dtype dtype = span.buffer->type.dtype;
            char *base = static_cast<char *>(buffers.At(span));

            if (span.buffer->role != HD_ROLE_IN &&
                span.buffer->role != HD_ROLE_INOUT)
                continue;
            bool picks =
                hd_op_family(steps.step[i].op) == HD_FAMILY_TAKE && k == 2;
            Each(span, [&](size_t at) {
                double v = static_cast<double>(random() % 256) / 16 - 8;

                if (picks) // some of another run's, or of none
                    v = static_cast<double>(random() % 50) - 1;
                else if (hd_dtype_is_integer(dtype))
                    v = static_cast<double>(random() % 250);
                hd_dtype_store(dtype, &v, 1, base + at * hd_dtype_size(dtype));
            });
        }
}

// Empty, or which element of the buffers is not the same.
std::string Differs(const hd_module *module, const Buffers &have,
                    const Buffers &want)
{
    if (!have.GuardsAreWhole())
        return "bytes outside of the buffers are written";
    for (const hd_buffer *b = module->buffers; b; b = b->next) {
        const char *x = static_cast<const char *>(have.At(b));
        const char *y = static_cast<const char *>(want.At(b));
        size_t size = hd_dtype_size(b->type.dtype), n = BytesOf(b) / size;

        // What stays in registers is in no memory.
        for (size_t i = 0; i < n && b->of == nullptr && b->role != HD_ROLE_TEMP;
             i++)
            if (std::memcmp(x + i * size, y + i * size, size) != 0)
                return std::string("%") + b->name + " element " +
                       std::to_string(i) + ": " +
                       std::to_string(At(b->type.dtype, x, i)) +
                       " instead of " + std::to_string(At(b->type.dtype, y, i));
    }
    return "";
}

// What a program's kernels, numbers `first` on of the host's, leave in memory
// in a run. The texts are of another run.
std::string Wrong(Sized &program, const Host &host, size_t first,
                  const Sizes &sizes, bool chains, unsigned seed, size_t shift,
                  bool few)
{
    const hd_module *module = program.Module();
    const hd_steps &steps = program.Steps(sizes);
    std::vector<hd_chain> all = program.Chains(sizes);
    std::vector<Kernel> kernels = program.Kernels(sizes, chains);
    Buffers have(module, seed, false, shift), want(module, seed, false, 0);

    Fill(have, module, steps, seed);
    Fill(want, module, steps, seed);
    for (size_t i = 0; i < kernels.size(); i++) {
        hd_kernel_grid grid = kernels[i].grid;
        Addresses args;

        EXPECT_GT(grid.blocks, 0u);
        std::memset(&args, 0xee, sizeof args);
        for (int k = 0; chains && k < all[i].nvalues; k++)
            if (all[i].value[k].loaded || all[i].value[k].stored)
                args.at[k] = Address(have, *all[i].value[k].span);
        for (int k = 0; !chains && k < steps.step[i].op->nviews; k++)
            args.at[k] = Address(have, steps.step[i].span[k]);
        host.Launch(first + i, args, few ? Few(grid) : grid);
    }
    for (int64_t i = 0; i < steps.nsteps; i++)
        if (hd_span_elements(&steps.step[i].span[0]) > 0)
            Compute(steps.step[i], want);
    return Differs(module, have, want);
}

std::string Text(const Sizes &sizes)
{
    std::string text;

    for (int64_t size : sizes)
        text += " " + std::to_string(size);
    return text;
}

// ------------------------------------------------------------- programs

// Element by element: the size in front, in the middle, behind, alone, twice,
// and times a number that vectors and tiles fit in.
std::vector<std::string> ElementWise(const std::string &d, int64_t high)
{
    std::string m = "param m in 0.." + std::to_string(high) + " ";
    std::string k = "param k in 0.." + std::to_string(high) + " ";
    auto program = [&](const std::string &x, const std::string &y,
                       const std::string &op) {
        return m + k + "in %a : " + d + "[" + x + "] in %b : " + d + "[" + x +
               "] in %v : " + d + "[48] out %y : " + d + "[" + y + "] { %y" +
               op + " }";
    };
    std::vector<std::string> all;

    for (const char *x : {"m", "3 * m", "m, 48", "5, m", "3, m, 8", "m, 5, m",
                          "m, k", "2, m, 3, k, 2", "32 * m, 2", "2, 16 * m"})
        for (const char *op : {" = add %a, %b", " = max %a, %b"})
            all.push_back(program(x, x, op));
    all.push_back(program("m, 48", "m, 48", " = mul %a, %v"));
    all.push_back(program("3, m, 48", "m, 48", " = sum %a[2], %v, %b[1]"));
    all.push_back(program("m, 48", "3, m, 48", "[1] = copy %a"));
    all.push_back(program("m, 48", "m, 5, 48", "[:, 3] = copy %a"));
    for (const char *s : {"m", "16 * m", "3 * m"})
        for (const char *n : {"32", "k", "16 * k"}) {
            std::string x(s), y(n);

            all.push_back(
                program(x + ", " + y, y + ", " + x, " = transpose %a"));
        }
    all.push_back(program("m, 4, 16", "m, 16, 4", " = transpose %a"));
    for (const char *op : {"sum", "max", "min"}) {
        std::string f = std::string(" = ") + op + " %a dim ";

        all.push_back(program("m, 48", "48", f + "0"));
        all.push_back(program("m, 7", "7", f + "0"));
        all.push_back(program("3, m", "3", f + "1"));
        all.push_back(program("m, 37, 8", "m, 8", f + "1"));
        all.push_back(program("m, 37", "m", f + "1"));
        all.push_back(program("m, k, 16", "m, 16", f + "1"));
    }
    return all;
}

// Of what a run has: batches, indices, what is taken from, and rows.
std::vector<std::string> Takes(const std::string &d, int64_t high)
{
    std::string m = "param m in 0.." + std::to_string(high) + " ";
    std::string k = "param k in 0.." + std::to_string(high) + " ";
    auto program = [&](const std::string &a, const std::string &i,
                       const std::string &y, const std::string &dim) {
        return m + k + "in %a : " + d + "[" + a + "] in %i : i32[" + i +
               "] out %y : " + d + "[" + y + "] { %y = take %a, %i dim " + dim +
               " }";
    };

    return {program("m, 48", "5", "5, 48", "0"),
            program("7, 48", "m", "m, 48", "0"),
            program("3, m", "3, k", "3, k", "1"),
            program("m, 7, 16", "m, 3", "m, 3, 16", "1"),
            program("m, k, 5", "m, 3, m", "m, 3, m, 5", "1"),
            program("7, 16 * m", "k", "k, 16 * m", "0"),
            program("m, m", "m", "m, m", "0")};
}

std::string Blocks(int64_t high)
{
    return "param m in 0.." + std::to_string(high) +
           " in %cut : u8[m in 4@stream] in %a : f32[m, 24] in %b : f32[m, 24] "
           "out %y : f32[m, 24] "
           "out %c : f32[2 * m, 5] in %d : f32[2 * m, 5] "
           "out %t : f32[24, m] ";
}

// Blocks, whose lengths and places depend on the run, of which the last ones
// may have no index.
std::vector<std::string> InBlocks(int64_t high)
{
    std::string b = Blocks(high);

    return {b + "{ for i in 0..4 { %y[i of 4] = add %a[i of 4], %b[i of 4]\n"
                " %c[i of 4] = copy %d[i of 4]\n"
                " %t[:, i of 4] = transpose %a[i of 4] } }",
            b + "{ for i in 0..4 { %y[3 - i of 4] = mul %a[3 - i of 4], "
                "%b[3 - i of 4] } }"};
}

// Of f64, so that the sums are exact in any order.
std::vector<std::string> Products(const std::string &d, int64_t high)
{
    std::string m = "param m in 0.." + std::to_string(high) + " ";
    std::string k = "param k in 0.." + std::to_string(high) + " ";
    std::string f = " in %f : f32[1] in %r : " + d + "[8] ";
    auto program = [&](const std::string &a, const std::string &b,
                       const std::string &c, const std::string &rest) {
        return m + k + "in %a : " + d + "[" + a + "] in %b : " + d + "[" + b +
               "] inout %c : " + d + "[" + c + "]" + f +
               "{ %c = matmul %a, %b " + rest + " }";
    };

    return {program("m, 24", "24, 8", "m, 8", "bias %r"),
            program("m, 24", "24, 8", "m, 8", "scale %f accumulate"),
            program("m, 24", "24, 8", "m, 8", "act relu"),
            program("7, m", "m, 8", "7, 8", "bias %r accumulate"),
            program("7, 5", "5, m", "7, m", ""),
            program("m, k", "k, 8", "m, 8", "bias %r"),
            program("3, m, k", "3, k, 8", "3, m, 8", "bias %r act relu"),
            program("3, m, 5", "3, 5, k", "3, m, k", "accumulate"),
            program("m, 5, 6", "m, 6, 8", "m, 5, 8", "scale 0.5"),
            program("5, m", "5, 8", "m, 8", "ta bias %r")};
}

std::vector<std::string> Chained(int64_t high)
{
    std::string b = Blocks(high) + "in %v : f32[24] temp %u : f32[m, 24] "
                                   "temp %w : f32[24] ";

    return {b + "{ %u = add %a, %b  %u = relu %u  %y = mul %u, %v }",
            // Of other lengths where m is not at its most.
            b + "{ %u[0 of 4] = add %a[0 of 4], %b[0 of 4]\n"
                " %u[1 of 4] = add %a[1 of 4], %b[1 of 4]\n"
                " %y[0 of 4] = relu %u[0 of 4]\n"
                " %y[1 of 4] = relu %u[1 of 4] }",
            b + "{ for i in 0..4 { %u[i of 4] = add %a[i of 4], %b[i of 4]\n"
                " %y[i of 4] = mul %u[i of 4], %v } }",
            "param m in 0.." + std::to_string(high) +
                " in %a : i32[m, 6] in %b : i32[" + std::to_string(high) +
                ", 6] out %y : i32[m, 6] out %z : i32[" + std::to_string(high) +
                ", 6] { %y = add %a, %a %z = add %b, %b %y = mul %y, %a }"};
}

// ----------------------------------------------------------------- text

// How a program's texts at some sizes differ.
void ExpectOneText(const std::string &body, const std::vector<Sizes> &runs)
{
    Sized program(body);

    if (::testing::Test::HasFailure())
        return;
    for (bool chains : {false, true}) {
        std::vector<Kernel> first = program.Kernels(runs[0], chains);

        for (const Sizes &sizes : runs) {
            std::vector<Kernel> kernels = program.Kernels(sizes, chains);

            ASSERT_EQ(kernels.size(), first.size()) << body;
            for (size_t i = 0; i < kernels.size(); i++) {
                EXPECT_EQ(kernels[i].text, first[i].text)
                    << body << Text(sizes);
                EXPECT_EQ(kernels[i].grid.sizes, first[i].grid.sizes) << body;
            }
        }
    }
}

// Where rows lie among keys a run says, too.
std::string Attended(int64_t high)
{
    std::string to = std::to_string(high);
    std::string lines = " : f32[3, 2, m, 8] ", keys = " : f32[3, 2, k, 8] ";
    std::string sizes = "param m in 0.." + to + " param k in 0.." + to;

    return sizes + " in %q" + lines + "in %x" + keys + "in %v" + keys +
           "in %g" + lines + "inout %o" + lines + "inout %l : f32[3, 2, m] " +
           "inout %a" + lines + "inout %b" + keys + "inout %c" + keys +
           "{ %o, %l = attention %q, %x, %v accumulate causal k - m "
           "%a, %b, %c = attention_grad %q, %x, %v, %o, %l, %g accumulate "
           "causal 2 * k - 7 window 5 }";
}

TEST(CodegenSizes, OneTextDoesForAllRuns)
{
    const std::vector<Sizes> runs = {{1, 1},       {7, 1},    {4096, 4096},
                                     {16, 48},     {1, 4096}, {4093, 2},
                                     {4096, 4093}, {0, 3}};
    std::vector<std::string> all = Chained(4096);

    for (const char *d : {"bf16", "f32", "u8"})
        for (const auto &some : {ElementWise(d, 4096), Takes(d, 4096)})
            all.insert(all.end(), some.begin(), some.end());
    for (const std::string &body : InBlocks(4096))
        all.push_back(body);
    for (const std::string &body : Products("bf16", 4096))
        all.push_back(body);
    all.push_back(Attended(4096));
    for (const std::string &body : all)
        ExpectOneText(body, runs);
}

TEST(CodegenSizes, AnEpiloguesTextDoesForAllRuns)
{
    for (const std::string &body : Products("bf16", 4096)) {
        Sized program(body);
        Kernel full = program.Epilogue({4096, 4096});

        for (const Sizes &sizes : {Sizes{1, 1}, Sizes{7, 4096}, Sizes{48, 2}})
            EXPECT_EQ(program.Epilogue(sizes).text, full.text) << body;
    }
}

// Rows that a run says the number of cost nothing: the text is that of one
// length, but for that.
TEST(CodegenSizes, RowsAreMovedInVectors)
{
    Sized program("param m in 1..4096 in %a : bf16[m, 4096] in %v : bf16[4096] "
                  "out %y : bf16[m, 4096] { %y = add %a, %a %y = add %a, %v }");
    std::vector<Kernel> kernels = program.Kernels({37}, false);

    for (const Kernel &kernel : kernels) {
        EXPECT_NE(kernel.text.find("enum { W = 8 }"), std::string::npos)
            << kernel.text;
        EXPECT_EQ(kernel.text.find("% n"), std::string::npos) << kernel.text;
        EXPECT_EQ(kernel.grid.sizes, 1);
        EXPECT_EQ(kernel.grid.blocks, 37u * 4096 / 8 / 256);
    }
    EXPECT_EQ(kernels[0].grid.size[0], 37 * 4096);
    EXPECT_EQ(kernels[1].grid.size[0], 37);
}

// -------------------------------------------------------------- answers

// Each program's kernels in a few runs, with the texts of yet another one.
void CheckAll(const std::vector<std::string> &bodies, bool chains)
{
    std::mt19937 random(Seed());
    std::vector<std::unique_ptr<Sized>> programs;
    std::vector<size_t> first;
    std::vector<Kernel> kernels;

    for (const std::string &body : bodies) {
        programs.push_back(std::make_unique<Sized>(body));
        if (::testing::Test::HasFailure())
            return;
        Sizes drawn = programs.back()->Draw(random);
        std::vector<Kernel> more = programs.back()->Kernels(drawn, chains);

        first.push_back(kernels.size());
        kernels.insert(kernels.end(), more.begin(), more.end());
    }
    Host host(kernels);
    for (size_t i = 0; i < bodies.size(); i++)
        for (int run = 0; run < 5; run++) {
            Sizes sizes = programs[i]->Draw(random);

            if (run < 2) // the borders
                for (size_t k = 0; k < sizes.size(); k++) {
                    const hd_size &size = programs[i]->Module()->size[k];

                    sizes[k] = run == 0 ? size.low : size.high;
                }
            EXPECT_EQ(Wrong(*programs[i], host, first[i], sizes, chains,
                            static_cast<unsigned>(random()), random() % 2,
                            random() % 4 == 0),
                      "")
                << bodies[i] << " at" << Text(sizes);
        }
}

TEST(CodegenSizes, ElementWiseOperationsAreTheCpus)
{
    for (const char *d : {"bf16", "i32"})
        CheckAll(ElementWise(d, 48), false);
}

TEST(CodegenSizes, TakesAreTheCpus)
{
    for (const char *d : {"bf16", "f64", "u8"})
        CheckAll(Takes(d, 48), false);
}

TEST(CodegenSizes, BlocksAreThoseOfTheRun)
{
    CheckAll(InBlocks(45), false);
}

TEST(CodegenSizes, ProductsAreTheCpus)
{
    CheckAll(Products("f64", 45), false);
}

TEST(CodegenSizes, ChainsAreTheCpus)
{
    CheckAll(Chained(45), true);
}

// Where a run has no index of what is reduced.
TEST(CodegenSizes, OfNothingASumIsZeroAndAMaximumTheLeast)
{
    struct Want {
        const char *dtype;
        hd_dtype as;
        double least, most;
    };
    const Want wants[] = {{"f64", HD_DTYPE_F64, -INFINITY, INFINITY},
                          {"f32", HD_DTYPE_F32, -INFINITY, INFINITY},
                          {"bf16", HD_DTYPE_BF16, -INFINITY, INFINITY},
                          {"f8e4m3", HD_DTYPE_F8E4M3, -INFINITY, INFINITY},
                          {"i64", HD_DTYPE_I64, -0x1p63, 0x1p63},
                          {"i32", HD_DTYPE_I32, -0x1p31, 0x1p31},
                          {"u8", HD_DTYPE_U8, 0, 255}};
    std::vector<std::unique_ptr<Sized>> programs;
    std::vector<Kernel> kernels;

    for (const Want &want : wants) {
        std::string d(want.dtype);

        programs.push_back(std::make_unique<Sized>(
            "param m in 0..45 in %a : " + d + "[m, 32] out %x : " + d +
            "[32] out %y : " + d + "[32] out %z : " + d +
            "[3] in %cut : u8[m in 4@stream] in %b : " + d +
            "[3, m] { %x = sum %a[3 of 4] dim 0 "
            "%y = max %a[3 of 4] dim 0 %z = min %b[:, 3 of 4] dim 1 }"));
        if (HasFailure())
            return;
        for (const Kernel &kernel : programs.back()->Kernels({45}, false))
            kernels.push_back(kernel);
    }
    Host host(kernels);
    for (size_t i = 0; i < kernels.size(); i++) {
        const Want &want = wants[i / 3];
        Sized &program = *programs[i / 3];
        const hd_step &step = program.Steps({2}).step[i % 3];
        Buffers have(program.Module(), 1, false, 0);
        double value = i % 3 == 0 ? 0 : i % 3 == 1 ? want.least : want.most;
        char code[8];
        Addresses args = {};

        for (int k = 0; k < 2; k++)
            args.at[k] = Address(have, step.span[k]);
        host.Launch(i, args, program.Kernels({2}, false)[i % 3].grid);
        hd_dtype_store(want.as, &value, 1, code);
        Each(step.span[0], [&](size_t at) {
            EXPECT_EQ(std::memcmp(static_cast<char *>(have.At(step.span[0])) +
                                      at * hd_dtype_size(want.as),
                                  code, hd_dtype_size(want.as)),
                      0)
                << want.dtype << ", step " << i % 3;
        });
    }
}

// A product over nothing is what its epilogue makes of 0.
TEST(CodegenSizes, AProductOverNothingIsItsBias)
{
    Sized program("param m in 0..45 in %cut : u8[m in 4@stream] "
                  "in %a : f32[5, m] in %b : f32[m, 8] "
                  "in %r : f32[8] out %c : f32[5, 8] { %c = matmul "
                  "%a[:, 3 of 4], %b[3 of 4] bias %r act relu }");
    Host host(program.Kernels({45}, false));
    const hd_step &step = program.Steps({1}).step[0];
    Buffers have(program.Module(), Seed(), false, 0);
    Addresses args = {};

    for (int k = 0; k < 4; k++)
        args.at[k] = Address(have, step.span[k]);
    host.Launch(0, args, program.Kernels({1}, false)[0].grid);
    for (size_t i = 0; i < 40; i++)
        EXPECT_EQ(
            At(HD_DTYPE_F32, have.At(step.span[0]), i),
            std::max(0.0, At(HD_DTYPE_F32, have.At(step.span[3]), i % 8)));
}

// Blocks 0 and 1 are as long as each other only where m is large; a size of
// some value and a number that is the same only in that run.
TEST(CodegenSizes, StepsOfOtherLengthsAreNoChain)
{
    std::vector<std::string> bodies = Chained(45);
    const size_t chains[] = {1, 4, 4, 3};

    for (size_t i = 0; i < bodies.size(); i++)
        EXPECT_EQ(Sized(bodies[i]).Chains({45}).size(), chains[i]) << bodies[i];
}

// ------------------------------------------------------------- epilogues

// What a library leaves of the product, dense in the run's own extents.
std::vector<double> Plain(const hd_step &step, const Buffers &buffers)
{
    const double *a = static_cast<const double *>(buffers.At(step.span[1]));
    const double *b = static_cast<const double *>(buffers.At(step.span[2]));
    int64_t along[2][HD_SPACE_DIMS];
    hd_space space;
    std::vector<double> product;

    hd_space_of_step(&step, &space);
    for (int i = 0; i < 2; i++)
        hd_space_strides(&space, 1 + i, step.span[1 + i].stride, along[i]);
    for (int64_t e = 0; e < hd_span_elements(&step.span[0]); e++) {
        int64_t at[2] = {0, 0}, rest = e;
        double sum = 0;

        for (int d = space.nparallel - 1; d >= 0; d--) {
            for (int i = 0; i < 2; i++)
                at[i] += rest % space.extent[d] * along[i][d];
            rest /= space.extent[d];
        }
        for (int64_t k = 0; k < space.extent[space.nparallel]; k++)
            sum += a[at[0] + k * along[0][space.nparallel]] *
                   b[at[1] + k * along[1][space.nparallel]];
        product.push_back(sum);
    }
    return product;
}

// The product in scratch memory is dense in the run's own extents.
TEST(CodegenSizes, EpiloguesReadADenseProduct)
{
    std::mt19937 random(Seed());
    std::vector<std::string> bodies = Products("f64", 45);
    std::vector<std::unique_ptr<Sized>> programs;
    std::vector<Kernel> kernels;

    for (const std::string &body : bodies) {
        programs.push_back(std::make_unique<Sized>(body));
        if (HasFailure())
            return;
        kernels.push_back(programs.back()->Epilogue({45, 45}));
    }
    Host host(kernels);
    for (size_t i = 0; i < bodies.size() * 4; i++) {
        Sized &program = *programs[i / 4];
        Sizes sizes = program.Draw(random);
        const hd_step &step = program.Steps(sizes).step[0];
        unsigned seed = static_cast<unsigned>(random());
        Buffers have(program.Module(), seed, false, i % 2);
        Buffers want(program.Module(), seed, false, 0);
        Addresses args = {};

        Fill(have, program.Module(), program.Steps(sizes), seed);
        Fill(want, program.Module(), program.Steps(sizes), seed);
        std::vector<double> product = Plain(step, want);
        for (int k = 0; k < step.op->nviews; k++)
            args.at[k] = Address(have, step.span[k]);
        args.at[step.op->nviews] = reinterpret_cast<uint64_t>(product.data());
        host.Launch(i / 4, args, program.Epilogue(sizes).grid);
        Compute(step, want);
        EXPECT_EQ(Differs(program.Module(), have, want), "")
            << bodies[i / 4] << " at" << Text(sizes);
    }
}

// ---------------------------------------------------------------- groups

std::vector<std::string> Grouped(const std::string &d, int64_t high)
{
    std::string m = "param m in 0.." + std::to_string(high) + " ";

    return {m + "in %x : " + d + "[m, 8] in %w : " + d +
                "[3, 8, 9] in %n : i32[3] in %b : " + d + "[3, 9] out %y : " +
                d + "[m, 9] { %y = matmul %x, %w bias %b act relu groups %n }",
            m + "in %x : " + d + "[m, 8] in %g : " + d +
                "[m, 9] in %n : i32[3] out %w : " + d +
                "[3, 8, 9] { %w = matmul %x, %g ta groups %n }"};
}

// Rows that no count names are there too.
TEST(CodegenSizes, GroupedProductsAreTheCpus)
{
    std::mt19937 random(Seed());
    std::vector<std::unique_ptr<Sized>> programs;
    std::vector<Kernel> kernels;

    for (const std::string &body : Grouped("f64", 45)) {
        programs.push_back(std::make_unique<Sized>(body));
        if (HasFailure())
            return;
        kernels.push_back(programs.back()->Kernels({45}, false)[0]);
    }
    Host host(kernels);
    for (size_t i = 0; i < 10; i++) {
        Sized &program = *programs[i % 2];
        Sizes sizes = program.Draw(random);
        const hd_step &step = program.Steps(sizes).step[0];
        Kernel kernel = program.Kernels(sizes, false)[0];
        unsigned seed = static_cast<unsigned>(random());
        int32_t count[3];
        int64_t told[4] = {};
        Addresses args = {};
        Buffers have(program.Module(), seed, false, 0);
        Buffers want(program.Module(), seed, false, 0);

        for (int32_t &one : count)
            one = static_cast<int32_t>(random() % 20);
        for (const Buffers *one : {&have, &want}) {
            Fill(*one, program.Module(), program.Steps(sizes), seed);
            std::memcpy(one->At(step.span[3]), count, sizeof count);
        }
        for (int k = 0; k < step.op->nviews; k++)
            args.at[k] = Address(have, step.span[k]);
        args.at[step.op->nviews] = reinterpret_cast<uint64_t>(told);
        EXPECT_EQ(kernel.text, kernels[i % 2].text) << Text(sizes);
        host.Launch(i % 2, args, kernel.grid);
        Compute(step, want);
        EXPECT_EQ(Differs(program.Module(), have, want), "")
            << program.Body() << " at" << Text(sizes);
    }
}

// ---------------------------------------------------------------- counts

// Of rows, of vectors, of what is reduced and of what is multiplied; the
// counts of as many as a run says.
std::vector<std::string> Counted(const std::string &d, int64_t high)
{
    std::string m = "param m in 0.." + std::to_string(high) + " ";
    std::string n = " in %n : i32[3, m, 2] ";

    return {m + n + "in %x : " + d + "[3, m, 2, 6 by %n, 8] out %y : " + d +
                "[3, m, 2, 6, 8] { %y = copy %x }",
            m + n + "in %x : " + d + "[3, m, 2, 6 by %n, 8] out %y : " + d +
                "[3, m, 2, 8] { %y = max %x dim 3 }",
            m + n + "in %x : " + d + "[3, m, 2, 6 by %n, 8] in %w : " + d +
                "[3, m, 2, 8, m] out %y : " + d +
                "[3, m, 2, 6, m] { %y = matmul %x, %w }"};
}

TEST(CodegenSizes, CountedDimensionsAreTheCpus)
{
    std::mt19937 random(Seed());
    std::vector<std::unique_ptr<Sized>> programs;
    std::vector<Kernel> kernels;

    for (const std::string &body : Counted("f64", 5)) {
        programs.push_back(std::make_unique<Sized>(body));
        if (HasFailure())
            return;
        kernels.push_back(programs.back()->Kernels({5}, false)[0]);
    }
    Host host(kernels);
    for (size_t i = 0; i < 30; i++) {
        size_t which = i % 3;
        Sized &program = *programs[which];
        Sizes sizes = program.Draw(random);
        const hd_step &step = program.Steps(sizes).step[0];
        Kernel kernel = program.Kernels(sizes, false)[0];
        unsigned seed = static_cast<unsigned>(random());
        int32_t count[3 * 5 * 2];
        hd_kernel_miscount told = {};
        Addresses args = {};
        Buffers have(program.Module(), seed, false, 0);
        Buffers want(program.Module(), seed, false, 0);

        for (int32_t &one : count)
            one = static_cast<int32_t>(random() % (random() % 2 ? 7 : 8));
        for (const Buffers *one : {&have, &want}) {
            Fill(*one, program.Module(), program.Steps(sizes), seed);
            std::memcpy(one->At(step.span[step.op->nviews - 1]), count,
                        sizeof count);
        }
        for (int k = 0; k < step.op->nviews; k++)
            args.at[k] = Address(have, step.span[k]);
        args.at[step.op->nviews] = reinterpret_cast<uint64_t>(&told);
        EXPECT_EQ(kernel.text, kernels[which].text) << Text(sizes);
        host.Launch(which, args, kernel.grid);
        hd_miscount miscount = Compute(step, want);
        EXPECT_EQ(Differs(program.Module(), have, want), "")
            << program.Body() << " at" << Text(sizes);
        // The number of a count that is told is that at room.
        int64_t at = miscount.group / 2, m = sizes[0];
        EXPECT_EQ(told.step, miscount.found) << Text(sizes);
        if (miscount.found) {
            EXPECT_EQ(told.group,
                      (at / m * 5 + at % m) * 2 + miscount.group % 2);
            EXPECT_EQ(told.count, miscount.count);
        }
    }
}

// ----------------------------------------------------------------- picks

std::vector<std::string> Picked(int64_t high)
{
    std::string m = "param m in 0.." + std::to_string(high) + " ";

    return {m + "in %x : i32[2, m, 3] out %p : i32[2, 5, 7] "
                "out %s : i32[2, m, 3] out %n : i32[2, 5] "
                "{ %p, %s, %n = route %x }",
            m + "in %x : f32[m, 9] out %v : f32[m, 4] out %i : i32[m, 4] "
                "{ %v, %i = top_k %x }",
            m + "in %x : i32[3, 2 * m] out %v : i32[3, m] "
                "out %i : i32[3, m] { %v, %i = top_k %x }",
            m + "in %x : i32[m, 6, 3] out %p : i32[m, 2 * m, m] "
                "out %s : i32[m, 6, 3] out %n : i32[m, 2 * m] "
                "{ %p, %s, %n = route %x }"};
}

// Numbers are few, so that most are experts that there are.
TEST(CodegenSizes, PicksAreTheCpus)
{
    std::mt19937 random(Seed());
    std::vector<std::unique_ptr<Sized>> programs;
    std::vector<Kernel> kernels;

    for (const std::string &body : Picked(9)) {
        programs.push_back(std::make_unique<Sized>(body));
        if (HasFailure())
            return;
        kernels.push_back(programs.back()->Kernels({9}, false)[0]);
    }
    Host host(kernels);
    for (size_t i = 0; i < 10 * programs.size(); i++) {
        size_t which = i % programs.size();
        Sized &program = *programs[which];
        Sizes sizes = program.Draw(random);
        const hd_step &step = program.Steps(sizes).step[0];
        const hd_span &x = step.span[step.op->noutputs];
        Kernel kernel = program.Kernels(sizes, false)[0];
        unsigned seed = static_cast<unsigned>(random());
        std::vector<int32_t> few(
            static_cast<size_t>(hd_type_local_elements(&x.buffer->type)));
        Addresses args = {};
        Buffers have(program.Module(), seed, false, 0);
        Buffers want(program.Module(), seed, false, 0);

        for (int32_t &one : few)
            one = static_cast<int32_t>(random() % 7) - 1;
        for (const Buffers *one : {&have, &want}) {
            Fill(*one, program.Module(), program.Steps(sizes), seed);
            std::memcpy(one->At(x), few.data(), few.size() * sizeof few[0]);
        }
        for (int k = 0; k < step.op->nviews; k++)
            args.at[k] = Address(have, step.span[k]);
        EXPECT_EQ(kernel.text, kernels[which].text) << Text(sizes);
        host.Launch(which, args, kernel.grid);
        Compute(step, want);
        EXPECT_EQ(Differs(program.Module(), have, want), "")
            << program.Body() << " at" << Text(sizes);
    }
}

// ------------------------------------------------------------- transfers

TEST(CodegenSizes, LengthsOfTransfersAreParametersWhereAViewIsOfASize)
{
    Program p("host program moves param m in 0..9 mesh tp=2 "
              "inout %a : f32[m, 4] shared inout %b : f32[9, 4] shared "
              "{ %a = all_reduce %a %b = all_reduce %b }");
    const int64_t m = 5;
    hd_steps steps;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    hd_module now = hd_module_sized(p.module, &m);
    ASSERT_EQ(hd_steps_collect(&now, 0, p.diag, &steps), HD_OK) << p.Said();
    ASSERT_EQ(steps.nsteps, 2);
    hd_length sized = hd_length_of_part(&steps.step[0], 20);
    hd_length fixed = hd_length_of_part(&steps.step[1], 36);
    EXPECT_TRUE(sized.sized);
    EXPECT_EQ(sized.now, 20);
    EXPECT_GE(sized.room, 9 * 4); // not less in any run
    EXPECT_EQ(sized.unit, 1);
    EXPECT_FALSE(fixed.sized);
    EXPECT_EQ(fixed.now, 36);
    EXPECT_EQ(fixed.room, 36);
    hd_steps_free(&steps);
}

// ----------------------------------------------------------------- NVRTC

class CodegenSizesNvrtc : public Nvrtc
{
};

TEST_F(CodegenSizesNvrtc, CompilesTheTexts)
{
    std::vector<std::string> all = Chained(4096);

    for (const std::string &body : Grouped("bf16", 4096))
        all.push_back(body);
    for (const std::string &body : Picked(400))
        all.push_back(body);
    for (const std::vector<std::string> &some :
         {ElementWise("bf16", 4096), Products("bf16", 4096), InBlocks(4096),
          Takes("bf16", 4096)})
        for (size_t i = 0; i < some.size(); i += 6)
            all.push_back(some[i]);
    for (const std::string &body : all) {
        Sized program(body);
        bool chains = program.Chains({7, 7}).size() == 1;
        Kernel kernel = program.Kernels({7, 7}, chains)[0];

        EXPECT_FALSE(Compile(kernel.text, "sm_90a").empty())
            << hd_diag_text(diag_) << kernel.text;
    }
}

} // namespace
