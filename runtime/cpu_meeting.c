// Who meets whom in a transfer, and what each lets the other touch: the one
// place that knows how collectives are made of one-sided copies.
//
//   all_gather, all_to_all, broadcast   each rank puts its pieces into the
//                                       results of its peers
//   reduce_scatter, all_reduce          each rank reads its peers' operands
#include "runtime/cpu.h"

#include "base/diag.h"

hd_cpu_piece hd_cpu_piece_of(const hd_span *span, int64_t i)
{
    size_t size = hd_dtype_size(span->buffer->type.dtype);
    int64_t offset = span->offset;
    int64_t elements = 1;

    if (i >= 0)
        offset += i * span->stride[0];
    for (int d = i >= 0 ? 1 : 0; d < span->ndims; d++)
        elements *= span->extent[d];
    return (hd_cpu_piece){
        .place = {.buffer = span->buffer->id, .offset = (size_t)offset * size},
        .bytes = (size_t)elements * size};
}

hd_cpu_slot *hd_cpu_slot_of(hd_cpu_slot *first, const hd_cpu_peer *peer,
                            const hd_cpu_meeting *meeting)
{
    uint64_t index = meeting->index;

    if (meeting->collective)
        index += peer->up + peer->down;
    else if (!meeting->upward)
        index += peer->up;
    return &first[index];
}

// What both sides of a slot must agree on beyond the number of bytes.
static uint64_t kind_of(const hd_step *step, hd_opcode code)
{
    uint64_t kind = (uint64_t)code + 1;

    if (hd_op_key(step->op, HD_KEY_GET) != NULL)
        kind |= 1 << 8;
    if (hd_op_key(step->op, HD_KEY_MAX) != NULL)
        kind |= 1 << 9;
    kind |= (uint64_t)step->span[0].buffer->type.dtype << 16;
    if (code == HD_OP_BROADCAST)
        kind |= (uint64_t)step->peer << 32;
    return kind;
}

// The callee, and what does not change from meeting to meeting.
typedef struct hd_meetings {
    hd_device *device;
    const hd_step *step;
    hd_diag *diag;
    hd_cpu_meeting_fn *fn;
    void *context;
    hd_cpu_meeting meeting;
} hd_meetings;

static hd_status meet_at(hd_meetings *all, hd_cpu_act act, hd_cpu_piece piece)
{
    all->meeting.act = act;
    all->meeting.place = piece.place;
    all->meeting.bytes = piece.bytes;
    return all->fn(all->device, all->step, &all->meeting, all->diag,
                   all->context);
}

static hd_status meet_one(hd_meetings *all)
{
    const hd_step *step = all->step;
    bool sends = step->op->code == HD_OP_SEND;
    bool get = hd_op_key(step->op, HD_KEY_GET) != NULL;
    bool up = step->peer > all->device->rank;

    all->meeting.peer = step->peer;
    all->meeting.upward = sends == up;
    all->meeting.kind = kind_of(step, step->op->code);
    all->meeting.want = kind_of(step, sends ? HD_OP_RECV : HD_OP_SEND);
    // Whoever does not move the data offers the memory.
    return meet_at(all,
                   sends == get ? HD_CPU_OFFER
                   : get        ? HD_CPU_PULL
                                : HD_CPU_PUT,
                   hd_cpu_piece_of(&step->span[0], -1));
}

static hd_status meet_in_broadcast(hd_meetings *all)
{
    const hd_step *step = all->step;
    const hd_span *source = &step->span[step->op->noutputs];

    if (step->peer == all->device->rank)
        return meet_at(all, HD_CPU_PUT, hd_cpu_piece_of(source, -1));
    if (step->peer == all->meeting.peer)
        return meet_at(all, HD_CPU_OFFER, hd_cpu_piece_of(&step->span[0], -1));
    return HD_OK;
}

// What is moved must be one stretch: the whole, or each rank's piece.
static hd_status check_dense(const hd_step *step, bool pieces, int i,
                             hd_diag *diag)
{
    const hd_span *span = &step->span[i];
    int64_t stride = 1;

    for (int d = span->ndims - 1; d >= (pieces ? 1 : 0); d--) {
        if (span->extent[d] != 1 && span->stride[d] != stride)
            return hd_fail(diag, HD_UNSUPPORTED,
                           "'%s' (step %lld, line %u) moves a part of %%%s "
                           "that is not one stretch of memory",
                           hd_op_info_get(step->op->code)->text,
                           (long long)step->index, step->op->loc.line,
                           span->buffer->name);
        stride *= span->extent[d];
    }
    return HD_OK;
}

static hd_status check_spans(const hd_step *step, hd_diag *diag)
{
    hd_opcode code = step->op->code;
    int n = step->op->noutputs + step->op->ninputs;

    for (int i = 0; i < n && i < step->nspans; i++) {
        bool pieces = code == HD_OP_ALL_TO_ALL ||
                      (code == HD_OP_ALL_GATHER && i == 0) ||
                      (code == HD_OP_REDUCE_SCATTER && i == 1);

        HD_TRY(check_dense(step, pieces, i, diag));
    }
    return HD_OK;
}

// With the rank whose coordinate on the axis is `i`.
static hd_status meet_collectively(hd_meetings *all, int64_t i)
{
    const hd_span *span = all->step->span;

    switch (all->step->op->code) {
    case HD_OP_ALL_GATHER:
        HD_TRY(meet_at(all, HD_CPU_PUT, hd_cpu_piece_of(&span[1], -1)));
        return meet_at(all, HD_CPU_OFFER, hd_cpu_piece_of(&span[0], i));
    case HD_OP_ALL_TO_ALL:
        HD_TRY(meet_at(all, HD_CPU_PUT, hd_cpu_piece_of(&span[1], i)));
        return meet_at(all, HD_CPU_OFFER, hd_cpu_piece_of(&span[0], i));
    case HD_OP_REDUCE_SCATTER:
        HD_TRY(meet_at(all, HD_CPU_OFFER, hd_cpu_piece_of(&span[1], i)));
        return meet_at(all, HD_CPU_READ, hd_cpu_piece_of(&span[0], -1));
    case HD_OP_ALL_REDUCE:
        HD_TRY(meet_at(all, HD_CPU_OFFER, hd_cpu_piece_of(&span[1], -1)));
        return meet_at(all, HD_CPU_READ, hd_cpu_piece_of(&span[0], -1));
    case HD_OP_BROADCAST:
        return meet_in_broadcast(all);
    default:
        return hd_fail(all->diag, HD_UNSUPPORTED,
                       "the cpu driver does not know '%s'",
                       hd_op_info_get(all->step->op->code)->text);
    }
}

hd_status hd_cpu_meet(hd_device *device, const hd_step *step, hd_diag *diag,
                      hd_cpu_meeting_fn *fn, void *context)
{
    const hd_module *module = device->binding.module;
    hd_opcode code = step->op->code;
    hd_meetings all = {.device = device,
                       .step = step,
                       .diag = diag,
                       .fn = fn,
                       .context = context,
                       .meeting = {.index = (uint64_t)step->seq}};

    HD_TRY(check_spans(step, diag));
    if (code == HD_OP_SEND || code == HD_OP_RECV)
        return meet_one(&all);
    all.meeting.collective = true;
    all.meeting.kind = all.meeting.want = kind_of(step, code);
    for (int64_t i = 0; i < module->axis[step->op->axis].size; i++) {
        all.meeting.peer =
            (int)hd_mesh_peer(module, device->rank, step->op->axis, i);
        if (all.meeting.peer != device->rank)
            HD_TRY(meet_collectively(&all, i));
    }
    return HD_OK;
}
