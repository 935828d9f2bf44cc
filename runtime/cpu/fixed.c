// Arguments that are at one place in every run: memory of hd_group_alloc, which
// peers map, so that they read and write it where it is. A peer touches it
// within steps of its owner alone, as it does the window.
#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/cpu/cpu.h"

#define ALIGNMENT 16 // bytes, as on cuda

// What a rank tells of one.
typedef struct note {
    uint64_t bytes;  // of the window
    uint64_t offset; // of the argument in it
} note;

static bool is_fixed(const hd_root *buffer)
{
    return buffer->fixed != NULL && buffer->bytes > 0;
}

static note note_of(hd_device *device, const hd_root *buffer, hd_window *window)
{
    *window = hd_pool_find_lent(device->pool, buffer->fixed);
    return (note){.bytes = window->bytes,
                  .offset = (uint64_t)((const char *)buffer->fixed -
                                       (const char *)window->base)};
}

static hd_status check(hd_device *device, const hd_root *buffer, hd_diag *diag)
{
    const char *name = buffer->buffer->name;
    hd_window window = hd_pool_find_lent(device->pool, buffer->fixed);
    size_t left;

    if (window.base == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "argument %%%s is fixed at %p, which is no memory of "
                       "hd_group_alloc of this group",
                       name, buffer->fixed);
    left = window.bytes -
           (size_t)((const char *)buffer->fixed - (const char *)window.base);
    if (buffer->bytes > left)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "argument %%%s is fixed at %p, and has %zu bytes, of "
                       "which %zu are left there",
                       name, buffer->fixed, buffer->bytes, left);
    if ((uintptr_t)buffer->fixed % ALIGNMENT != 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "argument %%%s is fixed at %p, which is no multiple of "
                       "%d",
                       name, buffer->fixed, ALIGNMENT);
    return HD_OK;
}

hd_status hd_cpu_fixed_check(hd_device *device, hd_diag *diag)
{
    for (int i = 0; i < device->nbuffers; i++) {
        if (is_fixed(&device->buffer[i]))
            HD_TRY(check(device, &device->buffer[i], diag));
    }
    return HD_OK;
}

// ------------------------------------------------------ with the peers

static hd_status post(hd_device *device, const hd_exchange *exchange, int peer)
{
    for (int i = 0; i < device->nbuffers; i++) {
        hd_window window;
        note mine;

        if (!is_fixed(&device->buffer[i]))
            continue;
        mine = note_of(device, &device->buffer[i], &window);
        HD_TRY(hd_exchange_post(exchange, peer, &mine, sizeof mine, window.fd));
    }
    return HD_OK;
}

// What is mapped is as large as the peer says, or refused.
static hd_status map(const hd_root *buffer, int peer, const note *theirs,
                     int fd, hd_diag *diag, hd_cpu_fixed *fixed)
{
    HD_TRY(hd_window_map(fd, theirs->bytes, diag, &fixed->window));
    if (theirs->offset > theirs->bytes)
        return hd_fail(diag, HD_ERROR_PEER,
                       "rank %d says that its argument %%%s begins at byte "
                       "%llu of memory that has %llu",
                       peer, buffer->buffer->name,
                       (unsigned long long)theirs->offset,
                       (unsigned long long)theirs->bytes);
    fixed->offset = theirs->offset;
    return HD_OK;
}

// Goes on after what cannot be mapped, so that all parts are taken.
static hd_status collect(hd_device *device, const hd_exchange *exchange,
                         int peer)
{
    hd_status status = HD_OK;

    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];
        note theirs = {0};
        int fd = -1;

        if (!is_fixed(buffer))
            continue;
        HD_TRY(
            hd_exchange_collect(exchange, peer, &theirs, sizeof theirs, &fd));
        if (status == HD_OK)
            status = map(buffer, peer, &theirs, fd, exchange->diag,
                         &device->peer[peer].fixed[buffer->argument]);
        else if (fd >= 0)
            close(fd);
    }
    return status;
}

static hd_status open_peers(hd_device *device, hd_diag *diag)
{
    for (int peer = 0; peer < device->size; peer++) {
        hd_cpu_fixed *fixed =
            calloc((size_t)device->narguments + 1, sizeof *fixed);

        if (fixed == NULL) {
            hd_group_run_out(device->binding.group);
            return hd_fail(diag, HD_ERROR_NO_MEMORY,
                           "no memory for fixed arguments");
        }
        for (int i = 0; i < device->narguments; i++)
            fixed[i].window = (hd_window)HD_WINDOW_NONE;
        device->peer[peer].fixed = fixed;
        device->peer[peer].nfixed = device->narguments;
    }
    return HD_OK;
}

hd_status hd_cpu_fixed_meet(hd_device *device, hd_diag *diag)
{
    hd_status status = HD_OK;
    hd_exchange exchange;

    if (device->binding.fixed == NULL)
        return HD_OK;
    HD_TRY(open_peers(device, diag));
    exchange = hd_exchange_begin(device->binding.group, HD_CALL_SESSION,
                                 device->binding.timeout, diag);
    for (int peer = 0; peer < device->size; peer++) {
        if (peer != device->rank)
            HD_TRY(post(device, &exchange, peer));
    }
    for (int peer = 0; peer < device->size; peer++) {
        hd_status got =
            peer == device->rank ? HD_OK : collect(device, &exchange, peer);

        status = status == HD_OK ? got : status;
    }
    return status;
}

void hd_cpu_fixed_close(hd_device *device)
{
    for (int peer = 0; device->peer != NULL && peer < device->size; peer++) {
        hd_cpu_fixed *fixed = device->peer[peer].fixed;

        for (int i = 0; fixed != NULL && i < device->narguments; i++)
            hd_window_close(&fixed[i].window);
        free(fixed);
    }
}

// An offset of an argument that is not fixed, or that there is not, is refused
// by its room, of which there is none.
void *hd_cpu_remote(const hd_cpu_peer *peer, uint64_t offset)
{
    int argument = hd_offset_fixed(offset);

    if (argument < 0)
        return (char *)peer->window->base + offset;
    return (char *)peer->fixed[argument].window.base +
           peer->fixed[argument].offset + hd_offset_within(offset);
}

uint64_t hd_cpu_room(const hd_cpu_peer *peer, uint64_t offset)
{
    int argument = hd_offset_fixed(offset);

    if (argument < 0)
        return peer->window->bytes;
    return argument < peer->nfixed ? peer->fixed[argument].window.bytes -
                                         peer->fixed[argument].offset
                                   : 0;
}
