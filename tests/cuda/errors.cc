// What users meet: libraries that are not there, devices that are not there,
// arguments that are no memory of the device, and memory of peers that cannot
// be had. Nothing crashes, nothing hangs, and the words say what is wrong.
#include <gtest/gtest.h>

#include <heddle/memory.h>

#include "runtime/driver.h"
#include "tests/cuda/caller.h"

namespace
{

typedef std::vector<std::pair<const char *, std::string>> Environment;

// What both ranks say that cannot make their session.
std::vector<Answer> Create(const hd_session_options &options,
                           const Environment &environment = {})
{
    Program program(kEverything);

    return RunRanks(2, [&](Rank &rank) {
        Session session;

        for (const auto &setting : environment)
            setenv(setting.first, setting.second.c_str(), 1);
        return session.Create(rank, program, options);
    });
}

void Fails(const std::vector<Answer> &answers, hd_status status,
           const std::vector<std::string> &words)
{
    for (const Answer &answer : answers) {
        EXPECT_TRUE(answer.ended);
        EXPECT_EQ(answer.status, status) << answer.text;
        EXPECT_STREQ(answer.left, "");
        for (const std::string &one : words)
            EXPECT_NE(std::string(answer.text).find(one), std::string::npos)
                << "'" << one << "' is not in\n"
                << answer.text;
    }
}

TEST(CudaErrors, OfShotsThatAreNoneAndOfRanksThatDisagreeOnThemAreTold)
{
    Program program(kEverything);

    Fails(Create(CudaOptions(), {{"HEDDLE_SHOTS", "3"}}), HD_ERROR_ARGUMENT,
          {"HEDDLE_SHOTS is '3', not 1 or 2"});
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;

        setenv("HEDDLE_SHOTS", rank.rank == 0 ? "1" : "2", 1);
        return session.Create(rank, program, CudaOptions());
    });
    Fails(answers, HD_ERROR_PEER, {});
    EXPECT_TRUE(Has(answers[1], "the window of rank 0 makes no sense: its "
                                "HEDDLE_SHOTS"))
        << answers[1].text;
}

// ------------------------------------------------- libraries and devices

TEST(CudaErrors, NameALibraryThatIsNotThere)
{
    hd_session_options nccl = CudaOptions();

    nccl.transport = HD_TRANSPORT_NCCL;
    for (const char *variable :
         {"HEDDLE_CUDA_LIB", "HEDDLE_CUBLASLT_LIB", "HEDDLE_NVRTC_LIB"})
        Fails(Create(CudaOptions(), {{variable, "/nowhere/lib.so"}}),
              HD_ERROR_UNSUPPORTED, {variable, "/nowhere/lib.so"});
    Fails(Create(nccl, {{"HEDDLE_NCCL_LIB", "/nowhere/lib.so"}}),
          HD_ERROR_UNSUPPORTED, {"HEDDLE_NCCL_LIB", "/nowhere/lib.so"});
}

TEST(CudaErrors, NameTheVersionThatIsNeeded)
{
    Fails(Create(CudaOptions(), {{"FAKE_CUDA_VERSION", "11080"}}),
          HD_ERROR_UNSUPPORTED,
          {"the CUDA driver at", "11.8, and 12.0 or newer"});
    Fails(Create(CudaOptions(), {{"FAKE_CUBLASLT_VERSION", "111103"}}),
          HD_ERROR_UNSUPPORTED, {"cuBLASLt at", "11.11.3, and 12 or newer"});
    for (const auto &oldest : {std::pair{"FAKE_CUDA_VERSION", "12000"},
                               std::pair{"FAKE_CUBLASLT_VERSION", "120003"}})
        for (const Answer &answer : Create(CudaOptions(), {oldest}))
            EXPECT_EQ(answer.status, HD_OK) << answer.text;
}

TEST(CudaErrors, NameTheSymbolThatALibraryLacks)
{
    hd_session_options nccl = CudaOptions();

    nccl.transport = HD_TRANSPORT_NCCL;
    Fails(Create(CudaOptions(), {{"HEDDLE_CUDA_LIB", "libm.so.6"}}),
          HD_ERROR_UNSUPPORTED, {"libm.so.6", "cuInit", "too old"});
    Fails(Create(CudaOptions(), {{"HEDDLE_CUBLASLT_LIB", "libm.so.6"}}),
          HD_ERROR_UNSUPPORTED, {"libm.so.6", "cublasLt", "too old"});
    Fails(Create(CudaOptions(), {{"HEDDLE_NVRTC_LIB", "libm.so.6"}}),
          HD_ERROR_UNSUPPORTED, {"libm.so.6", "nvrtc", "too old"});
    Fails(Create(nccl, {{"HEDDLE_NCCL_LIB", "libm.so.6"}}),
          HD_ERROR_UNSUPPORTED, {"libm.so.6", "nccl", "too old"});
}

TEST(CudaErrors, NameTheDevicesThatThereAre)
{
    hd_session_options options = CudaOptions();

    for (const char *device : {"cuda:9", "cuda:99999999999999999999"}) {
        options.device = device;
        Fails(Create(options), HD_ERROR_ARGUMENT, {device, "cuda:0 to cuda:7"});
    }
    for (const char *device : {"cuda:-1", "cuda:x", "cuda:1x"}) {
        options.device = device;
        Fails(Create(options), HD_ERROR_UNSUPPORTED, {device, "'cuda:N'"});
    }
    Fails(Create(CudaOptions(), {{"FAKE_CUDA_DEVICES", "0"}}),
          HD_ERROR_UNSUPPORTED, {"sees no device"});
}

TEST(CudaErrors, SayHowMuchMemoryIsMissing)
{
    Fails(Create(CudaOptions(), {{"FAKE_CUDA_MEMORY", "1000000"}}),
          HD_ERROR_NO_MEMORY, {"needs 2 MiB", "everything"});
}

// What products work in is known once the plan is made.
TEST(CudaErrors, CountTheMemoryThatThePlanNeeds)
{
    Fails(Create(CudaOptions(), {{"FAKE_CUDA_MEMORY", "20971520"}}),
          HD_ERROR_NO_MEMORY,
          {"needs 32 MiB beside its arguments, and its device has 18 MiB"});
}

// Arguments of 1 MiB each, a window of 2 and what one reduction needs fit;
// what two need would not.
TEST(CudaErrors, ReductionsInPlaceTakeTurnsInOneMemory)
{
    Program program("heddle 2\n"
                    "host program twice\n"
                    "mesh tp=2\n"
                    "in %x : f32[size tp@tp, 262144]\n"
                    "out %y : f32[262144]\n"
                    "temp %t : f32[262144] shared\n"
                    "{\n"
                    "    %t = copy %x[tp]\n"
                    "    %t = all_reduce %t\n"
                    "    %t = all_reduce %t\n"
                    "    %y = copy %t\n"
                    "}\n");
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;
        hd_stats stats = HD_EMPTY(hd_stats);

        setenv("FAKE_CUDA_MEMORY", "5767168", 1); // 5.5 MiB
        HD_TRY(session.Open(rank, program, CudaOptions()));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        HD_TRY(shards.Run(rank.diag));
        HD_TRY(shards.Get(rank.diag));
        hd_session_stats(session, &stats);
        EXPECT_EQ(stats.allocations, 3u); // the window, that, and counters
        return program.Compare(shards, rank.rank);
    });

    for (const Answer &answer : answers)
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
}

// One rank alone is short of memory, or has another idea of the run.
TEST(CudaErrors, OfOneRankReachTheOther)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        Session session;

        if (rank.rank == 1)
            setenv("FAKE_CUDA_MEMORY", "1000000", 1);
        return session.Open(rank, program, CudaOptions());
    });

    EXPECT_EQ(answers[0].status, HD_ERROR_PEER) << answers[0].text;
    EXPECT_NE(std::string(answers[0].text).find("rank 1"), std::string::npos);
    EXPECT_EQ(answers[1].status, HD_ERROR_NO_MEMORY) << answers[1].text;
}

TEST(CudaErrors, OfRanksThatDisagreeOnTheTransportHangNobody)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        hd_session_options options = CudaOptions();
        Session session;

        if (rank.rank == 1)
            options.transport = HD_TRANSPORT_NCCL;
        return session.Create(rank, program, options);
    });

    for (const Answer &answer : answers) {
        EXPECT_TRUE(answer.ended);
        EXPECT_NE(answer.status, HD_OK);
        EXPECT_STREQ(answer.left, "");
    }
}

// ----------------------------------------------------------- arguments

// Both ranks run with their argument `i` elsewhere.
std::vector<Answer> RunWith(const std::string &name, bool graph,
                            const std::function<void *(void *)> &move)
{
    Program program(kEverything);

    return RunRanks(2, [&](Rank &rank) {
        hd_session_options options = CudaOptions();
        std::vector<void *> address;
        Session session;

        options.graph = graph;
        HD_TRY(session.Open(rank, program, options));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        for (size_t i = 0; i < shards.Count(); i++)
            address.push_back(name == program.Inputs().Info(i).name
                                  ? move(shards.Address(i))
                                  : shards.Address(i));
        HD_TRY(hd_session_run(session, address.data(), address.size(), nullptr,
                              rank.diag));
        return hd_session_finish(session, rank.diag);
    });
}

TEST(CudaErrors, NameAnArgumentThatIsNotAligned)
{
    for (bool graph : {false, true})
        Fails(RunWith("w", graph,
                      [](void *at) { return static_cast<char *>(at) + 4; }),
              HD_ERROR_ARGUMENT, {"%w", "multiple of 16"});
}

TEST(CudaErrors, OfAnArgumentHarmNothing)
{
    Program program(kEverything);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        std::vector<void *> right, wrong;
        Session session;

        HD_TRY(session.Open(rank, program, CudaOptions()));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        for (size_t i = 0; i < shards.Count(); i++)
            right.push_back(shards.Address(i));
        wrong = right;
        wrong[0] = static_cast<char *>(wrong[0]) + 4;
        if (hd_session_run(session, wrong.data(), wrong.size(), nullptr,
                           nullptr) != HD_ERROR_ARGUMENT)
            return HD_ERROR_INVALID;
        HD_TRY(hd_session_run(session, right.data(), right.size(), nullptr,
                              rank.diag));
        return hd_session_finish(session, rank.diag);
    });

    for (const Answer &answer : answers)
        EXPECT_EQ(answer.status, HD_OK) << answer.text;
}

TEST(CudaErrors, NameAnArgumentThatIsNull)
{
    Fails(RunWith("bias", false, [](void *) { return nullptr; }),
          HD_ERROR_ARGUMENT, {"%bias", "NULL"});
}

// The host's own memory in the place of the device's.
TEST(CudaErrors, OfMemoryThatIsNotTheDevicesAreTold)
{
    alignas(64) static char host[4096];

    for (bool graph : {false, true}) {
        std::vector<Answer> answers =
            RunWith("bias", graph, [](void *) { return host; });

        for (const Answer &answer : answers) {
            EXPECT_TRUE(answer.ended);
            EXPECT_TRUE(answer.status == HD_ERROR_SYSTEM ||
                        answer.status == HD_ERROR_ARGUMENT ||
                        answer.status == HD_ERROR_PEER)
                << answer.status << answer.text;
            EXPECT_STRNE(answer.text, "");
        }
    }
}

// ----------------------------------------------------- memory of peers

// The cuda driver, whose rank 1 spoils the handle that it gives away.
hd_status ExportSpoilt(hd_device *device, int peer, hd_diag *diag,
                       hd_handle *out)
{
    HD_TRY(hd_driver_cuda.export_handle(device, peer, diag, out));
    if (peer == 0)
        memset(out->bytes, 0x5a, 16);
    return HD_OK;
}

hd_status ExportNonsense(hd_device *device, int peer, hd_diag *diag,
                         hd_handle *out)
{
    HD_TRY(hd_driver_cuda.export_handle(device, peer, diag, out));
    if (peer == 0)
        memset(out->bytes, 0xff, sizeof(out->bytes));
    return HD_OK;
}

TEST(CudaErrors, SayWhoseMemoryCannotBeMapped)
{
    Program program(kEverything);

    for (auto *spoil : {ExportSpoilt, ExportNonsense}) {
        std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
            hd_driver driver = hd_driver_cuda;
            hd_session_options options = CudaOptions();
            hd_session *session = nullptr;

            driver.export_handle = spoil;
            hd_status status =
                hd_session_open(rank.group, program.Module(), &options, &driver,
                                rank.diag, &session);
            hd_session_destroy(session);
            return status;
        });

        EXPECT_TRUE(answers[0].ended && answers[1].ended);
        EXPECT_TRUE(answers[0].status == HD_ERROR_SYSTEM ||
                    answers[0].status == HD_ERROR_INVALID)
            << answers[0].text;
        EXPECT_NE(std::string(answers[0].text).find("rank 1"),
                  std::string::npos)
            << answers[0].text;
        EXPECT_EQ(answers[1].status, HD_ERROR_PEER) << answers[1].text;
        EXPECT_STREQ(answers[0].left, "");
        EXPECT_STREQ(answers[1].left, "");
    }
}

// --------------------------------------------------------------- events

// A caller's events: some that the run waits for, some that it records.
TEST(CudaEvents, OfTheCallerOrderRuns)
{
    Program program("heddle 2\n"
                    "host program events mesh tp=1 streams 1\n"
                    "in %x : f32[64]\n"
                    "out %y : f32[64]\n"
                    "in %go : event[]\n"
                    "in %set : event[]\n"
                    "out %done : event[]\n"
                    "out %told : event[]\n"
                    "temp %e : event[]\n"
                    "{ fork on stream 0 { wait %go, %set %y = gelu %x\n"
                    "  %done, %e, %told = record } wait %e, %go }\n");

    for (bool graph : {false, true}) {
        std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
            hd_session_options options = CudaOptions();
            Caller caller;
            Session session;

            options.graph = graph;
            HD_TRY(caller.Open(rank));
            HD_TRY(session.Open(rank, program, options));
            Shards shards(session);
            hd_cu_stream other = caller.Stream();
            hd_cu_event go = caller.Event(), set = caller.Event();
            hd_cu_event done = caller.Event(), told = caller.Event();

            HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                              rank.diag));
            void *address[] = {
                shards.Address(0), shards.Address(1), go, set, done, told};
            // The inputs come when the stream is let go, before the event.
            HD_TRY(caller.HoldUp(other));
            HD_TRY(caller.Set(shards, other, program, 0, 0));
            // The one of the list that comes first is there already.
            caller.cu.event_record(go, caller.Stream());
            caller.cu.event_record(set, other);
            hd_status status =
                hd_session_run(session, address, 6, nullptr, rank.diag);
            bool early = caller.cu.event_query(done) != HD_CU_NOT_READY ||
                         caller.cu.event_query(told) != HD_CU_NOT_READY;

            caller.LetGo(); // or nothing can be freed
            HD_TRY(status);
            if (early)
                return HD_ERROR_INVALID;
            HD_TRY(shards.Get(rank.diag));
            if (caller.cu.event_query(done) != HD_CU_SUCCESS ||
                caller.cu.event_query(told) != HD_CU_SUCCESS)
                return HD_ERROR_INVALID;
            return program.Compare(shards, 0);
        });

        EXPECT_TRUE(answers[0].ended);
        EXPECT_EQ(answers[0].status, HD_OK)
            << (graph ? "graph: " : "") << answers[0].text;
        EXPECT_STREQ(answers[0].left, "");
    }
}

// A group's second device needs the library as its first did.
TEST(CudaErrors, OfASecondDeviceAreWhatTheLibrarySays)
{
    Answer answer = RunRanks(1, [](Rank &rank) {
        std::string path = getenv("HEDDLE_CUDA_LIB");
        void *one = nullptr, *other = nullptr;
        hd_status status;

        HD_TRY(hd_group_alloc(rank.group, "cuda:0", 1, rank.diag, &one));
        setenv("HEDDLE_CUDA_LIB", "/nowhere/lib.so", 1);
        status = hd_group_alloc(rank.group, "cuda:1", 1, rank.diag, &other);
        setenv("HEDDLE_CUDA_LIB", path.c_str(), 1);
        hd_group_free(rank.group, one);
        return status;
    })[0];

    Ended(answer, 0);
    EXPECT_EQ(answer.status, HD_ERROR_UNSUPPORTED) << answer.text;
    EXPECT_TRUE(Has(answer, "/nowhere/lib.so")) << answer.text;
}

} // namespace
