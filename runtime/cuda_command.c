// The lists that a plan is made of: commands and what they point to.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda_plan.h"

hd_status hd_cuda_no_room(const hd_device *device, hd_diag *diag)
{
    return hd_fail(diag, HD_NO_MEMORY, "no memory to plan %lld steps",
                   (long long)device->binding.steps->nsteps);
}

bool hd_cuda_grow(void **array, int n, int *room, size_t size)
{
    int more = *room * 2 + 16;
    void *grown;

    if (n < *room)
        return true;
    grown = realloc(*array, (size_t)more * size);
    if (grown == NULL)
        return false;
    *array = grown;
    *room = more;
    return true;
}

hd_cuda_command *hd_cuda_add(hd_device *device, hd_cuda_kind kind, int stream,
                             const hd_step *step)
{
    hd_cuda_command *command;

    if (!hd_cuda_grow((void **)&device->plan->command, device->plan->ncommands,
                      &device->plan->command_room, sizeof(*command)))
        return NULL;
    command = &device->plan->command[device->plan->ncommands++];
    memset(command, 0, sizeof(*command));
    device->stream[stream].planned++;
    command->kind = kind;
    command->stream = stream;
    command->step = step;
    return command;
}

hd_cuda_at hd_cuda_at_place(hd_stretch place)
{
    return (hd_cuda_at){place.buffer, place.offset};
}

hd_cuda_at hd_cuda_at_span(const hd_span *span)
{
    return (hd_cuda_at){span->buffer->id,
                        (uint64_t)span->offset *
                            hd_dtype_size(span->buffer->type.dtype)};
}

hd_status hd_cuda_add_copy(hd_device *device, int stream, const hd_step *step,
                           hd_cuda_at to, hd_cuda_at from, uint64_t bytes,
                           hd_diag *diag)
{
    hd_cuda_command *command;

    if (bytes == 0)
        return HD_OK;
    command = hd_cuda_add(device, HD_CUDA_COPY, stream, step);
    if (command == NULL)
        return hd_cuda_no_room(device, diag);
    command->to = to;
    command->from = from;
    command->bytes = bytes;
    return HD_OK;
}

hd_status hd_cuda_add_kernel(hd_device *device, int stream, const hd_step *step,
                             hd_text *text, hd_kernel_grid grid,
                             const hd_cuda_at *at, int n, hd_diag *diag)
{
    hd_cu_function function = NULL;
    hd_cuda_command *command;
    hd_status status =
        text->failed || text->bytes == NULL
            ? hd_cuda_no_room(device, diag)
            : hd_cuda_kernel(device, text->bytes, diag, &function);

    hd_text_free(text);
    HD_TRY(status);
    command = hd_cuda_add(device, HD_CUDA_KERNEL, stream, step);
    if (command == NULL)
        return hd_cuda_no_room(device, diag);
    command->function = function;
    command->grid = grid;
    command->first = device->plan->npointers;
    command->n = n;
    for (int i = 0; i < n; i++) {
        if (!hd_cuda_grow((void **)&device->plan->pointer,
                          device->plan->npointers, &device->plan->pointer_room,
                          sizeof(*device->plan->pointer)))
            return hd_cuda_no_room(device, diag);
        device->plan->pointer[device->plan->npointers++] = at[i];
    }
    return HD_OK;
}

// -------------------------------------------------------------- events

hd_status hd_cuda_new_event(hd_device *device, hd_diag *diag, int *out)
{
    size_t room = (size_t)device->plan->nevents + 1;
    hd_cu_event *grown;

    // A power of two is where there is no room left.
    if ((device->plan->nevents & (device->plan->nevents - 1)) == 0) {
        grown = realloc(device->plan->event, room * 2 * sizeof(*grown));
        if (grown == NULL)
            return hd_cuda_no_room(device, diag);
        device->plan->event = grown;
    }
    HD_CUDA_TRY(device, diag, event_create,
                &device->plan->event[device->plan->nevents],
                HD_CU_EVENT_DISABLE_TIMING);
    *out = device->plan->nevents++;
    return HD_OK;
}

hd_status hd_cuda_add_event(hd_device *device, hd_cuda_kind kind, int stream,
                            const hd_step *step, int event, hd_diag *diag)
{
    hd_cuda_command *command = hd_cuda_add(device, kind, stream, step);

    if (command == NULL)
        return hd_cuda_no_room(device, diag);
    command->event = event;
    return HD_OK;
}

hd_status hd_cuda_tie(hd_device *device, int first, int later,
                      const hd_step *step, hd_diag *diag)
{
    int event = 0;

    HD_TRY(hd_cuda_new_event(device, diag, &event));
    HD_TRY(hd_cuda_add_event(device, HD_CUDA_RECORD, first, step, event, diag));
    return hd_cuda_add_event(device, HD_CUDA_WAIT, later, step, event, diag);
}
