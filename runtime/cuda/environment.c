// CUDA's part of what a machine offers. Everything that is opened here is
// closed again, so that a process that asks is as it was, but for the driver's
// own initialisation.
#include <stdio.h>
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/library.h"
#include "runtime/cuda/p2p.h"
#include "runtime/environment.h"

#define MOST_DEVICES 64
#define PATIENCE 5.0 // seconds that a copy between devices may take

typedef struct survey {
    hd_text *json;
    hd_library library; // owned
    hd_cu_api cu;
    hd_diag *diag; // owned
    int version;
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
    return hd_fail(s->diag, HD_UNSUPPORTED,
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
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (visible != NULL)
        return hd_fail(s->diag, HD_UNSUPPORTED,
                       "the CUDA driver at %s sees no device; "
                       "CUDA_VISIBLE_DEVICES is '%.64s'",
                       s->library.path, visible);
    return hd_fail(s->diag, HD_UNSUPPORTED,
                   "the CUDA driver at %s sees no device", s->library.path);
}

static hd_status open_driver(survey *s)
{
    hd_cu_result result;

    HD_TRY(hd_library_open(&hd_cuda_library, &s->cu, s->diag, &s->library));
    // The version can be had even where there is no device.
    if (s->cu.driver_version(&s->version) != HD_CU_SUCCESS)
        s->version = 0;
    result = s->cu.init(0);
    if (result == HD_CU_NO_DEVICE)
        return no_device(s);
    if (result != HD_CU_SUCCESS)
        return refuse(s, "init", result);
    TRY(s, driver_version, &s->version);
    return hd_cuda_check_version(s->version, s->library.path, s->diag);
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

static void put_driver(survey *s, hd_status status)
{
    char version[32];

    hd_json_open(s->json, "cuda", '{');
    hd_json_flag(s->json, "usable", status == HD_OK);
    snprintf(version, sizeof version, "%d.%d", s->version / 1000,
             s->version % 1000 / 10);
    hd_json_string(s->json, "version", s->version > 0 ? version : NULL);
    hd_json_string(s->json, "path",
                   s->library.handle != NULL ? s->library.path : NULL);
    hd_json_string(s->json, "variable", hd_cuda_library.variable);
    hd_json_reason(s->json, NULL, s->diag);
    hd_json_close(s->json, '}');
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
static void put_uuid(survey *s, int i)
{
    hd_cu_uuid uuid = {{0}};
    char text[48] = "GPU-";
    size_t at = 4;

    if (s->cu.device_uuid(&uuid, s->device[i]) != HD_CU_SUCCESS) {
        hd_json_string(s->json, "uuid", NULL);
        return;
    }
    for (size_t k = 0; k < sizeof uuid.bytes; k++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%02x",
                               k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "",
                               (unsigned char)uuid.bytes[k]);
    hd_json_string(s->json, "uuid", text);
}

static void put_device(survey *s, int i)
{
    char name[256] = "", bus[32] = "", capability[32];
    size_t memory = 0;

    hd_json_open(s->json, NULL, '{');
    hd_json_number(s->json, "index", i);
    s->cu.device_name(name, sizeof name, s->device[i]);
    hd_json_string(s->json, "name", name);
    s->cu.device_memory(&memory, s->device[i]);
    hd_json_number(s->json, "memory_bytes", (int64_t)memory);
    snprintf(capability, sizeof capability, "%d.%d",
             attribute(s, HD_CU_CAPABILITY_MAJOR, i),
             attribute(s, HD_CU_CAPABILITY_MINOR, i));
    hd_json_string(s->json, "capability", capability);
    hd_json_number(s->json, "sms", attribute(s, HD_CU_SM_COUNT, i));
    s->cu.device_bus(bus, sizeof bus, s->device[i]);
    hd_json_string(s->json, "bus", bus);
    put_uuid(s, i);
    hd_json_close(s->json, '}');
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

static hd_status verify_link(survey *s, int from, int to)
{
    if (s->probe.stuck)
        return hd_fail(s->diag, HD_SYSTEM,
                       "not tried: a copy between other devices did not end");
    HD_TRY(open_end(s, from));
    HD_TRY(open_end(s, to));
    return hd_p2p_verify(&s->probe, &s->end[from], &s->end[to], s->diag);
}

static void put_link(survey *s, int from, int to)
{
    int access = 0;
    bool verified = false;

    if (s->cu.device_can_access(&access, s->device[from], s->device[to]) !=
        HD_CU_SUCCESS)
        access = 0;
    if (access != 0)
        verified = verify_link(s, from, to) == HD_OK;
    hd_json_open(s->json, NULL, '{');
    hd_json_number(s->json, "from", from);
    hd_json_number(s->json, "to", to);
    hd_json_flag(s->json, "access", access != 0);
    hd_json_flag(s->json, "verified", verified);
    hd_json_number(s->json, "performance_rank",
                   p2p(s, HD_CU_P2P_RANK, from, to));
    hd_json_flag(s->json, "atomics", p2p(s, HD_CU_P2P_ATOMICS, from, to) != 0);
    hd_json_reason(s->json, NULL, s->diag);
    hd_json_close(s->json, '}');
}

static void put_all(survey *s, hd_status status)
{
    put_driver(s, status);
    hd_json_open(s->json, "devices", '[');
    for (int i = 0; i < s->ndevices; i++)
        put_device(s, i);
    hd_json_close(s->json, ']');
    hd_json_open(s->json, "links", '[');
    for (int from = 0; from < s->ndevices; from++) {
        for (int to = 0; to < s->ndevices; to++) {
            if (from != to)
                put_link(s, from, to);
        }
    }
    hd_json_close(s->json, ']');
}

hd_status hd_environment_cuda(hd_text *json)
{
    survey *s = calloc(1, sizeof *s);
    int mode = HD_CU_CAPTURE_RELAXED; // no part of a caller's capture
    hd_status status;
    bool open;

    if (s == NULL)
        return HD_NO_MEMORY;
    s->json = json;
    s->diag = hd_diag_create();
    s->probe.cu = &s->cu;
    s->probe.patience = PATIENCE;
    if (s->diag == NULL) {
        free(s);
        return HD_NO_MEMORY;
    }
    status = open_driver(s);
    open = status == HD_OK && s->cu.capture_mode(&mode) == HD_CU_SUCCESS;
    if (status == HD_OK)
        status = list_devices(s);
    put_all(s, status);
    close_ends(s);
    if (open)
        s->cu.capture_mode(&mode);
    if (!s->probe.stuck)
        hd_library_close(&s->library);
    hd_diag_destroy(s->diag);
    free(s);
    return HD_OK;
}
