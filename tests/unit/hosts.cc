// Groups of ranks on several hosts, which here are one host under several
// names: the ranks of different names talk over TCP.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fstream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <random>
#include <set>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>

#include "runtime/ranks/callers.h"
#include "runtime/ranks/frame.h"
#include "runtime/ranks/group.h"
#include "runtime/ranks/remote.h"
#include "tests/clock.h"
#include "tests/cuda/ranks.h"
#include "tests/unit/ranks.h"

namespace
{

typedef std::vector<std::string> Names;

bool Says(const Answer &answer, const std::string &words)
{
    return std::string(answer.text).find(words) != std::string::npos;
}

void AllAreFine(const std::vector<Answer> &answers)
{
    for (size_t i = 0; i < answers.size(); i++) {
        EXPECT_TRUE(answers[i].ended) << "rank " << i << " hangs";
        EXPECT_EQ(answers[i].status, HD_OK) << answers[i].text;
    }
}

std::vector<Answer> RunOn(const Names &hosts, const RankBody &body)
{
    return RunRanks(int(hosts.size()), body, hosts);
}

// What rank `rank` brings into a gathering.
std::vector<char> Part(int rank, size_t bytes)
{
    std::mt19937_64 random(unsigned(rank) * 977 + unsigned(bytes) + 1);
    std::vector<char> part(bytes);
    uint64_t word = 0;

    for (size_t i = 0; i < bytes; i++, word >>= 8) {
        if (i % 8 == 0)
            word = random();
        part[i] = static_cast<char>(word);
    }
    return part;
}

hd_status GatherParts(const Rank &rank, size_t bytes)
{
    std::vector<char> mine = Part(rank.rank, bytes);
    std::vector<char> all(bytes * size_t(rank.size), 0x7f);

    HD_TRY(hd_group_allgather(rank.group, mine.data(), bytes, all.data(),
                              rank.diag));
    for (int i = 0; i < rank.size; i++)
        RANK_EXPECT(std::vector<char>(all.begin() + long(bytes) * i,
                                      all.begin() + long(bytes) * (i + 1)) ==
                    Part(i, bytes));
    return HD_OK;
}

TEST(Hosts, RanksOfAllGatherFromEveryOther)
{
    const Names layouts[] = {{"a", "b"},
                             {"a", "b", "c"},
                             {"a", "a", "b", "b"},
                             {"b", "a", "a", "b"},
                             {"a", "b", "a", "b"}};

    for (const Names &hosts : layouts) {
        AllAreFine(RunOn(hosts, [](Rank &rank) {
            for (size_t bytes : {size_t{0}, size_t{1}, size_t{100},
                                 HD_FRAME_ROOM, 9 * HD_FRAME_ROOM + 17})
                HD_TRY(GatherParts(rank, bytes));
            return HD_OK;
        }));
    }
}

TEST(Hosts, AreToldApartByName)
{
    AllAreFine(RunOn({"b", "a.x-1", "a.x-1", "b"}, [](Rank &rank) {
        const int leaders[] = {0, 1, 1, 0};

        for (int i = 0; i < 4; i++) {
            RANK_EXPECT(hd_group_leader(rank.group, i) == leaders[i]);
            RANK_EXPECT(strcmp(hd_group_host(rank.group, i),
                               leaders[i] == 0 ? "b" : "a.x-1") == 0);
        }
        return HD_OK;
    }));
    // Without names they are one.
    AllAreFine(RunRanks(3, [](Rank &rank) {
        for (int i = 0; i < 3; i++)
            RANK_EXPECT(hd_group_leader(rank.group, i) == 0);
        return HD_OK;
    }));
}

TEST(Hosts, ANameThatIsNoneIsRefused)
{
    const std::string longest(63, 'x');

    for (const std::string &name :
         {std::string("a b"), std::string(), std::string("a/b"),
          std::string("h\xc3\xb6st"), longest + "x"}) {
        std::vector<Answer> answers =
            RunOn({"a", name}, [](Rank &) { return HD_OK; });

        EXPECT_EQ(answers[1].status, HD_ERROR_ARGUMENT);
        EXPECT_TRUE(Says(answers[1], "HEDDLE_HOST is '" + name))
            << answers[1].text;
        EXPECT_EQ(answers[0].status, HD_ERROR_PEER) << answers[0].text;
    }
    AllAreFine(RunOn({"a", longest}, [](Rank &) { return HD_OK; }));
}

TEST(Hosts, AKilledRankIsNamedByEveryOtherWithItsHost)
{
    std::vector<Answer> answers =
        RunOn({"here", "here", "there", "there"}, [](Rank &rank) {
            if (rank.rank == 3) {
                rank.answer->seconds = Now();
                raise(SIGKILL);
            }
            hd_status status =
                hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag);
            rank.answer->seconds = Now();
            return status;
        });

    for (int i = 0; i < 3; i++) {
        const Answer &answer = answers[size_t(i)];

        EXPECT_EQ(answer.status, HD_ERROR_PEER);
        EXPECT_TRUE(Says(answer, "rank 3 died (process ")) << answer.text;
        EXPECT_TRUE(Says(answer, " on there)")) << answer.text;
        EXPECT_LT(answer.seconds - answers[3].seconds, 15);
    }
}

TEST(Hosts, WhatAFailedRankSaysReachesTheOthers)
{
    std::vector<Answer> answers = RunOn({"a", "b", "b"}, [](Rank &rank) {
        if (rank.rank == 1)
            hd_group_fail(rank.group, "rank 1 failed: the loom is on fire");
        return hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag);
    });

    for (const Answer &answer : answers) {
        EXPECT_EQ(answer.status, HD_ERROR_PEER);
        EXPECT_TRUE(Says(answer, "the loom is on fire")) << answer.text;
    }
}

// The words of one thread must not come between the parts of another's frame,
// which waits in the middle for a peer that takes nothing.
TEST(Hosts, WordsAreWholeWhateverElseIsBeingSent)
{
    std::vector<Answer> answers = RunOn({"a", "b"}, [](Rank &rank) {
        hd_exchange exchange =
            hd_exchange_begin(rank.group, HD_CALL_ALLGATHER, 10, rank.diag);

        rank.answer->number = getpid();
        HD_TRY(Meet(rank));
        if (rank.rank == 1) {
            while (!hd_group_failed(rank.group))
                usleep(1000);
            return hd_group_allgather(rank.group, nullptr, 0, nullptr,
                                      rank.diag);
        }
        pid_t peer = pid_t(rank.page->answer[1].number);
        kill(peer, SIGSTOP);
        std::thread sender([&] {
            std::vector<char> part(size_t{1} << 25, 'x'); // no buffer has room
            hd_status sent =
                hd_exchange_post(&exchange, 1, part.data(), part.size(), -1);

            // The words may have been faster, where the machine is busy.
            EXPECT_TRUE(sent == HD_OK || sent == HD_ERROR_PEER) << sent;
        });
        SleepFor(0.1);
        std::thread speaker(
            [&] { hd_group_fail(rank.group, "rank 0 failed: enough"); });
        usleep(20000);
        kill(peer, SIGCONT);
        sender.join();
        speaker.join();
        return HD_OK;
    });

    EXPECT_EQ(answers[0].status, HD_OK) << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_ERROR_PEER);
    EXPECT_TRUE(Says(answers[1], "rank 0 failed: enough")) << answers[1].text;
}

// What a thread of this process does, as /proc has it.
char StateOf(pid_t thread)
{
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;

    std::getline(stat, line);
    return line.size() > line.rfind(')') + 2 ? line[line.rfind(')') + 2] : '?';
}

// Sends more than there is room for to one that is stopped.
class Flood
{
  public:
    explicit Flood(hd_group *group) : thread_([this, group] { Send(group); })
    {
        pid_t sender;

        while ((sender = sender_) == 0)
            usleep(1000);
        for (int still = 0; still < 50; still++) {
            int before = sent_;

            usleep(2000);
            if (StateOf(sender) != 'S' || sent_ != before)
                still = 0;
        }
    }
    ~Flood()
    {
        thread_.join();
    }

  private:
    void Send(hd_group *group)
    {
        std::vector<char> much(HD_FRAME_ROOM, 'x');
        hd_exchange exchange =
            hd_exchange_begin(group, HD_CALL_ALLGATHER, kPatience, nullptr);

        sender_ = gettid();
        for (; sent_ < 2000; sent_++)
            if (hd_exchange_post(&exchange, 1, much.data(), much.size(), -1) !=
                HD_OK)
                break;
    }

    std::atomic<pid_t> sender_{0};
    std::atomic<int> sent_{0};
    std::thread thread_;
};

// What a rank does that has failed nobody meets that has not been told, however
// long it takes: here one is stopped, and its queue is full.
TEST(Hosts, AFailureIsPassedOnOnceEveryRankHasIt)
{
    for (const Names &hosts : {Names{"a", "a", "a"}, Names{"a", "b", "c"}}) {
        AllAreFine(RunOn(hosts, [](Rank &rank) {
            pid_t pid = getpid(), pids[3];
            char text[HD_GROUP_TEXT];

            HD_TRY(hd_group_allgather(rank.group, &pid, sizeof(pid), pids,
                                      rank.diag));
            HD_TRY(Meet(rank));
            if (rank.rank != 0) {
                while (!hd_group_failed(rank.group))
                    usleep(1000);
                hd_status told = hd_group_failure(rank.group, text);
                RANK_EXPECT(told == HD_ERROR_PEER);
                RANK_EXPECT(strcmp(text, "rank 0 has had enough") == 0);
                return Meet(rank);
            }
            kill(pids[1], SIGSTOP);
            std::atomic<bool> passed{false};
            Flood flood(rank.group);
            std::thread teller([&] {
                hd_group_pass_on(rank.group, "rank 0 has had enough");
                passed = true;
            });
            usleep(500000);
            bool early = passed;
            kill(pids[1], SIGCONT);
            teller.join();
            RANK_EXPECT(!early);
            return Meet(rank);
        }));
    }
}

TEST(Hosts, ARankThatFinishesFirstIsNotTakenForDead)
{
    std::vector<Answer> answers = RunOn({"a", "b", "c"}, [](Rank &rank) {
        HD_TRY(GatherParts(rank, 100));
        if (rank.rank == 1)
            return HD_OK;
        while (!hd_group_left(rank.group, 1) && !hd_group_failed(rank.group))
            usleep(1000);
        RANK_EXPECT(!hd_group_failed(rank.group));
        return hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag);
    });

    EXPECT_EQ(answers[1].status, HD_OK) << answers[1].text;
    for (int i : {0, 2}) {
        EXPECT_EQ(answers[size_t(i)].status, HD_ERROR_PEER);
        EXPECT_TRUE(Says(answers[size_t(i)], "rank 1 has left the group"))
            << answers[size_t(i)].text;
    }
}

// What it did not wait to hear does not get ahead of its goodbye.
TEST(Hosts, ARankThatLeavesWithMailUnreadIsNotTakenForDead)
{
    std::vector<Answer> answers = RunOn({"a", "b"}, [](Rank &rank) {
        std::vector<char> part(50 * HD_FRAME_ROOM, 'x');
        hd_exchange exchange =
            hd_exchange_begin(rank.group, HD_CALL_ALLGATHER, 5, rank.diag);

        if (rank.rank == 1)
            return HD_OK;
        HD_TRY(hd_exchange_post(&exchange, 1, part.data(), part.size(), -1));
        while (!hd_group_left(rank.group, 1) && !hd_group_failed(rank.group))
            usleep(1000);
        RANK_EXPECT(!hd_group_failed(rank.group));
        return HD_OK;
    });

    AllAreFine(answers);
}

TEST(Hosts, ARankThatNeverCallsIsNamedAtTheDeadline)
{
    std::vector<Answer> answers = RunOn({"a", "b"}, [](Rank &rank) {
        hd_status status = HD_OK;

        hd_group_set_timeout(rank.group, 0.2);
        if (rank.rank == 0)
            status =
                hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag);
        HD_TRY(Meet(rank));
        return status;
    });

    EXPECT_EQ(answers[0].status, HD_ERROR_TIMEOUT);
    EXPECT_TRUE(Says(answers[0], "rank 0 waits for rank 1")) << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_OK);
}

TEST(Hosts, ADescriptorDoesNotTravelBetweenThem)
{
    std::vector<Answer> answers = RunOn({"a", "a", "b"}, [](Rank &rank) {
        hd_exchange exchange =
            hd_exchange_begin(rank.group, HD_CALL_SESSION, 5, rank.diag);
        hd_status status = HD_OK;
        char none = 0;
        int fd = -1;

        if (rank.rank == 0) {
            HD_TRY(hd_exchange_post(&exchange, 1, &none, 1, STDIN_FILENO));
            status = hd_exchange_post(&exchange, 2, &none, 1, STDIN_FILENO);
            RANK_EXPECT(status == HD_ERROR_UNSUPPORTED);
        }
        if (rank.rank == 1) {
            HD_TRY(hd_exchange_collect(&exchange, 0, &none, 1, &fd));
            RANK_EXPECT(fd >= 0);
            close(fd);
        }
        // The group goes on.
        HD_TRY(GatherParts(rank, 5));
        return status;
    });

    EXPECT_EQ(answers[0].status, HD_ERROR_UNSUPPORTED);
    EXPECT_TRUE(Says(answers[0], "rank 0 on a cannot share memory with rank 2 "
                                 "on b"))
        << answers[0].text;
    EXPECT_EQ(answers[1].status, HD_OK) << answers[1].text;
    EXPECT_EQ(answers[2].status, HD_OK) << answers[2].text;
}

// Of a rank whose host has no other process the hanging up tells.
TEST(Hosts, RanksOfOneHostAloneShowEachOtherThatTheyLive)
{
    AllAreFine(RunOn({"a", "b", "b"}, [](Rank &rank) {
        RANK_EXPECT(MappedWindows() == (rank.rank == 0 ? 0 : 1));
        return Meet(rank);
    }));
}

TEST(Hosts, LeaveNoDescriptorOpen)
{
    AllAreFine(RunOn({"a", "b", "b"}, [](Rank &rank) {
        size_t before = OpenDescriptors();
        hd_oob oob = {sizeof oob, &rank, rank.rank, rank.size, GatherOnPage};
        hd_group *group = nullptr;

        for (int i = 0; i < 3; i++) {
            HD_TRY(hd_group_create(&oob, 10, rank.diag, &group));
            HD_TRY(hd_group_allgather(group, nullptr, 0, nullptr, rank.diag));
            hd_group_destroy(group);
        }
        RANK_EXPECT(OpenDescriptors() == before);
        return HD_OK;
    }));
}

// ---------------------------------------------------------- connections

sockaddr_in Loopback(uint32_t last, uint32_t port)
{
    sockaddr_in address = sockaddr_in();

    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(0x7f000000 + last);
    address.sin_port = htons(uint16_t(port));
    return address;
}

void AddAddress(hd_remote_endpoint *endpoint, uint32_t address)
{
    hd_host_address *at = &endpoint->address[endpoint->naddresses++];

    at->family = AF_INET;
    address = htonl(address);
    memcpy(at->byte, &address, sizeof(address));
}

// Rank 1 of 3, which listens on 127.0.0.1, and rank 2, which calls it.
class Remote : public testing::Test
{
  protected:
    void SetUp() override
    {
        hd_remote_endpoint told = hd_remote_endpoint();

        hd_callers_init(&one_, 1);
        one_.secret = two_.secret = std::random_device{}();
        ASSERT_EQ(hd_remote_listen(&one_.listener, nullptr, &told), HD_OK);
        EXPECT_GT(told.naddresses, 0u);
        endpoint_.port = told.port;
        AddAddress(&endpoint_, 0x7f000001);
    }
    void TearDown() override
    {
        hd_callers_close(&one_);
    }
    int Stranger()
    {
        sockaddr_in address = Loopback(1, endpoint_.port);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&address),
                          sizeof(address)),
                  0);
        return fd;
    }
    // Answers until a rank has come or the deadline is over.
    int Hear(int *fd, double seconds)
    {
        int64_t deadline = hd_clock_after(seconds);
        int peer = -1;

        while (peer < 0 && hd_clock_after(0) < deadline && !over_) {
            pollfd ask[HD_CALLERS + 1];
            int n = hd_callers_ask(&one_, ask);
            hd_wire caller;

            poll(ask, nfds_t(n), 20);
            EXPECT_EQ(hd_callers_accept(&one_, &caller), HD_OK);
            *fd = caller.fd;
            peer = caller.fd >= 0 ? int(caller.frame.rank) : -1;
        }
        return peer;
    }
    // What becomes of rank 2's call while rank 1 answers whoever fits.
    hd_status Call(double seconds)
    {
        hd_status status = HD_ERROR_INVALID;
        int called = -1, heard = -1;

        over_ = false;
        std::thread caller([&] {
            status = hd_remote_call(2, two_, &endpoint_,
                                    hd_clock_after(seconds), why_, &called);
            over_ = true;
        });

        peer_ = Hear(&heard, seconds);
        if (peer_ >= 0) {
            EXPECT_EQ(hd_wire_answer(heard, 1, hd_clock_after(1)), HD_OK);
        }
        caller.join();
        for (int fd : {called, heard}) {
            if (fd >= 0)
                close(fd);
        }
        return status;
    }
    hd_callers one_;
    hd_hello two_ = {0, 3, 1};
    hd_remote_endpoint endpoint_ = hd_remote_endpoint();
    char why_[HD_WHY_BYTES];
    int peer_ = -1;
    std::atomic<bool> over_{false}; // the call
};

TEST_F(Remote, ARankIsHeardAmongStrangers)
{
    std::mt19937 random(7);
    std::vector<int> strangers;
    hd_wire heard;

    // More silent ones than have room, and as many that babble.
    for (int i = 0; i < 70; i++) {
        std::string garbage(1 + random() % 900, '\0');

        for (char &c : garbage)
            c = static_cast<char>(random());
        strangers.push_back(Stranger());
        strangers.push_back(Stranger());
        send(strangers.back(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
        EXPECT_EQ(hd_callers_accept(&one_, &heard), HD_OK);
        EXPECT_EQ(heard.fd, -1);
    }
    EXPECT_EQ(Call(10), HD_OK) << why_;
    EXPECT_EQ(peer_, 2);
    for (int fd : strangers)
        close(fd);
}

// Who has said who it is does not give way to those who come after.
TEST_F(Remote, MoreRanksThanThereIsRoomForAreAllHeardIfTheyCallAtOnce)
{
    std::set<uint32_t> heard;
    std::vector<int> calls;
    hd_wire caller;

    for (int rank = 2; rank < 2 + 2 * HD_CALLERS; rank++) {
        calls.push_back(Stranger());
        EXPECT_EQ(hd_wire_call(calls.back(), rank, two_, hd_clock_after(1)),
                  HD_OK);
    }
    for (int64_t until = hd_clock_after(10); heard.size() < calls.size();) {
        ASSERT_LT(hd_clock_after(0), until) << heard.size();
        ASSERT_EQ(hd_callers_accept(&one_, &caller), HD_OK);
        if (caller.fd < 0)
            continue;
        heard.insert(caller.frame.rank);
        hd_wire_close(&caller);
    }
    for (int fd : calls)
        close(fd);
}

// Descriptors take the lowest number that is free.
TEST_F(Remote, WhereDescriptorsRunOutTheSilentGiveWayAndWithNoneThereItIsSaid)
{
    int silent = Stranger(), rank, other;
    rlimit before{}, none{};
    hd_wire heard, nobody;
    hd_status first, second;

    ASSERT_EQ(hd_callers_accept(&one_, &nobody), HD_OK);
    ASSERT_GE(one_.wire[0].fd, 0);
    rank = Stranger();
    ASSERT_EQ(hd_wire_call(rank, 2, two_, hd_clock_after(1)), HD_OK);
    other = Stranger();
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = rlim_t(one_.wire[0].fd) + 1;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    first = hd_callers_accept(&one_, &heard);
    second = hd_callers_accept(&one_, &nobody);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(first, HD_OK);
    EXPECT_EQ(heard.frame.rank, 2u);
    EXPECT_EQ(second, HD_ERROR_SYSTEM);
    EXPECT_LT(nobody.fd, 0);
    for (int fd : {silent, rank, other, heard.fd})
        close(fd);
}

TEST_F(Remote, ARankOfAnotherGroupIsHungUpOn)
{
    two_.secret++;
    EXPECT_EQ(Call(10), HD_ERROR_PEER);
    EXPECT_STREQ(why_, "whoever listens there is not it");
    two_.secret--;
    EXPECT_EQ(Call(10), HD_OK) << why_;
}

// A port that another rank has under the same address elsewhere.
TEST_F(Remote, ARankThatIsNotTheOneAskedForHangsUp)
{
    one_.rank = 0;
    EXPECT_EQ(Call(10), HD_ERROR_PEER);
    EXPECT_EQ(peer_, -1);
}

TEST_F(Remote, TheRankIsFoundAtWhicheverAddressItAnswers)
{
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(1, 0);
    hd_remote_endpoint endpoint = hd_remote_endpoint();
    socklen_t bytes = sizeof(address);
    int on = 1;

    // At 127.0.0.1 somebody listens who says nothing, at .2 nobody, and the
    // rank at .3, all on one port.
    hd_callers_close(&one_);
    ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr *>(&address), bytes), 0);
    ASSERT_EQ(listen(silent, 5), 0);
    ASSERT_EQ(
        getsockname(silent, reinterpret_cast<sockaddr *>(&address), &bytes), 0);
    endpoint.port = ntohs(address.sin_port);
    address.sin_addr.s_addr = htonl(0x7f000003);
    one_.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(one_.listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ASSERT_EQ(
        bind(one_.listener, reinterpret_cast<sockaddr *>(&address), bytes), 0);
    ASSERT_EQ(listen(one_.listener, 5), 0);
    for (uint32_t last : {1u, 2u, 3u})
        AddAddress(&endpoint, 0x7f000000 + last);
    endpoint_ = endpoint;
    EXPECT_EQ(Call(10), HD_OK) << why_;
    EXPECT_EQ(peer_, 2);
    // Without it the call ends in time.
    hd_callers_close(&one_);
    EXPECT_EQ(Call(0.3), HD_ERROR_TIMEOUT);
    EXPECT_STREQ(why_, "nobody answers");
    close(silent);
    EXPECT_EQ(Call(5), HD_ERROR_PEER);
    EXPECT_STREQ(why_, "Connection refused");
}

TEST_F(Remote, AHostThatFallsSilentIsNoticed)
{
    int heard = -1, called = -1, value = 0;
    socklen_t bytes = sizeof(value);
    std::thread caller([&] {
        EXPECT_EQ(hd_remote_call(2, two_, &endpoint_, hd_clock_after(10), why_,
                                 &called),
                  HD_OK);
    });

    EXPECT_EQ(Hear(&heard, 10), 2);
    EXPECT_EQ(hd_wire_answer(heard, 1, hd_clock_after(1)), HD_OK);
    caller.join();
    for (int fd : {heard, called}) {
        getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &bytes);
        EXPECT_EQ(value, 1);
        getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, &bytes);
        EXPECT_LE(value, 5);
        getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &bytes);
        EXPECT_EQ(value, 20000);
        close(fd);
    }
}

TEST(Host, HasAddressesThatOthersMayReach)
{
    hd_host_address all[HD_HOST_ADDRESSES];
    int n = hd_host_addresses(all);

    ASSERT_GT(n, 0);
    for (int i = 0; i < n; i++)
        EXPECT_TRUE(all[i].family == AF_INET || all[i].family == AF_INET6);
}

} // namespace
