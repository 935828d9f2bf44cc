// The list of chunks, when each goes, and those that no peer sees.
#include "runtime/cuda/device/chunk.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/allocator.h"
#include "runtime/cuda/device/device.h"

// -------------------------------------------------------- the allocator

typedef char device_name[24];

static const char *name_device(const hd_cuda_home *home, device_name out)
{
    snprintf(out, sizeof(device_name), "cuda:%d", home->ordinal);
    return out;
}

bool hd_cuda_home_asks(const hd_device *device)
{
    return hd_group_allocator(device->home->group) != NULL;
}

static hd_status ask(hd_device *device, size_t bytes, hd_diag *diag,
                     hd_cu_ptr *out)
{
    const hd_cuda_home *home = device->home;
    device_name name;
    void *memory = NULL;

    HD_TRY(hd_allocator_take(hd_group_allocator(home->group),
                             name_device(home, name), device->rank, bytes, diag,
                             &memory));
    *out = (hd_cu_ptr)(uintptr_t)memory;
    return HD_OK;
}

hd_status hd_cuda_home_take(hd_device *device, size_t bytes, hd_diag *diag,
                            hd_cu_ptr *out)
{
    if (hd_cuda_home_asks(device))
        HD_TRY(ask(device, bytes, diag, out));
    else
        HD_CUDA_TRY(device, diag, alloc, out, bytes);
    device->allocations++;
    return HD_OK;
}

void hd_cuda_home_give(const hd_cuda_home *home, hd_cu_ptr at, size_t bytes)
{
    const hd_allocator *allocator = hd_group_allocator(home->group);
    device_name name;

    if (allocator == NULL)
        home->cu.free(at);
    else
        hd_allocator_give(allocator, name_device(home, name),
                          (void *)(uintptr_t)at, bytes);
}

// -------------------------------------------------------------- the list

static bool is_newest(const hd_cuda_chunks *chunks, const hd_cuda_chunk *chunk)
{
    const hd_cuda_chunk *newer = chunks->first;

    while (newer != chunk && (newer->kind != chunk->kind ||
                              newer->peer != chunk->peer || newer->retired))
        newer = newer->next;
    return newer == chunk;
}

static bool is_largest(const hd_cuda_chunks *chunks, const hd_cuda_chunk *chunk)
{
    const hd_cuda_chunk *other = chunks->first;

    while (other != NULL &&
           (other->kind != chunk->kind || other->bytes <= chunk->bytes))
        other = other->next;
    return other == NULL;
}

// Whether the next session may have use for what nobody uses. While one is made
// nothing is unmapped that its peers may count on.
static bool stays(const hd_cuda_chunks *chunks, const hd_cuda_chunk *chunk)
{
    switch (chunk->kind) {
    case HD_CUDA_MEMORY:
    case HD_CUDA_PLACES:
        return is_largest(chunks, chunk);
    case HD_CUDA_WINDOW:
        return is_newest(chunks, chunk);
    case HD_CUDA_THEIRS:
        return chunks->making > 0 || is_newest(chunks, chunk);
    case HD_CUDA_LOANED:
        return chunks->making > 0;
    case HD_CUDA_LENT:
        break;
    }
    return false;
}

// What no peer was told of none has open.
static bool is_held(const hd_cuda_chunks *chunks, const hd_cuda_chunk *chunk)
{
    return chunks->lease != HD_LEASE_NONE &&
           !hd_lease_take_back(chunks->lease, chunk->number);
}

static void unmap(const hd_cuda_home *home, const hd_cuda_chunk *chunk)
{
    if (!chunk->near)
        home->cu.ipc_close(chunk->at);
    hd_lease_let_go(chunk->lease, chunk->number);
    close(chunk->lease);
}

// False if somebody has it open.
static bool close_chunk(hd_cuda_home *home, hd_cuda_chunk *chunk)
{
    switch (chunk->kind) {
    case HD_CUDA_MEMORY:
    case HD_CUDA_PLACES:
        hd_cuda_home_give(home, chunk->at, chunk->bytes);
        break;
    case HD_CUDA_THEIRS:
        if (!chunk->retired) // its owner may count on it
            home->chunks.stamp += 11400714819323198485u;
        unmap(home, chunk);
        break;
    case HD_CUDA_LOANED:
        unmap(home, chunk);
        break;
    case HD_CUDA_WINDOW:
    case HD_CUDA_LENT:
        chunk->retired = true;
        if (is_held(&home->chunks, chunk))
            return false;
        home->cu.free(chunk->at);
        break;
    }
    return true;
}

bool hd_cuda_chunks_sweep(hd_cuda_home *home, unsigned kinds)
{
    for (hd_cuda_chunk **at = &home->chunks.first; *at != NULL;) {
        hd_cuda_chunk *chunk = *at;
        bool goes = chunk->retired || ((unsigned)chunk->kind & kinds) != 0 ||
                    !stays(&home->chunks, chunk);

        if (chunk->users > 0 || !goes || !close_chunk(home, chunk)) {
            at = &chunk->next;
        } else {
            *at = chunk->next;
            free(chunk);
        }
    }
    return home->chunks.first == NULL;
}

bool hd_cuda_chunks_close(hd_cuda_home *home, unsigned kinds)
{
    bool all;

    pthread_mutex_lock(&home->making);
    all = hd_cuda_chunks_sweep(home, kinds);
    pthread_mutex_unlock(&home->making);
    return all;
}

static void leave(hd_cuda_chunks *chunks, unsigned kinds)
{
    for (hd_cuda_chunk *chunk = chunks->first; chunk != NULL;
         chunk = chunk->next)
        chunk->users = ((unsigned)chunk->kind & kinds) != 0 ? 0 : chunk->users;
}

void hd_cuda_chunks_leave(hd_cuda_home *home)
{
    pthread_mutex_lock(&home->making);
    leave(&home->chunks, HD_CUDA_OF_PEERS);
    hd_cuda_chunks_sweep(home, HD_CUDA_OF_PEERS);
    leave(&home->chunks, HD_CUDA_EVERY);
    pthread_mutex_unlock(&home->making);
}

void hd_cuda_chunk_add(hd_cuda_home *home, hd_cuda_chunk *chunk)
{
    chunk->next = home->chunks.first;
    home->chunks.first = chunk;
}

void hd_cuda_chunk_number(hd_cuda_home *home, hd_cuda_chunk *chunk)
{
    chunk->number = ++home->chunks.made;
    hd_cuda_chunk_add(home, chunk);
}

void hd_cuda_chunk_give(hd_device *device, hd_cuda_chunk *chunk)
{
    hd_cuda_home *home = device->home;

    if (chunk == NULL)
        return;
    pthread_mutex_lock(&home->making);
    chunk->users--;
    hd_cuda_chunks_sweep(home, 0);
    pthread_mutex_unlock(&home->making);
}

hd_cuda_chunk *hd_cuda_chunk_lent(hd_cuda_home *home, hd_cu_ptr at)
{
    hd_cuda_chunk *chunk = home->chunks.first;

    while (chunk != NULL && (chunk->kind != HD_CUDA_LENT || chunk->at != at ||
                             chunk->users == 0))
        chunk = chunk->next;
    return chunk;
}

uint64_t hd_cuda_loan_number(hd_cuda_home *home, hd_cu_ptr at)
{
    const hd_cuda_chunk *chunk;
    uint64_t number;

    pthread_mutex_lock(&home->making);
    chunk = hd_cuda_chunk_lent(home, at);
    number = chunk != NULL ? chunk->number : 0;
    pthread_mutex_unlock(&home->making);
    return number;
}

// --------------------------------------------------- what no peer sees

// The least that is large enough.
static hd_cuda_chunk *find_chunk(const hd_cuda_chunks *chunks,
                                 hd_cuda_chunk_kind kind, size_t bytes)
{
    hd_cuda_chunk *least = NULL;

    for (hd_cuda_chunk *chunk = chunks->first; chunk != NULL;
         chunk = chunk->next) {
        if (chunk->kind == kind && chunk->bytes >= bytes &&
            (least == NULL || chunk->bytes < least->bytes))
            least = chunk;
    }
    return least;
}

static hd_status check_left(hd_device *device, size_t bytes, hd_diag *diag)
{
    size_t left = 0, total = 0;

    HD_CUDA_TRY(device, diag, memory_info, &left, &total);
    if (bytes <= left)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_NO_MEMORY,
                   "rank %d: '%s' needs %zu MiB beside its arguments, and its "
                   "device has %zu MiB left",
                   device->rank, device->binding.module->name, bytes >> 20,
                   left >> 20);
}

static hd_status fill(hd_device *device, hd_cu_ptr at, size_t bytes,
                      hd_diag *diag)
{
    if (bytes == 0)
        return HD_OK;
    HD_CUDA_TRY(device, diag, fill8, at, 0xff, bytes, device->home->rescue);
    HD_CUDA_TRY(device, diag, stream_synchronize, device->home->rescue);
    return HD_OK;
}

static hd_status open_chunk(hd_device *device, hd_cuda_chunk *chunk,
                            size_t filled, hd_diag *diag)
{
    hd_status status;

    HD_TRY(hd_cuda_home_take(device, chunk->bytes, diag, &chunk->at));
    status = fill(device, chunk->at, filled, diag);
    if (status != HD_OK)
        hd_cuda_home_give(device->home, chunk->at, chunk->bytes);
    return status;
}

static hd_status make_chunk(hd_device *device, hd_cuda_chunk_kind kind,
                            size_t bytes, size_t filled, hd_diag *diag,
                            hd_cuda_chunk **out)
{
    hd_cuda_chunk *chunk = calloc(1, sizeof *chunk);
    hd_status status;

    if (chunk == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a chunk");
    chunk->kind = kind;
    chunk->bytes = bytes;
    status = open_chunk(device, chunk, filled, diag);
    if (status != HD_OK) {
        free(chunk);
        return status;
    }
    hd_cuda_chunk_add(device->home, chunk);
    *out = chunk;
    return HD_OK;
}

static hd_status take(hd_device *device, hd_cuda_chunk_kind kind, size_t bytes,
                      size_t filled, size_t more, hd_diag *diag,
                      hd_cuda_chunk **out)
{
    hd_cuda_chunk *chunk = find_chunk(&device->home->chunks, kind, bytes);

    if (chunk == NULL)
        hd_cuda_chunks_sweep(device->home, kind); // they make room
    // How much the caller's allocator has left it knows.
    HD_TRY(check_left(
        device,
        (chunk == NULL && !hd_cuda_home_asks(device) ? bytes : 0) + more,
        diag));
    if (chunk == NULL)
        HD_TRY(make_chunk(device, kind, bytes, filled, diag, &chunk));
    chunk->users++;
    *out = chunk;
    return HD_OK;
}

hd_status hd_cuda_chunk_take(hd_device *device, hd_cuda_chunk_kind kind,
                             size_t bytes, size_t filled, size_t more,
                             hd_diag *diag, hd_cuda_chunk **out)
{
    hd_status status;

    if (bytes == 0)
        return check_left(device, more, diag);
    pthread_mutex_lock(&device->home->making);
    status = take(device, kind, bytes, filled, more, diag, out);
    pthread_mutex_unlock(&device->home->making);
    return status;
}
