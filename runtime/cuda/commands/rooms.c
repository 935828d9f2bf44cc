// What a plan's streams need beside the program's buffers: rooms.
#include <assert.h>

#include "base/diag.h"
#include "runtime/cuda/commands/plan.h"

int hd_cuda_room_of(const hd_device *device, int stream, int room)
{
    return device->nbuffers + device->narguments + stream * HD_CUDA_ROOMS +
           room;
}

hd_cuda_at hd_cuda_need(hd_cuda_plan *plan, int stream, hd_cuda_room room,
                        size_t bytes)
{
    hd_device *device = plan->device;
    hd_cuda_stream *mine = &device->stream[stream];
    size_t at = room == HD_CUDA_SCRATCH ? hd_cuda_align_up(mine->used, 512) : 0;

    if (room == HD_CUDA_SCRATCH)
        mine->used = at + bytes;
    assert(plan == device->whole || at + bytes <= mine->need[room]);
    if (mine->need[room] < at + bytes)
        mine->need[room] = at + bytes;
    return (hd_cuda_at){hd_cuda_room_of(device, stream, (int)room), at};
}

bool hd_cuda_has_room(const hd_cuda_plan *plan, int stream, size_t scratch)
{
    const hd_cuda_stream *mine = &plan->device->stream[stream];

    return plan == plan->device->whole ||
           (hd_cuda_align_up(mine->used, 512) + scratch <=
                mine->need[HD_CUDA_SCRATCH] &&
            mine->need[HD_CUDA_WORKSPACE] > 0);
}

// Those of some kinds one after the other: bytes of all of them. Bases are not
// addresses yet.
static size_t lay_out_rooms(hd_device *device, int first, int end)
{
    size_t at = 0;

    for (int room = first; room < end; room++) {
        for (int i = 0; i < device->nstreams; i++) {
            device->base[hd_cuda_room_of(device, i, room)] = at =
                hd_cuda_align_up(at, 512);
            at += device->stream[i].need[room];
        }
    }
    return at;
}

static void place_rooms(hd_device *device, int first, int end, hd_cu_ptr at)
{
    for (int room = first; room < end; room++) {
        for (int i = 0; i < device->nstreams; i++)
            device->base[hd_cuda_room_of(device, i, room)] += at;
    }
}

static hd_status alloc_own_rooms(hd_device *device, hd_diag *diag)
{
    size_t bytes = lay_out_rooms(device, HD_CUDA_ROOMS_OWN, HD_CUDA_ROOMS);

    if (bytes == 0)
        return HD_OK;
    HD_TRY(hd_cuda_home_take(device, bytes, diag, &device->zeroed));
    device->zeroed_bytes = bytes;
    HD_CUDA_TRY(device, diag, fill8, device->zeroed, 0, bytes,
                device->home->rescue);
    HD_CUDA_TRY(device, diag, stream_synchronize, device->home->rescue);
    place_rooms(device, HD_CUDA_ROOMS_OWN, HD_CUDA_ROOMS, device->zeroed);
    return HD_OK;
}

hd_status hd_cuda_alloc_rooms(hd_device *device, hd_diag *diag)
{
    size_t scratch = lay_out_rooms(device, 0, HD_CUDA_WORKSPACE);
    size_t bytes = lay_out_rooms(device, 0, HD_CUDA_ROOMS_OWN);

    // What cuBLASLt works in it never reads before it has written it.
    HD_TRY(hd_cuda_chunk_take(device, HD_CUDA_PLACES, bytes, scratch, 0, diag,
                              &device->rooms));
    if (device->rooms != NULL)
        place_rooms(device, 0, HD_CUDA_ROOMS_OWN, device->rooms->at);
    return alloc_own_rooms(device, diag);
}
