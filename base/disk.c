// A file of the folder is one entry:
//
//     | head: magic, version, sizes, checksum | key | payload |
//
// Processes share the folder without a lock. Each writes to a file of its own
// and renames it, so that a reader opens the old entry or the new one, whole.
// Whoever dies on the way leaves a file that nobody opens, and that goes with
// the oldest entries.
#include "base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/setting.h"

#define MAGIC 0x6c64646568u // of the other byte order it is another one
#define FORMAT 1
#define SUFFIX ".heddle"
#define HASH_DIGITS 32
#define NAME_BYTES 96
#define BLOCK 4096 // the least that a file takes

typedef struct head {
    uint64_t magic, format;
    uint64_t key_bytes, payload_bytes;
    uint64_t checksum; // of the whole file with 0 in this place
} head;

// --------------------------------------------------------------- folder

static const char *variable(const char *name)
{
    const char *value = hd_setting(name);

    return value != NULL && *value != '\0' ? value : NULL;
}

void hd_disk_open(hd_disk *out)
{
    const char *chosen = variable("HEDDLE_CACHE_DIR");
    const char *user = variable("XDG_CACHE_HOME"), *home = variable("HOME");
    size_t room = sizeof out->folder;
    int n = 0;

    out->folder[0] = '\0';
    if (chosen != NULL)
        n = strcmp(chosen, "off") == 0
                ? 0
                : snprintf(out->folder, room, "%s", chosen);
    else if (user != NULL && *user == '/')
        n = snprintf(out->folder, room, "%s/heddle", user);
    else if (home != NULL && *home == '/')
        n = snprintf(out->folder, room, "%s/.cache/heddle", home);
    if (n < 0 || (size_t)n >= room)
        out->folder[0] = '\0';
}

void hd_disk_enter(hd_disk *cache, const char *folder)
{
    size_t length = strlen(cache->folder);
    int n = length > 0 ? snprintf(cache->folder + length,
                                  sizeof cache->folder - length, "/%s", folder)
                       : 0;

    if (n < 0 || (size_t)n >= sizeof cache->folder - length)
        cache->folder[0] = '\0';
}

// Each folder on the way that is not there; what cannot be made is found when
// the last one is opened.
static void make_folders(const char *folder)
{
    char path[sizeof(((hd_disk *)0)->folder)];

    snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1; *at != '\0'; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    mkdir(path, 0700);
}

// Machine code is loaded from here, so that nobody else may put any there. -1
// with errno, which is EPERM for a folder that others may write to.
static int open_folder(const hd_disk *cache, bool make)
{
    const int how = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    struct stat about;
    int fd;

    if (cache->folder[0] == '\0') {
        errno = ENOENT;
        return -1;
    }
    fd = open(cache->folder, how);
    if (fd < 0 && make && errno == ENOENT) {
        make_folders(cache->folder);
        fd = open(cache->folder, how);
    }
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) == 0 && about.st_uid == geteuid() &&
        (about.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static void name_entry(const hd_text *key, char out[NAME_BYTES])
{
    XXH128_hash_t hash = XXH3_128bits(key->bytes, key->length);

    snprintf(out, NAME_BYTES, "%016llx%016llx" SUFFIX,
             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

// Also of what is written but not yet renamed. Whatever else lies in the folder
// is the user's.
static bool is_entry(const char *name)
{
    return strspn(name, "0123456789abcdef") == HASH_DIGITS &&
           strncmp(name + HASH_DIGITS, SUFFIX, strlen(SUFFIX)) == 0 &&
           strlen(name) < NAME_BYTES;
}

// -------------------------------------------------------------- reading

static bool read_all(int fd, char *to, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = read(fd, to, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        bytes -= (size_t)n;
    }
    return true;
}

static uint64_t checksum_of(char *file, size_t bytes)
{
    head head;
    uint64_t kept, sum;

    memcpy(&head, file, sizeof(head));
    kept = head.checksum;
    head.checksum = 0;
    memcpy(file, &head, sizeof(head));
    sum = XXH3_64bits(file, bytes);
    head.checksum = kept;
    memcpy(file, &head, sizeof(head));
    return sum;
}

// Whether these bytes are a whole entry for the key. Sizes are compared before
// they are added up.
static bool is_sound(char *file, size_t bytes, const hd_text *key)
{
    head head;

    memcpy(&head, file, sizeof(head));
    return head.magic == MAGIC && head.format == FORMAT &&
           head.key_bytes == key->length &&
           bytes - sizeof(head) >= key->length &&
           head.payload_bytes == bytes - sizeof(head) - key->length &&
           memcmp(file + sizeof(head), key->bytes, key->length) == 0 &&
           head.checksum == checksum_of(file, bytes);
}

// The file with what it holds, or NULL. Nothing but a file of our own is read:
// a pipe in its place would never end.
static char *read_open(int fd, size_t *bytes, int64_t *seconds)
{
    struct stat about;
    char *file;

    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) ||
        about.st_uid != geteuid() || about.st_size > (off_t)HD_CACHE_ENTRY)
        return NULL;
    *bytes = (size_t)about.st_size;
    *seconds = about.st_mtim.tv_sec;
    file = malloc(*bytes + 1);
    if (file == NULL || read_all(fd, file, *bytes))
        return file;
    free(file);
    return NULL;
}

static char *read_file(int folder, const char *name, int *fd, size_t *bytes,
                       int64_t *seconds)
{
    char *file;

    *fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return NULL;
    file = read_open(*fd, bytes, seconds);
    if (file == NULL)
        close(*fd);
    return file;
}

static char *read_entry(int folder, const hd_text *key, size_t *bytes)
{
    char name[NAME_BYTES], *file;
    int64_t seconds;
    int fd;

    name_entry(key, name);
    file = read_file(folder, name, &fd, bytes, &seconds);
    if (file == NULL)
        return NULL;
    if (*bytes < sizeof(head) || !is_sound(file, *bytes, key)) {
        free(file);
        file = NULL;
    }
    if (file != NULL)
        (void)!futimens(fd, NULL); // the oldest goes first
    close(fd);
    return file;
}

bool hd_disk_read(const hd_disk *cache, const hd_text *key, void **out,
                  size_t *bytes)
{
    int folder = key->failed ? -1 : open_folder(cache, false);
    size_t before = sizeof(head) + key->length, size = 0;
    char *file;

    if (folder < 0)
        return false;
    file = read_entry(folder, key, &size);
    close(folder);
    if (file == NULL)
        return false;
    // The payload alone, at an address that suits anything.
    memmove(file, file + before, size - before);
    *out = file;
    *bytes = size - before;
    return true;
}

bool hd_disk_load(const hd_disk *cache, const char *name, void **out,
                  size_t *bytes, int64_t *seconds)
{
    int folder = open_folder(cache, false), fd;
    char *file;

    if (folder < 0)
        return false;
    file = read_file(folder, name, &fd, bytes, seconds);
    close(folder);
    if (file == NULL)
        return false;
    close(fd);
    *out = file;
    return true;
}

// --------------------------------------------------------------- survey

typedef struct entry {
    char name[NAME_BYTES];
    struct timespec time;
    int64_t bytes;
} entry;

typedef struct entries {
    entry *entry; // owned
    size_t n, room;
    int64_t bytes;
} entries;

static bool add_entry(entries *all, int folder, const char *name)
{
    struct stat about;

    if (!is_entry(name) ||
        fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(about.st_mode))
        return true;
    if (all->n == all->room) {
        size_t room = all->room * 2 + 64;
        entry *more = realloc(all->entry, room * sizeof *more);

        if (more == NULL)
            return false;
        all->entry = more;
        all->room = room;
    }
    snprintf(all->entry[all->n].name, NAME_BYTES, "%s", name);
    all->entry[all->n].time = about.st_mtim;
    all->entry[all->n].bytes = (about.st_size + BLOCK - 1) / BLOCK * BLOCK;
    all->bytes += all->entry[all->n++].bytes;
    return true;
}

static DIR *open_list(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;

    if (list == NULL && fd >= 0)
        close(fd);
    return list;
}

static void list_entries(int folder, entries *out)
{
    DIR *list = open_list(folder);
    const struct dirent *found;

    if (list == NULL)
        return;
    while ((found = readdir(list)) != NULL) {
        if (!add_entry(out, folder, found->d_name))
            break;
    }
    closedir(list);
}

bool hd_disk_has(const hd_disk *cache, const char *beginning)
{
    int folder = open_folder(cache, false);
    DIR *list = folder >= 0 ? open_list(folder) : NULL;
    const struct dirent *found;
    bool has = false;

    while (list != NULL && !has && (found = readdir(list)) != NULL)
        has = strncmp(found->d_name, beginning, strlen(beginning)) == 0;
    if (list != NULL)
        closedir(list);
    if (folder >= 0)
        close(folder);
    return has;
}

// Whether the nearest folder above that is there may be written to.
static bool can_make(const char *folder)
{
    char path[sizeof(((hd_disk *)0)->folder)];
    char *slash;
    int saved = errno;
    bool can;

    snprintf(path, sizeof path, "%s", folder);
    while ((slash = strrchr(path, '/')) != NULL && slash != path) {
        *slash = '\0';
        if (access(path, F_OK) == 0)
            break;
    }
    can = access(slash == NULL   ? "."
                 : slash == path ? "/"
                                 : path,
                 W_OK | X_OK) == 0;
    errno = saved;
    return can;
}

static void put_reason(const hd_disk *cache, hd_disk_survey *out)
{
    const char *chosen = variable("HEDDLE_CACHE_DIR");
    const char *why = strerror(errno);

    if (cache->folder[0] == '\0' && chosen != NULL &&
        strcmp(chosen, "off") == 0)
        why = "HEDDLE_CACHE_DIR is 'off'";
    else if (cache->folder[0] == '\0')
        why = "neither HEDDLE_CACHE_DIR, XDG_CACHE_HOME nor HOME names a "
              "folder";
    else if (errno == EPERM)
        why = "it is another user's, or others may write to it";
    else if (errno == ENOENT && can_make(cache->folder))
        return;
    else if (errno == ENOENT)
        why = "it is not there and cannot be made";
    snprintf(out->reason, sizeof out->reason, "%s", why);
}

void hd_disk_look(const hd_disk *cache, hd_disk_survey *out)
{
    int folder = open_folder(cache, false);
    entries all = {0};

    memset(out, 0, sizeof *out);
    if (folder < 0) {
        put_reason(cache, out);
        return;
    }
    if (faccessat(folder, ".", W_OK | X_OK, 0) != 0)
        put_reason(cache, out);
    list_entries(folder, &all);
    out->entries = (int64_t)all.n;
    out->bytes = all.bytes;
    free(all.entry);
    close(folder);
}

// -------------------------------------------------------------- writing

static int by_time(const void *a, const void *b)
{
    const struct timespec *x = &((const entry *)a)->time;
    const struct timespec *y = &((const entry *)b)->time;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

// Well below the limit, or every entry that follows would list the folder and
// remove one.
static void trim(int folder)
{
    const int64_t most = (int64_t)HD_CACHE_TOTAL;
    entries all = {0};

    list_entries(folder, &all);
    if (all.bytes > most) {
        qsort(all.entry, all.n, sizeof *all.entry, by_time);
        for (size_t i = 0; i < all.n && all.bytes > most / 4 * 3; i++) {
            unlinkat(folder, all.entry[i].name, 0);
            all.bytes -= all.entry[i].bytes;
        }
    }
    free(all.entry);
}

static bool write_all(int fd, const char *from, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, from, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        bytes -= (size_t)n;
    }
    return true;
}

// NULL if it does not fit, or if there is no memory.
static char *make_file(const hd_text *key, const void *payload, size_t bytes,
                       size_t *out)
{
    head head = {MAGIC, FORMAT, key->length, bytes, 0};
    const size_t room = HD_CACHE_ENTRY - sizeof(head);
    char *file;

    if (bytes > room || key->length > room - bytes)
        return NULL;
    *out = sizeof(head) + key->length + bytes;
    file = malloc(*out);
    if (file == NULL)
        return NULL;
    memcpy(file, &head, sizeof(head));
    memcpy(file + sizeof(head), key->bytes, key->length);
    if (bytes > 0)
        memcpy(file + sizeof(head) + key->length, payload, bytes);
    head.checksum = checksum_of(file, *out);
    memcpy(file, &head, sizeof(head));
    return file;
}

static bool write_file(int folder, const char *name, const char *file,
                       size_t bytes)
{
    char part[2 * NAME_BYTES + 64];
    struct timespec t;
    bool whole;
    int fd, saved;

    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(part, sizeof(part), "%s.%lld.%lld.%lld", name, (long long)gettid(),
             (long long)t.tv_sec, (long long)t.tv_nsec);
    fd = openat(folder, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    whole = write_all(fd, file, bytes);
    whole &= close(fd) == 0;
    if (whole && renameat(folder, part, folder, name) == 0)
        return true;
    saved = errno;
    unlinkat(folder, part, 0);
    errno = saved;
    return false;
}

static void write_entry(int folder, const hd_text *key, const char *file,
                        size_t bytes)
{
    char name[NAME_BYTES];

    name_entry(key, name);
    (void)!write_file(folder, name, file, bytes);
}

bool hd_disk_store(const hd_disk *cache, const char *name, const void *from,
                   size_t bytes)
{
    int folder = open_folder(cache, true), saved;
    bool stored;

    if (folder < 0)
        return false;
    stored = write_file(folder, name, from, bytes);
    saved = errno;
    close(folder);
    errno = saved;
    return stored;
}

void hd_disk_write(const hd_disk *cache, const hd_text *key,
                   const void *payload, size_t bytes)
{
    int folder = key->failed ? -1 : open_folder(cache, true);
    size_t size = 0;
    char *file;

    if (folder < 0)
        return;
    file = make_file(key, payload, bytes, &size);
    if (file != NULL) {
        write_entry(folder, key, file, size);
        trim(folder);
    }
    free(file);
    close(folder);
}
