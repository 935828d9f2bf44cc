// Callers who hear of the end of runs without waiting for them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <dirent.h>
#include <mutex>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include <heddle/async.h>

#include "tests/clock.h"
#include "tests/unit/program.h"
#include "tests/unit/ranks.h"

// Of runtime/event.h, which is C alone.
extern "C" {
uint64_t hd_event_issue(hd_event *event, uint64_t n);
void hd_event_reach(hd_event *event, uint64_t number);
}

namespace
{

const double kPatient = 20; // seconds: only what is broken takes them

// One rank's session, of which each run waits for its caller's event.
struct Gate {
    Program program{"host program gate\nin %go : event[]\nin %x : f32[4]\n"
                    "out %y : f32[4]\n{\n    wait %go\n    %y = copy %x\n}\n"};
    hd_group *group = nullptr;
    hd_session *session = nullptr;
    hd_diag *diag = hd_diag_create();
    std::vector<hd_event *> events;
    float x[4] = {1, 2, 3, 4}, y[4] = {};

    Gate()
    {
        hd_oob oob = {sizeof oob, nullptr, 0, 1, nullptr};

        EXPECT_EQ(hd_group_create(&oob, 1, diag, &group), HD_OK);
        EXPECT_EQ(
            hd_session_create(group, program.module, nullptr, diag, &session),
            HD_OK)
            << program.Said() << hd_diag_text(diag);
    }
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;
    ~Gate()
    {
        hd_session_destroy(session);
        hd_group_destroy(group);
        hd_diag_destroy(diag);
        for (hd_event *event : events)
            hd_event_destroy(event);
    }
    // Issues a run that waits until it is let go of, by the number returned.
    size_t Run()
    {
        events.push_back(hd_event_create());
        void *arguments[] = {events.back(), x, y};

        hd_event_issue(events.back(), 1);
        EXPECT_EQ(hd_session_run(session, arguments, 3, nullptr, diag), HD_OK);
        return events.size() - 1;
    }
    void LetGo(size_t run)
    {
        hd_event_reach(events[run], 1);
    }
    bool Done()
    {
        bool done = false;

        EXPECT_EQ(hd_session_query(session, diag, &done), HD_OK);
        return done;
    }
    bool Wait(double seconds)
    {
        bool done = false;

        EXPECT_EQ(hd_session_wait(session, seconds, diag, &done), HD_OK)
            << hd_diag_text(diag);
        return done;
    }
    int Descriptor()
    {
        int fd = -1;

        EXPECT_EQ(hd_session_descriptor(session, diag, &fd), HD_OK);
        return fd;
    }
};

bool IsReadable(int fd, double seconds = 0)
{
    pollfd ask = {fd, POLLIN, 0};

    return poll(&ask, 1, int(seconds * 1000)) == 1 &&
           (ask.revents & POLLIN) != 0;
}

// What functions were told, in order.
struct Told {
    std::mutex mutex;
    std::vector<std::pair<int, hd_status>> calls;
    std::thread::id thread;

    size_t Count()
    {
        std::lock_guard<std::mutex> lock(mutex);

        return calls.size();
    }
    bool Await(size_t n)
    {
        for (int i = 0; i < int(kPatient * 1000) && Count() < n; i++)
            usleep(1000);
        return Count() == n;
    }
};

struct Asked {
    Told *told;
    int which;
};

void Tell(void *context, hd_status status)
{
    Asked *asked = static_cast<Asked *>(context);
    std::lock_guard<std::mutex> lock(asked->told->mutex);

    asked->told->calls.emplace_back(asked->which, status);
    asked->told->thread = std::this_thread::get_id();
}

size_t ThreadsOfThisProcess()
{
    DIR *directory = opendir("/proc/self/task");
    size_t n = 0;

    while (readdir(directory) != nullptr)
        n++;
    closedir(directory);
    return n - 2; // . and ..
}

double Since(Clock::time_point start)
{
    return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(Completion, IsAskedForAndWaitedFor)
{
    Gate gate;

    EXPECT_TRUE(gate.Done()); // of no run
    EXPECT_TRUE(gate.Wait(kPatient));
    size_t run = gate.Run();
    auto start = Clock::now();
    EXPECT_FALSE(gate.Done());
    EXPECT_FALSE(gate.Wait(0));
    EXPECT_FALSE(gate.Wait(-1));
    EXPECT_FALSE(gate.Wait(std::nan("")));
    EXPECT_LT(Since(start), kPatient / 2);
    start = Clock::now();
    EXPECT_FALSE(gate.Wait(0.1));
    EXPECT_GE(Since(start), 0.1);
    gate.LetGo(run);
    EXPECT_TRUE(gate.Wait(kPatient));
    EXPECT_TRUE(gate.Done());
    EXPECT_EQ(gate.y[3], 4.0f);
    EXPECT_EQ(hd_diag_count(gate.diag), 0u); // a timeout is no failure
}

TEST(Completion, ADescriptorIsReadableOnceRunsIssuedBeforeItWasAskedForEnd)
{
    Gate gate;
    int fd = gate.Descriptor();

    EXPECT_TRUE(IsReadable(fd, kPatient)); // there are none
    size_t first = gate.Run();
    EXPECT_TRUE(IsReadable(fd)); // as long as nobody asks again
    EXPECT_EQ(gate.Descriptor(), fd);
    EXPECT_FALSE(IsReadable(fd, 0.05));
    size_t second = gate.Run();
    gate.LetGo(first);
    EXPECT_TRUE(IsReadable(fd, kPatient));
    EXPECT_FALSE(gate.Done());
    EXPECT_EQ(gate.Descriptor(), fd);
    EXPECT_FALSE(IsReadable(fd, 0.05));
    gate.LetGo(second);
    EXPECT_TRUE(IsReadable(fd, kPatient));
    EXPECT_TRUE(gate.Done());
}

// What is asked for anew is not told of what was asked for before.
TEST(Completion, ADescriptorThatIsAskedForAgainForgetsWhatWasBefore)
{
    Gate gate;
    size_t first = gate.Run();
    int fd = gate.Descriptor();

    for (int i = 0; i < 10; i++) {
        size_t next = gate.Run();

        gate.Descriptor();
        gate.LetGo(first);
        EXPECT_FALSE(IsReadable(fd, 0.02)) << i;
        first = next;
    }
    gate.LetGo(first);
    EXPECT_TRUE(IsReadable(fd, kPatient));
}

TEST(Completion, FunctionsAreCalledOnceInOrderOnAnotherThread)
{
    Told told;
    Asked asked[4] = {{&told, 0}, {&told, 1}, {&told, 2}, {&told, 3}};
    Gate gate;

    EXPECT_EQ(hd_session_notify(gate.session, Tell, &asked[0], nullptr), HD_OK);
    EXPECT_TRUE(told.Await(1));
    size_t first = gate.Run();
    EXPECT_EQ(hd_session_notify(gate.session, Tell, &asked[1], nullptr), HD_OK);
    EXPECT_EQ(hd_session_notify(gate.session, Tell, &asked[2], nullptr), HD_OK);
    size_t second = gate.Run();
    EXPECT_EQ(hd_session_notify(gate.session, Tell, &asked[3], nullptr), HD_OK);
    SleepFor(0.05);
    EXPECT_EQ(told.Count(), 1u);
    gate.LetGo(first);
    EXPECT_TRUE(told.Await(3));
    SleepFor(0.05);
    EXPECT_EQ(told.Count(), 3u);
    gate.LetGo(second);
    EXPECT_TRUE(told.Await(4));
    for (int i = 0; i < 4; i++)
        EXPECT_EQ(told.calls[size_t(i)], std::make_pair(i, HD_OK));
    EXPECT_NE(told.thread, std::this_thread::get_id());
}

TEST(Completion, WhatIsLeftIsToldBeforeTheSessionIsGone)
{
    Told told;
    Asked asked[2] = {{&told, 0}, {&told, 1}};

    {
        Gate gate;
        size_t run = gate.Run();

        for (Asked &one : asked)
            EXPECT_EQ(hd_session_notify(gate.session, Tell, &one, nullptr),
                      HD_OK);
        gate.Descriptor();
        gate.LetGo(run);
    }
    EXPECT_EQ(told.Count(), 2u);
}

TEST(Completion, AFailureIsTold)
{
    Told told;
    Asked asked = {&told, 7};
    Gate gate;
    bool done = false;

    gate.Run();
    int fd = gate.Descriptor();
    EXPECT_EQ(hd_session_notify(gate.session, Tell, &asked, nullptr), HD_OK);
    EXPECT_FALSE(IsReadable(fd, 0.05));
    hd_group_abort(gate.group);
    EXPECT_TRUE(IsReadable(fd, kPatient));
    EXPECT_TRUE(told.Await(1));
    EXPECT_EQ(told.calls[0], std::make_pair(7, HD_ERROR_PEER));
    EXPECT_EQ(hd_session_query(gate.session, gate.diag, &done), HD_ERROR_PEER);
    EXPECT_TRUE(done);
    EXPECT_EQ(hd_diag_count(gate.diag), 1u) << hd_diag_text(gate.diag);
    done = false;
    EXPECT_EQ(hd_session_wait(gate.session, kPatient, nullptr, &done),
              HD_ERROR_PEER);
    EXPECT_TRUE(done);
}

// Also: no thread, no descriptor, before somebody asks.
TEST(Completion, CostsNothingBeforeItIsAskedFor)
{
    Gate gate;
    size_t threads = ThreadsOfThisProcess(), files = OpenDescriptors();

    gate.LetGo(gate.Run());
    EXPECT_TRUE(gate.Wait(kPatient));
    EXPECT_EQ(ThreadsOfThisProcess(), threads);
    EXPECT_EQ(OpenDescriptors(), files);
    gate.Descriptor();
    gate.Descriptor();
    EXPECT_EQ(ThreadsOfThisProcess(), threads + 1);
    EXPECT_EQ(OpenDescriptors(), files + 1);
}

// Issuing, asking and telling at once, of which ThreadSanitizer sees each.
TEST(Completion, IsAskedForWhileRunsAreIssuedAndEnd)
{
    Told told;
    std::vector<Asked> asked;
    Gate gate;
    const size_t n = 500;

    for (size_t i = 0; i < n; i++)
        asked.push_back({&told, int(i)});
    std::atomic<size_t> issued = 0;
    gate.events.reserve(n);
    std::thread opener([&] {
        for (size_t i = 0; i < n; i++) {
            while (issued <= i)
                std::this_thread::yield();
            gate.LetGo(i);
        }
    });
    for (size_t i = 0; i < n; i++) {
        gate.Run();
        EXPECT_EQ(hd_session_notify(gate.session, Tell, &asked[i], nullptr),
                  HD_OK);
        if (i % 3 == 0)
            gate.Descriptor();
        if (i % 5 == 0)
            gate.Done();
        issued++;
    }
    int fd = gate.Descriptor();
    EXPECT_TRUE(IsReadable(fd, kPatient));
    EXPECT_TRUE(told.Await(n));
    for (size_t i = 0; i < n; i++)
        EXPECT_EQ(told.calls[i], std::make_pair(int(i), HD_OK));
    opener.join();
}

} // namespace
