// How collectives are made of one-sided copies:
//
//   all_gather, all_to_all, broadcast   each rank puts its pieces into the
//                                       results of its peers
//   reduce_scatter, all_reduce, reduce  each rank that gets a result reads its
//                                       peers' operands
#include "runtime/rendezvous.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/diag.h"
#include "runtime/ranks/group.h"

hd_piece hd_piece_of(const hd_span *span, int64_t i)
{
    size_t size = hd_dtype_size(span->buffer->type.dtype);
    int64_t offset = span->offset;
    int64_t elements = 1;

    if (i >= 0)
        offset += i * span->stride[0];
    for (int d = i >= 0 ? 1 : 0; d < span->ndims; d++)
        elements *= span->extent[d];
    return (hd_piece){
        .place = {.buffer = span->buffer->id, .offset = (size_t)offset * size},
        .bytes = (size_t)elements * size};
}

bool hd_pieces_overlap(hd_piece a, hd_piece b)
{
    return a.place.buffer == b.place.buffer &&
           a.place.offset < b.place.offset + b.bytes &&
           b.place.offset < a.place.offset + a.bytes;
}

// What both sides of a slot must agree on beyond the number of bytes.
static uint64_t kind_of(const hd_step *step, hd_opcode code)
{
    uint64_t kind = (uint64_t)code + 1;

    if (hd_op_key(step->op, HD_KEY_GET) != NULL)
        kind |= 1 << 8;
    kind |= (uint64_t)hd_op_fold(step->op) << 9;
    kind |= (uint64_t)step->span[0].buffer->type.dtype << 16;
    if (hd_op_is_rooted(step->op))
        kind |= (uint64_t)step->peer << 32;
    return kind;
}

// The callee, and what does not change from rendezvous to rendezvous.
typedef struct rendezvous_list {
    hd_device *device;
    int rank;
    const hd_step *step;
    hd_diag *diag;
    hd_rendezvous_fn *fn;
    void *context;
    hd_rendezvous rendezvous;
} rendezvous_list;

static hd_status meet_at(rendezvous_list *all, hd_side side, hd_piece piece)
{
    all->rendezvous.side = side;
    all->rendezvous.place = piece.place;
    all->rendezvous.bytes = piece.bytes;
    return all->fn(all->device, all->step, &all->rendezvous, all->diag,
                   all->context);
}

static hd_status meet_one(rendezvous_list *all)
{
    const hd_step *step = all->step;
    bool sends = step->op->code == HD_OP_SEND;
    bool get = hd_op_key(step->op, HD_KEY_GET) != NULL;
    bool up = step->peer > all->rank;

    all->rendezvous.peer = step->peer;
    all->rendezvous.upward = sends == up;
    all->rendezvous.kind = kind_of(step, step->op->code);
    all->rendezvous.want = kind_of(step, sends ? HD_OP_RECV : HD_OP_SEND);
    // Whoever does not move the data offers the memory.
    return meet_at(all,
                   sends == get ? HD_SIDE_OFFER
                   : get        ? HD_SIDE_PULL
                                : HD_SIDE_PUT,
                   hd_piece_of(&step->span[0], -1));
}

static hd_status meet_in_broadcast(rendezvous_list *all)
{
    const hd_step *step = all->step;
    const hd_span *source = &step->span[step->op->noutputs];

    if (step->peer == all->rank)
        return meet_at(all, HD_SIDE_PUT, hd_piece_of(source, -1));
    if (step->peer == all->rendezvous.peer)
        return meet_at(all, HD_SIDE_OFFER, hd_piece_of(&step->span[0], -1));
    return HD_OK;
}

static hd_status meet_in_reduce(rendezvous_list *all)
{
    const hd_step *step = all->step;
    const hd_span *operand = &step->span[step->op->noutputs];

    if (step->peer == all->rank)
        return meet_at(all, HD_SIDE_READ, hd_piece_of(&step->span[0], -1));
    if (step->peer == all->rendezvous.peer)
        return meet_at(all, HD_SIDE_OFFER, hd_piece_of(operand, -1));
    return HD_OK;
}

// What is moved must be one contiguous range: the whole, or each rank's piece.
static hd_status check_dense(const hd_step *step, bool pieces, int i,
                             hd_diag *diag)
{
    const hd_span *span = &step->span[i];
    int64_t stride = hd_span_elements(span) > 0 ? 1 : 0;

    if (stride == 0) // in runs that have nothing of it
        return HD_OK;

    for (int d = span->ndims - 1; d >= (pieces ? 1 : 0); d--) {
        if (span->extent[d] != 1 && span->stride[d] != stride)
            return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                           "'%s' (step %lld, line %u) moves a part of %%%s "
                           "that is not contiguous in memory",
                           hd_op_info_get(step->op->code)->text,
                           (long long)step->index, step->op->loc.line,
                           span->buffer->name);
        stride *= span->extent[d];
    }
    return HD_OK;
}

static hd_status check_spans(const hd_step *step, hd_diag *diag)
{
    int n = step->op->noutputs + step->op->ninputs;

    for (int i = 0; i < n && i < step->op->nviews; i++)
        HD_TRY(check_dense(step, hd_op_is_led(step->op, i), i, diag));
    return HD_OK;
}

// With the rank whose coordinate on the axis is `i`.
static hd_status meet_collectively(rendezvous_list *all, int64_t i)
{
    const hd_span *span = all->step->span;

    switch (hd_op_move(all->step->op)) {
    case HD_MOVE_ALL_GATHER:
        HD_TRY(meet_at(all, HD_SIDE_PUT, hd_piece_of(&span[1], -1)));
        return meet_at(all, HD_SIDE_OFFER, hd_piece_of(&span[0], i));
    case HD_MOVE_ALL_TO_ALL:
        HD_TRY(meet_at(all, HD_SIDE_PUT, hd_piece_of(&span[1], i)));
        return meet_at(all, HD_SIDE_OFFER, hd_piece_of(&span[0], i));
    case HD_MOVE_REDUCE_SCATTER:
        HD_TRY(meet_at(all, HD_SIDE_OFFER, hd_piece_of(&span[1], i)));
        return meet_at(all, HD_SIDE_READ, hd_piece_of(&span[0], -1));
    case HD_MOVE_ALL_REDUCE:
        HD_TRY(meet_at(all, HD_SIDE_OFFER, hd_piece_of(&span[1], -1)));
        return meet_at(all, HD_SIDE_READ, hd_piece_of(&span[0], -1));
    case HD_MOVE_BROADCAST:
        return meet_in_broadcast(all);
    case HD_MOVE_REDUCE:
        return meet_in_reduce(all);
    case HD_MOVE_NONE:
    case HD_MOVE_SEND:
    case HD_MOVE_RECV:
        break;
    }
    return hd_fail(all->diag, HD_ERROR_UNSUPPORTED, "no driver knows '%s'",
                   hd_op_info_get(all->step->op->code)->text);
}

hd_status hd_rendezvous_each(hd_device *device, const hd_binding *binding,
                             const hd_step *step, hd_diag *diag,
                             hd_rendezvous_fn *fn, void *context)
{
    const hd_module *module = binding->module;
    hd_opcode code = step->op->code;
    rendezvous_list all = {.device = device,
                           .rank = step->rank,
                           .step = step,
                           .diag = diag,
                           .fn = fn,
                           .context = context,
                           .rendezvous = {.index = (uint64_t)step->seq}};
    int64_t n, me;

    HD_TRY(check_spans(step, diag));
    if (code == HD_OP_SEND || code == HD_OP_RECV)
        return meet_one(&all);
    n = module->axis[step->op->axis].size;
    me = hd_mesh_coord(module, all.rank, step->op->axis);
    all.rendezvous.collective = true;
    all.rendezvous.kind = all.rendezvous.want = kind_of(step, code);
    for (int64_t distance = 1; distance < n; distance++) {
        int64_t i = (me + distance) % n;

        all.rendezvous.peer =
            (int)hd_mesh_peer(module, all.rank, step->op->axis, i);
        HD_TRY(meet_collectively(&all, i));
    }
    return HD_OK;
}

bool hd_rendezvous_own(const hd_binding *binding, const hd_step *step,
                       hd_piece *to, hd_piece *from)
{
    const hd_span *span = step->span;
    int rank = hd_group_rank(binding->group);
    int axis = step->op->axis;
    int64_t me = axis < 0 ? 0 : hd_mesh_coord(binding->module, rank, axis);

    switch (hd_op_move(step->op)) {
    case HD_MOVE_ALL_GATHER:
        *to = hd_piece_of(&span[0], me);
        *from = hd_piece_of(&span[1], -1);
        return true;
    case HD_MOVE_ALL_TO_ALL:
        *to = hd_piece_of(&span[0], me);
        *from = hd_piece_of(&span[1], me);
        return true;
    case HD_MOVE_BROADCAST:
        if (step->peer != rank || step->op->noutputs == 0)
            return false;
        *to = hd_piece_of(&span[0], -1);
        *from = hd_piece_of(&span[1], -1);
        return true;
    case HD_MOVE_NONE:
    case HD_MOVE_SEND:
    case HD_MOVE_RECV:
    case HD_MOVE_REDUCE_SCATTER:
    case HD_MOVE_ALL_REDUCE:
    case HD_MOVE_REDUCE:
        break;
    }
    return false;
}

// ------------------------------------------------------------- slots

void hd_pair_count(const hd_binding *binding, const hd_step *step,
                   hd_pair *pairs)
{
    const hd_module *module = binding->module;
    int rank = hd_group_rank(binding->group);
    hd_opcode code = step->op->code;
    uint64_t count = (uint64_t)step->seq + 1;

    if (!hd_op_is(step->op, HD_UNIT_TRANSFER))
        return;
    if (code == HD_OP_SEND || code == HD_OP_RECV) {
        bool up = step->peer > rank;
        hd_pair *pair = &pairs[step->peer];

        *(up == (code == HD_OP_SEND) ? &pair->up : &pair->down) = count;
        return;
    }
    for (int64_t i = 0; i < module->axis[step->op->axis].size; i++)
        pairs[hd_mesh_peer(module, rank, step->op->axis, i)].collectives =
            count;
}

uint64_t hd_pair_slots(const hd_pair *pair)
{
    return pair->up + pair->down + pair->collectives;
}

uint64_t hd_pair_slot(const hd_pair *pair, const hd_rendezvous *rendezvous)
{
    if (rendezvous->collective)
        return pair->up + pair->down + rendezvous->index;
    return rendezvous->upward ? rendezvous->index
                              : pair->up + rendezvous->index;
}

hd_status hd_pair_compare(const hd_binding *binding, int peer,
                          const hd_pair *mine, const hd_pair *theirs,
                          hd_diag *diag)
{
    int rank = hd_group_rank(binding->group);

    if (theirs->up != mine->up || theirs->down != mine->down)
        return hd_fail(
            diag, HD_ERROR_INVALID,
            "ranks %d and %d do not agree how often they send to "
            "each other: rank %d has %llu up and %llu down, rank %d "
            "has %llu and %llu",
            peer < rank ? peer : rank, peer < rank ? rank : peer, rank,
            (unsigned long long)mine->up, (unsigned long long)mine->down, peer,
            (unsigned long long)theirs->up, (unsigned long long)theirs->down);
    if (theirs->collectives != mine->collectives)
        return hd_fail(diag, HD_ERROR_INVALID,
                       "rank %d takes part in %llu collectives, rank %d in "
                       "%llu",
                       rank, (unsigned long long)mine->collectives, peer,
                       (unsigned long long)theirs->collectives);
    return HD_OK;
}

hd_status hd_rendezvous_compare(int rank, const hd_step *step,
                                const hd_rendezvous *rendezvous,
                                const hd_offer *other, uint64_t room,
                                hd_diag *diag)
{
    const char *op = hd_op_info_get(step->op->code)->text;
    uint64_t at = hd_offset_within(other->offset);

    if (other->kind != rendezvous->want)
        return hd_fail(diag, HD_ERROR_INVALID,
                       "'%s' of rank %d (step %lld, line %u) meets another "
                       "operation on rank %d",
                       op, rank, (long long)step->index, step->op->loc.line,
                       rendezvous->peer);
    if (rendezvous->side == HD_SIDE_OFFER)
        return HD_OK;
    if (other->bytes != rendezvous->bytes)
        return hd_fail(diag, HD_ERROR_INVALID,
                       "'%s' of rank %d (step %lld, line %u) moves %zu bytes, "
                       "rank %d %llu",
                       op, rank, (long long)step->index, step->op->loc.line,
                       rendezvous->bytes, rendezvous->peer,
                       (unsigned long long)other->bytes);
    if (at > room || other->bytes > room - at)
        return hd_fail(diag, HD_ERROR_PEER,
                       "rank %d offers '%s' of rank %d (step %lld, line %u) "
                       "%llu bytes from byte %llu of memory that has %llu",
                       rendezvous->peer, op, rank, (long long)step->index,
                       step->op->loc.line, (unsigned long long)other->bytes,
                       (unsigned long long)at, (unsigned long long)room);
    return HD_OK;
}

static uint64_t sign(int rank, int peer, uint64_t digest)
{
    return rank < peer ? digest : 0 - digest;
}

uint64_t hd_pair_digest(int rank, int peer, const hd_pair *pair)
{
    uint64_t said[] = {(uint64_t)(rank < peer ? rank : peer),
                       (uint64_t)(rank < peer ? peer : rank), pair->up,
                       pair->down, pair->collectives};

    return sign(rank, peer, XXH3_64bits(said, sizeof said));
}

// Both know who moves the data, how much it is, and what both do.
uint64_t hd_rendezvous_digest(int rank, const hd_rendezvous *rendezvous,
                              uint64_t slot)
{
    int peer = rendezvous->peer;
    bool lower = rank < peer;
    int mover = rendezvous->side == HD_SIDE_OFFER ? peer : rank;
    uint64_t said[] = {(uint64_t)(lower ? rank : peer),
                       (uint64_t)(lower ? peer : rank),
                       slot,
                       (uint64_t)mover,
                       rendezvous->bytes,
                       lower ? rendezvous->kind : rendezvous->want,
                       lower ? rendezvous->want : rendezvous->kind};

    return sign(rank, peer, XXH3_64bits(said, sizeof said));
}

hd_status hd_pair_check(const hd_pair *pair, int peer, uint64_t slots,
                        uint64_t bytes, uint64_t head, hd_diag *diag)
{
    if (slots >= head && slots <= bytes && slots % HD_SLOT_BYTES == 0 &&
        (bytes - slots) / HD_SLOT_BYTES >= hd_pair_slots(pair))
        return HD_OK;
    return hd_fail(diag, HD_ERROR_PEER, "the window of rank %d makes no sense",
                   peer);
}

// ------------------------------------------------------------- memory

// A temp that only other ranks name takes no memory here: peers touch what a
// step of this rank offers.
static void size_temps(const hd_steps *steps, hd_root *roots)
{
    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_op *op = steps->step[i].op;

        for (int v = 0; v < op->nviews; v++) {
            const hd_buffer *root = hd_buffer_root(op->view[v].buffer);

            if (root->role == HD_ROLE_TEMP)
                roots[root->id].bytes =
                    (size_t)hd_type_local_bytes(&root->type);
        }
    }
}

// What no peer touches is the caller's in every run anyway.
static void fix_arguments(const hd_binding *binding, hd_root *roots)
{
    for (int i = 0; binding->fixed != NULL && i < binding->module->nbuffers;
         i++) {
        if (roots[i].argument >= 0 && roots[i].shared)
            roots[i].fixed = binding->fixed[roots[i].argument];
    }
}

hd_status hd_roots_list(const hd_binding *binding, hd_diag *diag, hd_root **out,
                        int *narguments)
{
    const hd_module *module = binding->module;
    hd_root *roots = calloc((size_t)module->nbuffers + 1, sizeof *roots);

    if (roots == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d buffers",
                       module->nbuffers);
    *out = roots;
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        hd_root *root = &roots[b->id];

        root->buffer = b;
        root->argument = b->role != HD_ROLE_TEMP ? (*narguments)++ : -1;
        if (b->of == NULL && b->role != HD_ROLE_TEMP)
            root->bytes = (size_t)hd_type_local_bytes(&b->type);
        else if (b->role != HD_ROLE_TEMP)
            return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                           "argument %%%s may not rename %%%s", b->name,
                           b->of->name);
        // To share an alias is to share its bytes.
        if (b->shared)
            roots[hd_buffer_root(b)->id].shared = true;
    }
    size_temps(binding->steps, roots);
    fix_arguments(binding, roots);
    return HD_OK;
}

hd_status hd_offer_fill(const hd_root *roots, const hd_step *step,
                        const hd_rendezvous *rendezvous, hd_diag *diag,
                        hd_offer *out)
{
    const hd_root *root = &roots[rendezvous->place.buffer];

    out->kind = rendezvous->kind;
    if (rendezvous->side != HD_SIDE_OFFER)
        return HD_OK;
    if (!root->shared)
        return hd_fail(diag, HD_ERROR_INVALID,
                       "%%%s must be shared: rank %d touches it in '%s' (line "
                       "%u)",
                       root->buffer->name, rendezvous->peer,
                       hd_op_info_get(step->op->code)->text,
                       step->op->loc.line);
    out->offset = root->offset + rendezvous->place.offset;
    out->bytes = rendezvous->bytes;
    return HD_OK;
}
