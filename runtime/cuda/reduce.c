// Reductions: a kernel reads the operands of all ranks where they lie, in the
// order of ranks, so that every rank adds alike.
//
// Of a large all_reduce each rank reduces a share, into its window, and fetches
// the others from there: over the links go 2 (n-1)/n of an operand in place of
// n-1, for as many more copies. A rank signals "done" when it has read the
// peers' operands and its share is there, "fetched" when it has theirs.
#include "base/diag.h"
#include "runtime/cuda/batch.h"

#define SHARE_ALIGNMENT 16
// Bytes that need not come over a rank's links for shares to be worth it.
#define SHARES_SAVE ((uint64_t)8 << 20)
// Bytes over a rank's links up to which a reduction meets the peers by itself.
#define ONESHOT_MOST ((uint64_t)32 << 20)

// A range of the result, in bytes.
typedef struct share {
    uint64_t offset, bytes;
} share;

static int ranks_of(const hd_device *device, const hd_step *step)
{
    return step->op->axis >= 0
               ? (int)device->binding.module->axis[step->op->axis].size
               : 1;
}

// n - 1 operands come in, or 2 (n - 1) shares of one.
static bool is_shared(const hd_device *device, const hd_step *step)
{
    uint64_t n = (uint64_t)ranks_of(device, step);
    uint64_t bytes;

    if (step->op->code != HD_OP_ALL_REDUCE || n < 3 ||
        !hd_cuda_transport_of(device, step)->windows)
        return false;
    bytes = hd_piece_of(&step->span[0], -1).bytes;
    return (n - 1) * (n - 2) * (bytes / n) >= SHARES_SAVE;
}

// The last ranks may have none.
static share share_of(const hd_device *device, const hd_step *step,
                      int64_t rank)
{
    uint64_t all = hd_piece_of(&step->span[0], -1).bytes;
    uint64_t n = (uint64_t)ranks_of(device, step);
    uint64_t most = ((all + n - 1) / n + SHARE_ALIGNMENT - 1) /
                    SHARE_ALIGNMENT * SHARE_ALIGNMENT;
    uint64_t offset = (uint64_t)rank * most;

    if (offset >= all)
        return (share){all, 0};
    return (share){offset, most < all - offset ? most : all - offset};
}

static int64_t coordinate(const hd_device *device, const hd_step *step,
                          int rank)
{
    return hd_mesh_coord(device->binding.module, rank, step->op->axis);
}

uint64_t hd_cuda_share_bytes(const hd_device *device, const hd_step *step)
{
    if (!is_shared(device, step))
        return 0;
    return share_of(device, step, coordinate(device, step, device->rank)).bytes;
}

uint64_t hd_cuda_reads(const hd_device *device, const hd_batch_part *part)
{
    const hd_step *step = part->step;

    if (!is_shared(device, step))
        return part->rendezvous.bytes;
    return share_of(device, step,
                    coordinate(device, step, part->rendezvous.peer))
               .bytes +
           hd_cuda_share_bytes(device, step);
}

static hd_cuda_at plus(hd_cuda_at at, uint64_t offset)
{
    return (hd_cuda_at){at.buffer, at.offset + offset};
}

static hd_cuda_at own_share(const hd_device *device, const hd_step *step)
{
    return (hd_cuda_at){-1, device->peers->window +
                                device->peers->share[step->index]};
}

// Where the result is put: one that lies over this rank's own operand goes
// through memory of its own where peers read that, as of a reduce's root they
// do not.
static hd_status place_result(hd_words *words, hd_batch *batch, hd_piece out,
                              hd_cuda_at *at)
{
    *at = hd_cuda_at_place(out.place);
    if (is_shared(words->device, words->step)) {
        *at = own_share(words->device, words->step);
        return HD_OK;
    }
    if (hd_op_is_rooted(words->step->op) ||
        !hd_pieces_overlap(out, hd_piece_of(&words->step->span[1], -1)))
        return HD_OK;
    *at =
        hd_cuda_need(words->device, words->stream, HD_CUDA_SCRATCH, out.bytes);
    return hd_cuda_land(words, batch, hd_cuda_at_place(out.place), *at,
                        out.bytes);
}

// The part of each operand that this rank reduces.
static share reduced(const hd_device *device, const hd_step *step)
{
    return is_shared(device, step)
               ? share_of(device, step, coordinate(device, step, device->rank))
               : (share){0, hd_piece_of(&step->span[0], -1).bytes};
}

int hd_cuda_find_reducing(const hd_device *device)
{
    const hd_steps *steps = device->binding.steps;
    int stream = -1;

    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];

        if (!hd_op_is(step->op, HD_UNIT_TRANSFER) || !hd_step_reduces(step))
            continue;
        if (stream >= 0 && stream != step->stream)
            return -1;
        stream = step->stream;
    }
    return stream;
}

// All of the batch is one reduction.
bool hd_cuda_is_oneshot(const hd_device *device, const hd_batch *batch)
{
    const hd_step *step = batch->n > 0 ? batch->part[0].step : NULL;
    int n;

    if (step == NULL || batch->part[batch->n - 1].step != step ||
        !hd_step_reduces(step) || hd_op_is_rooted(step->op) ||
        is_shared(device, step) || device->peers->reducing != step->stream)
        return false;
    n = ranks_of(device, step);
    return n > 1 && hd_oneshot_pointers(n) <= HD_KERNEL_POINTERS &&
           (uint64_t)(n - 1) * hd_piece_of(&step->span[0], -1).bytes <=
               ONESHOT_MOST;
}

// The words that belong to one side of the batch become the kernel's, in the
// groups that it takes: what it tells the peers, and what it awaits of them.
static hd_status give_words(hd_words *words, const hd_batch *batch,
                            hd_side side, int tells, int awaits,
                            hd_cuda_at *told, hd_cuda_at *awaited)
{
    int n = 0;

    for (int i = 0; i < batch->n; i++) {
        const hd_rendezvous *rendezvous = &batch->part[i].rendezvous;

        if (rendezvous->side != side)
            continue;
        told[n] = hd_cuda_their_word(words, rendezvous, tells);
        HD_TRY(hd_cuda_note_wait(words, rendezvous, awaits, &awaited[n++]));
    }
    return HD_OK;
}

static hd_status add_oneshot(hd_words *words, const hd_batch *batch,
                             hd_cuda_at *at)
{
    hd_device *device = words->device;
    const hd_step *step = words->step;
    hd_dtype dtype = step->span[0].buffer->type.dtype;
    int n = ranks_of(device, step), pointers = hd_oneshot_pointers(n);
    uint64_t bytes = hd_piece_of(&step->span[0], -1).bytes;
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    // Waits are noted in their order: the first that nothing answers is blamed.
    HD_TRY(give_words(words, batch, HD_SIDE_READ, HD_CUDA_DONE, HD_CUDA_READY,
                      &at[3 * n - 1], &at[2 * n]));
    HD_TRY(give_words(words, batch, HD_SIDE_OFFER, HD_CUDA_READY, HD_CUDA_DONE,
                      &at[1 + n], &at[4 * n - 2]));
    at[pointers - 2] = (hd_cuda_at){HD_CUDA_WORD_VALUE, 0};
    at[pointers - 1] =
        hd_cuda_need(device, words->stream, HD_CUDA_COUNTER, sizeof(uint32_t));
    HD_TRY(hd_emit_oneshot(dtype, hd_op_fold(step->op), n,
                           device->binding.graph ? HD_CUDA_TURNS : 1,
                           (int64_t)(bytes / hd_dtype_size(dtype)), words->diag,
                           &text, &grid));
    HD_TRY(hd_cuda_add_kernel(device, words->stream, step, &text, grid, at,
                              pointers, words->diag));
    device->plan->command[device->plan->ncommands - 1].meets = true;
    return HD_OK;
}

hd_status hd_cuda_reduce(hd_words *words, hd_batch *batch, int first)
{
    hd_device *device = words->device;
    const hd_step *step = words->step;
    int n = ranks_of(device, step);
    int64_t me = coordinate(device, step, device->rank);
    bool scatter = step->op->code == HD_OP_REDUCE_SCATTER;
    share part = reduced(device, step);
    hd_dtype dtype = step->span[0].buffer->type.dtype;
    hd_cuda_at at[HD_KERNEL_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (n + 1 > HD_KERNEL_POINTERS)
        return hd_fail(words->diag, HD_UNSUPPORTED,
                       "a reduction over %d ranks by copies; at most %d", n,
                       HD_KERNEL_POINTERS - 1);
    HD_TRY(place_result(words, batch, hd_piece_of(&step->span[0], -1), &at[0]));
    at[1 + me] = plus(
        hd_cuda_at_place(hd_piece_of(&step->span[1], scatter ? me : -1).place),
        part.offset);
    for (int i = first; i < batch->n && batch->part[i].step == step; i++) {
        const hd_rendezvous *rendezvous = &batch->part[i].rendezvous;

        if (rendezvous->side != HD_SIDE_READ)
            continue;
        if (!batch->oneshot)
            HD_TRY(hd_cuda_await_word(words, rendezvous, HD_CUDA_READY));
        at[1 + coordinate(device, step, rendezvous->peer)] =
            plus(hd_cuda_remote(device, rendezvous), part.offset);
    }
    if (batch->oneshot)
        return add_oneshot(words, batch, at);
    if (part.bytes == 0)
        return HD_OK;
    HD_TRY(hd_emit_reduce(dtype, hd_op_fold(step->op), n,
                          (int64_t)(part.bytes / hd_dtype_size(dtype)),
                          words->diag, &text, &grid));
    return hd_cuda_add_kernel(device, words->stream, step, &text, grid, at,
                              n + 1, words->diag);
}

// From a peer's window into the result.
static hd_status fetch(hd_words *words, const hd_rendezvous *rendezvous)
{
    hd_device *device = words->device;
    const hd_step *step = words->step;
    const hd_cuda_peer *peer = &device->peers->peer[rendezvous->peer];
    uint64_t at = hd_cuda_slot_of(device, rendezvous)->share;
    share share =
        share_of(device, step, coordinate(device, step, rendezvous->peer));

    if (share.bytes > 0 &&
        (at == 0 || at > peer->bytes || share.bytes > peer->bytes - at))
        return hd_fail(words->diag, HD_PEER,
                       "the window of rank %d makes no sense",
                       rendezvous->peer);
    return hd_cuda_add_copy(
        device, words->stream, step,
        plus(hd_cuda_at_place(hd_piece_of(&step->span[0], -1).place),
             share.offset),
        (hd_cuda_at){-1, peer->window + at}, share.bytes, words->diag);
}

static hd_status fetch_own(hd_words *words)
{
    hd_device *device = words->device;
    share share = reduced(device, words->step);

    return hd_cuda_add_copy(
        device, words->stream, words->step,
        plus(hd_cuda_at_place(hd_piece_of(&words->step->span[0], -1).place),
             share.offset),
        own_share(device, words->step), share.bytes, words->diag);
}

enum { FETCH, SAY_FETCHED, HEAR_FETCHED };

// A phase of all reductions in shares.
static hd_status each_shared(hd_words *words, const hd_batch *batch, int phase)
{
    for (int i = 0; i < batch->n; i++) {
        const hd_rendezvous *rendezvous = &batch->part[i].rendezvous;
        bool first = i == 0 || batch->part[i - 1].step != batch->part[i].step;

        words->step = batch->part[i].step;
        if (!is_shared(words->device, words->step))
            continue;
        if (first && phase == FETCH)
            HD_TRY(fetch_own(words));
        if (rendezvous->side == HD_SIDE_READ && phase == FETCH)
            HD_TRY(fetch(words, rendezvous));
        if (rendezvous->side == HD_SIDE_READ && phase == SAY_FETCHED)
            HD_TRY(hd_cuda_signal(words, rendezvous, HD_CUDA_FETCHED));
        if (rendezvous->side == HD_SIDE_OFFER && phase == HEAR_FETCHED)
            HD_TRY(hd_cuda_await_word(words, rendezvous, HD_CUDA_FETCHED));
    }
    return HD_OK;
}

hd_status hd_cuda_fetch_shares(hd_words *words, const hd_batch *batch)
{
    for (int phase = FETCH; phase <= HEAR_FETCHED; phase++)
        HD_TRY(each_shared(words, batch, phase));
    return HD_OK;
}
