// Ranks as threads, of which one may fail before it has met the others.
#ifndef HD_TESTS_FAULTS_RANKS_H
#define HD_TESTS_FAULTS_RANKS_H

#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <heddle/heddle.h>

// An allgather between threads that ends with HD_ERROR_PEER once a rank has
// left, as the launcher's does and a caller's should.
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
        news_.wait(lock, [&] { return round_ != round || left_; });
        if (round_ == round)
            return HD_ERROR_PEER;
        memcpy(all, result_.data(), result_.size());
        return HD_OK;
    }

    void Leave()
    {
        std::lock_guard<std::mutex> lock(mutex_);

        left_ = true;
        news_.notify_all();
    }

  private:
    int ranks_;
    int arrived_ = 0;
    size_t round_ = 0;
    bool left_ = false;
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

// Calls `body` as each rank, in a thread of its own. It must make its group
// first; if it returns false it could not.
inline void
AsThreads(int ranks,
          const std::function<bool(int rank, const hd_oob &oob)> &body)
{
    Rendezvous rendezvous(ranks);
    std::vector<std::thread> threads;

    for (int rank = 0; rank < ranks; rank++)
        threads.emplace_back([&, rank] {
            Seat seat = {&rendezvous, rank};
            hd_oob oob = {sizeof oob, &seat, rank, ranks, GatherAtSeat};

            if (!body(rank, oob))
                rendezvous.Leave();
        });
    for (std::thread &thread : threads)
        thread.join();
}

#endif
