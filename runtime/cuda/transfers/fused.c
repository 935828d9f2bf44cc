// Which launches providers have, and what all providers have in common.
//
// A launch in the text is a provider's if each rank that does it could give it,
// and all ranks of a line along its axis do it with the same collectives: then
// whoever meets there calls the provider. What a rank alone can say is a claim,
// and every rank reads those of all.
#include "runtime/cuda/transfers/fused.h"
#include "runtime/cuda/transfers/transport.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/diag.h"

enum { WHY = HD_GROUP_TEXT };

// What a rank says of a launch in the text.
typedef struct claim {
    uint64_t members; // of its collectives along its axis, a hash
    int32_t stream;
    int32_t times; // that the rank does it
    char why[WHY]; // it could not give it to a provider; "": it could
} claim;

// The launches of a collective and its product, as the text has them.
struct hd_cuda_fused {
    const hd_stmt **launch; // owned
    claim *claim;           // owned: what all ranks say of each
    int n;
    int axis;  // of those that a provider has, -1 if there are none
    bool *has; // owned, by step: a provider has its launch
};

// ------------------------------------------------------------------ the text

static bool is_pair(const hd_stmt *launch)
{
    const hd_stmt *first = launch->body.first;

    return launch->kind == HD_STMT_LAUNCH && first != NULL &&
           first->kind == HD_STMT_OP &&
           (hd_op_is(first->op, HD_UNIT_TRANSFER) ||
            (first->next != NULL && first->next->kind == HD_STMT_OP &&
             hd_op_is(first->next->op, HD_UNIT_TRANSFER)));
}

static int list_pairs(const hd_block *block, const hd_stmt **out)
{
    int n = 0;

    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        if (is_pair(s)) {
            if (out != NULL)
                out[n] = s;
            n++;
            continue;
        }
        n += list_pairs(&s->body, out != NULL ? out + n : NULL);
        n += list_pairs(&s->otherwise, out != NULL ? out + n : NULL);
    }
    return n;
}

typedef struct reads {
    const hd_buffer *root;
    int n;
} reads;

static void count_reads(const hd_block *block, reads *r)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        for (int i = 0; s->kind == HD_STMT_OP && i < s->op->nviews; i++)
            r->n += hd_buffer_root(s->op->view[i].buffer) == r->root &&
                    hd_op_reads(s->op, i);
        count_reads(&s->body, r);
        count_reads(&s->otherwise, r);
    }
}

// ----------------------------------------------------------------- the steps

static int number_of(const hd_device *device, const hd_step *first)
{
    const hd_cuda_fused *fused = device->fused;

    for (int i = 0; fused != NULL && i < fused->n; i++)
        if (fused->launch[i]->body.first->op == first->op)
            return i;
    return -1;
}

static hd_cuda_pair pair_at(const hd_step *first)
{
    bool gathers = hd_op_is(first->op, HD_UNIT_TRANSFER);

    return (hd_cuda_pair){gathers ? first : first + 1,
                          gathers ? first + 1 : first};
}

const char *hd_cuda_fused_why(const hd_device *device, const hd_step *first)
{
    int number = first->launch > 0 ? number_of(device, first) : -1;

    return number >= 0 ? device->fused->claim[number].why : NULL;
}

bool hd_cuda_fused_has(const hd_device *device, const hd_step *step)
{
    return device->fused != NULL && device->fused->has[step->index];
}

bool hd_cuda_fused_next(const hd_device *device, int64_t *at, hd_cuda_pair *out)
{
    const hd_steps *steps = device->binding.steps;

    while (*at < steps->nsteps && !hd_cuda_fused_has(device, &steps->step[*at]))
        ++*at;
    if (*at == steps->nsteps)
        return false;
    *out = pair_at(&steps->step[*at]);
    *at += 2;
    return true;
}

int hd_cuda_fused_axis(const hd_device *device)
{
    return device->fused != NULL ? device->fused->axis : -1;
}

// --------------------------------------------------------- why none has it

static const hd_buffer *root_of(const hd_step *step, int view)
{
    return hd_buffer_root(step->op->view[view].buffer);
}

static bool writes_over(const hd_step *writes, const hd_step *reads)
{
    for (int i = 0; i < writes->op->nviews; i++)
        for (int k = 0; k < reads->op->nviews; k++)
            if (hd_op_access(writes->op, i) != HD_ACCESS_READ &&
                hd_op_access(reads->op, k) == HD_ACCESS_READ &&
                root_of(writes, i) == root_of(reads, k))
                return true;
    return false;
}

// Nothing is left of what stands between the two, and all of both goes on at
// the same time.
static const char *why_shared(const hd_device *device, const hd_step *first)
{
    const hd_step *last = first + 1;
    reads between = {.root = root_of(first, 0)};

    count_reads(&device->binding.module->body, &between);
    if (between.root->role != HD_ROLE_TEMP || between.n != 1)
        return "more than this launch reads what stands between its steps";
    if (writes_over(last, first) || writes_over(last, last) ||
        writes_over(first, first))
        return "a result of it lies over an operand";
    return NULL;
}

static const char *why_not(const hd_device *device, const hd_step *first)
{
    hd_cuda_pair pair = pair_at(first);
    const char *why = NULL;

    if (device->binding.module->nsizes > 0)
        return "runs have sizes";
    if (device->binding.module->axis[pair.move->op->axis].size == 1)
        return "its axis has one rank";
    if (device->binding.graph || device->binding.capturable)
        return "no provider takes part in a graph";
    why = why_shared(device, first);
    return why != NULL ? why : device->provider->why(device, &pair);
}

static uint64_t mix(uint64_t hash, int64_t value)
{
    return (hash ^ (uint64_t)value) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static void refuse(claim *c, const char *why)
{
    if (*c->why == '\0')
        snprintf(c->why, sizeof c->why, "%s", why);
}

// `lacking` is what this rank has none of any for, "" if nothing.
static void claim_all(const hd_device *device, const char *lacking,
                      claim *claims)
{
    const hd_steps *steps = device->binding.steps;

    for (int64_t i = 0; i < steps->nsteps; i++) {
        const hd_step *first = &steps->step[i];
        int number = first->launch > 0 ? number_of(device, first) : -1;
        const char *why;
        claim *c;

        if (number < 0)
            continue;
        c = &claims[number];
        why = why_not(device, first);
        if (why == NULL && c->times > 0 && c->stream != first->stream)
            why = "it is on several streams";
        if (why != NULL)
            refuse(c, why);
        refuse(c, lacking);
        c->stream = first->stream;
        c->times++;
        c->members = mix(c->members, pair_at(first).move->seq);
    }
}

// ------------------------------------------------------------ what all say

static const claim *claim_of(const hd_device *device, const claim *all,
                             int64_t rank, int number)
{
    return &all[rank * device->fused->n + number];
}

static int axis_of(const hd_device *device, int number)
{
    const hd_stmt *first = device->fused->launch[number]->body.first;

    return hd_op_is(first->op, HD_UNIT_TRANSFER) ? first->op->axis
                                                 : first->next->op->axis;
}

// What the rank says, and what keeps it from doing the launch as the first one
// of its line does.
static void hear(const hd_device *device, const claim *all, int rank,
                 int number, claim *out)
{
    const hd_module *module = device->binding.module;
    int axis = axis_of(device, number);
    const claim *c = claim_of(device, all, rank, number);
    const claim *other =
        claim_of(device, all, hd_mesh_peer(module, rank, axis, 0), number);

    refuse(out, c->why);
    if (c->times == 0 || c->times != other->times ||
        c->members != other->members)
        refuse(out, "not all ranks do it, those of an axis together");
    if (out->times > 0 && c->stream != out->stream)
        refuse(out, "it is on several streams");
    out->times += c->times;
    out->stream = c->stream;
}

// A provider has one communicator and one workspace: what follows each other
// may share them.
static void decide(hd_device *device, const claim *all)
{
    hd_cuda_fused *fused = device->fused;
    int first = -1;

    fused->axis = -1;
    for (int i = 0; i < fused->n; i++) {
        claim *c = &fused->claim[i];

        for (int rank = 0; rank < device->size; rank++)
            hear(device, all, rank, i, c);
        if (first >= 0 && axis_of(device, i) != axis_of(device, first))
            refuse(c, "a provider has another axis");
        if (first >= 0 && c->stream != fused->claim[first].stream)
            refuse(c, "launches that a provider has are on one stream");
        if (first < 0 && *c->why == '\0')
            first = i;
    }
    if (first >= 0)
        fused->axis = axis_of(device, first);
}

static void note_all(hd_device *device)
{
    const hd_steps *steps = device->binding.steps;

    for (int64_t i = 0; i + 1 < steps->nsteps; i++) {
        const char *why = hd_cuda_fused_why(device, &steps->step[i]);

        if (why != NULL)
            device->fused->has[i] = device->fused->has[i + 1] = *why == '\0';
    }
}

// ------------------------------------------------------------------- finding

// The peers wait for what this rank says.
static hd_status run_out(hd_device *device, hd_diag *diag)
{
    hd_group_run_out(device->binding.group);
    return hd_cuda_no_room(device, diag);
}

static hd_status open_pairs(hd_device *device, int n, hd_diag *diag)
{
    hd_cuda_fused *fused = device->fused = calloc(1, sizeof *fused);

    if (fused == NULL)
        return run_out(device, diag);
    fused->launch = calloc((size_t)n, sizeof *fused->launch);
    fused->claim = calloc((size_t)n, sizeof *fused->claim);
    fused->has = calloc((size_t)device->binding.steps->nsteps + 1, 1);
    if (fused->launch == NULL || fused->claim == NULL || fused->has == NULL)
        return run_out(device, diag);
    fused->n = list_pairs(&device->binding.module->body, fused->launch);
    return HD_OK;
}

static hd_status claim_and_hear(hd_device *device, const char *why,
                                hd_diag *diag)
{
    size_t bytes = sizeof(claim) * (size_t)device->fused->n;
    hd_exchange exchange = hd_exchange_begin(
        device->binding.group, HD_CALL_SESSION, device->binding.timeout, diag);
    claim *all = hd_exchange_room(&exchange, bytes), *mine;
    hd_status status;

    if (all == NULL)
        return HD_ERROR_NO_MEMORY;
    mine = calloc(1, bytes);
    if (mine == NULL) {
        free(all);
        return run_out(device, diag);
    }
    claim_all(device, why, mine);
    status = hd_exchange_allgather(&exchange, mine, bytes, all);
    if (status == HD_OK)
        decide(device, all);
    note_all(device);
    free(mine);
    free(all);
    return status;
}

hd_status hd_cuda_fused_find(hd_device *device, hd_diag *diag)
{
    int n = list_pairs(&device->binding.module->body, NULL);
    char why[WHY] = "";
    hd_diag *own;
    hd_status status;

    if (n == 0) // on all ranks alike
        return HD_OK;
    HD_TRY(open_pairs(device, n, diag));
    device->provider = &hd_cuda_cublasmp;
    own = hd_diag_create();
    status = device->provider->find(device, own);
    if (status != HD_OK)
        hd_group_reason(own, 0, status, why);
    hd_diag_destroy(own);
    return claim_and_hear(device, why, diag);
}

// -------------------------------------------------------------- what it does

void hd_cuda_fused_close(hd_device *device)
{
    if (device->provider != NULL)
        device->provider->close(device);
    if (device->fused != NULL) {
        free(device->fused->launch);
        free(device->fused->claim);
        free(device->fused->has);
        free(device->fused);
    }
    device->fused = NULL;
    device->provider = NULL;
}

// What a provider finds only now keeps all ranks from having any.
static void give_up(hd_device *device, const char *all)
{
    for (int rank = 0; rank < device->size; rank++)
        for (int i = 0; i < device->fused->n; i++)
            refuse(&device->fused->claim[i], all + (size_t)rank * WHY);
    note_all(device);
    if (!hd_cuda_fused_next(device, &(int64_t){0}, &(hd_cuda_pair){0}))
        device->fused->axis = -1;
}

// Says what the provider failed for.
static hd_status open_provider(hd_device *device, char why[WHY])
{
    hd_diag *own = hd_diag_create();
    hd_status status = device->provider->open(device, own);

    why[0] = '\0';
    if (status != HD_OK)
        hd_group_reason(own, 0, status, why);
    hd_diag_destroy(own);
    return status;
}

hd_status hd_cuda_fused_open(hd_device *device, hd_diag *diag)
{
    hd_group *group = device->binding.group;
    hd_exchange exchange = hd_exchange_begin(group, HD_CALL_SESSION,
                                             device->binding.timeout, diag);
    char why[WHY], *all = hd_exchange_room(&exchange, WHY);
    hd_status status;

    if (all == NULL)
        return HD_ERROR_NO_MEMORY;
    status = open_provider(device, why);
    if (status != HD_OK && status != HD_ERROR_UNSUPPORTED) {
        free(all);
        hd_group_fail(group, why);
        return hd_fail(diag, status, "%s", why);
    }
    status = hd_exchange_allgather(&exchange, why, WHY, all);
    if (status == HD_OK)
        give_up(device, all);
    free(all);
    return status;
}

hd_status hd_cuda_fused_plan(hd_cuda_plan *plan, const hd_step *first,
                             hd_diag *diag)
{
    const hd_step *move = pair_at(first).move;
    int stream = first->stream + 1;
    hd_cuda_command *command = hd_cuda_add(plan, HD_CUDA_FUSED, stream, move);

    if (command == NULL)
        return hd_cuda_no_room(plan->device, diag);
    command->first = plan->nfused++;
    return hd_cuda_mark_nccl(plan, move, 1, stream, diag);
}

hd_status hd_cuda_fused_issue(hd_device *device, const hd_cuda_command *command,
                              hd_diag *diag)
{
    return device->provider->issue(device, command, diag);
}
