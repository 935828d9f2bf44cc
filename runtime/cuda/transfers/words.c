// Words in the windows, as commands: what is written into a peer's slot, and
// what is waited for in one's own.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda/transfers/batch.h"

hd_status hd_cuda_add_word(hd_words *words, int operation, hd_cu_ptr address)
{
    return hd_cuda_add_words(words->plan, words->stream, words->step,
                             words->after, operation, address, words->diag);
}

hd_status hd_cuda_plan_count(hd_cuda_plan *plan, int operation, hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_words words = {plan, device, NULL, 0, plan->ncommands, diag};

    return device->captures != NULL
               ? hd_cuda_add_word(&words, operation, device->tally)
               : HD_OK;
}

hd_cuda_at hd_cuda_number_at(const hd_device *device)
{
    return device->captures != NULL ? (hd_cuda_at){-1, device->tally}
                                    : (hd_cuda_at){HD_CUDA_WORD_VALUE, 0};
}

static uint64_t word_at(uint64_t slots, const hd_cuda_peer *peer,
                        const hd_rendezvous *rendezvous, int which)
{
    uint64_t slot =
        which == HD_CUDA_EARLY ? 0 : hd_pair_slot(&peer->pair, rendezvous);

    return slots + slot * sizeof(hd_cuda_slot) +
           (uint64_t)which * sizeof(uint32_t);
}

hd_cuda_at hd_cuda_their_word(const hd_words *words,
                              const hd_rendezvous *rendezvous, int which)
{
    const hd_cuda_peer *peer = &words->device->peers->peer[rendezvous->peer];

    return (hd_cuda_at){-1, peer->window +
                                word_at(peer->theirs, peer, rendezvous, which)};
}

hd_status hd_cuda_signal(hd_words *words, const hd_rendezvous *rendezvous,
                         int which)
{
    return hd_cuda_add_word(
        words, HD_CU_OP_WRITE_32,
        hd_cuda_their_word(words, rendezvous, which).offset);
}

// Variants wait for the same in the same order.
static hd_status add_wait(hd_words *words, const hd_cuda_wait *wait)
{
    hd_cuda_waits *waits = &words->device->waits;

    if (words->plan->nwaits++ < waits->n)
        return HD_OK;
    if (!hd_cuda_grow((void **)&waits->wait, waits->n, &waits->room,
                      sizeof *waits->wait))
        return hd_cuda_no_room(words->device, words->diag);
    waits->wait[waits->n++] = *wait;
    return HD_OK;
}

hd_status hd_cuda_note_wait(hd_words *words, const hd_rendezvous *rendezvous,
                            int which, hd_cuda_at *word)
{
    hd_device *device = words->device;
    const hd_cuda_peer *peer = &device->peers->peer[rendezvous->peer];
    hd_cuda_wait wait = {.step = words->step,
                         .n = 1,
                         .peer = rendezvous->peer,
                         .stream = words->stream,
                         .offset = word_at(peer->mine, peer, rendezvous, which),
                         .mark = -1};

    *word = (hd_cuda_at){-1, device->peers->window + wait.offset};
    return add_wait(words, &wait);
}

hd_status hd_cuda_await_word(hd_words *words, const hd_rendezvous *rendezvous,
                             int which)
{
    hd_cuda_at word;

    HD_TRY(hd_cuda_note_wait(words, rendezvous, which, &word));
    return hd_cuda_add_word(words, HD_CU_OP_WAIT_32, word.offset);
}

bool hd_cuda_waits_for(const hd_device *device, const hd_cuda_wait *wait,
                       int rank)
{
    const hd_module *module = device->binding.module;

    if (wait->peer >= 0 || rank == device->rank)
        return wait->peer == rank;
    for (int i = 0; i < wait->n; i++) {
        const hd_step *step = &wait->step[i];
        int axis = step->op->axis;
        bool pair =
            step->op->code == HD_OP_SEND || step->op->code == HD_OP_RECV;

        if (hd_cuda_transport_of(device, step)->windows)
            continue;
        if (pair ? step->peer == rank
                 : hd_mesh_peer(module, device->rank, axis,
                                hd_mesh_coord(module, rank, axis)) == rank)
            return true;
    }
    return false;
}

// NCCL's kernels tell nothing, so the stream has a mark behind each call. In a
// graph each would be a node, and of a run that was captured the host knows no
// number that marks could be counted by.
hd_status hd_cuda_mark_nccl(hd_cuda_plan *plan, const hd_step *steps, int n,
                            int stream, hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_words words = {plan, device, steps, stream, plan->ncommands, diag};
    hd_cuda_wait wait = {
        .step = steps, .n = n, .peer = -1, .stream = stream, .mark = -1};
    bool alone = true;

    for (int i = 0; i < device->size; i++)
        alone &= !hd_cuda_waits_for(device, &wait, i);
    if (alone)
        return HD_OK;
    if (!device->binding.graph && device->captures == NULL)
        plan->command[plan->ncommands - 1].wait = plan->nwaits;
    return add_wait(&words, &wait);
}

const hd_cuda_slot *hd_cuda_slot_of(const hd_device *device,
                                    const hd_rendezvous *rendezvous)
{
    const hd_cuda_peer *peer = &device->peers->peer[rendezvous->peer];

    return &peer->slot[hd_pair_slot(&peer->pair, rendezvous)];
}

hd_cuda_at hd_cuda_remote(const hd_device *device,
                          const hd_rendezvous *rendezvous)
{
    return (hd_cuda_at){
        -1, hd_cuda_there(&device->peers->peer[rendezvous->peer],
                          hd_cuda_slot_of(device, rendezvous)->offer.offset)};
}

hd_status hd_cuda_land(hd_words *words, hd_transfers *batch, hd_cuda_at to,
                       hd_cuda_at from, uint64_t bytes)
{
    if (!hd_cuda_grow((void **)&batch->landing, batch->nlandings,
                      &batch->landing_room, sizeof *batch->landing))
        return hd_cuda_no_room(words->device, words->diag);
    batch->landing[batch->nlandings++] =
        (hd_landing){words->step, to, from, bytes};
    return HD_OK;
}
