// Who waits for whom. Every stream leaves a mark in its rank's window of what
// it does; when a wait passes its deadline, the marks of all ranks make the
// report, so that one message names the stuck rank and those that hang on it.
#include <stdio.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cpu/cpu.h"

// state 2 bits | opcode 8 | peer + 1 14 | step + 1 32
static uint64_t pack_mark(hd_cpu_state state, const hd_step *step, int peer)
{
    uint64_t what = (uint64_t)state << 54 | (uint64_t)(peer + 1) << 32;

    if (step != NULL)
        what |= (uint64_t)step->op->code << 46 | (uint64_t)(step->index + 1);
    return what;
}

void hd_cpu_set_mark(hd_cpu_stream *stream, hd_cpu_state state,
                     const hd_step *step, int peer)
{
    hd_cpu_mark *mark = &stream->device->header->mark[stream->index];
    uint64_t where =
        step != NULL ? (uint64_t)step->op->loc.line << 32 | step->op->loc.column
                     : 0;

    atomic_store_explicit(&mark->where, where, memory_order_relaxed);
    atomic_store_explicit(&mark->what, pack_mark(state, step, peer),
                          memory_order_relaxed);
}

// A mark as it was read.
typedef struct sight {
    hd_cpu_state state;
    int opcode;
    int peer;
    int64_t step;
    uint32_t line, column;
} sight;

static sight look_at(const hd_cpu_mark *mark)
{
    uint64_t what = atomic_load_explicit(&mark->what, memory_order_relaxed);
    uint64_t where = atomic_load_explicit(&mark->where, memory_order_relaxed);

    return (sight){.state = (hd_cpu_state)(what >> 54 & 3),
                   .opcode = (int)(what >> 46 & 0xff),
                   .peer = (int)(what >> 32 & 0x3fff) - 1,
                   .step = (int64_t)(what & 0xffffffff) - 1,
                   .line = (uint32_t)(where >> 32),
                   .column = (uint32_t)where};
}

// "recv at ring.hd:17:21 (step 14, stream 0)"
static void put_place(hd_line *line, const hd_device *device,
                      const sight *sight, int stream)
{
    const hd_module *module = device->binding.module;

    if (sight->step < 0 || sight->opcode >= HD_NOPS) {
        hd_line_put(line, "the arguments' copies");
        return;
    }
    hd_line_put_step(line, module, (hd_opcode)sight->opcode, sight->line,
                     sight->column, sight->step, stream, HD_CPU_HELPER);
    hd_line_put(line, ")");
}

static void put_sight(hd_line *line, const hd_device *device, int rank,
                      int stream, const sight *sight)
{
    if (sight->state == HD_CPU_WAITING)
        hd_line_put(line, "rank %d waits for rank %d: ", rank, sight->peer);
    else if (sight->state == HD_CPU_LOCAL)
        hd_line_put(line, "rank %d waits for itself: ", rank);
    else
        hd_line_put(line, "rank %d is at: ", rank);
    put_place(line, device, sight, stream);
}

// Streams in one state, a line each. False if there are none.
static bool put_streams(hd_line *line, const hd_device *device, int rank,
                        const hd_cpu_header *header, hd_cpu_state state)
{
    bool found = false;

    for (int s = 0; s < HD_CPU_STREAMS; s++) {
        sight sight = look_at(&header->mark[s]);

        if (sight.state != state)
            continue;
        put_sight(line, device, rank, s, &sight);
        hd_line_put(line, "\n");
        found = true;
    }
    return found;
}

// A rank of which no stream does anything for this session: its threads are
// at the runs of others that were issued before, or there is nothing to do.
static void put_idle(hd_line *line, const hd_cpu_header *header, int rank,
                     uint64_t runs)
{
    if (atomic_load_explicit(&header->over, memory_order_relaxed) < runs)
        hd_line_put(line,
                    "rank %d waits for itself: the runs of other sessions "
                    "before it\n",
                    rank);
    else
        hd_line_put(line, "rank %d has done all of its %llu runs\n", rank,
                    (unsigned long long)runs);
}

// Whom a rank waits for; or that its host has not come this far; or what its
// streams are busy with, or wait for among themselves.
static void put_rank(hd_line *line, const hd_device *device, int rank,
                     uint64_t runs)
{
    const hd_cpu_header *header = device->peer[rank].header;
    uint64_t theirs = atomic_load_explicit(&header->runs, memory_order_relaxed);

    if (put_streams(line, device, rank, header, HD_CPU_WAITING))
        return;
    if (theirs < runs)
        hd_line_put(line, "rank %d has not begun run %llu of this session\n",
                    rank, (unsigned long long)runs);
    else if (!put_streams(line, device, rank, header, HD_CPU_BUSY) &&
             !put_streams(line, device, rank, header, HD_CPU_LOCAL))
        put_idle(line, header, rank, theirs);
}

void hd_cpu_wake(hd_device *device)
{
    if (device->header != NULL)
        hd_doorbell_wake(&device->header->doorbell);
    hd_doorbell_wake(&device->host);
}

void hd_cpu_fail(hd_device *device, hd_status status, const char *text,
                 const char *notes)
{
    bool first = hd_failure_set(&device->failure, status, text, notes);

    hd_cpu_wake(device);
    if (first)
        hd_group_fail(device->binding.group, text);
}

void hd_cpu_fail_late(const hd_cpu_wait *wait)
{
    const hd_device *device = wait->stream->device;
    const hd_step *step = wait->entry->step;
    sight sight = {.state = wait->peer >= 0 ? HD_CPU_WAITING : HD_CPU_LOCAL,
                   .opcode = (int)step->op->code,
                   .peer = wait->peer,
                   .step = step->index,
                   .line = step->op->loc.line,
                   .column = step->op->loc.column};
    char text[HD_GROUP_TEXT] = "";
    char notes[HD_FAILURE_NOTES] = "";
    hd_line line = {text, sizeof text};
    hd_line lines = {notes, sizeof notes};

    put_sight(&line, device, device->rank, wait->stream->index, &sight);
    hd_line_put(&line, " for %.1f s", device->binding.timeout);
    for (int rank = 0; rank < device->size; rank++) {
        if (rank != device->rank)
            put_rank(&lines, device, rank, wait->run);
    }
    hd_cpu_fail(wait->stream->device, HD_ERROR_TIMEOUT, text, notes);
}

void hd_cpu_fail_left(const hd_cpu_wait *wait)
{
    hd_device *device = wait->stream->device;
    const hd_step *step = wait->entry->step;
    char text[HD_GROUP_TEXT];

    snprintf(text, sizeof text,
             "rank %d has left the group; rank %d waits for it in '%s' (step "
             "%lld, line %u)",
             wait->peer, device->rank, hd_op_info_get(step->op->code)->text,
             (long long)step->index, step->op->loc.line);
    hd_cpu_fail(device, HD_ERROR_PEER, text, "");
}
