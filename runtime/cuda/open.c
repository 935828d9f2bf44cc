// Opens a device for a session on its group's home, and closes it again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/log.h"
#include "base/setting.h"
#include "runtime/cuda/device/device.h"
#include "runtime/cuda/issue/capture.h"
#include "runtime/cuda/issue/run.h"
#include "runtime/cuda/issue/sizes.h"
#include "runtime/cuda/libraries/attends.h"
#include "runtime/cuda/libraries/products.h"
#include "runtime/cuda/plan/make.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/transfers/transport.h"
#include "runtime/cuda/vendor/library.h"

// -------------------------------------------------------------- hosts

// "node=nccl,tp=copy": the axes' transports, with the one that there is between
// hosts.
static void write_transports(const hd_binding *binding, char *out, size_t room)
{
    const hd_module *module = binding->module;
    size_t length = 0;
    int a, b;

    for (int axis = 0; axis < module->naxes && length < room; axis++) {
        hd_transport transport = hd_binding_spans(binding, axis, &a, &b)
                                     ? HD_TRANSPORT_NCCL
                                     : binding->transport[axis];

        length += (size_t)snprintf(out + length, room - length, "%s%s=%s",
                                   axis > 0 ? "," : "", module->axis[axis].name,
                                   hd_transport_text(transport));
    }
}

// Devices of several hosts do not map each other's memory.
static hd_status check_hosts(const hd_binding *binding, hd_diag *diag)
{
    const hd_group *group = binding->group;
    char instead[sizeof(((hd_device *)0)->transports)];
    int a, b;

    for (int axis = 0; axis < binding->module->naxes; axis++) {
        if (hd_cuda_transports[binding->transport[axis]].hosts ||
            !hd_binding_spans(binding, axis, &a, &b))
            continue;
        write_transports(binding, instead, sizeof instead);
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "axis %s is between hosts (rank %d on %s, rank %d on "
                       "%s), where '%s' does not go: use --transport %s",
                       binding->module->axis[axis].name, a,
                       hd_group_host(group, a), b, hd_group_host(group, b),
                       hd_transport_text(binding->transport[axis]), instead);
    }
    return HD_OK;
}

// ------------------------------------------------------------ opening

static hd_status open_streams(hd_device *device, hd_diag *diag)
{
    // The caller's, the work streams and the helper.
    int n = (int)device->binding.module->streams + 2;

    device->stream = calloc((size_t)n, sizeof *device->stream);
    if (device->stream == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d streams", n);
    device->nstreams = n;
    HD_TRY(hd_cuda_home_need(device, n, diag));
    for (int i = 1; i < n; i++)
        device->stream[i].stream = device->home->queue[i].stream;
    return HD_OK;
}

static hd_status open_all(hd_device *device, hd_diag *diag)
{
    hd_status status;
    int mode;

    HD_TRY(hd_cuda_home_open(device, diag));
    HD_TRY(hd_cuda_enter(device, diag, &mode));
    status = open_streams(device, diag);
    hd_cuda_leave(device, mode);
    return status;
}

// A test of one kernel that is of the other would prove nothing.
static hd_status read_shots(hd_diag *diag, hd_cuda_shots *out)
{
    const char *text = hd_setting("HEDDLE_SHOTS");

    if (text == NULL || *text == '\0')
        *out = HD_CUDA_SHOTS_AUTO;
    else if (strcmp(text, "1") == 0)
        *out = HD_CUDA_SHOTS_ONE;
    else if (strcmp(text, "2") == 0)
        *out = HD_CUDA_SHOTS_TWO;
    else
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "HEDDLE_SHOTS is '%s', not 1 or 2", text);
    return HD_OK;
}

static void tell_transports(const hd_device *device)
{
    const hd_binding *binding = &device->binding;
    const hd_group *group = binding->group;
    int a, b;

    hd_log(HD_SEVERITY_NOTE, "rank %d: transfers of '%s' go by %s",
           device->rank, binding->module->name, device->transports);
    for (int axis = 0; axis < binding->module->naxes; axis++) {
        if (hd_binding_spans(binding, axis, &a, &b))
            hd_log(HD_SEVERITY_NOTE,
                   "rank %d: axis %s is between hosts (rank %d on %s, rank %d "
                   "on %s), where %s alone goes",
                   device->rank, binding->module->axis[axis].name, a,
                   hd_group_host(group, a), b, hd_group_host(group, b),
                   hd_transport_text(HD_TRANSPORT_NCCL));
    }
}

static void tell_cache(const hd_disk *cache)
{
    hd_disk_survey found;

    hd_disk_look(cache, &found);
    if (*found.reason != '\0')
        hd_log(HD_SEVERITY_WARNING,
               "kernels and tuned plans are not kept on disk, but made anew by "
               "each session: %s%s%s",
               cache->folder, *cache->folder != '\0' ? ": " : "", found.reason);
}

hd_status hd_cuda_open(const hd_binding *binding, hd_diag *diag,
                       hd_device **out)
{
    hd_device *device;
    hd_cuda_shots shots = HD_CUDA_SHOTS_AUTO;
    hd_status status;

    HD_TRY(read_shots(diag, &shots));
    HD_TRY(check_hosts(binding, diag));
    device = calloc(1, sizeof *device);
    if (device == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a session");
    device->binding = *binding;
    device->shots = shots;
    hd_disk_open(&device->cache);
    device->rank = hd_group_rank(binding->group);
    device->size = hd_group_size(binding->group);
    write_transports(binding, device->transports, sizeof device->transports);
    if (hd_log_on()) {
        tell_transports(device);
        tell_cache(&device->cache);
    }
    status = open_all(device, diag);
    if (status != HD_OK) {
        hd_cuda_close(device);
        return status;
    }
    *out = device;
    return HD_OK;
}

// ------------------------------------------------------------- closing

static void close_marks(hd_device *device)
{
    for (int i = 0; i < device->nstreams; i++) {
        hd_cuda_marks *marks = &device->stream[i].marks;

        for (int k = 0; marks->event != NULL && k < marks->room; k++) {
            if (marks->event[k] != NULL)
                device->cu.event_destroy(marks->event[k]);
        }
        free(marks->event);
    }
}

static void free_all(hd_device *device)
{
    hd_cuda_plans_free(device);
    hd_cuda_products_close(device);
    hd_cuda_attends_close(device);
    hd_cuda_captures_close(device);
    hd_cuda_free(device);
    close_marks(device);
}

// Calls that free block while a stream waits, so a device that did not come to
// rest, or whose NCCL does not come to an end, keeps what it has.
static void close_device(hd_device *device)
{
    int mode;
    bool entered = hd_cuda_enter(device, NULL, &mode) == HD_OK;

    hd_cuda_runs_close(device);
    hd_cuda_transports_close(device); // NCCL's waits for graphs to go
    if (!hd_cuda_is_stuck(device))
        free_all(device);
    if (entered)
        hd_cuda_leave(device, mode);
}

void hd_cuda_close(hd_device *device)
{
    if (device == NULL)
        return;
    hd_cuda_watch_stop(device); // may yet find that the device is stuck
    hd_cuda_sizes_close(device);
    if (device->home != NULL && !hd_cuda_is_stuck(device))
        close_device(device);
    hd_cuda_kernels_leave(device);
    hd_cuda_home_leave(device);
    free(device->stream);
    free(device);
}
