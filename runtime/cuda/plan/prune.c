// What a plan can do without. Lowering and planning see to order each on its
// own, and some of it is said twice; a stream that takes turns with the
// caller's need not be another one; and words that follow each other on a
// stream go to the device in one call, also where they are of different steps.
// Each command that goes saves the host a call, and one of words saves a graph
// a node.
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/commands/plan.h"
#include "runtime/cuda/plan/make.h"
#include "runtime/order.h"

typedef struct pruner {
    hd_cuda_plan *plan;
    hd_order *order;   // owned, by command
    int *into;         // owned, by command: whose words it joins, or itself
    int *at;           // owned, by command: where it is afterwards
    int *end;          // owned, by command: of the words it has so far
    hd_cu_memop *word; // owned: those of a command follow each other
} pruner;

static hd_order order_of(const hd_cuda_command *command)
{
    switch (command->kind) {
    case HD_CUDA_RECORD:
        return (hd_order){HD_ORDER_RECORD, command->stream, command->event, 0};
    case HD_CUDA_WAIT:
        return (hd_order){HD_ORDER_WAIT, command->stream, command->event, 0};
    case HD_CUDA_WORDS:
    case HD_CUDA_COPY:
    case HD_CUDA_KERNEL:
    case HD_CUDA_PRODUCT:
    case HD_CUDA_ATTEND:
    case HD_CUDA_CALL:
    case HD_CUDA_RECORD_ARGUMENT:
    case HD_CUDA_WAIT_ARGUMENT:
    case HD_CUDA_NCCL:
    case HD_CUDA_FUSED:
        break;
    }
    return (hd_order){HD_ORDER_WORK, command->stream, 0, 0};
}

// What waits on two streams in turns costs the device 2 us or more a turn.
static hd_status find_order(pruner *pruner)
{
    const hd_cuda_plan *plan = pruner->plan;
    int nstreams = plan->device->nstreams;
    int n = plan->ncommands, nevents = plan->nevents;
    int joined = 0;

    for (int i = 0; i < n; i++)
        pruner->order[i] = order_of(&plan->command[i]);
    HD_TRY(hd_order_reduce(pruner->order, n, nstreams, nevents));
    HD_TRY(hd_order_join(pruner->order, n, nstreams, nevents, &joined));
    for (int i = 0; i < n; i++)
        plan->command[i].stream = pruner->order[i].stream;
    return joined > 0 ? hd_order_reduce(pruner->order, n, nstreams, nevents)
                      : HD_OK;
}

// The words that come first after those of the run's own beginning, if their
// stream begins with them as the run begins, and there is room for `n`: then
// these do not hold up the caller's stream. -1 if there are none. No stream
// that waits for a peer comes before them, so that all peers are told in any
// case.
static int find_taker(const pruner *pruner, int n)
{
    const hd_cuda_plan *plan = pruner->plan;
    bool begun[HD_CUDA_STREAMS_MOST] = {false};
    bool tied[HD_CUDA_STREAMS_MOST] = {false};
    int beginning = -1; // the event that is recorded there

    for (int i = 1; i < plan->ncommands; i++) {
        const hd_order *order = &pruner->order[i];
        const hd_cuda_command *command = &plan->command[i];
        int s = order->stream;

        if (order->needless)
            continue;
        if (command->kind == HD_CUDA_WORDS)
            return tied[s] && !begun[s] && command->n + n <= HD_CUDA_BATCH ? i
                                                                           : -1;
        if (command->kind == HD_CUDA_NCCL || command->kind == HD_CUDA_FUSED ||
            command->meets)
            return -1;
        if (order->kind == HD_ORDER_RECORD && s == 0 && !begun[0])
            beginning = beginning < 0 ? order->event : beginning;
        else if (order->kind == HD_ORDER_WAIT && order->event == beginning)
            tied[s] = true;
        else
            begun[s] = true;
    }
    return -1;
}

// What a run tells its peers when it begins goes to the device with what
// another stream begins with.
static void hand_on_words(pruner *pruner)
{
    hd_cuda_plan *plan = pruner->plan;
    int to, steps = (int)plan->steps->nsteps;
    hd_cuda_command words;
    hd_order order;

    // Where the device counts runs, one begins on the caller's stream.
    if (plan->ncommands == 0 || plan->first[0] == 0 ||
        plan->command[0].kind != HD_CUDA_WORDS ||
        plan->device->captures != NULL)
        return;
    to = find_taker(pruner, plan->command[0].n);
    if (to < 0)
        return;
    words = plan->command[0];
    order = pruner->order[0];
    words.stream = order.stream = pruner->order[to].stream;
    memmove(&plan->command[0], &plan->command[1],
            (size_t)(to - 1) * sizeof words);
    memmove(&pruner->order[0], &pruner->order[1],
            (size_t)(to - 1) * sizeof order);
    plan->command[to - 1] = words;
    pruner->order[to - 1] = order;
    for (int i = 0; i <= steps && plan->first[i] <= to; i++)
        plan->first[i]--;
}

static bool stays(const pruner *pruner, int i)
{
    return !pruner->order[i].needless && pruner->into[i] == i;
}

// Words join those that are the last command on their stream so far.
static void find_words(pruner *pruner)
{
    const hd_cuda_plan *plan = pruner->plan;
    int last[HD_CUDA_STREAMS_MOST], n[HD_CUDA_STREAMS_MOST];

    for (int s = 0; s < HD_CUDA_STREAMS_MOST; s++)
        last[s] = -1;
    for (int i = 0; i < plan->ncommands; i++) {
        const hd_cuda_command *command = &plan->command[i];
        int s = command->stream;

        pruner->into[i] = i;
        if (pruner->order[i].needless)
            continue;
        if (command->kind != HD_CUDA_WORDS) {
            last[s] = -1;
        } else if (last[s] >= 0 && n[s] + command->n <= HD_CUDA_BATCH) {
            pruner->into[i] = last[s];
            n[s] += command->n;
        } else {
            last[s] = i;
            n[s] = command->n;
        }
    }
}

// `first` and `n` of words become what they are afterwards.
static void join_words(pruner *pruner)
{
    hd_cuda_plan *plan = pruner->plan;
    int next = 0;

    for (int i = 0; i < plan->ncommands; i++) {
        if (plan->command[i].kind == HD_CUDA_WORDS)
            pruner->end[pruner->into[i]] += plan->command[i].n;
    }
    for (int i = 0; i < plan->ncommands; i++) {
        int room = pruner->end[i];

        pruner->end[i] = next;
        next += room;
    }
    for (int i = 0; i < plan->ncommands; i++) {
        hd_cuda_command *command = &plan->command[i];
        int head = pruner->into[i];

        if (command->kind != HD_CUDA_WORDS)
            continue;
        memcpy(&pruner->word[pruner->end[head]], &plan->word[command->first],
               (size_t)command->n * sizeof *pruner->word);
        if (head == i)
            command->first = pruner->end[i];
        else
            plan->command[head].n += command->n;
        pruner->end[head] += command->n;
    }
    if (next > 0)
        memcpy(plan->word, pruner->word, (size_t)next * sizeof *pruner->word);
}

static void close_gaps(pruner *pruner)
{
    hd_cuda_plan *plan = pruner->plan;
    int kept = 0;

    for (int i = 0; i < plan->ncommands; i++) {
        pruner->at[i] = kept;
        if (!stays(pruner, i))
            continue;
        plan->command[kept] = plan->command[i];
        if (plan->command[kept].kind == HD_CUDA_WAIT)
            plan->command[kept].event = pruner->order[i].event;
        kept++;
    }
    pruner->at[plan->ncommands] = kept;
    plan->ncommands = kept;
    for (int64_t i = 0; i <= plan->steps->nsteps; i++)
        plan->first[i] = pruner->at[plan->first[i]];
}

hd_status hd_cuda_prune(hd_cuda_plan *plan, hd_diag *diag)
{
    size_t n = (size_t)plan->ncommands + 1;
    pruner pruner = {.plan = plan,
                     .order = calloc(n, sizeof(hd_order)),
                     .into = calloc(n, sizeof(int)),
                     .at = calloc(n, sizeof(int)),
                     .end = calloc(n, sizeof(int)),
                     .word =
                         calloc((size_t)plan->nwords + 1, sizeof(hd_cu_memop))};
    hd_status status = HD_ERROR_NO_MEMORY;

    if (pruner.order != NULL && pruner.into != NULL && pruner.at != NULL &&
        pruner.end != NULL && pruner.word != NULL)
        status = find_order(&pruner);
    if (status == HD_OK)
        hand_on_words(&pruner);
    if (status == HD_OK) {
        find_words(&pruner);
        join_words(&pruner);
        close_gaps(&pruner);
    } else {
        status = hd_cuda_no_room(plan->device, diag);
    }
    free(pruner.order);
    free(pruner.into);
    free(pruner.at);
    free(pruner.end);
    free(pruner.word);
    return status;
}
