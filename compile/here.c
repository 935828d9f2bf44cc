// The machine at hand: what was measured of it and kept in the cache, by what
// kind of machine it is, else the shipped one.
#include <heddle/environment.h>
#include <heddle/simulate.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"
#include "base/disk.h"
#include "base/sized.h"

static void open_machines(hd_disk *out)
{
    hd_disk_open(out);
    hd_disk_enter(out, "machines");
}

static void write_name(const char *key, char out[128])
{
    snprintf(out, 128, "%.110s.json", key);
}

static void write_path(const hd_disk *disk, const char *name,
                       hd_machine_origin *out)
{
    snprintf(out->path, sizeof out->path, "%s/%s", disk->folder, name);
}

// Tells what is wrong with it as a warning.
static bool parse(const char *path, const char *text, size_t bytes,
                  hd_diag *diag, hd_machine *out)
{
    hd_diag *words = hd_diag_create();
    hd_message first = HD_EMPTY(hd_message);
    bool whole = hd_machine_parse(path, text, bytes, words, out) == HD_OK;

    if (!whole && words != NULL && hd_diag_message(words, 0, &first))
        hd_warning(diag, HD_CODE_NONE, (hd_loc){0},
                   "%s:%d: %s; the machine that is shipped is taken, until "
                   "this is mended, deleted or measured again",
                   path, first.line, first.text);
    hd_diag_destroy(words);
    return whole;
}

static bool read_kept(const char *key, hd_diag *diag, hd_machine *machine,
                      hd_machine_origin *origin)
{
    char name[128];
    size_t bytes;
    void *text;
    hd_disk disk;
    bool whole;

    open_machines(&disk);
    write_name(key, name);
    if (!hd_disk_load(&disk, name, &text, &bytes, &origin->time))
        return false;
    write_path(&disk, name, origin);
    whole = parse(origin->path, text, bytes, diag, machine);
    free(text);
    return whole;
}

// Asking for GPUs takes a while, which is for nothing where no file is theirs.
static bool is_any(const char *device)
{
    hd_disk disk;

    open_machines(&disk);
    return hd_disk_has(&disk, strcmp(device, "cpu") == 0 ? "cpu-" : "cuda-");
}

hd_status hd_machine_here(const char *device, hd_diag *diag, hd_machine *out,
                          hd_machine_origin *origin)
{
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_origin found = HD_EMPTY(hd_machine_origin);
    hd_env_kind kind = HD_EMPTY(hd_env_kind);

    HD_REQUIRE(diag, device);
    HD_REQUIRE(diag, out);
    HD_REQUIRE(diag, origin);
    if (!hd_is_device(device))
        return hd_fail(diag, HD_ERROR_ARGUMENT, "no device '%.40s'", device);
    hd_machine_shipped(device, &machine);
    // Where there is no such device the session will say so.
    if (is_any(device) && hd_environment_kind(device, NULL, &kind) == HD_OK &&
        !read_kept(kind.key, diag, &machine, &found)) {
        hd_machine_shipped(device, &machine);
        found = HD_EMPTY(hd_machine_origin);
    }
    hd_sized_write(&machine, sizeof machine, out);
    hd_sized_write(&found, sizeof found, origin);
    return HD_OK;
}

// ------------------------------------------------------------------ keeping

static hd_status refuse(const hd_disk *disk, hd_diag *diag)
{
    int saved = errno;
    hd_disk_survey survey;

    hd_disk_look(disk, &survey);
    return hd_fail(diag, HD_ERROR_SYSTEM, "cannot keep a machine in %s: %s",
                   *disk->folder != '\0' ? disk->folder : "a cache",
                   *survey.reason != '\0' ? survey.reason : strerror(saved));
}

static hd_status try_folder(const hd_disk *disk, hd_diag *diag)
{
    hd_disk_survey survey;

    hd_disk_look(disk, &survey);
    return *survey.reason != '\0' ? refuse(disk, diag) : HD_OK;
}

static hd_status write_kept(const hd_disk *disk, const char *name,
                            const hd_machine *machine, hd_diag *diag)
{
    char *text = NULL;
    bool stored;

    HD_TRY(hd_machine_print(machine, diag, &text));
    stored = hd_disk_store(disk, name, text, strlen(text));
    hd_free(text);
    return stored ? HD_OK : refuse(disk, diag);
}

hd_status hd_machine_keep(const char *key, const hd_machine *machine,
                          hd_diag *diag, hd_machine_origin *origin)
{
    hd_machine_origin kept = HD_EMPTY(hd_machine_origin);
    char name[128];
    hd_disk disk;

    HD_REQUIRE(diag, key);
    HD_REQUIRE(diag, origin);
    if (*key == '\0' || *key == '.' || strchr(key, '/') != NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT, "'%.80s' is no machine's key",
                       key);
    open_machines(&disk);
    write_name(key, name);
    write_path(&disk, name, &kept);
    HD_TRY(machine != NULL ? write_kept(&disk, name, machine, diag)
                           : try_folder(&disk, diag));
    kept.time = machine != NULL ? (int64_t)time(NULL) : 0;
    hd_sized_write(&kept, sizeof kept, origin);
    return HD_OK;
}
