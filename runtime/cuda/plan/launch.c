// Launches that one kernel does: products in tiles, one behind the other. Each
// waits in the kernel for words, which say that what its step waits for is
// there: the stream that records that writes its word, too.
//
//     stream 1   recv 1 ─ record ─ word 1 = run      recv 2 ─ record ─ ..
//     stream 0   kernel: product 0 │ word 1 ≥ run ─ product 1 │ word 2 ≥ ..
//
// Only this rank's streams write these words, and a run's kernel ends before
// the next run's commands begin (docs/signals.md, Gates). That a kernel which
// waits keeps no one from starting what it waits for is proven
// (docs/checking.md, Launches).
#include "runtime/cuda/plan/launch.h"

#include <assert.h>
#include <string.h>

#include "base/diag.h"
#include "base/log.h"
#include "runtime/cuda/memory/peers.h"
#include "runtime/cuda/transfers/fused.h"
#include "runtime/cuda/transfers/transport.h"
#include "runtime/rendezvous.h"

#define LONG_PARAMETERS 12010 // CUDA from which on they may be long
enum { SHORT_BYTES = 4096, LONG_BYTES = 32764 };

// A launch's products, and which steps record what each of them waits for.
typedef struct launch {
    const hd_step *first; // borrowed
    int n;
    hd_tiles_row row;
    // The last are of what comes behind all products.
    int64_t wait[HD_TILES_PRODUCTS + 1][HD_TILES_WORDS];
    int nwaits[HD_TILES_PRODUCTS + 1];
    const char *why; // it goes as its parts; NULL: it is a kernel
    bool provided;   // a provider's (cuda/transfers/fused.h)
    bool alone;      // of a collective of one rank
    hd_tiles_choice tiles;
} launch;

static void refuse(launch *l, const char *why)
{
    if (l->why == NULL)
        l->why = why;
}

// ---------------------------------------------------------- what it is of

// What its own stream recorded is over, unless it is a send that was handed on.
static bool is_over(const hd_step *record, const hd_step *wait)
{
    return record->stream == wait->stream && !hd_step_defers(record);
}

static void note_wait(launch *l, const hd_cuda_plan *plan, const hd_step *step)
{
    int *n = &l->nwaits[l->row.products];

    for (int i = 0; i < step->op->nviews; i++) {
        int64_t record = step->record[i].step;

        if (record < 0)
            refuse(l, "it waits for an event of the caller's");
        else if (is_over(&plan->steps->step[record], step))
            continue;
        else if (*n == HD_TILES_WORDS)
            refuse(l, "it waits for more than 4 events at once");
        else
            l->wait[l->row.products][(*n)++] = record;
    }
}

// Whether it waits for what no product ahead of it does.
static bool is_first_behind(const launch *l, int product)
{
    bool is = false;

    for (int k = 0; k < l->nwaits[product]; k++) {
        bool known = false;

        for (int i = 0; i < product; i++)
            for (int e = 0; e < l->nwaits[i]; e++)
                known |= l->wait[i][e] == l->wait[product][k];
        is |= !known;
    }
    return is;
}

static void note_product(launch *l, const hd_step *step)
{
    int i = l->row.products;

    if (i == HD_TILES_PRODUCTS) {
        refuse(l, "it has more than 16 products");
        return;
    }
    if (l->row.words < l->nwaits[i])
        l->row.words = l->nwaits[i];
    l->row.late[i] = is_first_behind(l, i);
    l->row.product[l->row.products++] = step;
    l->nwaits[l->row.products] = 0;
}

// By a step, or it may be by the caller.
static bool is_waited_for(const hd_cuda_plan *plan, const hd_step *step,
                          const int *events)
{
    for (int i = 0; i < step->op->nviews; i++)
        if (plan->device->buffer[step->span[i].buffer->id].argument >= 0)
            return true;
    return events[step->index] >= 0;
}

static launch look(const hd_cuda_plan *plan, const hd_step *first,
                   const int *events)
{
    launch l = {.first = first};

    for (; first->index + l.n < plan->steps->nsteps; l.n++) {
        const hd_step *step = first + l.n;
        hd_sync sync = hd_op_sync(step->op);

        if (step->launch != first->launch)
            break;
        if (sync == HD_SYNC_WAIT)
            note_wait(&l, plan, step);
        else if (step->op->code == HD_OP_MATMUL)
            note_product(&l, step);
        else if (sync != HD_SYNC_RECORD)
            refuse(&l, "it does more than multiply");
        else if (is_waited_for(plan, step, events))
            refuse(&l, "others wait for what a step of it records");
    }
    return l;
}

// --------------------------------------------------- whether there is a kernel

static hd_status check_bytes(const hd_cuda_plan *plan, launch *l, hd_diag *diag)
{
    hd_text text = {0};
    hd_kernel_grid grid = {0};
    int version = 0;
    size_t bytes;

    if (hd_tiles_emit_choice(&l->row, &l->tiles, &text, &grid) != HD_OK)
        return hd_cuda_no_room(plan->device, diag);
    hd_text_free(&text);
    bytes = hd_kernel_bytes(&grid);
    if (bytes > LONG_BYTES ||
        (bytes > SHORT_BYTES &&
         (plan->device->cu.driver_version(&version) != HD_CU_SUCCESS ||
          version < LONG_PARAMETERS)))
        refuse(l, "its parameters are too long for this CUDA");
    return HD_OK;
}

static bool are_alike(const launch *l)
{
    for (int i = 1; i < l->row.products; i++)
        if (!hd_tiles_are_alike(l->row.product[0], l->row.product[i]))
            return false;
    return true;
}

// Whether kernels bring what may be waited for: they could not start.
static bool has_kernels(const hd_cuda_plan *plan)
{
    for (int64_t i = 0; i < plan->steps->nsteps; i++) {
        const hd_step *step = &plan->steps->step[i];
        const hd_cuda_transport *transport;

        if (!hd_op_is(step->op, HD_UNIT_TRANSFER))
            continue;
        transport = hd_cuda_transport_of(plan->device, step);
        if (transport->kernels || !transport->windows)
            return true;
    }
    return false;
}

// The caller may record what is waited for behind a kernel of its own.
static bool waits_for_caller(const hd_cuda_plan *plan)
{
    for (int64_t i = 0; i < plan->steps->nsteps; i++) {
        const hd_step *step = &plan->steps->step[i];

        for (int k = 0; k < hd_step_records(step); k++)
            if (step->record[k].step < 0)
                return true;
    }
    return false;
}

// Why none that waits is a kernel; NULL: one may be. In a graph nobody has
// shown that branches run beside each other, nor in what the caller captures.
// Whoever shares the device has copies within it, which may take processors.
static const char *why_none_waits(const hd_cuda_plan *plan)
{
    const hd_device *device = plan->device;

    if (device->binding.graph || device->captures != NULL)
        return "it waits, and runs are graphs, or the caller's captures";
    if (device->peers->shares_device)
        return "it waits, and another rank has the same device";
    if (has_kernels(plan))
        return "it waits, and not all transfers are copies";
    return waits_for_caller(plan)
               ? "it waits, and the program waits for events of the caller's"
               : NULL;
}

// Whether some indices of both, in dimensions from `d` on, are `delta` elements
// apart. Strides are the same, and positive where there is more than an index.
// Where `tries` come to 0 they may be.
static bool meet_from(const hd_span *a, const hd_span *b, int d, int64_t delta,
                      int *tries)
{
    int64_t below = 0, above = 0, stride;

    if (d == a->ndims)
        return delta == 0;
    for (int e = d + 1; e < a->ndims; e++) {
        below += (b->extent[e] - 1) * a->stride[e];
        above += (a->extent[e] - 1) * a->stride[e];
    }
    stride = a->stride[d];
    for (int64_t q = 1 - b->extent[d]; q < a->extent[d]; q++) {
        int64_t rest = delta - q * stride;

        if (rest > above) {
            // To the first index that may do.
            q += stride > 0 ? (rest - above - 1) / stride : 0;
            continue;
        }
        if (rest < -below || --*tries <= 0)
            return *tries <= 0;
        if (meet_from(a, b, d + 1, rest, tries))
            return true;
    }
    return false;
}

// Whether they have an element in common; of other strides than each other's,
// whether they may.
static bool meet(const hd_span *a, const hd_span *b)
{
    int tries = 1 << 12;

    if (!hd_span_overlaps(a, b) || a->ndims != b->ndims ||
        memcmp(a->stride, b->stride, sizeof *a->stride * (size_t)a->ndims) != 0)
        return hd_span_overlaps(a, b);
    for (int d = 0; d < a->ndims; d++)
        if (a->stride[d] <= 0 && (a->extent[d] > 1 || b->extent[d] > 1))
            return true;
    return meet_from(a, b, 0, b->offset - a->offset, &tries);
}

// Whether one makes, or takes the place of, what the other has: on a stream
// they follow each other, and tiles of both are done at once.
static bool are_tied(const hd_step *a, const hd_step *b)
{
    for (int i = 0; i < a->op->nviews; i++)
        for (int k = 0; k < b->op->nviews; k++)
            if (((hd_op_access(a->op, i) | hd_op_access(b->op, k)) &
                 HD_ACCESS_WRITE) != 0 &&
                meet(&a->span[i], &b->span[k]))
                return true;
    return false;
}

static bool have_ties(const launch *l)
{
    for (int i = 0; i < l->row.products; i++)
        for (int k = 0; k < i; k++)
            if (are_tied(l->row.product[k], l->row.product[i]))
                return true;
    return false;
}

// `waiting` is why none that waits is a kernel.
static hd_status judge(hd_cuda_plan *plan, launch *l, const char *waiting,
                       hd_diag *diag)
{
    if (l->why != NULL)
        return HD_OK;
    if (l->row.products < 2)
        refuse(l, "it has one product alone");
    else if (plan->module->nsizes > 0)
        refuse(l, "runs have sizes");
    else if (l->row.words > 0 && waiting != NULL)
        refuse(l, waiting);
    else if (!are_alike(l))
        refuse(l, "its products are not alike, or not for tiles of sm_90a");
    else if (have_ties(l))
        refuse(l, "a product of it has to do with what another one makes");
    else if (!hd_cuda_best_tiles(plan, l->first->stream + 1, &l->row,
                                 &l->tiles))
        refuse(l, "there are no tiles for its products on this device");
    else
        return check_bytes(plan, l, diag);
    return HD_OK;
}

static bool is_alone(const hd_cuda_plan *plan, const hd_step *first)
{
    bool gathers = hd_op_is(first->op, HD_UNIT_TRANSFER);
    int axis = gathers ? first->op->axis : first[1].op->axis;

    return plan->module->axis[axis].size == 1;
}

// A provider's, or none that has a collective.
static bool is_paired(hd_cuda_plan *plan, launch *l)
{
    const char *why = hd_cuda_fused_why(plan->device, l->first);

    if (why == NULL)
        return false;
    l->provided = *why == '\0';
    l->alone = is_alone(plan, l->first);
    l->why = l->provided ? NULL : why;
    return true;
}

// ------------------------------------------------------------------ finding

#define AS_PARTS "the launch is done as its parts: %s"

// Of those that are no kernels the first is told to who makes the session.
static void tell(const hd_cuda_plan *plan, const launch *l, bool *told,
                 hd_diag *diag)
{
    hd_loc at = (l->row.products > 0 ? l->row.product[0] : l->first)->op->loc;
    int rank = plan->device->rank;
    const hd_source *outer;

    if (l->provided) {
        hd_log(HD_SEVERITY_NOTE,
               "rank %d: the launch of line %u is a call of %s", rank, at.line,
               plan->device->provider->text(plan->device));
        return;
    }
    if (l->why == NULL) {
        hd_log(HD_SEVERITY_NOTE,
               "rank %d: the launch of line %u is one kernel: %d products, "
               "tiles of %d by %d",
               rank, at.line, l->row.products, l->tiles.rows, l->tiles.columns);
        return;
    }
    hd_log(HD_SEVERITY_NOTE, "rank %d: line %u: " AS_PARTS, rank, at.line,
           l->why);
    if (rank == 0 && !*told && !l->alone) {
        outer = hd_diag_source(diag, &plan->device->binding.module->source);
        hd_warning(diag, HD_CODE_NONE, at, AS_PARTS, l->why);
        hd_diag_source(diag, outer);
    }
    *told |= !l->alone;
}

// A word for each record that a product waits for, from 1.
static void number_gates(hd_cuda_plan *plan, const launch *l, int *n)
{
    for (int i = 0; i < l->row.products; i++)
        for (int k = 0; k < l->nwaits[i]; k++) {
            int *gate = &plan->gate[l->wait[i][k]];

            if (*gate == 0)
                *gate = ++*n;
        }
}

static hd_status alloc_gates(hd_device *device, int n, hd_diag *diag)
{
    if (n == 0 || device->gates != 0)
        return HD_OK;
    device->gate_bytes = (size_t)n * sizeof(uint32_t);
    return hd_cuda_take_zeroed(device, device->gate_bytes, diag,
                               &device->gates);
}

hd_status hd_cuda_launches_find(hd_cuda_plan *plan, const int *events,
                                hd_diag *diag)
{
    const hd_steps *steps = plan->steps;
    const char *waiting = why_none_waits(plan);
    bool told = false;
    int gates = 0;
    launch l;

    for (int64_t i = 0; i < steps->nsteps; i += l.n) {
        l = (launch){.n = 1};
        if (steps->step[i].launch == 0)
            continue;
        l = look(plan, &steps->step[i], events);
        if (!is_paired(plan, &l))
            HD_TRY(judge(plan, &l, waiting, diag));
        tell(plan, &l, &told, diag);
        if (l.why != NULL)
            continue;
        number_gates(plan, &l, &gates);
        for (int k = 0; k < l.n; k++)
            plan->launched[i + k] = l.n - k;
    }
    return alloc_gates(plan->device, gates, diag);
}

// ----------------------------------------------------------------- planning

// A few limits alone, as each is another kernel: powers of two, in seconds. It
// is the watch that ends a wait in time; this one ends what nobody watches.
static int64_t limit_of(const hd_device *device)
{
    int64_t seconds = 1;

    while (seconds < 1 << 20 && (double)seconds < 2 * device->binding.timeout)
        seconds *= 2;
    return seconds * 1000000000;
}

static void list_words(const hd_cuda_plan *plan, const launch *l,
                       hd_cu_ptr *out)
{
    for (int i = 0; i < l->row.products; i++)
        for (int k = 0; k < l->row.words; k++)
            *out++ =
                k < l->nwaits[i] ? hd_cuda_gate_of(plan, l->wait[i][k]) : 0;
}

// What is waited for behind all products the stream waits for.
static hd_status plan_rest(hd_cuda_plan *plan, const launch *l,
                           const int *events, hd_diag *diag)
{
    int stream = l->first->stream + 1;

    for (int k = 0; k < l->nwaits[l->row.products]; k++)
        HD_TRY(hd_cuda_add_event(plan, HD_CUDA_WAIT, stream, l->first,
                                 events[l->wait[l->row.products][k]], diag));
    return HD_OK;
}

hd_status hd_cuda_plan_launch(hd_cuda_plan *plan, const hd_step *first,
                              const int *events, hd_diag *diag)
{
    hd_cu_ptr words[HD_TILES_PRODUCTS * HD_TILES_WORDS];
    launch l = look(plan, first, events);
    int stream = first->stream + 1;
    bool found;

    if (is_paired(plan, &l))
        return hd_cuda_fused_plan(plan, first, diag);
    l.row.limit = limit_of(plan->device);
    list_words(plan, &l, words);
    found = hd_cuda_best_tiles(plan, stream, &l.row, &l.tiles);
    (void)found;
    assert(found && "no other launch is a kernel");
    HD_TRY(hd_cuda_add_row(plan, stream, &l.row, &l.tiles, words, diag));
    return plan_rest(plan, &l, events, diag);
}
