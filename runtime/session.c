// Sessions: a host program bound to a rank, a device and memory. Creation is
// collective and uniform: what is exchanged follows from the program alone, and
// each phase ends in an agreement, so that it fails on all ranks or on none.
// After that a run is the driver's: no allocation, no message, no wait.
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/setting.h"
#include "base/sized.h"
#include "runtime/agree.h"
#include "runtime/argument.h"
#include "runtime/completion.h"
#include "runtime/driver.h"
#include "runtime/range.h"
#include "runtime/ranks/doorbell.h"
#include "runtime/ranks/group.h"

bool hd_binding_spans(const hd_binding *binding, int axis, int *a, int *b)
{
    const hd_module *module = binding->module;

    for (int rank = 0; rank < module->nranks; rank++) {
        int first = (int)hd_mesh_peer(module, rank, axis, 0);

        if (hd_group_leader(binding->group, rank) ==
            hd_group_leader(binding->group, first))
            continue;
        *a = first;
        *b = rank;
        return true;
    }
    return false;
}

// The program as runs of these sizes have it.
typedef struct variant {
    hd_module module;
    hd_steps steps; // owned
    uint64_t used;  // the last run that had it; 0 if none is here
    bool better;    // it is made again where its sizes come back
    bool past;      // it was: its sizes are another one's
} variant;

struct hd_session {
    const hd_driver *driver;
    hd_device *device; // owned
    hd_binding binding;
    hd_module full;    // with room for all sizes
    hd_steps steps;    // owned, of that
    variant *variant;  // owned: HD_VARIANTS; NULL if runs are given no sizes
    hd_ranges *ranges; // owned; NULL if no tool listens
    hd_callees calls;  // owned
    hd_arguments arguments;
    uint64_t runs;
    uint64_t handle_exchanges;
    uint64_t waits;            // of hd_session_wait that blocked
    hd_completion *completion; // owned; NULL until somebody asks
    atomic_bool used;          // by a call of some thread
    bool dead;                 // a run failed
};

// ------------------------------------------------------------ creation

static hd_status check_binding(const hd_group *group, const hd_module *module,
                               hd_diag *diag)
{
    if (module == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_session_create: 'module' is NULL");
    if (module->stage != HD_STAGE_HOST)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "'%s' is not a complete host program: lower it first",
                       module->name);
    if (hd_group_size(group) != module->nranks)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the mesh of '%s' has %d ranks, the group %d",
                       module->name, (int)module->nranks, hd_group_size(group));
    return HD_OK;
}

static hd_status open_variants(hd_session *session, hd_diag *diag)
{
    if (session->full.nsizes == 0)
        return HD_OK;
    session->variant = calloc(HD_VARIANTS, sizeof *session->variant);
    if (session->variant == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for sizes of runs");
    return HD_OK;
}

static hd_status build_locally(hd_session *session,
                               const hd_session_options *options, hd_diag *diag,
                               hd_fit *out)
{
    hd_binding *binding = &session->binding;
    const hd_driver *driver = session->driver;

    session->full = hd_module_full(binding->module);
    binding->module = &session->full;
    HD_TRY(hd_callees_create(binding->module, options->calls, options->ncalls,
                             diag, &session->calls));
    binding->calls = &session->calls;
    HD_TRY(open_variants(session, diag));
    HD_TRY(hd_arguments_list(binding->module, diag, &session->arguments));
    HD_TRY(hd_steps_collect(binding->module, hd_group_rank(binding->group),
                            diag, &session->steps));
    binding->steps = &session->steps;
    session->ranges = hd_ranges_open(binding->module, binding->steps);
    binding->ranges = session->ranges;
    HD_TRY(driver->open(binding, diag, &session->device));
    return driver->alloc(session->device, diag, out);
}

// HEDDLE_CHAOS is a seed; anything that is no number is refused, since a test
// that runs without chaos while it seems to have some would prove nothing.
static hd_status read_chaos(hd_binding *binding, hd_diag *diag)
{
    const char *text = hd_setting("HEDDLE_CHAOS");
    char *end;

    if (text == NULL || *text == '\0')
        return HD_OK;
    errno = 0;
    binding->seed = strtoull(text, &end, 0);
    if (*end != '\0' || errno != 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "HEDDLE_CHAOS is '%s', not a number", text);
    binding->chaos = true;
    return HD_OK;
}

static void settle_transports(hd_binding *binding)
{
    int a, b;

    for (int axis = 0; axis < binding->module->naxes; axis++) {
        if (binding->transport[axis] == HD_TRANSPORT_AUTO)
            binding->transport[axis] = hd_binding_spans(binding, axis, &a, &b)
                                           ? HD_TRANSPORT_NCCL
                                           : HD_TRANSPORT_COPY;
    }
}

static hd_status read_transports(hd_binding *binding,
                                 const hd_session_options *options,
                                 hd_diag *diag)
{
    HD_TRY(hd_transports_read(binding->module, options->transport,
                              options->axes, diag, binding->transport));
    settle_transports(binding);
    return HD_OK;
}

// What is wrong with one rank's call is refused here, not at once, so that the
// other ranks hear of it.
static hd_status check_options(const hd_session *session,
                               const hd_session_options *options,
                               hd_session **out, hd_diag *diag)
{
    if (out == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_session_create: 'out' is NULL");
    if (session->driver == NULL)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "there is no device '%s'; there are 'cpu', 'cuda' and "
                       "'cuda:N'",
                       options->device != NULL ? options->device : "");
    if (!(options->timeout > 0))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "a timeout of %g s is not above 0", options->timeout);
    if (options->graph && options->capturable)
        return hd_fail(
            diag, HD_ERROR_ARGUMENT,
            "a session with 'graph' has graphs of its own: it cannot "
            "be 'capturable' too");
    return HD_OK;
}

static hd_status build(hd_session *session, const hd_exchange *exchange,
                       const hd_session_options *options, hd_session **out)
{
    hd_binding *binding = &session->binding;
    hd_diag *diag = exchange->diag;
    hd_agreement agreement = {
        .exchange = exchange, .driver = session->driver, .binding = binding};
    hd_status status = check_options(session, options, out, diag);

    if (status == HD_OK)
        status = check_binding(binding->group, binding->module, diag);
    if (status == HD_OK)
        status = read_chaos(binding, diag);
    if (status == HD_OK)
        status = read_transports(binding, options, diag);
    if (status == HD_OK)
        status = hd_arguments_fix(&session->arguments, binding->module,
                                  options->fixed, options->nfixed, diag);
    binding->fixed = session->arguments.fixed;
    if (status == HD_OK)
        status = hd_agree_bind(&agreement);
    if (status == HD_OK)
        status = build_locally(session, options, diag, &agreement.fit);
    agreement.device = session->device;
    status = hd_agree_greet(&agreement, status);
    if (status == HD_OK)
        status = hd_agree_prepare(&agreement);
    session->handle_exchanges = agreement.handle_exchanges;
    hd_agree_end(&agreement);
    return status;
}

const hd_driver *hd_driver_find(const char *device)
{
    if (device == NULL)
        return NULL;
    if (strcmp(device, "cpu") == 0)
        return &hd_driver_cpu;
    if (strncmp(device, "cuda", 4) != 0)
        return NULL;
    device += 4;
    if (*device == ':' && device[1] != '\0')
        device += 1 + strspn(device + 1, "0123456789");
    return *device == '\0' ? &hd_driver_cuda : NULL;
}

const char *hd_driver_where(const char *device)
{
    const char *colon = device != NULL ? strchr(device, ':') : NULL;

    return colon != NULL ? colon + 1 : "";
}

hd_status hd_session_open(hd_group *group, const hd_module *module,
                          const hd_session_options *options,
                          const hd_driver *driver, hd_diag *diag,
                          hd_session **out)
{
    // Ranks whose own timeout is sound hear of one that is not.
    double timeout =
        options->timeout > 0 ? options->timeout : hd_session_defaults().timeout;
    hd_exchange exchange;
    hd_session *session;
    hd_status status;

    HD_TRY(hd_group_check(group, diag));
    exchange = hd_exchange_begin(group, HD_CALL_SESSION, timeout, diag);
    session = calloc(1, sizeof *session);
    if (session == NULL)
        return hd_agree_refuse(&exchange, "no memory for a session");
    session->driver = driver;
    session->binding = (hd_binding){.group = group,
                                    .module = module,
                                    .timeout = timeout,
                                    .times = options->times,
                                    .where = hd_driver_where(options->device),
                                    .graph = options->graph,
                                    .capturable = options->capturable,
                                    .tune = options->tune,
                                    .deterministic = options->deterministic};
    status = build(session, &exchange, options, out);
    if (status != HD_OK) {
        hd_session_destroy(session);
        return status;
    }
    *out = session;
    return HD_OK;
}

bool hd_is_device(const char *name)
{
    return hd_driver_find(name) != NULL;
}

hd_status hd_session_create(hd_group *group, const hd_module *module,
                            const hd_session_options *options, hd_diag *diag,
                            hd_session **out)
{
    hd_session_options with = hd_session_defaults();

    HD_REQUIRE(diag, group);
    HD_TRY(
        hd_sized_read("hd_session_create", options, sizeof with, diag, &with));
    return hd_session_open(group, module, &with, hd_driver_find(with.device),
                           diag, out);
}

void hd_session_destroy(hd_session *session)
{
    // A process that was forked since has none of its threads.
    if (session == NULL || hd_group_is_copy(session->binding.group))
        return;
    if (session->device != NULL) {
        // What fails now has nobody left to tell.
        if (session->runs > 0 && !session->dead)
            hd_ignore(session->driver->finish(session->device, NULL));
        hd_completion_close(session->completion);
        session->driver->close(session->device);
    }
    hd_ranges_close(session->ranges);
    hd_callees_free(&session->calls);
    for (int i = 0; session->variant != NULL && i < HD_VARIANTS; i++)
        hd_steps_free(&session->variant[i].steps);
    free(session->variant);
    hd_steps_free(&session->steps);
    hd_arguments_free(&session->arguments);
    free(session);
}

// ----------------------------------------------------------------- calls

static hd_status leave(hd_session *session, hd_status status)
{
    atomic_store_explicit(&session->used, false, memory_order_release);
    return status;
}

// Of an aborted group no call does anything, and none waits to hear of it: a
// session that has no run under way would else be told by its streams alone.
static hd_status end_with_group(hd_session *session, hd_diag *diag)
{
    char text[HD_GROUP_TEXT];
    hd_status status = hd_group_end(session->binding.group, text);

    session->dead = true;
    return session->driver->fail(session->device, status, text, diag);
}

// A session is used by one thread at a time. Two that do not know of each other
// would mix their runs, or worse: the second is refused.
static hd_status enter(hd_session *session, hd_diag *diag)
{
    HD_TRY(hd_group_check_process(session->binding.group, diag));
    if (atomic_exchange_explicit(&session->used, true, memory_order_acquire))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the session of '%s' is used by two threads at once",
                       session->binding.module->name);
    if (hd_group_is_aborted(session->binding.group))
        return leave(session, end_with_group(session, diag));
    return HD_OK;
}

// ----------------------------------------------------------------- runs

static hd_status check_alive(const hd_session *session, hd_diag *diag)
{
    if (session->dead)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "a run of this session has failed: it may only be "
                       "destroyed");
    return HD_OK;
}

static bool has_sizes(const variant *v, const int64_t *sizes)
{
    for (int i = 0; i < v->module.nsizes; i++)
        if (v->module.size[i].now != sizes[i])
            return false;
    return v->used > 0 && !v->past;
}

// The one that has these sizes; -1 if none has.
static int find_variant(const hd_session *session, const int64_t *sizes)
{
    for (int i = 0; i < HD_VARIANTS; i++)
        if (has_sizes(&session->variant[i], sizes))
            return i;
    return -1;
}

// The one that was used the longest ago: there are more than runs under way, so
// that none of these has it.
static int find_oldest(const hd_session *session)
{
    int oldest = 0;

    for (int i = 0; i < HD_VARIANTS; i++)
        if (session->variant[i].used < session->variant[oldest].used)
            oldest = i;
    return oldest;
}

// A run that is under way may have a variant that is made again, so it is
// another one that is.
static hd_status make_variant(hd_session *session, const int64_t *sizes,
                              bool again, hd_diag *diag, int *out)
{
    variant *v;

    *out = find_oldest(session);
    v = &session->variant[*out];
    v->used = 0;
    v->past = false;
    hd_steps_free(&v->steps);
    v->steps = (hd_steps){0};
    v->module = hd_module_sized(&session->full, sizes);
    HD_TRY(hd_steps_collect(&v->module, hd_group_rank(session->binding.group),
                            diag, &v->steps));
    return session->driver->vary(session->device, *out, &v->module, &v->steps,
                                 again, diag, &v->better);
}

static hd_status take_sizes(hd_session *session, const int64_t *sizes,
                            hd_diag *diag, int *out)
{
    bool again;

    *out = -1;
    if (session->variant == NULL)
        return HD_OK;
    *out = find_variant(session, sizes);
    again = *out >= 0 && session->variant[*out].better;
    if (again)
        session->variant[*out].past = true;
    if (*out < 0 || again)
        HD_TRY(make_variant(session, sizes, again, diag, out));
    session->variant[*out].used = session->runs + 1;
    return HD_OK;
}

// Before anything begins: that there is no memory is no failure of the session.
static hd_status pack_arguments(hd_session *session, const hd_passing *passing,
                                hd_diag *diag)
{
    for (size_t i = 0; passing != NULL && i < session->arguments.n; i++) {
        if (passing[i].strided)
            HD_TRY(session->driver->pack(session->device, i, diag));
    }
    return HD_OK;
}

static hd_status run(hd_session *session, void *const *arguments,
                     size_t narguments, const hd_run_options *options,
                     hd_diag *diag)
{
    hd_run_options with = HD_EMPTY(hd_run_options);
    const hd_passing *passing;
    hd_status status;
    bool captured = false;
    int variant = -1;

    HD_TRY(hd_sized_read("hd_session_run", options, sizeof with, diag, &with));
    HD_TRY(check_alive(session, diag));
    HD_TRY(hd_arguments_check(&session->arguments, arguments, narguments, &with,
                              diag, &passing));
    HD_TRY(
        hd_module_check_sizes(&session->full, with.sizes, with.nsizes, diag));
    HD_TRY(pack_arguments(session, passing, diag));
    HD_TRY(take_sizes(session, with.sizes, diag, &variant));
    session->runs++;
    hd_ranges_run(session->ranges, session->runs);
    status = session->driver->run(session->device, with.stream, arguments,
                                  passing, variant, diag, &captured);
    hd_ranges_end(session->ranges);
    // A driver refuses what it was given before it begins anything; and what is
    // captured begins when the caller says so.
    if (status == HD_ERROR_ARGUMENT || captured)
        session->runs--;
    else
        session->dead = status != HD_OK;
    return status;
}

hd_status hd_session_run(hd_session *session, void *const *arguments,
                         size_t narguments, const hd_run_options *options,
                         hd_diag *diag)
{
    HD_REQUIRE(diag, session);
    HD_TRY(enter(session, diag));
    return leave(session, run(session, arguments, narguments, options, diag));
}

static hd_status finish(hd_session *session, hd_diag *diag)
{
    hd_status status = session->driver->finish(session->device, diag);

    if (status != HD_OK)
        session->dead = true;
    return status;
}

hd_status hd_session_finish(hd_session *session, hd_diag *diag)
{
    HD_REQUIRE(diag, session);
    HD_TRY(enter(session, diag));
    return leave(session, finish(session, diag));
}

// ----------------------------------------------------------- completion

// What there is to tell of runs that are over, hd_session_finish tells, without
// blocking then.
static hd_status await_runs(hd_session *session, int64_t deadline,
                            hd_diag *diag, bool *done)
{
    hd_status status = session->driver->await(session->device, session->runs,
                                              deadline, NULL, done);

    return *done || status != HD_OK ? finish(session, diag) : HD_OK;
}

static hd_status wait_for(hd_session *session, double seconds, hd_diag *diag,
                          bool *done)
{
    HD_TRY(await_runs(session, 0, diag, done));
    if (*done || !(seconds > 0))
        return HD_OK;
    session->waits++;
    return await_runs(session, hd_clock_after(seconds), diag, done);
}

hd_status hd_session_wait(hd_session *session, double seconds, hd_diag *diag,
                          bool *done)
{
    hd_status status;

    HD_REQUIRE(diag, session);
    HD_REQUIRE(diag, done);
    status = enter(session, diag);
    if (status == HD_OK)
        return leave(session, wait_for(session, seconds, diag, done));
    if (status != HD_ERROR_ARGUMENT)
        *done = true; // what has failed is done
    return status;
}

hd_status hd_session_query(hd_session *session, hd_diag *diag, bool *done)
{
    return hd_session_wait(session, 0, diag, done);
}

static hd_status need_completion(hd_session *session, hd_diag *diag)
{
    return session->completion != NULL
               ? HD_OK
               : hd_completion_open(session->driver, session->device, diag,
                                    &session->completion);
}

hd_status hd_session_descriptor(hd_session *session, hd_diag *diag, int *fd)
{
    hd_status status;

    HD_REQUIRE(diag, session);
    HD_REQUIRE(diag, fd);
    HD_TRY(enter(session, diag));
    status = need_completion(session, diag);
    if (status == HD_OK)
        status = hd_completion_descriptor(session->completion, session->runs,
                                          diag, fd);
    return leave(session, status);
}

hd_status hd_session_notify(hd_session *session, hd_notify_fn *fn,
                            void *context, hd_diag *diag)
{
    hd_status status;

    HD_REQUIRE(diag, session);
    if (fn == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "there is no function to notify");
    HD_TRY(enter(session, diag));
    status = need_completion(session, diag);
    if (status == HD_OK)
        status = hd_completion_notify(session->completion, session->runs, fn,
                                      context, diag);
    return leave(session, status);
}

const hd_module *hd_session_module(const hd_session *session)
{
    return &session->full;
}

int hd_session_ordinal(const hd_session *session)
{
    return session->driver->ordinal(session->device);
}

// --------------------------------------------------------------- memory

hd_status hd_session_alloc(hd_session *session, size_t bytes, hd_diag *diag,
                           void **out)
{
    HD_REQUIRE(diag, session);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_group_check(session->binding.group, diag));
    return session->driver->take(session->device, bytes, diag, out);
}

void hd_session_free(hd_session *session, void *memory)
{
    assert(session != NULL || memory == NULL);
    if (memory != NULL && !hd_group_is_copy(session->binding.group))
        session->driver->give(session->device, memory);
}

static hd_status copy(hd_session *session, void *to, const void *from,
                      size_t bytes, hd_diag *diag)
{
    if (session->runs > 0)
        HD_TRY(finish(session, diag));
    return session->driver->copy(session->device, to, from, bytes, diag);
}

hd_status hd_session_copy(hd_session *session, void *to, const void *from,
                          size_t bytes, hd_diag *diag)
{
    HD_REQUIRE(diag, session);
    if (bytes > 0) {
        HD_REQUIRE(diag, to);
        HD_REQUIRE(diag, from);
    }
    HD_TRY(enter(session, diag));
    return leave(session, copy(session, to, from, bytes, diag));
}

void hd_session_stats(const hd_session *session, hd_stats *out)
{
    hd_stats stats = HD_EMPTY(hd_stats);

    assert(session != NULL && out != NULL);
    stats.matmul = stats.transport = stats.attention = "";
    stats.runs = session->runs;
    stats.steps = session->runs > 0 ? (uint64_t)session->steps.nsteps : 0;
    stats.handle_exchanges = session->handle_exchanges;
    stats.host_waits = session->waits;
    session->driver->stats(session->device, &stats);
    hd_sized_write(&stats, sizeof stats, out);
}
