// Arguments that are no dense memory of the device, where a caller has several
// streams, little memory, or asks for too much.
#include <gtest/gtest.h>

#include "tests/cuda/caller.h"
#include "tests/cuda/way.h"

namespace
{

// What a run is given of the host's or with strides it has in memory of the
// session's, which the run before still works with.
class CudaPassing : public CudaWays
{
};

TEST_P(CudaPassing, FollowsTheOrderOfRunsOnSeveralStreams)
{
    Program program("heddle 2\nhost program one\nin %a : f32[8, 8]\n"
                    "in %s : f32[1]\nout %c : f32[8, 8]\n"
                    "{ %c = mul %a, %s }\n",
                    2);
    const int64_t transposed[] = {1, 8};
    const int64_t *strides[] = {transposed, nullptr, transposed};
    const bool on_host[] = {false, true, false};
    std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
        Caller caller;
        Session session;
        Memory memory;
        hd_run_options with = HD_EMPTY(hd_run_options);

        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, Options()));
        hd_cu_stream stream[] = {caller.Stream(), caller.Stream()};
        HD_TRY(Fill(memory, rank, program, session, 2));
        HD_TRY(caller.HoldUp(stream[0]));
        with.on_host = on_host;
        with.strides = strides;
        for (size_t i = 0; i < 2; i++) {
            float value;
            void *address[] = {memory[i]->Address(0), &value,
                               memory[i]->Address(2)};

            memcpy(&value, program.Inputs(int(i)).Whole()[1], sizeof value);
            with.stream = stream[i];
            HD_TRY(hd_session_run(session, address, 3, &with, rank.diag));
            value = -1;
        }
        SleepFor(0.05); // for the second to overtake the first, if it can
        caller.LetGo();
        // Both are square and read the same way as they are written.
        for (int i = 0; i < 2; i++) {
            HD_TRY(memory[size_t(i)]->Get(rank.diag));
            HD_TRY(program.Compare(*memory[size_t(i)], 0, i));
        }
        memory.clear();
        return HD_OK;
    });

    AllAreRight(answers);
}

INSTANTIATE_TEST_SUITE_P(By, CudaPassing, testing::ValuesIn(kWays), NameOfWay);

// On a device of so many bytes.
std::vector<Answer> RunRefused(const char *bytes,
                               const std::vector<int64_t> &strides,
                               hd_status refusal, const char *words)
{
    static Program program("heddle 2\nhost program one\n"
                           "in %a : f32[128, 64, 128]\n"
                           "out %c : f32[128, 64, 128]\n{ %c = neg %a }\n");

    return RunRanks(1, [&](Rank &rank) {
        const int64_t *by[] = {strides.data(), nullptr};
        hd_run_options with = HD_EMPTY(hd_run_options);
        hd_stats stats = HD_EMPTY(hd_stats);
        Session session;

        setenv("FAKE_CUDA_MEMORY", bytes, 1);
        HD_TRY(session.Open(rank, program, CudaOptions()));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), 0, rank.diag));
        void *address[] = {shards.Address(0), shards.Address(1)};

        with.strides = by;
        hd_status status =
            hd_session_run(session, address, 2, &with, rank.diag);
        if (status != refusal ||
            strstr(hd_diag_text(rank.diag), words) == nullptr)
            return HD_ERROR_INVALID;
        HD_TRY(shards.Run(rank.diag));
        HD_TRY(shards.Get(rank.diag));
        HD_TRY(program.Compare(shards, 0));
        hd_session_stats(session, &stats);
        return stats.runs == 1 ? HD_OK : HD_ERROR_INVALID;
    });
}

// A run that is refused because there is no memory to pack an argument in, or
// because it would be packed in too many parts, has not begun. There is memory
// for two arguments and a window, not for one more.
TEST(CudaPassingRefused, LeavesTheSessionAsItWas)
{
    AllAreRight(RunRefused("14000000", {64 * 128 + 64, 128, 1},
                           HD_ERROR_NO_MEMORY, "rank 0 packs %a, of 4 MiB"));
    AllAreRight(RunRefused("100000000", {1, 129 * 129, 129}, HD_ERROR_ARGUMENT,
                           "more than 4096 parts"));
}

} // namespace
