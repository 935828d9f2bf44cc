// The compile cache, against a model of it in plain containers.
#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <heddle/cache.h>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/device/arguments.h"
#include "tests/seed.h"
#include "tests/unit/program.h"
#include "tests/unit/ranks.h"

namespace
{
struct CacheDeleter {
    void operator()(hd_cache *cache) const
    {
        hd_cache_destroy(cache);
    }
};
using Cache = std::unique_ptr<hd_cache, CacheDeleter>;

Cache Create(size_t modules, size_t sessions = 16)
{
    hd_cache_options options = hd_cache_defaults();
    hd_cache *cache = nullptr;

    options.modules = modules;
    options.sessions = sessions;
    EXPECT_EQ(hd_cache_create(&options, nullptr, &cache), HD_OK);
    return Cache(cache);
}

// Adds n; over `ranks` ranks, each of which has one element of four.
std::string Text(int n, int ranks = 1)
{
    return "heddle 2\ntensor program p" + std::to_string(n) +
           "\nmesh tp=" + std::to_string(ranks) + "\nin %x : f32[" +
           std::to_string(ranks) + "@tp, 4]\nout %y : f32[" +
           std::to_string(ranks) + ", 4]\ntemp %t : f32[" +
           std::to_string(ranks) + "@tp, 4]\n{\n    %t = scale %x by " +
           std::to_string(n) + "\n    %y = set %t\n}\n";
}

hd_cache_request Request(const std::string &text)
{
    hd_cache_request request = {};

    request.size = sizeof request;
    request.name = "text";
    request.text = text.data();
    request.length = text.size();
    return request;
}

const hd_module *Get(const Cache &cache, const hd_cache_request &request)
{
    const hd_module *module = nullptr;
    hd_diag *diag = hd_diag_create();

    EXPECT_EQ(hd_cache_get(cache.get(), &request, diag, &module), HD_OK)
        << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return module;
}

hd_cache_stats Stats(const Cache &cache)
{
    hd_cache_stats stats = {};

    stats.size = sizeof stats;
    hd_cache_count(cache.get(), &stats);
    return stats;
}

// Least recently used, in a list.
struct Model {
    struct Entry {
        int n;
        size_t users;
    };
    size_t most;
    std::vector<Entry> entries; // the one got last stands last
    uint64_t hits = 0, misses = 0, evictions = 0;

    void Get(int n)
    {
        auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const Entry &e) { return e.n == n; });
        Entry e = {n, 1};

        if (at != entries.end()) {
            e.users += at->users;
            entries.erase(at);
            hits++;
        } else {
            misses++;
        }
        entries.push_back(e);
        Evict();
    }
    void Release(int n)
    {
        for (Entry &e : entries)
            e.users -= e.n == n;
        Evict();
    }
    void Evict()
    {
        while (entries.size() > most) {
            auto at = std::find_if(entries.begin(), entries.end(),
                                   [](const Entry &e) { return e.users == 0; });
            if (at == entries.end())
                return;
            entries.erase(at);
            evictions++;
        }
    }
};
} // namespace

TEST(CompileCache, KeepsWhatTheModelKeeps)
{
    std::mt19937 random(Seed());

    for (size_t most : {0, 1, 3, 8}) {
        Cache cache = Create(most);
        Model model = {most, {}};
        std::vector<std::pair<int, const hd_module *>> held;

        for (int i = 0; i < 300; i++) {
            int n = static_cast<int>(random() % 12);

            if (random() % 2 == 0 || held.empty()) {
                const hd_module *module = Get(cache, Request(Text(n)));
                char *text = nullptr;

                ASSERT_NE(module, nullptr);
                ASSERT_EQ(hd_print(module, &text), HD_OK);
                EXPECT_NE(
                    strstr(text,
                           ("program p" + std::to_string(n) + "\n").c_str()),
                    nullptr);
                hd_free(text);
                model.Get(n);
                for (const auto &h : held) {
                    if (h.first == n) {
                        EXPECT_EQ(h.second, module); // held, so never evicted
                    }
                }
                held.push_back({n, module});
            } else {
                size_t at = random() % held.size();

                hd_cache_release(cache.get(), held[at].second);
                model.Release(held[at].first);
                held.erase(held.begin() + long(at));
            }
            hd_cache_stats stats = Stats(cache);
            ASSERT_EQ(stats.hits, model.hits) << i;
            ASSERT_EQ(stats.misses, model.misses) << i;
            ASSERT_EQ(stats.evictions, model.evictions) << i;
            ASSERT_EQ(stats.entries, model.entries.size()) << i;
        }
        for (const auto &h : held)
            hd_cache_release(cache.get(), h.second);
        EXPECT_LE(Stats(cache).entries, most);
    }
}

// Each thing that the key has makes another entry; asked for again, none.
TEST(CompileCache, TheKeyHasAllThatMattersAndNothingElse)
{
    Cache cache = Create(100);
    std::string text = Text(3, 2);
    Program program(text.substr(strlen("heddle 2\n")));
    std::vector<const hd_module *> got;
    static hd_define two[] = {{"tp", 2}};
    std::vector<std::function<void(hd_cache_request *, hd_lower_options *,
                                   hd_machine *)>>
        changes = {
            [](auto, auto, auto) {},
            [](auto r, auto, auto) { r->name = "another"; },
            [](auto r, auto, auto) {
                r->defines = two;
                r->ndefines = 1;
            },
            [&](auto r, auto, auto) {
                r->text = nullptr;
                r->module = program.module;
            },
            [](auto, auto l, auto) { l->transfer = HD_TRANSFER_BULK; },
            [](auto, auto l, auto) { l->protocol = HD_PROTOCOL_GET; },
            [](auto, auto l, auto) { l->streams = 1; },
            [](auto, auto l, auto) { l->chunks = 2; },
            [](auto, auto l, auto) { l->copy_own = true; },
            [](auto, auto l, auto) { l->defer_sends = true; },
            [](auto, auto l, auto) { l->comm_stream = true; },
            [](auto, auto l, auto) { l->wire = HD_WIRE_F32; },
            [](auto, auto l, auto) { l->launch = true; },
            [](auto, auto l, auto) { l->transport = HD_TRANSPORT_SM; },
            [](auto, auto l, auto) { l->axes = "tp=sm"; },
            [](auto, auto l, auto) { l->asked = 0; },
            [](auto r, auto, auto) { r->against = true; },
            [](auto r, auto, auto) { r->most_chunks = 1; },
            [](auto r, auto, auto m) {
                r->machine = m;
                m->link /= 2;
            },
            [](auto r, auto, auto m) {
                r->machine = m;
                m->matmul[HD_DTYPE_I32] = 1;
            },
        };

    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < changes.size(); i++) {
            hd_cache_request request = Request(text);
            hd_lower_options lower = hd_lower_defaults();
            hd_machine machine = HD_EMPTY(hd_machine);
            hd_machine_default(&machine);

            request.lower = &lower;
            changes[i](&request, &lower, &machine);
            const hd_module *module = Get(cache, request);
            if (round == 0) {
                EXPECT_EQ(std::count(got.begin(), got.end(), module), 0) << i;
                got.push_back(module);
            }
            EXPECT_EQ(got[i], module) << i;
            hd_cache_release(cache.get(), module);
        }
    EXPECT_EQ(Stats(cache).entries, changes.size());
    EXPECT_EQ(Stats(cache).hits, changes.size());
}

// The text that is given may change at once: nothing of it is kept.
TEST(CompileCache, NothingOfARequestIsNeededAfterwards)
{
    Cache cache = Create(8);
    auto text = std::make_unique<std::string>(Text(5));
    hd_cache_request request = Request(*text);
    const hd_module *first = Get(cache, request), *second;

    text.reset();
    std::string again = Text(5);
    second = Get(cache, Request(again));
    EXPECT_EQ(first, second);
    hd_cache_release(cache.get(), first);
    hd_cache_release(cache.get(), second);
}

TEST(CompileCache, WhatFailsIsToldEachTimeAndNotKept)
{
    Cache cache = Create(8);
    std::string wrong = "heddle 2\nhost program p\nmesh tp=2\n"
                        "in %x : f32[4]\n{\n    send %x to 1 - tp\n}\n";

    for (uint64_t i = 1; i < 3; i++) {
        hd_diag *diag = hd_diag_create();
        const hd_module *module = nullptr;
        hd_cache_request request = Request(wrong);

        EXPECT_EQ(hd_cache_get(cache.get(), &request, diag, &module),
                  HD_ERROR_INVALID);
        EXPECT_NE(std::string(hd_diag_text(diag)).find("text:6:5"),
                  std::string::npos)
            << hd_diag_text(diag); // the checker has looked at it
        EXPECT_EQ(module, nullptr);
        EXPECT_EQ(Stats(cache).entries, 0u);
        EXPECT_EQ(Stats(cache).misses, i);
        hd_diag_destroy(diag);
    }
}

TEST(CompileCache, RefusesRequestsThatAreNone)
{
    Cache cache = Create(8);
    Program program("host program p\n{\n}\n");
    std::string text = Text(1);
    hd_lower_options lower = hd_lower_defaults();
    hd_define define = {nullptr, 1};
    const hd_module *module = nullptr;
    std::vector<std::function<void(hd_cache_request *)>> changes = {
        [&](auto r) { r->module = program.module; },
        [&](auto r) { r->text = nullptr; },
        [&](auto r) { r->name = nullptr; },
        [&](auto r) { r->size = 0; },
        [&](auto r) { r->ndefines = 1; },
        [&](auto r) {
            r->defines = &define;
            r->ndefines = 1;
        },
        [&](auto r) {
            lower.until = HD_STAGE_EVENT;
            r->lower = &lower;
        },
    };

    for (size_t i = 0; i < changes.size(); i++) {
        hd_cache_request request = Request(text);

        changes[i](&request);
        EXPECT_EQ(hd_cache_get(cache.get(), &request, nullptr, &module),
                  HD_ERROR_ARGUMENT)
            << i;
    }
    EXPECT_EQ(Stats(cache).misses, 0u);
    EXPECT_EQ(module, nullptr);
}

// ---------------------------------------------------------------- sessions

namespace
{
struct Lent {
    const hd_module *module;
    hd_session *session;
    int n;
};

hd_status Take(hd_cache *cache, hd_group *group, int n, hd_diag *diag,
               Lent *out)
{
    std::string text = Text(n, hd_group_size(group));
    hd_cache_request request = Request(text);

    out->n = n;
    HD_TRY(hd_cache_get(cache, &request, diag, &out->module));
    return hd_cache_session(cache, group, out->module, nullptr, diag,
                            &out->session);
}

void GiveBack(hd_cache *cache, const Lent &lent)
{
    hd_cache_release_session(cache, lent.session);
    hd_cache_release(cache, lent.module);
}

// What all ranks' elements scaled by n are, on each of them.
hd_status RunOnce(const Lent &lent, hd_group *group, std::mt19937 &random,
                  hd_diag *diag)
{
    int size = hd_group_size(group), rank = hd_group_rank(group);
    std::vector<float> all(size_t(size) * 4), mine(4);
    std::vector<float> y(all.size(), NAN);

    for (float &v : all)
        v = float(random() % 1000); // the same on all ranks
    std::copy_n(all.begin() + 4 * rank, 4, mine.begin());
    void *arguments[] = {mine.data(), y.data()};
    HD_TRY(hd_session_run(lent.session, arguments, 2, nullptr, diag));
    HD_TRY(hd_session_finish(lent.session, diag));
    for (size_t i = 0; i < all.size(); i++)
        RANK_EXPECT(y[i] == all[i] * float(lent.n));
    return HD_OK;
}
} // namespace

// Ranks that make the same calls hit, make and evict together: else some would
// wait for each other.
TEST(CompileCache, RanksThatMakeTheSameCallsAgree)
{
    unsigned seed = Seed();

    AllEndWell(Launch(3, [&](hd_group *group, hd_diag *diag) {
        Cache cache = Create(3, 2);
        std::mt19937 random(seed); // alike on all ranks
        std::vector<Lent> held;

        for (int i = 0; i < 60; i++) {
            if (random() % 2 == 0 || held.empty()) {
                Lent lent;

                HD_TRY(
                    Take(cache.get(), group, int(random() % 6), diag, &lent));
                HD_TRY(RunOnce(lent, group, random, diag));
                held.push_back(lent);
            } else {
                size_t at = random() % held.size();

                GiveBack(cache.get(), held[at]);
                held.erase(held.begin() + long(at));
            }
        }
        hd_cache_stats stats = Stats(cache);
        RANK_EXPECT(stats.session_hits > 0 && stats.session_evictions > 0);
        for (const Lent &lent : held)
            GiveBack(cache.get(), lent);
        RANK_EXPECT(Stats(cache).session_entries <= 2);
        RANK_EXPECT(Stats(cache).entries <= 3);
        hd_cache_forget(cache.get(), group);
        RANK_EXPECT(Stats(cache).session_entries == 0);
        return HD_OK;
    }));
}

TEST(CompileCache, RanksThatAskForDifferentProgramsAreTold)
{
    Outcome outcome = Launch(2, [](hd_group *group, hd_diag *diag) {
        Cache cache = Create(3, 2);
        Lent lent = {};
        hd_status status =
            Take(cache.get(), group, 4 + hd_group_rank(group), diag, &lent);

        RANK_EXPECT(Stats(cache).session_entries == 0);
        if (lent.module != nullptr)
            hd_cache_release(cache.get(), lent.module);
        return status;
    });

    EXPECT_EQ(outcome.status, HD_ERROR_ARGUMENT);
    EXPECT_NE(outcome.text.find("rank 1 binds another program than rank 0: "
                                "line 2 of it is 'host program p5', and 'host "
                                "program p4' on rank 0"),
              std::string::npos)
        << outcome.text;
}

TEST(CompileCache, SessionsDifferByGroupAndOptionsAndRefuseOthers)
{
    Cache cache = Create(4, 4);
    hd_oob oob = {sizeof(hd_oob), nullptr, 0, 1, nullptr};
    hd_group *group[2] = {};
    hd_session *a, *b, *c, *d;
    hd_session_options graph = hd_session_defaults();
    double times[16];
    std::string text = Text(7);
    const hd_module *module = Get(cache, Request(text));
    Program stranger("host program p\n{\n}\n");

    for (hd_group *&g : group)
        ASSERT_EQ(hd_group_create(&oob, 5, nullptr, &g), HD_OK);
    graph.transport = HD_TRANSPORT_NCCL;
    ASSERT_EQ(
        hd_cache_session(cache.get(), group[0], module, nullptr, nullptr, &a),
        HD_OK);
    ASSERT_EQ(
        hd_cache_session(cache.get(), group[1], module, nullptr, nullptr, &b),
        HD_OK);
    ASSERT_EQ(
        hd_cache_session(cache.get(), group[0], module, &graph, nullptr, &c),
        HD_OK);
    graph = hd_session_defaults();
    graph.timeout = 3; // is no part of the key
    ASSERT_EQ(
        hd_cache_session(cache.get(), group[0], module, &graph, nullptr, &d),
        HD_OK);
    EXPECT_TRUE(a != b && a != c && b != c && a == d);
    graph.times = times;
    EXPECT_EQ(
        hd_cache_session(cache.get(), group[0], module, &graph, nullptr, &d),
        HD_ERROR_ARGUMENT);
    EXPECT_EQ(hd_cache_session(cache.get(), group[0], stranger.module, nullptr,
                               nullptr, &d),
              HD_ERROR_ARGUMENT);
    hd_cache_release(cache.get(), module);
    for (hd_session *s : {a, a, b, c})
        hd_cache_release_session(cache.get(), s);
    hd_cache_forget(cache.get(), group[0]);
    EXPECT_EQ(Stats(cache).session_entries, 1u);
    hd_cache_forget(cache.get(), group[1]);
    EXPECT_EQ(Stats(cache).session_entries, 0u);
    for (hd_group *g : group)
        hd_group_destroy(g);
}
