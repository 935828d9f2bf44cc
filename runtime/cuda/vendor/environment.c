// CUDA's part of what a machine offers. Everything that is opened here is
// closed again, so that a process that asks is as it was, but for the driver's
// own initialisation.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <heddle/environment.h>

#include "base/diag.h"
#include "base/setting.h"
#include "base/text.h"
#include "runtime/cuda/vendor/api.h"
#include "runtime/cuda/vendor/library.h"
#include "runtime/cuda/vendor/p2p.h"
#include "runtime/environment.h"

#define MOST_DEVICES 64
#define PATIENCE 5.0 // seconds that a copy between devices may take

typedef struct survey {
    hd_environment *found; // borrowed: what is seen here goes there
    hd_library library;    // owned
    hd_cu_api cu;
    hd_diag *diag; // borrowed
    int ndevices;
    hd_cu_device device[MOST_DEVICES];
    hd_p2p_end end[MOST_DEVICES]; // owned; without a context: not opened
    hd_p2p_probe probe;
} survey;

static hd_status refuse(const survey *s, const char *call, hd_cu_result result)
{
    const char *name = NULL, *words = NULL;

    if (s->cu.error_name(result, &name) != HD_CU_SUCCESS || name == NULL)
        name = "an unknown error";
    if (s->cu.error_string(result, &words) != HD_CU_SUCCESS || words == NULL)
        words = "the driver has no message for it";
    return hd_fail(s->diag, HD_ERROR_UNSUPPORTED,
                   "the CUDA driver at %s refused '%s': %s (%s)",
                   s->library.path, call, name, words);
}

#define TRY(survey, name, ...)                                 \
    do {                                                       \
        hd_cu_result result_ = (survey)->cu.name(__VA_ARGS__); \
        if (result_ != HD_CU_SUCCESS)                          \
            return refuse((survey), #name, result_);           \
    } while (0)

// ------------------------------------------------------------- the driver

static hd_status no_device(const survey *s)
{
    const char *visible = hd_setting("CUDA_VISIBLE_DEVICES");

    if (visible != NULL)
        return hd_fail(s->diag, HD_ERROR_UNSUPPORTED,
                       "the CUDA driver at %s sees no device; "
                       "CUDA_VISIBLE_DEVICES is '%.64s'",
                       s->library.path, visible);
    return hd_fail(s->diag, HD_ERROR_UNSUPPORTED,
                   "the CUDA driver at %s sees no device", s->library.path);
}

static hd_status open_driver(survey *s)
{
    hd_cu_result result;

    HD_TRY(hd_library_open(&hd_cuda_library, &s->cu, s->diag, &s->library));
    result = s->cu.init(0);
    if (result == HD_CU_NO_DEVICE)
        return no_device(s);
    if (result != HD_CU_SUCCESS)
        return refuse(s, "init", result);
    return HD_OK;
}

static hd_status list_devices(survey *s)
{
    int n = 0;

    TRY(s, device_count, &n);
    if (n < 1)
        return no_device(s);
    n = n < MOST_DEVICES ? n : MOST_DEVICES;
    for (int i = 0; i < n; i++)
        TRY(s, device_get, &s->device[i], i);
    s->ndevices = n;
    return HD_OK;
}

static void describe_driver(const survey *s, hd_status status)
{
    hd_env_library *out = &s->found->cuda;

    out->name = hd_cuda_library.title;
    out->variable = hd_cuda_library.variable;
    out->usable = status == HD_OK;
    snprintf(out->version, sizeof out->version, "%s", s->library.version);
    snprintf(out->path, sizeof out->path, "%s", s->library.path);
    hd_environment_reason(s->diag, NULL, out->reason);
}

// ------------------------------------------------------------ the devices

static int attribute(const survey *s, int which, int i)
{
    int value = 0;

    return s->cu.device_attribute(&value, which, s->device[i]) == HD_CU_SUCCESS
               ? value
               : 0;
}

// As nvidia-smi writes it.
static void write_uuid(const survey *s, int i, char *out, size_t size)
{
    hd_cu_uuid uuid = {{0}};
    int at;

    if (s->cu.device_uuid(&uuid, s->device[i]) != HD_CU_SUCCESS)
        return;
    at = snprintf(out, size, "GPU-");
    for (size_t k = 0; k < sizeof uuid.bytes; k++)
        at += snprintf(out + at, size - (size_t)at, "%s%02x",
                       k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "",
                       (unsigned char)uuid.bytes[k]);
}

static void describe_device(const survey *s, int i, hd_env_device *out)
{
    size_t memory = 0;

    s->cu.device_name(out->name, sizeof out->name, s->device[i]);
    s->cu.device_memory(&memory, s->device[i]);
    out->memory = (int64_t)memory;
    snprintf(out->capability, sizeof out->capability, "%d.%d",
             attribute(s, HD_CU_CAPABILITY_MAJOR, i),
             attribute(s, HD_CU_CAPABILITY_MINOR, i));
    out->sms = attribute(s, HD_CU_SM_COUNT, i);
    s->cu.device_bus(out->bus, sizeof out->bus, s->device[i]);
    write_uuid(s, i, out->uuid, sizeof out->uuid);
}

// -------------------------------------------------------------- the links

static hd_status fill_end(survey *s, hd_p2p_end *end)
{
    if (end->buffer == 0)
        TRY(s, alloc, &end->buffer, HD_P2P_WORDS * sizeof(uint32_t));
    if (end->stream == NULL)
        TRY(s, stream_create, &end->stream, HD_CU_STREAM_NON_BLOCKING, 0);
    if (s->probe.host == NULL) {
        void *host = NULL;

        TRY(s, host_alloc, &host, HD_P2P_WORDS * sizeof(uint32_t),
            HD_CU_HOST_PORTABLE);
        s->probe.host = host;
    }
    return HD_OK;
}

static hd_status open_end(survey *s, int i)
{
    hd_p2p_end *end = &s->end[i];
    hd_status status;

    if (end->stream != NULL && s->probe.host != NULL)
        return HD_OK;
    if (end->context == NULL)
        TRY(s, primary_retain, &end->context, s->device[i]);
    TRY(s, context_push, end->context);
    status = fill_end(s, end);
    s->cu.context_pop(&(hd_cu_context){0});
    return status;
}

static void close_end(survey *s, int i)
{
    const hd_p2p_end *end = &s->end[i];

    if (end->context == NULL)
        return;
    if (s->cu.context_push(end->context) == HD_CU_SUCCESS) {
        if (end->stream != NULL)
            s->cu.stream_destroy(end->stream);
        if (end->buffer != 0)
            s->cu.free(end->buffer);
        s->cu.context_pop(&(hd_cu_context){0});
    }
    s->cu.primary_release(s->device[i]);
}

// Calls that free wait for what never ends, so after such a copy nothing is.
static void close_ends(survey *s)
{
    if (s->probe.stuck)
        return;
    for (int i = 0; i < s->ndevices && s->probe.host != NULL; i++) {
        if (s->end[i].context == NULL ||
            s->cu.context_push(s->end[i].context) != HD_CU_SUCCESS)
            continue;
        s->cu.host_free(s->probe.host);
        s->cu.context_pop(&(hd_cu_context){0});
        s->probe.host = NULL;
    }
    for (int i = 0; i < s->ndevices; i++)
        close_end(s, i);
}

static int p2p(const survey *s, int which, int from, int to)
{
    int value = 0;

    return s->cu.device_p2p(&value, which, s->device[from], s->device[to]) ==
                   HD_CU_SUCCESS
               ? value
               : 0;
}

static bool can_access(const survey *s, int from, int to)
{
    int access = 0;

    return s->cu.device_can_access(&access, s->device[from], s->device[to]) ==
               HD_CU_SUCCESS &&
           access != 0;
}

static hd_status verify_link(survey *s, int from, int to)
{
    if (s->probe.stuck)
        return hd_fail(s->diag, HD_ERROR_SYSTEM,
                       "not tried: a copy between other devices did not end");
    HD_TRY(open_end(s, from));
    HD_TRY(open_end(s, to));
    return hd_p2p_verify(&s->probe, &s->end[from], &s->end[to], s->diag);
}

static void describe_link(survey *s, int from, int to)
{
    hd_env_link *out = &s->found->link[s->found->nlinks++];
    bool access = can_access(s, from, to);

    *out =
        (hd_env_link){.from = from,
                      .to = to,
                      .access = access,
                      .verified = access && verify_link(s, from, to) == HD_OK,
                      .performance_rank = p2p(s, HD_CU_P2P_RANK, from, to),
                      .atomics = p2p(s, HD_CU_P2P_ATOMICS, from, to) != 0};
    hd_environment_reason(s->diag, NULL, out->reason);
}

static hd_status describe_all(survey *s, hd_status status)
{
    size_t n = (size_t)s->ndevices;

    describe_driver(s, status);
    s->found->device = calloc(n + 1, sizeof *s->found->device);
    s->found->link = calloc(n * n + 1, sizeof *s->found->link);
    if (s->found->device == NULL || s->found->link == NULL)
        return HD_ERROR_NO_MEMORY;
    s->found->ndevices = s->ndevices;
    for (int i = 0; i < s->ndevices; i++)
        describe_device(s, i, &s->found->device[i]);
    for (int from = 0; from < s->ndevices; from++) {
        for (int to = 0; to < s->ndevices; to++) {
            if (from != to)
                describe_link(s, from, to);
        }
    }
    return HD_OK;
}

hd_status hd_environment_cuda(hd_environment *environment)
{
    survey *s = calloc(1, sizeof *s);
    int mode = HD_CU_CAPTURE_RELAXED; // no part of a caller's capture
    hd_status status;
    bool open;

    if (s == NULL)
        return HD_ERROR_NO_MEMORY;
    s->found = environment;
    s->diag = hd_diag_create();
    s->probe.cu = &s->cu;
    s->probe.patience = PATIENCE;
    if (s->diag == NULL) {
        free(s);
        return HD_ERROR_NO_MEMORY;
    }
    status = open_driver(s);
    open = status == HD_OK && s->cu.capture_mode(&mode) == HD_CU_SUCCESS;
    if (status == HD_OK)
        status = list_devices(s);
    status = describe_all(s, status);
    close_ends(s);
    if (open)
        s->cu.capture_mode(&mode);
    if (!s->probe.stuck)
        hd_library_close(&s->library);
    hd_diag_destroy(s->diag);
    free(s);
    return status;
}

// --------------------------------------------------------- what kind it is

// All that the driver says of devices and links that is alike on machines that
// are.
static void write_layout(const survey *s, hd_text *out)
{
    hd_env_device device = {.name = ""};

    for (int i = 0; i < s->ndevices; i++) {
        describe_device(s, i, &device);
        hd_text_printf(out, "%s %s %d;", device.name, device.capability,
                       device.sms);
    }
    for (int from = 0; from < s->ndevices; from++)
        for (int to = 0; to < s->ndevices; to++)
            if (from != to)
                hd_text_printf(out, "%d %d %d;", can_access(s, from, to),
                               p2p(s, HD_CU_P2P_RANK, from, to),
                               p2p(s, HD_CU_P2P_ATOMICS, from, to));
}

static hd_status describe_kind(const survey *s, hd_env_kind *out)
{
    hd_env_device first = {.name = ""};
    hd_text layout = {0};
    char slug[48];

    write_layout(s, &layout);
    if (layout.failed) {
        hd_text_free(&layout);
        return hd_fail(s->diag, HD_ERROR_NO_MEMORY,
                       "no memory to look at the devices");
    }
    describe_device(s, 0, &first);
    hd_environment_slug(first.name, slug, sizeof slug);
    snprintf(out->name, sizeof out->name, "%d x %.48s", s->ndevices,
             first.name);
    snprintf(out->key, sizeof out->key, "cuda-%d-%s-%08x", s->ndevices, slug,
             (unsigned)XXH3_64bits(layout.bytes, layout.length));
    out->devices = s->ndevices;
    out->multiprocessors = first.sms;
    snprintf(out->capability, sizeof out->capability, "%s", first.capability);
    hd_text_free(&layout);
    return HD_OK;
}

hd_status hd_environment_cuda_kind(hd_diag *diag, hd_env_kind *out)
{
    survey *s = calloc(1, sizeof *s);
    hd_status status;

    if (s == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory to look at the devices");
    s->diag = diag;
    status = open_driver(s);
    if (status == HD_OK)
        status = list_devices(s);
    if (status == HD_OK)
        status = describe_kind(s, out);
    hd_library_close(&s->library);
    free(s);
    return status;
}
