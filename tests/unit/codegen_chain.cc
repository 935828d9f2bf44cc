// Kernels of chains, compiled for the host: what they leave in memory against
// what the steps leave that run one after the other, bit by bit.
#include <algorithm>

#include <heddle/verify.h>

#include "base/diag.h"
#include "tests/unit/kernels.h"

namespace
{

// A program's steps as one list of kernels, and the memory they leave.
class Chained
{
  public:
    // `cpu`: what is wanted is the cpu's, else that of a kernel a step.
    Chained(const std::string &body, bool cpu)
        : body_(body), cpu_(cpu), program_("host program chained " + body)
    {
        EXPECT_EQ(program_.status, HD_OK) << program_.Said() << body;
        if (program_.status != HD_OK)
            return;
        EXPECT_EQ(hd_steps_collect(program_.module, 0, program_.diag, &steps_),
                  HD_OK);
        EXPECT_TRUE(
            hd_chains_collect(&steps_, program_.module->nbuffers, &chains_));
    }
    Chained(const Chained &) = delete;
    Chained &operator=(const Chained &) = delete;
    ~Chained()
    {
        hd_chains_free(&chains_);
        hd_steps_free(&steps_);
    }
    // Adds the kernels of the chains, and those of the steps.
    void Emit(std::vector<Kernel> *kernels)
    {
        first_ = kernels->size();
        for (int64_t i = 0; i < steps_.nsteps; i++) {
            hd_chain chain;

            if (chains_.joined[i])
                continue;
            hd_chains_find(&chains_, &steps_, i, &chain);
            chain_.push_back(chain);
            kernels->push_back(::Emit([&](hd_text *out, hd_kernel_grid *grid) {
                return hd_emit_chain(&chain, out, grid);
            }));
        }
        for (int64_t i = 0; i < steps_.nsteps && !cpu_; i++)
            kernels->push_back(::Emit([&](hd_text *out, hd_kernel_grid *grid) {
                return hd_emit_step(&steps_.step[i], program_.diag, out, grid);
            }));
        kernels_ = kernels;
    }
    size_t Kernels() const
    {
        return chain_.size();
    }
    // Steps that are in a chain with others.
    int Joined() const
    {
        return static_cast<int>(
            std::count(chains_.joined, chains_.joined + steps_.nsteps, true));
    }
    const std::string &Text(size_t i) const
    {
        return (*kernels_)[first_ + i].text;
    }
    // Empty, or what is off.
    std::string Wrong(const Host &host, unsigned seed, size_t shift,
                      bool few = false) const
    {
        Buffers have(program_.module, seed, false, shift);
        Buffers want(program_.module, seed, false, 0);
        Buffers before(program_.module, seed, false, 0);

        for (size_t i = 0; i < chain_.size(); i++)
            Launch(host, i, few, have);
        for (int64_t i = 0; i < steps_.nsteps; i++)
            Step(host, i, want);
        if (!have.GuardsAreWhole())
            return "bytes outside of the buffers are written";
        for (const hd_buffer *b = program_.module->buffers; b; b = b->next) {
            bool dropped = Any(b, false);
            std::string wrong;

            // What nothing reads is whatever was stored there last.
            if (dropped && Any(b, true))
                continue;
            wrong = Differs(*b, have.At(b), (dropped ? before : want).At(b));
            if (!wrong.empty())
                return wrong;
        }
        return "";
    }

  private:
    std::string body_;
    bool cpu_;
    Program program_;
    hd_steps steps_ = {};
    hd_chains chains_ = {};
    std::vector<hd_chain> chain_;
    size_t first_ = 0;
    const std::vector<Kernel> *kernels_ = nullptr;

    static uint64_t Address(const Buffers &buffers, const hd_span &span)
    {
        int64_t size =
            static_cast<int64_t>(hd_dtype_size(span.buffer->type.dtype));

        return reinterpret_cast<uint64_t>(buffers.At(span)) +
               static_cast<uint64_t>(span.offset * size);
    }
    void Launch(const Host &host, size_t i, bool few,
                const Buffers &buffers) const
    {
        const hd_chain &chain = chain_[i];
        hd_kernel_grid grid = (*kernels_)[first_ + i].grid;
        Addresses args;

        // What is not an operand is nobody's address.
        std::memset(&args, 0xee, sizeof args);
        for (int k = 0; k < chain.nvalues; k++)
            if (chain.value[k].loaded || chain.value[k].stored)
                args.at[k] = Address(buffers, *chain.value[k].span);
        host.Launch(first_ + i, args, few ? Few(grid) : grid);
    }
    void Step(const Host &host, int64_t i, const Buffers &buffers) const
    {
        const hd_step &step = steps_.step[i];
        size_t kernel = first_ + chain_.size() + static_cast<size_t>(i);
        Addresses args = {};

        if (cpu_) {
            Compute(step, buffers);
            return;
        }
        for (int k = 0; k < step.op->nviews; k++)
            args.at[k] = Address(buffers, step.span[k]);
        host.Launch(kernel, args, (*kernels_)[kernel].grid);
    }
    // Whether a chain writes the buffer and does not store, or stores.
    bool Any(const hd_buffer *b, bool stored) const
    {
        for (const hd_chain &chain : chain_)
            for (int k = 0; k < chain.nvalues; k++)
                if (chain.value[k].span->buffer == b &&
                    chain.value[k].written && chain.value[k].stored == stored)
                    return true;
        return false;
    }
    static std::string Differs(const hd_buffer &b, const void *have,
                               const void *want)
    {
        size_t n = static_cast<size_t>(hd_type_local_elements(&b.type));
        size_t size = hd_dtype_size(b.type.dtype);
        const char *x = static_cast<const char *>(have);
        const char *y = static_cast<const char *>(want);

        for (size_t i = 0; i < n; i++) {
            double mine = At(b.type.dtype, x, i),
                   theirs = At(b.type.dtype, y, i);

            // What a NaN carries is anybody's.
            if (std::memcmp(x + i * size, y + i * size, size) == 0 ||
                (std::isnan(mine) && std::isnan(theirs)))
                continue;
            return std::string("%") + b.name + " element " + std::to_string(i) +
                   ": " + std::to_string(mine) + " instead of " +
                   std::to_string(theirs);
        }
        return "";
    }
};

// How many steps have joined chains.
int CheckAll(const std::vector<std::string> &bodies, bool cpu)
{
    std::vector<std::unique_ptr<Chained>> all;
    std::vector<Kernel> kernels;
    int joined = 0;

    for (const std::string &body : bodies) {
        all.push_back(std::make_unique<Chained>(body, cpu));
        if (::testing::Test::HasFailure())
            return 0;
        all.back()->Emit(&kernels);
        joined += all.back()->Joined();
    }
    Host host(kernels);
    for (size_t i = 0; i < bodies.size(); i++) {
        unsigned seed = static_cast<unsigned>(i) + 1;

        EXPECT_EQ(all[i]->Wrong(host, seed, 0), "") << bodies[i];
        EXPECT_EQ(all[i]->Wrong(host, seed, 1), "") << bodies[i];
        EXPECT_EQ(all[i]->Wrong(host, seed, 0, true), "") << bodies[i];
    }
    return joined;
}

// ----------------------------------------------------------------- by hand

const char kBuffers[] =
    "in %a : f32[3, 40] in %b : f32[3, 40] in %v : f32[40] in %f : f32[1] "
    "inout %c : f32[3, 40] out %y : f32[3, 40] out %z : f32[3, 40] "
    "out %p : f32[3, 4, 40] temp %t : f32[3, 40] temp %h : bf16[3, 40] "
    "out %g : bf16[3, 40] inout %i : i32[3, 40] out %w : f64[3, 40] ";

// What is not representable in bf16 has to be lost on the way.
TEST(CodegenChain, AValueInARegisterIsRoundedToItsDtype)
{
    CheckAll({std::string(kBuffers) +
                  "{ %h = copy %a  %y = copy %h  %z = add %y, %b }",
              std::string(kBuffers) +
                  "{ %g = copy %a  %g = add %g, %g  %y = copy %g }",
              std::string(kBuffers) +
                  "{ %i = copy %a  %i = mul %i, %i  %w = copy %i }"},
             true);
}

TEST(CodegenChain, ViewsRepeatedOperandsAndFactors)
{
    CheckAll({std::string(kBuffers) +
                  "{ %t = add %a, %v  %t = scale %t by %f"
                  "  %p[:, 2] = relu %t  %y = mul %p[:, 2], %v"
                  "  %p[:, 1] = max %y, %t }",
              std::string(kBuffers) + "{ %c = add %c, %a  %c = mul %c, %b"
                                      "  %y = copy %c  %c = scale %c by %f }",
              "in %a : f32[5] in %b : f32[5] out %y : f32[5] "
              "{ %y[1] = add %a[2], %b[1]  %y[3] = scale %a[0] by %y[1] }"},
             true);
}

TEST(CodegenChain, ATemporaryInARegisterIsNotInMemory)
{
    Chained c(std::string(kBuffers) + "{ %t = add %a, %b  %y = relu %t }",
              true);
    std::vector<Kernel> kernels;

    c.Emit(&kernels);
    ASSERT_EQ(c.Kernels(), 1u);
    EXPECT_NE(c.Text(0).find("args.at[3]"), std::string::npos);
    EXPECT_EQ(c.Text(0).find("args.at[2]"), std::string::npos) << c.Text(0);
    // Of the operands that are left, the result is not loaded.
    EXPECT_NE(c.Text(0).find(" v0 = p0["), std::string::npos);
    EXPECT_NE(c.Text(0).find(" v1 = p1["), std::string::npos);
    EXPECT_EQ(c.Text(0).find(" v2 = p2["), std::string::npos) << c.Text(0);
}

TEST(CodegenChain, TheTextNamesOperationsAndNothingOfTheProgram)
{
    Chained c("in %system : f32[9] out %abort : f32[9] temp %exit : f32[9] "
              "{ %exit = gelu %system  %abort = add %exit, %system }",
              true);
    std::vector<Kernel> kernels;

    c.Emit(&kernels);
    ASSERT_EQ(c.Kernels(), 1u);
    EXPECT_EQ(c.Text(0).compare(0, 12, "// gelu add\n"), 0) << c.Text(0);
    for (const char *name : {"system", "exit", "abort", "chained"})
        EXPECT_EQ(c.Text(0).find(name), std::string::npos) << name;
}

// A thread of a kernel with many operands needs more than 32 registers.
TEST(CodegenChain, ManyOperandsTakeMoreRegistersAndFewerBlocks)
{
    std::string few = "in %a : f32[4096, 1024] out %y : f32[4096, 1024] "
                      "{ %y = relu %a  %y = scale %y by 2 }";
    std::string many = "in %a : f32[16, 4096, 1024] out %y : f32[4096, 1024] "
                       "out %z : f32[4096, 1024] { %y = sum %a[0]";

    for (int i = 1; i < 15; i++)
        many += ", %a[" + std::to_string(i) + "]";
    many += "  %z = relu %y }";
    Chained c(few, true), d(many, true);
    std::vector<Kernel> kernels;
    c.Emit(&kernels);
    d.Emit(&kernels);
    ASSERT_EQ(kernels.size(), 2u);
    EXPECT_EQ(kernels[0].grid.blocks, 132u * 8);
    EXPECT_NE(kernels[0].text.find("HD_BOUNDS(8) hd_kernel"),
              std::string::npos);
    EXPECT_EQ(kernels[1].grid.blocks, 132u * 2);
    EXPECT_NE(kernels[1].text.find("HD_BOUNDS(2) hd_kernel"),
              std::string::npos);
}

// ------------------------------------------------------------------ random

// Programs of steps over random views of a few buffers, so that values are
// read, written over, and met by other views in all orders.
class Draw
{
  public:
    Draw(unsigned seed, bool exact) : random_(seed), exact_(exact)
    {
        static const char *const shapes[][2] = {
            {"3", "16"}, {"5", "21"}, {"4", "8"}, {"1", "33"}, {"7", "1"}};
        const char *const *shape = shapes[Below(5)];

        rows_ = shape[0];
        columns_ = shape[1];
        for (int i = 0; i < 2; i++)
            dtypes_.push_back(Dtypes()[Below(Dtypes().size())]);
    }
    std::string Body()
    {
        std::string steps, decls = "in %f : f32[1] ";

        for (int i = 0; i < kBuffers; i++)
            decls += Declare(i);
        for (size_t i = 0; i < dtypes_.size(); i++)
            decls += "in %v" + std::to_string(i) + " : " + dtypes_[i] + "[" +
                     columns_ + "] ";
        for (int i = 0; i < 10; i++)
            steps += Step();
        return decls + "{" + steps + " }";
    }

  private:
    enum { kBuffers = 6 };
    std::mt19937 random_;
    bool exact_;
    std::string rows_, columns_;
    std::vector<std::string> dtypes_;
    bool inner_[kBuffers] = {}; // [R, 2, C] instead of [2, R, C]

    static const std::vector<std::string> &Dtypes()
    {
        static const std::vector<std::string> dtypes = {
            "f64", "f32",    "f32",    "f16", "bf16", "bf16",
            "i64", "f8e4m3", "f8e5m2", "i32", "u8"};

        return dtypes;
    }
    size_t Below(size_t n)
    {
        return random_() % n;
    }
    bool Floats(size_t dtype) const
    {
        return dtypes_[dtype][0] == 'f' || dtypes_[dtype][0] == 'b';
    }
    std::string Declare(int i)
    {
        static const char *const roles[] = {"inout", "temp", "out", "in"};
        // Two of each dtype may be written.
        const char *role = roles[i < 4 ? Below(3) : 3];

        inner_[i] = Below(3) == 0;
        return std::string(role) + " %b" + std::to_string(i) + " : " +
               dtypes_[size_t(i) % 2] + "[" +
               (inner_[i] ? rows_ + ", 2, " : "2, " + rows_ + ", ") + columns_ +
               "] ";
    }
    std::string View(size_t buffer, size_t index) const
    {
        return "%b" + std::to_string(buffer) + (inner_[buffer] ? "[:, " : "[") +
               std::to_string(index) + "]";
    }
    // Of the buffers of a dtype.
    std::string Operand(size_t dtype)
    {
        return View(dtype + 2 * Below(3), Below(2));
    }
    std::string Step()
    {
        size_t dtype = Below(2);
        std::string to = " " + View(dtype + 2 * Below(2), Below(2)) + " = ";
        std::string a = Operand(dtype), b = Operand(dtype);
        std::string v = "%v" + std::to_string(dtype);

        switch (Below(exact_ || !Floats(dtype) ? 9 : 13)) {
        case 0:
            return to + "copy " + Operand(1 - dtype);
        case 1:
            return to + "copy " + a;
        case 2:
            return to + "add " + a + ", " + b;
        case 3:
            return to + "add " + a + ", " + v;
        case 4:
            return to + "mul " + a + ", " + (Below(2) == 0 ? v : b);
        case 5:
            return to + "max " + a + ", " + b;
        case 6:
            return to + "scale " + a + " by " + (Below(2) == 0 ? "0.5" : "3");
        case 7:
            return to + "scale " + a + " by %f";
        case 8:
            return to + (Floats(dtype) ? "relu " + a : "sum " + a);
        case 9:
            return to + "gelu " + a;
        case 10:
            return to + "silu " + a;
        case 11:
            return to + "scale " + a + " by 0.1";
        default:
            return to + "sum " + a + ", " + b + ", " + a;
        }
    }
};

std::vector<std::string> Random(int n, unsigned seed, bool exact)
{
    std::vector<std::string> bodies;

    for (int i = 0; i < n; i++)
        bodies.push_back(Draw(seed + unsigned(i), exact).Body());
    return bodies;
}

// Operations of which one in float, rounded, is one in double, rounded.
TEST(CodegenChain, RandomChainsAreTheCpusBitByBit)
{
    int joined = CheckAll(Random(60, 1000, true), true);

    EXPECT_GT(joined, 100);
}

TEST(CodegenChain, RandomChainsAreTheirStepsBitByBit)
{
    int joined = CheckAll(Random(25, 2000, false), false);

    EXPECT_GT(joined, 40);
}

// ------------------------------------------------------------------- NVRTC

class ChainNvrtc : public Nvrtc
{
  protected:
    // The assembly, which says how the compiler has joined operations.
    std::string Assemble(const std::string &text)
    {
        void *library = dlopen(hd_nvrtc_path(nvrtc_), RTLD_NOW);
        const char *const options[] = {"--gpu-architecture=compute_90",
                                       "--device-as-default-execution-space"};
        void *program = nullptr;
        size_t bytes = 0;
        std::string ptx;

        EXPECT_NE(library, nullptr);
        if (library == nullptr)
            return "";
        EXPECT_EQ(
            Call<int(void **, const char *, const char *, int, void *, void *)>(
                library, "nvrtcCreateProgram")(&program, text.c_str(),
                                               "chain.cu", 0, nullptr, nullptr),
            0);
        EXPECT_EQ(Call<int(void *, int, const char *const *)>(
                      library, "nvrtcCompileProgram")(program, 2, options),
                  0)
            << text;
        EXPECT_EQ(Call<int(void *, size_t *)>(library, "nvrtcGetPTXSize")(
                      program, &bytes),
                  0);
        ptx.resize(bytes);
        EXPECT_EQ(
            Call<int(void *, char *)>(library, "nvrtcGetPTX")(program, &ptx[0]),
            0);
        Call<int(void **)>(library, "nvrtcDestroyProgram")(&program);
        dlclose(library);
        return ptx;
    }

  private:
    template <class Function>
    static Function *Call(void *library, const char *name)
    {
        return reinterpret_cast<Function *>(dlsym(library, name));
    }
};

// A product of one step and a sum of the next are not one fma, which would not
// round the product.
TEST_F(ChainNvrtc, AProductIsRoundedAheadOfTheNextStepsSum)
{
    for (const std::string d : {"f32", "f64"}) {
        std::string suffix = d == "f32" ? ".rn.f32" : ".rn.f64";
        std::vector<Kernel> kernels;

        Chained("in %a : " + d + "[64] in %b : " + d +
                    "[64] in %f : f32[1]"
                    "out %y : " +
                    d + "[64] out %z : " + d +
                    "[64] "
                    "{ %y = mul %a, %b  %z = add %y, %b  %y = scale %z by %f"
                    "  %z = sum %b, %y  %z = scale %z by 3  %z = add %z, %a }",
                true)
            .Emit(&kernels);
        ASSERT_EQ(kernels.size(), 1u);
        std::string ptx = Assemble(kernels[0].text);
        EXPECT_NE(ptx.find("mul" + suffix), std::string::npos) << ptx;
        EXPECT_NE(ptx.find("add" + suffix), std::string::npos) << ptx;
        EXPECT_EQ(ptx.find("fma"), std::string::npos) << ptx;
    }
}

TEST_F(ChainNvrtc, CompilesChainsForThreeGenerations)
{
    const char *archs[] = {"sm_80", "sm_90a", "sm_100"};
    std::vector<Kernel> kernels;

    for (const std::string &body : Random(6, 3000, false))
        Chained(body, true).Emit(&kernels);
    for (size_t i = 0; i < kernels.size(); i++)
        EXPECT_FALSE(Compile(kernels[i].text, archs[i % 3]).empty())
            << archs[i % 3] << ": " << hd_diag_text(diag_) << kernels[i].text;
    EXPECT_GT(kernels.size(), 6u);
}

} // namespace
