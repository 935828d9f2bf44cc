// The runs of a device: a run issues the commands of the plan, or repeats them
// as a graph, and patches in no more than its number and the arguments'
// addresses.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"
#include "base/log.h"
#include "runtime/cuda/commands/plan.h"
#include "runtime/cuda/issue/capture.h"
#include "runtime/cuda/issue/graph.h"
#include "runtime/cuda/issue/pass.h"
#include "runtime/cuda/issue/run.h"
#include "runtime/cuda/issue/sizes.h"
#include "runtime/cuda/libraries/attends.h"
#include "runtime/cuda/libraries/single.h"
#include "runtime/cuda/memory/peers.h"
#include "runtime/cuda/transfers/fused.h"
#include "runtime/cuda/transfers/nccl.h"
#include "runtime/cuda/transfers/transport.h"
#include "runtime/miscount.h"

#define ARGUMENT_ALIGNMENT 16

typedef struct ends {
    hd_cu_event start, end; // owned
} ends;

struct hd_cuda_runs {
    uint64_t n;        // begun
    uint64_t finished; // that the caller has waited for
    // An event that has a time holds up its stream for 2 us and more, one
    // without for nothing. So but for those who ask for times only a run that
    // begins with none under way has one, and that in `alone`.
    ends ends[HD_CUDA_RUNS], alone;
    _Atomic uint64_t last_alone; // for the thread that watches, too
    hd_cuda_argument *argument;  // owned: of this run
    bool *held;          // owned, by argument: a graph has held its allocation
    hd_cu_stream caller; // of this run
    hd_cuda_graph graph[HD_CUDA_GRAPHS + 1]; // one more while it is made
    int ngraphs;
    hd_cuda_graph *replay; // of this run; NULL if steps are issued
    bool rigid;            // nodes cannot be set: no graphs are made
    bool takes_events;     // among its arguments
    hd_cu_event *moment;   // owned: two a step, if times are asked for
    uint64_t random;       // of chaos
    double seconds;
    uint64_t sending; // bytes to peers, by this run
    // For the thread that watches: runs of which something is issued, and those
    // whose end is recorded.
    _Atomic uint64_t entered;
    _Atomic uint64_t begun;
};

static const ends *ends_of(const hd_device *device, uint64_t n)
{
    uint64_t alone =
        atomic_load_explicit(&device->run->last_alone, memory_order_relaxed);

    return n == alone ? &device->run->alone
                      : &device->run->ends[n % HD_CUDA_RUNS];
}

// Pairs with the releases in begin, tell_begun and record_mark.
static uint64_t load_count(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_acquire);
}

// Sequentially consistent, as the failure is: who comes second of this and the
// thread that watches sees the other.
static void tell_issuing(hd_device *device)
{
    atomic_store_explicit(&device->home->issuing, device, memory_order_seq_cst);
}

// Another session may be in the middle of a run.
static void tell_issued(hd_device *device)
{
    hd_device *issuing = device;

    atomic_compare_exchange_strong_explicit(&device->home->issuing, &issuing,
                                            NULL, memory_order_seq_cst,
                                            memory_order_seq_cst);
}

// ------------------------------------------------------------- commands

static hd_status write_words(const hd_cuda_plan *plan,
                             const hd_cuda_command *command,
                             hd_cu_stream stream, hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_cu_memop *word = &plan->word[command->first];

    if (device->captures != NULL)
        return hd_cuda_count_words(device, word, command->n, stream, diag);
    hd_cuda_number_words(plan, command, device->run->n);
    HD_CUDA_TRY(device, diag, stream_words, stream, (unsigned)command->n, word,
                0);
    return HD_OK;
}

static hd_status touch_event(hd_device *device, const hd_cuda_command *command,
                             hd_cu_stream stream, hd_diag *diag)
{
    hd_cu_event event = device->run->argument[command->event].at;

    if (command->kind == HD_CUDA_RECORD_ARGUMENT)
        HD_CUDA_TRY(device, diag, event_record, event, stream);
    else
        HD_CUDA_TRY(device, diag, stream_wait_event, stream, event, 0);
    return HD_OK;
}

// Counted before and after: so who watches knows which mark an event stands
// for.
static hd_status record_mark(hd_device *device, const hd_cuda_command *command,
                             hd_diag *diag)
{
    hd_cuda_marks *marks;
    uint64_t n;

    if (command->wait < 0)
        return HD_OK;
    marks = &device->stream[device->waits.wait[command->wait].marked].marks;
    n = atomic_load_explicit(&marks->begun, memory_order_relaxed);
    // These pair with those in hd_cuda_run_has_passed.
    atomic_store_explicit(&marks->begun, n + 1, memory_order_release);
    HD_CUDA_TRY(device, diag, event_record,
                marks->event[n % (unsigned)marks->room],
                device->stream[command->stream].stream);
    atomic_store_explicit(&marks->recorded, n + 1, memory_order_release);
    return HD_OK;
}

// A function of the caller's enqueues it. One that fails leaves peers waiting,
// whatever its status says.
static hd_status call(hd_device *device, const hd_cuda_command *command,
                      hd_cu_stream stream, hd_diag *diag)
{
    const hd_step *step = command->step;
    void *address[HD_MAX_VIEWS];
    char text[HD_GROUP_TEXT];
    hd_status status;

    for (int i = 0; i < step->op->nviews; i++)
        address[i] = (void *)(uintptr_t)hd_cuda_address(
            device, hd_cuda_at_span(&step->span[i]));
    status = hd_callee_call(&device->binding.calls->callee[command->first],
                            device->binding.module, step,
                            (hd_call_place){"cuda", stream}, address, text);
    if (status == HD_OK)
        return HD_OK;
    if (device->captured)
        return hd_fail(diag, status, "%s", text);
    hd_cuda_fail(device, status, text, "");
    return hd_cuda_report(device, diag);
}

static hd_status issue_command(const hd_cuda_plan *plan,
                               const hd_cuda_command *command, hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_cu_stream stream = device->stream[command->stream].stream;

    switch (command->kind) {
    case HD_CUDA_WORDS:
        return write_words(plan, command, stream, diag);
    case HD_CUDA_COPY:
        HD_CUDA_TRY(device, diag, copy, hd_cuda_address(device, command->to),
                    hd_cuda_address(device, command->from), command->bytes,
                    stream);
        return HD_OK;
    case HD_CUDA_KERNEL:
        return hd_cuda_start(plan, &plan->launch[command->launch],
                             plan->device->run->n, stream, diag);
    case HD_CUDA_PRODUCT:
    case HD_CUDA_ATTEND:
        return hd_cuda_issue_single(plan, command, stream, diag);
    case HD_CUDA_CALL:
        return call(device, command, stream, diag);
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
        HD_TRY(hd_cuda_nccl_transfer(device, command, diag));
        return record_mark(device, command, diag);
    case HD_CUDA_FUSED:
        HD_TRY(hd_cuda_fused_issue(device, command, diag));
        return record_mark(device, command, diag);
    }
    return HD_ERROR_INVALID;
}

static void delay(hd_device *device)
{
    struct timespec t = {0, 0};

    if (!device->binding.chaos)
        return;
    device->run->random =
        device->run->random * 6364136223846793005u + 1442695040888963407u;
    t.tv_nsec = (long)(device->run->random >> 33) % 200000;
    if ((device->run->random >> 60) < 3)
        nanosleep(&t, NULL);
}

static hd_status issue(const hd_cuda_plan *plan, int first, int end,
                       hd_diag *diag)
{
    hd_device *device = plan->device;

    for (int i = first; i < end; i++) {
        const hd_cuda_command *command = &plan->command[i];

        delay(device);
        HD_TRY(issue_command(plan, command, diag));
        if (device->capturing && !device->captured)
            hd_cuda_graph_note(device, device->run->replay, i);
        HD_TRY(hd_cuda_throttle(device, command->stream, diag));
    }
    return HD_OK;
}

// The events that tell when a step, or a group of `n`, started (which 0) or
// ended (1).
static hd_status note_moment(hd_device *device, const hd_step *step, int n,
                             int which, hd_diag *diag)
{
    if (device->run->moment == NULL || device->capturing)
        return HD_OK;
    for (int i = 0; i < n; i++)
        HD_CUDA_TRY(device, diag, event_record,
                    device->run->moment[2 * (step->index + i) + which],
                    device->stream[step->stream + 1].stream);
    return HD_OK;
}

// A step, or a group of `n`.
static hd_status issue_step(const hd_cuda_plan *plan, const hd_step *step,
                            int n, hd_diag *diag)
{
    const int *first = &plan->first[step->index];

    HD_TRY(note_moment(plan->device, step, n, 0, diag));
    HD_TRY(issue(plan, first[0], first[n], diag));
    return note_moment(plan->device, step, n, 1, diag);
}

// Step by step, for those who want to know what belongs to which.
static hd_status issue_steps(const hd_cuda_plan *plan, hd_diag *diag)
{
    const hd_binding *binding = &plan->device->binding;
    const hd_steps *steps = plan->steps;
    hd_status status = HD_OK;
    int n;

    for (int64_t i = 0; i < steps->nsteps && status == HD_OK; i += n) {
        const hd_step *step = &steps->step[i];

        n = hd_cuda_together(plan, i);
        hd_ranges_step(binding->ranges, step);
        status = issue_step(plan, step, n, diag);
        hd_ranges_end(binding->ranges);
    }
    return status;
}

static hd_status issue_all(const hd_cuda_plan *plan, hd_diag *diag)
{
    int64_t nsteps = plan->steps->nsteps;

    if (plan->device->run->moment == NULL &&
        plan->device->binding.ranges == NULL)
        return issue(plan, 0, plan->ncommands, diag);
    HD_TRY(issue(plan, 0, plan->first[0], diag));
    HD_TRY(issue_steps(plan, diag));
    return issue(plan, plan->first[nsteps], plan->ncommands, diag);
}

// --------------------------------------------------------------- graphs

// Of memory that CUDA does not know the number is 0.
static void number_allocations(hd_device *device)
{
    for (int i = 0; i < device->narguments; i++) {
        hd_cuda_argument *argument = &device->run->argument[i];

        if (device->run->held[i] &&
            device->cu.pointer_attribute(
                &argument->allocation, HD_CU_POINTER_BUFFER_ID,
                (hd_cu_ptr)(uintptr_t)argument->at) != HD_CU_SUCCESS)
            argument->allocation = 0;
    }
}

static void drop_graph(hd_device *device, int i)
{
    hd_cuda_runs *runs = device->run;

    hd_cuda_graph_free(device, &runs->graph[i]);
    runs->ngraphs--;
    memmove(&runs->graph[i], &runs->graph[i + 1],
            sizeof *runs->graph * (size_t)(runs->ngraphs - i));
}

#define RIGID                                                                \
    "rank %d: CUDA does not set the nodes of a graph anew: runs are issued " \
    "without one"

// A graph that is not ready for all turns is good for one run.
static void give_up_graphs(hd_device *device, hd_diag *diag)
{
    device->run->rigid = true;
    hd_warning(diag, HD_CODE_NONE, (hd_loc){0}, RIGID, device->rank);
    hd_log(HD_SEVERITY_WARNING, RIGID, device->rank);
}

// Those that were used lately are dropped last.
static hd_cuda_graph *use_last(hd_cuda_runs *runs, int i)
{
    hd_cuda_graph used = runs->graph[i];
    int last = runs->ngraphs - 1;

    memmove(&runs->graph[i], &runs->graph[i + 1],
            sizeof used * (size_t)(last - i));
    runs->graph[last] = used;
    return &runs->graph[last];
}

void hd_cuda_runs_forget(hd_device *device, const hd_cuda_plan *plan)
{
    for (int i = device->run->ngraphs - 1; i >= 0; i--) {
        if (device->run->graph[i].plan == plan)
            drop_graph(device, i);
    }
}

// One that is, or can be, set for this run.
static hd_cuda_graph *find_graph(const hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_cuda_runs *runs = device->run;

    for (int i = 0; i < runs->ngraphs; i++) {
        hd_cuda_graph *graph = &runs->graph[i];

        if (graph->plan != plan ||
            !hd_cuda_graph_fits(device, graph, runs->argument))
            continue;
        if (hd_cuda_graph_set(device, graph, runs->argument, runs->n))
            return use_last(runs, i);
        give_up_graphs(device, diag);
        drop_graph(device, i);
        return NULL;
    }
    return NULL;
}

static hd_status new_graph(const hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;

    device->run->replay = &device->run->graph[device->run->ngraphs];
    HD_TRY(hd_cuda_graph_new(plan, diag, device->run->replay));
    device->run->ngraphs++;
    device->capturing = true;
    device->stream[0].stream = device->home->capture;
    HD_CUDA_TRY(device, diag, capture_begin, device->home->capture,
                HD_CU_CAPTURE_RELAXED);
    return HD_OK;
}

// What the graph holds is known once it is captured.
static void note_held(hd_device *device)
{
    hd_cuda_runs *runs = device->run;

    for (int i = 0; i < device->narguments; i++)
        runs->held[i] |= runs->replay->held[i];
    number_allocations(device);
}

// Where there is no room for one more, the one that was not used for longest
// goes: of those alike, whose executables are then patched, or of all.
static bool take_place(hd_device *device)
{
    hd_cuda_runs *runs = device->run;
    hd_cuda_graph *graph = &runs->graph[HD_CUDA_GRAPHS];
    bool patched = false;
    int i = 0;

    if (runs->ngraphs <= HD_CUDA_GRAPHS)
        return false;
    while (i < HD_CUDA_GRAPHS &&
           !hd_cuda_graph_is_alike(graph, &runs->graph[i]))
        i++;
    if (i < HD_CUDA_GRAPHS)
        patched = hd_cuda_graph_patch(device, graph, &runs->graph[i],
                                      runs->argument, runs->n);
    drop_graph(device, i % HD_CUDA_GRAPHS);
    runs->replay = &runs->graph[runs->ngraphs - 1];
    return patched;
}

static hd_status end_capture(hd_device *device, hd_diag *diag)
{
    hd_cuda_runs *runs = device->run;
    hd_cu_result result =
        device->cu.capture_end(device->home->capture, &runs->replay->now.graph);

    device->capturing = false;
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "capture_end");
    note_held(device);
    if (take_place(device))
        return HD_OK;
    HD_TRY(hd_cuda_graph_make(device, runs->replay, runs->argument, runs->n,
                              diag));
    if (runs->replay->numberless)
        give_up_graphs(device, diag);
    return HD_OK;
}

// ----------------------------------------------------------------- runs

static hd_status take_arguments(hd_device *device, void *const *arguments,
                                hd_diag *diag)
{
    for (int i = 0; i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];
        void *at = buffer->argument >= 0 ? arguments[buffer->argument] : NULL;

        if (buffer->argument < 0)
            continue;
        at = hd_cuda_passed_at(device, buffer->argument, at);
        device->run->argument[buffer->argument].at = at;
        device->run->takes_events |=
            buffer->buffer->type.dtype == HD_DTYPE_EVENT;
        if (buffer->buffer->type.dtype == HD_DTYPE_EVENT)
            continue;
        if ((uintptr_t)at % ARGUMENT_ALIGNMENT != 0)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "argument %%%s is at %p, which is no multiple of %d",
                           buffer->buffer->name, at, ARGUMENT_ALIGNMENT);
        device->base[device->nbuffers + buffer->argument] =
            (hd_cu_ptr)(uintptr_t)at;
        if (!buffer->shared)
            device->base[i] = (hd_cu_ptr)(uintptr_t)at;
    }
    return HD_OK;
}

// For times, and for who watches that a run does not wait for too long.
static bool has_start(const hd_device *device)
{
    return device->binding.times != NULL ||
           (device->waits.n > 0 && device->captures == NULL);
}

// Runs follow each other also where the caller's streams do not, and one handle
// stands for a stream of each thread. Those of other sessions too: what they
// use is the home's.
static hd_status follow(hd_device *device, hd_cu_stream stream, hd_diag *diag)
{
    const hd_cuda_home *home = device->home;

    if (home->last != NULL &&
        (stream != home->caller || stream == HD_CU_STREAM_PER_THREAD))
        HD_CUDA_TRY(device, diag, stream_wait_event, stream, home->end, 0);
    return HD_OK;
}

// Waits for the run that had its place, and for those before it.
static hd_status begin(const hd_cuda_plan *plan, void *stream, hd_diag *diag)
{
    hd_device *device = plan->device;
    uint64_t before = device->run->n, n = before + 1;
    bool alone =
        before == device->run->finished && device->binding.times == NULL;

    if (n > device->run->finished + HD_CUDA_RUNS)
        HD_TRY(hd_cuda_await(device, ends_of(device, n - HD_CUDA_RUNS)->end,
                             diag));
    HD_TRY(hd_cuda_report(device, diag));
    HD_TRY(follow(device, stream, diag));
    if (alone)
        atomic_store_explicit(&device->run->last_alone, n,
                              memory_order_relaxed);
    device->run->n = n;
    hd_cuda_sizes_say(plan, n);
    device->run->caller = stream;
    device->stream[0].stream = stream;
    if (alone || has_start(device))
        HD_CUDA_TRY(device, diag, event_record, ends_of(device, n)->start,
                    stream);
    atomic_store_explicit(&device->run->entered, device->run->n,
                          memory_order_release);
    return HD_OK;
}

// What the caller records cannot be waited for inside a graph: the caller's
// stream does, before it, and likewise records for the caller after it.
static hd_status touch_events(const hd_cuda_plan *plan, hd_cuda_kind kind,
                              hd_diag *diag)
{
    for (int i = 0; i < plan->ncommands; i++) {
        if (plan->command[i].kind == kind)
            HD_TRY(touch_event(plan->device, &plan->command[i],
                               plan->device->run->caller, diag));
    }
    return HD_OK;
}

static hd_status launch_graph(const hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;

    if (device->run->takes_events)
        HD_TRY(touch_events(plan, HD_CUDA_WAIT_ARGUMENT, diag));
    HD_TRY(hd_cuda_graph_launch(device, device->run->replay, device->run->n,
                                device->run->caller, diag));
    if (device->run->takes_events)
        HD_TRY(touch_events(plan, HD_CUDA_RECORD_ARGUMENT, diag));
    return HD_OK;
}

static hd_status run_graph(const hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;

    number_allocations(device);
    device->run->replay = find_graph(plan, diag);
    if (device->run->replay == NULL && device->run->rigid)
        return issue_all(plan, diag);
    if (device->run->replay == NULL) {
        HD_TRY(new_graph(plan, diag));
        HD_TRY(issue_all(plan, diag));
        HD_TRY(end_capture(device, diag));
    }
    return launch_graph(plan, diag);
}

// Nothing more of the run is issued, and its end is there to be seen.
static void tell_begun(hd_device *device)
{
    hd_cuda_home *home = device->home;

    home->last = device;
    home->caller = device->run->caller;
    home->end = ends_of(device, device->run->n)->end;
    atomic_store_explicit(&device->run->begun, device->run->n,
                          memory_order_release);
    tell_issued(device);
}

static hd_status run(const hd_cuda_plan *plan, void *stream, hd_diag *diag)
{
    hd_device *device = plan->device;

    tell_issuing(device);
    HD_TRY(begin(plan, stream, diag));
    HD_TRY(hd_cuda_pass(plan, true, diag));
    HD_TRY(device->binding.graph && !device->run->rigid
               ? run_graph(plan, diag)
               : issue_all(plan, diag));
    // A capture has its own.
    device->stream[0].stream = device->run->caller;
    HD_TRY(hd_cuda_pass(plan, false, diag));
    HD_CUDA_TRY(device, diag, event_record,
                ends_of(device, device->run->n)->end, stream);
    tell_begun(device);
    return HD_OK;
}

static hd_status issue_passed(const hd_cuda_plan *plan, hd_diag *diag)
{
    HD_TRY(hd_cuda_pass(plan, true, diag));
    HD_TRY(issue_all(plan, diag));
    return hd_cuda_pass(plan, false, diag);
}

// What the caller captures is not begun: no number, no events of its own, and
// nothing that waits for what happens outside of the capture.
static hd_status capture_run(const hd_cuda_plan *plan, void *stream,
                             hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_status issued, ended;

    HD_TRY(hd_cuda_report(device, diag));
    HD_TRY(hd_cuda_capture_begin(device, stream, diag));
    device->capturing = device->captured = true;
    issued = issue_passed(plan, diag);
    device->capturing = device->captured = false;
    if (issued != HD_OK)
        hd_cuda_capture_break(device);
    ended = hd_cuda_capture_end(device, issued == HD_OK ? diag : NULL);
    return issued != HD_OK ? issued : ended;
}

// The thread that watches leaves the streams alone as long.
static hd_status capture_alone(const hd_cuda_plan *plan, void *stream,
                               hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_status status;

    pthread_mutex_lock(&device->home->issue);
    tell_issuing(device);
    status = capture_run(plan, stream, diag);
    tell_issued(device);
    pthread_mutex_unlock(&device->home->issue);
    return status;
}

static void abandon_capture(hd_device *device)
{
    hd_cu_graph graph = NULL;

    device->cu.capture_end(device->home->capture, &graph);
    device->capturing = false;
    if (graph != NULL)
        device->cu.graph_destroy(graph);
}

// What was issued of a run waits for peers on the caller's stream too: so its
// end is recorded all the same, but on a device that does nothing any more.
static void abandon_rest(hd_device *device)
{
    hd_cu_stream stream = device->run->caller;

    if (device->captures != NULL)
        hd_cuda_captures_abandon(device, stream);
    if (device->cu.event_record(ends_of(device, device->run->n)->end, stream) ==
            HD_CU_SUCCESS ||
        device->cu.stream_query(stream) != HD_CU_NOT_READY)
        tell_begun(device);
}

// A run that fails half way leaves peers waiting for the rest of it, and a
// capture open in which nothing else may be done; and nobody waits any more for
// the end of the runs before it.
static void abandon(hd_device *device, hd_status status, const char *part)
{
    char text[HD_GROUP_TEXT] = "";

    if (device->capturing)
        abandon_capture(device);
    if (load_count(&device->run->entered) > load_count(&device->run->begun))
        abandon_rest(device);
    tell_issued(device);
    snprintf(text, sizeof text, "rank %d could not %s its run", device->rank,
             part);
    hd_cuda_fail(device, status, text, ""); // unless something else has
    hd_ignore(hd_cuda_report(device, NULL));
}

#define INSTEAD                                                             \
    "run outside of the capture (with the session's option 'capturable' a " \
    "run "                                                                  \
    "may be part of one)"

// What is issued into a capture happens when its graph is launched, as often as
// it is. A run that the host numbers happens once, as its peers count it.
static hd_status check_stream(hd_device *device, hd_cu_stream stream,
                              hd_diag *diag, bool *captured)
{
    int capture = HD_CU_CAPTURE_NONE;
    hd_cu_result result = device->cu.capture_status(stream, &capture);

    if (result == HD_CU_CAPTURE_IMPLICIT)
        return hd_fail(
            diag, HD_ERROR_ARGUMENT,
            "rank %d: run %llu is for the default stream, which a "
            "stream that is being captured is in order with: " INSTEAD,
            device->rank, (unsigned long long)device->run->n + 1);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "capture_status");
    *captured = capture != HD_CU_CAPTURE_NONE && device->captures != NULL;
    if (capture != HD_CU_CAPTURE_NONE && !*captured)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "rank %d: run %llu is for stream %p, which is being "
                       "captured: " INSTEAD,
                       device->rank, (unsigned long long)device->run->n + 1,
                       (void *)stream);
    return HD_OK;
}

// Two ranks that have one context have one default stream. There the run of one
// would wait for that of the other, which stands behind it.
static hd_status check_default(const hd_device *device, hd_cu_stream stream,
                               hd_diag *diag)
{
    if (device->peers->beside < 0 ||
        (stream != NULL && stream != HD_CU_STREAM_LEGACY))
        return HD_OK;
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "rank %d: run %llu is for the default stream, which is that "
                   "of rank %d too: both are threads of this process that have "
                   "one device; give each a stream of its own",
                   device->rank, (unsigned long long)device->run->n + 1,
                   device->peers->beside);
}

// Which of the events that its step waits for it is.
static const char *event_name(const hd_device *device,
                              const hd_cuda_command *command)
{
    const hd_span *span = command->step->span;

    while (device->buffer[span->buffer->id].argument != command->event)
        span++;
    return span->buffer->name;
}

// To ask whether an event was recorded in this capture may end it, and to wait
// for one of elsewhere does.
static hd_status check_no_events(hd_device *device, hd_diag *diag)
{
    for (int i = 0; device->run->takes_events && i < device->nbuffers; i++) {
        const hd_root *buffer = &device->buffer[i];

        if (buffer->argument >= 0 &&
            buffer->buffer->type.dtype == HD_DTYPE_EVENT)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "rank %d: a run with the event %%%s is no part of a "
                           "capture: run outside of it",
                           device->rank, buffer->buffer->name);
    }
    return HD_OK;
}

// To wait for an event of a capture is to become part of it.
static hd_status check_events(const hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;

    for (int i = 0; device->run->takes_events && i < plan->ncommands; i++) {
        const hd_cuda_command *command = &plan->command[i];

        if (command->kind == HD_CUDA_WAIT_ARGUMENT &&
            device->cu.event_query(device->run->argument[command->event].at) ==
                HD_CU_CAPTURED_EVENT)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "rank %d: run %llu waits for the event %%%s, which "
                           "was last recorded in a capture: " INSTEAD,
                           device->rank, (unsigned long long)device->run->n + 1,
                           event_name(device, command));
    }
    return HD_OK;
}

// Runs of several threads' sessions are issued one after the other.
static hd_status run_alone(const hd_cuda_plan *plan, void *stream,
                           hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_status status;

    pthread_mutex_lock(&device->home->issue);
    status = run(plan, stream, diag);
    if (status != HD_OK)
        abandon(device, status, "issue");
    pthread_mutex_unlock(&device->home->issue);
    return status;
}

hd_status hd_cuda_run(hd_device *device, void *stream, void *const *arguments,
                      const hd_passing *passing, int variant, hd_diag *diag,
                      bool *captured)
{
    const hd_cuda_plan *plan =
        variant < 0 ? device->whole : device->variant[variant];
    hd_status status;
    int mode;

    device->run->sending = plan->sending;
    HD_TRY(hd_cuda_pass_take(plan, passing, arguments, diag));
    HD_TRY(take_arguments(device, arguments, diag));
    status = hd_cuda_enter(device, diag, &mode);
    if (status != HD_OK) {
        abandon(device, status, "issue");
        return status;
    }
    status = check_stream(device, stream, diag, captured);
    if (status == HD_OK)
        status = check_default(device, stream, diag);
    if (status == HD_OK)
        status = *captured ? check_no_events(device, diag)
                           : check_events(plan, diag);
    if (status == HD_OK)
        status = *captured ? capture_alone(plan, stream, diag)
                           : run_alone(plan, stream, diag);
    else if (status != HD_ERROR_ARGUMENT)
        abandon(device, status, "issue");
    hd_cuda_leave(device, mode);
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
    const hd_cuda_runs *runs = device->run;
    const ends *run =
        device->binding.times != NULL ? ends_of(device, runs->n) : &runs->alone;
    double seen = now();
    float ms = 0;

    HD_CUDA_TRY(device, diag, event_elapsed, &ms, run->start, run->end);
    device->run->seconds = (double)ms * 1e-3;
    for (int64_t i = 0;
         i < 2 * device->binding.steps->nsteps && device->run->moment != NULL;
         i++) {
        HD_CUDA_TRY(device, diag, event_elapsed, &ms, run->start,
                    device->run->moment[i]);
        device->binding.times[i] =
            seen - device->run->seconds + (double)ms * 1e-3;
    }
    return HD_OK;
}

// What the stream's kernels told of counts, of the first step; 0 if nothing.
static hd_status read_miscount(hd_device *device, int stream, hd_diag *diag,
                               hd_kernel_miscount *out)
{
    hd_cuda_at at = {hd_cuda_room_of(device, stream, HD_CUDA_MISCOUNT), 0};

    *out = (hd_kernel_miscount){0};
    if (device->stream[stream].need[HD_CUDA_MISCOUNT] == 0)
        return HD_OK;
    return hd_cuda_copy_now(device, (hd_cu_ptr)(uintptr_t)out,
                            hd_cuda_address(device, at), sizeof *out, diag);
}

// A launch has waited in vain for what nobody watches, as no peer is late.
static hd_status report_untold(const hd_device *device,
                               const hd_kernel_miscount *told, hd_diag *diag)
{
    const hd_step *step = &device->binding.steps->step[told->step - 1];
    char text[HD_GROUP_TEXT];
    hd_line line = {text, sizeof text};

    for (int64_t i = 0; i < told->count; i++)
        do
            step++;
        while (step->op->code != HD_OP_MATMUL);
    hd_line_put_step(&line, device->binding.module, step->op->code,
                     step->op->loc.line, step->op->loc.column, step->index,
                     step->stream + 1, -1);
    return hd_fail(diag, HD_ERROR_TIMEOUT,
                   "rank %d: %s) has waited in vain in its launch for a word "
                   "that says it may begin: that of run %lld is the last one",
                   device->rank, text, (long long)told->left);
}

// Runs that are over had counts of groups that were taken for others.
static hd_status check_counts(hd_device *device, hd_diag *diag)
{
    hd_kernel_miscount first = {0}, told;
    hd_miscount miscount;

    for (int i = 0; i < device->nstreams; i++) {
        HD_TRY(read_miscount(device, i, diag, &told));
        if (told.step > 0 && (first.step == 0 || told.step < first.step))
            first = told;
    }
    if (first.step == 0)
        return HD_OK;
    if (first.group == HD_KERNEL_LATE)
        return hd_fail(diag, HD_ERROR_TIMEOUT,
                       "rank %d: a block of the kernel of step %lld has waited "
                       "in vain for what it, or another one, makes",
                       device->rank, (long long)first.step - 1);
    if (first.group == HD_KERNEL_UNTOLD)
        return report_untold(device, &first, diag);
    miscount = (hd_miscount){true, first.group, first.count, first.left};
    return hd_miscount_report(device->binding.module, device->rank,
                              &device->binding.steps->step[first.step - 1],
                              &miscount, diag);
}

static hd_status check_sizes(hd_device *device, hd_diag *diag)
{
    char text[HD_GROUP_TEXT];

    if (!hd_cuda_sizes_differ(device, text, sizeof text))
        return HD_OK;
    hd_cuda_fail(device, HD_ERROR_INVALID, text, "");
    return hd_cuda_report(device, diag);
}

static hd_status finish(hd_device *device, hd_diag *diag)
{
    bool told;

    if (device->run->n == 0 && device->captures == NULL)
        return hd_cuda_report(device, diag);
    HD_TRY(hd_cuda_await(device, ends_of(device, device->run->n)->end, diag));
    HD_TRY(hd_cuda_catch_up(device, diag));
    HD_TRY(check_sizes(device, diag));
    HD_TRY(hd_cuda_transports_check(device, INT64_MAX, diag, &told));
    if (device->run->n > 0)
        HD_TRY(read_times(device, diag));
    device->run->finished = device->run->n;
    return check_counts(device, diag);
}

hd_status hd_cuda_finish(hd_device *device, hd_diag *diag)
{
    int mode;
    hd_status status = hd_cuda_enter(device, diag, &mode);

    if (status != HD_OK) {
        // Peers have what they need of runs that are over.
        if (device->captures != NULL || device->run->finished < device->run->n)
            abandon(device, status, "finish");
        return status;
    }
    status = finish(device, diag);
    hd_cuda_leave(device, mode);
    return status;
}

// An event that has come to stand for a later run is reached after this one. On
// a device that has failed a run that another thread issues is abandoned soon.
hd_status hd_cuda_await_runs(hd_device *device, uint64_t run, int64_t deadline,
                             hd_diag *diag, bool *over)
{
    hd_status status;
    int mode;

    *over = true;
    HD_TRY(hd_cuda_enter(device, diag, &mode));
    status = hd_cuda_await_until(device, ends_of(device, run)->end, deadline,
                                 NULL, over);
    if (status != HD_OK) {
        while (hd_cuda_runs_issue(device))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        status = hd_cuda_report(device, diag);
    }
    if (status == HD_OK && *over)
        status = hd_cuda_catch_up_until(device, deadline, diag, over);
    if (status == HD_OK && *over)
        status = hd_cuda_transports_check(device, deadline, diag, over);
    hd_cuda_leave(device, mode);
    return status;
}

// ------------------------------------------------------ for the watcher

uint64_t hd_cuda_runs_begun(const hd_device *device)
{
    return load_count(&device->run->begun);
}

// A run that was entered and not begun has an end that nobody sees.
bool hd_cuda_runs_rest(hd_device *device)
{
    uint64_t begun = load_count(&device->run->begun);

    return load_count(&device->run->entered) == begun &&
           (device->captures == NULL || hd_cuda_captures_busy(device) == 0) &&
           (begun == 0 || device->cu.event_query(ends_of(device, begun)->end) !=
                              HD_CU_NOT_READY);
}

// The host may wait in the middle of the last one, whose end is not recorded
// then.
uint64_t hd_cuda_run_in_flight(hd_device *device)
{
    uint64_t entered = load_count(&device->run->entered);
    uint64_t begun = load_count(&device->run->begun);
    uint64_t n = begun > HD_CUDA_RUNS ? begun - HD_CUDA_RUNS + 1 : 1;

    if (device->captures != NULL)
        return device->waits.n > 0 ? hd_cuda_captures_busy(device) : 0;
    for (; n <= entered && device->waits.n > 0; n++) {
        const ends *run = ends_of(device, n);

        if (n <= begun && device->cu.event_query(run->end) != HD_CU_NOT_READY)
            continue;
        return device->cu.event_query(run->start) == HD_CU_NOT_READY ? 0 : n;
    }
    return 0;
}

// An event that has come to stand for a later mark tells nothing of this one,
// which is over by then.
bool hd_cuda_run_has_passed(const hd_device *device, uint64_t run, int stream,
                            int mark)
{
    const hd_cuda_marks *marks = &device->stream[stream].marks;
    uint64_t n = (run - 1) * (unsigned)marks->each + (unsigned)mark;
    uint64_t room = (unsigned)marks->room;

    if (load_count(&marks->recorded) <= n)
        return false;
    return load_count(&marks->begun) > n + room ||
           device->cu.event_query(marks->event[n % room]) != HD_CU_NOT_READY ||
           load_count(&marks->begun) > n + room;
}

// ----------------------------------------------------- opening, closing

static hd_status open_moments(hd_device *device, hd_diag *diag)
{
    int64_t n = 2 * device->binding.steps->nsteps;

    if (device->binding.times == NULL)
        return HD_OK;
    if (device->binding.graph)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "the steps of a CUDA graph have no times of their own: "
                       "ask for times, or for a graph");
    device->run->moment = calloc((size_t)n + 1, sizeof *device->run->moment);
    if (device->run->moment == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory for the steps' times");
    for (int64_t i = 0; i < n; i++)
        HD_CUDA_TRY(device, diag, event_create, &device->run->moment[i],
                    HD_CU_EVENT_DEFAULT);
    return HD_OK;
}

static hd_status open_ends(hd_device *device, bool timed, hd_diag *diag,
                           ends *out)
{
    unsigned flags = timed ? HD_CU_EVENT_DEFAULT : HD_CU_EVENT_DISABLE_TIMING;

    HD_CUDA_TRY(device, diag, event_create, &out->start, flags);
    HD_CUDA_TRY(device, diag, event_create, &out->end, flags);
    return HD_OK;
}

hd_status hd_cuda_runs_open(hd_device *device, hd_diag *diag)
{
    hd_cuda_runs *runs = device->run = calloc(1, sizeof *runs);

    if (runs != NULL)
        runs->argument =
            calloc((size_t)device->narguments + 1, sizeof *runs->argument);
    if (runs != NULL)
        runs->held = calloc((size_t)device->narguments + 1, sizeof *runs->held);
    if (runs == NULL || runs->argument == NULL || runs->held == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for runs");
    runs->random = device->binding.seed + (uint64_t)device->rank;
    HD_TRY(open_ends(device, true, diag, &runs->alone));
    for (int i = 0; i < HD_CUDA_RUNS; i++)
        HD_TRY(open_ends(device, device->binding.times != NULL, diag,
                         &runs->ends[i]));
    return open_moments(device, diag);
}

static void destroy_event(const hd_device *device, hd_cu_event event)
{
    if (event != NULL)
        device->cu.event_destroy(event);
}

static void close_ends(const hd_device *device, const ends *ends)
{
    destroy_event(device, ends->start);
    destroy_event(device, ends->end);
}

void hd_cuda_runs_close(hd_device *device)
{
    hd_cuda_runs *runs = device->run;
    int64_t nmoments = 2 * device->binding.steps->nsteps;

    if (runs == NULL)
        return;
    for (int i = 0; i < runs->ngraphs; i++)
        hd_cuda_graph_free(device, &runs->graph[i]);
    for (int64_t i = 0; runs->moment != NULL && i < nmoments; i++)
        destroy_event(device, runs->moment[i]);
    close_ends(device, &runs->alone);
    for (int i = 0; i < HD_CUDA_RUNS; i++)
        close_ends(device, &runs->ends[i]);
    free(runs->moment);
    free(runs->argument);
    free(runs->held);
    free(runs);
}

void hd_cuda_run_stats(const hd_device *device, hd_stats *stats)
{
    if (device->run == NULL || device->run->n == 0)
        return;
    stats->bytes_sent = device->run->sending;
    stats->seconds = device->run->seconds;
}
