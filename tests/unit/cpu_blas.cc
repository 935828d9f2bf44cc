// OpenBLAS where the address space has a limit.
#include "runtime/cpu_blas.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "memory.h"

namespace
{

constexpr int kSide = 192; // large enough that a product needs a buffer
constexpr hd_gemm kGemm = {false, false, kSide, kSide, kSide,
                           kSide, kSide, kSide, 1,     0};

size_t AddressSpace() // in bytes, that this process uses
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == nullptr || fscanf(file, "%zu", &pages) != 1)
        pages = 0;
    if (file != nullptr)
        fclose(file);
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Products by two threads at once, whose memory is there from the start.
class Products
{
  public:
    Products()
    {
        for (float &v : a_)
            v = Draw();
        for (float &v : b_)
            v = Draw();
        hd_cpu_blas_sgemm(&loops_, &kGemm, a_, b_, want_);
        for (int i = 0; i < 2; i++) {
            std::fill(std::begin(have_[i]), std::end(have_[i]), NAN);
            threads_[i] = std::thread([this, i] {
                hd_cpu_blas_sgemm(blas_.get(), &kGemm, a_, b_, have_[i]);
            });
        }
    }
    // Are both what the built-in loops say? Whole numbers: exactly.
    bool AreRight(const hd_cpu_blas *blas)
    {
        start_.set_value(blas);
        for (std::thread &thread : threads_)
            thread.join();
        return memcmp(have_[0], want_, sizeof want_) == 0 &&
               memcmp(have_[1], want_, sizeof want_) == 0;
    }

  private:
    float Draw()
    {
        return static_cast<float>(static_cast<int>(random_() % 17) - 8);
    }

    std::mt19937 random_{std::random_device{}()};
    hd_cpu_blas loops_ = {};
    float a_[kSide * kSide], b_[kSide * kSide], want_[kSide * kSide],
        have_[2][kSide * kSide];
    std::promise<const hd_cpu_blas *> start_;
    std::shared_future<const hd_cpu_blas *> blas_ = start_.get_future().share();
    std::thread threads_[2];
};

// In a process of its own, which a product that never ends would hang.
bool MultipliesWithin(size_t mib, bool *is_openblas)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        static Products products;
        rlimit limit = {AddressSpace() + (mib << 20), RLIM_INFINITY};
        hd_cpu_blas blas;

        limit.rlim_max = limit.rlim_cur;
        alarm(60);
        setrlimit(RLIMIT_AS, &limit);
        hd_cpu_blas_open(&blas);
        _exit((products.AreRight(&blas) ? 0 : 1) +
              (blas.library != nullptr ? 2 : 0));
    }
    waitpid(child, &status, 0);
    *is_openblas = WIFEXITED(status) && WEXITSTATUS(status) == 2;
    return *is_openblas || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(CpuBlas, MultipliesUnderAnyLimitOfTheAddressSpace)
{
    HD_NEEDS_PLAIN_MALLOC();
    bool is_openblas = false;
    hd_cpu_blas plain;

    for (size_t mib : {8, 64, 192, 320, 512, 4096})
        EXPECT_TRUE(MultipliesWithin(mib, &is_openblas)) << mib << " MiB";
    EXPECT_TRUE(MultipliesWithin(1 << 20, &is_openblas));
    hd_cpu_blas_open(&plain);
    EXPECT_EQ(is_openblas, plain.library != nullptr) << plain.name;
    hd_cpu_blas_close(&plain);
}

} // namespace
