// Groups and sessions that are used as they must not be, or by whom they must
// not be.
#include <gtest/gtest.h>

#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <heddle/async.h>

#include "runtime/ranks/group.h"
#include "tests/clock.h"
#include "tests/cuda/ranks.h"
#include "tests/unit/program.h"
#include "tests/unit/ranks.h"

// Of runtime/event.h, which is C alone.
extern "C" uint64_t hd_event_issue(hd_event *event, uint64_t n);
extern "C" void hd_event_reach(hd_event *event, uint64_t number);

namespace
{

// A session of every rank, whose runs wait for their caller.
struct Gate {
    Program program;
    hd_group *group;
    hd_session *session = nullptr;
    hd_event *event = hd_event_create();
    float x[4] = {1, 2, 3, 4}, y[4] = {};
    void *arguments[3] = {event, x, y};

    explicit Gate(hd_group *of)
        : program("host program gate\nmesh tp=1\nin %go : event[]\n"
                  "in %x : f32[4]\nout %y : f32[4]\n"
                  "temp %s : f32[4] shared\n"
                  "{\n    wait %go\n    %s = copy %x\n"
                  "    %y = all_reduce %s\n}\n",
                  {{"tp", hd_group_size(of)}}),
          group(of)
    {
        EXPECT_EQ(hd_session_create(group, program.module, nullptr, nullptr,
                                    &session),
                  HD_OK)
            << program.Said();
    }
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;
    ~Gate()
    {
        hd_session_destroy(session);
        hd_event_destroy(event);
    }
    hd_status Run(hd_diag *diag = nullptr)
    {
        return hd_session_run(session, arguments, 3, nullptr, diag);
    }
};

void Hear(void *, hd_status)
{
}

// Every call of the session, each of which is refused with these words.
hd_status AllAreRefused(Gate &gate, const char *words)
{
    hd_diag *diag = hd_diag_create();
    bool done;
    int fd;
    const hd_status got[] = {
        gate.Run(diag),
        hd_session_finish(gate.session, diag),
        hd_session_query(gate.session, diag, &done),
        hd_session_wait(gate.session, 1, diag, &done),
        hd_session_descriptor(gate.session, diag, &fd),
        hd_session_notify(gate.session, Hear, nullptr, diag),
        hd_session_copy(gate.session, gate.y, gate.x, 4, diag),
    };

    for (hd_status one : got)
        RANK_EXPECT(one == HD_ERROR_ARGUMENT);
    for (size_t i = 0; i < hd_diag_count(diag); i++) {
        hd_message message = HD_EMPTY(hd_message);

        RANK_EXPECT(hd_diag_message(diag, i, &message));
        RANK_EXPECT(strstr(message.text, words) != nullptr);
    }
    hd_diag_destroy(diag);
    return HD_OK;
}

TEST(Misuse, TwoThreadsAtOnce)
{
    for (hd_status status : Threads(1, [](hd_group *group) {
             Gate gate(group);
             hd_status finished = HD_ERROR_INVALID;

             hd_event_issue(gate.event, 1);
             HD_TRY(gate.Run());
             // It may come where this thread asks, and is refused itself.
             std::thread other([&] {
                 do
                     finished = hd_session_finish(gate.session, nullptr);
                 while (finished == HD_ERROR_ARGUMENT);
             });
             // Until the other thread is in there.
             bool done;
             while (hd_session_query(gate.session, nullptr, &done) == HD_OK)
                 std::this_thread::yield();
             hd_status refused =
                 AllAreRefused(gate, "'gate' is used by two threads at once");
             hd_event_reach(gate.event, 1);
             other.join();
             HD_TRY(refused);
             HD_TRY(finished);
             RANK_EXPECT(gate.y[3] == 4);
             // As if nothing had been.
             gate.y[3] = 0;
             HD_TRY(gate.Run());
             HD_TRY(hd_session_finish(gate.session, nullptr));
             RANK_EXPECT(gate.y[3] == 4);
             return HD_OK;
         }))
        EXPECT_EQ(status, HD_OK);
}

// A child has neither threads nor peers, and disturbs nobody.
hd_status UseInChild(Gate &gate)
{
    char words[64];
    hd_session *session;
    hd_group *group;
    void *memory;

    snprintf(words, sizeof words, "belongs to process %d", int(getppid()));
    HD_TRY(AllAreRefused(gate, words));
    RANK_EXPECT(hd_session_alloc(gate.session, 4, nullptr, &memory) ==
                HD_ERROR_ARGUMENT);
    RANK_EXPECT(hd_session_create(gate.group, gate.program.module, nullptr,
                                  nullptr, &session) == HD_ERROR_ARGUMENT);
    RANK_EXPECT(hd_group_allgather(gate.group, nullptr, 0, nullptr, nullptr) ==
                HD_ERROR_ARGUMENT);
    RANK_EXPECT(hd_group_split(gate.group, 0, 0, nullptr, &group) ==
                HD_ERROR_ARGUMENT);
    hd_group_abort(gate.group);
    hd_session_destroy(gate.session);
    hd_group_destroy(gate.group);
    return HD_OK;
}

TEST(Misuse, InAChildThatWasForked)
{
    AllEndWell(Launch(2, [](hd_group *group, hd_diag *diag) {
        Gate gate(group);
        int how = 0;
        pid_t child = fork();

        if (child == 0) {
            alarm(20);
            _exit(UseInChild(gate) == HD_OK ? 0 : 1);
        }
        waitpid(child, &how, 0);
        RANK_EXPECT(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        HD_TRY(gate.Run(diag));
        HD_TRY(hd_session_finish(gate.session, diag));
        RANK_EXPECT(gate.y[3] == 8);
        return hd_group_allgather(group, nullptr, 0, nullptr, diag);
    }));
}

// A child that lets go of its parent's connections does not hide its death.
TEST(Misuse, AChildThatDestroysTheGroupDoesNotHideItsParentsDeath)
{
    std::vector<Answer> answers = RunRanks(2, [](Rank &rank) {
        int ready[2];
        char byte = 0;

        if (rank.rank == 0) {
            double start = Now();
            hd_status status =
                hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag);
            rank.answer->seconds = Now() - start;
            return status;
        }
        RANK_EXPECT(pipe(ready) == 0);
        if (fork() == 0) {
            hd_group_destroy(rank.group);
            RANK_EXPECT(write(ready[1], &byte, 1) == 1);
            sleep(20);
            _exit(0);
        }
        RANK_EXPECT(read(ready[0], &byte, 1) == 1);
        raise(SIGKILL);
        return HD_OK;
    });

    EXPECT_EQ(answers[0].status, HD_ERROR_PEER) << answers[0].text;
    EXPECT_LT(answers[0].seconds, 15);
}

// Where a peer has died every call says so, whatever it would have done.
TEST(Misuse, AfterAPeerHasDied)
{
    std::vector<Answer> answers = RunRanks(3, [](Rank &rank) {
        Gate gate(rank.group);
        hd_session *session = nullptr;
        hd_group *group = nullptr;
        bool done = false;

        HD_TRY(gate.Run(rank.diag));
        HD_TRY(hd_session_finish(gate.session, rank.diag));
        HD_TRY(Meet(rank));
        if (rank.rank == 2)
            raise(SIGKILL);
        while (!hd_group_failed(rank.group))
            usleep(1000);
        RANK_EXPECT(hd_group_allgather(rank.group, nullptr, 0, nullptr,
                                       nullptr) == HD_ERROR_PEER);
        RANK_EXPECT(hd_group_split(rank.group, 0, 0, nullptr, &group) ==
                    HD_ERROR_PEER);
        RANK_EXPECT(hd_session_create(rank.group, gate.program.module, nullptr,
                                      nullptr, &session) == HD_ERROR_PEER);
        HD_TRY(gate.Run());
        RANK_EXPECT(hd_session_wait(gate.session, 20, rank.diag, &done) ==
                    HD_ERROR_PEER);
        RANK_EXPECT(gate.Run() == HD_ERROR_ARGUMENT); // only to be destroyed
        return HD_ERROR_PEER;
    });

    for (size_t i = 0; i < 2; i++) {
        EXPECT_TRUE(answers[i].ended);
        EXPECT_EQ(answers[i].status, HD_ERROR_PEER);
        EXPECT_TRUE(Has(answers[i], "rank 2 died")) << answers[i].text;
    }
}

hd_group *last_group;
Gate *last_gate;

TEST(Misuse, AHandlerOfAtexitMayDestroy)
{
    int how = 0;
    pid_t child = fork();

    if (child == 0) {
        hd_oob oob = {sizeof oob, nullptr, 0, 1, nullptr};

        alarm(20);
        if (hd_group_create(&oob, 1, nullptr, &last_group) != HD_OK)
            _exit(1);
        last_gate = new Gate(last_group);
        atexit([] {
            if (last_gate->y[3] != 4)
                _exit(3);
            delete last_gate;
            hd_group_destroy(last_group);
        });
        exit(last_gate->Run() == HD_OK &&
                     hd_session_finish(last_gate->session, nullptr) == HD_OK
                 ? 0
                 : 2);
    }
    waitpid(child, &how, 0);
    EXPECT_TRUE(WIFEXITED(how)) << how;
    EXPECT_EQ(WEXITSTATUS(how), 0);
}

} // namespace
