// For tests: a function run on several ranks, as processes or as threads.
#ifndef TESTS_UNIT_RANKS_H
#define TESTS_UNIT_RANKS_H

#include <condition_variable>
#include <cstring>
#include <dirent.h>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <heddle/heddle.h>
#include <heddle/launch.h>

// In a rank's function: a failed test travels as a status.
#define RANK_EXPECT(condition)                                          \
    do {                                                                \
        if (!(condition)) {                                             \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, \
                    #condition);                                        \
            return HD_ERROR_INVALID;                                    \
        }                                                               \
    } while (0)

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

// As processes. What ranks say into their diag reaches the launcher's.
inline Outcome Launch(int ranks, const RankFunction &function,
                      double deadline = 60, double timeout = 30)
{
    RankCall call = {function, hd_diag_create()};
    Outcome outcome;

    outcome.status =
        hd_launch(ranks, timeout, deadline, CallRank, &call, call.diag);
    outcome.text = hd_diag_text(call.diag);
    hd_diag_destroy(call.diag);
    return outcome;
}

inline void AllEndWell(const Outcome &outcome)
{
    EXPECT_EQ(outcome.status, HD_OK) << outcome.text;
}

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
