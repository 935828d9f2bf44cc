#include "base/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/log.h"
#include "base/setting.h"

static void keep_path(hd_library *library, const char *asked)
{
    struct link_map *map = NULL;

    if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL &&
        map->l_name[0] != '\0')
        asked = map->l_name;
    snprintf(library->path, sizeof library->path, "%s", asked);
}

// A library stays in the process once it is there: unloading one loses what its
// C++ runtime has allocated, and loading it again allocates that anew.
//
// One thread at a time: the C library's own lock is not seen by
// ThreadSanitizer, nor does what it says of a library come under it.
static bool try_path(hd_library *library, const char *path, int mode)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    library->handle = dlopen(path, mode | RTLD_LOCAL | RTLD_NODELETE);
    if (library->handle != NULL)
        keep_path(library, path);
    pthread_mutex_unlock(&lock);
    return library->handle != NULL;
}

// To open a pipe that nobody writes to would take for ever.
static bool never_opens(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

// Two copies of one library in a process do not share their state, so one that
// is there is used.
static bool try_loaded(const hd_library_info *info, hd_library *library)
{
    for (int i = 0; info->names[i] != NULL; i++) {
        if (try_path(library, info->names[i], RTLD_NOW | RTLD_NOLOAD))
            return true;
    }
    return false;
}

static bool try_pattern(hd_library *library, const char *pattern)
{
    glob_t found;
    bool done = false;

    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc && !done; i++)
        done = try_path(library, found.gl_pathv[i], RTLD_NOW);
    globfree(&found);
    return done;
}

// DIR/python3 of a virtual environment has its packages in DIR/../lib.
static bool try_packages_of(const hd_library_info *info, hd_library *library,
                            const char *bin, size_t length)
{
    char pattern[2048];

    snprintf(pattern, sizeof pattern, "%.*s/python3", (int)length, bin);
    if (access(pattern, X_OK) != 0)
        return false;
    for (int f = 0; info->folders[f] != NULL; f++) {
        for (int i = 0; info->names[i] != NULL; i++) {
            snprintf(pattern, sizeof pattern,
                     "%.*s/../lib/python3*/site-packages/%s/%s", (int)length,
                     bin, info->folders[f], info->names[i]);
            if (try_pattern(library, pattern))
                return true;
        }
    }
    return false;
}

static bool try_packages(const hd_library_info *info, hd_library *library)
{
    const char *path = hd_setting("PATH");

    while (path != NULL && *path != '\0') {
        size_t length = strcspn(path, ":");

        if (try_packages_of(info, library, path, length))
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

static bool try_names(const hd_library_info *info, hd_library *library)
{
    for (int i = 0; info->names[i] != NULL; i++) {
        if (try_path(library, info->names[i], RTLD_NOW))
            return true;
    }
    return false;
}

static hd_status find_library(const hd_library_info *info, hd_diag *diag,
                              hd_library *library)
{
    const char *chosen = hd_setting(info->variable);

    if (try_loaded(info, library))
        return HD_OK;
    if (chosen != NULL && *chosen != '\0') {
        if (never_opens(chosen))
            return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                           "%s is needed, and %s is no such library: %s is no "
                           "regular file",
                           info->title, info->variable, chosen);
        if (try_path(library, chosen, RTLD_NOW))
            return HD_OK;
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "%s is needed, and %s is no such "
                       "library: %s",
                       info->title, info->variable, dlerror());
    }
    if (try_packages(info, library) || try_names(info, library))
        return HD_OK;
    return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                   "%s is needed, and neither python3's packages nor the "
                   "system's libraries hold %s; %s may name the file",
                   info->title, info->names[0], info->variable);
}

static hd_status load_symbols(const hd_library_info *info, void *table,
                              const hd_library *library, hd_diag *diag)
{
    for (size_t i = 0; i < info->nsymbols; i++) {
        const hd_symbol *symbol = &info->symbol[i];
        void *address = dlsym(library->handle, symbol->name);

        if (address == NULL)
            return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                           "%s at %s is too old: it has no %s", info->title,
                           library->path, symbol->name);
        memcpy((char *)table + symbol->offset, &address, sizeof address);
    }
    return HD_OK;
}

static hd_status check_version(const hd_library_info *info, const void *table,
                               hd_library *library, hd_diag *diag)
{
    if (info->version == NULL)
        return HD_OK;
    if (!info->version(table, library->version))
        return hd_fail(diag, HD_ERROR_SYSTEM,
                       "%s at %s does not tell its "
                       "version",
                       info->title, library->path);
    if (info->oldest != NULL && strverscmp(library->version, info->oldest) < 0)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "%s at %s is too old: it is %s, and %s or newer is "
                       "needed",
                       info->title, library->path, library->version,
                       info->oldest);
    return HD_OK;
}

static hd_status open_library(const hd_library_info *info, void *table,
                              hd_diag *diag, hd_library *out)
{
    hd_library library = {0};
    hd_status status;

    if (info->check != NULL)
        HD_TRY(info->check(diag));
    HD_TRY(find_library(info, diag, &library));
    status = load_symbols(info, table, &library, diag);
    if (status == HD_OK) {
        status = check_version(info, table, &library, diag);
        *out = library;
    }
    if (status != HD_OK) {
        dlclose(library.handle);
        out->handle = NULL;
    }
    return status;
}

// Why it was not opened is in the diag, behind what was there.
static void tell(const hd_library_info *info, const hd_library *library,
                 hd_status status, const hd_diag *diag, size_t said)
{
    hd_message message = {.text = hd_status_text(status)};

    if (status == HD_OK) {
        hd_log(HD_SEVERITY_NOTE, "%s %s is at %s", info->title,
               library->version, library->path);
        return;
    }
    if (diag != NULL)
        hd_diag_message(diag, said, &message);
    hd_log(HD_SEVERITY_WARNING, "%s is not to be had: %s%s%s", info->title,
           message.text, info->instead != NULL ? "; instead: " : "",
           info->instead != NULL ? info->instead : "");
}

hd_status hd_library_open(const hd_library_info *info, void *table,
                          hd_diag *diag, hd_library *out)
{
    hd_diag *words = diag == NULL && hd_log_on() ? hd_diag_create() : NULL;
    hd_diag *used = diag != NULL ? diag : words;
    size_t said = used != NULL ? hd_diag_count(used) : 0;
    hd_status status = open_library(info, table, used, out);

    if (hd_log_on())
        tell(info, out, status, used, said);
    hd_diag_destroy(words);
    return status;
}

void hd_library_close(hd_library *library)
{
    if (library->handle != NULL)
        dlclose(library->handle);
    library->handle = NULL;
}

void hd_library_write_version(size_t number, char out[HD_LIBRARY_VERSION])
{
    snprintf(out, HD_LIBRARY_VERSION, "%zu.%zu.%zu", number / 10000,
             number / 100 % 100, number % 100);
}
