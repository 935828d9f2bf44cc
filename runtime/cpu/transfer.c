// Moving data between ranks: the parts of an entry, each a small protocol of
// two words with one peer. None waits for another; whatever its words allow is
// done, in any order.
//
//   sender                  put                       receiver
//     |   <---------------- ready ---------------- its stream is here
//     copies into the window
//     |   ------------------ done ---------------> its stream goes on
//
// For get, and for reductions, the roles of the two words are the same with
// sides exchanged: whoever owns the memory signals "ready", whoever touches it
// signals "done".
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/counts.h"
#include "runtime/cpu/cpu.h"
#include "runtime/cpu/map.h"

enum { READY, DONE }; // words of a slot

#define CHUNK 512 // elements reduced at a time

static bool has_come(const hd_cpu_part *part, int word, uint64_t n)
{
    // Pairs with `signal_peer`: what the peer wrote before it is seen after.
    return atomic_load_explicit(&part->mine->word[word],
                                memory_order_seq_cst) >= n;
}

static void signal_peer(hd_device *device, const hd_cpu_part *part, int word,
                        uint64_t n)
{
    atomic_store_explicit(&part->theirs->word[word], n, memory_order_seq_cst);
    hd_doorbell_ring(&device->peer[part->peer].header->doorbell);
}

// -------------------------------------------------------- reductions

// One chunk of `n` elements from `at` on, in each rank's order: all ranks get
// the same bits.
static void reduce_chunk(const hd_cpu_reduce *reduce, size_t at, size_t n,
                         void *out)
{
    union {
        float f[CHUNK];
        double d[CHUNK];
        int64_t i[CHUNK];
    } sum, next;
    size_t size = hd_dtype_size(reduce->dtype);
    bool integer = hd_dtype_is_integer(reduce->dtype);

    for (int r = 0; r < reduce->n; r++) {
        const void *from = (const char *)reduce->operand[r] + at * size;

        if (integer) {
            hd_dtype_load_integers(reduce->dtype, from, n,
                                   r == 0 ? sum.i : next.i);
            if (r > 0)
                hd_cpu_fold_integers(reduce->fold, next.i, n, sum.i);
        } else if (reduce->dtype == HD_DTYPE_F64) {
            memcpy(r == 0 ? sum.d : next.d, from, n * size);
            if (r > 0)
                hd_cpu_fold_doubles(reduce->fold, next.d, n, sum.d);
        } else {
            hd_dtype_load_float(reduce->dtype, from, n,
                                r == 0 ? sum.f : next.f);
            if (r > 0)
                hd_cpu_fold_floats(reduce->fold, next.f, n, sum.f);
        }
    }
    out = (char *)out + at * size;
    if (integer)
        hd_dtype_store_integers(reduce->dtype, sum.i, n, out);
    else if (reduce->dtype == HD_DTYPE_F64)
        memcpy(out, sum.d, n * size);
    else
        hd_dtype_store_float(reduce->dtype, sum.f, n, out);
}

static void reduce_all(hd_device *device, hd_cpu_transfer *transfer,
                       hd_cpu_reduce *reduce, uint64_t n)
{
    const hd_cpu_run *run = hd_cpu_run_of(device, n);
    void *out = reduce->scratch != NULL ? reduce->scratch
                                        : hd_cpu_address(run, reduce->out);

    reduce->operand[reduce->own_index] = hd_cpu_address(run, reduce->own);
    for (size_t at = 0; at < reduce->elements; at += CHUNK) {
        size_t left = reduce->elements - at;

        reduce_chunk(reduce, at, left < CHUNK ? left : CHUNK, out);
    }
    for (int i = 0; i < transfer->nparts; i++) {
        hd_cpu_part *part = &transfer->part[i];

        if (part->side != HD_SIDE_READ || part->reduce != reduce)
            continue;
        signal_peer(device, part, DONE, n);
        part->over = true;
        transfer->left--;
    }
}

// Once the peers have read our operand, a result that lies over it may land.
static void land_scratch(hd_device *device, const hd_cpu_transfer *transfer,
                         uint64_t n)
{
    const hd_cpu_run *run = hd_cpu_run_of(device, n);

    for (int i = 0; i < transfer->nreduces; i++) {
        const hd_cpu_reduce *reduce = &transfer->reduce[i];

        if (reduce->scratch != NULL)
            memcpy(hd_cpu_address(run, reduce->out), reduce->scratch,
                   reduce->elements * hd_dtype_size(reduce->dtype));
    }
}

// ------------------------------------------------------------- parts

static int64_t rows_of_slab(const hd_cpu_run *run, const hd_rows *rows,
                            int64_t i, hd_miscount *miscount)
{
    const int32_t *counts = run->base[rows->counts->buffer->id];

    return hd_miscount_clamp(miscount, hd_rows_number(rows, i),
                             counts[hd_rows_count(rows, i)], rows->room);
}

// The first of the step's, whichever piece found one.
static void tell_miscount(hd_device *device, const hd_cpu_run *run,
                          const hd_step *step)
{
    hd_rows rows = hd_rows_of(step, -1);
    hd_miscount first = {0};

    for (int64_t i = 0; i < rows.n; i++)
        rows_of_slab(run, &rows, i, &first);
    hd_cpu_note_miscount(device, step, &first);
}

// The rows of each slab that its count says, or what that is taken for.
static void move_rows(hd_device *device, const hd_cpu_run *run,
                      const hd_cpu_part *part, char *to, const char *from)
{
    const hd_step *step = hd_cpu_step_of(run, part->counted);
    hd_rows rows = hd_rows_of(step, part->piece);
    size_t row =
        (size_t)rows.row *
        hd_dtype_size(step->span[hd_op_counted(step->op)].buffer->type.dtype);
    hd_miscount miscount = {0};

    for (int64_t i = 0; i < rows.n; i++) {
        size_t at = (size_t)(i * rows.room) * row;

        memcpy(to + at, from + at,
               (size_t)rows_of_slab(run, &rows, i, &miscount) * row);
    }
    if (miscount.found)
        tell_miscount(device, run, step);
}

static void move_part(hd_device *device, const hd_cpu_run *run,
                      const hd_cpu_part *part, void *to, const void *from)
{
    if (part->counted != NULL)
        move_rows(device, run, part, to, from);
    else
        memmove(to, from, part->bytes);
}

void hd_cpu_begin_parts(hd_device *device, hd_cpu_transfer *transfer,
                        uint64_t n)
{
    const hd_cpu_run *run = hd_cpu_run_of(device, n);

    if (run->sizes != transfer->sizes)
        hd_cpu_plan_again(device, transfer, run);
    transfer->left = transfer->nparts;
    for (int i = 0; i < transfer->nreduces; i++)
        transfer->reduce[i].missing = transfer->reduce[i].nparts;
    for (int i = 0; i < transfer->nparts; i++) {
        hd_cpu_part *part = &transfer->part[i];

        part->over = part->side == HD_SIDE_NONE;
        if (part->side == HD_SIDE_OFFER)
            signal_peer(device, part, READY, n);
        if (part->side != HD_SIDE_NONE)
            continue;
        move_part(device, run, part, hd_cpu_address(run, part->place),
                  hd_cpu_address(run, part->from));
        transfer->left--;
    }
    // With no peers there is nobody whose operand could be missing.
    for (int i = 0; i < transfer->nreduces; i++) {
        if (transfer->reduce[i].missing == 0)
            reduce_all(device, transfer, &transfer->reduce[i], n);
    }
}

// The mover of every part looks, so that any two ranks that meet are compared,
// before either touches what is the other's.
static bool have_same_sizes(hd_device *device, const hd_module *module,
                            int peer, uint64_t n)
{
    _Atomic int64_t *theirs =
        device->peer[peer].header->sizes[n % (2 * HD_CPU_RUNS)];

    for (int i = 0; i < module->nsizes; i++) {
        int64_t own = module->size[i].now;
        int64_t other = atomic_load_explicit(&theirs[i], memory_order_relaxed);
        char text[HD_GROUP_TEXT];
        hd_line line = {text, sizeof text};

        if (other == own)
            continue;
        hd_line_put_sizes(&line, module, n, i, device->rank, own, peer, other);
        hd_cpu_fail(device, HD_ERROR_INVALID, text, "");
        return false;
    }
    return true;
}

// A peer's word for what may be touched there: that of a sound one fits.
static bool is_sound(hd_device *device, const hd_cpu_transfer *transfer,
                     const hd_cpu_part *part, const hd_offer *offer, uint64_t n)
{
    const hd_steps *steps = hd_cpu_run_of(device, n)->steps;
    const hd_step *step = &steps->step[transfer->first];
    uint64_t room = hd_cpu_room(&device->peer[part->peer], offer->offset);
    uint64_t at = hd_offset_within(offer->offset);
    char text[HD_GROUP_TEXT];

    if (offer->bytes == part->bytes && at <= room && part->bytes <= room - at)
        return true;
    snprintf(text, sizeof text,
             "run %llu: rank %d offers rank %d %llu bytes from byte %llu of "
             "memory that has %llu, where %zu are moved, at or after '%s' "
             "(step %lld, line %u)",
             (unsigned long long)n, part->peer, device->rank,
             (unsigned long long)offer->bytes, (unsigned long long)at,
             (unsigned long long)room, part->bytes,
             hd_op_info_get(step->op->code)->text, (long long)step->index,
             step->op->loc.line);
    hd_cpu_fail(device, HD_ERROR_PEER, text, "");
    return false;
}

// Where the peer's part is in this run, which it has said before it was ready.
// False, and the end of the device, if it was given other sizes. What the peer
// may write at any moment is read once.
static bool find_remote(hd_device *device, const hd_cpu_transfer *transfer,
                        hd_cpu_part *part, uint64_t n)
{
    hd_cpu_peer *peer = &device->peer[part->peer];
    const hd_module *module = hd_cpu_run_of(device, n)->module;
    const volatile hd_offer *said = &part->theirs->offer;
    hd_offer offer;

    if (part->side == HD_SIDE_OFFER || module->nsizes == 0)
        return true;
    if (!have_same_sizes(device, module, part->peer, n))
        return false;
    offer = (hd_offer){said->offset, said->bytes, said->kind};
    if (!is_sound(device, transfer, part, &offer, n))
        return false;
    part->remote = hd_cpu_remote(peer, offer.offset);
    if (part->reduce != NULL)
        part->reduce->operand[part->operand] = part->remote;
    return true;
}

static void finish_part(hd_device *device, hd_cpu_transfer *transfer,
                        hd_cpu_part *part, uint64_t n)
{
    const hd_cpu_run *run = hd_cpu_run_of(device, n);
    void *local = hd_cpu_address(run, part->place);

    if (part->side == HD_SIDE_PUT)
        move_part(device, run, part, part->remote, local);
    else if (part->side == HD_SIDE_PULL)
        memcpy(local, part->remote, part->bytes);
    if (part->side != HD_SIDE_OFFER)
        signal_peer(device, part, DONE, n);
    part->over = true;
    transfer->left--;
}

// READ parts are counted once each: `over` then says that they are ready, and
// `left` falls when all are reduced.
static void note_ready(hd_device *device, hd_cpu_transfer *transfer,
                       hd_cpu_part *part, uint64_t n)
{
    part->over = true;
    if (--part->reduce->missing == 0)
        reduce_all(device, transfer, part->reduce, n);
}

bool hd_cpu_move_parts(hd_device *device, hd_cpu_transfer *transfer, uint64_t n,
                       int *peer)
{
    if (transfer->left == 0)
        goto over; // of a run of copies alone
    *peer = -1;
    for (int i = 0; i < transfer->nparts; i++) {
        hd_cpu_part *part = &transfer->part[i];

        if (part->over)
            continue;
        if (!has_come(part, part->side == HD_SIDE_OFFER ? DONE : READY, n)) {
            if (*peer < 0)
                *peer = part->peer;
            continue;
        }
        if (!find_remote(device, transfer, part, n))
            return false;
        if (part->side == HD_SIDE_READ)
            note_ready(device, transfer, part, n);
        else
            finish_part(device, transfer, part, n);
    }
    if (transfer->left > 0)
        return false;
over:
    land_scratch(device, transfer, n);
    return true;
}
