// For tests: a function run on several ranks, as processes or as threads.
#ifndef TESTS_UNIT_RANKS_H
#define TESTS_UNIT_RANKS_H

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <heddle/heddle.h>
#include <heddle/launch.h>

#include "base/diag.h"

// In a rank's function: a failed test travels as a status.
#define RANK_EXPECT(condition)                                          \
    do {                                                                \
        if (!(condition)) {                                             \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, \
                    #condition);                                        \
            return HD_ERROR_INVALID;                                    \
        }                                                               \
    } while (0)

// An allgather between threads.
class Rendezvous
{
  public:
    explicit Rendezvous(int ranks) : ranks_(ranks)
    {
    }

    hd_status Gather(int rank, const void *mine, size_t bytes, void *all)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        size_t round = round_;

        data_.resize(bytes * static_cast<size_t>(ranks_));
        memcpy(&data_[bytes * static_cast<size_t>(rank)], mine, bytes);
        if (++arrived_ == ranks_) {
            result_ = data_;
            arrived_ = 0;
            round_++;
            news_.notify_all();
        }
        news_.wait(lock, [&] { return round_ != round; });
        memcpy(all, result_.data(), result_.size());
        return HD_OK;
    }

  private:
    int ranks_;
    int arrived_ = 0;
    size_t round_ = 0;
    std::vector<char> data_, result_;
    std::mutex mutex_;
    std::condition_variable news_;
};

struct Seat {
    Rendezvous *rendezvous;
    int rank;
};

inline hd_status GatherAtSeat(void *context, const void *mine, size_t bytes,
                              void *all)
{
    Seat *seat = static_cast<Seat *>(context);

    return seat->rendezvous->Gather(seat->rank, mine, bytes, all);
}

// As threads of this process, each with a group of its own. Returns what each
// rank returned.
inline std::vector<hd_status>
Threads(int ranks, const std::function<hd_status(hd_group *)> &function,
        double timeout = 20)
{
    Rendezvous rendezvous(ranks);
    std::vector<hd_status> status(static_cast<size_t>(ranks), HD_ERROR_INVALID);
    std::vector<std::thread> threads;

    for (int rank = 0; rank < ranks; rank++) {
        threads.emplace_back([&, rank] {
            Seat seat = {&rendezvous, rank};
            hd_oob oob = {sizeof oob, &seat, rank, ranks, GatherAtSeat};
            hd_group *group = nullptr;
            hd_status got = hd_group_create(&oob, timeout, nullptr, &group);

            if (got == HD_OK)
                got = function(group);
            hd_group_destroy(group);
            status[static_cast<size_t>(rank)] = got;
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    return status;
}

typedef std::function<hd_status(hd_group *, hd_diag *)> RankFunction;

struct Outcome {
    hd_status status;
    std::string text; // of the launcher's diag
};

struct RankCall {
    RankFunction function;
    hd_diag *diag;
};

inline hd_status CallRank(void *context, hd_group *group)
{
    RankCall *call = static_cast<RankCall *>(context);

    return call->function(group, call->diag);
}

// Whether ranks are threads of one process rather than processes: as
// HEDDLE_TEST_RANKS says, "threads" or "processes".
inline bool RanksAreThreads()
{
    const char *value = getenv("HEDDLE_TEST_RANKS");

    return value != nullptr && strcmp(value, "threads") == 0;
}

struct ThreadsCall {
    RankCall call;
    int ranks;
    double timeout;
};

// A launched process whose threads are the ranks. Its outcome is that of the
// first that has failed by itself, with its messages.
inline hd_status CallThreads(void *context, hd_group *)
{
    ThreadsCall *all = static_cast<ThreadsCall *>(context);
    std::vector<hd_diag *> diag(static_cast<size_t>(all->ranks));
    std::vector<hd_status> status;
    size_t first = 0;

    for (hd_diag *&one : diag)
        one = hd_diag_create();
    setenv("HEDDLE_SHARED_DEVICE", "1", 0); // there may be one alone
    status = Threads(
        all->ranks,
        [&](hd_group *group) {
            return all->call.function(
                group, diag[static_cast<size_t>(hd_group_rank(group))]);
        },
        all->timeout);
    for (size_t i = status.size(); i-- > 0;)
        if (status[i] != HD_OK &&
            (status[i] != HD_ERROR_PEER || status[first] == HD_OK ||
             status[first] == HD_ERROR_PEER))
            first = i;
    for (size_t i = 0; i < status.size(); i++) {
        hd_message message = HD_EMPTY(hd_message);

        for (size_t k = 0; i == first && hd_diag_message(diag[i], k, &message);
             k++)
            (void)hd_fail(all->call.diag, status[i], "%s", message.text);
        hd_diag_destroy(diag[i]);
    }
    return status[first];
}

// As processes, or as threads of one. What ranks say into their diag reaches
// the launcher's.
inline Outcome Launch(int ranks, const RankFunction &function,
                      double deadline = 60, double timeout = 30)
{
    ThreadsCall all = {{function, hd_diag_create()}, ranks, timeout};
    RankCall &call = all.call;
    Outcome outcome;

    outcome.status =
        RanksAreThreads()
            ? hd_launch(1, timeout, deadline, CallThreads, &all, call.diag)
            : hd_launch(ranks, timeout, deadline, CallRank, &call, call.diag);
    outcome.text = hd_diag_text(call.diag);
    hd_diag_destroy(call.diag);
    return outcome;
}

inline void AllEndWell(const Outcome &outcome)
{
    EXPECT_EQ(outcome.status, HD_OK) << outcome.text;
}

// Descriptors that this process has open.
inline size_t OpenDescriptors()
{
    DIR *directory = opendir("/proc/self/fd");
    size_t n = 0;

    while (readdir(directory) != nullptr)
        n++;
    closedir(directory);
    return n;
}

#endif
