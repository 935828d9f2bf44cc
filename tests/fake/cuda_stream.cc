// Streams, events and what is put into streams. As on a device, a stream whose
// wait is not met holds one of a few connections, and once all are held nothing
// else of the context begins.
#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "cuda_state.h"

using namespace fake;

namespace
{

void delay(Lane &lane)
{
    if (lane.chaos == 0)
        return;
    lane.chaos ^= lane.chaos << 13;
    lane.chaos ^= lane.chaos >> 7;
    lane.chaos ^= lane.chaos << 17;
    std::this_thread::sleep_for(std::chrono::microseconds(lane.chaos % 200));
}

bool is_connected(const CUctx_st *context)
{
    return context->blocked <= world().max_blocked || context->failed != 0;
}

void run_stream(CUstream_st *stream)
{
    World &w = world();
    Guard guard(w.lock);

    for (;;) {
        stream->more.wait(
            guard, [&] { return stream->closing || !stream->queue.empty(); });
        if (stream->queue.empty())
            break;
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        guard.unlock();
        execute(stream->lane, work);
        work = nullptr; // what it holds goes before anyone hears of its end
        guard.lock();
        stream->completed++;
        w.change.notify_all();
    }
    stream->context->streams.erase(stream);
    delete stream;
}

// The host's signals are not for the streams.
void start_thread(CUstream_st *stream)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(run_stream, stream).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CUstream_st *make_stream(CUctx_st *context)
{
    CUstream_st *stream = new CUstream_st;
    uint64_t seed = world().chaos;

    stream->context = context;
    stream->lane.context = context;
    stream->lane.chaos =
        seed == 0 ? 0
                  : (seed * 0x9e3779b97f4a7c15 ^
                     static_cast<uint64_t>(getpid()) * 31 ^ ++world().nonce) |
                        1;
    context->streams.insert(stream);
    start_thread(stream);
    return stream;
}

// The caller holds the lock.
void push(CUstream_st *stream, Work work)
{
    stream->issued++;
    stream->queue.push_back(std::move(work));
    stream->more.notify_all();
}

void invalidate(CUstream_st *stream)
{
    if (stream->capture != nullptr)
        stream->capture->invalid = true;
}

uint32_t *word_at(uint64_t at)
{
    return reinterpret_cast<uint32_t *>(static_cast<uintptr_t>(at));
}

// What a stream waits for: a word that is not below the value, or one that has
// a bit of it.
struct Wait {
    uint64_t at;
    uint32_t value;
    bool bits;
};

uint32_t look(const Wait &wait)
{
    return __atomic_load_n(word_at(wait.at), __ATOMIC_ACQUIRE);
}

bool is_met(const Wait &wait, uint32_t seen)
{
    return wait.bits ? (seen & wait.value) != 0
                     : static_cast<int32_t>(seen - wait.value) >= 0;
}

// Sleeps until the word may have changed. What streams write wakes it; what
// kernels, copies and the host write does not, hence the limit.
void sleep_on(const Wait &wait)
{
    uint32_t seen = look(wait);
    timespec limit = {0, 500000};

    if (!is_met(wait, seen))
        syscall(SYS_futex, word_at(wait.at), FUTEX_WAIT, seen, &limit, nullptr,
                0);
}

void add_blocked(CUctx_st *context, int n)
{
    Guard guard(world().lock);

    context->blocked += n;
    world().change.notify_all();
}

bool wait_word(Lane &lane, const Wait &wait)
{
    if (locate(wait.at, 4) == Place::NOWHERE)
        return false;
    if (is_met(wait, look(wait)))
        return true;
    add_blocked(lane.context, 1);
    while (!is_met(wait, look(wait)) && lane.context->failed == 0)
        sleep_on(wait);
    add_blocked(lane.context, -1);
    return true;
}

bool write_word(uint64_t at, uint32_t value)
{
    if (locate(at, 4) == Place::NOWHERE)
        return false;
    __atomic_store_n(word_at(at), value, __ATOMIC_RELEASE);
    syscall(SYS_futex, word_at(at), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
    return true;
}

bool run_words(Lane &lane, const std::vector<hd_cu_memop> &ops)
{
    for (const hd_cu_memop &op : ops) {
        bool fine = op.operation == HD_CU_OP_WAIT_32
                        ? wait_word(lane, {op.word.address, op.word.value,
                                           op.word.flags == HD_CU_WAIT_AND})
                        : write_word(op.word.address, op.word.value);

        if (!fine || lane.context->failed != 0)
            return fine;
    }
    return true;
}

hd_cu_result check_words(const CUctx_st *context, unsigned n,
                         const hd_cu_memop *ops, unsigned flags)
{
    if (n == 0 || n > 256 || ops == nullptr || flags != 0)
        return INVALID_VALUE;
    for (unsigned i = 0; i < n; i++) {
        const hd_cu_memop &op = ops[i];
        Place place;

        if (op.operation != HD_CU_OP_WAIT_32 &&
            op.operation != HD_CU_OP_WRITE_32)
            return NOT_SUPPORTED;
        if (op.word.flags != 0 && (op.operation != HD_CU_OP_WAIT_32 ||
                                   op.word.flags != HD_CU_WAIT_AND))
            return NOT_SUPPORTED;
        place = locate(op.word.address, 4);
        if (op.word.address % 4 != 0 ||
            (place != Place::DEVICE && place != Place::HOST) ||
            !is_allowed(context, op.word.address))
            return INVALID_VALUE;
    }
    return SUCCESS;
}

// Words that streams wait for are written from pinned memory while they wait.
void copy_words(uint64_t to, uint64_t from, size_t bytes)
{
    auto *out = reinterpret_cast<uint32_t *>(static_cast<uintptr_t>(to));
    auto *in = reinterpret_cast<const uint32_t *>(static_cast<uintptr_t>(from));

    for (size_t i = 0; i < bytes / 4; i++)
        __atomic_store_n(&out[i], __atomic_load_n(&in[i], __ATOMIC_RELAXED),
                         __ATOMIC_RELAXED);
}

bool is_capturing(CUstream_st *stream)
{
    Guard guard(world().lock);

    return stream->capture != nullptr;
}

template <class T>
hd_cu_result fill(uint64_t at, T value, size_t n, hd_cu_stream handle)
{
    FAKE_STREAM(handle, stream);
    if (at % sizeof(T) != 0)
        return INVALID_VALUE;
    Detail detail{HD_CU_NODE_FILL, {}, {}, {}, {}, {}};

    detail.fill = {at, 0, value, sizeof(T), n, 1};
    auto work = [=](Lane &) {
        T *to = reinterpret_cast<T *>(static_cast<uintptr_t>(at));

        if (n != 0 && locate(at, n * sizeof(T)) != Place::DEVICE &&
            locate(at, n * sizeof(T)) != Place::HOST)
            return false;
        std::fill_n(to, n, value);
        return true;
    };
    return submit(stream, work, detail);
}

} // namespace

bool fake::copy_now(uint64_t to, uint64_t from, size_t bytes)
{
    Place source, target;

    if (bytes == 0)
        return true;
    target = locate(to, bytes);
    source = locate(from, bytes);
    if (target == Place::NOWHERE || source == Place::NOWHERE)
        return false;
    if ((source == Place::HOST || target == Place::HOST) &&
        (to | from | bytes) % 4 == 0) {
        copy_words(to, from, bytes);
        return true;
    }
    memmove(reinterpret_cast<void *>(static_cast<uintptr_t>(to)),
            reinterpret_cast<const void *>(static_cast<uintptr_t>(from)),
            bytes);
    return true;
}

void fake::execute(Lane &lane, const Work &work)
{
    World &w = world();

    delay(lane);
    {
        Guard guard(w.lock);

        w.change.wait(guard, [&] { return is_connected(lane.context); });
    }
    if (fake_cuda_enter("work of streams") != SUCCESS)
        raise(SIGKILL);
    // A broken context does nothing any more, and so its streams run dry.
    if (lane.context->failed != 0 || work(lane))
        return;
    Guard guard(w.lock);
    lane.context->failed = ILLEGAL_ADDRESS;
    w.change.notify_all();
}

bool fake::wait_record(Lane &lane, const std::shared_ptr<Record> &record)
{
    Guard guard(world().lock);

    world().change.wait(
        guard, [&] { return record->done || lane.context->failed != 0; });
    return true;
}

void fake::finish_record(const std::shared_ptr<Record> &record)
{
    Guard guard(world().lock);

    record->seconds = now() + world().spent;
    record->done = true;
    world().change.notify_all();
}

bool fake::is_implied(const CUctx_st *context)
{
    for (const CUstream_st *stream : context->streams) {
        if (stream->blocking && stream->capture != nullptr)
            return true;
    }
    return false;
}

// The stream that one handle stands for on each thread. The caller holds the
// lock.
static CUstream_st *own_stream(CUctx_st *context)
{
    CUstream_st *&stream = context->own[std::this_thread::get_id()];

    if (stream == nullptr) {
        stream = make_stream(context);
        stream->blocking = true;
    }
    return stream;
}

hd_cu_result fake::resolve(hd_cu_stream handle, CUstream_st **out)
{
    CUctx_st *context;
    hd_cu_result result = current(&context);

    if (result != SUCCESS)
        return result;
    Guard guard(world().lock);
    // 1 is another name of the ordinary stream.
    if (handle == HD_CU_STREAM_PER_THREAD) {
        handle = own_stream(context);
    } else if (reinterpret_cast<uintptr_t>(handle) <= 1) {
        if (is_implied(context)) {
            for (CUstream_st *stream : context->streams) {
                if (stream->blocking && stream->capture != nullptr)
                    stream->capture->invalid = true;
            }
            return CAPTURE_IMPLICIT;
        }
        if (context->ordinary == nullptr)
            context->ordinary = make_stream(context);
        handle = context->ordinary;
    } else if (world().streams.count(handle) == 0 ||
               handle->context != context) {
        return INVALID_HANDLE;
    }
    *out = handle;
    return SUCCESS;
}

hd_cu_result fake::submit(CUstream_st *stream, Work work, const Detail &detail)
{
    Guard guard(world().lock);
    Capture *capture = stream->capture.get();

    if (capture == nullptr) {
        push(stream, std::move(work));
        return SUCCESS;
    }
    if (capture->invalid)
        return CAPTURE_INVALIDATED;
    auto name =
        std::make_shared<CUgraphNode_st>(CUgraphNode_st{detail, work, 0, {}});
    capture->nodes.push_back(Node{std::move(work), stream->tails, name});
    stream->tails = {capture->nodes.size() - 1};
    return SUCCESS;
}

hd_cu_result fake::drain(Guard &guard, CUstream_st *stream)
{
    CUctx_st *context = stream->context;
    uint64_t goal = stream->issued;

    // Also in a broken context: its streams run dry.
    world().change.wait(guard, [&] { return stream->completed >= goal; });
    return context->failed;
}

void fake::quiesce(Guard &guard, CUctx_st *context)
{
    world().change.wait(guard, [&] {
        for (CUstream_st *stream : context->streams) {
            if (stream->completed < stream->issued)
                return false;
        }
        return true;
    });
}

// The caller holds the lock.
void fake::stop_streams(CUctx_st *context)
{
    if (context->failed == 0)
        context->failed = CONTEXT_IS_DESTROYED;
    if (context->ordinary != nullptr)
        context->ordinary->closing = true;
    for (auto &entry : context->own)
        entry.second->closing = true;
    for (CUstream_st *stream : context->streams)
        stream->more.notify_all();
    world().change.notify_all();
}

struct fake_cuda_order {
    std::shared_ptr<Record> last;
    std::shared_ptr<Capture> capture;
    size_t node;
};

EXPORT fake_cuda_order *fake_cuda_order_new(void)
{
    return new fake_cuda_order{};
}

EXPORT void fake_cuda_order_free(fake_cuda_order *order)
{
    delete order;
}

// The work behind what the order had last. In a capture that is an edge.
static Work work_behind(CUstream_st *stream, fake_cuda_order *order, Work work)
{
    std::shared_ptr<Record> before, mine;
    Guard guard(world().lock);

    if (stream->capture != nullptr) {
        if (order->capture == stream->capture)
            stream->tails.insert(order->node);
        order->capture = stream->capture;
        order->node = stream->capture->nodes.size();
        return work;
    }
    before = order->last;
    mine = order->last = std::make_shared<Record>();
    return [=](Lane &lane) {
        bool fine = (before == nullptr || wait_record(lane, before)) &&
                    (lane.context->failed != 0 || work(lane));

        finish_record(mine);
        return fine;
    };
}

EXPORT hd_cu_result fake_cuda_enqueue(hd_cu_stream handle,
                                      int (*fn)(void *data), void *data,
                                      void (*release)(void *data),
                                      fake_cuda_order *order)
{
    std::shared_ptr<void> kept(data, release);
    Work work = [=](Lane &lane) {
        std::shared_lock<std::shared_mutex> some(lane.context->processors);

        return fn(kept.get()) == 0;
    };

    FAKE_STREAM(handle, stream);
    if (order != nullptr)
        work = work_behind(stream, order, std::move(work));
    return submit(stream, work, opaque_kernel(fn));
}

hd_cu_result cuStreamCreateWithPriority(hd_cu_stream *out, unsigned flags,
                                        int priority)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    (void)priority; // any is brought into its range
    if (flags > HD_CU_STREAM_NON_BLOCKING)
        return INVALID_VALUE;
    Guard guard(world().lock);
    *out = make_stream(context);
    (*out)->blocking = flags != HD_CU_STREAM_NON_BLOCKING;
    world().streams.insert(*out);
    return SUCCESS;
}

// What is in it still runs.
hd_cu_result cuStreamDestroy_v2(hd_cu_stream handle)
{
    hd_cu_result injected = enter(__func__);

    if (injected == NOT_INITIALIZED)
        return injected;
    Guard guard(world().lock);
    if (world().streams.erase(handle) == 0)
        return INVALID_HANDLE;
    invalidate(handle);
    handle->closing = true;
    handle->more.notify_all();
    return injected != SUCCESS ? injected : handle->context->failed.load();
}

hd_cu_result cuStreamSynchronize(hd_cu_stream handle)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);

    if (stream->capture != nullptr) {
        invalidate(stream);
        return CAPTURE_UNSUPPORTED;
    }
    return drain(guard, stream);
}

hd_cu_result cuStreamQuery(hd_cu_stream handle)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);

    if (stream->capture != nullptr) {
        invalidate(stream);
        return CAPTURE_UNSUPPORTED;
    }
    return stream->completed < stream->issued ? HD_CU_NOT_READY : SUCCESS;
}

// Pageable memory is read before the call returns, and is written by then: a
// caller that should not block must not copy to it.
// CUDA's waits in its call while another thread frees memory of the context,
// which writing words does not (measured on H200).
hd_cu_result cuMemcpyAsync(hd_cu_ptr to, hd_cu_ptr from, size_t bytes,
                           hd_cu_stream handle)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    hd_cu_result result;

    {
        Guard guard(world().lock);

        world().change.wait(guard,
                            [=] { return stream->context->freeing == 0; });
    }
    if (is_capturing(stream)) {
        Detail detail{HD_CU_NODE_COPY, {}, {}, {}, {}, {}};

        detail.copy.from.memory = detail.copy.to.memory = MEMORY_UNIFIED;
        detail.copy.from.device = from;
        detail.copy.to.device = to;
        detail.copy.bytes = bytes;
        detail.copy.height = detail.copy.depth = 1;
        return submit(
            stream, [=](Lane &) { return copy_now(to, from, bytes); }, detail);
    }
    if (bytes != 0 && locate(from, bytes) == Place::PAGEABLE) {
        const char *bytes_at =
            reinterpret_cast<const char *>(static_cast<uintptr_t>(from));
        auto staged =
            std::make_shared<std::vector<char>>(bytes_at, bytes_at + bytes);

        result = submit(stream, [=](Lane &) {
            return copy_now(to, reinterpret_cast<uintptr_t>(staged->data()),
                            bytes);
        });
    } else {
        result =
            submit(stream, [=](Lane &) { return copy_now(to, from, bytes); });
    }
    if (result != SUCCESS || locate(to, bytes) != Place::PAGEABLE)
        return result;
    Guard guard(world().lock);
    return drain(guard, stream);
}

// Rows, which must not lie over each other on either side.
hd_cu_result cuMemcpy2DAsync_v2(const hd_cu_copy_2d *copy, hd_cu_stream handle)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    hd_cu_copy_2d c = *copy;

    if (c.from_memory != MEMORY_UNIFIED || c.to_memory != MEMORY_UNIFIED ||
        std::max(c.from_pitch, c.to_pitch) > INT_MAX ||
        std::min(c.from_pitch, c.to_pitch) < c.bytes)
        return INVALID_VALUE;
    if ((c.from_x | c.from_y | c.to_x | c.to_y) != 0)
        return INVALID_VALUE;
    return submit(stream, [=](Lane &) {
        for (size_t i = 0; i < c.height; i++)
            if (!copy_now(c.to + i * c.to_pitch, c.from + i * c.from_pitch,
                          c.bytes))
                return false;
        return true;
    });
}

hd_cu_result cuMemsetD8Async(hd_cu_ptr at, unsigned char value, size_t n,
                             hd_cu_stream handle)
{
    FAKE_ENTER();
    return fill(at, value, n, handle);
}

hd_cu_result cuMemsetD32Async(hd_cu_ptr at, unsigned value, size_t n,
                              hd_cu_stream handle)
{
    FAKE_ENTER();
    return fill(at, value, n, handle);
}

hd_cu_result cuStreamBatchMemOp_v2(hd_cu_stream handle, unsigned n,
                                   hd_cu_memop *ops, unsigned flags)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    hd_cu_result result = check_words(stream->context, n, ops, flags);

    if (result != SUCCESS)
        return result;
    for (unsigned i = 0; i < n; i++)
        (void)enter(ops[i].word.operation == HD_CU_OP_WAIT_32 ? "word waits"
                                                              : "word writes");
    Detail detail{HD_CU_NODE_WORDS, {}, {}, {}, {ops, ops + n}, {}};
    return submit(
        stream,
        [list = detail.words](Lane &lane) { return run_words(lane, list); },
        detail);
}

// As many as before, of the same kinds.
hd_cu_result cuGraphExecBatchMemOpNodeSetParams(hd_cu_graph_exec exec,
                                                hd_cu_node node,
                                                const hd_cu_words_node *to)
{
    FAKE_ENTER();
    {
        Guard guard(world().lock);

        if (world().contexts.count(to->context) == 0)
            return INVALID_VALUE;
    }
    hd_cu_result result = check_words(to->context, to->n, to->op, to->flags);

    if (result != SUCCESS)
        return result;
    std::vector<hd_cu_memop> list(to->op, to->op + to->n);
    {
        Guard guard(world().lock);

        if (find_node(node, HD_CU_NODE_WORDS) == nullptr ||
            node->detail.words.size() != list.size())
            return INVALID_VALUE;
        for (size_t i = 0; i < list.size(); i++) {
            if (list[i].operation != node->detail.words[i].operation)
                return INVALID_VALUE;
        }
    }
    return set_work(exec, node,
                    [list](Lane &lane) { return run_words(lane, list); });
}

hd_cu_result cuEventCreate(hd_cu_event *out, unsigned flags)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    if (flags > 3)
        return INVALID_VALUE;
    Guard guard(world().lock);
    *out = new CUevent_st{context, flags, nullptr, nullptr, {}};
    world().events.insert(*out);
    return SUCCESS;
}

hd_cu_result cuEventDestroy_v2(hd_cu_event event)
{
    hd_cu_result injected = enter(__func__);
    hd_cu_result failed;

    if (injected == NOT_INITIALIZED)
        return injected;
    Guard guard(world().lock);
    if (world().events.erase(event) == 0)
        return INVALID_HANDLE;
    failed = event->context->failed;
    delete event;
    return injected != SUCCESS ? injected : failed;
}

hd_cu_result cuEventRecord(hd_cu_event event, hd_cu_stream handle)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);

    if (world().events.count(event) == 0 || event->context != stream->context)
        return INVALID_HANDLE;
    if (stream->capture != nullptr && stream->capture->invalid)
        return CAPTURE_INVALIDATED;
    if ((event->flags & HD_CU_EVENT_DISABLE_TIMING) == 0)
        (void)enter("timed records");
    event->capture = stream->capture;
    event->tails = stream->tails;
    if (stream->capture != nullptr)
        return SUCCESS;
    auto record = std::make_shared<Record>();
    event->last = record;
    push(stream, [record](Lane &) {
        finish_record(record);
        return true;
    });
    return SUCCESS;
}

// The stream joins the event's capture, or goes on in it behind one more node.
static hd_cu_result wait_captured(CUstream_st *stream, CUevent_st *event)
{
    if (event->capture == nullptr) {
        invalidate(stream);
        return CAPTURE_ISOLATION;
    }
    if (event->capture->invalid)
        return CAPTURE_INVALIDATED;
    if (stream == stream->context->ordinary) {
        event->capture->invalid = true;
        return CAPTURE_UNSUPPORTED;
    }
    if (stream->capture != nullptr && stream->capture != event->capture) {
        invalidate(stream);
        event->capture->invalid = true;
        return CAPTURE_MERGE;
    }
    stream->capture = event->capture;
    stream->tails.insert(event->tails.begin(), event->tails.end());
    return SUCCESS;
}

hd_cu_result cuStreamWaitEvent(hd_cu_stream handle, hd_cu_event event,
                               unsigned flags)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);

    if (world().events.count(event) == 0)
        return INVALID_HANDLE;
    if (flags != 0)
        return INVALID_VALUE;
    if (stream->capture != nullptr || event->capture != nullptr)
        return wait_captured(stream, event);
    if (event->last != nullptr)
        push(stream, [record = event->last](Lane &lane) {
            return wait_record(lane, record);
        });
    return SUCCESS;
}

// Whoever looks at once again lets the streams go on first.
hd_cu_result cuEventQuery(hd_cu_event event)
{
    FAKE_ENTER();
    {
        Guard guard(world().lock);

        if (world().events.count(event) == 0)
            return INVALID_HANDLE;
        if (event->context->failed != 0)
            return event->context->failed;
        if (event->capture != nullptr) {
            event->capture->invalid = true;
            return CAPTURED_EVENT;
        }
        if (event->last == nullptr || event->last->done)
            return SUCCESS;
    }
    sched_yield();
    return HD_CU_NOT_READY;
}

EXPORT void fake_cuda_spend(double seconds)
{
    Guard guard(world().lock);

    world().spent += seconds;
}

EXPORT void fake_cuda_kernels_spend(double seconds)
{
    Guard guard(world().lock);

    world().kernel_seconds = seconds;
}

hd_cu_result cuEventElapsedTime(float *milliseconds, hd_cu_event start,
                                hd_cu_event end)
{
    FAKE_ENTER();
    Guard guard(world().lock);

    for (CUevent_st *event : {start, end}) {
        if (world().events.count(event) == 0 ||
            (event->flags & HD_CU_EVENT_DISABLE_TIMING) != 0 ||
            event->last == nullptr || event->capture != nullptr)
            return INVALID_HANDLE;
        if (event->context->failed != 0)
            return event->context->failed;
        if (!event->last->done)
            return HD_CU_NOT_READY;
    }
    *milliseconds =
        static_cast<float>(1e3 * (end->last->seconds - start->last->seconds));
    return SUCCESS;
}
