// The fakes themselves, by way of the tables that the driver uses: what they
// let pass and what they refuse is what all other tests without a GPU rest on.
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "children.h"

namespace
{

std::vector<uint32_t> RandomWords(size_t n, unsigned seed)
{
    std::mt19937 random(seed);
    std::vector<uint32_t> out(n);

    for (uint32_t &word : out)
        word = random();
    return out;
}

hd_cu_ptr Plus(hd_cu_ptr at, size_t words)
{
    return at + words * sizeof(uint32_t);
}

TEST(FakeStream, KeepsItsOrder)
{
    setenv("FAKE_CUDA_CHAOS", "7", 1);
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = r.Stream();
        std::vector<uint32_t> values = RandomWords(16, 1);
        hd_cu_ptr at = r.Put(values);

        // Word i goes to i + 1, one after the other.
        for (size_t i = 0; i < 15; i++)
            EXPECT_EQ(r.cu.copy(Plus(at, i + 1), Plus(at, i), 4, stream), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.cu.stream_query(stream), 0);
        EXPECT_EQ(r.Get<uint32_t>(at, 16),
                  std::vector<uint32_t>(16, values[0]));
        EXPECT_EQ(r.cu.fill32(at, 0x12345678, 3, stream), 0);
        EXPECT_EQ(r.cu.fill8(Plus(at, 1), 0xAB, 4, stream), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.Get<uint32_t>(at, 4),
                  (std::vector<uint32_t>{0x12345678, 0xABABABAB, 0x12345678,
                                         values[0]}));
        EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 400);
    });
    unsetenv("FAKE_CUDA_CHAOS");
}

TEST(FakeStream, MemoryBeginsAsGarbage)
{
    InChildren(1, [](Rank &r) {
        hd_cu_ptr at = r.Memory(100);

        EXPECT_EQ(r.Get<unsigned char>(at, 100),
                  std::vector<unsigned char>(100, 0xCB));
        EXPECT_EQ(r.cu.free(at), 0);
    });
}

TEST(FakeStream, PageableMemoryIsReadBeforeTheCallReturns)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = r.Stream();
        hd_cu_ptr word = r.Put<uint32_t>({0}), to = r.Memory(4);
        uint32_t value = 77;

        EXPECT_EQ(r.Wait(stream, word, 1), 0);
        EXPECT_EQ(r.cu.copy(to, reinterpret_cast<hd_cu_ptr>(&value), 4, stream),
                  0);
        value = 78;
        EXPECT_EQ(r.Say(nullptr, word, 1), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.Get<uint32_t>(to, 1)[0], 77u);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
        EXPECT_EQ(r.cu.free(word), 0);
        EXPECT_EQ(r.cu.free(to), 0);
    });
}

TEST(FakeEvent, HoldsAnotherStreamBack)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream first = r.Stream(), second = r.Stream();
        hd_cu_event event = r.Event();
        hd_cu_ptr at = r.Put<uint32_t>({0, 5, 6});

        EXPECT_EQ(r.cu.event_query(event), 0) << "never recorded";
        EXPECT_EQ(r.Wait(first, at, 3), 0);
        EXPECT_EQ(r.cu.copy(Plus(at, 1), Plus(at, 2), 4, first), 0);
        EXPECT_EQ(r.cu.event_record(event, first), 0);
        EXPECT_EQ(r.cu.event_query(event), HD_CU_NOT_READY);
        EXPECT_EQ(r.cu.stream_wait_event(second, event, 0), 0);
        EXPECT_EQ(r.cu.copy(at, Plus(at, 1), 4, second), 0);
        usleep(20000);
        EXPECT_EQ(r.cu.stream_query(second), HD_CU_NOT_READY);
        EXPECT_EQ(r.Say(nullptr, at, 3), 0);
        EXPECT_EQ(r.cu.stream_synchronize(second), 0);
        EXPECT_EQ(r.cu.event_query(event), 0);
        EXPECT_EQ(r.Get<uint32_t>(at, 3), (std::vector<uint32_t>{6, 6, 6}));
        EXPECT_EQ(r.cu.event_destroy(event), 0);
        EXPECT_EQ(r.cu.stream_destroy(first), 0);
        EXPECT_EQ(r.cu.stream_destroy(second), 0);
        EXPECT_EQ(r.cu.free(at), 0);
    });
}

// The wait is for the record that was there when it was made.
TEST(FakeEvent, IsWaitedForAsOfTheCall)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream first = r.Stream(), second = r.Stream();
        hd_cu_event event = r.Event();
        hd_cu_ptr word = r.Put<uint32_t>({0});

        EXPECT_EQ(r.cu.event_record(event, first), 0);
        EXPECT_EQ(r.cu.stream_wait_event(second, event, 0), 0);
        EXPECT_EQ(r.Wait(first, word, 1), 0);
        EXPECT_EQ(r.cu.event_record(event, first), 0);
        EXPECT_EQ(r.cu.stream_synchronize(second), 0);
        EXPECT_EQ(r.cu.event_query(event), HD_CU_NOT_READY);
        EXPECT_EQ(r.Say(nullptr, word, 1), 0);
        EXPECT_EQ(r.cu.stream_synchronize(first), 0);
        EXPECT_EQ(r.cu.event_destroy(event), 0);
        EXPECT_EQ(r.cu.stream_destroy(first), 0);
        EXPECT_EQ(r.cu.stream_destroy(second), 0);
        EXPECT_EQ(r.cu.free(word), 0);
    });
}

TEST(FakeEvent, MeasuresTimeUnlessToldNotTo)
{
    InChildren(1, [](Rank &r) {
        hd_cu_event start = r.Event(HD_CU_EVENT_DEFAULT);
        hd_cu_event end = r.Event(HD_CU_EVENT_DEFAULT), other = r.Event();
        hd_cu_ptr word = r.Put<uint32_t>({0});
        hd_cu_stream stream = r.Stream();
        float ms = -1;

        EXPECT_EQ(r.cu.event_elapsed(&ms, start, end), 400);
        EXPECT_EQ(r.cu.event_record(start, stream), 0);
        EXPECT_EQ(r.Wait(stream, word, 1), 0);
        EXPECT_EQ(r.cu.event_record(end, stream), 0);
        EXPECT_EQ(r.cu.event_record(other, nullptr), 0);
        for (int i = 0; i < 10000 && r.cu.event_query(start) != 0; i++)
            usleep(1000);
        usleep(20000);
        EXPECT_EQ(r.cu.event_elapsed(&ms, start, end), HD_CU_NOT_READY);
        EXPECT_EQ(r.Say(nullptr, word, 1), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.cu.event_elapsed(&ms, start, end), 0);
        EXPECT_GT(ms, 10);
        EXPECT_EQ(r.cu.event_elapsed(&ms, start, other), 400);
        for (hd_cu_event event : {start, end, other})
            EXPECT_EQ(r.cu.event_destroy(event), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
        EXPECT_EQ(r.cu.free(word), 0);
    });
}

TEST(FakeIpc, MemoryIsReadAndWrittenByAnotherProcess)
{
    InChildren(2, [](Rank &r) {
        std::vector<uint32_t> mine =
            RandomWords(1000, static_cast<unsigned>(r.rank));
        hd_cu_ptr at = r.Put(mine);

        r.Export(at);
        r.Meet();
        hd_cu_ptr theirs = r.Import(1 - r.rank);
        EXPECT_EQ(r.Get<uint32_t>(theirs, 1000),
                  RandomWords(1000, static_cast<unsigned>(1 - r.rank)));
        EXPECT_EQ(r.Import(1 - r.rank), theirs) << "opened twice";
        r.Meet();
        EXPECT_EQ(r.cu.copy(theirs, at, 4, nullptr), 0);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        r.Meet();
        EXPECT_EQ(r.cu.ipc_close(theirs), 0);
        EXPECT_EQ(r.cu.ipc_close(theirs), 0);
        EXPECT_EQ(r.cu.ipc_close(theirs), 1);
        r.Meet();
        EXPECT_EQ(r.cu.free(at), 0);
    });
}

volatile char *g_aborted;

// What is undefined ends the process.
TEST(FakeIpc, MemoryThatAnotherProcessHasOpenIsNotFreed)
{
    for (bool with_context : {false, true})
        InChildren(2, [=](Rank &r) {
            g_aborted = &r.shared->note[7][0];
            if (r.rank == 0) {
                hd_cu_ptr at = r.Memory(1000);

                r.Export(at);
                r.Meet();
                r.Meet();
                signal(SIGABRT, [](int) {
                    *g_aborted = 1;
                    _exit(0);
                });
                if (with_context)
                    r.cu.primary_release(0);
                else
                    r.cu.free(at);
                *g_aborted = 1;
                ADD_FAILURE() << "it is freed";
            } else {
                r.Meet();
                hd_cu_ptr theirs = r.Import(0);

                EXPECT_EQ(r.Import(0), theirs) << "opened twice";
                EXPECT_EQ(r.cu.ipc_close(theirs), 0);
                r.Meet();
                while (*g_aborted == 0)
                    usleep(1000);
                EXPECT_EQ(r.cu.ipc_close(theirs), 0);
            }
        });
}

TEST(FakeIpc, RefusesWhatIsNoHandle)
{
    InChildren(2, [](Rank &r) {
        hd_cu_ptr at = r.Memory(3000), other = 0;
        hd_cu_ipc_handle handle;

        EXPECT_EQ(r.cu.ipc_export(&handle, at + 256), 1);
        EXPECT_EQ(r.cu.ipc_export(&handle, 4096), 1);
        auto *unshared = r.Extra<decltype(fake_cuda_alloc_unshared)>(
            "fake_cuda_alloc_unshared");
        EXPECT_EQ(unshared(&other, 100), 0);
        EXPECT_EQ(r.cu.ipc_export(&handle, other), 1);
        EXPECT_EQ(r.cu.free(other), 0);
        memset(&handle, 0x5A, sizeof(handle));
        EXPECT_EQ(r.cu.ipc_import(&other, handle, 1), 1);
        r.Export(at);
        memcpy(&handle, r.shared->note[r.rank], sizeof(handle));
        EXPECT_EQ(r.cu.ipc_import(&other, handle, 1), 201) << "of this process";
        r.Meet();
        // Changed anywhere in what names the memory, or the memory is gone.
        for (size_t byte = 0; byte < 32; byte++) {
            memcpy(&handle, r.shared->note[1 - r.rank], sizeof(handle));
            handle.reserved[byte] =
                static_cast<char>(handle.reserved[byte] ^ 0x10);
            EXPECT_NE(r.cu.ipc_import(&other, handle, 1), 0) << byte;
        }
        hd_cu_ptr theirs = r.Import(1 - r.rank);
        EXPECT_EQ(r.cu.ipc_export(&handle, theirs), 1) << "not its own";
        EXPECT_EQ(r.cu.free(theirs), 1);
        EXPECT_EQ(r.cu.ipc_close(theirs), 0);
        r.Meet();
        EXPECT_EQ(r.cu.free(at), 0);
        r.Meet();
        memcpy(&handle, r.shared->note[1 - r.rank], sizeof(handle));
        EXPECT_EQ(r.cu.ipc_import(&other, handle, 1), 1) << "freed";
    });
}

TEST(FakeWords, GoBackAndForthBetweenProcesses)
{
    InChildren(2, [](Rank &r) {
        hd_cu_stream stream = r.Stream();
        hd_cu_ptr mine = r.Put<uint32_t>({0xFFFFFF00u, 0});

        r.Export(mine);
        r.Meet();
        hd_cu_ptr theirs = r.Import(1 - r.rank);
        // Counters go past the largest number, too.
        for (uint32_t i = 0xFFFFFF01u; i != 0x100; i++) {
            if (r.rank == 0) {
                EXPECT_EQ(r.Say(stream, theirs, i), 0);
                EXPECT_EQ(r.Wait(stream, mine, i), 0);
            } else {
                EXPECT_EQ(r.Wait(stream, mine, i), 0);
                EXPECT_EQ(r.Say(stream, theirs, i), 0);
            }
        }
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.Get<uint32_t>(mine, 1)[0], 0xFFu);
        r.Meet();
        EXPECT_EQ(r.cu.ipc_close(theirs), 0);
        r.Meet();
        EXPECT_EQ(r.cu.free(mine), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
    });
}

TEST(FakeWords, CountPastTheLargestNumber)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = r.Stream();
        hd_cu_ptr word = r.Put<uint32_t>({0xFFFFFFF0u});

        EXPECT_EQ(r.Wait(stream, word, 0xFFFFFFE0u), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.Wait(stream, word, 5), 0);
        usleep(20000);
        EXPECT_EQ(r.cu.stream_query(stream), HD_CU_NOT_READY);
        EXPECT_EQ(r.Say(nullptr, word, 6), 0);
        EXPECT_EQ(r.Wait(stream, word, 0xFFFFFFF0u), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.cu.free(word), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
    });
}

TEST(FakeWords, OfOneBatchAreDoneInOrder)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = r.Stream();
        hd_cu_ptr at = r.Put<uint32_t>({0, 0, 0});
        hd_cu_memop ops[3]{};

        for (int i = 0; i < 3; i++) {
            ops[i].word.operation =
                i == 1 ? HD_CU_OP_WAIT_32 : HD_CU_OP_WRITE_32;
            ops[i].word.address = Plus(at, static_cast<size_t>(i));
            ops[i].word.value = 9;
        }
        EXPECT_EQ(r.cu.stream_words(stream, 3, ops, 0), 0);
        usleep(20000);
        EXPECT_EQ(r.Get<uint32_t>(at, 3), (std::vector<uint32_t>{9, 0, 0}));
        EXPECT_EQ(r.Say(nullptr, Plus(at, 1), 9), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.Get<uint32_t>(at, 3), (std::vector<uint32_t>{9, 9, 9}));
        ops[0].word.address = at + 2;
        EXPECT_EQ(r.cu.stream_words(stream, 1, ops, 0), 1) << "not aligned";
        ops[0].word.address = 64;
        EXPECT_EQ(r.cu.stream_words(stream, 1, ops, 0), 1) << "nowhere";
        EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
    });
}

// With 8 streams blocked nothing else begins, until one of them goes on.
TEST(FakeWords, TheEighthBlockedStreamStopsAllOthers)
{
    InChildren(1, [](Rank &r) {
        std::vector<hd_cu_stream> blocked(8);
        hd_cu_stream ninth = r.Stream();
        void *word = nullptr;

        EXPECT_EQ(r.cu.host_alloc(&word, 64, HD_CU_HOST_PORTABLE), 0);
        memset(word, 0, 64);
        hd_cu_ptr at = reinterpret_cast<hd_cu_ptr>(word);
        for (size_t i = 0; i < 8; i++) {
            blocked[i] = r.Stream();
            if (i == 7)
                break;
            EXPECT_EQ(r.Wait(blocked[i], Plus(at, i), 1), 0);
            EXPECT_EQ(r.cu.fill32(Plus(at, 9), 1, 1, ninth), 0);
            EXPECT_EQ(r.cu.stream_synchronize(ninth), 0) << i;
        }
        EXPECT_EQ(r.Wait(blocked[7], Plus(at, 7), 1), 0);
        // Sooner or later the eighth has come to its wait.
        for (int i = 0; i < 1000 && r.cu.stream_query(ninth) == 0; i++) {
            EXPECT_EQ(r.cu.fill32(Plus(at, 9), 1, 1, ninth), 0);
            usleep(10000);
        }
        EXPECT_EQ(r.cu.stream_query(ninth), HD_CU_NOT_READY);
        __atomic_store_n(static_cast<uint32_t *>(word), 1, __ATOMIC_RELEASE);
        EXPECT_EQ(r.cu.stream_synchronize(ninth), 0);
        for (size_t i = 0; i < 8; i++)
            EXPECT_EQ(r.Say(ninth, Plus(at, i), 1), 0);
        for (hd_cu_stream stream : blocked) {
            EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
            EXPECT_EQ(r.cu.stream_destroy(stream), 0);
        }
        EXPECT_EQ(r.cu.stream_destroy(ninth), 0);
        EXPECT_EQ(r.cu.host_free(word), 0);
    });
}

TEST(FakeMemory, IsNotFreedWhileAStreamWaits)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = r.Stream();
        hd_cu_ptr word = r.Put<uint32_t>({0}), other = r.Memory(10);
        std::atomic<bool> freed{false};

        EXPECT_EQ(r.Wait(stream, word, 1), 0);
        std::thread thread([&] {
            EXPECT_EQ(r.cu.context_push(r.context), 0);
            EXPECT_EQ(r.cu.free(other), 0);
            freed = true;
        });
        usleep(50000);
        EXPECT_FALSE(freed);
        EXPECT_EQ(r.Say(nullptr, word, 1), 0);
        thread.join();
        EXPECT_EQ(r.cu.free(word), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
    });
}

TEST(FakeMemory, ThatIsGoneOrTooSmallBreaksTheContext)
{
    for (int kind = 0; kind < 3; kind++) {
        InChildren(1, [kind](Rank &r) {
            hd_cu_stream stream = r.Stream();
            hd_cu_ptr at = r.Memory(100), gone = r.Memory(100);

            EXPECT_EQ(r.cu.free(gone), 0);
            EXPECT_EQ(r.cu.free(gone), 1);
            EXPECT_EQ(r.cu.free(at + 1), 1);
            if (kind == 0)
                EXPECT_EQ(r.cu.copy(gone, at, 4, stream), 0);
            else if (kind == 1) {
                EXPECT_EQ(r.cu.copy(at, at + 52, 52, stream), 0);
            } else
                EXPECT_EQ(r.cu.fill8(at, 1, 101, stream), 0);
            EXPECT_EQ(r.cu.stream_synchronize(stream), 700);
            EXPECT_EQ(r.cu.fill8(at, 1, 1, stream), 700);
            EXPECT_EQ(r.cu.alloc(&gone, 1), 700);
            EXPECT_EQ(r.cu.free(at), 700);
            EXPECT_EQ(r.cu.stream_destroy(stream), 700);
        });
    }
}

// Origin and branch wait for each other's words: only if both really run at
// once does the graph come to its end.
TEST(FakeGraph, RunsBranchesSideBySideEveryTime)
{
    setenv("FAKE_CUDA_CHAOS", "3", 1);
    InChildren(1, [](Rank &r) {
        hd_cu_stream origin = r.Stream(), branch = r.Stream();
        hd_cu_event fork = r.Event(), join = r.Event();
        hd_cu_ptr at = r.Put<uint32_t>({0, 0, 1, 2, 3, 4});
        hd_cu_graph graph = nullptr;
        hd_cu_graph_exec exec = nullptr;

        EXPECT_EQ(r.cu.capture_begin(origin, HD_CU_CAPTURE_RELAXED), 0);
        EXPECT_EQ(r.cu.event_record(fork, origin), 0);
        EXPECT_EQ(r.cu.stream_wait_event(branch, fork, 0), 0);
        EXPECT_EQ(r.Wait(branch, at, 1), 0);
        EXPECT_EQ(r.Say(branch, at, 0), 0);
        EXPECT_EQ(r.cu.copy(Plus(at, 3), Plus(at, 2), 4, branch), 0);
        EXPECT_EQ(r.Say(branch, Plus(at, 1), 1), 0);
        EXPECT_EQ(r.cu.event_record(join, branch), 0);
        EXPECT_EQ(r.Say(origin, at, 1), 0);
        EXPECT_EQ(r.Wait(origin, Plus(at, 1), 1), 0);
        EXPECT_EQ(r.Say(origin, Plus(at, 1), 0), 0);
        EXPECT_EQ(r.cu.stream_wait_event(origin, join, 0), 0);
        EXPECT_EQ(r.cu.copy(Plus(at, 4), Plus(at, 3), 4, origin), 0);
        EXPECT_EQ(r.cu.capture_end(origin, &graph), 0);
        EXPECT_EQ(r.Get<uint32_t>(at, 5),
                  (std::vector<uint32_t>{0, 0, 1, 2, 3}))
            << "nothing has run";
        EXPECT_EQ(r.cu.graph_instantiate(&exec, graph, 0), 0);
        EXPECT_EQ(r.cu.graph_destroy(graph), 0);
        for (uint32_t run = 100; run < 120; run++) {
            r.Write<uint32_t>(Plus(at, 2), {run});
            EXPECT_EQ(r.cu.graph_launch(exec, origin), 0);
            EXPECT_EQ(r.cu.stream_synchronize(origin), 0);
            EXPECT_EQ(r.Get<uint32_t>(at, 6),
                      (std::vector<uint32_t>{0, 0, run, run, run, 4}));
        }
        EXPECT_EQ(r.cu.graph_exec_destroy(exec), 0);
        EXPECT_EQ(r.cu.event_destroy(fork), 0);
        EXPECT_EQ(r.cu.event_destroy(join), 0);
        EXPECT_EQ(r.cu.stream_destroy(origin), 0);
        EXPECT_EQ(r.cu.stream_destroy(branch), 0);
        EXPECT_EQ(r.cu.free(at), 0);
    });
    unsetenv("FAKE_CUDA_CHAOS");
}

TEST(FakeGraph, GoesOnBehindAJoinWhenTheBranchIsDone)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream origin = r.Stream(), branch = r.Stream();
        hd_cu_event event = r.Event();
        hd_cu_ptr at = r.Put<uint32_t>({0, 1, 2, 3});
        hd_cu_graph graph = nullptr;
        hd_cu_graph_exec exec = nullptr;

        EXPECT_EQ(r.cu.capture_begin(origin, HD_CU_CAPTURE_RELAXED), 0);
        EXPECT_EQ(r.cu.event_record(event, origin), 0);
        EXPECT_EQ(r.cu.stream_wait_event(branch, event, 0), 0);
        EXPECT_EQ(r.cu.fill8(Plus(at, 3), 0, 4, origin), 0);
        EXPECT_EQ(r.Wait(branch, at, 1), 0);
        EXPECT_EQ(r.cu.copy(Plus(at, 2), Plus(at, 1), 4, branch), 0);
        EXPECT_EQ(r.cu.event_record(event, branch), 0);
        EXPECT_EQ(r.cu.stream_wait_event(origin, event, 0), 0);
        EXPECT_EQ(r.cu.copy(Plus(at, 3), Plus(at, 2), 4, origin), 0);
        EXPECT_EQ(r.cu.capture_end(origin, &graph), 0);
        EXPECT_EQ(r.cu.graph_instantiate(&exec, graph, 0), 0);
        EXPECT_EQ(r.cu.graph_launch(exec, origin), 0);
        usleep(20000);
        EXPECT_EQ(r.cu.stream_query(origin), HD_CU_NOT_READY);
        EXPECT_EQ(r.Say(nullptr, at, 1), 0);
        EXPECT_EQ(r.cu.stream_synchronize(origin), 0);
        EXPECT_EQ(r.Get<uint32_t>(at, 4), (std::vector<uint32_t>{1, 1, 1, 1}));
        EXPECT_EQ(r.cu.graph_destroy(graph), 0);
        EXPECT_EQ(r.cu.graph_exec_destroy(exec), 0);
        EXPECT_EQ(r.cu.event_destroy(event), 0);
        EXPECT_EQ(r.cu.stream_destroy(origin), 0);
        EXPECT_EQ(r.cu.stream_destroy(branch), 0);
        EXPECT_EQ(r.cu.free(at), 0);
    });
}

TEST(FakeGraph, IsNotMadeOfABranchThatIsNotJoined)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream origin = r.Stream(), branch = r.Stream();
        hd_cu_event fork = r.Event();
        hd_cu_ptr at = r.Memory(8);
        hd_cu_graph graph = nullptr;

        EXPECT_EQ(r.cu.capture_begin(origin, HD_CU_CAPTURE_RELAXED), 0);
        EXPECT_EQ(r.cu.event_record(fork, origin), 0);
        EXPECT_EQ(r.cu.stream_wait_event(branch, fork, 0), 0);
        EXPECT_EQ(r.cu.fill8(at, 1, 8, branch), 0);
        EXPECT_EQ(r.cu.capture_end(origin, &graph), 904);
        EXPECT_EQ(graph, nullptr);
        EXPECT_EQ(r.cu.fill8(at, 2, 8, branch), 0) << "no longer captured";
        EXPECT_EQ(r.cu.stream_synchronize(branch), 0);
        EXPECT_EQ(r.Get<char>(at, 8), std::vector<char>(8, 2));
        EXPECT_EQ(r.cu.event_destroy(fork), 0);
        EXPECT_EQ(r.cu.stream_destroy(origin), 0);
        EXPECT_EQ(r.cu.stream_destroy(branch), 0);
        EXPECT_EQ(r.cu.free(at), 0);
    });
}

TEST(FakeGraph, IsSpoiltByCallsThatLookAtAStream)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = r.Stream(), other = r.Stream();
        hd_cu_event event = r.Event(), outside = r.Event();
        hd_cu_graph graph = nullptr;

        for (int kind = 0; kind < 4; kind++) {
            EXPECT_EQ(r.cu.capture_begin(stream, HD_CU_CAPTURE_RELAXED), 0);
            EXPECT_EQ(r.cu.event_record(event, stream), 0);
            EXPECT_EQ(r.cu.event_record(outside, other), 0);
            if (kind == 0) {
                EXPECT_EQ(r.cu.stream_synchronize(stream), 900);
            }
            if (kind == 1) {
                EXPECT_EQ(r.cu.stream_query(stream), 900);
            }
            if (kind == 2) {
                EXPECT_EQ(r.cu.event_query(event), 907);
            }
            if (kind == 3) {
                EXPECT_EQ(r.cu.stream_wait_event(stream, outside, 0), 905);
            }
            EXPECT_EQ(r.cu.capture_end(stream, &graph), 901) << kind;
        }
        EXPECT_EQ(r.cu.capture_begin(nullptr, HD_CU_CAPTURE_RELAXED), 900);
        EXPECT_EQ(r.cu.event_destroy(event), 0);
        EXPECT_EQ(r.cu.event_destroy(outside), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
        EXPECT_EQ(r.cu.stream_destroy(other), 0);
    });
}

// A thread's own capture forbids it to ask for memory unless that is relaxed,
// another thread's if it is global; and neither if the thread's mode is
// relaxed.
TEST(FakeGraph, ForbidsWhatItWouldNotSee)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = r.Stream();
        hd_cu_graph graph = nullptr;
        hd_cu_ptr at = 0;

        for (int i = 0; i < 18; i++) {
            int capture = i % 3, mode = i / 3 % 3;
            bool own = i / 9 == 0;
            bool forbidden = mode != HD_CU_CAPTURE_RELAXED &&
                             (own ? capture != HD_CU_CAPTURE_RELAXED
                                  : capture == 0 && mode == 0);
            auto ask = [&] {
                EXPECT_EQ(r.cu.context_push(r.context), 0);
                EXPECT_EQ(r.cu.capture_mode(&mode), 0);
                EXPECT_EQ(r.cu.alloc(&at, 8), forbidden ? 900 : 0) << i;
                EXPECT_EQ(r.cu.capture_mode(&mode), 0);
            };

            EXPECT_EQ(r.cu.capture_begin(stream, capture), 0);
            if (own)
                ask();
            else
                std::thread(ask).join();
            EXPECT_EQ(r.cu.capture_end(stream, &graph), forbidden ? 901 : 0)
                << i;
            if (!forbidden) {
                EXPECT_EQ(r.cu.free(at), 0);
                EXPECT_EQ(r.cu.graph_destroy(graph), 0);
            }
        }
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
    });
}

TEST(FakeGraph, OfABlockingStreamShutsTheDefaultOne)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = nullptr;
        hd_cu_graph graph = nullptr;
        hd_cu_ptr at = r.Memory(8);
        int status = 7;

        EXPECT_EQ(r.cu.stream_create(&stream, 0, 0), 0);
        EXPECT_EQ(r.cu.capture_status(stream, &status), 0);
        EXPECT_EQ(status, HD_CU_CAPTURE_NONE);
        EXPECT_EQ(r.cu.capture_begin(stream, HD_CU_CAPTURE_RELAXED), 0);
        EXPECT_EQ(r.cu.capture_status(nullptr, &status), 906);
        EXPECT_EQ(r.cu.capture_status(stream, &status), 0);
        EXPECT_EQ(status, 1);
        EXPECT_EQ(r.cu.fill8(at, 1, 8, nullptr), 906);
        EXPECT_EQ(r.cu.capture_status(stream, &status), 0);
        EXPECT_EQ(status, 2);
        EXPECT_EQ(r.cu.capture_end(stream, &graph), 901);
        EXPECT_EQ(r.cu.capture_status(nullptr, &status), 0);
        EXPECT_EQ(status, HD_CU_CAPTURE_NONE);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
        EXPECT_EQ(r.cu.free(at), 0);
    });
}

TEST(FakeFault, StrikesTheCallThatItNames)
{
    InChildren(1, [](Rank &r) {
        auto *fail = r.Extra<decltype(fake_cuda_fail)>("fake_cuda_fail");
        auto *calls = r.Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        auto *reset = r.Extra<decltype(fake_cuda_reset)>("fake_cuda_reset");
        hd_cu_ptr at = 0, next = 0;

        reset();
        fail("cuMemAlloc_v2", 2);
        EXPECT_EQ(r.cu.alloc(&at, 8), 0);
        EXPECT_EQ(r.cu.alloc(&next, 8), HD_CU_OUT_OF_MEMORY);
        EXPECT_EQ(r.cu.alloc(&next, 8), 0);
        EXPECT_EQ(calls("cuMemAlloc_v2"), 3);
        EXPECT_EQ(r.Balance(), "2 memory, 1 retained contexts");
        fail("cuMemFree", 1);
        EXPECT_EQ(r.cu.free(at), 999);
        EXPECT_EQ(r.cu.free(at), 1) << "freed all the same";
        fail("cuStreamSynchronize", 1);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 999);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        EXPECT_EQ(r.cu.free(next), 0);
    });
}

TEST(FakeFault, ComesFromTheEnvironmentToo)
{
    setenv("FAKE_CUDA_FAIL", "cuEventCreate:3", 1);
    InChildren(1, [](Rank &r) {
        hd_cu_event event;

        for (int i = 1; i < 5; i++) {
            EXPECT_EQ(r.cu.event_create(&event, 0), i == 3 ? 999 : 0);
            if (i != 3) {
                EXPECT_EQ(r.cu.event_destroy(event), 0);
            }
        }
    });
    unsetenv("FAKE_CUDA_FAIL");
}

TEST(FakeDevice, IsNotToBeForked)
{
    InChildren(1, [](Rank &r) {
        int status = 0;
        pid_t child = fork();

        if (child == 0)
            _exit(r.cu.init(0) == 3 && r.cu.device_count(&status) == 3 ? 0 : 1);
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    });
}

} // namespace
