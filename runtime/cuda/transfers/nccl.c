// Transfers by NCCL: a communicator for each line of ranks along an axis of the
// mesh, a group of transfers one NCCL group. Its kernels wait for peers on the
// device, so that a failure aborts the communicators.
//
// Communicators are the home's: a session takes one that another has joined, if
// all of its ranks have it and each is connected with those that it meets.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"
#include "ir/transport.h"
#include "runtime/cuda/transfers/comm.h"
#include "runtime/cuda/transfers/fused.h"
#include "runtime/cuda/transfers/nccl.h"
#include "runtime/cuda/transfers/transport.h"
#include "runtime/cuda/vendor/library.h"
#include "runtime/failure.h"

#define ENDING 10   // s that NCCL may take to end communicators of all ranks
#define GRACE 0.2   // s that peers which have not left are waited for
#define GIVING_UP 3 // s that NCCL may take to end one that was not joined

// A communicator. It stays until the home ends.
typedef struct line {
    struct line *next;
    hd_cuda_home *home; // borrowed: what ends it owns it together with others
    uint64_t name;      // the same on all of its ranks; 0: it was not joined
    int size;
    int *rank;   // owned: of the group, by rank of the communicator
    bool *meets; // owned, by rank of the communicator: it is connected with
    // Owned, guarded by the lock: NULL where there is none, and from when it is
    // taken out to be ended. The second one blocks, and is what runs go by.
    hd_nccl_comm comm, used;
    hd_nccl_comm
        ended[2]; // owned by the thread that ends them, if it has begun
    bool begun, aborts;
} line;

// What sessions of a home have in common.
struct hd_cuda_lines {
    hd_library library;
    hd_nccl_api api;
    pthread_mutex_t lock; // held while a communicator is used
    // Owned: the newest. The thread that makes sessions is alone in adding
    // some, with the lock, and looks through them without it; all others hold
    // it.
    line *first;
    // Threads that end a communicator, and the home: the last releases it.
    atomic_int hands;
    hd_cuda_release *release;
};

struct hd_cuda_nccl {
    hd_nccl_api api;         // a copy of the home's
    line *line[HD_MAX_AXES]; // borrowed from the home
    // Owned, by step: where all ranks' operands of what NCCL only gathers are
    // put together.
    hd_cuda_at *gathered;
    int ahead; // of a plan being made: the event of the calls before, -1 for
               // none that others wait for
};

static hd_status nccl_error(const hd_device *device, int error, hd_diag *diag,
                            const char *call)
{
    return hd_fail(diag, HD_ERROR_SYSTEM, "rank %d: NCCL refused '%s': %s",
                   device->rank, call, device->nccl->api.error_text(error));
}

// Also what is in progress: whom runs go by blocks, so NCCL is done with a call
// when it returns.
#define NCCL_TRY(device, diag, name, ...)                       \
    do {                                                        \
        int error_ = (device)->nccl->api.name(__VA_ARGS__);     \
        if (error_ != HD_NCCL_SUCCESS)                          \
            return nccl_error((device), error_, (diag), #name); \
    } while (0)

// What NCCL does not know goes as bytes, and is not reduced there.
static int type_of(hd_dtype dtype)
{
    switch (dtype) {
    case HD_DTYPE_F64:
        return HD_NCCL_F64;
    case HD_DTYPE_F32:
        return HD_NCCL_F32;
    case HD_DTYPE_F16:
        return HD_NCCL_F16;
    case HD_DTYPE_BF16:
        return HD_NCCL_BF16;
    case HD_DTYPE_I64:
        return HD_NCCL_I64;
    case HD_DTYPE_I32:
        return HD_NCCL_I32;
    case HD_DTYPE_U8:
        return HD_NCCL_U8;
    case HD_DTYPE_I8:
        return HD_NCCL_I8;
    case HD_DTYPE_F8E4M3:
    case HD_DTYPE_F8E5M2:
    case HD_DTYPE_EVENT:
        break;
    }
    return HD_NCCL_U8;
}

static bool by_nccl(const hd_device *device, const hd_step *step)
{
    return hd_transport_of(&device->binding, step) == HD_TRANSPORT_NCCL;
}

static int op_of(hd_fold fold)
{
    switch (fold) {
    case HD_FOLD_MAX:
        return HD_NCCL_MAX;
    case HD_FOLD_MIN:
        return HD_NCCL_MIN;
    case HD_FOLD_NONE:
    case HD_FOLD_SUM:
        break;
    }
    return HD_NCCL_SUM;
}

// Whether NCCL only gathers what is reduced, and a kernel does the rest.
static bool only_gathers(const hd_device *device, const hd_step *step)
{
    return by_nccl(device, step) && hd_nccl_only_gathers(step->op) &&
           device->binding.module->axis[step->op->axis].size > 1;
}

static bool has_comm(const hd_device *device, int axis)
{
    return device->binding.module->axis[axis].size > 1 &&
           (device->binding.transport[axis] == HD_TRANSPORT_NCCL ||
            hd_cuda_fused_axis(device) == axis);
}

// Whether the step is a collective whose pieces NCCL takes one by one where
// they have gaps between them, and whether these have: in every run, if they
// do in some.
static bool has_pieces(const hd_step *step, bool *spaced)
{
    int view = hd_nccl_pieces(step->op);

    if (view >= 0)
        *spaced = !hd_span_is_dense(&step->span[view]) ||
                  hd_view_is_sized(&step->op->view[view]);
    return view >= 0;
}

static bool is_spaced(const hd_step *step)
{
    bool spaced = false;

    return has_pieces(step, &spaced) && spaced;
}

typedef struct likeness {
    const hd_device *device;
    int axis;
    int64_t next; // of our steps
    hd_diag *diag;
} likeness;

// Our next collective along the axis that has pieces; NULL after the last.
static const hd_step *next_pieces(likeness *like)
{
    const hd_steps *steps = like->device->binding.steps;

    while (like->next < steps->nsteps) {
        const hd_step *step = &steps->step[like->next++];

        if (step->op->axis == like->axis && hd_nccl_pieces(step->op) >= 0)
            return step;
    }
    return NULL;
}

static const char *pieces_of(const hd_step *step)
{
    return step->span[hd_nccl_pieces(step->op)].buffer->name;
}

static hd_status compare_pieces(void *context, const hd_step *steps, int n)
{
    likeness *like = context;

    for (int i = 0; i < n; i++) {
        const hd_step *theirs = &steps[i], *ours;
        bool spaced;

        if (theirs->op->axis != like->axis || !has_pieces(theirs, &spaced))
            continue;
        ours = next_pieces(like);
        if (ours == NULL || !is_spaced(ours) || spaced)
            continue;
        return hd_fail(like->diag, HD_ERROR_UNSUPPORTED,
                       "NCCL does no %s with gaps between the pieces of %%%s "
                       "on rank %lld (line %u) and without in %%%s on rank "
                       "%lld (line %u); the copy transport does",
                       hd_op_info_get(ours->op->code)->text, pieces_of(ours),
                       (long long)ours->rank, ours->op->loc.line,
                       pieces_of(theirs), (long long)theirs->rank,
                       theirs->op->loc.line);
    }
    return HD_OK;
}

// What has gaps goes piece by piece, so it has to on all ranks alike. A rank
// looks where its own has some: one of those that differ does.
static hd_status check_pieces(const hd_device *device, hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    const hd_steps *steps = device->binding.steps;
    bool spaced[HD_MAX_AXES] = {false};

    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];

        if (by_nccl(device, step) && is_spaced(step))
            spaced[step->op->axis] = true;
    }
    for (int a = 0; a < module->naxes; a++) {
        for (int64_t k = 0; spaced[a] && k < module->axis[a].size; k++) {
            int64_t peer = hd_mesh_peer(module, device->rank, a, k);
            likeness like = {device, a, 0, diag};

            if (peer != device->rank)
                HD_TRY(hd_walk(module, peer, diag, compare_pieces, &like));
        }
    }
    return HD_OK;
}

static bool is_pair(const hd_step *step)
{
    return step->op->code == HD_OP_SEND || step->op->code == HD_OP_RECV;
}

// What is sent and received, to or from more than one peer. NCCL's own
// all_gather leaves no gaps between the ranks' pieces.
static bool is_exchange(const hd_device *device, const hd_step *step)
{
    return step->op->code == HD_OP_ALL_TO_ALL ||
           (step->op->code != HD_OP_ALL_REDUCE && only_gathers(device, step)) ||
           (step->op->code == HD_OP_ALL_GATHER && is_spaced(step));
}

// Whom this rank sends anything to along an axis, or receives from: both sides
// find it so.
static void find_met(const hd_device *device, int axis, bool *meets)
{
    const hd_module *module = device->binding.module;
    const hd_steps *steps = device->binding.steps;

    memset(meets, 0, HD_MAX_RANKS * sizeof *meets);
    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];

        if (!hd_op_is(step->op, HD_UNIT_TRANSFER) || step->op->axis != axis ||
            !by_nccl(device, step))
            continue;
        if (is_pair(step))
            meets[hd_mesh_coord(module, step->peer, axis)] = true;
        for (int64_t k = 0;
             is_exchange(device, step) && k < module->axis[axis].size; k++)
            meets[k] = true;
    }
    meets[hd_mesh_coord(module, device->rank, axis)] = false;
}

// ------------------------------------------------------- communicators

#define OFFERED 16 // communicators that a rank may have for an axis

// What a rank has for each axis, the newest first; 0 behind the last.
typedef struct offer {
    uint64_t name[HD_MAX_AXES][OFFERED];
} offer;

// This rank's line along an axis: ranks of the group.
static int line_of(const hd_module *module, int64_t rank, int axis, int *out)
{
    int n = (int)module->axis[axis].size;

    for (int i = 0; i < n; i++)
        out[i] = (int)hd_mesh_peer(module, rank, axis, i);
    return n;
}

static bool serves(const line *line, const int *rank, int n, const bool *meets)
{
    bool does = line->name != 0 && line->size == n &&
                memcmp(line->rank, rank, (size_t)n * sizeof *rank) == 0;

    for (int i = 0; does && i < n; i++)
        does = line->meets[i] || !meets[i];
    return does;
}

static void offer_axis(const hd_device *device, int axis, uint64_t *out)
{
    bool meets[HD_MAX_RANKS];
    int rank[HD_MAX_RANKS], offered = 0;
    int n = line_of(device->binding.module, device->rank, axis, rank);

    find_met(device, axis, meets);
    for (const line *line = device->home->lines->first;
         line != NULL && offered < OFFERED; line = line->next) {
        if (serves(line, rank, n, meets))
            out[offered++] = line->name;
    }
}

static bool is_offered(const uint64_t *names, uint64_t name)
{
    bool found = false;

    for (int i = 0; i < OFFERED; i++)
        found = found || names[i] == name;
    return found;
}

// The first that the first rank of the line of `rank` has and all others have
// too; 0 if there is none. All ranks find the same.
static uint64_t agree_on(const hd_module *module, int64_t rank, int axis,
                         const offer *all)
{
    int64_t root = hd_mesh_peer(module, rank, axis, 0);

    for (int k = 0; k < OFFERED; k++) {
        uint64_t name = all[root].name[axis][k];
        bool common = name != 0;

        for (int64_t i = 1; common && i < module->axis[axis].size; i++)
            common = is_offered(
                all[hd_mesh_peer(module, rank, axis, i)].name[axis], name);
        if (common)
            return name;
    }
    return 0;
}

static hd_status open_lines(hd_device *device, hd_diag *diag)
{
    hd_cuda_home *home = device->home;
    hd_cuda_lines *lines;
    hd_status status;

    if (home->lines != NULL)
        return HD_OK;
    lines = calloc(1, sizeof *lines);
    if (lines == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for communicators");
    status =
        hd_library_open(&hd_nccl_library, &lines->api, diag, &lines->library);
    if (status != HD_OK) {
        free(lines);
        return status;
    }
    pthread_mutex_init(&lines->lock, NULL);
    atomic_init(&lines->hands, 1);
    home->lines = lines;
    return HD_OK;
}

// Every rank takes part, so that a failure here is one everywhere.
static hd_status share_offers(hd_device *device, hd_exchange *exchange,
                              hd_diag *diag, offer *all)
{
    offer mine;
    hd_status status = check_pieces(device, diag);

    memset(&mine, 0, sizeof mine);
    if (status == HD_OK)
        status = open_lines(device, diag);
    if (status == HD_OK)
        device->nccl->api = device->home->lines->api;
    for (int a = 0; a < device->binding.module->naxes && status == HD_OK; a++) {
        if (has_comm(device, a))
            offer_axis(device, a, mine.name[a]);
    }
    HD_TRY(hd_exchange_agree(exchange, status));
    return hd_exchange_allgather(exchange, &mine, sizeof mine, all);
}

// The first rank of each line that has none in common makes the id of one.
static hd_status share_ids(hd_device *device, hd_exchange *exchange,
                           const offer *offers, hd_nccl_id *all, hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    hd_nccl_id mine[HD_MAX_AXES];
    hd_status status = HD_OK;

    memset(mine, 0, sizeof mine);
    for (int a = 0; a < module->naxes && status == HD_OK; a++) {
        int error = HD_NCCL_SUCCESS;

        if (has_comm(device, a) &&
            hd_mesh_coord(module, device->rank, a) == 0 &&
            agree_on(module, device->rank, a, offers) == 0)
            error = device->nccl->api.unique_id(&mine[a]);
        if (error != HD_NCCL_SUCCESS)
            status = nccl_error(device, error, diag, "unique_id");
    }
    HD_TRY(hd_exchange_agree(exchange, status));
    return hd_exchange_allgather(exchange, mine, sizeof mine, all);
}

// Whether some line of some axis has none in common.
static bool lack_any(const hd_device *device, const offer *offers)
{
    const hd_module *module = device->binding.module;
    bool lack = false;

    for (int a = 0; a < module->naxes; a++)
        for (int rank = 0; has_comm(device, a) && rank < device->size; rank++)
            lack = lack || agree_on(module, rank, a, offers) == 0;
    return lack;
}

static uint64_t name_of(const hd_nccl_id *id)
{
    const unsigned char *byte = (const void *)id;
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < sizeof *id; i++)
        hash = (hash ^ byte[i]) * 1099511628211u;
    return hash | 1; // 0 is none
}

static void free_line(line *line)
{
    free(line->rank);
    free(line->meets);
    free(line);
}

static line *new_line(const hd_device *device, int axis)
{
    const hd_module *module = device->binding.module;
    size_t n = (size_t)module->axis[axis].size;
    line *line = calloc(1, sizeof *line);
    bool meets[HD_MAX_RANKS];

    if (line == NULL)
        return NULL;
    line->rank = calloc(n, sizeof *line->rank);
    line->meets = calloc(n, sizeof *line->meets);
    if (line->rank == NULL || line->meets == NULL) {
        free_line(line);
        return NULL;
    }
    line->home = device->home;
    line->size = line_of(module, device->rank, axis, line->rank);
    find_met(device, axis, meets);
    memcpy(line->meets, meets, n * sizeof *meets);
    return line;
}

static void keep_line(hd_cuda_lines *lines, line *line)
{
    pthread_mutex_lock(&lines->lock);
    line->next = lines->first;
    lines->first = line;
    pthread_mutex_unlock(&lines->lock);
}

// ---------------------------------------------------- their end

static void free_lines(hd_cuda_lines *lines)
{
    while (lines->first != NULL) {
        line *line = lines->first;

        lines->first = line->next;
        free_line(line);
    }
    hd_library_close(&lines->library);
    pthread_mutex_destroy(&lines->lock);
    free(lines);
}

// Each sees what the others have done: it releases, and acquires.
static void drop_hand(hd_cuda_home *home)
{
    hd_cuda_lines *lines = home->lines;
    hd_cuda_release *release;

    if (atomic_fetch_sub_explicit(&lines->hands, 1, memory_order_acq_rel) != 1)
        return;
    release = lines->release;
    free_lines(lines);
    home->lines = NULL;
    release(home);
}

// NCCL ends a communicator only when its last kernel has ended and the last
// graph with a call of it is gone, and waits for both, and for its other ranks
// of the host to do the same. So the wait is a thread of its own.
static void *end_comm(void *context)
{
    line *line = context;
    hd_cuda_home *home = line->home;
    const hd_nccl_api *api = &home->lines->api;
    bool entered = home->cu.context_push(home->context) == HD_CU_SUCCESS;

    if (entered)
        (void)home->cu.capture_mode(&(int){HD_CU_CAPTURE_RELAXED});
    for (int i = 0; i < 2; i++) {
        if (line->ended[i] != NULL)
            (line->aborts ? api->comm_abort
                          : api->comm_destroy)(line->ended[i]);
    }
    if (entered)
        home->cu.context_pop(&(hd_cu_context){0});
    drop_hand(home);
    return NULL;
}

// Where no thread is to be had, another one is asked for when all is closed.
// The caller has the lock, or is alone.
static void begin_end(line *line, bool aborts)
{
    hd_cuda_lines *lines = line->home->lines;
    pthread_t thread;

    if (line->begun || (line->comm == NULL && line->ended[1] == NULL))
        return;
    if (line->comm != NULL) {
        line->ended[0] = line->used; // ahead of what it is split from
        line->ended[1] = line->comm;
        line->comm = line->used = NULL;
        line->aborts = aborts;
    }
    atomic_fetch_add_explicit(&lines->hands, 1, memory_order_relaxed);
    line->begun = pthread_create(&thread, NULL, end_comm, line) == 0;
    if (line->begun)
        pthread_detach(thread);
    else
        atomic_fetch_sub_explicit(&lines->hands, 1, memory_order_relaxed);
}

// All of them; false if there is no thread for one.
static bool begin_ends(hd_cuda_lines *lines, bool aborts)
{
    bool begun = true;

    for (line *line = lines->first; line != NULL; line = line->next) {
        begin_end(line, aborts);
        begun = begun && (line->begun || line->ended[1] == NULL);
    }
    return begun;
}

// Pairs with the release in drop_hand.
static bool await_hands(hd_cuda_lines *lines, int most, int64_t deadline)
{
    while (atomic_load_explicit(&lines->hands, memory_order_acquire) > most) {
        if (hd_clock() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

bool hd_cuda_nccl_rest(hd_cuda_home *home)
{
    hd_cuda_lines *lines = home->lines;

    if (lines == NULL || !hd_failure_is_set(&home->failure))
        return true;
    return begin_ends(lines, true) &&
           await_hands(lines, 1, hd_clock_after(ENDING));
}

static bool have_left(const hd_cuda_home *home)
{
    bool left = true;

    for (const line *line = home->lines->first; line != NULL; line = line->next)
        for (int i = 0; i < line->size; i++)
            left = left && (line->rank[i] == home->rank ||
                            hd_group_left(home->group, line->rank[i]));
    return left;
}

void hd_cuda_nccl_end(hd_cuda_home *home, hd_cuda_release *release)
{
    hd_cuda_lines *lines = home->lines;
    int64_t patience = hd_clock_after(GRACE);
    int64_t deadline = hd_clock_after(ENDING);

    if (lines == NULL) {
        release(home);
        return;
    }
    lines->release = release;
    if (!begin_ends(lines, false))
        return;
    while (!await_hands(lines, 1, hd_clock()) &&
           !hd_group_failed(home->group) &&
           hd_clock() < (have_left(home) ? deadline : patience))
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    drop_hand(home);
}

// A call of a library that uses one may itself wait for a peer, and only this
// ends it then: so the lock is not waited for without end.
void hd_cuda_nccl_abort(hd_device *device)
{
    hd_cuda_lines *lines = device->home->lines;
    bool locked;

    if (device->nccl == NULL || lines == NULL)
        return;
    locked = hd_lock_until(&lines->lock, hd_clock_after(1));
    (void)begin_ends(lines, true);
    if (locked)
        pthread_mutex_unlock(&lines->lock);
}

// What was not joined leaves nothing behind, unless NCCL does not let go of it.
static void end_unjoined(hd_device *device, line *line)
{
    hd_cuda_lines *lines = device->home->lines;
    int before = atomic_load_explicit(&lines->hands, memory_order_relaxed);

    begin_end(line, true);
    keep_line(lines, line);
    if (!await_hands(lines, before, hd_clock_after(GIVING_UP)) ||
        (line->ended[1] != NULL && !line->begun))
        hd_cuda_set_stuck(device, true);
}

static hd_status join_line(hd_device *device, int axis, line *line,
                           const hd_nccl_id *id, hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    hd_cuda_joining joining = {
        .device = device,
        .nccl = &device->nccl->api,
        .axis = module->axis[axis].name,
        .size = line->size,
        .rank = (int)hd_mesh_coord(module, device->rank, axis),
        .meets = line->meets};
    hd_status status =
        hd_cuda_comm_join(&joining, id, diag, &line->comm, &line->used);

    if (status == HD_OK) {
        line->name = name_of(id);
        keep_line(device->home->lines, line);
    } else {
        end_unjoined(device, line);
    }
    if (!hd_cuda_is_stuck(device))
        hd_cuda_comm_leave(&joining);
    return status;
}

static hd_status join_axis(hd_device *device, int axis, const hd_nccl_id *id,
                           hd_diag *diag)
{
    line *line = new_line(device, axis);

    if (line == NULL) {
        hd_group_run_out(device->binding.group);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for communicators");
    }
    HD_TRY(join_line(device, axis, line, id, diag));
    device->nccl->line[axis] = line;
    return HD_OK;
}

static line *find_line(const hd_cuda_lines *lines, uint64_t name)
{
    line *line = lines->first;

    while (line->name != name)
        line = line->next;
    return line;
}

static hd_status get_axis(hd_device *device, int axis, const offer *offers,
                          const hd_nccl_id *ids, hd_diag *diag)
{
    const hd_module *module = device->binding.module;
    int64_t root = hd_mesh_peer(module, device->rank, axis, 0);
    uint64_t name;

    if (!has_comm(device, axis))
        return HD_OK;
    name = agree_on(module, device->rank, axis, offers);
    if (name == 0)
        return join_axis(device, axis, &ids[root * HD_MAX_AXES + axis], diag);
    device->nccl->line[axis] = find_line(device->home->lines, name);
    return HD_OK;
}

static hd_status get_all(hd_device *device, offer *offers, hd_nccl_id *ids,
                         hd_diag *diag)
{
    hd_exchange exchange = hd_exchange_begin(
        device->binding.group, HD_CALL_SESSION, device->binding.timeout, diag);

    HD_TRY(share_offers(device, &exchange, diag, offers));
    if (lack_any(device, offers))
        HD_TRY(share_ids(device, &exchange, offers, ids, diag));
    for (int a = 0; a < device->binding.module->naxes; a++)
        HD_TRY(get_axis(device, a, offers, ids, diag));
    return HD_OK;
}

static hd_cuda_nccl *new_nccl(const hd_device *device)
{
    hd_cuda_nccl *nccl = calloc(1, sizeof *nccl);

    if (nccl == NULL)
        return NULL;
    nccl->gathered = calloc((size_t)device->binding.steps->nsteps + 1,
                            sizeof *nccl->gathered);
    if (nccl->gathered == NULL) {
        free(nccl);
        return NULL;
    }
    nccl->ahead = -1;
    return nccl;
}

hd_status hd_cuda_nccl_open(hd_device *device, hd_diag *diag)
{
    size_t size = (size_t)device->size;
    hd_nccl_id *ids = calloc(size * HD_MAX_AXES, sizeof *ids);
    offer *offers = calloc(size, sizeof *offers);
    hd_status status;

    device->nccl = new_nccl(device);
    if (ids == NULL || offers == NULL || device->nccl == NULL) {
        hd_group_run_out(device->binding.group);
        status =
            hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for communicators");
    } else {
        status = get_all(device, offers, ids, diag);
    }
    free(offers);
    free(ids);
    return status;
}

void hd_cuda_nccl_close(hd_device *device)
{
    if (device->nccl == NULL)
        return;
    free(device->nccl->gathered);
    free(device->nccl);
    device->nccl = NULL;
}

// The caller has the lock.
static hd_status find_error(const hd_device *device, hd_diag *diag, int *out)
{
    for (int a = 0; a < HD_MAX_AXES && *out == HD_NCCL_SUCCESS; a++) {
        const line *line = device->nccl->line[a];

        if (line != NULL && line->used != NULL)
            NCCL_TRY(device, diag, async_error, line->used, out);
    }
    return HD_OK;
}

hd_status hd_cuda_nccl_check(hd_device *device, int64_t deadline, hd_diag *diag,
                             bool *told)
{
    char text[HD_GROUP_TEXT];
    int error = HD_NCCL_SUCCESS;
    hd_status status;

    if (device->nccl == NULL)
        return HD_OK;
    *told = hd_lock_until(&device->home->lines->lock, deadline);
    if (!*told)
        return HD_OK;
    status = find_error(device, diag, &error);
    pthread_mutex_unlock(&device->home->lines->lock);
    HD_TRY(status);
    if (error == HD_NCCL_SUCCESS) // or the communicator is gone
        return hd_cuda_report(device, diag);
    // The peer at fault knows more: its words are on their way.
    for (int i = 0; i < 1000 && !hd_cuda_has_failed(device); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    snprintf(text, sizeof text, "rank %d: NCCL failed in a run: %s",
             device->rank, device->nccl->api.error_text(error));
    hd_cuda_fail(device, HD_ERROR_PEER, text, "");
    return hd_cuda_report(device, diag);
}

// ----------------------------------------------------------- transfers

typedef struct call_args {
    hd_device *device;
    const hd_step *step;
    hd_nccl_comm comm;
    hd_cu_stream stream;
    hd_diag *diag;
    int type;
} call_args;

static void *at(const call_args *call, int span)
{
    return (void *)(uintptr_t)hd_cuda_address(
        call->device, hd_cuda_at_span(&call->step->span[span]));
}

static size_t count(const call_args *call, int span)
{
    return (size_t)hd_span_elements(&call->step->span[span]);
}

// The bytes from one rank's piece of a span to the next one's.
static size_t piece_stride(const hd_span *span)
{
    return (size_t)span->stride[0] * hd_dtype_size(span->buffer->type.dtype);
}

// 0 for a step that leaves all to NCCL.
static hd_cu_ptr gathered_at(const call_args *call)
{
    const hd_cuda_nccl *nccl = call->device->nccl;

    return only_gathers(call->device, call->step)
               ? hd_cuda_address(call->device,
                                 nccl->gathered[call->step->index])
               : 0;
}

// Piece by piece, each to or from where it lies.
static hd_status exchange_all(const call_args *call)
{
    const hd_module *module = call->device->binding.module;
    const hd_span *span = call->step->span;
    int n = (int)module->axis[call->step->op->axis].size;
    hd_cu_ptr gathered = gathered_at(call);
    size_t each = count(call, 0) / (gathered != 0 ? 1 : (size_t)n);
    size_t stride = gathered != 0
                        ? each * hd_dtype_size(span[0].buffer->type.dtype)
                        : piece_stride(&span[0]);
    bool gathers = call->step->op->code == HD_OP_ALL_GATHER;

    for (int i = 0; i < n; i++) {
        char *from = (char *)at(call, 1) +
                     (gathers ? 0 : (size_t)i * piece_stride(&span[1]));
        char *to = (gathered != 0 ? (char *)(uintptr_t)gathered
                                  : (char *)at(call, 0)) +
                   (size_t)i * stride;

        NCCL_TRY(call->device, call->diag, send, from, each, call->type, i,
                 call->comm, call->stream);
        NCCL_TRY(call->device, call->diag, recv, to, each, call->type, i,
                 call->comm, call->stream);
    }
    return HD_OK;
}

// What all ranks bring comes to the root, its own too.
static hd_status gather_at_root(const call_args *call, int root)
{
    const hd_step *step = call->step;
    const hd_module *module = call->device->binding.module;
    int n = (int)module->axis[step->op->axis].size;
    size_t each = count(call, step->op->noutputs); // as for ncclReduce
    size_t bytes = each * hd_dtype_size(step->span[0].buffer->type.dtype);

    NCCL_TRY(call->device, call->diag, send, at(call, step->op->noutputs), each,
             call->type, root, call->comm, call->stream);
    for (int i = 0; hd_step_reduces(step) && i < n; i++)
        NCCL_TRY(call->device, call->diag, recv,
                 (char *)(uintptr_t)gathered_at(call) + (size_t)i * bytes, each,
                 call->type, i, call->comm, call->stream);
    return HD_OK;
}

static hd_status gather_operands(const call_args *call, int root)
{
    hd_cu_ptr to = gathered_at(call);

    if (hd_op_is_rooted(call->step->op))
        return gather_at_root(call, root);
    if (call->step->op->code == HD_OP_REDUCE_SCATTER)
        return exchange_all(call);
    NCCL_TRY(call->device, call->diag, all_gather, at(call, 1),
             (void *)(uintptr_t)to, count(call, 1), call->type, call->comm,
             call->stream);
    return HD_OK;
}

// Each piece to its owner, from where it lies.
static hd_status reduce_each(const call_args *call)
{
    const hd_step *step = call->step;
    int n = (int)call->device->binding.module->axis[step->op->axis].size;

    for (int i = 0; i < n; i++)
        NCCL_TRY(call->device, call->diag, reduce,
                 (char *)at(call, 1) + (size_t)i * piece_stride(&step->span[1]),
                 at(call, 0), count(call, 0), call->type,
                 op_of(hd_op_fold(step->op)), i, call->comm, call->stream);
    return HD_OK;
}

// On an axis of one rank there is nobody to talk to, and what a collective
// brings about is a copy.
static hd_status copy_own(const call_args *call)
{
    const hd_step *step = call->step;
    size_t bytes =
        count(call, 0) * hd_dtype_size(step->span[0].buffer->type.dtype);

    if (step->op->noutputs == 0 || at(call, 0) == at(call, 1) || bytes == 0)
        return HD_OK;
    HD_CUDA_TRY(call->device, call->diag, copy,
                (hd_cu_ptr)(uintptr_t)at(call, 0),
                (hd_cu_ptr)(uintptr_t)at(call, 1), bytes, call->stream);
    return HD_OK;
}

static hd_status issue_one(const call_args *call)
{
    const hd_step *step = call->step;
    const hd_module *module = call->device->binding.module;
    int peer = step->peer < 0
                   ? -1
                   : (int)hd_mesh_coord(module, step->peer, step->op->axis);
    int op = op_of(hd_op_fold(step->op));

    if (only_gathers(call->device, step))
        return gather_operands(call, peer);
    switch (hd_op_move(step->op)) {
    case HD_MOVE_SEND:
        NCCL_TRY(call->device, call->diag, send, at(call, 0), count(call, 0),
                 call->type, peer, call->comm, call->stream);
        return HD_OK;
    case HD_MOVE_RECV:
        NCCL_TRY(call->device, call->diag, recv, at(call, 0), count(call, 0),
                 call->type, peer, call->comm, call->stream);
        return HD_OK;
    case HD_MOVE_ALL_GATHER:
        if (is_exchange(call->device, step))
            return exchange_all(call);
        NCCL_TRY(call->device, call->diag, all_gather, at(call, 1), at(call, 0),
                 count(call, 1), call->type, call->comm, call->stream);
        return HD_OK;
    case HD_MOVE_REDUCE_SCATTER:
        if (is_spaced(step))
            return reduce_each(call);
        NCCL_TRY(call->device, call->diag, reduce_scatter, at(call, 1),
                 at(call, 0), count(call, 0), call->type, op, call->comm,
                 call->stream);
        return HD_OK;
    case HD_MOVE_ALL_REDUCE:
        NCCL_TRY(call->device, call->diag, all_reduce, at(call, 1), at(call, 0),
                 count(call, 0), call->type, op, call->comm, call->stream);
        return HD_OK;
    case HD_MOVE_BROADCAST:
        NCCL_TRY(
            call->device, call->diag, broadcast,
            at(call, step->peer == call->device->rank ? step->op->noutputs : 0),
            at(call, 0), count(call, 0), call->type, peer, call->comm,
            call->stream);
        return HD_OK;
    case HD_MOVE_REDUCE: // what is no root's result may have another length
        NCCL_TRY(call->device, call->diag, reduce, at(call, step->op->noutputs),
                 at(call, 0), count(call, step->op->noutputs), call->type, op,
                 peer, call->comm, call->stream);
        return HD_OK;
    case HD_MOVE_NONE:
    case HD_MOVE_ALL_TO_ALL:
        break;
    }
    return exchange_all(call);
}

static hd_status issue_step(hd_device *device, const hd_cuda_command *command,
                            const hd_step *step, hd_diag *diag)
{
    bool alone = device->binding.module->axis[step->op->axis].size == 1;
    call_args call = {.device = device,
                      .step = step,
                      .comm = alone ? NULL
                                    : device->nccl->line[step->op->axis]->used,
                      .stream = device->stream[command->stream].stream,
                      .diag = diag,
                      .type = type_of(step->span[0].buffer->type.dtype)};

    return alone ? copy_own(&call) : issue_one(&call);
}

static bool is_member(const hd_device *device, const hd_step *step, int axis,
                      bool pairs)
{
    return step->op->axis == axis && by_nccl(device, step) &&
           is_pair(step) == pairs;
}

// What is sent and received along an axis, or one collective if there is one.
typedef struct batch {
    const hd_cuda_command *command;
    int axis;
    const hd_step *alone;
} batch;

static hd_status issue_steps(hd_device *device, const batch *batch,
                             hd_diag *diag)
{
    const hd_cuda_command *command = batch->command;

    if (batch->alone != NULL)
        return issue_step(device, command, batch->alone, diag);
    for (int i = 0; i < command->n; i++)
        if (is_member(device, &command->step[i], batch->axis, true))
            HD_TRY(issue_step(device, command, &command->step[i], diag));
    return HD_OK;
}

// What is more than one call of NCCL's is one group of its: it goes on
// together.
static hd_status issue_group(hd_device *device, const batch *batch,
                             hd_diag *diag)
{
    hd_status status;
    int error;

    if (batch->alone != NULL && !is_exchange(device, batch->alone) &&
        !is_spaced(batch->alone))
        return issue_steps(device, batch, diag);
    NCCL_TRY(device, diag, group_start, );
    status = issue_steps(device, batch, diag);
    error = device->nccl->api.group_end();
    if (status == HD_OK && error != HD_NCCL_SUCCESS)
        return nccl_error(device, error, diag, "group_end");
    return status;
}

// Nothing is asked of a communicator that has been aborted.
static hd_status issue_on(hd_device *device, const batch *batch, hd_diag *diag)
{
    const line *line = device->nccl->line[batch->axis];
    hd_status status = HD_OK;

    pthread_mutex_lock(&device->home->lines->lock);
    if (line == NULL || line->used != NULL)
        status = issue_group(device, batch, diag);
    pthread_mutex_unlock(&device->home->lines->lock);
    return status;
}

static void plan_gathers(hd_cuda_plan *plan, const hd_step *steps, int n,
                         int stream)
{
    hd_device *device = plan->device;

    for (int i = 0; i < n; i++) {
        const hd_step *step = &steps[i];

        // At one place, whatever the sizes.
        if (only_gathers(device, step) && hd_step_reduces(step))
            device->nccl->gathered[step->index] = hd_cuda_need(
                plan, stream, HD_CUDA_SCRATCH,
                (size_t)device->binding.module->axis[step->op->axis].size *
                    hd_piece_of(&hd_cuda_whole(device, step)->span[0], -1)
                        .bytes);
    }
}

_Static_assert(HD_NCCL_GATHERED < HD_KERNEL_POINTERS, "and the result");

static hd_status plan_reduction(hd_cuda_plan *plan, const hd_step *step,
                                int stream, hd_diag *diag)
{
    int n = (int)plan->device->binding.module->axis[step->op->axis].size;
    hd_piece out = hd_piece_of(&step->span[0], -1);
    hd_dtype dtype = step->span[0].buffer->type.dtype;
    hd_cuda_at at[HD_KERNEL_POINTERS] = {hd_cuda_at_place(out.place)};
    int64_t elements;
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (out.bytes == 0)
        return HD_OK;
    elements = (int64_t)(out.bytes / hd_dtype_size(dtype));
    HD_TRY(hd_emit_reduce(dtype, hd_op_fold(step->op), n,
                          hd_length_of_part(step, elements), diag, &text,
                          &grid));
    for (int i = 0; i < n; i++) {
        at[1 + i] = plan->device->nccl->gathered[step->index];
        at[1 + i].offset += (uint64_t)i * out.bytes;
    }
    return hd_cuda_add_kernel(plan, stream, step, &text, grid, at, 1 + n, diag);
}

static hd_status plan_reductions(hd_cuda_plan *plan, const hd_step *steps,
                                 int n, int stream, hd_diag *diag)
{
    for (int i = 0; i < n; i++)
        if (only_gathers(plan->device, &steps[i]) && hd_step_reduces(&steps[i]))
            HD_TRY(plan_reduction(plan, &steps[i], stream, diag));
    return HD_OK;
}

static bool has_several(const hd_device *device)
{
    const hd_binding *binding = &device->binding;
    int n = 0;

    for (int axis = 0; axis < binding->module->naxes; axis++)
        n += binding->transport[axis] == HD_TRANSPORT_NCCL &&
             binding->module->axis[axis].size > 1;
    return n > 1;
}

// The stream of the first calls from step `i` on, -1 if there are none.
static int next_stream(const hd_cuda_plan *plan, int64_t i)
{
    const hd_steps *steps = plan->steps;

    for (; i < steps->nsteps; i++)
        if (hd_op_is(steps->step[i].op, HD_UNIT_TRANSFER) &&
            by_nccl(plan->device, &steps->step[i]))
            return steps->step[i].stream + 1;
    return -1;
}

// NCCL promises no progress where a device begins calls of several
// communicators in another order than the host issues them. So those on another
// stream wait for the ones before, whichever communicator has them.
static hd_status plan_order(hd_cuda_plan *plan, const hd_step *last, int stream,
                            hd_diag *diag)
{
    hd_device *device = plan->device;
    int next = has_several(device) ? next_stream(plan, last->index + 1) : -1;

    if (next < 0 || next == stream)
        return HD_OK;
    HD_TRY(hd_cuda_new_event(plan, diag, &device->nccl->ahead));
    return hd_cuda_add_event(plan, HD_CUDA_RECORD, stream, last,
                             device->nccl->ahead, diag);
}

static hd_status follow_order(hd_cuda_plan *plan, const hd_step *step,
                              int stream, hd_diag *diag)
{
    int event = plan->device->nccl->ahead;

    plan->device->nccl->ahead = -1;
    return event < 0 ? HD_OK
                     : hd_cuda_add_event(plan, HD_CUDA_WAIT, stream, step,
                                         event, diag);
}

// Those of a group that go by NCCL, in one group of its. NCCL holds up its
// stream for deferred sends too.
hd_status hd_cuda_nccl_plan(hd_cuda_plan *plan, const hd_step *steps, int n,
                            int *events, hd_diag *diag)
{
    int stream = steps->stream + 1;
    hd_cuda_command *command;

    plan_gathers(plan, steps, n, stream);
    HD_TRY(follow_order(plan, steps, stream, diag));
    command = hd_cuda_add(plan, HD_CUDA_NCCL, stream, steps);
    if (command == NULL)
        return hd_cuda_no_room(plan->device, diag);
    command->n = n;
    HD_TRY(plan_order(plan, &steps[n - 1], stream, diag));
    HD_TRY(hd_cuda_mark_nccl(plan, steps, n, stream, diag));
    for (int i = 0; i < n; i++) {
        if (hd_step_defers(&steps[i]) && by_nccl(plan->device, &steps[i]))
            HD_TRY(hd_cuda_plan_record(plan, stream, &steps[i], events, diag));
    }
    return plan_reductions(plan, steps, n, stream, diag);
}

// Axis by axis each collective and then all else: the order that the proof of
// programs over NCCL goes by (docs/checking.md). Calls of one group of NCCL's
// would follow each other too, in an order that NCCL chooses.
hd_status hd_cuda_nccl_transfer(hd_device *device,
                                const hd_cuda_command *command, hd_diag *diag)
{
    for (int axis = 0; axis < device->binding.module->naxes; axis++) {
        bool pairs = false;

        for (int i = 0; i < command->n; i++) {
            const hd_step *step = &command->step[i];

            pairs |= is_member(device, step, axis, true);
            if (is_member(device, step, axis, false))
                HD_TRY(issue_on(device, &(batch){command, axis, step}, diag));
        }
        if (pairs)
            HD_TRY(issue_on(device, &(batch){command, axis, NULL}, diag));
    }
    return HD_OK;
}

hd_status hd_cuda_nccl_lend(hd_device *device, int axis, hd_cuda_lent *fn,
                            void *context, hd_diag *diag)
{
    const line *line = device->nccl->line[axis];
    hd_status status = HD_OK;

    pthread_mutex_lock(&device->home->lines->lock);
    if (line != NULL && line->used != NULL) // else aborted
        status = fn(device, line->used, context, diag);
    pthread_mutex_unlock(&device->home->lines->lock);
    return status;
}
