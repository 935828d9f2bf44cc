// Compiles a rank's steps into the entries of its streams, once. Addresses,
// slots and records are settled here, so that a run only follows them.
//
// Forks and joins become waits for positions: a stream that must wait for what
// another was given before waits until that one has done as many entries as it
// had been given by then.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "ir/counts.h"
#include "runtime/cpu/cpu.h"

static hd_status no_memory(const hd_device *device, hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory to plan %lld steps",
                   (long long)device->binding.steps->nsteps);
}

static hd_status append_entry(hd_cpu_stream *stream, hd_cpu_entry_kind kind,
                              const hd_step *step, hd_diag *diag,
                              hd_cpu_entry **out)
{
    if (stream->nentries == stream->room) {
        size_t room = stream->room * 2 + 16;
        hd_cpu_entry *grown = realloc(stream->entry, room * sizeof *grown);

        if (grown == NULL)
            return no_memory(stream->device, diag);
        stream->entry = grown;
        stream->room = room;
    }
    *out = &stream->entry[stream->nentries++];
    memset(*out, 0, sizeof(**out));
    (*out)->kind = kind;
    (*out)->step = step;
    return HD_OK;
}

// A stream touches nothing of a run before the caller's stream has begun it,
// when all of the run before, of whichever session, is over: what they touch is
// the same memory. A program that forks says so itself.
static hd_status add_entry(hd_cpu_stream *stream, hd_cpu_entry_kind kind,
                           const hd_step *step, hd_diag *diag,
                           hd_cpu_entry **out)
{
    if (stream->index > 0 && stream->nentries == 0 &&
        kind != HD_CPU_WAIT_STREAM) {
        HD_TRY(append_entry(stream, HD_CPU_WAIT_STREAM, NULL, diag, out));
        (*out)->position = 1; // of stream 0
    }
    return append_entry(stream, kind, step, diag, out);
}

// --------------------------------------------------------- transfers

// A transfer's parts as they are found.
typedef struct parts {
    hd_cpu_transfer *transfer;
    int room;
} parts;

static hd_status add_part(hd_device *device, parts *parts, hd_diag *diag,
                          hd_cpu_part **out)
{
    hd_cpu_transfer *transfer = parts->transfer;

    if (transfer->nparts == parts->room) {
        int room = parts->room * 2 + 2;
        hd_cpu_part *grown =
            realloc(transfer->part, (size_t)room * sizeof *grown);

        if (grown == NULL)
            return no_memory(device, diag);
        transfer->part = grown;
        parts->room = room;
    }
    *out = &transfer->part[transfer->nparts++];
    memset(*out, 0, sizeof(**out));
    return HD_OK;
}

// What goes to `rank` goes by counts where the operand has them.
static void count_part(const hd_device *device, const hd_step *step, int rank,
                       hd_cpu_part *part)
{
    if (hd_op_counted(step->op) < 0)
        return;
    part->counted = step;
    part->piece = hd_rows_piece(device->binding.module, step->op, rank);
}

static hd_status plan_rendezvous(hd_device *device, const hd_step *step,
                                 const hd_rendezvous *rendezvous, hd_diag *diag,
                                 void *context)
{
    parts *parts = context;
    hd_cpu_part *part = NULL;

    HD_TRY(add_part(device, parts, diag, &part));
    part->side = rendezvous->side;
    part->peer = rendezvous->peer;
    part->place = rendezvous->place;
    part->bytes = rendezvous->bytes;
    device->digest += hd_rendezvous_digest(
        device->rank, rendezvous,
        hd_pair_slot(&device->peer[rendezvous->peer].pair, rendezvous));
    if (rendezvous->side == HD_SIDE_PUT)
        count_part(device, step, rendezvous->peer, part);
    if (rendezvous->side == HD_SIDE_PUT ||
        (rendezvous->side == HD_SIDE_OFFER &&
         hd_op_touched(step->op) >= step->op->noutputs))
        device->sending += rendezvous->bytes;
    return HD_OK;
}

static hd_status add_copy(hd_device *device, const hd_step *step, parts *parts,
                          hd_piece to, hd_piece from, hd_diag *diag)
{
    hd_cpu_part *part = NULL;

    HD_TRY(add_part(device, parts, diag, &part));
    *part = (hd_cpu_part){.side = HD_SIDE_NONE,
                          .peer = -1,
                          .place = to.place,
                          .from = from.place,
                          .bytes = to.bytes};
    count_part(device, step, device->rank, part);
    return HD_OK;
}

// A result over an operand that peers read is made beside it. A reduce's root
// is read by nobody.
static hd_status plan_reduce(hd_device *device, const hd_step *step,
                             hd_cpu_reduce *reduce, hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    int axis = step->op->axis;
    int64_t me = hd_mesh_coord(module, device->rank, axis);
    bool scatter = step->op->code == HD_OP_REDUCE_SCATTER;
    hd_piece out = hd_piece_of(&step->span[0], -1);
    hd_piece own = hd_piece_of(&step->span[1], scatter ? me : -1);
    bool beside = !hd_op_is_rooted(step->op) &&
                  hd_pieces_overlap(out, hd_piece_of(&step->span[1], -1));

    *reduce = (hd_cpu_reduce){
        .fold = hd_op_fold(step->op),
        .dtype = step->span[0].buffer->type.dtype,
        .out = out.place,
        .own = own.place,
        .n = (int)module->axis[axis].size,
        .own_index = (int)me,
    };
    reduce->elements = out.bytes / hd_dtype_size(reduce->dtype);
    reduce->operand = calloc((size_t)reduce->n, sizeof *reduce->operand);
    if (reduce->operand == NULL)
        return no_memory(device, diag);
    reduce->beside = beside;
    reduce->at = device->beside;
    if (beside)
        device->beside += (out.bytes + 63) & ~(size_t)63;
    return HD_OK;
}

// READ parts of one collective come in the order of coordinates.
static void link_reduce(hd_device *device, const hd_step *step,
                        hd_cpu_transfer *transfer, int first, int which)
{
    hd_cpu_reduce *reduce = &transfer->reduce[which];

    for (int i = first; i < transfer->nparts; i++) {
        hd_cpu_part *part = &transfer->part[i];

        if (part->side != HD_SIDE_READ)
            continue;
        part->operand = (int)hd_mesh_coord(device->binding.module, part->peer,
                                           step->op->axis);
        part->reduce = reduce;
        reduce->nparts++;
    }
}

static hd_status plan_one(hd_device *device, const hd_step *step, parts *parts,
                          hd_diag *diag)
{
    hd_cpu_transfer *transfer = parts->transfer;
    int first = transfer->nparts;
    hd_piece to, from;

    if (hd_step_reduces(step))
        HD_TRY(plan_reduce(device, step,
                           &transfer->reduce[transfer->nreduces++], diag));
    if (hd_rendezvous_own(&device->binding, step, &to, &from))
        HD_TRY(add_copy(device, step, parts, to, from, diag));
    HD_TRY(hd_rendezvous_each(device, &device->binding, step, diag,
                              plan_rendezvous, parts));
    if (hd_step_reduces(step))
        link_reduce(device, step, transfer, first, transfer->nreduces - 1);
    return HD_OK;
}

// Those of `n` steps that the helper makes, or those that it does not.
static hd_status plan_steps(hd_device *device, hd_cpu_entry *entry, int n,
                            bool deferred, hd_diag *diag)
{
    hd_cpu_transfer *transfer = calloc(1, sizeof *transfer);
    parts parts = {.transfer = transfer};

    if (transfer == NULL)
        return no_memory(device, diag);
    entry->transfer = transfer;
    transfer->first = entry->step->index;
    transfer->nsteps = n;
    transfer->deferred = deferred;
    transfer->reduce = calloc((size_t)n, sizeof *transfer->reduce);
    if (transfer->reduce == NULL)
        return no_memory(device, diag);
    for (int i = 0; i < n; i++) {
        if (hd_step_defers(&entry->step[i]) == deferred)
            HD_TRY(plan_one(device, &entry->step[i], &parts, diag));
    }
    return HD_OK;
}

// ------------------------------------------------------ with the peers

// Calls `fn` with each transfer that the streams have.
typedef hd_status transfer_fn(hd_device *device, hd_cpu_transfer *transfer,
                              void *context, hd_diag *diag);

static hd_status each_transfer(hd_device *device, transfer_fn *fn,
                               void *context, hd_diag *diag)
{
    for (int s = 0; s < device->nstreams; s++) {
        for (size_t i = 0; i < device->stream[s].nentries; i++) {
            hd_cpu_entry *entry = &device->stream[s].entry[i];

            if (entry->transfer != NULL)
                HD_TRY(fn(device, entry->transfer, context, diag));
        }
    }
    return HD_OK;
}

static hd_status place_scratch(hd_device *device, hd_cpu_transfer *transfer,
                               void *context, hd_diag *diag)
{
    (void)device;
    (void)diag;
    for (int i = 0; i < transfer->nreduces; i++) {
        hd_cpu_reduce *reduce = &transfer->reduce[i];

        if (reduce->beside)
            reduce->scratch = (char *)context + reduce->at;
    }
    return HD_OK;
}

void hd_cpu_plan_place(hd_device *device, char *beside)
{
    hd_status never = each_transfer(device, place_scratch, beside, NULL);

    assert(never == HD_OK);
    (void)never;
}

// The part that comes next: they come in the order in which they were found.
static hd_status connect_part(hd_device *device, const hd_step *step,
                              const hd_rendezvous *rendezvous, hd_diag *diag,
                              void *context)
{
    hd_cpu_part **next = context, *part = (*next)++;
    hd_cpu_peer *peer = &device->peer[rendezvous->peer];
    hd_offer offer; // theirs, as it is compared

    part->mine = hd_cpu_slot_of(peer->mine, peer, rendezvous);
    part->theirs = hd_cpu_slot_of(peer->theirs, peer, rendezvous);
    // A peer that has done this already may be in a run, whose sizes say anew
    // what it offers: then each run looks, and digests have been compared.
    if (device->binding.module->nsizes > 0)
        return HD_OK;
    offer = part->theirs->offer;
    HD_TRY(hd_rendezvous_compare(device->rank, step, rendezvous, &offer,
                                 hd_cpu_room(peer, offer.offset), diag));
    if (part->side != HD_SIDE_OFFER)
        part->remote = hd_cpu_remote(peer, offer.offset);
    if (part->side == HD_SIDE_READ)
        part->reduce->operand[part->operand] = part->remote;
    return HD_OK;
}

static hd_status connect_transfer(hd_device *device, hd_cpu_transfer *transfer,
                                  void *context, hd_diag *diag)
{
    hd_cpu_part *next = transfer->part;
    hd_piece to, from;

    (void)context;
    for (int i = 0; i < transfer->nsteps; i++) {
        const hd_step *step = &device->binding.steps->step[transfer->first + i];

        if (hd_step_defers(step) != transfer->deferred)
            continue;
        if (hd_rendezvous_own(&device->binding, step, &to, &from))
            next++;
        HD_TRY(hd_rendezvous_each(device, &device->binding, step, diag,
                                  connect_part, &next));
    }
    return HD_OK;
}

hd_status hd_cpu_plan_connect(hd_device *device, hd_diag *diag)
{
    return each_transfer(device, connect_transfer, NULL, diag);
}

// ------------------------------------------------- as a run's sizes have it

// The part that comes next: they come in the order in which they were found.
static hd_status place_again(hd_device *device, const hd_step *step,
                             const hd_rendezvous *rendezvous, hd_diag *diag,
                             void *context)
{
    hd_cpu_part **next = context, *part = (*next)++;
    hd_status status = HD_OK;

    part->place = rendezvous->place;
    part->bytes = rendezvous->bytes;
    // The peer reads it when it has seen that we are ready.
    if (part->side == HD_SIDE_OFFER)
        status = hd_offer_fill(device->buffer, step, rendezvous, diag,
                               &part->mine->offer);
    return status;
}

static void reduce_again(const hd_step *step, hd_cpu_reduce *reduce)
{
    bool scatter = step->op->code == HD_OP_REDUCE_SCATTER;
    hd_piece out = hd_piece_of(&step->span[0], -1);

    reduce->out = out.place;
    reduce->own =
        hd_piece_of(&step->span[1], scatter ? reduce->own_index : -1).place;
    reduce->elements = out.bytes / hd_dtype_size(reduce->dtype);
}

// What was planned with room for all sizes can be planned with less.
void hd_cpu_plan_again(hd_device *device, hd_cpu_transfer *transfer,
                       const hd_cpu_run *run)
{
    hd_cpu_part *next = transfer->part;
    hd_cpu_part *end = transfer->nparts > 0 ? next + transfer->nparts : next;
    hd_cpu_reduce *reduce = transfer->reduce;
    hd_status status = HD_OK;

    for (int i = 0; i < transfer->nsteps; i++) {
        const hd_step *step = &run->steps->step[transfer->first + i];
        hd_piece to, from;

        if (hd_step_defers(step) != transfer->deferred)
            continue;
        if (hd_step_reduces(step))
            reduce_again(step, reduce++);
        if (hd_rendezvous_own(&device->binding, step, &to, &from)) {
            next->place = to.place;
            next->from = from.place;
            next->bytes = to.bytes;
            next++;
        }
        if (status == HD_OK)
            status = hd_rendezvous_each(device, &device->binding, step, NULL,
                                        place_again, &next);
    }
    assert(status == HD_OK && next == end);
    (void)status;
    (void)end;
    transfer->sizes = run->sizes;
}

// -------------------------------------------------------------- steps

static hd_cpu_stream *stream_of(hd_device *device, const hd_step *step)
{
    return &device->stream[step->stream + 1];
}

// A record into an argument is also told to the caller's event.
static void count_record(hd_device *device, const hd_step *step, int view,
                         hd_cpu_entry *entry)
{
    const hd_root *buffer = &device->buffer[step->span[view].buffer->id];

    entry->target = buffer->argument;
    if (buffer->argument >= 0)
        entry->event = (int)device->events[buffer->argument]++;
}

static hd_status plan_deferred(hd_device *device, const hd_step *step,
                               hd_diag *diag)
{
    hd_cpu_entry *entry = NULL;

    HD_TRY(
        add_entry(stream_of(device, step), HD_CPU_DEFER, step, diag, &entry));
    device->ndeferred++;
    count_record(device, step, hd_op_key_view(step->op, HD_KEY_DONE), entry);
    return plan_steps(device, entry, 1, true, diag);
}

// The helper's sends are handed over first: the rest of their group does not
// wait for them.
static hd_status plan_transfer(hd_device *device, const hd_step *step, int n,
                               hd_diag *diag)
{
    int rest = n;
    hd_cpu_entry *entry = NULL;

    for (int i = 0; i < n; i++) {
        if (!hd_step_defers(&step[i]))
            continue;
        HD_TRY(plan_deferred(device, &step[i], diag));
        rest--;
    }
    if (rest == 0)
        return HD_OK;
    HD_TRY(add_entry(stream_of(device, step), HD_CPU_TRANSFER, step, diag,
                     &entry));
    return plan_steps(device, entry, n, false, diag);
}

static hd_status wait_for_stream(hd_cpu_stream *stream,
                                 const hd_cpu_stream *other,
                                 const hd_step *step, hd_diag *diag)
{
    hd_cpu_entry *entry = NULL;

    HD_TRY(add_entry(stream, HD_CPU_WAIT_STREAM, step, diag, &entry));
    entry->target = other->index;
    entry->position = other->nentries;
    return HD_OK;
}

// An entry for each of its events.
static hd_status plan_record(hd_device *device, const hd_step *step,
                             hd_diag *diag)
{
    hd_cpu_entry *entry = NULL;

    for (int i = 0; i < step->op->nviews; i++) {
        HD_TRY(add_entry(stream_of(device, step), HD_CPU_RECORD, step, diag,
                         &entry));
        count_record(device, step, i, entry);
    }
    return HD_OK;
}

static hd_status plan_wait(hd_device *device, const hd_step *step,
                           hd_diag *diag)
{
    hd_cpu_entry *entry = NULL;

    for (int i = 0; i < step->op->nviews; i++) {
        bool caller = step->record[i].step < 0;

        HD_TRY(add_entry(stream_of(device, step),
                         caller ? HD_CPU_WAIT_CALLER : HD_CPU_WAIT, step, diag,
                         &entry));
        entry->target = caller
                            ? device->buffer[step->span[i].buffer->id].argument
                            : step->record[i].step;
    }
    return HD_OK;
}

static hd_status plan_sync(hd_device *device, const hd_step *step,
                           hd_diag *diag)
{
    hd_cpu_stream *caller = &device->stream[0];

    switch (hd_op_sync(step->op)) {
    case HD_SYNC_FORK:
        for (int i = 1; i < device->nstreams; i++)
            HD_TRY(wait_for_stream(&device->stream[i], caller, step, diag));
        return HD_OK;
    case HD_SYNC_JOIN:
        for (int i = 1; i < device->nstreams; i++) {
            HD_TRY(wait_for_stream(caller, &device->stream[i], step, diag));
            device->stream[i].joined = device->stream[i].nentries;
        }
        return HD_OK;
    case HD_SYNC_RECORD:
        return plan_record(device, step, diag);
    case HD_SYNC_WAIT:
        return plan_wait(device, step, diag);
    case HD_SYNC_NONE:
        break;
    }
    return HD_OK;
}

static hd_status plan_compute(hd_device *device, const hd_step *step,
                              hd_diag *diag)
{
    hd_cpu_stream *stream = stream_of(device, step);
    hd_cpu_entry *entry = NULL;

    if (hd_cpu_scratch_need(step, &stream->scratch.bytes) != HD_OK)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "what '%s' (step %lld, line %u) contracts is too long",
                       hd_op_info_get(step->op->code)->text,
                       (long long)step->index, step->op->loc.line);
    if (hd_op_family(step->op) != HD_FAMILY_CALL)
        return add_entry(stream, HD_CPU_COMPUTE, step, diag, &entry);
    HD_TRY(add_entry(stream, HD_CPU_CALL, step, diag, &entry));
    entry->target = hd_callees_find(device->binding.calls, step->op);
    return HD_OK;
}

static hd_status plan_step(hd_device *device, const hd_step *step, int n,
                           hd_diag *diag)
{
    switch (hd_op_unit(step->op)) {
    case HD_UNIT_COMPUTE:
        return plan_compute(device, step, diag);
    case HD_UNIT_TRANSFER:
        return plan_transfer(device, step, n, diag);
    case HD_UNIT_SYNC:
        return plan_sync(device, step, diag);
    }
    return HD_OK;
}

static int by_step(const void *a, const void *b)
{
    const hd_cpu_entry *const *x = a;
    const hd_cpu_entry *const *y = b;

    return (*x)->step->index < (*y)->step->index ? -1 : 1;
}

// The helper tries sends in the order in which they are issued.
static hd_status list_deferred(hd_device *device, hd_diag *diag)
{
    size_t n = 0;

    device->deferred = calloc(device->ndeferred + 1, sizeof(hd_cpu_entry *));
    if (device->deferred == NULL)
        return no_memory(device, diag);
    for (int s = 0; s < device->nstreams; s++) {
        for (size_t i = 0; i < device->stream[s].nentries; i++) {
            if (device->stream[s].entry[i].kind == HD_CPU_DEFER)
                device->deferred[n++] = &device->stream[s].entry[i];
        }
    }
    qsort(device->deferred, n, sizeof(hd_cpu_entry *), by_step);
    return HD_OK;
}

// Streams ring only for entries that somebody waits for. Position 0 is where
// the run before ended.
static void mark_watched(hd_device *device)
{
    for (int s = 0; s < device->nstreams; s++) {
        for (size_t i = 0; i < device->stream[s].nentries; i++) {
            const hd_cpu_entry *entry = &device->stream[s].entry[i];
            hd_cpu_stream *other;

            if (entry->kind != HD_CPU_WAIT_STREAM)
                continue;
            other = &device->stream[entry->target];
            if (entry->position > 0)
                other->entry[entry->position - 1].watched = true;
            else if (other->nentries > 0)
                other->entry[other->nentries - 1].watched = true;
        }
    }
}

// Likewise the caller's stream ends no run that others are still at.
static hd_status end_plan(hd_device *device, hd_diag *diag)
{
    hd_cpu_stream *caller = &device->stream[0];
    hd_cpu_entry *entry = NULL;

    for (int i = 1; i < device->nstreams; i++) {
        const hd_cpu_stream *stream = &device->stream[i];

        if (stream->joined < stream->nentries)
            HD_TRY(wait_for_stream(caller, stream, NULL, diag));
    }
    return add_entry(caller, HD_CPU_END, NULL, diag, &entry);
}

hd_status hd_cpu_plan(hd_device *device, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;
    hd_cpu_stream *caller = &device->stream[0];
    hd_cpu_entry *entry = NULL;

    device->recorded =
        calloc((size_t)steps->nsteps + 1, sizeof *device->recorded);
    if (device->recorded == NULL)
        return no_memory(device, diag);
    HD_TRY(add_entry(caller, HD_CPU_BEGIN, NULL, diag, &entry));
    for (int64_t i = 0; i < steps->nsteps;) {
        const hd_step *step = &steps->step[i];
        int n = hd_steps_together(steps, i);

        HD_TRY(plan_step(device, step, n, diag));
        i += n;
    }
    HD_TRY(end_plan(device, diag));
    mark_watched(device);
    return list_deferred(device, diag);
}

static void free_transfer(hd_cpu_transfer *transfer)
{
    if (transfer == NULL)
        return;
    for (int i = 0; i < transfer->nreduces; i++) {
        free(transfer->reduce[i].operand);
    }
    free(transfer->reduce);
    free(transfer->part);
    free(transfer);
}

void hd_cpu_plan_free(hd_device *device)
{
    for (int s = 0; device->stream != NULL && s < device->nstreams; s++) {
        for (size_t i = 0; i < device->stream[s].nentries; i++)
            free_transfer(device->stream[s].entry[i].transfer);
        free(device->stream[s].entry);
    }
    free(device->deferred);
    free(device->recorded);
}
