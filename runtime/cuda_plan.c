// Compiles a rank's steps into commands, once. What crosses streams becomes
// events, what crosses ranks becomes words in the windows: in the order ready,
// copy, done, so that in a group every "ready" is said before anything waits.
//
//   offers   write the peer's "ready" ......................... wait for "done"
//   puts                        wait for "ready", copy, write the peer's "done"
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda.h"

enum { READY, DONE };

static hd_status no_memory(const hd_device *device, hd_diag *diag)
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

    if (!hd_cuda_grow((void **)&device->command, device->ncommands,
                      &device->command_room, sizeof(*command)))
        return NULL;
    command = &device->command[device->ncommands++];
    memset(command, 0, sizeof(*command));
    command->kind = kind;
    command->stream = stream;
    command->step = step;
    return command;
}

static hd_cuda_at at_place(hd_stretch place)
{
    return (hd_cuda_at){place.buffer, place.offset};
}

hd_cuda_at hd_cuda_at_span(const hd_span *span)
{
    return (hd_cuda_at){span->buffer->id,
                        (uint64_t)span->offset *
                            hd_dtype_size(span->buffer->type.dtype)};
}

static hd_status add_copy(hd_device *device, int stream, const hd_step *step,
                          hd_cuda_at to, hd_cuda_at from, uint64_t bytes,
                          hd_diag *diag)
{
    hd_cuda_command *command;

    if (bytes == 0)
        return HD_OK;
    command = hd_cuda_add(device, HD_CUDA_COPY, stream, step);
    if (command == NULL)
        return no_memory(device, diag);
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
            ? no_memory(device, diag)
            : hd_cuda_kernel(device, text->bytes, diag, &function);

    hd_text_free(text);
    HD_TRY(status);
    command = hd_cuda_add(device, HD_CUDA_KERNEL, stream, step);
    if (command == NULL)
        return no_memory(device, diag);
    command->function = function;
    command->grid = grid;
    command->first = device->npointers;
    command->n = n;
    for (int i = 0; i < n; i++) {
        if (!hd_cuda_grow((void **)&device->pointer, device->npointers,
                          &device->pointer_room, sizeof(*device->pointer)))
            return no_memory(device, diag);
        device->pointer[device->npointers++] = at[i];
    }
    return HD_OK;
}

// -------------------------------------------------------------- events

static hd_status new_event(hd_device *device, hd_diag *diag, int *out)
{
    size_t room = (size_t)device->nevents + 1;
    hd_cu_event *grown;

    // A power of two is where there is no room left.
    if ((device->nevents & (device->nevents - 1)) == 0) {
        grown = realloc(device->event, room * 2 * sizeof(*grown));
        if (grown == NULL)
            return no_memory(device, diag);
        device->event = grown;
    }
    HD_CUDA_TRY(device, diag, event_create, &device->event[device->nevents],
                HD_CU_EVENT_DISABLE_TIMING);
    *out = device->nevents++;
    return HD_OK;
}

static hd_status add_event(hd_device *device, hd_cuda_kind kind, int stream,
                           const hd_step *step, int event, hd_diag *diag)
{
    hd_cuda_command *command = hd_cuda_add(device, kind, stream, step);

    if (command == NULL)
        return no_memory(device, diag);
    command->event = event;
    return HD_OK;
}

// `later` goes on when `first` has come this far.
static hd_status tie(hd_device *device, int first, int later,
                     const hd_step *step, hd_diag *diag)
{
    int event = 0;

    HD_TRY(new_event(device, diag, &event));
    HD_TRY(add_event(device, HD_CUDA_RECORD, first, step, event, diag));
    return add_event(device, HD_CUDA_WAIT, later, step, event, diag);
}

// --------------------------------------------------------------- words

// Words that follow each other on a stream go to the device in one call.
// `after` is the number of commands before this step's, whose words are their
// own.
typedef struct hd_words {
    hd_device *device;
    const hd_step *step;
    int stream;
    int after;
    hd_diag *diag;
} hd_words;

static hd_status add_word(hd_words *words, int operation, hd_cu_ptr address,
                          bool clears)
{
    hd_device *device = words->device;
    hd_cuda_command *last = device->ncommands > words->after
                                ? &device->command[device->ncommands - 1]
                                : NULL;
    int about_room = device->word_room;

    if (last == NULL || last->kind != HD_CUDA_WORDS ||
        last->stream != words->stream) {
        last = hd_cuda_add(device, HD_CUDA_WORDS, words->stream, words->step);
        if (last == NULL)
            return no_memory(device, words->diag);
        last->first = device->nwords;
    }
    if (!hd_cuda_grow((void **)&device->word_about, device->nwords, &about_room,
                      sizeof(*device->word_about)) ||
        !hd_cuda_grow((void **)&device->word, device->nwords,
                      &device->word_room, sizeof(*device->word)))
        return no_memory(device, words->diag);
    memset(&device->word[device->nwords], 0, sizeof(*device->word));
    device->word[device->nwords].word.operation = operation;
    device->word[device->nwords].word.address = address;
    device->word[device->nwords].word.value = clears ? 0 : 1;
    device->word[device->nwords].word.flags =
        operation == HD_CU_OP_WAIT_32 ? HD_CU_WAIT_GEQ : HD_CU_WRITE_DEFAULT;
    device->word_about[device->nwords++] = (hd_cuda_word){.clears = clears};
    last->n++;
    return HD_OK;
}

static uint64_t word_at(uint64_t slots, const hd_cuda_peer *peer,
                        const hd_meeting *meeting, int which)
{
    return slots + hd_pair_slot(&peer->pair, meeting) * sizeof(hd_cuda_slot) +
           (uint64_t)which * sizeof(uint32_t);
}

static hd_status say(hd_words *words, const hd_meeting *meeting, int which)
{
    const hd_cuda_peer *peer = &words->device->peer[meeting->peer];

    return add_word(words, HD_CU_OP_WRITE_32,
                    peer->window + word_at(peer->theirs, peer, meeting, which),
                    false);
}

static hd_status hear(hd_words *words, const hd_meeting *meeting, int which)
{
    hd_device *device = words->device;
    const hd_cuda_peer *peer = &device->peer[meeting->peer];
    uint64_t offset = word_at(peer->mine, peer, meeting, which);

    if (!hd_cuda_grow((void **)&device->wait, device->nwaits,
                      &device->wait_room, sizeof(*device->wait)))
        return no_memory(device, words->diag);
    device->wait[device->nwaits++] =
        (hd_cuda_wait){words->step, meeting->peer, words->stream, offset};
    HD_TRY(add_word(words, HD_CU_OP_WAIT_32, device->window + offset, false));
    if (device->binding.graph)
        HD_TRY(
            add_word(words, HD_CU_OP_WRITE_32, device->window + offset, true));
    return HD_OK;
}

// ----------------------------------------------------------- transfers

// The meetings of a group, so that each phase can go through them all.
typedef struct hd_met {
    const hd_step *step;
    hd_meeting meeting;
} hd_met;

typedef struct hd_party {
    hd_met *met; // owned
    int n, room;
    struct hd_landing {
        const hd_step *step;
        hd_cuda_at to, from;
        uint64_t bytes;
    } * landing; // owned: results that wait until the peers have read ours
    int nlandings, landing_room;
} hd_party;

static bool defers(const hd_step *step)
{
    return hd_op_key(step->op, HD_KEY_DONE) != NULL;
}

static hd_status compare_sides(hd_device *device, const hd_step *step,
                               const hd_meeting *meeting, hd_diag *diag)
{
    const char *op = hd_op_info_get(step->op->code)->text;
    const hd_cuda_peer *peer = &device->peer[meeting->peer];
    const hd_cuda_slot *theirs =
        &peer->slot[hd_pair_slot(&peer->pair, meeting)];

    if (theirs->kind != meeting->want)
        return hd_fail(diag, HD_INVALID,
                       "'%s' of rank %d (step %lld, line %u) meets another "
                       "operation on rank %d",
                       op, device->rank, (long long)step->index,
                       step->op->loc.line, meeting->peer);
    if (meeting->side == HD_SIDE_OFFER)
        return HD_OK;
    if (theirs->bytes != meeting->bytes || theirs->offset > peer->bytes ||
        theirs->bytes > peer->bytes - theirs->offset)
        return hd_fail(diag, HD_INVALID,
                       "'%s' of rank %d (step %lld, line %u) moves %zu bytes, "
                       "rank %d %llu",
                       op, device->rank, (long long)step->index,
                       step->op->loc.line, meeting->bytes, meeting->peer,
                       (unsigned long long)theirs->bytes);
    return HD_OK;
}

static hd_status note_meeting(hd_device *device, const hd_step *step,
                              const hd_meeting *meeting, hd_diag *diag,
                              void *context)
{
    hd_party *party = context;
    bool reduces = step->op->code == HD_OP_REDUCE_SCATTER ||
                   step->op->code == HD_OP_ALL_REDUCE;

    HD_TRY(compare_sides(device, step, meeting, diag));
    if (!hd_cuda_grow((void **)&party->met, party->n, &party->room,
                      sizeof(*party->met)))
        return no_memory(device, diag);
    party->met[party->n++] = (hd_met){step, *meeting};
    if (meeting->side == HD_SIDE_PUT || (meeting->side == HD_SIDE_OFFER &&
                                         (reduces || step->op->noutputs == 0)))
        device->sending += meeting->bytes;
    return HD_OK;
}

static hd_cuda_at remote_at(const hd_device *device, const hd_meeting *meeting)
{
    const hd_cuda_peer *peer = &device->peer[meeting->peer];

    return (hd_cuda_at){
        -1,
        peer->window + peer->slot[hd_pair_slot(&peer->pair, meeting)].offset};
}

static hd_status move(hd_words *words, const hd_meeting *meeting)
{
    hd_cuda_at here = at_place(meeting->place);
    hd_cuda_at there = remote_at(words->device, meeting);
    bool put = meeting->side == HD_SIDE_PUT;

    HD_TRY(hear(words, meeting, READY));
    HD_TRY(add_copy(words->device, words->stream, words->step,
                    put ? there : here, put ? here : there, meeting->bytes,
                    words->diag));
    return say(words, meeting, DONE);
}

static bool overlap(hd_piece a, hd_piece b)
{
    return a.place.buffer == b.place.buffer &&
           a.place.offset < b.place.offset + b.bytes &&
           b.place.offset < a.place.offset + a.bytes;
}

// Where a reduction puts its result: a result that lies over this rank's own
// operand, which the peers read, goes through memory of its own.
static hd_status place_result(hd_words *words, hd_party *party, hd_piece out,
                              hd_cuda_at *at)
{
    hd_device *device = words->device;
    hd_cu_ptr memory = 0;

    *at = at_place(out.place);
    if (!overlap(out, hd_piece_of(&words->step->span[1], -1)))
        return HD_OK;
    HD_TRY(hd_cuda_extra(device, out.bytes, words->diag, &memory));
    *at = (hd_cuda_at){-1, memory};
    if (!hd_cuda_grow((void **)&party->landing, party->nlandings,
                      &party->landing_room, sizeof(*party->landing)))
        return no_memory(device, words->diag);
    party->landing[party->nlandings++] =
        (struct hd_landing){words->step, at_place(out.place), *at, out.bytes};
    return HD_OK;
}

// The operands of a reduction in the order of ranks, each read where it lies.
static hd_status reduce(hd_words *words, hd_party *party, int first)
{
    hd_device *device = words->device;
    const hd_step *step = words->step;
    const hd_module *module = device->binding.module;
    int axis = step->op->axis;
    int n = (int)module->axis[axis].size;
    int64_t me = hd_mesh_coord(module, device->rank, axis);
    bool scatter = step->op->code == HD_OP_REDUCE_SCATTER;
    hd_piece out = hd_piece_of(&step->span[0], -1);
    hd_dtype dtype = step->span[0].buffer->type.dtype;
    hd_cuda_at at[HD_KERNEL_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (n + 1 > HD_KERNEL_POINTERS)
        return hd_fail(words->diag, HD_UNSUPPORTED,
                       "a reduction over %d ranks by copies; at most %d", n,
                       HD_KERNEL_POINTERS - 1);
    HD_TRY(place_result(words, party, out, &at[0]));
    at[1 + me] = at_place(hd_piece_of(&step->span[1], scatter ? me : -1).place);
    for (int i = first; i < party->n && party->met[i].step == step; i++) {
        const hd_meeting *meeting = &party->met[i].meeting;

        if (meeting->side != HD_SIDE_READ)
            continue;
        HD_TRY(hear(words, meeting, READY));
        at[1 + hd_mesh_coord(module, meeting->peer, axis)] =
            remote_at(device, meeting);
    }
    HD_TRY(hd_emit_reduce(dtype, hd_op_key(step->op, HD_KEY_MAX) != NULL, n,
                          (int64_t)(out.bytes / hd_dtype_size(dtype)),
                          words->diag, &text, &grid));
    return hd_cuda_add_kernel(device, words->stream, step, &text, grid, at,
                              n + 1, words->diag);
}

static hd_status plan_moves(hd_words *words, hd_party *party)
{
    const hd_step *reduced = NULL;

    for (int i = 0; i < party->n; i++) {
        const hd_meeting *meeting = &party->met[i].meeting;

        words->step = party->met[i].step;
        if (meeting->side == HD_SIDE_PUT || meeting->side == HD_SIDE_PULL)
            HD_TRY(move(words, meeting));
        if (meeting->side == HD_SIDE_READ && reduced != words->step) {
            reduced = words->step;
            HD_TRY(reduce(words, party, i));
        }
    }
    return HD_OK;
}

static hd_status land(hd_device *device, int stream, const hd_party *party,
                      hd_diag *diag)
{
    for (int i = 0; i < party->nlandings; i++)
        HD_TRY(add_copy(device, stream, party->landing[i].step,
                        party->landing[i].to, party->landing[i].from,
                        party->landing[i].bytes, diag));
    return HD_OK;
}

static hd_status say_all(hd_words *words, const hd_party *party, hd_side side,
                         int which)
{
    for (int i = 0; i < party->n; i++) {
        words->step = party->met[i].step;
        if (party->met[i].meeting.side == side)
            HD_TRY(say(words, &party->met[i].meeting, which));
    }
    return HD_OK;
}

static hd_status hear_all(hd_words *words, const hd_party *party)
{
    for (int i = 0; i < party->n; i++) {
        words->step = party->met[i].step;
        if (party->met[i].meeting.side == HD_SIDE_OFFER)
            HD_TRY(hear(words, &party->met[i].meeting, DONE));
    }
    return HD_OK;
}

// Those of `n` steps that are deferred, or those that are not.
static hd_status meet(hd_device *device, const hd_step *steps, int n,
                      bool deferred, hd_diag *diag, hd_party *party)
{
    for (int i = 0; i < n; i++) {
        if (defers(&steps[i]) == deferred)
            HD_TRY(hd_meet(device, &device->binding, &steps[i], diag,
                           note_meeting, party));
    }
    return HD_OK;
}

static hd_status plan_party(hd_device *device, const hd_step *steps, int n,
                            int stream, bool deferred, hd_party *party,
                            hd_diag *diag)
{
    hd_words words = {device, steps, stream, device->ncommands, diag};
    hd_piece to, from;

    HD_TRY(meet(device, steps, n, deferred, diag, party));
    HD_TRY(say_all(&words, party, HD_SIDE_OFFER, READY));
    for (int i = 0; i < n; i++) {
        if (defers(&steps[i]) == deferred &&
            hd_meet_own(&device->binding, &steps[i], &to, &from))
            HD_TRY(add_copy(device, stream, &steps[i], at_place(to.place),
                            at_place(from.place), to.bytes, diag));
    }
    HD_TRY(plan_moves(&words, party));
    HD_TRY(say_all(&words, party, HD_SIDE_READ, DONE));
    HD_TRY(hear_all(&words, party));
    return land(device, stream, party, diag);
}

static hd_status plan_side(hd_device *device, const hd_step *steps, int n,
                           int stream, bool deferred, hd_diag *diag)
{
    hd_party party = {0};
    hd_status status =
        plan_party(device, steps, n, stream, deferred, &party, diag);

    free(party.met);
    free(party.landing);
    return status;
}

static int stream_of(const hd_step *step)
{
    return step->stream + 1;
}

static hd_status record(hd_device *device, int stream, const hd_step *step,
                        int *events, hd_diag *diag);

// The helper starts a deferred send when its stream has come to it.
static hd_status plan_deferred(hd_device *device, const hd_step *step,
                               int *events, hd_diag *diag)
{
    int helper = hd_cuda_helper(device);

    HD_TRY(tie(device, stream_of(step), helper, step, diag));
    HD_TRY(plan_side(device, step, 1, helper, true, diag));
    return record(device, helper, step, events, diag);
}

static hd_status plan_transfer(hd_device *device, const hd_step *steps, int n,
                               int *events, hd_diag *diag)
{
    int rest = n;

    if (device->binding.transport == HD_TRANSPORT_NCCL) {
        hd_cuda_command *command =
            hd_cuda_add(device, HD_CUDA_NCCL, stream_of(steps), steps);

        if (command == NULL)
            return no_memory(device, diag);
        command->n = n;
        for (int i = 0; i < n; i++) {
            if (defers(&steps[i]))
                HD_TRY(
                    record(device, stream_of(steps), &steps[i], events, diag));
        }
        return HD_OK;
    }
    for (int i = 0; i < n; i++) {
        if (!defers(&steps[i]))
            continue;
        HD_TRY(plan_deferred(device, &steps[i], events, diag));
        rest--;
    }
    return rest > 0 ? plan_side(device, steps, n, stream_of(steps), false, diag)
                    : HD_OK;
}

// ---------------------------------------------------------------- sync

// The event of a record, if anything waits for it: events[step].
static hd_status record(hd_device *device, int stream, const hd_step *step,
                        int *events, hd_diag *diag)
{
    int view = step->op->code == HD_OP_RECORD ? 0 : step->nspans - 1;
    int argument = device->buffer[step->span[view].buffer->id].argument;
    int *event = &events[step->index];

    if (argument >= 0)
        HD_TRY(add_event(device, HD_CUDA_RECORD_ARGUMENT, stream, step,
                         argument, diag));
    if (*event < 0)
        return HD_OK;
    HD_TRY(new_event(device, diag, event));
    return add_event(device, HD_CUDA_RECORD, stream, step, *event, diag);
}

static hd_status plan_wait(hd_device *device, const hd_step *step,
                           const int *events, hd_diag *diag)
{
    if (step->record >= 0)
        return add_event(device, HD_CUDA_WAIT, stream_of(step), step,
                         events[step->record], diag);
    return add_event(device, HD_CUDA_WAIT_ARGUMENT, stream_of(step), step,
                     device->buffer[step->span[0].buffer->id].argument, diag);
}

static hd_status plan_sync(hd_device *device, const hd_step *step, int *events,
                           hd_diag *diag)
{
    int event = 0;

    switch (step->op->code) {
    case HD_OP_FORK:
        HD_TRY(new_event(device, diag, &event));
        HD_TRY(add_event(device, HD_CUDA_RECORD, 0, step, event, diag));
        for (int i = 1; i < hd_cuda_helper(device); i++)
            HD_TRY(add_event(device, HD_CUDA_WAIT, i, step, event, diag));
        return HD_OK;
    case HD_OP_JOIN:
        for (int i = 1; i < hd_cuda_helper(device); i++)
            HD_TRY(tie(device, i, 0, step, diag));
        return HD_OK;
    case HD_OP_RECORD:
        return record(device, stream_of(step), step, events, diag);
    default:
        return plan_wait(device, step, events, diag);
    }
}

// ------------------------------------------------------------- compute

static hd_status plan_kernel(hd_device *device, const hd_step *step,
                             hd_diag *diag)
{
    hd_cuda_at at[HD_KERNEL_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    for (int i = 0; i < step->nspans; i++)
        at[i] = hd_cuda_at_span(&step->span[i]);
    HD_TRY(hd_emit_step(step, diag, &text, &grid));
    return hd_cuda_add_kernel(device, stream_of(step), step, &text, grid, at,
                              step->nspans, diag);
}

static hd_status plan_compute(hd_device *device, const hd_step *step,
                              hd_diag *diag)
{
    const hd_span *to = &step->span[0], *from = &step->span[1];

    if (hd_span_elements(to) == 0)
        return HD_OK;
    if (step->op->code == HD_OP_MATMUL)
        return hd_cuda_plan_matmul(device, stream_of(step), step, diag);
    if (step->op->code == HD_OP_COPY && hd_span_is_dense(to) &&
        hd_span_is_dense(from) &&
        to->buffer->type.dtype == from->buffer->type.dtype)
        return add_copy(device, stream_of(step), step, hd_cuda_at_span(to),
                        hd_cuda_at_span(from),
                        (uint64_t)hd_span_elements(to) *
                            hd_dtype_size(to->buffer->type.dtype),
                        diag);
    return plan_kernel(device, step, diag);
}

// ----------------------------------------------------- a run's ends

static bool is_staged(const hd_cuda_buffer *buffer)
{
    return buffer->shared && buffer->argument >= 0 && buffer->bytes > 0;
}

// A shared argument is worked on in the window: peers never map the caller's
// own memory, whose address may change from run to run on one rank alone.
static hd_status plan_staging(hd_device *device, hd_role skipped, bool in,
                              hd_diag *diag)
{
    for (int i = 0; i < device->nbuffers; i++) {
        const hd_cuda_buffer *buffer = &device->buffer[i];
        hd_cuda_at window = {i, 0};
        hd_cuda_at theirs = {device->nbuffers + buffer->argument, 0};

        if (is_staged(buffer) && buffer->buffer->role != skipped)
            HD_TRY(add_copy(device, 0, NULL, in ? window : theirs,
                            in ? theirs : window, buffer->bytes, diag));
    }
    return HD_OK;
}

// Which streams the program itself ties to the start and to the end of its run.
// A stream is tied to the start if it first waits for what the caller's stream
// recorded, or a fork comes before its first step; to the end if a join comes
// after its last step, or the caller's stream waits for its last record.
static void find_ties(const hd_device *device, bool *starts, bool *ends)
{
    const hd_steps *steps = device->binding.steps;
    bool forked = false;
    bool begun[HD_CUDA_STREAMS_MOST] = {false};

    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];
        int stream = stream_of(step);
        const hd_step *waited =
            step->op->code == HD_OP_WAIT && step->record >= 0
                ? &steps->step[step->record]
                : NULL;

        if (step->op->code == HD_OP_FORK)
            forked = true;
        if (step->op->code == HD_OP_JOIN)
            for (int k = 0; k < HD_CUDA_STREAMS_MOST; k++)
                ends[k] = true;
        if (waited != NULL && stream == 0)
            ends[stream_of(waited)] = true;
        if (step->op->code == HD_OP_FORK || step->op->code == HD_OP_JOIN)
            continue;
        if (!begun[stream])
            starts[stream] =
                forked || (waited != NULL && (stream_of(waited) == 0 ||
                                              starts[stream_of(waited)]));
        begun[stream] = true;
        if (stream != 0)
            ends[stream] = false;
    }
    for (int k = 0; k < HD_CUDA_STREAMS_MOST; k++) {
        starts[k] |= !begun[k];
        ends[k] |= !begun[k];
    }
}

static hd_status plan_head(hd_device *device, const bool *starts, hd_diag *diag)
{
    device->head.first = device->ncommands;
    HD_TRY(plan_staging(device, HD_OUT, true, diag));
    for (int i = 1; i < hd_cuda_helper(device); i++) {
        if (!starts[i])
            HD_TRY(tie(device, 0, i, NULL, diag));
    }
    device->head.n = device->ncommands - device->head.first;
    return HD_OK;
}

static hd_status plan_tail(hd_device *device, const bool *ends, hd_diag *diag)
{
    device->tail.first = device->ncommands;
    for (int i = 1; i < hd_cuda_helper(device); i++) {
        if (!ends[i])
            HD_TRY(tie(device, i, 0, NULL, diag));
    }
    HD_TRY(plan_staging(device, HD_IN, false, diag));
    device->tail.n = device->ncommands - device->tail.first;
    return HD_OK;
}

// ----------------------------------------------------------- the steps

static int group_size(const hd_steps *steps, int64_t i)
{
    int n = 1;

    while (steps->step[i].group != 0 && i + n < steps->nsteps &&
           steps->step[i + n].group == steps->step[i].group)
        n++;
    return n;
}

static hd_status plan_steps(hd_device *device, int *events, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;
    int n;

    for (int64_t i = 0; i < steps->nsteps; i += n) {
        const hd_step *step = &steps->step[i];
        hd_cuda_entry *entry = &device->entry[i];

        n = group_size(steps, i);
        entry->first = device->ncommands;
        if (hd_op_is(step->op, HD_UNIT_TRANSFER))
            HD_TRY(plan_transfer(device, step, n, events, diag));
        else if (hd_op_is(step->op, HD_UNIT_SYNC))
            HD_TRY(plan_sync(device, step, events, diag));
        else
            HD_TRY(plan_compute(device, step, diag));
        entry->n = device->ncommands - entry->first;
    }
    return HD_OK;
}

static hd_status plan_all(hd_device *device, int *events, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;
    bool starts[HD_CUDA_STREAMS_MOST] = {false};
    bool ends[HD_CUDA_STREAMS_MOST] = {false};

    // -1: nothing waits for it.
    for (int64_t i = 0; i < steps->nsteps; i++)
        events[i] = -1;
    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];

        if (step->op->code == HD_OP_WAIT && step->record >= 0)
            events[step->record] = 0;
    }
    find_ties(device, starts, ends);
    HD_TRY(plan_head(device, starts, diag));
    HD_TRY(plan_steps(device, events, diag));
    return plan_tail(device, ends, diag);
}

hd_status hd_cuda_plan(hd_device *device, hd_diag *diag)
{
    size_t n = (size_t)device->binding.steps->nsteps + 1;
    int *events = calloc(n, sizeof(*events));
    hd_status status;

    device->entry = calloc(n, sizeof(*device->entry));
    status = device->entry == NULL || events == NULL
                 ? no_memory(device, diag)
                 : plan_all(device, events, diag);
    free(events);
    return status;
}

void hd_cuda_plan_free(hd_device *device)
{
    for (int i = 0; i < device->nevents; i++)
        device->cu.event_destroy(device->event[i]);
    free(device->event);
    free(device->entry);
    free(device->command);
    free(device->word);
    free(device->word_about);
    free(device->pointer);
    free(device->wait);
}
