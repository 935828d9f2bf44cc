// Every compute operation on views of any stride, in every dtype, against the
// plain loops of the oracle: integers exactly, the rest within its bounds. What
// a kernel has no business with stays as it was.
#include <cmath>
#include <random>

#include <heddle/verify.h>

#include "base/dtype.h"
#include "runtime/cpu/kernels.h"
#include "tests/unit/estimates.h"
#include "tests/unit/program.h"

namespace
{

// The buffers of a program of one rank, as bytes and as the oracle's values.
class Memory
{
  public:
    Memory(const hd_module *module, unsigned seed) : random_(seed)
    {
        for (const hd_buffer *b = module->buffers; b != nullptr; b = b->next) {
            size_t n = static_cast<size_t>(hd_type_local_elements(&b->type));
            size_t size = hd_dtype_size(b->type.dtype);
            std::vector<double> values(n);

            for (double &v : values)
                v = Draw(b->type.dtype);
            std::vector<double> indices = DrawIndices(module, b, random_);
            if (!indices.empty())
                values = indices;
            bytes_.emplace_back(n * size);
            hd_dtype_store(b->type.dtype, values.data(), n,
                           bytes_.back().data());
        }
        oracle_ = Estimates(module, [this](const hd_buffer *b) {
            return bytes_[static_cast<size_t>(b->id)].data();
        });
    }
    hd_status Compute(const hd_step &step)
    {
        hd_cpu_blas loops = {}; // no library
        hd_cpu_scratch scratch = {&loops, nullptr, 0, {}};
        void *base[HD_MAX_VIEWS];
        hd_status status = hd_cpu_scratch_need(&step, &scratch.bytes);
        std::vector<max_align_t> room(scratch.bytes / sizeof(max_align_t) + 8);

        for (int i = 0; i < step.op->nviews; i++) {
            size_t id = static_cast<size_t>(step.span[i].buffer->id);

            base[i] = bytes_[id].data();
        }
        scratch.memory = room.data();
        if (status == HD_OK)
            hd_cpu_compute(&scratch, &step, base);
        return status == HD_OK ? oracle_.Compute(step) : status;
    }
    // Empty, or the first element of any buffer that is off.
    std::string Differs(const hd_module *module) const
    {
        for (const hd_buffer *b = module->buffers; b != nullptr; b = b->next) {
            size_t id = static_cast<size_t>(b->id);
            size_t n = static_cast<size_t>(hd_type_local_elements(&b->type));
            const hd_estimate *want = oracle_.At(b);
            std::vector<double> have(n);

            hd_dtype_load(b->type.dtype, bytes_[id].data(), n, have.data());
            for (size_t i = 0; i < n; i++)
                if (!(std::fabs(have[i] - want[i].value) <= want[i].bound))
                    return std::string("%") + b->name + " element " +
                           std::to_string(i) + ": " + std::to_string(have[i]) +
                           ", not " + std::to_string(want[i].value) + " +- " +
                           std::to_string(want[i].bound);
        }
        return "";
    }

  private:
    std::mt19937 random_;
    std::vector<std::vector<char>> bytes_;
    Estimates oracle_;

    double Draw(hd_dtype dtype)
    {
        if (dtype == HD_DTYPE_I64 || dtype == HD_DTYPE_I32)
            return static_cast<double>(random_() % 2001) - 1000;
        if (dtype == HD_DTYPE_U8)
            return static_cast<double>(random_() % 256);
        if (dtype == HD_DTYPE_I8)
            return static_cast<double>(random_() % 256) - 128;
        return static_cast<double>(random_() % 8192) / 1024 - 4;
    }
};

std::string Try(const std::string &body, unsigned seed)
{
    Program p("host program kernel " + body);
    hd_steps steps;

    if (p.status != HD_OK)
        return "parse: " + p.Said();
    if (hd_steps_collect(p.module, 0, p.diag, &steps) != HD_OK)
        return "walk: " + p.Said();
    Memory memory(p.module, seed);
    std::string said;
    for (int64_t i = 0; i < steps.nsteps; i++)
        if (memory.Compute(steps.step[i]) != HD_OK)
            said = "out of memory";
    hd_steps_free(&steps);
    return said.empty() ? memory.Differs(p.module) : said;
}

const std::vector<std::string> kFloats = {"f64",  "f32",    "f16",
                                          "bf16", "f8e4m3", "f8e5m2"};
const std::vector<std::string> kAll = {"f64",    "f32", "f16", "bf16", "f8e4m3",
                                       "f8e5m2", "i64", "i32", "u8",   "i8"};

// Buffers whose leading dimensions leave gaps between what a view picks.
std::string Buffers(const std::string &x, const std::string &y)
{
    return "in %a : " + x + "[3, 5, 4] in %b : " + x + "[5, 4] in %v : " + x +
           "[4] in %f : f32[1] out %y : " + y + "[5, 3, 4] out %t : " + y +
           "[4, 5] out %r : " + y + "[3, 4] ";
}

TEST(CpuKernels, ElementWiseOperationsInEveryDtype)
{
    for (const std::string &d : kAll)
        for (const char *op :
             {"%y[:, 1] = copy %a[1]", "%y[:, 2] = sum %a[0], %b, %a[2]",
              "%y[:, 0] = max %a[0], %a[2]", "%y[:, 1] = add %a[2], %v",
              "%y[:, 1] = mul %a[2], %b", "%r = sum %a dim 1",
              "%r = max %a dim 1", "%t = transpose %b"})
            for (unsigned seed = 1; seed <= 3; seed++)
                EXPECT_EQ(Try(Buffers(d, d) + "{ " + op + " }", seed), "")
                    << d << ": " << op;
}

TEST(CpuKernels, TakesOfEveryShapeInEveryDtype)
{
    for (const std::string &d : kAll)
        for (const char *program :
             {"in %a : $[3, 7, 5, 4] in %i : i32[3, 6] out %y : $[3, 6, 5, 4] "
              "{ %y = take %a, %i dim 1 }",
              "in %a : $[4, 9] in %i : i32[4, 2, 3] out %y : $[4, 2, 3] "
              "{ %y = take %a, %i dim 1 }",
              "in %a : $[5] in %i : i32[] out %y : $[] "
              "{ %y = take %a, %i dim 0 }",
              "in %a : $[2, 5, 3, 8] in %i : i32[4, 3, 2] out %y : $[4, 3, 8] "
              "{ %y[:, 1] = take %a[1, :, 2], %i[:, 1, 0] dim 0 }",
              "in %a : $[6, 5, 7] in %i : i32[6, 5, 9] out %y : $[6, 5, 9] "
              "{ %y[1..4, :, 2..7] = take %a[1..4, :, 2..6], "
              "%i[1..4, :, 4..9] dim 2 }"})
            for (unsigned seed = 1; seed <= 3; seed++) {
                std::string text = program;

                for (size_t at; (at = text.find('$')) != std::string::npos;)
                    text.replace(at, 1, d);
                EXPECT_EQ(Try(text, seed), "") << text;
            }
}

TEST(CpuKernels, SumsTakeF32BesideANarrowerDtype)
{
    for (const char *d : {"f16", "bf16", "f8e4m3", "f8e5m2"})
        for (const char *op :
             {"%y[:, 2] = sum %a[0], %b, %a[2]", "%y[:, 1] = sum %b, %a[1]"})
            for (unsigned seed = 1; seed <= 3; seed++)
                for (int s = 0; s < 2; s++) {
                    std::string text =
                        Buffers(s == 0 ? "f32" : d, s == 0 ? d : "f32");
                    size_t b = text.find("in %b : ") + 8;

                    text.replace(b, text.find('[', b) - b, d);
                    EXPECT_EQ(Try(text + "{ " + op + " }", seed), "")
                        << d << ": " << op;
                }
}

TEST(CpuKernels, ScaleTakesANumberOrAFactorInMemory)
{
    for (const std::string &d : kFloats)
        for (const char *op :
             {"%y[:, 1] = scale %a[1] by 0.375", "%y[:, 1] = scale %b by %f"})
            EXPECT_EQ(Try(Buffers(d, d) + "{ " + op + " }", 7), "")
                << d << ": " << op;
}

TEST(CpuKernels, ActivationsOfEveryFloatingDtype)
{
    for (const std::string &d : kFloats)
        for (const char *op : {"relu", "gelu", "silu"})
            for (unsigned seed = 1; seed <= 3; seed++)
                EXPECT_EQ(Try(Buffers(d, d) + "{ %y[:, 1] = " + op + " %a[1] }",
                              seed),
                          "")
                    << d << ": " << op;
}

TEST(CpuKernels, CopyCastsBetweenAllDtypes)
{
    for (const std::string &from : kAll)
        for (const std::string &to : kAll)
            EXPECT_EQ(Try(Buffers(from, to) + "{ %y[:, 1] = copy %a[1] }", 11),
                      "")
                << from << " to " << to;
}

TEST(CpuKernels, ElementWiseOperationsMayWriteOverTheirOperand)
{
    for (const std::string &d : kFloats)
        EXPECT_EQ(Try("inout %x : " + d + "[3, 4] in %b : " + d +
                          "[4] { %x = add %x, %b %x[1] = relu %x[1] "
                          "%x = scale %x by 0.5 }",
                      13),
                  "")
            << d;
}

TEST(CpuKernels, MatmulsWithEveryKey)
{
    for (const std::string d : {"f64", "f32", "bf16"})
        for (const char *op :
             {"%c = matmul %a, %b", "%c = matmul %at, %b ta",
              "%c = matmul %a, %bt tb", "%c = matmul %at, %bt ta tb",
              "%c = matmul %a, %b scale 0.5 bias %v act relu aux %z",
              "%c = matmul %a, %bt tb bias %v act gelu",
              "%c = matmul %a, %b accumulate act silu"})
            for (unsigned seed = 1; seed <= 3; seed++)
                EXPECT_EQ(
                    Try("in %a : " + d + "[5, 7] in %at : " + d +
                            "[7, 5] in %b : " + d + "[7, 6] in %bt : " + d +
                            "[6, 7] in %v : " + d + "[6] inout %c : " + d +
                            "[5, 6] out %z : " + d + "[5, 6] { " + op + " }",
                        seed),
                    "")
                    << d << ": " << op;
}

TEST(CpuKernels, MatmulsFindRowsBehindADimensionOfOneIndex)
{
    for (const char *row : {"[:, :, :, 1]", "[:, :, 0, 1]", "[1, :, :, 1]"})
        EXPECT_EQ(Try("in %a : f32[2, 3, 1, 3, 2, 5] in %b : f32[5, 4] "
                      "out %c : f32[2, 3, 1, 3, 2, 4] { %c" +
                          std::string(row) + " = matmul %a" + row + ", %b }",
                      17),
                  "")
            << row;
}

} // namespace
