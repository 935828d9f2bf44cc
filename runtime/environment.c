// What this machine offers heddle: the host, the vendors' libraries, CUDA's
// devices and links, limits, what the environment sets. What is absent is a
// fact like any other; only running out of memory is a failure.
#include "runtime/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "codegen/nvrtc.h"
#include "runtime/cpu/blas.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/library.h"

extern char **environ;

// ----------------------------------------------------------------- json

static void put_name(hd_text *json, const char *name)
{
    char last = json->length > 0 ? json->bytes[json->length - 1] : '[';

    if (last != '{' && last != '[')
        hd_text_puts(json, ",");
    if (name != NULL)
        hd_text_printf(json, "\"%s\":", name);
}

void hd_json_open(hd_text *json, const char *name, char bracket)
{
    put_name(json, name);
    hd_text_add(json, &bracket, 1);
}

void hd_json_close(hd_text *json, char bracket)
{
    hd_text_add(json, &bracket, 1);
}

// Bytes of the UTF-8 sequence at `at`, 0 if it is none. Overlong forms and
// halves of pairs are none.
static size_t sequence_at(const unsigned char *at)
{
    size_t n = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code;

    if (*at < 0x80)
        return 1;
    if (*at < 0xc2 || *at > 0xf4)
        return 0;
    code = *at & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    return code < least[n] || code > 0x10ffff ||
                   (code >= 0xd800 && code <= 0xdfff)
               ? 0
               : n;
}

void hd_json_string(hd_text *json, const char *name, const char *value)
{
    const unsigned char *at = (const unsigned char *)value;

    put_name(json, name);
    if (value == NULL) {
        hd_text_puts(json, "null");
        return;
    }
    hd_text_puts(json, "\"");
    while (*at != '\0') {
        size_t n = sequence_at(at);

        if (n == 0)
            hd_text_puts(json, "?");
        else if (*at == '"' || *at == '\\')
            hd_text_printf(json, "\\%c", *at);
        else if (*at < ' ' || *at == 0x7f)
            hd_text_printf(json, "\\u%04x", *at);
        else
            hd_text_add(json, (const char *)at, n);
        at += n > 0 ? n : 1;
    }
    hd_text_puts(json, "\"");
}

void hd_json_number(hd_text *json, const char *name, int64_t value)
{
    put_name(json, name);
    hd_text_printf(json, "%" PRId64, value);
}

void hd_json_flag(hd_text *json, const char *name, bool value)
{
    put_name(json, name);
    hd_text_puts(json, value ? "true" : "false");
}

void hd_json_reason(hd_text *json, const char *instead, hd_diag *diag)
{
    char text[1280];
    hd_message message;
    bool found = hd_diag_message(diag, 0, &message);

    if (found && instead != NULL) {
        snprintf(text, sizeof text, "%s (%s)", instead, message.text);
        message.text = text;
    }
    hd_json_string(json, "reason", found ? message.text : NULL);
    hd_diag_clear(diag);
}

// ----------------------------------------------------------------- host

static void put_host(hd_text *json)
{
    char name[256] = "";
    int64_t page = sysconf(_SC_PAGESIZE);

    gethostname(name, sizeof name - 1);
    hd_json_open(json, "host", '{');
    hd_json_string(json, "name", name);
    hd_json_number(json, "cores", sysconf(_SC_NPROCESSORS_ONLN));
    hd_json_number(json, "memory_bytes", page * sysconf(_SC_PHYS_PAGES));
    hd_json_close(json, '}');
}

// ------------------------------------------------------------ libraries

static const hd_library_info *const libraries[] = {
    &hd_cuda_library, &hd_lt_library, &hd_nvrtc_library, &hd_nccl_library,
    &hd_blas_library};
enum { NLIBRARIES = sizeof libraries / sizeof *libraries };

// An empty version or path is not known.
static hd_status put_library(hd_text *json, const hd_library_info *info,
                             hd_diag *diag)
{
    void *table = malloc(info->bytes);
    hd_library found = {0};
    bool usable;

    if (table == NULL)
        return HD_NO_MEMORY;
    usable = hd_library_open(info, table, diag, &found) == HD_OK;
    hd_json_open(json, NULL, '{');
    hd_json_string(json, "name", info->title);
    hd_json_flag(json, "usable", usable);
    hd_json_string(json, "version", *found.version ? found.version : NULL);
    hd_json_string(json, "path", *found.path ? found.path : NULL);
    hd_json_string(json, "variable", info->variable);
    hd_json_string(json, "use", info->use);
    hd_json_string(json, "install", info->install);
    hd_json_reason(json, info->instead, diag);
    hd_json_close(json, '}');
    hd_library_close(&found);
    free(table);
    return HD_OK;
}

static hd_status put_libraries(hd_text *json, hd_diag *diag)
{
    hd_json_open(json, "libraries", '[');
    for (int i = 0; i < NLIBRARIES; i++) {
        if (libraries[i]->use != NULL) // the driver has a member of its own
            HD_TRY(put_library(json, libraries[i], diag));
    }
    hd_json_close(json, ']');
    return HD_OK;
}

// --------------------------------------------------------------- limits

// CUDA's hardware queues: streams beyond share them, and one that waits holds
// up all that share its queue.
static int64_t connections(void)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int64_t value = text != NULL ? strtoll(text, NULL, 10) : 0;

    return value >= 1 && value <= 32 ? value : 8;
}

static void put_limits(hd_text *json)
{
    hd_json_open(json, "limits", '{');
    hd_json_number(json, "ranks", HD_MAX_RANKS);
    hd_json_number(json, "ranks_cuda_ipc",
                   HD_CUDA_PROBES / (int64_t)sizeof(uint32_t));
    hd_json_number(json, "connections", connections());
    hd_json_number(json, "waiting_streams", connections() - 1);
    hd_json_number(json, "work_streams", 64);
    hd_json_number(json, "runs_in_flight_cuda", HD_CUDA_RUNS);
    hd_json_number(json, "graphs", HD_CUDA_GRAPHS);
    hd_json_close(json, '}');
}

// ---------------------------------------------------------------- cache

static void put_cache(hd_text *json)
{
    hd_cache cache;
    hd_cache_survey found;

    hd_cache_open(&cache);
    hd_cache_look(&cache, &found);
    hd_json_open(json, "cache", '{');
    hd_json_flag(json, "usable", *found.reason == '\0');
    hd_json_string(json, "folder", *cache.folder ? cache.folder : NULL);
    hd_json_number(json, "entries", found.entries);
    hd_json_number(json, "bytes", found.bytes);
    hd_json_string(json, "variable", "HEDDLE_CACHE_DIR");
    hd_json_string(json, "reason", *found.reason ? found.reason : NULL);
    hd_json_close(json, '}');
}

// ------------------------------------------------------------ variables

typedef struct variable {
    const char *name, *meaning;
} variable;

static const variable variables[] = {
    {"HEDDLE_CACHE_DIR",
     "where kernels and tuned plans are kept; off: nowhere"},
    {"HEDDLE_CHAOS", "delays every stream at random, with this seed"},
    {"HEDDLE_ADDR", "where rank 0 is found under a launcher"},
    {"HEDDLE_HOST", "names the host that this rank is on"},
    {"CUDA_VISIBLE_DEVICES", "the devices that CUDA shows, in their order"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "hardware queues of a device"},
};
enum { NVARIABLES = sizeof variables / sizeof *variables };

static bool is_called(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

// Empty for a variable that is not ours.
static void find_meaning(const char *name, size_t length, char out[128])
{
    out[0] = '\0';
    if (strncmp(name, "HEDDLE_", 7) == 0)
        snprintf(out, 128, "nothing: heddle knows no such variable");
    for (int i = 0; i < NLIBRARIES; i++) {
        if (is_called(libraries[i]->variable, name, length))
            snprintf(out, 128, "%s's file", libraries[i]->title);
    }
    for (int i = 0; i < NVARIABLES; i++) {
        if (is_called(variables[i].name, name, length))
            snprintf(out, 128, "%s", variables[i].meaning);
    }
}

static void put_variables(hd_text *json)
{
    char name[128], meaning[128];

    hd_json_open(json, "variables", '[');
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        size_t length = strcspn(*at, "=");

        find_meaning(*at, length, meaning);
        if (*meaning == '\0' || (*at)[length] == '\0')
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, *at);
        hd_json_open(json, NULL, '{');
        hd_json_string(json, "name", name);
        hd_json_string(json, "value", *at + length + 1);
        hd_json_string(json, "meaning", meaning);
        hd_json_close(json, '}');
    }
    hd_json_close(json, ']');
}

// ------------------------------------------------------------- launcher

static void put_launcher(hd_text *json, hd_diag *diag)
{
    hd_place place = {0};
    bool found = false;

    // HD_OK or not: the reason is in the diag.
    (void)!hd_place_find(diag, &found, &place);
    hd_json_open(json, "launcher", '{');
    hd_json_flag(json, "found", found);
    if (found) {
        hd_json_string(json, "name", place.launcher);
        hd_json_number(json, "rank", place.rank);
        hd_json_number(json, "size", place.size);
        hd_json_number(json, "local_rank", place.local_rank);
        hd_json_number(json, "local_size", place.local_size);
        hd_json_string(json, "address", place.address);
    }
    hd_json_reason(json, NULL, diag);
    hd_json_close(json, '}');
}

// ------------------------------------------------------------------ all

static hd_status put_all(hd_text *json, hd_diag *words)
{
    hd_json_open(json, NULL, '{');
    hd_json_string(json, "heddle", hd_version());
    hd_json_number(json, "text_form", HD_FORMAT);
    put_host(json);
    HD_TRY(hd_environment_cuda(json));
    HD_TRY(put_libraries(json, words));
    put_limits(json);
    put_cache(json);
    put_variables(json);
    put_launcher(json, words);
    hd_json_close(json, '}');
    return HD_OK;
}

hd_status hd_environment(hd_diag *diag, char **out)
{
    hd_text json = {0};
    hd_diag *words;
    hd_status status;
    char *text = NULL;

    HD_REQUIRE(diag, out);
    words = hd_diag_create();
    status = words == NULL ? HD_NO_MEMORY : put_all(&json, words);
    hd_diag_destroy(words);
    if (status == HD_OK)
        text = hd_text_take(&json);
    hd_text_free(&json);
    if (text == NULL)
        return hd_fail(diag, HD_NO_MEMORY,
                       "no memory to describe the environment");
    *out = text;
    return HD_OK;
}
