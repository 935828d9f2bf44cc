// A page a rank: a ring of its last runs, each with the sizes, and a hash of
// these and all before, so that one look at a run that both ranks have begun
// tells whether they were ever given others.
#include "runtime/cuda/issue/sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/failure.h"
#include "runtime/ranks/window.h"

#define KEPT 64 // runs that a rank tells of

typedef struct entry {
    _Atomic uint64_t run; // 0 while it is written
    _Atomic uint64_t hash;
    _Atomic int64_t size[HD_MAX_SIZES];
} entry;

typedef struct page {
    _Atomic uint64_t last; // run that is told of
    entry entry[KEPT];
} page;

struct hd_cuda_said {
    hd_window own;   // owned
    hd_window *peer; // owned, by rank: NULL if it is of another host
    uint64_t hash;
};

// What one run was given.
typedef struct given {
    uint64_t hash;
    int64_t size[HD_MAX_SIZES];
} given;

static page *page_of(const hd_window *window)
{
    return window->base;
}

static entry *entry_of(const hd_window *window, uint64_t run)
{
    return &page_of(window)->entry[run % KEPT];
}

// Pairs with the release in hd_cuda_sizes_say.
static uint64_t last_of(const hd_window *window)
{
    return atomic_load_explicit(&page_of(window)->last, memory_order_acquire);
}

hd_status hd_cuda_sizes_open(hd_device *device, hd_diag *diag)
{
    if (device->binding.module->nsizes == 0 || device->size == 1)
        return HD_OK;
    device->said = calloc(1, sizeof *device->said);
    if (device->said == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for sizes of runs");
    device->said->own = (hd_window)HD_WINDOW_NONE;
    device->said->peer =
        calloc((size_t)device->size, sizeof *device->said->peer);
    if (device->said->peer == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for sizes of runs");
    for (int i = 0; i < device->size; i++)
        device->said->peer[i] = (hd_window)HD_WINDOW_NONE;
    return hd_window_open(sizeof(page), diag, &device->said->own);
}

void hd_cuda_sizes_close(hd_device *device)
{
    hd_cuda_said *said = device->said;

    if (said == NULL)
        return;
    for (int i = 0; said->peer != NULL && i < device->size; i++)
        hd_window_close(&said->peer[i]);
    hd_window_close(&said->own);
    free(said->peer);
    free(said);
}

int hd_cuda_sizes_export(const hd_device *device, int peer)
{
    const hd_group *group = device->binding.group;

    return device->said != NULL && hd_group_leader(group, peer) ==
                                       hd_group_leader(group, device->rank)
               ? device->said->own.fd
               : -1;
}

hd_status hd_cuda_sizes_import(hd_device *device, int peer, int fd,
                               hd_diag *diag)
{
    if (fd < 0)
        return HD_OK;
    if (device->said == NULL) {
        close(fd);
        return HD_OK;
    }
    return hd_window_map(fd, sizeof(page), diag, &device->said->peer[peer]);
}

static uint64_t mix(uint64_t hash, int64_t value)
{
    return (hash ^ (uint64_t)value) * 1099511628211u + 1;
}

// A reader sees 0, or all of what belongs to the number that it sees before
// and after.
void hd_cuda_sizes_say(const hd_cuda_plan *plan, uint64_t run)
{
    hd_cuda_said *said = plan->device->said;
    entry *entry;

    if (said == NULL)
        return;
    entry = entry_of(&said->own, run);
    atomic_store_explicit(&entry->run, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (int i = 0; i < plan->device->binding.module->nsizes; i++) {
        said->hash = mix(said->hash, plan->size[i]);
        atomic_store_explicit(&entry->size[i], plan->size[i],
                              memory_order_relaxed);
    }
    atomic_store_explicit(&entry->hash, said->hash, memory_order_relaxed);
    atomic_store_explicit(&entry->run, run, memory_order_release);
    atomic_store_explicit(&page_of(&said->own)->last, run,
                          memory_order_release);
}

// False if the page does not tell of the run any more.
static bool look_up(const hd_window *window, uint64_t run, int n, given *out)
{
    entry *entry = entry_of(window, run);

    if (atomic_load_explicit(&entry->run, memory_order_acquire) != run)
        return false;
    out->hash = atomic_load_explicit(&entry->hash, memory_order_relaxed);
    for (int i = 0; i < n; i++)
        out->size[i] =
            atomic_load_explicit(&entry->size[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&entry->run, memory_order_relaxed) == run;
}

static bool tell(const hd_device *device, int peer, uint64_t run,
                 const given *ours, const given *theirs, char *text,
                 size_t bytes)
{
    const hd_module *module = device->binding.module;

    for (int i = 0; i < module->nsizes; i++) {
        if (ours->size[i] == theirs->size[i])
            continue;
        hd_line_put_sizes(&(hd_line){text, bytes}, module, run, i, device->rank,
                          ours->size[i], peer, theirs->size[i]);
        return true;
    }
    return false;
}

// From the first run that both tell of.
static void tell_first(const hd_device *device, int peer, uint64_t last,
                       char *text, size_t bytes)
{
    const hd_cuda_said *said = device->said;
    int n = device->binding.module->nsizes;
    given ours, theirs;

    for (uint64_t run = last > KEPT ? last - KEPT + 1 : 1; run <= last; run++)
        if (look_up(&said->own, run, n, &ours) &&
            look_up(&said->peer[peer], run, n, &theirs) &&
            tell(device, peer, run, &ours, &theirs, text, bytes))
            return;
    snprintf(text, bytes,
             "before run %llu of '%s' rank %d was given other sizes than rank "
             "%d; all ranks are given the same sizes",
             (unsigned long long)last, device->binding.module->name,
             device->rank, peer);
}

bool hd_cuda_sizes_differ(const hd_device *device, char *text, size_t bytes)
{
    const hd_cuda_said *said = device->said;
    int n = device->binding.module->nsizes;
    given ours, theirs;

    for (int i = 0; said != NULL && i < device->size; i++) {
        const hd_window *peer = &said->peer[i];
        uint64_t run = last_of(&said->own);

        if (peer->base == NULL)
            continue;
        run = last_of(peer) < run ? last_of(peer) : run;
        if (run == 0 || !look_up(&said->own, run, n, &ours) ||
            !look_up(peer, run, n, &theirs) || ours.hash == theirs.hash)
            continue;
        tell_first(device, i, run, text, bytes);
        return true;
    }
    return false;
}
