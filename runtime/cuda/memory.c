// The cuda driver's memory: chunks of the home's, a window for what peers touch
// and others for what they do not, and what goes to and fro so that each
// reaches the others' windows.
//
// Each rank writes a word into every window it maps before it is used; what
// has not come when all have written says that peer-to-peer copies cannot be
// trusted between the two.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/cuda/commands/plan.h"
#include "runtime/cuda/issue/pass.h"
#include "runtime/cuda/issue/sizes.h"
#include "runtime/cuda/memory/peers.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/transfers/batch.h"
#include "runtime/cuda/transfers/transport.h"

// What a peer must know of where this rank's session lies.
typedef struct note {
    uint64_t bytes;        // of the window
    uint64_t slots;        // offset of the pair's
    uint64_t home, number; // of the window
    uint64_t oldest;       // no window of a lesser number is of use
    uint64_t stamp;        // of the home
    uint64_t context;      // means something in this process alone
    uint64_t chip;         // of its device's UUID
    hd_pair pair;
} note;
_Static_assert(sizeof(note) <= HD_TOLD_BYTES, "note");

_Static_assert(sizeof(hd_cuda_reach) <= HD_HANDLE_BYTES, "handle");

// ------------------------------------------------------------- layout

// Whether peers touch each other's memory in this step.
static bool meets_peers(const hd_device *device, const hd_step *step)
{
    return hd_op_is(step->op, HD_UNIT_TRANSFER) &&
           hd_cuda_transport_of(device, step)->windows;
}

static hd_status count_slots(hd_device *device, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;
    hd_pair *pairs = calloc((size_t)device->size, sizeof *pairs);

    if (pairs == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       device->size);
    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (meets_peers(device, &steps->step[i]))
            hd_pair_count(&device->binding, &steps->step[i], pairs);
    }
    for (int i = 0; i < device->size; i++)
        device->peers->peer[i].pair = pairs[i];
    free(pairs);
    return HD_OK;
}

// Of each step whose ranks have shares, and behind them what peers put.
static size_t lay_out_shares(hd_device *device, size_t at)
{
    const hd_steps *steps = device->binding.steps;
    size_t most = 0;

    for (int64_t i = 0; i < steps->nsteps; i++) {
        uint64_t bytes = hd_cuda_share_bytes(device, &steps->step[i]);

        if (hd_cuda_is_twoshot(device, &steps->step[i])) {
            most = bytes > most ? bytes : most;
        } else if (bytes > 0) {
            device->peers->share[i] = at = hd_cuda_align_up(at, 512);
            at += bytes;
        }
    }
    at = hd_cuda_align_up(at, 512);
    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (hd_cuda_is_twoshot(device, &steps->step[i]))
            device->peers->share[i] = at;
    }
    return at + most;
}

// From the beginning of the session's on.
static size_t lay_out_slots(hd_device *device)
{
    size_t at = 0;

    for (int i = 0; i < device->size; i++) {
        if (i == device->rank)
            continue;
        device->peers->peer[i].mine = at;
        at +=
            hd_pair_slots(&device->peers->peer[i].pair) * sizeof(hd_cuda_slot);
    }
    return at;
}

// From `at` on; the offset behind them.
static size_t lay_out_shared(hd_device *device, size_t at)
{
    for (int i = 0; i < device->nbuffers; i++) {
        hd_root *buffer = &device->buffer[i];

        if (buffer->fixed != NULL)
            buffer->offset = hd_fixed_offset(buffer->argument);
        if (!buffer->shared || buffer->fixed != NULL)
            continue;
        buffer->offset = at = hd_cuda_align_up(at, 512);
        at += buffer->bytes;
    }
    return lay_out_shares(device, at);
}

static size_t lay_out_private(hd_device *device)
{
    size_t at = 0;

    for (int i = 0; i < device->nbuffers; i++) {
        hd_root *buffer = &device->buffer[i];

        if (buffer->shared || buffer->argument >= 0)
            continue;
        buffer->offset = at = hd_cuda_align_up(at, 512);
        at += buffer->bytes;
    }
    return at;
}

static hd_status take_memory(hd_device *device, hd_diag *diag)
{
    const size_t somewhere = 512; // what lies at 0 is none
    hd_cuda_peers *peers = device->peers;
    size_t slots = lay_out_slots(device);
    size_t shared = lay_out_shared(device, somewhere) - somewhere;

    size_t mine = lay_out_private(device);

    HD_TRY(hd_cuda_chunk_take(device, HD_CUDA_MEMORY, mine, mine,
                              hd_cuda_window_lacks(device, slots, shared), diag,
                              &device->memory));
    HD_TRY(hd_cuda_window_take(device, slots, shared, diag, &peers->place,
                               &peers->hold));
    peers->window = peers->place->chunk.at;
    peers->slots = peers->hold->at;
    peers->slot_bytes = slots;
    for (int i = 0; i < device->size; i++)
        peers->peer[i].mine += peers->hold->at;
    lay_out_shared(device, peers->place->region);
    return HD_OK;
}

static hd_status open_bases(hd_device *device, hd_diag *diag)
{
    size_t n = (size_t)(device->nbuffers + device->narguments +
                        device->nstreams * HD_CUDA_ROOMS);

    device->base = calloc(n, sizeof *device->base);
    if (device->base == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %zu buffers",
                       n);
    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];

        if (buffer->fixed != NULL)
            device->base[i] = (hd_cu_ptr)(uintptr_t)buffer->fixed;
        else if (buffer->shared)
            device->base[i] = device->peers->window + buffer->offset;
        else if (buffer->argument < 0 && device->memory != NULL)
            device->base[i] = device->memory->at + buffer->offset;
    }
    return HD_OK;
}

// -------------------------------------------------------------- slots

static hd_status fill_slot(hd_device *device, const hd_step *step,
                           const hd_rendezvous *rendezvous, hd_diag *diag,
                           void *context)
{
    hd_cuda_peer *peer = &device->peers->peer[rendezvous->peer];
    hd_cuda_slot *slot = &peer->own[hd_pair_slot(&peer->pair, rendezvous)];

    (void)context;
    slot->share = device->peers->share[step->index];
    slot->early =
        rendezvous->side == HD_SIDE_OFFER && device->peers->early[step->index];
    return hd_offer_fill(device->buffer, step, rendezvous, diag, &slot->offer);
}

static hd_status open_slots(hd_device *device, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;

    for (int i = 0; i < device->size; i++) {
        hd_cuda_peer *peer = &device->peers->peer[i];
        size_t n = hd_pair_slots(&peer->pair) + 1;

        peer->own = calloc(n, sizeof *peer->own);
        peer->slot = calloc(n, sizeof *peer->slot);
        if (peer->own == NULL || peer->slot == NULL)
            return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %zu slots",
                           n);
    }
    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (meets_peers(device, &steps->step[i]))
            HD_TRY(hd_rendezvous_each(device, &device->binding, &steps->step[i],
                                      diag, fill_slot, NULL));
    }
    for (int i = 0; i < device->size; i++) {
        const hd_cuda_peer *peer = &device->peers->peer[i];
        size_t n = hd_pair_slots(&peer->pair) * sizeof(hd_cuda_slot);

        if (i != device->rank && n > 0)
            HD_TRY(hd_cuda_copy_now(device, device->peers->window + peer->mine,
                                    (hd_cu_ptr)(uintptr_t)peer->own, n, diag));
    }
    return HD_OK;
}

static hd_status alloc_all(hd_device *device, hd_diag *diag)
{
    void *snapshot = NULL;

    HD_TRY(hd_roots_list(&device->binding, diag, &device->buffer,
                         &device->narguments));
    device->nbuffers = device->binding.module->nbuffers;
    HD_TRY(hd_cuda_fixed_find(device, diag));
    HD_TRY(count_slots(device, diag));
    device->peers->reducing = hd_cuda_find_reducing(device);
    HD_TRY(take_memory(device, diag));
    hd_cuda_find_early(device);
    HD_TRY(open_bases(device, diag));
    HD_CUDA_TRY(device, diag, host_alloc, &snapshot,
                device->peers->slot_bytes + 64, HD_CU_HOST_PORTABLE);
    device->peers->snapshot = snapshot;
    return open_slots(device, diag);
}

hd_status hd_cuda_alloc(hd_device *device, hd_diag *diag)
{
    size_t nsteps = (size_t)device->binding.steps->nsteps;
    hd_cuda_peers *peers = device->peers = calloc(1, sizeof *peers);
    hd_status status;
    int mode;

    if (peers != NULL) {
        peers->peer = calloc((size_t)device->size, sizeof *peers->peer);
        peers->share = calloc(nsteps + 1, sizeof *peers->share);
        peers->early = calloc(nsteps + 1, sizeof *peers->early);
    }
    if (peers == NULL || peers->peer == NULL || peers->share == NULL ||
        peers->early == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       device->size);
    if ((size_t)device->size * sizeof(uint32_t) > HD_CUDA_PROBES)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "%d ranks on CUDA IPC; at most %d", device->size,
                       HD_CUDA_PROBES / 4);
    peers->beside = -1;
    for (int i = 0; i < device->size; i++)
        peers->peer[i].near = hd_group_is_near(device->binding.group, i);
    HD_TRY(hd_cuda_sizes_open(device, diag));
    HD_TRY(hd_cuda_enter(device, diag, &mode));
    hd_cuda_chunks_close(device->home, 0); // there may be more room then
    hd_cuda_reach_begin(device);
    peers->making = true;
    status = alloc_all(device, diag);
    hd_cuda_leave(device, mode);
    return status;
}

static void free_peers(hd_device *device)
{
    hd_cuda_peers *peers = device->peers;

    if (peers == NULL)
        return;
    if (peers->peer != NULL)
        hd_cuda_fixed_close(device);
    if (peers->making)
        hd_cuda_reach_end(device);
    for (int i = 0; peers->peer != NULL && i < device->size; i++) {
        hd_cuda_chunk_give(device, peers->peer[i].mapped);
        free(peers->peer[i].own);
        free(peers->peer[i].slot);
        free(peers->peer[i].root);
    }
    hd_cuda_window_give(device, peers->place, peers->hold);
    if (peers->snapshot != NULL)
        device->cu.host_free(peers->snapshot);
    free(peers->share);
    free(peers->early);
    free(peers->peer);
    free(peers);
}

void hd_cuda_free(hd_device *device)
{
    free_peers(device);
    hd_cuda_pass_close(device);
    hd_cuda_chunk_give(device, device->memory);
    hd_cuda_chunk_give(device, device->rooms);
    if (device->zeroed != 0)
        hd_cuda_home_give(device->home, device->zeroed, device->zeroed_bytes);
    if (device->gates != 0)
        hd_cuda_home_give(device->home, device->gates, device->gate_bytes);
    free(device->buffer);
    free(device->base);
}

// ------------------------------------------------------ with the peers

static bool meets(const hd_device *device, int peer)
{
    return hd_pair_slots(&device->peers->peer[peer].pair) > 0;
}

// What both say alike of who has mapped a window: of `from`, by `to`.
static uint64_t sign_stamp(int from, int to, uint64_t stamp)
{
    return (stamp ^ ((uint64_t)(unsigned)from << 32) ^ (unsigned)to) *
           11400714819323198485u;
}

hd_fit hd_cuda_fit(const hd_device *device)
{
    uint64_t stamp = device->home->chunks.stamp;
    hd_fit fit = {.fits = device->said == NULL, .fails = true};

    for (int i = 0; i < device->size; i++) {
        uint64_t told = device->peers->place->told[i];

        if (i == device->rank)
            continue;
        fit.digest +=
            hd_pair_digest(device->rank, i, &device->peers->peer[i].pair);
        if (!meets(device, i))
            continue;
        fit.fits = fit.fits && told != 0;
        fit.digest += sign_stamp(device->rank, i, told) -
                      sign_stamp(i, device->rank, stamp);
    }
    return fit;
}

// Of two devices' UUIDs they are not the same; 0 if there is none.
static uint64_t chip_of(const hd_device *device)
{
    hd_cu_uuid uuid = {{0}};
    uint64_t half[2];

    if (device->cu.device_uuid(&uuid, device->home->ordinal) != HD_CU_SUCCESS)
        return 0;
    memcpy(half, uuid.bytes, sizeof half);
    return half[0] ^ half[1] * 0x9e3779b97f4a7c15u;
}

void hd_cuda_tell(hd_device *device, int peer, hd_told *out)
{
    const hd_cuda_window *window = device->peers->place;
    note note = {.bytes = window->chunk.bytes,
                 .slots = device->peers->peer[peer].mine,
                 .home = device->home->chunks.home,
                 .number = window->chunk.number,
                 .oldest = hd_cuda_window_oldest(device),
                 .stamp = device->home->chunks.stamp,
                 .context = (uint64_t)(uintptr_t)device->home->context,
                 .chip = chip_of(device),
                 .pair = device->peers->peer[peer].pair};

    memcpy(out->bytes, &note, sizeof note);
}

void hd_cuda_hear(hd_device *device, int peer, const hd_told *said)
{
    hd_cuda_peer *pair = &device->peers->peer[peer];
    note note;

    memcpy(&note, said->bytes, sizeof note);
    pair->bytes = note.bytes;
    pair->theirs = note.slots;
    pair->home = note.home;
    pair->number = note.number;
    pair->oldest = note.oldest;
    pair->stamp = note.stamp;
    pair->said = note.pair;
    if (pair->near &&
        note.context == (uint64_t)(uintptr_t)device->home->context)
        device->peers->beside = peer;
    if (note.chip == chip_of(device))
        device->peers->shares_device = true;
}

// From now on the peers have mapped the window, and nobody any more those that
// it takes the place of.
void hd_cuda_settle_windows(hd_device *device)
{
    int mode;

    for (int i = 0; i < device->size; i++) {
        if (i != device->rank && meets(device, i))
            device->peers->place->told[i] = device->peers->peer[i].stamp;
    }
    if (hd_cuda_enter(device, NULL, &mode) != HD_OK)
        return;
    hd_cuda_reach_end(device);
    device->peers->making = false;
    hd_cuda_leave(device, mode);
}

static hd_status tell_window(hd_device *device, int peer, hd_diag *diag,
                             hd_cuda_reach *out)
{
    hd_cu_result result;
    int mode;

    if (device->peers->peer[peer].near) {
        out->near.context = device->home->context;
        out->near.at = device->peers->window;
        return HD_OK;
    }
    HD_TRY(hd_cuda_enter(device, diag, &mode));
    result = device->cu.ipc_export(&out->ipc, device->peers->window);
    hd_cuda_leave(device, mode);
    return result == HD_CU_SUCCESS
               ? HD_OK
               : hd_cuda_error(device, result, diag, "ipc_export");
}

hd_status hd_cuda_export(hd_device *device, int peer, hd_diag *diag,
                         hd_handle *out)
{
    hd_cuda_reach reach = {.near = {.at = 0}};

    out->fd = hd_cuda_sizes_export(device, peer);
    if (meets(device, peer)) {
        HD_TRY(hd_cuda_reach_lease(device, diag, &out->lease));
        HD_TRY(tell_window(device, peer, diag, &reach));
    }
    memcpy(out->bytes, &reach, sizeof reach);
    return HD_OK;
}

// A word that depends on who writes it and to whom.
static uint32_t probe_word(int from, int to)
{
    return 0x68640000u ^ ((uint32_t)from << 8) ^ (uint32_t)to ^
           (uint32_t)(from * 40503 + to * 2531) << 12;
}

// All that this rank touches in a window is within what the peer says that it
// has.
static hd_status check_window(const hd_device *device, int peer, hd_diag *diag)
{
    const hd_cuda_peer *pair = &device->peers->peer[peer];

    HD_TRY(hd_pair_check(&pair->pair, peer, pair->theirs, pair->bytes,
                         HD_CUDA_PROBES, diag));
    if (pair->mapped == NULL || pair->bytes <= pair->mapped->bytes)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_PEER,
                   "rank %d says that its window has %llu bytes, of which rank "
                   "%d has mapped %llu",
                   peer, (unsigned long long)pair->bytes, device->rank,
                   (unsigned long long)pair->mapped->bytes);
}

static hd_status map_window(hd_device *device, int peer,
                            const hd_handle *handle, hd_diag *diag)
{
    hd_cuda_peer *pair = &device->peers->peer[peer];
    uint32_t word = probe_word(device->rank, peer);
    hd_cuda_chunk what = {.kind = HD_CUDA_THEIRS,
                          .peer = peer,
                          .home = pair->home,
                          .number = pair->number,
                          .near = pair->near};
    hd_cuda_reach theirs;
    hd_status status;

    memcpy(&theirs, handle->bytes, sizeof theirs);
    status = hd_cuda_reach_map(device, &what, handle->lease, &theirs, diag,
                               &pair->mapped);
    if (status != HD_OK) {
        hd_note(diag, (hd_loc){0},
                "rank %d cannot map the memory of rank %d: are their devices "
                "peers? (heddle env shows it)",
                device->rank, peer);
        return status;
    }
    HD_TRY(check_window(device, peer, diag));
    return hd_cuda_copy_now(
        device, pair->mapped->at + (uint64_t)device->rank * sizeof(uint32_t),
        (hd_cu_ptr)(uintptr_t)&word, sizeof word, diag);
}

// One that another session has mapped is mapped once.
static hd_status find_window(hd_device *device, int peer,
                             const hd_handle *handle, hd_diag *diag)
{
    hd_cuda_peer *pair = &device->peers->peer[peer];
    hd_status status;
    int mode;

    HD_TRY(hd_pair_compare(&device->binding, peer, &pair->pair, &pair->said,
                           diag));
    pair->mapped = hd_cuda_reach_find(device, peer, pair->home, pair->number);
    if (pair->mapped != NULL)
        return HD_OK;
    HD_TRY(hd_cuda_enter(device, diag, &mode));
    status = map_window(device, peer, handle, diag);
    hd_cuda_leave(device, mode);
    return status;
}

hd_status hd_cuda_import(hd_device *device, int peer, const hd_handle *handle,
                         hd_diag *diag)
{
    hd_status status = hd_cuda_sizes_import(device, peer, handle->fd, diag);

    if (status == HD_OK && meets(device, peer))
        status = find_window(device, peer, handle, diag);
    if (handle->lease >= 0)
        close(handle->lease);
    return status;
}

static hd_status meet(hd_device *device, int peer, hd_diag *diag)
{
    hd_cuda_peer *pair = &device->peers->peer[peer];

    HD_TRY(hd_pair_compare(&device->binding, peer, &pair->pair, &pair->said,
                           diag));
    if (!meets(device, peer))
        return HD_OK;
    hd_cuda_reach_forget(device, peer, pair->home, pair->oldest);
    if (pair->mapped == NULL)
        pair->mapped =
            hd_cuda_reach_find(device, peer, pair->home, pair->number);
    if (pair->mapped == NULL)
        return hd_fail(diag, HD_ERROR_PEER,
                       "rank %d has told of a window that rank %d has not "
                       "mapped",
                       peer, device->rank);
    HD_TRY(check_window(device, peer, diag));
    pair->window = pair->mapped->at;
    return HD_OK;
}

static hd_status meet_all(hd_device *device, hd_diag *diag)
{
    for (int peer = 0; peer < device->size; peer++) {
        if (peer != device->rank)
            HD_TRY(meet(device, peer, diag));
    }
    return HD_OK;
}

hd_status hd_cuda_check_probes(hd_device *device, hd_diag *diag)
{
    uint32_t word[HD_CUDA_PROBES / sizeof(uint32_t)] = {0};

    HD_TRY(meet_all(device, diag));
    HD_TRY(hd_cuda_copy_now(device, (hd_cu_ptr)(uintptr_t)word,
                            device->peers->window, sizeof word, diag));
    for (int peer = 0; peer < device->size; peer++) {
        if (peer != device->rank && meets(device, peer) &&
            word[peer] != probe_word(peer, device->rank))
            return hd_fail(diag, HD_ERROR_SYSTEM,
                           "what rank %d wrote into the memory of rank %d did "
                           "not arrive: peer-to-peer copies between their "
                           "devices cannot be trusted; use the nccl transport",
                           peer, device->rank);
    }
    for (int peer = 0; peer < device->size; peer++) {
        hd_cuda_peer *pair = &device->peers->peer[peer];
        size_t n = hd_pair_slots(&pair->pair) * sizeof(hd_cuda_slot);

        if (peer != device->rank && n > 0)
            HD_TRY(hd_cuda_copy_now(device, (hd_cu_ptr)(uintptr_t)pair->slot,
                                    pair->window + pair->theirs, n, diag));
    }
    return HD_OK;
}
