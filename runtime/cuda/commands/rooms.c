// What a plan's streams need beside the program's buffers: rooms.
#include <assert.h>

#include "base/diag.h"
#include "runtime/cuda/commands/plan.h"

int hd_cuda_room_of(const hd_device *device, int stream, int room)
{
    return device->nbuffers + device->narguments + stream * HD_CUDA_ROOMS +
           room;
}

// Where what is needed next begins.
static size_t next_of(const hd_cuda_stream *stream, hd_cuda_room room)
{
    return room == HD_CUDA_SCRATCH ? hd_cuda_align_up(stream->used, 512) : 0;
}

bool hd_cuda_may_need(const hd_cuda_plan *plan, int stream, hd_cuda_room room,
                      size_t bytes)
{
    const hd_cuda_stream *mine = &plan->device->stream[stream];

    return plan == plan->device->whole ||
           next_of(mine, room) + bytes <= mine->need[room];
}

hd_cuda_at hd_cuda_need(hd_cuda_plan *plan, int stream, hd_cuda_room room,
                        size_t bytes)
{
    hd_device *device = plan->device;
    hd_cuda_stream *mine = &device->stream[stream];
    size_t at = next_of(mine, room);

    assert(hd_cuda_may_need(plan, stream, room, bytes));
    if (room == HD_CUDA_SCRATCH)
        mine->used = at + bytes;
    if (mine->need[room] < at + bytes)
        mine->need[room] = at + bytes;
    return (hd_cuda_at){hd_cuda_room_of(device, stream, (int)room), at};
}

bool hd_cuda_has_room(const hd_cuda_plan *plan, int stream, size_t scratch)
{
    return hd_cuda_may_need(plan, stream, HD_CUDA_SCRATCH, scratch) &&
           hd_cuda_may_need(plan, stream, HD_CUDA_WORKSPACE, 1);
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

hd_status hd_cuda_take_zeroed(hd_device *device, size_t bytes, hd_diag *diag,
                              hd_cu_ptr *out)
{
    HD_TRY(hd_cuda_home_take(device, bytes, diag, out));
    HD_CUDA_TRY(device, diag, fill8, *out, 0, bytes, device->home->rescue);
    HD_CUDA_TRY(device, diag, stream_synchronize, device->home->rescue);
    return HD_OK;
}

static hd_status alloc_own_rooms(hd_device *device, hd_diag *diag)
{
    size_t bytes = lay_out_rooms(device, HD_CUDA_ROOMS_OWN, HD_CUDA_ROOMS);

    if (bytes == 0)
        return HD_OK;
    device->zeroed_bytes = bytes;
    HD_TRY(hd_cuda_take_zeroed(device, bytes, diag, &device->zeroed));
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
