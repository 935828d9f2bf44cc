// A fake of NCCL: ranks meet in one shared memory. Collectives go by way of a
// part of it for every rank, all of them waiting for one another between
// filling and reading it; what is sent goes by way of a queue for every pair,
// and a send ends when the peer has read it. A communicator does one call after
// the other, on whichever streams. A wait ends after 30 seconds, or when the
// communicator is aborted, and then the answer is whatever is there.
//
// Two ranks are connected by the first calls with which they send to or receive
// from each other. Where those are not each other's mirror image NCCL would
// connect what does not fit; the fake refuses the call. Two ranks on one device
// of one host it refuses as NCCL does.
//
// What a communicator that does not block is asked for goes on behind the call,
// which answers that it is in progress; one that blocks never does.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include <heddle/verify.h>

#include "base/dtype.h"
#include "link.h"

extern "C" {
#define HD_NCCL(symbol, result, name, ...) \
    __attribute__((visibility("default"))) result symbol(__VA_ARGS__);
#include "runtime/cuda/vendor/nccl.def"
#undef HD_NCCL
// For tests: seconds of the clock that this waits by.
__attribute__((visibility("default"))) double fake_nccl_clock(void);
}

namespace
{

enum {
    SUCCESS,
    UNHANDLED_CUDA_ERROR,
    SYSTEM_ERROR,
    INTERNAL_ERROR,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE_ERROR,
    IN_PROGRESS,
};

constexpr int MOST_RANKS = 64;
constexpr size_t PART = 256 << 10;
constexpr size_t QUEUE = 64 << 10;
constexpr double PATIENCE = 30; // seconds of the ranks' clock
constexpr uint64_t MAGIC = 0x6c63636e656b6166;

struct Id {
    uint64_t magic;
    int32_t pid, fd;
};

enum class Kind {
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    SEND,
    RECV
};

// What a rank does: all have to do the same.
struct What {
    Kind kind;
    size_t count;
    int type, op, root;
};

struct Queue {
    std::atomic<uint64_t> written, read; // bytes
    // What the sender's side asks to connect, in its first and second call
    // that asks for anything: a bit to send to the peer, one to receive.
    std::atomic<unsigned> asked[2];
    char bytes[QUEUE];
};

enum { SENDS = 1, RECEIVES = 2 };

struct Segment {
    std::atomic<int> joined;
    std::atomic<int> present[MOST_RANKS];
    std::atomic<size_t> device[MOST_RANKS];
    std::atomic<int> arrived;
    std::atomic<int> rendezvous;
    std::atomic<int> pid[MOST_RANKS];
    std::atomic<bool> ending[MOST_RANKS]; // it, or has died
    Id child;                             // of what it is split into
    What what[MOST_RANKS];
    char part[MOST_RANKS][PART];
    Queue queue[MOST_RANKS][MOST_RANKS]; // from, to
};

struct Comm {
    int rank, size;
    Segment *segment = nullptr;
    std::atomic<bool> aborted{false};
    std::atomic<int> error{0};
    fake_cuda_order *order = nullptr;
    unsigned connected[MOST_RANKS] = {}; // by peer
    int asked[MOST_RANKS] = {};          // how often

    bool blocking = true;
    std::mutex lock;      // guards the two that follow
    std::thread job;      // that does what is in progress
    bool pending = false; // nobody has been told of its end
    std::atomic<int> state{SUCCESS};

    ~Comm()
    {
        // A batch that is the last to have it may run on that very thread.
        if (job.joinable() && job.get_id() == std::this_thread::get_id())
            job.detach();
        else if (job.joinable())
            job.join();
        if (segment != nullptr)
            munmap(segment, sizeof(Segment));
        auto *release = fake::find_in_cuda<decltype(fake_cuda_order_free)>(
            "fake_cuda_order_free");
        if (order != nullptr)
            release(order);
    }
};

struct Op {
    What what;
    const char *from;
    char *to;
    int peer;
    size_t bytes; // of what is sent or received
    size_t done;
    uint64_t end; // of a send: of its bytes in the queue, so far
};

// What one call, or one group, puts into a stream.
struct Batch {
    std::shared_ptr<Comm> comm;
    hd_cu_stream stream;
    std::vector<Op> ops;
    std::thread::id rank =
        std::this_thread::get_id(); // a thread issues its own
};

} // namespace

struct ncclComm {
    std::shared_ptr<Comm> comm;
};

namespace
{

thread_local int depth;     // of groups
thread_local bool is_wrong; // a call of the group failed
thread_local std::vector<Batch> waiting;

bool dtype_of(int type, hd_dtype *out)
{
    switch (type) {
    case HD_NCCL_U8:
        *out = HD_DTYPE_U8;
        return true;
    case HD_NCCL_I8:
        *out = HD_DTYPE_I8;
        return true;
    case HD_NCCL_I32:
        *out = HD_DTYPE_I32;
        return true;
    case HD_NCCL_I64:
        *out = HD_DTYPE_I64;
        return true;
    case HD_NCCL_F16:
        *out = HD_DTYPE_F16;
        return true;
    case HD_NCCL_F32:
        *out = HD_DTYPE_F32;
        return true;
    case HD_NCCL_F64:
        *out = HD_DTYPE_F64;
        return true;
    case HD_NCCL_BF16:
        *out = HD_DTYPE_BF16;
        return true;
    default:
        return false;
    }
}

size_t size_of(int type)
{
    hd_dtype dtype = HD_DTYPE_U8;

    return dtype_of(type, &dtype) ? hd_dtype_size(dtype) : 0;
}

// Up to two milliseconds, or none: a call may be done when it returns.
void dawdle()
{
    static thread_local std::mt19937 random(std::random_device{}());

    usleep(random() % 4 == 0 ? 0 : static_cast<useconds_t>(random() % 2000));
}

// An operation that a communicator is in the middle of is none of its business.
bool is_ready(Comm &comm)
{
    std::lock_guard<std::mutex> guard(comm.lock);

    if (comm.pending)
        fprintf(stderr, "fake NCCL: a communicator is used before what was "
                        "asked of it is known to be done\n");
    return !comm.pending;
}

// Does `work` on a thread, which sets the state of all of `comms`: there is one
// thread to a group, and the first of them has it.
template <class Work>
int begin(const std::vector<std::shared_ptr<Comm>> &comms, Work work)
{
    auto *current =
        fake::find_in_cuda<decltype(fake_cuda_context)>("fake_cuda_context");
    auto *adopt =
        fake::find_in_cuda<decltype(fake_cuda_adopt)>("fake_cuda_adopt");
    hd_cu_context context = current == nullptr ? nullptr : current();

    for (const std::shared_ptr<Comm> &comm : comms) {
        std::lock_guard<std::mutex> guard(comm->lock);

        comm->pending = true;
        comm->state = IN_PROGRESS;
    }
    try {
        std::lock_guard<std::mutex> guard(comms[0]->lock);

        comms[0]->job = std::thread([=] {
            int status;

            if (adopt != nullptr && context != nullptr)
                adopt(context);
            dawdle();
            status = work();
            for (const std::shared_ptr<Comm> &comm : comms)
                comm->state = status;
        });
    } catch (const std::system_error &) {
        for (const std::shared_ptr<Comm> &comm : comms)
            comm->state = SYSTEM_ERROR;
        return SYSTEM_ERROR;
    }
    return IN_PROGRESS;
}

// When so many milliseconds are over, none where nothing is said.
double after(const char *late)
{
    return fake::clock_now() + 1e-3 * (late == nullptr ? 0 : atoi(late));
}

// False if it is given up.
template <class Met> bool wait_until(Comm &comm, Met met)
{
    double limit = 0;

    for (int i = 0; !met(); i++) {
        timespec pause = {0, i < 100 ? 50000 : 1000000};

        if (comm.aborted)
            return false;
        if (i < 20) {
            sched_yield();
            continue;
        }
        limit = limit == 0 ? fake::clock_now() + PATIENCE : limit;
        if (fake::clock_now() > limit) {
            comm.error = REMOTE_ERROR;
            return false;
        }
        nanosleep(&pause, nullptr);
    }
    return true;
}

// Until all ranks have come here. The last to come lets the others go.
bool meet(Comm &comm)
{
    Segment &s = *comm.segment;
    int rendezvous = s.rendezvous.load();

    if (s.arrived.fetch_add(1) + 1 == comm.size) {
        s.arrived.store(0);
        s.rendezvous.store(rendezvous + 1);
        return true;
    }
    return wait_until(comm, [&] { return s.rendezvous.load() != rendezvous; });
}

// ---------------------------------------------------------- collectives

bool is_same(const What &a, const What &b)
{
    return a.kind == b.kind && a.count == b.count && a.type == b.type &&
           a.op == b.op && a.root == b.root;
}

bool agree(Comm &comm, const What &what)
{
    bool same = true;

    comm.segment->what[comm.rank] = what;
    if (!meet(comm))
        return false;
    for (int i = 0; i < comm.size; i++)
        same &= is_same(comm.segment->what[i], what);
    if (!same)
        comm.error = INVALID_USAGE;
    return meet(comm) && same;
}

// Shows `bytes` to all and lets `look(offset, n)` see what all show, piece by
// piece. Who has nothing to show passes NULL.
template <class Look>
bool show(Comm &comm, const char *from, size_t bytes, Look look)
{
    for (size_t at = 0; at < bytes; at += PART) {
        size_t n = bytes - at < PART ? bytes - at : PART;

        if (from != nullptr)
            memcpy(comm.segment->part[comm.rank], from + at, n);
        if (!meet(comm))
            return false;
        look(at, n);
        if (!meet(comm))
            return false;
    }
    return true;
}

template <class T, class Load, class Store>
void fold(const Comm &comm, int op, size_t n, char *to, Load load, Store store)
{
    std::vector<T> sum(n), one(n);

    for (int rank = 0; rank < comm.size; rank++) {
        load(comm.segment->part[rank], rank == 0 ? sum.data() : one.data());
        for (size_t i = 0; rank > 0 && i < n; i++) {
            bool nan = sum[i] != sum[i]; // it is lost

            if (op == HD_NCCL_SUM)
                sum[i] += one[i];
            else if (op == HD_NCCL_MAX ? nan || one[i] > sum[i]
                                       : nan || one[i] < sum[i])
                sum[i] = one[i];
        }
    }
    store(sum.data(), to);
}

template <class T> void fold_as_is(const Comm &comm, int op, size_t n, char *to)
{
    auto copy = [n](const void *from, T *out) {
        memcpy(out, from, n * sizeof(T));
    };

    fold<T>(comm, op, n, to, copy, [n](const T *from, void *out) {
        memcpy(out, from, n * sizeof(T));
    });
}

// Reduces the ranks' parts, of n elements each.
void reduce(const Comm &comm, const What &what, size_t n, char *to)
{
    bool sums = what.op == HD_NCCL_SUM;
    hd_dtype dtype = HD_DTYPE_U8;

    dtype_of(what.type, &dtype);
    switch (dtype) {
    case HD_DTYPE_U8:
        fold_as_is<uint8_t>(comm, what.op, n, to);
        return;
    case HD_DTYPE_I8: // wraps around
        sums ? fold_as_is<uint8_t>(comm, what.op, n, to)
             : fold_as_is<int8_t>(comm, what.op, n, to);
        return;
    case HD_DTYPE_I32:
        sums ? fold_as_is<uint32_t>(comm, what.op, n, to)
             : fold_as_is<int32_t>(comm, what.op, n, to);
        return;
    case HD_DTYPE_I64:
        sums ? fold_as_is<uint64_t>(comm, what.op, n, to)
             : fold_as_is<int64_t>(comm, what.op, n, to);
        return;
    case HD_DTYPE_F64:
        fold_as_is<double>(comm, what.op, n, to);
        return;
    default:
        fold<float>(
            comm, what.op, n, to,
            [=](const void *from, float *out) {
                hd_dtype_load_float(dtype, from, n, out);
            },
            [=](const float *from, void *out) {
                hd_dtype_store_float(dtype, from, n, out);
            });
    }
}

bool run_all_gather(Comm &comm, const Op &op)
{
    return show(comm, op.from, op.bytes, [&](size_t at, size_t n) {
        for (size_t i = 0; i < static_cast<size_t>(comm.size); i++)
            memcpy(op.to + i * op.bytes + at, comm.segment->part[i], n);
    });
}

bool run_reduce_scatter(Comm &comm, const Op &op)
{
    for (int i = 0; i < comm.size; i++) {
        const char *from = op.from + static_cast<size_t>(i) * op.bytes;
        bool fine = show(comm, from, op.bytes, [&](size_t at, size_t n) {
            if (i == comm.rank)
                reduce(comm, op.what, n / size_of(op.what.type), op.to + at);
        });

        if (!fine)
            return false;
    }
    return true;
}

bool run_all_reduce(Comm &comm, const Op &op)
{
    return show(comm, op.from, op.bytes, [&](size_t at, size_t n) {
        reduce(comm, op.what, n / size_of(op.what.type), op.to + at);
    });
}

bool run_reduce(Comm &comm, const Op &op)
{
    return show(comm, op.from, op.bytes, [&](size_t at, size_t n) {
        if (comm.rank == op.what.root)
            reduce(comm, op.what, n / size_of(op.what.type), op.to + at);
    });
}

bool run_broadcast(Comm &comm, const Op &op)
{
    const char *from = comm.rank == op.what.root ? op.from : nullptr;

    // In place a root writes nothing: others may read there at the same time.
    return show(comm, from, op.bytes, [&](size_t at, size_t n) {
        if (op.to != from)
            memcpy(op.to + at, comm.segment->part[op.what.root], n);
    });
}

bool run_collective(Comm &comm, const Op &op)
{
    if (!agree(comm, op.what))
        return false;
    switch (op.what.kind) {
    case Kind::ALL_GATHER:
        return run_all_gather(comm, op);
    case Kind::REDUCE_SCATTER:
        return run_reduce_scatter(comm, op);
    case Kind::ALL_REDUCE:
        return run_all_reduce(comm, op);
    case Kind::REDUCE:
        return run_reduce(comm, op);
    default:
        return run_broadcast(comm, op);
    }
}

bool is_collective(const Op &op)
{
    return op.what.kind != Kind::SEND && op.what.kind != Kind::RECV;
}

// ------------------------------------------------------- send and recv

size_t least(size_t a, size_t b, size_t c)
{
    a = a < b ? a : b;
    return a < c ? a : c;
}

// As much as goes without waiting; true if that was anything.
bool push(Queue &queue, Op &op)
{
    uint64_t at = queue.written.load();
    size_t room = QUEUE - static_cast<size_t>(at - queue.read.load());
    size_t n = least(room, op.bytes - op.done, QUEUE - at % QUEUE);

    memcpy(queue.bytes + at % QUEUE, op.from + op.done, n);
    queue.written.store(at + n);
    op.done += n;
    op.end = at + n;
    return n > 0;
}

bool pull(Queue &queue, Op &op)
{
    uint64_t at = queue.read.load();
    size_t there = static_cast<size_t>(queue.written.load() - at);
    size_t n = least(there, op.bytes - op.done, QUEUE - at % QUEUE);

    memcpy(op.to + op.done, queue.bytes + at % QUEUE, n);
    queue.read.store(at + n);
    op.done += n;
    return n > 0;
}

bool is_behind(const Op &later, const Op &op)
{
    return later.what.kind == op.what.kind && later.peer == op.peer;
}

// Goes through all that is not done, in order for each peer.
bool progress(Comm &comm, std::vector<Op> &ops)
{
    bool moved = false;

    for (size_t i = 0; i < ops.size(); i++) {
        Op &op = ops[i];
        bool first = !is_collective(op) && op.done < op.bytes;

        for (size_t k = 0; k < i && first; k++)
            first = !is_behind(ops[k], op) || ops[k].done == ops[k].bytes;
        if (first && op.what.kind == Kind::SEND)
            moved |= push(comm.segment->queue[comm.rank][op.peer], op);
        else if (first)
            moved |= pull(comm.segment->queue[op.peer][comm.rank], op);
    }
    return moved;
}

bool is_done(const Comm &comm, const std::vector<Op> &ops)
{
    for (const Op &op : ops) {
        if (!is_collective(op) && op.done < op.bytes)
            return false;
        if (op.what.kind == Kind::SEND &&
            comm.segment->queue[comm.rank][op.peer].read.load() < op.end)
            return false;
    }
    return true;
}

bool run_pairs(Comm &comm, std::vector<Op> &ops)
{
    auto goes_on = [&] { return progress(comm, ops) || is_done(comm, ops); };

    while (!is_done(comm, ops)) {
        if (!wait_until(comm, goes_on))
            return false;
    }
    return true;
}

// ---------------------------------------------------------------- calls

size_t bytes_read(const Comm &comm, const Op &op)
{
    size_t all = op.bytes * static_cast<size_t>(comm.size);

    if (op.what.kind == Kind::REDUCE_SCATTER)
        return all;
    return op.what.kind == Kind::RECV || (op.what.kind == Kind::BROADCAST &&
                                          op.what.root != comm.rank)
               ? 0
               : op.bytes;
}

size_t bytes_written(const Comm &comm, const Op &op)
{
    if (op.what.kind == Kind::ALL_GATHER)
        return op.bytes * static_cast<size_t>(comm.size);
    return op.what.kind == Kind::SEND ||
                   (op.what.kind == Kind::REDUCE && op.what.root != comm.rank)
               ? 0
               : op.bytes;
}

bool reaches(const void *at, size_t bytes)
{
    return bytes == 0 || fake::find_in_cuda<decltype(fake_cuda_reaches)>(
                             "fake_cuda_reaches")(at, bytes) != 0;
}

// NCCL promises nothing of what several communicators of one rank do at once:
// so that is refused.
class Turn
{
  public:
    explicit Turn(const Batch &batch) : rank_(batch.rank)
    {
        std::lock_guard<std::mutex> guard(lock);

        mine_ = working.insert(rank_).second;
        if (!mine_)
            fprintf(stderr,
                    "fake NCCL: two communicators of a rank are at work\n");
    }
    ~Turn()
    {
        std::lock_guard<std::mutex> guard(lock);

        if (mine_)
            working.erase(rank_);
    }
    bool IsMine() const
    {
        return mine_;
    }

  private:
    static inline std::mutex lock;
    static inline std::set<std::thread::id> working;
    std::thread::id rank_;
    bool mine_;
};

// A replay begins with nothing sent.
int run_batch(void *data)
{
    const Batch &batch = *static_cast<const Batch *>(data);
    Comm &comm = *batch.comm;
    Turn turn(batch);
    std::vector<Op> ops = batch.ops;

    if (!turn.IsMine())
        return 1;

    for (const Op &op : ops) {
        if (!reaches(op.from, bytes_read(comm, op)) ||
            !reaches(op.to, bytes_written(comm, op)))
            return 1;
    }
    for (const Op &op : ops) {
        if (is_collective(op) && (comm.error != 0 || !run_collective(comm, op)))
            return 0;
    }
    if (comm.error == 0)
        run_pairs(comm, ops);
    return 0;
}

void free_batch(void *data)
{
    delete static_cast<Batch *>(data);
}

unsigned mirrored(unsigned ask)
{
    return ((ask & SENDS) != 0 ? unsigned(RECEIVES) : 0) |
           ((ask & RECEIVES) != 0 ? unsigned(SENDS) : 0);
}

// Asks the peer, which has to ask for the mirror image. Blocks the host.
int connect(Comm &comm, int peer, unsigned ask)
{
    int number = comm.asked[peer]++;
    std::atomic<unsigned> &theirs =
        comm.segment->queue[peer][comm.rank].asked[number];

    comm.segment->queue[comm.rank][peer].asked[number] = ask;
    if (!wait_until(comm, [&] { return theirs.load() != 0; }))
        return REMOTE_ERROR;
    if (theirs.load() != mirrored(ask)) {
        comm.error = INTERNAL_ERROR;
        return INTERNAL_ERROR;
    }
    comm.connected[peer] |= ask;
    return SUCCESS;
}

int connect_all(const Batch &batch)
{
    Comm &comm = *batch.comm;
    unsigned asks[MOST_RANKS] = {};

    for (const Op &op : batch.ops) {
        if (!is_collective(op) && op.peer != comm.rank)
            asks[op.peer] |= op.what.kind == Kind::SEND ? SENDS : RECEIVES;
    }
    for (int peer = 0; peer < comm.size; peer++) {
        unsigned ask = asks[peer] & ~comm.connected[peer];
        int status = ask == 0 ? SUCCESS : connect(comm, peer, ask);

        if (status != SUCCESS)
            return status;
    }
    return SUCCESS;
}

int enqueue(const Batch &batch)
{
    int connected = connect_all(batch);
    auto *put =
        fake::find_in_cuda<decltype(fake_cuda_enqueue)>("fake_cuda_enqueue");

    if (connected != SUCCESS)
        return connected;
    return put(batch.stream, run_batch, new Batch(batch), free_batch,
               batch.comm->order) == 0
               ? SUCCESS
               : UNHANDLED_CUDA_ERROR;
}

int enqueue_all(const std::vector<Batch> &batches)
{
    for (const Batch &batch : batches) {
        int status = enqueue(batch);

        if (status != SUCCESS)
            return status;
    }
    return SUCCESS;
}

int flush(const std::vector<Batch> &batches)
{
    std::vector<std::shared_ptr<Comm>> comms;

    for (const Batch &batch : batches) {
        if (batch.comm->blocking != batches[0].comm->blocking ||
            !is_ready(*batch.comm))
            return INVALID_ARGUMENT;
        comms.push_back(batch.comm);
    }
    return batches.empty() || batches[0].comm->blocking
               ? enqueue_all(batches)
               : begin(comms, [batches] { return enqueue_all(batches); });
}

int add(ncclComm *handle, const What &what, const void *from, void *to,
        int peer, hd_cu_stream stream)
{
    size_t size = size_of(what.type);
    Op op{what,
          static_cast<const char *>(from),
          static_cast<char *>(to),
          peer,
          what.count * size,
          0,
          0};

    if (handle == nullptr || size == 0 ||
        (what.op != HD_NCCL_SUM && what.op != HD_NCCL_MAX &&
         what.op != HD_NCCL_MIN))
        return INVALID_ARGUMENT;
    for (int rank : {peer, what.root}) {
        if (rank < 0 || rank >= handle->comm->size)
            return INVALID_ARGUMENT;
    }
    if (depth == 0)
        return flush({Batch{handle->comm, stream, {op}}});
    for (Batch &batch : waiting) {
        if (batch.comm != handle->comm)
            continue;
        if (batch.stream != stream)
            return INVALID_USAGE;
        batch.ops.push_back(op);
        return SUCCESS;
    }
    waiting.push_back(Batch{handle->comm, stream, {op}});
    return SUCCESS;
}

int spoil_group()
{
    is_wrong = depth > 0;
    return INTERNAL_ERROR;
}

// NULL if the memory that it names is not there.
Segment *map_segment(const Id &id)
{
    std::string path =
        "/proc/" + std::to_string(id.pid) + "/fd/" + std::to_string(id.fd);
    int fd = id.magic != MAGIC ? -1 : open(path.c_str(), O_RDWR | O_CLOEXEC);
    void *memory = MAP_FAILED;

    if (fd < 0)
        return nullptr;
    if (ftruncate(fd, sizeof(Segment)) == 0)
        memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<Segment *>(memory);
}

// The current device among those of all hosts.
size_t current_device()
{
    auto *get = fake::find_in_cuda<int(hd_cu_device *)>("cuCtxGetDevice");
    const char *host = getenv("HEDDLE_HOST");
    hd_cu_device device = 0;

    if (get != nullptr)
        get(&device);
    return std::hash<std::string>()(host == nullptr ? "" : host) +
           static_cast<size_t>(device);
}

// The memory is there as long as this process.
int make_id(Id *out)
{
    *out = Id{MAGIC, getpid(), memfd_create("fake-nccl", MFD_CLOEXEC)};
    return out->fd < 0 ? SYSTEM_ERROR : SUCCESS;
}

int join(Comm &comm, const Id &id)
{
    auto *order = fake::find_in_cuda<decltype(fake_cuda_order_new)>(
        "fake_cuda_order_new");
    const char *late = getenv("FAKE_NCCL_LATE");
    double end = after(late);

    if (order == nullptr)
        return INVALID_ARGUMENT;
    comm.segment = map_segment(id);
    if (comm.segment == nullptr)
        return INVALID_ARGUMENT;
    if (comm.segment->present[comm.rank].exchange(1) != 0)
        return INVALID_USAGE;
    comm.segment->device[comm.rank] = current_device();
    comm.segment->pid[comm.rank] = getpid();
    comm.segment->joined++;
    if (!wait_until(comm,
                    [&] { return comm.segment->joined.load() >= comm.size; }))
        return REMOTE_ERROR;
    // Two ranks on one device are refused.
    for (int rank = 0; rank < comm.size; rank++)
        if (rank != comm.rank && comm.segment->device[rank].load() ==
                                     comm.segment->device[comm.rank].load())
            return INVALID_USAGE;
    if (!wait_until(comm, [&] { return fake::clock_now() >= end; }))
        return REMOTE_ERROR;
    comm.order = order();
    return SUCCESS;
}

// All ranks of `parent` make one more of themselves.
int split(Comm &parent, Comm &comm)
{
    int status = SUCCESS;

    if (parent.rank == 0)
        status = make_id(&parent.segment->child);
    if (!meet(parent))
        return REMOTE_ERROR;
    return status == SUCCESS ? join(comm, parent.segment->child) : status;
}

// As its macro makes it: of 2.14, or later.
bool is_initialized(const hd_nccl_config *config)
{
    return config != nullptr && config->magic == HD_NCCL_CONFIG_MAGIC &&
           config->size >= sizeof(*config) && config->version >= 21800;
}

} // namespace

#define ENTER()                    \
    do {                           \
        if (fake::fails(__func__)) \
            return INTERNAL_ERROR; \
    } while (0)

// Of what a group may hold: it then does none of it.
#define ENTER_GROUPED()            \
    do {                           \
        if (fake::fails(__func__)) \
            return spoil_group();  \
    } while (0)

int ncclGetVersion(int *out)
{
    ENTER();
    const char *version = getenv("FAKE_NCCL_VERSION");

    *out = version == nullptr ? 22809 : atoi(version);
    return SUCCESS;
}

const char *ncclGetErrorString(int error)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};

    return error >= 0 && error <= IN_PROGRESS ? texts[error]
                                              : "unknown result code";
}

int ncclGetUniqueId(hd_nccl_id *out)
{
    ENTER();
    Id id;
    int status = make_id(&id);

    memset(out, 0, sizeof(*out));
    memcpy(out, &id, sizeof(id));
    return status;
}

int ncclCommInitRankConfig(hd_nccl_comm *out, int size, hd_nccl_id id, int rank,
                           hd_nccl_config *config)
{
    ENTER();
    auto comm = std::make_shared<Comm>();
    Id named;

    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size ||
        !is_initialized(config))
        return INVALID_ARGUMENT;
    memcpy(&named, &id, sizeof(named));
    comm->rank = rank;
    comm->size = size;
    comm->blocking = config->blocking != 0;
    *out = new ncclComm{comm};
    fake::account("nccl communicators", 1);
    if (!comm->blocking) {
        Comm *joining = comm.get(); // its end waits for the thread
        return begin({comm}, [=] { return join(*joining, named); });
    }
    comm->state = join(*comm, named);
    return comm->state;
}

// The new one is there once the old one is done with it.
int ncclCommSplit(hd_nccl_comm handle, int color, int key, hd_nccl_comm *out,
                  hd_nccl_config *config)
{
    ENTER();
    if (handle == nullptr || color < 0 || !is_initialized(config) ||
        handle->comm->blocking || !is_ready(*handle->comm))
        return INVALID_ARGUMENT;
    std::shared_ptr<Comm> parent = handle->comm;
    auto comm = std::make_shared<Comm>();
    (void)key; // ranks stay in their order
    comm->rank = parent->rank;
    comm->size = parent->size;
    comm->blocking =
        config->blocking != 0 && getenv("FAKE_NCCL_NEVER_BLOCKS") == nullptr;
    if (config->split_share == 1)
        std::copy(std::begin(parent->connected), std::end(parent->connected),
                  comm->connected);
    *out = nullptr;
    begin({parent}, [=] {
        int status = split(*parent, *comm);

        if (status != SUCCESS)
            return status;
        *out = new ncclComm{comm};
        fake::account("nccl communicators", 1);
        return status;
    });
    return SUCCESS;
}

// As NCCL does, once all that was put into streams has ended and no graph has a
// call of it any more.
static void drop(ncclComm *comm)
{
    for (double end = fake::clock_now() + PATIENCE;
         comm->comm.use_count() > 1;) {
        if (fake::clock_now() > end) {
            fprintf(stderr, "fake NCCL: a communicator is ended while a graph "
                            "has calls of it, or while a call waits\n");
            abort();
        }
        usleep(200);
    }
    delete comm;
    fake::account("nccl communicators", -1);
}

// What is in progress is waited for, which ends soon where it is aborted.
static void finish_job(Comm &comm)
{
    std::thread job;

    {
        std::lock_guard<std::mutex> guard(comm.lock);
        job.swap(comm.job);
    }
    if (job.joinable())
        job.join();
}

// Whether its process is one no more, though nobody may have waited for it.
static bool has_died(int pid)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;

    std::getline(file, line);
    size_t at = line.rfind(')');
    return at == line.npos || line.compare(at, 3, ") Z") == 0;
}

static bool all_end(Comm &comm)
{
    bool all = true;

    for (int rank = 0; rank < comm.size; rank++)
        all = all &&
              (comm.segment->ending[rank] || has_died(comm.segment->pid[rank]));
    return all;
}

// "An intra-node collective call, which all ranks on the same node should call
// to avoid a hang", on one host or on several that this one stands for.
int ncclCommDestroy(hd_nccl_comm comm)
{
    bool failing = fake::fails(__func__);

    if (comm == nullptr)
        return INVALID_ARGUMENT;
    if (!is_ready(*comm->comm))
        return INVALID_ARGUMENT;
    finish_job(*comm->comm);
    comm->comm->segment->ending[comm->comm->rank] = true;
    while (!all_end(*comm->comm))
        usleep(500);
    drop(comm);
    return failing ? INTERNAL_ERROR : SUCCESS;
}

int ncclCommAbort(hd_nccl_comm comm)
{
    const char *late = getenv("FAKE_NCCL_ENDS_LATE"); // ms
    bool failing = fake::fails(__func__);

    if (comm == nullptr)
        return INVALID_ARGUMENT;
    comm->comm->aborted = true;
    finish_job(*comm->comm);
    for (double end = after(late); fake::clock_now() < end;)
        usleep(500);
    if (comm->comm->segment != nullptr)
        comm->comm->segment->ending[comm->comm->rank] = true;
    drop(comm);
    return failing ? INTERNAL_ERROR : SUCCESS;
}

int ncclCommGetAsyncError(hd_nccl_comm comm, int *out)
{
    ENTER();
    if (comm == nullptr)
        return INVALID_ARGUMENT;
    *out = comm->comm->state;
    if (*out == IN_PROGRESS)
        return SUCCESS;
    finish_job(*comm->comm);
    std::lock_guard<std::mutex> guard(comm->comm->lock);
    comm->comm->pending = false;
    if (*out == SUCCESS)
        *out = comm->comm->error;
    return SUCCESS;
}

int ncclGroupStart(void)
{
    ENTER();
    depth++;
    return SUCCESS;
}

// Ends the group even if it is to fail.
int ncclGroupEnd(void)
{
    bool failing = fake::fails(__func__);
    std::vector<Batch> batches;
    int status = failing || is_wrong ? INTERNAL_ERROR : SUCCESS;

    if (depth == 0)
        return INVALID_USAGE;
    if (--depth > 0)
        return status;
    is_wrong = false;
    batches.swap(waiting);
    return status == SUCCESS ? flush(batches) : status;
}

int ncclSend(const void *from, size_t count, int type, int peer,
             hd_nccl_comm comm, hd_cu_stream stream)
{
    ENTER_GROUPED();
    return add(comm, {Kind::SEND, count, type, 0, 0}, from, nullptr, peer,
               stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, hd_nccl_comm comm,
             hd_cu_stream stream)
{
    ENTER_GROUPED();
    return add(comm, {Kind::RECV, count, type, 0, 0}, nullptr, to, peer,
               stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type,
                  hd_nccl_comm comm, hd_cu_stream stream)
{
    ENTER_GROUPED();
    return add(comm, {Kind::ALL_GATHER, count, type, 0, 0}, from, to, 0,
               stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type,
                      int op, hd_nccl_comm comm, hd_cu_stream stream)
{
    ENTER_GROUPED();
    return add(comm, {Kind::REDUCE_SCATTER, count, type, op, 0}, from, to, 0,
               stream);
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                  hd_nccl_comm comm, hd_cu_stream stream)
{
    ENTER_GROUPED();
    return add(comm, {Kind::ALL_REDUCE, count, type, op, 0}, from, to, 0,
               stream);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op,
               int root, hd_nccl_comm comm, hd_cu_stream stream)
{
    ENTER_GROUPED();
    return add(comm, {Kind::REDUCE, count, type, op, root}, from, to, 0,
               stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                  hd_nccl_comm comm, hd_cu_stream stream)
{
    ENTER_GROUPED();
    return add(comm, {Kind::BROADCAST, count, type, 0, root}, from, to, 0,
               stream);
}

double fake_nccl_clock(void)
{
    return fake::clock_now();
}
