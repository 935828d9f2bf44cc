// The cpu driver's memory, all of it the group's: words that peers write, what
// they touch, and what they do not; and the tables that say where everything
// is.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/cpu/cpu.h"

// What a peer must know of us.
typedef struct note {
    uint64_t words; // where ours are in our window
    uint64_t slots; // and the pair's
    hd_pair pair;
} note;
_Static_assert(sizeof(note) <= HD_TOLD_BYTES, "note");
_Static_assert(sizeof(hd_cpu_slot) == HD_SLOT_BYTES, "a slot is a cache line");

static size_t align_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static hd_status list_buffers(hd_device *device, hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    size_t n = (size_t)module->nbuffers + 1;

    HD_TRY(hd_roots_list(&device->binding, diag, &device->buffer,
                         &device->narguments));
    device->nbuffers = module->nbuffers;
    device->events = calloc(n, sizeof *device->events);
    if (device->events == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d buffers",
                       module->nbuffers);
    return HD_OK;
}

static hd_status count_pairs(hd_device *device, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;
    hd_pair *pairs = calloc((size_t)device->size, sizeof *pairs);

    if (pairs == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       device->size);
    for (int64_t i = 0; i < steps->nsteps; i++)
        hd_pair_count(&device->binding, &steps->step[i], pairs);
    for (int i = 0; i < device->size; i++) {
        device->peer[i].pair = pairs[i];
        if (i != device->rank)
            device->digest += hd_pair_digest(device->rank, i, &pairs[i]);
    }
    free(pairs);
    return HD_OK;
}

hd_status hd_cpu_list(hd_device *device, hd_diag *diag)
{
    device->peer = calloc((size_t)device->size, sizeof *device->peer);
    if (device->peer == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       device->size);
    HD_TRY(list_buffers(device, diag));
    return count_pairs(device, diag);
}

// -------------------------------------------------------------- layout

// What a session asks the pool for.
typedef struct layout {
    size_t words;
    size_t shared, own;     // of the regions of runs
    size_t scratch, beside; // in the second: what streams convert, and what is
                            // made beside its operands
} layout;

static size_t lay_out_words(hd_device *device)
{
    size_t at = align_up(sizeof(hd_cpu_header), sizeof(hd_cpu_slot));

    for (int i = 0; i < device->size; i++) {
        if (i == device->rank)
            continue;
        device->peer[i].offset = at;
        at += hd_pair_slots(&device->peer[i].pair) * sizeof(hd_cpu_slot);
    }
    return at;
}

static layout lay_out(hd_device *device)
{
    size_t base = hd_pool_shared(device->pool);
    layout all = {.words = lay_out_words(device)};

    for (int i = 0; i < device->nbuffers; i++) {
        hd_root *buffer = &device->buffer[i];

        if (buffer->fixed != NULL) {
            buffer->offset = hd_fixed_offset(buffer->argument);
        } else if (buffer->shared) {
            buffer->offset = base + all.shared;
            all.shared += align_up(buffer->bytes, 256);
        } else if (buffer->argument < 0) {
            buffer->offset = all.own;
            all.own += align_up(buffer->bytes, 256);
        }
    }
    all.scratch = all.own;
    for (int i = 0; i < device->nstreams; i++)
        all.own += align_up(device->stream[i].scratch.bytes, 256);
    all.beside = all.own;
    all.own += device->beside;
    return all;
}

// All ranks of this host together must fit: memory that is promised and not
// there would end in a kill without a word.
static hd_status check_memory(hd_device *device, hd_diag *diag)
{
    uint64_t here = hd_pool_room(device->pool);
    uint64_t bytes = 0;

    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];

        if (buffer->fixed == NULL && (buffer->shared || buffer->argument < 0))
            bytes += buffer->bytes;
        if (bytes > here)
            return hd_fail(diag, HD_ERROR_NO_MEMORY,
                           "each of %d ranks needs more than the %llu MiB that "
                           "this machine has for it, at %%%s",
                           device->size, (unsigned long long)(here >> 20),
                           buffer->buffer->name);
    }
    return HD_OK;
}

static hd_status fill_slot(hd_device *device, const hd_step *step,
                           const hd_rendezvous *rendezvous, hd_diag *diag,
                           void *context)
{
    hd_cpu_peer *peer = &device->peer[rendezvous->peer];
    hd_cpu_slot *slot = hd_cpu_slot_of(peer->mine, peer, rendezvous);

    (void)context;
    return hd_offer_fill(device->buffer, step, rendezvous, diag, &slot->offer);
}

static hd_status fill_slots(hd_device *device, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;

    for (int i = 0; i < device->size; i++)
        device->peer[i].mine =
            (void *)((char *)device->header + device->peer[i].offset);
    for (int64_t i = 0; i < steps->nsteps; i++) {
        if (hd_op_is(steps->step[i].op, HD_UNIT_TRANSFER))
            HD_TRY(hd_rendezvous_each(device, &device->binding, &steps->step[i],
                                      diag, fill_slot, NULL));
    }
    return HD_OK;
}

static char *address_of(const hd_device *device, const hd_root *buffer)
{
    const hd_window *window = hd_pool_window(device->pool, device->rank);

    if (buffer->fixed != NULL)
        return buffer->fixed;
    if (buffer->shared)
        return (char *)window->base + buffer->offset;
    return buffer->argument < 0 ? hd_pool_own(device->pool) + buffer->offset
                                : NULL;
}

// Every bit set is a NaN in each floating dtype: who reads what nobody wrote
// will see it in the answer.
void hd_cpu_poison(hd_device *device, size_t shared, size_t own)
{
    shared += hd_pool_shared(device->pool);
    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];
        size_t from = buffer->shared ? shared : own;
        char *at = address_of(device, buffer);

        from = from > buffer->offset ? from - buffer->offset : 0;
        if (at != NULL && buffer->fixed == NULL && from < buffer->bytes)
            memset(at + from, 0xff, buffer->bytes - from);
    }
}

static hd_status take_memory(hd_device *device, hd_diag *diag)
{
    layout all = lay_out(device);
    hd_hold *hold = NULL;
    char *scratch;

    HD_TRY(check_memory(device, diag));
    HD_TRY(hd_pool_take(device->pool, all.words, all.shared, all.own, diag,
                        &hold));
    device->hold = hold;
    device->allocations +=
        hold->shared > hold->old_shared || hold->own > hold->old_own;
    device->header =
        (void *)((char *)hd_pool_window(device->pool, device->rank)->base +
                 hold->words);
    scratch = hd_pool_own(device->pool) + all.scratch;
    for (int i = 0; i < device->nstreams; i++) {
        device->stream[i].scratch.memory = scratch;
        scratch += align_up(device->stream[i].scratch.bytes, 256);
    }
    hd_cpu_plan_place(device, hd_pool_own(device->pool) + all.beside);
    // What others had before may be in use by a run that is under way.
    hd_cpu_poison(device, hold->old_shared, hold->old_own);
    return HD_OK;
}

static hd_status open_run(hd_device *device, hd_cpu_run *run)
{
    size_t narguments = (size_t)device->narguments + 1;

    run->base = calloc((size_t)device->nbuffers + 1, sizeof *run->base);
    run->argument = calloc(narguments, sizeof *run->argument);
    run->event = calloc(narguments, sizeof *run->event);
    run->reaches = calloc(narguments, sizeof *run->reaches);
    run->value = calloc(narguments, sizeof *run->value);
    run->packed = calloc(narguments, sizeof *run->packed);
    if (run->base == NULL || run->argument == NULL || run->event == NULL ||
        run->reaches == NULL || run->value == NULL || run->packed == NULL)
        return HD_ERROR_NO_MEMORY;
    for (int i = 0; i < device->nbuffers; i++)
        run->base[i] = address_of(device, &device->buffer[i]);
    return HD_OK;
}

hd_status hd_cpu_alloc(hd_device *device, hd_diag *diag)
{
    HD_TRY(take_memory(device, diag));
    HD_TRY(fill_slots(device, diag));
    device->pack = calloc((size_t)device->narguments + 1, sizeof *device->pack);
    if (device->pack == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d arguments",
                       device->narguments);
    for (int i = 0; i < HD_CPU_RUNS; i++) {
        if (open_run(device, &device->run[i]) != HD_OK)
            return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for runs");
    }
    return HD_OK;
}

static const hd_root *root_of(const hd_device *device, size_t argument)
{
    const hd_root *root = device->buffer;

    while (root->argument < 0 || (size_t)root->argument != argument)
        root++;
    return root;
}

// What peers touch lies in the window anyway, and is packed there.
hd_status hd_cpu_pack_argument(hd_device *device, size_t i, hd_diag *diag)
{
    const hd_root *root = root_of(device, i);
    size_t bytes = root->shared ? 0 : root->bytes;
    hd_cpu_pack *pack;

    if (device->pack[i] != NULL)
        return HD_OK;
    pack = calloc(1, sizeof *pack);
    if (pack == NULL ||
        posix_memalign(&pack->memory, 256, bytes > 0 ? bytes : 1) != 0) {
        free(pack);
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory to pack %%%s, of %zu bytes",
                       root->buffer->name, bytes);
    }
    memset(pack->memory, 0xff, bytes);
    device->allocations++;
    device->pack[i] = pack;
    return HD_OK;
}

static void free_packs(hd_device *device)
{
    for (int i = 0; device->pack != NULL && i < device->narguments; i++) {
        if (device->pack[i] != NULL)
            free(device->pack[i]->memory);
        free(device->pack[i]);
    }
    free(device->pack);
}

// No thread of ours writes words of this session any more, ours or a peer's.
static void leave(hd_device *device)
{
    for (int i = 0; device->settled && i < device->size; i++) {
        hd_pool_leave(i == device->rank ? device->header
                                        : device->peer[i].header);
    }
    if (device->hold != NULL)
        hd_pool_give(device->pool, device->hold, device->settled);
}

void hd_cpu_free(hd_device *device)
{
    leave(device);
    hd_cpu_fixed_close(device);
    for (int i = 0; i < HD_CPU_RUNS; i++) {
        free(device->run[i].base);
        free(device->run[i].argument);
        free(device->run[i].event);
        free(device->run[i].reaches);
        free(device->run[i].value);
        free(device->run[i].packed);
    }
    free_packs(device);
    free(device->peer);
    free(device->buffer);
    free(device->events);
}

// ------------------------------------------------ with the peers

void hd_cpu_tell(hd_device *device, int peer, hd_told *out)
{
    const hd_cpu_peer *pair = &device->peer[peer];
    note note = {.words = device->hold->words,
                 .slots = device->hold->words + pair->offset,
                 .pair = pair->pair};

    memcpy(out->bytes, &note, sizeof note);
}

void hd_cpu_hear(hd_device *device, int peer, const hd_told *said)
{
    hd_cpu_peer *pair = &device->peer[peer];
    note note;

    memcpy(&note, said->bytes, sizeof note);
    pair->words = note.words;
    pair->slots = note.slots;
    pair->told = note.pair;
}

hd_status hd_cpu_export(hd_device *device, int peer, hd_diag *diag,
                        hd_handle *out)
{
    const hd_window *window = hd_pool_window(device->pool, device->rank);
    uint64_t bytes = window->bytes;

    (void)peer;
    (void)diag;
    memcpy(out->bytes, &bytes, sizeof bytes);
    out->fd = window->fd;
    return HD_OK;
}

hd_status hd_cpu_import(hd_device *device, int peer, const hd_handle *handle,
                        hd_diag *diag)
{
    uint64_t bytes;

    memcpy(&bytes, handle->bytes, sizeof bytes);
    return hd_pool_map(device->pool, peer, handle->fd, bytes, diag);
}

static hd_status meet(hd_device *device, int peer, hd_diag *diag)
{
    hd_cpu_peer *pair = &device->peer[peer];

    pair->window = hd_pool_window(device->pool, peer);
    HD_TRY(hd_pair_compare(&device->binding, peer, &pair->pair, &pair->told,
                           diag));
    HD_TRY(hd_pair_check(&pair->pair, peer, pair->slots, pair->window->bytes,
                         pair->words + sizeof(hd_cpu_header), diag));
    pair->header = (void *)((char *)pair->window->base + pair->words);
    pair->theirs = (void *)((char *)pair->window->base + pair->slots);
    return HD_OK;
}

hd_status hd_cpu_meet(hd_device *device, hd_diag *diag)
{
    for (int peer = 0; peer < device->size; peer++) {
        if (peer != device->rank)
            HD_TRY(meet(device, peer, diag));
    }
    return HD_OK;
}
