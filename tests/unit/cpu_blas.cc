// OpenBLAS in a process that others use it in, and where the address space has
// a limit.
#include "runtime/cpu/blas.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <future>
#include <random>
#include <string>
#include <thread>

#include "memory.h"
#include "tests/seed.h"

namespace
{

constexpr int kSide = 192; // large enough that a product needs a buffer
constexpr hd_gemm kGemm = {false, false, kSide, kSide, kSide,
                           kSide, kSide, kSide, 1};

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

    std::mt19937 random_{Seed()};
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
              (blas.library.handle != nullptr ? 2 : 0));
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
    EXPECT_EQ(is_openblas, plain.library.handle != nullptr) << plain.name;
    hd_cpu_blas_close(&plain);
}

// What a toy OpenBLAS has been told, and how many threads its products had.
std::atomic<int> threads_now, most_seen, products_made;
std::promise<void> go_on;
std::shared_future<void> may_go_on;

hd_cpu_blas ToyBlas()
{
    hd_cpu_blas blas = {};

    blas.library.handle = &threads_now;
    blas.openblas_get_num_threads = [] { return threads_now.load(); };
    blas.openblas_set_num_threads = [](int n) { threads_now = n; };
    blas.cblas_sgemm = [](int, int, int, int, int, int, float, const float *,
                          int, const float *, int, float, float *, int) {
        most_seen = std::max(most_seen.load(), threads_now.load());
        products_made++;
        may_go_on.wait();
    };
    blas.cblas_dgemm = [](int, int, int, int, int, int, double, const double *,
                          int, const double *, int, double, double *, int) {
        most_seen = std::max(most_seen.load(), threads_now.load());
    };
    return blas;
}

TEST(CpuBlas, ThreadsOfTheHostAreOneOnlyWhileProductsRun)
{
    hd_cpu_blas blas = ToyBlas();
    std::thread threads[2];

    threads_now = 7;
    most_seen = products_made = 0;
    go_on = {};
    may_go_on = go_on.get_future().share();
    for (std::thread &thread : threads)
        thread = std::thread([&] {
            hd_cpu_blas_sgemm(&blas, &kGemm, nullptr, nullptr, nullptr);
        });
    while (products_made < 2)
        std::this_thread::yield();
    // One that ends while others run puts nothing back.
    hd_cpu_blas_dgemm(&blas, &kGemm, nullptr, nullptr, nullptr);
    EXPECT_EQ(threads_now, 1);
    go_on.set_value();
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(threads_now, 7);
    EXPECT_EQ(most_seen, 1);
}

TEST(CpuBlas, WhatTheHostSetsMeanwhileStays)
{
    hd_cpu_blas blas = ToyBlas();

    threads_now = 7;
    products_made = 0;
    go_on = {};
    may_go_on = go_on.get_future().share();
    std::thread thread(
        [&] { hd_cpu_blas_sgemm(&blas, &kGemm, nullptr, nullptr, nullptr); });
    while (products_made < 1)
        std::this_thread::yield();
    threads_now = 3;
    go_on.set_value();
    thread.join();
    EXPECT_EQ(threads_now, 3);
}

TEST(CpuBlas, TheLibraryStaysAndKeepsItsThreads)
{
    hd_cpu_blas blas;
    static float a[kSide * kSide], c[kSide * kSide];

    hd_cpu_blas_open(&blas);
    if (blas.library.handle == nullptr)
        GTEST_SKIP() << blas.name;
    int before = blas.openblas_get_num_threads();
    blas.openblas_set_num_threads(2);
    int had = blas.openblas_get_num_threads();
    hd_cpu_blas_sgemm(&blas, &kGemm, a, a, c);
    EXPECT_EQ(blas.openblas_get_num_threads(), had);
    blas.openblas_set_num_threads(before);
    std::string path = blas.library.path;
    hd_cpu_blas_close(&blas);
    void *again = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    EXPECT_NE(again, nullptr) << path;
    if (again != nullptr)
        dlclose(again);
}

} // namespace
