// What this machine offers heddle: the host, the vendors' libraries, CUDA's
// devices and links, limits, what the environment sets. What is absent is a
// fact like any other; only running out of memory is a failure.
#include <heddle/environment.h>
#include <heddle/launch.h>

#include "runtime/environment.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/setting.h"
#include "base/sized.h"
#include "codegen/nvrtc.h"
#include "ir/suggest.h"
#include "runtime/cpu/blas.h"
#include "runtime/cuda/device/device.h"
#include "runtime/cuda/memory/window.h"
#include "runtime/cuda/vendor/library.h"

extern char **environ;

void hd_environment_reason(hd_diag *diag, const char *instead,
                           char out[HD_REASON_TEXT])
{
    hd_message message = HD_EMPTY(hd_message);
    bool found = hd_diag_message(diag, 0, &message);

    if (found && instead != NULL)
        snprintf(out, HD_REASON_TEXT, "%s (%s)", instead, message.text);
    else
        snprintf(out, HD_REASON_TEXT, "%s", found ? message.text : "");
    hd_diag_clear(diag);
}

static void look_at_host(hd_environment *e)
{
    gethostname(e->host, sizeof e->host - 1);
    e->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    e->memory = (int64_t)sysconf(_SC_PAGESIZE) * sysconf(_SC_PHYS_PAGES);
}

// ------------------------------------------------------------ libraries

static const hd_library_info *const libraries[] = {
    &hd_cuda_library, &hd_lt_library, &hd_dnn_library,   &hd_nvrtc_library,
    &hd_nccl_library, &hd_mp_library, &hd_shmem_library, &hd_blas_library};
enum { NLIBRARIES = sizeof libraries / sizeof *libraries };

static hd_status look_at_library(const hd_library_info *info, hd_diag *diag,
                                 hd_env_library *out)
{
    void *table = malloc(info->bytes);
    hd_library found = {0};

    if (table == NULL)
        return HD_ERROR_NO_MEMORY;
    *out = (hd_env_library){.name = info->title,
                            .variable = info->variable,
                            .use = info->use,
                            .install = info->install};
    out->usable = hd_library_open(info, table, diag, &found) == HD_OK;
    snprintf(out->version, sizeof out->version, "%s", found.version);
    snprintf(out->path, sizeof out->path, "%s", found.path);
    hd_environment_reason(diag, info->instead, out->reason);
    hd_library_close(&found);
    free(table);
    return HD_OK;
}

static hd_status look_at_libraries(hd_environment *e, hd_diag *diag)
{
    static_assert(NLIBRARIES <= sizeof e->library / sizeof *e->library,
                  "each has its place");

    for (int i = 0; i < NLIBRARIES; i++) {
        if (libraries[i]->use != NULL) // the driver has a member of its own
            HD_TRY(look_at_library(libraries[i], diag,
                                   &e->library[e->nlibraries++]));
    }
    return HD_OK;
}

// --------------------------------------------------------------- limits

// CUDA's hardware queues: streams beyond share them, and one that waits holds
// up all that share its queue.
static int connections(void)
{
    const char *text = hd_setting("CUDA_DEVICE_MAX_CONNECTIONS");
    long value = text != NULL ? strtol(text, NULL, 10) : 0;

    return value >= 1 && value <= 32 ? (int)value : 8;
}

static hd_env_limits list_limits(void)
{
    return (hd_env_limits){.ranks = HD_MAX_RANKS,
                           .ranks_cuda_ipc =
                               HD_CUDA_PROBES / (int)sizeof(uint32_t),
                           .connections = connections(),
                           .waiting_streams = connections() - 1,
                           .work_streams = 64,
                           .runs_in_flight_cuda = HD_CUDA_RUNS,
                           .graphs = HD_CUDA_GRAPHS};
}

// ---------------------------------------------------------------- cache

static void look_at_cache(hd_env_cache *out)
{
    hd_disk cache;
    hd_disk_survey found;

    hd_disk_open(&cache);
    hd_disk_look(&cache, &found);
    *out = (hd_env_cache){.entries = found.entries,
                          .bytes = found.bytes,
                          .variable = "HEDDLE_CACHE_DIR"};
    snprintf(out->folder, sizeof out->folder, "%s", cache.folder);
    snprintf(out->reason, sizeof out->reason, "%s", found.reason);
}

// ------------------------------------------------------------ variables

// Empty for a variable that is not ours.
static void find_meaning(const char *name, char out[128])
{
    out[0] = '\0';
    if (strncmp(name, "HEDDLE_", 7) == 0)
        snprintf(out, 128, "nothing: heddle knows no such variable");
    for (int i = 0; i < NLIBRARIES; i++) {
        if (strcmp(libraries[i]->variable, name) == 0)
            snprintf(out, 128, "%s's file", libraries[i]->title);
    }
    for (int i = 0; hd_setting_get(i) != NULL; i++) {
        const hd_setting_info *setting = hd_setting_get(i);

        if (setting->meaning != NULL && strcmp(setting->name, name) == 0)
            snprintf(out, 128, "%s", setting->meaning);
    }
}

static void add_variable(hd_environment *e, const char *name, size_t length,
                         const char *value)
{
    hd_env_variable *v = &e->variable[e->nvariables];

    if (length >= sizeof v->name)
        return;
    memcpy(v->name, name, length);
    v->name[length] = '\0';
    v->value = value;
    find_meaning(v->name, v->meaning);
    e->nvariables += *v->meaning != '\0';
}

// What hd_set has said comes first, and in the place of what the environment
// says.
static hd_status look_at_variables(hd_environment *e)
{
    size_t n = 0, room = 1;
    int said;

    while (environ != NULL && environ[n] != NULL)
        n++;
    while (hd_setting_get((int)room) != NULL)
        room++;
    e->variable = calloc(n + room + 1, sizeof *e->variable);
    if (e->variable == NULL)
        return HD_ERROR_NO_MEMORY;
    for (int i = 0; hd_setting_get(i) != NULL; i++) {
        const char *name = hd_setting_get(i)->name;

        if (hd_setting_given(i) != NULL)
            add_variable(e, name, strlen(name), hd_setting_given(i));
    }
    said = e->nvariables;
    for (size_t i = 0; i < n; i++) {
        size_t length = strcspn(environ[i], "=");
        bool told = environ[i][length] == '\0';

        for (int k = 0; k < said; k++)
            told |= strlen(e->variable[k].name) == length &&
                    memcmp(e->variable[k].name, environ[i], length) == 0;
        if (!told)
            add_variable(e, environ[i], length, environ[i] + length + 1);
    }
    return HD_OK;
}

// -------------------------------------------------------------- settings

static int find_setting(const char *name)
{
    for (int i = 0; hd_setting_get(i) != NULL; i++) {
        if (strcmp(hd_setting_get(i)->name, name) == 0)
            return i;
    }
    return -1;
}

static hd_status report_unknown(const char *name, hd_diag *diag)
{
    hd_suggestion suggestion = hd_suggest(name, strlen(name));

    for (int i = 0; hd_setting_get(i) != NULL; i++)
        hd_suggest_consider(&suggestion, hd_setting_get(i)->name);
    return suggestion.best == NULL
               ? hd_fail(diag, HD_ERROR_ARGUMENT,
                         "heddle reads no setting '%.80s'", name)
               : hd_fail(diag, HD_ERROR_ARGUMENT,
                         "heddle reads no setting '%.80s'; did you mean '%s'?",
                         name, suggestion.best);
}

hd_status hd_set(const char *name, const char *value, hd_diag *diag)
{
    char *copy = NULL;
    int i;

    HD_REQUIRE(diag, name);
    i = find_setting(name);
    if (i < 0)
        return report_unknown(name, diag);
    if (hd_setting_get(i)->cudas)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "CUDA reads %s by itself: set it in the environment, "
                       "before CUDA is started",
                       name);
    if (value != NULL && (copy = strdup(value)) == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a setting");
    hd_setting_give(i, copy);
    return HD_OK;
}

// ------------------------------------------------------------- what kind

void hd_environment_slug(const char *name, char *out, size_t size)
{
    size_t n = 0;

    for (; *name != '\0' && n + 1 < size; name++) {
        bool capital = *name >= 'A' && *name <= 'Z';
        bool plain = capital || (*name >= 'a' && *name <= 'z') ||
                     (*name >= '0' && *name <= '9');

        if (plain)
            out[n++] = capital ? (char)(*name - 'A' + 'a') : *name;
        else if (n > 0 && out[n - 1] != '-')
            out[n++] = '-';
    }
    n -= n > 0 && out[n - 1] == '-';
    out[n] = '\0';
}

// As Linux calls it on x86; other processors have no name there.
static void read_model(char *out, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(out, size, "processor");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *value = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    if (file != NULL)
        fclose(file);
}

// Those that this process may run on, which may be fewer than there are.
static int count_processors(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0
               ? CPU_COUNT(&set)
               : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static void describe_cpu(hd_env_kind *out)
{
    char model[128], slug[64];

    out->devices = count_processors();
    read_model(model, sizeof model);
    hd_environment_slug(model, slug, sizeof slug);
    snprintf(out->key, sizeof out->key, "cpu-%d-%s", out->devices, slug);
    snprintf(out->name, sizeof out->name, "%d x %.48s", out->devices, model);
}

hd_status hd_environment_kind(const char *device, hd_diag *diag,
                              hd_env_kind *out)
{
    hd_env_kind kind = HD_EMPTY(hd_env_kind);

    HD_REQUIRE(diag, device);
    HD_REQUIRE(diag, out);
    if (!hd_is_device(device))
        return hd_fail(diag, HD_ERROR_ARGUMENT, "no device '%.40s'", device);
    if (strcmp(device, "cpu") == 0)
        describe_cpu(&kind);
    else
        HD_TRY(hd_environment_cuda_kind(diag, &kind));
    hd_sized_write(&kind, sizeof kind, out);
    return HD_OK;
}

// ------------------------------------------------------------------ all

static hd_status look_around(hd_environment *e, hd_diag *words)
{
    look_at_host(e);
    HD_TRY(hd_environment_cuda(e));
    HD_TRY(look_at_libraries(e, words));
    e->limits = list_limits();
    look_at_cache(&e->cache);
    HD_TRY(look_at_variables(e));
    // HD_OK or not: the reason is in the diag.
    (void)!hd_place_find(words, &e->launched, &e->place);
    hd_environment_reason(words, NULL, e->place_reason);
    return HD_OK;
}

hd_status hd_environment_create(hd_diag *diag, hd_environment **out)
{
    hd_environment *environment;
    hd_diag *words;
    hd_status status = HD_ERROR_NO_MEMORY;

    HD_REQUIRE(diag, out);
    environment = calloc(1, sizeof *environment);
    words = hd_diag_create();
    if (environment != NULL && words != NULL)
        status = look_around(environment, words);
    hd_diag_destroy(words);
    if (status == HD_OK) {
        *out = environment;
        return HD_OK;
    }
    hd_environment_destroy(environment);
    return hd_fail(diag, status, "no memory to describe the environment");
}

void hd_environment_destroy(hd_environment *environment)
{
    if (environment == NULL)
        return;
    free(environment->device);
    free(environment->link);
    free(environment->variable);
    free(environment);
}
