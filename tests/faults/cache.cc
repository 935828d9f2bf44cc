// Programs of a cache: what a get that fails leaves behind is a cache that has
// all that it had, and makes what it could not.
#include <heddle/cache.h>

#include "tests/faults/programs.h"
#include "tests/faults/sweep.h"

namespace
{

const int kMemory[] = {FAULT_MEMORY, FAULT_MEMORY | FAULT_LASTING};

hd_cache_stats Count(const hd_cache *cache)
{
    hd_cache_stats stats = HD_EMPTY(hd_cache_stats);

    hd_cache_count(cache, &stats);
    return stats;
}

// The text outlives what is asked.
hd_cache_request Ask(const char *text)
{
    hd_cache_request request = HD_EMPTY(hd_cache_request);

    request.name = "test.hd";
    request.text = text;
    request.length = strlen(text);
    return request;
}

hd_cache *Create(size_t modules)
{
    hd_cache_options options = hd_cache_defaults();
    hd_cache *cache = nullptr;

    options.modules = modules;
    EXPECT_EQ(hd_cache_create(&options, nullptr, &cache), HD_OK);
    return cache;
}

// A get that drops the only entry, and fails before or after it has.
void GetOfAnother(const hd_cache_request &request, bool lasting)
{
    const std::string chain = Chain(3);

    for (int kinds : kMemory) {
        if ((kinds & FAULT_LASTING) != 0 && !lasting)
            return;
        Sweep sweep = SweepFaults([&](long k) {
            hd_cache *cache = Create(1);
            hd_diag *diag = hd_diag_create();
            hd_cache_request first = Ask(chain.c_str());
            const hd_module *module, *kept = nullptr;
            static const char place = 0;
            const hd_module *none = reinterpret_cast<const hd_module *>(&place);

            module = none;
            EXPECT_EQ(hd_cache_get(cache, &first, nullptr, &kept), HD_OK);
            hd_cache_release(cache, kept);
            fault_begin(k, kinds);
            hd_status status = hd_cache_get(cache, &request, diag, &module);
            bool fired = fault_end();
            ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
            EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u) << k;
            EXPECT_EQ(module == none, fired) << k;
            EXPECT_EQ(Count(cache).entries, 1u) << k;
            if (fired) {
                EXPECT_EQ(hd_cache_get(cache, &request, nullptr, &module),
                          HD_OK)
                    << k;
            }
            EXPECT_EQ(Count(cache).evictions, 1u) << k;
            hd_cache_release(cache, module);
            hd_diag_destroy(diag);
            hd_cache_destroy(cache);
            return fired;
        });
        EXPECT_GT(sweep.requests, 20);
    }
}

} // namespace

TEST(CacheFaults, CreatingOneRunsOutCleanly)
{
    for (int kinds : kMemory) {
        Sweep sweep = SweepFaults([&](long k) {
            hd_diag *diag = hd_diag_create();
            hd_cache *cache = nullptr;

            fault_begin(k, kinds);
            hd_status status = hd_cache_create(nullptr, diag, &cache);
            bool fired = fault_end();
            ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
            EXPECT_EQ(cache == nullptr, fired);
            EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u);
            hd_cache_destroy(cache);
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_EQ(sweep.requests, 1);
    }
}

TEST(CacheFaults, AProgramOfATextRunsOutCleanly)
{
    hd_cache_request request = Ask(kGather);
    hd_lower_options ring = hd_lower_defaults();

    ring.transfer = HD_TRANSFER_RING;
    request.lower = &ring;
    request.against = true;
    GetOfAnother(request, true);
}

TEST(CacheFaults, AProgramOfAModuleThatIsChosenRunsOutCleanly)
{
    hd_module *module = Parse(kGather);
    hd_cache_request request = HD_EMPTY(hd_cache_request);

    request.module = module;
    request.most_streams = 1;
    request.most_chunks = 1;
    GetOfAnother(request, false);
    hd_module_destroy(module);
}

TEST(CacheFaults, WhatIsThereIsFoundOrNotLost)
{
    for (int kinds : kMemory) {
        hd_cache *cache = Create(1);
        hd_cache_request request = Ask(kGather);
        const hd_module *kept = nullptr;

        EXPECT_EQ(hd_cache_get(cache, &request, nullptr, &kept), HD_OK);
        SweepFaults([&](long k) {
            const hd_module *module = nullptr;

            fault_begin(k, kinds);
            hd_status status = hd_cache_get(cache, &request, nullptr, &module);
            bool fired = fault_end();
            ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
            EXPECT_EQ(module, fired ? nullptr : kept);
            if (!fired)
                hd_cache_release(cache, module);
            return fired;
        });
        EXPECT_EQ(Count(cache).misses, 1u);
        hd_cache_release(cache, kept);
        hd_cache_destroy(cache);
    }
}
