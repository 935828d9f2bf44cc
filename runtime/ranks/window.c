// Windows are memfds: they have no name in the file system, and go away with
// the last process that maps them, however it ends.
#include "runtime/ranks/window.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static hd_status map_memory(hd_window *window, hd_diag *diag)
{
    void *base = mmap(NULL, window->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                      window->fd, 0);

    if (base == MAP_FAILED)
        return hd_system_error(diag, "mmap of %zu bytes", window->bytes);
    window->base = base;
    return HD_OK;
}

hd_status hd_window_open(size_t bytes, hd_diag *diag, hd_window *out)
{
    hd_window window = HD_WINDOW_NONE;
    hd_status status;

    window.bytes = bytes;
    window.fd = memfd_create("heddle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (window.fd < 0) {
        status = hd_system_error(diag, "memfd_create");
        goto fail;
    }
    if (ftruncate(window.fd, (off_t)bytes) < 0 ||
        fcntl(window.fd, F_ADD_SEALS, SEALS) < 0) {
        status = hd_system_error(diag, "a window of %zu bytes", bytes);
        goto fail;
    }
    status = map_memory(&window, diag);
    if (status != HD_OK)
        goto fail;
    *out = window;
    return HD_OK;

fail:
    hd_window_close(&window);
    return status;
}

// A peer that could still shrink its file could make us fault.
static bool is_sealed(int fd, size_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &status) == 0 &&
           (uint64_t)status.st_size == bytes && bytes > 0;
}

hd_status hd_window_map(int fd, size_t bytes, hd_diag *diag, hd_window *out)
{
    hd_window window = {.base = NULL, .bytes = bytes, .fd = fd};
    hd_status status;

    if (!is_sealed(fd, bytes)) {
        status = hd_fail(diag, HD_ERROR_PEER,
                         "a peer passed what is no window of "
                         "%zu bytes",
                         bytes);
        goto fail;
    }
    status = map_memory(&window, diag);
    if (status != HD_OK)
        goto fail;
    close(fd);
    window.fd = -1;
    *out = window;
    return HD_OK;

fail:
    hd_window_close(&window);
    return status;
}

void hd_window_close(hd_window *window)
{
    if (window->base != NULL)
        munmap(window->base, window->bytes);
    if (window->fd >= 0)
        close(window->fd);
    *window = (hd_window)HD_WINDOW_NONE;
}
