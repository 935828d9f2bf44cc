// What crosses ranks becomes words in the windows: in the order ready, copy,
// done, so that in a group every "ready" is signalled before anything waits.
//
//   offers   write the peer's "ready" ......................... wait for "done"
//   puts                        wait for "ready", copy, write the peer's "done"
//
// A rank may signal "ready" for what it receives as soon as the run begins
// where none of its earlier steps touches that memory: then no put waits for
// the receiver to come to its recv. One word tells a peer so for all of them,
// "early", and each stream that puts there waits for it once.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "codegen/emit.h"
#include "runtime/cuda/transfers/batch.h"

// A kernel takes for each of them a place and a word, and for all of them the
// own place, where to read, what to write into the words and a counter.
#define PUSH_PEERS ((HD_KERNEL_POINTERS - 4) / 2)

// Until what is put may be put.
static hd_status await_ready(hd_words *words, const hd_rendezvous *rendezvous)
{
    bool *heard =
        &words->device->peers->peer[rendezvous->peer].heard[words->stream];

    if (!hd_cuda_slot_of(words->device, rendezvous)->early)
        return hd_cuda_await_word(words, rendezvous, HD_CUDA_READY);
    if (*heard)
        return HD_OK;
    *heard = true;
    return hd_cuda_await_word(words, rendezvous, HD_CUDA_EARLY);
}

// ----------------------------------------------------------- transfers

static hd_status note_rendezvous(hd_device *device, const hd_step *step,
                                 const hd_rendezvous *rendezvous, hd_diag *diag,
                                 void *context)
{
    const hd_cuda_slot *theirs = hd_cuda_slot_of(device, rendezvous);
    hd_transfers *batch = context;

    HD_TRY(hd_rendezvous_compare(
        device->rank, step, rendezvous, &theirs->offer,
        hd_cuda_there_room(&device->peers->peer[rendezvous->peer],
                           theirs->offer.offset),
        diag));
    if (!hd_cuda_grow((void **)&batch->part, batch->n, &batch->room,
                      sizeof *batch->part))
        return hd_cuda_no_room(device, diag);
    batch->part[batch->n++] = (hd_batch_part){step, *rendezvous};
    return HD_OK;
}

// Bytes that this rank's memory sends, whoever moves them.
static void count_bytes(hd_cuda_plan *plan, const hd_transfers *batch)
{
    for (int i = 0; i < batch->n; i++) {
        const hd_batch_part *part = &batch->part[i];
        const hd_op *op = part->step->op;
        bool read = hd_op_touched(op) >= op->noutputs;

        if (part->rendezvous.side == HD_SIDE_PUT)
            plan->sending += part->rendezvous.bytes;
        else if (part->rendezvous.side == HD_SIDE_OFFER && read)
            plan->sending += hd_cuda_reads(plan->device, part);
    }
}

static bool is_pushed(const hd_words *words)
{
    return hd_cuda_transport_of(words->device, words->step)->kernels;
}

// What a kernel on few SMs copies, and the words that it writes thereafter.
typedef struct push {
    hd_cuda_at from;
    uint64_t bytes;
    hd_cuda_at to[HD_KERNEL_POINTERS];
    hd_cuda_at word[HD_KERNEL_POINTERS];
    int copies, words;
} push;

static hd_status add_push(hd_words *words, const push *p)
{
    hd_cuda_at at[HD_KERNEL_POINTERS];
    int n = 0;
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (p->bytes == 0) {
        for (int i = 0; i < p->words; i++)
            HD_TRY(
                hd_cuda_add_word(words, HD_CU_OP_WRITE_32, p->word[i].offset));
        return HD_OK;
    }
    HD_TRY(hd_emit_spread(p->copies, p->words, words->device->captures != NULL,
                          hd_length_of_part(words->step, (int64_t)p->bytes),
                          words->diag, &text, &grid));
    for (int i = 0; i < p->copies; i++)
        at[n++] = p->to[i];
    at[n++] = p->from;
    for (int i = 0; i < p->words; i++)
        at[n++] = p->word[i];
    at[n++] = hd_cuda_number_at(words->device);
    // Kernels of one stream follow each other: one counter does for all.
    at[n++] = hd_cuda_need(words->plan, words->stream, HD_CUDA_COUNTER,
                           sizeof(uint32_t));
    return hd_cuda_add_kernel(words->plan, words->stream, words->step, &text,
                              grid, at, n, words->diag);
}

// Whether a kernel, which can read counts, moves the step by them. Of what a
// run says the length of, all the room is moved.
static bool moves_rows(const hd_words *words, const hd_step *step)
{
    return hd_op_counted(step->op) >= 0 &&
           hd_cuda_transport_of(words->device, step)->kernels &&
           !hd_length_of_part(step, 0).sized;
}

// The rows of what goes to `rank`, who is told by `word` if there is one.
static hd_status add_rows(hd_words *words, const hd_step *step, int rank,
                          hd_cuda_at to, hd_cuda_at from,
                          const hd_cuda_at *word)
{
    hd_device *device = words->device;
    int view = hd_op_counted(step->op), n = 0;
    hd_rows rows =
        hd_rows_of(step, hd_rows_piece(device->binding.module, step->op, rank));
    hd_location counts = {rows.counts->buffer->id,
                          (size_t)hd_rows_count(&rows, 0) * sizeof(int32_t)};
    hd_cuda_at at[1 + HD_ROWS_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    at[n++] = to;
    at[n++] = from;
    if (word != NULL)
        at[n++] = *word;
    at[n++] = hd_cuda_number_at(device);
    at[n++] = hd_cuda_need(words->plan, words->stream, HD_CUDA_COUNTER,
                           sizeof(uint32_t));
    at[n++] = hd_cuda_at_place(counts);
    at[n++] = hd_cuda_need(words->plan, words->stream, HD_CUDA_MISCOUNT,
                           sizeof(hd_kernel_miscount));
    at[n++] = (hd_cuda_at){-1, (uint64_t)step->index};
    at[n++] = (hd_cuda_at){-1, (uint64_t)hd_rows_number(&rows, 0)};
    HD_TRY(hd_emit_rows(&rows, step->span[view].buffer->type.dtype,
                        word != NULL, device->captures != NULL, &text, &grid));
    return hd_cuda_add_kernel(words->plan, words->stream, step, &text, grid, at,
                              n, words->diag);
}

// Where one piece goes to all peers, one kernel feeds all links at once, and
// the own result too.
static bool spreads(const hd_device *device, const hd_step *step)
{
    return (step->op->code == HD_OP_ALL_GATHER ||
            step->op->code == HD_OP_BROADCAST) &&
           hd_cuda_transport_of(device, step)->kernels;
}

static bool has_peers(const hd_device *device, const hd_step *step)
{
    return step->op->axis >= 0 &&
           device->binding.module->axis[step->op->axis].size > 1;
}

// All puts of the step, which begin at rendezvous `first`.
static hd_status spread(hd_words *words, const hd_transfers *batch, int first)
{
    const hd_rendezvous *piece = &batch->part[first].rendezvous;
    push p = {.from = hd_cuda_at_place(piece->place), .bytes = piece->bytes};
    hd_piece own, from;

    for (int i = first; i < batch->n && batch->part[i].step == words->step;
         i++) {
        const hd_rendezvous *rendezvous = &batch->part[i].rendezvous;

        if (rendezvous->side != HD_SIDE_PUT)
            continue;
        if (p.words == PUSH_PEERS)
            return hd_fail(words->diag, HD_ERROR_UNSUPPORTED,
                           "a kernel that puts to more than %d ranks",
                           PUSH_PEERS);
        HD_TRY(await_ready(words, rendezvous));
        p.to[p.copies++] = hd_cuda_remote(words->device, rendezvous);
        p.word[p.words++] = hd_cuda_their_word(words, rendezvous, HD_CUDA_DONE);
    }
    if (hd_rendezvous_own(&words->device->binding, words->step, &own, &from))
        p.to[p.copies++] = hd_cuda_at_place(own.place);
    return add_push(words, &p);
}

static hd_status move(hd_words *words, const hd_rendezvous *rendezvous)
{
    hd_cuda_at here = hd_cuda_at_place(rendezvous->place);
    hd_cuda_at there = hd_cuda_remote(words->device, rendezvous);
    bool put = rendezvous->side == HD_SIDE_PUT;
    hd_cuda_at to = put ? there : here, from = put ? here : there;

    hd_cuda_at done = hd_cuda_their_word(words, rendezvous, HD_CUDA_DONE);

    HD_TRY(await_ready(words, rendezvous));
    if (put && moves_rows(words, words->step))
        return add_rows(words, words->step, rendezvous->peer, to, from, &done);
    if (is_pushed(words)) {
        push p = {.from = from,
                  .bytes = rendezvous->bytes,
                  .to = {to},
                  .word = {done},
                  .copies = 1,
                  .words = 1};

        return add_push(words, &p);
    }
    HD_TRY(hd_cuda_add_copy(words->plan, words->stream, words->step, to, from,
                            rendezvous->bytes, words->diag));
    return hd_cuda_signal(words, rendezvous, HD_CUDA_DONE);
}

static hd_status plan_moves(hd_words *words, hd_transfers *batch)
{
    const hd_step *reduced = NULL, *spread_out = NULL;

    for (int i = 0; i < batch->n; i++) {
        const hd_rendezvous *rendezvous = &batch->part[i].rendezvous;

        words->step = batch->part[i].step;
        if (rendezvous->side == HD_SIDE_PUT &&
            spreads(words->device, words->step)) {
            if (spread_out != words->step)
                HD_TRY(spread(words, batch, i));
            spread_out = words->step;
        } else if (rendezvous->side == HD_SIDE_PUT ||
                   rendezvous->side == HD_SIDE_PULL) {
            HD_TRY(move(words, rendezvous));
        }
        if (rendezvous->side == HD_SIDE_READ && reduced != words->step) {
            reduced = words->step;
            HD_TRY(hd_cuda_reduce(words, batch, i));
        }
    }
    return HD_OK;
}

static hd_status land(hd_cuda_plan *plan, int stream, const hd_transfers *batch,
                      hd_diag *diag)
{
    for (int i = 0; i < batch->nlandings; i++)
        HD_TRY(hd_cuda_add_copy(plan, stream, batch->landing[i].step,
                                batch->landing[i].to, batch->landing[i].from,
                                batch->landing[i].bytes, diag));
    return HD_OK;
}

static hd_status signal_all(hd_words *words, const hd_transfers *batch,
                            hd_side side, int which)
{
    for (int i = 0; i < batch->n; i++) {
        words->step = batch->part[i].step;
        if (batch->part[i].rendezvous.side == side)
            HD_TRY(hd_cuda_signal(words, &batch->part[i].rendezvous, which));
    }
    return HD_OK;
}

// What was not signalled when the run began.
static hd_status signal_ready(hd_words *words, const hd_transfers *batch)
{
    for (int i = 0; i < batch->n; i++) {
        words->step = batch->part[i].step;
        if (batch->part[i].rendezvous.side == HD_SIDE_OFFER &&
            !words->device->peers->early[words->step->index])
            HD_TRY(hd_cuda_signal(words, &batch->part[i].rendezvous,
                                  HD_CUDA_READY));
    }
    return HD_OK;
}

static hd_status await_all(hd_words *words, const hd_transfers *batch)
{
    for (int i = 0; i < batch->n; i++) {
        words->step = batch->part[i].step;
        if (batch->part[i].rendezvous.side == HD_SIDE_OFFER)
            HD_TRY(hd_cuda_await_word(words, &batch->part[i].rendezvous,
                                      HD_CUDA_DONE));
    }
    return HD_OK;
}

// Those of `n` steps that are deferred, or those that are not.
static hd_status meet(hd_device *device, const hd_step *steps, int n,
                      bool deferred, hd_diag *diag, hd_transfers *batch)
{
    for (int i = 0; i < n; i++) {
        if (hd_step_defers(&steps[i]) == deferred &&
            hd_cuda_transport_of(device, &steps[i])->windows)
            HD_TRY(hd_rendezvous_each(device, &device->binding, &steps[i], diag,
                                      note_rendezvous, batch));
    }
    return HD_OK;
}

// ------------------------------------------------------- early "ready"

static bool touches(const hd_step *step, const hd_span *span)
{
    for (int i = 0; i < step->op->nviews; i++)
        if (hd_span_overlaps(&step->span[i], span))
            return true;
    return false;
}

// Whether what the step receives may be written from the start of the run on.
static bool is_early(const hd_device *device, const hd_step *step)
{
    const hd_root *buffer = &device->buffer[step->span[0].buffer->id];

    switch (hd_op_move(step->op)) {
    case HD_MOVE_RECV:
        if (hd_op_key(step->op, HD_KEY_GET) != NULL)
            return false;
        break;
    case HD_MOVE_BROADCAST:
        if (step->peer == device->rank)
            return false;
        break;
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_ALL_TO_ALL:
        break;
    case HD_MOVE_NONE:
    case HD_MOVE_SEND:
    case HD_MOVE_REDUCE_SCATTER:
    case HD_MOVE_ALL_REDUCE:
    case HD_MOVE_REDUCE:
        return false;
    }
    // What is staged in is written when the run begins.
    if (hd_cuda_is_staged_in(buffer))
        return false;
    for (int64_t i = 0; i < step->index; i++) {
        if (touches(&device->binding.steps->step[i], &step->span[0]))
            return false;
    }
    return true;
}

void hd_cuda_find_early(hd_device *device)
{
    const hd_steps *steps = device->binding.steps;

    for (int64_t i = 0; i < steps->nsteps && steps->nsteps <= HD_CUDA_COMPARED;
         i++)
        device->peers->early[i] =
            hd_op_is(steps->step[i].op, HD_UNIT_TRANSFER) &&
            hd_cuda_transport_of(device, &steps->step[i])->windows &&
            is_early(device, &steps->step[i]);
}

// The first of what the peer puts early says so for all.
static hd_status signal_early(hd_device *device, const hd_step *step,
                              const hd_rendezvous *rendezvous, hd_diag *diag,
                              void *context)
{
    hd_cuda_peer *peer = &device->peers->peer[rendezvous->peer];

    (void)step;
    (void)diag;
    if (rendezvous->side != HD_SIDE_OFFER || peer->told)
        return HD_OK;
    peer->told = true;
    return hd_cuda_signal(context, rendezvous, HD_CUDA_EARLY);
}

void hd_cuda_hear_anew(hd_device *device)
{
    for (int i = 0; i < device->size; i++) {
        hd_cuda_peer *peer = &device->peers->peer[i];

        peer->told = false;
        memset(peer->heard, 0, sizeof peer->heard);
    }
}

hd_status hd_cuda_signal_early(hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;
    const hd_steps *steps = plan->steps;
    hd_words words = {plan, device, NULL, 0, plan->ncommands, diag};

    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (device->peers->early[i])
            HD_TRY(hd_rendezvous_each(device, &device->binding, &steps->step[i],
                                      diag, signal_early, &words));
    }
    return HD_OK;
}

// What a collective does with this rank's own piece, where nothing else does
// it. A reduction over one rank is a copy.
static hd_status copy_own(hd_words *words, const hd_step *step)
{
    hd_device *device = words->device;
    bool alone = !has_peers(device, step);
    bool own = false;
    hd_piece to, from;

    if (alone && hd_step_reduces(step)) {
        to = hd_piece_of(&step->span[0], -1);
        from = hd_piece_of(&step->span[1], -1);
        own = !hd_pieces_overlap(to, from);
    } else if (alone || !spreads(device, step)) {
        own = hd_rendezvous_own(&device->binding, step, &to, &from);
    }
    if (!own)
        return HD_OK;
    if (moves_rows(words, step))
        return add_rows(words, step, device->rank, hd_cuda_at_place(to.place),
                        hd_cuda_at_place(from.place), NULL);
    return hd_cuda_add_copy(
        words->plan, words->stream, step, hd_cuda_at_place(to.place),
        hd_cuda_at_place(from.place), to.bytes, words->diag);
}

static hd_status plan_batch(hd_cuda_plan *plan, const hd_step *steps, int n,
                            int stream, bool deferred, hd_transfers *batch,
                            hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_words words = {plan, device, steps, stream, plan->ncommands, diag};

    HD_TRY(meet(device, steps, n, deferred, diag, batch));
    count_bytes(plan, batch);
    batch->meets = hd_cuda_meets(device, batch);
    if (!batch->meets)
        HD_TRY(signal_ready(&words, batch));
    for (int i = 0; i < n; i++) {
        if (hd_step_defers(&steps[i]) == deferred &&
            hd_cuda_transport_of(device, &steps[i])->windows)
            HD_TRY(copy_own(&words, &steps[i]));
    }
    HD_TRY(plan_moves(&words, batch));
    if (!batch->meets) {
        HD_TRY(signal_all(&words, batch, HD_SIDE_READ, HD_CUDA_DONE));
        HD_TRY(await_all(&words, batch));
    }
    HD_TRY(hd_cuda_fetch_shares(&words, batch));
    return land(plan, stream, batch, diag);
}

hd_status hd_cuda_plan_batch(hd_cuda_plan *plan, const hd_step *steps, int n,
                             int stream, bool deferred, hd_diag *diag)
{
    hd_transfers batch = {0};
    hd_status status =
        plan_batch(plan, steps, n, stream, deferred, &batch, diag);

    free(batch.part);
    free(batch.landing);
    return status;
}
