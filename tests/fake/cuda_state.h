// The state of the fake of libcuda. One process-wide lock guards all of it but
// the bytes of memory: the fake has to be right, not fast. One condition is
// signalled whenever work is done.
//
// A "device pointer" is an address of this process, a stream is a thread with a
// queue, and work is a closure. Whatever runs closures is a lane: the thread of
// a stream, or of a branch of a graph.
#ifndef HD_FAKE_CUDA_STATE_H
#define HD_FAKE_CUDA_STATE_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "fake_cuda.h"

extern "C" {
#define HD_CU(symbol, name, ...) \
    __attribute__((visibility("default"))) hd_cu_result symbol(__VA_ARGS__);
#include "runtime/cuda/vendor/cuda.def"
#undef HD_CU
}

namespace fake
{

constexpr hd_cu_result SUCCESS = 0;
constexpr hd_cu_result INVALID_VALUE = 1;
constexpr hd_cu_result INVALID_CLUSTER_SIZE = 912;
constexpr hd_cu_result NOT_INITIALIZED = 3;
constexpr hd_cu_result INVALID_DEVICE = 101;
constexpr hd_cu_result INVALID_IMAGE = 200;
constexpr hd_cu_result INVALID_CONTEXT = 201;
constexpr hd_cu_result INVALID_HANDLE = 400;
constexpr hd_cu_result NOT_FOUND = 500;
constexpr hd_cu_result ILLEGAL_ADDRESS = 700;
constexpr hd_cu_result PEER_NOT_ENABLED = 705;
constexpr hd_cu_result CONTEXT_IS_DESTROYED = 709;
constexpr hd_cu_result NOT_SUPPORTED = 801;
constexpr hd_cu_result CAPTURE_UNSUPPORTED = 900;
constexpr hd_cu_result CAPTURE_INVALIDATED = 901;
constexpr hd_cu_result CAPTURE_MERGE = 902;
constexpr hd_cu_result CAPTURE_UNMATCHED = 903;
constexpr hd_cu_result CAPTURE_UNJOINED = 904;
constexpr hd_cu_result CAPTURE_ISOLATION = 905;
constexpr hd_cu_result CAPTURE_IMPLICIT = HD_CU_CAPTURE_IMPLICIT;
constexpr hd_cu_result CAPTURED_EVENT = HD_CU_CAPTURED_EVENT;
constexpr hd_cu_result CAPTURE_WRONG_THREAD = 908;
constexpr hd_cu_result UNKNOWN = 999;
constexpr hd_cu_result UPDATE_FAILURE = 910;

constexpr int CAPTURE_GLOBAL = 0; // CUstreamCaptureMode
constexpr int OTHER_NODE = -1;    // one that nobody asks for,
constexpr int HOST_NODE = 3;      // and what it says it is
constexpr int MEMORY_UNIFIED = 4; // CUmemorytype

struct Lane {
    CUctx_st *context;
    uint64_t chaos; // state of its random numbers; 0: no delays
};

// False: the context is broken from now on.
using Work = std::function<bool(Lane &)>;

// A moment in a stream.
struct Record {
    bool done = false;
    double seconds = 0;
};

// What a node of a graph was made from, as it can be asked for.
struct Detail {
    int type = OTHER_NODE;
    hd_cu_copy_node copy{};     // of a copy
    hd_cu_kernel_node kernel{}; // of a kernel, whose parameters are:
    std::vector<char> bytes;
    std::vector<hd_cu_memop> words; // of a batch of these
    hd_cu_fill_node fill{};         // of a fill
};

// Work and what it has to follow, by index; earlier nodes alone.
struct Node {
    Work work;
    std::set<size_t> after;
    std::shared_ptr<CUgraphNode_st> name; // the same in all that is made of it
    std::shared_ptr<CUgraphNode_st> like{}; // that it was updated to, or NULL
};

using Nodes = std::shared_ptr<const std::vector<Node>>;

struct Capture {
    CUstream_st *origin;
    uint64_t id; // tells it from all others
    int mode;
    std::thread::id thread; // that began it
    std::vector<Node> nodes;
    std::unique_ptr<CUgraph_st> graph; // that it will be
    bool invalid = false;
};

} // namespace fake

struct CUgraphNode_st {
    fake::Detail detail;
    fake::Work work;
    size_t bytes; // what a kernel's parameters are told by
    void *extra[5];
};

struct CUgraph_st {
    fake::Nodes nodes;             // once it is made
    const fake::Capture *building; // until then
};

struct CUgraphExec_st {
    hd_cu_graph graph;                  // that it was made from
    std::shared_ptr<fake::Record> last; // of its launches
    fake::Nodes nodes;
    bool shared = true; // with the graph, or a launch: replaced to set one anew
};

namespace fake
{

struct Region {
    size_t bytes;
    enum Kind { DEVICE, HOST, IMPORTED, DEAD } kind;
    CUctx_st *context; // that it was made in
    int device;
    int fd;           // its file
    void *map;        // with its first page and what guards it
    size_t map_bytes; //
    bool shareable;
    bool exported;
    uint64_t nonce; // tells a piece of memory from all others
    int opens;      // of an import
};

} // namespace fake

struct CUctx_st {
    int device;
    int retained = 0;
    std::atomic<hd_cu_result> failed{0}; // sticky
    int blocked = 0;                     // waits in progress
    std::shared_mutex processors; // of which a kernel that holds them has all
    int freeing = 0;              // calls that free memory
    CUstream_st *ordinary = nullptr;              // the NULL stream
    std::map<std::thread::id, CUstream_st *> own; // of threads
    std::set<CUstream_st *> streams;              // those that have threads
    std::set<CUctx_st *> peers;                   // whose memory it may touch
};

struct CUstream_st {
    CUctx_st *context;
    std::deque<fake::Work> queue;
    uint64_t issued = 0, completed = 0;
    bool blocking = false; // in order with the ordinary stream
    bool closing = false;
    std::condition_variable more;
    fake::Lane lane;
    std::shared_ptr<fake::Capture> capture;
    std::set<size_t> tails; // nodes that its next one follows
};

struct CUevent_st {
    CUctx_st *context;
    unsigned flags;
    std::shared_ptr<fake::Record> last;
    std::shared_ptr<fake::Capture> capture; // if recorded there last
    std::set<size_t> tails;
};

struct CUfunc_st {
    CUctx_st *context;
    void (*run)(const void *args, const unsigned *grid, const unsigned *block);
    void (*thread)(const void *args, unsigned blocks, unsigned threads,
                   unsigned block, unsigned thread, void (*meet)(void *),
                   void *barrier);
    bool waits;   // its threads for those of other kernels
    bool holds;   // all processors until it ends, while it waits for copies
    size_t bytes; // of its parameters
    unsigned shared = HD_CU_SHARED_BYTES; // that a launch may have
};

struct CUmod_st {
    CUctx_st *context;
    void *library;
    std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

namespace fake
{

struct World {
    std::mutex lock;
    std::condition_variable change;
    std::vector<CUctx_st *> primary; // a device; NULL if not retained
    std::set<CUctx_st *> contexts;
    std::vector<CUctx_st *> ended; // contexts that streams may still look at
    std::set<CUstream_st *> streams;
    std::set<CUevent_st *> events;
    std::set<CUmod_st *> modules;
    std::set<CUfunc_st *> functions;
    std::set<CUgraph_st *> graphs;
    std::set<CUgraphExec_st *> execs;
    std::map<uintptr_t, Region> regions;
    uint64_t memory; // bytes of a device
    int max_blocked;
    uint64_t chaos;
    uint64_t nonce;
    double spent = 0;          // seconds that the clock of events is ahead
    double kernel_seconds = 0; // that each kernel spends
};

using Guard = std::unique_lock<std::mutex>;

// Never freed: streams may run until the process ends.
World &world();
// Makes the world. Not in a child of a process that has made one.
hd_cu_result init_world();

// Counts the call, and answers with the failure that it was told to give, or
// that nothing is initialised, or that a capture forbids it, which then fails.
hd_cu_result enter(const char *symbol);

// The context of this thread, which must be there and not broken.
hd_cu_result current(CUctx_st **out);

double now();

// Whether the ordinary stream may not be used: one that is in order with it is
// being captured. The caller holds the lock.
bool is_implied(const CUctx_st *context);
// The stream of a handle, of the current context. Takes the lock. A capture
// that it would have to be part of fails.
hd_cu_result resolve(hd_cu_stream handle, CUstream_st **out);
// Puts work in the stream's queue, or in the graph it is captured into.
hd_cu_result submit(CUstream_st *stream, Work work, const Detail &detail = {});
// What `node` does in the graph's launches from now on.
hd_cu_result set_work(hd_cu_graph_exec exec, hd_cu_node node, Work work);
// The detail of a kernel that has no function here: its parameters are the work
// itself, and `fn` tells it from others.
Detail opaque_kernel(int (*fn)(void *data));
// One that a graph has, or NULL. The caller holds the lock.
CUgraphNode_st *find_node(hd_cu_node node, int type);
// Moves bytes on the device. False where they cannot be reached.
bool copy_now(uint64_t to, uint64_t from, size_t bytes);
// Until all that was put into the stream so far is done.
hd_cu_result drain(Guard &guard, CUstream_st *stream);
// Until no stream of the context has anything to do.
void quiesce(Guard &guard, CUctx_st *context);
void stop_streams(CUctx_st *context);
void execute(Lane &lane, const Work &work);
bool wait_record(Lane &lane, const std::shared_ptr<Record> &record);
void finish_record(const std::shared_ptr<Record> &record);

enum class Place { DEVICE, HOST, PAGEABLE, NOWHERE };
// Where a range lies. NOWHERE: across an end, or in memory that was freed.
Place locate(uint64_t at, size_t bytes);
// Whether what a context's streams do themselves, words and kernels, may touch
// the address: that of another context if peer access to it is enabled. True
// also for the address one past a piece of memory, and of what is none.
bool is_allowed(const CUctx_st *context, uint64_t at);
// Nobody has memory of the context open, which is to end. The lock is held.
void check_end(const CUctx_st *context);
// True also for the address one past a piece of memory.
bool is_reachable(uint64_t at);

} // namespace fake

// Of what is not in the driver's table.
#define EXPORT extern "C" __attribute__((visibility("default")))

// Every entry point begins with one of these.
#define FAKE_ENTER()                                 \
    do {                                             \
        hd_cu_result enter_ = fake::enter(__func__); \
        if (enter_ != fake::SUCCESS)                 \
            return enter_;                           \
    } while (0)
#define FAKE_CONTEXT(context)                              \
    CUctx_st *context;                                     \
    do {                                                   \
        hd_cu_result context_ = fake::current(&(context)); \
        if (context_ != fake::SUCCESS)                     \
            return context_;                               \
    } while (0)
#define FAKE_STREAM(handle, stream)                              \
    CUstream_st *stream;                                         \
    do {                                                         \
        hd_cu_result stream_ = fake::resolve(handle, &(stream)); \
        if (stream_ != fake::SUCCESS)                            \
            return stream_;                                      \
    } while (0)

#endif
