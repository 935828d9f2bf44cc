// The cpu driver's memory: one window for what peers touch, blocks of the
// group's for what they do not, and the tables that say where everything is.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/cpu/cpu.h"

// What the window's slots say to a peer, and where they are.
typedef struct hd_cpu_handle {
    uint64_t bytes;  // of the window
    uint64_t offset; // of the pair's slots
    hd_pair pair;
} hd_cpu_handle;
_Static_assert(sizeof(hd_cpu_handle) <= HD_HANDLE_BYTES, "handle");
_Static_assert(sizeof(hd_cpu_slot) == HD_SLOT_BYTES, "a slot is a cache line");

static size_t align_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static hd_status list_buffers(hd_device *device, hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    size_t n = (size_t)module->nbuffers + 1;

    HD_TRY(hd_roots_list(&device->binding, diag, &device->buffer,
                         &device->narguments));
    device->nbuffers = module->nbuffers;
    device->memory = calloc(n, sizeof *device->memory);
    device->events = calloc(n, sizeof *device->events);
    if (device->memory == NULL || device->events == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d buffers",
                       module->nbuffers);
    return HD_OK;
}

// ---------------------------------------------------- the window

static size_t lay_out_window(hd_device *device)
{
    size_t at = align_up(sizeof(hd_cpu_header), 4096);

    for (int i = 0; i < device->nbuffers; i++) {
        hd_root *buffer = &device->buffer[i];

        if (buffer->shared) {
            buffer->offset = at;
            at += align_up(buffer->bytes, 256);
        }
    }
    for (int i = 0; i < device->size; i++) {
        if (i == device->rank)
            continue;
        device->peer[i].offset = at;
        at += hd_pair_slots(&device->peer[i].pair) * sizeof(hd_cpu_slot);
    }
    return at;
}

// All ranks of this host together must fit: memory that is promised and not
// there would end in a kill without a word.
static hd_status check_memory(hd_device *device, size_t window, hd_diag *diag)
{
    uint64_t here = (uint64_t)sysconf(_SC_PHYS_PAGES) *
                    (uint64_t)sysconf(_SC_PAGESIZE) / (uint64_t)device->size;
    uint64_t bytes = window;

    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];

        if (!buffer->shared && buffer->argument < 0)
            bytes += buffer->bytes;
        if (bytes > here)
            return hd_fail(diag, HD_ERROR_NO_MEMORY,
                           "each of %d ranks needs more than the %llu MiB that "
                           "this machine has for it, at %%%s",
                           device->size, (unsigned long long)(here >> 20),
                           buffer->buffer->name);
    }
    return HD_OK;
}

static hd_status fill_slot(hd_device *device, const hd_step *step,
                           const hd_rendezvous *rendezvous, hd_diag *diag,
                           void *context)
{
    hd_cpu_peer *peer = &device->peer[rendezvous->peer];
    hd_cpu_slot *slot = hd_cpu_slot_of(peer->mine, peer, rendezvous);

    (void)context;
    return hd_offer_fill(device->buffer, step, rendezvous, diag, &slot->offer);
}

static hd_status open_window(hd_device *device, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;
    hd_pair *pairs = calloc((size_t)device->size, sizeof *pairs);
    size_t bytes;

    if (pairs == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       device->size);
    for (int64_t i = 0; i < steps->nsteps; i++)
        hd_pair_count(&device->binding, &steps->step[i], pairs);
    for (int i = 0; i < device->size; i++)
        device->peer[i].pair = pairs[i];
    free(pairs);
    bytes = lay_out_window(device);
    HD_TRY(check_memory(device, bytes, diag));
    HD_TRY(hd_window_open(bytes, diag, &device->window));
    device->allocations++;
    device->header = device->window.base;
    for (int i = 0; i < device->size; i++)
        device->peer[i].mine =
            (void *)((char *)device->window.base + device->peer[i].offset);
    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (hd_op_is(steps->step[i].op, HD_UNIT_TRANSFER))
            HD_TRY(hd_rendezvous_each(device, &device->binding, &steps->step[i],
                                      diag, fill_slot, NULL));
    }
    return HD_OK;
}

// Every bit set is a NaN in each floating dtype: who reads what nobody wrote
// will see it in the answer.
static hd_status place_buffers(hd_device *device, hd_diag *diag)
{
    for (int i = 0; i < device->nbuffers; i++) {
        hd_root *buffer = &device->buffer[i];
        bool fresh = false;

        if (buffer->shared) {
            memset((char *)device->window.base + buffer->offset, 0xff,
                   buffer->bytes);
        } else if (buffer->argument < 0 && buffer->bytes > 0) {
            device->memory[i] = hd_group_take_memory(device->binding.group,
                                                     buffer->bytes, &fresh);
            if (device->memory[i] == NULL)
                return hd_fail(diag, HD_ERROR_NO_MEMORY,
                               "no memory for %%%s (%zu "
                               "bytes)",
                               buffer->buffer->name, buffer->bytes);
            device->allocations += fresh;
            memset(device->memory[i], 0xff, buffer->bytes);
        }
    }
    return HD_OK;
}

static hd_status open_run(hd_device *device, hd_cpu_run *run)
{
    size_t narguments = (size_t)device->narguments + 1;

    run->base = calloc((size_t)device->nbuffers + 1, sizeof *run->base);
    run->argument = calloc(narguments, sizeof *run->argument);
    run->event = calloc(narguments, sizeof *run->event);
    run->reaches = calloc(narguments, sizeof *run->reaches);
    if (run->base == NULL || run->argument == NULL || run->event == NULL ||
        run->reaches == NULL)
        return HD_ERROR_NO_MEMORY;
    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];

        run->base[i] = buffer->shared
                           ? (char *)device->window.base + buffer->offset
                           : device->memory[i];
    }
    return HD_OK;
}

hd_status hd_cpu_alloc(hd_device *device, hd_diag *diag)
{
    device->peer = calloc((size_t)device->size, sizeof *device->peer);
    if (device->peer == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       device->size);
    for (int i = 0; i < device->size; i++)
        device->peer[i].window = (hd_window)HD_WINDOW_NONE;
    HD_TRY(list_buffers(device, diag));
    HD_TRY(open_window(device, diag));
    HD_TRY(place_buffers(device, diag));
    for (int i = 0; i < HD_CPU_RUNS; i++) {
        if (open_run(device, &device->run[i]) != HD_OK)
            return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for runs");
    }
    return HD_OK;
}

void hd_cpu_free(hd_device *device)
{
    for (int i = 0; device->memory != NULL && i < device->nbuffers; i++) {
        if (device->memory[i] != NULL)
            hd_group_keep_memory(device->binding.group, device->memory[i]);
    }
    for (int i = 0; device->peer != NULL && i < device->size; i++)
        hd_window_close(&device->peer[i].window);
    for (int i = 0; i < HD_CPU_RUNS; i++) {
        free(device->run[i].base);
        free(device->run[i].argument);
        free(device->run[i].event);
        free(device->run[i].reaches);
    }
    hd_window_close(&device->window);
    free(device->peer);
    free(device->buffer);
    free(device->memory);
    free(device->events);
}

// ------------------------------------------------ with the peers

hd_status hd_cpu_export(hd_device *device, int peer, hd_diag *diag,
                        hd_handle *out)
{
    const hd_cpu_peer *pair = &device->peer[peer];
    hd_cpu_handle handle = {.bytes = device->window.bytes,
                            .offset = pair->offset,
                            .pair = pair->pair};

    (void)diag;
    memcpy(out->bytes, &handle, sizeof handle);
    out->fd = device->window.fd;
    return HD_OK;
}

hd_status hd_cpu_import(hd_device *device, int peer, const hd_handle *handle,
                        hd_diag *diag)
{
    hd_cpu_peer *pair = &device->peer[peer];
    hd_cpu_handle theirs;
    hd_status status;

    memcpy(&theirs, handle->bytes, sizeof theirs);
    status = hd_pair_compare(&device->binding, peer, &pair->pair, &theirs.pair,
                             diag);
    if (status == HD_OK)
        status = hd_pair_check(&pair->pair, peer, theirs.offset, theirs.bytes,
                               sizeof(hd_cpu_header), diag);
    if (status != HD_OK) {
        if (handle->fd >= 0)
            close(handle->fd);
        return status;
    }
    HD_TRY(hd_window_map(handle->fd, theirs.bytes, diag, &pair->window));
    pair->header = pair->window.base;
    pair->theirs = (void *)((char *)pair->window.base + theirs.offset);
    return HD_OK;
}
