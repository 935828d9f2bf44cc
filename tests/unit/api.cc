// What every exported function does with pointers that must not be NULL, and
// with enumerators that do not exist: a row a function, and none is left out.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/build.h>
#include <heddle/cache.h>
#include <heddle/call.h>
#include <heddle/dlpack.h>
#include <heddle/environment.h>
#include <heddle/launch.h>
#include <heddle/memory.h>
#include <heddle/simulate.h>
#include <heddle/tune.h>
#include <heddle/verify.h>

#include <heddle/async.h>

#include "tests/unit/program.h"
#include "tests/unit/ranks.h"
#include "tests/words.h"

namespace
{

// What the rows have to work with: one rank, its session and all else.
struct World {
    Program tensor{"tensor program t\nin %x : f32[4]\nout %y : f32[4]\n{\n"
                   "    %y = relu %x\n}\n"};
    Program host{"host program h\nin %x : f32[4]\nout %y : f32[4]\n{\n"
                 "    %y = relu %x\n}\n"};
    hd_module *module = host.module;
    hd_diag *diag = nullptr;
    hd_group *group = nullptr;
    hd_session *session = nullptr;
    hd_simulation *simulation = nullptr;
    hd_reference *reference = nullptr;
    float x[4] = {1, 2, 3, 4}, y[4] = {};
    double doubles[16] = {};
    const void *whole[2] = {x, nullptr};
    void *arguments[2] = {x, y};
    hd_cache *cache = nullptr;
    hd_cache_request request = {};
    hd_place place = {sizeof place, "none", 0, 1, 0, 1, 1, ""};

    World()
    {
        hd_oob oob = {sizeof oob, nullptr, 0, 1, nullptr};

        EXPECT_EQ(hd_group_create(&oob, 1, diag, &group), HD_OK);
        EXPECT_EQ(hd_session_create(group, module, nullptr, diag, &session),
                  HD_OK);
        EXPECT_EQ(hd_simulate(module, nullptr, diag, &simulation), HD_OK);
        EXPECT_EQ(hd_cache_create(nullptr, diag, &cache), HD_OK);
        EXPECT_EQ(hd_reference_create(module, whole, diag, &reference), HD_OK);
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    ~World()
    {
        hd_reference_destroy(reference);
        hd_cache_destroy(cache);
        hd_simulation_destroy(simulation);
        hd_session_destroy(session);
        hd_group_destroy(group);
    }
};

// Each call on its own is refused, asserted, or has no effect.
struct Row {
    std::vector<std::function<hd_status(World &)>> refused;
    std::vector<std::function<void(World &)>> asserted;
    std::vector<std::function<void(World &)>> fine;
};

#define REFUSED(call)           \
    [](World &w) -> hd_status { \
        (void)w;                \
        return call;            \
    }
#define DOES(call) \
    [](World &w) { \
        (void)w;   \
        call;      \
    }

template <class Enum> Enum NoSuch()
{
    Enum result;
    unsigned value = 99;

    memcpy(&result, &value, sizeof result);
    return result;
}

hd_status LowerWith(World &w,
                    const std::function<void(hd_lower_options *)> &set)
{
    hd_lower_options options = hd_lower_defaults();

    set(&options);
    return hd_lower(w.tensor.module, &options, nullptr, nullptr, w.diag);
}

hd_status CreateWith(World &w,
                     const std::function<void(hd_session_options *)> &set)
{
    hd_session_options options = hd_session_defaults();
    hd_session *session;

    set(&options);
    return hd_session_create(w.group, w.module, &options, w.diag, &session);
}

hd_status CheckWith(World &w,
                    const std::function<void(hd_check_options *)> &set)
{
    hd_check_options options = hd_check_defaults();

    set(&options);
    return hd_check(w.module, &options, w.diag);
}

hd_status RunWith(World &w, const std::function<void(hd_run_options *)> &set)
{
    hd_run_options options = HD_EMPTY(hd_run_options);

    set(&options);
    return hd_session_run(w.session, w.arguments, 2, &options, w.diag);
}

hd_status AllocNothing(void *, const char *, size_t, void **)
{
    return HD_ERROR_NO_MEMORY;
}

void FreeNothing(void *, const char *, void *, size_t)
{
}

hd_status SetAllocator(World &w, decltype(hd_allocator::alloc) alloc,
                       decltype(hd_allocator::free) free)
{
    hd_allocator allocator = HD_EMPTY(hd_allocator);

    allocator.alloc = alloc;
    allocator.free = free;
    return hd_group_set_allocator(w.group, &allocator, w.diag);
}

hd_status Built(World &w, const std::function<void(hd_builder *)> &append)
{
    hd_builder *builder = nullptr;
    hd_module *module = nullptr;
    hd_status status = hd_builder_create("p", HD_STAGE_HOST, w.diag, &builder);

    EXPECT_EQ(status, HD_OK);
    append(builder);
    status = hd_builder_finish(builder, w.diag, &module);
    hd_builder_destroy(builder);
    return status;
}

// What is not written to.
hd_group *&NoGroup()
{
    static hd_group *group;

    return group;
}

bool &NoFlag()
{
    static bool flag;

    return flag;
}

int &NoNumber()
{
    static int number;

    return number;
}

void Heard(void *, hd_status)
{
}

// A program of one buffer.
hd_status BuiltOf(World &w, const std::function<void(hd_build_buffer *)> &set)
{
    hd_build_buffer buffer = HD_EMPTY(hd_build_buffer);

    buffer.name = "x";
    set(&buffer);
    return Built(w, [&](hd_builder *b) { hd_builder_buffer(b, &buffer, 1); });
}

hd_status Nothing(void *, hd_group *)
{
    return HD_OK;
}

// Has `fill` write a struct for a caller who knows all of it but its last
// bytes.
template <class T>
void ExpectNoMoreThanItsSize(const char *what,
                             const std::function<void(T *)> &fill)
{
    enum { kUnknown = 8 };
    T told;
    auto *bytes = reinterpret_cast<unsigned char *>(&told);

    memset(&told, 0xa5, sizeof told);
    told.size = sizeof told - kUnknown;
    fill(&told);
    EXPECT_EQ(told.size, sizeof told - kUnknown) << what;
    for (size_t i = told.size; i < sizeof told; i++)
        EXPECT_EQ(bytes[i], 0xa5) << what << " " << i;
    for (size_t i = sizeof(size_t), n = 0; i < told.size; i++) {
        n += bytes[i] != 0xa5;
        EXPECT_TRUE(i + 1 < told.size || n > 0) << what << " is not filled";
    }
}

std::map<std::string, Row> Rows()
{
    static const hd_define no_name = {nullptr, 1};
    static hd_module *module;
    static hd_session *session;
    static hd_simulation *simulation;
    static hd_reference *reference;
    static hd_boot *boot;
    static hd_builder *builder;
    static hd_machine machine = HD_EMPTY(hd_machine);
    static hd_tuned tuned = HD_EMPTY(hd_tuned);
    static hd_lower_options lower = hd_lower_defaults();
    static hd_machine_origin origin = HD_EMPTY(hd_machine_origin);
    static hd_env_kind kind = HD_EMPTY(hd_env_kind);
    static hd_choice *choice;
    static hd_program_info info = HD_EMPTY(hd_program_info);
    static hd_axis_info axis = HD_EMPTY(hd_axis_info);
    static int64_t extents[HD_MAX_DIMS];
    static const hd_module *kept;
    static hd_cache_stats counted = HD_EMPTY(hd_cache_stats);
    static hd_group *group;
    static hd_argument argument = HD_EMPTY(hd_argument);
    static hd_size_info size = HD_EMPTY(hd_size_info);
    static hd_call_info call = HD_EMPTY(hd_call_info);
    static const int64_t one = 1;
    static hd_message message = HD_EMPTY(hd_message);
    static hd_prediction prediction = HD_EMPTY(hd_prediction);
    static hd_interval interval = HD_EMPTY(hd_interval);
    static hd_stats stats = HD_EMPTY(hd_stats);
    static hd_place place = HD_EMPTY(hd_place);
    static bool found;
    static int64_t steps;
    static char *text;
    static char word[8];
    static void *memory;

    return {
        {"hd_status_text",
         {{},
          {},
          {DOES(EXPECT_STREQ(hd_status_text(NoSuch<hd_status>()),
                             "unknown status"))}}},
        {"hd_version", {}},
        {"hd_diag_create", {}},
        {"hd_diag_destroy", {{}, {}, {DOES(hd_diag_destroy(nullptr))}}},
        {"hd_diag_count", {{}, {DOES((void)hd_diag_count(nullptr))}, {}}},
        {"hd_diag_errors", {{}, {DOES((void)hd_diag_errors(nullptr))}, {}}},
        {"hd_diag_message",
         {{},
          {DOES((void)hd_diag_message(nullptr, 0, &message)),
           DOES((void)hd_diag_message(w.host.diag, 0, nullptr))},
          {}}},
        {"hd_diag_clear", {{}, {DOES(hd_diag_clear(nullptr))}, {}}},
        {"hd_diag_text", {{}, {DOES((void)hd_diag_text(nullptr))}, {}}},
        {"hd_dtype_size",
         {{}, {}, {DOES(EXPECT_EQ(hd_dtype_size(NoSuch<hd_dtype>()), 0u))}}},
        {"hd_dtype_text",
         {{},
          {},
          {DOES(EXPECT_STREQ(hd_dtype_text(NoSuch<hd_dtype>()),
                             "unknown dtype"))}}},
        {"hd_transport_text",
         {{},
          {},
          {DOES(
              EXPECT_EQ(hd_transport_text(NoSuch<hd_transport>()), nullptr))}}},
        {"hd_dtype_load",
         {{},
          {DOES(hd_dtype_load(HD_DTYPE_F32, nullptr, 1, w.doubles)),
           DOES(hd_dtype_load(HD_DTYPE_F32, w.x, 1, nullptr)),
           DOES(hd_dtype_load(NoSuch<hd_dtype>(), w.x, 1, w.doubles))},
          {DOES(hd_dtype_load(HD_DTYPE_F32, nullptr, 0, nullptr))}}},
        {"hd_dtype_store",
         {{},
          {DOES(hd_dtype_store(HD_DTYPE_F32, nullptr, 1, w.x)),
           DOES(hd_dtype_store(HD_DTYPE_F32, w.doubles, 1, nullptr)),
           DOES(hd_dtype_store(NoSuch<hd_dtype>(), w.doubles, 1, w.x))},
          {DOES(hd_dtype_store(HD_DTYPE_F32, nullptr, 0, nullptr))}}},
        {"hd_parse",
         {{REFUSED(hd_parse(nullptr, "x", 1, nullptr, 0, w.diag, &module)),
           REFUSED(hd_parse("n", nullptr, 1, nullptr, 0, w.diag, &module)),
           REFUSED(hd_parse("n", "x", 1, nullptr, 1, w.diag, &module)),
           REFUSED(hd_parse("n", "x", 1, &no_name, 1, w.diag, &module)),
           REFUSED(hd_parse("n", "x", 1, nullptr, 0, w.diag, nullptr))},
          {},
          {DOES(
              EXPECT_EQ(hd_parse("n", nullptr, 0, nullptr, 0, w.diag, &module),
                        HD_ERROR_INVALID))}}},
        {"hd_module_destroy", {{}, {}, {DOES(hd_module_destroy(nullptr))}}},
        {"hd_module_clone",
         {{REFUSED(hd_module_clone(nullptr, w.diag, &module)),
           REFUSED(hd_module_clone(w.module, w.diag, nullptr))},
          {},
          {}}},
        {"hd_format",
         {{REFUSED(hd_format(nullptr, "", 0, w.diag, &text)),
           REFUSED(hd_format("t", nullptr, 1, w.diag, &text)),
           REFUSED(hd_format("t", "", 0, w.diag, nullptr))},
          {},
          {}}},
        {"hd_upgrade",
         {{REFUSED(hd_upgrade(nullptr, "", 0, w.diag, &text)),
           REFUSED(hd_upgrade("t", nullptr, 1, w.diag, &text)),
           REFUSED(hd_upgrade("t", "", 0, w.diag, nullptr))},
          {},
          {}}},
        {"hd_print",
         {{REFUSED(hd_print(nullptr, &text)),
           REFUSED(hd_print(w.module, nullptr))},
          {},
          {}}},
        {"hd_print_json",
         {{REFUSED(hd_print_json(nullptr, &text)),
           REFUSED(hd_print_json(w.module, nullptr))},
          {},
          {}}},
        {"hd_print_steps",
         {{REFUSED(hd_print_steps(nullptr, 0, w.diag, &text)),
           REFUSED(hd_print_steps(w.module, 0, w.diag, nullptr)),
           REFUSED(hd_print_steps(w.module, 1, w.diag, &text)),
           REFUSED(hd_print_steps(w.module, -1, w.diag, &text))},
          {},
          {}}},
        {"hd_print_steps_json",
         {{REFUSED(hd_print_steps_json(nullptr, 0, w.diag, &text)),
           REFUSED(hd_print_steps_json(w.module, 0, w.diag, nullptr)),
           REFUSED(hd_print_steps_json(w.module, 1, w.diag, &text)),
           REFUSED(hd_print_steps_json(w.module, -1, w.diag, &text))},
          {},
          {}}},
        {"hd_free", {{}, {}, {DOES(hd_free(nullptr))}}},
        {"hd_module_steps",
         {{REFUSED(hd_module_steps(nullptr, 0, w.diag, &steps)),
           REFUSED(hd_module_steps(w.module, 0, w.diag, nullptr)),
           REFUSED(hd_module_steps(w.module, 1, w.diag, &steps))},
          {},
          {}}},
        {"hd_module_step_counts",
         {{REFUSED(hd_module_step_counts(nullptr, w.diag, &steps)),
           REFUSED(hd_module_step_counts(w.module, w.diag, nullptr))},
          {},
          {}}},
        {"hd_module_argument",
         {{},
          {DOES((void)hd_module_argument(nullptr, 0, &argument)),
           DOES((void)hd_module_argument(w.module, 0, nullptr))},
          {DOES(EXPECT_FALSE(hd_module_argument(w.module, 2, &argument)))}}},
        {"hd_module_info",
         {{},
          {DOES(hd_module_info(nullptr, &info)),
           DOES(hd_module_info(w.module, nullptr))},
          {}}},
        {"hd_module_axis",
         {{},
          {DOES(hd_module_axis(nullptr, 0, &axis)),
           DOES(hd_module_axis(w.module, 0, nullptr))},
          {DOES(EXPECT_FALSE(hd_module_axis(w.module, 1, &axis)))}}},
        {"hd_module_shard",
         {{},
          {DOES(hd_module_shard(nullptr, 0, 0, extents, extents)),
           DOES(hd_module_shard(w.module, 0, 0, nullptr, extents)),
           DOES(hd_module_shard(w.module, 0, 0, extents, nullptr))},
          {DOES(EXPECT_FALSE(
              hd_module_shard(w.module, 9, 0, extents, extents)))}}},
        {"hd_module_calls",
         {{},
          {DOES((void)hd_module_calls(nullptr))},
          {DOES(EXPECT_EQ(hd_module_calls(w.module), 0u))}}},
        {"hd_module_call",
         {{},
          {DOES((void)hd_module_call(nullptr, 0, &call)),
           DOES((void)hd_module_call(w.module, 0, nullptr))},
          {DOES(EXPECT_FALSE(hd_module_call(w.module, 0, &call)))}}},
        {"hd_module_size",
         {{},
          {DOES((void)hd_module_size(nullptr, 0, &size)),
           DOES((void)hd_module_size(w.module, 0, nullptr))},
          {DOES(EXPECT_FALSE(hd_module_size(w.module, 0, &size)))}}},
        {"hd_module_resize",
         {{REFUSED(hd_module_resize(nullptr, &one, 1, w.diag)),
           REFUSED(hd_module_resize(w.module, &one, 1, w.diag))},
          {},
          {}}},
        {"hd_shard",
         {{},
          {DOES(hd_shard(nullptr, 0, 0, w.x, w.y)),
           DOES(hd_shard(w.module, 0, 0, nullptr, w.y)),
           DOES(hd_shard(w.module, 0, 0, w.x, nullptr))},
          {DOES(hd_shard(w.module, 7, 0, w.x, w.y)),
           DOES(hd_shard(w.module, 0, 7, w.x, w.y))}}},
        {"hd_unshard",
         {{},
          {DOES(hd_unshard(nullptr, 0, 0, w.x, w.y)),
           DOES(hd_unshard(w.module, 0, 0, nullptr, w.y)),
           DOES(hd_unshard(w.module, 0, 0, w.x, nullptr))},
          {DOES(hd_unshard(w.module, 7, 0, w.x, w.y)),
           DOES(hd_unshard(w.module, 0, -1, w.x, w.y))}}},
        {"hd_lower",
         {{REFUSED(hd_lower(nullptr, nullptr, nullptr, nullptr, w.diag)),
           REFUSED(LowerWith(w,
                             [](hd_lower_options *o) {
                                 o->transfer = NoSuch<hd_transfer>();
                             })),
           REFUSED(LowerWith(w,
                             [](hd_lower_options *o) {
                                 o->protocol = NoSuch<hd_protocol>();
                             })),
           REFUSED(LowerWith(
               w, [](hd_lower_options *o) { o->until = NoSuch<hd_stage>(); })),
           REFUSED(LowerWith(w, [](hd_lower_options *o) { o->streams = 0; })),
           REFUSED(LowerWith(w, [](hd_lower_options *o) { o->chunks = 0; }))},
          {},
          {DOES(EXPECT_EQ(
              hd_lower(w.tensor.module, nullptr, nullptr, nullptr, w.diag),
              HD_OK))}}},
        {"hd_check",
         {{REFUSED(hd_check(nullptr, nullptr, w.diag)),
           REFUSED(CheckWith(w,
                             [](hd_check_options *o) {
                                 o->transport = NoSuch<hd_transport>();
                             }))},
          {},
          {DOES(EXPECT_EQ(hd_check(w.module, nullptr, w.diag), HD_OK))}}},
        {"hd_machine_default", {{}, {DOES(hd_machine_default(nullptr))}, {}}},
        {"hd_machine_parse",
         {{REFUSED(hd_machine_parse(nullptr, "{}", 2, w.diag, &machine)),
           REFUSED(hd_machine_parse("m", nullptr, 2, w.diag, &machine)),
           REFUSED(hd_machine_parse("m", "{}", 2, w.diag, nullptr))},
          {},
          {DOES(EXPECT_EQ(hd_machine_parse("m", nullptr, 0, w.diag, &machine),
                          HD_ERROR_INVALID))}}},
        {"hd_machine_print",
         {{REFUSED(hd_machine_print(nullptr, w.diag, &text)),
           REFUSED(hd_machine_print(&machine, w.diag, nullptr))},
          {},
          {}}},
        {"hd_machine_shipped",
         {{},
          {DOES(hd_machine_shipped("cpu", nullptr))},
          {DOES(hd_machine_shipped(nullptr, &machine))}}},
        {"hd_tune",
         {{REFUSED(hd_tune(nullptr, w.tensor.module, nullptr, w.diag, &tuned)),
           REFUSED(hd_tune(w.group, nullptr, nullptr, w.diag, &tuned)),
           REFUSED(hd_tune(w.group, w.tensor.module, nullptr, w.diag, nullptr)),
           REFUSED(hd_tune(w.group, w.module, nullptr, w.diag, &tuned))},
          {},
          {}}},
        {"hd_machine_here",
         {{REFUSED(hd_machine_here(nullptr, w.diag, &machine, &origin)),
           REFUSED(hd_machine_here("gpu", w.diag, &machine, &origin)),
           REFUSED(hd_machine_here("cpu", w.diag, nullptr, &origin)),
           REFUSED(hd_machine_here("cpu", w.diag, &machine, nullptr))},
          {},
          {}}},
        {"hd_machine_keep",
         {{REFUSED(hd_machine_keep(nullptr, nullptr, w.diag, &origin)),
           REFUSED(hd_machine_keep("../x", nullptr, w.diag, &origin)),
           REFUSED(hd_machine_keep("x", nullptr, w.diag, nullptr))},
          {},
          {}}},
        {"hd_cache_create",
         {{REFUSED(hd_cache_create(nullptr, w.diag, nullptr))}, {}, {}}},
        {"hd_cache_destroy", {{}, {}, {DOES(hd_cache_destroy(nullptr))}}},
        {"hd_cache_get",
         {{REFUSED(hd_cache_get(nullptr, &w.request, w.diag, &kept)),
           REFUSED(hd_cache_get(w.cache, nullptr, w.diag, &kept)),
           REFUSED(hd_cache_get(w.cache, &w.request, w.diag, nullptr))},
          {},
          {}}},
        {"hd_cache_release",
         {{},
          {DOES(hd_cache_release(nullptr, w.module)),
           DOES(hd_cache_release(w.cache, w.module))},
          {DOES(hd_cache_release(w.cache, nullptr))}}},
        {"hd_cache_session",
         {{REFUSED(hd_cache_session(nullptr, w.group, w.module, nullptr, w.diag,
                                    &session)),
           REFUSED(hd_cache_session(w.cache, nullptr, w.module, nullptr, w.diag,
                                    &session)),
           REFUSED(hd_cache_session(w.cache, w.group, nullptr, nullptr, w.diag,
                                    &session)),
           REFUSED(hd_cache_session(w.cache, w.group, w.module, nullptr, w.diag,
                                    &session)),
           REFUSED(hd_cache_session(w.cache, w.group, w.module, nullptr, w.diag,
                                    nullptr))},
          {},
          {}}},
        {"hd_cache_release_session",
         {{},
          {DOES(hd_cache_release_session(nullptr, w.session)),
           DOES(hd_cache_release_session(w.cache, w.session))},
          {DOES(hd_cache_release_session(w.cache, nullptr))}}},
        {"hd_cache_forget",
         {{},
          {DOES(hd_cache_forget(nullptr, w.group))},
          {DOES(hd_cache_forget(w.cache, nullptr)),
           DOES(hd_cache_forget(w.cache, w.group))}}},
        {"hd_cache_count",
         {{},
          {DOES(hd_cache_count(nullptr, &counted)),
           DOES(hd_cache_count(w.cache, nullptr))},
          {}}},
        {"hd_choose_lower",
         {{REFUSED(hd_choose_lower(nullptr, nullptr, w.diag, &lower)),
           REFUSED(hd_choose_lower(w.module, nullptr, w.diag, nullptr))},
          {},
          {}}},
        {"hd_choose",
         {{REFUSED(hd_choose(nullptr, nullptr, w.diag, &choice)),
           REFUSED(hd_choose(w.tensor.module, nullptr, w.diag, nullptr)),
           REFUSED(hd_choose(w.module, nullptr, w.diag, &choice))},
          {},
          {}}},
        {"hd_choice_destroy", {{}, {}, {DOES(hd_choice_destroy(nullptr))}}},
        {"hd_choice_count", {{}, {DOES((void)hd_choice_count(nullptr))}, {}}},
        {"hd_choice_candidate",
         {{},
          {DOES(hd_choice_candidate(nullptr, 0, nullptr, nullptr, nullptr))},
          {}}},
        {"hd_simulate",
         {{REFUSED(hd_simulate(nullptr, nullptr, w.diag, &simulation)),
           REFUSED(hd_simulate(w.module, nullptr, w.diag, nullptr))},
          {},
          {}}},
        {"hd_simulate_over",
         {{REFUSED(hd_simulate_over(nullptr, nullptr, w.diag, &simulation)),
           REFUSED(hd_simulate_over(w.module, nullptr, w.diag, nullptr))},
          {},
          {}}},
        {"hd_simulation_destroy",
         {{}, {}, {DOES(hd_simulation_destroy(nullptr))}}},
        {"hd_simulation_predict",
         {{},
          {DOES(hd_simulation_predict(nullptr, &prediction)),
           DOES(hd_simulation_predict(w.simulation, nullptr))},
          {}}},
        {"hd_simulation_measure",
         {{},
          {DOES(hd_simulation_measure(nullptr, w.doubles)),
           DOES(hd_simulation_measure(w.simulation, nullptr))},
          {}}},
        {"hd_simulation_intervals",
         {{}, {DOES((void)hd_simulation_intervals(nullptr))}, {}}},
        {"hd_simulation_interval",
         {{},
          {DOES(hd_simulation_interval(nullptr, 0, &interval)),
           DOES(hd_simulation_interval(w.simulation, 0, nullptr)),
           DOES(hd_simulation_interval(w.simulation, -1, &interval)),
           DOES(hd_simulation_interval(w.simulation, 1000, &interval))},
          {}}},
        {"hd_simulation_name",
         {{},
          {DOES(hd_simulation_name(nullptr, 0, word, sizeof word)),
           DOES(hd_simulation_name(w.simulation, 0, nullptr, 8)),
           DOES(hd_simulation_name(w.simulation, 1000, word, 8))},
          {}}},
        {"hd_reference_create",
         {{REFUSED(hd_reference_create(nullptr, w.whole, w.diag, &reference)),
           REFUSED(hd_reference_create(w.module, nullptr, w.diag, &reference)),
           REFUSED(
               hd_reference_create(w.module, w.whole + 1, w.diag, &reference)),
           REFUSED(hd_reference_create(w.module, w.whole, w.diag, nullptr))},
          {},
          {}}},
        {"hd_reference_destroy",
         {{}, {}, {DOES(hd_reference_destroy(nullptr))}}},
        {"hd_reference_local",
         {{},
          {DOES(hd_reference_local(nullptr, 1, 0, w.doubles, nullptr)),
           DOES(hd_reference_local(w.reference, 1, 0, nullptr, nullptr))},
          {DOES(hd_reference_local(w.reference, 1, 0, w.doubles, nullptr)),
           DOES(hd_reference_local(w.reference, 9, 9, w.doubles, nullptr))}}},
        {"hd_group_create",
         {{REFUSED(hd_group_create(nullptr, 1, w.diag, &group))}, {}, {}}},
        {"hd_group_destroy", {{}, {}, {DOES(hd_group_destroy(nullptr))}}},
        {"hd_group_rank", {{}, {DOES((void)hd_group_rank(nullptr))}, {}}},
        {"hd_group_size", {{}, {DOES((void)hd_group_size(nullptr))}, {}}},
        {"hd_group_join",
         {{REFUSED(hd_group_join(nullptr, 1, w.diag, &NoGroup())),
           REFUSED(hd_group_join(&w.place, 1, w.diag, nullptr))},
          {},
          {}}},
        {"hd_group_split",
         {{REFUSED(hd_group_split(nullptr, 0, 0, w.diag, &NoGroup())),
           REFUSED(hd_group_split(w.group, 0, 0, w.diag, nullptr))},
          {},
          {}}},
        {"hd_session_query",
         {{REFUSED(hd_session_query(nullptr, w.diag, &NoFlag())),
           REFUSED(hd_session_query(w.session, w.diag, nullptr))},
          {},
          {}}},
        {"hd_session_wait",
         {{REFUSED(hd_session_wait(nullptr, 1, w.diag, &NoFlag())),
           REFUSED(hd_session_wait(w.session, 1, w.diag, nullptr))},
          {},
          {}}},
        {"hd_session_descriptor",
         {{REFUSED(hd_session_descriptor(nullptr, w.diag, &NoNumber())),
           REFUSED(hd_session_descriptor(w.session, w.diag, nullptr))},
          {},
          {}}},
        {"hd_session_notify",
         {{REFUSED(hd_session_notify(nullptr, Heard, nullptr, w.diag)),
           REFUSED(hd_session_notify(w.session, nullptr, nullptr, w.diag))},
          {},
          {}}},
        {"hd_set", {{REFUSED(hd_set(nullptr, "1", w.diag))}, {}, {}}},
        {"hd_set_log", {{}, {}, {DOES(hd_set_log(nullptr, nullptr))}}},
        {"hd_group_abort", {{}, {DOES(hd_group_abort(nullptr))}, {}}},
        {"hd_group_set_timeout",
         {{}, {DOES(hd_group_set_timeout(nullptr, 1))}, {}}},
        {"hd_group_set_allocator",
         {{REFUSED(hd_group_set_allocator(nullptr, nullptr, w.diag)),
           REFUSED(SetAllocator(w, nullptr, &FreeNothing)),
           REFUSED(SetAllocator(w, &AllocNothing, nullptr))},
          {},
          {DOES(EXPECT_EQ(hd_group_set_allocator(w.group, nullptr, w.diag),
                          HD_OK))}}},
        {"hd_group_alloc",
         {{REFUSED(hd_group_alloc(nullptr, "cpu", 4, w.diag, w.arguments)),
           REFUSED(hd_group_alloc(w.group, nullptr, 4, w.diag, w.arguments)),
           REFUSED(hd_group_alloc(w.group, "cpu", 4, w.diag, nullptr))},
          {},
          {}}},
        {"hd_group_free",
         {{},
          {DOES(hd_group_free(nullptr, w.x))},
          {DOES(hd_group_free(w.group, nullptr)),
           DOES(hd_group_free(nullptr, nullptr))}}},
        {"hd_group_trim",
         {{REFUSED(hd_group_trim(nullptr, w.diag))},
          {},
          {DOES(EXPECT_EQ(hd_group_trim(w.group, w.diag), HD_OK))}}},
        {"hd_group_allgather",
         {{REFUSED(hd_group_allgather(nullptr, w.x, 4, w.y, w.diag)),
           REFUSED(hd_group_allgather(w.group, nullptr, 4, w.y, w.diag)),
           REFUSED(hd_group_allgather(w.group, w.x, 4, nullptr, w.diag))},
          {},
          {DOES(EXPECT_EQ(
              hd_group_allgather(w.group, nullptr, 0, nullptr, w.diag),
              HD_OK))}}},
        {"hd_launch",
         {{REFUSED(hd_launch(2, 1, 0, nullptr, nullptr, w.diag)),
           REFUSED(hd_launch(0, 1, 0, Nothing, nullptr, w.diag)),
           REFUSED(hd_launch(2, 0, 0, Nothing, nullptr, w.diag))},
          {},
          {}}},
        {"hd_place_find",
         {{REFUSED(hd_place_find(w.diag, nullptr, &place)),
           REFUSED(hd_place_find(w.diag, &found, nullptr))},
          {},
          {}}},
        {"hd_boot_connect",
         {{REFUSED(hd_boot_connect(nullptr, 1, w.diag, &boot)),
           REFUSED(hd_boot_connect(&w.place, 1, w.diag, nullptr))},
          {},
          {}}},
        {"hd_boot_destroy", {{}, {}, {DOES(hd_boot_destroy(nullptr))}}},
        {"hd_boot_oob", {{}, {DOES((void)hd_boot_oob(nullptr))}, {}}},
        {"hd_join",
         {{REFUSED(hd_join(nullptr, 1, Nothing, nullptr, w.diag)),
           REFUSED(hd_join(&w.place, 1, nullptr, nullptr, w.diag))},
          {},
          {}}},
        {"hd_session_create",
         {{REFUSED(
               hd_session_create(nullptr, w.module, nullptr, w.diag, &session)),
           REFUSED(
               hd_session_create(w.group, nullptr, nullptr, w.diag, &session)),
           REFUSED(
               hd_session_create(w.group, w.module, nullptr, w.diag, nullptr)),
           REFUSED(CreateWith(w,
                              [](hd_session_options *o) {
                                  o->transport = NoSuch<hd_transport>();
                              })),
           REFUSED(
               CreateWith(w, [](hd_session_options *o) { o->timeout = 0; }))},
          {},
          {}}},
        {"hd_session_destroy", {{}, {}, {DOES(hd_session_destroy(nullptr))}}},
        {"hd_session_run",
         {{REFUSED(hd_session_run(nullptr, w.arguments, 2, nullptr, w.diag)),
           REFUSED(hd_session_run(w.session, nullptr, 2, nullptr, w.diag)),
           REFUSED(hd_session_run(w.session, w.arguments, 1, nullptr, w.diag)),
           REFUSED(RunWith(w, [](hd_run_options *o) { o->stream = o; })),
           REFUSED(RunWith(w, [](hd_run_options *o) { o->nsizes = 1; })),
           REFUSED(RunWith(w, [](hd_run_options *o) { o->size = 0; }))},
          {},
          {}}},
        {"hd_session_alloc",
         {{REFUSED(hd_session_alloc(nullptr, 1, w.diag, &memory)),
           REFUSED(hd_session_alloc(w.session, 1, w.diag, nullptr))},
          {},
          {}}},
        {"hd_session_free",
         {{},
          {DOES(hd_session_free(nullptr, w.x))},
          {DOES(hd_session_free(w.session, nullptr))}}},
        {"hd_session_copy",
         {{REFUSED(hd_session_copy(nullptr, w.y, w.x, 4, w.diag)),
           REFUSED(hd_session_copy(w.session, nullptr, w.x, 4, w.diag)),
           REFUSED(hd_session_copy(w.session, w.y, nullptr, 4, w.diag))},
          {},
          {DOES(
              EXPECT_EQ(hd_session_copy(w.session, nullptr, nullptr, 0, w.diag),
                        HD_OK))}}},
        {"hd_is_device", {{}, {}, {DOES(EXPECT_FALSE(hd_is_device(nullptr)))}}},
        {"hd_session_finish",
         {{REFUSED(hd_session_finish(nullptr, w.diag))}, {}, {}}},
        {"hd_session_stats",
         {{},
          {DOES(hd_session_stats(nullptr, &stats)),
           DOES(hd_session_stats(w.session, nullptr))},
          {}}},
        {"hd_builder_create",
         {{REFUSED(hd_builder_create(nullptr, HD_STAGE_HOST, w.diag, &builder)),
           REFUSED(hd_builder_create("p", HD_STAGE_HOST, w.diag, nullptr)),
           REFUSED(
               hd_builder_create("p", NoSuch<hd_stage>(), w.diag, &builder))},
          {},
          {}}},
        {"hd_builder_destroy", {{}, {}, {DOES(hd_builder_destroy(nullptr))}}},
        {"hd_builder_axis",
         {{REFUSED(Built(
              w, [](hd_builder *b) { hd_builder_axis(b, nullptr, 2, 1); }))},
          {DOES(hd_builder_axis(nullptr, "tp", 2, 1))},
          {}}},
        {"hd_builder_param",
         {{REFUSED(Built(
              w, [](hd_builder *b) { hd_builder_param(b, nullptr, 2, 1); }))},
          {DOES(hd_builder_param(nullptr, "n", 2, 1))},
          {}}},
        {"hd_builder_size",
         {{REFUSED(Built(
              w, [](hd_builder *b) { hd_builder_size(b, nullptr, 1, 2, 1); }))},
          {DOES(hd_builder_size(nullptr, "m", 1, 2, 1))},
          {}}},
        {"hd_builder_streams",
         {{}, {DOES(hd_builder_streams(nullptr, 2, 1))}, {}}},
        {"hd_builder_buffer",
         {{REFUSED(Built(
               w, [](hd_builder *b) { hd_builder_buffer(b, nullptr, 1); })),
           REFUSED(BuiltOf(
               w, [](hd_build_buffer *x) { x->role = NoSuch<hd_role>(); })),
           REFUSED(BuiltOf(
               w, [](hd_build_buffer *x) { x->dtype = NoSuch<hd_dtype>(); }))},
          {DOES(hd_builder_buffer(nullptr, nullptr, 1))},
          {}}},
        {"hd_builder_op",
         {{REFUSED(
              Built(w, [](hd_builder *b) { hd_builder_op(b, nullptr, 1); }))},
          {DOES(hd_builder_op(nullptr, nullptr, 1))},
          {}}},
        {"hd_builder_for",
         {{REFUSED(Built(w,
                         [](hd_builder *b) {
                             hd_builder_for(b, nullptr, "0", "1", 1);
                             hd_builder_end(b, 1);
                         }))},
          {DOES(hd_builder_for(nullptr, "i", "0", "1", 1))},
          {}}},
        {"hd_builder_block",
         {{REFUSED(Built(w,
                         [](hd_builder *b) {
                             hd_builder_block(b, nullptr, 1);
                             hd_builder_end(b, 1);
                         }))},
          {DOES(hd_builder_block(nullptr, "group", 1))},
          {}}},
        {"hd_builder_end",
         {{REFUSED(Built(w, [](hd_builder *b) { hd_builder_end(b, 1); }))},
          {DOES(hd_builder_end(nullptr, 1))},
          {}}},
        {"hd_builder_line",
         {{REFUSED(
              Built(w, [](hd_builder *b) { hd_builder_line(b, nullptr, 1); }))},
          {DOES(hd_builder_line(nullptr, "join", 1))},
          {}}},
        {"hd_builder_finish",
         {{REFUSED(hd_builder_finish(nullptr, w.diag, &module))}, {}, {}}},
        {"hd_event_create", {}},
        {"hd_event_destroy", {{}, {}, {DOES(hd_event_destroy(nullptr))}}},
        {"hd_event_record", {{}, {DOES(hd_event_record(nullptr))}, {}}},
        {"hd_event_wait", {{REFUSED(hd_event_wait(nullptr, 1))}, {}, {}}},
        {"hd_dlpack_argument",
         {{REFUSED(hd_dlpack_argument(nullptr, 0, nullptr, w.diag, nullptr,
                                      &memory)),
           REFUSED(hd_dlpack_argument(w.session, 0, nullptr, w.diag, nullptr,
                                      &memory))},
          {},
          {}}},
        {"hd_dlpack_managed",
         {{REFUSED(hd_dlpack_managed(nullptr, 0, nullptr, w.diag, nullptr,
                                     &memory)),
           REFUSED(hd_dlpack_managed(w.session, 0, nullptr, w.diag, nullptr,
                                     &memory))},
          {},
          {}}},
        {"hd_environment_create",
         {{REFUSED(hd_environment_create(w.diag, nullptr))}, {}, {}}},
        {"hd_environment_kind",
         {{REFUSED(hd_environment_kind(nullptr, w.diag, &kind)),
           REFUSED(hd_environment_kind("gpu", w.diag, &kind)),
           REFUSED(hd_environment_kind("cpu", w.diag, nullptr))},
          {},
          {}}},
        {"hd_environment_destroy",
         {{}, {}, {DOES(hd_environment_destroy(nullptr))}}},
    };
}

TEST(Api, EveryExportedFunctionHasARow)
{
    std::stringstream text;
    std::set<std::string> exported, rows;

    for (const auto &file : std::filesystem::directory_iterator(HEDDLE_HEADERS))
        text << std::ifstream(file.path()).rdbuf();
    std::string header = text.str();
    for (size_t at = 0;
         (at = header.find("HD_API", at)) != std::string::npos;) {
        size_t name = at = header.find_first_of(";(", at);

        while (IsOfWord(header[name - 1]))
            name--;
        if (header[at] == '(' && header.compare(name, 3, "hd_") == 0)
            exported.insert(header.substr(name, at - name));
    }
    for (const auto &row : Rows())
        rows.insert(row.first);
    EXPECT_GT(exported.size(), 60u);
    EXPECT_EQ(exported, rows);
}

TEST(Api, OlderCallersAreToldNoMoreThanTheyKnow)
{
    World w;
    Program p(
        "tensor program p\nparam m in 1..4\nmesh tp=1\nin %x : f32[m, 4]\n"
        "out %y : f32[m, 4]\n{\n    %y = call \"f\" %x\n}\n");
    hd_diag *diag = hd_diag_create();

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_EQ(hd_lower(nullptr, nullptr, nullptr, nullptr, diag),
              HD_ERROR_ARGUMENT);
    ExpectNoMoreThanItsSize<hd_stats>(
        "stats", [&](hd_stats *out) { hd_session_stats(w.session, out); });
    ExpectNoMoreThanItsSize<hd_program_info>(
        "info", [&](hd_program_info *out) { hd_module_info(p.module, out); });
    ExpectNoMoreThanItsSize<hd_axis_info>("axis", [&](hd_axis_info *out) {
        EXPECT_TRUE(hd_module_axis(p.module, 0, out));
    });
    ExpectNoMoreThanItsSize<hd_argument>("argument", [&](hd_argument *out) {
        EXPECT_TRUE(hd_module_argument(p.module, 0, out));
    });
    ExpectNoMoreThanItsSize<hd_size_info>("size", [&](hd_size_info *out) {
        EXPECT_TRUE(hd_module_size(p.module, 0, out));
    });
    ExpectNoMoreThanItsSize<hd_call_info>("call", [&](hd_call_info *out) {
        EXPECT_TRUE(hd_module_call(p.module, 0, out));
    });
    ExpectNoMoreThanItsSize<hd_message>("message", [&](hd_message *out) {
        EXPECT_TRUE(hd_diag_message(diag, 0, out));
    });
    ExpectNoMoreThanItsSize<hd_prediction>(
        "prediction",
        [&](hd_prediction *out) { hd_simulation_predict(w.simulation, out); });
    ExpectNoMoreThanItsSize<hd_interval>("interval", [&](hd_interval *out) {
        hd_simulation_interval(w.simulation, 0, out);
    });
    ExpectNoMoreThanItsSize<hd_machine>(
        "machine", [](hd_machine *out) { hd_machine_default(out); });
    ExpectNoMoreThanItsSize<hd_machine_origin>(
        "origin", [](hd_machine_origin *out) {
            hd_machine machine = HD_EMPTY(hd_machine);

            EXPECT_EQ(hd_machine_here("cpu", nullptr, &machine, out), HD_OK);
        });
    ExpectNoMoreThanItsSize<hd_tuned>("tuned", [&](hd_tuned *out) {
        EXPECT_EQ(hd_tune(w.group, w.tensor.module, nullptr, nullptr, out),
                  HD_OK);
    });
    ExpectNoMoreThanItsSize<hd_env_kind>("kind", [](hd_env_kind *out) {
        EXPECT_EQ(hd_environment_kind("cpu", nullptr, out), HD_OK);
    });
    ExpectNoMoreThanItsSize<hd_cache_stats>(
        "cache", [&](hd_cache_stats *out) { hd_cache_count(w.cache, out); });
    hd_diag_destroy(diag);
}

TEST(Api, WhatMustNotBeNullIsRefusedWithWords)
{
    World world;

    for (const auto &row : Rows()) {
        for (size_t i = 0; i < row.second.refused.size(); i++) {
            world.diag = nullptr;
            EXPECT_EQ(row.second.refused[i](world), HD_ERROR_ARGUMENT)
                << row.first << " " << i;
            world.diag = hd_diag_create();
            EXPECT_EQ(row.second.refused[i](world), HD_ERROR_ARGUMENT)
                << row.first << " " << i;
            EXPECT_EQ(hd_diag_errors(world.diag),
                      row.first == "hd_print" || row.first == "hd_print_json" ||
                              row.first == "hd_event_wait"
                          ? 0u
                          : 1u)
                << row.first << " " << i << hd_diag_text(world.diag);
            hd_diag_destroy(world.diag);
        }
    }
}

// The same list for a proof, a lowering and a session.
TEST(Api, ListsOfTransportsAreTakenWholeOrRefused)
{
    const char *const at[][2] = {
        {"tp=nccl,tp=sm", "transports 'tp=nccl,tp=sm': 'tp' is there twice"},
        {"tp=nccl,tp=nccl", "transports 'tp=nccl,tp=nccl': 'tp' is there"},
        {"tp=sm,", "transports 'tp=sm,': a comma stands between two axes"},
        {",tp=sm", "transports ',tp=sm': a comma stands between two axes"},
        {"tp=sm,,dp=sm", "transports 'tp=sm,,dp=sm': a comma stands between"},
        {",", "transports ',': a comma stands between two axes"},
        {"tp=sm,dq=sm", "transport 'dq=sm': 'dq' is no axis of the mesh of"},
        {"tp", "transport 'tp': 'tp' is no axis of the mesh of 't'"},
        {"tp=", "transport 'tp=': there are copy, sm and nccl"},
        {"tp=auto", "transport 'tp=auto': there are copy, sm and nccl"},
        {"dp=sm,tp=copy", ""},
        {"", ""}};

    for (auto &one : at) {
        World world;
        Program tensor{"tensor program t mesh tp=1, dp=1 in %x : f32[4] "
                       "out %y : f32[4] { %y = relu %x }"};
        Program host{"host program t mesh tp=1, dp=1 in %x : f32[4] "
                     "out %y : f32[4] { %y = relu %x }"};
        hd_lower_options lower = hd_lower_defaults();
        hd_check_options check = hd_check_defaults();
        hd_session_options open = hd_session_defaults();
        hd_session *session = nullptr;
        hd_status want = *one[1] != '\0' ? HD_ERROR_ARGUMENT : HD_OK;

        lower.axes = check.axes = open.axes = one[0];
        for (int call = 0; call < 3; call++) {
            hd_diag *diag = hd_diag_create();
            hd_status status =
                call == 0 ? hd_check(host.module, &check, diag)
                : call == 1
                    ? hd_lower(tensor.module, &lower, nullptr, nullptr, diag)
                    : hd_session_create(world.group, host.module, &open, diag,
                                        &session);
            std::string text = hd_diag_text(diag);

            EXPECT_EQ(status, want) << one[0] << call << text;
            EXPECT_NE(text.find(one[1]), std::string::npos) << text;
            hd_diag_destroy(diag);
        }
        hd_session_destroy(session);
    }
}

TEST(Api, WhatIsAllowedDoesNothing)
{
    World world;

    for (const auto &row : Rows())
        for (const auto &call : row.second.fine)
            call(world);
}

#ifndef NDEBUG
// In a process of its own, whose last words nobody hears.
bool Aborts(const std::function<void(World &)> &call, World &world)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) != nullptr)
            call(world);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(Api, WhatHasNoStatusAsserts)
{
    World world;

    for (const auto &row : Rows())
        for (size_t i = 0; i < row.second.asserted.size(); i++)
            EXPECT_TRUE(Aborts(row.second.asserted[i], world))
                << row.first << " " << i;
}
#endif

} // namespace
