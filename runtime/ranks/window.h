// Memory that one rank owns and its peers map: a memfd of a size that can no
// longer change, so that a mapping of it never faults.
#ifndef HD_RUNTIME_RANKS_WINDOW_H
#define HD_RUNTIME_RANKS_WINDOW_H

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_window {
    void *base;   // page-aligned; NULL if not mapped
    size_t bytes; // at least 1 while mapped
    int fd;       // owned; -1 in a window that belongs to a peer
} hd_window;

// What a window is before it is opened, and after it is closed.
#define HD_WINDOW_NONE \
    {                  \
        NULL, 0, -1    \
    }

// Zeroed memory of our own.
hd_status hd_window_open(size_t bytes, hd_diag *diag, hd_window *out);

// Maps what a peer opened. Takes `fd` over, and closes it whatever happens.
// HD_ERROR_PEER if it is not a sealed memory of just `bytes`.
hd_status hd_window_map(int fd, size_t bytes, hd_diag *diag, hd_window *out);

// Takes a window that is not open too.
void hd_window_close(hd_window *window);

HD_END_DECLS

#endif
