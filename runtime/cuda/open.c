// Opens a device for a session: the vendor's libraries, the context and the
// streams; and closes it again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/log.h"
#include "base/setting.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/library.h"
#include "runtime/cuda/products.h"
#include "runtime/cuda/sizes.h"
#include "runtime/cuda/transport.h"

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

// Which of the ranks of its host this one is.
static int local_rank(const hd_device *device)
{
    const hd_group *group = device->binding.group;
    int n = 0;

    for (int i = 0; i < device->rank; i++)
        n += hd_group_leader(group, i) == hd_group_leader(group, device->rank);
    return n;
}

// ---------------------------------------------------------- libraries

static hd_status open_cuda(hd_device *device, hd_diag *diag)
{
    hd_cu_result result;

    HD_TRY(
        hd_library_open(&hd_cuda_library, &device->cu, diag, &device->library));
    result = device->cu.init(0);
    if (result == HD_CU_NO_DEVICE)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "the CUDA driver at %s sees no device",
                       device->library.path);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "init");
    return HD_OK;
}

hd_status hd_cuda_error(hd_device *device, hd_cu_result result, hd_diag *diag,
                        const char *call)
{
    const char *name = NULL, *words = NULL;

    if (device->cu.error_name(result, &name) != HD_CU_SUCCESS || name == NULL)
        name = "an unknown error";
    if (device->cu.error_string(result, &words) != HD_CU_SUCCESS ||
        words == NULL)
        words = "the driver has no message for it";
    return hd_fail(
        diag,
        result == HD_CU_OUT_OF_MEMORY ? HD_ERROR_NO_MEMORY : HD_ERROR_SYSTEM,
        "rank %d: CUDA refused '%s': %s (%s)", device->rank, call, name, words);
}

// ------------------------------------------------------------ context

// A thread's own capture, or one of another thread in the global mode, has CUDA
// refuse what asks the device for anything outside of streams, and end the
// capture too.
hd_status hd_cuda_enter(hd_device *device, hd_diag *diag, int *mode)
{
    hd_cu_result result;

    HD_CUDA_TRY(device, diag, context_push, device->context);
    *mode = HD_CU_CAPTURE_RELAXED;
    result = device->cu.capture_mode(mode);
    if (result == HD_CU_SUCCESS)
        return HD_OK;
    device->cu.context_pop(&(hd_cu_context){0});
    return hd_cuda_error(device, result, diag, "capture_mode");
}

void hd_cuda_leave(hd_device *device, int mode)
{
    device->cu.capture_mode(&mode);
    device->cu.context_pop(&(hd_cu_context){0});
}

static hd_status choose_device(hd_device *device, hd_diag *diag)
{
    const char *where = device->binding.where;
    int count = 0;
    long number;

    HD_CUDA_TRY(device, diag, device_count, &count);
    if (count < 1)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "the CUDA driver at %s sees no device",
                       device->library.path);
    number = local_rank(device) % count;
    if (*where != '\0') { // digits: the session would have no driver else
        number = strtol(where, NULL, 10);
        if (number >= count)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "there is no device 'cuda:%s'; there are cuda:0 to "
                           "cuda:%d",
                           where, count - 1);
    }
    HD_CUDA_TRY(device, diag, device_get, &device->ordinal, (int)number);
    HD_CUDA_TRY(device, diag, primary_retain, &device->context,
                device->ordinal);
    device->retained = true;
    return HD_OK;
}

// The context that the caller works in; without one, that of a device.
static hd_status open_context(hd_device *device, hd_diag *diag)
{
    if (*device->binding.where == '\0')
        HD_CUDA_TRY(device, diag, context_current, &device->context);
    if (device->context == NULL)
        return choose_device(device, diag);
    HD_CUDA_TRY(device, diag, context_device, &device->ordinal);
    return HD_OK;
}

static hd_status read_arch(hd_device *device, hd_diag *diag)
{
    int major = 0, minor = 0;

    HD_CUDA_TRY(device, diag, device_attribute, &major, HD_CU_CAPABILITY_MAJOR,
                device->ordinal);
    HD_CUDA_TRY(device, diag, device_attribute, &minor, HD_CU_CAPABILITY_MINOR,
                device->ordinal);
    snprintf(device->arch, sizeof device->arch, "sm_%d%d%s", major, minor,
             major == 9 ? "a" : "");
    return HD_OK;
}

static hd_status open_streams(hd_device *device, hd_diag *diag)
{
    // The caller's, the work streams and the helper.
    int n = (int)device->binding.module->streams + 2;

    device->stream = calloc((size_t)n, sizeof *device->stream);
    if (device->stream == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d streams", n);
    device->nstreams = n;
    for (int i = 1; i < n; i++)
        HD_CUDA_TRY(device, diag, stream_create, &device->stream[i].stream,
                    HD_CU_STREAM_NON_BLOCKING, 0);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++)
            HD_CUDA_TRY(device, diag, event_create, &device->stream[i].pace[k],
                        HD_CU_EVENT_DISABLE_TIMING);
    }
    HD_CUDA_TRY(device, diag, stream_create, &device->rescue,
                HD_CU_STREAM_NON_BLOCKING, 0);
    HD_CUDA_TRY(device, diag, stream_create, &device->capture,
                HD_CU_STREAM_NON_BLOCKING, 0);
    return HD_OK;
}

static hd_status open_all(hd_device *device, hd_diag *diag)
{
    hd_status status;
    int mode;

    HD_TRY(open_cuda(device, diag));
    HD_TRY(open_context(device, diag));
    HD_TRY(hd_cuda_enter(device, diag, &mode));
    status = read_arch(device, diag);
    if (status == HD_OK)
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

static void close_streams(hd_device *device)
{
    for (int i = 0; i < device->nstreams; i++) {
        hd_cuda_stream *stream = &device->stream[i];

        for (int k = 0; k < 2; k++) {
            if (stream->pace[k] != NULL)
                device->cu.event_destroy(stream->pace[k]);
        }
        for (int k = 0; stream->marks.event != NULL && k < stream->marks.room;
             k++) {
            if (stream->marks.event[k] != NULL)
                device->cu.event_destroy(stream->marks.event[k]);
        }
        free(stream->marks.event);
        if (i > 0 && stream->stream != NULL)
            device->cu.stream_destroy(stream->stream);
    }
    if (device->rescue != NULL)
        device->cu.stream_destroy(device->rescue);
    if (device->capture != NULL)
        device->cu.stream_destroy(device->capture);
}

static void free_all(hd_device *device)
{
    hd_cuda_plans_free(device);
    hd_cuda_products_close(device);
    hd_cuda_kernels_close(device);
    hd_cuda_free(device);
    close_streams(device);
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
    if (device->retained && !hd_cuda_is_stuck(device))
        device->cu.primary_release(device->ordinal);
}

void hd_cuda_close(hd_device *device)
{
    if (device == NULL)
        return;
    hd_cuda_watch_stop(device); // may yet find that the device is stuck
    hd_cuda_sizes_close(device);
    if (device->context != NULL && !hd_cuda_is_stuck(device))
        close_device(device);
    if (!hd_cuda_is_stuck(device))
        hd_library_close(&device->library);
    free(device->watch);
    free(device->stream);
    free(device);
}
