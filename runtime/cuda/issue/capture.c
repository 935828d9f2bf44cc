#include "runtime/cuda/issue/capture.h"

#include <stdlib.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda/memory/peers.h"
#include "runtime/ranks/doorbell.h"

// A look at the tally is given up after that.
#define PATIENCE INT64_C(1000000000)

struct hd_cuda_captures {
    hd_kernel_tally *seen; // owned, pinned: the tally, as it was read last
    hd_cu_function words;
    unsigned threads;     // of that
    hd_cu_stream *branch; // owned, by stream: in captures, but for the caller's
    hd_cu_event end;      // owned: of the last run that was captured
};

// ------------------------------------------------------------- opening

static hd_status open_tally(hd_device *device, hd_diag *diag)
{
    void *seen = NULL;

    HD_CUDA_TRY(device, diag, alloc, &device->tally, sizeof(hd_kernel_tally));
    HD_CUDA_TRY(device, diag, fill8, device->tally, 0, sizeof(hd_kernel_tally),
                device->home->rescue);
    HD_CUDA_TRY(device, diag, stream_synchronize, device->home->rescue);
    HD_CUDA_TRY(device, diag, host_alloc, &seen, sizeof(hd_kernel_tally),
                HD_CU_HOST_PORTABLE);
    device->captures->seen = seen;
    return HD_OK;
}

static hd_status open_branches(hd_device *device, hd_diag *diag)
{
    hd_cuda_captures *captures = device->captures;

    captures->branch =
        calloc((size_t)device->nstreams, sizeof *captures->branch);
    if (captures->branch == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d streams",
                       device->nstreams);
    for (int i = 1; i < device->nstreams; i++)
        HD_CUDA_TRY(device, diag, stream_create, &captures->branch[i],
                    HD_CU_STREAM_NON_BLOCKING, 0);
    HD_CUDA_TRY(device, diag, event_create, &captures->end,
                HD_CU_EVENT_DISABLE_TIMING);
    return HD_OK;
}

static hd_status no_memory(hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_NO_MEMORY,
                   "no memory for runs that are captured");
}

static hd_status open_words(hd_device *device, hd_diag *diag)
{
    hd_text text = {0};
    hd_kernel_grid grid = {0};
    hd_status status = hd_emit_words(&text, &grid);

    if (status == HD_OK)
        status =
            hd_cuda_kernel(device, text.bytes, diag, &device->captures->words);
    else
        status = no_memory(diag);
    device->captures->threads = grid.threads;
    hd_text_free(&text);
    return status;
}

hd_status hd_cuda_captures_open(hd_device *device, hd_diag *diag)
{
    if (!device->binding.capturable)
        return HD_OK;
    device->captures = calloc(1, sizeof *device->captures);
    if (device->captures == NULL)
        return no_memory(diag);
    HD_TRY(open_words(device, diag));
    HD_TRY(open_tally(device, diag));
    return open_branches(device, diag);
}

// Runs that other sessions add to the capture do not follow one of this.
static void forget_captured(hd_device *device)
{
    hd_cuda_home *home = device->home;

    pthread_mutex_lock(&home->issue);
    if (home->captured.end == device->captures->end)
        home->captured = (hd_cuda_last_captured){0};
    pthread_mutex_unlock(&home->issue);
}

void hd_cuda_captures_close(hd_device *device)
{
    hd_cuda_captures *captures = device->captures;

    if (captures == NULL)
        return;
    forget_captured(device);
    for (int i = 1; captures->branch != NULL && i < device->nstreams; i++) {
        if (captures->branch[i] != NULL)
            device->cu.stream_destroy(captures->branch[i]);
    }
    if (captures->end != NULL)
        device->cu.event_destroy(captures->end);
    if (captures->seen != NULL)
        device->cu.host_free(captures->seen);
    if (device->tally != 0)
        device->cu.free(device->tally);
    free(captures->branch);
    free(captures);
}

// --------------------------------------------------------------- words

static uint64_t kind_of(const hd_cu_memop *word)
{
    switch (word->operation) {
    case HD_CU_OP_WAIT_32:
        return HD_WORD_WAIT;
    case HD_CUDA_OP_BEGIN:
        return HD_WORD_BEGIN;
    case HD_CUDA_OP_END:
        return HD_WORD_END;
    default:
        return HD_WORD_WRITE;
    }
}

static hd_status start_words(hd_device *device, const hd_cu_memop *word, int n,
                             hd_cu_stream stream, hd_diag *diag)
{
    uint64_t at[1 + HD_WORDS_ROOM] = {device->tally};
    size_t bytes = sizeof at;
    void *extra[] = {(void *)HD_CU_LAUNCH_BUFFER, at,
                     (void *)HD_CU_LAUNCH_BUFFER_SIZE, &bytes,
                     (void *)HD_CU_LAUNCH_END};
    hd_cu_launch_config config = {.grid = {1, 1, 1},
                                  .block = {device->captures->threads, 1, 1},
                                  .stream = stream};

    for (int i = 0; i < n; i++)
        at[1 + i] = word[i].word.address + kind_of(&word[i]);
    HD_CUDA_TRY(device, diag, launch, &config, device->captures->words, NULL,
                extra);
    return HD_OK;
}

hd_status hd_cuda_count_words(hd_device *device, const hd_cu_memop *word,
                              int all, hd_cu_stream stream, hd_diag *diag)
{
    for (int i = 0; i < all; i += HD_WORDS_ROOM) {
        int n = all - i < HD_WORDS_ROOM ? all - i : HD_WORDS_ROOM;

        HD_TRY(start_words(device, &word[i], n, stream, diag));
    }
    return HD_OK;
}

void hd_cuda_captures_abandon(hd_device *device, hd_cu_stream stream)
{
    device->cu.fill32(device->tally + offsetof(hd_kernel_tally, busy), 0, 1,
                      stream);
}

// ------------------------------------------------------------ capturing

// Which capture the stream is part of; 0 for none, and for one that has failed.
static hd_status find_capture(hd_device *device, hd_cu_stream stream,
                              hd_diag *diag, int *state, uint64_t *out)
{
    const hd_cu_node *last;
    hd_cu_graph graph;
    uint64_t number = 0;
    size_t n;

    HD_CUDA_TRY(device, diag, capture_info, stream, state, &number, &graph,
                &last, &n);
    *out = *state == HD_CU_CAPTURE_ACTIVE ? number : 0;
    return HD_OK;
}

// Another capture may have the streams that stand in for the session's.
static hd_status check_branches(hd_device *device, uint64_t capture,
                                hd_diag *diag)
{
    for (int i = 1; i < device->nstreams; i++) {
        uint64_t other = 0;
        int state = HD_CU_CAPTURE_NONE;

        HD_TRY(find_capture(device, device->captures->branch[i], diag, &state,
                            &other));
        if (state != HD_CU_CAPTURE_NONE && other != capture)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "rank %d: another capture, which has a run of this "
                           "session, has not ended",
                           device->rank);
    }
    return HD_OK;
}

// Session's streams and those that stand in for them change places.
static void swap_streams(hd_device *device)
{
    for (int i = 1; i < device->nstreams; i++) {
        hd_cu_stream stream = device->stream[i].stream;

        device->stream[i].stream = device->captures->branch[i];
        device->captures->branch[i] = stream;
    }
}

hd_status hd_cuda_capture_begin(hd_device *device, hd_cu_stream stream,
                                hd_diag *diag)
{
    hd_cuda_last_captured *last = &device->home->captured;
    int state = HD_CU_CAPTURE_NONE;
    uint64_t capture = 0;

    HD_TRY(find_capture(device, stream, diag, &state, &capture));
    if (capture == 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "rank %d: the capture of stream %p has failed",
                       device->rank, (void *)stream);
    HD_TRY(check_branches(device, capture, diag));
    // Runs of one capture follow each other on whichever of its streams, and of
    // whichever sessions.
    if (capture == last->capture && stream != last->stream)
        HD_CUDA_TRY(device, diag, stream_wait_event, stream, last->end, 0);
    *last = (hd_cuda_last_captured){capture, stream, device->captures->end};
    device->stream[0].stream = stream;
    swap_streams(device);
    return HD_OK;
}

hd_status hd_cuda_capture_end(hd_device *device, hd_diag *diag)
{
    const hd_cuda_last_captured *last = &device->home->captured;

    swap_streams(device);
    HD_CUDA_TRY(device, diag, event_record, last->end, last->stream);
    return HD_OK;
}

// Asking for a stream that is captured is what no capture survives.
void hd_cuda_capture_break(hd_device *device)
{
    device->cu.stream_query(device->home->captured.stream);
}

// ------------------------------------------------------ for the watcher

// The stream never waits for a peer.
static bool settle(hd_device *device)
{
    int64_t deadline = hd_clock() + PATIENCE;

    while (device->cu.stream_query(device->home->rescue) == HD_CU_NOT_READY) {
        if (hd_clock() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return true;
}

uint64_t hd_cuda_captures_busy(hd_device *device)
{
    const hd_kernel_tally *seen = device->captures->seen;

    if (device->cu.copy((hd_cu_ptr)(uintptr_t)seen, device->tally, sizeof *seen,
                        device->home->rescue) != HD_CU_SUCCESS ||
        !settle(device))
        return 0;
    return seen->busy ? seen->run : 0;
}

void hd_cuda_captures_release(hd_device *device)
{
    hd_cu_memop op = {
        .word = {.operation = HD_CU_OP_WRITE_32,
                 .address = device->tally + offsetof(hd_kernel_tally, over),
                 .value = 1,
                 .flags = HD_CU_WRITE_DEFAULT}};

    // What fails here is seen where the device does not come to rest.
    (void)device->cu.stream_words(device->home->rescue, 1, &op, 0);
}
