// See path.h.
#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

// Where a file that is not there yet will be: its folder, without links and
// dots, and its own name.
static char *name_in_folder(const char *name)
{
    char *folder_copy = need_format("%s", name);
    char *base_copy = need_format("%s", name);
    char *folder = realpath(dirname(folder_copy), NULL);
    char *whole = NULL;

    if (folder)
        whole = need_format("%s/%s", strcmp(folder, "/") == 0 ? "" : folder,
                            basename(base_copy));
    free(folder);
    free(base_copy);
    free(folder_copy);
    return whole;
}

// The name that the link `name` holds, as seen from here; NULL if it is none.
static char *name_in_link(const char *name)
{
    char target[PATH_MAX];
    ssize_t length = readlink(name, target, sizeof target - 1);
    char *copy, *whole;

    if (length < 0)
        return NULL;
    target[length] = 0;
    if (target[0] == '/')
        return need_format("%s", target);
    copy = need_format("%s", name);
    whole = need_format("%s/%s", dirname(copy), target);
    free(copy);
    return whole;
}

// The kernel's own word: in a folder that is everyone's it may refuse to follow
// somebody else's link (fs.protected_symlinks), which realpath would not learn.
static bool is_there(const char *name)
{
    int fd = open(name, O_PATH | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool ends_in_slash(const char *name)
{
    size_t length = strlen(name);

    return length > 0 && name[length - 1] == '/';
}

// One step: the whole name, or NULL and in `next`, to be freed, the name that
// the link `name` leads to.
static char *resolve(const char *name, char **next)
{
    *next = NULL;
    if (is_there(name))
        return realpath(name, NULL);
    if (errno != ENOENT || !*name)
        return NULL;
    // What is not there yet will be a file.
    if (ends_in_slash(name)) {
        errno = EISDIR;
        return NULL;
    }
    *next = name_in_link(name);
    return *next ? NULL : name_in_folder(name);
}

char *path_whole(const char *name)
{
    enum { MOST_LINKS = 40 }; // as the kernel has it
    char *at = need_format("%s", name);

    for (int i = 0; i < MOST_LINKS; i++) {
        char *next;
        char *whole = resolve(at, &next);

        free(at);
        if (!next)
            return whole;
        at = next;
    }
    free(at);
    errno = ELOOP;
    return NULL;
}
