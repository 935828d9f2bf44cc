// What needs several ranks. The fault is in one of them; it must end with the
// documented status, the others with news of it, and nobody may hang or keep
// anything.
#include <heddle/launch.h>
#include <heddle/tune.h>

#include <heddle/async.h>

#include "tests/faults/programs.h"
#include "tests/faults/story.h"

#include <atomic>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/ranks/group.h"
#include "runtime/ranks/host.h"

namespace
{

// Two runs on one session.
void UseSession(Story *story, hd_session *session, const hd_module *module,
                Shards &shards, hd_diag *diag)
{
    hd_stats stats = HD_EMPTY(hd_stats);

    for (int run = 0; run < 2; run++)
        if (Fails(story, "run",
                  hd_session_run(session, shards.pointer.data(),
                                 shards.pointer.size(), nullptr, diag),
                  diag))
            break;
    if (story->status == HD_OK)
        Fails(story, "finish", hd_session_finish(session, diag), diag);
    hd_session_stats(session, &stats);
    EXPECT_TRUE(shards.InputsAreAsBefore(module));
}

// `quiet` ends the fault.
bool Create(Story *story, hd_group *group, const hd_module *module,
            const std::function<void()> &quiet, hd_diag *diag, hd_session **out)
{
    hd_session_options options = hd_session_defaults();
    hd_session *session = Sentinel<hd_session>();

    options.timeout = kPatience;
    *out = nullptr;
    if (!Fails(story, "session_create",
               hd_session_create(group, module, &options, diag, &session),
               diag)) {
        *out = session;
        return true;
    }
    story->touched = session != Sentinel<hd_session>();
    quiet();
    session = nullptr;
    story->again =
        hd_session_create(group, module, &options, nullptr, &session);
    hd_session_destroy(session);
    return false;
}

// A rank's life on its group: a session, and one that finds what that has
// exchanged.
void UseGroup(Story *story, hd_group *group, const hd_module *module,
              Shards &shards, const std::function<void()> &quiet, hd_diag *diag)
{
    int rank = hd_group_rank(group);
    std::vector<char> mine(150000, static_cast<char>('a' + rank));
    std::vector<char> all(mine.size() * kRanks);
    hd_session *session[2] = {};

    if (Fails(story, "allgather",
              hd_group_allgather(group, mine.data(), mine.size(), all.data(),
                                 diag),
              diag))
        return;
    EXPECT_EQ(all[0], 'a');
    EXPECT_EQ(all.back(), 'a' + kRanks - 1);
    for (hd_session *&each : session) {
        if (story->status == HD_OK &&
            Create(story, group, module, quiet, diag, &each))
            UseSession(story, each, module, shards, diag);
    }
    for (hd_session *each : session)
        hd_session_destroy(each);
    if (story->status == HD_OK)
        Fails(story, "trim", hd_group_trim(group, diag), diag);
}

bool LiveAsRank(Story *story, const hd_oob &oob, const hd_module *module,
                Shards &shards, const std::function<void()> &quiet)
{
    hd_diag *diag = hd_diag_create();
    hd_group *group = Sentinel<hd_group>();
    bool failed =
        Fails(story, "group_create",
              hd_group_create(&oob, kPatienceForGroups, diag, &group), diag);

    if (failed) {
        story->touched = group != Sentinel<hd_group>();
    } else {
        hd_group_set_timeout(group, kPatience);
        UseGroup(story, group, module, shards, quiet, diag);
        hd_group_destroy(group);
    }
    hd_diag_destroy(diag);
    return !failed;
}

// One try: the k-th request of rank `faulty` fails.
bool TryLife(long k, int kinds, int faulty, const hd_module *module)
{
    std::vector<Story> story(kRanks);
    hd_status wanted = Wanted(kinds);
    std::atomic<bool> fired(false);
    double begun = Now();

    AsThreads(kRanks, [&](int rank, const hd_oob &oob) {
        auto quiet = [&, rank] {
            if (rank == faulty && fault_end())
                fired = true;
        };
        Shards shards(module, rank);
        bool made;

        if (rank == faulty)
            fault_begin(k, kinds);
        made = LiveAsRank(&story[static_cast<size_t>(rank)], oob, module,
                          shards, quiet);
        quiet();
        return made;
    });
    EXPECT_LT(Now() - begun, kPatience / 2) << "request " << k;
    for (int rank = 0; rank < kRanks; rank++) {
        const Story &s = story[static_cast<size_t>(rank)];

        EXPECT_FALSE(s.touched) << s.where << " of rank " << rank << ' ' << k;
        // Either every rank gets a second session, or none does.
        EXPECT_EQ(s.again == HD_OK, story[0].again == HD_OK)
            << "rank " << rank << " after " << s.where << ' ' << k;
        EXPECT_TRUE(s.status == HD_OK ||
                    (fired && rank == faulty && s.status == wanted) ||
                    (fired && rank != faulty && IsNews(s.status)))
            << s.where << " of rank " << rank << ' ' << k << ": "
            << hd_status_text(s.status);
        EXPECT_FALSE(s.silent && rank != faulty)
            << s.where << " of rank " << rank << ' ' << k;
    }
    return fired;
}

class LifeFaults : public ::testing::TestWithParam<int>
{
};

} // namespace

TEST_P(LifeFaults, ARankWithoutMemoryIsToldOfAndNobodyHangs)
{
    for (const char *text : {kByHand, kGather}) {
        hd_module *module = ParseAndLower(text);
        Sweep sweep = SweepFaults([&](long k) {
            return TryLife(k, FAULT_MEMORY, GetParam(), module);
        });

        EXPECT_GT(sweep.requests, 40);
        hd_module_destroy(module);
    }
}

TEST_P(LifeFaults, ARankWhoseSystemRefusesIsToldOfAndNobodyHangs)
{
    hd_module *module = ParseAndLower(kByHand);
    Sweep sweep = SweepFaults(
        [&](long k) { return TryLife(k, FAULT_SYSTEM, GetParam(), module); });

    EXPECT_GT(sweep.requests, 8);
    hd_module_destroy(module);
}

INSTANTIATE_TEST_SUITE_P(Rank, LifeFaults, ::testing::Values(0, 1, 2));

namespace
{

// A seat whose ranks are told that each is on a host of its own: what a rank
// says of its host follows the address in its endpoint, which goes first.
struct RemoteSeat {
    Seat seat;
    int calls;
};

hd_status GatherRemote(void *context, const void *mine, size_t bytes, void *all)
{
    const size_t id = 16 + sizeof(sockaddr_un) + HD_HOST_NAME;
    RemoteSeat *remote = static_cast<RemoteSeat *>(context);
    char *endpoints = static_cast<char *>(all);

    HD_TRY(GatherAtSeat(&remote->seat, mine, bytes, all));
    for (int i = 0; i < kRanks && remote->calls == 0; i++)
        endpoints[size_t(i) * bytes + id] = static_cast<char>('a' + i);
    remote->calls++;
    return HD_OK;
}

bool MeetRemote(Story *story, const hd_oob &oob)
{
    std::vector<char> mine(150000, static_cast<char>('a' + oob.rank));
    std::vector<char> all(mine.size() * kRanks);
    RemoteSeat seat = {*static_cast<Seat *>(oob.context), 0};
    hd_oob remote = {sizeof remote, &seat, oob.rank, oob.nranks, GatherRemote};
    hd_group *group = Sentinel<hd_group>();
    hd_diag *diag = hd_diag_create();
    bool made = !Fails(
        story, "group_create",
        hd_group_create(&remote, kPatienceForGroups, diag, &group), diag);

    if (made) {
        EXPECT_EQ(hd_group_leader(group, oob.rank), oob.rank);
        hd_group_set_timeout(group, kPatience);
        Fails(story, "allgather",
              hd_group_allgather(group, mine.data(), mine.size(), all.data(),
                                 diag),
              diag);
        EXPECT_TRUE(story->status != HD_OK || all.back() == 'a' + kRanks - 1);
        hd_group_destroy(group);
    } else {
        story->touched = group != Sentinel<hd_group>();
    }
    hd_diag_destroy(diag);
    return made;
}

// As TryLife, of a group alone.
bool TryRemote(long k, int kinds, int faulty)
{
    std::vector<Story> story(kRanks);
    hd_status wanted = Wanted(kinds);
    std::atomic<bool> fired(false);
    double begun = Now();

    AsThreads(kRanks, [&](int rank, const hd_oob &oob) {
        bool made;

        if (rank == faulty)
            fault_begin(k, kinds);
        made = MeetRemote(&story[static_cast<size_t>(rank)], oob);
        if (rank == faulty && fault_end())
            fired = true;
        return made;
    });
    EXPECT_LT(Now() - begun, kPatience / 2) << "request " << k;
    for (int rank = 0; rank < kRanks; rank++) {
        const Story &s = story[static_cast<size_t>(rank)];

        EXPECT_FALSE(s.touched) << "rank " << rank << ' ' << k;
        EXPECT_TRUE(s.status == HD_OK ||
                    (fired && rank == faulty &&
                     (s.status == wanted || IsNews(s.status))) ||
                    (fired && rank != faulty && IsNews(s.status)))
            << s.where << " of rank " << rank << ' ' << k << ": "
            << hd_status_text(s.status);
        EXPECT_FALSE(s.silent && rank != faulty) << "rank " << rank << ' ' << k;
    }
    return fired;
}

} // namespace

TEST_P(LifeFaults, ARankAmongSeveralHostsIsToldOfAndNobodyHangs)
{
    for (int kinds : {FAULT_MEMORY, FAULT_SYSTEM}) {
        Sweep sweep = SweepFaults(
            [&](long k) { return TryRemote(k, kinds, GetParam()); });

        EXPECT_GT(sweep.requests, 3);
    }
}

namespace
{

// What a rank does that a launcher has started.
typedef bool Start(Story *story, const hd_place &place, double timeout);

// They find each other, and gather twice.
bool Boot(Story *story, const hd_place &place, double timeout)
{
    hd_diag *diag = hd_diag_create();
    hd_boot *boot = Sentinel<hd_boot>();
    char mine[40] = {static_cast<char>('a' + place.rank)};
    char all[sizeof mine * kRanks];
    bool made = !Fails(story, "boot_connect",
                       hd_boot_connect(&place, timeout, diag, &boot), diag);

    if (made) {
        const hd_oob *oob = hd_boot_oob(boot);

        for (int i = 0; i < 2 && story->status == HD_OK; i++) {
            hd_status status =
                oob->allgather(oob->context, mine, sizeof mine, all);

            EXPECT_TRUE(Fails(story, "allgather", status, diag) ||
                        all[sizeof all - sizeof mine] == 'a' + kRanks - 1);
        }
        hd_boot_destroy(boot);
    } else {
        story->touched = boot != Sentinel<hd_boot>();
    }
    hd_diag_destroy(diag);
    return made;
}

// They make a group.
bool Join(Story *story, const hd_place &place, double timeout)
{
    hd_diag *diag = hd_diag_create();
    hd_group *group = Sentinel<hd_group>();
    bool made = !Fails(story, "group_join",
                       hd_group_join(&place, timeout, diag, &group), diag);
    int mine = place.rank, all[kRanks] = {};

    if (made) {
        if (!Fails(story, "allgather",
                   hd_group_allgather(group, &mine, sizeof mine, all, diag),
                   diag)) {
            EXPECT_EQ(all[kRanks - 1], kRanks - 1);
        }
        hd_group_destroy(group);
    } else {
        story->touched = group != Sentinel<hd_group>();
    }
    hd_diag_destroy(diag);
    return made;
}

// A rank's own status is what the others hear. Patience is short where a
// request fails, as they may wait for its end; so who is only slow may be late.
bool TryBoot(Start *start, long k, int kinds, int faulty, const char *address)
{
    static uint64_t job = static_cast<uint64_t>(getpid()) << 32;
    std::vector<Story> story(kRanks);
    std::vector<std::thread> threads;
    hd_status wanted = Wanted(kinds);
    std::atomic<bool> fired(false);

    job++;
    for (int rank = 0; rank < kRanks; rank++)
        threads.emplace_back([&, rank] {
            hd_place place = {sizeof place, "a test", rank, kRanks,
                              rank,         kRanks,   job,  ""};

            snprintf(place.address, sizeof place.address, "%s", address);
            if (rank == faulty)
                fault_begin(k, kinds);
            start(&story[static_cast<size_t>(rank)], place,
                  k == 0 ? kPatience : 0.3);
            if (rank == faulty && fault_end())
                fired = true;
        });
    for (std::thread &thread : threads)
        thread.join();
    for (int rank = 0; rank < kRanks; rank++) {
        const Story &s = story[static_cast<size_t>(rank)];

        EXPECT_FALSE(s.touched) << "rank " << rank << ' ' << k;
        EXPECT_TRUE(s.status == HD_OK || (k > 0 && IsNews(s.status)) ||
                    (fired && s.status == wanted))
            << s.where << " of rank " << rank << ' ' << k << ": "
            << hd_status_text(s.status);
        EXPECT_FALSE(s.silent &&
                     (rank != faulty || wanted != HD_ERROR_NO_MEMORY))
            << "rank " << rank << ' ' << k;
    }
    return fired;
}

void SweepStart(Start *start, int faulty, const char *address)
{
    for (int kinds : {FAULT_MEMORY, FAULT_SYSTEM}) {
        long requests;

        EXPECT_FALSE(TryBoot(start, 0, kinds, faulty, address));
        requests = fault_count();
        EXPECT_GT(requests, 0);
        for (long k = 1; k <= requests; k = NextFault(k)) {
            Held before;

            TryBoot(start, k, kinds, faulty, address);
            before.ExpectSame(k);
        }
    }
}

} // namespace

TEST_P(LifeFaults, ARankThatALauncherStartedIsToldOfAndNobodyHangs)
{
    // Of this host's own addresses nobody else has this one.
    const std::string own = "127." + std::to_string(getpid() / 250 % 250) +
                            "." + std::to_string(getpid() % 250) + ".7:29400";

    for (const std::string &address : {std::string(), own})
        SweepStart(Boot, GetParam(), address.c_str());
}

TEST_P(LifeFaults, ARankThatJoinsIsToldOfAndNobodyHangs)
{
    SweepStart(Join, GetParam(), "");
}

// Runs reuse what the session took: memory that is gone meanwhile stops none.
TEST(NoFaults, RunsAskForNothing)
{
    hd_module *module = ParseAndLower(kByHand);

    AsThreads(kRanks, [&](int rank, const hd_oob &oob) {
        Shards shards(module, rank);
        hd_group *group = nullptr;
        hd_session *session = nullptr;

        EXPECT_EQ(hd_group_create(&oob, kPatience, nullptr, &group), HD_OK);
        EXPECT_EQ(hd_session_create(group, module, nullptr, nullptr, &session),
                  HD_OK);
        if (rank == 1)
            fault_begin(1, FAULT_MEMORY | FAULT_SYSTEM | FAULT_LASTING);
        for (int run = 0; run < 50; run++)
            EXPECT_EQ(hd_session_run(session, shards.pointer.data(),
                                     shards.pointer.size(), nullptr, nullptr),
                      HD_OK);
        EXPECT_EQ(hd_session_finish(session, nullptr), HD_OK);
        EXPECT_FALSE(rank == 1 && fault_end()) << fault_count();
        hd_session_destroy(session);
        hd_group_destroy(group);
        return true;
    });
    hd_module_destroy(module);
}

// A candidate for which one rank has no memory is not tried; without any for
// the rest that is told, on both.
TEST(NoFaults, TuningEndsWellOrSaysThatMemoryRanOut)
{
    hd_module *module = Parse(
        "heddle 2 tensor program t mesh tp=2 in %a : f32[2@tp, 4, 8] "
        "in %b : f32[8, 4] out %c : f32[2@stream, 4, 4] "
        "temp %g : f32[2@stream, 4, 8] { %g = set %a %c = matmul %g, %b }");

    setenv("HEDDLE_CACHE_DIR", "off", 1);
    for (int faulty : {0, 1}) {
        Sweep sweep = SweepFaults([&](long k) {
            hd_status status[2] = {HD_ERROR_INVALID, HD_ERROR_INVALID};
            std::string said;
            bool fired = false;

            AsThreads(2, [&](int rank, const hd_oob &oob) {
                hd_diag *diag = rank == faulty ? hd_diag_create() : nullptr;
                hd_tune_options options = hd_tune_defaults();
                hd_choose_options choose = hd_choose_defaults();
                hd_tuned tuned = HD_EMPTY(hd_tuned);
                hd_group *group = nullptr;

                choose.most_chunks = choose.most_streams = 1;
                options.choose = &choose;
                options.most = 2;
                options.seconds = 0;
                EXPECT_EQ(hd_group_create(&oob, kPatience, nullptr, &group),
                          HD_OK);
                if (rank == faulty)
                    fault_begin(k, FAULT_MEMORY);
                status[rank] = hd_tune(group, module, &options, diag, &tuned);
                if (rank == faulty) {
                    fired = fault_end();
                    said = hd_diag_text(diag);
                }
                EXPECT_EQ(status[rank] == HD_OK, tuned.predicted > 0);
                hd_group_destroy(group);
                hd_diag_destroy(diag);
                return true;
            });
            hd_status mine = status[faulty], other = status[1 - faulty];
            EXPECT_TRUE(mine == HD_OK || (fired && mine == HD_ERROR_NO_MEMORY))
                << faulty << ", " << k << ": " << mine << ' ' << said;
            EXPECT_EQ(other, mine == HD_OK ? HD_OK : HD_ERROR_PEER) << k;
            return fired;
        });
        EXPECT_GT(sweep.requests, 50);
    }
    hd_module_destroy(module);
}

namespace
{

// A rank of the launcher's: an allgather and a session.
hd_status LiveLaunched(void *context, hd_group *group)
{
    hd_module *module = static_cast<hd_module *>(context);
    hd_session *session = nullptr;
    int mine = hd_group_rank(group), all[kRanks];
    hd_status status =
        hd_group_allgather(group, &mine, sizeof mine, all, nullptr);

    if (status == HD_OK)
        status = hd_session_create(group, module, nullptr, nullptr, &session);
    hd_session_destroy(session);
    return status;
}

bool HasChildren()
{
    return waitpid(-1, nullptr, WNOHANG) >= 0;
}

// `child` is the rank that fails, -1 the launcher.
bool TryLaunch(long k, int kinds, int child, hd_module *module)
{
    hd_diag *diag = hd_diag_create();
    bool fired;

    if (child < 0)
        fault_begin(k, kinds);
    else
        fault_begin_in_child(k, kinds, child);
    hd_status status =
        hd_launch(kRanks, kPatience, kPatience, LiveLaunched, module, diag);
    fired = fault_end();
    ExpectOutcome(k, fired, status, Wanted(kinds));
    EXPECT_EQ(hd_diag_errors(diag) > 0, fired) << k << hd_diag_text(diag);
    EXPECT_FALSE(HasChildren()) << k;
    hd_diag_destroy(diag);
    return fired;
}

class LaunchFaults : public ::testing::TestWithParam<int>
{
};

} // namespace

TEST_P(LaunchFaults, TheCulpritsStatusIsTheLaunchersAndNoProcessStays)
{
    hd_module *module = ParseAndLower(kGather);

    for (int kinds : {FAULT_MEMORY + 0, FAULT_SYSTEM + 0}) {
        Sweep sweep = SweepFaults(
            [&](long k) { return TryLaunch(k, kinds, GetParam(), module); });

        EXPECT_GT(sweep.requests, 1);
    }
    hd_module_destroy(module);
}

INSTANTIATE_TEST_SUITE_P(Process, LaunchFaults, ::testing::Values(-1, 0, 2));
