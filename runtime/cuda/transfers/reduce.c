// Reductions: a kernel reads the operands of all ranks where they lie, in the
// order of ranks, so that every rank adds alike.
//
// Of a large all_reduce each rank reduces a share, into its window, and fetches
// the others from there: over the links go 2 (n-1)/n of an operand in place of
// n-1, for as many more copies. A rank signals "done" when it has read the
// peers' operands and its share is there, "fetched" when it has theirs.
//
// A small reduction is one kernel that meets the peers by itself: one-shot it
// reads all operands, two-shot the share of them, which it then puts into the
// peers' windows. Two-shot a rank signals "done" when it has put its share too.
// No more is needed. A rank puts into a window when it has heard "ready", which
// its owner tells at the beginning of its next kernel, when the last one, on
// the same stream, has taken what came there: so one place does for all of
// them, whatever their peers. And a rank that has heard "done" of all may
// leave: nobody touches its window any more.
#include "base/diag.h"
#include "ir/transport.h"
#include "runtime/cuda/transfers/batch.h"

#define SHARE_ALIGNMENT 16
// Bytes that need not come over a rank's links for a second half of the kernel
// to be worth it: it takes some 3 us, in which 350 GB/s move as much.
#define TWOSHOT_SAVES ((uint64_t)1 << 20)

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

static uint64_t bytes_of(const hd_step *step)
{
    return hd_piece_of(&step->span[0], -1).bytes;
}

// An all_reduce, n ranks of which take n - 1 operands in, or 2 (n - 1) shares
// of one: how many bytes fewer that is.
static uint64_t saved_by_shares(const hd_device *device, const hd_step *step)
{
    uint64_t n = (uint64_t)ranks_of(device, step);

    return n < 2 ? 0 : (n - 1) * (n - 2) * (bytes_of(step) / n);
}

// What decides it is the same on all ranks of the axis.
static bool may_share(const hd_device *device, const hd_step *step)
{
    return step->op->code == HD_OP_ALL_REDUCE && ranks_of(device, step) > 1 &&
           hd_cuda_transport_of(device, step)->windows;
}

static bool may_twoshot(const hd_device *device, const hd_step *step)
{
    uint64_t n = (uint64_t)ranks_of(device, step);

    return may_share(device, step) && step->group == 0 &&
           device->peers->reducing == step->stream &&
           hd_twoshot_pointers((int)n) <= HD_KERNEL_POINTERS &&
           2 * (n - 1) * (bytes_of(step) / n) <= HD_MEETING_MOST;
}

static bool saves_by_twoshot(const hd_device *device, const hd_step *step)
{
    switch (device->shots) {
    case HD_CUDA_SHOTS_AUTO:
        break;
    case HD_CUDA_SHOTS_ONE:
        return false;
    case HD_CUDA_SHOTS_TWO:
        return true;
    }
    return saved_by_shares(device, step) >= TWOSHOT_SAVES;
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

static bool is_twoshot_at_room(const hd_device *device, const hd_step *whole)
{
    return may_twoshot(device, whole) && saves_by_twoshot(device, whole);
}

// In runs of all sizes its words are told that go with shares.
static bool is_shared_at_room(const hd_device *device, const hd_step *step)
{
    const hd_step *whole = hd_cuda_whole(device, step);

    return may_share(device, whole) && !is_twoshot_at_room(device, whole) &&
           saved_by_shares(device, whole) >= HD_SHARES_SAVE;
}

static bool is_shared(const hd_device *device, const hd_step *step)
{
    return is_shared_at_room(device, step) &&
           (saved_by_shares(device, step) >= HD_SHARES_SAVE ||
            step->group != 0 || device->peers->reducing != step->stream ||
            hd_oneshot_pointers(ranks_of(device, step)) > HD_KERNEL_POINTERS);
}

// Where the greatest size is two-shot, or in shares, there is a place for what
// peers put.
bool hd_cuda_is_twoshot(const hd_device *device, const hd_step *step)
{
    const hd_step *whole = hd_cuda_whole(device, step);

    if (!may_twoshot(device, step) || !saves_by_twoshot(device, step))
        return false;
    return is_twoshot_at_room(device, whole) ||
           (is_shared_at_room(device, step) && !is_shared(device, step) &&
            bytes_of(step) <= share_of(device, whole, 0).bytes);
}

static int64_t coordinate(const hd_device *device, const hd_step *step,
                          int rank)
{
    return hd_mesh_coord(device->binding.module, rank, step->op->axis);
}

uint64_t hd_cuda_share_bytes(const hd_device *device, const hd_step *step)
{
    if (hd_cuda_is_twoshot(device, step))
        return hd_piece_of(&step->span[0], -1).bytes;
    if (!is_shared(device, step))
        return 0;
    return share_of(device, step, 0).bytes; // no rank ever has more
}

uint64_t hd_cuda_reads(const hd_device *device, const hd_batch_part *part)
{
    const hd_step *step = part->step;
    int64_t me = coordinate(device, step, device->rank);
    int64_t peer = coordinate(device, step, part->rendezvous.peer);

    if (!is_shared(device, step) && !hd_cuda_is_twoshot(device, step))
        return part->rendezvous.bytes;
    return share_of(device, step, peer).bytes +
           share_of(device, step, me).bytes;
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

// What a run of less may need that goes by another kernel.
static void need_for_less(hd_words *words, hd_piece out)
{
    hd_device *device = words->device;
    uint64_t most = out.bytes < HD_MEETING_MOST ? out.bytes : HD_MEETING_MOST;

    if (words->plan != device->whole || device->binding.module->nsizes == 0)
        return;
    hd_cuda_need(words->plan, words->stream, HD_CUDA_COUNTER, sizeof(uint32_t));
    if (hd_pieces_overlap(out, hd_piece_of(&words->step->span[1], -1)))
        hd_cuda_need(words->plan, words->stream, HD_CUDA_SCRATCH, most);
}

// Where the result is put: one that lies over this rank's own operand goes
// through memory of its own where peers read that, as of a reduce's root they
// do not, nor, two-shot, what is written before they have told so.
static hd_status place_result(hd_words *words, hd_transfers *batch,
                              hd_piece out, hd_cuda_at *at)
{
    need_for_less(words, out);
    *at = hd_cuda_at_place(out.place);
    if (is_shared(words->device, words->step)) {
        *at = own_share(words->device, words->step);
        return HD_OK;
    }
    if (hd_op_is_rooted(words->step->op) ||
        hd_cuda_is_twoshot(words->device, words->step) ||
        !hd_pieces_overlap(out, hd_piece_of(&words->step->span[1], -1)))
        return HD_OK;
    *at = hd_cuda_need(words->plan, words->stream, HD_CUDA_SCRATCH, out.bytes);
    return hd_cuda_land(words, batch, hd_cuda_at_place(out.place), *at,
                        out.bytes);
}

// The part of each operand that this rank reduces.
static share reduced(const hd_device *device, const hd_step *step)
{
    return is_shared(device, step) || hd_cuda_is_twoshot(device, step)
               ? share_of(device, step, coordinate(device, step, device->rank))
               : (share){0, hd_piece_of(&step->span[0], -1).bytes};
}

// Beside the numbers of streams: found none yet, and one that is not the same
// in every step.
enum { NO_STREAM = HD_CALLER_STREAM - 1, SEVERAL = HD_CALLER_STREAM - 2 };

// A loop over one stream says `j mod 1`.
static int stream_of(const hd_module *module, hd_expr expr)
{
    const hd_expr_node *node = hd_expr_get(module, expr);

    if (hd_expr_is_const(module, expr))
        return (int)hd_expr_value(module, expr);
    return node->kind == HD_EXPR_MOD && hd_expr_is_const(module, node->b) &&
                   hd_expr_value(module, node->b) == 1
               ? 0
               : SEVERAL;
}

static void find_in(const hd_module *module, const hd_block *block, int stream,
                    int *found)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        int inside = stream;

        if (s->kind == HD_STMT_OP) {
            if (hd_op_is(s->op, HD_UNIT_TRANSFER) &&
                hd_op_fold(s->op) != HD_FOLD_NONE)
                *found =
                    *found == NO_STREAM || *found == stream ? stream : SEVERAL;
            continue;
        }
        if (s->kind == HD_STMT_ON)
            inside = stream_of(module, s->a);
        find_in(module, &s->body, inside, found);
        find_in(module, &s->otherwise, inside, found);
    }
}

// The text decides: what a rank does on other axes is its own.
int hd_cuda_find_reducing(const hd_device *device)
{
    const hd_module *module = device->binding.module;
    int found = NO_STREAM;

    find_in(module, &module->body, HD_CALLER_STREAM, &found);
    return found;
}

// All of the batch is one reduction.
bool hd_cuda_meets(const hd_device *device, const hd_transfers *batch)
{
    const hd_step *step = batch->n > 0 ? batch->part[0].step : NULL;
    int n;

    if (step == NULL || batch->part[batch->n - 1].step != step ||
        !hd_step_reduces(step) || hd_op_is_rooted(step->op) ||
        is_shared(device, step) || device->peers->reducing != step->stream)
        return false;
    n = ranks_of(device, step);
    return hd_cuda_is_twoshot(device, step) ||
           (n > 1 && hd_oneshot_pointers(n) <= HD_KERNEL_POINTERS &&
            (uint64_t)(n - 1) * bytes_of(step) <= HD_MEETING_MOST);
}

// The words that belong to one side of the batch become the kernel's, in the
// groups that it takes: what it tells the peers, and what it awaits of them.
static hd_status give_words(hd_words *words, const hd_transfers *batch,
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

// Where in the peer's window `bytes` of the step's shares are.
static hd_status find_their_share(const hd_words *words,
                                  const hd_rendezvous *rendezvous,
                                  uint64_t bytes, hd_cuda_at *out)
{
    const hd_cuda_peer *peer = &words->device->peers->peer[rendezvous->peer];
    uint64_t at = hd_cuda_slot_of(words->device, rendezvous)->share;

    if (bytes > 0 && (at == 0 || at > peer->bytes || bytes > peer->bytes - at))
        return hd_fail(words->diag, HD_ERROR_PEER,
                       "the window of rank %d makes no sense: its HEDDLE_SHOTS "
                       "is another one, or its program",
                       rendezvous->peer);
    *out = (hd_cuda_at){-1, peer->window + at};
    return HD_OK;
}

// Where the shares of all ranks are put: here, and by this rank.
static hd_status place_shares(const hd_words *words, const hd_transfers *batch,
                              uint64_t offset, hd_cuda_at *at)
{
    uint64_t bytes = hd_cuda_share_bytes(words->device, words->step);

    *at++ = own_share(words->device, words->step);
    for (int i = 0; i < batch->n; i++) {
        const hd_rendezvous *rendezvous = &batch->part[i].rendezvous;

        if (rendezvous->side != HD_SIDE_READ)
            continue;
        HD_TRY(find_their_share(words, rendezvous, bytes, at));
        *at = plus(*at, offset);
        at++;
    }
    return HD_OK;
}

static hd_status add_meeting(hd_words *words, const hd_transfers *batch, int n,
                             bool twice, hd_cuda_at *at)
{
    hd_device *device = words->device;
    const hd_step *step = words->step;
    hd_dtype dtype = step->span[0].buffer->type.dtype;
    uint64_t size = hd_dtype_size(dtype);
    int64_t elements = hd_span_elements(&step->span[0]);
    int64_t share = (int64_t)(share_of(device, step, 0).bytes / size);
    uint64_t offset = reduced(device, step).offset;
    int turns = device->captures != NULL ? HD_TURNS_OF_TALLY
                : device->binding.graph  ? HD_CUDA_TURNS
                                         : 1;
    int word = twice ? 1 + 2 * n : 1 + n, last = word + 4 * (n - 1);
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (twice)
        HD_TRY(place_shares(words, batch, offset, &at[1 + n]));
    // Waits are noted in their order: the first that nothing answers is blamed.
    HD_TRY(give_words(words, batch, HD_SIDE_READ, HD_CUDA_DONE, HD_CUDA_READY,
                      &at[word + 2 * (n - 1)], &at[word + n - 1]));
    HD_TRY(give_words(words, batch, HD_SIDE_OFFER, HD_CUDA_READY, HD_CUDA_DONE,
                      &at[word], &at[word + 3 * (n - 1)]));
    at[last] = hd_cuda_number_at(device);
    at[last + 1] = hd_cuda_need(words->plan, words->stream, HD_CUDA_COUNTER,
                                sizeof(uint32_t));
    at[last + 2] = (hd_cuda_at){-1, offset / size}; // two-shot alone
    HD_TRY(twice ? hd_emit_twoshot(dtype, hd_op_fold(step->op), n, turns,
                                   hd_length_of_part(step, elements),
                                   hd_length_of_part(step, share), words->diag,
                                   &text, &grid)
                 : hd_emit_oneshot(dtype, hd_op_fold(step->op), n, turns,
                                   hd_length_of_part(step, elements),
                                   words->diag, &text, &grid));
    HD_TRY(hd_cuda_add_kernel(words->plan, words->stream, step, &text, grid, at,
                              grid.pointers, words->diag));
    words->plan->command[words->plan->ncommands - 1].meets = true;
    return HD_OK;
}

hd_status hd_cuda_reduce(hd_words *words, hd_transfers *batch, int first)
{
    hd_device *device = words->device;
    const hd_step *step = words->step;
    int n = ranks_of(device, step);
    int64_t me = coordinate(device, step, device->rank);
    bool scatter = step->op->code == HD_OP_REDUCE_SCATTER;
    share part = reduced(device, step);
    hd_dtype dtype = step->span[0].buffer->type.dtype;
    int64_t elements = (int64_t)(part.bytes / hd_dtype_size(dtype));
    hd_cuda_at at[HD_KERNEL_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (n + 1 > HD_KERNEL_POINTERS)
        return hd_fail(words->diag, HD_ERROR_UNSUPPORTED,
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
        if (!batch->meets)
            HD_TRY(hd_cuda_await_word(words, rendezvous, HD_CUDA_READY));
        at[1 + coordinate(device, step, rendezvous->peer)] =
            plus(hd_cuda_remote(device, rendezvous), part.offset);
    }
    if (batch->meets)
        return add_meeting(words, batch, n, hd_cuda_is_twoshot(device, step),
                           at);
    if (part.bytes == 0)
        return HD_OK;
    HD_TRY(hd_emit_reduce(dtype, hd_op_fold(step->op), n,
                          hd_length_of_part(step, elements), words->diag, &text,
                          &grid));
    return hd_cuda_add_kernel(words->plan, words->stream, step, &text, grid, at,
                              n + 1, words->diag);
}

// From a peer's window into the result.
static hd_status fetch(hd_words *words, const hd_rendezvous *rendezvous)
{
    hd_device *device = words->device;
    const hd_step *step = words->step;
    share share =
        share_of(device, step, coordinate(device, step, rendezvous->peer));
    hd_cuda_at from;

    HD_TRY(find_their_share(words, rendezvous, share.bytes, &from));
    return hd_cuda_add_copy(
        words->plan, words->stream, step,
        plus(hd_cuda_at_place(hd_piece_of(&step->span[0], -1).place),
             share.offset),
        from, share.bytes, words->diag);
}

static hd_status fetch_own(hd_words *words)
{
    hd_device *device = words->device;
    share share = reduced(device, words->step);

    return hd_cuda_add_copy(
        words->plan, words->stream, words->step,
        plus(hd_cuda_at_place(hd_piece_of(&words->step->span[0], -1).place),
             share.offset),
        own_share(device, words->step), share.bytes, words->diag);
}

enum { FETCH, SAY_FETCHED, HEAR_FETCHED };

// A phase of all reductions in shares.
static hd_status each_shared(hd_words *words, const hd_transfers *batch,
                             int phase)
{
    for (int i = 0; i < batch->n; i++) {
        const hd_rendezvous *rendezvous = &batch->part[i].rendezvous;
        bool first = i == 0 || batch->part[i - 1].step != batch->part[i].step;
        bool shared;

        words->step = batch->part[i].step;
        if (!is_shared_at_room(words->device, words->step))
            continue;
        shared = is_shared(words->device, words->step);
        if (first && phase == FETCH && shared)
            HD_TRY(fetch_own(words));
        if (rendezvous->side == HD_SIDE_READ && phase == FETCH && shared)
            HD_TRY(fetch(words, rendezvous));
        if (rendezvous->side == HD_SIDE_READ && phase == SAY_FETCHED)
            HD_TRY(hd_cuda_signal(words, rendezvous, HD_CUDA_FETCHED));
        if (rendezvous->side == HD_SIDE_OFFER && phase == HEAR_FETCHED)
            HD_TRY(hd_cuda_await_word(words, rendezvous, HD_CUDA_FETCHED));
    }
    return HD_OK;
}

hd_status hd_cuda_fetch_shares(hd_words *words, const hd_transfers *batch)
{
    for (int phase = FETCH; phase <= HEAR_FETCHED; phase++)
        HD_TRY(each_shared(words, batch, phase));
    return HD_OK;
}
