#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/ranks/workers.h"

namespace
{

// Notes its jobs, each of which stays at its end until it may go on.
class Log
{
  public:
    void Note(uint64_t n)
    {
        std::unique_lock<std::mutex> lock(mutex_);

        noted_.push_back(n);
        news_.notify_all();
        news_.wait(lock, [&] { return free_ >= noted_.size(); });
    }
    // Of all jobs so far, as many may end.
    void Free(size_t n)
    {
        std::unique_lock<std::mutex> lock(mutex_);

        free_ = n;
        news_.notify_all();
    }
    std::vector<uint64_t> Await(size_t n)
    {
        std::unique_lock<std::mutex> lock(mutex_);

        news_.wait(lock, [&] { return noted_.size() >= n; });
        return noted_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable news_;
    std::vector<uint64_t> noted_;
    size_t free_ = 0;
};

struct Owner {
    Log *log;
    hd_job job[8];
};

void Note(void *owner, uint64_t n)
{
    static_cast<Owner *>(owner)->log->Note(n);
}

class Workers : public testing::Test
{
  protected:
    ~Workers() override
    {
        hd_workers_destroy(workers_);
    }
    void Give(Owner *owner, int slot, uint64_t n)
    {
        owner->job[slot] = {nullptr, Note, owner, n};
        hd_workers_lock(workers_);
        hd_workers_give(workers_, 0, &owner->job[slot]);
        hd_workers_unlock(workers_);
    }

    hd_workers *workers_ = hd_workers_create();
    Log log_;
    Owner a_ = {&log_, {}}, b_ = {&log_, {}};
};

TEST_F(Workers, JobsOfAllAreDoneInTheOrderInWhichTheyAreGiven)
{
    std::vector<uint64_t> want;

    ASSERT_EQ(hd_workers_need(workers_, 0, nullptr), HD_OK);
    for (uint64_t n = 0; n < 1000; n++) {
        Give(n % 3 == 0 ? &a_ : &b_, int(n % 8), n);
        want.push_back(n);
        if (n % 8 == 7) {
            log_.Free(n + 1);
            log_.Await(n + 1);
        }
    }
    EXPECT_EQ(log_.Await(1000), want);
}

TEST_F(Workers, WhatIsDroppedIsNeverDoneAndOthersAre)
{
    ASSERT_EQ(hd_workers_need(workers_, 0, nullptr), HD_OK);
    Give(&b_, 0, 1);
    log_.Await(1);
    Give(&a_, 0, 2);
    Give(&b_, 1, 3);
    Give(&a_, 1, 4);
    hd_workers_drop(workers_, 0, &a_); // waits for no job of another
    Give(&b_, 2, 5);
    log_.Free(100);
    EXPECT_EQ(log_.Await(3), (std::vector<uint64_t>{1, 3, 5}));
}

TEST_F(Workers, DroppingWaitsForTheJobThatHasBegun)
{
    std::atomic<bool> over{false};

    ASSERT_EQ(hd_workers_need(workers_, 0, nullptr), HD_OK);
    Give(&a_, 0, 1);
    log_.Await(1);
    std::thread thread([&] {
        hd_workers_drop(workers_, 0, &a_);
        over = true;
    });
    for (int i = 0; i < 100; i++) {
        EXPECT_FALSE(over);
        std::this_thread::yield();
    }
    log_.Free(1);
    thread.join();
    hd_workers_drop(workers_, 5, &a_); // where there is no thread, no job
}

} // namespace
