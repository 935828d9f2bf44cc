// Compiles a rank's steps into commands, once. What crosses streams becomes
// events; what crosses ranks is cuda/transfers/transfer.c's.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda/libraries/attends.h"
#include "runtime/cuda/libraries/products.h"
#include "runtime/cuda/libraries/single.h"
#include "runtime/cuda/plan/launch.h"
#include "runtime/cuda/plan/make.h"
#include "runtime/cuda/transfers/transport.h"

static int stream_of(const hd_step *step)
{
    return step->stream + 1;
}

// ---------------------------------------------------------------- sync

static hd_status plan_wait(hd_cuda_plan *plan, const hd_step *step,
                           const int *events, hd_diag *diag)
{
    for (int i = 0; i < step->op->nviews; i++) {
        int record = step->record[i].step;

        HD_TRY(hd_cuda_add_event(
            plan, record >= 0 ? HD_CUDA_WAIT : HD_CUDA_WAIT_ARGUMENT,
            stream_of(step), step,
            record >= 0
                ? events[record]
                : plan->device->buffer[step->span[i].buffer->id].argument,
            diag));
    }
    return HD_OK;
}

static hd_status plan_sync(hd_cuda_plan *plan, const hd_step *step, int *events,
                           hd_diag *diag)
{
    int event = 0;

    switch (hd_op_sync(step->op)) {
    case HD_SYNC_FORK:
        HD_TRY(hd_cuda_new_event(plan, diag, &event));
        HD_TRY(hd_cuda_add_event(plan, HD_CUDA_RECORD, 0, step, event, diag));
        for (int i = 1; i < hd_cuda_helper(plan->device); i++)
            HD_TRY(hd_cuda_add_event(plan, HD_CUDA_WAIT, i, step, event, diag));
        return HD_OK;
    case HD_SYNC_JOIN:
        for (int i = 1; i < hd_cuda_helper(plan->device); i++)
            HD_TRY(hd_cuda_tie(plan, i, 0, step, diag));
        return HD_OK;
    case HD_SYNC_RECORD:
        return hd_cuda_plan_record(plan, stream_of(step), step, events, diag);
    case HD_SYNC_WAIT:
        return plan_wait(plan, step, events, diag);
    case HD_SYNC_NONE:
        break;
    }
    return HD_OK;
}

// ------------------------------------------------------------- compute

// All its steps' work is the first one's.
static hd_status plan_chain(hd_cuda_plan *plan, const hd_chain *chain,
                            hd_diag *diag)
{
    hd_cuda_at at[HD_CHAIN_VALUES];
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    for (int i = 0; i < chain->nvalues; i++)
        at[i] = hd_cuda_at_span(chain->value[i].span);
    if (hd_emit_chain(chain, &text, &grid) != HD_OK)
        return hd_cuda_no_room(plan->device, diag);
    return hd_cuda_add_kernel(plan, stream_of(chain->step[0]), chain->step[0],
                              &text, grid, at, chain->nvalues, diag);
}

// A function of the caller's, by its number.
static hd_status plan_call(hd_cuda_plan *plan, const hd_step *step,
                           hd_diag *diag)
{
    hd_cuda_command *command =
        hd_cuda_add(plan, HD_CUDA_CALL, stream_of(step), step);

    if (command == NULL)
        return hd_cuda_no_room(plan->device, diag);
    command->first = hd_callees_find(plan->device->binding.calls, step->op);
    return HD_OK;
}

// Of gradients those of the keys may not be where those of the rows are.
static bool are_empty(const hd_step *step)
{
    for (int i = 0; i < step->op->noutputs; i++)
        if (hd_span_elements(&step->span[i]) > 0)
            return false;
    return true;
}

static hd_status plan_single(hd_cuda_plan *plan, const hd_step *step,
                             hd_diag *diag)
{
    const hd_span *to = &step->span[0], *from = &step->span[1];

    // Any result of these may be empty, and counts that are read are checked.
    if (hd_op_family(step->op) == HD_FAMILY_PICK ||
        (hd_op_has_counts(step->op) && !hd_op_meets_keys(step->op) &&
         step->op->code != HD_OP_MATMUL))
        return hd_cuda_add_step(plan, stream_of(step), step, diag);
    if (are_empty(step) && !hd_op_has_counts(step->op) &&
        !hd_op_has_sequences(step->op))
        return HD_OK;
    if (hd_op_family(step->op) == HD_FAMILY_CALL)
        return plan_call(plan, step, diag);
    if (hd_op_meets_keys(step->op))
        return hd_cuda_plan_attention(plan, stream_of(step), step,
                                      &plan->detour[step->index], diag);
    if (step->op->code == HD_OP_MATMUL)
        return hd_cuda_plan_matmul(plan, stream_of(step), step, diag);
    if (step->op->code == HD_OP_COPY && hd_span_is_dense(to) &&
        hd_span_is_dense(from) &&
        to->buffer->type.dtype == from->buffer->type.dtype)
        return hd_cuda_add_copy(plan, stream_of(step), step,
                                hd_cuda_at_span(to), hd_cuda_at_span(from),
                                (uint64_t)hd_span_elements(to) *
                                    hd_dtype_size(to->buffer->type.dtype),
                                diag);
    return hd_cuda_add_step(plan, stream_of(step), step, diag);
}

static hd_status plan_compute(hd_cuda_plan *plan, const hd_step *step,
                              const hd_chains *chains, hd_diag *diag)
{
    const hd_steps *room = plan->device->binding.steps;
    hd_chain chain;

    if (chains->joined[step->index] || plan->detour[step->index].left_out)
        return HD_OK;
    hd_chains_find(chains, room, step->index, &chain);
    if (chain.nsteps <= 1)
        return plan_single(plan, step, diag);
    chain = hd_chain_now(&chain, room, plan->steps);
    return plan_chain(plan, &chain, diag);
}

// ----------------------------------------------------- a run's ends

// Indices of the dimension that this rank has at the plan's sizes.
static int64_t length_of(const hd_cuda_plan *plan, hd_dim dim)
{
    int64_t first, count;

    hd_module_part(plan->module, dim, plan->device->rank, &first, &count);
    return count;
}

// Bytes from the buffer's beginning to the end of what a run has in it.
static uint64_t used_bytes(const hd_cuda_plan *plan, const hd_root *buffer)
{
    const hd_type *type = &buffer->buffer->type;

    for (int d = 0; d < type->ndims; d++) {
        uint64_t room = (uint64_t)hd_dim_local(type->dim[d]);

        if (hd_dim_is_sized(type->dim[d]))
            return buffer->bytes / room *
                   (uint64_t)length_of(plan, type->dim[d]);
        if (room > 1)
            break;
    }
    return buffer->bytes;
}

// A shared argument is worked on in the window, unless it is fixed: peers do
// not map memory whose address may change from run to run on one rank alone.
// What is room alone is left as the caller has it: where that lies in between,
// by bringing it along.
static hd_status plan_staging(hd_cuda_plan *plan, bool in, hd_diag *diag)
{
    hd_device *device = plan->device;

    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];
        hd_cuda_at window = {i, 0};
        hd_cuda_at theirs = {device->nbuffers + buffer->argument, 0};

        if (in ? hd_cuda_is_staged_in(buffer)
               : hd_cuda_is_staged(buffer) &&
                     buffer->buffer->role != HD_ROLE_IN)
            HD_TRY(hd_cuda_add_copy(plan, 0, NULL, in ? window : theirs,
                                    in ? theirs : window,
                                    used_bytes(plan, buffer), diag));
    }
    return HD_OK;
}

// Calls it tied if a stream that it waits for is, unless a kernel does that has
// begun by then; those have ended when the caller's stream goes on.
static bool follow_records(const hd_cuda_plan *plan, const hd_step *wait,
                           const bool *starts, bool *ends)
{
    const hd_steps *steps = plan->steps;
    bool waits = plan->launched[wait->index] == 0, tied = false;

    for (int i = 0; i < hd_step_records(wait); i++) {
        int record = wait->record[i].step;
        int stream = record >= 0 ? stream_of(&steps->step[record]) : -1;

        tied |= waits && (stream == 0 || (stream > 0 && starts[stream]));
        if (stream >= 0 && stream_of(wait) == 0)
            ends[stream] = true;
    }
    return tied;
}

// Which streams the program itself ties to the start and to the end of its run.
// A stream is tied to the start if it first waits for what the caller's stream
// recorded, or a fork comes before its first step; to the end if a join comes
// after its last step, or the caller's stream waits for its last record.
static void find_ties(const hd_cuda_plan *plan, bool *starts, bool *ends)
{
    const hd_steps *steps = plan->steps;
    bool forked = false;
    bool begun[HD_CUDA_STREAMS_MOST] = {false};

    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];
        int stream = stream_of(step);
        bool tied = follow_records(plan, step, starts, ends);

        if (step->op->code == HD_OP_FORK)
            forked = true;
        if (step->op->code == HD_OP_JOIN)
            for (int k = 0; k < HD_CUDA_STREAMS_MOST; k++)
                ends[k] = true;
        if (step->op->code == HD_OP_FORK || step->op->code == HD_OP_JOIN)
            continue;
        if (!begun[stream])
            starts[stream] = forked || tied;
        begun[stream] = true;
        if (stream != 0)
            ends[stream] = false;
    }
    for (int k = 0; k < HD_CUDA_STREAMS_MOST; k++) {
        starts[k] |= !begun[k];
        ends[k] |= !begun[k];
    }
}

static hd_status plan_head(hd_cuda_plan *plan, const bool *starts,
                           hd_diag *diag)
{
    HD_TRY(hd_cuda_plan_count(plan, HD_CUDA_OP_BEGIN, diag));
    HD_TRY(hd_cuda_signal_early(plan, diag));
    HD_TRY(plan_staging(plan, true, diag));
    for (int i = 1; i < hd_cuda_helper(plan->device); i++) {
        if (!starts[i])
            HD_TRY(hd_cuda_tie(plan, 0, i, NULL, diag));
    }
    return HD_OK;
}

// A program that was not checked may wait for none of its deferred sends.
static hd_status plan_tail(hd_cuda_plan *plan, const bool *ends, hd_diag *diag)
{
    int helper = hd_cuda_helper(plan->device);

    for (int i = 1; i < helper; i++) {
        if (!ends[i])
            HD_TRY(hd_cuda_tie(plan, i, 0, NULL, diag));
    }
    if (plan->device->stream[helper].planned > 0)
        HD_TRY(hd_cuda_tie(plan, helper, 0, NULL, diag));
    HD_TRY(plan_staging(plan, false, diag));
    return hd_cuda_plan_count(plan, HD_CUDA_OP_END, diag);
}

// ----------------------------------------------------------- the steps

static hd_status plan_steps(hd_cuda_plan *plan, int *events,
                            const hd_chains *chains, hd_diag *diag)
{
    const hd_steps *steps = plan->steps;
    int n;

    for (int64_t i = 0; i < steps->nsteps; i += n) {
        const hd_step *step = &steps->step[i];

        n = hd_cuda_together(plan, i);
        for (int k = 0; k < n; k++)
            plan->first[i + k] = plan->ncommands;
        plan->device->stream[stream_of(step)].used = 0;
        if (plan->launched[i] > 0)
            HD_TRY(hd_cuda_plan_launch(plan, step, events, diag));
        else if (hd_op_is(step->op, HD_UNIT_TRANSFER))
            HD_TRY(hd_cuda_transports_plan(plan, step, n, events, diag));
        else if (hd_op_is(step->op, HD_UNIT_SYNC))
            HD_TRY(plan_sync(plan, step, events, diag));
        else
            HD_TRY(plan_compute(plan, step, chains, diag));
    }
    plan->first[steps->nsteps] = plan->ncommands;
    return HD_OK;
}

// cuDNN, which they are for, does nothing of a run's own shape.
static hd_status find_detours(hd_cuda_plan *plan, const hd_chains *chains,
                              hd_diag *diag)
{
    if (plan->module->nsizes > 0 || plan->steps->nsteps > HD_CUDA_COMPARED)
        return HD_OK;
    return hd_cuda_find_sums(plan, chains, diag);
}

static hd_status plan_all(hd_cuda_plan *plan, int *events,
                          const hd_chains *chains, hd_diag *diag)
{
    const hd_steps *steps = plan->steps;
    bool starts[HD_CUDA_STREAMS_MOST] = {false};
    bool ends[HD_CUDA_STREAMS_MOST] = {false};

    // -1: nothing waits for it.
    for (int64_t i = 0; i < steps->nsteps; i++)
        events[i] = -1;
    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];

        for (int k = 0; k < hd_step_records(step); k++)
            if (step->record[k].step >= 0)
                events[step->record[k].step] = 0;
    }
    HD_TRY(hd_cuda_launches_find(plan, events, diag));
    find_ties(plan, starts, ends);
    HD_TRY(find_detours(plan, chains, diag));
    HD_TRY(plan_head(plan, starts, diag));
    HD_TRY(plan_steps(plan, events, chains, diag));
    return plan_tail(plan, ends, diag);
}

static hd_status make(hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;
    size_t n = (size_t)plan->steps->nsteps + 1;
    int *events = calloc(n, sizeof *events);
    hd_chains chains = {0};
    hd_status status;

    for (int i = 0; i < device->nstreams; i++)
        device->stream[i].planned = device->stream[i].handed = 0;
    hd_cuda_hear_anew(device);
    plan->first = calloc(n, sizeof *plan->first);
    plan->detour = calloc(n, sizeof *plan->detour);
    plan->launched = calloc(n, sizeof *plan->launched);
    plan->gate = calloc(n, sizeof *plan->gate);
    status = plan->first == NULL || plan->detour == NULL ||
                     plan->launched == NULL || plan->gate == NULL ||
                     events == NULL ||
                     !hd_chains_collect(device->binding.steps, device->nbuffers,
                                        &chains)
                 ? hd_cuda_no_room(device, diag)
                 : plan_all(plan, events, &chains, diag);
    hd_chains_free(&chains);
    free(events);
    return status;
}

// Times are of steps as they are written.
static hd_status finish(hd_cuda_plan *plan, hd_diag *diag)
{
    hd_cuda_settle(plan);
    plan->device->plans++;
    return plan->device->binding.times == NULL ? hd_cuda_prune(plan, diag)
                                               : HD_OK;
}

// A mark is needed until its run is over, or so many commands of its stream
// later that the host has waited for it.
static hd_status open_marks(hd_device *device, hd_cuda_marks *marks,
                            hd_diag *diag)
{
    const int most = 2 * HD_CUDA_THROTTLE;

    marks->room =
        marks->each < most / HD_CUDA_RUNS ? marks->each * HD_CUDA_RUNS : most;
    marks->event = calloc((size_t)marks->room + 1, sizeof *marks->event);
    if (marks->event == NULL)
        return hd_cuda_no_room(device, diag);
    for (int i = 0; marks->each > 0 && i < marks->room; i++)
        HD_CUDA_TRY(device, diag, event_create, &marks->event[i],
                    HD_CU_EVENT_DISABLE_TIMING);
    return HD_OK;
}

// On the streams that are left of those that were planned. In a variant others
// may be: each has as many marks in the same order, wherever they are recorded.
static hd_status plan_marks(hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;

    for (int i = 0; i < plan->ncommands; i++) {
        const hd_cuda_command *command = &plan->command[i];
        hd_cuda_wait *wait;

        if (command->wait < 0)
            continue;
        wait = &device->waits.wait[command->wait];
        wait->marked = command->stream;
        wait->mark = device->stream[command->stream].marks.each++;
    }
    for (int i = 0; i < device->nstreams; i++)
        HD_TRY(open_marks(device, &device->stream[i].marks, diag));
    return HD_OK;
}

static hd_cuda_plan *new_plan(hd_device *device, const hd_module *module,
                              const hd_steps *steps)
{
    hd_cuda_plan *plan = calloc(1, sizeof *plan);

    if (plan == NULL)
        return NULL;
    plan->device = device;
    plan->module = module;
    plan->steps = steps;
    for (int i = 0; i < module->nsizes; i++)
        plan->size[i] = module->size[i].now;
    return plan;
}

hd_status hd_cuda_plan_make(hd_device *device, hd_diag *diag)
{
    device->whole =
        new_plan(device, device->binding.module, device->binding.steps);
    if (device->whole == NULL)
        return hd_cuda_no_room(device, diag);
    HD_TRY(make(device->whole, diag));
    HD_TRY(hd_cuda_alloc_rooms(device, diag));
    HD_TRY(finish(device->whole, diag));
    return plan_marks(device->whole, diag);
}

static void free_plan(hd_device *device, hd_cuda_plan *plan)
{
    if (plan == NULL)
        return;
    hd_cuda_singles_close(device, plan);
    hd_cuda_products_free(device, plan);
    hd_cuda_dnn_free(device, plan);
    free(plan->first);
    free(plan->detour);
    free(plan->launched);
    free(plan->gate);
    free(plan->command);
    free(plan->word);
    free(plan->launch);
    free(plan->blob);
    free(plan->patch);
    free(plan->map);
    free(plan);
}

hd_status hd_cuda_plan_vary(hd_device *device, int variant,
                            const hd_module *module, const hd_steps *steps,
                            bool again, hd_diag *diag)
{
    hd_cuda_plan **plan = &device->variant[variant];

    free_plan(device, *plan);
    *plan = new_plan(device, module, steps);
    if (*plan == NULL)
        return hd_cuda_no_room(device, diag);
    (*plan)->again = again;
    HD_TRY(make(*plan, diag));
    assert((*plan)->nwaits == device->waits.n); // its steps are the same
    HD_TRY(finish(*plan, diag));
    return hd_cuda_singles_open(*plan, diag);
}

void hd_cuda_plans_free(hd_device *device)
{
    for (int i = 0; i < HD_VARIANTS; i++)
        free_plan(device, device->variant[i]);
    free_plan(device, device->whole);
    for (int i = 0; i < device->nevents; i++)
        device->cu.event_destroy(device->event[i]);
    free(device->event);
    free(device->waits.wait);
}
