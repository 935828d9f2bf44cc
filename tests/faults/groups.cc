// What ranks do on a group that they have: splits, completion, the sessions of
// a cache, trims, aborts. The fault comes once the group is there; threads that
// it has started since its rank is watched are watched too.
#include <heddle/cache.h>
#include <heddle/environment.h>

#include "tests/faults/story.h"

#include <atomic>
#include <functional>
#include <poll.h>

#include "base/log.h"
#include "runtime/ranks/group.h"

namespace
{

// A rank, its group, and what it went through.
struct Life {
    int rank;
    hd_group *group;
    hd_diag *diag;
    Story *story;
    std::function<void()> begin, quiet; // the fault, of the rank that has one

    bool Failed(const char *where, hd_status status)
    {
        return Fails(story, where, status, diag);
    }
};

typedef std::function<void(Life &life)> Live;

// Makes the group and gives it back, none of which fails.
void LiveOnGroup(const hd_oob &oob, Story *story, const Live &live,
                 const std::function<void()> &begin,
                 const std::function<void()> &quiet)
{
    hd_group *group = nullptr;
    hd_diag *diag = hd_diag_create();

    ASSERT_EQ(hd_group_create(&oob, kPatience, diag, &group), HD_OK)
        << hd_diag_text(diag);
    Life life = {oob.rank, group, diag, story, begin, quiet};
    live(life);
    quiet();
    hd_group_destroy(group);
    hd_diag_destroy(diag);
}

// One try: the k-th request of rank `faulty` fails from where it begins the
// fault on. What ranks went through stands in `story`.
bool TryOnGroup(long k, int kinds, int faulty, const Live &live,
                std::vector<Story> &story, bool threads = true)
{
    std::atomic<bool> fired(false);
    double begun = Now();

    story.assign(kRanks, Story());
    AsThreads(kRanks, [&](int rank, const hd_oob &oob) {
        auto begin = [&, rank] {
            if (rank == faulty)
                fault_begin(k, kinds);
        };
        auto quiet = [&, rank] {
            if (rank == faulty && fault_end())
                fired = true;
        };

        if (rank == faulty && threads)
            fault_begin(0, kinds); // watches the threads of the group
        LiveOnGroup(oob, &story[size_t(rank)], live, begin, quiet);
        return true;
    });
    EXPECT_LT(Now() - begun, kPatience / 2) << "request " << k;
    return fired;
}

// Who failed, failed with what it may, and all have a say.
void Judge(const std::vector<Story> &story, int kinds, int faulty, bool fired,
           long k)
{
    for (int rank = 0; rank < kRanks; rank++) {
        const Story &s = story[size_t(rank)];

        EXPECT_FALSE(s.touched) << s.where << " of rank " << rank << ' ' << k;
        EXPECT_TRUE(s.status == HD_OK ||
                    (fired && rank == faulty && s.status == Wanted(kinds)) ||
                    (fired && rank != faulty && IsNews(s.status)))
            << s.where << " of rank " << rank << ' ' << k << ": "
            << hd_status_text(s.status);
        EXPECT_FALSE(s.silent) << s.where << " of rank " << rank << ' ' << k;
        EXPECT_EQ(s.again == HD_OK, story[0].again == HD_OK)
            << "rank " << rank << " after " << s.where << ' ' << k;
    }
}

class GroupFaults : public ::testing::TestWithParam<int>
{
  protected:
    // Of calls that fail by themselves, as often as a request does.
    void SweepAlone(const Live &live, int kinds, int least)
    {
        Sweep sweep = SweepFaults([&](long k) {
            std::vector<Story> story;
            bool fired = TryOnGroup(k, kinds, GetParam(), live, story);

            for (int rank = 0; rank < kRanks; rank++) {
                const Story &s = story[size_t(rank)];

                EXPECT_EQ(s.status,
                          fired && rank == GetParam() ? Wanted(kinds) : HD_OK)
                    << s.where << " of rank " << rank << ' ' << k;
                EXPECT_FALSE(s.silent) << s.where << ' ' << k;
            }
            return fired;
        });

        EXPECT_GE(sweep.requests, least);
    }

    // Of collective calls, without the threads of the group if those are no
    // part of it: `again` says whether the group is of use after one
    // that failed, which is so of all ranks or of none.
    void SweepOnGroup(const Live &live, int least, bool threads = true)
    {
        for (int kinds : {FAULT_MEMORY + 0, FAULT_SYSTEM + 0}) {
            Sweep sweep = SweepFaults([&](long k) {
                std::vector<Story> story;
                bool fired =
                    TryOnGroup(k, kinds, GetParam(), live, story, threads);

                Judge(story, kinds, GetParam(), fired, k);
                return fired;
            });

            EXPECT_GT(sweep.requests, least);
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Rank, GroupFaults, ::testing::Values(0, 1, 2));

// Two ranks in one part, and one in the other.
hd_status Split(Life &life, hd_group **out)
{
    return hd_group_split(life.group, life.rank / 2, 0, life.diag, out);
}

void SplitAndMeet(Life &life)
{
    hd_group *part = Sentinel<hd_group>();
    hd_status status;

    life.begin();
    if (!life.Failed("split", Split(life, &part))) {
        status = hd_group_allgather(part, nullptr, 0, nullptr, life.diag);
        life.Failed("allgather of a part", status);
        hd_group_destroy(part);
        return;
    }
    life.story->touched = part != Sentinel<hd_group>();
    life.quiet();
    part = nullptr;
    life.story->again = Split(life, &part);
    hd_group_destroy(part);
}

} // namespace

TEST_P(GroupFaults, ASplitIsToldOfAndNobodyHangs)
{
    SweepOnGroup(SplitAndMeet, 1);
}

namespace
{

// Who asks to hear of the end of runs.
struct Told {
    std::atomic<int> calls{0};
    std::atomic<hd_status> status{HD_ERROR_INVALID};
};

void Tell(void *context, hd_status status)
{
    Told *told = static_cast<Told *>(context);

    told->status = status;
    told->calls++;
}

// A call that does not get what it needs says so, and fails by itself: the
// session is as it was, so that it is made once more, and peers hear nothing.
void Twice(Life &life, const char *where,
           const std::function<hd_status()> &call)
{
    if (!life.Failed(where, call()))
        return;
    life.quiet();
    EXPECT_EQ(call(), HD_OK) << hd_diag_text(life.diag);
}

void HearOfRuns(Life &life, hd_session *session, Shards &shards)
{
    Told told;
    int fd = -7;
    bool done = false;

    life.begin();
    Twice(life, "run", [&] {
        return hd_session_run(session, shards.pointer.data(),
                              shards.pointer.size(), nullptr, life.diag);
    });
    Twice(life, "descriptor", [&] {
        hd_status status = hd_session_descriptor(session, life.diag, &fd);

        EXPECT_EQ(fd >= 0, status == HD_OK);
        EXPECT_TRUE(status == HD_OK || fd == -7);
        return status;
    });
    Twice(life, "notify",
          [&] { return hd_session_notify(session, Tell, &told, life.diag); });
    Twice(life, "query",
          [&] { return hd_session_query(session, life.diag, &done); });
    Twice(life, "wait", [&] {
        return hd_session_wait(session, kPatience, life.diag, &done);
    });
    life.quiet();
    EXPECT_TRUE(done);
    pollfd ask = {fd, POLLIN, 0};
    EXPECT_EQ(poll(&ask, 1, int(kPatience * 1000)), 1);
    hd_session_destroy(session);
    EXPECT_EQ(told.calls, 1);
    EXPECT_EQ(told.status, HD_OK);
}

void Complete(Life &life, const hd_module *module)
{
    Shards shards(module, life.rank);
    hd_session *session = nullptr;

    ASSERT_EQ(
        hd_session_create(life.group, module, nullptr, life.diag, &session),
        HD_OK)
        << hd_diag_text(life.diag);
    HearOfRuns(life, session, shards);
}

} // namespace

TEST_P(GroupFaults, WhoCannotBeToldOfTheEndOfRunsIsAndAsksAgain)
{
    hd_module *module = ParseAndLower(kByHand);

    Live live = [&](Life &life) { Complete(life, module); };

    SweepAlone(live, FAULT_MEMORY, 2);
    SweepAlone(live, FAULT_SYSTEM, 2);
    hd_module_destroy(module);
}

namespace
{

// Two, of which the second finds what the first has left.
void MakeSessions(Life &life, const hd_module *module)
{
    hd_session *session = nullptr;

    life.begin();
    for (int i = 0; i < 2; i++) {
        session = Sentinel<hd_session>();
        if (life.Failed("session_create",
                        hd_session_create(life.group, module, nullptr,
                                          life.diag, &session)))
            break;
        hd_session_destroy(session);
    }
    life.quiet();
    if (life.story->status == HD_OK)
        return;
    life.story->touched = session != Sentinel<hd_session>();
    // heddle.h: "the group may then be used again".
    EXPECT_EQ(hd_group_allgather(life.group, nullptr, 0, nullptr, life.diag),
              HD_OK)
        << "rank " << life.rank << ": " << hd_diag_text(life.diag);
    life.story->again =
        hd_session_create(life.group, module, nullptr, life.diag, &session);
    EXPECT_EQ(life.story->again, HD_OK) << hd_diag_text(life.diag);
    hd_session_destroy(life.story->again == HD_OK ? session : nullptr);
}

} // namespace

TEST_P(GroupFaults, ASessionThatIsRefusedLeavesItsGroupToBeUsed)
{
    for (const char *text : {kByHand, kGather}) {
        hd_module *module = ParseAndLower(text);

        SweepOnGroup([&](Life &life) { MakeSessions(life, module); }, 0, false);
        hd_module_destroy(module);
    }
}

namespace
{

// Each rank has a cache, as a process of its own would.
struct Cached {
    hd_cache *cache = nullptr;
    const hd_module *module = nullptr;

    Cached()
    {
        hd_cache_options options = hd_cache_defaults();
        hd_cache_request request = HD_EMPTY(hd_cache_request);
        hd_lower_options ring = hd_lower_defaults();

        ring.transfer = HD_TRANSFER_RING;
        request.lower = &ring;
        options.sessions = 1;
        request.name = "test.hd";
        request.text = kGather;
        request.length = strlen(kGather);
        EXPECT_EQ(hd_cache_create(&options, nullptr, &cache), HD_OK);
        EXPECT_EQ(hd_cache_get(cache, &request, nullptr, &module), HD_OK);
    }
    Cached(const Cached &) = delete;
    Cached &operator=(const Cached &) = delete;
    ~Cached()
    {
        hd_cache_release(cache, module);
        hd_cache_destroy(cache);
    }
    hd_status Get(Life &life, double timeout, bool tune, hd_session **out)
    {
        hd_session_options options = hd_session_defaults();

        options.timeout = timeout;
        options.tune = tune;
        return hd_cache_session(cache, life.group, module, &options, life.diag,
                                out);
    }
};

// Two sessions, of which the second drops the first.
void UseCache(Life &life)
{
    Cached cached;
    hd_session *session = nullptr;

    life.begin();
    for (bool tune : {false, true}) {
        session = Sentinel<hd_session>();
        if (life.Failed("cache_session",
                        cached.Get(life, kPatience, tune, &session)))
            break;
        hd_cache_release_session(cached.cache, session);
    }
    life.quiet();
    if (life.story->status != HD_OK) {
        life.story->touched = session != Sentinel<hd_session>();
        life.story->again = cached.Get(life, kPatience, true, &session);
        if (life.story->again == HD_OK)
            hd_cache_release_session(cached.cache, session);
    }
    hd_cache_forget(cached.cache, life.group);
}

} // namespace

TEST_P(GroupFaults, ASessionOfACacheIsToldOfAndNobodyHangs)
{
    SweepOnGroup(UseCache, 8);
}

namespace
{

// After a session that is gone. A trim that fails is made again, and the next
// session is as good as the first.
void TrimTwice(Life &life, const hd_module *module)
{
    for (int round = 0; round < 2; round++) {
        Shards shards(module, life.rank);
        hd_session *session = nullptr;

        ASSERT_EQ(
            hd_session_create(life.group, module, nullptr, life.diag, &session),
            HD_OK)
            << hd_diag_text(life.diag);
        EXPECT_EQ(hd_session_run(session, shards.pointer.data(),
                                 shards.pointer.size(), nullptr, life.diag),
                  HD_OK);
        EXPECT_EQ(hd_session_finish(session, life.diag), HD_OK);
        hd_session_destroy(session);
        if (round == 0) {
            life.begin();
            Twice(life, "trim",
                  [&] { return hd_group_trim(life.group, life.diag); });
            life.quiet();
        }
    }
}

} // namespace

TEST_P(GroupFaults, ATrimThatFailsIsMadeAgain)
{
    hd_module *module = ParseAndLower(kByHand);

    SweepAlone([&](Life &life) { TrimTwice(life, module); }, FAULT_SYSTEM, 1);
    hd_module_destroy(module);
}

namespace
{

// The whole message may be lost where there is no memory for it, the status
// not.
void AbortWithoutAnything(Life &life, int aborting)
{
    char text[HD_GROUP_TEXT];

    if (life.rank == aborting) {
        life.begin();
        hd_group_abort(life.group);
    }
    while (!hd_group_failed(life.group))
        std::this_thread::yield();
    EXPECT_EQ(hd_group_failure(life.group, text), HD_ERROR_PEER);
    EXPECT_EQ(std::string(text), "rank " + std::to_string(aborting) +
                                     " was aborted by its caller");
    if (life.rank == aborting) {
        EXPECT_EQ(fault_count(), 0);
    }
    life.quiet();
}

void Listen(void *, hd_severity, const char *)
{
}

} // namespace

TEST_P(GroupFaults, AnAbortAsksForNothing)
{
    std::vector<Story> story;

    EXPECT_FALSE(TryOnGroup(
        1, FAULT_MEMORY | FAULT_SYSTEM | FAULT_LASTING, GetParam(),
        [&](Life &life) { AbortWithoutAnything(life, GetParam()); }, story));
}

TEST(NoFaults, ALogAsksForNothing)
{
    fault_begin(1, FAULT_MEMORY | FAULT_SYSTEM | FAULT_LASTING);
    hd_set_log(Listen, nullptr);
    hd_log(HD_SEVERITY_NOTE, "%s", "a word");
    hd_set_log(nullptr, nullptr);
    EXPECT_FALSE(fault_end()) << fault_count();
}
