// Arguments that are at one place in every run: peers map the allocation that
// they lie in, or use it where it is if they are near, and read and write them
// there. They do so within steps of the owner alone, as in the window.
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/memory/peers.h"

#define ALIGNMENT 16 // bytes

// What a rank tells of one.
struct hd_cuda_note {
    hd_cu_ipc_handle ipc;  // of the allocation
    hd_cu_context context; // of the rank
    hd_cu_ptr at;
    uint64_t offset, bytes; // in the allocation, and from there to its end
    uint64_t number;        // if the group lends it; else 0
};

static bool is_fixed(const hd_root *buffer)
{
    return buffer->fixed != NULL && buffer->bytes > 0;
}

// --------------------------------------------------------------- what it is

static hd_status refuse(const hd_device *device, const hd_root *buffer,
                        hd_diag *diag, const char *why)
{
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "rank %d: argument %%%s is fixed at %p, which %s",
                   device->rank, buffer->buffer->name, buffer->fixed, why);
}

// What CUDA has no handle for is memory of a pool, or that it maps piece by
// piece, and no peer can be told of it.
static hd_status look(hd_device *device, const hd_root *buffer, hd_diag *diag,
                      hd_cuda_note *out)
{
    hd_cu_ptr base = 0;
    size_t bytes = 0;
    unsigned type = 0;

    out->at = (hd_cu_ptr)(uintptr_t)buffer->fixed;
    out->context = device->home->context;
    if (device->cu.pointer_attribute(&type, HD_CU_POINTER_MEMORY_TYPE,
                                     out->at) != HD_CU_SUCCESS ||
        type != HD_CU_MEMORY_DEVICE ||
        device->cu.address_range(&base, &bytes, out->at) != HD_CU_SUCCESS)
        return refuse(device, buffer, diag, "is no memory of a device");
    if (device->cu.ipc_export(&out->ipc, base) != HD_CU_SUCCESS)
        return refuse(device, buffer, diag,
                      "CUDA shares with nobody: it takes memory of "
                      "hd_group_alloc, cuMemAlloc or cudaMalloc");
    out->offset = out->at - base;
    out->bytes = bytes - out->offset;
    out->number = hd_cuda_loan_number(device->home, base);
    if (buffer->bytes > out->bytes)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "rank %d: argument %%%s is fixed at %p, and has %zu "
                       "bytes, of which %llu are left there",
                       device->rank, buffer->buffer->name, buffer->fixed,
                       buffer->bytes, (unsigned long long)out->bytes);
    if (out->at % ALIGNMENT != 0)
        return refuse(device, buffer, diag, "is no multiple of 16");
    return HD_OK;
}

hd_status hd_cuda_fixed_find(hd_device *device, hd_diag *diag)
{
    hd_cuda_note *note;

    if (device->binding.fixed == NULL)
        return HD_OK;
    note = calloc((size_t)device->narguments + 1, sizeof *note);
    if (note == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory for fixed arguments");
    device->peers->note = note;
    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];

        if (is_fixed(buffer))
            HD_TRY(look(device, buffer, diag, &note[buffer->argument]));
    }
    return HD_OK;
}

// ------------------------------------------------------ with the peers

// Beyond what is mapped there may be other memory of this rank's.
static hd_status check_reach(hd_device *device, int rank, hd_cu_ptr map,
                             const hd_cuda_note *theirs, hd_diag *diag)
{
    hd_cu_ptr base = 0;
    size_t bytes = 0;
    uint64_t left;

    HD_CUDA_TRY(device, diag, address_range, &base, &bytes, map);
    left = base + bytes - map;
    if (theirs->offset <= left && theirs->bytes <= left - theirs->offset)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_PEER,
                   "rank %d says that an argument has %llu bytes from byte "
                   "%llu of memory that has %llu",
                   rank, (unsigned long long)theirs->bytes,
                   (unsigned long long)theirs->offset,
                   (unsigned long long)left);
}

// What its owner frees when nobody has it open any more.
static hd_status map_lent(hd_device *device, int rank,
                          const hd_cuda_note *theirs, hd_diag *diag,
                          hd_cuda_chunk **out)
{
    const hd_cuda_peer *peer = &device->peers->peer[rank];
    hd_cuda_chunk what = {.kind = HD_CUDA_LOANED,
                          .peer = rank,
                          .home = peer->home,
                          .number = theirs->number,
                          .near = peer->near};
    hd_cuda_reach reach = {.ipc = theirs->ipc};
    int lease = peer->mapped != NULL ? peer->mapped->lease : HD_LEASE_NONE;

    if (peer->near) {
        reach.near.context = theirs->context;
        reach.near.at = theirs->at - theirs->offset;
    }
    *out = hd_cuda_reach_find(device, rank, what.home, what.number);
    if (*out != NULL)
        return HD_OK;
    return hd_cuda_reach_map(device, &what, lease, &reach, diag, out);
}

static hd_status map(hd_device *device, int rank, const hd_cuda_note *theirs,
                     hd_diag *diag, hd_cuda_fixed *out)
{
    const hd_cuda_peer *peer = &device->peers->peer[rank];
    hd_cu_ptr base;

    if (peer->near && theirs->number == 0) {
        HD_TRY(hd_cuda_reach_enable(device, theirs->context, diag));
        out->at = theirs->at;
        out->bytes = theirs->bytes;
        return HD_OK;
    }
    if (theirs->number != 0)
        HD_TRY(map_lent(device, rank, theirs, diag, &out->lent));
    else
        HD_CUDA_TRY(device, diag, ipc_import, &out->map, theirs->ipc,
                    HD_CU_IPC_LAZY_PEER_ACCESS);
    base = out->lent != NULL ? out->lent->at : out->map;
    HD_TRY(check_reach(device, rank, base, theirs, diag));
    out->at = base + theirs->offset;
    out->bytes = theirs->bytes;
    return HD_OK;
}

// `theirs` by argument.
static hd_status map_all(hd_device *device, int rank,
                         const hd_cuda_note *theirs, hd_diag *diag)
{
    hd_cuda_peer *peer = &device->peers->peer[rank];

    peer->fixed = calloc((size_t)device->narguments + 1, sizeof *peer->fixed);
    if (peer->fixed == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory for fixed arguments");
    peer->nfixed = device->narguments;
    for (int i = 0; i < device->narguments; i++) {
        if (rank != device->rank && theirs[i].bytes > 0 &&
            hd_pair_slots(&peer->pair) > 0)
            HD_TRY(map(device, rank, &theirs[i], diag, &peer->fixed[i]));
    }
    return HD_OK;
}

hd_status hd_cuda_fixed_meet(hd_device *device, hd_diag *diag)
{
    size_t n = (size_t)device->narguments; // one at least is fixed
    hd_exchange exchange;
    hd_cuda_note *all;
    hd_status status;

    if (device->binding.fixed == NULL || device->size == 1)
        return HD_OK;
    exchange = hd_exchange_begin(device->binding.group, HD_CALL_SESSION,
                                 device->binding.timeout, diag);
    all = hd_exchange_room(&exchange, n * sizeof *all);
    if (all == NULL)
        return HD_ERROR_NO_MEMORY;
    status = hd_exchange_allgather(&exchange, device->peers->note,
                                   n * sizeof *all, all);
    for (int i = 0; i < device->size && status == HD_OK; i++)
        status = map_all(device, i, &all[(size_t)i * n], diag);
    free(all);
    return status;
}

void hd_cuda_fixed_close(hd_device *device)
{
    for (int peer = 0; peer < device->size; peer++) {
        hd_cuda_fixed *fixed = device->peers->peer[peer].fixed;

        for (int i = 0; fixed != NULL && i < device->narguments; i++) {
            if (fixed[i].map != 0)
                device->cu.ipc_close(fixed[i].map);
            hd_cuda_chunk_give(device, fixed[i].lent);
        }
        free(fixed);
    }
    free(device->peers->note);
}

hd_cu_ptr hd_cuda_there(const hd_cuda_peer *peer, uint64_t offset)
{
    int argument = hd_offset_fixed(offset);

    return argument < 0 ? peer->window + offset
                        : peer->fixed[argument].at + hd_offset_within(offset);
}

uint64_t hd_cuda_there_room(const hd_cuda_peer *peer, uint64_t offset)
{
    int argument = hd_offset_fixed(offset);

    if (argument < 0)
        return peer->bytes;
    return argument < peer->nfixed ? peer->fixed[argument].bytes : 0;
}
