// Runs of other sizes: a plan a variant, of the same steps with other lengths
// and offsets. Nothing is exchanged for that. A buffer lies where it lies, on
// all ranks; which part of it a peer offers, its program says, which is walked
// at these sizes as this rank's own is.
#include <stdio.h>
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/commands/plan.h"
#include "runtime/cuda/issue/run.h"
#include "runtime/cuda/memory/peers.h"
#include "runtime/cuda/plan/make.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/transfers/transport.h"

typedef struct offers {
    hd_device *device;
    int peer;
    bool roots; // are to be found: its slots are as it filled them
    hd_diag *diag;
} offers;

// A rendezvous of the peer's. What it offers to this rank begins so far into a
// buffer, whose place its slot tells while nothing else was planned.
static hd_status find_offer(hd_device *device, const hd_step *step,
                            const hd_rendezvous *rendezvous, hd_diag *diag,
                            void *context)
{
    const offers *all = context;
    hd_cuda_peer *peer = &device->peers->peer[all->peer];
    uint64_t slot = hd_pair_slot(&peer->pair, rendezvous);
    hd_offer *offer = &peer->slot[slot].offer;

    (void)step;
    (void)diag;
    if (rendezvous->peer != device->rank || rendezvous->side != HD_SIDE_OFFER ||
        slot >= hd_pair_slots(&peer->pair))
        return HD_OK;
    if (all->roots)
        peer->root[slot] = offer->offset - rendezvous->place.offset;
    offer->offset = peer->root[slot] + rendezvous->place.offset;
    offer->bytes = rendezvous->bytes;
    return HD_OK;
}

static hd_status find_offers(void *context, const hd_step *steps, int n)
{
    offers *all = context;
    hd_device *device = all->device;

    for (int i = 0; i < n; i++) {
        if (hd_op_is(steps[i].op, HD_UNIT_TRANSFER) &&
            hd_cuda_transport_of(device, &steps[i])->windows)
            HD_TRY(hd_rendezvous_each(device, &device->binding, &steps[i],
                                      all->diag, find_offer, all));
    }
    return HD_OK;
}

static hd_status find_all(hd_device *device, const hd_module *module,
                          bool roots, hd_diag *diag)
{
    for (int i = 0; i < device->size; i++) {
        offers all = {device, i, roots, diag};

        if (i != device->rank &&
            hd_pair_slots(&device->peers->peer[i].pair) > 0)
            HD_TRY(hd_walk(module, i, diag, find_offers, &all));
    }
    return HD_OK;
}

hd_status hd_cuda_find_roots(hd_device *device, hd_diag *diag)
{
    if (device->binding.module->nsizes == 0)
        return HD_OK;
    for (int i = 0; i < device->size; i++) {
        hd_cuda_peer *peer = &device->peers->peer[i];

        peer->root = calloc(hd_pair_slots(&peer->pair) + 1, sizeof *peer->root);
        if (peer->root == NULL)
            return hd_cuda_no_room(device, diag);
    }
    return find_all(device, device->binding.module, true, diag);
}

static hd_status vary(hd_device *device, int variant, const hd_module *module,
                      const hd_steps *steps, bool again, hd_diag *diag,
                      bool *better)
{
    HD_TRY(find_all(device, module, false, diag));
    if (device->variant[variant] != NULL)
        hd_cuda_runs_forget(device, device->variant[variant]);
    HD_TRY(hd_cuda_plan_vary(device, variant, module, steps, again, diag));
    *better = device->variant[variant]->better;
    return HD_OK;
}

// Peers wait for the run that this rank does not get to.
hd_status hd_cuda_vary(hd_device *device, int variant, const hd_module *module,
                       const hd_steps *steps, bool again, hd_diag *diag,
                       bool *better)
{
    char text[HD_GROUP_TEXT];
    int mode;
    hd_status status = hd_cuda_enter(device, diag, &mode);

    if (status == HD_OK) {
        status = vary(device, variant, module, steps, again, diag, better);
        hd_cuda_leave(device, mode);
    }
    if (status != HD_OK) {
        snprintf(text, sizeof text, "rank %d could not plan its run",
                 device->rank);
        hd_cuda_fail(device, status, text, "");
    }
    return status;
}
