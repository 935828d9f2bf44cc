// cuDNN: its plans of attention, each made once for a shape, and kept on disk
// as the text that cuDNN has for it, which is made a plan again in a hundredth
// of the time. A plan is of no stream and no addresses. These stand in a pack,
// one for each attention of a run's commands, which is made anew only where an
// address is another one.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda/libraries/operation.h"
#include "runtime/cuda/vendor/library.h"

#define CONFIGS 8 // ways of a shape that are tried
#define REASON 160
#define MOST_KNOWN 256 // shapes of a session whose runs are given sizes
#define JSON_MOST ((int64_t)16 << 20) // bytes

// What is known of a shape.
typedef struct known {
    hd_cuda_attention shape;
    hd_dnn_desc plan; // owned; NULL if cuDNN does not take it
    int64_t workspace;
    char reason[REASON];
} known;

struct hd_cuda_dnn {
    hd_library library;
    hd_dnn_api api;
    hd_dnn_handle handle; // owned
    hd_dnn_desc device;   // owned: its properties
    known **known;        // owned
    int n, room;
    char text[200];
};

// --------------------------------------------------------------- library

static hd_status refuse(const hd_device *device, int status, hd_diag *diag,
                        const char *call)
{
    return hd_fail(diag, HD_ERROR_SYSTEM, "rank %d: cuDNN refused '%s': %s",
                   device->rank, call, device->dnn->api.status_text(status));
}

#define DNN_TRY(device, diag, name, ...)                     \
    do {                                                     \
        int status_ = (device)->dnn->api.name(__VA_ARGS__);  \
        if (status_ != HD_DNN_SUCCESS)                       \
            return refuse((device), status_, (diag), #name); \
    } while (0)

static hd_status open_device(hd_device *device, hd_diag *diag)
{
    hd_cuda_dnn *dnn = device->dnn;
    const int32_t ordinal = device->home->ordinal;

    DNN_TRY(device, diag, create, &dnn->handle);
    DNN_TRY(device, diag, desc_create, HD_DNN_DEVICE, &dnn->device);
    DNN_TRY(device, diag, attribute_set, dnn->device, HD_DNN_DEVICE_ID,
            HD_DNN_TYPE_INT32, 1, &ordinal);
    DNN_TRY(device, diag, finalize, dnn->device);
    return HD_OK;
}

hd_status hd_cuda_dnn_open(hd_device *device, hd_diag *diag)
{
    hd_cuda_dnn *dnn = device->dnn;

    if (dnn != NULL)
        return HD_OK;
    dnn = calloc(1, sizeof *dnn);
    if (dnn == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for cuDNN");
    hd_status status =
        hd_library_open(&hd_dnn_library, &dnn->api, diag, &dnn->library);
    if (status != HD_OK) {
        free(dnn);
        return status;
    }
    device->dnn = dnn;
    snprintf(dnn->text, sizeof dnn->text, "cuDNN %s (%.120s)",
             dnn->library.version, dnn->library.path);
    return open_device(device, diag);
}

const char *hd_cuda_dnn_text(const hd_device *device)
{
    return device->dnn != NULL ? device->dnn->text : "";
}

void hd_cuda_dnn_close(hd_device *device)
{
    hd_cuda_dnn *dnn = device->dnn;

    if (dnn == NULL)
        return;
    for (int i = 0; i < dnn->n; i++) {
        if (dnn->known[i]->plan != NULL)
            dnn->api.desc_destroy(dnn->known[i]->plan);
        free(dnn->known[i]);
    }
    free(dnn->known);
    if (dnn->device != NULL)
        dnn->api.desc_destroy(dnn->device);
    if (dnn->handle != NULL)
        dnn->api.destroy(dnn->handle);
    hd_library_close(&dnn->library);
    free(dnn);
    device->dnn = NULL;
}

// ----------------------------------------------------------------- disk

// All that a plan depends on. False if the device does not tell.
static bool make_key(hd_device *device, const hd_cuda_attention *s,
                     hd_text *out)
{
    hd_text_printf(out, "attention\ncuDNN %s\n", device->dnn->library.version);
    if (!hd_cuda_add_device(device, out))
        return false;
    hd_text_printf(
        out,
        "kind %d type %d mask %d batch %lld heads %lld of %lld rows %lld "
        "keys %lld depth %lld wide %lld\nstrides",
        (int)s->kind, (int)s->type, (int)s->mask, (long long)s->batch,
        (long long)s->heads, (long long)s->shared, (long long)s->rows,
        (long long)s->keys, (long long)s->depth, (long long)s->wide);
    for (int i = 0; i < HD_CUDA_PARTS; i++)
        for (int d = 0; d < HD_CUDA_ATTEND_DIMS; d++)
            hd_text_printf(out, " %lld", (long long)s->stride[i][d]);
    return true;
}

static int read_workspace(const hd_device *device, hd_dnn_desc plan,
                          int64_t *out)
{
    int64_t n = 0;
    int status = device->dnn->api.attribute_get(plan, HD_DNN_PLAN_WORKSPACE,
                                                HD_DNN_TYPE_INT64, 1, &n, out);

    return status == HD_DNN_SUCCESS && n != 1 ? HD_DNN_NOT_SUPPORTED : status;
}

// The plan that the text is of, or NULL if it is of none any more.
static hd_dnn_desc plan_of(const hd_device *device, const char *json,
                           size_t bytes)
{
    const hd_dnn_api *api = &device->dnn->api;
    hd_dnn_desc plan = NULL;

    if (api->desc_create(HD_DNN_PLAN, &plan) != HD_DNN_SUCCESS)
        return NULL;
    if (api->attribute_set(plan, HD_DNN_PLAN_DEVICE, HD_DNN_TYPE_DESC, 1,
                           &device->dnn->device) == HD_DNN_SUCCESS &&
        api->attribute_set(plan, HD_DNN_PLAN_JSON, HD_DNN_TYPE_CHAR,
                           (int64_t)bytes, json) == HD_DNN_SUCCESS &&
        api->finalize(plan) == HD_DNN_SUCCESS)
        return plan;
    api->desc_destroy(plan);
    return NULL;
}

static bool recall(hd_device *device, const hd_text *key, known *known)
{
    void *json = NULL;
    size_t bytes = 0;

    if (!hd_disk_read(&device->cache, key, &json, &bytes))
        return false;
    known->plan = plan_of(device, json, bytes);
    free(json);
    if (known->plan == NULL)
        return false;
    if (read_workspace(device, known->plan, &known->workspace) ==
        HD_DNN_SUCCESS)
        return true;
    device->dnn->api.desc_destroy(known->plan);
    known->plan = NULL;
    return false;
}

// A plan that does not tell its text is not kept.
static void keep(hd_device *device, const hd_text *key, hd_dnn_desc plan)
{
    const hd_dnn_api *api = &device->dnn->api;
    int64_t bytes = 0;
    char *json;

    if (device->cache.folder[0] == '\0' ||
        api->attribute_get(plan, HD_DNN_PLAN_JSON, HD_DNN_TYPE_CHAR, 0, &bytes,
                           NULL) != HD_DNN_SUCCESS ||
        bytes < 1 || bytes > JSON_MOST)
        return;
    json = malloc((size_t)bytes);
    if (json != NULL &&
        api->attribute_get(plan, HD_DNN_PLAN_JSON, HD_DNN_TYPE_CHAR, bytes,
                           &bytes, json) == HD_DNN_SUCCESS)
        hd_disk_write(&device->cache, key, json, (size_t)bytes);
    free(json);
}

// ---------------------------------------------------------------- plans

// Its own words are a line for each of its layers, the innermost first.
static void explain(const hd_device *device, int status, known *known)
{
    static const char before[] = "Reason: ";
    char words[2048] = "", *reason;

    device->dnn->api.last_error(words, sizeof words);
    reason = strstr(words, before);
    reason = reason != NULL ? reason + strlen(before) : words;
    reason[strcspn(reason, "\n")] = '\0';
    if (*reason == '\0')
        snprintf(known->reason, REASON, "cuDNN has no way: %s",
                 device->dnn->api.status_text(status));
    else
        snprintf(known->reason, REASON, "cuDNN has no way: %.120s", reason);
}

static bool is_lacking(int status)
{
    return status / 1000 == HD_DNN_NOT_SUPPORTED / 1000;
}

// Ways of the shape, the one that cuDNN expects to be the fastest first. They
// are the operation's.
static int64_t ask(const hd_device *device, hd_cuda_operation *o,
                   hd_dnn_desc graph, hd_dnn_desc config[CONFIGS])
{
    const int mode = HD_DNN_HEURISTIC_A;
    hd_dnn_desc heuristic = hd_cuda_operation_make(o, HD_DNN_HEURISTIC);
    int64_t n = 0;

    hd_cuda_operation_set(o, heuristic, HD_DNN_HEURISTIC_GRAPH,
                          HD_DNN_TYPE_DESC, 1, &graph);
    hd_cuda_operation_set(o, heuristic, HD_DNN_HEURISTIC_MODE,
                          HD_DNN_TYPE_HEURISTIC, 1, &mode);
    hd_cuda_operation_set(o, heuristic, HD_DNN_HEURISTIC_DEVICE,
                          HD_DNN_TYPE_DESC, 1, &device->dnn->device);
    hd_cuda_operation_finish(o, heuristic);
    for (int i = 0; i < CONFIGS; i++)
        config[i] = hd_cuda_operation_make(o, HD_DNN_CONFIG);
    if (o->status != HD_DNN_SUCCESS)
        return 0;
    o->status = o->dnn->attribute_get(heuristic, HD_DNN_HEURISTIC_RESULTS,
                                      HD_DNN_TYPE_DESC, CONFIGS, &n, config);
    o->call = "attribute_get";
    return o->status == HD_DNN_SUCCESS ? n : 0;
}

// NULL, with the reason in `status`, if cuDNN has no kernel for it after all.
static hd_dnn_desc try_config(const hd_device *device, hd_dnn_desc config,
                              int64_t *workspace, int *status)
{
    const hd_dnn_api *api = &device->dnn->api;
    hd_dnn_desc plan = NULL;

    *status = api->desc_create(HD_DNN_PLAN, &plan);
    if (*status != HD_DNN_SUCCESS)
        return NULL;
    *status = api->attribute_set(plan, HD_DNN_PLAN_CONFIG, HD_DNN_TYPE_DESC, 1,
                                 &config);
    if (*status == HD_DNN_SUCCESS)
        *status = api->attribute_set(plan, HD_DNN_PLAN_DEVICE, HD_DNN_TYPE_DESC,
                                     1, &device->dnn->device);
    if (*status == HD_DNN_SUCCESS)
        *status = api->finalize(plan);
    if (*status == HD_DNN_SUCCESS)
        *status = read_workspace(device, plan, workspace);
    if (*status == HD_DNN_SUCCESS)
        return plan;
    api->desc_destroy(plan);
    return NULL;
}

// The first of the ways that can be had.
static hd_status build(hd_device *device, known *known, hd_diag *diag)
{
    hd_cuda_operation o = {.dnn = &device->dnn->api};
    hd_dnn_desc config[CONFIGS], graph;
    hd_status result = HD_OK;
    int64_t n;

    graph = hd_cuda_operation_attend(&o, &known->shape);
    n = ask(device, &o, graph, config);
    if (o.status != HD_DNN_SUCCESS && !is_lacking(o.status))
        result = refuse(device, o.status, diag, o.call);
    else if (n == 0)
        explain(device, o.status, known);
    for (int64_t i = 0; i < n && known->plan == NULL; i++) {
        int status;

        known->plan = try_config(device, config[i], &known->workspace, &status);
        if (known->plan == NULL)
            explain(device, status, known);
    }
    hd_cuda_operation_free(&o);
    return result;
}

static hd_status make_plan(hd_device *device, known *known, hd_diag *diag)
{
    hd_text key = {0};
    bool keyed = make_key(device, &known->shape, &key);
    hd_status status = HD_OK;

    if (!keyed || !recall(device, &key, known)) {
        status = build(device, known, diag);
        if (status == HD_OK && keyed && known->plan != NULL)
            keep(device, &key, known->plan);
    }
    hd_text_free(&key);
    return status;
}

static hd_status add_known(hd_device *device, const hd_cuda_attention *shape,
                           hd_diag *diag)
{
    hd_cuda_dnn *dnn = device->dnn;
    known *known = calloc(1, sizeof *known);
    hd_status status;

    if (known == NULL || !hd_cuda_grow((void **)&dnn->known, dnn->n, &dnn->room,
                                       sizeof *dnn->known)) {
        free(known);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for an attention");
    }
    known->shape = *shape;
    status = make_plan(device, known, diag);
    if (status != HD_OK) {
        free(known);
        return status;
    }
    dnn->known[dnn->n++] = known;
    return HD_OK;
}

static int find_known(const hd_cuda_dnn *dnn, const hd_cuda_attention *shape)
{
    int i = 0;

    while (i < dnn->n &&
           memcmp(&dnn->known[i]->shape, shape, sizeof *shape) != 0)
        i++;
    return i < dnn->n ? i : -1;
}

// For sizes that no earlier run had none is made: that takes as long as a
// compilation, which sizes that never come back are not worth. To load it may
// wait, as for a kernel that is new, for what has been issued in the context:
// earlier runs, which have all that they need of this rank.
hd_status hd_cuda_dnn_find(hd_cuda_plan *plan, const hd_cuda_attention *shape,
                           hd_diag *diag, int *out, const char **reason)
{
    hd_device *device = plan->device;
    hd_cuda_dnn *dnn = device->dnn;
    int found = find_known(dnn, shape);

    *out = -1;
    if (found < 0 && plan != device->whole && !plan->again) {
        plan->better = dnn->n < MOST_KNOWN;
        *reason = "the sizes of the run are new";
        return HD_OK;
    }
    if (found < 0 && plan != device->whole && dnn->n >= MOST_KNOWN) {
        *reason = "the session has as many plans as it may";
        return HD_OK;
    }
    if (found < 0) {
        HD_TRY(add_known(device, shape, diag));
        found = dnn->n - 1;
    }
    if (dnn->known[found]->plan != NULL)
        *out = found;
    *reason = dnn->known[found]->reason;
    return HD_OK;
}

size_t hd_cuda_dnn_workspace(const hd_device *device, int known)
{
    size_t bytes = (size_t)device->dnn->known[known]->workspace;

    return bytes > 0 ? bytes : 1;
}

// --------------------------------------------------------------- running

// Of the tensors that the shape's graph has outside of itself.
typedef struct pack {
    int64_t uid[HD_CUDA_PARTS + 5];
    void *at[HD_CUDA_PARTS + 5];
    int64_t n;
} pack;

static void add_place(pack *pack, int64_t uid, void *at)
{
    pack->uid[pack->n] = uid;
    pack->at[pack->n++] = at;
}

static pack pack_of(hd_cuda_attend *attend)
{
    const hd_cuda_attention *s = &attend->shape;
    pack pack = {.n = 0};

    for (int i = 0; i < HD_CUDA_PARTS; i++)
        if (hd_cuda_has_part(s, i))
            add_place(&pack, hd_cuda_uid(i), attend->address[i]);
    add_place(&pack, HD_CUDA_UID_SCALE, &attend->scale);
    if (s->kind != HD_CUDA_ATTEND_RESULTS)
        add_place(&pack, HD_CUDA_UID_ONE, &attend->one);
    if (s->mask != HD_CUDA_MASK_NONE)
        add_place(&pack, HD_CUDA_UID_NOTHING, &attend->nothing);
    if (s->mask == HD_CUDA_MASK_BOTTOM) {
        add_place(&pack, HD_CUDA_UID_KEYS, &attend->keys);
        add_place(&pack, HD_CUDA_UID_ROWS, &attend->rows);
    }
    return pack;
}

static hd_status make_pack(hd_device *device, hd_cuda_attend *attend,
                           hd_diag *diag)
{
    const pack pack = pack_of(attend);
    void *workspace =
        (void *)(uintptr_t)hd_cuda_address(device, attend->workspace);

    DNN_TRY(device, diag, desc_create, HD_DNN_PACK, &attend->pack);
    DNN_TRY(device, diag, attribute_set, attend->pack, HD_DNN_PACK_UIDS,
            HD_DNN_TYPE_INT64, pack.n, pack.uid);
    DNN_TRY(device, diag, attribute_set, attend->pack, HD_DNN_PACK_POINTERS,
            HD_DNN_TYPE_POINTER, pack.n, pack.at);
    DNN_TRY(device, diag, attribute_set, attend->pack, HD_DNN_PACK_WORKSPACE,
            HD_DNN_TYPE_POINTER, 1, &workspace);
    DNN_TRY(device, diag, finalize, attend->pack);
    return HD_OK;
}

static void drop_pack(hd_device *device, hd_cuda_attend *attend)
{
    if (attend->pack != NULL)
        device->dnn->api.desc_destroy(attend->pack);
    attend->pack = NULL;
}

// Of the addresses of now.
static hd_status ready_pack(hd_device *device, hd_cuda_attend *attend,
                            hd_diag *diag)
{
    void *now[HD_CUDA_PARTS];
    hd_status status;

    for (int i = 0; i < HD_CUDA_PARTS; i++)
        now[i] = (void *)(uintptr_t)hd_cuda_address(device, attend->at[i]);
    if (attend->pack != NULL && memcmp(now, attend->address, sizeof now) == 0)
        return HD_OK;
    drop_pack(device, attend);
    memcpy(attend->address, now, sizeof now);
    status = make_pack(device, attend, diag);
    if (status != HD_OK)
        drop_pack(device, attend);
    return status;
}

hd_status hd_cuda_dnn_issue(const hd_cuda_plan *plan,
                            const hd_cuda_command *command, hd_cu_stream stream,
                            hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_cuda_attend *attend = &plan->attend[command->first];

    HD_TRY(ready_pack(device, attend, diag));
    DNN_TRY(device, diag, stream_set, device->dnn->handle, stream);
    DNN_TRY(device, diag, execute, device->dnn->handle,
            device->dnn->known[attend->known]->plan, attend->pack);
    return HD_OK;
}

void hd_cuda_dnn_free(hd_device *device, hd_cuda_plan *plan)
{
    for (int i = 0; i < plan->nattends; i++)
        drop_pack(device, &plan->attend[i]);
    free(plan->attend);
}
