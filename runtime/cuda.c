// The cuda driver: ranks are processes with a device each, and peers reach each
// other's memory by CUDA IPC. This file is its table, and what the host issues
// for a run: the commands of its plan.
#include "runtime/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"

#define ARGUMENT_ALIGNMENT 16

// ------------------------------------------------------------- commands

static hd_cu_ptr address(const hd_device *device, hd_cuda_at at)
{
    return (at.buffer >= 0 ? device->base[at.buffer] : 0) + at.offset;
}

void *hd_cuda_address(const hd_device *device, hd_cuda_at at)
{
    return (void *)(uintptr_t)address(device, at);
}

// In a graph every run is the first: words are cleared when they were seen.
static uint32_t word_value(const hd_device *device)
{
    return device->binding.graph ? 1 : (uint32_t)device->runs;
}

static hd_status write_words(hd_device *device, const hd_cuda_command *command,
                             hd_cu_stream stream, hd_diag *diag)
{
    hd_cu_memop *word = &device->word[command->first];

    for (int i = 0; i < command->n && !device->binding.graph; i++)
        word[i].word.value = word_value(device);
    HD_CUDA_TRY(device, diag, stream_words, stream, (unsigned)command->n, word,
                0);
    return HD_OK;
}

static hd_status start_kernel(hd_device *device, const hd_cuda_command *command,
                              hd_cu_stream stream, hd_diag *diag)
{
    hd_kernel_args args = {{0}};
    void *parameter = &args;

    for (int i = 0; i < command->n; i++) {
        hd_cuda_at at = device->pointer[command->first + i];

        args.at[i] = at.buffer == HD_CUDA_WORD_VALUE ? word_value(device)
                                                     : address(device, at);
    }
    HD_CUDA_TRY(device, diag, launch, command->function, command->grid.blocks,
                1, 1, command->grid.threads, 1, 1, 0, stream, &parameter, NULL);
    return HD_OK;
}

static hd_status touch_event(hd_device *device, const hd_cuda_command *command,
                             hd_cu_stream stream, hd_diag *diag)
{
    hd_cu_event event = device->argument[command->event].at;

    if (command->kind == HD_CUDA_RECORD_ARGUMENT)
        HD_CUDA_TRY(device, diag, event_record, event, stream);
    else
        HD_CUDA_TRY(device, diag, stream_wait_event, stream, event, 0);
    return HD_OK;
}

static hd_status issue_command(hd_device *device,
                               const hd_cuda_command *command, hd_diag *diag)
{
    hd_cu_stream stream = device->stream[command->stream].stream;

    switch (command->kind) {
    case HD_CUDA_WORDS:
        return write_words(device, command, stream, diag);
    case HD_CUDA_COPY:
        HD_CUDA_TRY(device, diag, copy, address(device, command->to),
                    address(device, command->from), command->bytes, stream);
        return HD_OK;
    case HD_CUDA_KERNEL:
        return start_kernel(device, command, stream, diag);
    case HD_CUDA_PRODUCT:
        return hd_cuda_multiply(device, command, diag);
    case HD_CUDA_RECORD:
        HD_CUDA_TRY(device, diag, event_record, device->event[command->event],
                    stream);
        return HD_OK;
    case HD_CUDA_WAIT:
        HD_CUDA_TRY(device, diag, stream_wait_event, stream,
                    device->event[command->event], 0);
        return HD_OK;
    case HD_CUDA_RECORD_ARGUMENT:
    case HD_CUDA_WAIT_ARGUMENT:
        return device->capturing ? HD_OK
                                 : touch_event(device, command, stream, diag);
    case HD_CUDA_NCCL:
        return hd_cuda_nccl_transfer(device, command, diag);
    }
    return HD_INVALID;
}

// A stream's queue is finite, and who issues into a full one blocks where no
// failure can reach it. So the host itself waits, for what it issued long ago.
static hd_status throttle(hd_device *device, hd_cuda_stream *stream,
                          hd_diag *diag)
{
    uint64_t turn = ++stream->issued / HD_CUDA_THROTTLE;

    if (stream->issued % HD_CUDA_THROTTLE != 0 || device->capturing)
        return HD_OK;
    if (turn > 1)
        HD_TRY(hd_cuda_await(device, stream->mark[(turn + 1) % 2], diag));
    HD_CUDA_TRY(device, diag, event_record, stream->mark[turn % 2],
                stream->stream);
    return HD_OK;
}

static void delay(hd_device *device)
{
    struct timespec t = {0, 0};

    if (!device->binding.chaos)
        return;
    device->random =
        device->random * 6364136223846793005u + 1442695040888963407u;
    t.tv_nsec = (long)(device->random >> 33) % 200000;
    if ((device->random >> 60) < 3)
        nanosleep(&t, NULL);
}

static hd_status issue(hd_device *device, int first, int end, hd_diag *diag)
{
    for (int i = first; i < end; i++) {
        const hd_cuda_command *command = &device->command[i];

        delay(device);
        HD_TRY(issue_command(device, command, diag));
        HD_TRY(throttle(device, &device->stream[command->stream], diag));
    }
    return HD_OK;
}

// The events that tell when a step, or a group of `n`, started (which 0) or
// ended (1).
static hd_status mark(hd_device *device, const hd_step *step, int n, int which,
                      hd_diag *diag)
{
    if (device->mark == NULL || device->capturing)
        return HD_OK;
    for (int i = 0; i < n; i++)
        HD_CUDA_TRY(device, diag, event_record,
                    device->mark[2 * (step->index + i) + which],
                    device->stream[step->stream + 1].stream);
    return HD_OK;
}

// A step, or a group of `n`.
static hd_status issue_step(hd_device *device, const hd_step *step, int n,
                            hd_diag *diag)
{
    const int *first = &device->first[step->index];

    HD_TRY(mark(device, step, n, 0, diag));
    HD_TRY(issue(device, first[0], first[n], diag));
    return mark(device, step, n, 1, diag);
}

// Step by step, for those who want to know what belongs to which.
static hd_status issue_steps(hd_device *device, hd_diag *diag)
{
    const hd_binding *binding = &device->binding;
    hd_status status = HD_OK;
    int n;

    for (int64_t i = 0; i < binding->steps->nsteps && status == HD_OK; i += n) {
        const hd_step *step = &binding->steps->step[i];

        n = hd_steps_together(binding->steps, i);
        hd_ranges_step(binding->ranges, step);
        status = issue_step(device, step, n, diag);
        hd_ranges_end(binding->ranges);
    }
    return status;
}

static hd_status issue_all(hd_device *device, hd_diag *diag)
{
    int64_t nsteps = device->binding.steps->nsteps;

    if (device->mark == NULL && device->binding.ranges == NULL)
        return issue(device, 0, device->ncommands, diag);
    HD_TRY(issue(device, 0, device->first[0], diag));
    HD_TRY(issue_steps(device, diag));
    return issue(device, device->first[nsteps], device->ncommands, diag);
}

// --------------------------------------------------------------- graphs

// Of memory that CUDA does not know the number stays 0.
static void number_allocations(hd_device *device)
{
    for (int i = 0; i < device->narguments; i++) {
        hd_cuda_argument *argument = &device->argument[i];

        if (device->cu.pointer_attribute(
                &argument->allocation, HD_CU_POINTER_BUFFER_ID,
                (hd_cu_ptr)(uintptr_t)argument->at) != HD_CU_SUCCESS)
            argument->allocation = 0;
    }
}

static hd_cuda_graph *find_graph(hd_device *device)
{
    size_t bytes = (size_t)device->narguments * sizeof(*device->argument);

    for (int i = 0; i < device->ngraphs; i++) {
        if (memcmp(device->graph[i].argument, device->argument, bytes) == 0)
            return &device->graph[i];
    }
    return NULL;
}

static void free_graph(hd_device *device, hd_cuda_graph *graph)
{
    if (graph->exec != NULL)
        device->cu.graph_exec_destroy(graph->exec);
    free(graph->argument);
    memset(graph, 0, sizeof(*graph));
}

// Room for one more; the oldest goes when there is none.
static hd_status new_graph(hd_device *device, hd_diag *diag)
{
    size_t bytes = (size_t)device->narguments * sizeof(*device->argument);
    hd_cuda_graph *graph;

    if (device->ngraphs == HD_CUDA_GRAPHS) {
        free_graph(device, &device->graph[0]);
        memmove(&device->graph[0], &device->graph[1],
                sizeof(*device->graph) * (HD_CUDA_GRAPHS - 1));
        memset(&device->graph[--device->ngraphs], 0, sizeof(*graph));
    }
    graph = &device->graph[device->ngraphs];
    graph->argument = malloc(bytes + 1);
    if (graph->argument == NULL)
        return hd_fail(diag, HD_NO_MEMORY, "no memory for a graph");
    memcpy(graph->argument, device->argument, bytes);
    device->ngraphs++;
    device->replay = graph;
    device->capturing = true;
    device->stream[0].stream = device->capture;
    HD_CUDA_TRY(device, diag, capture_begin, device->capture,
                HD_CU_CAPTURE_RELAXED);
    return HD_OK;
}

static hd_status end_capture(hd_device *device, hd_diag *diag)
{
    hd_cu_graph graph = NULL;
    hd_cu_result result;

    device->capturing = false;
    HD_CUDA_TRY(device, diag, capture_end, device->capture, &graph);
    result = device->cu.graph_instantiate(&device->replay->exec, graph, 0);
    device->cu.graph_destroy(graph);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "graph_instantiate");
    return HD_OK;
}

// ----------------------------------------------------------------- runs

static hd_status take_arguments(hd_device *device, void *const *arguments,
                                hd_diag *diag)
{
    for (int i = 0; i < device->nbuffers; i++) {
        const hd_cuda_buffer *buffer = &device->buffer[i];
        void *at = buffer->argument >= 0 ? arguments[buffer->argument] : NULL;

        if (buffer->argument < 0)
            continue;
        device->argument[buffer->argument].at = at;
        device->takes_events |= buffer->buffer->type.dtype == HD_EVENT;
        if (buffer->buffer->type.dtype == HD_EVENT)
            continue;
        if ((uintptr_t)at % ARGUMENT_ALIGNMENT != 0)
            return hd_fail(diag, HD_ARGUMENT,
                           "argument %%%s is at %p, which is no multiple of %d",
                           buffer->buffer->name, at, ARGUMENT_ALIGNMENT);
        device->base[device->nbuffers + buffer->argument] =
            (hd_cu_ptr)(uintptr_t)at;
        if (!buffer->shared)
            device->base[i] = (hd_cu_ptr)(uintptr_t)at;
    }
    return HD_OK;
}

// Waits for the run that had its place, and for those before it.
static hd_status begin(hd_device *device, void *stream, hd_diag *diag)
{
    hd_cuda_run *run = hd_cuda_run_of(device, device->runs + 1);

    if (device->runs >= HD_CUDA_RUNS)
        HD_TRY(hd_cuda_await(device, run->end, diag));
    HD_TRY(hd_cuda_report(device, diag));
    // Runs follow each other also where the caller's streams do not.
    if (device->runs > 0 && stream != device->caller)
        HD_CUDA_TRY(device, diag, stream_wait_event, stream,
                    hd_cuda_run_of(device, device->runs)->end, 0);
    device->runs++;
    device->caller = stream;
    device->stream[0].stream = stream;
    HD_CUDA_TRY(device, diag, event_record, run->start, stream);
    atomic_store_explicit(&device->entered_on, stream, memory_order_relaxed);
    atomic_store_explicit(&device->entered, device->runs, memory_order_release);
    return HD_OK;
}

// What the caller records cannot be waited for inside a graph: the caller's
// stream does, ahead of it, and likewise records for the caller behind it.
static hd_status touch_events(hd_device *device, hd_cuda_kind kind,
                              hd_diag *diag)
{
    for (int i = 0; i < device->ncommands; i++) {
        if (device->command[i].kind == kind)
            HD_TRY(
                touch_event(device, &device->command[i], device->caller, diag));
    }
    return HD_OK;
}

static hd_status launch_graph(hd_device *device, hd_diag *diag)
{
    if (device->takes_events)
        HD_TRY(touch_events(device, HD_CUDA_WAIT_ARGUMENT, diag));
    HD_CUDA_TRY(device, diag, graph_launch, device->replay->exec,
                device->caller);
    if (device->takes_events)
        HD_TRY(touch_events(device, HD_CUDA_RECORD_ARGUMENT, diag));
    return HD_OK;
}

static hd_status run_graph(hd_device *device, hd_diag *diag)
{
    number_allocations(device);
    device->replay = find_graph(device);
    if (device->replay == NULL) {
        HD_TRY(new_graph(device, diag));
        HD_TRY(issue_all(device, diag));
        HD_TRY(end_capture(device, diag));
    }
    return launch_graph(device, diag);
}

static hd_status run(hd_device *device, void *stream, hd_diag *diag)
{
    HD_TRY(begin(device, stream, diag));
    HD_TRY(device->binding.graph ? run_graph(device, diag)
                                 : issue_all(device, diag));
    HD_CUDA_TRY(device, diag, event_record,
                hd_cuda_run_of(device, device->runs)->end, stream);
    atomic_store_explicit(&device->begun, device->runs, memory_order_release);
    return HD_OK;
}

// A run that fails half way leaves peers waiting for the rest of it, and a
// capture open in which nothing else may be done.
static void abandon(hd_device *device, hd_status status)
{
    char text[HD_GROUP_TEXT] = "";
    hd_cu_graph graph = NULL;

    if (device->capturing) {
        device->capturing = false;
        device->cu.capture_end(device->capture, &graph);
        if (graph != NULL)
            device->cu.graph_destroy(graph);
    }
    // hd_cuda_fail looks again, under the lock.
    if (atomic_load_explicit(&device->failed, memory_order_relaxed))
        return;
    snprintf(text, sizeof(text), "rank %d could not issue its run",
             device->rank);
    hd_cuda_fail(device, status, text, "");
}

static hd_status cuda_run(hd_device *device, void *stream,
                          void *const *arguments, hd_diag *diag)
{
    hd_status status;

    HD_TRY(take_arguments(device, arguments, diag));
    HD_CUDA_TRY(device, diag, context_push, device->context);
    status = run(device, stream, diag);
    if (status != HD_OK)
        abandon(device, status);
    device->cu.context_pop(&(hd_cu_context){0});
    return status;
}

// ---------------------------------------------------------------- finish

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The device's clock is read off events; the host saw the last one end just
// now.
static hd_status read_times(hd_device *device, hd_diag *diag)
{
    const hd_cuda_run *run = hd_cuda_run_of(device, device->runs);
    double seen = now();
    float ms = 0;

    HD_CUDA_TRY(device, diag, event_elapsed, &ms, run->start, run->end);
    device->seconds = (double)ms * 1e-3;
    for (int64_t i = 0;
         i < 2 * device->binding.steps->nsteps && device->mark != NULL; i++) {
        HD_CUDA_TRY(device, diag, event_elapsed, &ms, run->start,
                    device->mark[i]);
        device->binding.times[i] = seen - device->seconds + (double)ms * 1e-3;
    }
    return HD_OK;
}

static hd_status finish(hd_device *device, hd_diag *diag)
{
    if (device->runs == 0)
        return hd_cuda_report(device, diag);
    HD_TRY(
        hd_cuda_await(device, hd_cuda_run_of(device, device->runs)->end, diag));
    HD_TRY(hd_cuda_nccl_check(device, diag));
    return read_times(device, diag);
}

static hd_status cuda_finish(hd_device *device, hd_diag *diag)
{
    hd_status status;

    HD_CUDA_TRY(device, diag, context_push, device->context);
    status = finish(device, diag);
    device->cu.context_pop(&(hd_cu_context){0});
    return status;
}

// --------------------------------------------------------------- memory

static hd_status cuda_take(hd_device *device, size_t bytes, hd_diag *diag,
                           void **out)
{
    hd_cu_ptr at = 0;
    hd_cu_result result;

    HD_CUDA_TRY(device, diag, context_push, device->context);
    result = device->cu.alloc(&at, bytes > 0 ? bytes : 1);
    device->cu.context_pop(&(hd_cu_context){0});
    if (result == HD_CU_OUT_OF_MEMORY)
        return hd_fail(diag, HD_NO_MEMORY,
                       "rank %d: no memory for %zu bytes on its device",
                       device->rank, bytes);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "alloc");
    *out = (void *)(uintptr_t)at;
    return HD_OK;
}

static void cuda_give(hd_device *device, void *memory)
{
    // Freeing would block if the device did not come to rest.
    if (hd_cuda_is_stuck(device))
        return;
    if (device->cu.context_push(device->context) != HD_CU_SUCCESS)
        return;
    device->cu.free((hd_cu_ptr)(uintptr_t)memory);
    device->cu.context_pop(&(hd_cu_context){0});
}

static hd_status cuda_copy(hd_device *device, void *to, const void *from,
                           size_t bytes, hd_diag *diag)
{
    hd_status status = HD_OK;

    HD_CUDA_TRY(device, diag, context_push, device->context);
    if (bytes > 0)
        status = hd_cuda_copy_now(device, (hd_cu_ptr)(uintptr_t)to,
                                  (hd_cu_ptr)(uintptr_t)from, bytes, diag);
    device->cu.context_pop(&(hd_cu_context){0});
    return status;
}

// -------------------------------------------------------------- prepare

static hd_status open_marks(hd_device *device, hd_diag *diag)
{
    int64_t n = 2 * device->binding.steps->nsteps;

    if (device->binding.times == NULL)
        return HD_OK;
    if (device->binding.graph)
        return hd_fail(diag, HD_UNSUPPORTED,
                       "the steps of a CUDA graph have no times of their own: "
                       "ask for times, or for a graph");
    device->mark = calloc((size_t)n + 1, sizeof(*device->mark));
    if (device->mark == NULL)
        return hd_fail(diag, HD_NO_MEMORY, "no memory for the steps' times");
    for (int64_t i = 0; i < n; i++)
        HD_CUDA_TRY(device, diag, event_create, &device->mark[i],
                    HD_CU_EVENT_DEFAULT);
    return HD_OK;
}

static hd_status prepare(hd_device *device, hd_diag *diag)
{
    hd_status status = hd_cuda_check_probes(device, diag);

    // Before anything else that may fail here: it is collective.
    if (hd_binding_uses(&device->binding, HD_TRANSPORT_NCCL))
        HD_TRY(hd_cuda_nccl_open(device, diag));
    HD_TRY(status);
    HD_TRY(hd_cuda_plan(device, diag));
    HD_TRY(open_marks(device, diag));
    return hd_cuda_watch(device, diag);
}

static hd_status cuda_prepare(hd_device *device, hd_diag *diag)
{
    hd_cu_result result = device->cu.context_push(device->context);
    char text[HD_GROUP_TEXT];
    hd_status status;

    // The peers may wait for this rank in the middle of `prepare`.
    if (result != HD_CU_SUCCESS) {
        snprintf(text, sizeof(text),
                 "rank %d cannot enter the context of its device",
                 device->rank);
        hd_group_fail(device->binding.group, text);
        return hd_cuda_error(device, result, diag, "context_push");
    }
    status = prepare(device, diag);
    device->cu.context_pop(&(hd_cu_context){0});
    return status;
}

static void cuda_close(hd_device *device)
{
    if (device == NULL)
        return;
    hd_cuda_unwatch(device); // may yet find that the device is stuck
    if (device->context != NULL && !hd_cuda_is_stuck(device) &&
        device->cu.context_push(device->context) == HD_CU_SUCCESS) {
        for (int i = 0; i < device->ngraphs; i++)
            free_graph(device, &device->graph[i]);
        for (int64_t i = 0;
             device->mark != NULL && i < 2 * device->binding.steps->nsteps;
             i++) {
            if (device->mark[i] != NULL)
                device->cu.event_destroy(device->mark[i]);
        }
        device->cu.context_pop(&(hd_cu_context){0});
    }
    free(device->mark);
    hd_cuda_close(device);
}

static void cuda_stats(const hd_device *device, hd_stats *stats)
{
    stats->allocations += device->allocations;
    stats->host_waits += device->host_waits;
    stats->bytes_sent = device->runs > 0 ? device->sending : 0;
    stats->transport = device->transports;
    stats->matmul = device->blas != NULL ? device->matmul : "";
    stats->seconds = device->seconds;
}

const hd_driver hd_driver_cuda = {
    .name = "cuda",
    .open = hd_cuda_open,
    .alloc = hd_cuda_alloc,
    .export_handle = hd_cuda_export,
    .import_handle = hd_cuda_import,
    .prepare = cuda_prepare,
    .run = cuda_run,
    .finish = cuda_finish,
    .take = cuda_take,
    .give = cuda_give,
    .copy = cuda_copy,
    .stats = cuda_stats,
    .close = cuda_close,
};
