// What issuing a step costs beside the device's work: sessions on one rank,
// with a driver that does nothing, on a loop of 100,000 trips.
//
//   bench_dispatch
#include <stdio.h>
#include <string.h>

#include "base/diag.h"
#include "bench/bench.h"
#include "runtime/driver.h"

struct hd_device {
    int64_t steps; // seen, so that nothing is optimised away
};

enum { RUNS = 41 };

static hd_status null_open(const hd_binding *binding, hd_diag *diag,
                           hd_device **out)
{
    (void)binding;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? HD_OK : hd_fail(diag, HD_NO_MEMORY, "out of memory");
}

static hd_status null_call(hd_device *device, hd_diag *diag)
{
    (void)device;
    (void)diag;
    return HD_OK;
}

static hd_status null_export(hd_device *device, int peer, hd_diag *diag,
                             hd_handle *out)
{
    (void)peer;
    out->fd = -1;
    return null_call(device, diag);
}

static hd_status null_import(hd_device *device, int peer,
                             const hd_handle *handle, hd_diag *diag)
{
    (void)peer;
    (void)handle;
    return null_call(device, diag);
}

static hd_status null_begin(hd_device *device, void *stream,
                            void *const *arguments, hd_diag *diag, bool *whole)
{
    (void)stream;
    (void)arguments;
    (void)whole;
    return null_call(device, diag);
}

static hd_status null_take(hd_device *device, size_t bytes, hd_diag *diag,
                           void **out)
{
    (void)bytes;
    *out = device;
    return null_call(device, diag);
}

static void null_give(hd_device *device, void *memory)
{
    (void)device;
    (void)memory;
}

static hd_status null_copy(hd_device *device, void *to, const void *from,
                           size_t bytes, hd_diag *diag)
{
    (void)to;
    (void)from;
    (void)bytes;
    return null_call(device, diag);
}

static hd_status null_step(hd_device *device, const hd_step *step,
                           hd_diag *diag)
{
    (void)diag;
    device->steps += step->nspans > 0;
    return HD_OK;
}

static hd_status null_steps(hd_device *device, const hd_step *steps, int n,
                            hd_diag *diag)
{
    (void)n;
    return null_step(device, steps, diag);
}

static void null_stats(const hd_device *device, hd_stats *stats)
{
    (void)device;
    stats->matmul = "none";
}

static void null_close(hd_device *device)
{
    free(device);
}

static const hd_driver null_driver = {
    .name = "null",
    .open = null_open,
    .alloc = null_call,
    .export_handle = null_export,
    .import_handle = null_import,
    .prepare = null_call,
    .begin = null_begin,
    .compute = null_step,
    .transfer = null_steps,
    .sync = null_step,
    .end = null_call,
    .finish = null_call,
    .take = null_take,
    .give = null_give,
    .copy = null_copy,
    .stats = null_stats,
    .close = null_close,
};

static const char program[] =
    "heddle 1\nhost program loop\nmesh tp=1\nstreams 4\n"
    "in %a : f32[4, 16]\nout %c : f32[4, 16]\ntemp %e : event[4]\n{\n"
    "    fork\n    for j in 0..100000 {\n        on stream j mod 4 {\n"
    "            %c[j mod 4] = relu %a[j mod 4]\n"
    "            %e[j mod 4] = record\n            wait %e[j mod 4]\n"
    "        }\n    }\n    join\n}\n";

static hd_status measure(hd_session *session, void *const *arguments,
                         hd_diag *diag)
{
    double samples[RUNS];
    hd_stats stats;

    for (int i = 0; i < RUNS; i++) {
        double start = bench_now();
        hd_status status = hd_session_run(session, arguments, 2, diag);

        if (status == HD_OK)
            status = hd_session_finish(session, diag);
        if (status != HD_OK)
            return status;
        samples[i] = bench_now() - start;
    }
    hd_session_stats(session, &stats);
    printf("%-44s %9.4f us       p5 %9.4f  p95 %9.4f  goal 0.3\n",
           "dispatch to a driver that does nothing, a step",
           bench_percentile(samples, RUNS, 0.5) * 1e6 / (double)stats.steps,
           bench_percentile(samples, RUNS, 0.05) * 1e6 / (double)stats.steps,
           bench_percentile(samples, RUNS, 0.95) * 1e6 / (double)stats.steps);
    fflush(stdout);
    return HD_OK;
}

static hd_status rank_main(void *context, hd_group *group)
{
    hd_diag *diag = context;
    hd_session_options options = hd_session_defaults();
    float a[64] = {1}, c[64];
    void *arguments[] = {a, c};
    hd_module *module;
    hd_session *session;
    hd_status status =
        hd_parse("loop", program, strlen(program), NULL, 0, diag, &module);

    if (status != HD_OK)
        return status;
    status =
        hd_session_open(group, module, &options, &null_driver, diag, &session);
    if (status == HD_OK) {
        status = measure(session, arguments, diag);
        hd_session_destroy(session);
    }
    hd_module_destroy(module);
    return status;
}

int main(void)
{
    hd_diag *diag = hd_diag_create();
    hd_status status = hd_launch(1, 30, 60, rank_main, diag, diag);

    if (status != HD_OK)
        fputs(hd_diag_text(diag), stderr);
    hd_diag_destroy(diag);
    return status != HD_OK;
}
