// Tests of the fakes run in children: CUDA may not be forked, so that the test
// program itself must never start it.
#ifndef HD_FAKE_CHILDREN_H
#define HD_FAKE_CHILDREN_H

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <gtest/gtest.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/library.h"
#include "fake_cuda.h"
#include "runtime/cuda/vendor/library.h"

// What the children of a test have in common.
struct Shared {
    std::atomic<int> arrived;
    char note[8][256];
};

class Rank
{
  public:
    int rank, size;
    Shared *shared;
    hd_cu_api cu{};
    hd_lt_api lt{};
    hd_nccl_api nccl{};
    hd_cu_context context = nullptr;

    // Until all have come here.
    void Meet()
    {
        int goal = ((shared->arrived.fetch_add(1) / size) + 1) * size;

        while (shared->arrived.load() < goal)
            usleep(100);
    }

    void Open()
    {
        Load(hd_cuda_library, &cu, FAKE_CUDA_PATH);
        Load(hd_lt_library, &lt, FAKE_CUBLASLT_PATH);
        Load(hd_nccl_library, &nccl, FAKE_NCCL_PATH);
        ASSERT_EQ(cu.init(0), 0);
        ASSERT_EQ(cu.primary_retain(&context, rank), 0);
        ASSERT_EQ(cu.context_push(context), 0);
    }

    void Close()
    {
        hd_cu_context popped;

        EXPECT_EQ(cu.context_pop(&popped), 0);
        EXPECT_EQ(cu.primary_release(rank), 0);
        EXPECT_EQ(Balance(), "");
    }

    template <class Function> Function *Extra(const char *name)
    {
        void *library = dlopen(FAKE_CUDA_PATH, RTLD_NOW | RTLD_NOLOAD);

        return reinterpret_cast<Function *>(dlsym(library, name));
    }

    std::string Balance()
    {
        char text[512];

        Extra<decltype(fake_cuda_balance)>("fake_cuda_balance")(text,
                                                                sizeof(text));
        return text;
    }

    hd_cu_stream Stream()
    {
        hd_cu_stream stream = nullptr;

        EXPECT_EQ(cu.stream_create(&stream, HD_CU_STREAM_NON_BLOCKING, 0), 0);
        return stream;
    }

    hd_cu_event Event(unsigned flags = HD_CU_EVENT_DISABLE_TIMING)
    {
        hd_cu_event event = nullptr;

        EXPECT_EQ(cu.event_create(&event, flags), 0);
        return event;
    }

    hd_cu_ptr Memory(size_t bytes)
    {
        hd_cu_ptr at = 0;

        EXPECT_EQ(cu.alloc(&at, bytes), 0);
        return at;
    }

    template <class T> hd_cu_ptr Put(const std::vector<T> &values)
    {
        hd_cu_ptr at = Memory(values.size() * sizeof(T));

        Write(at, values);
        return at;
    }

    template <class T> void Write(hd_cu_ptr at, const std::vector<T> &values)
    {
        EXPECT_EQ(cu.copy(at, reinterpret_cast<hd_cu_ptr>(values.data()),
                          values.size() * sizeof(T), nullptr),
                  0);
        EXPECT_EQ(cu.stream_synchronize(nullptr), 0);
    }

    template <class T> std::vector<T> Get(hd_cu_ptr at, size_t n)
    {
        std::vector<T> values(n);

        EXPECT_EQ(cu.copy(reinterpret_cast<hd_cu_ptr>(values.data()), at,
                          n * sizeof(T), nullptr),
                  0);
        return values;
    }

    int Word(hd_cu_stream stream, int operation, hd_cu_ptr at, uint32_t value)
    {
        hd_cu_memop op{};

        op.word.operation = operation;
        op.word.address = at;
        op.word.value = value;
        return cu.stream_words(stream, 1, &op, 0);
    }
    int Wait(hd_cu_stream stream, hd_cu_ptr at, uint32_t value)
    {
        return Word(stream, HD_CU_OP_WAIT_32, at, value);
    }
    int Say(hd_cu_stream stream, hd_cu_ptr at, uint32_t value)
    {
        return Word(stream, HD_CU_OP_WRITE_32, at, value);
    }

    // Memory of a peer, whose handle goes by way of the shared note.
    hd_cu_ptr Import(int peer)
    {
        hd_cu_ipc_handle handle;
        hd_cu_ptr at = 0;

        memcpy(&handle, shared->note[peer], sizeof(handle));
        EXPECT_EQ(cu.ipc_import(&at, handle, HD_CU_IPC_LAZY_PEER_ACCESS), 0);
        return at;
    }
    void Export(hd_cu_ptr at)
    {
        hd_cu_ipc_handle handle;

        EXPECT_EQ(cu.ipc_export(&handle, at), 0);
        memcpy(shared->note[rank], &handle, sizeof(handle));
    }

  private:
    void Load(const hd_library_info &info, void *table, const char *path)
    {
        hd_library library{};

        setenv(info.variable, path, 1);
        ASSERT_EQ(hd_library_open(&info, table, nullptr, &library), HD_OK)
            << path;
    }
};

// Runs the body in `size` children, each with its own CUDA. A child that takes
// longer than two minutes is ended by an alarm, which fails the test.
inline void InChildren(int size, const std::function<void(Rank &)> &body)
{
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    std::vector<pid_t> children;
    int status = 0;

    ASSERT_NE(memory, MAP_FAILED);
    Shared *shared = new (memory) Shared{};
    fflush(nullptr); // or each child would print it once more
    for (int i = 0; i < size; i++) {
        pid_t child = fork();

        ASSERT_GE(child, 0);
        if (child == 0) {
            Rank rank;

            alarm(120);
            rank.rank = i;
            rank.size = size;
            rank.shared = shared;
            rank.Open();
            body(rank);
            rank.Close();
            fflush(nullptr);
            _exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        children.push_back(child);
    }
    for (size_t i = 0; i < children.size(); i++) {
        ASSERT_EQ(waitpid(children[i], &status, 0), children[i]);
        EXPECT_TRUE(WIFEXITED(status))
            << "child " << i << " was ended by " << strsignal(WTERMSIG(status));
        EXPECT_EQ(WEXITSTATUS(status), 0) << "child " << i;
    }
    munmap(memory, sizeof(Shared));
}

#endif
