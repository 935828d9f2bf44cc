// The cpu driver: ranks are processes of one host, streams are threads, and
// peers reach each other's memory through windows. This file is its table, and
// what the host does for a run: it gives each stream's thread a job.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cpu/cpu.h"

static void cpu_close(hd_device *device)
{
    if (device == NULL)
        return;
    hd_cpu_stop(device);
    if (device->header != NULL)
        hd_group_remove_doorbell(device->binding.group,
                                 &device->header->doorbell);
    hd_cpu_plan_free(device);
    hd_cpu_free(device);
    hd_cpu_blas_close(&device->blas);
    pthread_mutex_destroy(&device->failure.lock);
    pthread_mutex_destroy(&device->miscount.lock);
    free(device->stream);
    free(device);
}

static void init_stream(hd_device *device, hd_cpu_stream *stream, int index)
{
    stream->device = device;
    stream->index = index;
    stream->scratch.blas = &device->blas;
}

// Ranks map each other's memory.
static hd_status check_hosts(const hd_group *group, hd_diag *diag)
{
    for (int i = 1; i < hd_group_size(group); i++) {
        if (hd_group_leader(group, i) != 0)
            return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                           "the ranks of a cpu session must be on one host: "
                           "rank 0 is on %s, rank %d on %s",
                           hd_group_host(group, 0), i, hd_group_host(group, i));
    }
    return HD_OK;
}

static bool multiplies(const hd_steps *steps)
{
    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (steps->step[i].op->code == HD_OP_MATMUL)
            return true;
    }
    return false;
}

static hd_status cpu_open(const hd_binding *binding, hd_diag *diag,
                          hd_device **out)
{
    hd_device *device;

    HD_TRY(check_hosts(binding->group, diag));
    device = calloc(1, sizeof *device);
    if (device == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a session");
    pthread_mutex_init(&device->failure.lock, NULL);
    pthread_mutex_init(&device->miscount.lock, NULL);
    if (multiplies(binding->steps))
        hd_cpu_blas_open(&device->blas);
    device->binding = *binding;
    device->rank = hd_group_rank(binding->group);
    device->size = hd_group_size(binding->group);
    device->pool = hd_group_pool(binding->group);
    device->nstreams = (int)binding->module->streams + 1;
    device->stream = calloc((size_t)device->nstreams, sizeof *device->stream);
    if (device->stream == NULL) {
        device->nstreams = 0;
        cpu_close(device);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for streams");
    }
    for (int i = 0; i < device->nstreams; i++)
        init_stream(device, &device->stream[i], i);
    init_stream(device, &device->helper, HD_CPU_HELPER);
    *out = device;
    return HD_OK;
}

// All that may fail, so that `prepare` does not where all ranks fit.
static hd_status cpu_alloc(hd_device *device, hd_diag *diag, hd_fit *out)
{
    HD_TRY(hd_cpu_list(device, diag));
    HD_TRY(hd_cpu_fixed_check(device, diag));
    HD_TRY(hd_cpu_plan(device, diag));
    HD_TRY(hd_cpu_alloc(device, diag));
    if (hd_group_add_doorbell(device->binding.group,
                              &device->header->doorbell) != HD_OK)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a doorbell");
    HD_TRY(hd_cpu_start(device, diag));
    *out = (hd_fit){.fits = hd_pool_has_met(device->pool) &&
                            device->binding.fixed == NULL,
                    .digest = device->digest};
    return HD_OK;
}

static hd_status cpu_prepare(hd_device *device, hd_diag *diag)
{
    hd_status status = hd_cpu_fixed_meet(device, diag); // it is collective

    HD_TRY(hd_cpu_meet(device, diag));
    HD_TRY(status);
    return hd_cpu_plan_connect(device, diag);
}

static void cpu_settle(hd_device *device)
{
    hd_pool_meet(device->pool);
    device->settled = true;
}

// --------------------------------------------------------------- runs

// After a failure no stream may touch the caller's memory any more when the
// caller learns of it: what they follow is ended first.
static hd_status report(hd_device *device, hd_diag *diag)
{
    if (!hd_failure_is_set(&device->failure))
        return HD_OK;
    hd_cpu_stop(device);
    return hd_failure_report(&device->failure, &device->binding.module->source,
                             diag);
}

static void await_run(hd_device *device, uint64_t n)
{
    if (hd_cpu_await_run(device, n, 0))
        return;
    device->host_waits++;
    hd_cpu_await_run(device, n, INT64_MAX);
}

// Where the run finds an argument that is not dense memory of the caller's. A
// value is read now: the caller may change it when the call returns.
static void *pass(hd_device *device, hd_cpu_run *run, const hd_root *buffer,
                  const hd_passing *passing)
{
    int i = buffer->argument;
    hd_cpu_pack *pack = device->pack[i];

    if (passing->on_host) {
        memcpy(&run->value[i], run->argument[i],
               hd_dtype_size(buffer->buffer->type.dtype));
        run->argument[i] = &run->value[i];
    }
    if (!passing->strided)
        return run->argument[i];
    run->packed[i] = true;
    memcpy(pack->stride[run - device->run], passing->stride,
           sizeof passing->stride);
    return pack->memory;
}

static void take_argument(hd_device *device, hd_cpu_run *run,
                          const hd_root *buffer, void *argument,
                          const hd_passing *passing)
{
    int i = buffer->argument;

    run->argument[i] = argument;
    run->packed[i] = false;
    if (buffer->buffer->type.dtype == HD_DTYPE_EVENT) {
        run->event[i] = hd_event_issued(argument);
        run->reaches[i] = hd_event_issue(argument, device->events[i]);
        return;
    }
    if (passing != NULL)
        argument = pass(device, run, buffer, &passing[i]);
    if (!buffer->shared)
        run->base[buffer - device->buffer] = argument;
}

// What a run has of its own goes into the slot of the run that ended
// HD_CPU_RUNS ago.
static void take_arguments(hd_device *device, void *const *arguments,
                           const hd_passing *passing)
{
    hd_cpu_run *run = hd_cpu_run_of(device, device->runs);

    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];

        if (buffer->argument >= 0)
            take_argument(device, run, buffer, arguments[buffer->argument],
                          passing);
    }
}

static hd_status cpu_vary(hd_device *device, int variant,
                          const hd_module *module, const hd_steps *steps,
                          bool again, hd_diag *diag, bool *better)
{
    (void)again;
    (void)diag;
    *better = false;
    device->variant[variant].module = module;
    device->variant[variant].steps = steps;
    device->variant[variant].sizes = ++device->varied;
    return HD_OK;
}

static void take_sizes(hd_device *device, int variant)
{
    hd_cpu_run *run = hd_cpu_run_of(device, device->runs);

    run->module =
        variant >= 0 ? device->variant[variant].module : device->binding.module;
    run->steps =
        variant >= 0 ? device->variant[variant].steps : device->binding.steps;
    run->sizes = variant >= 0 ? device->variant[variant].sizes : 0;
    for (int i = 0; i < run->module->nsizes; i++)
        atomic_store_explicit(
            &device->header->sizes[device->runs % (2 * HD_CPU_RUNS)][i],
            run->module->size[i].now, memory_order_relaxed);
}

static hd_status cpu_run(hd_device *device, void *stream,
                         void *const *arguments, const hd_passing *passing,
                         int variant, hd_diag *diag, bool *captured)
{
    uint64_t n = device->runs + 1;

    (void)captured;
    if (stream != NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the cpu has no streams of a caller");
    if (n > HD_CPU_RUNS)
        await_run(device, n - HD_CPU_RUNS);
    HD_TRY(report(device, diag));
    device->runs = n;
    take_arguments(device, arguments, passing);
    take_sizes(device, variant);
    atomic_store_explicit(&device->header->runs, n, memory_order_relaxed);
    hd_cpu_issue_run(device, n);
    return HD_OK;
}

static hd_status cpu_finish(hd_device *device, hd_diag *diag)
{
    await_run(device, device->runs);
    HD_TRY(report(device, diag));
    return hd_failure_is_set(&device->miscount)
               ? hd_failure_report(&device->miscount,
                                   &device->binding.module->source, diag)
               : HD_OK;
}

static hd_status cpu_await(hd_device *device, uint64_t run, int64_t deadline,
                           hd_diag *diag, bool *over)
{
    *over = hd_cpu_await_run(device, run, deadline);
    return *over ? report(device, diag) : HD_OK;
}

static hd_status cpu_fail(hd_device *device, hd_status status, const char *text,
                          hd_diag *diag)
{
    hd_cpu_fail(device, status, text, "");
    return report(device, diag);
}

static hd_status cpu_take(hd_device *device, size_t bytes, hd_diag *diag,
                          void **out)
{
    (void)device;
    if (posix_memalign(out, 256, bytes > 0 ? bytes : 1) != 0)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %zu bytes",
                       bytes);
    return HD_OK;
}

static void cpu_give(hd_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static hd_status cpu_lend(hd_group *group, const char *where, size_t bytes,
                          hd_diag *diag, void **out)
{
    (void)where;
    return hd_pool_lend(hd_group_pool(group), bytes, diag, out);
}

static bool cpu_reclaim(hd_group *group, void *memory)
{
    return hd_pool_reclaim(hd_group_pool(group), memory);
}

static hd_status cpu_copy(hd_device *device, void *to, const void *from,
                          size_t bytes, hd_diag *diag)
{
    (void)device;
    (void)diag;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return HD_OK;
}

static void cpu_stats(const hd_device *device, hd_stats *stats)
{
    stats->allocations += device->allocations;
    stats->host_waits += device->host_waits;
    stats->bytes_sent = device->runs > 0 ? device->sending : 0;
    stats->matmul = device->blas.name;
}

static int cpu_ordinal(const hd_device *device)
{
    (void)device;
    return -1;
}

const hd_driver hd_driver_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .alloc = cpu_alloc,
    .tell = hd_cpu_tell,
    .hear = hd_cpu_hear,
    .export_handle = hd_cpu_export,
    .import_handle = hd_cpu_import,
    .prepare = cpu_prepare,
    .settle = cpu_settle,
    .vary = cpu_vary,
    .pack = hd_cpu_pack_argument,
    .run = cpu_run,
    .finish = cpu_finish,
    .await = cpu_await,
    .fail = cpu_fail,
    .take = cpu_take,
    .give = cpu_give,
    .lend = cpu_lend,
    .reclaim = cpu_reclaim,
    .copy = cpu_copy,
    .stats = cpu_stats,
    .close = cpu_close,
    .ordinal = cpu_ordinal,
};
