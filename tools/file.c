// Files in and out.
//
// An output is written to a file without a name in its own directory, flushed
// to the disk and then named, so that whoever opens the name finds the old file
// or the whole new one, and nothing is left of a command that ends before.
// Where the file system has no such files (NFS), to a temporary one with a
// name.
#include "file.h"

#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *input_name(const char *path)
{
    return is_dash(path) ? "standard input" : *path ? path : "''";
}

void *memory_pages(size_t bytes, bool shared)
{
    int flags = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
    void *memory =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, flags, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void memory_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}

double memory_there(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

// Doubles `content`, by moving its pages and not its bytes.
static bool grow(content *content, size_t most)
{
    size_t room = content->room ? content->room * 2 : (size_t)1 << 16;
    void *memory;

    if (room > most)
        room = most;
    memory = content->memory
                 ? mremap(content->memory, content->room, room, MREMAP_MAYMOVE)
                 : memory_pages(room, false);
    if (!memory || memory == MAP_FAILED)
        return false;
    content->memory = memory;
    content->room = room;
    return true;
}

static outcome read_stream(const char *path, int fd, size_t limit, content *out)
{
    size_t most = limit + 1;

    while (out->length < most) {
        ssize_t n;

        if (out->length == out->room && !grow(out, most))
            return complain(FAILED, "%s: out of memory after %zu bytes",
                            input_name(path), out->length);
        n = read(fd, (char *)out->memory + out->length,
                 out->room - out->length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return complain(WRONG, "cannot read %s: %s", input_name(path),
                            strerror(errno));
        if (n == 0)
            break;
        out->length += (size_t)n;
    }
    out->bytes = out->memory ? out->memory : (const unsigned char *)"";
    out->cut = out->length > limit;
    return FINE;
}

static outcome map_file(const char *path, int fd, size_t length, content *out)
{
    void *memory = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);

    if (memory == MAP_FAILED)
        return complain(WRONG, "cannot map the %zu bytes of %s: %s", length,
                        input_name(path), strerror(errno));
    out->memory = memory;
    out->bytes = memory;
    out->length = out->room = length;
    return FINE;
}

outcome content_open(const char *path, size_t limit, content *out)
{
    int fd =
        is_dash(path) ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    outcome result;

    *out = (content){0};
    if (fd < 0 || fstat(fd, &info) < 0) {
        result = complain(WRONG, "cannot open %s: %s", input_name(path),
                          strerror(errno));
    } else if (S_ISREG(info.st_mode) && info.st_size > 0 &&
               lseek(fd, 0, SEEK_CUR) == 0) {
        result = map_file(path, fd, (size_t)info.st_size, out);
    } else {
        result = read_stream(path, fd, limit, out);
    }
    if (fd >= 0)
        close(fd);
    if (result != FINE)
        content_close(out);
    return result;
}

void content_close(content *content)
{
    if (content->memory)
        munmap(content->memory, content->room);
    memset(content, 0, sizeof *content);
}

static const char *output_name(const char *name)
{
    return is_dash(name) ? "standard output" : *name ? name : "''";
}

static outcome cannot_write(const char *name)
{
    if (is_dash(name) && errno == EPIPE && pipe_is_broken())
        return WRONG; // which the end of the command tells
    return complain(WRONG, "cannot write %s: %s", output_name(name),
                    *name ? strerror(errno) : "a file has a name");
}

// Where a file that has no name can be found.
enum { BY_NUMBER = 32 };

static const char *path_by_number(int fd, char out[BY_NUMBER])
{
    snprintf(out, BY_NUMBER, "/proc/self/fd/%d", fd);
    return out;
}

// Beside `path`; -1 where there are no such files, or none can be named later.
static int open_nameless(const char *path)
{
    char *copy = need_format("%s", path), number[BY_NUMBER];
    int fd = open(dirname(copy), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    free(copy);
    if (fd >= 0 && access(path_by_number(fd, number), F_OK) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

// A private file is made. The result gets the permissions of the file
// that it replaces if that was ours, and else those that open would have given
// it. Another user's file must not lend its mode to what we write: a program
// that runs as its owner would then run whatever is ours as us.
static mode_t mode_for(int fd, const struct stat *old)
{
    mode_t mask = umask(0);

    umask(mask);
    if (!old || old->st_uid != geteuid())
        return 0666 & ~mask;
    // What a group may do is meant for that group alone.
    return fchown(fd, (uid_t)-1, old->st_gid) == 0 ? old->st_mode & 0777
                                                   : old->st_mode & 0707;
}

static outcome open_temporary(sink *sink, const struct stat *old)
{
    sink->temporary = need_format("%s.XXXXXX", sink->path);
    sink->fd = open_nameless(sink->path);
    if (sink->fd < 0) {
        sink->fd = mkostemp(sink->temporary, O_CLOEXEC);
        sink->named = true;
    }
    if (sink->fd < 0) {
        free(sink->temporary);
        sink->temporary = NULL;
        return cannot_write(sink->name);
    }
    (void)!fchmod(sink->fd, mode_for(sink->fd, old));
    return FINE;
}

// What is no regular file, such as a pipe, is written as it stands.
static outcome open_direct(sink *sink)
{
    sink->fd = open(sink->name, O_WRONLY | O_CLOEXEC);
    return sink->fd < 0 ? cannot_write(sink->name) : FINE;
}

outcome sink_open(const char *name, sink *out)
{
    struct stat info;
    bool exists;

    *out = (sink){.name = name, .fd = -1};
    if (is_dash(name)) {
        out->fd = dup(STDOUT_FILENO);
        return out->fd < 0 ? cannot_write(name) : FINE;
    }
    if (stat(name, &info) == 0 && !S_ISREG(info.st_mode))
        return open_direct(out);
    out->path = path_whole(name); // so that a link stays a link
    if (!out->path)
        return cannot_write(name);
    exists = stat(out->path, &info) == 0;
    return open_temporary(out, exists ? &info : NULL);
}

outcome sink_write(sink *sink, const void *bytes, size_t length)
{
    const char *at = bytes;

    while (length > 0) {
        // Linux moves at most 2 GiB a call.
        ssize_t n = write(sink->fd, at, length < 1 << 30 ? length : 1 << 30);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot_write(sink->name);
        at += n;
        length -= (size_t)n;
    }
    return FINE;
}

static FILE *open_stream(const sink *sink)
{
    int fd = dup(sink->fd);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w");

    if (!stream && fd >= 0) {
        // EINVAL: it was not opened for writing, as one that was closed is
        // held.
        int why = errno == EINVAL ? EBADF : errno;

        close(fd);
        errno = why;
    }
    if (!stream)
        cannot_write(sink->name);
    return stream;
}

static outcome close_stream(const sink *sink, FILE *stream)
{
    bool bad = fflush(stream) != 0 || ferror(stream);
    int why = errno;

    fclose(stream);
    errno = why;
    return bad ? cannot_write(sink->name) : FINE;
}

static bool link_as(const sink *sink, const char *path)
{
    char number[BY_NUMBER];

    return linkat(AT_FDCWD, path_by_number(sink->fd, number), AT_FDCWD, path,
                  AT_SYMLINK_FOLLOW) == 0;
}

// Under a name that nobody has, as mkostemp would make it.
static bool link_aside(sink *sink)
{
    enum { DRAWN = 6, MOST_DRAWS = 100 };
    char *end = strchr(sink->temporary, 0) - DRAWN;

    for (int i = 0; i < MOST_DRAWS && !sink->named; i++) {
        unsigned char drawn[DRAWN];

        if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn)
            return false;
        for (int k = 0; k < DRAWN; k++)
            end[k] = (char)('a' + drawn[k] % 26);
        sink->named = link_as(sink, sink->temporary);
        if (!sink->named && errno != EEXIST)
            return false;
    }
    return sink->named;
}

// Its own name is given at once where that is free, and else by way of another.
// No signal that ends a command comes between.
static bool give_name(sink *sink)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t held, before;
    bool given;

    if (!sink->named && link_as(sink, sink->path))
        return true;
    if (!sink->named && errno != EEXIST)
        return false;
    sigemptyset(&held);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        sigaddset(&held, ending[i]);
    sigprocmask(SIG_BLOCK, &held, &before);
    given = (sink->named || link_aside(sink)) &&
            rename(sink->temporary, sink->path) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return given;
}

// Pipes and terminals cannot be synced, which is no failure.
static bool is_kept(const sink *sink)
{
    return fsync(sink->fd) == 0 || errno == EINVAL || errno == EROFS;
}

outcome sink_commit(sink *sink)
{
    bool bad = !is_kept(sink) || (sink->temporary && !give_name(sink));
    int why = errno;

    if (close(sink->fd) < 0 && !bad) {
        bad = true;
        why = errno;
    }
    sink->fd = -1;
    errno = why;
    if (bad)
        return cannot_write(sink->name);
    free(sink->temporary);
    sink->temporary = NULL;
    return FINE;
}

void sink_discard(sink *sink)
{
    if (sink->fd >= 0)
        close(sink->fd);
    if (sink->temporary && sink->named)
        unlink(sink->temporary);
    free(sink->temporary);
    free(sink->path);
    *sink = (struct sink){.fd = -1};
}

static outcome print_into(sink *sink, outcome (*print)(void *context, FILE *to),
                          void *context)
{
    FILE *stream = open_stream(sink);
    outcome result;

    if (!stream)
        return WRONG;
    result = print(context, stream);
    result = first_wrong(result, close_stream(sink, stream));
    return result == FINE ? sink_commit(sink) : result;
}

outcome file_print(const char *name, outcome (*print)(void *context, FILE *to),
                   void *context)
{
    sink sink;
    outcome result = sink_open(name, &sink);

    if (result == FINE)
        result = print_into(&sink, print, context);
    sink_discard(&sink);
    return result;
}

outcome file_writable(const char *name)
{
    struct stat info;
    outcome result = FINE;
    char *whole;

    if (is_dash(name))
        return FINE;
    if (stat(name, &info) == 0 && !S_ISREG(info.st_mode)) {
        errno = EISDIR;
        return S_ISDIR(info.st_mode) ? cannot_write(name) : FINE;
    }
    // Also a file that is there is replaced, which its folder must allow.
    whole = path_whole(name);
    if (!whole || access(dirname(whole), W_OK) != 0)
        result = cannot_write(name);
    free(whole);
    return result;
}

// Pipes and devices take the one after the other.
static bool is_same_file(const char *name, const char *other)
{
    struct stat info;
    char *a, *b;
    bool same;

    if (!name || !other || is_dash(name) || is_dash(other) ||
        (stat(name, &info) == 0 && !S_ISREG(info.st_mode)))
        return false;
    a = path_whole(name);
    b = path_whole(other);
    same = a && b && strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}

outcome outputs_apart(const char *option, const char *name, const char *other,
                      const char *its_name)
{
    if (!is_same_file(name, its_name))
        return FINE;
    return complain(USAGE, "%s and %s both write %s", option, other, its_name);
}

outcome output_spares(const char *option, const char *name, const char *input)
{
    if (!is_same_file(name, input))
        return FINE;
    return complain(USAGE, "%s would write over %s, which is read", option,
                    input);
}
