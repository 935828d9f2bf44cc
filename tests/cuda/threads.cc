// Several ranks in one process, each a thread: they reach each other's memory
// without CUDA IPC, which no process may use for what is its own.
#include <gtest/gtest.h>

#include <random>

#include "runtime/ranks/group.h"
#include "tests/cuda/way.h"

namespace
{

const int kSets = 3; // of random inputs

typedef std::vector<std::vector<int>> Processes;

void *const kOwnStream = reinterpret_cast<void *>(2); // of each thread

class CudaThreads : public CudaWays
{
};

INSTANTIATE_TEST_SUITE_P(All, CudaThreads, testing::ValuesIn(kWays), NameOfWay);

// Runs on each set of inputs, at two places, and what they leave.
hd_status RunSets(Rank &rank, const Program &program, hd_session *session,
                  void *stream)
{
    Memory memory;

    HD_TRY(Fill(memory, rank, program, session, 2));
    for (int run = 0; run < 4 * kSets; run++) {
        Shards &shards = *memory[size_t(run) % 2];

        HD_TRY(shards.Set(program.Inputs(run % kSets), program.Module(),
                          rank.rank, rank.diag));
        HD_TRY(shards.RunOn(stream, rank.diag));
        HD_TRY(shards.Get(rank.diag));
        HD_TRY(program.Compare(shards, rank.rank, run % kSets));
    }
    return HD_OK;
}

std::vector<Answer> RunIn(const Processes &processes, const Program &program,
                          const hd_session_options &options,
                          void *stream = nullptr)
{
    return RunProcesses(processes, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, options));
        return RunSets(rank, program, session, stream);
    });
}

TEST_P(CudaThreads, GiveTheAnswersThatProcessesGive)
{
    Program everything(kEverything, kSets), ring(kRing, kSets);

    AllAreRight(RunIn({{0, 1}}, everything, Options()));
    AllAreRight(RunIn({{0, 1, 2}}, ring, Options()));
}

TEST_P(CudaThreads, MeetRanksOfOtherProcesses)
{
    Program ring(kRing, kSets);

    for (const Processes &processes :
         {Processes{{0, 1}, {2}}, Processes{{0, 2}, {1}},
          Processes{{0}, {2, 1}}})
        AllAreRight(RunIn(processes, ring, Options()));
}

TEST_P(CudaThreads, OfSeveralSessionsTakeTurns)
{
    Program everything(kEverything, kSets);
    auto body = [&](Rank &rank) {
        Session first, second;

        HD_TRY(first.Open(rank, everything, Options()));
        HD_TRY(second.Open(rank, everything, CudaOptions()));
        HD_TRY(RunSets(rank, everything, second, nullptr));
        return RunSets(rank, everything, first, nullptr);
    };

    AllAreRight(RunProcesses({{0, 1}}, body));
}

TEST_P(CudaThreads, ThatShareADeviceRunOnStreamsOfTheirOwn)
{
    Program everything(kEverything, kSets);
    ScopedSetting devices("FAKE_CUDA_DEVICES", "1");

    if (GetParam().transport == HD_TRANSPORT_NCCL)
        GTEST_SKIP() << "NCCL wants a device for each rank";
    for (const Answer &answer :
         RunIn({{0, 1}}, everything, Options(), kOwnStream)) {
        EXPECT_TRUE(answer.ended);
        EXPECT_STREQ(answer.left, "");
        EXPECT_EQ(answer.status, HD_ERROR_UNSUPPORTED) << answer.text;
        EXPECT_TRUE(Has(answer, "are threads of one process that have one "
                                "device, where CUDA may block"))
            << answer.text;
    }

    ScopedSetting shared("HEDDLE_SHARED_DEVICE", "1");
    AllAreRight(RunIn({{0, 1}}, everything, Options(), kOwnStream));
    for (void *both :
         {static_cast<void *>(nullptr), reinterpret_cast<void *>(1)})
        for (const Answer &answer :
             RunIn({{0, 1}}, everything, Options(), both)) {
            EXPECT_TRUE(answer.ended);
            EXPECT_STREQ(answer.left, "");
            EXPECT_EQ(answer.status, HD_ERROR_ARGUMENT) << answer.text;
            EXPECT_TRUE(Has(answer, "is for the default stream, which is that "
                                    "of rank "))
                << answer.text;
        }
}

// What a rank has of a split group is as near.
TEST_P(CudaThreads, OfASplitGroupRunToo)
{
    Program everything(kEverything, kSets);
    auto body = [&](Rank &rank) {
        Rank half = rank;
        hd_status status;

        HD_TRY(hd_group_split(rank.group, rank.rank % 2, 0, rank.diag,
                              &half.group));
        half.rank = hd_group_rank(half.group);
        {
            Session session;

            status = session.Open(half, everything, Options());
            if (status == HD_OK)
                status = RunSets(half, everything, session, nullptr);
        }
        hd_group_destroy(half.group);
        return status;
    };

    AllAreRight(RunProcesses({{0, 1, 2}, {3}}, body));
}

// ------------------------------------------------------------------ ends

// Rank `first` has destroyed its session when the other runs once more, and
// writes what the first would wait for.
std::vector<Answer> RunAgainWithout(int first, const Processes &processes,
                                    const hd_session_options &options)
{
    Program everything(kEverything, kSets);

    return RunProcesses(processes, [&](Rank &rank) {
        auto session = std::make_unique<Session>();
        hd_status status = HD_OK;

        HD_TRY(session->Open(rank, everything, options));
        {
            Shards shards(*session);

            HD_TRY(RunSets(rank, everything, *session, nullptr));
            HD_TRY(shards.Put(everything.Inputs(), everything.Module(),
                              rank.rank, rank.diag));
            HD_TRY(Meet(rank));
            if (rank.rank != first) {
                HD_TRY(Meet(rank));
                status = shards.Run(rank.diag);
                if (status == HD_OK)
                    status = shards.Get(rank.diag);
            }
        }
        session.reset();
        return rank.rank == first ? Meet(rank) : status;
    });
}

TEST_P(CudaThreads, MayDestroyTheirSessionsInAnyOrder)
{
    if (GetParam().transport == HD_TRANSPORT_NCCL)
        GTEST_SKIP() << "it touches no windows";
    for (const Processes &processes : {Processes{{0, 1}}, Processes{{0}, {1}}})
        for (int first = 0; first < 2; first++) {
            std::vector<Answer> answers =
                RunAgainWithout(first, processes, Options(kLate));
            const Answer &other = answers[size_t(1 - first)];

            EXPECT_EQ(answers[size_t(first)].status, HD_OK)
                << answers[size_t(first)].text;
            EXPECT_TRUE(other.status == HD_ERROR_PEER ||
                        other.status == HD_ERROR_TIMEOUT)
                << other.text;
            for (int i = 0; i < 2; i++)
                Ended(answers[size_t(i)], i);
        }
}

// A thread that ends without a word of its rank's leaves its group, or aborts
// it; those that wait for it hear of it.
TEST_P(CudaThreads, ThatLeaveOrAreAbortedAreToldOfToTheOthers)
{
    Program ring(kRing, kSets);

    for (bool aborts : {false, true}) {
        std::vector<Answer> answers =
            RunProcesses({{0, 2}, {1}}, [&](Rank &rank) {
                Session session;

                HD_TRY(session.Open(rank, ring, Options(kLate)));
                HD_TRY(RunSets(rank, ring, session, nullptr));
                HD_TRY(Meet(rank));
                if (rank.rank == 2 && aborts)
                    hd_group_abort(rank.group);
                if (rank.rank == 2)
                    return HD_OK;
                return RunSets(rank, ring, session, nullptr);
            });

        EXPECT_EQ(answers[2].status, HD_OK) << answers[2].text;
        for (int i = 0; i < 3; i++)
            Ended(answers[size_t(i)], i);
        for (int i = 0; i < 2; i++) {
            const Answer &answer = answers[size_t(i)];

            EXPECT_EQ(answer.status, HD_ERROR_PEER) << answer.text;
            EXPECT_TRUE(!aborts || Has(answer, "rank 2 was aborted by its "
                                               "caller"))
                << answer.text;
        }
    }
}

// ---------------------------------------------------------------- faults

// What takes windows, reaches those of peers and gives them back. The two ranks
// of a process are counted together.
const char *const kOfWindows[] = {"cuMemAlloc_v2",
                                  "cuMemFree_v2",
                                  "cuCtxGetCurrent",
                                  "cuCtxEnablePeerAccess",
                                  "cuDevicePrimaryCtxRetain",
                                  "cuDevicePrimaryCtxRelease_v2"};

TEST(CudaThreadFaults, AreToldToBothRanks)
{
    Program everything(kEverything, kSets);
    auto run = [&](const std::string &fault) {
        ScopedSetting setting("FAKE_CUDA_FAIL", fault);

        return RunProcesses({{0, 1}}, [&](Rank &rank) {
            hd_status status;
            {
                Session session;

                status = session.Open(rank, everything, CudaOptions());
                if (status == HD_OK)
                    status = RunSets(rank, everything, session, nullptr);
            }
            if (status == HD_OK) // what the group has there goes, too
                status = hd_group_trim(rank.group, rank.diag);
            auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
            for (size_t i = 0; i < std::size(kOfWindows); i++)
                rank.answer->calls[i] = calls(kOfWindows[i]);
            return status;
        });
    };
    std::vector<Answer> fine = run("");

    AllAreRight(fine);
    for (size_t i = 0; i < std::size(kOfWindows); i++) {
        EXPECT_GT(fine[0].calls[i] + fine[1].calls[i], 0) << kOfWindows[i];
        for (long k = 1; k <= std::max(fine[0].calls[i], fine[1].calls[i]);
             k++) {
            std::string fault =
                std::string(kOfWindows[i]) + ":" + std::to_string(k);
            std::vector<Answer> answers = run(fault);
            bool told = false, fails = false;

            for (int r = 0; r < 2; r++) {
                const Answer &answer = answers[size_t(r)];

                EXPECT_TRUE(answer.ended) << fault << " hangs";
                EXPECT_STREQ(answer.left, "") << fault;
                fails |= answer.status != HD_OK;
                told |= answer.status == HD_ERROR_SYSTEM ||
                        answer.status == HD_ERROR_NO_MEMORY;
                EXPECT_NE(answer.status, HD_ERROR_INVALID) << fault;
            }
            EXPECT_EQ(told, fails)
                << fault << answers[0].text << answers[1].text;
        }
    }
}

TEST(CudaThreadFaults, SayWhoseMemoryCannotBeReached)
{
    Program everything(kEverything, kSets);
    ScopedSetting fault("FAKE_CUDA_FAIL", "cuCtxEnablePeerAccess:1");
    std::vector<Answer> answers = RunIn({{0, 1}}, everything, CudaOptions());
    std::string both = std::string(answers[0].text) + answers[1].text;

    EXPECT_NE(both.find("CUDA refused 'peer_enable'"), std::string::npos)
        << both;
    EXPECT_NE(both.find(" cannot map the memory of rank "), std::string::npos)
        << both;
    EXPECT_NE(both.find("are their devices peers?"), std::string::npos) << both;
    for (int i = 0; i < 2; i++)
        Ended(answers[size_t(i)], i);
}

TEST(CudaThreadFaults, AProviderWantsAProcessForEachRank)
{
    Program fused("heddle 2\nhost program fused mesh tp=2 streams 1\n"
                  "in %x : bf16[8, 16] in %w : bf16[12, 16]\n"
                  "temp %g : bf16[2, 8, 16] shared out %c : bf16[2, 8, 12]\n"
                  "{ launch { %g = all_gather %x %c = matmul %g, %w tb } }\n",
                  kSets);

    AllAreRight(RunIn({{0}, {1}}, fused, CudaOptions()));
    std::vector<Answer> answers = RunIn({{0, 1}}, fused, CudaOptions());
    AllAreRight(answers);
    EXPECT_TRUE(Has(answers[0], "are threads of one process, and cuBLASMp"))
        << answers[0].text;
}

} // namespace
