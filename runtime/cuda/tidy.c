// What a plan can do without. Lowering and planning see to order each on its
// own, and some of it is said twice; and words that follow each other on a
// stream go to the device in one call, also where they are of different steps.
// Each command that goes saves the host a call, and one of words saves a graph
// a node.
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/plan.h"
#include "runtime/order.h"

typedef struct hd_tidy {
    hd_device *device;
    hd_order *order;   // owned, by command
    int *into;         // owned, by command: whose words it joins, or itself
    int *at;           // owned, by command: where it is afterwards
    int *end;          // owned, by command: of the words it has so far
    hd_cu_memop *word; // owned: those of a command follow each other
} hd_tidy;

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
    case HD_CUDA_RECORD_ARGUMENT:
    case HD_CUDA_WAIT_ARGUMENT:
    case HD_CUDA_NCCL:
        break;
    }
    return (hd_order){HD_ORDER_WORK, command->stream, 0, 0};
}

static bool stays(const hd_tidy *tidy, int i)
{
    return !tidy->order[i].needless && tidy->into[i] == i;
}

// Words join those that are the last command on their stream so far.
static void find_words(hd_tidy *tidy)
{
    const hd_device *device = tidy->device;
    int last[HD_CUDA_STREAMS_MOST], n[HD_CUDA_STREAMS_MOST];

    for (int s = 0; s < HD_CUDA_STREAMS_MOST; s++)
        last[s] = -1;
    for (int i = 0; i < device->plan->ncommands; i++) {
        const hd_cuda_command *command = &device->plan->command[i];
        int s = command->stream;

        tidy->into[i] = i;
        if (tidy->order[i].needless)
            continue;
        if (command->kind != HD_CUDA_WORDS) {
            last[s] = -1;
        } else if (last[s] >= 0 && n[s] + command->n <= HD_CUDA_BATCH) {
            tidy->into[i] = last[s];
            n[s] += command->n;
        } else {
            last[s] = i;
            n[s] = command->n;
        }
    }
}

// `first` and `n` of words become what they are afterwards.
static void join_words(hd_tidy *tidy)
{
    hd_device *device = tidy->device;
    int next = 0;

    for (int i = 0; i < device->plan->ncommands; i++) {
        if (device->plan->command[i].kind == HD_CUDA_WORDS)
            tidy->end[tidy->into[i]] += device->plan->command[i].n;
    }
    for (int i = 0; i < device->plan->ncommands; i++) {
        int room = tidy->end[i];

        tidy->end[i] = next;
        next += room;
    }
    for (int i = 0; i < device->plan->ncommands; i++) {
        hd_cuda_command *command = &device->plan->command[i];
        int head = tidy->into[i];

        if (command->kind != HD_CUDA_WORDS)
            continue;
        memcpy(&tidy->word[tidy->end[head]],
               &device->plan->word[command->first],
               (size_t)command->n * sizeof(*tidy->word));
        if (head == i)
            command->first = tidy->end[i];
        else
            device->plan->command[head].n += command->n;
        tidy->end[head] += command->n;
    }
    if (next > 0)
        memcpy(device->plan->word, tidy->word,
               (size_t)next * sizeof(*tidy->word));
}

static void close_gaps(hd_tidy *tidy)
{
    hd_device *device = tidy->device;
    int kept = 0;

    for (int i = 0; i < device->plan->ncommands; i++) {
        tidy->at[i] = kept;
        if (!stays(tidy, i))
            continue;
        device->plan->command[kept] = device->plan->command[i];
        if (device->plan->command[kept].kind == HD_CUDA_WAIT)
            device->plan->command[kept].event = tidy->order[i].event;
        kept++;
    }
    tidy->at[device->plan->ncommands] = kept;
    device->plan->ncommands = kept;
    for (int64_t i = 0; i <= device->binding.steps->nsteps; i++)
        device->plan->first[i] = tidy->at[device->plan->first[i]];
}

hd_status hd_cuda_tidy(hd_device *device, hd_diag *diag)
{
    size_t n = (size_t)device->plan->ncommands + 1;
    hd_tidy tidy = {
        .device = device,
        .order = calloc(n, sizeof(hd_order)),
        .into = calloc(n, sizeof(int)),
        .at = calloc(n, sizeof(int)),
        .end = calloc(n, sizeof(int)),
        .word = calloc((size_t)device->plan->nwords + 1, sizeof(hd_cu_memop))};
    hd_status status = HD_NO_MEMORY;

    if (tidy.order != NULL && tidy.into != NULL && tidy.at != NULL &&
        tidy.end != NULL && tidy.word != NULL) {
        for (int i = 0; i < device->plan->ncommands; i++)
            tidy.order[i] = order_of(&device->plan->command[i]);
        status = hd_order_reduce(tidy.order, device->plan->ncommands,
                                 device->nstreams, device->plan->nevents);
    }
    if (status == HD_OK) {
        find_words(&tidy);
        join_words(&tidy);
        close_gaps(&tidy);
    } else {
        status = hd_cuda_no_room(device, diag);
    }
    free(tidy.order);
    free(tidy.into);
    free(tidy.at);
    free(tidy.end);
    free(tidy.word);
    return status;
}
