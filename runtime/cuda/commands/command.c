// The lists that a plan is made of: commands and what they point to.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda/commands/attention.h"
#include "runtime/cuda/commands/plan.h"

hd_status hd_cuda_no_room(const hd_device *device, hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory to plan %lld steps",
                   (long long)device->binding.steps->nsteps);
}

hd_cuda_command *hd_cuda_add(hd_cuda_plan *plan, hd_cuda_kind kind, int stream,
                             const hd_step *step)
{
    hd_cuda_command *command;

    if (!hd_cuda_grow((void **)&plan->command, plan->ncommands,
                      &plan->command_room, sizeof *command))
        return NULL;
    command = &plan->command[plan->ncommands++];
    memset(command, 0, sizeof *command);
    plan->device->stream[stream].planned++;
    command->kind = kind;
    command->stream = stream;
    command->step = step;
    command->wait = -1;
    return command;
}

hd_cuda_at hd_cuda_at_place(hd_location place)
{
    return (hd_cuda_at){place.buffer, place.offset};
}

hd_cuda_at hd_cuda_at_span(const hd_span *span)
{
    return (hd_cuda_at){span->buffer->id,
                        (uint64_t)span->offset *
                            hd_dtype_size(span->buffer->type.dtype)};
}

hd_status hd_cuda_add_copy(hd_cuda_plan *plan, int stream, const hd_step *step,
                           hd_cuda_at to, hd_cuda_at from, uint64_t bytes,
                           hd_diag *diag)
{
    hd_cuda_command *command;

    if (bytes == 0)
        return HD_OK;
    command = hd_cuda_add(plan, HD_CUDA_COPY, stream, step);
    if (command == NULL)
        return hd_cuda_no_room(plan->device, diag);
    command->to = to;
    command->from = from;
    command->bytes = bytes;
    return HD_OK;
}

// ------------------------------------------------------------ addresses

bool hd_cuda_address_of(const hd_cuda_plan *plan,
                        const hd_cuda_command *command, int i, hd_cuda_at *out)
{
    const hd_cuda_at copy[] = {command->to, command->from};
    const hd_cuda_at product[] = {command->a, command->b, command->c,
                                  command->bias};
    const hd_cuda_at *at = NULL;
    int n = 0;

    switch (command->kind) {
    case HD_CUDA_COPY:
        at = copy;
        n = 2;
        break;
    case HD_CUDA_PRODUCT:
        at = product;
        n = 4;
        break;
    case HD_CUDA_ATTEND:
        at = plan->attend[command->first].at;
        n = HD_CUDA_PARTS;
        break;
    case HD_CUDA_KERNEL:
        n = plan->launch[command->launch].npatches;
        if (i < n)
            *out = plan->patch[plan->launch[command->launch].patch + i].at;
        return i < n;
    case HD_CUDA_CALL:
        n = command->step->op->nviews;
        if (i < n)
            *out = hd_cuda_at_span(&command->step->span[i]);
        return i < n;
    case HD_CUDA_WORDS:
    case HD_CUDA_RECORD:
    case HD_CUDA_WAIT:
    case HD_CUDA_RECORD_ARGUMENT:
    case HD_CUDA_WAIT_ARGUMENT:
    case HD_CUDA_NCCL:
    case HD_CUDA_FUSED:
        break;
    }
    if (i < n)
        *out = at[i];
    return i < n;
}

// A shared argument is worked on in the window, unless it is fixed.
bool hd_cuda_is_staged(const hd_root *buffer)
{
    return buffer->shared && buffer->argument >= 0 && buffer->bytes > 0 &&
           buffer->fixed == NULL;
}

// Whether runs have only some indices of a dimension inside of another: room
// that they have nothing in lies in between.
static bool has_gaps(const hd_type *type)
{
    bool inside = false;

    for (int d = 0; d < type->ndims; d++) {
        if (inside && hd_dim_is_sized(type->dim[d]))
            return true;
        inside |= hd_dim_local(type->dim[d]) > 1;
    }
    return false;
}

bool hd_cuda_is_staged_in(const hd_root *buffer)
{
    return hd_cuda_is_staged(buffer) && (buffer->buffer->role != HD_ROLE_OUT ||
                                         has_gaps(&buffer->buffer->type));
}

// ------------------------------------------------------------- launches

static int map_type(hd_dtype dtype)
{
    return hd_dtype_size(dtype) == 1 ? HD_CU_MAP_U8
           : dtype == HD_DTYPE_F16   ? HD_CU_MAP_F16
                                     : HD_CU_MAP_BF16;
}

// CUDA's tensor map of what begins at the address; boxes are read from memory
// as zeros where they lie beyond it, and 128 bytes wide, turned in eights.
static hd_cu_result make_map(hd_device *device, const hd_kernel_map *map,
                             hd_cu_ptr at, void *out)
{
    const uint64_t extent[] = {(uint64_t)map->extent[0],
                               (uint64_t)map->extent[1],
                               (uint64_t)map->extent[2]};
    const uint64_t stride[] = {(uint64_t)map->stride[0],
                               (uint64_t)map->stride[1]};
    const uint32_t box[] = {map->box[0], map->box[1], 1}, each[] = {1, 1, 1};

    // They are made at a multiple of 128 bytes. One that is refused is none.
    hd_cu_tensor_map made = {{0}};
    hd_cu_result result = device->cu.tensor_map(
        &made, map_type(map->dtype), 3, (void *)(uintptr_t)at, extent, stride,
        box, each, HD_CU_MAP_PLAIN, HD_CU_MAP_SWIZZLE_128, HD_CU_MAP_L2_256,
        HD_CU_MAP_ZEROS);

    memcpy(out, &made, sizeof made);
    return result;
}

// Room for `bytes` more parameters, which begin at a multiple of 16.
static bool grow_blob(hd_cuda_plan *plan, size_t bytes, size_t *at)
{
    size_t room = plan->blob_room;
    char *grown;

    *at = (plan->blob_bytes + 15) / 16 * 16;
    if (*at + bytes > room) {
        room = room * 2 + bytes + 4096;
        grown = realloc(plan->blob, room);
        if (grown == NULL)
            return false;
        plan->blob = grown;
        plan->blob_room = room;
    }
    plan->blob_bytes = *at + bytes;
    return true;
}

// A map, or what a run writes into words, or an address.
static void patch_now(const hd_cuda_plan *plan, const hd_cuda_patch *patch,
                      uint64_t run)
{
    uint64_t value = patch->at.buffer == HD_CUDA_WORD_VALUE
                         ? hd_cuda_told(plan->device, run)
                         : hd_cuda_address(plan->device, patch->at);
    char *to = plan->blob + patch->offset;

    if (patch->map < 0)
        memcpy(to, &value, sizeof value);
    else
        (void)make_map(plan->device, &plan->map[patch->map], value, to);
}

static hd_status add_parameter(hd_cuda_plan *plan, hd_cuda_launch *launch,
                               size_t offset, hd_cuda_at at, int map,
                               hd_diag *diag)
{
    if (!hd_cuda_grow((void **)&plan->patch, plan->npatches, &plan->patch_room,
                      sizeof *plan->patch))
        return hd_cuda_no_room(plan->device, diag);
    plan->patch[plan->npatches++] =
        (hd_cuda_patch){launch->blob + offset, at, map};
    launch->npatches++;
    return HD_OK;
}

// What CUDA takes here it takes of any multiple of 16, which arguments begin
// at.
static hd_status add_map(hd_cuda_plan *plan, hd_cuda_launch *launch,
                         size_t offset, const hd_kernel_map *map, hd_cuda_at at,
                         hd_diag *diag)
{
    hd_device *device = plan->device;
    char probe[HD_KERNEL_MAP_BYTES];
    hd_cu_result result;

    if (!hd_cuda_grow((void **)&plan->map, plan->nmaps, &plan->map_room,
                      sizeof *map))
        return hd_cuda_no_room(device, diag);
    result = make_map(device, map, (hd_cu_ptr)HD_KERNEL_MAP_BYTES, probe);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "tensor_map");
    plan->map[plan->nmaps++] = *map;
    return add_parameter(plan, launch, offset, at, plan->nmaps - 1, diag);
}

int hd_cuda_argument_of(const hd_device *device, hd_cuda_at at)
{
    if (at.buffer < 0 || at.buffer >= device->nbuffers + device->narguments)
        return -1;
    if (at.buffer >= device->nbuffers)
        return at.buffer - device->nbuffers;
    return device->buffer[at.buffer].shared
               ? -1
               : device->buffer[at.buffer].argument;
}

void hd_cuda_settle(hd_cuda_plan *plan)
{
    int kept = 0;

    for (int i = 0; i < plan->nlaunches; i++) {
        hd_cuda_launch *launch = &plan->launch[i];
        int first = launch->patch, end = first + launch->npatches;

        launch->patch = kept;
        for (int k = first; k < end; k++) {
            hd_cuda_patch patch = plan->patch[k];

            if (patch.at.buffer == HD_CUDA_WORD_VALUE ||
                hd_cuda_argument_of(plan->device, patch.at) >= 0)
                plan->patch[kept++] = patch;
            else
                patch_now(plan, &patch, 0);
        }
        launch->npatches = kept - launch->patch;
    }
    plan->npatches = kept;
}

void hd_cuda_parameters_now(const hd_cuda_plan *plan,
                            const hd_cuda_launch *launch, uint64_t run,
                            void **parameters)
{
    for (int i = 0; i < launch->npatches; i++)
        patch_now(plan, &plan->patch[launch->patch + i], run);
    *parameters = plan->blob + launch->blob;
}

// Returns how many there are. In a graph order is by edges, which early
// launches would make other ones.
static unsigned list_attributes(const hd_device *device,
                                const hd_cuda_launch *launch,
                                hd_cu_launch_attribute out[2])
{
    unsigned n = 0;

    if (launch->cluster[0] > 0) {
        out[n] = (hd_cu_launch_attribute){.id = HD_CU_LAUNCH_CLUSTER};
        memcpy(out[n++].value.cluster, launch->cluster, sizeof launch->cluster);
    }
    if (launch->early && !device->binding.graph && device->captures == NULL)
        out[n++] = (hd_cu_launch_attribute){.id = HD_CU_LAUNCH_EARLY,
                                            .value.early = 1};
    return n;
}

// CUDA reads the parameters in the call.
hd_status hd_cuda_start(const hd_cuda_plan *plan, const hd_cuda_launch *launch,
                        uint64_t run, hd_cu_stream stream, hd_diag *diag)
{
    void *parameters;
    hd_cu_launch_attribute attribute[2];
    hd_cu_launch_config config = {.shared_bytes = launch->shared_bytes,
                                  .stream = stream,
                                  .attribute = attribute};

    config.nattributes = list_attributes(plan->device, launch, attribute);
    memcpy(config.grid, launch->grid, sizeof config.grid);
    memcpy(config.block, launch->block, sizeof config.block);
    hd_cuda_parameters_now(plan, launch, run, &parameters);
    HD_CUDA_TRY(plan->device, diag, launch, &config, launch->function,
                &parameters, NULL);
    return HD_OK;
}

static hd_status add_launch(hd_cuda_plan *plan, hd_cu_function function,
                            hd_kernel_grid grid, const hd_cuda_at *at,
                            hd_diag *diag)
{
    hd_cuda_launch launch = {
        .function = function,
        .grid = {grid.blocks, 1, 1},
        .block = {grid.threads, 1, 1},
        .cluster = {grid.cluster, grid.cluster > 0, grid.cluster > 0},
        .early = grid.early,
        .shared_bytes = grid.shared,
        .bytes = hd_kernel_bytes(&grid),
        .patch = plan->npatches};
    size_t maps = hd_kernel_maps_at(&grid);

    if (!hd_cuda_grow((void **)&plan->launch, plan->nlaunches,
                      &plan->launch_room, sizeof launch) ||
        !grow_blob(plan, launch.bytes, &launch.blob))
        return hd_cuda_no_room(plan->device, diag);
    memset(plan->blob + launch.blob, 0, launch.bytes);
    for (int i = 0; i < grid.pointers; i++)
        HD_TRY(add_parameter(plan, &launch, (size_t)i * sizeof(uint64_t), at[i],
                             -1, diag));
    for (int i = 0; i < grid.maps; i++)
        HD_TRY(add_map(plan, &launch, maps + (size_t)i * HD_KERNEL_MAP_BYTES,
                       &grid.map[i], at[grid.map[i].pointer], diag));
    memcpy(plan->blob + launch.blob + (size_t)grid.pointers * sizeof *grid.size,
           grid.size, (size_t)grid.sizes * sizeof *grid.size);
    plan->launch[plan->nlaunches++] = launch;
    return HD_OK;
}

hd_status hd_cuda_add_launch(hd_cuda_plan *plan, hd_text *text,
                             hd_kernel_grid grid, const hd_cuda_at *at, int n,
                             hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_cu_function function = NULL;
    hd_status status =
        text->failed || text->bytes == NULL
            ? hd_cuda_no_room(device, diag)
            : hd_cuda_kernel(device, text->bytes, diag, &function);

    hd_text_free(text);
    HD_TRY(status);
    if (grid.shared > HD_CU_SHARED_BYTES)
        HD_CUDA_TRY(device, diag, function_set, function,
                    HD_CU_FUNCTION_SHARED_BYTES, (int)grid.shared);
    assert(grid.pointers <= n); // it may do without the last
    (void)n;
    return add_launch(plan, function, grid, at, diag);
}

hd_status hd_cuda_add_kernel(hd_cuda_plan *plan, int stream,
                             const hd_step *step, hd_text *text,
                             hd_kernel_grid grid, const hd_cuda_at *at, int n,
                             hd_diag *diag)
{
    hd_cuda_command *command;

    HD_TRY(hd_cuda_add_launch(plan, text, grid, at, n, diag));
    command = hd_cuda_add(plan, HD_CUDA_KERNEL, stream, step);
    if (command == NULL)
        return hd_cuda_no_room(plan->device, diag);
    command->launch = plan->nlaunches - 1;
    return HD_OK;
}

static int list_views(const hd_step *step, hd_cuda_at *at)
{
    for (int i = 0; i < step->op->nviews; i++)
        at[i] = hd_cuda_at_span(&step->span[i]);
    return step->op->nviews;
}

// Of a kernel that tells: where, and of which step.
static int list_told(hd_cuda_plan *plan, int stream, const hd_step *step,
                     hd_cuda_at *at)
{
    at[0] = hd_cuda_need(plan, stream, HD_CUDA_MISCOUNT,
                         sizeof(hd_kernel_miscount));
    at[1] = (hd_cuda_at){-1, (uint64_t)step->index};
    return 2;
}

hd_status hd_cuda_add_step(hd_cuda_plan *plan, int stream, const hd_step *step,
                           hd_diag *diag)
{
    hd_cuda_at at[HD_KERNEL_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};
    int n = list_views(step, at);

    if (hd_kernel_tells(step))
        n += list_told(plan, stream, step, &at[n]);
    HD_TRY(hd_emit_step(step, diag, &text, &grid));
    return hd_cuda_add_kernel(plan, stream, step, &text, grid, at, n, diag);
}

int hd_cuda_choices(hd_device *device, const hd_tiles_row *row, int room,
                    hd_tiles_choice *out)
{
    int processors = 0;

    if (strcmp(device->home->arch, "sm_90a") != 0 ||
        !hd_tiles_map(row->product[0]) ||
        device->cu.device_attribute(&processors, HD_CU_SM_COUNT,
                                    device->home->ordinal) != HD_CU_SUCCESS)
        return 0;
    return hd_tiles_choose(row, processors, room, out);
}

bool hd_cuda_best_tiles(hd_cuda_plan *plan, int stream, const hd_tiles_row *row,
                        hd_tiles_choice *out)
{
    return hd_cuda_choices(plan->device, row, 1, out) > 0 &&
           hd_cuda_may_need(plan, stream, HD_CUDA_MISCOUNT,
                            sizeof(hd_kernel_miscount)) &&
           hd_cuda_may_need(plan, stream, HD_CUDA_SCRATCH,
                            hd_tiles_parts(out)) &&
           hd_cuda_may_need(plan, stream, HD_CUDA_TILES_READY,
                            hd_tiles_words(out) * sizeof(uint32_t));
}

// As the kernel has them: codegen/tiles.h.
static int list_row(hd_cuda_plan *plan, int stream, const hd_tiles_row *row,
                    const hd_tiles_choice *choice, const hd_cu_ptr *words,
                    hd_cuda_at *at)
{
    int n = 0;

    for (int i = 0; i < row->products; i++)
        n += list_views(row->product[i], &at[n]);
    n += list_told(plan, stream, row->product[0], &at[n]);
    at[n++] =
        hd_cuda_need(plan, stream, HD_CUDA_SCRATCH, hd_tiles_parts(choice));
    at[n++] = hd_cuda_need(plan, stream, HD_CUDA_TILES_READY,
                           hd_tiles_words(choice) * sizeof(uint32_t));
    for (int i = 0; i < row->products * row->words; i++)
        at[n++] = (hd_cuda_at){-1, words[i]};
    if (row->words > 0)
        at[n++] = (hd_cuda_at){HD_CUDA_WORD_VALUE, 0};
    return n;
}

hd_status hd_cuda_add_row(hd_cuda_plan *plan, int stream,
                          const hd_tiles_row *row,
                          const hd_tiles_choice *choice, const hd_cu_ptr *words,
                          hd_diag *diag)
{
    enum { MOST = HD_TILES_PRODUCTS * (HD_MAX_VIEWS + HD_TILES_WORDS) + 5 };
    hd_cuda_at at[MOST];
    hd_text text = {0};
    hd_kernel_grid grid = {0};
    int n = list_row(plan, stream, row, choice, words, at);

    HD_TRY(hd_tiles_emit_choice(row, choice, &text, &grid));
    HD_TRY(hd_cuda_add_kernel(plan, stream, row->product[0], &text, grid, at, n,
                              diag));
    plan->command[plan->ncommands - 1].meets = row->words > 0;
    return HD_OK;
}

hd_status hd_cuda_add_tiles(hd_cuda_plan *plan, int stream, const hd_step *step,
                            hd_diag *diag)
{
    hd_tiles_row row = hd_tiles_row_of(step);
    hd_tiles_choice choice;

    return hd_cuda_best_tiles(plan, stream, &row, &choice)
               ? hd_cuda_add_row(plan, stream, &row, &choice, NULL, diag)
               : hd_cuda_add_step(plan, stream, step, diag);
}

// -------------------------------------------------------------- events

hd_status hd_cuda_new_event(hd_cuda_plan *plan, hd_diag *diag, int *out)
{
    hd_device *device = plan->device;
    size_t room = (size_t)device->nevents + 1;
    hd_cu_event *grown;

    *out = plan->nevents++;
    // Runs follow each other: plans have events in common.
    if (*out < device->nevents)
        return HD_OK;
    // A power of two is where there is no room left.
    if ((device->nevents & (device->nevents - 1)) == 0) {
        grown = realloc(device->event, room * 2 * sizeof *grown);
        if (grown == NULL)
            return hd_cuda_no_room(device, diag);
        device->event = grown;
    }
    HD_CUDA_TRY(device, diag, event_create, &device->event[device->nevents],
                HD_CU_EVENT_DISABLE_TIMING);
    device->nevents++;
    return HD_OK;
}

hd_status hd_cuda_add_event(hd_cuda_plan *plan, hd_cuda_kind kind, int stream,
                            const hd_step *step, int event, hd_diag *diag)
{
    hd_cuda_command *command = hd_cuda_add(plan, kind, stream, step);

    if (command == NULL)
        return hd_cuda_no_room(plan->device, diag);
    command->event = event;
    return HD_OK;
}

hd_status hd_cuda_tie(hd_cuda_plan *plan, int first, int later,
                      const hd_step *step, hd_diag *diag)
{
    int event = 0;

    HD_TRY(hd_cuda_new_event(plan, diag, &event));
    HD_TRY(hd_cuda_add_event(plan, HD_CUDA_RECORD, first, step, event, diag));
    return hd_cuda_add_event(plan, HD_CUDA_WAIT, later, step, event, diag);
}

// A run gives it its value.
hd_status hd_cuda_add_words(hd_cuda_plan *plan, int stream, const hd_step *step,
                            int after, int operation, hd_cu_ptr address,
                            hd_diag *diag)
{
    hd_cuda_command *last =
        plan->ncommands > after ? &plan->command[plan->ncommands - 1] : NULL;

    if (last == NULL || last->kind != HD_CUDA_WORDS ||
        last->n == HD_CUDA_BATCH || last->stream != stream) {
        last = hd_cuda_add(plan, HD_CUDA_WORDS, stream, step);
        if (last == NULL)
            return hd_cuda_no_room(plan->device, diag);
        last->first = plan->nwords;
    }
    if (!hd_cuda_grow((void **)&plan->word, plan->nwords, &plan->word_room,
                      sizeof *plan->word))
        return hd_cuda_no_room(plan->device, diag);
    memset(&plan->word[plan->nwords], 0, sizeof *plan->word);
    plan->word[plan->nwords].word.operation = operation;
    plan->word[plan->nwords].word.address = address;
    plan->word[plan->nwords].word.flags =
        operation != HD_CU_OP_WAIT_32 ? HD_CU_WRITE_DEFAULT
        : plan->device->binding.graph ? HD_CU_WAIT_AND
                                      : HD_CU_WAIT_GEQ;
    plan->nwords++;
    last->n++;
    return HD_OK;
}

hd_cu_ptr hd_cuda_gate_of(const hd_cuda_plan *plan, int64_t record)
{
    return plan->gate[record] > 0
               ? plan->device->gates +
                     (uint64_t)(plan->gate[record] - 1) * sizeof(uint32_t)
               : 0;
}

// What a step records is one event of the device, if anything waits for it:
// events[step].
hd_status hd_cuda_plan_record(hd_cuda_plan *plan, int stream,
                              const hd_step *step, int *events, hd_diag *diag)
{
    int *event = &events[step->index];
    hd_cu_ptr gate;

    for (int i = 0; i < step->op->nviews; i++) {
        int argument = plan->device->buffer[step->span[i].buffer->id].argument;

        if (argument >= 0 && hd_op_access(step->op, i) == HD_ACCESS_RECORD)
            HD_TRY(hd_cuda_add_event(plan, HD_CUDA_RECORD_ARGUMENT, stream,
                                     step, argument, diag));
    }
    if (*event < 0)
        return HD_OK;
    HD_TRY(hd_cuda_new_event(plan, diag, event));
    HD_TRY(hd_cuda_add_event(plan, HD_CUDA_RECORD, stream, step, *event, diag));
    gate = hd_cuda_gate_of(plan, step->index);
    return gate != 0 ? hd_cuda_add_words(plan, stream, step, plan->ncommands,
                                         HD_CU_OP_WRITE_32, gate, diag)
                     : HD_OK;
}
