// Emitted kernels compiled for the host and run a thread at a time, or in
// threads that wait for each other, the memory that they work on, and NVRTC for
// tests.
#ifndef HD_TESTS_UNIT_KERNELS_H
#define HD_TESTS_UNIT_KERNELS_H

#include <dlfcn.h>
#include <pthread.h>

#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include <heddle/verify.h>

#include "base/dtype.h"
#include "codegen/emit.h"
#include "codegen/nvrtc.h"
#include "runtime/cpu/kernels.h"
#include "tests/unit/folder.h"
#include "tests/unit/program.h"

// ---------------------------------------------------------------- compiling

// What the kernels of the tests take at most, by value; of a grid the sizes
// come after the pointers that it has.
struct Addresses {
    uint64_t at[HD_KERNEL_POINTERS + HD_KERNEL_SIZES];

    void Size(const hd_kernel_grid &grid)
    {
        for (int i = 0; i < grid.sizes; i++)
            at[grid.pointers + i] = static_cast<uint64_t>(grid.size[i]);
    }
};

struct Kernel {
    std::string text;
    hd_kernel_grid grid = {};
};

// The same on a few threads.
inline hd_kernel_grid Few(hd_kernel_grid grid)
{
    grid.blocks = 2;
    grid.threads = 3;
    return grid;
}

// What CUDA gives a kernel.
const char kHost[] = R"(
#include <math.h>
#define __global__
extern "C" int sched_yield(void) noexcept;
extern "C" int pthread_barrier_wait(void *) noexcept;
struct place { unsigned x; };
static thread_local place threadIdx, blockIdx, blockDim, gridDim;
// Of the block. Without one its threads take turns, the last after all others.
static thread_local void *barrier;
static inline void __syncthreads()
{
    if (barrier != nullptr)
        pthread_barrier_wait(barrier);
}
static inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
extern "C" long clock() noexcept;
static inline long long clock64() { return clock() * 2000ll; }
static inline void __nanosleep(unsigned)
{
    sched_yield();
}
static inline unsigned atomicAdd(unsigned *at, unsigned n)
{
    return __atomic_fetch_add(at, n, __ATOMIC_SEQ_CST);
}
)";

// What a kernel finds on a GPU beside it, of threads that run at once, a block
// after the other: their lanes meet at a warp's own barrier, behind the
// block's.
inline std::string Warps()
{
    return std::string(kHost) +
           "enum { BARRIER = " + std::to_string(sizeof(pthread_barrier_t)) +
           " };" + R"(
#define __CUDA_ARCH__ 900
#define __launch_bounds__(...)
#define __shared__ static
static unsigned long long said[1024];
static inline void meet_lanes()
{
    pthread_barrier_wait((char *)barrier + BARRIER * (1 + threadIdx.x / 32));
}
template <class T> static inline T __shfl_xor_sync(unsigned, T x, unsigned o)
{
    T y;
    __builtin_memcpy(&said[threadIdx.x], &x, sizeof x);
    meet_lanes();
    __builtin_memcpy(&y, &said[threadIdx.x ^ o], sizeof y);
    meet_lanes();
    return y;
}
static inline unsigned __ballot_sync(unsigned, bool yes)
{
    unsigned votes = 0;
    said[threadIdx.x] = yes;
    meet_lanes();
    for (unsigned lane = 0; lane < 32; lane++)
        votes |= (unsigned)said[threadIdx.x / 32 * 32 + lane] << lane;
    meet_lanes();
    return votes;
}
static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}
static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}
)";
}

// Lets the names go that a text has as macros: the next text has its own.
inline std::string Undefined(const std::string &text)
{
    const std::string define = "#define ";
    std::string all;

    for (size_t at = text.find(define); at != std::string::npos;
         at = text.find(define, at)) {
        at += define.size();
        all += "#undef " +
               text.substr(at, text.find_first_of(" (\n", at) - at) + "\n";
    }
    return all;
}

// What is not aligned stops here, as it would on a GPU.
const char kFlags[] = "-ffp-contract=off -fsanitize=alignment "
                      "-fsanitize-undefined-trap-on-error";

// Many kernels, compiled at once.
class Host
{
  public:
    explicit Host(const std::vector<Kernel> &kernels,
                  const std::string &before = kHost)
    {
        std::string all = before;

        for (size_t i = 0; i < kernels.size(); i++) {
            std::string n = std::to_string(i);

            all += "namespace k" + n + " {\n#define hd_kernel kernel" + n +
                   "\n" + kernels[i].text + "extern \"C\" void launch" + n +
                   "(const void *args, unsigned blocks, unsigned threads)\n"
                   "{\n"
                   "    gridDim.x = blocks;\n"
                   "    blockDim.x = threads;\n"
                   "    for (unsigned b = 0; b < blocks; b++)\n"
                   "        for (unsigned t = 0; t < threads; t++) {\n"
                   "            blockIdx.x = b;\n"
                   "            threadIdx.x = t;\n"
                   "            kernel" +
                   n +
                   "(*(const hd_kernel_args *)args);\n"
                   "        }\n"
                   "}\n"
                   "extern \"C\" void thread" +
                   n +
                   "(const void *args, unsigned blocks, unsigned threads,\n"
                   "    unsigned b, unsigned t, void *meet)\n"
                   "{\n"
                   "    gridDim.x = blocks;\n"
                   "    blockDim.x = threads;\n"
                   "    blockIdx.x = b;\n"
                   "    threadIdx.x = t;\n"
                   "    barrier = meet;\n"
                   "    kernel" +
                   n +
                   "(*(const hd_kernel_args *)args);\n"
                   "    barrier = nullptr;\n"
                   "}\n#undef hd_kernel\n}\n" +
                   Undefined(kernels[i].text);
        }
        // It stays mapped: LeakSanitizer reads the thread-local storage of
        // libraries at exit, and crashes at times where one was unmapped.
        library_ = dlopen(folder_.Compile(all, "kernels.so", kFlags).c_str(),
                          RTLD_NOW | RTLD_NODELETE);
        EXPECT_NE(library_, nullptr);
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;
    ~Host()
    {
        if (library_ != nullptr)
            dlclose(library_);
    }
    void Launch(size_t i, Addresses args, hd_kernel_grid grid) const
    {
        void *address = Find("launch", i);

        args.Size(grid);
        ASSERT_NE(address, nullptr) << i;
        reinterpret_cast<void (*)(const void *, unsigned, unsigned)>(address)(
            &args, grid.blocks, grid.threads);
    }
    // One thread after the other, the last one first.
    void LaunchBackwards(size_t i, Addresses args, hd_kernel_grid grid) const
    {
        void *address = Find("thread", i);

        args.Size(grid);
        ASSERT_NE(address, nullptr) << i;
        for (unsigned n = grid.blocks * grid.threads; n-- > 0;)
            reinterpret_cast<void (*)(const void *, unsigned, unsigned,
                                      unsigned, unsigned, void *)>(address)(
                &args, grid.blocks, grid.threads, n / grid.threads,
                n % grid.threads, nullptr);
    }
    // All threads of it at once.
    void LaunchTogether(size_t i, Addresses args, hd_kernel_grid grid) const
    {
        const unsigned blocks = grid.blocks, threads = grid.threads;
        void *address = Find("thread", i);
        std::vector<pthread_barrier_t> barriers(blocks);
        std::vector<std::thread> all;

        ASSERT_NE(address, nullptr) << i;
        args.Size(grid);
        for (unsigned b = 0; b < blocks; b++) {
            pthread_barrier_init(&barriers[b], nullptr, threads);
            for (unsigned t = 0; t < threads; t++)
                all.emplace_back(
                    reinterpret_cast<void (*)(const void *, unsigned, unsigned,
                                              unsigned, unsigned, void *)>(
                        address),
                    &args, blocks, threads, b, t, &barriers[b]);
        }
        for (std::thread &thread : all)
            thread.join();
        for (pthread_barrier_t &barrier : barriers)
            pthread_barrier_destroy(&barrier);
    }
    // A block after the other, all threads of each at once, in whole warps.
    void LaunchWarps(size_t i, Addresses args, hd_kernel_grid grid) const
    {
        void *address = Find("thread", i);
        std::vector<pthread_barrier_t> barriers(1 + grid.threads / 32);

        ASSERT_NE(address, nullptr) << i;
        args.Size(grid);
        for (size_t k = 0; k < barriers.size(); k++)
            pthread_barrier_init(&barriers[k], nullptr,
                                 k == 0 ? grid.threads : 32);
        for (unsigned b = 0; b < grid.blocks; b++) {
            std::vector<std::thread> all;

            for (unsigned t = 0; t < grid.threads; t++)
                all.emplace_back(
                    reinterpret_cast<void (*)(const void *, unsigned, unsigned,
                                              unsigned, unsigned, void *)>(
                        address),
                    &args, grid.blocks, grid.threads, b, t, barriers.data());
            for (std::thread &thread : all)
                thread.join();
        }
        for (pthread_barrier_t &barrier : barriers)
            pthread_barrier_destroy(&barrier);
    }

  private:
    void *Find(const char *what, size_t i) const
    {
        std::string name = what + std::to_string(i);

        return library_ != nullptr ? dlsym(library_, name.c_str()) : nullptr;
    }

    Folder folder_;
    void *library_;
};

inline Kernel
Emit(const std::function<hd_status(hd_text *, hd_kernel_grid *)> &emit)
{
    hd_text text = {};
    Kernel kernel;

    EXPECT_EQ(emit(&text, &kernel.grid), HD_OK);
    char *bytes = hd_text_take(&text);
    kernel.text = bytes != nullptr ? bytes : "";
    hd_free(bytes);
    return kernel;
}

// -------------------------------------------------------------------- memory

// Buffers, each between two ranges that nobody may write.
class Buffers
{
  public:
    enum { GUARD = 64 };
    // `shift` elements past a multiple of 64 bytes.
    Buffers(const hd_module *module, unsigned seed, bool special, size_t shift)
    {
        std::mt19937 random(seed);

        for (const hd_buffer *b = module->buffers; b != nullptr; b = b->next) {
            size_t n = static_cast<size_t>(hd_type_local_elements(&b->type));
            size_t size = hd_dtype_size(b->type.dtype);
            std::vector<double> values(n);

            for (double &v : values)
                v = Draw(random, b->type.dtype, special);
            std::vector<double> indices = DrawIndices(module, b, random);
            if (!indices.empty())
                values = indices;
            memory_.emplace_back((n * size + 4 * GUARD) / 64 + 1);
            for (Line &line : memory_.back())
                std::memset(line.byte, 0x5a, sizeof line.byte);
            at_.push_back(memory_.back()[1].byte + shift * size);
            bytes_.push_back(n * size);
            hd_dtype_store(b->type.dtype, values.data(), n, at_.back());
        }
    }
    void *At(const hd_span &span) const
    {
        return at_[static_cast<size_t>(span.buffer->id)];
    }
    void *At(const hd_buffer *b) const
    {
        return at_[static_cast<size_t>(b->id)];
    }
    bool GuardsAreWhole() const
    {
        for (size_t i = 0; i < memory_.size(); i++) {
            const char *byte = memory_[i][0].byte;
            const char *end = byte + memory_[i].size() * sizeof(Line);

            for (; byte < end; byte++)
                if ((byte < at_[i] || byte >= at_[i] + bytes_[i]) &&
                    *byte != 0x5a)
                    return false;
        }
        return true;
    }

  private:
    struct alignas(64) Line {
        char byte[64];
    };
    std::vector<std::vector<Line>> memory_;
    std::vector<char *> at_;
    std::vector<size_t> bytes_;

    static double Draw(std::mt19937 &random, hd_dtype dtype, bool special)
    {
        static const double odd[] = {NAN,   INFINITY, -INFINITY, 0.0,  -0.0,
                                     1e-42, -3e-8,    3e38,      -7e4, 500};

        if (special && random() % 3 == 0)
            return odd[random() % 10];
        if (dtype == HD_DTYPE_I64) // these two wrap when they are multiplied
            return (static_cast<double>(random() % 2001) - 1000) * 0x1p40;
        if (dtype == HD_DTYPE_I32)
            return static_cast<double>(random() % 2000001) - 1000000;
        if (dtype == HD_DTYPE_U8)
            return static_cast<double>(random() % 256);
        if (dtype == HD_DTYPE_I8)
            return static_cast<double>(random() % 256) - 128;
        return static_cast<double>(random() % 8192) / 1024 - 4;
    }
};

// Where the step's views begin.
inline Addresses Arguments(const hd_step &of, const Buffers &buffers)
{
    Addresses args = {};

    for (int k = 0; k < of.op->nviews; k++)
        args.at[k] = reinterpret_cast<uint64_t>(buffers.At(of.span[k])) +
                     uint64_t(of.span[k].offset) *
                         hd_dtype_size(of.span[k].buffer->type.dtype);
    return args;
}

inline double At(hd_dtype dtype, const void *from, size_t i)
{
    double value;

    hd_dtype_load(dtype,
                  static_cast<const char *>(from) + i * hd_dtype_size(dtype), 1,
                  &value);
    return value;
}

// The step on the cpu, and the first count of it that does not fit.
inline hd_miscount Compute(const hd_step &step, const Buffers &buffers)
{
    hd_cpu_blas loops = {}; // no library
    hd_cpu_scratch scratch = {&loops, nullptr, 0, {}};
    void *base[HD_MAX_VIEWS];

    for (int i = 0; i < step.op->nviews; i++)
        base[i] = buffers.At(step.span[i]);
    EXPECT_EQ(hd_cpu_scratch_need(&step, &scratch.bytes), HD_OK);
    std::vector<max_align_t> room(scratch.bytes / sizeof(max_align_t) + 8);
    scratch.memory = room.data();
    hd_cpu_compute(&scratch, &step, base);
    return scratch.miscount;
}

// -------------------------------------------------------------------- NVRTC

// Skips where there is none.
class Nvrtc : public ::testing::Test
{
  protected:
    hd_diag *diag_ = hd_diag_create();
    hd_nvrtc *nvrtc_ = nullptr;

    void SetUp() override
    {
        if (hd_nvrtc_open(diag_, &nvrtc_) != HD_OK)
            GTEST_SKIP() << hd_diag_text(diag_);
        std::vector<char> cubin = Compile("extern \"C\" __global__ void "
                                          "hd_kernel() {}",
                                          "sm_90a");
        // A stand-in makes code for this machine.
        if (cubin.size() < 20 || static_cast<unsigned char>(cubin[18]) != 190)
            GTEST_SKIP() << hd_nvrtc_path(nvrtc_) << " makes no code for GPUs";
        library_ = dlopen(hd_nvrtc_path(nvrtc_), RTLD_NOW);
    }
    void TearDown() override
    {
        hd_nvrtc_close(nvrtc_);
        hd_diag_destroy(diag_);
    }
    std::vector<char> Compile(const std::string &text, const char *arch)
    {
        void *cubin = nullptr;
        size_t bytes = 0;

        hd_diag_clear(diag_);
        if (hd_nvrtc_compile(nvrtc_, text.c_str(), arch, diag_, &cubin,
                             &bytes) != HD_OK)
            return {};
        std::vector<char> result(static_cast<char *>(cubin),
                                 static_cast<char *>(cubin) + bytes);
        std::free(cubin);
        return result;
    }
    // The log of a compilation, in which ptxas says what the kernel takes.
    std::string Log(const std::string &text, const std::string &arch,
                    const std::string &includes = ".")
    {
        const std::string target = "--gpu-architecture=" + arch;
        const std::string folder = "-I" + includes;
        const char *const options[] = {target.c_str(),    "-std=c++17",
                                       "-default-device", "-w",
                                       folder.c_str(),    "--ptxas-options=-v"};
        void *program = nullptr;
        size_t bytes = 0;
        std::string log;

        EXPECT_EQ(
            Call<int(void **, const char *, const char *, int, void *, void *)>(
                "nvrtcCreateProgram")(&program, text.c_str(), "alone.cu", 0,
                                      nullptr, nullptr),
            0);
        int result = Call<int(void *, int, const char *const *)>(
            "nvrtcCompileProgram")(program, 6, options);
        Call<int(void *, size_t *)>("nvrtcGetProgramLogSize")(program, &bytes);
        log.resize(bytes);
        Call<int(void *, char *)>("nvrtcGetProgramLog")(program, &log[0]);
        Call<int(void **)>("nvrtcDestroyProgram")(&program);
        EXPECT_EQ(result, 0) << arch << ": " << text << log;
        return log;
    }

  private:
    template <class Function> Function *Call(const char *name)
    {
        return reinterpret_cast<Function *>(dlsym(library_, name));
    }

    void *library_ = nullptr;
};

#endif
