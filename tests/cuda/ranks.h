// Ranks of a cuda program, processes or threads of some, whatever becomes of
// each: unlike a launcher this one leaves the others alone when a rank dies,
// and hears from each how it ended. CUDA may not be forked, so the test program
// itself never starts it.
#ifndef HD_TESTS_CUDA_RANKS_H
#define HD_TESTS_CUDA_RANKS_H

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <heddle/heddle.h>

#include "runtime/cuda/keep.h"
#include "tests/clock.h"
#include "tests/fake/fake_cuda.h"

const int kRanksMost = 4;
const int kSymbolsMost = 160;

// Seconds within which ranks come that nobody waits for in vain: a busy machine
// takes a while to start them and to compile their kernels.
const double kPatience = 60;
// Seconds after which a rank hangs: it may have been patient twice.
const unsigned kHangs = 150;

// How one rank ended.
struct Answer {
    bool ended; // its function returned
    hd_status status;
    char text[4096]; // what it was told
    char left[512];  // objects of CUDA, or windows, that were not given back
    double seconds;  // a time that its function took, if it says so
    double sum;      // a word for its results, if it says so
    int64_t number;  // likewise
    char said[512];  // words of its function's own, if it has any
    long calls[kSymbolsMost];
};

inline bool Has(const Answer &answer, const std::string &words)
{
    return std::string(answer.text).find(words) != std::string::npos;
}

inline void Ended(const Answer &answer, int rank)
{
    EXPECT_TRUE(answer.ended) << "rank " << rank << " hangs";
    EXPECT_STREQ(answer.left, "") << "rank " << rank;
}

// Because of a peer, in words that name it.
inline void EndedByPeer(const Answer &answer, int rank,
                        const std::string &words)
{
    Ended(answer, rank);
    EXPECT_EQ(answer.status, HD_ERROR_PEER) << answer.text;
    EXPECT_TRUE(Has(answer, words)) << answer.text;
}

inline void AllAreRight(const std::vector<Answer> &answers)
{
    for (size_t i = 0; i < answers.size(); i++) {
        Ended(answers[i], int(i));
        EXPECT_EQ(answers[i].status, HD_OK) << answers[i].text;
    }
}

struct SharedPage {
    std::atomic<int> gathered, met; // by all ranks together
    std::atomic<bool> keeps; // what is left of CUDA's objects is left for good
    char part[2][kRanksMost][4096];
    Answer answer[kRanksMost];
};

// What a rank's function is given.
struct Rank {
    int rank, size;
    SharedPage *page;
    hd_group *group = nullptr;
    hd_diag *diag = nullptr;
    Answer *answer = nullptr;
    int gathers = 0, meetings = 0;
};

// False if they have not come after a while: one that ends early never does.
inline bool HaveCome(const std::atomic<int> &came, int all)
{
    double deadline = Now() + kPatience;

    while (came < all) {
        if (Now() > deadline)
            return false;
        usleep(500);
    }
    return true;
}

// Until all ranks have come to as many meetings.
inline hd_status Meet(Rank &rank)
{
    rank.page->met++;
    if (HaveCome(rank.page->met, ++rank.meetings * rank.size))
        return HD_OK;
    fprintf(stderr, "rank %d: not all ranks come to meeting %d\n", rank.rank,
            rank.meetings);
    return HD_ERROR_TIMEOUT;
}

// An allgather by shared memory.
inline hd_status GatherOnPage(void *context, const void *mine, size_t bytes,
                              void *all)
{
    Rank *rank = static_cast<Rank *>(context);
    int parity = rank->gathers++ % 2;
    char(&part)[kRanksMost][4096] = rank->page->part[parity];

    if (bytes > sizeof(part[0]))
        return HD_ERROR_NO_MEMORY;
    memcpy(part[rank->rank], mine, bytes);
    rank->page->gathered++;
    if (!HaveCome(rank->page->gathered, rank->gathers * rank->size))
        return HD_ERROR_TIMEOUT;
    for (int i = 0; i < rank->size; i++)
        memcpy(static_cast<char *>(all) + size_t(i) * bytes, part[i], bytes);
    return HD_OK;
}

// A function that the fake of libcuda exports beside libcuda's own; NULL as
// long as nobody has loaded it.
template <class Function> Function *Extra(const char *name)
{
    const char *path = getenv("HEDDLE_CUDA_LIB");
    void *library =
        path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);

    return library == nullptr
               ? nullptr
               : reinterpret_cast<Function *>(dlsym(library, name));
}

typedef std::function<hd_status(Rank &)> RankBody;

inline void RunOneRank(Rank rank, const RankBody &body)
{
    hd_oob oob = {sizeof oob, &rank, rank.rank, rank.size, GatherOnPage};

    rank.answer = &rank.page->answer[rank.rank];
    rank.diag = hd_diag_create();
    rank.answer->status =
        hd_group_create(&oob, kPatience, rank.diag, &rank.group);
    if (rank.answer->status == HD_OK)
        rank.answer->status = body(rank);
    snprintf(rank.answer->text, sizeof(rank.answer->text), "%s",
             hd_diag_text(rank.diag));
    hd_group_destroy(rank.group); // with what it has of the device
    hd_diag_destroy(rank.diag);
}

// Memory that ranks share: it has no name but among what a process maps.
inline int MappedWindows()
{
    std::ifstream maps("/proc/self/maps");
    std::string line;
    int n = 0;

    while (std::getline(maps, line))
        n += line.find("/memfd:heddle ") != line.npos;
    return n;
}

// What is left of CUDA's objects. A communicator ends with its peers', which
// may be late, on a thread that outlives its group and lets go of the context
// last; and memory that they have open is kept for as long.
inline void Balance(const SharedPage &page, char *out, size_t bytes)
{
    auto *balance = Extra<decltype(fake_cuda_balance)>("fake_cuda_balance");
    double deadline = Now() + (page.keeps ? 0 : kPatience);

    if (balance == nullptr)
        return;
    auto is_late = [&] {
        bool keeps = !hd_cuda_keep_look();

        return balance(out, bytes) != 0 &&
               (keeps || strstr(out, "nccl communicators") != nullptr ||
                strstr(out, "retained contexts") != nullptr);
    };
    while (is_late() && Now() < deadline)
        usleep(1000);
}

// The ranks of a process, each a thread of it if there are several.
inline void RunProcess(SharedPage *page, int size,
                       const std::vector<int> &ranks, const RankBody &body)
{
    std::vector<std::thread> threads;

    for (size_t i = 1; i < ranks.size(); i++)
        threads.emplace_back([&, i] {
            RunOneRank(Rank{ranks[i], size, page}, body);
        });
    RunOneRank(Rank{ranks[0], size, page}, body);
    for (std::thread &thread : threads)
        thread.join();
    int windows = MappedWindows();
    for (int rank : ranks) {
        Answer &answer = page->answer[rank];

        Balance(*page, answer.left, sizeof(answer.left));
        if (windows > 0)
            snprintf(answer.left, sizeof(answer.left), "%d windows", windows);
        answer.ended = true;
    }
    fflush(nullptr);
}

// An alarm says where the process hangs before it ends it.
inline void TellWhereItHangs(int)
{
    void *at[64];

    backtrace_symbols_fd(at, backtrace(at, 64), STDERR_FILENO);
    _exit(128 + SIGALRM);
}

// `body` as each rank of each process, of which an alarm ends those that hang:
// their ranks have not ended. Each process may be said to be on a host of that
// name.
inline std::vector<Answer>
RunProcesses(const std::vector<std::vector<int>> &processes,
             const RankBody &body, const std::vector<std::string> &hosts = {})
{
    void *memory = mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    std::vector<Answer> answers;
    std::vector<pid_t> children;
    int size = 0, how;

    if (memory == MAP_FAILED)
        abort();
    SharedPage *page = new (memory) SharedPage{};
    void *here;
    backtrace(&here, 1); // the first one loads a library, which no alarm may
    for (const std::vector<int> &ranks : processes)
        size += int(ranks.size());
    fflush(nullptr); // or each child would print it once more
    for (size_t i = 0; i < processes.size(); i++) {
        pid_t child = fork();

        if (child < 0)
            abort();
        if (child == 0) {
            signal(SIGALRM, TellWhereItHangs);
            alarm(kHangs);
            if (!hosts.empty())
                setenv("HEDDLE_HOST", hosts[i].c_str(), 1);
            bool had_failed = testing::Test::HasFailure(); // before this child
            RunProcess(page, size, processes[i], body);
            _exit(!had_failed && testing::Test::HasFailure());
        }
        children.push_back(child);
    }
    for (pid_t child : children) {
        waitpid(child, &how, 0);
        EXPECT_FALSE(WIFEXITED(how) && WEXITSTATUS(how) == 1)
            << "what a rank expects is not so: see above";
    }
    for (int i = 0; i < size; i++)
        answers.push_back(page->answer[i]);
    munmap(memory, sizeof(SharedPage));
    return answers;
}

// As above, each rank a process.
inline std::vector<Answer> RunRanks(int size, const RankBody &body,
                                    const std::vector<std::string> &hosts = {})
{
    std::vector<std::vector<int>> processes;

    for (int i = 0; i < size; i++)
        processes.push_back({i});
    return RunProcesses(processes, body, hosts);
}

#endif
