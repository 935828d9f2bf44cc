// Arguments at one place in every run: what that saves, whom it can be shared
// with, and what is no such memory.
#include <gtest/gtest.h>

#include "tests/cuda/caller.h"
#include "tests/cuda/places.h"
#include "tests/cuda/way.h"

namespace
{

typedef std::vector<std::vector<int>> Processes;

class CudaFixed : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaFixed, testing::ValuesIn(kWays), NameOfWay);

std::vector<Answer> RunFixed(const Processes &processes, const Program &program,
                             hd_session_options options, bool fixed, int runs)
{
    return RunProcesses(processes, [=, &program](Rank &rank) {
        hd_session_options with = options;
        Places places(rank);
        Session session;

        HD_TRY(places.Take(program));
        with.fixed = places.address.data();
        with.nfixed = fixed ? places.address.size() : 0;
        HD_TRY(session.Open(rank, program, with));
        return RunThere(rank, program, session, places.address, runs);
    });
}

TEST_P(CudaFixed, ArgumentsAreSharedAmongProcessesAndThreads)
{
    Program everything(kEverything), ring(kRing);

    AllAreRight(RunFixed({{0}, {1}}, everything, Options(), true, 5));
    AllAreRight(RunFixed({{0, 1}}, everything, Options(), true, 5));
    AllAreRight(RunFixed({{0, 2}, {1}}, ring, Options(), true, 5));
}

// %x is copied in, and %g out, where they are not fixed.
TEST(CudaFixedCopies, AreNotMade)
{
    const int runs = 20;
    Program everything(kEverything);
    std::vector<Answer> copies =
        RunFixed({{0}, {1}}, everything, CudaOptions(), false, runs);
    std::vector<Answer> none =
        RunFixed({{0}, {1}}, everything, CudaOptions(), true, runs);

    AllAreRight(copies);
    AllAreRight(none);
    // Who watches copies too, now and then, where the machine is busy.
    for (size_t i = 0; i < 2; i++)
        EXPECT_GT(copies[i].number - none[i].number, 3 * runs / 2);
}

TEST(CudaFixedMemory, ThatCannotBeSharedIsRefused)
{
    Program everything(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        hd_session_options options = CudaOptions();
        Places places(rank);
        Caller caller;
        Session session;
        hd_cu_ptr unshared = 0;

        HD_TRY(caller.Open(rank));
        HD_TRY(places.Take(everything));
        auto *alloc = Extra<decltype(fake_cuda_alloc_unshared)>(
            "fake_cuda_alloc_unshared");
        if (alloc(&unshared, 4096) != 0)
            return HD_ERROR_SYSTEM;
        std::vector<void *> fixed = places.address;
        if (rank.rank == 1)
            fixed[0] = reinterpret_cast<void *>(unshared);
        options.fixed = fixed.data();
        options.nfixed = fixed.size();
        hd_status status = session.Open(rank, everything, options);
        caller.cu.free(unshared);
        return status;
    });

    EXPECT_EQ(answers[0].status, HD_ERROR_PEER) << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_ERROR_ARGUMENT) << answers[1].text;
    for (int i = 0; i < 2; i++) {
        Ended(answers[size_t(i)], i);
        EXPECT_TRUE(Has(answers[size_t(i)], "rank 1: argument %x is fixed at "))
            << answers[size_t(i)].text;
        EXPECT_TRUE(Has(answers[size_t(i)],
                        "which CUDA shares with nobody: it takes "
                        "memory of hd_group_alloc, cuMemAlloc or "
                        "cudaMalloc"))
            << answers[size_t(i)].text;
    }
}

TEST(CudaFixedFaults, AreToldToBothRanks)
{
    Program everything(kEverything);

    for (const char *symbol :
         {"cuMemGetAddressRange_v2", "cuPointerGetAttribute",
          "cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle",
          "cuMemAlloc_v2", "cuMemFree_v2", "cuCtxPushCurrent_v2"})
        for (int k = 1; k <= 6; k++) {
            std::string fault = std::string(symbol) + ":" + std::to_string(k);
            std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
                hd_session_options options = CudaOptions(10);
                Places places(rank);
                Session session;
                hd_status status = HD_OK;

                if (rank.rank == 0)
                    setenv("FAKE_CUDA_FAIL", fault.c_str(), 1);
                status = places.Take(everything);
                places.address.resize(6);
                options.fixed = places.address.data();
                options.nfixed = places.address.size();
                hd_status opened = session.Open(rank, everything, options);
                if (status == HD_OK)
                    status = opened;
                if (status == HD_OK)
                    status =
                        RunThere(rank, everything, session, places.address, 2);
                return status;
            });

            for (int i = 0; i < 2; i++) {
                EXPECT_TRUE(answers[size_t(i)].ended) << fault << " hangs";
                EXPECT_NE(answers[size_t(i)].status, HD_ERROR_INVALID) << fault;
                if (strcmp(symbol, "cuCtxPushCurrent_v2") != 0) {
                    EXPECT_STREQ(answers[size_t(i)].left, "") << fault;
                }
            }
            EXPECT_TRUE(answers[1].status == HD_OK ||
                        answers[0].status != HD_OK)
                << fault << answers[1].text;
        }
}

} // namespace
