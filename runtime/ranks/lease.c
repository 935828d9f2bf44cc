// A file without bytes, of which those are locked that there could be.
#include "runtime/ranks/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"

// Whether the byte is locked, or unlocked, without waiting.
static bool set_lock(int lease, short type, uint64_t number)
{
    struct flock lock = {.l_type = type,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)number,
                         .l_len = 1};

    return fcntl(lease, F_OFD_SETLK, &lock) == 0;
}

hd_status hd_lease_open(hd_diag *diag, int *out)
{
    int fd = memfd_create("heddle", MFD_CLOEXEC);

    if (fd < 0)
        return hd_system_error(diag, "memfd_create");
    *out = fd;
    return HD_OK;
}

// The descriptor that was passed is of the owner's open file, and so would its
// locks be.
hd_status hd_lease_join(int passed, hd_diag *diag, int *out)
{
    struct stat found;
    char path[32];
    int fd = -1;

    snprintf(path, sizeof path, "/proc/self/fd/%d", passed);
    if (fstat(passed, &found) == 0 && !S_ISREG(found.st_mode))
        errno = EINVAL;
    else
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return hd_system_error(diag,
                               "the file in which a peer's memory is held");
    *out = fd;
    return HD_OK;
}

bool hd_lease_hold(int lease, uint64_t number)
{
    return set_lock(lease, F_RDLCK, number);
}

void hd_lease_let_go(int lease, uint64_t number)
{
    set_lock(lease, F_UNLCK, number);
}

bool hd_lease_take_back(int lease, uint64_t number)
{
    return set_lock(lease, F_WRLCK, number);
}
