// What destroys, frees, releases or forgets takes NULL as free does: with an
// owner or without one.
#include <gtest/gtest.h>

#include <heddle/async.h>
#include <heddle/build.h>
#include <heddle/cache.h>
#include <heddle/environment.h>
#include <heddle/launch.h>
#include <heddle/memory.h>
#include <heddle/simulate.h>
#include <heddle/verify.h>

namespace
{

struct Ending {
    const char *name;
    void (*of_nothing)();
};

#define ENDS(fn)                 \
    {                            \
#fn, [] { fn(nullptr); } \
    }
#define ENDS_OF(fn)                       \
    {                                     \
#fn, [] { fn(nullptr, nullptr); } \
    }

const Ending kEndings[] = {
    ENDS(hd_diag_destroy),
    ENDS(hd_module_destroy),
    ENDS(hd_free),
    ENDS(hd_group_destroy),
    ENDS(hd_session_destroy),
    ENDS(hd_event_destroy),
    ENDS(hd_builder_destroy),
    ENDS(hd_cache_destroy),
    ENDS(hd_environment_destroy),
    ENDS(hd_boot_destroy),
    ENDS(hd_simulation_destroy),
    ENDS(hd_choice_destroy),
    ENDS(hd_reference_destroy),
    ENDS_OF(hd_session_free),
    ENDS_OF(hd_group_free),
    ENDS_OF(hd_cache_release),
    ENDS_OF(hd_cache_release_session),
    ENDS_OF(hd_cache_forget),
};

TEST(Nothing, IsDestroyedFreedReleasedAndForgotten)
{
    for (const Ending &ending : kEndings) {
        SCOPED_TRACE(ending.name);
        ending.of_nothing();
    }
}

TEST(Nothing, OfACacheThatIsThereIsReleased)
{
    hd_cache *cache = nullptr;
    hd_cache_stats stats = HD_EMPTY(hd_cache_stats);

    ASSERT_EQ(hd_cache_create(nullptr, nullptr, &cache), HD_OK);
    hd_cache_release(cache, nullptr);
    hd_cache_release_session(cache, nullptr);
    hd_cache_forget(cache, nullptr);
    hd_cache_count(cache, &stats);
    EXPECT_EQ(stats.entries + stats.session_entries, 0u);
    hd_cache_destroy(cache);
}

} // namespace
